-- A call that fails leaves nothing behind: what it was about is as it was, and the next right call does what it would have done.
local neap = require "neap"
local raises = require("support").raises

--- A net with an input and a parameter, the same each time.
local function start()
  local net = neap.net "f"
  net:input("c", {})
  return net, net:input("x", { 2, 3 }), net:param("w", { 4, 3 }, 0.5)
end

--- What can be seen of a net: text, outputs, and how the next names go.
local function seen(net)
  return net:text { lines = false } .. table.concat(net:outputs(), ",") .. net:_version()
end

describe("a net", function()
  --- What fails in a net, each more than one change deep.
  local bad = {
    ["an op of wrong shapes"] = function(net) net:FC({ "x", "w", "w" }, "y") end,
    ["an op of a wrong attribute"] = function(net) net:Softmax("x", "y", { axis = 7 }) end,
    ["a blob method beside a number"] = function(_, x) return x + neap.ones(5) end,
    ["numbers that became constants"] = function(_, x) return neap.where(neap.ones(2, 3):gt(0.25), x, neap.ones(5)) end,
    ["a key of several ops"] = function(_, x) return x[{ 1, 9 }] end,
    ["a position of a dimension that is not there"] = function(_, x) return x:select(3, 1) end,
    ["outputs by number"] = function(net) net:op("Split", { "x" }, 5, { axis = 1 }) end,
    ["an If whose branch fails"] = function(net) net:If("c", function(b) b:Relu("x", "z") end, function(b) b:Relu("none", "z") end) end,
    ["an If whose branches differ"] = function(net)
      net:If("c", function(b) return b:Relu "x" end, function(b) return b:FC { "x", "w" } end)
    end,
    ["a branch of an If in a body"] = function(net)
      net:While { init = { 0 }, cond = function(_, i) return i:lt(3) end, body = function(b, i)
        b:If(i:lt(1), function(c) c:Relu("x", "z") end, function() error "no" end)
        return i + 1
      end }
    end,
    ["a While whose states change shape"] = function(net)
      net:While { init = { "x" }, cond = function(_, x) return x:sum():lt(3) end, body = function(_, x) return x:reshape(3, 2) end }
    end,
    ["a Recurrent without its states"] = function(net)
      net:Recurrent { seq = { "x" }, init = { 0 }, lengths = "w", step = function(_, h, x) return h + x, h end }
    end,
    ["a Do whose body fails"] = function(net)
      net:CreateScope({}, "s")
      net:Do { bindings = { a = "x" }, scope = "s", body = function(d) d:Relu("a", "b") d:Relu("none", "c") end }
    end,
    ["a Gradient of what is no scalar"] = function(net, x) net:gradient(x, { wrt = { "w" } }) end,
    ["a Gradient of what nothing depends on"] = function(net) net:gradient("c", { wrt = { "w" } }) end,
    ["a scope whose function fails"] = function(net) net:scope("a", function() net:Relu("x", "y") net:Relu "none" end) end,
    ["a variable scope whose function fails"] = function(net)
      net:variable_scope("a", {}, function() net:param("p", { 2 }, 0) net:Relu "none" end)
    end,
    ["a declaration of another shape"] = function(net) net:param("w", { 3, 3 }) end,
    ["outputs that are not there"] = function(net) net:outputs { "x", "none" } end,
    ["keeps of which one is not there"] = function(net) net:keep("w", "none") end,
  }

  --- Right uses after it, whose names, ops and outputs must be those of a net that nothing failed in.
  local function go_on(net, x)
    local y = net:FC { "x", "w" }
    local z = net:If((x * 2):sum():gt(1), function(b) return b:Relu(y) end, function(b) return b:Copy(y) end)
    net:While { init = { 0 }, cond = function(_, i) return i:lt(3) end, body = function(_, i) return i + 1 end }
    net:CreateScope({}, "s")
    net:Do { bindings = { a = "x" }, scope = "s", body = function(d) return d:Relu "a" end }
    net:variable_scope("a", {}, function() net:param("p", { 2 }, 0) end)
    net:gradient(z:sum() + x[{ 1, 2 }] + 0.25)
    return net:text { lines = false } .. net:hash() .. table.concat(net:outputs(), ",")
  end

  local names = {}
  for name in pairs(bad) do names[#names + 1] = name end
  table.sort(names)
  local want = go_on(start())
  for _, name in ipairs(names) do
    it("is as it was after " .. name, function()
      local net, x, w = start()
      local before = seen(net)
      for _ = 1, 2 do
        local run = name == "a Do whose body fails" and function() net:scope("in", function() bad[name](net, x, w) end) end or bad[name]
        assert.is_false((pcall(run, net, x, w)))
        assert.are.equal(before, seen(net))
      end
      assert.are.equal(want, go_on(net, x))
    end)
  end

  it("goes back no further than the call that failed", function()
    local net, x = start()
    net:scope("a", function()
      net:Relu("x", "y")
      assert.is_false((pcall(net.If, net, x:sum():gt(1), function(b) b:Relu("a/y", "z") end, function() error "no" end)))
      net:Relu("y", "z")
    end)
    assert.are.equal("a/z", net:outputs()[#net:outputs()])
  end)

  it("refuses ops in a subnet that was given up", function()
    local net, x = start()
    local held
    pcall(net.If, net, x:sum():gt(1), function(b)
      held = b
      b:Relu("x", "z")
      error "no"
    end)
    raises("given up", function() held:Relu("x", "y") end)
    raises("given up", function() held:input("y", { 2 }) end)
    assert.are.equal("branch.then", held:name())
  end)

  it("read from a text is right, or is not made", function()
    raises("can't become", neap.net_from, "net f\ninput x f32 (2,3)\ny = Reshape(x) { shape = {7} }\n")
  end)
end)
