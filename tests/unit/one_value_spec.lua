-- One name, one value: what a net has written, freed or left transient is what fetch and the next
-- net see, or an error says what has happened to it. An older value never comes back.
local neap = require "neap"
local raises = require("support").raises

local x = neap.tensor { 1, 2, 3, 4 }
local squared, raised = { 1, 4, 9, 16 }, { 2, 3, 4, 5 }

local function net(name, build)
  local n = neap.net(name)
  build(n)
  return n
end
--- Stores h = x + 1.
local stores = net("stores", function(n)
  n:input("x", { 4 })
  n:Add({ "x", 1 }, "h")
  n:outputs "h"
end)
--- h = x * x on the way to a sum.
local passes = net("passes",
  function(n) n:input("x", { 4 }) n:Mul({ "x", "x" }, "h") n:Sum("h", "s") n:outputs "s" end)
--- The same, of another shape.
local other = net("other", function(n)
  n:input("x", { 4 })
  n:Reshape(n:Mul { "x", "x" }, "h", { shape = { 2, 2 } })
  n:Sum("h", "s")
  n:outputs "s"
end)
local frees = net("frees", function(n)
  n:input("x", { 4 })
  n:Mul({ "x", "x" }, "h")
  n:Sum("h", "s")
  n:Free "h"
  n:outputs "s"
end)
local reads = net("reads", function(n) n:input("h", { 4 }) n:Copy("h", "o") n:outputs "o" end)
local uses_arena = net("uses_arena", function(n)
  n:input("x", { 4 })
  n:Sum({ n:Mul { n:Exp "x", n:Sqrt "x" } }, "t")
  n:outputs "t"
end)

--- Every transient value has bytes of its own, and stays until another net runs.
local apart = { policy = "none", in_place = false, fuse = false }

local function list(t) return t:totable() end

