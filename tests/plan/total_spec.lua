-- A trainer's total bounds all that its workspace holds, whichever of its programs holds it.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim

local function rows(n)
  return { x = neap.rand(n, 64), y = neap.zeros { n, dtype = "i64" } }
end

local function set(n, batch)
  local given = rows(n)
  given.batch = batch
  return neap.data.tensors(given)
end

local function trainer(memory, model)
  model = model or nn.Sequential {
    input = { 64 }, nn.Linear { 256 }, nn.ReLU(), nn.Linear { 256 }, nn.ReLU(), nn.Linear { 10 },
  }
  memory.store = false
  return neap.trainer {
    model = model, optimizer = optim.SGD { lr = 0.1, momentum = 0.9 }, memory = memory, seed = 1,
  }, model
end

local function held_of(policy)
  local t <close> = trainer { policy = policy }
  return t:step(rows(64)).held_bytes
end

local function refused(f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok)
  assert.are.equal("budget", err.code, tostring(err))
  assert.are.equal("total", err.limit)
  assert.is_true(err.least_bytes > err.limit_bytes)
  return err
end

for _, policy in ipairs { "offset", "name", "pool" } do
  describe("a trainer's total under policy " .. policy, function()
    it("is kept by batches of all sizes, in the bytes of the largest", function()
      local need = held_of(policy)
      local t <close> = trainer { policy = policy, total = need }
      for _, n in ipairs { 64, 16, 7, 33, 64 } do
        local before = neap.memory().held
        assert.are.equal(need, t:step(rows(n)).held_bytes)
        if n == 7 then assert.is_true(neap.memory().held <= before + 64 * 64 * 8) end
      end
    end)

    it("is kept by training and evaluation together, or the second is refused", function()
      local need = held_of(policy)
      local t <close>, model = trainer { policy = policy, total = need }
      t:step(rows(64))
      local err = refused(t.evaluate, t, set(256, 256))
      assert.is_true(model:workspace():held_bytes() <= need)
      assert.are.equal(need, t:step(rows(64)).held_bytes)
      local more <close>, other = trainer { policy = policy, total = err.least_bytes }
      more:step(rows(64))
      assert.are.equal(256, more:evaluate(set(256, 256)).n)
      assert.is_true(other:workspace():held_bytes() <= err.least_bytes)
    end)

    it("is refused before the first step of a fit whose valid has no room", function()
      local need = held_of(policy)
      local t <close>, model = trainer { policy = policy, total = need }
      refused(t.fit, t, set(128, 64), { valid = set(512, 512), verbose = 0 })
      assert.are.equal(0, #t:history())
      assert.is_true(model:workspace():held_bytes() <= need)
    end)

    it("counts what others have put into the model's workspace", function()
      local need = held_of(policy)
      local t <close>, model = trainer { policy = policy, total = need + 4096 }
      t:step(rows(64))
      model:workspace():feed("other", neap.zeros(4096))
      refused(t.predict, t, neap.rand(1024, 64))
      assert.are.equal(need + 16384, t:step(rows(64)).held_bytes)
      t:close()
      assert.are.equal(1024, t.model(neap.rand(1024, 64)).shape[1])
    end)
  end)
end

describe("a total that others share", function()
  it("is planned within again, by recomputation, beside what is held", function()
    local function deep()
      local layers = { input = { 64 } }
      for _ = 1, 12 do
        layers[#layers + 1] = nn.Linear { 64 }
        layers[#layers + 1] = nn.Tanh()
      end
      return nn.Sequential(layers)
    end
    local function y(n) return { x = neap.rand(n, 64), y = neap.rand(n, 64) } end
    local function make(total)
      local model = deep()
      model:seed(3)
      return neap.trainer { model = model, loss = nn.MseLoss(), optimizer = optim.SGD { lr = 0.1 },
        memory = { total = total, store = false } }, model
    end
    local free <close> = make()
    local need = free:step(y(256)).held_bytes
    local t <close>, model = make(need)
    model(neap.rand(1, 64)) -- makes the workspace
    model:workspace():feed("other", neap.zeros(30000))
    local batch = y(256)
    local got = t:step(batch)
    assert.is_true(got.held_bytes <= need)
    local plain <close> = make()
    assert.are.equal(plain:step(batch).loss, got.loss)
    t:step(y(16))
    assert.is_true(t:step(batch).held_bytes <= need)
  end)
end)

describe("totals of two trainers of a model", function()
  it("are one, the lower, where one is called while the other evaluates", function()
    local free <close> = trainer {}
    local need = free:step(rows(256)).held_bytes
    for _, totals in ipairs { { need, 10 * need }, { 10 * need, need } } do
      local outer <close>, model = trainer { total = totals[1] }
      local inner <close> = trainer({ total = totals[2], recompute = false }, model)
      inner:step(rows(16))
      model:workspace():feed("other", neap.zeros(1024))
      local given, err = rows(64), nil
      given.batch, given.map = 64, function(batch)
        err = refused(inner.step, inner, rows(256))
        return batch
      end
      outer:evaluate(neap.data.tensors(given))
      assert.are.equal(need, err.limit_bytes)
    end
  end)
end)

describe("a workspace's total", function()
  it("is kept by ws:init and by blobs whose shape changes", function()
    local ws <close> = neap.workspace { total = 1000 }
    local net = neap.net "f"
    net:param("w", { 1000 }, neap.init.zeros)
    local err = refused(ws.init, ws, net)
    assert.are.equal(4032, err.least_bytes)
    assert.are.equal(0, ws:held_bytes())
  end)

  it("is what its programs will hold, constants, banks and copies of blobs with it", function()
    local x = neap.ones(64, 64)
    local policies = { constants = { "offset", "pool" }, banks = { "offset" },
      copies = { "offset" } }
    local nets = {
      constants = function(net)
        net:param("w", { 64, 64 }, 0.5)
        return net:input("x", { 64, 64 }):matmul(net:MatMul { "w", "w" }):sum { axes = { 2 } }
      end,
      banks = function(net)
        local h = net:input("x", { 64, 64 })
        for _, name in ipairs { "exp", "tanh" } do
          h = net:bank("fast", function() return h[name](h) end)
        end
        return h:exp()
      end,
      -- What is updated is copied, since what reads it behind the update may fail.
      copies = function(net)
        net:param("w", { 64, 64 }, 1)
        net:declare("lr", "state", {}, "f32", { op = "Constant", value = 0.5 })
        local h = net:input("x", { 64, 64 })
        net:gradient(net:Sum(net:Mul { h, "w" }))
        net:Sgd({ "w", "w_grad", "lr" }, "w", { momentum = 0 })
        return net:Embedding { h:arg_max { axis = 2 }, "w" }
      end,
    }
    for name, make in pairs(nets) do
      local net = neap.net(name)
      net:outputs { make(net) }
      local other = neap.net "other"
      other:outputs { other:Sum(other:input("x", { 64, 64 }):exp():tanh(), "z") }
      for _, policy in ipairs(policies[name]) do
        local function run(total, nets_run)
          local ws <close> = neap.workspace { total = total, store = false, recompute = false,
            policy = policy,
            banks = name == "banks" and { neap.bank { "fast", bytes = "4MiB" } } or nil }
          local most = 0
          for _, one in ipairs(nets_run) do
            ws:run(one, { x = x })
            most = math.max(most, ws:held_bytes())
          end
          return most
        end
        local held, all = run(nil, { net }), { net, other, net, other }
        assert.are.equal(held, run(held, { net, net }), name)
        assert.are.equal(held, refused(run, held - 1, { net }).least_bytes, name)
        held = run(nil, all)
        if policy == "offset" then assert.are.equal(held, run(held, all), name) end
      end
    end
  end)

  it("counts no bytes less than are held when shapes come and go", function()
    local net = neap.net "g"
    net:input("x", { 0, 64 })
    net:Relu("x", "y")
    local ws <close> = neap.workspace { policy = "pool", store = false }
    for _, n in ipairs { 512, 256, 128, 64, 1 } do ws:run(net, { x = neap.rand(n, 64) }) end
    collectgarbage() collectgarbage()
    local before = neap.memory().held
    local held = ws:held_bytes()
    ws:close()
    collectgarbage() collectgarbage()
    assert.are.equal(held, before - neap.memory().held)
  end)
end)

it("a fit whose valid does not fit the budget is refused before its first step", function()
  local t <close>, model = trainer { budget = "96KiB" }
  model(neap.rand(4, 64))
  local w = model:state_dict()["linear1.bias"]
  local before = w:clone()
  local ok, err = pcall(t.fit, t, set(128, 16), { valid = set(512, 512), verbose = 0 })
  assert.is_false(ok)
  assert.are.equal("budget", err.code, tostring(err))
  assert.are.equal(0, #t:history())
  assert.is_true(w:equal(before))
  assert.are.equal(1, t:step(rows(16)).step)
end)

describe("the least total that a refused fit names", function()
  --- What fit does under that total, of a trainer of these options.
  local function fit(total, o, batch, valid_batch)
    local given = {
      model = nn.Sequential {
        input = { 64 }, nn.Linear { o.width or 32 }, nn.BatchNorm1d(), nn.ReLU(), nn.Linear { 10 },
      },
      optimizer = optim.SGD { lr = 0.1, momentum = 0.9 },
      memory = { total = total, store = false, policy = o.policy, budget = o.budget },
      seed = 1,
      reduces = "mean",
      micro = o.micro,
      accumulate = o.accumulate,
      metrics = "accuracy",
    }
    local t <close>, held = neap.trainer(given), 0
    local ok, err = pcall(t.fit, t, set(64, batch), {
      epochs = 2, verbose = 0, patience = o.patience,
      valid = valid_batch and set(72, valid_batch) or nil,
      on_epoch = function() held = math.max(held, t.model:workspace():held_bytes()) end,
    })
    if ok then return held end
    assert.are.equal("total", err.limit, tostring(err))
    assert.are.equal(0, t.position.step)
    return nil, err
  end

  it("will do for its steps and for the evaluation that follows them", function()
    for i, o in ipairs {
      {}, { micro = 8 }, { micro = "fit" }, { accumulate = 2 }, { policy = "name" },
      { budget = "100%" }, { policy = "pool" }, { policy = "pool", accumulate = 2 },
      -- whose evaluation packs weights, where that is cheaper than to have them packed in the arena
      { width = 33 }, { width = 33, accumulate = 2 }, { width = 33, micro = 8 },
    } do
      for _, rows_of in ipairs { { 16, 16 }, { 16, 72 }, { 64, 8 } } do
        local _, err = fit(1000, o, rows_of[1], rows_of[2])
        local held, again = fit(err.least_bytes, o, rows_of[1], rows_of[2])
        assert.is_truthy(held, ("%d: %s"):format(i, tostring(again)))
        -- all of it is held, and one byte less would not do
        assert.are.equal(err.least_bytes, held)
        assert.is_nil((fit(held - 1, o, rows_of[1], rows_of[2])))
      end
    end
  end)

  it("counts the parameters of the best epoch, which patience keeps beside the others", function()
    for _, o in ipairs {
      {}, { micro = 8 }, { accumulate = 2, policy = "pool" }, { micro = "fit", width = 33 },
    } do
      -- with batches of which the last is smaller, too
      for _, rows_of in ipairs { { 16, false }, { 16, 16 }, { 16, 72 }, { 24, 16 } } do
        local batch, valid = rows_of[1], rows_of[2]
        local _, without = fit(1000, o, batch, valid)
        o.patience = 3
        local _, err = fit(1000, o, batch, valid)
        assert.is_true(err.least_bytes > without.least_bytes)
        assert.are.equal(err.least_bytes, (fit(err.least_bytes, o, batch, valid)))
        assert.is_nil((fit(err.least_bytes - 1, o, batch, valid)))
        o.patience = nil
      end
    end
  end)

  it("may have room for parameters that no epoch was the best with", function()
    local t <close>, model = trainer { total = "64MiB" }
    local bad = neap.data.tensors { x = neap.full { 8, 64, value = 1 / 0 },
      y = neap.zeros { 8, dtype = "i64" }, batch = 8 }
    t:fit(set(64, 64), { epochs = 1, patience = 3, valid = bad, verbose = 0 })
    assert.is_true(model:param "linear1.weight".data:abs():max():item() > 0)
  end)

  it("is exact for a pool that evicts", function()
    --- Steps of a net whose pool reaches less than the limit that its evictions were found under.
    local function steps(total)
      local t <close> = trainer { policy = "pool", total = total }
      local ok, err = pcall(function()
        for _ = 1, 2 do t:step(rows(64)) end
      end)
      return ok and t.model:workspace():held_bytes() or nil, err
    end
    local _, err = steps(1000)
    assert.are.equal(err.least_bytes, (steps(err.least_bytes)))
    local held, again = steps(err.least_bytes - 1)
    assert.is_nil(held)
    assert.are.equal(err.least_bytes, again.least_bytes)
  end)

  it("says which program it speaks of, and of which plan a budget is a share", function()
    local t <close> = trainer { total = 1000 }
    local err = refused(t.evaluate, t, set(64, 32))
    assert.is_truthy(err.message:find("^to evaluate 32 rows: least total"), err.message)
    err = refused(t.step, t, rows(32))
    assert.is_nil(err.message:find("evaluate", 1, true))
    local shared <close> = trainer { budget = "1%" }
    for _, f in ipairs {
      function() shared:step(rows(32)) end, function() shared:evaluate(set(64, 32)) end,
    } do
      local ok, e = pcall(f)
      assert.is_false(ok)
      assert.is_truthy(
        e.message:find("the budget is 1% of what this net's own plan takes alone", 1, true),
        e.message)
    end
  end)
end)
