-- What `neap plan` prints, against the plan's own reports.
local neap = require "neap"
local figures = require "figures"
local support = require "support"
local cjson = require "cjson"

describe("neap plan", function()
  --- Its output, which must be a success.
  local function neap_plan(words)
    local out, code = support.shell(("NEAP_DB=off %s plan %s"):format(support.program, words))
    assert.are.equal(0, code, out)
    return out
  end

  local function check_same(report, json)
    local want = cjson.decode(report:json())
    want.plan_ns, json.plan_ns = nil, nil
    local function same(a, b, what)
      if type(a) == "table" then
        for key, value in pairs(a) do
          -- the loss is made here
          if key ~= "line" then same(value, b[key], what .. "." .. tostring(key)) end
        end
      elseif type(a) == "number" then
        assert.is_true(math.abs(a - b) <= 1e-9 * math.abs(a), what)
      elseif not (type(a) == "string" and a:find "planned in") then
        assert.are.equal(a, b, what)
      end
    end
    same(want, json, "report")
  end

  for _, words in ipairs {
    "lenet:8 --train", "resnet18c:2 --train --budget 75%", "lenet:4 --train --policy pool", "mlp:3",
    "lenet:4 --keep conv1",
  } do
    it("says of " .. words .. " what the plan says", function()
      local netfile = require "neap.net.file"
      local file = netfile.load(words:match "^%S+")
      local net = netfile.build(file, { train = words:find "train" ~= nil })
      local p = net:plan {
        store = false,
        budget = words:match "budget (%S+)",
        policy = words:match "policy (%S+)",
        keep = { words:match "keep (%S+)" },
      }
      for flag, report in pairs {
        [""] = p:forecast(), ["--ops"] = p:ops(), ["--values"] = p:values(), ["--peak"] = p:peak(),
      } do
        check_same(report, cjson.decode(neap_plan(words .. " --json " .. flag)))
      end
      local text, f = neap_plan(words), figures.facts_of(p)
      local op = f.ops[f.peak_step]
      local line = ("peak       %s at step %d of %d, %s \"%s\""):format(
        neap.bytes(f.live[f.peak_step]), f.peak_step, #f.ops, op.type, op.name)
      assert.is_truthy(text:find(line, 1, true), line .. " is not in " .. text)
      assert.is_truthy(text:find("over steps " .. tostring(p:curve()), 1, true))
      local again =
        ("recomputed %d of %d ops run again in the backward pass, about %.0f %% more work"):format(
          f.n_again, #f.ops - f.n_again, 100 * p.recomputed_work)
      assert.are.equal(f.n_again > 0, text:find(again, 1, true) ~= nil)
      local explained = neap_plan(words .. " --explain")
      assert.are.equal(tostring(p:explain()):gsub("planned in [^\n]*", ""),
        -- its first line says which plan it is
        (explained:gsub("^plan of [^\n]*\n", ""):gsub("%s*$", ""):gsub("planned in [^\n]*", "")))
    end)
  end
end)
