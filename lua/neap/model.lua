--- Models in one file: `neap.export` writes a net as text and its parameters and state as tensors
-- into a .safetensors file, `neap.import` reads both and gives what can be called. ONNX files both
-- leave to neap.onnx.
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
  doc = [[Writes a model's net for inference, a net or an imported function, its parameters and
    state as a .safetensors file, or as an ONNX file (.onnx): true, or nil, message, code. The file
    is written beside `path` and renamed: a reader sees the old one or the new one. An ONNX file has
    what the outputs need, as it infers: no gradients, losses, updates or dropout; what ONNX has no
    op for is listed, all of it.]],
  { "batch", "any", says = "an integer, or for .onnx a name", unset = "1",
    doc = [[of the net that is written of a model; other batches can be run all the same; ONNX: a
      name, "batch", is a dimension that is known when the file is run]] },
  { "dims", "any", says = 'names by input, { x = { "batch", false, "steps" } }, or true',
    unset = "of an imported function those of its file; else none", doc = [[ONNX: dimensions of
      inputs that are known when the file is run, false for one whose size stays; true, of an
      imported model: those that its file names]] },
  { "opset", "integer", unset = "the oldest from 13 on that has the net's ops", min = 13, max = 26,
    doc = "ONNX: the version of the standard's ops; what it lacks is written in parts" },
  { "outputs", "any", says = "names of blobs", unset = "the net's; of a loss, what it judges",
    doc = "ONNX: what the file gives" },
  { "workspace", "workspace", unset = "the model's", doc = "where the parameters of a net are" },
  { "input", "shapes", unset = "as the model says", doc = "shape of one example" },
  { "input_dtype", "dtype", unset = "as the model says", doc = "of the input" },
  example = 'assert(neap.export(model, "run.safetensors", { batch = 16 }))' })

--- Raises for a batch that is none, and for what only ONNX files have.
local function check_batch(o, as_onnx)
  local is_count = math.type(o.batch) == "integer" and o.batch >= 1
  local is_name = as_onnx and type(o.batch) == "string" and o.batch:find "%S"
  if o.batch ~= nil and not is_count and not is_name then
    fail(("neap.export: batch expects an integer of at least 1%s, got %s"):format(
      as_onnx and " or a name" or "", require("neap.inner.options").shown(o.batch)))
  end
  for _, name in ipairs { "opset", "outputs", "dims" } do
    if o[name] and not as_onnx then fail(("neap.export: %s is for .onnx files"):format(name)) end
  end
end

local Imported = { __name = "neap.imported" }
Imported.__index = Imported

--- neap.export(model | net | function, path [, { .. }]) -> true, or nil, message, code: see the
-- record.
-- @usage assert(neap.export(model, "lenet.safetensors"))
-- local f = assert(neap.import "lenet.safetensors")
-- print(f(pictures))
function model.export(what, path, given)
  local o = export_options:read(given)
  local ending = type(path) == "string" and path:lower():match "%.(%w+)$"
  if type(path) == "string" and ending ~= "safetensors" and ending ~= "onnx" then
    fail(("neap.export expects a path that ends in .safetensors or .onnx, got \"%s\""):format(path))
  end
  local as_onnx = ending == "onnx"
  check_batch(o, as_onnx)
  local net, ws

  -- A batch with a name may have any size when the file is run: the net is built of 2 rows.
  if type(what) == "table" and rawget(what, "_is_module") then
    net = what:net { batch = type(o.batch) == "string" and 2 or o.batch or 1, input = o.input,
      input_dtype = o.input_dtype }
    ws = what:workspace()
    ws:init(net)
  elseif getmetatable(what) == Imported then
    net, ws = what.net, what.workspace
  elseif op.is_net(what) then
    net, ws = what,
      o.workspace or fail("neap.export of a net needs { workspace = ws }, where its parameters are")
  else
    fail("neap.export expects a model, a net or an imported function, got a " .. type(what))
  end
  if as_onnx then return require("neap.onnx.export")(what, path, o, net, ws) end
  return ws:_export(net, path)
end

--- What it is called with, and the net that runs then.
Imported.__tostring = function(self)
  local names = {}
  for i, input in ipairs(self.net:inputs()) do names[i] = input.name end
  return ("imported function of (%s): %s"):format(table.concat(names, ", "), tostring(self.net))
end

