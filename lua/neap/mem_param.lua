--- `mem_param`: Caffe's words for Neap's memory options.
--
--   mem_param = { optimize_train = true, optimize_test = false, exclude_blob = { "conv1" }, debug_info = false }
--
-- Wherever memory options go (net:plan, ws:compile, ws:run, m:plan, a trainer's `memory`), it is translated into `policy` and
-- `keep`; there is no second planner behind it. Defaults are those of Caffe: training is planned, testing is not, so that a
-- script that looks at blobs in the middle finds them. `debug_info` switches planning off.
--
-- Data and gradient ("diff") of a blob are separate keys: "conv1" stands for both, "conv1.data" and "conv1.grad" (or
-- "conv1.diff") for one.
--
-- INVARIANT: with planning on, these have bytes of their own, data and gradient: the net's inputs and outputs, what ops without
-- inputs make, every loss, and what exclude_blob lists.
-- @module neap.mem_param
local core = require "neap.core"
local options = require "neap.options"
local report = require "neap.report"

local mem_param = {}

local spec = { optimize_train = true, optimize_test = false, exclude_blob = {}, debug_info = false }
local Param = { __name = "neap.mem_param" }

--- Makes or checks a mem_param.
-- @param given table|nil { optimize_train = true, optimize_test = false, exclude_blob = name or list, debug_info = false }
-- @return table with all four fields
-- @usage t = neap.trainer { .., memory = { mem_param = { exclude_blob = { "relu1" } } } }
function mem_param.new(given, level)
  if getmetatable(given) == Param then return given end
  if given ~= nil and type(given) ~= "table" then error("mem_param expects a table, got a " .. type(given), (level or 1) + 1) end
  local o = options.read("mem_param", spec, given, (level or 1) + 1)
  for _, name in ipairs { "optimize_train", "optimize_test", "debug_info" } do
    if type(o[name]) ~= "boolean" then error(("mem_param: %s expects true or false, got a %s"):format(name, type(o[name])), (level or 1) + 1) end
  end
  local list = o.exclude_blob
  if type(list) ~= "table" or list.name then list = { list } end
  o.exclude_blob = {}
  for i, item in ipairs(list) do
    local name = type(item) == "table" and item.name or item
    if type(name) ~= "string" then error("mem_param: exclude_blob expects names of blobs, got a " .. type(item), (level or 1) + 1) end
    o.exclude_blob[i] = name
  end
  return setmetatable(o, Param)
end

-- ---- what is excluded -----------------------------------------------------------------------------------------------

--- Whether a net holds a backward pass.
local function is_train(net)
  for _, row in ipairs(net:_ops()) do
    if row.type == "Gradient" then return true end
  end
  return false
end

--- Blobs that Caffe never recycles: those of ops without inputs, and the losses (what a gradient is taken of, through a check
-- that the loss is finite). Inputs and outputs of a net have bytes of their own already.
local function automatic(net)
  local names, made_by = {}, {}
  for _, row in ipairs(net:_ops()) do
    local n_in = 0
    for _, name in ipairs(row.inputs) do n_in = n_in + (name and 1 or 0) end
    for _, name in ipairs(row.outputs) do
      if name then
        made_by[name] = row
        if n_in == 0 then names[#names + 1] = name end
      end
    end
    local loss = row.type == "Gradient" and row.inputs[1]
    while loss do
      names[#names + 1] = loss
      local maker = made_by[loss]
      loss = maker and maker.type == "CheckFinite" and maker.inputs[1] or nil
    end
  end
  return names
end

--- "conv1.diff" and "conv1.grad" -> "conv1", "grad"; "conv1.data" -> "conv1", "data"; "conv1" -> "conv1", nil
local function key_of(net, name)
  if net:_blob(name) then return name end
  local base, which = name:match "^(.+)%.(%a+)$"
  if which == "diff" then which = "grad" end
  if base and (which == "grad" or which == "data") and net:_blob(base) then return base, which end
  local known = {}
  for _, row in ipairs(net:_blobs()) do known[#known + 1] = row.name end
  local near = options.nearest(name, known)
  error(core.error { code = "name", message = ("mem_param: exclude_blob: net \"%s\" has no blob \"%s\""):format(net:_name(), name), blob = name,
    hint = near and ("did you mean \"%s\"?"):format(near) or "net:blobs() lists them" }, 0)
end

--- Labels of the gradients that a training net computes, by the blob they belong to. Values, not bytes: nothing is packed.
local function gradients_of(net, memory)
  local probe = { policy = "none", store = false }
  for _, input in ipairs(net:inputs()) do probe[input.name] = memory[input.name] end
  local found = {}
  for _, row in ipairs(net:_plan(probe):_values()) do
    local base = row.blob:match "^(.+)%.grad$"
    if base then found[base] = true end
  end
  return found
end

--- The list for `keep`: names of blobs, and "x.grad" for their gradients. A listed gradient that nothing flows into is kept too:
-- it is zero.
local function keeps(net, param, train, memory)
  local list, seen = {}, {}
  local function add(name)
    if not seen[name] then list[#list + 1] = name end
    seen[name] = true
  end
  local flows = train and gradients_of(net, memory) or {}
  for _, name in ipairs(automatic(net)) do
    add(name)
    if flows[name] then add(name .. ".grad") end
  end
  for _, name in ipairs(param.exclude_blob) do
    local base, which = key_of(net, name)
    local dtype = net:_type(base)
    local is_float = dtype == nil or dtype:match "^b?f"
    if which ~= "grad" then add(base) end
    if which ~= "data" and train and is_float then add(base .. ".grad") end
  end
  return list
end

--- Whether a net is planned.
local function optimizes(param, train)
  if param.debug_info then return false end
  if train then return param.optimize_train end
  return param.optimize_test
end

--- Memory options with `mem_param` put into the engine's own words; others come back as they are.
-- @param net neap.net
-- @param memory table|nil
-- @return table|nil
function mem_param.translate(net, memory)
  if type(memory) ~= "table" or memory.mem_param == nil then return memory end
  local param, out = mem_param.new(memory.mem_param, 3), {}
  for key, value in pairs(memory) do
    if key ~= "mem_param" then out[key] = value end
  end
  if memory.policy ~= nil then error("mem_param and policy say the same thing in two ways; give one of them", 0) end
  local train = is_train(net)
  if not optimizes(param, train) then
    out.policy = "none"
    return out
  end
  local keep = keeps(net, param, train, memory)
  local own = memory.keep
  if own ~= nil and (type(own) ~= "table" or own.name) then own = { own } end
  table.move(own or {}, 1, #(own or {}), #keep + 1, keep)
  out.keep = keep
  return out
end

-- ---- dry run --------------------------------------------------------------------------------------------------------

--- The blob and the key ("data" or "diff") of a value's label.
local function parts(label)
  local base = label:match "^(.+)%.grad$"
  if base then return base, "diff" end
  return label, "data"
end

--- Where a value lies: "slot 3", or the region that has it for its own.
local function slot_of(slots, row)
  if row.region ~= "arena" then return row.region end
  local slot = slots[row.offset]
  if slot == nil then
    slot = { offset = row.offset, bytes = 0, members = {} }
    slots[row.offset] = slot
    slots[#slots + 1] = slot
  end
  slot.bytes = math.max(slot.bytes, row.bytes)
  slot.members[#slot.members + 1] = row.blob
  return slot
end

local function number_slots(slots)
  table.sort(slots, function(a, b) return a.offset < b.offset end)
  local rows = {}
  for i, slot in ipairs(slots) do
    slot.name = "slot " .. i
    rows[i] = { slot = i, offset = slot.offset, bytes = slot.bytes, n_blob = #slot.members, blobs = table.concat(slot.members, " ") }
  end
  return report.new { rows = rows, columns = { "slot", "offset", "bytes", "n_blob", "blobs" }, title = "Slots: what begins at one address" }
end

--- Rows of blobs: activations and their gradients, in the order of the schedule.
local function blob_rows(plan)
  local rows, slots, layer = {}, {}, {}
  for _, op in ipairs(plan:_ops()) do
    for _, name in ipairs(op.outputs) do layer[name] = layer[name] or op.name end
  end
  for _, row in ipairs(plan:_values()) do
    if row.role ~= "parameter" and row.role ~= "state" and row.role ~= "gradient" then
      local base, key = parts(row.blob)
      rows[#rows + 1] = { blob = base, key = key, layer = layer[base] or layer[row.blob] or base, bytes = row.bytes, slot = slot_of(slots, row),
        first_step = row.first_step, last_step = row.last_step, reason = row.reason, partner = row.partner, dtype = row.dtype, role = row.role }
    end
  end
  local slot_report = number_slots(slots)
  for _, row in ipairs(rows) do
    if type(row.slot) == "table" then row.slot = row.slot.name end
  end
  return rows, slot_report
end

--- Bytes as Caffe counts them raw: every blob of the net has data, and a diff of the same size when it is of floats.
local function count_raw(net, plan)
  local data, diff, by_layer, order, layer = 0, 0, {}, {}, {}
  for _, op in ipairs(net:_ops()) do
    for _, name in ipairs(op.outputs) do
      if name and layer[name] == nil then layer[name] = op.name end
    end
  end
  local seen = {}
  for _, row in ipairs(plan:_values()) do
    local known = not seen[row.blob] and net:_blob(row.blob)
    if known and row.role ~= "parameter" and row.role ~= "state" and row.role ~= "gradient" then
      seen[row.blob] = true
      local float = row.dtype:match "^b?f" ~= nil
      data, diff = data + row.bytes, diff + (float and row.bytes or 0)
      local name = layer[row.blob] or row.blob
      if by_layer[name] == nil then
        by_layer[name] = { layer = name, raw_bytes = 0, planned_bytes = 0 }
        order[#order + 1] = by_layer[name]
      end
      by_layer[name].raw_bytes = by_layer[name].raw_bytes + row.bytes * (float and 2 or 1)
    end
  end
  return data, diff, order, by_layer
end

--- What a plan would do, before anything is allocated: Caffe's dry-run log.
-- @param net neap.net
-- @param memory table|nil options as of net:plan, with or without mem_param (Caffe's defaults)
-- @return Report of the blobs; fields raw_bytes (data and diff of every blob), raw_data_bytes, raw_diff_bytes, planned_bytes (arena,
--   scratch included, and what has bytes of its own), arena_bytes, scratch_bytes_max, saved (1 - planned / raw), layers and slots (Reports), plan
-- @usage print(net:dry_run { mem_param = { optimize_test = true } }.slots)
function mem_param.dry_run(net, memory)
  local given = {}
  for key, value in pairs(memory or {}) do given[key] = value end
  if given.mem_param == nil and given.policy == nil then given.mem_param = {} end
  local plan = net:plan(given)
  local rows, slots = blob_rows(plan)
  local data, diff, layers, by_layer = count_raw(net, plan)
  local own = 0
  for _, row in ipairs(rows) do
    local layer = by_layer[row.layer]
    if layer and row.slot:match "^slot" == nil and row.reason ~= "version" then layer.planned_bytes = layer.planned_bytes + row.bytes end
    if row.slot:match "^slot" == nil and row.reason ~= "version" and row.reason ~= "alias" then own = own + row.bytes end
  end
  local planned = plan.arena_bytes + own
  return report.new { rows = rows, columns = { "layer", "blob", "key", "bytes", "slot", "first_step", "last_step", "reason", "partner" },
    title = ("dry run of \"%s\", %s, policy %s: raw %s, planned %s"):format(plan.net, plan.train and "train" or "test", plan.policy,
      core.bytes_text(data + diff), core.bytes_text(planned)),
    totals = { raw_bytes = data + diff, raw_data_bytes = data, raw_diff_bytes = diff, planned_bytes = planned, arena_bytes = plan.arena_bytes,
      scratch_bytes_max = plan.scratch_bytes_max, saved = data + diff > 0 and 1 - planned / (data + diff) or 0, plan = plan, slots = slots,
      layers = report.new { rows = layers, columns = { "layer", "raw_bytes", "planned_bytes" },
        title = "Layers: raw, and what has bytes of its own; the rest is in slots" } },
    order = { "raw_bytes", "planned_bytes", "arena_bytes" } }
end

return mem_param
