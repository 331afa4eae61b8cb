--- ONNX's normalisations, and dropout.
-- @module neap.onnx.norms
local kit = require "neap.onnx.kit"
local F = kit.F

--- A vector over channels, beside x: (C, 1, 1).
local function over_channels(v, rank)
  local shape = kit.fill(rank - 1, 1)
  shape[1] = v.shape[1]
  return kit.reshape(v, shape)
end

--- Normalised over the last dimensions from `axis` on, in `stash`: y, mean, 1 / deviation.
local function normalised(x, axes, eps, centered)
  local mean = centered and F.Mean(x, { axes = axes, keepdim = true })
  local d = centered and F.Sub { x, mean } or x
  local var = F.Mean(F.Mul { d, d }, { axes = axes, keepdim = true })
  local scale = F.Reciprocal(F.Sqrt(F.Add { var, kit.number(eps, x.dtype) }))
  return F.Mul { d, scale }, mean, scale
end

--- The dimensions from ONNX's axis to the last.
local function last_axes(n, x)
  local axes = {}
  for d = n:axis(n:int("axis", -1), #x.shape), #x.shape do axes[#axes + 1] = d end
  return axes
end

--- x in the type that statistics are computed in.
local function stash(n, x)
  local row = kit.types[n:int("stash_type", 1)]
  if not row or not row.dtype then n:fail("a stash_type of %d", n:int "stash_type") end
  return x.dtype == "f64" and x or kit.cast(x, row.dtype)
end

--- Whether a weight covers just the dimensions that are normalised, as Neap's ops take it.
local function covers(v, x, axes)
  if not v then return true end
  if #v.shape ~= #axes then return false end
  for i, d in ipairs(axes) do
    if v.shape[i] ~= x.shape[d] then return false end
  end
  return true
end

-- ---- the way back -------------------------------------------------------------------------------

--- Weights that are left out: all of one number.
local function filled(n, v, size, value)
  return v or n:const(kit.full({ size }, value, n:dtype(1)))
end

--- What keeps the running statistics of a BatchNorm that trains: its RunningAverages' first inputs.
local function running(n, k)
  local name = n.row.outputs[k]
  for _, row in ipairs(n.state:net():_ops()) do
    if name and row.type == "RunningAverage" and row.inputs[2] == name then
      return n.state:value_of(row.inputs[1])
    end
  end
  n:lacks "it trains, and nothing keeps the statistics that it would infer with"
end

--- (N, C, ..) as (1, C, 1, ..) beside it.
local function along_channels(n, v, rank)
  local dims = kit.fill(rank - 1, 1)
  dims[1] = v.dims[1]
  return n:reshape(v, dims)
end

local function write(out)
  function out.BatchNorm(n, x, gamma, beta, mean, var)
    if n.attrs.training then mean, var = running(n, 2), running(n, 3) end
    local y = n:node("BatchNormalization", { x, gamma, beta, mean, var },
      { epsilon = n.attrs.eps + 0.0 })
    if n.attrs.relu then y = n:node("Relu", { y }) end
    return y
  end
  function out.LRN(n, x)
    local dims = n:dims(1)
    -- ONNX Runtime takes images alone: what has other dimensions is one of a row.
    local function plane(v, to) return #dims == 4 and v or n:reshape(v, to) end
    local rest = #dims == 4 or kit.product(n:static(table.move(dims, 3, #dims, 1, {}),
      "an image's size"))
    local y = n:node("LRN", { plane(x, { dims[1], dims[2], rest, 1 }) }, { size = n.attrs.size,
      alpha = n.attrs.alpha + 0.0, beta = n.attrs.beta + 0.0, bias = n.attrs.bias + 0.0 })
    return plane(y, dims)
  end
  function out.InstanceNorm(n, x, gamma, beta)
    local c = n:dims(1)[2]
    return n:node("InstanceNormalization", { x, filled(n, gamma, c, 1), filled(n, beta, c, 0) },
      { epsilon = n.attrs.eps + 0.0 })
  end
  function out.GroupNorm(n, x, gamma, beta)
    local dims, groups = n:dims(1), n.attrs.groups
    local c, eps = dims[2], n.attrs.eps + 0.0
    if n:has(21) then
      return n:node("GroupNormalization", { x, filled(n, gamma, c, 1), filled(n, beta, c, 0) },
        { epsilon = eps, num_groups = groups })
    end
    -- Groups are channels of one long row, with weights of 1 and 0; the op's own, one for each of
    -- its channels, come behind.
    local size = kit.product(n:static(table.move(dims, 2, #dims, 1, {}), "a plane's size"))
    local one = n:reshape(x, { dims[1], groups, size // groups })
    local ones = kit.full({ groups }, 1, n:dtype(1))
    local y = n:node("InstanceNormalization", { one, n:const(ones),
      n:const(kit.full({ groups }, 0, n:dtype(1))) }, { epsilon = eps })

    y = n:reshape(y, dims)
    if gamma then y = n:node("Mul", { y, along_channels(n, gamma, #dims) }) end
    return beta and n:node("Add", { y, along_channels(n, beta, #dims) }) or y
  end
  --- The weights of what covers the dimensions from `axis` on.
  local function ones(n, axis)
    local dims = n:dims(1)
    return n:const(kit.full(n:static(table.move(dims, axis + 1, #dims, 1, {}),
      "what is normalised"), 1, n:dtype(1)))
  end
  function out.LayerNorm(n, x, gamma, beta)
    local axis, eps = n:axis(n.attrs.axis), n.attrs.eps + 0.0
    if n:has(17) then
      return n:node("LayerNormalization", { x, gamma or ones(n, axis), beta },
        { axis = axis, epsilon = eps })
    end

    -- As its formula, in ops that are older than the norm.
    local axes = n:axes(kit.count(#n:dims(1) - axis))
    for i in ipairs(axes) do axes[i] = axis + i - 1 end
    local d = n:node("Sub", { x, n:reduce("ReduceMean", x, axes, true) })
    local var = n:reduce("ReduceMean", n:node("Mul", { d, d }), axes, true)
    local y = n:node("Div", { d, n:node("Sqrt", { n:node("Add", { var, n:number(eps) }) }) })
    if gamma then y = n:node("Mul", { y, gamma }) end
    return beta and n:node("Add", { y, beta }) or y
  end
  function out.RmsNorm(n, x, gamma)
    local axis, eps = n:axis(n.attrs.axis), n.attrs.eps + 0.0
    if n:has(23) then
      return n:node("RMSNormalization", { x, gamma or ones(n, axis) },
        { axis = axis, epsilon = eps })
    end

    local axes = {}
    for d = axis, #n:dims(1) - 1 do axes[#axes + 1] = d end
    local square = n:reduce("ReduceMean", n:node("Mul", { x, x }), axes, true)
    local y = n:node("Div", { x, n:node("Sqrt", { n:node("Add", { square, n:number(eps) }) }) })
    return gamma and n:node("Mul", { y, gamma }) or y
  end
end

return function(op, writers)
  write(writers)
  --- Opset 14 on: training gives running statistics as outputs; before, `spatial` and a test mode.
  -- Of a module, a file that was written in training is what it was: a net in either mode.
  function op.BatchNormalization(n, x, scale, bias, mean, var)
    local eps, momentum = n:float("epsilon", 1e-5), n:float("momentum", 0.9)
    local training = n.version >= 14 and n:flag "training_mode" or n.version < 7 and n:has "is_test"
      and not n:flag "is_test"

    -- Statistics in the type that the file keeps them in, which may be wider than x's.
    local wide = kit.is_float(mean) and mean.dtype or x.dtype
    -- Neap's op needs one type, and none of halves.
    local is_plain = #x.shape >= 2 and x.dtype == scale.dtype and x.dtype == mean.dtype
      and x.dtype ~= "f16" and x.dtype ~= "bf16"
    -- A module says itself whether it trains; its statistics are its state, and move in place.
    local module = training and n.state.module
    training = training and (not module or module.training)
    if training and module and is_plain then
      local y, m, v = F.BatchNorm({ x, scale, bias }, { eps = eps, training = true }, 3)
      for _, pair in ipairs { { mean, m }, { var, v } } do
        n.state.net:op("RunningAverage", pair, { pair[1] }, { momentum = 1 - momentum })
      end
      return y, mean, var
    end
    if training then
      local axes = { 1 }
      for d = 3, #x.shape do axes[#axes + 1] = d end
      local flat = kit.cast(x, wide)
      local m = F.Mean(flat, { axes = axes })
      local d = F.Sub { flat, over_channels(m, #x.shape) }
      local v = F.Mean(F.Mul { d, d }, { axes = axes })

      -- New statistics are the batch's mixed with the old ones, which the file reads as its second
      -- and third output.
      local function mix(old, new)
        return F.Add { F.Mul { old, kit.number(momentum, wide) },
          F.Mul { new, kit.number(1 - momentum, wide) } }
      end
      local y = F.Mul { d, over_channels(F.Reciprocal(F.Sqrt(F.Add { v, kit.number(eps, wide) })),
        #x.shape) }
      y = F.Add { F.Mul { kit.cast(y, scale.dtype), over_channels(scale, #x.shape) },
        over_channels(bias, #x.shape) }
      return kit.cast(y, x.dtype), mix(mean, m), mix(var, v)
    end
    -- What training would have moved comes out as it is.
    if is_plain then
      return (F.BatchNorm({ x, scale, bias, mean, var }, { eps = eps })), mean, var
    end

    -- Of several types, or of halves, the formula in the wider one.
    local factor = F.Div { kit.cast(scale, wide), F.Sqrt(F.Add { var, kit.number(eps, wide) }) }
    local y = F.Mul { F.Sub { kit.cast(x, wide), over_channels(mean, #x.shape) },
      over_channels(factor, #x.shape) }
    y = F.Add { y, over_channels(kit.cast(bias, wide), #x.shape) }
    return kit.cast(y, x.dtype), mean, var
  end

  function op.InstanceNormalization(n, x, scale, bias)
    return F.InstanceNorm({ x, scale, bias }, { eps = n:float("epsilon", 1e-5) })
  end

  --- Up to opset 20 the weights are one a group.
  function op.GroupNormalization(n, x, scale, bias)
    local groups = n:needed(n:int "num_groups", "attribute \"num_groups\"")
    n:check_rank(1, x, 2, math.huge)
    n:check_rank(2, scale, 1)
    if groups < 1 then n:fail("%d groups", groups) end
    -- The channels of a group lie in a row.
    if scale.shape[1] == groups and groups ~= x.shape[2] then
      local function spread(v) return F.RepeatInterleave(v, { repeats = x.shape[2] // groups }) end
      scale, bias = spread(scale), spread(bias)
    end
    return F.GroupNorm({ x, scale, bias }, { groups = groups, eps = n:float("epsilon", 1e-5) })
  end

  function op.LayerNormalization(n, x, scale, bias)
    local axes, eps = last_axes(n, x), n:float("epsilon", 1e-5)
    local wide = stash(n, x)

    -- The op of Neap's gives y alone, computes in x's type, and has weights of just those sizes;
    -- else the formula.
    if not n:wants(2) and not n:wants(3) and wide == x and covers(scale, x, axes)
      and covers(bias, x, axes) then
      return F.LayerNorm({ x, scale, bias }, { axis = axes[1], eps = eps })
    end
    local y, mean, rstd = normalised(wide, axes, eps, true)
    y = F.Mul { kit.cast(y, x.dtype), scale }
    return bias and F.Add { y, bias } or y, mean, rstd
  end

  function op.RMSNormalization(n, x, scale)
    local axes, eps = last_axes(n, x), n:float("epsilon", 1e-5)
    local wide = stash(n, x)
    if wide == x and covers(scale, x, axes) then
      return F.RmsNorm({ x, scale }, { axis = axes[1], eps = eps })
    end
    return F.Mul { kit.cast(normalised(wide, axes, eps, false), x.dtype), scale }
  end

  function op.MeanVarianceNormalization(n, x)
    local axes = n:axes(n:ints("axes", { 0, 2, 3 }), #x.shape)
    local d = F.Sub { x, F.Mean(x, { axes = axes, keepdim = true }) }
    local var = F.Mean(F.Mul { d, d }, { axes = axes, keepdim = true })
    return F.Div { d, F.Add { F.Sqrt(var), kit.number(1e-9, x.dtype) } }
  end

  function op.LRN(n, x)
    return F.LRN(x, { size = n:int "size", alpha = n:float("alpha", 1e-4),
      beta = n:float("beta", 0.75), bias = n:float("bias", 1) })
  end

  --- Ratio and mode are attributes up to opset 11, then inputs.
  function op.Dropout(n, x)
    local training = n.version >= 12 and n:given(3) and n:scalar(3)
    training = training == true or training == 1
    -- A module in evaluation drops nothing, whatever its file says.
    training = training and not (n.state.module and not n.state.module.training)
    local rate = n.version >= 12 and (n:number(2) or 0.5) or n:float("ratio", 0.5)

    local function ones()
      return n:make("Constant", { shape = x.shape, dtype = "bool", value = 1 })
    end
    if not training or rate == 0 then return x, n:wants(2) and ones() or nil end
    if not n:wants(2) then return F.Dropout(x, { rate = rate }) end

    -- The mask is asked for, too: it is drawn by itself.
    local noise = n:make("Uniform", { shape = x.shape, dtype = "f32" })
    local keep = F.Ge { noise, kit.number(rate, "f32") }
    local kept = F.Mul { x, kit.number(1 / (1 - rate), x.dtype) }
    return F.Where { keep, kept, kit.number(0, x.dtype) }, keep
  end
end
