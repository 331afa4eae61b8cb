-- Ops of ONNX Runtime's own, domain com.microsoft, that its quantiser writes between products: to
-- its integers, where it is at hand, and to those of Neap's ops; what is wrong in them is told.
local kit = require "import.onnx_kit"
local neap = require "neap"
local peer = require "import.onnx_peer"

--- A node of that domain.
local function node(...) return kit.node(...) .. kit.message { { 7, "com.microsoft" } } end

local U8 <const>, I8 <const>, F32 <const> = 2, 3, 1

--- Scales and zero points of a, b and y as tensors of the file.
local function numbers(elem)
  local function byte(name, value)
    return kit.tensor { name = name, elem = elem, raw = string.pack("b", value) }
  end
  local function scale(name, value) return kit.tensor { name = name, floats = { value } } end
  return { scale("sa", 0.0231), scale("sb", 0.0117), scale("sy", 0.0293), byte("za", 100),
    byte("zb", 3), byte("zy", 70) }
end

--- A file of such nodes, with inputs a and b of shapes.
local function file(folder, elem, nodes, outputs, shape_b)
  local function values(names)
    local list = {}
    for i, name in ipairs(names) do
      list[i] = kit.value(name, name == "b" and shape_b or { 2, 6, 4, 4 }, elem)
    end
    return list
  end
  local tensors = numbers(elem == F32 and U8 or elem)
  return folder:write("m.onnx", kit.model({ nodes = nodes, tensors = tensors,
    inputs = values { "a", "b" }, outputs = values(outputs) }, 13,
    { { 8, kit.message { { 1, "com.microsoft" }, { 2, 1 } } } }))
end

local add = { "a", "sa", "za", "b", "sb", "zb", "sy", "zy" }
local joined = { "sy", "zy", "a", "sa", "za", "b", "sb", "zb", "a", "sy", "zy" }

local function bytes(dtype, ...)
  local low = dtype == "i8" and -128 or 0
  return ((neap.rand(...) * 256):floor() + low):to(dtype)
end

