--- TFLite's operators that the standard computes in integers of 8 or 16 bits by ways of its own: of
-- one operand each number is worked out here, as its kernels do it, and the net looks them up; so
-- is what Softmax of 16 bits looks up.
--
-- Numbers are whole; >> of one below 0 is a division that rounds down, as in C here.
-- @module neap.tflite.tables
local T = require "neap.tflite.kit"
local core = require "neap.core"
local kit = require "neap.onnx.kit"
local F = kit.F

-- ---- fixed point --------------------------------------------------------------------------------

local function within(x, least, most) return math.max(least, math.min(x, most)) end
local function half_word(x) return within(x, -32768, 32767) end

--- A quotient that is cut towards 0.
local function cut(a, b) return a < 0 and -(-a // b) or a // b end

--- A real number above 0 as m / 2^31 * 2^e, m of 31 bits.
local function fixed(real)
  local q, e = real, 0
  while q >= 1 do q, e = q / 2, e + 1 end
  while q > 0 and q < 0.5 do q, e = q * 2, e - 1 end
  local m = math.floor(q * 2^31 + 0.5)
  if m == 1 << 31 then m, e = m // 2, e + 1 end
  if e < -31 then return 0, 0 end
  return m, e
end

--- The upper 16 bits of such an m.
local function upper(m) return math.min((m + (1 << 15)) >> 16, 32767) end

--- 2 a b / 2^16 of two half words, to the nearest.
local function high_product(a, b)
  local product = a * b
  return half_word(cut(product + (product >= 0 and 1 << 14 or 1 - (1 << 14)), 1 << 15))
end

--- x / 2^e to the nearest, halves away from 0.
local function shifted(x, e)
  local mask = (1 << e) - 1
  return x // (1 << e) + ((x & mask) > (mask >> 1) + (x < 0 and 1 or 0) and 1 or 0)
end

-- ---- HARD_SWISH of 8 bits -----------------------------------------------------------------------

--- x relu6(x + 3) / 6, in half words: x in steps of 1/128 of its own, the relu as a share of 2^15.
local function hard_swish(t, y)
  local fine = T.f32(T.f32(t.scale[1]) / 128)
  local out, out_e = fixed(T.f32(fine / T.f32(y.scale[1])))
  local share, share_e = fixed(T.f32(fine / T.f32(3 / 32768)))
  out, share = upper(out), upper(share)
  local range = T.ranges[y.dtype]
  return function(q)
    local x = (q - t.zero[1]) * 128
    local r = x
    -- A multiplier above 1 is applied as shifts: all but one before the product, the last behind
    -- it, each saturating, as the kernel does to keep bits.
    if share_e > 0 then r = half_word(r << (share_e - 1)) end
    r = high_product(r, share)
    if share_e > 0 then r = half_word(r << 1) end
    if share_e < 0 then r = shifted(r, -share_e) end
    -- From -2^15..2^15 to a share of 0..2^15.
    r = (r + (1 << 15)) // 2
    local v = cut(r * high_product(x, out), 1 << 15)
    v = out_e < 0 and shifted(v, -out_e) or v << out_e
    return within(v + y.zero[1], range[1], range[2])
  end
end

-- ---- LOGISTIC and TANH of 16 bits ---------------------------------------------------------------

-- 2^16 sigmoid(i / 24), i from 0 to 255; at these places the standard has one more, so that lines
-- between them lie nearer.
local one_more = [[ 4 8 12 14 15 16 17 19 20 21 22 25 27 28 29 30 31 33 34 35 37 39 40 41 43 44
  45 46 49 50 54 62 63 64 66 82 86 93 100 103 112 116 135 255]]
local sigmoid = {}
for i = 0, 255 do sigmoid[i] = math.floor(65536 / (1 + math.exp(-i / 24)) + 0.5) end
for i in one_more:gmatch "%d+" do sigmoid[tonumber(i)] = sigmoid[tonumber(i)] + 1 end

--- x in steps of 1/3 of 2^-12: f(q).
-- @param most_shift a scale of 2^-12 may be shifted by so much and needs no multiplier
local function in_thirds(t, most_shift)
  local scale = T.f32(t.scale[1])
  for shift = 0, most_shift do
    if scale == 2.0 ^ (shift - 12) then return function(q) return q * (3 << shift) end end
  end

  -- As the largest multiplier of 15 bits and a shift.
  local m, shift = scale * 4096 * 3, 0
  while m <= 32767 / 2 and shift <= 30 do m, shift = m * 2, shift + 1 end
  m = math.floor(m)
  local half = shift > 0 and 1 << (shift - 1) or 0
  return function(q) return (q * m + half) // (1 << shift) end
end

--- The table at `at`, in steps of 2^bits, by a line between two of its numbers; 2^bits as much.
local function between(at, bits, most)
  local i, rest = at >> bits, at & ((1 << bits) - 1)
  if i >= 255 then return most end
  return (sigmoid[i] << bits) + rest * (sigmoid[i + 1] - sigmoid[i])
end

local function logistic(t)
  local place = in_thirds(t, 0)
  return function(q)
    local x = place(q)
    local v = between(math.abs(x), 9, 0x7fff << 10)
    v = x >= 0 and v + (1 << 9) or (1 << 25) - v + (1 << 9) - 1
    return v >> 10
  end
end

local function tanh(t)
  local place = in_thirds(t, 1)
  return function(q)
    local x = place(q)
    local v = between(math.abs(x), 8, 0xffff << 8)
    v = x >= 0 and v - (1 << 23) + (1 << 7) or -v + (1 << 23) + (1 << 7) - 1
    return v // (1 << 8)
  end
end

-- ---- looking up ---------------------------------------------------------------------------------

--- A list of numbers, the first of them that of `least`, as an operand of the node.
local function operand(n, list, name, dtype)
  local v = { x = core.tensor(list, dtype), name = name, elem = kit.elem_of[dtype] }
  return n.folds and v.x or n.state:operand(v)
end

local function look_up(n, list, x, least, name, dtype)
  local at = F.Sub { kit.cast(x, "i32"), kit.number(least, "i32") }
  return T.onnx(n, "Gather", { operand(n, list, name, dtype), at }, { axis = 0 })
end

--- All numbers of tensor t through g.
local function all_of(t, g)
  local range, list = T.ranges[t.dtype], {}
  for q = range[1], range[2] do list[#list + 1] = g(q) end
  return list
end

--- A builder that looks up what f(n, t, y) -> list gives for each number of t, where the dtype of
-- the input has that of the result in `dtypes`; of others `other` builds it.
local function by_table(f, dtypes, other)
  return function(n)
    local t, y = T.quantised(n.row.reads[1]), T.quantised(n.row.makes[1])
    if not (t and y and dtypes[t.dtype] == y.dtype and #t.scale == 1 and #y.scale == 1) then
      return other(n)
    end
    local xs, first = T.together(n, 1)
    local least = T.ranges[t.dtype][1]
    return T.as(n, look_up(n, f(n, t, y), xs[1], least, n.row.name .. "/table", y.dtype), first)
  end
end

-- ---- functions of 16 bits by lines --------------------------------------------------------------

--- The nearest whole number, halves away from 0; of an infinity or NaN itself.
local function whole(x) return x < 0 and -((0.5 - x) // 1) or (x + 0.5) // 1 end

--- A float of the table as 16 bits. Where a function leaves the range of floats the standard's
-- formula has made a NaN, which becomes 0.
local function table_entry(x) return x ~= x and 0 or math.tointeger(half_word(x)) end
local function wrapped(x) return (x + 32768 & 0xffff) - 32768 end

--- A function as 16 bits of each of 16 bits: by 512 lines, whose begins are moved by half of what
-- their middles are off.
-- @param f(list) -> what the function gives for each of these numbers
-- @param low, high what the least and the largest of 16 bits stand for
-- @param share how many steps of the result 1 is
-- @param float(x) x as the kernel keeps it: T.f32, where it has floats
local function by_lines(f, low, high, share, float)
  local step, at, out = float(float(high - low) / 512), {}, {}
  local half = float(step / 2)
  for i = 0, 511 do
    local begin = float(low + float(i * step))
    at[2 * i + 1], at[2 * i + 2] = begin, float(begin + half)
  end
  -- Lines end where the next one begins but for the last bit: low + 512 step is not always high.
  at[1025], at[1026] = float(low + float(512 * step)), high
  local y = f(at)
  for i, value in ipairs(y) do y[i] = float(value * share) end

  local lut = {}
  for i = 0, 511 do
    local begin = whole(y[2 * i + 1])
    local middle = whole(float(float(y[2 * i + 3] + begin) / 2))
    local off = whole(float(float(middle - whole(y[2 * i + 2])) / 2))
    lut[i] = table_entry(begin - off)
  end
  lut[512] = table_entry(whole(y[1026]))
  for v = -32768, 32767 do
    local i = 256 + v // 128
    local slope = wrapped(lut[i + 1] - lut[i])
    out[#out + 1] = wrapped(lut[i] + (slope * (v & 127) + 64) // 128)
  end
  return out
end

--- An op of Neap's of each number of a list: computed in `dtype`, then a float.
local function through(name, list, dtype)
  return kit.map(F[name](core.tensor(list, dtype or "f64")):totable(), T.f32)
end

local function gelu(list)
  local arguments = kit.map(list, function(x) return T.f32(x * T.f32(-0.5 ^ 0.5)) end)
  -- C's erfcf, whose last bit is not always that of the true number, is what the kernel takes, too.
  local share = through("Erfc", arguments, "f32")
  return kit.map(list, function(x, i) return T.f32(0.5 * x * share[i]) end)
end

local function gelu_tanh(list)
  local root = T.f32((2 / math.pi) ^ 0.5)
  local arguments = kit.map(list, function(x)
    local cube = T.f32(T.f32(T.f32(T.f32(0.044715) * x) * x) * x)
    return T.f32(root * T.f32(x + cube))
  end)
  local share = through("Tanh", arguments)
  return kit.map(list, function(x, i) return T.f32(0.5 * x * T.f32(1 + share[i])) end)
end

--- Those above 0 by an op of Neap's, others are `other`.
local function above_zero(name, list, other)
  local positive = kit.map(list, function(x) return x > 0 and x or 1 end)
  local y = through(name, positive)
  return kit.map(list, function(x, i) return x > 0 and y[i] or other end)
end

-- What has no logarithm or root is the end of the result's range.
local by_line = {
  EXP = function(list) return through("Exp", list) end,
  GELU = function(list, n) return (n:flag "approximate" and gelu_tanh or gelu)(list) end,
  LOG = function(list, _, scale) return above_zero("Log", list, T.f32(-32768 * scale)) end,
  RSQRT = function(list, _, scale)
    local roots = above_zero("Sqrt", list, 1)
    return kit.map(list, function(x, i)
      return T.f32(x > 0 and 1 / roots[i] or 32767 * scale)
    end)
  end,
}

--- The table of a function of `by_line` for a node from tensor t to y.
local function lines_of(f)
  return function(n, t, y)
    local from, to = T.f32(t.scale[1]), T.f32(y.scale[1])
    local function ends(scale, zero)
      return T.f32(scale * (-32768 - zero)), T.f32(scale * (32767 - zero))
    end
    local low, high = ends(from, t.zero[1])
    local least, most = ends(to, y.zero[1])
    local share = T.f32(65536 / T.f32(most - least))
    return by_lines(function(list) return f(list, n, to) end, low, high, share, T.f32)
  end
end

-- ---- SOFTMAX of 16 bits -------------------------------------------------------------------------

--- exp of what each element is below its row's largest, and 2^15 of it over their sum.
local function softmax(n)
  local t = n.row.reads[1]
  local x, rank = kit.cast(T.plain(n, 1), "i32"), #n.inputs[1].x.shape
  local function row(name, v) return F[name](v, { axes = { rank }, keepdim = true }) end
  local function number(i, dtype) return kit.number(i, dtype or "i32") end
  -- [-10, 0] as 16 bits.
  local scale = T.f32(t.scale[1]) * T.f32(n:float("beta", 0)) / (10 / 65535)
  local below = F.Requantize({ F.Sub { x, row("Max", x) }, number(scale, "f64") }, { to = "i32" })
  local place = F.Clamp(F.Add { below, number(32767) }, { min = -32768, max = 32767 })
  local function lines(f, low, high)
    return by_lines(function(list) return kit.map(list, f) end, low, high, 32768,
      function(v) return v end)
  end
  local exps = kit.cast(look_up(n, lines(math.exp, -10, 0), place, -32768,
    n.row.name .. "/exp", "i16"), "i64")
  local sum = row("Sum", exps)
  -- How many bits the sum has: so often it can be halved.
  local bits = number(0, "i64")
  for k = 0, 30 do bits = F.Add { bits, kit.cast(F.Ge { sum, number(1 << k, "i64") }, "i64") } end
  -- As 1 + share of 2^16, share in half words around 0; 1 / (1 + share) is looked up.
  local wide = F.ShiftLeft { sum, F.Sub { number(31, "i64"), bits } }
  local share = F.ShiftRight { F.Add { wide, number(1 << 13, "i64") }, number(14, "i64") }
  share = F.Clamp(F.Sub { share, number((1 << 15) + (1 << 16), "i64") },
    { min = -32768, max = 32767 })
  local inverse = kit.cast(look_up(n, lines(function(v) return 1 / (1 + v) end, 0, 1), share,
    -32768, n.row.name .. "/inverse", "i16"), "i64")
  local shift = F.Sub { bits, number(1, "i64") }
  local half = F.ShiftLeft { number(1, "i64"), F.Sub { shift, number(1, "i64") } }
  local y = F.ShiftRight { F.Add { F.Mul { exps, inverse }, half }, shift }
  return kit.cast(F.Clamp(y, { min = 0, max = 32767 }), "i16")
end

--- Puts the builders in the places of those that compute with numbers, which stay for other dtypes.
return function(op)
  local function each(f) return function(_, t, y) return all_of(t, f(t, y)) end end
  op.HARD_SWISH = by_table(each(hard_swish), { i8 = "i8", u8 = "u8" }, op.HARD_SWISH)
  op.LOGISTIC = by_table(each(logistic), { i16 = "i16" }, op.LOGISTIC)
  op.TANH = by_table(each(tanh), { i16 = "i16" }, op.TANH)
  for name, f in pairs(by_line) do
    op[name] = by_table(lines_of(f), { i16 = "i16" }, op[name])
  end
  local real = op.SOFTMAX
  function op.SOFTMAX(n)
    local t, y = T.quantised(n.row.reads[1]), T.quantised(n.row.makes[1])
    local is_16 = t and y and t.dtype == "i16" and y.dtype == "i16"
    if is_16 and #t.scale == 1 and #n.inputs[1].x.shape > 0 then return softmax(n) end
    return real(n)
  end
end
