--- A trainer's nets and programs: what the data's look decides, a small table of programs by mode
-- and rows, and their plans.
--
-- `fields` is what the batch at hand looks like, known from the first one on, and `largest` the
-- largest sizes so far. `programs` maps mode, rows and sizes, "train 64 x(3,32,32) y()", to { net,
-- blobs, program, update }, and "update", "hold", "join" to what follows micro-batches; `ranges`
-- has the plan of the largest batch of a mode, in whose bytes those of fewer rows or smaller sizes
-- run.
--
-- INVARIANT: programs are of the model as it is: a change of it (freeze, tie ..) closes them all,
-- and they are made anew.
-- @module neap.train.programs
local again = require "neap.plan.again"
local batches = require "neap.data.batch"
local build = require "neap.nn.build"
local checks = require "neap.train.checks"
local core = require "neap.core"
local dtypes = require "neap.inner.dtypes"
local fit_batch = require "neap.memory.fit_batch"
local kept = require "neap.optim.kept"
local lists = require "neap.inner.lists"
local micro = require "neap.train.micro"
local op = require "neap.op"
local options = require "neap.inner.options"
local refusal = require "neap.memory.refusal"
local report = require "neap.report"
local script = require "neap.inner.script"
local state = require "neap.train.state"
local fail = core.fail
local Trainer, copy, find_workspace, attempt = state.Trainer, state.copy, state.find_workspace,
  state.attempt

-- ---- the look of the data -----------------------------------------------------------------------

local function is_field(t)
  return op.is_tensor(t) or type(t) == "table" and type(t.shape) == "table"
end