describe("a name that one net stores and another one writes in passing", function()
  local ws
  before_each(function()
    ws = neap.workspace { seed = 1 }
    ws:run(stores, { x = x })
    assert.are.same(raised, list(ws:fetch "h"))
  end)
  after_each(function() ws:close() end)

  it("means the newest value, to fetch and to the next net", function()
    ws:run(passes, { x = x }, apart)
    assert.are.same(squared, list(ws:fetch "h"))
    assert.are.same(squared, list(ws:run(reads).o))
    assert.are.same(squared, list(ws:fetch "h"))
    ws:run(uses_arena, { x = x }, apart)
    assert.are.same(squared, list(ws:fetch "h")) -- the net that read it has given it bytes
  end)

  it("is an error that names net, op and line once the value is gone", function()
    ws:run(passes, { x = x }, apart)
    ws:run(uses_arena, { x = x }, apart)
    for _, f in ipairs {
      function() return ws:fetch "h" end, function() return ws:view "h" end,
      function() return ws:run(reads) end,
    } do
      local err = raises(
        { "\"passes\" has written it since", "Mul \"mul_1\"", "one_value_spec.lua:" }, f)
      assert.are.equal("released", err.code)
      assert.are.equal("h", err.blob)
    end
    ws:feed("h", x)
    assert.are.same(list(x), list(ws:run(reads).o))
    ws:run(stores, { x = x })
    assert.are.same(raised, list(ws:run(reads).o))
  end)

  it("is so in each policy and executor", function()
    for _, memory in ipairs {
      {}, { fuse = false }, { policy = "pool" }, { policy = "name" }, { executor = "dag" },
    } do
      ws:run(stores, { x = x })
      ws:run(passes, { x = x }, memory)
      for _, f in ipairs {
        function() return ws:fetch "h" end, function() return ws:run(reads).o end,
      } do
        local ok, got = pcall(f)
        if ok then
          assert.are.same(squared, list(got))
        else
          assert.are.equal("released", got.code)
        end
      end
    end
  end)

  it("keeps its value where the net that writes it is told to", function()
    ws:run(passes, { x = x }, { keep = "h" })
    ws:run(uses_arena, { x = x })
    assert.are.same(squared, list(ws:fetch "h"))
    assert.are.same(squared, list(ws:run(reads).o))
  end)

  it("may come with another shape", function()
    ws:run(other, { x = x }, apart)
    assert.are.same({ { 1, 4 }, { 9, 16 } }, list(ws:fetch "h"))
    raises("expects f32 (4), got f32 (2,2)", function() ws:run(reads) end)
  end)

  it("is as before after a run that failed", function()
    local fails = net("fails", function(n)
      n:input("x", { 4 })
      n:input("at", {}, "i64")
      n:Mul({ "x", "x" }, "h")
      n:Embedding({ "at", n:Reshape("h", nil, { shape = { 4, 1 } }) }, "row")
      n:outputs "row"
    end)
    raises("out of range", function() ws:run(fails, { x = x, at = neap.tensor(9, "i64") }) end)
    assert.are.same(raised, list(ws:fetch "h"))
    assert.are.same(raised, list(ws:run(reads).o))
  end)

  it("is the newest in a child that falls through, and for the parent", function()
    local child <close> = ws:child {}
    child:run(passes, { x = x }, apart)
    assert.are.same(squared, list(child:fetch "h"))
    raises("\"passes\" has written it since", function() return ws:fetch "h" end)
    raises("\"passes\" has written it since", function() return ws:run(reads) end)
    assert.are.same(squared, list(child:run(reads).o))
    assert.are.same(squared, list(ws:fetch "h"))
  end)

  it("is the parent's newest, seen from a child", function()
    local child <close> = ws:child {}
    ws:run(passes, { x = x }, apart)
    assert.are.same(squared, list(child:fetch "h"))
    ws:run(uses_arena, { x = x }, apart)
    raises("\"passes\" has written it since", function() return child:fetch "h" end)
  end)

  it("is written where a forwarded name leads", function()
    ws:feed("g", x)
    local child <close> = ws:child { forward = { h = "g", x = "x" } }
    child:run(passes, { x = x })
    child:run(uses_arena, { x = x })
    assert.are.same(squared, list(ws:fetch "g"))
    assert.are.same(raised, list(ws:fetch "h"))
    child:run(frees, { x = x })
    raises("has freed it", function() return ws:fetch "g" end)
    raises("has freed it", function() return child:fetch "h" end)
  end)

  it("is another blob where a child has its own", function()
    local child <close> = ws:child {}
    child:create_local "h"
    child:feed("h", x)
    child:run(passes, { x = x }, apart)
    child:run(uses_arena, { x = x }, apart)
    raises("\"passes\" has written it since", function() return child:fetch "h" end)
    assert.are.same(raised, list(ws:fetch "h"))
  end)
end)

describe("a name that a net frees", function()
  it("has no value, whatever was fed before", function()
    local ws <close> = neap.workspace { seed = 1 }
    ws:feed("h", x)
    ws:run(frees, { x = x })
    local err = raises({ "\"frees\" has freed it", "Free \"free_1\"", "one_value_spec.lua:" },
      function() return ws:fetch "h" end)
    assert.are.equal("released", err.code)
    raises("\"frees\" has freed it", function() return ws:run(reads) end)
    ws:feed("h", x)
    assert.are.same(list(x), list(ws:run(reads).o))
  end)
end)

