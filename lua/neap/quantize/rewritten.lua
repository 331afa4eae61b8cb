--- Models that are written again from a recipe (neap.quantize.recipe): quantised ones, and those
-- with sparse weights. Their weights are state, which no training changes.
-- @module neap.quantize.rewritten
local core = require "neap.core"
local imported = require "neap.nn.imported"
local module = require "neap.nn.module"
local recipe = require "neap.quantize.recipe"

local rewritten = {}

--- A class of such models.
function rewritten.class(name)
  return module.class { name, name = "model",
    init = function(self, o)
      self._recipe, self._own = o.recipe, {}
      for _, w in ipairs(o.weights) do
        self._own[w.name] = imported.declare(self, { name = w.name, shape = w.tensor.shape,
          dtype = w.tensor.dtype, init = { op = "Constant", value = 0 } })
      end
      self._fields.input_shape, self._fields.input_dtype = o.shape, o.dtype
    end,
    forward = function(self, ...)
      return recipe.write(self._recipe, { ... }, function(own)
        return module.blob_of(self._own[own])
      end)
    end }
end

--- The recipe of a model, for inference, and what else its rewriting needs.
-- @param shape of one example @return recipe, workspace, f(batch) -> net
function rewritten.recipe_of(model, shape)
  local function net_of(rows) return (model:net { batch = rows, train = false, input = shape }) end
  local net, ws = net_of(2), model:workspace()
  ws:init(net)
  return recipe.of(net, net_of(4), 2, ws), ws, net_of
end

--- The model of a recipe, evaluating. @param weights list of {name =, tensor =}
function rewritten.make(class, r, weights, shape, model)
  local made = class { recipe = r, weights = weights, shape = shape,
    dtype = model._fields.input_dtype }
  local by_name = {}
  for _, w in ipairs(weights) do
    by_name[imported.name_of(made, made._own[w.name])] = w.tensor
  end
  made:load_state_dict(by_name)
  for name in pairs(r.weights) do r.weights[name] = true end -- the numbers are the model's now
  for _, step in ipairs(r.steps) do
    step.weight, step.bias = step.weight and true, step.bias and true
  end
  return made:eval()
end

--- The shape of one example that a model was given or has met, else `otherwise`.
function rewritten.shape_of(model, otherwise, who)
  return model._fields.input_shape or rawget(model, "_seen") or otherwise
    or core.fail(who .. ": the shape of one example is unknown; give input = {..} to the model")
end

return rewritten
