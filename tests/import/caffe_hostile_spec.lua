-- Caffe's files that are damaged, or lie: each ends in nil, message, code, and in nothing else.
local core = require "neap.core"
local neap = require "neap"
local kit = require "import.caffe_kit"

local net = kit.input("x", 2, 3) .. [[
layer { name: "c" type: "InnerProduct" bottom: "x" top: "y" param { lr_mult: 1 name: "w" }
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } axis: 1 } }
layer { name: "s" type: "Softmax" bottom: "y" top: "p" }
]]

local function refused(text, why, o)
  local f, message, code = kit.import(text, o)
  assert.is_nil(f)
  assert.is_true(code == "data" or code == "io", code)
  assert.matches(why, message)
end

describe("a hostile text of Caffe's", function()
  it("is refused, or means something, wherever it is cut", function()
    for n = 1, #net - 1, 3 do
      local f, message = kit.import(net:sub(1, n))
      assert.is_true(f ~= nil or type(message) == "string")
    end
  end)

  it("is refused, or means something, with any byte another", function()
    for i = 1, #net, 5 do
      for _, byte in ipairs { "\0", "{", "}", "9", '"', ":", "\255" } do
        local f, message = kit.import(net:sub(1, i - 1) .. byte .. net:sub(i + 1))
        assert.is_true(f ~= nil or type(message) == "string")
      end
    end
  end)

  it("is refused when it is nested without end", function()
    refused(("a {"):rep(100000), "nested more than 64 deep")
    refused(("a <"):rep(60), "the \"<\" of line 1 has no \">\"")
  end)

  it("is refused what is no number, no end, no name", function()
    refused("a: 12x", "m.prototxt:1: \"12x\" is no number")
    refused("a: \"b\n\"", "m.prototxt:1: a string has no end")
    refused("a: [1, 2", "\",\" or \"%]\" is expected, the text ends")
    refused("\n\na 3", "m.prototxt:3: \":\" or \"{\" is expected, got \"3\"")
    refused("a } \nb: 4", "got \"}\"$")
    refused("a }" .. ("x"):rep(40), "got \"}" .. ("x"):rep(23) .. "\"$")
    refused("\1: 2", "got the byte 0x01")
    refused("a: " .. ("9"):rep(100), "is no number")
  end)

  it("reads what the format has: lists, both quotes, escapes, comments, signs", function()
    local folder <close> = kit.folder()
    local fields = assert(core.read_prototxt(folder:write("a.prototxt",
      'a: [1, -2.5, .5f] # more\nb: "x\\n\\101\\x42" \'y\' c: true; d: 0x1F, e < f: inf >')))
    local function value(i) return fields[i].value end
    assert.same({ 1, -2.5, 0.5, "x\nABy", "true", 31 },
      { value(1), value(2), value(3), value(4), value(5), value(6) })
    assert.same({ "message", 2 }, { fields[7].kind, fields[7].line })
  end)

  it("is refused sizes that no tensor has, before anything is made", function()
    refused(kit.input("x", 2, 3) .. [[layer { name: "c" type: "InnerProduct" bottom: "x" top: "y"
      inner_product_param { num_output: 99999999999 } }]], "num_output of inner_product_param is")
    refused(kit.input("x", 2, -3) .. net:match "layer { name: \"s\".*", "a size of %-3")
    refused(kit.input("x", 1 << 40, 1 << 40) .. 'layer { name: "s" type: "Softmax" bottom: "x" '
      .. 'top: "p" }', ".")
  end)

  it("is refused bottoms of too few dimensions, and more axes than there are", function()
    local function layer(bottoms, rest)
      local parts = {}
      for i, shape in ipairs(bottoms) do parts[i] = kit.input("x" .. i, table.unpack(shape)) end
      for i in ipairs(bottoms) do parts[#parts + 1] = ('bottom: "x%d" '):format(i) end
      return table.concat(parts, "", 1, #bottoms) .. ('layer { name: "it" top: "y" %s %s }'):format(
        table.concat(parts, "", #bottoms + 1), rest)
    end
    local boxes = 'type: "PriorBox" prior_box_param { min_size: 2 }'
    local image = { 1, 1, 2, 2 }
    assert.is_truthy(kit.import(layer({ image, image }, boxes)))
    refused(layer({ { 1, 1, 2 }, image }, boxes), "bottom 1 has 3 dimensions, at least 4")
    refused(layer({ image, { 1, 1 } }, boxes), "bottom 2 has 2 dimensions, at least 4")
    local function found(prior)
      return layer({ { 1, 4 }, { 1, 2 }, prior }, 'type: "DetectionOutput" '
        .. "detection_output_param { num_classes: 2147483647 }")
    end
    refused(found { 2, 4 }, "bottom 3 has 2 dimensions, at least 3")
    refused(found { 1, 2, 3 }, "for 0 boxes")
    for _, count in ipairs { 5, math.maxinteger } do
      refused(layer({ image }, ('type: "Reshape" reshape_param { shape { dim: 4 } axis: 1 %s }')
        :format("num_axes: " .. count)), "axis 1 and num_axes " .. count)
      refused(layer({ image }, ('type: "Scale" scale_param { axis: 1 num_axes: %d }'):format(
        count)), "num_axes " .. count .. " from axis 1")
    end
  end)

  it("is refused data of which it does not say what one looks like", function()
    refused('layer { name: "d" type: "MemoryData" top: "data" memory_data_param { batch_size: 2 '
      .. 'height: 1 width: 1 } }\n' .. 'layer { name: "s" type: "Softmax" bottom: "data" '
      .. 'top: "p" }', "the file does not say what its examples look like")
  end)
end)

describe("hostile weights of Caffe's", function()
  local blobs = { kit.blob({ 2, 3 }, { 1, 2, 3, 4, 5, 6 }), kit.blob({ 2 }, { 1, 2 }) }
  local whole = kit.weights { { "c", table.unpack(blobs) } }

  it("are refused, or mean something, wherever they are cut or changed", function()
    local folder <close> = kit.folder()
    local function read(bytes) return core.read_caffemodel(folder:write("w.caffemodel", bytes)) end
    assert.equal(2, #assert(read(whole)).layers[1].blobs)
    for n = 0, #whole - 1 do
      local f, message = read(whole:sub(1, n))
      assert.is_true(f ~= nil or type(message) == "string")
    end
    for i = 1, #whole do
      for _, bit in ipairs { 1, 8, 128 } do
        local f, message = read(whole:sub(1, i - 1) .. string.char(whole:byte(i) ~ bit)
          .. whole:sub(i + 1))
        assert.is_true(f ~= nil or type(message) == "string")
      end
    end
  end)

  it("are refused what they don't have, and leave no net", function()
    refused(net, "damaged, or no net of Caffe's", { weights = "\255\255\255" })
    refused(net, "the file is empty", { weights = "" })
    refused(net, "9223372036854775807", { weights = kit.weights { { "c",
      kit.message { { 7, kit.message { { 1, "\255\255\255\255\255\255\255\255\127" } } } } } } })
    refused(net, "at most %d+ are read", { weights = kit.weights { { "c",
      kit.message { { 7, kit.message { { 1, ("\1"):rep(99) } } } } } } })
    local f, message = neap.import("tests/import/no.prototxt")
    assert.is_nil(f)
    assert.matches("no.prototxt", message)
  end)
end)
