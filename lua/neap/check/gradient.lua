--- neap.check.gradient: the gradients of a function or a model against differences.
--
-- What f gives is weighed by fixed numbers and added up; the derivative of that sum along a random
-- direction of each argument is compared with a central difference of the function itself.
-- @module neap.check.gradient
local core = require "neap.core"
local dtypes = require "neap.inner.dtypes"
local op = require "neap.op"
local record = require "neap.inner.record"
local report = require "neap.report"
local tree = require "neap.nn.tree"
local fail = core.fail

local M = {}

local options = record.declare("neap.check.gradient", { call = "(f, inputs, {})",
  doc = [[Compares the gradients of a function of tensors, or of a model, by its inputs and its
    parameters, with differences. A function is tried in f64; a model in its own f32, as it stands:
    m:train() or m:eval().]],
  { "eps", "number", above = 0, unset = "1e-5, for a model 1e-2",
    doc = "how far the arguments are moved" },
  { "tol", "number", above = 0, unset = "1e-6, for a model 1e-2",
    doc = "largest difference, of the larger of the gradient and the result" },
  { "seed", "integer", 1, doc = "what the directions follow, and what is drawn within" },
  example = "neap.check.gradient(function(x) return x:tanh() end, { neap.rand(2, 3) })" })

local function is_float(x) return dtypes.is_float[x.dtype] end

local function drawn(x, low, high, dtype)
  return core.eager("Uniform", {}, { shape = x.shape, low = low, high = high,
    dtype = dtype or x.dtype })
end

--- The sum of a * b, in f64.
local function dot(a, b) return (a:to "f64" * b:to "f64"):sum():item() end

local function norm(x) return math.sqrt(dot(x, x)) end

