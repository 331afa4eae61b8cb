-- ONNX files that are damaged, or lie: each ends in nil, message, code, and in nothing else.
local neap = require "neap"
local kit = require "import.onnx_kit"

local folder

local function import(bytes) return neap.import(folder:write("m.onnx", bytes)) end

--- The import fails by the file, with a text that has `why` in it.
local function refused(bytes, why)
  local f, message, code = import(bytes)
  assert.is_nil(f)
  assert.is_true(code == "data" or code == "io", code)
  assert.matches(why, message)
end

local function graph(more)
  local g = { nodes = { kit.node("Relu", { "x" }, { "y" }, nil, "act") },
    inputs = { kit.value("x", { 2 }) }, outputs = { kit.value("y", { 2 }) } }
  for key, value in pairs(more or {}) do g[key] = value end
  return g
end

describe("a hostile ONNX file", function()
  before_each(function() folder = kit.folder() end)
  after_each(function() getmetatable(folder).__close(folder) end)

  it("is refused when it is empty, cut, or something else", function()
    refused("", "the file is empty")
    refused("hello, world, this is no model", "m.onnx")
    local whole = kit.model(graph { tensors = { kit.tensor { name = "w", dims = { 2 },
      floats = { 1, 2 } } } })
    assert.is_truthy(import(whole))
    for n = 1, #whole - 1 do
      local f, message = import(whole:sub(1, n))
      assert.is_true(f ~= nil or type(message) == "string")
    end
  end)

  it("is no module without an input", function()
    local path = folder:write("m.onnx", kit.model(graph { inputs = {},
      tensors = { kit.tensor { name = "x", dims = { 2 }, floats = { 1, 2 } } } }))
    local f, message = neap.import(path, { model = true })
    assert.is_nil(f)
    assert.matches("the graph has no input: import it as a net", message)
  end)

  it("is refused, or means something else, when bytes are flipped", function()
    local whole = kit.model(graph { nodes = { kit.node("Conv", { "x", "w" }, { "y" },
      { kernel_shape = { 1, 1 }, auto_pad = "VALID", group = 1 }, "conv") },
      tensors = { kit.tensor { name = "w", dims = { 2, 2, 1, 1 }, floats = { 1, 2, 3, 4 } } },
      inputs = { kit.value("x", { 1, 2, 3, 3 }) } })
    assert.is_truthy(import(whole))
    for i = 1, #whole do
      for _, bit in ipairs { 1, 8, 128 } do
        local byte = string.char(whole:byte(i) ~ bit)
        local f, message = import(whole:sub(1, i - 1) .. byte .. whole:sub(i + 1))
        assert.is_true(f ~= nil or type(message) == "string")
      end
    end
  end)

  it("is refused for dimensions that its bytes do not fill", function()
    local function with(t) return kit.model(graph { tensors = { kit.tensor(t) } }) end
    refused(with { name = "w", dims = { 1 << 40, 1 << 40 }, floats = { 1 } }, "more elements")
    refused(with { name = "w", dims = { 1 << 40 }, floats = { 1 } }, "bytes are claimed, 4 are")
    refused(with { name = "w", dims = { -1 }, floats = { 1 } }, "a dimension of %-1")
    refused(with { name = "w", dims = { 1 << 40 } }, "elements are claimed, 0 are")
    refused(with { name = "w", dims = { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, floats = { 1 } },
      "9 dimensions")
    refused(with { name = "w", dims = { 1 }, elem = 99, floats = { 1 } }, "element type 99")
    refused(with { name = "w", dims = { 0, 1 << 62 }, floats = {} }, "128.0 TiB")
  end)

  it("is refused for messages within messages without end", function()
    local g = kit.graph { nodes = {} }
    for _ = 1, 200 do
      g = kit.graph { nodes = { kit.node("If", { "c" }, { "y" },
        { then_branch = { kind = "graph", g } }) } }
    end
    refused(kit.message { { 1, 8 }, { 7, g } }, "nested too deeply")
    local types = kit.message { { 1, kit.message { { 1, 1 } } } }
    for _ = 1, 300 do types = kit.message { { 9, kit.message { { 1, types } } } } end
    refused(kit.message { { 7, kit.message { { 11, kit.message { { 1, "x" }, { 2, types } } } } } },
      "nested too deeply")
  end)

  it("is refused for a message that comes twice where one may", function()
    local g = kit.graph(graph())
    refused(kit.message { { 1, 8 }, { 7, g }, { 7, g } }, "a field comes twice")
  end)

  it("is refused for a cycle, and for a name that is made twice or never", function()
    refused(kit.model(graph { nodes = { kit.node("Relu", { "b" }, { "a" }, nil, "one"),
      kit.node("Relu", { "a" }, { "b" }, nil, "two"), kit.node("Relu", { "x" }, { "y" }) } }),
      'node "one" %(Relu%): input 1, "b", is made by no node')
    refused(kit.model(graph { nodes = { kit.node("Relu", { "x" }, { "y" }),
      kit.node("Neg", { "x" }, { "y" }, nil, "two") } }), 'node "two" %(Neg%): "y" is made twice')
    refused(kit.model(graph { outputs = { kit.value("z", { 2 }) } }), 'output "z" is made by no')
    refused(kit.model(graph { inputs = { kit.value("x", { 2 }), kit.value("x", { 3 }) } }),
      '"x"')
  end)

  it("is refused for attributes of another kind, and inputs that are missing", function()
    refused(kit.model(graph { nodes = { kit.node("Elu", { "x" }, { "y" }, { alpha = 1 }, "e") } }),
      'node "e" %(Elu%): attribute "alpha" is of kind int, expected float')
    refused(kit.model(graph { nodes = { kit.node("Add", { "x" }, { "y" }, nil, "e") } }),
      'node "e" %(Add%): input 2 is missing')
    refused(kit.model(graph { nodes = { kit.node("Concat", {}, { "y" }, nil, "e") } }),
      'node "e" %(Concat%)')
    refused(kit.model(graph { nodes = { kit.node("Softmax", { "x" }, { "y" }, { axis = 7 }) } }),
      "axis 7 is out of range")
  end)

  it("is refused for words that the standard does not have", function()
    local f32, i32 = { 1, 1, 4, 4 }, 6
    local function case(op, inputs, attr, word, more)
      local names, values = {}, {}
      for i, input in ipairs(inputs) do
        names[i] = "i" .. i
        values[i] = kit.value(names[i], input, input.elem)
      end
      local attrs = { [attr] = word }
      for name, value in pairs(more or {}) do attrs[name] = value end
      refused(kit.model({ inputs = values, outputs = { kit.value("y") },
        nodes = { kit.node(op, names, { "y" }, attrs, "it") } }, 20),
        ('node "it" %%(%s%%): attribute "%s" is "%s", expected '):format(op, attr, word))
    end
    local shift = { 2, elem = 2 }
    case("BitShift", { shift, shift }, "direction", "left")
    case("LSTM", { { 2, 1, 3 }, { 1, 8, 3 }, { 1, 8, 2 } }, "direction", "sideways")
    case("NegativeLogLikelihoodLoss", { { 2, 3 }, { 2, elem = i32 } }, "reduction", "avg")
    for _, op in ipairs { "Conv", "ConvTranspose" } do
      case(op, { f32, f32 }, "auto_pad", "same_upper")
    end
    case("MaxPool", { f32 }, "auto_pad", "same_upper", { kernel_shape = { 2, 2 } })
    for attr, word in pairs { nearest_mode = "bogus", mode = "Linear",
      coordinate_transformation_mode = "x", keep_aspect_ratio_policy = "y" } do
      refused(kit.model({ inputs = { kit.value("x", f32) }, outputs = { kit.value("y") },
        tensors = { kit.tensor { name = "s", elem = 7, dims = { 4 }, ints = { 1, 1, 2, 2 } } },
        nodes = { kit.node("Resize", { "x", "", "", "s" }, { "y" }, { [attr] = word }) } }, 20),
        ('attribute "%s" is "%s", expected '):format(attr, word))
    end
    case("GridSample", { f32, { 1, 2, 2, 2 } }, "padding_mode", "none")
    case("RoiAlign", { f32, { 1, 4 }, { 1, elem = 7 } }, "mode", "sum")
    case("Gelu", { f32 }, "approximate", "yes")
    case("DepthToSpace", { { 1, 4, 2, 2 } }, "mode", "dcr", { blocksize = 2 })
    refused(kit.model { inputs = { kit.value("x", shift, 2) }, outputs = { kit.value("y") },
      nodes = { kit.node("BitShift", { "x", "x" }, { "y" }) } }, '"direction" is missing')
  end)

  it("is refused for parts that are not the whole", function()
    for _, sizes in ipairs { { 2, 1 }, { 5, -1 }, { 3, 3 }, { math.mininteger, 4 } } do
      refused(kit.model({ inputs = { kit.value("x", { 4 }) }, outputs = { kit.value("a") },
        tensors = { kit.tensor { name = "s", elem = 7, dims = { 2 }, ints = sizes } },
        nodes = { kit.node("Split", { "x", "s" }, { "a", "b" }, nil, "cut") } }, 17),
        'node "cut" %(Split%): the sizes .* do not add up to x\'s 4')
    end
    refused(kit.model({ inputs = { kit.value("x", { 4 }) }, outputs = { kit.value("a") },
      nodes = { kit.node("Split", { "x" }, { "a", "b" }, { num_outputs = 0 }, "cut") } }, 18),
      "0 parts for 2 outputs")
  end)

  it("is refused for lists longer than there is room for", function()
    local function one(op, x, second, attrs, more)
      local ints = { 1 << 40, 1 << 40 }
      return kit.model({ inputs = { kit.value("x", x) }, outputs = { kit.value("y") },
        tensors = { kit.tensor { name = "big", elem = 7, dims = { 2 }, ints = ints },
          kit.tensor { name = "block", elem = 7, dims = { 2 }, ints = { 1, 1 } },
          kit.tensor { name = "sizes", elem = 7, dims = { 4 }, ints = { 1, 1, 1, 100000000 } },
          kit.tensor { name = "step", elem = 7, dims = {}, ints = { more or 1 } },
          kit.tensor { name = "length", elem = 7, dims = {}, ints = { 10000000 } } },
        nodes = { kit.node(op, { "x", table.unpack(second) }, { "y" }, attrs, "it") } }, 20)
    end
    refused(one("Col2Im", { 1, 1, 1 }, { "big", "block" }), 'node "it" %(Col2Im%): .* elements are')
    refused(one("Resize", { 1, 1, 1, 2 }, { "", "", "sizes" }, { mode = "linear" }),
      'node "it" %(Resize%): .*a dimension of 100000000')
    local signal = { 1, 20000000, 1 }
    refused(one("STFT", signal, { "step", "", "length" }), 'node "it" %(STFT%): .* elements are')
    refused(one("STFT", signal, { "step", "", "length" }, nil, -1), "10000000, %-1 apart")
    refused(one("DFT", signal, {}), 'node "it" %(DFT%): .* elements are')
  end)

  it("is refused for lists of a wrong length, and steps of 0", function()
    local function one(op, inputs, attrs, x, version)
      local function ints(name, list)
        return kit.tensor { name = name, elem = 7, dims = { #list }, ints = list }
      end
      return kit.model({ inputs = { kit.value("x", x or { 1, 1, 4, 4 }) },
        outputs = { kit.value "y" },
        tensors = { ints("i1", { 0 }), ints("i2", { 1, 1 }), kit.tensor { name = "s",
          dims = { 2, 2 }, floats = { 1, 2, 3, 4 } },
          kit.tensor { name = "w", dims = { 1, 1, 1, 1 }, floats = { 1 } },
          kit.tensor { name = "q", elem = 3, dims = { 2, 8 }, raw = ("a"):rep(16) } },
        nodes = { kit.node(op, inputs, { "y" }, attrs, "it") } }, version or 21)
    end
    refused(one("Transpose", { "x" }, { perm = { 0, 1, 2 } }), "perm has 3 axes, x has 4")
    refused(one("Transpose", { "x" }, { perm = { 0, 0, 1, 2 } }), "axis 0 is named twice")
    refused(one("Slice", { "x", "i1", "i2" }), "1 starts, 2 ends, 1 axes")
    refused(one("Slice", { "x", "i2", "i2", "i1" }), "2 starts, 2 ends, 1 axes")
    refused(one("Slice", { "x", "i1" }), 'node "it" %(Slice%): there are no ends')
    refused(one("Slice", { "x" }, nil, nil, 9), 'node "it" %(Slice%): there are no starts')
    refused(one("DequantizeLinear", { "q", "s" }, { block_size = 2 }),
      "blocks of 2 has scales and zero points of %(2,4%), got %(2,2%)")
    for _, name in ipairs { "strides", "dilations" } do
      refused(one("MaxPool", { "x" }, { kernel_shape = { 2, 2 }, auto_pad = "SAME_UPPER",
        [name] = { 0, 1 } }), name .. ": 0, at least 1")
      refused(one("Conv", { "x", "w" }, { [name] = { 1 } }), name .. ": 1 numbers, expected 2")
      refused(one("ConvTranspose", { "x", "w" }, { [name] = { 1, 0 } }), name .. ": 0, at least 1")
    end
    refused(one("Einsum", { "x" }), '"equation" is missing')
  end)

  it("is refused for operands that are missing, of other ranks, or shared by no heads", function()
    --- One node; its inputs are shapes, lists of integers { ints = .. }, or "" for none.
    local function one(op, inputs, attrs, version)
      local names, values, tensors = {}, {}, {}
      for i, input in ipairs(inputs) do
        names[i] = input == "" and "" or "i" .. i
        if type(input) == "table" and input.ints then
          tensors[#tensors + 1] = kit.tensor { name = names[i], elem = 7, dims = { #input.ints },
            ints = input.ints }
        elseif input ~= "" then
          values[#values + 1] = kit.value(names[i], input, input.elem)
        end
      end
      return kit.model({ inputs = values, tensors = tensors, outputs = { kit.value "y" },
        nodes = { kit.node(op, names, { "y" }, attrs, "it") } }, version or 23)
    end
    local function case(why, op, ...) refused(one(op, ...), ('%%(%s%%): %s'):format(op, why)) end

    local huge, image, heads = 1 << 62, { 1, 1, 4, 4 }, { q_num_heads = 4, kv_num_heads = 2 }
    for _, axis in ipairs { 5, -5, huge, math.mininteger } do
      case("axis .* is out of range", "Flatten", { image }, { axis = axis })
    end
    assert.is_truthy(import(one("Flatten", { image }, { axis = 4 })))
    assert.is_truthy(import(one("Flatten", { image }, { axis = -4 })))

    case("input 2 is missing", "Tile", { image, "" })
    case("input 3 is missing", "Tile", { image }, nil, 1)
    case("the shape is missing", "Reshape", { image, "" })
    case("the list of axes is missing", "Unsqueeze", { image, "" })
    case("the list of pads is missing", "Pad", { image, "" })
    case("1 sizes for 4 dimensions", "CenterCropPad", { image, { ints = { 2 } } })
    case("the output's shape: 3 numbers, expected 4", "MaxUnpool",
      { image, { 1, 1, 4, 4, elem = 7 }, { ints = { 1, 1, 8 } } }, { kernel_shape = { 2, 2 } })
    case("sizes: 3 numbers, expected 4", "Resize", { image, "", "", { ints = { 1, 1, 8 } } })
    case("input 2 is missing", "Resize", { image, "", "", { ints = { 1, 1, 8, 8 } } },
      { coordinate_transformation_mode = "tf_crop_and_resize" })
    case("scales: 2 numbers, expected 4", "Upsample", { image, { ints = { 1, 1 } } }, nil, 9)

    local text = { 1, 3, 8 }
    case("input 1 has 0 dimensions, expected 3 to 4", "Attention", { {}, text, text }, heads)
    case("input 4 has 0 dimensions", "Attention", { text, text, text, {} }, heads)
    case("0 heads cannot share 8 numbers", "Attention", { text, text, text },
      { q_num_heads = 0, kv_num_heads = 2 })
    case("3 heads cannot share 8 numbers", "Attention", { text, text, text },
      { q_num_heads = 4, kv_num_heads = 3 })
    local none = { 1, 0, 3, 2 }
    case("4 heads of queries cannot share 0", "Attention", { { 1, 4, 3, 2 }, none, none },
      { softcap = 1.0 })

    case("input 1 has 0 dimensions, expected 4", "RoiAlign", { {}, { 1, 4 }, { 1, elem = 7 } })
    case("input 2 has 0 dimensions, expected 2", "RoiAlign", { image, {}, { 1, elem = 7 } })
    local kernel, moved = { 1, 1, 2, 2 }, { 1, 8, 3, 3 }
    case("input 2 has 0 dimensions, expected 4", "DeformConv", { image, {}, moved })
    case("input 3 has 0 dimensions, expected 4", "DeformConv", { image, kernel, {} })
    -- more places than there is memory for, and than 64 bits count
    local room = ".* elements are asked for, more than there is memory for"
    for _, size in ipairs { 1 << 31, huge } do
      case(room, "DeformConv", { image, kernel, moved }, { kernel_shape = { size, 1 } })
    end
    case(room, "DeformConv", { image, { 1, 1, 1 << 31, 2 }, moved })
    case(room, "DeformConv", { image, kernel, { 1, 8, 1 << 31, 3 } })
  end)

  it("is refused for a scan of more sequences than it has, or of none", function()
    local body = kit.graph { nodes = { kit.node("Add", { "s", "r" }, { "t" }),
      kit.node("Identity", { "t" }, { "o" }) },
      inputs = { kit.value("s", { 2 }), kit.value("r", { 2 }) },
      outputs = { kit.value("t", { 2 }), kit.value("o", { 2 }) } }
    local function scan(inputs, count)
      return kit.model { inputs = { kit.value("s0", { 2 }), kit.value("rows", { 3, 2 }) },
        outputs = { kit.value "y", kit.value "z" }, nodes = { kit.node("Scan", inputs,
          { "y", "z" }, { body = { kind = "graph", body }, num_scan_inputs = count }, "it") } }
    end
    assert.is_truthy(import(scan({ "s0", "rows" }, 1)))
    for _, count in ipairs { 0, -1, 3, 1 << 31, math.maxinteger, math.mininteger } do
      refused(scan({ "s0", "rows" }, count), "num_scan_inputs = .*, expected 1 to 2")
    end
    refused(scan({ "s0", "rows" }), "num_scan_inputs = 0, expected 1 to 2")
    refused(scan({ "s0", "" }, 1), "input 2 is missing")
  end)

  it("is refused for functions that call each other", function()
    local body = kit.message { { 1, "F" }, { 4, "a" }, { 5, "b" }, { 10, "own" },
      { 7, kit.message { { 1, "a" }, { 2, "b" }, { 4, "F" }, { 7, "own" } } } }
    local call = kit.message { { 1, "x" }, { 2, "y" }, { 4, "F" }, { 7, "own" } }
    refused(kit.model(graph { nodes = { call } }, 17, { { 25, body } }), "without end")
  end)

  it("is refused for functions that call others twice, and these again", function()
    local nodes = require "neap.onnx.graph"
    local most <const> = nodes.most_nodes
    local _ <close> = setmetatable({}, { __close = function() nodes.most_nodes = most end })
    nodes.most_nodes = 1000
    local functions = {}
    for k = 1, 40 do
      local function call(from, to)
        return { 7, kit.message { { 1, from }, { 2, to },
          { 4, k < 40 and "F" .. k + 1 or "Identity" }, { 7, k < 40 and "own" or "" } } }
      end
      functions[k] = { 25, kit.message { { 1, "F" .. k }, { 4, "a" }, { 5, "b" }, { 10, "own" },
        call("a", "c"), call("c", "b") } }
    end
    local first = kit.message { { 1, "x" }, { 2, "y" }, { 4, "F1" }, { 7, "own" } }
    refused(kit.model(graph { nodes = { first } }, 17, functions),
      "more than 1000 nodes in all turns and calls")
  end)

  it("is refused for parts of no size, norms of other powers, and types that are none", function()
    local part = kit.tensor { name = "part", elem = 7, dims = {}, ints = { 0 } }
    local function one(op, attrs, ins)
      return kit.model(graph { tensors = { part }, nodes = { kit.node(op, ins or { "x" }, { "y" },
        attrs) } })
    end
    refused(one("SplitToSequence", nil, { "x", "part" }), "parts of 0")
    refused(one("LpNormalization", { p = 3 }), "a norm of p = 3, expected 1 or 2")
    refused(one("HannWindow", { output_datatype = 99 }, { "part" }), "elements of type 99")
    refused(one("BitCast", { to = 99 }), "bits of another type")
  end)

  it("is refused for sizes and axes that are no integers, and numbers that are none", function()
    local tensors = { kit.tensor { name = "yes", elem = 9, dims = {}, raw = "\1" },
      kit.tensor { name = "both", elem = 9, dims = { 2 }, raw = "\1\0" },
      kit.tensor { name = "half", dims = {}, floats = { 0.5 } },
      kit.tensor { name = "nan", dims = { 1 }, floats = { 0 / 0 } } }
    local function one(op, ins, attrs, version)
      return kit.model(graph { tensors = tensors,
        nodes = { kit.node(op, ins, { "y" }, attrs) } }, version)
    end
    for _, op in ipairs { "Reshape", "Expand", "Squeeze", "Unsqueeze", "ReduceSum", "Tile", "Pad",
      "CenterCropPad" } do
      refused(one(op, { "x", "both" }, nil, 18), "input 2 has true, expected integers")
      refused(one(op, { "x", "nan" }, nil, 18), "input 2 has %-?nan, expected integers")
    end
    for _, op in ipairs { "CumSum", "SplitToSequence", "OneHot" } do
      refused(one(op, { "x", "half", "both" }), "input 2 has 0.5, expected integers")
    end
    refused(one("Slice", { "x", "both", "both" }), "input 2 has true, expected integers")
    refused(one("Range", { "half", "yes", "half" }), "input 2 has true, expected numbers")
    refused(one("Dropout", { "x", "yes", "yes" }), "input 2 has true, expected numbers")
    refused(one("ConstantOfShape", { "both" }), "input 1 has true, expected integers")
    refused(one("HannWindow", { "yes" }), "input 1 has true, expected integers")
    refused(one("MatMulInteger", { "yes", "x" }), "input 1 has 0 dimensions, expected at least 1")
    refused(one("GridSample", { "x", "x" }), "input 1 has 1 dimensions, expected 4 to 5")
    refused(one("LSTM", { "x", "x", "x" }), "input 1 has 1 dimensions, expected 3")
    refused(one("GroupNormalization", { "x", "x", "x" }, nil, 21), '"num_groups" is missing')
    refused(one("DequantizeLinear", { "both", "half" }, { output_dtype = 99 }),
      "numbers of type 99")
  end)

  it("is refused for constants larger than the memory there is", function()
    for _, size in ipairs { 1 << 20, 1 << 40 } do
      local tensors = { kit.tensor { name = "s", elem = 7, dims = { 2 }, ints = { size, size } },
        kit.tensor { name = "one", dims = { 1, 1 }, floats = { 1 } } }
      for _, op in ipairs { "ConstantOfShape", "Expand", "Tile" } do
        refused(kit.model(graph { tensors = tensors, nodes = {
          kit.node(op, op == "ConstantOfShape" and { "s" } or { "one", "s" }, { "y" }) } }), op)
      end
    end
  end)
end)
