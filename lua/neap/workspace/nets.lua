--- Nets that a workspace stores by name.
-- @module neap.workspace.nets
local core = require "neap.core"
local op = require "neap.op"
local record = require "neap.inner.record"
local state = require "neap.workspace.state"

local Workspace = core.Workspace
local fail = core.fail
local nets = {}

-- The workspace's own table, which C sees too, says what there is. A state's `handles` only keep
-- alive what Lua knows of the nets stored there, such as programs made of them.

--- nets.find(ws, name) -> net, of the workspace or of those that it sees; nil.
function nets.find(ws, name)
  local net, owner = ws:_net(name)
  state.of(owner or ws).handles[name] = net
  return net
end

local add_options = record.declare("ws:add_net", { call = "(net, {})",
  doc = "Stores a net in the workspace under its name; gives the workspace.",
  { "overwrite", "boolean", false, doc = [[whether it takes the place of a net of that name, whose
      programs go on; else that is an error]] },
  example = "ws:add_net(net, { overwrite = true })" })

--- ws:add_net(net [, { .. }]) -> ws: see the record.
function Workspace:add_net(net, given)
  if not op.is_net(net) then fail("ws:add_net expects a net, got a " .. type(net)) end
  local o, name = add_options:read(given), net:name()
  self:_add_net(net, o.overwrite)
  state.of(self).handles[name] = net
  return self
end

local create_options = record.declare("ws:create_net", { call = "(f, {})",
  doc = [[Builds a net by f(net), or from a text as net:text() writes it, and stores it in the
    workspace; gives the net. One that fails leaves nothing.]],
  { "name", "name", unset = '"net", or what the text says', doc = "of the net that f builds" },
  { "overwrite", "boolean", false, doc = [[whether it takes the place of a net of that name, whose
      programs go on; else that is an error]] },
  example = 'ws:create_net(function(net) net:outputs { net:input("x", { 2 }):relu() } end,\n'
    .. '  { name = "made", overwrite = true })' })

--- ws:create_net(f | text [, { .. }]) -> net: see the record.
function Workspace:create_net(from, given)
  local o = create_options:read(given)

  -- The net is complete before it is stored: a function that raises leaves nothing.
  local net
  if type(from) == "function" then
    net = require("neap.net").new(o.name)
    from(net)
  else
    net = core.read_net(from)
  end
  self:add_net(net, { overwrite = o.overwrite })
  return net
end

--- ws:net(name) -> net, the workspace's own or its parent's, whoever stored it there, Lua or C.
function Workspace:net(name)
  if type(name) ~= "string" then fail("ws:net expects the name of a net, got a " .. type(name)) end
  local net = nets.find(self, name)
  if net then return net end
  error(core.error {
    code = "name",
    message = ("the workspace has no net \"%s\""):format(name),
    hint = "ws:add_net(net) puts one in",
  })
end

--- ws:nets() -> names of the workspace's own nets, in order of their making, then of its parents'.
-- Nets stored from C are among them.
-- @function Workspace:nets
-- @treturn {string,..}

--- ws:delete_net(name) -> whether there was one of its own.
function Workspace:delete_net(name)
  if type(name) ~= "string" then
    fail("ws:delete_net expects the name of a net, got a " .. type(name))
  end
  state.of(self).handles[name] = nil
  return self:_delete_net(name)
end

return nets
