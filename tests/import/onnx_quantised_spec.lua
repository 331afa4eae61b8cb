-- Quantised numbers of ONNX files, worked out by hand: scales in blocks, zero points along an axis,
-- integers at the ends of their range, results of another type than what is read.
local kit = require "import.onnx_kit"
local neap = require "neap"

local U8 <const>, I8 <const>, I32 <const>, INT4 <const> = 2, 3, 6, 22
local letter = { [1] = "f", [U8] = "B", [I8] = "b", [I32] = "i4" }

--- A tensor of a file: numbers of an element type.
local function tensor(name, elem, dims, list)
  return kit.tensor { name = name, elem = elem, dims = dims,
    raw = string.pack("<" .. letter[elem]:rep(#list), table.unpack(list)) }
end

--- What one node, or several, make of tensors of the file and of feeds by name: y.
local function made(nodes, tensors, feeds, opset)
  local inputs = {}
  for name, t in pairs(feeds or {}) do
    local elem = t.dtype == "u8" and U8 or t.dtype == "i8" and I8 or 1
    inputs[#inputs + 1] = kit.value(name, t.shape, elem)
  end
  local folder <close> = kit.folder()
  local path = folder:write("m.onnx", kit.model({ nodes = nodes, tensors = tensors,
    inputs = inputs, outputs = { kit.value("y") } }, opset or 21))
  return assert(neap.import(path))(feeds or {})
end

describe("quantised numbers of an ONNX file", function()
  it("have scales of blocks, the last of which may be shorter", function()
    local y = made({ kit.node("DequantizeLinear", { "x", "s" }, { "y" },
      { axis = 1, block_size = 2 }) }, { tensor("s", 1, { 2, 3 }, { 1, 2, 4, 8, 16, 32 }) },
      { x = neap.tensor({ { 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1 } }, "i8") })
    assert.same({ { 1, 1, 2, 2, 4 }, { 8, 8, 16, 16, 32 } }, y:totable())
  end)

  it("have zero points along the axis that is said, of weights too", function()
    for axis, want in pairs { [0] = { { -70, 10 }, { 30, 25 } }, [1] = { { -70, 40 },
      { 0, 25 } } } do
      -- Less their zero points these weights fit into i8.
      local y = made({ kit.node("DequantizeLinear", { "w", "s", "z" }, { "y" }, { axis = axis }) },
        { tensor("w", I8, { 2, 2 }, { -60, 20, 10, 5 }), tensor("s", 1, { 2 }, { 1, 1 }),
          tensor("z", I8, { 2 }, { 10, -20 }) })
      assert.same(want, y:totable())
    end
  end)

  it("of weights stay exact where they leave i8 without their zero point", function()
    for zero, want in pairs { [100] = { -228, -100 }, [-100] = { -28, 100 } } do
      local y = made({ kit.node("DequantizeLinear", { "w", "s", "z" }, { "y" }) },
        { tensor("w", I8, { 2 }, { -128, 0 }), tensor("s", 1, {}, { 1 }),
          tensor("z", I8, {}, { zero }) })
      assert.same(want, y:totable())
    end
  end)

  it("are of the type of y's zero point, be that 0", function()
    local y = made({ kit.node("QLinearMatMul", { "x", "s", "zx", "w", "s", "zw", "s", "zy" },
      { "y" }) }, { tensor("s", 1, {}, { 1 }), tensor("zx", U8, {}, { 3 }),
      tensor("w", I8, { 2, 1 }, { 1, -2 }), tensor("zw", I8, {}, { 0 }),
      tensor("zy", I8, {}, { 0 }) }, { x = neap.tensor({ { 5, 4 }, { 3, 30 } }, "u8") })
    assert.equal("i8", y.dtype)
    assert.same({ { 0 }, { -54 } }, y:totable())
  end)

  it("of four bits reach both ends of their range", function()
    local y = made({ kit.node("QuantizeLinear", { "x", "s" }, { "q" }, { output_dtype = INT4 }),
      kit.node("DequantizeLinear", { "q", "s" }, { "y" }) }, { tensor("s", 1, {}, { 1 }) },
      { x = neap.tensor { -20, -8, -7, 7, 20 } })
    assert.same({ -8, -8, -7, 7, 7 }, y:totable())
  end)

  it("have their type from a zero point of 0, where it is given", function()
    local y = made({ kit.node("QuantizeLinear", { "x", "s", "z" }, { "y" }) },
      { tensor("s", 1, {}, { 1 }), tensor("z", I8, {}, { 0 }) }, { x = neap.tensor { -3, 200 } })
    assert.equal("i8", y.dtype)
    assert.same({ -3, 127 }, y:totable())
  end)

  it("of a range that is found have 0 in it", function()
    for high, want in pairs { [-51] = { 0, 204 }, [0] = { 0, 255 } } do
      local y = made({ kit.node("DynamicQuantizeLinear", { "x" }, { "y", "s", "z" }) }, {},
        { x = neap.tensor { -255, high } })
      assert.same(want, y:totable())
    end
  end)

  it("wrap where the products of a large window leave 32 bits", function()
    local n = 182
    local y = made({ kit.node("ConvInteger", { "x", "w" }, { "y" }) },
      { kit.tensor { name = "w", elem = U8, dims = { 1, 1, n, n }, raw = ("\255"):rep(n * n) } },
      { x = (neap.ones(1, 1, n, n) * 255):to "u8" })
    assert.equal(n * n * 255 * 255 - 2 ^ 32, y:item())
  end)
end)
