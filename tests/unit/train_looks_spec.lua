--- What a trainer tells beside the loss: gradient norms, rates, looks within an epoch, and the rate
-- that the finder finds.
local neap = require "neap"
local nn, optim, data = neap.nn, neap.optim, neap.data
local raises = require("support").raises

local function points(o)
  o = o or {}
  local x = neap.zeros(24, 3)
  local k = 0
  x:apply_(function() k = (k * 7 + 5) % 11; return k / 11 - 0.5 end)
  o.x, o.y, o.batch, o.shuffle = x, x:narrow(2, 1, 1):gt(0):to("i64"):view(24), 4, true
  return data.tensors(o)
end

local function make(o)
  o = o or {}
  o.model = nn.Sequential { input = { 3 }, seed = 2, nn.Linear { 3, 4 }, nn.Tanh(),
    nn.Dropout(0.1), nn.Linear { 4, 2 } }
  o.optimizer = o.optimizer or optim.Adam { lr = 0.05 }
  return neap.trainer(o)
end

describe("a trainer tells", function()
  it("the norm of the gradients, as they are before clipping, however a step is cut", function()
    local batch = { x = neap.full { 6, 3, value = 0.25 }, y = neap.tensor({ 0, 1, 0, 0, 1, 0 },
      "i64") }
    local function plain(o)
      o.model = nn.Sequential { input = { 3 }, seed = 2, nn.Linear { 3, 2 } }
      o.optimizer, o.grad_norm = optim.SGD { lr = 0.1, clip = 1e-3 }, true
      return neap.trainer(o)
    end
    local whole <close> = plain {}
    local m = nn.Sequential { input = { 3 }, seed = 2, nn.Linear { 3, 2 } }
    local sum = 0
    local y = m(batch.x)
    local dy = (y:softmax() - batch.y:one_hot({ depth = 2 }):to "f32") * (1 / 6)
    m:backward(batch.x, dy)
    for _, p in m:parameters() do sum = sum + (p.grad * p.grad):sum():item() end
    local want = math.sqrt(sum)
    assert.is_true(math.abs(whole:step(batch).grad_norm - want) < 1e-5)
    local parts <close> = plain { micro = 2 }
    assert.is_true(math.abs(parts:step(batch).grad_norm - want) < 1e-5)
    local held <close> = plain { accumulate = 2 }
    assert.is_nil(held:step(batch).grad_norm)
    assert.is_true(math.abs(held:step(batch).grad_norm - want) < 1e-5)
  end)

  it("its mean and the rate in the history, through a resumed run too", function()
    local path = os.tmpname() .. ".safetensors"
    local function rate(step) return 0.1 / step end
    local t <close> = make { grad_norm = true, schedule = rate }
    local norms = {}
    t:fit(points(), { epochs = 2, verbose = 0, on_step = function(r)
      norms[#norms + 1] = r.grad_norm
    end })
    local h = t:history()
    local mean = 0
    for i = 7, 12 do mean = mean + norms[i] / 6 end
    assert.is_true(math.abs(h[2].grad_norm - mean) < 1e-9)
    assert.are.equal(rate(12), h[2].lr)
    assert.is_truthy(tostring(h):find "grad_norm%s+lr%s+seconds")
    local broken <close> = make { grad_norm = true, schedule = rate }
    pcall(broken.fit, broken, points(), { epochs = 2, verbose = 0, checkpoint = { path, every = 1 },
      on_step = function(r) if r.step == 9 then error "stop" end end })
    local later <close> = make { grad_norm = true, schedule = rate }
    later:fit(points(), { epochs = 2, verbose = 0, checkpoint = path, resume = true })
    assert.is_true(math.abs(later:history()[2].grad_norm - h[2].grad_norm) < 1e-12)
    os.remove(path)
  end)

  it("what valid data say within an epoch, which changes no step", function()
    local t <close> = make()
    local plain <close> = make()
    t:fit(points(), { epochs = 2, valid = points(), valid_every = 2, verbose = 0 })
    plain:fit(points(), { epochs = 2, valid = points(), verbose = 0 })
    local h = t:history()
    local steps = {}
    for i, row in ipairs(h) do steps[i] = row.step .. (row.within and "" or "!") end
    assert.are.same({ "2", "4", "6", "6!", "8", "10", "12", "12!" }, steps)
    for i, k in ipairs { 4, 8 } do
      assert.are.equal(plain:history()[i].loss, h[k].loss)
      assert.are.equal(plain:history()[i].valid_loss, h[k].valid_loss)
    end
    assert.is_true(h[1].valid_loss ~= h[2].valid_loss)
    raises("valid_every expects data in valid", t.fit, t, points(), { valid_every = 2 })
  end)

  it("a rate to begin with, and leaves all as it was", function()
    local t <close> = make()
    local plain <close> = make()
    for _ = 1, 2 do
      local found = t:find_lr(points(), { from = 1e-4, to = 10, steps = 40 })
      assert.is_true(found.lr > 1e-3 and found.lr < 5)
      assert.is_true(#found <= 40 and found[1].lr == 1e-4)
      assert.are.equal(0, #t:history() - #plain:history())
      assert.are.equal(0.05, t.optimizer.lr)
      t:fit(points(), { epochs = 2, verbose = 0 })
      plain:fit(points(), { epochs = 2, verbose = 0 })
      for name, p in pairs(t.model:state_dict()) do
        assert.is_true(p:equal(plain.model:state_dict()[name]), name)
      end
      assert.are.equal(plain.position.step, t.position.step)
    end
    raises("to = 0.1 expects more than from = 1", t.find_lr, t, points(), { from = 1, to = 0.1 })
    raises("expects a data set", t.find_lr, t, {})
  end)
end)
