-- Point 3 and Do of point 4: scopes in nets (CreateScope, HasScope, Do), the scope stack of a workspace, name scopes,
-- variable scopes, parameters shared between nets and within one.
local neap = require "neap"
local support = require "support"
local raises, settle = support.raises, support.settle

--- Runs a net on fresh bytes, without the database.
local function run(net, feeds, o)
  local ws <close> = neap.workspace { store = false, policy = o and o.policy, executor = o and o.executor }
  return ws:run(net, feeds)
end

--- A net with inputs a = (2), b = (2) and an empty scope s.
local function pair()
  local net = neap.net "f"
  net:input("a", { 2 })
  net:input("b", { 2 })
  net:CreateScope({}, "s")
  return net
end

local function add_body(d) d:Add({ "x", "y" }, "z") end

local feeds = { a = neap.tensor { 1, 2 }, b = neap.tensor { 3, 4 } }

--- Op level, so that each list of the record can be wrong: the body is `text`.
local function do_text(body, line)
  return neap.net_from(("net f\ninput a f32 (2)\ninput b f32 (2)\ninput w f32 (2)\ns = CreateScope()\nt = CreateScope()\nsubnet body closed\n%s\nend\n%s\n")
    :format(body, line))
end

local xyz = "input x\ninput y\nz = Add(x, y)"

