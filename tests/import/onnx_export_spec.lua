-- neap.export to ONNX: what is written is read back as the same net, and computes the same.
local neap = require "neap"
local cases = require "neap.check.cases"
local core = require "neap.core"
local kit = require "import.onnx_kit"
local nn = neap.nn
local op = require "neap.op"
local peer = require "import.onnx_peer"
local memonger = neap.memonger

--- The largest difference of two tensors, as a share of the largest number.
local function distance(got, want)
  assert.same(want.shape, got.shape)
  assert.equal(want.dtype, got.dtype)
  local a, b, worst, top = cases.elements(got), cases.elements(want), 0, 0
  for i, x in ipairs(b) do
    if type(x) == "boolean" then x, a[i] = x and 1 or 0, a[i] and 1 or 0 end
    local same = x == a[i] or x ~= x and a[i] ~= a[i]
    local d = same and 0 or math.abs(x - a[i])
    worst = math.max(worst, d == d and d or math.huge)
    top = math.max(top, math.abs(x) < math.huge and math.abs(x) or 0)
  end
  return worst == 0 and 0 or worst / top
end

--- Tensors for a net's inputs: numbers around 0, ids below 2.
local function feeds_of(net)
  local feeds = {}
  neap.seed(5)
  for _, input in ipairs(net:inputs()) do
    local x = neap.rand(input.shape)
    feeds[input.name] = input.dtype == "f32" and x - 0.5 or (x * 1.9):floor():to(input.dtype)
  end
  return feeds
end

--- Exports a net, and expects that the file's net gives its outputs within `most` of the largest.
local function round_trip(folder, what, net, ws, o, most, import)
  local path = folder.path .. "/m.onnx"
  assert(neap.export(what, path, o))
  local f = assert(neap.import(path, import))
  local feeds = feeds_of(net)
  local want, got = ws:run(net, feeds), f(feeds)
  local outputs = net:outputs()
  if #outputs == 1 then got = { [outputs[1]] = got } end
  for _, name in ipairs(outputs) do
    assert.is_true(distance(got[name], want[name]) <= most, name)
  end
  return f
end

local function model_trip(folder, model, batch, o, most, import)
  local net, ws = model:net { batch = batch }, model:workspace()
  ws:init(net)
  return round_trip(folder, model, net, ws, o, most, import)
end

-- Nets of all kinds: convolutions with norms, transposed ones, pools with indices, attention,
-- channels that change places, a recurrent layer and a loop.
local small = {
  lenet = {}, resnet18 = { image = 32, width = 8, classes = 10 },
  mobilenet_v3_small = { image = 32, width = 0.25, classes = 10 },
  shufflenet_v1 = { image = 32, classes = 10 }, segnet = { image = 32, width = 4 },
  unet = { image = 188, width = 2 }, vit_b_16 = { image = 16, patch = 8, width = 16, heads = 2 },
  gpt = { layers = 2, width = 32, heads = 2, length = 8, vocabulary = 65 },
  diffusion_unet = { image = 8, width = 8, groups = 4, sees = 4 },
  lstm = { width = 32, length = 8, vocabulary = 65 },
  seq2seq = { width = 16, length = 5, vocabulary = 11 },
}

