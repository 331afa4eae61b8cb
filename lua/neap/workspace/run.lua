--- Running nets: the programs of a workspace, made for the net and the shapes of a call, and kept
-- for the next one.
-- @module neap.workspace.run
local core = require "neap.core"
local mem_param = require "neap.memory.mem_param"
local op = require "neap.op"
local options = require "neap.inner.options"
local range = require "neap.memory.range"
local record = require "neap.inner.record"
local refusal = require "neap.memory.refusal"
local state = require "neap.workspace.state"

local Workspace, Program = core.Workspace, core.Program
local attempt, fail = state.attempt, core.fail

--- Programs that one workspace keeps at most, per net: shapes come and go, and each holds kernels.
local most_programs = 8

-- ---- programs -----------------------------------------------------------------------------------

--- The range of batches for a net and options, planned at its first use; one for all programs of
-- the net.
local function range_for(ws, net, memory, most)
  -- The version is in the key: a net that has been changed since is another one.
  local ranges, key = state.of(ws).ranges, net:_version() .. " " .. range.key(net, memory, most)
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
  -- A range takes max_batch out of the options: what is left is the same for all its batches.
  local all, most = range.apart(mem_param.checked(state.with_defaults(self, memory, net)))
  return refusal.around_net(net, all, function()
    return attempt(self, true, {}, self._compile, self, net, all,
      most and range_for(self, net, all, most))
  end)
end

--- ws:compile_within(net, range, memory) -> program, of a net made for another batch than the
-- range's own (neap.range.new).
function Workspace:compile_within(net, batches, memory)
  return attempt(self, true, {}, self._compile, self, net,
    mem_param.checked(state.with_defaults(self, memory, net)), batches)
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
  local own = state.of(self)
  local entry = own.programs[net]
  local version = net:_version()

  -- Another version of the net, or another wish to keep: every program is old, and its bytes go
  -- now.
  if entry == nil or entry.version ~= version or entry.n_keep ~= #own.keeps then
    if entry then
      for _, program in pairs(entry.by_key) do program:close() end
    end
    entry = {
      version = version,
      n_keep = #own.keeps,
      by_key = {},
      n = 0,
      results = results_of(net),
    }
    own.programs[net] = entry
  end
  return entry
end

--- By which a net's program is known among the others. A dynamic one takes any shapes.
local function key_of(self, feeds, given)
  local key = state.of(self).defaults.executor == "dynamic" and "" or shape_key(feeds)
  return given and key .. " " .. range.text_of(given) or key
end

--- The blobs of a program that was made by a call that failed are gone, and it with them.
local function forget_program(self, net, key)
  local entry = state.of(self).programs[net]
  local program = entry and entry.by_key[key]
  if not program then return end
  program:close()
  entry.by_key[key], entry.n = nil, entry.n - 1
end

--- The program of a net for given feeds, compiled at the first use, and anew when a blob of it has
-- been removed.
local function program_for(self, net, feeds, given, key, within)
  local entry = fresh_table(self, net)
  local program = entry.by_key[key]

  -- A program whose blob was removed from the workspace would read bytes that are gone.
  if program and not program:_lacks_blob() then return program end
  forget_program(self, net, key)

  -- All go at once: to let the oldest go, each run would have to note its use. A script with more
  -- shapes than that has max_batch, or a dynamic executor.
  if entry.n >= most_programs then
    for _, old in pairs(entry.by_key) do old:close() end
    entry.by_key, entry.n = {}, 0
  end
  local memory, inputs = {}, {} -- by themselves: an input may be called like an option
  for name, value in pairs(given or {}) do memory[name] = value end
  for name, shape in pairs(memory.inputs or {}) do inputs[name] = shape end

  -- The shapes are those of the feeds, whatever the net declared.
  for name, t in pairs(feeds) do
    local row = net:_blob(name)
    if row and row.role == "input" then inputs[name] = t.shape end
  end
  memory.inputs = inputs
  program = within and self:compile_within(net, within, memory) or self:compile(net, memory)
  entry.by_key[key], entry.n = program, entry.n + 1
  return program
end

-- ---- runs ---------------------------------------------------------------------------------------

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
  -- Words as many bits long but of other kinds (i8 and u8, f16 and bf16 ..) are floats, which
  -- round, or integers, which would wrap.
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
  if net:_blob(name) or net:_has_local(name) or state.has_blob(net, name) then return end
  -- What was meant is most often an input: its names are tried before all others.
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

local function run_with(self, net, tensors, memory, key, within)
  -- Parameters that are missing are made first, since a feed may be one of them.
  init(self, net)
  for name, t in pairs(tensors) do self:feed(name, t) end
  program_for(self, net, tensors, memory, key, within):run()
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
--
-- `within`: the range whose plan the net follows, as of ws:compile_within; the same in all calls.
function Workspace:run(net, feeds, memory, within)
  if type(net) == "string" then net = self:net(net) end
  if not op.is_net(net) then
    fail("ws:run expects (net or its name, { x = tensor }), got a " .. type(net))
  end
  if feeds ~= nil and (type(feeds) ~= "table" or op.is_blob(feeds)) then
    fail("ws:run expects feeds as { x = tensor }, got a " .. type(feeds))
  end

  -- Everything is checked and converted before the workspace changes.
  local tensors, fed = {}, {}
  for name, value in pairs(feeds or {}) do
    name = state.name_of(name)
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

  -- A program that this call made goes when the call fails: its blobs do.
  local _ <close> = setmetatable({}, { __close = function()
    if is_new and not done then forget_program(self, net, key) end
  end })
  -- Results that were there are put back with the inputs: the two belong together. What lasts from
  -- run to run is put back by the run.
  for _, name in ipairs(entry.results) do
    if not tensors[name] then fed[#fed + 1] = name end
  end
  local results = attempt(self, is_new, fed, run_with, self, net, tensors, memory, key,
    within)
  done = true
  return results
end

--- ws:run_once(net [, memory]) -> ws: compiles, runs once, and keeps no program.
function Workspace:run_once(net, memory)
  if type(net) == "string" then net = self:net(net) end
  core.run_once(self, net, state.alone(self, memory, net))
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

-- ---- profiles -----------------------------------------------------------------------------------

local profile_options = record.declare("program:profile", {
  doc = [[Runs a program and gives its run: plan, ops() by time, table { sort =, limit = },
    median_ns; compiled with { profile = true } also trace(path), of the last calls one by one.]],
  { "steps", "integer", 10, min = 1, doc = "how often it runs" },
  example = "program:profile { steps = 3 }" })

--- program:profile{ .. } -> run: see the record.
function Program:profile(given)
  local o = profile_options:read(given)
  if self:times() == nil then
    fail("program:profile: the plans of a dynamic program change as it runs: it has no times by op")
  end
  self:run(o.steps)
  return require("neap.plan").run(self)
end
