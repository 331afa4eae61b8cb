--- Nets: ops over named blobs, built from Lua.
--
-- `net:FC({"x", "w", "b"}, "y")` adds an op; every registered op is a method with a capital, lower
-- case is the net's own. A blob handle (neap.net.blob) and its name are interchangeable; what a
-- name means inside a scope is neap.net.naming's.
-- @module neap.net
local again = require "neap.plan.again"
local core = require "neap.core"
local guard = require "neap.inner.guard"
local handle = require("neap.net.blob").handle
local mem_param = require "neap.memory.mem_param"
local missing = require "neap.inner.missing"
local options = require "neap.inner.options"
local op = require "neap.op"
local naming = require "neap.net.naming"
local range = require "neap.memory.range"
local record = require "neap.inner.record"
local refusal = require "neap.memory.refusal"
local report = require "neap.report"
local scope_flow = require "neap.net.scope_flow"
local fail = core.fail

local Net = core.Net
local state_of, scope_of, param_path_of, current = naming.state_of, naming.scope_of,
  naming.param_path_of, naming.current
local written, written_param, is_known = naming.written, naming.written_param, naming.is_known
local read, reader, read_list = naming.read, naming.reader, naming.read_list
local net_module = {}

-- ---- building -----------------------------------------------------------------------------------

--- neap.net "name"
function net_module.new(name)
  if name ~= nil and type(name) ~= "string" then
    fail("neap.net expects a name, got a " .. type(name))
  end
  return core.new_net(name or "net")
end

--- neap.net_from(text): what net:text() wrote.
function net_module.read(text) return core.read_net(text) end

