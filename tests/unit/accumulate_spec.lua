-- Gradients accumulated over several batches before an update: what equals what, and what a
-- failure, a stop or an epoch's end leaves.
local neap = require "neap"
local support = require "support"
local nn, optim = neap.nn, neap.optim
local raises = support.raises

local function model(seed)
  return nn.Sequential { seed = seed or 3, nn.Linear { 6, 8 }, nn.Tanh(), nn.Linear { 8, 3 } }
end

local function trainer(o)
  o.model, o.optimizer = o.model or model(), o.optimizer or optim.SGD { lr = 0.1, momentum = 0.9 }
  return neap.trainer(o)
end

--- n batches of these many rows, the same each time.
local function batches(...)
  local list, at = {}, 0.1
  for i, rows in ipairs { ... } do
    local x, y = support.batch({ rows, 6 }, 3, at * i)
    list[i] = { x = x, y = y }
  end
  return list
end

local function joined(list)
  local x, y = {}, {}
  for i, batch in ipairs(list) do x[i], y[i] = batch.x, batch.y end
  return { x = neap.concat(x, 1), y = neap.concat(y, 1) }
end

--- Largest difference of two models' parameters.
local function distance(a, b)
  local most = 0
  local of_b = b.model:state_dict()
  for name, t in pairs(a.model:state_dict()) do
    most = math.max(most, (t - of_b[name]):abs():max():item())
  end
  return most
end

local function bits(t) return support.state_of(t.model:workspace()) end

local function parameters_of(t)
  return support.hashes(t.model:workspace(), function(blob) return blob.role == "parameter" end)
end

local function steps(t, list)
  local results = {}
  for i, batch in ipairs(list) do results[i] = t:step(batch) end
  return results
end

