--- Quantiles, differences and covariances, and what is put in the place of numbers that are none.
-- @module neap.ops.statistics
local compose = require "neap.ops.compose"
local core = require "neap.core"
local kit = require "neap.ops.kit"
local op = require "neap.op"
local fail, where = core.fail, kit.where

local function define(spec)
  spec.inputs = spec.inputs or { { "x", "any shape" } }
  spec.outputs = spec.outputs or { { "y", "shape of x" } }
  spec.example = spec.example or ('net:%s("x", "y")'):format(spec[1])
  spec.cases = spec.cases or "{ {x={3,4}}, {x={5}} }"
  compose.define(spec)
end

--- Positions from..to of dimension d, from 1.
local function part(x, d, from, to)
  return x:slice { axes = { d }, starts = { from }, ends = { to } }
end

-- ---- in order -----------------------------------------------------------------------------------

local keepdim = { "keepdim", "boolean", false, doc = "leave the dimension in the shape, as 1" }

--- What lies a share f of the way from low to high. Of infinities the difference is none, but the
-- sum of both, weighed, is; an element that has no weight is not looked at.
local function between(low, high_of, f)
  if f == 0 then return low end
  local high = high_of()
  if f == 1 then return high end
  local y = low + (high - low) * f
  return where(y:ne(y), low * (1 - f) + high * f, y)
end

define { "Quantile",
  summary = "Quantiles along a dimension, between two elements by distance; NaN where one is.",
  math = "y = x_(k) + (x_(k+1) - x_(k)) f, q (n - 1) = k + f, x in order",
  source = "torch.quantile",
  example = 'net:Quantile("x", "y", {q = 0.9, axis = -1})',
  outputs = { { "y", "shape of x without that dimension" } },
  { "q", "number", min = 0, max = 1, required = true, doc = "the share that lies below" },
  { "axis", "axis", unset = "all elements", doc = "the dimension" },
  keepdim,
  cases = "{ {x={3,4}, q=0.3, axis=1}, {x={2,5}, q=1, axis=-1, keepdim=true}, {x={3,3}, q=0.5} }",
  of = function(o, x)
    if not o.axis then x = x:reshape(-1) end
    local d = kit.axis("Quantile", x, o.axis or 1)
    local n = x.shape[d]
    if n == 0 then fail "Quantile: x has no elements along the dimension" end

    -- The quantile lies between two neighbours; the last pair serves q = 1, too.
    local at = o.q * (n - 1)
    local k = math.min(math.floor(at), math.max(n - 2, 0))
    local sorted = x:sort { axis = d } -- a NaN is the last
    local y = between(part(sorted, d, k + 1, k + 1), function()
      return part(sorted, d, k + 2, k + 2)
    end, at - k)

    -- NaN sorts last: where the last one is NaN, so is the quantile.
    local last = part(sorted, d, n, n)
    y = where(last:ne(last), last, y)
    return o.keepdim and o.axis and y or y:squeeze { axes = { d } }
  end }

define { "KthValue",
  summary = "The k-th smallest element along a dimension, and where it stands.",
  math = "values = x_(k), x in order",
  source = "torch.kthvalue",
  nan = "decides", special = "a NaN is larger than all numbers",
  example = 'net:KthValue("x", {"values", "indices"}, {k = 2})',
  outputs = { { "values", "shape of x without that dimension" },
    { "indices", "likewise, i64, from 0", dtypes = { "i64" } } },
  { "k", "integer", min = 1, required = true, doc = "which, from 1" },
  { "axis", "axis", -1, doc = "the dimension" },
  keepdim,
  cases = "{ {x={3,4}, k=2}, {x={4,2}, k=1, axis=1, keepdim=true} }",
  of = function(o, x)
    local d = kit.axis("KthValue", x, o.axis)
    if o.k > x.shape[d] then
      fail(("KthValue: k = %d of %d elements"):format(o.k, x.shape[d]))
    end
    local values, indices = op.apply("Sort", { x }, { axis = d }, 2)
    values, indices = part(values, d, o.k, o.k), part(indices, d, o.k, o.k)
    if o.keepdim then return values, indices end
    return values:squeeze { axes = { d } }, indices:squeeze { axes = { d } }
  end }

