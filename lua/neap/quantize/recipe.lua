--- What is quantised of a net that infers, and how it is written again: the recipe that
-- neap.quantize makes of a model.
--
-- A recipe is a list of steps, the net's ops in order, with BatchNorm folded into the products
-- before it. A step that is a product (Conv, FC) has its weights as bytes. `bytes` names the values
-- that are handed on as bytes: what products read, what sums and Concats between them add and join.
-- What a Concat joins has its scale, so that it moves bytes as they are. Written out each
-- product reads DequantizeLinear of bytes, and QuantizeLinear stands where a value of `bytes` is
-- made of real numbers; of that the engine makes products of bytes (src/rewrite/fuse_quantized.c).
--
-- INVARIANT: a value of `bytes` is read through its bytes alone, so that nobody needs the real one.
-- INVARIANT: what a step reads of weights is its own, by the names that it has in the made model: a
-- layer that is called twice has two, where a norm folded in or the way it is kept differ.
-- @module neap.quantize.recipe
local core = require "neap.core"
local names = require "neap.nn.names"
local op = require "neap.op"

local recipe = {}

local is_product = { Conv = true, FC = true }
-- Ops that do to bytes what they do to the real numbers that these stand for.
local moves = { MaxPool = true, Flatten = true, Reshape = true, Permute = true, Squeeze = true,
  Unsqueeze = true }
-- Means are made of bytes, and are bytes of a scale of their own.
local means = { AveragePool = true, GlobalAveragePool = true }
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

