--- What the builders of TFLite's operators share: where the elements of a value lie, and numbers
-- that stand for others.
--
-- LAYOUT. TFLite has images with the channels last, (N,H,W,C); Neap's convolutions and pools have
-- them first. A value that such an op has made is kept as it came out, with layout = "first", and
-- so is what is computed of it element by element; it is turned back where an operator asks for the
-- file's order, once for all that ask. So a net of convolutions has one Permute at each end.
-- INVARIANT: a value with layout "first" has the file's shape, but its last dimension is second.
--
-- QUANTISATION. An integer q of a tensor with scale and zero point stands for scale (q - zero).
-- Operators that only move elements move the integers; those that the standard defines in integers
-- are computed so (neap.tflite.integers); all others on the numbers themselves, which are then
-- quantised again: `real` makes such a builder.
-- @module neap.tflite.kit
local core = require "neap.core"
local kit = require "neap.onnx.kit"
local Node = require "neap.onnx.node"
local op = require "neap.op"
local ops = require "neap.onnx.ops"
local F = kit.F

local T = {}

-- ---- layouts ------------------------------------------------------------------------------------

--- The order of dimensions that puts the last one second; back is the order that undoes it.
local function first_order(rank)
  local order = { 1, rank }
  for d = 2, rank - 1 do order[#order + 1] = d end
  return order
end

local function last_order(rank)
  local order = { 1 }
  for d = 3, rank do order[#order + 1] = d end
  order[#order + 1] = 2
  return order
end

--- x in another order; where only dimensions of size 1 change places no element moves.
local function turn(x, order)
  local shape, last, moves = {}, 0, false
  for i, d in ipairs(order) do
    shape[i] = x.shape[d]
    if x.shape[d] ~= 1 then
      moves = moves or d < last
      last = d
    end
  end
  if moves then return kit.permute(x, order) end
  return kit.reshape(x, shape)
end

function T.channels_first(x) return #x.shape < 3 and x or turn(x, first_order(#x.shape)) end
function T.channels_last(x) return #x.shape < 3 and x or turn(x, last_order(#x.shape)) end

--- What `f` makes of the value's operand, once in each net, whoever asks: `key` says what it is. Of
-- a weight it is another weight, in the place of the one in the file.
function T.once(n, v, key, f)
  -- A weight is turned as the net is built, and is kept as one of the file's.
  if kit.is_known(v.x) and not n.folds then
    v.turned = v.turned or {}
    local w = v.turned[key]
    if not w then
      w = { x = f(v.x), name = v.name, parameter = v.parameter, elem = v.elem }
      v.turned[key] = w
    end
    return n.state:operand(w)
  end

  -- What a run makes is a blob of one net; the table forgets nets that have gone.
  local net = n.state.net
  v.turned = v.turned or setmetatable({}, { __mode = "k" })
  local made = v.turned[net] or {}
  v.turned[net] = made
  made[key] = made[key] or f(n:x_of(v))
  return made[key]
end

--- A value as an operand, in whichever layout it is.
function Node:x_of(v)
  if v.list then self:fail "a sequence, expected a tensor" end
  if self.folds then return v.x end
  return self.state:operand(v)
end

local function value(n, i) return n.inputs[i] or n:fail("input %d is missing", i) end

--- Input i in the file's order of dimensions, and with the channels first.
function T.plain(n, i)
  local v = value(n, i)
  return v.layout == "first" and T.once(n, v, "plain", T.channels_last) or n:x_of(v)
end
function T.first(n, i)
  local v = value(n, i)
  return v.layout == "first" and n:x_of(v) or T.once(n, v, "first", T.channels_first)
end

function T.is_first(n, i) return n.inputs[i] ~= nil and n.inputs[i].layout == "first" end

local function settle(v)
  if not v.settled then
    local x = T.channels_last(v.blob or v.x)
    v.settled = { x = x, elem = v.elem, name = v.name, from = v.from }
  end
  return v.settled
end

--- x with the channels first as a value.
function T.as_first(n, x)
  if #x.shape < 3 then return x end

  -- What comes of a weight is one, too.
  local parameter = false
  for _, v in pairs(n.inputs) do parameter = parameter or v.parameter end
  return { x = x, elem = kit.elem_of[x.dtype], layout = "first", settle = settle,
    parameter = parameter and kit.is_float(x), from = not kit.is_known(x) and n.inputs or nil }
end

--- x as a value in the layout that is said.
function T.as(n, x, first) return first and T.as_first(n, x) or x end

--- The shape of input i in the file's order.
function T.shape(n, i)
  local v = value(n, i)
  local shape = kit.copy(v.x.shape)
  if v.layout == "first" then table.insert(shape, table.remove(shape, 2)) end
  return shape
end

--- Inputs that are computed with element by element, as operands of one layout: channels first
-- where one of them has it, those of fewer dimensions with ones in front.
-- @return operands, whether they are channels first
function T.together(n, count)
  local rank, first = 0, false

  -- One operand with its channels first takes the others along: else all that is computed of images
  -- would be turned, and back again for the next convolution.
  for i = 1, count do
    rank = math.max(rank, #value(n, i).x.shape)
    first = first or n.inputs[i].layout == "first"
  end
  local xs = {}
  for i = 1, count do
    local v = n.inputs[i]
    local shape = v.x.shape
    if not first or kit.product(shape) == 1 and #shape < rank then
      xs[i] = T.plain(n, i)
    elseif #shape == rank then
      xs[i] = T.first(n, i)
    else
      -- Rank below that of the others: ones in front, then the channels second.
      xs[i] = T.once(n, v, "first of " .. rank, function(x)
        if v.layout == "first" then x = T.channels_last(x) end
        local full = kit.fill(rank - #shape, 1)
        table.move(x.shape, 1, #x.shape, #full + 1, full)
        return T.channels_first(kit.reshape(x, full))
      end)
    end
  end
  return xs, first
end

--- Dimension `axis` of the file, from 1, where the layout has it.
function T.axis_in(axis, rank, first)
  if not first or axis == 1 then return axis end
  return axis == rank and 2 or axis + 1
end

-- ---- quantisation -------------------------------------------------------------------------------

local ranges = { i8 = { -128, 127 }, u8 = { 0, 255 }, i16 = { -32768, 32767 },
  i32 = { -2^31, 2^31 - 1 }, i64 = { -2^53, 2^53 } } -- biases of 64 bits are small numbers
T.ranges = ranges

--- The nearest f32, as C has it.
function T.f32(x) return (string.unpack("<f", string.pack("<f", x))) end

--- What the integers of a tensor stand for: the tensor, nil where it is not quantised.
function T.quantised(t) return t and t.scale and ranges[t.dtype] and t or nil end

--- The range of a result's tensor; raises where it has no scale, or one for each channel.
local function range_of(n, t)
  if not T.quantised(t) then n:fail("a result of %s without a scale", tostring(t.type)) end
  if #t.scale ~= 1 then n:fail "a result with a scale for each channel" end
  return ranges[t.dtype]
end

--- Numbers for each position along a tensor's axis beside x, or the one number for all.
function T.beside(x, list, axis, dtype)
  if #list == 1 then return kit.number(list[1], dtype) end
  local shape = kit.fill(#x.shape, 1)
  shape[axis] = #list
  return kit.reshape(core.tensor(list, dtype), shape)
end

function T.all_zero(list)
  for _, i in ipairs(list) do
    if i ~= 0 then return false end
  end
  return true
end

--- The numbers that x, of tensor t, stands for: f32.
function T.dequantised(x, t, first)
  local many = #t.scale > 1
  -- DequantizeLinear has no i64, and biases of 64 bits are small numbers.
  if x.dtype == "i64" then x = kit.cast(x, "i32") end
  local axis = many and T.axis_in(t.axis, #x.shape, first) or nil
  local scale = many and core.tensor(t.scale, "f32") or kit.number(t.scale[1], "f32")
  local zero = many and core.tensor(t.zero, x.dtype) or kit.number(t.zero[1], x.dtype)
  return F.DequantizeLinear({ x, scale, not T.all_zero(t.zero) and zero }, { axis = axis })
end

--- The nearest whole number, halves away from 0, as C's round has it.
function T.round(x)
  return F.Trunc(F.Add { x, F.Mul { F.Sign(x), kit.number(0.5, x.dtype) } })
end

--- Numbers as integers of tensor t, within its range.
function T.quantise(n, y, t, round)
  local range = range_of(n, t)
  local q = (round or T.round)(F.Div { y, kit.number(t.scale[1], "f32") })
  if t.zero[1] ~= 0 then q = F.Add { q, kit.number(t.zero[1], "f32") } end
  return kit.cast(F.Clamp(q, { min = range[1], max = range[2] }), t.dtype)
end

--- A builder of an operator that is computed on numbers: f(n, x1, .. -> results) gets operands of
-- one layout, dequantised, and its results are quantised where the file's tensors are. `count`
-- inputs are such (all, where it is left out), the others f asks for itself. What f gives is in the
-- layout of its operands, n.first.
-- @param o {count =, round =, first = true where f needs the channels first}
function T.real(f, o)
  o = o or {}
  return function(n)
    local count, xs = math.min(o.count or math.huge, #n.row.inputs), {}
    if o.first then
      xs[1] = T.first(n, 1)
    else
      xs, n.first = T.together(n, count)
    end
    local first = o.first or n.first
    n.first = first

    -- Operands become numbers, and each result integers again where the file says so.
    for i = 1, count do
      local t = T.quantised(n.row.reads[i])
      if t and xs[i] then xs[i] = T.dequantised(xs[i], t, first) end
    end

    local ys = table.pack(f(n, table.unpack(xs, 1, count)))
    for k = 1, ys.n do
      local t, x = T.quantised(n.row.makes[k]), ys[k]
      if t and x and kit.is_float(x) then x = T.quantise(n, x, t, o.round) end
      ys[k] = x and T.as(n, x, first)
    end
    return table.unpack(ys, 1, ys.n)
  end
end

-- ---- activations --------------------------------------------------------------------------------

-- ActivationFunctionType of the schema: on numbers, and what it leaves of a range.
local activations = {
  [0] = {},
  [1] = { f = function(x) return F.Relu(x) end, least = 0 },
  [2] = { f = function(x) return F.Clamp(x, { min = -1, max = 1 }) end, least = -1, most = 1 },
  [3] = { f = function(x) return F.Relu6(x) end, least = 0, most = 6 },
  [4] = { f = function(x) return F.Tanh(x) end },
  [5] = { f = function(x) return F.Cast(F.Lt { x, kit.number(0, x.dtype) }, { to = x.dtype }) end },
}

local function activation_of(n)
  local code = n:int("fused_activation_function", 0)
  return activations[code] or n:fail("activation %d is none of the format's", code)
end

--- x through the operator's fused activation.
function T.activated(n, x)
  local a = activation_of(n)
  return a.f and a.f(x) or x
end

--- The least and the most that a quantised result has after the operator's fused activation, or
-- after `a`, {least =, most =} in numbers.
function T.bounds(n, t, a)
  local range = range_of(n, t)
  a = a or activation_of(n)
  -- As the standard's kernels: in f32, halves away from 0.
  local function place(number)
    local q = T.f32(number) / T.f32(t.scale[1])
    return t.zero[1] + (q < 0 and math.ceil(q - 0.5) or math.floor(q + 0.5))
  end

  if a.f and not a.least then n:fail "a fused activation that has no form in integers" end
  return math.tointeger(math.max(range[1], a.least and place(a.least) or range[1])),
    math.tointeger(math.min(range[2], a.most and place(a.most) or range[2]))
end

-- ---- inputs that say how ------------------------------------------------------------------------

--- The integers of input i, which must be known when the net is built: sizes, axes, positions.
function T.list(n, i) return n:needed(n:integers(i), ("input %d"):format(i)) end

--- The same of one.
function T.integer(n, i) return n:needed(n:integer(i), ("input %d"):format(i)) end

-- ---- by ONNX's builders -------------------------------------------------------------------------

local kinds = { integer = "int", float = "float" }

local function attr_of(v)
  if type(v) == "number" then return { kind = kinds[math.type(v)], value = v } end
  if type(v) == "string" then return { kind = "text", value = v } end
  local kind = type(v[1]) == "string" and "texts" or math.type(v[1]) == "float" and "floats"
  return { kind = kind or "ints", value = v }
end

--- What ONNX's op `name` gives, of the newest version, on operands in its order.
-- @param attrs {name = number, text, or list}
function T.onnx(n, name, operands, attrs, n_out)
  local row = { op = name, domain = "", name = "", place = n:place(), inputs = {}, outputs = {},
    attrs = {} }

  -- An op of ONNX's builders sees a node: operands go as its inputs, attributes with their kinds,
  -- and the newest version's rules hold.
  local inputs, folds = {}, true
  for i = 1, operands.n or #operands do
    local x = operands[i]
    row.inputs[i] = x and "x" .. i or ""
    if x then
      inputs[i] = { x = x, elem = kit.elem_of[x.dtype], name = "x" .. i, from = n.inputs }
      folds = folds and kit.is_known(x)
    end
  end
  for key, v in pairs(attrs or {}) do row.attrs[key] = attr_of(v) end
  for k = 1, n_out or 1 do row.outputs[k] = "y" .. k end

  -- Where all operands are known the op runs at once, as it would of an ONNX file.
  local node = setmetatable({ row = row, state = n.state, env = n.env, version = 21,
    inputs = inputs, folds = folds }, Node)
  local results = table.pack(ops.find("", name)(node, table.unpack(operands, 1, #row.inputs)))
  -- A value that the builder made itself is in the file's order: its operand is what is wanted.
  for k = 1, results.n do
    local y = results[k]
    if type(y) == "table" and not op.is_blob(y) and not op.is_tensor(y) then results[k] = y.x end
  end
  return table.unpack(results, 1, results.n)
end

return T
