--- Elementwise ops at the values that cases drawn at random do not meet.
local neap = require "neap"

local function same(want, got)
  local list = got:totable()
  assert.are.equal(#want, #list)
  for i, value in ipairs(want) do
    local near = value == list[i] or value ~= value and list[i] ~= list[i]
      or math.abs(value - list[i]) < 1e-6 * math.abs(value)
    assert.is_true(near, ("%d: expected %s, got %s"):format(i, value, list[i]))
  end
end

local nan, inf = 0 / 0, math.huge

describe("elements", function()
  it("are told apart by kind", function()
    local x = neap.tensor { 1, -inf, nan, inf }
    assert.are.same({ false, false, true, false }, x:is_nan():totable())
    assert.are.same({ false, true, false, true }, x:is_inf():totable())
    assert.are.same({ false, false, false, true }, x:is_inf { negative = false }:totable())
    assert.are.same({ false, true, false, false }, x:is_inf { positive = false }:totable())
    for _, dtype in ipairs { "f64", "bf16", "f16" } do
      assert.are.same({ false, true, false, true }, x:to(dtype):is_inf():totable())
    end
  end)

  it("keep NaN and have the limits of activations at the infinities", function()
    local x = neap.tensor { -inf, nan, inf }
    same({ -inf, nan, 0 }, x:log_sigmoid())
    same({ 0, nan, inf }, x:mish())
    same({ -1, nan, 1 }, x:softsign())
    same({ 0, nan, inf }, x:hard_swish())
    same({ 0, nan, 1 }, x:hard_sigmoid())
    same({ -1, nan, 1 }, x:hard_tanh())
    same({ 7, nan, inf }, x:threshold { threshold = 0, value = 7 })
    same({ -inf, nan, inf }, x:soft_shrink())
    same({ -inf, nan, inf }, x:hard_shrink())
    same({ -1, nan, inf }, x:celu())
    same({ -1.7580993408473766, nan, inf }, x:selu())
    same({ -inf, nan, inf }, x:prelu(0.5))
  end)

  it("keep their digits near 0", function()
    local x = neap.tensor({ 1e-20, -1e-20 }, "f64")
    same({ 1e-20, -1e-20 }, x:log1p())
    same({ 1e-20, -1e-20 }, x:expm1())
  end)

  it("lie in the quadrant of their point", function()
    local y, x = neap.tensor { 1, 1, -1, -1, 0 }, neap.tensor { 1, -1, -1, 1, -1 }
    local eighth = math.pi / 4
    same({ eighth, 3 * eighth, -3 * eighth, -eighth, math.pi }, neap.atan2(y, x))
    same({ 5, 1e200 }, neap.hypot(neap.tensor({ 3, 1e200 }, "f64"), neap.tensor({ 4, 1 }, "f64")))
  end)

  it("are bits, and shifts beyond the width leave nothing", function()
    local a, b = neap.tensor({ 12, -1, 127 }, "i8"), neap.tensor({ 10, 3, 1 }, "i8")
    assert.are.same({ 8, 3, 1 }, neap.bitwise_and(a, b):totable())
    assert.are.same({ 14, -1, 127 }, neap.bitwise_or(a, b):totable())
    assert.are.same({ 6, -4, 126 }, neap.bitwise_xor(a, b):totable())
    assert.are.same({ -13, 0, -128 }, neap.bitwise_not(a):totable())
    local by = neap.tensor({ 1, 8, -1 }, "i8")
    assert.are.same({ 24, 0, 0 }, neap.shift_left(a, by):totable())
    assert.are.same({ 6, -1, 0 }, neap.shift_right(a, by):totable())
    local u = neap.tensor({ 255, 255 }, "u8")
    assert.are.same({ 127, 0 }, neap.shift_right(u, neap.tensor({ 1, 200 }, "u8")):totable())
  end)

  it("lie between two ends, which they reach", function()
    local a, b = neap.tensor { 1, 1e20 }, neap.tensor { 5, -3 }
    same({ 1, 1e20 }, neap.lerp(a, b, 0))
    same({ 5, -3 }, neap.lerp(a, b, 1))
    same({ 2, 7.5e19 }, neap.lerp(a, b, 0.25))
  end)
end)
