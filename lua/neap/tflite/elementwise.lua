--- TFLite's operators of one and of several operands, element by element; casts and quantisation.
-- @module neap.tflite.elementwise
local I = require "neap.tflite.integers"
local T = require "neap.tflite.kit"
local kit = require "neap.onnx.kit"
local F = kit.F

-- ---- of one operand -----------------------------------------------------------------------------

--- Operators that have one operand, no options, and the meaning of an op of Neap's.
local same = {
  CEIL = "Ceil", COS = "Cos", EXP = "Exp", FLOOR = "Floor", HARD_SWISH = "HardSwish",
  LOGISTIC = "Sigmoid", NEG = "Neg", ROUND = "Round", RSQRT = "Rsqrt", SIGN = "Sign", SIN = "Sin",
  SQRT = "Sqrt", SQUARE = "Square", TANH = "Tanh",
}

local unary = {
  ELU = function(_, x) return F.Elu(x, { alpha = 1 }) end,
  GELU = function(n, x)
    return F.Gelu(x, { approximate = n:flag "approximate" and "tanh" or "none" })
  end,
  LOGICAL_NOT = function(_, x) return F.LogicalNot(x) end,
  -- Integers have no NaN: what has no logarithm is the least of them.
  LOG = function(n, x)
    if not T.quantised(n.row.makes[1]) then return F.Log(x) end
    local least = kit.number(-math.huge, x.dtype)
    return F.Where { F.Gt { x, kit.number(0, x.dtype) }, F.Log(x), least }
  end,
}

-- ---- sums and products of integers --------------------------------------------------------------

--- x - zero as an i32.
local function centered(x, t)
  x = kit.cast(x, "i32")
  return t.zero[1] == 0 and x or F.Sub { x, kit.number(t.zero[1], "i32") }
end

--- Operands of two scales on one: twice the larger of both over 2^shift, which leaves room for the
-- sum; what is lost of an operand is less than that.
local function common(x, t, larger, shift)
  local wide = F.Mul { centered(x, t), kit.number(1 << shift, "i32") }
  return F.Requantize({ wide, kit.number(t.scale[1] / (2 * larger), "f64") }, { to = "i32" })
end

--- a + b or a - b of quantised tensors.
local function integer_sum(name)
  return function(n, a, b)
    local reads, y = n.row.reads, n.row.makes[1]

    -- The shift keeps as much below the point as the integers' width leaves room for, as the
    -- standard's kernels do.
    local larger = math.max(reads[1].scale[1], reads[2].scale[1])
    local shift = y.dtype == "i16" and 15 or 20
    local sum = F[name] { common(a, reads[1], larger, shift), common(b, reads[2], larger, shift) }
    return I.requantised(n, sum, { 2 * larger / ((1 << shift) * y.scale[1]) }, nil, y)
  end
end

--- The square of a difference, whose scale is that of both squared.
local function integer_square(n, a, b)
  local reads, y = n.row.reads, n.row.makes[1]
  local larger, shift = math.max(reads[1].scale[1], reads[2].scale[1]), 7
  local d = F.Sub { common(a, reads[1], larger, shift), common(b, reads[2], larger, shift) }
  local scale = (2 * larger) ^ 2 / ((1 << 2 * shift) * y.scale[1])
  return I.requantised(n, F.Mul { d, d }, { scale }, nil, y)
end

local function integer_product(n, a, b)
  local reads, y = n.row.reads, n.row.makes[1]
  local product = F.Mul { centered(a, reads[1]), centered(b, reads[2]) }
  -- The scales are floats, and so is what is computed of them.
  local scale = T.f32(T.f32(reads[1].scale[1] * reads[2].scale[1]) / y.scale[1])
  return I.requantised(n, product, { scale }, nil, y)
end

-- ---- activations of integers --------------------------------------------------------------------

--- Quotients and products of scales are floats, from left to right, as in the standard's kernels.
local function ratio(...)
  local out = 1
  for i, scale in ipairs { ... } do
    out = i < select("#", ...) and T.f32(out * scale) or T.f32(out / scale)
  end
  return out
end

