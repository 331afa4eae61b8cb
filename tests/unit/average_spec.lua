--- Averages of weights, layer-wise rates, and rates that follow a metric.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim

local x = neap.tensor { { 1, 2, 3 }, { 4, 5, 6 }, { -1, 0.5, 2 } }
local y = neap.tensor { { 1, 0 }, { 0, 1 }, { 1, 1 } }

--- A trainer of a fixed linear layer after so many steps, and its model.
local function trained(optimizer, steps)
  local m = nn.Linear { 3, 2 }
  m(x)
  m:param("weight").data:copy_(neap.tensor { { 0.1, -0.2, 0.3 }, { 0.05, 0.4, -0.1 } })
  m:param("bias").data:copy_(neap.tensor { 0.5, -0.5 })
  local t = neap.trainer { model = m, loss = nn.MseLoss(), optimizer = optimizer }
  for _ = 1, steps do t:step { x = x, y = y } end
  return t, m
end

local function weight(m) return m:param("weight").data:clone() end

local function near(want, got)
  assert.is_true(got:close(neap.tensor(want), { atol = 2e-7, rtol = 2e-6 }), tostring(got))
end

describe("an average of weights", function()
  it("is PyTorch's exponential one, and its plain one", function()
    local t, m = trained(optim.SGD { lr = 0.01, average = 0.9 }, 5)
    near({ { 0.06491253, -0.24199704, 0.25109338 }, { 0.03683159, 0.40015594, -0.0865197 } },
      t:averaged(weight, m))
    t, m = trained(optim.SGD { lr = 0.01, average = "mean" }, 5)
    near({ { 0.05034303, -0.25840178, 0.2328534 }, { 0.02897608, 0.39967286, -0.07963036 } },
      t:averaged(weight, m))
  end)

  it("is of halves, too, whose gradients are added up with more digits", function()
    for _, average in ipairs { 0.9, "mean" } do
      local function after(options)
        local m = nn.Linear { 3, 2 }
        m(x)
        m:load_state_dict { weight = neap.ones(2, 3), bias = neap.zeros(2) }
        m:to "bf16"
        local t <close> = neap.trainer { model = m, loss = nn.MseLoss(), micro = options.micro,
          accumulate = options.accumulate,
          optimizer = optim.SGD { lr = 0.125, average = average } }
        local batch = { x = x[{ { 1, 2 } }]:to "bf16", y = y[{ { 1, 2 } }]:to "bf16" }
        for _ = 1, 2 * (options.accumulate or 1) do t:step(batch) end
        return t:averaged(weight, m):to "f32"
      end
      local want = after {}
      assert.is_true(after({ micro = 1 }):close(want, { rtol = 0.02, atol = 0.02 }))
      assert.is_true(after({ accumulate = 2 }):close(want, { rtol = 0.02, atol = 0.02 }))
    end
  end)

  it("is used within averaged alone, and training goes on as without one", function()
    local t, m = trained(optim.SGD { lr = 0.01, momentum = 0.9, average = 0.9 }, 5)
    local plain, other = trained(optim.SGD { lr = 0.01, momentum = 0.9 }, 5)
    local before, own = weight(m), t:predict(x)
    assert.is_true(before:equal(weight(other)))
    local path = os.tmpname() .. ".safetensors"
    local predicted, loss = t:averaged(function()
      assert(m:save(path))
      return t:predict(x), t:evaluate(neap.data.tensors { x = x, y = y, batch = 3 }).loss
    end)
    assert.is_false(predicted:equal(own))
    assert.is_true(t:averaged(t.predict, t, x):equal(predicted))
    assert.is_true(weight(m):equal(before))
    assert.is_true(t:predict(x):equal(own))
    local saved = nn.Linear { 3, 2 }
    saved(x)
    assert(saved:load(path))
    os.remove(path)
    assert.is_true(saved(x):equal(predicted))
    assert.is_true(math.abs(loss - ((predicted - y) ^ 2):mean():item()) < 1e-6)
    t:step { x = x, y = y }
    plain:step { x = x, y = y }
    assert.is_true(weight(m):equal(weight(other)))
  end)

  it("gives the parameters back when the function raises, and needs a step", function()
    local t, m = trained(optim.SGD { lr = 0.01, average = 0.9 }, 2)
    local before = weight(m)
    assert.is_false((pcall(t.averaged, t, function() error "stop" end)))
    assert.is_true(weight(m):equal(before))
    local _, err = pcall(t.averaged, t, function() t:averaged(print) end)
    assert.is_truthy(tostring(err):find("in use already", 1, true))
    assert.is_true(weight(m):equal(before))

    -- What trains or loads parameters would be lost when they are put back.
    local set = neap.data.tensors { x = x, y = y, batch = 4 }
    local path = os.tmpname() .. ".safetensors"
    assert(t:save(path))
    for what, f in pairs { step = function() t:step { x = x, y = y } end,
      fit = function() t:fit(set, { verbose = 0 }) end, find_lr = function() t:find_lr(set) end,
      update = function() t:update() end, load = function() t:load(path) end } do
      _, err = pcall(t.averaged, t, f)
      assert.is_truthy(tostring(err):find("trainer:" .. what .. ": the parameters are averages", 1,
        true), what)
      assert.is_true(weight(m):equal(before))
    end
    os.remove(path)
    t:step { x = x, y = y } -- and behind it all is allowed
    t = trained(optim.SGD { lr = 0.01 }, 1)
    _, err = pcall(t.averaged, t, print)
    assert.is_truthy(tostring(err):find("average = 0.999", 1, true))
  end)

  it("is in checkpoints: a run that goes on has the bits of one that did not stop", function()
    local path = os.tmpname() .. ".safetensors"
    local straight, m = trained(optim.Adam { lr = 0.01, average = 0.9 }, 6)
    local t, other = trained(optim.Adam { lr = 0.01, average = 0.9 }, 3)
    assert(t:save(path))
    local again, third = trained(optim.Adam { lr = 0.01, average = 0.9 }, 0)
    assert(again:load(path))
    os.remove(path)
    for _ = 1, 3 do again:step { x = x, y = y } end
    assert.is_true(weight(m):equal(weight(third)))
    assert.is_true(straight:averaged(weight, m):equal(again:averaged(weight, third)))
    assert.is_false(weight(other):equal(weight(third)))
  end)
end)

