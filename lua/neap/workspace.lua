--- Workspaces: names to tensors, and running nets on them.
--
-- `ws:run(net, {x = t})` compiles the net once per (net, input shapes) and keeps the program;
-- `ws:compile` gives it to you.
-- @module neap.workspace
local core = require "neap.core"
local mem_param = require "neap.memory.mem_param"
local memory_options = require "neap.memory.options"
local op = require "neap.op"
local options = require "neap.inner.options"
local record = require "neap.inner.record"
local range = require "neap.memory.range"
local refusal = require "neap.memory.refusal"
local report = require "neap.report"
local fail = core.fail

local Workspace, Program = core.Workspace, core.Program
local workspace = {}

--- Programs that ws:run has made: { [net] = { [key] = program } }, and what else Lua keeps of a
-- workspace.
local states = setmetatable({}, { __mode = "k" })

--- Programs that one workspace keeps at most, per net: shapes come and go, and each holds kernels.
local most_programs = 8

--- Whether options ask for a pool, the one thing that has a soft limit.
local function has_pool(o) return o.executor == "dynamic" or o.policy == "pool" end

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
  if memory.soft ~= nil and not has_pool(memory) then
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
  states[ws] = {
    programs = setmetatable({}, { __mode = "k" }),
    handles = {},
    keeps = {},
    parent = o.parent,
    ranges = setmetatable({}, { __mode = "k" }),
    defaults = memory,
  }
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

--- Frames and workspaces that C made get their state when they are first used: the defaults are
-- their parent's.
local function state_of(ws)
  local state = states[ws]
  if state == nil then
    state = {
      programs = setmetatable({}, { __mode = "k" }),
      handles = {},
      keeps = {},
      defaults = {},
    }
    states[ws] = state
  end
  return state
end

--- f(...) -> f's results, as one change of the workspace: when it raises, the blobs are what they
-- were, and those made since are gone.
-- @tparam Workspace ws
-- @tparam boolean all whether f may make or change any blob; else only those that it feeds
-- @tparam {string,..} fed names
function workspace.attempt(ws, all, fed, f, ...)
  if not all and #fed == 0 then return f(...) end
  local mark, keep = ws:_mark(all, fed), false
  local _ <close> = setmetatable({}, { __close = function() ws:_end_mark(mark, keep, fed) end })
  return (function(...)
    keep = true
    return ...
  end)(f(...))
end
local attempt = workspace.attempt

-- ---- programs -----------------------------------------------------------------------------------

--- Whether the net has the blob, or the blob of a gradient "x.grad".
local function has_blob(net, name)
  if op.is_blob(name) or net:_blob(name) then return true end
  local base = name:match "^(.+)%.grad$"
  return base ~= nil and net:_blob(base) ~= nil
end

--- Raises for a name in the workspace's own option `keep` that the net lacks.
local function check_keep(names, net)
  for _, name in ipairs(names) do
    if not has_blob(net, name) and not net:_has_local(name) then
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

