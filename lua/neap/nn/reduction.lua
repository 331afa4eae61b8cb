--- How the net of a loss makes one number of its rows: by a mean, or by a sum.
--
-- It is read from the op that the loss comes of. A loss of cross entropy, MseLoss or L1Loss says it
-- by its attribute; one of Mean or Sum over everything is that of its rows where each row comes to
-- it by itself, unscaled: a sum of what was divided by the rows' number is a mean. INVARIANT: what
-- can't be told for certain is nil.
-- @module neap.nn.reduction
local reduction = {}

local function set_of(words)
  local set = {}
  for word in words:gmatch "%S+" do set[word] = true end
  return set
end

local constants = set_of "Constant Literal"
local says_itself = set_of "SoftmaxCrossEntropy MseLoss L1Loss"
local reduces_axes = set_of "Mean Sum Max Min Prod"
local scales = set_of "Mul Div"
local along_axis = set_of "Softmax LogSoftmax"
-- What is a sum, or a mean, of several of them is one.
local keeps = set_of "Add AddN Sub Neg Alias Copy Cast"
-- Ops that make an element of a row of that row alone; of constants beside it, too.
local by_row = set_of [[Abs Add AddN Alias Cast Ceil Clamp Copy Cos Elu Eq Erf Exp Flatten Floor Ge
  Gelu Gt Le LeakyRelu Log LogicalAnd LogicalNot LogicalOr Lt Maximum Minimum Mod Ne Neg Pow
  Reciprocal Relu Relu6 Reshape Round Rsqrt Sigmoid Sign Silu Sin Softplus Sqrt Square Squeeze
StopGradient Sub Tanh Unsqueeze Where]]
--- The reading of one net: {net, batch, at = index of the op that makes a blob of the loss's own,
-- row = its row, is_param, known = has_rows of it}
local function read(net, first, batch)
  local reading = { net = net, batch = batch, at = {}, row = {}, is_param = {}, known = {} }
  for i, row in ipairs(net:_ops()) do
    for _, name in ipairs(i > first and row.outputs or {}) do
      if name then reading.at[name], reading.row[name] = i, row end
    end
  end
  for _, blob in ipairs(net:_blobs()) do
    reading.is_param[blob.name] = blob.role == "parameter" or blob.role == "state"
  end
  return reading
end

local function shape_of(r, name) return r.net:blob(name).shape or {} end

--- Whether axes, none being all, are among others than the first of `rank`.
local function spare_rows(axes, rank)
  for _, axis in ipairs(axes) do
    if (axis < 0 and axis + rank + 1 or axis) == 1 then return false end
  end
  return #axes > 0
end

--- Whether a blob is none of the batch: a constant, a parameter, or what the model gives without
-- rows.
local function is_constant(r, name)
  local row = r.row[name]
  if row then return constants[row.type] == true end
  return r.is_param[name] or shape_of(r, name)[1] ~= r.batch
end

local has_rows

--- Whether all inputs of an op have rows, or are constants that do not scale them, one at least the
-- former.
local function have_rows(r, row)
  local some = false
  for _, input in ipairs(row.inputs) do
    local has = input and has_rows(r, input)
    if input and not has and (scales[row.type] or not is_constant(r, input)) then return false end
    some = some or has
  end
  return some
end

--- Whether an op hands rows on as they are: its output has them, each of that row alone.
local function hands_rows_on(r, row, attrs)
  local x = row.inputs[1]
  if says_itself[row.type] then return attrs.reduction == "none" end
  if reduces_axes[row.type] then return spare_rows(attrs.axes, #shape_of(r, x)) end
  if along_axis[row.type] then return spare_rows({ attrs.axis }, #shape_of(r, x)) end
  return scales[row.type] or by_row[row.type] or false
end

--- Whether a blob has a row for each of the batch's, which nothing but elements of that row, and
-- constants that do not scale it, made.
function has_rows(r, name)
  if is_constant(r, name) or shape_of(r, name)[1] ~= r.batch then return false end
  local row = r.row[name]
  if not row then return true end
  if r.known[name] == nil then
    r.known[name] = hands_rows_on(r, row, r.net:_attrs(r.at[name])) and have_rows(r, row)
  end
  return r.known[name]
end

local says

--- What all of an op's inputs say.
local function all_say(r, inputs)
  local common, op = says(r, inputs[1])
  for i = 2, #inputs do
    if says(r, inputs[i]) ~= common then return nil end
  end
  return common, op
end

function says(r, name)
  local row = r.row[name]
  if not row then return nil end
  local attrs = r.net:_attrs(r.at[name])
  if says_itself[row.type] then
    return attrs.reduction ~= "none" and attrs.reduction or nil, row.type
  end
  if keeps[row.type] then return all_say(r, row.inputs) end
  if row.type ~= "Mean" and row.type ~= "Sum" then return nil end
  local x = row.inputs[1]
  local is_whole = #attrs.axes == 0 or #attrs.axes == #shape_of(r, x)
  if not is_whole or not has_rows(r, x) then return nil end
  return row.type == "Mean" and "mean" or "sum", row.type
end

--- What the net of a loss says of it.
-- @param loss blob
-- @param first integer ops that the net had before those of the loss
-- @param batch integer rows
-- @return "mean", "sum" or nil, and the type of the op that says it
function reduction.of(net, loss, first, batch) return says(read(net, first, batch), loss.name) end

return reduction
