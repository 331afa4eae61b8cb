--- What is quantised of a net that infers, and how it is written again: the recipe that
-- neap.quantize makes of a model.
--
-- A recipe is a list of steps, the net's ops in order, with BatchNorm folded into the products
-- before it. A step that is a product (Conv, FC) has its weights as bytes. `bytes` names the values
-- that are handed on as bytes: what products read, and one side of a residual sum. Written out each
-- product reads DequantizeLinear of bytes, and QuantizeLinear stands where a value of `bytes` is
-- made of real numbers; of that the engine makes products of bytes (src/rewrite/fuse_quantized.c).
--
-- INVARIANT: a value of `bytes` is read through its bytes alone, so that nobody needs the real one.
-- @module neap.quantize.recipe
local core = require "neap.core"
local op = require "neap.op"

local recipe = {}

local is_product = { Conv = true, FC = true }
-- Ops that do to bytes what they do to the real numbers that these stand for.
local moves = { MaxPool = true, Flatten = true, Reshape = true, Permute = true, Squeeze = true,
  Unsqueeze = true }
-- Cut off above by the range that bytes have.
local relus = { Relu = true, Relu6 = true }

-- ---- reading the net ----------------------------------------------------------------------------

--- The attributes of op i that are not as the record has them anyway.
local function attributes(net, i, type)
  local attrs, defaults = net:_attrs(i), {}
  for _, attr in ipairs(op.records[type].attrs) do defaults[attr.name] = attr end
  for name, value in pairs(attrs) do
    local attr = defaults[name]
    local empty = _G.type(value) == "table" and next(value) == nil
    if empty or attr and attr.default == value then attrs[name] = nil end
  end
  return attrs
end

--- The ops of the net as steps {type, inputs, outputs, attrs, name}, and its parameters as tensors
-- by name.
local function read(net, ws)
  local r = { steps = {}, weights = {}, roles = {}, inputs = {}, outputs = net:outputs() }
  for k, input in ipairs(net:inputs()) do r.inputs[k] = input.name end
  for _, blob in ipairs(net:_blobs()) do
    if blob.role == "parameter" or blob.role == "state" then
      r.weights[blob.name], r.roles[blob.name] = ws:fetch(blob.name), blob.role
    end
  end
  for i, row in ipairs(net:_ops()) do
    if next(net:_subnets(i)) then
      core.fail(("neap.quantize: %s \"%s\" has nets of its own, and can't be written again"):format(
        row.type, row.name))
    end
    r.steps[i] = { type = row.type, name = row.name, inputs = row.inputs, outputs = row.outputs,
      attrs = attributes(net, i, row.type) }
  end
  return r
end

