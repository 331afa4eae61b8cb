--- What Lua keeps of a workspace: its programs by net, what ws:keep wishes, the options that hold
-- for whatever runs there; and calls that change a workspace as a whole or not at all.
-- @module neap.workspace.state
local core = require "neap.core"
local mem_param = require "neap.memory.mem_param"
local op = require "neap.op"
local options = require "neap.inner.options"

local state = {}

--- By workspace: programs that ws:run has made, { [net] = entry }, and all else that is kept of it.
local states = setmetatable({}, { __mode = "k" })

--- state.new(ws, { .. }) notes what a workspace begins with: `defaults`, `parent`.
function state.new(ws, fields)
  states[ws] = {
    programs = setmetatable({}, { __mode = "k" }),
    ranges = setmetatable({}, { __mode = "k" }),
    handles = {},
    keeps = {},
    parent = fields.parent,
    defaults = fields.defaults or {},
  }
  return states[ws]
end

--- state.of(ws) -> its state. Frames and workspaces that C made get theirs when they are first
-- used; the defaults of a frame are its parent's (scope.lua).
function state.of(ws) return states[ws] or state.new(ws, {}) end

--- state.close_programs(ws): closes the programs that ws:run has made there.
function state.close_programs(ws)
  local own = states[ws]
  if own == nil then return end
  for _, entry in pairs(own.programs) do
    for _, program in pairs(entry.by_key) do program:close() end
  end
  own.programs = setmetatable({}, { __mode = "k" })
end

--- state.forget_programs(ws, net): closes those of one net, which is not run again.
function state.forget_programs(ws, net)
  local own = state.of(ws)
  for _, program in pairs(own.programs[net] and own.programs[net].by_key or {}) do
    program:close()
  end
  own.programs[net] = nil
end

--- state.name_of(x) -> the name of a blob, or x itself.
function state.name_of(x) return type(x) == "table" and x.name or x end

--- state.has_pool(o): whether options ask for a pool, the one thing that has a soft limit.
function state.has_pool(o) return o.executor == "dynamic" or o.policy == "pool" end

--- state.has_blob(net, name): whether the net has the blob, or the blob of a gradient "x.grad".
function state.has_blob(net, name)
  if op.is_blob(name) or net:_blob(name) then return true end
  local base = name:match "^(.+)%.grad$"
  return base ~= nil and net:_blob(base) ~= nil
end

--- Raises for a name in the workspace's own option `keep` that the net lacks.
local function check_keep(names, net)
  for _, name in ipairs(names) do
    if not state.has_blob(net, name) and not net:_has_local(name) then
      local blobs = {}
      for i, row in ipairs(net:_blobs()) do blobs[i] = row.name end
      local near = options.nearest(name, blobs)
      error(core.error {
        code = "name",
        message = ("neap.workspace: keep: net \"%s\" has no blob \"%s\""):format(net:name(), name),
        hint = near and ("did you mean \"%s\"?"):format(near)
          or ("ws:keep \"%s\" keeps it in those nets that have it"):format(name),
      })
    end
  end
end

--- state.with_defaults(ws, memory, net) -> options of a call over those of the workspace. What
-- ws:keep wishes holds for the nets that have it; a name that the call gives, its net must have
-- (net nil: it is known later).
function state.with_defaults(ws, memory, net)
  memory = mem_param.checked(memory)
  local own, out = state.of(ws), {}

  -- From the weakest to the strongest: the workspace, then the call.
  for key, value in pairs(own.defaults) do out[key] = value end
  for key, value in pairs(memory or {}) do out[key] = value end
  -- The limit of a pool means nothing to a plan, unless the call itself asks for it, and is then
  -- refused.
  if not state.has_pool(out) and not (memory and memory.soft) then out.soft = nil end
  if net and own.defaults.keep and not (memory and memory.keep) then
    check_keep(own.defaults.keep, net)
  end
  if #own.keeps == 0 then return out end

  -- ws:keep is a wish: a name that this net lacks is left out. (A name in the call's own list is an
  -- error, which the compiler raises.)
  local given, keep = out.keep, {}
  for _, name in ipairs(own.keeps) do
    local has = net == nil or state.has_blob(net, name) or net:_has_local(name)
    if has then keep[#keep + 1] = name end
  end
  if type(given) ~= "table" or op.is_blob(given) then given = { given } end
  out.keep = options.append(keep, given)
  return out
end

--- state.alone(ws, memory, net) -> the same for what no other batch shares its bytes with, so that
-- the workspace's largest one does not count.
function state.alone(ws, memory, net)
  local out = state.with_defaults(ws, memory, net)
  out.max_batch = memory and memory.max_batch
  return out
end

--- state.attempt(ws, all, fed, f, ...) -> f's results, as one change of the workspace: when it
-- raises, the blobs are what they were, and those made since are gone.
-- @tparam Workspace ws
-- @tparam boolean all whether f may make or change any blob; else only those that it feeds
-- @tparam {string,..} fed names
function state.attempt(ws, all, fed, f, ...)
  -- A call that feeds nothing and may make nothing has nothing to put back.
  if not all and #fed == 0 then return f(...) end
  local mark, keep = ws:_mark(all, fed), false
  local _ <close> = setmetatable({}, { __close = function() ws:_end_mark(mark, keep, fed) end })
  return (function(...)
    keep = true
    return ...
  end)(f(...))
end

return state
