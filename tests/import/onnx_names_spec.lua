-- neap.export to ONNX with sizes that have names: what a file leaves open is open in the file that
-- is written of it, and what a caller names in a net or model of his own.
local neap = require "neap"
local core = require "neap.core"
local kit = require "import.onnx_kit"
local peer = require "import.onnx_peer"
local nn = neap.nn

local function floats(n)
  local list = {}
  for i = 1, n do list[i] = (i * 7 % 11 - 5) / 10 end
  return list
end

local function ints(name, list)
  return kit.tensor { name = name, elem = 7, dims = { #list }, ints = list }
end

--- Of x (batch, seq, 4): products of all its rows in pairs, (batch, seq, seq), whose softmax mixes
-- them; and rows of all images behind each other, (batch seq, 6).
local function mixer(batch)
  return kit.model { nodes = {
    kit.node("MatMul", { "x", "w" }, { "h" }),
    kit.node("Reshape", { "h", "heads" }, { "split" }),
    kit.node("Transpose", { "split" }, { "q" }, { perm = { 0, 2, 1, 3 } }),
    kit.node("Transpose", { "split" }, { "k" }, { perm = { 0, 2, 3, 1 } }),
    kit.node("MatMul", { "q", "k" }, { "scores" }),
    kit.node("Softmax", { "scores" }, { "weights" }, { axis = -1 }),
    kit.node("MatMul", { "weights", "q" }, { "mixed" }),
    kit.node("Transpose", { "mixed" }, { "back" }, { perm = { 0, 2, 1, 3 } }),
    kit.node("Reshape", { "back", "joined" }, { "y" }),
    kit.node("Reshape", { "h", "flat" }, { "rows" }),
  }, tensors = {
    kit.tensor { name = "w", dims = { 4, 6 }, floats = floats(24) },
    ints("heads", { 0, 0, 2, 3 }), ints("joined", { 0, 0, 6 }), ints("flat", { -1, 6 }),
  }, inputs = { kit.value("x", { batch or "batch", "seq", 4 }) },
    outputs = { kit.value("y", { batch or "batch", "seq", 6 }), kit.value("rows", { "n", 6 }) } }
end

--- Of x (batch, seq, 4): first states that are a row for each image, and positions that are
-- counted, both made of x's sizes.
local function counted()
  return kit.model { nodes = {
    kit.node("Shape", { "x" }, { "size" }),
    kit.node("Slice", { "size", "one", "two" }, { "seq" }),
    kit.node("Slice", { "size", "zero", "one" }, { "batch" }),
    kit.node("Squeeze", { "seq", "zero" }, { "n" }),
    kit.node("Range", { "start", "n", "step" }, { "position" }),
    kit.node("Mul", { "position", "three" }, { "by" }),
    kit.node("Add", { "by", "one" }, { "places" }),
    kit.node("Cast", { "places" }, { "reals" }, { to = 1 }),
    kit.node("Unsqueeze", { "reals", "one" }, { "column" }),
    kit.node("Concat", { "batch", "rest" }, { "shape" }, { axis = 0 }),
    kit.node("Expand", { "row", "shape" }, { "state" }),
    kit.node("Add", { "x", "column" }, { "placed" }),
    kit.node("Add", { "placed", "state" }, { "y" }),
  }, tensors = { kit.tensor { name = "start", elem = 7, dims = {}, ints = { 0 } },
    kit.tensor { name = "step", elem = 7, dims = {}, ints = { 1 } },
    kit.tensor { name = "row", dims = { 1, 1, 4 }, floats = { 1, 2, 3, 4 } },
    ints("zero", { 0 }), ints("one", { 1 }), ints("two", { 2 }), ints("three", { 3 }),
    ints("rest", { 1, 4 }) },
    inputs = { kit.value("x", { "batch", "seq", 4 }) },
    outputs = { kit.value("y", { "batch", "seq", 4 }) } }
end

--- Expects that two functions give the same of x.
local function same(f, g, x)
  local want, got = f(x), g(x)
  if type(want) ~= "table" then want, got = { y = want }, { y = got } end
  for name, t in pairs(want) do
    assert.same(t.shape, got[name].shape)
    assert.is_true(t:close(got[name], { rtol = 1e-5, atol = 1e-6 }), name)
  end
end

describe("sizes with names, exported to ONNX", function()
  local folder, path
  before_each(function()
    folder = kit.folder()
    path = folder.path .. "/out.onnx"
  end)
  after_each(function() getmetatable(folder).__close(folder) end)

  it("are those of the file that a function came from, whatever it was planned for", function()
    local file = folder:write("in.onnx", mixer())
    for _, dims in ipairs { {}, { batch = 3, seq = 5 }, { batch = { 1, 8 }, seq = { 1, 9 } },
      { batch = { 1, 3 }, seq = 6 } } do
      local f = assert(neap.import(file, { dims = dims }))
      assert(neap.export(f, path))
      local graph = core.read_onnx(path).graph
      assert.same({ "batch", "seq", 4 }, graph.inputs[1].dims)
      assert.same({ "batch", "seq", 6 }, graph.outputs[1].dims)
      assert.same({ "batch*seq", 6 }, graph.outputs[2].dims)
      local again = assert(neap.import(path))
      for _, size in ipairs { { 1, 1 }, { 3, 5 }, { 2, 6 } } do
        same(assert(neap.import(file)), again, neap.randn(size[1], size[2], 4))
      end
    end
  end)

  it("say how many numbers there are that the file makes of them", function()
    local f = assert(neap.import(folder:write("in.onnx", counted())))
    assert(neap.export(f, path))
    local again = assert(neap.import(path))
    for _, size in ipairs { { 1, 1 }, { 3, 5 }, { 2, 9 } } do
      local x = neap.randn(size[1], size[2], 4)
      same(f, again, x)
      if peer.is_there() then assert.is_true(f(x):close(peer.run(path, { x = x }).y)) end
    end
    assert.same({ "batch", "seq", 4 }, core.read_onnx(path).graph.outputs[1].dims)
  end)

  it("stand beside sizes that the file fixes", function()
    local f = assert(neap.import(folder:write("in.onnx", mixer(2))))
    assert(neap.export(f, path))
    local graph = core.read_onnx(path).graph
    assert.same({ 2, "seq", 4 }, graph.inputs[1].dims)
    assert.same({ "seq*2", 6 }, graph.outputs[2].dims)
    same(f, assert(neap.import(path)), neap.randn(2, 7, 4))
  end)

  it("are those of an imported model, where that is asked for", function()
    local m = assert(neap.import(folder:write("in.onnx", mixer()), { model = true }))
    assert(neap.export(m, path, { dims = true }))
    assert.same({ "batch", "seq", 4 }, core.read_onnx(path).graph.inputs[1].dims)
    local x = neap.randn(3, 5, 4)
    local want, rows = m(x)
    local got, outputs = assert(neap.import(path))(x), core.read_onnx(path).graph.outputs
    assert.is_true(want:close(got[outputs[1].name]))
    assert.is_true(rows:close(got[outputs[2].name]))
    assert(neap.export(m, path))
    assert.same({ 1, 1, 4 }, core.read_onnx(path).graph.inputs[1].dims)
  end)

  it("are what a caller names, of a model or a net", function()
    local model = nn.Sequential { input = { 5, 4 }, nn.Linear { 4, 8 }, nn.ReLU(),
      nn.Linear { 8, 2 } }
    assert(neap.export(model, path, { dims = { x = { "n", "steps" } } }))
    local graph = core.read_onnx(path).graph
    assert.same({ "n", "steps", 4 }, graph.inputs[1].dims)
    assert.equal("x", graph.inputs[1].name)
    assert.same({ "n", "steps", 2 }, graph.outputs[1].dims)
    local f, x = assert(neap.import(path)), neap.randn(3, 7, 4)
    assert.is_true(model(x):close(f(x), { rtol = 1e-5, atol = 1e-6 }))

    -- A file's inputs are called as the fields are that the model was trained with.
    local Text = nn.module { "Text", init = function(self) self.e = nn.Embedding { 9, 4 } end,
      forward = function(self, ids, scale) return self.e(ids) * scale end }
    local text = Text()
    neap.trainer { model = text, loss = function(y) return y:mean() end,
      optimizer = neap.optim.SGD { lr = 0 } }:step {
      ids = neap.zeros { 2, 3, dtype = "i64" }, scale = neap.ones(2, 1, 1) }
    assert(neap.export(text, path, { dims = { ids = { "n", "steps" }, scale = { "n" } } }))
    graph = core.read_onnx(path).graph
    assert.equal("ids scale", graph.inputs[1].name .. " " .. graph.inputs[2].name)

    local net = neap.net "own"
    net:input("a", { 2, 3 })
    net:input("b", { 3, 4 })
    net:outputs { net:MatMul({ "a", "b" }, "y") }
    local ws <close> = neap.workspace {}
    ws:init(net)
    assert(neap.export(net, path, { workspace = ws,
      dims = { a = { "rows", "inner" }, b = { "inner", false } } }))
    graph = core.read_onnx(path).graph
    assert.same({ "rows", "inner" }, graph.inputs[1].dims)
    assert.same({ "inner", 4 }, graph.inputs[2].dims)
    assert.same({ "rows", 4 }, graph.outputs[1].dims)
    local a, b = neap.randn(5, 6), neap.randn(6, 4)
    assert.is_true(a:matmul(b):close(assert(neap.import(path)) { a = a, b = b }))
  end)

  it("leave open what follows from them in other ways, where no op needs to know it", function()
    local net = neap.net "planes"
    net:input("x", { 1, 2, 8, 8 })
    net:param("w", { 3, 2, 3, 3 }, { "Xavier" })
    net:outputs { net:Relu(net:Conv({ "x", "w" }, "c", { kernel = { 3, 3 } }), "y") }
    local ws <close> = neap.workspace { seed = 1 }
    ws:init(net)
    assert(neap.export(net, path, { workspace = ws, dims = { x = { false, false, "h", "w" } } }))
    local graph = core.read_onnx(path).graph
    assert.same({ 1, 3, false, false }, graph.outputs[1].dims)
    local f = assert(neap.import(path, { dims = { h = 8, w = 8 } }))
    local x = neap.randn(1, 2, 5, 11)
    local want = x:conv(ws:fetch "w", { kernel = { 3, 3 } }):relu()
    assert.is_true(want:close(f(x), { rtol = 1e-5, atol = 1e-6 }))
  end)

  it("are open in ONNX Runtime, too", function()
    if not peer.is_there() then return pending(peer.python .. " has no onnxruntime") end
    local f = assert(neap.import(folder:write("in.onnx", mixer()), { dims = { batch = { 1, 4 },
      seq = { 1, 8 } } }))
    local model = neap.zoo.gpt { layers = 2, width = 32, heads = 2, length = 8, vocabulary = 65 }
    local of_model = folder.path .. "/gpt.onnx"
    assert(neap.export(f, path))
    assert(neap.export(model, of_model, { batch = "n" }))
    for _, size in ipairs { { 1, 1 }, { 3, 8 }, { 2, 5 } } do
      local x = neap.randn(size[1], size[2], 4)
      local want, got = f(x), peer.run(path, { x = x })
      for _, name in ipairs { "y", "rows" } do
        assert.is_true(want[name]:close(got[name], { rtol = 1e-4, atol = 1e-5 }), name)
      end
    end
    local ids = (neap.rand(3, 8) * 65):floor():to "i64"
    local input = core.read_onnx(of_model).graph.inputs[1].name
    local _, logits = next(peer.run(of_model, { [input] = ids }))
    assert.is_true(model(ids):close(logits, { rtol = 1e-4, atol = 1e-4 }))
  end)

  it("are refused where numbers or ops of the net depend on them", function()
    local cut = kit.model { nodes = {
      kit.node("Shape", { "x" }, { "size" }),
      kit.node("Slice", { "size", "zero", "one" }, { "n" }),
      kit.node("Slice", { "table", "zero", "n" }, { "part" }),
      kit.node("Add", { "x", "part" }, { "y" }),
    }, tensors = { kit.tensor { name = "table", dims = { 40 }, floats = floats(40) },
      ints("zero", { 0 }), ints("one", { 1 }) },
      inputs = { kit.value("x", { "n" }) }, outputs = { kit.value("y", { "n" }) } }
    local f = assert(neap.import(folder:write("in.onnx", cut)))
    local ok, message, code = neap.export(f, path)
    assert.is_nil(ok)
    assert.equal("data", code)
    assert.matches("numbers of \".*\" depend on n", message)

    local model = nn.Sequential { input = { 4 }, nn.Linear { 4, 2 } }
    local function refused(why, dims)
      local fine, err = pcall(neap.export, model, path, { dims = dims })
      assert.is_false(fine)
      assert.matches(why, tostring(err))
    end
    refused("dims has \"z\", the net's inputs are x", { z = { "n" } })
    refused("dims.x expects a list of at most 2 names", { x = { "a", "b", "c" } })
    refused("dims.x: a name, or false, is expected, got 3", { x = { 3 } })
    refused("dims = true is for models of files", true)
    refused("\"n\" is 1, and 4 in \"x\"", { x = { "n", "n" } })
    local fine, err = pcall(neap.export, model, folder.path .. "/m.safetensors", { dims = true })
    assert.is_false(fine)
    assert.matches("dims is for .onnx files", tostring(err))
  end)
end)