--- An operator of one operand on numbers, or where both tensors are quantised on integers:
-- integer(n, x - zero, scale, y) -> integers of y.
local function unary_integer(f, integer)
  local real = T.real(f)
  return function(n)
    if not I.is_integer(n, 1) then return real(n) end
    local xs, first = T.together(n, 1)
    local t, y = n.row.reads[1], n.row.makes[1]
    return T.as(n, integer(n, centered(xs[1], t), t.scale[1], y), first)
  end
end

--- What lies between two numbers.
local function between(f, least, most)
  return unary_integer(f, function(n, x, scale, y)
    return I.requantised(n, x, { ratio(scale, y.scale[1]) }, nil, y,
      { bounds = { least = least, most = most } })
  end)
end

local function clamp(low, high)
  return between(function(_, x) return F.Clamp(x, { min = low, max = high }) end, low, high)
end

local abs = unary_integer(function(_, x) return F.Abs(x) end, function(n, x, scale, y)
  return I.requantised(n, F.Abs(x), { ratio(scale, y.scale[1]) }, nil, y)
end)

--- What is below 0 times a number: two scales, chosen between.
local real_leaky = T.real(function(n, x)
  return F.LeakyRelu(x, { slope = n:float("alpha", 0) })
end)
local integer_leaky = unary_integer(nil, function(n, x, scale, y)
  local above = I.requantised(n, x, { ratio(scale, y.scale[1]) }, nil, y)
  local below = I.requantised(n, x, { ratio(scale, T.f32(n:float("alpha", 0)), y.scale[1]) }, nil,
    y)
  return F.Where { F.Lt { x, kit.number(0, "i32") }, below, above }
end)
local function leaky_relu(n)
  -- A scale below 0 has no form in fixed point.
  if not I.is_integer(n, 1) or n:float("alpha", 0) < 0 then return real_leaky(n) end
  return integer_leaky(n)
end

--- What is below 0 times a slope of its place.
local function real_prelu(_, x, slope)
  return F.Where { F.Lt { x, kit.number(0, x.dtype) }, F.Mul { x, slope }, x }
end
local function integer_prelu(n, x, slope)
  local reads, y = n.row.reads, n.row.makes[1]
  x = centered(x, reads[1])
  local product = F.Mul { x, centered(slope, reads[2]) }
  local above = I.requantised(n, x, { ratio(reads[1].scale[1], y.scale[1]) }, nil, y)
  local below = I.requantised(n, product,
    { ratio(reads[1].scale[1], reads[2].scale[1], y.scale[1]) }, nil, y)
  return F.Where { F.Lt { x, kit.number(0, "i32") }, below, above }
end

--- An operator of two operands and a fused activation; `integer` computes quantised ones, where
-- there is such a form.
local function binary(f, integer)
  local real = T.real(function(n, a, b) return T.activated(n, f(n, a, b)) end, { count = 2 })
  return function(n)
    if not integer or not I.is_integer(n, 2) then return real(n) end
    local xs, first = T.together(n, 2)
    return T.as(n, integer(n, xs[1], xs[2]), first)
  end
end

local function by(name) return function(_, a, b) return F[name] { a, b } end end

--- A quotient of integers is cut towards 0.
local function divide(n, a, b)
  return kit.is_float(a) and F.Div { a, b } or T.onnx(n, "Div", { a, b })
end

-- ---- choices, casts -----------------------------------------------------------------------------

--- A condition of one dimension beside operands of several chooses among their rows.
local function select_rows(n)
  local xs, first = T.together(n, 3)
  local c, rank = n.inputs[1].x.shape, #n.inputs[2].x.shape
  if #c == 1 and rank > 1 then
    local shape = kit.fill(rank, 1)
    shape[1] = c[1]
    xs[1] = kit.reshape(T.plain(n, 1), shape)
  end
  return T.as(n, F.Where(xs), first)
end

local function choose(n)
  local xs, first = T.together(n, 3)
  return T.as(n, F.Where(xs), first)
end

