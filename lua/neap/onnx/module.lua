--- An ONNX model as a module, whose weights are parameters that can be trained, frozen and saved.
-- Its forward goes through the file's graph each time a net is built of it.
-- @module neap.onnx.module
local core = require "neap.core"
local graph = require "neap.onnx.graph"
local kit = require "neap.onnx.kit"
local module = require "neap.nn.module"
require "neap.nn" -- whatever a module can
local onnx = require "neap.onnx"
local op = require "neap.op"

--- A place in the tree of parameters: what stands between dots in a weight's name.
local Part = module.class { "Part", name = "part", init = function() end,
  forward = function() core.fail "a part of an imported model has no forward of its own" end }

--- The part of `self` at a path, made where it is missing.
local function part_at(self, path)
  local at = self
  for _, name in ipairs(path) do
    local child = at._children[name]
    if not child then child = module.Module.add(at, name, Part {}) end
    at = child
  end
  return at
end

--- "layer1.0.conv1.weight" as { "layer1", "0", "conv1" }, "weight": a name that a module may have.
local function place_of(name)
  local path = {}
  for part in name:gmatch "[^./]+" do
    part = part:gsub("[^%w_-]", "_")
    path[#path + 1] = part:match "^_" and "w" .. part or part
  end
  return path, table.remove(path) or "weight"
end

--- Names in the order in which a walk through the graph declares them; the second of a name is
-- another weight.
local function counted()
  local seen = {}
  return function(name)
    seen[name] = (seen[name] or 0) + 1
    return seen[name] > 1 and ("%s_%d"):format(name, seen[name]) or name
  end
end

--- Declares what a first walk, on a net that is thrown away, has found.
local function declare_all(self, weights)
  local records = {}
  for _, w in ipairs(weights) do
    local path, name = place_of(w.name)
    local owner = part_at(self, path)
    while owner._params[name] or owner._children[name] or module.Module[name] do
      name = name .. "_"
    end
    if w.parameter then
      owner:param(name, w.tensor.shape, nil, { dtype = w.tensor.dtype })
    else
      owner:buffer(name, w.tensor.shape, nil, { dtype = w.tensor.dtype })
    end
    records[w.name] = owner._params[name]
  end
  return records
end

--- The shape of one example of each input: the first dimension is the batch.
local function example_shapes(inputs, o)
  local shapes = kit.map(inputs, function(input)
    local shape = onnx.shape_of(input, o, {})
    if #shape == 0 then
      kit.fail("input \"%s\" has no dimension for a batch: import it as a net", input.name)
    end
    local example = table.move(shape, 2, #shape, 1, {})
    example.dtype = kit.types[input.elem].dtype
    return example
  end)
  return #shapes == 1 and shapes[1] or shapes
end

local Model = module.class { "OnnxModel", name = "model",
  init = function(self, o)
    local inputs, weights, name_of = onnx.open_inputs(o.model), {}, counted()
    local built = onnx.build(o.model, o.options, function(net, name, t, parameter)
      name = name_of(name)
      weights[#weights + 1] = { name = name, tensor = t, parameter = parameter }
      return net:declare(name, parameter and "parameter" or "state", t.shape, t.dtype,
        { op = "Constant", value = 0 }, parameter == true)
    end)
    inputs = onnx.fed(inputs, o.options)
    self._onnx = { model = o.model, options = o.options, weights = weights, inputs = inputs,
      records = declare_all(self, weights) }
    self.notes = built.notes
    self._fields.input_shape = example_shapes(inputs, o.options)
    self._fields.input_dtype = kit.types[inputs[1].elem].dtype
  end,
  forward = function(self, ...)
    local own, xs, name_of = self._onnx, { ... }, counted()
    local values = onnx.constants(own.model, own.options)
    for i, input in ipairs(own.inputs) do
      values[input.name] = { x = xs[i], elem = input.elem, name = input.name, input = input.name }
    end
    local results = graph.run(own.model, op.net_of(xs[1]), values, function(_, name)
      return module.blob_of(own.records[name_of(name)])
    end)
    return table.unpack(kit.map(results, function(v) return v.blob or v.x end))
  end }

--- The module of a model that onnx.read gave, with the file's weights in it.
return function(model, o)
  local self = Model { model = model, options = o }
  local by_name = {}
  for _, w in ipairs(self._onnx.weights) do
    local record = self._onnx.records[w.name]
    by_name[module.dotted(record, require("neap.nn.tree").of(self))] = w.tensor
  end
  self:load_state_dict(by_name)
  self._onnx.weights = nil
  return self:eval()
end
