--- What the builders of Caffe's layers need: Neap's ops on blobs, and dimensions as Caffe counts
-- them.
-- @module neap.caffe.kit
local core = require "neap.core"
local lists = require "neap.inner.lists"
local op = require "neap.op"

local kit = {}

--- kit.F.Name(x, attributes) or F.Name({x, y}, attributes [, n]): an op of Neap's.
kit.F = setmetatable({}, { __index = function(F, name)
  local function call(ins, attrs, n_out)
    if type(ins) ~= "table" or op.is_blob(ins) then ins = { ins } end
    return op.apply(name, ins, attrs or {}, n_out)
  end
  F[name] = call
  return call
end })
local F = kit.F

--- Raises what is wrong with a file: a text, or the fields of an error.
function kit.fail(e)
  if type(e) == "string" then e = { message = e } end
  e.code = e.code or "data"
  error(core.error(e), 0)
end

kit.copy, kit.fill, kit.product = lists.copy, lists.fill, lists.product

function kit.reshape(x, shape)
  if table.concat(x.shape, ",") == table.concat(shape, ",") then return x end
  return F.Reshape(x, { shape = shape, allow_zero = true })
end

function kit.cast(x, dtype)
  if x.dtype == dtype then return x end
  return F.Cast(x, { to = dtype })
end

--- A vector along dimensions from `at` on, so that it stands beside x: (.., 1, sizes, 1, ..).
function kit.beside(v, x, at)
  local shape = kit.fill(#x.shape, 1)
  for d, size in ipairs(v.shape) do shape[at + d - 1] = size end
  return kit.reshape(v, shape)
end

--- All dimensions from `from` on.
function kit.dims(x, from)
  local out = {}
  for d = from, #x.shape do out[#out + 1] = d end
  return out
end

--- The sum of all elements, as a scalar.
function kit.sum(x)
  if #x.shape == 0 then return x end
  return F.Sum(x, { axes = kit.dims(x, 1) })
end

--- x times a number; itself where that is 1.
function kit.times(x, factor) return factor == 1 and x or F.Mul { x, factor } end

return kit
