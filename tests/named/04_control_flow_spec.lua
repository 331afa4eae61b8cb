-- If, AsyncIf, While and their gradients, built from Lua. Do has its tests with the scopes.
local neap = require "neap"
local support = require "support"
local raises, run = support.raises, support.run
local kit = require "control_kit"
local schedules, memories = kit.schedules, kit.memories

--- The same bits under every policy and schedule, with poison.
local function same_everywhere(build, o)
  for _, memory in ipairs(memories) do
    local options = { poison = true, steps = 2, policy = memory.policy, executor = memory.executor }
    for key, value in pairs(o or {}) do options[key] = value end
    local r = neap.check.plan(build(), options)
    assert.is_true(r.same,
      ("%s %s: %s differs"):format(memory.executor, memory.policy, tostring(r.different)))
    assert.are.equal(0, r.allocations)
  end
end

describe("an update in a branch", function()
  --- Losses, gradients of x and c of three runs.
  local function runs(write)
    local net = neap.net "q"
    local x = net:input("x", { 2 })
    net:param("c", { 2 }, 1)
    local y = net:If(x:sum():gt(0), function(b)
      write(b)
      return b:blob "c" * x
    end, function() return x * 3 end)
    net:Sum(y, "loss")
    net:gradient("loss", { wrt = { "x" } })
    net:outputs { "loss", "x_grad" }
    local ws, out = neap.workspace { store = false }, {}
    ws:init(net)
    for k = 1, 3 do
      local r = ws:run(net, { x = neap.tensor { 0.5, k == 2 and -1 or 1 } })
      out[k] = { r.loss:item(), r.x_grad:totable(), ws:fetch("c"):totable() }
    end
    return out
  end

  it("is seen by the gradient of what reads behind it", function()
    local got = runs(function(b) b:op("Sgd", { "c", b:const(neap.ones(2)), b:const(0.5) }, "c") end)
    assert.same({ { 0.75, { 0.5, 0.5 }, { 0.5, 0.5 } }, { -1.5, { 3, 3 }, { 0.5, 0.5 } },
      { 0, { 0, 0 }, { 0, 0 } } }, got)
    assert.same(got, runs(function(b) b:op("Sub", { "c", b:const(0.5) }, "c") end))
  end)

  it("is that of the same op outside, though the gradient comes behind it", function()
    local nn = neap.nn
    local x, y = neap.linspace(-1, 2, 12):reshape(4, 3), neap.ones(4, 2)
    local function train(branch)
      local Seen = nn.module { "Seen", init = function(self) self:buffer("seen", { 3 }, 0) end,
        forward = function(self, x)
          local function go(n)
            n:op("RunningAverage", { self.seen, x:mean { axes = { 1 } } }, { self.seen },
              { momentum = 0.5 })
            return (x * self.seen):tanh()
          end
          return branch and x.net:If(x:sum():gt(-100), go, function() return x end) or go(x.net)
        end }
      local m = nn.Sequential { seed = 1, nn.Linear { 3, 3 }, Seen {}, nn.Linear { 3, 2 } }
      local t = neap.trainer { model = m, loss = nn.MseLoss(), seed = 1,
        optimizer = neap.optim.SGD { lr = 0.1 }, memory = { store = false } }
      for _ = 1, 3 do t:step { x = x, y = y } end
      return m:state_dict()
    end
    local want, got = train(false), train(true)
    for name, t in pairs(want) do assert.is_true(t:equal(got[name]), name) end
  end)

  it("has no gradient there either, and that is said", function()
    local net = neap.net "q"
    local x = net:input("x", { 2 })
    net:param("c", { 2 }, 1)
    net:If(x:sum():gt(0), function(b) b:op("Sgd", { "c", x:tanh(), b:const(0.5) }, "c") end)
    local loss = net:Sum(net:blob "c" * x)
    local ok, err = pcall(function()
      net:gradient(loss, { wrt = { "x" } })
      net:plan { store = false }
    end)
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find('no gradient is defined through Sgd "sgd_1"', 1, true))
  end)
end)

