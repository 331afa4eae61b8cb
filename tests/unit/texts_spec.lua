-- What is written about a net and its plan, word for word: the texts in tests/texts.
-- NEAP_WRITE_TEXTS=1 writes them anew; read the difference before it is committed. Kernels are the
-- reference's, so that no processor changes a byte.
local neap = require "neap"

--- One of each: an op in place by name, a kept blob, a constant, branches, a loop, a gradient, an
-- update, a scope.
local function all()
  local net = neap.net "all"
  net:Sum(net:input("steps", { 3, 2, 4 }), "all")
  local c, w = net:input("c", {}), net:param("w", { 4, 3 }, 0.5)
  net:FC({ net:input("x", { 2, 3 }), w }, "h")
  net:Relu("h", "h")
  net:scope("tail", function() net:Permute("h", "t", { axes = { 2, 1 } }) end)
  net:Dropout("h", "d", { rate = 0.25 })
  net:Mul({ "d", net:const(neap.tensor { 1, 2, 0.5, 4 }) }, "m")
  local y = net:If(c, function(b) return b:Exp "m" end, function(b) return b:Neg "m" end)
  net:Copy("m", "start")
  local last = net:Recurrent { seq = { "steps" }, init = { "start" },
    step = function(b, h, row) return b:Mul({ b:Tanh(b:Add({ h, row }, "sum")), row }, "next") end }
  local loss = net:Mean(net:Add { y, last }, "loss")
  net:Sum("tail/t", "s")
  net:keep "tail/t"
  net:outputs { "loss", "s", "all" }
  net:gradient(loss, { wrt = "w" })
  net:Sgd({ "w", "w_grad", net:input("lr", {}) }, "w")
  return net
end

--- A chain, of which a budget keeps a part only.
local function chain()
  local net = neap.net "chain"
  local x = net:input("x", { 64, 32 }) * net:param("w", { 32 }, 1)
  net:scope("deep", function()
    for k = 1, 8 do x = net:Exp(net:Tanh(x, "tanh" .. k), "exp" .. k) end
    x = net:Sum(x, "loss")
  end)
  net:gradient(x, { wrt = "w" })
  net:outputs(x)
  return net
end

--- The peak holds the very first value; one value is empty.
local function first()
  local net = neap.net "first"
  local h = net:Exp(net:input("x", { 16 }), "h")
  net:Mul({ net:Tanh(h, "t"), h }, "y")
  net:Exp(net:Exp(net:input("none", { 0, 3 })), "nothing")
  net:outputs { "y", "nothing" }
  return net
end

local ref = { engine = "ref", threads = 1 }
local function with(more)
  local options = {}
  for _, from in ipairs { ref, more or {} } do
    for key, value in pairs(from) do options[key] = value end
  end
  return options
end

--- Without what a move of lines in this file, or a clock, would change.
local function settled(text)
  return (tostring(text):gsub("[%w_./]*texts_spec%.lua:%d+",
    "here"):gsub("planned in [%d.]+ %a+", "planned"):gsub("\n*$", "\n"))
end

local function check(name, text)
  local path = "tests/texts/" .. name
  text = settled(text)
  if os.getenv "NEAP_WRITE_TEXTS" then
    local file <close> = assert(io.open(path, "w"))
    file:write(text)
  end
  local file <close> = assert(io.open(path))
  assert.are.equal(file:read "a", text)
end

local function joined(...)
  local parts = {}
  for i, part in ipairs { ... } do parts[i] = tostring(part) end
  return table.concat(parts, "\n\n")
end

describe("word for word", function()
  it("a net", function() check("net.txt", all():text()) end)
  it("what a plan's key is made of", function() check("key.txt", all():_graph({}, "canonical")) end)
  it("the graph of a net", function() check("graph.txt", all():graph_text()) end)
  it("the graph as a net", function() check("expanded.txt", all():expand({}):text()) end)
  it("the picture of a net", function() check("net.dot", all():dot()) end)

  it("a plan, and why blobs lie where they do", function()
    local plan = all():plan(ref)
    local texts = { plan:explain() }
    for _, blob in ipairs { "h", "m", "w", "tail/t", "x", "loss", "start" } do
      texts[#texts + 1] = plan:explain(blob)
    end
    for _, pair in ipairs {
      { "h", "d" }, { "m", "h" }, { "start", "m" }, { "w", "start" }, { "s", "start" },
      { "if.grad", "start" },
    } do
      texts[#texts + 1] = plan:why(pair[1], pair[2])
    end
    check("plan.txt", joined(table.unpack(texts)))
    check("plan.dot", plan:dot())
    check("plan.svg", plan:svg())
  end)

  it("a plan whose first value is at the peak", function()
    local plan = first():plan(with { in_place = false })
    check("first.txt", joined(plan:explain(), plan:why("h", "t")))
    check("first.svg", plan:svg())
  end)

  it("a dry run, by blob, layer and slot", function()
    local log = all():dry_run(with { mem_param = {} })
    local texts = {}
    for _, report in ipairs { log, log.layers, log.slots } do texts[#texts + 1] = report:csv() end
    check("dry_run.txt", joined(table.unpack(texts)):gsub("\r", ""))
  end)

  it("plans by other policies", function()
    local texts = {}
    for _, policy in ipairs { "none", "name", "pool" } do
      texts[#texts + 1] = all():plan(with { policy = policy }):explain()
    end
    texts[#texts + 1] = all():plan(with { executor = "dag" }):explain()
    check("policies.txt", joined(table.unpack(texts)))
  end)

  it("why blobs that never meet are apart", function()
    local net, texts = neap.net "apart", {}
    net:outputs { net:Sum(net:Exp(net:Tanh(net:Exp(net:input("x", { 16 }), "first")), "last")) }
    for _, policy in ipairs { "none", "name" } do
      texts[#texts + 1] = net:plan(with { policy = policy, in_place = false }):why("first", "last")
    end
    check("apart.txt", joined(table.unpack(texts)))
  end)

  it("a plan that makes values again, and a budget that is too small", function()
    local plan = chain():plan(with { budget = math.floor(0.6 * chain():plan(ref).arena_bytes) })
    check("again.txt", joined(plan:explain(), plan:explain "deep/tanh1", plan:explain "deep/exp4",
      plan:explain "deep/tanh8", plan:explain "deep/tanh8.again", plan:graph_text()))
    check("again.dot", plan:dot())
    local colours = {}
    for colour in chain():plan(
      with { policy = "none", in_place = false }):dot():gmatch 'fillcolor="(#%x+)" tooltip' do
      colours[#colours + 1] = colour
    end
    check("colours.txt", table.concat(colours, "\n"))
    local _, err = pcall(chain().plan, chain(), with { budget = 1000 })
    check("refused.txt", joined(err.message, err.blob, err.scope, err.hint))
  end)
end)
