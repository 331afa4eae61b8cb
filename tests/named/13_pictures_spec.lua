--- Pictures: the net as Graphviz with one colour per storage, the plan and the workspace as a table
-- and as SVG. The known gaps of earlier drawings (the backward, subnets, branches, towers with
-- shared weights) each have a test.
local neap = require "neap"
local nn = neap.nn
local support = require "support"
local has_dot, render = support.has_dot, support.render
local read_dot, check_xml = support.read_dot, support.check_xml

--- Nodes whose label begins so.
local function labelled(nodes, what)
  local list = {}
  for name, node in pairs(nodes) do
    if node.label and (node.label == what or node.label:sub(1, #what + 2) == what .. "\\n") then
      list[#list + 1] = name
    end
  end
  return list
end

local function count(edges, from, to)
  local n = 0
  for _, e in ipairs(edges) do
    n = n + (((not from or e[1] == from) and (not to or e[2] == to)) and 1 or 0)
  end
  return n
end

local function branch_net()
  local net = neap.net "branch"
  local x, c, w = net:input("x", { 4 }), net:input("c", {}, "bool"), net:param("w", { 4 }, 1)
  local y = net:If(c, function(inner) return inner:Relu(inner:Mul { x, w }) end,
    function(inner) return inner:Tanh(x) end)
  net:gradient(net:Sum(y, "loss"))
  return net
end

describe("pictures:", function()
  if not has_dot then
    pending "graphviz is not installed: its dot would check the syntax (apt-get install graphviz)"
  end

  it("a plan's drawing has one colour per storage: values at one place in the arena have one, \z
      others have another", function()
    local plan = neap.zoo.lenet():plan { batch = 8, train = true }
    local nodes = read_dot(plan:dot())
    local colour_of, place_of, n = {}, {}, 0
    for i, v in ipairs(plan:_tree().values) do
      local node = nodes["v" .. i]
      if node and v.region == "arena" and v.bytes > 0 then
        n = n + 1
        assert.are.equal(colour_of[v.offset_bytes] or node.colour, node.colour, v.blob)
        assert.are.equal(place_of[node.colour] or v.offset_bytes, v.offset_bytes, v.blob)
        colour_of[v.offset_bytes], place_of[node.colour] = node.colour, v.offset_bytes
      elseif node then
        assert.are.equal("#e4e4e4", node.colour, v.blob)
      end
    end
    local n_place = 0
    for _ in pairs(colour_of) do n_place = n_place + 1 end
    -- reuse shows
    assert.is_true(n > n_place and n_place > 3, ("%d values in %d places"):format(n, n_place))
    assert.are.equal(plan:dot(), plan:dot())
    render(plan:dot())
  end)

  it("the backward is drawn, with the gradients it makes (a gap of earlier drawings)", function()
    local net = branch_net()
    for _, text in ipairs {
      neap.zoo.lenet():plan({ batch = 8, train = true }):dot(), net:dot(), net:plan():dot(),
    } do
      local nodes, edges = read_dot(text)
      local n_backward = 0
      for name, node in pairs(nodes) do
        if node.colour == "#f3e3e3" then
          n_backward = n_backward + 1
          assert.is_true(count(edges, name) + count(edges, nil, name) > 0, name .. " has no edge")
        end
      end
      assert.is_true(n_backward > 3, text)
      render(text)
    end
    assert.are.equal(1, #labelled(read_dot(net:dot()), "w_grad"))
  end)

  it("both branches of an If are clusters with their ops inside, joined to what they read (a gap \z
      of earlier drawings)", function()
    local net = branch_net()
    for _, text in ipairs { net:dot(), net:plan():dot() } do
      local nodes, edges, clusters = read_dot(text)
      assert.are.equal(4, #clusters) -- two branches, forward and backward
      local relu, tanh = labelled(nodes, "Relu"), labelled(nodes, "Tanh")
      if #relu == 0 then
        relu, tanh = labelled(nodes, "Relu\\nref"), labelled(nodes, "Tanh\\nref")
      end
      assert.is_true(#relu >= 1 and #tanh >= 1)
      local inside = 0
      for _, list in ipairs { relu, tanh } do
        for _, name in ipairs(list) do inside = inside + (name:find "^o%d+s%d+_" and 1 or 0) end
      end
      assert.is_true(inside >= 2, "the branches' ops are outside their clusters")
      local x = labelled(nodes, "x")
      local joined = 0
      for _, e in ipairs(edges) do
        joined = joined
          + (e[1]:find "^v%d+$" and e[2]:find "^o%d+s%d+_v" and nodes[e[1]].label:find "^x\\n" and 1
            or 0)
      end
      assert.is_true(joined >= 2, "x is not joined to what the branches read")
      assert.is_true(#x >= 1)
      local svg = render(text)
      if svg then assert.are.equal(4, select(2, svg:gsub('class="cluster"', ""))) end
    end
  end)

  it("the bodies of loops are clusters, those inside them too, and so are their backward steps (a \z
      gap of earlier drawings)", function()
    local net = neap.net "loop"
    local x = net:input("x", { 3 })
    local _, y = net:While { init = { net:const(0), x }, max = 5,
      cond = function(_, i) return i:lt(5) end,
      body = function(b, i, h)
        local big = h:sum():gt(10)
        local next_h = b:If(big, function(inner) return inner:Relu(h) end,
          function(inner) return inner:Add { h, h } end)
        return i + 1, next_h
      end }
    net:Sum(y, "loss")
    net:gradient("loss", { wrt = { x } })
    for _, text in ipairs { net:dot(), net:plan():dot() } do
      local _, _, clusters = read_dot(text)
      local deepest = 0
      for _, name in ipairs(clusters) do
        deepest = math.max(deepest, select(2, name:gsub("s%d+_", "")))
      end
      assert.is_true(#clusters >= 6, "clusters: " .. table.concat(clusters, " "))
      assert.is_true(deepest >= 2, "no cluster inside another")
      render(text)
    end
  end)

  it("what a loop's backward step adds up has the colour of the \z
      backward, in its body too", function()
    local net = neap.net "sums"
    net:input("x", { 5, 2, 3 })
    net:input("w", { 3, 3 })
    net:input("h0", { 2, 3 })
    net:Sum(
      net:Recurrent {
        seq = { "x" },
        init = { "h0" },
        step = function(b, h, x) return b:Tanh(b:MatMul { h, "w" } + x) end,
      }, "loss")
    net:gradient("loss", { wrt = { "w" } })
    local text = net:plan():dot()
    local function colour_of(op)
      for line in text:gmatch "[^\n]+" do
        if line:find('label="' .. op .. "\\n", 1, true) then
          return line:match 'fillcolor="([^"]+)"'
        end
      end
    end
    assert.are.equal(assert(colour_of "SumGrad"), colour_of "Accumulate")
    assert.are_not.equal(assert(colour_of "Tanh"), colour_of "Accumulate")
  end)

  it("two towers with shared weights read one node (a gap of earlier drawings)", function()
    local net = neap.net "siamese"
    local w = net:param("w", { 3, 5 }, neap.init.xavier())
    local towers = {}
    for i = 1, 2 do towers[i] = net:Relu(net:FC { net:input("x" .. i, { 2, 5 }), w }) end
    net:gradient(net:Sum(net:Mul { towers[1], towers[2] }, "loss"))
    for _, text in ipairs { net:dot(), net:plan():dot() } do
      local nodes, edges = read_dot(text)
      local shared = labelled(nodes, "w")
      assert.are.equal(1, #shared)
      assert.is_true(count(edges, shared[1]) >= 2)
      assert.are.equal(1, #labelled(nodes, "w_grad"))
      render(text)
    end
  end)

  it("names with scopes are drawn; a file that can't be written is nil, message, code", function()
    local net = neap.net "scoped"
    net:scope("a", function()
      net:scope("b", function() net:Relu(net:input("x", { 1 }), "y") end)
    end)
    assert.are.equal(1, #labelled(read_dot(net:dot()), "a/b/y"))
    render(net:dot())
    render(net:plan():dot())
    local path = os.tmpname()
    assert.is_true(net:dot(path))
    assert.is_true(net:plan():dot(path))
    os.remove(path)
    local ok, message, code = net:dot "/nowhere/at/all.dot"
    assert.is_nil(ok)
    assert.is_truthy(message:find "/nowhere/at/all.dot")
    assert.are.equal("io", code)
  end)

  it("a name that is too long for its box, and not for its height, stands upright in it", function()
    local net = neap.net "wide"
    local x = net:input("x", { 4096, 64 })
    for _ = 1, 20 do x = net:Tanh(x) end
    local name = "a_product_of_everything_there_is"
    net:outputs { net:Sum(net:MatMul({ x, net:param("w", { 64, 4096 }, 1) }, name)) }
    local left, width, at, turned = net:plan():svg():match(
      '<rect x="([%d.]+)" y="[%d.]+" width="([%d.]+)"[^>]*>%s*<text x="([%d.]+)" '
        .. 'y="[%d.]+" transform="rotate%(%-90 ([%d.]+) [^>]*>' .. name)
    assert.is_truthy(turned)
    assert.are.equal(tonumber(at), tonumber(turned))
    assert.is_true(left + 8 < tonumber(at) and tonumber(at) < left + width)
  end)

  it("a plan as SVG has a box per storage at its place, scratch, resident regions apart, \z
      and the peak marked", function()
    for _, policy in ipairs { "offset", "none", "name" } do
      local plan = neap.zoo.lenet():plan {
        batch = 16, train = true, policy = policy, loss = nn.CrossEntropyLoss(),
        optimizer = neap.optim.SGD { lr = 0.1, momentum = 0.9 },
      }
      local svg = plan:svg()
      check_xml(svg)
      local storages, residents, n, n_resident = {}, {}, 0, 0
      for _, v in ipairs(plan:values()) do
        if v.region == "arena" and v.bytes > 0 and not storages[v.storage_no] then
          storages[v.storage_no], n = true, n + 1
        elseif v.region ~= "arena" and v.bytes > 0 and not residents[v.storage_no] then
          residents[v.storage_no], n_resident = true, n_resident + 1
        end
      end
      assert.are.equal(n, select(2, svg:gsub('class="box"', "")))
      assert.are.equal(n_resident, select(2, svg:gsub('class="resident"', "")))
      local n_scratch = 0
      for _, o in ipairs(plan:ops()) do n_scratch = n_scratch + (o.scratch_bytes > 0 and 1 or 0) end
      assert.are.equal(n_scratch, select(2, svg:gsub('class="scratch"', "")))
      assert.are.equal(1, select(2, svg:gsub('class="peak"', "")))
      assert.is_truthy(svg:find(("step %d: "):format(plan.peak_step), 1, true))
      for _, region in ipairs { "parameters", "gradients", "state", "io" } do
        assert.is_truthy(svg:find(">" .. region .. "<", 1, true), region)
      end
      -- no box reaches beyond the arena, and boxes that overlap in time do not overlap in place
      local boxes = {}
      for x, y, w, h in svg:gmatch '<rect x="([%d.]+)" y="([%d.]+)" width="([%d.]+)" \z
        height="([%d.]+)" fill="hsl' do
        boxes[#boxes + 1] = { tonumber(x), tonumber(y), tonumber(w), tonumber(h) }
      end
      assert.are.equal(n, #boxes)
      for i, a in ipairs(boxes) do
        assert.is_true(a[2] >= 63.9 and a[2] + a[4] <= 64 + 460.1)
        for j = 1, i - 1 do
          local b = boxes[j]
          local apart = a[1] + a[3] <= b[1] + 0.2
            or b[1] + b[3] <= a[1] + 0.2
            or a[2] + a[4] <= b[2] + 0.2
            or b[2] + b[4] <= a[2] + 0.2
          assert.is_true(apart, ("%s: boxes %d and %d overlap"):format(policy, j, i))
        end
      end
    end
  end)

  it("a workspace as a table has every blob once with its bytes and life, and its total counts \z
      storages; as SVG it is the last plan", function()
    local ws <close> = neap.workspace { store = false }
    assert.is_true(#ws:picture() == 0)
    local ok, message = pcall(ws.picture, ws, "x.svg")
    assert.is_false(ok)
    assert.is_truthy(message:find "run")
    local model = neap.zoo.lenet()
    ws:run(model:net { batch = 4 }, { x = neap.randn { 4, 1, 28, 28 } })
    local picture, seen = ws:picture(), {}
    for _, row in ipairs(picture) do
      assert.is_nil(seen[row.name])
      seen[row.name] = row
    end
    assert.matches("^before%-[12]$", seen.x.steps) -- with a Reorder in front, or without
    assert.is_true(seen.conv1.bytes >= 4 * 20 * 24 * 24 * 4) -- blocks of channels may be padded
    assert.are.equal("arena", seen.conv1.region)
    assert.are.equal("parameters", seen["linear1.weight"].region)
    assert.are.equal(ws:blobs().bytes, picture.bytes)
    assert.is_truthy(tostring(picture):find("█", 1, true))
    local path = os.tmpname()
    assert.is_true(ws:picture(path))
    local file = assert(io.open(path))
    check_xml(file:read "a")
    file:close()
    os.remove(path)
  end)

  it("what a subnet takes and gives is joined to it by operand, also where it goes by another \z
      name inside: loops and branches", function()
    local net = neap.net "loop"
    local x = net:input("x", { 3 })
    local _, y = net:While {
      init = { net:const(0), x }, max = 5,
      cond = function(_, i) return i:lt(5) end,
      body = function(b, i, h) return i + 1, b:Tanh(h) end,
    }
    net:Sum(y, "loss")
    net:gradient("loss", { wrt = { x } })
    for _, text in ipairs { net:dot(), net:plan():dot() } do
      local nodes, edges = read_dot(text)
      local into, out_of, kept = 0, 0, 0
      for _, e in ipairs(edges) do
        local from_inside, to_inside = e[1]:find "^o%d+s%d+_v", e[2]:find "^o%d+s%d+_v"
        if e[1]:find "^v%d+$" and to_inside then
          into = into + (nodes[e[1]].label:find "^x\\n" and not nodes[e[2]].label:find "^x\\n" and 1
            or 0)
          kept = kept + (nodes[e[1]].label:find "%.frames\\n" and 1 or 0)
        end
        if from_inside and e[2]:find "^v%d+$" then out_of = out_of + 1 end
      end
      assert.is_true(into >= 1, "x is not joined to the state that begins with it")
      assert.is_true(kept >= 1, "the frames are not joined to the backward that reads them")
      -- both states, and the gradient of x
      assert.is_true(out_of >= 3, "results are not joined to what they become")
      assert.is_truthy(text:find(", backward\"", 1, true))
      render(text)
    end
  end)

  it("branches that overlay each other have the colours of the bytes that they share", function()
    local net = neap.net "overlay"
    local x, c = net:input("x", { 1000 }), net:input("c", {}, "bool")
    net:outputs(net:If(c, function(b) return b:Tanh(b:Exp(x)) end,
      function(b) return b:Relu(b:Sigmoid(x)) end))
    local place, n = {}, 0
    for colour, offset in net:plan(
      { in_place = false }):dot():gmatch 'fillcolor="(#%x+)" tooltip="offset (%d+),' do
      assert.are.equal(place[offset] or colour, colour)
      n, place[offset] = n + 1, colour
    end
    assert.are.equal(2, n) -- what Exp makes, what Sigmoid makes
    assert.is_not_nil(place["0"])
    assert.are.equal("0", next(place))
    assert.is_nil(next(place, "0"))
  end)

  it("a value in a subnet has the colour of its place in the arena: its frame's address and its \z
      own in the frame", function()
    local net = branch_net()
    for _, o in ipairs { { in_place = false }, { policy = "none" }, { executor = "dag" } } do
      local plan = net:plan(o)
      local nodes, n_inner, above = {}, 0, false
      for name, offset in plan:dot():gmatch '([%w_]+) %[[^\n]* tooltip="offset (%d+),' do
        nodes[name] = math.tointeger(tonumber(offset))
      end
      local function compare(tree, prefix, base)
        for i, v in ipairs(tree.values) do
          local drawn = nodes[prefix .. "v" .. i]
          if drawn then
            assert.are.equal(base + v.offset_bytes, drawn, v.blob)
            n_inner, above = n_inner + (prefix ~= "" and 1 or 0), above or prefix ~= "" and base > 0
          end
        end
        for s, op in ipairs(tree.ops) do
          for k, inner in ipairs(op.subs) do
            compare(inner, ("%so%ds%d_"):format(prefix, s, k), base + op.scratch_offset)
          end
        end
      end
      compare(plan:_tree(), "", 0)
      assert.is_true(n_inner >= 2 and above, "no frame lies above address 0")
    end
  end)

  it("what lives inside subnets is drawn in the column of the op that owns them, at its \z
      place in the arena", function()
    local net = neap.net "inside"
    local x, c = net:input("x", { 1000 }), net:input("c", {}, "bool")
    local h = net:Exp(x, "h")
    net:outputs(net:If(c, function(b) return b:Tanh(b:Exp(h, "hot")) end,
      function(b) return b:Relu(b:Sigmoid(h, "cold")) end))
    local plan = net:plan { in_place = false }
    local svg, step, at = plan:svg(), nil, nil
    check_xml(svg)
    for i, o in ipairs(plan:ops()) do
      if o.type == "If" then step, at = i, o.scratch_offset end
    end
    assert.are.equal(2, select(2, svg:gsub('class="inner"', "")))
    local boxes, from, to = {}, 92 + (step - 1) / #plan:ops() * 1064, 92 + step / #plan:ops() * 1064
    for _, name in ipairs { "hot", "cold" } do
      local offset, x1, width = svg:match('class="inner"><title>' .. name
        .. "\n[^<]* at offset (%d+), steps 1%-2 inside [^<]*</title>\n"
        .. '<rect x="([%d.]+)" y="[%d.]+" width="([%d.]+)"')
      assert.are.equal(at, tonumber(offset))
      boxes[name] = { tonumber(x1), tonumber(x1) + tonumber(width) }
      assert.is_true(boxes[name][1] >= from - 0.1 and boxes[name][2] <= to + 0.1)
    end
    assert.is_true(boxes.hot[2] <= boxes.cold[1] + 0.1)
  end)

  it("a workspace as SVG shows what else it holds, whoever made the program: names with < \z
      and & are escaped", function()
    local ws <close> = neap.workspace { store = false }
    local net = neap.net "small"
    net:Tanh(net:Exp(net:input("x", { 4 })), "y")
    ws:feed("spare<&>", neap.zeros { 100 })
    ws:feed("x", neap.zeros { 4 })
    local program <close> = ws:compile(net)
    local path = os.tmpname()
    assert.is_true(ws:picture(path)) -- made, and not yet run
    local svg = support.read_file(path)
    check_xml(svg)
    assert.is_truthy(svg:find("<title>spare&lt;&amp;&gt;\n400 B</title>", 1, true))
    assert.is_truthy(svg:find(">other blobs<", 1, true))
    program:run()
    program:close()
    assert.is_false((pcall(ws.picture, ws, path))) -- nothing is left to draw
    assert.are.equal(svg, support.read_file(path))
    assert.is_truthy(tostring(ws:picture()):find("spare<&>", 1, true))
    os.remove(path)
  end)
end)

describe("a picture with folded scopes", function()
  local neap = require "neap"
  local raises = require("support").raises
  local function tower()
    local net = neap.net "tower"
    net:input("x", { 4, 8 })
    net:Relu("x", "start")
    local at = "start"
    for _, name in ipairs { "left", "right" } do
      at = net:scope(name, function()
        local h = net:scope("inner", function()
          return net:FC({ at, net:param("w", { 8, 8 }, neap.init.xavier {}) }, "h"):relu()
        end)
        return net:Add({ h, net:Tanh(h) }, "out").name
      end)
    end
    net:Mean(at, "loss")
    net:outputs { "loss" }
    return net
  end
  local function nodes(text)
    local n, list = 0, {}
    for name in text:gmatch "\n%s*([%w_]+) %[style=?" do list[name] = true end
    for name in text:gmatch "\n%s*([%w_]+) %[shape" do list[name] = true end
    for _ in pairs(list) do n = n + 1 end
    return n, list
  end
  local function check_edges(text)
    local _, known = nodes(text)
    local n = 0
    for a, b in text:gmatch "\n%s*([%w_]+) %-> ([%w_]+)" do
      assert.is_true(known[a] and known[b], a .. " -> " .. b)
      n = n + 1
    end
    assert.is_true(n > 0)
    return n
  end

  it("has one box for a scope, and only what passes in or out of it", function()
    local net = tower()
    local text = net:dot(nil, { fold = 1 })
    assert.is_truthy(text:find("label=\"left\\n4 ops\"", 1, true), text)
    assert.is_truthy(text:find("label=\"right\\n4 ops\"", 1, true), text)
    for _, hidden in ipairs { "left/inner/h", "left/inner/w", "right/inner/h" } do
      assert.is_nil(text:find(hidden, 1, true), hidden)
    end
    for _, shown in ipairs {
      "\"x\\n", "\"start\\n", "\"left/out\\n", "\"right/out\\n", "\"loss\\n",
    } do
      assert.is_truthy(text:find(shown, 1, true), shown .. text)
    end
    -- x, Relu, start, left, left/out, right, right/out, Mean, loss, joined in a row
    assert.are.equal(9, (nodes(text)))
    assert.are.equal(8, check_edges(text))
    local deeper = net:dot(nil, { fold = 2 })
    assert.is_truthy(deeper:find("label=\"left/inner\\n2 ops\"", 1, true), deeper)
    assert.is_truthy(deeper:find("label=\"left\\n2 ops\"", 1, true), deeper)
    check_edges(deeper)
    assert.are.equal(net:dot(), net:dot(nil, { fold = 0 }))
  end)

  it("of a training step has boxes apart for forward and backward, with \z
      and without a plan", function()
    local net = tower()
    net:gradient "loss"
    for _, text in ipairs {
      net:dot(nil, { fold = 1 }), net:plan({ store = false }):dot(nil, { fold = 1 }),
    } do
      local n = 0
      for _ in text:gmatch "label=\"left\\n%d+ ops\"" do n = n + 1 end
      assert.are.equal(2, n)
      check_edges(text)
      assert.is_true((nodes(text)) < (nodes(net:dot())))
    end
  end)

  it("says what fold expects", function()
    raises("fold expects", tower().dot, tower(), nil, { fold = "left" })
    raises("unknown field", tower().dot, tower(), nil, { folds = 1 })
  end)
end)
