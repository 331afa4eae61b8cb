--- Blobs: what a net's names look like while it is built. A handle has a name, a shape and a dtype as far as the net is known,
-- and the operators and methods of tensors, each of which adds an op to its net.
--
-- INVARIANT: one handle per name and net, so that == compares blobs and tables can be keyed by them.
-- @module neap.blob
local op = require "neap.op"

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

Blob.__index = function(blob, key)
  if methods[key] ~= nil then return methods[key] end
  if key == "shape" or key == "dtype" then
    local dtype, shape = blob.net:_type(blob.name)
    if key == "shape" then return shape end
    return dtype
  end
  if key == "role" then
    local row = blob.net:_blob(blob.name)
    return row and row.role
  end
end

Blob.__tostring = function(blob)
  local ok, dtype, shape = pcall(blob.net._type, blob.net, blob.name) -- printing never raises
  return ("blob %s%s"):format(blob.name, ok and dtype and (" %s (%s)"):format(dtype, table.concat(shape, ",")) or "")
end

local function not_ordered()
  error("Lua turns the result of <, <=, >, >= into one boolean; write x:lt(y), x:le(y), x:gt(y), x:ge(y)", 2)
end
Blob.__lt, Blob.__le = not_ordered, not_ordered
op.set_operators(Blob)

for name, f in pairs(op.functions) do methods[name] = f end

function methods:matmul(y, attrs) return op.apply("MatMul", { self, y }, attrs) end

local function shape_of(blob, who)
  local shape = blob.shape
  if shape == nil then error(("%s: the shape of %s is not known yet"):format(who, blob.name), 3) end
  return shape
end

function methods:size(d)
  local shape = shape_of(self, "size")
  if d == nil then return shape end
  local at = d > 0 and d or #shape + 1 + d
  if shape[at] == nil then error(("dimension %d is out of range, there are %d"):format(d, #shape), 2) end
  return shape[at]
end

function methods:dim() return #shape_of(self, "dim") end

function methods:n_element()
  local n = 1
  for _, d in ipairs(shape_of(self, "n_element")) do n = n * d end
  return n
end

--- f(2, 3) and f{2, 3} alike.
local function packed(first, ...)
  if type(first) == "table" then return first end
  return { first, ... }
end

--- The shapes of tensors' methods, as ops.
function methods:reshape(...) return op.apply("Reshape", { self }, { shape = packed(...).shape or packed(...) }) end
methods.view = methods.reshape
function methods:permute(...) return op.apply("Permute", { self }, { axes = packed(...).axes or packed(...) }) end
function methods:expand(...) return op.apply("Expand", { self }, { shape = packed(...).shape or packed(...) }) end

function methods:transpose(a, b)
  local n, order = self:dim(), {}
  a, b = a or -2, b or -1
  a, b = a > 0 and a or n + 1 + a, b > 0 and b or n + 1 + b
  for i = 1, n do order[i] = i == a and b or i == b and a or i end
  return self:permute(order)
end

function methods:narrow(d, from, n)
  return op.apply("Slice", { self }, { axes = { d }, starts = { from }, ends = { from + n - 1 } })
end

function methods:select(d, i)
  return op.apply("Squeeze", { self:narrow(d, i, 1) }, { axes = { d } })
end

function methods:squeeze(d)
  if type(d) == "table" then return op.apply("Squeeze", { self }, d) end
  return op.apply("Squeeze", { self }, d and { axes = { d } } or {})
end

function methods:unsqueeze(d)
  if type(d) == "table" then return op.apply("Unsqueeze", { self }, d) end
  return op.apply("Unsqueeze", { self }, { axes = { d } })
end

function methods:to(dtype) return op.apply("Cast", { self }, { to = dtype }) end
function methods:clone() return op.apply("Copy", { self }) end
function methods:item()
  error(("%s is a blob: it has no value while the net is built; use net:If or neap.where to choose by it"):format(self.name), 2)
end

return M
