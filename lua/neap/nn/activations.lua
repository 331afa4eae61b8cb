--- Layers that are one op of one input: their options are attributes of the op.
-- @module neap.nn.activations
local module = require "neap.nn.module"
local records = require("neap.op").records

local Module, class = module.Module, module.class
local activations = {}

--- A layer that is one op.
-- @param name string of the class
-- @param op string
-- @param base string of automatic names
-- @param attrs string[]|nil attributes that are options, which go without names in this order
local function one_op(name, op, base, attrs, example)
  local summary = records[op].summary
  local options = { doc = summary, positions = {}, example = example or ("nn.%s()"):format(name) }
  for i, attr in ipairs(attrs or {}) do
    options[i], options.positions[i] = { of = op .. "." .. attr }, attr
  end
  return class { name, name = base, options = options,
    init = function(self, o)
      if attrs == nil then return end
      self.o = {}
      for _, attr in ipairs(attrs) do self.o[attr] = o[attr] end
    end,
    forward = function(self, x) return Module.op(self, op, { x }, self.o) end }
end

activations.ReLU = one_op("ReLU", "Relu", "relu")
activations.ReLU6 = one_op("ReLU6", "Relu6", "relu")
activations.LeakyReLU = one_op("LeakyReLU", "LeakyRelu", "relu", { "slope" }, "nn.LeakyReLU(0.2)")
activations.ELU = one_op("ELU", "Elu", "elu", { "alpha" }, "nn.ELU(0.5)")
activations.Sigmoid = one_op("Sigmoid", "Sigmoid", "sigmoid")
activations.Tanh = one_op("Tanh", "Tanh", "tanh")
activations.SiLU = one_op("SiLU", "Silu", "silu")
activations.GELU = one_op("GELU", "Gelu", "gelu", { "approximate" },
  "nn.GELU { approximate = \"tanh\" }")
activations.Softplus = one_op("Softplus", "Softplus", "softplus")
activations.Softmax = one_op("Softmax", "Softmax", "softmax", { "axis" }, "nn.Softmax()")
activations.LogSoftmax = one_op("LogSoftmax", "LogSoftmax", "softmax", { "axis" },
  "nn.LogSoftmax(2)")
activations.Flatten = one_op("Flatten", "Flatten", "flatten")
activations.GlobalAvgPool = one_op("GlobalAvgPool", "GlobalAveragePool", "pool")

activations.Dropout = class { "Dropout",
  options = { doc = [[Drops elements at random while training, and scales the others by
      1 / (1 - rate).]],
    positions = { "rate" },
    { "rate", "number", 0.5, min = 0, below = 1, doc = records.Dropout.attrs[1].doc },
    example = "nn.Dropout(0.1)" },
  init = function(self, o) self.rate = o.rate end,
  forward = function(self, x)
    if not self.training or self.rate == 0 then return x end
    return Module.op(self, "Dropout", { x }, { rate = self.rate, training = true })
  end,
  describe = function(self) return tostring(self.rate) end }

return activations
