-- The scale of the loss in mixed precision of f16: another one changes no bit where nothing over-
-- or underflows, gradients that are not finite change nothing, and "dynamic" finds one that fits.
local neap = require "neap"
local support = require "support"
local nn, optim, raises = neap.nn, neap.optim, support.raises

describe("loss_scale", function()
  local x, y = neap.randn(8, 6), neap.arange(0, 8):to "i64" % 3

  local function make(o)
    neap.seed(1)
    o.model = nn.Sequential { input = { 6 }, seed = 1, nn.Linear { 6, 16 }, nn.ReLU(),
      nn.Linear { 16, 3 } }
    o.optimizer = optim.SGD { lr = 0.1, momentum = 0.9 }
    o.dtype = o.dtype or "f16"
    return neap.trainer(o)
  end

  --- Steps, then what is in the workspace, parameters and momentum, by name.
  local function train(t, n)
    local rows = {}
    for i = 1, n do rows[i] = t:step { x = x, y = y } end
    local bits = {}
    for _, blob in ipairs(t.ws:_blobs()) do
      if blob.role == "parameter" or blob.role == "state" and not blob.name:find "micro" then
        bits[blob.name] = t.ws:view(blob.name):hash()
      end
    end
    return bits, rows
  end

  --- The bits of the parameters alone.
  local function parameters(t)
    local bits = {}
    for name, p in pairs(t.model:state_dict()) do bits[name] = p:hash() end
    return bits
  end

  it("of a power of two changes no bit, where nothing overflows", function()
    local want = train(make {}, 5)
    for _, scale in ipairs { 1024, 2 ^ 12, 2 ^ 14, "dynamic" } do
      local bits, rows = train(make { loss_scale = scale }, 5)
      assert.are.same(want, bits)
      assert.are.equal(scale == "dynamic" and 65536 or scale, rows[5].loss_scale)
    end
    local _, rows = train(make { loss_scale = 64, grad_norm = true }, 1)
    assert.is_true(rows[1].grad_norm > 0)
    assert.are.equal(rows[1].grad_norm, select(2, train(make { grad_norm = true }, 1))[1].grad_norm)
  end)

  it("comes down though an epoch has no batch that it fits", function()
    local model = nn.Sequential { input = { 5 }, seed = 1, nn.Linear { 5, 64 }, nn.ReLU(),
      nn.Linear { 64, 1 } }
    local t = neap.trainer { model = model, optimizer = optim.SGD { lr = 1e-4 }, dtype = "f16",
      loss = nn.MseLoss { reduction = "sum" }, loss_scale = "dynamic", seed = 1 }
    local set = neap.data.tensors { x = neap.randn(32, 5), y = neap.randn(32, 1) * 30, batch = 32 }
    local history = t:fit(set, { epochs = 4, verbose = 0 })
    assert.are.equal(4, #history)
    assert.is_true(history[4].loss < history[1].loss)
    assert.is_true(t:step({ x = neap.randn(32, 5), y = neap.ones(32, 1) }).loss_scale < 65536)
  end)

  it("keeps gradients that would vanish among the smallest numbers of f16", function()
    local function small(output, target) return output:softmax_cross_entropy(target) * 1e-8 end
    local _, rows = train(make { loss = small, loss_scale = 1, grad_norm = true }, 1)
    assert.are.equal(0, rows[1].grad_norm)
    _, rows = train(make { loss = small, loss_scale = 2 ^ 20, grad_norm = true }, 1)
    local _, exact = train(make { loss = small, dtype = "f32", grad_norm = true }, 1)
    assert.is_true(math.abs(rows[1].grad_norm / exact[1].grad_norm - 1) < 0.02)
  end)

  for _, micro in ipairs { false, 3 } do
    it("dynamic passes a batch by and halves, then doubles" .. (micro and ", in parts" or ""),
      function()
        local t = make { loss_scale = { from = 2 ^ 22, every = 3 }, micro = micro or nil }
        local start = parameters(t)
        local scales, skipped, step = {}, 0, 0
        for i = 1, 16 do
          local row = t:step { x = x, y = y }
          scales[i] = row.loss_scale
          if row.skipped then
            skipped = skipped + 1
            assert.are.equal(scales[1] / 2 ^ (i - 1), row.loss_scale)
            assert.are.same(start, parameters(t))
          else
            step = step + 1
            if step == 1 then assert.is_true(skipped > 0 and skipped == i - 1) end
          end
          assert.are.equal(step, row.step)
          if step > 0 then break end
        end
        local first = scales[#scales]
        for _ = 1, 2 do assert.are.equal(first, t:step({ x = x, y = y }).loss_scale) end
        assert.are.equal(2 * first, t:step({ x = x, y = y }).loss_scale)
      end)
  end

  --- y = w x of one weight, whose gradient is the mean of x times the scale: in f16, to 65504.
  local function one_weight(o)
    o.model = nn.Sequential { input = { 1 }, seed = 1, nn.Linear { 1, 1, bias = false } }
    o.optimizer, o.dtype = optim.SGD { lr = 0.001 }, "f16"
    o.loss, o.reduces = function(output) return output:sum() end, "sum"
    return neap.trainer(o)
  end

  it("is as large as it says: what it makes of 1 is the last power of two in f16, or too much",
    function()
      local one = neap.ones(1, 1)
      assert.is_nil(one_weight({ loss_scale = 2 ^ 15 }):step({ x = one }).skipped)
      raises("gradients are not finite", function()
        one_weight({ loss_scale = 2 ^ 16 }):step { x = one }
      end)
    end)

  it("dynamic counts updates from the last batch that was passed by", function()
    local t = one_weight { loss_scale = { from = 2 ^ 13, every = 3 } }
    local scales = {}
    for i, x in ipairs { 1, 1, 16, 1, 1, 1, 1, 1 } do
      local row = t:step { x = neap.ones(1, 1) * x }
      scales[i] = math.tointeger(row.loss_scale) .. (row.skipped and " skipped" or "")
    end
    assert.are.same({ "8192", "8192", "8192 skipped", "4096", "4096", "4096", "8192", "8192" },
      scales)
  end)

  it("is as it was behind a step that raises", function()
    local t = one_weight { loss_scale = { from = 2 ^ 13, every = 1 } }
    t:step { x = neap.ones(1, 1) }
    assert.are.equal(8, t.ws:fetch("loss_scale"):item())
    raises("the loss is NaN", t.step, t, { x = neap.ones(2, 1) * (0 / 0) })
    assert.are.equal(8, t.ws:fetch("loss_scale"):item())
    assert.are.equal(2 ^ 14, t:step({ x = neap.ones(1, 1) }).loss_scale)
  end)

  it("dynamic stays below 2^100, however small gradients are", function()
    local t = make { loss_scale = { from = 2 ^ 98, every = 1 }, loss = function(output, target)
      return output:softmax_cross_entropy(target) * 1e-30
    end }
    local _, rows = train(t, 4)
    assert.are.same({ 2 ^ 98, 2 ^ 99, 2 ^ 99, 2 ^ 99 }, { rows[1].loss_scale, rows[2].loss_scale,
      rows[3].loss_scale, rows[4].loss_scale })
  end)

  it("as a number raises, or passes the batch by, as nan says; nothing changes", function()
    local t = make { loss_scale = 2 ^ 30 }
    local before = parameters(t)
    for _ = 1, 2 do
      raises({ "gradients are not finite at step 1", "loss_scale = 1.07374e+09", "dynamic" },
        t.step, t, { x = x, y = y })
    end
    assert.are.same(before, parameters(t))
    for _, nan in ipairs { "skip", "off" } do
      local _, rows = train(make { loss_scale = 2 ^ 30, nan = nan }, 2)
      assert.is_true(rows[2].skipped and rows[2].step == 0)
    end
  end)

  it("does not hide a loss that is not finite, nor gradients that no scale helps", function()
    local t = make { loss_scale = "dynamic", loss = function(output, target)
      return output:softmax_cross_entropy(target) * 0 / 0
    end }
    raises("the loss is NaN at step 1", t.step, t, { x = x, y = y })
    -- The slope of a root at 0 is infinite, by whatever it is multiplied.
    t = make { loss_scale = { from = 4, every = 9 }, reduces = "sum", loss = function(output)
      return ((output * 0):sqrt() * output:exp()):sum()
    end }
    for _ = 1, 2 do assert.is_true(t:step({ x = x }).skipped) end
    raises("loss_scale = 1", t.step, t, { x = x })
  end)

  it("is in checkpoints: a run that goes on gives the bits of one that never stopped", function()
    local o = { from = 2 ^ 20, every = 4 }
    local whole = make { loss_scale = o, nan = "skip" }
    local want, rows = train(whole, 14)
    local path = os.tmpname() .. ".safetensors"
    local first = make { loss_scale = o, nan = "skip" }
    train(first, 9)
    assert(first:save(path))
    local second = make { loss_scale = o, nan = "skip" }
    assert(second:load(path))
    local bits, more = train(second, 5)
    assert.are.same(want, bits)
    assert.are.equal(rows[14].loss_scale, more[5].loss_scale)
    assert.are.equal(rows[10].loss_scale, more[1].loss_scale)
    os.remove(path)
  end)

  it("is refused where it has no use or no meaning", function()
    raises({ 'dtype = "f16"', "bf16" }, make, { loss_scale = 8, dtype = "bf16" })
    raises('dtype = "f16"', make, { loss_scale = "dynamic", dtype = "f32" })
    raises("accumulate", make, { loss_scale = "dynamic", accumulate = 2, reduces = "mean" })
    raises("loss_scale", make, { loss_scale = 0 })
    raises("dynamic", make, { loss_scale = "dynamc" })
    raises("every", make, { loss_scale = { every = 0 } })
    raises("form", make, { loss_scale = { form = 2 } })
  end)
end)
