--- Parameters as values: m:param, parameters, tie, state_dict and files.
-- @module neap.nn.state
local core = require "neap.core"
local module = require "neap.nn.module"
local net_module = require "neap.net"
local op = require "neap.op"
local options = require "neap.options"

local Module = module.Module
local blob_name, dotted, storage_record, root_of = module.blob_name, module.dotted, module.storage_record, module.root_of

--- The workspace that holds the parameters, made on first use.
function Module.workspace(self)
  local root = root_of(self)
  if rawget(root, "_ws") == nil then rawset(root, "_ws", require("neap").workspace { seed = rawget(root, "_seed") }) end
  return rawget(root, "_ws")
end

--- Layers that were not told their input's width learn it when a net is built; that is done here if it can be.
local function settle(self)
  for _, m in ipairs(module.all_modules(self)) do
    if rawget(m, "_lazy") then
      Module.net(root_of(self), { batch = 1 })
      return
    end
  end
end

local function records(self)
  settle(self)
  return module.records(self)
end

--- Makes and fills the parameters that are not there yet.
local function ensure_parameters(self)
  local ws, net = Module.workspace(self), nil
  for _, record in ipairs(records(root_of(self))) do
    if not record.tied and not ws:has(blob_name(record)) then
      net = net or net_module.new "parameters"
      net:declare(blob_name(record), record.role, record.shape, record.dtype, record.init, record.trainable)
    end
  end
  if net then ws:init(net) end
  return ws
end

-- ---- one parameter -----------------------------------------------------------------------------------------------------

local Parameter = { __name = "neap.parameter" }

--- What m:backward left, or what the last run of a training net without optimizer did; nil when there is neither.
local function gradient_of(record)
  local root, name = root_of(record.owner), blob_name(storage_record(record))
  local gradients = rawget(root, "_gradients")
  if gradients and gradients[name] then return gradients[name] end
  local ws = Module.workspace(root)
  if not ws:has(name .. "_grad") then return nil end
  local ok, got = pcall(ws.view, ws, name .. "_grad")
  if ok then return got end
  if got.code ~= "released" then error(got, 0) end -- made, and not computed yet: there is none
end

Parameter.__index = function(p, key)
  local record = rawget(p, "_record")
  if key == "data" then return ensure_parameters(record.owner):view(blob_name(storage_record(record))) end
  if key == "grad" or key == "diff" then return gradient_of(record) end
  if key == "name" then return dotted(record) end
  if key == "trainable" then return storage_record(record).trainable end
  if key == "shape" or key == "dtype" then return record[key] end
  error(("a parameter has data, grad, trainable, shape, dtype and name, not \"%s\""):format(tostring(key)), 2)
end

Parameter.__newindex = function(p, key, value)
  local record = storage_record(rawget(p, "_record"))
  if key == "trainable" then
    if type(value) ~= "boolean" then error("trainable expects true or false, got a " .. type(value), 2) end
    if record.role ~= "parameter" then error(dotted(record) .. " is a statistic: no gradient reaches it", 2) end
    record.trainable = value
    module.changed(record.owner)
  elseif key == "data" then
    if not op.is_tensor(value) then value = core.tensor(value, record.dtype) end
    if table.concat(value.shape, ",") ~= table.concat(record.shape, ",") then
      error(("%s expects (%s), got (%s)"):format(dotted(record), table.concat(record.shape, ","), table.concat(value.shape, ",")), 2)
    end
    ensure_parameters(record.owner):feed(blob_name(record), value.dtype == record.dtype and value or value:to(record.dtype))
  else
    error(("a parameter's data and trainable can be assigned, not \"%s\""):format(tostring(key)), 2)
  end
end

Parameter.__tostring = function(p)
  local record = rawget(p, "_record")
  return ("parameter %s (%s)%s%s"):format(dotted(record), table.concat(record.shape, ","),
    record.tied and " tied to " .. dotted(storage_record(record)) or "",
    record.role == "state" and " statistic" or storage_record(record).trainable and "" or " frozen")
end

function Module.as_parameter(record) return setmetatable({ _record = record }, Parameter) end

