--- What a plan would be with something changed: plan:whatif, plan:curve, by planning again.
-- @module neap.plan.whatif
local again = require "neap.plan.again"
local core = require "neap.core"
local memory_options = require "neap.memory.options"
local options = require "neap.inner.options"
local record = require "neap.inner.record"
local report = require "neap.report"
local times = require "neap.plan.times"
local fail = core.fail

local Plan, whatif = core.Plan, {}

local bytes = core.bytes_text

-- ---- one change ---------------------------------------------------------------------------------

local change_options = record.declare("plan:whatif", {
  doc = [[The plan made again with a change, and what that makes of its bytes and, from measured
    op times, of its time. Takes the memory options, too (help "options"): what is given stands in
    the place of what the plan was made with; names in keep come to those kept already. Nothing is
    run, and nothing stored.]],
  { "batch", "integer", min = 1, unset = "as it is", doc = "rows of a batch" },
  { "without", "names", unset = "all are there",
    doc = "modules of a model that are left out: what goes into them comes out" },
  { "run", "table|boolean", unset = "stored ones of this net and mode",
    says = "a run with op times, or false",
    doc = "whose op times are taken, as program:profile { .. } gives it; false: no times" },
  example = 'm:plan { batch = 32 }:whatif { batch = 64, layouts = "plain" }' })

local function shown(value)
  if type(value) == "table" then
    local items = {}
    for i, item in ipairs(value) do
      items[i] = type(item) == "table" and tostring(item.name) or tostring(item)
    end
    return table.concat(items, "+")
  end
  return tostring(value)
end

