-- What ops write to declared names: a parameter, state or input has one value, whoever wrote it
-- last, under every policy; what is saved, fetched and read by the next run is that.
local neap = require "neap"

local memories = {
  { policy = "offset" }, { policy = "none" }, { policy = "name" }, { policy = "pool" },
  { executor = "dag" },
  { executor = "dynamic" }, { policy = "offset", in_place = false },
}

local function names_of(ws)
  local names = {}
  for i, blob in ipairs(ws:blobs()) do names[i] = blob.name end
  table.sort(names)
  return names
end

--- Runs the net, or one of this text, with these inputs as often as `expected` has values of a run
-- by name. As it is written and with
--- the backward written out.
local function runs(net, inputs, expected)
  local shapes = {}
  if type(net) == "string" then net = neap.net_from(net) end
  for name, x in pairs(inputs) do shapes[name] = x.shape end
  for _, memory in ipairs(memories) do
    for _, it in ipairs { net, net:expand(shapes) } do
      local ws <close> = neap.workspace { store = false }
      ws:poison(true)
      local program <close> = ws:compile(it, {
        store = false,
        policy = memory.policy,
        executor = memory.executor,
        in_place = memory.in_place,
      })
      for name, x in pairs(inputs) do ws:feed(name, x) end
      for _, values in ipairs(expected) do
        program:run()
        for name, value in pairs(values) do
          local got = ws:fetch(name):reshape(-1):totable()
          for _, x in ipairs(got) do
            assert.equal(value, x, (memory.policy or memory.executor) .. " " .. name)
          end
        end
      end
      for _, name in ipairs(names_of(ws)) do assert.is_nil(name:find "'", name) end
    end
  end
end