-- ---- neighbours ---------------------------------------------------------------------------------

define { "Diff",
  summary = "Differences of neighbours along a dimension.",
  math = "y_i = x_(i+1) - x_i",
  source = "torch.diff",
  outputs = { { "y", "shape of x, that dimension shorter by n" } },
  { "n", "integer", 1, min = 0, doc = "how many times" },
  { "axis", "axis", -1, doc = "the dimension" },
  cases = "{ {x={3,4}}, {x={5,2}, n=2, axis=1}, {x={3}, n=0} }",
  of = function(o, x)
    local d = kit.axis("Diff", x, o.axis)
    if o.n >= x.shape[d] and o.n > 0 then
      fail(("Diff: n = %d differences of %d elements"):format(o.n, x.shape[d]))
    end
    for _ = 1, o.n do
      local size = x.shape[d]
      x = part(x, d, 2, size) - part(x, d, 1, size - 1)
    end
    return x
  end }

define { "Trapezoid",
  summary = "Integral of samples along a dimension, by straight lines between them.",
  math = "y = dx sum (x_i + x_(i+1)) / 2",
  source = "torch.trapezoid",
  outputs = { { "y", "shape of x without that dimension" } },
  { "dx", "number", 1, doc = "distance of the samples" },
  { "axis", "axis", -1, doc = "the dimension" },
  cases = "{ {x={3,4}}, {x={5,2}, dx=0.5, axis=1} }",
  of = function(o, x)
    local d = kit.axis("Trapezoid", x, o.axis)
    local n = x.shape[d]

    -- Fewer than two samples have no line between them.
    if n < 2 then return x:sum { axes = { d } } * 0 end
    return (part(x, d, 1, n - 1) + part(x, d, 2, n)):sum { axes = { d } } * (o.dx / 2)
  end }

-- ---- covariances --------------------------------------------------------------------------------

local function centred(name, x)
  if #x.shape ~= 2 then
    fail(("%s: x is (%s), expected (variables, samples)"):format(name, table.concat(x.shape, ",")))
  end
  return x - x:mean { axes = { 2 }, keepdim = true }
end

define { "Cov",
  summary = "Covariances of variables, each a row of samples.",
  math = "y_ij = sum (x_i - mean) (x_j - mean) / (n - correction)",
  source = "torch.cov",
  inputs = { { "x", "(variables, samples)" } },
  outputs = { { "y", "(variables, variables)" } },
  { "correction", "number", 1, min = 0, doc = "what is taken from the number of samples" },
  cases = "{ {x={3,5}}, {x={2,4}, correction=0} }",
  of = function(o, x)
    local c = centred("Cov", x)
    return c:mat_mul(c, { trans_b = true }) * (1 / math.max(x.shape[2] - o.correction, 0))
  end }

define { "CorrCoef",
  summary = "Pearson's correlations of variables, each a row of samples.",
  math = "y_ij = c_ij / sqrt(c_ii c_jj), c the covariances",
  source = "torch.corrcoef",
  nan = "reaches",
  inputs = { { "x", "(variables, samples)" } },
  outputs = { { "y", "(variables, variables)" } },
  cases = "{ {x={3,5}} }",
  of = function(_, x)
    local c = centred("CorrCoef", x)

    -- Rows of length 1: their products are the correlations, but for rounding.
    c = c / c:square():sum({ axes = { 2 }, keepdim = true }):sqrt()
    return c:mat_mul(c, { trans_b = true }):clamp { min = -1, max = 1 }
  end }

-- ---- what is no number --------------------------------------------------------------------------

define { "IsFinite", no_grad = true, exact = true,
  summary = "Whether an element is neither a NaN nor an infinity.",
  math = "y = |x| < infinity",
  source = "torch.isfinite",
  of = function(_, x) return x:abs():lt(math.huge) end }

local largest = { f32 = 0x1.fffffep127, f64 = math.maxinteger and 0x1.fffffffffffffp1023,
  f16 = 65504, bf16 = 0x1.fep127 }

