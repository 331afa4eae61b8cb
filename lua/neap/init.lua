--- Neap: nets in Lua whose memory is planned before they run.
--
--   local neap = require "neap"
--   local x = neap.rand(2, 3)
--   print(x:softmax { axis = -1 })
--
-- Modules that need much (nn, data, trainer) are loaded when they are first used.
-- @module neap
local core = require "neap.core"

local op = require "neap.op"
local tensor = require "neap.tensor"
local net = require "neap.net"
require "neap.net.control"
local scopes = require "neap.net.scope"
local workspace = require "neap.workspace"
local report = require "neap.report"
require "neap.plan"
require "neap.tensor.picture"
local db = require "neap.db"
local guard = require "neap.inner.guard"
local missing = require "neap.inner.missing"
local options = require "neap.inner.options"
local record = require "neap.inner.record"

core.net, core.workspace, core.rand, core.randn = net.new, workspace.new, tensor.rand, tensor.randn

local neap = { version = core.version, _op_functions = op.functions }

for _, name in ipairs {
  "tensor", "zeros", "ones", "full", "empty", "like", "arange", "linspace", "eye", "load", "save",
  "db_path", "threads", "clock",
} do
  neap[name] = core[name]
end
neap.rand, neap.randn = tensor.rand, tensor.randn
neap.net, neap.net_from, neap.scope, neap.workspace = net.new, net.read, net.scope, workspace.new
neap.variable_scope = scopes.variable_scope
neap.workspaces, neap.for_each_workspace = workspace.all, workspace.for_each
neap.current_workspace, neap.switch_workspace, neap.reset_workspace = workspace.current,
  workspace.switch, workspace.reset
neap.workspace_names = workspace.names
neap.db, neap.runs = db.open, db.runs
neap.machine = require("neap.machine").peaks
--- neap.range(net, memory [, batch]) -> a range of batches; the net is the largest one's, or
-- `batch` says how large that is.
function neap.range(largest, memory, batch)
  if (debug.getmetatable(largest) or {}).__name ~= "neap.net" then
    core.fail(("neap.range expects (net, memory, batch), got a %s for the net"):format(
        type(largest)))
  end
  memory = require("neap.memory.mem_param").checked(memory)
  if batch then return require("neap.memory.range").new(largest, memory, batch) end
  return core.new_range(largest, memory)
end
neap.bank = require("neap.memory.bank").new
neap.mem_param = require("neap.memory.mem_param").new -- Caffe's words for memory options
neap.clock = core.clock -- seconds from some start, monotonic

--- Every op in lower case; the tensor makers above keep their names.
op.surface(neap)
neap.matmul = core.Tensor.matmul

--- neap.seed(n): what eager random ops draw by from now on, and parameters of models without a
-- seed of their own. These are drawn when they are first needed, by a run, a save or a look at
-- their data, not when a layer is made.
function neap.seed(n) core.seed(n) end

--- $NEAP_SEED, or nil: eager ops and workspaces without a seed of their own start from it.
local env_seed = math.tointeger(tonumber(os.getenv "NEAP_SEED" or ""))
if env_seed then core.seed(env_seed) end

--- What the environment asks for in vain is said once, when Neap is loaded.
do
  local complaints = { core.threads_complaint() }
  local function complain(name, wrong, what)
    local value = os.getenv(name)
    if value and value ~= "" and wrong(value) then
      complaints[#complaints + 1] = ("%s = %s %s: it is ignored"):format(
        name, value:sub(1, 60):gsub("%c", "?"), what)
    end
  end
  complain("NEAP_SEED", function() return not env_seed end, "is no integer")
  complain("NEAP_PLAN", function(value)
    return value ~= "off" and value ~= "on"
  end, "is neither off nor on")
  complain("NEAP_CACHE", function(value)
    return value ~= "off" and value ~= "all" and value ~= "dear"
  end, "is none of dear, all and off")
  for _, text in ipairs(complaints) do io.stderr:write("neap: ", text, "\n") end
end

--- neap.bytes(n) -> "41.2 MiB"; neap.bytes "8MiB" -> 8388608
function neap.bytes(x)
  if type(x) == "string" then return core.parse_bytes(x) end
  return core.bytes_text(x)
end

