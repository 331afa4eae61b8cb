--- ONNX's elementwise ops: of one operand, of several with broadcasting, and casts.
-- @module neap.onnx.elementwise
local kit = require "neap.onnx.kit"
local F = kit.F

--- Ops that have one operand, no attributes, and the same meaning in all versions.
local same = {
  Abs = "Abs", Acos = "Acos", Acosh = "Acosh", Asin = "Asin", Asinh = "Asinh", Atan = "Atan",
  Atanh = "Atanh", Ceil = "Ceil", Cos = "Cos", Cosh = "Cosh", Erf = "Erf", Exp = "Exp",
  Floor = "Floor", HardSwish = "HardSwish", IsNaN = "IsNaN", Log = "Log", Mish = "Mish",
  Neg = "Neg", Not = "LogicalNot", Reciprocal = "Reciprocal", Relu = "Relu", Round = "Round",
  Sigmoid = "Sigmoid", Sign = "Sign", Sin = "Sin", Sinh = "Sinh", Softplus = "Softplus",
  Softsign = "Softsign", Sqrt = "Sqrt", Tan = "Tan", Tanh = "Tanh",
}

--- Comparisons and logic of two operands, which give bool.
local pairs_of = {
  And = "LogicalAnd", Or = "LogicalOr", Xor = "LogicalXor", Equal = "Eq", Greater = "Gt",
  GreaterOrEqual = "Ge", Less = "Lt", LessOrEqual = "Le", BitwiseAnd = "BitwiseAnd",
  BitwiseOr = "BitwiseOr", BitwiseXor = "BitwiseXor",
}

local bits = { u8 = 8, u16 = 16 }

--- Up to opset 6 `broadcast` says whether b is repeated, and `axis` where it stands in a.
local function aligned(n, a, b)
  if n.version >= 7 or not n:has "axis" then return b end

  -- b stands at `axis` of a: ones behind it fill a's rank, and broadcasting does the rest.
  local rank, axis = #a.shape, n:axis(n:int "axis", #a.shape)
  local shape = kit.copy(b.shape)
  for _ = axis + #b.shape, rank do shape[#shape + 1] = 1 end
  return kit.reshape(b, shape)
end

--- Unsigned numbers that lie in an i64: what is beyond their bits is cut off.
local function wrapped(n, x)
  if n:elem(1) ~= kit.U32 then return x end
  return F.BitwiseAnd { x, kit.number(0xffffffff, "i64") }
end

--- f of two, over any number of operands.
local function chain(f)
  return function(n, ...)
    local y = n:x(1)
    for i = 2, select("#", ...) do y = f { y, (select(i, ...)) } end
    return y
  end
end

--- The quotient of integers, cut towards 0: the sign is taken apart, since there is no wider type.
local function quotient(a, b)
  local q = F.FloorDiv { a, b }
  if a.dtype:match "^u" then return q end

  -- Where there is a rest, and the signs differ, the quotient was rounded down by one too many.
  local rest = F.Ne { F.Mul { q, b }, a }
  local negative = F.LogicalXor { F.Lt { a, kit.number(0, a.dtype) },
    F.Lt { b, kit.number(0, b.dtype) } }
  return F.Add { q, kit.cast(F.LogicalAnd { rest, negative }, q.dtype) }
end

--- The remainder with the sign of a. Of floats that are not below 0 it is Mod's, which is exact
-- however large the quotient is.
local function fmod(a, b)
  if kit.is_float(a) then
    local rest = F.Mod { F.Abs(a), F.Abs(b) }
    return F.Where { F.Lt { a, kit.number(0, a.dtype) }, F.Neg(rest), rest }
  end
  return F.Sub { a, F.Mul { quotient(a, b), b } }
end

-- ---- casts --------------------------------------------------------------------------------------

