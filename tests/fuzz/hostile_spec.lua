-- Finalisers in the midst of C's work (tests/hostile/storm.lua), in a process of its own.
-- NEAP_FUZZ_SEED and NEAP_FUZZ_ROUNDS are its settings; few rounds unless told otherwise.
local support = require "support"

describe("finalisers", function()
  it("may close, change or collect anything while C is at work", function()
    local out, code = support.shell(
      ("NEAP_DB=off timeout 600 %s run tests/hostile/storm.lua 2>&1"):format(support.program))
    assert.are.equal("held\n", out)
    assert.are.equal(0, code)
  end)
end)
