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
