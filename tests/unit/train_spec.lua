-- The trainer: steps, validation, losses that are not finite, patience, rates.
local neap = require "neap"
local nn, optim, data = neap.nn, neap.optim, neap.data
local raises = require("support").raises
local kit = require "train_kit"
local points, make, with = kit.points, kit.make, kit.with
local everything, losses = kit.everything, kit.losses
local assert_same_bits = kit.assert_same_bits

describe("fit", function()
  it("learns, and keeps a history with validation", function()
    local t <close> = make { optimizer = optim.Adam { lr = 0.1 } }
    local h = t:fit(points(), { epochs = 12, valid = points(), verbose = 0 })
    assert.are.equal(12, #h)
    assert.is_true(h[12].loss < h[1].loss)
    assert.is_true(h[12].valid.accuracy > 0.85)
    assert.are.equal(h[12].valid_loss, h[12].valid.loss)
    assert.are.equal(72, h[12].step)
    assert.is_truthy(tostring(h):find "valid_accuracy")
    local e = t:evaluate(points())
    assert.are.equal(22, e.n)
    assert.is_true(math.abs(e.loss - h[12].valid.loss) < 1e-6)
  end)
  it("tells the mean of an epoch's gradient norms, one for each update", function()
    local t <close> = make { grad_norm = true }
    local sum, n = 0, 0
    local h = t:fit(points(), { epochs = 1, verbose = 0, on_step = function(r)
      sum, n = sum + r.grad_norm, n + 1
    end })
    assert.is_true(n > 1 and sum > 0)
    assert.is_true(math.abs(h[1].grad_norm - sum / n) < 1e-9)
  end)
  it("runs a smaller batch in the same arena", function()
    local t <close> = make()
    t:fit(points { last = "drop" }, with { epochs = 1 })
    local arena = t.ws:arena_bytes()
    t:fit(points(), with {})
    assert.are.equal(arena, t.ws:arena_bytes())
    assert.is_truthy(t.programs["train 2 x(3) y()"])
  end)
  it("begins an epoch each time, and runs its own steps", function()
    local t <close> = make()
    local seen = {}
    for _ = 1, 3 do
      t:fit(points(), { steps = 2, verbose = 0, on_epoch = function(r)
        seen[#seen + 1] = ("%d %d"):format(r.epoch, r.step)
      end })
    end
    assert.are.same({ "1 2", "2 4", "3 6" }, seen)
  end)
  it("gives the same bits for the same seeds", function()
    local a <close> = make()
    local b <close> = make()
    assert.are.same(losses(a, points(), with {}), losses(b, points(), with {}))
    assert_same_bits(a, b)
  end)
  it("stops by steps, by patience, and calls back", function()
    local t <close> = make()
    local n, epochs = 0, 0
    t:fit(points(), {
      steps = 8, verbose = 0, on_step = function(r) n = n + 1; assert.are.equal(n, r.step) end,
      on_epoch = function() epochs = epochs + 1 end,
    })
    assert.are.equal(8, n)
    assert.are.equal(2, epochs)
    local still <close> = make { optimizer = optim.SGD { lr = 0 } }
    local model = still.model
    model:find("BatchNorm1d")[1]:eval()
    model:find("Dropout")[1]:eval()
    assert.are.equal(3,
      #still:fit(points(), { epochs = 9, patience = 2, verbose = 0, valid = points() }))
  end)
  it("says what is wrong", function()
    local t <close> = make()
    raises('did you mean "epochs"?', t.fit, t, points(), { epoch = 3 })
    raises("expects a data set", t.fit, t, {})
    raises("optimizer expects an optimizer such as", neap.trainer, { model = nn.Linear { 1, 1 } })
    raises("model expects a module, got 3", neap.trainer, { model = 3 })
    raises('nan expects "stop", "skip" or "off", got "maybe"', neap.trainer, {
      model = nn.Linear { 1, 1 }, optimizer = optim.SGD { lr = 1 }, nan = "maybe",
    })
    raises('unknown field "precision"', neap.trainer, {
      model = nn.Linear { 1, 1 }, optimizer = optim.SGD { lr = 1 }, precision = "bf16",
    })
    raises('micro expects an integer of at least 1 or "fit", got 0', neap.trainer, {
      model = nn.Linear { 1, 1 }, optimizer = optim.SGD { lr = 1 }, micro = 0,
    })
    raises("max_batch expects", neap.trainer, {
      model = nn.Linear { 1, 1 }, optimizer = optim.SGD { lr = 1 }, max_batch = "8",
    })
    raises("out of range", t.step, t, {
      x = neap.ones(4, 3), y = neap.tensor({ 0, 1, 2, 9 }, "i64"),
    })
  end)
  it("has metrics of names that nothing else of it gives has", function()
    local function with(metrics)
      return neap.trainer {
        model = nn.Sequential { input = { 2 }, nn.Linear { 2, 2 } },
        optimizer = optim.SGD { lr = 0.1 },
        metrics = metrics,
      }
    end
    local function f(y) return y:mean() end
    for _, set in ipairs {
      points(),
      data.tensors { x = neap.ones(4, 2), y = neap.zeros { 4, dtype = "i64" }, batch = 2 },
    } do
      local spec = set:spec()
      local t <close> = neap.trainer {
        model = nn.Sequential { input = { spec.x.shape[2] }, nn.Linear { spec.x.shape[2], 4 } },
        accumulate = 2,
        optimizer = optim.SGD { lr = 0.1 }, metrics = { good = f },
      }
      local fields = {}
      t:fit(set, {
        verbose = 0, epochs = 1, valid = set,
        on_step = function(r) for name in pairs(r) do fields[name] = true end end,
        on_epoch = function(r) for name in pairs(r) do fields[name] = true end end,
      })
      fields.good, fields.skipped, fields.n = nil, true, true
      for name in pairs(fields) do
        raises({ ("a metric can't be called \"%s\""):format(name), "taken are accumulated, " },
          with, { [name] = f })
        raises("can't be called", with, { name })
      end
    end
    raises("can't be called \"loss\"", with, "loss")
    raises("expects a name, or a table", with, 3)
    raises("good expects a function", with, { good = 3 })
  end)
  it("has its fields from its maker alone: what is set later is refused, and says where \z
      it is said instead", function()
    local t <close> = make()
    local seen
    t:fit(points(), { verbose = 0, steps = 2, on_step = function(_, it)
      seen = it == t
      raises("\"lr\" can't be set", function() it.lr = 3 end)
    end, on_epoch = function(_, it) seen = seen and it == t end })
    assert.is_true(seen)
    for name, hint in pairs {
      lr = "t.optimizer.lr", micro = "neap.trainer { micro = .. }", memory = "memory = ..",
      nan = "nan = ..", model = "model = ..",
      seed = "m:seed(n)", schedule = "schedule = ..", loss = "loss = ..",
      no_such = "nothing would read it", batch = "nothing", position = "nothing",
    } do
      local was = t[name]
      raises({ ("trainer: \"%s\" can't be set"):format(name), hint }, function() t[name] = 5 end)
      assert.are.equal(was, t[name])
    end
    t.optimizer.lr = 0.5
    assert.are.equal(0.5, t.optimizer.lr)
    local path = os.tmpname() .. ".safetensors"
    assert(t:save(path))
    assert.are.equal(t, t:load(path))
    os.remove(path)
    raises("with a colon", t.step, {})
  end)
  it("says what it measured without a profile, and what rows are", function()
    local t <close> = make()
    t:fit(points(), { verbose = 0, steps = 2 })
    local run = t:run()
    assert.are.equal(t:program().plan.n_op, #run:ops())
    for _, row in ipairs(run:ops()) do
      assert.are.equal(2, row.n_call)
      assert.is_true(row.min_us <= row.median_us and row.median_us <= row.p95_us)
      assert.is_true(row.gap_us >= 0)
    end
    assert.is_truthy(tostring(run):find("median_us", 1, true))
    raises("profile = true", run.trace, run)
    for _, call in ipairs { t.plan, t.program, t.run } do
      for got, wrong in pairs {
        ["a table"] = { foo = 1 }, ["a string"] = "x", ["0"] = 0, ["1.5"] = 1.5,
      } do
        raises({ "expect a number of rows, t:program(64)", "got " .. got }, call, t, wrong)
      end
    end
  end)
  it("keeps the history in its checkpoint", function()
    local path = os.tmpname() .. ".safetensors"
    local whole <close> = make()
    local first <close> = make()
    local later <close> = make()
    local function o(more)
      local out = { epochs = 3, verbose = 0, valid = points() }
      for key, value in pairs(more) do out[key] = value end
      return out
    end
    whole:fit(points(), o {})
    local n = 0
    first:fit(points(), o { checkpoint = path, on_epoch = function()
      n = n + 1
      return n < 2
    end })
    local h = later:fit(points(), o { checkpoint = path, resume = true })
    os.remove(path)
    assert.are.equal(3, #h)
    assert.are.same(whole:history():columns(), h:columns())
    for i = 1, 3 do
      for _, record in ipairs { h[i], whole:history()[i] } do record.seconds = nil end
      assert.are.same(whole:history()[i], h[i])
      assert.are.equal(math.type(whole:history()[i].epoch), math.type(h[i].epoch))
    end
  end)
  it("says that there is no checkpoint to go on from", function()
    local path, script, out = os.tmpname() .. ".safetensors", os.tmpname(), os.tmpname()
    local file = assert(io.open(script, "w"))
    file:write([[local neap = require "neap"
      local x, y = neap.ones(4, 2), neap.zeros { 4, dtype = "i64" }
      local set = neap.data.tensors { x = x, y = y, batch = 2 }
      for _ = 1, 2 do
        local model = neap.nn.Sequential { neap.nn.Linear { 2, 2 } }
        local t = neap.trainer { model = model, optimizer = neap.optim.SGD { lr = 0.1 } }
        t:fit(set, { verbose = 0, checkpoint = ...,  resume = true })
      end]])
    file:close()
    assert(os.execute(
      ("%s/neap run %s %s 2> %s"):format(os.getenv "NEAP_BUILD" or "build", script, path, out)))
    local said = assert(io.open(out)):read "a"
    for _, name in ipairs { path, script, out } do os.remove(name) end
    assert.are.equal(("neap: no checkpoint at %s: training begins anew\n"):format(path), said)
  end)
  it("takes functions as loss and metrics", function()
    local model = nn.Sequential { input = { 3 }, nn.Linear { 3, 1 } }
    -- Seeded: a start that happens to fit leaves little to gain.
    neap.seed(5)
    local x = neap.rand(8, 3)
    local t <close> = neap.trainer {
      model = model, optimizer = optim.SGD { lr = 0.1 }, seed = 5,
      loss = function(y, target) return (y - target):square():mean() end,
      metrics = { worst = function(y, target) return (y - target):abs():max() end },
    }
    local set = data.tensors { x = x, y = x:sum { axes = { 2 }, keepdim = true }, batch = 4 }
    local h = t:fit(set, { epochs = 30, verbose = 0 })
    assert.is_true(h[30].loss < 0.2 * h[1].loss)
    assert.is_true(h[30].worst > 0)
  end)
end)

describe("a loss that is not finite", function()
  local function spoiled() -- the third batch holds a NaN
    local n = 0
    return points { map = function(b)
      n = n + 1
      return n == 3 and { x = b.x * (0 / 0), y = b.y } or b
    end }
  end
  it("stops by default, with everything as before the step", function()
    local t <close> = make()
    local short <close> = make()
    local err = raises("the loss is NaN at step 3", t.fit, t, spoiled(), with {})
    assert.are.equal("numeric", err.code)
    short:fit(points(), { steps = 2, verbose = 0 })
    local a, b = t.model:state_dict(), short.model:state_dict()
    for name, tensor in pairs(a) do assert.is_true(tensor:equal(b[name]), name) end
  end)
  it("is passed by with nan = \"skip\"", function()
    local t <close> = make { nan = "skip" }
    local skipped, n = 0, 0
    local h = t:fit(spoiled(), with { on_step = function(r)
      n = n + 1
      if r.skipped then skipped = skipped + 1 end
    end })
    assert.are.equal(1, skipped)
    assert.are.equal(12, n)
    assert.are.equal(11, t.position.step)
    assert.are.equal(h[2].loss, h[2].loss)
  end)
  it("goes into the parameters with nan = \"off\"", function()
    local t <close> = make { nan = "off" }
    t:fit(spoiled(), with {})
    assert.is_true(t.model.linear1.weight.data:stats().nan > 0)
  end)
end)

describe("a trainer", function()
  it("predicts in evaluation mode and leaves the mode as it was", function()
    local t <close> = make()
    t:fit(points(), with {})
    local x = neap.rand(5, 3)
    assert.is_true(t:predict(x):equal(t:predict(x)))
    assert.is_true(t.model.training)
  end)
  it("predicts with its memory options: executor, budget and total hold there too", function()
    local nn = neap.nn
    local function model()
      local some = nn.Lambda(function(x)
        return x:compress(x:sum { axes = { 2 } }:gt(0), { axis = 1 })
      end)
      -- as many rows as have a positive sum
      return nn.Sequential { input = { 4 }, nn.Linear { 4, 3 }, nn.Tanh(), some }
    end
    local t <close> = neap.trainer {
      model = model(), loss = function(y) return (y * y):sum() end, seed = 1,
      optimizer = neap.optim.SGD { lr = 0.01 }, memory = { executor = "dynamic", budget = 16384 },
    }
    for _, n in ipairs { 5, 9, 5 } do
      local x = neap.randn(n, 4)
      local h = t.model.linear1(x):tanh()
      assert.is_true(t:predict(x):equal(h:compress(h:sum { axes = { 2 } }:gt(0), { axis = 1 })))
    end
    local ok, e = pcall(t.predict, t, neap.randn(4000, 4))
    assert.is_false(ok)
    assert.are.equal("budget", e.code)
    assert.truthy(tostring(e):find("16.0 KiB", 1, true), tostring(e))
    assert.are.equal(2, #t:predict(neap.randn(50, 4)).shape) -- nothing is left of the failure
    for _, x in ipairs { 3, "x", {} } do
      assert.truthy(
        tostring(select(2, pcall(t.predict, t, x))):find("predict expects a batch x", 1, true))
    end
    local u <close> = neap.trainer {
      model = model(),
      loss = function(y) return (y * y):sum() end,
      optimizer = neap.optim.SGD { lr = 0.01 },
    }
    local fine, why = pcall(u.predict, u, neap.randn(5, 4))
    assert.is_false(fine)
    assert.truthy(tostring(why):find('executor = "dynamic"', 1, true), tostring(why))
  end)
  it("holds what its plan says", function()
    local t <close> = make()
    local r = t:step { x = neap.rand(4, 3), y = neap.tensor({ 0, 1, 1, 0 }, "i64") }
    assert.are.equal(t:plan(4).total_bytes, t.ws:held_bytes())
    assert.are.equal(t.ws:held_bytes(), r.held_bytes) -- whatever else the process holds
    assert.are.equal(1, r.step)
    assert.is_true(r.ms > 0)
  end)
end)

describe("a fit", function()
  local function valid_better_once()
    -- A data set whose labels turn round after the second epoch: the validation loss is best there.
    return data.tensors { x = neap.ones(4, 3), y = neap.zeros { 4, dtype = "i64" }, batch = 4 }
  end

  it("that patience ends leaves the model as it was in its best epoch, resumed or not", function()
    local function trained(limit, path)
      local t = neap.trainer {
        model = nn.Sequential { input = { 3 }, seed = 7, nn.Linear { 3, 2 } },
        optimizer = optim.SGD { lr = 0.5 },
      }
      local best, at
      local o = with {
        epochs = 6,
        patience = 2,
        valid = valid_better_once(),
        checkpoint = path,
        resume = path ~= nil,
        on_epoch = function(record)
          if not best or record.valid.loss < best then
            best, at = record.valid.loss, record.epoch
          end
          return record.epoch < limit
        end,
      }
      local toward, away = neap.zeros { 4, dtype = "i64" }, neap.ones { 4, dtype = "i64" }
      local n = t.position.epoch
      local set = data.tensors { x = neap.ones(4, 3), y = toward, batch = 4, map = function(b)
        n = n + 1
        return { x = b.x, y = n > 3 and away or toward }
      end }
      t:fit(set, o)
      return t, best, at
    end
    local straight, best, at = trained(100)
    assert.are.equal(3, at)
    local shown = straight:evaluate(valid_better_once()).loss
    assert.is_true(math.abs(shown - best) < 1e-6)
    assert.is_nil(straight.model:state_dict()["@best/linear1.weight"])
    straight:close()
  end)

  it("ends when a callback returns false", function()
    local t <close> = make()
    t:fit(points(), with { epochs = 5, on_step = function(r) return r.step < 4 end })
    assert.are.equal(4, t.position.step)
    local other <close> = make()
    other:fit(points(), with {
      epochs = 5, on_epoch = function(record) return record.epoch ~= 2 end,
    })
    assert.are.equal(2, other.position.epoch)
  end)

  it("refuses a checkpoint that can't be written before it begins", function()
    local t <close> = make()
    raises("ending .safetensors", t.fit, t, points(), with { checkpoint = "ck.st" })
    raises("can't be written", t.fit, t, points(), with {
      checkpoint = "/no/such/folder/ck.safetensors",
    })
    raises("every expects an integer of at least 1, got 0", t.fit, t, points(),
      with { checkpoint = { "ck.safetensors", every = 0 } })
    assert.are.equal(0, t.position.step)
  end)
end)

describe("a step", function()
  it("is enough for plan, program and run to be asked for", function()
    local t <close> = make()
    t:step { x = neap.rand(4, 3), y = neap.zeros { 4, dtype = "i64" } }
    assert.are.equal(1, t:run().n_step)
    assert.are.equal(4, t:plan().batch)
  end)

  it("says what a batch is", function()
    local t <close> = make()
    local x, y = neap.rand(4, 3), neap.zeros { 4, dtype = "i64" }
    raises('nothing reads its field "z"', t.step, t, { x = x, y = y, z = x })
    raises("x expects a tensor", t.step, t, { x = { 1, 2 }, y = y })
    raises("no x", t.step, t, { y = y })
    raises("no y", t.step, t, { x = x })
    assert.are.equal(1, t:step({ x = x, y = y }).step)
  end)
end)

describe("before a first step", function()
  local function same_as_untouched(t, f)
    local before = t.model:state_dict()
    f()
    for name, value in pairs(t.model:state_dict()) do
      assert.is_true(value:equal(before[name]), name)
    end
    local fresh <close> = make()
    assert.are.same(losses(fresh, points(), { verbose = 0 }), losses(t, points(), { verbose = 0 }))
  end

  it("fit says what is wrong with what it would call or look at later", function()
    local batch = { x = neap.ones(4, 3), y = neap.tensor({ 0, 1, 1, 0 }, "i64") }
    local other = data.tensors {
      x = neap.ones(4, 5), y = neap.tensor({ 0, 1, 1, 0 }, "i64"), batch = 2,
    }
    local blind = data.tensors { x = neap.ones(4, 3), batch = 2 }
    local table_of = {
      { "on_step expects a function, got 3", { on_step = 3 } },
      { 'on_epoch expects a function, got "x"', { on_epoch = "x" } },
      { "fit: valid expects a data set", { valid = batch } },
      { "fit: valid expects a data set", { valid = 3 } },
      {
        "fit: valid's x is f32 (5) an example, that of the data trained on is f32 (3)",
        { valid = other },
      },
      { "fit: valid's y is none", { valid = blind } },
      { 'fit: resume expects true or false, got "yes"', { resume = "yes" } },
      { "fit: verbose expects an integer from 0 to 2, got 7", { verbose = 7 } },
    }
    for _, row in ipairs(table_of) do
      local t <close> = make()
      same_as_untouched(t, function()
        row[2].epochs = 2
        local err = raises(row[1], t.fit, t, points(), row[2])
        assert.is_truthy(tostring(err):find("train_spec.lua", 1, true)
          or tostring(err):find("support.lua", 1, true))
      end)
    end
    local t <close> = make()
    raises({ "trainer:evaluate expects a data set", "got a batch" }, t.evaluate, t, batch)
    raises("trainer:evaluate expects a data set", t.evaluate, t)
  end)

  it("a batch beyond max_batch is refused, with both numbers", function()
    for _, o in ipairs {
      { max_batch = 8 }, { memory = { max_batch = 8 } }, { max_batch = 8, micro = 2 },
      { max_batch = 8, accumulate = 2 },
    } do
      o.model, o.optimizer = nn.Sequential { input = { 3 }, nn.Linear { 3, 2 } },
        optim.SGD { lr = 0.1 }
      local t <close> = neap.trainer(o)
      local x, y = neap.ones(20, 3), neap.zeros { 20, dtype = "i64" }
      t:step { x = neap.ones(8, 3), y = neap.zeros { 8, dtype = "i64" } }
      local held = t.ws:held_bytes()
      local err = raises({ "at most 8 rows", "got 20" }, t.step, t, { x = x, y = y })
      assert.are.equal("shape", err.code)
      local large = data.tensors { x = x, y = y, batch = 20 }
      raises({ "at most 8 rows", "got 20" }, t.fit, t, large, { verbose = 0 })
      raises({ "at most 8 rows", "got 20" }, t.evaluate, t, large)
      raises({ "at most 8 rows", "got 20" }, t.fit, t, data.tensors { x = x, y = y, batch = 5 },
        { verbose = 0, valid = large })
      assert.are.equal(held, t.ws:held_bytes())
      t:evaluate(data.tensors { x = x, y = y, batch = 8 })
    end
    raises("max_batch expects", neap.trainer, {
      model = nn.Linear { 1, 1 }, optimizer = optim.SGD { lr = 1 }, memory = { max_batch = 0 },
    })
  end)

  it("a trainer that has been closed refuses", function()
    local t = make()
    local batch = points():epoch(1)()
    local step = t:step { x = batch.x, y = batch.y }.step
    t:close()
    t:close()
    for _, call in ipairs {
      function() t:step { x = batch.x, y = batch.y } end,
      function() t:fit(points(), with {}) end,
      function() t:evaluate(points()) end,
      function() t:plan(4) end,
    } do
      assert.are.equal("released", raises("the trainer has been closed", call).code)
    end
    assert.are.equal(step, 1)
    assert.are.same({ 4, 2 }, t:predict(batch.x).shape)
  end)
end)

describe("a rate", function()
  local batch = { x = neap.ones(4, 3), y = neap.ones(4, 2) }
  local function trainer(o)
    o.model, o.loss = nn.Sequential { seed = 3, nn.Linear { 3, 2 } }, nn.MseLoss()
    o.optimizer = optim.SGD { lr = 0.1, momentum = 0.9 }
    return neap.trainer(o)
  end

  it("that no update can take is refused before the step, whoever gives it", function()
    for _, o in ipairs { {}, { micro = 3 }, { accumulate = 1, micro = 2 }, { accumulate = 2 } } do
      for _, rate in ipairs { 0 / 0, math.huge, -math.huge, -1e-3, "fast", false } do
        local given = 0.1
        local t <close> = trainer {
          micro = o.micro, accumulate = o.accumulate, schedule = function() return given end,
        }
        local plain <close> = trainer { micro = o.micro, accumulate = o.accumulate }
        t:step(batch)
        plain:step(batch)
        local was = everything(t)
        given = rate
        local err = raises({
          "schedule", "rate of step " .. (o.accumulate == 2 and 1 or 2), "at least 0",
        }, t.step, t, batch)
        assert.are.equal("argument", err.code)
        for name, tensor in pairs(everything(t)) do
          assert.is_true(tensor:equal(was[name]), name)
        end
        given = 0.1
        t:step(batch)
        plain:step(batch)
        local want = everything(plain)
        for name, tensor in pairs(everything(t)) do
          assert.is_true(tensor:equal(want[name]), name)
        end
      end
    end
    local t <close> = trainer {}
    t:step(batch)
    t.optimizer.lr = 0 / 0
    raises({ "lr of optim.SGD", "got NaN" }, t.step, t, batch)
    t.optimizer.lr = 0
    assert.are.equal(0, t:step(batch).lr)
  end)
end)

describe("a loss that is a function", function()
  it("is trained on data without a target", function()
    for _, o in ipairs {
      {}, { micro = 2, reduces = "mean" }, { accumulate = 2, reduces = "mean" },
    } do
      local seen
      o.model, o.optimizer = nn.Sequential { input = { 3 }, seed = 2, nn.Linear { 3, 3 } },
        optim.SGD { lr = 0.1 }
      o.loss = function(y, target)
        seen = target
        return y:square():mean()
      end
      local t <close> = neap.trainer(o)
      local set = data.tensors { x = neap.ones(8, 3), batch = 4 }
      local before = t:evaluate(set).loss
      t:fit(set, { epochs = 3, verbose = 0, valid = set })
      t:step { x = neap.ones(4, 3) }
      assert.is_true(t:evaluate(set).loss < before)
      assert.is_nil(seen)
      raises("had none", t.step, t, { x = neap.ones(4, 3), y = neap.ones(4, 3) })
      raises("had none", t.evaluate, t, data.tensors {
        x = neap.ones(4, 3), y = neap.ones(4, 3), batch = 4,
      })
    end
    local t <close> = make()
    raises("a batch has no y", t.step, t, { x = neap.ones(4, 3) })
  end)
end)

describe("a forecast of a step", function()
  --- Bytes that a step of `rows` holds, after those `before` it, and what was said of it.
  local function said_and_held(given, before, rows)
    given.model = nn.Sequential { seed = 1, input = { 8 }, nn.Linear { 8, 32 }, nn.ReLU(),
      nn.Linear { 32, 3 } }
    given.optimizer = optim.SGD { lr = 0.1, momentum = 0.9 }
    local t <close> = neap.trainer(given)
    local function step(n) return t:step { x = neap.rand(n, 8), y = neap.zeros(n):to "i64" } end
    for _, n in ipairs(before) do step(n) end
    local said = t:forecast(rows).total_bytes
    return said, step(rows).held_bytes
  end

  it("speaks of the bytes of the largest batch, where steps run in them", function()
    for i, o in ipairs {
      { {}, {}, 8 }, { { max_batch = 64 }, {}, 8 }, { { max_batch = 64 }, {}, 64 },
      { { max_batch = 64 }, { 8 }, 8 }, { {}, { 64 }, 8 },
      { { max_batch = 64, memory = { budget = "20KiB" } }, {}, 8 },
      { { max_batch = 64, micro = 16, reduces = "mean" }, {}, 8 },
    } do
      local said, held = said_and_held(table.unpack(o))
      assert.are.equal(said, held, "trainer " .. i)
    end
  end)

  it("is refused beyond max_batch, as the step is", function()
    local t <close> = neap.trainer {
      model = nn.Sequential { input = { 8 }, nn.Linear { 8, 3 } },
      optimizer = optim.SGD { lr = 0.1 },
      max_batch = 64,
    }
    local small = t:forecast(8).total_bytes
    for _, name in ipairs { "forecast", "plan", "program" } do
      raises("expects batches of at most 64 rows, as max_batch says, got 65", t[name], t, 65)
    end
    t:forecast(64)
    assert.are.equal(small, t:forecast(8).total_bytes)
  end)
end)
