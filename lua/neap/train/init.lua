--- The trainer: a model, a loss and an optimizer as one program a step.
--
-- A step is one run of one program: forward, loss, backward, update. Lua runs between steps only:
-- it feeds a batch, sets the learning rate, and looks at the loss.
--
-- Here a trainer is made and closed. The folder train has the rest: state (where a run stands, and
-- calls that leave nothing behind when they fail), checks (of what is given), programs (nets, their
-- programs and plans), step (a batch, micro-batches, accumulation), evaluate (loss, metrics,
-- predictions, history), checkpoint, fit (epochs), find_lr, average (of parameters), and handle
-- (what users hold).
--
-- INVARIANT: options are checked before the model is touched: a trainer that is refused leaves it
-- as it was.
-- @module neap.train
local build = require "neap.nn.build"
local checks = require "neap.train.checks"
local core = require "neap.core"
local memory_options = require "neap.memory.options"
local nn = require "neap.nn"
local objective = require "neap.nn.objective"
local record = require "neap.inner.record"
local programs = require "neap.train.programs"
local scale = require "neap.train.scale"
local state = require "neap.train.state"
local handles = require "neap.train.handle"
local Trainer, start_position = state.Trainer, state.start_position
require "neap.train.step"
require "neap.train.evaluate"
require "neap.train.checkpoint"
require "neap.train.fit"
require "neap.train.find_lr"
require "neap.train.average"

