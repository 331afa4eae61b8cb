--- A training step: a batch fed, run as one program, or as micro-batches and what follows them, and
-- counted.
--
-- With `accumulate` not every batch is followed by an update: what is held of those before is
-- weighed against the next one by what each counts (neap.train.micro).
--
-- INVARIANT: `position.pending` is set before a run and settled behind it (neap.train.state), so
-- that a step is counted once, if it happened.
-- @module neap.train.step
local batches = require "neap.data.batch"
local checks = require "neap.train.checks"
local core = require "neap.core"
local micro = require "neap.train.micro"
local options = require "neap.inner.options"
local programs = require "neap.train.programs"
local scale = require "neap.train.scale"
local state = require "neap.train.state"
local Trainer, copy, attempt, settle, find_workspace = state.Trainer, state.copy, state.attempt,
  state.settle, state.find_workspace
local program_for, update_for, micro_rows, is_split, learn = programs.program_for,
  programs.update_for, programs.micro_rows, programs.is_split, programs.learn
local check_most, skip = checks.most, state.skip

-- ---- what goes in -------------------------------------------------------------------------------

local function feed(self, batch)
  for name, t in pairs(batch.fields) do self.ws:feed(name, t) end
end

--- Raises unless lr is a rate that an update can take.
local function check_rate(self, lr)
  if type(lr) == "number" and lr >= 0 and lr < math.huge then return end
  local got = type(lr) == "number" and ("%g"):format(lr) or options.shown(lr)
  if lr ~= lr then got = "NaN" end
  error(core.error {
    code = "argument",
    expected = "a finite number of at least 0",
    got = got,
    message = ("%s: a finite number of at least 0 is expected as the rate of step %d, got \z
      %s"):format(
      self.schedule and "the schedule" or "lr of optim." .. self.optimizer.name,
      self.position.step + 1, got),
    hint = "parameters and optimizer are as before it",
  })
end

local function feed_rate(self)
  -- The schedule sees the step that comes, from 1.
  local lr = self.optimizer.lr
  if self.schedule then lr = self.schedule(self.position.step + 1, lr, self.records) end
  check_rate(self, lr)

  -- The rate is a blob that the update reads: another one needs no new program.
  self.rate:set(lr)
  self.last_lr = lr
  self.ws:feed("lr", self.rate)
  scale.feed(self)
  return lr
end

-- ---- losses that are not finite -----------------------------------------------------------------

local function is_not_finite(err)
  return type(err) == "table" and err.op == "CheckFinite"
    or tostring(err):find("where a finite number is expected", 1, true) ~= nil
end

local function not_finite(self, err)
  local word = tostring(err):match "(%-?%a+) at element" or "not finite"
  return core.error {
    code = "numeric",
    message = ("the loss is %s at step %d; parameters and optimizer are as before it"):format(
      word, self.position.step + 1),
    op = "CheckFinite",
    got = word,
    hint = "try a smaller learning rate or optim's clip, or nan = \"skip\" to pass such batches by",
  }
end

