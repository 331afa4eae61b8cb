--- Models in one file: `neap.export` writes a net as text and its parameters and state as tensors
-- into a .safetensors file, `neap.import` reads both and gives what can be called.
--
-- The text is `net:text()`, in the file's metadata under "neap.net"; the tensors have the names of
-- its blobs. Any reader of safetensors sees the tensors.
-- @module neap.model
local core = require "neap.core"
local op = require "neap.op"
local record = require "neap.inner.record"
local workspace = require "neap.workspace"
local fail = core.fail

local model = {}

local export_options = record.declare("neap.export", { call = "(model, path, {})",
  doc = [[Writes a model's net for inference, or a net, its parameters and state as a .safetensors
    file: true, or nil, message, code. The file is written beside `path` and renamed: a reader sees
    the old one or the new one.]],
  { "batch", "integer", 1, min = 1,
    doc = "of the net that is written of a model; other batches can be run all the same" },
  { "workspace", "workspace", unset = "the model's", doc = "where the parameters of a net are" },
  { "input", "shapes", unset = "as the model says", doc = "shape of one example" },
  { "input_dtype", "dtype", unset = "as the model says", doc = "of the input" },
  example = 'assert(neap.export(model, "run.safetensors", { batch = 16 }))' })

--- neap.export(model | net, path [, { .. }]) -> true, or nil, message, code: see the record.
-- @usage assert(neap.export(model, "lenet.safetensors"))
-- local f = assert(neap.import "lenet.safetensors")
-- print(f(pictures))
function model.export(what, path, given)
  local o = export_options:read(given)
  local net, ws
  if type(what) == "table" and rawget(what, "_is_module") then
    net = what:net { batch = o.batch, input = o.input, input_dtype = o.input_dtype }
    ws = what:workspace()
    ws:init(net)
  elseif op.is_net(what) then
    net, ws = what,
      o.workspace or fail("neap.export of a net needs { workspace = ws }, where its parameters are")
  else
    fail("neap.export expects a model or a net, got a " .. type(what))
  end
  return ws:_export(net, path)
end

local Imported = { __name = "neap.imported" }
Imported.__index = Imported

--- f(x) for a net of one input, f{name = x} for any: one output as it is, several as a table by
-- name.
Imported.__call = function(self, x)
  local inputs = self.net:inputs()
  if op.is_tensor(x) then
    if #inputs ~= 1 then
      fail(("the net has %d inputs: call it with { name = tensor }"):format(#inputs))
    end
    x = { [inputs[1].name] = x }
  end
  local out = self.workspace:run(self.net, x)
  local names = self.net:outputs()
  return #names == 1 and out[names[1]] or out
end

local import_options = record.declare("neap.import", { call = "(path, {})",
  doc = [[What neap.export wrote, or an ONNX file (.onnx), as a function, or nil, message, code:
    f(x) runs it, f.net is the net, f.workspace has its parameters. Of an ONNX file the other
    options say what it leaves open; f.notes lists what was assumed.]],
  { "map", "choice", unset = "they are read", choices = { "r", "c" },
    doc = [[how the file is mapped: its bytes are the parameters, nothing is read before it is used,
      and processes share it; "r": they can't be written; "c": what is written stays here]] },
  { "model", "boolean", false,
    doc = "ONNX: a module in the place of a function, whose weights can be trained" },
  { "dims", "any", says = "sizes by name, { batch = 4 }", unset = "each is 1",
    doc = "ONNX: sizes of the dimensions that the file names" },
  { "shapes", "any", says = "shapes by the input's name", unset = "the file's",
    doc = "ONNX: shapes of inputs, whatever the file says" },
  { "constants", "any", says = "tensors by the input's name", unset = "none",
    doc = "ONNX: inputs that always have this value, and are no inputs then" },
  example = 'neap.import("run.safetensors", { map = "r" })' })

local of_onnx = { "model", "dims", "shapes", "constants" }

--- neap.import(path [, { .. }]) -> f, or nil, message, code: see the record.
function model.import(path, given)
  local o = import_options:read(given)
  if type(path) ~= "string" then
    fail("neap.import expects a path, got " .. (path == nil and "nothing" or "a " .. type(path)))
  end
  if path:lower():match "%.onnx$" then
    if o.map then fail "neap.import: map is for .safetensors files" end
    local result, message, code = require("neap.onnx").import(path, o)
    if not result or o.model then return result, message, code end
    return setmetatable(result, Imported)
  end
  for _, name in ipairs(of_onnx) do
    if o[name] then fail(("neap.import: %s is for .onnx files"):format(name)) end
  end
  local ws = workspace.new {} -- draws a seed
  local net, message, code = ws:_import(path, o.map and { map = o.map } or nil)
  if not net then return nil, message, code end
  return setmetatable({ net = net, workspace = ws }, Imported)
end

return require("neap.inner.guard").functions(model, "neap.")
