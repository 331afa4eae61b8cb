--- The doctor: what would make a plan smaller, each piece of advice found by planning again.
-- @module neap.plan.doctor
local again = require "neap.plan.again"
local core = require "neap.core"
local options = require "neap.inner.options"
local report = require "neap.report"
local whatif = require "neap.plan.whatif"

local Plan = core.Plan

local bytes = core.bytes_text

local most_advice = 5

--- What is not worth a change: less than this share of all bytes.
local least_share = 0.01

-- What may be tried, in the order in which equals are told: `when(plan, given)` says whether it can
-- help, `change` is the change, or makes it; `costs` says what has to be paid, "" for nothing.
local tries = {
  { advice = "plan addresses", change = { policy = "offset" }, costs = "",
    when = function(plan, given)
      return plan.policy ~= "offset" and given.executor ~= "dynamic"
    end },
  { advice = "work in place", change = { in_place = true }, costs = "",
    when = function(_, given) return given.in_place == false end },
  { advice = "drop ops nobody needs", change = { rewrite = true }, costs = "",
    when = function(_, given) return given.rewrite == false end },
  { advice = "keep no blobs", costs = "fetch no longer finds them",
    when = function(_, given) return given.keep_all or given.keep ~= nil end,
    change = function(_, given)
      return { keep = given.keep and {}, keep_all = given.keep_all and false }
    end },
  { advice = "run op by op", change = { executor = "simple" },
    costs = "nothing runs side by side",
    when = function(plan) return plan.executor == "dag" end },
  { advice = "choose kernels freely", change = { engine = "free" },
    costs = "other last bits",
    when = function(_, given) return (given.engine or "free") ~= "free" end },
  { advice = "fuse", change = { fuse = true }, costs = "other last bits",
    when = function(plan, given) return not plan.train and given.fuse == false end },
  { advice = "pool a few images at a time", change = { fuse = "pool" }, costs = "time",
    when = function(plan, given) return not plan.train and given.fuse ~= "pool" end },
  { advice = "recompute in the backward",
    when = function(plan, given) return plan.train and plan.policy == "offset"
      and given.recompute ~= false and not given.budget and not given.total end,
    change = function(plan)
      local least = whatif.least_budget(plan)
      return least and least < plan.arena_bytes and { budget = least } or nil
    end },
  { advice = "use plain layouts", change = { layouts = "plain" },
    costs = "time, other last bits",
    when = function(_, given) return (given.layouts or "free") == "free" end },
  { advice = "halve the batch",
    when = function(plan) return plan.batch > 1 end,
    change = function(plan) return { batch = plan.batch // 2 } end,
    costs = "twice the steps" },
}

--- A change as it is written in Lua.
local function lua_text(change)
  local parts = {}
  for _, key in ipairs(options.keys(change)) do
    local value = change[key]
    parts[#parts + 1] = ("%s = %s"):format(key, type(value) == "table" and "{}"
      or options.shown(value))
  end
  return table.concat(parts, ", ")
end

--- What a try makes of the plan: a row, or nil where it saves nothing worth it or can't be had.
-- A change may depend on the plan (a budget that it can meet), and be nil where there is none.
local function attempt(plan, try, given)
  local change = try.change
  if type(change) == "function" then change = change(plan, given) end
  if change == nil then return nil end
  local ok, after = pcall(again.plan, "plan:doctor", plan, change)
  -- What a plan refuses is no advice. Lack of memory and Ctrl-C are about the search itself, and
  -- end it.
  if not ok then
    local code = type(after) == "table" and rawget(after, "code")
    if code == "memory" or code == "interrupted" then error(after, 0) end
    return nil
  end
  local saved = plan.total_bytes - after.total_bytes
  if saved < least_share * plan.total_bytes then return nil end

  -- Only recomputation has a price that is known when it is planned.
  local costs = try.costs
  if costs == nil then
    costs = after.n_recomputed > 0
      and ("%d ops run again, %.0f %% more work"):format(after.n_recomputed,
        100 * after.recomputed_work)
      or ""
  end
  return {
    advice = try.advice, option = lua_text(change), set = change, saved_bytes = saved,
    saves = ("%s (%.0f %%)"):format(bytes(saved), 100 * saved / plan.total_bytes),
    costs = costs == "" and "nothing" or costs, is_free = costs == "",
    arena_bytes = after.arena_bytes, total_bytes = after.total_bytes, plan = after,
  }
end

--- plan:doctor() -> Report of at most five pieces of advice that make the plan smaller, each
-- planned and with the option that does it, as one writes it (row.option) and for m:plan and so on
-- (row.set); row.total_bytes is what then holds. What costs nothing comes first, then what saves
-- most.
-- @usage print(model:plan { batch = 32, train = true }:doctor())
function Plan:doctor()
  -- Each try alone, against the plan as it is: advice may be combined, and then saves less than the
  -- sum.
  local plan, given, rows = self, again.options(self), {}
  for i, try in ipairs(tries) do
    local row = try.when(plan, given) and attempt(plan, try, given)
    if row then
      row.number = i
      rows[#rows + 1] = row
    end
  end

  -- What costs nothing first, then the largest; `number` keeps the order of equals the same on
  -- every run.
  table.sort(rows, function(a, b)
    if a.is_free ~= b.is_free then return a.is_free end
    if a.saved_bytes ~= b.saved_bytes then return a.saved_bytes > b.saved_bytes end
    return a.number < b.number
  end)
  for i = #rows, most_advice + 1, -1 do rows[i] = nil end
  return report.new {
    rows = rows,
    columns = { "advice", "option", "saves", "costs" },
    title = #rows > 0 and tostring(plan) or tostring(plan) .. "\nnothing is known that would help",
    totals = { n = #rows },
    order = {},
  }
end

return Plan
