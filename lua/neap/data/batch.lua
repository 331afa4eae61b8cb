--- Batches: which of a batch's fields are inputs, and which of them is which argument of the
-- model's forward.
--
-- A batch is { x = tensor, y = target }, or has an input to each argument of forward: by the
-- argument's name, { image =, text =, y = }, by number, { x1 =, x2 =, y = }, or in order, { x = {
-- a, b }, y = } and { a, b, y = }. A list of one more than forward's arguments ends with the
-- target: { a, b, y }.
--
-- INVARIANT: an input is known by one name everywhere, in batches read, data sets, nets and
-- workspaces: its field's, and x1, x2, .. where it has none.
-- @module neap.data.batch
local core = require "neap.core"
local op = require "neap.op"
local options = require "neap.inner.options"
local tree = require "neap.nn.tree"
local fail = core.fail

local batch = {}

-- ---- forward's arguments ------------------------------------------------------------------------

--- Names of what a model's forward takes, but itself; a container's are its first layer's.
-- @return list, bool whether more can follow
function batch.arguments(m)
  local f, skip = m._methods.forward, 1
  if m._class == "Lambda" then f, skip = m.f, 0 end
  if m._class == "Sequential" and tree.layers(m)[1] then
    return batch.arguments(tree.layers(m)[1])
  end
  if f == nil then fail(("nn.%s has no forward"):format(m._class)) end
  local info, names = debug.getinfo(f, "u"), {}
  for i = skip + 1, info.nparams do names[#names + 1] = debug.getlocal(f, i) or "x" .. i - skip end
  return names, info.isvararg
end

--- What forward takes, as messages show it.
local function shown(names, has_more)
  local list = table.move(names, 1, #names, 1, {})
  if has_more then list[#list + 1] = "..." end
  return "forward(" .. table.concat(list, ", ") .. ")"
end

--- The argument that an input of that name is, from 1; nil: none.
local function position_of(name, names, has_more)
  for i, argument in ipairs(names) do
    if argument == name then return i end
  end
  local k = math.tointeger(tonumber(name:match "^x(%d+)$"))
  if name == "x" then k = 1 end
  return k and k >= 1 and (has_more or k <= #names) and k or nil
end

--- Places inputs as arguments of forward.
-- @param given {name = input}
-- @return {position = name}, the last position
function batch.places(model, given)
  -- x alone is the first argument, whatever it is called
  if given.x ~= nil and next(given, next(given)) == nil then return { "x" }, 1 end
  local names, has_more = batch.arguments(model)
  local at, last = {}, 0
  for _, name in ipairs(options.keys(given)) do
    local k = position_of(name, names, has_more)
    if not k then
      local near = options.nearest(name, names)
      fail(("a batch is { x =, y = }, or has an input to each argument of %s: nothing reads its \z
        field \"%s\"%s"):format(
        shown(names, has_more), name, near and (", did you mean \"%s\"?"):format(near) or ""))
    end
    if at[k] then
      fail(("a batch's \"%s\" and \"%s\" are both argument %d of %s"):format(
        at[k], name, k, shown(names, has_more)))
    end
    at[k], last = name, math.max(last, k)
  end
  return at, last
end

-- ---- reading ------------------------------------------------------------------------------------

local others = { y = true, n = true, lr = true }

--- A list of inputs into `inputs`, as x1, x2, .. .
local function add_list(inputs, list, n)
  for i = 1, n do
    local name = "x" .. i
    if list[i] == nil or inputs[name] ~= nil then
      fail(("a batch has %s input %d"):format(list[i] == nil and "no" or "two of", i))
    end
    inputs[name] = list[i]
  end
end

--- Inputs by name, and the target, of a batch, an example or a data set's spec.
-- @param is_one f(value) -> whether a value is one input
-- @return {name = input}, target or nil
function batch.apart(model, given, is_one)
  local inputs, y, n = {}, given.y, #given
  if n > 0 then -- in order
    local names, has_more = batch.arguments(model)
    if y == nil and not has_more and n == #names + 1 then y, n = given[n], n - 1 end
    add_list(inputs, given, n)
  end
  if given.x ~= nil then
    local is_list = type(given.x) == "table" and not is_one(given.x) and #given.x > 0
    for i = 1, is_list and #given.x or 0 do is_list = is_list and is_one(given.x[i]) end
    if is_list then add_list(inputs, given.x, #given.x) else inputs.x = given.x end
  end
  for name, value in pairs(given) do
    if type(name) == "string" and name ~= "x" and not others[name] then
      if inputs[name] ~= nil then fail(("a batch has two of input \"%s\""):format(name)) end
      inputs[name] = value
    elseif type(name) ~= "string" and (math.type(name) ~= "integer" or name < 1 or name > #given)
        or name == "lr" then
      fail(("a batch's field can't be called \"%s\""):format(tostring(name)))
    end
  end
  return inputs, y
end

local function check_tensor(name, value)
  if not op.is_tensor(value) then
    fail(("a batch's %s expects a tensor, got a %s"):format(name, type(value)))
  end
end

--- A batch as the trainer reads it: what a data set says of it besides is how many rows it has.
-- @return {inputs = {name = tensor}, y = tensor or nil, rows = integer}
function batch.read(model, given)
  if type(given) ~= "table" then
    fail("trainer:step expects a batch { x = tensor, y = tensor }, got a " .. type(given))
  end
  local inputs, y = batch.apart(model, given, op.is_tensor)
  if next(inputs) == nil then fail "a batch has no x: the model needs an input" end
  batch.places(model, inputs)
  local first, rows
  for _, name in ipairs(options.keys(inputs)) do
    check_tensor(name, inputs[name])
    local n = inputs[name]:dim() > 0 and inputs[name]:size(1) or 1
    if rows and n ~= rows then
      fail(("a batch's %s has %d rows, its %s %d"):format(name, n, first, rows))
    end
    first, rows = first or name, n
  end
  if y ~= nil then check_tensor("y", y) end
  return { inputs = inputs, y = y, rows = rows }
end

-- ---- shapes -------------------------------------------------------------------------------------

--- The shapes of examples that a model's net is made for.
-- @param input {shape of one example}, a list of such, or {argument = shape}; a shape may have a
--   field dtype
-- @param dtype string|nil of a single input
-- @return list by position of {name =, shape =, dtype =}, with nothing where an argument is not
--   given; the last position
function batch.shapes(model, input, dtype)
  local is_list = type(input[1]) == "table"
  local by_name = {}
  if is_list then
    for i, shape in ipairs(input) do by_name["x" .. i] = shape end
  end
  for name, shape in pairs(input) do
    if type(name) == "string" and name ~= "dtype" then by_name[name] = shape end
  end
  if next(by_name) == nil then
    return { { name = "x", shape = input, dtype = input.dtype or dtype or "f32" } }, 1
  end
  local at, last = batch.places(model, by_name)
  local out = {}
  for k, name in pairs(at) do
    local shape = by_name[name]
    if type(shape) ~= "table" then
      fail(("input \"%s\" expects the shape of one example, got %s"):format(
        name, options.shown(shape)))
    end
    out[k] = { name = name, shape = shape, dtype = shape.dtype or name == "x" and dtype or "f32" }
  end
  return out, last
end

return batch
