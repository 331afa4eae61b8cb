-- Bernoulli, Multinomial, RandPerm, RandInt, TruncatedNormal: what is drawn, how often, by which
-- seed, and what is refused.
local neap = require "neap"

local function raises(said, f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok, said)
  assert.is_truthy(tostring(err):find(said, 1, true), tostring(err))
end

--- Shares of 0 .. n - 1 among elements.
local function shares(t, n)
  local count, list = {}, t:reshape(-1):totable()
  for c = 0, n - 1 do count[c] = 0 end
  for _, c in ipairs(list) do count[c] = count[c] + 1 / #list end
  return count
end

local function near(want, got, least)
  assert.is_true(math.abs(want - got) < least, ("%g, got %g"):format(want, got))
end

describe("random draws", function()
  it("have the shares that they should have", function()
    neap.seed(5)
    near(0.3, (neap.zeros(20000) + 0.3):bernoulli():mean():item(), 0.02)
    assert.are.same({ 0, 1 }, neap.tensor({ 0, 1 }):bernoulli():totable())
    local w = neap.tensor { { 1, 0, 3 }, { 2, 2, 0 } }
    local y = w:multinomial { count = 20000, replacement = true }
    local first, second = shares(y:select(1, 1), 3), shares(y:select(1, 2), 3)
    near(0.25, first[0], 0.02)
    near(0.5, second[1], 0.02)
    assert.are.equal(0, first[1] + second[2])
    local ints = neap.rand_int { shape = { 20000 }, low = 0, high = 5 }
    for _, share in pairs(shares(ints, 5)) do near(0.2, share, 0.02) end
  end)

  it("draw each class once, the heavy ones first", function()
    neap.seed(6)
    local y = neap.ones(4000, 3) * neap.tensor { 1, 2, 5 }
    y = y:multinomial { count = 3 }
    near(5 / 8, shares(y:narrow(2, 1, 1), 3)[2], 0.03)
    for _, row in ipairs(y:narrow(1, 1, 50):totable()) do
      table.sort(row)
      assert.are.same({ 0, 1, 2 }, row)
    end
  end)

  it("put numbers into order at random", function()
    neap.seed(7)
    local y, seen = neap.rand_perm { n = 1000 }:totable(), {}
    for _, i in ipairs(y) do seen[i] = true end
    for i = 0, 999 do assert.is_true(seen[i]) end
    local count = {}
    for _ = 1, 600 do
      local key = table.concat(neap.rand_perm({ n = 3 }):totable())
      count[key] = (count[key] or 0) + 1
    end
    for _, order in ipairs { "012", "021", "102", "120", "201", "210" } do
      near(100, count[order], 45)
    end
  end)

  it("cut a normal distribution off", function()
    neap.seed(8)
    local y = neap.truncated_normal { shape = { 20000 } }
    assert.is_true(y:max():item() <= 2 and y:min():item() >= -2)
    near(0, y:mean():item(), 0.03)
    near(0.8796, y:std():item(), 0.02) -- of a unit normal between -2 and 2
    local tail = neap.truncated_normal { shape = { 1000 }, low = 6, high = 9, dtype = "f64" }
    assert.is_true(tail:min():item() >= 6 and tail:max():item() < 9)
    near(6.1585, tail:mean():item(), 0.03)
  end)

  it("are the same by one seed, on any number of threads", function()
    local net = neap.net "draws"
    net:outputs {
      (net:Bernoulli(net:const(neap.zeros(70000) + 0.5))),
      (net:Multinomial(net:const(neap.ones(9, 50)), nil, { count = 20 })),
      (net:Multinomial(net:const(neap.ones(9, 50)), nil, { count = 20, replacement = true })),
      (net:RandPerm({}, nil, { n = 100 })),
      (net:RandInt({}, nil, { shape = { 70000 }, high = 1000 })),
      (net:TruncatedNormal({}, nil, { shape = { 70000 } })),
    }
    local first
    for _, threads in ipairs { 1, 2, 4 } do
      local ws <close> = neap.workspace { store = false, seed = 3, threads = threads }
      ws:init(net)
      ws:run(net)
      local bits = {}
      for i, name in ipairs(net:outputs()) do bits[i] = ws:fetch(name):hash() end
      first = first or bits
      assert.are.same(first, bits)
    end
  end)

  it("refuse what can't be drawn", function()
    raises("p = 1.5 at element 2", neap.bernoulli, neap.tensor { 0, 1.5 })
    raises("weight -1 of class 1 in row 1", neap.multinomial, neap.tensor { 1, -1 })
    raises("too few for 3 draws", neap.multinomial, neap.ones(2), { count = 3 })
    raises("row 1 has 1 classes with a weight", neap.multinomial, neap.tensor { 1, 0 },
      { count = 2 })
    raises("row 1 has 0 classes with a weight", neap.multinomial, neap.zeros(2),
      { replacement = true })
    raises("low = 3 expects to be below high = 3", neap.rand_int,
      { shape = { 1 }, low = 3, high = 3 })
    raises("is no u8", neap.rand_int, { shape = { 1 }, high = 257, dtype = "u8" })
    raises("expect low below high", neap.truncated_normal, { shape = { 1 }, low = 2, high = 1 })
  end)
end)