--- Sizes in attributes that are those of the batch: where a net of twice the batch has twice the
-- number, `times` says of how many batches it is.
local function find_batches(r, twice, batch)
  for i, step in ipairs(r.steps) do
    for name, value in pairs(step.attrs) do
      local other = type(value) == "table" and twice.steps[i].attrs[name]
      for k, size in ipairs(other and value or {}) do
        if other[k] ~= size and size % batch == 0 then
          step.scaled = step.scaled or {}
          table.insert(step.scaled, { name = name, at = k, times = size // batch })
        end
      end
    end
  end
end

--- Which step makes a value, and which read it, by name.
local function index(r)
  local maker, readers = {}, {}
  for _, step in ipairs(r.steps) do
    for _, name in ipairs(step.inputs) do
      if name then
        readers[name] = readers[name] or {}
        table.insert(readers[name], step)
      end
    end
    for _, name in ipairs(step.outputs) do
      if name then maker[name] = step end
    end
  end
  for _, name in ipairs(r.outputs) do
    readers[name] = readers[name] or {}
    table.insert(readers[name], r)
  end
  return maker, readers
end

-- ---- folding ------------------------------------------------------------------------------------

--- BatchNorm by running statistics as part of the product that it alone reads.
local function fold_norm(r, norm, maker, readers)
  local step = maker[norm.inputs[1]]
  local w = step and r.weights[step.inputs[2]]
  if norm.type ~= "BatchNorm" or norm.attrs.training or not w or not is_product[step.type]
    or #readers[norm.inputs[1]] > 1 or step.type == "FC" and step.attrs.axis then
    return false
  end
  local of = {}
  for k = 2, 5 do of[k] = r.weights[norm.inputs[k]] end
  local gamma, beta, mean, var = of[2], of[3], of[4], of[5]
  if not (gamma and beta and mean and var) then return false end
  local scale = gamma / (var + (norm.attrs.eps or 1e-5)):sqrt()
  local shape = { w.shape[1] }
  for d = 2, #w.shape do shape[d] = 1 end
  local bias = step.inputs[3] and r.weights[step.inputs[3]]
  step.weight = w * scale:reshape(shape)
  step.bias = beta + ((bias and bias - mean or -mean)) * scale
  step.outputs = norm.outputs
  if norm.attrs.relu then
    step.outputs = { norm.outputs[1] .. ".norm" }
    norm.type, norm.inputs, norm.attrs = "Relu", { step.outputs[1] }, {}
    return false
  end
  return true
end

--- What is made of weights alone is one: a pruned weight and its mask, a weight that is turned.
local function fold_weights(r)
  local kept = {}
  for _, step in ipairs(r.steps) do
    local ins, is_fixed = {}, #step.inputs > 0 and not op.records[step.type].random
    for k, name in ipairs(step.inputs) do
      ins[k] = name and r.weights[name] or false
      is_fixed = is_fixed and (not name or ins[k])
    end
    if is_fixed then
      local outs = table.pack(op.apply(step.type, ins, step.attrs, #step.outputs))
      for k, name in ipairs(step.outputs) do r.weights[name or 0] = outs[k] end
    else
      kept[#kept + 1] = step
    end
  end
  r.steps, r.weights[0] = kept, nil
end

local function fold(r)
  fold_weights(r)
  local maker, readers = index(r)
  local kept = {}
  for _, step in ipairs(r.steps) do
    if not fold_norm(r, step, maker, readers) then kept[#kept + 1] = step end
  end
  r.steps = kept
end

-- ---- what is quantised --------------------------------------------------------------------------

--- Whether a glob of the list names the weight.
local function is_skipped(name, globs)
  local dotted = name:gsub("/", ".")
  for _, glob in ipairs(globs) do
    local pattern = "^" .. glob:gsub("[%^%$%(%)%%%.%[%]%+%-%?]", "%%%0"):gsub("%*", ".*")
    if dotted:match(pattern .. "$") or dotted:match(pattern .. "%.") then return true end
  end
  return false
end

--- The value whose scale a value has: through ops that move numbers, the one that these begin with.
local function root_of(name, maker)
  local step = maker[name]
  while step and moves[step.type] do
    name = step.inputs[1]
    step = maker[name]
  end
  return name
end

--- Marks a value as bytes, and what it is moved from.
local function mark(r, name, maker)
  r.bytes[name] = true
  local step = maker[name]
  if step and moves[step.type] then mark(r, step.inputs[1], maker) end
end

--- A sum of two of which one side is a product and the result becomes bytes: the other side is
-- bytes, too, so that the product takes the sum in.
local function mark_sum(r, step, maker, readers)
  if (step.type ~= "Add" and step.type ~= "AddN") or #step.inputs ~= 2 then return end
  local y, reader = step.outputs[1], readers[step.outputs[1]] or {}
  if #reader == 1 and relus[reader[1].type] then y = reader[1].outputs[1] end
  local a, b = step.inputs[1], step.inputs[2]
  if not r.bytes[y] or a == b or not (maker[a] and maker[b]) or r.bytes[a] or r.bytes[b] then
    return
  end
  if maker[a].quantised and maker[b].quantised then mark(r, b, maker) end
end

--- The numbers of products' weights and biases, where these are known.
local function find_products(r)
  for _, step in ipairs(r.steps) do
    if is_product[step.type] then
      step.weight = step.weight or r.weights[step.inputs[2]] or nil
      step.bias = step.bias or step.inputs[3] and r.weights[step.inputs[3]] or nil
      step.is_known = step.weight and not r.weights[step.inputs[1]]
        and (not step.inputs[3] or step.bias) and true or false
    end
  end
end

--- Chooses the products that become products of bytes: all but those that globs of `skip` name.
function recipe.quantise(r, skip)
  local maker, readers = index(r)
  for _, step in ipairs(r.steps) do
    if step.is_known and not is_skipped(step.inputs[2], skip) then
      step.quantised = true
      mark(r, step.inputs[1], maker)
    end
  end
  for _, step in ipairs(r.steps) do mark_sum(r, step, maker, readers) end
  for name in pairs(r.bytes) do r.root[name] = root_of(name, maker) end
  for _, root in pairs(r.root) do
    local by = maker[root]
    r.positive = r.positive or {}
    r.positive[root] = by and relus[by.type] or false
    -- What Relu6 cuts off lies above the range that the bytes will have.
    if by and by.type == "Relu6" then by.type = "Relu" end
  end
end

--- The recipe of a net, nothing quantised yet; `twice` is the net of twice the batch.
function recipe.of(net, twice, batch, ws)
  local r = read(net, ws)
  find_batches(r, read(twice, ws), batch)
  fold(r)
  find_products(r)
  r.bytes, r.root = {}, {}
  return r
end

--- Calls add(name, tensor) for what a step that stays in real numbers reads of weights.
function recipe.real_weights(r, step, add)
  if step.is_known then
    add(step.inputs[2], step.weight)
    if step.bias then add(step.inputs[2] .. "_bias", step.bias) end
    return
  end
  for _, input in ipairs(step.inputs) do
    if input and r.weights[input] then add(input, r.weights[input]) end
  end
end

-- ---- writing it ---------------------------------------------------------------------------------

--- The recipe's ops on blobs: xs of the inputs in order, `weight` a function from a name to its
-- blob. @return the outputs, in order
function recipe.write(r, xs, weight)
  local real, bytes = {}, {}
  local batch = xs[1].shape and xs[1].shape[1]
  for k, name in ipairs(r.inputs) do real[name] = xs[k] end

  local function scale_of(name)
    local root = r.root[name]
    return weight(root .. ".scale"), r.zero[root] and weight(root .. ".zero") or false
  end
  local function bytes_of(name)
    if not bytes[name] then
      local scale, zero = scale_of(name)
      bytes[name] = op.apply("QuantizeLinear", { real[name], scale, zero }, {})
    end
    return bytes[name]
  end
  local function real_of(name)
    if r.weights[name] then return weight(name) end
    if not r.bytes[name] then return real[name] end
    local scale, zero = scale_of(name)
    return op.apply("DequantizeLinear", { bytes_of(name), scale, zero }, {})
  end

  for _, step in ipairs(r.steps) do
    local attrs = {}
    for name, value in pairs(step.attrs) do
      attrs[name] = type(value) == "table" and table.move(value, 1, #value, 1, {}) or value
    end
    for _, s in ipairs(batch and step.scaled or {}) do attrs[s.name][s.at] = s.times * batch end
    local y = step.outputs[1]
    if step.sparse then
      real[y] = step.sparse(real_of(step.inputs[1]), weight)
    elseif step.quantised then
      local w = step.inputs[2]
      local ins = { real_of(step.inputs[1]),
        op.apply("DequantizeLinear", { weight(w), weight(w .. "_scale") }, { axis = 1 }) }
      if step.bias then
        local b = w .. "_bias"
        ins[3] = weight(b)
        if step.has_steps then
          ins[3] = op.apply("DequantizeLinear", { ins[3], weight(b .. "_scale") }, { axis = 1 })
        end
      end
      real[y] = op.apply(step.type, ins, attrs)
    elseif moves[step.type] and r.bytes[y] then
      bytes[y] = op.apply(step.type, { bytes_of(step.inputs[1]) }, attrs)
    else
      local ins = {}
      for k, name in ipairs(step.inputs) do
        if not (step.is_known and k > 1) then ins[k] = name and real_of(name) end
      end
      if step.is_known then
        ins[2], ins[3] = weight(step.inputs[2]), step.bias and weight(step.inputs[2] .. "_bias")
      end
      local outs = table.pack(op.apply(step.type, ins, attrs, #step.outputs))
      for k, name in ipairs(step.outputs) do
        if name then real[name] = outs[k] end
      end
    end
  end
  local out = {}
  for k, name in ipairs(r.outputs) do out[k] = real_of(name) end
  return table.unpack(out)
end

return recipe
