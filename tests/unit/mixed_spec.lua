-- Mixed precision, dtype = "bf16" or "f16": what shrinks and what stays f32, results beside f32's
-- within the rounding of halves, the same bits under every plan, and training that learns as it
-- does in f32. Processors without kernels for halves compute them in f32, which changes no test.
local netfile = require "neap.net.file"
local neap = require "neap"
local support = require "support"
local kit = require "train_kit"
local nn, optim = neap.nn, neap.optim
local raises = support.raises

local halves = { "bf16", "f16" }
local unit = { bf16 = 2 ^ -8, f16 = 2 ^ -11 }

local function plan_of(name, o)
  o.store = false
  return (netfile.plan(netfile.load(name), { train = true }, o))
end

--- dtype of each value of a plan by its name; the last one of a name.
local function dtypes_of(plan)
  local out = {}
  for _, v in ipairs(plan:values()) do out[v.blob] = v.dtype end
  return out
end

describe("the arena in bf16", function()
  for _, name in ipairs { "resnet50:16", "gpt:8" } do
    it("is at most 55 % of that in f32: " .. name, function()
      local f32, bf16 = plan_of(name, {}), plan_of(name, { dtype = "bf16" })
      local share = bf16.arena_bytes / f32.arena_bytes
      assert.is_true(share <= 0.55, ("%.1f %%"):format(100 * share))
      assert.is_true(bf16:verify())
      for _, region in ipairs { "parameters", "gradients", "state" } do
        assert.are.equal(f32.regions[region], bf16.regions[region], region)
      end
    end)
  end
end)

describe("a Linear layer of few rows", function()
  local function plan_at(rows, train, n_out)
    local m = nn.Sequential { input = { 200 }, nn.Linear { 200, n_out }, nn.Tanh(),
      nn.Linear { n_out, 10 } }
    return m:plan { batch = rows, train = train, loss = nn.MseLoss(), dtype = "bf16",
      store = false }
  end

  it("is trained with its weight as it is, and gives halves", function()
    local few, many = dtypes_of(plan_at(8, true, 100)), dtypes_of(plan_at(16, true, 100))
    assert.is_nil(few["linear1.weight.bf16"])
    assert.are.equal("bf16", many["linear1.weight.bf16"])
    assert.are.equal("bf16", few.tanh1)
  end)

  it("casts it in inference, where that is done once, and where it is no larger than rows are",
    function()
      assert.are.equal("bf16", dtypes_of(plan_at(8, false, 100))["linear1.weight.bf16"])
      assert.are.equal("bf16", dtypes_of(plan_at(8, true, 4))["linear1.weight.bf16"])
    end)

  it("takes less arena so: VGG's at most half of that in f32", function()
    local f32, bf16 = plan_of("vgg16:8", {}), plan_of("vgg16:8", { dtype = "bf16" })
    assert.is_true(bf16.arena_bytes <= 0.5 * f32.arena_bytes)
  end)

  it("has the gradient of f32 within the rounding of its operands", function()
    neap.seed(4)
    local x, w = neap.randn(4, 300), neap.randn(128, 300)
    local net = neap.net "few"
    local wp, xp = net:param("w", w.shape), net:input("x", x.shape)
    local y = net:FC({ net:Mul({ xp, xp }), wp })
    local g = net:gradient(net:Sum(net:Mul({ y, y })), { wrt = { wp } })[wp]
    net:outputs { g }
    local got = {}
    for _, dtype in ipairs { "f32", "bf16" } do
      local ws <close> = neap.workspace { store = false }
      ws:init(net)
      ws:feed("w", w)
      ws:feed("x", x)
      ws:run(net, {}, { dtype = dtype })
      got[dtype] = ws:fetch(g)
    end
    local far = (got.f32 - got.bf16):abs():max():item() / got.f32:abs():max():item()
    assert.is_true(far < 4 * unit.bf16, far)
    assert.is_true(far > 0, "nothing was rounded")
  end)
end)