describe("ops of ONNX Runtime", function()
  for dtype, elem in pairs { u8 = U8, i8 = I8 } do
    it("add and join bytes of " .. dtype, function()
      neap.seed(7)
      local folder <close> = kit.folder()
      local path = file(folder, elem, { node("QLinearAdd", add, { "y" }),
        node("QLinearConcat", joined, { "c" }, { axis = 1 }) }, { "y", "c" }, { 2, 6, 4, 4 })
      local feeds = { a = bytes(dtype, 2, 6, 4, 4), b = bytes(dtype, 2, 6, 4, 4) }
      local got = assert(neap.import(path))(feeds)
      local function s(v) return neap.tensor(v) end
      local function z(v) return neap.tensor(v, dtype) end
      local a, b, sy, zy = feeds.a, feeds.b, s(0.0293), z(70)
      assert.is_true(got.y:equal(neap.q_linear_add(a, s(0.0231), z(100), b, s(0.0117), z(3), sy,
        zy)))
      local parts = { { a, s(0.0231), z(100) }, { b, s(0.0117), z(3) }, { a, sy, zy } }
      for i, p in ipairs(parts) do
        parts[i] = neap.quantize_linear(neap.dequantize_linear(p[1], p[2], p[3]), sy, zy)
      end
      assert.is_true(got.c:equal(neap.concat(parts, { axis = 2 })))
      if not peer.is_there() then return end
      for name, want in pairs(peer.run(path, feeds)) do
        assert.are.equal(dtype, want.dtype)
        assert.is_true(got[name]:equal(want), name)
      end
    end)
  end

  it("add what broadcasts", function()
    local folder <close> = kit.folder()
    local path = file(folder, U8, { node("QLinearAdd", add, { "y" }) }, { "y" }, { 6, 1, 1 })
    local feeds = { a = bytes("u8", 2, 6, 4, 4), b = bytes("u8", 6, 1, 1) }
    local got = assert(neap.import(path))(feeds)
    assert.are.same({ 2, 6, 4, 4 }, got.shape)
    local want = neap.q_linear_add(feeds.a, neap.tensor(0.0231), neap.tensor(100, "u8"),
      feeds.b:expand(2, 6, 4, 4):contiguous(), neap.tensor(0.0117), neap.tensor(3, "u8"),
      neap.tensor(0.0293), neap.tensor(70, "u8"))
    assert.is_true(got:equal(want))
    if peer.is_there() then assert.is_true(got:equal(peer.run(path, feeds).y)) end
  end)

  it("are written as the standard's, and read again to the same integers", function()
    local net = neap.net "f"
    local a, b = net:input("a", { 2, 3 }, "u8"), net:input("b", { 2, 3 }, "u8")
    local s, t = net:const(neap.tensor(0.5)), net:const(neap.tensor(0.75))
    net:outputs { net:QLinearAdd({ a, s, nil, b, t, nil, t }, "y"),
      net:QLinearRescale({ a, s, nil, t }, "z") }
    local feeds = { a = bytes("u8", 2, 3), b = bytes("u8", 2, 3) }
    local ws <close> = neap.workspace { store = false }
    local want = ws:run(net, feeds)
    local folder <close> = kit.folder()
    assert(neap.export(net, folder.path .. "/m.onnx", { workspace = ws }))
    local got = assert(neap.import(folder.path .. "/m.onnx"))(feeds)
    for _, name in ipairs { "y", "z" } do assert.is_true(got[name]:equal(want[name]), name) end
  end)

  it("are of the type of y's zero point, be that 0, and are written so", function()
    local folder <close> = kit.folder()
    local scale = kit.tensor { name = "s", floats = { 1 } }
    local zero = kit.tensor { name = "z", elem = I8, raw = "\0" }
    local path = folder:write("m.onnx", kit.model({
      nodes = { node("QLinearAdd", { "a", "s", "", "b", "s", "", "s", "z" }, { "y" }) },
      tensors = { scale, zero }, inputs = { kit.value("a", { 2 }, U8), kit.value("b", { 2 }, I8) },
      outputs = { kit.value("y", { 2 }, I8) } }, 13,
      { { 8, kit.message { { 1, "com.microsoft" }, { 2, 1 } } } }))
    local feeds = { a = neap.tensor({ 200, 7 }, "u8"), b = neap.tensor({ -9, -9 }, "i8") }
    local f = assert(neap.import(path))
    assert.are.equal("i8", f(feeds).dtype)
    assert.are.same({ 127, -2 }, f(feeds):totable())
    assert(neap.export(f.net, folder.path .. "/n.onnx", { workspace = f.workspace }))
    assert.are.same({ 127, -2 }, assert(neap.import(folder.path .. "/n.onnx"))(feeds):totable())
  end)

  it("are refused where they are no sums or parts of bytes", function()
    local folder <close> = kit.folder()
    local function refused(words, nodes, elem)
      local path = file(folder, elem or U8, nodes, { "y" }, { 2, 6, 4, 4 })
      local f, message = neap.import(path)
      assert.is_nil(f)
      for _, word in ipairs(words) do
        assert.is_truthy(tostring(message):find(word, 1, true), tostring(message))
      end
    end
    refused({ "QLinearConcat", "three for each part" },
      { node("QLinearConcat", { "sy", "zy", "a", "sa", "za", "b" }, { "y" }, { axis = 1 }) })
    refused({ "QLinearConcat", "axis" }, { node("QLinearConcat", joined, { "y" }) })
    refused({ "QLinearAdd", "u8 or i8" }, { node("QLinearAdd", add, { "y" }) }, F32)
    refused({ "QLinearAdd", "one number" },
      { node("QLinearAdd", { "a", "a", "za", "b", "sb", "zb", "sy", "zy" }, { "y" }) })
    refused({ "QLinearMul" }, { node("QLinearMul", add, { "y" }) })
  end)
end)
