--- The largest batch whose plan fits: planned, never allocated.
-- @module neap.fit_batch
local options = require "neap.options"

--- The plan for batch n, or nil and the error when it does not fit.
local function planner(subject, o)
  local memory = { budget = o.budget, total = o.total }
  if type(subject) == "userdata" then -- a net: its inputs' first dimension is the batch
    local inputs = subject:inputs()
    local batch
    for _, input in ipairs(inputs) do batch = batch or input.shape[1] end
    return function(n)
      local given = { budget = memory.budget, total = memory.total }
      for _, input in ipairs(inputs) do
        if input.shape[1] == batch then given[input.name] = { n, table.unpack(input.shape, 2) } end
      end
      return subject:plan(given)
    end
  end
  return function(n)
    return subject:plan { batch = n, train = o.train, loss = o.loss, optimizer = o.optimizer, budget = memory.budget, total = memory.total }
  end
end

--- neap.fit_batch(model | net, {total = | budget =, train =, max =}) -> n, plan. Doubles until it no longer fits, then halves the
-- gap. Raises `memory` when not even one example fits.
-- @usage local n, plan = neap.fit_batch(model, { total = "1GiB", train = true })
return function(subject, given)
  local o = options.read("neap.fit_batch", { total = options.none, budget = options.none, train = false, max = 65536, loss = options.none,
    optimizer = options.none }, given, 2)
  if not (o.total or o.budget) then error("neap.fit_batch expects { total = bytes } or { budget = bytes }", 2) end
  local plan_for = planner(subject, o)
  local function try(n)
    local ok, plan = pcall(plan_for, n)
    if ok then return plan end
    if type(plan) ~= "table" or plan.code ~= "memory" then error(plan, 0) end
    return nil, plan
  end
  local best, why = try(1)
  if best == nil then error(why, 0) end
  local low, high = 1, nil -- low fits; high, when known, does not
  while high == nil and low < o.max do
    local n = math.min(2 * low, o.max)
    local plan = try(n)
    if plan then low, best = n, plan else high = n end
  end
  while high and high - low > 1 do
    local n = (low + high) // 2
    local plan = try(n)
    if plan then low, best = n, plan else high = n end
  end
  return low, best
end
