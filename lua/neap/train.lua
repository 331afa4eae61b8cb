--- The trainer: a model, a loss and an optimizer as one program a step.
--
-- A step is one run of one program: forward, loss, backward, update. Lua runs between steps only: it feeds a batch, sets the
-- learning rate, and looks at the loss.
--
-- INVARIANT: what fit does depends on the checkpoint, the data set's seed and the trainer's seed alone, so that a resumed run
-- goes on with the same bits.
-- INVARIANT: `position` is replaced as a whole, and `pending` in it is the workspace's step count before a run that has not
-- been counted yet. An error, or Ctrl-C, between the run and the count loses nothing: `settle` finds out by that number whether
-- the step happened.
-- @module neap.train
local batches = require "neap.batch"
local core = require "neap.core"
local build = require "neap.nn.build"
local micro = require "neap.micro"
local net_module = require "neap.net"
local nn = require "neap.nn"
local fit_batch = require "neap.fit_batch"
local op = require "neap.op"
local options = require "neap.options"
local progress = require "neap.progress"
local report = require "neap.report"
local tree = require "neap.nn.tree"
local fail = core.fail
local none = options.none

local Trainer = { __name = "neap.trainer" }
Trainer.__index = Trainer

-- ---- making ------------------------------------------------------------------------------------------------------------

--- A loss given as a function of (output, target), or of several outputs and the target, is a module whose target looks like the
-- data's.
local function as_loss(loss)
  if type(loss) ~= "function" then return loss end
  return nn.module { "Loss", name = "loss", init = function(self) self.f = loss end, forward = function(self, ...) return self.f(...) end } {}
end

local trainer_spec = { model = none, loss = none, optimizer = none, metrics = none, schedule = none, memory = none, dtype = none, micro = none,
  seed = none, nan = "stop", name = none, profile = none, max_batch = none, mem_param = none, reduces = none, accumulate = none }

--- Where a run stands: steps done, epochs done, batches done of the epoch under way, and the sums of what was measured in it.
-- `first_epoch` and `first_step` are where the fit under way began; best and since belong to patience. A step is an update; `batches`
-- counts those that were trained on. The sums' weights are `rows`, and what the loss counts of them, `counted`. What is held are batches
-- since the last update: how many, their rows, and what their means count.
local function start_position()
  return { step = 0, batches = 0, epoch = 0, in_epoch = 0, rows = 0, counted = 0, sums = {}, first_epoch = 0, first_step = 0, best = math.huge, since = 0,
    held_batches = 0, held_rows = 0, held_count = 0 }
end

--- The model's workspace: another one when the model has become a part of another.
local function find_workspace(self)
  self.ws = self.model:workspace()
  return self.ws
end

--- Sizes in rows that the maker takes.
local function check_sizes(o)
  local function is_count(n) return math.type(n) == "integer" and n > 0 end
  for _, most in pairs { o.max_batch, o.memory and o.memory.max_batch } do
    if not is_count(most) then fail(("neap.trainer: max_batch expects a number of rows, got %s"):format(tostring(most))) end
  end
  if o.micro == nil or is_count(o.micro) then return end
  if o.micro ~= "fit" then fail(("neap.trainer: micro expects rows of a micro-batch, or \"fit\", got %s"):format(tostring(o.micro))) end
end

--- accumulate = batches or { batches =, examples = }: when batches are held before an update. @return {batches =, examples =}, or nil
-- where every batch is an update
local function read_accumulate(given)
  if given == nil then return nil end
  if type(given) ~= "number" and type(given) ~= "table" then
    fail(("neap.trainer: accumulate expects a number of batches, or { batches =, examples = }, got a %s"):format(type(given)))
  end
  local a = options.read("accumulate", { positions = { "batches" }, batches = none, examples = none }, type(given) == "table" and given or { given })
  for _, name in ipairs { "batches", "examples" } do
    if a[name] ~= nil and (math.type(a[name]) ~= "integer" or a[name] < 1) then
      fail(("neap.trainer: accumulate: %s expects a whole number of at least 1, got %s"):format(name, tostring(a[name])))
    end
  end
  if not (a.batches or a.examples) then fail("neap.trainer: accumulate expects a number of batches, or { batches =, examples = }") end
  return (a.batches ~= 1 and a.examples ~= 1) and { batches = a.batches, examples = a.examples } or nil
end

--- Where gradients of several runs are added, a loss says how it reduces. Metrics are means, which a loss that sums has no weights
-- for in micro-batches.
local function check_reduction(o, loss, accumulate)
  if o.reduces ~= nil then micro.reduction(loss, o.reduces) end
  if o.micro == nil and accumulate == nil then return nil end
  local reduces = micro.reduction(loss, o.reduces, o.micro == nil and "accumulate" or "micro")
  local metrics = o.metrics or {}
  if o.micro ~= nil and reduces == "sum" and (type(metrics) == "string" or next(metrics) ~= nil) then
    fail("neap.trainer: metrics under micro need a loss that is a mean; this one is a sum")
  end
  return reduces
end

