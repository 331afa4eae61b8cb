--- Every registered op as a function and a method, made from its record.
--
-- `Softmax` is net:Softmax(ins, outs, attrs) on nets, and in lower case neap.softmax(x, {axis =
-- -1}), x:softmax {axis = -1} for tensors and blobs alike. On tensors an op runs at once; on blobs
-- it is added to the blob's net. Control ops have no lower-case form.
-- @module neap.op
local core = require "neap.core"
local options = require "neap.inner.options"
local fail = core.fail

local op = { records = {}, functions = {} }

--- SoftmaxCrossEntropy -> softmax_cross_entropy, L1Loss -> l1_loss, FC -> fc; and as everybody
-- writes them IsNaN -> is_nan, PRelu -> prelu.
local usual = { IsNaN = "is_nan", PRelu = "prelu" }
local function snake(name)
  return usual[name] or (name:gsub("(%u)(%u%l)", "%1_%2"):gsub("([%l%d])(%u)", "%1_%2"):lower())
end
op.snake = snake

local blob_class -- set by neap.net

local function is_tensor(x) return type(x) == "userdata" and getmetatable(x) == core.Tensor.meta end
local function is_blob(x) return type(x) == "table" and getmetatable(x) == blob_class end
op.is_tensor, op.is_blob = is_tensor, is_blob
function op.is_net(x) return type(x) == "userdata" and getmetatable(x) == core.Net.meta end
function op.set_blob_class(class) blob_class = class end

--- The net that an op on a blob is added to: the blob's own, or the one inside it that is being
-- built. Set by neap.net.naming.
local function net_of(blob) return blob.net end
function op.set_net_of(f) net_of = f end
function op.net_of(blob) return net_of(blob) end

--- The net that is being built by a function that Neap has called (a module's forward, a scope, a
-- branch), nil outside of all. Set by neap.net.naming.
local function net_being_built() return nil end
function op.set_net_being_built(f) net_being_built = f end
function op.net_being_built() return net_being_built() end

--- Runs an op that is made of others: (record, operands, attributes) -> list of results. Set by
-- neap.ops.compose.
-- @tparam function f
-- @tparam function text of an op's page: (record) -> text
function op.set_composed(f, text) op.composed, op.composed_text = f, text end

--- The page of an op.
function op.help(record)
  return record.made_of and op.composed_text(record) or core.op_help(record.name)
end

--- Calls f(...), which adds to a net, all or nothing. Set by neap.net.naming.
local attempt
function op.set_attempt(f) attempt = f end

--- The same for a function that adds several ops on a blob.
function op.attempt(blob, f, ...) return attempt(net_of(blob), f, ...) end

local function is_operand(x) return is_tensor(x) or is_blob(x) end

