-- Lua code that reaches into C's work: each script of tests/hostile in a process of its own, since
-- what it must not do is end it.
local support = require "support"

local folder = "tests/hostile/"
local scripts = {
  ["reads tables raw, whatever their metamethods do"] = "tables",
  ["puts any metatable, user value or upvalue on any handle"] = "metatables",
  ["yields, raises and comes back at any call of a user's function"] = "coroutines",
}

describe("hostile Lua code", function()
  for what, name in pairs(scripts) do
    it(what, function()
      local out, code = support.shell(
        ("NEAP_DB=off timeout 120 %s run %s%s.lua 2>&1"):format(support.program, folder, name))
      assert.are.equal("held\n", out)
      assert.are.equal(0, code)
    end)
  end

  it("promises lists a length that has no end, and is not believed", function()
    local neap = require "neap"
    local function endless(list)
      return setmetatable(list, { __len = function() return math.maxinteger end })
    end
    local x = neap.tensor { 1, 2 }
    assert.are.same({ 1, 2, 1, 2 }, neap.concat(endless { x, x }, 1):totable())
    local ws, net = neap.workspace { seed = 1 }, neap.net "kept"
    net:Relu(net:input("x", { 2 }), "y")
    net:Neg("y", "z")
    ws:keep "y"
    ws:feed("x", x)
    ws:run(net, nil, { keep = endless { "y" } })
    assert.are.same({ 1, 2 }, ws:fetch("y"):totable())
    local plan = net:plan { keep = endless { "y" } }
    assert.is_truthy(tostring(plan:explain "z"):find("z", 1, true))
  end)

  it("is collected at Lua's own pace, however often finalisers are held back", function()
    local net, collected = require("neap").net "n", false
    local x = net:input("x", { 2 })
    collectgarbage()
    local pause = collectgarbage("setpause", 1000)
    collectgarbage()
    setmetatable({}, { __gc = function() collected = true end })
    -- each holds them back while it is added, and allocates a few hundred bytes
    for _ = 1, 1000 do net:Relu(x, "y") end
    collectgarbage("setpause", pause)
    assert.is_false(collected)
    collectgarbage()
    assert.is_true(collected)
  end)

  it("ends marks that were never made, and loses nothing", function()
    local net = neap.net "f"
    net:input("x", { 2 })
    for _, mark in ipairs { -5, 0, 7 } do net:_end_mark(mark, false) end
    net:_mark()
    net:Relu("x", "y")
    net:_end_mark(-9, false)
    assert.are.equal(0, #net:ops())
    net:Relu("x", "y")
    assert.are.equal(1, #net:ops())
  end)
end)
