--- Caffe's losses and accuracy.
-- @module neap.caffe.losses
local kit = require "neap.caffe.kit"
local F = kit.F

local norms = { "FULL", "VALID", "BATCH_SIZE", "NONE" }

--- How a loss is divided, and the label that does not count.
local function loss_options(n, missing)
  local p = n:options "loss_param"
  local ignored = p:int "ignore_label"
  local by = p:word("normalization", norms)
  -- The field that newer files have goes before the older one.
  local old = p:flag "normalize"
  if not by then
    by = missing
    if old ~= nil then by = old and "VALID" or "BATCH_SIZE" end
  end
  return by, ignored
end

--- The dimensions of x but one.
local function without(x, at)
  local shape = kit.copy(x.shape)
  table.remove(shape, at)
  return shape
end

local function sum_of(x) return kit.sum(x) end

-- ---- classes ------------------------------------------------------------------------------------

local function softmax_axis(n, x)
  local p = n:options "softmax_param"
  p:leave "engine"
  return n:axis(p:int("axis", 1), #x.shape)
end

--- The mean over labels that count, or a sum by another number. Of no label at all it is 0/0 where
-- Caffe says 0.
local function softmax_with_loss(n, x, labels)
  n:expect(2, 2)
  local at = softmax_axis(n, x)
  local by, ignored = loss_options(n, "VALID")
  local shape = without(x, at)
  labels = n:labels(labels, shape)

  -- The op's mean is over labels that count; all else is its sum over a number.
  local attrs = { axis = at, ignore_index = ignored, reduction = "mean" }
  local count = kit.product(shape)
  if by ~= "VALID" and not (by == "FULL" and not ignored) then attrs.reduction = "sum" end
  local probabilities = #n.row.tops == 2 and F.Softmax(x, { axis = at }) or nil
  if attrs.reduction == "mean" and not probabilities then
    return n:gives("SoftmaxCrossEntropy", { x, labels }, attrs)
  end

  local loss = F.SoftmaxCrossEntropy({ x, labels }, attrs)
  if attrs.reduction == "sum" then
    local n_rows = kit.product(x.shape, 1, at - 1)
    local over = by == "FULL" and count or by == "BATCH_SIZE" and n_rows or 1
    if not probabilities then return n:times(loss, 1 / over) end
    loss = kit.times(loss, 1 / over)
  end
  return loss, probabilities
end

--- -log p of the labels, p at least 1e-20, over the number of rows.
local function multinomial(n, x, labels)
  n:expect(2, 2)
  loss_options(n)
  local flat = kit.reshape(x, { x.shape[1], kit.product(x.shape, 2) })
  labels = n:labels(labels, { x.shape[1] })

  local logs = F.Log(F.Maximum { flat, n.state.net:const(1e-20, x.dtype) })
  local picked = F.GatherElements({ logs, F.Unsqueeze(labels, { axes = { 2 } }) }, { axis = 2 })
  return n:times(sum_of(picked), -1 / x.shape[1])
end

--- max(0, 1 -+ x) of each class, itself or squared, over the number of rows.
local function hinge(n, x, labels)
  n:expect(2, 2)
  loss_options(n)
  local norm = n:options "hinge_loss_param":word("norm", { "", "L1", "L2" }, "L1")
  local classes = kit.product(x.shape, 2)
  local flat = kit.reshape(x, { x.shape[1], classes })
  local hot = F.OneHot(n:labels(labels, { x.shape[1] }), { depth = classes, dtype = x.dtype })
  -- 1 of the other classes, -1 of the label's
  local sign = F.Sub { 1.0, kit.times(hot, 2) }
  local over = F.Relu(F.Add { F.Mul { flat, sign }, 1 })
  if norm == "L2" then over = F.Square(over) end
  return n:times(sum_of(over), 1 / x.shape[1])
end

local function accuracy(n, x, labels)
  n:expect(2, 2)
  local p = n:options "accuracy_param"
  local at, ignored = n:axis(p:int("axis", 1), #x.shape), p:int "ignore_label"
  if #n.row.tops > 1 then n:fail "a second top, the accuracy of each class, is lacking" end
  return n:gives("Accuracy", { x, n:labels(labels, without(x, at)) }, { axis = at,
    top_k = p:size("top_k", 1), ignore_index = ignored })
end

-- ---- numbers ------------------------------------------------------------------------------------

--- Half the mean, over rows, of the squared distance.
local function euclidean(n, x, y)
  n:expect(2, 2)
  if kit.product(x.shape) ~= kit.product(y.shape) then n:same_shape(x, y) end
  local d = F.Sub { x, kit.reshape(kit.cast(y, x.dtype), x.shape) }
  return n:times(sum_of(F.Square(d)), 0.5 / x.shape[1])
end

local function smooth_l1(n, x, y, inside, outside)
  n:expect(2, 4)
  n:same_shape(x, y)
  local sigma = n:options "smooth_l1_loss_param":number("sigma", 1)
  local d = F.Sub { x, y }
  if inside then d = F.Mul { d, inside } end
  local zero = n.state.net:const(0, x.dtype)
  local loss = F.SmoothL1Loss({ d, F.Mul { d, zero } }, { beta = 1 / sigma ^ 2,
    reduction = "none" })
  if outside then loss = F.Mul { loss, outside } end
  return n:times(sum_of(loss), 1 / x.shape[1])
end

local function sigmoid_cross_entropy(n, x, target)
  n:expect(2, 2)
  local by, ignored = loss_options(n, "BATCH_SIZE")
  n:options "sigmoid_param":leave "engine"
  if kit.product(x.shape) ~= kit.product(target.shape) then n:same_shape(x, target) end
  target = kit.reshape(kit.cast(target, x.dtype), x.shape)

  -- Labels that are ignored weigh nothing, as targets and in the sum.
  local counts = ignored and kit.cast(F.Ne { target, ignored }, x.dtype)
  local loss
  if counts then
    local each = F.BceWithLogitsLoss({ x, F.Mul { target, counts } }, { reduction = "none" })
    loss = sum_of(F.Mul { each, counts })
  else
    loss = F.BceWithLogitsLoss({ x, target }, { reduction = "sum" })
  end
  if by == "VALID" and counts then
    return n:gives("Div", { loss, F.Maximum { sum_of(counts), n.state.net:const(1, x.dtype) } })
  end

  local over = by == "NONE" and 1 or by == "BATCH_SIZE" and x.shape[1] or kit.product(x.shape)
  return n:times(loss, 1 / over)
end

--- Pairs that are alike (1) count their squared distance, others how far they are within the
-- margin, squared; half the mean over rows. The gradient of a distance of 0 is 0.
local function contrastive(n, a, b, alike)
  n:expect(3, 3)
  n:same_shape(a, b)
  local p = n:options "contrastive_loss_param"
  local margin, legacy = p:number("margin", 1), p:flag("legacy_version", false)
  local rows = a.shape[1]
  local flat = { rows, kit.product(a.shape, 2) }

  local d = kit.reshape(F.Sub { a, b }, flat)
  local squared = F.Sum(F.Square(d), { axes = { 2 } })
  local y = kit.cast(kit.reshape(alike, { rows }), a.dtype)
  -- A root has no gradient at 0, so that a little is added; the older form has no root.
  local apart
  if legacy then
    apart = F.Relu(F.Sub { margin, squared })
  else
    apart = F.Square(F.Relu(F.Sub { margin, F.Sqrt(F.Add { squared, 1e-12 }) }))
  end
  local each = F.Add { F.Mul { y, squared }, F.Mul { F.Sub { 1.0, y }, apart } }
  return n:times(sum_of(each), 0.5 / rows)
end

return function(layer)
  layer.SoftmaxWithLoss, layer.SoftmaxLoss = softmax_with_loss, softmax_with_loss
  layer.MultinomialLogisticLoss, layer.HingeLoss, layer.Accuracy = multinomial, hinge, accuracy
  layer.EuclideanLoss, layer.ContrastiveLoss = euclidean, contrastive
  layer.SigmoidCrossEntropyLoss, layer.SmoothL1Loss = sigmoid_cross_entropy, smooth_l1
end
