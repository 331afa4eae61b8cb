--- Benchmarks: real steps of the benchmark nets, with the bytes held counted apart from what the plan says.
--
-- held_bytes is the counted allocator's live DATA bytes minus those before the workspace was made: it knows nothing of
-- the plan. allocations_per_step is the most allocations of any step after the first.
-- @module neap.bench
local core = require "neap.core"
local neap = require "neap"
local report = require "neap.report"
local netfile = require "neap.netfile"
local bench = {}

bench.nets = { "mlp:128", "lenet:64", "resnet18c:32", "resnet50:16", "vgg16:8", "gpt:8" }

local function median(list)
  table.sort(list)
  local n = #list
  return n % 2 == 1 and list[n // 2 + 1] or (list[n // 2] + list[n // 2 + 1]) / 2
end

--- Random contents for the inputs of a net: normal for floats, numbers below n_class for integers.
local function random_inputs(net, n_class)
  local feeds = {}
  for _, input in ipairs(net:inputs()) do
    local shape = input.shape
    if input.dtype == "f32" or input.dtype == "f64" then
      feeds[input.name] = #shape == 0 and core.tensor(0.01) or neap.randn { dtype = input.dtype, table.unpack(shape) }
    else
      local t = core.zeros { dtype = input.dtype, table.unpack(shape) }
      local i = 0
      t:apply_(function()
        i = i + 1
        return (i * 7919) % n_class
      end)
      feeds[input.name] = t
    end
  end
  return feeds
end

--- Compiles one net in a workspace of its own, ready to step.
-- @return table {ws =, program =, held = function() -> bytes}
local function prepare(file, o)
  local net = netfile.build(file, { train = o.train, batch = o.batch })
  local feeds = random_inputs(net, file.n_class or 2)
  collectgarbage()
  local before = neap.memory().held
  local ws = neap.workspace { seed = 1 }
  ws:init(net)
  local program = ws:compile(net, { profile = o.profile, engine = o.engine, store = o.store, policy = o.policy, executor = o.executor })
  for name, tensor in pairs(feeds) do ws:feed(name, tensor) end
  return { ws = ws, program = program, held = function() return neap.memory().held - before end, before = before }
end
bench.prepare = prepare

local function time_steps(run, o)
  local times, most = {}, 0
  run()
  local start = core.clock()
  for i = 1, math.max(o.steps, 5) do
    local allocations, t = core.memory_stats().n_alloc, core.clock()
    run()
    times[#times + 1] = (core.clock() - t) * 1e3
    most = math.max(most, core.memory_stats().n_alloc - allocations)
    if i >= 5 and core.clock() - start > (o.seconds or 4) then break end
  end
  return times, most
end

--- The process's resident peak starts again from now; without effect where the system has no such switch.
local function reset_peak()
  local file = io.open("/proc/self/clear_refs", "w")
  if file then
    file:write "5"
    file:close()
  end
end

--- "dnnl+blas+ref": the engines of a plan's ops.
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

--- One row of the table.
function bench.measure(name, o)
  local file = netfile.load(name)
  reset_peak()
  local setup <close> = setmetatable(prepare(file, o), { __close = function(s)
    s.program:close()
    s.ws:close()
  end })
  local program, plan = setup.program, setup.program.plan
  local times, allocations = time_steps(function() program:run() end, o)
  return {
    net = file.name, mode = o.train and "train" or "infer", batch = o.batch or file.batch, dtype = "f32", threads = core.threads(),
    engine = o.engine or engines(plan), step_ms_min = math.min(table.unpack(times)), step_ms_median = median(times),
    arena_bytes = plan.arena_bytes, lower_bound_bytes = plan.lower_bound_bytes, proved = plan.proved, baseline_bytes = plan.baseline_bytes,
    scratch_bytes_max = plan.scratch_bytes, held_bytes = setup.held(), forecast_bytes = plan.total_bytes,
    resident_peak_bytes = core.memory_stats().resident_peak, flops = plan.flop, allocations_per_step = allocations,
  }
end

--- The table.
-- @param o {nets = {"lenet:64", ...}, infer = bool, steps =, seconds =, engine =}
function bench.run(o)
  local rows = {}
  for _, name in ipairs(o.nets or bench.nets) do
    rows[#rows + 1] = bench.measure(name, { train = not o.infer, batch = math.tointeger(name:match ":(%d+)$"), steps = o.steps or 10,
      seconds = o.seconds, engine = o.engine })
    collectgarbage()
  end
  return report.new(rows, { columns = { "net", "mode", "batch", "threads", "engine", "step_ms_min", "step_ms_median", "arena_bytes",
    "lower_bound_bytes", "proved", "baseline_bytes", "scratch_bytes_max", "held_bytes", "resident_peak_bytes", "allocations_per_step" } })
end

--- Runs `steps` with a profile and stores it; the ops by time.
function bench.profile(file, o)
  local setup <close> = setmetatable(prepare(file, { train = o.train, batch = o.batch, profile = true }), { __close = function(s)
    s.program:close()
    s.ws:close()
  end })
  setup.program:run()
  local run = setup.program:profile { steps = o.steps or 10 }
  setup.program:record()
  return run:table { limit = o.limit or 30 }
end

return bench
