-- Which numbers random ops draw: other ones at every run, the same ones after the same seed or step
-- was told.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim

local function sampler(name)
  local net = neap.net(name or "sampler")
  net:outputs { net:Uniform(nil, "u", { shape = { 4 } }) }
  return net
end

local function draws(ws, net, n)
  local hashes = {}
  for i = 1, n do hashes[i] = ws:run(net).u:hash() end
  return hashes
end

local function all_differ(list)
  local seen = {}
  for _, x in ipairs(list) do
    assert.is_nil(seen[x])
    seen[x] = true
  end
end

describe("a sampling net", function()
  it("draws anew at every run, by the seed of its workspace", function()
    local net = sampler()
    for _, o in ipairs {
      {}, { executor = "dag" }, { executor = "dynamic" }, { policy = "none" },
    } do
      o.store, o.seed = false, 7
      local a <close> = neap.workspace(o)
      local b <close> = neap.workspace(o)
      local first = draws(a, net, 3)
      all_differ(first)
      assert.same(first, draws(b, net, 3))
      a:seed(7)
      assert.same(first, draws(a, net, 3))
      a:step(1) -- the second draw
      assert.are.equal(first[2], draws(a, net, 1)[1])
    end
  end)

  it("draws by neap.seed in a workspace without a seed", function()
    local net = sampler()
    local ws <close> = neap.workspace { store = false }
    neap.seed(4)
    local first = draws(ws, net, 3)
    all_differ(first)
    neap.seed(4)
    assert.same(first, draws(ws, net, 3))
    neap.seed(5)
    assert.are_not.equal(first[1], draws(ws, net, 1)[1])
    ws:step(6)
    first = draws(ws, net, 2)
    ws:step(6)
    assert.same(first, draws(ws, net, 2))
  end)

  it("draws anew in children, scopes and step trees", function()
    local net = sampler()
    local parent <close> = neap.workspace { seed = 1, store = false }
    local a <close> = neap.workspace { parent = parent, store = false }
    local b <close> = neap.workspace { parent = parent, store = false }
    local list = draws(a, net, 2)
    for _, x in ipairs(draws(b, net, 2)) do list[#list + 1] = x end
    for _, x in ipairs(draws(parent, net, 2)) do list[#list + 1] = x end
    all_differ(list)
    local again <close> = neap.workspace { seed = 1, store = false }
    local child <close> = neap.workspace { parent = again, store = false }
    assert.are.equal(list[1], draws(child, net, 1)[1])
  end)

  it("goes on with its draws from a checkpoint", function()
    local net, path = sampler(), os.tmpname() .. ".safetensors"
    local a <close> = neap.workspace { seed = 3, store = false }
    local b <close> = neap.workspace { seed = 8, store = false }
    draws(a, net, 2)
    assert(a:save(path))
    local rest = draws(a, net, 2)
    assert(b:load(path))
    assert.same(rest, draws(b, net, 2))
    os.remove(path)
  end)

  it("uses no draw in a run that fails", function()
    local net = neap.net "checked"
    local i = net:input("i", { 1 }, "i64")
    local u = net:Uniform(nil, "u", { shape = { 4, 1 } })
    net:outputs { u, net:Embedding({ i, u }, "g") }
    local a <close> = neap.workspace { seed = 3, store = false }
    local b <close> = neap.workspace { seed = 3, store = false }
    assert.is_false(pcall(a.run, a, net, { i = neap.tensor({ 9 }, "i64") }))
    local good = { i = neap.tensor({ 2 }, "i64") }
    assert.are.equal(b:run(net, good).u:hash(), a:run(net, good).u:hash())
  end)
end)

describe("a layer that draws", function()
  it("draws another mask at each call, eager and trained", function()
    local d, x = nn.Dropout(0.5), neap.ones(64)
    d:train()
    local list = {}
    for i = 1, 4 do list[i] = d(x):hash() end
    all_differ(list)
    neap.seed(11)
    local first = d(x):hash()
    neap.seed(11)
    assert.are.equal(first, d(x):hash())
    d:seed(2)
    first = { d(x):hash(), d(x):hash() }
    all_differ(first)
    d:seed(2)
    assert.same(first, { d(x):hash(), d(x):hash() })
    d:eval()
    assert.is_true(d(x):equal(x))
  end)

  it("draws the same in training whatever is sampled between the steps", function()
    local function train(sampled)
      neap.seed(21)
      local model = nn.Sequential {
        input = { 6 }, nn.Linear { 6, 8 }, nn.Dropout(0.5), nn.Linear { 8, 2 },
      }
      local t <close> = neap.trainer {
        model = model, optimizer = optim.SGD { lr = 0.1 }, loss = nn.CrossEntropyLoss(),
      }
      local x, y = neap.arange(24):to("f32"):view(4, 6) / 24, neap.tensor({ 0, 1, 0, 1 }, "i64")
      for _ = 1, 3 do
        t:step { x = x, y = y }
        model:train()
        if sampled then all_differ { model(x):hash(), model(x):hash() } end
      end
      return model:state_dict()["linear1.weight"]:hash()
    end
    assert.are.equal(train(false), train(true))
  end)

  it("makes a random call in a forward an op, with new numbers at each run", function()
    local m = nn.Lambda(function(x) return x + neap.randn(4) end)
    local x = neap.zeros(2, 4)
    all_differ { m(x):hash(), m(x):hash(), m(x):hash() }
  end)

  it("is an op only while a net is built by a function: a scope left open takes nothing", function()
    local net = neap.net "f"
    local handle = net:scope "left open"
    assert.are.equal("f32", neap.rand(2).dtype)
    assert.are.equal("userdata", type(neap.rand(2)))
    getmetatable(handle).__close()
    assert.are.equal("table", type(net:scope("in", function() return neap.rand(2) end)))
  end)
end)

describe("a model whose forward holds a derivative", function()
  it("trains by the same numbers whatever is evaluated between the steps", function()
    local function train(between)
      local m = nn.Sequential {
        nn.Dropout(0.3), nn.Lambda(neap.grad(function(z) return (z:tanh() * z):sum() end)),
        nn.Linear { 6, 2 },
      }
      m:seed(7)
      local t = neap.trainer { model = m, loss = nn.MseLoss(), optimizer = optim.SGD { lr = 0.1 },
        seed = 11, memory = { store = false } }
      local x, losses = neap.linspace(-1, 1, 24):reshape(4, 6), {}
      for k = 1, 4 do
        losses[k] = t:step({ x = x, y = neap.ones(4, 2) }).loss
        between(m, t, x)
      end
      return losses
    end
    local want = train(function() end)
    assert.same(want, train(function(_, t, x) t:predict(x) end))
    assert.same(want, train(function(m, _, x) m(x) end))
    assert.same(want, train(function(_, t, x)
      t:evaluate(neap.data.tensors { x = x, y = neap.ones(4, 2), batch = 2 })
    end))
  end)
end)

describe("the backward of a layer that draws", function()
  local function masked(dx) return dx:ne(0):to "f32" end

  it("has the mask of the call before it, behind other layers, too", function()
    local m = nn.Sequential {
      input = { 40 }, nn.BatchNorm1d { 40 }, nn.Dropout { 0.5 }, nn.Dropout { 0.2 },
    }
    local d, x = nn.Dropout(0.5), neap.ones(3, 40)
    local spread = neap.arange(120):to("f32"):view(3, 40)
    for _ = 1, 3 do
      local y, dx = d(x), d:backward(x, neap.ones(3, 40))
      assert.is_true(y:equal(dx))
      local out = m(spread + neap.rand(3, 40))
      local dw = m:backward(spread, neap.ones(3, 40)) and m:param("norm1.bias").grad
      local kept = out:ne(0):to("f32"):sum { axes = { 1 } } / 0.4
      assert.is_true((dw - kept):abs():max():item() < 1e-4)
    end
    local small = d(x:narrow(1, 1, 1))
    local y = d(x)
    assert.is_true(small:equal(d:backward(x:narrow(1, 1, 1), neap.ones(1, 40))))
    assert.is_true(y:equal(d:backward(x, neap.ones(3, 40))))
  end)

  it("has the mask of a call whose last arguments were left out", function()
    local m = nn.module { "Optional", init = function(self) self.drop = nn.Dropout(0.5) end,
      forward = function(self, x, more) return self.drop(more and x + more or x) end }()
    local x = neap.ones(2, 32)
    local y = m(x)
    assert.is_true(y:equal((m:backward(x, nil, x))))
    assert.is_true(y:equal(m:backward(x, x)))
    local z = m(x, x)
    assert.is_true(z:equal((m:backward(x, x, x * 2))))
  end)

  it("draws as a call would where there was none, and counts nothing", function()
    local d, x = nn.Dropout(0.5), neap.ones(2, 32)
    d:seed(3)
    local y, z = d(x), d(x)
    d:seed(3)
    local dx = d:backward(x, x)
    assert.is_true(dx:equal(y) and d:backward(x, x):equal(y))
    assert.is_true(d(x):equal(y) and d(x):equal(z) and d:backward(x, x):equal(z))
    assert.are.equal(0, (masked(dx) - masked(y)):abs():sum():item())
  end)

  it("does not change what a trainer draws, nor statistics", function()
    local function train(between)
      local m = nn.Sequential {
        input = { 4 },
        nn.Linear { 4, 8 }, nn.BatchNorm1d { 8 }, nn.Dropout { 0.5 }, nn.Linear { 8, 1 },
      }
      m:seed(1)
      local t = neap.trainer {
        model = m, optimizer = optim.SGD { lr = 0.05 }, loss = nn.MseLoss(), seed = 7,
      }
      local x = neap.tensor { { 1, 2, 3, 4 }, { 4, 3, 2, 1 }, { 0, 1, 0, 1 } }
      local y = neap.tensor { { 1 }, { 2 }, { 3 } }
      for _ = 1, 4 do
        t:step { x = x, y = y }
        if between then m:backward(x, neap.ones(3, 1)) end
      end
      return m:state_dict()
    end
    local plain, looked = train(false), train(true)
    for name, t in pairs(plain) do assert.is_true(t:equal(looked[name]), name) end
  end)

  it("moves statistics at the call alone, those of a shared layer and \z
      after a failure, too", function()
    local norm = nn.BatchNorm1d { 2 }
    local a, b = nn.Sequential { norm }, nn.Sequential { norm, nn.Linear { 2, 1 } }
    local x = neap.tensor { { 1, 2 }, { 3, 6 } }
    a(x)
    local before = a:state_dict()["norm1.running_mean"]
    assert.is_true((before - neap.tensor { 0.2, 0.4 }):abs():max():item() < 1e-6)
    a:backward(x, neap.ones(2, 2))
    b:backward(x, neap.ones(2, 1))
    assert.is_false(pcall(a.backward, a, x, neap.ones(2, 5)))
    assert.is_true(before:equal(a:state_dict()["norm1.running_mean"]))
    assert.is_true(before:equal(norm:state_dict()["running_mean"]))
    a(x)
    assert.is_false(before:equal(a:state_dict()["norm1.running_mean"]))
  end)
end)

describe("what is drawn next", function()
  it("is neither moved by ops that draw nothing nor by a seed of a while", function()
    local function second(between)
      neap.seed(11)
      neap.rand(3)
      between()
      return neap.rand(3)
    end
    local want = second(function() end)
    assert.is_true(second(function() return neap.ones(3) + 1 end):equal(want))
    assert.is_true(second(function() neap.with({ seed = 5 }, neap.rand, 7) end):equal(want))
    assert.is_false(second(function() neap.rand(7) end):equal(want))
  end)
end)