describe("If", function()
  --- x = 1; if a { x = x * 2; if b { x = 1000 } else { x = x + 99 } } else { x = 108 }, with an
  -- inner branch that is empty.
  local function nested()
    local net = neap.net "nested"
    net:input("a", {})
    net:input("b", {})
    net:Copy(net:const(1), "x")
    net:If("a", function(outer)
      outer:Mul({ "x", outer:const(2) }, "x")
      outer:If("b", function(inner) inner:Copy(inner:const(1000), "x") end,
        function(inner)
          local hidden = inner:Add({ "x", inner:const(99) }, "hidden")
          inner:Copy(hidden, "x")
        end)
      outer:If("b", function() end)
    end, function(outer) outer:Copy(outer:const(108), "x") end)
    net:outputs { net:Copy("x", "y") }
    return net
  end

  it("nests: a condition in a branch decides between branches of its own", function()
    for _, memory in ipairs(schedules) do
      assert.are.equal(1000, run(nested(), { a = 1, b = 1 }, memory).y:item())
      assert.are.equal(101, run(nested(), { a = 1, b = 0 }, memory).y:item())
      assert.are.equal(108, run(nested(), { a = 0, b = 1 }, memory).y:item())
    end
  end)

  it("takes a branch that does nothing: outer blobs stay as they are", function()
    local net = neap.net "f"
    net:input("c", {})
    net:Copy(net:const(7), "x")
    net:If("c", function() end)
    net:If("c", function() end, function(b) b:Copy(b:const(9), "x") end)
    net:outputs { net:Copy("x", "y") }
    assert.are.equal(7, run(net, { c = 1 }).y:item())
    assert.are.equal(9, run(net, { c = 0 }).y:item())
  end)

  it("keeps what a branch makes for itself invisible outside", function()
    local net = nested()
    raises("hidden", function() net:blob "hidden" end)
    raises("hidden", function() net:Relu("hidden", "z") end)
  end)

  it("refuses a condition that is not one element", function()
    local net = neap.net "f"
    net:input("c", { 2 })
    net:input("x", { 3 })
    local err = raises("one element, got (2)", function()
      net:If("c", function(b) return b:Relu "x" end, function(b) return b:Copy "x" end)
    end)
    assert.are.equal("If", err.op)
    assert.is_true(net:check())
  end)

  it("runs only the branch that is taken: a fault in the other one does not happen", function()
    local net = neap.net "f"
    net:input("c", {})
    net:input("table", { 2, 3 })
    net:input("i", { 1 }, "i64")
    net:outputs {
      (net:If("c", function(b) return b:Embedding { "i", "table" } end,
        function(b)
          return b:Slice("table", nil, { starts = { 1 }, ends = { 1 }, axes = { 1 } })
        end)),
    }
    local feeds = { table = neap.ones { 2, 3 }, i = neap.tensor({ 5 }, "i64") }
    feeds.c = 0
    run(net, feeds)
    feeds.c = 1
    raises("5", function() run(net, feeds) end)
  end)

  it("is trained through to a loss of 0.01: the gradient reaches the weights of \z
      the branch taken", function()
    for _, memory in ipairs(schedules) do
      local net = neap.net "f"
      local x = net:input("x", { 16, 4 })
      local c, t = net:input("c", {}), net:input("t", { 16, 1 })
      net:param("w", { 1, 4 }, 0.1)
      net:param("b", { 1 }, 0)
      local y = net:If(c, function(b) return b:FC { x, "w", "b" } end,
        function(b) return b:FC { x * -1, "w", "b" } end)
      local d = y - t
      net:Mean(d * d, "loss")
      net:gradient "loss"
      for _, p in ipairs { "w", "b" } do net:Sgd({ p, p .. "_grad", net:const(0.1) }, p) end
      net:outputs { "loss" }
      local ws <close> = neap.workspace { seed = 1, store = false }
      ws:init(net)
      local program <close> = ws:compile(net, memory)
      local features = neap.randn { 16, 4 }
      local target = features:matmul(neap.tensor { { 1 }, { -2 }, { 0.5 }, { 3 } })
      ws:feed("x", features)
      local loss
      for step = 1, 300 do
        ws:feed("c", step % 2)
        ws:feed("t", step % 2 == 1 and target or target * -1)
        program:run()
        loss = ws:fetch("loss"):item()
      end
      assert.is_true(loss < 0.01, "the loss is " .. loss)
    end
  end)

  it("has no gradient where neither branch gives one: asked for, that is an error, and zeros when \z
      they are allowed", function()
    local function build(branch, o)
      local net = neap.net "still"
      local x, c, w = net:input("x", { 2 }), net:input("c", {}, "bool"), net:param("w", { 2 }, 0.5)
      local y = net:If(c, function(b) return b:Mul { x, branch(b, w) } end,
        function(b) return b:Relu(x) end)
      local grads = net:gradient(net:Sum(y, "loss"), o)
      net:outputs { grads[w], grads[x] }
      return net, grads[w].name, grads[x] and grads[x].name
    end
    local function floor(b, w) return b:Floor(w) end
    raises("\"loss\" does not depend on \"w\"", function()
      build(floor, { wrt = { "w" } }):check()
    end)
    for _, taken in ipairs { true, false } do
      local net, dw, dx = build(floor, { wrt = { "x", "w" }, allow_unused = true })
      local feeds = { x = neap.tensor { 2, 3 }, c = neap.tensor(taken) }
      local out = run(net, feeds)
      assert.are.same({ 0, 0 }, out[dw]:totable())
      assert.are.same(taken and { 0, 0 } or { 1, 1 }, out[dx]:totable())
      -- Where one branch gives a gradient there is one, whichever branch runs.
      net, dw = build(function(b, v) return b:Tanh(v) end, { wrt = { "x", "w" } })
      out = run(net, feeds)
      assert.is_true((out[dw][1] ~= 0) == taken)
    end
  end)

  it("is the same op as AsyncIf, whose branch may overlap other ops in dag", function()
    local function build(kind)
      local net = neap.net "f"
      net:input("c", {})
      net:input("x", { 64 })
      net:param("w", { 64 }, 2)
      local y = net[kind](net, "c", function(b) return b:Relu(b:Mul { "x", "w" }) end,
        function(b) return b:Tanh "x" end)
      net:Sum(y * net:Sigmoid "x", "loss")
      net:gradient("loss", { wrt = { "w", "x" } })
      net:outputs { "loss", "w_grad", "x_grad" }
      return net
    end
    local feeds = { x = neap.randn { 64 } }
    for _, memory in ipairs(schedules) do
      for c = 0, 1 do
        feeds.c = c
        local a, b = run(build "If", feeds, memory), run(build "AsyncIf", feeds, memory)
        for _, name in ipairs { "loss", "w_grad", "x_grad" } do
          assert.is_true(a[name]:equal(b[name]))
        end
      end
    end
    same_everywhere(function() return build "AsyncIf" end)
  end)

  it("returns nothing of branches that return nothing but names that both were given", function()
    local net = neap.net "f"
    net:input("x", { 4 })
    net:input("c", {})
    local function work(op) return function(b) b:op(op, b:Mul { "x", b:const(2) }) end end
    assert.are.equal(0, select("#", net:If("c", work "Relu", work "Tanh")))
    local function inner(b) b:If("c", work "Relu", work "Tanh") end
    assert.are.equal(0, select("#", net:If("c", work "Relu", inner)))
    local function give(op) return function(b) b:op(op, b:op(op, "x"), "y") end end
    local y, none = net:If("c", give "Relu", give "Tanh")
    assert.are.equal("y", y.name)
    assert.is_nil(none)
  end)

  it("gives a blob twice, and one that it writes by name as well, with its gradients", function()
    for c = 0, 1 do
      local net = neap.net "f"
      net:input("x", { 2 })
      net:input("c", {})
      local zero = net:const(neap.zeros(2))
      local a, b = net:If("c", function(s)
        local y = s:Mul { "x", "x" }
        return y, y
      end, function() return zero, zero end)
      net:Copy(zero, "o")
      local d, e, f = net:If("c", function(s)
        local y = s:Mul({ "x", "x" }, "o")
        return y, "x", "x"
      end, function(s)
        local y = s:Mul { "x", "x" }
        return zero, y, zero
      end)
      local terms = { a, b * 2, d * 4, e * 8, f * 16, net:Copy "o" * 56.5 }
      net:gradient(net:Sum(net:AddN(terms), "loss"), { wrt = { "x" } })
      net:outputs { "x_grad" }
      for _, memory in ipairs(memories) do
        local x = neap.tensor { 0.5, -2 }
        local g = run(net, { x = x, c = neap.tensor(c) }, memory).x_grad
        local n_square, n_plain = c == 1 and 1 + 2 + 4 + 56.5 or 8, c == 1 and 8 + 16 or 0
        assert.is_true(g:close(x * 2 * n_square + n_plain))
      end
    end
  end)
end)

