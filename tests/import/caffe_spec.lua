-- neap.import of Caffe's nets that this file writes: what comes out, what is said of what is wrong.
local neap = require "neap"
local kit = require "import.caffe_kit"
local netfile = require "neap.net.file"
local support = require "support"

local function t(numbers) return neap.tensor(numbers) end

--- The import fails by the file, with a text that has `why` in it.
local function refused(text, why, o)
  local f, message, code = kit.import(text, o)
  assert.is_nil(f)
  assert.equal("data", code)
  assert.matches(why, message)
end

local fc = [[
layer { name: "fc" type: "InnerProduct" bottom: "x" top: "y"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "act" type: "ReLU" bottom: "y" top: "y" }
]]
local fc_weights = { kit.blob({ 2, 3 }, { 1, 2, 3, -1, -1, -1 }), kit.blob({ 2 }, { 0.5, 0 }) }

describe("a net of Caffe's", function()
  it("is a function with a net, by its weights' file", function()
    local f = assert(kit.import(kit.input("x", 1, 3) .. fc,
      { weights = kit.weights { { "fc", table.unpack(fc_weights) } } }))
    assert.same({ { 6.5, 0 } }, f(t { { 1, 1, 1 } }):totable())
    assert.equal("parameter", f.net:blob "fc.weight".role)
    assert.same({ "y" }, f.net:outputs())
    assert.same({}, f.notes)
  end)

  it("may be of the first formats: enums, four sizes of a blob, input_dim", function()
    local text = [[input: "x" input_dim: 1 input_dim: 3 input_dim: 1 input_dim: 1
      layers { name: "fc" type: INNER_PRODUCT bottom: "x" top: "y" blobs_lr: 1 blobs_lr: 2
        weight_decay: 1 weight_decay: 0 inner_product_param { num_output: 2 } }
      layers { name: "act" type: RELU bottom: "y" top: "y" }]]
    local old = { old = true }
    local f = assert(kit.import(text, { weights = kit.weights({ { "fc",
      kit.blob({ 1, 1, 2, 3 }, { 1, 2, 3, -1, -1, -1 }, old),
      kit.blob({ 1, 1, 1, 2 }, { 0.5, 0 }, old) } }, true) }))
    assert.same({ { 6.5, 0 } }, f(t { { { { 1 } }, { { 1 } }, { { 1 } } } }):totable())
  end)

  it("is a module with model = true, whose parameters have the layers' names", function()
    local m = assert(kit.import(kit.input("x", 4, 3) .. fc, { model = true,
      weights = kit.weights { { "fc", table.unpack(fc_weights) }, { "other", fc_weights[2] } } }))
    assert.same({ { 1, 2, 3 }, { -1, -1, -1 } }, m:param "fc.weight".data:totable())
    assert.same({ { 6.5, 0 } }, m(t { { 1, 1, 1 } }):totable())
    assert.matches("that the net has not: other", m.notes[1])
  end)

  it("is refused weights that are not its own", function()
    local text = kit.input("x", 1, 3) .. fc
    refused(text, 'layer "fc", blob 0 has shape %(3,2%), the net\'s "weight" %(2,3%)',
      { weights = kit.weights { { "fc", kit.blob({ 3, 2 }, { 1, 2, 3, 4, 5, 6 }),
        fc_weights[2] } } })
    refused(text, 'layer "fc" has 1 blobs, the net\'s 2',
      { weights = kit.weights { { "fc", fc_weights[1] } } })
    refused(text, "6 elements are claimed, 5 are there", { weights = kit.weights { { "fc",
      kit.blob({ 2, 3 }, { 1, 2, 3, 4, 5 }), fc_weights[2] } } })
  end)

  it("names all the layers that Neap lacks, with their lines", function()
    refused(kit.input("x", 1, 3) .. 'layer { type: "Nothing" name: "a" bottom: "x" top: "a" }\n'
      .. fc .. 'layer { type: "Python" name: "b" bottom: "a" top: "b" }',
      'Neap has no Nothing %(layer "a", line 2%), Python %(layer "b", line 6%)')
    assert.is_truthy(kit.import(kit.input("x", 1, 3) .. fc
      .. 'layer { type: "Python" name: "b" bottom: "y" top: "b" }', { without = { "b" } }))
  end)

  it("reads all that is said, or names the line", function()
    local function with(text) return kit.input("x", 1, 3) .. fc .. text end
    refused(with 'layer { name: "p" type: "ReLU" bottom: "y" top: "p"\n relu_param { slope: 1 } }',
      "m.prototxt:6: nothing reads slope of relu_param")
    refused(with 'layer { name: "p" type: "Pooling" bottom: "y" top: "p" }',
      'm.prototxt:5: layer "p" %(Pooling%): a bottom of shape')
    refused(kit.input("x", 1, 3, 8, 8) .. 'layer { name: "c" type: "Convolution" bottom: "x" \
      top: "c"\n convolution_param { num_output: 4\n kernal_size: 3 } }',
      "kernel_size is missing; line 5 has kernal_size, which nothing reads")
    refused(with 'layer { name: "p" type: "ReLU" bottom: "z" top: "p" }',
      'bottom "z" is the top of no layer before this one')
    refused(with 'layer { name: "p" type: "ReLU" bottom: "x" top: "y" }',
      'top "y" is another layer\'s already, and is not its bottom 1')
    refused(with 'layer { type: "Softmax" bottom: "y" top: "p" softmax_param { axis: 7 } }',
      "axis 7 is out of range")
    refused(with 'layer { name: "p" type: "Eltwise" bottom: "y" bottom: "x" top: "p" }',
      "bottoms of shapes %(1,2%) and %(1,3%)")
    refused(with 'layer { name: 3 type: "ReLU" }', "name of layer expects a text in quotes")
    refused(with 'layer { name: "q" ', "m.prototxt:5: the \"{\" of line 5 has no \"}\"")
    refused("x: ", "a value is expected, the text ends")
    refused("", "the file has no layer")
  end)

  it("takes options of its own kind alone, and names that it has", function()
    local text = kit.input("x", 1, 3) .. fc
    assert.error_matches(function() kit.import(text, { dims = {} }) end,
      "dims is for .onnx and .tflite files")
    assert.error_matches(function() kit.import(text, { map = "r" }) end,
      "map is for .safetensors files")
    assert.error_matches(function() kit.import(text, { shapes = { z = { 1 } } }) end,
      'shapes has "z", the file\'s inputs are x')
    refused(text, 'the net has no layer "fcc", did you mean "fc"', { without = { "fcc" } })
    local f = assert(kit.import(text, { shapes = { x = { 5, 3 } } }))
    assert.same({ 5, 3 }, f.net:inputs()[1].shape)
  end)

  it("names blobs after tops; those that are written over after the layer that does", function()
    local f = assert(kit.import(kit.input("x", 1, 3) .. fc))
    local text = f.net:text()
    assert.matches("\ny = Relu%(y%.before_act%)", text)
  end)

  it("has the layers of a phase, by include and exclude rules", function()
    local text = kit.input("x", 1, 3) .. fc .. [[
      layer { name: "a" type: "Power" bottom: "y" top: "a" power_param { scale: 2 }
        include { phase: TRAIN } }
      layer { name: "b" type: "Power" bottom: "y" top: "b" power_param { scale: 3 }
        exclude { phase: TRAIN } }
      layer { name: "c" type: "Power" bottom: "y" top: "c" power_param { scale: 3 }
        include { stage: "deploy" not_stage: "old" } include { min_level: 2 } }]]
    local function outputs(o) return assert(kit.import(text, o)).net:outputs() end
    assert.same({ "b" }, outputs())
    assert.same({ "a" }, outputs { phase = "TRAIN" })
    assert.same({ "b", "c" }, outputs { stages = { "deploy" } })
    assert.same({ "b" }, outputs { stages = { "deploy", "old" } })
    assert.same({ "b", "c" }, outputs { level = 2 })
  end)

  it("refuses a layer whose parameters have another shape in each phase, as a module", function()
    local function layer(phase, n)
      return ([[layer { name: "a" type: "InnerProduct" bottom: "x" top: "y"
        include { phase: %s } inner_product_param { num_output: %d } }
        ]]):format(phase, n)
    end
    local text = kit.input("x", 1, 3) .. layer("TRAIN", 3) .. layer("TEST", 5)
    refused(text, 'layer "a".*"weight" has shape %(3,3%) in one phase, and %(5,3%) in the other',
      { model = true })
    assert.same({ 1, 5 }, assert(kit.import(text, { phase = "TEST", model = true }))(
      neap.ones { 1, 3 }).shape)
  end)

  it("leaves out a phase whose bottoms are not there, and no layer that is wrong", function()
    local function of_train(layer)
      return kit.input("x", 1, 3) .. fc .. layer:gsub("}$", "include { phase: TRAIN } }")
    end
    local m = assert(kit.import(of_train [[layer { name: "loss" type: "SoftmaxWithLoss"
      bottom: "y" bottom: "label" top: "loss" }]], { model = true }))
    assert.matches('phase TRAIN is left out: .*bottom "label" is the top of no layer', m.notes[1])
    local ok, message, code = kit.import(of_train [[layer { name: "part" type: "Slice"
      bottom: "y" top: "a" top: "b" slice_param { axis: 7 } }]], { model = true })
    assert.is_nil(ok)
    assert.equal("data", code)
    assert.matches('layer "part" %(Slice%): axis 7 is out of range', message)
  end)

  it("shares parameters of one name, of one shape", function()
    local two = kit.input("x", 1, 3) .. [[
      layer { name: "p" type: "InnerProduct" bottom: "x" top: "p" param { name: "w" }
        inner_product_param { num_output: 3 bias_term: false } }
      layer { name: "q" type: "InnerProduct" bottom: "p" top: "q" param { name: "w" }
        inner_product_param { num_output: %d bias_term: false } }]]
    local m = assert(kit.import(two:format(3), { model = true }))
    local names = {}
    for name in m:parameters() do names[#names + 1] = name end
    assert.same({ "p.weight" }, names)
    refused(two:format(4),
      'm.prototxt:4: layer "q".*parameter "w" has shape %(4,3%), and %(3,3%) in layer "p"')
  end)

  it("keeps the bytes that its mem_param says", function()
    local folder <close> = kit.folder()
    local path = folder:write("m.prototxt", 'mem_param { optimize_test: true exclude_blob: "h" }\n'
      .. kit.input("x", 8, 3) .. fc .. [[
      layer { name: "h" type: "Sigmoid" bottom: "y" top: "h" }
      layer { name: "o" type: "TanH" bottom: "h" top: "o" }]])
    local file = netfile.load(path)
    local plan = netfile.plan(file, {}, netfile.memory(file, {}))
    local region = {}
    for _, row in ipairs(plan:values()) do region[row.blob] = row.region end
    assert.equal("io", region.h)
    local off = netfile.load(folder:write("n.prototxt", "mem_param { }\n" .. kit.input("x", 8, 3)
      .. fc))
    assert.is_false(off.mem_param.optimize_test)
  end)

  it("has the batch of its file, or of the command line, and as a net what inputs say", function()
    local folder <close> = kit.folder()
    local path = folder:write("m.prototxt", kit.input("x", 7, 3) .. fc)
    assert.equal(7, netfile.load(path).batch)
    assert.equal(3, netfile.load(path .. ":3").batch)
    local two = netfile.load(folder:write("n.prototxt", kit.input("x", 7, 3) .. kit.input("z", 2)
      .. fc .. 'layer { name: "s" type: "Silence" bottom: "z" }'))
    assert.is_nil(two.model)
    assert.is_truthy(two.net)
  end)
end)

describe("a data layer of Caffe's", function()
  local data = [[layer { name: "d" type: "Data" top: "data" top: "label"
    data_param { source: "%s" batch_size: 6 } transform_param { crop_size: %d } }
    layer { name: "fc" type: "InnerProduct" bottom: "data" top: "y"
      inner_product_param { num_output: 2 } }
    layer { name: "l" type: "SoftmaxWithLoss" bottom: "y" bottom: "label" top: "l" }]]

  it("is inputs, of sizes that the file says or that are asked for", function()
    local f = assert(kit.import(data:format("some_lmdb", 5)))
    assert.same({ 6, 3, 5, 5 }, f.net:inputs()[1].shape)
    assert.equal("i64", f.net:inputs()[2].dtype)
    assert.matches("3 channels are taken for granted", f.notes[1])
    f = assert(kit.import(data:format("my/mnist_lmdb", 0)))
    assert.same({ 6, 1, 28, 28 }, f.net:inputs()[1].shape)
    local _, message = kit.import(data:format("some_lmdb", 0))
    assert.matches('m.prototxt:1: layer "d" %(Data%): the file does not say', message)
    f = assert(kit.import(data:format("some_lmdb", 0), { shapes = { data = { 2, 4 } } }))
    assert.same({ 2 }, f.net:inputs()[2].shape)
  end)

  it("makes of pixels what its transform_param says", function()
    local text = [[layer { name: "d" type: "Data" top: "data" top: "label" data_param {
      source: "x" batch_size: 1 } transform_param { crop_size: 2 scale: 0.5 mean_value: 1
      mirror: %s } }
      layer { name: "a" type: "AbsVal" bottom: "data" top: "a" }
      layer { name: "s" type: "Silence" bottom: "label" }]]
    local x = t { { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 }, { 13, 14, 15, 16 } } } }
    local m = assert(kit.import(text:format "false", { model = true,
      shapes = { data = { 1, 1, 2, 2 } } }))
    assert.same({ { { { 2.5, 3 }, { 4.5, 5 } } } }, m:transform "TEST"(x):totable())
    local mirrored = assert(kit.import(text:format "true", { model = true,
      shapes = { data = { 1, 1, 2, 2 } } }))
    local seen = {}
    for _ = 1, 40 do
      local y = mirrored:transform "TRAIN"(x)
      seen[y:at(1, 1, 1, 1) < y:at(1, 1, 1, 2)] = true
      assert.equal(2, y.shape[4])
    end
    assert.same({ [true] = true, [false] = true }, seen)
  end)

  it("takes the mean of a file off", function()
    local folder <close> = kit.folder()
    local mean = folder:write("mean.binaryproto", kit.blob({ 1, 1, 2, 2 }, { 1, 2, 3, 4 },
      { old = true }))
    local m = assert(kit.import(([[layer { name: "d" type: "MemoryData" top: "data" top: "label"
      memory_data_param { batch_size: 1 channels: 1 height: 2 width: 2 }
      transform_param { mean_file: "%s" } }
      layer { name: "a" type: "AbsVal" bottom: "data" top: "a" }
      layer { name: "s" type: "Silence" bottom: "label" }]]):format(mean), { model = true }))
    assert.same({ { { { 0, 0 }, { 0, 6 } } } },
      m:transform "TEST"(t { { { { 1, 2 }, { 3, 10 } } } }):totable())
  end)
