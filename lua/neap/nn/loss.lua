--- Losses: modules of (output, target) that give one number. `target` says what labels fit an
-- output, `metric` what else can be measured on the same pair.
-- @module neap.nn.loss
local fail = require("neap.core").fail
local module = require "neap.nn.module"

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

loss.BceWithLogitsLoss = loss_class("BceWithLogitsLoss", {
  options = { doc = [[Binary cross entropy of logits and targets in 0..1, mean over elements:
      softplus(y) - y t.]], example = "nn.BceWithLogitsLoss()" },
  target = like_output,
  forward = function(_, y, t)
    local a, b = table.concat(y.shape, ","), table.concat(t.shape, ",")
    if a ~= b then
      fail(("BceWithLogitsLoss: the target is (%s), the output (%s): they expect one shape"):format(
        b, a))
    end
    return (y:softplus() - y * t):mean()
  end,
  metric = function(_, name, y, t)
    if name ~= "accuracy" then
      fail("BceWithLogitsLoss knows the metric \"accuracy\", not \"" .. tostring(name) .. "\"")
    end
    local zero, half = y.net:const(0, y.dtype), y.net:const(0.5, y.dtype)
    return y:gt(zero):eq(t:gt(half)):to("f32"):mean()
  end })

return loss
