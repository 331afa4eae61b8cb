--- Tensors: the part of the class that is made of ops: operators, methods from records, random numbers, statistics.
-- Creation, indexing, views and casts are in C (src/lua/tensor*.c).
-- @module neap.tensor
local core = require "neap.core"
local op = require "neap.op"
local report = require "neap.report"

local Tensor = core.Tensor
local tensor = {}

for name, f in pairs(op.functions) do
  if Tensor[name] == nil then Tensor[name] = f end
end
op.set_operators(Tensor.meta)

--- x:matmul(y): matrix product, batched over leading dimensions.
function Tensor.matmul(x, y, attrs) return op.apply("MatMul", { x, y }, attrs) end

--- x:stats() -> Report {min, max, mean, std, nan, inf, zero, n}; the first four over the finite elements.
function Tensor.stats(x)
  return report.new { totals = core.stats_of(x), order = { "n", "min", "max", "mean", "std", "nan", "inf", "zero" } }
end

--- x:totype-like names of torch7 that read better than to "f32".
function Tensor.float(x) return x:to "f32" end
function Tensor.double(x) return x:to "f64" end
function Tensor.long(x) return x:to "i64" end

local function sizes(...)
  local first = ...
  local shape, rest = {}, {}
  if type(first) == "table" then
    for key, value in pairs(first) do
      if math.type(key) == "integer" then shape[key] = value else rest[key] = value end
    end
  else
    shape = { ... }
  end
  rest.shape = shape
  return rest
end

--- Uniform numbers in [low, high), 0 and 1 by default; neap.seed sets the seed.
-- @usage neap.rand(2, 3)   neap.rand { 2, 3, low = -1, high = 1 }
function tensor.rand(...) return (core.eager("Uniform", {}, sizes(...))) end

--- Normal numbers with mean 0 and std 1.
-- @usage neap.randn(2, 3)   neap.randn { 2, 3, std = 0.1 }
function tensor.randn(...) return (core.eager("Gaussian", {}, sizes(...))) end

return tensor
