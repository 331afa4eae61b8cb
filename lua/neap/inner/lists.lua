--- Lists of numbers, such as shapes.
-- @module neap.inner.lists
local lists = {}

--- The product of items `from` to `to`: of all where they are not said.
function lists.product(list, from, to)
  local n = 1
  for i = from or 1, to or #list do n = n * list[i] end
  return n
end

--- The list value, value, .. of n.
function lists.fill(n, value)
  local out = {}
  for i = 1, n do out[i] = value end
  return out
end

function lists.copy(list) return table.move(list, 1, #list, 1, {}) end

return lists
