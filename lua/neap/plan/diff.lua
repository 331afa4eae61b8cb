--- What has changed between two plans, or two runs: culprits first, in bytes and in time.
--
-- A *side* is what is compared: { label =, ops = rows, values = rows, peak_step =, arena_bytes =,
-- total_bytes =, figures = {row}, times = {rows by step}, step_ns = } from a plan, a run, or the
-- database; there with `reads`, rows of plan_read, and of a run `metrics` and `course`, rows of
-- run_metric and run_time, and `measured_on`, its processor and threads; both with `options`, those
-- of the plan by name.
--
-- Layers are aligned as sequences, by what their ops are and how much they do first and by name
-- second: a layer that was put in between is one that was added, though those behind it bear other
-- names now.
--
-- INVARIANT: the changes of bytes in the rows add up to that of the total, and those of time, with
-- quiet_ns, to that of the ops' time: nothing is left out.
-- @module neap.plan.diff
local core = require "neap.core"
local report = require "neap.report"
local fail = core.fail

local diff = {}

local bytes_text = core.bytes_text

-- ---- sides --------------------------------------------------------------------------------------

--- Names of the figures of regions in the database, by region.
local region_figure = {
  parameters = "parameter_bytes", gradients = "gradient_bytes", state = "state_bytes",
  io = "io_bytes", constants = "constant_bytes", frames = "frame_bytes",
}

--- Whether an op is part of each step: what makes constants is not. A plan says so by true, the
-- database by 1.
function diff.is_of_step(o) return o.once ~= true and o.once ~= 1 end

--- Times by step, of ops that are part of it.
local function times_of_steps(ops, times)
  local list = {}
  for i, o in ipairs(ops) do
    if diff.is_of_step(o) then list[i] = times[i] end
  end
  return list
end

--- A plan as a side; with times, of a run of it.
function diff.of_plan(plan, times, step_ns)
  local figures, ops = plan:_figures(), plan:_ops()
  for _, row in ipairs(plan:_regions()) do
    figures[region_figure[row.region] or row.region] = row.bytes
  end
  return {
    figures = figures,
    label = ("plan of \"%s\", %s, batch %d"):format(plan.net,
      plan.train and "training" or "inference", plan.batch), ops = ops,
    values = plan:_values(), peak_step = plan.peak_step, arena_bytes = plan.arena_bytes,
    total_bytes = plan.total_bytes, times = times and times_of_steps(ops, times),
    step_ns = step_ns,
  }
end

local plan_sql = [[select *, arena_bytes + parameter_bytes + gradient_bytes + state_bytes + io_bytes
  + constant_bytes + frame_bytes as total_bytes from plan where plan_id = :id]]

--- Rows of a query, in which parameters that are not given are null; raises what it fails with.
local function ask(db, sql, params)
  local rows, message = db:_query(sql, params, true)
  if not rows then error(message, 0) end
  return rows
end

--- Net, mode and batch of a row of plan or run, as answers name them.
local function said(row)
  return ("\"%s\", %s, batch %d"):format(row.net,
    row.mode == "train" and "training" or "inference", row.batch or 0)
end

--- The options of a stored plan, texts by name; not those that change nothing of it.
local function options_of(db, id)
  local by = {}
  for _, row in ipairs(ask(db, [[
      select o.key, iif(o.type in ('true', 'false'), o.type, o.value) as value
      from plan p cross join json_each(p.options) o where p.plan_id = :id
        and o.key not in ('store', 'profile', 'tag')]], { id = id })) do
    by[row.key] = tostring(row.value)
  end
  return by
end

--- A stored plan as a side.
function diff.of_plan_id(db, id, label)
  local plan = ask(db, plan_sql, { id = id })[1]
  if not plan then fail(("the database has no plan %d"):format(id)) end
  return {
    label = label or ("plan %d of %s"):format(id, said(plan)),
    ops = ask(db, "select * from plan_op where plan_id = :id order by step", { id = id }),
    values = ask(db, "select * from plan_value where plan_id = :id order by value_no", { id = id }),
    peak_step = plan.peak_step, arena_bytes = plan.arena_bytes, total_bytes = plan.total_bytes,
    reads = ask(db, [[select value_no, step from plan_read where plan_id = :id and subnet_no = 0
      order by step, position]], { id = id }), figures = plan,
    options = options_of(db, id),
  }
