--- Benchmarks: real steps of the benchmark nets, with the bytes held counted apart from what the
-- plan says.
--
-- held_bytes is the counted allocator's live DATA bytes minus those before the workspace was made:
-- it knows nothing of the plan. allocations_per_step is the most allocations of any step after two
-- to warm up. resident_peak_bytes is the process's; so `bench.run` gives each net a process of its
-- own when there are several.
-- @module neap.bench
local apart = require "neap.bench.apart"
local core = require "neap.core"
local neap = require "neap"
local report = require "neap.report"
local netfile = require "neap.net.file"
local bench = {}

bench.nets = {
  "mlp:128", "lenet:64", "resnet18c:32", "resnet50:16", "vgg16:8", "googlenet:16", "lstm:32",
  "gpt:8",
}

--- Names of the fields of a row, in the order of `--json`'s documentation.
bench.fields = {
  "net", "mode", "batch", "dtype", "threads", "engine", "step_ms_min", "step_ms_median",
  "arena_bytes", "lower_bound_bytes", "proved", "baseline_bytes", "scratch_bytes_max",
  "held_bytes", "forecast_bytes", "resident_peak_bytes", "flops", "allocations_per_step",
}

local n_warm_up = 2

local function median(list)
  local sorted = table.move(list, 1, #list, 1, {})
  table.sort(sorted)

  local n = #sorted
  return n % 2 == 1 and sorted[n // 2 + 1] or (sorted[n // 2] + sorted[n // 2 + 1]) / 2
end

--- Feeds one input: normal for floats, the learning rate for a scalar, numbers below n_class for
-- integers. The workspace copies: the tensor made here is garbage afterwards.
local function feed_random(ws, input, n_class)
  local shape = input.shape
  if input.dtype == "f32" or input.dtype == "f64" then
    ws:feed(input.name,
      #shape == 0 and core.tensor(0.01, input.dtype)
        or neap.randn { dtype = input.dtype, table.unpack(shape) })
    return
  end

  -- Labels in an order that is not that of the classes: 7919 is prime, so that all of them come.
  local t, i = core.zeros { dtype = input.dtype, table.unpack(shape) }, 0
  t:apply_(function()
    i = i + 1
    return (i * 7919) % n_class
  end)
  ws:feed(input.name, t)
end

local Setup = {}
Setup.__index = Setup
Setup.__close = function(s)
  s.program:close()
  s.ws:close()
end

--- Bytes of tensors taken since the setup began.
function Setup:held()
  collectgarbage()
  collectgarbage()
  return core.memory().held - self.before
end

--- Compiles one net in a workspace of its own, fed and ready to step.
-- @param file table of netfile.load
-- @param o table {train =, batch =, memory = options}
-- @return setup {ws =, program =, held = method}; to be closed
function bench.prepare(file, o)
  local net = netfile.build(file, { train = o.train, batch = o.batch })

  -- What is garbage is freed before the count: twice, since finalisers run in the first round.
  collectgarbage()
  collectgarbage()
  local before = core.memory().held
  local ws = neap.workspace { seed = 1 }
  ws:init(net)
  local program = ws:compile(net, netfile.memory(file, o.memory or {}))
  for _, input in ipairs(net:inputs()) do feed_random(ws, input, file.n_class or 2) end
  return setmetatable({ ws = ws, program = program, before = before }, Setup)
end

--- Milliseconds of each step after the warm-up, and the most allocations of one.
local function time_steps(program, o)
  local times, most = {}, 0

  -- Warmed up: the first steps choose and fill what later ones use.
  program:run(n_warm_up)
  local start = core.clock()
  for i = 1, o.steps do
    local n_alloc, t = core.memory().n_alloc, core.clock()
    program:run()
    times[i] = (core.clock() - t) * 1e3
    most = math.max(most, core.memory().n_alloc - n_alloc)
    -- Five steps at the least, then as many as the time allows.
    if i >= math.min(5, o.steps) and core.clock() - start > o.seconds then break end
  end
  return times, most
end

--- "blas+dnnl+ref": the engines of a plan's ops.
local function engines(plan)
  local seen, names = {}, {}
  for _, o in ipairs(plan:_ops()) do
    if not seen[o.engine] then
      seen[o.engine] = true
      names[#names + 1] = o.engine
    end
  end
  table.sort(names)
  return table.concat(names, "+")
end

--- The dtype of the activations: that of the largest.
local function dtype_of(plan)
  local best, most = "f32", -1
  for _, v in ipairs(plan:_values()) do
    if v.role == "activation" and v.bytes > most then best, most = v.dtype, v.bytes end
  end
  return best
end

--- Measures one net in this process.
-- @param name string "lenet:64"
-- @param o table {train =, steps = 10, seconds = 4, memory = options}
-- @return table with the fields of bench.fields
function bench.measure(name, o)
  local file = netfile.load(name)
  local setup <close> = bench.prepare(file, o)
  local program, plan = setup.program, setup.program.plan
  local times, n_alloc = time_steps(program, { steps = o.steps or 10, seconds = o.seconds or 4 })
  return {
    net = file.name,
    mode = o.train and "train" or "infer",
    batch = plan.batch,
    dtype = dtype_of(plan),
    threads = core.threads(),
    engine = engines(plan),
    step_ms_min = math.min(table.unpack(times)),
    step_ms_median = median(times),
    steps = #times,
    arena_bytes = plan.arena_bytes, lower_bound_bytes = plan.lower_bound_bytes,
    proved = plan.proved, baseline_bytes = plan.baseline_bytes,
    scratch_bytes_max = plan.scratch_bytes_max,
    held_bytes = setup:held(),
    forecast_bytes = plan.total_bytes,
    resident_peak_bytes = core.memory().resident_peak,
    flops = plan.flops,
    allocations_per_step = n_alloc,
  }
end

--- Measures one net in a process of its own: this program's `bench NET --json`.
local function measure_apart(name, o)
  -- The same options on its command line, so that both measure the same.
  local words = {
    "bench", name, "--json", "--steps", tostring(o.steps), "--seconds", tostring(o.seconds),
  }
  if not o.train then words[#words + 1] = "--infer" end
  for _, word in ipairs(o.words or {}) do words[#words + 1] = word end

  local rows, code = apart(o.program, words)
  if code ~= 0 then error(name .. ": failed", 0) end
  return rows[1]
end

--- Measures nets one after the other.
-- @param o {nets = {"lenet:64", ...}, train =, steps = 10, seconds = 4, memory = options, program =
--   path of neap (each net gets a process of its own), words = the options on its command line,
--   on_row = function(row)}
-- @return Report, one row a net
function bench.run(o)
  local rows, names = {}, o.nets or bench.nets

  local settings = {
    train = o.train,
    steps = o.steps or 10,
    seconds = o.seconds or 4,
    memory = o.memory,
    words = o.words,
    program = o.program,
  }
  -- a wrong name is told before minutes of work
  for _, name in ipairs(names) do netfile.load(name) end
  for i, name in ipairs(names) do
    rows[i] = (o.program and #names > 1 and measure_apart or bench.measure)(name, settings)
    if o.on_row then o.on_row(rows[i]) end
  end
  return report.new { rows = rows, columns = bench.fields }
end

local function mib(bytes) return ("%.1f"):format(bytes / 2 ^ 20) end

-- The columns for people: {title, width, text of a row}.
local columns = {
  { "net", -13, function(r) return r.net .. ":" .. r.batch end },
  { "mode", -5, function(r) return r.mode end },
  { "ms min", 8, function(r) return ("%.4g"):format(r.step_ms_min) end },
  { "median", 7, function(r) return ("%.4g"):format(r.step_ms_median) end },
  { "arena", 7, function(r) return mib(r.arena_bytes) end },
  { "bound", 8, function(r) return mib(r.lower_bound_bytes) .. (r.proved and "=" or " ") end },
  { "no reuse", 8, function(r) return mib(r.baseline_bytes) end },
  { "scratch", 7, function(r) return mib(r.scratch_bytes_max) end },
  {
    "held", 8,
    function(r) return mib(r.held_bytes) .. (r.held_bytes == r.forecast_bytes and "=" or "!") end,
  },
  { "resident", 8, function(r) return mib(r.resident_peak_bytes) end },
  { "allocs", 6, function(r) return tostring(r.allocations_per_step) end },
}

local function line_of(text)
  local parts = {}
  for i, column in ipairs(columns) do parts[i] = ("%" .. column[2] .. "s"):format(text(column)) end
  return (table.concat(parts, " "):gsub("%s+$", ""))
end

--- What stands above the rows; `bench.line(row)` is one of them.
function bench.head()
  return ("bytes in MiB, %d threads. bound =: the arena is the least for these kernels and this \z
      order;\n"
    .. "held =: as forecast; allocs: per step after %d\n%s"):format(
    core.threads(), n_warm_up, line_of(function(column) return column[1] end))
end

function bench.line(row) return line_of(function(column) return column[3](row) end) end

--- Operations a second of the fastest of the ops, rows of run:ops(), in each dtype.
local function fastest_of(ops)
  local most = {}
  for _, row in ipairs(ops) do
    if row.dtype then
      most[row.dtype] = math.max(most[row.dtype] or 0, row.gflop_per_s * 1e9)
    end
  end
  return most
end

--- Runs `steps` with a profile and stores it.
-- @param o {train =, batch =, steps = 10, limit = 30, memory = options, trace = path, format =}
-- @return Report of the ops by time
function bench.profile(file, o)
  -- A plan that is measured op by op; what the command line says goes over it.
  local memory = { profile = true }
  for name, value in pairs(o.memory or {}) do memory[name] = value end
  local setup <close> = bench.prepare(file, { train = o.train, batch = o.batch, memory = memory })
  setup.program:run(n_warm_up)
  local run = setup.program:profile { steps = o.steps or 10 }

  -- The roof under which these times stand: measured the first time, and again where an op was
  -- faster, since the machine was busy then.
  local shown, ops = run:table { limit = o.limit or 30 }, run:ops()
  if #ops > #shown then require("neap.report").add_total(shown, "rows_in_all", #ops) end
  local roof = require("neap.machine").peaks { seen = fastest_of(ops) }
  require("neap.report").add_total(shown, "machine_measured", roof.measured)
  if o.trace then require("neap.cli").need(run:trace(o.trace, { format = o.format })) end
  return shown
end

return bench
