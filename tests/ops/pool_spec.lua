--- Pools: where maxima stand, windows that share x out, and gradients of gradients by each engine.
local neap = require "neap"
local core = require "neap.core"
local support = require "support"

--- Outputs of an op on tensors.
local function op(name, inputs, attrs, n_out)
  return core.eager(name, inputs, attrs or {}, n_out or 1)
end

local function flat(t) return t:reshape(-1):totable() end

local function raises(text, f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok)
  assert.is_truthy(tostring(err):find(text, 1, true), tostring(err))
end

--- The gradient of the sum of the gradient's squares, of a pool of x.
local function twice(engine, name, attrs, x)
  local net = neap.net "twice"
  local v = net:input("x", x.shape)
  local y = net:op(name, { v }, 1, attrs)
  local g = net:gradient(net:Sum(net:Mul({ net:Square(y), y })), { wrt = { v } })[v]
  local h = net:gradient(net:Sum(net:Square(g)), { wrt = { v } })[v]
  net:outputs { h }
  local ws <close> = neap.workspace { store = false, engine = engine }
  ws:init(net)
  ws:feed("x", x)
  ws:run(net)
  return ws:fetch(h)
end

describe("MaxPool's second gradient", function()
  it("is the same by every engine, in layouts with padding lanes too", function()
    local x = neap.arange(2 * 20 * 9 * 9):reshape(2, 20, 9, 9):sin()
    for _, attrs in ipairs { { kernel = 2 }, { kernel = 3, stride = 2, pad = 1 },
      { kernel = 17, stride = 5, pad = 8 } } do
      local want = twice("ref", "MaxPool", attrs, x)
      for _, engine in ipairs { "blas", "dnnl" } do
        if support.has_engine(engine) then
          local far = (twice(engine, "MaxPool", attrs, x) - want):abs():max():item()
          assert.is_true(far <= 1e-4 * want:abs():max():item(), engine .. ": " .. far)
        end
      end
    end
  end)
end)

--- Pooled values and gradients, to the second order, of halves between two convolutions by 1, which
-- leave the numbers as they are; and whether the pool's result lies in blocks.
local function between_convolutions(name, attrs, shape, dtype, engine, given)
  local net = neap.net "between"
  local x = net:input("x", shape, dtype)
  local channels, ones = shape[2], { shape[2], shape[2] }
  for d = 3, #shape do ones[d] = 1 end
  local w = net:const(neap.eye(channels):reshape(ones):to(dtype))
  local more = net:input("more", shape, dtype)
  local before = net:Add({ net:Conv({ x, w }, "before"), more })
  local pooled = net:op(name, { before }, { "pooled" }, attrs)
  local y = net:Conv({ pooled, w }, "y")
  local c = net:input("c", neap.net_from(net:text()):infer { x = shape }[y.name].shape, dtype)
  local g = net:gradient(net:Sum(net:Mul({ y, c })), { wrt = { x } })[x]
  local h = net:gradient(net:Sum(net:Mul({ g, x })), { wrt = { c } })[c]
  net:outputs { pooled, g, h }
  neap.seed(3)
  local ws <close> = neap.workspace { store = false }
  ws:init(net)
  local special = neap.zeros(shape):to(dtype)
  special[{ 1, 1 }] = special[{ 1, 1 }] - math.huge
  special[{ 1, 2, 2 }] = special[{ 1, 2, 2 }] * (0 / 0)
  ws:feed("x", neap.randn(shape):to(dtype))
  ws:feed("more", special)
  ws:feed("c", neap.randn(c.shape):to(dtype))
  for key, t in pairs(given or {}) do ws:feed(key == "c" and c or key, t:to(dtype)) end
  local program <close> = ws:compile(net, { engine = engine })
  program:run()
  local is_blocked = false
  for _, v in ipairs(program.plan:_values()) do
    is_blocked = is_blocked or v.blob == "pooled.blocked"
  end
  return { ws:fetch(pooled), ws:fetch(g), ws:fetch(h) }, is_blocked
end

--- Whether two tensors have the same numbers, NaN where the other has it.
local function is_same(a, b)
  return a:eq(b):to("u8"):maximum(a:ne(a):to("u8") * b:ne(b):to("u8")):min():item() == 1
end