describe("accumulated batches", function()
  it("are the step of their examples together, within rounding, whatever their sizes", function()
    for _, optimizer in ipairs {
      function() return optim.SGD { lr = 0.1, momentum = 0.9, clip = 0.5 } end,
      function() return optim.Adam { lr = 0.01 } end,
    } do
      for _, sizes in ipairs { { 4, 4, 4 }, { 5, 1, 3 } } do
        local t <close> = trainer { accumulate = 3, optimizer = optimizer() }
        local whole <close> = trainer { optimizer = optimizer() }
        for round = 1, 3 do
          local list = batches(table.unpack(sizes))
          local results = steps(t, list)
          local one = whole:step(joined(list))
          assert.are.same({ false, false, true }, {
            results[1].updated, results[2].updated, results[3].updated,
          })
          assert.are.equal(sizes[1] + sizes[2], results[2].accumulated)
          assert.are.equal(0, results[3].accumulated)
          assert.are.equal(round, results[3].step)
          assert.are.equal(round - 1, results[2].step)
          local loss = 0
          for i, r in ipairs(results) do
            loss = loss + r.loss * sizes[i] / (sizes[1] + sizes[2] + sizes[3])
          end
          assert.is_true(math.abs(loss - one.loss) < 1e-5)
        end
        assert.is_true(distance(t, whole) < 2e-6, distance(t, whole))
      end
    end
  end)

  it("change no parameter and no optimizer state before the update", function()
    local t <close> = trainer { accumulate = 4 }
    local list = batches(2, 2, 2, 2)
    local before
    for i = 1, 3 do
      t:step(list[i])
      before = before or parameters_of(t)
      assert.are.equal(before, parameters_of(t))
    end
    t:step(list[4])
    assert.are_not.equal(before, parameters_of(t))
  end)

  it("update with the batch that reaches a number of examples, or of batches, \z
      whichever comes first", function()
    local function pattern(accumulate, ...)
      local t <close> = trainer { accumulate = accumulate }
      local list = {}
      for i, r in ipairs(steps(t, batches(...))) do list[i] = r.updated and "u" or "-" end
      return table.concat(list)
    end
    assert.are.equal("--u-u--u", pattern({ examples = 8 }, 3, 3, 2, 7, 1, 3, 4, 5))
    assert.are.equal("-uu-u", pattern({ batches = 2, examples = 6 }, 3, 2, 6, 1, 1))
    assert.are.equal("--u--u", pattern(3, 1, 2, 3, 1, 2, 3))
    assert.are.equal("--u", pattern({ 3 }, 1, 2, 3))
    assert.are.equal("uuu", pattern(1, 1, 2, 3))
  end)

  it("have the bits of a step alone where one batch is enough", function()
    local t <close> = trainer { accumulate = { batches = 9, examples = 4 } }
    local micro <close> = trainer { micro = 64 }
    for _, batch in ipairs(batches(4, 5, 6)) do
      t:step(batch)
      micro:step(batch)
    end
    assert.are.equal(parameters_of(micro), parameters_of(t))
  end)

  it("count what a mean counts: labels to be ignored do not", function()
    local function loss() return nn.CrossEntropyLoss { ignore_index = 0 } end
    local t <close> = trainer { accumulate = 2, loss = loss() }
    local whole <close> = trainer { loss = loss() }
    local list = batches(6, 3)
    list[1].y = neap.tensor({ 0, 0, 0, 1, 0, 2 }, "i64")
    list[2].y = neap.tensor({ 1, 2, 1 }, "i64")
    steps(t, list)
    whole:step(joined(list))
    assert.is_true(distance(t, whole) < 1e-6)
    -- NllLoss, which is made of other ops, does not count them either
    local function of_logs() return nn.NllLoss { ignore_index = 0 } end
    local nll <close> = trainer { accumulate = 2, loss = of_logs() }
    local one <close> = trainer { loss = of_logs() }
    steps(nll, list)
    one:step(joined(list))
    assert.is_true(distance(nll, one) < 1e-6)
    local weighted <close> = trainer { micro = 2, loss = nn.NllLoss { weight = { 1, 2, 3 } } }
    raises({ "class weights" }, weighted.step, weighted, list[1])
  end)

  it("count the labels of an own loss's cross entropy as its net ignores them, and refuse what no \z
      count makes one mean of", function()
    local function alone(out, target)
      return out:softmax_cross_entropy(target:cast { to = "i64" }, { ignore_index = 0 })
    end
    local function mixed(out, target) return alone(out, target) + out:square():mean() end
    local function weighted(out, target)
      return out:softmax_cross_entropy(target, neap.tensor { 1, 2, 3 })
    end
    local function list(...)
      local out = batches(6, 3)
      out[1].y, out[2].y = neap.tensor({ ... }, "i64"), neap.tensor({ 1, 2, 1 }, "i64")
      return out
    end
    for _, micro in ipairs { false, 2 } do
      local o = { accumulate = 2, micro = micro or nil, reduces = "mean" }
      local function with(loss)
        local given = { loss = loss }
        for key, value in pairs(o) do given[key] = value end
        return trainer(given)
      end
      local t <close> = with(alone)
      local whole <close> = trainer { loss = alone }
      steps(t, list(0, 0, 0, 1, 0, 2))
      whole:step(joined(list(0, 0, 0, 1, 0, 2)))
      assert.is_true(distance(t, whole) < 1e-6)
      local both <close> = with(mixed)
      local one <close> = trainer { loss = mixed }
      steps(both, list(1, 2, 2, 1, 1, 2)) -- nothing is ignored
      one:step(joined(list(1, 2, 2, 1, 1, 2)))
      assert.is_true(distance(both, one) < 1e-6)
      raises({ "labels other than 0", "reduces = \"sum\"" }, both.step, both,
        list(0, 1, 1, 1, 1, 1)[1])
      local w <close> = with(weighted)
      raises({ "class weights" }, w.step, w, list(1, 2, 2, 1, 1, 2)[1])
    end
  end)

  it("of a loss that sums add up", function()
    local function sum(y, target) return (y - target):pow(2):sum() end
    local function list()
      local out = {}
      for i, rows in ipairs { 4, 2, 3 } do
        local fill = support.filler(0.3 * i)
        out[i] = { x = fill(neap.zeros(rows, 6)), y = fill(neap.zeros(rows, 3)) }
      end
      return out
    end
    for _, micro in ipairs { false, 2 } do
      local t <close> = trainer {
        accumulate = 3,
        loss = sum,
        reduces = "sum",
        micro = micro or nil,
        optimizer = optim.SGD { lr = 0.01 },
      }
      local whole <close> = trainer { loss = sum, optimizer = optim.SGD { lr = 0.01 } }
      for _ = 1, 2 do
        steps(t, list())
        whole:step(joined(list()))
      end
      assert.is_true(distance(t, whole) < 1e-5, distance(t, whole))
    end
    raises({ "accumulate needs to know whether the loss is a mean or a sum", "reduces" }, trainer,
      { accumulate = 2, loss = sum })
  end)

  it("run as micro-batches, within the rounding of the large batch", function()
    local list = batches(7, 5, 4)
    local t <close> = trainer { accumulate = 3, micro = 3 }
    local whole <close> = trainer {}
    for _ = 1, 2 do
      steps(t, list)
      whole:step(joined(list))
    end
    assert.is_true(distance(t, whole) < 2e-6, distance(t, whole))
  end)

  it("that are held when a fit begins are part of its first update", function()
    local list = batches(4, 2, 2)
    local all = joined { list[2], list[3] }
    for _, accumulate in ipairs { 2, { examples = 6 } } do
      local t <close> = trainer { accumulate = accumulate }
      local whole <close> = trainer {}
      t:step(list[1])
      t:fit(neap.data.tensors { x = all.x, y = all.y, batch = 2 }, { verbose = 0,
        on_step = function(r) assert.is_true(r.updated) end })
      whole:step(joined { list[1], list[2] })
      whole:step(list[3])
      assert.is_true(distance(t, whole) < 1e-6, distance(t, whole))
    end
  end)

  it("are looked at once an update", function()
    local all = joined(batches(8, 8))
    local set = neap.data.tensors { x = all.x, y = all.y, batch = 4 }
    local t <close> = trainer { accumulate = 2 }
    local looks = {}
    for _, row in ipairs(t:fit(set, { valid = set, valid_every = 1, verbose = 0 })) do
      looks[#looks + 1] = row.within and row.step or nil
    end
    assert.are.same({ 1, 2 }, looks)
  end)

  it("say what is wrong with the option", function()
    raises('accumulate expects a number of batches, or { batches =, examples = }, got "4"', trainer,
      { accumulate = "4" })
    raises("batches expects an integer of at least 1, got 0", trainer, { accumulate = 0 })
    raises("examples expects an integer of at least 1, got 1.5", trainer,
      { accumulate = { examples = 1.5 } })
    raises("accumulate expects a number of batches", trainer, { accumulate = {} })
    raises("did you mean \"examples\"?", trainer, { accumulate = { example = 4 } })
  end)

  it("that are held can be asked for an update by hand", function()
    local list = batches(4, 3)
    local t <close> = trainer { accumulate = 5 }
    local two <close> = trainer { accumulate = 2 }
    assert.is_nil(t:update())
    steps(t, list)
    steps(two, list)
    local r = t:update()
    assert.is_true(r.updated)
    assert.are.equal(1, r.step)
    assert.is_nil(t:update())
    assert.is_true(distance(t, two) < 1e-6)
    local plain <close> = trainer {}
    steps(plain, list)
    assert.is_nil(plain:update())
  end)
end)

describe("what is held", function()
  it("is what the forecast says, and counted by a total", function()
    for _, micro in ipairs { false, 4 } do
      local function make(o)
        o.accumulate, o.micro = 2, micro or nil
        return trainer(o)
      end
      local t <close> = make {}
      local list = batches(8, 8)
      local example = list[1]
      local forecast = t:forecast(8, example)
      steps(t, list)
      assert.are.equal(forecast.total_bytes, t.ws:held_bytes())
      local without <close> = trainer { micro = micro or 8 }
      local more = forecast.total_bytes - without:forecast(8, example).total_bytes
      local gradients = 4 * (6 * 8 + 8 + 8 * 3 + 3)
      assert.is_true(more >= gradients and more <= gradients + 64 * 6, more)
      local exact <close> = make { memory = { total = forecast.total_bytes } }
      steps(exact, list)
      local short <close> = make { memory = { total = forecast.total_bytes - 64 } }
      raises("total", short.step, short, list[1])
    end
  end)

  it("leaves room in a total that micro = \"fit\" fills", function()
    local list = batches(64, 64)
    local free <close> = trainer { micro = 64 }
    local total = free:forecast(64, list[1]).total_bytes
    local t <close> = trainer { accumulate = 2, micro = "fit", memory = { total = total } }
    assert.is_true(steps(t, list)[2].updated)
    assert.is_true(t.ws:held_bytes() <= total, t.ws:held_bytes())
    local more <close> = trainer { micro = "fit", memory = { total = total } }
    assert.are.equal(64, more:forecast(64, list[1]).micro)
    assert.is_true(t:forecast(64).micro < 64)
  end)

  it("is as it was after a batch that fails, in whatever part of it", function()
    local list = batches(6, 6, 6)
    local bad = { x = list[1].x, y = neap.tensor({ 0, 1, 2, 0, 1, 9 }, "i64") }
    local nan = { x = list[1].x:clone(), y = list[1].y }
    nan.x[{ 6, 1 }] = 0 / 0
    for _, micro in ipairs { false, 2 } do
      for _, wrong in ipairs { bad, nan } do
        for at = 1, 3 do
          local t <close> = trainer { accumulate = 3, micro = micro or nil }
          local fresh <close> = trainer { accumulate = 3, micro = micro or nil }
          for round = 1, 2 do
            for i, batch in ipairs(list) do
              if i == at then assert.is_false((pcall(t.step, t, wrong)), round) end
              assert.are.equal(fresh:step(batch).updated, t:step(batch).updated)
            end
            assert.are.equal(bits(fresh), bits(t))
          end
        end
      end
    end
  end)

  it("is as it was after Ctrl-C", function()
    local core = require "neap.core"
    local list = batches(6, 6, 6)
    local t <close> = trainer { accumulate = 3, micro = 2 }
    local fresh <close> = trainer { accumulate = 3, micro = 2 }
    for _, batch in ipairs(list) do
      core.interrupt()
      assert.is_false((pcall(t.step, t, batch)))
      core.clear_interrupt()
      t:step(batch)
      fresh:step(batch)
    end
    assert.are.equal(bits(fresh), bits(t))
    assert.are.equal(1, t.position.step)
  end)

  it("is not what m:backward, evaluation or given-back gradients touch", function()
    local list = batches(4, 4)
    local t <close> = trainer { accumulate = 2 }
    local fresh <close> = trainer { accumulate = 2 }
    for _, one in ipairs { t, fresh } do one:step(list[1]) end
    t.model:backward(list[1].x, neap.ones(4, 3))
    t:evaluate(neap.data.tensors { x = list[1].x, y = list[1].y, batch = 2 })
    t.model:workspace():drop_gradients()
    for _, one in ipairs { t, fresh } do one:step(list[2]) end
    assert.are.equal(parameters_of(fresh), parameters_of(t))
  end)

  it("begins anew where micro-batches' accumulators were given back between steps", function()
    local list = batches(6, 6)
    local t <close> = trainer { micro = 2 }
    local fresh <close> = trainer { micro = 2 }
    for _, batch in ipairs(list) do
      t:step(batch)
      fresh:step(batch)
      assert.is_true(t.ws:drop_gradients() > 0)
    end
    assert.are.equal(parameters_of(fresh), parameters_of(t))
  end)

  it("is passed by where a batch is skipped", function()
    local list = batches(4, 4)
    local nan = { x = list[1].x:clone(), y = list[1].y }
    nan.x[{ 1, 1 }] = 0 / 0
    local t <close> = trainer { accumulate = 2, nan = "skip" }
    local fresh <close> = trainer { accumulate = 2, nan = "skip" }
    t:step(list[1])
    local r = t:step(nan)
    assert.is_true(r.skipped and not r.updated)
    assert.are.equal(4, r.accumulated)
    assert.is_true(t:step(list[2]).updated)
    steps(fresh, list)
    assert.are.equal(parameters_of(fresh), parameters_of(t))
  end)
end)

describe("a fit that accumulates", function()
  local function set(n)
    local x, y = support.batch({ n, 6 }, 3, 0.7)
    return neap.data.tensors { x = x, y = y, batch = 4, shuffle = true, seed = 5 }
  end

  it("updates with what there is at the end of an epoch", function()
    local seen = {}
    local t <close> = trainer { accumulate = 3 }
    local h = t:fit(set(30), {
      epochs = 2, verbose = 0, on_step = function(r) seen[#seen + 1] = r.updated and "u" or "-" end,
    })
    assert.are.equal("--u--u-u--u--u-u", table.concat(seen)) -- 8 batches an epoch
    assert.are.equal(6, h[2].step)
    assert.are.equal(0, t.position.held_rows)
  end)

  it("also where the last batch is passed by", function()
    local x, y = support.batch({ 12, 6 }, 3, 0.7)
    local last = x:clone()
    last[{ 12, 1 }] = 0 / 0
    local t <close> = trainer { accumulate = 5, nan = "skip" }
    local h = t:fit(neap.data.tensors { x = last, y = y, batch = 4 }, { verbose = 0 })
    assert.are.equal(1, h[1].step)
    local fresh <close> = trainer { accumulate = 2 }
    steps(fresh, {
      { x = x:narrow(1, 1, 4), y = y:narrow(1, 1, 4) },
      { x = x:narrow(1, 5, 4), y = y:narrow(1, 5, 4) },
    })
    assert.is_true(distance(t, fresh) < 1e-6)
  end)

  it("stops after so many updates", function()
    local t <close> = trainer { accumulate = 2 }
    local n = 0
    t:fit(set(32), { steps = 3, verbose = 0, on_step = function() n = n + 1 end })
    assert.are.equal(6, n)
    assert.are.equal(3, t.position.step)
  end)

  it("goes on with the same bits from a checkpoint in the middle of an accumulation", function()
    for _, micro in ipairs { false, 3 } do
      local path = os.tmpname() .. ".safetensors"
      local function make()
        return trainer {
          accumulate = 3, micro = micro or nil, optimizer = optim.Adam { lr = 0.01 },
        }
      end
      local whole <close> = make()
      whole:fit(set(30), { epochs = 2, verbose = 0 })
      local n = 0
      local first <close> = make()
      first:fit(set(30), { epochs = 2, verbose = 0, checkpoint = path, on_step = function()
        n = n + 1
        if n == 5 then
          assert.are.equal(2, first.position.held_batches)
          assert(first:save(path))
          return false
        end
      end })
      local later <close> = make()
      later:fit(set(30), { epochs = 2, verbose = 0, checkpoint = path, resume = true })
      assert.are.equal(bits(whole), bits(later))
      assert.are.equal(whole.position.step, later.position.step)
      os.remove(path)
    end
  end)
end)

describe("gradients that are held follow their module", function()
  local Pair = nn.module {
    "HeldPair",
    init = function(self)
      self.p = { nn.Linear { 6, 3, bias = false }, nn.Linear { 6, 3, bias = false } }
    end,
    forward = function(self, x) return self.p[1](x):tanh() + self.p[2](x):tanh() end,
  }
  local list = batches(4, 5, 3, 4)

  --- Steps on the first batches, a change, then the rest, or an update. @return the trainer, the
  -- two layers of the start
  local function train(o, change)
    local m = Pair {}
    m:seed(7)
    m:workspace()
    local t = neap.trainer {
      model = m,
      accumulate = o.accumulate or 2,
      micro = o.micro,
      optimizer = o.optimizer or optim.SGD { lr = 0.1 },
    }
    local first, second = m.p[1], m.p[2]
    t:step(list[1])
    if change then change(m, t) end
    for i = 2, o.n or 2 do t:step(list[i]) end
    if o.n == 1 then t:update() end
    return first, second, m
  end
  local function weight(layer) return layer:param("weight").data:clone() end
  local function differs(a, b) return (a - b):abs():max():item() end
  local function swap(m) m.p[1], m.p[2] = m.p[2], m.p[1] end

  it("when modules change places", function()
    for _, o in ipairs {
      {},
      { n = 1 },
      { micro = 2 },
      { micro = 2, n = 1 },
      { accumulate = 3, n = 3, optimizer = optim.SGD { lr = 0.1, momentum = 0.9 } },
    } do
      local a, b = train(o)
      local a2, b2 = train(o, swap)
      assert.is_true(
        differs(weight(a), weight(a2)) < 1e-6 and differs(weight(b), weight(b2)) < 1e-6)
      local a3, b3 = train(o, function(m) -- looked at one by one
        swap(m)
        weight(m.p[2])
      end)
      assert.is_true(
        differs(weight(a), weight(a3)) < 1e-6 and differs(weight(b), weight(b3)) < 1e-6)
    end
  end)

  it("when one is put before them", function()
    local a, b = train { n = 1 }
    local a2, b2, m = train({ n = 1 }, function(m)
      table.insert(m.p, 1, nn.Linear { 6, 3, bias = false })
    end)
    assert.are.equal(a2, m.p[2])
    assert.is_true(differs(weight(a), weight(a2)) == 0) -- p[2] was p[1]
    assert.is_true(differs(weight(b), weight(b2)) ~= 0) -- p[3] is not in the forward any more
  end)

  it("and a new one in their place has no part in what it has not seen", function()
    local fresh
    train({ n = 1 }, function(m)
      fresh = nn.Linear { 6, 3, bias = false }
      m.p[1] = fresh
      fresh.weight.data = neap.zeros(3, 6)
    end)
    assert.are.equal(0, weight(fresh):abs():max():item())
  end)

  it("but an accumulation that is over is not held against one that was away", function()
    local a = train { n = 4 }
    local function check(leave, come)
      local away
      local b = train({ n = 1 }, function(m, t)
        away = leave(m)
        t:step(list[2]) -- the update
        t:step(list[3])
        come(m, away)
        local before = weight(away)
        t:step(list[4])
        away = { before, weight(away) }
      end)
      return b, away
    end
    -- Expected: half of what the fourth batch alone gives, at the numbers of the third.
    local function expected(m, layer, rate)
      local other = Pair {}
      other:load_state_dict(m:state_dict())
      local t = neap.trainer { model = other, optimizer = optim.SGD { lr = rate } }
      t:step(list[4])
      return other.p[layer].weight.data
    end
    local want, got
    local rate = 0.1 * 4 / 7 -- rows of the fourth batch among those of the accumulation
    check(function(m)
      m:freeze "p.1*"
      return m.p[1]
    end, function(m, away)
      m:freeze("p.1*", false)
      want, got = expected(m, 1, rate), away
    end)
    assert.is_true(differs(want, weight(got)) < 1e-6)
    check(function(m)
      local away = m.p[1]
      m.p[1] = nn.Linear { 6, 3, bias = false }
      return away
    end, function(m, away)
      m.p[1] = away
      want, got = expected(m, 1, rate), away
    end)
    assert.is_true(differs(want, weight(got)) < 1e-6)
    assert.is_truthy(a)
  end)
end)

describe("labels to be ignored", function()
  local x = support.batch({ 12, 6 }, 3, 0.3)
  local y = neap.tensor({ -1, -1, -1, -1, 0, 2, -1, -1, 1, 0, 2, -1 }, "i64")
  local function rows(from, n)
    return { x = x:narrow(1, from, n):clone(), y = y:narrow(1, from, n):clone() }
  end
  local function make(o)
    o = o or {}
    o.loss, o.metrics = nn.CrossEntropyLoss { ignore_index = -1 }, {
      "accuracy", own = function(out) return out:sum { axes = { 2 } }:mean() end,
    }
    return trainer(o)
  end
  local function near(a, b) assert.is_true(math.abs(a - b) < 1e-5, a .. " is not " .. b) end

  it("have no weight in what evaluate measures, whatever the batches", function()
    local t <close> = make()
    -- Of the labels that count the first two are right.
    local y, best = y:totable(), t:predict(x):arg_max { axis = 2 }:totable()
    for i, label in ipairs(y) do
      y[i] = label < 0 and label or i < 7 and best[i] or (best[i] + 1) % 3
    end
    y = neap.tensor(y, "i64")
    local whole = t:evaluate(neap.data.tensors { x = x, y = y, batch = 12 })
    assert.are.equal(12, whole.n)
    near(0.4, whole.accuracy)
    for _, batch in ipairs { 1, 3, 4, 5, 8 } do
      local r = t:evaluate(neap.data.tensors { x = x, y = y, batch = batch })
      near(whole.loss, r.loss)
      near(whole.accuracy, r.accuracy)
      near(whole.own, r.own)
    end
    local none = t:evaluate(neap.data.tensors {
      x = x:narrow(1, 1, 4):clone(), y = y:narrow(1, 1, 4):clone(), batch = 2,
    })
    assert.is_true(none.loss ~= none.loss) -- the mean of nothing
  end)

  it("have none in the losses of an epoch, through a checkpoint too", function()
    local function set(batch) return neap.data.tensors { x = x, y = y, batch = batch } end
    local function still() return make { optimizer = optim.SGD { lr = 0 } } end
    local t <close> = still()
    local whole = t:evaluate(set(12))
    for _, batch in ipairs { 12, 8, 5 } do
      local o <close> = still()
      local h = o:fit(set(batch), { verbose = 0 })
      near(whole.loss, h[1].loss)
      near(whole.accuracy, h[1].accuracy)
    end
    local path = os.tmpname() .. ".safetensors"
    local first <close> = still()
    first:fit(set(5), { verbose = 0, checkpoint = path, on_step = function() return false end })
    local later <close> = still()
    near(whole.loss, later:fit(set(5), { verbose = 0, checkpoint = path, resume = true })[1].loss)
    os.remove(path)
  end)

  it("alone in a micro-batch, or in a batch among others, are no reason to stop", function()
    local whole <close> = make()
    local one = whole:step(rows(1, 12))
    for _, micro in ipairs { 1, 2, 4, 5 } do
      local t <close> = make { micro = micro }
      local r = t:step(rows(1, 12))
      near(one.loss, r.loss)
      assert.is_true(distance(t, whole) < 1e-6)
      local all = support.raises("the loss is", t.step, t, rows(1, 4)) -- nothing counts
      assert.are.equal("numeric", all.code)
    end
    for _, cut in ipairs { { 4, 2, 6 }, { 6, 2, 4 }, { 4, 7, 1 }, { 2, 2, 8 } } do
      for _, micro in ipairs { false, 2 } do
        local t <close> = make { accumulate = 3, micro = micro or nil }
        local at, updated = 1, {}
        for i, n in ipairs(cut) do
          updated[i] = t:step(rows(at, n)).updated
          at = at + n
        end
        assert.are.same({ false, false, true }, updated)
        assert.is_true(distance(t, whole) < 1e-6, distance(t, whole))
      end
    end
    local t <close> = make { accumulate = 2 }
    t:step(rows(1, 4))
    assert.is_nil(t:update())
    -- Nor is there an update of nothing.
    t:step(rows(1, 4))
    assert.are.equal("numeric", support.raises("the loss is", t.step, t, rows(1, 4)).code)
  end)

  it("are those of -100 where the loss does not say another, in labels of positions too", function()
    local marked = neap.tensor({ { 0, -100, -100 }, { -100, 1, 2 }, { 2, 2, 0 }, { 1, -100, 0 } },
      "i64")
    local marked_x = support.batch({ 4, 3, 6 }, 3, 0.4)
    local alone_x, alone = support.batch({ 4, 6 }, 3, 0.4), neap.tensor({ -100, 2, -100, 1 }, "i64")
    for _, batch in ipairs {
      { x = alone_x, y = alone }, { x = marked_x, y = marked }, { x = alone_x, y = alone:to "i32" },
    } do
      local function plain(o)
        o.loss = nn.CrossEntropyLoss()
        return trainer(o)
      end
      local whole <close> = plain {}
      local loss = whole:evaluate(neap.data.tensors { x = batch.x, y = batch.y, batch = 4 }).loss
      for _, size in ipairs { 1, 2, 3 } do
        near(loss,
          whole:evaluate(neap.data.tensors { x = batch.x, y = batch.y, batch = size }).loss)
      end
      near(loss, whole:step(batch).loss)
      for _, micro in ipairs { 1, 2, 3 } do
        local t <close> = plain { micro = micro }
        near(loss, t:step(batch).loss)
        assert.is_true(distance(t, whole) < 1e-6)
      end
      local t <close> = plain { accumulate = 2 }
      for _, cut in ipairs { { 1, 3 }, { 4, 1 } } do
        t:step {
          x = batch.x:narrow(1, cut[1], cut[2]):clone(),
          y = batch.y:narrow(1, cut[1], cut[2]):clone(),
        }
      end
      assert.is_true(distance(t, whole) < 1e-6)
    end
  end)

  it("are none of bytes that hold no such number", function()
    local batch = { x = support.batch({ 4, 6 }, 3, 0.4), y = neap.tensor({ 0, 2, 2, 1 }, "u8") }
    local whole <close> = trainer {}
    local t <close> = trainer { micro = 3 }
    near(whole:step(batch).loss, t:step(batch).loss)
    assert.is_true(distance(t, whole) < 1e-6)
  end)
end)

describe("what micro-batches write", function()
  local function make(o)
    o.model = nn.Sequential {
      seed = 2, nn.Linear { 4, 8 }, nn.BatchNorm1d { 8 }, nn.ReLU {}, nn.Linear { 8, 3 },
    }
    o.optimizer = optim.Adam { lr = 0.05 }
    return trainer(o)
  end
  local x, y = support.batch({ 6, 4 }, 3, 0.3)
  local wrong = y:clone()
  wrong[6] = 7
  local far = x:clone()
  far[{ 6, 1 }] = 0 / 0

  it("is put back with a step that is refused or dropped, and the next one is as \z
      if it had not been", function()
    for _, memory in ipairs { {}, { executor = "dag" }, { executor = "dynamic" } } do
      for _, more in ipairs {
        { micro = 2 }, { micro = 4 }, { accumulate = 2 }, { accumulate = 2, micro = 2 },
      } do
        for _, nan in ipairs { "stop", "skip", "off" } do
          local function own()
            return make {
              micro = more.micro, accumulate = more.accumulate, memory = memory, nan = nan,
            }
          end
          local t <close> = own()
          local other <close> = own()
          t:step { x = x, y = y }
          other:step { x = x, y = y }
          local was = bits(t)
          raises("label 7", t.step, t, { x = x, y = wrong })
          assert.are.equal(was, bits(t))
          if nan == "stop" then raises("the loss is", t.step, t, { x = far, y = y }) end
          if nan == "skip" then assert.is_true(t:step({ x = far, y = y }).skipped) end
          assert.are.equal(was, bits(t))
          t:step { x = x, y = y }
          other:step { x = x, y = y }
          assert.are.equal(bits(other), bits(t))
        end
      end
    end
  end)

  it("is put back where a subnet of the loss writes it", function()
    local m = nn.Linear { 2, 2 }
    local t <close> = neap.trainer {
      model = m,
      micro = 2,
      seed = 1,
      reduces = "mean",
      optimizer = optim.SGD { lr = 0 },
      loss = function(out, target)
        local net = out.net
        net:declare("seen", "state", { 1 }, "f32", { op = "Constant", value = 0 })
        local one = net:Reshape(net:Sum(out), nil, { shape = { 1 } })
        net:While {
          init = { net:const(0) },
          cond = function(_, i) return i:lt(2) end,
          body = function(b, i)
            b:op("Accumulate", { "seen", one }, "seen")
            return i + 1
          end,
        }
        return net:SoftmaxCrossEntropy { out, target }
      end,
    }
    local inputs = neap.ones(4, 2)
    t:step { x = inputs, y = neap.tensor({ 0, 1, 0, 1 }, "i64") }
    local ws = m:workspace()
    local was = ws:fetch("seen"):item()
    raises("label 5", t.step, t, { x = inputs, y = neap.tensor({ 0, 1, 0, 5 }, "i64") })
    assert.are.equal(was, ws:fetch("seen"):item())
  end)
end)