describe("an op that writes a declared name", function()
  it("clips a parameter for good, after its update", function()
    runs([[
      net clip
      input x f32 (2,3)
      param w f32 (4,3) = Constant { value = 1 }
      state lr f32 () = Constant { value = 1 }
      y = FC(x, w)
      l = Sum(y)
      gw = Gradient(l, w)
      w = Sgd(w, gw, lr) { momentum = 0 }
      w = Clamp(w) { min = -0.5, max = 0.5 } as clip
      outputs l]], { x = neap.ones { 2, 3 } }, { { w = -0.5, l = 24 }, { w = -0.5, l = -12 } })
  end)

  it("moves a state, in place", function()
    local text =
      "net s\n input d f32 (2)\n state m f32 (2) = Constant { value = 0 }\n m = Add(m, d)"
    runs(text, { d = neap.ones { 2 } }, { { m = 1 }, { m = 2 }, { m = 3 } })
    assert.equal(0, neap.net_from(text):plan({ store = false }).arena_bytes)
  end)

  it("gives what is read behind it the new value, and the backward of what was \z
      before it the old one", function()
    runs([[
      net both
      input x f32 (2,2)
      param w f32 (2,2) = Constant { value = 2 }
      state h f32 () = Constant { value = -1 }
      a = Mul(w, w)
      w = Add(w, h) as down
      b = MatMul(x, w)
      y = Add(a, b)
      l = Sum(y)
      gw, gh = Gradient(l, w, h)
      keep gw, gh
      outputs l]], { x = neap.ones { 2, 2 } }, {
      { w = 1, l = 24, gw = 2, gh = 8 }, { w = 0, l = 4, gw = 2, gh = 8 },
    })
    runs([[
      net before
      param w f32 (2) = Constant { value = 2 }
      a = Mul(w, w)
      l = Sum(a)
      u = Copy(w)
      gw = Gradient(l, w)
      w = Add(w, u) as twice
      keep gw
      outputs l]], {}, { { w = 4, l = 8, gw = 4 }, { w = 8, l = 32, gw = 8 } })
  end)

  it("makes an input what it wrote, and leaves the tensor that was fed as it is", function()
    local t = neap.tensor { -1, -1 }
    runs("net r\n input x f32 (2)\n x = Relu(x)\n y = Add(x, x)", { x = t },
      { { x = 0, y = 0 }, { x = 0, y = 0 } })
    assert.same({ -1, -1 }, t:totable())
  end)

  it("writes what no op has read before", function()
    runs("net c\n param w f32 (2) = Constant { value = 2 }\n input x f32 (2)\n w = Add(x, x)",
      { x = neap.ones { 2 } }, { { w = 2 } })
  end)

  it("may be an If, before and after other ops", function()
    runs([[
      net i
      input c bool ()
      param w f32 (3) = Constant { value = 1 }
      input g f32 (3)
      state lr f32 () = Constant { value = 0.5 }
      subnet step
        w = Sgd(w, g, lr) { momentum = 0 }
        takes w, g, lr
        gives w
      end
      w = If(c, w, g, lr) { then_net = step } as first
      w = Add(w, g) as add
      w = If(c, w, g, lr) { then_net = step } as again
      y = Add(w, w)
      outputs y]], { c = neap.full { value = 1, dtype = "bool" }, g = neap.ones { 3 } }, {
      { w = 1, y = 2 }, { w = 1, y = 2 },
    })
  end)

  it("in a branch whose result has another name works on a copy", function()
    runs([[
      net j
      input c bool ()
      param w f32 (3) = Constant { value = 1 }
      input g f32 (3)
      state lr f32 () = Constant { value = 0.5 }
      subnet step
        w = Sgd(w, g, lr) { momentum = 0 }
        takes w, g, lr
        gives w
      end
      subnet same
        takes w, g, lr
        gives w
      end
      w2 = If(c, w, g, lr) { then_net = step, else_net = same }
      y = Add(w2, w)
      outputs w2, y]], { c = neap.full { value = 1, dtype = "bool" }, g = neap.ones { 3 } }, {
      { w = 1, w2 = 0.5, y = 1.5 },
    })
  end)

  it("takes the gradient through, whatever writes the name next", function()
    runs([[
      net g
      input c bool ()
      param w f32 (2) = Constant { value = 2 }
      state p f32 (2) = Constant { value = 3 }
      state s f32 (2) = Constant { value = 1 }
      subnet th
        r = Mul(s, p)
        takes s, p
        gives r
      end
      subnet el
        r = Copy(p) as e
        takes s, p
        gives r
      end
      s = Mul(w, w) as first
      s = If(c, s, p) { then_net = th, else_net = el } as second
      l = Sum(s)
      gw = Gradient(l, w)
      keep gw
      outputs l]], { c = neap.full { value = 1, dtype = "bool" } }, { { l = 24, gw = 12, s = 12 } })
  end)

  it("between the loss and its gradient is refused: zeros would train nothing", function()
    local head = "net z\n input x f32 (2,3)\n param w f32 (4,3) = Constant { value = 1 }\n y = \z
      FC(x, w)\n l = Sum(y)\n"
    local net = neap.net_from(head
      .. "w = Clamp(w) { min = -1, max = 1 } as clip\n gw = Gradient(l, w)\n outputs l")
    local ok, message = pcall(net.plan, net, { store = false })
    assert.is_false(ok)
    assert.matches('Gradient ".-": "l" depends on "w" as it was before Clamp "clip" wrote it',
      tostring(message))
    -- One that the loss does not depend on has zeros as before.
    net = neap.net_from(head .. "param v f32 (2) = Constant { value = 1 }\n v = Add(v, v)\n gv = \z
      Gradient(l, v)\n keep gv\n outputs l")
    local ws <close> = neap.workspace { store = false }
    ws:run(net, { x = neap.ones { 2, 3 } })
    assert.same({ 0, 0 }, ws:fetch("gv"):totable())
  end)

  it("is refused where its type is not the declared one, with both", function()
    local net = neap.net_from "net t\n input x f32 (2,3)\n input z f32 (2,3)\n x = Sum(z) { axes \z
      = {1} }\n y = Relu(x)"
    local ok, message = pcall(net.plan, net, { store = false })
    assert.is_false(ok)
    assert.matches(
      'Sum "x": writes input "x", which is declared as f32 %(2,3%): expected that, got f32 %(2%)',
      tostring(message))
    assert.matches("give the output another name", tostring(message))
  end)

  it("saves one blob a name", function()
    local path = os.tmpname() .. ".safetensors"
    local ws <close> = neap.workspace { store = false }
    ws:run(neap.net_from "net c\n param w f32 (2) = Constant { value = 2 }\n w = Clamp(w) { min = \z
      -1, max = 1 }\n y = Add(w, w)")
    assert(ws:save(path))
    local saved = neap.load(path)
    os.remove(path)
    assert.same({ 1, 1 }, saved.w:totable())
    for name in pairs(saved) do assert.is_truthy(name == "w" or name == "y", name) end
  end)

  it("leaves the blob alone when an op fails, whichever comes first", function()
    local net = neap.net_from [[
      net f
      param w f32 (7,2) = Constant { value = 2 }
      input ids i64 (3)
      state m f32 (7,2) = Constant { value = 0 }
      m = Add(m, w)
      w = Add(w, m) as more
      y = Embedding(ids, w)
      outputs y]]
    local ws <close> = neap.workspace { store = false }
    ws:run(net, { ids = neap.tensor({ 0, 1, 6 }, "i64") })
    local w, m = ws:fetch "w", ws:fetch "m"
    assert.is_false(pcall(ws.run, ws, net, { ids = neap.tensor({ 0, 1, 7 }, "i64") }))
    assert.is_true(w:equal(ws:fetch "w") and m:equal(ws:fetch "m"))
    ws:run(net, { ids = neap.tensor({ 0, 1, 6 }, "i64") })
    assert.equal(10, ws:fetch "w":at(1, 1)) -- m = 2, w = 4 after one run; m = 6, w = 10 after two
  end)

  it("leaves it alone too where the op that fails reads what was written in place", function()
    local head = [[
      net f
      input c bool ()
      input ids i64 (2)
      state lr f32 () = Constant { value = 3 }
      param w f32 (7,2) = Constant { value = 1 }
      state s f32 (7,2) = Constant { value = 1 }
      subnet a
        r = Add(s, s)
        takes s
        gives r
      end
      ]]
    for _, ops in ipairs {
      "s = If(c, s) { then_net = a }", "s = Sgd(s, w, lr) { momentum = 0 }",
      "s = Add(s, w) as one\n s = Sgd(s, w, lr) { momentum = 0 } as two",
      "s = Sgd(s, w, lr) { momentum = 0 } as one\n s = Add(s, s) as two",
      "s = Add(s, w) as one\n s = If(c, s) { then_net = a } as two",
    } do
      local net = neap.net_from(head .. ops .. "\ny = Embedding(ids, s)\noutputs y")
      for _, memory in ipairs(memories) do
        local ws <close> = neap.workspace { store = false }
        local options = { store = false, policy = memory.policy, executor = memory.executor }
        ws:feed("c", neap.full { value = 1, dtype = "bool" })
        ws:run(net, { ids = neap.tensor({ 0, 6 }, "i64") }, options)
        local s = ws:fetch "s"
        assert.is_false(pcall(ws.run, ws, net, { ids = neap.tensor({ 0, 7 }, "i64") }, options))
        assert.is_true(s:equal(ws:fetch "s"), ops)
      end
    end
  end)
end)

