-- Ops on integers, in every dtype that they have, against Lua's own 64-bit integers: results wrap
-- around in the dtype, sums and products in i64; extremes are exact, comparisons too. Values are
-- those at a dtype's edges and around zero, each with each.
local neap = require "neap"

--- Bits and sign of each.
local dtypes = {
  u8 = { 8, false },
  i8 = { 8, true },
  u16 = { 16, false },
  i16 = { 16, true },
  i32 = { 32, true },
  i64 = { 64, true },
}

--- What is left of an integer in a dtype.
local function wrap(value, dtype)
  local bits, signed = table.unpack(dtypes[dtype])
  if bits == 64 then return value end
  value = value & ((1 << bits) - 1)
  return signed and value >> (bits - 1) == 1 and value - (1 << bits) or value
end

local function values_of(dtype)
  local bits, signed = table.unpack(dtypes[dtype])
  local least = signed and -1 << (bits - 1) or 0
  local most = signed and ~least or (1 << bits) - 1
  local list = { 0, 1, 2, 3, 7, most // 3, most - 1, most }
  for _, value in ipairs(
    signed and { least, least + 1, -1, -2, -7, least // 3 } or { most // 2, most // 2 + 1 }) do
    list[#list + 1] = value
  end
  -- Neighbours that f32, an int and f64 hold as one number.
  for _, edge in ipairs { 1 << 24, 1 << 31, 1 << 53 } do
    if most > edge then table.move({ edge, edge + 1 }, 1, 2, #list + 1, list) end
  end
  return list
end

local function float(x) return (string.unpack("f", string.pack("f", x))) end

local function power(x, y)
  if y < 0 then return x == 1 and 1 or x == -1 and (y % 2 == 0 and 1 or -1) or 0 end
  local result = 1
  while y > 0 do
    if y & 1 == 1 then result = result * x end
    x, y = x * x, y >> 1
  end
  return result
end

local binary = {
  Add = function(x, y) return x + y end,
  Sub = function(x, y) return x - y end,
  Mul = function(x, y) return x * y end,
  FloorDiv = function(x, y) return x // y end,
  Mod = function(x, y) return x % y end,
  Pow = power,
  Maximum = math.max,
  Minimum = math.min,
}
local to_other = { -- results in another dtype
  Div = function(x, y) return float(x / y) end,
  Eq = function(x, y) return x == y end,
  Ne = function(x, y) return x ~= y end,
  Lt = function(x, y) return x < y end,
  Le = function(x, y) return x <= y end,
  Gt = function(x, y) return x > y end,
  Ge = function(x, y) return x >= y end,
}
local unary = {
  Neg = function(x) return -x end,
  Abs = function(x) return x < 0 and -x or x end,
  Square = function(x) return x * x end,
  Sign = function(x) return x > 0 and 1 or x < 0 and -1 or 0 end,
  Floor = function(x) return x end,
  Ceil = function(x) return x end,
  Round = function(x) return x end,
}

--- Each with each, as a column and a row that broadcast, as two tensors of one shape, and with one
-- number on either side.
local function check_pairs(name, f, dtype)
  local op, left = neap[name:gsub("%l%f[%u]", "%0_"):lower()], values_of(dtype)
  local right = {}
  for _, y in ipairs(left) do
    if y ~= 0 or not (name == "FloorDiv" or name == "Mod" or name == "Div") then
      right[#right + 1] = y
    end
  end
  local n, m = #left, #right
  local a, b = neap.tensor(left, dtype), neap.tensor(right, dtype)
  local column = a:view(n, 1)
  local results = {
    op(column, b),
    op(column:expand(n, m):contiguous():view(n * m),
      b:view(1, m):expand(n, m):contiguous():view(n * m)):view(n, m),
  }
  for _, y in ipairs(results) do assert.same({ n, m }, { y.shape[1], y.shape[2] }) end
  local flat = {
    results[1]:contiguous():view(-1):totable(), results[2]:contiguous():view(-1):totable(),
  }
  for i, x in ipairs(left) do
    local by_number = op(neap.tensor({ x }, dtype), b):totable()
    for j, y in ipairs(right) do
      local want = f(x, y)
      if binary[name] then want = wrap(want, dtype) end
      for _, got in ipairs { flat[1][(i - 1) * m + j], flat[2][(i - 1) * m + j], by_number[j] } do
        if got ~= want then
          error(("%s %s of %d and %d: %s, expected %s"):format(name, dtype, x, y, got, want))
        end
      end
    end
  end
end

describe("integers", function()
  for dtype in pairs(dtypes) do
    it("of two tensors: " .. dtype, function()
      for name, f in pairs(binary) do check_pairs(name, f, dtype) end
      for name, f in pairs(to_other) do check_pairs(name, f, dtype) end
    end)

    it("of one tensor: " .. dtype, function()
      local values = values_of(dtype)
      for name, f in pairs(unary) do
        local y = neap[name:lower()](neap.tensor(values, dtype))
        assert.are.equal(dtype, y.dtype)
        local want = {}
        for i, x in ipairs(values) do want[i] = wrap(f(x), dtype) end
        assert.same(want, y:totable(), name)
      end
      local x = neap.tensor(values, dtype)
      local want = {}
      for i, value in ipairs(values) do want[i] = wrap(3 * value, dtype) end
      assert.same(want, neap.add_n(x, x, x):totable())
    end)

    it("summed, multiplied and compared, along rows and columns: " .. dtype, function()
      local values, rows = values_of(dtype), 3
      -- Longer than the loops have lanes, no multiple of them, and no row like another.
      local n, list = 37, {}
      for i = 1, rows * n do list[i] = values[(i * i + i // 5) % #values + 1] end
      local x = neap.tensor(list, dtype):view(rows, n)
      local folds = {
        sum = { 0, function(a, b) return a + b end },
        prod = { 1, function(a, b) return a * b end },
        max = { math.mininteger, math.max },
        min = { math.maxinteger, math.min },
      }
      --- What a fold of a row, or of a column, gives.
      local function fold(rule, first, count, step)
        local acc = rule[1]
        for k = 0, count - 1 do acc = rule[2](acc, list[first + k * step]) end
        return acc
      end
      for name, rule in pairs(folds) do
        local along_rows = neap[name](x, { axes = { 2 } })
        local along_columns = neap[name](x, { axes = { 1 } })
        local all = neap[name](x):item()
        assert.are.equal((name == "sum" or name == "prod") and "i64" or dtype, along_rows.dtype)
        for r = 1, rows do
          assert.are.equal(fold(rule, (r - 1) * n + 1, n, 1), along_rows[r], name)
        end
        for c = 1, n do assert.are.equal(fold(rule, c, rows, n), along_columns[c], name) end
        assert.are.equal(fold(rule, 1, rows * n, 1), all, name)
      end
      for name, beats in pairs {
        arg_max = function(a, b) return a > b end, arg_min = function(a, b) return a < b end,
      } do
        local places = neap[name](x, { axis = 2 })
        for r = 1, rows do
          local best = 1
          for c = 2, n do
            if beats(list[(r - 1) * n + c], list[(r - 1) * n + best]) then best = c end
          end
          assert.are.equal(best - 1, places[r], name)
        end
      end
    end)
  end

  it("found, chosen, kept and told apart, next to what f32 and f64 hold", function()
    for dtype in pairs(dtypes) do
      local values = values_of(dtype)
      local x, reversed = neap.tensor(values, dtype), {}
      local places, kept, sorted, truth = {}, {}, table.move(values, 1, #values, 1, {}), {}
      for i, value in ipairs(values) do
        reversed[#values + 1 - i] = value
        truth[i] = value ~= 0
        if value ~= 0 then places[#places + 1], kept[#kept + 1] = i - 1, value end
      end
      table.sort(sorted)
      assert.same({ places }, (neap.non_zero(x)):totable(), dtype)
      assert.same(truth, x:to("bool"):totable(), dtype)
      assert.same(kept, (neap.compress(x, x:ne(0), { axis = 1 })):totable(), dtype)
      assert.same(sorted, (neap.unique(x)):totable(), dtype)
      local y = neap.tensor(reversed, dtype)
      local chosen = {}
      for i, value in ipairs(values) do chosen[i] = math.max(value, reversed[i]) end
      assert.same(chosen, neap.where(x:gt(y), x, y):totable(), dtype)
      for i, value in ipairs(values) do
        local one = neap.full { 1, value = value, dtype = dtype }
        for k, other in ipairs(values) do
          assert.are.equal(value == other, one:equal(x[{ { k, k } }]), dtype)
        end
        assert.are.equal(value, x[i])
      end
    end
  end)

  it("divided by zero are an error, in every dtype, and no crash", function()
    for dtype in pairs(dtypes) do
      local x, zero = neap.tensor({ 1, 2 }, dtype), neap.tensor({ 1, 0 }, dtype)
      for _, f in ipairs { neap.floor_div, neap.mod } do
        local ok, err = pcall(f, x, zero)
        assert.is_false(ok)
        assert.matches("of integer 2 by zero", tostring(err), 1, true)
      end
    end
  end)
end)
