--- `mem_param`: Caffe's words for Neap's memory options.
--
--   mem_param = { optimize_train = true, optimize_test = false, exclude_blob = { "conv1" },
--   debug_info = false }
--
-- Wherever memory options go (net:plan, ws:compile, ws:run, m:plan, a trainer's `memory`), the
-- engine puts it into `policy` and names to keep (src/driver/mem_param.c); there is no second
-- planner behind it, and no second graph. Defaults are those of Caffe: training is planned,
-- testing is not, so that a script that looks at blobs in the middle finds them. `debug_info`
-- switches planning off.
--
-- Data and gradient ("diff") of a blob are separate keys: "conv1" stands for both, "conv1.data" and
-- "conv1.grad" (or "conv1.diff") for one.
--
-- With planning on, these have bytes of their own, data and gradient: the net's inputs and outputs,
-- what ops without inputs make, every loss, and what exclude_blob lists. A loss is what a loss op
-- gives, whether or not a gradient is taken of it, what a gradient is taken of, and the scalars
-- that one is summed from.
--
-- A net file may have one too, as a net of Caffe's has: return { model = .., mem_param = {
-- exclude_blob = { "conv1" } } }.
-- @module neap.memory.mem_param
local core = require "neap.core"
local record = require "neap.inner.record"
local report = require "neap.report"
local fail = core.fail

local mem_param = {}

local mem_param_options = record.declare("neap.mem_param", {
  doc = [[Caffe's words for memory options. Blobs of exclude_blob must be in a net that it plans.
    Where it leaves planning off every blob has bytes of its own, and none is looked up: one
    mem_param serves training, which has a loss, and the test net beside it, which has none.]],
  { "optimize_train", "boolean", true, doc = "whether training is planned" },
  { "optimize_test", "boolean", false, doc = "whether testing is planned" },
  { "exclude_blob", "any", unset = "none", says = "names of blobs",
    doc = "blobs that keep bytes of their own" },
  { "debug_info", "boolean", false, doc = "switches planning off, so that all can be looked at" },
  example = 'neap.mem_param { exclude_blob = { "conv1" } }' })
local Param = { __name = "neap.mem_param" }

--- Makes or checks a mem_param. Blobs of exclude_blob must be in a net that it plans. Where it
-- leaves planning off every blob has bytes of its own, and none is looked up: one mem_param serves
-- training, which has a loss, and the test net beside it, which has none.
-- @param given table|nil { optimize_train = true, optimize_test = false, exclude_blob = name or
--   list, debug_info = false }
-- @return table with all four fields
-- @usage print(model:plan { mem_param = { exclude_blob = { "relu1" } } })
function mem_param.new(given)
  if getmetatable(given) == Param then return given end
  if given ~= nil and type(given) ~= "table" then
    fail("mem_param expects a table, got a " .. type(given))
  end
  local o = mem_param_options:read(given, "mem_param")

  -- A name or a handle alone stands for a list of one.
  local list = o.exclude_blob or {}
  if type(list) ~= "table" or list.name then list = { list } end
  o.exclude_blob = {}
  for i, item in ipairs(list) do
    local name = type(item) == "table" and item.name or item
    if type(name) ~= "string" then
      fail("mem_param: exclude_blob expects names of blobs, got a " .. type(item))
    end
    o.exclude_blob[i] = name
  end
  return setmetatable(record.note(o, o), Param)
end

--- Memory options whose mem_param, if there is one, is complete and right in itself; the engine
-- looks its blobs up in the net.
-- @param memory table|nil
-- @return table|nil
function mem_param.checked(memory)
  if memory ~= nil and (type(memory) ~= "table" or memory.net) then
    fail(("memory options are a table, { budget = \"8MiB\", x = { 64, 784 } }, got %s"):format(
      type(memory) == "table" and "a blob or a model"
        or type(memory) == "number" and tostring(memory)
        or "a " .. type(memory)))
  end
  if memory == nil or memory.mem_param == nil then return memory end
  local out = {}
  for key, value in pairs(memory) do out[key] = value end
  out.mem_param = mem_param.new(memory.mem_param)
  return out
end

--- What a plan would do, before anything is allocated: Caffe's dry-run log.
-- @param net neap.net
-- @param memory table|nil options as of net:plan, with or without mem_param (Caffe's defaults)
-- @return Report of the blobs; fields raw_bytes (data and diff of every blob), raw_data_bytes,
--   raw_diff_bytes, planned_bytes (arena, scratch included, and what has bytes of its own),
--   arena_bytes, scratch_bytes_max, saved (1 - planned / raw), layers and slots (Reports), plan
-- @usage print(net:dry_run { mem_param = { optimize_test = true } }.slots)
function mem_param.dry_run(net, memory)
  memory = mem_param.checked(memory)

  -- Without options at all the log is Caffe's: its defaults decide. A dynamic net has no policy to
  -- set.
  local given = {}
  for key, value in pairs(memory or {}) do given[key] = value end
  if given.mem_param == nil and given.policy == nil and given.executor ~= "dynamic" then
    given.mem_param = {}
  end
  local plan = net:plan(given)
  local log = plan:_dry_run(net)

  -- The engine's log has lists within it: each becomes a report, and what is left are the totals.
  local rows = log.rows
  log.plan, log.rows = plan, nil
  log.slots = report.of("dry_slot", { rows = log.slots,
    title = "Slots: what begins at one address" })
  log.layers = report.of("dry_layer", { rows = log.layers,
    title = "Layers: raw, and what has bytes of its own; the rest is in slots" })
  return report.of("dry_row", {
    rows = rows,
    title = ("dry run of \"%s\", %s, policy %s: raw %s, planned %s"):format(
      log.net, log.train and "train" or "test", log.policy, core.bytes_text(log.raw_bytes),
      core.bytes_text(log.planned_bytes)),
    totals = log,
    order = { "raw_bytes", "planned_bytes", "arena_bytes" },
  })
end

return mem_param
