--- Modules: layers, and trees of layers.
--
-- A module has children (neap.nn.tree) and parameters by name. Its `forward` is written once:
-- called on blobs it builds ops in a net, called on tensors it runs (compiled per shape, cached).
-- Inside `forward`, `self.weight` is the parameter's blob in the net being built; outside, it is
-- the parameter: {data, grad, trainable, shape}.
--
-- INVARIANT: a parameter is a record of its module; its blob's name is the module's path and its
-- own name, "block4/mlp/fc1.weight" (neap.nn.names).
-- INVARIANT: whatever changes the nets that a tree builds (a child, freeze, tie, a child's mode)
-- raises the root's `_version`, by which programs made from it know that they are old.
--
-- A forward while a net is built is in neap.nn.forward, nets of models in neap.nn.build, plans of
-- them in neap.nn.planned, eager calls in neap.nn.eager, parameters as values in neap.nn.state.
-- @module neap.nn.module
local context = require "neap.nn.context"
local core = require "neap.core"
local forward = require "neap.nn.forward"
local names = require "neap.nn.names"
local options = require "neap.inner.options"
local is_blob = require("neap.op").is_blob
local record = require "neap.inner.record"
local tree = require "neap.nn.tree"
local fail = core.fail

local Module = {}
local is_module, changed = tree.is_module, tree.changed

-- ---- children -----------------------------------------------------------------------------------

--- Raises unless x is a module; says so when it is a class without its parentheses.
-- @param what string what was expected, for the message
function Module.expect(x, what)
  if is_module(x) then return x end
  tree.check_called(x, what)
  fail(("%s is a %s, expected a module"):format(what, type(x)))
end

--- Lists of a model's memory, by neap.nn.chain: {name, data, diff} each.
local memory_lists = { params = true, outputs = true, inputs = true, caches = true }
local own_words = { forward = true, training = true }

--- Raises for a name that a module itself answers to.
local function check_free(self, key)
  if Module[key] ~= nil or memory_lists[key] or own_words[key] then
    fail(("nn.%s: \"%s\" is a module's own word, and can't name a field or a child"):format(
      self._class, key))
  end
  local own = self._params[key]
  if own and own.role == "state" and context.building() then
    fail(("nn.%s: \"%s\" is a buffer; what a forward makes of it is written by an op: \z
      net:Copy({ new }, { self.%s }), net being new.net"):format(self._class, key, key))
  end
  if own then
    fail(("nn.%s: \"%s\" is a parameter; assign to its data, m.%s.data = tensor \z
          (self:param(\"%s\", ..) has made self.%s already: "
        .. "it is called without assigning what it gives)"):format(self._class, key, key, key, key))
  end
end

--- Puts `child` under `name`, in the place of what was there.
function Module.add(self, name, child)
  if type(name) ~= "string" or not name:match "^[%w_%-]+$" then
    fail(("a child's name is of letters, digits, _ and -, got \"%s\""):format(tostring(name)))
  end
  check_free(self, name)
  self._fields[name] = nil
  tree.put(self, name, child)
  return child
end

--- Registers the modules of a list in order, each under the name it wishes or a numbered one. For
-- containers' init.
function Module.add_all(self, list)
  for i = 1, #list do
    local child = Module.expect(list[i], ("nn.%s: item %d"):format(self._class, i))
    local name = child._wanted_name or tree.numbered(self, child._base)
    if self._children[name] ~= nil and self._children[name] ~= child then
      fail(("%s has two children named \"%s\""):format(self._class, name))
    end
    Module.add(self, name, child)
  end
end

--- The modules directly below this one, in order. @return list
function Module.children(self) return (tree.children(self)) end

-- ---- parameters ---------------------------------------------------------------------------------

local param_options = record.declare("m:param", { call = "(name, shape, init, {})",
  doc = [[Declares a parameter of a module, filled by `init`, one of neap.init, a number, or nil for
    zeros. With a name alone it finds one: m:param "fc1.weight".]],
  { "trainable", "boolean", true, doc = "whether training changes it" },
  { "dtype", "dtype", "f32", doc = "of its elements" },
  example = 'm:param("scale", { 4 }, neap.init.ones, { trainable = false })' })

--- m:param(name [, shape [, init [, { .. }]]]): see the record.
function Module.param(self, name, shape, initial, opts)
  if shape == nil then return Module.find_param(self, name) end
  local o = param_options:read(opts)
  if type(name) ~= "string" or not name:match "^[%w_%-]+$" then
    fail(("a parameter's name is of letters, digits, _ and -, got \"%s\""):format(tostring(name)))
  end
  if self._params[name] then
    fail(("%s has two parameters named \"%s\""):format(self._class, name))
  end
  if self._children[name] then
    fail(("%s has a child named \"%s\" already"):format(self._class, name))
  end
  if type(shape) ~= "table" then
    fail(("m:param \"%s\" expects a shape, e.g. { 3, 4 }, got a %s"):format(name, type(shape)))
  end

  -- The record alone is made: numbers come when a workspace needs them (neap.nn.state).
  if type(initial) == "number" then initial = { op = "Constant", value = initial } end
  local made = {
    name = name,
    shape = shape,
    init = initial or { op = "Constant", value = 0 },
    owner = self,
    trainable = o.trainable,
    dtype = o.dtype,
    role = "parameter",
  }
  self._params[#self._params + 1] = made
  self._params[name] = made
  return made
end

local buffer_options = record.declare("m:buffer", { call = "(name, shape, init, {})",
  doc = [[Declares a statistic of a module: state that training updates but no gradient reaches. A
    forward reads it as self.NAME, and writes it by an op whose output it is, a memory bank, say:
    if self.training then new.net:Copy({ new }, { self.bank }) end. Gradients are of what was
    read.]],
  { "dtype", "dtype", "f32", doc = "of its elements" },
  example = 'm:buffer("mean", { 4 }, 0, { dtype = "f64" })' })

--- m:buffer(name, shape [, init [, { .. }]]): see the record.
function Module.buffer(self, name, shape, initial, opts)
  local o = buffer_options:read(opts)
  local made = Module.param(self, name, shape, initial, { trainable = false, dtype = o.dtype })
  made.role = "state"
  return made
end

-- ---- walking ------------------------------------------------------------------------------------

--- All modules below and including this one, parents first; iterator of (path with dots, module).
function Module.modules(self)
  local _, t = tree.home(self)
  local list, i = tree.modules(self), 0
  return function()
    i = i + 1
    if list[i] then return (t.path[list[i]]:gsub("/", ".")), list[i] end
  end
end

--- m:name_in(record, tree): the dotted name of a record as m calls it.
Module.name_in = names.name_in

local function matching(self, glob, who)
  local pattern, found = names.glob_to_pattern(glob, who), {}
  for path, m in Module.modules(self) do
    if path:match(pattern) or m._class:match(pattern) then found[#found + 1] = m end
  end
  return found
end

--- Modules whose path or class name matches the glob, in order.
-- @usage model:find "Conv2d"   model:find "block*.conv1"
function Module.find(self, glob) return matching(self, glob, "find") end

--- What was built of any root that has one of these is old: a root below `self` has its own nets,
-- and other models may share a part.
local function all_changed(...)
  local seen = {}
  for _, list in ipairs { ... } do
    for _, m in ipairs(list) do changed(m, seen) end
  end
end

--- Stops training the parameters whose dotted names, or whose modules, match the glob;
-- `freeze(glob, false)` undoes it. Every model that shares them knows.
function Module.freeze(self, glob, frozen)
  if frozen ~= nil and type(frozen) ~= "boolean" then
    fail(("freeze expects true or false after the glob, got %s"):format(options.shown(frozen)))
  end
  local pattern, found, root, t = names.glob_to_pattern(glob or "*", "freeze"), {}, tree.home(self)
  for _, record in ipairs(names.records(self)) do
    if record.role == "parameter" and names.matches(self, pattern, record, t) then
      record.trainable = frozen == false
      found[#found + 1] = record.owner
    end
  end
  if #found == 0 then fail(("freeze: no parameter matches \"%s\""):format(glob or "*")) end
  all_changed({ self, root }, found)
  return self
end

--- Runs `f` whenever the matching modules' forward has been built: f(module, output blobs..), to
-- name, keep or look at blobs. With "backward" f(module, gradient blob of its output) when a
-- training net is built.
function Module.on(self, glob, direction, f)
  if direction ~= "forward" and direction ~= "backward" then
    fail(("on expects \"forward\" or \"backward\", got \"%s\""):format(tostring(direction)))
  end
  if type(f) ~= "function" then fail("on expects a function, got a " .. type(f)) end
  local found = matching(self, glob, "on")
  if #found == 0 then fail(("on: no module matches \"%s\""):format(glob)) end
  for _, m in ipairs(found) do
    local hooks = m._hooks or { forward = {}, backward = {} }
    rawset(m, "_hooks", hooks)
    table.insert(hooks[direction], f)
  end
  all_changed({ self }, found)
  return self
end

--- Training mode (the default) and evaluation mode of eager calls. On a child it also holds in nets
-- built for training: a batch norm in evaluation mode keeps its statistics.
local function set_mode(self, mode)
  local root = tree.root_of(self)
  -- nets are kept by their root's mode; other modes they were built for
  local is_new, found = self._parent, {}

  -- One mode holds for the whole subtree, so modes set below are forgotten.
  for _, m in ipairs(tree.modules(self)) do
    if m ~= self and rawget(m, "_mode") ~= nil then found[#found + 1] = m end
    rawset(m, "_mode", nil)
  end
  -- A child put into training mode while its model evaluates stays in it: Monte Carlo dropout.
  rawset(self, "_mode",
    mode and root ~= self and rawget(root, "_mode") == false and "always" or mode)

  -- A root's own mode is part of what its nets are kept by, but a child's is not: nets are old
  -- then.
  if is_new or found[1] then all_changed({ self }, found) end
  return self
end
--- Training mode, which dropout and norms look at; m:train(false) is m:eval().
-- @param mode boolean|nil
function Module.train(self, mode)
  if mode ~= nil and type(mode) ~= "boolean" then
    fail("m:train expects nothing, true or false, got " .. tostring(mode))
  end
  return set_mode(self, mode ~= false)
end
--- Evaluation mode: m:train(false).
function Module.eval(self) return set_mode(self, false) end

--- Whether the net being built is for training where `self` is; without a net, the mode set.
-- `self.training` is the same.
function Module.is_training(self)
  local m = self

  -- The nearest mode on the way to the root decides, unless it is plain training mode: that leaves
  -- the question to the build.
  while m._parent do
    local mode = rawget(m, "_mode")
    if mode == false then return false end
    if mode == "always" then return true end
    if mode then break end
    m = m._parent
  end
  local building = context.building()
  if building then return building.train end
  return rawget(tree.root_of(m), "_mode") ~= false
end

-- ---- calling ------------------------------------------------------------------------------------

--- Emits one op in the net being built. The outputs are named after the module's path.
-- @param type string op
-- @param inputs table blobs (false where absent)
-- @param attrs table|nil
-- @param n_out integer|nil outputs wanted, 1 when nil
-- @return blobs
function Module.op(self, type, inputs, attrs, n_out)
  local net, path = forward.net_here(self), context.building().tree.path[self]

  -- The class names the blob where a path can't: of a module that only a function made, which has
  -- none, and of one with parts, in whose scope the name is put already.
  local has_scope = self._parent and tree.has_children(self)
  local named_by_path = path and path ~= "" and not has_scope
  local outs = { net:fresh_name(named_by_path and path or self._base) }
  for k = 2, n_out or 1 do outs[k] = net:fresh_name(outs[1] .. "." .. k) end
  return net:op(type, inputs, outs, attrs or {})
end

local function has_blob(...)
  for i = 1, select("#", ...) do
    if is_blob((select(i, ...))) then return true end
  end
  return false
end

--- m:forward(..), m(..) -> what the module computes of its inputs: of tensors at once, of blobs as
-- ops of the net being built.
local function call(self, ...)
  local building = context.building()
  forward.check_arity(self, ...)
  if building then return forward.run(self, building, ...) end
  forward.check_given(self, ...)
  local run = has_blob(...) and Module._run_as_guest or Module.run_eager
  return run((tree.home(self)), self, ...)
end

-- ---- classes ------------------------------------------------------------------------------------

local function index(self, key)
  if type(key) == "string" and self._params[key] then
    if context.building() then return forward.value_of(self, self._params[key]) end
    return Module.as_parameter(self._params[key], (tree.home(self)))
  end
  local child = self._children[key]
  if child ~= nil then return child end
  if math.type(key) == "integer" then -- the layers of a container, by number
    local list = tree.layers(self)
    return list[key < 0 and #list + 1 + key or key]
  end
  local field = self._fields[key]
  if field ~= nil then return field end
  if key == "forward" then return call end
  if key == "training" then return Module.is_training(self) end
  local method = self._methods[key]
  if method ~= nil then return method end

  -- The lists of layer-by-layer running cost a chain of nets: made when they are asked for.
  if memory_lists[key] then
    local memory = require("neap.nn.chain").of((tree.home(self)))
    if key == "params" then return memory:params() end
    return memory[key]
  end
  return Module[key]
end

--- m.key = value. Modules and tables of modules are children, in the place of what was there; all
-- else is a field.
local function newindex(self, key, value)
  -- Names with an underscore are Neap's own fields, which no table of the user's holds.
  if type(key) == "string" and key:sub(1, 1) == "_" then
    rawset(self, key, value)
    return
  end
  tree.check_called(value, ("nn.%s: field \"%s\""):format(self._class, tostring(key)))
  if is_module(value) then
    Module.add(self, key, value)
    return
  end
  if type(key) == "string" then check_free(self, key) end

  -- A plain value takes the place of a module: the slot is given up.
  if self._children[key] or self._lists[key] then tree.put(self, key, nil) end
  -- A forward may read it: what was built of the old value is old. (What a forward itself sets is
  -- not.)
  if self._fields[key] ~= value and not context.building() then changed(self) end
  self._fields[key] = value

  -- A table that holds modules, or may come to, is a slot whose content is found at each walk.
  if tree.note_list(self, key, value) then changed(self) end
end

--- For completion: children, parameters, fields, methods.
local function names_of(self)
  local names = {}
  for _, from in ipairs {
    self._children, self._params, self._fields, self._methods, memory_lists, own_words, Module,
  } do
    for name in pairs(from) do names[#names + 1] = type(name) == "string" and name or nil end
  end
  return names
end

local function to_text(self, depth)
  depth = depth or 0
  local text = self.describe and self:describe() or ""
  local lines = { self._class .. (text ~= "" and " { " .. text .. " }" or "") }
  local children, names = tree.children(self)
  for i, child in ipairs(children) do
    lines[#lines + 1] = ("  "):rep(depth + 1) .. names[i]:gsub("/", ".") .. ": "
      .. to_text(child, depth + 1)
  end
  return table.concat(lines, "\n")
end

--- The options table that a call of a class means: Linear(3, 4), Linear{3, 4} and Linear(3, 4,
-- {bias = false}) are alike.
local function options_of(name, ...)
  local n, first = select("#", ...), (...)
  if type(first) == "userdata" then
    fail(("nn.%s is a class: make a module first, local m = nn.%s { .. }, then m(x)"):format(
      name, name))
  end
  if n <= 1 and (first == nil or type(first) == "table" and not is_module(first)) then
    return first
  end
  local o = { ... }

  -- A table at the end gives the named options. One with a metatable is a value, a tensor or an
  -- initialiser.
  local last = o[n]
  if type(last) == "table" and getmetatable(last) == nil then
    o[n] = nil
    for key, value in pairs(last) do
      if o[key] ~= nil or type(key) ~= "string" then
        fail(("nn.%s: give positions before the table, or in it"):format(name))
      end
      o[key] = value
    end
  end
  return o
end

--- The fields of a class that Neap reads, with what they must be; others are methods and constants
-- of the class.
local spec_types = {
  init = "function", forward = "function", describe = "function", options = "table",
  name = "string",
}

--- Raises for a field of a class that is misspelt, or of another type than Neap reads.
local function check_spec(spec)
  for _, field in ipairs(options.keys(spec)) do
    local value, expected = spec[field], spec_types[field]
    if expected and type(value) ~= expected then
      fail(("nn.module: %s is a %s, got a %s"):format(field, expected, type(value)))
    end

    -- Only fields that are still unset are offered: a constant "forwards" beside a forward is
    -- meant.
    local missing = {}
    for name, type_name in pairs(spec_types) do
      if spec[name] == nil and type(value) == type_name then missing[#missing + 1] = name end
    end
    local near = not expected and type(field) == "string" and options.nearest(field, missing)
    if near then
      fail(("nn.module: nobody reads \"%s\" of class \"%s\", did you mean \"%s\"?"):format(
        field, spec[1], near))
    end
  end
end

-- What every class takes besides its own options.
local common = {
  { "name", "name", doc = "what a container calls it, in the place of a numbered name" },
  { "input", "shapes", says = "the shape of one example, e.g. { 1, 28, 28 }, or one for each input",
    doc = "what a net is made for before it has met data; without the batch" } }

--- The record of a class that declares its options.
local function record_of(name, declared)
  local spec = { doc = declared.doc, example = declared.example, items = declared.items,
    positions = declared.positions }
  for i, field in ipairs(declared) do spec[i] = field end
  for _, field in ipairs(common) do spec[#spec + 1] = field end
  return record.new("nn." .. name, spec)
end

--- Calls init of a class that declares no options with those given: a field that init does not read
-- is an error. While init runs, the table notes what is read; then it is a plain one, and may be
-- kept in a field.
local function init_noting(self, init, given)
  -- The table that init sees is empty, so that every reading goes through __index and is noted.
  local o, content, is_read = {}, {}, { name = true, input = record.is("shapes", given.input) }
  for key, value in pairs(given) do content[key] = value end
  if is_read.input then self._fields.input_shape = given.input end
  local function read_all()
    for key in pairs(content) do is_read[key] = true end
    return next, content, nil
  end
  setmetatable(o, {
    __len = function() return #content end,
    __newindex = content,
    __pairs = read_all,
    __index = function(_, key)
      is_read[key] = true
      return content[key]
    end,
  })

  -- Afterwards it is an ordinary table again: a forward may keep it and read it later.
  init(self, o)
  setmetatable(o, nil)
  for key, value in pairs(content) do o[key] = value end
  for _, value in pairs(self._fields) do
    if value == o then return end -- a forward may read it
  end

  -- Otherwise what init has not read, nobody ever will.
  for _, key in ipairs(options.keys(given)) do
    if not is_read[key] then
      local what = type(key) == "string" and ("unknown field \"%s\""):format(key)
        or ("one value too many at position %s"):format(tostring(key))
      fail(("nn.%s: %s: its init does not read it"):format(self._class, what))
    end
  end
end

--- Makes a class of modules.
-- @param spec table { "Name", options = {..}, init = function(self, o),
--   forward = function(self, x, ...), describe = function(self) -> string,
--   name = base of automatic names }; other fields are methods and constants of its modules.
--   `options` says what the class takes: { { name, type, default, doc = text }, .. }, and beside
--   these doc =, example =, positions = (neap.inner.record). What is given is checked by it, and
--   help shows it. Every class takes `name`, and `input`, the shape of one example. Without
--   `options` init gets the table as it was given, and a field that it does not read is an error.
--
-- A forward is run once for each kind of input, and what it adds to a net is kept. Besides its
-- inputs it may read parameters, buffers and fields of self: setting one, self.scale = 2, is
-- noticed. Anything else it reads then and not again: upvalues, globals, fields of tables, tensors
-- that are changed in place, math.random. What is to change between runs is an input, a buffer or a
-- field of self.
-- @return class, called with one options table
-- @usage local SwiGLU = nn.module { "SwiGLU",
--   init = function(self, o) self.gate = nn.Linear { o[1], o[2] }; self.up = nn.Linear { o[1], o[2]
--   } end, forward = function(self, x) return self.gate(x):silu() * self.up(x) end }
local function class(spec)
  if type(spec) ~= "table" or type(spec[1]) ~= "string" then
    fail("nn.module takes { \"Name\", init = f(self, o), forward = f(self, x) }")
  end
  if #spec > 1 then
    fail(("nn.module: \"%s\" is followed by another item; init and forward go by name"):format(
      spec[1]))
  end
  check_spec(spec)
  local name, methods = spec[1], {}
  for key, value in pairs(spec) do
    if type(key) == "string" and key ~= "init" and key ~= "options" and key ~= "name" then
      methods[key] = value
    end
  end

  -- One metatable for all modules of the class.
  local meta = {
    __index = index,
    __newindex = newindex,
    __call = call,
    __len = function(m) return #tree.layers(m) end,
    __tostring = function(m) return to_text(m) end,
    __name = "neap.nn." .. name,
    __names = names_of,
  }

  -- A class without init takes no options of its own; one with init and without options reads its
  -- table by itself.
  local declared = spec.options or not spec.init and {} or nil
  local own_record = declared and record_of(name, declared)
  local function make(_, ...)
    local given = options_of(name, ...)

    -- Fields are set before the metatable, whose __newindex would take them for the user's.
    local self = tree.fields()
    self._is_module, self._class, self._methods, self._params, self._fields = true, name, methods,
      {}, {}
    self._line, self._base, self._made_in = core.line(),
      spec.name or name:lower():gsub("%d+d$", ""), context.building() or false
    setmetatable(self, meta)
    local o = given or {}
    if own_record then
      o = own_record:read(given)
      self._fields.input_shape = o.input
      record.note(self, o)
    end

    -- The wish is kept: a container that takes the module asks for it.
    if type(o) == "table" and rawget(o, "name") ~= nil then
      if type(o.name) ~= "string" then
        fail(("nn.%s: name expects a string, got a %s"):format(name, type(o.name)))
      end
      rawset(self, "_wanted_name", o.name)
    end

    -- An init that raises leaves the modules that it was given with the parents they had.
    if own_record and spec.init then
      tree.attempt(nil, spec.init, self, o)
    elseif spec.init then
      tree.attempt(nil, init_noting, self, spec.init, o)
    end
    return self
  end
  return setmetatable({ _class_name = name, _record = own_record }, {
    __call = make,
    __tostring = function() return "class nn." .. name end,
    __index = function(_, key)
      fail(("nn.%s is a class: call it before .%s"):format(name, tostring(key)))
    end,
  })
end

return { Module = Module, class = class, is_module = is_module }
