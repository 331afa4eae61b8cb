--- Losses: modules of (output, target) that give one number. `target` says what labels fit an
-- output, `metric` what else can be measured on the same pair.
--
-- A loss is one op, whose attributes are its options; so are those of the op's optional inputs that
-- belong to the loss and not to a batch (class weights): tensors, which a net carries as constants,
-- so that it trains, is saved and read with them.
-- @module neap.nn.loss
local core = require "neap.core"
local module = require "neap.nn.module"
local op = require "neap.op"
local records = op.records
local fail = core.fail

local Module = module.Module

-- ---- targets and metrics ------------------------------------------------------------------------

local function like_output(_, output) return output.shape, output.dtype end

--- Labels have the shape of the output without its classes, whose dimension the loss says.
local function labels_of(self, output)
  -- The dimension of the classes, from the end or the beginning.
  local shape, axis = {}, self.o.axis or 2
  if axis < 0 then axis = #output.shape + 1 + axis end
  for d, size in ipairs(output.shape) do
    if d ~= axis then shape[#shape + 1] = size end
  end
  return shape, "i64"
end

--- A metric that a loss knows by its name, by what is known: {name = f(self, y, t)}.
local function metric_of(known)
  local names = {}
  for name in pairs(known) do names[#names + 1] = ('"%s"'):format(name) end
  table.sort(names)
  return function(self, name, y, t)
    if known[name] then return known[name](self, y, t) end
    fail(("%s knows the metric%s %s, not \"%s\""):format(self._class, #names == 1 and "" or "s",
      table.concat(names, " and "), tostring(name)))
  end
end

--- What any regression can be measured by.
local regression_metric = metric_of {
  mae = function(_, y, t) return (y.net:op("L1Loss", { y, t }, { "mae" }, {})) end,
  mse = function(_, y, t) return (y.net:op("MseLoss", { y, t }, { "mse" }, {})) end,
}

--- Share of right answers among two, the class being whether the output is above `level`, that of
-- the target whether it is above `middle`.
local function binary_metric(level, middle)
  return metric_of {
    accuracy = function(_, y, t) return y:gt(level):eq(t:gt(middle)):to("f32"):mean() end,
  }
end

--- Share of rows whose largest class is the label's.
local class_metric = metric_of {
  accuracy = function(_, y, t) return y:arg_max({ axis = 2 }):eq(t:to "i64"):to("f32"):mean() end,
}
local ignoring_metric = metric_of {
  accuracy = function(self, logits, labels)
    -- A probability of each class instead of a label: the likeliest is the label.
    if labels.dtype ~= "i64" and labels.dtype ~= "i32" and #labels.shape == #logits.shape then
      labels = labels:arg_max { axis = self.o.axis }
    end
    return (logits.net:op("Accuracy", { logits, labels }, { "accuracy" }, {
      axis = self.o.axis, ignore_index = self.o.ignore_index }))
  end,
}

-- ---- losses -------------------------------------------------------------------------------------

-- How a loss makes one number of its rows, which gradients of micro-batches are weighted by. A loss
-- of your own says it too: "mean" or "sum".
local reduces = { mean = "mean", batchmean = "mean", sum = "sum" }

--- Option of an op's input that belongs to the loss; weights of terms may be one number.
local function weight_option(input, of_terms)
  return { input.name, of_terms and "number|tensor|table" or "tensor|table", unset = "1",
    says = of_terms and "a number, a tensor, or a table of numbers"
      or "a tensor, or a table of numbers", doc = input.doc }
end

--- A loss that is one op of (output, target), whose options are the attributes of the op. It gives
-- one number, or with reduction = "none" the terms, for a sum of one's own.
-- @param name string of the class
-- @param spec table of what is not as for a regression: target, metric; `op`, whose name is not the
--   class's; `operands`; `doc`; `weights`, the op's optional inputs that are options; `docs`, by
--   name, of what options say in other words; `of_terms`, whether weights are of terms, not classes
local function one_op(name, spec)
  local op_name = spec.op or name
  local r, weights = records[op_name], spec.weights or {}
  local options = { doc = spec.doc or ("%s %s."):format(r.summary, r.math),
    example = spec.example or ("nn.%s()"):format(name) }

  -- The options are the op's attributes, and behind them its weights: one record says both.
  for i, a in ipairs(r.attrs) do
    options[i] = { of = op_name .. "." .. a.name, doc = (spec.docs or {})[a.name] }
  end
  for _, at in ipairs(weights) do
    options[#options + 1] = weight_option(r.inputs[at], spec.of_terms)
  end
  return module.class { name, name = "loss",
    options = options,
    target = spec.target or like_output,
    operands = spec.operands, -- of as many outputs there is no target
    metric = spec.metric or regression_metric,
    counts = spec.counts,
    init = function(self, o)
      self.o, self.weights = {}, {}
      for _, a in ipairs(r.attrs) do self.o[a.name] = o[a.name] end
      for _, at in ipairs(weights) do
        local given = o[r.inputs[at].name]
        -- A copy: what its owner does to it later is nothing to the loss.
        self.weights[at] = op.is_tensor(given) and given:clone() or given and core.tensor(given)
      end
      self.reduces = reduces[o.reduction]
    end,
    forward = function(self, ...)
      -- A loss without a target would give an error of its op, which knows nothing of targets.
      local inputs, least = { ... }, spec.operands or 2
      if #inputs < least then
        fail(("nn.%s takes %d inputs, %s, got %d"):format(name, least,
          least == 2 and "the output and the target" or "those of its op", #inputs))
      end

      -- Weights that are options stand where the op reads them, in the output's dtype.
      for _, at in ipairs(weights) do
        local own, output = self.weights[at], inputs[1]
        if own and inputs[at] then
          fail(("nn.%s: %s is an option of the loss, and an input too"):format(name,
            r.inputs[at].name))
        end
        inputs[at] = inputs[at] or own and output.net:const(own:to(output.dtype)) or false
      end
      return (Module.op(self, op_name, inputs, self.o))
    end }
end

local of_classes = { target = labels_of, metric = class_metric }
local of_probabilities = { metric = binary_metric(0.5, 0.5) }
local of_logits = { metric = binary_metric(0, 0.5) }
local of_signs = { metric = binary_metric(0, 0) }

--- A kind of loss with options of tensors.
local function weighted(kind, ...)
  return { target = kind.target, metric = kind.metric, weights = { ... },
    of_terms = kind.target == nil }
end

--- What the mean of NllLoss counts, as neap.nn.objective asks: { ignored = a label or nil, weighted
-- = whether by class weights }; nil where each row counts as one.
local function counts_of_labels(self)
  if self.reduces ~= "mean" or not (self.o.ignore_index or self.weights[3]) then return nil end
  return { ignored = self.o.ignore_index, weighted = self.weights[3] ~= nil }
end

local loss = {}

loss.CrossEntropyLoss = one_op("CrossEntropyLoss", {
  op = "SoftmaxCrossEntropy",
  doc = [[Softmax and cross entropy, mean over rows. Labels are integers from 0, shape of the logits
    without the dimension of the classes, or probabilities, shape of the logits.]],
  docs = {
    ignore_index = [[label of rows that do not count: neither in the mean, nor where the trainer
      weighs micro-batches, batches held and those it evaluates]],
    reduction = "what becomes of the rows' losses: their mean, by weight, their sum, or nothing",
  },
  example = "nn.CrossEntropyLoss { label_smoothing = 0.1 }",
  weights = { 3 },
  target = labels_of,
  metric = ignoring_metric,
})

loss.MseLoss = one_op("MseLoss", {})
loss.L1Loss = one_op("L1Loss", {})
loss.HuberLoss = one_op("HuberLoss", {})
loss.SmoothL1Loss = one_op("SmoothL1Loss", {})
loss.PoissonNllLoss = one_op("PoissonNllLoss", {})
loss.KlDivLoss = one_op("KlDivLoss", {})
loss.BceLoss = one_op("BceLoss", weighted(of_probabilities, 3))
loss.BceWithLogitsLoss = one_op("BceWithLogitsLoss", weighted(of_logits, 3, 4))
loss.FocalLoss = one_op("FocalLoss", of_logits)
loss.DiceLoss = one_op("DiceLoss", of_probabilities)
loss.MultilabelSoftMarginLoss = one_op("MultilabelSoftMarginLoss", weighted(of_logits, 3))
loss.SoftMarginLoss = one_op("SoftMarginLoss", of_signs)
loss.HingeLoss = one_op("HingeLoss", of_signs)
loss.HingeEmbeddingLoss = one_op("HingeEmbeddingLoss", {})
loss.NllLoss = one_op("NllLoss", { target = labels_of, metric = class_metric, weights = { 3 },
  counts = counts_of_labels })
loss.MultiMarginLoss = one_op("MultiMarginLoss", weighted(of_classes, 3))
loss.MultilabelMarginLoss = one_op("MultilabelMarginLoss", {
  target = function(_, output) return output.shape, "i64" end })
-- Of three operands: those of a model of two outputs and the target, or of three outputs.
loss.GaussianNllLoss = one_op("GaussianNllLoss", { operands = 3 })
loss.MarginRankingLoss = one_op("MarginRankingLoss", { operands = 3 })
loss.CosineEmbeddingLoss = one_op("CosineEmbeddingLoss", { operands = 3 })
loss.TripletMarginLoss = one_op("TripletMarginLoss", { operands = 3 })
loss.CtcLoss = one_op("CtcLoss", { operands = 4 })

return loss
