--- The trainer: a model, a loss and an optimizer as one program a step.
--
-- A step is one run of one program: forward, loss, backward, update. Lua runs between steps only: it feeds a batch, sets the
-- learning rate, and looks at the loss.
--
-- Here a trainer is made and closed. The folder train has the rest: state (where a run stands, and calls that leave nothing behind
-- when they fail), checks (of what is given), programs (nets, their programs and plans), step (a batch, micro-batches, accumulation),
-- evaluate (loss, metrics, predictions, history), checkpoint, and fit (epochs), handle (what users hold).
--
-- INVARIANT: options are checked before the model is touched: a trainer that is refused leaves it as it was.
-- @module neap.train
local build = require "neap.nn.build"
local checks = require "neap.train.checks"
local core = require "neap.core"
local memory_options = require "neap.memory.options"
local nn = require "neap.nn"
local options = require "neap.inner.options"
local programs = require "neap.train.programs"
local state = require "neap.train.state"
local handles = require "neap.train.handle"
local fail = core.fail
local none = options.none
local Trainer, start_position = state.Trainer, state.start_position
require "neap.train.step"
require "neap.train.evaluate"
require "neap.train.checkpoint"
require "neap.train.fit"

--- A loss given as a function of (output, target), or of several outputs and the target, is a module whose target looks like the
-- data's.
local function as_loss(loss)
  if type(loss) ~= "function" then return loss end
  return nn.module { "Loss", name = "loss", init = function(self) self.f = loss end, forward = function(self, ...) return self.f(...) end } {}
end

local trainer_spec = { model = none, loss = none, optimizer = none, metrics = none, schedule = none, memory = none, dtype = none, micro = none,
  seed = none, nan = "stop", name = none, profile = none, max_batch = none, mem_param = none, reduces = none, accumulate = none }

--- Makes a trainer.
-- @param given table { model =, loss = nn.CrossEntropyLoss() or f(y, t), optimizer =,
--   metrics = {"accuracy", name = f(y, t)}: the loss's own by name, or functions of the model's first output and the target that give one
--   number for a batch, the mean of its rows': they are combined over micro-batches and over batches as means weighted by rows,
--   schedule = f(step, lr) -> lr, memory = {budget =, .. as m:plan}, seed =, nan = "stop"|"skip"|"off", name =, profile = bool,
--   reduces = "mean" | "sum": what a loss of your own makes of its rows (or its field `reduces`). "mean": each row counts once, and the
--   batch's loss is the mean of its rows' losses (labels that Neap's cross entropy ignores do not count), so that batches and micro-batches
--   are weighed by rows, and an epoch's loss is a mean. "sum": it is their sum, batches are added, and the loss of an epoch, of
--   t:evaluate and of valid is the sum over the data, whatever the batches. A mean over a mask, the root of a mean, a maximum or a
--   contrastive loss is neither: write it as a sum over rows, scaled by a constant where wanted, and say "sum". micro and accumulate must
--   be told; else what the loss's net shows for certain is taken, and otherwise a mean. What the net contradicts is refused,
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
  o.memory = o.memory and memory_options.check("neap.trainer: memory", o.memory, "trainer")
  checks.sizes(o)
  checks.metrics(o.metrics)
  local self = setmetatable({ model = o.model, loss = as_loss(o.loss) or nn.CrossEntropyLoss {}, optimizer = o.optimizer, schedule = o.schedule,
    metrics = type(o.metrics) == "string" and { o.metrics } or o.metrics or {}, nan = o.nan, name = o.name, programs = {}, ranges = {}, records = {},
    position = start_position(), memory = {}, known = {}, rate = core.tensor(0.0), -- fed again and again: a step allocates nothing
    micro = o.micro, most = { train = 0, eval = 0 } }, Trainer)
  self.needs_no_target = type(o.loss) == "function" -- it is given nil where the data has no y
  self.metric_names = build.metric_names(self.metrics)
  self.accumulate = checks.accumulate(o.accumulate)
  self.reduces = checks.reduction(o, self.loss, self.accumulate)
  if o.seed then o.model:seed(o.seed) end
  for key, value in pairs(o.memory or {}) do
    if key == "keep" then self.keep = type(value) == "string" and { value } or value else self.memory[key] = value end
  end
  if o.micro == "fit" and self.memory.recompute == nil then self.memory.recompute = false end
  if o.profile then self.memory.profile = true end
  if o.mem_param ~= nil then self.memory.mem_param = o.mem_param end
  self.max_batch, self.memory.max_batch = self.memory.max_batch or o.max_batch, nil
  self.most.train = self.max_batch or 0
  self.handle = handles.new(self)
  return self.handle
end

--- t:close() gives its programs back. What is known so far can still be looked at and saved; a step is refused.
function Trainer:close()
  programs.close_programs(self)
  self.is_closed = true
end
Trainer.__close = Trainer.close
Trainer.__tostring = function(self)
  return ("trainer of %s: step %d, epoch %d, optim.%s"):format(self.name or self.model._class, self.position.step, self.position.epoch, self.optimizer.name)
end

require("neap.inner.guard").functions(Trainer, "trainer:")
handles.complete(trainer_spec)
return new


