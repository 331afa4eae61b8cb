--- TFLite's operators that move elements, and those that say shapes. Integers that stand for
-- numbers are moved as they are: what they stand for moves with them.
-- @module neap.tflite.shapes
local T = require "neap.tflite.kit"
local core = require "neap.core"
local kit = require "neap.onnx.kit"
local F = kit.F

local function i64(list)
  return #list > 0 and core.tensor(list, "i64") or core.zeros { 0, dtype = "i64" }
end

-- ---- shapes -------------------------------------------------------------------------------------

--- The shape that is asked for, of as many elements as x has. A file that was written for a batch
-- of one says 1 for its first size: of another batch that is the batch.
local function shape_for(n, x, list)
  local shape, known, open = kit.copy(list), 1, nil
  for i, size in ipairs(shape) do
    if size == -1 then
      if open then n:fail "two sizes of -1" end
      open = i
    elseif math.type(size) ~= "integer" or size < 0 then
      n:fail("a size of %s", tostring(size))
    else
      known = known * size
    end
  end

  -- A batch other than the file's takes the place of a first 1, where the rest of the sizes then
  -- say as many elements as there are.
  local all, was = kit.product(x.shape), n.row.reads[1].dims
  local batch = was[1] == 1 and x.shape[1] or 1
  if batch > 1 and shape[1] == 1 and known > 0 and (open or known * batch == all) then
    shape[1], known = batch, known * batch
  end

  -- The open size is what the others leave.
  if open then
    if known == 0 or all % known ~= 0 then
      n:fail("(%s) does not fit x, (%s)", table.concat(list, ","), table.concat(x.shape, ","))
    end
    shape[open] = all // known
  end
  return shape
end

local function reshape(n)
  local x = T.plain(n, 1)
  local list = n.inputs[2] and T.list(n, 2) or n:ints "new_shape"
  if not list then n:fail "there is no shape" end
  return kit.reshape(x, shape_for(n, x, list))
end

