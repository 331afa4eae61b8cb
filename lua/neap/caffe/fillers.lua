--- Caffe's fillers: how parameters start, as Neap's initialisers, or as numbers where no
-- initialiser makes them.
-- @module neap.caffe.fillers
local core = require "neap.core"
local lists = require "neap.inner.lists"

local fillers = {}

--- What a row of the first dimension, and of the second, has: Caffe's fan-in and fan-out.
local function fans(shape)
  local n = lists.product(shape)
  local d1, d2 = shape[1] or 1, shape[2] or 1
  return n / math.max(d1, 1), #shape > 1 and n / math.max(d2, 1) or n
end

--- The n by which the variance is normed.
local function norm_of(m, shape)
  local fan_in, fan_out = fans(shape)
  local by = m:word("variance_norm", { "FAN_IN", "FAN_OUT", "AVERAGE" }, "FAN_IN")
  return math.max(1, by == "FAN_IN" and fan_in or by == "FAN_OUT" and fan_out
    or (fan_in + fan_out) / 2)
end

--- Linear interpolation by a transposed convolution, the same for all channels.
local function bilinear(m, shape)
  local size = shape[4]
  if #shape ~= 4 or shape[3] ~= size then
    m:fail("a bilinear filler is for square kernels of 4 dimensions")
  end

  -- A line of weights that falls from the middle, and its product with itself.
  local factor = (size + 1) // 2
  local center = (2 * factor - 1 - factor % 2) / (2 * factor)
  local line = {}
  for i = 1, size do line[i] = 1 - math.abs((i - 1) / factor - center) end
  return function()
    local v = core.tensor(line, "f32")
    return (v:reshape(size, 1) * v:reshape(1, size)):expand(table.unpack(shape)):contiguous()
  end
end

--- Rows of positive numbers that add up to 1.
local function unit_ball(shape)
  return function()
    local x = require("neap").rand(table.unpack(shape)):reshape(shape[1], -1)
    return (x / x:sum { axes = { 2 }, keepdim = true }):reshape(table.unpack(shape))
  end
end

--- Gaussian numbers of which each output has `sparse` in the mean, zeros else.
local function sparse(shape, n, mean, std)
  return function()
    local neap = require "neap"
    local kept = neap.rand(table.unpack(shape)):lt(math.min(1, n / shape[1])):to "f32"
    return (neap.randn(table.unpack(shape)) * std + mean) * kept
  end
end

local kinds = {
  constant = function(m) return { op = "Constant", value = m:number("value", 0) } end,
  uniform = function(m)
    return { op = "Uniform", low = m:number("min", 0), high = m:number("max", 1) }
  end,
  gaussian = function(m, shape)
    local mean, std, n = m:number("mean", 0), m:number("std", 1), m:int("sparse", -1)
    if n >= 0 then return nil, sparse(shape, n, mean, std) end
    return { op = "Gaussian", mean = mean, std = std }
  end,
  xavier = function(m, shape)
    -- A variance of 1 / n.
    local bound = math.sqrt(3 / norm_of(m, shape))
    return { op = "Uniform", low = -bound, high = bound }
  end,
  msra = function(m, shape)
    return { op = "Gaussian", mean = 0, std = math.sqrt(2 / norm_of(m, shape)) }
  end,
  bilinear = function(m, shape) return nil, bilinear(m, shape) end,
  positive_unitball = function(_, shape) return nil, unit_ball(shape) end,
}

--- {init = an initialiser, numbers = f() -> tensor where no initialiser makes them}.
-- @param m Message of the filler, or {value = number}
function fillers.read(m, shape)
  if getmetatable(m) == nil then return { init = { op = "Constant", value = m.value } } end
  local kind = m:text("type", "constant")
  if not kinds[kind] then m:fail("there is no filler \"%s\"", kind) end
  local init, numbers = kinds[kind](m, shape)
  -- Caffe's messages have fields for all kinds: those of others say nothing.
  m:leave "value min max mean std sparse variance_norm"
  return { init = init or { op = "Constant", value = 0 }, numbers = numbers }
end

return fillers
