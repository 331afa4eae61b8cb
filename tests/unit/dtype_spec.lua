-- m:to(dtype): parameters in another dtype, in place; what fails leaves the model as it was.
local neap = require "neap"
local support = require "support"
local nn, optim, raises = neap.nn, neap.optim, support.raises

local function model_of()
  neap.seed(1)
  local m = nn.Sequential { input = { 1, 12, 12 }, nn.Conv2d { 1, 8, kernel = 3 },
    nn.BatchNorm2d { 8 }, nn.ReLU(), nn.MaxPool2d { 2 }, nn.Flatten(), nn.Linear { 200, 10 } }
  m(neap.randn(6, 1, 12, 12)) -- statistics that are not those of nothing
  return m:eval()
end

--- The bits of all parameters and statistics, by name.
local function bits(m)
  local out = {}
  for name, t in pairs(m:state_dict()) do out[name] = t.dtype .. " " .. t:hash() end
  return out
end

describe("m:to", function()
  local x = neap.randn(6, 1, 12, 12)

  it("makes parameters and results of another dtype, statistics f32 at the least", function()
    for dtype, off in pairs { f64 = 1e-5, bf16 = 0.1, f16 = 0.02 } do
      local m = model_of()
      local want, wide = m(x), (m:plan { batch = 4 }).regions.parameters
      local weight = m:param "linear1.weight"
      assert.are.equal(m, m:to(dtype))
      assert.are.same({ dtype, dtype }, { weight.dtype, weight.data.dtype })
      for name, t in pairs(m:state_dict()) do
        local is_statistic = name:find "running" ~= nil
        assert.are.equal(is_statistic and dtype ~= "f64" and "f32" or dtype, t.dtype, name)
      end
      local y = m(x:to(dtype))
      assert.are.equal(dtype, y.dtype)
      assert.is_true((y:to "f32" - want):abs():max():item() < off, dtype)
      local narrow = (m:plan { batch = 4 }).regions.parameters
      local share = narrow / wide
      assert.is_true(dtype == "f64" and share > 1.9 or dtype ~= "f64" and share < 0.6, dtype)
    end
  end)

  it("goes to a wider dtype and back to the same bits, and rounds to a narrower one", function()
    local m = model_of()
    local before, numbers = bits(m), m:state_dict()
    assert.are.same(before, bits(m:to("f64"):to "f32"))
    m:to "bf16"
    for name, t in pairs(m:state_dict()) do
      assert.is_true(t:equal(numbers[name]:to(t.dtype)), name)
    end
  end)

  it("trains in it; what an optimizer kept begins anew", function()
    for _, dtype in ipairs { "f64", "bf16", "f16" } do
      local m = model_of():train()
      local o = optim.SGD { lr = 0.05, momentum = 0.9 }
      local t <close> = neap.trainer { model = m, optimizer = o, loss = nn.CrossEntropyLoss() }
      local y = neap.arange(0, 6):to "i64"
      t:step { x = x, y = y }
      m:to(dtype)
      local more <close> = neap.trainer { model = m, optimizer = o, loss = nn.CrossEntropyLoss() }
      local first
      for _ = 1, 12 do
        local row = more:step { x = x:to(dtype), y = y }
        first = first or row.loss
      end
      assert.is_true(more:step({ x = x:to(dtype), y = y }).loss < 0.5 * first, dtype)
      assert.are.equal(dtype, m:param("conv1.weight").data.dtype)
      assert.are.equal(dtype, more.ws:view("conv1.weight.momentum").dtype)
    end
  end)

  it("is saved and read again; a file of another dtype is rounded to the model's", function()
    local m, path = model_of():to "bf16", os.tmpname() .. ".safetensors"
    local kept = bits(m)
    assert(m:save(path))
    assert.are.same(kept, bits(assert(model_of():to("bf16"):load(path))))
    local wide = assert(model_of():load(path))
    assert.are.equal("f32", wide:param("conv1.weight").dtype)
    os.remove(path)
  end)

  it("leaves integers, takes tied parameters along, and a part of a model alone", function()
    local gpt = neap.zoo.gpt2 { layers = 1, width = 32, heads = 2, length = 8, vocabulary = 20 }
    local ids = neap.zeros { 2, 8, dtype = "i64" }
    local want = gpt:eval()(ids)
    gpt:to "bf16"
    assert.are.equal("bf16", gpt:param("head.weight").dtype)
    assert.is_true(gpt:param("head.weight").data:equal(gpt:param("embedding1.weight").data))
    local got = gpt(ids)
    assert.are.equal("bf16", got.dtype)
    assert.is_true((got:to "f32" - want):abs():max():item() < 0.05)

    local Halves = nn.module { "Halves",
      init = function(self) self.a, self.b = nn.Linear { 4, 4 }, nn.Linear { 4, 2 } end,
      forward = function(self, v) return self.b(self.a(v):to "f64") end }
    local m = Halves {}
    m.b:to "f64"
    assert.are.equal("f32", m:param("a.weight").dtype)
    assert.are.equal("f64", m(neap.ones(3, 4)).dtype)
  end)

  it("converts what is not made yet, and a mask with its parameter", function()
    local m = nn.Sequential { input = { 8 }, nn.Linear { 8, 16 }, nn.Linear { 16, 4 } }
    m:to "f64"
    assert.are.equal("f64", m:param("linear1.weight").data.dtype)
    assert.is_true(m:param("linear1.weight").data:abs():max():item() > 0)
    neap.prune(m, { amount = 0.5 })
    local zero = neap.prune(m, { amount = 0.5, method = "block", block = { 2, 2 } }).zero
    assert.is_true(zero >= 96 and zero < 192)
    m:to "bf16"
    assert.are.equal("bf16", m(neap.ones { 2, 8, dtype = "bf16" }).dtype)
  end)

  it("is not mixed precision, which has nothing to round then", function()
    local x, y = neap.ones { 2, 8 }, neap.zeros { 2, dtype = "i64" }
    for _, dtype in ipairs { "bf16", "f16" } do
      local m = nn.Sequential { input = { 8 }, nn.Linear { 8, 4, name = "a" } }
      m:to(dtype)
      local o = { model = m, optimizer = neap.optim.SGD { lr = 0.1 }, dtype = dtype }
      raises({ '"a.weight" is ' .. dtype .. " already", 'model:to "f32"' }, neap.trainer, o)
      o.dtype, o.memory = nil, { dtype = dtype }
      raises("is " .. dtype .. " already", neap.trainer, o)
      o.memory = nil
      local t <close> = neap.trainer(o)
      assert.is_number(t:step({ x = x:to(dtype), y = y }).loss)
    end
  end)

  it("refuses what is no dtype of parameters, and what the model can't be, which stays as it is",
    function()
      local m = model_of()
      local before = bits(m)
      raises({ "f32, f64, bf16 or f16", "i8", "neap.quantize" }, m.to, m, "i8")
      raises("got nothing", m.to, m)
      raises("got 5", m.to, m, 5)
      assert.are.same(before, bits(m))

      local Own = nn.module { "Own",
        init = function(self) self.a = nn.Linear { 4, 4 } end,
        forward = function(self, v) return self.a(v) + v.net:const(neap.ones(4)) end }
      local own = Own { input = { 4 } }
      local y, was = own(neap.ones(2, 4)), bits(own)
      raises({ 'm:to "f64"', "Add" }, own.to, own, "f64")
      assert.are.same(was, bits(own))
      assert.is_true(own(neap.ones(2, 4)):equal(y))
      assert.are.equal("f32", (own:net { batch = 2 }):blob("x").dtype)
    end)
end)
