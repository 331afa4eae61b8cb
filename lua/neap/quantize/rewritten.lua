--- Models that are written again from a recipe (neap.quantize.recipe): quantised ones, and those
-- with sparse weights. Their weights are state, which no training changes.
-- @module neap.quantize.rewritten
local arguments = require "neap.data.batch"
local batches = require "neap.quantize.batches"
local core = require "neap.core"
local imported = require "neap.nn.imported"
local forward = require "neap.nn.forward"
local module = require "neap.nn.module"
local op = require "neap.op"
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
      return recipe.write(self._recipe, table.pack(...), function(own)
        return forward.blob_of(self._own[own])
      end)
    end }
end

-- The batch whose net is written again, and those whose nets must say the same.
local BATCH <const>, OTHERS <const> = 2, { 4, 64 }

--- Names of what forward gives, {n =}, with false where it gives nothing.
local function names_of(results, who)
  local names = { n = results.n }
  for k = 1, results.n do
    local y = results[k]
    if y ~= nil and not op.is_blob(y) then
      core.fail(("%s: the model's forward gives a %s as output %d, and a model that is made of it \z
        gives tensors"):format(who, type(y), k))
    end
    names[k] = y ~= nil and y.name
  end
  return names
end

--- The names of the net's inputs by their position in forward, {n =}, false where none is given.
local function places_of(model, shape, net, who)

  local places, last = arguments.shapes(model, shape)
  local names, is_known = { n = last }, {}
  for k = 1, last do
    names[k] = places[k] and places[k].name or false
    is_known[names[k]] = true
  end
  for _, input in ipairs(net:inputs()) do
    if not is_known[input.name] then
      core.fail(("%s: the model's forward declares an input of its own, \"%s\""):format(
        who, input.name))
    end
  end
  return names
end

--- The recipe of a model, for inference, and what else its rewriting needs.
-- @param shape of one example, as m:net's `input` @param who the function that asks
-- @return recipe, workspace, f(batch) -> net, which raises where that net isn't the recipe's
function rewritten.recipe_of(model, shape, who)
  local function build(rows)
    local net, _, record = model:net { batch = rows, train = false, input = shape }
    return net, record.results
  end
  local net, results = build(BATCH)
  local ws, steps = model:workspace(), recipe.steps_of(net, who)
  local compare = batches.comparer(who, steps, BATCH)

  -- The recipe is made at one batch; a net at another is compared with it before anybody uses it,
  -- so that no number of a batch is taken for one that never changes.
  local function net_of(rows)
    local other = rows == BATCH and net or build(rows)
    if rows ~= BATCH then compare(recipe.steps_of(other, who), rows) end
    return other
  end
  for _, rows in ipairs(OTHERS) do net_of(rows) end
  ws:init(net)
  return recipe.of(net, steps, places_of(model, shape, net, who), names_of(results, who), ws), ws,
    net_of
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
  local names, has_more = arguments.arguments(model)
  if not has_more then
    rawset(made, "_arguments", table.move(names, 1, r.arguments.n, 1, {}))
  end

  -- The recipe has read its numbers: what was weights is the made model's state, and two of each
  -- would be held otherwise.
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