describe("a loop that takes what its body writes by name", function()
  --- A net with a state m of ones and whatever `build` adds, run twice.
  local function check(inputs, expected, build)
    local net = neap.net "taken"
    for name, x in pairs(inputs) do net:input(name, x.shape) end
    net:declare("m", "state", { 2 }, "f32", { op = "Constant", value = 1 })
    build(net)
    runs(net, inputs, expected)
  end

  --- While over `init` beside a counter, n times.
  local function times(net, n, init, body)
    return select(2, net:While {
      init = { net:const(0), table.unpack(init) }, cond = function(_, i) return i:lt(n) end,
      body = function(b, i, ...) return i + 1, body(b, ...) end,
    })
  end

  it("begins with its value from before, and leaves the blob what the body wrote", function()
    check({}, { { y = 15, m = 5 }, { y = 35, m = 9 } }, function(net)
      local y = times(net, 4, { "m" }, function(b, h)
        b:Add({ "m", 1 }, "m")
        return b:Add { h, "m" }
      end)
      net:Copy(y, "y")
      net:outputs { "y" }
    end)
    local rows = { s = neap.ones { 4, 2 } }
    check(rows, { { y = 5, m = 5 }, { y = 9, m = 9 } }, function(net)
      local y = net:Recurrent { seq = { "s" }, init = { "m" }, step = function(b, h, row)
        b:Add({ h, row }, "m")
        return b:Copy "m"
      end }
      net:Copy(y, "y")
      net:outputs { "y" }
    end)
  end)

  it("begins so in two states, which change places", function()
    check({}, { { y = 11, z = 4, m = 6 }, { y = 66, z = 24, m = 36 } }, function(net)
      local y, z = times(net, 2, { "m", "m" }, function(b, h, k)
        b:Add({ "m", h }, "m")
        return b:Add { b:Add { h, k }, "m" }, b:Copy(h)
      end)
      net:Copy(y, "y")
      net:Copy(z, "z")
      net:outputs { "y", "z" }
    end)
  end)

  it("begins so within another loop, which writes it too", function()
    check({}, { { n = 12, m = 5 }, { n = 24, m = 9 } }, function(net)
      net:declare("n", "state", { 2 }, "f32", { op = "Constant", value = 0 })
      times(net, 2, {}, function(outer)
        local z = times(outer, 2, { "m" }, function(b, h)
          b:Add({ "m", 1 }, "m")
          return b:Add { h, "m" }
        end)
        outer:Copy(z, "n")
      end)
    end)
  end)

  it("reads rows of the sequence from before", function()
    for _, role in ipairs { "state", "parameter" } do
      for _, viewed in ipairs { false, true } do
        check({ x = neap.ones { 2 } }, { { y = 4, q = 16 }, { y = 8464, q = 31 } }, function(net)
          net:declare("q", role, { 3, 2 }, "f32", { op = "Constant", value = 1 })
          local rows = viewed and net:Alias "q" or "q"
          local y = net:Recurrent { seq = { rows }, init = { "x" }, step = function(b, h, row)
            b:Add({ "q", 5 }, "q")
            return b:Mul { row, b:Add { h, 1 } }
          end }
          net:Copy(y, "y")
          net:outputs { "y" }
        end)
      end
    end
  end)

  it("reads a view of it as it was before", function()
    check({}, { { y = 13, m = 4 }, { y = 34, m = 7 } }, function(net)
      net:Reshape("m", "v", { shape = { 2 } })
      local y = times(net, 3, { "v" }, function(b, h)
        b:Add({ "m", 1 }, "m")
        return b:Add { b:Add { h, "m" }, "v" }
      end)
      net:Copy(y, "y")
      net:outputs { "y" }
    end)
  end)

  it("makes an input what the body wrote", function()
    check({ x = neap.ones { 2 } }, { { y = 15, z = 5 }, { y = 35, z = 9 } }, function(net)
      local y = times(net, 4, { "x" }, function(b, h)
        b:Add({ "x", 1 }, "x")
        return b:Add { h, "x" }
      end)
      net:Copy(y, "y")
      net:Copy("x", "z")
      net:outputs { "y", "z" }
    end)
  end)

  it("has the gradient of what it began with", function()
    check({ x = neap.ones { 2 }, s = neap.ones { 3 } }, {
      { y = 15, g = 7, m = 2 }, { y = 23, g = 7, m = 2 },
    }, function(net)
      local y = net:Recurrent { seq = { "s" }, init = { "m" }, step = function(b, h)
        b:Add({ "x", 1 }, "m")
        return b:Add { b:Mul { h, 2 }, "x" }
      end }
      net:Copy(y, "y")
      net:Sum(y, "l")
      net:gradient("l", { wrt = { "x" } })
      net:Copy("x_grad", "g")
      net:outputs { "y", "g" }
    end)
  end)
end)

