--- Blobs: what a net's names look like while it is built. A handle has a name, a shape and a dtype
-- as far as the net is known, and the operators and methods of tensors, each of which adds an op to
-- its net.
--
-- INVARIANT: one handle per name and net, so that == compares blobs and tables can be keyed by
-- them.
-- @module neap.net.blob
local core = require "neap.core"
local lists = require "neap.inner.lists"
local missing = require "neap.inner.missing"
local op = require "neap.op"
local fail = core.fail

local M = {}

local Blob = { __name = "neap.blob" }
local methods = {}
op.set_blob_class(Blob)

--- Handles by net and name; they live as long as their net's.
local handles = setmetatable({}, { __mode = "k" })

--- The handle of a name; one per name and net, so that == compares blobs.
-- @tparam Net net
-- @tparam string name full
-- @treturn blob
function M.handle(net, name)
  local blobs = handles[net]
  if blobs == nil then
    blobs = {}
    handles[net] = blobs
  end
  local blob = blobs[name]
  if blob == nil then
    blob = setmetatable({ net = net, name = name }, Blob)
    blobs[name] = blob
  end
  return blob
end

--- Its shape, or an error: what depends on data, or on an input whose shape is given later, is not
-- known while the net is built.
local function shape_of(blob, who)
  local _, shape = blob.net:_type(blob.name)
  if shape == nil then
    fail(("%s: the shape of blob %s is not known while the net is built"):format(who, blob.name))
  end
  return shape
end

-- ---- positions ----------------------------------------------------------------------------------

--- Position i of a dimension of `size`, from 1; negative ones count from the end.
local function position(i, size)
  if i == 0 then fail "position 0: positions count from 1, or from -1 at the end" end
  local at = i > 0 and i or size + 1 + i
  if at < 1 or at > size then
    fail(("position %d is out of range, the dimension has %d"):format(i, size))
  end
  return at
end

--- One entry of a key for a dimension of `size`: from, to, step, and whether the dimension goes.
local function entry_of(entry, size)
  if type(entry) == "number" then
    local at = position(math.tointeger(entry) or fail("a position is an integer, got " .. entry),
      size)
    return at, at, 1, true
  end
  if type(entry) ~= "table" or getmetatable(entry) ~= nil then
    fail("a position is an integer or a range {from, to}, got a " .. type(entry))
  end
  for key, value in pairs(entry) do
    if math.type(key) ~= "integer" or math.type(value) ~= "integer" then
      fail "a range is {}, {from, to} or {from, to, step}, of integers"
    end
  end
  local n = #entry
  if n == 0 then return 1, size, 1, false end
  if n == 1 or n > 3 then
    fail(("a range is {}, {from, to} or {from, to, step}, got %d items"):format(n))
  end
  return position(entry[1], size), position(entry[2], size), entry[3] or 1, false
end

--- The elements where the mask is true, one after the other: how many there are depends on data.
local function masked(blob, mask)
  if mask.dtype ~= "bool" then
    fail(("a mask expects a bool blob, got %s; x:gt(0) makes one"):format(tostring(mask.dtype)))
  end
  return op.apply("Compress",
    { blob:reshape(-1), op.apply("Reshape", { mask }, { shape = { -1 } }) }, { axis = 1 })
end

