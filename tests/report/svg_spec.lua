--- A plan's drawing: what its colours mean, the fold of steps that hold nothing, the axis of time.
local neap = require "neap"
local core = require "neap.core"
local check_xml = require("support").check_xml

local function lenet(more)
  local o = { batch = 16, train = true, loss = neap.nn.CrossEntropyLoss(),
    optimizer = neap.optim.SGD { lr = 0.1, momentum = 0.9 } }
  for key, value in pairs(more or {}) do o[key] = value end
  return o
end

--- Boxes of a drawing by the name that labels them: {x, width, hue}.
local function boxes_of(svg)
  local boxes = {}
  for names, x, width, hue in svg:gmatch '<g class="box"><title>([^\n]+)\n[^\n]+</title>%s+<rect \z
    x="([%d.]+)" y="[%d.]+" width="([%d.]+)" height="[%d.]+" fill="hsl%((%d+)' do
    boxes[names:match "^[^,]+"] = { x = tonumber(x), width = tonumber(width), hue = hue }
  end
  return boxes
end

--- The entries of the key of boxes: their names, and their hue by name.
local function key_of(svg)
  local hues, names = {}, {}
  for hue, name in svg:gmatch 'class="key" fill="hsl%((%d+)[^/]*/>%s*<text[^>]*>([^<]+)<' do
    hues[name], names[#names + 1] = hue, name
  end
  return hues, names
end

describe("a plan as SVG:", function()
  local plan = neap.zoo.lenet():plan(lenet())

  for _, by in ipairs { "category", "layer" } do
    it("boxes have the colour of their " .. by .. ", which the key explains", function()
      local svg = plan:svg(nil, { color = by })
      check_xml(svg)
      local boxes, hues, names = boxes_of(svg), key_of(svg)
      local seen, n = {}, 0
      for _, v in ipairs(plan:values()) do
        local box = v.value_no == v.storage_no and boxes[v.blob]
        if v.region == "arena" and box then
          assert.equal(hues[v[by]], box.hue, v.blob)
          seen[v[by]], n = true, n + 1
        end
      end
      assert.is_true(n > 8, "boxes were looked at: " .. n)
      for _, name in ipairs(names) do assert.is_true(seen[name], name .. " is in the key") end
      local one = {}
      for name, hue in pairs(hues) do
        assert.is_nil(one[hue], name)
        one[hue] = name
      end
    end)
  end

  it("steps at the end that hold nothing share one column, and say which they are", function()
    local svg, ops = plan:svg(), plan:ops()
    local first = #ops
    while ops[first - 1].live_bytes * 920 <= plan.arena_bytes do first = first - 1 end
    assert.is_true(#ops - first > 3, "the updates hold nothing")
    local x, width = svg:match('<rect x="([%d.]+)" y="528.00" width="([%d.]+)" height="8.00" \z
      class="fold"[^>]*><title>steps ' .. first .. "%-" .. #ops .. ": next to nothing is held<")
    assert.is_truthy(x, "one piece of the strip is the fold")
    assert.near(1156, x + width, 0.02)
    assert.is_true(tonumber(width) < (1156 - 92) / first * 2)
    assert.equal(1, select(2, svg:gsub('class="fold"', "")))
    assert.is_truthy(svg:find((">%d-%d</text>"):format(first, #ops), 1, true))
  end)

  it("over time, a box is as wide as its steps took in the run", function()
    local ws <close> = neap.workspace { seed = 1 }
    local net = neap.zoo.lenet():net(lenet { name = "lenet" })
    ws:init(net)
    local program <close> = ws:compile(net, { profile = true })
    ws:feed("x", neap.rand(16, 1, 28, 28))
    for _, input in ipairs(net:inputs()) do
      if input.name ~= "x" then
        ws:feed(input.name, #input.shape == 0 and core.tensor(0.1, input.dtype)
          or core.zeros { dtype = input.dtype, table.unpack(input.shape) })
      end
    end
    program:run(3)
    local run = program:profile { steps = 2 }
    local svg = program.plan:svg(nil, { time = run })
    check_xml(svg)
    local all, edge = 0, { 0 }
    for s, t in ipairs(run.times) do
      all = all + t.median_ns
      edge[s + 1] = all
    end
    local boxes, n = boxes_of(svg), 0
    for _, v in ipairs(program.plan:values()) do
      local box = boxes[v.blob]
      if v.region == "arena" and box and v.value_no == v.storage_no
          and not svg:find(v.blob .. ",", 1, true) then
        local width = (edge[v.last_step + 1] - edge[v.first_step]) / all * (1156 - 92)
        assert.near(width, box.width, 0.02, v.blob)
        assert.near(92 + edge[v.first_step] / all * (1156 - 92), box.x, 0.02, v.blob)
        n = n + 1
      end
    end
    assert.is_true(n > 5, "boxes were looked at: " .. n)
    assert.is_nil(svg:find('class="fold"', 1, true))
    assert.is_truthy(svg:find " [mu]s</text>")
    assert.is_truthy(svg:find(">time of ops, from a run that is not stored, 100 %", 1, true))
    assert.is_nil(program.plan:svg():find("time of ops", 1, true))
  end)

  it("says what it has no times of, and what it can't colour by", function()
    assert.error_matches(function() plan:svg(nil, { time = true }) end, "neap profile run NET")
    assert.error_matches(function() plan:svg(nil, { color = "colour" }) end,
      '"category" or "layer"')
    assert.error_matches(function() plan:svg(nil, { time = {} }) end, "op times")
  end)
end)
