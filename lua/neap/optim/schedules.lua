--- Schedules: functions of (step from 1, base rate, records of the epochs so far) that give the
-- rate of the step. What they need to know they are made with, or find in the records, which
-- checkpoints have too: so that a run that goes on has the rates of one that was never stopped.
-- @module neap.optim.schedules
local fail = require("neap.core").fail
local record = require "neap.inner.record"
local schedules = {}

--- Adds a schedule: optim.NAME { .. } by its record, and its rate as rate(o, step, lr, records).
-- @param check f(o): raises for options that do not go together; nil where all do
local function schedule(name, spec, rate, check)
  local own = record.declare("optim." .. name, spec)
  schedules[name] = function(given)
    local o = own:read(given)
    if check then check(o) end
    return record.note(function(step, lr, records) return rate(o, step, lr, records or {}) end, o)
  end
end

local every = { "every", "integer", min = 1, required = true,
  doc = "steps from one change to the next" }

--- Raises unless `schedules` is a list of some.
local function check_list(who, o)
  for i, f in ipairs(o.schedules) do
    local meta = getmetatable(f)
    if type(f) ~= "function" and not (meta and meta.__call) then
      fail(("%s: schedule %d is a %s, expected a schedule or a function"):format(who, i, type(f)))
    end
  end
  if #o.schedules == 0 then fail(who .. ": a list of no schedules") end
end

--- From a to b, as t goes from 0 to 1, along half a cosine.
local function half_cosine(a, b, t) return b + (a - b) * 0.5 * (1 + math.cos(math.pi * t)) end

