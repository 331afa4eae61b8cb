--- ONNX's quantised ops: by Neap's, where these have the form, else computed in floats that hold
-- every sum exactly. Of ONNX Runtime's own, domain com.microsoft, those that its quantiser writes
-- between products: QLinearAdd and QLinearConcat.
-- @module neap.onnx.quantised
local kit = require "neap.onnx.kit"
local F = kit.F

local ranges = { u8 = { 0, 255 }, i8 = { -128, 127 }, u16 = { 0, 65535 }, i16 = { -32768, 32767 },
  i32 = { -2^31, 2^31 - 1 } }
local few_bits = { [21] = { 0, 15 }, [22] = { -8, 7 }, [25] = { 0, 3 }, [26] = { -2, 1 } }

--- A scale or zero point beside x: of all, of each position along the axis, or of blocks along it.
local function beside(n, x, v, axis, block)
  if #v.shape == 0 or kit.product(v.shape) == 1 then return kit.reshape(v, {}) end

  -- Blocks: each number stands for so many positions along the axis, the last ones perhaps fewer.
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

--- Sums of `count` products of bytes less their zero points as i32, which wrap.
local function wrapped(sums, count)
  -- Below 2^31 no sum leaves 32 bits; else whole turns of 2^32 are taken off, exactly in f64.
  if count * 255 * 255 >= 2^31 then
    local turns = F.Floor(F.Mul { F.Add { sums, kit.number(2^31, "f64") },
      kit.number(2^-32, "f64") })
    sums = F.Sub { sums, F.Mul { turns, kit.number(2^32, "f64") } }
  end
  return kit.cast(sums, "i32")
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

-- ---- by Neap's own ops --------------------------------------------------------------------------

local words = { u8 = true, i8 = true, u16 = true, i16 = true }

--- Input i as a tensor, where it is known; else nil.
local function known(n, i)
  local v = n.inputs[i]
  return v and kit.is_known(v.x) and v.x or nil
end

local function is_empty(x) return x:n_element() == 0 end

--- A zero point as Neap's ops take it: false where it is known to be 0, so that no kernel looks.
local function zero_of(n, i)
  local v = known(n, i)
  if not n:given(i) then return false end
  if v and (is_empty(v) or v:to("f64"):abs():max():item() == 0) then return false end
  return n:x(i)
end

--- Whether input i, where given, is one number or a list of them.
local function is_plain(n, i)
  local v = n.inputs[i]
  return not v or #v.x.shape < 2 or kit.product(v.x.shape) == 1
end
local function plain(v) return v and #v.shape > 1 and kit.reshape(v, {}) or v end