describe("optimizers of layer-wise rates", function()
  it("give the numbers of their papers", function()
    local _, m = trained(optim.Lamb { lr = 0.01, weight_decay = 0.1 }, 5)
    near({ { 0.0879119, -0.21172274, 0.28768113 }, { 0.03791331, 0.40261789, -0.08799557 } },
      weight(m))
    _, m = trained(optim.Lars { lr = 0.1, eta = 0.1, weight_decay = 0.01 }, 5)
    near({ { 0.06653637, -0.24070434, 0.25192942 }, { 0.03915704, 0.40014435, -0.08873496 } },
      weight(m))
  end)

  it("train parameters of every dtype", function()
    for _, o in ipairs { optim.Lamb { lr = 0.01, weight_decay = 0.1 },
      optim.Lars { lr = 0.1, eta = 0.1, weight_decay = 0.01 } } do
      local _, want = trained(o, 5)
      for dtype, off in pairs { f64 = 1e-6, f16 = 5e-3, bf16 = 2e-2 } do
        local _, m = trained(o, 0)
        m:to(dtype)
        local t <close> = neap.trainer { model = m, loss = nn.MseLoss(), optimizer = o }
        for _ = 1, 5 do t:step { x = x:to(dtype), y = y:to(dtype) } end
        assert.are.equal(dtype, m.weight.data.dtype)
        assert.is_true(weight(m):to "f32":close(weight(want), { atol = off, rtol = 0 }), dtype)
      end
    end
  end)

  it("leave a parameter of zeros to the plain rate", function()
    for _, o in ipairs { optim.Lamb { lr = 0.01 }, optim.Lars { lr = 0.01 } } do
      local m = nn.Linear { 3, 2 }
      m(x)
      for _, p in m:parameters() do p.data:zero_() end
      local t = neap.trainer { model = m, loss = nn.MseLoss(), optimizer = o }
      for _ = 1, 2 do t:step { x = x, y = y } end
      assert.is_true(weight(m):abs():max():item() > 0)
      assert.are.equal(0, weight(m):stats().nan)
    end
  end)
end)