--- Options of a call over those of the workspace. What ws:keep wishes holds for the nets that have
-- it; a name that the call gives, its net must have (net nil: it is known later).
local function with_defaults(ws, memory, net)
  memory = mem_param.checked(memory)
  local state, out = state_of(ws), {}
  for key, value in pairs(state.defaults) do out[key] = value end
  for key, value in pairs(memory or {}) do out[key] = value end
  if not has_pool(out) and not (memory and memory.soft) then out.soft = nil end
  if net and state.defaults.keep and not (memory and memory.keep) then
    check_keep(state.defaults.keep, net)
  end
  if #state.keeps == 0 then return out end
  local given, keep = out.keep, {}
  for _, name in ipairs(state.keeps) do
    if net == nil or has_blob(net, name) or net:_has_local(name) then keep[#keep + 1] = name end
  end
  if type(given) ~= "table" or op.is_blob(given) then given = { given } end
  out.keep = options.append(keep, given)
  return out
end

--- The same for what no other batch shares its bytes with, so that the workspace's largest one does
-- not count.
local function alone(ws, memory, net)
  local out = with_defaults(ws, memory, net)
  out.max_batch = memory and memory.max_batch
  return out
end

--- The range of batches for a net and options, planned at its first use; one for all programs of
-- the net.
local function range_for(ws, net, memory, most)
  local ranges, key = state_of(ws).ranges, net:_version() .. " " .. range.key(net, memory, most)
  ranges[net] = ranges[net] or {}
  ranges[net][key] = ranges[net][key] or range.new(net, memory, most)
  return ranges[net][key]
end

--- ws:compile(net [, memory]) -> program. memory: options (neap.help "options") over those of the
-- workspace, and input shapes by name where they differ from the declared ones; inputs = { total =
-- { 17, 784 } } for inputs called as an option is. With max_batch the program shares choices,
-- addresses and bytes with those of all other batches up to it.
-- @usage local small = ws:compile(net, { max_batch = 64, x = { 17, 784 } })
function Workspace:compile(net, memory)
  local all, most = range.apart(mem_param.checked(with_defaults(self, memory, net)))
  return refusal.around_net(net, all, function()
    return attempt(self, true, {}, self._compile, self, net, all,
      most and range_for(self, net, all, most))
  end)
end

--- ws:compile_within(net, range, memory) -> program, of a net made for another batch than the
-- range's own (neap.range.new).
function Workspace:compile_within(net, batches, memory)
  return attempt(self, true, {}, self._compile, self, net,
    mem_param.checked(with_defaults(self, memory, net)), batches)
end

local function shape_key(feeds)
  local parts = {}
  for i, name in ipairs(options.keys(feeds)) do
    parts[i] = name .. "(" .. table.concat(feeds[name].shape, ",") .. ")"
  end
  return table.concat(parts, " ")
end

--- Names of what a run of the net gives out: outputs and what is kept.
local function results_of(net)
  local names = {}
  for _, row in ipairs(net:_blobs()) do
    if row.keep or row.role == "output" then names[#names + 1] = row.name end
  end
  return names
end

--- What ws:run keeps of a net as it is now: its programs, and the names of its results, so that no
-- run walks the net. Both are of one version of it.
local function fresh_table(self, net)
  local state = state_of(self)
  local entry = state.programs[net]
  local version = net:_version()
  if entry == nil or entry.version ~= version or entry.n_keep ~= #state.keeps then
    if entry then
      for _, program in pairs(entry.by_key) do program:close() end
    end
    entry = {
      version = version,
      n_keep = #state.keeps,
      by_key = {},
      n = 0,
      results = results_of(net),
    }
    state.programs[net] = entry
  end
  return entry
end

--- By which a net's program is known among the others. A dynamic one takes any shapes.
local function key_of(self, feeds, given)
  local key = state_of(self).defaults.executor == "dynamic" and "" or shape_key(feeds)
  return given and key .. " " .. range.text_of(given) or key
end

--- The blobs of a program that was made by a call that failed are gone, and it with them.
local function forget_program(self, net, key)
  local entry = state_of(self).programs[net]
  local program = entry and entry.by_key[key]
  if not program then return end
  program:close()
  entry.by_key[key], entry.n = nil, entry.n - 1
end

--- The program of a net for given feeds, compiled at the first use, and anew when a blob of it has
-- been removed.
local function program_for(self, net, feeds, given, key)
  local entry = fresh_table(self, net)
  local program = entry.by_key[key]
  if program and not program:_lacks_blob() then return program end
  forget_program(self, net, key)
  if entry.n >= most_programs then
    for _, old in pairs(entry.by_key) do old:close() end
    entry.by_key, entry.n = {}, 0
  end
  local memory, inputs = {}, {} -- by themselves: an input may be called like an option
  for name, value in pairs(given or {}) do memory[name] = value end
  for name, shape in pairs(memory.inputs or {}) do inputs[name] = shape end
  for name, t in pairs(feeds) do
    local row = net:_blob(name)
    if row and row.role == "input" then inputs[name] = t.shape end
  end
  memory.inputs = inputs
  program = self:compile(net, memory)
  entry.by_key[key], entry.n = program, entry.n + 1
  return program
end

local function full_name(x) return type(x) == "table" and x.name or x end

--- The bank that is meant: a neap.bank, "main", or the name of one of the workspace's own.
local function bank_of(self, given)
  if type(given) == "table" then return given end
  if given == "main" then return { name = "main" } end
  local own = state_of(self).defaults.banks or {}
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

local init = Workspace.init

--- ws:init(net) -> ws: makes what the net declares and does not find, and fills it.
function Workspace:init(net) return attempt(self, true, {}, init, self, net) end

--- How much a dtype can say. A tensor is converted to a dtype that says no less, or rounded to a
-- float; values of one that says more (fractions to an integer, numbers to a bool) would become
-- others, silently. Integers of one rank don't hold each other.
local rank = {
  bool = 0, i8 = 1, u8 = 1, i16 = 2, u16 = 2, i32 = 3, i64 = 4, f16 = 5, bf16 = 5, f32 = 5, f64 = 5,
}

--- The tensor as the net declares the blob.
local function as_declared(net, name, t)
  local row = net:_blob(name)
  if not row or not row.dtype or row.dtype == t.dtype then return t end
  local from, to = rank[t.dtype], rank[row.dtype]
  if from > to or (from == to and to < rank.f32) then
    error(core.error {
      code = "dtype",
      message = ("ws:run: \"%s\" is %s, got a tensor of %s, whose values would change"):format(
        name, row.dtype, t.dtype),
      blob = name,
      expected = row.dtype,
      got = t.dtype,
      hint = ("x:to \"%s\" converts it, neap.tensor(values, \"%s\") makes it so"):format(
        row.dtype, row.dtype),
    })
  end
  return t:to(row.dtype)
end

--- Raises for a feed of a name that the net does not know: the run would go on with what the blob
-- that is meant held before.
local function check_feed(net, name)
  if type(name) ~= "string" then
    fail(("ws:run: feeds are { name = tensor }, got the key %s"):format(tostring(name)))
  end
  if net:_blob(name) or net:_has_local(name) or has_blob(net, name) then return end
  local inputs, names = {}, {}
  for _, row in ipairs(net:_blobs()) do
    names[#names + 1] = row.name
    if row.role == "input" then inputs[#inputs + 1] = row.name end
  end
  local near = options.nearest(name, inputs) or options.nearest(name, names)
  error(core.error {
    code = "name",
    message = ("ws:run: net \"%s\" has no blob \"%s\""):format(net:name(), name),
    blob = name,
    expected = #inputs > 0 and "one of its inputs: " .. table.concat(inputs, ", ") or nil,
    got = name,
    hint = near and ("did you mean \"%s\"?"):format(near)
      or (#inputs > 0 and "its inputs are " .. table.concat(inputs, ", ") .. "; " or "")
        .. "ws:feed(name, tensor) makes a blob that the net does not know",
  })
end

local function run_with(self, net, tensors, memory, key)
  init(self, net)
  for name, t in pairs(tensors) do self:feed(name, t) end
  program_for(self, net, tensors, memory, key):run()
  local results = {}
  for _, name in ipairs(net:_output_names()) do results[name] = self:fetch(name) end
  return results
end

--- ws:run(net|name [, {x = tensor} [, memory]]) -> {output = tensor}: copies of the net's outputs.
-- `memory` as of ws:compile.
--
-- Feeds are of blobs that the net knows; another name is an error. Numbers and tables become the
-- blob's dtype; so do tensors whose values it can say: integers and bools become floats (rounded
-- where there are too few bits), floats other floats, integers wider ones. Fractions for an integer
-- blob, and numbers for a bool one, are an error.
function Workspace:run(net, feeds, memory)
  if type(net) == "string" then net = self:net(net) end
  if not op.is_net(net) then
    fail("ws:run expects (net or its name, { x = tensor }), got a " .. type(net))
  end
  if feeds ~= nil and (type(feeds) ~= "table" or op.is_blob(feeds)) then
    fail("ws:run expects feeds as { x = tensor }, got a " .. type(feeds))
  end
  local tensors, fed = {}, {}
  for name, value in pairs(feeds or {}) do
    name = full_name(name)
    check_feed(net, name)
    if not op.is_tensor(value) then
      local row = net:_blob(name)
      value = core.tensor(value, row and row.dtype)
    end
    tensors[name], fed[#fed + 1] = as_declared(net, name, value), name
  end
  local key = key_of(self, tensors, memory)
  local entry, done = fresh_table(self, net), false
  local is_new = entry.by_key[key] == nil
  local _ <close> = setmetatable({}, { __close = function()
    if is_new and not done then forget_program(self, net, key) end
  end })
  -- Results that were there are put back with the inputs: the two belong together. What lasts from
  -- run to run is put back by the run.
  for _, name in ipairs(entry.results) do
    if not tensors[name] then fed[#fed + 1] = name end
  end
  local results = attempt(self, is_new, fed, run_with, self, net, tensors, memory, key)
  done = true
  return results
end

--- ws:keep(name, ..): the blob gets bytes of its own in every program made from now on; ws:run's
-- programs are made anew.
function Workspace:keep(...)
  local keeps, names = state_of(self).keeps, { ... }
  for i = 1, select("#", ...) do
    names[i] = full_name(names[i])
    if type(names[i]) ~= "string" then
      fail("ws:keep expects names or blobs, got a " .. type(names[i]))
    end
  end
  table.move(names, 1, #names, #keeps + 1, keeps)
  return self
end

--- ws:child{forward = {..}} -> a workspace whose names fall through to this one, or only the
-- forwarded ones. Limits are its own: it has those that it is given. The children that ws:run_steps
-- makes share what their parent's limits leave.
function Workspace:child(given)
  if given ~= nil and type(given) ~= "table" then
    fail("ws:child expects options, { forward = { .. } }, got a " .. type(given))
  end
  local o = {}
  for key, value in pairs(given or {}) do o[key] = value end
  o.parent = self
  return workspace.new(o)
end

-- ---- nets by name -------------------------------------------------------------------------------

-- The workspace's own table, which C sees too, says what there is. A state's `handles` only keep
-- alive what Lua knows of the nets stored there, such as programs made of them.

local function find_net(ws, name)
  local net, owner = ws:_net(name)
  state_of(owner or ws).handles[name] = net
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
  state_of(self).handles[name] = net
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
  local net = find_net(self, name)
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
  state_of(self).handles[name] = nil
  return self:_delete_net(name)
end

--- ws:run_once(net [, memory]) -> ws: compiles, runs once, and keeps no program.
function Workspace:run_once(net, memory)
  if type(net) == "string" then net = self:net(net) end
  core.run_once(self, net, alone(self, memory, net))
  return self
end

--- ws:run_op(type, inputs, outputs [, attrs]) -> ws: one op on named blobs. Inputs are blobs that
-- are there, `false` for an optional one that isn't; outputs are made or written, all together when
-- the op has run, and may be inputs. Nothing is planned and nothing remembered; ops that work in a
-- net only (If, Free ..) are refused. When it fails, all blobs are as before.
-- @usage ws:run_op("Sgd", { "w", "dw", "lr" }, "w")
function Workspace:run_op(type_name, inputs, outputs, attrs)
  if type(type_name) ~= "string" then
    fail("ws:run_op expects (type, inputs, outputs, attrs), got a " .. type(type_name))
  end
  core.run_op(self, type_name, inputs, outputs, attrs)
  return self
end

-- ---- step trees ---------------------------------------------------------------------------------

local step_options = record.declare("ws:run_steps", { call = "({}, memory)",
  items = "nets, their names, or steps",
  doc = [[Runs nets in an order. A step's list holds nets or steps within it, not both; its options
    say how often it runs, what beside what. What is wrong with a tree of steps is said before
    anything runs; later the first failure stops the rest: the run of the net that failed has not
    been, those before it have, as if the tree had ended there. Gives the workspace, and a warning
    where the tree is empty.]],
  { "name", "name", unset = "that of its first net", doc = "of the step, in messages" },
  { "iterations", "integer", min = 1, unset = "1",
    doc = "how often it runs; a step that is not to run is left out" },
  { "stop", "name", unset = "none",
    doc = "blob, one bool that exists: the step is repeated until it is true" },
  { "concurrent", "boolean", false, doc = [[whether the steps within it run side by side, each on a
      thread and in a child workspace of its own; results land here; steps that would write what
      another one reads or writes are refused]] },
  { "instances", "integer", min = 1, max = 2147483647, unset = "1",
    doc = "how many of the step run side by side" },
  { "create_workspace", "boolean", false,
    doc = "whether it runs in a child workspace that ends with each execution" },
  { "report", "any", unset = "none", says = "a net or its name",
    doc = "net that runs between iterations, and at the end" },
  { "report_every_ms", "integer", 0, min = 0, doc = "how often the report runs" },
  { "run_every_ms", "integer", 0, min = 0, doc = "how often an iteration begins" },
  { "nets", "table", unset = "none", says = "a list of nets",
    doc = "of the first step: nets that steps name" },
  example = 'ws:run_steps { { "load", "train", iterations = 10 }, { "test" } }' })

--- The net that a tree means by a handle or a name, nil for a name that nobody knows. `found` is
-- {first = net, by_name = {}} of the tree so far.
local function net_of(ws, found, item)
  local name = type(item) == "string" and item or item:name()
  local known = found.by_name[name]
  local net = item
  if type(item) == "string" then net = known or find_net(ws, name) end
  if known and known ~= net then
    error(core.error {
      code = "name",
      message = ("run_steps: two nets are named \"%s\""):format(name),
    })
  end
  found.first, found.by_name[name] = found.first or net, net
  return net, name
end

--- A step as C takes it: `nets` names, `given` the nets of those names or false, `steps` steps.
local function plain_step(ws, given, found)
  local fields, step = {}, { nets = {}, given = {}, steps = {} }
  for key, value in pairs(given) do
    if math.type(key) ~= "integer" then fields[key] = value end
  end
  for key, value in pairs(step_options:read(fields)) do
    if key ~= "nets" then step[key] = value end
  end
  for _, item in ipairs(given) do
    if type(item) == "table" then
      step.steps[#step.steps + 1] = plain_step(ws, item, found)
    elseif type(item) == "string" or type(item) == "userdata" then
      local net, name = net_of(ws, found, item)
      step.nets[#step.nets + 1], step.given[#step.given + 1] = name, net or false
    else
      fail(("ws:run_steps: a step holds nets, their names, or steps, got a %s"):format(type(item)))
    end
  end
  if step.report then step.given_report, step.report = net_of(ws, found, step.report) end
  return step
end

--- ws:run_steps({ .. } [, memory]) -> ws, or ws and a warning when the tree is empty: see the
-- record.
function Workspace:run_steps(tree, memory)
  if type(tree) ~= "table" then
    fail("ws:run_steps expects a step, { \"net\", iterations = 10 }, got a " .. type(tree))
  end
  local found = { by_name = {} }
  local nets = type(tree.nets) == "table" and tree.nets or {}
  for _, net in ipairs(nets) do net_of(self, found, net) end
  local step = plain_step(self, tree, found)
  local is_empty = core.run_steps(self, step, found.first, alone(self, memory))
  if is_empty then return self, "run_steps: the tree is empty, nothing was run" end
  return self
end

-- ---- scopes -------------------------------------------------------------------------------------

local Scope = core.Scope

--- What Lua keeps of a scope: its frames' handles, so that their programs live as long as the scope
-- does.
local scope_frames = setmetatable({}, { __mode = "k" })

local function adopt(scope, parent, frame)
  if frame == nil then return nil end
  local frames = scope_frames[scope] or {}
  scope_frames[scope], frames[frame] = frames, true
  local state, above = state_of(frame), state_of(parent)
  state.parent, state.defaults = parent, above.defaults
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

-- ---- reports ------------------------------------------------------------------------------------

--- Rows of all names with their shapes as text, sorted for a table or in the order of look-up, and
-- the bytes of the own ones.
local function blob_rows(ws, sorted)
  local rows, total = ws:_blobs(sorted), 0
  for _, row in ipairs(rows) do
    if not row.borrowed then total = total + row.counted_bytes end
    row.shape = row.shape and "(" .. table.concat(row.shape, ",") .. ")"
  end
  return rows, total
end

--- ws:picture([path]) -> Report: every blob by name with its region, bytes and life in the program
-- made or run last; with a path ending in .svg, that program's plan as a picture (plan:svg): true,
-- or nil, message, code.
-- @usage ws:run(net, { x = x }); print(ws:picture()); ws:picture "memory.svg"
function Workspace:picture(path)
  if path then return core.write_text(path, self:_svg()) end
  local rows, bytes = blob_rows(self, true)
  return report.new {
    rows = rows,
    columns = { "name", "region", "shape", "bytes", "steps", "bar" },
    totals = { bytes = bytes },
    order = { "bytes" },
  }
end

--- ws:blobs() -> Report of all names.
function Workspace:blobs()
  local rows, bytes = blob_rows(self, false)
  return report.of("blob", { rows = rows, totals = { bytes = bytes } })
end

--- ws:sizes() -> Report: what the workspace itself holds, the largest first: name, shape, bytes,
-- percent, and the total. Bytes that several names share are counted once, for the first; the arena
-- of the programs is one row.
function Workspace:sizes()
  local all, own = blob_rows(self, false)
  local rows, total = {}, own + self:arena_bytes()
  for _, row in ipairs(all) do
    if not row.borrowed and row.kind ~= "transient" then
      rows[#rows + 1] = {
        name = row.name,
        shape = row.shape or row.kind,
        bytes = row.counted_bytes,
      }
    end
  end
  if self:arena_bytes() > 0 then
    rows[#rows + 1] = { name = "(arena)", shape = "arena", bytes = self:arena_bytes() }
  end
  table.sort(rows, function(a, b)
    if a.bytes ~= b.bytes then return a.bytes > b.bytes end
    return a.name < b.name
  end)
  for _, row in ipairs(rows) do row.percent = total > 0 and 100 * row.bytes / total or 0 end
  rows[#rows + 1] = {
    name = "total",
    shape = "",
    bytes = total,
    percent = total > 0 and 100.0 or 0,
  }
  return report.new {
    rows = rows,
    columns = { "name", "shape", "bytes", "percent" },
    totals = { bytes = total },
  }
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

-- ---- profiles -----------------------------------------------------------------------------------

local profile_options = record.declare("program:profile", {
  doc = [[Runs a program, compiled with { profile = true }, and gives its run: plan, ops() by time,
    table { sort =, limit = }, median_ns.]],
  { "steps", "integer", 10, min = 1, doc = "how often it runs" },
  example = "program:profile { steps = 3 }" })

--- program:profile{ .. } -> run: see the record.
function Program:profile(given)
  local o = profile_options:read(given)
  if self:times() == nil then
    fail("program:profile needs a program compiled with { profile = true }")
  end
  self:run(o.steps)
  return require("neap.plan").run(self)
end

return workspace
