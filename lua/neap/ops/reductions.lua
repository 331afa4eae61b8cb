--- Reductions that are made of sums, largest elements and products.
-- @module neap.ops.reductions
local compose = require "neap.ops.compose"
local kit = require "neap.ops.kit"

local axes = { "axes", "axes", {}, doc = "dimensions to reduce; none given: all" }
local keepdim = { "keepdim", "boolean", false, doc = "leave reduced dimensions in the shape, as 1" }

local function over(o) return { axes = o.axes, keepdim = o.keepdim } end

--- Defines a reduction of one input.
-- @param fields list of its own options, behind axes and keepdim
local function reduction(spec, fields)
  local all = table.move(fields or {}, 1, fields and #fields or 0, 4, { spec[1], axes, keepdim })
  for key, value in pairs(spec) do
    if type(key) == "string" then all[key] = value end
  end
  all.example = all.example or ('net:%s("x", "y", {axes = {-1}})'):format(spec[1])
  all.inputs = { { "x", "any shape", dtypes = spec.dtypes } }
  all.outputs = { { "y", "shape of x without axes" } }
  all.cases = all.cases
    or "{ {x={4,5,6}, axes={1}}, {x={4,5}, axes={-1}, keepdim=true}, {x={2,3,2}} }"
  compose.define(all)
end

-- ---- sums ---------------------------------------------------------------------------------------

reduction { "L1Norm",
  summary = "Sum of absolute values over dimensions.",
  math = "y = sum |x|",
  source = "ONNX ReduceL1-18",
  of = function(o, x) return x:abs():sum(over(o)) end }

reduction { "L2Norm",
  summary = "Square root of the sum of squares over dimensions; its derivative at 0 is 0.",
  math = "y = sqrt(sum x^2)",
  source = "ONNX ReduceL2-18",
  of = function(o, x) return kit.root(x:square():sum(over(o))) end }

reduction { "SumSquare",
  summary = "Sum of squares over dimensions.",
  math = "y = sum x^2",
  source = "ONNX ReduceSumSquare-18",
  of = function(o, x) return x:square():sum(over(o)) end }

reduction { "LogSum",
  summary = "Logarithm of the sum over dimensions.",
  math = "y = log(sum x)",
  source = "ONNX ReduceLogSum-18",
  cases = "{ {x={{4,5,6}, low=0.1, high=2}, axes={1}}, {x={{4,5}, low=0.1, high=2}} }",
  of = function(o, x) return x:sum(over(o)):log() end }

reduction { "LogSumExp",
  summary = "Logarithm of the sum of exponentials over dimensions, computed without overflow.",
  math = "y = log(sum exp(x))",
  source = "ONNX ReduceLogSumExp-18",
  of = function(o, x)
    local list = kit.axes("LogSumExp", x, o.axes)
    local inner = { axes = list, keepdim = true }
    -- Of nothing there is no largest: the logarithm of an empty sum, minus infinity.
    for _, d in ipairs(list) do
      if x.shape[d] == 0 then return x:sum(over(o)):log() end
    end
    -- Where the largest is infinite the sum is of exp(0): inf - inf would be NaN.
    local largest = x:max(inner):stop_gradient()
    local from = kit.where(largest:abs():eq(math.huge), 0, largest)
    local y = (x - from):exp():sum(inner):log() + from
    return o.keepdim and y or y:squeeze { axes = list }
  end }

reduction({ "Norm",
  summary = "p-norm over dimensions; p may be infinite.",
  math = "y = (sum |x|^p)^(1/p)",
  source = "torch.linalg.vector_norm",
  example = 'net:Norm("x", "y", {axes = {-1}, p = 3})',
  cases = "{ {x={4,5,6}, axes={1}}, {x={4,5}, p=1, keepdim=true}, "
    .. "{x={{4,5}, low=0.2, high=1}, p=3}, {x={4,5}, axes={2}, p='inf'} }",
  of = function(o, x)
    if o.p == "inf" then return x:abs():max(over(o)) end
    if o.p == 2 then return kit.root(x:square():sum(over(o))) end
    if o.p == 1 then return x:abs():sum(over(o)) end
    if o.p == 0 then return x:ne(0):to(x.dtype):sum(over(o)) end
    return (x:abs() ^ o.p):sum(over(o)) ^ (1 / o.p)
  end }, { { "p", "number|choice", 2, min = 0, choices = { "inf" }, doc = "the power" } })

-- ---- moments ------------------------------------------------------------------------------------

local correction = { { "correction", "number", 1, min = 0,
  doc = "what is taken from the number of elements: 1 for samples, 0 for a whole population" } }

local function variance(name, o, x)
  local list, n = kit.axes(name, x, o.axes), 1
  for _, d in ipairs(list) do n = n * x.shape[d] end
  local mean = x:mean { axes = list, keepdim = true }
  -- Of fewer elements than are taken off there is no variance: 0 times an infinity.
  return (x - mean):square():sum { axes = list, keepdim = o.keepdim }
    * (1 / math.max(n - o.correction, 0))
end

reduction({ "Var",
  summary = "Variance over dimensions; NaN where there are too few elements.",
  math = "y = sum (x - mean x)^2 / (n - correction)",
  source = "torch.var",
  of = function(o, x) return variance("Var", o, x) end }, correction)

reduction({ "Std",
  summary = "Standard deviation over dimensions; its derivative at 0 is 0.",
  math = "y = sqrt(sum (x - mean x)^2 / (n - correction))",
  source = "torch.std",
  of = function(o, x) return kit.root(variance("Std", o, x)) end }, correction)

-- ---- truth --------------------------------------------------------------------------------------

local function truth(x) return x.dtype == "bool" and x or x:ne(0) end

reduction { "All", no_grad = true, exact = true, dtypes = "any",
  summary = "Whether all elements are true, or not 0, over dimensions; of none it is true.",
  math = "y = x_1 and x_2 and ..",
  source = "torch.all",
  of = function(o, x) return truth(x):prod(over(o)):ne(0) end }

reduction { "Any", no_grad = true, exact = true, dtypes = "any",
  summary = "Whether an element is true, or not 0, over dimensions; of none it is false.",
  math = "y = x_1 or x_2 or ..",
  source = "torch.any",
  of = function(o, x) return truth(x):sum(over(o)):gt(0) end }

reduction { "CountNonzero", no_grad = true, exact = true, dtypes = "any",
  summary = "How many elements are not 0, over dimensions; i64.",
  math = "y = number of x_i != 0",
  source = "torch.count_nonzero",
  of = function(o, x) return truth(x):sum(over(o)) end }