describe("If on resident blobs", function()
  it("writes one without losing a reader of the old value", function()
    local net = neap.net "f"
    net:input("c", {})
    net:declare("count", "state", { 64 }, "f32")
    net:declare("seen", "state", { 64 }, "f32")
    net:If("c", function(b)
      local before = b:Mul { "count", b:const(10) }
      b:Add({ "count", b:const(1) }, "count")
      b:Copy(before, "seen")
    end)
    net:outputs { net:Mul({ "seen", net:const(1) }, "y") }
    for _, memory in ipairs(memories) do
      local ws <close> = neap.workspace { store = false }
      ws:poison(true)
      ws:init(net)
      ws:feed("count", neap.full { 64, value = 4 })
      ws:feed("seen", neap.zeros { 64 })
      local program <close> = ws:compile(net, memory)
      for c = 0, 1 do
        ws:feed("c", c)
        program:run()
        assert.are.equal(4 + c, ws:fetch("count")[64])
        assert.are.equal(40 * c, ws:fetch("y")[64])
      end
    end
  end)
end)

describe("While", function()
  it("computes x = 7, y = 21 with outer blobs written by name", function()
    local net = neap.net "f"
    net:Copy(net:const(1), "x")
    net:Copy(net:const(0), "y")
    net:While { cond = function(b) return b:Lt { "x", b:const(7) } end,
      body = function(b)
        b:Add({ "y", "x" }, "y")
        b:Add({ "x", b:const(1) }, "x")
      end }
    net:outputs { net:Copy("x", "x_end"), net:Copy("y", "y_end") }
    for _, memory in ipairs(memories) do
      local r = run(net, {}, memory)
      assert.are.equal(7, r.x_end:item())
      assert.are.equal(21, r.y_end:item())
    end
  end)

  it("computes 18 as a loop's sum of 3 over 6 iterations", function()
    local net = neap.net "f"
    local three = net:Copy(net:const(3), "three")
    local _, total = net:While {
      init = { net:const(0), net:const(0) }, cond = function(_, i) return i:lt(6) end,
      body = function(_, i, sum) return i + 1, sum + three end,
    }
    net:outputs { total }
    assert.are.equal(18, run(net)[total.name]:item())
  end)

  it("gives the initial values when it runs no iteration", function()
    for _, memory in ipairs(schedules) do
      local net = neap.net "f"
      net:input("x", { 3 })
      local y, rows = net:While { init = { "x" }, max = 2, cond = function(b) return b:const(0) end,
        body = function(_, x) return x * 2, x end }
      net:gradient(net:Sum(y, "loss"), { wrt = { "x" } })
      net:outputs { y, rows, "x_grad" }
      local r = run(net, { x = { 1, 2, 3 } }, memory)
      assert.are.same({ 1, 2, 3 }, r[y.name]:totable())
      assert.are.same({ { 0, 0, 0 }, { 0, 0, 0 } }, r[rows.name]:totable())
      assert.are.same({ 1, 1, 1 }, r.x_grad:totable())
    end
  end)

  it("stops at max", function()
    local net = neap.net "f"
    local x = net:While {
      init = { net:const(0) },
      max = 5,
      cond = function(b) return b:const(1) end,
      body = function(_, x) return x + 1 end,
    }
    net:outputs { x }
    assert.are.equal(5, run(net)[x.name]:item())
  end)

  it("hands states on that change places", function()
    local net = neap.net "f"
    local n, a, b = net:While {
      init = { net:const(0), net:const(1), net:const(2) }, cond = function(_, n) return n:lt(3) end,
      body = function(_, n, a, b) return n + 1, b, a end,
    }
    net:outputs { n, a, b }
    for _, memory in ipairs(memories) do
      local r = run(net, {}, memory)
      assert.are.same({ 3, 2, 1 }, { r[n.name]:item(), r[a.name]:item(), r[b.name]:item() })
    end
  end)

  it("refuses conditions and bodies of the wrong shape, saying which", function()
    local function net_with(cond, body)
      local net = neap.net "f"
      net:input("x", { 3 })
      net:outputs { (net:While { init = { "x" }, cond = cond, body = body }) }
      return net
    end
    local good = function(_, x) return x * 2 end
    local many = function(_, x) return x:lt(5) end
    local err = raises("cond_net expects to give one element, got (3)", function()
      net_with(many, good):check()
    end)
    assert.are.equal("While", err.op)
    local never = function(b) return b:const(0) end
    raises("state 1 begins as f32 (3), the body makes it f32 ()", function()
      net_with(never, function(b, x) return b:Sum(x) end):check()
    end)
    raises("returns 0 blobs, expected 1", function() net_with(function() end, good) end)
    raises("returns 0 blobs: return the next states", function()
      net_with(function(b) return b:const(0) end, function() end)
    end)
    raises("need a maximum of iterations", function()
      net_with(function(b) return b:const(0) end, function(_, x) return x, x * 2 end):check()
    end)
    local net = neap.net "f"
    net:input("x", { 3 })
    local text = net:text()
    raises("did you mean", function() net:While { int = {}, cond = good, body = good } end)
    raises("must be a function", function() net:While { cond = 1, body = good } end)
    raises("only the body may", function()
      net:While { cond = function(b) return b:Copy(b:const(1), "x") end, body = function() end }
    end)
    assert.are.equal(text, net:text())
  end)

  --- y = x w^n, n iterations: dy/dw = n x w^(n-1), dy/dx = w^n.
  local function power(max)
    local net = neap.net "power"
    net:input("x", {})
    net:input("n", {})
    net:param("w", {}, 2)
    local _, y = net:While {
      init = { net:const(0), "x" }, max = max, cond = function(_, i) return i:lt(net:blob "n") end,
      body = function(_, i, x) return i + 1, x * net:blob "w" end,
    }
    net:Copy(y, "y")
    net:gradient(net:Copy("y", "loss"), { wrt = { "x", "w" } })
    net:outputs { "y", "x_grad", "w_grad" }
    return net
  end

  it("has gradients: 32, 6 and 12", function()
    for _, max in ipairs { 10, false } do
      for _, memory in ipairs(memories) do
        local net = power(max or nil)
        assert.are.equal(32, run(net, { x = 1, n = 5 }, memory).x_grad:item()) -- 2^5
        -- x^2 n times by hand: y = (x * 3) * w twice.
        local r = run(net, { x = 3, n = 1 }, memory)
        assert.are.equal(6, r.y:item())
        r = run(net, { x = 3, n = 2 }, memory)
        assert.are.equal(12, r.w_grad:item()) -- 2 * 3 * 2
        assert.are.equal(4, r.x_grad:item())
      end
    end
  end)

  it("keeps the frames of a loop without max on a stack that grows, takes nothing after warm-up, \z
      and gives it back when trimmed", function()
    local net = neap.net "f"
    net:input("x", { 1000 })
    net:input("n", {})
    net:param("w", { 1000 }, 1.01)
    local _, y = net:While {
      init = { net:const(0), "x" }, cond = function(_, i) return i:lt(net:blob "n") end,
      body = function(b, i, x) return i + 1, b:Tanh(x * net:blob "w") end,
    }
    net:gradient(net:Sum(y, "loss"), { wrt = { "w" } })
    net:outputs { "loss", "w_grad" }
    assert.is_true(net:plan({}).regions.frames >= 4000) -- an iteration's
    assert.is_truthy(tostring(net:forecast {}):find("an iteration", 1, true))
    assert.is_truthy(tostring(net:plan({}):explain()):find("grows them at run time", 1, true))
    raises("no maximum of iterations", function() net:plan { budget = "64MiB" } end)
    raises("no maximum of iterations", function() net:plan { total = "64MiB" } end)
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    local program <close> = ws:compile(net, {})
    local function step(n)
      ws:feed("x", neap.ones { 1000 })
      ws:feed("n", n)
      local before = neap.memory().n_alloc
      program:run()
      return neap.memory().n_alloc - before
    end
    assert.are.equal(0, program:frames_bytes())
    step(100)
    local gradient, held = ws:fetch "w_grad", program:frames_bytes()
    assert.is_true(held >= 101 * 4000 and held <= 4 * 101 * 4096)
    for _, n in ipairs { 100, 3, 50 } do assert.are.equal(0, step(n)) end
    assert.are.equal(held, program:frames_bytes())
    assert.are.equal(held, program:trim())
    assert.are.equal(0, program:frames_bytes())
    step(100)
    assert.is_true(gradient:equal(ws:fetch "w_grad"))
  end)

  it("gives a bounded and an unbounded loop the same bits", function()
    for _, memory in ipairs(schedules) do
      local a = run(power(7), { x = 1.5, n = 6 }, memory)
      local b = run(power(), { x = 1.5, n = 6 }, memory)
      for _, name in ipairs { "y", "x_grad", "w_grad" } do
        assert.is_true(a[name]:equal(b[name]))
      end
    end
  end)

  it("accounts for frames in the plan: held is what was forecast", function()
    for _, memory in ipairs(memories) do
      local r = neap.check.plan(power(9), {
        policy = memory.policy, executor = memory.executor, poison = true, steps = 2,
      })
      assert.is_true(r.same)
      assert.are.equal(r.forecast_bytes, r.held_bytes)
    end
    assert.is_true(power(1000):plan({}).arena_bytes > power(10):plan({}).arena_bytes)
  end)

  --- A loop in a branch in a loop, with a gradient through all of them.
  local function deep(max)
    local net = neap.net "deep"
    net:input("x", { 4 })
    net:param("w", { 4 }, 0.7)
    local _, y = net:While {
      init = { net:const(0), "x" },
      max = max and 3 or nil,
      cond = function(_, i) return i:lt(3) end,
      body = function(b, i, x)
        local even = i:eq(1)
        local z = b:If(even, function(t)
          local _, inner = t:While {
            init = { t:const(0), x },
            max = max and 4 or nil,
            cond = function(_, k) return k:lt(2) end,
            body = function(u, k, v) return k + 1, u:Tanh(v * net:blob "w") end,
          }
          return inner
        end, function(e) return e:Sigmoid(x + net:blob "w") end)
        return i + 1, z * x
      end,
    }
    net:Sum(y, "loss")
    net:gradient("loss", { wrt = { "w", "x" } })
    net:outputs { "loss", "w_grad", "x_grad" }
    return net
  end

  --- The same, written out.
  local function deep_unrolled()
    local net = neap.net "unrolled"
    local v = net:input("x", { 4 })
    local w = net:param("w", { 4 }, 0.7)
    for i = 0, 2 do
      local z = i == 1 and net:Tanh(net:Tanh(v * w) * w) or net:Sigmoid(v + w)
      v = z * v
    end
    net:Sum(v, "loss")
    net:gradient("loss", { wrt = { "w", "x" } })
    net:outputs { "loss", "w_grad", "x_grad" }
    return net
  end

  it("nests, with branches, and has the gradient of the same net written out", function()
    local feeds = { x = neap.tensor { 0.3, -0.2, 0.9, 0.1 } }
    local expected = run(deep_unrolled(), feeds)
    for _, bounded in ipairs { true, false } do
      for _, memory in ipairs(memories) do
        local r = run(deep(bounded), feeds, memory)
        for _, name in ipairs { "loss", "w_grad", "x_grad" } do
          assert.is_true(r[name]:close(expected[name], { rtol = 1e-5, atol = 1e-6 }))
        end
      end
      same_everywhere(function() return deep(bounded) end)
    end
  end)

  it("may hold a Do, and has the gradient through it", function()
    local function build()
      local net = neap.net "f"
      net:input("x", { 2 })
      local _, y = net:While {
        init = { net:const(0), "x" }, max = 3, cond = function(_, i) return i:lt(2) end,
        body = function(b, i, v)
          b:CreateScope({}, "s")
          b:Copy(v, "v")
          b:Do {
            bindings = { a = "v", z = "r" },
            scope = "s",
            body = function(d) d:Mul({ "a", "a" }, "z") end,
          }
          return i + 1, b:blob "r"
        end,
      }
      net:Copy(y, "y")
      net:gradient(net:Sum("y", "loss"), { wrt = { "x" } })
      net:outputs { "y", "x_grad" }
      return net
    end
    for _, memory in ipairs(memories) do
      local r = run(build(), { x = { 1, 2 } }, memory)
      assert.are.same({ 1, 16 }, r.y:totable())
      assert.are.same({ 4, 32 }, r.x_grad:totable())
    end
  end)

  it("trains inside its body: Sgd writes the parameter that lies outside", function()
    local net = neap.net "f"
    net:input("x", { 8, 3 })
    net:input("t", { 8, 1 })
    net:param("w", { 1, 3 }, 0)
    local n = net:While { init = { net:const(0) }, cond = function(_, i) return i:lt(200) end,
      body = function(b, i)
        local d = b:FC { "x", "w" } - b:blob "t"
        b:Mean(d * d, "inner_loss")
        b:gradient("inner_loss", { wrt = { "w" } })
        b:Sgd({ "w", "w_grad", b:const(0.2) }, "w")
        return i + 1
      end }
    net:outputs { n }
    for _, memory in ipairs(schedules) do
      local ws <close> = neap.workspace { store = false }
      ws:init(net)
      neap.seed(1)
      local x = neap.randn { 8, 3 }
      ws:feed("x", x)
      ws:feed("t", x:matmul(neap.tensor { { 1 }, { -1 }, { 2 } }))
      local program <close> = ws:compile(net, memory)
      program:run()
      assert.is_true(ws:fetch("w"):close(neap.tensor { { 1, -1, 2 } }, { atol = 1e-2 }))
      assert.are.equal(200, ws:fetch(n.name):item())
    end
  end)

  it("writes a resident blob without losing a reader of the old value", function()
    local net = neap.net "f"
    net:declare("count", "state", {}, "f32")
    local seen = net:While {
      init = { net:const(0) }, max = 3, cond = function(b) return b:const(1) end,
      body = function(b, s)
        local before = b:Mul { "count", b:const(10) }
        b:Add({ "count", b:const(1) }, "count")
        return s * 0 + before
      end,
    }
    net:outputs { seen }
    for _, memory in ipairs(memories) do
      local ws <close> = neap.workspace { store = false }
      ws:init(net)
      ws:feed("count", 4)
      local program <close> = ws:compile(net, memory)
      program:run()
      assert.are.equal(7, ws:fetch("count"):item())
      assert.are.equal(60, ws:fetch(seen.name):item())
    end
  end)

  it("refuses a gradient that needs what its body has overwritten", function()
    local net = neap.net "f"
    net:input("x", {})
    net:declare("w", "state", {}, "f32")
    local y = net:While { init = { "x" }, max = 3, cond = function(b) return b:const(1) end,
      body = function(b, x)
        local n = b:Mul { x, "w" }
        b:Add({ "w", b:const(1) }, "w")
        return n
      end }
    local loss = net:Copy(y, "loss")
    raises("overwrites", function() net:gradient(loss, { wrt = { "x" } }) end)
    assert.is_true(net:check())
  end)

  it("refuses one that needs what an op of its body has written to state", function()
    local net = neap.net "f"
    net:input("x", {})
    net:declare("w", "state", {}, "f32")
    local y = net:While { init = { "x" }, max = 3, cond = function(b) return b:const(1) end,
      body = function(b, x)
        b:RunningAverage({ "w", b:Tanh(x) }, "w")
        return b:Mul { x, "w" }
      end }
    local loss = net:Copy(y, "loss")
    raises("overwrites", function() net:gradient(loss, { wrt = { "x" } }) end)
    assert.is_true(net:check())
  end)

  it("draws other random numbers in each iteration, the same in every run of a step", function()
    local net = neap.net "f"
    net:input("x", { 64 })
    local _, rows = net:While {
      init = { net:const(0) }, max = 3, cond = function(b) return b:const(1) end,
      body = function(b, i) return i + 1, b:Dropout("x", nil, { rate = 0.5 }) end,
    }
    net:outputs { rows }
    local function draw()
      local ws <close> = neap.workspace { seed = 5, store = false }
      return ws:run(net, { x = neap.ones { 64 } })[rows.name]
    end
    local a = draw()
    assert.is_false(a[1]:equal(a[2]))
    assert.is_false(a[2]:equal(a[3]))
    assert.is_true(a:equal(draw()))
  end)

  it("is stopped by Ctrl-C when it never ends, whichever lane it runs on", function()
    local program = support.program
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write [[
      local neap = require "neap"
      local net = neap.net "endless"
      net:input("x", {})
      local y = net:While {
        init = { "x" },
        cond = function(b) return b:const(1) end,
        body = function(_, x) return x + 1 end,
      }
      net:outputs { y, net:Relu("x", "z") }
      print "about to run"
      io.stdout:flush()
      neap.workspace { executor = (...), store = false }:run(net, { x = 1 })
    ]]
    file:close()
    for _, executor in ipairs { "simple", "dag", "dag", "dag" } do
      local command = "echo $$; NEAP_DB=off exec timeout -s KILL 120 %s run %s %s 2>&1"
      local pipe = assert(io.popen(command:format(program, path, executor)))
      local pid = pipe:read "n"
      -- What comes before it has begun finds no handler, on a machine that is busy.
      repeat local said = assert(pipe:read "l") until said == "about to run"
      os.execute("sleep 0.2; kill -INT " .. pid)
      local text = pipe:read "a"
      pipe:close()
      assert.is_truthy(text:find("interrupted", 1, true), text)
    end
    os.remove(path)
  end)

  it("names op and blob of a fault in an iteration, and leaves resident \z
      blobs as they were", function()
    local net = neap.net "f"
    net:input("table", { 3, 2 })
    net:input("i", { 1 }, "i64")
    net:declare("w", "state", { 1 }, "f32")
    local i = net:While { init = { "i" }, max = 10, cond = function(b) return b:const(1) end,
      body = function(b, i)
        b:Embedding { i, "table" }:sum()
        return i + b:Cast(b:Embedding({ i, "table" }):sum() * 0 + 1, nil, { to = "i64" })
      end }
    net:Add({ "w", net:const(1) }, "w")
    net:outputs { i }
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    ws:feed("table", neap.ones { 3, 2 })
    ws:feed("i", neap.tensor({ 0 }, "i64"))
    ws:feed("w", { 4 })
    local program <close> = ws:compile(net, {})
    local err = raises("3", function() program:run() end)
    assert.are.equal("Embedding", err.op)
    assert.are.equal("data", err.code)
    assert.are.same({ 4 }, ws:fetch("w"):totable())
  end)
end)