describe("a gradient through resident blobs that a loop writes by name", function()
  local function counted(net, max, body)
    net:While {
      init = { net:const(0) },
      max = max,
      cond = function(_, i) return i:lt(4) end,
      body = function(b, i)
        body(b)
        return i + 1
      end,
    }
  end

  --- Four times the body: in the net itself, and in loops.
  local repeated = {
    unrolled = function(net, body)
      for _ = 1, 4 do body(net) end
    end,
    bounded = function(net, body) counted(net, 6, body) end,
    unbounded = function(net, body) counted(net, nil, body) end,
    recurrent = function(net, body)
      net:Recurrent { seq = { net:Copy "s" }, init = {}, step = function(b, row)
        body(b)
        return b:Copy(row)
      end }
    end,
    scan = function(net, body)
      net:Scan { seq = { net:Copy "s" }, init = {}, body = function(b, row)
        body(b)
        return b:Copy(row)
      end }
    end,
    loop = function(net, body)
      net:Loop { trip = 4, init = {}, body = function(b)
        body(b)
        return true
      end }
    end,
    in_a_branch = function(net, body)
      net:If("c", function(t) counted(t, 4, body) end)
    end,
    around_a_branch = function(net, body)
      counted(net, 4, function(t) t:If("c", body) end)
    end,
    in_a_loop = function(net, body)
      net:While {
        init = { net:const(0) },
        cond = function(_, i) return i:lt(2) end,
        body = function(outer, i)
          outer:While {
            init = { outer:const(0) },
            max = 2,
            cond = function(b) return b:const(1) end,
            body = function(b, k)
              body(b)
              return k + 1
            end,
          }
          return i + 1
        end,
      }
    end,
  }

  local thorough = { recurrent = true, in_a_loop = true } -- under all policies and executors

  --- What one run leaves: loss, gradients of x and m, the resident blobs.
  local function results(role, memory, expanded, how, body, loss)
    local net = neap.net "carried"
    net:input("x", { 3 })
    net:input("s", { 4 })
    net:input("c", {}, "bool")
    for _, name in ipairs { "m", "n" } do
      net:declare(name, role, { 3 }, "f32", { op = "Constant", value = 0.5 })
    end
    how(net, body)
    loss(net)
    net:gradient("l", { wrt = { "x" } })
    net:Copy("x_grad", "g")
    net:outputs { "l", "g" }
    local ws <close> = neap.workspace { store = false }
    ws:poison(true)
    local inputs = {
      x = neap.tensor { 0.5, -1, 2 },
      s = neap.ones { 4 },
      c = neap.full { value = 1, dtype = "bool" },
    }
    local program <close> = ws:compile(expanded and net:expand() or net, {
      store = false, policy = memory.policy, executor = memory.executor,
      in_place = memory.in_place,
    })
    for name, x in pairs(inputs) do ws:feed(name, x) end
    program:run()
    local got = {}
    for _, name in ipairs { "l", "g", "m", "n" } do got[name] = ws:fetch(name):clone() end
    return got
  end

  --- All loops, but one of this name, give what the ops give when they stand in the net one after
  -- the other; each the same bits
  --- everywhere.
  local function check(body, loss, expected, except)
    local different = {}
    local function same(kind, how, role, memory, expanded, plain, first)
      local got = results(role, memory, expanded, how, body, loss)
      for name, x in pairs(got) do
        if not (x:equal((first or got)[name])
            and x:close(plain[name], { rtol = 1e-5, atol = 1e-6 })) then
          different[#different + 1] = ("%s %s %s %s"):format(kind, role,
            memory.policy or memory.executor or "", name)
        end
      end
      return first or got
    end
    local plain = results("state", {}, false, repeated.unrolled, body, loss)
    if expected then assert.same(expected, plain.g:totable()) end
    for kind, how in pairs(repeated) do
      if kind ~= except then
        local first = same(kind, how, "state", {}, false, plain)
        same(kind, how, "state", {}, true, plain, first)
        same(kind, how, "parameter", {}, false, plain, first)
        for _, memory in ipairs(thorough[kind] and memories or {}) do
          same(kind, how, "state", memory, false, plain, first)
        end
      end
    end
    assert.same({}, different)
  end

  local function sums(net) net:Add({ net:Sum "x", net:Sum "m" }, "l") end

  it("is what the last iteration wrote", function()
    check(function(b) b:Mul({ "x", 2 }, "m") end, sums, { 3, 3, 3 })
  end)

  it("comes from all iterations that added to it", function()
    check(function(b) b:Add({ "m", b:Mul { "x", "x" } }, "m") end, sums, { 5, -7, 17 })
  end)

  it("goes through what the iteration wrote, where that says enough", function()
    -- which is run again for its gradient
    check(function(b) b:Tanh(b:Add { "m", "x" }, "m") end, sums, nil, "around_a_branch")
  end)

  it("arrives within the loop too, at one blob after the other", function()
    check(function(b)
      b:Add({ "n", "m" }, "n")
      b:Add({ "m", "x" }, "m")
    end, function(net) net:Sum("n", "l") end, { 6, 6, 6 })
  end)

  it("changes places with another", function()
    check(function(b)
      b:Copy("m", "t")
      b:Add({ "n", "x" }, "m")
      b:Mul({ "t", 2 }, "n")
    end, sums)
  end)

  it("is refused where it needs what an iteration has overwritten", function()
    for kind, how in pairs(repeated) do
      local ok, message = pcall(results, "state", {}, false, how,
        function(b) b:Mul({ "m", "x" }, "m") end, sums)
      -- a branch runs again, on values of its own
      local in_loop = kind ~= "unrolled" and kind ~= "in_a_branch"
      assert.equal(not in_loop, ok, kind)
      if in_loop then
        assert.matches('needs "m", which its body overwrites', tostring(message), nil, true)
      end
    end
  end)

  it("is refused where an op without a gradient writes one", function()
    local ok, message = pcall(results, "state", {}, false, repeated.bounded,
      function(b) b:Sgd({ "m", "x", b:const(0.5) }, "m", { momentum = 0 }) end, sums)
    assert.is_false(ok)
    assert.matches("no gradient is defined through Sgd", tostring(message))
  end)

  it("goes past a blob that only the loop's own updates concern", function()
    check(function(b)
      b:RunningAverage({ "n", "x" }, "n")
      b:Add({ "m", "x" }, "m")
    end, sums, { 5, 5, 5 })
  end)
end)

