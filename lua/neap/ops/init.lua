--- All ops that are made of other ops; see neap.ops.compose.
-- @module neap.ops
for _, family in ipairs { "reductions", "products", "shapes", "activations", "losses",
  "recurrences", "resample", "linalg", "statistics" } do
  require("neap.ops." .. family)
end
return require "neap.ops.compose"