--- The feeds of a call by the inputs' names: each input, and nothing else. A workspace keeps what
-- it was fed before, which is not what a function answers with.
local function feeds_of(inputs, x, n_given)
  local names = {}

  -- How the function is called, for the messages below.
  for i, input in ipairs(inputs) do names[i] = input.name .. " = tensor" end
  local call = #inputs == 1 and "f(x), or f{ %s }" or "f{ %s }"
  call = call:format(table.concat(names, ", "))
  if n_given > 1 then
    fail(("an imported function takes one argument, %s, got %d"):format(call, n_given))
  end
  if op.is_tensor(x) then
    if #inputs ~= 1 then
      fail(("the net has %d inputs: call it with { name = tensor }"):format(#inputs))
    end
    return { [inputs[1].name] = x }
  end
  if x == nil and #inputs == 0 then return {} end
  if type(x) ~= "table" then
    fail(("an imported function expects %s, got %s"):format(call,
      x == nil and "nothing" or "a " .. type(x)))
  end
  local is_given = {}
  for key in pairs(x) do is_given[op.is_blob(key) and key.name or key] = true end
  for _, input in ipairs(inputs) do
    if not is_given[input.name] then
      fail(("input \"%s\" is missing; call it as %s"):format(input.name, call))
    end
  end
  return x
end

--- f(x) for a net of one input, f{name = x} for any: one output as it is, several as a table by
-- name.
Imported.__call = function(self, ...)
  local feeds = feeds_of(self.net:inputs(), (...), select("#", ...))
  local net, range = self.net, nil
  -- Of files whose sizes are open the net depends on what is fed.
  if rawget(self, "_for") then net, range = self._for(feeds) end
  local out = self.workspace:run(net, feeds, nil, range)
  local names = net:outputs()
  return #names == 1 and out[names[1]] or out
end

local import_options = record.declare("neap.import", { call = "(path, {})",
  doc = [[What neap.export wrote, an ONNX file (.onnx), a TFLite file (.tflite) or a net of Caffe's
    (.prototxt), as a function, or nil, message, code: f(x) runs it, f.net is the net, f.workspace
    has its parameters. Of files of others the other options say what they leave open; f.notes lists
    what was assumed. A solver of Caffe's gives a trainer and what t:fit takes:
    t, fit = neap.import "solver.prototxt", and t.model.notes.]],
  { "map", "choice", unset = "they are read", choices = { "r", "c" },
    doc = [[how the file is mapped: its bytes are the parameters, nothing is read before it is used,
      and processes share it; "r": they can't be written; "c": what is written stays here]] },
  { "model", "boolean", false,
    doc = "of files of others: a module in the place of a function, whose weights can be trained; \z
      of ONNX not what Constant nodes hold, in a file that has other weights, and no mask of \z
      infinities" },
  { "dims", "any", says = "sizes or ranges by name, { batch = { 1, 32 }, steps = 4 }",
    unset = "each is 1", doc = [[ONNX, TFLite: sizes of the dimensions that the file names, in
      f.net; f(x) takes x of other sizes where the file leaves them open: a net for each is built
      and planned, with the same weights. A range is planned once, at its end, which f.net has: what
      f(x) brings within it runs by that plan, in its bytes; what lies without is refused]] },
  { "shapes", "any", says = "shapes by the input's name", unset = "the file's",
    doc = "ONNX, TFLite, Caffe: shapes of inputs, batch first, whatever the file says" },
  { "outputs", "any", says = "a list of names", unset = "the file's",
    doc = [[ONNX, TFLite: values of the file's nodes that come out instead; what only others need
      goes]] },
  { "constants", "any", says = "tensors by the input's name", unset = "none",
    doc = "ONNX, TFLite: inputs that always have this value, and are no inputs then" },
  { "weights", "string", says = "the path of a .caffemodel file", unset = "as fillers say",
    doc = "Caffe: the file that the net's weights are read from" },
  { "phase", "choice", choices = { "TRAIN", "TEST" },
    unset = "TEST; of a module that of the net that is built of it",
    doc = "Caffe: the phase whose layers are taken" },
  { "stages", "names", unset = "those of the file's state", doc = "Caffe: stages that hold" },
  { "level", "integer", unset = "that of the file's state, or 0",
    doc = "Caffe: the level that rules of layers ask for" },
  { "without", "names", unset = "none", doc = "Caffe: names of layers that are left out" },
  { "net", "string", says = "a path", unset = "as the solver says, and beside the solver",
    doc = "Caffe: where the net of a solver is" },
  example = 'neap.import("run.safetensors", { map = "r" })' })

-- What is for files of one kind alone, and what reads them.
local of_kind = {
  onnx = { reader = "neap.onnx", "model", "dims", "shapes", "constants", "outputs" },
  tflite = { reader = "neap.tflite", "model", "dims", "shapes", "constants", "outputs" },
  prototxt = { reader = "neap.caffe", "model", "shapes", "weights", "phase", "stages", "level",
    "without", "net" },
  safetensors = { "map" },
}

--- Raises for an option that files of this kind have not.
local function check_kind(kind, o)
  local kinds_of = {}
  for _, one in ipairs { "onnx", "tflite", "prototxt", "safetensors" } do
    for _, name in ipairs(of_kind[one]) do
      kinds_of[name] = kinds_of[name] or {}
      kinds_of[name][one] = true
      table.insert(kinds_of[name], "." .. one)
    end
  end
  for name, kinds in pairs(kinds_of) do
    if o[name] and not kinds[kind] then
      fail(("neap.import: %s is for %s files"):format(name, table.concat(kinds, " and ")))
    end
  end
end

--- neap.import(path [, { .. }]) -> f, or nil, message, code: see the record.
function model.import(path, given)
  local o = import_options:read(given)
  if type(path) ~= "string" then
    fail("neap.import expects a path, got " .. (path == nil and "nothing" or "a " .. type(path)))
  end

  -- What has no ending that is known is tried as Neap's own file.
  local ending = path:lower():match "%.(%w+)$"
  local kind = of_kind[ending] and ending or "safetensors"
  check_kind(kind, o)
  if of_kind[kind].reader then
    local result, more, code = require(of_kind[kind].reader).import(path, o)
    if type(result) ~= "table" or not rawget(result, "workspace") then return result, more, code end
    return setmetatable(result, Imported)
  end
  local ws = workspace.new {} -- draws a seed
  local net, message, code = ws:_import(path, o.map and { map = o.map } or nil)
  if not net then
    if code == "data" and ending ~= "safetensors" then
      message = message .. "; files of other kinds end in .onnx, .tflite or .prototxt"
    end
    return nil, message, code
  end
  return setmetatable({ net = net, workspace = ws }, Imported)
end

return require("neap.inner.guard").functions(model, "neap.")
