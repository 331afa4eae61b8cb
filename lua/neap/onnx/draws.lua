--- ONNX's random numbers, which are Neap's own: another program draws others.
-- @module neap.onnx.draws
local kit = require "neap.onnx.kit"

local function dtype_of(n, missing)
  local row = kit.types[n:int("dtype", kit.elem_of[missing])]
  if not row or not row.dtype then n:fail("elements of type %d", n:int "dtype") end
  return row.dtype
end

--- An op that makes a tensor: of the shape in an attribute, or of that of its input.
local function drawn(name, attrs_of)
  local function make(n, shape, dtype)
    n:check_room(shape)
    local attrs = attrs_of(n)
    attrs.shape, attrs.dtype = shape, dtype
    return n:make(name, attrs)
  end
  return function(n)
    return make(n, n:ints "shape" or n:fail "attribute \"shape\" is missing", dtype_of(n, "f32"))
  end, function(n, x)
    return make(n, x.shape, dtype_of(n, kit.is_float(x) and x.dtype or "f32"))
  end
end

-- ---- the way back -------------------------------------------------------------------------------

local function writes(name, low, high, high_name)
  return function(n)
    local a = n.attrs
    return n:node(name, {}, { shape = n:static(n:result().dims, "how many there are"),
      dtype = kit.elem_of[n:result().dtype], [low] = a[low] + 0.0,
      [high_name or high] = a[high] + 0.0 })
  end
end

local function write(out)
  out.Uniform = writes("RandomUniform", "low", "high")
  out.Gaussian = writes("RandomNormal", "mean", "std", "scale")
  function out.Bernoulli(n, p)
    n:needs(15)
    return n:node("Bernoulli", { p }, { dtype = kit.elem_of[n:result().dtype] })
  end
end

return function(op, writers)
  write(writers)
  op.RandomUniform, op.RandomUniformLike = drawn("Uniform", function(n)
    return { low = n:float("low", 0), high = n:float("high", 1) }
  end)
  op.RandomNormal, op.RandomNormalLike = drawn("Gaussian", function(n)
    return { mean = n:float("mean", 0), std = n:float("scale", 1) }
  end)
  function op.Bernoulli(n, p)
    local noise = n:make("Uniform", { shape = p.shape, dtype = p.dtype })
    return kit.cast(kit.F.Lt { noise, p }, dtype_of(n, p.dtype))
  end
end
