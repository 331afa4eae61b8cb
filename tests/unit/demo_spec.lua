--- The tour of `make demo`, in its short form: what it claims is read from its output and checked.
describe("the demo", function()
  local build = os.getenv "NEAP_BUILD" or "build"
  local text, ended_well

  setup(function()
    local pipe = assert(io.popen(("NEAP_BUILD='%s' NEAP_DEMO_SECONDS=1 scripts/demo 2>&1"):format(build)))
    text = pipe:read "a"
    ended_well = pipe:close()
  end)

  it("runs to its end without a terminal", function()
    assert.is_true(ended_well, text)
    for _, part in ipairs { "1/4  WILL IT FIT?", "2/4  TRAIN", "3/4  PLANNED = UNPLANNED", "4/4  ASK", "Now try:" } do
      assert.is_truthy(text:find(part, 1, true), part .. " is missing in:\n" .. text)
    end
    assert.is_nil(text:find("\27", 1, true), "escape sequences where no terminal is")
  end)

  it("holds to the byte what was forecast, and allocates nothing in its steps", function()
    local forecast, held = text:match "forecast [^(]*%(([%d,]+) bytes%)   held [^(]*%(([%d,]+) bytes%)"
    assert.is_string(forecast, text)
    assert.are.equal(forecast, held)
    assert.are.equal("0", text:match "allocations in steps 2%-%d+: (%d+)")
  end)

  it("proves the plan, compares its bits and is refused what can't be", function()
    assert.is_truthy(text:match "least possible [%d.]+ MiB %(proved%)", text)
    assert.is_truthy(text:find("bytes compared, all identical", 1, true), text)
    assert.is_truthy(text:match "least arena for \"chargpt\" is [%d.]+ MiB, the budget [%d.]+ MiB; in the way", text)
  end)

  it("finds plans and lines of the net file in the database", function()
    assert.is_truthy(text:match "block%d/[%w/]+ +activation +%d+ +gpt%.lua:%d+", text)
    assert.is_truthy(text:match "made by %u%w+ \"[^\"]+\" gpt%.lua:%d+", text)
  end)
end)