--- neap.memory() -> Report {available, held, high, mapped, pool, pool_used, resident,
-- resident_peak, lua, n_live, n_alloc, n_planned, n_built}: bytes now. held and high are of Neap's
-- counted allocator, tensors' bytes; pool is the part of held that pools have reserved (eager
-- results and programs of policy "pool"), pool_used what is taken of it now; mapped is of files
-- (neap.load, ws:load with map =), which the system reads when they are touched and drops when it
-- needs memory; resident is the whole process; available is what the process can still take of this
-- machine, by the kernel, control groups and ulimit. n_planned counts the nets planned so far,
-- refused ones too; plans that the database knew are not planned. n_built counts the nets made into
-- graphs: one for every plan, those that the database knew too.
function neap.memory()
  local s = core.memory()
  local rows = {
    { what = "tensors, segments and arenas", bytes = s.held, high = s.high },
    { what = "of these, reserved by pools", bytes = s.pool },
    { what = "files mapped, not of these", bytes = s.mapped },
    { what = "nets, plans and names", bytes = s.held_meta, high = s.high_meta },
    { what = "Lua", bytes = s.lua },
    { what = "resident, the whole process", bytes = s.resident, high = s.resident_peak },
    { what = "free for this process on this machine", bytes = s.available },
  }
  return report.new {
    rows = rows,
    columns = { "what", "bytes", "high" },
    order = { "n_live", "n_alloc", "n_planned", "n_built" },
    totals = {
      available = s.available, held = s.held, held_meta = s.held_meta, high = s.high,
      mapped = s.mapped, pool = s.pool, pool_used = s.pool_used, resident = s.resident,
      resident_peak = s.resident_peak, lua = s.lua, n_live = s.n_live, n_alloc = s.n_alloc,
      n_planned = s.n_planned, n_built = s.n_built,
    },
  }
end

--- neap.reset_peak(): the high-water marks start again from what is held now.
neap.reset_peak = core.reset_peak

