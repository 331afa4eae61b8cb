--- TFLite's operators of one and of several operands, element by element.
-- @module neap.tflite.elementwise
local I = require "neap.tflite.integers"
local T = require "neap.tflite.kit"
local kit = require "neap.onnx.kit"
local F = kit.F

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
    local larger = math.max(reads[1].scale[1], reads[2].scale[1])
    local shift = y.dtype == "i16" and 15 or 20
    local sum = F[name] { common(a, reads[1], larger, shift), common(b, reads[2], larger, shift) }
    return I.requantised(n, sum, { 2 * larger / ((1 << shift) * y.scale[1]) }, nil, y)
  end
end

local function integer_product(n, a, b)
  local reads, y = n.row.reads, n.row.makes[1]
  local product = F.Mul { centered(a, reads[1]), centered(b, reads[2]) }
  -- The scales are floats, and so is what is computed of them.
  local scale = T.f32(T.f32(reads[1].scale[1] * reads[2].scale[1]) / y.scale[1])
  return I.requantised(n, product, { scale }, nil, y)
end

--- An operator of two operands and a fused activation; `integer` computes quantised ones, where
-- there is such a form.
local function binary(name, integer)
  local real = T.real(function(n, a, b) return T.activated(n, F[name] { a, b }) end)
  return function(n)
    if not integer or not I.is_integer(n, 2) then return real(n) end
    local xs, first = T.together(n, 2)
    return T.as(n, integer(n, xs[1], xs[2]), first)
  end
end

return function(op, needs)
  needs[2] = "ADD SUB MUL DIV"
  op.ADD, op.SUB = binary("Add", integer_sum "Add"), binary("Sub", integer_sum "Sub")
  op.MUL, op.DIV = binary("Mul", integer_product), binary "Div"
end
