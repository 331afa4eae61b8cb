-- Scopes in nets: CreateScope, HasScope and Do.
local neap = require "neap"
local support = require "support"
local raises = support.raises
local kit = require "scopes_kit"
local run, feeds = kit.run, kit.feeds

--- A net with inputs a = (2), b = (2) and an empty scope s.
local function pair()
  local net = neap.net "f"
  net:input("a", { 2 })
  net:input("b", { 2 })
  net:CreateScope({}, "s")
  return net
end

local function add_body(d) d:Add({ "x", "y" }, "z") end

--- Op level, so that each list of the record can be wrong: the body is `text`.
local function do_text(body, line)
  return neap.net_from(("net f\n\z
    input a f32 (2)\n\z
    input b f32 (2)\n\z
    input w f32 (2)\n\z
    s = CreateScope()\n\z
    t = CreateScope()\n\z
    subnet body closed\n\z
    %s\n\z
    end\n\z
    %s\n"):format(body, line))
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
    net:Do {
      scope = "s",
      reuse = true,
      bindings = { sum = "three" },
      body = function(d) d:Add({ "one", "two" }, "sum") end,
    }
    assert.are.same({ 3 }, run(net, {}).three:totable())
  end)

  it("reads back from its text, runs the same then, and clones", function()
    local net = pair()
    net:Do { bindings = { x = "a", y = "b", z = "c" }, scope = "s", body = add_body }
    net:Do {
      bindings = { x = "a" },
      scope = "s",
      reuse = true,
      copy = false,
      body = function(d) return d:Mul { "x", "x" } end,
    }
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
    local r = net:Do {
      bindings = { x = "a", y = "b" },
      scope = "s",
      body = function(d) return d:Concat({ "x", "y" }, "both", { axis = 1 }) end,
    }
    assert.are.same({ 4 }, r.shape)
    assert.are.same({ 1, 2, 3, 4 }, run(net, feeds)[r.name]:totable())
  end)

  it("lets the body see bound names only: no name falls through", function()
    local net = pair()
    raises("\"b\" is not defined here", net.Do, net, {
      bindings = { x = "a" }, scope = "s", body = function(d) d:Add { "x", "b" } end,
    })
    raises("belongs to another net", net.Do, net, {
      bindings = { x = "a" }, scope = "s", body = function(d) d:Add { "x", net:blob "b" } end,
    })
  end)

  it("keeps locals of two frames apart, and two bodies of one name on one scope", function()
    local function body(op)
      return neap.net_from("net body\ninput x f32 (2)\ny = " .. op .. "(x)\n")
    end
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
    net:Do {
      bindings = { x = "b", y = "d" },
      scope = "s",
      reuse = true,
      body = function(d) d:Neg("x", "y") end,
    }
    local out = run(net, feeds)
    assert.are.same({ -1, -2 }, out.c:totable())
    assert.are.same({ -3, -4 }, out.d:totable())
  end)

  it("with reuse on an empty scope makes a frame", function()
    local net = pair()
    net:Do {
      bindings = { x = "a" }, scope = "s", reuse = true, body = function(d) d:Neg("x", "n") end,
    }
    net:HasScope("s", "has")
    net:Do {
      scope = "s", reuse = true, bindings = { m = "out" }, body = function(d) d:Neg("n", "m") end,
    }
    local out = run(net, feeds)
    assert.are.same({ 1, 2 }, out.out:totable())
    assert.are.same({ true }, out.has:totable())
  end)

  it("with copies keeps the bound blobs in the frame, as they were", function()
    local net = neap.net "f"
    local w, lr = net:param("w", { 1 }, 5), net:input("lr", {})
    net:CreateScope({}, "s")
    net:Do {
      bindings = { x = "w", y = "c" },
      scope = "s",
      copy = true,
      body = function(d) d:Mul({ "x", "x" }, "y") end,
    }
    net:Sgd({ w, net:const(1):reshape(1), lr }, w) -- w is 4 from here on
    net:Do {
      bindings = { z = "d" },
      scope = "s",
      reuse = true,
      body = function(d) d:Add({ "x", "y" }, "z") end,
    }
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
    net:Do {
      bindings = { p = "w", g = "g", lr = "lr" },
      scope = "s",
      body = function(d) d:Sgd({ "p", "g", "lr" }, "p") end,
    }
    net:outputs { "w" }
    local ws <close> = neap.workspace { store = false }
    ws:run(net, { g = neap.tensor { 1, 2 }, lr = 0.5 })
    assert.are.same({ 0.5, 0 },
      ws:run(net, { g = neap.tensor { 0, -1 + 1 }, lr = 0.5 }).w:totable())
  end)

  it("nests, with a scope inside the body", function()
    local net = pair()
    net:Do { bindings = { x = "a", z = "c" }, scope = "s", body = function(d)
      d:CreateScope({}, "inner")
      d:Do {
        bindings = { u = "x", v = "y" }, scope = "inner", body = function(e) e:Neg("u", "v") end,
      }
      d:Add({ "y", "y" }, "z")
    end }
    assert.are.same({ -2, -4 }, run(net, feeds).c:totable())
  end)

  it("is planned like any ops: same bits under every policy and schedule, and locals can be \z
      kept and fetched", function()
    local function build()
      local net = neap.net "f"
      local x, w = net:input("x", { 8, 16 }), net:param("w", { 16, 16 }, neap.init.xavier {})
      net:CreateScope({}, "s")
      for _ = 1, 3 do
        net:Do {
          bindings = { x = x, w = w },
          scope = "s",
          body = function(d) d:Tanh(d:FC { "x", "w" }, "h") end,
        }
      end
      local y = net:Do {
        bindings = { w = w },
        scope = "s",
        reuse = true,
        body = function(d) return d:FC { "h", "w" } end,
      }
      net:gradient(net:Mean(net:Mul { y, y }, "loss"))
      return net:outputs { "loss", "w_grad" }
    end
    neap.seed(3)
    local x, first = { x = neap.randn(8, 16) }, nil
    for _, o in ipairs {
      { policy = "none" }, { policy = "name" }, { policy = "offset" },
      { policy = "none", executor = "dag" }, { executor = "dag" },
    } do
      for _, poison in ipairs { false, true } do
        local ws <close> = neap.workspace {
          seed = 1, store = false, policy = o.policy, executor = o.executor,
        }
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
    net:Do {
      bindings = { u = x, v = "y" }, scope = "s", body = function(d) d:Mul({ "u", "u" }, "v") end,
    }
    net:Do {
      bindings = { u = "y", v = "z" }, scope = "s", body = function(d) d:Mul({ "u", "u" }, "v") end,
    }
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
    net:Do {
      bindings = { n = "n" }, scope = "s", reuse = true, body = function(d) d:Neg("norm", "n") end,
    }
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
    raises("attribute \"net\" is missing", do_text, xyz,
      "c, s = Do(a, b, s) { inner_blobs = {x, y, z}, outer_blobs_idx = {0,1,2} }")
    raises("exclude each other", do_text, xyz, y .. "inner_blobs = {x, y, z}, outer_blobs_idx = \z
      {0,1,2}, reuse_workspace = true, copy_external_blobs = true }")
    raises("inner_blobs has 3 names, outer_blobs_idx 2", do_text, xyz,
      y .. "inner_blobs = {x, y, z}, outer_blobs_idx = {0,1} }")
    raises("inner blob \"x\" is bound twice", do_text, xyz,
      y .. "inner_blobs = {x, x, z}, outer_blobs_idx = {0,1,2} }")
    raises("is bound to outer blob 3, there are 3", do_text, xyz,
      y .. "inner_blobs = {x, y, z}, outer_blobs_idx = {0,1,3} }")
    raises("outer blob \"a\" is bound twice", do_text, xyz,
      y .. "inner_blobs = {x, y, z}, outer_blobs_idx = {0,0,2} }")
    raises("outer blob \"b\" is not bound", do_text, xyz,
      y .. "inner_blobs = {x, z}, outer_blobs_idx = {0,2} }")
    raises("inputs 1 and 2 are both \"a\"", do_text, xyz,
      "c, s = Do(a, a, s) { net = body, inner_blobs = {x, y, z}, outer_blobs_idx = {0,1,2} }")
    raises("outputs 1 and 2 are both", do_text, xyz, "c, c, s = Do(a, b, s) { net = body }")
    raises("expects at least 1 input", do_text, xyz, "c, s = Do() { net = body }")
    raises("expects at least 1 output", do_text, xyz, "Do(a, b, s) { net = body } as d")
    raises("expects a tensor, \"s\" is a scope", do_text, xyz, "c, s = Do(s, a, b) { net = body }")
    raises("last input and its last output must be the same scope", do_text, xyz,
      "c, t = Do(a, b, s) { net = body }")
    raises("output blobs can't be \"a\", which is a tensor", do_text, xyz,
      "c, a = Do(a, b, s) { net = body }")
    raises("neither bound nor a local of scope", do_text, xyz,
      "c, s = Do(a, s) { net = body, inner_blobs = {x, z}, outer_blobs_idx = {0,1} }")
    -- A reused frame has what bodies wrote and copies of what was bound, not the bound names of a
    -- Do that made no copies.
    for _, case in ipairs { { "", "x" }, { ", copy_external_blobs = true", "other" } } do
      local more = ("subnet more closed\ninput %s\nn = Neg(%s)\nend\n"):format(case[2], case[2])
      raises(("reads %q, which is neither bound nor a local of scope"):format(case[2]), do_text,
        xyz,
        y .. "inner_blobs = {x, y, z}, outer_blobs_idx = {0,1,2}" .. case[1] .. " }\n" .. more
          .. "s = Do(s) { net = more, reuse_workspace = true } as again")
    end
    raises("never writes \"q\"", do_text, xyz,
      y .. "inner_blobs = {x, y, q}, outer_blobs_idx = {0,1,2} }")
    raises("an input only", do_text, "input x\nx = Neg(x)",
      "s = Do(a, s) { net = body, inner_blobs = {x}, outer_blobs_idx = {0} } as d")
    raises("the body declares parameter \"p\"", do_text, "param p f32 (2)",
      "s = Do(s) { net = body } as d")
    raises("must be a closed subnet", neap.net_from,
      "net f\ns = CreateScope()\nsubnet open\nend\ns = Do(s) { net = open } as d")
    local err = raises("Do \"do_1\"", do_text, xyz,
      y .. "inner_blobs = {x, z}, outer_blobs_idx = {0,2} } as do_1")
    assert.are.equal("Do", err.op)
    local net = pair()
    local before = net:text()
    raises("body expects a function or a net, got nothing", net.Do, net,
      { bindings = {}, scope = "s" })
    raises("scope expects a scope's name or blob, got nothing", net.Do, net,
      { bindings = {}, body = add_body })
    raises("did you mean", net.Do, net, { binding = {}, scope = "s", body = add_body })
    raises("never writes", net.Do, net, {
      bindings = { q = "new" },
      scope = "s",
      body = function(d) d:Constant({}, "k", { shape = { 1 } }) end,
    })
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
    assert.are.same({ -1, -2 },
      run(net, { a = feeds.a, b = feeds.b, cond = true })[k.name]:totable())
    assert.are.same({ -3, -4 },
      run(net, { a = feeds.a, b = feeds.b, cond = false })[k.name]:totable())
    local y = net:If(cond, function(b)
      b:CreateScope({}, "own")
      return b:Do { bindings = { x = "a" }, scope = "own", body = function(d) return d:Neg "x" end }
    end, function(b) return b:Copy "a" end)
    assert.are.same({ -1, -2 },
      run(net, { a = feeds.a, b = feeds.b, cond = true })[y.name]:totable())
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
    raises("\"has\" is bool: only floating-point blobs have a gradient", net.gradient, net, loss,
      { wrt = { "has" } })
  end)
end)
