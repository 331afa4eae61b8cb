--- Caffe's layers that move, cut and join, and reductions.
-- @module neap.caffe.shapes
local core = require "neap.core"
local kit = require "neap.caffe.kit"
local F = kit.F

--- The axis that joins or cuts: `axis`, or in old files `name`.
local function axis_of(n, p, x, name)
  local old, axis = p:int(name), p:int "axis"
  if old and axis then n:fail("both axis and %s are given", name) end
  return n:axis(axis or old or 1, #x.shape)
end

local function concat(n, ...)
  n:expect(1)
  local xs = { ... }
  local at = axis_of(n, n:options "concat_param", xs[1], "concat_dim")
  if #xs == 1 then return xs[1] end
  return n:gives("Concat", xs, { axis = at })
end

local function slice(n, x)
  n:expect(1, 1)
  local p, n_top = n:options "slice_param", #n.row.tops
  local at, points = axis_of(n, p, x, "slice_dim"), p:ints "slice_point"
  local size, parts, from = x.shape[at], {}, 0
  if #points == 0 and size % n_top ~= 0 then
    n:fail("%d positions in %d equal parts", size, n_top)
  end
  if #points > 0 and #points ~= n_top - 1 then
    n:fail("%d numbers of slice_point, expected %d", #points, n_top - 1)
  end

  -- Parts end at the points, or are of one size.
  for k = 1, n_top do
    local till = k == n_top and size or points[k] or size // n_top * k
    if till <= from or till > size then n:fail("a part from %d to %d of %d", from, till, size) end
    parts[k], from = till - from, till
  end
  if n_top == 1 then return x end
  return n:gives("Split", x, { axis = at, sizes = parts }, n_top)
end

local function flatten(n, x)
  n:expect(1, 1)
  local p = n:options "flatten_param"

  local from, till = n:axis(p:int("axis", 1), #x.shape), n:axis(p:int("end_axis", -1), #x.shape)
  if till < from then n:fail "end_axis stands before axis" end
  local shape = table.move(x.shape, 1, from - 1, 1, {})
  shape[from] = kit.product(x.shape, from, till)
  table.move(x.shape, till + 1, #x.shape, from + 1, shape)
  return n:gives("Reshape", x, { shape = shape })
end

--- 0 keeps a size, -1 is what is left.
local function reshape(n, x)
  n:expect(1, 1)
  local p = n:options "reshape_param"
  local dims, axis, n_axes = p:message "shape":ints "dim", p:int("axis", 0), p:int("num_axes", -1)
  local rank = #x.shape
  local from = axis < 0 and rank + axis + 2 or axis + 1
  local till = n_axes == -1 and rank or from + n_axes - 1
  if from < 1 or from > rank + 1 or till > rank or n_axes < -1 or n_axes > rank then
    n:fail("axis %d and num_axes %d of %d dimensions", axis, n_axes, rank)
  end

  -- Dimensions before `from` and behind `till` stay; the new sizes stand for those between.
  local shape, open, known = table.move(x.shape, 1, from - 1, 1, {}), nil, 1
  for i, size in ipairs(dims) do
    if size == 0 then
      size = from + i - 1 <= till and x.shape[from + i - 1]
        or n:fail("dimension %d of the new shape keeps one that is not there", i - 1)
    end
    if size < -1 or size == -1 and open then n:fail("a size of %d", size) end
    if size == -1 then open = from + i - 1 else known = known * size end
    shape[from + i - 1] = size
  end

  local count = kit.product(x.shape, from, till)
  if open then
    if known == 0 or count % known ~= 0 then
      n:fail("%d elements in rows of %d", count, known)
    end
    shape[open] = count // known
  elseif known ~= count then
    n:fail("%d elements of shape (%s) in %d", count, table.concat(x.shape, ","), known)
  end
  table.move(x.shape, till + 1, rank, #shape + 1, shape)
  return n:gives("Reshape", x, { shape = shape })
end

local function permute(n, x)
  n:expect(1, 1)
  local order, seen = {}, {}
  for i, axis in ipairs(n:options "permute_param":ints "order") do
    order[i] = n:axis(axis, #x.shape)
    if axis < 0 or seen[axis] then n:fail("axis %d in order", axis) end
    seen[axis] = true
  end
  -- Those that order does not name come last, as they were.
  for d = 1, #x.shape do
    if not seen[d - 1] then order[#order + 1] = d end
  end
  return n:gives("Permute", x, { axes = order })
end

--- The part of x that is as large as the second bottom.
local function crop(n, x, like)
  n:expect(2, 2)
  local p = n:options "crop_param"
  local from, offsets = n:axis(p:int("axis", 2), #x.shape), p:ints "offset"
  if #x.shape ~= #like.shape then
    n:fail("bottoms of %d and %d dimensions", #x.shape, #like.shape)
  end
  local count = #x.shape - from + 1
  if #offsets > 1 and #offsets ~= count then
    n:fail("%d offsets, expected 1 or %d", #offsets, count)
  end

  -- Dimensions before `from` stay whole. One offset counts for all that are cut, none is 0.
  local axes, starts, ends = {}, {}, {}
  for d = from, #x.shape do
    local offset = offsets[#offsets == 1 and 1 or d - from + 1] or 0
    if offset < 0 or offset + like.shape[d] > x.shape[d] then
      n:fail("%d positions from %d on, of (%s)", like.shape[d], offset, table.concat(x.shape, ","))
    end
    axes[#axes + 1], starts[#starts + 1], ends[#ends + 1] = d, offset + 1, offset + like.shape[d]
  end
  return n:gives("Slice", x, { axes = axes, starts = starts, ends = ends })
end

-- ---- reductions ---------------------------------------------------------------------------------

local function reduction(n, x)
  n:expect(1, 1)
  local p = n:options "reduction_param"
  local how = p:word("operation", { "", "SUM", "ASUM", "SUMSQ", "MEAN" }, "SUM")
  local axes, factor = kit.dims(x, n:axis(p:int("axis", 0), #x.shape)), p:number("coeff", 1)
  if how == "ASUM" then x = F.Abs(x) elseif how == "SUMSQ" then x = F.Square(x) end
  return n:times(F[how == "MEAN" and "Mean" or "Sum"](x, { axes = axes }), factor)
end

--- The k largest and where they stand. Without an axis: of each image, in a row (N,1,k), of both
-- (N,2,k).
local function arg_max(n, x)
  n:expect(1, 1)
  local p = n:options "argmax_param"
  local k, both, axis = p:size("top_k", 1), p:flag("out_max_val", false), p:int "axis"
  local at = axis and n:axis(axis, #x.shape)
  local flat = at and x or kit.reshape(x, { x.shape[1], kit.product(x.shape, 2) })
  local along = at or 2
  if k > flat.shape[along] then n:fail("top_k %d of %d", k, flat.shape[along]) end

  local values, indices = F.TopK(flat, { k = k, axis = along }, 2)
  indices = kit.cast(indices, "f32")
  if at then return both and values or indices end
  local function row(v) return kit.reshape(v, { x.shape[1], 1, k }) end
  return both and F.Concat({ row(indices), row(values) }, { axis = 2 }) or row(indices)
end

-- ---- the rest -----------------------------------------------------------------------------------

--- What is read, under each of its tops.
local function through(n, x)
  local out = {}
  for k in ipairs(n.row.tops) do out[k] = x end
  return table.unpack(out)
end

return function(layer)
  layer.Concat, layer.Slice, layer.Flatten, layer.Reshape = concat, slice, flatten, reshape
  layer.Permute, layer.Crop, layer.Reduction, layer.ArgMax = permute, crop, reduction, arg_max
  layer.Split = through

  --- Rows of several processes in one, of yjxiong's Caffe: of one process they are as they are.
  function layer.Gather(n, ...)
    if #n.row.tops ~= #n.row.bottoms then
      n:fail("%d bottoms, %d tops", #n.row.bottoms, #n.row.tops)
    end
    return ...
  end

  function layer.Silence() end

  function layer.Tile(n, x)
    n:expect(1, 1)
    local p = n:options "tile_param"
    local times = kit.fill(#x.shape, 1)
    times[n:axis(p:int("axis", 1), #x.shape)] = p:size "tiles" or n:fail "tiles is missing"
    return n:gives("Tile", x, { repeats = times })
  end

  function layer.BatchReindex(n, x, indices)
    n:expect(2, 2)
    return n:gives("Gather", { x, kit.cast(kit.reshape(indices, { kit.product(indices.shape) }),
      "i64") }, { axis = 1 })
  end

  function layer.Softmax(n, x)
    n:expect(1, 1)
    local p = n:options "softmax_param"
    p:leave "engine"
    return n:gives("Softmax", x, { axis = n:axis(p:int("axis", 1), #x.shape) })
  end

  function layer.Reverse(n, x)
    n:expect(1, 1)
    local at = n:axis(n:options "reverse_param":int("axis", 0), #x.shape)
    return n:gives("Flip", x, { axes = { at } })
  end

  --- A constant of a shape, for layers that read one.
  function layer.Constant(n)
    local p = n:options "constant_param"
    local t = core.full { value = p:number("value", 0), dtype = "f32",
      table.unpack(p:message "shape":ints "dim") }
    return n.state.net:const(t)
  end
end