describe("what a control op names like one of its operands", function()
  it("is another one's next value, if that is its place: a final state with a capture's name is \z
      written when the loop ends", function()
    runs([[
      net ends
      input h f32 (2)
      input s f32 (3,2)
      state m f32 (2) = Constant { value = 2 }
      subnet step
        input g
        input row
        t = Add(g, row)
        n = Add(t, m)
        takes g, row, m
        gives n
      end
      m = Recurrent(h, s, m) { step_net = step, n_state = 1, n_seq = 1 }
    ]], { h = neap.zeros { 2 }, s = neap.ones { 3, 2 } }, { { m = 9 }, { m = 30 } })
  end)

  it("may be the condition, which an op behind the last reader of another If writes", function()
    local net = neap.net "flips"
    net:declare("b", "state", { 1 }, "bool", { op = "Constant", value = 1 })
    net:declare("m", "state", { 2 }, "f32", { op = "Constant", value = 1 })
    net:If("b", function(t) t:Add({ "m", 1 }, "m") end)
    net:If("b", function(t) t:LogicalNot("b", "b") end)
    net:Copy("m", "y")
    net:outputs { "y" }
    runs(net, {}, { { m = 2, y = 2, b = false }, { m = 2, y = 2, b = false } })
  end)

  it("may be the condition and a number, written in both branches", function()
    local net = neap.net "counts"
    net:declare("b", "state", { 1 }, "f32", { op = "Constant", value = 1 })
    net:declare("m", "state", { 1 }, "f32", { op = "Constant", value = 5 })
    net:If("b", function(t) t:Add({ "m", "b" }, "m") end)
    net:If("b", function(t) t:Sub({ "b", 1 }, "b") end, function(t) t:Add({ "b", 3 }, "b") end)
    net:Copy("b", "y")
    net:outputs { "y" }
    runs(net, {}, { { m = 6, b = 0, y = 0 }, { m = 6, b = 3, y = 3 }, { m = 9, b = 2, y = 2 } })
  end)

  it("may be captured twice: the second capture is the value from before", function()
    runs([[
      net twice
      input c bool ()
      param w f32 (3) = Constant { value = 2 }
      state lr f32 () = Constant { value = 0.5 }
      subnet step
        input p
        input q
        p = Sgd(p, q, lr) { momentum = 0 }
        y = Add(p, q)
        takes p, q, lr
        gives p, y
      end
      subnet same
        input p
        input q
        y = Add(p, q)
        takes p, q, lr
        gives p, y
      end
      w, y = If(c, w, w, lr) { then_net = step, else_net = same }
      outputs y]], { c = neap.full { value = 1, dtype = "bool" } }, {
      { w = 1, y = 3 }, { w = 0.5, y = 1.5 },
    })
  end)
end)

