--- Sizes that have names, on the way to an ONNX file: what is known of them by the net that is
-- written and others, which have one named size doubled each.
--
-- A list over nets has what the net itself has first, then what each of the others has.
-- @module neap.onnx.named_sizes
local core = require "neap.core"
local kit = require "neap.onnx.kit"

local named_sizes = {}

--- How often a size has a factor that makes `twice` of it when it doubles; nil for what grows
-- otherwise.
local function power_of(size, twice)
  local power = 0
  while size > 0 and size < twice do size, power = 2 * size, power + 1 end
  return size == twice and power or nil
end

--- A size by what it is in each net: a number where it is the same in all, else a dimension as
-- neap.onnx.out has it.
-- @param symbols {{name =, size =}, ..}, those that are doubled
-- @param sizes {size, size with the first named size doubled, ..}
-- @param text what it is called where it can't be said
function named_sizes.dimension(symbols, sizes, text)
  local of, times, names = {}, sizes[1], {}
  for k, symbol in ipairs(symbols) do
    local power = power_of(sizes[1], sizes[k + 1])
    if power and power > 0 then of[symbol.name] = power end
    for _ = 1, power or 1 do
      if not power or times % symbol.size ~= 0 then
        return { sizes = sizes, unknown = ("%s is no multiple of %s"):format(text, symbol.name) }
      end
      times, names[#names + 1] = times // symbol.size, symbol.name
    end
  end
  if #names == 0 then return sizes[1] end
  if times ~= 1 then names[#names + 1] = ("%d"):format(times) end
  return { sizes = sizes, times = times, of = of, text = table.concat(names, "*") }
end

--- The same of each dimension of the shapes of one value; `name` is what that is called.
function named_sizes.dimensions(symbols, shapes, name)
  return kit.map(shapes[1], function(_, d)
    local sizes = kit.map(shapes, function(shape) return shape[d] end)
    return named_sizes.dimension(symbols, sizes, ("dimension %d of \"%s\""):format(d, name))
  end)
end

-- ---- numbers that sizes change ------------------------------------------------------------------

--- What numbers of several sizes have in common along the dimensions `open`: one row, which is
-- spread over them; nil where they differ otherwise.
local function common_row(tensors, open)
  local row = tensors[1]
  for _, d in ipairs(open) do row = row:narrow(d, 1, 1) end
  for _, t in ipairs(tensors) do
    if not t:equal(row:expand(t.shape)) then return nil end
  end
  return row:contiguous()
end

--- The first number and the step of numbers that count along dimension d, of all tensors alike; nil
-- where they don't.
local function count_along(tensors, d)
  local start, step
  for _, t in ipairs(tensors) do
    local line = t
    for k = 1, #t.shape do
      if k ~= d then line = line:narrow(k, 1, 1) end
    end
    if not t:equal(line:expand(t.shape)) then return nil end
    local list = line:contiguous():reshape(-1):totable()
    start, step = start or list[1], step or list[2] and list[2] - list[1]
    for i, number in ipairs(list) do
      if type(number) == "boolean" or number ~= start + (i - 1) * (step or 0) then return nil end
    end
  end
  if step then return start, step end
end

--- How often each number comes, of numbers 0, 0, 1, 1, 2, 2, .. along dimension d, of all tensors
-- alike; nil where they are none: rows of an image that is made larger.
local function repeats_along(tensors, d)
  local times = 0
  for k, t in ipairs(tensors) do
    if kit.product(t.shape) ~= t.shape[d] then return nil end
    local list = t:reshape(-1):totable()
    while k == 1 and times < #list and list[times + 1] == list[1] do times = times + 1 end
    for i, number in ipairs(list) do
      if number ~= (i - 1) // times then return nil end
    end
  end
  return times
end

--- The numbers of a list less how many groups of s are before each, times `step`; by group.
local function residues(list, s, step)
  local rows = {}
  for i, number in ipairs(list) do
    local group, at = (i - 1) // s + 1, (i - 1) % s + 1
    rows[group] = rows[group] or {}
    rows[group][at] = number - step * (group - 1)
  end
  return rows
end

local function same_rows(a, b)
  for i, number in ipairs(a) do
    if number ~= b[i] then return false end
  end
  return true
end

--- Places and shares of an image that is made s times as large, along dimension d: groups of s
-- numbers, of which all between the first and the last are alike, each `step` above the one before.
-- @return {s =, step =, first =, middle =, last =}, lists of s; nil where no s makes it so
local function groups_along(tensors, d)
  local lists = {}
  for k, t in ipairs(tensors) do
    if kit.product(t.shape) ~= t.shape[d] then return nil end
    lists[k] = t:reshape(-1):totable()
  end

  local function fits(s, step)
    local found
    for _, list in ipairs(lists) do
      if #list % s ~= 0 or #list < 4 * s then return nil end
      local rows = residues(list, s, step)
      found = found or { s = s, step = step, first = rows[1], middle = rows[2], last = rows[#rows] }
      for i, row in ipairs(rows) do
        local want = i == 1 and found.first or i == #rows and found.last or found.middle
        if not same_rows(row, want) then return nil end
      end
    end
    return found
  end
  for s = 2, 8 do
    local found = fits(s, 0) or fits(s, 1)
    if found then return found end
  end
end

--- The numbers that groups_along has found, of as many as the size says. Of an image of one row
-- they are the first group, whose places are within it: its shares of that row are one in all.
local function grouped(op, dims, d, dtype, g)
  local function rows(list) return op:const(core.tensor({ list }, dtype)) end
  local n = op:node("Div", { op:size(dims[d]), op:const { g.s } })
  local between = op:node("Max", { op:node("Sub", { n, op:const { 2 } }), op:const { 0 } })
  local middle = op:node("Expand", { rows(g.middle),
    op:node("Concat", { between, op:const { g.s } }, { axis = 0 }) })
  local all = op:node("Concat", { rows(g.first), middle, rows(g.last) }, { axis = 0 })
  all = op:node("Slice", { all, op:const { 0 }, n, op:const { 0 } })
  if g.step ~= 0 then
    local function number(value) return op:const(core.tensor(value, "i64")) end
    local count = op:node("Range", { number(0), op:node("Squeeze", { n, op:const { 0 } }),
      number(1) })
    count = op:node("Unsqueeze", { count, op:const { 1 } })
    if dtype ~= "i64" then count = op:cast(count, dtype) end
    all = op:node("Add", { all, count })
    if dtype == "i64" then
      all = op:node("Min", { all, op:node("Sub", { n, op:const { 1 } }) })
    end
  end
  local shape = kit.map(dims, function(_, k) return k == d and -1 or 1 end)
  return op:node("Reshape", { all, op:const(shape) })
end

--- start, start + step, .. along dimension d, of as many as the size says: a value whose other
-- dimensions are 1. Each number comes so many `times`.
local function counted(op, dims, d, dtype, start, step, times)
  local function number(value, of) return op:const(core.tensor(value, of)) end
  local n = op:node("Squeeze", { op:size(dims[d]), op:const { 0 } })
  local line = op:node("Range", { number(0, "i64"), n, number(1, "i64") })
  if times then line = op:node("Div", { line, number(times, "i64") }) end
  if dtype ~= "i64" then line = op:cast(line, dtype) end
  if step ~= 1 then line = op:node("Mul", { line, number(step, dtype) }) end
  if start ~= 0 then line = op:node("Add", { line, number(start, dtype) }) end
  local shape = kit.map(dims, function(_, k) return k == d and -1 or 1 end)
  return op:node("Reshape", { line, op:const(shape) })
end

--- Nodes that make numbers of sizes, as their value; lacking where no form of them is known.
-- @param op which writes them
-- @param tensors over nets, `symbol` the name of a size that changes them
function named_sizes.value(op, symbols, name, tensors)
  local first = tensors[1]
  local function lacks() op:lacks("the numbers of \"%s\" depend on %s", name, tensors.symbol) end

  -- What is of another kind at another size is like nothing that can be said.
  for _, t in ipairs(tensors) do
    if #t.shape ~= #first.shape or t.dtype ~= first.dtype then lacks() end
  end
  local shapes, open = kit.map(tensors, function(t) return t.shape end), {}
  local dims = named_sizes.dimensions(symbols, shapes, name)
  for d, size in ipairs(dims) do
    if type(size) == "table" then open[#open + 1] = d end
  end

  -- One row over and over, or positions that are counted.
  local row, start, step = common_row(tensors, open)
  local times, groups
  if not row and #open == 1 then start, step = count_along(tensors, open[1]) end
  if not row and not start and #open == 1 then
    times = repeats_along(tensors, open[1])
    start, step = times and 0, 1
    groups = not times and first.dtype ~= "bool" and groups_along(tensors, open[1])
  end
  if not row and not start and not groups then lacks() end
  local part = row and op:const(row) or groups and grouped(op, dims, open[1], first.dtype, groups)
    or counted(op, dims, open[1], first.dtype, start, step, times)
  local v = op:node("Expand", { part, op:shape(dims) })
  v.dims, v.dtype = dims, first.dtype
  return v
end

return named_sizes
