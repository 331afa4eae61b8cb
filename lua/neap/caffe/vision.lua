--- Caffe's convolutions, pools, and what else looks at windows of images.
-- @module neap.caffe.vision
local kit = require "neap.caffe.kit"
local F = kit.F

-- ---- windows ------------------------------------------------------------------------------------

--- A size for each of the spatial dimensions: `name_h` and `name_w`, or `name`, one for all or one
-- each.
local function sizes(n, p, name, rank, missing, least)
  local stem = name == "kernel_size" and "kernel" or name
  local h, w = p:size(stem .. "_h", nil, least), p:size(stem .. "_w", nil, least)
  local list = p:ints(name)

  -- Sizes by side exclude a list, and there are but two sides.
  if h or w then
    if #list > 0 then n:fail("both %s and %s_h, %s_w are given", name, stem, stem) end
    if rank ~= 2 then n:fail("%s_h and %s_w are for images", stem, stem) end
    return { h or missing or n:fail("%s_h is missing", stem),
      w or missing or n:fail("%s_w is missing", stem) }
  end

  for _, size in ipairs(list) do
    if size < least or size > 1 << 30 then n:fail("a %s of %d", name, size) end
  end
  if #list == 0 then
    if not missing then n:fail("%s is missing", name) end
    return kit.fill(rank, missing)
  end
  if #list == 1 then return kit.fill(rank, list[1]) end
  if #list ~= rank then n:fail("%d numbers of %s, expected 1 or %d", #list, name, rank) end
  return list
end

local function window(n, p, rank, with_dilation)
  return { kernel = sizes(n, p, "kernel_size", rank, nil, 1),
    stride = sizes(n, p, "stride", rank, 1, 1), pad = sizes(n, p, "pad", rank, 0, 0),
    dilation = with_dilation and sizes(n, p, "dilation", rank, 1, 1) or nil }
end

