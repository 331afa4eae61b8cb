--- A gradient has a gradient: of every differentiable op, in f64 against differences of the first.
local neap = require "neap"
local op = require "neap.op"
local cases = require "neap.check.cases"
local differences = require "neap.check.differences"

-- Whose backward has no gradient yet, which is an error that names it.
local once_only = {
  Attention = "AttentionGrad",
  PackedAttention = "PackedAttentionGrad",
  LSTM = "LSTMGrad",
  Compress = "CompressGrad",
  CtcLoss = "CtcLossGrad",
}

local n_compared = 0

for _, name in ipairs(cases.own_names()) do
  local record = op.records[name]
  if record.gradient and not record.no_grad and not record.internal then
    for _, case in ipairs(cases.cases_of(record)) do
      local f64 = cases.with_dtype(case, "f64")
      local net = differences.loss_net(f64)
      local refused = once_only[name] or case.attrs.relu and "BatchNormGrad with relu"
      if net and refused then
        it("of " .. case.name .. " is refused in words", function()
          local ok, err = pcall(differences.check, f64, "ref", differences.twice_net)
          assert.is_false(ok)
          local said = "no gradient is defined through " .. refused
          assert.is_truthy(tostring(err):find(said, 1, true), tostring(err))
        end)
      elseif net then
        it("of " .. case.name .. " is what differences show", function()
          n_compared = n_compared
            + (differences.check(f64, "ref", differences.twice_net) or 0)
        end)
      end
    end
  end
end

--- The gradient of the sum of the gradient of the product of x.
local function product_twice(values)
  local net = neap.net "twice"
  local x = net:input("x", { #values })
  local g = net:gradient(net:Prod(x), { wrt = { x } })[x]
  local h = net:gradient(net:Sum(g), { wrt = { x } })[x]
  net:outputs { h }
  local ws <close> = neap.workspace { store = false }
  ws:init(net)
  ws:feed("x", neap.tensor(values))
  ws:run(net)
  return ws:fetch(h):totable()
end

describe("the second gradient", function()
  it("of a product knows zeros", function()
    -- by k the sum over i of the products without i and k
    assert.are.same({ 3 + 2, 0 + 3, 0 + 2 }, product_twice { 0, 2, 3 })
    assert.are.same({ 4, 4, 0 }, product_twice { 0, 0, 4 })
    assert.are.same({ 0, 0, 0, 0 }, product_twice { 0, 0, 0, 4 })
    assert.are.same({ 5, 4, 3 }, product_twice { 1, 2, 3 })
  end)

  it("of a norm with a relu behind it is as if it stood alone", function()
    local function made(gap)
      local net = neap.net "norm"
      local x = net:input("x", { 4, 3, 2, 2 })
      local gamma, beta = net:param("gamma", { 3 }), net:param("beta", { 3 })
      local y = net:BatchNorm({ x, gamma, beta }, 1, { training = true })
      if gap then y = net:Mul({ y, net:const(1) }) end
      local loss = net:Sum(net:Square(net:Relu(y)))
      local g = net:gradient(loss, { wrt = { gamma } })[gamma]
      local h = net:gradient(net:Sum(net:Square(g)), { wrt = { gamma, beta } })
      net:outputs { h[gamma], h[beta] }
      local ws <close> = neap.workspace { store = false, seed = 3 }
      ws:init(net)
      ws:feed("x", neap.arange(48):reshape(4, 3, 2, 2):sin())
      ws:feed("gamma", neap.tensor { 1, 0.5, 2 })
      ws:feed("beta", neap.tensor { 0.1, -0.2, 0 })
      ws:run(net)
      return ws:fetch(h[gamma]), ws:fetch(h[beta])
    end
    local a, b = made(false)
    local c, d = made(true)
    for i = 1, 3 do
      assert.is_true(math.abs(a[i] - c[i]) < 1e-3 * math.abs(c[i]))
      assert.is_true(math.abs(b[i] - d[i]) < 1e-3 * math.abs(d[i]) + 1e-4)
    end
  end)
end)

it("is compared of nearly all", function()
  assert.is_true(n_compared >= 300, "only " .. n_compared .. " derivatives were compared")
end)
