--- neap.quantize: a model in bytes gives nearly what the model gives, plans as products of bytes,
-- and is saved, exported and evaluated as models are.
local neap = require "neap"
local nn = neap.nn

--- Convolutions with norms, a residual with a shortcut, pools and a linear layer.
local function model_of()
  neap.seed(3)
  local m = nn.Sequential { input = { 3, 16, 16 },
    nn.Conv2d { 3, 16, kernel = 3, pad = 1 }, nn.BatchNorm2d { 16 }, nn.ReLU(),
    nn.MaxPool2d { 2 },
    nn.Residual { nn.Conv2d { 16, 32, kernel = 3, pad = 1 }, nn.BatchNorm2d { 32 },
      shortcut = nn.Conv2d { 16, 32, kernel = 1 } },
    nn.ReLU6(), nn.Flatten(), nn.Linear { 2048, 10 },
  }
  m(neap.randn(8, 3, 16, 16)) -- statistics that are not those of nothing
  return m:eval()
end

local function count_of(plan)
  local count = {}
  for _, row in ipairs(plan:ops()) do count[row.type] = (count[row.type] or 0) + 1 end
  return count
end

local function distance(a, b)
  return ((a - b):square():sum() / b:square():sum()):sqrt():item()
end

describe("neap.quantize", function()
  local model, x = model_of(), neap.randn(32, 3, 16, 16)
  local want = model(x)

  for _, o in ipairs { {}, { method = "percentile", percent = 99.99 } } do
    it("gives a model of bytes, " .. (o.method or "minmax"), function()
      local q = neap.quantize(model, x, o)
      assert.is_true(distance(q(x), want) < 0.03)
      assert.are.same(want.shape, q(x).shape)
      local plan = q:plan { batch = 7 }
      local count = count_of(plan)
      assert.are.equal(3, count.FusedQLinearConv)
      assert.are.equal(1, count.FusedQLinearFC)
      assert.is_nil(count.Conv or count.FusedConv or count.FC or count.BatchNorm or count.Add)
      assert.is_true(plan.arena_bytes < (model:plan { batch = 7 }).arena_bytes)
      assert.is_true(plan:verify())
    end)
  end

  it("plans bytes before every activation, and less memory than real numbers", function()
    for _, name in ipairs { "ReLU", "GELU", "SiLU", "Tanh", "Sigmoid" } do
      local m = nn.Sequential { input = { 256 }, nn.Linear { 256, 256 }, nn[name](),
        nn.Linear { 256, 10 } }:eval()
      local pictures = nn.Sequential { input = { 16, 8, 8 },
        nn.Conv2d { 16, 32, kernel = 3, pad = 1 }, nn[name](), nn.MaxPool2d { 2 },
        nn.Conv2d { 32, 16, kernel = 3 }, nn[name]() }:eval()
      for product, case in pairs { FusedQLinearFC = { m, neap.randn(32, 256) },
        FusedQLinearConv = { pictures, neap.randn(8, 16, 8, 8) } } do
        local q = neap.quantize(case[1], case[2])
        local plan = q:plan { batch = 1 }
        local count = count_of(plan)
        assert.are.equal(2, count[product], name)
        assert.is_nil(count.Conv or count.FusedConv or count.FC or count.FusedFC, name)
        assert.is_true(plan.total_bytes < 0.6 * (case[1]:plan { batch = 1 }).total_bytes, name)
        assert.is_true(distance(q(case[2]), case[1](case[2])) < 0.05, name)
      end
    end
  end)

  it("leaves the model, and what is skipped, in real numbers", function()
    local before = model(x)
    for _, glob in ipairs { "linear1", "linea?1", "*1.weight" } do
      local q = neap.quantize(model, x, { skip = { glob } })
      local count = count_of(q:plan { batch = 2 })
      assert.are.equal(1, (count.FC or 0) + (count.FusedFC or 0), glob)
    end
    assert.is_true(model(x):equal(before))
  end)

  it("is saved, exported and read again, to the same numbers", function()
    local q, path = neap.quantize(model, x), os.tmpname()
    local saved = path .. ".q.safetensors"
    local y = q(x)
    assert(q:save(saved))
    local again = neap.quantize(model, x * 0.5)
    assert.is_false(again(x):equal(y))
    assert(again:load(saved))
    assert.is_true(again(x):equal(y))
    os.remove(path)
    os.remove(saved)
    for _, ending in ipairs { ".safetensors", ".onnx" } do
      assert(neap.export(q, path .. ending, { batch = 32 }))
      local f = assert(neap.import(path .. ending))
      local got = f(x)
      if type(got) == "table" then got = select(2, next(got)) end
      assert.is_true(got:close(y, { rtol = 1e-5 }))
      os.remove(path .. ending)
    end
  end)

  --- The scale of a model's input.
  local function input_scale(q)
    for name, t in pairs(q:state_dict()) do
      if name:match "^x.*%.scale$" or name:match "^input.*%.scale$" then return t:item() end
    end
    error "no scale of the input"
  end

  it("keeps means in bytes, with a scale of their own", function()
    neap.seed(8)
    local m = nn.Sequential { input = { 3, 16, 16 },
      nn.Conv2d { 3, 20, kernel = 3, pad = 1 }, nn.ReLU(),
      nn.AvgPool2d { 3, stride = 2, pad = 1 }, nn.Conv2d { 20, 24, kernel = 3 },
      nn.Lambda(function(v) return v:global_average_pool() end), nn.Flatten(),
      nn.Linear { 24, 10 } }:eval()
    local q = neap.quantize(m, x)
    local count = count_of(q:plan { batch = 4 })
    assert.are.same({ 1, 1, 2, 1 }, { count.QLinearAveragePool, count.QLinearGlobalAveragePool,
      count.FusedQLinearConv, count.QuantizeLinear })
    assert.are.equal(3, count.DequantizeLinear) -- of biases, once
    assert.is_nil(count.AveragePool or count.GlobalAveragePool)
    assert.is_true(distance(q(x), m(x)) < 0.03, distance(q(x), m(x)))
    -- what the engine makes of it is what the net says, op by op
    local net = q:net { batch = 32, train = false }
    local ws = q:workspace()
    local got = ws:run(net, { x = x })
    local want = ws:run(net, { x = x }, { fuse = false })
    for name, y in pairs(want) do assert.is_true(distance(got[name], y) < 0.01, name) end
  end)

  it("keeps what branches join, and sums of what is no product, in bytes", function()
    neap.seed(4)
    local function conv(n_in, n_out, kernel)
      return nn.Sequential { nn.Conv2d { n_in, n_out, kernel = kernel, pad = kernel // 2 },
        nn.BatchNorm2d { n_out }, nn.ReLU() }
    end
    local branches = nn.Sequential { input = { 3, 16, 16 }, conv(3, 16, 3),
      nn.Concat { conv(16, 8, 1), nn.Sequential { conv(16, 8, 1), conv(8, 16, 3) },
        nn.Sequential { nn.AvgPool2d { 3, stride = 1, pad = 1 }, conv(16, 8, 1) },
        nn.MaxPool2d { 3, stride = 1, pad = 1 } },
      nn.Concat { conv(48, 16, 1), conv(48, 16, 3) }, nn.Flatten(), nn.Linear { 8192, 10 } }
    local Sums = nn.module { "Sums",
      init = function(self)
        self.a, self.b, self.c = conv(3, 8, 3), conv(3, 8, 3), conv(8, 8, 1)
        self.out = nn.Linear { 2048, 4 }
      end,
      -- One that joins what another has joined already, and what goes below 0.
      forward = function(self, v)
        local a, b = self.a(v), self.b(v)
        local sum = (a + b):max_pool { kernel = { 3 }, stride = { 1 }, pad = { 1 } } + a
        local more = neap.concat({ self.c(sum), sum }, { axis = 2 })
        return self.out((self.c(more:narrow(2, 1, 8)) + b):flatten { axis = 2 })
      end }
    local joins = nn.module { "Joins",
      init = function(self)
        self.a, self.b = nn.Conv2d { 3, 8, kernel = 3 }, conv(3, 8, 3)
        self.c, self.d = nn.Conv2d { 16, 8, kernel = 1 }, nn.Conv2d { 16, 8, kernel = 1 }
        self.b1 = nn.Conv2d { 3, 8, kernel = 3 }
      end,
      forward = function(self, v)
        local a, b = self.a(v), self.b1(v):relu()
        local one = neap.concat({ a, b }, { axis = 2 })
        local two = neap.concat({ b, a * 1 }, { axis = 2 })
        local three = neap.concat({ b, self.c(one) }, { axis = 2 })
        return self.c(one), self.d(two), self.d(three)
      end }
    for name, case in pairs { branches = { branches, { Concat = 2, QLinearAveragePool = 1 } },
      sums = { Sums { input = { 3, 16, 16 } }, { QLinearAdd = 3, Concat = 1 } },
      joins = { joins { input = { 3, 16, 16 } }, { Concat = 3, QLinearRescale = 1 } } } do
      local m, pictures = case[1], neap.randn(8, 3, 16, 16)
      m(pictures)
      m:eval()
      local q = neap.quantize(m, pictures)
      local count = count_of(q:plan { batch = 4 })
      for op, n in pairs(case[2]) do assert.are.equal(n, count[op] or 0, name .. " " .. op) end
      assert.is_nil(count.FusedConv or count.Add, name)
      local want, got = { m(pictures) }, { q(pictures) }
      for i, y in ipairs(want) do assert.is_true(distance(got[i], y) < 0.05, name) end
      assert.is_true(q:plan({ batch = 4 }):verify())
    end
  end)

  it("takes ranges from as many batches, and as much of their numbers, as it is told", function()
    local m = nn.Sequential { input = { 4 }, nn.Linear { 4, 3 } }
    local numbers = neap.arange(0, 800):reshape(200, 4) / 799 -- 0 to 1
    local set = neap.data.tensors { x = numbers, batch = 100 }
    local function scale(o) return input_scale(neap.quantize(m, set, o)) * 127 end
    assert.is_true(math.abs(scale {} - 1) < 1e-5)
    assert.is_true(math.abs(scale { batches = 1 } - 399 / 799) < 1e-5)
    for _, percent in ipairs { 25, 75, 100 } do
      local got = scale { method = "percentile", percent = percent }
      assert.is_true(math.abs(got - percent / 100) < 2e-3, percent .. ": " .. got)
    end
  end)

  it("keeps rows of zeros, and biases of more steps than 32 bits have", function()
    local m = nn.Sequential { input = { 4 }, nn.Linear { 4, 3 } }
    m:param("linear1.weight").data:copy_(neap.tensor { { 0, 0, 0, 0 }, { 1e-6, 0, 1e-6, 0 },
      { 1, -1, 2, 0 } })
    m:param("linear1.bias").data:copy_(neap.tensor { 3, 1e6, -2 })
    local rows = neap.rand(9, 4)
    assert.is_true(neap.quantize(m, rows)(rows):close(m(rows), { rtol = 0.01, atol = 0.03 }))
  end)

  it("folds a norm with its eps, and none into what others read, too", function()
    local Twice = nn.module { "Twice",
      init = function(self)
        self.linear, self.norm = nn.Linear { 4, 6 }, nn.BatchNorm1d { 6, eps = 0.5 }
      end,
      forward = function(self, h)
        h = self.linear(h)
        return self.norm(h) + (self.doubles and h * 3 or 0)
      end }
    for _, doubles in ipairs { true, false } do
      local m = Twice()
      m.doubles = doubles
      local rows = neap.randn(64, 4)
      m(rows * 3)
      m:eval()
      assert.is_true(distance(neap.quantize(m, rows)(rows), m(rows)) < 0.03)
    end
  end)

  it("evaluates by a trainer", function()
    local set = neap.data.tensors { x = x, y = want:arg_max { axis = 2 }, batch = 8 }
    local t <close> = neap.trainer { model = neap.quantize(model, set), metrics = { "accuracy" },
      loss = nn.CrossEntropyLoss(), optimizer = neap.optim.SGD { lr = 0.1 } }
    assert.is_true(t:evaluate(set).accuracy > 0.9)
  end)

  --- A model of the layers and the forward, with norms whose statistics are not those of nothing.
  local function made(init, forward, ...)
    neap.seed(11)
    local m = nn.module { "Made", init = init, forward = forward }()
    m(...)
    local new = {}
    for name, t in pairs(m:state_dict()) do
      new[name] = name:match "^b2.*weight$" and neap.rand(table.unpack(t.shape)) * 5 + 0.2 or t
    end
    m:load_state_dict(new)
    return m:eval()
  end

  local function refused(words, ...)
    local ok, err = pcall(neap.quantize, ...)
    assert.is_false(ok)
    for _, text in ipairs(type(words) == "table" and words or { words }) do
      assert.is_truthy(tostring(err):find(text, 1, true), tostring(err))
    end
  end

  it("folds into each call of a layer its own norm", function()
    local pictures = neap.randn(16, 4, 6, 6)
    local function init(s)
      s.c = nn.Conv2d { 4, 4, kernel = 3, pad = 1 }
      s.b1, s.b2 = nn.BatchNorm2d { 4 }, nn.BatchNorm2d { 4 }
    end
    for _, forward in ipairs {
      function(s, v) return s.b2(s.c(s.b1(s.c(v)):relu())) end,
      function(s, v) return s.b2(s.c(s.c(v):relu())) end,
    } do
      local m = made(init, forward, pictures)
      assert.is_true(distance(neap.quantize(m, pictures)(pictures), m(pictures)) < 0.03)
    end
  end)

  it("keeps a weight by rows, and as it is for who reads it so", function()
    local m = made(function(s) s.l = nn.Linear { 6, 6 } end, function(s, v)
      local w = s.l:forward(v * 0.001)
      return s.l(v * 1000) + w + v:matmul(s.l.weight)
    end, neap.randn(16, 6))
    local v = neap.randn(16, 6)
    assert.is_true(distance(neap.quantize(m, v)(v), m(v)) < 0.03)
  end)

  it("folds a norm where its channels are the product's outputs", function()
    for _, size in ipairs { 4, 5 } do
      local rows = neap.randn(16, 4, 6)
      local m = made(function(s)
        s.l, s.b2 = nn.Linear { 6, size }, nn.BatchNorm1d { 4 }
      end, function(s, v) return s.b2(s.l(v)):relu() end, rows)
      assert.is_true(distance(neap.quantize(m, rows)(rows), m(rows)) < 0.03)
    end
  end)

  it("refuses what follows from the batch, but as a dimension", function()
    local rows = neap.randn(16, 6)
    local function init(s) s.l = nn.Linear { 6, 6 } end
    for words, forward in pairs {
      ["attribute \"value\""] = function(s, v) return s.l(v) / v.shape[1] end,
      ["attribute \"ends\""] = function(s, v) return s.l(v[{ { 1, v.shape[1] // 2 } }]) end,
      ["step of the forward"] = function(s, v)
        return v.shape[1] > 8 and s.l(v) * 2 or s.l(v)
      end,
      ["input 2"] = function(s, v)
        return s.l(v) + neap.arange(v.shape[1]):to "f32":reshape(-1, 1)
      end,
    } do
      refused({ words .. " depends on the batch", "(quantize_spec.lua:" },
        made(init, forward, rows), rows)
    end
    -- As a dimension it may: lists, an example's parts as rows, and a weight in each example.
    local m = made(function(s) s.l, s.d = nn.Linear { 3, 6 }, nn.Linear { 6, 6 } end,
      function(s, v)
        local n = v.shape[1]
        local y = s.l(v:reshape(2 * n, 3)):reshape(n, 12)[{ {}, { 1, 6 } }]
        return s.d(y) - y[{ { n, n } }] + s.d.bias:reshape(1, 6):expand { shape = { n, 6 } }
      end, rows)
    local q = neap.quantize(m, rows)
    for _, v in ipairs { rows, neap.randn(3, 6), neap.randn(70, 6) } do
      assert.is_true(distance(q(v), m(v)) < 0.03)
    end
  end)

  it("gives all that the model gives", function()
    local rows = neap.randn(16, 6)
    local m = made(function(s) s.l, s.d = nn.Linear { 6, 6 }, nn.Linear { 6, 3 } end,
      function(s, v)
        local y = s.l(v)
        return s.d(y:relu()), y, y
      end, rows)
    local q, want = neap.quantize(m, rows), table.pack(m(rows))
    local got = table.pack(q(rows))
    assert.are.equal(3, got.n)
    for k = 1, 3 do assert.is_true(distance(got[k], want[k]) < 0.03) end
    assert.are.equal(2, #q:net { batch = 2 }:outputs())
  end)

  it("takes several inputs by their names, and evaluates by the same data", function()
    neap.seed(2)
    local init = function(s)
      s.left, s.right, s.out = nn.Linear { 6, 16 }, nn.Linear { 4, 16 }, nn.Linear { 16, 10 }
    end
    local forward = function(s, z, a) return s.out((s.left(z) * s.right(a)):relu()) end
    local z, a = neap.randn(40, 6), neap.randn(40, 4)
    for _, is_met in ipairs { false, true } do
      local m = nn.module { "Pair", init = init, forward = forward }()
      if is_met then m(z, a) end
      for _, set in ipairs {
        neap.data.tensors { z = z, a = a, y = neap.zeros { 40, dtype = "i64" }, batch = 20 },
        neap.data.tensors { x1 = z, x2 = a, y = neap.zeros { 40, dtype = "i64" }, batch = 20 },
      } do
        local q = neap.quantize(m, set)
        assert.is_true(distance(q(z, a), m:eval()(z, a)) < 0.03)
        local t <close> = neap.trainer { model = q, loss = nn.CrossEntropyLoss(),
          optimizer = neap.optim.SGD { lr = 0.1 } }
        assert.is_true(t:evaluate(set).loss > 0)
        local ok, err = pcall(q, z)
        assert.is_false(ok)
        assert.is_truthy(tostring(err):find("number 2", 1, true), tostring(err))
      end
      refused("nothing reads its field \"x\"", m, neap.data.tensors { x = z, x1 = a, batch = 20 })
    end
  end)

  it("refuses data that no range follows from, by field and row", function()
    local l, list = nn.Linear { 4, 3 }, neap.randn(64, 4):totable()
    for _, bad in ipairs { 0 / 0, 1 / 0, -1 / 0 } do
      list[3][2] = bad
      for _, method in ipairs { "minmax", "percentile" } do
        refused({ "field \"x\" has a NaN or an infinity in row 3 of batch 1" }, l,
          neap.tensor(list), { method = method })
      end
    end
    local roots = made(function(s) s.l, s.d = nn.Linear { 4, 4 }, nn.Linear { 4, 3 } end,
      function(s, v) return s.d((s.l(v) - 1e6):sqrt()) end, neap.randn(8, 4))
    refused({ "what Sqrt \"", "(quantize_spec.lua:", "row 1 of batch 1" }, roots, neap.randn(8, 4))
    refused("no rows", l, neap.rand(0, 4))
  end)

  it("keeps a norm's Relu, and a norm by the batch's own statistics", function()
    local rows = neap.randn(16, 6)
    for _, attrs in ipairs { { relu = true }, { training = true } } do
      local m = made(function(s)
        s.l = nn.Linear { 6, 6 }
        for i, name in ipairs { "gamma", "beta", "mean", "var" } do s:param(name, { 6 }, i / 4) end
      end, function(s, v)
        local y = s.l(v):batch_norm(s.gamma, s.beta, s.mean, s.var, attrs)
        return y
      end, rows)
      assert.is_true(distance(neap.quantize(m, rows)(rows), m(rows)) < 0.03)
    end
  end)

  it("folds a norm into a product of all dimensions behind the first", function()
    local rows = neap.randn(16, 4, 6)
    local m = made(function(s)
      s.l, s.n = nn.Linear { 24, 4, bias = false }, nn.BatchNorm1d { 4 }
    end, function(s, v) return s.n(v:fc(s.l.weight, { axis = 2 })) end, rows)
    local q = neap.quantize(m, rows)
    assert.is_true(distance(q(rows), m(rows)) < 0.03)
    assert.are.equal(1, count_of(q:plan { batch = 4 }).FusedQLinearFC)
  end)

  it("leaves a product whose bias a run makes", function()
    local rows = neap.randn(16, 6)
    local m = made(function(s)
      s.l, s.d = nn.Linear { 6, 6, bias = false }, nn.Linear { 6, 6 }
    end, function(s, v)
      return s.d(v:fc(s.l.weight, v:mean { axes = { 1 } } * 3 + 5))
    end, rows)
    local q = neap.quantize(m, rows)
    assert.is_true(distance(q(rows), m(rows)) < 0.03)
    assert.are.equal(1, count_of(q:plan { batch = 4 }).FC)
  end)

  it("keeps sums of products, and what is joined again, in bytes of one scale", function()
    local pictures = neap.randn(8, 4, 6, 6)
    local function init(s)
      local function conv(n_in) return nn.Conv2d { n_in, 8, kernel = 3, pad = 1 } end
      s.a, s.b, s.shortcut, s.c, s.d, s.e = conv(4), conv(8), conv(4), conv(8), conv(16), conv(24)
    end
    local function sum_of(s, v) return s.b(s.a(v):relu()) + s.shortcut(v) end
    for _, case in ipairs {
      -- Both sides are bytes where the sum is, by its Relu; what others read is not.
      { function(s, v) return s.c(sum_of(s, v):relu()) end, "QuantizeLinear", 1 },
      { function(s, v)
        local sum = sum_of(s, v)
        return s.c(sum:relu()), sum
      end, "DequantizeLinear", 4 },
      -- Of parts that are joined, and the whole again, all have the last one's scale.
      { function(s, v)
        local a = s.a(v):relu()
        local one = neap.concat({ a, s.b(a):relu() }, { axis = 2 })
        return s.e(neap.concat({ one, s.d(one):relu() }, { axis = 2 }))
      end, "QLinearRescale", nil },
    } do
      local m = made(init, case[1], pictures)
      local q = neap.quantize(m, pictures)
      assert.is_true(distance(q(pictures), m(pictures)) < 0.03)
      assert.are.equal(case[3], count_of(q:plan { batch = 4 })[case[2]], case[2])
    end
  end)

  it("says what it does not take", function()
    refused({ "skip \"nosuch*\"", "linear1.weight" }, model, x, { skip = { "nosuch*" } })
    refused("method = \"percentile\"", model, x, { percent = 50 })
    refused("takes a model, got a string", "lenet", x)
    refused("takes a data set or a tensor", model, 3)
    refused("is quantised or sparse already", neap.quantize(model, x), x)
    for _, dtype in ipairs { "f64", "bf16" } do
      local other = nn.Linear { 4, 2 }
      other(neap.ones(1, 4))
      other:to(dtype)
      refused({ '"weight" is ' .. dtype, 'model:to "f32"' }, other,
        neap.ones { 2, 4, dtype = dtype })
    end
    refused("did you mean \"method\"", model, x, { metod = "minmax" })
    refused("no Linear or Conv", nn.Sequential { nn.ReLU(), input = { 4 } }, neap.rand(2, 4))
  end)
end)
