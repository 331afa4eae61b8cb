--- The ops of ONNX that Neap has: by domain and name a builder f(node, operands ..) -> results. One
-- builder knows all versions of its op: node.version is that of the model's opset.
-- @module neap.onnx.ops
local ops = { by_domain = { [""] = {} } }

--- The builder of an op, nil where there is none.
function ops.find(domain, name)
  local list = ops.by_domain[domain]
  return list and list[name]
end

for _, family in ipairs {
  "elementwise", "reductions", "shapes", "norms", "products", "vision", "quantised", "recurrent",
  "control", "losses", "signal",
} do
  require("neap.onnx." .. family)(ops.by_domain[""], ops.by_domain)
end

return ops