end)

describe("the command line", function()
  local folder

  before_each(function() folder = kit.folder() end)
  after_each(function() getmetatable(folder).__close(folder) end)

  local function neap_says(format, ...)
    return support.shell(("NEAP_DB=off %s " .. format .. " 2>&1 </dev/null"):format(
      support.program, ...))
  end

  it("plans a net, and says what its mem_param does", function()
    local path = folder:write("m.prototxt", 'mem_param { optimize_test: true exclude_blob: "h" }\n'
      .. kit.input("x", 8, 3) .. fc .. 'layer { type: "Sigmoid" bottom: "y" top: "h" }\n'
      .. 'layer { type: "TanH" bottom: "h" top: "o" }')
    local text = neap_says("plan %s", path)
    assert.matches("inference, batch 8", text)
    assert.matches("mem_param  of the file: testing is planned, bytes of their own have h\n", text)
    assert.matches("batch 2:", (neap_says("plan %s:2 --train", path)))
  end)

  it("runs a net once, by random numbers or a file's", function()
    local path = folder:write("m.prototxt", kit.input("x", 2, 3) .. fc)
    local text, code = neap_says("run %s", path)
    assert.equal(0, code)
    assert.matches("input x %(2,3%): random numbers from 0 to 1", text)
    assert.matches("y f32 %(2,2%)", text)
    assert.matches("cannot be opened", (neap_says "run no/such.prototxt"))
  end)

  it("trains as a solver says, where it has the data", function()
    folder:write("n.prototxt", [[layer { name: "d" type: "Data" top: "data" top: "label"
      data_param { source: "mnist_lmdb" batch_size: 64 } transform_param { scale: 0.0039 } }
      layer { name: "fc" type: "InnerProduct" bottom: "data" top: "y"
        inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
      layer { name: "l" type: "SoftmaxWithLoss" bottom: "y" bottom: "label" top: "l" }]])
    local path = folder:write("s.prototxt", 'net: "n.prototxt" base_lr: 0.01 max_iter: 9')
    assert.matches("arena", (neap_says("plan %s --train", path)))
    assert.matches('run: "x" is none of net=PATH', (neap_says("run %s x", path)))
    if not neap.data.find "mnist/train-images-idx3-ubyte.gz" then
      return pending "MNIST is absent"
    end
    local text, code = neap_says("run %s steps=3", path)
    assert.equal(0, code, text)
    assert.matches("epoch 1 .*loss", text)
  end)
end)
