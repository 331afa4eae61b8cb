--- Operators that TFLite's standard defines in integers: sums of products of integers, exact, which
-- are then brought to the scale of the result in fixed point (the op Requantize).
--
-- Sums of products of bytes are made by kernels for bytes, which give them as f32: where no partial
-- sum can leave the whole numbers that f32 has. Others are computed in f32 on the same condition,
-- and by no algorithm that works with fractions (Winograd's); else in f64.
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

--- Whether every sum over a row of known weights (O,..) stays a whole number of f32, x of a
-- magnitude up to `most`.
local function is_small(most, w, weights, bias)
  if not kit.is_known(weights) then return false end

  -- The bound is the largest sum that any x could give: each row's magnitudes times the furthest
  -- that x's integers go from their zero point, and the bias. Below 2^24 f32 has all whole numbers.
  local axes = {}
  for d = 2, #weights.shape do axes[#axes + 1] = d end
  local magnitude = F.Abs(kit.cast(weights, "f64"))
  if not T.all_zero(w.zero) then magnitude = F.Add { magnitude, kit.number(255, "f64") } end
  local rows = F.Mul { F.Sum(magnitude, { axes = axes }), kit.number(most, "f64") }
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

--- The sums of bytes, by the ops whose kernels multiply bytes: these count x of i8 as x + 128, so
-- that what stands for 0 is 128 more, too. That much each sum is too large, and its bias short of.
-- @return sums, f32; what they are short of, f64
local function byte_sums(x, w, b, t, attrs)
  local one, zero = kit.number(1, "f32"), kit.number(t.zero[1], x.dtype)
  local short, _, _, _, pad = F.FoldScales({ w, one, one, zero }, { signed = x.dtype == "i8" }, 5)
  short = kit.cast(short, "f64")
  if b then short = F.Add { kit.cast(b, "f64"), short } end
  local function all(number) return kit.full({ w.shape[1] }, number, "f32") end
  if not attrs then return F.FusedQLinearFC({ x, w, all(0), all(1) }, { to = "f32" }), short end
  local own = { to = "f32" }
  for key, value in pairs(attrs) do own[key] = value end
  local is_padded = false
  for _, n in ipairs(attrs.pad) do is_padded = is_padded or n > 0 end
  return F.FusedQLinearConv({ x, w, all(0), all(1), false, false, is_padded and pad }, own), short
end

local bytes = { i8 = true, u8 = true }

--- The sums of a product of quantised numbers: f(x, w, b) of their integers as floats.
-- @param w weights, (O,..)
-- @param attrs of a convolution; nil of a product of rows
-- @return sums, and what they are short of, one number for each row of weights; nil: nothing
function I.sums(n, f, x, w, b, attrs)
  -- A bias that only a run knows, Winograd's fractions, and sums that leave f32's whole numbers all
  -- need f64, which is exact far beyond what 32 bits hold.
  local reads, bias = n.row.reads, b and n.inputs[3].x
  local weights, is_known = known_weights(n, w), not b or kit.is_known(bias)
  local own = bytes[x.dtype] and w.dtype == "i8" and T.all_zero(reads[2].zero)
  if own and not n.folds and is_small(255, reads[2], weights) then
    return byte_sums(x, w, b, reads[1], attrs)
  end
  local small = is_known and not may_be_winograd(w.shape, attrs)
    and is_small(reach(reads[1]), reads[2], weights, b and bias)
  local dtype = small and "f32" or "f64"
  return f(centered(x, reads[1].zero, dtype), centered(w, reads[2].zero, dtype),
    b and kit.cast(b, dtype))
end

--- Sums as integers of tensor t: `scale` is that of the sums over that of t, one number or one for
-- each position along the dimension `axis`.
-- @param o {once = whether the standard's kernel for this operator rounds once, wide = whether its
-- sums have 64 bits, short = what is added to the sums first, bounds = {least =, most =} in numbers
-- that an operator without a fused activation has of itself}
function I.requantised(n, sums, scale, axis, t, o)
  local least, most = T.bounds(n, t, o and o.bounds)
  local short = o and o.short
  if short and #scale == 1 then scale = kit.fill(short.shape[1], scale[1]) end
  local operand = #scale == 1 and kit.number(scale[1], "f64") or core.tensor(scale, "f64")
  return F.Requantize({ sums, operand, short }, { to = t.dtype, zero = t.zero[1], least = least,
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
