--- Images in other sizes, cut into patches and read at places in between: gathers by tables of
-- positions and weights that are made while the net is built, or of the net itself.
-- @module neap.ops.resample
local compose = require "neap.ops.compose"
local core = require "neap.core"
local kit = require "neap.ops.kit"
local op = require "neap.op"

local fail, where = core.fail, kit.where

local function spatial_rank(name, x)
  if #x.shape < 3 then
    fail(("%s: x is (%s), expected (n, channels, ..)"):format(name, table.concat(x.shape, ",")))
  end
  return #x.shape - 2
end

--- A number for each of so many dimensions, of one or a list, each from `least` to a million.
local function each(name, what, value, rank, least)
  local all = {}
  for d = 1, rank do all[d] = type(value) == "table" and value[d] or value end
  for d = 1, rank do
    local v = all[d]
    local good = type(v) == "number" and (math.type(v) == "integer" or least == nil)
    if not good or v ~= v or v < (least or 1e-6) or v > kit.MOST_LISTED
      or type(value) == "table" and #value ~= rank then
      fail(("%s: %s expects a number from %s to %d, or %d of them"):format(name, what,
        least or "0.000001", kit.MOST_LISTED, rank))
    end
  end
  return all
end

-- ---- Resize -------------------------------------------------------------------------------------

-- Where in n positions number i of m lies, from 0; s is the step from one to the next.
local coordinate = {
  half_pixel = function(i, _, _, s) return (i + 0.5) * s - 0.5 end,
  pytorch_half_pixel = function(i, _, m, s) return m > 1 and (i + 0.5) * s - 0.5 or 0 end,
  align_corners = function(i, n, m) return m > 1 and i * (n - 1) / (m - 1) or 0 end,
  asymmetric = function(i, _, _, s) return i * s end,
  half_pixel_symmetric = function(i, n, m, s)
    local share = m * s / n
    return n / 2 * (1 - share) + (i + 0.5) * s - 0.5
  end,
}

local rounding = {
  round_prefer_floor = function(x) return math.ceil(x - 0.5) end,
  round_prefer_ceil = function(x) return math.floor(x + 0.5) end,
  floor = math.floor,
  ceil = math.ceil,
}

-- How much a position counts that is t away, and how far they reach (Keys 1981 for cubic).
local kernel = {
  linear = { 1, function(t) return math.max(0, 1 - math.abs(t)) end },
  cubic = { 2, function(t, a)
    t = math.abs(t)
    if t <= 1 then return ((a + 2) * t - (a + 3)) * t * t + 1 end
    return t < 2 and ((a * t - 5 * a) * t + 8 * a) * t - 4 * a or 0
  end },
}

--- The positions that make each of m new ones, tap by tap, and their weights: two lists of lists.
local function taps_of(o, n, m, s, at)
  kit.check_listed("Resize", m)
  local reach, weigh = table.unpack(kernel[o.mode])
  -- Of what shrinks, with antialias, the kernel gets as much wider.
  local wide = o.antialias and math.max(s, 1) or 1
  local n_tap = 2 * math.ceil(reach * wide)
  if n_tap > 256 then fail(("Resize: antialias over %d elements; at most 256"):format(n_tap)) end

  -- Tap by tap a list of positions and one of weights, for all m new positions.
  local positions, weights = {}, {}
  for k = 1, n_tap do positions[k], weights[k] = {}, {} end
  for i = 0, m - 1 do
    local x = at(i, n, m, s)
    local first, sum = math.floor(x) - n_tap // 2 + 1, 0
    for k = 1, n_tap do
      local p = first + k - 1
      local w = weigh((p - x) / wide, o.cubic_a)
      if o.exclude_outside and (p < 0 or p >= n) then w = 0 end
      -- Beyond the border its own position counts.
      positions[k][i + 1], weights[k][i + 1] = math.max(0, math.min(n - 1, p)), w
      sum = sum + w
    end
    -- Weights that were left out, or a kernel cut off in whole numbers, no longer add up to 1.
    if o.exclude_outside or o.antialias then
      for k = 1, n_tap do weights[k][i + 1] = weights[k][i + 1] / sum end
    end
  end
  return positions, weights
end