--- neap.config() -> Report of what this build is and what the environment says.
function neap.config()
  local rows = {
    { name = "version", value = core.version },
    { name = "kernels", value = core.kernels },
    { name = "instructions", value = core.instruction_set },
    { name = "threads", value = core.threads() },
    { name = "database", value = core.db_path() or "off" },
  }
  for _, name in ipairs {
    "NEAP_DB", "NEAP_DATA", "NEAP_NUM_THREADS", "NEAP_ENGINE", "NEAP_PLAN", "NEAP_CACHE",
    "NEAP_POISON", "NEAP_DEBUG", "NEAP_PROFILE", "NEAP_SEED", "NEAP_LUA", "NO_COLOR",
  } do
    local value = os.getenv(name)
    if value then rows[#rows + 1] = { name = name, value = value } end
  end
  local totals = {}
  for _, row in ipairs(rows) do totals[row.name] = row.value end
  return report.new { rows = rows, columns = { "name", "value" }, totals = totals, order = {} }
end

--- neap.engines() -> Report of those who compute: name, doc, version of its library, and why it is
-- missing where it can't be had. The memory option `engine`, and NEAP_ENGINE, ask for one by name.
function neap.engines()
  local rows = {}
  for i, row in ipairs(core.engines) do
    rows[i] = { name = row.name, doc = row.doc, version = row.version, missing = row.missing }
  end
  return report.new {
    rows = rows,
    columns = { "name", "version", "missing", "doc" },
    totals = {},
    order = {},
  }
end

--- neap.ops([all]) -> Report of the ops; with `all` those of the backward passes too.
function neap.ops(all)
  local rows = {}
  for _, name in ipairs(op.names()) do
    local r = op.records[name]
    if all or not r.internal then
      rows[#rows + 1] = {
        name = name,
        method = not r.internal and not r.control and op.snake(name) or nil,
        summary = r.summary,
        engines = r.made_of and "of ops" or table.concat(r.engines, " "),
      }
    end
  end
  return report.new { rows = rows, columns = { "name", "method", "engines", "summary" } }
end

--- Names of what a module of Neap's holds, in order.
local function names_in(t)
  local names = {}
  for name in next, t do
    if type(name) == "string" and name:sub(1, 1) ~= "_" then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

--- "neap.init" for the module that users have there; nil for one that they reach in no such way.
local function public_name(x)
  for key, value in next, neap do
    if rawequal(value, x) then return "neap." .. key end
  end
end

--- The text on a class of layers, on a module such as neap.nn, or on a model; nil for other tables.
local function help_on_table(x)
  local help = require "neap.help"
  local class, on_record = rawget(x, "_class_name"), help.by_record(x)
  if class then return on_record or help.by_class(class) end

  -- From what it can be told by for certain to what it may be: a class, neap itself, a module, an
  -- initialiser, a model.
  if rawequal(x, neap) then return help.by_module("neap", names_in(x)) end
  for name, loaded in pairs(package.loaded) do
    if rawequal(loaded, x) and name:find "^neap%." then
      return help.by_module(public_name(x) or name, names_in(x), name)
    end
  end
  for name, value in next, neap.init do
    if rawequal(value, x) then return help.by_name("init." .. name) end
  end
  local meta = getmetatable(x)
  if type(meta) ~= "table" then return nil end
  if rawget(x, "_is_module") then
    local seen = {}
    for _, name in ipairs(meta.__names(x)) do
      if name:sub(1, 1) ~= "_" then seen[name] = true end
    end
    local names = options.keys(seen)
    local text = on_record or help.by_class(tostring(rawget(x, "_class")))
    return text .. "\nmodel: m(x) runs it; m:" .. table.concat(names, " m:")
      .. "; help \"m:plan\" shows one."
  end
  local of_class = on_record and help.by_class_of(x)
  return on_record and on_record .. (of_class and "\n\n" .. of_class or "")
end

--- The record of the op that a name means: "Softmax", "softmax", "net:Softmax", "tensor:softmax",
-- "neap.softmax"; nil for others.
local function op_named(x)
  local class, name = x:match "^(%l+)[:.]([%w_]+)$"
  local takes = { net = true, tensor = true, blob = true, neap = true, op = true }
  if name and takes[class] then
    x = name
  end
  if op.records[x] then return op.records[x] end
  for _, record in pairs(op.records) do
    if not record.internal and op.snake(record.name) == x then return record end
  end
end

-- Parts that are loaded when first used: {module, field or nil}.
local lazy = {
  nn = { "neap.nn" },
  optim = { "neap.optim" },
  data = { "neap.data" },
  trainer = { "neap.train" },
  init = { "neap.nn.initializers" },
  progress = { "neap.progress", "show" },
  fit_batch = { "neap.memory.fit_batch" },
  cache = { "neap.nn.chain", "cache" },
  count_memory = { "neap.memory.count", "count" },
  zoo = { "neap.zoo" },
  generator = { "neap.generate", "new" },
  bpe = { "neap.generate.bpe", "new" },
  check = { "neap.check" },
  trace = { "neap.transform", "trace" },
  compile = { "neap.transform", "compile" },
  grad = { "neap.transform", "grad" },
  value_and_grad = { "neap.transform", "value_and_grad" },
  vjp = { "neap.transform", "vjp" },
  jvp = { "neap.transform", "jvp" },
  hessian = { "neap.transform", "hessian" },
  op = { "neap.ops.define", "op" },
  load_ops = { "neap.ops.define", "load_ops" },
  memonger = { "neap.memonger" },
  quantize = { "neap.quantize", "quantize" },
  prune = { "neap.prune", "prune" },
  sparsity = { "neap.prune", "sparsity" },
  sparse = { "neap.prune", "sparse" },
  export = { "neap.model", "export" },
  import = { "neap.model", "import" },
}

--- What neap has under a name, loaded when it must be; nil where there is nothing.
local function part_of(key)
  local known, part = rawget(neap, key), lazy[key]
  if known ~= nil or part == nil then return known end

  -- A part that this build lacks is nil; an error within it is the part's own.
  local ok, value = pcall(require, part[1])
  if not ok then
    if tostring(value):find("module '" .. part[1] .. "' not found", 1, true) then return nil end
    error(value, 0)
  end
  if part[2] then value = value[part[2]] end
  -- Functions are guarded as those of neap are, since they become part of it.
  if type(value) == "function" then value = guard.functions({ [key] = value }, "neap.")[key] end
  rawset(neap, key, value)
  return value
end

--- What "init.normal" or "neap.init.normal" is; nil for what neap does not have.
local function thing_named(x)
  local at
  for part in x:gsub("^neap%.", ""):gmatch "[^.]+" do
    if at == nil then at = part_of(part) else at = type(at) == "table" and at[part] or nil end
    if at == nil then return nil end
  end
  if type(at) == "table" or type(at) == "function" then return at end
end

-- What people call what has another name here.
local words = { layer = "nn", layers = "nn", loss = "nn", losses = "nn", optimizer = "optim",
  optimizers = "optim", schedule = "optim", dataset = "set", database = "db" }

--- Help by name.
local function help_on_name(x)
  x = words[x] or x
  if x == "neap" then return neap.help(neap) end

  -- An op's own name means the op; a word that a topic or a function has as well means those.
  local own, record = require("neap.help").by_name(x), op_named(x)
  if record and (op.records[x] or not own) then
    return report.new { text = op.help(record), totals = record, order = {} }
  end
  if own then return report.new { text = own } end
  local class, found = rawget(neap.nn, (x:gsub("^neap%.", ""):gsub("^nn%.", ""))), thing_named(x)
  if type(class) == "table" or found then
    return neap.help(type(class) == "table" and class or found)
  end
  local names = options.append(op.names(), require("neap.help").names())
  local near = options.nearest(x, names) or op.suggest(x)
  error(core.error {
    code = "name",
    message = ("there is no help on \"%s\""):format(x),
    hint = near and ("did you mean \"%s\"?"):format(near),
  })
end

-- What help() says: each line that stands alone is one to type.
local first_minutes = [[
The first five minutes. Type these lines, in their order:

  x = neap.rand(2, 3)                        -- a tensor, f32
  (x * 2 + 1):softmax { axis = -1 }          -- ops are methods, and functions of neap
  m = neap.nn.Sequential { neap.nn.Linear(3, 8), neap.nn.ReLU(), neap.nn.Linear(8, 4) }
  m(x)                                       -- a model runs on tensors
  p = m:plan { batch = 64, train = true }    -- and is planned before it runs: where each byte goes
  p:peak()                                   -- what is alive when most is
  set = neap.data.tensors { x = neap.rand(512, 3), y = neap.rand(512, 4), batch = 64 }
  o = neap.optim.Adam { lr = 0.01 }
  t = neap.trainer { model = m, loss = neap.nn.MseLoss(), optimizer = o }
  t:fit(set, { epochs = 3, verbose = 0 })    -- each step is one program, in the plan's bytes
  net = neap.net "f"                         -- or write a net op by op, over named blobs
  y = net:FC({ net:input("a", { 2, 3 }), net:param("w", { 5, 3 }) }, "y")
  neap.workspace():run(net, { a = x }).y

Then:  help "Conv2d"   help(t)   help "t:fit"   what a name or a value can do
       neap.ops()   help "nn"   help "data"     what there is
       neap.zoo.names()                         nets to begin with; neap plan resnet50:32 --train
       help "options"                           how plans are made: budgets, recompute, layouts]]

--- neap.help(x) -> Report: an op ("Softmax" or "softmax"), a function, a layer, a module such as
-- neap.nn, any of these by name ("Linear", "data.from", "ws:run"), or what a value can do.
-- @usage print(neap.help(neap.nn.Linear))   print(neap.help "ws:run")
function neap.help(x)
  if type(x) == "string" then return help_on_name(x) end
  if type(x) == "function" then
    for name, f in pairs(op.functions) do
      if f == x then
        for record_name in pairs(op.records) do
          if op.snake(record_name) == name then return neap.help(record_name) end
        end
      end
    end
    local known = require("neap.help").by_function(x)
    if known then return report.new { text = known } end
  end
  local on_table = type(x) == "table" and help_on_table(x)
  if on_table then return report.new { text = on_table } end
  return report.new { text = require("neap.help").by_class_of(x) or first_minutes }
end

local with_options = record.declare("neap.with", { call = "({}, f, ..)",
  doc = "Calls f with settings for the while, and gives its results.",
  { "seed", "integer", unset = "as it is",
    doc = "what random ops draw by; afterwards they go on as if it had not been" },
  { "threads", "integer", min = 1, unset = "as many as there are",
    doc = "threads that kernels use; given back afterwards" },
  example = "neap.with({ seed = 1, threads = 1 }, function() return neap.rand(3) end)" })

--- neap.with({ .. }, f, ...) -> f's results: see the record.
function neap.with(given, f, ...)
  if type(f) ~= "function" then
    core.fail("neap.with expects ({ seed =, threads = }, function, ..), got a " .. type(f)
      .. " for the function")
  end
  local settings, threads = with_options:read(given), core.threads()

  -- The draw position comes back, so that what is drawn afterwards is as if nothing had been drawn
  -- within.
  local seed, step = core.draw()
  local _ <close> = setmetatable({}, { __close = function()
    core.threads(threads)
    if settings.seed then core.draw(seed, step) end
  end })
  if settings.threads then core.threads(settings.threads) end
  if settings.seed then core.seed(settings.seed) end
  return (function(...) return ... end)(f(...))
end

--- neap.use_db(db | false): programs made from now on record there, or nowhere.
neap.use_db = core.use_db

guard.functions(neap, "neap.")
for class, prefix in pairs {
  Tensor = "tensor:", Net = "net:", Workspace = "ws:", Scope = "scope:", Program = "program:",
  Plan = "plan:", Db = "db:",
} do
  guard.functions(core[class], prefix)
end
for class, what in pairs {
  Tensor = "a tensor", Workspace = "a workspace", Scope = "a scope", Db = "a database",
} do
  missing.close(core[class], what)
end

-- What adds to a net adds all or nothing.
require("neap.net.naming").all_or_nothing(core.Net, {
  "AsyncIf", "Do", "If", "Loop", "Recurrent", "Scan", "While", "bank", "const", "declare",
  "device", "export_scope", "gradient", "import_scope", "input", "keep", "made_by", "op",
  "outputs", "param", "parameter_sharing", "scope", "variable_scope",
})

return setmetatable(neap, { __index = function(_, key)
  local part = part_of(key)
  if part ~= nil then return part end
  missing.fail("neap", key, missing.names(neap, lazy), "; neap.help() says what there is")
end, __names = function() -- for completion
  local names = {}
  for name in pairs(lazy) do names[#names + 1] = name end
  return names
end })
