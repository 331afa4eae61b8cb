--- Operators of TFLite, one a file: what each reads and makes. What comes out stands in
-- tflite_wants.lua, by the case's name.
--
-- A case is {name, operator, options, inputs, outputs}. Numbers follow a pattern that is the same
-- everywhere: `M.numbers`; inputs with `known` are part of the file.
local M = {}

--- Numbers from -2 to 2 by sixteenths, or integers of all sizes.
function M.numbers(t, seed)
  local n, out = 1, {}
  for _, size in ipairs(t.shape) do n = n * size end
  for i = 1, n do
    local k = (i * 37 + seed * 11) % 64 - 32
    if t.type == "bool" then out[i] = k % 3 == 0 and 1 or 0
    elseif t.type == "i8" then out[i] = (i * 101 + seed * 7) % 256 - 128
    elseif t.type == "i16" then out[i] = (i * 7919 + seed * 31) % 65536 - 32768
    elseif t.type == "u8" then out[i] = (i * 101 + seed * 7) % 256
    elseif t.type == "i32" then out[i] = k * (t.by or 1)
    else out[i] = k / 16 * (t.by or 1) + (t.plus or 0) end
  end
  return out
end

local function f(...) return { type = "f32", shape = { ... } } end
local function q(scale, zero, ...)
  return { type = "i8", shape = { ... }, scale = { scale }, zero = { zero } }
end
local function u(scale, zero, ...)
  return { type = "u8", shape = { ... }, scale = { scale }, zero = { zero } }
