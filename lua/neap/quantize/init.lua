--- neap.quantize: a model that computes with bytes, of one that was trained in real numbers.
-- @module neap.quantize
local arguments = require "neap.data.batch"
local core = require "neap.core"
local module = require "neap.nn.module"
local names_in = require("neap.inner.options").keys
local range = require "neap.quantize.range"
local recipe = require "neap.quantize.recipe"
local record = require "neap.inner.record"
local rewritten = require "neap.quantize.rewritten"
require "neap.nn" -- whatever a module can
local fail = core.fail

local M = {}

local quantize_options = record.declare("neap.quantize", { call = "(model, data, {})",
  doc = [[A model for inference that computes with bytes what `model` computes with real numbers:
    quantised after training, by the ranges that values have over `data` (a data set, or a tensor of
    examples). Weights of Linear and Conv are i8 with a scale for each output, what they read is u8
    with one; norms are folded in; sums, Concats, pools and Relu between them stay in bytes. It
    plans, saves, exports and evaluates as every model does; the model itself is left as it is. What
    forward makes of the batch's size must be dimensions: other numbers of it are refused.]],
  { "method", "choice", "minmax", choices = { "minmax", "percentile" },
    doc = "what a range is: up to the largest number, or up to all but the largest few" },
  { "percent", "number", 99.99, above = 0, max = 100,
    doc = "of numbers that a range by percentile has; for method = \"percentile\" alone" },
  { "batches", "integer", 10, min = 1, doc = "how many of the data set are looked at" },
  { "skip", "names", {}, doc = "globs of layers that stay in real numbers" },
  example = 'neap.quantize(model, neap.rand(8, 4), { method = "percentile" })' })

local Quantized = rewritten.class "Quantized"

-- ---- calibration --------------------------------------------------------------------------------

--- The first row of x that has a NaN or an infinity; nil: none has.
local function first_unbounded(x)
  if not x.dtype:match "^b?f" or x:n_element() == 0 then return nil end

  -- Two looks, since the common case is that all is well: one number tells, and only where it is no
  -- number are rows made to say which of them it is.
  local top = x:abs():max():item()
  if top < math.huge then return nil end -- not of a NaN
  local rows = #x.shape > 1 and x:abs():reshape(x.shape[1], -1):max { axes = { 2 } } or x:abs()
  for row, most in ipairs(rows:reshape(-1):totable()) do
    if most ~= most or most == math.huge then return row end
  end
end

--- What makes a value, for people: "FC \"fc_1\" (model.lua:12)".
local function maker_of(r, name)
  for _, step in ipairs(r.steps) do
    if step.outputs[1] == name then
      local line = step.line and step.line ~= "" and (" (%s)"):format(step.line) or ""
      return ("%s \"%s\"%s"):format(step.type, step.name, line)
    end
  end
  return ("\"%s\""):format(name)
end

--- Raises for a NaN or an infinity, which would be the range of all that are numbers.
local function check_bounded(x, what, at)
  local row = first_unbounded(x)
  if row then
    fail(("neap.quantize: %s has a NaN or an infinity in row %d of batch %d: a range follows from \z
      numbers"):format(what, row, at))
  end
end

--- The tensors that the net reads of a batch, by name.
local function feeds_of(model, r, batch, at)
  local fields, feeds = arguments.read(model, batch).fields, {}
  for _, name in ipairs(r.inputs) do
    feeds[name] = fields[name] or fail(("neap.quantize: batch %d of the data has no field \"%s\", \z
      which the first has"):format(at, name))
    check_bounded(feeds[name], ("the data's field \"%s\""):format(name), at)
  end
  return feeds
end

--- f(visit) that runs the first batches of the data, and shows visit each value that is looked at.
local function walker(model, net_of, ws, r, data, o)
  -- What ops that move numbers share has one root and one range, so that each root is looked at
  -- once. Inputs are at hand; what the net makes must be kept as an output to be seen.
  local roots, names = {}, {}
  for _, root in pairs(r.root) do roots[root] = true end
  for root in pairs(roots) do names[#names + 1] = root end
  table.sort(names)
  local inputs, nets = {}, {}
  for _, name in ipairs(r.inputs) do inputs[name] = true end
  local kept = {}
  for _, name in ipairs(names) do
    if not inputs[name] then kept[#kept + 1] = name end
  end
  return function(visit)
    local n = 0
    for batch in data:epoch(1) do
      n = n + 1
      if n > o.batches then break end
      local feeds = feeds_of(model, r, batch, n)
      for _, name in ipairs(r.inputs) do
        if roots[name] then visit(name, feeds[name]) end
      end

      -- A last batch may have fewer rows; its net is built once, however many epochs calibrate.
      local rows = feeds[r.inputs[1]].shape[1]
      if not nets[rows] then
        nets[rows] = net_of(rows)
        if #kept > 0 then nets[rows]:outputs(kept) end
      end
      local results = ws:run(nets[rows], feeds)
      for _, name in ipairs(kept) do
        check_bounded(results[name], "what " .. maker_of(r, name) .. " makes", n)
        visit(name, results[name])
      end
    end
    if n == 0 then fail "neap.quantize: the data set has no rows" end
  end
end

-- ---- weights ------------------------------------------------------------------------------------

-- A bias of more steps of its product stays real: the sum of both would leave 32 bits.
local MOST_STEPS <const> = 2^30

--- The largest magnitude of each row, as the scale of i8; 1 for a row of zeros.
local function row_scales(w)
  local most = w:reshape(w.shape[1], -1):abs():max { axes = { 2 } }:reshape(w.shape[1])
  return most:eq(0):where(core.tensor(1.0), most / 127)
end

--- The scale of what products read, as a number.
local function scale_of(r, root, most)
  local top = most[root] > 0 and most[root] or 1
  return r.positive[root] and top / 255 or top / 127
end

--- Keeps what a product of bytes reads: its weight by rows, and its bias as so many steps of the
-- product, which are other numbers for what has another scale.
local function keep_product(r, step, keep, scale)
  -- A layer that is called twice keeps its bytes once; its bias is counted in steps of weight scale
  -- times input scale, so that it is another where what it reads has another scale.
  local base, root = step.inputs[2], r.root[step.inputs[1]]
  local key, bias_key = recipe.key_of(step, "bytes")
  local scales = row_scales(step.weight)
  step.own = {
    weight = keep(base, key, function()
      return step.weight:quantize_linear(scales, nil, { axis = 1, to = "i8" })
    end),
    scale = keep(base .. "_scale", key, function() return scales end),
  }
  if not step.bias then return end

  -- The product adds the bias in 32 bits. One that would not fit stays real, and is added behind.
  local steps = scales * scale
  local counted = (step.bias / steps):round()
  local has_steps = counted:abs():max():item() < MOST_STEPS
  bias_key = bias_key .. "/" .. root
  step.own.bias = keep(base .. "_bias", bias_key, function()
    return has_steps and counted:to "i32" or step.bias
  end)
  if has_steps then
    step.own.bias_scale = keep(base .. "_bias_scale", bias_key, function() return steps end)
  end
end

--- All tensors of the quantised model, {name =, tensor =}.
local function quantised_weights(r, most)
  local list, keep = recipe.store()
  r.scale, r.zero = {}, {}
  local roots = {}
  for _, root in pairs(r.root) do roots[#roots + 1] = root end
  table.sort(roots)

  -- One scale for each value of bytes, and a zero point where it goes below 0: after a Relu u8
  -- begins at 0, else 128 stands for 0.
  for _, root in ipairs(roots) do
    r.scale[root] = keep(root .. ".scale", "", function()
      return core.tensor(scale_of(r, root, most))
    end)
    r.zero[root] = not r.positive[root] and keep(root .. ".zero", "", function()
      return core.tensor(128, "u8")
    end)
  end
  for _, step in ipairs(r.steps) do
    if step.quantised then
      keep_product(r, step, keep, scale_of(r, r.root[step.inputs[1]], most))
    else
      recipe.keep_real(r, step, keep)
    end
  end
  recipe.keep_outputs(r, keep)
  return list
end

-- ---- the function -------------------------------------------------------------------------------

--- The shapes of one example of each field that forward takes, as m:net's `input` has them.
local function examples_of(model, batch)
  local fields, shapes = arguments.read(model, batch).fields, {}
  local inputs = arguments.inputs(model, fields)
  if fields.x and not inputs.x then arguments.fail_unread(model, "x", {}) end
  local names = names_in(inputs)
  for _, name in ipairs(names) do
    local t = inputs[name]
    if t.shape[1] == 0 then fail "neap.quantize: the data set has no rows" end
    shapes[name] = table.move(t.shape, 2, #t.shape, 1, { dtype = t.dtype })
  end
  return #names == 1 and names[1] == "x" and shapes.x or shapes
end

local function is_data(x) return type(x) == "table" and type(x.epoch) == "function" end

--- neap.quantize(model, data, { .. }) -> the quantised model
-- @param model a module @param data a data set, or a tensor of examples
function M.quantize(model, data, given)
  local o = quantize_options:read(given or {})
  if given and given.percent ~= nil and o.method ~= "percentile" then
    fail "neap.quantize: percent is read by method = \"percentile\" alone"
  end
  local skip = type(o.skip) == "string" and { o.skip } or o.skip
  if not module.is_module(model) then
    fail("neap.quantize takes a model, got a " .. type(model))
  end
  if model._recipe then
    fail "neap.quantize: the model is quantised or sparse already; give the one it was made of"
  end

  for name, p in model:parameters() do
    if p.dtype ~= "f32" and p.dtype:find "^b?f%d" then
      fail(("neap.quantize: \"%s\" is %s, and ranges are of models in f32: model:to \"f32\" \z
        makes it one"):format(name, p.dtype))
    end
  end
  if require("neap.op").is_tensor(data) then
    local x = data
    data = { epoch = function()
      local done = false
      return function()
        if done then return nil end
        done = true
        return { x = x }
      end
    end }
  end
  if not is_data(data) then
    fail("neap.quantize takes a data set or a tensor of examples, got a " .. type(data))
  end
  -- The first batch says the shapes alone; calibration begins anew.
  local iterate, state, control = data:epoch(1)
  local batch = iterate(state, control) or fail "neap.quantize: the data set has no rows"
  local shape = examples_of(model, batch)
  local r, ws, net_of = rewritten.recipe_of(model, shape, "neap.quantize")
  recipe.quantise(r, skip)
  if next(r.root) == nil then
    fail("neap.quantize: the model has no Linear or Conv that can be quantised")
  end
  local each = walker(model, net_of, ws, r, data, o)
  local most = o.method == "minmax" and range.minmax(each) or range.percentile(each, o.percent)
  local weights = quantised_weights(r, most)
  return rewritten.make(Quantized, r, weights, shape, model)
end

return M
