--- Modules: layers, and trees of layers.
--
-- A module has children and parameters by name. Its `forward` is written once: called on blobs it builds ops in a net,
-- called on tensors it runs (compiled per shape, cached). Inside `forward`, `self.weight` is the parameter's blob in the
-- net being built.
--
-- INVARIANT: a parameter's blob name is its module's path and its own name, "block4/mlp/fc1.weight"; in state_dict and
-- `param` the path is written with dots, "block4.mlp.fc1.weight".
-- INVARIANT: the root of a tree owns the workspace that holds the parameters; asking a child goes to its root.
-- @module neap.nn.module
local options = require "neap.options"
local net_module = require "neap.net"
local core = require "neap.core"

local Module = {}

--- The net being built by this coroutine's innermost `Module:net`: { net, blobs = {record = blob}, train }.
local building

-- ---- the tree ------------------------------------------------------------------------------------------------------

local function is_module(x) return type(x) == "table" and rawget(x, "_is_module") == true end

--- Path of a module: names from the root's children down, "" for the root.
local function path_of(m)
  local parent = rawget(m, "_parent")
  if parent == nil then return "" end
  local above = path_of(parent)
  return above == "" and m._name or above .. "/" .. m._name
end

local function root_of(m)
  while rawget(m, "_parent") do m = rawget(m, "_parent") end
  return m
end