--- Makes a trainer.
-- @param given table { model =, loss = nn.CrossEntropyLoss() or f(y, t), optimizer =, metrics = {"accuracy", name = f(y, t)},
--   schedule = f(step, lr) -> lr, memory = {budget =, .. as m:plan}, seed =, nan = "stop"|"skip"|"off", name =, profile = bool,
--   reduces = "mean" | "sum": what a loss of your own makes of its rows, which micro and accumulate must know (else its field `reduces`),
--   accumulate = batches to an update, or { batches =, examples = }: the update comes with the batch that reaches either, and with the
--   last one of an epoch. Gradients of a mean are weighted by what each batch counts: k batches are the step of one of their size, within
--   rounding, but for batch norm and random ops. What is held takes as many bytes as the gradients, is in checkpoints, and is untouched
--   by a batch that fails,
--   max_batch = rows of the largest batch: more are refused (else the largest is what fit, or a step, shows), mem_param = Caffe's words for memory,
--   micro = rows of a micro-batch, or "fit": as many as memory's budget or total, or else the machine, allows (gradients are accumulated; nothing is
--   recomputed then, unless memory has recompute = true: smaller micro-batches cost less) }. A loss f(y, t) gets nil for t where the data has no y.
-- @usage local t <close> = neap.trainer { model = model, optimizer = neap.optim.SGD { lr = 0.1 }, metrics = { "accuracy" } }
local function new(given)
  local o = options.read("neap.trainer", trainer_spec, given)
  if not nn.is_module(o.model) then fail("neap.trainer takes { model = a module, optimizer = .. }") end
  if getmetatable(o.optimizer) == nil or not o.optimizer.apply then
    fail("neap.trainer needs an optimizer, e.g. optimizer = neap.optim.SGD { lr = 0.01 }")
  end
  if o.nan ~= "stop" and o.nan ~= "skip" and o.nan ~= "off" then
    fail(("neap.trainer: nan is one of \"stop\", \"skip\", \"off\", not \"%s\""):format(tostring(o.nan)))
  end
  if o.loss ~= nil and type(o.loss) ~= "function" and not nn.is_module(o.loss) then
    fail("neap.trainer: loss expects a loss such as nn.CrossEntropyLoss(), or a function of (output, target)")
  end
  if o.schedule ~= nil and type(o.schedule) ~= "function" then fail("neap.trainer: schedule expects a function of (step, lr)") end
  if o.dtype ~= nil then fail("neap.trainer: \"dtype\" is reserved, and not available yet") end
  if o.memory ~= nil and type(o.memory) ~= "table" then
    fail(("neap.trainer: memory expects a table such as { budget = \"64MiB\" }, got a %s"):format(type(o.memory)))
  end
  check_sizes(o)
  local self = setmetatable({ model = o.model, loss = as_loss(o.loss) or nn.CrossEntropyLoss {}, optimizer = o.optimizer, schedule = o.schedule,
    metrics = type(o.metrics) == "string" and { o.metrics } or o.metrics or {}, nan = o.nan, name = o.name, programs = {}, ranges = {}, records = {},
    position = start_position(), memory = {}, known = {}, rate = core.tensor(0.0), -- fed again and again: a step allocates nothing
    micro = o.micro, most = { train = 0, eval = 0 } }, Trainer)
  self.needs_no_target = type(o.loss) == "function" -- it is given nil where the data has no y
  self.metric_names = build.metric_names(self.metrics)
  self.accumulate = read_accumulate(o.accumulate)
  self.reduces = check_reduction(o, self.loss, self.accumulate)
  if o.seed then o.model:seed(o.seed) end
  for key, value in pairs(o.memory or {}) do
    if key == "keep" then self.keep = type(value) == "string" and { value } or value else self.memory[key] = value end
  end
  if o.micro == "fit" and self.memory.recompute == nil then self.memory.recompute = false end
  if o.profile then self.memory.profile = true end
  if o.mem_param ~= nil then self.memory.mem_param = o.mem_param end
  self.max_batch, self.memory.max_batch = self.memory.max_batch or o.max_batch, nil
  self.most.train = self.max_batch or 0
  return self
end

--- Raises for a batch larger than the trainer was made for.
local function check_most(self, who, rows)
  if self.max_batch == nil or math.type(rows) ~= "integer" or rows <= self.max_batch then return end
  error(core.error { code = "shape", message = ("%s expects batches of at most %d rows, as max_batch says, got %d"):format(who, self.max_batch, rows),
    expected = tostring(self.max_batch), got = tostring(rows), hint = "give the trainer a larger max_batch, or a data set a smaller batch" })
end

--- Raises for a trainer that has been closed.
local function check_open(self)
  if self.is_closed then
    error(core.error { code = "released", message = "the trainer has been closed", hint = "make another one; the model keeps its parameters" })
  end
end

-- ---- steps that fail ---------------------------------------------------------------------------------------------------

--- A copy of t, with some fields changed.
local function copy(t, changes)
  local out = {}
  for key, value in pairs(t) do out[key] = value end
  for key, value in pairs(changes or {}) do out[key] = value end
  return out
end

--- What data has taught the trainer.
local learnt = { "input", "target", "batch", "micro_fit", "model_version", "position" }
local settle, close_programs