local trainer_options = record.declare("neap.trainer", {
  doc = [[A trainer: a model, a loss and an optimizer as one program a step. t:fit trains, t:step
    runs one batch, t:evaluate measures.]],
  { "model", "module", required = true, doc = "what is trained" },
  { "optimizer", "optimizer", required = true, doc = [[how parameters are updated; what it keeps
      beside them goes on with the same optimizer in another trainer, another one starts afresh]] },
  {
    "loss", "module|function",
    unset = "nn.CrossEntropyLoss()",
    says = "a loss such as nn.CrossEntropyLoss(), or a function of (output, target)",
    doc = [[of the model's outputs and the target. A function takes, behind the outputs, the fields
      of the batch that its arguments are called after, f(y, t, lengths); the first argument of
      another name is the target, nil where the data has no y]],
  },
  {
    "losses", "table",
    unset = "the loss alone",
    says = "a list of losses { f, weight = }",
    doc = [[several losses in the place of one: { f, weight = 1, name =, output = which of the
      model's outputs it is of, target = "y" } each. Their sum, each times its weight, is the loss;
      results have the value of each by its name, loss1, loss2, ..]],
  },
  {
    "train", "names",
    unset = "all that are trainable",
    doc = [[globs of the parameters that this trainer trains, as m:freeze takes them: the others get
      no gradient, and take no bytes for one]],
  },
  {
    "metrics", "string|table",
    unset = "none",
    says = [[a name, or a table { "accuracy", name =
      f(y, t) }]],
    doc = [[the loss's own by name, or functions of the model's first output and of the target or
      other fields, as a loss takes them, that give one number for a batch, the mean of its rows':
      they are combined over micro-batches and over batches as means weighted by rows]],
  },
  {
    "schedule", "function", unset = "the optimizer's rate",
    says = "a function of (step, lr, records)",
    doc = [[the learning rate of a step, from 1, given the base rate and the records of the epochs
      so far, as t:history() has them]],
  },
  {
    "memory", "table", unset = "no limits", says = 'a table such as { budget = "64MiB" }',
    doc = [[memory options, as m:plan takes them (help "options"); a total is that of all programs,
      and t:fit leaves room for its valid data; a budget is that of each, and in per cent a share of
      each one's own plan, that of training and that of evaluation]],
  },
  {
    "dtype", "choice",
    choices = { "f32", "bf16", "f16" },
    unset = "f32",
    doc = [[mixed precision, as memory's dtype: activations, their gradients and products in bf16 or
      f16; parameters, what updates them, sums and losses stay f32, and so do checkpoints]],
  },
  scale.field,
  {
    "max_batch", "integer", min = 1, unset = "what fit, or a step, shows",
    doc = "rows of the largest batch: more are refused",
  },
  {
    "micro", "integer|choice",
    min = 1,
    choices = { "fit" },
    unset = "whole batches",
    doc = [[rows of a micro-batch, or "fit": as many as memory's budget or total, or else the
      machine, allows. Gradients are accumulated; nothing is recomputed then, unless memory has
      recompute = true: smaller micro-batches cost less]],
  },
  {
    "accumulate", "number|table",
    unset = "one",
    says = [[a number of batches, or { batches =,
      examples = }]],
    doc = [[batches to an update: it comes with the batch that reaches either number, and with the
      last one of an epoch. Gradients of a mean are weighted by what each batch counts: k batches
      are the step of one of their size, within rounding, but for batch norm and random ops. What is
      held takes as many bytes as the gradients, is in checkpoints, and is untouched by a batch that
      fails]],
  },
  {
    "reduces", "choice",
    choices = { "mean", "sum" },
    unset = "as the loss or its net tells",
    doc = [[what a loss of your own makes of its rows (or its field `reduces`). "mean": each row
      counts once, and the batch's loss is the mean of its rows' losses, so that batches and
      micro-batches are weighed by rows (labels that Neap's cross entropy ignores do not count).
      "sum": batches are added, and the loss of an epoch, of t:evaluate and of valid is the sum over
      the data. A mean over a mask, the root of a mean, a maximum or a contrastive loss is neither:
      write it as a sum over rows and say "sum". micro and accumulate must be told; else what the
      loss's net shows for certain is taken (a sum times a number is a sum, one over the number of
      rows a mean, and so is a mean plus a number), and otherwise a mean. What the net contradicts
      is refused]],
  },
  {
    "nan", "choice", "stop",
    choices = { "stop", "skip", "off" },
    doc = [[what a loss that is not
      finite does: raise, with parameters as before; pass the batch by; or nothing]],
  },
  {
    "seed", "integer", unset = "the model's", doc = "what the model's parameters and draws follow",
  },
  { "name", "name", unset = "the model's", doc = "name of its runs in the database" },
  { "grad_norm", "boolean", unset = "false", doc = [[whether steps tell the norm of all gradients,
      before they are clipped, as grad_norm, and the history its mean over an epoch's updates]] },
  { "profile", "boolean", unset = "false",
    doc = "whether the last calls of each op are kept one by one, for t:run():trace(path)" },
  { "mem_param", "table", doc = "Caffe's words for memory, as neap.mem_param takes them" },
  example = "neap.trainer { model = nn.Linear { 4, 2 }, optimizer = optim.SGD { lr = 0.1 }, "
    .. "metrics = \"accuracy\" }",
})

--- neap.trainer{model =, optimizer =, ..} -> trainer: see the record.
local function new(given)
  local o = trainer_options:read(given)
  o.memory = o.memory and memory_options.check("neap.trainer: memory", o.memory, "trainer")
  checks.metrics(o.metrics)
  local self = setmetatable({
    model = o.model,
    goal = objective.of("neap.trainer", o.loss, o.losses)
      or objective.of("neap.trainer", nn.CrossEntropyLoss {}),
    params = o.train,
    grad_norm = o.grad_norm,
    optimizer = o.optimizer,
    schedule = o.schedule,
    metrics = type(o.metrics) == "string" and { o.metrics } or o.metrics or {},
    nan = o.nan,
    name = o.name,
    programs = {},
    ranges = {},
    records = {},
    -- fed again and again: a step allocates nothing
    position = start_position(), memory = {}, known = {}, rate = core.tensor(0.0),
    micro = o.micro, most = { train = 0, eval = 0 },
  }, Trainer)
  self.metric_names = build.metric_names(self.metrics)
  checks.terms(self.goal, self.metric_names)
  self.accumulate = checks.accumulate(o.accumulate)
  checks.optimizer(o, self.accumulate)
  self.reduces = checks.reduction(o, self.goal, self.accumulate)
  if o.seed then o.model:seed(o.seed) end

  -- keep is of the training net alone, the rest of all programs.
  for key, value in pairs(o.memory or {}) do
    if key == "keep" then
      self.keep = type(value) == "string" and { value } or value
    else
      self.memory[key] = value
    end
  end

  -- Smaller micro-batches are the cheaper way to save memory.
  if o.micro == "fit" and self.memory.recompute == nil then self.memory.recompute = false end
  self.memory.dtype = o.dtype or self.memory.dtype
  checks.masters(o.model, self.memory.dtype)
  self.scale = scale.read(o.loss_scale, self.memory.dtype, self.accumulate)
  if o.profile then self.memory.profile = true end
  if o.mem_param ~= nil then self.memory.mem_param = o.mem_param end

  -- max_batch is the trainer's: its programs are made within ranges, which it plans itself.
  self.max_batch, self.memory.max_batch = self.memory.max_batch or o.max_batch, nil
  self.most.train = self.max_batch or 0
  self.handle = handles.new(self)
  record.note(self.handle, o)
  return self.handle
end

--- t:close() gives its programs back. What is known so far can still be looked at and saved; a step
-- is refused.
function Trainer:close()
  programs.close_programs(self)
  if self.run_row then self.run_row:close() end
  self.run_row, self.is_closed = nil, true
end
Trainer.__close = Trainer.close
Trainer.__tostring = function(self)
  return ("trainer of %s: step %d, epoch %d, optim.%s"):format(
    self.name or self.model._class, self.position.step, self.position.epoch, self.optimizer.name)
end

require("neap.inner.guard").functions(Trainer, "trainer:")
handles.complete(trainer_options.fields)
return new

