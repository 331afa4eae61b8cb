-- What depends on parameters alone is computed once per content of the parameters: constants, a
-- region of their own.
local neap = require "neap"
local nn = neap.nn

--- y = x (tanh w)': one value that depends on parameters alone.
local function folded(name)
  local net = neap.net(name or "folded")
  local w2 = net:Tanh(net:param("w", { 3, 4 }, neap.init.xavier {}), "w2")
  net:outputs { net:FC({ net:input("x", { 2, 4 }), w2 }, "y") }
  return net
end

local function expected(x, w) return x:matmul(w:tanh():transpose(1, 2)) end

--- Whether a run gives what the parameter, as it is now, demands.
local function is_current(ws, net, name)
  local x = neap.rand(2, 4)
  return ws:run(net, { x = x }).y:close(expected(x, ws:fetch(name or "w")),
    { rtol = 1e-5, atol = 1e-6 })
end

--- A net with a weight that engines pack.
local function convolution(o)
  o = o or {}
  local net = neap.net(o.name or "packed")
  local x = net:input("x", { o.batch or 2, 16, 9, 9 })
  net:outputs {
    net:Conv({ x, net:param("w", { 32, 16, 3, 3 }, neap.init.xavier {}) }, "y", { pad = 1 }),
  }
  return net
end

