-- Point 11, working within memory: the largest batch that fits, gradient accumulation, steady
-- memory.
local neap = require "neap"
local nn, optim, data = neap.nn, neap.optim, neap.data
local support = require "support"
local raises, held = support.raises, support.held

local function model_of(width, extra)
  return nn.Sequential {
    input = { 12 }, seed = 3,
    nn.Linear { 12, width }, nn.Tanh(), extra or nn.Identity(), nn.Linear { width, width },
    nn.ReLU(), nn.Linear { width, 4 },
  }
end

--- Batch k of n rows, the same for everybody.
local function batch(n, k)
  local x, y = support.batch({ n, 12 }, 4, 0.37 * k)
  return { x = x, y = y }
end

local function trainer(o)
  o.model = o.model or model_of(16)
  o.memory = o.memory or { store = false }
  return neap.trainer(o)
end

--- Nets that aren't an MLP. `plain`: without what mixes the rows of a batch or draws for them.
local function convnet(plain)
  return nn.Sequential {
    input = { 1, 10, 10 }, seed = 4,
    nn.Conv2d { 1, 4, kernel = 3, pad = 1 }, plain and nn.Identity() or nn.BatchNorm2d { 4 },
    nn.ReLU(),
    nn.MaxPool2d { 2 },
    nn.Flatten(),
    plain and nn.Identity() or nn.Dropout { 0.2 },
    nn.Linear { 100, 5 },
  }
end
local function transformer()
  local function block()
    return nn.Sequential {
      nn.Residual { nn.LayerNorm { 8 }, nn.SelfAttention { 8, heads = 2, causal = true } },
      nn.Residual { nn.LayerNorm { 8 }, nn.Linear { 8, 16 }, nn.GELU(), nn.Linear { 16, 8 } },
    }
  end
  return nn.Sequential {
    input = { 6 }, dtype = "i64", seed = 5,
    nn.Embedding { 9, 8 }, block(), block(), nn.Linear { 8, 9 },
  }
end

--- The largest difference between the parameters of two models.
local function distance(a, b)
  local worst, other = 0, b:state_dict()
  for name, t in pairs(a:state_dict()) do
    worst = math.max(worst, (t - other[name]):abs():stats().max)
  end
  return worst
end