--- A change as people write it: "batch=128 layouts=plain".
function whatif.words(change)
  local parts = {}
  for _, key in ipairs(options.keys(change)) do
    parts[#parts + 1] = ("%s=%s"):format(key, shown(change[key]))
  end
  return table.concat(parts, " ")
end

local function by_percent(before, after)
  if before == after then return "as it is" end
  return before > 0 and ("%+.1f %%"):format(100 * (after - before) / before) or "new"
end

local names = {
  { "arena_bytes", "arena" }, { "lower_bound_bytes", "least arena" },
  { "parameter_bytes", "parameters" }, { "gradient_bytes", "gradients" },
  { "state_bytes", "state" }, { "io_bytes", "inputs, outputs, kept" },
  { "constant_bytes", "constants" }, { "frame_bytes", "frames" }, { "total_bytes", "total" },
}

local region_of = {
  parameter_bytes = "parameters", gradient_bytes = "gradients", state_bytes = "state",
  io_bytes = "io", constant_bytes = "constants", frame_bytes = "frames",
}

--- How plans call their mode where they print themselves.
function whatif.mode(plan) return plan.train and "training" or "inference" end

--- Bytes of a plan by the names above.
local function figure(plan, name)
  return region_of[name] and (plan.regions[region_of[name]] or 0) or plan[name]
end

--- A forecast of time; one that little of was measured is a guess, and is not told.
local function time_text(ns, known)
  return known >= times.least_known and ("%.3f ms"):format(ns / 1e6) or "not measured"
end

--- What becomes of the time, and how much of both was measured where not all of it was.
local function time_change(was, was_known, ns, known)
  local least = math.min(was_known, known)
  local share = ("%.0f %% of it measured"):format(100 * least)
  if least < times.least_known then return share end
  return by_percent(was, ns) .. (least < 0.995 and ", " .. share or "")
end

--- The report of two plans.
local function compare(before, after, words, measured)
  local rows = {}
  local totals = { plan = after, change = words, net = before.net, mode = before.mode,
    batch = before.batch,
    saved_bytes = before.total_bytes - after.total_bytes, n_changed = after.n_changed,
    recomputed_work = after.recomputed_work }

  -- The figures of both, in the order that they add up in; a region that neither has says nothing.
  for _, name in ipairs(names) do
    local a, b = figure(before, name[1]), figure(after, name[1])
    totals[name[1]] = b
    if a > 0 or b > 0 then
      rows[#rows + 1] = { figure = name[2], before = bytes(a), after = bytes(b),
        change = by_percent(a, b), before_bytes = a, after_bytes = b }
    end
  end

  -- The plan as it is gets a forecast as well, though it may have been measured: the error of a
  -- forecast is then on both sides, and the difference is of the change alone.
  if measured then
    local was, was_known = times.forecast(times.ops(before), measured)
    local ns, known = times.forecast(times.ops(after), measured)
    totals.time_before_ns, totals.time_ns = was, ns
    totals.time_before_known, totals.time_known = was_known, known
    rows[#rows + 1] = { figure = "time of the ops", before = time_text(was, was_known),
      after = time_text(ns, known), change = time_change(was, was_known, ns, known) }
  end
  return report.new {
    rows = rows,
    columns = { "figure", "before", "after", "change" },
    title = ("\"%s\", %s, batch %d, with %s"):format(before.net, whatif.mode(before), before.batch,
      words),
    totals = totals,
    order = {},
  }
end

--- plan:whatif{ .. } -> Report; see the record. Rows figure, before, after, change; fields plan
-- (the one with the change), arena_bytes, total_bytes, saved_bytes, .., and from measured times
-- time_before_ns and time_ns; time_before_known and time_known are the share of each that ops have
-- which run as measured, by the same kernels, in the same dtype and on as many threads.
-- @usage print(model:plan { batch = 32 }:whatif { without = "block2", batch = 64 })
function Plan:whatif(given)
  local fields, memory = memory_options.split("plan:whatif", given, "lua", change_options)
  local o = change_options:read(fields)
  local change = memory

  -- batch and without are changes, too; `run` only says where times come from.
  for _, key in ipairs { "batch", "without" } do change[key] = o[key] end
  if next(change) == nil then
    fail("plan:whatif expects what is to change; e.g. plan:whatif { batch = 128 }")
  end
  local after = again.plan("plan:whatif", self, change)
  return compare(self, after, whatif.words(change),
    times.measured("plan:whatif", o.run, self, after))
end

--- A change from words: "batch=128", "layouts=plain". For command lines.
-- @param words string[]
-- @return table for plan:whatif
function whatif.of_words(words)
  local change = {}
  for _, word in ipairs(words) do
    local key, text = word:match "^([%w_]+)=(.+)$"
    if not key then
      fail(("what-if expects NAME=VALUE, such as batch=128; got \"%s\""):format(word))
    elseif change[key] ~= nil then
      fail(("what-if says %s twice in one change; several changes are several --what-if"):format(
        key))
    end
    -- Names are joined by +, since a comma stands between options elsewhere.
    if key == "keep" or key == "without" then
      change[key] = {}
      for name in text:gmatch "[^+]+" do table.insert(change[key], name) end
    elseif memory_options.records[key] then
      change[key] = memory_options.of_text(key, text)
    else
      -- Not an option of plans: batch is a number.
      change[key] = math.tointeger(tonumber(text)) or text
    end
  end
  return change
end

-- ---- curves -------------------------------------------------------------------------------------

--- A bar of `share` of `most` columns.
local function bar(share, most) return ("█"):rep(math.floor(share * most + 0.5)) end

-- What is drawn, the columns, and the title behind "net", mode.
local kinds = {
  batch = { "total_bytes", { "batch", "arena_bytes", "total_bytes", "size", "curve" },
    function() return ": bytes in all by batch" end },
  budget = { "arena_bytes",
    { "budget_bytes", "arena_bytes", "recomputed", "work", "time_ms", "size", "curve" },
    function(plan, rows)
      return (", batch %d: what a budget costs%s"):format(plan.batch, rows[1] and rows[1].time_ns
        and "" or "; in time where neap profile run has measured its ops")
    end },
  policy = { "arena_bytes", { "policy", "arena_bytes", "total_bytes", "size", "curve" },
    function(plan) return (", batch %d: the arena by policy"):format(plan.batch) end },
}

local function curve(kind, plan, rows)
  local column, columns, title = table.unpack(kinds[kind])
  local most = 1
  for _, row in ipairs(rows) do most = math.max(most, row[column] or 0) end
  for _, row in ipairs(rows) do
    row.size = row[column] and bytes(row[column]) or "refused"
    row.curve = bar((row[column] or 0) / most, 24)
  end
  return report.new {
    rows = rows,
    columns = columns,
    title = ("\"%s\", %s%s"):format(plan.net, whatif.mode(plan), title(plan, rows)),
    totals = { net = plan.net, mode = plan.mode, batch = plan.batch },
    order = {},
  }
end

--- Batches up to four times the plan's own, doubling; the own one is among them.
local function batches_around(batch)
  local list, n = {}, batch
  while n > 1 and #list < 4 do
    n = n // 2
    table.insert(list, 1, n)
  end
  for k = 0, 2 do list[#list + 1] = batch << k end
  return list
end

--- plan:curve "batch": the plan of each of several batches; without bytes where a budget or total
-- of the plan's refuses it.
function whatif.by_batch(plan, points)
  local rows = {}
  for i, n in ipairs(points or batches_around(plan.batch)) do
    local ok, p = true, plan

    -- The plan at hand is one of the points, and need not be planned again.
    if n ~= plan.batch then ok, p = pcall(again.plan, "plan:curve", plan, { batch = n }) end
    if not ok then
      -- A limit that refuses a batch is part of the answer; any other failure is an error.
      if not (type(p) == "table" and rawget(p, "code") == "budget") then error(p, 0) end
      p = {}
    end
    rows[i] = { batch = n, arena_bytes = p.arena_bytes, total_bytes = p.total_bytes }
  end
  return curve("batch", plan, rows)
end

--- plan:curve "policy": where addresses come from, and what each way takes; without bytes where the
-- plan's other options do not allow it.
function whatif.by_policy(plan, points)
  local rows = {}
  for i, policy in ipairs(points or memory_options.choices "policy") do
    local ok, p = pcall(again.plan, "plan:curve", plan, { policy = policy })
    if not ok then
      -- Without points all policies are tried, and some can't be had with the plan's options; one
      -- that was asked for must work.
      local code = type(p) == "table" and rawget(p, "code")
      if code == "memory" or code == "interrupted" or points then error(p, 0) end
      p = {}
    end
    rows[i] = { policy = policy, arena_bytes = p.arena_bytes, total_bytes = p.total_bytes }
  end
  return curve("policy", plan, rows)
end

--- The least budget that can be met, or nil: what a budget of 1 byte is refused with.
local function least_budget(plan)
  -- No plan fits a byte: the refusal says the least that would do, without a search.
  local ok, err = pcall(again.plan, "plan:curve", plan, { budget = 1 })
  if ok then return 1 end
  if type(err) == "table" and rawget(err, "code") == "budget" then return err.least_bytes end
  error(err, 0)
end
whatif.least_budget = least_budget

--- plan:curve "budget": from the arena of the plan without a budget to the least that can be met.
function whatif.by_budget(plan, points)
  -- The plan's own limits would refuse points of the curve.
  local free = again.plan("plan:curve", plan, { budget = false, total = false })
  local measured = times.measured("plan:whatif", nil, plan)
  local most, rows = free.arena_bytes, {}
  if not points then
    -- Six points from the arena that nothing limits down to the least that can be met.
    local least = least_budget(plan) or most
    points = {}
    for k = 0, least < most and 5 or 0 do points[k + 1] = most - (most - least) * k // 5 end
  end
  for i, budget in ipairs(points) do
    local limit = type(budget) == "string" and core.parse_bytes(budget) or budget
    local ok, p = pcall(again.plan, "plan:curve", plan, { budget = limit, total = false })
    if not ok and not (type(p) == "table" and rawget(p, "code") == "budget") then error(p, 0) end
    rows[i] = { budget_bytes = limit }
    if ok then
      rows[i].arena_bytes, rows[i].recomputed = p.arena_bytes, p.n_recomputed
      rows[i].recomputed_work = p.recomputed_work
      rows[i].work = ("%+.1f %%"):format(100 * p.recomputed_work)
      if measured then
        rows[i].time_ns, rows[i].time_known = times.forecast(times.ops(p), measured)
        if rows[i].time_known >= times.least_known then
          rows[i].time_ms = ("%.3f"):format(rows[i].time_ns / 1e6)
        end
      end
    end
  end
  return curve("budget", plan, rows)
end

return whatif
