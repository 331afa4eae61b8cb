--- Layers and containers. Each layer is a few lines over ops; see neap.nn.module for how they
-- become nets.
--
-- The classes lie in containers, layers (linear, convolution, pooling), activations, norm, sequence
-- and loss. Each has a record of its options (neap.inner.record), by which its table is read and
-- help, completion, editor stubs and the reference are made.
-- @module neap.nn
local module = require "neap.nn.module"
require "neap.nn.planned"
require "neap.nn.eager"
require "neap.nn.state"
local missing = require "neap.inner.missing"
local options = require "neap.inner.options"
local record = require "neap.inner.record"

local nn = { module = module.class, is_module = module.is_module }

local parts = {
  "containers", "layers", "activations", "norm", "shapes", "sequence", "attention", "blocks",
  "loss",
}
for _, part in ipairs(parts) do
  local classes = require("neap.nn." .. part)
  for _, name in ipairs(options.keys(classes)) do
    nn[name] = classes[name]
    record.publish(classes[name]._record)
  end
end

--- Names of all classes, for help.
function nn.names()
  local names = {}
  for name, value in pairs(nn) do
    if type(value) == "table" and rawget(value, "_class_name") then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

require("neap.inner.guard").functions(module.Module, "m:")
local guarded = require("neap.inner.guard").functions(nn, "nn.")
return setmetatable(guarded, { __index = function(_, key)
  missing.fail("nn", key, nn.names(),
    "; print(table.concat(nn.names(), \" \")) lists what there is")
end })