describe("a pool of halves", function()
  local cases = {
    { { kernel = 2 }, { 2, 16, 8, 8 } },
    { { kernel = 3, stride = 2, pad = 1 }, { 2, 20, 9, 10 } },
    { { kernel = 3, stride = 1, pad = 1 }, { 1, 48, 5, 6 } },
    { { kernel = { 3, 2 }, stride = { 2, 1 }, dilation = { 1, 2 } }, { 2, 16, 9, 8 } },
    { { kernel = 3, stride = 2, ceil_mode = true }, { 2, 32, 8, 8 } },
    { { kernel = 2 }, { 1, 16, 4, 5, 6 } },
    { { kernel = 17, stride = 5, pad = 8 }, { 1, 16, 18, 18 } },
  }
  for _, name in ipairs { "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool",
    "AdaptiveAveragePool", "AdaptiveMaxPool" } do
    it("gives the same bits in the layouts of convolutions: " .. name, function()
      local n_blocked = 0
      for i, case in ipairs(cases) do
        for _, dtype in ipairs { "bf16", "f16" } do
          local attrs = name:find "Adaptive" and { output_size = 1 + #case[2] % 2 }
            or not name:find "Global" and case[1] or {}
          local want = between_convolutions(name, attrs, case[2], dtype, "ref")
          local got, is_blocked = between_convolutions(name, attrs, case[2], dtype)
          if is_blocked then n_blocked = n_blocked + 1 end
          for k, t in ipairs(want) do
            assert.is_true(is_same(t:to "f64", got[k]:to "f64"), ("%s, case %d, output %d"):format(
              dtype, i, k))
          end
        end
      end
      if support.has_engine "dnnl" then assert.is_true(n_blocked > 0, "no blocked layout") end
    end)
  end
end)

describe("a pool of halves in blocks", function()
  it("adds gradients in the order of the windows, as the plain loops do", function()
    -- One element wins three windows: 2^30 - 2^30 + 1 is 1 in that order alone.
    local x, c = neap.zeros(2, 16, 8, 8), neap.zeros(2, 16, 8, 6)
    for row = 1, 8 do
      x[{ 1, 3, row, 3 }] = 1
      c[{ 1, 3, row, 1 }], c[{ 1, 3, row, 2 }], c[{ 1, 3, row, 3 }] = 2 ^ 30, -2 ^ 30, 1
    end
    local got = between_convolutions("MaxPool", { kernel = { 1, 3 }, stride = 1 }, { 2, 16, 8, 8 },
      "bf16", nil, { x = x, c = c })
    assert.equal(1, got[2]:to "f32"[{ 1, 3, 4, 3 }])
  end)

  it("widens rows, not whole operands", function()
    if not support.has_engine "dnnl" then return end
    local net = neap.net "rows"
    local x, w = net:param("x", { 4, 64, 32, 32 }), net:param("w", { 64, 64, 1, 1 })
    local y = net:Conv({ net:MaxPool({ net:Conv({ x, w }) }, 1, { kernel = 2 }), w })
    net:gradient(net:Sum(net:AveragePool({ y }, 1, { kernel = 3 })), { wrt = { x, w } })
    local n = 0
    for _, o in ipairs(net:plan { dtype = "bf16" }:_ops()) do
      if o.type:find "Pool" then
        n = n + 1
        assert.is_true(o.scratch_bytes < 4 * 64 * 32 * 32, o.type .. ": " .. o.scratch_bytes)
      end
    end
    assert.are.equal(4, n)
  end)
end)

describe("MaxPoolWithIndices", function()
  it("counts the elements of x, all planes included", function()
    local x = neap.tensor { { { { 1, 2 }, { 5, 3 } }, { { 9, 2 }, { 5, 3 } } } }
    local y, at = op("MaxPoolWithIndices", { x }, { kernel = 2 }, 2)
    assert.are.same({ 5, 9 }, flat(y))
    assert.are.same({ 2, 4 }, flat(at))
  end)

  it("is undone by MaxUnpool, up to what did not win", function()
    local x = neap.arange(2 * 3 * 5 * 4):reshape(2, 3, 5, 4):sin()
    local y, at = op("MaxPoolWithIndices", { x }, { kernel = 2 }, 2)
    local back = op("MaxUnpool", { y, at }, { kernel = 2, output_shape = { 5, 4 } })
    assert.are.same(x.shape, back.shape)
    local again, same = op("MaxPoolWithIndices", { back }, { kernel = 2 }, 2)
    assert.are.same({ 2, 3, 2, 2 }, again.shape)
    local won = 0
    for i, v in ipairs(flat(back)) do
      if v ~= 0 then
        won = won + 1
        assert.are.equal(flat(x)[i], v)
      end
    end
    assert.are.equal(24, won)
    assert.are.equal(24, #flat(same))
  end)

  it("gives -1 where a window has padding alone", function()
    local x = neap.tensor { { { 1 } } }
    local y, at = op("MaxPoolWithIndices", { x },
      { kernel = 2, dilation = 3, pad = 2, stride = 1 }, 2)
    assert.are.same({ -math.huge, -math.huge }, flat(y))
    assert.are.same({ -1, -1 }, flat(at))
  end)
end)

describe("MaxUnpool", function()
  it("refuses an index outside of its plane", function()
    local x = neap.ones(1, 2, 1)
    raises("index 3 at element 1 is outside its plane of y, 0 to 1", op, "MaxUnpool",
      { x, neap.tensor({ { { 3 }, { 2 } } }, "i64") }, { kernel = 2 })
  end)

  it("has the size that is asked for", function()
    local x = neap.ones(1, 1, 2)
    local at = neap.tensor({ { { 0, 4 } } }, "i64")
    assert.are.same({ 1, 0, 0, 0, 1 },
      flat(op("MaxUnpool", { x, at }, { kernel = 2, output_shape = { 5 } })))
    raises("x (1,1,2) gives no element", op, "MaxUnpool", { x, at }, { kernel = 2, pad = 3 })
  end)

  it("has the size that a window of elements apart has taken in", function()
    local x = neap.tensor { { { 1, 2, 3, 4, 5 } } }
    local window = { kernel = 2, dilation = 2, stride = 1 }
    local y, at = op("MaxPoolWithIndices", { x }, window, 2)
    assert.are.same({ 3, 4, 5 }, flat(y))
    assert.are.same({ 0, 0, 3, 4, 5 }, flat(op("MaxUnpool", { y, at }, window)))
  end)
end)

describe("a pool that adapts", function()
  it("shares x out, with elements in two windows where they do not fit", function()
    local x = neap.arange(5):reshape(1, 1, 5)
    assert.are.same({ 1, 3 }, flat(op("AdaptiveAveragePool", { x }, { output_size = 2 })))
    assert.are.same({ 2, 4 }, flat(op("AdaptiveMaxPool", { x }, { output_size = 2 })))
    assert.are.same({ 0, 0.5, 1.5, 2, 2.5, 3.5, 4 },
      flat(op("AdaptiveAveragePool", { x }, { output_size = 7 })))
  end)

  it("of size 1 is the global one", function()
    local x = neap.arange(2 * 3 * 4 * 5):reshape(2, 3, 4, 5):sin()
    assert.are.same(flat(op("GlobalMaxPool", { x })),
      flat(op("AdaptiveMaxPool", { x }, { output_size = 1 })))
    raises("output_size expects 1 or 2 values for 2 spatial dimensions, got 3", op,
      "AdaptiveMaxPool", { x }, { output_size = { 1, 2, 3 } })
    raises("x expects at least one element to pool", op, "AdaptiveMaxPool", { neap.ones(1, 1, 0) },
      { output_size = 1 })
  end)
end)

describe("LpPool", function()
  it("is the norm of a window, and its gradient is 0 where all is 0", function()
    local x = neap.tensor { { { 3, -4, 0, 0 } } }
    assert.are.same({ 5, 0 }, flat(op("LpPool", { x }, { kernel = 2 })))
    assert.are.same({ 7, 0 }, flat(op("LpPool", { x }, { kernel = 2, p = 1 })))
    assert.are.same({ 5 }, flat(op("GlobalLpPool", { x })))
    local g = neap.grad(function(a) return a:lp_pool({ kernel = 2 }):sum() end)(x)
    for i, want in ipairs { 0.6, -0.8, 0, 0 } do
      assert.is_true(math.abs(flat(g)[i] - want) < 1e-6)
    end
  end)
end)
