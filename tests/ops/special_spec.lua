--- NaN, infinities and what else is no ordinary number, by every engine and in both float types.
local neap = require "neap"
local support = require "support"

local nan, inf = 0 / 0, math.huge

local function is_nan(x) return x ~= x end

--- Runs one op by one engine. `inputs` {{name, tensor}..}; `dy`, where given, arrives at the first
-- output: a tensor, or "drawn". Returns the outputs and {input name = its gradient}, as flat lists.
local function run(type, inputs, attrs, engine, dy)
  local net, ins, wrt, names = neap.net(type), {}, {}, {}
  for i, input in ipairs(inputs) do
    ins[i] = net:declare(input[1], dy and input[2].dtype ~= "bool" and "parameter" or "input",
      input[2].shape, input[2].dtype)
    if dy and input[2].dtype ~= "bool" then wrt[#wrt + 1] = ins[i] end
  end
  local outputs, grads = { net:op(type, ins, 1, attrs) }, {}
  names[1] = outputs[1]
  if dy == "drawn" then dy = neap.randn { shape = outputs[1].shape, dtype = outputs[1].dtype } end
  if dy then
    local loss = net:Sum(net:Mul({ outputs[1], net:input("dy", dy.shape, dy.dtype) }, "product"),
      "loss")
    grads = net:gradient(loss, { wrt = wrt })
    for _, g in pairs(grads) do names[#names + 1] = g end
  end
  net:outputs(names)
  local ws <close> = neap.workspace { store = false, seed = 7 }
  ws:init(net)
  for _, input in ipairs(inputs) do ws:feed(input[1], input[2]) end
  if dy then ws:feed("dy", dy) end
  local program <close> = ws:compile(net, { engine = engine })
  program:run()
  local function flat(name) return ws:fetch(name):reshape(-1):totable() end
  local out, gradients = {}, {}
  for i, o in ipairs(outputs) do out[i] = flat(o.name) end
  for x, g in pairs(grads) do gradients[x.name] = flat(g.name) end
  return out, gradients
end

describe("a Relu fused into BatchNorm", function()
  -- behind a convolution, so that oneDNN's norm is in its blocked layout
  local function n_nan(shape, training, engine)
    local c, net = shape[2], neap.net "norm"
    local x, w = net:input("x", shape), net:input("w", { c, c, 1, 1 })
    local ins = { net:Conv({ x, w }, "conv") }
    for k, name in ipairs { "gamma", "beta", "mean", "var" } do
      ins[k + 1] = net:input(name, { c })
    end
    net:BatchNorm(ins, { "y", "m", "v", training and "mask" or nil },
      { training = training, relu = true })
    net:outputs { "y" }
    local ws <close> = neap.workspace { store = false, seed = 3 }
    local image = neap.randn(shape)
    image:reshape(-1)[3] = nan
    ws:feed("x", image)
    ws:feed("w", neap.randn { c, c, 1, 1 })
    for _, name in ipairs { "gamma", "var" } do ws:feed(name, neap.ones(c)) end
    for _, name in ipairs { "beta", "mean" } do ws:feed(name, neap.zeros(c)) end
    local program <close> = ws:compile(net, { engine = engine })
    program:run()
    local n = 0
    for _, v in ipairs(ws:fetch("y"):reshape(-1):totable()) do if is_nan(v) then n = n + 1 end end
    return n
  end

  for _, shape in ipairs { { 2, 32, 9, 9 }, { 2, 8, 3, 3 }, { 2, 20, 5, 4 } } do
    for _, training in ipairs { true, false } do
      it(("keeps NaN, by every engine: (%s), %s"):format(table.concat(shape, ","),
        training and "of the batch" or "given"), function()
        local want = n_nan(shape, training, "ref")
        assert.is_true(want > 0)
        for _, engine in ipairs(support.engines()) do
          assert.are.equal(want, n_nan(shape, training, engine), engine)
        end
      end)
    end
  end
end)

describe("the backward of a Relu in BatchNorm", function()
  --- y, dx, dgamma and dbeta with the Relu in the op or behind it; `place` of x is NaN.
  local function grads(dtype, fused, training)
    local c, net = 5, neap.net "norm"
    local x = net:declare("x", "parameter", { 2, c, 3, 4 }, dtype)
    local gamma = net:declare("gamma", "parameter", { c }, dtype)
    local beta = net:declare("beta", "parameter", { c }, dtype)
    local statistic = dtype == "f64" and "f64" or "f32"
    local mean, var = net:input("mean", { c }, statistic), net:input("var", { c }, statistic)
    local y = net:BatchNorm({ x, gamma, beta, mean, var }, { "y", "m", "v", "mask" },
      { training = training, relu = fused })
    if not fused then y = net:Relu(y, "z") end
    local loss = net:Sum(net:Mul({ y, net:input("dy", y.shape, dtype) }, "product"), "loss")
    local of = net:gradient(loss, { wrt = { x, gamma, beta } })
    local names = { y.name, of[x].name, of[gamma].name, of[beta].name }
    net:outputs(names)
    local ws <close> = neap.workspace { store = false, seed = 7 }
    ws:init(net)
    neap.seed(2)
    local image = neap.randn { 2, c, 3, 4 }
    image:reshape(-1)[16] = nan
    ws:feed("x", image:to(dtype))
    ws:feed("dy", neap.randn { 2, c, 3, 4 }:to(dtype))
    for name, value in pairs { gamma = 0.8, beta = 0.1, mean = 0.2, var = 1.3 } do
      local own = (name == "gamma" or name == "beta") and dtype or statistic
      ws:feed(name, neap.full { c, value = value, dtype = own })
    end
    local program <close> = ws:compile(net, { engine = "ref" })
    program:run()
    local lists = {}
    for k, name in ipairs(names) do lists[k] = ws:fetch(name):to("f64"):reshape(-1):totable() end
    return lists
  end

  for _, dtype in ipairs { "f32", "f64", "bf16", "f16" } do
    it("lets through what a Relu behind it lets through, of NaN too: " .. dtype, function()
      for _, training in ipairs { true, false } do
        local want, got = grads(dtype, false, training), grads(dtype, true, training)
        for k, list in ipairs(want) do
          local n_nan = 0
          for i, w in ipairs(list) do
            n_nan = n_nan + (is_nan(w) and 1 or 0)
            local off = math.abs(w - got[k][i])
            local same = is_nan(w) and is_nan(got[k][i]) or off <= 0.02 * (1 + math.abs(w))
            if not same then
              error(("output %d, element %d: %s apart, %s fused"):format(k, i, w, got[k][i]))
            end
          end
          assert.is_true(k > 1 or n_nan > 0)
        end
      end
    end)
  end
end)

describe("attention", function()
  -- Several tiles of queries and of keys.
  local n_query, n_key, depth = 70, 300, 4
  local function draw(rows, dtype)
    return neap.randn { 1, 1, rows, depth, dtype = dtype }
  end

  --- Row i, 1-based, of a flat list of rows: how many are NaN.
  local function count_nan(list, i)
    local n = 0
    for e = (i - 1) * depth + 1, i * depth do n = n + (is_nan(list[e]) and 1 or 0) end
    return n
  end

  --- All engines and both types, with what `spoil(q, k)` makes of drawn q and k; `want(i)`: row i
  -- of y and of dq is NaN.
  local function each(spoil, want, attrs)
    for _, dtype in ipairs { "f32", "f64" } do
      for _, engine in ipairs(support.engines()) do
        neap.seed(3)
        local q, k, v = draw(n_query, dtype), draw(n_key, dtype), draw(n_key, dtype)
        local dy, mask = draw(n_query, dtype), spoil(q, k, dtype)
        local inputs = { { "q", q }, { "k", k }, { "v", v } }
        if mask then inputs[4] = { "mask", mask } end
        local out, grads = run("Attention", inputs, attrs or {}, engine, dy)
        for i = 1, n_query do
          local what = ("%s %s row %d"):format(dtype, engine, i)
          if want(i) ~= nil then
            assert.are.equal(want(i) and depth or 0, count_nan(out[1], i), "y " .. what)
            if want(i) then assert.are.equal(depth, count_nan(grads.q, i), "dq " .. what) end
          end
        end
      end
    end
  end

  it("a NaN in q makes its query NaN and no other", function()
    each(function(q) q[{ 1, 1, 5, 2 }] = nan end, function(i) return i == 5 end)
  end)

  it("a NaN in k makes all queries NaN", function()
    each(function(_, k) k[{ 1, 1, 280, 1 }] = nan end, function() return true end)
  end)

  it("keys that are all NaN in one tile and not in the next do, too", function()
    each(function(_, k)
      for j = 1, 260 do k[{ 1, 1, j, 1 }] = nan end
    end, function() return true end)
  end)

  it("a NaN in the first key of causal attention makes its own query NaN", function()
    each(function(_, k) k[{ 1, 1, 1, 1 }] = nan end, function() return true end, { causal = true })
  end)

  it("scores whose sums are too large for f32, but not they, are those of f64", function()
    for _, engine in ipairs(support.engines()) do
      for _, large in ipairs { -3e38, 3e38 } do
        neap.seed(5)
        local q, v = draw(n_query, "f32"):abs(), draw(n_key, "f32")
        local k = neap.ones { 1, 1, n_key, depth }
        for j = 1, n_key do k[{ 1, 1, j }]:fill_(large * (1 - j / 1000)) end
        local function both(by, dtype)
          local function as(t) return t:to(dtype) end
          return run("Attention", { { "q", as(q) }, { "k", as(k) }, { "v", as(v) } },
            { scale = 0.125 }, by)
        end
        local want, got = both("ref", "f64"), both(engine, "f32")
        for i, y in ipairs(want[1]) do
          assert.is_true(math.abs(y - got[1][i]) <= 1e-5, ("y %d by %s is %g, f64 has %g"):format(i,
            engine, got[1][i], y))
        end
      end
    end
  end)

  it("a mask of numbers near the largest hides keys, as by f64 where it hides all", function()
    for _, engine in ipairs(support.engines()) do
      for _, hidden in ipairs { n_key - 1, n_key } do
        neap.seed(5)
        local q, k, v = draw(n_query, "f32"), draw(n_key, "f32"), draw(n_key, "f32")
        local mask = neap.zeros(n_query, n_key)
        for j = 1, hidden do mask[{ {}, j }]:fill_(-3e38) end
        local function y_of(dtype, by)
          local inputs = { { "q", q:to(dtype) }, { "k", k:to(dtype) }, { "v", v:to(dtype) },
            { "mask", mask:to(dtype) } }
          return run("Attention", inputs, {}, by)[1]
        end
        local want, got = y_of("f64", "ref"), y_of("f32", engine)
        for i, w in ipairs(want) do
          if math.abs(w - got[i]) > 1e-4 then
            error(("%s, %d hidden, element %d: expected %g, got %g"):format(engine, hidden, i, w,
              got[i]))
          end
        end
      end
    end
  end)

  it("a NaN in a later key of causal attention leaves the queries before it", function()
    each(function(_, k) k[{ 1, 1, 40, 1 }] = nan end, function(i) return i >= 40 end,
      { causal = true })
  end)

  it("a score of +infinity makes its query NaN, as the softmax does", function()
    each(function(q, k)
      for j = 1, n_key do k[{ 1, 1, j, 1 }] = 1 end
      q[{ 1, 1, 9, 1 }] = inf
    end, function(i) return i == 9 end)
  end)

  it("a query that sees no key gets 0, and NaN where a key it sees is NaN", function()
    each(function(q, _, dtype)
      q[{ 1, 1, 3, 1 }] = nan
      local mask = neap.zeros { n_query, n_key, dtype = dtype }
      for j = 1, n_key do mask[{ 2, j }] = -inf end
      for j = 1, n_key - 1 do mask[{ 3, j }] = -inf end
      return mask
    end, function(i) return i == 3 end)
  end)

  it("all of it NaN gives NaN alone, gradients included", function()
    for _, dtype in ipairs { "f32", "f64" } do
      for _, engine in ipairs(support.engines()) do
        local qkv = neap.full { 2, 5, 24, value = nan, dtype = dtype }
        local out, grads = run("PackedAttention", { { "qkv", qkv } }, { heads = 2, causal = true },
          engine, "drawn")
        for _, list in ipairs { out[1], grads.qkv } do
          for i, e in ipairs(list) do
            assert.is_true(is_nan(e), ("%s %s element %d"):format(dtype, engine, i))
          end
        end
      end
    end
  end)
end)

describe("a max-pool", function()
  --- Equal within rounding, NaN where the other is NaN.
  local function assert_same(want, got, what)
    assert.are.equal(#want, #got, what)
    for i, w in ipairs(want) do
      local same = w == got[i] or is_nan(w) and is_nan(got[i]) or math.abs(w - got[i]) < 1e-5
      if not same then error(("%s, element %d: expected %s, got %s"):format(what, i, w, got[i])) end
    end
  end

  it("gives NaN where its window holds one, and the gradient goes there", function()
    for _, dtype in ipairs { "f32", "f64" } do
      for _, engine in ipairs(support.engines "blas") do
        local x = neap.tensor({ 1, 2, 3, 4, 5, nan, 7, 8, -inf, -inf, 1, inf, -inf, -inf, nan, 2 },
          dtype):reshape(1, 1, 4, 4)
        local out, grads = run("MaxPool", { { "x", x } }, { kernel = 2 }, engine,
          neap.tensor({ 1, 2, 3, 4 }, dtype):reshape(1, 1, 2, 2))
        assert_same({ nan, 8, -inf, nan }, out[1], dtype .. " " .. engine)
        assert_same({ 0, 0, 0, 0, 0, 1, 0, 2, 3, 0, 0, 0, 0, 0, 4, 0 }, grads.x,
          "dx " .. dtype .. " " .. engine)
      end
    end
  end)

  local cases = {
    { { 2, 3, 6, 7 }, { kernel = 2 } },
    { { 2, 16, 8, 8 }, { kernel = 3, stride = 2, pad = 1 } },
    { { 2, 20, 7, 8 }, { kernel = { 3, 2 }, stride = { 2, 1 }, pad = { 1, 0 } } },
    { { 1, 2, 9 }, { kernel = 3, stride = 2, ceil_mode = true } },
    { { 1, 2, 4, 4, 4 }, { kernel = 2 } },
    { { 1, 3, 40, 40 }, { kernel = 16 } },
    { { 1, 3, 40, 40 }, { kernel = 17 } }, -- more taps than a byte counts
  }
  it("gives the same by every engine, whatever stands in x", function()
    for _, case in ipairs(cases) do
      for _, special in ipairs { nan, -inf, inf, 1e-40, -3.4028234663852886e38 } do
        neap.seed(11)
        local x = neap.randn(case[1])
        local flat = x:reshape(-1)
        for i = 1, flat.shape[1] do
          if i % 5 == 1 or i <= 30 then flat[i] = special end
        end
        local want, want_grads = run("MaxPool", { { "x", x } }, case[2], "ref",
          neap.seed(12) or "drawn")
        local got, got_grads = run("MaxPool", { { "x", x } }, case[2], support.last_engine(),
          neap.seed(12) or "drawn")
        local what = ("%s of x (%s)"):format(special, table.concat(case[1], ","))
        assert_same(want[1], got[1], what)
        assert_same(want_grads.x, got_grads.x, "dx, " .. what)
      end
    end
  end)

  it("does so in the layouts of convolutions, too", function()
    for _, channels in ipairs { 16, 20, 32 } do
      local function step(engine)
        local net = neap.net "blocked"
        local x = net:param("x", { 2, channels, 9, 9 })
        local w = net:input("w", { channels, channels, 1, 1 })
        local y = net:MaxPool(net:Conv({ x, w }, "before"), "pooled",
          { kernel = 3, stride = 2, pad = 1 })
        local z = net:Conv({ y, w }, "z")
        local grads = net:gradient(net:Sum(z, "loss"), { wrt = { x } })
        net:outputs { z, y, grads[x] }
        local ws <close> = neap.workspace { store = false, seed = 1 }
        ws:init(net)
        neap.seed(5)
        local values = neap.randn { 2, channels, 9, 9 }
        for c = 1, channels do
          values[{ 2, c, 4, 4 }] = nan
          for i = 1, 2 do
            for j = 1, 2 do values[{ 1, c, i, j }] = -inf end
          end
        end
        ws:feed("x", values)
        ws:feed("w", neap.full { channels, channels, 1, 1, value = 1 / channels })
        local program <close> = ws:compile(net, { engine = engine })
        program:run()
        local lists = {}
        for i, name in ipairs { "z", "pooled", grads[x].name } do
          lists[i] = ws:fetch(name):reshape(-1):totable()
        end
        return lists
      end
      local want, got = step "ref", step()
      for i, what in ipairs { "z", "pooled", "dx" } do
        assert_same(want[i], got[i], what .. " of " .. channels)
      end
    end
  end)
end)