--- What fields look like: {name = {sizes of one example, dtype =}}.
-- @param fields {name = tensor or {shape =, dtype =}}
local function look_of(fields)
  local look = {}
  for name, field in pairs(fields) do
    look[name] = table.move(field.shape, 2, #field.shape, 1, { dtype = field.dtype })
  end
  return look
end

--- A look as text: equal texts, equal sizes.
local function text_of(look)
  local parts = {}
  for i, name in ipairs(options.keys(look)) do
    parts[i] = ("%s(%s)"):format(name, table.concat(look[name], ","))
  end
  return table.concat(parts, " ")
end

--- The largest sizes of two looks of the same fields.
local function largest(a, b)
  local out = {}
  for name, sizes in pairs(b) do
    out[name] = { dtype = sizes.dtype }
    for d, size in ipairs(sizes) do
      out[name][d] = math.max(size, a and a[name] and a[name][d] or size)
    end
  end
  return out
end

--- Whether the sizes of a look are at most those of another; what was planned before data were
-- seen has no look.
local function fits(look, most)
  if look == nil or most == nil then return look == most end
  for name, sizes in pairs(look) do
    for d, size in ipairs(sizes) do
      if size > most[name][d] then return false end
    end
  end
  return true
end

--- What a net can't be made of was no trouble before, where the sizes were others: err with that in
-- its message.
local function with_sizes(self, err)
  local before, words = self.fields_before, nil

  -- The field whose sizes have changed since the net before is what the error is about.
  for _, name in ipairs(options.keys(before or {})) do
    local got, was = table.concat(self.fields[name] or {}, ","), table.concat(before[name], ",")
    if got ~= was then
      words = ("a batch's %s has examples of shape (%s), the trainer's so far (%s)"):format(
        name, got, was)
    end
  end
  if words == nil then return err end
  if type(err) == "string" then return err .. "; " .. words end
  local is_shape = type(err) == "table" and rawget(err, "code") == "shape"
  if is_shape then err.message = err.message .. "; " .. words end
  return err
end

--- The look of a batch is what nets are made for from here on. The first one decides which fields
-- there are, and so does the first after a change of the model.
-- @param fields as of look_of
local function learn(self, fields)
  local look = look_of(fields)
  local is_new = self.model_version ~= rawget(self.model, "_version")
  if self.fields == nil or is_new then
    -- Which fields there are is settled by the first look: what neither forward nor a loss takes is
    -- an error now, and later looks must have the same fields.
    local _, _, others = batches.places(self.model, look)
    local taken = self.goal:fields(self.metrics)
    for _, name in ipairs(others) do
      if not taken[name] then batches.fail_unread(self.model, name, taken) end
    end
  else
    checks.fields(look, self.fields)
  end
  self.fields_before = not is_new and self.fields or nil

  -- Ranges are planned for the largest of each size, so that smaller batches run in the same bytes.
  self.largest = largest(not is_new and self.largest or nil, look)
  self.fields = look
end

--- The same of a data set's spec, or of an example.
local function learn_spec(self, spec) learn(self, batches.apart(self.model, spec, is_field)) end

--- What a data set that changes its batches by `map` gives is seen at its first batch.
local function learn_set(self, set)
  if set.map == nil then
    local spec = copy(set:spec())
    spec.n, spec.batch = nil, nil
    learn_spec(self, spec)
  end
end

-- ---- programs -----------------------------------------------------------------------------------

--- Whether a batch is trained on by a program of its own, and the update by another.
local function is_split(self) return self.micro ~= nil or self.accumulate ~= nil end

local function close_programs(self)
  self.known = {}
  for _, entry in pairs(self.programs) do entry.program:close() end
  for _, range in pairs(self.ranges) do range.plans:close() end
  self.programs, self.ranges = {}, {}
end

--- Keeps what the net of the loss says of how it reduces its rows, and raises where the loss, or
-- the trainer, was told otherwise.
local function learn_reduction(self, reduces, op)
  self.net_reduces = reduces
  if reduces == nil or self.reduces == nil or reduces == self.reduces then return end
  error(core.error {
    code = "argument",
    expected = ("reduces = \"%s\""):format(reduces),
    got = ("reduces = \"%s\""):format(self.reduces),
    message = ("neap.trainer: the loss is said to be the %s of its rows (reduces = \"%s\"), its \z
      net makes their %s, by %s"):format(self.reduces, self.reduces, reduces, op),
    hint = ("give reduces = \"%s\", or let the loss be a %s"):format(reduces, self.reduces),
  })
end

--- The net of a batch of n rows, in a mode: "train" (one program a step), "micro" (gradients
-- accumulated) or "eval"; without modules by their paths. `fields` is another look than that of
-- the batch at hand.
-- @return net, blobs, the update's net of a micro net
local function net_of(self, mode, n, without, fields)
  local train = mode ~= "eval"
  local net, blobs, record = self.model:net {
    batch = n,
    train = train,
    losses = self.goal,
    params = train and self.params or nil,
    optimizer = train and self.optimizer or nil,
    fields = fields or self.fields,
    metrics = self.metrics,
    keep = train and self.keep or nil,
    name = self.name,
    guard = self.nan ~= "off",
    grad_norm = train and self.grad_norm or nil,
    loss_scale = train and self.scale ~= nil or nil,
    without = without,
  }
  learn_reduction(self, record.reduces, record.reduces_by)

  -- One net holds a whole training step; split in two, the gradients of several micro-batches can
  -- be added before the update.
  if mode ~= "micro" then return net, blobs end
  local part, update = net:split_micro()
  kept.pass(net, update)
  return part, blobs, update
end

--- Whether programs of several batch sizes are made apart, in the bytes of the largest: not where
-- one program takes any shape.
local function has_range(memory) return memory.executor ~= "dynamic" end

--- Memory options of the update: it is a part of training, and the blobs that mem_param excludes
-- are the micro-batch's.
local function update_memory(self)
  local param, out = self.memory.mem_param, {}
  if param == nil then return self.memory end
  for key, value in pairs(self.memory) do out[key] = value end
  out.mem_param = { optimize_test = param.optimize_train ~= false, debug_info = param.debug_info }
  return out
end

--- Memory options of a mode's net: the total of a micro-batch counts its update too, and that of
-- training the evaluation that the same fit makes (`reserve`).
local function memory_of(self, mode, update)
  local reserve = mode ~= "eval" and self.reserve or nil
  if self.memory.total == nil or not (update or reserve) then return self.memory end
  local out = copy(self.memory)

  -- `beside` and `reserve` are {bytes that stay, arena}: what stays is added up, and of arenas,
  -- which are one, the largest counts.
  local beside = update
    and core.micro_beside(update, update_memory(self),
      self.accumulate and micro.hold_nets(update) or nil)
    or { 0, 0 }
  reserve = reserve or { 0, 0 }
  out._beside = { beside[1] + reserve[1], math.max(beside[2], reserve[2]) }
  return out
end

--- Bytes of a blob of a net.
local function bytes_of(net, name)
  local n = (dtypes.bytes[net:_type(name)] or 1) * lists.product(net:blob(name).shape)
  return (n + 63) // 64 * 64
end

--- Bytes of each input and output of a net.
local function io_bytes(net)
  local bytes = {}
  for _, row in ipairs(net:_blobs()) do
    if row.role == "input" or row.role == "output" then
      bytes[row.name] = bytes_of(net, row.name)
    end
  end
  return bytes
end

--- Bytes of a copy of the model's parameters and state under names that begin with `prefix`; of
-- those that the workspace has already, none.
local function weights_of(self, prefix)
  local net, bytes = net_of(self, "eval", self.batch), 0
  local ws, is_own = self.ws, {}

  -- The evaluation net has all of the model's blobs and no gradients.
  for _, name in ipairs(self.model:_blob_names()) do is_own[name] = true end
  for _, row in ipairs(net:_blobs()) do
    if is_own[row.name] and not ws:has(prefix .. row.name) then
      bytes = bytes + bytes_of(net, row.name)
    end
  end
  return bytes
end

--- What an evaluation of n rows takes of the workspace at least, beside a step of `rows`.
-- @return {bytes, arena}, as the option _beside has them; nil: it can't be told
local function reserve_of(self, n, rows)
  local net = net_of(self, "eval", n)

  -- A total of one byte is refused, and the refusal has the figures: what is fixed, and the least
  -- in all.
  local memory = copy(self.memory, { total = 1, store = false })
  memory.budget = nil
  -- as a range of batches, which its program is within: refused, with its least
  local ok, err = pcall(core.new_range, net, memory)
  local fixed = not ok and type(err) == "table" and rawget(err, "fixed")
  if not fixed or not err.least_bytes then return nil end
  local arena, bytes = err.least_bytes, 0
  for _, b in pairs(fixed) do arena = arena - b end

  -- Inputs and outputs are shared with the step, which has its own already: only what is larger
  -- comes to it.
  local step = io_bytes((net_of(self, is_split(self) and "micro" or "train", rows)))
  for name, b in pairs(io_bytes(net)) do bytes = bytes + math.max(b - (step[name] or 0), 0) end
  return { bytes, arena }
end

--- A mode's net of n rows with its memory options: what a program is made of.
local function parts_of(self, mode, n, fields)
  local net, blobs, update = net_of(self, mode, n, nil, fields)
  local memory = memory_of(self, mode, update)
  return {
    batch = n,
    fields = fields or self.fields,
    net = net,
    blobs = blobs,
    update = update,
    memory = memory,
  }
end

--- The same at the largest sizes known so far; a model that can't have them all at once (images
-- wide or high) has those of the batch at hand.
local function largest_parts(self, mode, n)
  if self.fields == nil or text_of(self.largest) == text_of(self.fields) then
    return parts_of(self, mode, n)
  end

  -- Each size at its largest may be more than the model can take at once.
  local ok, parts = pcall(parts_of, self, mode, n, self.largest)
  return ok and parts or parts_of(self, mode, n)
end

--- A range of a mode's batches, planned for the largest known so far, n rows at least.
local function new_range(self, mode, n)
  local range = largest_parts(self, mode, math.max(n, self.most[mode] or 0))
  range.plans = require("neap").range(range.net, range.memory)
  return range
end

--- Whether a range has room for n rows of the batch at hand.
local function has_room(self, range, n)
  return range.batch >= n and fits(self.fields, range.fields)
end

--- Whether a range's own net is that of n rows of the batch at hand.
local function is_exact(self, range, n)
  local is_same = text_of(range.fields or {}) == text_of(self.fields or {})
  return range.batch == n and is_same
end

--- The one that programs are made within. A larger batch that comes later makes it anew.
local function range_for(self, mode, n)
  local range = self.ranges[mode]
  if range == nil or not has_room(self, range, n) then
    range = new_range(self, mode, n)
    self.ranges[mode] = range
  end
  return range
end

--- The plan of the program that make_program would make, without it.
-- @return plan, the update's net of a micro net
local function plan_of(self, mode, n)
  local own = self.ranges[mode]
  if not has_range(self.memory) then
    local parts = parts_of(self, mode, n)
    return parts.net:plan(parts.memory), parts.update
  end
  -- The trainer's own range where it has room; else one for this plan alone.
  local range = own and has_room(self, own, n) and own or new_range(self, mode, n)
  local _ <close> = setmetatable({}, { __close = function()
    if range ~= own then range.plans:close() end
  end })
  local parts = is_exact(self, range, n) and range or parts_of(self, mode, n)
  return parts.net:_plan(parts.memory, range.plans), parts.update
end

--- A training is one run of the database, whichever programs make its steps. Those that look at
-- data are programs of it, too, once it has begun; before they are runs of their own.
local function run_of(self)
  if self.run_row == nil and self.memory.store ~= false then
    self.run_row = core.new_run {
      net = self.name or script.net_name(self.model),
      mode = "train",
      batch = self.batch,
      tag = self.memory.tag,
    }
  end
  return self.run_row
end

--- The same with the run that the program is a part of.
local function with_run(self, memory) return copy(memory, { _run = run_of(self) }) end

local function make_program(self, n, mode)
  local range = has_range(self.memory) and range_for(self, mode, n)
  -- the largest batch's net is there already, and so is its plan
  local parts = range and is_exact(self, range, n) and range or parts_of(self, mode, n)

  -- A look at data is no training: until one has begun it is a run of its own.
  local is_look = mode == "eval" and self.run_row == nil
  local net, memory = parts.net, is_look and parts.memory or with_run(self, parts.memory)

  -- The program is compiled within the range: with its addresses, in bytes that are there already.
  find_workspace(self) -- layers that only this net has met bring their numbers along
  if mode == "train" then kept.claim(self.ws, self.optimizer, net) end
  self.ws:init(net)
  local program = range and self.ws:compile_within(net, range.plans, memory)
    or self.ws:compile(net, memory)
  return { net = net, blobs = parts.blobs, program = program, update = parts.update }
end

--- What refuses a program of n rows beside all that the workspace holds now; nil: nothing does. It
-- is made, and leaves nothing behind.
local function refusal_of(self, n, mode)
  -- The error `made` is ours: raising it makes `attempt` undo all that making the program has done.
  local made = {}
  local _, err = pcall(attempt, self, nil, find_workspace(self), function()
    make_program(self, n, mode).program:close()
    error(made, 0)
  end)
  return type(err) == "table" and rawget(err, "code") == "budget" and err or nil
end

--- f(...) -> its results. A limit's refusal says which of the trainer's programs it speaks of, and
-- of which plan a budget in per cent is a share.
local function told(self, mode, n, f, ...)
  local results = table.pack(pcall(f, ...))
  if results[1] then return table.unpack(results, 2, results.n) end
  local err, budget = results[2], self.memory.budget
  if type(err) == "table" and rawget(err, "code") == "budget" then
    if mode == "eval" then
      err.message = ("to evaluate %d rows: %s"):format(n, err.message)
    end
    if rawget(err, "limit") == "budget" and type(budget) == "string" and budget:find "%%" then
      err.message = ("%s; the budget is %s of what this net's own plan takes alone"):format(
        err.message, budget)
    end
  end
  error(err, 0)
end

--- A refused training is a run that had no step: with what was asked for, what is alive where most
-- is, and what would fit.
local function note_refusal(self, mode, err)
  local code = type(err) == "table" and rawget(err, "code")
  local run = mode ~= "eval" and (code == "budget" or code == "memory") and run_of(self)
  if not run then return end
  refusal.say_fits(err)
  run:stop(err)
end

--- The program for a batch of n rows, from the trainer's small table. Programs of one workspace
-- share one arena, and those of smaller batches all bytes of the largest. A change of the model
-- (freeze, tie ..) makes them anew.
local function program_for(self, n, mode)
  -- The version rises with every change of what the model builds.
  if self.model_version ~= rawget(self.model, "_version") then close_programs(self) end
  local key = mode .. " " .. n .. " " .. text_of(self.fields or {})
  local entry = self.programs[key]

  -- Another optimizer has trained these parameters since: what this one kept begins anew.
  local last = mode == "train" and entry or mode == "micro" and self.programs.update
  if last and kept.is_lost(self.ws, self.optimizer, last.net) then
    close_programs(self)
    entry = nil
  end
  if entry == nil then
    -- Three functions stand ready for a refusal: one gives the net of any number of rows, one tries
    -- such a program beside what is held now, and the last makes the one that is wanted.
    local ok, made = pcall(told, self, mode, n, refusal.around_model, function(rows)
      local net, _, update = net_of(self, mode, rows)
      return net, memory_of(self, mode, update)
    end, function(rows) return refusal_of(self, rows, mode) end, n, function()
      local is_made, program = pcall(make_program, self, n, mode)
      if is_made then return program end
      error(with_sizes(self, program), 0)
    end)
    if not ok then
      note_refusal(self, mode, made)
      error(made, 0)
    end
    entry = made
    self.programs[key] = entry
    -- layers learn their widths while the first net is built
    self.model_version = rawget(self.model, "_version")
  end
  return entry
end

--- A program that follows the micro-batches, the same whatever their rows.
local function small_program(self, key, net)
  local entry = self.programs[key]
  if entry == nil then
    -- Compiled once: neither the update nor holding depends on the rows.
    if key == "update" then kept.claim(self.ws, self.optimizer, net) end
    self.ws:init(net)
    entry = { net = net, program = self.ws:compile(net, with_run(self, update_memory(self))) }
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

--- What is held of parameters that are no longer trained, or no longer there, is given up: nothing
-- adds to it, and nothing would weigh it, until they come back to another accumulation.
local function drop_held(self, hold)
  local wanted = {}
  for _, row in ipairs(hold:_blobs()) do wanted[row.name] = true end
  for _, row in ipairs(self.ws:_blobs()) do
    if row.name:sub(1, 6) == "@held/" and not wanted[row.name] then self.ws:remove(row.name) end
  end
end

--- The program that ends a step of micro-batches; where batches are held before it, `hold` and
-- `join` are made too. Accumulators that were given back (ws:drop_gradients) are there again:
-- between two steps nothing is in them.
local function update_for(self, net)
  -- Held are gradients of the parameters that are trained now: others are given up before a program
  -- sums them.
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

--- Rows of a micro-batch for a batch of `rows`, without `micro` all of them; "fit" is settled once,
-- by plans alone.
local function micro_rows(self, rows)
  if self.micro == "fit" then
    self.micro_fit = self.micro_fit
      or fit_batch.micro(self, math.max(rows, self.most.train), net_of)
  end

  -- Without "fit" a micro-batch is as large as was asked for, and never larger than the batch.
  local most = self.micro_fit or self.micro or math.max(rows, self.most.train)
  -- the range is planned for whole micro-batches
  self.most.micro = math.min(most, math.max(rows, self.most.train))
  return math.min(rows, most)
end

-- ---- looking at them ----------------------------------------------------------------------------

--- The program that a step of `batch` rows runs first.
local function program_of(self, batch)
  if is_split(self) then return program_for(self, micro_rows(self, batch), "micro").program end
  return program_for(self, batch, "train").program
end

--- The program of a training step (of the batch size trained with last, or `batch`); with micro, of
-- a micro-batch.
function Trainer:program(batch)
  batch = batch or self.batch
  if batch ~= nil and (math.type(batch) ~= "integer" or batch < 1) then
    fail(("trainer:program, :plan and :run expect a number of rows, t:program(64), got %s"):format(
      type(batch) == "number" and tostring(batch) or "a " .. type(batch)))
  end
  if not batch then
    fail("the batch size is not known yet: fit or step first, or give it: t:program(64)")
  end
  checks.most(self, "trainer:program, :plan and :run", batch)
  if not (self.fields or build.known_input(self.model)) then
    fail("the input's shape is not known yet: give input = {..} to the model")
  end
  return attempt(self, "program " .. batch, find_workspace(self), program_of, batch)
end

--- Its plan, which can be planned again with a change.
function Trainer:plan(batch)
  local program = self:program(batch)
  local mode = is_split(self) and "micro" or "train"

  -- `all` are options of the trainer with a change: batch and without are the net's, the rest is
  -- memory.
  local function parts(all)
    local memory = copy(all)
    memory.batch, memory.without = nil, nil
    return (net_of(self, mode, all.batch or program.plan.batch, all.without)), memory
  end
  return again.note(program.plan, self.memory, function(all)
    local net, memory = parts(all)
    return net:plan(memory)
  end, parts, true)
end

--- What is held once batches of `evaluate` rows have been evaluated too, in the same workspace: one
-- arena serves both, parameters and state are the same; constants, and what inputs and outputs are
-- larger, come to it.
-- @param rows integer of the step
-- @param total integer of the step
-- @param arena integer of the step
local function evaluated_bytes(self, rows, evaluate, total, arena)
  -- Arenas are one, so the larger counts; constants of the evaluation are its own; inputs and
  -- outputs are shared by name.
  local plan = plan_of(self, "eval", evaluate)
  local look = io_bytes((net_of(self, "eval", evaluate)))
  local step = io_bytes((net_of(self, is_split(self) and "micro" or "train", rows)))
  local more = math.max(plan.arena_bytes - arena, 0) + plan.regions.constants
  for name, bytes in pairs(look) do more = more + math.max(bytes - (step[name] or 0), 0) end
  return total + more
end

local function forecast(self, rows, example, evaluate)
  rows = rows or self.batch
  if not rows then fail("the batch size is not known yet: t:forecast(64)") end
  checks.most(self, "trainer:forecast", rows)
  if not self.fields and example then learn_spec(self, example) end
  local bytes, arena = {}, 0

  -- Regions add up over the programs, the arena is one for all.
  local function add(plan, names)
    arena = math.max(arena, plan.arena_bytes)
    for _, name in ipairs(names) do bytes[name] = (bytes[name] or 0) + plan.regions[name] end
  end
  local held = { "parameters", "gradients", "state", "io", "constants", "frames" }
  local size = is_split(self) and micro_rows(self, rows)

  -- First forward and backward; with micro-batches the update behind it, and with accumulate what
  -- holds gradients.
  local plan, update = plan_of(self, size and "micro" or "train", size or rows)
  add(plan, held)
  if size then -- parameters and accumulators are the same blobs
    add(update:plan(update_memory(self)), { "state", "io", "constants", "frames" })
    if self.accumulate then
      add(micro.hold_nets(update):plan(update_memory(self)), {
        "state", "io", "constants", "frames",
      })
    end
  end
  bytes.arena = arena
  local report_rows, total = {}, 0
  for _, name in ipairs {
    "parameters", "gradients", "state", "io", "constants", "frames", "arena",
  } do
    total = total + (bytes[name] or 0)
    if (bytes[name] or 0) > 0 then
      report_rows[#report_rows + 1] = {
        region = name,
        bytes = bytes[name],
        size = core.bytes_text(bytes[name]),
      }
    end
  end
  return report.new {
    rows = report_rows,
    columns = { "region", "size", "bytes" },
    order = evaluate and { "total_bytes", "evaluated_bytes" } or { "total_bytes" },
    totals = { total_bytes = total, arena_bytes = arena, micro = self.micro and size or nil,
      evaluated_bytes = evaluate and evaluated_bytes(self, rows, evaluate, total, arena) },
  }
end

--- Bytes of every region that a step of `rows` rows will hold, all its programs together: plans
-- alone, nothing is allocated.
-- @param rows integer|nil as of t:program
-- @param example table|nil {x =, y =}, whose shapes count when no data has been seen yet
-- @param evaluate integer|nil rows of batches that are evaluated in between
-- @return Report {region, bytes}; fields total_bytes, arena_bytes, evaluated_bytes (held once such
--   batches have been evaluated, too; nil without), micro (rows of a micro-batch, nil without)
-- @usage print(t:forecast(64))
function Trainer:forecast(rows, example, evaluate)
  return attempt(self, nil, nil, forecast, rows, example, evaluate)
end

--- What it measured so far, op by op.
function Trainer:run(batch) return require("neap.plan").run(self:program(batch)) end

--- What neap.check.nan looks at: the net of the step whose loss was not finite, or of the last one,
-- the workspace, and the fields that were fed where it no longer has them; nil before any step.
local function last_net(self)
  local bad = self.bad_batch
  local ws, rows = find_workspace(self), bad and bad.rows or self.batch
  if not rows then return nil end

  -- The check itself says where a NaN is: the guard would end the run before.
  local unguarded = setmetatable(copy(self, { nan = "off" }), Trainer) -- the check ends a run
  local net = net_of(unguarded, "train", rows, nil, bad and look_of(bad.fields) or nil)
  return net, ws, bad and bad.fields or {}
end

return {
  last_net = last_net,
  learn = learn, learn_spec = learn_spec, learn_set = learn_set, close_programs = close_programs,
  net_of = net_of, is_split = is_split, program_for = program_for, drop_held = drop_held,
  update_for = update_for, micro_rows = micro_rows, program_of = program_of,
  reserve_of = reserve_of, weights_of = weights_of,
  has_range = has_range,
}