describe("in mixed precision", function()
  it("parameters, gradients, state, inputs, outputs and losses stay f32", function()
    local plan = plan_of("resnet18c:2", { dtype = "bf16" })
    local n = {}
    for _, v in ipairs(plan:values()) do
      local key = v.region .. " " .. v.dtype
      n[key] = (n[key] or 0) + 1
    end
    for _, region in ipairs { "parameters", "gradients", "state", "io" } do
      assert.is_nil(n[region .. " bf16"], region)
    end
    assert.is_true(n["arena bf16"] > 50)
    assert.are.equal("f32", dtypes_of(plan).loss or "f32")
  end)

  it("products are halves, statistics and losses are not", function()
    local plan = plan_of("resnet18c:2", { dtype = "bf16" })
    local values, seen = plan:values(), {}
    for _, op in ipairs(plan:ops()) do
      for _, v in ipairs(op.outs) do
        seen[op.type] = seen[op.type] or {}
        seen[op.type][values[v].dtype] = true
      end
    end
    assert.are.same({ bf16 = true }, seen.Conv)
    assert.are.same({ bf16 = true }, seen.ConvGradInput)
    assert.is_true(seen.BatchNorm.f32 and seen.BatchNorm.bf16) -- statistics; what it makes
    assert.is_nil(seen.SoftmaxCrossEntropy.bf16)
  end)

  it("a target's digits are kept, and so are those of sums", function()
    local net = neap.net "regression"
    local x, y = net:input("x", { 4, 8 }), net:input("y", { 4, 1 })
    local w = net:param("w", { 1, 8 }, neap.init.zeros)
    local h = net:FC({ x, w }, "h")
    net:outputs { net:Mean(net:Square(net:Sub({ h, y }, "error")), "loss") }
    local dtypes = dtypes_of(net:plan { dtype = "bf16", store = false })
    assert.are.equal("bf16", dtypes.h)
    assert.are.equal("f32", dtypes.error)
    assert.are.equal("f32", dtypes.loss)
    local ws <close> = neap.workspace()
    ws:feed("x", neap.zeros { 4, 8 })
    ws:feed("y", neap.tensor { { 1000.25 }, { 1000.25 }, { 1000.25 }, { 1000.25 } })
    ws:init(net)
    ws:run(net, {}, { dtype = "bf16" })
    assert.are.equal(1000.25 ^ 2, ws:fetch("loss"):item())
  end)

  it("a target's digits are kept among several operands, wherever it stands", function()
    for place = 1, 3 do
      local net = neap.net "several"
      local h = net:FC({ net:input("x", { 4, 8 }), net:param("w", { 4, 8 }, 0.5) }, "h")
      local list = { h, net:param("b", { 4, 4 }, 0.5) }
      table.insert(list, place, net:input("t", { 4, 4 }))
      net:outputs { (net:Sum(net:Concat(list, "joined", { axis = 2 }))) }
      assert.are.equal("f32", dtypes_of(net:plan { dtype = "bf16", store = false }).joined)
    end
  end)

  it("outputs are f32, gradients too, but for a half that was asked for", function()
    local net = neap.net "asked"
    local x = net:input("x", { 4, 8 })
    local h = net:FC({ x, net:param("w", { 4, 8 }, 0.5) }, "h")
    local half = net:Cast(net:Cast(h, "wide", { to = "f32" }), "half", { to = "bf16" })
    local gradient = net:gradient(net:Mean(net:Square(h), "loss"), { wrt = { "h" } })
    net:outputs { half, gradient.h }
    local ws <close> = neap.workspace { seed = 1 }
    ws:init(net)
    ws:run(net, { x = neap.randn(4, 8) }, { dtype = "bf16" })
    assert.are.equal("bf16", ws:fetch("half").dtype)
    assert.are.equal("f32", ws:fetch(gradient.h.name).dtype)
  end)

  it("a blob that is kept has the dtype that the run holds; f32 changes nothing", function()
    local net = neap.net "kept"
    local x = net:input("x", { 2, 8 })
    local h = net:FC({ x, net:param("w", { 4, 8 }, neap.init.xavier {}) }, "h")
    net:outputs { net:Relu(h, "y") }
    local ws <close> = neap.workspace { seed = 1 }
    ws:feed("x", neap.randn(2, 8))
    ws:init(net)
    ws:run(net, {}, { dtype = "bf16", keep = "h" })
    assert.are.equal("bf16", ws:fetch("h").dtype)
    assert.are.equal("f32", ws:fetch("y").dtype)
    assert.are.equal("f32", ws:fetch("w").dtype)
    local plain, same = net:plan { store = false }, net:plan { dtype = "f32", store = false }
    assert.are.equal(plain.arena_bytes, same.arena_bytes)
    assert.are.equal(0, same.n_widened)
  end)

  it("says what is computed in f32, once", function()
    local plan = plan_of("lenet:8", { dtype = "bf16" })
    local n = 0
    for _ in tostring(plan:explain()):gmatch "computed in f32" do n = n + 1 end
    assert.are.equal(plan.n_widened > 0 and 1 or 0, n)
    local text = support.shell(
      ("NEAP_DB=off %s plan lenet:8 --train --dtype bf16"):format(support.program))
    assert.are.equal(plan.n_widened > 0, text:find("compute their bf16 in f32", 1, true) ~= nil)
  end)

  it("an unknown dtype is refused where it is given", function()
    local net = neap.net "refused"
    net:outputs { net:Relu(net:input("x", { 2 }), "y") }
    raises({ "dtype expects f32, bf16 or f16", "b16", "mixed_spec.lua" }, function()
      net:plan { dtype = "b16" }
    end)
    raises({ "dtype", "bf61" }, function()
      neap.trainer { model = nn.Linear { 4, 2 }, optimizer = optim.SGD { lr = 0.1 },
        dtype = "bf61" }
    end)
  end)
end)

