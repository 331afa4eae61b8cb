--- Times of ops: those that were measured, and what a plan of other ops would take by them.
--
-- What was measured are *groups*, a program each: { rows = op rows with ns, run_id = }. An op is
-- found again in a group by its name, type and phase, and by its number among those of one name.
-- What is found takes the time that was measured, times the ratio of its work now and then: flops,
-- or bytes moved where it has none. It is as measured only where it runs by the same kernel, in the
-- same dtype and on as many threads; else it is a guess. What is not found, a Reorder say, takes
-- what ops of its type took for so much work, else what all ops did.
-- @module neap.plan.times
local again = require "neap.plan.again"
local core = require "neap.core"
local diff = require "neap.plan.diff"
local machine = require "neap.machine"
local fail = core.fail

local times = {}

--- Below this share of ops that run as they were measured a forecast is a guess, and is not shown.
times.least_known = 0.5

--- Stored programs that are looked at for a plan: of each plan and number of threads the newest.
local most_groups = 6

--- The work of an op, and its kind: flops, else bytes.
local function work_of(o)
  if o.flops > 0 then return o.flops, "flops" end
  return o.read_bytes + o.write_bytes, "bytes"
end

--- f(op) -> a text by which the op is known in any plan of the net; to be asked in order.
local function namer()
  local count = {}
  return function(o)
    local key = ("%s|%s|%s"):format(o.name, o.type, o.phase)
    count[key] = (count[key] or 0) + 1
    return key .. "|" .. count[key]
  end
end
times.namer = namer

--- Whether two ops of one name run in the same way, so that the time of one tells that of the
-- other.
local function is_alike(a, b)
  return a.kernel == b.kernel and a.algorithm == b.algorithm and a.dtype == b.dtype
    and a.n_thread == b.n_thread
end

--- Says of each op what its time depends on besides kernel, dtype and work: the threads there are.
-- What makes constants is no part of a step.
local function describe(ops, n_thread)
  for _, o in ipairs(ops) do
    o.n_thread, o.once = n_thread, not diff.is_of_step(o)
    if o.once and o.ns then o.ns = 0 end
  end
  return ops
end

local function threads_of(plan) return again.options(plan).threads or core.threads() end

--- The ops of a plan, as times.forecast compares them.
function times.ops(plan) return describe(plan:_ops(), threads_of(plan)) end

--- Measured ops of a live run.
-- @param run of program:profile or t:run
-- @return list of one group
function times.of_run(run)
  local rows = run.plan:_ops()
  for i, o in ipairs(rows) do o.ns = run.times[i].median_ns end
  return { { rows = describe(rows, threads_of(run.plan)),
    run_id = (run.run_id or 0) > 0 and run.run_id or nil } }
end

--- What this machine measured of a net in one mode, those first whose ops may have run alike, of
-- the nearest batch, in as many bytes, the newest. A net that looks at data in a training is a
-- program of that run.
local programs = [[select g.run_id, g.program_no, p.plan_id, r.n_thread, max(r.uuid) as uuid
  from plan p cross join program g using (plan_id) cross join run r using (run_id)
  join machine m using (machine_id)
  where p.net = :net and p.mode = :mode and m.cpu = :cpu and exists (select 1 from program_op o
    where o.run_id = g.run_id and o.program_no = g.program_no)
  group by p.plan_id, r.n_thread
  order by (r.n_thread = :n_thread) + (p.options ->> '$.dtype' = :dtype)
      + (p.options ->> '$.engine' = :engine) + (p.options ->> '$.layouts' = :layouts) desc,
    abs(p.batch - :batch), p.arena_bytes <> :arena_bytes, uuid desc limit :most]]

local program_ops = [[select o.*, t.median_ns as ns from program_op t
  join plan_op o on o.plan_id = :plan_id and o.step = t.step
  where t.run_id = :run_id and t.program_no = :program_no order by t.step]]

