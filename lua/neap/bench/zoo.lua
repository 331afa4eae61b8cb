--- `neap bench --zoo`: each net of the zoo at its published size trains a few steps, planned and
-- unplanned, and is let go of before the next.
--
-- A row is one net: its parameters beside the count that its source gives, the arena beside its
-- bound, what the process held at most while it trained as planned, the time of a step, and whether
-- parameters, state and losses have the bits that the unplanned run gives. A net that fails is a
-- row with `error`, and the others go on. INVARIANT: nothing is allocated whose plan is above the
-- limit.
-- @module neap.bench.zoo
local apart = require "neap.bench.apart"
local core = require "neap.core"
local fit_batch = require "neap.memory.fit_batch"
local lists = require "neap.inner.lists"
local netfile = require "neap.net.file"
local report = require "neap.report"
local runs = require "neap.check.runs"

local zoo = {}

--- Fields of a row, in the order of `--json`'s documentation. `batch` is 2, or 1 where 2 do not
-- fit. `same` is whether the bits are those of the unplanned run, which would need
-- `unplanned_bytes`; nil where those are above the limit. `different` is the first blob that is
-- not. `good`: trained, with the published count and the same bits.
zoo.fields = {
  "net", "batch", "parameters", "published", "arena_bytes", "lower_bound_bytes", "proved",
  "baseline_bytes", "held_bytes", "forecast_bytes", "unplanned_bytes", "resident_peak_bytes",
  "step_ms", "allocations_per_step", "same", "different", "good", "error",
}

--- Numbers of a net that are trained.
local function n_parameters(net)
  local total = 0
  for _, blob in ipairs(net:_blobs()) do
    if blob.role == "parameter" then total = total + lists.product(blob.shape) end
  end
  return total
end

--- Bytes that a net may take in all: the total that was asked for, else what the machine has free.
local function limit_of(memory)
  local total = memory.total
  if total == nil or type(total) == "string" and total:find("%", 1, true) then
    return (fit_batch.machine())
  end
  return math.type(total) == "integer" and total or core.parse_bytes(total)
end

--- The net with the largest batch, 2 or 1, whose planned run fits the limit, and what it needs
-- unplanned. Raises for one that does not fit at all.
local function build(file, o, limit)
  for batch = o.batch, 1, -1 do
    local net = netfile.build(file, { train = true, batch = batch })
    local good, plan = pcall(net.plan, net, o.memory)

    -- A plan that is refused may do with fewer rows; what else is wrong is wrong for all.
    if not good and (batch == 1 or type(plan) ~= "table" or plan.code ~= "budget") then
      error(plan, 0)
    end
    if good and plan.total_bytes <= limit then
      return net, batch, net:plan(runs.unplanned(o.memory)).total_bytes
    end
    if batch == 1 then
      error(("needs %s of the %s that it may take"):format(
        core.bytes_text(plan.total_bytes), core.bytes_text(limit)), 0)
    end
  end
end

--- Trains one net and fills its row.
local function fill(row, name, o)
  local file = netfile.load(name)
  row.published = netfile.published(name)

  local limit = limit_of(o.memory)
  local net, batch, unplanned_bytes = build(file, o, limit)
  row.batch, row.unplanned_bytes, row.parameters = batch, unplanned_bytes, n_parameters(net)

  -- Planned first: the peak of the process is then that of the planned run.
  local settings = {
    steps = o.steps, count_steps = o.steps, n_class = file.n_class or 2, seed = 1,
  }
  local planned = runs.run(net, settings, o.memory, false)
  row.resident_peak_bytes = core.memory().resident_peak
  row.allocations_per_step = planned.allocations
  for _, key in ipairs {
    "arena_bytes", "lower_bound_bytes", "proved", "baseline_bytes", "held_bytes", "forecast_bytes",
    "step_ms",
  } do
    row[key] = planned[key]
  end

  settings.count_steps = 0
  if unplanned_bytes <= limit then
    local plain = runs.run(net, settings, runs.unplanned(o.memory), false)
    local totals = runs.compare(plain, planned)
    row.same, row.different = totals.same, totals.different
  end
  row.good = row.parameters == (row.published or row.parameters) and row.same ~= false
end

