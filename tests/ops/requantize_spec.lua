-- Requantize against the same in integers of 64 bits, for sums and scales of all sizes: to the bit,
-- whatever dtype the sums come in and whichever of its loops the numbers are small enough for.
local core = require "neap.core"
local neap = require "neap"

--- A scale below 1 as m / 2^31 / 2^right, m of 31 bits.
local function fixed(scale)
  local m, right = scale, 0
  while m < 0.5 do m, right = m * 2, right + 1 end
  return math.floor(m * 2^31 + 0.5), right
end

--- To the nearest with halves upwards, then to the nearest with halves away from 0.
local function twice(sum, m, right)
  local y = (sum * m + (1 << 30)) // (1 << 31)
  local rest = y % (1 << right)
  local half = 1 << right >> 1
  local up = rest > half or rest == half and y >= 0 and right > 0
  return y // (1 << right) + (up and 1 or 0)
end

local function once(sum, m, right)
  return (sum * m + (1 << (30 + right))) // (1 << (31 + right))
end

describe("Requantize", function()
  it("rounds twice, or once, as integers do", function()
    local r = neap.rand(200 * 42):to("f64"):totable()
    local n = 0
    for trial = 1, 200 do
      local at = (trial - 1) * 42
      local scale = (0.5 + r[at + 1] / 2) * 10 ^ -math.floor(r[at + 2] * 6)
      local m, right = fixed(scale)
      local sums = {}
      for i = 1, 40 do
        local magnitude = 2 ^ (1 + (i * 7 + trial) % 30)
        sums[i] = math.floor((r[at + 2 + i] * 2 - 1) * magnitude)
      end
      local dtype = trial % 2 == 0 and "i32" or "f64"
      local x, s = neap.tensor(sums, dtype), neap.tensor(scale, "f64")
      local a = core.eager("Requantize", { x, s }, { to = "i32" }):totable()
      local b = core.eager("Requantize", { x, s }, { to = "i64", once = true }):totable()
      for i, sum in ipairs(sums) do
        assert.equal(twice(sum, m, right), a[i])
        assert.equal(once(sum, m, right), b[i])
        n = n + 1
      end
    end
    assert.equal(8000, n)
  end)

  it("takes sums of 48 bits where it is wide", function()
    local r = neap.rand(100 * 42):to("f64"):totable()
    for trial = 1, 100 do
      local at = (trial - 1) * 42
      local scale = (0.5 + r[at + 1] / 2) * 2 ^ -(1 + trial % 30)
      local m, right = fixed(scale)
      local few = math.min((m + 0x8000) >> 16, 0x7fff)
      local sums, most = {}, math.min(2 ^ 47, 2 ^ 31 / scale)
      for i = 1, 40 do sums[i] = math.floor((r[at + 2 + i] * 2 - 1) * most * 2 ^ -(i % 20)) end
      local x, s = neap.tensor(sums, "f64"), neap.tensor(scale, "f64")
      local a = core.eager("Requantize", { x, s }, { to = "i32", wide = true }):totable()
      local b = core.eager("Requantize", { x, s }, { to = "i32", wide = true, once = true })
        :totable()
      for i, sum in ipairs(sums) do
        assert.equal((sum * few + (1 << (14 + right))) // (1 << (15 + right)), a[i])
        -- The product has 78 bits: the lower part, of 24 bits of the sum, gives what it carries.
        local low = ((sum & 0xffffff) * m + (1 << (30 + right))) // (1 << 24)
        local y = ((sum // (1 << 24)) * m + low) // (1 << (7 + right))
        assert.equal(y, b[i])
      end
    end
  end)

  it("has bounds for wide sums that are none, or too large", function()
    local x, s = neap.tensor({ 0 / 0, 1 / 0, -1 / 0, 2^60 }, "f64"), neap.tensor(0.5, "f64")
    for _, once in ipairs { true, false } do
      local y = core.eager("Requantize", { x, s }, { to = "i16", wide = true, once = once,
        least = -32768, most = 32767 })
      assert.same({ 0, 32767, -32768, 32767 }, y:totable())
      y = core.eager("Requantize", { neap.tensor({ 3, -3 }, "f64"), neap.tensor(2.0^20, "f64") },
        { to = "i32", wide = true, once = once })
      assert.same({ 3 << 20, -(3 << 20) }, y:totable())
    end
  end)

  it("has a scale for each channel, a zero, and bounds", function()
    local x = neap.tensor({ { { -9, 5 }, { 9, 5 } }, { { 2, 3 }, { -400, 400 } } }, "f32")
    local s = neap.tensor({ 0.5, 1 }, "f64")
    local y = core.eager("Requantize", { x, s }, { to = "u8", zero = 3, most = 200, axis = 2 })
    assert.same({ { { 0, 6 }, { 12, 8 } }, { { 4, 5 }, { 0, 200 } } }, y:totable())
  end)
end)
