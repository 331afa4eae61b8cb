--- Frames of scopes: workspaces that see names of another one under names of their own.
-- @module neap.workspace.scope
local core = require "neap.core"
local state = require "neap.workspace.state"

local Scope = core.Scope

--- What Lua keeps of a scope: its frames' handles, so that their programs live as long as the scope
-- does.
local scope_frames = setmetatable({}, { __mode = "k" })

local function adopt(scope, parent, frame)
  if frame == nil then return nil end
  local frames = scope_frames[scope] or {}
  scope_frames[scope], frames[frame] = frames, true
  local own, above = state.of(frame), state.of(parent)
  own.parent, own.defaults = parent, above.defaults
  return frame
end

--- scope:push(parent [, bindings]) -> frame, a workspace that sees the parent's blob `outer` as
-- `inner` for each `{inner = outer}`, and nothing else; what is made in it is its own. All pushes
-- bind alike: others are an error.
-- @usage local scope = ws:create_scope "micro"
-- local frame = scope:push(ws, { x = "x", w = "w" })
function Scope:push(parent, bindings) return adopt(self, parent, self:_push(parent, bindings)) end

--- scope:reuse_last(parent [, bindings]) -> the top frame with further bindings, or nil when the
-- scope is empty.
function Scope:reuse_last(parent, bindings)
  return adopt(self, parent, self:_reuse_last(parent, bindings))
end

--- scope:pop_gradient(parent [, bindings]) -> the top frame, which the scope leaves and which lives
-- on; nil when it is empty. Bindings are added for names that the frame does not have. So a
-- backward pass finds the forward's blobs, in reverse order.
function Scope:pop_gradient(parent, bindings)
  return adopt(self, parent, self:_pop_gradient(parent, bindings))
end

--- scope:trim() -> scope: ends the frames that are not in use, programs and all; their memory
-- returns.
function Scope:trim()
  local frames = scope_frames[self] or {}
  for _, frame in ipairs(self:_idle()) do
    frames[frame] = nil
    frame:close()
  end
  self:_trim()
  return self
end
