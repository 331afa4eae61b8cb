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

--- INVARIANT: what is as large as an operand or an attribute says is made by ops, which a net plans
-- and refuses where it has no room, never while the net is built.

--- 0, 1 .. n - 1, beside x.
function kit.range(x, n, dtype)
  if op.is_blob(x) then
    return (op.net_of(x):op("Range", {}, 1, { stop = n, dtype = dtype or "i64" }))
  end
  return core.arange(0, n, 1, dtype or "i64")
end

--- Zeros beside x, of its dtype.
function kit.zeros(x, sizes)
  local attrs = { shape = sizes, dtype = x.dtype, value = 0 }
  if op.is_blob(x) then return (op.net_of(x):op("Constant", {}, 1, attrs)) end
  return (core.eager("Constant", {}, attrs))
end

--- Raises for a dimension that is too long to be listed position by position.
function kit.check_listed(name, n)
  if n ~= n or n > kit.MOST_LISTED then
    fail(("%s: a dimension of %.15g; at most %d"):format(name, n, kit.MOST_LISTED))
  end
end

--- f(0), f(1) .. f(n - 1) as a tensor beside x.
function kit.list(name, x, n, dtype, f)
  kit.check_listed(name, n)
  local values = {}
  for i = 0, n - 1 do values[i + 1] = f(i) end
  local t = core.tensor(values, dtype)
  return op.is_blob(x) and op.net_of(x):const(t) or t
end
kit.MOST_LISTED = 1 << 20

--- The sizes that two shapes broadcast to.
function kit.broadcast(name, a, b)
  local sizes = {}
  for d = 1, math.max(#a, #b) do -- from the last dimension on
    local n, m = a[#a + 1 - d] or 1, b[#b + 1 - d] or 1
    if n ~= m and n ~= 1 and m ~= 1 then
      fail(("%s: (%s) and (%s) do not broadcast"):format(name, table.concat(a, ","),
        table.concat(b, ",")))
    end
    table.insert(sizes, 1, n == 1 and m or n)
  end
  return sizes
end

--- One number of a dtype, beside x.
function kit.number(x, value, dtype)
  if dtype == "bool" then value = value ~= 0 end
  if op.is_blob(x) then return op.net_of(x):const(value, dtype) end
  return core.tensor(value, dtype)
end

--- Elements of a where the condition holds, of b elsewhere; either may be a number.
function kit.where(c, a, b) return (op.apply("Where", { c, a, b }, {})) end

--- The square root, whose gradient at 0 is 0.
function kit.root(x)
  local zero = x:eq(0)

  -- The root is taken of 1 where x is 0: its gradient there would be infinite, and 0 times that
  -- NaN.
  return kit.where(zero, 0, kit.where(zero, 1, x):sqrt())
end

return kit