--- Floats to integers: ONNX cuts the fraction off. Narrower integers keep the low bits.
local function cast(n, x, elem)
  local row = kit.types[elem]
  if not row or not row.dtype then
    n:fail("a cast to %s", row and row.name or "type " .. tostring(elem))
  end

  local to, from = row.dtype, x.dtype
  local result

  -- Floats of 8 and 4 bits are rounded to their grid and kept in f32. uint32 lies in i64, so that
  -- its wrap is a mask. Integers that get narrower keep their low bits, where Neap's Cast would
  -- saturate.
  if kit.small_floats[elem] then
    result = kit.small_floats[elem](x)
  elseif kit.is_float(x) and to:match "^[iu]" then
    result = kit.cast(F.Trunc(x), to)
  elseif elem == kit.U32 and not kit.is_float(x) and from ~= "bool" then
    result = F.BitwiseAnd { kit.cast(x, "i64"), kit.number(0xffffffff, "i64") }
  elseif bits[to] and from:match "^i" or to == "u8" and from == "u16"
    or to:match "^i" and from:match "^[iu]" then
    result = kit.narrow(x, to)
  else
    result = kit.cast(x, to)
  end

  return { x = result, elem = elem, from = not kit.is_known(result) and n.inputs or nil,
    parameter = kit.is_float(result) and n.inputs[1].parameter }
end

-- ---- the way back -------------------------------------------------------------------------------

--- x f(x)..: a chain of ops of one operand, from the inside out.
local function through(...)
  local names = { ... }
  return function(n, v)
    for _, name in ipairs(names) do v = n:node(name, { v }) end
    return v
  end
end

local function is_float(n) return kit.is_float { dtype = n:dtype(1) } end

--- x times a number.
local function times(n, v, number) return n:node("Mul", { v, n:number(number) }) end
local function plus(n, v, number) return n:node("Add", { v, n:number(number) }) end

local function truncated(n, x)
  return n:node("Mul", { n:node("Sign", { x }), n:node("Floor", { n:node("Abs", { x }) }) })
end

--- An activation of attributes: {ONNX's name = Neap's}, from opset `since` on.
local function activation(name, attrs, since)
  return function(n, x)
    if since then n:needs(since) end
    local given = {}
    for key, own in pairs(attrs) do given[key] = n.attrs[own] + 0.0 end
    return n:node(name, { x }, given)
  end
end

local function clip(n, x, low, high)
  return n:node("Clip", { x, low > -math.huge and n:number(low), high < math.huge and
    n:number(high) })
end

local function shift(direction)
  return function(n, a, b)
    if not n:dtype(1):match "^u" then n:lacks("bits of %s are not shifted", n:dtype(1)) end
    return n:node("BitShift", { a, b }, { direction = direction })
  end
end

