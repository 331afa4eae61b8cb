--- Running sums, products and extremes, and linear recurrences, at what drawn cases do not meet.
local neap = require "neap"

local nan, inf = 0 / 0, math.huge

--- Equal, or within `off` of it; NaN where that is wanted.
local function same(want, t, off)
  local got = t:to("f64"):reshape(-1):totable()
  assert.are.equal(#want, #got)
  for i, w in ipairs(want) do
    local near = got[i] == w or w ~= w and got[i] ~= got[i] or math.abs(got[i] - w) <= (off or 0)
    assert.is_true(near, ("%d: %s, not %s"):format(i, got[i], w))
  end
end

--- The gradient of the sum of y = op(x) times `dy`.
local function gradient(values, method, attrs, dy)
  local net = neap.net "gradient"
  local x = net:declare("x", "parameter", { #values }, "f64")
  local y = x[method](x, attrs)
  local loss = net:Sum(net:Mul { y, net:const(neap.tensor(dy, "f64")) })
  local g = net:gradient(loss, { wrt = { x } })[x]
  net:outputs { g }
  local ws <close> = neap.workspace { store = false }
  ws:init(net)
  ws:feed("x", neap.tensor(values, "f64"))
  ws:run(net)
  return ws:fetch(g):clone()
end

local dtypes = { "f32", "f64", "bf16", "f16", "i8", "i16", "i32", "i64" }

describe("a running sum", function()
  it("counts its element or not, from either end, along any dimension", function()
    for _, dtype in ipairs(dtypes) do
      local x = neap.tensor({ 1, 2, 3, 4, 5, 6 }, dtype)
      same({ 1, 3, 6, 10, 15, 21 }, x:cum_sum())
      same({ 0, 1, 3, 6, 10, 15 }, x:cum_sum { exclusive = true })
      same({ 21, 20, 18, 15, 11, 6 }, x:cum_sum { reverse = true })
      same({ 20, 18, 15, 11, 6, 0 }, x:cum_sum { exclusive = true, reverse = true })
      local m = x:reshape(2, 3)
      same({ 1, 2, 3, 5, 7, 9 }, m:cum_sum { axis = 1 })
      same({ 1, 3, 6, 4, 9, 15 }, m:cum_sum { axis = -1 })
      same({ 5, 7, 9, 4, 5, 6 }, m:cum_sum { axis = -2, reverse = true })
    end
  end)

  it("wraps around in integers, and is a single number of one", function()
    same({ 100, -56, 44 }, neap.tensor({ 100, 100, 100 }, "i8"):cum_sum())
    same({ 200, 144 }, neap.tensor({ 200, 200 }, "u8"):cum_sum())
    same({ 7 }, neap.tensor({ 7 }):sum():cum_sum())
    same({ 0 }, neap.tensor({ 7 }):sum():cum_sum { exclusive = true })
    assert.has_error(function() neap.ones { 2, 3 }:cum_sum { axis = 3 } end)
    assert.are.same({ 0, 3 }, neap.zeros({ 0, 3 }):cum_sum({ axis = 1 }).shape)
  end)

  it("lets a NaN and an infinity through to all that follow", function()
    same({ 1, nan, nan }, neap.tensor { 1, nan, 2 }:cum_sum())
    same({ 1, inf, nan }, neap.tensor { 1, inf, -inf }:cum_sum())
    same({ 0, nan, nan }, neap.tensor { 0, inf, 2 }:cum_prod())
  end)

  it("has the same bits whatever the number of threads", function()
    neap.seed(3)
    for _, shape in ipairs { { 70000 }, { 300, 200 }, { 7, 50, 130 } } do
      local x = neap.randn(shape)
      for _, method in ipairs { "cum_sum", "log_cum_sum_exp" } do
        local lists = {}
        for k, threads in ipairs { 1, 4 } do
          local net = neap.net "threads"
          local given = net:input("x", shape)
          net:outputs { given[method](given, { axis = #shape > 1 and 2 or 1 }) }
          local ws <close> = neap.workspace { store = false }
          ws:feed("x", x)
          local program <close> = ws:compile(net, { threads = threads })
          program:run()
          lists[k] = ws:fetch(net:outputs()[1]):reshape(-1):totable()
        end
        assert.are.same(lists[1], lists[2])
      end
    end
  end)
end)

describe("a running product", function()
  it("counts its element or not, from either end", function()
    for _, dtype in ipairs { "f32", "f64", "bf16", "f16", "i16", "i32", "i64" } do
      local x = neap.tensor({ 1, 2, 3, 4 }, dtype)
      same({ 1, 2, 6, 24 }, x:cum_prod())
      same({ 1, 1, 2, 6 }, x:cum_prod { exclusive = true })
      same({ 24, 24, 12, 4 }, x:cum_prod { reverse = true })
      same({ 24, 12, 4, 1 }, x:cum_prod { exclusive = true, reverse = true })
    end
  end)

  it("has a gradient where elements are 0", function()
    -- of 2, 0, 3, 4: the products are 2, 0, 0, 0; without the zero 2, 2, 6, 24
    same({ 1, 2 * 10 + 6 * 100 + 24 * 1000, 0, 0 },
      gradient({ 2, 0, 3, 4 }, "cum_prod", {}, { 1, 10, 100, 1000 }))
    same({ 1, 20, 0, 0 }, gradient({ 2, 0, 0, 4 }, "cum_prod", {}, { 1, 10, 100, 1000 }))
    same({ 0, 0, 4, 100 },
      gradient({ 5, 0, 0, 4 }, "cum_prod", { exclusive = true, reverse = true }, { 1, 1, 100, 0 }))
  end)
end)

describe("a running extreme", function()
  it("gives the last of equals, and a NaN from there on", function()
    for _, dtype in ipairs(dtypes) do
      local y, at = neap.tensor({ 1, 3, 3, 2, 7, 0 }, dtype):cum_max()
      same({ 1, 3, 3, 3, 7, 7 }, y)
      assert.are.same({ 0, 1, 2, 2, 4, 4 }, at:totable())
      y, at = neap.tensor({ 4, 3, 3, 5, 0, 0 }, dtype):cum_min()
      same({ 4, 3, 3, 3, 0, 0 }, y)
      assert.are.same({ 0, 1, 2, 2, 4, 5 }, at:totable())
    end
    for _, method in ipairs { "cum_max", "cum_min" } do
      local x = neap.tensor { -inf, nan, 5, nan, inf }
      local y, at = x[method](x)
      same({ -inf, nan, nan, nan, nan }, y)
      assert.are.same({ 0, 1, 1, 3, 3 }, at:totable())
    end
  end)

  it("is taken along any dimension", function()
    local y, at = neap.tensor { { 1, 5, 2 }, { 4, 3, 9 } }:cum_max { axis = 1 }
    same({ 1, 5, 2, 4, 5, 9 }, y)
    assert.are.same({ { 0, 0, 0 }, { 1, 0, 1 } }, at:totable())
  end)
end)

describe("a running logarithm of sums", function()
  it("does not overflow, and knows infinities", function()
    same({ 1000, 1000 + math.log(2), 2000 }, neap.tensor({ 1000, 1000, 2000 }, "f64")
      :log_cum_sum_exp(), 1e-12)
    same({ -inf, -inf, 1, inf, inf }, neap.tensor { -inf, -inf, 1, inf, 2 }:log_cum_sum_exp())
    same({ 0, nan, nan }, neap.tensor { 0, nan, 1 }:log_cum_sum_exp())
  end)

  it("has a gradient of 0 at -infinity and far below, and none that overflows", function()
    same({ 0, 0, 0, 1 }, gradient({ -inf, -inf, -2000, 3 }, "log_cum_sum_exp", {}, { 1, 1, 0, 1 }),
      1e-12)
    same({ 1.5, 0.5 }, gradient({ 1e4, 1e4 }, "log_cum_sum_exp", {}, { 1, 1 }), 1e-12)
  end)
end)

describe("a linear recurrence", function()
  it("is a loop, by the factor that enters or leaves, or one late", function()
    local a, b = neap.tensor({ 9, 2, 3, 4 }, "f64"), neap.tensor({ 1, 1, 1, 1 }, "f64")
    same({ 1, 3, 10, 41 }, neap.linear_recurrence(a, b))
    same({ 1, 10, 21, 64 }, neap.linear_recurrence(a, b, { by = "leaving" }))
    same({ 0, 1, 3, 10 }, neap.linear_recurrence(a, b, { by = "before" }))
    -- from the end: 1, 3 + 1, 2 * 4 + 1, 9 * 9 + 1
    same({ 82, 9, 4, 1 }, neap.linear_recurrence(a, b, { reverse = true }))
    same({ 9, 4, 1, 0 }, neap.linear_recurrence(a, b, { reverse = true, by = "before" }))
  end)

  it("refuses inputs of two shapes", function()
    assert.has_error(function() neap.linear_recurrence(neap.ones(3), neap.ones(4)) end)
  end)
end)