-- ---- beside f32 ---------------------------------------------------------------------------------

--- The length of the difference of two tensors, as a share of that of the first.
local function distance(want, got)
  local a, b = want:to "f64", got:to "f64"
  local length = (a * a):sum():item() ^ 0.5
  return ((a - b) * (a - b)):sum():item() ^ 0.5 / math.max(length, 1e-30)
end

--- Outputs, loss and gradients of a model in each dtype, from the same parameters and input.
local function results(model, input, loss, dtype)
  local net = model:net { batch = input.shape[1], train = true, loss = loss,
    optimizer = optim.SGD { lr = 1 } }
  local ws <close> = neap.workspace { seed = 3 }
  for _, blob in ipairs(net:inputs()) do
    if blob.name == "x" then
      ws:feed("x", input)
    elseif blob.dtype == "i64" then
      ws:feed(blob.name, neap.zeros { dtype = "i64", table.unpack(blob.shape) })
    elseif #blob.shape == 0 then
      ws:feed(blob.name, neap.tensor(1.0))
    else
      ws:feed(blob.name, neap.zeros(blob.shape))
    end
  end
  ws:init(net)
  local before, out = {}, {}
  for name in net:text():gmatch "\n%s*param (%S+)" do before[name] = ws:fetch(name):clone() end
  ws:run(net, {}, { dtype = dtype })
  for name, tensor in pairs(before) do out[name] = tensor - ws:fetch(name) end
  out.loss = ws:fetch("loss"):clone()
  return out
end

local nets = {
  conv = function()
    return nn.Sequential { input = { 3, 12, 12 }, seed = 5,
      nn.Conv2d { 3, 8, kernel = 3, pad = 1, bias = false }, nn.BatchNorm2d { 8 }, nn.ReLU(),
      nn.MaxPool2d { 2 }, nn.Residual { nn.Conv2d { 8, 8, kernel = 3, pad = 1, bias = false } },
      nn.GELU(), nn.AvgPool2d { 2 }, nn.Flatten(), nn.Linear { 72, 10 } }, { 4, 3, 12, 12 }
  end,
  rows = function()
    return nn.Sequential { input = { 16 }, seed = 5,
      nn.Linear { 16, 32 }, nn.LayerNorm { 32 }, nn.SiLU(), nn.Linear { 32, 32 }, nn.Tanh(),
      nn.Linear { 32, 10 } }, { 8, 16 }
  end,
  recurrent = function()
    return nn.Sequential { input = { 6, 5 }, seed = 5, nn.LSTM { 5, 8 }, nn.GRU { 8, 8 },
      nn.Flatten(), nn.Linear { 48, 10 } }, { 4, 6, 5 }
  end,
}

describe("beside f32", function()
  for name, make in pairs(nets) do
    for _, dtype in ipairs(halves) do
      it(("loss and gradients of %s in %s are within its rounding"):format(name, dtype), function()
        local model, shape = make()
        neap.seed(9)
        local x = neap.randn(shape)
        local want = results(model, x, nn.CrossEntropyLoss(), nil)
        local got = results(model, x, nn.CrossEntropyLoss(), dtype)
        local bits = 0
        for key, tensor in pairs(want) do
          assert.are.equal("f32", got[key].dtype, key)
          local far = distance(tensor, got[key])
          -- of the order of one rounding; where a maximum or a relu falls the other way, some more
          assert.is_true(far < 24 * unit[dtype], ("%s: %.1f units"):format(key, far / unit[dtype]))
          if far > 0 then bits = bits + 1 end
        end
        assert.is_true(bits > 3) -- it did compute in halves
      end)
    end
  end
end)

-- ---- plans --------------------------------------------------------------------------------------

describe("plans in bf16", function()
  for _, name in ipairs { "lenet:8", "resnet18c:2", "chargpt:2", "lstm:4" } do
    it("give the bits of the unplanned run: " .. name, function()
      local r = neap.check.plan(name, { dtype = "bf16", steps = 2, poison = true })
      assert.is_true(r.same, tostring(r.different))
      assert.are.equal(r.forecast_bytes, r.held_bytes)
      assert.are.equal(0, r.allocations)
    end)
  end

  it("keep a budget by running again, to the same bits", function()
    local free = plan_of("resnet18c:4", { dtype = "bf16" })
    local budget = free.arena_bytes * 70 // 100
    local r = neap.check.plan("resnet18c:4", { dtype = "bf16", steps = 1, count_steps = 0,
      budget = budget })
    assert.is_true(r.same and r.arena_bytes <= budget and r.n_recomputed > 0)
  end)

  it("run under every executor", function()
    for _, o in ipairs { { executor = "dag" }, { policy = "pool" }, { policy = "name" } } do
      o.dtype, o.steps, o.count_steps = "bf16", 1, 0
      assert.is_true(neap.check.plan("lenet:4", o).same)
    end
  end)
end)

