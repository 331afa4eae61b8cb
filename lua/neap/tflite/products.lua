--- TFLite's operators that are products of activations and weights: convolutions, fully connected
-- layers; and pools, which have windows, too.
-- @module neap.tflite.products
local I = require "neap.tflite.integers"
local T = require "neap.tflite.kit"
local kit = require "neap.onnx.kit"
local F = kit.F

-- ---- windows ------------------------------------------------------------------------------------

local SAME, VALID = 0, 1

--- The window that the operator's options say, for x (N,C,..) and a kernel.
local function window(n, x, kernel)
  local names = #x.shape == 5 and { "d", "h", "w" } or { "h", "w" }
  local w = { kernel = kernel, stride = {}, dilation = {} }
  for i, d in ipairs(names) do
    w.stride[i] = n:int("stride_" .. d, 0)
    w.dilation[i] = n:int("dilation_" .. d .. "_factor", 1)
    if w.stride[i] < 1 or w.dilation[i] < 1 or kernel[i] < 1 then
      n:fail("a window of %d with stride %d and dilation %d", kernel[i], w.stride[i],
        w.dilation[i])
    end
  end

  local padding = n:int("padding", SAME)
  if padding ~= SAME and padding ~= VALID then n:fail("padding %d is none", padding) end
  w.pad = padding == VALID and kit.fill(2 * #names, 0)
    or kit.same_pads(table.move(x.shape, 3, #x.shape, 1, {}), w, true)
  return w
end

local function spatial(shape) return table.move(shape, 3, #shape, 1, {}) end

--- Raises unless x has the rank that images have.
local function check_rank(n, x, rank)
  if #x.shape ~= rank then n:fail("x has %d dimensions, expected %d", #x.shape, rank) end
end

-- ---- convolutions -------------------------------------------------------------------------------

--- The weights as numbers, where the file has them in few bits for a net that computes in floats.
local function as_numbers(n, i, w, axis)
  local t = T.quantised(n.row.reads[i])
  if not t then return kit.is_float(w) and kit.cast(w, "f32") or w end

  -- The layout has moved the axis that the scales lie along.
  local own = {}
  for key, v in pairs(t) do own[key] = v end
  own.axis = axis
  return T.dequantised(w, own)
end

--- f(x, w, b) of numbers or of integers, whichever the file has.
-- @param attrs of a convolution; nil of a matrix product, whose kernels round once
local function product_with(n, f, attrs, x, w, b)
  local reads, y = n.row.reads, n.row.makes[1]
  if not I.is_integer(n, 2) then
    -- Numbers: weights in few bits.
    x, w, b = as_numbers(n, 1, x, 1), as_numbers(n, 2, w, 1), b and as_numbers(n, 3, b, 1)
    local real = T.activated(n, f(x, w, b))
    return T.quantised(y) and T.quantise(n, real, y) or real
  end

  -- Integers: exact sums, brought to the result's scale.
  local sums, short = I.sums(n, f, x, w, b, attrs)
  -- Of 16 bits sums have 64, unless a bias of 32 says that they have as many.
  local wide = reads[1].dtype == "i16" and not (b and reads[3].dtype == "i32")
  return I.requantised(n, sums, I.product_scales(reads[1], reads[2], y), 2, y,
    { once = attrs == nil, wide = wide, short = short })
end

local function bias(n) return n.inputs[3] and n:x(3) or nil end

--- @param order the dimensions of the weights as Neap has them, (O, I, spatial..)
local function convolution(order)
  return function(n)
    local x = T.first(n, 1)
    check_rank(n, x, #order)
    local w = T.once(n, n.inputs[2], "conv", function(w)
      check_rank(n, w, #order)
      return kit.permute(w, order)
    end)
    -- TFLite has no number of groups: it follows from the channels that the weights see.
    local attrs = window(n, x, spatial(w.shape))
    attrs.groups = w.shape[2] > 0 and x.shape[2] // w.shape[2] or 1
    if attrs.groups < 1 then
      n:fail("x has %d channels, the weights are for %d", x.shape[2], w.shape[2])
    end
    return T.as_first(n, product_with(n, function(a, c, d)
      return F.Conv({ a, c, d }, attrs)
    end, attrs, x, w, bias(n)))
  end
end

local function depthwise(n)
  local x = T.first(n, 1)
  check_rank(n, x, 4)
  -- Weights (1, H, W, C times multiplier) become (C times multiplier, 1, H, W).
  local w = T.once(n, n.inputs[2], "depthwise", function(w)
    check_rank(n, w, 4)
    return kit.permute(w, { 4, 1, 2, 3 })
  end)
  local attrs = window(n, x, spatial(w.shape))
  attrs.groups = x.shape[2]
  return T.as_first(n, product_with(n, function(a, c, d)
    return F.Conv({ a, c, d }, attrs)
  end, attrs, x, w, bias(n)))
end

--- Where windows of x are added up to an image of the size that input 1 says.
local function transposed_pads(n, x, w, size)
  local pads, more = {}, {}
  for i, d in ipairs { "h", "w" } do
    w.stride[i] = n:int("stride_" .. d, 0)
    if w.stride[i] < 1 then n:fail("a stride of %d", w.stride[i]) end
    local whole = (x.shape[2 + i] - 1) * w.stride[i] + w.kernel[i]

    -- Where the image is smaller than what windows reach it is cut, the odd one behind; where it is
    -- larger, by less than a stride, no window reaches what is behind.
    local total = whole - size[1 + i]
    pads[i], pads[2 + i] = math.max(total, 0) // 2, math.max(total, 0) - math.max(total, 0) // 2
    more[i] = math.max(-total, 0)
    if more[i] >= w.stride[i] then n:fail("an image of %d, at most %d are reached", size[1 + i],
      whole + w.stride[i] - 1) end
  end
  return pads, more
end

local function transpose_conv(n)
  local x, size = T.first(n, 3), T.list(n, 1)
  check_rank(n, x, 4)
  if #size ~= 4 then n:fail("a shape of %d dimensions", #size) end
  -- Weights (O, H, W, I) become (I, O, H, W).
  local w = T.once(n, n.inputs[2], "transposed", function(w)
    check_rank(n, w, 4)
    return kit.permute(w, { 4, 1, 2, 3 })
  end)
  local attrs = { kernel = spatial(w.shape), stride = {} }
  attrs.pad, attrs.output_padding = transposed_pads(n, x, attrs, size)
  local b = n.inputs[4] and n:x(4) or nil
  local function f(a, c, d) return F.ConvTranspose({ a, c, d }, attrs) end
  local reads, y = n.row.reads, n.row.makes[1]
  if not (T.quantised(reads[3]) and T.quantised(reads[2]) and T.quantised(y)) then
    return T.as_first(n, T.activated(n, f(x, as_numbers(n, 2, w, 2), b)))
  end

  -- Sums of integers in f64, which has room for any.
  local function wide(v, t, axis)
    v = kit.cast(v, "f64")
    return T.all_zero(t.zero) and v or F.Sub { v, T.beside(v, t.zero, axis, "f64") }
  end

  local sums = f(wide(x, reads[3], 1), wide(w, reads[2], 2), b and kit.cast(b, "f64"))
  return T.as_first(n, I.requantised(n, sums, I.product_scales(reads[3], reads[2], y), 2, y,
    { wide = reads[3].dtype == "i16" }))
end

-- ---- products of matrices -----------------------------------------------------------------------

local function batch_matmul(n)
  local reads, y = n.row.reads, n.row.makes[1]
  local attrs = { trans_a = n:flag "adj_x", trans_b = n:flag "adj_y" }
  local a, b = T.plain(n, 1), T.plain(n, 2)
  if not I.is_integer(n, 2) then
    return F.MatMul({ as_numbers(n, 1, a, 1), as_numbers(n, 2, b, reads[2].axis) }, attrs)
  end

  local function wide(v, t)
    v = kit.cast(v, "f64")
    return t.zero[1] == 0 and v or F.Sub { v, kit.number(t.zero[1], "f64") }
  end
  local sums = F.MatMul({ wide(a, reads[1]), wide(b, reads[2]) }, attrs)
  -- The product of two scales is a float here.
  local scale = T.f32(reads[1].scale[1] * reads[2].scale[1]) / y.scale[1]
  return I.requantised(n, sums, { scale }, nil, y, { wide = reads[1].dtype == "i16" })
end

-- ---- fully connected ----------------------------------------------------------------------------

local function fully_connected(n)
  local w = n:x(2)
  check_rank(n, w, 2)
  if n:int("weights_format", 0) ~= 0 then n:fail "weights in shuffled order are not read" end
  local x, shape = T.plain(n, 1), T.shape(n, 1)
  local out, features = w.shape[1], w.shape[2]
  if features < 1 or kit.product(shape) % features ~= 0 then
    n:fail("x (%s) has no rows of %d features", table.concat(shape, ","), features)
  end

  x = #shape == 2 and shape[2] == features and x or kit.reshape(x, { -1, features })
  local function product(a, b, c) return F.FC { a, b, c } end
  -- A matrix product, so that its kernels round once.
  local y = product_with(n, product, nil, x, w, bias(n))
  if not (n:flag "keep_num_dims" and #shape ~= 2) then return y end
  -- The rows' dimensions come back, with the units last.
  local kept = kit.copy(shape)
  kept[#kept] = out
  return kit.reshape(y, kept)
end

-- ---- pools --------------------------------------------------------------------------------------

local function pool_window(n, x)
  check_rank(n, x, 4)
  local w = window(n, x, { n:int("filter_height", 0), n:int("filter_width", 0) })
  w.dilation = nil
  return w
end

--- How many elements of x each window has, (1,1,OH,OW).
local function counts(n, x, w)
  n:check_room({ x.shape[3], x.shape[4] }, true)
  local ones = kit.full({ 1, 1, x.shape[3], x.shape[4] }, 1, "f64")
  local attrs = { kernel = w.kernel, stride = w.stride, pad = w.pad, count_include_pad = true }
  local area = w.kernel[1] * w.kernel[2]
  return F.Round(F.Mul { F.AveragePool(ones, attrs), kit.number(area, "f64") }), area
end

--- The mean of integers in integers: half a count is added away from 0, and the fraction cut.
local function integer_mean(sums, count)
  local half = F.Floor(F.Mul { count, kit.number(0.5, "f64") })
  return F.Trunc(F.Div { F.Add { sums, F.Mul { F.Sign(sums), half } }, count })
end

local function average_pool(n)
  local x, t = T.first(n, 1), T.quantised(n.row.reads[1])
  local w = pool_window(n, x)
  if not t then
    w.count_include_pad = false
    return T.as_first(n, T.activated(n, F.AveragePool(x, w)))
  end

  -- Sums of windows: means over whole windows, pads as zeros, times the area; the count of a window
  -- at the edge is less.
  local count, area = counts(n, x, w)
  local sums = F.Mul { F.AveragePool(kit.cast(x, "f64"), w), kit.number(area, "f64") }
  local y, least, most = integer_mean(F.Round(sums), count), T.bounds(n, n.row.makes[1])
  return T.as_first(n, kit.cast(F.Clamp(y, { min = least, max = most }), t.dtype))
end

--- The root of the mean square.
local l2_pool = T.real(function(n, x)
  local w = pool_window(n, x)
  w.count_include_pad = false
  return T.activated(n, F.Sqrt(F.AveragePool(F.Square(x), w)))
end, { first = true })

--- The largest of integers is the largest of what they stand for.
local function max_pool(n)
  local x, t = T.first(n, 1), T.quantised(n.row.makes[1])
  local y = F.MaxPool(x, pool_window(n, x))
  if not t then return T.as_first(n, T.activated(n, y)) end
  local least, most = T.bounds(n, t)
  return T.as_first(n, F.Clamp(y, { min = least, max = most }))
end

return function(op, needs)
  needs[2] = "CONV_2D CONV_3D DEPTHWISE_CONV_2D FULLY_CONNECTED BATCH_MATMUL"
  needs[3] = "TRANSPOSE_CONV"
  -- Weights (O,H,W,I) and (D,H,W,I,O).
  op.CONV_2D, op.CONV_3D = convolution { 1, 4, 2, 3 }, convolution { 5, 4, 1, 2, 3 }
  op.DEPTHWISE_CONV_2D = depthwise
  op.TRANSPOSE_CONV, op.FULLY_CONNECTED, op.BATCH_MATMUL = transpose_conv, fully_connected,
    batch_matmul
  op.AVERAGE_POOL_2D, op.MAX_POOL_2D, op.L2_POOL_2D = average_pool, max_pool, l2_pool
end
