--- Nets: ops over named blobs, built from Lua.
--
-- `net:FC({"x", "w", "b"}, "y")` adds an op; every registered op is a method with a capital, lower case is the net's own. A
-- blob handle and its name are interchangeable. Inside a scope, names written get its path in front ("block1/y"), and names
-- read are looked for from the innermost scope outwards; a name that already begins with the path stays as it is.
-- @module neap.net
local core = require "neap.core"
local mem_param = require "neap.mem_param"
local op = require "neap.op"
local named = require "neap.options"
local range = require "neap.range"
local report = require "neap.report"

local Net = core.Net
local net_module = {}

--- What Lua knows of a net: { scopes = {path, ..}, blobs = {name = handle}, outer = net of a subnet, counts = {} }.
local states = setmetatable({}, { __mode = "k" })

--- The net whose scope function runs in this coroutine, for neap.scope.
local current = setmetatable({}, { __mode = "k" })

local function state_of(net)
  local state = states[net]
  if state == nil then
    state = { scopes = {}, blobs = {}, counts = {} }
    states[net] = state
  end
  return state
end

local function scope_of(net)
  local scopes = state_of(net).scopes
  return scopes[#scopes] or ""
end

--- The path that parameters made now get in front: that of the scopes, but a second visit to a variable scope gives ops a path
-- of their own and parameters the old one.
local function param_scope_of(net)
  local state = state_of(net)
  local paths = state.param_scopes
  return paths and paths[#state.scopes] or scope_of(net)
end

-- ---- blobs -----------------------------------------------------------------------------------------------------------

local Blob = { __name = "neap.blob" }
local methods = {}
op.set_blob_class(Blob)

--- The handle of a name; one per name and net, so that == compares blobs.
local function handle(net, name)
  local blobs = state_of(net).blobs
  local blob = blobs[name]
  if blob == nil then
    blob = setmetatable({ net = net, name = name }, Blob)
    blobs[name] = blob
  end
  return blob
end

Blob.__index = function(blob, key)
  if methods[key] ~= nil then return methods[key] end
  if key == "shape" or key == "dtype" then
    local dtype, shape = blob.net:_type(blob.name)
    if key == "shape" then return shape end
    return dtype
  end
  if key == "role" then
    local row = blob.net:_blob(blob.name)
    return row and row.role
  end
end

Blob.__tostring = function(blob)
  local ok, dtype, shape = pcall(blob.net._type, blob.net, blob.name) -- printing never raises
  return ("blob %s%s"):format(blob.name, ok and dtype and (" %s (%s)"):format(dtype, table.concat(shape, ",")) or "")
end

local function not_ordered()
  error("Lua turns the result of <, <=, >, >= into one boolean; write x:lt(y), x:le(y), x:gt(y), x:ge(y)", 2)
end
Blob.__lt, Blob.__le = not_ordered, not_ordered
op.set_operators(Blob)

for name, f in pairs(op.functions) do methods[name] = f end

function methods:matmul(y, attrs) return op.apply("MatMul", { self, y }, attrs) end

local function shape_of(blob, who)
  local shape = blob.shape
  if shape == nil then error(("%s: the shape of %s is not known yet"):format(who, blob.name), 3) end
  return shape
end

function methods:size(d)
  local shape = shape_of(self, "size")
  if d == nil then return shape end
  local at = d > 0 and d or #shape + 1 + d
  if shape[at] == nil then error(("dimension %d is out of range, there are %d"):format(d, #shape), 2) end
  return shape[at]
end

function methods:dim() return #shape_of(self, "dim") end

function methods:n_element()
  local n = 1
  for _, d in ipairs(shape_of(self, "n_element")) do n = n * d end
  return n
end

--- f(2, 3) and f{2, 3} alike.
local function packed(first, ...)
  if type(first) == "table" then return first end
  return { first, ... }
end

--- The shapes of tensors' methods, as ops.
function methods:reshape(...) return op.apply("Reshape", { self }, { shape = packed(...).shape or packed(...) }) end
methods.view = methods.reshape
function methods:permute(...) return op.apply("Permute", { self }, { axes = packed(...).axes or packed(...) }) end
function methods:expand(...) return op.apply("Expand", { self }, { shape = packed(...).shape or packed(...) }) end

function methods:transpose(a, b)
  local n, order = self:dim(), {}
  a, b = a or -2, b or -1
  a, b = a > 0 and a or n + 1 + a, b > 0 and b or n + 1 + b
  for i = 1, n do order[i] = i == a and b or i == b and a or i end
  return self:permute(order)
end

function methods:narrow(d, from, n)
  return op.apply("Slice", { self }, { axes = { d }, starts = { from }, ends = { from + n - 1 } })
end

function methods:select(d, i)
  return op.apply("Squeeze", { self:narrow(d, i, 1) }, { axes = { d } })
end

function methods:squeeze(d)
  if type(d) == "table" then return op.apply("Squeeze", { self }, d) end
  return op.apply("Squeeze", { self }, d and { axes = { d } } or {})
end

function methods:unsqueeze(d)
  if type(d) == "table" then return op.apply("Unsqueeze", { self }, d) end
  return op.apply("Unsqueeze", { self }, { axes = { d } })
end

function methods:to(dtype) return op.apply("Cast", { self }, { to = dtype }) end
function methods:clone() return op.apply("Copy", { self }) end
function methods:item()
  error(("%s is a blob: it has no value while the net is built; use net:If or neap.where to choose by it"):format(self.name), 2)
end

-- ---- names in scopes ---------------------------------------------------------------------------------------------------

local function begins(name, path) return name:sub(1, #path + 1) == path .. "/" end

--- The full name of something written in the current scope.
local function written(net, name)
  local scope = scope_of(net)
  if scope == "" or begins(name, scope) then return name end
  return scope .. "/" .. name
end

local function written_param(net, name)
  local scope = param_scope_of(net)
  if scope == "" or begins(name, scope) then return name end
  return scope .. "/" .. name
end

--- Whether a name means something in the net or around it.
local function is_known(net, name)
  while net do
    local state = state_of(net)
    if net:_blob(name) or (state.take and state.take(name)) then return true end
    net = state.outer
  end
  return false
end

--- The full name that `name` has in `scope` or the nearest one around it that knows it; nil when none does.
local function read_in(net, name, scope)
  while scope ~= "" do
    if begins(name, scope) then return name end
    local full = scope .. "/" .. name
    if is_known(net, full) then return full end
    scope = scope:match "^(.*)/[^/]*$" or ""
  end
end

--- The full name of something read: the innermost scope's first.
local function read(net, name)
  local full = read_in(net, name, scope_of(net))
  if full then return full end
  if param_scope_of(net) ~= scope_of(net) then
    full = read_in(net, name, param_scope_of(net))
    local row = full and net:_blob(full)
    if row and row.role == "parameter" then return full end -- of the first visit nothing else is meant
  end
  is_known(net, name) -- the body of a Do takes a local of its frame when it is first read
  return name
end

--- Whether a blob's net is `net` or around it.
local function belongs(net, blob)
  while net do
    if blob.net == net then return true end
    net = state_of(net).outer
  end
  return false
end

--- Inside the function that builds a subnet, ops on outer blobs go into the subnet.
op.set_net_of(function(blob)
  local inner = current[coroutine.running()]
  return inner and belongs(inner, blob) and inner or blob.net
end)

local function reader(net, x, what)
  if type(x) == "string" then return read(net, x) end
  if op.is_blob(x) then
    if not belongs(net, x) then error(("%s: blob %s belongs to another net"):format(what, x.name), 4) end
    return x.name
  end
  if op.is_tensor(x) or type(x) == "number" then return net:const(x).name end
  if not x then return false end
  error(("%s expects names or blobs, got a %s"):format(what, type(x)), 4)
end

--- One or a list of names or blobs, as a list of full names.
local function read_list(net, xs, what)
  if xs == nil then return {} end
  if type(xs) ~= "table" or op.is_blob(xs) then xs = { xs } end
  local n = 0
  for key in pairs(xs) do
    if math.type(key) == "integer" and key > n then n = key end
  end
  local names = {}
  for i = 1, n do names[i] = reader(net, xs[i] or false, what) end
  return names
end

-- ---- building ------------------------------------------------------------------------------------------------------------

--- neap.net "name"
function net_module.new(name)
  if name ~= nil and type(name) ~= "string" then error("neap.net expects a name, got a " .. type(name), 2) end
  return core.new_net(name or "net")
end

--- neap.net_from(text): what net:text() wrote.
function net_module.read(text) return core.read_net(text) end

--- Declares a blob that is there before the net runs; the name is taken as it is, whatever the scope.
-- @param role string "input", "parameter", "state" ...
-- @param shape integer[]
-- @param dtype string|nil "f32"
-- @param init table|nil {op = "Xavier", ..}
-- @param trainable boolean|nil
-- @return blob
function Net:declare(name, role, shape, dtype, init, trainable)
  self:_declare(name, role, shape, dtype, init, trainable, state_of(self).line)
  return handle(self, name)
end

--- net:input(name, {64, 784} [, dtype]) -> blob
function Net:input(name, shape, dtype)
  return self:declare(written(self, name), "input", shape, dtype, nil, false)
end

--- net:param(name, {10, 784} [, init [, {trainable =, dtype =, reuse =}]]) -> blob. init: neap.init.xavier {}, {"Xavier"}, a
-- number, or nil for zeros.
function Net:param(name, shape, init, options)
  options = options or {}
  if type(init) == "number" then init = { op = "Constant", value = init } end
  local full, variables = written_param(self, name), state_of(self).variables
  if variables and #variables > 0 then return variables[#variables].param(self, full, shape, init, options) end
  if options.reuse and self:_blob(full) then return handle(self, full) end
  return self:declare(full, "parameter", shape, options.dtype, init or { op = "Constant", value = 0 }, options.trainable ~= false)
end

--- net:const(value [, dtype]) -> blob of fixed values. A number is made by a Constant op; a tensor travels as a parameter that
-- no gradient reaches, so small ones only.
function Net:const(value, dtype)
  local state = state_of(self)
  if type(value) == "boolean" then value, dtype = value and 1 or 0, dtype or "bool" end
  if type(value) == "number" then
    local key = ("%s %a"):format(dtype or "f32", value)
    state.consts = state.consts or {}
    local known = state.consts[key]
    if known then return known end
    local blob = self:op("Constant", {}, self:fresh_name "const", { shape = {}, value = value, dtype = dtype or "f32" })
    if scope_of(self) == "" then state.consts[key] = blob end
    return blob
  end
  local t = op.is_tensor(value) and (dtype and value:to(dtype) or value) or core.tensor(value, dtype)
  local n = t:n_element()
  if n > 256 then error(("net:const takes at most 256 elements, got %d: declare an input and feed it"):format(n), 2) end
  local parts = {}
  local flat = t:reshape(-1)
  for i = 1, n do
    local element = flat[i]
    parts[i] = self:op("Constant", {}, self:fresh_name "const", { shape = { 1 }, value = type(element) == "boolean" and (element and 1 or 0) or element,
      dtype = t.dtype })
  end
  if n == 0 then error("net:const: an empty tensor", 2) end
  local joined = n == 1 and parts[1] or self:op("Concat", parts, self:fresh_name "const", { axis = 1 })
  return joined:reshape(t.shape)
end

--- net:made_by(line, f, ...) -> f's results: what f adds is said to come from `line`, "gpt.lua:31" (nil: from the line that
-- calls). Layers use it: the line worth knowing is the one that made the layer.
function Net:made_by(line, f, ...)
  local state = state_of(self)
  local before = state.line
  local _ <close> = setmetatable({}, { __close = function() state.line = before end })
  state.line = line
  return (function(...) return ... end)(f(...))
end

--- A name that no blob has: base, base_2, base_3 ...
function Net:fresh_name(base)
  local counts = state_of(self).counts
  local name
  repeat
    counts[base] = (counts[base] or 0) + 1
    name = counts[base] == 1 and base or base .. "_" .. counts[base]
  until not is_known(self, written(self, name))
  return name
end

--- net:op(type, ins, outs, attrs) -> blobs. ins and outs: a name, a blob, or a list of them; outs a number: so many, named
-- here; outs nil: those the record requires, named here.
function Net:op(type_name, ins, outs, attrs, name)
  local in_names = read_list(self, ins, type_name)
  local out_names
  if math.type(outs) == "integer" then
    local n = outs
    outs = {}
    for k = 1, n do outs[k] = self:fresh_name(op.snake(type_name)) end
  end
  if outs ~= nil then
    out_names = {}
    if type(outs) ~= "table" or op.is_blob(outs) then outs = { outs } end
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
  local names = self:_add(type_name, in_names, out_names, attrs, name, scope_of(self), state_of(self).line, state_of(self).device)
  local blobs = {}
  for i, out in ipairs(names) do blobs[i] = out and handle(self, out) end
  return table.unpack(blobs, 1, #names)
end

--- net:scope(name, f, ...) -> f's results: names written in f get "name/" in front. Without f: `local _ <close> = net:scope "a"`.
function Net:scope(name, f, ...)
  if type(name) ~= "string" or name == "" then error("net:scope expects a name, got a " .. type(name), 2) end
  if f ~= nil and type(f) ~= "function" then error("net:scope expects a function, got a " .. type(f), 2) end
  local state, thread = state_of(self), coroutine.running()
  local scope, before = scope_of(self), current[thread]
  local param_scope = param_scope_of(self)
  state.scopes[#state.scopes + 1] = scope == "" and name or scope .. "/" .. name
  local depth = #state.scopes
  if state.param_scopes then state.param_scopes[depth] = param_scope == "" and name or param_scope .. "/" .. name end
  current[thread] = self
  local function leave()
    for i = #state.scopes, depth, -1 do state.scopes[i] = nil end
    current[thread] = before
  end
  if f == nil then return setmetatable({}, { __close = leave }) end
  local _ <close> = setmetatable({}, { __close = leave })
  return (function(...) return ... end)(f(...))
end

--- net:device(label, f, ...) -> f's results: the ops that f adds run on this device, and their outputs lie there; blobs of
-- different devices never share bytes by name. Gradients follow their forward ops.
-- @usage net:device("cpu:1", function() net:Relu("x", "y") end)
function Net:device(label, f, ...)
  if type(label) ~= "string" or type(f) ~= "function" then error("net:device expects (label, function)", 2) end
  local state = state_of(self)
  local before = state.device
  local _ <close> = setmetatable({}, { __close = function() state.device = before end })
  state.device = label
  return (function(...) return ... end)(f(...))
end

--- neap.scope(name, f, ...): in the net whose scope, branch or body is being built.
function net_module.scope(name, f, ...)
  local net = current[coroutine.running()]
  if net == nil then error("neap.scope works inside net:scope or a net's own functions; use net:scope(name, f)", 2) end
  return net:scope(name, f, ...)
end

--- net:outputs{"loss", "y"}: what is fetched after a run; resident.
function Net:outputs(names, ...)
  if names == nil then return self:_output_names() end
  if select("#", ...) > 0 then names = { names, ... } end
  self:_outputs(read_list(self, names, "outputs"))
  return self
end

--- net:keep("h", ..): these blobs get bytes of their own, so that they can be fetched after any run.
function Net:keep(...)
  for _, x in ipairs { ... } do
    if type(x) == "table" and not op.is_blob(x) then
      for _, y in ipairs(x) do self:_keep(reader(self, y, "keep")) end
    else
      self:_keep(reader(self, x, "keep"))
    end
  end
  return self
end

--- net:blob(name) -> its handle.
function Net:blob(name)
  local full = read(self, name)
  if not is_known(self, full) then
    error(core.error { code = "name", message = ("net \"%s\" has no blob \"%s\""):format(self:_name(), name), blob = name }, 2)
  end
  return handle(self, full)
end

-- ---- gradient --------------------------------------------------------------------------------------------------------------

--- net:gradient(loss [, {wrt = blobs, allow_unused = bool}]) -> {blob = gradient blob}. Without wrt: every trainable parameter,
-- zeros for those that the loss does not depend on. A blob named in wrt that it does not depend on is an error when the net is
-- checked or compiled, unless allow_unused = true asks for zeros there too.
function Net:gradient(loss, given)
  local o = named.read("net:gradient", { wrt = named.none, allow_unused = false }, given, 2)
  local wrt = o.wrt and read_list(self, o.wrt, "gradient")
  if wrt == nil then
    wrt = {}
    for _, row in ipairs(self:_blobs()) do
      if row.role == "parameter" and row.trainable then wrt[#wrt + 1] = row.name end
    end
    if #wrt == 0 then error("gradient: the net has no trainable parameter; name what to differentiate by: { wrt = {\"x\"} }", 2) end
  end
  local names = self:_gradient(reader(self, loss, "gradient"), wrt, o.allow_unused or o.wrt == nil)
  local grads = {}
  for i, name in ipairs(names) do grads[handle(self, wrt[i])] = handle(self, name) end
  return grads
end

-- ---- looking ------------------------------------------------------------------------------------------------------------------

--- net:name()
function Net:name() return self:_name() end

--- net:ops() -> Report of the ops in order.
function Net:ops()
  return report.new { rows = self:_ops(), columns = { "type", "name", "inputs", "outputs", "line" }, title = tostring(self) }
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

--- net:inputs() -> list of {name, dtype, shape}: what must be fed.
function Net:inputs()
  local list = {}
  for _, row in ipairs(self:_blobs()) do
    if row.role == "input" then list[#list + 1] = { name = row.name, dtype = row.dtype, shape = row.shape } end
  end
  return list
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

--- net:check([options]) -> true: schema, shapes and dtypes of every op; raises the first error, located.
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

--- net:expand{x = ..} -> net with the backward pass written out.
function Net:expand(options) return self:_graph(options, "net") end

--- net:graph_text(): values, shapes and ops after inference and gradient, for people.
function Net:graph_text(options) return self:_graph(options, "people") end

--- net:plan{x =, budget =, max_batch =, mem_param =, ...} -> plan. Nothing is allocated. With max_batch the plan is that of the
-- net's batch within the memory of the largest.
function Net:plan(options)
  local memory, most = range.apart(mem_param.checked(options))
  return self:_plan(memory, most and range.new(self, memory, most))
end

--- net:dry_run{mem_param =, ..} -> Report: what planning would do to every blob, Caffe's log; see neap.mem_param.
function Net:dry_run(options) return mem_param.dry_run(self, options) end

--- net:forecast{...} -> Report of the bytes of every region.
function Net:forecast(options) return self:plan(options):forecast() end

--- net:summary{...} -> Report: one row per op with shape, parameters, flops.
function Net:summary(options) return self:plan(options):summary() end

--- net:dot([path]) -> Graphviz text of ops and blobs, the backward and subnets included (plan:dot colours it by storage); with a
-- path, true or nil, message, code.
-- @usage net:dot "net.dot"  -- then: dot -Tsvg net.dot > net.svg
function Net:dot(path)
  local plan = self:plan { policy = "none", executor = "simple", rewrite = false, engine = "ref", store = false }
  return require("neap.drawing").dot(plan, { path = path })
end

-- ---- the class -----------------------------------------------------------------------------------------------------------------

local closures = {}
Net.meta.__index = function(_, key)
  local method = Net[key]
  if method ~= nil then return method end
  if type(key) ~= "string" then return nil end
  local known = closures[key]
  if known then return known end
  local record = op.records[key]
  if record and not record.internal then
    known = function(self, ins, outs, attrs, name) return Net.op(self, key, ins, outs, attrs, name) end
    closures[key] = known
    return known
  end
  if key:match "^%u" then
    local near = core.suggest(key)
    error(core.error { code = "name", message = ("unknown op type \"%s\""):format(key), hint = near and ("did you mean \"%s\"?"):format(near) }, 2)
  end
end

net_module.Blob, net_module.methods = Blob, methods
--- What the builders of subnets (neap.control) share with this file; nobody else's.
net_module.naming = {
  param_scope_of = param_scope_of, state_of = state_of, scope_of = scope_of, handle = handle, written = written,
  is_known = is_known, reader = reader, current = current,
}
return net_module
