-- Optimizers against steps worked out by hand, groups, clipping, schedules.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local raises = require("support").raises

--- Steps on loss = sum(w * g) with fixed g: the gradient of w is g at every step. @return w after
-- each step
local function steps(optimizer, w0, g, n, lr)
  local net = neap.net "steps"
  local x = net:input("g", { #g })
  local w = net:param("w", { #g })
  local loss = net:Sum({ w * x }, "loss")
  optimizer:apply(net, net:gradient(loss))
  net:outputs { loss }
  local ws <close> = neap.workspace {}
  ws:init(net)
  ws:feed("w", neap.tensor(w0))
  local out = {}
  for i = 1, n do
    ws:run(net, { g = neap.tensor(g), lr = neap.tensor(lr or optimizer.lr) })
    out[i] = ws:fetch("w"):totable()
  end
  return out
end

local function near(expected, got, tolerance)
  for i, v in ipairs(expected) do
    assert.is_true(math.abs(v - got[i]) <= (tolerance or 1e-6),
      ("%d: expected %.8g, got %.8g"):format(i, v, got[i]))
  end
end

--- LBFGS in loops over numbers, as Nocedal has it; a step that lets the loss rise goes back.
local function reference(x, lr, history)
  local function dot(a, b)
    local sum = 0
    for i = 1, #a do sum = sum + a[i] * b[i] end
    return sum
  end
  local function plus(a, b, factor)
    local out = {}
    for i = 1, #a do out[i] = a[i] + factor * b[i] end
    return out
  end
  local function of_first(g)
    local sum = 0
    for _, v in ipairs(g) do sum = sum + math.abs(v) end
    return 1 / math.max(1, sum)
  end
  local pairs_, base, slope, direction, t, f0, along = {}, nil, nil, nil, nil, nil, nil
  local function toward(g)
    local d, factors = plus(g, g, 0), {}
    for i = #pairs_, 1, -1 do
      local p = pairs_[i]
      factors[i] = dot(p.s, d) / dot(p.s, p.y)
      d = plus(d, p.y, -factors[i])
    end
    local last = pairs_[#pairs_]
    local c = last and dot(last.s, last.y) / dot(last.y, last.y) or of_first(g)
    d = plus(d, d, c - 1)
    for i, p in ipairs(pairs_) do
      d = plus(d, p.s, factors[i] - dot(p.y, d) / dot(p.s, p.y))
    end
    return plus(d, d, -2)
  end
  --- @return what happened: "taken" ("untold" where the slope turns), "back" or "over"
  return function(f, g)
    local happened = "taken"
    if base and f > f0 + along * t * 1e-4 + math.abs(f0) * 1e-6 then
      local least = -along * t * t / (2 * (f - f0 - along * t))
      if not (least >= t * 0.1 and least <= t * 0.5) then least = t * 0.25 end
      happened = least < lr * 1e-5 and "over" or "back"
      t = least
      if happened == "over" then
        direction, t, pairs_ = plus(slope, slope, -1 - of_first(slope)), lr, {}
        along = dot(direction, slope)
      end
    else
      if base then
        local s, y = plus(x, base, -1), plus(g, slope, -1)
        if dot(s, y) <= 1e-10 * dot(y, y) then
          if dot(s, y) < 0 then happened = "untold" end
        else
          pairs_[#pairs_ + 1] = { s = s, y = y }
          if #pairs_ > history then table.remove(pairs_, 1) end
        end
      end
      base, slope, direction, t, f0 = x, g, toward(g), lr, f
      along = dot(direction, g)
    end
    x = plus(base, direction, t)
    return happened, x
  end
end

describe("optim", function()
  it("SGD steps against the gradient", function()
    near({ 0.9, 2.2 }, steps(optim.SGD { lr = 0.1 }, { 1, 2 }, { 1, -2 }, 1)[1])
  end)
  it("SGD has momentum, Nesterov and weight decay", function()
    local w = steps(optim.SGD { lr = 0.1, momentum = 0.5 }, { 1 }, { 1 }, 3)
    near({ 0.9 }, w[1])
    near({ 0.9 - 0.15 }, w[2])
    near({ 0.75 - 0.175 }, w[3])
    w = steps(optim.SGD { lr = 0.1, momentum = 0.5, nesterov = true }, { 1 }, { 1 }, 1)
    near({ 1 - 0.1 * 1.5 }, w[1])
    -- m: 1, 1.25, 1.375, as in PyTorch
    w = steps(optim.SGD { lr = 1, momentum = 0.5, dampening = 0.25 }, { 0 }, { 1 }, 3)
    near({ -1 }, w[1])
    near({ -2.25 }, w[2])
    near({ -3.625 }, w[3])
    near({ 2 - 0.1 * (1 + 0.01 * 2) },
      steps(optim.SGD { lr = 0.1, weight_decay = 0.01 }, { 2 }, { 1 }, 1)[1])
  end)
  it("Adam and AdamW follow the papers", function()
    local function adam(decay, decoupled)
      local w, m, v, out = 2, 0, 0, {}
      for t = 1, 3 do
        local g = 0.5 + (decoupled and 0 or decay * w)
        if decoupled then w = w - 0.1 * decay * w end
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - 0.1 * (m / (1 - 0.9 ^ t)) / (math.sqrt(v / (1 - 0.999 ^ t)) + 1e-8)
        out[t] = w
      end
      return out
    end
    for _, case in ipairs {
      { optim.Adam { lr = 0.1 }, adam(0, false) },
      { optim.Adam { lr = 0.1, weight_decay = 0.1 }, adam(0.1, false) },
      { optim.AdamW { lr = 0.1, weight_decay = 0.1 }, adam(0.1, true) },
    } do
      local got = steps(case[1], { 2 }, { 0.5 }, 3)
      for t = 1, 3 do near({ case[2][t] }, got[t], 2e-6) end
    end
  end)
  it("clips by the norm of all gradients", function()
    near({ 1 - 0.6, 1 - 0.8 }, steps(optim.SGD { lr = 1, clip = 1 }, { 1, 1 }, { 3, 4 }, 1)[1],
      1e-5)
    near({ 1 - 0.3, 1 - 0.4 }, steps(optim.SGD { lr = 1, clip = 1 }, { 1, 1 }, { 0.3, 0.4 }, 1)[1],
      1e-5)
  end)
  it("has groups by glob, with rates of their own", function()
    local function moved(optimizer)
      local m = nn.Sequential { input = { 2 }, seed = 1, nn.Linear { 2, 2 }, nn.Linear { 2, 2 } }
      local before = m:state_dict()
      local t <close> = neap.trainer { model = m, optimizer = optimizer }
      t:step { x = neap.ones(1, 2), y = neap.tensor({ 1 }, "i64") }
      local out = {}
      for name, p in m:parameters() do out[name] = p.data - before[name] end
      return out
    end
    local plain = moved(optim.SGD { lr = 0.1 })
    local grouped = moved(optim.SGD { lr = 0.1, { "linear1.*", lr = 0.3 }, { "*2.bias", lr = 0 } })
    assert.is_true(grouped["linear1.weight"]:close(plain["linear1.weight"] * 3, { atol = 1e-6 }))
    assert.is_true(grouped["linear1.bias"]:close(plain["linear1.bias"] * 3, { atol = 1e-6 }))
    assert.is_true(grouped["linear2.weight"]:equal(plain["linear2.weight"]))
    assert.are.equal(0, grouped["linear2.bias"]:abs():sum():item())
    raises({ 'parameter "linear1.bias" is of two groups, "linear1.*" and "*.bias"' }, moved,
      optim.SGD { lr = 0.1, { "linear1.*", lr = 0.3 }, { "*.bias", lr = 0 } })
    raises('group "linaer1.*" matches no parameter', moved,
      optim.SGD { lr = 0.1, { "linaer1.*", lr = 0.3 } })
  end)
  it("keeps the group of parameters that are frozen for a while, or another trainer's", function()
    local m = nn.Sequential { input = { 2 }, seed = 1, nn.Linear { 2, 2 }, nn.Linear { 2, 2 } }
    local batch = { x = neap.ones(1, 2), y = neap.tensor({ 1 }, "i64") }
    local function optimizer() return optim.SGD { lr = 0.1, { "linear1.*", lr = 0.3 } } end
    local t <close> = neap.trainer { model = m, optimizer = optimizer() }
    t:step(batch)
    m:freeze "linear1.*"
    local before = m:state_dict()
    t:step(batch)
    assert.is_true(m.linear1.weight.data:equal(before["linear1.weight"]))
    assert.is_false(m.linear2.weight.data:equal(before["linear2.weight"]))

    -- Trained again, they have the group's rate again: three times what a trainer without gives.
    m:freeze("linear1.*", false)
    before = m:state_dict()
    t:step(batch)
    local grouped = m.linear1.weight.data - before["linear1.weight"]
    m:load_state_dict(before)
    local plain <close> = neap.trainer { model = m, optimizer = optim.SGD { lr = 0.1 } }
    plain:step(batch)
    local moved = m.linear1.weight.data - before["linear1.weight"]
    assert.is_true(moved:abs():sum():item() > 0)
    assert.is_true(grouped:close(moved * 3, { atol = 1e-6 }))
    local other <close> = neap.trainer { model = m, optimizer = optimizer(), train = "linear2.*" }
    before = m:state_dict()
    other:step(batch)
    assert.is_true(m.linear1.weight.data:equal(before["linear1.weight"]))
  end)
  it("takes a new rate at the next step, without planning", function()
    local m = nn.Sequential { input = { 2 }, nn.Linear { 2, 2 } }
    local opt = optim.SGD { lr = 0.1 }
    local t <close> = neap.trainer { model = m, optimizer = opt }
    local batch = { x = neap.ones(1, 2), y = neap.tensor({ 1 }, "i64") }
    t:step(batch)
    local program = t:program(1)
    opt.lr = 0
    local before = m:state_dict()["linear1.weight"]
    assert.are.equal(0, t:step(batch).lr)
    assert.is_true(m.linear1.weight.data:equal(before))
    assert.are.equal(program, t:program(1))
  end)
  it("says what is wrong", function()
    raises('did you mean "momentum"?', optim.SGD, { lr = 1, momentun = 0.9 })
    raises("lr expects a number of at least 0, got nothing", optim.SGD, {})
    raises("lr expects a number", optim.SGD, { lr = -1 })
    raises("momentum expects a number from 0 to below 1, got 2", optim.SGD,
      { lr = 1, momentum = 2 })
    raises("momentum expects", optim.SGD, { lr = 1, { "*.bias", momentum = 1 } })
    raises("dampening expects a number from 0 to 1, got 1.5", optim.SGD,
      { lr = 1, momentum = 0.5, dampening = 1.5 })
    raises("beta2 expects a number from 0 to below 1, got 1", optim.Adam, { beta2 = 1 })
    raises('did you mean "AdamW"?', function() return optim.Adamw end)
    raises('did you mean "RmsProp"?', function() return optim.RMSprop end)
    raises("lr can", function() optim.SGD({ lr = 1 }).momentum = 0.5 end)
  end)
  it("schedules", function()
    local cosine = optim.cosine { 10, warmup = 2, least = 0.1 }
    assert.are.equal(0.5, cosine(1, 1))
    assert.are.equal(1, cosine(2, 1))
    assert.is_true(math.abs(cosine(6, 1) - 0.55) < 1e-12)
    assert.is_true(math.abs(cosine(10, 1) - 0.1) < 1e-12)
    local step = optim.step { every = 3, factor = 0.5 }
    assert.are.same({ 1, 1, 1, 0.5, 0.5, 0.5, 0.25 }, {
      step(1, 1), step(2, 1), step(3, 1), step(4, 1), step(5, 1), step(6, 1), step(7, 1),
    })
    local warmup = optim.warmup { 4, next = step }
    assert.are.same({ 0.25, 1, 1, 0.5 }, { warmup(1, 1), warmup(4, 1), warmup(5, 1), warmup(8, 1) })
    raises("steps expects", optim.cosine, {})
    raises("warmup = 20 is longer than the whole", optim.cosine, { 10, warmup = 20 })
    raises("at[2] = 5 is not behind", optim.sequence, { { step, step, step }, at = { 5, 5 } })
  end)

  -- figures of torch.optim.lr_scheduler, from a base rate of 0.125
  it("schedules as PyTorch", function()
    local function rates(schedule, lr)
      local list = {}
      for step = 1, 16 do list[step] = schedule(step, lr or 0.125) end
      return list
    end
    near({ 0.125, 0.106694, 0.0625, 0.018306, 0.125, 0.120242, 0.106694, 0.086418, 0.0625, 0.038582,
      0.018306, 0.004758, 0.125, 0.123799, 0.120242, 0.114467 },
      rates(optim.cosine_restarts { 4, longer = 2 }))
    near({ 0.125, 0.1125, 0.10125, 0.091125 }, rates(optim.exponential { 0.9 }))
    near({ 0.0125, 0.03125, 0.05, 0.06875, 0.0875, 0.10625, 0.125, 0.125 },
      rates(optim.linear { 6, from = 0.1 }))
    near({ 0.125, 0.125, 0.0375, 0.0375, 0.0375, 0.01125, 0.01125, 0.01125, 0.01125, 0.003375 },
      rates(optim.multistep { { 2, 5, 9 }, factor = 0.3 }))
    near({ 0.004, 0.013167, 0.037167, 0.066833, 0.090833, 0.1, 0.098746, 0.095048, 0.089092,
      0.081175, 0.071694, 0.061126, 0.05, 0.038874, 0.028306, 0.018826 },
      rates(optim.one_cycle { 20 }, 0.1))
    near({ 1, 0.81, 0.64 }, rates(optim.polynomial { 10, power = 2 }, 1))
    near({ 0.01, 0.04, 0.07, 0.1, 0.07, 0.04, 0.01, 0.04 }, rates(optim.cyclic { 0.1, 3 }, 0.01))
    near({ 0.01, 0.055, 0.1, 0.0775, 0.055, 0.0325, 0.01, 0.0325, 0.055, 0.04375 },
      rates(optim.cyclic { 0.1, up = 2, down = 4, shape = "triangular2" }, 0.01))
    near({ 0.01, 0.037, 0.0586, 0.07561, 0.049366, 0.0277147, 0.01, 0.024348907 },
      rates(optim.cyclic { 0.1, 3, shape = "exponential", factor = 0.9 }, 0.01))
    near({ 0.05, 0.09, 0.081, 0.0729 },
      rates(optim.chained { { optim.warmup { 2 }, optim.exponential { 0.9 } } }, 0.1))
  end)

  it("LBFGS finds the least of a narrow valley, and goes on from a checkpoint as if never stopped",
    function()
      local Valley = nn.module { "Valley",
        init = function(self) self:param("p", { 2 }, { op = "Literal", values = { -1.2, 1 } }) end,
        forward = function(self, x)
          local a, b = self.p:narrow(1, 1, 1), self.p:narrow(1, 2, 1)
          return x + (1 - a):square() + (b - a:square()):square() * 100 -- Rosenbrock 1960
        end }
      local function make()
        return neap.trainer { model = Valley(), loss = function(y) return y:sum() end,
          optimizer = optim.LBFGS {} }
      end
      local path, t, last = os.tmpname() .. ".safetensors", make(), nil
      for i = 1, 60 do
        if i == 20 then
          t:save(path)
          t:close()
          t = make()
          t:load(path)
        end
        last = t:step({ x = neap.zeros(1) }).loss
      end
      os.remove(path)
      local straight <close> = make()
      for _ = 1, 60 do straight:step { x = neap.zeros(1) } end
      local p = t.model:param("p").data
      assert.is_true(last < 1e-9, tostring(last))
      near({ 1, 1 }, p:totable())
      assert.is_true(p:equal(straight.model:param("p").data))
      t:close()
    end)

  it("LBFGS is the method in loops: steps taken, shortened, and begun over", function()
    -- The loss and its gradient are what the batch says.
    local Told = nn.module { "Told",
      init = function(self, o)
        self:param("p", { 3 }, { op = "Literal", values = o.start }, { dtype = "f64" })
      end,
      forward = function(self, x) return x * self.p end }
    local n_untold = 0
    for _, case in ipairs { { 1, 1, 0.5 }, { 0.5, 1, 0.5 }, { 0.1, 1, 0.1 }, { 1, 1e-3, 0.5 } } do
      local lr, size, x = case[1], case[2], { case[3] > 0.1 and -1.2 or 1, 1, case[3] }
      local step = reference(table.move(x, 1, 3, 1, {}), lr, 4)
      local t <close> = neap.trainer { model = Told { start = x },
        optimizer = optim.LBFGS { lr = lr, history = 4 },
        loss = function(y, c) return y:sum() + c:sum() end }
      local seen, last = {}, 0
      for i = 1, 60 do
        -- A valley with a wave in it, so that slopes turn; for a while each loss is higher.
        local a, b = 1 - x[1], x[2] - x[1] ^ 2
        local f = size * (a ^ 2 + 10 * b ^ 2 + 5 * math.cos(3 * x[3]))
        if i >= 15 and i < 30 then f = last + 1 end
        last = f
        local g = { -2 * a - 40 * x[1] * b, 20 * b, -15 * math.sin(3 * x[3]) }
        local own = 0
        for k = 1, 3 do
          g[k] = g[k] * size
          own = own + g[k] * x[k]
        end
        t:step { x = neap.tensor({ g }, "f64"), y = neap.tensor({ f - own }, "f64") }
        local happened
        happened, x = step(f, g)
        seen[happened] = (seen[happened] or 0) + 1
        for k, v in ipairs(t.model:param("p").data:totable()) do
          assert.is_true(math.abs(v - x[k]) <= 1e-6 * (1 + math.abs(v)),
            ("step %d (%s): %.12g, expected %.12g"):format(i, happened, v, x[k]))
          x[k] = v -- what rounding adds does not grow
        end
      end
      assert.is_true(seen.taken > 9 and seen.back > 5 and seen.over > 0)
      n_untold = n_untold + (seen.untold or 0)
    end
    assert.is_true(n_untold > 0)
  end)

  it("LBFGS fits a net to all of its data, which Adam does not in as many steps", function()
    local x = neap.arange(0, 60):reshape(20, 3):sin()
    local y = x:matmul(neap.tensor { { 1, -2 }, { 0.5, 1 }, { 2, 0.3 } }):tanh()
    local function loss_after(optimizer)
      local t <close> = neap.trainer { loss = nn.MseLoss(), optimizer = optimizer,
        model = nn.Sequential { seed = 3, input = { 3 }, nn.Linear { 3, 12 }, nn.Tanh(),
          nn.Linear { 12, 2 } } }
      local last
      for _ = 1, 60 do last = t:step({ x = x, y = y }).loss end
      return last
    end
    local lbfgs = loss_after(optim.LBFGS {})
    assert.is_true(lbfgs < 1e-3, tostring(lbfgs))
    assert.is_true(lbfgs < 0.02 * loss_after(optim.Adam { lr = 0.01 }))
    assert.is_true(loss_after(optim.LBFGS { history = 1 }) < 1e-2)
    local net = neap.net "f"
    local w = net:param("w", { 2 }, 1)
    local value = (w * w):sum()
    local ok, err = pcall(function() optim.LBFGS {}:apply(net, net:gradient(value)) end)
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find("opt:apply(net, grads, loss)", 1, true), tostring(err))
    optim.LBFGS {}:apply(net, net:gradient(value), value)
    assert.is_truthy(net:blob "w.direction")
  end)

  it("LBFGS is refused where a batch is run in parts", function()
    for _, option in ipairs { "micro", "accumulate" } do
      local o = { loss = nn.MseLoss(), optimizer = optim.LBFGS {},
        model = nn.Sequential { input = { 3 }, nn.Linear { 3, 1 } }, [option] = 2 }
      raises({ "optim.LBFGS", option }, neap.trainer, o)
    end
    neap.trainer { loss = nn.MseLoss(), optimizer = optim.LBFGS {}, accumulate = 1,
      model = nn.Sequential { input = { 3 }, nn.Linear { 3, 1 } } }:close()
  end)

  it("schedules refuse what they would not look at", function()
    raises({ "optim.cyclic: factor = 0.5", "triangular" }, optim.cyclic,
      { 0.1, factor = 0.5 })
    raises("optim.chained: a list of no schedules", optim.chained, { {} })
    raises("optim.chained: schedule 2 is a number", optim.chained,
      { { optim.step { 3 }, 5 } })
    raises("optim.sequence: a list of no schedules", optim.sequence, { {}, at = {} })
    raises("at has 2 steps, expected 1", optim.sequence,
      { { optim.step { 3 }, optim.step { 5 } }, at = { 4, 9 } })
  end)

  it("Adafactor as PyTorch", function()
    local m = nn.Linear { 3, 2 }
    m:param("weight").data = neap.tensor { { 0.1, -0.2, 0.3 }, { 0.4, 0.5, -0.6 } }
    m:param("bias").data = neap.tensor { 0.05, -0.1 }
    local t <close> = neap.trainer { model = m, loss = nn.MseLoss(),
      optimizer = optim.Adafactor { lr = 0.05, weight_decay = 0.1 } }
    local x = neap.tensor { { 1, 2, 3 }, { 0.5, -1, 0.2 }, { -0.3, 0.8, 1.5 }, { 2, 1, 0 } }
    local y = neap.tensor { { 1, 0 }, { 0, 1 }, { 1, 1 }, { -1, 0.5 } }
    for _ = 1, 5 do t:step { x = x, y = y } end
    near({ -0.0504692, -0.0972706, 0.3497767, 0.3565267, 0.4599420, -0.4919860 },
      m:param("weight").data:reshape(-1):totable())
    near({ 0.0310751, -0.0802995 }, m:param("bias").data:totable())
  end)

  it("Radam adds eps to the plain root of the second moment", function()
    -- torch.optim.RAdam in f64, by the same gradients; the variance counts from the 6th step on.
    local w = steps(optim.Radam { lr = 0.1, eps = 0.5 }, { 1, -2 }, { 0.3, -0.7 }, 12)
    near({ 0.85, -1.65 }, w[5])
    near({ 0.84988546, -1.64974767 }, w[6])
    near({ 0.84834710, -1.64640804 }, w[12])
  end)

  it("clips each element, then the norm", function()
    near({ -1, 1, 0.5 }, steps(optim.SGD { lr = 1, clip_value = 1 }, { 0, 0, 0 },
      { 3, -7, -0.5 }, 1)[1])
    near({ -0.6, 0.8 }, steps(optim.SGD { lr = 1, clip_value = 4, clip = 1 }, { 0, 0 },
      { 3, -7 }, 1)[1])
  end)

  it("of every kind goes on from a checkpoint as if never stopped", function()
    for _, name in ipairs { "RmsProp", "Adagrad", "Adadelta", "Adamax", "Nadam", "Radam", "Rprop",
      "Lion", "Adafactor" } do
      local function trained(stop)
        local path = os.tmpname() .. ".safetensors"
        local function make()
          return neap.trainer { model = nn.Linear { 3, 2 }, loss = nn.MseLoss(), seed = 4,
            optimizer = optim[name] { lr = 0.05 } }
        end
        local t = make()
        for i = 1, 8 do
          if i == stop then
            t:save(path)
            t:close()
            t = make()
            t:load(path)
          end
          t:step { x = neap.arange(6):reshape(2, 3):sin(), y = neap.ones(2, 2) }
        end
        local w = t.model:state_dict()["weight"]:clone()
        t:close()
        os.remove(path)
        return w:reshape(-1):totable()
      end
      assert.are.same(trained(nil), trained(5), name)
    end
  end)

  it("makes the loss of a small net small, whatever the kind", function()
    local rate = { SGD = 0.1, Adagrad = 0.3, Lion = 0.02, Adadelta = 20, Rprop = 0.01 }
    for _, name in ipairs { "SGD", "Adam", "AdamW", "RmsProp", "Adagrad", "Adadelta", "Adamax",
      "Nadam", "Radam", "Rprop", "Lion", "Adafactor" } do
      local t <close> = neap.trainer { model = nn.Linear { 3, 1 }, loss = nn.MseLoss(), seed = 4,
        optimizer = optim[name] { lr = rate[name] or 0.05 } }
      local x = neap.arange(24):reshape(8, 3):sin()
      local y, first, last = x:sum { axes = { 2 }, keepdim = true }, nil, nil
      for i = 1, 150 do
        last = t:step({ x = x, y = y }).loss
        first = first or last
      end
      assert.is_true(last < 0.05 * first, ("%s: %g of %g"):format(name, last, first))
    end
  end)
end)
