--- Workspaces: names to tensors, and running nets on them.
--
-- `ws:run(net, {x = t})` compiles the net once per (net, input shapes) and keeps the program; `ws:compile` gives it to you.
-- @module neap.workspace
local core = require "neap.core"
local op = require "neap.op"
local options = require "neap.options"
local report = require "neap.report"

local Workspace, Program = core.Workspace, core.Program
local workspace = {}

--- Programs that ws:run has made: { [net] = { [key] = program } }, and what else Lua keeps of a workspace.
local states = setmetatable({}, { __mode = "k" })

--- Programs that one workspace keeps at most, per net: shapes come and go, and each holds kernels.
local most_programs = 8

--- neap.workspace{seed =, parent =, forward = {..}, budget =, total =, executor = "simple"|"dag"|"dynamic", soft =, store = false}
-- Executor "dynamic": ws:run takes tensors of any shapes and nets with ops whose outputs' length depends on data; bytes come from
-- a pool, `budget` is its hard limit, `soft` what it is trimmed to when less is needed again.
-- @usage local ws <close> = neap.workspace { executor = "dynamic" }; ws:run(net, { x = neap.rand(7, 12) }); ws:run(net, { x = neap.rand(3, 12) })
function workspace.new(given)
  local o = options.read("neap.workspace", { seed = options.none, parent = options.none, forward = options.none, budget = options.none,
    total = options.none, executor = options.none, store = options.none, policy = options.none, engine = options.none,
    soft = options.none }, given, 2)
  local seed = o.seed or math.tointeger(tonumber(os.getenv "NEAP_SEED" or ""))
  local ws = core.new_workspace { seed = seed, parent = o.parent, forward = o.forward, budget = o.budget, total = o.total }
  states[ws] = { programs = setmetatable({}, { __mode = "k" }), nets = {}, keeps = {}, parent = o.parent,
    defaults = { executor = o.executor, store = o.store, policy = o.policy, engine = o.engine, soft = o.soft } }
  return ws
end

local function state_of(ws) return states[ws] end

-- ---- programs --------------------------------------------------------------------------------------------------------

