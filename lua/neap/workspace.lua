--- Workspaces: running nets by handle. The C class holds the blobs; here is the small table of programs that makes the
-- second `ws:run(net)` as cheap as a compiled program.
-- @module neap.workspace
local core = require "neap.core"
local report = require "neap.report"
local Workspace = core.Workspace

--- What a workspace remembers in Lua: options given to neap.workspace, blobs kept, programs by net and input shapes.
local memory = setmetatable({}, { __mode = "k" })

local make = core.workspace
local compile_options = { "budget", "total", "executor", "policy", "store", "engine", "in_place", "profile" }

--- Makes a workspace.
-- @param o table { seed =, parent =, forward = {..}, budget =, total =, executor = "simple"|"dag", store = false }
function core.workspace(o)
  local ws = make(o)
  local defaults = {}
  for _, key in ipairs(compile_options) do
    if o and o[key] ~= nil then defaults[key] = o[key] end
  end
  memory[ws] = { defaults = defaults, keep = {}, programs = {} }
  return ws
end

local child = Workspace.child
function Workspace:child(o)
  local ws = child(self, o or {})
  memory[ws] = { defaults = memory[self] and memory[self].defaults or {}, keep = {}, programs = {} }
  return ws
end

local function own(ws)
  memory[ws] = memory[ws] or { defaults = {}, keep = {}, programs = {} }
  return memory[ws]
end

local compile = Workspace.compile

--- Plans a net and binds it to this workspace, whose options it takes where `o` does not say otherwise.
-- @param net neap.net
-- @param o table|nil as for net:plan
-- @return program
function Workspace:compile(net, o)
  local mine, merged = own(self), {}
  for key, value in pairs(mine.defaults) do merged[key] = value end
  for key, value in pairs(o or {}) do merged[key] = value end
  local keep = {}
  for name in pairs(mine.keep) do keep[#keep + 1] = name end
  for _, name in ipairs(type(merged.keep) == "table" and merged.keep or { merged.keep }) do
    keep[#keep + 1] = type(name) == "string" and name or name.name
  end
  table.sort(keep)
  merged.keep = keep
  return compile(self, net, merged)
end

--- Makes blobs resident: fetchable after any run, at the price of their bytes. Nets are planned again.
function Workspace:keep(...)
  local mine = own(self)
  for _, name in ipairs { ... } do mine.keep[type(name) == "string" and name or name.name] = true end
  for _, program in pairs(mine.programs) do program:close() end
  mine.programs = {}
  return self
end

local function program_of(self, net, feeds)
  local key, x = { tostring(net:id()) }, {}
  for _, input in ipairs(net:inputs()) do
    local fed = feeds and feeds[input.name]
    local shape = fed and core.is_tensor(fed) and fed.shape
    if not shape and self:has(input.name) then shape = self:view(input.name).shape end
    shape = shape or input.shape
    x[input.name] = shape
    key[#key + 1] = input.name .. "(" .. table.concat(shape, ",") .. ")"
  end
  local mine, id = own(self), table.concat(key, " ")
  if mine.programs[id] == nil then
    self:init(net)
    mine.programs[id] = self:compile(net, { x = x })
  end
  return mine.programs[id]
end

--- Runs a net once: compiles it for these shapes the first time.
-- @param net neap.net, or the name of one given to ws:net
-- @param feeds table|nil {input = tensor}
-- @return table {output = tensor}, copies
function Workspace:run(net, feeds)
  if type(net) == "string" then net = self:net(net) end
  for name in pairs(feeds or {}) do
    if not net:blob(name) then
      error(core.error { code = "name", message = ("run: the net \"%s\" has no blob \"%s\" to feed"):format(net.name, name) }, 0)
    end
  end
  local program = program_of(self, net, feeds)
  for name, tensor in pairs(feeds or {}) do self:feed(name, tensor) end
  program:run()
  local out = {}
  for _, name in ipairs(net:output_names()) do out[name] = self:fetch(name) end
  return out
end

--- Nets by name: ws:net(net) stores, ws:net "name" finds.
function Workspace:net(net)
  local mine = own(self)
  mine.nets = mine.nets or {}
  if type(net) ~= "string" then
    mine.nets[net.name] = net
    return net
  end
  if not mine.nets[net] then error(core.error { code = "name", message = ("the workspace has no net \"%s\""):format(net) }, 0) end
  return mine.nets[net]
end

--- The blobs as a report: name, kind, role, region, dtype, shape, bytes. Shared storages count once in `bytes`.
function Workspace:blobs()
  local rows, total = self:blob_rows(), 0
  for _, row in ipairs(rows) do
    if not row.shares and not row.borrowed then total = total + row.bytes end
  end
  table.sort(rows, function(a, b) return a.bytes > b.bytes or (a.bytes == b.bytes and a.name < b.name) end)
  return report.new { rows = rows, columns = { "name", "kind", "role", "region", "dtype", "shape", "bytes" }, bytes = total }
end

local close = Workspace.close
function Workspace:close()
  for _, program in pairs(own(self).programs) do program:close() end
  own(self).programs = {}
  return close(self)
end
Workspace.meta.__close = function(ws) return ws:close() end

return Workspace
