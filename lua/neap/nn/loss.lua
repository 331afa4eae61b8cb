--- Losses: modules of (output, target) that give one number. `target` says what labels fit an
-- output, `metric` what else can be measured on the same pair.
-- @module neap.nn.loss
local fail = require("neap.core").fail
local module = require "neap.nn.module"
local records = require("neap.op").records

local Module = module.Module

local function loss_class(name, spec)
  spec.name, spec[1] = "loss", name
  local init = spec.init
  -- How rows become one number: what gradients of micro-batches are weighted by. A loss of your own
  -- says it too: "mean" or "sum".
  function spec.init(self, o)
    self.reduces = "mean"
    if init then init(self, o) end
  end
  return module.class(spec)
end

local function like_output(_, output) return output.shape, output.dtype end

--- What any regression can be measured by.
local function regression_metric(self, name, y, t)
  if name == "mae" then return (y.net:op("L1Loss", { y, t }, { "mae" }, {})) end
  if name == "mse" then return (y.net:op("MseLoss", { y, t }, { "mse" }, {})) end
  fail(("%s knows the metrics \"mae\" and \"mse\", not \"%s\""):format(self._class, tostring(name)))
end

local loss = {}

loss.CrossEntropyLoss = loss_class("CrossEntropyLoss", {
  options = {
    doc = [[Softmax and cross entropy, mean over rows. Labels are integers from 0, shape
      of the logits without the last dimension.]],
    { of = "SoftmaxCrossEntropy.label_smoothing" },
    {
      of = "SoftmaxCrossEntropy.ignore_index",
      doc = [[label of rows that do not count: neither in
      the mean, nor where the trainer weighs micro-batches, batches held and those it
      evaluates]],
    },
    example = "nn.CrossEntropyLoss { label_smoothing = 0.1 }",
  },
  init = function(self, o)
    self.o = { label_smoothing = o.label_smoothing, ignore_index = o.ignore_index }
  end,
  target = function(_, output)
    local shape = {}
    for d = 1, #output.shape - 1 do shape[d] = output.shape[d] end
    return shape, "i64"
  end,
  forward = function(self, logits, labels)
    return (Module.op(self, "SoftmaxCrossEntropy", { logits, labels }, self.o))
  end,
  metric = function(self, name, logits, labels)
    if name ~= "accuracy" then
      fail("CrossEntropyLoss knows the metric \"accuracy\", not \"" .. tostring(name) .. "\"")
    end
    return (logits.net:op("Accuracy", { logits, labels }, { "accuracy" }, {
      ignore_index = self.o.ignore_index,
    }))
  end,
})

loss.MseLoss = loss_class("MseLoss", {
  options = { doc = "Mean of the squared differences.", example = "nn.MseLoss()" },
  target = like_output, metric = regression_metric,
  forward = function(self, y, t) return (Module.op(self, "MseLoss", { y, t })) end })

loss.L1Loss = loss_class("L1Loss", {
  options = { doc = "Mean of the absolute differences.", example = "nn.L1Loss()" },
  target = like_output, metric = regression_metric,
  forward = function(self, y, t) return (Module.op(self, "L1Loss", { y, t })) end })

--- A loss that is one op of (output, target), whose options are the attributes of the op. It gives
-- one number, or with reduction = "none" the terms, for a sum of one's own.
-- @param name string of the class and of the op
-- @param spec table of what is not as for a regression: target, metric
local function one_op(name, spec)
  local r = records[name]
  local options = { doc = ("%s %s."):format(r.summary, r.math), example = ("nn.%s()"):format(name) }
  for i, a in ipairs(r.attrs) do options[i] = { of = name .. "." .. a.name } end
  return loss_class(name, {
    options = options,
    target = spec.target or like_output,
    operands = spec.operands, -- of as many outputs there is no target
    metric = spec.metric or regression_metric,
    init = function(self, o)
      self.o = {}
      for _, a in ipairs(r.attrs) do self.o[a.name] = o[a.name] end
      self.reduces = o.reduction == "sum" and "sum" or o.reduction == "mean" and "mean" or nil
    end,
    forward = function(self, ...) return (Module.op(self, name, { ... }, self.o)) end,
  })
end

--- Labels for (n, classes, ..): (n, ..).
local function labels_of(_, output)
  local shape = { output.shape[1] }
  for d = 3, #output.shape do shape[d - 1] = output.shape[d] end
  return shape, "i64"
end

--- Share of right answers among two, the class being whether the output is above `level`, that of
-- the target whether it is above `middle`.
local function binary_metric(level, middle)
  return function(self, name, y, t)
    if name ~= "accuracy" then
      fail(("%s knows the metric \"accuracy\", not \"%s\""):format(self._class, tostring(name)))
    end
    return y:gt(level):eq(t:gt(middle)):to("f32"):mean()
  end
end

local of_labels = { target = labels_of,
  metric = function(self, name, y, t)
    if name ~= "accuracy" then
      fail(("%s knows the metric \"accuracy\", not \"%s\""):format(self._class, tostring(name)))
    end
    return y:arg_max({ axis = 2 }):eq(t:to "i64"):to("f32"):mean()
  end }
local of_probabilities = { metric = binary_metric(0.5, 0.5) }
local of_logits = { metric = binary_metric(0, 0.5) }
local of_signs = { metric = binary_metric(0, 0) }

loss.HuberLoss = one_op("HuberLoss", {})
loss.SmoothL1Loss = one_op("SmoothL1Loss", {})
loss.PoissonNllLoss = one_op("PoissonNllLoss", {})
loss.KlDivLoss = one_op("KlDivLoss", {})
loss.BceLoss = one_op("BceLoss", of_probabilities)
loss.BceWithLogitsLoss = one_op("BceWithLogitsLoss", of_logits)
loss.FocalLoss = one_op("FocalLoss", of_logits)
loss.DiceLoss = one_op("DiceLoss", of_probabilities)
loss.MultilabelSoftMarginLoss = one_op("MultilabelSoftMarginLoss", of_logits)
loss.SoftMarginLoss = one_op("SoftMarginLoss", of_signs)
loss.HingeLoss = one_op("HingeLoss", of_signs)
loss.HingeEmbeddingLoss = one_op("HingeEmbeddingLoss", {})
loss.NllLoss = one_op("NllLoss", of_labels)
loss.MultiMarginLoss = one_op("MultiMarginLoss", of_labels)
-- Of three operands: those of a model of two outputs and the target, or of three outputs.
loss.GaussianNllLoss = one_op("GaussianNllLoss", { operands = 3 })
loss.MarginRankingLoss = one_op("MarginRankingLoss", { operands = 3 })
loss.CosineEmbeddingLoss = one_op("CosineEmbeddingLoss", { operands = 3 })
loss.TripletMarginLoss = one_op("TripletMarginLoss", { operands = 3 })
loss.CtcLoss = one_op("CtcLoss", { operands = 4 })

return loss
