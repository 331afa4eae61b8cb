--- ONNX's ops that say shapes, make constants, and move elements.
-- @module neap.onnx.shapes
local bags_of = require "neap.onnx.bags"
local core = require "neap.core"
local kit = require "neap.onnx.kit"
local F = kit.F

local function i64(list) return core.tensor(list, "i64") end

--- A list as an i64 tensor with one dimension, of none too.
local function vector(list)
  if #list == 0 then return core.zeros { 0, dtype = "i64" } end
  return i64(list)
end

--- Indices as a dtype that Neap's ops take.
local function indices_of(x)
  return (x.dtype == "i32" or x.dtype == "i64") and x or kit.cast(x, "i64")
end

--- The dtype of an ONNX element type.
local function dtype_of(n, elem)
  local row = kit.types[elem]
  if not row or not row.dtype then n:fail("elements of %s", row and row.name or tostring(elem)) end
  return row.dtype
end

--- Numbers from `n_before` on as a Reshape takes them: 0 is the size that x has there.
local function shape_for(n, x, list, keep_zero)
  local out, open, known = {}, nil, 1
  for i, size in ipairs(list) do
    if size == 0 and not keep_zero then
      size = x.shape[i] or n:fail("a size of 0 at %d, x has %d dimensions", i - 1, #x.shape)
    end
    if size == -1 then
      if open then n:fail "two sizes of -1" end
      open = i
    else
      known = known * size
    end
    out[i] = size
  end

  -- Of no elements any size fits the open place: 0 keeps them none.
  if open then
    local all = kit.product(x.shape)
    if known == 0 and all ~= 0 or known ~= 0 and all % known ~= 0 then
      n:fail("(%s) does not fit x, (%s)", table.concat(list, ","), table.concat(x.shape, ","))
    end
    out[open] = known == 0 and 0 or all // known
  end
  return out
end

--- The parts of a Split: those given, or `count` of one size, the last perhaps smaller.
local function split_sizes(n, size)
  local given = n:ints_or_input("split", 2)
  if given then return given end
  local count = n:int("num_outputs", #n.row.outputs)
  if count ~= #n.row.outputs then n:fail("%d parts for %d outputs", count, #n.row.outputs) end

  local each, sizes = -(-size // count), {}
  for i = 1, count do
    sizes[i] = math.min(each, size)
    size = size - sizes[i]
  end
  return sizes
end

--- One range of a Slice: start and end as ONNX counts them, end not included, in Neap's positions.
local function range_of(start, stop, step, size)
  local function within(i, low, high)
    if i < 0 then i = i + size end
    return math.max(low, math.min(i, high))
  end
  -- A step beyond the size reaches no second position, and is as far as counting goes.
  step = math.max(-size - 1, math.min(step, size + 1))

  local first, count
  if step > 0 then
    first = within(start, 0, size)
    count = math.max((within(stop, 0, size) - first + step - 1) // step, 0)
  else
    first = within(start, -1, size - 1)
    count = math.max((first - within(stop, -1, size - 1) - step - 1) // -step, 0)
  end
  return first, count, step
end

--- Up to opset 9 ranges are attributes, then inputs.
local function ranges(n, rank)
  local starts, ends, axes, steps
  if n.version < 10 then
    starts, ends, axes = n:ints "starts", n:ints "ends", n:ints "axes"
  else
    starts, ends, axes, steps = n:integers(2), n:integers(3), n:integers(4), n:integers(5)
  end
  if not starts or not ends then n:fail("there are no %s", starts and "ends" or "starts") end

  axes = axes and n:axes(axes, rank) or kit.count(#starts)
  steps = steps or kit.fill(#starts, 1)
  if #ends ~= #starts or #axes ~= #starts or #steps ~= #starts or #starts > rank then
    n:fail("%d starts, %d ends, %d axes and %d steps, x has %d dimensions", #starts, #ends, #axes,
      #steps, rank)
  end
  return starts, ends, axes, steps
end

local function slice(n, x)
  local attrs = { starts = {}, ends = {}, axes = {}, steps = {} }
  local starts, ends, axes, steps = ranges(n, #x.shape)
  for i, d in ipairs(axes) do
    if steps[i] == 0 then n:fail "a step of 0" end

    local size = x.shape[d]
    local first, count, step = range_of(starts[i], ends[i], steps[i], size)
    local at = #attrs.axes + 1
    -- An empty range is written as 1 to 0, which Neap's Slice takes for any size.
    if count == 0 then
      attrs.starts[at], attrs.ends[at], attrs.steps[at] = 1, 0, 1
    else
      attrs.starts[at], attrs.ends[at] = first + 1, first + (count - 1) * step + 1
      attrs.steps[at] = step
    end
    attrs.axes[at] = d
  end
  -- Steps are left out where none is needed, as Neap's Slice has them then.
  local some = false
  for _, step in ipairs(attrs.steps) do some = some or step ~= 1 end
  attrs.steps = some and attrs.steps or nil
  return #attrs.axes > 0 and F.Slice(x, attrs) or x
end

--- Pads as Neap takes them: begins, then ends, for the dimensions in `axes`.
local function pads_of(n, x)
  local pads = n.version < 11 and (n:ints "pads" or n:ints "paddings") or n:integers(2)
  pads = n:needed(pads, "the list of pads")

  local axes = n:given(4) and n:axes(n:integers(4), #x.shape) or kit.count(#x.shape)
  if #pads ~= 2 * #axes then n:fail("%d pads for %d dimensions", #pads, #axes) end
  return pads, axes
end

--- Scattering: reductions have ONNX's names; negative indices count from the end.
local function scatter(name, attrs_of)
  return function(n, x, indices, updates)
    local attrs = attrs_of(n, x)
    attrs.reduction = n:word("reduction", "none add mul min max", "none")
    return F[name]({ x, indices_of(indices), updates }, attrs)
  end
end

--- The numbers of a Constant, in whichever attribute they are.
local function constant(n)
  local t = n:tensor "value"
  if t then
    if not t.tensor then return { texts = t.texts } end
    local is_weight = kit.is_float(t.tensor) and #t.tensor.shape > 0
    return { x = t.tensor, elem = t.elem, parameter = is_weight and n.state.constants_are }
  end

  -- One number or a list; an empty list is a tensor of no elements, not a missing value.
  for _, kind in ipairs { "int", "float", "ints", "floats" } do
    local value = n[kind](n, "value_" .. kind)
    local dtype = kind:match "^int" and "i64" or "f32"
    if value and (type(value) == "number" or #value > 0) then return core.tensor(value, dtype) end
    if value then return core.zeros { 0, dtype = dtype } end
  end
  if n:has "value_string" then return { texts = { n:text "value_string" } } end
  n:fail "a constant without a value that Neap reads"
end

-- ---- the way back -------------------------------------------------------------------------------

--- A range as ONNX counts it: start, and the end that is not included.
local function written_range(first, last, step)
  -- Neap's ends are included, ONNX's not: behind the last element is as far as there is, and before
  -- the first one backwards is as far as that.
  local start = first > 0 and first - 1 or first
  if step > 0 then
    if last >= 0 then return start, last end
    return start, last == -1 and math.maxinteger or last + 1
  end
  if last > 1 then return start, last - 2 end
  if last >= 0 then return start, math.mininteger end
  return start, last - 1
end

local function write_slice(n, x, starts, ends, axes, steps)
  return n:node("Slice", { x, n:const(starts), n:const(ends), n:const(axes), n:const(steps) })
end

--- Positions first to last (from 0, included) of an axis.
local function positions(n, x, axis, first, last)
  return write_slice(n, x, { first }, { last + 1 }, { axis }, { 1 })
end

--- v in the place of a range of x, dimension by dimension.
local function with_part(n, x, v, dims, ranges, at)
  local r = ranges[at]
  if not r then return v end

  -- Before the range, the range (with the rest of the dimensions inside), behind it.
  local parts = {}
  if r.first > 0 then parts[1] = positions(n, x, r.axis, 0, r.first - 1) end
  local rest = at < #ranges and positions(n, x, r.axis, r.first, r.last) or nil
  parts[#parts + 1] = with_part(n, rest, v, dims, ranges, at + 1)
  if r.last < dims[r.axis + 1] - 1 then
    parts[#parts + 1] = positions(n, x, r.axis, r.last + 1, dims[r.axis + 1] - 1)
  end
  return #parts == 1 and parts[1] or n:node("Concat", parts, { axis = r.axis })
end

local function to_result(n, x) return n:reshape(x, n:result().dims) end

--- Indices as i64, which all of ONNX's ops take.
local function as_indices(n, i, v) return n:dtype(i) == "i64" and v or n:cast(v, "i64") end

local function scatters(name)
  return function(n, x, indices, updates)
    local reduction, attrs = n.attrs.reduction, {}
    if name == "ScatterElements" then attrs.axis = n:axis(n.attrs.axis) end
    if reduction == "min" or reduction == "max" then n:needs(18) end
    if reduction ~= "none" then
      n:needs(16)
      attrs.reduction = reduction
    end
    if (n.attrs.batch_dims or 0) ~= 0 then n:lacks "batch_dims" end
    return n:node(name, { x, as_indices(n, 2, indices), updates }, attrs)
  end
end

local function triangle(upper)
  return function(n, x)
    n:needs(14)
    return n:node("Trilu", { x, n:const(core.tensor(n.attrs.diagonal, "i64")) }, { upper = upper })
  end
end

local function write(out)
  out.Reshape = to_result
  --- From the second dimension on, of two or more: else it is a Reshape.
  function out.Flatten(n, x)
    if n:axis(n.attrs.axis) == 1 and n.attrs.last == -1 and #n:dims(1) >= 2 then
      return n:node("Flatten", { x }, { axis = 1 })
    end
    return to_result(n, x)
  end
  function out.Squeeze(n, x)
    local axes = {}
    if #n.attrs.axes > 0 then
      axes = n:axes(n.attrs.axes)
    else
      for d, size in ipairs(n:dims(1)) do
        if size == 1 then axes[#axes + 1] = d - 1 end
      end
    end
    return n:node("Squeeze", { x, n:const(axes) })
  end
  function out.Unsqueeze(n, x)
    return n:node("Unsqueeze", { x, n:const(n:axes(n.attrs.axes, #n:result().dims)) })
  end
  function out.Expand(n, x) return n:node("Expand", { x, n:shape(n:result().dims) }) end
  --- Without axes they are in reverse.
  function out.Permute(n, x)
    local axes = n:axes(n.attrs.axes)
    if #n.attrs.axes == 0 then table.sort(axes, function(a, b) return a > b end) end
    return n:transpose(x, axes)
  end
  function out.Concat(n, ...) return n:node("Concat", { ... }, { axis = n:axis(n.attrs.axis) }) end
  function out.Split(n, x)
    local axis, sizes = n:axis(n.attrs.axis), {}
    -- Sizes that the net knows by its results, else by its attribute, else equal parts.
    for k, result in ipairs(n.results) do
      sizes[k] = result.dims and result.dims[axis + 1] or n.attrs.sizes[k]
        or n:static({ n:dims(1)[axis + 1] }, "what is split")[1] // #n.results
    end
    n:static(sizes, "what is split")
    return n:node("Split", { x, n:const(sizes) }, { axis = axis }, #sizes)
  end
  function out.Slice(n, x)
    local a = n.attrs
    local starts, ends, steps, axes = {}, {}, {}, {}
    for i, first in ipairs(a.starts) do
      axes[i] = n:axis(a.axes[i] or i)
      steps[i] = a.steps[i] or 1
      starts[i], ends[i] = written_range(first, a.ends[i], steps[i])
    end
    return write_slice(n, x, starts, ends, axes, steps)
  end
  function out.SetSlice(n, x, v)
    local a, ranges, dims, want = n.attrs, {}, n:dims(1), {}
    n:static(dims, "what is written over")
    table.move(dims, 1, #dims, 1, want)
    for i, first in ipairs(a.starts) do
      local axis, last = n:axis(a.axes[i] or i), a.ends[i]
      local size = dims[axis + 1]
      if (a.steps[i] or 1) ~= 1 then n:lacks "steps other than 1" end

      -- Ranges as positions from 0, without dimensions that are written over whole.
      first, last = first < 0 and first + size or first - 1, last < 0 and last + size or last - 1
      if last < first then return x end
      if first > 0 or last < size - 1 then
        ranges[#ranges + 1] = { axis = axis, first = first, last = last }
      end
      want[axis + 1] = last - first + 1
    end

    if table.concat(n:static(n:dims(2), "v")) ~= table.concat(want) then
      v = n:node("Expand", { v, n:const(want) })
    end
    return with_part(n, x, v, dims, ranges, 1)
  end
  function out.Flip(n, x)
    local axes = n:axes(n.attrs.axes)
    if #axes == 0 then return x end
    return write_slice(n, x, kit.fill(#axes, -1), kit.fill(#axes, math.mininteger), axes,
      kit.fill(#axes, -1))
  end
  function out.Roll(n, x)
    local dims, y = n:dims(1), x
    local axes = n.attrs.axes
    -- Along no axis all elements go around as one row.
    if #axes == 0 then
      y = n:reshape(x, { kit.product(n:static(dims, "what goes around")) })
    end
    for i, shift in ipairs(n.attrs.shifts) do
      local axis = #axes > 0 and n:axis(axes[i]) or 0
      local size = #axes > 0 and n:static({ dims[axis + 1] }, "what goes around")[1]
        or kit.product(dims)

      local cut = size > 0 and shift % size or 0
      if cut ~= 0 then
        y = n:node("Concat", { positions(n, y, axis, size - cut, size - 1),
          positions(n, y, axis, 0, size - cut - 1) }, { axis = axis })
      end
    end
    return #axes > 0 and y or n:reshape(y, dims)
  end
  function out.Tile(n, x) return n:node("Tile", { x, n:const(n.attrs.repeats) }) end
  out.Tril, out.Triu = triangle(0), triangle(1)
  function out.Pad(n, x)
    local rank, mode = #n:dims(1), n.attrs.mode
    if rank == 0 then return x end
    local given, axes = n.attrs.pads, n:axes(n.attrs.axes)

    -- Pads of all dimensions in the order that the standard had first, which has no axes.
    local pads, cuts = kit.fill(2 * rank, 0), false
    for i, axis in ipairs(axes) do
      pads[axis + 1], pads[axis + 1 + rank] = given[i], given[i + #axes]
      cuts = cuts or given[i] < 0 or given[i + #axes] < 0
    end
    if cuts and mode ~= "constant" then n:lacks("a pad below 0 in mode %s", mode) end
    if mode == "wrap" then n:needs(19) end
    local value = n.attrs.value
    if n:dtype(1) == "bool" then value = value ~= 0 end
    return n:node("Pad", { x, n:const(pads), mode == "constant" and value ~= 0 and
      n:number(value) }, { mode = mode })
  end

  function out.Gather(n, x, at)
    return n:node("Gather", { x, as_indices(n, 2, at) }, { axis = n:axis(n.attrs.axis) })
  end
  function out.Embedding(n, at, weight)
    return n:node("Gather", { weight, as_indices(n, 1, at) }, { axis = 0 })
  end
  function out.EmbeddingBag(n, ids, weight, bags)
    return bags_of(n, as_indices(n, 1, ids), weight, bags and as_indices(n, 3, bags))
  end
  function out.GatherElements(n, x, at)
    local axis = n:axis(n.attrs.axis)
    return n:node("GatherElements", { x, as_indices(n, 2, at) }, { axis = axis })
  end
  function out.GatherND(n, x, at)
    at = as_indices(n, 2, at)
    return n:node("GatherND", { x, at }, { batch_dims = n.attrs.batch_dims })
  end
  out.ScatterElements = scatters "ScatterElements"
  function out.ScatterND(n, x, at, v)
    at = as_indices(n, 2, at)
    return scatters "ScatterND"(n, x, at, v)
  end
  --- Rows are added by ScatterND; another dimension is put in front, and back again.
  function out.IndexAdd(n, x, at, v)
    n:needs(16)

    -- Axes that put the indexed dimension first, those that put it back, and those of v, whose
    -- indexed dimensions are as many as the indices have.
    local rank, axis, more = #n:dims(1), n:axis(n.attrs.axis), #n:dims(2)
    local perm, back, moved = { axis }, {}, {}
    for d = 0, rank - 1 do
      if d ~= axis then perm[#perm + 1] = d end
    end
    for i, d in ipairs(perm) do back[d + 1] = i - 1 end
    for d = 0, more - 1 do moved[#moved + 1] = axis + d end
    for d = 0, rank + more - 2 do
      if d < axis or d >= axis + more then moved[#moved + 1] = d end
    end

    at = as_indices(n, 2, at)
    local where = n:node("Unsqueeze", { at, n:const { -1 } })
    if axis > 0 then x, v = n:transpose(x, perm), n:transpose(v, moved) end
    local y = n:node("ScatterND", { x, where, v }, { reduction = "add" })
    return axis > 0 and n:transpose(y, back) or y
  end
  function out.NonZero(n, x) return n:as_result(n:node("NonZero", { x }), "i64") end
  function out.Compress(n, x, keep)
    -- Along no axis the result has one dimension, whatever x has.
    local all = #n:dims(1) ~= 1 and #n:result().dims == 1
    return n:node("Compress", { x, keep }, { axis = not all and n:axis(n.attrs.axis) or nil })
  end
  function out.DepthToSpace(n, x)
    if #n:dims(1) ~= 4 then n:lacks("images of %d dimensions", #n:dims(1)) end
    return n:node("DepthToSpace", { x }, { blocksize = n.attrs.blocksize,
      mode = n.attrs.mode:upper() })
  end
  function out.SpaceToDepth(n, x)
    local b = n.attrs.blocksize
    if #n:dims(1) ~= 4 then n:lacks("images of %d dimensions", #n:dims(1)) end
    if n.attrs.mode == "dcr" then return n:node("SpaceToDepth", { x }, { blocksize = b }) end
    local d = n:dims(1)
    -- Channels first, then the place in the block, which ONNX has no mode for: by hand.
    n:static({ d[3], d[4] }, "an image's size")
    local y = n:reshape(x, { d[1], d[2], d[3] // b, b, d[4] // b, b })
    return to_result(n, n:transpose(y, { 0, 1, 3, 5, 2, 4 }))
  end
  function out.ReverseSequence(n, x, lengths)
    local time, batch = n:axis(n.attrs.time_axis), n:axis(n.attrs.batch_axis)
    if time > 1 or batch > 1 then n:lacks "axes behind the second one" end
    return n:node("ReverseSequence", { x, as_indices(n, 2, lengths) }, { time_axis = time,
      batch_axis = batch })
  end
  --- Of x only its length counts.
  function out.SequenceMask(n, _, lengths)
    local t = n:static({ n:dims(1)[1] }, "the number of steps")[1]
    local at = core.eager("Range", {}, { stop = t, dtype = n:dtype(2) })
    return n:node("Less", { n:const(kit.reshape(at, { t, 1 })), lengths })
  end

  function out.Constant(n)
    local dims, dtype = n:result().dims, n:result().dtype
    local value = n.attrs.value
    if dtype == "bool" then value = value ~= 0 end
    local one = n:number(value, dtype)
    if #dims == 0 then return n:node("Identity", { one }) end
    return n:node("Expand", { one, n:shape(dims) })
  end
  function out.Literal(n)
    return n:node("Identity", { n:const(core.eager("Literal", {}, n.attrs)) })
  end
  --- What follows from attributes alone: numbers of the file.
  for _, name in ipairs { "Range", "Eye", "Dirac" } do
    out[name] = function(n)
      n:static(n:result().dims, "how many there are")
      return n:node("Identity", { n:const(core.eager(name, {}, n.attrs)) })
    end
  end
end

return function(op, writers)
  write(writers)
  op.Constant = constant

  -- ---- shapes -----------------------------------------------------------------------------------

  function op.Shape(n, x)
    -- Bounds count from the end below 0, and are cut to what there is.
    local rank, shape = #x.shape, {}
    local function at(i, missing)
      i = i or missing
      return math.max(0, math.min(i < 0 and i + rank or i, rank))
    end
    for d = at(n:int "start", 0) + 1, at(n:int "end", rank) do shape[#shape + 1] = x.shape[d] end
    return { x = vector(shape), elem = 7 }
  end
  function op.Size(_, x)
    return { x = core.tensor(kit.product(x.shape), "i64"), elem = 7 }
  end

  function op.Reshape(n, x)
    local list = n:needed(n:ints_or_input("shape", 2), "the shape")
    return kit.reshape(x, shape_for(n, x, list, n:flag "allowzero"))
  end
  function op.Flatten(n, x)
    local axis = n:int("axis", 1)
    -- Behind the last dimension stands one more place to cut at.
    if axis ~= #x.shape then axis = n:axis(axis, #x.shape) - 1 end
    if axis == 1 and #x.shape >= 2 then return F.Flatten(x, { axis = 2 }) end
    return kit.reshape(x, { kit.product(x.shape, 1, axis), kit.product(x.shape, axis + 1) })
  end
  function op.Squeeze(n, x)
    local list, axes = n:ints_or_input("axes", 2), {}
    if list then
      axes = n:axes(list, #x.shape)
    else
      for d, size in ipairs(x.shape) do
        if size == 1 then axes[#axes + 1] = d end
      end
    end
    return #axes > 0 and F.Squeeze(x, { axes = axes }) or x
  end
  function op.Unsqueeze(n, x)
    local list = n:needed(n:ints_or_input("axes", 2), "the list of axes")
    local axes = n:axes(list, #x.shape + #list)
    table.sort(axes)
    return #axes > 0 and kit.unsqueeze(x, axes) or x
  end
  function op.Expand(n, x)
    local shape = kit.broadcast(x.shape, n:integers(2))
    n:check_room(shape)
    return kit.expand(x, shape)
  end

  function op.Transpose(n, x)
    local perm, rank, order = n:ints "perm", #x.shape, {}
    if perm and #perm ~= rank then n:fail("perm has %d axes, x has %d", #perm, rank) end
    for i = 1, rank do order[i] = rank + 1 - i end
    return kit.permute(x, perm and n:axes(perm, rank) or order)
  end

  -- ---- parts ------------------------------------------------------------------------------------

  function op.Concat(n, ...)
    local parts = table.pack(...)
    return kit.concat(parts, n:axis(n:int("axis", 1), #parts[1].shape))
  end
  function op.Split(n, x)
    local axis = n:axis(n:int("axis", 0), #x.shape)
    local parts, from = {}, 1
    local sizes, sum = split_sizes(n, x.shape[axis]), 0
    for _, size in ipairs(sizes) do
      -- One larger than all of x is the wrong sum by itself: added up, such could come round to it.
      sum = (size < 0 or size > x.shape[axis]) and math.mininteger or sum + size
      if sum < 0 then break end
    end
    if sum ~= x.shape[axis] then
      n:fail("the sizes %s do not add up to x's %d", table.concat(sizes, ", "), x.shape[axis])
    end
    for i, size in ipairs(sizes) do
      parts[i] = kit.part(x, axis, from, size)
      from = from + size
    end
    return table.unpack(parts)
  end
  op.Slice = slice

  function op.Gather(n, x, indices)
    return F.Gather({ x, indices_of(indices) }, { axis = n:axis(n:int("axis", 0), #x.shape) })
  end
  function op.GatherElements(n, x, indices)
    local axis = n:axis(n:int("axis", 0), #x.shape)
    return F.GatherElements({ x, indices_of(indices) }, { axis = axis })
  end
  function op.GatherND(n, x, indices)
    return F.GatherND({ x, indices_of(indices) }, { batch_dims = n:int("batch_dims", 0) })
  end
  op.ScatterElements = scatter("ScatterElements", function(n, x)
    return { axis = n:axis(n:int("axis", 0), #x.shape) }
  end)
  op.Scatter = op.ScatterElements
  op.ScatterND = scatter("ScatterND", function() return {} end)

  --- A cache of keys or values gets new steps at each batch's own position, around its end where
  -- the mode says so.
  function op.TensorScatter(n, x, update, at)
    local axis = n:axis(n:int("axis", -2), #x.shape)
    local size = x.shape[axis]

    -- Positions of the steps: each batch's own first one, and as many behind it.
    local batch, steps, rank = x.shape[1], update.shape[axis], #x.shape
    at = at and kit.cast(at, "i64") or core.zeros { batch, dtype = "i64" }
    local shape = kit.fill(rank, 1)
    shape[1] = batch
    local offset = n:make("Range", { stop = steps, dtype = "i64" })
    local along = kit.fill(rank, 1)
    along[axis] = steps
    local positions = F.Add { kit.reshape(at, shape), kit.reshape(offset, along) }
    if n:word("mode", "linear circular", "linear") == "circular" then
      positions = F.Mod { positions, kit.number(size, "i64") }
    end

    return F.ScatterElements({ x, kit.expand(positions, update.shape), update }, { axis = axis })
  end

  function op.Compress(n, x)
    local keep, indices = n:list(2), {}
    local axis = n:int "axis"
    if not axis then x, axis = kit.reshape(x, { -1 }), 0 end
    -- Positions that are kept.
    for i, on in ipairs(keep) do
      if on == true or on == 1 then indices[#indices + 1] = i - 1 end
    end
    return F.Gather({ x, vector(indices) }, { axis = n:axis(axis, #x.shape) })
  end
  function op.NonZero(n) return kit.cast(F.NonZero(n:known(1)), "i64") end

  function op.Tile(n, x)
    if n.version < 6 then
      local repeats, axis = kit.fill(#x.shape, 1), n:needed(n:integer(3), "input 3")
      repeats[n:axis(axis, #x.shape)] = n:needed(n:integer(2), "input 2")
      return F.Tile(x, { repeats = repeats })
    end

    local repeats = n:needed(n:integers(2), "input 2")
    n:check_room(kit.map(x.shape, function(size, d) return size * (repeats[d] or 1) + 0.0 end))
    return #x.shape > 0 and F.Tile(x, { repeats = repeats }) or x
  end

  function op.Pad(n, x)
    local pads, axes = pads_of(n, x)

    local shape = kit.copy(x.shape)
    for i, d in ipairs(axes) do shape[d] = shape[d] + pads[i] + pads[i + #axes] + 0.0 end
    n:check_room(shape)

    local mode = n:word("mode", "constant reflect edge wrap", "constant")
    local value = n:float("value", 0)
    if n.version >= 11 and n:given(3) then
      value = n:scalar(3)
      if type(value) == "boolean" then value = value and 1 or 0 end
    end
    return F.Pad(x, { pads = pads, axes = axes, mode = mode, value = value })
  end

  --- Cuts the middle out, or puts it into the middle of zeros.
  function op.CenterCropPad(n, x)
    local sizes = n:integers(2)
    local axes = n:ints "axes" and n:axes(n:ints "axes", #x.shape) or kit.count(#x.shape)

    if #sizes ~= #axes then n:fail("%d sizes for %d dimensions", #sizes, #axes) end
    n:check_room(sizes)
    for i, d in ipairs(axes) do
      local have, want = x.shape[d], sizes[i]
      if want < have then
        x = kit.part(x, d, (have - want) // 2 + 1, want)
      elseif want > have then
        local before = (want - have) // 2
        x = F.Pad(x, { pads = { before, want - have - before }, axes = { d } })
      end
    end
    return x
  end

  function op.DepthToSpace(n, x)
    return F.DepthToSpace(x, { blocksize = n:int "blocksize",
      mode = n:word("mode", { DCR = "dcr", CRD = "crd" }, "DCR") })
  end
  function op.SpaceToDepth(n, x) return F.SpaceToDepth(x, { blocksize = n:int "blocksize" }) end

  function op.ReverseSequence(n, x, lengths)
    return F.ReverseSequence({ x, kit.cast(lengths, "i64") },
      { time_axis = n:int("time_axis", 0) + 1, batch_axis = n:int("batch_axis", 1) + 1 })
  end

  function op.Trilu(n, x)
    return F[n:flag("upper", true) and "Triu" or "Tril"](x, { diagonal = n:integer(2) or 0 })
  end

  -- ---- constants --------------------------------------------------------------------------------

  function op.ConstantOfShape(n)
    local shape, t = n:integers(1), n:tensor "value"
    n:check_room(shape, true)
    local value, dtype = 0, "f32"
    if t then value, dtype = t.tensor:reshape(-1):totable()[1], t.tensor.dtype end
    if type(value) == "boolean" then value = value and 1 or 0 end
    local y = core.eager("Constant", {}, { shape = shape, value = value, dtype = dtype })
    return { x = y, elem = t and t.elem, parameter = kit.is_float(y) and #shape > 0 and "fixed" }
  end

  function op.Range(n)
    local from, limit, delta = n:known(1), n:number(2), n:number(3)
    local start, dtype = n:number(1), from.dtype
    if delta == 0 then n:fail "a delta of 0" end
    local count = math.max(math.ceil((limit - start) / delta), 0)

    -- Of integers the count is exact, without a quotient in floats.
    if math.type(start) == "integer" and math.type(delta) == "integer" then
      count = math.max(-((start - limit) // delta), 0)
    end

    n:check_room { count }
    local wide = kit.is_float(from) and "f64" or "i64"
    local steps = core.eager("Range", {}, { stop = count, dtype = wide })
    local y = F.Add { F.Mul { steps, kit.number(delta, wide) }, kit.number(start, wide) }
    return { x = kit.cast(y, dtype), elem = n:elem(1) }
  end

  function op.EyeLike(n, x)
    local dtype = n:has "dtype" and dtype_of(n, n:int "dtype") or x.dtype

    -- Ones where column is row plus k.
    local rows, columns, k = x.shape[1], x.shape[2], n:int("k", 0)
    local r = core.eager("Range", {}, { stop = rows, dtype = "i64" })
    local c = core.eager("Range", {}, { stop = columns, dtype = "i64" })
    local on = F.Eq { F.Add { kit.reshape(r, { rows, 1 }), kit.number(k, "i64") }, c }
    return { x = kit.cast(on, dtype), elem = n:int("dtype", n:elem(1)) }
  end

  --- Depth is known; on and off need not be.
  function op.OneHot(n, indices)
    local depth, values = n:integer(2), n:x(3)
    local rank = #indices.shape + 1
    local axis = n:axis(n:int("axis", -1), rank)
    n:check_room { kit.product(indices.shape) * depth + 0.0 }
    if kit.is_float(indices) then indices = F.Trunc(indices) end
    local hot = F.OneHot(kit.cast(indices, "i64"), { depth = depth, axis = axis })

    -- One at the place, 0 elsewhere, becomes on and off.
    local on, off = kit.part(values, 1, 2, 1), kit.part(values, 1, 1, 1)
    local one = kit.fill(rank, 1)
    return F.Where { kit.cast(hot, "bool"), kit.reshape(on, one), kit.reshape(off, one) }
  end

  --- Values in order, or in that of their first appearance, with where they stand.
  function op.Unique(n)
    local x = n:known(1)
    if n:has "axis" then n:fail "Unique along an axis" end
    local flat = kit.reshape(x, { -1 })
    local values, inverse, counts = F.Unique(flat, {}, 3)
    local size, order = values.shape[1], {}

    -- Where each value appears first, and the values in that order.
    local first = {}
    for i, at in ipairs(inverse:totable()) do
      if not first[at + 1] then
        first[at + 1] = i - 1
        order[#order + 1] = at
      end
    end
    if n:flag("sorted", true) or size == 0 then
      return values, vector(first), kit.cast(inverse, "i64"), kit.cast(counts, "i64")
    end

    local back = {}
    for i, at in ipairs(order) do back[at + 1] = i - 1 end
    local by, firsts = vector(order), {}
    for i, at in ipairs(order) do firsts[i] = first[at + 1] end
    local function pick(t) return F.Gather({ t, by }, { axis = 1 }) end
    return pick(values), vector(firsts), F.Gather({ vector(back), kit.cast(inverse, "i64") },
      { axis = 1 }), kit.cast(pick(counts), "i64")
  end
end