--- The same of gradients, by a scale that can't be smaller, or is not to be.
local function gradients_not_finite(self, err)
  return core.error {
    code = "numeric",
    message = ("the gradients are not finite at step %d, with loss_scale = %g; parameters and \z
      optimizer are as before it"):format(self.position.step + 1, scale.now(self)),
    op = "CheckFinite",
    got = tostring(err):match "(%-?%a+) at element" or "not finite",
    hint = self.scale.dynamic and "try a smaller learning rate, or optim's clip"
      or "try loss_scale = \"dynamic\", or a smaller one; nan = \"skip\" passes such batches by",
  }
end

--- What follows a run that a number which is not finite has stopped: an error, or its batch is
-- passed by.
local function drop(self, err)
  local is_overflow = scale.is_overflow(err)
  local changes = is_overflow and scale.shrunk(self) or nil
  if self.nan == "stop" and not changes then
    error((is_overflow and gradients_not_finite or not_finite)(self, err), 0)
  end
  skip(self, changes)
end

-- ---- accumulation -------------------------------------------------------------------------------

--- What follows the parts of a batch: the update, or a sum where it does not come yet.
-- @param last bool whether the epoch ends with this batch
-- @return table as of micro.run, whether it updates
local function after_batch(self, update, count, rows, last)
  -- An update is due at the end of an epoch, when nothing is accumulated, or when either number is
  -- reached.
  local p, a = self.position, self.accumulate
  local has_held = p.held_batches > 0
  local updates = last
    or a == nil
    or p.held_batches + 1 >= (a.batches or math.huge)
    or p.held_rows + rows >= (a.examples or math.huge)

  -- Nothing is held and the update comes: the batch's gradients go in as they are.
  if updates and not has_held then return { last = update.program }, true end

  -- Else what is held and what comes are weighed by what their means count: (kept, added) add up to
  -- 1 for a mean.
  local kept, added = micro.shares(self.reduces, has_held and p.held_count or nil, count)
  return {
      last = updates and update.program or self.programs.hold.program,
      join = updates and self.programs.join.program or nil,
      kept = kept,
      added = added,
    },
    updates
end

--- A batch of which a mean counts nothing has no share in an accumulation: it runs only where
-- nothing else of it does.
local function is_passed(self, count, updates)
  return self.accumulate ~= nil
    and self.reduces == "mean"
    and count == 0
    and (not updates or self.position.held_count > 0)
end

--- Ends such a batch: with the update by what is held, or with a count alone.
local function pass(self, update, after, updates, rows)
  -- Counted as a step in `settle`, whether or not there is something to run.
  self.position.pending = {
    count = micro.count(self.ws),
    before = self.ws:step(),
    updates = updates,
    passed = not updates,
    counted = 0,
    entry = update,
    rows = rows,
  }
  if not updates then return true end
  return pcall(core.run_micro, self.ws, {}, {}, after.last, after.join, 1, 0)
end

-- ---- a step -------------------------------------------------------------------------------------

--- Forward, backward and update as one program.
local function run_whole(self, batch, rows)
  local entry = program_for(self, rows, "train")
  feed(self, batch)

  -- Noted before the run, so that an interruption in it can be told from one before.
  self.position.pending = {
    before = self.ws:step(),
    updates = true,
    entry = entry,
    blobs = entry.blobs,
    rows = rows,
    counted = micro.count_of(self.goal, batch),
  }
  return pcall(entry.program.run, entry.program)
end

--- The same as micro-batches and an update. Values are weighted as the gradients are.
local function run_micro(self, batch, rows, last)
  local size = micro_rows(self, rows)
  local first = program_for(self, size, "micro")
  local update = update_for(self, first.update)

  -- Programs of a last, smaller part come from the same table.
  local parts = micro.parts(self.goal, self.reduces, batch, size, function(n)
    return program_for(self, n, "micro").program
  end)
  local count = micro.count_of(self.goal, batch)
  local after, updates = after_batch(self, update, count, rows, last)
  -- A batch whose labels all are ignored has no gradient, and must not weigh on the others.
  if is_passed(self, count, updates) then return pass(self, update, after, updates, rows) end
  self.position.pending = {
    count = micro.count(self.ws),
    before = self.ws:step(),
    updates = updates,
    counted = count,
    entry = update,
    blobs = first.blobs,
    rows = rows,
  }
  return pcall(micro.run, self.ws, batch, parts, after)
end

--- What the step measured goes to the database's row of the training.
local function record_step(self, values, result)
  local run = self.run_row
  if not run or self.is_trying then return end -- the finder's steps are no training
  for name, value in pairs(values) do run:metric(name, result.step, value) end
  if result.updated then run:step(result.step, result.ms) end
end

--- The batch whose loss is not finite, for neap.check.nan: copies, since buffers are used again.
local function keep_batch(self, batch)
  local fields = {}
  for name, t in pairs(batch.fields) do fields[name] = t:clone() end
  self.bad_batch = { fields = fields, rows = batch.rows }
end

local function step(self, batch, last)
  learn(self, batch.fields)
  rawset(self.model, "_seen", batches.inputs(self.model, self.fields))
  local rows = batch.rows

  -- The first batch decides the size that plans are made for without data.
  self.batch = self.batch or rows
  local lr = feed_rate(self)
  local used_scale = self.scale and scale.now(self) -- of this step
  local start = core.clock()
  local ok, err = (is_split(self) and run_micro or run_whole)(self, batch, rows, last)
  local result = {
    ms = (core.clock() - start) * 1e3,
    lr = lr,
    loss_scale = used_scale,
    updated = ok and self.position.pending.updates,
  }
  if not ok then
    -- The program has stopped before anything was written: only a loss that is not finite is the
    -- step's own affair.
    if not is_not_finite(err) then error(err, 0) end
    keep_batch(self, batch)
    settle(self)

    -- A batch that is passed by counts in the epoch alone.
    drop(self, err)
    result.skipped, result.loss, result.step = true, 0 / 0, self.position.step
  else
    result.loss = 0 / 0 -- of what counts nothing
    local values = settle(self)
    for name, value in pairs(values) do result[name] = value end
    result.step = self.position.step
    record_step(self, values, result)
  end
  if self.accumulate then result.accumulated = self.position.held_rows end
  result.held_bytes = self.ws:held_bytes()
  return result
end

local function step_on(self, batch, last)
  state.check_not_averaged(self, "step")
  local read = batches.read(self.model, batch)
  check_most(self, "trainer:step", read.rows)

  -- What the trainer has done before without an error, it has learnt: attempt then takes no notes.
  local known = { "step", read.rows }
  for i, name in ipairs(options.keys(read.fields)) do
    known[2 + i] = table.concat(read.fields[name].shape, ",")
  end
  return attempt(self, table.concat(known, " "), find_workspace(self), step, read, last)
end

--- One step on one batch {x =, y =}: tensors of n rows. Fields of other names are taken by
-- arguments of forward and of losses, {ids =, lengths =, y =}; several inputs also go by number,
-- {x1 =, x2 =, y =}, or as a list, {x = {a, b}, y =}. The sizes of examples may change from batch
-- to batch: each has a program of its own, in the bytes of the largest. What is wrong with the data
-- raises, and changes nothing. With `accumulate` not every batch is followed by an update: `step`
-- counts updates, `updated` tells whether this batch was, `accumulated` how many examples are held
-- for the next one.
-- @return table {step, loss, <metric>, ms, lr, held_bytes (of the model's workspace), skipped,
--   updated, accumulated, loss_scale (where the trainer has one)}
function Trainer:step(batch) return step_on(self, batch, false) end

local function update_held(self)
  local first = program_for(self, micro_rows(self, self.batch or 1), "micro")
  local update = update_for(self, first.update)
  local lr = feed_rate(self)

  -- As if an empty batch came: nothing is added, and no rows are counted.
  self.position.pending = {
    count = micro.count(self.ws),
    updates = true,
    entry = update,
    rows = 0,
    counted = 0,
    no_batch = true,
  }
  local start = core.clock()
  core.run_micro(self.ws, {}, {}, update.program, self.programs.join.program, 1, 0)
  settle(self)
  local ms = (core.clock() - start) * 1e3
  record_step(self, {}, { step = self.position.step, updated = true, ms = ms })
  return {
    step = self.position.step,
    lr = lr,
    updated = true,
    accumulated = 0,
    held_bytes = self.ws:held_bytes(),
  }
end

--- Updates by the batches that are held (`accumulate`), without another one.
-- @return table {step, lr, updated, accumulated, held_bytes}, or nil when none is held
function Trainer:update()
  state.check_not_averaged(self, "update")
  settle(self)
  local p = self.position

  -- Held batches of ignored labels alone have gradients of zero: no update.
  if self.reduces == "mean" and p.held_count == 0 then -- what is held counts nothing
    self.position = copy(p, { held_batches = 0, held_rows = 0 })
    return nil
  end
  if p.held_batches == 0 then return nil end
  return attempt(self, nil, find_workspace(self), update_held)
end

return { feed = feed, step_on = step_on }
