-- Inference fusion: a net that does not train is rewritten into fewer ops with the same results.
local neap = require "neap"
local fusion_kit = require "fusion_kit"
local agree, rules, conv_norm = fusion_kit.agree, fusion_kit.rules, fusion_kit.conv_norm
local types = fusion_kit.types

describe("fusion", function()
  it("folds BatchNorm into the convolution before it", function()
    for _, bias in ipairs { true, false } do
      local net = neap.net "norm"
      net:outputs {
        conv_norm(net, net:input("x", { 2, 3, 8, 8 }), 3, 8, 3, { name = "a", bias = bias }),
      }
      assert.are.same({ norm = 1 }, rules(net))
      assert.is_nil(types(net).BatchNorm)
      agree(net, "a.norm", { x = neap.randn(2, 3, 8, 8) })
    end
  end)

  it("folds BatchNorm into a fully connected layer", function()
    local net = neap.net "norm"
    local h = net:FC({
      net:input("x", { 5, 7 }),
      net:param("w", { 6, 7 }, neap.init.xavier {}),
      net:param("b", { 6 }, neap.init.normal {}),
    }, "h")
    local function vector(name, init) return net:param(name, { 6 }, init) end
    net:outputs {
      net:BatchNorm({
        h, vector("g", neap.init.normal {}), vector("be", neap.init.normal {}),
        vector("m", neap.init.normal {}),
        vector("v", neap.init.uniform { low = 0.5, high = 2 }),
      }, "y", { training = false }),
    }
    assert.are.same({ norm = 1 }, rules(net))
    agree(net, "y", { x = neap.randn(5, 7) })
  end)

  it("keeps its tolerance with extreme statistics, against what the \z
      normalisation subtracts", function()
    local net = neap.net "extreme"
    net:outputs { conv_norm(net, net:input("x", { 2, 3, 8, 8 }), 3, 4, 3, { name = "a" }) }
    local mean, var = neap.tensor { 0, 1e4, -1e6, 1e-8 }, neap.tensor { 0, 1e-12, 1e12, 1e20 }
    local gamma = neap.tensor { 1, 1e-3, 1e3, 1 }
    local subtracted = (mean * gamma) / (var + 1e-5):sqrt()
    agree(net, "a.norm", { x = neap.randn(2, 3, 8, 8) }, {
      parameters = { ["a.mean"] = mean, ["a.var"] = var, ["a.gamma"] = gamma }, scale = subtracted,
    })
  end)

  it("computes folded weights again when a statistic has changed", function()
    local net = neap.net "norm"
    net:outputs { conv_norm(net, net:input("x", { 1, 2, 4, 4 }), 2, 3, 3, { name = "a" }) }
    local x = neap.randn(1, 2, 4, 4)
    local ws <close> = neap.workspace { seed = 7 }
    local before = ws:run(net, { x = x })["a.norm"]
    for _, name in ipairs { "a.mean", "a.var", "a.gamma", "a.beta", "a.w" } do
      ws:view(name):copy_(ws:fetch(name) * 1.5 + 0.25)
      local now = ws:run(net, { x = x })["a.norm"]
      assert.is_false(before:close(now, { atol = 1e-4 }), name)
      local other <close> = neap.workspace { seed = 7 }
      other:init(net)
      for _, p in ipairs { "a.mean", "a.var", "a.gamma", "a.beta", "a.w" } do
        other:feed(p, ws:fetch(p))
      end
      assert.is_true(now:equal(other:run(net, { x = x })["a.norm"]), name)
      before = now
    end
  end)

  it("leaves a norm whose statistic is overwritten behind it", function()
    local net = neap.net "moving"
    net:Conv({ net:input("x", { 2, 3, 6, 6 }), net:param("w", { 4, 3, 3, 3 }, 0.1) }, "h")
    for _, name in ipairs { "gamma", "beta", "var", "share" } do net:param(name, { 4 }, 0.5) end
    net:declare("mean", "state", { 4 }, "f32", { op = "Constant", value = 0.5 })
    net:BatchNorm({ "h", "gamma", "beta", "mean", "var" }, "y", { training = false })
    net:outputs { "y" }
    assert.are.same({ norm = 1 }, rules(net))
    net:Mul({ "mean", "share" }, "mean")
    assert.are.same({}, rules(net))
  end)

  it("holds folded weights once, packed, where the arena has room for them on their way", function()
    -- Activations of 4 MiB, weights of 144 KiB: on the way into the kernel's layout they fit into
    -- the arena, whatever runs there.
    local net = neap.net "norm"
    local h = net:input("x", { 4, 64, 64, 64 })
    for _, name in ipairs { "a", "b", "c" } do
      h = conv_norm(net, h, 64, 64, 3, { name = name }):relu()
    end
    net:outputs { h }
    local weight = 64 * 64 * 9 * 4
    local plan = net:plan { store = false }
    assert.is_true(plan.arena_bytes > 8 * weight)
    assert.is_true(plan.regions.constants < 4 * weight and plan.regions.constants >= 3 * weight,
      tostring(plan.regions.constants))
    local budget = net:plan { store = false, budget = plan.arena_bytes }
    assert.is_true(budget.arena_bytes <= plan.arena_bytes)
    local y = net:outputs()[1]
    local x = neap.randn(4, 64, 64, 64)
    for _, memory in ipairs {
      {}, { executor = "dag" }, { executor = "dynamic" }, { policy = "none" },
    } do
      memory.store = false
      local ws <close> = neap.workspace { seed = 7, store = false }
      ws:poison(true)
      ws:init(net)
      local program <close> = ws:compile(net, memory)
      ws:feed("x", x)
      program:run()
      local first = ws:fetch(y)
      program:run() -- the arena has been used for other things since
      assert.is_true(first:equal(ws:fetch(y)))
      ws:view("b.var"):fill_(4)
      program:run()
      local changed = ws:fetch(y)
      assert.is_false(first:equal(changed))
      local other <close> = neap.workspace { seed = 7, store = false }
      other:init(net)
      other:view("b.var"):fill_(4)
      local again <close> = other:compile(net, memory)
      other:feed("x", x)
      again:run()
      assert.is_true(changed:equal(other:fetch(y)))
    end
    assert.is_true(neap.check.plan(net, { train = false, poison = true }).same)
  end)

  it("makes an activation part of the convolution or the layer before it", function()
    for _, name in ipairs { "Relu", "Relu6", "Sigmoid", "Tanh", "Silu", "Gelu" } do
      local net = neap.net(name)
      local h = net:Conv({
        net:input("x", { 2, 3, 8, 8 }), net:param("w", { 16, 3, 3, 3 }, neap.init.xavier {}),
        net:param("b", { 16 }, neap.init.normal {}),
      }, "h")
      net:outputs { net:op(name, { h }, { "y" }) }
      assert.are.same({ activation = 1 }, rules(net))
      agree(net, "y", { x = neap.randn(2, 3, 8, 8) })
      local fc = neap.net(name)
      local g = fc:FC({ fc:input("x", { 300, 7 }), fc:param("w", { 5, 7 }, neap.init.xavier {}) },
        "h")
      fc:outputs { fc:op(name, { g }, { "y" }) }
      assert.are.same({ activation = 1 }, rules(fc))
      agree(fc, "y", { x = neap.randn(300, 7) })
    end
  end)

  it("makes a residual block one op after another, and its values fewer", function()
    local net = neap.net "block"
    local x = net:input("x", { 2, 16, 8, 8 })
    local h = conv_norm(net, x, 16, 16, 3, { name = "a" }):relu()
    net:outputs { net:Add({ conv_norm(net, h, 16, 16, 3, { name = "b" }), x }, "sum"):relu() }
    local count = types(net)
    assert.are.equal(2, count.FusedConv)
    assert.is_nil(count.Add)
    assert.is_nil(count.Relu)
    assert.is_nil(count.BatchNorm)
    local fused, plain = net:plan {}, net:plan { fuse = false }
    assert.is_true(fused.arena_bytes <= plain.arena_bytes)
    -- what is fused away would not be there without reuse either
    assert.is_true(fused.baseline_bytes < plain.baseline_bytes)
    agree(net, "relu_2", { x = neap.randn(2, 16, 8, 8) })
  end)

  it("turns MatMul by a parameter and a bias into a fully connected layer", function()
    for _, turned in ipairs { false, true } do
      local net = neap.net "bias"
      local y = net:MatMul({
        net:input("x", { 2, 5, 6 }),
        net:param("w", turned and { 4, 6 } or { 6, 4 }, neap.init.xavier {}),
      }, "m", { trans_b = turned })
      net:outputs { net:Add({ y, net:param("b", { 4 }, neap.init.normal {}) }, "y") }
      assert.are.same({ bias = 1 }, rules(net))
      agree(net, "y", { x = neap.randn(2, 5, 6) })
    end
  end)

  it("leaves MatMul by a weight that is drawn anew at each run", function()
    local net = neap.net "drawn"
    local w = net:Dropout(net:param("w", { 6, 4 }, neap.init.xavier {}), nil, { rate = 0.5 })
    net:outputs {
      net:Add({
        net:MatMul { net:input("x", { 2, 5, 6 }), w }, net:param("b", { 4 }, neap.init.normal {}),
      }, "y"),
    }
    assert.are.same({}, rules(net))
  end)

  it("finds LayerNorm written out", function()
    local function square(net, d, how)
      return how == "Square" and net:Square(d) or how == "Mul" and d * d or d ^ 2
    end
    for _, how in ipairs { "Square", "Mul", "Pow" } do
      for _, inverse in ipairs { false, true } do
        local net = neap.net "ln"
        local x = net:input("x", { 3, 4, 33 })
        local d = x - net:Mean(x, nil, { axes = { -1 }, keepdim = true })
        local v = net:Mean(square(net, d, how), nil, { axes = { -1 }, keepdim = true }) + 1e-5
        local y = inverse and d * net:Rsqrt(v) or d / net:Sqrt(v)
        y = y * net:param("gamma", { 33 }, neap.init.normal {}) + net:param("beta", { 33 },
          neap.init.normal {})
        net:outputs { y }
        assert.are.equal(1, types(net).LayerNorm, how)
        for _, gone in ipairs { "Mean", "Mul", "Add" } do assert.is_nil(types(net)[gone], gone) end
        agree(net, y.name, { x = neap.randn(3, 4, 33) * 3 + 1 })
      end
    end
  end)

  it("joins BatchNorm and Relu, in place by name too", function()
    for _, name in ipairs { "z", "y" } do
      local net = neap.net "norm"
      net:input("x", { 4, 3, 5, 5 })
      net:BatchNorm({ "x", net:param("g", { 3 }, 1), net:param("b", { 3 }, 0) }, { "y", "m", "v" },
        { training = true })
      net:Relu("y", name)
      net:outputs(net:Sum(name, "s"))
      assert.is_nil(types(net).Relu, name)
      assert.are.equal(1, types(net).BatchNorm)
    end
  end)

  it("joins BatchNorm and Relu where a gradient's gradient allows it", function()
    for _, is_twice in ipairs { false, true } do
      local function run(memory)
        local net = neap.net "norm"
        local x = net:input("x", { 4, 3, 5 })
        net:BatchNorm({ x, net:param("g", { 3 }, 1.5), net:param("b", { 3 }, 0.5) },
          { "y", "m", "v" }, { training = true })
        local z = net:Relu("y", "z")
        local loss = net:Mean(z * z * z, "l")
        local gradients = net:gradient(loss, { wrt = { "x" } })
        local out = gradients.x
        if is_twice then
          -- not by the op that follows: some lie between
          local norm = net:Sum(net:Tanh(out * 40) * x, "n")
          out = net:gradient(norm, { wrt = { "x" } }).x
        end
        net:outputs { net:Mul({ out, 1 }, "dx") }
        local ws <close> = neap.workspace { seed = 3, store = false }
        ws:init(net)
        return ws:run(net, { x = neap.with({ seed = 5 }, neap.randn, 4, 3, 5) }, memory).dx,
          types(net, memory)
      end
      local plain = run { fuse = false }
      local fused, ops = run {}
      assert.is_true(plain:close(fused, { rtol = 1e-4, atol = 1e-6 }))
      assert.is_nil(ops.Relu)
    end
  end)

  it("leaves BatchNorm and Relu apart where the norm is read besides, or kept", function()
    for _, way in ipairs { "before", "behind", "kept" } do
      local function run(memory)
        local net = neap.net "norm"
        local x = net:input("x", { 4, 3, 5 })
        net:BatchNorm({ x, net:param("g", { 3 }, 1.5), net:param("b", { 3 }, 0.5) },
          { "y", "m", "v" }, { training = true })
        local t = way == "before" and net:Tanh "y"
        local z = net:Relu("y", "z")
        if way == "behind" then t = net:Tanh "y" end
        local loss = net:Mean(t and z * t or z * z, "l")
        net:outputs { net:Mul({ net:gradient(loss, { wrt = { "x" } }).x, 1 }, "dx") }
        memory.keep = way == "kept" and { "y" } or nil
        local ws <close> = neap.workspace { seed = 3, store = false }
        ws:init(net)
        local dx = ws:run(net, { x = neap.with({ seed = 5 }, neap.randn, 4, 3, 5) }, memory).dx
        return dx, way == "kept" and ws:fetch "y"
      end
      local plain, y = run { rewrite = false }
      local joined, its_y = run {}
      assert.is_true(plain:close(joined, { rtol = 1e-4, atol = 1e-6 }), way)
      if y then assert.is_true(y:equal(its_y) and y:min():item() < 0) end
    end
  end)

  it("leaves BatchNorm and Relu apart in a net that trains where rewrites are off", function()
    local net = neap.net "norm"
    net:input("x", { 4, 3, 5, 5 })
    net:BatchNorm({ "x", net:param("g", { 3 }, 1), net:param("b", { 3 }, 0) }, { "y", "m", "v" },
      { training = true })
    net:gradient(net:Sum(net:Relu("y", "z"), "s"))
    local function n_relu(memory)
      memory.store = false
      local n = 0
      for _, op in ipairs(net:plan(memory):_ops()) do if op.type == "Relu" then n = n + 1 end end
      return n
    end
    assert.are.equal(0, n_relu {})
    assert.are.equal(1, n_relu { rewrite = false })
    assert.are.equal(1, n_relu { keep_all = true })
  end)

  it("leaves a Dropout that does nothing out, unless its mask is read", function()
    for _, read in ipairs { false, true } do
      local net = neap.net "drop"
      net:Dropout(net:input("x", { 4, 3 }), { "y", "mask" }, { rate = 0.5, training = false })
      net:outputs { net:Exp("y", "e"), read and "mask" or nil }
      assert.are.equal(read and 1 or nil, types(net).Dropout)
    end
  end)

  it("takes no norm over other dimensions, or one that lost its \z
      dimension, for LayerNorm", function()
    for _, o in ipairs {
      { axes = { 1 }, keepdim = true }, { axes = { -1 }, keepdim = false },
      { axes = { 1, 2 }, keepdim = true },
    } do
      local net = neap.net "norm"
      local x = net:input("x", { 6, 6 })
      local d = x - net:Mean(x, nil, o)
      net:outputs { net:Div({ d, net:Sqrt(net:Mean(d ^ 2, nil, o) + 1e-5) }, "y") }
      assert.is_nil(types(net).LayerNorm)
      agree(net, "y", { x = neap.randn(6, 6) * 3 + 1 })
    end
  end)

  it("finds Gelu written out, in both forms", function()
    local net = neap.net "erf"
    local x = net:input("x", { 3, 40 })
    local y = x * 0.5 * (net:Erf(x / 1.4142135623730951) + 1)
    net:outputs { y }
    assert.are.same({ gelu = 1 }, rules(net))
    agree(net, y.name, { x = neap.randn(3, 40) * 3 })
    net = neap.net "tanh"
    x = net:input("x", { 3, 40 })
    y = (net:Tanh((x + x ^ 3 * 0.044715) * 0.7978845608028654) + 1) * (x * 0.5)
    net:outputs { y }
    assert.are.same({ gelu = 1 }, rules(net))
    agree(net, y.name, { x = neap.randn(3, 40) * 3 })
  end)

  it("takes nothing for Gelu whose numbers are others", function()
    for _, change in ipairs { { 0.05 }, { nil, 0.8 }, { nil, nil, 1.01 }, { nil, nil, nil, 2 } } do
      local cubic = change[1] or 0.044715
      local outer, one = change[2] or 0.7978845608028654, change[3] or 1
      local power = change[4] or 3
      local net = neap.net "tanh"
      local x = net:input("x", { 3, 40 })
      local y = (net:Tanh((x + x ^ power * cubic) * outer) + one) * (x * 0.5)
      net:outputs { y }
      assert.is_nil(rules(net).gelu)
      agree(net, y.name, { x = neap.randn(3, 40) * 3 })
    end
  end)

  it("finds attention written out, with and without a mask", function()
    for _, masked in ipairs { false, true } do
      for _, rank in ipairs { 3, 4 } do
        local net = neap.net "attention"
        local shape = rank == 4 and { 2, 3, 9, 8 } or { 2, 9, 8 }
        local q, k, v = net:input("q", shape), net:input("k", shape), net:input("v", shape)
        local s = net:MatMul({ q, k }, "s", { trans_b = true }) / math.sqrt(8)
        if masked then s = s + net:input("mask", { 9, 9 }) end
        net:outputs { net:MatMul({ net:Softmax(s, nil, { axis = -1 }), v }, "y") }
        assert.are.equal(1, types(net).Attention)
        assert.is_nil(types(net).Softmax)
        local feeds = { q = neap.randn(shape), k = neap.randn(shape), v = neap.randn(shape) }
        if masked then feeds.mask = neap.randn(9, 9) end
        agree(net, "y", feeds)
      end
    end
  end)

  it("finds attention whose keys were turned before, and no other turning", function()
    -- as many heads as batches, and as wide as long: shapes do not tell the turnings apart
    local shape = { 4, 4, 4, 4 }
    for _, axes in ipairs { { 1, 2, 4, 3 }, { 1, 2, -1, -2 }, { 2, 1, 4, 3 }, { 1, 3, 4, 2 },
      { 1, 2, 3, 4 } } do
      local net = neap.net "attention"
      local q, k, v = net:input("q", shape), net:input("k", shape), net:input("v", shape)
      local s = net:MatMul({ q, net:Permute(k, nil, { axes = axes }) }, "s") / 2
      net:outputs { net:MatMul({ net:Softmax(s, nil, { axis = -1 }), v }, "y") }
      local is_turned = axes[2] == 2 and math.abs(axes[3]) ~= 3
      assert.are.equal(is_turned and 1 or nil, types(net).Attention, table.concat(axes, " "))
      agree(net, "y", { q = neap.randn(shape), k = neap.randn(shape), v = neap.randn(shape) })
    end
  end)

  it("takes no two ops for one whose attributes differ", function()
    local net = neap.net "slopes"
    local x, parts = net:input("x", { 4, 6 }), {}
    for i, slope in ipairs { 0.1, 0.5, 0.1 } do
      parts[i] = net:LeakyRelu(x, nil, { slope = slope })
      parts[i + 3] = net:Sum(x, nil, { axes = { i % 2 + 1 }, keepdim = true })
    end
    net:outputs { net:Concat({ parts[1] * 2 + parts[4], parts[2] * 3 + parts[5],
      parts[3] * 4 + parts[6] }, "y") }
    assert.are.equal(2, rules(net).duplicate)
    assert.are.equal(2, types(net).LeakyRelu)
    assert.are.equal(2, types(net).Sum)
    agree(net, "y", { x = neap.randn(4, 6) }, { tolerance = 1e-6 })
  end)

  it("takes out what changes nothing, and what is computed twice", function()
    local net = neap.net "same"
    local x = net:input("x", { 4, 6 })
    local a = net:Dropout(net:Reshape(net:Exp(x), nil, { shape = { 4, 6 } }), nil,
      { training = false }) * 1 + 0
    net:outputs { net:Add({ net:Tanh(a), net:Exp(net:Tanh(a)) }, "y") }
    local count = rules(net)
    assert.are.equal(4, count.identity)
    assert.are.equal(1, count.duplicate)
    assert.are.equal(1, types(net).Tanh)
    agree(net, "y", { x = neap.randn(4, 6) }, { tolerance = 0 })
  end)

  it("leaves what only looks like nothing: 0 - x, 1 / x, a slope of -0", function()
    local net = neap.net "turned"
    local x = net:input("x", { 4, 6 })
    local zero, one = net:const(0.0), net:const(1.0)
    -- A slope of 0 and one of -0 give zeros of other signs, which a quotient tells.
    local slopes = {}
    for i, slope in ipairs { 0.0, -0.0 } do slopes[i] = net:LeakyRelu(x, nil, { slope = slope }) end
    net:outputs { net:Concat({ net:Sub { zero, x }, net:Div { one, x },
      net:Div { one, slopes[1] }, net:Div { one, slopes[2] } }, "y", { axis = 1 }) }
    assert.is_nil(rules(net).identity)
    assert.is_nil(rules(net).duplicate)
    local ws <close> = neap.workspace { store = false }
    local y = ws:run(net, { x = neap.ones(4, 6) * -2 }).y
    for row, want in pairs { [1] = 2, [5] = -0.5, [9] = -math.huge, [13] = math.huge } do
      assert.are.equal(want, y[{ row, 1 }])
    end
  end)

  it("does not draw alike what was to be random twice", function()
    local net = neap.net "random"
    local x = net:input("x", { 64 })
    net:outputs {
      net:Sub({ net:Dropout(x, nil, { rate = 0.5 }), net:Dropout(x, nil, { rate = 0.5 }) }, "y"),
    }
    assert.is_nil(rules(net).duplicate)
  end)

  it("never takes a blob that is kept, declared or read elsewhere", function()
    local function build(outputs)
      local net = neap.net "kept"
      local h = net:Conv({
        net:input("x", { 1, 3, 6, 6 }), net:param("w", { 4, 3, 3, 3 }, neap.init.xavier {}),
      }, "h")
      local y = net:Relu(h, "y")
      net:outputs(outputs(net, h, y))
      return net
    end
    local alone = build(function(_, _, y) return { y } end)
    assert.are.same({ activation = 1 }, rules(alone))
    assert.are.same({}, rules(alone, { keep = { "h" } }))
    assert.are.same({}, rules(build(function(_, h, y) return { h, y } end)))
    assert.are.same({}, rules(build(function(net, h, y) return { y, net:Exp(h, "z") } end)))
    local kept = build(function(net, h, y) net:keep(h) return { y } end)
    assert.are.same({}, rules(kept))
  end)

  it("tells who absorbed a blob when it is fetched, and keeps it when asked", function()
    local net = neap.net "gone"
    local h = net:Conv(
      { net:input("x", { 1, 3, 6, 6 }), net:param("w", { 4, 3, 3, 3 }, neap.init.xavier {}) }, "h")
    net:outputs { net:Relu(h, "y") }
    local ws <close> = neap.workspace { seed = 1 }
    ws:run(net, { x = neap.randn(1, 3, 6, 6) })
    local ok, err = pcall(ws.fetch, ws, "h")
    assert.is_false(ok)
    assert.are.equal("released", err.code)
    assert.is_truthy(tostring(err):find("absorbed", 1, true))
    assert.is_truthy(tostring(err):find("keep", 1, true))
  end)

  it("leaves nets that train as they are", function()
    local net = neap.net "train"
    local h = net:Conv(
      { net:input("x", { 1, 3, 6, 6 }), net:param("w", { 4, 3, 3, 3 }, neap.init.xavier {}) }, "h")
    local loss = net:Mean(net:Relu(h), "loss")
    net:gradient(loss)
    net:outputs { loss }
    assert.are.same({}, rules(net))
    assert.are.equal(1, types(net).Conv)
  end)

  it("leaves alone what is read before a blob is overwritten, and freed blobs", function()
    local net = neap.net "written"
    local w = net:param("w", { 4, 4 }, neap.init.xavier {})
    local s = net:declare("s", "state", { 2, 4 }, "f32", { op = "Constant", value = 1 })
    local h = net:FC({ s, w }, "h")
    net:op("RunningAverage", { s, net:input("x", { 2, 4 }) }, { s }, { momentum = 0.5 })
    net:outputs { net:Relu(h, "y") }
    local ws, plain = neap.workspace { seed = 1 }, neap.workspace { seed = 1 }
    ws:init(net)
    plain:init(net)
    local a <close> = ws:compile(net)
    local b <close> = plain:compile(net, { fuse = false })
    for step = 1, 3 do
      local x = neap.full { 2, 4, value = step }
      ws:feed("x", x)
      plain:feed("x", x)
      a:run()
      b:run()
      assert.is_true(ws:fetch("y"):close(plain:fetch("y"), { rtol = 1e-5, atol = 1e-6 }))
      assert.is_true(ws:fetch("s"):equal(plain:fetch("s")))
    end
  end)

  it("leaves a view of what is overwritten before the view is read", function()
    local net = neap.net_from [[
net old
input g f32 (4)
param w f32 (4) = Constant { value = 3 }
param v f32 (4) = Constant { value = 1 }
state one f32 () = Constant { value = 1 }
a = Reshape(w) { shape = {4} }
w = Sgd(w, g, one)
v = Sgd(v, a, one)
]]
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    for step = 1, 2 do
      ws:run(net, { g = neap.ones(4) })
      assert.are.same({ 3 - step }, { ws:fetch("w")[{ 1 }] })
      assert.are.same({ ({ -2, -4 })[step] }, { ws:fetch("v")[{ 1 }] }) -- less 3, then less 2
    end
  end)

  it("keeps a NaN a NaN, in every engine", function()
    local net = neap.net "nan"
    net:outputs {
      net:Relu(
        net:Conv({
          net:input("x", { 2, 16, 8, 8 }), net:param("w", { 16, 16, 3, 3 }, neap.init.xavier {}),
        }, "h", { pad = 1 }), "y"),
    }
    local x = neap.randn(2, 16, 8, 8)
    x:set(0 / 0, 1, 1, 4, 4)
    for _, engine in ipairs { "free", "ref", "blas" } do
      local ws <close> = neap.workspace { seed = 1 }
      local program <close> = ws:compile(net, { engine = engine })
      ws:feed("x", x)
      program:run()
      local stats = ws:fetch("y"):stats()
      assert.are.equal(9 * 16, stats.nan, engine)
    end
  end)

  it("holds over a range of batch sizes in one memory", function()
    local net = neap.net "range"
    local h = net:Relu(net:Conv({
      net:input("x", { 1, 16, 8, 8 }), net:param("w", { 32, 16, 3, 3 }, neap.init.xavier {}),
    }, nil, { pad = 1 }))
    h = net:Gelu(
      net:FC({ h, net:param("v", { 10, 32 * 64 }, neap.init.xavier {}) }, nil, { axis = 2 }))
    net:outputs {
      net:Add({ h, net:FC({ h, net:param("u", { 10, 10 }, neap.init.xavier {}) }) }, "y"),
    }
    local ws <close> = neap.workspace { seed = 7, max_batch = 300, store = false }
    local plain <close> = neap.workspace { seed = 7, store = false }
    for _, batch in ipairs { 300, 7, 256, 1 } do
      local x = neap.randn(batch, 16, 8, 8)
      local want = plain:run(net, { x = x }, { fuse = false }).y
      assert.is_true(
        (ws:run(net, { x = x }).y - want):abs():max():item() <= 1e-5 * want:abs():max():item(),
        tostring(batch))
    end
  end)

  --- A convolution with a bias and an activation, and a pool behind it, large enough for several
  -- chunks.
  local function conv_pool(pool, o, z)
    local net = neap.net "pool"
    local x = net:input("x", { 9, 8, 64, 64 })
    local h = net:Conv({
      x,
      net:param("w", { 16, 8, 3, 3 }, neap.init.xavier {}),
      net:param("b", { 16 }, neap.init.normal {}),
    }, "h", { pad = 1 })
    if z then h = net:Add({ h, net:input("z", { 9, 16, 64, 64 }) }, "sum") end
    net:outputs { net:op(pool, { net:Relu(h, "r") }, { "y" }, o) }
    return net
  end
  local pools = {
    { "MaxPool", { kernel = 2 } },
    { "MaxPool", { kernel = 3, stride = 2, pad = 1, ceil_mode = true } },
    { "AveragePool", { kernel = 3, stride = 2, pad = 1, count_include_pad = false } },
    { "GlobalAveragePool", {} },
  }

  --- Bits of output y as planned with `memory`, parameters and inputs the same each time.
  local function output_of(net, feeds, memory)
    local ws <close> = neap.workspace { seed = 7, store = false }
    return ws:run(net, feeds, memory).y:clone()
  end

  it("takes pooling in when asked: what the convolution gives is never there for the whole batch, \z
      and the results are the same", function()
    for _, case in ipairs(pools) do
      for _, z in ipairs { false, true } do
        local net = conv_pool(case[1], case[2], z)
        assert.are.same({ activation = 1, pool = 1, residual = z and 1 or nil },
          rules(net, { fuse = "pool" }), case[1])
        assert.is_nil(rules(net).pool)
        local plain = net:plan { engine = "ref" }
        local pooled = net:plan { fuse = "pool", engine = "ref" }
        assert.is_true(pooled.arena_bytes < plain.arena_bytes / 2, case[1])
        local feeds = { x = neap.randn(9, 8, 64, 64), z = z and neap.randn(9, 16, 64, 64) or nil }
        local want = output_of(net, feeds, { fuse = false })
        for _, engine in ipairs { "free", "ref", "blas" } do
          engine = engine ~= "free" and engine or nil
          local got = output_of(net, feeds, { fuse = "pool", engine = engine })
          assert.is_true((got - want):abs():max():item() <= 1e-5 * want:abs():max():item(), case[1])
          assert.is_true(
            got:equal(output_of(net, feeds, { fuse = "pool", engine = engine, policy = "none" })),
            case[1])
          assert.is_true(
            got:equal(output_of(net, feeds, { fuse = "pool", engine = engine, policy = "name" })),
            case[1])
        end
        assert.is_true(output_of(net, feeds, { fuse = "pool", engine = "ref" }):equal(
          output_of(net, feeds, { engine = "ref" })))
      end
    end
  end)

  it("takes pooling in for bf16 and f16, with the bits of the ops apart", function()
    for _, dtype in ipairs { "bf16", "f16" } do
      for _, case in ipairs(pools) do
        local net = neap.net "halves"
        local x = net:input("x", { 16, 8, 64, 64 }, dtype)
        local w = net:param("w", { 16, 8, 3, 3 }, neap.init.xavier {}, { dtype = dtype })
        net:Conv({ x, w }, "h", { pad = 1 })
        net:outputs { net:op(case[1], { net:Relu("h", "r") }, { "y" }, case[2]) }
        assert.are.same({ activation = 1, pool = 1 }, rules(net, { fuse = "pool" }), case[1])
        local plain, pooled = net:plan(), net:plan { fuse = "pool" }
        -- Of the two results before the pool, 2 MiB each, neither is there whole.
        assert.is_true(pooled.arena_bytes < plain.arena_bytes, case[1])
        assert.is_true(pooled.arena_bytes < 0.6 * (4 << 20), case[1])
        local feeds = { x = neap.randn(16, 8, 64, 64):to(dtype) }
        -- the plain loops promise the bits; other kernels the digits of the dtype
        local function both(engine)
          return output_of(net, feeds, { fuse = "pool", engine = engine }),
            output_of(net, feeds, { fuse = false, engine = engine })
        end
        local a, b = both "ref"
        assert.is_true(a:equal(b), dtype .. " " .. case[1])
        a, b = both()
        local unit = dtype == "bf16" and 2 ^ -8 or 2 ^ -11
        assert.is_true(a:to("f32"):close(b:to "f32", { rtol = 2 * unit, atol = unit }),
          dtype .. " " .. case[1])
      end
    end
  end)

  it("lists pooling among the rewrites, and tells who absorbed the blobs", function()
    local net = conv_pool("MaxPool", { kernel = 2 })
    local list = net:plan { fuse = "pool" }:rewrites()
    local last = list[#list]
    assert.are.equal("pool", last.rule)
    assert.are.equal(4 * 9 * 16 * 64 * 64, last.saved_bytes)
    assert.is_truthy(
      last.absorbed:find("MaxPool", 1, true) and last.into:find("FusedConvPool", 1, true))
    assert.is_truthy(tostring(net:plan { fuse = "pool" }:explain()):find("1 times pool", 1, true))
    local ok, err = pcall(function() return net:plan { fuse = "pool" }:explain "r" end)
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find("absorbed", 1, true))
  end)

  it("leaves a pool alone whose input is kept, declared or read elsewhere, and where chunks \z
      would save nothing", function()
    local function n_pool(outputs, o)
      local net = conv_pool("MaxPool", { kernel = 2 })
      net:outputs(outputs(net))
      o = o or {}
      o.fuse = "pool"
      return rules(net, o).pool or 0
    end
    assert.are.equal(1, n_pool(function() return { "y" } end))
    assert.are.equal(0, n_pool(function() return { "y" } end, { keep = { "r" } }))
    assert.are.equal(0, n_pool(function() return { "r", "y" } end))
    assert.are.equal(0, n_pool(function(net) return { "y", net:Exp("r", "e") } end))
    assert.are.equal(0, n_pool(function() return { "y" } end, { x = { 1, 8, 64, 64 } }))
  end)

  it("with pooling holds in both schedules as planned, allocates nothing, and holds over a \z
      range of batch sizes", function()
    for _, executor in ipairs { "simple", "dag" } do
      local r = neap.check.plan(conv_pool("MaxPool", { kernel = 2 }, true), {
        train = false, executor = executor, steps = 2, poison = true, fuse = "pool",
      })
      assert.is_true(r.same, r.different)
      assert.are.equal(r.forecast_bytes, r.held_bytes)
      assert.are.equal(0, r.allocations)
    end
    local net = conv_pool("MaxPool", { kernel = 2 })
    local ws <close> = neap.workspace { seed = 7, max_batch = 32, store = false }
    for _, batch in ipairs { 32, 7, 31, 1 } do
      local x = neap.randn(batch, 8, 64, 64)
      local want = output_of(net, { x = x }, { fuse = false })
      assert.is_true(
        (ws:run(net, { x = x }, { fuse = "pool" }).y - want):abs():max():item()
          <= 1e-5 * want:abs():max():item(), tostring(batch))
    end
  end)

  it("with pooling keeps within a budget that the convolution's output \z
      alone would break", function()
    local net = conv_pool("MaxPool", { kernel = 2 })
    local budget = 4 * 9 * 16 * 64 * 64 // 2
    assert.is_false((pcall(function() return net:plan { budget = budget, exact = false } end)))
    assert.is_true(net:plan { budget = budget, fuse = "pool", exact = false }.arena_bytes <= budget)
  end)

  it("refuses another word than \"pool\", and says what was meant", function()
    local ok, err = pcall(function()
      return conv_pool("MaxPool", { kernel = 2 }):plan { fuse = "pol" }
    end)
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find('did you mean "pool"', 1, true))
    assert.is_false((pcall(function()
      return conv_pool("MaxPool", { kernel = 2 }):plan { fuse = 3 }
    end)))
  end)

  it("gives what whole nets give unfused, in less memory, planned as unplanned, \z
      in both schedules", function()
    local netfile = require "neap.net.file"
    for _, case in ipairs { { "resnet18c", 1e-4 }, { "lenet", 1e-5 }, { "gpt", 1e-5 } } do
      local net = netfile.build(netfile.load(case[1]), { train = false, batch = 2 })
      local feeds = {}
      for _, input in ipairs(net:inputs()) do
        local float = input.dtype == "f32"
        local x = float and neap.randn(table.unpack(input.shape))
          or neap.zeros { dtype = input.dtype, table.unpack(input.shape) }
        local k = 0
        if not float then x:apply_(function() k = k + 1 return k % 7 end) end
        feeds[input.name] = x
      end
      local results = {}
      for _, fuse in ipairs { true, false } do
        local ws <close> = neap.workspace { seed = 5, store = false }
        local program <close> = ws:compile(net, { fuse = fuse })
        -- statistics as after training, so that the folded ones are not those of a fresh net
        for _, blob in ipairs(ws:_blobs()) do
          if blob.name:find "running_mean" or blob.name:find "running_var" then
            local at = 0
            ws:view(blob.name):apply_(function() at = at + 1 return 0.5 + at % 5 / 4 end)
          end
        end
        for name, x in pairs(feeds) do ws:feed(name, x) end
        program:run()
        results[#results + 1] = ws:fetch(net:outputs()[1])
        results[#results + 1] = {
          arena_bytes = program.plan.arena_bytes, n_rewrite = #program.plan:rewrites(),
        }
      end
      local fused, plain = results[1], results[3]
      assert.is_true(plain:abs():max():item() > 0)
      assert.is_true((fused - plain):abs():max():item() <= case[2] * plain:abs():max():item(),
        case[1])
      assert.is_true(results[2].arena_bytes <= results[4].arena_bytes, case[1])
      assert.is_true(results[2].n_rewrite > 0 and results[4].n_rewrite == 0, case[1])
    end
    for _, name in ipairs { "resnet18c:2", "lenet:2" } do
      for _, executor in ipairs { "simple", "dag" } do
        local r = neap.check.plan(name, {
          train = false, executor = executor, steps = 2, poison = true,
        })
        assert.is_true(r.same, r.different)
        assert.are.equal(r.forecast_bytes, r.held_bytes)
        assert.are.equal(0, r.allocations)
      end
    end
  end)
end)
