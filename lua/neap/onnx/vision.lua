--- ONNX's convolutions, pools, and ops on images.
-- @module neap.onnx.vision
local core = require "neap.core"
local kit = require "neap.onnx.kit"
local resample = require "neap.ops.resample"
local F = kit.F

-- ---- windows ------------------------------------------------------------------------------------

--- The list, as it must be: so many numbers, each of them at least `least`.
local function checked(n, name, list, count, least)
  if #list ~= count then n:fail("%s: %d numbers, expected %d", name, #list, count) end
  for _, i in ipairs(list) do
    if least and i < least then n:fail("%s: %d, at least %d is expected", name, i, least) end
  end
  return list
end

--- The same of an attribute, a copy; `missing` for each where it is left out.
local function numbers(n, name, count, missing, least)
  return checked(n, name, kit.copy(n:ints(name, kit.fill(count, missing))), count, least)
end

local function auto_pad(n)
  return n:word("auto_pad", "NOTSET SAME_UPPER SAME_LOWER VALID", "NOTSET")
end

--- The window of a convolution or pool, as Neap's ops take it.
local function window(n, x, kernel)
  local rank = #x.shape - 2
  local w = { kernel = n:ints "kernel_shape" or kernel }
  if not w.kernel then n:fail "attribute \"kernel_shape\" is missing" end
  checked(n, "kernel_shape", w.kernel, rank, 1)
  w.stride = numbers(n, "strides", rank, 1, 1)
  w.dilation = numbers(n, "dilations", rank, 1, 1)

  -- auto_pad excludes `pads`: SAME makes ceil(size / stride) windows, VALID takes those that fit.
  local auto = auto_pad(n)
  if auto == "SAME_UPPER" or auto == "SAME_LOWER" then
    w.pad = kit.same_pads(table.move(x.shape, 3, #x.shape, 1, {}), w, auto == "SAME_UPPER")
  elseif auto == "VALID" then
    w.pad = kit.fill(2 * rank, 0)
  else
    w.pad = numbers(n, "pads", 2 * rank, 0)
  end
  return w
end

local function spatial(shape) return table.move(shape, 3, #shape, 1, {}) end

--- The attributes of Neap's convolutions, as the node has them for x and w.
function kit.conv_attrs(n, x, w)
  local attrs = window(n, x, spatial(w.shape))
  attrs.groups = n:int("group", 1)
  return attrs
end

local function conv(n, x, w, b) return F.Conv({ x, w, b }, kit.conv_attrs(n, x, w)) end

--- Where pads are found from the output's shape, SAME_UPPER alone puts the odd one behind.
local function conv_transpose(n, x, w, b)
  local rank, auto = #x.shape - 2, auto_pad(n)
  local kernel = checked(n, "kernel_shape", n:ints("kernel_shape", spatial(w.shape)), rank, 1)
  local stride = numbers(n, "strides", rank, 1, 1)
  local dilation = numbers(n, "dilations", rank, 1, 1)
  local more = numbers(n, "output_padding", rank, 0, 0)
  local pads, shape = numbers(n, "pads", 2 * rank, 0), n:ints "output_shape"

  if shape and #shape == rank + 2 then shape = spatial(shape) end
  if shape then checked(n, "output_shape", shape, rank, 0) end
  local same = auto == "SAME_UPPER" or auto == "SAME_LOWER"
  if auto == "VALID" then pads = kit.fill(2 * rank, 0) end
  -- What the pads take away; below 0 they add zeros, which output_padding says.
  for d = 1, rank do
    local reach = (kernel[d] - 1) * dilation[d] + 1
    local whole = stride[d] * (x.shape[d + 2] - 1) + more[d] + reach
    if shape or same then
      local total = whole - (shape and shape[d] or x.shape[d + 2] * stride[d])
      local small = math.max(total, 0) // 2
      if total < 0 then more[d] = more[d] - total end
      total = math.max(total, 0)
      pads[d] = auto == "SAME_UPPER" and small or total - small
      pads[d + rank] = total - pads[d]
    end
  end
  -- Zeros behind the last window, beyond what the op takes, are put there afterwards.
  local rest, some = kit.fill(2 * rank, 0), false
  for d = 1, rank do
    if more[d] >= math.max(stride[d], dilation[d]) then
      rest[rank + d], more[d], some = more[d], 0, true
    end
  end

  -- The bias comes behind zeros that are put there, or in the op.
  local y = F.ConvTranspose({ x, w, not some and b or false }, { stride = stride, pad = pads,
    dilation = dilation, groups = n:int("group", 1), output_padding = more })
  if not some then return y end
  local axes = {}
  for d = 1, rank do axes[d] = d + 2 end
  y = F.Pad(y, { pads = rest, axes = axes })
  if not b then return y end
  local line = kit.fill(rank + 1, 1)
  line[1] = b.shape[1]
  return F.Add { y, kit.reshape(b, line) }
end

-- ---- pools --------------------------------------------------------------------------------------

--- Positions in the whole tensor, of planes that are counted row by row, as those where planes are
-- counted column by column.
local function by_columns(indices, x)
  local h, w = x.shape[3], x.shape[4]
  local width = kit.number(w, "i64")
  local within = F.Mod { indices, kit.number(h * w, "i64") }
  local turned = F.Add { F.Mul { F.Mod { within, width }, kit.number(h, "i64") },
    F.FloorDiv { within, width } }
  return F.Add { F.Sub { indices, within }, turned }
end

local function max_pool(n, x)
  local attrs = window(n, x)
  attrs.ceil_mode = n:flag "ceil_mode"
  if not n:wants(2) then return (F.MaxPool(x, attrs)) end
  local y, indices = F.MaxPoolWithIndices(x, attrs)
  indices = kit.cast(indices, "i64")
  return y, n:flag "storage_order" and #x.shape == 4 and by_columns(indices, x) or indices
end

--- Puts values among zeros; where a larger shape is asked for, the rest of it is zeros.
local function max_unpool(n, x, indices)
  local attrs, rank = window(n, x), #x.shape - 2

  -- The size that windows side by side make. Indices count in that plane, so it comes first and the
  -- larger shape is framed around it.
  local inferred = {}
  for d = 1, rank do
    inferred[d] = (x.shape[d + 2] - 1) * attrs.stride[d] - attrs.pad[d] - attrs.pad[d + rank]
      + attrs.kernel[d]
  end
  local y = F.MaxUnpool({ x, indices }, { kernel = attrs.kernel, stride = attrs.stride,
    pad = attrs.pad, output_shape = inferred })

  local want = n:given(3) and checked(n, "the output's shape", n:integers(3), rank + 2)
  if not want or table.concat(want, ",", 3) == table.concat(inferred, ",") then return y end

  local pads, axes = kit.fill(2 * rank, 0), {}
  for d = 1, rank do
    axes[d], pads[rank + d] = d + 2, want[d + 2] - inferred[d]
  end
  return F.Pad(y, { pads = pads, axes = axes })
end

-- ---- sizes --------------------------------------------------------------------------------------

local modes = { nearest = "nearest", linear = "linear", bilinear = "linear", cubic = "cubic",
  bicubic = "cubic" }

local roundings = kit.words "round_prefer_floor round_prefer_ceil floor ceil"

--- Where positions lie: as Neap's Resize has it, but for the corners of n times a factor, which the
-- standard aligns where Neap, as PyTorch, has those of a whole number of pixels; and within a part
-- of the image, which a third input says.
local coordinates = {
  align_corners = function(i, n, m, s)
    local length = m * s == n and m or n / s
    return length ~= 1 and i * (n - 1) / (length - 1) or 0
  end,
  tf_crop_and_resize = "tf_crop_and_resize",
}
for name, at in pairs(resample.coordinate) do coordinates[name] = coordinates[name] or at end

local function f32(value) return (string.unpack("<f", string.pack("<f", value))) end

--- The size that `size` becomes: factors are f32, and so is the product, ten times 0.7 is 7.
local function scaled(size, factor) return math.floor(f32(size * f32(factor))) end

--- Resizes dimension d to m positions, by the factor `scale`. Factors are f32 in the file, and so
-- are positions: one that comes out as a whole number is that, whatever more digits would say.
local function along(x, o, d, m, scale, at)
  if x.shape[d] == m and scale == 1 then return x end
  return resample.resized(o, x, d, m, 1 / scale, function(...)
    return f32(at(...))
  end)
end

--- The part of a dimension from `first` to `last`, both as shares of it; what lies beyond is
-- `outside`.
local function cropped(n, x, o, d, m, first, last, outside)
  local function at(i, size)
    if m > 1 then return first * (size - 1) + i * (last - first) * (size - 1) / (m - 1) end
    return 0.5 * (first + last) * (size - 1)
  end
  local size, beyond, some = x.shape[d], {}, false
  local y = resample.resized(o, x, d, m, size / m, at)

  -- Positions that lie outside of the image are not read but filled.
  for i = 0, m - 1 do
    local p = at(i, size)
    beyond[i + 1] = p < 0 or p > size - 1
    some = some or beyond[i + 1]
  end
  if not some then return y end
  local shape = kit.fill(#x.shape, 1)
  shape[d] = m
  local mask = kit.reshape(core.tensor(beyond, "bool"), shape)
  return F.Where { mask, kit.number(outside, x.dtype), y }
end

local policies = kit.words "stretch not_larger not_smaller"

--- The sizes and factors of the dimensions `axes`.
local function targets(n, x, axes)
  local scales = n:numbers(n.version < 11 and 2 or 3)
  local sizes = n.version >= 11 and n:integers(4)
  if scales and #scales > 0 then
    checked(n, "scales", scales, #axes)
    return kit.map(axes, function(d, i) return scaled(x.shape[d], scales[i]) end), scales
  end
  if not sizes then n:fail "neither scales nor sizes" end
  checked(n, "sizes", sizes, #axes)
  local policy, factor = n:word("keep_aspect_ratio_policy", policies, "stretch"), nil

  -- One factor for all: the least of those that the sizes ask for, or the largest.
  scales = kit.map(axes, function(d, i) return sizes[i] / x.shape[d] end)
  if policy == "stretch" then return sizes, scales end
  for _, s in ipairs(scales) do
    factor = math[policy == "not_larger" and "min" or "max"](factor or s, s)
  end
  return kit.map(axes, function(d) return math.floor(x.shape[d] * factor + 0.5) end),
    kit.fill(#axes, factor)
end

local function resize(n, x)
  local rank = #x.shape
  local axes = n:ints "axes" and n:axes(n:ints "axes", rank) or kit.count(rank)
  local mode = n:word("mode", modes, "nearest")
  -- Before opset 11 positions are those of a corner, and the nearest is the one below.
  local old = n.version < 11
  local at = n:word("coordinate_transformation_mode", coordinates,
    old and "asymmetric" or "half_pixel")
  local o = { mode = mode, cubic_a = n:float("cubic_coeff_a", -0.75),
    rounding = n:word("nearest_mode", roundings, old and "floor" or "round_prefer_floor"),
    exclude_outside = n:flag "exclude_outside", antialias = n:flag "antialias" }

  local sizes, scales = targets(n, x, axes)
  n:check_room(kit.map(sizes, function(size) return size + 0.0 end))
  local dtype = x.dtype
  if mode ~= "nearest" and dtype ~= "f32" and dtype ~= "f64" then x = kit.cast(x, "f32") end
  local roi = at == "tf_crop_and_resize"
    and checked(n, "the region", n:needed(n:numbers(2), "input 2"), 2 * #axes)
  -- Dimension by dimension: what lies between pixels is a product of both ways.
  for i, d in ipairs(axes) do
    if roi then
      x = cropped(n, x, o, d, sizes[i], roi[i], roi[i + #axes], n:float("extrapolation_value", 0))
    else
      x = along(x, o, d, sizes[i], scales[i], at)
    end
  end
  return kit.is_float(kit.number(0, dtype)) and kit.cast(x, dtype) or kit.cast(F.Trunc(x), dtype)
end

local function upsample(n, x)
  local scales = n:floats "scales" or n:given(2) and n:numbers(2)
  if not scales then -- the first version names two
    scales = { 1, 1, n:float("height_scale", 1), n:float("width_scale", 1) }
  end
  checked(n, "scales", scales, #x.shape)
  local o = { mode = n:word("mode", modes, "nearest"), rounding = "floor", cubic_a = -0.75 }
  for d, scale in ipairs(scales) do
    x = along(x, o, d, scaled(x.shape[d], scale), scale, coordinates.asymmetric)
  end
  return x
end

-- ---- reading between pixels ---------------------------------------------------------------------

--- The values of volumes x (N, C, sizes ..) at places (N, P, rank), the last coordinate first, by
-- the sum over the corners around each; 0 beyond the border.
local function at_corners(x, places)
  local rank, n, p = #x.shape - 2, x.shape[1], places.shape[2]
  local flat = kit.reshape(x, { n, x.shape[2], kit.product(x.shape, 3) })
  local low, share = {}, {}

  -- Each coordinate as the pixel below and the share of the next one.
  for d = 1, rank do
    local c = kit.reshape(kit.part(places, 3, d, 1), { n, 1, p })
    low[d] = F.Floor(c)
    share[d] = F.Sub { c, low[d] }
  end
  local one, y = kit.number(1, x.dtype), nil
  for corner = 0, (1 << rank) - 1 do
    -- Corner by corner: for each dimension the pixel below or above, with its share. One beyond the
    -- border is read at the border, and weighs nothing.
    local at, weight, inside
    for d = 1, rank do
      local size, up = x.shape[d + 2], corner >> (d - 1) & 1
      local c = up == 1 and F.Add { low[d], one } or low[d]
      local w = up == 1 and share[d] or F.Sub { one, share[d] }
      local within = F.LogicalAnd { F.Ge { c, kit.number(0, x.dtype) },
        F.Le { c, kit.number(size - 1, x.dtype) } }
      c = F.Minimum { F.Maximum { c, kit.number(0, x.dtype) }, kit.number(size - 1, x.dtype) }
      at = at and F.Add { F.Mul { at, kit.number(size, "i64") }, kit.cast(c, "i64") }
        or kit.cast(c, "i64")
      weight = weight and F.Mul { weight, w } or w
      inside = inside and F.LogicalAnd { inside, within } or within
    end
    local values = F.GatherElements({ flat, kit.expand(at, { n, x.shape[2], p }) }, { axis = 3 })

    local term = F.Mul { values, F.Where { inside, weight, kit.number(0, x.dtype) } }
    y = y and F.Add { y, term } or term
  end
  return y
end

local function reflected(c, low, high)
  if high <= low then return F.Mul { c, kit.number(0, c.dtype) } end
  -- There and back between the borders: how often it has turned, and how far it went since.
  local span = kit.number(high - low, c.dtype)
  local far = F.Abs(F.Sub { c, kit.number(low, c.dtype) })
  local turns = F.Floor(F.Div { far, span })
  local rest = F.Sub { far, F.Mul { turns, span } }
  local even = F.Eq { F.Mod { turns, kit.number(2, c.dtype) }, kit.number(0, c.dtype) }
  return F.Add { F.Where { even, rest, F.Sub { span, rest } }, kit.number(low, c.dtype) }
end

--- GridSample of volumes.
local function sample_volume(x, grid, mode, padding, corners)
  local n, p = x.shape[1], kit.product(grid.shape, 2, 4)
  local places, parts = kit.reshape(grid, { n, p, 3 }), {}

  for d = 1, 3 do -- the grid's last number is of the first dimension
    local size = x.shape[d + 2]
    local g = F.Add { kit.part(places, 3, 4 - d, 1), kit.number(1, x.dtype) }
    local c = corners and F.Mul { g, kit.number((size - 1) / 2, x.dtype) }
      or F.Sub { F.Mul { g, kit.number(size / 2, x.dtype) }, kit.number(0.5, x.dtype) }
    if mode == "nearest" then c = F.Round(c) end
    if padding == "reflection" then
      c = corners and reflected(c, 0, size - 1) or reflected(c, -0.5, size - 0.5)
    end
    if padding ~= "zeros" then
      c = F.Minimum { F.Maximum { c, kit.number(0, x.dtype) }, kit.number(size - 1, x.dtype) }
    end
    parts[d] = c
  end
  local y = at_corners(x, kit.concat(parts, 3))
  return kit.reshape(y, { n, x.shape[2], grid.shape[2], grid.shape[3], grid.shape[4] })
end

local paddings = kit.words "zeros border reflection"

local function grid_sample(n, x, grid)
  n:check_rank(1, x, 4, 5)
  n:check_rank(2, grid, #x.shape)
  local mode = n:word("mode", modes, "linear")
  local padding, corners = n:word("padding_mode", paddings, "zeros"), n:flag "align_corners"
  if #x.shape == 5 then return sample_volume(x, kit.cast(grid, x.dtype), mode, padding, corners) end
  return F.GridSample({ x, grid }, { mode = mode, padding = padding, align_corners = corners })
end

--- Where the elements of all windows lie along dimension d, of `count` windows in it: a tensor of
-- the shape `grid`, (kernel's rows, its columns, rows, columns).
local function unmoved(attrs, d, count, grid)
  local function steps(n, by) return F.Mul { core.eager("Range", {}, { stop = n, dtype = "f64" }),
    kit.number(by, "f64") } end
  local taps, windows = { 1, 1, 1, 1 }, { 1, 1, 1, 1 }
  taps[d], windows[d + 2] = attrs.kernel[d], count
  local first = F.Sub { steps(count, attrs.stride[d]), kit.number(attrs.pad[d], "f64") }
  local at = F.Add { kit.reshape(steps(attrs.kernel[d], attrs.dilation[d]), taps),
    kit.reshape(first, windows) }
  return kit.expand(at, grid)
end

--- Convolution whose window's elements are each moved: the elements are read in between pixels, and
-- multiplied as columns.
local function deform_conv(n, x, w, offset, b, mask)
  for i, operand in ipairs { x, w, offset } do n:check_rank(i, operand, 4) end
  local attrs = window(n, x, spatial(w.shape))
  local groups, shifts = n:int("group", 1), n:int("offset_group", 1)
  local N, C = x.shape[1], x.shape[2]
  local oh, ow = offset.shape[3], offset.shape[4]
  local K, P = kit.product(attrs.kernel), oh * ow
  -- Where each element of each window lies without the offset: (K, P, 2).
  local grid = { attrs.kernel[1], attrs.kernel[2], oh, ow }
  n:check_room({ oh, ow, 4, table.unpack(attrs.kernel) }, true) -- both coordinates, and both joined
  local places = kit.cast(F.Stack({ unmoved(attrs, 1, oh, grid), unmoved(attrs, 2, ow, grid) },
    { axis = -1 }), x.dtype)
  places = kit.reshape(places, { K * P, 2 })
  local moved = kit.reshape(offset, { N * shifts, K, 2, P })

  -- Offsets are added to the places, for each group of channels that has some.
  moved = kit.reshape(kit.permute(moved, { 1, 2, 4, 3 }), { N * shifts, K * P, 2 })
  local planes = kit.reshape(x, { N * shifts, C // shifts, x.shape[3], x.shape[4] })
  local columns = at_corners(planes, F.Add { moved, places })
  if mask then
    columns = F.Mul { columns, kit.reshape(mask, { N * shifts, 1, K * P }) }
  end
  local O = w.shape[1]
  columns = kit.reshape(columns, { N, groups, C // groups * K, P })

  -- Convolution as a product of its kernels with the columns.
  local kernels = kit.reshape(w, { 1, groups, O // groups, C // groups * K })
  local y = kit.reshape(F.MatMul { kernels, columns }, { N, O, oh, ow })
  return b and F.Add { y, kit.reshape(b, { O, 1, 1 }) } or y
end

-- ---- regions ------------------------------------------------------------------------------------

--- For one dimension of regions: the two pixels around each of `count` samples in each of `bins`,
-- and the weights of both; (R, bins * count).
local function samples(n, from, to, size, bins, count, dtype, at_least_one)
  local regions = from.shape[1]
  local length = F.Sub { to, from }

  if at_least_one then length = F.Maximum { length, kit.number(1, dtype) } end
  local step = F.Div { length, kit.number(bins * count, dtype) }
  local index = kit.cast(n:make("Range", { stop = bins * count, dtype = "i64" }), dtype)
  local p = F.Add { kit.reshape(from, { regions, 1 }), F.Mul { kit.reshape(step, { regions, 1 }),
    F.Add { index, kit.number(0.5, dtype) } } }
  -- A sample more than a pixel outside counts nothing; one that is nearer is read at the border.
  local inside = F.LogicalAnd { F.Ge { p, kit.number(-1, dtype) },
    F.Le { p, kit.number(size, dtype) } }
  p = F.Minimum { F.Maximum { p, kit.number(0, dtype) }, kit.number(size - 1, dtype) }
  local low = F.Floor(p)
  local share = F.Sub { p, low }

  local zero, one = kit.number(0, dtype), kit.number(1, dtype)
  return { low, F.Minimum { F.Add { low, one }, kit.number(size - 1, dtype) } },
    { F.Where { inside, F.Sub { one, share }, zero }, F.Where { inside, share, zero } }
end

--- x (R, C, H, W) along dimension d at positions (R, P), times their weights.
local function weighted(x, d, positions, weights)
  local line, shape = { x.shape[1], 1, 1, 1 }, kit.copy(x.shape)
  line[d], shape[d] = positions.shape[2], positions.shape[2]
  local at = kit.expand(kit.reshape(kit.cast(positions, "i64"), line), shape)
  return F.Mul { F.GatherElements({ x, at }, { axis = d }), kit.reshape(weights, line) }
end

local function roi_align(n, x, rois, batch)
  local half = n:word("coordinate_transformation_mode", "half_pixel output_half_pixel",
    n.version >= 16 and "half_pixel" or "output_half_pixel") == "half_pixel"
  local oh, ow = n:int("output_height", 1), n:int("output_width", 1)
  local scale, ratio = n:float("spatial_scale", 1), n:int("sampling_ratio", 0)
  n:check_rank(1, x, 4)
  n:check_rank(2, rois, 2)
  local mode, dtype, C = n:word("mode", "avg max", "avg"), x.dtype, x.shape[2]
  local function side(r, k)
    local v = F.Mul { kit.reshape(kit.part(r, 2, k, 1), { r.shape[1] }), kit.number(scale, dtype) }
    return half and F.Sub { v, kit.number(0.5, dtype) } or v
  end
  local function pooled(r, b, gh, gw)
    local R = r.shape[1]
    local planes = F.Gather({ x, b }, { axis = 1 })

    -- Four terms: both rows around each sample, times both columns.
    local py, wy = samples(n, side(r, 2), side(r, 4), x.shape[3], oh, gh, dtype, not half)
    local px, wx = samples(n, side(r, 1), side(r, 3), x.shape[4], ow, gw, dtype, not half)
    local y
    for i = 1, 2 do
      local rows = weighted(planes, 3, py[i], wy[i])
      for j = 1, 2 do
        local term = weighted(rows, 4, px[j], wx[j])
        y = y and F[mode == "max" and "Maximum" or "Add"] { y, term } or term
      end
    end
    y = kit.reshape(y, { R, C, oh, gh, ow, gw })

    return F[mode == "max" and "Max" or "Mean"](y, { axes = { 4, 6 } })
  end
  if rois.shape[1] * C == 0 then
    return n:make("Constant", { shape = { rois.shape[1], C, oh, ow }, dtype = dtype, value = 0 })
  end
  if ratio > 0 then return pooled(rois, batch, ratio, ratio) end
  -- As many samples as a bin has pixels: each region has its own number.
  local corners, parts = n:numbers(2), {}
  for r = 1, rois.shape[1] do
    local function count(from, to, bins)
      local length = (corners[4 * (r - 1) + to] - corners[4 * (r - 1) + from]) * scale
      return math.max(math.ceil((half and length or math.max(length, 1)) / bins), 1)
    end
    parts[r] = pooled(kit.part(rois, 1, r, 1), kit.part(batch, 1, r, 1), count(2, 4, oh),
      count(1, 3, ow))
  end
  return kit.concat(parts, 1)
end

--- Columns of blocks added up to images of any rank.
local function col2im(n, x)
  local image, block = n:integers(2), n:integers(3)
  local rank = #image
  checked(n, "the block's shape", block, rank, 1)
  local dilation = numbers(n, "dilations", rank, 1, 1)
  local stride = numbers(n, "strides", rank, 1, 1)
  local pads = numbers(n, "pads", 2 * rank, 0)
  local padded, count, columns, size = {}, {}, 1.0, 1.0

  -- How many windows there are follows from the image; x must have a column for each.
  for d = 1, rank do
    padded[d] = image[d] + pads[d] + pads[d + rank]
    count[d] = (padded[d] - dilation[d] * (block[d] - 1) - 1) // stride[d] + 1
    columns, size = columns * math.max(count[d], 0), size * block[d]
  end
  n:check_room(padded, true)
  if #x.shape ~= 3 or x.shape[3] ~= columns or x.shape[2] % size ~= 0 then
    n:fail("x is (%s), an image of (%s) has %.15g blocks of %.15g", table.concat(x.shape, ","),
      table.concat(image, ","), columns, size)
  end
  --- Flat places of all combinations of `size` steps in each dimension.
  local function combinations(sizes, step)
    local places = core.zeros { 1, dtype = "i64" }
    for d = 1, rank do
      local along_d = F.Mul { core.eager("Range", {}, { stop = sizes[d], dtype = "i64" }),
        kit.number(step[d], "i64") }
      local before = F.Mul { places, kit.number(padded[d], "i64") }
      places = kit.reshape(F.Add { kit.unsqueeze(before, { 2 }), along_d }, { -1 })
    end
    return places
  end
  local elements, blocks = combinations(block, dilation), combinations(count, stride)
  local at = F.Add { kit.unsqueeze(elements, { 2 }), blocks }

  -- Each element of each block has a flat place in the image: what is added there.
  local N, C = x.shape[1], x.shape[2] // kit.product(block)
  local n_at = kit.product(at.shape)
  local planes = n:make("Constant", { shape = { N, C, kit.product(padded) }, dtype = x.dtype,
    value = 0 })
  local y = F.IndexAdd({ planes, kit.reshape(at, { -1 }), kit.reshape(x, { N, C, n_at }) },
    { axis = 3 })
  y = kit.reshape(y, { N, C, table.unpack(padded) })

  for d = 1, rank do y = kit.part(y, d + 2, pads[d] + 1, image[d]) end
  return y
end

-- ---- the way back -------------------------------------------------------------------------------

--- A number for each dimension: given so, or one for all, or `missing`.
local function each(list, rank, missing)
  if #list == rank then return list end
  return kit.fill(rank, list[1] or missing)
end

--- Begins, then ends, of a list that may say both at once.
local function both(pad, rank)
  if #pad == 2 * rank then return pad end
  pad = each(pad, rank, 0)
  return table.move(pad, 1, rank, rank + 1, kit.copy(pad))
end

local function some(list, but)
  for _, x in ipairs(list) do
    if x ~= but then return true end
  end
  return false
end

--- The attributes of a convolution's window of a known size; or those of a pool, which goes on by
-- its own size where no stride is said, and has dilation from a version on.
local function window_attrs(n, kernel, dilates_from)
  local rank = #n:dims(1) - 2
  local a = n.attrs
  local attrs = { kernel_shape = kernel or each(a.kernel, rank), pads = both(a.pad, rank) }
  attrs.strides = #a.stride > 0 and each(a.stride, rank) or kernel and kit.fill(rank, 1)
    or attrs.kernel_shape
  if some(a.dilation, 1) then
    if dilates_from then n:needs(dilates_from) end
    attrs.dilations = each(a.dilation, rank, 1)
  end
  if a.ceil_mode then attrs.ceil_mode = 1 end
  return attrs
end

--- Means of windows that overlap, dimension by dimension: a product with the windows' shares.
local function shares(n, x)
  local dims, want = n:dims(1), n:result().dims
  local rank = #dims
  for d = 3, rank do
    -- Windows as a matrix (size, count): each column has the shares of one window.
    local size, count = n:static({ dims[d] }, "an image's size")[1], want[d]
    local t = {}
    for p = 0, count - 1 do
      local first, last = p * size // count, -(-(p + 1) * size // count)
      for i = 0, size - 1 do
        t[i * count + p + 1] = i >= first and i < last and 1 / (last - first) or 0
      end
    end
    local perm = kit.map(kit.count(rank), function(k) return k - 1 end)

    perm[d], perm[rank] = rank - 1, d - 1
    if d < rank then x = n:transpose(x, perm) end
    x = n:node("MatMul", { x, n:const(kit.reshape(core.tensor(t, n:dtype(1)), { size, count })) })
    if d < rank then x = n:transpose(x, perm) end
  end
  return x
end

--- A pool to a size that divides the image's, as a pool with windows beside each other.
local function adaptive(name, global, otherwise)
  return function(n, x)
    local dims, want = n:dims(1), n:result().dims
    local kernel, whole = {}, true
    -- One window is the whole image, of whatever size.
    for d = 3, #dims do whole = whole and want[d] == 1 end
    if whole then return n:node(global, { x }) end

    for d = 3, #dims do
      local size, count = n:static({ dims[d] }, "an image's size")[1], want[d]
      if count == 0 or size % count ~= 0 then
        if otherwise then return otherwise(n, x) end
        n:lacks("%d pixels are no whole number of %d windows", size, count)
      end
      kernel[d - 2] = size // count
    end
    return n:node(name, { x }, { kernel_shape = kernel, strides = kernel })
  end
end

local function write(out)
  --- The attributes of a convolution whose weight is input i.
  function kit.write_conv_attrs(n, i)
    local kernel = table.move(n:dims(i), 3, #n:dims(i), 1, {})
    local attrs = window_attrs(n, kernel)
    attrs.group = n.attrs.groups
    return attrs
  end
  function out.Conv(n, x, w, b) return n:node("Conv", { x, w, b }, kit.write_conv_attrs(n, 2)) end
  --- What the output is longer than windows make it is output_padding.
  function out.ConvTranspose(n, x, w, b)
    local dims, want = n:dims(1), n:result().dims
    local kernel = table.move(n:dims(2), 3, #n:dims(2), 1, {})
    local attrs, rank, more = window_attrs(n, kernel), #dims - 2, {}
    attrs.group = n.attrs.groups
    for d = 1, rank do
      local reach = (kernel[d] - 1) * (attrs.dilations and attrs.dilations[d] or 1) + 1
      local padding = each(n.attrs.output_padding, rank, 0)[d]
      more[d] = padding

      -- By the output's shape what windows make too much is cut on both sides, an odd one in front.
      -- Of other sizes it would be another cut: they are known.
      if #n.attrs.output_shape > 0 then
        local size = n:static({ dims[d + 2], want[d + 2] }, "an image's size")
        local less = attrs.strides[d] * (size[1] - 1) + reach + padding - size[2]
        attrs.pads[d] = math.max(less - less // 2, 0)
        more[d] = size[2] - (attrs.strides[d] * (size[1] - 1) + reach - attrs.pads[d]
          - attrs.pads[d + rank])
      end
      -- What is shorter than windows make it is padded more.
      if more[d] < 0 then attrs.pads[d + rank], more[d] = attrs.pads[d + rank] - more[d], 0 end
      local most = math.max(attrs.strides[d], attrs.dilations and attrs.dilations[d] or 1)
      if more[d] >= most then n:lacks("an output_padding of %d, at most %d", more[d], most - 1) end
    end
    if some(more, 0) then attrs.output_padding = more end
    return n:node("ConvTranspose", { x, w, b }, attrs)
  end

  function out.MaxPool(n, x) return n:node("MaxPool", { x }, window_attrs(n)) end
  function out.MaxPoolWithIndices(n, x)
    local y, at = n:node("MaxPool", { x }, window_attrs(n), 2)
    return y, n:as_result(at, "i64", 2)
  end
  function out.MaxUnpool(n, x, at)
    if n:dtype(2) ~= "i64" then at = n:cast(at, "i64") end
    local attrs = window_attrs(n)
    if attrs.dilations then n:lacks "dilation" end
    attrs.ceil_mode = nil

    -- ONNX counts indices in the shape that windows give, and puts zeros behind it; here they are
    -- counted in y. The window says no more than that shape, so it is as large as y needs.
    local dims, want = n:dims(1), n:result().dims
    attrs.strides = kit.copy(attrs.strides) -- the window's own list, perhaps
    for d = 1, #dims - 2 do
      local size = n:static({ dims[d + 2], want[d + 2] }, "an image's size")
      attrs.kernel_shape[d] = size[2] - (size[1] - 1) * attrs.strides[d] + attrs.pads[d]
        + attrs.pads[d + #dims - 2]
      if attrs.kernel_shape[d] < 1 then n:lacks("y of %d rows, x has %d", size[2], size[1]) end
    end
    return n:node("MaxUnpool", { x, at, n:shape(n:result().dims) }, attrs)
  end
  function out.AveragePool(n, x)
    local attrs = window_attrs(n, nil, 19)
    attrs.count_include_pad = n.attrs.count_include_pad
    return n:node("AveragePool", { x }, attrs)
  end
  --- The mean of windows, padding counted, times their size.
  function out.SumPool(n, x)
    local attrs = window_attrs(n, nil, 19)
    if attrs.ceil_mode then n:lacks "windows beyond the padding" end
    attrs.count_include_pad = 1
    local y = n:node("AveragePool", { x }, attrs)
    return n:node("Mul", { y, n:number(kit.product(attrs.kernel_shape)) })
  end
  function out.LpPool(n, x)
    local attrs = window_attrs(n, nil, 18)
    if attrs.ceil_mode then n:needs(18) end
    attrs.p = n.attrs.p
    return n:node("LpPool", { x }, attrs)
  end
  function out.GlobalAveragePool(n, x) return n:node("GlobalAveragePool", { x }) end
  function out.GlobalMaxPool(n, x) return n:node("GlobalMaxPool", { x }) end
  function out.GlobalLpPool(n, x) return n:node("GlobalLpPool", { x }, { p = n.attrs.p }) end
  out.AdaptiveAveragePool = adaptive("AveragePool", "GlobalAveragePool", shares)
  out.AdaptiveMaxPool = adaptive("MaxPool", "GlobalMaxPool")
end

return function(op, writers)
  write(writers)
  op.Conv, op.ConvTranspose, op.DeformConv = conv, conv_transpose, deform_conv

  op.MaxPool, op.MaxUnpool = max_pool, max_unpool
  function op.AveragePool(n, x)
    local attrs = window(n, x)
    attrs.ceil_mode, attrs.count_include_pad = n:flag "ceil_mode", n:flag "count_include_pad"
    return F.AveragePool(x, attrs)
  end
  function op.LpPool(n, x)
    local attrs = window(n, x)
    attrs.ceil_mode, attrs.p = n:flag "ceil_mode", n:int("p", 2)
    return F.LpPool(x, attrs)
  end
  function op.GlobalAveragePool(_, x) return F.GlobalAveragePool(x) end
  function op.GlobalMaxPool(_, x) return (F.GlobalMaxPool(x)) end
  function op.GlobalLpPool(n, x) return F.GlobalLpPool(x, { p = n:int("p", 2) }) end

  op.Resize, op.Upsample, op.GridSample = resize, upsample, grid_sample
  function op.AffineGrid(n, theta)
    local size = n:integers(2)
    return F.AffineGrid(theta, { sizes = table.move(size, 3, #size, 1, {}),
      align_corners = n:flag "align_corners" })
  end
  op.RoiAlign, op.Col2Im = roi_align, col2im
end