describe("constants", function()
  it("are a region of their own, outside the arena, and the forecast counts them", function()
    local plan = folded():plan {}
    assert.are.equal(64, plan.regions.constants)
    assert.are.equal(0, plan.arena_bytes)
    assert.is_truthy(tostring(plan:explain()):find("constants", 1, true))
    assert.is_truthy(tostring(plan:explain("w2")):find("constants", 1, true))
  end)

  it("are none in a net that trains", function()
    local net = folded()
    local loss = net:Mean("y", "loss")
    net:gradient(loss)
    net:outputs { loss }
    assert.is_true((net:plan {}.regions.constants or 0) == 0)
  end)

  it("are held as forecast, and computed without allocation", function()
    for _, net in ipairs { folded(), convolution() } do
      for _, executor in ipairs { "simple", "dag" } do
        local r = neap.check.plan(net, { train = false, executor = executor, poison = true })
        assert.is_true(r.same, r.different)
        assert.are.equal(r.forecast_bytes, r.held_bytes)
        assert.are.equal(0, r.allocations)
      end
    end
  end)

  it("are computed once, and again when the parameter has changed", function()
    local ws <close> = neap.workspace { seed = 1 }
    local program <close> = ws:compile(folded(), { profile = true })
    ws:feed("x", neap.ones(2, 4))
    local function n_computed()
      for i, op in ipairs(program.plan:ops()) do
        if op.type == "Tanh" then return program:times()[i].n_call end
      end
    end
    for _ = 1, 3 do program:run() end
    assert.are.equal(1, n_computed())
    ws:feed("w", neap.full { 3, 4, value = 0.5 })
    for _ = 1, 2 do program:run() end
    assert.are.equal(2, n_computed())
    assert.is_true(ws:fetch("w2"):close(neap.full { 3, 4, value = 0.46211715726 }, { atol = 1e-6 }))
  end)

  it("follow every way of writing a parameter", function()
    local ws <close> = neap.workspace { seed = 1 }
    local net = folded()
    assert.is_true(is_current(ws, net))
    local view = ws:view "w"
    local path = os.tmpname() .. ".safetensors"
    assert(ws:save(path))
    local ways = {
      feed = function() ws:feed("w", neap.randn(3, 4)) end,
      fill_ = function() view:fill_(0.25) end,
      zero_ = function() view:zero_() end,
      copy_ = function() view:copy_(neap.randn(3, 4)) end,
      ["an element"] = function() view[2][3] = 1.5 end,
      ["a row"] = function() view[1] = neap.tensor { 1, 2, 3, 4 } end,
      ["a range"] = function() view[{ { 2, 3 }, { 1, 2 } }] = 0.75 end,
      ["a mask"] = function() view[view:gt(0)] = -1 end,
      set = function() view:set(2, 3, 4) end,
      apply_ = function() view:apply_(function(x) return x + 1 end) end,
      map_ = function() view:map_(neap.ones(3, 4), function(x, y) return x - y end) end,
      ["a view of a view"] = function() view:transpose(1, 2):narrow(1, 2, 2):fill_(3) end,
      checkpoint = function() assert(ws:load(path)) end,
      ["a tensor shared"] = function()
        ws:remove "w"
        ws:feed("w", neap.randn(3, 4), { share = true })
      end,
    }
    local names = {}
    for name in pairs(ways) do names[#names + 1] = name end
    table.sort(names)
    for _, name in ipairs(names) do
      ways[name]()
      assert.is_true(is_current(ws, net), name)
      if name == "a tensor shared" then break end
    end
    os.remove(path)
  end)

  it("follow a tensor that the workspace only shares", function()
    local ws <close> = neap.workspace { seed = 1 }
    local w, net = neap.randn(3, 4), folded()
    ws:feed("w", w, { share = true })
    assert.is_true(is_current(ws, net))
    w:fill_(0.5)
    assert.is_true(is_current(ws, net))
  end)

  it("follow training in the same workspace", function()
    local ws <close> = neap.workspace { seed = 1 }
    local test, train = folded "test", folded "train"
    local loss = train:Mean("y", "loss")
    neap.optim.SGD { lr = 0.5 }:apply(train, train:gradient(loss))
    train:outputs { loss }
    assert.is_true(is_current(ws, test))
    local before = ws:fetch "w"
    for _ = 1, 3 do
      ws:run(train, { x = neap.rand(2, 4), lr = 0.5 })
      assert.is_true(is_current(ws, test))
    end
    assert.is_false(before:equal(ws:fetch "w"))
  end)

  it("follow the parameters of a parent, under its name or another", function()
    local parent <close> = neap.workspace { seed = 1 }
    parent:feed("w", neap.randn(3, 4))
    local child <close> = neap.workspace { parent = parent }
    local other <close> = neap.workspace { parent = parent, forward = { w = "w" } }
    local net = folded()
    for step = 1, 3 do
      assert.is_true(is_current(child, net))
      assert.is_true(is_current(other, net))
      parent:feed("w", neap.full { 3, 4, value = step })
    end
  end)

  it("follow tied parameters and a model's state", function()
    local model = nn.Sequential {
      input = { 4 }, seed = 3, nn.Linear { 4, 4 }, nn.Tanh(), nn.Linear { 4, 4 },
    }
    model:tie("linear1.weight", "linear2.weight")
    local x = neap.rand(2, 4)
    local function by_hand()
      local w = model:param("linear1.weight").data
      local b1 = model:param("linear1.bias").data
      local b2 = model:param("linear2.bias").data
      return ((x:matmul(w:transpose(1, 2)) + b1):tanh()):matmul(w:transpose(1, 2)) + b2
    end
    model:eval()
    assert.is_true(model(x):close(by_hand(), { atol = 1e-5 }))
    model:param("linear1.weight").data:copy_(neap.randn(4, 4))
    assert.is_true(model(x):close(by_hand(), { atol = 1e-5 }))
    local state = model:state_dict()
    for _, t in pairs(state) do t:fill_(0.125) end
    model:load_state_dict(state)
    assert.is_true(model(x):close(by_hand(), { atol = 1e-5 }))
  end)

  it("of two programs of one workspace do not disturb each other", function()
    local ws <close> = neap.workspace { seed = 1 }
    local a, b = convolution { name = "a" }, convolution { name = "b", batch = 5 }
    local x = neap.rand(5, 16, 9, 9)
    for _ = 1, 3 do
      local ya, yb = ws:run(a, { x = x:narrow(1, 1, 2):clone() }).y, ws:run(b, { x = x }).y
      assert.is_true(ya:close(yb:narrow(1, 1, 2), { rtol = 1e-4, atol = 1e-5 }))
      ws:view("w"):copy_(neap.randn(32, 16, 3, 3))
    end
  end)

  it("do not exist of state that the net itself writes", function()
    local net = neap.net "counter"
    local n = net:param("n", { 1 }, neap.init.zeros)
    local twice = net:Mul({ n, n }, "twice")
    net:outputs { net:Add({ twice, net:input("x", { 1 }) }, "y") }
    net:op("Copy", { "y" }, { "z" })
    assert.are.equal(64, net:plan {}.regions.constants)
  end)

  it("are given up where a total leaves no room for them", function()
    local net = neap.net "two"
    local h = net:input("x", { 1, 16, 9, 9 })
    for i = 1, 4 do
      h = net:Conv({ h, net:param("w" .. i, { 16, 16, 3, 3 }, neap.init.xavier {}) }, "y" .. i,
        { pad = 1 })
    end
    net:outputs { h }
    local free = net:plan {}
    if (free.regions.constants or 0) == 0 then return end -- nothing is packed without oneDNN
    local tight = net:plan { total = free.total_bytes - 1024 }
    assert.is_true(tight.total_bytes <= free.total_bytes - 1024)
    assert.are.equal(0, tight.regions.constants or 0)
  end)
end)
