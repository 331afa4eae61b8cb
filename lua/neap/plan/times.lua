--- Times of ops: those that were measured, and what a plan of other ops would take by them.
--
-- An op is found again by its name, type and phase, and by its number among those of one name. What
-- is found takes the time that was measured, times the ratio of its work now and then: flops, or
-- bytes moved where it has none. What is not found, a Reorder say, takes what ops of its type took
-- for so much work, else what all ops did.
-- @module neap.plan.times
local core = require "neap.core"
local diff = require "neap.plan.diff"
local fail = core.fail

local times = {}

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

--- Measured ops of a live run.
-- @param run of program:profile or t:run
-- @return list of op rows with ns
function times.of_run(run)
  local rows = {}
  for i, o in ipairs(run.plan:_ops()) do
    o.ns, rows[i] = run.times[i].median_ns, o
  end
  return rows
end

--- Measured ops of the newest stored run of a net in one mode that has times; nil where there is
-- none.
-- @return list, integer number of the run
function times.stored(net, mode)
  local db = core.open_db()
  if not db then return nil end
  local _ <close> = db
  local rows = db:_query([[select o.*, t.median_ns as ns, t.run_id from run_op t
    join run r using (run_id) join plan_op o on o.plan_id = r.plan_id and o.step = t.step
    where r.run_id = (select q.run_id from run q where q.net = :net and q.mode = :mode
      and q.plan_id is not null and exists (select 1 from run_op u where u.run_id = q.run_id)
      order by q.uuid desc limit 1) order by t.step]], { net = net, mode = mode })
  if not rows or #rows == 0 then return nil end
  return rows, rows[1].run_id
end

--- Measured ops for a plan: of a run, or where none is given of the newest stored one of this net
-- and mode.
-- @param who string the call that asks, for its error
-- @param run of program:profile, nil for a stored one, false for none
-- @return list, integer number of the stored run; nil for none
function times.measured(who, plan, run)
  if run == false then return nil end
  if run ~= nil then
    if run == true or not run.times or not run.plan then
      fail(who .. ": expects a run with op times, program:profile { .. }")
    end
    return times.of_run(run)
  end
  return times.stored(plan.net, plan.mode)
end

--- What the ops of a plan would take.
-- @param ops list of op rows in the plan's order
-- @param measured list of op rows with ns
-- @return integer ns in all, number share of it that ops have which were measured with the same
--   kernel, list of ns by op
function times.forecast(ops, measured)
  -- A rate is ns for so much work, of a type, and of all ops as a last resort. Flops and bytes are
  -- kinds of their own: their rates have nothing in common.
  local name, found, rate = namer(), {}, {}
  local function add(kind, ns, work)
    local r = rate[kind] or { 0, 0 }
    r[1], r[2], rate[kind] = r[1] + ns, r[2] + work, r
  end
  for _, o in ipairs(measured) do
    local work, kind = work_of(o)
    found[name(o)] = o
    add(o.type .. kind, o.ns, work)
    add(kind, o.ns, work)
  end

  -- The counter anew: the n-th op of a name is compared with the n-th one that was measured.
  name = namer()
  local total, known, list = 0, 0, {}
  for i, o in ipairs(ops) do
    local then_ = found[name(o)]
    local work, kind = work_of(o)
    local ns

    -- Measured: by its work now and then, as a batch changes it. With another kernel the time is a
    -- guess, and does not count as known.
    if then_ then
      local before, kind_before = work_of(then_)
      ns = then_.ns * (kind == kind_before and before > 0 and work / before or 1)
      if then_.kernel == o.kernel then known = known + ns end
    elseif o.recomputes and list[o.recomputes] then
      -- An op that runs again takes what the first run of it takes, which stands before it.
      ns = list[o.recomputes]
    else
      -- Never measured: at the rate of its type, else of all.
      local r = rate[o.type .. kind] or rate[kind] or { 0, 1 }
      ns = r[2] > 0 and work * r[1] / r[2] or 0
    end
    list[i], total = ns, total + ns
  end
  return math.floor(total + 0.5), total > 0 and known / total or 0, list
end

--- A side of neap.plan.diff with the times that its ops would take, by the newest stored run of the
-- plan's net and mode; as it is where there is none.
function times.into(side, plan)
  local measured, run_id = times.measured("times", plan)
  if not measured then return side end
  local _, known, list = times.forecast(side.ops, measured)
  local db <close> = core.open_db()
  side.roof = diff.roof_of(db, run_id)
  side.times, side.times_label = {}, ("from run %d, %.0f %% by the same kernels"):format(run_id,
    100 * known)

  -- One number for each op: there is no scatter in a forecast.
  for i, ns in ipairs(list) do
    local whole = math.floor(ns + 0.5)
    side.times[i] = { median_ns = whole, min_ns = whole }
  end
  return side
end

--- The same as a whole number of ns for each op.
function times.steps(ops, measured)
  local _, _, list = times.forecast(ops, measured)
  for i, ns in ipairs(list) do list[i] = math.floor(ns + 0.5) end
  return list
end

return times
