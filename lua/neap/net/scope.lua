--- Scopes on nets: Do, which runs a net in a frame of a scope, and variable scopes, which make
-- parameters once.
--
-- A scope is a stack of frames, a frame a table of names. The body of a Do is a net of its own: it
-- sees the outer blobs that are bound to its names, and what it makes besides stays in the frame,
-- where a later Do with `reuse` finds it.
-- @module neap.net.scope
local core = require "neap.core"
local op = require "neap.op"
local record = require "neap.inner.record"
local naming = require "neap.net.naming"
local scope_flow = require "neap.net.scope_flow"
local fail = core.fail

local Net = core.Net
local param_path_of, param_scope_of = naming.param_path_of, naming.param_scope_of
local state_of, scope_of, handle = naming.state_of, naming.scope_of, require("neap.net.blob").handle
local written, is_known, reader, current = naming.written, naming.is_known, naming.reader,
  naming.current

local function refuse(text, hint)
  error(core.error { code = "graph", message = text, hint = hint })
end

-- ---- Do -----------------------------------------------------------------------------------------

--- The bindings in order of their inner names: pairs has none. Each is { inner, outer, exists }.
local function sorted_bindings(net, bindings)
  local list = {}
  for inner, outer in pairs(bindings) do
    -- {"x"} is {x = "x"}
    if type(inner) ~= "string" then inner = op.is_blob(outer) and outer.name or outer end
    if type(outer) ~= "string" and not op.is_blob(outer) then
      refuse(("net:Do: \"%s\" is bound to a %s; a blob or its name is expected"):format(
        inner, type(outer)))
    end

    -- What is not there yet outside is made there, under the scope that is open.
    local name = reader(net, outer, "net:Do")
    local exists = is_known(net, name)
    list[#list + 1] = {
      inner = inner,
      outer = exists and name or written(net, name),
      exists = exists,
    }
  end
  table.sort(list, function(a, b) return a.inner < b.inner end)
  return list
end

--- Which inner names a body reads before it writes them, and which it writes.
local function uses(body)
  local reads, writes = {}, {}
  for _, row in ipairs(body:_ops()) do
    for _, name in ipairs(row.inputs) do
      if name and not writes[name] then reads[name] = true end
    end
    for _, name in ipairs(row.outputs) do
      if name then writes[name] = true end
    end
  end
  return reads, writes
end

--- Runs f on the closed net `body`: names that it does not know are locals of the scope's top
-- frame, where `reuse` asks for them.
local function build(net, body, f, list, scope, reuse)
  for _, b in ipairs(list) do
    if b.exists then body:_take(b.inner, net:_type(b.outer)) end
  end

  -- A name that the body does not know is looked for in the frame when it is first used, and taken
  -- in then: so the body takes the locals that it reads, and no others.
  local state = state_of(body)
  state.take = function(name)
    local label = reuse and (net:_local(scope, name) or scope_flow.import(net, scope, name))
    if label then body:_take(name, net:_type(label)) end
    return label ~= nil and label
  end
  state.check_read = reuse and function(name) scope_flow.check_read(net, scope, name) end or nil
  local _ <close> = setmetatable({}, {
    __close = function() state.take, state.check_read = nil, nil end,
  })
  local results = table.pack(naming.inside(body, f, body))
  local names = {}
  for i = 1, results.n do names[i] = reader(body, results[i], "the body of a Do") end
  return names
end

local do_options = record.declare("net:Do", {
  doc = [[Runs a body in a frame of a scope. It sees the outer blobs of `bindings` under their inner
    names, and with `reuse` the locals of the frame; nothing else. Bound names that it writes are
    written outside; an outer name that is not there yet is made. What a body function returns
    becomes blobs outside as well, and is returned; else the blobs written outside are, in order of
    their inner names.]],
  { "bindings", "table", unset = "none", doc = "{ inner name = outer blob }" },
  { "body", "function|net", required = true, doc = "f(net of the body), or a net" },
  { "scope", "any", required = true, says = "a scope's name or blob",
    doc = "the scope, which net:CreateScope makes" },
  { "reuse", "boolean", false, doc = "whether it runs in the top frame, and not in a new one" },
  { "copy", "boolean", false, doc = "whether the frame keeps copies of the bound blobs" },
  example = 'net:Do { bindings = { x = "a", y = "b" }, scope = "s",\n'
    .. '  body = function(d) d:Relu("x", "y") end }' })

