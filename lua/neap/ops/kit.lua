--- What several files of composed ops need.
-- @module neap.ops.kit
local op = require "neap.op"
local core = require "neap.core"
local fail = core.fail

local kit = {}

--- Dimension `d` of x, from 1, whether counted from the front or from the end; one more may be
-- allowed, for a dimension that is to be put in.
function kit.axis(name, x, d, more)
  local n = #x.shape + (more or 0)
  local at = d > 0 and d or n + 1 + d
  if at < 1 or at > n then
    fail(("%s: dimension %d is out of range, there are %d"):format(name, d, n))
  end
  return at
end

--- Dimensions as a list from the front, ascending; all of x when none are said.
function kit.axes(name, x, list)
  local out, seen = {}, {}
  for _, d in ipairs(type(list) == "table" and list or { list }) do
    local at = kit.axis(name, x, d)
    if seen[at] then fail(("%s: dimension %d is named twice"):format(name, d)) end
    seen[at], out[#out + 1] = true, at
  end
  if #out == 0 then
    for d = 1, #x.shape do out[d] = d end
  end
  table.sort(out)
  return out
end

--- Raises unless two operands have one shape.
function kit.same_shape(name, x, y, what_x, what_y)
  local a, b = table.concat(x.shape, ","), table.concat(y.shape, ",")
  if a ~= b then
    fail(("%s: %s is (%s), %s (%s): one shape is expected"):format(name, what_x, a, what_y, b))
  end
end

--- 0, 1 .. n - 1 as a tensor, which beside a blob becomes a constant of its net.
function kit.range(n, dtype) return core.arange(0, n, 1, dtype or "i64") end

--- Elements of a where the condition holds, of b elsewhere; either may be a number.
function kit.where(c, a, b) return (op.apply("Where", { c, a, b }, {})) end

--- The square root, whose gradient at 0 is 0.
function kit.root(x)
  local zero = x:eq(0)
  return kit.where(zero, 0, kit.where(zero, 1, x):sqrt())
end

return kit
