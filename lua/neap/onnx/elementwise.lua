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
  if kit.small_floats[elem] then
    result = kit.small_floats[elem](x)
  elseif kit.is_float(x) and to:match "^[iu]" then
    result = kit.cast(F.Trunc(x), to)
  elseif elem == kit.U32 and not kit.is_float(x) and from ~= "bool" then
    result = F.BitwiseAnd { kit.cast(x, "i64"), kit.number(0xffffffff, "i64") }
  elseif bits[to] and from:match "^i" or to:match "^i" and from:match "^[iu]" then
    result = kit.narrow(x, to)
  else
    result = kit.cast(x, to)
  end
  return { x = result, elem = elem, from = not kit.is_known(result) and n.inputs or nil,
    parameter = n.inputs[1].parameter and kit.is_float(result) }
end

return function(op)
  for name, neap_name in pairs(same) do
    op[name] = function(_, x) return F[neap_name](x) end
  end
  for name, neap_name in pairs(pairs_of) do
    op[name] = function(n, a, b) return F[neap_name] { a, aligned(n, a, b) } end
  end

  function op.Add(n, a, b) return wrapped(n, F.Add { a, aligned(n, a, b) }) end
  function op.Sub(n, a, b) return wrapped(n, F.Sub { a, aligned(n, a, b) }) end
  function op.Mul(n, a, b) return wrapped(n, F.Mul { a, aligned(n, a, b) }) end
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
    if n.version < 11 then
      return F.Clamp(x, { min = n:float "min", max = n:float "max" })
    end
    if low then x = F.Maximum { x, low } end
    if high then x = F.Minimum { x, high } end
    return x
  end

  function op.Cast(n, x)
    local to = n:int "to"
    -- The first versions name the type.
    if not to then n:fail "attribute \"to\" is missing" end
    return cast(n, x, to)
  end
  function op.CastLike(n, x) return cast(n, x, n:elem(2)) end
  function op.BitCast(n, x)
    if kit.types[n:int "to"].dtype ~= x.dtype then n:fail "bits of another type" end
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
