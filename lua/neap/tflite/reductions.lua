--- TFLite's operators along dimensions: sums, means, extremes, norms, softmax, positions.
-- @module neap.tflite.reductions
local I = require "neap.tflite.integers"
local T = require "neap.tflite.kit"
local core = require "neap.core"
local kit = require "neap.onnx.kit"
local F = kit.F

-- ---- reductions ---------------------------------------------------------------------------------

--- f(x, attributes) over the dimensions that input 2 names, of prepare(x, first), x in whichever
-- layout it is where what is left is in the file's order then.
-- @return result, whether it is channels first
local function reduced(n, f, prepare)
  local rank, first, keep = #n.inputs[1].x.shape, T.is_first(n, 1), n:flag "keep_dims"
  local axes, drops, all_pixels = n:axes(T.list(n, 2), rank), {}, true

  -- The layout may stay where it is if what is left is in the file's order: all dimensions are,
  -- each in its place; or no pixels, or no channels are left.
  for _, d in ipairs(axes) do drops[d] = true end
  for d = 2, rank - 1 do all_pixels = all_pixels and drops[d] end
  -- Pixels that stay behind channels that stay are in another order than the file's.
  first = first and (keep or all_pixels or drops[rank]) or false
  local x = first and n:x_of(n.inputs[1]) or T.plain(n, 1)
  x = prepare and prepare(x, first) or x
  if #axes == 0 then return x, first end
  for i, d in ipairs(axes) do axes[i] = T.axis_in(d, rank, first) end
  return (f(x, { axes = axes, keepdim = keep })), first and keep
end

--- The op of that name over dimensions, of numbers.
local function by(name)
  return function(n)
    local t = T.quantised(n.row.reads[1])
    local y, first = reduced(n, F[name], t and function(x, is_first)
      return T.dequantised(x, t, is_first)
    end)
    return T.as(n, t and T.quantise(n, y, n.row.makes[1]) or y, first)
  end
end

--- The mean of integers is their sum, less the zero point of each, brought to the result's scale.
local real_mean = by "Mean"
local function mean(n)
  if not I.is_integer(n, 1) then return real_mean(n) end
  local x, y = n.row.reads[1], n.row.makes[1]
  local sum, first = reduced(n, F.Sum, function(v) return kit.cast(v, "f64") end)

  -- The count follows from the sizes, so that sum and mean are brought to the result's scale at
  -- once.
  local count = kit.product(n.inputs[1].x.shape) / math.max(kit.product(sum.shape), 1)
  if x.zero[1] ~= 0 then sum = F.Sub { sum, kit.number(x.zero[1] * count, "f64") } end
  return T.as(n, I.requantised(n, sum, { x.scale[1] / (y.scale[1] * count) }, nil, y), first)
end

-- ---- along the last dimension -------------------------------------------------------------------

--- f(n, x, axis) along the file's last dimension, wherever it lies.
local function along_last(f, o)
  return T.real(function(n, x) return f(n, x, n.first and 2 or #x.shape) end, o)
end

local softmax = along_last(function(n, x, axis)
  local beta = n:float("beta", 0)
  if beta ~= 1 then x = F.Mul { x, kit.number(beta, x.dtype) } end
  return F.Softmax(x, { axis = axis })
end, { round = function(x) return F.Round(x) end })

local log_softmax = along_last(function(_, x, axis) return F.LogSoftmax(x, { axis = axis }) end)

local l2_normalization = along_last(function(n, x, axis)
  local square = F.Sum(F.Square(x), { axes = { axis }, keepdim = true })
  local norm = F.Maximum { F.Sqrt(square), kit.number(1e-6, x.dtype) }
  return T.activated(n, F.Div { x, norm })
end)

local function local_response(n)
  local x, size = T.first(n, 1), 2 * n:int("radius", 0) + 1
  if size < 1 then n:fail("a radius of %d", n:int("radius", 0)) end
  return T.as_first(n, T.onnx(n, "LRN", { x }, { size = size, bias = n:float("bias", 0) + 0.0,
    alpha = n:float("alpha", 0) * size + 0.0, beta = n:float("beta", 0) + 0.0 }))
end

-- ---- positions ----------------------------------------------------------------------------------

local function position(name)
  return function(n)
    local y = T.onnx(n, name, { T.plain(n, 1) }, { axis = T.integer(n, 2), keepdims = 0 })
    return kit.cast(y, n.row.makes[1].dtype or "i32")
  end
end

local function top_k(n)
  local k = core.tensor({ T.integer(n, 2) }, "i64")
  local values, at = T.onnx(n, "TopK", { T.plain(n, 1), k }, { axis = -1 }, 2)
  return values, kit.cast(at, n.row.makes[2] and n.row.makes[2].dtype or "i32")
end

local function cumsum(n)
  local axis = core.tensor(T.integer(n, 2), "i64")
  return T.onnx(n, "CumSum", { T.plain(n, 1), axis }, { exclusive = n:flag "exclusive" and 1 or 0,
    reverse = n:flag "reverse" and 1 or 0 })
end

return function(op, needs)
  needs[2] = "MEAN SUM REDUCE_PROD REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL ARG_MAX ARG_MIN \z
    TOPK_V2 CUMSUM"
  op.MEAN, op.SUM, op.REDUCE_PROD = mean, by "Sum", by "Prod"
  op.REDUCE_MAX, op.REDUCE_MIN = by "Max", by "Min"
  op.REDUCE_ANY, op.REDUCE_ALL = by "Any", by "All"
  op.SOFTMAX, op.LOG_SOFTMAX, op.L2_NORMALIZATION = softmax, log_softmax, l2_normalization
  op.LOCAL_RESPONSE_NORMALIZATION = local_response
  op.ARG_MAX, op.ARG_MIN, op.TOPK_V2, op.CUMSUM = position "ArgMax", position "ArgMin", top_k,
    cumsum
end
