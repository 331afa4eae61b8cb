--- Workspaces: names to tensors, and running nets on them.
--
-- `ws:run(net, {x = t})` compiles the net once per (net, input shapes) and keeps the program;
-- `ws:compile` gives it to you.
--
-- Here is how they are made, found by name and closed; what runs in them is in run.lua, the rest in
-- the files beside it.
-- @module neap.workspace
local core = require "neap.core"
local memory_options = require "neap.memory.options"
local op = require "neap.op"
local options = require "neap.inner.options"
local record = require "neap.inner.record"
local state = require "neap.workspace.state"
require "neap.workspace.run"
require "neap.workspace.nets"
require "neap.workspace.steps"
require "neap.workspace.scope"
require "neap.workspace.report"

local Workspace = core.Workspace
local fail = core.fail
local workspace = { attempt = state.attempt }

local workspace_options = record.declare("neap.workspace", {
  doc = [[A workspace: names and what they hold. It takes the memory options (help "options"), too:
    `budget` and `total` bound all that the workspace holds, the others are those of whatever runs
    there; a call may give others. What `keep` names each net must have, as where a call gives it;
    ws:keep asks only those that do. Executor "dynamic": ws:run takes tensors of any shapes and nets
    with ops whose outputs' length depends on data; bytes come from a pool, `budget` is its hard
    limit, `soft` what it is trimmed to when less is needed again.]],
  { "seed", "integer", unset = "$NEAP_SEED, or drawn", doc = "what random ops draw by" },
  { "parent", "workspace", unset = "none", doc = "whose names are seen from here, too" },
  { "forward", "table", unset = "all names", says = "a table { name = the parent's }",
    doc = "the parent's names that are seen, when not all are" },
  example = 'neap.workspace { seed = 1, executor = "dynamic" }' })