local function push(list, x)
  local out = table.move(list, 1, #list, 1, {})
  out[#out + 1] = x
  return out
end

--- One row: what the gradient says along a direction, and what differences say.
local function compare(rows, o, name, gradient, direction, value, at)
  -- Both sides say how the sum changes along the direction; what is allowed grows with the gradient
  -- and the value.
  local analytic = gradient and dot(gradient, direction) or 0
  local numeric = (at(o.eps) - at(-o.eps)) / (2 * o.eps)
  local limit = o.tol * math.max(gradient and norm(gradient) or 0, math.abs(value), 1e-3)
  local difference = math.abs(analytic - numeric)
  rows[#rows + 1] = { name = name, gradient = analytic, differences = numeric,
    difference = difference, allowed = limit, same = difference <= limit }
end

local function report_of(rows)
  local same, worst = #rows > 0, nil
  for _, row in ipairs(rows) do
    if not row.same then
      same = false
      worst = worst or row.name
    end
  end
  return report.new { rows = rows,
    columns = { "name", "gradient", "differences", "difference", "allowed", "same" },
    totals = { same = same, different = worst }, order = { "same", "different" } }
end

--- f(inputs) as the sum of its floating-point results, each element weighed; and those weights,
-- drawn once.
local function weighed(f)
  -- Weights are drawn at the first call, and are the same in all others: the sum is one function.
  local weights = {}
  return function(...)
    local out, sum = table.pack(f(...)), nil
    for k = 1, out.n do
      local y = out[k]
      if op.is_tensor(y) or op.is_blob(y) then
        if is_float(y) then
          weights[k] = weights[k] or drawn({ shape = y.shape }, 0.5, 1.5, y.dtype)
          local term = (y * weights[k]):sum()
          sum = sum and sum + term or term
        end
      end
    end
    return sum or fail "neap.check.gradient: the function gives no floating-point tensor"
  end
end

--- What f gives of inputs in f64; what it reads besides them may be of another dtype still.
local function tried(f, xs)
  local given = table.pack(pcall(f, table.unpack(xs)))
  if given[1] then return table.pack(table.unpack(given, 2, given.n)) end
  local err = given[2]
  if type(err) == "table" and err.code == "dtype" then
    rawset(err, "hint", "neap.check.gradient tries a function in f64: tensors that it reads \z
      besides its inputs are to be inputs, too, or x:to(input.dtype)")
  end
  error(err, 0)
end

local function of_function(f, inputs, o)
  -- In f64 differences have room: eps 1e-5 leaves ten digits.
  local xs, wrt, rows = {}, {}, {}
  for i, x in ipairs(inputs) do
    xs[i] = is_float(x) and x:to "f64" or x
    if is_float(x) then wrt[#wrt + 1] = i end
  end
  if #wrt == 0 then fail "neap.check.gradient: no input is a floating-point tensor" end
  local given, has_float = tried(f, xs), false
  for k = 1, given.n do has_float = has_float or op.is_tensor(given[k]) and is_float(given[k]) end
  if not has_float then fail "neap.check.gradient: the function gives no floating-point tensor" end
  local g, weights_of = weighed(f), {}
  core.seed(o.seed)
  for i, x in ipairs(inputs) do weights_of[i] = drawn(x, -1, 1, "f64") end
  -- One function is run in all places, by one seed, so that all draw the same.
  local derived = require("neap.transform").value_and_grad(g, { wrt = wrt })
  derived(table.unpack(xs)) -- builds, and draws the weights
  core.seed(o.seed)
  local results = table.pack(derived(table.unpack(xs)))
  local value = results[1]:item()
  for k, i in ipairs(wrt) do
    local moved = table.move(xs, 1, #xs, 1, {})
    compare(rows, o, "input " .. i, results[k + 1], weights_of[i], value, function(step)
      moved[i] = xs[i] + weights_of[i] * step
      core.seed(o.seed)
      return (derived(table.unpack(moved))):item()
    end)
  end
  return report_of(rows)
end

local function of_model(model, inputs, o)
  local ws, weights, rows = tree.home(model):workspace(), nil, {}
  -- Every run draws the same, and is none of those that the model counts.
  local function value()
    ws:_give_draw(o.seed, 0)
    local _ <close> = setmetatable({}, { __close = function() ws:_give_draw() end })
    local out = table.pack(model(table.unpack(inputs)))
    if out.n ~= 1 then fail "neap.check.gradient: a model of one result is expected" end
    weights = weights or drawn(out[1], 0.5, 1.5)
    return dot(out[1], weights)
  end
  local at_hand = value()
  local results = table.pack(model:backward(table.unpack(push(inputs, weights))))
  for i, x in ipairs(inputs) do
    if is_float(x) and results[i] then
      local direction, kept, dx = drawn(x, -1, 1), x, results[i]
      compare(rows, o, "input " .. i, dx, direction, at_hand, function(step)
        inputs[i] = kept + direction * step
        local v = value()
        inputs[i] = kept
        return v
      end)
    end
  end
  local grads = {}
  for name, p in model:parameters() do
    if p.trainable and p.grad then grads[#grads + 1] = { name, p, p.grad:clone() } end
  end
  for _, row in ipairs(grads) do
    local p, kept = row[2], row[2].data:clone()
    local direction = drawn(kept, -1, 1)
    compare(rows, o, row[1], row[3], direction, at_hand, function(step)
      p.data:copy_(kept + direction * step)
      local v = value()
      p.data:copy_(kept)
      return v
    end)
  end
  return report_of(rows)
end

--- neap.check.gradient(f | model, {inputs} [, {eps =, tol =}]) -> Report of inputs and parameters;
-- fields same (bool) and different (the first that is not): see the record.
-- @usage assert(neap.check.gradient(function(x) return x:tanh() end, { neap.rand(2, 3) }).same)
function M.check(f, inputs, given)
  local is_model = type(f) == "table" and rawget(f, "_is_module") == true
  local o = options:read(given)
  if op.is_tensor(inputs) then inputs = { inputs } end
  if type(inputs) ~= "table" or not op.is_tensor(inputs[1]) then
    fail "neap.check.gradient expects (f, { inputs }), the inputs tensors"
  end
  if not is_model and type(f) ~= "function" then
    fail(("neap.check.gradient expects a function or a model, got a %s"):format(type(f)))
  end
  inputs = table.move(inputs, 1, #inputs, 1, {})
  o.eps = o.eps or is_model and 1e-2 or 1e-5
  o.tol = o.tol or is_model and 1e-2 or 1e-6
  -- A model that has no parameters yet draws them by its own seed.
  if is_model and not rawget(tree.home(f), "_met") then f(table.unpack(inputs)) end
  return require("neap").with({ seed = o.seed }, is_model and of_model or of_function, f, inputs, o)
end

return M
