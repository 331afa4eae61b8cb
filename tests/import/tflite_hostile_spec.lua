-- TFLite files that are damaged, or lie: each ends in nil, message, code, and in nothing else.
local neap = require "neap"
local kit = require "import.tflite_kit"

local folder

local function import(bytes) return neap.import(folder:write("m.tflite", bytes)) end

--- The import fails by the file, with a text that has `why` in it.
local function refused(bytes, why)
  local f, message, code = import(bytes)
  assert.is_nil(f)
  assert.is_true(code == "data" or code == "io", code)
  assert.matches(why, message)
  assert.matches("m%.tflite: ", message)
end

--- A convolution of i8, with every part of its tensors and options; `edit` changes it.
local function conv(edit, more)
  local g = { tensors = { { name = "x", type = "i8", shape = { 1, 3, 3, 1 }, scale = { 0.5 },
        zero = { 3 } },
      { name = "w", type = "i8", shape = { 2, 2, 2, 1 }, data = { 1, 2, 3, 4, -1, -2, -3, -4 },
        scale = { 0.5, 0.25 }, zero = { 0, 0 } },
      { name = "b", type = "i32", shape = { 2 }, data = { 1, 2 }, scale = { 0.25, 0.125 } },
      { name = "h", type = "i8", shape = { 1, 2, 2, 2 }, scale = { 1 }, zero = { -1 } },
      { name = "to", type = "i32", shape = { 2 }, data = { 1, 8 } },
      { name = "y", type = "i8", shape = { 1, 8 }, scale = { 1 }, zero = { -1 } } },
    ops = { { "CONV_2D", { 0, 1, 2 }, { 3 }, { 1, { "i8", 1 }, { "i32", 1 }, { "i32", 1 },
        { "i8", 1 } } }, { "RESHAPE", { 3, 4 }, { 5 }, { 17, { "list", "i32", { 1, 8 } } } } },
    inputs = { 0 }, outputs = { 5 } }
  if edit then edit(g) end
  return kit.model(g, more)
end

