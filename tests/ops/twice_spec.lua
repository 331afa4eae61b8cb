--- A gradient has a gradient: of every differentiable op, in f64 against differences of the first.
local neap = require "neap"
local op = require "neap.op"
local cases = require "neap.check.cases"
local differences = require "neap.check.differences"

-- Whose backward has no gradient yet, which is an error that names it.
local once_only = { LSTM = "LSTMGrad", CtcLoss = "CtcLossGrad" }

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

  it("is looked for through ops whose outputs are left out", function()
    local net = neap.net_from [[
net norm
input x f32 (4,3,2,2)
param gamma f32 (3) = Constant { value = 1 }
param beta f32 (3) = Constant { value = 0 }
n = BatchNorm(x, gamma, beta) { training = true }
r = Relu(n)
s = Square(r)
l = Sum(s)
g = Gradient(l, x)
p, _, v = BatchNorm(g, gamma, beta) { training = true }
outputs p, v
]]
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    ws:feed("x", neap.arange(48):reshape(4, 3, 2, 2):sin())
    ws:run(net)
    assert.are.same({ 3 }, ws:fetch("v").shape)
  end)
end)

it("is there for all ops but a few, those made of others included", function()
  local lacking = {}
  for name, record in pairs(op.records) do
    local is_asked = record.gradient and not (record.no_grad or record.internal or record.control)
    for _, case in ipairs(is_asked and cases.cases_of(record) or {}) do
      local f64 = cases.with_dtype(case, "f64")
      if differences.loss_net(f64) and not case.attrs.relu then
        local ok, err = pcall(differences.twice_net, f64)
        if not ok then
          assert.is_truthy(tostring(err):find("no gradient is defined", 1, true), tostring(err))
          lacking[name] = true
        end
      end
    end
  end
  local names = {}
  for name in pairs(lacking) do names[#names + 1] = name end
  table.sort(names)
  assert.are.same({ "CtcLoss", "GRU", "LSTM", "RNN" }, names)
end)

describe("the second gradient of attention", function()
  it("knows rows that see nothing, and additive masks of minus infinity", function()
    local inf = math.huge
    local q = neap.arange(0, 24):to("f64"):reshape(1, 2, 3, 4):sin()
    local mask = neap.tensor({ { 0, -inf, 0 }, { -inf, -inf, -inf }, { 1, 0, -inf } }, "f64")
    local seen = mask:gt(-inf)
    local function slope(m)
      local function f(x) return (x:attention(x, x, m) * x):sum() end
      return neap.grad(function(x) return neap.grad(f)(x):square():sum() end)
    end
    local added, chosen = slope(mask)(q), slope(seen)(q)
    assert.are.equal(0, added:stats().nan + chosen:stats().nan)
    local plain = slope(neap.where(seen, 0, mask))(q)
    assert.is_true((plain - chosen):abs():max():item() < 1e-9)
    assert.is_true((plain - added):abs():max():item() > 1e-3)
  end)
end)

it("is compared of nearly all", function()
  assert.is_true(n_compared >= 300, "only " .. n_compared .. " derivatives were compared")
end)
