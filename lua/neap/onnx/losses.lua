--- ONNX's losses.
-- @module neap.onnx.losses
local kit = require "neap.onnx.kit"
local F = kit.F

--- The negative log-likelihood of labels (N, d ..) under x (N, C, d ..), each weighed by its class;
-- labels that are ignored weigh nothing.
local function nll(n, x, labels, weight)
  local reduction = n:word("reduction", "none mean sum", "mean")
  local ignored = n:int "ignore_index"
  labels = kit.cast(labels, "i64")
  local safe, counts = labels, nil
  if ignored then
    counts = F.Ne { labels, kit.number(ignored, "i64") }
    safe = F.Where { counts, labels, kit.number(0, "i64") }
  end
  local picked = F.Squeeze(F.GatherElements({ x, kit.unsqueeze(safe, { 2 }) }, { axis = 2 }),
    { axes = { 2 } })
  local zero = kit.number(0, x.dtype)
  local w = weight and F.Gather({ weight, safe }, { axis = 1 })
  if counts then
    w = F.Where { counts, w or kit.number(1, x.dtype), zero }
  end
  local loss = F.Neg(w and F.Mul { picked, w } or picked)
  if counts then loss = F.Where { counts, loss, zero } end
  if reduction == "none" then return loss end
  local all = { axes = kit.count(#loss.shape) }
  local sum = F.Sum(loss, all)
  if reduction == "sum" then return sum end
  return w and F.Div { sum, F.Sum(kit.expand(w, loss.shape), all) } or F.Mean(loss, all)
end

return function(op)
  function op.NegativeLogLikelihoodLoss(n, x, labels, weight) return nll(n, x, labels, weight) end

  function op.SoftmaxCrossEntropyLoss(n, x, labels, weight)
    local logs = F.LogSoftmax(x, { axis = 2 })
    return nll(n, logs, labels, weight), logs
  end
end