--- Weights, input i, and their zero point, input zero_at: in i8 without one, where all is known
-- and they fit; `at` is the dimension that has a zero point for each position.
local function weights(n, i, zero_at, at)
  local w, zero = known(n, i), known(n, zero_at)

  -- Weights less their zero point mostly fit i8, where a product is fastest and needs no zero
  -- point.
  if w and zero and zero_of(n, zero_at) then
    local shape = kit.fill(#w.shape, 1)
    if #zero.shape == 1 and #shape > 0 then shape[at] = zero.shape[1] end
    local moved = w:to "i32" - zero:to("i32"):reshape(shape)
    if is_empty(moved) or moved:min():item() >= -128 and moved:max():item() <= 127 then
      local v = { x = moved:to "i8", elem = 3, name = n.inputs[i].name }
      return n.folds and v.x or n.state:operand(v), false
    end
  end
  return n:x(i), zero_of(n, zero_at)
end

--- The first eight operands of QLinearConv and QLinearMatMul, for Neap's ops; nil where these don't
-- take them.
local function product_operands(n, at)
  for _, i in ipairs { 1, 4, 8 } do
    local elem = n:elem(i)
    if elem ~= 2 and elem ~= 3 then return nil end -- bytes; others lie in such, too
  end
  for _, i in ipairs { 2, 3, 5, 6, 7, 8 } do
    if not is_plain(n, i) then return nil end
  end
  local function scale(i) return kit.cast(plain(n:x(i)), "f32") end

  local w, w_zero = weights(n, 4, 6, at)
  -- Without a zero point y is of x's type.
  local y_zero
  if n:elem(8) == n:elem(1) then y_zero = zero_of(n, 8) else y_zero = n:x(8) end
  return { n:x(1), scale(2), plain(zero_of(n, 3)), w, scale(5), plain(w_zero), scale(7),
    plain(y_zero) }
end

-- ---- the way back -------------------------------------------------------------------------------

--- Which operands scales are; the zero point behind each is of the operand before it, or of y.
local function with_zeros(n, ins, scales)
  for _, i in ipairs(scales) do
    local dtype = (n.ins[i - 1] and i ~= 7) and n:dtype(i - 1) or n:result().dtype
    ins[i + 1] = ins[i + 1] or n:const(kit.full(n:static(n:dims(i), "a scale's size"), 0, dtype))
  end
  return ins
end

--- QuantizeLinear and DequantizeLinear, with zero points that are 0 written out: other readers ask
-- for them.
local function write_linear(name)
  return function(n, x, scale, zero)
    local bytes = name == "QuantizeLinear" and n:result().dtype or n:dtype(1)
    n:needs(bytes:match "16" and 21 or 13)
    local dims = n:static(n:dims(2), "a scale's size")
    zero = zero or n:const(kit.full(dims, 0, bytes))
    local many = #dims == 1 and dims[1] ~= 1
    return n:node(name, { x, scale, zero },
      { axis = many and n:axis(n.attrs.axis, #n:dims(1)) or nil })
  end
end

--- The standard has no sum of bytes, nor bytes of another scale: they are that of their numbers.
local function write_elementwise(out)
  local function bytes(n, x, ins, at)
    local zero = ins[at + 1]
      or n:const(kit.full(n:static(n:dims(at), "a scale's size"), 0, n:result().dtype))
    return n:node("QuantizeLinear", { x, ins[at], zero })
  end
  local function zeros(n, ins, of)
    for _, at in ipairs(of) do
      ins[at + 2] = ins[at + 2]
        or n:const(kit.full(n:static(n:dims(at + 1), "a scale's size"), 0, n:dtype(at)))
    end
    return ins
  end
  function out.QLinearAdd(n, ...)
    n:needs(13)
    local ins = zeros(n, { ... }, { 1, 4 })
    local a = n:node("DequantizeLinear", { ins[1], ins[2], ins[3] })
    local b = n:node("DequantizeLinear", { ins[4], ins[5], ins[6] })
    return bytes(n, n:node("Add", { a, b }), ins, 7)
  end
  function out.QLinearRescale(n, ...)
    n:needs(13)
    local ins = zeros(n, { ... }, { 1 })
    return bytes(n, n:node("DequantizeLinear", { ins[1], ins[2], ins[3] }), ins, 4)
  end
end

local function write(out)
  write_elementwise(out)
  out.QuantizeLinear = write_linear "QuantizeLinear"
  out.DequantizeLinear = write_linear "DequantizeLinear"
  function out.QLinearMatMul(n, ...)
    return n:node("QLinearMatMul", with_zeros(n, { ... }, { 2, 5, 7 }))
  end
  function out.QLinearConv(n, ...)
    return n:node("QLinearConv", with_zeros(n, { ... }, { 2, 5, 7 }), kit.write_conv_attrs(n, 4))
  end

  --- The standard has no mean of bytes: it is that of their numbers, which Neap puts together
  -- again.
  local function mean_of(pool)
    return function(n, x, x_scale, x_zero, y_scale, y_zero)
      n:needs(13)
      local function zero(i, dtype)
        return n:const(kit.full(n:static(n:dims(i), "a scale's size"), 0, dtype))
      end
      local numbers = n:node("DequantizeLinear", { x, x_scale, x_zero or zero(2, n:dtype(1)) })
      return n:node("QuantizeLinear", { out[pool](n, numbers), y_scale,
        y_zero or zero(4, n:result().dtype) })
    end
  end
  out.QLinearAveragePool = mean_of "AveragePool"
  out.QLinearGlobalAveragePool = mean_of "GlobalAveragePool"
end

-- ---- ONNX Runtime's own -------------------------------------------------------------------------

--- One scale for all of an operand, or an error.
local function one_scale(n, i)
  if kit.product(n.inputs[i].x.shape) ~= 1 then
    n:fail("input %d is expected to be one number, got (%s)", i,
      table.concat(n.inputs[i].x.shape, ","))
  end
  return kit.cast(kit.reshape(n:x(i), {}), "f32")
end

--- A zero point that is one number; nil where it is known to be 0.
local function one_zero(n, i)
  if not n:given(i) or not zero_of(n, i) then return nil end
  one_scale(n, i)
  return kit.reshape(n:x(i), {})
end

--- Raises unless an operand is of bytes.
local function check_bytes(n, i)
  local elem = n:elem(i)
  if elem ~= 2 and elem ~= 3 then
    n:fail("input %d is expected to be u8 or i8, got %s", i,
      (kit.types[elem] or {}).name or tostring(elem))
  end
end

--- The dtype of y, by its zero point, input i, else by input `like`.
local function bytes_of_y(n, i, like)
  local at = n:given(i) and i or like
  check_bytes(n, at)
  return kit.types[n:elem(at)].dtype
end

local function read_contrib(op)
  function op.QLinearAdd(n)
    local a, b = n:x(1), n:x(4)
    for _, i in ipairs { 1, 4 } do check_bytes(n, i) end
    local shape = kit.broadcast(a.shape, b.shape)
    return F.QLinearAdd({ kit.expand(a, shape), one_scale(n, 2), one_zero(n, 3) or false,
      kit.expand(b, shape), one_scale(n, 5), one_zero(n, 6) or false, one_scale(n, 7),
      one_zero(n, 8) or false }, { to = bytes_of_y(n, 8, 1) })
  end

  --- Of y's scale and zero point, then of x, its scale and its zero point, for each input.
  function op.QLinearConcat(n)
    if (#n.inputs - 2) % 3 ~= 0 then
      n:fail("%d inputs: behind y's scale and zero point come three for each part", #n.inputs)
    end
    local scale, zero, parts = one_scale(n, 1), one_zero(n, 2), {}
    local to = bytes_of_y(n, 2, 3)
    for i = 3, #n.inputs, 3 do
      check_bytes(n, i)
      parts[#parts + 1] = F.QLinearRescale({ n:x(i), one_scale(n, i + 1),
        one_zero(n, i + 2) or false, scale, zero or false }, { to = to })
    end
    return kit.concat(parts, n:axis(n:needed(n:int "axis", "axis"), #parts[1].shape))
  end
end

return function(op, out, contrib)
  write(out)
  read_contrib(contrib)
  function op.QuantizeLinear(n)
    local x, scale = n:x(1), n:x(2)
    local axis, block = n:int("axis", 1), n:int("block_size", 0)
    local elem = n:given(3) and n:elem(3) or n:int("output_dtype", 0)
    if elem == 0 then elem = 2 end

    -- Neap's op has scales of all or of an axis, and whole bytes; blocks and few bits are computed
    -- in floats.
    local wide = x.dtype == "f64" and "f64" or "f32"
    local dtype = (kit.types[elem] or {}).dtype
    if block == 0 and words[dtype] and not few_bits[elem] and is_plain(n, 2) and is_plain(n, 3) then
      scale = plain(scale)
      local at = kit.product(scale.shape) > 1 and n:axis(axis, #x.shape) or nil
      local q = F.QuantizeLinear({ kit.cast(x, wide), kit.cast(scale, wide),
        plain(zero_of(n, 3)) }, { to = dtype, axis = at })
      return { x = q, elem = elem, from = not kit.is_known(q) and n.inputs or nil }
    end
    local zero = n:x(3)
    scale = kit.cast(beside(n, x, scale, axis, block), wide)
    zero = zero and beside(n, x, zero, axis, block)
    return round_to(n, kit.cast(x, wide), scale, zero, elem)
  end

  function op.DequantizeLinear(n)
    local scale, x = n:x(2), n.inputs[1].x
    local axis, block = n:int("axis", 1), n:int("block_size", 0)
    local to = n:int("output_dtype", 0)

    local dtype = to == 0 and scale.dtype or (kit.types[to] or {}).dtype
      or n:fail("numbers of type %d", to)
    local is_word = words[x.dtype] or x.dtype == "i32"
    if block == 0 and is_word and is_plain(n, 2) and is_plain(n, 3) then
      scale = plain(scale)
      local at = kit.product(scale.shape) > 1 and n:axis(axis, #x.shape) or nil
      local q, zero = weights(n, 1, 3, at or 1)
      return kit.cast(F.DequantizeLinear({ q, kit.cast(scale, dtype == "f64" and dtype or "f32"),
        plain(zero) }, { axis = at }), dtype)
    end

    local zero = n:x(3)
    x = n:x(1)
    scale = beside(n, x, scale, axis, block)
    local y = centered(x, zero and beside(n, x, zero, axis, block), "f32")
    return kit.cast(F.Mul { y, kit.cast(scale, "f32") }, dtype)
  end

  function op.DynamicQuantizeLinear(n, x)
    local zero = kit.number(0, "f32")

    -- The range of x with 0 in it, in 255 steps; the zero point is where 0 lies.
    local axes = { axes = kit.count(#x.shape) }
    local high = F.Maximum { F.Max(x, axes), zero }
    local low = F.Minimum { F.Min(x, axes), zero }
    local scale = F.Div { F.Sub { high, low }, kit.number(255, "f32") }
    local safe = F.Where { F.Eq { scale, zero }, kit.number(1, "f32"), scale }
    local at = saturated(F.Round(F.Div { F.Neg(low), safe }), 2)
    -- Of zeros alone the scale is 1, as ONNX Runtime has it: the standard's 0 gives nothing back.
    return round_to(n, x, safe, at, 2), safe, at
  end

  function op.MatMulInteger(n, a, b, a_zero, b_zero)
    for i, x in ipairs { a, b } do n:check_rank(i, x, 1, math.huge) end
    local y = F.MatMul { centered(a, of_rows(a_zero, #a.shape)), centered(b, of_columns(b_zero)) }
    return wrapped(y, a.shape[#a.shape])
  end

  function op.QLinearMatMul(n)
    local ranks = #n.inputs[1].x.shape > 1 and #n.inputs[4].x.shape > 1
    local ins = ranks and product_operands(n, #n.inputs[4].x.shape)
    if ins then return F.QLinearMatMul(ins) end

    -- Exact sums in f64, brought to y's scale.
    local a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = n:x(1), n:x(2), n:x(3), n:x(4),
      n:x(5), n:x(6), n:x(7), n:x(8)
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
    return wrapped(conv(n, x, w, x_zero, w_zero), kit.product(w.shape) // math.max(w.shape[1], 1))
  end

  function op.QLinearConv(n)
    local ins = product_operands(n, 1)
    if ins then
      ins[9] = n:x(9)
      return F.QLinearConv(ins, kit.conv_attrs(n, ins[1], ins[4]))
    end
    local x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b = n:x(1), n:x(2), n:x(3),
      n:x(4), n:x(5), n:x(6), n:x(7), n:x(8), n:x(9)
    local sum = conv(n, x, w, x_zero, w_zero)
    local rank = #sum.shape - 1
    if b then sum = F.Add { sum, kit.cast(of_channels(b, rank), "f64") } end
    local function wide(v) return kit.cast(of_channels(v, rank), "f64") end
    local scale = F.Div { F.Mul { wide(x_scale), wide(w_scale) }, wide(y_scale) }
    return round_to(n, F.Mul { sum, scale }, kit.number(1, "f64"), of_channels(y_zero, rank),
      n:elem(8))
  end
end