--- x with m positions along dimension d.
-- @param o mode, rounding, cubic_a, exclude_outside and antialias of Resize
-- @tparam number s the step from one position to the next
-- @tparam function at (i, n, m, s) -> where in n positions number i of m lies, from 0
local function resized(o, x, d, m, s, at)
  local n = x.shape[d]
  if o.mode == "nearest" then
    local round = rounding[o.rounding]
    local positions = kit.list("Resize", x, m, "i64", function(i)
      return math.max(0, math.min(n - 1, round(at(i, n, m, s))))
    end)
    return x:gather(positions, { axis = d })
  end
  local positions, weights = taps_of(o, n, m, s, at)

  -- Each tap is one gather, whose rows are weighed; the sum of all taps is the result.
  local sizes, y = {}, nil
  for k = 1, #x.shape do sizes[k] = k == d and m or 1 end
  for k = 1, #positions do
    local term = x:gather(core.tensor(positions[k], "i64"), { axis = d })
      * core.tensor(weights[k], x.dtype):reshape(sizes)
    y = y and y + term or term
  end
  return y
end

compose.define { "Resize",
  summary = "Images, or any spatial dimensions, in another size.",
  math = "y_i = sum_k weight_k x_(position_k) along each dimension",
  example = 'net:Resize("x", "y", {scales = {2, 2}, mode = "linear"})',
  source = "ONNX Resize-19, torch.nn.functional.interpolate; Keys, 1981",
  nan = "reaches",
  inputs = { { "x", "(n, c, ..)", dtypes = "number" } },
  outputs = { { "y", "(n, c, ..) of the new sizes" } },
  { "sizes", "any", unset = "by scales", says = "sizes of the dimensions behind the second",
    doc = "the new sizes, one for all dimensions or one for each" },
  { "scales", "any", unset = "by sizes", says = "factors of the dimensions behind the second",
    doc = "the factors of the sizes, rounded down" },
  { "mode", "choice", "nearest", choices = { "nearest", "linear", "cubic" },
    doc = "how values are made that lie in between" },
  { "coordinates", "choice", "half_pixel", choices = { "half_pixel", "pytorch_half_pixel",
    "align_corners", "asymmetric", "half_pixel_symmetric" }, doc = "where new positions lie" },
  { "rounding", "choice", "round_prefer_floor", choices = { "round_prefer_floor",
    "round_prefer_ceil", "floor", "ceil" }, doc = "which position is the nearest" },
  { "cubic_a", "number", -0.75, doc = "a of the cubic kernel" },
  { "exclude_outside", "boolean", false, doc = "leave out what lies beyond the border" },
  { "antialias", "boolean", false, doc = "widen the kernel where images shrink" },
  cases = "{ {x={1,2,3,4}, scales={2,1.5}}, {x={1,2,3,4}, sizes={5,3}, mode='linear'}, "
    .. "{x={1,1,6,5}, sizes={3,7}, mode='cubic', exclude_outside=true}, "
    .. "{x={2,1,9}, sizes=4, mode='linear', antialias=true}, {x={1,1,4,4}, scales=2, "
    .. "mode='linear', coordinates='align_corners'} }",
  of = function(o, x)
    local rank = spatial_rank("Resize", x)
    if (o.sizes == nil) == (o.scales == nil) then fail "Resize: sizes or scales are expected" end
    local sizes = o.sizes and each("Resize", "sizes", o.sizes, rank, 1)
    local scales = o.scales and each("Resize", "scales", o.scales, rank)
    -- Dimension by dimension: interpolation along several is a product of such.
    for d = 1, rank do
      local n = x.shape[d + 2]
      local m = sizes and sizes[d] or math.floor(n * scales[d])
      if m < 1 or n < 1 or m > kit.MOST_LISTED then
        fail(("Resize: dimension %d of %d can't become %s"):format(d + 2, n, tostring(m)))
      end
      local s = scales and 1 / scales[d] or n / m
      if n ~= m or s ~= 1 then
        x = resized(o, x, d + 2, m, s, coordinate[o.coordinates])
      end
    end
    return x
  end }

-- ---- patches ------------------------------------------------------------------------------------

