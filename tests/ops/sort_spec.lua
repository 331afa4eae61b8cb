--- Sorting and searching at what drawn cases do not meet: equals, NaN, infinities, all dtypes, rows
-- long enough for each way of sorting.
local neap = require "neap"

local nan, inf = 0 / 0, math.huge

local function list(t) return t:to("f64"):reshape(-1):totable() end

--- NaN where that is wanted, and zeros of the same sign.
local function same(want, t)
  local got = list(t)
  assert.are.equal(#want, #got)
  for i, w in ipairs(want) do
    local equal = w == got[i] and 1 / w == 1 / got[i] or w ~= w and got[i] ~= got[i]
    assert.is_true(equal, ("%d: %s, not %s"):format(i, got[i], w))
  end
end

local function indices(want, t) assert.are.same(want, t:reshape(-1):totable()) end

--- Lua's own sort of {value, position}, equals by position; NaN last, or first where descending.
local function oracle(values, descending)
  local items = {}
  for i, v in ipairs(values) do items[i] = { v, i } end
  table.sort(items, function(a, b)
    local p, q = a[1], b[1]
    if descending then p, q = q, p end
    local less = p < q or (q ~= q and p == p)
    local more = q < p or (p ~= p and q == q)
    return less or not more and a[2] < b[2]
  end)
  local sorted, places = {}, {}
  for i, item in ipairs(items) do sorted[i], places[i] = item[1], item[2] - 1 end
  return sorted, places
end

local dtypes = { "f32", "f64", "bf16", "f16", "i8", "u8", "i16", "u16", "i32", "i64" }

describe("a sort", function()
  it("keeps equals in their order, in every dtype, of short and of long rows", function()
    neap.seed(5)
    for _, dtype in ipairs(dtypes) do
      for _, n in ipairs { 1, 2, 31, 33, 500 } do
        local low = (dtype == "u8" or dtype == "u16") and 0 or -50
        local x = neap.rand({ n, low = low, high = 60 }):to("i32"):to(dtype)
        for _, descending in ipairs { false, true } do
          local values, at = x:sort { descending = descending }
          local want, places = oracle(list(x), descending)
          assert.are.same(want, list(values), dtype .. " " .. n)
          indices(places, at)
          indices(places, x:arg_sort { descending = descending })
        end
      end
    end
  end)

  it("has a NaN behind all numbers, infinities at the ends, and both zeros equal", function()
    for _, pad in ipairs { 0, 60 } do
      local x = { 0.0, nan, -inf, -0.0, inf, -1e-40, nan, 1e-40, -3.5, 0.0 }
      for i = 1, pad do x[#x + 1] = 10.0 + i end
      for _, dtype in ipairs { "f32", "f64" } do
        for _, descending in ipairs { false, true } do
          local values, at = neap.tensor(x, dtype):sort { descending = descending }
          local _, places = oracle(x, descending)
          indices(places, at)
          local want = {}
          for i, place in ipairs(places) do
            want[i] = dtype == "f64" and x[place + 1] or neap.tensor { x[place + 1] }[1]
          end
          same(want, values)
        end
      end
    end
  end)

  it("tells the largest integers apart", function()
    local big = math.maxinteger
    local x = neap.tensor({ big, big - 1, math.mininteger, -1, 0, math.mininteger + 1 }, "i64")
    local values = x:sort()
    assert.are.same({ math.mininteger, math.mininteger + 1, -1, 0, big - 1, big },
      values:totable())
    assert.are.same({ false, false, true }, (neap.tensor { 1, 0, 0 }:gt(0):sort()):totable())
  end)

  it("goes along any dimension, and is empty of nothing", function()
    local x = neap.tensor { { 3, 1, 2 }, { 0, 5, 4 } }
    local values, at = x:sort { axis = 1 }
    same({ 0, 1, 2, 3, 5, 4 }, values)
    indices({ 1, 0, 0, 0, 1, 1 }, at)
    values = x:sort { axis = -1, descending = true }
    same({ 3, 2, 1, 5, 4, 0 }, values)
    assert.are.same({ 0, 3 }, (neap.zeros({ 0, 3 }):sort()).shape)
    assert.has_error(function() x:sort { axis = 3 } end)
  end)

  it("is the same by any number of threads", function()
    neap.seed(3)
    local x = neap.randn { 37, 211 }
    local lists = {}
    for k, threads in ipairs { 1, 2, 5 } do
      local net = neap.net "threads"
      net:outputs { net:Sort(net:input("x", { 37, 211 }), { "values", "indices" }, { axis = 1 }) }
      local ws <close> = neap.workspace { store = false }
      ws:feed("x", x)
      local program <close> = ws:compile(net, { threads = threads })
      program:run()
      lists[k] = { list(ws:fetch "values"), list(ws:fetch "indices") }
      assert.are.same(lists[1], lists[k])
    end
  end)
end)

describe("the k largest", function()
  it("are the first of equals, a NaN the largest", function()
    local x = neap.tensor { 1, 3, nan, 3, -inf, 2, 3 }
    local values, at = x:top_k { k = 3 }
    same({ nan, 3, 3 }, values)
    indices({ 2, 1, 3 }, at)
    values, at = x:top_k { k = 3, largest = false }
    same({ -inf, 1, 2 }, values)
    indices({ 4, 0, 5 }, at)
    values, at = x:top_k { k = 3, sorted = false }
    same({ 3, nan, 3 }, values)
    indices({ 1, 2, 3 }, at)
  end)

  it("may be none, or all, and no more", function()
    local x = neap.tensor { { 1, 2 }, { 3, 4 } }
    assert.are.same({ 2, 0 }, (x:top_k { k = 0 }).shape)
    same({ 2, 1, 4, 3 }, (x:top_k { k = 2 }))
    local ok, err = pcall(x.top_k, x, { k = 3 })
    assert.is_false(ok)
    assert.has_match("k = 3 expects at least as many elements along dimension %-?%d, x has 2",
      tostring(err))
  end)
end)

describe("a median", function()
  it("is the lower of two, the first of equals, a NaN where there is one", function()
    for _, dtype in ipairs(dtypes) do
      local y, at = neap.tensor({ 4, 1, 3, 2, 2, 9 }, dtype):median()
      same({ 2 }, y)
      indices({ 4 }, at)
    end
    local y, at = neap.tensor { { 1, nan, 0, nan }, { 4, 3, 2, 1 } }:median { axis = 2 }
    same({ nan, 2 }, y)
    indices({ 1, 2 }, at)
    y, at = neap.tensor { { 1, 5 }, { 4, 3 } }:median { axis = 1, keepdim = true }
    same({ 1, 3 }, y)
    indices({ 0, 1 }, at)
    assert.are.same({ 1, 2 }, y.shape)
    assert.has_error(function() neap.zeros({ 0 }):median() end)
  end)

  it("gives its gradient to one element", function()
    local net = neap.net "gradient"
    local x = net:param("x", { 2, 2 })
    local g = net:gradient((x:median()), { wrt = { x } })[x]
    net:outputs { g }
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    ws:feed("x", neap.tensor { { 7, 3 }, { 5, 5 } })
    ws:run(net)
    same({ 0, 0, 1, 0 }, ws:fetch(g))
  end)
end)

describe("a search", function()
  it("goes before or behind equals", function()
    for _, dtype in ipairs { "f32", "f64", "bf16", "f16", "i8", "u8", "i32", "i64" } do
      local sorted, v = neap.tensor({ 1, 3, 3, 7 }, dtype), neap.tensor({ 0, 1, 3, 5, 9 }, dtype)
      indices({ 0, 0, 1, 3, 4 }, neap.search_sorted(sorted, v))
      indices({ 0, 1, 3, 3, 4 }, neap.search_sorted(sorted, v, { right = true }))
    end
    local sorted = neap.tensor { -inf, 0, inf, nan }
    local v = neap.tensor { -inf, -0.0, inf, nan }
    indices({ 0, 1, 2, 3 }, neap.search_sorted(sorted, v))
    indices({ 1, 2, 3, 4 }, neap.search_sorted(sorted, v, { right = true }))
  end)

  it("takes the row of the same place, and refuses others", function()
    local sorted = neap.tensor { { 1, 2, 3 }, { 10, 20, 30 } }
    indices({ 2, 3, 0, 1 }, neap.search_sorted(sorted, neap.tensor { { 2.5, 9 }, { 2.5, 11 } }))
    assert.has_error(function() neap.search_sorted(sorted, neap.ones { 3, 2 }) end)
    assert.has_error(function() neap.search_sorted(sorted, neap.ones(2)) end)
    indices({ 0, 0 }, neap.search_sorted(neap.zeros { 0 }, neap.tensor { 1, nan }))
  end)
end)

describe("a histogram", function()
  it("counts between its ends, the last included, and nothing that is no number", function()
    local x = neap.tensor { 0, 0.5, 1, 1.5, 2, -0.1, 2.1, nan, inf, -inf }
    indices({ 1, 1, 1, 2 }, x:histogram { bins = 4, min = 0, max = 2 })
    indices({ 2, 3 }, x:histogram { bins = 2, min = 0, max = 2 })
  end)

  it("spans the elements where no range is given, and widens that of one number", function()
    indices({ 1, 0, 0, 2 }, neap.tensor { 1, 5, 5, nan, inf }:histogram { bins = 4 })
    indices({ 0, 3 }, neap.tensor { 5, 5, 5 }:histogram { bins = 2 })
    indices({ 0, 0 }, neap.zeros({ 0 }):histogram { bins = 2 })
    local far = neap.tensor({ -1e308, -1.7e308, 1.7e308, 1e308 }, "f64")
    indices({ 2, 2 }, far:histogram { bins = 2 })
    assert.has_error(function() neap.ones(3):histogram { min = 1, max = 0 } end)
  end)
end)