end

--- What the database has of the course of a run, into a side: metrics, time and memory.
function diff.add_course(side, db, id)
  side.metrics = ask(db, [[select name, at_step, value from run_metric where run_id = :id
    order by name, at_step]], { id = id })
  side.course = ask(db, "select * from run_time where run_id = :id order by at_step", { id = id })
end

--- What the machine of a run reaches, where that has been measured: {byte_per_s =, flop_per_s = by
-- what was measured, what = by dtype which of these is its roof}.
function diff.roof_of(db, id)
  local roof = ask(db, [[select peak_byte_per_s as byte_per_s from machine
    join run using (machine_id)
    where run_id = :id and peak_flop_per_s > 0 and peak_byte_per_s > 0]], { id = id })[1]
  if not roof then return nil end
  roof.flop_per_s, roof.what = {}, {}
  for _, row in ipairs(ask(db, [[select dtype, what, flop_per_s from v_machine_peak
    join run using (machine_id) where run_id = :id]], { id = id })) do
    roof.flop_per_s[row.what], roof.what[row.dtype] = row.flop_per_s, row.what
  end
  return roof
end

--- A stored run as a side.
function diff.of_run_id(db, id)
  local run = ask(db, "select * from run join machine using (machine_id) where run_id = :id",
    { id = id })[1]
  if not run then fail(("the database has no run %d; neap profile list shows them"):format(id)) end
  if not run.plan_id then
    fail(run.status == "refused" and ("run %d was refused: no plan was made"):format(id)
      or ("run %d has no plan, or none any more"):format(id))
  end

  -- Of a run's programs the one whose plan it is: its batch; and where steps were of several sizes
  -- what its own took, since the run's are of all.
  local main = ask(db, [[select p.net, p.mode, p.batch, g.step_median_ns,
      (select count(*) from program s where s.run_id = :id and s.mode = p.mode) as n_size
    from plan p left join program g on g.run_id = :id and g.plan_id = p.plan_id
    where p.plan_id = :plan order by g.program_no limit 1]], { id = id, plan = run.plan_id })[1]
  local side = diff.of_plan_id(db, run.plan_id, ("run %d of %s"):format(id, said(main)))
  local times = ask(db, "select * from run_op where run_id = :id order by step", { id = id })
  side.step_ns = main.n_size > 1 and main.step_median_ns or run.step_median_ns
  side.measured_on = ("%s, %d thread%s"):format(run.cpu, run.n_thread,
    run.n_thread == 1 and "" or "s")
  side.roof = diff.roof_of(db, id)
  diff.add_course(side, db, id)
  if #times > 0 then
    local by_step = {}
    for _, row in ipairs(times) do by_step[row.step] = row end
    side.times = times_of_steps(side.ops, by_step)
  end
  return side
end

-- Runs of a commit, by the beginning of its name, that have a plan.
local of_commit = [[select * from run where plan_id is not null
  and commit_id like :text || '%' and (:net is null or net = :net)
  and (:mode is null or mode = :mode) and (:batch is null or batch = :batch)]]

