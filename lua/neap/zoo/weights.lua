--- Weights from elsewhere: how a file of another library calls the parameters of a net.
--
-- A family of nets (neap.net.file) says it once, in `weights = f(o)`:
--
--   { source = "torchvision",
--     theirs = { { "^module%.", "" } },       -- what is changed in their names, before all else
--     ignored = { "num_batches_tracked$" },   -- what of theirs has no place here
--     { "^linear1%.(%a+)$", "fc.%1" },        -- our name, and theirs; * is any text without dots
--     { "^(%d+)%.w$", function(i) return { "q" .. i - 1, "k" .. i - 1 } end, transpose = true } }
--
-- The first rule that fits our name holds; a list of names is tensors that lie below each other
-- here. INVARIANT: nothing is left over, in the file or in the model: a model is loaded as a whole,
-- or an error says what is missing, unknown, or of another shape.
-- @module neap.zoo.weights
local core = require "neap.core"
local op = require "neap.op"
local options = require "neap.inner.options"
local fail = core.fail

local weights = {}

--- What a rule says of our name: a list of their names, and whether they lie transposed there.
local function theirs_of(rules, name)
  for _, rule in ipairs(rules) do
    local pattern, other = rule[1], rule[2]
    if name:match(pattern) then
      local found
      if type(other) == "function" then found = other(name:match(pattern))
      else found = name:gsub(pattern, other) end
      return type(found) == "table" and found or { found }, rule.transpose
    end
  end
end

--- Their tensors by the names that rules know.
local function renamed(rules, tensors)
  local out = {}
  for name, t in pairs(tensors) do
    local own = name
    for _, change in ipairs(rules.theirs or {}) do own = own:gsub(change[1], change[2]) end
    out[own] = { name = name, value = t }
  end
  return out
end

local function shape_text(t) return "(" .. table.concat(t.shape, ",") .. ")" end

--- The sizes of a shape that are not 1, as text.
local function sizes_text(shape)
  local sizes = {}
  for _, n in ipairs(shape) do
    if n ~= 1 then sizes[#sizes + 1] = n end
  end
  return table.concat(sizes, ",")
end

--- One tensor of ours, of a shape, from theirs; dimensions of 1 may stand elsewhere there.
-- A Linear's weight lies transposed in libraries that multiply from the left.
local function joined(list, transpose, shape)
  for i, t in ipairs(list) do
    list[i] = transpose and #t.shape == 2 and t:transpose(1, 2):contiguous() or t
  end
  local t = #list == 1 and list[1] or op.apply("Concat", list, { axis = 1 })
  -- Sizes that agree but for dimensions of 1 are the same numbers in the same order.
  if sizes_text(t.shape) ~= sizes_text(shape) then return t end
  return t:reshape(table.unpack(shape))
end

--- At most five of a list of complaints, as text.
local function some(list)
  table.sort(list)
  return table.concat(list, ", ", 1, math.min(#list, 5))
    .. (#list > 5 and (" and %d more"):format(#list - 5) or "")
end

--- What has no place in the model, of their names that no rule has asked for.
local function left_over(rules, by_name, used)
  local odd = {}
  for own, entry in pairs(by_name) do
    local is_ignored = used[own]
    for _, pattern in ipairs(rules.ignored or {}) do
      is_ignored = is_ignored or own:match(pattern) ~= nil
    end
    if not is_ignored then odd[#odd + 1] = entry.name end
  end
  return odd
end

--- Whether tensors go by the model's own names, as m:save writes them.
local function are_own(state, tensors)
  for name in pairs(tensors) do
    if state[name] == nil then return false end
  end
  return next(tensors) ~= nil
end

--- Tensors by our names, out of those that a library's names stand for.
local function translated(who, state, tensors, rules)
  local by_name, used, out = renamed(rules, tensors), {}, {}
  local missing, wrong = {}, {}

  -- By our names in order, so that complaints have one; each asks for one tensor of theirs, or
  -- several.
  for _, name in ipairs(options.keys(state)) do
    local names, transpose = theirs_of(rules, name)
    if not names then error(("no rule of weights is for %s"):format(name)) end
    local parts = {}
    for i, other in ipairs(names) do
      local entry = by_name[other]
      if entry then parts[i], used[other] = entry.value, true
      else missing[#missing + 1] = ("%s (our %s)"):format(other, name) end
    end
    if #parts == #names then
      local ok, t = pcall(joined, parts, transpose, state[name].shape)
      if not ok or shape_text(t) ~= shape_text(state[name]) then
        wrong[#wrong + 1] = ("%s is %s, and %s is %s"):format(names[1],
          ok and shape_text(t) or shape_text(parts[1]), name, shape_text(state[name]))
      end
      out[name] = t
    end
  end

  -- What is missing explains the rest better than what is left over.
  local odd = left_over(rules, by_name, used)
  local complaint = #missing > 0 and "has no " .. some(missing)
    or #wrong > 0 and "does not fit: " .. some(wrong)
    or #odd > 0 and "has what the net has no place for: " .. some(odd)
  if complaint then
    error(core.error { code = "shape",
      message = ("%s: the file %s"):format(who, complaint),
      hint = ("names are expected as in %s, or as m:save writes them"):format(rules.source) })
  end
  return out
end

--- Loads weights into a net of the zoo: a file of tensors by name (.safetensors, .npz), or a table
-- of them, called as the family's `weights` says or as the model calls them itself.
-- @param who string for messages
-- @param model
-- @param given string|table
-- @param rules table|nil of the family
function weights.load(who, model, given, rules)
  local tensors = given
  if type(given) == "string" then
    local message
    tensors, message = core.load(given, given:match "%.safetensors$" and { map = "r" } or nil)
    if not tensors then error(("%s: %s"):format(who, message), 0) end
    if op.is_tensor(tensors) then
      fail(("%s: %s holds one tensor without a name"):format(who, given))
    end
  end
  for name, t in pairs(tensors) do
    if type(name) ~= "string" or not op.is_tensor(t) then
      fail(("%s: weights are tensors by name, got a %s as %s"):format(who, type(t),
        tostring(name)))
    end
  end
  local state = model:expected_state()
  if not are_own(state, tensors) then
    if not rules then
      fail(("%s: the names of its weights in other libraries are not known here: they have to be \z
        as m:save writes them, such as \"%s\""):format(who, options.keys(state)[1] or ""))
    end
    tensors = translated(who, state, tensors, rules)
  end
  model:load_state_dict(tensors)
end

return weights