--- f(self, ...) -> its results. When it raises and no step has happened, the trainer, its model and its workspace are as they were:
-- what a bad batch looks like is forgotten, and programs made for it are closed.
-- @tparam string|nil known names what f has done before without an error, after which it learns nothing more
-- @tparam Workspace|nil ws where f changes blobs; nil: it changes none
local function attempt(self, known, ws, f, ...)
  check_open(self)
  settle(self)
  if known and self.known[known] then return f(self, ...) end
  local was, programs, ranges, most, done = {}, copy(self.programs), copy(self.ranges), copy(self.most), false
  for _, key in ipairs(learnt) do was[key] = self[key] end
  local function undo()
    for key, entry in pairs(self.programs) do
      if programs[key] ~= entry then entry.program:close() end
      programs[key] = programs[key] == entry and entry or nil
    end
    for key, range in pairs(self.ranges) do
      if ranges[key] ~= range then range.plans:close() end
      ranges[key] = ranges[key] == range and range or nil
    end
    for key in pairs(programs) do programs[key] = self.programs[key] end -- others were closed on the way
    for key in pairs(ranges) do ranges[key] = self.ranges[key] end
    self.programs, self.ranges, self.most = programs, ranges, most
    for _, key in ipairs(learnt) do self[key] = was[key] end
  end
  local fed = { "y", "lr" }
  for name in pairs(self.input or { x = true }) do fed[#fed + 1] = name end
  local mark, finish = ws and ws:_mark(true, fed), tree.mark(tree.root_of(self.model))
  local _ <close> = setmetatable({}, { __close = function()
    if not done then settle(self) end
    local keep = done or self.position.step ~= was.position.step or self.position.batches ~= was.position.batches
    if mark then ws:_end_mark(mark, keep, fed) end
    finish(keep)
    if not keep then undo() end
  end })
  return (function(...)
    done = true
    if known then self.known[known] = true end
    return ...
  end)(f(self, ...))
end

-- ---- programs ----------------------------------------------------------------------------------------------------------

--- "x f32 (3,4)" of each input.
local function look_of(inputs)
  local parts = {}
  for i, name in ipairs(options.keys(inputs)) do
    local input = inputs[name]
    parts[i] = ("%s%s (%s)"):format(name == "x" and "" or name .. " ", input.dtype, table.concat(input, ","))
  end
  return table.concat(parts, ", ")
end

local function is_field(t) return op.is_tensor(t) or type(t) == "table" and type(t.shape) == "table" end

--- What the data looks like decides the inputs' shapes and dtypes, and the label's, once.
-- @param spec {x =, y =} of tensors or of {shape =, dtype =}, as a batch has them
local function learn_spec(self, spec)
  local function example(field) return table.move(field.shape, 2, #field.shape, 1, {}) end
  local found, y = batches.apart(self.model, spec, is_field)
  local inputs = {}
  for name, field in pairs(found) do
    inputs[name] = example(field)
    inputs[name].dtype = field.dtype
  end
  batches.places(self.model, inputs)
  local known = self.input
  if known and look_of(known) ~= look_of(inputs) then
    fail(("the data's examples are %s, the trainer's so far %s"):format(look_of(inputs), look_of(known)))
  end
  local target = y and { shape = example(y), dtype = y.dtype } or nil
  if target == nil and self.needs_no_target then target = false end
  if known and (self.target == false) ~= (target == false) then
    fail(target and "the data has a y, the trainer's so far had none" or "the data has no y, the trainer's so far had one")
  end
  self.input, self.target = inputs, target
end

--- What a data set that changes its batches by `map` gives is seen at its first batch.
local function learn_set(self, set)
  if set.map == nil then
    local spec = copy(set:spec())
    spec.n, spec.batch = nil, nil
    learn_spec(self, spec)
  end
end

function close_programs(self)
  self.known = {}
  for _, entry in pairs(self.programs) do entry.program:close() end
  for _, range in pairs(self.ranges) do range.plans:close() end
  self.programs, self.ranges = {}, {}
end

--- The net of a batch of n rows, in a mode: "train" (one program a step), "micro" (gradients accumulated) or "eval".
-- @return net, blobs, the update's net of a micro net
local function net_of(self, mode, n)
  local train = mode ~= "eval"
  local net, blobs = self.model:net { batch = n, train = train, loss = self.loss, optimizer = train and self.optimizer or nil,
    input = self.input, target = self.target,
    metrics = self.metrics, keep = train and self.keep or nil, name = self.name, guard = self.nan ~= "off" }
  if mode ~= "micro" then return net, blobs end
  local part, update = net:split_micro()
  return part, blobs, update
end

--- Whether programs of several batch sizes can share addresses: not where addresses are found at run time.
local function has_addresses(memory) return memory.policy ~= "pool" and memory.executor ~= "dynamic" end

--- Memory options of the update: it is a part of training, and the blobs that mem_param excludes are the micro-batch's.
local function update_memory(self)
  local param, out = self.memory.mem_param, {}
  if param == nil then return self.memory end
  for key, value in pairs(self.memory) do out[key] = value end
  out.mem_param = { optimize_test = param.optimize_train ~= false, debug_info = param.debug_info }
  return out
end

--- Memory options of a mode's net: the total of a micro-batch counts its update too.
local function memory_of(self, update)
  if update == nil or self.memory.total == nil then return self.memory end
  local out = copy(self.memory)
  out.beside = core.micro_beside(update, update_memory(self), self.accumulate and micro.hold_nets(update) or nil)
  return out
end

--- Whether a batch is trained on by a program of its own, and the update by another.
local function is_split(self) return self.micro ~= nil or self.accumulate ~= nil end

--- The range of a mode's batches, planned for the largest known so far. A larger one that comes later makes it anew.
local function range_for(self, mode, n)
  local range = self.ranges[mode]
  if range == nil or range.batch < n then
    local most = math.max(n, self.most[mode] or 0)
    local net, _, update = net_of(self, mode, most)
    self.ranges[mode] = { batch = most, net = net, plans = require("neap").range(net, memory_of(self, update)) }
  end
  return self.ranges[mode].plans
end

--- The program for a batch of n rows, from the trainer's small table. Programs of one workspace share one arena, and those of
-- smaller batches all bytes of the largest. A change of the model (freeze, tie ..) makes them anew.
local function program_for(self, n, mode)
  if self.model_version ~= rawget(self.model, "_version") then close_programs(self) end
  local key = mode .. " " .. n
  local entry = self.programs[key]
  if entry == nil then
    local range = has_addresses(self.memory) and range_for(self, mode, n)
    local net, blobs, update = net_of(self, mode, n)
    find_workspace(self) -- layers that only this net has met bring their numbers along
    self.ws:init(net)
    local memory = memory_of(self, update)
    local program = range and self.ws:compile_within(net, range, memory) or self.ws:compile(net, memory)
    entry = { net = net, blobs = blobs, program = program, update = update }
    self.programs[key] = entry
    self.model_version = rawget(self.model, "_version") -- layers learn their widths while the first net is built
  end
  return entry
end

--- A program that follows the micro-batches, the same whatever their rows.
local function small_program(self, key, net)
  local entry = self.programs[key]
  if entry == nil then
    self.ws:init(net)
    entry = { net = net, program = self.ws:compile(net, update_memory(self)) }
    self.programs[key] = entry
  end
  return entry
end

--- The name of an accumulator of an update's net.
local function accumulator_of(net)
  for _, row in ipairs(net:_blobs()) do
    if row.role == "gradient" then return row.name end
  end
end

--- What is held of parameters that are no longer trained, or no longer there, is given up: nothing adds to it, and nothing would
-- weigh it, until they come back to another accumulation.
local function drop_held(self, hold)
  local wanted = {}
  for _, row in ipairs(hold:_blobs()) do wanted[row.name] = true end
  for _, row in ipairs(self.ws:_blobs()) do
    if row.name:sub(1, 6) == "@held/" and not wanted[row.name] then self.ws:remove(row.name) end
  end
end

--- The program that ends a step of micro-batches; where batches are held before it, `hold` and `join` are made too. Accumulators that
-- were given back (ws:drop_gradients) are there again: between two steps nothing is in them.
local function update_for(self, net)
  if self.accumulate and not (self.programs.hold and self.programs.join) then
    local hold, join = micro.hold_nets(net)
    drop_held(self, hold)
    small_program(self, "hold", hold)
    small_program(self, "join", join)
  end
  local entry = small_program(self, "update", net)
  entry.accumulator = entry.accumulator or accumulator_of(net)
  if entry.accumulator and not self.ws:has(entry.accumulator) then self.ws:init(entry.net) end
  return entry
end

--- Rows of a micro-batch for a batch of `rows`, without `micro` all of them; "fit" is settled once, by plans alone.
local function micro_rows(self, rows)
  if self.micro == "fit" then self.micro_fit = self.micro_fit or fit_batch.micro(self, math.max(rows, self.most.train), net_of) end
  local most = self.micro_fit or self.micro or math.max(rows, self.most.train)
  self.most.micro = math.min(most, math.max(rows, self.most.train)) -- the range is planned for whole micro-batches
  return math.min(rows, most)
end

--- Raises unless a batch has a target where the nets made so far have one.
local function check_target(self, batch)
  if batch.y == nil and self.target ~= false then fail("a batch has no y: the loss needs a target") end
  if batch.y ~= nil and self.target == false then fail("a batch has a y, the trainer's so far had none") end
end

local function feed(self, batch)
  check_target(self, batch)
  for name in pairs(self.input) do self.ws:feed(name, batch.inputs[name]) end
  if batch.y ~= nil then self.ws:feed("y", batch.y) end
end

local function read_metrics(self, blobs)
  local values = { loss = self.ws:view(blobs.loss.name):item() }
  for _, name in ipairs(self.metric_names) do values[name] = self.ws:view(blobs[name].name):item() end
  return values
end

--- Adds what a batch measured to sums. A loss and its metrics are means of what the loss counts, a metric of the user's own is one of
-- rows; of a batch that counts nothing there is no mean.
local function add_values(self, sums, values, rows, counted)
  for name, value in pairs(values) do
    local weight = type(self.metrics[name]) == "function" and rows or counted
    sums[name] = (sums[name] or 0) + (weight > 0 and value * weight or 0)
  end
end

--- The means of such sums. @return table by name
local function means(self, sums, rows, counted)
  local out = {}
  for name, sum in pairs(sums) do
    local weight = type(self.metrics[name]) == "function" and rows or counted
    out[name] = weight > 0 and sum / weight or 0 / 0
  end
  return out
end

-- ---- a step ------------------------------------------------------------------------------------------------------------

--- Whether the step under way has changed the parameters: the workspace's own counters tell.
local function has_happened(self, pending)
  if pending.passed then return true end
  if pending.count and pending.updates then return micro.count(self.ws) ~= pending.count end
  return self.ws:step() ~= pending.before
end

--- Counts a step that has been started, if it happened. Safe to be interrupted anywhere.
-- @return what it measured, or nil
function settle(self)
  local p = self.position
  local pending = p.pending
  if not pending then return nil end
  if not has_happened(self, pending) then
    p.pending = nil
    return nil
  end
  local values, sums, n = pending.blobs and read_metrics(self, pending.blobs) or {}, copy(p.sums), pending.no_batch and 0 or 1
  add_values(self, sums, values, pending.rows, pending.counted)
  local next_position = copy(p, { step = p.step + (pending.updates and 1 or 0), batches = p.batches + n, in_epoch = p.in_epoch + n,
    rows = p.rows + pending.rows, counted = p.counted + pending.counted, sums = sums, held_batches = pending.updates and 0 or p.held_batches + 1,
    held_rows = pending.updates and 0 or p.held_rows + pending.rows, held_count = pending.updates and 0 or p.held_count + pending.counted })
  next_position.pending = nil
  self.position = next_position
  return values
end

--- A step that was dropped because its loss is not finite passes its batch by.
local function skip(self)
  local next_position = copy(self.position, { in_epoch = self.position.in_epoch + 1 })
  next_position.pending = nil
  self.position = next_position
end

local function is_not_finite(err)
  return type(err) ~= "string" and err.op == "CheckFinite" or tostring(err):find("where a finite number is expected", 1, true) ~= nil
end

local function not_finite(self, err)
  local word = tostring(err):match "(%-?%a+) at element" or "not finite"
  return core.error { code = "numeric", message = ("the loss is %s at step %d; parameters and optimizer are as before it"):format(word, self.position.step + 1),
    op = "CheckFinite", got = word, hint = "try a smaller learning rate or optim's clip, or nan = \"skip\" to pass such batches by" }
end

--- Forward, backward and update as one program.
local function run_whole(self, batch, rows)
  local entry = program_for(self, rows, "train")
  feed(self, batch)
  self.position.pending = { before = self.ws:step(), updates = true, entry = entry, blobs = entry.blobs, rows = rows,
    counted = micro.count_of(self.loss, batch) }
  return pcall(entry.program.run, entry.program)
end

--- What follows the parts of a batch: the update, or a sum where it does not come yet.
-- @param last bool whether the epoch ends with this batch
-- @return table as of micro.run, whether it updates
local function after_batch(self, update, count, rows, last)
  local p, a = self.position, self.accumulate
  local has_held = p.held_batches > 0
  local updates = last or a == nil or p.held_batches + 1 >= (a.batches or math.huge) or p.held_rows + rows >= (a.examples or math.huge)
  if updates and not has_held then return { last = update.program }, true end
  local kept, added = micro.shares(self.reduces, has_held and p.held_count or nil, count)
  return { last = updates and update.program or self.programs.hold.program, join = updates and self.programs.join.program or nil,
    kept = kept, added = added }, updates
end

--- A batch of which a mean counts nothing has no share in an accumulation: it runs only where nothing else of it does.
local function is_passed(self, count, updates)
  return self.accumulate ~= nil and self.reduces == "mean" and count == 0 and (not updates or self.position.held_count > 0)
end

--- Ends such a batch: with the update by what is held, or with a count alone.
local function pass(self, update, after, updates, rows)
  self.position.pending = { count = micro.count(self.ws), before = self.ws:step(), updates = updates, passed = not updates, counted = 0, entry = update,
    rows = rows }
  if not updates then return true end
  return pcall(core.run_micro, self.ws, {}, {}, after.last, after.join, 1, 0)
end

--- The same as micro-batches and an update. Values are weighted as the gradients are.
local function run_micro(self, batch, rows, last)
  local size = micro_rows(self, rows)
  local first = program_for(self, size, "micro")
  local update = update_for(self, first.update)
  check_target(self, batch)
  local parts = micro.parts(self.loss, self.reduces, batch, size, function(n) return program_for(self, n, "micro").program end)
  local count = micro.count_of(self.loss, batch)
  local after, updates = after_batch(self, update, count, rows, last)
  if is_passed(self, count, updates) then return pass(self, update, after, updates, rows) end
  self.position.pending = { count = micro.count(self.ws), before = self.ws:step(), updates = updates, counted = count, entry = update, blobs = first.blobs,
    rows = rows }
  return pcall(micro.run, self.ws, batch, parts, after)
end

--- Raises unless a batch has the inputs that the nets made so far have.
local function check_inputs(self, batch)
  for name in pairs(self.input) do
    if batch.inputs[name] == nil then fail(("a batch has no %s, the trainer's so far had one"):format(name)) end
  end
  for name in pairs(batch.inputs) do
    if self.input[name] == nil then fail(("a batch has %s, the trainer's so far had none: nothing reads it"):format(name)) end
  end
end

local function feed_rate(self)
  local lr = self.optimizer.lr
  if self.schedule then lr = self.schedule(self.position.step + 1, lr) end
  self.rate:set(lr)
  self.ws:feed("lr", self.rate)
  return lr
end

local function as_spec(batch) return copy(batch.inputs, { y = batch.y }) end

local function step(self, batch, last)
  local is_new = self.model_version ~= rawget(self.model, "_version") -- another head may have other targets
  if not self.input or is_new then learn_spec(self, as_spec(batch)) end
  check_inputs(self, batch)
  local rows = batch.rows
  self.batch = self.batch or rows
  local lr = feed_rate(self)
  local start = core.clock()
  local ok, err = (is_split(self) and run_micro or run_whole)(self, batch, rows, last)
  local result = { ms = (core.clock() - start) * 1e3, lr = lr, updated = ok and self.position.pending.updates }
  if not ok then
    if not is_not_finite(err) then error(err, 0) end
    settle(self)
    if self.nan == "stop" then error(not_finite(self, err), 0) end
    skip(self)
    result.skipped, result.loss, result.step = true, 0 / 0, self.position.step
  else
    result.loss = 0 / 0 -- of what counts nothing
    for name, value in pairs(settle(self)) do result[name] = value end
    result.step = self.position.step
  end
  if self.accumulate then result.accumulated = self.position.held_rows end
  result.held_bytes = self.ws:held_bytes()
  return result
end

local function step_on(self, batch, last)
  local read = batches.read(self.model, batch)
  check_most(self, "trainer:step", read.rows)
  return attempt(self, "step " .. read.rows, find_workspace(self), step, read, last)
end

--- One step on one batch {x =, y =}: tensors of n rows. A model of several inputs takes them by the names of forward's arguments,
-- {image =, text =, y =}, by number, {x1 =, x2 =, y =}, or as a list, {x = {a, b}, y =}.
-- What is wrong with the data raises, and changes nothing. With `accumulate` not
-- every batch is followed by an update: `step` counts updates, `updated` tells whether this batch was, `accumulated` how many
-- examples are held for the next one.
-- @return table {step, loss, <metric>, ms, lr, held_bytes (of the model's workspace), skipped, updated, accumulated}
function Trainer:step(batch) return step_on(self, batch, false) end

local function update_held(self)
  local first = program_for(self, micro_rows(self, self.batch or 1), "micro")
  local update = update_for(self, first.update)
  local lr = feed_rate(self)
  self.position.pending = { count = micro.count(self.ws), updates = true, entry = update, rows = 0, counted = 0, no_batch = true }
  core.run_micro(self.ws, {}, {}, update.program, self.programs.join.program, 1, 0)
  settle(self)
  return { step = self.position.step, lr = lr, updated = true, accumulated = 0, held_bytes = self.ws:held_bytes() }
end

--- Updates by the batches that are held (`accumulate`), without another one.
-- @return table {step, lr, updated, accumulated, held_bytes}, or nil when none is held
function Trainer:update()
  settle(self)
  local p = self.position
  if self.reduces == "mean" and p.held_count == 0 then -- what is held counts nothing
    self.position = copy(p, { held_batches = 0, held_rows = 0 })
    return nil
  end
  if p.held_batches == 0 then return nil end
  return attempt(self, nil, find_workspace(self), update_held)
end

--- Raises for what is no data set.
local function check_set(who, set)
  if type(set) == "table" and type(set.epoch) == "function" and type(set.spec) == "function" then return end
  fail(("%s expects a data set, e.g. neap.data.tensors { x =, y =, batch = }, got %s"):format(who, type(set) == "table" and set.x ~= nil and "a batch"
    or "a " .. type(set)))
end

-- ---- looking -----------------------------------------------------------------------------------------------------------

local function evaluate(self, set)
  learn_set(self, set)
  self.most.eval = math.max(self.most.eval, math.min(set:spec().batch, set:spec().n))
  local sums, n, counted = {}, 0, 0
  for given in set:epoch(1) do
    local batch = batches.read(self.model, given)
    if not self.input then learn_spec(self, as_spec(batch)) end
    check_inputs(self, batch)
    local entry = program_for(self, batch.rows, "eval")
    feed(self, batch)
    entry.program:run()
    local count = micro.count_of(self.loss, batch)
    add_values(self, sums, read_metrics(self, entry.blobs), batch.rows, count)
    n, counted = n + batch.rows, counted + count
  end
  if n == 0 then fail("evaluate: the data set has no rows") end
  return report.new { totals = copy(means(self, sums, n, counted), { n = n }), order = { "loss", table.unpack(self.metric_names) } }
end

--- Loss and metrics over a whole data set, weighted by what a batch counts (rows, but those with the loss's ignore_index); the last, smaller batch included.
-- @return Report {loss, <metric>, n = rows}
function Trainer:evaluate(set)
  check_set("trainer:evaluate", set)
  check_most(self, "trainer:evaluate", math.min(set:spec().batch, set:spec().n))
  return attempt(self, nil, find_workspace(self), evaluate, set)
end

--- What predict is given, as arguments of forward: tensors in order, or one batch.
local function predict_arguments(self, x, ...)
  local names, has_more = batches.arguments(self.model)
  local given, most = 1 + select("#", ...), math.max(#names, 1)
  if given > most and not has_more then fail(("trainer:predict takes %d argument%s, got %d"):format(most, most == 1 and "" or "s", given)) end
  if op.is_tensor(x) then return x, ... end
  if type(x) ~= "table" or next(x) == nil or given > 1 then
    fail("trainer:predict expects a batch x, a tensor, got " .. (x == nil and "nothing" or "a " .. type(x)))
  end
  local inputs = batches.read(self.model, x).inputs
  local at, last = batches.places(self.model, inputs)
  for k = 1, last do at[k] = inputs[at[k]] end
  return table.unpack(at, 1, last)
end

--- t:predict(x): outputs of the model for a batch x, in evaluation mode and with the trainer's memory options; copies. A model of several
-- inputs takes t:predict(a, b), or a batch of them as in t:step, whose y nothing reads.
function Trainer:predict(...)
  local mode = rawget(self.model, "_mode")
  local guard <close> = setmetatable({}, { __close = function() rawset(self.model, "_mode", mode) end })
  rawset(self.model, "_mode", false)
  return build.run_within(self.model, self.memory, predict_arguments(self, ...))
end

local function program_of(self, batch)
  if is_split(self) then return program_for(self, micro_rows(self, batch), "micro").program end
  return program_for(self, batch, "train").program
end

--- The program of a training step (of the batch size trained with last, or `batch`); with micro, of a micro-batch.
function Trainer:program(batch)
  batch = batch or self.batch
  if not batch then fail("the batch size is not known yet: fit or step first, or give it: t:program(64)") end
  if not (self.input or self.model.input_shape) then fail("the input's shape is not known yet: give input = {..} to the model") end
  return attempt(self, "program " .. batch, find_workspace(self), program_of, batch)
end

--- Its plan.
function Trainer:plan(batch) return self:program(batch).plan end

local forecast

--- Bytes of every region that a step of `rows` rows will hold, all its programs together: plans alone, nothing is allocated.
-- @param rows integer|nil as of t:program
-- @param example table|nil {x =, y =}, whose shapes count when no data has been seen yet
-- @return Report {region, bytes}; fields total_bytes, arena_bytes, micro (rows of a micro-batch, nil without)
-- @usage print(t:forecast(64))
function Trainer:forecast(rows, example) return attempt(self, nil, nil, forecast, rows, example) end

function forecast(self, rows, example)
  rows = rows or self.batch
  if not rows then fail("the batch size is not known yet: t:forecast(64)") end
  if not self.input and example then learn_spec(self, example) end
  local bytes, arena = {}, 0
  local function add(plan, names)
    arena = math.max(arena, plan.arena_bytes)
    for _, name in ipairs(names) do bytes[name] = (bytes[name] or 0) + plan.regions[name] end
  end
  local held = { "parameters", "gradients", "state", "io", "constants", "frames" }
  local size = is_split(self) and micro_rows(self, rows)
  local net, _, update = net_of(self, size and "micro" or "train", size or rows)
  add(net:plan(memory_of(self, update)), held)
  if size then -- parameters and accumulators are the same blobs
    add(update:plan(update_memory(self)), { "state", "io", "constants", "frames" })
    if self.accumulate then add(micro.hold_nets(update):plan(update_memory(self)), { "state", "io", "constants", "frames" }) end
  end
  bytes.arena = arena
  local report_rows, total = {}, 0
  for _, name in ipairs { "parameters", "gradients", "state", "io", "constants", "frames", "arena" } do
    total = total + (bytes[name] or 0)
    if (bytes[name] or 0) > 0 then report_rows[#report_rows + 1] = { region = name, bytes = bytes[name], size = core.bytes_text(bytes[name]) } end
  end
  return report.new { rows = report_rows, columns = { "region", "size", "bytes" }, order = { "total_bytes" },
    totals = { total_bytes = total, arena_bytes = arena, micro = self.micro and size or nil } }
end

--- What it measured so far; op by op with profile = true.
function Trainer:run(batch) return require("neap.plan").run(self:program(batch)) end

--- Report of the epochs so far: epoch, step, loss, <metric>, valid_loss, valid_<metric>, seconds.
function Trainer:history()
  local columns = { "epoch", "step", "loss", table.unpack(self.metric_names) }
  if self.records[1] and self.records[1].valid then
    for _, name in ipairs { "loss", table.unpack(self.metric_names) } do columns[#columns + 1] = "valid_" .. name end
  end
  columns[#columns + 1] = "seconds"
  return report.new { rows = self.records, columns = columns }
end

-- ---- checkpoints -------------------------------------------------------------------------------------------------------

local position_numbers = { "step", "batches", "epoch", "in_epoch", "rows", "counted", "first_epoch", "first_step", "best", "since", "held_batches", "held_rows",
  "held_count" }

--- Writes parameters, optimizer state and where the run stands, mid-epoch sums included, as one safetensors file.
-- @return true, or nil, message, code
function Trainer:save(path)
  find_workspace(self)
  settle(self)
  local meta = { ["trainer.lr"] = ("%a"):format(self.optimizer.lr) }
  for _, name in ipairs(position_numbers) do
    local value = self.position[name]
    meta["trainer." .. name] = math.type(value) == "integer" and tostring(value) or ("%a"):format(value)
  end
  meta["trainer.order"] = self.position.order
  for name, sum in pairs(self.position.sums) do meta["trainer.sum." .. name] = ("%a"):format(sum) end
  return self.ws:save(path, meta)
end

--- %a of infinity is "inf", which tonumber does not read.
local function read_number(text)
  if text == "inf" then return math.huge end
  return math.tointeger(text) or tonumber(text)
end

--- Makes what a step keeps, and with it the names of all that a checkpoint holds.
local function prepare(self)
  local net, _, update = net_of(self, is_split(self) and "micro" or "train", self.batch or 1)
  find_workspace(self)
  self.ws:init(net)
  if update then self.ws:init(update) end
  if update and self.accumulate then
    local hold = micro.hold_nets(update)
    drop_held(self, hold)
    self.ws:init(hold)
  end
end

--- What patience goes back to lies beside what training changes, under these names.
local best_prefix = "@best/"
local function is_best(name) return name:sub(1, #best_prefix) == best_prefix end

--- Raises for a file that no trainer of this model and optimizer has written.
-- @param has bool whether the workspace has all that such a file holds
local function check_file(self, path, has)
  local t, meta = core.load(path, { map = "r" })
  if t == nil then return end -- ws:load says why
  local function refuse(message, hint) error(core.error { code = "data", message = path .. ": " .. message, hint = hint }) end
  if type(t) ~= "table" or not meta["trainer.step"] then refuse("no trainer has written this", "m:load(path) reads parameters alone") end
  local held = tonumber(meta["trainer.held_batches"] or "0")
  if held > 0 and not self.accumulate then
    refuse(("holds the gradients of %d batch%s, which a trainer without accumulate would drop"):format(held, held == 1 and "" or "es"),
      "make the trainer with accumulate, or save after t:update()")
  end
  if not has then return end
  local names = options.keys(t)
  for _, name in ipairs(names) do
    local there = self.ws:has(name) and self.ws:view(name)
    if there and table.concat(there.shape, ",") ~= table.concat(t[name].shape, ",") then return end -- ws:load says it
  end
  local hint = "a checkpoint is of one model and one kind of optimizer"
  local n = 0
  for _, name in ipairs(names) do
    if not is_best(name) then
      if not self.ws:has(name) then refuse(("holds \"%s\", which neither the model nor its optimizer has"):format(name), hint) end
      n = n + 1
    end
  end
  for _, row in ipairs(self.ws:_blobs()) do
    local is_saved = not row.borrowed and row.kind == "tensor" and (row.role == "parameter" or row.role == "state")
    if is_saved and not is_best(row.name) and t[row.name] == nil and n > 0 then refuse(("\"%s\" is missing"):format(row.name), hint) end
  end
end

--- What an optimizer keeps beside a parameter, by what stands behind the parameter's name in a list of names.
local function kept_beside(names)
  local is_there, found = {}, {}
  for _, name in ipairs(names) do is_there[name] = true end
  for _, name in ipairs(names) do
    local stem, suffix = name:match "^(.+)(%.[^./]+)$"
    if stem and is_there[stem] and not name:find("^@") then found[suffix] = true end
  end
  return table.concat(options.keys(found), ", ")
end

--- Raises for a file of another kind of optimizer, where the model's own names are not known yet: by a net of one parameter.
local function check_kind(self, path)
  local t = core.load(path, { map = "r" })
  if type(t) ~= "table" then return end
  local net = net_module.new "kind"
  local w = net:param("w", { 2, 2 }, { op = "Constant", value = 0 })
  if not pcall(self.optimizer.apply, self.optimizer, net, { [w] = net:param("g", { 2, 2 }, { op = "Constant", value = 0 }) }) then return end
  local names = {}
  for _, row in ipairs(net:_blobs()) do
    if row.role == "parameter" or row.role == "state" then names[#names + 1] = row.name end
  end
  local own, there = kept_beside(names), kept_beside(options.keys(t))
  if own == there then return end
  error(core.error { code = "data", message = ("%s: holds %s beside a parameter, optim.%s keeps %s"):format(path, there == "" and "nothing" or there,
    self.optimizer.name, own == "" and "nothing" or own), hint = "a checkpoint is of one model and one kind of optimizer" })
end

local load

--- Goes back to a saved state. Names and shapes that are not this trainer's raise, and change nothing.
-- @return self, or nil, message, code when the file can't be read
function Trainer:load(path)
  if type(path) ~= "string" then fail("trainer:load expects a path, got a " .. type(path)) end
  return attempt(self, nil, find_workspace(self), load, path)
end

function load(self, path)
  local is_known = self.batch or self.input
  if is_known then prepare(self) end -- so that names and shapes are compared with the model's
  if not is_known and self.model.input_shape then is_known = pcall(prepare, self) end
  check_file(self, path, is_known)
  if not is_known then check_kind(self, path) end
  local ok, meta, message, code = pcall(self.ws.load, self.ws, path)
  if not ok then
    if type(meta) == "table" then meta.message = ("%s: %s"):format(path, meta.message) end
    error(meta, 0)
  end
  if meta == nil then return nil, message, code end
  local position = start_position()
  for _, name in ipairs(position_numbers) do position[name] = read_number(meta["trainer." .. name] or "") or position[name] end
  if meta["trainer.counted"] == nil then position.counted = position.rows end -- written before labels that don't count were told apart
  position.order = meta["trainer.order"]
  for key, text in pairs(meta) do
    local name = key:match "^trainer%.sum%.(.+)$"
    if name then position.sums[name] = read_number(text) end
  end
  self.position = position
  if meta["trainer.lr"] then self.optimizer.lr = tonumber(meta["trainer.lr"]) end
  return self
end

-- ---- fit ---------------------------------------------------------------------------------------------------------------

local fit_spec = { epochs = none, steps = none, valid = none, checkpoint = none, resume = false, patience = none, verbose = 1, on_step = none,
  on_epoch = none }

--- checkpoint = path or { path, every = steps }.
local function take_checkpoint(o)
  if o.checkpoint == nil then return end
  local c = options.read("checkpoint", { positions = { "path" }, path = none, every = none }, o.checkpoint)
  if type(c.path) ~= "string" then fail("fit: checkpoint expects a path, or { path, every = steps }") end
  if c.every ~= nil and (math.type(c.every) ~= "integer" or c.every < 1) then
    fail("fit: checkpoint: every expects a number of steps, got " .. tostring(c.every))
  end
  if not c.path:match "%.safetensors$" then
    fail(("fit: checkpoint \"%s\" is written as safetensors: give it the ending .safetensors"):format(c.path))
  end
  local beside = c.path .. ".probe" -- where the folder is missing, or not ours, that is to be known before an epoch has gone
  local file, why = io.open(beside, "wb")
  if not file then error(core.error { code = "data", message = "fit: the checkpoint can't be written: " .. why:gsub("%.probe", "", 1) }) end
  file:close()
  os.remove(beside)
  o.path, o.every = c.path, c.every
end

local function exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

local function must(ok, message, code)
  if not ok then error(core.error { code = code or "data", message = message }) end
  return ok
end

--- What decides which rows the batches of an epoch have.
local function order_of(set)
  local spec = set:spec()
  return ("%d rows in %d batches of %d, %s"):format(spec.n, #set, spec.batch, set.shuffle and "shuffled by seed " .. tostring(set.seed) or "in order")
end

--- Raises where an epoch that is under way would go on with batches of another order; a new epoch may have any.
local function check_order(self, o, order)
  local was, in_epoch = self.position.order, self.position.in_epoch
  if o.path and exists(o.path) then
    local _, meta = core.load(o.path, { map = "r" })
    if type(meta) ~= "table" then return end -- the load says why
    was, in_epoch = meta["trainer.order"], tonumber(meta["trainer.in_epoch"]) or 0
  end
  if was == nil or was == order or in_epoch == 0 then return end
  error(core.error { code = "data", message = ("fit: it was stopped in an epoch of %s, and is resumed on %s"):format(was, order), expected = was,
    got = order, hint = "resume on the data set it was stopped on, or begin an epoch: t:load(path), then fit without resume" })
end

--- Where to start and where to stop.
local function begin(self, o, order)
  if o.resume then check_order(self, o, order) end
  if o.resume and o.path and exists(o.path) then must(self:load(o.path)) end
  if not o.resume then -- a fit of its own begins an epoch
    local p = self.position
    local epoch = p.epoch + (p.in_epoch > 0 and 1 or 0)
    self.position = copy(start_position(), { step = p.step, batches = p.batches, epoch = epoch, first_epoch = epoch, first_step = p.step,
      held_batches = p.held_batches, held_rows = p.held_rows, held_count = p.held_count })
  end
  self.position = copy(self.position, { order = order })
  local p = self.position
  local epochs = o.epochs or (o.steps and math.huge or 1)
  return p.first_epoch + epochs, o.steps and p.first_step + o.steps or math.huge
end

local function mean_of(self) return means(self, self.position.sums, self.position.rows, self.position.counted) end

--- What ends an epoch, or the last part of one: validation, the record, the line on the screen.
local function end_epoch(self, o, epoch, seconds, bar)
  local record = copy(mean_of(self), { epoch = epoch, step = self.position.step, seconds = seconds })
  local shown = { loss = record.loss }
  for _, name in ipairs(self.metric_names) do shown[name] = record[name] end
  if o.valid then
    local valid = self:evaluate(o.valid)
    record.valid = { n = valid.n }
    for _, name in ipairs { "loss", table.unpack(self.metric_names) } do
      record.valid[name], record["valid_" .. name], shown["valid " .. name] = valid[name], valid[name], valid[name]
    end
  end
  bar:finish(shown)
  self.records[#self.records + 1] = record
  local program = self:program(self.batch)
  for name, value in pairs(shown) do
    if value == value then program:metric(name:gsub(" ", "_"), record.step, value) end
  end
  return record
end

-- The best parameters so far lie in the workspace beside the others, as state that goes into checkpoints: a run that is resumed
-- knows them too.

local function keep_best(self)
  local net, names = net_module.new "best", self.model:blob_names()
  for _, name in ipairs(names) do
    local t = self.ws:view(name)
    net:declare(best_prefix .. name, "state", t.shape, t.dtype, { op = "Constant", value = 0 }, false)
  end
  self.ws:init(net)
  for _, name in ipairs(names) do self.ws:feed(best_prefix .. name, self.ws:view(name)) end
end

--- The parameters are those of the best epoch, and these are no longer kept apart.
local function restore_best(self)
  for _, name in ipairs(self.model:blob_names()) do
    if self.ws:has(best_prefix .. name) then
      self.ws:feed(name, self.ws:view(best_prefix .. name))
      self.ws:remove(best_prefix .. name)
    end
  end
end

--- The next epoch begins; patience is counted. @return whether patience is at its end
local function turn_epoch(self, o, epoch, record)
  local judged = record.valid and record.valid.loss or record.loss
  local better = judged and judged < self.position.best
  self.position = copy(self.position, { epoch = epoch, in_epoch = 0, rows = 0, counted = 0, sums = {}, best = better and judged or self.position.best,
    since = better and 0 or self.position.since + 1 })
  if o.patience == nil then return false end
  if better then keep_best(self) end
  return self.position.since >= o.patience
end

--- The rest of the epoch under way. @return whether on_step has ended the fit
local function run_epoch(self, set, o, last_step, bar)
  for batch in set:epoch(self.position.epoch + 1, self.position.in_epoch + 1) do
    local result = step_on(self, batch, self.position.in_epoch + 1 >= #set)
    bar:update(self.position.in_epoch, mean_of(self))
    local stop = o.on_step and o.on_step(result, self) == false
    if o.every and self.position.step % o.every == 0 and result.updated then must(self:save(o.path)) end
    if stop then return true end
    if self.position.step >= last_step then break end
  end
  if self.position.in_epoch >= #set then self:update() end -- what is held though the last batch was passed by
end

--- How many batches of an epoch are expected, for the bar on the screen.
local function goal_of(self, total, last_step)
  local p, a = self.position, self.accumulate
  local n = last_step - p.step
  if a then n = a.batches and n * a.batches - p.held_batches or total end
  return math.min(total, p.in_epoch + math.min(total, n))
end

local function fit(self, set, o)
  local last_epoch, last_step = begin(self, o, order_of(set))
  while self.position.epoch < last_epoch and self.position.step < last_step do
    local epoch, start, total = self.position.epoch + 1, core.clock(), #set
    local goal = goal_of(self, total, last_step)
    local bar <close> = progress.new { title = "epoch " .. epoch, total = goal, verbose = o.verbose, first = self.position.in_epoch }
    local stop = run_epoch(self, set, o, last_step, bar)
    if self.position.rows == 0 then error(core.error { code = "numeric", message = "no step of the epoch had a finite loss" }) end
    local record = end_epoch(self, o, epoch, core.clock() - start, bar)
    if self.position.in_epoch >= total then stop = turn_epoch(self, o, epoch, record) or stop end
    if o.path then must(self:save(o.path)) end
    if o.on_epoch and o.on_epoch(record, self) == false then stop = true end
    if stop then break end
  end
  if o.patience then restore_best(self) end
  return self:history()
end

--- What the data looks like is learnt first.
local function begin_fit(self, set, o)
  local spec = set:spec()
  learn_set(self, set)
  self.batch = math.min(spec.batch, spec.n)
  self.most.train = math.max(self.most.train, self.batch)
  if #set == 0 then fail("fit: the data set has no batch") end
  return fit(self, set, o)
end

--- Options that are called, or looked at, when much of a fit has gone.
local function check_calls(o)
  for _, name in ipairs { "on_step", "on_epoch" } do
    if o[name] ~= nil and type(o[name]) ~= "function" then fail(("fit: %s expects a function, got a %s"):format(name, type(o[name]))) end
  end
  if type(o.resume) ~= "boolean" then fail(("fit: resume expects true or false, got %s"):format(tostring(o.resume))) end
  if o.verbose ~= 0 and o.verbose ~= 1 and o.verbose ~= 2 then fail(("fit: verbose expects 0, 1 or 2, got %s"):format(tostring(o.verbose))) end
end

--- Both data sets have batches that the trainer takes, and examples of one look.
local function check_valid(self, set, valid)
  local spec = set:spec()
  check_most(self, "fit", math.min(spec.batch, spec.n))
  if valid == nil then return end
  check_set("fit: valid", valid)
  local other = valid:spec()
  check_most(self, "fit: valid", math.min(other.batch, other.n))
  if other.n == 0 then fail("fit: valid has no rows") end
  local names = options.keys(copy(spec, other))
  for _, name in ipairs(names) do
    local function look(field) return field and ("%s (%s)"):format(field.dtype, table.concat(field.shape, ",", 2)) or "none" end
    if name ~= "n" and name ~= "batch" and look(spec[name]) ~= look(other[name]) then
      fail(("fit: valid's %s is %s an example, that of the data trained on is %s"):format(name, look(other[name]), look(spec[name])))
    end
  end
end

--- Trains. A fit begins an epoch; with `resume` it goes on where the checkpoint file stands, or, without a file, where this
-- trainer was stopped, in the middle of an epoch too, until the epochs or steps first asked for are done.
-- @param set data set
-- @param given table { epochs = 1, steps =, valid = data set, checkpoint = path or { path, every = steps }, resume = bool,
--   patience = epochs without a better (validation) loss after which the fit ends; the model has the parameters of the best one then,
--   verbose = 0|1|2, on_step = f(result, t), on_epoch = f(record, t): false from either ends the fit }
-- @return Report as of t:history()
function Trainer:fit(set, given)
  local o = options.read("fit", fit_spec, given)
  check_open(self)
  check_set("fit", set)
  for _, name in ipairs { "epochs", "steps", "patience" } do
    if o[name] ~= nil and (math.type(o[name]) ~= "integer" or o[name] < 0) then
      fail(("fit: %s expects a whole number, got %s"):format(name, tostring(o[name])))
    end
  end
  check_calls(o)
  check_valid(self, set, o.valid)
  take_checkpoint(o)
  if core.clear_interrupt then core.clear_interrupt() end -- the next Ctrl-C is caught again
  find_workspace(self)
  settle(self)
  local was, most = {}, copy(self.most)
  for _, key in ipairs(learnt) do was[key] = self[key] end
  local ok, result = pcall(begin_fit, self, set, o)
  if ok then return result end
  settle(self)
  if self.position.batches == was.position.batches and not o.resume then -- what the data looks like is forgotten: each step did so itself
    for _, key in ipairs(learnt) do self[key] = was[key] end
    self.most = most
  end
  if o.path and type(result) ~= "string" and result.code == "interrupted" then must(self:save(o.path)) end
  error(result, 0)
end

--- t:close() gives its programs back. What is known so far can still be looked at and saved; a step is refused.
function Trainer:close()
  close_programs(self)
  self.is_closed = true
end
Trainer.__close = Trainer.close
Trainer.__tostring = function(self)
  return ("trainer of %s: step %d, epoch %d, optim.%s"):format(self.name or self.model._class, self.position.step, self.position.epoch, self.optimizer.name)
end

require("neap.guard").functions(Trainer, "trainer:")
return new