describe("a hostile TFLite file", function()
  before_each(function() folder = kit.folder() end)
  after_each(function() getmetatable(folder).__close(folder) end)

  it("is refused when it is empty, or something else", function()
    refused("", "no TFLite file")
    refused("hello, world, this is no model", "no TFLite file")
    refused(conv(nil, { { "u32", 2 } }), "version 2 of the format")
    refused(conv(nil, { [3] = { "tables", {} } }), "there is no subgraph")
  end)

  it("is refused, or means less, when it is cut anywhere", function()
    local whole = conv()
    assert.is_truthy(import(whole))
    for n = 0, #whole - 1 do
      local f, message = import(whole:sub(1, n))
      assert.is_true(f ~= nil or type(message) == "string" and message:match "m%.tflite: " ~= nil)
    end
  end)

  it("is refused, or means something else, when bytes are flipped", function()
    local whole = conv()
    for i = 1, #whole do
      local byte = string.char(whole:byte(i) ~ (i % 3 == 0 and 1 or i % 3 == 1 and 8 or 128))
      local f, message = import(whole:sub(1, i - 1) .. byte .. whole:sub(i + 1))
      assert.is_true(f ~= nil or type(message) == "string" and message:match "m%.tflite: " ~= nil)
    end
  end)

  it("of any operator is refused by what is wrong with it, not by what breaks", function()
    local cases = require "import.tflite_cases"
    for k, c in ipairs(cases.cases) do
      local whole = kit.model((cases.model(c)))
      for at = 1 + k % 97, #whole, 97 do
        local byte = string.char(whole:byte(at) ~ (k % 2 == 0 and 1 or 128))
        local _, message = import(whole:sub(1, at - 1) .. byte .. whole:sub(at + 1))
        if message then
          assert.matches("m%.tflite: ", message)
          assert.is_nil(message:match "attempt to" or message:match "bad argument", message)
        end
      end
    end
  end)

  it("is refused for tensors that are not what they say", function()
    local function with(i, key, value)
      return conv(function(g) g.tensors[i][key] = value end)
    end
    refused(with(2, "shape", { 2, 2, 2, 2 }),
      'subgraph 1, tensor 2 "w": 16 elements of int8 are claimed, 8 bytes are there')
    refused(with(5, "shape", { 1 << 30, 1 << 30, 1 << 30 }), "more elements than there can be")
    refused(with(2, "shape", { -2 }), "a dimension of %-2")
    refused(with(2, "shape", { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 8 }), "dimensions, at most")
    refused(with(2, "buffer", 99), "buffer 99, the file has")
    refused(with(2, "scale", { 1, 2, 3 }), "3 scales, 2 zero points")
    refused(with(2, "axis", 3), "2 scales along dimension 3")
    refused(with(1, "scale", { 0 / 0 }), "a scale of")
    refused(with(1, "scale", { -1 }), "a scale of %-1")
    refused(with(1, "zero", { 1 << 40 }), "a zero point of 1099511627776")
  end)

  it("is refused for lists, texts and tables that do not end in it", function()
    local whole = conv()
    -- The numbers of the last tensor are the last bytes.
    for n = 1, 8 do refused(whole:sub(1, -1 - n), "a list that does not end") end
    local function with(old, new)
      local at = assert(whole:find(old, 1, true))
      return whole:sub(1, at - 1) .. new .. whole:sub(at + #new)
    end
    -- As many elements as there are bytes left, or nearly.
    refused(with(string.pack("<I4i4i4i4i4", 4, 1, 3, 3, 1), string.pack("<I4", #whole // 3)),
      "a list that does not end")
    refused(with("a test\0", "a tests"), "a text that does not end")
    local root = string.unpack("<I4", whole) + 1
    local vtable = root - string.unpack("<i4", whole, root)
    local function sized(bytes)
      return whole:sub(1, vtable + 1) .. string.pack("<I2", bytes) .. whole:sub(vtable + 4)
    end
    assert.is_true(#whole < 65535)
    refused(sized(65535), "a table that does not end")
    refused(sized(7), "a field beyond its table")
    -- Bytes behind all tables, which begin in the file.
    refused(conv(nil, { [5] = { "tables", { {}, { false, { "i64", 16 }, { "i64", 1 << 20 } } } } }),
      "buffer 1: 1048576 bytes from 16 on, the file has")
  end)

  it("is refused for scales that are not one for each position of their dimension", function()
    local function with(i, scale, zero)
      return conv(function(g) g.tensors[i].scale, g.tensors[i].zero = scale, zero end)
    end
    refused(with(2, { 1, 2, 3 }, { 0, 0, 0 }), "3 scales along dimension 0, which is not of that")
    refused(with(1, { 1e30 }, { 0 }), "a scale of 1e%+30")
  end)

  it("is refused for operators that read what is not there", function()
    local function with(i, op)
      return conv(function(g) g.ops[i] = op end)
    end
    refused(with(1, { "CONV_2D", { 0, 99 }, { 3 } }),
      "subgraph 1, operator 1 %(CONV_2D%): tensor 99, the subgraph has 6")
    refused(with(1, { "CONV_2D", { 0, 1 }, { -1 } }), "tensor %-1, the subgraph has 6")
    refused(with(1, { "CONV_2D", { 0 }, { 3 } }), "operator 1 %(CONV_2D%): input 2 is missing")
    refused(with(1, { "CONV_2D", { 0, -1, 2 }, { 3 } }), "input 2 is missing")
    refused(with(1, { "CONV_2D", { 5, 1, 2 }, { 3 } }), "is made by no node before this one")
    refused(with(1, { "CONV_2D", { 0, 1, 2 }, { 3 }, { 1, { "i8", 7 }, { "i32", 1 },
      { "i32", 1 } } }), "padding 7 is none")
    refused(with(1, { "CONV_2D", { 0, 1, 2 }, { 3 }, { 1, { "i8", 1 }, { "i32", 0 },
      { "i32", 1 } } }), "a window of 2 with stride 0 and dilation 1")
    refused(with(1, { 4242, { 0 }, { 3 } }), "an operator of code 4242, which is none")
    refused(conv(function(g) g.outputs = { 42 } end), "subgraph 1: tensor 42")
    refused(conv(function(g) g.inputs = { -7 } end), "subgraph 1: tensor %-7")
  end)

  it("is refused for subgraphs that are not there, or run themselves", function()
    local function calls(number)
      local inner = { tensors = { { name = "a", shape = { 1 } }, { name = "b", shape = { 1 } } },
        ops = { { "CALL", { 0 }, { 1 }, { 16, { "u32", number } } } }, inputs = { 0 },
        outputs = { 1 } }
      return kit.model { inner, { tensors = inner.tensors, inputs = { 0 }, outputs = { 1 },
        ops = { { "CALL", { 0 }, { 1 }, { 16, { "u32", 0 } } } } } }
    end
    refused(calls(7), "subgraph 1, operator 1 %(CALL%): subgraph 8, the file has 2")
    refused(calls(0), "subgraph 1 runs itself")
    refused(calls(1), "runs itself")
  end)

  it("is refused for subgraphs that run others twice, and these again", function()
    local nodes = require "neap.onnx.graph"
    local most <const> = nodes.most_nodes
    local _ <close> = setmetatable({}, { __close = function() nodes.most_nodes = most end })
    nodes.most_nodes = 1000
    local graphs = {}
    for k = 1, 40 do
      local function call(from, to)
        return k < 40 and { "CALL", { from }, { to }, { 16, { "u32", k } } }
          or { "NEG", { from }, { to } }
      end
      graphs[k] = { tensors = { { name = "a", shape = { 1 } }, { name = "c", shape = { 1 } },
        { name = "b", shape = { 1 } } }, ops = { call(0, 1), call(1, 2) }, inputs = { 0 },
        outputs = { 2 } }
    end
    refused(kit.model(graphs), "more than 1000 nodes in all turns and calls")

    -- A long chain of them.
    for k = 1, 300 do
      graphs[k] = { tensors = graphs[1].tensors, inputs = { 0 }, outputs = { 2 },
        ops = { k < 300 and { "CALL", { 0 }, { 2 }, { 16, { "u32", k } } } or { "NEG", { 0 },
          { 2 } } } }
    end
    refused(kit.model(graphs), "more than 64 graphs within each other")
  end)

  it("is refused for sizes that no memory has", function()
    local function with(op, sizes)
      return conv(function(g)
        g.tensors[5] = { name = "to", type = "i32", shape = { #sizes }, data = sizes }
        g.ops = { { op, op == "FILL" and { 4, 2 } or { 0, 4 }, { 5 } } }
      end)
    end
    local huge = { 1 << 30, 1 << 30, 3, 1 }
    refused(with("BROADCAST_TO", huge), "BROADCAST_TO")
    refused(with("TILE", huge), "TILE")
    refused(with("FILL", huge), "FILL")
    refused(with("RESHAPE", huge), "RESHAPE")
    refused(with("RESIZE_BILINEAR", { 1 << 30, 1 << 30 }), "RESIZE_BILINEAR")
    -- What is made at once, though the operator's other operands are known in a run alone.
    refused(conv(function(g)
      g.tensors[5] = { name = "to", type = "i32", shape = { 2 }, data = { 1 << 24, 1 << 20 } }
      g.ops = { { "SCATTER_ND", { 0, 0, 4 }, { 5 } } }
    end), "more than there is memory for")
    refused(conv(function(g)
      g.tensors[5] = { name = "kept", shape = { 1 << 24, 1 << 20 }, variable = true }
    end), "\"kept\" has 17592186044416 elements, more than there is memory for")
  end)

  it("is refused for lists of one operator that do not go together", function()
    local function with(op, ...)
      local lists = table.pack(...)
      return conv(function(g)
        local places = { 0 }
        for k, list in ipairs(lists) do
          g.tensors[6 + k] = { name = "list" .. k, type = "i32", shape = { #list }, data = list }
          places[1 + k] = 5 + k
        end
        g.ops = { { op, places, { 5 } } }
      end)
    end
    refused(with("STRIDED_SLICE", { 0, 0 }, { 1, 1 }, {}), "2 begins, 2 ends, 0 strides")
    refused(with("SPACE_TO_BATCH_ND", { 2, 2, 2, 2 }, { 0, 0, 0, 0, 0, 0, 0, 0 }),
      "4 blocks with 8 pads or crops, x has 4 dimensions")
    refused(with("BATCH_TO_SPACE_ND", { 1, 1 }, { 0, 0, 0 }), "2 blocks with 3 pads or crops")
    refused(with("BATCH_TO_SPACE_ND", { -1, -1 }, { 0, 0, 0, 0 }), "a block of %-1")
  end)

  it("is refused for pads that its dimensions do not have", function()
    local function with(mode, pads)
      return conv(function(g)
        g.tensors[5] = { name = "pads", type = "i32", shape = { #pads // 2, 2 }, data = pads }
        g.ops = { { "MIRROR_PAD", { 0, 4 }, { 5 }, { 77, { "i8", mode } } } }
      end)
    end
    for mode = 0, 1 do
      assert.is_truthy(import(with(mode, { 0, 0, 1, 2, 0, 0, 0, 0 })))
      refused(with(mode, { 0, 0, 1, 2 }), "4 pads for 4 dimensions")
      refused(with(mode, { 0, 0, 1, -1, 0, 0, 0, 0 }), "a pad of %-1, at least 0")
    end
    refused(with(1, { 0, 0, 1, 4, 0, 0, 0, 0 }), "pads of 1 and 4, x has 3")
  end)

  it("is refused for a list that it names over and over", function()
    -- Hundreds of operators that lie in one place, which reads a list as long as the file.
    local many = {}
    for i = 1, 4000 do many[i] = 0 end
    refused(conv(function(g)
      g.ops = { { "CONCATENATION", many, { 3 }, nil, 500 } }
    end), "its lists are larger than the file")
  end)
end)
