--- Operators that TFLite's standard defines in integers: sums of products of integers, exact, which
-- are then brought to the scale of the result in fixed point (the op Requantize).
--
-- Sums of products of bytes are made by kernels for bytes, which give them as f32: where no partial
-- sum can leave the whole numbers that f32 has. Others are computed in f64, which mixed precision
-- leaves alone: f32 would be halves there.
-- @module neap.tflite.integers
local core = require "neap.core"
local kit = require "neap.onnx.kit"
local T = require "neap.tflite.kit"
local F = kit.F

local I = {}

--- Whether every sum over a row of known weights (O,..) stays a whole number of f32, of bytes x.
local function is_small(weights)
  -- The bound is the largest sum that any x could give: each row's magnitudes times the furthest
  -- that a byte goes from 0. Below 2^24 f32 has all whole numbers.
  local axes = {}
  for d = 2, #weights.shape do axes[#axes + 1] = d end
  local rows = F.Sum(F.Abs(kit.cast(weights, "f64")), { axes = axes })
  return kit.product(rows.shape) == 0 or F.Max(rows, { axes = { 1 } }):item() * 255 < 2^24
end

--- The integers of an operand less what stands for 0, in a float.
local function centered(x, zero, dtype)
  x = kit.cast(x, dtype)
  if T.all_zero(zero) then return x end
  return F.Sub { x, T.beside(x, zero, 1, dtype) }
end

--- The value whose operand the weights are: input 2, or what it was put into the order of.
-- @return value; nil: its numbers are not known
local function source_of(n, w)
  local v = n.inputs[2]
  if v.blob == w or v.x == w then return kit.is_known(v.x) and v or nil end
  for _, other in pairs(v.turned or {}) do
    if other.x and (other.blob == w or other.x == w) then return other end
  end
end

--- Weights (O,..) as the kernels for bytes take them: in i8 without a zero point, where they are
-- known and fit, as most do less their zero point.
-- @return operand, its numbers; nil: they are none
local function byte_weights(n, w)
  local v, zero = source_of(n, w), n.row.reads[2].zero
  if not v or n.folds then return nil end
  if T.all_zero(zero) then return w.dtype == "i8" and w or nil, v.x end

  -- Once for all nets, as what is put into another order is.
  if not v.moved then
    local moved = F.Sub { kit.cast(v.x, "i32"), T.beside(v.x, zero, 1, "i32") }
    local fits = moved:n_element() > 0 and moved:min():item() >= -128 and moved:max():item() <= 127
    v.moved = { x = fits and moved:to "i8", name = v.name, parameter = v.parameter,
      elem = kit.elem_of.i8 }
  end
  if not v.moved.x then return nil end
  return n.state:operand(v.moved), v.moved.x
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
  local reads = n.row.reads
  if bytes[x.dtype] then
    local own, weights = byte_weights(n, w)
    if own and is_small(weights) then return byte_sums(x, own, b, reads[1], attrs) end
  end
  return f(centered(x, reads[1].zero, "f64"), centered(w, reads[2].zero, "f64"),
    b and kit.cast(b, "f64"))
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