describe("an input that its net writes by name", function()
  local over = net("over",
    function(n) n:input("x", { 4 }) n:Relu("x", "x") n:Sum("x", "s") n:outputs "s" end)
  it("becomes what the net made of it, for the next run and for other nets", function()
    local ws <close> = neap.workspace { seed = 1 }
    local reads_x = net("reads_x", function(n)
      n:input("x", { 4 })
      n:Copy("x", "o")
      n:outputs "o"
    end)
    local program = ws:compile(over, apart)
    ws:feed("x", neap.tensor { -1, 2, -3, 4 })
    for _ = 1, 2 do
      program:run()
      assert.are.equal(6, ws:fetch("s"):item())
      assert.are.same({ 0, 2, 0, 4 }, list(ws:fetch "x"))
    end
    assert.are.same({ 0, 2, 0, 4 }, list(ws:run(reads_x).o))
    assert.are.same({ 0, 2, 0, 4 }, list(ws:fetch "x"))
  end)

  it("is one of several: each goes on from what the run before made of it", function()
    local ws <close> = neap.workspace { seed = 1 }
    local both = net("both", function(n)
      n:input("x", { 4 })
      n:input("y", { 4 })
      n:Add({ "x", 1 }, "x")
      n:Add({ "y", "x" }, "y")
      n:Sum("y", "s")
      n:outputs "s"
    end)
    ws:feed("x", x)
    ws:feed("y", x)
    local program = ws:compile(both, apart)
    local sum_x, sum_y = x:sum():item(), x:sum():item()
    for k = 1, 3 do
      program:run()
      sum_x = sum_x + 4
      sum_y = sum_y + sum_x
      assert.are.equal(sum_y, ws:fetch("s"):item())
      assert.is_true((x + k):equal(ws:fetch "x"))
    end
  end)
end)

describe("a name that a net writes and nothing reads", function()
  local cases = {
    ["by an op that is left out"] = function(n) n:Relu(n:Mul({ "x", 2 }, "h"), "w") end,
    ["twice"] = function(n) n:Mul({ "x", 2 }, "h") n:Mul({ "x", 3 }, "h") end,
    ["in both branches"] = function(n)
      n:If(n:const(true), function(b) b:Mul({ "x", 2 }, "h") end,
        function(b) b:Mul({ "x", 3 }, "h") end)
    end,
  }
  for what, write in pairs(cases) do
    it(what .. ", no longer means what an earlier net has stored", function()
      local writes = net("writes", function(n)
        n:input("x", { 4 })
        write(n)
        n:Neg("x", "y")
        n:outputs "y"
      end)
      for _, memory in ipairs { {}, apart } do
        local ws <close> = neap.workspace { seed = 1 }
        ws:run(stores, { x = x })
        ws:run(writes, { x = x }, memory)
        raises("\"writes\" has written it since", function() return ws:fetch "h" end)
        raises("\"writes\" has written it since", function() return ws:run(reads) end)
        raises("nothing reads it, so that it is not computed", function()
          return neap.workspace {}:compile(writes, memory).plan:explain "h"
        end)
        ws:run(stores, { x = x })
        assert.are.same(raised, list(ws:fetch "h"))
      end
    end)
  end
end)

describe("a blob that is removed or renamed", function()
  local counts = net("counts", function(n)
    n:declare("m", "state", { 2 }, "f32", { op = "Constant", value = 0 })
    n:Add({ "m", 1 }, "m")
    n:Mul({ "m", 2 }, "y")
    n:outputs "y"
  end)

  it("has no value under its old name, and the next run makes it anew", function()
    for _, how in ipairs {
      function(ws, name) ws:remove(name) end, function(ws, name) ws:rename(name, "other") end,
    } do
      for _, name in ipairs { "m", "y" } do
        local ws <close> = neap.workspace { seed = 1 }
        ws:run(counts)
        local program = ws:compile(counts)
        program:run()
        how(ws, name)
        assert.is_false(ws:has(name))
        for _, look in ipairs { "fetch", "view" } do
          raises("has been removed from the workspace", ws[look], ws, name)
        end
        raises("has been removed from the workspace", program.run, program)
        local m = name == "m" and 1 or 3
        assert.are.same({ 2 * m, 2 * m }, list(ws:run(counts).y))
        assert.are.same({ m, m }, list(ws:fetch "m"))
      end
    end
  end)
end)