--- net:Do{ bindings =, body =, scope =, .. } -> blobs: see the record.
function Net:Do(given, ...)
  -- The op's own form, with inputs and outputs, goes through.
  if type(given) ~= "table"
      or op.is_blob(given)
      or given.body == nil and (given[1] ~= nil or select("#", ...) > 0) then
    return self:op("Do", given, ...) -- the op itself: inputs, outputs, attributes
  end
  local o = do_options:read(given)
  local scope, list = reader(self, o.scope, "net:Do"), sorted_bindings(self, o.bindings or {})
  scope_flow.enter(self, scope)

  -- A function is built into a closed net; a net is copied, and its inputs are locals by name.
  local body, results
  if type(o.body) == "function" then
    body = self:_sub(self:fresh_name "body", true)
    results = build(self, body, o.body, list, scope, o.reuse)
  else
    body, results = self:_copy_sub(o.body), {}
    for _, row in ipairs(o.reuse and body:_blobs() or {}) do
      if row.role == "input" and not self:_local(scope, row.name) then
        scope_flow.import(self, scope, row.name)
      end
    end
  end

  -- What the function returns is bound as any other blob, to a name made up outside.
  for i, name in ipairs(results) do
    list[#list + 1] = { inner = name, outer = written(self, self:fresh_name "do"), result = i }
  end

  -- An input is what the body reads first, or binds without writing; an output what it writes, or
  -- what is not there yet.
  local reads, writes = uses(body)
  local ins, outs, inner, where, shown = {}, {}, {}, {}, {}
  for _, b in ipairs(list) do
    if b.exists and (reads[b.inner] or not writes[b.inner]) then ins[#ins + 1] = b.outer end
    if writes[b.inner] or not b.exists then outs[#outs + 1] = b.outer end
  end

  -- Where each inner name stands among the op's operands: inputs first, then outputs. Of both it is
  -- the input.
  for _, b in ipairs(list) do
    inner[#inner + 1] = b.inner
    for i, name in ipairs(ins) do where[#inner] = name == b.outer and i or where[#inner] end
    for i, name in ipairs(outs) do
      where[#inner] = where[#inner] or name == b.outer and #ins + i or nil
    end
    if b.result or #results == 0 and (writes[b.inner] or not b.exists) then
      shown[#shown + 1] = b.outer
    end
  end
  ins[#ins + 1], outs[#outs + 1] = scope, scope
  local attrs = {
    net = body,
    inner_blobs = inner,
    outer_blobs_idx = where,
    reuse_workspace = o.reuse,
    copy_external_blobs = o.copy,
  }
  naming.add(self, "Do", ins, outs, attrs, nil, scope_of(self), state_of(self).line,
    state_of(self).device)
  scope_flow.did(self, scope, attrs)
  naming.keep_subnet(self, body)
  for i, name in ipairs(shown) do shown[i] = handle(self, name) end
  return table.unpack(shown)
end

-- ---- from net to net ----------------------------------------------------------------------------

--- net:export_scope(scope) -> net: other nets of the workspace see the scope as it is here: whether
-- it has a frame, and the locals of the top one. Call it behind the last op on the scope.
-- @usage net:CreateScope({}, "s")
-- net:Do { bindings = { x = "a" }, scope = "s", body = function(d) d:Neg("x", "h") end }
-- net:export_scope "s"
function Net:export_scope(scope)
  local name = type(scope) == "string" and reader(self, scope, "net:export_scope")
    or op.is_blob(scope) and scope.name
  if not name then fail(("net:export_scope expects a scope, got a %s"):format(type(scope))) end
  if not self:_blob(name) or not self:_is_scope(name) then
    fail(("net:export_scope: \"%s\" is no scope of net \"%s\""):format(name, self:_name()))
  end
  if state_of(self).outer or state_of(self).take then
    fail "net:export_scope is for a net that runs, not for a branch or body"
  end
  scope_flow.export(self, name)
  return self
end

--- net:import_scope(scope, other) -> net: the scope that net `other` leaves by export_scope, as its
-- last run in the workspace left it. HasScope is false until it has run; locals are read by a Do
-- with reuse, and then `other` must have run. What this net does to the scope stays its own.
-- @usage second:import_scope("s", net)
-- local y = second:Do { scope = "s", reuse = true, body = function(d) return d:Exp "h" end }
function Net:import_scope(scope, other)
  if type(scope) ~= "string" or scope == "" then
    fail(("net:import_scope expects a name, got a %s"):format(type(scope)))
  end
  if not op.is_net(other) then
    fail(("net:import_scope expects a net, got a %s"):format(type(other)))
  end
  if state_of(self).outer or state_of(self).take then
    fail "net:import_scope is for a net that runs, not for a branch or body"
  end
  if is_known(self, scope) then
    fail(("net:import_scope: net \"%s\" has a \"%s\" already"):format(self:_name(), scope))
  end
  scope_flow.import_from(self, scope, other)
  return self
end

-- ---- variable scopes ----------------------------------------------------------------------------

--- net:param inside a variable scope: makes the parameter, or gives the one that is there where
-- `reuse` is asked.
local function scoped_param(settings)
  return function(net, full, shape, init, o)
    local old = net:_blob(full)
    if type(init) == "number" then init = { op = "Constant", value = init } end
    if old == nil then
      local trainable = o.trainable
      if trainable == nil then trainable = settings.trainable end
      return net:declare(full, "parameter", shape, o.dtype,
        init or settings.init or { op = "Constant", value = 0 }, trainable ~= false)
    end

    -- The parameter is there: to share it, the call or a scope must say so, or it is found by a
    -- shared path.
    local reuse = o.reuse
    if reuse == nil then reuse = settings.reuse end
    -- to share is to be found again
    if reuse == nil then reuse = param_path_of(net) ~= param_scope_of(net) end
    local text
    if not reuse then
      text = "parameter \"%s\" is there already, made at %s"
    elseif table.concat(old.shape or {}, ",") ~= table.concat(shape, ",")
        or (o.dtype or "f32") ~= old.dtype then
      text = ("parameter \"%%s\" was made at %%s as %s (%s), and is asked for as %s (%s)"):format(
        old.dtype, table.concat(old.shape or {}, ","), o.dtype or "f32", table.concat(shape, ","))
    end
    if text == nil then return handle(net, full) end
    local where = old.line ~= "" and old.line or "an unknown line"
    error(core.error {
      code = "name",
      message = text:format(full, where),
      blob = full,
      hint = reuse and "give it another name"
        or "net:variable_scope(name, { reuse = true }, f) shares it",
    })
  end
end

local variable_options = record.declare("net:variable_scope", { call = "(name, {}, f, ..)",
  doc = [[A name scope whose parameters are made once; gives f's results. Inner scopes inherit its
    options. What ops put out on a second visit is named "name_2/..", so that no handle of the first
    visit comes to mean something else.]],
  { "reuse", "boolean", unset = "as the scope around it says, or false", doc = [[whether a second
      visit finds the parameters; else one that is there is an error, which names where it was
      made]] },
  { "init", "initial", unset = "as the scope around it says, or zeros",
    doc = "fills parameters that have no initialiser of their own" },
  { "trainable", "boolean", unset = "as the scope around it says, or true",
    doc = "false freezes its parameters" },
  example = 'net:variable_scope("encoder", { reuse = false },\n  function() return net:param("w", '
    .. '{ 8, 4 }, neap.init.xavier {}) end)' })

--- net:variable_scope(name, { .. }, f, ...) -> f's results: see the record.
function Net:variable_scope(name, given, f, ...)
  naming.check_scope("net:variable_scope", name)
  if type(given) == "function" then fail("net:variable_scope expects (name, { reuse = .. }, f)") end
  if f ~= nil and type(f) ~= "function" then
    fail("net:variable_scope expects a function, got a " .. type(f))
  end
  local o = variable_options:read(given)
  local state = state_of(self)
  state.variables, state.visits, state.param_scopes = state.variables or {}, state.visits or {},
    state.param_scopes or {}

  -- Inner scopes inherit what they do not say.
  local outer, param_path = state.variables[#state.variables] or {}, param_path_of(self)
  param_path = param_path == "" and name or param_path .. "/" .. name
  if type(o.init) == "number" then o.init = { op = "Constant", value = o.init } end
  for _, key in ipairs { "reuse", "init", "trainable" } do
    if o[key] == nil then o[key] = outer[key] end
  end

  -- A second visit gives ops a path of its own, "name_2", and parameters the old one.
  local path = scope_of(self) .. "/" .. name
  naming.set(self, state.visits, path, (state.visits[path] or 0) + 1)
  local visit = state.visits[path]
  local scope = self:scope(visit == 1 and name or name .. "_" .. visit)
  state.param_scopes[#state.scopes] = param_path
  local depth = #state.variables + 1
  o.param = scoped_param(o)
  state.variables[depth] = o

  -- The handle of net:scope leaves it; the variables go with it.
  local leave_scope = getmetatable(scope).__close
  local function leave()
    for i = #state.variables, depth, -1 do state.variables[i] = nil end
    leave_scope()
  end
  if f == nil then return setmetatable({}, { __close = leave }) end
  local _ <close> = setmetatable({}, { __close = leave })
  return (function(...) return ... end)(f(...))
end

--- Raises for partners that lead back to where they begin.
local function check_partners(partner)
  for from in pairs(partner) do
    local seen, at = {}, from
    while at do
      if seen[at] then fail(("net:parameter_sharing: \"%s\" leads back to itself"):format(from)) end
      seen[at] = true
      -- As shared_path goes: by the longest beginning that has a partner.
      local head, to = at, partner[at]
      while head ~= "" and to == nil do
        head = head:match "^(.*)/[^/]*$" or ""
        to = partner[head]
      end
      at = to
    end
  end
end

--- net:parameter_sharing({ scope = other scope, .. }, f, ...) -> f's results: what is made in
-- `scope` has the parameters of the other one, name by name, and makes them there when they are not
-- there yet. Paths begin at the scope that is open; "" is that scope itself. What lies inside
-- shared scopes is shared too, and sharings may stand in each other. Outputs keep names of their
-- own; a shared parameter has one shape. Without f: `local _ <close> = net:parameter_sharing { ..
-- }`.
-- @usage net:parameter_sharing({ right = "left" }, function()
--   net:scope("left", encode, x)
--   net:scope("right", encode, y)
-- end)
function Net:parameter_sharing(shared, f, ...)
  if type(shared) ~= "table" then
    fail("net:parameter_sharing expects ({ scope = other }, f), got a " .. type(shared))
  end
  if f ~= nil and type(f) ~= "function" then
    fail("net:parameter_sharing expects a function, got a " .. type(f))
  end
  local state, path, partner = state_of(self), param_path_of(self), {}
  state.partners = state.partners or {}
  local depth = #state.partners + 1

  -- Sharings may stand in each other: the inner one knows what the outer ones say.
  for from, to in pairs(state.partners[depth - 1] or {}) do partner[from] = to end
  local function full(name)
    return path == "" and name or name == "" and path or path .. "/" .. name
  end

  -- Paths begin at the scope that is open. A scope that shares with one inside itself would never
  -- end.
  for from, to in pairs(shared) do
    if type(from) ~= "string" or type(to) ~= "string" or from == "" then
      fail("net:parameter_sharing: a scope shares with another one, { right = \"left\" }; both \z
        are names")
    end
    if to == from or to:sub(1, #from + 1) == from .. "/" then
      fail(("net:parameter_sharing: \"%s\" lies in \"%s\" and can't be what it shares with"):format(
        to, from))
    end
    partner[full(from)] = full(to)
  end
  check_partners(partner)
  state.partners[depth] = partner
  local function leave()
    for i = #state.partners, depth, -1 do state.partners[i] = nil end
  end
  if f == nil then return setmetatable({}, { __close = leave }) end
  local _ <close> = setmetatable({}, { __close = leave })
  return (function(...) return ... end)(f(...))
end

local scope = {}

--- neap.variable_scope(name, {..}, f, ...): in the net whose scope, branch or body is being built.
function scope.variable_scope(name, given, f, ...)
  local net = current[coroutine.running()]
  if net == nil then
    fail("neap.variable_scope works inside net:scope or a net's own functions; use \z
      net:variable_scope(name, {..}, f)")
  end
  return net:variable_scope(name, given, f, ...)
end

return scope
