--- Tensors: the part of the class that is made of ops: operators, methods from records, random
-- numbers, statistics. Creation, indexing, views and casts are in C (src/lua/tensor*.c).
-- @module neap.tensor
local core = require "neap.core"
local op = require "neap.op"
local report = require "neap.report"
require "neap.ops"

local Tensor, fail = core.Tensor, core.fail
local tensor = {}

op.surface(Tensor)
op.set_operators(Tensor.meta)

--- x:matmul(y): matrix product, batched over leading dimensions.
Tensor.matmul = op.functions.mat_mul

--- x:stats() -> Report {min, max, mean, std, nan, inf, zero, n}; the first four over the finite
-- elements.
function Tensor.stats(x)
  return report.new {
    totals = core.stats_of(x),
    order = { "n", "min", "max", "mean", "std", "nan", "inf", "zero" },
  }
end

--- x:totype-like names of torch7 that read better than to "f32".
function Tensor.float(x) return x:to "f32" end
function Tensor.double(x) return x:to "f64" end
function Tensor.long(x) return x:to "i64" end

--- rand(2, 3), rand{2, 3, low = -1} and rand{shape, low = -1} alike: attributes of the op.
local function sizes(...)
  local first = ...
  if type(first) ~= "table" then return { shape = { ... } } end
  if select("#", ...) > 1 then fail("neap.rand and neap.randn take sizes, or one table") end
  local attrs = { shape = {} }
  for key, value in pairs(first) do
    if math.type(key) == "integer" then attrs.shape[key] = value else attrs[key] = value end
  end
  return attrs
end

--- Uniform numbers in [low, high), 0 and 1 by default; neap.seed sets the seed. In a function that
-- builds a net (a module's forward, net:scope, a branch) this is an op of that net, which draws
-- anew in every run.
-- @usage neap.rand(2, 3)   neap.rand { 2, 3, low = -1, high = 1 }
function tensor.rand(...) return (op.apply("Uniform", {}, sizes(...))) end

--- Normal numbers with mean 0 and std 1; in a function that builds a net an op of that net.
-- @usage neap.randn(2, 3)   neap.randn { 2, 3, std = 0.1 }
function tensor.randn(...) return (op.apply("Gaussian", {}, sizes(...))) end

return tensor
