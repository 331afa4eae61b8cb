--- neap.prune and neap.sparsity: weights that are zero and stay so.
--
-- A pruned weight has a mask beside it, "weight_mask", a statistic like those of norms: it lies in
-- state_dict, in checkpoints and in exported files. A forward reads the product of both
-- (neap.nn.module), which a net that does not train computes once.
--
-- INVARIANT: what a mask has taken away does not come back: a later call takes away more.
-- @module neap.prune
local core = require "neap.core"
local module = require "neap.nn.module"
local names = require "neap.nn.names"
local op = require "neap.op"
local record = require "neap.inner.record"
local recipe = require "neap.quantize.recipe"
local report = require "neap.report"
local rewritten = require "neap.quantize.rewritten"
local tree = require "neap.nn.tree"
local widths = require "neap.nn.widths"
require "neap.nn" -- whatever a module can
local fail = core.fail

local M = {}

local prune_options = record.declare("neap.prune", { call = "(model, {})", positions = { "amount" },
  doc = [[Masks the least weights of the model's Linear and Conv layers, so that they are zero from
    now on, in training too; gives a Report as neap.sparsity does. A later call with a larger
    amount takes away more: a schedule is calls between epochs. An amount of 0 gives masks that
    take nothing away, and that m:load fills. A parameter's data stays as it is: what counts is its
    product with the mask, a buffer beside it (linear1.weight_mask), in state_dict and files too;
    exported nets compute with it.]],
  { "amount", "number", required = true, min = 0, max = 1,
    doc = "the share of the weights that is zero afterwards" },
  { "method", "choice", "magnitude", choices = { "magnitude", "block" },
    doc = "single weights by their magnitude, or whole blocks by the mean of theirs" },
  { "block", "sizes", { 4, 4 }, n = 2, min = 1, max = 65536,
    doc = "outputs and inputs of a block; a convolution's inputs are all of an output's window" },
  { "scope", "choice", "model", choices = { "model", "layer" },
    doc = "the least of all layers together, or of each layer for itself" },
  { "layers", "names", { "*" }, doc = "globs of the layers, all by default" },
  example = 'neap.prune(model, { amount = 0.5 })' })

-- ---- the weights --------------------------------------------------------------------------------

local function is_pruned_class(m) return m._class:match "^Linear$" or m._class:match "^Conv%dd$" end

local function matches(path, globs)
  for _, glob in ipairs(type(globs) == "string" and { globs } or globs) do
    if path:match(names.glob_to_pattern(glob, "neap.prune: layers")) then return true end
  end
  return false
end

