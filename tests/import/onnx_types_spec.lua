-- Element types of ONNX by their bits, as the standard (onnx.proto, TensorProto.DataType) and the
-- papers on small floats have them, from each place where a file may hold them; and attributes of
-- every kind, written and read again.
local core = require "neap.core"
local kit = require "import.onnx_kit"

local nan, inf = 0 / 0, math.huge
local FLOAT8E4M3FN, FLOAT8E4M3FNUZ, FLOAT8E5M2, FLOAT8E5M2FNUZ, FLOAT4 = 17, 18, 19, 20, 23
local U32, U64, STRING, UINT4, INT4, UINT2, INT2 = 12, 13, 8, 21, 22, 25, 26

local folder

--- What is read of one tensor, or nil and the message.
local function read(t) return core.read_onnx_tensor(folder:write("t.pb", kit.tensor(t))) end

local function refused(why, t)
  local r, message = read(t)
  assert.is_nil(r)
  assert.matches(why, message)
end

--- The same numbers: NaN is itself, and zeros have their signs.
local function assert_same(want, got, what)
  assert.equal(#want, #got, what)
  for i, w in ipairs(want) do
    local g = got[i]
    local same = w ~= w and g ~= g or w == g and (w ~= 0 or 1 / w == 1 / g)
    assert.is_true(same, ("%s, element %d: %s, expected %s"):format(what, i, g, w))
  end
end

--- A field of numbers one behind the other, as lists of a message are.
local function packed(tag, numbers)
  local bytes = {}
  for i, x in ipairs(numbers) do bytes[i] = kit.varint(x) end
  return { tag, table.concat(bytes) }
end
local I32_DATA, STRING_DATA, U64_DATA, SEGMENT, LOCATION = 5, 6, 11, 3, 14

describe("an element type of ONNX", function()
  before_each(function() folder = kit.folder() end)
  after_each(function() getmetatable(folder).__close(folder) end)

  local cases = {
    -- one, the largest, NaN, the least, minus one, minus zero, a pattern with all bits
    { FLOAT8E4M3FN, "f32", "\x38\x7e\x7f\x01\xb8\x80\xff",
      { 1.0, 448.0, nan, 2.0 ^ -9, -1.0, -0.0, nan } },
    { FLOAT8E4M3FNUZ, "f32", "\x40\x7f\x01\xc0\x80\xff\x00",
      { 1.0, 240.0, 2.0 ^ -10, -1.0, nan, -240.0, 0.0 } },
    { FLOAT8E5M2, "f32", "\x3c\x7b\x7c\x7d\x01\xbc\xfc\x80",
      { 1.0, 57344.0, inf, nan, 2.0 ^ -16, -1.0, -inf, -0.0 } },
    { FLOAT8E5M2FNUZ, "f32", "\x40\x7f\x01\xc0\x80\xff",
      { 1.0, 57344.0, 2.0 ^ -17, -1.0, nan, -57344.0 } },
    { FLOAT4, "f32", "\x21\x97", { 0.5, 1.0, 6.0, -0.5 } },
    { UINT4, "u8", "\x21\x0f", { 1, 2, 15, 0 } },
    { INT4, "i8", "\x2f\x08", { -1, 2, -8, 0 } },
    { UINT2, "u8", "\xe4", { 0, 1, 2, 3 } },
    { INT2, "i8", "\xe4", { 0, 1, -2, -1 } },
    { U32, "i64", "\xff\xff\xff\xff\1\0\0\0", { 4294967295, 1 } },
    { U64, "i64", ("\xff"):rep(7) .. "\x7f", { math.maxinteger } },
  }

  it("is read by its bits", function()
    for _, c in ipairs(cases) do
      local elem, dtype, raw, want = table.unpack(c)
      local r = assert(read { name = "t", elem = elem, dims = { #want }, raw = raw })
      assert.equal(dtype, r.tensor.dtype)
      assert_same(want, r.tensor:totable(), "type " .. elem)
      -- as many bytes as the elements need, and no others
      refused("bytes are claimed", { name = "t", elem = elem, dims = { #want }, raw = raw .. "\0" })
    end
  end)

  it("is read from the list that its type has", function()
    for elem, case in pairs {
      [FLOAT8E4M3FN] = { I32_DATA, { 0x38, 0x7e }, { 1.0, 448.0 } },
      [FLOAT8E5M2] = { I32_DATA, { 0x3c, 0xfc }, { 1.0, -inf } },
      [FLOAT4] = { I32_DATA, { 0x97 }, { 6.0, -0.5 } },
      [INT4] = { I32_DATA, { 0x2f }, { -1, 2 } },
      [10] = { I32_DATA, { 0x3c00, 0xbc00 }, { 1.0, -1.0 } }, -- float16
      [3] = { I32_DATA, { -1, 5 }, { -1, 5 } }, -- int8
      [U32] = { U64_DATA, { 4294967295, 1 }, { 4294967295, 1 } },
      [U64] = { U64_DATA, { math.maxinteger, 1 }, { math.maxinteger, 1 } },
    } do
      local tag, numbers, want = table.unpack(case)
      local t = { name = "t", elem = elem, dims = { 2 }, more = { packed(tag, numbers) } }
      local r = assert(read(t))
      assert_same(want, r.tensor:totable(), "type " .. elem)
    end
  end)

  it("is refused where a number is beyond what Neap counts", function()
    local why = 't.pb: tensor "t": a uint64 above 2^63 %- 1'
    refused(why, { name = "t", elem = U64, dims = { 1 }, raw = ("\xff"):rep(8) })
    refused(why, { name = "t", elem = U64, dims = { 2 }, more = { packed(U64_DATA, { -1, 1 }) } })
  end)

  it("may be text, zeros and all", function()
    local r = assert(read { name = "t", elem = STRING, dims = { 2 },
      more = { { STRING_DATA, "a\0b" }, { STRING_DATA, "" } } })
    assert.same({ "a\0b", "" }, r.texts)
    refused("3 strings are claimed, 1 are there",
      { name = "t", elem = STRING, dims = { 3 }, more = { { STRING_DATA, "a" } } })
  end)

  it("is refused in parts, and outside of the file without a place", function()
    refused("a segment of a tensor, which is not read", { name = "t", dims = { 1 }, raw = "aaaa",
      more = { { SEGMENT, kit.message { { 1, 0 }, { 2, 1 } } } } })
    refused("external data without a location", { name = "t", dims = { 1 },
      more = { { LOCATION, 1 } } })
  end)
end)

describe("a model that is written", function()
  before_each(function() folder = kit.folder() end)
  after_each(function() getmetatable(folder).__close(folder) end)

  --- A model of one node with these attributes and initializers.
  local function model(attrs, initializers)
    return { ir = 8, producer = "a test", opsets = { [""] = 17 }, graph = { name = "g",
      nodes = { { name = "n", op = "Op", domain = "", inputs = { "x" }, outputs = { "y" },
        attrs = attrs or {} } },
      inputs = { { name = "x", elem = 1, dims = { 2, "batch", false } } },
      outputs = { { name = "y", elem = 1 } }, initializers = initializers or {} } }
  end
  local function write(...) return core.write_onnx(folder.path .. "/m.onnx", model(...)) end
  local function again() return assert(core.read_onnx(folder.path .. "/m.onnx")).graph end

  it("has attributes of every kind, and its tensors and texts", function()
    local attrs = {
      i = { kind = "int", value = math.mininteger }, f = { kind = "float", value = 0.5 },
      t = { kind = "text", value = "a\0b" }, is = { kind = "ints", value = { 1, -2 } },
      fs = { kind = "floats", value = { 0.5, -1.5 } },
      ts = { kind = "texts", value = { "a\0b", "" } },
    }
    assert(write(attrs, {
      { name = "wide", elem = U32, tensor = core.tensor({ 0, 4294967295 }, "i64") },
      { name = "words", elem = STRING, texts = { "a\0b", "c" } },
    }))
    local graph = again()
    for name, attr in pairs(attrs) do
      assert.same({ attr.kind, attr.value },
        { graph.nodes[1].attrs[name].kind, graph.nodes[1].attrs[name].value })
    end
    local by_name = {}
    for _, t in ipairs(graph.initializers) do by_name[t.name] = t end
    assert.equal(U32, by_name.wide.elem)
    assert.same({ 0, 4294967295 }, by_name.wide.tensor:totable())
    assert.same({ "a\0b", "c" }, by_name.words.texts)
    assert.same({ 2, "batch", false }, graph.inputs[1].dims)
  end)

  it("is refused numbers that their type does not hold, and what is no attribute", function()
    local function fails(why, ...)
      local ok, err = pcall(write, ...)
      assert.is_false(ok)
      assert.is_truthy(tostring(err):find(why, 1, true), tostring(err))
    end
    for _, number in ipairs { -1, 1 << 32 } do
      fails('tensor "w": a number that its element type does not have', nil,
        { { name = "w", elem = U32, tensor = core.tensor({ number }, "i64") } })
    end
    fails('tensor "w": its dtype does not hold its element type', nil,
      { { name = "w", elem = 1, tensor = core.tensor({ 1 }, "i64") } })
    fails('attribute "a": of a kind that is not written', { a = { kind = "sparse", value = 1 } })
    fails('attribute "a" has no table', { a = { kind = "ints", value = 3 } })
    fails("attributes are {name = ", { a = 3 })
    fails("initializer 1 is no table", nil, { 3 })
  end)
end)
