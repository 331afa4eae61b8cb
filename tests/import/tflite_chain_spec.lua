-- A net of floats of twenty operators, whose images go from layout to layout and back, against what
-- TensorFlow Lite gives (ai-edge-litert 2.3, its reference kernels).
local neap = require "neap"
local kit = require "import.tflite_kit"

--- Numbers from -1 to 1 by sixty-fourths, times `by`.
local function pattern(n, step, by)
  local out = {}
  for i = 1, n do out[i] = ((i * step + i // 5 * 7) % 128 - 64) / 64 * by end
  return out
end

local function net()
  local tensors, ops = {}, {}
  local function tensor(t)
    tensors[#tensors + 1] = t
    return #tensors - 1
  end
  local function act(name, ...) return tensor { name = name, shape = { ... } } end
  local function w(...)
    local n = 1
    for _, size in ipairs { ... } do n = n * size end
    return tensor { name = "w" .. #tensors, shape = { ... }, data = pattern(n, 37, 0.5) }
  end
  local function ints(list, ...)
    local shape = select("#", ...) > 0 and { ... } or { #list }
    return tensor { name = "i" .. #tensors, type = "i32", shape = shape, data = list }
  end
  local function op(name, ins, outs, options) ops[#ops + 1] = { name, ins, outs, options } end
  local function b(v) return { "i8", v } end
  local function i(v) return { "i32", v } end

  local x, a, p = act("x", 1, 9, 8, 3), act("a", 1, 9, 8, 8), act("p", 1, 10, 10, 8)
  op("CONV_2D", { x, w(8, 3, 3, 3), w(8) }, { a }, { 1, b(0), i(1), i(1), b(3), i(1), i(1) })
  op("PAD", { a, ints({ 0, 0, 0, 1, 1, 1, 0, 0 }, 4, 2) }, { p }, { 22 })
  -- Two halves of the channels: one scaled, with the other's means; put together again.
  local s1, s2 = act("s1", 1, 10, 10, 4), act("s2", 1, 10, 10, 4)
  local m, g, h = act("m", 1, 10, 10, 4), act("g", 1, 1, 1, 4), act("h", 1, 10, 10, 4)
  local c, d = act("c", 1, 10, 10, 12), act("d", 1, 5, 5, 12)
  op("SPLIT", { ints({ 3 }, 1), p }, { s1, s2 }, { 35, i(2) })
  op("MUL", { s1, w(1, 1, 4) }, { m }, { 21, b(0) })
  op("MEAN", { s2, ints { 1, 2 } }, { g }, { 27, b(1) })
  op("ADD", { m, g }, { h }, { 11, b(1) })
  op("CONCATENATION", { h, s2, s1 }, { c }, { 10, i(3), b(0) })
  op("DEPTHWISE_CONV_2D", { c, w(1, 3, 3, 12), w(12) }, { d },
    { 2, b(0), i(2), i(2), i(1), b(1), i(1), i(1) })
  -- Back to the first size, cut, and read in the file's order in all ways.
  local r, e, cut = act("r", 1, 10, 10, 12), act("e", 1, 10, 10, 12), act("cut", 1, 4, 10, 12)
  op("RESIZE_BILINEAR", { d, ints { 10, 10 } }, { r }, { 15, false, false, b(0), b(1) })
  op("PRELU", { r, w(1, 1, 12) }, { e })
  op("STRIDED_SLICE", { e, ints { 0, 1, 0, 0 }, ints { 0, 9, 0, 0 }, ints { 1, 2, 1, 1 } },
    { cut }, { 32, i(13), i(13), i(0), i(0), i(0) })
  local t, soft, q = act("t", 1, 12, 4, 10), act("soft", 1, 4, 10, 12), act("q", 1, 4, 10)
  op("TRANSPOSE", { cut, ints { 0, 3, 1, 2 } }, { t }, { 26 })
  op("SOFTMAX", { cut }, { soft }, { 9, { "f32", 1 } })
  op("REDUCE_MAX", { soft, ints { 3 } }, { q }, { 27, b(0) })
  local most, up, unit = act("most", 1, 12), act("up", 1, 8, 20, 5), act("unit", 1, 8, 20, 5)
  op("REDUCE_MAX", { cut, ints { 1, 2 } }, { most }, { 27, b(0) })
  op("TRANSPOSE_CONV", { ints { 1, 8, 20, 5 }, w(5, 3, 3, 12), cut }, { up },
    { 49, b(0), i(2), i(2), b(0) })
  op("L2_NORMALIZATION", { up }, { unit }, { 12, b(0) })
  local flat, y = act("flat", 1, 480), act("y", 1, 7)
  op("RESHAPE", { t, ints { 1, 480 } }, { flat })
  op("FULLY_CONNECTED", { flat, w(7, 480), w(7) }, { y }, { 8, b(0), b(0), b(0) })
  return { tensors = tensors, ops = ops, inputs = { x }, outputs = { y, q, most, unit, t } }
end

-- By output: its first numbers, and the sum of all.
local wants = {
  y = { { -3.688325, -3.399263, -3.1102, -3.821138, -3.477388, -3.188325 },
    -24.583901 },
  q = { { 0.108624, 0.1084221, 0.1076044, 0.1032016, 0.120661, 0.1126238 },
    4.6681582 },
  most = { { 0.0711827, 0, 0.5349795, 0, 0.7232683, 0.594383 },
    4.0941246 },
  unit = { { 0.5985734, -0.5502837, 0.01265697, 0.09556633, -0.5741119, -0.5741119 },
    -193.22375 },
  t = { { 0, 0, 0, 0, 0, 0 },
    54.059215 },
}

describe("a net of a TFLite file", function()
  it("gives the same through all of its layouts", function()
    local f = assert(kit.import(net()))
    local out = f(neap.tensor(pattern(216, 29, 1)):reshape(1, 9, 8, 3))
    for name, want in pairs(wants) do
      local list = out[name]:to("f64"):reshape(-1):totable()
      local largest, sum, size = 0, 0, 0
      for _, value in ipairs(list) do
        largest, sum = math.max(largest, math.abs(value)), sum + value
        size = size + math.abs(value)
      end
      for i, value in ipairs(want[1]) do assert.near(value, list[i], 1e-5 * largest, name) end
      assert.near(want[2], sum, 1e-5 * size, name)
    end
  end)
end)
