--- The operators of TFLite that Neap has: by name a builder f(node) -> results, in the file of its
-- family. A builder asks for its operands by T.plain, T.first or T.together (neap.tflite.kit),
-- which say in what order their elements are.
-- @module neap.tflite.ops
local ops = require "neap.onnx.ops"

local own, needed = {}, {}

--- A builder of an operator that makes something: all that Neap has do.
local function with_result(f)
  return function(n)
    if not n.row.makes[1] then n:fail "it makes nothing" end
    return f(n)
  end
end

for _, family in ipairs { "products", "elementwise", "shapes", "reductions", "recurrent",
  "tables" } do
  -- A family says in `needs` how many inputs must be there: one, but for those.
  local needs = {}
  require("neap.tflite." .. family)(own, needs)
  for n, names in pairs(needs) do
    for name in names:gmatch "%S+" do needed[name] = n end
  end
end
for name, f in pairs(own) do own[name] = with_result(f) end
ops.by_domain.tflite, ops.needed_of.tflite = own, needed

return ops
