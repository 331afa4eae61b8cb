--- The operators of TFLite that Neap has: by name a builder f(node) -> results, in the file of its
-- family. A builder asks for its operands by T.plain, T.first or T.together (neap.tflite.kit),
-- which say in what order their elements are.
-- @module neap.tflite.ops
local ops = require "neap.onnx.ops"

local own, needed = {}, {}
for _, family in ipairs { "products", "elementwise", "shapes", "reductions", "recurrent" } do
  -- A family says in `needs` how many inputs must be there: one, but for those.
  local needs = {}
  require("neap.tflite." .. family)(own, needs)
  for n, names in pairs(needs) do
    for name in names:gmatch "%S+" do needed[name] = n end
  end
end
ops.by_domain.tflite, ops.needed_of.tflite = own, needed

return ops
