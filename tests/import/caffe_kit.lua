--- Caffe's files written by tests: texts, and weights field by field of the schema.
local assert = require "luassert"
local neap = require "neap"
local onnx_kit = require "import.onnx_kit"
local field, message = onnx_kit.field, onnx_kit.message

local M = { folder = onnx_kit.folder, message = message, field = field }

--- A BlobProto of numbers, by its shape or, `old`, by four sizes; `double` as f64.
function M.blob(shape, numbers, o)
  o = o or {}
  local fields = {}
  if o.old then
    for i, size in ipairs(shape) do fields[i] = { i, size } end
  else
    local dims = {}
    for i, size in ipairs(shape) do dims[i] = onnx_kit.varint(size) end
    fields[1] = { 7, message { { 1, table.concat(dims) } } }
  end
  local format = "<" .. (o.double and "d" or "f"):rep(#numbers)
  fields[#fields + 1] = { o.double and 8 or 5, string.pack(format, table.unpack(numbers)) }
  return message(fields)
end

--- A NetParameter of layers { name, blob, .. }; `old`: those of V1.
function M.weights(layers, old)
  local fields = { { 1, "net" } }
  for _, layer in ipairs(layers) do
    local own = { { old and 4 or 1, layer[1] } }
    for i = 2, #layer do own[i] = { old and 6 or 7, layer[i] } end
    fields[#fields + 1] = { old and 2 or 100, message(own) }
  end
  return message(fields)
end

--- One image of one channel, of rows of numbers.
function M.plane(rows) return neap.tensor { { rows } } end

--- Numbers in nested tables, each within 1e-5.
function M.near(want, got)
  if type(want) == "number" then
    assert.is_true(math.abs(want - got) < 1e-5, ("%g, expected %g"):format(got, want))
    return
  end
  assert.equal(#want, #got)
  for i, item in ipairs(want) do M.near(item, got[i]) end
end

--- An Input layer.
function M.input(name, ...)
  local dims = {}
  for i, size in ipairs { ... } do dims[i] = "dim: " .. size end
  return ('layer { name: "%s" type: "Input" top: "%s" input_param { shape { %s } } }\n'):format(
    name, name, table.concat(dims, " "))
end

--- Imports a text with neap.import; `weights` of o are bytes.
function M.import(text, o)
  local folder <close> = M.folder()
  local own = {}
  for key, value in pairs(o or {}) do own[key] = value end
  if own.weights then own.weights = folder:write("w.caffemodel", own.weights) end
  return neap.import(folder:write("m.prototxt", text), own)
end

--- What one layer, its text between the braces, makes of inputs: a table of numbers, or one for
-- each top.
-- @param tops list of names
-- @param inputs list of tensors, the bottoms
-- @param weights list of blobs
function M.layer(text, inputs, tops, weights, o)
  local parts, given, bottoms = {}, {}, {}
  for i, x in ipairs(inputs) do
    parts[i] = M.input("in" .. i, table.unpack(x.shape))
    given["in" .. i], bottoms[i] = x, ('bottom: "in%d"'):format(i)
  end
  tops = tops or { "out" }
  for i, top in ipairs(tops) do bottoms[#inputs + i] = ('top: "%s"'):format(top) end
  local f = assert(M.import(table.concat(parts) .. ('layer { name: "it" %s %s }'):format(
    table.concat(bottoms, " "), text), { weights = weights and M.weights { { "it",
      table.unpack(weights) } }, phase = o and o.phase }))
  local out = f.workspace:run(f.net, given)
  local results = {}
  for i, top in ipairs(tops) do results[i] = out[top]:totable() end
  return table.unpack(results)
end

return M
