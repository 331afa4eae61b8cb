-- The scope stack of a workspace, scopes shared between nets, name scopes, variable scopes,
-- parameters shared between nets and within one.
local neap = require "neap"
local support = require "support"
local raises, settle = support.raises, support.settle
local kit = require "scopes_kit"
local run = kit.run

describe("A scope shared between nets", function()
  --- a pushes a frame with h = -x where `c` is not zero; without = what else it does.
  local function first(without)
    local net = neap.net "a"
    net:input("x", { 2 })
    net:input("c", {}, "bool")
    net:CreateScope({}, "s")
    local function frame(op)
      return function(b)
        b:Do { scope = "s", bindings = { x = "x" }, body = function(d) d:op(op, "x", "h") end }
      end
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

  it("says after each run whether that one has pushed a frame, as a condition of an \z
      If in another net", function()
    local ws <close> = neap.workspace { store = false }
    local a, b = first(true), neap.net "b"
    b:import_scope("s", a)
    local y = b:If(b:HasScope "s", function(q) return q:const(1) end,
      function(q) return q:const(2) end)
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
    b:While {
      init = { b:const(0) },
      max = 5,
      cond = function(q, i) return q:Lt { i, "n" } end,
      body = function(q, i)
        local h = q:Do { scope = "s", reuse = true, body = function(d) return d:Copy "h" end }
        q:Add({ "sum", h }, "sum")
        q:Do {
          scope = "s", bindings = { h0 = h }, body = function(d) d:Add({ "h0", "h0" }, "h") end,
        }
        return i + 1
      end,
    }
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

  it("gives frames back last in, first out, alive, with what the forward \z
      pass left in them", function()
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

  it("compares bindings at every push, for gradients apart, and never lets \z
      the parent change", function()
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
    scope:check_bindings_match({ x = "a" }):check_bindings_match({ g = "b" },
      { gradient = true }):check_stack()
    raises("differ", scope.check_bindings_match, scope, { x = "b" })
    raises("differ", scope.check_bindings_match, scope, { x = "a" }, { gradient = true })
  end)

  it("enters a kept frame as a new one: bound names lead outside again, locals \z
      are not written yet", function()
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

  it("is a blob: creating it again empties it, and frames outlive their parent \z
      without reading it", function()
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
    assert.are.same({ -1, -2 },
      run(net:keep "outer/y", { x = neap.tensor { 1, 2 } })["outer/block2/z"]:log():totable())
  end)
end)

--- One FC layer with its parameters in a variable scope.
local function layer(net, x, n, o)
  return net:variable_scope("layer", o or {}, function()
    return net:FC(
      { x, net:param("w", { n, x.shape[2] }, neap.init.xavier {}), net:param("b", { n }) }, "y")
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
    local err = raises("parameter \"layer/w\" is there already, made at 03_scopes_names_spec.lua:",
      layer, net, x, 4)
    assert.are.equal("layer/w", err.blob)
    raises("was made at 03_scopes_names_spec.lua", layer, net, x, 3, { reuse = true })
    raises("did you mean", layer, net, x, 4, { reus = true })
    net:Neg(x, "outside")
    assert.is_truthy(net:blob "outside") -- the scope was left
  end)

  it("give parameters an initialiser and freeze them; inner scopes inherit, and \z
      may say otherwise", function()
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
    for grad in pairs(net:gradient(net:Sum("sum", "loss"))) do
      trainable[#trainable + 1] = grad.name
    end
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

  it("are shared between nets: the test net reads what the train net has learned, \z
      in one workspace", function()
    local function model(net, train)
      local y = layer(net, net:input("x", { 4, 2 }), 1)
      if not train then return net:outputs { y } end
      local d = net:Sub { y, net:input("t", { 4, 1 }) }
      local loss = net:Mean(net:Mul { d, d }, "loss")
      neap.optim.SGD { lr = 0.1 }:apply(net, net:gradient(loss))
      return net:outputs { loss }
    end
    local train = model(neap.net "train", true)
    local test, ws = model(neap.net "test", false), workspace()
    local x = neap.tensor { { 0, 0 }, { 0, 1 }, { 1, 0 }, { 1, 1 } }
    local t = neap.tensor { { 1 }, { 2 }, { 3 }, { 4 } }
    for _ = 1, 400 do ws:run(train, { x = x, t = t, lr = 0.1 }) end
    local held = 0
    for _, row in ipairs(ws:sizes()) do
      held = held + (row.name:find "^layer[^/]*/[wb]$" and 1 or 0)
    end
    assert.are.equal(2, held) -- w and b, once
    assert.is_true(ws:run(test, { x = x })["layer/y"]:close(t, { atol = 0.01 }))
  end)

  it("tie weights: gradients are summed, bytes stored and counted once", function()
    local function net_of(tied)
      local net = neap.net "f"
      local x = net:input("x", { 8, 64 })
      local y = layer(net, x, 64)
      local o = tied and { reuse = true } or {}
      y = tied and layer(net, y, 64, o)
        or net:scope("second", function() return layer(net, y, 64, o) end)
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
    local w = net:param(out .. "_w", { n, n }, neap.init.xavier {})
    local b = net:param(out .. "_b", { n })
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
              net:scope("shared_scope", function()
                assert.are.equal("global_scope/" .. to .. "/w", param(net))
              end)
            end)
          end)
        end
      end)
    end)
    assert.are.same({ "global_scope/model_a/w", "global_scope/model_c/w", "global_scope/w" },
      params(net))
  end)

  it("of one subscope leaves the others alone", function()
    local net = neap.net "subscopes"
    net:parameter_sharing({ ["global_scope/b"] = "global_scope/a" }, function()
      net:scope("global_scope", function()
        assert.are.equal("global_scope/w", param(net))
        for scope, to in pairs { a = "a", b = "a", c = "c" } do
          net:scope(scope, function()
            assert.are.equal("global_scope/" .. to .. "/w", param(net))
          end)
        end
      end)
    end)
    -- it is over
    net:scope("global_scope/b", function() assert.are.equal("global_scope/b/w", param(net)) end)
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
    local function layer(scope)
      net:scope(scope, function() outputs[fc(net, fc1, "output", 16)] = true end)
    end
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
    assert.are.same({
      "fc1_b", "fc1_w", base .. "output_b", base .. "output_w", base .. "unshared/output_b",
      base .. "unshared/output_w",
    }, params(net))
    assert.is_true(net:check())
    local ws <close> = neap.workspace { store = false }
    local y = ws:run(net, { data = neap.rand(4, 16) })
    local b = "some_global_scope/model_b/"
    assert.is_true(y[b .. "shared_1/output"]:equal(y[b .. "shared_2/output"])
      and y[base .. "output"]:equal(y[b .. "shared_1/output"]))
    assert.is_false(y[b .. "unshared/output"]:equal(y[base .. "output"]))
  end)

  it("finds shared parameters when they are read by name, before those \z
      of a scope around", function()
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
