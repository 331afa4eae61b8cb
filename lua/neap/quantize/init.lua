--- neap.quantize: a model that computes with bytes, of one that was trained in real numbers.
-- @module neap.quantize
local core = require "neap.core"
local module = require "neap.nn.module"
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
    with one; norms are folded in, sums, pools and Relu between them stay in bytes. It plans, saves,
    exports and evaluates as every model does; the model itself is left as it is.]],
  { "method", "choice", "minmax", choices = { "minmax", "percentile" },
    doc = "what a range is: up to the largest number, or up to all but the largest few" },
  { "percent", "number", 99.99, above = 0, max = 100,
    doc = "of numbers that a range by percentile has" },
  { "batches", "integer", 10, min = 1, doc = "how many of the data set are looked at" },
  { "skip", "names", {}, doc = "globs of layers that stay in real numbers" },
  example = 'neap.quantize(model, neap.rand(8, 4), { method = "percentile" })' })

local Quantized = rewritten.class "Quantized"

-- ---- calibration --------------------------------------------------------------------------------

--- f(visit) that runs the first batches of the data, and shows visit each value that is looked at.
local function walker(net_of, ws, r, data, o)
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
      local feeds = {}
      for k, name in ipairs(r.inputs) do
        feeds[name] = batch[name] or (#r.inputs == 1 and batch.x) or batch[k]
          or fail(("neap.quantize: the data have no field \"%s\""):format(name))
        if roots[name] then visit(name, feeds[name]) end
      end
      local rows = feeds[r.inputs[1]].shape[1]
      if not nets[rows] then
        nets[rows] = net_of(rows)
        if #kept > 0 then nets[rows]:outputs(kept) end
      end
      local results = ws:run(nets[rows], feeds)
      for _, name in ipairs(kept) do visit(name, results[name]) end
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

--- All tensors of the quantised model, {name =, tensor =}.
local function quantised_weights(r, most)
  local list, done = {}, {}
  local function add(name, t)
    if not done[name] then
      done[name] = true
      list[#list + 1] = { name = name, tensor = t }
    end
  end
  r.zero = {}
  local roots = {}
  for _, root in pairs(r.root) do roots[#roots + 1] = root end
  table.sort(roots)
  for _, root in ipairs(roots) do
    local top = most[root] > 0 and most[root] or 1
    r.zero[root] = not r.positive[root]
    add(root .. ".scale", core.tensor(r.positive[root] and top / 255 or top / 127))
    if r.zero[root] then add(root .. ".zero", core.tensor(128, "u8")) end
  end
  for _, step in ipairs(r.steps) do
    if step.quantised then
      local name, root = step.inputs[2], r.root[step.inputs[1]]
      local scale = row_scales(step.weight)
      add(name, step.weight:quantize_linear(scale, nil, { axis = 1, to = "i8" }))
      add(name .. "_scale", scale)
      if step.bias then
        local top = most[root] > 0 and most[root] or 1
        local steps = scale * (r.positive[root] and top / 255 or top / 127)
        local counted = (step.bias / steps):round()
        step.has_steps = counted:abs():max():item() < MOST_STEPS
        add(name .. "_bias", step.has_steps and counted:to "i32" or step.bias)
        if step.has_steps then add(name .. "_bias_scale", steps) end
      end
    else
      recipe.real_weights(r, step, add)
    end
  end
  return list
end

-- ---- the function -------------------------------------------------------------------------------

local function is_data(x) return type(x) == "table" and type(x.epoch) == "function" end

--- neap.quantize(model, data, { .. }) -> the quantised model
-- @param model a module @param data a data set, or a tensor of examples
function M.quantize(model, data, given)
  local o = quantize_options:read(given or {})
  local skip = type(o.skip) == "string" and { o.skip } or o.skip
  if not module.is_module(model) then
    fail("neap.quantize takes a model, got a " .. type(model))
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
  local iterate, state, control = data:epoch(1)
  local batch = iterate(state, control) or fail "neap.quantize: the data set has no rows"
  local first = batch.x or batch[1] or select(2, next(batch))
  local example = table.move(first.shape, 2, #first.shape, 1, {})
  local shape = rewritten.shape_of(model, example)
  local r, ws, net_of = rewritten.recipe_of(model, shape)
  recipe.quantise(r, skip)
  if next(r.root) == nil then
    fail("neap.quantize: the model has no Linear or Conv that can be quantised")
  end
  local each = walker(net_of, ws, r, data, o)
  local most = o.method == "minmax" and range.minmax(each) or range.percentile(each, o.percent)
  local weights = quantised_weights(r, most)
  return rewritten.make(Quantized, r, weights, shape, model)
end

return M
