--- Caffe's activations, arithmetic, and layers of products.
-- @module neap.caffe.elementwise
local kit = require "neap.caffe.kit"
local F = kit.F

--- (shift + scale x)
local function affine(p, x)
  local shift, scale = p:number("shift", 0), p:number("scale", 1)
  local y = kit.times(x, scale)
  return shift == 0 and y or F.Add { y, shift }
end

-- ---- several bottoms ----------------------------------------------------------------------------

local function eltwise(n, ...)
  n:expect(2)
  local p, xs = n:options "eltwise_param", { ... }
  local how = p:word("operation", { "PROD", "SUM", "MAX" }, "SUM")
  local factors = p:numbers "coeff"
  p:leave "stable_prod_grad"
  for _, x in ipairs(xs) do n:same_shape(xs[1], x) end
  if #factors > 0 and (#factors ~= #xs or how == "PROD") then
    n:fail("%d numbers of coeff, %d bottoms, operation %s", #factors, #xs, how)
  end
  if how == "SUM" then
    for i, factor in ipairs(factors) do xs[i] = kit.times(xs[i], factor) end
    if #xs == 2 then return n:gives("Add", xs) end
    return n:gives("AddN", xs)
  end

  -- Products and maxima pair by pair; the last op has the top's name.
  local y = xs[1]
  for i = 2, #xs - 1 do y = F[how == "PROD" and "Mul" or "Maximum"] { y, xs[i] } end
  return n:gives(how == "PROD" and "Mul" or "Maximum", { y, xs[#xs] })
end

--- The second operand of Scale or Bias, from `at` on beside x: a bottom, or a parameter of so many
-- dimensions.
local function operand(n, p, x, other, suffix, missing)
  local axis, n_axes = p:int("axis", 1), p:int("num_axes", 1)
  if other then
    local at = #other.shape == 0 and 1 or n:axis(axis, #x.shape)
    return other, at
  end

  -- A parameter covers num_axes dimensions from the axis on: -1 all that follow, 0 none.
  local at = n_axes == 0 and 1 or n:axis(axis, #x.shape)
  local shape = {}
  local last = n_axes == -1 and #x.shape or at + n_axes - 1
  if n_axes < -1 or n_axes > #x.shape or last > #x.shape then
    n:fail("num_axes %d from axis %d", n_axes, axis)
  end
  for d = at, last do shape[#shape + 1] = x.shape[d] end
  local filler = p:has "filler" and p:message "filler" or { value = missing }
  return n:param(1, suffix, shape, filler), at
end

--- Scale's parameters where it stands behind a norm that takes them.
local function scale(n, x, other)
  n:expect(1, 2)
  if n.state.is_scale[n.row] and n.state.taken[n.row] then return x end
  local p = n:options "scale_param"

  local v, at = operand(n, p, x, other, "weight", 1)
  local shape = v.shape
  local factor = kit.beside(v, x, at)
  if not p:flag("bias_term", false) then return n:gives("Mul", { x, factor }) end

  local filler = p:has "bias_filler" and p:message "bias_filler" or { value = 0 }
  local b = n:param(other and 1 or 2, "bias", shape, filler)
  return n:gives("Add", { F.Mul { x, factor }, kit.beside(b, x, at) })
end

-- ---- products -----------------------------------------------------------------------------------

local function inner_product(n, x)
  n:expect(1, 1)
  local p = n:options "inner_product_param"
  local at, n_out = n:axis(p:int("axis", 1), #x.shape), p:size "num_output"
    or n:fail "num_output is missing"

  local k = kit.product(x.shape, at)
  local turned = p:flag("transpose", false)
  local w = n:param(1, "weight", turned and { k, n_out } or { n_out, k }, p:message "weight_filler")
  local filler = p:message "bias_filler"
  local b = p:flag("bias_term", true) and n:param(2, "bias", { n_out }, filler) or false
  if not b then filler:leave "type value min max mean std sparse variance_norm" end

  -- From the axis on all is one row of features; what is before it are rows.
  if turned then w = F.Permute(w, { axes = { 2, 1 } }) end
  local rows = kit.product(x.shape, 1, at - 1)
  local flat = kit.reshape(x, { rows, k })
  if at == 2 then return n:gives("FC", { flat, w, b }) end
  local shape = table.move(x.shape, 1, at - 1, 1, {})
  shape[at] = n_out
  return kit.reshape(F.FC { flat, w, b }, shape)
end

local function embed(n, x)
  n:expect(1, 1)
  local p = n:options "embed_param"
  local n_out, n_in = p:size "num_output", p:size "input_dim"
  if not n_out or not n_in then n:fail "num_output and input_dim are expected" end
  local w = n:param(1, "weight", { n_in, n_out }, p:message "weight_filler")
  local y = F.Embedding { kit.cast(x, "i64"), w }

  local filler = p:message "bias_filler"
  if not p:flag("bias_term", true) then return y end
  return n:gives("Add", { y, n:param(2, "bias", { n_out }, filler) })
end

-- ---- activations --------------------------------------------------------------------------------

local function relu(n, x)
  n:expect(1, 1)
  local p = n:options "relu_param"
  local slope = p:number("negative_slope", 0)
  p:leave "engine"
  if slope == 0 then return n:gives("Relu", x) end
  return n:gives("LeakyRelu", x, { slope = slope })
end

local function prelu(n, x)
  n:expect(1, 1)
  local p = n:options "prelu_param"
  local filler = p:has "filler" and p:message "filler" or { value = 0.25 }
  local shared = p:flag("channel_shared", false)
  if not shared then n:check_rank(1, x, 2) end
  local w = n:param(1, "weight", { shared and 1 or x.shape[2] }, filler)
  return n:gives("PRelu", { x, shared and w or kit.beside(w, x, 2) })
end

local function power(n, x)
  n:expect(1, 1)
  local p = n:options "power_param"
  local exponent, y = p:number("power", 1), affine(p, x)
  if exponent == 1 then return y end
  if exponent == 2 then return n:gives("Square", y) end
  return n:gives("Pow", { y, n.state.net:const(exponent, y.dtype) })
end

local function dropout(n, x)
  n:expect(1, 1)
  local p = n:options "dropout_param"
  local rate = p:number("dropout_ratio", 0.5)
  p:leave "scale_train"
  if not (rate >= 0 and rate < 1) then n:fail("a dropout_ratio of %g", rate) end
  if not n:is_training() or rate == 0 then return x end
  return n:gives("Dropout", x, { rate = rate, training = true })
end

return function(layer)
  layer.Eltwise, layer.Scale, layer.InnerProduct, layer.Embed = eltwise, scale, inner_product, embed
  layer.ReLU, layer.PReLU, layer.Power, layer.Dropout = relu, prelu, power, dropout

  -- One op each, with nothing to say but an engine.
  for type_name, op_name in pairs { Sigmoid = "Sigmoid", TanH = "Tanh", AbsVal = "Abs",
    BNLL = "Softplus", ReLU6 = "Relu6" } do
    layer[type_name] = function(n, x)
      n:expect(1, 1)
      n:options(type_name:lower() .. "_param"):leave "engine"
      return n:gives(op_name, x)
    end
  end

  function layer.ELU(n, x)
    n:expect(1, 1)
    return n:gives("Elu", x, { alpha = n:options "elu_param":number("alpha", 1) })
  end

  function layer.Swish(n, x)
    n:expect(1, 1)
    local beta = n:options "swish_param":number("beta", 1)
    return n:gives("Mul", { x, F.Sigmoid(kit.times(x, beta)) })
  end

  function layer.Clip(n, x)
    n:expect(1, 1)
    local p = n:options "clip_param"
    local low, high = p:number "min", p:number "max"
    if not low or not high then n:fail "min and max are expected" end
    return n:gives("Clamp", x, { min = low, max = high })
  end

  function layer.Threshold(n, x)
    n:expect(1, 1)
    local at = n:options "threshold_param":number("threshold", 0)
    return n:gives("Cast", F.Gt { x, at }, { to = x.dtype })
  end

  --- base ^ (shift + scale x); -1 stands for e.
  function layer.Exp(n, x)
    n:expect(1, 1)
    local p = n:options "exp_param"
    local base, y = p:number("base", -1), affine(p, x)
    if base ~= -1 and base <= 0 then n:fail("a base of %g", base) end
    return n:gives("Exp", base == -1 and y or kit.times(y, math.log(base)))
  end

  function layer.Log(n, x)
    n:expect(1, 1)
    local p = n:options "log_param"
    local base, y = p:number("base", -1), affine(p, x)
    if base ~= -1 and (base <= 0 or base == 1) then n:fail("a base of %g", base) end
    if base == -1 then return n:gives("Log", y) end
    return n:times(F.Log(y), 1 / math.log(base))
  end

  function layer.Bias(n, x, other)
    n:expect(1, 2)
    local v, at = operand(n, n:options "bias_param", x, other, "bias", 0)
    return n:gives("Add", { x, kit.beside(v, x, at) })
  end

  --- a x + y, a for each channel: (N,C) or (N,C,1,1).
  function layer.Axpy(n, a, x, y)
    n:expect(3, 3)
    a = kit.reshape(a, { x.shape[1], x.shape[2], 1, 1 })
    return n:gives("Add", { F.Mul { a, x }, y })
  end

  function layer.Parameter(n)
    local shape = n:options "parameter_param":message "shape":ints "dim"
    return n:param(1, "value", shape, { value = 0 })
  end
end
