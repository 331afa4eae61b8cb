--- Parts of data sets, and draws by weights.
local neap = require "neap"
local data = neap.data
local raises = require("support").raises

local n = 60
local x = neap.arange(0, n):reshape(n, 1)
local y = neap.arange(0, n):to("i64"):apply_(function(i) return i % 6 == 0 and 1 or 0 end)

local function rows_of(set, k)
  local list = {}
  for batch in set:epoch(k or 1) do
    for i = 1, batch.n do list[#list + 1] = math.tointeger(batch.x:at(i, 1)) end
  end
  return list
end

local kinds = {
  tensors = function() return data.tensors { x = x, y = y, batch = 7, shuffle = true } end,
  from = function()
    return data.from { n = n, x = { 1 }, batch = 7, shuffle = true,
      get = function(i, slot) slot.x:fill_(i - 1) end }
  end,
  sequences = function()
    local rows = {}
    for i = 1, n do rows[i] = { i - 1, table.unpack({ 0, 0, 0 }, 1, i % 4) } end
    return data.sequences { x = rows, y = y, batch = 7, bucket = 2, shuffle = true }
  end,
}

describe("a data set", function()
  for kind, make in pairs(kinds) do
    it("of " .. kind .. " is split into parts that share no row, the same each time", function()
      local a, b, c = make():split { 0.5, 0.3, 0.2 }
      local seen = {}
      for i, part in ipairs { a, b, c } do
        local rows = rows_of(part)
        assert.are.equal(({ 30, 18, 12 })[i], #rows)
        local batches = 0
        for _ in part:epoch(2) do batches = batches + 1 end
        assert.are.equal(#part, batches)
        for _, row in ipairs(rows) do
          assert.is_nil(seen[row])
          seen[row] = true
        end
      end
      assert.are.same(rows_of(b), rows_of((select(2, make():split { 0.5, 0.3, 0.2 }))))
      assert.are_not.same(rows_of(a), rows_of((make():split({ 0.5 }, { seed = 9 }))))
    end)

    it("of " .. kind .. " draws rows by their weights", function()
      local weights = {}
      for i = 1, n do weights[i] = i % 6 == 1 and 5 or i % 6 == 2 and 0 or 1 end
      local set = make():weighted(weights, 3000)
      assert.are.equal(3000, set:spec().n)
      local rows = rows_of(set)
      assert.are.equal(3000, #rows)
      local rare = 0
      for _, row in ipairs(rows) do
        assert.are_not.equal(1, row % 6)
        if row % 6 == 0 then rare = rare + 1 end
      end
      assert.is_true(rare > 1550 and rare < 1780) -- 5 of 9
      assert.are.same(rows, rows_of(set))
      assert.are_not.same(rows, rows_of(set, 2))
    end)
  end

  it("gives each label its share of every part", function()
    for _, kind in ipairs { "tensors", "sequences" } do
      local a, b = kinds[kind]():split({ 0.8, 0.2 }, { stratify = "y" })
      for part, want in pairs { [a] = 8, [b] = 2 } do
        local ones = 0
        for batch in part:epoch(1) do ones = ones + batch.y:sum():item() end
        assert.are.equal(want, ones)
      end
    end
  end)

  it("of weighted rows has as many batches in each epoch as it says", function()
    local weights = {}
    for i = 1, n do weights[i] = i % 4 + 1 end
    local rows = {}
    for i = 1, n do rows[i] = table.move({ 0, 0, 0, 0 }, 1, 1 + i % 4, 1, {}) end
    for _, last in ipairs { "run", "drop" } do
      for _, n_drawn in ipairs { 5, 50, 61 } do
        local set = data.sequences { x = rows, batch = 7, bucket = 2, shuffle = true, last = last }
        set = set:weighted(weights, n_drawn)
        for k = 1, 12 do
          local n_batch, n_row = 0, 0
          for batch in set:epoch(k) do n_batch, n_row = n_batch + 1, n_row + batch.n end
          assert.are.equal(#set, n_batch)
          assert.are.equal(last == "run" and n_drawn or n_drawn // 7 * 7, n_row)
        end
      end
    end
  end)

  it("has parts within one row of their share, however few rows a label has", function()
    for _, n_label in ipairs { 1, 2, 7, 30, 60 } do
      for _, shares in ipairs { { 0.8, 0.2 }, { 0.5, 0.3, 0.2 }, { 0.9, 0.05, 0.05 }, { 0.34, 0.1 },
        { 1 } } do
        local label = neap.arange(0, n):to("i64"):apply_(function(i) return i % n_label end)
        local set = data.tensors { x = x, y = label, batch = 7 }
        local seen = {}
        for i, part in ipairs { set:split(shares, { stratify = "y" }) } do
          local rows, of_label = rows_of(part), {}
          assert.is_true(math.abs(#rows - shares[i] * n) < 1)
          for _, row in ipairs(rows) do
            assert.is_nil(seen[row])
            seen[row] = true
            of_label[row % n_label] = (of_label[row % n_label] or 0) + 1
          end
          for _, count in pairs(of_label) do
            assert.is_true(math.abs(count - shares[i] * n / n_label) < 2)
          end
        end
      end
    end
  end)

  it("mixes the labels of a part, and leaves none always without", function()
    local label = neap.arange(0, n):to("i64"):apply_(function(i) return i // 2 end)
    local set, seen, n_seen = data.tensors { x = x, y = label, batch = n }, {}, 0
    for seed = 1, 20 do
      local _, small = set:split({ 0.8, 0.2 }, { stratify = "y", seed = seed })
      local rows = rows_of(small)
      local sorted = table.move(rows, 1, #rows, 1, {})
      table.sort(sorted)
      assert.are_not.same(sorted, rows)
      for _, row in ipairs(rows) do
        if not seen[row // 2] then n_seen = n_seen + 1 end
        seen[row // 2] = true
      end
    end
    assert.are.equal(30, n_seen)
  end)

  it("refuses a part without rows, and weights whose sum is no number", function()
    local few = data.tensors { x = neap.arange(0, 3), batch = 1 }
    raises({ "part 2 would be empty", "0.1 of 3 rows" }, few.split, few, { 0.9, 0.1 })
    raises("sum of the weights", few.weighted, few, { 1e308, 1e308, 1e308 })
  end)

  it("refuses shares, fields and weights that are none", function()
    local set = kinds.tensors()
    raises("add up to 1 at most", set.split, set, { 0.8, 0.4 })
    raises("share 1 expects a number", set.split, set, { "all" })
    raises("shares that add up", set.split, set, {})
    raises('no field "z"', set.split, set, { 0.5 }, { stratify = "z" })
    raises("one number a row", set.split, set, { 0.5 }, { stratify = "x" })
    local made = kinds.from()
    raises("one number a row", made.split, made, { 0.5 }, { stratify = "x" })
    raises("a weight for each of 60 rows, got 2", set.weighted, set, { 1, 2 })
    raises("all weights are 0", set.weighted, set, neap.zeros(n))
    raises("weight 1 expects a finite number", set.weighted, set, neap.full { n, value = -1 })
  end)
end)