describe("what bf16 and f16 do in net files", function()
  it("control flow keeps the types of its results", function()
    local net = neap.net "branches"
    local x, c = net:input("x", { 4, 8 }), net:input("c", {}, "bool")
    local w = net:param("w", { 8, 8 }, neap.init.xavier {})
    local h = net:If(c, function(b) return b:FC { x, w } end, function(b) return b:Neg(x) end)
    net:outputs { net:Relu(h, "y") }
    local ws <close> = neap.workspace { seed = 2 }
    ws:init(net)
    ws:feed("x", neap.randn(4, 8))
    for _, taken in ipairs { true, false } do
      ws:feed("c", neap.tensor(taken, "bool"))
      ws:run(net)
      local want = ws:fetch("y"):clone()
      ws:run(net, {}, { dtype = "bf16" })
      assert.is_true(distance(want, ws:fetch "y") < 8 * unit.bf16)
    end
  end)
end)

-- ---- training -----------------------------------------------------------------------------------

--- Means of the losses of `n` steps, of the last tenth of them.
local function train(make, set, n)
  local last, count = 0, 0
  local t <close> = make()
  t:fit(set, { steps = n, epochs = 100, verbose = 0, on_step = function(r)
    if r.step > n - n // 10 then last, count = last + r.loss, count + 1 end
  end })
  return last / count
end

describe("training", function()
  it("of LeNet learns in bf16 as in f32", function()
    if not neap.data.find "mnist" and not pcall(neap.data.mnist, { split = "train", batch = 1 })
    then
      pending "MNIST is not at hand"
      return
    end
    local loss = {}
    for _, dtype in ipairs { "f32", "bf16" } do
      loss[dtype] = train(function()
        return neap.trainer { model = neap.zoo.lenet(), seed = 1, dtype = dtype,
          optimizer = optim.SGD { lr = 0.02, momentum = 0.9 } }
      end, neap.data.mnist { split = "train", batch = 32, limit = 4096 }, 200)
    end
    assert.is_true(loss.f32 < 0.5)
    assert.is_true(math.abs(loss.bf16 - loss.f32) < 0.05, ("%g %g"):format(loss.f32, loss.bf16))
  end)

  it("of a character GPT learns in bf16 as in f32", function()
    local text = ("the quick brown fox jumps over the lazy dog. "):rep(60)
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write(text)
    file:close()
    local loss = {}
    for _, dtype in ipairs { "f32", "bf16" } do
      local set = neap.data.text { path = path, length = 16, batch = 8, seed = 3 }
      loss[dtype] = train(function()
        return neap.trainer { seed = 1, dtype = dtype, optimizer = optim.AdamW { lr = 3e-3 },
          model = neap.zoo.gpt { layers = 2, width = 32, heads = 2, length = 16,
            vocabulary = set.n_class, batch = 8 } }
      end, set, 150)
    end
    os.remove(path)
    assert.is_true(loss.f32 < 1.5)
    assert.is_true(math.abs(loss.bf16 - loss.f32) < 0.05, ("%g %g"):format(loss.f32, loss.bf16))
  end)

  it("goes on from a checkpoint to the same bits, which f32 can read", function()
    local path = os.tmpname() .. ".safetensors"
    local straight, first = kit.make { dtype = "bf16" }, kit.make { dtype = "bf16" }
    straight:fit(kit.points(), kit.with {})
    first:fit(kit.points(), { steps = 3, checkpoint = path, verbose = 0 })
    for _, tensor in pairs(kit.everything(first)) do assert.are_not.equal("bf16", tensor.dtype) end
    local second, other = kit.make { dtype = "bf16" }, kit.make {}
    second:fit(kit.points(), kit.with { checkpoint = path, resume = true })
    kit.assert_same_bits(straight, second)
    assert(other:load(path))
    os.remove(path)
  end)

  it("of micro-batches adds gradients up in f32", function()
    local t <close> = neap.trainer { dtype = "bf16", micro = 2, seed = 3,
      model = nn.Sequential { input = { 3 }, nn.Linear { 3, 8 }, nn.ReLU(), nn.Linear { 8, 2 } },
      optimizer = optim.SGD { lr = 0.1 } }
    local first, last
    t:fit(kit.points(), { epochs = 6, verbose = 0, on_step = function(r)
      first, last = first or r.loss, r.loss
    end })
    assert.is_true(last < first)
  end)
end)
