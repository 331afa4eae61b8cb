--- Modules: layers, and trees of layers.
--
-- A module has children and parameters by name. Its `forward` is written once: called on blobs it builds ops in a net,
-- called on tensors it runs (compiled per shape, cached). Inside `forward`, `self.weight` is the parameter's blob in the
-- net being built; outside, it is the parameter: {data, grad, trainable, shape}.
--
-- INVARIANT: a parameter's blob name is its module's path and its own name, "block4/mlp/fc1.weight"; in state_dict and
-- `param` the path is written with dots, "block4.mlp.fc1.weight".
-- INVARIANT: the root of a tree owns the workspace that holds the parameters; asking a child goes to its root.
-- INVARIANT: whatever changes the nets that a tree builds (a child added, freeze, tie, a child's mode) raises the root's
-- `_version`, by which programs made from it know that they are old.
--
-- Building nets, plans and eager calls are in neap.nn.build, parameters as values in neap.nn.state.
-- @module neap.nn.module
local core = require "neap.core"
local options = require "neap.options"

local Module = {}

--- What is being built: context.building = { net, blobs = {record = blob}, used = {name = n}, train, trace, grads } or nil.
local context = {}

-- ---- the tree ------------------------------------------------------------------------------------------------------

local function is_module(x) return type(x) == "table" and rawget(x, "_is_module") == true end
local function is_class(x) return type(x) == "table" and rawget(x, "_class_name") ~= nil end

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

--- Nets and programs built from the tree so far are old.
local function changed(m)
  local root = root_of(m)
  rawset(root, "_nets", {})
  rawset(root, "_version", (rawget(root, "_version") or 0) + 1)
end

--- Raises unless x is a module; says so when it is a class without its parentheses.
-- @param what string what was expected, for the message
function Module.expect(x, what, level)
  if is_module(x) then return x end
  if is_class(x) then
    error(("%s is the class nn.%s: call it, nn.%s { .. } or nn.%s()"):format(what, x._class_name, x._class_name, x._class_name), level + 1)
  end
  error(("%s is a %s, expected a module"):format(what, type(x)), level + 1)
end

--- Registers `child` under `name`. A module that already has a parent is shared: it keeps its first place.
function Module.add(self, name, child, level)
  level = (level or 1) + 1
  if type(name) ~= "string" or not name:match "^[%w_%-]+$" then
    error(("a child's name is of letters, digits, _ and -, got \"%s\""):format(tostring(name)), level)
  end
  if Module[name] ~= nil or name:sub(1, 1) == "_" then error(("\"%s\" is a module's own word, and can't name a child"):format(name), level) end
  if self._children[name] ~= nil and self._children[name] ~= child then
    error(("%s has two children named \"%s\""):format(self._class, name), level)
  end
  local above = self
  while above do
    if above == child then error(("%s can't be its own child \"%s\""):format(self._class, name), level) end
    above = rawget(above, "_parent")
  end
  if self._children[name] == nil then self._order[#self._order + 1] = name end
  self._children[name] = child
  if rawget(child, "_parent") == nil then
    if rawget(child, "_ws") then error(("child \"%s\" has been run on its own already: its parameters live there; add it before"):format(name), level) end
    rawset(child, "_parent", self)
    rawset(child, "_name", name)
  end
  changed(self)
  return child
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

--- Registers the modules of a list in order, with names of their own. For containers' init.
function Module.add_all(self, list, level)
  level = (level or 1) + 1
  for i = 1, #list do
    local child = Module.expect(list[i], ("nn.%s: item %d"):format(self._class, i), level)
    Module.add(self, Module.child_name(self, child), child, level)
  end
end

-- ---- parameters ------------------------------------------------------------------------------------------------------

--- The parameter record's full blob name.
local function blob_name(record)
  local path = path_of(record.owner)
  return path == "" and record.name or path .. "." .. record.name
end

local function dotted(record) return (blob_name(record):gsub("/", ".")) end

--- Follows ties to the record that owns the storage.
local function storage_record(record)
  while record.tied do record = record.tied end
  return record
end

--- Declares a parameter of this module; with a name alone finds one, "fc1.weight".
-- @param name string
-- @param shape integer[]
-- @param initial table|number|nil from neap.init; zeros when nil
-- @param opts table|nil {trainable = bool, dtype = string}
function Module.param(self, name, shape, initial, opts)
  if shape == nil then return Module.find_param(self, name, 2) end
  if self._params[name] then error(("%s has two parameters named \"%s\""):format(self._class, name), 2) end
  if type(initial) == "number" then initial = { op = "Constant", value = initial } end
  local record = { name = name, shape = shape, init = initial or { op = "Constant", value = 0 }, owner = self,
    trainable = not (opts and opts.trainable == false), dtype = opts and opts.dtype or "f32", role = "parameter" }
  self._params[#self._params + 1] = record
  self._params[name] = record
  return record
end

--- Declares a statistic: state that training updates but no gradient reaches.
function Module.buffer(self, name, shape, initial, opts)
  local record = Module.param(self, name, shape, initial, { trainable = false, dtype = opts and opts.dtype })
  record.role = "state"
  return record
end

-- ---- walking ---------------------------------------------------------------------------------------------------------

local function all_modules(self)
  local list, seen = {}, {}
  local function walk(m)
    if seen[m] then return end
    seen[m] = true
    list[#list + 1] = m
    for _, name in ipairs(m._order) do walk(m._children[name]) end
  end
  walk(self)
  return list
end

--- All modules below and including this one, parents first; iterator of (path with dots, module).
function Module.modules(self)
  local list, i = all_modules(self), 0
  return function()
    i = i + 1
    if list[i] then return (path_of(list[i]):gsub("/", ".")), list[i] end
  end
end

--- Parameter and statistic records below and including this module, in order of definition.
local function records(self)
  local list = {}
  for _, m in ipairs(all_modules(self)) do
    for _, record in ipairs(m._params) do list[#list + 1] = record end
  end
  return list
end

--- "*" stands for any text, "?" for one character.
local function glob_to_pattern(glob, who)
  if type(glob) ~= "string" then error(("%s expects a name or a glob such as \"block*\", got a %s"):format(who, type(glob)), 3) end
  return "^" .. glob:gsub("[%^%$%(%)%%%.%[%]%+%-]", "%%%0"):gsub("%*", ".*"):gsub("%?", ".") .. "$"
end

local function matching(self, glob, who)
  local pattern, found = glob_to_pattern(glob, who), {}
  for path, m in Module.modules(self) do
    if path:match(pattern) or m._class:match(pattern) then found[#found + 1] = m end
  end
  return found
end

--- Modules whose path or class name matches the glob, in order.
-- @usage model:find "Conv2d"   model:find "block*.conv1"
function Module.find(self, glob) return matching(self, glob, "find") end

--- Stops training the parameters whose dotted names, or whose modules, match the glob; `freeze(glob, false)` undoes it.
function Module.freeze(self, glob, frozen)
  local pattern, n = glob_to_pattern(glob or "*", "freeze"), 0
  for _, record in ipairs(records(self)) do
    local name = dotted(record)
    local above = path_of(record.owner):gsub("/", ".")
    local hit = name:match(pattern)
    while not hit and above ~= "" do
      hit = above:match(pattern)
      above = above:match "^(.*)%.[^.]*$" or ""
    end
    if record.role == "parameter" and hit then
      record.trainable, n = frozen == false, n + 1
    end
  end
  if n == 0 then error(("freeze: no parameter matches \"%s\""):format(glob or "*"), 2) end
  changed(self)
  return self
end

--- Runs `f` whenever the matching modules' forward has been built: f(module, output blobs..), to name, keep or look at
-- blobs. With "backward" f(module, gradient blob of its output) when a training net is built.
function Module.on(self, glob, direction, f)
  if direction ~= "forward" and direction ~= "backward" then
    error(("on expects \"forward\" or \"backward\", got \"%s\""):format(tostring(direction)), 2)
  end
  if type(f) ~= "function" then error("on expects a function, got a " .. type(f), 2) end
  local found = matching(self, glob, "on")
  if #found == 0 then error(("on: no module matches \"%s\""):format(glob), 2) end
  for _, m in ipairs(found) do
    local hooks = rawget(m, "_hooks") or { forward = {}, backward = {} }
    rawset(m, "_hooks", hooks)
    table.insert(hooks[direction], f)
  end
  changed(self)
  return self
end

--- Training mode (the default) and evaluation mode of eager calls. On a child it also holds in nets built for training: a
-- batch norm in evaluation mode keeps its statistics.
local function set_mode(self, mode)
  for _, m in ipairs(all_modules(self)) do rawset(m, "_mode", nil) end
  rawset(self, "_mode", mode)
  if rawget(self, "_parent") then changed(self) end
  return self
end
function Module.train(self) return set_mode(self, true) end
function Module.eval(self) return set_mode(self, false) end

--- Whether the net being built is for training where `self` is; without a net, the mode set. `self.training` is the same.
function Module.is_training(self)
  local m = self
  while m and rawget(m, "_parent") do
    local mode = rawget(m, "_mode")
    if mode == false then return false end
    if mode then break end
    m = rawget(m, "_parent")
  end
  if context.building then return context.building.train end
  return m == nil or rawget(root_of(m), "_mode") ~= false
end

-- ---- calling ---------------------------------------------------------------------------------------------------------

--- The blob of a parameter record in the net being built; declared there at its first use.
local function blob_of(record)
  local building, owner = context.building, storage_record(record)
  local blob = building.blobs[owner]
  if blob == nil then
    blob = building.net:declare(blob_name(owner), owner.role, owner.shape, owner.dtype, owner.init, owner.trainable)
    building.blobs[owner] = blob
  end
  return blob
end

--- Emits one op in the net being built. The first output is named after the module's path the first time.
-- @param type string op
-- @param inputs table blobs (false where absent)
-- @param attrs table|nil
-- @param n_out integer|nil outputs wanted, 1 when nil
-- @return blobs
function Module.op(self, type, inputs, attrs, n_out)
  local path, used = path_of(self), context.building.used
  local name = path == "" and self._base or path
  used[name] = (used[name] or 0) + 1
  if used[name] > 1 then name = name .. "_" .. used[name] end
  local outs = { name }
  for k = 2, n_out or 1 do outs[k] = name .. "." .. k end
  return context.building.net:op(type, inputs, outs, attrs or {})
end

--- Which ops of the net a module added itself, for m:summary.
local function trace(self, n_before, output)
  local building = context.building
  local all, own = building.net:_ops(), {}
  for i = n_before + 1, #all do
    if not building.claimed[i] then
      building.claimed[i] = true
      own[#own + 1] = all[i].outputs[1]
    end
  end
  table.insert(building.trace, { module = self, ops = own, output = output })
end

--- How the names of Neap's own chunks begin.
local own_source = debug.getinfo(1, "S").source:match "^(.*)nn/module"

--- What ops of a layer are said to come from: the line that made the layer; nil, the line that calls the op, where forward
-- is the user's own.
local function line_of(self)
  local source = debug.getinfo(self._methods.forward, "S").source
  return source:sub(1, #own_source) == own_source and rawget(self, "_line") or nil
end

local function call(self, ...)
  local building = context.building
  if building == nil then return root_of(self):run_eager(self, ...) end
  local hooks, forward_method = rawget(self, "_hooks"), self._methods.forward
  if forward_method == nil then error(("nn.%s has no forward"):format(self._class), 2) end
  local n_before = building.trace and #building.net:_ops()
  local function forward(...)
    local out = table.pack(forward_method(self, ...))
    if building.trace then trace(self, n_before, out[1]) end
    if hooks then
      for _, f in ipairs(hooks.forward) do f(self, table.unpack(out, 1, out.n)) end
      for _, f in ipairs(hooks.backward) do table.insert(building.watched, { module = self, blob = out[1], f = f }) end
    end
    return table.unpack(out, 1, out.n)
  end
  local net = building.net
  if rawget(self, "_parent") == nil or next(self._children) == nil then return net:made_by(line_of(self), forward, ...) end
  return net:made_by(line_of(self), net.scope, net, self._name, forward, ...)
end

-- ---- classes ---------------------------------------------------------------------------------------------------------

--- Lists of a model's memory, by neap.model_memory: {name, data, diff} each.
local memory_lists = { params = true, outputs = true, inputs = true, caches = true }

local function index(self, key)
  local params = rawget(self, "_params")
  if type(key) == "string" and params[key] then
    if context.building then return blob_of(params[key]) end
    return Module.as_parameter(params[key])
  end
  local child = rawget(self, "_children")[key]
  if child ~= nil then return child end
  if key == "forward" then return call end
  if key == "training" then return Module.is_training(self) end
  local method = rawget(self, "_methods")[key]
  if method ~= nil then return method end
  if memory_lists[key] then
    local memory = require("neap.model_memory").of(root_of(self))
    if key == "params" then return memory:params() end
    return memory[key]
  end
  return Module[key]
end

local function newindex(self, key, value)
  if is_class(value) then Module.expect(value, ("nn.%s: field \"%s\""):format(self._class, tostring(key)), 2) end
  if is_module(value) then
    Module.add(self, key, value, 2)
  elseif rawget(self, "_params")[key] then
    error(("nn.%s: \"%s\" is a parameter; assign to its data, m.%s.data = tensor"):format(self._class, key, key), 2)
  else
    rawset(self, key, value)
  end
end

local function to_text(self, depth)
  depth = depth or 0
  local text = self.describe and self:describe() or ""
  local lines = { self._class .. (text ~= "" and " { " .. text .. " }" or "") }
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
local function class(spec)
  if type(spec) ~= "table" or type(spec[1]) ~= "string" then error("nn.module takes { \"Name\", init = f(self, o), forward = f(self, x) }", 2) end
  if spec.forward and type(spec.forward) ~= "function" then error("nn.module: forward is a function", 2) end
  local name, methods = spec[1], {}
  for key, value in pairs(spec) do
    if type(key) == "string" and key ~= "init" and key ~= "options" and key ~= "name" then methods[key] = value end
  end
  local meta = { __index = index, __newindex = newindex, __call = call, __tostring = function(m) return to_text(m) end,
    __name = "neap.nn." .. name }
  local function make(_, given)
    if given ~= nil and type(given) == "userdata" then
      error(("nn.%s is a class: make a module first, local m = nn.%s { .. }, then m(x)"):format(name, name), 2)
    end
    local o = given or {}
    if spec.options then o = options.read("nn." .. name, spec.options, given, 2) end
    local self = setmetatable({ _is_module = true, _class = name, _methods = methods, _children = {}, _order = {}, _params = {},
      _nets = {}, _line = core.line(), _base = spec.name or name:lower():gsub("%d+d$", "") }, meta)
    if type(o) == "table" and rawget(o, "name") ~= nil then
      if type(o.name) ~= "string" then error(("nn.%s: name expects a string, got a %s"):format(name, type(o.name)), 2) end
      rawset(self, "_wanted_name", o.name)
    end
    if spec.init then spec.init(self, o) end
    return self
  end
  return setmetatable({ _class_name = name }, { __call = make, __tostring = function() return "class nn." .. name end,
    __index = function(_, key) error(("nn.%s is a class: call it before .%s"):format(name, tostring(key)), 2) end })
end

return { Module = Module, class = class, is_module = is_module, context = context, path_of = path_of, root_of = root_of, changed = changed,
  records = records, all_modules = all_modules, blob_name = blob_name, dotted = dotted, storage_record = storage_record }