local function squeeze(n)
  local x, drop, shape = T.plain(n, 1), {}, {}
  local axes = n:ints("squeeze_dims", {})
  for _, d in ipairs(n:axes(axes, #x.shape)) do drop[d] = true end
  for d, size in ipairs(x.shape) do
    if drop[d] and size ~= 1 then n:fail("dimension %d has size %d", d - 1, size) end
    local goes = drop[d] or #axes == 0 and size == 1
    if not goes then shape[#shape + 1] = size end
  end
  return kit.reshape(x, shape)
end

local function expand_dims(n)
  local x = T.plain(n, 1)
  local shape = kit.copy(x.shape)
  table.insert(shape, n:axis(T.integer(n, 2), #shape + 1), 1)
  return kit.reshape(x, shape)
end

local function transpose(n)
  local x, list = n.inputs[1], T.list(n, 2)
  local rank = #x.x.shape
  local order = n:axes(list, rank)
  if #order ~= rank then n:fail("%d axes, x has %d dimensions", #order, rank) end
  -- What lies with the channels first may already be in the order that is asked for.
  local first = T.is_first(n, 1)
  for i, d in ipairs(order) do order[i] = T.axis_in(d, rank, first) end
  return kit.permute(n:x_of(x), order)
end

local function shape_of(n) return core.tensor(T.shape(n, 1), n.row.makes[1].dtype or "i32") end

local function broadcast_to(n)
  local x, list = T.plain(n, 1), T.list(n, 2)
  n:check_room(list)
  return kit.expand(x, list)
end

local function fill(n)
  local list = T.list(n, 1)
  n:check_room(list)
  return kit.expand(kit.reshape(n:x(2), kit.fill(#list, 1)), list)
end

local function tile(n) return T.onnx(n, "Tile", { T.plain(n, 1), i64(T.list(n, 2)) }) end

-- ---- parts --------------------------------------------------------------------------------------

--- Inputs that are put together: `count` of them from `from` on, in one layout, and the axis in it.
local function parts_of(n, axis)
  local count = #n.row.inputs
  local xs, first = T.together(n, count)
  local rank = #n.inputs[1].x.shape
  return xs, T.axis_in(n:axis(axis, rank), rank, first), first
end

local function concatenation(n)
  local xs, axis, first = parts_of(n, n:int("axis", 0))
  local y = T.quantised(n.row.makes[1])

  -- Parts in another scale than the result's are brought to it; those in the same stay the bytes
  -- that they are.
  for i, x in ipairs(xs) do
    local t = y and T.quantised(n.row.reads[i])
    if t and (t.scale[1] ~= y.scale[1] or t.zero[1] ~= y.zero[1]) then
      xs[i] = T.quantise(n, T.dequantised(x, t, first), y)
    end
  end
  local joined = kit.concat(xs, axis)
  return T.as(n, y and joined or T.activated(n, joined), first)
end

local function pack(n)
  local axis, xs = n:int("axis", 0), {}
  for i = 1, #n.row.inputs do
    local x = T.plain(n, i)
    -- Each part gets a dimension of size 1, along which they are put together.
    local at = n:axis(axis, #x.shape + 1)
    local shape = kit.copy(x.shape)
    table.insert(shape, at, 1)
    xs[i] = kit.reshape(x, shape)
  end
  return kit.concat(xs, n:axis(axis, #xs[1].shape))
end

--- Parts of these sizes along an axis of input i.
local function cut(n, i, axis, sizes)
  local first, rank = T.is_first(n, i), #n.inputs[i].x.shape

  local d, at, out = T.axis_in(n:axis(axis, rank), rank, first), 1, {}
  local x, all = n:x_of(n.inputs[i]), 0
  for _, size in ipairs(sizes) do all = all + size end
  if all ~= x.shape[d] then n:fail("parts of %d in all, x has %d", all, x.shape[d]) end

  for k, size in ipairs(sizes) do
    out[k] = T.as(n, kit.part(x, d, at, size), first)
    at = at + size
  end
  return table.unpack(out)
end

--- The size of input i along an axis.
local function size_of(n, i, axis)
  local shape = T.shape(n, i)
  return shape[n:axis(axis, #shape)]
end

local function split(n)
  local axis, count = T.integer(n, 1), #n.row.outputs
  local size = size_of(n, 2, axis)
  if size % count ~= 0 then n:fail("%d in %d parts", size, count) end
  return cut(n, 2, axis, kit.fill(count, size // count))
end

local function split_v(n)
  local sizes, axis, open = T.list(n, 2), T.integer(n, 3), nil
  local rest = size_of(n, 1, axis)
  for k, size in ipairs(sizes) do
    if size < 0 then open = k else rest = rest - size end
  end
  if open then sizes[open] = rest end
  return cut(n, 1, axis, sizes)
end

local function unpack(n)
  local x, axis = T.plain(n, 1), n:int("axis", 0)
  local d = n:axis(axis, #x.shape)
  local out, shape = {}, kit.copy(x.shape)
  if x.shape[d] ~= #n.row.outputs then
    n:fail("%d positions, %d outputs", x.shape[d], #n.row.outputs)
  end
  table.remove(shape, d)
  for k = 1, #n.row.outputs do out[k] = kit.reshape(kit.part(x, d, k, 1), shape) end
  return table.unpack(out)
end

--- ONNX's Slice of dimensions as the layout has them.
local function sliced(n, i, starts, ends, steps)
  local first, rank = T.is_first(n, i), #n.inputs[i].x.shape
  local axes = {}
  for d = 1, #starts do axes[d] = T.axis_in(d, rank, first) - 1 end
  if #starts > rank then n:fail("%d starts, x has %d dimensions", #starts, rank) end
  local y = T.onnx(n, "Slice", { n:x_of(n.inputs[i]), i64(starts), i64(ends), i64(axes),
    i64(steps) })
  return y, first
end

local FAR = 1 << 40

local function slice(n)
  local starts, sizes, ends = T.list(n, 2), T.list(n, 3), {}
  for d, size in ipairs(sizes) do ends[d] = size < 0 and FAR or (starts[d] or 0) + size end
  local y, first = sliced(n, 1, starts, ends, kit.fill(#starts, 1))
  return T.as(n, y, first)
end

--- One range a place of the masks: {start, stop, step, what becomes of it}.
local function ranges(n, rank)
  local begins, ends, steps = T.list(n, 2), T.list(n, 3), T.list(n, 4)
  if #ends ~= #begins or #steps ~= #begins then
    n:fail("%d begins, %d ends, %d strides", #begins, #ends, #steps)
  end
  local function bit(name, i) return n:int(name, 0) >> (i - 1) & 1 == 1 end
  local list, n_new, has_ellipsis = {}, 0, false
  for i = 1, #begins do
    if bit("new_axis_mask", i) then n_new = n_new + 1 end
    has_ellipsis = has_ellipsis or bit("ellipsis_mask", i)
  end

  -- The ellipsis stands for all dimensions that no other place speaks of.
  local covered = #begins - n_new - (has_ellipsis and 1 or 0)
  for i = 1, #begins do
    local step = steps[i]
    if bit("ellipsis_mask", i) then
      for _ = 1, rank - covered do list[#list + 1] = { 0, FAR, 1, "keep" } end
    elseif bit("new_axis_mask", i) then
      list[#list + 1] = { what = "new" }
    elseif bit("shrink_axis_mask", i) then
      list[#list + 1] = { begins[i], begins[i] == -1 and FAR or begins[i] + 1, 1, "drop" }
    else
      if step == 0 then n:fail "a step of 0" end
      -- A bound that a mask leaves out is the end that the step comes from, or goes to.
      local start = bit("begin_mask", i) and (step > 0 and 0 or FAR) or begins[i]
      local stop = bit("end_mask", i) and (step > 0 and FAR or -FAR) or ends[i]
      if n:flag "offset" and not bit("end_mask", i) then stop = stop + begins[i] end
      list[#list + 1] = { start, stop, step, "keep" }
    end
  end
  return list
end

local function strided_slice(n)
  local rank = #n.inputs[1].x.shape
  local list = ranges(n, rank)

  -- What is no new dimension is a range of x; new and dropped ones are then a matter of the shape,
  -- in the file's order.
  local starts, ends, steps, reshaped = {}, {}, {}, false
  for _, r in ipairs(list) do
    if r.what ~= "new" then
      starts[#starts + 1], ends[#ends + 1], steps[#steps + 1] = r[1], r[2], r[3]
    end
    reshaped = reshaped or r.what == "new" or r[4] == "drop"
  end
  local y, first = sliced(n, 1, starts, ends, steps)
  if not reshaped then return T.as(n, y, first) end
  if first then y = T.channels_last(y) end

  local shape, d = {}, 1
  for _, r in ipairs(list) do
    if r.what == "new" then
      shape[#shape + 1] = 1
    else
      if r[4] ~= "drop" then
        shape[#shape + 1] = y.shape[d]
      elseif y.shape[d] ~= 1 then
        n:fail("position %d of %d", r[1], n.inputs[1].x.shape[d])
      end
      d = d + 1
    end
  end
  -- Dimensions behind those that the masks speak of stay.
  table.move(y.shape, d, #y.shape, #shape + 1, shape)
  return kit.reshape(y, shape)
end

-- ---- pads ---------------------------------------------------------------------------------------

--- The pads before and behind each dimension, and how many dimensions there are.
local function pads_of(n)
  local list, rank = T.list(n, 2), #n.inputs[1].x.shape
  if #list ~= 2 * rank then n:fail("%d pads for %d dimensions", #list, rank) end
  for _, pad in ipairs(list) do
    if pad < 0 then n:fail("a pad of %d, at least 0 is expected", pad) end
  end
  return list, rank
end

--- Pads (rank, 2) of the file as Neap has them, in the layout.
local function padded(n, attrs)
  local list, rank = pads_of(n)
  local first, pads = T.is_first(n, 1), {}
  for d = 1, rank do
    local at = T.axis_in(d, rank, first)
    pads[at], pads[rank + at] = list[2 * d - 1], list[2 * d]
  end
  attrs.pads = pads

  local room = kit.map(n.inputs[1].x.shape, function(size, d)
    return size + pads[d] + pads[rank + d]
  end)
  n:check_room(room)
  return T.as(n, F.Pad(n:x_of(n.inputs[1]), attrs), first)
end

local function pad(n)
  local t, value = T.quantised(n.row.makes[1]), 0
  if t then value = t.zero[1] end
  if n.inputs[3] then value = n:scalar(3) end
  return padded(n, { value = value })
end

local function mirror_pad(n)
  if n:int("mode", 0) == 0 then return padded(n, { mode = "reflect" }) end
  -- With its edge: what is mirrored is put before and behind by hand.
  local x, list, rank = T.plain(n, 1), pads_of(n)
  for d = 1, rank do
    local before, behind, size = list[2 * d - 1], list[2 * d], x.shape[d]
    if math.max(before, behind) > size then
      n:fail("pads of %d and %d, x has %d", before, behind, size)
    end
    local parts = { x }
    if before > 0 then
      table.insert(parts, 1, F.Flip(kit.part(x, d, 1, before), { axes = { d } }))
    end
    if behind > 0 then
      parts[#parts + 1] = F.Flip(kit.part(x, d, size - behind + 1, behind), { axes = { d } })
    end
    x = kit.concat(parts, d)
  end
  return x
end

-- ---- blocks -------------------------------------------------------------------------------------

--- Channels are counted last, blocks before them: as ONNX's CRD and DCR have it.
local function depth_to_space(n)
  local x = T.first(n, 1)
  return T.as_first(n, T.onnx(n, "DepthToSpace", { x },
    { blocksize = n:int("block_size", 0), mode = "DCR" }))
end

local function space_to_depth(n)
  local x = T.first(n, 1)
  return T.as_first(n, T.onnx(n, "SpaceToDepth", { x }, { blocksize = n:int("block_size", 0) }))
end

--- Raises unless x has a dimension behind the first for each block, and each has two edges.
local function check_blocks(n, x, block, edges)
  if #x.shape <= #block or #edges ~= 2 * #block then
    n:fail("%d blocks with %d pads or crops, x has %d dimensions", #block, #edges, #x.shape)
  end
  for _, size in ipairs(block) do
    if size < 1 then n:fail("a block of %d", size) end
  end
end

--- x (N, spatial.., rest..) in blocks: each block's places become batches, its own the outer ones.
local function space_to_batch(n)
  local x, block, pads = T.plain(n, 1), T.list(n, 2), T.list(n, 3)
  check_blocks(n, x, block, pads)
  local k, shape, t = #block, { 1 }, T.quantised(n.row.makes[1])

  local all = kit.fill(2 * #x.shape, 0)
  for d = 1, k do
    all[1 + d], all[#x.shape + 1 + d] = pads[2 * d - 1], pads[2 * d]
  end
  x = F.Pad(x, { pads = all, value = t and t.zero[1] or 0 })
  shape[1] = x.shape[1]
  local order, out = {}, { x.shape[1] * kit.product(block) }

  -- Each spatial dimension becomes (blocks, places of a block); places go in front of the batch, so
  -- that a batch holds one place of all blocks.
  for d = 1, k do
    local size = x.shape[1 + d]
    if size % block[d] ~= 0 then n:fail("%d in blocks of %d", size, block[d]) end
    table.move({ size // block[d], block[d] }, 1, 2, #shape + 1, shape)
    order[d] = 2 * d + 1
    out[1 + d] = size // block[d]
  end
  order[k + 1] = 1
  for d = 1, k do order[#order + 1] = 2 * d end
  -- Behind the spatial ones nothing moves.
  for d = k + 2, #x.shape do
    shape[#shape + 1], order[#order + 1] = x.shape[d], #shape + 1
    out[#out + 1] = x.shape[d]
  end
  return kit.reshape(kit.permute(kit.reshape(x, shape), order), out)
end

local function batch_to_space(n)
  local x, block, crops = T.plain(n, 1), T.list(n, 2), T.list(n, 3)
  check_blocks(n, x, block, crops)
  local k, all = #block, kit.product(block)
  if x.shape[1] % all ~= 0 then n:fail("%d batches in blocks of %d", x.shape[1], all) end
  local batch = x.shape[1] // all

  -- The way back: batches come as (places of each block.., batch), and each spatial dimension takes
  -- its places in again, behind its blocks.
  local shape, order, out = kit.copy(block), { k + 1 }, { batch }
  shape[k + 1] = batch
  for d = 1, k do
    shape[#shape + 1] = x.shape[1 + d]
    order[#order + 1], order[#order + 2] = k + 1 + d, d
    out[1 + d] = x.shape[1 + d] * block[d]
  end
  for d = k + 2, #x.shape do
    shape[#shape + 1] = x.shape[d]
    order[#order + 1] = #shape
    out[#out + 1] = x.shape[d]
  end

  local y = kit.reshape(kit.permute(kit.reshape(x, shape), order), out)
  for d = 1, k do
    local before, behind = crops[2 * d - 1], crops[2 * d]
    y = kit.part(y, 1 + d, before + 1, y.shape[1 + d] - before - behind)
  end
  return y
end

-- ---- resizing -----------------------------------------------------------------------------------

--- The sizes (height, width) of input 2, of images with the channels first.
local function resized(n, x, attrs)
  local sizes = T.list(n, 2)
  if #x.shape ~= 4 or #sizes ~= 2 then n:fail("sizes of %d dimensions of images", #sizes) end
  for _, size in ipairs(sizes) do
    if size < 1 then n:fail("a size of %d", size) end
  end

  attrs.axes = { 2, 3 }
  local at = n:flag "half_pixel_centers" and "half_pixel" or "asymmetric"
  attrs.coordinate_transformation_mode = n:flag "align_corners" and "align_corners" or at
  return T.onnx(n, "Resize", { x, false, false, i64(sizes) }, attrs)
end

--- What each of `out` rows takes of `size` rows, in 1024ths, as the standard counts places: (out,
-- size).
local function shares(n, size, out)
  local align, half = n:flag "align_corners" and out > 1, n:flag "half_pixel_centers"
  local step = (1024 * size + out // 2) // out
  if align then step = (1024 * (size - 1) + (out - 1) // 2) // (out - 1) end
  local rows = {}
  for i = 0, out - 1 do
    -- Two neighbours; at the border both are the same row, which gets all 1024.
    local at = i * step + (half and step // 2 - 512 or 0)
    local low = math.max(0, math.min(at // 1024, size - 1))
    local high = math.max(0, math.min((at + 1023) // 1024, size - 1))
    local row = kit.fill(size, 0)
    row[low + 1] = 1024 - (at - 1024 * low)
    row[high + 1] = row[high + 1] + (at - 1024 * low)
    rows[i + 1] = row
  end
  return core.tensor(rows, "f64")
end

--- Of signed integers: two products of whole numbers, rounded once, halves away from 0.
local function resize_integers(n, x)
  local sizes = T.list(n, 2)
  for d, size in ipairs(sizes) do
    if size < 1 then n:fail("a size of %d", size) end
    n:check_room({ size, x.shape[2 + d] }, true)
  end
  local rows, columns = shares(n, x.shape[3], sizes[1]), shares(n, x.shape[4], sizes[2])
  local sums = F.MatMul({ F.MatMul { rows, kit.cast(x, "f64") }, columns }, { trans_b = true })
  return kit.cast(T.round(F.Mul { sums, kit.number(2^-20, "f64") }), x.dtype)
end

local function resize_bilinear(n)
  local x, t = T.first(n, 1), T.quantised(n.row.reads[1])
  local own = t and (t.dtype == "i8" or t.dtype == "i16")
  if own and #x.shape == 4 and #T.list(n, 2) == 2 then
    return T.as_first(n, resize_integers(n, x))
  end
  if t then x = T.dequantised(x, t, true) end
  local y = resized(n, x, { mode = "linear" })
  if t then y = T.quantise(n, y, n.row.makes[1]) end
  return T.as_first(n, y)
end

local function resize_nearest(n)
  local rounded = n:flag "align_corners" or n:flag "half_pixel_centers"
  return T.as_first(n, resized(n, T.first(n, 1), { mode = "nearest",
    nearest_mode = rounded and "round_prefer_ceil" or "floor" }))
end

-- ---- by number ----------------------------------------------------------------------------------

--- Indices beside which x has its first dimensions: `batch_dims` of them.
local function gather(n)
  local x, at, axis = T.plain(n, 1), n:x(2), n:int("axis", 0)
  local dims = n:int("batch_dims", 0)
  if dims == 0 then return T.onnx(n, "Gather", { x, at }, { axis = axis }) end
  local d = n:axis(axis, #x.shape)
  if dims < 0 or dims >= d or #at.shape ~= dims + 1 then
    n:fail("batch_dims of %d", n:int("batch_dims", 0))
  end
  -- One number for each position: it is repeated over what is between and behind.
  local shape, full = kit.fill(#x.shape, 1), kit.copy(x.shape)
  for i = 1, dims do shape[i] = at.shape[i] end
  shape[d], full[d] = at.shape[dims + 1], at.shape[dims + 1]
  return T.onnx(n, "GatherElements", { x, kit.expand(kit.reshape(at, shape), full) },
    { axis = d - 1 })
end

local function delegate(name, count, attrs_of)
  return function(n)
    local xs = {}
    for i = 1, math.min(count, #n.row.inputs) do xs[i] = n.inputs[i] and T.plain(n, i) or false end
    return T.onnx(n, name, xs, attrs_of and attrs_of(n), #n.row.outputs)
  end
end

local function scatter_nd(n)
  local at, values, shape = n:x(1), n:x(2), T.list(n, 3)
  n:check_room(shape, true)
  local zeros = kit.full(shape, 0, values.dtype)
  return T.onnx(n, "ScatterND", { zeros, at, values }, { reduction = "add" })
end

local function one_hot(n)
  local depth, on, off = T.list(n, 2), n:x(3), n:x(4)
  local values = kit.concat({ kit.reshape(off, { 1 }), kit.reshape(on, { 1 }) }, 1)
  return T.onnx(n, "OneHot", { n:x(1), i64(depth), values }, { axis = n:int("axis", -1) })
end

local function reverse(n)
  local x = T.plain(n, 1)
  return F.Flip(x, { axes = n:axes(T.list(n, 2), #x.shape) })
end

local function embedding_lookup(n)
  local t = T.quantised(n.row.reads[2])
  local rows = T.onnx(n, "Gather", { n:x(2), n:x(1) }, { axis = 0 })
  return t and not T.quantised(n.row.makes[1]) and T.dequantised(rows, t) or rows
end

local function range(n)
  return T.onnx(n, "Range", { n:x(1), n:x(2), n:x(3) })
end

return function(op, needs)
  needs[2] = "EXPAND_DIMS TRANSPOSE BROADCAST_TO FILL TILE SPLIT PAD MIRROR_PAD RESIZE_BILINEAR \z
    RESIZE_NEAREST_NEIGHBOR GATHER GATHER_ND REVERSE_V2 REVERSE_SEQUENCE EMBEDDING_LOOKUP"
  needs[3] = "SPLIT_V SLICE PADV2 SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND SCATTER_ND RANGE"
  needs[4] = "STRIDED_SLICE ONE_HOT"
  op.RESHAPE, op.SQUEEZE, op.EXPAND_DIMS, op.TRANSPOSE = reshape, squeeze, expand_dims, transpose
  op.SHAPE, op.BROADCAST_TO, op.FILL, op.TILE = shape_of, broadcast_to, fill, tile
  function op.RANK(n) return core.tensor(#n.inputs[1].x.shape, "i32") end
  function op.ZEROS_LIKE(n)
    local x = T.plain(n, 1)
    n:check_room(x.shape, true)
    return kit.full(x.shape, 0, x.dtype)
  end
  op.CONCATENATION, op.PACK, op.UNPACK = concatenation, pack, unpack
  op.SPLIT, op.SPLIT_V, op.SLICE, op.STRIDED_SLICE = split, split_v, slice, strided_slice
  op.PAD, op.PADV2, op.MIRROR_PAD = pad, pad, mirror_pad
  op.DEPTH_TO_SPACE, op.SPACE_TO_DEPTH = depth_to_space, space_to_depth
  op.SPACE_TO_BATCH_ND, op.BATCH_TO_SPACE_ND = space_to_batch, batch_to_space
  op.RESIZE_BILINEAR, op.RESIZE_NEAREST_NEIGHBOR = resize_bilinear, resize_nearest
  op.GATHER, op.GATHER_ND, op.SCATTER_ND = gather, delegate("GatherND", 2), scatter_nd
  op.REVERSE_V2, op.REVERSE_SEQUENCE = reverse, delegate("ReverseSequence", 2, function(n)
    return { time_axis = n:int("seq_dim", 0), batch_axis = n:int("batch_dim", 0) }
  end)
  op.EMBEDDING_LOOKUP, op.RANGE, op.ONE_HOT = embedding_lookup, range, one_hot
end
