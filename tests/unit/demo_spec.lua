--- The tour of `make demo`, in its short form: what it claims is read from its output and checked.
describe("the demo", function()
  local build = os.getenv "NEAP_BUILD" or "build"
  local shown, ended_well

  --- Its output, from one run for all tests; none when a filter wants no test of this file.
  local function output()
    if shown == nil then
      local pipe = assert(
        io.popen(("NEAP_BUILD='%s' NEAP_DEMO_SECONDS=1 scripts/demo 2>&1"):format(build)))
      shown = pipe:read "a"
      ended_well = pipe:close()
    end
    return shown
  end

  it("runs to its end without a terminal", function()
    local text = output()
    assert.is_true(ended_well, text)
    for _, part in ipairs {
      "1/4  WILL IT FIT?", "2/4  TRAIN", "3/4  PLANNED = UNPLANNED", "4/4  ASK", "Now try:",
    } do
      assert.is_truthy(text:find(part, 1, true), part .. " is missing in:\n" .. text)
    end
    assert.is_nil(text:find("\27", 1, true), "escape sequences where no terminal is")
  end)

  it("holds to the byte what was forecast, and allocates nothing in its steps", function()
    local text = output()
    local forecast, held =
      text:match "forecast [^(]*%(([%d,]+) bytes%)   held [^(]*%(([%d,]+) bytes%)"
    assert.is_string(forecast, text)
    assert.are.equal(forecast, held)
    assert.are.equal("0", text:match "allocations in steps 2%-%d+: (%d+)")
  end)

  it("proves the plan, compares its bits and is refused what can't be", function()
    local text = output()
    assert.is_truthy(text:match "least for these kernels and this order [%d.]+ MiB %(proved%)",
      text)
    assert.is_truthy(text:find("bytes compared, all identical", 1, true), text)
    local planned, half, again = text:match "planned: arena ([%d.]+) MiB.-budget = \"[%d.]+MiB\" \z
      }: arena ([%d.]+) MiB.-(%d+) of %d+ ops run again"
    assert.is_true(tonumber(half) <= tonumber(planned) / 2 + 0.1 and tonumber(again) > 0, text)
    assert.is_truthy(
      text:match "least arena for \"chargpt\" is [%d.]+ MiB, the budget [%d.]+ MiB; in the way",
      text)
  end)

  it("finds plans and lines of the net file in the database", function()
    local text = output()
    assert.is_truthy(text:match "block%d/[%w/]+ +activation +%d+ +gpt%.lua:%d+", text)
    assert.is_truthy(text:match "made by %u%w+ \"[^\"]+\" gpt%.lua:%d+", text)
  end)
end)
