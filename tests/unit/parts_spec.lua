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

describe("a data set", function()
  local labels = neap.tensor({ 0, 0, 0, 0, 0, 0, 1, 1, 1, 0 }, "i64")
  local ten = neap.arange(0, 10):reshape(10, 1)
  local function set() return data.tensors { x = ten, y = labels } end

  local function sorted_rows(d)
    local list = {}
    for batch in d:epoch(1) do
      for _, v in ipairs(batch.x:reshape(-1):totable()) do list[#list + 1] = v end
    end
    table.sort(list)
    return list
  end

  it("has folds: each row is judged once, and trained on in all others", function()
    local folds, all = set():folds(3, { stratify = "y" }), {}
    assert.are.equal(3, #folds)
    for _, fold in ipairs(folds) do
      local train, valid = sorted_rows(fold[1]), sorted_rows(fold[2])
      assert.are.equal(10, #train + #valid)
      for _, v in ipairs(valid) do all[#all + 1] = v end
      local both = table.move(train, 1, #train, #valid + 1, valid)
      table.sort(both)
      assert.are.same({ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 }, both)
      local n_rare = 0
      for _, v in ipairs(sorted_rows(fold[2])) do
        if v >= 6 and v <= 8 then n_rare = n_rare + 1 end
      end
      assert.are.equal(1, n_rare)
    end
    table.sort(all)
    assert.are.same({ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 }, all)
    raises("2 to the 10 rows", set().folds, set(), 1)
    raises("did you mean", set().folds, set(), 2, { stratify = "yy" })
  end)

  it("draws every label as often, by a field's name", function()
    local n, n_rare = 0, 0
    local even = set():weighted("y", 4000)
    for batch in even:epoch(1) do n, n_rare = n + 1, n_rare + batch.y:sum():item() end
    assert.are.equal(4000, n)
    assert.is_true(math.abs(n_rare / n - 0.5) < 0.04, tostring(n_rare / n))
    raises("there is no field", set().weighted, set(), "label")
  end)

  it("takes other settings over the same rows, and keeps what is not said", function()
    local d = data.tensors { x = ten, batch = 2, seed = 7, shuffle = true }
    local other = d:with { batch = 5, transform = { data.normalise { mean = 1, std = 2 } } }
    assert.are.equal(2, #other)
    assert.are.equal(5, #d)
    assert.are.equal(7, other.seed)
    assert.is_true(other.shuffle)
    assert.are.same({ -0.5, 0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4 }, sorted_rows(other))
    assert.are.same(sorted_rows(d), sorted_rows(other:with { transform = {} }))
    assert.is_false(d:with({ shuffle = false }).shuffle)
    raises("batch", d.with, d, { batch = 0 })
    raises("unknown field", d.with, d, { batches = 2 })
  end)
end)
