--- How the net of a loss makes one number of its rows: by a mean, or by a sum.
--
-- It is read from the ops that the loss comes of. Cross entropy, MseLoss and L1Loss say it by an
-- attribute; a Mean or Sum over everything is that of its rows where each row comes to it by
-- itself, times numbers at most. A loss is k1 R1 + k2 R2 + .. + c of such reductions R, with
-- constants k and c that may have been made of the number of rows: sum() / 6 is a sum, sum() /
-- x.shape[1] a mean. So, where there are constants, it is read a second time, for one row more.
-- INVARIANT: what can't be told for certain is nil.
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
-- What these make of terms are terms.
local keeps = set_of "Add AddN Sub Neg Alias Copy Cast"
-- Ops that make an element of a row of that row alone; of constants beside it, too.
local by_row = set_of [[Abs Add AddN Alias Atan2 Cast Ceil Celu Clamp Copy Cos Cosh Elu Eq Erf Exp
  Expm1 Flatten Floor Frac Ge Gelu Gt HardShrink HardSigmoid HardSwish HardTanh Hypot Le LeakyRelu
  Lerp Log Log10 Log1p Log2 LogSigmoid LogicalAnd LogicalNot LogicalOr Lt Maximum Minimum Mish Mod
  Ne Neg PRelu Pow Reciprocal Relu Relu6 Reshape Round Rsqrt Selu Sigmoid Sign Silu Sin Sinh
  SoftShrink Softplus Softsign Sqrt Square Squeeze StopGradient Sub Tan Tanh Threshold Trunc
  Unsqueeze Where]]

--- The reading of one net: {net, batch, at = index of the op that makes a blob of the loss's own,
-- row = its row, is_param, known = has_rows of it, numbers = those that rows are multiplied by,
-- fixed = names of parameters and tensors that they are}
local function read(net, first, batch)
  local reading = { net = net, batch = batch, at = {}, row = {}, is_param = {}, known = {},
    numbers = {}, fixed = {} }

  -- The ops before `first` are the model's: how rows of the outputs came about does not matter
  -- here.
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

local has_rows, number_of