--- neap.workspace{seed =, .. memory options} -> workspace: see the record.
function workspace.new(given)
  local o, memory = memory_options.split("neap.workspace", given, "workspace",
    workspace_options) -- before the workspace draws a seed

  -- Limits and names go to the engine, what is left are the defaults of whatever runs there.
  if memory.soft ~= nil and not state.has_pool(memory) then
    fail "neap.workspace: soft is what the pool of executor = \"dynamic\" is cut down to"
  end
  if type(memory.budget) == "string" and memory.budget:find("%", 1, true) then
    fail(("neap.workspace: budget = \"%s\" is a share of one net's plan, and a workspace has many \z
      nets: give it bytes, or the share to ws:run or ws:compile"):format(memory.budget))
  end
  local seed = o.seed or math.tointeger(tonumber(os.getenv "NEAP_SEED" or ""))
  local ws = core.new_workspace {
    seed = seed,
    parent = o.parent,
    forward = o.forward,
    budget = memory.budget,
    total = memory.total,
  }
  memory.budget, memory.total, memory.keep = nil, nil, options.names(memory.keep)
  state.new(ws, { parent = o.parent, defaults = memory })
  return record.note(ws, workspace_options:read(o))
end

-- ---- the current workspace ----------------------------------------------------------------------

--- Workspaces by name, and which one is the current one: "default" until another one is asked for.
local named, current_name = {}, "default"

--- neap.current_workspace() -> the current workspace, and its name. The one named "default" is
-- there from the first use on.
function workspace.current()
  named[current_name] = named[current_name] or workspace.new {}
  return named[current_name], current_name
end

--- neap.switch_workspace(name [, create]) -> the workspace of that name, current from now on. One
-- that is not there is an error, unless `create`: then it is made, empty. What the others hold
-- stays.
function workspace.switch(name, create)
  if type(name) ~= "string" or name == "" then
    fail("neap.switch_workspace expects a name, got a " .. type(name))
  end

  -- "default" is always there, made when it is asked for.
  if not named[name] and name ~= "default" then
    if not create then
      local near = options.nearest(name, workspace.names())
      error(core.error {
        code = "name",
        message = ("switch_workspace: there is no workspace \"%s\""):format(name),
        hint = (near and ("did you mean \"%s\"? "):format(near) or "")
          .. "switch_workspace(name, true) makes it",
      })
    end
    named[name] = workspace.new {}
  end
  current_name = name
  return (workspace.current())
end

--- neap.reset_workspace([options]) -> the current workspace made anew, with options as of
-- neap.workspace: its blobs and nets are gone, its programs closed. What is wrong with the options
-- is said before anything goes.
function workspace.reset(given)
  -- The new one is made first: options that are wrong leave the old one as it is.
  local fresh, old = workspace.new(given), named[current_name]
  named[current_name] = fresh
  if old then old:close() end
  return fresh
end

--- neap.workspace_names() -> names of the workspaces that can be switched to, sorted.
function workspace.names()
  local names = {}
  for name in pairs(named) do names[#names + 1] = name end
  if not named.default then names[#names + 1] = "default" end
  table.sort(names)
  return names
end

-- ---- what is alive ------------------------------------------------------------------------------

--- ws:child{forward = {..}} -> a workspace whose names fall through to this one, or only the
-- forwarded ones. Limits are its own: it has those that it is given. The children that ws:run_steps
-- makes share what their parent's limits leave.
function Workspace:child(given)
  if given ~= nil and type(given) ~= "table" then
    fail("ws:child expects options, { forward = { .. } }, got a " .. type(given))
  end

  -- A copy, since `parent` is added.
  local o = {}
  for key, value in pairs(given or {}) do o[key] = value end
  o.parent = self
  return workspace.new(o)
end

--- neap.workspaces() -> list of all workspaces that are alive, frames of scopes included, the
-- newest first.
function workspace.all() return core.workspaces() end

--- neap.for_each_workspace(f): f(ws) for each of them.
function workspace.for_each(f)
  if type(f) ~= "function" then
    fail("neap.for_each_workspace expects a function of a workspace, got a " .. type(f))
  end
  for _, ws in ipairs(core.workspaces()) do f(ws) end
end

--- ws:close(): lets go of everything now rather than at the next collection; programs first.
function Workspace:close()
  state.close_programs(self)
  self:_close()
end
Workspace.meta.__close = Workspace.close

-- ---- blobs --------------------------------------------------------------------------------------

--- ws:keep(name, ..): the blob gets bytes of its own in every program made from now on; ws:run's
-- programs are made anew.
function Workspace:keep(...)
  -- All are checked before any is noted.
  local keeps, names = state.of(self).keeps, { ... }
  for i = 1, select("#", ...) do
    names[i] = state.name_of(names[i])
    if type(names[i]) ~= "string" then
      fail("ws:keep expects names or blobs, got a " .. type(names[i]))
    end
  end
  table.move(names, 1, #names, #keeps + 1, keeps)
  return self
end

--- The bank that is meant: a neap.bank, "main", or the name of one of the workspace's own.
local function bank_of(self, given)
  if type(given) == "table" then return given end
  if given == "main" then return { name = "main" } end
  local own = state.of(self).defaults.banks or {}
  for _, b in ipairs(own.name and { own } or own) do
    if b.name == given then return b end
  end
  fail(("ws:assign expects a neap.bank, \"main\" or the name of a bank of the workspace's \z
    options, got %s"):format(
    type(given) == "string" and "\"" .. given .. "\"" or "a " .. type(given)))
end

local assign_options = record.declare("ws:assign", { call = "(blobs, bank, {})",
  doc = [[Puts blobs that have bytes of their own, parameters or what was fed, into a memory bank;
    "main" takes them out again. Programs compiled afterwards with the bank among their options read
    them there, without a copy. Views taken before see the old bytes. A bank that would hold more
    than it has is an error, and nothing has moved.]],
  { "async", "boolean", false, doc = [[whether the bytes follow while the script goes on; whoever
      reads one of the blobs waits for them, and ws:wait() for all]] },
  example = 'ws:assign({ "w1", "w2" }, neap.bank { "fast", bytes = "1MiB" }, { async = true })' })

--- ws:assign(blobs, bank [, { .. }]) -> ws: see the record.
function Workspace:assign(blobs, to, given)
  local o = assign_options:read(given)
  if type(blobs) ~= "table" or op.is_blob(blobs) then blobs = { blobs } end
  self:_assign(blobs, bank_of(self, to), o.async)
  return self
end

--- ws:wait() -> ws, when no blob is on its way to a bank any more.
function Workspace:wait()
  self:_wait()
  return self
end

return workspace
