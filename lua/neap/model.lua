--- Models in one file: `neap.export` writes a net as text and its parameters and state as tensors
-- into a .safetensors file, `neap.import` reads both and gives what can be called.
--
-- The text is `net:text()`, in the file's metadata under "neap.net"; the tensors have the names of
-- its blobs. Any reader of safetensors sees the tensors.
-- @module neap.model
local core = require "neap.core"
local named = require "neap.inner.options"
local op = require "neap.op"
local workspace = require "neap.workspace"
local fail = core.fail

local model = {}

--- neap.export(model, path, {batch =}) or neap.export(net, path, {workspace = ws}): writes the net
-- for inference, its parameters and state. The file is written beside `path` and renamed: a reader
-- sees the old one or the new one.
-- @param what module or net
-- @param path string, ending in .safetensors
-- @param given table|nil {batch = 1 of the net that is written; other batches can be run all the
--   same, workspace =, input =
-- the shape of one example, where the model does not say it, input_dtype =}
-- @return true, or nil, message, code
-- @usage assert(neap.export(model, "lenet.safetensors"))
-- local f = assert(neap.import "lenet.safetensors")
-- print(f(pictures))
function model.export(what, path, given)
  local o = named.read("neap.export", {
    batch = 1, workspace = named.none, input = named.none, input_dtype = named.none,
  }, given)
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

--- neap.import(path [, {map = "r"|"c"}]) -> f, or nil, message, code. f.net is the net, f.workspace
-- has its parameters; f(x) runs it. With map the parameters are the file's own bytes: nothing is
-- read before it is used, and processes share it.
function model.import(path, given)
  local o = named.read("neap.import", { map = named.none }, given)
  if type(path) ~= "string" then
    fail("neap.import expects a path, got " .. (path == nil and "nothing" or "a " .. type(path)))
  end
  local ws = workspace.new {} -- draws a seed
  local net, message, code = ws:_import(path, o.map and { map = o.map } or nil)
  if not net then return nil, message, code end
  return setmetatable({ net = net, workspace = ws }, Imported)
end

return require("neap.inner.guard").functions(model, "neap.")