--- Trains one net in this process; an error becomes part of its row.
-- @param name string of the zoo
-- @param o table {batch = 2, steps = 2, memory = options}
-- @return table with the fields of zoo.fields
function zoo.measure(name, o)
  local memory = { store = false }
  for key, value in pairs(o.memory or {}) do memory[key] = value end
  local row = { net = name }
  local good, why = pcall(fill, row, name,
    { batch = o.batch or 2, steps = o.steps or 2, memory = memory })
  if not good then
    if type(why) == "table" and why.code == "interrupted" then error(why, 0) end
    row.good, row.error = false, tostring(why):match "[^\n]*"
  end
  return row
end

--- Measures one net in a process of its own, which may be ended without those after it.
local function measure_apart(name, o)
  local words = { "bench", "--zoo", name, "--json", "--steps", tostring(o.steps) }
  for _, word in ipairs(o.words or {}) do words[#words + 1] = word end
  local figures, why = apart(o.program, words)
  if figures and figures.rows then return figures.rows[1] end
  return { net = name, good = false, error = figures and figures.error.message or why }
end

--- Trains nets of the zoo one after the other.
-- @param o {nets = names; all without, steps = 2, memory = options, program = path of neap (each
--   net gets a process of its own), words = the options on its command line, on_row = f(row)}
-- @return Report, one row a net; n_good, n_proved, n_same, n_net
function zoo.run(o)
  local names, rows = o.nets or netfile.names(), {}
  for _, name in ipairs(names) do netfile.load(name) end -- a wrong name is told before all work

  local settings = {
    steps = o.steps or 2, memory = o.memory, words = o.words, program = o.program,
  }
  local totals = { n_net = #names, n_good = 0, n_proved = 0, n_same = 0 }
  for i, name in ipairs(names) do
    local row = (o.program and #names > 1 and measure_apart or zoo.measure)(name, settings)
    rows[i] = row
    totals.n_good = totals.n_good + (row.good and 1 or 0)
    totals.n_proved = totals.n_proved + (row.proved and 1 or 0)
    totals.n_same = totals.n_same + (row.same and 1 or 0)
    if o.on_row then o.on_row(row) end
    collectgarbage()
  end
  return report.new {
    rows = rows, columns = zoo.fields, totals = totals,
    order = { "n_net", "n_good", "n_proved", "n_same" },
  }
end

local function mib(bytes) return ("%.1f"):format(bytes / 2 ^ 20) end

--- "=" behind a figure that is the one beside it, "!" behind one that is not.
local function mark(same) return same and "=" or "!" end

-- The columns for people: {title, width, text of a row}.
local columns = {
  { "net", -23, function(r) return r.net .. ":" .. r.batch end },
  {
    "parameters", 12,
    function(r)
      return r.parameters .. (r.published and mark(r.parameters == r.published) or " ")
    end,
  },
  { "arena", 8, function(r) return mib(r.arena_bytes) end },
  { "bound", 9, function(r) return mib(r.lower_bound_bytes) .. mark(r.proved) end },
  { "no reuse", 8, function(r) return mib(r.baseline_bytes) end },
  { "held", 8, function(r) return mib(r.held_bytes) .. mark(r.held_bytes == r.forecast_bytes) end },
  { "resident", 8, function(r) return mib(r.resident_peak_bytes) end },
  { "step ms", 8, function(r) return ("%.4g"):format(r.step_ms) end },
  { "bits", 6, function(r) return r.same == nil and "-" or r.same and "same" or "others" end },
}

local function line_of(text)
  local parts = {}
  for i, column in ipairs(columns) do parts[i] = ("%" .. column[2] .. "s"):format(text(column)) end
  return table.concat(parts, " ")
end

--- What stands above the rows; `zoo.line(row)` is one of them.
function zoo.head()
  return ("bytes in MiB, %d threads. parameters =: as published; bound =: the arena is the least \z
      for these\nkernels and this order; held =: as forecast; bits: beside the unplanned run\n%s")
    :format(core.threads(), line_of(function(column) return column[1] end))
end

function zoo.line(row)
  -- Of a refusal the first words are enough here; --json has all.
  local why = row.error
  if why then
    return ("%-23s %s"):format(row.net, #why > 76 and why:sub(1, 74) .. ".." or why)
  end
  return line_of(function(column) return column[3](row) end)
end

return zoo
