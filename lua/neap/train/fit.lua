--- Fit: epochs over a data set, with validation, patience, checkpoints and a resumed run.
--
-- INVARIANT: what fit does depends on the checkpoint, the data set's seed and the trainer's seed
-- alone, so that a resumed run goes on with the same bits.
-- @module neap.train.fit
local best_prefix = require("neap.train.checkpoint").best_prefix
local checks = require "neap.train.checks"
local core = require "neap.core"
local exists = require("neap.inner.files").exists
local fit_batch = require "neap.memory.fit_batch"
local net_module = require "neap.net"
local programs = require "neap.train.programs"
local progress = require "neap.progress"
local record = require "neap.inner.record"
local state = require "neap.train.state"
local fail = core.fail
local Trainer, copy, settle, means, learnt, check_open = state.Trainer, state.copy, state.settle,
  state.means, state.learnt, state.check_open
local start_position, find_workspace, attempt = state.start_position, state.find_workspace,
  state.attempt
local measured = state.measured
local check_set, check_valid, take_checkpoint = checks.set, checks.valid, checks.checkpoint
local learn_set, step_on = programs.learn_set, require("neap.train.step").step_on

local fit_options = record.declare("trainer:fit", {
  call = "(set, {})",
  doc = [[t:fit(set, { .. }) trains and gives a Report as of t:history(). A fit begins an epoch;
    with `resume` it goes on where the checkpoint file stands, or, without a file, where this
    trainer was stopped, in the middle of an epoch too, until the epochs or steps first asked for
    are done. From a file it goes on with the learning rate and seed of the run that was stopped,
    whatever this trainer was made with. To go on with another rate: t:load(path), t.optimizer.lr =
    rate, then t:fit with resume and another checkpoint file, or none.]],
  { "epochs", "integer", min = 0, unset = "1, or as many as `steps` needs", doc = "epochs to run" },
  { "steps", "integer", min = 0, unset = "as the epochs are long", doc = "updates to run at most" },
  { "valid", "data", unset = "none", doc = "data set that each epoch ends with a look at" },
  { "valid_every", "integer", min = 1, unset = "epochs alone",
    doc = "steps from one look at valid to the next: each is a row of the history" },
  {
    "checkpoint", "string|table", unset = "none", says = "a path, or { path, every = steps }",
    doc = "file, .safetensors, that each epoch is written to, and every so many steps",
  },
  { "resume", "boolean", false, doc = "whether to go on where the checkpoint stands" },
  {
    "patience", "integer",
    min = 0,
    unset = "no limit",
    doc = [[epochs without a better (validation)
      loss after which the fit ends; the model has the parameters of the best one then, which lie
      beside its own meanwhile: a total counts them]],
  },
  { "verbose", "integer", 1, min = 0, max = 2, doc = "how much is printed" },
  { "on_step", "function", doc = "f(result of a step, t): false ends the fit" },
  { "on_epoch", "function", doc = "f(record of an epoch, t): false ends the fit" },
  example = 't:fit(set, { epochs = 3, valid = other, checkpoint = "run.safetensors" })',
})

-- ---- where to start -----------------------------------------------------------------------------

local function must(ok, message, code)
  if not ok then error(core.error { code = code or "data", message = message }) end
  return ok
end

--- What decides which rows the batches of an epoch have.
local function order_of(set)
  local spec = set:spec()
  return ("%d rows in %d batches of %d, %s"):format(
    spec.n, #set, spec.batch,
    set.shuffle and "shuffled by seed " .. tostring(set.seed) or "in order")
end

--- Raises where an epoch that is under way would go on with batches of another order; a new epoch
-- may have any.
-- From the file, when there is one: it is what will be loaded. Else from where this trainer stands.
local function check_order(self, o, order)
  local was, in_epoch = self.position.order, self.position.in_epoch
  if o.path and exists(o.path) then
    local _, meta = core.load(o.path, { map = "r" })
    if type(meta) ~= "table" then return end -- the load says why
    was, in_epoch = meta["trainer.order"], tonumber(meta["trainer.in_epoch"]) or 0
  end
  if was == nil or was == order or in_epoch == 0 then return end
  error(core.error {
    code = "data",
    message = ("fit: it was stopped in an epoch of %s, and is resumed on %s"):format(was, order),
    expected = was,
    got = order,
    hint = "resume on the data set it was stopped on, or begin an epoch: t:load(path), then fit \z
      without resume",
  })
