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

  it("leaves the model, and what is skipped, in real numbers", function()
    local before = model(x)
    local q = neap.quantize(model, x, { skip = { "linear1" } })
    local count = count_of(q:plan { batch = 2 })
    assert.are.equal(1, (count.FC or 0) + (count.FusedFC or 0))
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

  it("evaluates by a trainer", function()
    local set = neap.data.tensors { x = x, y = want:arg_max { axis = 2 }, batch = 8 }
    local t <close> = neap.trainer { model = neap.quantize(model, set), metrics = { "accuracy" },
      loss = nn.CrossEntropyLoss(), optimizer = neap.optim.SGD { lr = 0.1 } }
    assert.is_true(t:evaluate(set).accuracy > 0.9)
  end)

  it("says what it does not take", function()
    local function refused(words, ...)
      local ok, err = pcall(neap.quantize, ...)
      assert.is_false(ok)
      assert.is_truthy(tostring(err):find(words, 1, true), tostring(err))
    end
    refused("takes a model, got a string", "lenet", x)
    refused("takes a data set or a tensor", model, 3)
    refused("did you mean \"method\"", model, x, { metod = "minmax" })
    refused("no Linear or Conv", nn.Sequential { nn.ReLU(), input = { 4 } }, neap.rand(2, 4))
  end)
end)