end
local function int(...) return { type = "i32", shape = { ... } } end
local function bool(...) return { type = "bool", shape = { ... } } end
local function list(values, ...)
  return { type = "i32", shape = select("#", ...) > 0 and { ... } or { #values }, data = values }
end
local function number(i) return { type = "i32", shape = {}, data = { i } } end
local function real(x) return { type = "f32", shape = {}, data = { x } } end
local function known(t, by, plus)
  t.known, t.by, t.plus = true, by, plus
  return t
end
--- Weights with a scale for each channel along an axis, from 0; a bias of sums at `x` a step.
local function channels(t, count, axis, x)
  t.scale, t.zero, t.axis = {}, {}, axis
  for k = 1, count do t.scale[k], t.zero[k] = (0.002 + 0.001 * k) * (x or 1), 0 end
  return known(t, 40)
end

local function b(v) return { "i8", v } end
local function i(v) return { "i32", v } end
local function r(v) return { "f32", v } end
local list_of = {}
local function case(name, ...) list_of[#list_of + 1] = { name, ... } end

-- ---- element by element -------------------------------------------------------------------------

for _, op in ipairs { "ABS", "COS", "EXP", "FLOOR", "HARD_SWISH", "LOGISTIC", "NEG", "RELU",
  "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "SIN", "SQUARE", "TANH", "CEIL", "ROUND", "ELU" } do
  case(op, op, nil, { f(1, 2, 5) }, { f(1, 2, 5) })
end
for _, op in ipairs { "LOG", "SQRT", "RSQRT" } do
  case(op, op, nil, { known(f(3), 1, 3) }, { f(3) })
end
case("GELU", "GELU", { 116, b(0) }, { f(6) }, { f(6) })
case("GELU tanh", "GELU", { 116, b(1) }, { f(6) }, { f(6) })
case("LEAKY_RELU", "LEAKY_RELU", { 75, r(0.25) }, { f(6) }, { f(6) })
case("HARD_SWISH i8", "HARD_SWISH", nil, { q(0.05, 3, 64) }, { q(0.03, -10, 64) })
case("HARD_SWISH u8", "HARD_SWISH", nil, { u(0.3, 130, 64) }, { u(0.5, 100, 64) })
case("LOGISTIC i8", "LOGISTIC", nil, { q(0.05, 3, 12) }, { q(1 / 256, -128, 12) })
case("TANH i8", "TANH", nil, { q(0.05, 3, 12) }, { q(1 / 128, 0, 12) })
case("RELU i8", "RELU", nil, { q(0.05, 3, 12) }, { q(0.03, -128, 12) })
-- Between other scales, in the standard's fixed point: many of these lie halfway between two
-- integers, of which numbers that are rounded again give another one here and there.
for k, op in ipairs { "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "ABS" } do
  local scale = ({ 0.0257, 0.0243, 0.0091, 0.0083, 0.0471 })[k]
  case(op .. " i8 scaled", op, nil, { q(scale, -60 + 20 * k, 128) },
    { q(2 * scale, -100 + 12 * k, 128) })
end
case("RELU6 u8 scaled", "RELU6", nil, { u(0.0313, 31, 128) }, { u(0.0313 * 2, 3, 128) })
case("PRELU i8", "PRELU", nil, { q(0.0471, -13, 1, 4, 8, 3), known(q(1 / 64, 11, 1, 1, 3)) },
  { q(0.0471 * 2, 7, 1, 4, 8, 3) })
case("PRELU u8", "PRELU", nil, { u(0.0467, 115, 1, 4, 8, 3), known(u(1 / 32, 139, 1, 1, 3)) },
  { u(0.0467 * 2, 87, 1, 4, 8, 3) })
case("LEAKY_RELU i8 scaled", "LEAKY_RELU", { 75, r(0.37) }, { q(0.0471, -13, 128) },
  { q(0.0471 * 2, 7, 128) })
case("LOG i8", "LOG", nil, { q(0.05, -100, 64) }, { q(0.03, 20, 64) })
case("LEAKY_RELU i8", "LEAKY_RELU", { 75, r(0.2) }, { q(0.05, 3, 12) }, { q(0.05, 3, 12) })
for op, union in pairs { ADD = 11, SUB = 28, MUL = 21, DIV = 29 } do
  case(op, op, { union, b(op == "ADD" and 1 or op == "MUL" and 3 or 0) },
    { f(1, 2, 2, 3), known(f(3), 1, 3) }, { f(1, 2, 2, 3) })
  if op ~= "DIV" then
    case(op .. " i8", op, { union, b(op == "ADD" and 1 or 0) },
      { q(0.04, -7, 1, 2, 6), q(0.03, 10, 1, 2, 6) }, { q(0.06, -20, 1, 2, 6) })
  end
end
case("SQUARED_DIFFERENCE", "SQUARED_DIFFERENCE", { 76 }, { f(2, 3), f(3) }, { f(2, 3) })
case("SQUARED_DIFFERENCE i8", "SQUARED_DIFFERENCE", { 76 }, { q(0.04, -7, 12), q(0.03, 10, 12) },
  { q(0.2, -128, 12) })
case("MAXIMUM", "MAXIMUM", { 39 }, { f(2, 3), f(3) }, { f(2, 3) })
case("MINIMUM i8", "MINIMUM", { 39 }, { q(0.04, -7, 6), q(0.04, -7, 6) }, { q(0.04, -7, 6) })
case("POW", "POW", { 56 }, { known(f(4), 1, 3), f(4) }, { f(4) })
case("PRELU", "PRELU", nil, { f(1, 2, 2, 3), known(f(1, 1, 3)) }, { f(1, 2, 2, 3) })
for op, union in pairs { EQUAL = 53, NOT_EQUAL = 54, LESS = 41, LESS_EQUAL = 46, GREATER = 44,
  GREATER_EQUAL = 45 } do
  case(op, op, { union }, { f(2, 3), known(f(3)) }, { bool(2, 3) })
end
case("FLOOR_DIV", "FLOOR_DIV", { 65 }, { int(6), list { 2, -2, 3, 1, 5, -1 } }, { int(6) })
case("FLOOR_MOD", "FLOOR_MOD", { 72 }, { int(6), list { 5, -5, 3, 1, 7, -4 } }, { int(6) })
case("DIV i32", "DIV", { 29 }, { int(6), list { 5, -5, 3, 1, 7, -4 } }, { int(6) })
case("LOGICAL_AND", "LOGICAL_AND", { 62 }, { bool(4), bool(4) }, { bool(4) })
case("LOGICAL_NOT", "LOGICAL_NOT", { 63 }, { bool(4) }, { bool(4) })
case("SELECT_V2", "SELECT_V2", { 98 }, { bool(3, 1), f(3, 2), f(2) }, { f(3, 2) })
case("SELECT", "SELECT", { 47 }, { bool(3), f(3, 2), f(3, 2) }, { f(3, 2) })
case("ADD_N", "ADD_N", { 82 }, { f(4), f(4), f(4) }, { f(4) })
case("CAST", "CAST", { 37, b(0), b(2) }, { f(5) }, { int(5) })
case("CAST bool", "CAST", { 37, b(6), b(0) }, { bool(5) }, { f(5) })
case("QUANTIZE", "QUANTIZE", { 89 }, { f(8) }, { q(0.125, 3, 8) })
case("QUANTIZE i8", "QUANTIZE", { 89 }, { q(0.02, 3, 12) }, { q(0.035, -30, 12) })
case("QUANTIZE u8", "QUANTIZE", { 89 }, { u(0.02, 131, 6) }, { q(0.02, 3, 6) })
case("DEQUANTIZE", "DEQUANTIZE", { 38 }, { q(0.02, 3, 6) }, { f(6) })

-- ---- movement -----------------------------------------------------------------------------------

case("RESHAPE", "RESHAPE", { 17 }, { f(1, 2, 3), list { 3, -1 } }, { f(3, 2) })
case("SQUEEZE", "SQUEEZE", { 30, { "list", "i32", { 0 } } }, { f(1, 3, 1) }, { f(3, 1) })
case("EXPAND_DIMS", "EXPAND_DIMS", { 52 }, { f(2, 3), number(-1) }, { f(2, 3, 1) })
case("TRANSPOSE", "TRANSPOSE", { 26 }, { f(2, 3, 2), list { 2, 0, 1 } }, { f(2, 2, 3) })
local frame = list({ 0, 0, 1, 0, 0, 2, 0, 0 }, 4, 2)
case("PAD", "PAD", { 22 }, { f(1, 2, 2, 2), frame }, { f(1, 3, 4, 2) })
case("PAD i8", "PAD", { 22 }, { q(0.1, -9, 1, 2, 2, 2), frame }, { q(0.1, -9, 1, 3, 4, 2) })
case("PADV2", "PADV2", { 43 }, { f(1, 2, 2, 2), frame, real(1.5) }, { f(1, 3, 4, 2) })
case("MIRROR_PAD", "MIRROR_PAD", { 77, b(0) }, { f(1, 2, 3, 1), frame }, { f(1, 3, 5, 1) })
case("MIRROR_PAD edge", "MIRROR_PAD", { 77, b(1) }, { f(1, 2, 3, 1), frame }, { f(1, 3, 5, 1) })
case("CONCATENATION", "CONCATENATION", { 10, i(-1), b(0) }, { f(2, 2), f(2, 3) }, { f(2, 5) })
case("SPLIT", "SPLIT", { 35, i(2) }, { number(1), f(2, 4) }, { f(2, 2), f(2, 2) })
case("SPLIT_V", "SPLIT_V", { 79, i(2) }, { f(2, 4), list { 1, 3 }, number(1) },
  { f(2, 1), f(2, 3) })
case("SLICE", "SLICE", { 48 }, { f(3, 4), list { 1, 1 }, list { -1, 2 } }, { f(2, 2) })
case("STRIDED_SLICE", "STRIDED_SLICE", { 32, i(1), i(2), i(0), i(0), i(8) },
  { f(2, 3, 2, 4), list { 0, 0, 1, 2 }, list { 2, 0, -3, 3 }, list { 1, 1, -1, 1 } },
  { f(2, 3, 2) })
case("STRIDED_SLICE new", "STRIDED_SLICE", { 32, i(0), i(0), i(1), i(4), i(0) },
  { f(2, 3, 4), list { 0, 1, 0 }, list { 0, 4, 0 }, list { 1, 2, 1 } }, { f(2, 3, 2, 1) })
case("GATHER", "GATHER", { 23, i(1), i(0) }, { f(2, 3), list { 2, 0 } }, { f(2, 2) })
case("GATHER rows", "GATHER", { 23, i(1), i(1) }, { f(2, 3, 2), list({ 2, 0, 1, 1 }, 2, 2) },
  { f(2, 2, 2) })
case("GATHER_ND", "GATHER_ND", { 83 }, { f(2, 3, 2), list({ 0, 2, 1, 0 }, 2, 2) }, { f(2, 2) })
case("SCATTER_ND", "SCATTER_ND", { 97 }, { list({ 0, 2, 2 }, 3, 1), f(3, 2), list { 4, 2 } },
  { f(4, 2) })
case("PACK", "PACK", { 59, i(2), i(1) }, { f(2, 2), f(2, 2) }, { f(2, 2, 2) })
case("UNPACK", "UNPACK", { 64, i(2), i(1) }, { f(2, 2, 2) }, { f(2, 2), f(2, 2) })
case("TILE", "TILE", { 51 }, { f(1, 3), list { 2, 2 } }, { f(2, 6) })
case("REVERSE_V2", "REVERSE_V2", { 81 }, { f(2, 3), list { 1 } }, { f(2, 3) })
case("REVERSE_SEQUENCE", "REVERSE_SEQUENCE", { 87, i(1), i(0) }, { f(2, 3), list { 2, 3 } },
  { f(2, 3) })
case("SPACE_TO_DEPTH", "SPACE_TO_DEPTH", { 19, i(2) }, { f(1, 2, 4, 2) }, { f(1, 1, 2, 8) })
case("DEPTH_TO_SPACE", "DEPTH_TO_SPACE", { 94, i(2) }, { f(1, 1, 2, 8) }, { f(1, 2, 4, 2) })
case("SPACE_TO_BATCH_ND", "SPACE_TO_BATCH_ND", { 25 },
  { q(0.1, 5, 1, 3, 3, 1), list { 2, 2 }, list({ 1, 0, 0, 1 }, 2, 2) }, { q(0.1, 5, 4, 2, 2, 1) })
case("BATCH_TO_SPACE_ND", "BATCH_TO_SPACE_ND", { 24 },
  { f(4, 2, 2, 1), list { 2, 2 }, list({ 1, 0, 0, 1 }, 2, 2) }, { f(1, 3, 3, 1) })
for _, m in ipairs { { 0, 0 }, { 1, 0 }, { 0, 1 } } do
  local behind = (" %d%d"):format(m[1], m[2])
  case("RESIZE_BILINEAR" .. behind, "RESIZE_BILINEAR", { 15, false, false, b(m[1]), b(m[2]) },
    { f(1, 2, 3, 2), list { 3, 5 } }, { f(1, 3, 5, 2) })
  case("RESIZE_BILINEAR i8" .. behind, "RESIZE_BILINEAR", { 15, false, false, b(m[1]), b(m[2]) },
    { q(0.05, 3, 1, 4, 3, 2), list { 7, 5 } }, { q(0.05, 3, 1, 7, 5, 2) })
  case("RESIZE_NEAREST_NEIGHBOR" .. behind, "RESIZE_NEAREST_NEIGHBOR", { 74, b(m[1]), b(m[2]) },
    { f(1, 2, 3, 2), list { 3, 5 } }, { f(1, 3, 5, 2) })
end
case("ONE_HOT", "ONE_HOT", { 61, i(-1) }, { list { 0, 2, 1 }, number(3), real(2), real(-1) },
  { f(3, 3) })
case("EMBEDDING_LOOKUP", "EMBEDDING_LOOKUP", nil, { list { 1, 0 }, known(f(2, 3)) }, { f(2, 3) })

-- ---- along dimensions ---------------------------------------------------------------------------

for _, op in ipairs { "MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN" } do
  case(op, op, { 27, b(0) }, { f(2, 2, 3, 2), list { 1, 2 } }, { f(2, 2) })
  case(op .. " kept", op, { 27, b(1) }, { f(2, 2, 3, 2), list { 1, -1 } }, { f(2, 1, 3, 1) })
end
case("MEAN i8", "MEAN", { 27, b(1) }, { q(0.05, 3, 1, 3, 3, 4), list { 1, 2 } },
  { q(0.02, -5, 1, 1, 1, 4) })
case("SOFTMAX", "SOFTMAX", { 9, r(0.5) }, { f(2, 4) }, { f(2, 4) })
case("SOFTMAX i8", "SOFTMAX", { 9, r(1) }, { q(0.05, 3, 2, 6) }, { q(1 / 256, -128, 2, 6) })
case("LOG_SOFTMAX", "LOG_SOFTMAX", { 36 }, { f(2, 4) }, { f(2, 4) })
case("L2_NORMALIZATION", "L2_NORMALIZATION", { 12, b(0) }, { f(2, 4) }, { f(2, 4) })
case("ARG_MAX", "ARG_MAX", { 40, b(2) }, { f(2, 5), number(1) }, { int(2) })
case("ARG_MIN i8", "ARG_MIN", { 57, b(2) }, { q(0.1, 0, 2, 5), number(0) }, { int(5) })
case("TOPK_V2", "TOPK_V2", { 34 }, { f(2, 5), number(2) }, { f(2, 2), int(2, 2) })
case("CUMSUM", "CUMSUM", { 102, b(1), b(1) }, { f(2, 4), number(1) }, { f(2, 4) })

-- ---- products and pools -------------------------------------------------------------------------

for _, m in ipairs { { "same", 0, 2, 2, 3 }, { "valid", 1, 1, 3, 3 } } do
  local name, padding, stride, h, w = table.unpack(m)
  local options = { 1, b(padding), i(stride), i(stride), b(1), i(1), i(1) }
  local deep = { 2, b(padding), i(stride), i(stride), i(2), b(3), i(1), i(1) }
  case("CONV_2D " .. name, "CONV_2D", options, { f(1, 4, 5, 2), known(f(3, 2, 3, 2)),
    known(f(3)) }, { f(1, h, w, 3) })
  case("CONV_2D i8 " .. name, "CONV_2D", options, { q(0.05, -4, 1, 4, 5, 2),
    channels({ type = "i8", shape = { 3, 2, 3, 2 } }, 3, 0),
    channels({ type = "i32", shape = { 3 } }, 3, 0, 0.05) }, { q(0.1, -11, 1, h, w, 3) })
  case("DEPTHWISE_CONV_2D " .. name, "DEPTHWISE_CONV_2D", deep, { f(1, 4, 5, 2),
    known(f(1, 2, 3, 4)), known(f(4)) }, { f(1, h, w, 4) })
  case("DEPTHWISE_CONV_2D i8 " .. name, "DEPTHWISE_CONV_2D", deep, { q(0.05, -4, 1, 4, 5, 2),
    channels({ type = "i8", shape = { 1, 2, 3, 4 } }, 4, 3),
    channels({ type = "i32", shape = { 4 } }, 4, 0, 0.05) }, { q(0.05, -11, 1, h, w, 4) })
  local pool = { 5, b(padding), i(stride), i(stride), i(3), i(2), b(0) }
  for _, op in ipairs { "AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D" } do
    case(op .. " " .. name, op, pool, { f(1, 4, 5, 1) }, { f(1, h, w, 1) })
    if op ~= "L2_POOL_2D" then
      case(op .. " i8 " .. name, op, pool, { q(0.1, 4, 1, 4, 5, 1) }, { q(0.1, 4, 1, h, w, 1) })
    end
  end
  case("TRANSPOSE_CONV " .. name, "TRANSPOSE_CONV", { 49, b(padding), i(2), i(2), b(0) },
    { list { 1, 4 + padding, 4 + padding, 1 }, known(f(1, 3, 3, 2)), f(1, 2, 2, 2) },
    { f(1, 4 + padding, 4 + padding, 1) })
end
case("TRANSPOSE_CONV i8", "TRANSPOSE_CONV", { 49, b(0), i(2), i(2), b(0) },
  { list { 1, 4, 4, 2 }, channels({ type = "i8", shape = { 2, 3, 3, 2 } }, 2, 0),
    q(0.05, -4, 1, 2, 2, 2) }, { q(0.05, 7, 1, 4, 4, 2) })
case("CONV_2D dilated", "CONV_2D", { 1, b(0), i(1), i(1), b(2), i(2), i(2) },
  { f(1, 4, 5, 1), known(f(1, 3, 3, 1), 0.25), known(f(1)) }, { f(1, 4, 5, 1) })
case("CONV_2D u8", "CONV_2D", { 1, b(0), i(2), i(2), b(1), i(1), i(1) },
  { u(0.05, 120, 1, 4, 4, 2), known(u(0.01, 140, 2, 3, 3, 2)),
    { type = "i32", shape = { 2 }, data = { 300, -200 }, scale = { 0.0005 }, zero = { 0 } } },
  { u(0.1, 30, 1, 2, 2, 2) })
-- Less their zero point these weights fit into i8.
local near = { type = "u8", shape = { 2, 3, 3, 2 }, data = {}, scale = { 0.01 }, zero = { 130 } }
for k = 1, 36 do near.data[k] = 130 + k * 37 % 251 - 125 end
case("CONV_2D u8 near its zero point", "CONV_2D", { 1, b(0), i(2), i(2), b(0), i(1), i(1) },
  { u(0.05, 120, 1, 4, 4, 2), near,
    { type = "i32", shape = { 2 }, data = { 300, -200 }, scale = { 0.0005 }, zero = { 0 } } },
  { u(0.3, 100, 1, 2, 2, 2) })
--- Activations in 16 bits.
local function q16(scale, ...)
  return { type = "i16", shape = { ... }, scale = { scale }, zero = { 0 } }
end
case("CONV_2D i16", "CONV_2D", { 1, b(0), i(2), i(2), b(1), i(1), i(1) },
  { q16(0.0005, 1, 4, 4, 2), channels({ type = "i8", shape = { 2, 3, 3, 2 } }, 2, 0),
    { type = "i64", shape = { 2 }, data = { 3000, -2000 }, scale = { 0.0000015, 0.000002 } } },
  { q16(0.001, 1, 2, 2, 2) })
case("RELU i16", "RELU", nil, { q16(0.00047, 64) }, { q16(0.00094, 64) })
case("ABS i16", "ABS", nil, { q16(0.00047, 64) }, { q16(0.00094, 64) })
-- By tables of the standard's.
case("LOGISTIC i16", "LOGISTIC", nil, { q16(0.0005, 24) }, { q16(1 / 32768, 24) })
case("TANH i16", "TANH", nil, { q16(1 / 4096, 24) }, { q16(1 / 32768, 24) })
case("SOFTMAX i16", "SOFTMAX", { 9, r(1) }, { q16(0.0002, 4, 9) }, { q16(1 / 32768, 4, 9) })
for _, op in ipairs { "EXP", "LOG" } do
  case(op .. " i16", op, nil, { q16(0.0002, 40) }, { q16(0.00031, 40) })
end
case("GELU i16", "GELU", { 116, b(0) }, { q16(0.0001, 40) }, { q16(0.00008, 40) })
case("GELU i16 tanh", "GELU", { 116, b(1) }, { q16(0.0001, 40) }, { q16(0.00008, 40) })
case("EXP i16 beyond floats", "EXP", nil, { q16(0.003, 40) }, { q16(0.00031, 40) })
local positive = q16(0.0004, 40)
positive.data = {}
for k = 1, 40 do positive.data[k] = k * 3719 % 32768 end
case("RSQRT i16", "RSQRT", nil, { positive }, { q16(0.0005, 40) })
case("ADD i16", "ADD", { 11, b(0), b(0) }, { q16(0.0004, 6), q16(0.0003, 6) }, { q16(0.0006, 6) })
case("CONV_3D", "CONV_3D", { 106, b(0), i(1), i(2), i(2), b(0), i(1), i(1), i(1) },
  { f(1, 2, 3, 3, 2), known(f(2, 2, 2, 2, 2), 0.5) }, { f(1, 2, 2, 2, 2) })
case("CONV_3D of five sizes", "CONV_3D",
  { 106, b(1), i(1), i(1), i(1), b(0), i(1), i(1), i(1) },
  { f(1, 3, 2, 4, 3), known(f(2, 1, 3, 3, 4), 0.5) }, { f(1, 2, 2, 2, 4) })
-- Steps so small that the share of relu6 is shifted down; an image beyond the last window.
case("HARD_SWISH i8 of small steps", "HARD_SWISH", nil, { q(0.004, 3, 64) }, { q(0.002, -10, 64) })
case("TRANSPOSE_CONV beyond its windows", "TRANSPOSE_CONV", { 49, b(0), i(2), i(2), b(0) },
  { list { 1, 4, 4, 1 }, known(f(1, 1, 1, 2)), f(1, 2, 2, 2) }, { f(1, 4, 4, 1) })
-- Sums that are halves, above and below 0, in each dtype; a bias of 32 bits says that sums of
-- 16-bit activations have as many.
local halves = { type = "i8", shape = { 3, 4 }, data = { 1, 0, 0, 0, 2, 1, -1, 0, 0, 3, 0, 1 },
  scale = { 0.25 }, zero = { 0 } }
local short_bias = { type = "i32", shape = { 3 }, data = { 1, -1, 3 }, scale = { 2^-12 } }
local near_zero = { type = "u8", shape = { 3, 4 }, data = {}, scale = { 0.25 }, zero = { 128 } }
for k, w in ipairs(halves.data) do near_zero.data[k] = 128 + w end
case("FULLY_CONNECTED i16 of halves", "FULLY_CONNECTED", { 8, b(0), b(0), b(0), b(0), b(2) },
  { q16(2^-10, 6, 4), halves, short_bias }, { q16(2^-11, 6, 3) })
case("FULLY_CONNECTED i16 of halves without a bias", "FULLY_CONNECTED", { 8, b(0), b(0), b(0) },
  { q16(2^-10, 6, 4), halves, false }, { q16(2^-10, 6, 3) })
case("FULLY_CONNECTED i8 of halves", "FULLY_CONNECTED", { 8, b(0), b(0), b(0) },
  { q(2^-10, 3, 6, 4), halves, short_bias }, { q(2^-9, 3, 6, 3) })
case("FULLY_CONNECTED u8 of halves", "FULLY_CONNECTED", { 8, b(0), b(0), b(0) },
  { u(2^-10, 3, 6, 4), near_zero, short_bias }, { u(2^-9, 100, 6, 3) })
case("FULLY_CONNECTED i16 with a short bias", "FULLY_CONNECTED",
  { 8, b(0), b(0), b(0), b(0), b(2) }, { q16(0.0005, 6, 9), known(q(0.01, 0, 2, 9)),
    { type = "i32", shape = { 2 }, data = { 100301, -119598 }, scale = { 5e-6 } } },
  { q16(0.0025, 6, 2) })
-- Sums of 16-bit activations, beyond 32 bits.
local function wide_bias(scale)
  return { type = "i64", shape = { 2 }, data = { 3000000000, -4000000000 }, scale = { scale } }
end
case("FULLY_CONNECTED i16", "FULLY_CONNECTED", { 8, b(0), b(0), b(0) },
  { q16(0.0005, 3, 9), known(q(0.01, 0, 2, 9)), wide_bias(5e-6) }, { q16(0.7, 3, 2) })
case("CONV_2D i16 wide", "CONV_2D", { 1, b(0), i(2), i(2), b(0), i(1), i(1) },
  { q16(0.0005, 1, 4, 4, 2), known(q(0.01, 0, 2, 3, 3, 2)), wide_bias(5e-6) },
  { q16(0.7, 1, 2, 2, 2) })
case("DEPTHWISE_CONV_2D i16", "DEPTHWISE_CONV_2D", { 2, b(0), i(1), i(1), i(1), b(0), i(1), i(1) },
  { q16(0.0005, 1, 4, 4, 2), known(q(0.01, 0, 1, 3, 3, 2)), wide_bias(5e-6) },
  { q16(0.7, 1, 4, 4, 2) })
case("TRANSPOSE_CONV i16", "TRANSPOSE_CONV", { 49, b(0), i(2), i(2), b(0) },
  { list { 1, 4, 4, 2 }, channels({ type = "i8", shape = { 2, 3, 3, 5 } }, 2, 0),
    q16(0.0005, 1, 2, 2, 5) }, { q16(0.0007, 1, 4, 4, 2) })
case("BATCH_MATMUL i16", "BATCH_MATMUL", { 101, b(0), b(0) }, { q16(0.0005, 3, 5),
  q16(0.0004, 5, 6) }, { q16(0.015, 3, 6) })
-- Scales whose product as a float has another multiplier.
case("BATCH_MATMUL i16 by a float", "BATCH_MATMUL", { 101, b(1), b(0) }, { q16(0.000831, 5, 3),
  q16(0.000524, 5, 6) }, { q16(0.0136, 3, 6) })
case("FULLY_CONNECTED", "FULLY_CONNECTED", { 8, b(1), b(0), b(0) },
  { f(2, 2, 3), known(f(2, 3)), known(f(2)) }, { f(4, 2) })
case("FULLY_CONNECTED kept", "FULLY_CONNECTED", { 8, b(0), b(0), b(1) },
  { f(2, 2, 3), known(f(2, 3)), false }, { f(2, 2, 2) })
case("FULLY_CONNECTED i8", "FULLY_CONNECTED", { 8, b(0), b(0), b(0) },
  { q(0.05, -4, 4, 9), known(q(0.01, 0, 3, 9)), false }, { q(0.1, -11, 4, 3) })
case("BATCH_MATMUL", "BATCH_MATMUL", { 101, b(0), b(1) }, { f(2, 2, 3), f(2, 2, 3) },
  { f(2, 2, 2) })
case("BATCH_MATMUL i8", "BATCH_MATMUL", { 101, b(0), b(0) }, { q(0.05, 3, 3, 4),
  q(0.04, -4, 4, 3) }, { q(0.5, 3, 3, 3) })

-- ---- sequences ----------------------------------------------------------------------------------

local function state(...) return { type = "f32", shape = { ... }, variable = true } end
local function w(rows, columns) return known(f(rows, columns), 0.25) end
local function bias() return known(f(2), 0.1) end
for major = 0, 1 do
  local x, y = major == 1 and f(3, 2, 3) or f(2, 3, 3), major == 1 and f(3, 2, 2) or f(2, 3, 2)
  local behind = major == 1 and " by time" or ""
  case("UNIDIRECTIONAL_SEQUENCE_LSTM" .. behind, "UNIDIRECTIONAL_SEQUENCE_LSTM",
    { 71, b(4), r(0), r(0), b(major) }, { x, w(2, 3), w(2, 3), w(2, 3), w(2, 3), w(2, 2), w(2, 2),
      w(2, 2), w(2, 2), false, false, false, bias(), bias(), bias(), bias(), false, false,
      state(2, 2), state(2, 2) }, { y })
  case("UNIDIRECTIONAL_SEQUENCE_RNN" .. behind, "UNIDIRECTIONAL_SEQUENCE_RNN",
    { 31, b(major), b(4) }, { x, w(2, 3), w(2, 2), bias(), state(2, 2) }, { y })
end
case("SVDF", "SVDF", { 6, i(2), b(1) }, { f(2, 3), w(4, 3), w(4, 5), bias(), state(2, 20) },
  { f(2, 2) })

M.cases = list_of

--- The model of a case, and its inputs: {{name =, type =, shape =, numbers}, ..}.
function M.model(c)
  local _, op, options, ins, outs = table.unpack(c, 1, 5)
  local g, places, made, inputs = { tensors = {}, inputs = {}, outputs = {} }, {}, {}, {}
  for k, t in ipairs(ins) do
    places[k] = -1
    if t then
      local own = { name = "in" .. k, type = t.type, shape = t.shape, scale = t.scale,
        zero = t.zero, axis = t.axis, variable = t.variable }
      own.data = t.data or t.known and M.numbers(t, k) or nil
      g.tensors[#g.tensors + 1] = own
      places[k] = #g.tensors - 1
      if not own.data and not t.variable then
        g.inputs[#g.inputs + 1] = places[k]
        inputs[#inputs + 1] = { name = own.name, type = t.type, shape = t.shape,
          numbers = M.numbers(t, k) }
      end
    end
  end
  for k, t in ipairs(outs) do
    g.tensors[#g.tensors + 1] = { name = "out" .. k, type = t.type, shape = t.shape,
      scale = t.scale, zero = t.zero }
    made[k] = #g.tensors - 1
    g.outputs[k] = made[k]
  end
  g.ops = { { op, places, made, options } }
  return g, inputs
end

return M
