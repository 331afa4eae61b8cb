--- The types of Caffe's layers that Neap has: by name a builder f(n, bottoms ..) -> a result for
-- each top (neap.caffe.layer). A new type is a function in the file of its family.
-- @module neap.caffe.layers
local layers = { by_type = {} }

--- The builder of a type, nil where there is none.
function layers.find(type_name) return layers.by_type[type_name] end

for _, family in ipairs { "inputs", "vision", "elementwise", "norms", "shapes", "losses",
  "detection", "multibox", "recurrent" } do
  require("neap.caffe." .. family)(layers.by_type)
end

-- Layers that read files; where they have no builder their tops are inputs all the same.
local data = require("neap.caffe.inputs_known").readers

--- Whether layers of that type, without bottoms, give data.
function layers.is_data(type_name) return data[type_name] ~= nil end

return layers
