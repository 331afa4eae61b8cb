--- The largest batch whose plan fits: planned, never allocated.
--
-- Bytes grow with the batch nearly in a straight line, so two plans say where the limit lies; the plans there say exactly.
-- INVARIANT: what is returned fits, and one more does not (or is more than `max`): both have been planned.
-- @module neap.fit_batch
local core = require "neap.core"
local options = require "neap.options"
local none = options.none

local fit_batch = {}

-- ---- the search -----------------------------------------------------------------------------------------------------

--- Where the line through two plans' figures meets the limit; nil when it does not rise.
-- @param a table {n, used}: used is the share of the limit, 1 at the limit
local function cross(a, b)
  if a == nil or b == nil or a.n == b.n then return nil end
  local slope = (b.used - a.used) / (b.n - a.n)
  if slope <= 0 then return nil end
  return math.floor(a.n + (1 - a.used) / slope)
end

--- The next batch to plan: where the line crosses, or, when guesses have been many, halfway.
local function next_guess(s)
  local guess = s.n_plan <= 12 and cross(s.before, s.last) or nil
  if guess == nil then guess = s.high and (s.low + s.high) // 2 or 2 * s.low end
  if s.high then return math.max(s.low + 1, math.min(guess, s.high - 1)) end
  return math.max(s.low + 1, math.min(guess, 16 * s.low, s.max))
end

--- The largest n up to `max` for which try(n) gives a plan.
-- @param try f(n) -> plan and the share of the limit it uses (or nil), or nil and the error
-- @return n, plan
local function search(try, max)
  local plan, used = try(1)
  if plan == nil then error(used, 0) end
  local s = { low = 1, high = nil, max = max, best = plan, n_plan = 1, last = used and { n = 1, used = used } }
  while s.low < max and s.high ~= s.low + 1 do
    local n = next_guess(s)
    plan, used = try(n)
    s.n_plan = s.n_plan + 1
    if plan then
      s.low, s.best = n, plan
      s.before, s.last = s.last, used and { n = n, used = used }
    else
      s.high = n
      if n == s.low + 1 then break end
    end
  end
  return s.low, s.best, s.n_plan
end

--- Calls f; a refusal for want of memory is nil and the error.
local function attempt(f, ...)
  local ok, plan = pcall(f, ...)
  if ok then return plan end
  if type(plan) ~= "table" or plan.code ~= "memory" then error(plan, 0) end
  return nil, plan
end

--- Bytes of an option, nil where it is a share of a plan.
local function bytes_of(x)
  if type(x) == "string" then return not x:find "%%" and core.parse_bytes(x) or nil end
  return x
end

--- The larger share of the two limits that a plan uses.
local function share(plan, o)
  local budget, total = bytes_of(o.budget), bytes_of(o.total)
  if (o.budget and not budget) or (o.total and not total) then return nil end
  return math.max(budget and plan.arena_bytes / budget or 0, total and plan.total_bytes / total or 0)
end

-- ---- models and nets ---------------------------------------------------------------------------------------------------

--- f(n) -> the plan for batch n.
local function planner(subject, o)
  if type(subject) == "userdata" then -- a net: its inputs' first dimension is the batch
    local range = require "neap.range"
    return function(n)
      local given = { budget = o.budget, total = o.total }
      for name, shape in pairs(range.inputs(subject, n)) do given[name] = shape end
      return subject:plan(given)
    end
  end
  return function(n)
    return subject:plan { batch = n, train = o.train, loss = o.loss, optimizer = o.optimizer, budget = o.budget, total = o.total }
  end
end

--- neap.fit_batch(model | net, {total = | budget =, train =, max =, loss =, optimizer =}) -> n, plan. The largest batch that
-- fits: batch n + 1 does not. Raises `memory` when not even one example fits.
-- @usage local n, plan = neap.fit_batch(model, { total = "1GiB", train = true })
function fit_batch.fit(subject, given)
  local o = options.read("neap.fit_batch", { total = none, budget = none, train = false, max = 65536, loss = none, optimizer = none }, given, 2)
  if not (o.total or o.budget) then error("neap.fit_batch expects { total = bytes } or { budget = bytes }", 2) end
  if math.type(o.max) ~= "integer" or o.max < 1 then error("neap.fit_batch: max expects an integer of at least 1, got " .. tostring(o.max), 2) end
  local plan_for = planner(subject, o)
  return search(function(n)
    local plan, err = attempt(plan_for, n)
    if plan == nil then return nil, err end
    return plan, share(plan, o)
  end, o.max)
end

--- Rows of the largest micro-batch with which a trainer's step of `rows` fits its memory: the programs of a micro-batch and of
-- the update share one arena; their parameters and accumulators are the same.
-- @param trainer trainer with memory.budget or memory.total
-- @param net_of f(trainer, "micro", n) -> net, blobs, accumulate
function fit_batch.micro(trainer, rows, net_of)
  local memory, total = {}, bytes_of(trainer.memory.total)
  for key, value in pairs(trainer.memory) do memory[key] = value end
  return (search(function(n)
    local net, _, update_net = net_of(trainer, "micro", n)
    local update, err = attempt(update_net.plan, update_net, trainer.memory)
    if update == nil then return nil, err end
    -- The optimizer's state and the update's few inputs are held beside the micro-batch's program.
    local beside = update.total_bytes - update.arena_bytes - update.regions.parameters - update.regions.gradients
    if total then
      local left = total - beside
      if left <= 0 then return nil, core.error { code = "memory", message = "parameters and optimizer state alone exceed the total" } end
      memory.total = left
    end
    local plan
    plan, err = attempt(net.plan, net, memory)
    if plan == nil then return nil, err end
    return plan, share(plan, memory)
  end, rows))
end

return setmetatable(fit_batch, { __call = function(_, ...) return fit_batch.fit(...) end })