schedule("step", {
  doc = "The base rate, multiplied by `factor` again and again.",
  positions = { "every" },
  every,
  { "factor", "number", 0.1, min = 0, doc = "what the rate is multiplied by" },
  example = "optim.step { 1000, factor = 0.5 }" }, function(o, step, lr)
    return lr * o.factor ^ ((step - 1) // o.every)
  end)

schedule("multistep", {
  doc = "The base rate, multiplied by `factor` at each of some steps.",
  positions = { "at" },
  { "at", "shape", required = true, says = "steps such as { 3000, 6000 }",
    doc = "the last steps of the old rates" },
  { "factor", "number", 0.1, min = 0, doc = "what the rate is multiplied by" },
  example = "optim.multistep { { 3000, 6000 }, factor = 0.5 }" }, function(o, step, lr)
    for _, at in ipairs(o.at) do
      if step > at then lr = lr * o.factor end
    end
    return lr
  end)

schedule("exponential", {
  doc = "The base rate, multiplied by `factor` after each step, or after so many.",
  positions = { "factor" },
  { "factor", "number", required = true, above = 0, doc = "what the rate is multiplied by" },
  { "every", "integer", 1, min = 1, doc = "steps for one factor, which is taken in small parts" },
  example = "optim.exponential { 0.95, every = 100 }" }, function(o, step, lr)
    return lr * o.factor ^ ((step - 1) / o.every)
  end)

schedule("linear", {
  doc = "A straight line from one share of the base rate to another, where it stays.",
  positions = { "steps" },
  { "steps", "integer", min = 1, required = true, doc = "steps of the line" },
  { "from", "number", 1 / 3, min = 0, doc = "share of the base rate at the first step" },
  { "to", "number", 1, min = 0, doc = "share at the end" },
  example = "optim.linear { 100, from = 0.1 }" }, function(o, step, lr)
    return lr * (o.from + (o.to - o.from) * math.min(1, (step - 1) / o.steps))
  end)

schedule("polynomial", {
  doc = "From the base rate down to `least` as a power of what is left of the steps.",
  positions = { "steps" },
  { "steps", "integer", min = 1, required = true, doc = "steps until `least`" },
  { "power", "number", 1, above = 0, doc = "1: a straight line" },
  { "least", "number", 0, min = 0, doc = "rate at the end" },
  example = "optim.polynomial { 1000, power = 2 }" }, function(o, step, lr)
    local left = 1 - math.min(1, (step - 1) / o.steps)
    return o.least + (lr - o.least) * left ^ o.power
  end)

schedule("inverse", {
  doc = "The base rate over a power of 1 + gamma times the steps done: Caffe's \"inv\".",
  positions = { "gamma" },
  { "gamma", "number", required = true, min = 0, doc = "how fast the rate falls" },
  { "power", "number", 1, above = 0, doc = "of the sum that divides" },
  example = "optim.inverse { 1e-4, power = 0.75 }" }, function(o, step, lr)
    return lr * (1 + o.gamma * (step - 1)) ^ -o.power
  end)

schedule("sigmoid", {
  doc = "The base rate times a sigmoid of the steps: half of it after so many.",
  positions = { "middle" },
  { "middle", "integer", min = 0, required = true, doc = "steps until half the base rate" },
  { "gamma", "number", required = true, doc = "steepness; below 0 the rate falls" },
  example = "optim.sigmoid { 5000, gamma = -0.01 }" }, function(o, step, lr)
    return lr / (1 + math.exp(-o.gamma * (step - 1 - o.middle)))
  end)

schedule("cosine", {
  doc = "Half a cosine from the base rate down to `least`, after a linear warm-up.",
  positions = { "steps" },
  { "steps", "integer", min = 1, required = true, doc = "steps until `least`, warm-up included" },
  { "warmup", "integer", 0, min = 0, doc = "steps from 0 to the base rate" },
  { "least", "number", 0, min = 0, doc = "rate at the end" },
  example = "optim.cosine { 1000, warmup = 100 }" }, function(o, step, lr)
    if step <= o.warmup then return lr * step / o.warmup end
    local t = math.min(1, (step - o.warmup) / math.max(1, o.steps - o.warmup))
    return half_cosine(lr, o.least, t)
  end, function(o)
    if o.warmup > o.steps then
      fail(("optim.cosine: warmup = %d is longer than the whole, steps = %d, which the warm-up is \z
        a part of"):format(o.warmup, o.steps))
    end
  end)

schedule("cosine_restarts", {
  doc = [[Half a cosine from the base rate down to `least`, again and again, each `longer` times as
    long as the one before (Loshchilov and Hutter, ICLR 2017).]],
  positions = { "steps" },
  { "steps", "integer", min = 1, required = true, doc = "steps of the first one" },
  { "longer", "integer", 1, min = 1, doc = "how many times as long the next one is" },
  { "least", "number", 0, min = 0, doc = "rate at the end of each" },
  example = "optim.cosine_restarts { 100, longer = 2 }" }, function(o, step, lr)
    -- Where the step stands in its own round, whose length grows by `longer`.
    local at, length = step - 1, o.steps
    if o.longer == 1 then
      at = at % length
    else
      while at >= length do at, length = at - length, length * o.longer end
    end
    return half_cosine(lr, o.least, at / length)
  end)

schedule("one_cycle", {
  doc = [[Up to the base rate and down to nearly nothing, both along half a cosine (Smith and Topin,
    2018).]],
  positions = { "steps" },
  { "steps", "integer", min = 2, required = true, doc = "steps of the whole cycle" },
  { "rise", "number", 0.3, above = 0, below = 1, doc = "share of the steps that go up" },
  { "start", "number", 25, min = 1, doc = "how many times smaller the first rate is" },
  { "final", "number", 1e4, min = 1, doc = "how many times smaller than the first the last is" },
  example = "optim.one_cycle { 1000, rise = 0.2 }" }, function(o, step, lr)
    -- Up for `rise` of the steps, down for the rest; behind the last one the rate stays.
    local first = lr / o.start
    local top = o.rise * o.steps - 1
    local at = math.min(step, o.steps) - 1
    if at <= top then return half_cosine(first, lr, at / top) end
    return half_cosine(lr, first / o.final, (at - top) / (o.steps - 1 - top))
  end)

schedule("cyclic", {
  doc = [[Up from the base rate and back in straight lines, again and again (Smith, WACV 2017);
    `shape` says what becomes of the height: "triangular" stays, "triangular2" is half as high each
    time, "exponential" shrinks by `factor` each step.]],
  positions = { "most", "up" },
  { "most", "number", min = 0, required = true, doc = "rate at the top of the first cycle" },
  { "up", "integer", 2000, min = 1, doc = "steps up" },
  { "down", "integer", min = 1, unset = "as many as up", doc = "steps down" },
  { "shape", "choice", "triangular", choices = { "triangular", "triangular2", "exponential" },
    doc = "what becomes of the height" },
  { "factor", "number", 1, above = 0, doc = "of \"exponential\": what a step multiplies it by" },
  example = "optim.cyclic { 0.1, up = 500, shape = \"triangular2\" }" }, function(o, step, lr)
    -- The height within a cycle goes from 0 to 1 and back; the shape shrinks it from cycle to
    -- cycle.
    local at, length = step - 1, o.up + (o.down or o.up)
    local cycle, within = at // length, at % length
    local height = within <= o.up and within / o.up or (length - within) / (length - o.up)
    local shrunk = o.shape == "triangular2" and 0.5 ^ cycle
      or o.shape == "exponential" and o.factor ^ at or 1
    return lr + (o.most - lr) * height * shrunk
  end, function(o)
    if o.factor ~= 1 and o.shape ~= "exponential" then
      fail(("optim.cyclic: factor = %g is of shape = \"exponential\"; the shape is \"%s\""):format(
        o.factor, o.shape))
    end
  end)

schedule("chained", {
  doc = [[Several schedules at once: each takes the rate that the one before it gives for its
    base.]],
  positions = { "schedules" },
  { "schedules", "table", required = true, says = "schedules, { optim.warmup { 10 }, .. }",
    doc = "the schedules, in their order" },
  example = "optim.chained { { optim.warmup { 100 }, optim.exponential { 0.999 } } }" },
  function(o, step, lr, records)
    for _, f in ipairs(o.schedules) do lr = f(step, lr, records) end
    return lr
  end, function(o) check_list("optim.chained", o) end)

schedule("warmup", {
  doc = "Linear from 0 to the base rate; then constant, or as another schedule says.",
  positions = { "steps" },
  { "steps", "integer", min = 1, required = true, doc = "steps of the warm-up" },
  { "next", "function", unset = "the base rate",
    doc = "schedule that follows; its steps count from the end of the warm-up" },
  example = "optim.warmup { 100, next = optim.step { 1000 } }" }, function(o, step, lr, records)
    if step <= o.steps then return lr * step / o.steps end
    return o.next and o.next(step - o.steps, lr, records) or lr
  end)

schedule("sequence", {
  doc = "One schedule after the other; the steps of each count from where it begins.",
  positions = { "schedules" },
  { "schedules", "table", required = true, says = "schedules, { optim.linear { 10 }, .. }",
    doc = "the schedules, in their order" },
  { "at", "shape", required = true, says = "steps such as { 100, 500 }",
    doc = "the last steps of each but the last" },
  example = "optim.sequence { { optim.linear { 100 }, optim.step { 1000 } }, at = { 100 } }",
}, function(o, step, lr, records)
    -- The first schedule whose last step is not past; it counts from where the one before ended.
    local before = 0
    for k, f in ipairs(o.schedules) do
      local last = o.at[k]
      if last == nil or step <= last then return f(step - before, lr, records) end
      before = last
    end
    return lr
  end, function(o)
    check_list("optim.sequence", o)
    if #o.at ~= #o.schedules - 1 then
      fail(("optim.sequence: at has %d steps, expected %d for %d schedules"):format(#o.at,
        #o.schedules - 1, #o.schedules))
    end
    for k = 2, #o.at do
      if o.at[k] <= o.at[k - 1] then
        fail(("optim.sequence: at[%d] = %d is not behind at[%d] = %d: that schedule would have no \z
          step"):format(k, o.at[k], k - 1, o.at[k - 1]))
      end
    end
  end)

--- What a plateau's schedule looks at of an epoch, nil where the epoch has nothing of it.
local function judged(o, epoch)
  local name = o.metric or "loss"
  local value = epoch.valid and epoch.valid[name]
  if value == nil then value = epoch[name] end
  return value
end

local function is_better(o, value, best)
  if o.mode == "max" then return value > best * (1 + (best < 0 and -1 or 1) * o.threshold) end
  return value < best * (1 - (best < 0 and -1 or 1) * o.threshold)
end

schedule("plateau", {
  doc = [[The base rate, multiplied by `factor` each time when a metric has not got better for more
    than `patience` epochs, as torch's ReduceLROnPlateau. It is that of the validation where t:fit
    has one, else that of training.]],
  { "metric", "string", unset = '"loss"', doc = "what is looked at" },
  { "mode", "choice", "min", choices = { "min", "max" }, doc = "which way is better" },
  { "factor", "number", 0.1, above = 0, below = 1, doc = "what the rate is multiplied by" },
  { "patience", "integer", 10, min = 0, doc = "epochs without progress that are let pass" },
  { "threshold", "number", 1e-4, min = 0, doc = "progress, in parts of the best, that counts" },
  { "cooldown", "integer", 0, min = 0, doc = "epochs after a change that are not counted" },
  { "least", "number", 0, min = 0, doc = "rate that it doesn't go below" },
  example = "optim.plateau { factor = 0.5, patience = 3 }" }, function(o, _, lr, records)
    -- Read off all epochs anew: there is no state that a run which goes on could lack.
    local best, bad, cooling, rate = nil, 0, 0, lr
    for _, epoch in ipairs(records) do
      local value = judged(o, epoch)
      if value ~= nil then
        if best == nil and value == value or best and is_better(o, value, best) then
          best, bad = value, 0
        else
          bad = bad + 1
        end
        -- While cooling, epochs without progress do not count.
        if cooling > 0 then cooling, bad = cooling - 1, 0 end
        if bad > o.patience then
          rate, bad, cooling = math.max(rate * o.factor, o.least), 0, o.cooldown
        end
      end
    end
    return rate
  end)

return schedules