describe("bytes that a run writes", function()
  local swaps = "net p\n input x f32 (2,3)\n y = Permute(x) { axes = {1,0} }\n outputs y"
  local met = 'writes "y", which has bytes in common with "x"'

  it("are no other blob's under another name", function()
    local ws <close> = neap.workspace { store = false }
    local t = neap.arange(1, 7):reshape { 2, 3 }
    ws:feed("x", t, { share = true })
    ws:feed("y", t:reshape { 3, 2 }, { share = true })
    local ok, message = pcall(ws.run, ws, neap.net_from(swaps))
    assert.is_false(ok)
    assert.matches(met, tostring(message))
    assert.same({ 1, 2, 3, 4, 5, 6 }, t:reshape(-1):totable())
    ws:feed("y", neap.zeros { 3, 2 }) -- a copy: it may run
    assert.same({ 1, 4, 2, 5, 3, 6 }, ws:run(neap.net_from(swaps)).y:reshape(-1):totable())
  end)

  it("are no other forwarded name's, and no part of another tensor", function()
    local parent <close> = neap.workspace { store = false }
    parent:feed("p", neap.arange(1, 5):reshape { 2, 2 })
    local child <close> = parent:child { forward = { x = "p", y = "p" } }
    local net =
      neap.net_from "net p\n input x f32 (2,2)\n y = Permute(x) { axes = {1,0} }\n outputs y"
    local ok, message = pcall(child.run, child, net)
    assert.is_false(ok)
    assert.matches(met, tostring(message))
    local t = neap.arange(0, 6)
    parent:feed("a", t:narrow(1, 1, 4), { share = true })
    parent:feed("b", t:narrow(1, 3, 4), { share = true })
    ok, message = pcall(parent.run, parent,
      neap.net_from "net n\n input a f32 (4)\n b = Neg(a)\n outputs b")
    assert.is_false(ok)
    assert.matches('writes "b", which has bytes in common with "a"', tostring(message))
  end)

  it("may be read under two names, and written where they only touch", function()
    local ws <close> = neap.workspace { store = false }
    local t = neap.arange(0, 8)
    for name, from in pairs { a = 1, b = 5 } do
      ws:feed(name, t:narrow(1, from, 4), { share = true })
    end
    ws:run(neap.net_from "net n\n input a f32 (4)\n b = Neg(a)\n outputs b")
    assert.same({ 0, 1, 2, 3, 0, -1, -2, -3 }, t:totable())
    ws:feed("c", t:narrow(1, 2, 4), { share = true })
    assert.same({ 1, 3, 5, 3 }, ws:run(
      neap.net_from "net m\n input a f32 (4)\n input c f32 (4)\n d = Add(a, c)\n outputs d").d
      :totable())
  end)

  it("are no bytes of a branch beside it, whatever their names", function()
    local ws <close> = neap.workspace { store = false }
    local t = neap.ones { 4 }
    ws:feed("a", t, { share = true })
    ws:feed("b", t, { share = true })
    ws:feed("x", neap.ones { 4 })
    local writes = neap.net_from "net writes\n input x f32 (4)\n a = Neg(x)\n outputs a"
    local reads = neap.net_from "net reads\n input b f32 (4)\n c = Neg(b)\n outputs c"
    local ok, message = pcall(ws.run_steps, ws, { { writes }, { reads }, concurrent = true })
    assert.is_false(ok)
    assert.matches("would meet at blob \"a\"", tostring(message))
    assert.same({ 1, 1, 1, 1 }, t:totable())
  end)
end)