--- blob[key], as of tensors: a position, a table with an entry for each of the first dimensions, or
-- a mask.
local function picked(blob, key)
  if op.is_blob(key) or op.is_tensor(key) then return masked(blob, key) end
  local shape = shape_of(blob, "blob[..]")

  -- x[#x + 1] is nil, so that ipairs stops.
  if type(key) == "number" then
    if key == (shape[1] or fail(("%s is a scalar, it has no positions"):format(blob.name))) + 1 then
      return nil
    end
    key = { key }
  end
  for i in pairs(key) do
    if math.type(i) ~= "integer" then fail(("a key: unknown field \"%s\""):format(tostring(i))) end
  end
  if #key > #shape then
    fail(("%d positions for blob %s of shape (%s)"):format(
      #key, blob.name, table.concat(shape, ",")))
  end

  -- Positions become ranges of one element; their dimensions go afterwards, by a Squeeze. What
  -- takes the whole dimension needs no Slice.
  local starts, ends, steps, axes, gone = {}, {}, {}, {}, {}
  for d, entry in ipairs(key) do
    local from, to, step, goes = entry_of(entry, shape[d])
    if goes then gone[#gone + 1] = d end
    if from ~= 1 or to ~= shape[d] or step ~= 1 then
      starts[#starts + 1], ends[#ends + 1], steps[#steps + 1], axes[#axes + 1] = from, to, step, d
    end
  end
  local y = blob
  if #axes > 0 then
    y = op.apply("Slice", { y }, { starts = starts, ends = ends, steps = steps, axes = axes })
  end
  if #gone > 0 then y = op.apply("Squeeze", { y }, { axes = gone }) end
  return y
end

Blob.__index = function(blob, key)
  if type(key) ~= "string" then return op.attempt(blob, picked, blob, key) end
  if methods[key] ~= nil then return methods[key] end
  if key == "shape" then return shape_of(blob, "blob.shape") end
  if key == "dtype" then return (blob.net:_type(blob.name)) end
  if key == "role" then
    local row = blob.net:_blob(blob.name)
    return row and row.role
  end

  -- A method that tensors alone have: the user takes a blob for a tensor.
  if rawget(core.Tensor, key) then
    fail(("%s is a blob, which has no value while the net is built: it has no %s; net:If and \z
      neap.where choose by its value in a run"):format(blob.name, key))
  end
  if key:sub(1, 1) ~= "_" then missing.fail("a blob", key, missing.names(methods)) end
end

Blob.__newindex = function(blob)
  fail(("%s is a blob: its elements can't be assigned while the net is built; neap.where puts \z
    others in their place"):format(blob.name))
end

Blob.__len = function(blob)
  local shape = shape_of(blob, "#blob")
  return shape[1] or fail(("#blob: %s is a scalar, it has no positions"):format(blob.name))
end

Blob.__tostring = function(blob)
  local ok, dtype, shape = pcall(blob.net._type, blob.net, blob.name) -- printing never raises
  return ("blob %s%s"):format(
    blob.name, ok and dtype and (" %s (%s)"):format(dtype, table.concat(shape, ",")) or "")
end

local function not_ordered()
  fail("Lua turns the result of <, <=, >, >= into one boolean; write x:lt(y), x:le(y), x:gt(y), \z
    x:ge(y)")
end
Blob.__lt, Blob.__le = not_ordered, not_ordered
op.set_operators(Blob)

op.surface(methods)

methods.matmul = methods.mat_mul

--- Dimension d of n, from 1; negative ones count from the end.
local function dimension(d, n)
  d = math.tointeger(d) or fail("a dimension expects an integer, got " .. tostring(d))
  local at = d > 0 and d or n + 1 + d
  if d == 0 or at < 1 or at > n then
    fail(("dimension %d is out of range, there are %d"):format(d, n))
  end
  return at
end

function methods:size(d)
  local shape = shape_of(self, "size")
  return d == nil and shape or shape[dimension(d, #shape)]
end

function methods:dim() return #shape_of(self, "dim") end

function methods:n_element() return lists.product(shape_of(self, "n_element")) end

--- Dimensions of 1 repeat; -1 keeps a size.
function methods:expand(...)
  local sizes = op.sizes("expand", "shape", ...)
  local shape = shape_of(self, "expand")
  for i, size in ipairs(sizes) do
    if size == -1 then sizes[i] = shape[i - #sizes + #shape] end
  end
  return op.apply("Expand", { self }, { shape = sizes })
end
--- A size of 0 is one, as for tensors; to the op net:Reshape it means the input's size there.
function methods:reshape(...)
  local sizes, zero = op.sizes("reshape", "shape", ...), nil
  for _, size in ipairs(sizes) do zero = zero or size == 0 or nil end
  return op.apply("Reshape", { self }, { shape = sizes, allow_zero = zero })
end
methods.view = methods.reshape -- of a blob no copy is promised, nor a view: the planner decides

function methods:transpose(a, b)
  local n, order = self:dim(), {}
  if a == nil and b == nil then a, b = -2, -1 end
  a, b = dimension(a, n), dimension(b, n)
  for i = 1, n do order[i] = i == a and b or i == b and a or i end
  return op.apply("Permute", { self }, { axes = order })
end

function methods:narrow(d, from, n)
  local size = self:size(d)
  from, n = math.tointeger(from), math.tointeger(n)
  if not from or not n then fail "narrow expects (dimension, from, n), integers" end
  local at = n == 0 and 1 or position(from, size)
  if n < 0 or n > size - at + 1 then
    fail(("narrow: %d positions from %d leave a dimension of %d"):format(n, at, size))
  end
  return op.apply("Slice", { self }, { axes = { d }, starts = { at }, ends = { at + n - 1 } })
end

local function selected(blob, d, i)
  return op.apply("Squeeze", { blob:narrow(d, i, 1) }, { axes = { d } })
end
function methods:select(d, i) return op.attempt(self, selected, self, d, i) end

function methods:to(dtype) return op.apply("Cast", { self }, { to = dtype }) end
function methods:clone() return op.apply("Copy", { self }) end
--- For completion.
Blob.__names = function()
  local names = {}
  for name in pairs(methods) do names[#names + 1] = name end
  return names
end

require("neap.inner.guard").functions(methods, "blob:")
M.methods = methods
return M
