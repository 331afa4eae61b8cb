-- What can't be met is refused once, by a status of its own; only memory that the system refuses is asked for again.
local neap = require "neap"
local core = require "neap.core"
local nn = neap.nn
local settle = require("support").settle

local function mlp(batch)
  local net = neap.net "mlp"
  local x, t = net:input("x", { batch, 8 }), net:input("t", { batch }, "i64")
  local h = net:FC({ x, net:param("w1", { 16, 8 }), net:param("b1", { 16 }) }, "h"):relu()
  local loss = net:SoftmaxCrossEntropy({ net:FC({ h, net:param("w2", { 4, 16 }), net:param("b2", { 4 }) }, "y"), t }, "loss")
  net:gradient(loss)
  net:outputs { loss }
  return net
end

local function model() return nn.Sequential { input = { 8 }, nn.Linear { 8, 16 }, nn.ReLU(), nn.Linear { 16, 4 } } end

--- The error of f(...), and how many nets were planned for it.
local function refused(f, ...)
  local before = neap.memory().n_planned
  local ok, err = pcall(f, ...)
  assert.is_false(ok)
  return err, neap.memory().n_planned - before
end

describe("a budget that can't be met", function()
  it("is planned once, and is no refused memory", function()
    local net = mlp(32)
    for _, limit in ipairs { { budget = 64 }, { total = 4096 }, { total = 64 }, { budget = 64, exact = false }, { budget = 64, executor = "dag" },
      { budget = 64, executor = "dynamic" }, { banks = { neap.bank { "main", bytes = 64 } } } } do
      limit.store = false
      local before = neap.memory().n_planned
      local ws <close> = neap.workspace { store = false }
      for name, call in pairs {
        plan = function() return net:plan(limit) end,
        compile = function() return ws:compile(net, limit) end,
      } do
        local err, n = refused(call)
        assert.are.equal("budget", err.code, name)
        assert.are.equal(1, n, name)
      end
      assert.are.equal(before + 2, neap.memory().n_planned)
    end
  end)

  it("is planned once by a model and a trainer", function()
    local err, n = refused(function() return model():plan { batch = 32, train = true, budget = 64, store = false } end)
    assert.are.same({ "budget", 1 }, { err.code, n })
    local t <close> = neap.trainer { model = model(), loss = nn.CrossEntropyLoss {}, optimizer = neap.optim.SGD { lr = 0.1 },
      memory = { total = 2048, store = false } }
    err, n = refused(t.step, t, { neap.randn(32, 8), neap.zeros { 32, dtype = "i64" } })
    assert.are.same({ "budget", 1 }, { err.code, n })
  end)

  it("is planned once where a workspace's limit is met by no plan, when nothing held there is garbage", function()
    local ws <close> = neap.workspace { store = false, total = 2048 }
    settle()
    local err, n = refused(ws.compile, ws, mlp(32))
    assert.are.same({ "budget", 1 }, { err.code, n })
    assert.is_true(err.least_bytes > 2048)
    local enough <close> = neap.workspace { store = false, total = err.least_bytes }
    enough:compile(mlp(32)):close()
  end)
end)

describe("a limit of a workspace", function()
  it("is asked again once garbage that it counted has been collected", function()
    local net = neap.net "scale"
    net:FC({ net:input("x", { 4, 64 }), net:param("w", { 64, 64 }), net:param("b", { 64 }) }, "y")
    net:outputs { "y" }
    local free <close> = neap.workspace { store = false }
    local first <close> = free:compile(net, { engine = "dnnl" }) -- luacheck: ignore
    local total = free:held_bytes() + 4096
    local ws <close> = neap.workspace { store = false, total = total }
    collectgarbage "stop"
    for _ = 1, 20 do ws:compile(net, { engine = "dnnl" }) end -- each has constants of its own; none is closed
    collectgarbage "restart"
    assert.is_true(ws:held_bytes() <= total)
  end)
end)

describe("memory that the system refuses", function()
  it("is asked for again after a collection: a second planning", function()
    local net = mlp(32)
    local twice = false
    for n = 1, 1000 do
      local before = neap.memory().n_planned
      core.fail_nth(n)
      local plan = net:plan { store = false }
      local failed = core.failed()
      core.fail_nth(0)
      local times = neap.memory().n_planned - before
      assert.is_true(plan.arena_bytes > 0 and times <= 2)
      twice = twice or times == 2
      if not failed then break end
    end
    assert.is_true(twice)
  end)
end)
