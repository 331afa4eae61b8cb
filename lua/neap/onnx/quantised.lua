--- ONNX's quantised ops, computed in floats that hold every sum exactly.
-- @module neap.onnx.quantised
local kit = require "neap.onnx.kit"
local F = kit.F

local ranges = { u8 = { 0, 255 }, i8 = { -128, 127 }, u16 = { 0, 65535 }, i16 = { -32768, 32767 },
  i32 = { -2^31, 2^31 - 1 } }
local few_bits = { [21] = { 0, 15 }, [22] = { -8, 7 }, [25] = { 0, 3 }, [26] = { -2, 1 } }

--- A scale or zero point beside x: of all, of each position along the axis, or of blocks along it.
local function beside(n, x, v, axis, block)
  if #v.shape == 0 or kit.product(v.shape) == 1 then return kit.reshape(v, {}) end
  if block > 0 then
    local d = n:axis(axis, #x.shape)
    local want = kit.copy(x.shape)
    want[d] = -(-want[d] // block)
    if table.concat(v.shape, ",") ~= table.concat(want, ",") then
      n:fail("x (%s) in blocks of %d has scales and zero points of (%s), got (%s)",
        table.concat(x.shape, ","), block, table.concat(want, ","), table.concat(v.shape, ","))
    end
    return kit.part(F.RepeatInterleave(v, { repeats = block, axis = d }), d, 1, x.shape[d])
  end
  local shape = kit.fill(#x.shape, 1)
  shape[n:axis(axis, #x.shape)] = v.shape[1]
  return kit.reshape(v, shape)
end

--- Whole numbers in floats as integers of an element type, kept within its range.
local function saturated(y, elem)
  local dtype = kit.types[elem].dtype
  local range = few_bits[elem] or ranges[dtype]
  return kit.cast(F.Clamp(y, { min = range[1], max = range[2] }), dtype)
end

local function round_to(n, x, scale, zero, elem)
  local y = F.Round(F.Div { x, scale })
  if zero then y = F.Add { y, kit.cast(zero, y.dtype) } end
  if not (few_bits[elem] or ranges[(kit.types[elem] or {}).dtype]) then
    n:fail("quantised numbers of %s", (kit.types[elem] or {}).name or tostring(elem))
  end
  local q = saturated(y, elem)
  return { x = q, elem = elem, from = not kit.is_known(q) and n.inputs or nil }
end

--- x less its zero point, in a float that holds all products' sums.
local function centered(x, zero, wide)
  x = kit.cast(x, wide or "f64")
  return zero and F.Sub { x, kit.cast(zero, x.dtype) } or x
end

--- Zero points of the rows of a, or of the columns of b.
local function of_rows(v, rank)
  if not v or #v.shape ~= 1 or v.shape[1] == 1 or rank < 2 then
    return v and kit.product(v.shape) == 1 and kit.reshape(v, {}) or v
  end
  return kit.unsqueeze(v, { 2 })
end
local function of_columns(v)
  return v and kit.product(v.shape) == 1 and kit.reshape(v, {}) or v
end

--- One number, or one for each output channel.
local function of_channels(v, rank)
  if not v or kit.product(v.shape) == 1 then return v and kit.reshape(v, {}) end
  local shape = kit.fill(rank, 1)
  shape[1] = v.shape[1]
  return kit.reshape(v, shape)
end

return function(op)
  function op.QuantizeLinear(n, x, scale, zero)
    local axis, block = n:int("axis", 1), n:int("block_size", 0)
    local elem = zero and n:elem(3) or n:int("output_dtype", 0)
    if elem == 0 then elem = 2 end
    local wide = x.dtype == "f64" and "f64" or "f32"
    scale = kit.cast(beside(n, x, scale, axis, block), wide)
    zero = zero and beside(n, x, zero, axis, block)
    return round_to(n, kit.cast(x, wide), scale, zero, elem)
  end

  function op.DequantizeLinear(n, x, scale, zero)
    local axis, block = n:int("axis", 1), n:int("block_size", 0)
    local out = n:int("output_dtype", 0)
    local dtype = out ~= 0 and kit.types[out].dtype or scale.dtype
    scale = beside(n, x, scale, axis, block)
    local y = centered(x, zero and beside(n, x, zero, axis, block), "f32")
    return kit.cast(F.Mul { y, kit.cast(scale, "f32") }, dtype)
  end

  function op.DynamicQuantizeLinear(n, x)
    local zero = kit.number(0, "f32")
    local axes = { axes = kit.count(#x.shape) }
    local high = F.Maximum { F.Max(x, axes), zero }
    local low = F.Minimum { F.Min(x, axes), zero }
    local scale = F.Div { F.Sub { high, low }, kit.number(255, "f32") }
    local safe = F.Where { F.Eq { scale, zero }, kit.number(1, "f32"), scale }
    local at = saturated(F.Round(F.Div { F.Neg(low), safe }), 2)
    return round_to(n, x, safe, at, 2), scale, at
  end

  function op.MatMulInteger(_, a, b, a_zero, b_zero)
    local y = F.MatMul { centered(a, of_rows(a_zero, #a.shape)), centered(b, of_columns(b_zero)) }
    return kit.cast(y, "i32")
  end

  function op.QLinearMatMul(n, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero)
    local sum = F.MatMul { centered(a, of_rows(a_zero, #a.shape)), centered(b, of_columns(b_zero)) }
    local function wide(v) return kit.cast(v, "f64") end
    local scale = F.Mul { wide(of_rows(a_scale, #a.shape)), wide(of_columns(b_scale)) }
    return round_to(n, F.Mul { sum, F.Div { scale, wide(of_columns(y_scale)) } },
      kit.number(1, "f64"), of_columns(y_zero), n:elem(8))
  end

  --- The sum of a convolution of integers, exactly; padding is with the zero point.
  local function conv(n, x, w, x_zero, w_zero)
    return op.Conv(n, centered(x, x_zero and kit.reshape(x_zero, {})),
      centered(w, of_channels(w_zero, #w.shape)))
  end

  function op.ConvInteger(n, x, w, x_zero, w_zero)
    return kit.cast(conv(n, x, w, x_zero, w_zero), "i32")
  end

  function op.QLinearConv(n, x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b)
    local sum = conv(n, x, w, x_zero, w_zero)
    local rank = #sum.shape - 1
    if b then sum = F.Add { sum, kit.cast(of_channels(b, rank), "f64") } end
    local function wide(v) return kit.cast(of_channels(v, rank), "f64") end
    local scale = F.Div { F.Mul { wide(x_scale), wide(w_scale) }, wide(y_scale) }
    return round_to(n, F.Mul { sum, scale }, kit.number(1, "f64"), of_channels(y_zero, rank),
      n:elem(8))
  end
end
