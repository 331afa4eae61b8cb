--- Names in nets: what a name that is written or read means where it stands.
--
-- Inside a scope, names written get its path in front ("block1/y"), and names read are looked for
-- from the innermost scope outwards; a name that already begins with the path stays as it is.
-- Shared by the files that build nets; nobody else's.
-- @module neap.net.naming
local core = require "neap.core"
local fail = core.fail
local op = require "neap.op"

local M = {}

--- What Lua knows of a net: { scopes = {path, ..}, outer = net of a subnet, counts = {} }.
local states = setmetatable({}, { __mode = "k" })

--- The net whose scope, branch or body is being built, by coroutine.
M.current = setmetatable({}, { __mode = "k" })
--- That whose building function is running: what is drawn at random meanwhile is an op of it. A
-- scope that was left open is none.
local drawn_into = setmetatable({}, { __mode = "k" })

--- f(...) -> f's results, as a function that builds `net`: what it adds to outer blobs, and what it
-- draws at random, goes into it.
function M.inside(net, f, ...)
  local thread = coroutine.running()
  local before, drawn_before = M.current[thread], drawn_into[thread]
  local _ <close> = setmetatable({}, {
    __close = function() M.current[thread], drawn_into[thread] = before, drawn_before end,
  })
  M.current[thread], drawn_into[thread] = net, net
  return (function(...) return ... end)(f(...))
end

--- That of one net, made at its first use.
function M.state_of(net)
  local state = states[net]
  if state == nil then
    state = { scopes = {}, counts = {} }
    states[net] = state
  end
  return state
end

--- The net around all, as far as names are seen through.
local function outermost(net)
  while true do
    local outer = M.state_of(net).outer
    if outer == nil then return net end
    net = outer
  end
end

