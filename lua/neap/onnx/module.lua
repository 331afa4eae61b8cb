--- An ONNX model as a module, whose weights are parameters that can be trained, frozen and saved.
-- Its forward goes through the file's graph each time a net is built of it.
-- @module neap.onnx.module
local graph = require "neap.onnx.graph"
local imported = require "neap.nn.imported"
local kit = require "neap.onnx.kit"
local forward = require "neap.nn.forward"
local module = require "neap.nn.module"
require "neap.nn" -- whatever a module can
local onnx = require "neap.onnx"
local op = require "neap.op"

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
    records[w.name] = imported.declare(self, { name = w.name, shape = w.tensor.shape,
      dtype = w.tensor.dtype, parameter = w.parameter, trainable = w.parameter == true })
  end
  return records
end

--- What forward's arguments are called: as the file's inputs, but y, which is a batch's target.
local function arguments_of(inputs)
  return kit.map(inputs, function(input, i)
    local name = graph.clean(input.name)
    return name == "y" and "x" .. i or name
  end)
end

--- The shape of one example of each input, by its name: the first dimension is the batch.
local function example_shapes(inputs, names, o)
  if #inputs == 0 then kit.fail "the graph has no input: import it as a net" end
  local shapes = {}
  for i, input in ipairs(inputs) do
    local shape = onnx.shape_of(input, o, {})
    if #shape == 0 then
      kit.fail("input \"%s\" has no dimension for a batch: import it as a net", input.name)
    end
    local example = table.move(shape, 2, #shape, 1, {})
    example.dtype = kit.types[input.elem].dtype
    shapes[names[i]] = example
  end
  return shapes
end

local Model = module.class { "OnnxModel", name = "model",
  init = function(self, o)
    -- A first walk finds the weights, in the order in which each later walk meets them.
    local inputs, weights = onnx.open_inputs(o.model), {}
    local function walk(whole)
      local name_of = counted()
      weights = {}
      return onnx.build(o.model, o.options, function(net, name, t, parameter)
        name = name_of(name)
        weights[#weights + 1] = { name = name, tensor = t, parameter = parameter }
        return net:declare(name, parameter and "parameter" or "state", t.shape, t.dtype,
          { op = "Constant", value = 0 }, parameter == true)
      end, { module = { training = false }, whole = whole })
    end

    -- Where a node must know what is made of weights, such is computed once.
    local whole, built = pcall(walk, true)
    if not whole then built = walk(false) end

    inputs = onnx.fed(inputs, o.options)
    self._onnx = { model = o.model, options = o.options, weights = weights, inputs = inputs,
      whole = whole, records = declare_all(self, weights) }
    self.notes, self._onnx.elems = built.notes, built.elems
    self._arguments = arguments_of(inputs)
    self._fields.input_shape = example_shapes(inputs, self._arguments, o.options)
    self._fields.input_dtype = kit.types[inputs[1].elem].dtype
  end,
  forward = function(self, ...)
    -- Each net gets the file's graph anew, with the module's weights in the place of the file's.
    local own, xs, name_of = self._onnx, { ... }, counted()
    local values = onnx.constants(own.model, own.options)
    for i, input in ipairs(own.inputs) do
      values[input.name] = { x = xs[i], elem = input.elem, name = input.name, input = input.name }
    end
    local results = graph.run(own.model, op.net_of(xs[1]), values, function(_, name)
      return forward.blob_of(own.records[name_of(name)])
    end, true, { module = self, whole = own.whole })
    return table.unpack(kit.map(results, function(v) return v.blob or v.x end))
  end }

--- The module of a model that onnx.read gave, with the file's weights in it.
return function(model, o)
  local self = Model { model = model, options = o }
  local by_name = {}
  for _, w in ipairs(self._onnx.weights) do
    by_name[imported.name_of(self, self._onnx.records[w.name])] = w.tensor
  end
  self:load_state_dict(by_name)
  self._onnx.weights = nil
  return self:eval()
end
