--- Checks that a user can run on their own nets: what Neap promises of memory, measured.
--
-- `check.plan` runs a net unplanned (policy none: every value has bytes of its own) and planned,
-- with the same choices and the same inputs, and compares all blobs that stay from step to step,
-- bit for bit. It counts what the plan only foretold: the bytes held, read from the counted
-- allocator, and the allocations of each step after the first.
-- @module neap.check
local core = require "neap.core"
local neap = require "neap"
local netfile = require "neap.net.file"
local memory_options = require "neap.memory.options"
local record = require "neap.inner.record"
local report = require "neap.report"
local fail = core.fail
local check = {}

--- Inputs of step k, the same for everybody: floats from -1 to 1, integers below n_class.
local function inputs_of_step(net, k, n_class)
  local feeds = {}
  for i, input in ipairs(net:inputs()) do
    local float = input.dtype == "f32" or input.dtype == "f64"
    if #input.shape == 0 and float then
      feeds[input.name] = core.tensor(0.01, input.dtype)
    else
      -- A Weyl sequence: no two steps alike, no random state touched.
      local x, at = core.zeros { dtype = input.dtype, table.unpack(input.shape) },
        0.31 * k + 0.17 * i
      x:apply_(function()
        at = (at + 0.61803398875) % 1
        return float and 2 * at - 1 or at * n_class // 1
      end)
      feeds[input.name] = x
    end
  end
  return feeds
end

