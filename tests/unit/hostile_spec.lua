-- Lua code that reaches into C's work: each script of tests/hostile in a process of its own, since what it must not do is end it.
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
      local out, code = support.shell(("NEAP_DB=off timeout 120 %s run %s%s.lua 2>&1"):format(support.program, folder, name))
      assert.are.equal("held\n", out)
      assert.are.equal(0, code)
    end)
  end
end)