local window = {
  { "kernel", "any", required = true, says = "a size, or one for each dimension",
    doc = "sizes of a patch" },
  { "stride", "any", 1, says = "a step, or one for each dimension", doc = "from patch to patch" },
  { "pad", "any", 0, says = "a width, or one for each dimension", doc = "zeros on both sides" },
  { "dilation", "any", 1, says = "a step, or one for each dimension",
    doc = "from element to element of a patch" },
}

--- For each element of each patch its place in the padded plane, (elements, patches), row by row:
-- sums of where patches begin, and of what lies behind that.
local function places_of(name, o, x, h, w)
  local k, s = each(name, "kernel", o.kernel, 2, 1), each(name, "stride", o.stride, 2, 1)
  local p, r = each(name, "pad", o.pad, 2, 0), each(name, "dilation", o.dilation, 2, 1)
  local high, wide = h + 2 * p[1], w + 2 * p[2]
  local rows, columns = (high - r[1] * (k[1] - 1) - 1) // s[1] + 1,
    (wide - r[2] * (k[2] - 1) - 1) // s[2] + 1
  if rows < 1 or columns < 1 or wide > kit.MOST_LISTED or high > kit.MOST_LISTED then
    fail(("%s: no patch of %d x %d fits into %d x %d with its pads"):format(name, k[1], k[2], h, w))
  end
  local function line(n, step)
    return kit.list(name, x, n, "i64", function(i) return i * step end)
  end
  --- a_i + b_j, in one row.
  local function sums(a, b) return (a:unsqueeze { axes = { 2 } } + b):reshape(-1) end

  -- In the padded plane an element lies row * width + column behind the patch's beginning.
  local elements = sums(line(k[1], r[1] * wide), line(k[2], r[2]))
  local patches = sums(line(rows, s[1] * wide), line(columns, s[2]))
  return sums(elements, patches), k[1] * k[2], rows * columns, high, wide, p
end

compose.define { "Unfold", exact = true, window[1], window[2], window[3], window[4],
  summary = "Patches of images as columns (im2col).",
  math = "y[n, (c, i, j), patch] = x[n, c, row + i, column + j]",
  example = 'net:Unfold("x", "y", {kernel = 3, pad = 1})',
  source = "torch.nn.Unfold",
  inputs = { { "x", "(n, c, h, w)", dtypes = "number" } },
  outputs = { { "y", "(n, c k1 k2, patches)" } },
  cases = "{ {x={2,3,4,5}, kernel=2}, {x={1,2,5,5}, kernel={3,2}, stride={2,1}, pad={1,0}, "
    .. "dilation={1,2}} }",
  of = function(o, x)
    if #x.shape ~= 4 then fail "Unfold: x expects (n, c, h, w)" end
    local n, c, h, w = table.unpack(x.shape)
    local places, n_element, n_patch, high, wide, p = places_of("Unfold", o, x, h, w)
    if p[1] > 0 or p[2] > 0 then x = x:pad { pads = { 0, 0, p[1], p[2], 0, 0, p[1], p[2] } } end
    return x:reshape(n, c, high * wide):gather(places, { axis = 3 })
      :reshape(n, c * n_element, n_patch)
  end }

compose.define { "Fold", window[1], window[2], window[3], window[4],
  summary = "Columns of patches added up to images (col2im); the gradient of Unfold.",
  math = "y[n, c, row + i, column + j] = sum of x[n, (c, i, j), patch]",
  example = 'net:Fold("x", "y", {sizes = {4, 5}, kernel = 2})',
  source = "ONNX Col2Im-18, torch.nn.Fold",
  inputs = { { "x", "(n, c k1 k2, patches)" } },
  outputs = { { "y", "(n, c, h, w)" } },
  { "sizes", "any", required = true, says = "a size, or two", doc = "h and w of the images" },
  cases = "{ {x={2,12,12}, sizes={4,5}, kernel=2}, "
    .. "{x={1,6,9}, sizes=5, kernel={3,2}, stride=2, pad={1,1}} }",
  of = function(o, x)
    if #x.shape ~= 3 then fail "Fold: x expects (n, c k1 k2, patches)" end
    local h, w = table.unpack(each("Fold", "sizes", o.sizes, 2, 1))
    local places, n_element, n_patch, high, wide, p = places_of("Fold", o, x, h, w)
    local n, c = x.shape[1], x.shape[2] // n_element
    if x.shape[2] ~= c * n_element or x.shape[3] ~= n_patch then
      fail(("Fold: x is (%s), these patches ask for (%d, c %d, %d)"):format(
        table.concat(x.shape, ","), n, n_element, n_patch))
    end

    -- The padded planes get the sum of what lies on each place; then the frame is cut off.
    local planes = kit.zeros(x, { n, c, high * wide })
    local y = op.apply("IndexAdd", { planes, places, x:reshape(n, c, n_element * n_patch) },
      { axis = 3 }):reshape(n, c, high, wide)
    local first, last = { p[1] + 1, p[2] + 1 }, { p[1] + h, p[2] + w }
    return y:slice { axes = { 3, 4 }, starts = first, ends = last }
  end }

