--- Numbers that a script writes into an integer tensor, or into a net, are there afterwards, or are
-- refused. Whole tensors are rounded and saturate, as x:to and Cast say.
local neap = require "neap"
local support = require "support"
local raises = support.raises

local nan, inf, large = 0 / 0, math.huge, (1 << 53) + 1

local ranges = {
  i8 = { -128, 127 }, u8 = { 0, 255 }, i16 = { -32768, 32767 }, u16 = { 0, 65535 },
  i32 = { -(1 << 31), (1 << 31) - 1 }, i64 = { math.mininteger, math.maxinteger },
}

--- Ways to write one number x into a tensor t of two rows.
local writes = {
  fill = function(t, x) t:fill_(x) end,
  ["one element"] = function(t, x) t[{ 1, 2 }] = x end,
  ["a row"] = function(t, x) t[1] = x end,
  ["a range"] = function(t, x) t[{ {}, { 1, 2 } }] = x end,
  ["a row of a table"] = function(t, x) t[1] = { x, 0 } end,
  ["a mask"] = function(t, x) t[neap.tensor({ { 1, 0 }, { 0, 0 } }, "bool")] = x end,
}

describe("a number that a script writes", function()
  it("is refused where an integer dtype does not hold it, and nothing is lost", function()
    for dtype, range in pairs(ranges) do
      local says = ("which holds whole numbers from %d to %d"):format(range[1], range[2])
      for what, write in pairs(writes) do
        local t = neap.full { 2, 2, value = 7, dtype = dtype }
        for _, x in ipairs { nan, inf, -inf, 1e300, -1e300, 0.5 } do
          raises({ ("%s is no %s"):format(x, dtype), says }, write, t, x)
        end
        if dtype ~= "i64" then
          raises({ says }, write, t, range[1] - 1)
          raises({ says }, write, t, range[2] + 1)
        end
        assert.are.same({ 7, 7, 7, 7 }, t:reshape(-1):totable(), what)
        for _, x in ipairs(range) do
          write(t, x)
          local max = t:reshape(-1):totable()
          assert.is_true(max[1] == x or max[2] == x, what .. " of " .. dtype)
        end
      end
      raises({ says }, neap.full, { 2, value = nan, dtype = dtype })
      raises({ says }, neap.like, neap.zeros { 2, dtype = dtype }, 1e300)
    end
  end)

  it("may be any in a float, which rounds, and a bool, which asks whether it is 0", function()
    assert.are.equal(inf, neap.zeros(1):fill_(1e300)[1])
    assert.is_true(neap.zeros { 1, dtype = "bool" }:fill_(2)[1])
  end)

  it("beyond an integer's range is not what a range of numbers gives", function()
    assert.are.same({ 253, 254, 255 }, neap.arange(253, 256, 1, "u8"):totable())
    raises({ "256.0 is no u8" }, neap.arange, 253, 257, 1, "u8")
    raises({ "-1.0 is no u8" }, neap.linspace, -1, 1, 3, "u8")
  end)

  it("is kept whole in an i64, beyond 2^53 too", function()
    assert.are.equal(large, neap.full { 1, value = large, dtype = "i64" }[1])
    assert.are.equal(large, neap.zeros { 1, dtype = "i64" }:fill_(large)[1])
  end)
end)

describe("a whole tensor", function()
  it("is rounded and saturates, and NaN is 0, by copy_, x:to and Cast alike", function()
    local x = neap.tensor { nan, inf, -inf, 1e10, 2.5, -3 }
    local want = { 0, 255, 0, 255, 2, 0 }
    assert.are.same(want, x:to("u8"):totable())
    assert.are.same(want, neap.zeros { 6, dtype = "u8" }:copy_(x):totable())
    assert.are.same(want, neap.cast(x, { to = "u8" }):totable())
  end)
end)

describe("a number in a net", function()
  local net = neap.net "n"
  local x = net:input("x", { 2 }, "i64")

  it("is refused where 53 bits do not hold it", function()
    raises({ "53 bits", "9007199254740993" }, function() return x + large end)
    raises({ "53 bits" }, net.const, net, large, "i64")
    raises({ "53 bits" }, net.const, net, neap.full { 2, value = large, dtype = "i64" })
    raises({ "53 bits" }, net.Constant, net, {}, "c",
      { shape = { 2 }, value = large, dtype = "i64" })
    raises({ "53 bits" }, net.Pad, net, x, "p", { pads = { 1, 0 }, value = large })
    raises({ "53 bits" }, neap.net_from,
      "net n\nc = Constant() { shape = {2}, value = 9007199254740993, dtype = i64 }\noutputs c\n")
  end)

  it("is refused where its dtype does not hold it", function()
    raises({ "300 is no u8", "from 0 to 255" }, net.Constant, net, {}, "c",
      { shape = { 2 }, value = 300, dtype = "u8" })
    raises({ "nan is no i64" }, net.Constant, net, {}, "c",
      { shape = { 2 }, value = nan, dtype = "i64" })
    raises({ "0.5 is no i64" }, net.Literal, net, {}, "c",
      { shape = { 2 }, values = { 1, 0.5 }, dtype = "i64" })
    raises({ "0.5 is no i64" }, net.Pad, net, x, "p", { pads = { 1, 0 }, value = 0.5 })
  end)
end)
