-- Scopes around control flow: a Do in the body of a loop, scopes in branches and loops.
local neap = require "neap"
local support = require "support"
local raises = support.raises
local run = require("scopes_kit").run

describe("Do in the body of a While", function()
  --- Doubles x three times, each time by a Do on scope `s`.
  local function doubling(create_inside)
    local net = neap.net "f"
    net:param("x", { 1 }, 5)
    net:CreateScope({}, "s")
    local function one(value) return net:const(value):reshape(1) end
    local _, y = net:While {
      init = { one(0), "x" },
      max = 3,
      cond = function(b, i) return b:Lt { i, b:const(3):reshape(1) } end,
      body = function(b, i, v)
        if create_inside then b:CreateScope({}, "s") end
        local doubled = b:Do {
          bindings = { u = v }, scope = "s", body = function(d) return d:Add { "u", "u" } end,
        }
        return b:Add { i, b:const(1):reshape(1) }, doubled
      end,
    }
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
    b:Do {
      scope = "s",
      body = function(d) d:Constant({}, name or "h", { shape = { 1 }, value = value }) end,
    }
  end

  local function read(b, name)
    return b:Do { scope = "s", reuse = true, body = function(d) return d:Copy(name or "h") end }
  end

  local function times(b, f)
    return b:While {
      init = { b:const(0) },
      max = 5,
      cond = function(q, i) return q:Lt { i, "n" } end,
      body = function(q, i)
        f(q, i)
        return i + 1
      end,
    }
  end

  it("has a frame if the branch that pushes one was taken; HasScope is a \z
      condition of an If", function()
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

  it("hands locals from one iteration's frame to the next one's, and behind the \z
      loop, with gradients", function()
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
    local i = net:While {
      init = { net:const(0) }, max = 9, cond = function(b) return b:LogicalNot(b:HasScope "s") end,
      body = function(b, i)
        b:If(i:ge(3), function(q) push(q, 1) end)
        return i + 1
      end,
    }
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
    raises("the condition pushes a frame on scope \"s\"", net.While, net, {
      init = { net:const(0) }, max = 2, body = function(_, i) return i end,
      cond = function(b, i)
        push(b, 1)
        return i:lt(2)
      end,
    })
    raises("is written by the condition", net.While, net, {
      init = { net:const(0) }, max = 2, body = function(_, i) return i end,
      cond = function(b, i)
        b:Do {
          scope = "s",
          reuse = true,
          body = function(d) d:Constant({}, "h", { shape = { 1 }, value = 2 }) end,
        }
        return i:lt(2)
      end,
    })
    raises("which has been used here before", net.If, net, "c", function(b)
      b:HasScope "s"
      b:CreateScope({}, "s")
    end)
    local y = read(net)
    assert.are.same({ 3 }, run(net:outputs { y }, { c = true, n = 0 })[y.name]:totable())
  end)

  it("refuses a local of two types", function()
    local net = net_of()
    local function wide(b)
      b:Do { scope = "s", body = function(d) d:Constant({}, "h", { shape = { 2 }, value = 1 }) end }
    end
    local err = raises(
      "local \"h\" of scope \"s\" is f32 (1) on one way through net \"f\", f32 (2) on another",
      net.If, net, "c", function(b) push(b, 1) end, wide)
    assert.are.equal("f32 (2)", err.got)
    push(net, 1)
    raises("is f32 (1) on one way", net.If, net, "c", wide)
    raises("is f32 (1) on one way", times, net, wide)
    net:If("c", wide, wide)
    assert.are.same({ 2 }, read(net).shape)
  end)

  it("holds in the body of a Do, in a Recurrent, under names with a path, and in \z
      a copy of the net", function()
    local net = net_of()
    net:input("x", { 4, 1 })
    net:scope("block", function()
      net:CreateScope({}, "t")
      net:If("c", function(b)
        b:Do {
          scope = "t", body = function(d) d:Constant({}, "h", { shape = { 1 }, value = 1 }) end,
        }
      end)
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
      d:If("c", function(b)
        b:Do {
          scope = "u", body = function(e) e:Constant({}, "h", { shape = { 1 }, value = 1 }) end,
        }
      end)
      d:Copy(d:HasScope "u", "out")
    end }
    net:outputs { rows, last, "block/has", "inner" }
    for _, copy in ipairs { net, net:clone(), neap.net_from(net:text()) } do
      for _, taken in ipairs { true, false } do
        local out = run(copy, { n = 0, c = taken, x = neap.tensor { { 1 }, { 2 }, { 3 }, { 4 } } })
        assert.are.same({ { 1 }, { 3 }, { 6 }, { 10 } }, out[rows.name]:totable())
        assert.are.same({ 10, taken, taken }, {
          out[last.name][1], out["block/has"][1], out.inner[1],
        })
      end
    end
  end)

  it("returns from If and While what was asked for, and no blob of its own", function()
    local net = net_of()
    assert.are.equal(0, select("#", net:If("c", function(b) push(b, 1) end)))
    assert.are.equal(1, select("#",
      net:If("c", function(b) push(b, 1) return b:const(1) end, function(b) return b:const(2) end)))
    assert.are.equal(1, select("#", times(net, function(b) push(b, 1) end)))
  end)

  -- Random programs, built as nets and run on a stack of tables: what a net reads must be what the
  -- stack holds.
  it("holds what a stack of tables holds, in random programs of branches and loops", function()
    local draw, names = math.random, { "g", "h" }
    local function program(depth, n)
      local list = {}
      for i = 1, n do
        local kind =
          ({ "push", "push", "write", "read", "add", "has", "create", "if", "while" })[draw(
            depth > 0 and 9 or 6)]
        local p = { kind = kind, name = names[draw(2)], value = draw(9), both = draw(3) == 1 }
        -- within a branch it would be another scope
        if kind == "create" and depth < 3 then p.kind = "has" end
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
          assert.is_true(
            text:find "is not defined here" ~= nil
              or text:find "is there only if" ~= nil
              or text:find "leaves a frame without it" ~= nil, text)
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
        if p.both then
          d:Constant({}, p.name == "g" and "h" or "g", { shape = { 1 }, value = p.value + 10 })
        end
      end
    end
    function add.push(_, b, p) b:Do { scope = "s", body = constants(p) } end
    function add.write(_, b, p) b:Do { scope = "s", reuse = true, body = constants(p) } end
    function add.add(_, b, p)
      b:Do {
        scope = "s",
        reuse = true,
        body = function(d)
          d:Add({ p.name, d:Constant({}, "one", { shape = { 1 }, value = 1 }) }, p.name)
        end,
      }
    end
    function add.read(_, b, p) b:Add({ "sum", read(b, p.name) * p.value }, "sum") end
    function add.has(_, b, p)
      b:Add({ "sum", b:HasScope "s":cast { to = "f32" } * p.value }, "sum")
    end
    function add.create(_, b) b:CreateScope({}, "s") end
    add["if"] = function(net, b, p)
      input(net, p, "bool")
      b:If(p.feed, function(q) p.yes = build(net, q, p[1]) end,
        p[2] and function(q) p.no = build(net, q, p[2]) end)
    end
    add["while"] = function(net, b, p)
      input(net, p, "f32")
      b:While {
        init = { b:const(0) },
        max = 3,
        cond = function(q, i) return q:Lt { i, p.feed } end,
        body = function(q, i)
          p.yes = build(net, q, p[1])
          return i + 1
        end,
      }
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
      local ws <close> = neap.workspace {
        store = false,
        policy = case % 3 == 1 and "none" or nil,
        executor = case % 3 == 2 and "dag" or nil,
      }
      ws:poison(true)
      for _ = 1, 3 do
        local fed, stack = {}, { sum = 0 }
        for _, blob in ipairs(net:inputs()) do
          if blob.dtype == "bool" then
            fed[blob.name] = draw(2) == 1
          else
            fed[blob.name] = draw(0, 2)
          end
        end
        walk(kept, stack, fed)
        assert.are.equal(stack.sum, ws:run(net, fed).sum[1])
        if stack.sum ~= 0 then n_read = n_read + 1 end
      end
    end
    assert.is_true(n_read > 90)
  end)
end)