describe("Do", function()
  it("computes [1,2]+[3,4] through bindings: [4,6]", function()
    local net = pair()
    local c = net:Do { bindings = { x = "a", y = "b", z = "c" }, scope = "s", body = add_body }
    assert.are.equal("c", c.name)
    assert.are.same({ 4, 6 }, run(net, feeds).c:totable())
  end)

  it("with reuse reads the locals of the Do before it: 3", function()
    local net = neap.net "f"
    net:CreateScope({}, "s")
    net:Do { scope = "s", body = function(d)
      d:Constant({}, "one", { shape = { 1 }, value = 1 })
      d:Constant({}, "two", { shape = { 1 }, value = 2 })
    end }
    net:Do { scope = "s", reuse = true, bindings = { sum = "three" }, body = function(d) d:Add({ "one", "two" }, "sum") end }
    assert.are.same({ 3 }, run(net, {}).three:totable())
  end)

  it("reads back from its text, runs the same then, and clones", function()
    local net = pair()
    net:Do { bindings = { x = "a", y = "b", z = "c" }, scope = "s", body = add_body }
    net:Do { bindings = { x = "a" }, scope = "s", reuse = true, copy = false, body = function(d) return d:Mul { "x", "x" } end }
    local back = neap.net_from(net:text())
    assert.are.equal(net:text(), back:text())
    assert.are.equal(net:text(), net:clone():text())
    assert.are.equal(net:hash(), back:hash())
    assert.are.same({ 4, 6 }, run(back, feeds).c:totable())
  end)

  it("takes a net as its body", function()
    local body = neap.net "sum"
    body:input("x", { 2 })
    body:input("y", { 2 })
    body:Add({ "x", "y" }, "z")
    local net = pair()
    net:Do { bindings = { x = "a", y = "b", z = "c" }, scope = "s", body = body }
    assert.are.same({ 4, 6 }, run(net, feeds).c:totable())
  end)

  it("gives what its body returns, with a shape that layers can ask for", function()
    local net = pair()
    local r = net:Do { bindings = { x = "a", y = "b" }, scope = "s", body = function(d) return d:Concat({ "x", "y" }, "both", { axis = 1 }) end }
    assert.are.same({ 4 }, r.shape)
    assert.are.same({ 1, 2, 3, 4 }, run(net, feeds)[r.name]:totable())
  end)

  it("lets the body see bound names only: no name falls through", function()
    local net = pair()
    raises("\"b\" is not defined here", net.Do, net, { bindings = { x = "a" }, scope = "s", body = function(d) d:Add { "x", "b" } end })
    raises("belongs to another net", net.Do, net, { bindings = { x = "a" }, scope = "s", body = function(d) d:Add { "x", net:blob "b" } end })
  end)

  it("keeps locals of two frames apart, and two bodies of one name on one scope", function()
    local function body(op) return neap.net_from("net body\ninput x f32 (2)\ny = " .. op .. "(x)\n") end
    local net = pair()
    net:Do { bindings = { x = "a", y = "c" }, scope = "s", body = body "Neg" }
    net:Do { bindings = { x = "a", y = "d" }, scope = "s", body = body "Exp" }
    local out = run(net, feeds)
    assert.are.same({ -1, -2 }, out.c:totable())
    assert.is_true(out.d:close(neap.tensor { math.exp(1), math.exp(2) }))
  end)

  it("notices a reuse with other bindings: each Do reads what it binds itself", function()
    local net = pair()
    net:Do { bindings = { x = "a", y = "c" }, scope = "s", body = function(d) d:Neg("x", "y") end }
    net:Do { bindings = { x = "b", y = "d" }, scope = "s", reuse = true, body = function(d) d:Neg("x", "y") end }
    local out = run(net, feeds)
    assert.are.same({ -1, -2 }, out.c:totable())
    assert.are.same({ -3, -4 }, out.d:totable())
  end)

  it("with reuse on an empty scope makes a frame", function()
    local net = pair()
    net:Do { bindings = { x = "a" }, scope = "s", reuse = true, body = function(d) d:Neg("x", "n") end }
    net:HasScope("s", "has")
    net:Do { scope = "s", reuse = true, bindings = { m = "out" }, body = function(d) d:Neg("n", "m") end }
    local out = run(net, feeds)
    assert.are.same({ 1, 2 }, out.out:totable())
    assert.are.same({ true }, out.has:totable())
  end)

  it("with copies keeps the bound blobs in the frame, as they were", function()
    local net = neap.net "f"
    local w, lr = net:param("w", { 1 }, 5), net:input("lr", {})
    net:CreateScope({}, "s")
    net:Do { bindings = { x = "w", y = "c" }, scope = "s", copy = true, body = function(d) d:Mul({ "x", "x" }, "y") end }
    net:Sgd({ w, net:const(1):reshape(1), lr }, w) -- w is 4 from here on
    net:Do { bindings = { z = "d" }, scope = "s", reuse = true, body = function(d) d:Add({ "x", "y" }, "z") end }
    net:Copy("w", "now")
    local out = run(net, { lr = neap.tensor(1) })
    assert.are.same({ 25 }, out.c:totable())
    assert.are.same({ 30 }, out.d:totable()) -- 5 and 25, not 4
    assert.are.same({ 4 }, out.now:totable())
  end)

  it("writes a bound parameter where it lies", function()
    local net = neap.net "f"
    net:param("w", { 2 }, 1)
    net:input("g", { 2 })
    net:input("lr", {})
    net:CreateScope({}, "s")
    net:Do { bindings = { p = "w", g = "g", lr = "lr" }, scope = "s", body = function(d) d:Sgd({ "p", "g", "lr" }, "p") end }
    net:outputs { "w" }
    local ws <close> = neap.workspace { store = false }
    ws:run(net, { g = neap.tensor { 1, 2 }, lr = 0.5 })
    assert.are.same({ 0.5, 0 }, ws:run(net, { g = neap.tensor { 0, -1 + 1 }, lr = 0.5 }).w:totable())
  end)

  it("nests, with a scope inside the body", function()
    local net = pair()
    net:Do { bindings = { x = "a", z = "c" }, scope = "s", body = function(d)
      d:CreateScope({}, "inner")
      d:Do { bindings = { u = "x", v = "y" }, scope = "inner", body = function(e) e:Neg("u", "v") end }
      d:Add({ "y", "y" }, "z")
    end }
    assert.are.same({ -2, -4 }, run(net, feeds).c:totable())
  end)

  it("is planned like any ops: same bits under every policy and schedule, and locals can be kept and fetched", function()
    local function build()
      local net = neap.net "f"
      local x, w = net:input("x", { 8, 16 }), net:param("w", { 16, 16 }, neap.init.xavier {})
      net:CreateScope({}, "s")
      for _ = 1, 3 do
        net:Do { bindings = { x = x, w = w }, scope = "s", body = function(d) d:Tanh(d:FC { "x", "w" }, "h") end }
      end
      local y = net:Do { bindings = { w = w }, scope = "s", reuse = true, body = function(d) return d:FC { "h", "w" } end }
      net:gradient(net:Mean(net:Mul { y, y }, "loss"))
      return net:outputs { "loss", "w_grad" }
    end
    neap.seed(3)
    local x, first = { x = neap.randn(8, 16) }, nil
    for _, o in ipairs { { policy = "none" }, { policy = "name" }, { policy = "offset" }, { policy = "none", executor = "dag" }, { executor = "dag" } } do
      for _, poison in ipairs { false, true } do
        local ws <close> = neap.workspace { seed = 1, store = false, policy = o.policy, executor = o.executor }
        ws:poison(poison)
        local out = ws:run(build(), x)
        first = first or out
        assert.is_true(first.loss:equal(out.loss) and first.w_grad:equal(out.w_grad))
      end
    end
    local plain = build():plan { policy = "none" }
    assert.is_true(build():plan { keep = "s.2/h" }.arena_bytes < plain.arena_bytes)
    local ws <close> = neap.workspace { store = false }
    ws:keep "s.3/h"
    local program = ws:compile(build(), { keep = { "s.3/h" } })
    ws:feed("x", x.x)
    program:run()
    assert.are.same({ 8, 16 }, ws:fetch("s.3/h").shape)
  end)

  it("lets gradients through, of two frames in reverse order", function()
    local net = neap.net "f"
    local x = net:param("x", { 1 }, 3)
    net:CreateScope({}, "s")
    net:Do { bindings = { u = x, v = "y" }, scope = "s", body = function(d) d:Mul({ "u", "u" }, "v") end }
    net:Do { bindings = { u = "y", v = "z" }, scope = "s", body = function(d) d:Mul({ "u", "u" }, "v") end }
    net:gradient(net:Sum("z", "loss"))
    assert.are.same({ 4 * 27 }, run(net:outputs { "x_grad" }, {}).x_grad:totable())
    local order = {}
    for frame in net:expand({}):text():gmatch "s%.(%d)/mul_1%.%u" do order[#order + 1] = frame end
    assert.are.equal("2", order[1])
    assert.are.equal("1", order[#order])
  end)

  it("keeps a local that a later Do reads, though an op before it could take it in", function()
    local net = neap.net "f"
    local x = net:input("x", { 4, 3 })
    net:param("g", { 3 }, 1)
    net:param("b", { 3 })
    net:CreateScope({}, "s")
    -- BatchNorm and Relu become one op, unless somebody reads what lies between them.
    net:Do { bindings = { x = x, g = "g", b = "b", r = "r" }, scope = "s", body = function(d)
      d:BatchNorm({ "x", "g", "b" }, "norm", { training = true })
      d:Relu("norm", "r")
    end }
    net:gradient(net:Mean("r", "loss"))
    net:Do { bindings = { n = "n" }, scope = "s", reuse = true, body = function(d) d:Neg("norm", "n") end }
    net:outputs { "r", "n" }
    local out = run(net, { x = neap.tensor { { 1, 2, 3 }, { 4, 6, 8 }, { 0, 0, 0 }, { 5, 5, 5 } } })
    assert.is_true(out.r:equal((-out.n):maximum(neap.tensor(0))))
  end)

  it("may hold the gradient itself", function()
    local net = neap.net "f"
    net:param("w", { 1 }, 3)
    net:CreateScope({}, "s")
    net:Do { bindings = { w = "w", dw = "g" }, scope = "s", body = function(d)
      local l = d:Sum(d:Mul { "w", "w" })
      d:op("Gradient", { l, "w" }, "dw")
    end }
    assert.are.same({ 6 }, run(net, {}).g:totable())
  end)

  it("names every construction error, and where", function()
    local y = "c, s = Do(a, b, s) { net = body, "
    raises("attribute \"net\" is missing", do_text, xyz, "c, s = Do(a, b, s) { inner_blobs = {x, y, z}, outer_blobs_idx = {0,1,2} }")
    raises("exclude each other", do_text, xyz, y .. "inner_blobs = {x, y, z}, outer_blobs_idx = {0,1,2}, reuse_workspace = true, copy_external_blobs = true }")
    raises("inner_blobs has 3 names, outer_blobs_idx 2", do_text, xyz, y .. "inner_blobs = {x, y, z}, outer_blobs_idx = {0,1} }")
    raises("inner blob \"x\" is bound twice", do_text, xyz, y .. "inner_blobs = {x, x, z}, outer_blobs_idx = {0,1,2} }")
    raises("is bound to outer blob 3, there are 3", do_text, xyz, y .. "inner_blobs = {x, y, z}, outer_blobs_idx = {0,1,3} }")
    raises("outer blob \"a\" is bound twice", do_text, xyz, y .. "inner_blobs = {x, y, z}, outer_blobs_idx = {0,0,2} }")
    raises("outer blob \"b\" is not bound", do_text, xyz, y .. "inner_blobs = {x, z}, outer_blobs_idx = {0,2} }")
    raises("inputs 1 and 2 are both \"a\"", do_text, xyz, "c, s = Do(a, a, s) { net = body, inner_blobs = {x, y, z}, outer_blobs_idx = {0,1,2} }")
    raises("outputs 1 and 2 are both", do_text, xyz, "c, c, s = Do(a, b, s) { net = body }")
    raises("expects at least 1 input", do_text, xyz, "c, s = Do() { net = body }")
    raises("expects at least 1 output", do_text, xyz, "Do(a, b, s) { net = body } as d")
    raises("expects a tensor, \"s\" is a scope", do_text, xyz, "c, s = Do(s, a, b) { net = body }")
    raises("last input and its last output must be the same scope", do_text, xyz, "c, t = Do(a, b, s) { net = body }")
    raises("output blobs can't be \"a\", which is a tensor", do_text, xyz, "c, a = Do(a, b, s) { net = body }")
    raises("neither bound nor a local of scope", do_text, xyz, "c, s = Do(a, s) { net = body, inner_blobs = {x, z}, outer_blobs_idx = {0,1} }")
    -- A reused frame has what bodies wrote and copies of what was bound, not the bound names of a Do that made no copies.
    for _, case in ipairs { { "", "x" }, { ", copy_external_blobs = true", "other" } } do
      local more = ("subnet more closed\ninput %s\nn = Neg(%s)\nend\n"):format(case[2], case[2])
      raises(("reads %q, which is neither bound nor a local of scope"):format(case[2]), do_text, xyz,
        y .. "inner_blobs = {x, y, z}, outer_blobs_idx = {0,1,2}" .. case[1] .. " }\n" .. more .. "s = Do(s) { net = more, reuse_workspace = true } as again")
    end
    raises("never writes \"q\"", do_text, xyz, y .. "inner_blobs = {x, y, q}, outer_blobs_idx = {0,1,2} }")
    raises("an input only", do_text, "input x\nx = Neg(x)", "s = Do(a, s) { net = body, inner_blobs = {x}, outer_blobs_idx = {0} } as d")
    raises("the body declares parameter \"p\"", do_text, "param p f32 (2)", "s = Do(s) { net = body } as d")
    raises("must be a closed subnet", neap.net_from, "net f\ns = CreateScope()\nsubnet open\nend\ns = Do(s) { net = open } as d")
    local err = raises("Do \"do_1\"", do_text, xyz, y .. "inner_blobs = {x, z}, outer_blobs_idx = {0,2} } as do_1")
    assert.are.equal("Do", err.op)
    local net = pair()
    local before = net:text()
    raises("the body is missing", net.Do, net, { bindings = {}, scope = "s" })
    raises("the scope is missing", net.Do, net, { bindings = {}, body = add_body })
    raises("did you mean", net.Do, net, { binding = {}, scope = "s", body = add_body })
    raises("never writes", net.Do, net, { bindings = { q = "new" }, scope = "s", body = function(d) d:Constant({}, "k", { shape = { 1 } }) end })
    assert.are.equal(before, net:text())
  end)

  it("in a branch works on a scope of the net around, or on one of the branch's own", function()
    local net = pair()
    local cond = net:input("cond", {}, "bool")
    net:If(cond, function(b)
      b:Do { bindings = { x = "a" }, scope = "s", body = function(d) d:Neg("x", "k") end }
    end, function(b)
      b:Do { bindings = { x = "b" }, scope = "s", body = function(d) d:Neg("x", "k") end }
    end)
    local k = net:Do { scope = "s", reuse = true, body = function(d) return d:Copy "k" end }
    assert.are.same({ -1, -2 }, run(net, { a = feeds.a, b = feeds.b, cond = true })[k.name]:totable())
    assert.are.same({ -3, -4 }, run(net, { a = feeds.a, b = feeds.b, cond = false })[k.name]:totable())
    local y = net:If(cond, function(b)
      b:CreateScope({}, "own")
      return b:Do { bindings = { x = "a" }, scope = "own", body = function(d) return d:Neg "x" end }
    end, function(b) return b:Copy "a" end)
    assert.are.same({ -1, -2 }, run(net, { a = feeds.a, b = feeds.b, cond = true })[y.name]:totable())
  end)
end)

describe("Do in the body of a While", function()
  --- Doubles x three times, each time by a Do on scope `s`.
  local function doubling(create_inside)
    local net = neap.net "f"
    net:param("x", { 1 }, 5)
    net:CreateScope({}, "s")
    local function one(value) return net:const(value):reshape(1) end
    local _, y = net:While { init = { one(0), "x" }, max = 3, cond = function(b, i) return b:Lt { i, b:const(3):reshape(1) } end,
      body = function(b, i, v)
        if create_inside then b:CreateScope({}, "s") end
        local doubled = b:Do { bindings = { u = v }, scope = "s", body = function(d) return d:Add { "u", "u" } end }
        return b:Add { i, b:const(1):reshape(1) }, doubled
      end }
    net:gradient(net:Sum(y, "loss"))
    return net:outputs { "loss", "x_grad" }
  end

  it("works on a scope that the body creates, gradient included", function()
    for _, o in ipairs { {}, { policy = "none" }, { executor = "dag" } } do
      local out = run(doubling(true), {}, o)
      assert.are.equal(40, out.loss:item())
      assert.are.same({ 8 }, out.x_grad:totable())
    end
  end)

  it("works on a scope of the net around, which each iteration pushes a frame on", function()
    for _, o in ipairs { {}, { policy = "none" }, { executor = "dag" } } do
      local out = run(doubling(false), {}, o)
      assert.are.equal(40, out.loss:item())
      assert.are.same({ 8 }, out.x_grad:totable())
    end
  end)

  it("on a scope of the net around is an error in a text, which can't hand frames in", function()
    local err = raises("scope \"s\" belongs to net \"f\"", neap.net_from, [[net f
input c bool ()
s = CreateScope()
subnet branch
subnet body closed
k = Constant() { shape = {1} }
end
s = Do(s) { net = body }
end
If(c) { then_net = branch }]])
    assert.are.equal("create the scope inside the branch or body", err.hint)
  end)
end)

-- ---- what depends on the run ---------------------------------------------------------------------------------------------------

describe("A scope in branches and loops", function()
  --- Inputs n () and c () bool, a scope s.
  local function net_of()
    local net = neap.net "f"
    net:input("n", {})
    net:input("c", {}, "bool")
    net:CreateScope({}, "s")
    return net
  end

  --- A Do on s that makes local h of a number.
  local function push(b, value, name)
    b:Do { scope = "s", body = function(d) d:Constant({}, name or "h", { shape = { 1 }, value = value }) end }
  end

  local function read(b, name)
    return b:Do { scope = "s", reuse = true, body = function(d) return d:Copy(name or "h") end }
  end

  local function times(b, f)
    return b:While { init = { b:const(0) }, max = 5, cond = function(q, i) return q:Lt { i, "n" } end, body = function(q, i)
      f(q, i)
      return i + 1
    end }
  end

  it("has a frame if the branch that pushes one was taken; HasScope is a condition of an If", function()
    local net = net_of()
    net:If("c", function(b) push(b, 1) end)
    local has = net:HasScope("s", "has")
    local y = net:If(has, function(b) return b:const(7) end, function(b) return b:const(8) end)
    net:outputs { "has", y }
    for _, text in ipairs { false, true } do
      local case = text and neap.net_from(net:text()) or net
      if text then
        case:HasScope("s", "later")
        case:outputs { "has", y.name, "later" }
      end
      for _, taken in ipairs { true, false } do
        local out = run(case, { c = taken, n = 0 })
        assert.are.equal(taken, out.has[1])
        assert.are.equal(taken and 7 or 8, out[y.name]:item())
        if text then assert.are.equal(taken, out.later[1]) end
      end
    end
  end)

  it("has a frame if the loop has run; each iteration sees what the ones before pushed", function()
    local net = net_of()
    net:Constant({}, "sum", { shape = { 1 }, value = 0 })
    times(net, function(b)
      b:Add({ "sum", b:HasScope "s":cast { to = "f32" } }, "sum")
      push(b, 1)
    end)
    net:HasScope("s", "has")
    net:outputs { "has", "sum" }
    for n, want in pairs { [0] = { false, 0 }, { true, 0 }, { true, 1 }, { true, 2 } } do
      local out = run(net, { c = true, n = n })
      assert.are.same(want, { out.has[1], out.sum[1] })
    end
  end)

  it("hands locals from one iteration's frame to the next one's, and behind the loop, with gradients", function()
    local net = net_of()
    net:param("x", { 1 }, 3)
    net:Do { scope = "s", bindings = { x = "x" }, body = function(d) d:Copy("x", "h") end }
    times(net, function(b)
      local z = b:Do { scope = "s", reuse = true, body = function(d) return d:Mul { "h", "h" } end }
      b:Do { scope = "s", bindings = { z = z }, body = function(d) d:Copy("z", "h") end }
    end)
    net:gradient(net:Sum(read(net), "loss"))
    net:outputs { "loss", "x_grad" }
    for n, want in pairs { [0] = { 3, 1 }, { 9, 6 }, { 81, 4 * 27 } } do
      for _, o in ipairs { {}, { policy = "none" }, { executor = "dag" } } do
        local out = run(net, { c = true, n = n }, o)
        assert.are.same(want, { out.loss:item(), out.x_grad[1] })
      end
    end
  end)

  it("may be asked in the condition of a loop", function()
    local net = net_of()
    local i = net:While { init = { net:const(0) }, max = 9, cond = function(b) return b:LogicalNot(b:HasScope "s") end,
      body = function(b, i)
        b:If(i:ge(3), function(q) push(q, 1) end)
        return i + 1
      end }
    assert.are.equal(4, run(net:outputs { i }, { c = true, n = 0 })[i.name]:item())
  end)

  it("refuses what some ways through the net do not make, and says where", function()
    local net = net_of()
    push(net, 1, "g")
    net:If("c", function(b) push(b, 2) end)
    net:const(0) -- of the loop below
    local before = net:text()
    local err = raises("local \"h\" of scope \"s\" is there only if a branch was taken", read, net)
    assert.are.equal("h", err.blob)
    raises("local \"g\" of scope \"s\" is there only if", read, net, "g")
    raises("is there only if", times, net, function(b) read(b) end)
    assert.are.equal(before, net:text())
    push(net, 3)
    raises("which leaves a frame without it to the next iteration", times, net, function(b)
      read(b)
      push(b, 2, "k")
    end)
    raises("the condition pushes a frame on scope \"s\"", net.While, net, { init = { net:const(0) }, max = 2, body = function(_, i) return i end,
      cond = function(b, i)
        push(b, 1)
        return i:lt(2)
      end })
    raises("is written by the condition", net.While, net, { init = { net:const(0) }, max = 2, body = function(_, i) return i end,
      cond = function(b, i)
        b:Do { scope = "s", reuse = true, body = function(d) d:Constant({}, "h", { shape = { 1 }, value = 2 }) end }
        return i:lt(2)
      end })
    raises("which has been used here before", net.If, net, "c", function(b)
      b:HasScope "s"
      b:CreateScope({}, "s")
    end)
    local y = read(net)
    assert.are.same({ 3 }, run(net:outputs { y }, { c = true, n = 0 })[y.name]:totable())
  end)

  it("refuses a local of two types", function()
    local net = net_of()
    local function wide(b) b:Do { scope = "s", body = function(d) d:Constant({}, "h", { shape = { 2 }, value = 1 }) end } end
    local err = raises("local \"h\" of scope \"s\" is f32 (1) on one way through net \"f\", f32 (2) on another", net.If, net, "c",
      function(b) push(b, 1) end, wide)
    assert.are.equal("f32 (2)", err.got)
    push(net, 1)
    raises("is f32 (1) on one way", net.If, net, "c", wide)
    raises("is f32 (1) on one way", times, net, wide)
    net:If("c", wide, wide)
    assert.are.same({ 2 }, read(net).shape)
  end)

  it("holds in the body of a Do, in a Recurrent, under names with a path, and in a copy of the net", function()
    local net = net_of()
    net:input("x", { 4, 1 })
    net:scope("block", function()
      net:CreateScope({}, "t")
      net:If("c", function(b) b:Do { scope = "t", body = function(d) d:Constant({}, "h", { shape = { 1 }, value = 1 }) end } end)
      net:HasScope("t", "has")
    end)
    push(net, 0)
    local rows = net:Recurrent { seq = { "x" }, step = function(b, x)
      return b:Do { scope = "s", reuse = true, bindings = { x = x }, body = function(d)
        d:Add({ "h", "x" }, "h")
        return d:Copy "h"
      end }
    end }
    local last = read(net)
    net:Do { scope = "s", bindings = { c = "c", out = "inner" }, body = function(d)
      d:CreateScope({}, "u")
      d:If("c", function(b) b:Do { scope = "u", body = function(e) e:Constant({}, "h", { shape = { 1 }, value = 1 }) end } end)
      d:Copy(d:HasScope "u", "out")
    end }
    net:outputs { rows, last, "block/has", "inner" }
    for _, copy in ipairs { net, net:clone(), neap.net_from(net:text()) } do
      for _, taken in ipairs { true, false } do
        local out = run(copy, { n = 0, c = taken, x = neap.tensor { { 1 }, { 2 }, { 3 }, { 4 } } })
        assert.are.same({ { 1 }, { 3 }, { 6 }, { 10 } }, out[rows.name]:totable())
        assert.are.same({ 10, taken, taken }, { out[last.name][1], out["block/has"][1], out.inner[1] })
      end
    end
  end)

  it("returns from If and While what was asked for, and no blob of its own", function()
    local net = net_of()
    assert.are.equal(0, select("#", net:If("c", function(b) push(b, 1) end)))
    assert.are.equal(1, select("#", net:If("c", function(b) push(b, 1) return b:const(1) end, function(b) return b:const(2) end)))
    assert.are.equal(1, select("#", times(net, function(b) push(b, 1) end)))
  end)

  -- Random programs, built as nets and run on a stack of tables: what a net reads must be what the stack holds.
  it("holds what a stack of tables holds, in random programs of branches and loops", function()
    local draw, names = math.random, { "g", "h" }
    local function program(depth, n)
      local list = {}
      for i = 1, n do
        local kind = ({ "push", "push", "write", "read", "add", "has", "create", "if", "while" })[draw(depth > 0 and 9 or 6)]
        local p = { kind = kind, name = names[draw(2)], value = draw(9), both = draw(3) == 1 }
        if kind == "create" and depth < 3 then p.kind = "has" end -- within a branch it would be another scope
        if kind == "if" or kind == "while" then p[1] = program(depth - 1, draw(3)) end
        if kind == "if" and draw(3) > 1 then p[2] = program(depth - 1, draw(3)) end
        list[i] = p
      end
      return list
    end
    local n_input
    local add = {}
    local function build(net, b, list) -- -> the ops that were not refused
      local kept = {}
      for _, p in ipairs(list) do
        local ok, err = pcall(add[p.kind], net, b, p)
        if ok then
          kept[#kept + 1] = p
        else
          local text = tostring(err)
          assert.is_true(text:find "is not defined here" ~= nil or text:find "is there only if" ~= nil or text:find "leaves a frame without it" ~= nil, text)
        end
      end
      return kept
    end
    local function input(net, p, dtype)
      n_input = n_input + 1
      p.feed = "feed" .. n_input
      net:input(p.feed, {}, dtype)
    end
    local function constants(p)
      return function(d)
        d:Constant({}, p.name, { shape = { 1 }, value = p.value })
        if p.both then d:Constant({}, p.name == "g" and "h" or "g", { shape = { 1 }, value = p.value + 10 }) end
      end
    end
    function add.push(_, b, p) b:Do { scope = "s", body = constants(p) } end
    function add.write(_, b, p) b:Do { scope = "s", reuse = true, body = constants(p) } end
    function add.add(_, b, p)
      b:Do { scope = "s", reuse = true, body = function(d) d:Add({ p.name, d:Constant({}, "one", { shape = { 1 }, value = 1 }) }, p.name) end }
    end
    function add.read(_, b, p) b:Add({ "sum", read(b, p.name) * p.value }, "sum") end
    function add.has(_, b, p) b:Add({ "sum", b:HasScope "s":cast { to = "f32" } * p.value }, "sum") end
    function add.create(_, b) b:CreateScope({}, "s") end
    add["if"] = function(net, b, p)
      input(net, p, "bool")
      b:If(p.feed, function(q) p.yes = build(net, q, p[1]) end, p[2] and function(q) p.no = build(net, q, p[2]) end)
    end
    add["while"] = function(net, b, p)
      input(net, p, "f32")
      b:While { init = { b:const(0) }, max = 3, cond = function(q, i) return q:Lt { i, p.feed } end, body = function(q, i)
        p.yes = build(net, q, p[1])
        return i + 1
      end }
    end
    local function walk(list, stack, fed)
      for _, p in ipairs(list) do
        if p.kind == "push" or p.kind == "write" and #stack == 0 then stack[#stack + 1] = {} end
        local top = stack[#stack]
        if p.kind == "push" or p.kind == "write" then
          top[p.name] = p.value
          if p.both then top[p.name == "g" and "h" or "g"] = p.value + 10 end
        elseif p.kind == "add" then
          top[p.name] = top[p.name] + 1
        elseif p.kind == "read" then
          stack.sum = stack.sum + top[p.name] * p.value
        elseif p.kind == "has" then
          stack.sum = stack.sum + (top and p.value or 0)
        elseif p.kind == "create" then
          for i = #stack, 1, -1 do stack[i] = nil end
        elseif p.kind == "if" then
          walk(fed[p.feed] and p.yes or not fed[p.feed] and p.no or {}, stack, fed)
        else
          for _ = 1, fed[p.feed] do walk(p.yes, stack, fed) end
        end
      end
    end
    math.randomseed(7)
    local n_read = 0
    for case = 1, 60 do
      local net = neap.net "f"
      net:Constant({}, "sum", { shape = { 1 }, value = 0 })
      net:CreateScope({}, "s")
      n_input = 0
      local kept = build(net, net, program(3, 7))
      net:outputs { "sum" }
      local ws <close> = neap.workspace { store = false, policy = case % 3 == 1 and "none" or nil, executor = case % 3 == 2 and "dag" or nil }
      ws:poison(true)
      for _ = 1, 3 do
        local fed, stack = {}, { sum = 0 }
        for _, blob in ipairs(net:inputs()) do
          if blob.dtype == "bool" then fed[blob.name] = draw(2) == 1 else fed[blob.name] = draw(0, 2) end
        end
        walk(kept, stack, fed)
        assert.are.equal(stack.sum, ws:run(net, fed).sum[1])
        if stack.sum ~= 0 then n_read = n_read + 1 end
      end
    end
    assert.is_true(n_read > 90)
  end)
end)

describe("CreateScope and HasScope", function()
  it("say whether the scope has a frame, as one bool; creating it again empties it", function()
    local net = pair()
    net:HasScope("s", "before")
    net:Do { bindings = { x = "a" }, scope = "s", body = function(d) d:Neg "x" end }
    net:HasScope("s", "after")
    net:CreateScope({}, "s")
    net:HasScope("s", "again")
    local out = run(net, feeds)
    assert.are.same({ 1 }, out.before.shape)
    assert.are.equal("bool", out.before.dtype)
    assert.are.same({ false, true, false }, { out.before[1], out.after[1], out.again[1] })
  end)

  it("leave a scope that is no tensor: no op, output, keep or gradient takes it", function()
    local net = pair()
    raises("expects a tensor, \"s\" is a scope", net.Relu, net, "s")
    raises("is a scope, no tensor", net.outputs, net, { "s" })
    raises("is a scope, no tensor", net.keep, net, "s")
    raises("which is a scope", net.Relu, net, "a", "s")
    raises("which is a tensor", net.CreateScope, net, {}, "a")
    raises("expects a scope, \"a\" is a tensor", net.HasScope, net, "a")
  end)

  it("have no gradient: asking for one is an error", function()
    local net = pair()
    net:HasScope("s", "has")
    local loss = net:Sum("a", "loss")
    raises("\"s\" is a scope", net.gradient, net, loss, { wrt = { "s" } })
    raises("\"has\" is bool: only floating-point blobs have a gradient", net.gradient, net, loss, { wrt = { "has" } })
  end)
end)

-- ---- between nets --------------------------------------------------------------------------------------------------------------

describe("A scope shared between nets", function()
  --- a pushes a frame with h = -x where `c` is not zero; without = what else it does.
  local function first(without)
    local net = neap.net "a"
    net:input("x", { 2 })
    net:input("c", {}, "bool")
    net:CreateScope({}, "s")
    local function frame(op)
      return function(b) b:Do { scope = "s", bindings = { x = "x" }, body = function(d) d:op(op, "x", "h") end } end
    end
    net:If("c", frame "Neg", not without and frame "Exp" or nil)
    net:export_scope "s"
    return net:outputs { net:Abs "x" }
  end

  local function second(a)
    local net = neap.net "b"
    net:import_scope("s", a)
    local y = net:Do { scope = "s", reuse = true, body = function(d) return d:Add { "h", "h" } end }
    return net:outputs { y }, y.name
  end

  local function asks(a)
    local net = neap.net "asks"
    net:import_scope("s", a)
    net:HasScope("s", "has")
    return net:outputs { "has" }
  end

  it("has a frame once the net that pushes it has run, and the locals of its last run", function()
    for _, o in ipairs { {}, { policy = "none" }, { policy = "pool" }, { executor = "dag" } } do
      local ws <close> = neap.workspace { store = false, policy = o.policy, executor = o.executor }
      ws:poison(true)
      local a = first()
      local b, y = second(a)
      assert.is_false(ws:run(asks(a)).has[1])
      raises("\"s.shared/h\" has not been fed", ws.run, ws, b)
      ws:run(a, { x = neap.tensor { 1, 2 }, c = true })
      assert.is_true(ws:run(asks(a)).has[1])
      assert.are.same({ -2, -4 }, ws:run(b)[y]:totable())
      ws:run(a, { x = neap.tensor { 0, 0 }, c = false })
      assert.are.same({ 2, 2 }, ws:run(b)[y]:totable())
      local other <close> = neap.workspace { store = false }
      assert.is_false(other:run(asks(a)).has[1])
    end
  end)

  it("says after each run whether that one has pushed a frame, as a condition of an If in another net", function()
    local ws <close> = neap.workspace { store = false }
    local a, b = first(true), neap.net "b"
    b:import_scope("s", a)
    local y = b:If(b:HasScope "s", function(q) return q:const(1) end, function(q) return q:const(2) end)
    b:outputs { y }
    for i, taken in ipairs { true, false, true } do
      ws:run(a, { x = neap.tensor { i, i }, c = taken })
      assert.are.equal(taken and 1 or 2, ws:run(b)[y.name]:item())
    end
    raises("is not defined here", second, a) -- h is there on one way only
  end)

  it("is read in branches and loops of the other net, whose own frames stay its own", function()
    local ws <close> = neap.workspace { store = false }
    local a, b = first(), neap.net "b"
    b:import_scope("s", a)
    b:input("n", {})
    b:Constant({}, "sum", { shape = { 2 }, value = 0 })
    b:While { init = { b:const(0) }, max = 5, cond = function(q, i) return q:Lt { i, "n" } end, body = function(q, i)
      local h = q:Do { scope = "s", reuse = true, body = function(d) return d:Copy "h" end }
      q:Add({ "sum", h }, "sum")
      q:Do { scope = "s", bindings = { h0 = h }, body = function(d) d:Add({ "h0", "h0" }, "h") end }
      return i + 1
    end }
    b:outputs { "sum" }
    ws:run(a, { x = neap.tensor { 1, 2 }, c = true })
    for _ = 1, 2 do
      for n, times in pairs { [0] = 0, 1, 3, 7 } do
        assert.are.same({ -times, -2 * times }, (ws:run(b, { n = n }).sum + 0):totable())
      end
    end
    assert.is_true(ws:run(asks(a)).has[1])
  end)

  it("refuses what it can't hand on, and adds nothing then", function()
    local a, plain = first(), neap.net "plain"
    local b = second(a)
    plain:CreateScope({}, "t")
    local before = plain:text()
    raises("does not leave a scope \"s\"", plain.import_scope, plain, "s", neap.net "empty")
    raises("has a \"t\" already", plain.import_scope, plain, "t", a)
    raises("expects a net, got a string", plain.import_scope, plain, "u", "a")
    raises("expects a name", plain.import_scope, plain, 1, a)
    raises("is no scope of net", plain.export_scope, plain, "u")
    raises("is for a net that runs", plain.scope, plain, "inner", function()
      plain:If(plain:const(true), function(q)
        q:CreateScope({}, "v")
        q:export_scope "v"
      end)
    end)
    assert.are.equal(before, plain:text())
    raises("came from another net", b.export_scope, b, "s")
    raises("is a blob of net \"a\" already", a.export_scope, a, "s")
  end)
end)

-- ---- the workspace stack -------------------------------------------------------------------------------------------------------

local function workspace() return neap.workspace { store = false } end

--- h = -x, kept; y = exp(h)
local function forward_net(name)
  local net = neap.net(name or "forward")
  net:input("x", { 2 })
  net:Exp(net:Neg("x", "h"), "y")
  return net:keep "h"
end

describe("The scope stack", function()
  it("pushes a frame that sees bound names only; what is made in it is its own", function()
    local ws = workspace()
    ws:feed("a", neap.tensor { 1, 2 })
    ws:feed("b", neap.tensor { 3, 4 })
    local scope = ws:create_scope "s"
    assert.is_true(scope:empty())
    local frame = scope:push(ws, { x = "a" })
    assert.are.same({ 1, 2 }, frame:fetch("x"):totable())
    assert.is_false(frame:has "a" or frame:has "b")
    frame:run(forward_net())
    assert.are.same({ -1, -2 }, frame:fetch("h"):totable())
    assert.is_false(ws:has "h" or ws:has "y")
    assert.are.equal(1, #scope)
    assert.is_false(scope:empty())
    local other = ws:create_scope "t"
    raises("no such blob", other.push, other, ws, { x = "nobody" })
    assert.is_true(other:empty())
  end)

  it("gives frames back last in, first out, alive, with what the forward pass left in them", function()
    local ws, frames = workspace(), {}
    local scope = ws:create_scope "s"
    ws:feed("a", neap.tensor { 0, 0 })
    ws:feed("g", neap.tensor { 9, 9 })
    for i = 1, 3 do
      ws:feed("a", neap.tensor { i, i })
      frames[i] = scope:push(ws, { x = "a" })
      frames[i]:run(forward_net())
    end
    for i = 3, 1, -1 do
      local frame = scope:pop_gradient(ws, { dy = "g", x = "a" })
      assert.are.equal(frames[i], frame)
      assert.are.same({ -i, -i }, frame:fetch("h"):totable())
      assert.are.same({ 9, 9 }, frame:fetch("dy"):totable())
      assert.are.equal(i - 1, #scope)
    end
    assert.is_nil(scope:pop_gradient(ws, { dy = "g", x = "a" }))
  end)

  it("skips gradient bindings whose name is there already", function()
    local ws = workspace()
    ws:feed("a", neap.tensor { 1 })
    ws:feed("b", neap.tensor { 2 })
    local scope = ws:create_scope "s"
    scope:push(ws, { x = "a" }):feed("own", 5)
    local frame = scope:pop_gradient(ws, { x = "b", own = "b", other = "b" })
    assert.are.equal(1, frame:fetch("x")[1])
    assert.are.equal(5, frame:fetch("own"):item())
    assert.are.equal(2, frame:fetch("other")[1])
  end)

  it("reuses the last frame with further bindings; a contradiction is an error", function()
    local ws = workspace()
    ws:feed("a", neap.tensor { 1 })
    ws:feed("b", neap.tensor { 2 })
    local scope = ws:create_scope "s"
    assert.is_nil(scope:reuse_last(ws, { x = "a" }))
    local frame = scope:push(ws, { x = "a" })
    frame:feed("own", 5)
    assert.are.equal(frame, scope:reuse_last(ws, { x = "a", z = "b" }))
    assert.are.equal(5, frame:fetch("own"):item())
    assert.are.equal(2, frame:fetch("z")[1])
    raises("both \"a\" and \"b\"", scope.reuse_last, scope, ws, { fresh = "a", x = "b" })
    assert.is_false(frame:has "fresh") -- nothing was added
    raises("is a blob here", scope.reuse_last, scope, ws, { own = "b" })
    raises("no such blob", scope.reuse_last, scope, ws, { q = "nobody" })
  end)

  it("compares bindings at every push, for gradients apart, and never lets the parent change", function()
    local ws, other = workspace(), workspace()
    ws:feed("a", neap.tensor { 1 })
    ws:feed("b", neap.tensor { 2 })
    other:feed("a", neap.tensor { 1 })
    local scope = ws:create_scope "s"
    scope:push(ws, { x = "a" })
    scope:clear()
    raises("\"x\" is bound to \"b\", before to \"a\"", scope.push, scope, ws, { x = "b" })
    raises("before to nothing", scope.push, scope, ws, { x = "a", z = "b" })
    raises("0 names, before 1", scope.push, scope, ws, {})
    raises("parent can't change", scope.push, scope, other, { x = "a" })
    assert.are.equal(0, #scope)
    scope:push(ws, { x = "a" })
    scope:pop_gradient(ws, { g = "b" })
    scope:push(ws, { x = "a" })
    raises("gradient bindings differ", scope.pop_gradient, scope, ws, { g = "a" })
    assert.are.equal(1, #scope)
    scope:check_bindings_match({ x = "a" }):check_bindings_match({ g = "b" }, { gradient = true }):check_stack()
    raises("differ", scope.check_bindings_match, scope, { x = "b" })
    raises("differ", scope.check_bindings_match, scope, { x = "a" }, { gradient = true })
  end)

  it("enters a kept frame as a new one: bound names lead outside again, locals are not written yet", function()
    local ws = workspace()
    ws:feed("a", neap.tensor { 1, 2 })
    local scope = ws:create_scope "s"
    local frame = scope:push(ws, { x = "a" })
    frame:copy_forwarded() -- x is a local copy now
    frame:run(forward_net())
    ws:feed("a", neap.tensor { 5, 6 })
    assert.are.same({ 1, 2 }, frame:fetch("x"):totable())
    scope:clear()
    local again = scope:push(ws, { x = "a" })
    assert.are.equal(frame, again)
    assert.are.same({ 5, 6 }, again:fetch("x"):totable())
    raises("nothing has been fed or computed yet", again.fetch, again, "h")
    again:run(forward_net())
    assert.are.same({ -5, -6 }, again:fetch("h"):totable())
  end)

  it("runs two different nets of one name in one frame as what they are", function()
    local ws = workspace()
    ws:feed("a", neap.tensor { 1, 2 })
    local frame = ws:create_scope("s"):push(ws, { x = "a" })
    local function net(op)
      local n = neap.net "same"
      n:input("x", { 2 })
      n:op(op, "x", "y")
      return n
    end
    local neg, abs = net "Neg", net "Abs"
    assert.are.same({ -1, -2 }, frame:run(neg).y:totable())
    assert.are.same({ 1, 2 }, frame:run(abs).y:totable())
    assert.are.same({ -1, -2 }, frame:run(neg).y:totable())
  end)

  it("clear keeps the memory, which the next pushes use; trim gives it back", function()
    local ws = workspace()
    ws:feed("a", neap.zeros(1000))
    local scope, net = ws:create_scope "s", neap.net "large"
    net:input("x", { 1000 })
    net:Exp(net:Neg("x", "h"), "y")
    net:keep "h"
    local function forward(n)
      for _ = 1, n do scope:push(ws, { x = "a" }):run_once(net) end
    end
    settle()
    local before = neap.memory().held
    forward(3)
    local held = neap.memory().held
    assert.is_true(held - before >= 3 * 2 * 4000)
    assert.is_true(scope:held_bytes() >= 3 * 2 * 4000)
    scope:clear()
    assert.are.equal(held, neap.memory().held)
    forward(3)
    assert.are.equal(held, neap.memory().held)
    scope:pop_gradient(ws, {})
    scope:trim()
    assert.are.equal(2, #scope) -- frames in use stay
    assert.is_true(neap.memory().held < held and neap.memory().held > before)
    scope:clear()
    scope:trim()
    assert.are.equal(before, neap.memory().held)
    scope:push(ws, { z = "a" }) -- an empty stack has forgotten its bindings
  end)

  it("trims frames whose programs are kept", function()
    local ws = workspace()
    ws:feed("a", neap.tensor { 1, 2 })
    collectgarbage()
    local scope, before, net = ws:create_scope "s", neap.memory().held, forward_net()
    local frame = scope:push(ws, { x = "a" })
    frame:run(net)
    scope:clear():trim()
    collectgarbage()
    assert.are.equal(before, neap.memory().held)
    raises("was closed", frame.fetch, frame, "x")
  end)

  it("is a blob: creating it again empties it, and frames outlive their parent without reading it", function()
    local ws = workspace()
    ws:feed("a", neap.tensor { 1, 2 })
    local scope = ws:create_scope "s"
    local frame = scope:push(ws, { x = "a" })
    assert.are.equal(scope, ws:create_scope "s")
    assert.is_true(scope:empty())
    scope:push(ws, { x = "a" })
    frame:feed("own", 3)
    ws:close()
    raises("no such blob", frame.fetch, frame, "x")
    assert.are.equal(3, frame:fetch("own"):item())
  end)

  it("nests: a frame may hold a scope", function()
    local ws = workspace()
    ws:feed("a", neap.tensor { 1, 2 })
    local frame = ws:create_scope("s"):push(ws, { x = "a" })
    local inner = frame:create_scope("t"):push(frame, { u = "x" })
    assert.are.same({ 1, 2 }, inner:fetch("u"):totable())
    assert.is_false(inner:has "x")
    ws:close()
    raises("no such blob", inner.fetch, inner, "u")
  end)
end)

-- ---- scopes of names -----------------------------------------------------------------------------------------------------------

describe("Name scopes", function()
  it("nest, take dynamic names, and are read from the innermost outwards", function()
    local net = neap.net "f"
    net:input("x", { 2 })
    net:scope("outer", function()
      net:Neg("x", "y")
      for i = 1, 2 do
        neap.scope("block" .. i, function() net:Exp("y", "z") end)
      end
    end)
    assert.is_truthy(net:blob "outer/block1/z")
    assert.is_truthy(net:blob "outer/block2/z")
    assert.are.same({ -1, -2 }, run(net:keep "outer/y", { x = neap.tensor { 1, 2 } })["outer/block2/z"]:log():totable())
  end)
end)

--- One FC layer with its parameters in a variable scope.
local function layer(net, x, n, o)
  return net:variable_scope("layer", o or {}, function()
    return net:FC({ x, net:param("w", { n, x.shape[2] }, neap.init.xavier {}), net:param("b", { n }) }, "y")
  end)
end

describe("Variable scopes", function()
  it("make a parameter once and find it again where reuse is asked", function()
    local net = neap.net "f"
    local a, b = net:input("a", { 1, 4 }), net:input("b", { 1, 4 })
    local ya = layer(net, a, 4)
    local yb = layer(net, b, 4, { reuse = true })
    assert.are_not.equal(ya, yb)
    local names = {}
    for _, row in ipairs(net:blobs()) do
      if row.role == "parameter" then names[#names + 1] = row.name end
    end
    assert.are.same({ "layer/w", "layer/b" }, names)
    local x = neap.tensor { { 1, 2, 3, 4 } }
    local out = run(net:outputs { ya, yb }, { a = x, b = x })
    assert.is_true(out[ya.name]:equal(out[yb.name]))
    assert.are_not.equal(ya.name, yb.name)
  end)

  it("without reuse say that the parameter is there, and where it was made", function()
    local net = neap.net "f"
    local x = net:input("x", { 1, 4 })
    layer(net, x, 4)
    local err = raises("parameter \"layer/w\" is there already, made at 03_scopes_spec.lua:", layer, net, x, 4)
    assert.are.equal("layer/w", err.blob)
    raises("was made at 03_scopes_spec.lua", layer, net, x, 3, { reuse = true })
    raises("did you mean", layer, net, x, 4, { reus = true })
    net:Neg(x, "outside")
    assert.is_truthy(net:blob "outside") -- the scope was left
  end)

  it("give parameters an initialiser and freeze them; inner scopes inherit, and may say otherwise", function()
    local net = neap.net "f"
    net:variable_scope("a", { init = 3, trainable = false }, function()
      net:param("w", { 1 })
      neap.variable_scope("b", {}, function()
        net:param("w", { 1 })
        net:param("own", { 1 }, 5, { trainable = true })
      end)
      net:variable_scope("c", { init = 7, trainable = true }, function() net:param("w", { 1 }) end)
    end)
    net:AddN({ "a/w", "a/b/w", "a/b/own", "a/c/w" }, "sum")
    assert.are.same({ 3 + 3 + 5 + 7 }, run(net, {}).sum:totable())
    local trainable = {}
    for grad in pairs(net:gradient(net:Sum("sum", "loss"))) do trainable[#trainable + 1] = grad.name end
    table.sort(trainable)
    assert.are.same({ "a/b/own", "a/c/w" }, trainable)
  end)

  it("work with name scopes inside, and as a <close> variable", function()
    local net = neap.net "f"
    for visit = 1, 2 do
      local _ <close> = net:variable_scope("v", { reuse = visit == 2 })
      net:scope("inner", function() net:Neg(net:param("w", { 1 }, 2), "y") end)
    end
    assert.is_truthy(net:blob "v/inner/w")
    assert.is_truthy(net:blob "v/inner/y")
    assert.is_truthy(net:blob "v_2/inner/y")
    assert.is_falsy(pcall(net.blob, net, "v_2/inner/w"))
  end)

  it("are shared between nets: the test net reads what the train net has learned, in one workspace", function()
    local function model(net, train)
      local y = layer(net, net:input("x", { 4, 2 }), 1)
      if not train then return net:outputs { y } end
      local d = net:Sub { y, net:input("t", { 4, 1 }) }
      local loss = net:Mean(net:Mul { d, d }, "loss")
      neap.optim.SGD { lr = 0.1 }:apply(net, net:gradient(loss))
      return net:outputs { loss }
    end
    local train, test, ws = model(neap.net "train", true), model(neap.net "test", false), workspace()
    local x, t = neap.tensor { { 0, 0 }, { 0, 1 }, { 1, 0 }, { 1, 1 } }, neap.tensor { { 1 }, { 2 }, { 3 }, { 4 } }
    for _ = 1, 400 do ws:run(train, { x = x, t = t, lr = 0.1 }) end
    local held = 0
    for _, row in ipairs(ws:sizes()) do held = held + (row.name:find "^layer[^/]*/[wb]$" and 1 or 0) end
    assert.are.equal(2, held) -- w and b, once
    assert.is_true(ws:run(test, { x = x })["layer/y"]:close(t, { atol = 0.01 }))
  end)

  it("tie weights: gradients are summed, bytes stored and counted once", function()
    local function net_of(tied)
      local net = neap.net "f"
      local x = net:input("x", { 8, 64 })
      local y = layer(net, x, 64)
      local o = tied and { reuse = true } or {}
      y = tied and layer(net, y, 64, o) or net:scope("second", function() return layer(net, y, 64, o) end)
      net:gradient(net:Mean(net:Mul { y, y }, "loss"))
      return net
    end
    local one, two = net_of(true):plan {}, net_of(false):plan {}
    assert.are.equal(2 * one.regions.parameters, two.regions.parameters)
    assert.are.equal(2 * one.regions.gradients, two.regions.gradients)
    -- Against two copies with the same numbers: the tied gradient is the sum of theirs.
    neap.seed(2)
    local ws, x = workspace(), neap.randn(8, 64)
    ws:run(net_of(true), { x = x })
    local other = workspace()
    for _, name in ipairs { "w", "b" } do
      other:feed("layer/" .. name, ws:fetch("layer/" .. name))
      other:feed("second/layer/" .. name, ws:fetch("layer/" .. name))
    end
    other:run(net_of(false), { x = x })
    local sum = other:fetch "layer/w_grad" + other:fetch "second/layer/w_grad"
    assert.is_true(ws:fetch("layer/w_grad"):close(sum, { rtol = 1e-4, atol = 1e-6 }))
  end)
end)

-- Caffe2's ParameterSharing: what its six tests ask, of nets.
describe("parameter sharing between scopes", function()
  local neap = require "neap"
  local raises = require("support").raises
  local function param(net, shape) return net:param("w", shape or { 2 }).name end
  local function fc(net, x, out, n)
    local w, b = net:param(out .. "_w", { n, n }, neap.init.xavier {}), net:param(out .. "_b", { n })
    return net:FC({ x, w, b }, out).name
  end
  local function params(net)
    local names = {}
    for _, row in ipairs(net:_blobs()) do
      if row.role == "parameter" then names[#names + 1] = row.name end
    end
    table.sort(names)
    return names
  end

  it("there is none by default: a parameter is called after its scopes", function()
    local net = neap.net "default"
    assert.are.equal("w", param(net))
    net:scope("scope", function()
      assert.are.equal("scope/w", param(net))
      net:scope("scope_2", function() assert.are.equal("scope/scope_2/w", param(net)) end)
    end)
    assert.are.equal(3, #params(net))
  end)

  it("nested: inner sharings begin where the outer ones lead", function()
    local net = neap.net "nested"
    net:scope("global_scope", function()
      net:parameter_sharing({ model_b = "model_a" }, function()
        assert.are.equal("global_scope/w", param(net))
        for scope, to in pairs { model_b = "model_a", model_c = "model_c" } do
          net:scope(scope, function()
            net:parameter_sharing({ shared_scope = "" }, function()
              assert.are.equal("global_scope/" .. to .. "/w", param(net))
              net:scope("shared_scope", function() assert.are.equal("global_scope/" .. to .. "/w", param(net)) end)
            end)
          end)
        end
      end)
    end)
    assert.are.same({ "global_scope/model_a/w", "global_scope/model_c/w", "global_scope/w" }, params(net))
  end)

  it("of one subscope leaves the others alone", function()
    local net = neap.net "subscopes"
    net:parameter_sharing({ ["global_scope/b"] = "global_scope/a" }, function()
      net:scope("global_scope", function()
        assert.are.equal("global_scope/w", param(net))
        for scope, to in pairs { a = "a", b = "a", c = "c" } do
          net:scope(scope, function() assert.are.equal("global_scope/" .. to .. "/w", param(net)) end)
        end
      end)
    end)
    net:scope("global_scope/b", function() assert.are.equal("global_scope/b/w", param(net)) end) -- it is over
  end)

  it("makes parameters of their own where nothing is shared", function()
    local net = neap.net "create"
    local first = param(net)
    local second = net:scope("some_global_scope", function() return param(net) end)
    assert.are_not.equal(first, second)
    assert.is_truthy(net:_blob(first) and net:_blob(second))
  end)

  it("holds through a deep hierarchy", function()
    local net = neap.net "deep"
    local made
    net:parameter_sharing({ a = "b" }, function()
      net:scope("a", function()
        net:parameter_sharing({ c = "d" }, function()
          net:scope("c", function()
            net:parameter_sharing({ e = "f" }, function()
              net:scope("e", function() made = param(net) end)
            end)
          end)
        end)
      end)
    end)
    assert.are.equal("b/d/f/w", made)
  end)

  it("of layers: six parameters for five layers, four of them with outputs of their own", function()
    local net, outputs = neap.net "layers", {}
    net:input("data", { 4, 16 })
    local fc1 = fc(net, "data", "fc1", 16)
    raises("fc1_w", fc, net, "data", "fc1", 2)
    local function layer(scope) net:scope(scope, function() outputs[fc(net, fc1, "output", 16)] = true end) end
    net:scope("some_global_scope", function()
      layer "model_a"
      net:parameter_sharing({ model_b = "model_a" }, function()
        net:scope("model_b", function()
          net:parameter_sharing({ shared_1 = "", shared_2 = "" }, function()
            layer "shared_1"
            layer "shared_2"
            layer "unshared"
          end)
        end)
      end)
    end)
    local n = 0
    for _ in pairs(outputs) do n = n + 1 end
    assert.are.equal(4, n)
    local base = "some_global_scope/model_a/"
    assert.are.same({ "fc1_b", "fc1_w", base .. "output_b", base .. "output_w", base .. "unshared/output_b", base .. "unshared/output_w" }, params(net))
    assert.is_true(net:check())
    local ws <close> = neap.workspace { store = false }
    local y = ws:run(net, { data = neap.rand(4, 16) })
    local b = "some_global_scope/model_b/"
    assert.is_true(y[b .. "shared_1/output"]:equal(y[b .. "shared_2/output"]) and y[base .. "output"]:equal(y[b .. "shared_1/output"]))
    assert.is_false(y[b .. "unshared/output"]:equal(y[base .. "output"]))
  end)

  it("finds shared parameters when they are read by name, before those of a scope around", function()
    local net = neap.net "read"
    net:input("x", { 2, 3 })
    net:param("w", { 3, 3 }, 1)
    net:scope("a", function() net:param("w", { 5, 3 }, 1) end)
    local _ <close> = net:parameter_sharing { b = "a" }
    net:scope("b", function() net:FC({ "x", "w" }, "y") end)
    assert.are.same({ 2, 5 }, net:infer({})["b/y"].shape)
  end)

  it("goes with variable scopes, and is refused where it leads in a circle", function()
    local net = neap.net "variable"
    net:parameter_sharing({ right = "left" }, function()
      net:variable_scope("left", {}, function() assert.are.equal("left/w", param(net)) end)
      net:variable_scope("right", {}, function() assert.are.equal("left/w", param(net)) end)
    end)
    raises("leads back to itself", net.parameter_sharing, net, { a = "b", b = "a" }, function() end)
    raises("lies in", net.parameter_sharing, net, { a = "a/b" }, function() end)
    raises("expects ({ scope = other }, f)", net.parameter_sharing, net, "a")
    raises("is here", net.parameter_sharing, net, { a = "b" }, function() error("is here", 0) end)
    net:scope("a", function() assert.are.equal("a/w", param(net)) end)
  end)
end)
