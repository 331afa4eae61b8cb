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

--- The product of doubles to the nearest, halves away from 0.
local function once(sum, scale)
  local y = math.abs(sum * scale)
  local whole = math.floor(y) + (y - math.floor(y) >= 0.5 and 1 or 0)
  return sum < 0 and -whole or whole
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
        -- Every third list is of sums that are small, all of them.
        local magnitude = 2 ^ (1 + (i * 7 + trial) % (trial % 3 == 0 and 20 or 30))
        sums[i] = math.floor((r[at + 2 + i] * 2 - 1) * magnitude)
      end
      local dtype = trial % 2 == 0 and "i32" or "f64"
      local x, s = neap.tensor(sums, dtype), neap.tensor(scale, "f64")
      local a = core.eager("Requantize", { x, s }, { to = "i32" }):totable()
      local b = core.eager("Requantize", { x, s }, { to = "i64", once = true }):totable()
      for i, sum in ipairs(sums) do
        assert.equal(twice(sum, m, right), a[i])
        assert.equal(once(sum, scale), b[i])
        n = n + 1
      end
    end
    assert.equal(8000, n)
  end)

  it("makes bytes of sums and what they are short of, with a scale for each channel", function()
    local channels, rows = 21, 40
    for trial = 1, 60 do
      local r = neap.rand(2 * channels + channels * rows):to("f64"):totable()
      local scales, short, sums = {}, {}, {}
      -- Every third net has small numbers alone; of the others some channels have large ones.
      local bits = trial % 3 == 0 and 15 or 27
      for c = 1, channels do
        scales[c] = (0.5 + r[c] / 2) * 2 ^ -(1 + (c * 5 + trial) % 14)
        short[c] = math.floor((r[channels + c] * 2 - 1) * 2 ^ (5 + c * trial % bits))
      end
      for i = 1, channels * rows do
        sums[i] = math.floor((r[2 * channels + i] * 2 - 1) * 2 ^ (8 + i % 12))
      end
      local is_once, dtype = trial % 2 == 0, trial % 4 < 2 and "i8" or "u8"
      local range = dtype == "i8" and { -100, 127, 3 } or { 0, 250, 128 }
      -- The channels last, and second before rows of 10.
      for _, shape in ipairs { { rows, channels }, { rows // 10, channels, 10 } } do
        local x = neap.tensor(sums, "f32"):reshape(table.unpack(shape))
        local y = core.eager("Requantize", { x, neap.tensor(scales, "f64"),
          neap.tensor(short, "f64") }, { to = dtype, axis = 2, zero = range[3], least = range[1],
          most = range[2], once = is_once }):reshape(-1):totable()
        for i, sum in ipairs(sums) do
          local c = #shape == 2 and (i - 1) % channels or (i - 1) // 10 % channels
          local m, right = fixed(scales[c + 1])
          local whole = sum + short[c + 1]
          local wanted = is_once and once(whole, scales[c + 1]) or twice(whole, m, right)
          assert.equal(math.max(range[1], math.min(range[2], wanted + range[3])), y[i])
        end
      end
    end
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
        assert.equal(once(sum, scale), b[i])
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

  it("saturates at the end that a zero beyond 32 bits lies at", function()
    local x, s = neap.tensor({ 1, -2 }, "i32"), neap.tensor(0.5, "f64")
    for zero, y in pairs { [1 << 31] = 127, [(1 << 32) + 3] = 127, [-(1 << 32)] = -128 } do
      assert.same({ y, y },
        core.eager("Requantize", { x, s }, { to = "i8", zero = zero }):totable())
    end
  end)

  it("is exact a hair below a half, on either side of what a double holds", function()
    local n = 0
    for _, sum in ipairs { 3, 2^20 - 3, 2^21 - 1, 2^21 + 1, 2^23 - 1, 2^25 - 1, 2^30 - 1 } do
      sum = math.tointeger(sum)
      -- m such that sum m = 2^30 - 1 mod 2^31: sum's inverse by Newton's steps, each twice as wide.
      local inverse = 1
      for _ = 1, 5 do inverse = inverse * (2 - sum * inverse) & 0x7fffffff end
      local m = inverse * (2^30 - 1 | 0) & 0x7fffffff
      if m < 1 << 30 then m, sum = (1 << 31) - m, -sum end
      local x, s = neap.tensor({ sum }, "i32"), neap.tensor(m / 2^31, "f64")
      local a = core.eager("Requantize", { x, s }, { to = "i32" }):totable()
      local b = core.eager("Requantize", { x, s }, { to = "i64", once = true }):totable()
      assert.equal(twice(sum, m, 0), a[1])
      assert.equal(once(sum, m / 2^31), b[1])
      n = n + 1
    end
    assert.equal(7, n)
  end)

  it("rounds halves away from 0 where it rounds once, and nothing below a half", function()
    local below = 0.5 - 2^-54
    for _, to in ipairs { "i8", "i16", "i32" } do
      local function of(sums, scale)
        return core.eager("Requantize", { neap.tensor(sums, "f64"), neap.tensor(scale, "f64") },
          { to = to, once = true }):totable()
      end
      assert.same({ 1, -1, 2, -2, 3, -3 }, of({ 1, -1, 3, -3, 5, -5 }, 0.5))
      assert.same({ 0, 0, 1, -1, 1, -1 }, of({ 1, -1, 2, -2, 3, -3 }, below))
      -- Beyond the numbers that the loops for small ones take.
      assert.same({ 33, -33, 0 }, of({ 65 << 40, -65 << 40, 1 }, 2.0^-41))
    end
  end)

  it("counts the least scale that the format has, and saturates by large ones", function()
    -- 3/4 of 2^-31 makes 3/4 of the largest sum: 1. Half of it makes nothing.
    for scale, want in pairs { [0.75 * 2 ^ -31] = 1, [0.375 * 2 ^ -31] = 0 } do
      for _, once in ipairs { true, false } do
        assert.same({ want }, core.eager("Requantize", { neap.tensor({ 2 ^ 31 - 1 }, "f64"),
          neap.tensor(scale, "f64") }, { to = "i32", once = once }):totable())
      end
    end

    -- Results far beyond 32 bits, of small sums.
    for _, bits in ipairs { 9, 12, 30 } do
      assert.same({ 127, -128, 0 }, core.eager("Requantize", { neap.tensor({ 2 ^ 20, -2 ^ 20, 0 },
        "f64"), neap.tensor(2.0 ^ bits, "f64") }, { to = "i8" }):totable())
    end
  end)

  it("has at most 15 bits of a scale for wide sums, as the format has", function()
    -- All 31 bits set: 2^15 - 1 of 2^15, not a whole one.
    assert.same({ 999969 }, core.eager("Requantize", { neap.tensor({ 1e6 }, "f64"),
      neap.tensor(1 - 2 ^ -31, "f64") }, { to = "i32", wide = true }):totable())
  end)

  it("has bounds of 32 bits for a sum that a scale of thousands makes too large", function()
    local x, s = neap.tensor({ 1 << 20, -(1 << 20), 3 }, "i32"), neap.tensor(0.75 * 2^12, "f64")
    local y = core.eager("Requantize", { x, s }, { to = "i64" }):totable()
    assert.same({ (3 * (2^31 - 1) + 2) // 4 | 0, -3 << 29, 9216 }, y)
  end)

  it("takes NaN for 0, infinities for bounds, and a scale that is none for 0", function()
    local inf = math.huge
    local x = neap.tensor { 0 / 0, inf, -inf, 5 }
    for _, once in ipairs { true, false } do
      local function of(scale, to)
        local s = neap.tensor(scale, "f64")
        return core.eager("Requantize", { x, s }, { to = to or "i8", once = once }):totable()
      end
      assert.same(once and { 0, 2^31 - 1 | 0, -2^31 | 0, 3 } or { 0, 1 << 30, -1 << 30, 3 },
        of(0.5, "i32"))
      for _, scale in ipairs { 0, -1, 0 / 0, -inf, 1e-300 } do
        assert.same({ 0, 0, 0, 0 }, of(scale))
      end
      for _, scale in ipairs { 2^30, 2^31, 1e12, 1e300, inf } do
        assert.same({ 0, 127, -128, 127 }, of(scale))
      end
    end
  end)
end)
