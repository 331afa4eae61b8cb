-- net:const: tensors and numbers of fixed values, in nets, bodies and workspaces.
local neap = require "neap"
local raises = require("support").raises

describe("net:const", function()
  it("takes tensors of any size, which the text carries", function()
    local net, big = neap.net "f", neap.randn(40, 50)
    local x = net:input("x", { 40, 50 })
    net:outputs {
      x + net:const(big), net:const(neap.tensor({ 1, 2, 3 }, "i64")), net:const(neap.zeros(0, 2)),
      (net:const { true, false }),
    }
    local again = neap.net_from(net:text())
    local out = neap.workspace({ store = false }):run(again, { x = neap.ones(40, 50) })
    local names = again:outputs()
    assert.is_true(out[names[1]]:close(big + 1))
    assert.are.same({ 1, 2, 3 }, out[names[2]]:totable())
    assert.are.same({ 0, 2 }, out[names[3]].shape)
    assert.are.same({ true, false }, out[names[4]]:totable())
  end)

  it("gives other values another blob, in one workspace and in branches", function()
    local ws <close> = neap.workspace { store = false }
    local function doubled(values)
      local net = neap.net "f"
      local y = net:If(net:input("c", {}), function(b) return b:const(neap.tensor(values)) * 2 end,
        function(b) return b:const(neap.tensor(values)) * 3 end)
      net:outputs { y }
      return ws:run(net, { c = 1 })[y.name]:totable()
    end
    assert.are.same({ 2, 4 }, doubled { 1, 2 })
    assert.are.same({ 10, 12 }, doubled { 5, 6 })
    raises("53 bits", function()
      return neap.net("f"):const(neap.tensor({ (1 << 60) + 1, 2 }, "i64"))
    end)
  end)

  it("tells values apart that differ in a few upper bits of their last word", function()
    for _, dtype in ipairs { "f64", "f32", "f16", "i64", "i32" } do
      local net, names, n = neap.net "f", {}, 0
      local function add(values)
        local name = net:const(neap.tensor(values, dtype)).name
        assert.is_nil(names[name], dtype)
        names[name], n = values, n + 1
      end

      -- Whole numbers of f64 are told by bits that a product of 128 bits soon loses; signs are the
      -- uppermost bits of all.
      for i = 1, 300 do add(i) end
      for i = 1, 300 do add { 1, i } end
      for _, v in ipairs { { 1, 2, 3, 4 }, { 1, -2, 3, -4 }, { 1, -2, 3, 4 }, { 1, 2, 3, -4 },
        { -1, 2, -3, 4 } } do add(v) end
      assert.are.equal(605, n)
    end
  end)
end)

describe("a number of net:const", function()
  local function result(net, x)
    net:outputs { "y" }
    local ws <close> = neap.workspace { store = false }
    ws:run(net, { x = neap.tensor(x) })
    return ws:fetch("y"):item()
  end

  it("is made anew where an op has written or freed what there was", function()
    local net = neap.net "s"
    net:input("x", {})
    local sum = net:const(0)
    for _ = 1, 3 do net:Add({ sum, "x" }, sum) end
    net:Copy(net:Maximum { "x", net:const(0) }, "y")
    assert.are.equal(0, result(net, -10.0))

    local freed = neap.net "f"
    freed:input("x", {})
    local c = freed:const(2)
    freed:Mul({ "x", c }, "h")
    freed:Free { c }
    freed:Mul({ "h", freed:const(2) }, "y")
    assert.are.equal(12, result(freed, 3.0))
  end)

  it("is made anew where a body has written that of the net around it", function()
    local net = neap.net "b"
    net:input("x", {})
    local count = net:const(0)
    net:If(net:const(true), function(b) b:Add({ count, b:const(1) }, count) end)
    net:Add({ "x", net:const(0) }, "y")
    assert.are.equal(5, result(net, 5.0))
  end)

  it("is shared while nobody writes it", function()
    local net = neap.net "same"
    assert.are.equal(net:const(3).name, net:const(3).name)
  end)
end)

describe("a tensor of net:const", function()
  local function written(line, build)
    local net = neap.net "w"
    net:input("x", { 3 })
    net:input("yes", {})
    local c = net:const(neap.tensor { 1, 2, 3 })
    local before = net:text()
    local err = select(2, pcall(build, net, c))
    assert.are.equal(before, net:text())
    assert.are.equal(c.name, err.blob)
    assert.are.equal("constants_spec.lua:" .. line, err.line)
    local says = ('constant "%s" (constants_spec.lua:'):format(c.name)
    assert.is_truthy(err.message:find(says, 1, true))
    assert.is_truthy(err.message:find "is written by output")
    assert.is_truthy(err.hint:find "declare a state")
  end
  local function here() return debug.getinfo(2, "l").currentline end

  it("is written by no op: in place, by name, from a body or as a gradient", function()
    written(here(), function(net, c) net:Add({ c, "x" }, c) end)
    written(here(), function(net, c) net:Relu("x", c) end)
    written(here(), function(net, c) net:op("RunningAverage", { c, "x" }, { c }) end)
    written(here(), function(net, c) net:If("yes", function(b) b:Relu("x", c) end) end)
    written(here(), function(net, c) net:op("Gradient", { "yes", "x" }, { c }) end)
  end)

  it("is written by no op of a text or of a copy with other names", function()
    local net = neap.net "t"
    net:input("x", { 3 })
    local c = net:const(neap.tensor { 1, 2, 3 })
    net:Relu("x", "y")
    assert.are.equal("graph", select(2, pcall(net.rename, net, { y = c.name })).code)
    raises("is written by output", function()
      return neap.net_from(net:text() .. c.name .. " = Relu(x)\n")
    end)
  end)

  it("leaves a state that begins with numbers to be written", function()
    local net = neap.net "s"
    net:input("x", { 2 })
    net:declare("m", "state", { 2 }, "f32", { op = "Literal", values = { 1, 2 } })
    net:Add({ "m", "x" }, "m")
    local ws <close> = neap.workspace { store = false }
    for _ = 1, 2 do ws:run(net, { x = neap.ones(2) }) end
    assert.are.same({ 3, 4 }, ws:fetch("m"):totable())
  end)
end)
