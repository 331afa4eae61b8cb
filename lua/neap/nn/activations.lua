--- Layers that are one op of one input: their options are attributes of the op.
-- @module neap.nn.activations
local init = require "neap.nn.initializers"
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
activations.Softplus = one_op("Softplus", "Softplus", "softplus", { "beta", "threshold" },
  "nn.Softplus { beta = 2 }")
activations.Softmax = one_op("Softmax", "Softmax", "softmax", { "axis" }, "nn.Softmax()")
activations.LogSoftmax = one_op("LogSoftmax", "LogSoftmax", "softmax", { "axis" },
  "nn.LogSoftmax(2)")
activations.Softmin = one_op("Softmin", "Softmin", "softmin", { "axis" }, "nn.Softmin()")
activations.SELU = one_op("SELU", "Selu", "selu")
activations.CELU = one_op("CELU", "Celu", "celu", { "alpha" }, "nn.CELU(0.5)")
activations.Mish = one_op("Mish", "Mish", "mish")
activations.Hardswish = one_op("Hardswish", "HardSwish", "hardswish")

-- The op's slope is ONNX's, 0.2; Torch's layer is relu6(x + 3) / 6, as Hardswish is x times that.
activations.Hardsigmoid = class { "Hardsigmoid", name = "hardsigmoid",
  options = { doc = records.HardSigmoid.summary, positions = { "slope", "offset" },
    { "slope", "number", 1 / 6, doc = records.HardSigmoid.attrs[1].doc .. "; 0.2 is ONNX's" },
    { "offset", "number", 0.5, doc = "the value at 0" }, example = "nn.Hardsigmoid()" },
  init = function(self, o) self.o = { slope = o.slope, offset = o.offset } end,
  forward = function(self, x) return Module.op(self, "HardSigmoid", { x }, self.o) end }
activations.Hardtanh = one_op("Hardtanh", "HardTanh", "hardtanh", { "min", "max" },
  "nn.Hardtanh(-2, 2)")
activations.Hardshrink = one_op("Hardshrink", "HardShrink", "hardshrink", { "lambda" },
  "nn.Hardshrink(0.5)")
activations.Softshrink = one_op("Softshrink", "SoftShrink", "softshrink", { "lambda" },
  "nn.Softshrink(0.5)")
activations.Tanhshrink = one_op("Tanhshrink", "TanhShrink", "tanhshrink")
activations.Softsign = one_op("Softsign", "Softsign", "softsign")
activations.LogSigmoid = one_op("LogSigmoid", "LogSigmoid", "logsigmoid")
activations.Threshold = one_op("Threshold", "Threshold", "threshold", { "threshold", "value" },
  "nn.Threshold(0.1, 0)")
activations.RReLU = class { "RReLU", name = "rrelu",
  options = { doc = records.RRelu.summary, positions = { "low", "high" }, { of = "RRelu.low" },
    { of = "RRelu.high" }, example = "nn.RReLU(0.1, 0.3)" },
  init = function(self, o) self.low, self.high = o.low, o.high end,
  forward = function(self, x)
    return Module.op(self, "RRelu", { x },
      { low = self.low, high = self.high, training = self.training })
  end }
activations.GLU = one_op("GLU", "Glu", "glu", { "axis" }, "nn.GLU()")
activations.PixelShuffle = one_op("PixelShuffle", "PixelShuffle", "shuffle", { "factor" },
  "nn.PixelShuffle(2)")
activations.PixelUnshuffle = one_op("PixelUnshuffle", "PixelUnshuffle", "shuffle", { "factor" },
  "nn.PixelUnshuffle(2)")
activations.ChannelShuffle = one_op("ChannelShuffle", "ChannelShuffle", "shuffle", { "groups" },
  "nn.ChannelShuffle(4)")
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

--- A layer that drops by an op while training.
local function dropout(name, op, attrs, doc)
  activations[name] = class { name, name = "dropout",
    options = { doc = doc, positions = { "rate" }, { of = op .. ".rate" },
      example = ("nn.%s(0.2)"):format(name) },
    init = function(self, o)
      self.o = { rate = o.rate }
      for key, value in pairs(attrs) do self.o[key] = value end
    end,
    forward = function(self, x)
      if not self.training or self.o.rate == 0 then return x end
      return Module.op(self, op, { x }, self.o)
    end,
    describe = function(self) return tostring(self.o.rate) end }
end
for d = 1, 3 do
  dropout(("Dropout%dd"):format(d), "ChannelDropout", {},
    "Drops whole channels, the second dimension, at random while training.")
end
dropout("AlphaDropout", "AlphaDropout", {}, records.AlphaDropout.summary)
dropout("FeatureAlphaDropout", "AlphaDropout", { channels = true },
  "AlphaDropout of whole channels.")
dropout("DropPath", "DropPath", {}, records.DropPath.summary)

activations.Upsample = class { "Upsample",
  options = { doc = "Images, or other spatial dimensions, in another size, as in PyTorch.",
    positions = { "scale" },
    { "scale", "number", 2, above = 0, doc = "factor of each spatial size" },
    { of = "Resize.mode" },
    { "align_corners", "boolean", false,
      doc = "whether the outermost pixels keep their places; not for nearest" },
    example = 'nn.Upsample { 2, mode = "linear" }' },
  init = function(self, o)
    self.scale, self.mode = o.scale, o.mode
    self.coordinates = o.align_corners and "align_corners"
      or o.mode == "nearest" and "asymmetric" or "half_pixel"
  end,
  forward = function(self, x)
    return Module.op(self, "Resize", { x }, { scales = self.scale, mode = self.mode,
      coordinates = self.coordinates, rounding = "floor" })
  end,
  describe = function(self) return ("%g, %s"):format(self.scale, self.mode) end }

activations.PReLU = class { "PReLU", name = "prelu",
  options = { doc = [[Rectified linear unit with a slope below 0 that is learnt, one for all
      elements or one for each channel, the second dimension (He et al., ICCV 2015).]],
    positions = { "channels" },
    { "channels", "integer", 1, min = 1, doc = "how many slopes: 1, or one a channel" },
    { "slope", "number", 0.25, doc = "what the slopes begin with" },
    example = "nn.PReLU(64)" },
  init = function(self, o)
    self.channels = o.channels
    self:param("weight", { o.channels }, init.constant(o.slope))
  end,
  forward = function(self, x)
    local slope = self.weight
    if self.channels > 1 then -- in line with the second dimension
      local sizes = { self.channels }
      for d = 3, #x.shape do sizes[d - 1] = 1 end
      slope = slope:reshape(sizes)
    end
    return Module.op(self, "PRelu", { x, slope })
  end,
  describe = function(self) return self.channels > 1 and tostring(self.channels) or "" end }

return activations
