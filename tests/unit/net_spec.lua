-- Nets built from Lua: names and scopes, shapes while building, gradients, branches, located
-- errors, text.
local neap = require "neap"
local raises = require("support").raises

--- x (4,8) -> FC -> h (4,16) -> Relu -> FC -> y (4,3) -> loss against t
local function mlp()
  local net = neap.net "mlp"
  local x = net:input("x", { 4, 8 })
  local h = net:FC({ x, net:param("w1", { 16, 8 }, neap.init.xavier {}), net:param("b1", { 16 }) },
    "h")
  local y = net:FC(
    { h:relu(), net:param("w2", { 3, 16 }, { "Xavier" }), net:param("b2", { 3 }, 0) }, "y")
  local loss = net:SoftmaxCrossEntropy({ y, net:input("t", { 4 }, "i64") }, "loss")
  return net, loss, y
end

describe("building a net", function()
  it("takes names and handles alike, and gives handles", function()
    local net = neap.net "f"
    local x = net:input("x", { 2, 3 })
    local y = net:Relu("x", "y")
    local z = net:Relu(x)
    assert.are.equal("y", y.name)
    assert.are.equal("relu_2", z.name)
    assert.are.equal(y, net:blob "y")
    assert.are.equal(net, y.net)
  end)

  it("knows shapes and dtypes while it is built", function()
    local net, loss, y = mlp()
    assert.are.same({ 4, 16 }, net:blob("h").shape)
    assert.are.same({ 4, 3 }, y.shape)
    assert.are.equal("f32", y.dtype)
    assert.are.same({}, loss.shape)
    assert.are.equal(3, y:size(-1))
    assert.are.equal(12, y:n_element())
    assert.are.equal("parameter", net:blob("w1").role)
  end)

  it("makes ops of operators and methods on blobs", function()
    local net = neap.net "f"
    local x = net:input("x", { 2, 3 })
    local y = ((x * 2 + 1) / x - x ^ 2):softmax { axis = 1 }
    assert.are.same({ 2, 3 }, y.shape)
    assert.are.same({ 3, 2 }, x:transpose(1, 2).shape)
    assert.are.same({ 6 }, x:reshape(-1).shape)
    assert.are.same({ 2, 2 }, x:matmul(x:transpose()).shape)
    assert.are.same({ 2, 1 }, x:narrow(2, 3, 1).shape)
    assert.are.same({ 3 }, x:select(1, 2).shape)
    assert.are.same({ 2, 1, 3 }, x:unsqueeze(2).shape)
    assert.is_truthy(neap.softmax(x).shape)
    raises("x:lt(y)", function() return x < y end)
    raises("no value while the net is built", function() return x:item() end)
  end)

  it("say how many operands an op expects and how many it got, by itself too", function()
    local net = neap.net "n"
    net:input("x", { 2 })
    local err = raises("expects 1 input (x), got 2", net.Relu, net, { "x", "x" })
    assert.are.equal("1 input", err.expected)
    assert.are.equal("2", err.got)
  end)

  it("numbers beside blobs become constants of their dtype", function()
    local net = neap.net "f"
    local x = net:input("x", { 3 })
    net:outputs { (2 * x + 1) // 2 }
    local ws <close> = neap.workspace {}
    local _, y = next(ws:run(net, { x = { 1, 2, 3 } }))
    assert.are.same({ 1, 2, 3 }, y:totable())
  end)

  it("prefixes what is written in a scope, and reads from inside out", function()
    local net = neap.net "f"
    net:input("x", { 2 })
    local inner = net:scope("a", function()
      net:Relu("x", "y")
      return net:scope("b", function() return net:Relu("y", "y") end)
    end)
    assert.are.equal("a/y", inner.name) -- in place by name: what is read under the name is written
    local apart = net:scope("c", function() return net:Relu("x", "z") end)
    assert.are.equal("c/z", apart.name)
    do
      local _ <close> = net:scope "d"
      assert.are.equal("d/q", net:Relu("x", "q").name)
    end
    assert.are.equal("q", net:Relu("x", "q").name)
  end)

  it("leaves the scope when an error is thrown", function()
    local net = neap.net "f"
    net:input("x", { 2 })
    pcall(function() net:scope("a", function() error "no" end) end)
    assert.are.equal("y", net:Relu("x", "y").name)
  end)

  it("gives neap.scope the net being built", function()
    local net = neap.net "f"
    net:input("x", { 2 })
    local y = net:scope("a", function()
      return neap.scope("b", function() return net:Relu("x", "y") end)
    end)
    assert.are.equal("a/b/y", y.name)
    -- In a coroutine of its own no scope is open, whatever handles of scopes earlier tests have
    -- dropped and Lua not yet collected.
    local ok, err = coroutine.resume(coroutine.create(function()
      neap.scope("a", function() end)
    end))
    assert.is_false(ok)
    assert.matches("net:scope", tostring(err))
  end)

  it("lets a coroutine build beside another", function()
    local one, two = neap.net "one", neap.net "two"
    one:input("x", { 2 })
    two:input("x", { 2 })
    local co = coroutine.wrap(function()
      return two:scope("b", function() coroutine.yield() return two:Relu("x", "y").name end)
    end)
    one:scope("a", function()
      co()
      assert.are.equal("a/y", one:Relu("x", "y").name)
    end)
    assert.are.equal("b/y", co())
  end)
end)

describe("errors of a net", function()
  local net
  before_each(function()
    net = neap.net "f"
    net:input("x", { 2, 3 })
  end)

  it("name the op, the line and what is near", function()
    local err = raises("did you mean \"x\"", function() net:Relu("xx", "y") end)
    assert.are.equal("name", err.code)
    assert.are.equal("Relu", err.op)
    assert.is_truthy(err.line:match "^net_spec.lua:%d+$")
    err = raises("did you mean \"Relu\"", function() return net:Rellu("x") end)
    assert.are.equal("name", err.code)
    err = raises("unknown attribute", function() net:Softmax("x", "y", { axes = 1 }) end)
    assert.are.equal("attribute", err.code)
    raises("\"axis\" stands in a list of blobs", function() net:Softmax { "x", axis = 1 } end)
    raises("\"axis\" stands in a list of blobs", function() net:Softmax("x", { "y", axis = 1 }) end)
    raises("axis expects a dimension", function() net:Softmax("x", "y", { axis = 0 }) end)
    raises("FC", function() net:FC({ "x" }, "y") end)
  end)

  it("name shapes that do not fit, and keep no op of them", function()
    net:param("w", { 5, 4 })
    local err = raises("4 features", function() net:FC({ "x", "w" }, "y") end)
    assert.are.equal("shape", err.code)
    assert.are.equal("FC", err.op)
    assert.is_truthy(err.line:match "^net_spec.lua:%d+$")
    assert.are.equal(0, #net:_ops())
    assert.is_true(net:check())
  end)

  it("leave the net as it was", function()
    net:Relu("x", "y")
    local before = net:text()
    pcall(net.Relu, net, "nothing", "z")
    pcall(net.Softmax, net, "x", "z", { nothing = 1 })
    pcall(net.FC, net, { "x" }, "z")
    pcall(net.input, net, "x", { 5 })
    assert.are.equal(before, net:text())
  end)

  it("refuse blobs of other nets", function()
    local other = neap.net "g"
    local z = other:input("z", { 2 })
    raises("another net", function() net:Relu(z) end)
    raises("another net", function() return net:blob "x" + z end)
  end)

  it("hold after close", function()
    local kept
    do
      local n <close> = neap.net "n"
      kept = n
    end
    raises("closed", function() kept:input("x", { 1 }) end)
  end)
end)

describe("a name that is declared again", function()
  local function declared()
    local net = neap.net "f"
    local w = net:param("w", { 3, 2 }, neap.init.xavier {})
    return net, w, net:param("f", { 2 }, 1, { trainable = false })
  end

  it("is the first one where the second says the same, or less", function()
    local net, w, f = declared()
    local text = net:text()
    assert.are.equal(w, net:param("w", { 3, 2 }, neap.init.xavier {}))
    assert.are.equal(w, net:param("w", { 3, 2 }))
    assert.are.equal(f, net:param("f", { 2 }))
    assert.are.equal(text, net:text())
  end)

  it("is refused where it says otherwise: what was said where", function()
    local net = declared()
    local text = net:text()
    local was = "as parameter f32 (3,2) = Xavier, got"
    for got, options in pairs {
      ["got parameter f32 (3,2) = Xavier { gain = 2 }"] = { "w", { 3, 2 }, { "Xavier", gain = 2 } },
      ["got parameter f32 (3,2) = Constant { value = 1 }"] = { "w", { 3, 2 }, 1 },
      ["got parameter f32 (2,2)"] = { "w", { 2, 2 } },
      ["got parameter f32 (3,2) frozen"] = { "w", { 3, 2 }, nil, { trainable = false } },
      ["got parameter f64 (3,2)"] = { "w", { 3, 2 }, nil, { dtype = "f64" } },
    } do
      local words = { "\"w\" is declared already", was, got, "the first, at net_spec.lua:" }
      local err = raises(words, net.param, net, table.unpack(options, 1, 4))
      assert.are.equal("name", err.code)
      assert.are.equal("w", err.blob)
    end
    raises("got parameter f32 (2)", net.param, net, "f", { 2 }, nil, { trainable = true })
    assert.are.equal(text, net:text())
  end)
end)

describe("gradients", function()
  it("go to every trainable parameter by default", function()
    local net, loss = mlp()
    local grads, names = net:gradient(loss), {}
    for parameter, gradient in pairs(grads) do names[parameter.name] = gradient.name end
    assert.are.same({ w1 = "w1_grad", b1 = "b1_grad", w2 = "w2_grad", b2 = "b2_grad" }, names)
    assert.are.same({ 16, 8 }, net:blob("w1_grad").shape)
  end)

  it("are found by blob and by name, and gone through in the order of declaration", function()
    local function order(grads)
      local names = {}
      for blob, gradient in pairs(grads) do
        assert.are.equal(gradient, grads[blob.name])
        names[#names + 1] = blob.name
      end
      return table.concat(names, " ")
    end
    local net, expected = neap.net "f", {}
    local loss = net:const(0)
    for i = 1, 20 do
      expected[i] = "p" .. 37 * i % 101
      loss = loss + net:param(expected[i], {})
    end
    local grads = net:gradient(loss)
    assert.are.equal(table.concat(expected, " "), order(grads))
    local first = net:blob(expected[1])
    assert.are.equal("p37_grad", grads.p37.name)
    assert.is_nil(grads.p1000)
    grads[first] = nil
    assert.are.equal(table.concat(expected, " ", 2), order(grads))
    grads[first] = loss -- back in its place
    assert.are.equal(table.concat(expected, " "), order(grads))
    net, loss = mlp()
    assert.are.equal("w2 b1", order(net:gradient(loss, { wrt = { "w2", "b1" } })))
  end)

  it("equal finite differences", function()
    local function loss_of(values)
      local net = neap.net "f"
      local x = net:param("x", { 3 }, nil, { dtype = "f64" })
      local loss = net:Sum((x * x * x):sigmoid(), "loss")
      net:gradient(loss)
      net:outputs { "loss", "x_grad" }
      local ws <close> = neap.workspace {}
      ws:init(net)
      ws:feed("x", neap.tensor(values, "f64"))
      local r = ws:run(net)
      return r.loss:item(), r.x_grad:totable()
    end
    local at, eps = { 0.3, -0.7, 1.1 }, 1e-6
    local _, grad = loss_of(at)
    for i = 1, 3 do
      local up, down = { table.unpack(at) }, { table.unpack(at) }
      up[i], down[i] = up[i] + eps, down[i] - eps
      local slope = ((loss_of(up)) - (loss_of(down))) / (2 * eps)
      assert.is_true(math.abs(slope - grad[i]) < 1e-7)
    end
  end)

  it("through what has values of x and no gradient are refused, not left out", function()
    local makes = {
      Unique = function(net) return net:Sum(net:Unique "x") end,
      GradNorm = function(net) return net:GradNorm { "x" } end,
      ClipByNorm = function(net)
        return net:Sum(net:ClipByNorm({ "x", net:const(1) }, nil, { max = 1 }))
      end,
      WeightedAccumulate = function(net)
        return net:Sum(net:WeightedAccumulate({ "m", "x", net:const(1), net:const(1) }, "m"))
      end,
    }
    for type, make in pairs(makes) do
      local net = neap.net "f"
      net:input("x", { 3 })
      net:declare("m", "state", { 3 }, "f32", { op = "Constant", value = 1 })
      net:Add({ make(net), net:Sum "x" }, "loss")
      raises("no gradient is defined through " .. type, function()
        net:gradient("loss", { wrt = "x" })
        net:plan { store = false }
      end)
    end
    -- Where the values take no part, or are stopped, there is nothing to refuse.
    local net = neap.net "f"
    net:input("x", { 3 })
    net:Unique("x", { "u", "inverse" })
    net:Sum(net:Unique(net:StopGradient "x"), "s")
    net:Add({ net:Sum(net:Cast("inverse", nil, { to = "f32" })), net:Add({ "s", net:Sum "x" }) },
      "loss")
    net:gradient("loss", { wrt = "x" })
    net:outputs { "x_grad" }
    local ws <close> = neap.workspace { store = false }
    assert.are.same({ 1, 1, 1 }, ws:run(net, { x = { 2, 2, 5 } }).x_grad:totable())
  end)

  it("of the gradient of a pool go to the element that won", function()
    local net = neap.net "f"
    local x = net:input("x", { 1, 1, 2, 2 })
    net:Sum(net:Square(net:MaxPool(x, 1, { kernel = { 2 } })), "first")
    local g = net:gradient("first", { wrt = { x } })[x]
    net:Sum(net:Square(g), "second")
    local h = net:gradient("second", { wrt = { x } })[x]
    net:outputs { h }
    -- of 4 m^2
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    ws:feed("x", neap.tensor { { { { 1, 2 }, { 5, 3 } } } })
    ws:run(net)
    assert.are.same({ 0, 0, 40, 0 }, ws:fetch(h):reshape(-1):totable())
  end)

  it("of a gradient that has none are refused, not left out", function()
    local net = neap.net "f"
    local x, targets = net:input("x", { 5, 4 }), net:input("targets", { 2 }, "i64")
    local lengths = { net:const(5, "i64"), net:const(2, "i64") }
    net:CtcLoss({ x, targets, lengths[1], lengths[2] }, "first")
    net:gradient("first", { wrt = "x" })
    net:Sum(net:Square "x_grad", "second")
    raises("no gradient is defined through CtcLossGrad", function()
      net:gradient("second", { wrt = "x" })
      net:plan { store = false }
    end)
  end)

  it("ask for something to differentiate by", function()
    local net = neap.net "f"
    net:Sum(net:input("x", { 2 }), "loss")
    raises("wrt", function() net:gradient "loss" end)
    local g = net:gradient("loss", { wrt = "x" })
    assert.are.equal("x_grad", select(2, next(g)).name)
  end)
end)

describe("net:expand", function()
  it("leaves ops in their scope, however short its name, and adds none that do nothing", function()
    local net = neap.net "scoped"
    net:input("x", { 4, 3 })
    net:scope("s", function() net:Mul({ "x", net:param("w", { 1, 3 }, 1) }, "y") end)
    net:gradient(net:Sum("s/y", "loss"))
    local n_op = 0
    for _, op in ipairs(net:expand({}):_ops()) do
      if op.name:find "^s/" then assert.are.equal("s", op.scope) end
      if op.outputs[1] == "s/y" then n_op = n_op + 1 end
      -- the sum of the weight's gradient keeps its dimensions
      assert.are_not.equal("Reshape", op.type)
    end
    assert.are.equal(1, n_op)
  end)

  it("gives no value of its own the name of a declared blob, be it the first and unused", function()
    for _, name in ipairs { "y.grad", "h.grad", "loss.grad" } do
      local net = neap.net "spare"
      net:input(name, { 1 })
      net:Exp(net:Mul({ net:input("x", { 3 }), net:param("w", { 3 }, 1) }, "h"), "y")
      net:gradient(net:Sum("y", "loss"))
      net:outputs "loss"
      local text = net:expand({}):text()
      assert.is_truthy(text:find("input " .. name .. " f32 (1)", 1, true), text)
      assert.is_truthy(text:find("grad " .. name .. "~2 of", 1, true), text)
    end
  end)

  it("gives each result of a loop a name of its own, though two are copies of one blob", function()
    local net = neap.net "twice"
    local w = net:param("w", { 2 }, 7)
    local _, a, b = net:While {
      init = { net:const(0), net:input("a", { 2 }), net:input("b", { 2 }) }, max = 5,
      cond = function(_, i) return i:lt(3) end, body = function(_, i) return i + 1, w, w end,
    }
    net:gradient(net:Sum(a * b, "loss"), { wrt = "w" })
    net:outputs { "loss", "w_grad" }
    for _, n in ipairs { net, net:expand {} } do
      local ws <close> = neap.workspace { store = false }
      local out = ws:run(n, { a = neap.ones(2), b = neap.ones(2) })
      assert.are.equal(98, out.loss:item())
      assert.is_true(out.w_grad:equal(neap.tensor { 14, 14 }))
    end
  end)

  it("says whose gradient each blob is, and so do its copies and its text read back", function()
    local net = neap.net "said"
    net:Exp(net:Mul({ net:input("x", { 4, 3 }), net:param("w", { 3 }, 1) }, "h"), "y")
    net:gradient(net:Sum("y", "loss"))
    local written = net:expand {}
    for _, one in ipairs { written, written:clone(), neap.net_from(written:text()) } do
      local of = {}
      for _, blob in ipairs(one:blobs()) do of[blob.name] = blob.gradient_of end
      assert.are.same({ ["loss.grad"] = "loss", ["y.grad"] = "y", ["h.grad"] = "h", w_grad = "w" },
        of)
    end
  end)

  it("refuses an op of more operands than it can write, and takes as many as it can", function()
    for n = 255, 300, 45 do
      local net, list = neap.net "wide", {}
      for k = 1, n do list[k] = net:input("x" .. k, { 1 }) end
      net:Concat(list, "y", { axis = 1 })
      net:outputs "y"
      if n < 256 then
        assert.are.equal(n, #net:expand({}):ops()[1].inputs)
      else
        raises("more than 256 operands", net.expand, net, {})
      end
    end
  end)
end)

describe("If", function()
  local function run(build, feeds)
    local net = neap.net "f"
    net:input("x", { 3 })
    net:input("c", {})
    local outs = table.pack(build(net))
    net:outputs(outs.n > 0 and outs or { "y" })
    local ws <close> = neap.workspace {}
    return ws:run(net, feeds), outs
  end

  it("takes the branch that the condition says and returns its results", function()
    for c, expected in pairs { [0] = { -1, 2, 3 }, [1] = { 0, 2, 3 } } do
      local r, outs = run(function(net)
        return (net:If("c", function(b) return b:Relu "x" end, function(b) return b:Copy "x" end))
      end, { x = { -1, 2, 3 }, c = c })
      assert.are.same(expected, r[outs[1].name]:totable())
    end
  end)

  it("writes outer blobs by name; without else they stay", function()
    for c, expected in pairs { [0] = { -1, 2, 3 }, [1] = { -2, 4, 6 } } do
      local r = run(function(net)
        net:Copy("x", "y")
        net:If("c", function(b) b:Add({ "y", "x" }, "y") end)
      end, { x = { -1, 2, 3 }, c = c })
      assert.are.same(expected, r.y:totable())
    end
  end)

  it("makes a name that both branches define", function()
    local r = run(function(net)
      net:If("c", function(b) b:Relu("x", "y") end, function(b) b:Copy("x", "y") end)
    end, { x = { -1, 2, 3 }, c = 1 })
    assert.are.same({ 0, 2, 3 }, r.y:totable())
  end)

  it("is differentiated through the branch taken", function()
    for c, slope in pairs { [0] = 1, [1] = 3 } do
      local net = neap.net "f"
      local w = net:param("w", { 2 }, 1)
      net:input("c", {})
      local y = net:If("c", function(b) return b:blob "w" * 3 end,
        function(b) return b:Copy "w" end)
      net:gradient(net:Sum(y, "loss"))
      net:outputs { "w_grad" }
      local ws <close> = neap.workspace {}
      assert.are.same({ slope, slope }, ws:run(net, { c = c }).w_grad:totable())
      assert.are.equal("w", w.name)
    end
  end)

  it("says what is wrong with the branches", function()
    local net = neap.net "f"
    net:input("x", { 3 })
    net:input("c", {})
    local text = net:text()
    raises("1 and 0", function() net:If("c", function(b) return b:Relu "x" end, function() end) end)
    raises("another one", function() net:If("c", function(b) return b:Relu "x" end) end)
    raises("functions", function() net:If("c", "x") end)
    assert.are.equal(text, net:text())
  end)
end)

describe("a finished net", function()
  it("reads back from its text", function()
    local net, loss = mlp()
    net:gradient(loss)
    net:outputs { loss }
    local again = neap.net_from(net:text())
    assert.are.equal(net:text(), again:text())
    assert.are.equal(net:hash(), again:hash())
  end)

  it("has a hash of what it computes, not of names", function()
    local a, b, c = neap.net "a", neap.net "b", neap.net "c"
    a:Relu(a:input("x", { 2 }), "y")
    b:Relu(b:input("in", { 2 }), "out")
    c:Sigmoid(c:input("x", { 2 }), "y")
    assert.are.equal(a:hash(), b:hash())
    assert.are_not.equal(a:hash(), c:hash())
  end)

  it("is cloned and renamed without touching the original", function()
    local net = mlp()
    local copy = net:clone()
    copy:Relu("y", "more")
    assert.are_not.equal(net:text(), copy:text())
    assert.is_truthy(net:rename { h = "hidden" }:text():find("hidden", 1, true))
    assert.is_nil(net:text():find("hidden", 1, true))
  end)

  it("infers with other input shapes", function()
    local net = mlp()
    assert.are.same({ 9, 3 }, net:infer({ x = { 9, 8 }, t = { 9 } }).y.shape)
    raises("did you mean", function() net:plan { bugdet = 1 } end)
    raises("unknown", function() net:infer { nothing = { 1 } } end)
  end)

  it("tells its memory without allocating it", function()
    local net, loss = mlp()
    net:gradient(loss)
    collectgarbage()
    local before = neap.memory().held
    local plan = net:plan {}
    assert.are.equal(before, neap.memory().held)
    assert.is_true(
      plan.lower_bound_bytes <= plan.arena_bytes and plan.arena_bytes <= plan.baseline_bytes)
    assert.is_true(plan:verify())
    local n_parameter = 16 * 8 + 16 + 3 * 16 + 3
    assert.is_true(plan.regions.parameters >= n_parameter * 4)
    assert.are.equal(plan.total_bytes, plan:forecast().total_bytes)
    assert.are.equal(n_parameter, plan:summary().parameters)
    assert.are.equal("h", plan:explain("h")[1].blob)
    assert.is_true(#plan:peak() > 0 and #plan:ops() > 0 and #plan:values() > 0)
    assert.is_truthy(tostring(plan:explain()):find "arena")
    raises("no blob", function() plan:explain "nothing" end)
  end)

  it("obeys the options of a plan", function()
    local net, loss = mlp()
    net:gradient(loss)
    local none, offset = net:plan { policy = "none" }, net:plan { policy = "offset" }
    assert.is_true(none.arena_bytes > offset.arena_bytes)
    assert.are.equal("none", none.policy)
    assert.are.equal("dag", net:plan({ executor = "dag" }).executor)
    assert.is_true(net:plan({ keep = "h" }).regions.io > offset.regions.io)
    local err = raises("", function() net:plan { budget = 16 } end)
    assert.are.equal("budget", err.code)
    assert.is_true(err.least_bytes > 16)
    assert.are.equal(offset.arena_bytes, net:plan({ budget = "100%" }).arena_bytes)
  end)
end)

describe("fit_batch", function()
  it("finds the largest batch that fits a budget, and raises when none does", function()
    local net, loss = mlp()
    net:gradient(loss)
    local budget = net:plan({ x = { 10, 8 }, t = { 10 } }).arena_bytes
    local n, plan = neap.fit_batch(net, { budget = budget, max = 64 })
    assert.is_true(n >= 10 and n < 64)
    assert.is_true(plan.arena_bytes <= budget)
    assert.is_true(net:plan({ x = { n + 1, 8 }, t = { n + 1 } }).arena_bytes > budget)
    assert.are.equal("budget", raises("", neap.fit_batch, net, { budget = 1 }).code)
  end)
end)

describe("dot", function()
  it("writes every op and blob as Graphviz", function()
    local text = mlp():dot()
    assert.is_truthy(text:find "digraph" and text:find "SoftmaxCrossEntropy" and text:find "w1")
    local _, open = text:gsub("{", "")
    local _, close = text:gsub("}", "")
    assert.are.equal(open, close)
  end)
end)

describe("a blob", function()
  --- y as a function of blob x (4,5) and of the tensor that is fed for it: the same numbers.
  local function same(f)
    local net, t = neap.net "f", neap.arange(0, 20):view(4, 5)
    local blob, tensor = f(net:input("x", { 4, 5 })), f(t)
    net:outputs { blob }
    local got = neap.workspace({ store = false }):run(net, { x = t })[blob.name]
    if type(tensor) == "number" then tensor = neap.tensor(tensor) end
    assert.are.same(tensor.shape, got.shape)
    assert.is_true(got:equal(tensor))
  end

  it("is indexed as a tensor is", function()
    same(function(x) return x[1] end)
    same(function(x) return x[-1] end)
    same(function(x) return x[{ 2, 3 }] end)
    same(function(x) return x[{ {}, -2 }] end)
    same(function(x) return x[{ { 2, 3 } }] end)
    same(function(x) return x[{ { 4, 1, -1 }, { 1, -1, 2 } }] end)
    same(function(x) return x:narrow(2, -3, 2) end)
    same(function(x) return x:select(1, -1) end)
    same(function(x) return x:transpose():reshape(2, 10) end)
    same(function(x) return x:unsqueeze { 1, 3 }:squeeze(1) end)
    same(function(x) return x:unsqueeze(2):expand(-1, 3, -1) end)
    same(function(x) return x:unsqueeze { axes = 2 }:squeeze { axes = 2 } end)
    same(function(x) return x:unsqueeze { axes = { 1, 3 } }:squeeze { axes = { 1, 3 } } end)
    same(function(x) return x:reshape { shape = 20 }:expand { shape = { 2, 20 } } end)
    local x = neap.net("f"):input("x", { 4, 5 })
    assert.are.equal(4, #x)
    assert.is_nil(x[5]) -- so that ipairs stops
    local n = 0
    for _ in ipairs(x) do n = n + 1 end
    assert.are.equal(4, n)
  end)

  it("refuses what a tensor refuses, too", function()
    for _, x in ipairs { neap.net("f"):input("x", { 1, 3 }), neap.ones(1, 3) } do
      raises("only a dimension of 1 can go", x.squeeze, x, 2)
      raises("only a dimension of 1 can go", x.squeeze, x, { axes = { 1, 2 } })
      raises("twice", x.squeeze, x, 1, 1)
      raises("\"foo\"", x.squeeze, x, { axes = 1, foo = 2 })
      raises("\"foo\"", x.reshape, x, { shape = { 3 }, foo = 2 })
      raises("\"foo\"", x.expand, x, { shape = { 2, 3 }, foo = 2 })
      raises("positions of the new dimensions", x.unsqueeze, x)
    end
  end)

  it("says what can't be known while the net is built, and what is out of range", function()
    local net = neap.net "f"
    local x = net:input("x", { 4, 5 })
    raises("out of range", function() return x[6] end)
    raises("count from 1", function() return x[0] end)
    raises("3 positions", function() return x[{ 1, 2, 3 }] end)
    raises("can't be assigned", function() x[1] = 3 end)
    for _, name in ipairs { "item", "totable", "set", "fill_", "apply_", "equal", "stats" } do
      raises("has no value while the net is built", function() return x[name](x) end)
    end
  end)

  it("takes numbers in its own dtype, and refuses to lose what they say", function()
    local net = neap.net "f"
    local x, flag = net:input("x", { 2 }, "i64"), net:input("flag", { 2 }, "bool")
    assert.are.equal("i64", (x + 1).dtype)
    assert.are.equal("i64", neap.where(flag, x, 0).dtype)
    assert.are.equal("f32", neap.where(flag, 1, 0).dtype)
    assert.are.equal("bool", flag:logical_and(true).dtype)
    raises("0.5 is no i64", function() return x + 0.5 end)
    local t = neap.tensor({ 1, 2 }, "i64")
    assert.are.equal("i64", neap.where(t:gt(1), t, 0).dtype)
    raises("0.5 is no i64", function() return t * 0.5 end)
    raises('"b", is nil', function() return t:add(nil) end)
  end)
end)

describe("what an op is given", function()
  it("by position means the record's attributes in order", function()
    local x = neap.arange(0, 6):view(2, 3)
    assert.are.same({ 3, 12 }, x:sum { 2 }:totable())
    assert.are.same({ 3, 12 }, x:sum(2):totable())
    assert.are.same({ { 3 }, { 12 } }, x:sum(2, true):totable())
    assert.are.equal(15, x:sum(1, 2):item())
    assert.are.equal(15, x:sum { 1, 2 }:item())
    assert.is_true(x:softmax(1):equal(x:softmax { axis = 1 }))
    assert.are.same({ { 1, 1, 2 }, { 3, 4, 4 } }, x:clamp(1, 4):totable())
    assert.are.same({ 4, 3 }, neap.concat({ x, x }, 1).shape)
    local net = neap.net "f"
    net:input("x", { 2, 3 })
    net:Sum("x", "y", { 2 })
    assert.are.same({ 2 }, net:blob("y").shape)
  end)

  it("and a name for an op is what it is called", function()
    local net = neap.net "f"
    net:input("x", { 2 })
    net:Relu("x", "y", nil, "here")
    net:op("Neg", "y", "z", nil, "there")
    assert.is_truthy(net:text():find("y = Relu(x) as here", 1, true))
    assert.is_truthy(net:text():find("z = Neg(y) as there", 1, true))
  end)

  it("and does not take raises", function()
    local x = neap.arange(0, 6):view(2, 3)
    local net = neap.net "f"
    net:input("x", { 2 })
    for what, f in pairs {
      ["twice"] = function() return x:sum(2, { axes = { 1 } }) end,
      ["takes 0 attributes"] = function() return x:relu(3) end,
      ["takes 1 attribute,"] = function() return x:softmax { 1, 2 } end,
      ["unknown attribute"] = function() return x:sum { axis = 2 } end,
      ["takes 1 argument, got 2"] = function() return x:to("f64", 3) end,
      ["neap.seed takes 1 argument, got 2"] = function() return neap.seed(1, 2) end,
      ["nothing behind it"] = function() return x:reshape({ 3, 2 }, 4) end,
      ['unknown field "foo"'] = function() return x[{ 1, foo = 2 }] end,
      ["Clamp: the op's name, behind its attributes, is a text, got a number"] = function(net)
        return net:Clamp("x", "y", { min = 3 }, 7)
      end,
      ["is a text, got a blob"] = function(net)
        return net:op("Relu", "x", nil, nil, net:blob "x")
      end,
      ["net:Relu takes 4 arguments, got 5"] = function(net)
        return net:Relu("x", nil, nil, "r", 5)
      end,
      ["net:op takes 5 arguments, got 6"] = function(net)
        return net:op("Relu", "x", nil, nil, "r", 5)
      end,
      ["without gaps"] = function() return x:reshape { 3, [3] = 2 } end,
      ["takes one table"] = function() return neap.zeros({ 2, 3 }, "f64") end,
      ['did you mean "trainable"'] = function()
        return neap.net("f"):param("w", { 2 }, 0, { trainabel = false })
      end,
      ['did you mean "share"'] = function()
        return neap.workspace({}):feed("x", x, { shared = true })
      end,
    } do
      raises(what, f, net)
    end
    assert.are.equal(0, select(2, net:text():gsub(" = ", "")))
  end)
end)

describe("the gradients of a net", function()
  it("are written by name as they are read: one update each", function()
    local net = neap.net "g"
    net:input("x", { 4, 3 })
    net:param("w", { 2, 3 }, 1.0)
    net:param("b", { 2 }, 0.0)
    local loss = net:Sum(net:FC { "x", "w", "b" }, "loss")
    local g = net:gradient(loss)
    g["w"] = net:Mul { g["w"], net:const(0.5) }
    local names = {}
    for p, d in pairs(g) do
      names[#names + 1] = p.name
      net:op("Sgd", { p, d, net:const(1.0) }, { p })
    end
    assert.are.same({ "w", "b" }, names)
    local ws <close> = neap.workspace { store = false }
    ws:run(net, { x = neap.ones(4, 3) })
    assert.are.equal(-1, ws:fetch("w"):totable()[1][1])
    g.b = nil
    for p in pairs(g) do assert.are.equal("w", p.name) end
  end)
end)