-- ---- places in between --------------------------------------------------------------------------

local corners = { "align_corners", "boolean", false,
  doc = "whether -1 and 1 are the middles of the outermost pixels, not their edges" }

compose.define { "AffineGrid",
  summary = "Places of the pixels of an image that an affine map reads.",
  math = "grid[n, i, j] = theta[n] (x_j, y_i, 1)",
  example = 'net:AffineGrid("theta", "grid", {sizes = {8, 8}})',
  source = "ONNX AffineGrid-20, torch.nn.functional.affine_grid",
  inputs = { { "theta", "(n, 2, 3), or (n, 3, 4) in three dimensions" } },
  outputs = { { "grid", "(n, h, w, 2), or (n, d, h, w, 3)" } },
  { "sizes", "shape", required = true, doc = "the spatial sizes of the result" },
  corners,
  cases = "{ {theta={2,2,3}, sizes={3,4}}, {theta={1,3,4}, sizes={2,3,2}, align_corners=true} }",
  of = function(o, theta)
    local rank = #o.sizes
    for _, size in ipairs(o.sizes) do
      if size < 1 then fail "AffineGrid: sizes are 1 at least" end
    end
    if #theta.shape ~= 3 or theta.shape[2] ~= rank or theta.shape[3] ~= rank + 1 then
      fail(("AffineGrid: theta is (%s), expected (n, %d, %d) for %d sizes"):format(
        table.concat(theta.shape, ","), rank, rank + 1, rank))
    end
    -- x is the last dimension, so that it comes first in a place; behind all stands a 1.
    local whole, parts = table.move(o.sizes, 1, rank, 1, {}), {}
    whole[rank + 1] = 1
    for d = rank, 1, -1 do
      local size, line = o.sizes[d], {}
      for k = 1, rank + 1 do line[k] = k == d and size or 1 end
      parts[#parts + 1] = kit.list("AffineGrid", theta, size, theta.dtype, function(i)
        if o.align_corners then return size > 1 and 2 * i / (size - 1) - 1 or 0 end
        return (2 * i + 1) / size - 1
      end):reshape(line):expand(whole)
    end
    parts[rank + 1] = parts[1] * 0 + 1
    local base = op.apply("Concat", parts, { axis = -1 }):reshape(-1, rank + 1)
    local grid = op.apply("MatMul", { base, theta }, { trans_b = true })
    local shape = { theta.shape[1], table.unpack(o.sizes) }
    shape[#shape + 1] = rank
    return grid:reshape(shape)
  end }

--- Places back within [low, high] by reflection, as often as it takes.
local function reflected(x, low, high)
  if high <= low then return x * 0 end
  local span = high - low

  -- How many times x has gone the whole way, and how far it is on the last one; odd ways lead back.
  local far = (x - low):abs()
  local turns = (far * (1 / span)):floor():stop_gradient()
  local rest = far - turns * span
  local even = (turns * 0.5):floor() * 2
  return where(turns:eq(even), rest, span - rest) + low
end

compose.define { "GridSample",
  summary = "Images read at places that a grid gives.",
  math = "y[n, :, i, j] = x[n, :] at grid[n, i, j] = (x, y), both -1 to 1",
  example = 'net:GridSample({"x", "grid"}, "y")',
  source = "ONNX GridSample-20, torch.nn.functional.grid_sample",
  nan = "decides", special = "a place that is NaN lies beyond the border of nearest",
  inputs = { { "x", "(n, c, h, w)" }, { "grid", "(n, i, j, 2)" } },
  outputs = { { "y", "(n, c, i, j)" } },
  { "mode", "choice", "linear", choices = { "linear", "nearest", "cubic" },
    doc = "how values are made that lie in between" },
  { "padding", "choice", "zeros", choices = { "zeros", "border", "reflection" },
    doc = "what is read beyond the border" },
  corners,
  cases = "{ {x={1,2,4,5}, grid={{1,3,2,2}, low=-0.9, high=0.9}}, {x={2,1,3,3}, "
    .. "grid={{2,2,2,2}, low=-1.4, high=1.4}, padding='border', align_corners=true}, "
    .. "{x={1,1,5,4}, grid={{1,3,3,2}, low=-1.3, high=1.3}, mode='cubic', padding='reflection', "
    .. "tol=1e-4}, {x={1,2,4,4}, grid={1,3,3,2}, mode='nearest', wrt={'x'}} }",
  of = function(o, x, grid)
    if #x.shape ~= 4 or #grid.shape ~= 4 or grid.shape[4] ~= 2 or grid.shape[1] ~= x.shape[1] then
      fail(("GridSample: x is (%s), grid (%s): expected (n, c, h, w) and (n, i, j, 2)"):format(
        table.concat(x.shape, ","), table.concat(grid.shape, ",")))
    end
    local n, c, h, w = table.unpack(x.shape)
    local rows, columns = grid.shape[2], grid.shape[3]
    local flat, n_place = x:reshape(n, c, h * w), rows * columns
    --- Coordinate k of all places in pixels, n x 1 x places; within the border where it is to be.
    local function pixels(k, size)
      local g = grid:slice({ axes = { 4 }, starts = { k }, ends = { k } }):reshape(n, 1, n_place)
      return o.align_corners and (g + 1) * ((size - 1) / 2) or ((g + 1) * size - 1) * 0.5
    end
    local function inside(p, size)
      if o.padding == "border" then return p:clamp { min = 0, max = size - 1 } end
      if o.padding ~= "reflection" then return p end
      local back = o.align_corners and reflected(p, 0, size - 1)
        or reflected(p, -0.5, size - 0.5)
      return back:clamp { min = 0, max = size - 1 }
    end
    --- Pixels at whole numbers, 0 beyond the border.
    local function read(px, py)
      local qx, qy = inside(px, w), inside(py, h)
      local cx, cy = qx:clamp { min = 0, max = w - 1 }, qy:clamp { min = 0, max = h - 1 }
      local at = (cy * w + cx):round():to "i64"
      local values = flat:gather_elements(at:expand(n, c, n_place), { axis = 3 })
      if o.padding ~= "zeros" then return values end
      return where(qx:eq(cx) & qy:eq(cy), values, 0)
    end
    local px, py = pixels(1, w), pixels(2, h)
    -- Cubic reads whole pixels beyond the border, the others move the place itself.
    if o.mode ~= "cubic" then px, py = inside(px, w), inside(py, h) end
    local y
    if o.mode == "nearest" then
      y = read(px:stop_gradient():round(), py:stop_gradient():round())
    else
      local fx, fy = px:stop_gradient():floor(), py:stop_gradient():floor()
      local tx, ty = px - fx, py - fy
      local reach = kernel[o.mode][1]
      --- The weight of the tap k pixels from the one below, by how far the place is from that.
      local function weight(t, k)
        if o.mode == "linear" then return k == 0 and 1 - t or t end
        local a, d = -0.75, k <= 0 and t - k or -t + k
        if k == 0 or k == 1 then return ((d * (a + 2)) - (a + 3)) * d * d + 1 end
        return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a
      end
      for j = 1 - reach, reach do
        for i = 1 - reach, reach do
          local term = read(fx + i, fy + j) * (weight(tx, i) * weight(ty, j))
          y = y and y + term or term
        end
      end
    end
    return y:reshape(n, c, rows, columns)
  end }

return { resized = resized, coordinate = coordinate }
