--- A net at several batches: which of its numbers are sizes of so many batches, and that nothing
-- else follows from the batch, since a model that is written again has one list of ops for all.
-- @module neap.quantize.batches
local core = require "neap.core"

local batches = {}

local function refuse(c, step, what, rows)
  core.fail(("%s: %s \"%s\"%s: %s depends on the batch: with %d rows it is another than with %d, \z
    and what is made of the model would be right at one batch alone. Only the batch as a \z
    dimension, or a multiple of it, can change"):format(c.who, step.type, step.name,
      step.line and step.line ~= "" and (" (%s)"):format(step.line) or "", what, rows, c.batch))
end

--- Whether a number of an attribute is that of `rows` rows, where it is `size` at `batch`.
local function is_scaled(size, other, batch, rows)
  return math.type(size) == "integer" and size % batch == 0 and other == size // batch * rows
end

--- Notes the place of a list as one of batches, or raises.
local function compare_list(c, step, name, other, rows)
  local value = step.attrs[name]
  local what = ("its attribute \"%s\""):format(name)
  if #value ~= #other then refuse(c, step, what, rows) end
  for k, size in ipairs(value) do
    local at = ("%s/%d"):format(name, k)

    -- The first comparison finds the sizes that grow with the batch; later ones hold all numbers
    -- against what it found.
    if c.n_compared == 0 and other[k] ~= size and is_scaled(size, other[k], c.batch, rows) then
      step.times[at] = size // c.batch
      step.scaled = step.scaled or {}
      table.insert(step.scaled, { name = name, at = k, times = size // c.batch })
    end
    -- What was no size of batches then must be the same number at every batch.
    local want = step.times[at] and step.times[at] * rows or size
    if other[k] ~= want then refuse(c, step, what, rows) end
  end
end

local function compare_attributes(c, step, other, rows)
  local names = {}
  for name in pairs(step.attrs) do names[name] = true end
  for name in pairs(other.attrs) do names[name] = true end
  for name in pairs(names) do
    local a, b = step.attrs[name], other.attrs[name]
    -- Numbers that are no list can't be noted as scaled: they must agree, as NaN does with itself.
    if type(a) == "table" and type(b) == "table" then
      compare_list(c, step, name, b, rows)
    elseif a ~= b and not (a ~= a and b ~= b) then
      refuse(c, step, ("its attribute \"%s\""):format(name), rows)
    end
  end
end

local function compare_names(c, step, other, rows)
  for k = 1, math.max(#step.inputs, #other.inputs) do
    if step.inputs[k] ~= other.inputs[k] then
      refuse(c, step, ("its input %d"):format(k), rows)
    end
  end
  for k = 1, math.max(#step.outputs, #other.outputs) do
    if step.outputs[k] ~= other.outputs[k] then refuse(c, step, "what it makes", rows) end
  end
end

--- f(steps, rows) that raises unless these steps are those given at another batch. What the first
-- call finds to be sizes of batches is noted in the given steps: `scaled`, a list of {name of the
-- attribute, at = place in its list, times = how many batches}.
-- @param who the function that asks @param steps recipe.steps_of @param batch theirs
function batches.comparer(who, steps, batch)
  local c = { who = who, batch = batch, n_compared = 0 }
  -- Folding changes the steps; what is compared stays.
  local kept = {}
  for i, step in ipairs(steps) do
    step.times = {}
    kept[i] = {}
    for key, value in pairs(step) do kept[i][key] = value end
  end
  return function(others, rows)
    for i = 1, math.max(#kept, #others) do
      local step, other = kept[i], others[i]
      if not step or not other or step.type ~= other.type then
        refuse(c, other or step, "this step of the forward", rows)
      end
      compare_names(c, step, other, rows)
      compare_attributes(c, step, other, rows)
      steps[i].scaled = step.scaled
    end
    c.n_compared = c.n_compared + 1
  end
end

return batches