--- Adds the stored programs that are most like a plan; `has` are those that are there.
local function add_stored(db, plan, groups, has)
  local o = again.options(plan)
  local found = db:_query(programs, { net = plan.net, mode = plan.mode, cpu = machine.cpu(),
    n_thread = threads_of(plan), dtype = o.dtype or "f32", engine = o.engine or "free",
    layouts = o.layouts or "free", batch = plan.batch, arena_bytes = plan.arena_bytes,
    most = most_groups }) or {}
  for _, g in ipairs(found) do
    local key = g.run_id .. " " .. g.program_no
    local rows = not has[key] and db:_query(program_ops, { plan_id = g.plan_id,
      run_id = g.run_id, program_no = g.program_no })
    has[key] = true
    if rows and #rows > 0 then
      groups[#groups + 1] = { rows = describe(rows, g.n_thread), run_id = g.run_id }
    end
  end
end

--- Measured ops for plans of one net and mode: of a run, or where none is given of the stored ones
-- of this net and mode, on this machine.
-- @param who string the call that asks, for its error
-- @param run of program:profile, nil for a stored one, false for none
-- @param plan and more of them
-- @return list of groups; nil for none
function times.measured(who, run, ...)
  if run == false then return nil end
  if run ~= nil then
    if run == true or not run.times or not run.plan then
      fail(who .. ": expects a run with op times, program:profile { .. }")
    end
    return times.of_run(run)
  end
  local db, groups, has = core.used_db(), {}, {}
  for _, plan in ipairs(db and { ... } or {}) do add_stored(db, plan, groups, has) end
  return groups[1] and groups or nil
end

--- The ops of a group by their keys, which `keys` has of the ops that are asked for; and how many
-- of these it has as they are, with the same work, and how many with any.
local function find(group, ops, keys)
  local name, by = namer(), {}
  for _, o in ipairs(group.rows) do by[name(o)] = o end
  local n_same, n_alike = 0, 0
  for i, o in ipairs(ops) do
    local m = by[keys[i]]
    if m and is_alike(m, o) then
      n_alike = n_alike + 1
      if work_of(m) == work_of(o) then n_same = n_same + 1 end
    end
  end
  return { by = by, rows = group.rows, run_id = group.run_id, n_same = n_same, n_alike = n_alike }
end

--- ns for so much work, by type and kind of work, and by kind alone as a last resort. Flops and
-- bytes are kinds of their own: their rates have nothing in common.
local function rates_of(rows)
  local rates = {}
  local function add(kind, ns, work)
    local r = rates[kind] or { 0, 0 }
    r[1], r[2], rates[kind] = r[1] + ns, r[2] + work, r
  end
  for _, o in ipairs(rows) do
    if not o.once then
      local work, kind = work_of(o)
      add(o.type .. kind, o.ns, work)
      add(kind, o.ns, work)
    end
  end
  return rates
end

--- What the ops of a plan would take.
-- @param ops list of op rows in the plan's order
-- @param measured list of groups
-- @return integer ns in all, number share of it that ops have which were measured as they run, list
--   of ns by op, numbers of the stored runs that it is from
function times.forecast(ops, measured)
  local name, keys, groups = namer(), {}, {}
  for i, o in ipairs(ops) do keys[i] = name(o) end
  for i, group in ipairs(measured) do
    groups[i] = find(group, ops, keys)
    groups[i].number = i
  end

  -- The group that is most like the plan is asked first: of equals the newest.
  table.sort(groups, function(a, b)
    if a.n_same ~= b.n_same then return a.n_same > b.n_same end
    if a.n_alike ~= b.n_alike then return a.n_alike > b.n_alike end
    return a.number < b.number
  end)

  local rates, total, known, list = rates_of(groups[1].rows), 0, 0, {}
  local runs, is_used = {}, {}
  local function use(group)
    if group.run_id == nil or is_used[group.run_id] then return end
    is_used[group.run_id] = true
    runs[#runs + 1] = group.run_id
  end
  for i, o in ipairs(ops) do
    local work, kind = work_of(o)
    local then_, from, ns

    -- As it runs, by whichever group has it so; else as the first one that has it at all.
    for _, group in ipairs(groups) do
      local m = group.by[keys[i]]
      if m and m.once ~= o.once then m = nil end -- one that made a constant was not timed
      if m and is_alike(m, o) then
        then_, from = m, group
        break
      end
      if m and not then_ then then_, from = m, group end
    end

    -- Measured: by its work now and then, as a batch changes it. In another way the time is a
    -- guess, and does not count as known.
    if then_ then
      local before, kind_before = work_of(then_)
      ns = then_.ns * (kind == kind_before and before > 0 and work / before or 1)
      if is_alike(then_, o) then known = known + ns end
      use(from)
    elseif o.once then
      ns = 0
    elseif o.recomputes and list[o.recomputes] then
      -- An op that runs again takes what the first run of it takes, which stands before it.
      ns = list[o.recomputes]
    else
      -- Never measured: at the rate of its type, else of all.
      local r = rates[o.type .. kind] or rates[kind] or { 0, 1 }
      ns = r[2] > 0 and work * r[1] / r[2] or 0
    end
    list[i], total = ns, total + ns
  end
  return math.floor(total + 0.5), total > 0 and known / total or 0, list, runs
end

--- Where times are from, in words.
-- @param runs list of numbers of stored runs; none: of a run that is not stored
-- @param known number share of the time that was measured by the same kernels
local function source(runs, known)
  local from = "a run that is not stored"
  if #runs > 0 then
    from = ("run%s %s"):format(#runs > 1 and "s" or "", table.concat(runs, ", "))
  end
  return ("from %s, %.0f %% by the same kernels"):format(from, 100 * known)
end

--- A side of neap.plan.diff with the times that its ops would take, by stored runs of the plan's
-- net and mode; as it is where there are none, or none of which more than a guess can be made.
function times.into(side, plan)
  local measured = times.measured("times", nil, plan)
  if not measured then return side end
  local _, known, list, runs = times.forecast(times.ops(plan), measured)
  if known < times.least_known then return side end
  side.roof = diff.roof_of(core.used_db(), runs[1])
  side.times, side.times_label = {}, "sum of its ops, " .. source(runs, known)

  -- One number for each op: there is no scatter in a forecast.
  for i, ns in ipairs(list) do
    local whole = math.floor(ns + 0.5)
    side.times[i] = { median_ns = whole, min_ns = whole }
  end
  return side
end

--- The same as a whole number of ns for each op, the share that was measured, and in words where
-- they are from.
function times.steps(plan, measured)
  local _, known, list, runs = times.forecast(times.ops(plan), measured)
  for i, ns in ipairs(list) do list[i] = math.floor(ns + 0.5) end
  return list, known, "time of ops, " .. source(runs, known)
end

return times
