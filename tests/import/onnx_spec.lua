-- neap.import of ONNX files that this file writes: what comes out, what is said of what is wrong.
local neap = require "neap"
local kit = require "import.onnx_kit"
local support = require "support"

--- Imports a model of these bytes from a folder of its own.
local function import(bytes, o)
  local folder <close> = kit.folder()
  return neap.import(folder:write("m.onnx", bytes), o)
end

--- y = relu(x w + b), for any batch.
local function little(more)
  local g = {
    nodes = { kit.node("MatMul", { "x", "fc.weight" }, { "h" }, nil, "/fc/MatMul"),
      kit.node("Add", { "h", "fc.bias" }, { "s" }, nil, "/fc/Add"),
      kit.node("Relu", { "s" }, { "y" }) },
    tensors = { kit.tensor { name = "fc.weight", dims = { 2, 3 }, floats = { 1, 2, 3, 4, 5, 6 } },
      kit.tensor { name = "fc.bias", dims = { 3 }, floats = { 0, -100, 1 } } },
    inputs = { kit.value("x", { "batch", 2 }) }, outputs = { kit.value("y", { "batch", 3 }) },
  }
  for key, value in pairs(more or {}) do g[key] = value end
  return kit.model(g)
end

describe("an ONNX file", function()
  it("is a function with a net, whose weights are parameters", function()
    local f = assert(import(little(), { dims = { batch = 2 } }))
    assert.same({ { 5, 0, 10 }, { 9, 0, 16 } }, f(neap.tensor { { 1, 1 }, { 1, 2 } }):totable())
    assert.equal("parameter", f.net:blob "fc.weight".role)
    assert.same({ 2, 2 }, f.net:inputs()[1].shape)
    assert.same({ "y" }, f.net:outputs())
    assert.same({}, f.notes)
  end)

  it("has its weights once in memory, from the reading on, and they can be trained", function()
    local n = 1 << 9
    local bytes = kit.model { nodes = { kit.node("MatMul", { "x", "w" }, { "y" }) },
      tensors = { kit.tensor { name = "w", dims = { n, n }, raw = ("\0"):rep(4 * n * n) } },
      inputs = { kit.value("x", { 1, n }) }, outputs = { kit.value("y", { 1, n }) } }
    collectgarbage()
    neap.reset_peak()
    local before = neap.memory().high
    local f = assert(import(bytes))
    assert.is_true(neap.memory().high - before < 1.5 * 4 * n * n)
    f.workspace:feed("w", neap.ones(n, n))
    assert.equal(n, f(neap.ones(1, n))[{ 1, 1 }])
    local g = f.net:gradient(f.net:Mean("y", "mean"))
    f.net:Sgd({ "w", g.w, f.net:const(1.0) }, { "w" })
    f.workspace:run(f.net, { x = neap.ones(1, n) })
    assert.is_true(math.abs(f.workspace:fetch "w"[{ 1, 1 }] - (1 - 1 / n)) < 1e-6)
  end)

  it("has its named dimensions taken as 1, and says so", function()
    local f = assert(import(little()))
    assert.same({ 1, 2 }, f.net:inputs()[1].shape)
    assert.matches("dimension 1 %(batch%) is taken as 1", f.notes[1])
  end)

  it("runs at other sizes where the file leaves dimensions open, with the same weights", function()
    -- An LSTM of both directions, whose first states have the batch, then rows of all steps.
    local function weights(name, dims)
      local n, list = 1, {}
      for _, d in ipairs(dims) do n = n * d end
      for i = 1, n do list[i] = (i * 37 % 19 - 9) / 10 end
      return kit.tensor { name = name, dims = dims, floats = list }
    end
    local bytes = kit.model { nodes = {
      kit.node("LSTM", { "x", "w", "r", "b" }, { "h" }, { direction = "bidirectional",
        hidden_size = 2 }), kit.node("Transpose", { "h" }, { "t" }, { perm = { 2, 0, 1, 3 } }),
      kit.node("Shape", { "x" }, { "size" }), kit.node("Gather", { "size", "one" }, { "n" }),
      kit.node("Concat", { "n", "rest" }, { "rows" }, { axis = 0 }),
      kit.node("Reshape", { "t", "rows" }, { "y" }) },
      tensors = { weights("w", { 2, 8, 3 }), weights("r", { 2, 8, 2 }), weights("b", { 2, 16 }),
        kit.tensor { name = "one", elem = 7, dims = { 1 }, ints = { 1 } },
        kit.tensor { name = "rest", elem = 7, dims = { 1 }, ints = { -1 } } },
      inputs = { kit.value("x", { "steps", "batch", 3 }) },
      outputs = { kit.value("y", { "batch", "width" }) } }
    local folder <close> = kit.folder()
    local path = folder:write("m.onnx", bytes)
    local f = assert(neap.import(path))
    local function double_first_weight(g)
      for _, blob in ipairs(g.net:_blobs()) do
        if blob.role == "parameter" then
          return g.workspace:feed(blob.name, g.workspace:fetch(blob.name) * 2)
        end
      end
    end
    for round = 1, 2 do
      for _, size in ipairs { { 1, 1 }, { 4, 2 }, { 5, 3 }, { 4, 2 } } do
        local own = assert(neap.import(path, { dims = { steps = size[1], batch = size[2] } }))
        if round == 2 then double_first_weight(own) end
        local x = neap.randn(size[1], size[2], 3)
        local y = f(x)
        assert.same({ size[2], size[1] * 4 }, y.shape)
        assert.is_true(y:close(own(x), { atol = 1e-6 }))
      end
      double_first_weight(f) -- nets of all sizes see it
    end
    assert.error_matches(function() f(neap.randn(1, 1, 4)) end, "4")
    folder:write("m.onnx", "damaged since")
    assert.is_table(f(neap.randn(4, 2, 3)).shape)
    assert.error_matches(function() f(neap.randn(9, 2, 3)) end, "at other sizes than those")
  end)

  it("is told by its path's ending, which says what else there is", function()
    local folder <close> = kit.folder()
    local ok, message, code = neap.import(folder:write("m.foo", "no tensors"))
    assert.is_nil(ok)
    assert.matches("files of other kinds end in .onnx, .tflite or .prototxt", message, 1, true)
    assert.equal("data", code)
    assert.error_matches(function() neap.export(neap.zoo.lenet(), folder.path .. "/m.foo") end,
      "ends in %.safetensors or %.onnx")
    for _, batch in ipairs { "", " " } do
      assert.error_matches(function()
        neap.export(neap.zoo.lenet(), folder.path .. "/m.onnx", { batch = batch })
      end, "an integer of at least 1 or a name")
    end
  end)

  it("resizes by factors of f32, so that ten times 0.7 is seven", function()
    for _, op in ipairs { "Resize", "Upsample" } do
      local f = assert(import(kit.model({ nodes = { kit.node(op,
          op == "Resize" and { "x", "", "s" } or { "x", "s" }, { "y" }, { mode = "nearest" }) },
        tensors = { kit.tensor { name = "s", dims = { 4 }, floats = { 1, 1, 0.7, 2 } } },
        inputs = { kit.value("x", { 1, 1, 10, 1 }) }, outputs = { kit.value("y") } },
        op == "Resize" and 13 or 9)))
      assert.same({ 1, 1, 7, 2 }, f(neap.ones(1, 1, 10, 1)).shape)
    end
  end)

  it("pools no regions at all", function()
    local f = assert(import(kit.model { nodes = { kit.node("RoiAlign", { "x", "rois", "i" },
        { "y" }, { output_height = 2, output_width = 3, sampling_ratio = 2 }) },
      inputs = { kit.value("x", { 1, 4, 5, 5 }), kit.value("rois", { 0, 4 }),
        kit.value("i", { 0 }, 7) }, outputs = { kit.value("y") } }))
    assert.same({ 0, 4, 2, 3 }, f { x = neap.ones(1, 4, 5, 5), rois = neap.zeros(0, 4),
      i = neap.zeros { 0, dtype = "i64" } }.shape)
  end)

  it("is refused one dimension of two sizes, by its name", function()
    local f = assert(import(kit.model { nodes = { kit.node("Add", { "a", "b" }, { "y" }) },
      inputs = { kit.value("a", { "n", 2 }), kit.value("b", { "n", 2 }) },
      outputs = { kit.value("y", { "n", 2 }) } }))
    assert.error_matches(function() f { a = neap.ones(3, 2), b = neap.ones(4, 2) } end,
      'dimension "n" is 3 in "a" and 4 in "b"')
  end)

  it("is told which sizes were assumed where they do not fit", function()
    local f, message = import(kit.model { nodes = { kit.node("Conv", { "x", "w" }, { "y" }) },
      tensors = { kit.tensor { name = "w", dims = { 1, 1, 3 }, floats = { 1, 2, 3 } } },
      inputs = { kit.value("x", { 1, 1, "samples" }) }, outputs = { kit.value "y" } })
    assert.is_nil(f)
    assert.matches("window of 3 .*dimension 3 %(samples%) is taken as 1, unless dims", message)
  end)

  it("is refused names in the options that it does not have", function()
    for option, names in pairs { dims = "batch", shapes = "x", constants = "x" } do
      assert.error_matches(function() import(little(), { [option] = { foo = 3 } }) end,
        ('%s has "foo", the file has %s'):format(option, names))
    end
  end)

  it("has its own shapes where the command line says no batch", function()
    local load = require("neap.net.file").load
    local folder <close> = kit.folder()
    local function load_of(inputs, suffix)
      local nodes = { kit.node("Reshape", { "x", "s" }, { "y" }) }
      if #inputs > 1 then nodes[2] = kit.node("Relu", { "z" }, { "r" }) end
      local outputs = { kit.value("y", { 8, 3 }), #inputs > 1 and kit.value("r") or nil }
      return load(folder:write("m.onnx", kit.model { inputs = inputs, outputs = outputs,
        nodes = nodes, tensors = { kit.tensor { name = "s", elem = 7, dims = { 2 },
          ints = { -1, 3 } } } }) .. (suffix or ""))
    end
    local function shapes(file)
      local out = {}
      for i, input in ipairs(require("neap.net.file").build(file, {}):inputs()) do
        out[i] = input.shape
      end
      return out
    end
    local fixed, named = kit.value("x", { 4, 6 }), kit.value("x", { "n", 6 })
    assert.same({ { 4, 6 } }, shapes(load_of { fixed }))
    assert.same({ { 1, 6 } }, shapes(load_of { named }))
    assert.same({ { 5, 6 } }, shapes(load_of({ named }, ":5")))
    assert.same({ { 4, 6 }, { 2 } }, shapes(load_of { fixed, kit.value("z", { 2 }) }))
    assert.same({ { 4, 6 }, {} }, shapes(load_of { fixed, kit.value("z", {}) }))
  end)

  it("is a module that can be trained", function()
    local m = assert(import(little(), { model = true }))
    assert.same({ 2, 3 }, m:param "fc.weight".shape)
    assert.same({ { 5, 0, 10 } }, m(neap.tensor { { 1, 1 } }):totable())
    local t = neap.trainer { model = m, loss = neap.nn.MseLoss(),
      optimizer = neap.optim.SGD { lr = 0.01 } }
    local x, y = neap.tensor { { 1, 1 }, { 2, 1 }, { 0, 1 } }, neap.zeros(3, 3)
    local first = t:step { x = x, y = y }.loss
    for _ = 1, 20 do t:step { x = x, y = y } end
    assert.is_true(t:step { x = x, y = y }.loss < first / 2)
  end)

  it("is folded where it computes shapes", function()
    local g = { inputs = { kit.value("x", { "n", 4 }) },
      outputs = { kit.value("y", { "n", 2, 2 }) },
      tensors = { kit.tensor { name = "two", elem = 7, dims = { 2 }, ints = { 2, 2 } },
        kit.tensor { name = "zero", elem = 7, dims = { 1 }, ints = { 0 } } },
      nodes = { kit.node("Shape", { "x" }, { "s" }),
        kit.node("Gather", { "s", "zero" }, { "n" }, { axis = 0 }),
        kit.node("Concat", { "n", "two" }, { "shape" }, { axis = 0 }),
        kit.node("Reshape", { "x", "shape" }, { "y" }) } }
    local f = assert(import(kit.model(g), { dims = { n = 3 } }))
    local types = {}
    for i, op in ipairs(f.net:ops()) do types[i] = op.type end
    assert.same({ "Reshape" }, types)
    assert.same({ 3, 2, 2 }, f(neap.rand(3, 4)).shape)
  end)

  it("says which input decides a shape, and takes it as a constant", function()
    local g = { inputs = { kit.value("x", { 4 }), kit.value("shape", { 2 }, 7) },
      outputs = { kit.value("y") }, nodes = { kit.node("Reshape", { "x", "shape" }, { "y" }) } }
    local f, message, code = import(kit.model(g))
    assert.is_nil(f)
    assert.equal("data", code)
    assert.matches('node "y" %(Reshape%): its input 2 must be known.*shape', message)
    f = assert(import(kit.model(g), { constants = { shape = neap.tensor({ 2, 2 }, "i64") } }))
    assert.same({ { 1, 2 }, { 3, 4 } }, f(neap.tensor { 1, 2, 3, 4 }):totable())
  end)

  it("has a pool's indices in the whole tensor, by rows or by columns", function()
    local x = neap.tensor({ 1, 2, 4, 3, 8, 7, 5, 6 }):reshape(2, 1, 2, 2)
    for order, want in pairs { [0] = { 2, 4 }, { 1, 4 } } do
      local f = assert(import(kit.model({ inputs = { kit.value("x", { 2, 1, 2, 2 }) },
        outputs = { kit.value("y", { 2, 1, 1, 1 }), kit.value("at", { 2, 1, 1, 1 }, 7) },
        nodes = { kit.node("MaxPool", { "x" }, { "y", "at" },
          { kernel_shape = { 2, 2 }, storage_order = order }) } })))
      assert.same(want, f(x).at:reshape(-1):totable())
    end
  end)

  it("has exact remainders, and steps of any size", function()
    local inf, nan = math.huge, 0 / 0
    local cases = { { 5, inf, 5 }, { -5, inf, -5 }, { 5, -inf, 5 }, { inf, 2, nan },
      { 1e30, 3, math.fmod(string.unpack("f", string.pack("f", 1e30)), 3) }, { -7.5, 2, -1.5 },
      { 7.5, -2, 1.5 }, { 1, 0, nan } }
    local a, b = {}, {}
    for i, c in ipairs(cases) do a[i], b[i] = c[1], c[2] end
    local f = assert(import(kit.model { inputs = { kit.value("a", { #a }), kit.value("b", { #a }) },
      outputs = { kit.value("y", { #a }) },
      nodes = { kit.node("Mod", { "a", "b" }, { "y" }, { fmod = 1 }) } }))
    local got = f { a = neap.tensor(a), b = neap.tensor(b) }:totable()
    for i, c in ipairs(cases) do
      assert.is_true(got[i] == c[3] or c[3] ~= c[3] and got[i] ~= got[i], i .. ": " .. got[i])
    end
    for step, want in pairs { [math.maxinteger] = { 2 }, [math.mininteger] = { 2 }, [2] = { 2, 4 },
      [-1] = { 2, 1 } } do
      local function one(name, i)
        return kit.tensor { name = name, elem = 7, dims = { 1 }, ints = { i } }
      end
      f = assert(import(kit.model { inputs = { kit.value("x", { 4 }) }, outputs = { kit.value "y" },
        tensors = { one("from", 1), one("axis", 0), one("step", step),
          one("to", step > 0 and math.maxinteger or math.mininteger) },
        nodes = { kit.node("Slice", { "x", "from", "to", "axis", "step" }, { "y" }) } }))
      assert.same(want, f(neap.tensor { 1, 2, 3, 4 }):totable())
    end
  end)

  it("has values in the order of their first appearance, where it asks for that", function()
    local f = assert(import(kit.model({
      tensors = { kit.tensor { name = "t", elem = 7, dims = { 5 }, ints = { 3, 1, 2, 1, 3 } } },
      outputs = { kit.value("y", { 3 }, 7), kit.value("n", { 3 }, 7) },
      nodes = { kit.node("Unique", { "t" }, { "y", "", "", "n" }, { sorted = 0 }) } })))
    local out = f {}
    assert.same({ 3, 1, 2 }, out.y:totable())
    assert.same({ 2, 2, 1 }, out.n:totable())
  end)

  it("inserts into sequences in front of a position, counted from the end too", function()
    for _, case in ipairs { { -1, { 1, 3, 2 } }, { -2, { 3, 1, 2 } }, { 0, { 3, 1, 2 } },
      { 2, { 1, 2, 3 } } } do
      local f = assert(import(kit.model {
        nodes = { kit.node("SequenceConstruct", { "a", "b" }, { "s" }),
          kit.node("SequenceInsert", { "s", "c", "at" }, { "t" }),
          kit.node("ConcatFromSequence", { "t" }, { "y" }, { axis = 0 }) },
        tensors = { kit.tensor { name = "at", elem = 7, dims = {}, ints = { case[1] } } },
        inputs = { kit.value("a", { 1 }), kit.value("b", { 1 }), kit.value("c", { 1 }) },
        outputs = { kit.value("y", { 3 }) } }))
      assert.same(case[2], f { a = neap.tensor { 1 }, b = neap.tensor { 2 },
        c = neap.tensor { 3 } }:totable())
    end
  end)

  it("casts integers to fewer bits as the low ones", function()
    local f = assert(import(kit.model { nodes = { kit.node("Cast", { "x" }, { "y" }, { to = 2 }) },
      inputs = { kit.value("x", { 3 }, 4) }, outputs = { kit.value("y", { 3 }, 2) } }))
    assert.same({ 44, 255, 7 }, f(neap.tensor({ 300, 65535, 7 }, "u16")):totable())
  end)

  it("has sums of bytes that wrap at 32 bits", function()
    local k = 40000
    local f = assert(import(kit.model {
      inputs = { kit.value("a", { 1, k }, 2), kit.value("b", { k, 1 }, 2) },
      outputs = { kit.value("y", { 1, 1 }, 6) },
      nodes = { kit.node("MatMulInteger", { "a", "b" }, { "y" }) } }))
    local function bytes(value, ...) return neap.full { value = value, dtype = "u8", ... } end
    local a = bytes(255, 1, k)
    assert.same({ { 255 * 255 * k - (1 << 32) } },
      f { a = a, b = bytes(255, k, 1) }:totable())
    assert.same({ { 255 * k } }, f { a = a, b = bytes(1, k, 1) }:totable())
    local g = assert(import(kit.model {
      inputs = { kit.value("x", { 1, k, 1 }, 2), kit.value("w", { 1, k, 1 }, 2) },
      outputs = { kit.value("y", { 1, 1, 1 }, 6) },
      nodes = { kit.node("ConvInteger", { "x", "w" }, { "y" }) } }))
    local x = a:reshape(1, k, 1)
    assert.same({ { { 255 * 255 * k - (1 << 32) } } }, g { x = x, w = x }:totable())
  end)

  it("has a scale of 1 for zeros alone, and their quotient else", function()
    local f = assert(import(kit.model { inputs = { kit.value("x", { 3 }) },
      outputs = { kit.value("y", { 3 }, 2), kit.value("s", {}), kit.value("z", {}, 2) },
      nodes = { kit.node("DynamicQuantizeLinear", { "x" }, { "y", "s", "z" }) } }))
    local out = f(neap.zeros(3))
    assert.equal(1, out.s:item())
    assert.same({ 0, 0, 0 }, out.y:totable())
    out = f(neap.tensor { -1, 0, 254 })
    assert.equal(1, out.s:item())
    assert.equal(1, out.z:item())
    out = f(neap.tensor { 0, 51, 510 })
    assert.equal(2, out.s:item())
  end)

  it("may have its nodes in any order", function()
    local g = { inputs = { kit.value("x", { 2 }) }, outputs = { kit.value("y", { 2 }) },
      nodes = { kit.node("Neg", { "h" }, { "y" }), kit.node("Abs", { "x" }, { "h" }) } }
    assert.same({ -1, -2 }, assert(import(kit.model(g)))(neap.tensor { 1, -2 }):totable())
  end)

  it("is refused with all ops that Neap lacks", function()
    local f, message, code = import(little { nodes = {
      kit.node("Foo", { "x" }, { "a" }, nil, "first"), kit.node("Relu", { "a" }, { "b" }),
      kit.node("Bar", { "b" }, { "y" }) } })
    assert.is_nil(f)
    assert.equal("data", code)
    assert.matches('Neap has no Foo %(node "first"%), Bar %(node "y"%)', message)
  end)

  it("has branches decided at once where the condition is known, else in the run", function()
    local function branch(op)
      return { kind = "graph", kit.graph { nodes = { kit.node(op, { "x" }, { "r" }) },
        outputs = { kit.value("r", { 2 }) } } }
    end
    local choice = kit.node("If", { "c" }, { "y" },
      { then_branch = branch "Neg", else_branch = branch "Abs" })
    local g = { inputs = { kit.value("x", { 2 }), kit.value("c", {}, 9) },
      outputs = { kit.value("y", { 2 }) }, nodes = { choice } }
    local f = assert(import(kit.model(g)))
    local x = neap.tensor { 1, -2 }
    assert.same({ -1, 2 }, f { x = x, c = neap.tensor(true) }:totable())
    assert.same({ 1, 2 }, f { x = x, c = neap.tensor(false) }:totable())
    f = assert(import(kit.model(g), { constants = { c = neap.tensor(true) } }))
    assert.equal("Neg", f.net:ops()[1].type)
  end)

  it("may call functions of its own", function()
    local body = kit.message { { 1, "Twice" }, { 4, "a" }, { 5, "b" }, { 6, "by" },
      { 7, kit.message { { 1, "a" }, { 2, "h" }, { 4, "LeakyRelu" },
        { 5, kit.message { { 1, "alpha" }, { 21, "by" }, { 20, 1 } } } } },
      { 7, kit.node("Add", { "h", "h" }, { "b" }) }, { 10, "own" } }
    local call = kit.message { { 1, "x" }, { 2, "y" }, { 4, "Twice" }, { 7, "own" },
      { 5, kit.attribute("by", 0.5) } }
    local g = { inputs = { kit.value("x", { 2 }) }, outputs = { kit.value("y", { 2 }) },
      nodes = { call } }
    local f = assert(import(kit.model(g, 17, { { 25, body } })))
    assert.same({ 2, -2 }, f(neap.tensor { 1, -2 }):totable())
  end)

  it("reads weights from a file beside it", function()
    local folder <close> = kit.folder()
    folder:write("w.bin", ("\0"):rep(4) .. string.pack("<ffffff", 1, 2, 3, 4, 5, 6))
    local function external(location, offset)
      return little { tensors = { kit.tensor { name = "fc.weight", dims = { 2, 3 }, more = {
        { 14, 1 }, { 13, kit.message { { 1, "location" }, { 2, location } } },
        { 13, kit.message { { 1, "offset" }, { 2, offset } } } } },
        kit.tensor { name = "fc.bias", dims = { 3 }, floats = { 0, 0, 0 } } } }
    end
    local f = assert(neap.import(folder:write("m.onnx", external("w.bin", "4"))))
    assert.same({ { 5, 7, 9 } }, f(neap.tensor { { 1, 1 } }):totable())
    local function refused(location, offset, why)
      local g, message, code = neap.import(folder:write("m.onnx", external(location, offset)))
      assert.is_nil(g)
      assert.is_true(code == "data" or code == "io")
      assert.matches(why, message)
      assert.matches('tensor "fc.weight"', message)
    end
    refused("w.bin", "8", "24 bytes from 8 on, the file has 28")
    refused("w.bin", "-4", "offset is")
    refused("../w.bin", "0", "not in the model's folder")
    refused("a/../../w.bin", "0", "not in the model's folder")
    refused("/etc/passwd", "0", "not in the model's folder")
    refused("none.bin", "0", "No such file")
    os.execute(("ln -s /etc/passwd %s/link"):format(folder.path))
    refused("link", "0", "link out of the model's folder")
  end)

  it("is in memory once while it is read, whichever way it has its numbers", function()
    local status = io.open "/proc/self/status"
    local flags = support.read_file((os.getenv "NEAP_BUILD" or "build") .. "/flags") or ""
    if not status or flags:find("-fsanitize", 1, true) then
      return pending "the most memory that a process has had is not known here"
    end
    status:close()
    -- Weights of 40 MiB, all of which the net reads.
    local folder <close> = kit.folder()
    local n_weight, numbers = 20, string.pack("<f", 0.001):rep(1 << 19)
    folder:write("peak.lua", [[
      local function most()
        return tonumber(io.open "/proc/self/status":read "a":match "VmHWM:%s+(%d+)") / 1024
      end
      local neap = require "neap"
      local before = most()
      local f = assert(neap.import((...)))
      print(most() - before, #f.net:ops())]])
    for _, way in ipairs { "raw", "list" } do
      local tensors, nodes = {}, {}
      for k = 1, n_weight do
        local own = way == "raw" and { raw = numbers } or { more = { { 4, numbers } } }
        own.name, own.dims = "w" .. k, { 1024, 512 }
        tensors[k] = kit.tensor(own)
        nodes[k] = kit.node("MatMul", { "x", own.name }, { "y" .. k })
      end
      nodes[#nodes + 1] = kit.node("Sum", { "y1", "y" .. n_weight }, { "y" })
      local path = folder:write("m.onnx", kit.model { nodes = nodes, tensors = tensors,
        inputs = { kit.value("x", { 1, 1024 }) }, outputs = { kit.value "y" } })
      local out = support.shell(("%s run %s/peak.lua %s"):format(support.program, folder.path,
        path))
      local most, n_op = out:match "^(%S+)%s+(%d+)"
      assert.equal(n_weight + 1, math.tointeger(n_op), out)
      assert.is_true(tonumber(most) < 1.5 * 40, ("%s: %s MiB of 40"):format(way, most))
    end
  end)
end)
