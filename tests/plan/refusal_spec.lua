-- What can't be met is refused once, by a status of its own; only memory that the system refuses is
-- asked for again.
local neap = require "neap"
local core = require "neap.core"
local refusal = require "neap.memory.refusal"
local nn = neap.nn
local support = require "support"
local settle = support.settle

local function mlp(batch)
  local net = neap.net "mlp"
  local x, t = net:input("x", { batch, 8 }), net:input("t", { batch }, "i64")
  local h = net:FC({ x, net:param("w1", { 16, 8 }), net:param("b1", { 16 }) }, "h"):relu()
  local loss = net:SoftmaxCrossEntropy(
    { net:FC({ h, net:param("w2", { 4, 16 }), net:param("b2", { 4 }) }, "y"), t }, "loss")
  net:gradient(loss)
  net:outputs { loss }
  return net
end

local function model()
  return nn.Sequential { input = { 8 }, nn.Linear { 8, 16 }, nn.ReLU(), nn.Linear { 16, 4 } }
end

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
    for _, limit in ipairs {
      { budget = 64 }, { total = 4096 }, { total = 64 }, { budget = 64, exact = false },
      { budget = 64, executor = "dag" },
      { budget = 64, executor = "dynamic" }, { banks = { neap.bank { "main", bytes = 64 } } },
    } do
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
    local err, n = refused(function()
      return model():plan { batch = 32, train = true, budget = 64, store = false }
    end)
    assert.are.same({ "budget", 1 }, { err.code, n })
    local t <close> = neap.trainer {
      model = model(), loss = nn.CrossEntropyLoss {}, optimizer = neap.optim.SGD { lr = 0.1 },
      memory = { total = 2048, store = false },
    }
    err, n = refused(t.step, t, { neap.randn(32, 8), neap.zeros { 32, dtype = "i64" } })
    assert.are.same({ "budget", 1 }, { err.code, n })
  end)

  -- once with no limit, as any net, and once within what the workspace has left
  it("is planned twice where a workspace's limit is met by no plan, and not \z
      again for garbage", function()
    local ws <close> = neap.workspace { store = false, total = 2048 }
    settle()
    local err, n = refused(ws.compile, ws, mlp(32))
    assert.are.same({ "budget", 2 }, { err.code, n })
    assert.is_true(err.least_bytes > 2048)
    local enough <close> = neap.workspace { store = false, total = err.least_bytes }
    enough:compile(mlp(32)):close()
  end)
end)