local function write(out)
  for name, own in pairs(same) do out[own] = name end
  for name, own in pairs(pairs_of) do out[own] = name end
  for _, name in ipairs { "Add", "Sub", "Mul", "Pow", "Where" } do out[name] = name end
  out.Maximum, out.Minimum, out.AddN = "Max", "Min", "Sum"
  function out.Div(n, a, b)
    local y = n:node("Div", { a, b })
    return n:as_result(y, n:dtype(1))
  end
  function out.Mish(n, x)
    if n:has(18) then return n:node("Mish", { x }) end
    return n:node("Mul", { x, n:node("Tanh", { n:node("Softplus", { x }) }) })
  end
  function out.HardSwish(n, x)
    if n:has(14) then return n:node("HardSwish", { x }) end
    return n:node("Mul", { x, n:node("HardSigmoid", { x }, { alpha = 1 / 6, beta = 0.5 }) })
  end
  for _, name in ipairs { "And", "Or", "Xor" } do
    out["Bitwise" .. name] = function(n, a, b)
      n:needs(18)
      return n:node("Bitwise" .. name, { a, b })
    end
  end
  function out.BitwiseNot(n, x)
    n:needs(18)
    return n:node("BitwiseNot", { x })
  end
  out.ShiftLeft, out.ShiftRight = shift "LEFT", shift "RIGHT"

  --- Neap's quotient of integers is rounded down, as its remainder has b's sign.
  function out.FloorDiv(n, a, b)
    if is_float(n) then return n:node("Floor", { n:node("Div", { a, b }) }) end
    return n:node("Div", { n:node("Sub", { a, n:node("Mod", { a, b }) }), b })
  end
  function out.Mod(n, a, b)
    if not is_float(n) then return n:node("Mod", { a, b }) end
    local whole = n:node("Floor", { n:node("Div", { a, b }) })
    return n:node("Sub", { a, n:node("Mul", { b, whole }) })
  end
  function out.Ne(n, a, b) return n:node("Not", { n:node("Equal", { a, b }) }) end
  function out.Hypot(n, a, b)
    return n:node("Sqrt", { n:node("Add", { n:node("Mul", { a, a }), n:node("Mul", { b, b }) }) })
  end
  function out.Lerp(n, a, b, w)
    return n:node("Add", { a, n:node("Mul", { w, n:node("Sub", { b, a }) }) })
  end

  function out.Square(n, x) return n:node("Mul", { x, x }) end
  out.Rsqrt, out.LogSigmoid = through("Sqrt", "Reciprocal"), through("Neg", "Softplus", "Neg")
  function out.Exp2(n, x) return n:node("Pow", { n:number(2), x }) end
  function out.Expm1(n, x) return plus(n, n:node("Exp", { x }), -1) end
  function out.Log1p(n, x) return n:node("Log", { plus(n, x, 1) }) end
  function out.Log2(n, x) return times(n, n:node("Log", { x }), 1 / math.log(2)) end
  function out.Log10(n, x) return times(n, n:node("Log", { x }), 1 / math.log(10)) end
  function out.Erfc(n, x) return n:node("Sub", { n:number(1), n:node("Erf", { x }) }) end
  out.Trunc = truncated
  function out.Frac(n, x) return n:node("Sub", { x, truncated(n, x) }) end
  function out.Sinc(n, x)
    local at = times(n, x, math.pi)
    local zero = n:node("Equal", { x, n:number(0) })
    return n:node("Where", { zero, n:number(1), n:node("Div", { n:node("Sin", { at }), at }) })
  end
  function out.IsInf(n, x)
    return n:node("IsInf", { x }, { detect_positive = n.attrs.positive,
      detect_negative = n.attrs.negative })
  end

  --- Neap rounds to an integer, ONNX cuts.
  function out.Cast(n, x)
    local to = n:result().dtype
    if is_float(n) and to:match "^[iu]" then x = n:node("Round", { x }) end
    return n:cast(x, to)
  end

  function out.Clamp(n, x) return clip(n, x, n.attrs.min, n.attrs.max) end
  out.HardTanh = out.Clamp
  function out.Relu6(n, x) return clip(n, x, 0, 6) end
  for _, name in ipairs { "Elu", "Celu" } do out[name] = activation(name, { alpha = "alpha" }) end
  out.Selu = activation("Selu", { alpha = "alpha", gamma = "gamma" })
  out.LeakyRelu = activation("LeakyRelu", { alpha = "slope" })
  out.HardSigmoid = activation("HardSigmoid", { alpha = "slope", beta = "offset" })
  out.SoftShrink = activation("Shrink", { lambd = "lambda", bias = "lambda" })
  out.HardShrink = activation("Shrink", { lambd = "lambda" })
  function out.Threshold(n, x)
    local t, value = n.attrs.threshold, n.attrs.value
    if value == 0 and t >= 0 then return n:node("ThresholdedRelu", { x }, { alpha = t + 0.0 }) end
    return n:node("Where", { n:node("Greater", { x, n:number(t) }), x, n:number(value) })
  end
  function out.Softplus(n, x)
    local beta, threshold = n.attrs.beta, n.attrs.threshold
    local scaled = beta == 1 and x or times(n, x, beta)
    local y = n:node("Softplus", { scaled })
    if beta ~= 1 then y = times(n, y, 1 / beta) end
    -- ONNX's has no threshold: from 20 on, the default, the difference is below any rounding.
    if threshold >= 20 then return y end
    return n:node("Where", { n:node("Greater", { scaled, n:number(threshold) }), x, y })
  end
  --- The builder knows x s(x) as Silu again.
  function out.Silu(n, x) return n:node("Mul", { x, n:node("Sigmoid", { x }) }) end
  function out.Gelu(n, x)
    local way = n.attrs.approximate
    if n:has(20) then return n:node("Gelu", { x }, { approximate = way }) end

    -- Older opsets have no such op: the same by its formula.
    local inner
    if way == "tanh" then
      local cube = n:node("Mul", { x, n:node("Mul", { x, x }) })
      inner = n:node("Add", { x, times(n, cube, 0.044715) })
      inner = n:node("Tanh", { times(n, inner, math.sqrt(2 / math.pi)) })
    else
      inner = n:node("Erf", { times(n, x, math.sqrt(0.5)) })
    end
    return n:node("Mul", { times(n, x, 0.5), plus(n, inner, 1) })
  end
  --- A slope of one dimension is one a channel where x has more.
  function out.PRelu(n, x, slope)
    if #n:dims(2) == 1 and #n:dims(1) > 2 then
      local dims = kit.fill(#n:dims(1) - 1, 1)
      dims[1] = n:dims(2)[1]
      slope = n:reshape(slope, dims)
    end
    return n:node("PRelu", { x, slope })
  end

  -- ---- what does nothing where nobody trains ----------------------------------------------------

  for _, name in ipairs { "Copy", "Alias", "StopGradient", "CheckFinite", "Dropout" } do
    out[name] = function(_, x) return x end
  end
end

return function(op, writers)
  write(writers)
  for name, neap_name in pairs(same) do
    op[name] = function(_, x) return F[neap_name](x) end
  end
  for name, neap_name in pairs(pairs_of) do
    op[name] = function(n, a, b) return F[neap_name] { a, aligned(n, a, b) } end
  end

  function op.Add(n, a, b)
    -- A bias that the product before it has taken.
    local product = n.state.absorbed[n.row]
    if product then return n.inputs[product] end
    return wrapped(n, F.Add { a, aligned(n, a, b) })
  end
  function op.Sub(n, a, b) return wrapped(n, F.Sub { a, aligned(n, a, b) }) end
  function op.Mul(n, a, b)
    -- x s(x) is an op of its own.
    for i = 1, 2 do
      local x, by = n.inputs[3 - i], n:maker(i, "Sigmoid")
      if by and by.inputs[1] == x and not n.folds then return F.Silu(n:x(3 - i)) end
    end
    return wrapped(n, F.Mul { a, aligned(n, a, b) })
  end
  function op.Div(n, a, b)
    b = aligned(n, a, b)
    return kit.is_float(a) and F.Div { a, b } or quotient(a, b)
  end

  --- The exponent may be of another type; the base's is the result's.
  function op.Pow(n, a, b)
    b = aligned(n, a, b)

    if b.dtype == a.dtype then return F.Pow { a, b } end
    if kit.is_float(a) then
      if kit.is_float(b) and b.dtype == "f64" then
        return kit.cast(F.Pow { kit.cast(a, "f64"), b }, a.dtype)
      end
      return F.Pow { a, kit.cast(b, a.dtype) }
    end

    if kit.is_float(b) then
      return kit.cast(F.Trunc(F.Pow { kit.cast(a, "f64"), kit.cast(b, "f64") }), a.dtype)
    end
    return kit.cast(F.Pow { kit.cast(a, "i64"), kit.cast(b, "i64") }, a.dtype)
  end

  function op.Mod(n, a, b)
    if n:flag "fmod" then return fmod(a, b) end
    return F.Mod { a, b }
  end

  op.Max = chain(F.Maximum)
  op.Min = chain(F.Minimum)
  op.Sum = chain(F.Add)
  function op.Mean(n, ...)
    local sum = op.Sum(n, ...)
    return F.Div { sum, kit.number(select("#", ...), sum.dtype) }
  end

  function op.Identity(n) return n.inputs[1] end
  function op.Where(_, c, a, b) return F.Where { c, a, b } end

  function op.BitwiseNot(n, x) return wrapped(n, F.BitwiseNot(x)) end
  function op.BitShift(n, a, b)
    local shift = n:word("direction", { LEFT = F.ShiftLeft, RIGHT = F.ShiftRight })
    return wrapped(n, shift { a, b })
  end

  function op.IsInf(n, x)
    return F.IsInf(x, { positive = n:flag("detect_positive", true),
      negative = n:flag("detect_negative", true) })
  end

  --- Bounds are attributes up to opset 10, then inputs; an empty one is none.
  function op.Clip(n, x, low, high)
    local from, to
    if n.version < 11 then
      from, to = n:float "min", n:float "max"
    elseif kit.is_float(x) and (not low or kit.is_known(low))
      and (not high or kit.is_known(high)) then
      from, to = low and n:number(2), high and n:number(3)
    end

    if from or to then
      if from == 0 and to == 6 then return F.Relu6(x) end
      return F.Clamp(x, { min = from, max = to })
    end
    -- Bounds that a run computes, or of integers.
    if low then x = F.Maximum { x, low } end
    if high then x = F.Minimum { x, high } end
    return x
  end

  function op.Cast(n, x)
    local to = n:int "to"
    if not to then n:fail "attribute \"to\" is missing" end
    return cast(n, x, to)
  end
  function op.CastLike(n, x) return cast(n, x, n:elem(2)) end
  function op.BitCast(n, x)
    if (kit.types[n:int "to"] or {}).dtype ~= x.dtype then n:fail "bits of another type" end
    return x
  end

  -- ---- activations ------------------------------------------------------------------------------

  function op.Elu(n, x) return F.Elu(x, { alpha = n:float("alpha", 1) }) end
  function op.Celu(n, x) return F.Celu(x, { alpha = n:float("alpha", 1) }) end
  function op.Selu(n, x)
    return F.Selu(x, { alpha = n:float("alpha", 1.67326319217681884765625),
      gamma = n:float("gamma", 1.05070102214813232421875) })
  end
  function op.LeakyRelu(n, x) return F.LeakyRelu(x, { slope = n:float("alpha", 0.01) }) end
  function op.HardSigmoid(n, x)
    return F.HardSigmoid(x, { slope = n:float("alpha", 0.2), offset = n:float("beta", 0.5) })
  end
  function op.ThresholdedRelu(n, x)
    return F.Threshold(x, { threshold = n:float("alpha", 1), value = 0 })
  end
  function op.Gelu(n, x)
    return F.Gelu(x, { approximate = n:word("approximate", "none tanh", "none") })
  end
  function op.Swish(n, x)
    local alpha = n:float("alpha", 1)
    if alpha == 1 then return F.Silu(x) end
    return F.Mul { x, F.Sigmoid(F.Mul { x, kit.number(alpha, x.dtype) }) }
  end

  --- Up to opset 6 a slope for each channel has one dimension; later it broadcasts to x, as that
  -- of Neap's op does not: so it is made of others.
  function op.PRelu(n, x, slope)
    if n.version < 7 and #slope.shape == 1 and slope.shape[1] == x.shape[2] then
      local shape = kit.fill(#x.shape - 1, 1)
      shape[1] = slope.shape[1]
      slope = kit.reshape(slope, shape)
    end
    local zero = kit.number(0, x.dtype)
    return F.Where { F.Lt { x, zero }, F.Mul { x, slope }, x }
  end

  function op.Shrink(n, x)
    local lambda, bias = n:float("lambd", 0.5), n:float("bias", 0)
    local function number(v) return kit.number(v, x.dtype) end
    local zero = F.Mul { x, number(0) }
    local up = F.Where { F.Gt { x, number(lambda) }, F.Sub { x, number(bias) }, zero }
    return F.Where { F.Lt { x, number(-lambda) }, F.Add { x, number(bias) }, up }
  end
end