end

--- Where to start and where to stop.
local function begin(self, o, order)
  -- Before the file is loaded: a refusal changes nothing.
  if o.resume then check_order(self, o, order) end
  if o.resume and o.path and exists(o.path) then must(self:load(o.path)) end
  if o.resume and o.path and not exists(o.path) and self.position.batches == 0 then
    io.stderr:write(("neap: no checkpoint at %s: training begins anew\n"):format(o.path))
  end
  if not o.resume then -- a fit of its own begins an epoch
    local p = self.position
    local epoch = p.epoch + (p.in_epoch > 0 and 1 or 0)
    self.position = copy(start_position(), {
      step = p.step,
      batches = p.batches,
      epoch = epoch,
      first_epoch = epoch,
      first_step = p.step,
      held_batches = p.held_batches,
      held_rows = p.held_rows,
      held_count = p.held_count,
    })
  end
  self.position = copy(self.position, { order = order })

  -- Epochs and steps count from where the fit began, so that a resumed one ends where it would
  -- have.
  local p = self.position
  local epochs = o.epochs or (o.steps and math.huge or 1)
  return p.first_epoch + epochs, o.steps and p.first_step + o.steps or math.huge
end

-- ---- the end of an epoch ------------------------------------------------------------------------

local function mean_of(self)
  return means(self, self.position.sums, self.position.rows, self.position.counted)
end

--- A record of the epoch under way as it stands now, valid data looked at.
-- @return record, {name = value} for the screen
local function record_of(self, o, epoch, seconds)
  -- Means of the epoch so far, and what the valid data says of the parameters as they are.
  local record = copy(mean_of(self), {
    epoch = epoch,
    step = self.position.step,
    lr = self.last_lr,
    seconds = seconds,
  })
  local shown = { loss = record.loss }
  for _, name in ipairs(measured(self)) do shown[name] = record[name] end
  if o.valid then
    local valid = self:evaluate(o.valid)
    record.valid = { n = valid.n }
    for _, name in ipairs { "loss", table.unpack(measured(self)) } do
      record.valid[name], record["valid_" .. name], shown["valid " .. name] = valid[name],
        valid[name], valid[name]
    end
  end
  return record, shown
end