define { "NanToNum", exact = true,
  summary = "Numbers in the place of NaN and infinities.",
  math = "y = x finite ? x : nan, posinf or neginf",
  source = "torch.nan_to_num",
  nan = "decides", special = "a NaN becomes a number",
  { "nan", "number", 0, doc = "for a NaN" },
  { "posinf", "number", unset = "the largest number of the dtype", doc = "for infinity" },
  { "neginf", "number", unset = "the least number of the dtype", doc = "for minus infinity" },
  of = function(o, x)
    local most = largest[x.dtype]
    local y = where(x:eq(math.huge), o.posinf or most,
      where(x:eq(-math.huge), o.neginf or -most, x))
    return where(x:ne(x), o.nan, y)
  end }

local axes = { "axes", "axes", {}, doc = "dimensions to reduce; none given: all" }

define { "NanSum",
  summary = "Sum over dimensions of what is no NaN.",
  math = "y = sum of x that are numbers",
  source = "torch.nansum",
  nan = "decides", special = "a NaN is left out",
  outputs = { { "y", "shape of x without axes" } },
  axes, keepdim,
  cases = "{ {x={3,4}, axes={1}}, {x={2,3}, keepdim=true} }",
  of = function(o, x) return where(x:ne(x), 0, x):sum { axes = o.axes, keepdim = o.keepdim } end }

define { "NanMean",
  summary = "Mean over dimensions of what is no NaN; NaN where nothing is.",
  math = "y = mean of x that are numbers",
  source = "torch.nanmean",
  nan = "decides", special = "a NaN is left out",
  outputs = { { "y", "shape of x without axes" } },
  axes, keepdim,
  cases = "{ {x={3,4}, axes={1}}, {x={2,3}, keepdim=true} }",
  of = function(o, x)
    local how, none = { axes = o.axes, keepdim = o.keepdim }, x:ne(x)
    return where(none, 0, x):sum(how) / none:logical_not():to(x.dtype):sum(how)
  end }

-- ---- element by element -------------------------------------------------------------------------

define { "Xlogy",
  summary = "x times the logarithm of y, 0 where x is 0, with broadcasting.",
  math = "z = x log y, 0 log 0 = 0",
  source = "torch.special.xlogy",
  example = 'net:Xlogy({"x", "y"}, "z")',
  inputs = { { "x", "any shape" }, { "y", "broadcasts with x" } },
  outputs = { { "z", "broadcast shape" } },
  cases = "{ {x={3,4}, y={{4}, low=0.2, high=2}}, {x={2,3}, y={{2,3}, low=0.2, high=2}} }",
  of = function(_, x, y)
    -- Where both are 0 the logarithm is of 1, so that 0 log 0 and its gradient are 0.
    return x * where(x:eq(0):logical_and(y:le(0)), 1, y):log()
  end }

define { "Logit",
  summary = "Inverse of the logistic function.",
  math = "y = log(x / (1 - x))",
  source = "torch.logit",
  { "eps", "number", unset = "no bound", min = 0, max = 0.5,
    doc = "x is moved into eps .. 1 - eps before" },
  cases = "{ {x={{3,4}, low=0.1, high=0.9}}, {x={{5}, low=0.1, high=0.9}, eps=0.01} }",
  of = function(o, x)
    if o.eps then x = x:clamp { min = o.eps, max = 1 - o.eps } end
    return (x / (1 - x)):log()
  end }

define { "Heaviside", no_grad = true, exact = true,
  summary = "0 below 0, 1 above, and at 0 what the second input says.",
  math = "z = x < 0 ? 0 : x > 0 ? 1 : y",
  source = "torch.heaviside",
  example = 'net:Heaviside({"x", "y"}, "z")',
  inputs = { { "x", "any shape" }, { "y", "broadcasts with x" } },
  outputs = { { "z", "broadcast shape" } },
  cases = "{ {x={3,4}, y={4}} }",
  of = function(_, x, y)
    -- NaN stays NaN: it is neither above nor below.
    return where(x:eq(0), y, where(x:ne(x), x, x:gt(0):to(x.dtype)))
  end }
