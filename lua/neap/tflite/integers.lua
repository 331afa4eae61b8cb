--- Operators that TFLite's standard defines in integers: sums of products of integers, exact, which
-- are then brought to the scale of the result in fixed point (the op Requantize).
--
-- A sum is computed in f32 where no partial sum can leave the whole numbers that f32 has, and by no
-- algorithm that works with fractions (Winograd's); else in f64.
-- @module neap.tflite.integers
local core = require "neap.core"
local kit = require "neap.onnx.kit"
local T = require "neap.tflite.kit"
local F = kit.F

local I = {}

--- The largest magnitude of q - zero.
local function reach(t)
  local range = T.ranges[t.dtype]
  return math.max(range[2] - t.zero[1], t.zero[1] - range[1])
end

--- Whether every sum over a row of known weights (O,..) stays a whole number of f32.
local function is_small(x, w, weights, bias)
  if not kit.is_known(weights) then return false end

  -- The bound is the largest sum that any x could give: each row's magnitudes times the furthest
  -- that x's integers go from their zero point, and the bias. Below 2^24 f32 has all whole numbers.
  local axes = {}
  for d = 2, #weights.shape do axes[#axes + 1] = d end
  local magnitude = F.Abs(kit.cast(weights, "f64"))
  if not T.all_zero(w.zero) then magnitude = F.Add { magnitude, kit.number(255, "f64") } end
  local rows = F.Mul { F.Sum(magnitude, { axes = axes }), kit.number(reach(x), "f64") }
  if bias then rows = F.Add { rows, F.Abs(kit.cast(bias, "f64")) } end
  return F.Max(rows, { axes = { 1 } }):item() < 2^24
end

--- Whether oneDNN may compute a convolution by Winograd's algorithm.
local function may_be_winograd(w_shape, attrs)
  if not attrs or attrs.groups ~= 1 or #w_shape ~= 4 then return false end
  return w_shape[3] == 3 and w_shape[4] == 3 and attrs.stride[1] == 1 and attrs.stride[2] == 1
end

--- The integers of an operand less what stands for 0, in a float.
local function centered(x, zero, dtype)
  x = kit.cast(x, dtype)
  if T.all_zero(zero) then return x end
  return F.Sub { x, T.beside(x, zero, 1, dtype) }
end

--- The numbers of the weights, rows first, which have been put into another order perhaps.
local function known_weights(n, w)
  if kit.is_known(w) then return w end
  local v = n.inputs[2]
  for _, other in pairs(v.turned or {}) do
    if other.x and kit.is_known(other.x) then return other.x end
  end
  return v.x
end

--- The sums of a product of quantised numbers: f(x, w, b) of their integers as floats.
-- @param w weights, (O,..)
function I.sums(n, f, x, w, b, attrs)
  -- A bias that only a run knows, Winograd's fractions, and sums that leave f32's whole numbers all
  -- need f64, which is exact far beyond what 32 bits hold.
  local reads, bias = n.row.reads, b and n.inputs[3].x
  local small = (not b or kit.is_known(bias)) and not may_be_winograd(w.shape, attrs)
    and is_small(reads[1], reads[2], known_weights(n, w), b and bias)
  local dtype = small and "f32" or "f64"
  return f(centered(x, reads[1].zero, dtype), centered(w, reads[2].zero, dtype),
    b and kit.cast(b, dtype))
end

--- Sums as integers of tensor t: `scale` is that of the sums over that of t, one number or one for
-- each position along the dimension `axis`.
-- @param o {once = whether the standard's kernel for this operator rounds once, wide = whether its
-- sums have 64 bits}
function I.requantised(n, sums, scale, axis, t, o)
  local least, most = T.bounds(n, t)
  local operand = #scale == 1 and kit.number(scale[1], "f64") or core.tensor(scale, "f64")
  return F.Requantize({ sums, operand }, { to = t.dtype, zero = t.zero[1], least = least,
    most = most, axis = axis, once = o and o.once, wide = o and o.wide })
end

--- The scales of sums over that of the result, as the standard's kernels compute them: in double.
function I.product_scales(x, w, y)
  return kit.map(w.scale, function(scale) return x.scale[1] * scale / y.scale[1] end)
end

--- Whether all that an operator reads and makes is quantised, so that it is one of integers.
function I.is_integer(n, reads, makes)
  for i = 1, reads do
    if n.inputs[i] and not T.quantised(n.row.reads[i]) then return false end
  end
  for k = 1, makes or 1 do
    if not T.quantised(n.row.makes[k]) then return false end
  end
  return true
end

return I