local function with_defaults(ws, memory)
  local state, out = state_of(ws), {}
  for key, value in pairs(state.defaults) do out[key] = value end
  for key, value in pairs(memory or {}) do out[key] = value end
  if #state.keeps > 0 then
    local keep = table.move(state.keeps, 1, #state.keeps, 1, {})
    if type(out.keep) == "string" then keep[#keep + 1] = out.keep end
    if type(out.keep) == "table" then table.move(out.keep, 1, #out.keep, #keep + 1, keep) end
    out.keep = keep
  end
  return out
end

--- Names of `keeps` that a net does not know would be errors: a workspace's wish holds for the nets that have them.
local function only_known(net, memory)
  if type(memory.keep) ~= "table" then return memory end
  local known = {}
  for _, name in ipairs(memory.keep) do
    if op.is_blob(name) or net:_blob(name) or net:_has_local(name) then known[#known + 1] = name end
  end
  memory.keep = known
  return memory
end

--- ws:compile(net [, memory]) -> program. memory: budget, total, policy, executor, in_place, keep, engine, threads, profile;
-- and input shapes by name where they differ from the declared ones.
function Workspace:compile(net, memory)
  return self:_compile(net, only_known(net, with_defaults(self, memory)))
end

local function shape_key(feeds)
  local names = {}
  for name in pairs(feeds) do names[#names + 1] = name end
  table.sort(names)
  local parts = {}
  for i, name in ipairs(names) do parts[i] = name .. "(" .. table.concat(feeds[name].shape, ",") .. ")" end
  return table.concat(parts, " ")
end

local function fresh_table(self, net)
  local state = state_of(self)
  local entry = state.programs[net]
  local version = net:_version()
  if entry == nil or entry.version ~= version or entry.n_keep ~= #state.keeps then
    if entry then
      for _, program in pairs(entry.by_key) do program:close() end
    end
    entry = { version = version, n_keep = #state.keeps, by_key = {}, n = 0 }
    state.programs[net] = entry
  end
  return entry
end

--- The program of a net for given feeds, compiled at the first use. A dynamic one takes any shapes.
local function program_for(self, net, feeds)
  local entry, dynamic = fresh_table(self, net), state_of(self).defaults.executor == "dynamic"
  local key = dynamic and "" or shape_key(feeds)
  local program = entry.by_key[key]
  if program then return program end
  if entry.n >= most_programs then
    for _, old in pairs(entry.by_key) do old:close() end
    entry.by_key, entry.n = {}, 0
  end
  local memory = {}
  for name, t in pairs(feeds) do
    local row = net:_blob(name)
    if row and row.role == "input" then memory[name] = t.shape end
  end
  program = self:compile(net, memory)
  entry.by_key[key], entry.n = program, entry.n + 1
  return program
end

local function full_name(x) return type(x) == "table" and x.name or x end

--- ws:run(net|name [, {x = tensor}]) -> {output = tensor}: copies of the net's outputs.
function Workspace:run(net, feeds)
  if type(net) == "string" then net = self:net(net) end
  local tensors = {}
  for name, value in pairs(feeds or {}) do
    name = full_name(name)
    if not op.is_tensor(value) then
      local row = net:_blob(name)
      value = core.tensor(value, row and row.dtype)
    end
    tensors[name] = value
  end
  self:init(net)
  for name, t in pairs(tensors) do
    local row = net:_blob(name)
    self:feed(name, row and row.dtype and row.dtype ~= t.dtype and t:to(row.dtype) or t)
  end
  program_for(self, net, tensors):run()
  local results = {}
  for _, name in ipairs(net:_output_names()) do results[name] = self:fetch(name) end
  return results
end

--- ws:keep(name, ..): the blob gets bytes of its own in every program made from now on; ws:run's programs are made anew.
function Workspace:keep(...)
  local keeps = state_of(self).keeps
  for _, x in ipairs { ... } do keeps[#keeps + 1] = full_name(x) end
  return self
end

--- ws:child{forward = {..}} -> a workspace whose names fall through to this one, or only the forwarded ones.
function Workspace:child(given)
  local o = {}
  for key, value in pairs(given or {}) do o[key] = value end
  o.parent = self
  return workspace.new(o)
end

--- ws:add_net(net [, name]); ws:net(name) -> net: nets by name.
function Workspace:add_net(net, name)
  state_of(self).nets[name or net:name()] = net
  return self
end

function Workspace:net(name)
  local state = state_of(self)
  while state do
    if state.nets[name] then return state.nets[name] end
    state = state.parent and states[state.parent]
  end
  error(core.error { code = "name", message = ("the workspace has no net \"%s\""):format(name), hint = "ws:add_net(net) puts one in" }, 2)
end

--- ws:run_steps{ {net, n = 10, feeds = {..}}, {step, step, n = 3} }: runs a tree of nets, each node n times (once by default).
function Workspace:run_steps(tree)
  for _ = 1, tree.n or 1 do
    local first = tree[1]
    if type(first) == "string" or type(first) == "userdata" then
      self:run(first, tree.feeds)
    else
      for _, step in ipairs(tree) do self:run_steps(step) end
    end
  end
  return self
end

--- ws:blobs() -> Report of all names.
function Workspace:blobs()
  local rows, total = self:_blobs(), 0
  for _, row in ipairs(rows) do
    if not row.shares and not row.borrowed then total = total + row.bytes end
    row.shape = row.shape and "(" .. table.concat(row.shape, ",") .. ")"
  end
  return report.new { rows = rows, columns = { "name", "role", "region", "dtype", "shape", "bytes" }, totals = { bytes = total } }
end

--- ws:close(): lets go of everything now rather than at the next collection; programs first.
function Workspace:close()
  local state = states[self]
  if state then
    for _, entry in pairs(state.programs) do
      for _, program in pairs(entry.by_key) do program:close() end
    end
    state.programs = setmetatable({}, { __mode = "k" })
  end
  self:_close()
end
Workspace.meta.__close = Workspace.close

-- ---- profiles --------------------------------------------------------------------------------------------------------------

--- program:profile{steps = 10} -> run: plan, ops() by time, table{sort =, limit =}, median_ns. Needs compile { profile = true }.
function Program:profile(given)
  local o = options.read("program:profile", { steps = 10 }, given, 2)
  if self:times() == nil then error("program:profile needs a program compiled with { profile = true }", 2) end
  self:run(o.steps)
  return require("neap.plan").run(self)
end

return workspace