describe("neap.fit_batch", function()
  it("gives the largest batch that fits a total or a budget: one more does not", function()
    for _, train in ipairs { true, false } do
      for _, limit in ipairs {
        { total = "200KiB" }, { budget = "37KiB" }, { total = 123456, budget = 45678 },
      } do
        local model = model_of(24)
        local o = { train = train, total = limit.total, budget = limit.budget }
        if train then o.loss = nn.CrossEntropyLoss {} end
        local n, plan = neap.fit_batch(model, o)
        assert.is_true(n > 1)
        assert.are.equal(n, plan.batch)
        if limit.total then
          assert.is_true(plan.total_bytes
            <= neap.bytes(type(limit.total) == "string" and limit.total or limit.total .. "B"))
        end
        local again = {
          batch = n + 1, train = train, loss = o.loss, total = limit.total, budget = limit.budget,
        }
        assert.are.equal("budget", raises("", model.plan, model, again).code)
      end
    end
  end)

  it("is exact for convnets and transformers too, with any loss and optimizer", function()
    for _, make in ipairs { convnet, transformer } do
      for _, options in ipairs {
        {
          train = true,
          loss = nn.CrossEntropyLoss { label_smoothing = 0.1 },
          optimizer = optim.Adam {},
        },
        { train = true, optimizer = optim.SGD { lr = 0.1, momentum = 0.9, clip = 1 } }, {},
      } do
        local model = make()
        local function asked(more) return setmetatable(more, { __index = options }) end
        local function plan(o)
          return model:plan {
            batch = o.batch,
            total = o.total,
            budget = o.budget,
            train = options.train,
            loss = options.loss,
            optimizer = options.optimizer,
          }
        end
        local five = plan(asked { batch = 5 })
        for _, limit in ipairs { { total = five.total_bytes }, { budget = five.arena_bytes } } do
          local n, found = neap.fit_batch(model, {
            total = limit.total, budget = limit.budget, train = options.train, loss = options.loss,
            optimizer = options.optimizer,
          })
          assert.is_true(n >= 5)
          assert.are.equal(n, found.batch)
          assert.is_true(found.total_bytes <= (limit.total or math.maxinteger)
            and found.arena_bytes <= (limit.budget or math.maxinteger))
          assert.are.equal("budget", raises("", plan, asked {
            batch = n + 1, total = limit.total, budget = limit.budget,
          }).code)
        end
      end
    end
  end)

  it("follows what a trainer's memory asks for, on convnets and transformers: one row \z
      more does not fit", function()
    local inputs = { [convnet] = { 1, 10, 10 }, [transformer] = { 6 } }
    for make, shape in pairs(inputs) do
      for _, memory in ipairs {
        { executor = "dag" }, { policy = "name" }, { policy = "none", engine = "ref" },
        { engine = "blas", recompute = false },
        { mem_param = {} },
      } do
        local function micro_of(micro, total)
          local own = { store = false, total = total }
          for key, value in pairs(memory) do own[key] = value end
          if total then own.recompute = false end -- as "fit" has it
          local t <close> = neap.trainer {
            model = make(), optimizer = optim.Adam { lr = 0.01 }, micro = micro, memory = own,
          }
          local rows = make == transformer and { y = neap.zeros { 2, 6, dtype = "i64" } }
            or { y = neap.zeros { 2, dtype = "i64" } }
          rows.x = neap.zeros {
            2, dtype = make == transformer and "i64" or "f32", table.unpack(shape),
          }
          return t:forecast(64, rows)
        end
        local total = micro_of(5).total_bytes
        local found = micro_of("fit", total)
        assert.is_true(found.micro >= 5 and found.micro < 64)
        assert.is_true(found.total_bytes <= total)
        assert.are.equal(found.total_bytes, micro_of(found.micro, total).total_bytes)
        assert.are.equal("budget", raises("least total", micro_of, found.micro + 1, total).code)
      end
    end
  end)

  it("gives the same for a net, keeps to max, and refuses what not even \z
      one example fits", function()
    local net = model_of(24):net { batch = 5 }
    local n = neap.fit_batch(net, { budget = "30KiB" })
    local function plan(rows) return net:plan { x = { rows, 12 }, budget = "30KiB" } end
    assert.are.equal(n, plan(n).batch)
    assert.are.equal("budget", raises("", plan, n + 1).code)
    assert.are.equal(7, (neap.fit_batch(net, { budget = "30KiB", max = 7 })))
    assert.are.equal("budget", raises("", neap.fit_batch, model_of(24), { total = "1KiB" }).code)
    raises("max expects", neap.fit_batch, net, { budget = 1e6 // 1, max = 0 })
    for _, slip in ipairs { 3, "lenet", {}, neap.zeros(2) } do
      raises("neap.fit_batch takes a model or a net, got a", neap.fit_batch, slip,
        { total = "1MiB" })
    end
  end)

  it("takes what the machine has free when it is given no figure, and \z
      says what that was", function()
    local core, stderr = require "neap.core", io.stderr
    local was = core.memory
    local said = {}
    local function with_free(bytes, f)
      core.memory = function() return { available = bytes } end
      io.stderr = { write = function(_, text) said[#said + 1] = text end } -- luacheck: ignore
      local results = table.pack(pcall(f))
      core.memory, io.stderr = was, stderr -- luacheck: ignore
      if not results[1] then error(results[2], 0) end
      return table.unpack(results, 2, results.n)
    end
    local model = model_of(24)
    local n, plan, total = with_free(400 << 10, function()
      return neap.fit_batch(model, { train = true })
    end)
    assert.are.equal(350 << 10, total)
    assert.are.equal(
      "neap: neap.fit_batch takes 350.0 KiB, seven eighths of the 400.0 KiB that are free here\n",
      table.concat(said))
    assert.are.equal(n, (neap.fit_batch(model, { train = true, total = total })))
    assert.is_true(plan.total_bytes <= total)
    raises("give { total = bytes }", with_free, 0, function() neap.fit_batch(model) end)
    -- The trainer's micro = "fit" follows it.
    said = {}
    local t <close> = neap.trainer{ model = model_of(24), optimizer = optim.Adam {}, micro = "fit" }
    local micro = with_free(64 << 10, function()
      return t:forecast(5000, { x = neap.zeros(8, 12), y = neap.zeros { 8, dtype = "i64" } }).micro
    end)
    assert.is_true(micro >= 1 and micro < 5000)
    assert.is_truthy(table.concat(said):find("micro = \"fit\" takes 56.0 KiB", 1, true))
    assert.are.equal(56 << 10, t.memory.total)
    local free = neap.memory().available
    assert.is_true(free > 0 and free < 1 << 50)
  end)

  it("allocates nothing", function()
    local model = model_of(24)
    local before = held()
    neap.fit_batch(model, { total = "100KiB", train = true, optimizer = optim.Adam {} })
    assert.are.equal(before, held())
  end)
end)

describe("gradient accumulation in the trainer", function()
  local optimizers = {
    ["SGD with momentum"] = function() return optim.SGD { lr = 0.1, momentum = 0.9 } end,
    Adam = function() return optim.Adam { lr = 0.01 } end,
    ["a clipped gradient"] = function() return optim.SGD { lr = 0.1, clip = 0.05 } end,
    ["weight decay"] = function()
      return optim.SGD { lr = 0.1, momentum = 0.9, weight_decay = 0.1 }
    end,
    ["groups"] = function()
      return optim.AdamW { lr = 0.01, { "*.bias", weight_decay = 0, lr = 0.02 } }
    end,
  }
  for name, make in pairs(optimizers) do
    it("equals the large batch within rounding: " .. name, function()
      for _, executor in ipairs { "simple", "dag" } do
        -- 4 divides 12; 5 leaves an uneven last micro-batch; 12 is the batch
        for _, micro in ipairs { 4, 5, 12 } do
          local memory = { store = false, executor = executor }
          local whole <close> = trainer {
            optimizer = make(), metrics = { "accuracy" }, memory = memory,
          }
          local parts <close> = trainer {
            optimizer = make(), metrics = { "accuracy" }, memory = memory, micro = micro,
          }
          for k = 1, 3 do
            local a, b = whole:step(batch(12, k)), parts:step(batch(12, k))
            assert.is_true(math.abs(a.loss - b.loss) < 1e-5)
            assert.is_true(math.abs(a.accuracy - b.accuracy) < 1e-6)
            assert.are.equal(a.step, b.step)
          end
          assert.is_true(distance(whole.model, parts.model) < 1e-5)
          assert.is_true(distance(whole.model, model_of(16)) > 1e-3) -- they have moved
        end
      end
    end)
  end

  it("equals the large batch within rounding on a convnet and a transformer", function()
    local function tokens(k, i)
      return (neap.arange(30):to "f32" * (0.37 * k + i)):sin():abs():view(5, 6) * 8
    end
    local cases = {
      {
        make = function() return convnet(true) end,
        batch = function(k)
          local x, y = support.batch({ 5, 1, 10, 10 }, 5, 0.37 * k)
          return { x = x, y = y }
        end,
      },
      {
        make = transformer,
        batch = function(k) return { x = tokens(k, 1):to "i64", y = tokens(k, 2):to "i64" } end,
      },
    }
    for _, case in ipairs(cases) do
      local whole <close> = trainer {
        model = case.make(), optimizer = optim.SGD { lr = 0.1, momentum = 0.9 },
      }
      -- 2, 2 and 1
      local parts <close> = trainer {
        model = case.make(), optimizer = optim.SGD { lr = 0.1, momentum = 0.9 }, micro = 2,
      }
      for k = 1, 3 do
        assert.is_true(
          math.abs(whole:step(case.batch(k)).loss - parts:step(case.batch(k)).loss) < 1e-5)
      end
      assert.is_true(distance(whole.model, parts.model) < 1e-5)
      assert.is_true(distance(whole.model, case.make()) > 1e-3)
    end
  end)

  it("weighs micro-batches by the labels that count, where a loss ignores some", function()
    local loss = function() return nn.CrossEntropyLoss { ignore_index = 3 } end
    local whole <close> = trainer { optimizer = optim.SGD { lr = 0.1 }, loss = loss() }
    local parts <close> = trainer { optimizer = optim.SGD { lr = 0.1 }, loss = loss(), micro = 5 }
    for k = 1, 3 do
      whole:step(batch(12, k))
      parts:step(batch(12, k))
    end
    assert.is_true(distance(whole.model, parts.model) < 1e-5)
  end)

  it("weighs them as the loss reduces its rows, and refuses a loss that does not say", function()
    local function summed(y, t) return ((y - t) * (y - t)):sum() end
    local function mean(y, t) return ((y - t) * (y - t)):mean() end
    local function data(k)
      return { x = support.batch({ 7, 12 }, 3, 0.3 * k), y = neap.zeros(7, 3) + 0.1 * k }
    end
    local Summed = nn.module {
      "Summed",
      init = function(self) self.reduces = "sum" end,
      forward = function(_, y, t) return summed(y, t) end,
    }
    local function make(o)
      o.model, o.optimizer = nn.Sequential { input = { 12 }, nn.Linear { 12, 3 } },
        optim.SGD { lr = 0.01 }
      o.model:seed(3)
      return neap.trainer(o)
    end
    for _, case in ipairs {
      { summed, "sum" }, { mean, "mean" }, { Summed {}, nil }, { nn.MseLoss {}, nil },
    } do
      local whole <close> = make { loss = case[1] }
      local parts <close> = make { loss = case[1], reduces = case[2], micro = 3 }
      for k = 1, 3 do
        local a, b = whole:step(data(k)).loss, parts:step(data(k)).loss
        assert.is_true(math.abs(a - b) <= 1e-5 * math.abs(a), ("loss %g for %g"):format(b, a))
      end
      assert.is_true(distance(whole.model, parts.model) < 1e-5)
    end
    support.raises("whether the loss is a mean or a sum", make, { loss = summed, micro = 3 })
    support.raises("reduces expects \"mean\" or \"sum\"", make,
      { loss = summed, micro = 3, reduces = "max" })
    support.raises("metrics under micro", make, {
      loss = summed, micro = 3, reduces = "sum", metrics = { "accuracy" },
    })
  end)

  it("needs less memory than the large batch, as its plan says and its run shows", function()
    local whole <close> = trainer { model = model_of(64), optimizer = optim.SGD { lr = 0.1 } }
    local parts <close> = trainer {
      model = model_of(64), optimizer = optim.SGD { lr = 0.1 }, micro = 16,
    }
    whole:step(batch(256, 1))
    parts:step(batch(256, 1))
    assert.is_true(parts:plan(256).arena_bytes * 4 < whole:plan(256).arena_bytes)
    assert.is_true(parts.ws:arena_bytes() * 4 < whole.ws:arena_bytes())
    -- One micro-batch's arena serves all: a larger batch holds no more.
    local arena = parts.ws:arena_bytes()
    parts:step(batch(512, 2))
    assert.are.equal(arena, parts.ws:arena_bytes())
  end)

  it("foretells what a step will hold before anything is allocated, to the byte", function()
    for _, micro in ipairs { false, 16, 5 } do
      local before = held()
      local t <close> = trainer {
        model = model_of(32), optimizer = optim.Adam {}, micro = micro or nil,
      }
      local told = t:forecast(32, { x = batch(32, 1).x, y = batch(32, 1).y })
      -- a number or two of the trainer's own, nothing of what was foretold
      assert.is_true(told.total_bytes > 1024 and held() - before < 64)
      local empty = held()
      t:step(batch(32, 1))
      assert.are.equal(told.total_bytes, t.ws:held_bytes())
      assert.is_true(held() - empty >= told.arena_bytes)
    end
  end)

  it("keeps a total, accumulators and update counted, or refuses it with the \z
      least that would do", function()
    local tight = 0
    local function check(model_for, micro, data_of, optimizer)
      local function step(total, recompute)
        local memory = { store = false, total = total, recompute = recompute }
        local t <close> = trainer {
          model = model_for(), optimizer = optimizer(), micro = micro, memory = memory,
        }
        local ok, err = pcall(t.step, t, data_of())
        if ok then return t.ws:held_bytes(), t.model:state_dict() end
        assert.are.equal("budget", err.code)
        return nil, err
      end
      local free, want = step(nil)
      assert.are.equal(free, (step(free)))
      local none, err = step(free - 1, false)
      assert.is_nil(none)
      assert.are.equal(free, err.least_bytes)
      for percent = 98, 50, -4 do
        local total = free * percent // 100
        local bytes, got = step(total)
        if bytes == nil then
          assert.is_true(got.least_bytes > total and step(got.least_bytes) <= got.least_bytes)
        else
          tight = tight + 1
          assert.is_true(bytes <= total, ("%d for %d"):format(bytes, total))
          for name, value in pairs(got) do assert.is_true(value:equal(want[name])) end
        end
      end
    end
    local function images()
      local x, y = support.batch({ 20, 1, 10, 10 }, 5, 0.37)
      return { x = x, y = y }
    end
    check(function() return model_of(32) end, 3, function() return batch(10, 1) end,
      function() return optim.Adam { lr = 0.1 } end)
    check(function() return model_of(32) end, 1, function() return batch(4, 1) end,
      function() return optim.SGD { lr = 0.1, clip = 1 } end)
    check(function() return convnet(true) end, 8, images,
      function() return optim.SGD { lr = 0.1, momentum = 0.9 } end)
    assert.is_true(tight > 0)
  end)

  it("counts of two programs in one arena the larger one", function()
    local net = model_of(8):net { batch = 4, train = true, loss = nn.CrossEntropyLoss {} }
    local function plan(o)
      return net:plan {
        store = false, engine = "ref", recompute = false, total = o.total, _beside = o.beside,
      }
    end
    local free = plan {}
    for _, more in ipairs { 0, 1, 640 } do
      local beside, want = { 100, free.arena_bytes + more }, free.total_bytes + 100 + more
      assert.are.equal(free.arena_bytes, plan({ total = want, beside = beside }).arena_bytes)
      assert.are.equal(want,
        raises("least total", plan, { total = want - 1, beside = beside }).least_bytes)
    end
    assert.are.equal(free.total_bytes + 100,
      raises("least total", plan, { total = free.total_bytes, beside = { 100, 0 } }).least_bytes)
  end)

  it("is kept where there is no arena to make smaller", function()
    local net, still = neap.net "r", neap.net "still"
    net:input("x", { 2000 })
    net:param("w", { 2000 }, 1)
    net:Mul({ "x", "w" }, "y")
    net:outputs { "y" }
    still:param("w", { 2000 }, 1)
    still:outputs { "w" }
    assert.are.equal(8000,
      raises("least total for \"still\"", still.plan, still, { total = 7999 }).least_bytes)
    still:plan { total = 8000 }
    for _, memory in ipairs {
      {}, { executor = "dag" }, { executor = "dynamic" }, { policy = "none" }, { policy = "pool" },
    } do
      local ws <close> = neap.workspace { store = false }
      ws:init(net)
      local function run(total)
        memory.total = total
        return ws:run(net, { x = neap.ones(2000) }, memory)
      end
      for _, total in ipairs { 1, 8000, 23999 } do
        local err = raises(total == 23999
          and "least total for \"r\" is 23.438 KiB, all of it beside the arena, the total is 23.437"
          or "least total for \"r\" is 23.4 KiB, all of it beside the arena", run, total)
        assert.are.same({ "budget", 24000, 8000 }, { err.code, err.least_bytes, ws:held_bytes() })
      end
      run(24000)
      assert.are.equal(24000, ws:held_bytes())
    end
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    raises("least total", ws.compile, ws, net, { total = 1 })
    local m = neap.nn.Sequential { input = { 32 }, neap.nn.Linear { 32, 32 } }
    raises("least total", m.plan, m, { batch = 2, total = 1 })
  end)

  it("fits micro-batches into a budget or a total: the largest that do", function()
    for _, limit in ipairs { { total = "60KiB" }, { budget = "24KiB" } } do
      local memory = { store = false, total = limit.total, budget = limit.budget }
      local t <close> = trainer {
        model = model_of(32),
        optimizer = optim.SGD { lr = 0.1, momentum = 0.9 },
        micro = "fit",
        memory = memory,
      }
      t:step(batch(200, 1))
      local rows = t.micro_fit
      assert.is_true(rows > 1 and rows < 200, tostring(rows))
      if limit.total then assert.is_true(t.ws:held_bytes() <= neap.bytes "60KiB") end
      if limit.budget then assert.is_true(t.ws:arena_bytes() <= neap.bytes "24KiB") end
      local more <close> = trainer {
        model = model_of(32), optimizer = optim.SGD { lr = 0.1, momentum = 0.9 }, micro = rows + 1,
        memory = { store = false, budget = limit.budget },
      }
      if limit.budget then
        assert.are.equal("budget", raises("", more.step, more, batch(200, 1)).code)
      else
        more:step(batch(200, 1))
        assert.is_true(more.ws:held_bytes() > neap.bytes "60KiB")
      end
      local whole <close> = trainer {
        model = model_of(32), optimizer = optim.SGD { lr = 0.1, momentum = 0.9 },
      }
      whole:step(batch(200, 1))
      assert.is_true(distance(whole.model, t.model) < 1e-5)
    end
  end)

  it("drops a step whole when one micro-batch is not finite, and begins \z
      the next one afresh", function()
    local bad = batch(12, 2)
    bad.x[{ 11, 3 }] = 0 / 0
    local t <close> = trainer {
      optimizer = optim.SGD { lr = 0.1, momentum = 0.9 }, micro = 4, nan = "skip",
    }
    local clean <close> = trainer { optimizer = optim.SGD { lr = 0.1, momentum = 0.9 }, micro = 4 }
    t:step(batch(12, 1))
    clean:step(batch(12, 1))
    local before = t.ws:step()
    assert.is_true(t:step(bad).skipped)
    assert.are.equal(before, t.ws:step()) -- the micro-batches that were finite have left no trace
    assert.are.equal(0, distance(t.model, clean.model))
    t:step(batch(12, 3))
    clean:step(batch(12, 3))
    assert.are.equal(0, distance(t.model, clean.model))
    assert.are.equal(2, t.position.step)
  end)

  it("draws for each micro-batch as for a step of its own, the same on a second run", function()
    local function run(micro)
      local t <close> = trainer {
        model = model_of(16, nn.Dropout { 0.5 }),
        seed = 9,
        optimizer = optim.SGD { lr = 0.1 },
        micro = micro,
      }
      for k = 1, 3 do t:step(batch(12, k)) end
      assert.are.equal(micro and 3 * (12 // micro) or 3, t.ws:step())
      return t.model
    end
    assert.are.equal(0, distance(run(4), run(4)))
    assert.is_true(distance(run(4), run(6)) > 1e-4)
  end)

  it("goes on after a checkpoint with the same bits", function()
    local path = os.tmpname() .. ".safetensors"
    local function set()
      return data.tensors {
        x = batch(30, 5).x, y = batch(30, 5).y, batch = 12, shuffle = true, seed = 2,
      }
    end
    local function make()
      return trainer { seed = 4, optimizer = optim.Adam { lr = 0.01 }, micro = 5 }
    end
    local one <close> = make()
    one:fit(set(), { epochs = 4, verbose = 0 })
    local first <close> = make()
    first:fit(set(), { epochs = 2, verbose = 0, checkpoint = path })
    local second <close> = make()
    second:fit(set(), { epochs = 4, verbose = 0, checkpoint = path, resume = true })
    os.remove(path)
    assert.are.equal(0, distance(one.model, second.model))
  end)
end)

describe("memory over a training", function()
  it("stays as it is from epoch to epoch, with a smaller last batch, validation, \z
      checkpoint and resume", function()
    local path = os.tmpname() .. ".safetensors"
    for _, micro in ipairs { false, 5 } do
      os.remove(path)
      local function set(n)
        return data.tensors {
          x = batch(n, 5).x, y = batch(n, 5).y, batch = 12, shuffle = true, seed = 2,
        }
      end
      local train_set, valid = set(30), set(17)
      local t <close> = trainer {
        seed = 4, optimizer = optim.Adam { lr = 0.01 }, micro = micro or nil,
      }
      local after = {}
      t:fit(train_set, {
        epochs = 4,
        valid = valid,
        verbose = 0,
        checkpoint = path,
        on_epoch = function() after[#after + 1] = held() end,
      })
      for k = 2, 4 do assert.are.equal(after[1], after[k]) end
      local arena = t.ws:arena_bytes()
      local again <close> = trainer {
        seed = 4, optimizer = optim.Adam { lr = 0.01 }, micro = micro or nil,
      }
      again:fit(train_set, {
        epochs = 6, valid = valid, verbose = 0, checkpoint = path, resume = true,
      })
      assert.are.equal(arena, again.ws:arena_bytes())
      assert.are.equal(t.ws:held_bytes(), again.ws:held_bytes())
    end
    os.remove(path)
  end)
end)

describe("neap.count_memory", function()
  local function counted(report)
    local by = {}
    for _, row in ipairs(report) do by[row.class] = row end
    return by
  end

  it("counts bytes by class, each storage once, before and after planning, with \z
      nothing allocated", function()
    local model = nn.Sequential {
      input = { 8 }, seed = 2, nn.Linear { 8, 16 }, nn.ReLU(), nn.Linear { 16, 4 },
    }
    local before = held()
    local at_test = neap.count_memory(model, { batch = 10, store = false, engine = "ref" })
    local by = counted(at_test)
    -- Two weights and two biases; the outputs of three layers, the last of which the user gets, and
    -- the input.
    assert.are.equal(4 * (8 * 16 + 16 + 16 * 4 + 4), by.parameters.before)
    assert.are.equal(by.parameters.before, by.parameters.after)
    assert.are.equal(0, by.gradients.before)
    assert.are.equal(0, by["gradient inputs"].before)
    assert.are.equal(4 * 10 * (8 + 16 + 16 + 4), by.outputs.before)
    -- relu in place, or part of its product
    assert.are.equal(4 * 10 * (8 + 16 + 4), by.outputs.after)
    local at_training = counted(model:count {
      batch = 10,
      train = true,
      loss = nn.CrossEntropyLoss {},
      optimizer = optim.Adam {},
      store = false,
      engine = "ref",
    })
    assert.are.equal(at_training.parameters.before, at_training.gradients.before)
    -- Adam's two moments
    assert.is_true(at_training.buffers.before >= 2 * at_training.parameters.before)
    assert.is_true(at_training["gradient inputs"].before >= 4 * 10 * (16 + 4))
    assert.is_true(at_training.total.after < at_training.total.before)
    assert.are.equal(before, held())
  end)
end)

describe("m:optimize and m:undo", function()
  it("gives gradients back at inference, refuses backward with the way out, and restores \z
      everything bit for bit", function()
    local model = model_of(16)
    local x, dy = batch(6, 1).x, neap.ones(6, 4)
    local y = model(x)
    local dx = model:backward(x, dy)
    local w = model:param("linear1.weight").data:clone()
    local g = model:param("linear1.weight").grad:clone()
    local full = held()
    local same, said = model:optimize { mode = "inference" }
    assert.are.equal(model, same)
    assert.is_truthy(said:find("given back", 1, true))
    assert.is_true(held() < full)
    assert.is_nil(model:param("linear1.weight").grad)
    assert.is_true(model(x):equal(y))
    local err = raises("optimised for inference", model.backward, model, x, dy)
    assert.are.equal("released", err.code)
    assert.is_truthy(err.hint:find("m:undo()", 1, true))
    raises("m:undo()", model.net, model, { batch = 2, train = true, loss = nn.CrossEntropyLoss {} })
    model:undo()
    assert.is_true(model(x):equal(y))
    assert.is_true(model:backward(x, dy):equal(dx))
    assert.is_true(model:param("linear1.weight").data:equal(w))
    assert.is_true(model:param("linear1.weight").grad:equal(g))
  end)

  it("does nothing a second time, and says so", function()
    local model = model_of(8)
    local _, first = model:optimize { mode = "training" }
    local _, second = model:optimize { mode = "inference" }
    assert.is_truthy(second:find("already", 1, true))
    assert.are_not.equal(first, second)
    -- it is optimised for training
    assert.is_not_nil(model:backward(batch(3, 1).x, neap.ones(3, 4)))
    model:undo()
    local _, third = model:undo()
    assert.is_truthy(third:find("not optimised", 1, true))
    raises("mode expects \"inference\" or \"training\", got \"infer\"", model.optimize, model,
      { mode = "infer" })
  end)
end)

describe("ws:drop_gradients", function()
  it("gives a trainer's gradients back between two steps, which change nothing by it", function()
    for _, executor in ipairs { "simple", "dag" } do
      local function make()
        return trainer {
          optimizer = optim.Adam { lr = 0.01 }, memory = { store = false, executor = executor },
        }
      end
      local plain <close> = make()
      local dropping <close> = make()
      for k = 1, 4 do
        plain:step(batch(12, k))
        dropping:step(batch(12, k))
        local before = held()
        local bytes = dropping.ws:drop_gradients()
        assert.are.equal(dropping:plan(12).regions.gradients, bytes)
        assert.are.equal(bytes, before - held())
        assert.are.equal(0, dropping.ws:drop_gradients())
      end
      assert.are.equal(0, distance(plain.model, dropping.model))
    end
  end)

  it("leaves parameters, state and what else is fetched as they are", function()
    local t <close> = trainer { optimizer = optim.SGD { lr = 0.1, momentum = 0.9 } }
    t:step(batch(12, 1))
    local before = {}
    for _, row in ipairs(t.ws:blobs()) do
      if row.role == "parameter" or row.role == "state" then
        before[row.name] = t.ws:fetch(row.name)
      end
    end
    assert.is_true(t.ws:drop_gradients() > 0)
    local n = 0
    for name, value in pairs(before) do
      n = n + 1
      assert.is_true(t.ws:fetch(name):equal(value), name)
    end
    assert.is_true(n >= 12)
  end)
end)