--- Declares a blob that is there before the net runs; the name is taken as it is, whatever the
-- scope.
-- @param role string "input", "parameter", "state" ...
-- @param shape integer[]
-- @param dtype string|nil "f32"
-- @param init table|nil {op = "Xavier", ..}
-- @param trainable boolean|nil
-- @return blob
function Net:declare(name, role, shape, dtype, init, trainable)
  if type(name) ~= "string" then
    fail(("net \"%s\": a blob's name is expected, got a %s; net:input(name, shape), \z
      net:param(name, shape, init)"):format(self:_name(), type(name)))
  end
  self:_declare(name, role, shape, dtype, init, trainable, state_of(self).line)
  return handle(self, name)
end

--- net:input(name, {64, 784} [, dtype]) -> blob
function Net:input(name, shape, dtype)
  return self:declare(written(self, name), "input", shape, dtype, nil, false)
end

local param_options = record.declare("net:param", { call = "(name, shape, init, {})",
  doc = [[Declares a parameter and gives its blob. init: neap.init.xavier {}, { "Xavier" }, a
    number, or nil for zeros.]],
  { "trainable", "boolean", unset = "what the variable scope says, or true",
    doc = "whether a gradient without `wrt` is taken by it" },
  { "dtype", "dtype", unset = '"f32"', doc = "of its elements" },
  { "reuse", "boolean", unset = "what the variable scope says, or false",
    doc = "whether a parameter of that name which is there already is meant" },
  example = 'net:param("v", { 8, 4 }, neap.init.xavier {}, { trainable = false })' })

--- The net whose parameters one that is declared in `net` belongs to: that around all branches and
-- bodies, by whose name they read it.
local function owner_of(net)
  while state_of(net).outer and not state_of(net).take do net = state_of(net).outer end
  return net
end

--- net:param(name, shape [, init [, { .. }]]) -> blob: see the record.
function Net:param(name, shape, init, given)
  local options = param_options:read(given)
  if type(init) == "number" then init = { op = "Constant", value = init } end

  -- A variable scope has rules of its own about parameters that are there already.
  local full, variables = written_param(self, name), state_of(self).variables
  if variables and #variables > 0 then
    return variables[#variables].param(self, full, shape, init, options)
  end
  local owner = owner_of(self)
  local old = owner:_blob(full)
  if options.reuse and old then return handle(self, full) end
  -- what a second declaration leaves out is as the first one said
  local trainable = options.trainable
  if old and old.role == "parameter" then
    if trainable == nil then trainable = old.trainable end
  else
    init = init or { op = "Constant", value = 0 }
  end
  owner:declare(full, "parameter", shape, options.dtype, init, trainable ~= false)
  return handle(self, full)
end

--- From now on tensors that ops of the outermost net are given are inputs of it: captured[name] is
-- the tensor, or a function that gives it. Of neap.transform, which feeds them in each run.
function net_module.capture(net, captured) state_of(net).captured = captured end

--- A tensor beside blobs as an input of the net around, the same tensor once; or what a function of
-- the type of t gives.
local function captured_input(net, captured, t, source)
  -- By identity: two tensors with the same numbers may change apart.
  local n = 0
  for name, known in pairs(captured) do
    n = n + 1
    if rawequal(known, t) then return handle(net, name) end
  end
  local name = "captured_" .. n + 1
  local blob = net:declare(name, "input", t.shape, t.dtype)
  captured[name] = source or t
  return blob
end

--- The models that take part in a net that captures: {root = record of what is built of it}.
function net_module.guests(net)
  local state = state_of(net)
  state.guests = state.guests or {}
  return state.guests
end

--- The net around `net` that captures, and capture(t, source) -> blob; nil where none does.
function net_module.capturing(net)
  while state_of(net).outer and not state_of(net).take do net = state_of(net).outer end
  local captured = state_of(net).captured
  if not captured then return nil end
  return net, function(t, source) return captured_input(net, captured, t, source) end
end

--- A tensor as a blob of the outermost net, filled from numbers that the net carries when a
-- workspace initialises it. The name is made from type and bytes: the same values are one blob, and
-- other values can't take its place in a workspace. In the body of a Do, which keeps nothing from
-- run to run, an op makes it.
local function literal(net, t)
  while state_of(net).outer do net = state_of(net).outer end

  -- The hash stands for the bytes; with dtype and shape it tells values apart.
  local name = ("const_%s_%s_%s"):format(t.dtype, table.concat(t.shape, "x"), t:hash())
  if net:_blob(name) then return handle(net, name) end

  -- The numbers go into the net as attributes, so that its text and files carry them.
  local values = t:reshape(-1):totable()
  for i, x in ipairs(values) do
    if type(x) == "boolean" then values[i] = x and 1 or 0 end
  end
  if state_of(net).take then
    return net:op("Literal", {}, net:fresh_name "const", {
      shape = t.shape,
      dtype = t.dtype,
      values = values,
    })
  end
  return net:declare(name, "state", t.shape, t.dtype,
    { op = "Literal", values = values, constant = true }, false)
end

--- net:const(value [, dtype]) -> blob of fixed values. A number or boolean is made by a Constant
-- op; a tensor, of any size, is a blob of its own, which the net's text and files carry along, no
-- gradient reaches and no op may write.
function Net:const(value, dtype)
  if value == nil then
    fail "net:const expects a number, a boolean, a table or a tensor, got nothing"
  end
  local state = state_of(self)
  if type(value) == "boolean" then value, dtype = value and 1 or 0, dtype or "bool" end
  if type(value) == "number" then
    -- The same number is one blob as long as nobody writes to it. "%a" is exact; large integers
    -- stand beside it, since floats from 2^53 on do not tell all of them apart.
    local key = ("%s %a %s"):format(dtype or "f32", value, math.abs(value) > 2^53 and value or "")
    if not state.consts then naming.set(self, state, "consts", {}) end
    local known = state.consts[key]
    if known then return known end
    local blob = self:op("Constant", {}, self:fresh_name "const", {
      shape = {},
      value = value,
      dtype = dtype or "f32",
    })
    -- Made in a scope, the blob has a name of the scope, which means nothing outside.
    if scope_of(self) == "" then
      naming.set(self, state.consts, key, blob)
      naming.set(self, state.consts, blob.name, key)
    end
    return blob
  end
  if op.is_tensor(value) and (dtype == nil or dtype == value.dtype) then
    -- In a net that captures, a tensor is an input: it may have other numbers in the next run.
    local outer = self
    while state_of(outer).outer and not state_of(outer).take do outer = state_of(outer).outer end
    local captured = state_of(outer).captured
    if captured then return captured_input(outer, captured, value) end
  end
  local t = op.is_tensor(value) and (dtype and value:to(dtype) or value)
    or core.tensor(value, dtype)
  return literal(self, t)
end

--- net:made_by(line, f, ...) -> f's results: what f adds is said to come from `line`, "gpt.lua:31"
-- (nil: from the line that calls). Layers use it: the line worth knowing is the one that made the
-- layer.
function Net:made_by(line, f, ...)
  if type(f) ~= "function" then
    fail("net:made_by expects (line, function, ..), got a " .. type(f) .. " for the function")
  end
  local state = state_of(self)
  local before = state.line
  local _ <close> = setmetatable({}, { __close = function() state.line = before end })
  state.line = line
  return (function(...) return ... end)(f(...))
end

--- A name that no blob has: base, base_2, base_3 ...
function Net:fresh_name(base)
  if type(base) ~= "string" then
    fail("net:fresh_name expects a text that the name begins with, got a " .. type(base))
  end
  return naming.fresh_name(self, base)
end

--- Blobs that an op writes or frees are what net:const made no more, in the nets around, too.
local function forget_consts(net, names)
  while net do
    local consts = state_of(net).consts
    for _, name in ipairs(consts and names or {}) do
      local key = name and consts[name]
      if key then
        naming.set(net, consts, key, nil)
        naming.set(net, consts, name, nil)
      end
    end
    net = state_of(net).outer
  end
end

--- The scope of the ops that an op is made of: the name of its first output where one is given,
-- else its own.
local function scope_for(net, r, first)
  if type(first) ~= "string" then return net:fresh_name(op.snake(r.name)) end
  local scope = scope_of(net)
  return scope ~= "" and first:sub(1, #scope + 1) == scope .. "/" and first:sub(#scope + 2) or first
end

--- Adds what an op that is made of others is made of. Names that are given for the outputs stand
-- for them.
local function add_composed(net, r, ins, outs, attrs)
  if outs ~= nil and (type(outs) == "string" or op.is_blob(outs)) then outs = { outs } end
  local inputs, named = {}, type(outs) == "table" and outs or {}
  local n = naming.count(named, r.name)

  -- Handles, since `of` is written for blobs and tensors alike.
  for i, name in ipairs(read_list(net, ins, r.name)) do inputs[i] = name and handle(net, name) end
  local scope = scope_for(net, r, op.is_blob(named[1]) and named[1].name or named[1])
  local results = naming.inside(net, function()
    return net:scope(scope, op.composed, r, inputs, attrs or {})
  end)
  if named ~= outs then return table.unpack(results, 1, outs or #results) end
  if n > #results then
    fail(("%s has %d output%s, %d are named"):format(r.name, #results, #results == 1 and "" or "s",
      n))
  end
  for i = 1, n do
    -- Under the names that were asked for the results are views: no bytes are moved.
    if outs[i] then results[i] = net:op("Alias", { results[i] }, { outs[i] }) end
  end
  return table.unpack(results, 1, n)
end

--- net:op(type, ins, outs, attrs, name) -> blobs. ins and outs: a name, a blob, or a list of them;
-- outs a number: so many, named here; outs nil: those the record requires, named here. name: what
-- the op is called in texts, plans and messages (nil: named here).
function Net:op(type_name, ins, outs, attrs, name)
  if type(type_name) ~= "string" then
    fail("net:op expects (type, inputs, outputs, attributes), got a " .. type(type_name)
      .. " for the type")
  end
  if attrs ~= nil and (type(attrs) ~= "table" or op.is_blob(attrs)) then
    fail(("%s: attributes are a table, { axis = -1 }, got a %s; net:%s(inputs, outputs, \z
      attributes)"):format(
        type_name, type(attrs) == "table" and "blob" or type(attrs), type_name))
  end
  if name ~= nil and type(name) ~= "string" then
    fail(("%s: the op's name, behind its attributes, is a text, got a %s; net:%s(inputs, outputs, \z
      attributes, name)"):format(type_name, op.is_blob(name) and "blob" or type(name), type_name))
  end

  -- What is made of other ops is added all or nothing: a failure in the middle leaves none of them.
  local made_of = op.records[type_name] and op.records[type_name].made_of
  if made_of then
    return naming.attempt(self, add_composed, self, op.records[type_name], ins, outs, attrs)
  end
  local in_names = read_list(self, ins, type_name)
  local out_names

  -- As many outputs as asked for get names here; without `outs` the record says how many.
  if math.type(outs) == "integer" then
    local n = outs
    if n < 0 or n > 4096 then fail(("%s: %d outputs are asked for"):format(type_name, n)) end
    outs = {}
    for k = 1, n do outs[k] = self:fresh_name(op.snake(type_name)) end
  end
  if outs ~= nil then
    out_names = {}
    if type(outs) ~= "table" or op.is_blob(outs) then outs = { outs } end
    naming.count(outs, type_name)
    for i = 1, #outs do
      local out = outs[i]
      if op.is_blob(out) then
        out_names[i] = out.name
      elseif type(out) == "string" then
        -- In place by name: what is read under this name is what is written.
        local as_read = read(self, out)
        local same = false
        for _, in_name in ipairs(in_names) do same = same or in_name == as_read end
        out_names[i] = same and as_read or written(self, out)
      else
        out_names[i] = out
      end
    end
  end

  -- In the body of a Do a name may be a local that is there only on some ways.
  local check_read = state_of(self).check_read
  for _, in_name in ipairs(check_read and in_names or {}) do
    if in_name and not self:_blob(in_name) then check_read(in_name) end
  end

  -- Scopes are followed while the net is built: what an op does to one is noted before and behind
  -- it.
  local uses_scope = type_name == "HasScope" or type_name == "Do"
  if uses_scope then scope_flow.enter(self, in_names[#in_names]) end
  if type_name == "HasScope" and #in_names == 1 and next(attrs or {}) == nil then
    type_name, in_names, attrs = scope_flow.has_scope(self, in_names[1])
  elseif type_name == "CreateScope" and out_names and out_names[1] then
    scope_flow.before_create(self, out_names[1])
  end
  local names = naming.add(self, type_name, in_names, out_names, attrs, name, scope_of(self),
    state_of(self).line, state_of(self).device)

  -- A blob that has been written holds no constant any more.
  forget_consts(self, names)
  if type_name == "Free" then forget_consts(self, in_names) end
  if type_name == "CreateScope" then scope_flow.created(self, names[1]) end
  if type_name == "Do" then scope_flow.did(self, names[#names], attrs) end
  local blobs = {}
  for i, out in ipairs(names) do blobs[i] = out and handle(self, out) end
  return table.unpack(blobs, 1, #names)
end

--- net:scope(name, f, ...) -> f's results: names written in f get "name/" in front. Without f:
-- `local _ <close> = net:scope "a"`.
function Net:scope(name, f, ...)
  naming.check_scope("net:scope", name)
  if f ~= nil and type(f) ~= "function" then
    fail("net:scope expects a function, got a " .. type(f))
  end
  local state, thread = state_of(self), coroutine.running()
  local scope, before = scope_of(self), current[thread]
  local param_scope = param_path_of(self)

  -- Paths of parameters are kept beside those of ops where a variable scope has made them differ.
  state.scopes[#state.scopes + 1] = scope == "" and name or scope .. "/" .. name
  local depth = #state.scopes
  if state.param_scopes then
    state.param_scopes[depth] = param_scope == "" and name or param_scope .. "/" .. name
  end
  current[thread] = self
  local left = false
  -- All above goes too: a scope within may have been left open.
  local function leave()
    for i = #state.scopes, depth, -1 do state.scopes[i] = nil end
    current[thread], left = before, true
  end
  local function forget() -- the handle was dropped, not closed
    if not left and current[thread] == self and #state.scopes == depth then leave() end
  end
  if f == nil then return setmetatable({}, { __close = leave, __gc = forget }) end
  local _ <close> = setmetatable({}, { __close = leave })
  return naming.inside(self, f, ...)
end

--- net:device(label, f, ...) -> f's results: a label for the ops that f adds and for their outputs.
-- It says what belongs together; every op runs on the CPU. Where the memory options have a bank of
-- that name (neap.bank), the ops work on its bytes; else the label moves nothing. Blobs of
-- different labels never share bytes by name, ops of different labels are different to
-- verify_graph_equality, and estimate_memory_usage counts those of one. Gradients follow their
-- forward ops.
-- @usage net:device("cpu:1", function() net:Relu("x", "y") end)
function Net:device(label, f, ...)
  if type(label) ~= "string" or type(f) ~= "function" then
    fail("net:device expects (label, function): a label for what may not share bytes")
  end
  local state = state_of(self)
  local before = state.device
  local _ <close> = setmetatable({}, { __close = function() state.device = before end })
  state.device = label
  return (function(...) return ... end)(f(...))
end

--- neap.scope(name, f, ...): in the net whose scope, branch or body is being built.
function net_module.scope(name, f, ...)
  local net = current[coroutine.running()]
  if net == nil then
    fail("neap.scope works inside net:scope or a net's own functions; use net:scope(name, f)")
  end
  return net:scope(name, f, ...)
end

--- net:outputs{"loss", "y"}: what is fetched after a run; resident.
function Net:outputs(...)
  local names = ...
  if names == nil then return self:_output_names() end
  if select("#", ...) > 1 then names = { ... } end
  self:_outputs(read_list(self, names, "outputs"))
  return self
end

--- net:keep("h", ..): these blobs get bytes of their own, so that they can be fetched after any
-- run.
function Net:keep(...)
  for _, x in ipairs { ... } do
    if type(x) == "table" and not op.is_blob(x) then
      for i = 1, naming.count(x, "net:keep") do self:_keep(reader(self, x[i], "keep")) end
    else
      self:_keep(reader(self, x, "keep"))
    end
  end
  return self
end

--- net:blob(name) -> its handle.
function Net:blob(name)
  if type(name) ~= "string" and not op.is_blob(name) then
    fail("net:blob expects a name, got a " .. type(name))
  end
  local full = op.is_blob(name) and reader(self, name, "blob") or read(self, name)
  if not is_known(self, full) then
    error(core.error {
      code = "name",
      message = ("net \"%s\" has no blob \"%s\""):format(self:_name(), name),
      blob = name,
    })
  end
  return handle(self, full)
end

-- ---- gradient -----------------------------------------------------------------------------------

local gradient_options = record.declare("net:gradient", { call = "(loss, {})",
  doc = [[Adds the backward pass and gives { blob = gradient blob }, which knows names of blobs too;
    pairs goes through it in the order of `wrt`, or of declaration. A blob named in `wrt` that the
    loss does not depend on is an error when the net is checked or compiled.]],
  { "wrt", "any", says = "a blob or a list of blobs", unset = [[every trainable parameter, zeros for
      those that the loss does not depend on]], doc = "what the loss is differentiated by" },
  { "allow_unused", "boolean", false,
    doc = "whether a blob of `wrt` that the loss does not depend on gets zeros" },
  example = 'net:gradient("loss", { wrt = { "x" } })' })

--- Gradients by blob or by its name. pairs goes through them by blob, in the order of the list:
-- programs that build on it build the same net in each run.
local function in_order(blobs, grads)
  local by_name, listed = {}, {}
  for _, blob in ipairs(blobs) do by_name[blob.name], listed[blob] = blob, true end
  --- The blob of the list that a key means: by its name, or by a handle of a net around or within.
  local function blob_of(key)
    local name = op.is_blob(key) and key.name or key
    return name ~= nil and by_name[name] or key
  end

  -- A key may be a name, or a handle of the same blob in a net around or within.
  return setmetatable(grads, {
    __index = function(t, key)
      if key == nil then return nil end
      return rawget(t, blob_of(key))
    end,
    __newindex = function(t, key, gradient)
      local blob = blob_of(key)
      if not listed[blob] then blobs[#blobs + 1], listed[blob] = blob, true end
      rawset(t, blob, gradient)
    end,
    __pairs = function(t)
      -- By position: pairs over the table would have another order in each run.
      local i = 0
      return function()
        local gradient
        repeat
          i = i + 1
          gradient = rawget(t, blobs[i])
        until gradient ~= nil or blobs[i] == nil
        return blobs[i], gradient
      end
    end,
  })
end

--- net:gradient(loss [, { .. }]) -> {blob = gradient blob}: see the record.
function Net:gradient(loss, given)
  local o = gradient_options:read(given)
  local wrt = o.wrt and read_list(self, o.wrt, "gradient")
  if wrt == nil then
    wrt = {}
    for _, row in ipairs(self:_blobs()) do
      if row.role == "parameter" and row.trainable then wrt[#wrt + 1] = row.name end
    end
    if #wrt == 0 then
      fail("gradient: the net has no trainable parameter; name what to differentiate by: { wrt = \z
        {\"x\"} }")
    end
  end
  if type(loss) ~= "string" and not op.is_blob(loss) then
    fail(("gradient expects the loss first, one blob or its name, got %s; what to differentiate \z
      by is { wrt = {..} }"):format(
        type(loss) == "table" and "a list" or options.shown(loss)))
  end

  -- Without `wrt` a parameter that the loss does not depend on gets zeros, since nobody asked for
  -- it by name.
  local names = self:_gradient(reader(self, loss, "gradient"), wrt, o.allow_unused or o.wrt == nil)
  local blobs, grads = {}, {}
  for i, name in ipairs(names) do
    blobs[i] = handle(self, wrt[i])
    grads[blobs[i]] = handle(self, name)
  end
  return in_order(blobs, grads)
end

-- ---- looking ------------------------------------------------------------------------------------

--- net:name() -> the net's name, a text.
function Net:name() return self:_name() end

--- net:ops() -> Report of the ops in order.
function Net:ops()
  return report.new {
    rows = self:_ops(),
    columns = { "type", "name", "inputs", "outputs", "line" },
    title = tostring(self),
  }
end

--- net:blobs() -> Report of the declared and computed blobs.
function Net:blobs()
  local rows = self:_blobs()
  for _, row in ipairs(rows) do
    local dtype, shape = self:_type(row.name)
    row.dtype, row.shape = dtype, shape and "(" .. table.concat(shape, ",") .. ")"
  end
  return report.new { rows = rows, columns = { "name", "role", "dtype", "shape", "keep", "line" } }
end

--- net:infer{x = {64, 784}} -> {blob = {shape =, dtype =}} with other input shapes than declared.
function Net:infer(options)
  local plan = self:plan(options)
  local out = {}
  for _, row in ipairs(plan:_values()) do
    local shape = {}
    for d in row.shape:gmatch "%d+" do shape[#shape + 1] = math.tointeger(d) end
    out[row.blob] = { shape = shape, dtype = row.dtype }
  end
  return out
end

--- net:check([options]) -> true: schema, shapes and dtypes of every op; raises the first error,
-- located.
function Net:check(options)
  self:_graph(options, "hash")
  return true
end

--- net:inputs() -> list of {name, shape, dtype}: what must be fed, in order of declaration.
function Net:inputs()
  local list = {}
  for _, row in ipairs(self:_blobs()) do
    if row.role == "input" then
      local dtype, shape = self:_type(row.name)
      list[#list + 1] = { name = row.name, shape = shape, dtype = dtype }
    end
  end
  return list
end

--- net:hash() -> text: of what the net computes, names left out.
function Net:hash(options) return self:_graph(options, "hash") end

--- net:expand{x = ..} -> net with the backward pass written out, that of an If as an If, that of a
-- loop as one op.
function Net:expand(options) return self:_graph(options, "net") end

--- net:graph_text(): values, shapes and ops after inference and gradient, for people.
function Net:graph_text(options) return self:_graph(options, "people") end

--- A training net as two, for gradient accumulation by hand; the trainer's `micro` does all of it.
-- The first net runs a micro-batch and adds the gradients of parameters, times input
-- "micro.weight", to accumulators that are called as the gradients are; where input "micro.keep" is
-- 0 the sums begin anew. The second one holds what follows from gradients: it reads the sums,
-- updates, and counts its runs in "micro.steps". Outputs stay with the first, unless they follow
-- from gradients.
-- @return net, net
-- @usage local micro, update = net:split_micro()
-- ws:feed("lr", neap.tensor(0.1))
-- for i, rows in ipairs(halves) do
--   ws:run(micro, { x = rows, ["micro.weight"] = neap.tensor(0.5), ["micro.keep"] = neap.tensor(i >
--   1 and 1.0 or 0.0) })
-- end
-- ws:run(update)
function Net:split_micro() return self:_split_micro() end

--- net:plan{x =, budget =, max_batch =, mem_param =, ...} -> plan. Nothing is allocated. With
-- max_batch the plan is that of the net's batch within the memory of the largest. A budget, total
-- or bank that can't be met raises an error object of code "budget": limit, limit_bytes,
-- least_bytes (given in its place, it does), left_bytes (what it leaves the arena), fixed =
-- {parameters = bytes ..}, blobs = list of {name, bytes}, the largest in the way first, and batch:
-- the largest that would fit, planned when it is read; nil where none does.
-- @usage local ok, err = pcall(net.plan, net, { total = "1MiB" }); if not ok then
--   print(err.least_bytes, err.batch) end
function Net:plan(options)
  local memory, most = range.apart(mem_param.checked(options))
  if most then
    local plan = refusal.around_net(self, memory, function()
      return self:_plan(memory, range.new(self, memory, most))
    end)
    return again.note_net(plan, self, options)
  end
  return again.note_net(refusal.around_net(self, memory, self._plan, self, memory), self, memory)
end

--- net:dry_run{mem_param =, ..} -> Report: what planning would do to every blob, Caffe's log; see
-- neap.mem_param.
function Net:dry_run(options) return mem_param.dry_run(self, options) end

--- net:forecast{...} -> Report of the bytes of every region.
function Net:forecast(options) return self:plan(options):forecast() end

--- net:summary{...} -> Report: one row per op with shape, parameters, flops.
function Net:summary(options) return self:plan(options):summary() end

local dot_options = record.declare("net:dot", { call = "(path, {})",
  doc = [[The net as Graphviz text, ops and blobs, the backward and subnets included (plan:dot
    colours it by storage); with a path, true or nil, message, code.]],
  { "fold", "integer", 0, min = 0, max = 1000, doc = [[ops of a scope are one box, for each path of
      so many parts; 0: every op is drawn]] },
  example = 'net:dot("net.dot", { fold = 1 }) -- then: dot -Tsvg net.dot > net.svg' })

--- net:dot([path [, { .. }]]) -> text, or true, or nil, message, code: see the record.
function Net:dot(path, given)
  local text = self:_dot(dot_options:read(given).fold)
  if path then return core.write_text(path, text) end
  return text
end

-- ---- the class ----------------------------------------------------------------------------------

local closures = {}
Net.meta.__index = function(_, key)
  local method = Net[key]
  if method ~= nil then return method end
  if type(key) ~= "string" then return nil end
  local known = closures[key]
  if known then return known end

  -- The method of an op is made when it is first asked for, and kept: there are many, and few are
  -- used.
  local record = op.records[key]
  if record and not record.internal then
    local function add(self, ins, outs, attrs, name)
      return Net.op(self, key, ins, outs, attrs, name)
    end
    known = guard.functions({ [key] = add }, "net:")[key]
    closures[key] = known
    return known
  end
  if key:match "^%u" then
    local near = op.suggest(key)
    error(core.error {
      code = "name",
      message = ("unknown op type \"%s\""):format(key),
      hint = near and ("did you mean \"%s\"?"):format(near),
    })
  end
  if key:sub(1, 1) == "_" then return nil end
  missing.fail("a net", key, options.append(missing.names(Net), Net.meta.__names()))
end

--- For completion: the ops.
Net.meta.__names = function()
  local names = {}
  for name, record in pairs(op.records) do
    if not record.internal then names[#names + 1] = name end
  end
  return names
end

return net_module
