--- Ranges of batch sizes: the option `max_batch`.
--
-- A range is the plan of the largest batch. Every smaller batch gets a program of its own on first
-- use, with the largest one's choices and addresses, so that all of them run in the same bytes, in
-- any order.
--
-- `max_batch` speaks of the first dimension of the inputs that have the net's batch there
-- (core.batch_inputs); other inputs, a learning rate or a table, keep their shapes.
-- @module neap.memory.range
local core = require "neap.core"
local op = require "neap.op"
local fail = core.fail

local range = {}

--- Takes `max_batch` out of memory options.
-- @param memory table|nil
-- @return table|nil options without it, integer|nil
function range.apart(memory)
  if memory == nil or memory.max_batch == nil then return memory end
  local most = memory.max_batch
  if math.type(most) ~= "integer" or most < 1 then
    fail(("max_batch expects an integer of at least 1, got %s"):format(tostring(most)))
  end

  -- A copy, since the table is the caller's.
  local rest = {}
  for key, value in pairs(memory) do
    if key ~= "max_batch" then rest[key] = value end
  end
  return rest, most
end

--- The plan of the net at its largest batch.
-- @param net neap.net
-- @param memory table options without max_batch; shapes of inputs in it are those of a smaller
--   batch, and put aside
-- @param batch integer
-- @return range, for net:_plan and ws:_compile
function range.new(net, memory, batch)
  -- Shapes of the largest batch take the place of those given, for inputs that have the batch
  -- first.
  local options = {}
  for key, value in pairs(memory or {}) do options[key] = value end
  local inputs = {}
  for name, shape in pairs(options.inputs or {}) do inputs[name] = shape end
  for name, shape in pairs(core.batch_inputs(net, batch)) do inputs[name] = shape end
  options.inputs = inputs
  return core.new_range(net, options)
end

--- Options as text, those of mem_param included: equal texts, equal programs.
function range.text_of(value)
  if type(value) ~= "table" then return tostring(value) end
  if op.is_blob(value) then return value.name end
  local parts = {}
  for key, item in pairs(value) do
    -- Positions get leading zeros, so that they sort as numbers do.
    parts[#parts + 1] = (type(key) == "string" and key .. "=" or ("%08d="):format(key))
      .. range.text_of(item)
  end
  table.sort(parts)
  return "{" .. table.concat(parts, ",") .. "}"
end

--- Text by which options that lead to one range are known: all but the inputs' shapes.
function range.key(net, memory, batch)
  -- An input's shape may stand beside the options under its name: a table there is a shape, unless
  -- it is called like an option whose value is plain.
  local is_input, parts = {}, {}
  for _, input in ipairs(net:inputs()) do is_input[input.name] = true end
  for key, value in pairs(memory or {}) do
    local is_shape = is_input[key]
      and type(value) ~= "string"
      and type(value) ~= "number"
      and type(value) ~= "boolean"
    if key ~= "inputs" and not is_shape then
      parts[#parts + 1] = key .. "=" .. range.text_of(value)
    end
  end
  table.sort(parts)
  return batch .. " " .. table.concat(parts, " ")
end

return range
