--- TFLite files as nets: what neap.import does with a path that ends in .tflite. A file is brought
-- into the form of an ONNX model (neap.tflite.model) whose operators are of a domain of their own,
-- "tflite", and goes the way of one from there on: what is known is folded, weights are parameters,
-- names and options are kept.
-- @module neap.tflite
local core = require "neap.core"
local model_of = require "neap.tflite.model"
local onnx = require "neap.onnx"
require "neap.tflite.ops"

--- The model of a path, or nil, message, code: a file that can't be read, and one with operators
-- that Neap lacks, all of which are named.
local function read(path)
  local file, message, code = core.read_tflite(path)
  if not file then return nil, message, code end
  local ok, model = pcall(model_of, file)
  if not ok then
    if type(model) == "table" and model.message and model.code == "data" then
      return nil, ("%s: %s"):format(path, model.message), "data"
    end
    error(model, 0)
  end
  model.path = path
  return onnx.complete(model, function(row) return row.place end)
end

local tflite = onnx.reader(read)
tflite.read = read

return tflite