--- The spatial dimensions of x. Images are (N,C,H,W); Caffe takes sizes of 1 for what is missing.
local function spatial(n, x, p)
  local axis = p and n:axis(p:int("axis", 1), #x.shape) or 2
  if axis ~= 2 then n:fail("axis %d: channels are the second dimension here", axis - 1) end
  local rank = #x.shape - 2
  if rank < 1 or rank > 3 then
    n:fail("a bottom of shape (%s), expected (N,C,H,W)", table.concat(x.shape, ","))
  end
  return rank
end

--- Each bottom gives a top, by the same weights; f(x) gives what comes out of one.
local function each(n, f, ...)
  local xs, out = { ... }, {}
  for k, x in ipairs(xs) do
    out[k] = f(x)
    if #xs > 1 then out[k] = F[out[k].op](out[k].ins, out[k].attrs) end
  end
  if #out ~= #n.row.tops then n:fail("%d bottoms and %d tops", #xs, #n.row.tops) end
  return table.unpack(out)
end

-- ---- convolutions -------------------------------------------------------------------------------

local function leave_engine(p) p:leave "engine force_nd_im2col cudnn_limit" end

--- The convolution of a layer; `groups` where its type says them.
local function conv(op_name, depthwise)
  return function(n, ...)
    n:expect(1)
    local x = (...)
    local p = n:options "convolution_param"
    local rank, channels = spatial(n, x, p), x.shape[2]
    local attrs = window(n, p, rank, true)
    local n_out = p:size "num_output" or n:fail "num_output is missing"
    local groups = p:size("group", 1)
    if depthwise then groups = channels end
    leave_engine(p)
    if channels % groups ~= 0 or n_out % groups ~= 0 then
      n:fail("%d channels in, %d out: no multiple of %d groups", channels, n_out, groups)
    end

    -- A transposed convolution has its weights the other way around.
    local shape = op_name == "Conv" and { n_out, channels // groups } or { channels,
      n_out // groups }
    table.move(attrs.kernel, 1, rank, 3, shape)
    local w = n:param(1, "weight", shape, p:message "weight_filler")

    local has_bias = p:flag("bias_term", true)
    local filler = p:message "bias_filler"
    local b = has_bias and n:param(2, "bias", { n_out }, filler) or false
    if not has_bias then filler:leave "type value min max mean std sparse variance_norm" end
    attrs.kernel, attrs.groups = nil, groups
    return each(n, function(y) return n:gives(op_name, { y, w, b }, attrs) end, ...)
  end
end

-- ---- pools --------------------------------------------------------------------------------------

--- Whether Caffe's rule, which rounds sizes up, gives a window more than rounding down.
local function rounds_up(n, x, w, p)
  local up = p:word("round_mode", { "CEIL", "FLOOR" }, "CEIL") == "CEIL"
  up = p:flag("ceil_mode", up)
  for d, k in ipairs(w.kernel) do
    local size, pad, stride = x.shape[d + 2], w.pad[d], w.stride[d]
    if size + 2 * pad < k then
      n:fail("a window of %d in %d elements%s", k, size, pad > 0 and " with their pads" or "")
    end
    if pad >= k then n:fail("a pad of %d, less than the window's %d is expected", pad, k) end
    -- A last window that begins behind the image would have nothing in it.
    local windows = -(-(size + 2 * pad - k) // stride) + 1
    if up and pad == 0 and (windows - 1) * stride >= size then
      n:fail("the last window of %d, by strides of %d, has no element", k, stride)
    end
  end
  return up
end

local function pooling(n, x)
  n:expect(1, 1)
  local p, rank = n:options "pooling_param", spatial(n, x)
  local kind = p:word("pool", { "MAX", "AVE", "STOCHASTIC" }, "MAX")
  p:leave "engine"
  if kind == "STOCHASTIC" then n:fail "stochastic pooling is lacking" end
  local op_name = kind == "MAX" and "MaxPool" or "AveragePool"

  -- The window is all of x, whatever sizes of one stand there.
  if p:flag "global_pooling" then
    p:leave "kernel_size kernel_h kernel_w ceil_mode"
    local w = { stride = sizes(n, p, "stride", rank, 1, 1), pad = sizes(n, p, "pad", rank, 0, 0) }
    for d = 1, rank do
      if w.stride[d] ~= 1 or w.pad[d] ~= 0 then n:fail "a global pool has pad 0 and stride 1" end
    end
    return n:gives(kind == "MAX" and "GlobalMaxPool" or "GlobalAveragePool", x)
  end

  local attrs = window(n, p, rank)
  attrs.ceil_mode = rounds_up(n, x, attrs, p)

  -- The mask: positions in the plane, as floats like all of Caffe's blobs.
  if #n.row.tops == 2 then
    if kind ~= "MAX" then n:fail "only a maximum has a second top, a mask" end
    local y, at = F.MaxPoolWithIndices(x, attrs)
    return y, kit.cast(at, "f32")
  end
  return n:gives(op_name, x, attrs)
end

-- ---- sizes --------------------------------------------------------------------------------------

--- Interp of DeepLab and PSPNet: linear, corners on corners.
local function interp(n, x)
  n:expect(1, 2)
  local p = n:options "interp_param"
  local begin, finish = p:int("pad_beg", 0), p:int("pad_end", 0)
  if begin > 0 or finish > 0 then n:fail "pad_beg and pad_end crop, and are 0 or less" end
  local other = n.state.env[n.row.bottoms[2]]

  -- The size is that of the other bottom, the one that is said, or what shrinking and zooming
  -- leave.
  local size = {}
  for d = 1, 2 do
    local have = x.shape[d + 2] + begin + finish
    local shrink, zoom = p:size("shrink_factor", 1), p:size("zoom_factor", 1)
    local own = (have - 1) // shrink + 1
    size[d] = other and other.shape[d + 2] or p:size(d == 1 and "height" or "width")
      or own + (own - 1) * (zoom - 1)
    if size[d] < 1 then n:fail("a size of %d", size[d]) end
  end

  if begin < 0 or finish < 0 then
    x = F.Slice(x, { axes = { 3, 4 }, starts = { 1 - begin, 1 - begin },
      ends = { x.shape[3] + finish, x.shape[4] + finish } })
  end
  return F.Resize(x, { sizes = size, mode = "linear", coordinates = "align_corners" })
end

local function upsample(n, x)
  n:expect(1, 1)
  local scale = n:options "upsample_param":size("scale", 2)
  return F.Resize(x, { scales = { scale, scale }, mode = "nearest", coordinates = "asymmetric",
    rounding = "floor" })
end

return function(layer)
  layer.Convolution = conv "Conv"
  layer.ConvolutionDepthwise = conv("Conv", true)
  layer.DepthwiseConvolution = layer.ConvolutionDepthwise
  layer.Deconvolution = conv "ConvTranspose"
  layer.Pooling = pooling
  layer.Interp = interp
  layer.Upsample = upsample

  function layer.ShuffleChannel(n, x)
    n:expect(1, 1)
    return F.ChannelShuffle(x, { groups = n:options "shuffle_channel_param":size("group", 1) })
  end
end