--- Raises for a commit that has no such run, and says which it has.
local function fail_of_commit(db, wanted)
  local words, has = {}, {}
  local sql = ("select distinct net, mode, batch from (%s) order by 1, 2, 3 limit 8"):format(
    of_commit)
  for _, row in ipairs(ask(db, sql, { text = wanted.text })) do
    has[#has + 1] = ("%s %s batch %d"):format(row.net, row.mode, row.batch or 0)
  end
  for _, name in ipairs { "net", "mode", "batch" } do
    if wanted[name] ~= nil then words[#words + 1] = name .. " " .. wanted[name] end
  end
  fail(("the database has no run of a commit %s..%s%s"):format(wanted.text,
    #has > 0 and #words > 0 and " with " .. table.concat(words, ", ") or "",
    #has > 0 and "; it has " .. table.concat(has, "; ") or ""))
end

--- Runs of the commit itself first, then those whose files differed from it; each the newest first.
local clean_first = " order by coalesce(commit_dirty, 0), uuid desc limit 1"

--- A run that stands for its commit, as a side; said where its files were not the commit's.
local function of_commit_run(db, id)
  local side = diff.of_run_id(db, id)
  local run = ask(db, "select commit_dirty from run where run_id = :id", { id = id })[1]
  local differs = run.commit_dirty == 1 and ", whose files differ from the commit" or ""
  side.label = side.label .. differs
  return side
end

--- The newest run of a commit, of its own files where there is one.
-- @param wanted { text = the beginning of its name, net, mode, batch = nil for any }
function diff.of_commit(db, wanted)
  local run = ask(db, of_commit .. clean_first, wanted)[1]
  if not run then fail_of_commit(db, wanted) end
  return of_commit_run(db, run.run_id)
end

--- The newest runs of two commits that are of the same net, mode and batch, unless both say which
-- net, or batch, they mean; of the commits' own files where there are such. @return two sides
function diff.of_commits(db, before, after)
  -- Both are asked for at once: the newest run of each alone may be of different nets. One query is
  -- joined with a copy of itself, whose parameters have other names.
  local params = { text = before.text, net = before.net, batch = before.batch,
    other = after.text, other_net = after.net, other_batch = after.batch }
  local second = of_commit:gsub(":(%l+)", { text = ":other", net = ":other_net",
    batch = ":other_batch", mode = "null" })
  local first = of_commit:gsub(":mode", "null")
  local pair = ask(db, ([[select a.run_id as before, b.run_id as after
    from (%s) a join (%s) b on b.mode = a.mode
      and (b.net = a.net or (:net is not null and :other_net is not null))
      and (b.batch is a.batch or (:batch is not null and :other_batch is not null))
    order by coalesce(a.commit_dirty, 0) + coalesce(b.commit_dirty, 0), b.uuid desc, a.uuid desc
    limit 1]]):format(first, second), params)[1]
  if pair then return of_commit_run(db, pair.before), of_commit_run(db, pair.after) end
  -- whichever of them has no such run at all says so, else the second has none like the first's
  local run = ask(db, of_commit .. clean_first, before)[1]
  if not run then fail_of_commit(db, before) end
  fail_of_commit(db, { text = after.text, net = after.net or run.net, mode = run.mode,
    batch = after.batch or run.batch })
end

-- ---- what each layer has ------------------------------------------------------------------------

local function aligned(bytes) return (bytes + 63) // 64 * 64 end

--- Name of the layer of a row, with its module.
local function layer_of(row)
  local module, layer = row.module, row.layer
  if module and layer and layer ~= module and layer:sub(1, #module + 1) ~= module .. "/" then
    return module .. "/" .. layer
  end
  return layer or "(no layer)"
end

--- Layers of a side in the order of their first op, and by name: {name, kinds (what its ops are),
-- flops, bytes, ns, noise_ns}.
local function layers_of(side)
  local list, by_name = {}, {}
  local function at(row)
    local name = layer_of(row)
    local layer = by_name[name]
    if not layer then
      layer = { name = name, kinds = {}, flops = 0, bytes = 0, ns = 0, noise_ns = 0 }
      by_name[name], list[#list + 1] = layer, layer
    end
    return layer
  end

  -- What an op is and how much it does make up the layer's signature. Reorders, ops that run again
  -- and casts of mixed precision, "x.bf16", come and go with the plan: a layer is the same without
  -- them. Scratch counts at the peak alone.
  for i, o in ipairs(side.ops) do
    local layer, t = at(o), side.times and side.times[i]
    local is_cast = o.type == "Cast" and o.name:find(".", 1, true)
    if not o.recomputes and o.type ~= "Reorder" and not is_cast then
      layer.kinds[#layer.kinds + 1] = o.type
      layer.flops = layer.flops + o.flops
    end
    if i == side.peak_step then layer.bytes = layer.bytes + aligned(o.scratch_bytes) end
    if t then
      layer.ns = layer.ns + t.median_ns
      layer.noise_ns = layer.noise_ns + t.median_ns - t.min_ns
    end
  end
  -- of the arena what lives at the peak, each storage by its newest value; of the rest all
  local newest = {}
  for _, v in ipairs(side.values) do
    local lives = v.region == "arena" and v.bytes > 0 and v.first_step <= side.peak_step
      and side.peak_step <= v.last_step
    local known = newest[v.storage_no]
    if lives and (not known or v.first_step >= known.first_step) then newest[v.storage_no] = v end
    -- Frames grow with iterations and arguments are the caller's: neither is a layer's. A storage
    -- counts by its first value, wherever its later versions are.
    local is_resident = v.region ~= "arena" and v.region ~= "argument" and v.region ~= "frames"
    if is_resident and v.value_no == v.storage_no then
      local layer = at(v)
      layer.bytes = layer.bytes + aligned(v.bytes)
    end
  end
  for _, v in pairs(newest) do
    local layer = at(v)
    layer.bytes = layer.bytes + aligned(v.bytes)
  end

  -- What no layer has: holes between blocks, frames, copies. With it the rows add up to the total.
  local rest = side.total_bytes
  for _, layer in ipairs(list) do
    rest = rest - layer.bytes
    table.sort(layer.kinds) -- one plan may run them in another order
    layer.signature = table.concat(layer.kinds, " ")
  end
  return list, rest
end

-- ---- alignment ----------------------------------------------------------------------------------

--- How alike two layers are; 0: they are not paired.
local function likeness(a, b)
  if a.signature ~= b.signature then return 0 end
  local same_name, same_work = a.name == b.name, a.flops == b.flops
  return same_name and same_work and 4 or same_work and 3 or same_name and 2 or 1
end

--- Pairs {a, b}, one of them nil where it has none, in order: the alignment of the largest sum of
-- likeness.
local function align(left, right)
  -- best[i][j] is the largest sum of likeness of what is behind i on the left and j on the right:
  -- from the end, so that the way can then be read from the beginning.
  local best = {}
  for i = #left, 0, -1 do
    best[i] = {}
    for j = #right, 0, -1 do
      local most = 0
      if i < #left and j < #right then
        local like = likeness(left[i + 1], right[j + 1])
        most = math.max(best[i + 1][j], best[i][j + 1])
        if like > 0 then most = math.max(most, like + best[i + 1][j + 1]) end
      end
      best[i][j] = most
    end
  end

  -- At each step one of the best ways is taken: the pair first, so that what is alike stays
  -- together; then what was removed, then what was added.
  local pairs_, i, j = {}, 0, 0
  while i < #left or j < #right do
    local a, b = left[i + 1], right[j + 1]
    local like = a and b and likeness(a, b) or 0
    if like > 0 and best[i][j] == like + best[i + 1][j + 1] then
      pairs_[#pairs_ + 1] = { a, b }
      i, j = i + 1, j + 1
    elseif a and (not b or best[i][j] == best[i + 1][j]) then
      pairs_[#pairs_ + 1] = { a, nil }
      i = i + 1
    else
      pairs_[#pairs_ + 1] = { nil, b }
      j = j + 1
    end
  end
  return pairs_
end

-- ---- the report ---------------------------------------------------------------------------------

local nothing = { bytes = 0, ns = 0, noise_ns = 0 }

local function signed_bytes(n)
  return n == 0 and "" or (n < 0 and "-" or "+") .. bytes_text(math.abs(n))
end

local function row_of(a, b)
  local what = a and b and (a.name == b.name and "" or "renamed") or a and "removed" or "added"
  local name = what == "renamed" and a.name .. " -> " .. b.name or (a or b).name
  a, b = a or nothing, b or nothing
  local change, ns, noise = b.bytes - a.bytes, b.ns - a.ns, a.noise_ns + b.noise_ns
  return {
    layer = name, what = what, before_bytes = a.bytes, after_bytes = b.bytes,
    change_bytes = change, bytes = signed_bytes(change), change_ns = ns, noise_ns = noise,
    ms = (a.ns > 0 or b.ns > 0) and ("%+.3f ± %.3f"):format(ns / 1e6, noise / 1e6) or nil,
    is_clear = math.abs(ns) > noise,
  }
end

local function percent(before, after)
  return before > 0 and 100 * (after - before) / before or after > 0 and math.huge or 0
end

--- What is left of a step's time beside its ops': medians do not add up, so it may be below 0, and
-- is no more than noise.
local function rest_ns(layers, step_ns)
  for _, layer in ipairs(layers) do step_ns = step_ns - layer.ns end
  return step_ns
end

--- Options that differ between two sides that know theirs: "dtype f32 -> bf16".
local function changed_options(before, after)
  local names, list = {}, {}
  if not (before and after) then return list end
  for name in pairs(before) do names[name] = true end
  for name in pairs(after) do names[name] = true end
  for name in pairs(names) do
    if before[name] ~= after[name] then
      list[#list + 1] = ("%s %s -> %s"):format(name, before[name] or "none", after[name] or "none")
    end
  end
  table.sort(list)
  return list
end

--- What has changed from one side to another. A layer without a change of bytes, name, or of time
-- beyond its noise has no row; what the times of those add up to is quiet_ns.
-- @return Report layer, what, bytes, ms; totals before_bytes, after_bytes, memory_percent, options
--   (those that differ, of stored sides), and where both have times before_ns, after_ns (of a step,
--   where that was measured), time_percent
function diff.sides(before, after)
  local left, rest_left = layers_of(before)
  local right, rest_right = layers_of(after)
  local rows, n_same, ns_left, ns_right, quiet = {}, 0, 0, 0, 0
  local all, timed = align(left, right), before.times ~= nil and after.times ~= nil
  local gaps_left, gaps_right = 0, 0
  if timed and before.step_ns and after.step_ns then
    gaps_left, gaps_right = rest_ns(left, before.step_ns), rest_ns(right, after.step_ns)
  end

  -- What belongs to no layer is a row as well: else the changes would not add up (see the
  -- invariant).
  all[#all + 1] = {
    { name = "(gaps, frames, copies)", bytes = rest_left, ns = gaps_left,
      noise_ns = math.abs(gaps_left) },
    { name = "(gaps, frames, copies)", bytes = rest_right, ns = gaps_right,
      noise_ns = math.abs(gaps_right) },
  }
  for _, pair in ipairs(all) do
    local row = row_of(pair[1], pair[2])
    ns_left = ns_left + (pair[1] or nothing).ns
    ns_right = ns_right + (pair[2] or nothing).ns
    -- A layer whose change is within its noise has not changed; its time goes to quiet_ns.
    if row.what == "" and row.change_bytes == 0 and not (timed and row.is_clear) then
      n_same, quiet = n_same + 1, quiet + row.change_ns
    else
      rows[#rows + 1] = row
    end
  end

  -- table.sort is not stable: the order of the net decides among equals.
  local order = {}
  for i, row in ipairs(rows) do order[row] = i end
  table.sort(rows, function(a, b)
    local x, y = math.abs(a.change_bytes), math.abs(b.change_bytes)
    if x ~= y then return x > y end
    x, y = math.abs(a.change_ns), math.abs(b.change_ns)
    if timed and x ~= y then return x > y end
    return order[a] < order[b]
  end)
  local totals = {
    before = before.label, after = after.label,
    before_bytes = before.total_bytes, after_bytes = after.total_bytes,
    memory_percent = percent(before.total_bytes, after.total_bytes), n_same = n_same,
    quiet_ns = quiet,
  }
  local title = ("%s -> %s\nbytes %s -> %s (%+.1f %%), arena %s -> %s"):format(
    before.label, after.label, bytes_text(before.total_bytes), bytes_text(after.total_bytes),
    totals.memory_percent, bytes_text(before.arena_bytes), bytes_text(after.arena_bytes))

  -- What was asked for may be all that has changed.
  totals.options = changed_options(before.options, after.options)
  if #totals.options > 0 then
    title = ("%s\noptions %s"):format(title, table.concat(totals.options, ", "))
  end

  -- Times of ops where both have them, else the steps as measured.
  if timed then
    totals.before_ns, totals.after_ns = ns_left, ns_right
    totals.time_percent = percent(ns_left, ns_right)
  elseif before.step_ns and after.step_ns then
    totals.before_ns, totals.after_ns = before.step_ns, after.step_ns
    totals.time_percent = percent(before.step_ns, after.step_ns)
  end
  if totals.time_percent then
    title = title .. ("\ntime %.3f ms -> %.3f ms (%+.1f %%)"):format(totals.before_ns / 1e6,
      totals.after_ns / 1e6, totals.time_percent)

    -- Times of another machine, or of other threads, are not the change's alone.
    local on, then_on = before.measured_on, after.measured_on
    if on and then_on and on ~= then_on then
      totals.before_on, totals.after_on = on, then_on
      title = title .. ("\nmeasured on %s -> %s"):format(on, then_on)
    end
  end
  return report.new {
    rows = rows, columns = { "layer", "what", "bytes", timed and "ms" or nil }, title = title,
    totals = totals, order = {},
  }
end

return diff
