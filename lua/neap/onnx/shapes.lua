--- ONNX's ops that say shapes, make constants, and move elements.
-- @module neap.onnx.shapes
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
    starts, ends, axes, steps = n:list(2), n:list(3), n:list(4), n:list(5)
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
    if count == 0 then
      attrs.starts[at], attrs.ends[at], attrs.steps[at] = 1, 0, 1
    else
      attrs.starts[at], attrs.ends[at] = first + 1, first + (count - 1) * step + 1
      attrs.steps[at] = step
    end
    attrs.axes[at] = d
  end
  return #attrs.axes > 0 and F.Slice(x, attrs) or x
end

--- Pads as Neap takes them: begins, then ends, for the dimensions in `axes`.
local function pads_of(n, x)
  local pads = n.version < 11 and (n:ints "pads" or n:ints "paddings") or n:list(2)
  local axes = n:given(4) and n:axes(n:list(4), #x.shape) or kit.count(#x.shape)
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
    return { x = t.tensor, elem = t.elem, parameter = is_weight }
  end
  for _, kind in ipairs { "int", "float", "ints", "floats" } do
    local value = n[kind](n, "value_" .. kind)
    local dtype = kind:match "^int" and "i64" or "f32"
    if value and (type(value) == "number" or #value > 0) then return core.tensor(value, dtype) end
    if value then return core.zeros { 0, dtype = dtype } end
  end
  if n:has "value_string" then return { texts = { n:text "value_string" } } end
  n:fail "a constant without a value that Neap reads"
end

return function(op)
  op.Constant = constant

  -- ---- shapes -----------------------------------------------------------------------------------

  function op.Shape(n, x)
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
    local list = n:ints_or_input("shape", 2)
    return kit.reshape(x, shape_for(n, x, list, n:flag "allowzero"))
  end
  function op.Flatten(n, x)
    local axis = n:int("axis", 1)
    axis = axis < 0 and axis + #x.shape or axis
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
    local list = n:ints_or_input("axes", 2)
    local axes = n:axes(list, #x.shape + #list)
    table.sort(axes)
    return #axes > 0 and kit.unsqueeze(x, axes) or x
  end
  function op.Expand(n, x)
    local shape = kit.broadcast(x.shape, n:list(2))
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
    for i, on in ipairs(keep) do
      if on == true or on == 1 then indices[#indices + 1] = i - 1 end
    end
    return F.Gather({ x, vector(indices) }, { axis = n:axis(axis, #x.shape) })
  end
  function op.NonZero(n) return kit.cast(F.NonZero(n:known(1)), "i64") end

  function op.Tile(n, x)
    if n.version < 6 then
      local repeats = kit.fill(#x.shape, 1)
      repeats[n:axis(n:scalar(3), #x.shape)] = n:scalar(2)
      return F.Tile(x, { repeats = repeats })
    end
    local repeats = n:list(2)
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
    local sizes = n:list(2)
    local axes = n:ints "axes" and n:axes(n:ints "axes", #x.shape) or kit.count(#x.shape)
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
    return F[n:flag("upper", true) and "Triu" or "Tril"](x, { diagonal = n:scalar(2) or 0 })
  end

  -- ---- constants --------------------------------------------------------------------------------

  function op.ConstantOfShape(n)
    local shape, t = n:list(1), n:tensor "value"
    n:check_room(shape)
    local value, dtype = 0, "f32"
    if t then value, dtype = t.tensor:reshape(-1):totable()[1], t.tensor.dtype end
    if type(value) == "boolean" then value = value and 1 or 0 end
    local y = core.eager("Constant", {}, { shape = shape, value = value, dtype = dtype })
    return { x = y, elem = t and t.elem, parameter = kit.is_float(y) and #shape > 0 }
  end

  function op.Range(n)
    local from, limit, delta = n:known(1), n:scalar(2), n:scalar(3)
    local start, dtype = n:scalar(1), from.dtype
    if delta == 0 then n:fail "a delta of 0" end
    local count = math.max(math.ceil((limit - start) / delta), 0)
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
    local rows, columns, k = x.shape[1], x.shape[2], n:int("k", 0)
    local r = core.eager("Range", {}, { stop = rows, dtype = "i64" })
    local c = core.eager("Range", {}, { stop = columns, dtype = "i64" })
    local on = F.Eq { F.Add { kit.reshape(r, { rows, 1 }), kit.number(k, "i64") }, c }
    return { x = kit.cast(on, dtype), elem = n:int("dtype", n:elem(1)) }
  end

  --- Depth is known; on and off need not be.
  function op.OneHot(n, indices)
    local depth, values = n:scalar(2), n:x(3)
    local rank = #indices.shape + 1
    local axis = n:axis(n:int("axis", -1), rank)
    n:check_room { kit.product(indices.shape) * depth + 0.0 }
    if kit.is_float(indices) then indices = F.Trunc(indices) end
    local hot = F.OneHot(kit.cast(indices, "i64"), { depth = depth, axis = axis })
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
