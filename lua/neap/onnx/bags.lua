--- EmbeddingBag as ONNX's own ops, which have none of it.
-- @module neap.onnx.bags

--- A value with another dimension of 1 at `axis`, from 0.
local function unsqueezed(n, v, axis) return n:node("Unsqueeze", { v, n:const { axis } }) end

--- What bags of one dimension have of `what` (N,..) each, (B,..): they begin with `first`, a number
-- to which all is added, or of which the greater is taken. `bag` (N,1) says whose each is.
local function into_bags(n, bag, what, dims, first, reduction)
  n:needs(reduction == "add" and 16 or 18)
  local all = n:node("Expand", { n:number(first, n:dtype(2)), n:shape(dims) })
  return n:node("ScatterND", { all, bag, what }, { reduction = reduction })
end

--- Rows of a table, those of a bag added up or averaged, or the greatest of each column: a bag is a
-- row of ids, or as many ids in a row as offsets or lengths say.
return function(n, ids, weight, bags)
  local dtype, mode, padding = n:dtype(2), n.attrs.mode, n.attrs.padding_idx
  if not bags and n:dims(1)[2] == 0 then
    return n:node("Expand", { n:number(0, dtype), n:shape(n:result().dims) })
  end
  local rows = n:node("Gather", { weight, ids }, { axis = 0 })
  local ones, counts = nil, bags or padding
  if counts and (mode ~= "sum" or padding) then
    ones = n:node("Expand", { n:number(1, dtype), n:node("Shape", { ids }) })
  end

  -- What is padding adds nothing, and is greater than nothing.
  local least = -math.huge
  if padding then
    if padding < 0 then padding = padding + n:static({ n:dims(2)[1] }, "the table's length")[1] end
    local is_padding = n:node("Equal", { ids, n:number(padding, "i64") })
    rows = n:node("Where", { unsqueezed(n, is_padding, #n:dims(1)),
      n:number(mode == "max" and least or 0, dtype), rows })
    ones = n:node("Where", { is_padding, n:number(0, dtype), ones })
  end

  local y, count
  if bags then
    -- A bag's number is how many have begun by there, less the first.
    if n.attrs.by == "lengths" then
      bags = n:node("CumSum", { bags, n:number(0, "i64") }, { exclusive = 1 })
    end
    local place = n:node("Range", { n:number(0, "i64"),
      n:node("Squeeze", { n:node("Shape", { ids }), n:const { 0 } }), n:number(1, "i64") })
    local begun = n:cast(n:node("GreaterOrEqual", { unsqueezed(n, place, 1),
      unsqueezed(n, bags, 0) }), "i64")
    local bag = n:node("Sub", { n:reduce("ReduceSum", begun, { 1 }, true, 13), n:const { 1 } })
    local dims, by, first = n:result().dims, "add", 0
    if mode == "max" then by, first = "max", least end
    y = into_bags(n, bag, rows, dims, first, by)
    count = ones and into_bags(n, bag, ones, { dims[1] }, 0, "add")
  else
    local names = { mean = ones and "ReduceSum" or "ReduceMean", sum = "ReduceSum",
      max = "ReduceMax" }
    y = n:reduce(names[mode], rows, { 1 }, false, names[mode] == "ReduceSum" and 13 or nil)
    count = ones and n:reduce("ReduceSum", ones, { 1 }, false, 13)
  end

  -- An empty bag is 0, of whatever.
  if not count or mode == "sum" then return y end
  count = unsqueezed(n, count, 1)
  if mode == "mean" then
    return n:node("Div", { y, n:node("Max", { count, n:number(1, dtype) }) })
  end
  return n:node("Where", { n:node("Greater", { count, n:number(0, dtype) }), y,
    n:number(0, dtype) })
end
