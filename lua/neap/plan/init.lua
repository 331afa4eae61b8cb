--- Plans: where every byte goes, and why. Figures are fields; the rest are reports.
-- @module neap.plan
local again = require "neap.plan.again"
local core = require "neap.core"
local diff = require "neap.plan.diff"
local html = require "neap.report.html"
local kernels = require "neap.plan.kernels"
local missing = require "neap.inner.missing"
local options = require "neap.inner.options"
local record = require "neap.inner.record"
local report = require "neap.report"
local times = require "neap.plan.times"
local trace = require "neap.report.trace"
local whatif = require "neap.plan.whatif"
require "neap.plan.doctor"
local fail = core.fail

local Plan = core.Plan
local plan = {}

--- Figures are read once per handle: a plan never changes.
local cache = setmetatable({}, { __mode = "k" })

local function figures(p)
  local f = cache[p]
  if f == nil then
    f = p:_figures()
    f.regions = {}
    for _, row in ipairs(p:_regions()) do f.regions[row.region] = row.bytes end
    cache[p] = f
  end
  return f
end

--- Fields: the figures of NEAP_FIGURE_MAP (src/neap/rows.h) that are not of runs, and regions{},
-- the bytes of each.
Plan.meta.__index = function(p, key)
  local method = Plan[key]
  if method ~= nil then return method end
  local value = figures(p)[key]
  if value ~= nil or type(key) ~= "string" or key:sub(1, 1) == "_" then return value end

  -- A figure that this plan does not have is nil; what no plan has is a slip.
  local names = { "regions" }
  for _, column in ipairs(report.kinds.figures) do
    if column.name == key then return nil end
    names[#names + 1] = column.name
  end
  missing.fail("a plan", key, options.append(names, missing.names(Plan)))
end

local bytes = core.bytes_text

local function percent(part, whole)
  return whole > 0 and ("%.1f %%"):format(100 * part / whole) or "-"
end

Plan.meta.__tostring = function(p)
  local f = figures(p)
  local what = f.policy == "pool" and "not planned: peak forecast of the pool" or "arena"
  return ("plan of \"%s\", %s, batch %d: %s %s, least for these kernels and this order %s%s, \z
    without reuse %s (%s)"):format(
    f.net, f.train and "training" or "inference", f.batch, what, bytes(f.arena_bytes),
    bytes(f.lower_bound_bytes), f.proved and " (proved)" or "", bytes(f.baseline_bytes),
    percent(f.arena_bytes, f.baseline_bytes))
end

--- Totals of an answer, with the net, mode and batch that it is of.
local function named(p, totals)
  local f = figures(p)
  totals.net, totals.mode, totals.batch = f.net, f.mode, f.batch
  return totals
end

--- plan:forecast() -> Report: bytes per region, and what the plan promises.
function Plan:forecast()
  local f, rows = figures(self), {}
  for _, row in ipairs(self:_regions()) do
    -- Frames are given only where they grow at run time; all others lie in the arena.
    row.size = row.region == "frames" and bytes(row.bytes) .. " an iteration" or bytes(row.bytes)
    if row.bytes > 0 or row.region == "arena" then rows[#rows + 1] = row end
  end
  rows[#rows + 1] = { region = "total", bytes = f.total_bytes, size = bytes(f.total_bytes) }
  local totals = {}
  for _, name in ipairs(report.columns_of("figures", { f })) do totals[name] = f[name] end
  return report.new {
    rows = rows,
    columns = { "region", "size", "bytes" },
    title = tostring(self),
    totals = totals,
    order = {},
  }
end

local function flops_text(x)
  for _, unit in ipairs { { 1e12, "T" }, { 1e9, "G" }, { 1e6, "M" }, { 1e3, "k" } } do
    if x >= unit[1] then return ("%.2f %s"):format(x / unit[1], unit[2]) end
  end
  return ("%.0f"):format(x)
end

--- The parameter that value number `v` of a tree has the numbers of, or nil: kernels may read it in
-- another layout, made by a Reorder.
local function parameter_of(tree, maker, v)
  -- Reorders are the planner's own: what they read is what counts.
  while maker[v] and maker[v].type == "Reorder" do v = maker[v].ins[1] end
  return tree.values[v].role == "parameter" and tree.values[v].storage_no or nil
end

--- How many elements each op is the first of the forward pass to read of parameters. Names may be
-- written again with other shapes: values count.
local function count_parameters(tree)
  local maker, counted, n_of = {}, {}, {}

  -- By storage, since a parameter may be read by several ops: the first one has it.
  for _, o in ipairs(tree.ops) do
    for _, v in ipairs(o.outs) do maker[v] = o end
  end
  for i, o in ipairs(tree.ops) do
    n_of[i] = 0
    for _, v in ipairs(o.phase == "forward" and o.type ~= "Reorder" and o.ins or {}) do
      local storage = parameter_of(tree, maker, v)
      if storage and not counted[storage] then
        counted[storage] = true
        local n = 1
        for d in tree.values[storage].shape:gmatch "%d+" do n = n * math.tointeger(d) end
        n_of[i] = n_of[i] + n
      end
    end
  end
  return n_of
end

--- plan:summary() -> Report: one row per op of the forward pass, with the shape it gives, its
-- parameters and work. The total of flops is that of the whole step.
function Plan:summary()
  local tree = self:_tree()

  -- The forward as it was written: no Reorders, and no ops that run again.
  local n_of, rows, total, flops = count_parameters(tree), {}, 0, 0
  for i, o in ipairs(tree.ops) do
    total, flops = total + n_of[i], flops + o.flops
    if o.phase == "forward" and o.type ~= "Reorder" and not o.recomputes then
      rows[#rows + 1] = {
        name = o.name,
        type = o.type,
        output = o.outs[1] and tree.values[o.outs[1]].shape or "",
        parameters = n_of[i],
        flops = flops_text(o.flops),
        line = o.line,
      }
    end
  end
  return report.new {
    rows = rows,
    columns = { "name", "type", "output", "parameters", "flops", "line" },
    title = tostring(self),
    totals = { parameters = total, flops = flops },
    order = { "parameters" },
  }
end

--- plan:ops() -> Report: the schedule, with the bytes alive while each op runs.
function Plan:ops()
  return report.of("op", {
    rows = self:_ops(),
    totals = named(self, { peak_step = figures(self).peak_step }),
    order = { "peak_step" },
  })
end

--- plan:values() -> Report: every value and its place; steps from 1, offset_bytes in the arena.
-- Memory banks lie in it one after another.
function Plan:values() return report.of("value", { rows = self:_values() }) end

--- plan:banks() -> Report: the memory banks, "main" first: what each has and takes, the least for
-- these kernels and this order, the ops that work on it alone, and the values that lie in it. No
-- rows where the memory options had no banks.
-- @usage print(net:plan({ banks = { neap.bank { "fast", bytes = "2MiB" } } }):banks())
function Plan:banks()
  local rows, most = self:_banks(), 0
  for _, row in ipairs(rows) do most = most + row.arena_bytes end
  return report.of("bank", {
    rows = rows,
    totals = { n = #rows, arena_bytes = most },
    order = { "n", "arena_bytes" },
  })
end

--- plan:rewrites() -> Report: what the fusion of a net that does not train has made of its ops, in
-- the order in which it was done: rule, the ops absorbed, the op they are part of now, and the
-- bytes of the values that are no more. Totals: n, saved_bytes. A rule's results differ from the
-- unfused ones by less than 1e-5 of the largest; `fuse = false` leaves them out. `fuse = "pool"`
-- adds one that trades time for memory: a convolution and the pool behind it work on a few images
-- at a time, and what the convolution gives for the whole batch never exists.
-- @usage print(neap.zoo.resnet50():net({ batch = 1 }):plan({}):rewrites())
function Plan:rewrites()
  local rows, saved = self:_rewrites(), 0
  for _, row in ipairs(rows) do saved = saved + row.saved_bytes end
  return report.of("rewrite", {
    rows = rows,
    totals = { n = #rows, saved_bytes = saved },
    order = { "n", "saved_bytes" },
  })
end

--- Of a list of names those that have all parts of a path, "block4/gelu", in their order; three at
-- most.
local function names_with(path, names)
  -- Each part after the one before, somewhere in the name: "block4/gelu" finds "block4/mlp/gelu_1".
  local found, seen = {}, {}
  for _, name in ipairs(names) do
    local at = 1
    for part in path:gmatch "[^/]+" do
      local _, last = name:find(part, at or #name + 1, true)
      at = last and last + 1
      if not at then break end
    end
    if at and at > 1 and not seen[name] and #found < 3 then
      seen[name], found[#found + 1] = true, name
    end
  end
  return found
end

--- The name of a value as the plan has it: "block4.gelu" is "block4/gelu" too. Raises with the
-- nearest name.
local function known_name(p, name)
  -- Users write a path with dots as well.
  if p:_value(name) then return name end
  local slashed = name:gsub("%.", "/")
  if p:_value(slashed) then return slashed end

  -- A blob of the net may be no value of the plan: fused away, or dropped since nobody reads it.
  -- The plan knows why.
  local why, into = p:_gone(name)
  if not why then why, into = p:_gone(slashed) end
  if why then
    error(core.error {
      code = "name",
      message = ("the plan of \"%s\" has no blob \"%s\": %s"):format(figures(p).net, name, why),
      hint = into and "keep it, or plan with fuse = false; plan:rewrites() lists what was fused"
        or "keep it",
    })
  end
  local names = {}
  for _, v in ipairs(p:_values()) do names[#names + 1] = v.blob end

  -- Else it is a slip: the nearest name, or names that have its parts.
  local near = options.nearest(name, names) or options.nearest(slashed, names)
  local like = not near and names_with(slashed, names) or {}
  error(core.error {
    code = "name",
    message = ("the plan of \"%s\" has no blob \"%s\""):format(figures(p).net, name),
    hint = near and ("did you mean \"%s\"?"):format(near)
      or #like > 0 and "there are " .. table.concat(like, ", ")
      or "plan:values() lists them, as neap plan .. --values does",
  })
end

local function signed(n) return (n < 0 and "-" or "+") .. bytes(math.abs(n)) end

--- The line of an explanation that says what keeping a blob costs, from a plan in which it is kept.
local function keep_price(p, name)
  local ok, kept = pcall(again.plan, "plan:explain", p, { keep = name })
  if not ok then
    return ("keep = {\"%s\"} can't be had: %s"):format(name, (tostring(kept):gsub("\n.*", "")))
  end
  return ("keep = {\"%s\"} costs %s in all, planned again: the arena %s."):format(
    name, signed(kept.total_bytes - p.total_bytes), signed(kept.arena_bytes - p.arena_bytes))
end

--- plan:explain([blob]) -> Report whose text says where the blob lies and why; without one, the
-- whole plan.
function Plan:explain(blob)
  local name = type(blob) == "table" and blob.name or blob
  local rows = {}
  if name then
    name = known_name(self, name)
    rows[1] = self:_value(name)
  end
  local text = self:_explain(name)

  -- Where it is known what the plan was made of, the general advice to keep the blob gets its
  -- price.
  if name and again.is_known(self) and text:find('keep = {"', 1, true) then
    text = text:gsub("keep = {\"[^\n]*", function() return keep_price(self, name) end)
  end
  local maker = rows[1] and self:_ops()[rows[1].first_step]
  local kernel = maker and kernels.line(self, maker)
  if kernel then text = text .. kernel .. "\n" end
  return report.new {
    rows = rows,
    text = text,
    columns = { "blob", "bytes", "offset_bytes", "first_step", "last_step", "reason", "refusal" },
    totals = named(self, rows[1] or {}),
  }
end

--- plan:peak() -> Report: what is alive when the most is, largest first. A storage counts by its
-- newest value that lives.
function Plan:peak()
  -- What is live at the peak: of each storage the newest value that has begun, since older versions
  -- are overwritten by it.
  local step, rows, at = figures(self).peak_step, {}, {}
  for _, v in ipairs(self:_values()) do
    if v.region == "arena" and v.bytes > 0 and v.first_step <= step and step <= v.last_step then
      local i = at[v.storage_no]
      if i == nil then
        i = #rows + 1
        at[v.storage_no] = i
      end
      if rows[i] == nil or v.first_step >= rows[i].first_step then rows[i] = v end
    end
  end
  table.sort(rows, function(a, b)
    if a.bytes ~= b.bytes then return a.bytes > b.bytes end
    return a.value_no < b.value_no
  end)
  return report.new {
    rows = rows,
    text = self:_peak(),
    columns = { "blob", "bytes", "shape", "first_step", "last_step", "line" },
    totals = named(self, { peak_step = step, arena_bytes = figures(self).arena_bytes }),
  }
end

--- plan:curve() -> Report: live bytes step by step; tostring is a line of blocks. plan:curve
-- "batch", "budget" and "policy", with a list of points or without: arena_bytes of a plan for each
-- of several batches, of budgets down to the least that can be met, with what is recomputed, or of
-- the policies by which values get their addresses.
-- @usage print(plan:curve "budget") print(plan:curve("batch", { 1, 10, 100 }))
function Plan:curve(kind, points)
  if kind == "batch" then return whatif.by_batch(self, points) end
  if kind == "budget" then return whatif.by_budget(self, points) end
  if kind == "policy" then return whatif.by_policy(self, points) end
  if kind ~= nil then
    fail(("plan:curve expects \"batch\", \"budget\", \"policy\" or nothing, got %s"):format(
      options.shown(kind)))
  end
  local rows, bytes, most = {}, {}, 1
  for i, o in ipairs(self:_ops()) do
    rows[i] = { step = i, name = o.name, live_bytes = o.live_bytes }
    bytes[i] = o.live_bytes
    most = math.max(most, o.live_bytes)
  end
  return report.new {
    rows = rows,
    columns = { "step", "name", "live_bytes" },
    text = report.sparkline(bytes, 0, most),
    totals = { peak_bytes = most },
  }
end

--- plan:why(a, b) -> Report whose text says what makes two blobs share bytes, or what keeps them
-- apart; its rows are the two values. plan:why(a) is plan:explain(a): where it lies, and with whom
-- it shares.
-- @usage print(plan:why("relu1", "conv2"))
function Plan:why(a, b)
  if b == nil then return self:explain(a) end
  local names = {}
  for i, blob in ipairs { a, b } do
    names[i] = known_name(self, type(blob) == "table" and blob.name or blob)
  end
  local rows = { self:_value(names[1]), self:_value(names[2]) }

  -- Together: one storage (an alias, in place), or places in the arena that overlap, whose values
  -- then live at different times.
  return report.new {
    rows = rows,
    text = self:_why(names[1], names[2]),
    columns = { "blob", "bytes", "offset_bytes", "first_step", "last_step", "reason" },
    totals = named(self, {
      together = rows[1].storage_no == rows[2].storage_no
        or rows[1].region == "arena"
          and rows[2].region == "arena"
          and rows[1].offset_bytes < rows[2].offset_bytes + rows[2].bytes
          and rows[2].offset_bytes < rows[1].offset_bytes + rows[1].bytes,
    }),
    order = {},
  }
end

--- plan:diff(other) -> Report of what is different in the other plan, layer by layer, the largest
-- change first: layer, what ("added", "removed", "renamed" or ""), before_bytes, after_bytes,
-- change_bytes. The changes add up to that of the totals before_bytes and after_bytes;
-- memory_percent is its share.
-- @usage print(model:plan { batch = 8 }:diff(model:plan { batch = 8, policy = "none" }))
function Plan:diff(other)
  if (debug.getmetatable(other) or {}).__name ~= "neap.plan" then
    fail("plan:diff expects another plan")
  end
  return diff.sides(diff.of_plan(self), diff.of_plan(other))
end

--- The text, or with a path a file of it: true, or nil, message, code.
local function given(text, path)
  if path then return core.write_text(path, text) end
  return text
end

local dot_options = record.declare("plan:dot", { call = "(path, {})",
  doc = [[The net as it runs as Graphviz text, backward, inserted ops and subnets included, one
    colour per place in the arena, grey for what has bytes of its own; with a path, true or nil,
    message, code.]],
  { "fold", "integer", 0, min = 0, max = 1000, doc = [[ops of a scope are one box, for each path of
      so many parts, with what only they read or write inside; 0: every op is drawn]] },
  example = 'model:plan { batch = 8, train = true }:dot("blocks.dot", { fold = 1 })' })

--- plan:dot([path [, { .. }]]) -> text, or true, or nil, message, code: see the record.
function Plan:dot(path, o) return given(self:_dot(dot_options:read(o).fold), path) end

local svg_options = record.declare("plan:svg", { call = "(path, {})",
  doc = [[SVG text: bytes by name over op order. Each storage is a box from its first step to its
    last, at its place in the arena; scratch is hatched, the peak marked, resident regions drawn
    apart. Steps side by side at which the arena holds nothing, as updates, are one narrow column;
    where the axis is time the head says of which runs.
    With a path, true or nil, message, code.]],
  { "color", "choice", "category", choices = { "category", "layer" },
    doc = "what the colours of boxes mean" },
  { "time", "boolean|table", false,
    doc = [[the axis is time, as ops took in the run given here; true: in the stored ones of this
      net and mode that are most like it; false: the axis is steps]] },
  example = 'model:plan { batch = 8, train = true }:svg("lenet.svg", { color = "layer" })' })

--- plan:svg([path [, { .. }]]) -> text, or true, or nil, message, code: see the record.
function Plan:svg(path, o)
  o = svg_options:read(o)
  local ns, times_of

  -- Time as the axis: by the run that is given, or stored ones.
  if o.time then
    local run
    if o.time ~= true then run = o.time end
    local measured = times.measured("plan:svg", run, self)
    if not measured then
      fail(("plan:svg: no run of \"%s\" with op times is stored; neap profile run NET measures \z
        them"):format(figures(self).net))
    end
    local known
    ns, known, times_of = times.steps(self, measured)
    if known < times.least_known then
      fail(("plan:svg: of the ops' time %.0f %% was measured, by the same kernels, in the same \z
        dtype and on as many threads; neap profile run NET, with the options of the plan, \z
        measures it"):format(100 * known))
    end
  end
  return given(self:_svg(o.color == "layer", ns, times_of), path)
end

--- plan:html([path [, other]]) -> text, or true, or nil, message, code: a report as one HTML file,
-- which needs no network: memory map, live bytes, layers, times, the net. With another plan, both
-- side by side and what has changed. Times are those of the stored runs of the net in this
-- mode that are most like the plan, where most of it was measured.
-- @usage model:plan { batch = 8, train = true }:html "lenet.html"
function Plan:html(path, other)
  local function side(p)
    if (debug.getmetatable(p) or {}).__name ~= "neap.plan" then
      fail("plan:html expects a plan to compare with, got " .. options.shown(p))
    end
    return times.into(diff.of_plan(p), p)
  end
  return given(html.page(side(self), other ~= nil and side(other) or nil), path)
end

-- ---- runs ---------------------------------------------------------------------------------------

local Run = {}
plan.Run = Run
Run.__index = Run
Run.__name = "neap.run"

--- What a profiled program measured so far.
-- @return run {plan, median_ns, min_ns, n_step, held_bytes (of the workspace), process_bytes, ...}
function plan.run(program)
  local self = program:stats()
  self.plan, self.times = program.plan, program:times()
  return setmetatable(self, Run)
end

local function check_times(self)
  if self.times then return end
  error(core.error {
    code = "argument", message = "run: nothing was measured op by op", expected = "one plan",
    got = "a dynamic program, whose plans change as it runs",
    hint = "run.median_ns, .n_step and .held_bytes are there",
  })
end

--- run:ops() -> Report of times op by op, in the order of the schedule. median_us and p95_us are of
-- all calls, gflop_per_s is of the median, percent of the sum of medians, 0 of what makes constants
-- and is no part of a step: the same figures as the view v_op_time has.
function Run:ops()
  check_times(self)
  local rows, total = {}, 0
  for i, o in ipairs(self.plan:_ops()) do
    local t = self.times[i]
    if not o.once then total = total + t.median_ns end
    rows[i] = {
      step = i,
      once = o.once,
      name = o.name,
      type = o.type,
      phase = o.phase,
      engine = o.engine,
      dtype = o.dtype,
      median_us = t.median_ns / 1000,
      min_us = t.min_ns / 1000,
      p95_us = t.p95_ns / 1000,
      gap_us = t.n_call > 0 and t.gap_ns / t.n_call / 1000 or 0,
      n_call = t.n_call,
      line = o.line,
      gflop_per_s = t.median_ns > 0 and o.flops / t.median_ns or 0,
      live_bytes = o.live_bytes,
    }
  end

  -- Shares of the medians' sum: medians are not of one step, so they add up to themselves only.
  for _, row in ipairs(rows) do
    row.percent = total > 0 and not row.once and 100 * row.median_us * 1000 / total or 0
  end
  return report.new {
    rows = rows,
    columns = {
      "step", "name", "type", "phase", "engine", "median_us", "min_us", "p95_us", "percent",
      "gflop_per_s", "live_bytes", "line",
    },
    totals = { median_ns = self.median_ns, n_step = self.n_step },
    order = { "n_step", "median_ns" },
  }
end

local table_options = record.declare("run:table", {
  doc = "A Report of the ops of a run, those that take longest first.",
  { "sort", "name", "median_us", doc = "column of run:ops() to sort by, the largest first" },
  { "limit", "integer", min = 0, unset = "all", doc = "how many rows are shown" },
  example = 'run:table { sort = "live_bytes", limit = 20 }' })

--- run:table{ .. } -> Report: see the record.
function Run:table(given)
  local o = table_options:read(given)
  local all, rows, key = self:ops(), {}, o.sort
  if all[1] and all[1][key] == nil then
    fail(("run:table: sort expects a column, one of %s, got \"%s\""):format(
      table.concat(all:columns(), ", "), tostring(key)))
  end

  -- Shown are the largest; of equals the earlier in the schedule.
  for i = 1, #all do rows[i] = all[i] end
  table.sort(rows, function(a, b)
    if a.once ~= b.once then return b.once end -- what is no part of a step comes last
    if a[key] ~= b[key] then return a[key] > b[key] end
    return a.step < b.step
  end)
  for i = #rows, math.min(o.limit or #rows, #rows) + 1, -1 do rows[i] = nil end
  return report.new {
    rows = rows,
    columns = all:columns(),
    totals = { median_ns = self.median_ns },
    order = { "median_ns" },
  }
end

--- run:diff(other) -> Report as of plan:diff, with times: change_ns of a layer, its noise_ns (how
-- much medians are above the fastest calls), is_clear where the change is more than that; totals
-- before_ns, after_ns, time_percent.
function Run:diff(other)
  check_times(self)
  if getmetatable(other) ~= Run then fail("run:diff expects another run") end
  check_times(other)
  return diff.sides(diff.of_plan(self.plan, self.times, self.median_ns),
    diff.of_plan(other.plan, other.times, other.median_ns))
end

--- run:html([path [, other]]) -> text, or true, or nil, message, code: as plan:html, of a run, with
-- its own times and what the database has of its course; `other` is a run.
-- @usage program:profile { steps = 20 }:html "lenet.html"
function Run:html(path, other)
  local function side(run)
    if getmetatable(run) ~= Run then
      fail("run:html expects a run to compare with, got " .. options.shown(run))
    end

    -- What the database has of a run's course is added where the run is stored.
    local made = diff.of_plan(run.plan, run.times, run.median_ns)
    local db = (run.run_id or 0) > 0 and core.used_db()
    if db then
      diff.add_course(made, db, run.run_id)
      made.roof = diff.roof_of(db, run.run_id)
    end
    return made
  end
  return given(html.page(side(self), other ~= nil and side(other) or nil), path)
end

local trace_options = record.declare("run:trace", { call = "(path, {})",
  doc = [[The last steps, call by call, as a file for other programs: steps, in them phases, layers
    and ops, by thread, with the bytes that the plan has live. With a path, true or nil, message,
    code; without one the text. The last 15 calls of each op are there: measuring takes no
    memory.]],
  { "format", "choice", "perfetto", choices = trace.formats,
    doc = [[perfetto: ui.perfetto.dev and chrome://tracing; speedscope; memory_viz: a snapshot of
      memory for PyTorch's viewer, a pickle, since it reads nothing else]] },
  example = 'program:profile { steps = 5 }:trace("steps.json")' })

--- run:trace([path [, { .. }]]) -> text, or true, or nil, message, code: see the record.
function Run:trace(path, o)
  check_times(self)
  if #self.times > 0 and not self.times[1].recent_ns then
    error(core.error {
      code = "argument", message = "run:trace: the calls were not kept one by one",
      expected = "profile = true", got = "none",
      hint = "give the trainer, or ws:compile, profile = true; times by op are there without it",
    })
  end
  return given(trace.text(self, trace_options:read(o).format), path)
end

--- The ops that take longest; of a dynamic program what there is, in a line.
Run.__tostring = function(self)
  if self.times then return tostring(self:table { limit = 20 }) end
  return ("run: %d step%s, median %.3f ms, %s held"):format(
    self.n_step, self.n_step == 1 and "" or "s", self.median_ns / 1e6,
    core.bytes_text(self.held_bytes))
end

require("neap.inner.guard").functions(Run, "run:")
return plan
