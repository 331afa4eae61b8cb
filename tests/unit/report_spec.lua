-- Reports: values that print as tables, and go out as JSON and CSV.
local report = require "neap.report"
local cjson = require "cjson"

local function sample()
  return report.new {
    rows = {
      { name = "conv1", bytes = 4096, share = 0.5 }, { name = "größe", bytes = 12, share = 1 / 3 },
    },
    columns = { "name", "bytes", "share" }, totals = { bytes = 4108 },
  }
end

describe("a report", function()
  it("is indexed by row, field and total", function()
    local r = sample()
    assert.are.equal(2, #r)
    assert.are.equal(4096, r[1].bytes)
    assert.are.equal(4108, r.bytes)
    assert.is_nil(r.nothing)
    local n = 0
    for _ in ipairs(r) do n = n + 1 end
    assert.are.equal(2, n)
  end)

  it("aligns numbers to the right by what a terminal shows", function()
    local lines = {}
    for line in tostring(sample()):gmatch "[^\n]+" do lines[#lines + 1] = line end
    assert.are.equal("name   bytes   share", lines[1])
    assert.are.equal("conv1   4096     0.5", lines[3])
    assert.are.equal("größe     12  0.3333", lines[4])
    assert.are.equal("bytes 4108", lines[5])
  end)

  it("fits the line: long texts are cut in the middle", function()
    local r = report.new { rows = { { path = ("a"):rep(300), n = 1 } }, columns = { "path", "n" } }
    for line in tostring(r):gmatch "[^\n]+" do
      assert.is_true(report.width(line) <= report.terminal_width(), line)
    end
    assert.is_truthy(tostring(r):find("…", 1, true))
  end)

  it("breaks many columns into blocks led by the first", function()
    local row, columns = { id = "r1" }, { "id" }
    for k = 1, 30 do
      columns[#columns + 1] = "column" .. k
      row["column" .. k] = 123456
    end
    local text = tostring(report.new { rows = { row }, columns = columns })
    local n = 0
    for line in text:gmatch "[^\n]+" do
      assert.is_true(report.width(line) <= report.terminal_width())
      if line:match "^r1" then n = n + 1 end
    end
    assert.is_true(n > 1)
  end)

  it("keeps control characters and broken text away from the terminal", function()
    local text = tostring(report.new { rows = { { x = "a\27[31m\255" } }, columns = { "x" } })
    assert.is_nil(text:find "\27")
    assert.is_truthy(utf8.len(text))
  end)

  it("says so when it is empty", function()
    assert.are.equal("(nothing)", tostring(report.new { rows = {}, columns = { "x" } }))
    assert.are.equal("words", tostring(report.new { text = "words\n" }))
  end)

  it("encodes JSON that others can read, NaN as null", function()
    local r = cjson.decode(sample():json())
    assert.are.equal(4108, r.bytes)
    assert.are.equal("größe", r.rows[2].name)
    assert.are.equal("[]", report.new({ columns = { "x" } }):json())
    local list = cjson.decode(report.new({ rows = { { x = 0 / 0 } }, columns = { "x" } }):json())
    assert.are.equal(cjson.null, list[1].x)
  end)

  it("writes CSV with quotes where they are needed", function()
    local r = report.new {
      rows = { { a = 'say "hi", twice', b = 1 }, { b = 2 } }, columns = { "a", "b" },
    }
    assert.are.equal('a,b\r\n"say ""hi"", twice",1\r\n,2\r\n', r:csv())
  end)
end)
