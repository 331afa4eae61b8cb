--- Transforms of functions: derivatives by arguments alone, nested, on tensors and within nets.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim

local function near(want, got, tolerance)
  local a, b = want:reshape(-1):totable(), got:reshape(-1):totable()
  assert.are.same(want.shape, got.shape)
  for i = 1, #a do
    local off = math.abs(a[i] - b[i])
    assert.is_true(off <= (tolerance or 1e-5), ("%d: %g, %g"):format(i, a[i], b[i]))
  end
end

local function error_of(f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok)
  return tostring(err)
end

describe("a transform", function()
  local x = neap.linspace(-1, 1, 5)

  it("gives gradients of one argument, of several, and with the value", function()
    local function f(a, b) return (a * b:square()):sum() end
    local da, db = neap.grad(f)(x, x + 2)
    near((x + 2):square(), da)
    near(2 * x * (x + 2), db)
    local value, only = neap.value_and_grad(f, { wrt = 2 })(x, x + 2)
    near((x * (x + 2):square()):sum(), value)
    near(db, only)
    assert.are.equal(1, select("#", neap.grad(f, { wrt = { 1 } })(x, x + 2)))
    near(neap.tensor(12), (neap.grad(function(a) return a * a * a end)(2)))
  end)

  it("nests, to the third derivative", function()
    local function derived(f) return function(a) return neap.grad(f)(a):sum() end end
    local function f(a) return a:sin():sum() end
    near(-x:sin(), neap.grad(derived(f))(x))
    near(-x:cos(), neap.grad(derived(derived(f)))(x))
  end)

  it("takes what f reads elsewhere for a constant", function()
    local twice = neap.grad(function(a)
      return (a * neap.grad(function(b) return (b * a):sum() end)(a)):sum()
    end)
    near(2 * x, twice(x))
  end)

  it("pulls back, pushes forward, and gives Hessians", function()
    local a, b = neap.rand(2, 3), neap.rand(3, 4)
    local y, pull = neap.vjp(function(p, q) return p:matmul(q) end, a, b)
    near(a:matmul(b), y)
    local dy = neap.rand(2, 4)
    local da, db = pull(dy)
    near(dy:matmul(b:transpose(1, 2)), da)
    near(a:transpose(1, 2):matmul(dy), db)
    local value, along = neap.jvp(function(p) return p:exp() end, x, x + 3)
    near(x:exp(), value)
    near(x:exp() * (x + 3), along)
    local _, both = neap.jvp(function(p, q) return p * q end, { x, x + 1 }, { x + 2, x + 3 })
    near((x + 2) * (x + 1) + x * (x + 3), both)
    local h = neap.hessian(function(p) return (p:square() * p):sum() + p[1] * p[2] end)
    near(neap.tensor { { 6, 1, 0 }, { 1, 12, 0 }, { 0, 0, 18 } }, h(neap.tensor { 1, 2, 3 }))
  end)

  it("compiles once for each shape, and plans", function()
    local n_call = 0
    local f = neap.compile(function(a, b)
      n_call = n_call + 1
      return a:relu() + b, a
    end)
    for _ = 1, 3 do
      local y, same = f(x, 2)
      near(x:relu() + 2, y)
      near(x, same)
    end
    near(neap.tensor { 3, 4 }, (f(neap.tensor { 1, 2 }, 2)))
    assert.are.equal(2, n_call)
    local net = neap.trace(function(a) return a:relu(), a end, x)
    assert.are.equal(40, net:plan {}.total_bytes >= 40 and 40)
    assert.is_truthy(net:text():find("input x f32 (5)", 1, true))
  end)

  it("keeps dtypes, and draws by neap.seed", function()
    local g = neap.grad(function(a) return a:square():sum() end)
    assert.are.equal("f64", g(x:to "f64").dtype)
    local function noisy()
      neap.seed(5)
      return neap.grad(function(a) return (a * a:dropout { rate = 0.5 }):sum() end)(x)
    end
    assert.are.same(noisy():totable(), noisy():totable())
  end)

  it("stands in a loss: a penalty on a critic's slope trains through second derivatives", function()
    local critic = nn.Sequential { nn.Linear { 2, 8 }, nn.Tanh {}, nn.Linear { 8, 1 } }
    local function loss(y, target) return (y - target):square():mean() end
    local penalty = nn.module { "Penalty", init = function(self) self.critic = critic end,
      forward = function(self, points)
        local slope = neap.grad(function(p) return self.critic(p):sum() end)(points)
        return slope:square():sum { axes = { 2 }, keepdim = true }
      end }
    local t = neap.trainer { model = penalty {}, loss = loss, optimizer = optim.Adam { lr = 0.02 },
      seed = 3 }
    local points, ones = neap.rand(16, 2), neap.ones(16, 1)
    local first = t:step { x = points, y = ones }.loss
    local last
    for _ = 1, 60 do last = t:step { x = points, y = ones }.loss end
    assert.is_true(last < first / 4, ("%g, then %g"):format(first, last))
  end)

  it("takes a tensor beside what is being built, in a derivative within another", function()
    local at = neap.tensor { 1, 2, 3 }
    local outer = neap.grad(function(w)
      local slope = neap.grad(function(p) return (p * p * w):sum() end)(at)
      return slope:square():sum() -- (2 at w)^2
    end)
    near(neap.tensor(8 * 14 * 0.5), (outer(neap.tensor(0.5))))
  end)

  it("pulls back to the arguments as they were, and takes no other shapes", function()
    local a = neap.tensor { 1, 2, 3 }
    local _, pull = neap.vjp(function(p) return p * p end, a)
    a[1] = 100
    near(neap.tensor { 2, 4, 6 }, (pull(neap.ones(3))))
    local wide = error_of(pull, neap.ones(2, 3))
    assert.is_truthy(wide:find("expects f32 (3), got f32 (2,3)", 1, true))
    assert.is_truthy(error_of(pull):find("pull expects one tensor", 1, true))
    assert.is_truthy(error_of(neap.jvp, function(p) return p:sin() end, a, neap.ones(1)):find(
      "direction 1 expects f32 (3), got f32 (1)", 1, true))
  end)

  it("goes through branches and loops once, and says so", function()
    local function branched(p)
      return p.net:If(neap.tensor(true), function() return p * p end, function() return p end):sum()
    end
    local function looped(p)
      return (p.net:While { init = { p, neap.tensor(0) },
        cond = function(_, _, i) return i:lt(1) end,
        body = function(_, q, i) return q * q, i + 1 end }):sum()
    end
    for _, f in ipairs { branched, looped } do
      local once = neap.grad(f)
      near(2 * x, once(x))
      assert.is_truthy(error_of(neap.grad(function(p) return once(p):sum() end), x):find(
        "no gradient is defined through the gradient of", 1, true))
    end
  end)

  it("differentiate models that were made outside, with their parameters as they are", function()
    local model = nn.Sequential { seed = 1, nn.Linear { 4 }, nn.Tanh(), nn.Linear { 2 } }
    local v = neap.linspace(-1, 1, 6):reshape(2, 3)
    local slope = neap.grad(function(a) return model(a):sum() + model(a):square():sum() end)
    local function expected()
      local y = model(v)
      return (model:backward(v, y * 2 + 1))
    end
    near(slope(v), expected()) -- widths are learnt, parameters made
    assert.are.equal(4, #model.params)
    for _, p in model:parameters() do p.data = p.data * 2 end
    near(slope(v), expected())
    local _, along = neap.jvp(model, v, neap.ones(2, 3))
    near(along:sum():reshape(1), model:backward(v, neap.ones(2, 2)):sum():reshape(1), 1e-5)
    local bent = neap.hessian(function(a) return model(a):square():sum() end)
    assert.are.same({ 2, 3, 2, 3 }, bent(v).shape)
    -- a mode is noticed, and no statistic written
    local normed = nn.Sequential { input = { 3 }, nn.BatchNorm1d { 3 }, nn.Dropout { 0.5 } }
    local f = neap.compile(function(a) return normed(a) end)
    local trained = f(v)
    assert.are.same({ 0, 0, 0 }, normed:param("norm1.running_mean").data:totable())
    normed:eval()
    near(f(v), v, 1e-4)
    assert.is_false(f(v):equal(trained))
  end)

  it("refuses in words what it can't take", function()
    local function sum(a) return a:sum() end
    local twice, none = neap.grad(sum, { wrt = { 1, 1 } }), neap.grad(sum, { wrt = {} })
    assert.is_truthy(error_of(twice, x):find("wrt names argument 1 twice", 1, true))
    assert.is_truthy(error_of(none, x):find("wrt expects the number", 1, true))
    local function f(a) return a * 2 end
    local scalar = "where one floating-point number is expected"
    assert.is_truthy(error_of(neap.grad(f), x):find(scalar, 1, true))
    assert.is_truthy(error_of(neap.grad, 3):find("expects a function first, got a number", 1, true))
    assert.is_truthy(error_of(neap.grad(f), "x"):find("expects tensors, got a string", 1, true))
    assert.is_truthy(error_of(neap.grad(f, { wrt = 2 }), x):find("wrt = 2 is no argument", 1, true))
    assert.is_truthy(error_of(neap.grad(f), x:to "i32"):find("no argument is a floating-point",
      1, true))
    assert.is_truthy(error_of(neap.compile(function() end), x):find("gives nothing", 1, true))
    assert.is_truthy(error_of(neap.compile(function() return "y" end), x):find(
      "gives a string as result 1", 1, true))
    local layer = nn.Linear { 5, 1 }
    assert.is_truthy(error_of(layer, neap.net("f"):input("x", { 1, 5 })):find(
      "got a blob of a net that is no model's", 1, true))
    local pooled = neap.grad(function(a)
      return a:reshape(1, 1, 1, 5):max_pool { kernel = { 1, 2 } }:square():sum()
    end)
    assert.are.same({ 5 }, pooled(x).shape)
    local second = neap.grad(function(a) return pooled(a):sum() end)(x):totable()
    assert.are.same({ 4, 0 }, { second[1] + second[2] + second[3] + second[4], second[5] })
  end)
end)