--- The ops of a net as steps {type, inputs, outputs, attrs, name, line, rank of the first output}.
-- @param who the function that asks
function recipe.steps_of(net, who)
  local steps = {}
  for i, row in ipairs(net:_ops()) do
    if next(net:_subnets(i)) then
      core.fail(("%s: %s \"%s\" has nets of its own, and can't be written again"):format(
        who, row.type, row.name))
    end
    local _, shape = net:_type(row.outputs[1])
    steps[i] = { type = row.type, name = row.name, inputs = row.inputs, outputs = row.outputs,
      attrs = attributes(net, i, row.type), line = row.line, rank = shape and #shape }
  end
  return steps
end

--- The net's parameters as tensors by name.
local function read_weights(r, net, ws)
  for _, blob in ipairs(net:_blobs()) do
    if blob.role == "parameter" or blob.role == "state" then
      r.weights[blob.name], r.roles[blob.name] = ws:fetch(blob.name), blob.role
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

  -- The net's end reads its outputs, too: a value that leaves the net is never folded into what
  -- reads it.
  for k = 1, r.outputs.n do
    local name = r.outputs[k]
    if name then
      readers[name] = readers[name] or {}
      table.insert(readers[name], r)
    end
  end
  return maker, readers
end

-- ---- folding ------------------------------------------------------------------------------------

--- BatchNorm by running statistics as part of the product that it alone reads. Its channels must
-- be the product's outputs: dimension 2, which FC's are where its result is a matrix.
local function fold_norm(r, norm, maker, readers)
  local step = maker[norm.inputs[1]]
  local w = step and r.weights[step.inputs[2]]
  if norm.type ~= "BatchNorm" or norm.attrs.training or not w or not is_product[step.type]
    or #readers[norm.inputs[1]] > 1 then
    return false
  end
  if step.type == "FC" and step.rank ~= 2 then return false end

  -- All four must be numbers of the file: a norm whose statistics a run makes is left.
  local of = {}
  for k = 2, 5 do of[k] = r.weights[norm.inputs[k]] end
  local gamma, beta, mean, var = of[2], of[3], of[4], of[5]
  if not (gamma and beta and mean and var) then return false end
  local scale = gamma / (var + (norm.attrs.eps or 1e-5)):sqrt()

  -- y = (w x + b - mean) scale + beta, so that rows of w are scaled, and the bias goes with them.
  local shape = { w.shape[1] }
  for d = 2, #w.shape do shape[d] = 1 end
  local bias = step.inputs[3] and r.weights[step.inputs[3]]
  step.weight = w * scale:reshape(shape)
  step.bias = beta + ((bias and bias - mean or -mean)) * scale

  -- What it was folded with is part of the key by which its weights are kept.
  step.folded = ("%s/%s"):format(norm.attrs.eps or "", table.concat(norm.inputs, "/", 2, 5))
  step.outputs = norm.outputs

  -- A norm that ends in a Relu remains as that, under a name between.
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
    -- What draws is no number yet, and a step whose attributes follow the batch is one at each.
    local ins, is_fixed = {}, #step.inputs > 0 and not op.records[step.type].random
      and not step.scaled
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
  -- Outputs that nobody asked for have gone to place 0.
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
    -- Without its last "$" the pattern finds the weights within a layer that the glob names, too.
    local pattern = names.glob_to_pattern(glob, "neap.quantize: skip"):sub(1, -2)
    if dotted:match(pattern .. "$") or dotted:match(pattern .. "%.") then return true end
  end
  return false
end

--- Raises for a glob that names no product's weight.
local function check_skip(r, globs)
  for _, glob in ipairs(globs) do
    local found, known, seen = false, {}, {}
    for _, step in ipairs(r.steps) do
      local name = step.is_known and step.inputs[2]:gsub("/", ".")
      if name and not seen[name] then known[#known + 1], seen[name] = name, true end
      found = found or name and is_skipped(name, { glob })
    end
    if not found then
      core.fail(("neap.quantize: skip \"%s\" is no layer that could be quantised; these are the \z
        weights of such: %s"):format(glob, table.concat(known, ", ", 1, math.min(#known, 20))))
    end
  end
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

local function is_sum(step)
  return (step.type == "Add" or step.type == "AddN") and #step.inputs == 2
end

--- Whether the engine can make the value as bytes: by a product, with a sum and a Relu behind it.
local function is_of_product(name, maker)
  local step = maker[name]
  if step and relus[step.type] then step = maker[step.inputs[1]] end
  if step and (step.type == "Add" or step.type == "AddN") then
    for _, input in ipairs(step.inputs) do
      if maker[input] and maker[input].quantised then return true end
    end
  end
  return step and step.quantised or false
end

--- Whether no number of the value is below 0: a Relu's, or the mean of such, or such joined.
local function is_positive(name, maker)
  local step = maker[root_of(name, maker)]
  if step and means[step.type] then return is_positive(step.inputs[1], maker) end
  if step and step.type == "Concat" then
    for _, input in ipairs(step.inputs) do
      if not is_positive(input, maker) then return false end
    end
    return true
  end
  return step and relus[step.type] or false
end

--- Whether bytes of the value are made of bytes: by a product, or of such a value's.
local function can_be_bytes(name, maker)
  local step = maker[name]
  if not step then return false end
  if moves[step.type] or means[step.type] then return can_be_bytes(step.inputs[1], maker) end
  if is_of_product(name, maker) then return true end
  if relus[step.type] then step = maker[step.inputs[1]] end
  if not step or not (step.type == "Concat" or is_sum(step)) then return false end
  for _, input in ipairs(step.inputs) do
    if not can_be_bytes(input, maker) then return false end
  end
  return true
end

--- Marks a value as bytes, what it is moved from or joined of, and what it is the mean of.
local function mark(r, name, maker)
  if r.bytes[name] then return end
  r.bytes[name] = true
  local step = maker[name]
  if not step then return end
  if moves[step.type] or means[step.type] and can_be_bytes(step.inputs[1], maker) then
    mark(r, step.inputs[1], maker)
  elseif step.type == "Concat" and can_be_bytes(name, maker) then
    step.joins = true
    for _, input in ipairs(step.inputs) do mark(r, input, maker) end
  end
end

--- A sum of two whose result becomes bytes. Where one side is a product that takes the sum in, the
-- other side is bytes, too; where none is, both are, if they can be.
local function mark_sum(r, step, maker, readers)
  if not is_sum(step) then return end

  -- The engine takes the sum in with a Relu behind it; bytes are then what the Relu makes.
  local y, reader = step.outputs[1], readers[step.outputs[1]] or {}
  if #reader == 1 and relus[reader[1].type] then y = reader[1].outputs[1] end
  local a, b = step.inputs[1], step.inputs[2]
  if not r.bytes[y] or a == b or not (maker[a] and maker[b]) then return end
  local of_a, of_b = maker[a].quantised and not r.bytes[a], maker[b].quantised and not r.bytes[b]
  if of_a then
    if can_be_bytes(b, maker) then mark(r, b, maker) end
  elseif of_b then
    if can_be_bytes(a, maker) then mark(r, a, maker) end
  elseif can_be_bytes(a, maker) and can_be_bytes(b, maker) then
    mark(r, a, maker)
    mark(r, b, maker)
  end
end

--- The values by whose scale others are read: r.root. A Concat's parts have the Concat's, but for
-- those that another one has joined already; these are rescaled.
local function find_roots(r, maker)
  local joined = {}
  for _, step in ipairs(r.steps) do
    for _, input in ipairs(step.joins and step.inputs or {}) do
      local root = root_of(input, maker)
      joined[root] = joined[root] or step.outputs[1]
    end
  end
  for name in pairs(r.bytes) do
    local root = root_of(name, maker)
    while joined[root] do root = joined[root] end
    r.root[name] = root
  end
end

--- The numbers of products' weights and biases, where these are known. What is read beside them is
-- not: a product of numbers alone has been folded.
local function find_products(r)
  for _, step in ipairs(r.steps) do
    if is_product[step.type] then
      step.weight = step.weight or r.weights[step.inputs[2]] or nil
      step.bias = step.bias or step.inputs[3] and r.weights[step.inputs[3]] or nil
      step.is_known = step.weight and (not step.inputs[3] or step.bias) and true or false
    end
  end
end

--- Chooses the products that become products of bytes: all but those that globs of `skip` name.
function recipe.quantise(r, skip)
  check_skip(r, skip)
  local maker, readers = index(r)
  for _, step in ipairs(r.steps) do
    if step.is_known and not is_skipped(step.inputs[2], skip) then
      step.quantised = true
      mark(r, step.inputs[1], maker)
    end
  end
  -- From the end on: what a sum adds may be a sum.
  for i = #r.steps, 1, -1 do mark_sum(r, r.steps[i], maker, readers) end
  find_roots(r, maker)

  for _, root in pairs(r.root) do
    local by = maker[root]
    r.positive = r.positive or {}
    r.positive[root] = is_positive(root, maker)
    -- What Relu6 cuts off lies above the range that the bytes will have.
    if by and by.type == "Relu6" then by.type = "Relu" end
  end
end

--- The recipe of a net, nothing quantised yet.
-- @param steps recipe.steps_of the net, at any batch (neap.quantize.batches)
-- @param arguments names of the net's inputs by their position in forward
-- @param outputs names {n =} of what forward gives, with nothing where it gives nothing
function recipe.of(net, steps, arguments, outputs, ws)
  local r = { steps = steps, weights = {}, roles = {}, inputs = {}, arguments = arguments,
    outputs = outputs, bytes = {}, root = {}, own = {} }
  for k, input in ipairs(net:inputs()) do r.inputs[k] = input.name end
  read_weights(r, net, ws)
  fold(r)
  find_products(r)
  return r
end

-- ---- weights of the made model ------------------------------------------------------------------

--- The tensors of the model that is made: a list of {name =, tensor =}, and keep(base, what, f) ->
-- the name under which f()'s tensor is kept. What is the same by base and `what` is kept once;
-- what has another's name is called after it.
function recipe.store()
  local list, known, is_taken = {}, {}, {}
  return list, function(base, what, f)
    local key = base .. "\n" .. what
    if known[key] then return known[key] end
    local name, k = base, 1
    while is_taken[name] do
      k = k + 1
      name = ("%s_%d"):format(base, k)
    end
    known[key], is_taken[name] = name, true
    list[#list + 1] = { name = name, tensor = f() }
    return name
  end
end

--- What says which numbers a product's weight and bias are, beside the weight's name.
function recipe.key_of(step, kind)
  local key = kind .. "/" .. (step.folded or "")
  return key, key .. "/" .. (step.inputs[3] or "")
end

local function keep_real(r, name, keep)
  if not name or not r.weights[name] or r.own[name] then return end
  r.own[name] = keep(name, "real/", function() return r.weights[name] end)
end

--- Keeps what a step that stays in real numbers reads of weights.
function recipe.keep_real(r, step, keep)
  if not step.is_known then
    for _, input in ipairs(step.inputs) do keep_real(r, input, keep) end
    return
  end

  local base, key, bias_key = step.inputs[2], recipe.key_of(step, "real")
  step.own = { weight = keep(base, key, function() return step.weight end) }
  if step.bias then
    step.own.bias = keep(base .. "_bias", bias_key, function() return step.bias end)
  end
end

--- Keeps the weights that forward gives as they are.
function recipe.keep_outputs(r, keep)
  for k = 1, r.outputs.n do keep_real(r, r.outputs[k], keep) end
end

-- ---- writing it ---------------------------------------------------------------------------------

--- Raises where forward is given other arguments than the recipe's.
local function check_arguments(r, xs)
  for k = 1, math.max(xs.n, r.arguments.n) do
    local name = k <= r.arguments.n and r.arguments[k]
    if not name and xs[k] ~= nil or name and xs[k] == nil then
      core.fail(("a model made of another takes the inputs that it was made with: number %d%s %s")
        :format(k, name and (", \"%s\","):format(name) or "",
          name and "is missing" or "is none of them"))
    end
  end
end

--- The recipe's ops on blobs: xs are forward's arguments {n =}, `weight` a function from a name to
-- its blob. @return what forward gives
function recipe.write(r, xs, weight)
  local real, bytes = {}, {}
  local batch
  check_arguments(r, xs)
  for k = 1, r.arguments.n do
    local name = r.arguments[k]
    if name then
      real[name] = xs[k]
      batch = batch or xs[k].shape and xs[k].shape[1]
    end
  end

  local function scale_of(name)
    local root = r.root[name]
    return weight(r.scale[root]), r.zero[root] and weight(r.zero[root])
  end
  local function bytes_of(name)
    if not bytes[name] then
      local scale, zero = scale_of(name)
      bytes[name] = op.apply("QuantizeLinear", { real[name], scale, zero }, {})
    end
    return bytes[name]
  end
  local function real_of(name)
    if r.own[name] then return weight(r.own[name]) end
    if not r.bytes[name] then return real[name] end
    local scale, zero = scale_of(name)
    return op.apply("DequantizeLinear", { bytes_of(name), scale, zero }, {})
  end

  for _, step in ipairs(r.steps) do
    local attrs = {}
    for name, value in pairs(step.attrs) do
      attrs[name] = type(value) == "table" and table.move(value, 1, #value, 1, {}) or value
    end
    -- Sizes of the batch are those of the blob at hand.
    for _, s in ipairs(batch and step.scaled or {}) do attrs[s.name][s.at] = s.times * batch end

    -- A product by blocks says itself what it is; one of bytes reads its weights through
    -- DequantizeLinear, as the standard's form is, which the engine puts together again; what moves
    -- bytes stays in bytes; all else computes with real numbers.
    local y, own = step.outputs[1], step.own
    if step.sparse then
      real[y] = step.sparse(real_of(step.inputs[1]), weight)
    elseif step.quantised then
      local ins = { real_of(step.inputs[1]),
        op.apply("DequantizeLinear", { weight(own.weight), weight(own.scale) }, { axis = 1 }) }
      if own.bias then ins[3] = weight(own.bias) end
      if own.bias_scale then
        ins[3] = op.apply("DequantizeLinear", { ins[3], weight(own.bias_scale) }, { axis = 1 })
      end
      real[y] = op.apply(step.type, ins, attrs)
    elseif step.joins then
      local parts, scale, zero = {}, scale_of(y)
      for k, name in ipairs(step.inputs) do
        parts[k] = bytes_of(name)
        if r.root[name] ~= r.root[y] then
          local own_scale, own_zero = scale_of(name)
          parts[k] = op.apply("QLinearRescale",
            { parts[k], own_scale, own_zero or false, scale, zero or false },
            { to = "u8" })
        end
      end
      bytes[y] = op.apply(step.type, parts, attrs)
    elseif moves[step.type] and r.bytes[y] then
      bytes[y] = op.apply(step.type, { bytes_of(step.inputs[1]) }, attrs)
    else
      local ins = {}
      -- A product's weights may be folded ones, which the file's names don't give.
      for k, name in ipairs(step.inputs) do
        if not (step.is_known and k > 1) then ins[k] = name and real_of(name) end
      end
      if step.is_known then
        ins[2], ins[3] = weight(own.weight), own.bias and weight(own.bias)
      end
      local outs = table.pack(op.apply(step.type, ins, attrs, #step.outputs))
      for k, name in ipairs(step.outputs) do
        if name then real[name] = outs[k] end
      end
    end
  end

  local out = {}
  for k = 1, r.outputs.n do out[k] = r.outputs[k] and real_of(r.outputs[k]) or nil end
  return table.unpack(out, 1, r.outputs.n)
end

return recipe