local function find_record(self, name, level)
  local prefix, names = module.path_of(self):gsub("/", "."), {}
  local full = prefix == "" and name or prefix .. "." .. tostring(name)
  for _, record in ipairs(records(self)) do
    if dotted(record) == full then return record end
    names[#names + 1] = prefix == "" and dotted(record) or dotted(record):sub(#prefix + 2)
  end
  local near = options.nearest(tostring(name), names)
  error(("no parameter \"%s\"%s"):format(tostring(name), near and (", did you mean \"" .. near .. "\"?")
    or "; there are " .. table.concat(names, ", ", 1, math.min(#names, 8)) .. (#names > 8 and ", .." or "")), level + 1)
end

--- One parameter by its dotted name, relative to this module.
-- @return {data, grad (= diff), trainable, shape}
function Module.find_param(self, name, level) return Module.as_parameter(find_record(self, name, (level or 1) + 1)) end

--- m:memory() -> the four lists and the calls that fill them, forward(x) and backward(dy); see neap.model_memory.
-- @param o table|nil { max_batch = the largest batch, executor =, policy =, budget = .. as in net:plan }; it holds until another is given
-- @usage local memory = model:memory { max_batch = 64 }; local y = memory:forward(x); memory:backward(dy); print(#model.caches[1])
function Module.memory(self, o)
  if o ~= nil and type(o) ~= "table" then error("m:memory expects a table of options, got a " .. type(o), 2) end
  return require("neap.model_memory").of(root_of(self), o)
end

--- m:attach_param(name, tensor) -> {name, data}: a parameter of the user's own in model.params; a name that is taken is an error.
function Module.attach_param(self, name, tensor) return Module.memory(self):attach_param(name, tensor) end

--- Parameters by name, in order of definition; tied ones once, statistics not.
-- @return iterator of (name, {data, grad, trainable, shape})
function Module.parameters(self)
  local list, i = {}, 0
  for _, record in ipairs(records(self)) do
    if not record.tied and record.role == "parameter" then list[#list + 1] = record end
  end
  return function()
    i = i + 1
    if list[i] then return dotted(list[i]), Module.as_parameter(list[i]) end
  end
end

--- Parameter `b` becomes parameter `a`: stored once, gradients summed. Both are dotted names.
-- @usage model:tie("embedding1.weight", "linear1.weight")
function Module.tie(self, a, b)
  local first, second = storage_record(find_record(self, a, 2)), storage_record(find_record(self, b, 2))
  if first == second then return self end
  local x, y = table.concat(first.shape, ","), table.concat(second.shape, ",")
  if x ~= y then error(("tie: %s is (%s), %s is (%s)"):format(a, x, b, y), 2) end
  second.tied = first
  local ws = rawget(root_of(self), "_ws")
  if ws and ws:has(blob_name(second)) then ws:remove(blob_name(second)) end
  module.changed(self)
  return self
end

-- ---- all of them -------------------------------------------------------------------------------------------------------

--- Parameters and statistics as {dotted name = tensor (a copy)}, names as from the root; tied ones once.
function Module.state_dict(self)
  local ws, out = ensure_parameters(self), {}
  for _, record in ipairs(records(self)) do
    if not record.tied then out[dotted(record)] = ws:fetch(blob_name(record)) end
  end
  return out
end

--- What speaks against loading t, or nil.
local function objection(by_name, t, strict)
  local names = {}
  for name in pairs(by_name) do names[#names + 1] = name end
  table.sort(names)
  for name, tensor in pairs(t) do
    local record = by_name[name]
    if record == nil and strict then
      local near = options.nearest(name, names)
      return ("the model has no \"%s\"%s"):format(name, near and (", did you mean \"" .. near .. "\"?") or "")
    end
    if record and not op.is_tensor(tensor) then return ("\"%s\" expects a tensor, got a %s"):format(name, type(tensor)) end
    if record and table.concat(tensor.shape, ",") ~= table.concat(record.shape, ",") then
      return ("\"%s\" expects (%s), got (%s)"):format(name, table.concat(record.shape, ","), table.concat(tensor.shape, ","))
    end
  end
  for _, name in ipairs(names) do
    if strict and not by_name[name].tied and t[name] == nil then return ("\"%s\" is missing"):format(name) end
  end
end

local function copy_in(self, t, strict)
  local ws, by_name = ensure_parameters(self), {}
  for _, record in ipairs(records(self)) do by_name[dotted(record)] = record end
  local message = objection(by_name, t, strict)
  if message then return nil, message end
  for name, tensor in pairs(t) do
    local record = by_name[name]
    if record and not record.tied then ws:feed(blob_name(record), tensor.dtype == record.dtype and tensor or tensor:to(record.dtype)) end
  end
  return self
end

--- Copies tensors into the parameters. Checks all names and shapes before it changes any.
-- @param t table {dotted name = tensor}
-- @param o table|nil {strict = true}: missing and unknown names are errors
function Module.load_state_dict(self, t, o)
  o = options.read("load_state_dict", { strict = true }, o, 2)
  local ok, message = copy_in(self, t, o.strict)
  if not ok then error("load_state_dict: " .. message, 2) end
  return self
end

--- Writes the parameters as safetensors. @return true, or nil, message, code
function Module.save(self, path) return core.save(path, self:state_dict()) end

--- Reads them back; names and shapes must be the model's. @return self, or nil, message, code
function Module.load(self, path)
  local t, message, code = core.load(path)
  if t == nil then return nil, message, code end
  local ok, why = copy_in(self, t, true)
  if not ok then return nil, path .. ": " .. why, "shape" end
  return self
end
