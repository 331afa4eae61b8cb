--- What other programs read has a decimal point where the program around Neap has set a locale with
-- a comma: CSV, JSON, pages and pictures; and so have messages.
local support = require "support"

-- Writes each of them in both locales.
local script = [[
local neap = require "neap"
local report = require "neap.report"
local path = arg[1] .. "/line.svg"
local net = neap.net "small"
net:outputs { net:Relu(net:input("x", { 2, 3 })) }
local side = require("neap.plan.diff").of_plan(net:plan { store = false })
side.figures.rate = 0.125

local function written()
  local r = report.new { rows = { { x = 0.5, y = 3.0, z = 1e100, n = 7 } },
    columns = { "x", "y", "z", "n" }, totals = { mean = 2.25 } }
  assert(neap.tensor { 0.25, 0.5, 0.125 }:plot(path))
  local file <close> = assert(io.open(path))
  local _, message = pcall(neap.arange, 0.5, 1.5, 0)
  return { csv = r:csv(), json = r:json(), svg = file:read "a", message = tostring(message),
    page = require("neap.report.html").page(side) }
end

local here = written()
assert(here.csv == "x,y,z,n\r\n0.5,3.0,1e+100,7\r\n", here.csv)
assert(here.message:find("from 0.5 to 1.5 in steps of 0", 1, true), here.message)
assert(here.json:find('"mean":2.25', 1, true), here.json)
assert(os.setlocale("", "numeric"), "no such locale")
assert(("%.1f"):format(0.5) == "0,5", "no comma")
local there = written()
for name, text in pairs(here) do
  assert(there[name] == text, name .. "\n" .. text .. "\n" .. there[name])
end
print "alike"
]]

describe("under a locale with a decimal comma", function()
  local folder
  setup(function() folder = support.shell "mktemp -d":match "[^\n]+" end)
  teardown(function() os.execute("rm -rf " .. folder) end)

  it("numbers of files and messages have a point", function()
    local made = os.execute(("localedef --no-archive -i de_DE -f UTF-8 %s/de_DE.UTF-8 \z
      >/dev/null 2>&1"):format(folder))
    if not made then return pending "localedef makes no locale here" end
    support.write_file(folder .. "/locale.lua", script)
    local text, code = support.shell(("LOCPATH=%s LC_ALL=de_DE.UTF-8 NEAP_DB=off %s run \z
      %s/locale.lua %s 2>&1"):format(folder, support.program, folder, folder))
    assert.are.equal(0, code, text)
    assert.are.equal("alike\n", text)
  end)
end)
