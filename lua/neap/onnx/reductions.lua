--- ONNX's reductions, and what runs along one dimension.
-- @module neap.onnx.reductions
local kit = require "neap.onnx.kit"
local F = kit.F

--- The dimensions that a reduction runs over; nil: each element by itself, as
-- `noop_with_empty_axes` says.
local function axes_of(n, x)
  local list = n:ints_or_input("axes", 2)
  if list and #list > 0 then return n:axes(list, #x.shape) end
  if n:flag "noop_with_empty_axes" then return nil end
  return kit.count(#x.shape)
end

--- A scalar has no dimensions to reduce: it gets one, which goes again.
local function reduced(n, x, f)
  local axes = axes_of(n, x)
  if axes == nil then return f(kit.unsqueeze(x, { 1 }), { axes = { 1 }, keepdim = false }) end
  if #axes == 0 then return f(kit.reshape(x, { 1 }), { axes = { 1 }, keepdim = false }) end
  return f(x, { axes = axes, keepdim = n:flag("keepdims", true) })
end

--- A reduction by an op of Neap's, whose result has x's dtype.
local function by(name)
  return function(n, x)
    return reduced(n, x, function(y, attrs) return kit.cast(F[name](y, attrs), x.dtype) end)
  end
end

--- One that is computed in floats: of integers in f64, cut towards 0.
local function in_floats(name)
  return function(n, x)
    if kit.is_float(x) then return by(name)(n, x) end
    return reduced(n, kit.cast(x, "f64"), function(y, attrs)
      return kit.cast(F.Trunc(F[name](y, attrs)), x.dtype)
    end)
  end
end

--- The largest of nothing is less than all numbers.
local function extreme(name, of_nothing)
  return function(n, x)
    return reduced(n, x, function(y, attrs)
      local empty = false
      for _, d in ipairs(attrs.axes) do empty = empty or y.shape[d] == 0 end
      if not empty then
        local wide = y.dtype == "bool" and kit.cast(y, "u8") or y
        return kit.cast(F[name](wide, attrs), x.dtype)
      end

      -- Neap's ops have no extreme of no elements: it is made by itself.
      local gone, shape = {}, {}
      for _, d in ipairs(attrs.axes) do gone[d] = true end
      for d, size in ipairs(y.shape) do
        if not gone[d] or attrs.keepdim then shape[#shape + 1] = gone[d] and 1 or size end
      end
      return n:make("Constant", { shape = shape, dtype = x.dtype, value = of_nothing(x.dtype) })
    end)
  end
end

local least = { i8 = -128, u8 = 0, i16 = -32768, u16 = 0, i32 = -2^31, i64 = math.mininteger,
  bool = 0 }
local most = { i8 = 127, u8 = 255, i16 = 32767, u16 = 65535, i32 = 2^31 - 1,
  i64 = math.maxinteger, bool = 1 }

--- Softmax and the like: up to opset 12 all dimensions from `axis` on are one.
local function along(name)
  return function(n, x)
    local rank = #x.shape
    if n.version >= 13 then
      return F[name](x, { axis = n:axis(n:int("axis", -1), rank) })
    end

    local axis = n:axis(n:int("axis", 1), rank)
    local flat = kit.reshape(x, { kit.product(x.shape, 1, axis - 1), kit.product(x.shape, axis) })
    return kit.reshape(F[name](flat, { axis = 2 }), x.shape)
  end
end

--- The first position of the extreme, or the last: that of the reversed dimension counted back.
local function position(name)
  return function(n, x)
    local axis = n:axis(n:int("axis", 0), #x.shape)
    local attrs = { axis = axis, keepdim = n:flag("keepdims", true) }
    if not n:flag "select_last_index" then return kit.cast(F[name](x, attrs), "i64") end
    local back = kit.cast(F[name](F.Flip(x, { axes = { axis } }), attrs), "i64")
    return F.Sub { kit.number(x.shape[axis] - 1, "i64"), back }
  end
end

--- Running sums and products; the axis is an input.
local function running(name)
  return function(n, x)
    return F[name](x, { axis = n:axis(n:integer(2), #x.shape), exclusive = n:flag "exclusive",
      reverse = n:flag "reverse" })
  end
end

-- ---- the way back -------------------------------------------------------------------------------

--- A reduction in the result's dtype; its axes are an input from `version` on.
local function reduces(name, version)
  return function(n, x)
    local rank, axes = #n:dims(1), n:axes(n.attrs.axes)
    local dtype = n:result().dtype
    if n:dtype(1) ~= dtype then x = n:cast(x, dtype) end
    if rank == 0 then return n:node("Identity", { x }) end
    return n:reduce(name, x, axes, n.attrs.keepdim, version)
  end
end

--- f(x, axis) along the op's axis; a scalar gets a dimension, which goes again.
local function along_axis(f)
  return function(n, x)
    if #n:dims(1) > 0 then return f(n, x, n:axis(n.attrs.axis)) end
    return kit.unpack_map(function(y) return n:reshape(y, {}) end, f(n, n:reshape(x, { 1 }), 0))
  end
end

local function one_axis(name)
  return along_axis(function(n, x, axis) return n:node(name, { x }, { axis = axis }) end)
end

--- f(x, axis, size) along the op's axis, or over all elements in a row, which an op does that is
-- given no axis: its result says which.
local function axis_or_all(f)
  return function(n, x)
    -- Which of both it was follows from the sizes alone: those left, in their order, must be x's
    -- without the axis.
    local dims, want = n:dims(1), n:result().dims
    local axis = #dims > 0 and n:axis(n.attrs.axis) or 0
    local left = n.attrs.keepdim and #dims or #dims - 1
    local same = #dims > 0 and #want == left
    for d, size in ipairs(want) do
      local of = n.attrs.keepdim and d or d <= axis and d or d + 1
      if n.attrs.keepdim and d == axis + 1 then of = nil end
      local before = of and dims[of]
      local a, b = before, size
      if type(a) == "table" and type(b) == "table" then
        a, b = a.text or table.concat(a.sizes, " "), b.text or table.concat(b.sizes, " ")
      end
      same = same and (of == nil or a == b)
    end

    if same then return f(n, x, axis, dims[axis + 1]) end
    local all = kit.product(n:static(dims, "how many there are"))
    return kit.unpack_map(function(y) return n:reshape(y, want) end,
      f(n, n:reshape(x, { all }), 0, all))
  end
end

local function extreme_at(name)
  return axis_or_all(function(n, x, axis)
    local y = n:node(name, { x }, { axis = axis, keepdims = n.attrs.keepdim })
    return n:as_result(y, "i64")
  end)
end

local function runs(name, version)
  return along_axis(function(n, x, axis)
    if version then n:needs(version) end
    return n:node(name, { x, n:const(kit.number(axis, "i64")) },
      { exclusive = n.attrs.exclusive, reverse = n.attrs.reverse })
  end)
end

--- The k largest or smallest, or all in order: values, indices.
local function top(n, x, axis, k, largest, sorted)
  return n:node("TopK", { x, n:const { k } }, { axis = axis, largest = largest, sorted = sorted },
    2)
end

local function write(out)
  out.Sum, out.Mean = reduces("ReduceSum", 13), reduces "ReduceMean"
  out.Prod, out.Max, out.Min = reduces "ReduceProd", reduces "ReduceMax", reduces "ReduceMin"
  out.Softmax, out.LogSoftmax = one_axis "Softmax", one_axis "LogSoftmax"
  out.ArgMax, out.ArgMin = extreme_at "ArgMax", extreme_at "ArgMin"
  out.CumSum, out.CumProd = runs "CumSum", runs("CumProd", 26)
  out.TopK = along_axis(function(n, x, axis)
    local values, at = top(n, x, axis, n.attrs.k, n.attrs.largest, n.attrs.sorted)
    return values, n.results[2] and n:as_result(at, "i64", 2)
  end)
  local function sorted(n, x, axis)
    local size = n:static({ n:dims(1)[axis + 1] or 1 }, "what is sorted")[1]
    return top(n, x, axis, size, n.attrs.descending, true)
  end
  out.Sort = along_axis(function(n, x, axis)
    local values, at = sorted(n, x, axis)
    return values, n.results[2] and n:as_result(at, "i64", 2)
  end)
  out.ArgSort = along_axis(function(n, x, axis)
    local _, at = sorted(n, x, axis)
    return n:as_result(at, "i64")
  end)
  --- The last of the smaller half.
  out.Median = axis_or_all(function(n, x, axis, size)
    local k = (n:static({ size }, "what is sorted")[1] + 1) // 2
    local values, at = top(n, x, axis, k, false, true)
    local last = n.attrs.keepdim and n:const { k - 1 } or n:const(kit.number(k - 1, "i64"))
    local function pick(v) return n:node("Gather", { v, last }, { axis = axis }) end
    return pick(values), n.results[2] and n:as_result(pick(at), "i64", 2)
  end)
end

return function(op, writers)
  write(writers)
  op.ReduceSum, op.ReduceProd = by "Sum", by "Prod"
  op.ReduceMean, op.ReduceL2 = in_floats "Mean", in_floats "L2Norm"
  op.ReduceL1, op.ReduceSumSquare = in_floats "L1Norm", in_floats "SumSquare"
  op.ReduceLogSum, op.ReduceLogSumExp = in_floats "LogSum", in_floats "LogSumExp"
  op.ReduceMax = extreme("Max", function(dtype) return least[dtype] or -math.huge end)
  op.ReduceMin = extreme("Min", function(dtype) return most[dtype] or math.huge end)

  op.Softmax, op.LogSoftmax, op.Hardmax = along "Softmax", along "LogSoftmax", along "Hardmax"
  op.ArgMax, op.ArgMin = position "ArgMax", position "ArgMin"
  op.CumSum, op.CumProd = running "CumSum", running "CumProd"

  --- k is an attribute up to opset 9.
  function op.TopK(n, x)
    local values, indices = F.TopK(x, { axis = n:axis(n:int("axis", -1), #x.shape),
      k = n:given(2) and n:integer(2) or n:int "k", largest = n:flag("largest", true),
      sorted = n:flag("sorted", true) })
    return values, kit.cast(indices, "i64")
  end

  function op.LpNormalization(n, x)
    local axis, p = n:axis(n:int("axis", -1), #x.shape), n:int("p", 2)
    if p ~= 1 and p ~= 2 then n:fail("a norm of p = %d, expected 1 or 2", p) end

    local norm = F[p == 1 and "L1Norm" or "L2Norm"](x, { axes = { axis }, keepdim = true })
    local zero = F.Eq { norm, kit.number(0, x.dtype) }
    return F.Where { zero, kit.number(0, x.dtype), F.Div { x, norm } }
  end
end