describe("a net that is exported to ONNX", function()
  local folder
  before_each(function() folder = kit.folder() end)
  after_each(function() getmetatable(folder).__close(folder) end)

  for name, options in pairs(small) do
    it("computes the same when it is imported, and is that net for good: " .. name, function()
      local model = neap.zoo[name](options)
      local f = model_trip(folder, model, 2, { batch = 2 }, 1e-6)
      -- The file's weights of an LSTM have a dimension more, which each import takes off; a first
      -- state that is a constant is a weight of the file.
      if name == "lstm" or name == "seq2seq" then return end
      local again = folder.path .. "/again.onnx"
      assert(neap.export(f.net, again, { workspace = f.workspace }))
      local g = assert(neap.import(again))
      assert.is_true(memonger.verify_graph_equality(f.net, g.net))
    end)

    it("has a batch that is known later: " .. name, function()
      local model = neap.zoo[name](options)
      model_trip(folder, model, 3, { batch = "batch" }, 1e-6, { dims = { batch = 3 } })
    end)
  end

  it("has the ops of the net that was written, by the layers' names", function()
    local model = neap.zoo.mobilenet_v2 { image = 32, width = 0.25, classes = 10 }
    local f = model_trip(folder, model, 2, { batch = 2 }, 0)
    local net = model:net { batch = 2 }
    local function types(n)
      local list = {}
      for i, row in ipairs(n:ops()) do list[i] = row.type .. " " .. row.outputs[1] end
      return list
    end
    assert.same(types(net), types(f.net))
    for _, row in ipairs(net:_blobs()) do
      if row.role == "parameter" or row.role == "state" then
        assert.equal(row.role, f.net:_blob(row.name).role)
      end
    end
  end)

  --- A model, exported with `o`, against its file on other inputs.
  local function both(model, inputs, o)
    local path = folder.path .. "/m.onnx"
    model:eval()
    assert(neap.export(model, path, o))
    local f = assert(neap.import(path))
    local want, feeds = model(table.unpack(inputs)), {}
    for i, row in ipairs(f.net:inputs()) do feeds[row.name] = inputs[i] end
    assert.is_true(distance(f(feeds), want) <= 1e-6)
    if peer.is_there() then
      local _, got = next(peer.run(path, feeds))
      assert.is_true(distance(got, want) <= 1e-5)
    end
  end

  it("makes bags of embeddings of ordinary ops", function()
    neap.seed(4)
    local table_of = neap.tensor({ { 1, 2, 3, 9 }, { 1, 1, 1, 1 }, { 9, 9, 9, 9 } }, "i64")
    local Bags = nn.module { "Bags",
      init = function(self, o) self.e = nn.EmbeddingBag(o) end,
      forward = function(self, ids, at) return self.e(ids, at) end }
    for _, mode in ipairs { "mean", "sum", "max" } do
      for _, padding in ipairs { false, 1, -1 } do
        local o = { 10, 5, mode = mode, padding_idx = padding or nil }
        both(nn.EmbeddingBag(o), { table_of }, { input = { 4, dtype = "i64" }, batch = 3 })
        -- Of other lengths, one of them empty.
        both(Bags(o), { neap.tensor({ 1, 2, 3, 9, 1, 1, 9 }, "i64"),
          neap.tensor({ 0, 2, 2, 5, 5, 6, 7 }, "i64") }, { batch = 7,
            input = { ids = { dtype = "i64" }, at = { dtype = "i64" } } })
      end
    end
    -- Row 0 counts where no row is said to be padding, and nets that differ in that are others.
    local net = neap.net "lengths"
    net:param("w", { 5, 3 }, { "Uniform" })
    net:outputs { (net:EmbeddingBag({ net:input("ids", { 6 }, "i64"), "w",
      net:input("long", { 3 }, "i64") }, 1, { by = "lengths" })) }
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    local path = folder.path .. "/m.onnx"
    assert(neap.export(net, path, { workspace = ws }))
    local other = neap.net_from((net:text():gsub("by = lengths", "padding_idx = 0, %0")))
    assert.is_false(memonger.verify_graph_equality(net, other))
    local feeds = { ids = neap.tensor({ 4, 0, 1, 2, 2, 3 }, "i64"),
      long = neap.tensor({ 2, 0, 4 }, "i64") }
    local want = ws:run(net, feeds)[net:outputs()[1]]
    assert.is_true(distance(assert(neap.import(path))(feeds), want) <= 1e-6)
    local _, message = neap.export(net, path, { workspace = ws, opset = 13 })
    assert.matches("from opset 16 on, 13 is asked for", message)
  end)

  it("has heads of keys once for each of their queries, where no op has that", function()
    for _, opset in ipairs { 17, 23 } do
      for _, heads in ipairs { 1, 2 } do
        local model = nn.Sequential { input = { 6, 16 },
          nn.MultiheadAttention { 16, heads = 4, key_heads = heads, causal = true } }
        both(model, { neap.randn(2, 6, 16) }, { opset = opset, batch = 2 })
      end
    end
    local open = nn.MultiheadAttention { 16, heads = 4, key_heads = 2 }
    both(nn.Sequential { input = { 6, 16 }, open }, { neap.randn(3, 9, 16) },
      { opset = 18, dims = { x = { "b", "t" } } })
  end)

  it("makes images larger, and pools them to one, whose sizes are open", function()
    local x, open = neap.randn(2, 3, 10, 7), { dims = { x = { "b", false, "h", "w" } } }
    local function of(...) return nn.Sequential { input = { 3, 8, 8 }, ... } end
    for _, scale in ipairs { 2, 3 } do
      for _, mode in ipairs { "nearest", "linear" } do
        both(of(nn.Upsample { scale, mode = mode }, nn.Conv2d { 3, 4, kernel = 3, pad = 1 }),
          { x }, open)
      end
    end
    for _, size in ipairs { 1, 2 } do
      both(of(nn.Upsample { 3, mode = "linear" }), { neap.randn(2, 3, size, 3 - size) }, open)
    end
    -- Places that follow from the size otherwise are said to.
    local aligned = of(nn.Upsample { 2, mode = "linear", align_corners = true })
    local _, message = neap.export(aligned:eval(), folder.path .. "/m.onnx", open)
    assert.matches("depend on h", message)
    for _, o in ipairs { { 3, 4, kernel = 3, stride = 2, pad = 1, output_padding = 1 },
      { 3, 4, kernel = 4, stride = 2, pad = 1 }, { 3, 4, kernel = 5, stride = 3, pad = 1 },
      { 3, 4, kernel = 2, stride = 2, dilation = 2 } } do
      both(of(nn.ConvTranspose2d(o)), { x }, open)
    end
    both(of(nn.Conv2d { 3, 4, kernel = 3, pad = 1 }, nn.AdaptiveAvgPool2d { 1 }, nn.Flatten()),
      { x }, open)
  end)

  it("is written in parts for an opset without its ops", function()
    for name, o in pairs { gpt = small.gpt, diffusion_unet = small.diffusion_unet } do
      model_trip(folder, neap.zoo[name](o), 2, { batch = 2, opset = 14 }, 1e-5)
      assert.same({ [""] = 14 }, core.read_onnx(folder.path .. "/m.onnx").opsets)
    end
    assert(neap.export(neap.zoo.lenet(), folder.path .. "/m.onnx"))
    assert.same({ [""] = 13 }, core.read_onnx(folder.path .. "/m.onnx").opsets)
  end)

  it("writes a mask of one row for every query, which ONNX Runtime asks for", function()
    local net = neap.net "masked"
    for _, name in ipairs { "q", "k", "v" } do net:input(name, { 2, 5, 8 }) end
    net:input("mask", { 2, 1, 1, 5 })
    net:outputs { net:op("Attention", { "q", "k", "v", "mask" }, { "y" }, { heads = 2 }) }
    local ws <close> = neap.workspace {}
    ws:init(net)
    local f = round_trip(folder, net, net, ws, { opset = 23, workspace = ws },
      1e-6)
    local shapes = {}
    for _, o in ipairs(f.net:ops()) do
      if o.type == "Attention" then shapes[1] = f.net:blob(o.inputs[4]).shape end
    end
    assert.same({ 2, 1, 5, 5 }, shapes[1])
  end)

  it("infers, whatever it was for: no loss, update or dropout", function()
    local net = neap.net "trains"
    net:input("x", { 4, 3, 5, 5 })
    net:input("label", { 4 }, "i64")
    net:param("w", { 6, 3, 3, 3 }, { "Xavier" })
    net:param("v", { 2, 6 }, { "Xavier" })
    net:input("lr", {})
    local h = net:Conv({ "x", "w" }, "h", { kernel = { 3, 3 } })
    h = net:Relu(h, "h")
    h = net:GlobalAveragePool(h)
    h = net:Flatten(net:Dropout(h))
    net:FC({ h, "v" }, "y")
    net:SoftmaxCrossEntropy({ "y", "label" }, "loss")
    net:outputs "loss"
    local grads = net:gradient "loss"
    net:Sgd({ "w", grads.w, "lr" }, { "w" })
    local ws <close> = neap.workspace { seed = 1 }
    ws:init(net)
    local path = folder.path .. "/m.onnx"
    assert(neap.export(net, path, { workspace = ws }))
    local f = assert(neap.import(path))
    local inputs, types = f.net:inputs(), {}
    assert.equal(1, #inputs)
    for i, row in ipairs(f.net:ops()) do types[i] = row.type end
    assert.same({ "Conv", "Relu", "GlobalAveragePool", "Flatten", "FC" }, types)
    local x = neap.rand(4, 3, 5, 5)
    local want = ws:fetch "w"
    want = x:conv(want, { kernel = { 3, 3 } }):relu():global_average_pool():flatten()
    want = want:fc(ws:fetch "v")
    assert.is_true(distance(f(x), want) < 1e-6)
  end)

  it("may branch and loop", function()
    local net = neap.net "flow"
    net:input("x", { 4 })
    net:input("c", {}, "bool")
    local branch = net:If("c", function(b) return b:Relu "x" end, function(b) return b:Neg "x" end)
    local grown = net:While { init = { "x" },
      cond = function(b, s) return b:Lt { b:Sum(b:Abs(s)), b:const(10) } end,
      body = function(b, s) return b:Mul { b:Add { s, "x" }, b:const(2) } end }
    net:outputs { branch, grown }
    local ws <close> = neap.workspace {}
    ws:init(net)
    local path = folder.path .. "/m.onnx"
    assert(neap.export(net, path, { workspace = ws }))
    local f = assert(neap.import(path))
    for _, on in ipairs { true, false } do
      local feeds = { x = neap.tensor { 1, -2, 0.5, 0.1 }, c = neap.tensor(on) }
      local want, got = ws:run(net, feeds), f(feeds)
      for _, name in ipairs(net:outputs()) do
        assert.is_true(distance(got[name], want[name]) == 0)
      end
    end
  end)

  it("stacks as many rows as its loop may take turns, zeros behind those that it took", function()
    local net = neap.net "rows"
    local x = net:input("x", { 2, 3 })
    local _, last, rows = net:While { init = { net:const(0, "i64"), x }, max = 5,
      cond = function(_, i) return i:lt(2) end,
      body = function(_, i, y) return i + 1, y:tanh(), y * 2 end }
    net:outputs { last, rows }
    local ws = neap.workspace { store = false }
    local f = round_trip(folder, net, net, ws, { workspace = ws }, 1e-6)
    local got = f(neap.ones(2, 3))[rows.name]
    assert.same({ 5, 2, 3 }, got.shape)
    assert.is_true(got[2]:min():item() > 0 and got[3]:abs():max():item() == 0)
  end)

  it("knows the shapes of what loops and branches within a loop give", function()
    local nn = neap.nn
    local function twice(n, x, f)
      return (n:While { init = { x, n:const(0, "i64") }, max = 3,
        cond = function(_, _, i) return i:lt(2) end,
        body = function(b, y, i) return f(b, y), i + 1 end })
    end
    local model = nn.Sequential { input = { 3, 4 }, nn.Lambda(function(x)
      return twice(x.net, x, function(b, y)
        local inner = twice(b, y, function(_, z) return z:tanh() end)
        local one, two = b:If(inner:sum():gt(0), function() return y * 2, inner end,
          function() return inner, y end)
        local _, rows = b:Recurrent { seq = { one }, init = { two:select(1, 1) },
          step = function(_, h, row) return h + row, h * row:mean() end }
        return inner * 0.5 + inner:sum() + rows:sum { axes = { 1 }, keepdim = true }
      end)
    end) }
    model_trip(folder, model, 2, { batch = 2 }, 1e-6)
  end)

  it("keeps the names of inputs that an op hands on as they are", function()
    local nn = neap.nn
    local path = folder.path .. "/m.onnx"
    local model = nn.Sequential { input = { 3 }, nn.Lambda(function(x) return neap.copy(x) end),
      nn.Dropout(0.5), nn.Linear { 3, 2 } }
    local want = model:net { batch = 2, train = false }:inputs()[1].name
    assert(neap.export(model, path, { batch = 2 }))
    assert.equal(want, neap.import(path).net:inputs()[1].name)
  end)

  it("is refused with all ops that ONNX lacks, and nothing is written", function()
    local net = neap.net "lacks"
    net:input("x", { 3, 3 })
    net:Digamma("x", "a")
    net:Relu("a", "b")
    net:Inverse("b", "y")
    net:outputs "y"
    local path = folder:write("m.onnx", "what was there")
    local ok, message, code, list = neap.export(net, path, { workspace = neap.workspace {} })
    assert.is_nil(ok)
    assert.equal("data", code)
    assert.matches('ONNX has no Digamma %(op "digamma_1"%), Inverse %(op "inverse_1"%)', message)
    assert.equal(2, #list)
    local file <close> = io.open(path)
    assert.equal("what was there", file:read "a")
  end)

  it("has no numbers of one batch where the batch is known later", function()
    local path = folder.path .. "/m.onnx"
    local function exported(f)
      local m = neap.nn.Sequential { input = { 3 }, neap.nn.Linear { 3, 5 }, neap.nn.Lambda(f) }
      return m:eval(), neap.export(m, path, { batch = "n" })
    end
    local function same(f)
      local m = exported(f)
      local g = assert(neap.import(path))
      for _, n in ipairs { 1, 2, 3, 5 } do
        local x = neap.randn(n, 3)
        assert.is_true(g(x):close(m(x), { rtol = 1e-5, atol = 1e-6 }), "batch " .. n)
      end
    end
    local function refused(why, f)
      os.remove(path)
      local _, ok, message, code, list = exported(f)
      assert.is_nil(ok)
      assert.matches(why, message)
      assert.equal("data", code)
      assert.equal(1, #list)
      assert.is_nil(io.open(path))
    end

    -- What is one value over and over, or counts, is as many as the batch says.
    same(function(x)
      return x * neap.full { x.shape[1], 5, value = 3 } + neap.zeros(1, x.shape[1], 5):squeeze(1)
    end)
    same(function(x) return x + neap.arange(0, x.shape[1]):reshape { -1, 1 } end)
    -- The same numbers at the batch that is written, of which one are as many at any.
    same(function(x)
      local two = x:narrow(1, 1, 1):expand(2, 5) + neap.ones(2, 5)
      return x + neap.ones(x.shape[1], 5) + two:sum(1, { keepdim = true })
    end)

    -- Other numbers, ways and ops are refused.
    refused("Mul %(op \"mul_1\": the numbers of \".*\" depend on n", function(x)
      return x:matmul(x:transpose(1, 2)) * neap.eye(x.shape[1])
    end)
    refused("Sub %(op \"sub_1\": its input 1 depends on n", function(x)
      local a, b = x:relu(), x:tanh()
      if x.shape[1] > 2 then a, b = b, a end
      return a - b
    end)
    refused("Tanh %(op \"tanh_1\": which op it is depends on n", function(x)
      return x.shape[1] > 2 and x:relu() or x:tanh()
    end)
    for _, least in ipairs { 2, 3 } do
      refused("Add %(op \"add_1\": whether it is there depends on n", function(x)
        local is_long = (x.shape[1] > 2) == (least > 2)
        return is_long and x:relu() + x or x:relu()
      end)
    end
  end)

  it("of a file's function says what keeps it from other sizes", function()
    local model = neap.nn.Sequential { input = { 3 }, neap.nn.Linear { 3, 4 } }
    local path = folder.path .. "/m.onnx"
    assert(neap.export(model:eval(), path))
    local f = assert(neap.import(path))
    assert(neap.export(f, path, { batch = "n" }))
    local x = neap.randn(5, 3)
    assert.is_true(model(x):close(assert(neap.import(path))(x), { rtol = 1e-5, atol = 1e-6 }))

    local rows = neap.nn.Sequential { input = { 3 }, neap.nn.Lambda(function(y)
      return y:reshape { 1, 3 }
    end) }
    assert(neap.export(rows:eval(), path))
    local ok, message, code = neap.export(assert(neap.import(path)), path, { batch = "n" })
    assert.is_nil(ok)
    assert.equal("data", code)
    assert.matches("m.onnx: Reshape .*can't become %(1,3%)", message)
  end)

  it("has no ways of one batch through branches, or to its outputs", function()
    local function refused(why, f)
      local m = neap.nn.Sequential { input = { 3 }, neap.nn.Lambda(f) }
      local ok, message = neap.export(m:eval(), folder.path .. "/m.onnx", { batch = "n" })
      assert.is_nil(ok)
      assert.matches(why, message)
    end
    local function branch(f)
      return function(x)
        return x.net:If(x:sum():gt(0), function(net) return f(net, x) end,
          function(net) return net:Neg(x) end)
      end
    end
    refused("Tanh %(op \".*\": which op it is depends on n", branch(function(net, x)
      return x.shape[1] > 2 and net:Relu(x) or net:Tanh(x)
    end))
    refused("its input 1 depends on n", branch(function(net, x)
      local a, b = net:Relu(x), net:Tanh(x)
      if x.shape[1] > 2 then a, b = b, a end
      return net:Sub { a, b }
    end))
    refused("its slope depends on n", branch(function(net, x)
      return net:LeakyRelu(x, "leaky", { slope = x.shape[1] / 10 })
    end))
    refused("result 1 of its then_net depends on n", branch(function(net, x)
      local a, b = net:Relu(x), net:Tanh(x)
      return x.shape[1] > 2 and a or b
    end))
    refused("output .*: what it is depends on n", function(x)
      local a, b = x:relu(), x:tanh()
      if x.shape[1] > 2 then a, b = b, a end
      return a, b
    end)
  end)

  it("refuses what it can't read", function()
    local model, path = neap.zoo.lenet(), folder.path .. "/m.onnx"
    local function refused(why, o, to)
      local ok, err = pcall(neap.export, model, to or path, o)
      assert.is_false(ok)
      assert.matches(why, tostring(err))
    end
    refused("batch expects", { batch = 0 })
    refused("batch expects", { batch = "b" }, folder.path .. "/m.safetensors")
    refused("opset is for %.onnx", { opset = 17 }, folder.path .. "/m.safetensors")
    refused("opset", { opset = 7 })
    refused('no blob "nobody"', { outputs = { "nobody" } })
    local ok, message, code = neap.export(model, "/nowhere/m.onnx")
    assert.is_nil(ok)
    assert.equal("io", code)
    assert.matches("/nowhere/m.onnx", message)
  end)

  it("has its weights in a second file where they are too many for one", function()
    local model = neap.zoo.lenet()
    assert(neap.export(model, folder.path .. "/m.onnx", { batch = 2 }))
    local tables = core.read_onnx(folder.path .. "/m.onnx")
    local path = folder.path .. "/apart.onnx"
    assert(core.write_onnx(path, tables, 1000))
    local again = core.read_onnx(path)
    for i, t in ipairs(tables.graph.initializers) do
      local u = again.graph.initializers[i]
      assert.equal(t.name, u.name)
      assert.equal(t.tensor:hash(), u.tensor:hash())
      assert.equal(t.tensor:n_element() >= 256, u.mapped)
      t.tensor, u.tensor, t.mapped, u.mapped = nil, nil, nil, nil
    end
    assert.same(tables, again)
  end)

  it("has unsigned numbers where they are such, and is refused others", function()
    local path = folder.path .. "/unsigned.onnx"
    assert(neap.export(neap.zoo.lenet(), path, { batch = 2 }))
    local tables = core.read_onnx(path)
    local place <const> = #tables.graph.initializers + 1
    local function write(elem, ...)
      tables.graph.initializers[place] = { name = "n", elem = elem,
        tensor = neap.tensor({ ... }, "i64") }
      return core.write_onnx(path, tables, 0)
    end
    local uint32 <const>, uint64 <const> = 12, 13
    for elem, most in pairs { [uint32] = (1 << 32) - 1, [uint64] = math.maxinteger } do
      assert(write(elem, 0, most))
      local again = core.read_onnx(path).graph.initializers[place]
      assert.same({ elem, { 0, most } }, { again.elem, again.tensor:totable() })
    end
    for elem, other in pairs { [uint32] = 1 << 32, [uint64] = -1 } do
      assert.error_matches(function() write(elem, 0, other) end,
        'tensor "n": a number that its element type does not have')
    end
  end)

  it("is refused where its tables are no model", function()
    local function refused(why, graph, opsets)
      local whole = { nodes = {}, initializers = {}, inputs = {}, outputs = {}, values = {} }
      for name, value in pairs(graph) do whole[name] = value end
      local ok, err = pcall(core.write_onnx, folder.path .. "/none.onnx",
        { ir = 8, producer = "p", opsets = opsets or { [""] = 17 }, graph = whole })
      assert.is_false(ok)
      assert.matches(why, tostring(err))
    end
    refused("item 1 of inputs is no table", { inputs = { 1 } })
    refused("node 1 is no table", { nodes = { 1 } })
    refused("expects a text, got a nil", { nodes = {
      { name = "n", op = "Relu", domain = "", attrs = { alpha = { kind = "ref" } } } } })
    refused("opsets are", {}, { 17 })
  end)
end)

describe("an op that ONNX has, exported", function()
  local folder <const> = kit.folder()
  teardown(function() getmetatable(folder).__close(folder) end)
  -- What ONNX has no op for, in the first case of its record.
  local lacking = {}
  for name in ([[
    Accuracy AdaptiveMaxPool Atan2 BatchNorm Cholesky ClipByNorm CtcLoss CumMax CumMin
    Digamma Eigh EmbeddingBag Erfinv GradNorm Histogram Inverse Kaiming Lgamma
    LinearRecurrence LogCumSumExp MatrixExp Multinomial Polygamma Qr RandInt RandPerm
    SearchSorted SetSlice ShiftLeft ShiftRight SlogDet Solve SolveTriangular Svd
    SparseFC SparseToDense Requantize TruncatedNormal Unique Xavier SvdVals Pinv Lstsq
    MatrixNorm]]):gmatch "%S+" do
    lacking[name] = true
  end
  it("unpools into a larger plane, where indices are counted in that", function()
    local net = neap.net "unpool"
    local x = net:input("x", { 1, 2, 2, 3 })
    local at = net:input("at", { 1, 2, 2, 3 }, "i64")
    net:outputs { net:MaxUnpool({ x, at }, "y", { kernel = { 2, 2 }, output_shape = { 5, 9 } }) }
    local ws, path = neap.workspace {}, folder.path .. "/unpool.onnx"
    ws:init(net)
    local feeds = { x = neap.rand(1, 2, 2, 3) + 1,
      at = neap.tensor({ { { { 0, 44, 8 }, { 12, 36, 20 } }, { { 46, 88, 51 }, { 60, 72, 80 } } } },
        "i64") }
    local want = ws:run(net, feeds).y
    assert(neap.export(net, path, { workspace = ws }))
    assert.is_true(assert(neap.import(path))(feeds):equal(want))
  end)

  it("is that op again, or what it is made of", function()
    for _, name in ipairs(cases.own_names()) do
      local record = op.records[name]
      local is_public = not (record.internal or record.control or record.random or record.extent
        or #record.enforced > 0) and name ~= "LSTM" and name ~= "MaskedSelect"
      for k, case in ipairs(is_public and cases.cases_of(record) or {}) do
        if k > 6 then break end -- tests/onnx/peer.lua has them all
        local net = cases.net_of(case)
        local feeds = cases.values_of(case)
        local ws <close> = cases.run(net, feeds)
        local path = ("%s/%s.onnx"):format(folder.path, name)
        local ok, message, _, list = neap.export(net, path, { workspace = ws })
        if not ok then
          assert.is_table(list, message)
          for _, row in ipairs(k == 1 and list or {}) do
            assert.is_true(lacking[row.op], message)
          end
        else
          local f = assert(neap.import(path))
          local given = {}
          for _, input in ipairs(f.net:inputs()) do given[input.name] = feeds[input.name] end
          local got, outputs = f(given), net:outputs()
          if #outputs == 1 then got = { [outputs[1]] = got } end
          for _, output in ipairs(outputs) do
            assert.is_true(distance(got[output], ws:fetch(output)) < 1e-5,
              ("%s, case %d"):format(name, k))
          end
        end
      end
    end
  end)
end)

describe("an activation that ONNX has otherwise", function()
  it("is written in parts", function()
    local folder <close> = kit.folder()
    local nn = neap.nn
    local function file_of(layer, opset)
      local x = neap.linspace(-4, 4, 33):reshape(1, 33)
      local path = folder.path .. "/m.onnx"
      local model = nn.Sequential { input = { 33 }, layer }
      assert(neap.export(model, path, { opset = opset }))
      return distance(assert(neap.import(path))(x), model:eval()(x)), core.read_onnx(path).graph
    end
    -- A threshold is where x itself takes over, which ONNX's Softplus has not.
    local gap, graph = file_of(nn.Softplus { beta = 2, threshold = 1 }, 13)
    assert.is_true(gap < 1e-6)
    assert.equal("Where", graph.nodes[#graph.nodes].op)
    gap, graph = file_of(nn.Softplus(), 13)
    assert.is_true(gap < 1e-6)
    assert.equal(1, #graph.nodes)

    gap, graph = file_of(nn.Hardswish(), 13)
    assert.is_true(gap < 1e-6)
    assert.equal("HardSigmoid", graph.nodes[1].op)
    gap, graph = file_of(nn.Hardswish(), 14)
    assert.is_true(gap < 1e-6)
    assert.equal("HardSwish", graph.nodes[1].op)
  end)
end)