--- Whether all inputs of an op have rows or are constants, one at least the former. A number that
-- scales them is noted, it may have been made of how many there are; so is a tensor, whose name
-- holds what is in it, and a parameter. What the model gives without rows scales none.
local function have_rows(r, row)
  local some = false
  for _, input in ipairs(row.inputs) do
    -- A missing input (false) says nothing either way.
    local has = input and has_rows(r, input)
    local number = input and not has and scales[row.type] and number_of(r, input)
    if number then r.numbers[#r.numbers + 1] = number end
    local fixed = input and not has and not number and scales[row.type] and r.is_param[input]
    if fixed then r.fixed[#r.fixed + 1] = input end
    local stays = not scales[row.type] and input and is_constant(r, input)
    if input and not (has or number or fixed or stays) then return false end
    some = some or has
  end
  return some
end

--- Whether an op hands rows on as they are: its output has them, each of that row alone.
local function hands_rows_on(r, row, attrs)
  local x = row.inputs[1]

  -- The rows stay apart unless an op mixes them: a reduction does where its axes have the first.
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

  -- Kept by name: several ops may read a value, and the walk comes to it from each.
  if r.known[name] == nil then
    r.known[name] = hands_rows_on(r, row, r.net:_attrs(r.at[name])) and have_rows(r, row)
  end
  return r.known[name]
end

--- The number that a blob is whatever the batch's data; nil where it is none.
function number_of(r, name)
  local row = r.row[name]
  if not row or row.type ~= "Constant" then return nil end
  -- One element, however many dimensions.
  for _, size in ipairs(shape_of(r, name)) do
    if size ~= 1 then return nil end
  end
  return r.net:_attrs(r.at[name]).value
end

-- What a blob is made of: { {word = "mean" or "sum", by = the op's type, k = factor}, .., c =
-- number, has_constant = whether k and c come of constants }

--- a x + b y of two such things.
local function sum_of(x, a, y, b)
  local out = {
    c = a * x.c + b * y.c,
    has_constant = x.has_constant or y.has_constant,
  }
  for _, part in ipairs { { x, a }, { y, b } } do
    for _, term in ipairs(part[1]) do
      out[#out + 1] = { word = term.word, by = term.by, k = part[2] * term.k }
    end
  end
  return out
end

local terms

--- What an op makes of its inputs' terms; nil where it is not linear in them.
local function combined(r, row)
  local inputs = {}
  for i, name in ipairs(row.inputs) do
    inputs[i] = terms(r, name)
    if not inputs[i] then return nil end
  end

  -- Linear means: of a product one factor is a number, of a quotient the divisor is one.
  local x, y = inputs[1], inputs[2]
  if row.type == "Mul" and #x == 0 then x, y = y, x end
  if row.type == "Mul" then return #y == 0 and sum_of(x, y.c, y, 0) or nil end
  if row.type == "Div" then
    return #y == 0 and y.c ~= 0 and sum_of(x, 1 / y.c, y, 0) or nil
  end

  -- Neg, sums and differences: the terms of each input with the sign that the op gives it.
  local out = sum_of(x, row.type == "Neg" and -1 or 1, { c = 0 }, 0)
  for i = 2, #inputs do out = sum_of(out, 1, inputs[i], row.type == "Sub" and -1 or 1) end
  return out
end

function terms(r, name)
  local row, number = r.row[name], number_of(r, name)
  if number then return { c = number, has_constant = true } end
  if not row then return nil end
  local attrs = r.net:_attrs(r.at[name])
  if says_itself[row.type] then
    local word = attrs.reduction
    return word ~= "none" and { { word = word, by = row.type, k = 1 }, c = 0 } or nil
  end

  -- Ops that hand terms on, then the reductions, which count only over everything and of rows that
  -- came apart.
  if keeps[row.type] or scales[row.type] then return combined(r, row) end
  if row.type ~= "Mean" and row.type ~= "Sum" then return nil end
  local x = row.inputs[1]
  local is_whole = #attrs.axes == 0 or #attrs.axes == #shape_of(r, x)
  if not is_whole or not has_rows(r, x) then return nil end
  return { { word = row.type == "Mean" and "mean" or "sum", by = row.type, k = 1 }, c = 0 }
end

--- Whether two numbers are one but for rounding.
local function is_same(a, b)
  return math.abs(a - b) <= 1e-12 * math.max(math.abs(a), math.abs(b))
end

--- What a term is, of factors k at n rows and `more` at n + 1: a sum over the rows' number is a
-- mean, a mean times it a sum.
local function word_of(term, more, n)
  -- The factor does not change with the number of rows: the word stands.
  if is_same(term.k, more) then return term.word end

  -- A sum whose factor goes as 1 / n is a mean; a mean whose factor goes as n is a sum.
  if term.word == "sum" and is_same(term.k * n, more * (n + 1)) then return "mean" end
  if term.word == "mean" and is_same(term.k * (n + 1), more * n) then return "sum" end
  return nil
end

--- What a loss of these terms is at n rows, and of others at n + 1: nil where it is neither.
local function settled(at_n, more, n)
  local common
  for i, term in ipairs(at_n) do
    local other = more[i]
    local word = other and other.word == term.word and word_of(term, other.k, n)
    if not word or common and word ~= common then return nil end
    common = word
  end
  -- what is added to a mean is added to the mean of means; to a sum, once for each batch
  local is_kept = is_same(at_n.c, more.c)
  if common == "sum" then is_kept = is_same(at_n.c * (n + 1), more.c * n) end
  return #at_n == #more and is_kept and common or nil
end

--- What the net of a loss says of it.
-- @param loss blob
-- @param first integer ops that the net had before those of the loss
-- @param batch integer rows
-- @param again f() -> the net of the loss for one row more, its loss: called where that tells
-- @return "mean", "sum" or nil, and the type of the op that says it
function reduction.of(net, loss, first, batch, again)
  local r = read(net, first, batch)
  local at_n = terms(r, loss.name)
  if not at_n or #at_n == 0 then return nil end
  local more = at_n

  -- A number may have been made of how many rows there are: how it changes with one row more tells.
  if at_n.has_constant or #r.numbers > 0 or #r.fixed > 0 then
    local other, its_loss = again()
    local s = other and read(other, 0, batch + 1)
    more = s and terms(s, its_loss.name)

    -- What scales the rows themselves must stay the same: else it is part of the reduction, and
    -- nobody knows how.
    for i, number in ipairs(r.numbers) do
      local is_kept = more and s.numbers[i] and is_same(number, s.numbers[i])
      if not is_kept then return nil end
    end
    for i, name in ipairs(r.fixed) do
      if not more or s.fixed[i] ~= name then return nil end
    end
  end
  local word = more and settled(at_n, more, batch)
  return word or nil, word and at_n[1].by
end

return reduction