--- The weights of a model that may be pruned: {path =, module =, record =}, each storage once.
local function weights_of(model, globs, who)
  if not module.is_module(model) then
    fail(("%s takes a model, got a %s"):format(who, type(model)))
  end
  local list, seen = {}, {}
  for path, m in model:modules() do
    local own = is_pruned_class(m) and m._params.weight
    -- Layers that share a weight have one mask, by the storage.
    local storage = own and names.storage_record(own)
    if own and not seen[storage] and matches(path, globs) then
      if not storage.shape then
        fail(("%s: the shape of %s is unknown before it has met data"):format(who, path))
      end
      seen[storage] = true
      list[#list + 1] = { path = path, module = m, record = storage }
    end
  end
  if #list == 0 then fail(who .. ": no Linear or Conv layer of the model is meant") end
  return list
end

local function tensor_of(m, name) return m:param(name).data end

--- The mask lies beside the storage, which may be another layer's where weights are tied.
local function mask_tensor(w) return tensor_of(w.record.owner, w.record.name .. "_mask") end

--- The numbers that a forward computes with.
local function masked(w)
  local t = tensor_of(w.module, "weight")
  return w.record.mask and t * mask_tensor(w) or t
end

-- ---- scores -------------------------------------------------------------------------------------

--- The rows of a weight as a matrix, filled up to whole blocks.
local function blocks_of(t, block)
  -- A convolution's window counts as inputs: (rows, columns) whatever the rank.
  local rows, columns = t.shape[1], t:n_element() // t.shape[1]
  local m = t:reshape(rows, columns)
  local more = { -rows % block[1], -columns % block[2] }
  if more[1] + more[2] > 0 then m = m:pad { pads = { 0, 0, more[1], more[2] } } end
  return m, (rows + more[1]) // block[1], (columns + more[2]) // block[2]
end

--- What each unit (a weight, or a block) is worth, as a list of numbers, and how many weights it
-- has. What is masked is worth nothing, less than what happens to be zero.
local function scores(w, o)
  local t = masked(w):abs()

  -- Masked: 0 + 0 - 1, below every weight that is left.
  if w.record.mask then t = t + mask_tensor(w) - 1 end
  if o.method == "magnitude" then return t:reshape(t:n_element()) end
  local function means(x)
    local m, down, across = blocks_of(x, o.block)
    -- (down, block rows, across, block columns): the mean over a block.
    local cut = m:reshape(down, o.block[1], across, o.block[2])
    return cut:mean { axes = { 2, 4 } }:reshape(down * across)
  end
  return means(t) / means(t * 0 + 1) -- of a block's own weights, without what fills it up
end

--- A mask with 0 where `keep`, one number for each unit, is 0.
local function mask_of(w, keep, o)
  local shape = w.record.shape
  if o.method == "magnitude" then return keep:reshape(shape) end
  local rows = shape[1]
  local columns = 1
  for d = 2, #shape do columns = columns * shape[d] end

  -- Rounded up, as blocks_of fills up; what was filled is cut off again.
  local down, across = -(-rows // o.block[1]), -(-columns // o.block[2])
  local m = keep:reshape(down, across)
  m = m:repeat_interleave { repeats = o.block[1], axis = 1 }
  m = m:repeat_interleave { repeats = o.block[2], axis = 2 }
  return m[{ { 1, rows }, { 1, columns } }]:contiguous():reshape(shape)
end

--- The score that the `amount` least do not exceed; nil: none is pruned.
local function bound(list, amount)
  -- The list's own value at that place: equals of it go as well.
  local gone = math.floor(amount * list:n_element() + 0.5)
  if gone == 0 then return nil end
  return (list:sort { axis = 1 })[gone]
end

--- 1 where a score exceeds the bound, else 0.
local function above(list, most)
  if not most then return core.ones { list:n_element(), dtype = list.dtype } end
  return list:gt(core.tensor(most, list.dtype)):to(list.dtype)
end

-- ---- the functions ------------------------------------------------------------------------------

--- Gives a weight its mask, all ones, so that it has a place in nets and files.
local function add_mask(w)
  if w.record.mask then return end
  local owner = w.record.owner
  w.record.mask = owner:buffer(w.record.name .. "_mask", w.record.shape,
    { op = "Constant", value = 1 }, { dtype = w.record.dtype })
end

local function report_of(list)
  local rows, elements, zeros = {}, 0, 0
  for i, w in ipairs(list) do
    local t = masked(w)
    local n = t:n_element()
    local zero = math.tointeger(t:eq(core.tensor(0.0, t.dtype)):to("f64"):sum():item()) or 0
    rows[i] = { layer = w.path, weights = n, zero = zero, share = n > 0 and zero / n or 0,
      masked = w.record.mask ~= nil }
    elements, zeros = elements + n, zeros + zero
  end
  return report.new { rows = rows, columns = { "layer", "weights", "zero", "share", "masked" },
    order = { "weights", "zero", "share" }, title = "weights that are zero",
    totals = { weights = elements, zero = zeros, share = elements > 0 and zeros / elements or 0 } }
end

--- neap.sparsity(model) -> Report: of each Linear and Conv layer {layer, weights, zero, share,
-- masked}; totals weights, zero, share
-- @usage print(neap.sparsity(neap.nn.Linear { 4, 2 }))
function M.sparsity(model) return report_of(weights_of(model, "*", "neap.sparsity")) end

--- neap.prune(model, { .. }) -> Report, as neap.sparsity gives it: see the record.
function M.prune(model, given)
  -- Scores of all layers, then the bound, of all of them together or of each.
  local o = prune_options:read(given)
  if type(given) == "table" and given.block and o.method ~= "block" then
    fail 'neap.prune: block is for method = "block"; without one single weights are masked'
  end
  o.block = widths.per_dim(o.block, 2)
  local list = weights_of(model, o.layers, "neap.prune")
  local units, masks = {}, {}
  for i, w in ipairs(list) do units[i] = scores(w, o) end
  local most = o.scope == "model" and bound(#units > 1 and op.apply("Concat", units, { axis = 1 })
    or units[1], o.amount)
  for i, w in ipairs(list) do
    local own = most
    if o.scope == "layer" then own = bound(units[i], o.amount) end
    masks[i] = mask_of(w, above(units[i], own), o)
    -- What is masked stays so, whatever this call asks for.
    if w.record.mask then masks[i] = masks[i] * mask_tensor(w) end
  end
  -- Nothing has changed so far; from here on nothing fails.
  local changed = {}
  for i, w in ipairs(list) do
    add_mask(w)
    changed[i] = w.record.owner
  end
  local seen = {}
  for _, m in ipairs { model, (tree.home(model)), table.unpack(changed) } do
    tree.changed(m, seen)
  end
  for i, w in ipairs(list) do mask_tensor(w):copy_(masks[i]) end
  return report_of(list)
end

-- ---- sparse weights -----------------------------------------------------------------------------

-- Outputs of a block, of which the kernel makes one vector (src/ops/sparse_fc.c).
local WIDE <const> = 16
-- From so many rows on the dense product is as fast at nine of ten zero, and faster at fewer.
local MOST_ROWS <const> = 16

local sparse_options = record.declare("neap.sparse", { call = "(model, {})",
  doc = [[A model for inference whose Linear layers keep only the blocks of 16 outputs by one input
    that are not zero, where enough are zero for that to be faster: prune with method = "block" and
    block = { 16, 1 }. Batches of more than 16 rows are computed with the weight in full, made once.
    Single zeros (CSR) are not kept so: with 50 to 90 % of zeros their kernel was slower than the
    dense product wherever it was measured (0.04 to 0.67 of its speed), with 95 % about as fast.]],
  { "least", "number", 0.5, min = 0, max = 1,
    doc = [[the share of zero blocks from which a layer is kept so; measured on one core with
      AVX-512, one row, 512x800 and 1008x2048: 1.7 to 2.2 times as fast as dense at 0.5, 2.9 to 4.5
      at 0.8, 3.6 to 8.2 at 0.9]] },
  example = 'neap.sparse(model, { least = 0.8 })' })

--- values (B,16,1), columns (B) and starts of a weight, and the share of its blocks that are zero.
local function blocks_that_count(w)
  -- Rows of blocks; of each, the inputs whose 16 weights are not all zero, as in CSR: columns, and
  -- where each row of blocks begins.
  local rows, k = w.shape[1], w.shape[2]
  local down = rows // WIDE
  local some = w:abs():reshape(down, WIDE, k):max { axes = { 2 } }:reshape(down, k)
    :gt(core.tensor(0.0)):to "u8":totable()
  local columns, starts, from = {}, { 0 }, {}
  for r = 1, down do
    for c = 1, k do
      if some[r][c] ~= 0 then
        columns[#columns + 1] = c - 1
        from[#from + 1] = (r - 1) * k + c - 1
      end
    end
    starts[r + 1] = #columns
  end
  if #columns == 0 then return nil, nil, nil, 1 end

  -- Values in the order of the blocks: 16 outputs of one input side by side.
  local turned = w:reshape(down, WIDE, k):permute { axes = { 1, 3, 2 } }:reshape(down * k, WIDE)
  local values = op.apply("Gather", { turned, core.tensor(from, "i64") }, { axis = 1 })
  return values:reshape(#columns, WIDE, 1), core.tensor(columns, "i32"), core.tensor(starts, "i32"),
    1 - #columns / (down * k)
end

--- How a layer with sparse weights is written: few rows by its blocks, many by the weight in full.
-- @param own names of values, columns, starts and of the bias, where there is one
local function writer(own, k)
  return function(x, weight)
    -- The number of rows is known when the net is built: it chooses.
    local lists = { weight(own[1]), weight(own[2]), weight(own[3]) }
    local bias, rows = own.bias and weight(own.bias), 1
    for d = 1, #x.shape - 1 do rows = rows * x.shape[d] end
    if rows <= MOST_ROWS then
      return op.apply("SparseFC", { x, lists[1], lists[2], lists[3], bias }, { k = k })
    end
    return op.apply("FC", { x, op.apply("SparseToDense", lists, { k = k }), bias }, {})
  end
end

--- Keeps a layer's lists and its bias. @return their names
local function keep_sparse(step, keep, lists)
  local base, key, bias_key = step.inputs[2], recipe.key_of(step, "sparse")
  local own = {}
  for i, what in ipairs { "values", "columns", "starts" } do
    own[i] = keep(("%s_%s"):format(base, what), key, function() return lists[i] end)
  end
  own.bias = step.bias and keep(base .. "_bias", bias_key, function() return step.bias end)
  return own
end

local Sparse = rewritten.class "Sparse"

--- neap.sparse(model, { .. }) -> a model for inference: see the record.
function M.sparse(model, given)
  local o = sparse_options:read(given or {})
  if not module.is_module(model) then
    fail("neap.sparse takes a model, got a " .. type(model))
  end
  local shape = rewritten.shape_of(model, nil, "neap.sparse")
  local r = rewritten.recipe_of(model, shape, "neap.sparse")
  local list, keep = recipe.store()
  for _, step in ipairs(r.steps) do
    -- An FC of a weight that is known, whose outputs are whole blocks; all else stays as it is.
    local values, columns, starts, share
    local w = step.type == "FC" and step.is_known and not step.attrs.axis and step.weight
    if w and w.shape[1] % WIDE == 0 then values, columns, starts, share = blocks_that_count(w) end
    if values and share >= o.least then
      step.sparse = writer(keep_sparse(step, keep, { values, columns, starts }), w.shape[2])
    else
      recipe.keep_real(r, step, keep)
    end
  end
  recipe.keep_outputs(r, keep)
  return rewritten.make(Sparse, r, list, shape, model)
end

return M
