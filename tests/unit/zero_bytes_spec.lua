-- A zero byte in a text that C reads: refused wherever one gets in, and never cut there, since half
-- a name may be another name.
local neap = require "neap"

local one = neap.tensor { 1 }

--- A net with input x, whose op makes y.
local function small()
  local net = neap.net "n"
  net:input("x", { 3 })
  net:Relu("x", "y")
  return net
end

local doors = {
  ["a net's name"] = function() neap.net "a\0b" end,
  ["an input"] = function() small():input("x\0y", { 3 }) end,
  ["a parameter"] = function() small():param("p\0q", { 3 }) end,
  ["an output of an op"] = function() small():Relu("x", "y\0z") end,
  ["an input of an op"] = function() small():Relu("x\0z", "z") end,
  ["an op"] = function() small():op("Relu", "x", "z", {}, "o\0n") end,
  ["an op's type"] = function() small():op("Relu\0x", "x", "z") end,
  ["an attribute"] = function() small():Sum("x", "z", { ["axes\0"] = { 1 } }) end,
  ["an attribute's word"] = function() small():Gelu("x", "z", { approximate = "tanh\0" }) end,
  ["an initialiser's field"] = function()
    small():param("p", { 3 }, { op = "Constant", ["value\0"] = 1 })
  end,
  ["a scope"] = function() local net = small() net:scope("s\0t", function() net:Relu "x" end) end,
  ["a kept blob"] = function() small():keep "y\0" end,
  ["an output"] = function() small():outputs { "y\0" } end,
  ["a blob that is asked for"] = function() return small():blob "y\0" end,
  ["a new name"] = function() small():rename { y = "z\0" } end,
  ["an old name"] = function() small():rename { ["y\0"] = "z" } end,
  ["a net's text"] = function() neap.net_from(small():text() .. "\0") end,
  ["an option of plans"] = function() small():plan { ["budget\0"] = 1 } end,
  ["an option's word"] = function() small():plan { policy = "none\0" } end,
  ["a number of bytes"] = function() small():plan { budget = "1MiB\0" } end,
  ["a dtype"] = function() neap.tensor({ 1 }, "f32\0") end,
  ["a field beside sizes"] = function() neap.zeros { 2, ["dtype\0"] = "f64" } end,
  ["a field of a tensor"] = function() return one["shape\0"] end,
  ["a tensor's name"] = function() one.name = "t\0" end,
  ["a path"] = function() neap.save("/tmp/neap\0.npy", one) end,
  ["a path that is read"] = function() neap.load "/dev/null\0.npy" end,
  ["a tensor of a file"] = function() neap.save("/dev/null/x.npz", { ["a\0"] = one }) end,
  ["a text of a file"] = function()
    neap.save("/dev/null/x.npz", { a = one }, { meta = { k = "v\0" } })
  end,
  ["a blob that is fed"] = function() neap.workspace({ store = false }):feed("a\0", one) end,
  ["a blob that is fetched"] = function() neap.workspace({ store = false }):fetch "a\0" end,
  ["a forwarded name"] = function()
    neap.workspace({ store = false }):child { forward = { ["a\0"] = "b" } }
  end,
  ["an input of a run"] = function()
    neap.workspace({ store = false }):run(small(), { ["x\0"] = neap.ones(3) })
  end,
}

describe("a zero byte in a text", function()
  for what, door in pairs(doors) do
    it("is refused in " .. what, function()
      local ok, err = pcall(door)
      assert.is_false(ok)
      err = tostring(err)
      assert.is_truthy(err:find("without zero bytes", 1, true), err)
      assert.is_truthy(err:find("zero_bytes_spec.lua:", 1, true), err)
    end)
  end

  it("is a byte like others in a text that is fed", function()
    local ws <close> = neap.workspace { store = false }
    assert.are.equal("a\0b", ws:feed("s", "a\0b"):fetch "s")
  end)
end)
