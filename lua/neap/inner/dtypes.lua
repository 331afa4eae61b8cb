--- The types of elements, by the one table of them, which is C's.
-- @module neap.inner.dtypes
local core = require "neap.core"

local dtypes = {
  bytes = {}, -- of one element, by name
  is_float = {}, -- f32 f64 bf16 f16
  floats = {}, -- lists of names; bool is neither a float nor an integer
  integers = {},
}

for _, row in ipairs(core.dtypes) do
  dtypes.bytes[row.name] = row.bytes
  dtypes.is_float[row.name] = row.float or nil
  local list = row.float and dtypes.floats or row.integer and dtypes.integers
  if list then list[#list + 1] = row.name end
end

return dtypes
