--- Batches: their fields, and which of them is which argument of the model's forward.
--
-- A batch has fields by name, { ids =, lengths =, y = }: forward takes those that are called as its
-- arguments are, losses take those that they name (neap.nn.objective), and y is the target. The
-- inputs may also go by number, { x1 =, x2 =, y = }, or in order, { x = { a, b }, y = } and { a, b,
-- y = }; x alone is the first argument, whatever it is called. A list of one more than forward's
-- arguments ends with the target: { a, b, y }.
--
-- INVARIANT: a field is known by one name everywhere, in batches read, data sets, nets and
-- workspaces: its own, and x1, x2, .. where it has none.
-- @module neap.data.batch
local core = require "neap.core"
local op = require "neap.op"
local options = require "neap.inner.options"
local tree = require "neap.nn.tree"
local fail = core.fail

local batch = {}

-- ---- forward's arguments ------------------------------------------------------------------------

--- Names of what a model's forward takes, but itself; a container's are its first layer's, and an
-- imported model says its own.
-- @return list, bool whether more can follow
function batch.arguments(m)
  local own = rawget(m, "_arguments")
  if own then return own, false end

  -- A Lambda's own function has no self. A container takes what its first layer takes.
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
  return k and k >= 1 and (has_more or k <= #names) and k or nil
end

--- Places fields as arguments of forward. One called x is the first argument where no other field
-- is; the target is one where forward has an argument y behind the first.
-- @param given {name = field}
-- @return {position = name}, the last position, the names of fields that are no argument
function batch.places(model, given)
  local names, has_more = batch.arguments(model)

  -- Fields by name, in their order; x waits, since it is the first argument only where no other
  -- field is.
  local at, last, others = {}, 0, {}
  local function place(name, k)
    if k and at[k] then
      fail(("a batch's \"%s\" and \"%s\" are both argument %d of %s"):format(
        at[k], name, k, shown(names, has_more)))
    end
    if k then at[k], last = name, math.max(last, k) else others[#others + 1] = name end
  end
  local has_x = false
  for _, name in ipairs(options.keys(given)) do
    local k = position_of(name, names, has_more)
    if name == "y" and k == 1 then k = nil end
    -- a model that has its losses in itself takes the target as its last argument
    if name == "y" and k == nil and rawget(model, "_takes_target") then k = #names end
    if name == "x" and (k == nil or k == 1) then has_x = true else place(name, k) end
  end
  if has_x then place("x", not at[1] and 1 or nil) end
  return at, last, others
end

--- Those of fields that forward takes. @return {name = field}
function batch.inputs(model, fields)
  local inputs, at = {}, batch.places(model, fields)
  for _, name in pairs(at) do inputs[name] = fields[name] end
  return inputs
end

--- Raises for a field that nobody reads.
-- @param taken {name = true} of the fields that losses and metrics take
function batch.fail_unread(model, name, taken)
  local names, has_more = batch.arguments(model)
  local all = table.move(names, 1, #names, 1, {})
  for _, other in ipairs(options.keys(taken)) do
    if other ~= name then all[#all + 1] = other end
  end
  local near = options.nearest(name, all)
  fail(("a batch is { x =, y = }, or has an input to each argument of %s: nothing reads its field \z
    \"%s\"%s"):format(
      shown(names, has_more), name, near and (", did you mean \"%s\"?"):format(near)
        or ": neither forward nor a loss or metric takes it"))
end

-- ---- reading ------------------------------------------------------------------------------------

-- What no field can be called: rows of a batch, and blobs of the trainer's own.
local reserved = { n = true, lr = true, loss = true, output = true }

--- A list of inputs into `fields`, as x1, x2, .. .
local function add_list(fields, list, n)
  for i = 1, n do
    local name = "x" .. i
    if list[i] == nil or fields[name] ~= nil then
      fail(("a batch has %s input %d"):format(list[i] == nil and "no" or "two of", i))
    end
    fields[name] = list[i]
  end
end

--- Fields by name of a batch, an example or a data set's spec: the target is y.
-- @param is_one f(value) -> whether a value is one field
-- @return {name = field}
function batch.apart(model, given, is_one)
  -- Positions first: a list of one more than forward takes ends with the target.
  local fields, n = { y = given.y }, #given
  if n > 0 then -- in order
    local names, has_more = batch.arguments(model)
    if fields.y == nil and not has_more and n == #names + 1 then fields.y, n = given[n], n - 1 end
    add_list(fields, given, n)
  end
  if given.x ~= nil then
    -- x may be a list of inputs, all of which are fields.
    local is_list = type(given.x) == "table" and not is_one(given.x) and #given.x > 0
    for i = 1, is_list and #given.x or 0 do is_list = is_list and is_one(given.x[i]) end
    if is_list then add_list(fields, given.x, #given.x) else fields.x = given.x end
  end

  -- The rest by name. n is the number of rows, which the tensors say themselves.
  for name, value in pairs(given) do
    local is_name = type(name) == "string"
    local is_item = math.type(name) == "integer" and name >= 1 and name <= #given
    if is_name and reserved[name] and name ~= "n" or not is_name and not is_item then
      fail(("a batch's field can't be called \"%s\""):format(tostring(name)))
    elseif is_name and name ~= "x" and name ~= "y" and name ~= "n" then
      if fields[name] ~= nil then fail(("a batch has two of input \"%s\""):format(name)) end
      fields[name] = value
    end
  end
  return fields
end

local function check_tensor(name, value)
  if not op.is_tensor(value) then
    fail(("a batch's %s expects a tensor, got a %s"):format(name, type(value)))
  end
end

--- A batch as the trainer reads it: what a data set says of it besides is how many rows it has.
-- @return {fields = {name = tensor}, rows = integer}
function batch.read(model, given)
  if type(given) ~= "table" then
    fail("trainer:step expects a batch { x = tensor, y = tensor }, got a " .. type(given))
  end
  local fields = batch.apart(model, given, op.is_tensor)
  batch.places(model, fields)
  local has_input = false
  for name in pairs(fields) do has_input = has_input or name ~= "y" end
  if not has_input then fail "a batch has no x: the model needs an input" end

  -- All fields have the same number of rows; a scalar is one row.
  local first, rows
  for _, name in ipairs(options.keys(fields)) do
    check_tensor(name, fields[name])
    local n = fields[name]:dim() > 0 and fields[name]:size(1) or 1
    if rows and n ~= rows then
      fail(("a batch's %s has %d rows, its %s %d"):format(name, n, first, rows))
    end
    first, rows = first or name, n
  end
  return { fields = fields, rows = rows }
end

-- ---- shapes -------------------------------------------------------------------------------------

--- The shapes of examples that a model's net is made for.
-- @param input {shape of one example}, a list of such, or {argument = shape}; a shape may have a
--   field dtype
-- @param dtype string|nil of all that do not say one
-- @param own string|nil the model's, of x where nothing else says one
-- @return list by position of {name =, shape =, dtype =}, with nothing where an argument is not
--   given; the last position
function batch.shapes(model, input, dtype, own)
  -- A list of shapes names them x1, x2 ..; shapes by name keep theirs; a shape alone is x.
  local is_list = type(input[1]) == "table"
  local by_name = {}
  if is_list then
    for i, shape in ipairs(input) do by_name["x" .. i] = shape end
  end
  for name, shape in pairs(input) do
    if type(name) == "string" and name ~= "dtype" then by_name[name] = shape end
  end
  if next(by_name) == nil then
    return { { name = "x", shape = input, dtype = input.dtype or dtype or own or "f32" } }, 1
  end
  local at, last, others = batch.places(model, by_name)
  if others[1] then batch.fail_unread(model, others[1], {}) end
  local out = {}
  for k, name in pairs(at) do
    local shape = by_name[name]
    if type(shape) ~= "table" then
      fail(("input \"%s\" expects the shape of one example, got %s"):format(
        name, options.shown(shape)))
    end
    out[k] = { name = name, shape = shape,
      dtype = shape.dtype or dtype or name == "x" and own or "f32" }
  end
  return out, last
end

return batch
