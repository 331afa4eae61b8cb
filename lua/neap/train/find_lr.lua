--- The learning-rate finder: steps at rates that grow, and what the loss makes of them (Smith,
-- "Cyclical learning rates", WACV 2017, section 3.3).
--
-- INVARIANT: the trainer, its model and its optimizer are afterwards as they were: the same fit
-- gives the same bits.
-- @module neap.train.find_lr
local checks = require "neap.train.checks"
local core = require "neap.core"
local programs = require "neap.train.programs"
local record = require "neap.inner.record"
local report = require "neap.report"
local state = require "neap.train.state"
local step_on = require("neap.train.step").step_on
local fail = core.fail
local Trainer, settle = state.Trainer, state.settle

local find_options = record.declare("trainer:find_lr", { call = "(set, {})",
  doc = [[t:find_lr(set, { .. }) trains for a few steps at rates that grow from one to the next by
    the same factor, and gives a Report {lr, loss}; `lr` is the rate at which the loss falls
    fastest. It ends early where the loss is four times its best or not finite. Afterwards all is as
    it was.]],
  { "from", "number", 1e-6, above = 0, doc = "the first rate" },
  { "to", "number", 1, above = 0, doc = "the last rate" },
  { "steps", "integer", 100, min = 5, doc = "how many rates there are" },
  { "smooth", "number", 0.9, min = 0, below = 1,
    doc = "share of the losses before in the mean that counts" },
  example = "t:find_lr(set, { to = 0.5, steps = 50 }).lr" })

--- Batches of one epoch after another.
local function batches_of(set)
  return coroutine.wrap(function()
    for epoch = 1, math.huge do
      for batch in set:epoch(epoch) do coroutine.yield(batch) end
    end
  end)
end

--- The rate at which smoothed losses fall fastest per factor of the rate; nil where they never do.
local function steepest(rows)
  -- Differences of two steps' distance: a single noisy loss counts less.
  local best, lr = 0, nil
  for i = 2, #rows - 1 do
    local slope = rows[i + 1].loss - rows[i - 1].loss
    if slope < best then best, lr = slope, rows[i].lr end
  end
  return lr
end

--- The loss of one step at a rate; nil where it is not finite.
local function loss_at(self, batch, lr)
  -- The schedule is the way a rate gets into a step.
  self.schedule = function() return lr end
  local ok, result = pcall(step_on, self, batch, true)
  local is_numeric = not ok and type(result) == "table" and rawget(result, "code") == "numeric"
  if not ok and not is_numeric then error(result, 0) end
  local loss = ok and result.loss
  return loss and loss - loss == 0 and loss or nil
end

local function search(self, set, o)
  local rows, mean, best, next_batch = {}, 0, math.huge, batches_of(set)
  for i = 1, o.steps do
    -- Rates grow by the same factor. The mean of losses starts at 0, and is corrected for that, as
    -- Adam's moments are.
    local lr = o.from * (o.to / o.from) ^ ((i - 1) / (o.steps - 1))
    local loss = loss_at(self, next_batch(), lr)
    if not loss then break end
    mean = o.smooth * mean + (1 - o.smooth) * loss
    local smoothed = mean / (1 - o.smooth ^ i)
    rows[i], best = { lr = lr, loss = smoothed }, math.min(best, smoothed)
    -- Early losses are too noisy to end the search.
    if smoothed > 4 * math.abs(best) and i > 5 then break end
  end
  return rows
end

local function must(ok, message)
  if not ok then error(core.error { code = "data", message = message }) end
end

--- t:find_lr(set, { from =, to =, steps = }) -> Report {lr, loss}, lr: see the record.
-- @usage t.optimizer.lr = t:find_lr(set).lr / 3
function Trainer:find_lr(set, given)
  state.check_open(self)
  state.check_not_averaged(self, "find_lr")
  checks.set("trainer:find_lr", set)
  local o = find_options:read(given)
  if o.to <= o.from then
    fail(("trainer:find_lr: to = %g expects more than from = %g"):format(o.to, o.from))
  end
  if #set == 0 then fail("trainer:find_lr: the data set has no batch") end
  settle(self)
  programs.learn_set(self, set)
  self.batch = self.batch or math.min(set:spec().batch, set:spec().n)

  -- The trainer's own checkpoint is the way back: all that a step changes is in it.
  local path = os.tmpname()
  os.remove(path)
  path = path .. ".safetensors"
  must(self:save(path))
  local schedule, records, position = self.schedule, self.records, self.position

  -- is_trying: these steps are no part of the training's run in the database.
  self.records, self.is_trying = {}, true
  local rows
  local _ <close> = setmetatable({}, { __close = function()
    self.schedule, self.is_trying = schedule, nil
    local ok, message = self:load(path)
    os.remove(path)
    must(ok, message)
    self.records, self.position = records, position
  end })
  rows = search(self, set, o)
  if #rows < 3 then
    error(core.error { code = "numeric",
      message = ("trainer:find_lr: the loss is not finite at the rate %g"):format(o.from),
      hint = "begin with a smaller one: from = 1e-9" })
  end
  return report.new { rows = rows, columns = { "lr", "loss" }, order = { "lr" },
    totals = { lr = steepest(rows) } }
end