--- Sets t[key], of what Lua knows of a net, so that a call that fails later leaves it as it was.
function M.set(net, t, key, value)
  -- Nobody undoes anything unless a call is under way.
  local log = M.state_of(outermost(net)).log
  if log then log[#log + 1] = { t, key, t[key] } end
  t[key] = value
end

--- f(...) -> f's results, as one addition to `net`: when it raises, the net and all around and
-- within it are as they were before, in C (src/net/mark.c) and here.
function M.attempt(net, f, ...)
  -- Calls within calls share one log; each undoes its own part of it, from the end.
  local state = M.state_of(outermost(net))
  local log, is_first = state.log or {}, state.log == nil
  state.log = log
  local mark, n_before, keep = net:_mark(), #log, false
  local _ <close> = setmetatable({}, { __close = function()
    if not keep then
      -- The newest change first: one key may have changed several times.
      for i = #log, n_before + 1, -1 do
        local change = log[i]
        change[1][change[2]], log[i] = change[3], nil
      end
    end
    if is_first then state.log = nil end
    net:_end_mark(mark, keep)
  end })
  return (function(...)
    keep = true
    return ...
  end)(f(...))
end

--- Puts functions whose first argument is a net, or has one, in the place of those of a table: each
-- adds all or nothing.
-- @tparam table t
-- @tparam {string,..} names
-- @tparam ?function net_of(first argument) -> net; nil: it is the net
function M.all_or_nothing(t, names, net_of)
  for _, name in ipairs(names) do
    local f = t[name]
    t[name] = function(self, ...)
      return M.attempt(net_of and net_of(self) or self, f, self, ...)
    end
    if core.function_name(f) then core.name_function(t[name], core.function_name(f)) end
  end
end

--- A subnet's handle, and what is known of its names, live as long as the net that an op of it
-- belongs to.
function M.keep_subnet(net, sub)
  if sub == nil then return end
  local state = M.state_of(net)
  if not state.subnets then M.set(net, state, "subnets", {}) end
  M.set(net, state.subnets, #state.subnets + 1, sub)
end

--- The path of the scopes that are open, "" outside of all.
function M.scope_of(net)
  local scopes = M.state_of(net).scopes
  return scopes[#scopes] or ""
end

--- The path of the scopes as parameters see it: a second visit to a variable scope gives ops a path
-- of their own, parameters the old one.
function M.param_path_of(net)
  local state = M.state_of(net)
  local paths = state.param_scopes
  return paths and paths[#state.scopes] or M.scope_of(net)
end

--- Where a path leads by what shares with what: the longest scope at its beginning that has a
-- partner gives way to it, and so on.
-- @tparam {[string]=string} partner paths, no one of them leading back to itself
function M.shared_path(partner, path)
  -- The longest beginning of the path that has a partner.
  local head, to = path, nil
  while head ~= "" and to == nil do
    to = partner[head]
    if to == nil then head = head:match "^(.*)/[^/]*$" or "" end
  end
  if to == nil then return path end

  -- What lies behind it comes along. The partner may share with another one itself.
  local rest, base = path:sub(#head + 2), M.shared_path(partner, to)
  if base == "" or rest == "" then return base .. rest end
  return base .. "/" .. rest
end

--- The path that parameters made now get in front: that above, where it is not shared with another
-- one.
function M.param_scope_of(net)
  local partners = M.state_of(net).partners
  local path = M.param_path_of(net)
  return partners and #partners > 0 and M.shared_path(partners[#partners], path) or path
end

--- Says that nobody chose the name of blob `name`, full, of `net`.
local function made_up(net, name)
  local state = M.state_of(net)
  if not state.made_up then M.set(net, state, "made_up", {}) end
  M.set(net, state.made_up, name, true)
end

--- Whether that is so: such names in two branches mean nothing to each other.
function M.is_made_up(net, name)
  local names = M.state_of(net).made_up
  return names ~= nil and names[name] == true
end

--- A name that no blob has: base, base_2, base_3 ...
function M.fresh_name(net, base)
  local counts = M.state_of(net).counts
  local name
  -- The count goes up where a name is taken, too: it is not tried again.
  repeat
    M.set(net, counts, base, (counts[base] or 0) + 1)
    name = counts[base] == 1 and base or base .. "_" .. counts[base]
  until not M.is_known(net, M.written(net, name))
  made_up(net, M.written(net, name))
  return name
end

--- f(...) -> f's results: what f adds to `net` is of the layer with this full path; "": of none.
function M.in_layer(net, path, f, ...)
  local state = M.state_of(net)
  local before = state.layer
  local _ <close> = setmetatable({}, { __close = function() state.layer = before end })
  state.layer = path
  return (function(...) return ... end)(f(...))
end

--- The layer that is being built: in a branch or a body that of the net around.
local function layer_of(net)
  while net do
    local state = M.state_of(net)
    if state.layer then return state.layer end
    net = state.outer
  end
  return ""
end

--- Adds an op to `net`, by full names; the arguments are those of net:_add.
-- @return names of the outputs
function M.add(net, type_name, ins, outs, attrs, name, scope, line, device)
  local before_write = M.state_of(net).before_write
  for i = 1, before_write and outs and #outs or 0 do before_write(outs[i]) end
  local names = net:_add(type_name, ins, outs, attrs, name, scope, line, device, layer_of(net))
  for i, output in ipairs(names) do
    if output and not (outs and outs[i]) then made_up(net, output) end
  end
  return names
end

--- Watches over n blobs of `net` while it is built: an op that is about to write one has it copied
-- first.
-- @return table {blobs as they were when this was called}
function M.keep_old(net, blobs, n)
  -- From now on an op that writes one of the blobs makes a copy first.
  local old, position = table.move(blobs, 1, n, 1, {}), {}
  for i = 1, n do position[blobs[i].name] = i end
  M.state_of(net).before_write = function(name)
    local i = position[name]
    if i and old[i] == blobs[i] then M.set(net, old, i, (net:op("Copy", { name }))) end
  end
  return old
end

local function begins(name, path) return name:sub(1, #path + 1) == path .. "/" end

--- The full name of something written in the current scope.
function M.written(net, name)
  local scope = M.scope_of(net)

  -- A name that begins with the path was written in full.
  if scope == "" or begins(name, scope) then return name end
  return scope .. "/" .. name
end

--- The same for a parameter.
function M.written_param(net, name)
  local scope = M.param_scope_of(net)
  if scope == "" or begins(name, scope) then return name end
  return scope .. "/" .. name
end

--- Raises for what can't name a scope: names within begin with it.
function M.check_scope(who, name)
  if type(name) ~= "string" or name == "" then
    fail(("%s expects a name, got %s"):format(who, name == "" and "an empty one"
      or "a " .. type(name)))
  end
  if name:find("\0", 1, true) then
    fail(("%s expects a name without zero bytes, got %q"):format(who, name))
  end
end

--- Whether a name means something in the net or around it.
function M.is_known(net, name)
  -- Outwards through the nets. Asking may itself take a local into the body of a Do.
  while net do
    local state = M.state_of(net)
    if net:_blob(name) or (state.take and state.take(name)) then return true end
    net = state.outer
  end
  return false
end

--- The full name that `name` has in `scope` or the nearest one around it that knows it; nil when
-- none does.
local function read_in(net, name, scope)
  while scope ~= "" do
    -- A name that begins with the scope's path is a full one.
    if begins(name, scope) then return name end
    local full = scope .. "/" .. name
    if M.is_known(net, full) then return full end
    scope = scope:match "^(.*)/[^/]*$" or ""
  end
end

--- The full name of something read: the innermost scope's first.
function M.read(net, name)
  local scope, params = M.scope_of(net), M.param_scope_of(net)
  local function parameter(full) -- of where parameters are shared with, nothing else is meant
    local row = full and net:_blob(full)
    return row and row.role == "parameter" and full
  end

  -- Where a second visit to a variable scope, or a sharing, gives parameters another path, a name
  -- that the scope itself does not know may be one of theirs. Nothing but parameters is shared.
  if params ~= scope
      and not begins(name, scope)
      and not M.is_known(net, scope == "" and name or scope .. "/" .. name) then
    local full = parameter(params == "" and name or params .. "/" .. name)
    if full then return full end
  end

  -- The scopes from within outwards, then where parameters are shared with.
  local full = read_in(net, name, scope)
  if full then return full end
  full = params ~= scope and parameter(read_in(net, name, params))
  if full then return full end
  M.is_known(net, name) -- the body of a Do takes a local of its frame when it is first read
  return name
end

--- Whether a blob's net is `net` or around it.
local function belongs(net, blob)
  while net do
    if blob.net == net then return true end
    net = M.state_of(net).outer
  end
  return false
end

--- The net that what is called now adds to, where `net` is being built: the branch or body inside
-- `net` whose function runs, or `net` itself. Raises in the body of a Do, which sees nothing of
-- `net`.
-- @param what string for the message: what is called
function M.net_within(net, what)
  local inner = M.current[coroutine.running()]

  -- Outwards from where the function runs to `net`: in between no body of a Do may lie.
  local at = inner
  while at and at ~= net do
    if M.state_of(at).take then
      fail(("%s: the body of a Do sees its bindings alone, no parameters: call the layer outside, \z
        and bind what it gives"):format(what))
    end
    at = M.state_of(at).outer
  end
  return at and inner or net
end

--- Says that blob `name` of the outermost net is a layer's own, its statistic: an If or a loop that
-- writes it does not return it.
function M.keep_to_layer(net, name)
  local state = M.state_of(outermost(net))
  if not state.layers_own then M.set(net, state, "layers_own", {}) end
  M.set(net, state.layers_own, name, true)
end

--- Whether it is.
function M.is_layers_own(net, name)
  local own = M.state_of(outermost(net)).layers_own
  return own ~= nil and own[name] == true
end

--- Inside the function that builds a subnet, ops on outer blobs go into the subnet.
op.set_net_of(function(blob)
  local inner = M.current[coroutine.running()]
  return inner and belongs(inner, blob) and inner or blob.net
end)
op.set_net_being_built(function() return drawn_into[coroutine.running()] end)
op.set_attempt(M.attempt)

--- The full name of a name, blob, tensor or number that an op reads; false for false and nil.
-- @tparam string what for messages: the op or function that asks
function M.reader(net, x, what)
  if type(x) == "string" then return M.read(net, x) end
  if op.is_blob(x) then
    if not belongs(net, x) then
      fail(("%s: blob %s belongs to another net"):format(what, x.name))
    end
    return x.name
  end
  if op.is_tensor(x) or type(x) == "number" then return net:const(x).name end
  if not x then return false end
  fail(("%s expects names or blobs, got a %s"):format(what, type(x)))
end

--- The length of a list of operands, which may have holes; an error where something else stands in
-- it, such as an attribute.
function M.count(xs, what)
  local n = 0
  for key in pairs(xs) do
    local packed = key == "n" and math.type(xs.n) == "integer" -- by table.pack
    if not packed and (math.type(key) ~= "integer" or key < 1) then
      fail(("%s: \"%s\" stands in a list of blobs; attributes are a table of their own: (inputs, \z
        outputs, { .. })"):format(what, tostring(key)))
    end
    if not packed and key > n then n = key end
  end
  return n
end

--- One or a list of names or blobs, as a list of full names.
function M.read_list(net, xs, what)
  if xs == nil then return {} end
  if type(xs) ~= "table" or op.is_blob(xs) then xs = { xs } end
  local n = M.count(xs, what)
  local names = {}
  for i = 1, n do names[i] = M.reader(net, xs[i] or false, what) end
  return names
end

return M
