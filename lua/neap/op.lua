--- Every registered op as a function and a method, made from its record.
--
-- `Softmax` is net:Softmax(ins, outs, attrs) on nets, and in lower case neap.softmax(x, {axis = -1}), x:softmax {axis = -1}
-- for tensors and blobs alike. On tensors an op runs at once; on blobs it is added to the blob's net. Control ops have no
-- lower-case form.
-- @module neap.op
local core = require "neap.core"

local op = { records = {}, functions = {} }

--- SoftmaxCrossEntropy -> softmax_cross_entropy, L1Loss -> l1_loss, FC -> fc.
local function snake(name)
  return (name:gsub("(%u)(%u%l)", "%1_%2"):gsub("([%l%d])(%u)", "%1_%2"):lower())
end
op.snake = snake

local blob_class -- set by neap.net

local function is_tensor(x) return type(x) == "userdata" and getmetatable(x) == core.Tensor.meta end
local function is_blob(x) return type(x) == "table" and getmetatable(x) == blob_class end
op.is_tensor, op.is_blob = is_tensor, is_blob
function op.set_blob_class(class) blob_class = class end

--- The net that an op on a blob is added to: the blob's own, or the one inside it that is being built. Set by neap.net.
local function net_of(blob) return blob.net end
function op.set_net_of(f) net_of = f end

local function is_operand(x) return is_tensor(x) or is_blob(x) end

--- Numbers beside a tensor or blob become scalars of its dtype.
local function scalar(value, beside)
  local dtype = beside.dtype
  if is_tensor(beside) then return core.tensor(value, dtype) end
  return net_of(beside):const(value, dtype)
end

--- Runs op `name` on operands (tensors, or blobs and numbers).
-- @param inputs table operands, false where absent
-- @param attrs table|nil
-- @param n_out integer|nil
function op.apply(name, inputs, attrs, n_out)
  local first
  for i = 1, #inputs do
    if is_blob(inputs[i]) then
      first = inputs[i]
      break
    end
    if is_tensor(inputs[i]) and first == nil then first = inputs[i] end
  end
  for i = 1, #inputs do
    local x = inputs[i]
    if type(x) == "number" or type(x) == "boolean" and x then
      if first == nil then error(name .. " expects a tensor or a blob beside numbers", 3) end
      inputs[i] = scalar(x, first)
    elseif x and not is_operand(x) then
      error(("%s expects tensors or blobs, got a %s as input %d"):format(name, type(x), i), 3)
    elseif is_blob(first) and is_tensor(x) then
      inputs[i] = net_of(first):const(x)
    end
  end
  if is_blob(first) then
    local outs
    local net = net_of(first)
    if n_out then
      outs = {}
      for k = 1, n_out do outs[k] = net:fresh_name(snake(name)) end
    end
    return net:op(name, inputs, outs, attrs)
  end
  return core.eager(name, inputs, attrs, n_out)
end

--- f(x, y, .., attrs) or f({x, y, ..}, attrs) for one record.
local function make_function(record)
  local name = record.name
  local last = record.outputs[#record.outputs]
  local splits = last ~= nil and last.variadic -- as many outputs as parts are asked for
  return function(...)
    local args = table.pack(...)
    local attrs, n_out
    local inputs = {}
    if type(args[1]) == "table" and not is_blob(args[1]) and is_operand(args[1][1]) then
      inputs = table.move(args[1], 1, #args[1], 1, {})
      attrs = args[2]
    else
      for i = 1, args.n do
        local x = args[i]
        if i == args.n and type(x) == "table" and not is_blob(x) then
          attrs = x
        else
          inputs[i] = x or false
        end
      end
    end
    if attrs and attrs.outputs then -- how many outputs are wanted, for ops that can give more
      n_out = attrs.outputs
      attrs = table.move(attrs, 1, 0, 1, {})
      for key, value in pairs(args[args.n]) do
        if key ~= "outputs" then attrs[key] = value end
      end
    end
    if n_out == nil and splits and attrs and attrs.sizes then n_out = #attrs.sizes end
    if #record.inputs == 0 and attrs and attrs[1] and attrs.shape == nil then -- neap.uniform { 2, 3, low = 0 }
      local shaped = { shape = {} }
      for key, value in pairs(attrs) do
        if math.type(key) == "integer" then shaped.shape[key] = value else shaped[key] = value end
      end
      attrs = shaped
    end
    return op.apply(name, inputs, attrs, n_out)
  end
end

for _, name in ipairs(core.op_names()) do
  local record = core.record(name)
  op.records[name] = record
  if not record.internal and not record.control then op.functions[snake(name)] = make_function(record) end
end

--- Operators of tensors and blobs: numbers broadcast, everything goes through the ops.
-- @param meta table metatable
function op.set_operators(meta)
  local function binary(name)
    return function(a, b) return op.apply(name, { a, b }) end
  end
  meta.__add, meta.__sub, meta.__mul, meta.__div = binary "Add", binary "Sub", binary "Mul", binary "Div"
  meta.__idiv, meta.__mod, meta.__pow = binary "FloorDiv", binary "Mod", binary "Pow"
  meta.__band, meta.__bor, meta.__bxor = binary "LogicalAnd", binary "LogicalOr", binary "LogicalXor"
  meta.__unm = function(a) return op.apply("Neg", { a }) end
  meta.__bnot = function(a) return op.apply("LogicalNot", { a }) end
end

return op