--- Blobs in the way: named, of some size, the largest first.
local function check_blobs(err)
  assert.is_true(#err.blobs > 0)
  for i, blob in ipairs(err.blobs) do
    assert.is_true(
      type(blob.name) == "string" and math.type(blob.bytes) == "integer" and blob.bytes > 0)
    if i > 1 then assert.is_true(blob.bytes <= err.blobs[i - 1].bytes) end
  end
end

--- Gives what each refusal names as the least, in place of the limit that it names, until the plan
-- is made: one step a limit.
-- @return the plan, and the limits that were refused
local function met(plan, limits)
  local refusals = {}
  while true do
    local ok, made = pcall(plan, limits)
    if ok then return made, refusals end
    assert.are.equal("budget", made.code)
    assert.are.equal(neap.bytes(tostring(limits[made.limit])), made.limit_bytes)
    assert.is_true(made.least_bytes > made.limit_bytes)
    assert.is_truthy(
      made.hint:find(("%s = %d would do"):format(made.limit, made.least_bytes), 1, true))
    check_blobs(made)
    local fixed = 0
    for _, bytes in pairs(made.fixed) do fixed = fixed + bytes end
    assert.are.equal(math.max(0, made.limit_bytes - fixed), made.left_bytes)
    if made.limit == "total" then
      assert.is_truthy(made.message:find("the total is", 1, true))
      assert.is_true(made.fixed.parameters > 0)
    else
      assert.are.equal(0, fixed)
    end
    for _, before in ipairs(refusals) do assert.is_true(before.limit ~= made.limit) end
    refusals[#refusals + 1] = made
    limits[made.limit] = made.least_bytes
  end
end

describe("the least that a refusal names", function()
  for _, kind in ipairs { "simple", "dag", "dynamic", "exact" } do
    it("is met in place of the limit that it names: " .. kind, function()
      local n_total, n_budget = 0, 0
      for _, batch in ipairs { 1, 32 } do
        local net = mlp(batch)
        for _, o in ipairs {
          { budget = 64 }, { total = 64 }, { total = 8192 }, { budget = 64, total = 64 },
          { budget = 64, total = 1 << 20 },
          { budget = 1 << 20, total = 64 }, { budget = 1024, total = 8192 },
        } do
          local asked = { store = false, budget = o.budget, total = o.total }
          if kind == "exact" then asked.exact = false else asked.executor = kind end
          local plan, refusals = met(function(limits) return net:plan(limits) end, asked)
          assert.is_true(#refusals <= 2)
          for _, err in ipairs(refusals) do
            n_total = n_total + (err.limit == "total" and 1 or 0)
            n_budget = n_budget + (err.limit == "budget" and 1 or 0)
          end
          assert.is_true(not asked.budget or plan.arena_bytes <= asked.budget)
          assert.is_true(not asked.total or plan.total_bytes <= asked.total)
        end
      end
      assert.is_true(n_total > 4 and n_budget > 2)
    end)
  end

  it("is met by models and micro-batches", function()
    met(function(limits) return model():plan(limits) end, {
      batch = 16, train = true, total = 4096, store = false,
    })
    for _, micro in ipairs { false, 4 } do
      local function step(limits)
        local t <close> = neap.trainer {
          model = model(), loss = nn.CrossEntropyLoss {}, optimizer = neap.optim.SGD { lr = 0.1 },
          micro = micro or nil, memory = limits,
        }
        t:step { neap.randn(32, 8), neap.zeros { 32, dtype = "i64" } }
        assert.is_true(t.ws:held_bytes() <= limits.total)
      end
      met(step, { total = 4096, store = false })
    end
  end)

  it("is met in ranges of batches, for the limit of all of them", function()
    local ws <close> = neap.workspace { store = false }
    met(function(limits) return ws:compile(mlp(8), limits) end,
      { total = 4096, max_batch = 64, store = false })
    met(function(limits) return ws:compile(mlp(8), limits) end,
      { budget = 64, max_batch = 64, store = false })
  end)
end)

describe("the batch of a refusal", function()
  --- err.batch fits and one more does not; it is planned when it is asked for, and once.
  local function check(plan, batch)
    local err, n = refused(plan, batch)
    assert.are.equal(1, n)
    local before = neap.memory().n_planned
    local fits = err.batch
    assert.is_true(math.type(fits) == "integer" and fits >= 1 and fits < batch)
    local after = neap.memory().n_planned
    assert.is_true(after > before)
    assert.are.equal(fits, err.batch)
    assert.are.equal(after, neap.memory().n_planned)
    plan(fits)
    assert.are.equal("budget", refused(plan, fits + 1).code)
  end

  for _, limits in ipairs {
    { budget = 4096 }, { total = 16384 }, { total = 16384, recompute = false },
    { budget = 4096, executor = "dynamic" },
  } do
    it("is found of nets, sessions and models: " .. next(limits), function()
      local function asked(o)
        for key, value in pairs(limits) do o[key] = value end
        o.store = false
        return o
      end
      local ws <close> = neap.workspace { store = false }
      check(function(n) return mlp(n):plan(asked {}) end, 512)
      check(function(n) return mlp(1):plan(asked { inputs = { x = { n, 8 }, t = { n } } }) end, 512)
      check(function(n) return mlp(n):forecast(asked {}) end, 512)
      check(function(n) return ws:compile(mlp(n), asked {}):close() end, 512)
      check(function(n) return model():plan(asked { batch = n, train = true }) end, 512)
    end)
  end

  it("is found of a trainer's step", function()
    local function step(n)
      local t <close> = neap.trainer {
        model = model(), loss = nn.CrossEntropyLoss {}, optimizer = neap.optim.SGD { lr = 0.1 },
        memory = { budget = 4096, store = false },
      }
      t:step { neap.randn(n, 8), neap.zeros { n, dtype = "i64" } }
    end
    check(step, 512)
  end)

  it("is that of the net as it was refused", function()
    local net = mlp(512)
    local err = refused(net.plan, net, { budget = 4096, store = false })
    local want = neap.fit_batch(net, { budget = 4096 })
    for i = 1, 20 do net:Exp(i == 1 and "x" or "e" .. i - 1, "e" .. i) end
    assert.are.equal(want, err.batch)
  end)

  it("is nil where not even one row fits, where there is no batch, and for other errors", function()
    local net = mlp(8)
    assert.is_nil(refused(net.plan, net, { budget = 64, store = false }).batch)
    local still = neap.net "still"
    still:Relu(still:param("w", { 100 }), "y")
    assert.is_nil(refused(still.plan, still, { total = 64, store = false }).batch)
    assert.is_nil(select(2, pcall(net.plan, net, { x = { 3 }, store = false })).batch)
    local ws <close> = neap.workspace { store = false, total = 64 }
    assert.is_nil(refused(ws.feed, ws, "x", neap.ones(64)).batch)
  end)
end)

describe("a limit of a workspace", function()
  it("says what is held, and its least is met", function()
    local ws <close> = neap.workspace { store = false, total = 4096 }
    ws:feed("x", neap.ones(16, 16))
    local err = refused(ws.feed, ws, "y", neap.ones(64, 16))
    assert.are.same({ "budget", "total", 4096, 1024, 5120, 3072 },
      { err.code, err.limit, err.limit_bytes, err.held_bytes, err.least_bytes, err.left_bytes })
    assert.are.same({ { name = "y", bytes = 4096 } }, err.blobs)
    local enough <close> = neap.workspace { store = false, total = err.least_bytes }
    enough:feed("x", neap.ones(16, 16))
    enough:feed("y", neap.ones(64, 16))
  end)

  it("is asked again once garbage that it counted has been collected", function()
    local net = neap.net "scale"
    net:FC({ net:input("x", { 4, 64 }), net:param("w", { 64, 64 }), net:param("b", { 64 }) }, "y")
    net:outputs { "y" }
    local free <close> = neap.workspace { store = false }
    local first <close> = free:compile(net, { engine = support.last_engine() }) -- luacheck: ignore
    local total = free:held_bytes() + 4096
    local ws <close> = neap.workspace { store = false, total = total }
    collectgarbage "stop"
    -- each has constants of its own; none is closed
    for _ = 1, 20 do ws:compile(net, { engine = support.last_engine() }) end
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

  it("has a batch only where more was asked for than there is", function()
    local function batch(request, available)
      local err = core.error { code = "memory", message = "refused" }
      err.request_bytes, err.available_bytes = request, available
      local ok = pcall(refusal.around, function() return function() return 7 end end, error, err, 0)
      assert.is_false(ok)
      return err.batch
    end
    assert.are.equal(7, batch(21, 20))
    assert.is_nil(batch(20, 20)) -- memory is there, in pieces
    assert.is_nil(batch(nil, 20))
    assert.is_nil(batch(20, nil))
  end)

  it("leaves the libraries what they take, and an eighth", function()
    local own = (32 << 20) + (16 << 20) * core.threads()
    assert.are.equal(7 << 40, refusal.system_limit(8 << 40))
    assert.are.equal(1 << 20, refusal.system_limit(own + (1 << 20)))
    assert.are.equal(1, refusal.system_limit(own // 2))
  end)
end)

describe("the command line", function()
  it("gives a refusal as JSON, with the batch that fits", function()
    local pipe = assert(
      io.popen(support.program .. " plan lenet:32 --train --budget 1MB --json 2>/dev/null"))
    local text = pipe:read "a"
    pipe:close()
    local err = require("cjson").decode(text).error
    assert.are.same({ "budget", "budget", 1000000 }, { err.code, err.limit, err.limit_bytes })
    assert.is_true(err.least_bytes > 1000000 and #err.blobs > 0)
    assert.is_true(err.batch >= 1 and err.batch < 32)
  end)
end)