describe("optim.plateau", function()
  it("is PyTorch's ReduceLROnPlateau", function()
    local s = optim.plateau { factor = 0.5, patience = 2, cooldown = 1, least = 0.1 }
    local losses = { 1, 0.9, 0.9, 0.91, 0.9, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8,
      0.8 }
    local want = { 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125,
      0.125, 0.1 }
    local records = {}
    for i, loss in ipairs(losses) do
      records[i] = { loss = 5, valid = { loss = loss } }
      assert.are.equal(want[i], s(i, 1, records))
    end
  end)

  it("follows the validation of a fit, after a warm-up and in a run that goes on", function()
    local set = neap.data.tensors { x = x, y = y, batch = 3 }
    local rates = {}
    local function fit(epochs, path, load)
      local m = nn.Linear { 3, 2 }
      m:seed(1)
      local t = neap.trainer { model = m, loss = nn.MseLoss(), optimizer = optim.SGD { lr = 0.5 },
        nan = "off", schedule = optim.warmup { 2,
          next = optim.plateau { patience = 0, factor = 0.5 } } }
      if load then assert(t:load(path)) end
      t:fit(set, { epochs = epochs, valid = set, verbose = 0, on_step = function(s)
        rates[#rates + 1] = s.lr
      end })
      if path and not load then assert(t:save(path)) end
      return weight(m)
    end
    local straight, path = fit(6), os.tmpname() .. ".safetensors"
    local all = table.concat(rates, " ")
    rates = {}
    fit(3, path)
    local again = fit(3, path, true)
    os.remove(path)
    assert.are.equal(all, table.concat(rates, " "))
    assert.is_true(again:equal(straight))
    assert.is_true(rates[#rates] < 0.5)
  end)

  it("stands among others in a sequence", function()
    local s = optim.sequence { { optim.linear { 3, from = 0.1 }, optim.step { 2, factor = 0.5 } },
      at = { 3 } }
    for i, want in ipairs { 0.1, 0.4, 0.7, 1, 1, 0.5, 0.5, 0.25 } do
      assert.is_true(math.abs(s(i, 1) - want) < 1e-12)
    end
  end)
end)

describe("dropout", function()
  it("of channels, examples and SELU's kind keeps mean and variance as it says", function()
    neap.seed(3)
    local v = neap.randn(200, 20, 9)
    for _, name in ipairs { "Dropout1d", "Dropout2d", "Dropout3d", "DropPath" } do
      local layer = nn[name](0.5)
      local w = layer(v)
      local zero = w:eq(0):to "f32"
      local share = zero:mean():item()
      assert.is_true(math.abs(share - 0.5) < 0.12, name)
      -- the whole channel, or example, or nothing of it
      local whole = zero:mean { axes = name == "DropPath" and { 2, 3 } or { 3 } }
      assert.is_true((whole * (1 - whole)):max():item() == 0, name)
      assert.is_true(w:equal(neap.where(w:eq(0), 0, v * 2)), name)
      layer:eval()
      assert.is_true(layer(v):equal(v))
    end
    for _, name in ipairs { "AlphaDropout", "FeatureAlphaDropout" } do
      local w = nn[name](0.2)(v)
      assert.is_true(math.abs(w:mean():item()) < 0.05 and math.abs(w:std():item() - 1) < 0.05, name)
    end
  end)
end)
