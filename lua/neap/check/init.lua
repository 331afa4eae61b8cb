--- Checks that a user can run on their own nets: what Neap promises of memory, measured.
--
-- `check.plan` runs a net unplanned (policy none: every value has bytes of its own) and planned,
-- with the same choices and the same inputs, and compares all blobs that stay from step to step,
-- bit for bit (neap.check.runs). It counts what the plan only foretold: the bytes held, read from
-- the counted allocator, and the allocations of each step after the first.
-- @module neap.check
local core = require "neap.core"
local netfile = require "neap.net.file"
local memory_options = require "neap.memory.options"
local record = require "neap.inner.record"
local report = require "neap.report"
local runs = require "neap.check.runs"
local fail = core.fail
local check = {}

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
  local plain = runs.run(net,
    { steps = o.steps, count_steps = 0, n_class = o.n_class, seed = o.seed },
    runs.unplanned(memory), false)
  local planned = runs.run(net, o, memory, o.poison)
  local totals, rows = runs.compare(plain, planned)
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