--- Whether input i of the record is a flag, whose dtype says nothing of the other inputs': the
-- condition of Where.
local function is_flag(record, i)
  local input = record.inputs[math.min(i, #record.inputs)]
  return input ~= nil and #input.dtypes == 1 and input.dtypes[1] == "bool"
end

--- The dtype of the operands that numbers stand beside, nil where there is none. A flag says
-- nothing of the others.
local function dtype_beside(record, inputs)
  for i, x in ipairs(inputs) do
    if is_operand(x) and not is_flag(record, i) then return x.dtype end
  end
end

--- The dtype that a number or boolean gets as input i. A fraction among integers raises: it would
-- lose what it says.
local function scalar_dtype(record, inputs, i)
  local x = inputs[i]
  if is_flag(record, i) or type(x) == "boolean" and not dtype_beside(record, inputs) then
    return "bool"
  end
  local dtype = dtype_beside(record, inputs) or "f32"
  if type(x) == "number" and not math.tointeger(x) and dtype:match "^[iu]" then
    fail(("%s: %s is no %s, the dtype of the tensor beside it; give that another one first: x:to \z
      \"f32\""):format(record.name, x, dtype))
  end
  return dtype
end

--- Whether input i is a number or a boolean; false where an input may be absent says that it is.
local function is_value(record, i, x)
  local input = record.inputs[math.min(i, #record.inputs)]
  return type(x) == "number" or x == true or x == false and input ~= nil and not input.optional
end

--- The net that an op on these inputs is added to; nil: it runs at once. Beside blobs it is the
-- blobs' net. Random ops in a function that builds a net are part of the net: a number drawn while
-- building would be the same in every run.
local function net_for(record, inputs)
  for _, x in ipairs(inputs) do
    if is_blob(x) then return net_of(x) end
  end
  return record.random and net_being_built() or nil
end

--- The operands as tensors or, with `net`, blobs.
local function take_operands(record, net, inputs)
  for i = 1, #inputs do
    local x = inputs[i]
    if is_value(record, i, x) then
      local dtype = scalar_dtype(record, inputs, i)
      inputs[i] = net and net:const(x, dtype) or core.tensor(x, dtype)
    elseif x and not is_operand(x) then
      fail(("%s expects tensors or blobs, got a %s as input %d"):format(record.name, type(x), i))
    elseif net and is_tensor(x) then
      inputs[i] = net:const(x)
    end
  end
end

local function add_to(net, record, inputs, attrs, n_out)
  take_operands(record, net, inputs)
  return net:op(record.name, inputs, n_out, attrs)
end

-- What a kernel takes at once where no net is planned.
local most_at_once = 64

--- A list of tensors that is longer than that, joined part by part.
local function joined(inputs, attrs)
  local parts = {}
  for i = 1, #inputs, most_at_once do
    local last = math.min(i + most_at_once - 1, #inputs)
    parts[#parts + 1] = core.eager("Concat", table.move(inputs, i, last, 1, {}), attrs)
  end
  return #parts > most_at_once and joined(parts, attrs) or parts
end

--- Runs op `name` on operands, or adds it to the net that they belong to. Numbers and booleans
-- become scalars of the dtype of the operands beside them, tensors beside blobs constants.
-- @param inputs table tensors, blobs, numbers; false where absent
-- @param attrs table|nil
-- @param n_out integer|nil
function op.apply(name, inputs, attrs, n_out)
  local record = op.records[name]
  local net = net_for(record, inputs)
  if net then return attempt(net, add_to, net, record, inputs, attrs, n_out) end
  take_operands(record, nil, inputs)
  if record.made_of then return table.unpack(op.composed(record, inputs, attrs)) end
  if name == "Concat" and #inputs > most_at_once then inputs = joined(inputs, attrs) end
  return core.eager(name, inputs, attrs, n_out)
end

local function is_list_of_operands(x)
  return type(x) == "table" and not is_blob(x) and is_operand(x[1])
end
local function is_options(x) return type(x) == "table" and getmetatable(x) == nil end

--- f(2, 3), f{2, 3}, f{field = {2, 3}} and f{field = 2} alike: the list of integers.
function op.sizes(who, field, ...)
  local first = ...
  if type(first) ~= "table" then return { ... } end
  if select("#", ...) > 1 then fail(who .. ": one list is expected, or integers") end
  local given, list = first[field], {}
  if given ~= nil then
    for key in pairs(first) do
      if key ~= field then fail(("%s: unknown field \"%s\""):format(who, tostring(key))) end
    end
  end
  if given ~= nil and type(given) ~= "table" then given = { given } end
  for key, value in pairs(given or first) do
    if math.type(key) ~= "integer" then
      fail(("%s: unknown field \"%s\""):format(who, tostring(key)))
    end
    list[key] = value
  end
  return list
end

--- A copy of `given` without its field `outputs`, and that field: how many outputs are wanted, of
-- ops that can give more.
local function without_outputs(given)
  local attrs = {}
  for key, value in pairs(given) do
    if key ~= "outputs" then attrs[key] = value end
  end
  return attrs, given.outputs
end

--- f(x, y, .., attributes) or f({x, y, ..}, attributes) for one record. The attributes are a table
-- of named ones, or values in the record's order, or both: softmax(x, {axis = 1}), softmax(x, 1).
local function make_function(record)
  local name, n_in = record.name, #record.inputs
  local last_in, last_out = record.inputs[n_in], record.outputs[#record.outputs]
  if last_in and last_in.variadic then n_in = math.huge end
  local splits = last_out ~= nil and last_out.variadic -- as many outputs as parts are asked for
  return function(...)
    local args, attrs, inputs, first = table.pack(...), {}, {}, 1

    -- One list of operands, or operands one by one until a table of options comes.
    if is_list_of_operands(args[1]) then
      inputs, first = options.append(inputs, args[1]), 2
    else
      while first <= args.n and first <= n_in and not is_options(args[first]) do
        local x, input = args[first], record.inputs[math.min(first, #record.inputs)]
        if x == nil and not input.optional then
          fail(("%s: input %d, \"%s\", is nil"):format(name, first, input.name))
        end
        -- false, as long as something follows: a hole would end the list
        inputs[first] = x ~= nil and x
        first = first + 1
      end
    end

    -- A plain table at the end has the attributes by name, and `outputs`; what stands before it are
    -- attributes by position.
    local last, n_out = args.n, nil
    if last >= first and is_options(args[last]) then
      attrs, n_out = without_outputs(args[last])
      last = last - 1
    end
    if last >= first and attrs[1] ~= nil then
      fail(name .. ": attributes are given by position twice, beside a table and in it")
    end

    -- The record's order: attributes 1, 2, .. are put to their names in C.
    table.move(args, first, last, 1, attrs)
    -- What is made of other ops counts its parts itself.
    if n_out == nil and splits and not record.made_of then
      local sizes = attrs.sizes or attrs[2]
      if type(sizes) ~= "table" then
        fail(name
          .. ": into how many parts? Give { outputs = n } for equal ones, or { sizes = {..} }")
      end
      n_out = #sizes
    end
    return op.apply(name, inputs, attrs, n_out)
  end
end

-- Tables that have every op as a function: of neap, tensors and blobs.
local surfaces = {}

--- Gives a table every op there is, and each that is defined later, under names that it leaves
-- free.
function op.surface(t)
  surfaces[#surfaces + 1] = t
  for name, f in pairs(op.functions) do
    -- A table's own names go first: x:size is no op.
    if rawget(t, name) == nil then rawset(t, name, f) end
  end
end

--- Makes an op known by its record.
function op.define(record)
  op.records[record.name] = record
  if record.internal or record.control then return end
  local name, f = snake(record.name), make_function(record)
  op.functions[name] = f
  for _, t in ipairs(surfaces) do
    if rawget(t, name) == nil then rawset(t, name, f) end
  end
end

for _, name in ipairs(core.op_names()) do op.define(core.record(name)) end

--- Names of all ops, in order: those of C, and those made of them.
function op.names()
  local names = {}
  for name in pairs(op.records) do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- The op that a name may have been meant for, nil where none is like it.
function op.suggest(name) return core.suggest(name) or options.nearest(name, op.names()) end

--- Operators of tensors and blobs: numbers broadcast, everything goes through the ops.
-- @param meta table metatable
function op.set_operators(meta)
  local function binary(name)
    return function(a, b)
      if a == nil or b == nil then
        fail(("%s: one side is nil: a field or variable that nobody has set, such as self.name in \z
          a forward?"):format(name))
      end
      return op.apply(name, { a, b })
    end
  end
  meta.__add, meta.__sub, meta.__mul, meta.__div = binary "Add", binary "Sub", binary "Mul",
    binary "Div"
  meta.__idiv, meta.__mod, meta.__pow = binary "FloorDiv", binary "Mod", binary "Pow"
  meta.__band, meta.__bor, meta.__bxor = binary "LogicalAnd", binary "LogicalOr",
    binary "LogicalXor"
  meta.__unm = function(a) return op.apply("Neg", { a }) end
  meta.__bnot = function(a) return op.apply("LogicalNot", { a }) end
end

return op