--- A look at valid data within an epoch is a record beside those of epochs.
local function look_within(self, o, start)
  local record = record_of(self, o, self.position.epoch + 1, core.clock() - start)
  record.within = 1
  self.records[#self.records + 1] = record
  for name, value in pairs(self.run_row and record.valid or {}) do
    if name ~= "n" then self.run_row:metric("valid_" .. name, record.step, value) end
  end
end

--- What ends an epoch, or the last part of one: validation, the record, the line on the screen.
local function end_epoch(self, o, epoch, seconds, bar)
  local record, shown = record_of(self, o, epoch, seconds)
  bar:finish(shown)

  -- A resumed epoch has a record already: it is replaced, and its seconds are added.
  local last = self.records[#self.records]
  -- it was stopped in this epoch
  local goes_on = last ~= nil and last.epoch == epoch and not last.within
  if goes_on then record.seconds = record.seconds + last.seconds end
  self.records[#self.records + (goes_on and 0 or 1)] = record
  -- beside those of single steps, which have the plain names
  for name, value in pairs(self.run_row and shown or {}) do
    local of_epoch = name:gsub(" ", "_")
    if not name:find("^valid ") then of_epoch = "epoch_" .. of_epoch end
    self.run_row:metric(of_epoch, record.step, value)
  end
  return record
end

-- The best parameters so far lie in the workspace beside the others, as state that goes into
-- checkpoints: a run that is resumed knows them too. Under a total they are made before the first
-- step, so that no epoch is trained whose parameters there is no room for. Until an epoch is better
-- than none, `position.best` is infinite and they hold nothing.

local function hold_best(self)
  local net = net_module.new "best"
  for _, name in ipairs(self.model:blob_names()) do
    local t = self.ws:view(name)
    net:declare(best_prefix .. name, "state", t.shape, t.dtype, { op = "Constant", value = 0 },
      false)
  end
  self.ws:init(net)
end

local function keep_best(self)
  local names = self.model:blob_names()
  -- within the total, too, where what the data looks like was not known before
  attempt(self, nil, self.ws, hold_best)
  for _, name in ipairs(names) do self.ws:feed(best_prefix .. name, self.ws:view(name)) end
end

--- The parameters are those of the best epoch, if there was one, and these are no longer kept
-- apart.
local function restore_best(self)
  for _, name in ipairs(self.model:blob_names()) do
    local kept = best_prefix .. name
    if self.ws:has(kept) then
      if self.position.best < math.huge then self.ws:feed(name, self.ws:view(kept)) end
      self.ws:remove(kept)
    end
  end
end

--- The next epoch begins; patience is counted. @return whether patience is at its end
-- Valid data judges where there is any, else the training loss.
local function turn_epoch(self, o, epoch, record)
  local judged = record.valid and record.valid.loss or record.loss
  local better = judged and judged < self.position.best

  -- One assignment: an interruption finds either the old position or the new one.
  self.position = copy(self.position, {
    epoch = epoch,
    in_epoch = 0,
    rows = 0,
    counted = 0,
    sums = {},
    best = better and judged or self.position.best,
    since = better and 0 or self.position.since + 1,
  })
  if o.patience == nil then return false end
  if better then keep_best(self) end
  return self.position.since >= o.patience
end

-- ---- the loop -----------------------------------------------------------------------------------

--- The rest of the epoch under way. @return whether on_step has ended the fit
local function run_epoch(self, set, o, last_step, bar, start)
  -- From the batch behind the last one that was trained on; `last` tells that an update is due
  -- whatever is held.
  for batch in set:epoch(self.position.epoch + 1, self.position.in_epoch + 1) do
    local result = step_on(self, batch, self.position.in_epoch + 1 >= #set)
    bar:update(self.position.in_epoch, mean_of(self))
    local stop = o.on_step and o.on_step(result, self.handle) == false

    -- While batches are held the step count stands still: without `updated` the same look, and the
    -- same file, would come with each of them.
    local is_look = o.valid_every and result.updated and result.step % o.valid_every == 0
    if is_look then look_within(self, o, start) end
    if o.every and self.position.step % o.every == 0 and result.updated then
      must(self:save(o.path))
    end
    if stop then return true end
    if self.position.step >= last_step then break end
  end
  -- what is held though the last batch was passed by
  if self.position.in_epoch >= #set then self:update() end
end

--- How many batches of an epoch are expected, for the bar on the screen.
local function goal_of(self, total, last_step)
  -- Batches, not updates, are what the bar counts.
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
    local bar <close> = progress.new {
      title = "epoch " .. epoch,
      total = goal,
      verbose = o.verbose,
      first = self.position.in_epoch,
    }
    local scale = self.position.loss_scale
    local stop = run_epoch(self, set, o, last_step, bar, start)

    if self.position.rows == 0 then
      -- Skipped steps count nothing: an epoch of them alone has no mean, and would go on forever.
      -- Unless the scale of the loss has come down with them: by that one it begins again.
      if self.position.loss_scale == scale then
        error(core.error { code = "numeric", message = "no step of the epoch had a finite loss" })
      end
      if self.position.in_epoch >= total then
        self.position = copy(self.position, { in_epoch = 0 })
      end
    else
      -- The record, then patience, then the file: so that a resumed run finds all three.
      local record = end_epoch(self, o, epoch, core.clock() - start, bar)
      if self.position.in_epoch >= total then stop = turn_epoch(self, o, epoch, record) or stop end
      if o.path then must(self:save(o.path)) end
      if o.on_epoch and o.on_epoch(record, self.handle) == false then stop = true end
    end
    if stop then break end
  end
  if o.patience then restore_best(self) end
  return self:history()
end

--- The programs of a step and, where `rows` are given, of an evaluation of so many; and with
-- `patience` the room for the best parameters. A total is that of all, so that the step's leaves
-- the others room: what a refusal of the first names will do for all.
local function make_all(self, rows, patience)
  local is_planned = programs.has_range(self.memory)

  -- A step may be of one row: with "fit" the micro-batch is not known before.
  if self.memory.total ~= nil and is_planned then
    local step_rows = self.micro == "fit" and 1 or self.micro or self.batch
    step_rows = math.min(step_rows, self.batch)
    local reserve = rows and programs.reserve_of(self, rows, step_rows) or { 0, 0 }
    local best = patience and programs.weights_of(self, best_prefix) or 0

    -- The step is made as if the rest were held already. Then the rest is made in the room it left.
    self.reserve = { reserve[1] + best, reserve[2] }
    programs.program_of(self, self.batch)
    self.reserve = reserve -- the best parameters are held from here on
  end
  if patience and is_planned then hold_best(self) end
  if rows then programs.program_for(self, rows, "eval") end
end

--- A limit may refuse the look at other data, or what patience keeps: they are made first, so that
-- no epoch is trained before that.
local function prepare(self, o)
  local keeps = o.patience ~= nil and self.memory.total ~= nil

  -- Without limits nothing can be refused, and programs are made when they are needed.
  if self.fields == nil or not (o.valid or keeps) then return end
  if self.micro == "fit" then fit_batch.limit(self) end
  if self.memory.total == nil and self.memory.budget == nil then return end
  local spec = o.valid and o.valid:spec()
  local rows = spec and math.min(spec.batch, spec.n)
  attempt(self, nil, find_workspace(self), make_all, rows, keeps)
end

--- A model may not take the valid data's sizes: that is known before an epoch has gone.
local function check_sizes(self, valid, refuse)
  local fields = self.fields

  -- The net alone, without a plan: shapes are what is in question.
  learn_set(self, valid)
  local spec = valid:spec()
  local ok, err = pcall(programs.net_of, self, "eval", math.min(spec.batch, spec.n))
  if not ok then refuse(type(err) == "table" and rawget(err, "message") or tostring(err)) end
  self.fields = fields
end

--- What the data looks like is learnt first.
-- @param refuse f(why) raises, where the valid data's examples have other sizes
local function begin_fit(self, set, o, refuse)
  local spec = set:spec()
  learn_set(self, set)
  if refuse and self.fields then check_sizes(self, o.valid, refuse) end
  self.batch = math.min(spec.batch, spec.n)
  self.most.train = math.max(self.most.train, self.batch)
  if #set == 0 then fail("fit: the data set has no batch") end
  prepare(self, o)
  return fit(self, set, o)
end

--- One fit of a trainer at a time: another one inside would move the epoch under the first one's
-- feet. @return what ends it
local function begin_once(self)
  if self.is_fitting then
    error(core.error {
      code = "argument",
      message = "fit: this trainer is in a fit already, whose on_step, on_epoch or data called it",
      hint = "return false from on_step or on_epoch to end the fit, and begin the next one then; "
        .. "t:step, t:evaluate and t:predict may be called meanwhile",
    })
  end
  self.is_fitting = true
  return setmetatable({}, { __close = function() self.is_fitting, self.reserve = nil, nil end })
end

--- t:fit(set, {epochs =, ..}) -> Report as of t:history(): see the record.
function Trainer:fit(set, given)
  check_open(self)
  state.check_not_averaged(self, "fit")
  check_set("fit", set)
  local o = fit_options:read(given, "fit")
  local refuse = check_valid(self, set, o.valid)
  if o.valid_every and not o.valid then fail("fit: valid_every expects data in valid") end
  local _ <close> = begin_once(self)
  take_checkpoint(o)
  if core.clear_interrupt then core.clear_interrupt() end -- the next Ctrl-C is caught again
  find_workspace(self)
  settle(self)
  local was, most = {}, copy(self.most)
  for _, key in ipairs(learnt) do was[key] = self[key] end
  local ok, result = pcall(begin_fit, self, set, o, refuse)
  local run = self.run_row
  if run and ok then
    run:stop()
  elseif run then
    run:stop(result) -- a script may raise nil, too
  end
  if ok then return result end

  -- The run has ended by an error: what happened is counted, what only was learnt from data is
  -- forgotten.
  settle(self)
  -- what the data looks like is forgotten: each step did so itself
  if self.position.batches == was.position.batches and not o.resume then
    for _, key in ipairs(learnt) do self[key] = was[key] end
    self.most = most
  end

  -- Ctrl-C leaves a file to resume from; after any other error the last one stands.
  if o.path and type(result) == "table" and result.code == "interrupted" then
    must(self:save(o.path))
  end
  error(result, 0)
end