--- Runs `net` for some steps and tells what happened. Everything is released again.
-- @return table { hashes = {blob = bits}, names = sorted list, plan figures, held_bytes,
--   forecast_bytes, allocations, kernels }
local function run(net, o, memory, poison)
  local feeds = {}
  for k = 1, o.steps do feeds[k] = inputs_of_step(net, k, o.n_class) end

  -- Inputs are made before bytes are counted, so that they are not among them.
  collectgarbage()
  collectgarbage()
  local before = core.memory().held
  local ws <close> = neap.workspace { seed = o.seed, store = false }
  ws:poison(poison)
  ws:init(net)
  local program <close> = ws:compile(net, memory)
  local plan = program.plan
  local out = {
    hashes = {}, names = {}, kernels = {}, allocations = 0, forecast_bytes = plan.total_bytes,
    arena_bytes = plan.arena_bytes, lower_bound_bytes = plan.lower_bound_bytes,
    proved = plan.proved, baseline_bytes = plan.baseline_bytes,
    scratch_bytes_max = plan.scratch_bytes_max, n_recomputed = plan.n_recomputed,
    n_changed = plan.n_changed,
  }
  for k = 1, math.max(o.steps, o.count_steps) do
    for name, t in pairs(feeds[math.min(k, o.steps)]) do ws:feed(name, t) end
    local allocations = core.memory().n_alloc
    program:run()
    -- The first step may still make what later ones use.
    if k > 1 then
      out.allocations = math.max(out.allocations, core.memory().n_alloc - allocations)
    end
    if k == o.steps then -- what follows counts allocations only
      for _, blob in ipairs(ws:_blobs()) do
        if blob.kind == "tensor" and not blob.shares then
          out.hashes[blob.name] = ws:view(blob.name):hash()
          out.names[#out.names + 1] = blob.name
        end
      end
    end
  end
  collectgarbage()
  collectgarbage()
  out.held_bytes = core.memory().held - before
  -- what a budget makes run again has the choice of what it repeats
  for _, op in ipairs(plan:_ops()) do
    if not op.recomputes then
      out.kernels[#out.kernels + 1] = op.name .. " " .. op.type .. " " .. op.choice
    end
  end
  table.sort(out.kernels)
  table.sort(out.names)
  return out
end

--- The net of a zoo name, module, net or loaded net file, and its number of classes.
local function net_of(what, o)
  local file = what
  if type(what) == "string" then file = netfile.load(what) end
  if type(what) == "userdata" then file = { net = what } end
  if type(what) == "table" and rawget(what, "_is_module") then
    file = { model = what, batch = 1 }
  end
  if type(file) ~= "table" or not (file.net or file.model) then
    fail("check.plan takes a model, a net, a net file or a name of the zoo")
  end
  return netfile.build(file, { train = o.train, batch = o.batch }), file.n_class or 2
end

local check_options = record.declare("neap.check.plan", {
  doc = [[neap.check.plan(what, { .. }) runs a net unplanned and planned and compares the bits of
    all blobs that stay. It takes the memory options of the planned run, too; both runs have those
    that do not say where bytes lie.]],
  { "train", "boolean", true, doc = "whether the net trains" },
  { "batch", "integer", min = 1, unset = "as the net's file says", doc = "examples of a batch" },
  { "steps", "integer", 3, min = 1, doc = "steps that each of them runs" },
  { "count_steps", "integer", 3, min = 0, doc = "steps in which allocations are counted" },
  { "poison", "boolean", false, doc = "whether bytes that nobody has written hold NaN" },
  { "seed", "integer", 1, doc = "what inputs and draws follow" },
  { "n_class", "integer", min = 1, unset = "as the net's file says", doc = "number of labels" },
  example = 'neap.check.plan("mlp:2", { train = true })',
})

--- What says where bytes lie, and when: an unplanned run has none of it.
local planning = {
  "policy", "executor", "budget", "total", "soft", "recompute", "exact", "in_place", "search",
  "banks", "mem_param",
}

--- The memory options of the unplanned run beside one with `memory`.
local function unplanned(memory)
  local out = {}
  for name, value in pairs(memory) do out[name] = value end
  for _, name in ipairs(planning) do out[name] = nil end
  out.policy = "none"
  return out
end

--- Runs a net unplanned and planned and compares the bits of all blobs that stay.
-- @param what model, net, net file or name of the zoo ("lenet", "gpt:8")
-- @param given table { train = true, batch =, steps = 3, count_steps = 3 (steps in which
--   allocations are counted), poison = bool, seed = 1, n_class = }, and memory options of the
--   planned run; both runs have those that are not of where bytes lie
-- @return Report of the blobs; fields same (bool), n_blob, different (first name), held_bytes,
--   forecast_bytes, allocations, arena_bytes, lower_bound_bytes, proved, baseline_bytes,
--   n_recomputed, n_changed
-- @usage assert(neap.check.plan("lenet:8", { train = true }).same)
function check.plan(what, given)
  local own, memory = memory_options.split("check.plan", given, "lua", check_options)
  local o = check_options:read(own)
  local net, n_class = net_of(what, o)
  o.n_class = o.n_class or n_class
  memory.store = false

  -- The unplanned run has bytes of its own for every value; kernels and inputs are the same.
  local plain = run(net, { steps = o.steps, count_steps = 0, n_class = o.n_class, seed = o.seed },
    unplanned(memory), false)
  local planned = run(net, o, memory, o.poison)
  local rows, different = {}, nil
  for _, name in ipairs(plain.names) do
    local same = plain.hashes[name] == planned.hashes[name]
    if not same and different == nil then different = name end
    rows[#rows + 1] = { blob = name, same = same }
  end

  -- Other kernels would give other bits: the comparison says which it was.
  local choices = table.concat(plain.kernels, "\n") == table.concat(planned.kernels, "\n")
  local totals = {
    same = different == nil and choices and #rows > 0 and #plain.names == #planned.names,
    same_choices = choices,
    n_blob = #rows,
    different = different,
  }
  for _, key in ipairs {
    "held_bytes", "forecast_bytes", "allocations", "arena_bytes", "lower_bound_bytes", "proved",
    "baseline_bytes", "scratch_bytes_max", "n_recomputed", "n_changed",
  } do
    totals[key] = planned[key]
  end
  return report.new {
    rows = rows,
    columns = { "blob", "same" },
    totals = totals,
    order = { "same", "n_blob" },
  }
end

check.gradient = require("neap.check.gradient").check
check.op = require("neap.check.op").check
check.nan = require("neap.check.nan").check

return require("neap.inner.guard").functions(check, "neap.check.")