describe("a gradient that only a branch takes", function()
  local ops = {
    RmsNorm = function(b, x) return b:RmsNorm { x, "g" } end,
    MaxPool = function(b, x) return b:MaxPool(x, nil, { kernel = { 2, 2 } }) end,
  }

  for name, forward in pairs(ops) do
    it("has what " .. name .. " leaves for its backward, as at the top", function()
      local function inner(b)
        local x = b:Copy "x"
        return b:gradient(b:Sum(b:Square(forward(b, x))), { wrt = { x } })[x]
      end
      local x = neap.randn(2, 6, 4, 4)
      local function result(add)
        local net = neap.net "g"
        net:input("x", { 2, 6, 4, 4 })
        net:param("g", { 4 }, 1.0)
        net:Copy(add(net), "y")
        net:outputs { "y" }
        local ws <close> = neap.workspace { store = false }
        ws:run(net, { x = x })
        return ws:fetch("y"):clone()
      end
      local branch = result(function(net)
        return net:If(net:const(true), inner, function(b) return b:Copy "x" end)
      end)
      assert.is_true(branch:equal(result(inner)))
      assert.is_true(branch:abs():max():item() > 0)
    end)
  end
end)

describe("a parameter that is declared in a branch or a body", function()
  it("is the whole net's", function()
    local net = neap.net "f"
    local x, c = net:input("x", { 3 }), net:input("c", {}, "bool")
    local y = net:If(c, function(b) return b:Mul { x, b:param("w", { 3 }, 2) } end,
      function(b) return b:Mul { x, b:param("v", { 3 }, 3) } end)
    local z = net:Loop { trip = 2, init = { y },
      body = function(n, _, a) return true, n:Add { a, n:param("u", { 3 }, 1) } end }
    net:outputs { z }
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    for _, case in ipairs { { true, 4 }, { false, 5 } } do
      local out = ws:run(net, { x = neap.ones(3), c = neap.tensor(case[1]) })
      assert.are.same({ case[2], case[2], case[2] }, out[z.name]:totable())
    end
    assert.are.same({ 2, 2, 2 }, ws:fetch("w"):totable())
  end)

  it("is refused where a text puts it there", function()
    local ok, err = pcall(function()
      local net = neap.net_from [[
net f
input x f32 (3)
input c bool ()
subnet s
  param w f32 (3) = Constant { value = 2 }
  y = Mul(x, w)
  takes x
  gives y
end
subnet t
  y = Tanh(x)
  takes x
  gives y
end
z = If(c, x) { then_net = s, else_net = t }
outputs z
]]
      return neap.workspace({ store = false }):run(net, { x = neap.ones(3), c = neap.tensor(true) })
    end)
    assert.is_false(ok)
    assert.are.equal("graph", err.code)
    assert.is_truthy(tostring(err):find("declares parameter \"w\"", 1, true), tostring(err))
  end)
end)
