--- Recurrent layers with states, and layers of one step; ops whose numbers are PyTorch's.
local neap = require "neap"
local nn = neap.nn
local raises = require("support").raises

local function near(expected, x, tolerance)
  assert.are.same(expected.shape, x.shape)
  local off = (x - expected):abs():max():item()
  assert.is_true(off <= (tolerance or 1e-6), tostring(off))
end

describe("a recurrent layer", function()
  local x = neap.arange(0, 24):reshape(2, 4, 3):sin()

  it("goes on from the states that it gave, as if never stopped", function()
    for _, name in ipairs { "LSTM", "GRU", "RNN" } do
      local m = nn[name] { 3, 5, layers = 2, states = true }
      local whole = table.pack(m(x))
      local first = table.pack(m(x:narrow(2, 1, 3)))
      local rest = table.pack(m(x:narrow(2, 4, 1), nil, table.unpack(first, 2)))
      near(whole[1]:narrow(2, 4, 1), rest[1])
      assert.are.equal(name == "LSTM" and 3 or 2, whole.n)
      for k = 2, whole.n do
        assert.are.same({ 2, 2, 5 }, rest[k].shape)
        near(whole[k], rest[k])
      end
      near(whole[1]:select(2, -1), whole[2][2])
    end
  end)

  it("has states for each direction, of the last steps that lengths say", function()
    local m = nn.GRU { 3, 4, bidirectional = true, states = true }
    local y, h = m(x, neap.tensor({ 2, 4 }, "i64"))
    assert.are.same({ 2, 2, 4 }, h.shape)
    near(y[{ 1, 2, { 1, 4 } }], h[{ 1, 1 }])
    near(y[{ 1, 1, { 5, 8 } }], h[{ 2, 1 }])
    near(y[{ 2, 4, { 1, 4 } }], h[{ 1, 2 }])
  end)

  it("is one with the cell of its weights", function()
    for _, name in ipairs { "LSTM", "GRU", "RNN" } do
      local m, cell = nn[name] { 3, 5 }, nn[name .. "Cell"] { 3, 5 }
      local y = m(x)
      cell(x:select(2, 1))
      for key, p in cell:parameters() do
        local is_sum = name == "LSTM" and key:find "bias" -- whose one bias is that of both
        local own = is_sum and "bias" or key
        p.data = key == "state_bias" and is_sum and neap.zeros(20) or m:param(own .. "1").data
      end
      local states = {}
      for t = 1, 4 do
        states = { cell(x:select(2, t), table.unpack(states)) }
        near(y:select(2, t), states[1])
      end
    end
  end)

  it("refuses states that are not its own", function()
    local m = nn.GRU { 3, 5 }
    raises("state 1 is (2,5), expected (1,2,5)", m, x, nil, neap.zeros(2, 5))
    raises("takes 1 state, got 2", m, x, nil, neap.zeros(1, 2, 5), neap.zeros(1, 2, 5))
  end)
end)

describe("ops as PyTorch has them", function()
  local x = neap.tensor { { 0.1, 0.2, 0.4, 0.8 }, { 1, -1, 0.5, 0.3 } }
  local v = neap.tensor { 3, 1, 4, 1, 5, 9, 2, 6 }

  it("losses of several labels, quantiles, covariances, integrals", function()
    near(neap.tensor { 0.85, 0.575 }, x:multilabel_margin_loss(
      neap.tensor({ { 3, 0, -1, 1 }, { 2, -1, -1, -1 } }, "i64"), { reduction = "none" }))
    near(neap.tensor(2.1), v:quantile(0.3))
    near(neap.tensor(3.5), v:quantile { q = 0.5, axis = 1 })
    local value, at = v:kth_value { k = 3 }
    assert.are.same({ 2, 6 }, { value:item(), at:item() })
    near(neap.tensor { { 0.0958333, 0.0133333 }, { 0.0133333, 0.7266667 } }, x:cov())
    near(neap.tensor(13.25), v:trapezoid { dx = 0.5 })
    near(neap.tensor { 5, -6, 7, 0, -11, 11 }, v:diff { n = 2 })
    near(neap.tensor { 27, 6, -13 }, neap.tensor { 1, 2, 3 }:cross(neap.tensor { 4, -5, 6 }))
  end)

  it("keep NaN and infinities where they say so", function()
    local inf, nan = math.huge, 0 / 0
    local odd = neap.tensor { 1, inf, -inf, nan }
    assert.are.same({ true, false, false, false }, odd:is_finite():totable())
    assert.are.same({ 1, 9, -8, 7 },
      odd:nan_to_num({ nan = 7, posinf = 9, neginf = -8 }):totable())
    assert.are.equal(0x1.fffffep127, odd:nan_to_num():max():item())
    assert.are.equal(3, neap.tensor({ 1, nan, 2 }):nan_sum():item())
    assert.are.equal(1.5, neap.tensor({ 1, nan, 2 }):nan_mean():item())
    for _, case in ipairs { { { 1, 2, inf }, 0.5, 2 }, { { -inf, 1, 2 }, 0.5, 1 },
      { { 1, inf }, 0, 1 }, { { 1, inf }, 1, inf }, { { -inf, 1 }, 1, 1 }, { { -inf, 1 }, 0, -inf },
      { { inf, inf }, 0.5, inf }, { { 1, inf, 3, 2 }, 0.9, inf }, { { -inf, 1 }, 0.2, -inf },
      { { -1e8, 1e-8 }, 1, neap.tensor(1e-8):item() }, { { 7 }, 0.3, 7 } } do
      assert.equal(case[3], neap.tensor(case[1]):quantile(case[2]):item())
    end
    local none = neap.tensor({ -inf, inf }):quantile(0.5):item()
    assert.is_true(none ~= none)
    local q = neap.tensor({ 1, nan, 2 }):quantile(0.1):item()
    assert.is_true(q ~= q)
    near(neap.tensor { 0, 0, 3 },
      neap.tensor({ 0, 0, 3 }):xlogy(neap.tensor { 0, 2, math.exp(1) }))
  end)

  it("draw a class in the shares of a softmax, hard with a soft gradient", function()
    local logits = neap.tensor({ 0.5, 0.3, 0.2 }):log():reshape(1, 3):expand(6000, 3):contiguous()
    neap.seed(3)
    local drawn = logits:gumbel_softmax { hard = true }
    assert.are.equal(6000, drawn:sum():item())
    near(neap.tensor { 0.5, 0.3, 0.2 }, drawn:mean { axes = { 1 } }, 0.03)
    local slope = neap.grad(function(a)
      return a:gumbel_softmax({ hard = true, tau = 0.5 }):select(2, 1):sum()
    end)(logits)
    assert.is_true(slope:abs():max():item() > 0.01)
    local m = nn.RReLU(0.2, 0.4)
    local y = m(-neap.ones(1000))
    assert.is_true(y:max():item() > -0.21 and y:min():item() < -0.39 and y:min():item() >= -0.4)
    m:eval()
    near(neap.full { 2, value = -0.3 }, m(-neap.ones(2)))
  end)
end)
