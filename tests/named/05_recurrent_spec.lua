-- Point 5: recurrent nets, a step net over the rows of sequences.
local neap = require "neap"
local support = require "support"
local raises, run = support.raises, support.run

local memories = {}
for _, executor in ipairs { "simple", "dag" } do
  for _, policy in ipairs { "none", "name", "offset" } do
    memories[#memories + 1] = { executor = executor, policy = policy }
  end
end

local N, D = 2, 3

--- One step on a net: h' = tanh(h w + x) * h + x; `pre` and `sum` are named, so that they can be
-- recomputed.
local function step_of(w, last_only)
  return function(b, h, x)
    b:MatMul({ h, w }, "pre")
    b:Add({ "pre", x }, "sum")
    local n = b:Tanh("sum", "gate") * h + x
    if last_only then return n end
    return n, n
  end
end

--- o: T, lengths, recompute, forward_only (with stacked: all states too), dtype
local function recurrent(o)
  local net, dtype = neap.net "recurrent", o.dtype or "f64"
  net:input("x", { o.T or 5, N, D }, dtype)
  net:input("w", { D, D }, dtype)
  net:input("h0", { N, D }, dtype)
  if o.lengths then net:input("lengths", { N }, "i64") end
  local h, all = net:Recurrent {
    seq = { "x" },
    init = { "h0" },
    lengths = o.lengths and "lengths" or nil,
    recompute = o.recompute,
    step = step_of("w", o.forward_only and not o.stacked),
  }
  net:Copy(h, "h")
  if o.forward_only then
    net:outputs { "h" }
    if o.stacked then net:outputs { "h", net:Copy(all, "all") } end
    return net
  end
  net:Copy(all, "all")
  net:Add({
    net:Sum(net:blob "h" * net:blob "h"), net:Sum(net:blob "all" * net:blob "all" * net:blob "all"),
  }, "loss")
  net:gradient("loss", { wrt = { "x", "w", "h0" } })
  net:outputs { "h", "all", "loss", "x_grad", "w_grad", "h0_grad" }
  return net
end

--- The same, a step written out after the other.
local function unrolled(o)
  local net, dtype = neap.net "unrolled", o.dtype or "f64"
  local T = o.T or 5
  local x = net:input("x", { T, N, D }, dtype)
  net:input("w", { D, D }, dtype)
  local h = net:input("h0", { N, D }, dtype)
  local rows = {}
  for t = 1, T do
    local x_t = x:select(1, t)
    h = net:Tanh(net:MatMul { h, "w" } + x_t) * h + x_t
    rows[t] = h:unsqueeze(1)
  end
  net:Copy(h, "h")
  net:Concat(rows, "all", { axis = 1 })
  net:Add({
    net:Sum(net:blob "h" * net:blob "h"), net:Sum(net:blob "all" * net:blob "all" * net:blob "all"),
  }, "loss")
  net:gradient("loss", { wrt = { "x", "w", "h0" } })
  net:outputs { "h", "all", "loss", "x_grad", "w_grad", "h0_grad" }
  return net
end

local function feeds_of(o)
  local dtype = o.dtype or "f64"
  local feeds = neap.with({ seed = 7 }, function()
    return {
      x = neap.rand { o.T or 5, N, D, dtype = dtype },
      w = neap.rand { D, D, dtype = dtype },
      h0 = neap.rand { N, D, dtype = dtype },
    }
  end)
  feeds.lengths = o.lengths and neap.tensor(o.lengths, "i64")
  return feeds
end

local gradients = { "x_grad", "w_grad", "h0_grad" }

--- Central differences of the loss by every element of the named inputs.
local function check_gradient(o, memory)
  local feeds, net = feeds_of(o), recurrent(o)
  local r = run(net, feeds, memory)
  local ws <close> = neap.workspace { store = false }
  for name, t in pairs(feeds) do ws:feed(name, t) end
  local forward = recurrent(o)
  ws:init(forward)
  local program <close> = ws:compile(forward, {})
  local function loss()
    program:run()
    return ws:fetch("loss"):item()
  end
  for _, name in ipairs { "x", "w", "h0" } do
    local flat, gradient = feeds[name]:reshape(-1), r[name .. "_grad"]:reshape(-1)
    for i = 1, #flat do
      local value, eps = flat[i], 1e-5
      flat[i] = value + eps
      ws:feed(name, feeds[name])
      local above = loss()
      flat[i] = value - eps
      ws:feed(name, feeds[name])
      local below = loss()
      flat[i] = value
      ws:feed(name, feeds[name])
      local expected = (above - below) / (2 * eps)
      assert.is_true(math.abs(gradient[i] - expected) <= 1e-6 * (1 + math.abs(expected)),
        ("%s[%d]: %g, by differences %g"):format(name, i, gradient[i], expected))
    end
  end
end

describe("Recurrent", function()
  it("has the gradient that finite differences give, in f64", function() check_gradient {} end)

  it("has the same gradient with recompute, bit for bit", function()
    local feeds = feeds_of {}
    local a = run(recurrent {}, feeds)
    for _, memory in ipairs(memories) do
      local b = run(recurrent { recompute = { "pre", "sum" } }, feeds, memory)
      for _, name in ipairs(gradients) do assert.is_true(a[name]:equal(b[name])) end
    end
    check_gradient { recompute = { "pre", "sum" } }
  end)

  it("keeps less from forward to backward with recompute", function()
    local much = recurrent { T = 100 }:plan {}
    local less = recurrent { T = 100, recompute = { "pre", "sum", "gate" } }:plan {}
    assert.is_true(less.arena_bytes < much.arena_bytes,
      ("%d < %d"):format(less.arena_bytes, much.arena_bytes))
  end)

  it("recomputes whole ops only: an op with one listed output needs all of them listed", function()
    local net = neap.net "f"
    net:input("x", { 4, N, 6 })
    local function build(recompute)
      return net:Recurrent { seq = { "x" }, recompute = recompute, step = function(b, x)
        local l, r = b:Split(x, { "l", "r" }, { axis = -1 })
        return l * r
      end }
    end
    local text = net:text()
    local err = raises("\"r\"", function() build { "l" } end)
    assert.are.equal("graph", err.code)
    assert.are.equal("Split", err.op)
    raises("no op of the step makes \"gone\"", function() build { "gone" } end)
    assert.are.equal(text, net:text())
    build { "l", "r" }
  end)

  it("computes what the net written out computes, forward and backward", function()
    local feeds = feeds_of {}
    local expected = run(unrolled {}, feeds)
    for _, memory in ipairs(memories) do
      local r = run(recurrent {}, feeds, memory)
      for name, t in pairs(expected) do
        assert.is_true(r[name]:close(t, { rtol = 1e-12, atol = 1e-12 }), name)
      end
    end
  end)

  it("runs planned as it runs unplanned, bit for bit, and holds what was forecast", function()
    for _, o in ipairs {
      { dtype = "f32" },
      { dtype = "f32", forward_only = true, stacked = true },
      { dtype = "f32", recompute = { "gate" } },
    } do
      for _, memory in ipairs(memories) do
        local r = neap.check.plan(recurrent(o), {
          policy = memory.policy, executor = memory.executor, poison = true, steps = 2,
        })
        assert.is_true(r.same, tostring(r.different))
        assert.are.equal(0, r.allocations)
        assert.are.equal(r.forecast_bytes, r.held_bytes)
      end
    end
  end)

  it("keeps the states of sequences that have ended and gives zeros for them", function()
    for _, memory in ipairs(memories) do
      local o = { T = 5, lengths = { 3, 5 } }
      local feeds = feeds_of(o)
      local r, full = run(recurrent(o), feeds, memory), run(recurrent { T = 5 }, feeds_of { T = 5 })
      for t = 1, 5 do
        for n = 1, N do
          local inside = t <= o.lengths[n]
          local expected = inside and full.all[t][n] or neap.zeros { D, dtype = "f64" }
          assert.is_true(r.all[t][n]:equal(expected))
        end
      end
      assert.is_true(r.h[1]:equal(full.all[3][1]))
      assert.is_true(r.h[2]:equal(full.all[5][2]))
      for t = 4, 5 do assert.are.same({ 0, 0, 0 }, r.x_grad[t][1]:totable()) end
    end
    check_gradient { lengths = { 3, 5 } }
    check_gradient { lengths = { 0, 2 } }
  end)

  it("keeps a state past a sequence's end that the step writes again by name", function()
    local lengths = { 1, 3, 0 }
    local function build(step, by_hand)
      local net = neap.net "f"
      net:input("x", { 3, 3 }, "f64")
      net:input("h0", { 3 }, "f64")
      net:input("lengths", { 3 }, "i64")
      net:input("mask", { 3, 3 }, "f64") -- 1 while the sequence goes on
      local h, rows = net:Recurrent { seq = by_hand and { "x", "mask" } or { "x" }, init = { "h0" },
        lengths = not by_hand and "lengths" or nil, step = step }
      local y = net:Add { h, net:Sum(rows, nil, { axes = { 1 } }) }
      net:gradient(net:Sum(y, "loss"), { wrt = { "x", "h0" } })
      net:outputs { net:Copy(h, "h"), net:Copy(rows, "rows"), "x_grad", "h0_grad" }
      local mask = neap.zeros { 3, 3, dtype = "f64" }
      for t = 1, 3 do
        for n = 1, 3 do mask[{ t, n }] = t <= lengths[n] and 1 or 0 end
      end
      return run(net, { x = neap.arange(9):to("f64"):view(3, 3) / 9, mask = mask,
        h0 = neap.tensor({ 0.5, 0.25, -1 }, "f64"), lengths = neap.tensor(lengths, "i64") })
    end
    local expected = build(function(_, h, x, mask)
      local n = h:tanh() + x
      return n * mask + h * (1 - mask), n * mask
    end, true)
    local steps = {
      function(b, h, x)
        b:Tanh(h, h)
        b:Add({ h, x }, h)
        return h, h
      end,
      function(b, h, x)
        b:If(b:const(1), function(s) s:Tanh(h, h) end)
        local n = b:Add { h, x }
        b:Neg(h, h)
        return n, n
      end,
    }
    for _, step in ipairs(steps) do
      local r = build(step)
      for _, name in ipairs { "h", "rows", "x_grad", "h0_grad" } do
        assert.is_true(r[name]:close(expected[name]))
      end
    end
  end)

  it("refuses lengths that are no number of its steps, and leaves what it writes", function()
    local net = neap.net "beyond"
    net:input("x", { 4, 3, 2 })
    net:input("lengths", { 3 }, "i64")
    net:declare("m", "state", { 1 }, "f32", { op = "Constant", value = 0 })
    local h, all = net:Recurrent {
      seq = { "x" },
      init = { net:const(neap.zeros(3, 2)) },
      lengths = "lengths",
      step = function(b, h, x)
        b:Add({ "m", b:const(neap.tensor { 1 }) }, "m")
        return h + x, x
      end,
    }
    net:Copy(h, "h")
    net:Copy(all, "all")
    net:outputs { "h", "all" }
    for _, executor in ipairs { "simple", "dag", "dynamic" } do
      local ws <close> = neap.workspace { store = false, executor = executor }
      ws:init(net)
      local function run_with(...)
        return
          ws:run(net, { x = neap.ones(4, 3, 2), lengths = neap.tensor({ ... }, "i64") }).h:totable()
      end
      assert.are.same({ { 4, 4 }, { 0, 0 }, { 1, 1 } }, run_with(4, 0, 1))
      raises("length 5 of sequence 1 is out of range for 4 steps", run_with, 5, 2, 0)
      raises("length -1 of sequence 3 is out of range for 4 steps", run_with, 4, 2, -1)
      raises("length 9007199254740993 of sequence 2", run_with, 4, 9007199254740993, 0)
      assert.are.equal(4, ws:fetch("m"):item())
      assert.are.same({ { 2, 2 }, { 4, 4 }, { 3, 3 } }, run_with(2, 4, 3))
      assert.are.equal(8, ws:fetch("m"):item())
    end
  end)

  it("takes empty sequences among others: lengths 0, 1, 2, 3, 0, 1", function()
    local lengths = { 0, 1, 2, 3, 0, 1 }
    local net = neap.net "f"
    net:input("x", { 3, 6, 2 })
    net:input("h0", { 6, 2 })
    net:input("lengths", { 6 }, "i32")
    local h, all = net:Recurrent {
      seq = { "x" },
      init = { "h0" },
      lengths = "lengths",
      step = function(_, h, x)
        local n = h + x
        return n, n
      end,
    }
    net:Sum(h * h, "loss")
    net:gradient("loss", { wrt = { "x", "h0" } })
    net:outputs { h, all, "x_grad", "h0_grad" }
    local r = run(net, {
      x = neap.ones { 3, 6, 2 },
      h0 = neap.full { 6, 2, value = 10 },
      lengths = neap.tensor(lengths, "i32"),
    })
    for n, length in ipairs(lengths) do
      assert.are.same({ 10 + length, 10 + length }, r[h.name][n]:totable())
      assert.are.same({ 2 * (10 + length), 2 * (10 + length) }, r.h0_grad[n]:totable())
      for t = 1, 3 do
        local y, dx = t <= length and 10 + t or 0, t <= length and 2 * (10 + length) or 0
        assert.are.same({ y, y }, r[all.name][t][n]:totable())
        assert.are.same({ dx, dx }, r.x_grad[t][n]:totable())
      end
    end
  end)

  it("takes a sequence of no steps: states are the initial ones, gradients pass them", function()
    for _, memory in ipairs(memories) do
      local r = run(recurrent { T = 0 }, feeds_of { T = 0 }, memory)
      local h0 = feeds_of({ T = 0 }).h0
      assert.is_true(r.h:equal(h0))
      assert.are.same({ 0, N, D }, r.all.shape)
      assert.is_true(r.h0_grad:equal(h0 * 2))
      assert.is_true(r.w_grad:equal(neap.zeros { D, D, dtype = "f64" }))
    end
  end)

  it("takes constant memory over 1000 steps when it only runs forward, apart from what it \z
      is asked to stack", function()
    for _, memory in ipairs(memories) do
      local function arena(o)
        o.forward_only = true
        return recurrent(o):plan(memory).arena_bytes
      end
      assert.are.equal(arena { T = 10 }, arena { T = 1000 })
      local net = recurrent { T = 1000, forward_only = true }
      run(net, feeds_of { T = 1000 }, memory)
    end
  end)

  it("has two buffers of each state and one frame of temporaries forward-only", function()
    local net = neap.net "f"
    net:input("x", { 50, 256 })
    net:input("h0", { 256 })
    local h = net:Recurrent {
      seq = { "x" },
      init = { "h0" },
      step = function(b, h, x) return b:Tanh(b:Relu(h * x) + b:Sigmoid(x)) end,
    }
    net:outputs { h }
    -- One buffer is the output, resident; the other and two temporaries lie in the arena.
    assert.are.equal(3 * 1024, net:plan({}).arena_bytes)
  end)

  it("has one copy of the backward's temporaries, whatever the number of steps", function()
    local function scratch(T)
      for _, row in ipairs(recurrent { T = T }:plan({}):ops()) do
        if row.type == "LoopGradient" then return row.scratch_bytes end
      end
    end
    assert.are.equal(scratch(3), scratch(300))
    assert.is_true(scratch(3) > 0)
  end)

  it("saves in training one frame a step: of 1000 steps 100 times as much as of 10", function()
    local function frames(T)
      for _, row in ipairs(recurrent { T = T }:plan({}):values()) do
        if row.blob:match "frames$" then return row.bytes end
      end
    end
    local head = 64
    local ten, many = frames(10) - head, frames(1000) - head
    local state = 64 -- of the last state, behind the last frame
    assert.are.equal(100 * (ten - state), many - state)
  end)

  it("links with an offset: rows shifted by one see the step before", function()
    local net = neap.net "f"
    local x = net:input("x", { 5, 2 })
    local before, now = x:narrow(1, 1, 4), x:narrow(1, 2, 4)
    local d = net:Recurrent { seq = { before, now }, step = function(_, a, b) return b - a end }
    net:outputs { d }
    local r = run(net, { x = { { 1, 1 }, { 2, 4 }, { 4, 9 }, { 7, 16 }, { 11, 25 } } })
    assert.are.same({ { 1, 3 }, { 2, 5 }, { 3, 7 }, { 4, 9 } }, r[d.name]:totable())
  end)

  it("has aliases: a slice of all states is the state after that step", function()
    local net = neap.net "f"
    net:input("x", { 6, 3 })
    net:input("h0", { 3 })
    local h, all = net:Recurrent { seq = { "x" }, init = { "h0" }, step = function(_, h, x)
      local n = h + x
      return n, n
    end }
    local last = all:select(1, 6)
    local middle = all:narrow(1, 2, 2)
    net:outputs { h, last, middle }
    local r = run(net, { x = neap.ones { 6, 3 }, h0 = neap.zeros { 3 } })
    assert.is_true(r[h.name]:equal(r[last.name]))
    assert.are.same({ { 2, 2, 2 }, { 3, 3, 3 } }, r[middle.name]:totable())
  end)

  it("steps over several states and sequences, and writes outer blobs by name", function()
    local net = neap.net "f"
    net:input("x", { 4, 2 })
    net:input("k", { 4 })
    net:Copy(net:const(0), "total")
    local a, b, y = net:Recurrent {
      seq = { "x", "k" }, init = { net:Sum("x", nil, { axes = { 1 } }), net:const(1) },
      step = function(s, a, b, x, k)
        s:Add({ "total", k }, "total")
        return a + x, b * k, x * k
      end,
    }
    net:outputs { a, b, y, net:Copy("total", "sum") }
    for _, memory in ipairs(memories) do
      local r = run(net, { x = { { 1, 2 }, { 3, 4 }, { 5, 6 }, { 7, 8 } }, k = { 1, 2, 3, 4 } },
        memory)
      assert.are.same({ 32, 40 }, r[a.name]:totable())
      assert.are.equal(24, r[b.name]:item())
      assert.are.same({ { 1, 2 }, { 6, 8 }, { 15, 18 }, { 28, 32 } }, r[y.name]:totable())
      assert.are.equal(10, r.sum:item())
    end
  end)

  it("runs a convolutional step with normalisation and pooling as the net written out does, \z
      in both schedules", function()
    local function build(kind, rate)
      local net = neap.net(kind)
      net:input("x", { 3, 2, 8, 8, 8 })
      net:param("w", { 8, 8, 3, 3 }, neap.init.normal { std = 0.1 })
      net:param("g", { 8 }, 1)
      net:param("b", { 8 }, 0)
      local function step(b, x)
        local n = b:BatchNorm({ b:Conv({ x, "w" }, nil, { pad = { 1, 1 } }), "g", "b" }, nil,
          { training = true })
        return b:Dropout(b:MaxPool(b:Relu(n), nil, { kernel = { 2, 2 }, stride = { 2, 2 } }), nil,
          { rate = rate })
      end
      local y
      if kind == "steps" then
        y = net:Recurrent { seq = { "x" }, step = step }
      else
        local rows = {}
        for t = 1, 3 do rows[t] = step(net, net:blob("x"):select(1, t)):unsqueeze(1) end
        y = net:Concat(rows, "y", { axis = 1 })
      end
      net:Sum(y * y, "loss")
      net:gradient("loss", { wrt = { "x", "w", "g", "b" } })
      net:outputs { "loss", "x_grad", "w_grad", "g_grad", "b_grad" }
      return net
    end
    local feeds, results = { x = neap.randn { 3, 2, 8, 8, 8 } }, {}
    for _, kind in ipairs { "steps", "unrolled" } do
      local ws <close> = neap.workspace { seed = 2, store = false }
      results[kind] = ws:run(build(kind, 0), feeds)
    end
    for name, t in pairs(results.steps) do
      assert.is_true(t:close(results["unrolled"][name], { rtol = 1e-3, atol = 1e-3 }), name)
    end
    for _, executor in ipairs { "simple", "dag" } do
      assert.is_true(neap.check.plan(build("steps", 0.3),
        { executor = executor, poison = true, steps = 2 }).same)
    end
  end)

  it("normalises a plain value on one lane of a dag without waiting for the others", function()
    local net = neap.net "f"
    net:input("x", { 2, 8, 8, 8 })
    net:param("g", { 8 }, 1)
    net:param("b", { 8 }, 0)
    net:Sum(net:Add { net:BatchNorm({ "x", "g", "b" }, nil, { training = true }), net:Tanh "x" },
      "loss")
    net:gradient("loss", { wrt = { "x", "g" } })
    net:outputs { "loss", "x_grad", "g_grad" }
    assert.is_true(neap.check.plan(net, { executor = "dag", steps = 2 }).same)
  end)

  it("repeats dropout in the backward with the masks of the forward, other \z
      masks in each step", function()
    local net = neap.net "f"
    net:input("x", { 3, 50 })
    local y = net:Recurrent {
      seq = { "x" }, step = function(b, x) return b:Dropout(x, nil, { rate = 0.5 }) end,
    }
    net:Sum(y, "loss")
    net:gradient("loss", { wrt = { "x" } })
    net:outputs { y, "x_grad" }
    for _, memory in ipairs(memories) do
      local r = run(net, { x = neap.ones { 3, 50 } }, memory)
      assert.is_true(r[y.name]:equal(r.x_grad)) -- of ones, output and gradient are the scaled mask
      assert.is_false(r.x_grad[1]:equal(r.x_grad[2]))
    end
  end)

  it("keeps its step net's running statistics up to date", function()
    local net = neap.net "f"
    net:input("x", { 4, 8, 2 })
    net:param("g", { 2 }, 1)
    net:param("b", { 2 }, 0)
    net:declare("mean", "state", { 2 }, "f32")
    local y = net:Recurrent { seq = { "x" }, step = function(s, x)
      s:RunningAverage({ "mean", s:Mean(x, nil, { axes = { 1 } }) }, "mean", { momentum = 0.5 })
      return s:Mul { x, "g" }
    end }
    net:Sum(y, "loss")
    net:gradient("loss", { wrt = { "g" } })
    net:outputs { "loss", "g_grad" }
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    ws:feed("mean", { 0, 0 })
    ws:feed("x", neap.ones { 4, 8, 2 })
    local program <close> = ws:compile(net, {})
    program:run()
    assert.are.same({ 0.9375, 0.9375 }, ws:fetch("mean"):totable())
    assert.are.same({ 32, 32 }, ws:fetch("g_grad"):totable())
  end)

  it("says what is wrong with sequences and states", function()
    local net = neap.net "f"
    net:input("x", { 4, 2 })
    net:input("y", { 5, 2 })
    net:input("s", {})
    local text = net:text()
    local first = function(_, x) return x end
    raises("with one T, got (4,2) and (5,2)", function()
      local n = net:clone()
      n:outputs { (n:Recurrent { seq = { "x", "y" }, step = first }) }
      n:check()
    end)
    raises("names no sequence", function() net:Recurrent { seq = {}, step = first } end)
    raises("must be a function", function() net:Recurrent { seq = { "x" } } end)
    raises("unknown field", function()
      net:Recurrent { seq = { "x" }, step = first, length = "s" }
    end)
    assert.are.equal(text, net:text())
  end)
end)

describe("Scan", function()
  it("is a running sum as in ONNX, along any axis, with its gradient", function()
    for axis = 1, 2 do
      local net = neap.net "f"
      local x = net:input("x", { 3, 4 })
      local total, sums = net:Scan {
        seq = { x }, init = { net:Sum(x * 0, nil, { axes = { axis } }) }, axis = axis,
        body = function(_, s, row)
          local n = s + row
          return n, n
        end,
      }
      net:Sum(sums, "loss")
      net:gradient("loss", { wrt = { "x" } })
      net:outputs { total, sums, "x_grad" }
      local value = neap.arange(1, 13):reshape(3, 4)
      local r = run(net, { x = value:to "f32" })
      local acc = {}
      for i = 1, 3 do
        for j = 1, 4 do
          local key = axis == 1 and j or i
          acc[key] = (acc[key] or 0) + value[i][j]
          assert.are.equal(acc[key], r[sums.name][i][j])
          assert.are.equal(axis == 1 and 4 - i or 5 - j, r.x_grad[i][j])
        end
      end
      assert.are.same(acc, r[total.name]:totable())
    end
  end)
end)

describe("Scan along another axis", function()
  it("turns rows alone, and gives what the body writes by name as it is", function()
    local net = neap.net "f"
    local x = net:input("x", { 3, 4 })
    net:param("seen", { 2, 5 }, 0)
    local rows, seen = net:Scan { seq = { x }, axis = 2, body = function(b, row)
      b:op("Add", { "seen", b:const(1.0) }, { "seen" })
      return row * 2
    end }
    assert.are.same({ 3, 4 }, rows.shape)
    assert.are.equal("seen", seen.name)
    net:outputs { rows }
    local value = neap.arange(1, 13):reshape(3, 4):to "f32"
    local ws = neap.workspace { store = false }
    ws:init(net)
    assert.is_true(ws:run(net, { x = value })[rows.name]:equal(value * 2))
    assert.is_true(ws:fetch("seen"):equal(neap.full { 2, 5, value = 4 }))
  end)
end)

describe("an LSTM written as a step net", function()
  it("equals the LSTM op: states, outputs and gradients, with lengths too", function()
    local T, H = 6, 4
    --- Gates in the order of the op's default.
    local function build(kind, lengths)
      local net = neap.net(kind)
      net:input("x", { T, N, D }, "f64")
      net:input("w", { 4 * H, D }, "f64")
      net:input("r", { 4 * H, H }, "f64")
      net:input("b", { 4 * H }, "f64")
      net:input("h0", { N, H }, "f64")
      net:input("c0", { N, H }, "f64")
      if lengths then net:input("lengths", { N }, "i64") end
      local y, h, c
      if kind == "op" then
        y, h, c = net:LSTM({ "x", "w", "r", "b", "h0", "c0", lengths and "lengths" or nil }, 3)
      else
        h, c, y = net:Recurrent {
          seq = { "x" },
          init = { "h0", "c0" },
          lengths = lengths and "lengths" or nil,
          step = function(s, h0, c0, x)
            local pre = s:FC { x, "w", "b" } + s:FC { h0, "r" }
            local i, f = pre:narrow(2, 1, H), pre:narrow(2, H + 1, H)
            local g = pre:narrow(2, 2 * H + 1, H)
            local o = pre:narrow(2, 3 * H + 1, H)
            local c1 = f:sigmoid() * c0 + i:sigmoid() * g:tanh()
            local h1 = o:sigmoid() * c1:tanh()
            return h1, c1, h1
          end,
        }
      end
      net:Copy(y, "y")
      net:Copy(h, "h")
      net:Copy(c, "c")
      net:AddN({ net:Sum(y * y), net:Sum(h), net:Sum(c * c) }, "loss")
      net:gradient("loss", { wrt = { "x", "w", "r", "b", "h0", "c0" } })
      net:outputs {
        "y", "h", "c", "loss", "x_grad", "w_grad", "r_grad", "b_grad", "h0_grad", "c0_grad",
      }
      return net
    end
    local feeds = neap.with({ seed = 3 }, function()
      local list = {
        x = neap.randn { T, N, D, dtype = "f64" }, b = neap.randn { 4 * H, dtype = "f64" },
      }
      list.w, list.r = neap.randn { 4 * H, D, dtype = "f64" }, neap.randn{ 4 * H, H, dtype = "f64" }
      list.h0, list.c0 = neap.randn { N, H, dtype = "f64" }, neap.randn { N, H, dtype = "f64" }
      return list
    end)
    for _, lengths in ipairs { false, { 4, 6 } } do
      feeds.lengths = lengths and neap.tensor(lengths, "i64") or nil
      local expected = run(build("op", lengths), feeds)
      for _, executor in ipairs { "simple", "dag" } do
        local r = run(build("step", lengths), feeds, { executor = executor })
        for name, t in pairs(expected) do
          assert.is_true(r[name]:close(t, { rtol = 1e-9, atol = 1e-11 }), name)
        end
      end
    end
  end)
end)

describe("two recurrent nets, written out", function()
  it("each recompute what they were told to", function()
    local net = neap.net "two"
    net:input("x", { 4, N, D })
    net:input("h0", { N, D })
    net:param("w", { D, D }, 0.5)
    for k, names in ipairs { { "pre", "gate" }, { "sum" } } do
      local h = net:Recurrent {
        seq = { "x" }, init = { "h0" }, recompute = names, step = step_of("w", true),
      }
      net:Copy(h, "h" .. k)
    end
    net:outputs { "h1", "h2" }
    net:gradient(net:Sum(net:Add { "h1", "h2" }, "loss"))
    local function told(text)
      local list = {}
      for recompute in text:gmatch "recompute = (%b{})" do list[#list + 1] = recompute end
      return list
    end
    assert.are.equal(2, #told(net:text()))
    assert.are.same(told(net:text()), told(net:expand({}):text()))
  end)
end)