--- Registers `child` under `name`. A module that already has a parent is shared: it keeps its first place.
function Module.add(self, name, child)
  local children = self._children
  if children[name] == nil then self._order[#self._order + 1] = name end
  children[name] = child
  if rawget(child, "_parent") == nil and child ~= self then
    rawset(child, "_parent", self)
    rawset(child, "_name", name)
  end
  return child
end

--- The parameter record's full blob name.
local function blob_name(record)
  local path = path_of(record.owner)
  return path == "" and record.name or path .. "." .. record.name
end

--- Follows ties to the record that owns the storage.
local function storage_record(record)
  while record.tied do record = record.tied end
  return record
end

--- Declares a parameter of this module.
-- @param name string
-- @param shape integer[]
-- @param initial table|nil from neap.init; zeros when nil
-- @param opts table|nil {trainable = bool}
function Module.param(self, name, shape, initial, opts)
  if shape == nil then return Module.find_param(self, name) end
  local record = { name = name, shape = shape, init = initial or { op = "Constant", value = 0 }, owner = self,
    trainable = not (opts and opts.trainable == false), role = "parameter" }
  self._params[#self._params + 1] = record
  self._params[name] = record
  return record
end

--- Declares a statistic: state that training updates but no gradient reaches.
function Module.buffer(self, name, shape, initial)
  local record = Module.param(self, name, shape, initial, { trainable = false })
  record.role = "state"
  return record
end

-- ---- walking ---------------------------------------------------------------------------------------------------------

--- All modules below and including this one, parents first; iterator of (path, module).
function Module.modules(self)
  local list, seen = {}, {}
  local function walk(m)
    if seen[m] then return end
    seen[m] = true
    list[#list + 1] = m
    for _, name in ipairs(m._order) do walk(m._children[name]) end
  end
  walk(self)
  local i = 0
  return function()
    i = i + 1
    if list[i] then return (path_of(list[i]):gsub("/", ".")), list[i] end
  end
end

local function records(self)
  local list = {}
  for _, m in Module.modules(self) do
    for _, record in ipairs(m._params) do list[#list + 1] = record end
  end
  return list
end

local function dotted(record) return (blob_name(record):gsub("/", ".")) end

--- Parameters and statistics by name, in order of definition; tied ones once.
-- @return iterator of (name, {data, grad, trainable, shape})
function Module.parameters(self)
  local list = {}
  for _, record in ipairs(records(self)) do
    if not record.tied then list[#list + 1] = record end
  end
  local i = 0
  return function()
    i = i + 1
    if list[i] then return dotted(list[i]), Module.find_param(self, dotted(list[i])) end
  end
end

local Parameter = {}
Parameter.__index = function(p, key)
  local record = rawget(p, "_record")
  if key == "data" then return root_of(record.owner):workspace():view(blob_name(storage_record(record))) end
  if key == "grad" or key == "diff" then
    local ws, name = root_of(record.owner):workspace(), blob_name(storage_record(record)) .. "_grad"
    return ws:has(name) and ws:view(name) or nil
  end
  return record[key]
end
Parameter.__tostring = function(p)
  local record = rawget(p, "_record")
  return ("parameter %s (%s)%s"):format(dotted(record), table.concat(record.shape, ","), record.trainable and "" or " frozen")
end

--- One parameter by its dotted name, relative to this module.
-- @return table {data, grad (= diff), trainable, shape}
function Module.find_param(self, name)
  local prefix = path_of(self):gsub("/", ".")
  local full = prefix == "" and name or prefix .. "." .. name
  local names = {}
  for _, record in ipairs(records(self)) do
    if dotted(record) == full then return setmetatable({ _record = record }, Parameter) end
    names[#names + 1] = dotted(record)
  end
  local near = options.nearest(full, names)
  error(("no parameter \"%s\"%s"):format(name, near and (", did you mean \"" .. near .. "\"?") or ""), 3)
end

local function glob_to_pattern(glob)
  return "^" .. glob:gsub("[%^%$%(%)%%%.%[%]%+%-%?]", "%%%0"):gsub("%*", ".*") .. "$"
end

--- Modules whose path or class name matches the glob, in order.
function Module.find(self, glob)
  local pattern, found = glob_to_pattern(glob), {}
  for path, m in Module.modules(self) do
    if path:match(pattern) or m._class:match(pattern) then found[#found + 1] = m end
  end
  return found
end

--- Stops training the parameters whose dotted names match the glob. `Module.freeze(m, "*", false)` undoes it.
function Module.freeze(self, glob, frozen)
  local pattern = glob_to_pattern(glob or "*")
  for _, record in ipairs(records(self)) do
    if record.role == "parameter" and dotted(record):match(pattern) then record.trainable = frozen == false end
  end
  root_of(self)._nets = {}
  return self
end

--- Parameter `b` becomes parameter `a`: stored once, gradients summed. Both are dotted names.
function Module.tie(self, a, b)
  local first, second = rawget(Module.find_param(self, a), "_record"), rawget(Module.find_param(self, b), "_record")
  for d = 1, math.max(#first.shape, #second.shape) do
    if first.shape[d] ~= second.shape[d] then
      error(("tie: %s has shape (%s), %s (%s)"):format(a, table.concat(first.shape, ","), b, table.concat(second.shape, ",")), 2)
    end
  end
  second.tied = first
  return self
end

--- Training mode, the default, and evaluation mode.
function Module.train(self)
  for _, m in Module.modules(self) do rawset(m, "training", true) end
  return self
end
function Module.eval(self)
  for _, m in Module.modules(self) do rawset(m, "training", false) end
  return self
end

-- ---- calling ---------------------------------------------------------------------------------------------------------

--- The blob of a parameter record in the net being built; declared there at its first use.
local function blob_of(record)
  local owner = storage_record(record)
  local blob = building.blobs[owner]
  if blob == nil then
    blob = building.net:declare(blob_name(owner), owner.role, owner.shape, owner.dtype or "f32", owner.init, owner.trainable)
    building.blobs[owner] = blob
  end
  return blob
end

--- Emits one op in the net being built. The first output is named after the module's path the first time.
-- @param self module
-- @param type string op
-- @param inputs table blobs (false where absent)
-- @param attrs table|nil
-- @param n_out integer|nil outputs wanted, 1 when nil
-- @return blobs
function Module.op(self, type, inputs, attrs, n_out)
  local path = path_of(self)
  local outs = {}
  local name = path == "" and self._class:lower() or path
  building.used[name] = (building.used[name] or 0) + 1
  if building.used[name] > 1 then name = name .. "_" .. building.used[name] end
  outs[1] = name
  for k = 2, n_out or 1 do outs[k] = name .. "." .. k end
  return building.net:op(type, inputs, outs, attrs or {})
end

--- Whether the net being built is for training.
function Module.is_training() return building ~= nil and building.train end

local Class = {} -- metatable of instances is made per class; shared part below

--- How the names of Neap's own chunks begin.
local own_source = debug.getinfo(1, "S").source:match "^(.*)nn/module"

--- What ops of a layer are said to come from: the line that made the layer; nil, the line that calls the op, where forward
-- is the user's own.
local function line_of(self)
  local source = debug.getinfo(self.forward, "S").source
  return source:sub(1, #own_source) == own_source and self._line or nil
end

local function call(self, ...)
  if building == nil then return root_of(self):run_eager(self, ...) end
  local parent = rawget(self, "_parent")
  local hooks = rawget(self, "_hooks")
  local function forward(...)
    local out = table.pack(self:forward(...))
    if hooks then
      for _, f in ipairs(hooks) do f(self, table.unpack(out, 1, out.n)) end
    end
    return table.unpack(out, 1, out.n)
  end
  local net = building.net
  if parent == nil or next(self._children) == nil then return net:made_by(line_of(self), forward, ...) end
  return net:made_by(line_of(self), net.scope, net, self._name, forward, ...)
end

local function index(self, key)
  local params = rawget(self, "_params")
  if params and params[key] and type(key) == "string" and building then return blob_of(params[key]) end
  local children = rawget(self, "_children")
  if children and children[key] ~= nil then return children[key] end
  local class = rawget(self, "_methods")
  if class and class[key] ~= nil then return class[key] end
  return Module[key]
end

local function newindex(self, key, value)
  if is_module(value) then
    Module.add(self, key, value)
  else
    rawset(self, key, value)
  end
end

local function to_text(self, depth)
  depth = depth or 0
  local head = self._class
  local text = self.describe and self:describe() or ""
  head = head .. (text ~= "" and " { " .. text .. " }" or "")
  local lines = { head }
  for _, name in ipairs(self._order) do
    lines[#lines + 1] = ("  "):rep(depth + 1) .. name .. ": " .. to_text(self._children[name], depth + 1)
  end
  return table.concat(lines, "\n")
end

--- Makes a class of modules.
-- @param spec table { "Name", options = {...} as neap.options, init = function(self, o), forward = function(self, x, ...),
--   describe = function(self) -> string, name = base of automatic names }
-- @return class, called with one options table
-- @usage local SwiGLU = nn.module { "SwiGLU",
--   init = function(self, o) self.gate = nn.Linear { o[1], o[2] }; self.up = nn.Linear { o[1], o[2] } end,
--   forward = function(self, x) return self.gate(x):silu() * self.up(x) end }
function Class.new(spec)
  local name = spec[1]
  local methods = {}
  for key, value in pairs(spec) do
    if type(key) == "string" and key ~= "init" and key ~= "options" then methods[key] = value end
  end
  local meta = { __index = index, __newindex = newindex, __call = call, __tostring = function(m) return to_text(m) end,
    __name = "neap.nn." .. name }
  local class = { _class_name = name }
  local function make(_, given)
    local o = given or {}
    if spec.options then o = options.read("nn." .. name, spec.options, given, 2) end
    local self = setmetatable({ _is_module = true, _class = name, _methods = methods, _children = {}, _order = {}, _params = {},
      training = true, _nets = {}, _line = core.line(), _base = spec.name or name:lower():gsub("%d+d$", "") }, meta)
    if type(o.name) == "string" then rawset(self, "_wanted_name", o.name) end
    if spec.init then spec.init(self, o) end
    return self
  end
  return setmetatable(class, { __call = make, __tostring = function() return "class nn." .. name end })
end

--- A name for a new child of `parent`: its own wish, or its base and a number counted per base.
function Module.child_name(parent, child)
  local wish = rawget(child, "_wanted_name")
  if wish then return wish end
  local counts = rawget(parent, "_counts") or {}
  rawset(parent, "_counts", counts)
  local base = child._base
  counts[base] = (counts[base] or 0) + 1
  return base .. counts[base]
end

--- Runs `f` whenever the module's forward has been built, with its outputs: to name, keep or look at blobs.
function Module.on(self, glob, direction, f)
  if direction ~= "forward" then error("on: \"forward\" is the only direction so far", 2) end
  for _, m in ipairs(Module.find(self, glob)) do
    local hooks = rawget(m, "_hooks") or {}
    rawset(m, "_hooks", hooks)
    hooks[#hooks + 1] = f
  end
  return self
end

-- ---- nets ------------------------------------------------------------------------------------------------------------

--- The workspace that holds the parameters, made on first use.
function Module.workspace(self)
  local root = root_of(self)
  if rawget(root, "_ws") == nil then rawset(root, "_ws", require("neap").workspace { seed = rawget(root, "_seed") }) end
  return root._ws
end

local function with_batch(shape, batch)
  local out = { batch }
  for i, d in ipairs(shape) do out[i + 1] = d end
  return out
end

--- Builds a net of this model.
-- @param o table { batch =, train = bool, loss = loss module, optimizer =, input = {shape of one example}, input_dtype = }
-- @return net, {x = blob, y = blob|nil, output = blob, loss = blob|nil}
function Module.net(self, o)
  o = options.read("m:net", { batch = 1, train = false, loss = options.none, optimizer = options.none, input = options.none,
    input_dtype = options.none, name = options.none, metrics = options.none, keep = options.none }, o, 2)
  local shape = o.input or rawget(self, "input_shape")
  if shape == nil then
    error("m:net: the shape of one example is unknown; give input = {..} to the model (nn.Sequential { input = {..}, .. }) or here", 2)
  end
  local outer = building
  local net = net_module.new(o.name or rawget(self, "_wanted_name") or "model")
  building = { net = net, blobs = {}, used = {}, train = o.train }
  local blobs = {}
  local ok, err = xpcall(function()
    blobs.x = net:input("x", with_batch(shape, o.batch), o.input_dtype or rawget(self, "input_dtype") or "f32")
    blobs.output = self(blobs.x)
    if o.loss then
      local target_shape, dtype = o.loss:target(blobs.output)
      blobs.y = net:input("y", target_shape, dtype)
      blobs.loss = o.loss(blobs.output, blobs.y)
      for _, metric in ipairs(o.metrics or {}) do blobs[metric] = o.loss:metric(metric, blobs.output, blobs.y) end
      if o.train then
        local grads = net:gradient(blobs.loss)
        if o.optimizer then o.optimizer:apply(net, grads) end
      end
    end
  end, function(e) return type(e) == "string" and debug.traceback(e, 2) or e end)
  building = outer
  if not ok then error(err, 0) end
  local outputs = { blobs.loss or blobs.output }
  if blobs.loss and not o.train then outputs[#outputs + 1] = blobs.output end
  for _, metric in ipairs(o.metrics or {}) do outputs[#outputs + 1] = blobs[metric] end
  net:outputs(outputs)
  if o.keep and #o.keep > 0 then net:keep(table.unpack(o.keep)) end
  return net, blobs
end

--- Runs `m` on tensors: builds (per shapes and mode, cached) a net with the tensors as inputs and runs it in the root's
-- workspace.
function Module.run_eager(self, m, ...)
  local xs, key = table.pack(...), { path_of(m), tostring(m.training) }
  for i = 1, xs.n do key[#key + 1] = xs[i].dtype .. "(" .. table.concat(xs[i].shape, ",") .. ")" end
  local id = table.concat(key, " ")
  local entry = self._nets[id]
  if entry == nil then
    local outer = building
    local net = net_module.new(m._class)
    building = { net = net, blobs = {}, used = {}, train = m.training }
    local ins, outs = {}, nil
    local ok, err = pcall(function()
      for i = 1, xs.n do ins[i] = net:input("input" .. i, xs[i].shape, xs[i].dtype) end
      outs = table.pack(m(table.unpack(ins)))
    end)
    building = outer
    if not ok then error(err, 0) end
    net:outputs(outs)
    entry = { net = net, outs = outs }
    self._nets[id] = entry
    self:workspace():init(net)
  end
  local feeds = {}
  for i = 1, xs.n do feeds["input" .. i] = xs[i] end
  local results, list = self:workspace():run(entry.net, feeds), {}
  for k = 1, entry.outs.n do list[k] = results[entry.outs[k].name] end
  return table.unpack(list, 1, entry.outs.n)
end

local function plan_options(o)
  local own, memory = { batch = true, train = true, loss = true, optimizer = true, input = true, input_dtype = true, name = true, metrics = true }, {}
  local net = {}
  for key, value in pairs(o or {}) do
    if own[key] then net[key] = value else memory[key] = value end
  end
  if net.train == nil and net.loss then net.train = true end
  if net.train and not net.loss then net.loss = require("neap.nn").CrossEntropyLoss {} end
  return net, memory
end

for _, report in ipairs { "plan", "forecast", "summary" } do
  --- m:plan, m:forecast, m:summary { batch =, train =, loss =, optimizer =, ... memory options as in net:plan }
  Module[report] = function(self, o)
    local net_options, memory = plan_options(o)
    local net = Module.net(self, net_options)
    return net[report](net, memory)
  end
end

-- ---- state -------------------------------------------------------------------------------------------------------------

--- Makes the parameters, if need be, by initialising an inference net of one example.
local function ensure_parameters(self)
  local ws = self:workspace()
  for _, record in ipairs(records(self)) do
    if not record.tied and not ws:has(blob_name(record)) then
      ws:init((Module.net(root_of(self), { batch = 1 })))
      return ws
    end
  end
  return ws
end

--- Parameters and statistics as {dotted name = tensor (a copy)}.
function Module.state_dict(self)
  local ws, out = ensure_parameters(self), {}
  for _, record in ipairs(records(self)) do
    if not record.tied then out[dotted(record)] = ws:fetch(blob_name(record)) end
  end
  return out
end

--- Copies tensors into the parameters. Checks all names and shapes before it changes any.
-- @param t table {dotted name = tensor}
-- @param o table|nil {strict = true}: missing and unknown names are errors
function Module.load_state_dict(self, t, o)
  local ws, by_name, strict = ensure_parameters(self), {}, not (o and o.strict == false)
  for _, record in ipairs(records(self)) do by_name[dotted(record)] = record end
  for name, tensor in pairs(t) do
    local record = by_name[name]
    if record == nil and strict then error(("load_state_dict: the model has no \"%s\""):format(name), 2) end
    if record and table.concat(tensor.shape, ",") ~= table.concat(record.shape, ",") then
      error(("load_state_dict: \"%s\" expects (%s), got (%s)"):format(name, table.concat(record.shape, ","), table.concat(tensor.shape, ",")), 2)
    end
  end
  for name, record in pairs(by_name) do
    if strict and not record.tied and t[name] == nil then error(("load_state_dict: \"%s\" is missing"):format(name), 2) end
  end
  for name, tensor in pairs(t) do
    if by_name[name] then ws:feed(blob_name(by_name[name]), tensor) end
  end
  return self
end

--- Writes the parameters as safetensors. @return true, or nil, message, code
function Module.save(self, path) return core.save(path, self:state_dict()) end
--- Reads them back. @return self, or nil, message, code
function Module.load(self, path)
  local t, message, code = core.load(path)
  if t == nil then return nil, message, code end
  return self:load_state_dict(t)
end

--- m:forward(x) is m(x), as in Torch, for models whose class defines no other; backward gives dx for dy.
return { Module = Module, class = Class.new, is_module = is_module }