local function add_n(n)
  local xs, first = T.together(n, #n.row.inputs)
  local sum = xs[1]
  for i = 2, #xs do sum = F.Add { sum, xs[i] } end
  return T.as(n, sum, first)
end

local function cast(n)
  local xs, first = T.together(n, 1)
  local dtype = n.row.makes[1].dtype
  if not dtype then n:fail("a cast to %s", tostring(n.row.makes[1].type)) end
  return T.as(n, T.onnx(n, "Cast", xs, { to = kit.elem_of[dtype] }), first)
end

local function quantize(n)
  local xs, first = T.together(n, 1)
  local t, y = T.quantised(n.row.reads[1]), T.quantised(n.row.makes[1])
  if not y then n:fail "a result without a scale" end
  if not t then return T.as(n, T.quantise(n, kit.cast(xs[1], "f32"), y), first) end
  -- From one scale to another: in integers.
  local q = I.requantised(n, centered(xs[1], t), { t.scale[1] / y.scale[1] }, nil, y)
  return T.as(n, q, first)
end

local function dequantize(n)
  local xs, first = T.together(n, 1)
  local t = T.quantised(n.row.reads[1])
  return T.as(n, t and T.dequantised(xs[1], t, first) or kit.cast(xs[1], "f32"), first)
end

--- Numbers as quantisation would leave them.
local fake_quant = T.real(function(n, x)
  local low, high, bits = n:float("min", 0), n:float("max", 0), n:int("num_bits", 0)

  -- The zero point is moved to a whole number, and the range with it, so that 0 stays 0 exactly.
  local least, most = n:flag "narrow_range" and 1 or 0, (1 << math.min(bits, 16)) - 1
  if low >= high or most <= least then n:fail("a range from %g to %g", low, high) end
  local scale = (high - low) / (most - least)
  local zero = math.max(least, math.min(most, math.floor(least - low / scale + 0.5)))
  local moved = F.Clamp(x, { min = (least - zero) * scale, max = (most - zero) * scale })
  local q = T.round(F.Div { moved, kit.number(scale, "f32") })
  return F.Mul { q, kit.number(scale, "f32") }
end)

return function(op, needs)
  for name, own in pairs(same) do op[name] = T.real(function(_, x) return F[own](x) end) end
  for name, f in pairs(unary) do op[name] = T.real(f) end
  needs[2] = "ADD SUB MUL DIV PRELU MAXIMUM MINIMUM POW SQUARED_DIFFERENCE FLOOR_DIV FLOOR_MOD \z
    ATAN2 EQUAL NOT_EQUAL LESS LESS_EQUAL GREATER GREATER_EQUAL LOGICAL_AND LOGICAL_OR \z
    BITWISE_XOR RIGHT_SHIFT"
  needs[3] = "SELECT SELECT_V2"
  op.ADD, op.SUB = binary(by "Add", integer_sum "Add"), binary(by "Sub", integer_sum "Sub")
  op.MUL, op.DIV = binary(by "Mul", integer_product), binary(divide)
  for name, own in pairs {
    MAXIMUM = "Maximum", MINIMUM = "Minimum", POW = "Pow", FLOOR_DIV = "FloorDiv",
    FLOOR_MOD = "Mod", ATAN2 = "Atan2", EQUAL = "Eq", NOT_EQUAL = "Ne", LESS = "Lt",
    LESS_EQUAL = "Le", GREATER = "Gt", GREATER_EQUAL = "Ge", LOGICAL_AND = "LogicalAnd",
    LOGICAL_OR = "LogicalOr", BITWISE_XOR = "BitwiseXor", RIGHT_SHIFT = "ShiftRight",
  } do
    op[name] = binary(by(own))
  end
  op.SQUARED_DIFFERENCE = binary(function(_, a, b) return F.Square(F.Sub { a, b }) end,
    integer_square)
  op.PRELU, op.LEAKY_RELU, op.ABS = binary(real_prelu, integer_prelu), leaky_relu, abs
  op.RELU = between(function(_, x) return F.Relu(x) end, 0)
  op.RELU6 = between(function(_, x) return F.Relu6(x) end, 0, 6)
  op.RELU_N1_TO_1, op.RELU_0_TO_1 = clamp(-1, 1), clamp(0, 1)
  op.SELECT, op.SELECT_V2, op.ADD_N = select_rows, choose, add_n
  op.CAST, op.QUANTIZE, op.DEQUANTIZE, op.FAKE_QUANT = cast, quantize, dequantize, fake_quant
end
