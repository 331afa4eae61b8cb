--- neap.prune: what is masked is zero to every net and stays so in training; masks are saved.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local raises = require("support").raises

local function model_of()
  neap.seed(3)
  return nn.Sequential { input = { 2, 6, 6 }, nn.Conv2d { 2, 5, kernel = 3 }, nn.ReLU(),
    nn.Flatten(), nn.Linear { 80, 7 } }
end

local function zeros(t) return t:eq(neap.tensor(0.0)):to("f32"):sum():item() end

--- The effective weight of a layer.
local function weight(m, name)
  return m:param(name .. ".weight").data * m:param(name .. ".weight_mask").data
end

describe("neap.prune", function()
  it("refuses blocks of no size, or that nobody would look at", function()
    local m = neap.nn.Sequential { input = { 7 }, neap.nn.Linear { 7, 33 } }
    m(neap.zeros(1, 7))
    for _, block in ipairs { { 0, 4 }, { 4, 0 }, { -1, 2 }, { 1 << 40, 4 } } do
      raises("block expects an integer from 1 to 65536, or a list of 2", neap.prune, m,
        { amount = 0.5, method = "block", block = block })
    end
    raises('block is for method = "block"', neap.prune, m, { amount = 0.5, block = { 3, 7 } })
  end)

  it("takes one size for both sides of a block", function()
    local function mask(block)
      local m = model_of()
      m(neap.zeros(1, 2, 6, 6))
      neap.prune(m, { amount = 0.4, method = "block", block = block })
      return m:param("linear1.weight_mask").data
    end
    assert.is_true(mask(6):equal(mask { 6, 6 }))
  end)

  for _, optimizer in ipairs { optim.Adam { lr = 0.1 },
    optim.SGD { lr = 0.1, momentum = 0.9, weight_decay = 0.1 } } do
    it("masks weights that stay zero in training, with momentum from before, too", function()
      local m, x, y = model_of(), neap.randn(16, 2, 6, 6), neap.randn(16, 7)
      local t <close> = neap.trainer { model = m, loss = nn.MseLoss(), optimizer = optimizer }
      for _ = 1, 3 do t:step { x = x, y = y } end
      local most = math.huge
      for _, amount in ipairs { 0.5, 0.8 } do
        local r = neap.prune(m, { amount = amount })
        assert.is_true(math.abs(r.share - amount) < 1e-3)
        local before = m:param("linear1.weight_mask").data:clone()
        for _ = 1, 5 do most = t:step({ x = x, y = y }).loss end
        assert.is_true(m:param("linear1.weight_mask").data:equal(before))
        assert.are.equal(r.zero, neap.sparsity(m).zero)
      end
      -- The same by hand, from the weights and the masks.
      local h = neap.conv(x, weight(m, "conv1"), m:param("conv1.bias").data)
      local want = h:relu():flatten():matmul(weight(m, "linear1"):transpose(1, 2))
        + m:param("linear1.bias").data
      assert.is_true(m:eval()(x):close(want, { rtol = 1e-4, atol = 1e-4 }))
      assert.is_true(most < 2)
    end)
  end

  it("takes away what is masked again, and more", function()
    local m = model_of()
    neap.prune(m, { amount = 0.3 })
    local first = m:param("linear1.weight_mask").data:clone()
    neap.prune(m, { amount = 0.6 })
    local second = m:param("linear1.weight_mask").data
    assert.are.equal(0, (second * (neap.ones(7, 80) - first)):sum():item())
    assert.is_true(second:sum():item() < first:sum():item())
  end)

  it("brings nothing back, whatever is asked for later", function()
    local m = model_of()
    m(neap.zeros(1, 2, 6, 6))
    local first = neap.prune(m, { amount = 0.5 })
    local masks = m:param("linear1.weight_mask").data:clone()
    assert.are.equal(first.zero, neap.prune(m, { amount = 0 }).zero)
    assert.is_true(m:param("linear1.weight_mask").data:equal(masks))
    -- by blocks, after single weights
    neap.prune(m, { amount = 0.2, method = "block", block = { 4, 1 } })
    local both = m:param("linear1.weight_mask").data
    assert.is_true((both * masks):equal(both))
  end)

  it("counts a block's own weights alone, and takes the least of all, or of each layer", function()
    local m = nn.Sequential { input = { 6 }, nn.Linear { 6, 7 }, nn.Linear { 7, 6 } }
    -- The last row of blocks has one row of weights, which are the largest.
    local rows = {}
    for r = 1, 7 do rows[r] = r < 7 and { 1, 1, 1, 1, 1, 1 } or { 2, 2, 2, 2, 2, 2 } end
    m:param("linear1.weight").data:copy_(neap.tensor(rows))
    m:param("linear2.weight").data:copy_(neap.full { 6, 7, value = 1.5 })
    local whole = m:state_dict()["linear1.weight"]:clone()
    neap.prune(m, { amount = 0.5, method = "block", block = { 3, 3 }, layers = "linear1" })
    local mask = m:param("linear1.weight_mask").data
    assert.are.equal(6, mask[{ 7 }]:sum():item())
    assert.are.equal(6, mask:sum():item())
    assert.is_true(m:state_dict()["linear1.weight"]:equal(whole))
    -- 36 of 84 are gone; what happens to be zero is worth more than what is.
    m:param("linear2.weight").data[{ 1 }]:copy_(neap.zeros(7))
    neap.prune(m, { amount = 36 / 84 })
    assert.are.equal(42, m:param("linear2.weight_mask").data:sum():item())
    neap.prune(m, { amount = 43 / 84 })
    assert.are.equal(35, m:param("linear2.weight_mask").data:sum():item())
    assert.are.equal(6, m:param("linear1.weight_mask").data:sum():item())
    neap.seed(5)
    m:param("linear2.weight").data:copy_(neap.rand(6, 7) * 1e-3 + 1e-3)
    neap.prune(m, { amount = 0.5, scope = "layer" })
    assert.are.equal(21, m:param("linear2.weight_mask").data:sum():item())
    assert.are.equal(6, m:param("linear1.weight_mask").data:sum():item())
  end)

  it("masks whole blocks, of the layers that are meant", function()
    local m = model_of()
    local r = neap.prune(m, { amount = 0.5, method = "block", block = { 3, 4 },
      layers = "linear1", scope = "layer" })
    assert.are.equal(1, #r)
    assert.is_nil(m:state_dict()["conv1.weight_mask"])
    local mask = m:param("linear1.weight_mask").data
    for o = 1, 7, 3 do
      for i = 1, 80, 4 do
        local block = mask[{ { o, math.min(o + 2, 7) }, { i, i + 3 } }]
        assert.is_true(block:min():item() == block:max():item())
      end
    end
    assert.is_true(math.abs(zeros(mask) / 560 - 0.5) < 0.15)
  end)

  it("is saved with the model, and costs inference nothing", function()
    local m, path, x = model_of(), os.tmpname() .. ".safetensors", neap.randn(3, 2, 6, 6)
    neap.prune(m, { amount = 0.7 })
    local y = m:eval()(x)
    assert(m:save(path))
    local other = model_of()
    raises("it is not pruned", function() assert(other:load(path)) end)
    neap.prune(other, { amount = 0 })
    assert(other:load(path))
    assert.is_true(other:eval()(x):equal(y))
    for _, row in ipairs((m:plan { batch = 3 }):values()) do
      if row.blob:find "masked" then assert.are_not.equal("arena", row.region, row.blob) end
    end
    assert(neap.export(m, path, { batch = 3 }))
    assert.is_true(assert(neap.import(path))(x):close(y))
    os.remove(path)
  end)

  it("is quantised as it is", function()
    local m, x = model_of(), neap.randn(16, 2, 6, 6)
    neap.prune(m, { amount = 0.7 })
    local y = m:eval()(x)
    local q = neap.quantize(m, x)
    assert.is_true(((q(x) - y):square():sum() / y:square():sum()):item() < 1e-3)
    local share = zeros(q:param("linear1.weight.masked").data:to "f32") / 560
    assert.is_true(share > 0.5)
  end)

  it("leaves blocks that neap.sparse keeps alone, for few rows and for many", function()
    neap.seed(4)
    local m = nn.Sequential { input = { 40 }, nn.Linear { 40, 64 }, nn.ReLU(),
      nn.Linear { 64, 10 } }
    neap.prune(m, { amount = 0.8, method = "block", block = { 16, 1 }, layers = "linear1" })
    local s = neap.sparse(m:eval())
    local count = {}
    for _, row in ipairs((s:plan { batch = 2 }):ops()) do count[row.type] = true end
    assert.is_true(count.SparseFC and not count.SparseToDense)
    for _, rows in ipairs { 1, 3, 40 } do
      local x = neap.randn(rows, 40)
      assert.is_true(s(x):close(m(x), { rtol = 1e-4, atol = 1e-5 }))
    end
    assert.is_nil(s:state_dict()["linear1.weight"])
    assert.are.equal(32 * 16, s:param("linear1.weight.masked_values").data:n_element())
    count = {}
    for _, row in ipairs((neap.sparse(m, { least = 0.9 }):plan { batch = 2 }):ops()) do
      count[row.type] = true
    end
    assert.is_nil(count.SparseFC)
  end)

  it("reports the zeros that there are, by layer and in all", function()
    local m = model_of()
    neap.prune(m, { amount = 0.3 })
    local r, weights, zero = neap.sparsity(m), 0, 0
    for i = 1, #r do
      local layer = r[i].layer
      local masked = m:state_dict()[layer .. ".weight"] * m:state_dict()[layer .. ".weight_mask"]
      assert.are.equal(masked:n_element(), r[i].weights)
      assert.are.equal(zeros(masked), r[i].zero)
      assert.are.equal(r[i].zero / r[i].weights, r[i].share)
      weights, zero = weights + r[i].weights, zero + r[i].zero
    end
    assert.are.same({ weights, zero, zero / weights }, { r.weights, r.zero, r.share })
    assert.is_true(#r > 1 and zero > 0)
  end)

  it("keeps a layer that is called twice by what is folded into each call", function()
    neap.seed(6)
    local Twice = nn.module { "Twice", init = function(s)
      s.l, s.n = nn.Linear { 16, 16 }, nn.BatchNorm1d { 16 }
    end, forward = function(s, x) return s.n(s.l(s.l(x):relu())) end }
    local m, x = Twice(), neap.randn(32, 16)
    m(x * 3)
    m:eval()
    for _, least in ipairs { 0, 1 } do
      local s = neap.sparse(m, { least = least })
      assert.is_true(s(x):close(m(x), { rtol = 1e-4, atol = 1e-5 }))
    end
  end)

  it("counts a weight that two layers share once, and masks it for both", function()
    local m = nn.Sequential { input = { 6 }, nn.Linear { 6, 6 }, nn.ReLU(), nn.Linear { 6, 6 } }
    m:tie("linear2.weight", "linear1.weight")
    assert.are.equal(36, neap.sparsity(m).weights)
    local r = neap.prune(m, { amount = 0.5 })
    assert.are.same({ 1, 36, 18 }, { #r, r.weights, r.zero })
    local shared = weight(m, "linear2")
    local x = neap.randn(4, 6)
    local function linear(v, name)
      return v:matmul(shared:transpose(1, 2)) + m:param(name .. ".bias").data
    end
    assert.is_true(m:eval()(x):close(linear(linear(x, "linear1"):relu(), "linear2"),
      { rtol = 1e-4, atol = 1e-5 }))
  end)

  it("keeps the mask of a weight that another was to become: tied before, it is both's", function()
    local m = nn.Sequential { input = { 4 }, nn.Linear { 4, 4 }, nn.Linear { 4, 4 } }
    m(neap.rand(1, 4))
    neap.prune(m, { amount = 0.5 })
    raises("linear2.weight is pruned", m.tie, m, "linear1.weight", "linear2.weight")
    assert.equal(8, zeros(weight(m, "linear2")))
  end)

  it("leaves a layer dense whose features are several dimensions", function()
    neap.seed(5)
    local Wide = nn.module { "Wide", init = function(s) s.l = nn.Linear { 20, 32 } end,
      forward = function(s, x) return x:fc(s.l.weight, s.l.bias, { axis = 2 }) end }
    local m, x = Wide {}, neap.randn(3, 4, 5)
    m(x)
    neap.prune(m, { amount = 0.8, method = "block", block = { 16, 1 } })
    local sparse = neap.sparse(m:eval(), { least = 0.1 })
    for _, row in ipairs((sparse:plan { batch = 3 }):ops()) do
      assert.are_not.equal("SparseFC", row.type)
    end
    assert.is_true(sparse(x):close(m(x), { rtol = 1e-4, atol = 1e-5 }))
  end)

  it("says what it does not take, and changes nothing then", function()
    local m = model_of()
    local function refused(words, f, ...)
      local ok, err = pcall(f, ...)
      assert.is_false(ok)
      assert.is_truthy(tostring(err):find(words, 1, true), tostring(err))
    end
    refused("amount expects a number from 0 to 1", neap.prune, m, { amount = 2 })
    refused("takes a model, got a string", neap.prune, "m", { amount = 0.5 })
    refused("no Linear or Conv layer", neap.prune, m, { amount = 0.5, layers = "none" })
    refused("takes a model, got a number", neap.sparsity, 3)
    assert.is_nil(m:state_dict()["conv1.weight_mask"])
  end)
end)
