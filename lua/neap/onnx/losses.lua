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

  -- A label that is ignored may be no class: another is read in its place, and weighs nothing.
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

-- ---- the way back -------------------------------------------------------------------------------

local function distance(name)
  return function(n, x, target)
    local d = n:node("Sub", { x, target })
    d = name == "Abs" and n:node("Abs", { d }) or n:node("Mul", { d, d })
    if n.attrs.reduction == "none" then return d end
    local by = n.attrs.reduction == "mean" and "ReduceMean" or "ReduceSum"
    return n:reduce(by, d, n:axes {}, false, by == "ReduceSum" and 13 or nil)
  end
end

local function write(out)
  out.MseLoss, out.L1Loss = distance "Mul", distance "Abs"
  --- ONNX has the classes second.
  function out.SoftmaxCrossEntropy(n, x, labels, weight)
    local axis, rank = n:axis(n.attrs.axis), #n:dims(1)
    if n.attrs.label_smoothing ~= 0 then n:lacks "label_smoothing" end
    if rank < 2 then n:lacks "logits of one dimension" end
    -- Shares of the classes in the place of one of them.
    if #n:dims(2) == rank and kit.is_float { dtype = n:dtype(2) } then
      if weight then n:lacks "weights of classes beside their shares" end
      local y = n:node("Mul", { labels, n:node("LogSoftmax", { x }, { axis = axis }) })
      y = n:node("Neg", { n:reduce("ReduceSum", y, { axis }, false, 13) })
      local by = n.attrs.reduction
      if by == "none" then return y end
      local all = kit.map(kit.count(rank - 1), function(d) return d - 1 end)
      return n:reduce(by == "mean" and "ReduceMean" or "ReduceSum", y, all, false,
        by == "sum" and 13 or nil)
    end

    -- The classes go second, where they are not.
    local perm = {}
    for d = 0, rank - 1 do
      if d ~= axis then perm[#perm + 1] = d end
    end
    table.insert(perm, 2, axis)
    if axis ~= 1 then x = n:transpose(x, perm) end
    return n:node("SoftmaxCrossEntropyLoss", { x, labels, weight },
      { reduction = n.attrs.reduction, ignore_index = n.attrs.ignore_index })
  end
end

return function(op, writers)
  write(writers)
  function op.NegativeLogLikelihoodLoss(n, x, labels, weight) return nll(n, x, labels, weight) end

  function op.SoftmaxCrossEntropyLoss(n, x, labels, weight)
    local logs = F.LogSoftmax(x, { axis = 2 })
    return nll(n, logs, labels, weight), logs
  end
end
