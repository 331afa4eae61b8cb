--- Caffe's normalisations.
-- @module neap.caffe.norms
local core = require "neap.core"
local kit = require "neap.caffe.kit"
local F = kit.F

local function constant(n, size, value)
  return n.state.net:const(core.full { size, value = value, dtype = "f32" })
end

-- ---- batch norm ---------------------------------------------------------------------------------

--- gamma and beta of the Scale layer behind a norm; ones and zeros where there is none that the
-- norm can take.
local function scale_of(n, x)
  local channels, row = x.shape[2], n.state.scale_of[n.row]
  local p = row and row.message:message "scale_param"
  if row and p:int("axis", 1) == 1 and p:int("num_axes", 1) == 1 then
    -- The parameters are those of the Scale layer, under its name.
    local behind = setmetatable({ row = row, state = n.state }, getmetatable(n))
    n.state.taken[row] = true
    local filler = p:has "filler" and p:message "filler" or { value = 1 }
    local gamma = behind:param(1, "weight", { channels }, filler)
    if not p:flag("bias_term", false) then return gamma, constant(n, channels, 0) end
    local shift = p:has "bias_filler" and p:message "bias_filler" or { value = 0 }
    return gamma, behind:param(2, "bias", { channels }, shift)
  end
  return constant(n, channels, 1), constant(n, channels, 0)
end

--- The mean over the batches so far: a sum in which each counts `share` of the one after it, over
-- the sum of what they count. Neap keeps the quotient, and `count`, what it is over.
--   count = share count + 1; mean = mean + (batch - mean) / count
local function follow(n, mean, batch, count)
  n:update(mean, F.Add { mean, F.Div { F.Sub { batch, mean }, count } })
end

--- The norm by the batch's own mean and variance, which `after` follows; its last argument is the
-- factor that makes the variance an unbiased one.
local function of_batch(n, x, gamma, beta, eps, after)
  local elements = kit.product(x.shape) // x.shape[2]
  local y = n:gives("BatchNorm", { x, gamma, beta }, { eps = eps, training = true }, 3)
  y.after = function(_, m, v)
    after(m, v, elements > 1 and elements / (elements - 1) or 1)
  end
  return y
end

local function batch_norm(n, x)
  n:expect(1, 1)
  local p = n:options "batch_norm_param"
  local global = p:flag("use_global_stats", not n:is_training())
  local share, eps = p:number("moving_average_fraction", 0.999), p:number("eps", 1e-5)
  p:leave "engine"
  if #x.shape < 2 then n:fail("a bottom of shape (%s)", table.concat(x.shape, ",")) end
  local c = { x.shape[2] }

  local gamma, beta = scale_of(n, x)
  local mean, var = n:statistic(1, "mean", c, 0), n:statistic(2, "var", c, 0)
  local count = n:statistic(3, "count", {}, 0)

  -- By kept statistics; else by the batch's, which these follow.
  if global then return n:gives("BatchNorm", { x, gamma, beta, mean, var }, { eps = eps }) end
  return of_batch(n, x, gamma, beta, eps, function(m, v, unbiased)
    local next_count = F.Add { kit.times(count, share), 1 }
    follow(n, mean, m, next_count)
    follow(n, var, kit.times(v, unbiased), next_count)
    n:update(count, next_count)
  end)
end

--- BN of yjxiong's Caffe: scale and shift are its own, statistics are running means; `frozen` takes
-- them in training too, and trains nothing.
local function bn(n, x)
  n:expect(1, 1)
  n:check_rank(1, x, 2)
  local p = n:options "bn_param"
  local eps, momentum = p:number("eps", 1e-5), p:number("momentum", 0.9)
  local frozen, c = p:flag("frozen", false), { x.shape[2] }
  p:leave "engine"
  local function filler(name, value)
    return p:has(name) and p:message(name) or { value = value }
  end

  -- Whatever rates the file gives scale and shift, frozen ones have none.
  if frozen then n.row.params = { { lr_mult = 0 }, { lr_mult = 0 } } end
  local gamma = n:param(1, "weight", c, filler("slope_filler", 1))
  local beta = n:param(2, "bias", c, filler("bias_filler", 0))

  local mean, var = n:statistic(3, "mean", c, 0), n:statistic(4, "var", c, 1)
  if frozen or not n:is_training() then
    return n:gives("BatchNorm", { x, gamma, beta, mean, var }, { eps = eps })
  end
  return of_batch(n, x, gamma, beta, eps, function(m, v, unbiased)
    local net = n.state.net
    net:op("RunningAverage", { mean, m }, { mean }, { momentum = 1 - momentum })
    net:op("RunningAverage", { var, v }, { var }, { momentum = 1 - momentum, factor = unbiased })
  end)
end

-- ---- the rest -----------------------------------------------------------------------------------

local function lrn(n, x)
  n:expect(1, 1)
  local p = n:options "lrn_param"
  local size, alpha, beta = p:size("local_size", 5), p:number("alpha", 1), p:number("beta", 0.75)
  local region = p:word("norm_region", { "ACROSS_CHANNELS", "WITHIN_CHANNEL" }, "ACROSS_CHANNELS")
  local k = p:number("k", 1)
  p:leave "engine"
  if size % 2 == 0 then n:fail("local_size is %d, an odd number is expected", size) end
  if region == "ACROSS_CHANNELS" then
    return n:gives("LRN", x, { size = size, alpha = alpha, beta = beta, bias = k })
  end
  -- Within a channel k is 1, and the mean is of all places of the window, outside ones too.
  local mean = F.AveragePool(F.Square(x), { kernel = size, stride = 1, pad = (size - 1) // 2 })
  local under = F.Add { kit.times(mean, alpha), 1 }
  return n:gives("Mul", { x, F.Pow { under, n.state.net:const(-beta, x.dtype) } })
end

--- Mean 0 and, where it is asked for, deviation 1, of each image and channel, or of each image.
local function mvn(n, x)
  n:expect(1, 1)
  local p = n:options "mvn_param"
  local axes = kit.dims(x, p:flag("across_channels", false) and 2 or 3)
  if #axes == 0 then n:fail("a bottom of shape (%s)", table.concat(x.shape, ",")) end
  local eps, is_normed = p:number("eps", 1e-9), p:flag("normalize_variance", true)
  local d = F.Sub { x, F.Mean(x, { axes = axes, keepdim = true }) }
  if not is_normed then return d end
  local var = F.Mean(F.Square(d), { axes = axes, keepdim = true })
  return n:gives("Div", { d, F.Add { F.Sqrt(var), eps } })
end

--- Normalize of SSD: length 1 over channels, or over an image, times a scale for each channel.
local function normalize(n, x)
  n:expect(1, 1)
  local p = n:options "norm_param"
  local axes = p:flag("across_spatial", true) and kit.dims(x, 2) or { 2 }
  local shared = p:flag("channel_shared", true)
  local filler = p:has "scale_filler" and p:message "scale_filler" or { value = 1 }

  local sum = F.Sum(F.Square(x), { axes = axes, keepdim = true })
  local y = F.Div { x, F.Sqrt(F.Add { sum, p:number("eps", 1e-10) }) }
  local scale = n:param(1, "weight", { shared and 1 or x.shape[2] }, filler)
  return n:gives("Mul", { y, kit.beside(scale, x, 2) })
end

return function(layer)
  layer.BatchNorm, layer.BN, layer.LRN, layer.MVN, layer.Normalize = batch_norm, bn, lrn, mvn,
    normalize
end
