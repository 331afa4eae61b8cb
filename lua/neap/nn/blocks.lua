--- Blocks that published nets are made of.
-- @module neap.nn.blocks
local activations = require "neap.nn.activations"
local fail = require("neap.core").fail
local layers = require "neap.nn.layers"
local module = require "neap.nn.module"
local norm = require "neap.nn.norm"

local class = module.class
local blocks = {}

local kinds = { "relu", "relu6", "silu", "hard_swish" }
-- Torch's hard sigmoid, relu6(x + 3) / 6, which MobileNetV3 has; the op by itself is ONNX's.
local gates = { sigmoid = function(x) return x:sigmoid() end,
  hard_sigmoid = function(x) return x:hard_sigmoid { slope = 1 / 6 } end }
local classes = { relu = "ReLU", relu6 = "ReLU6", silu = "SiLU", hard_swish = "Hardswish" }

blocks.SqueezeExcite = class { "SqueezeExcite", name = "se",
  options = { doc = [[Each channel times a share in 0..1 that two layers make of all channels' means
      (Hu et al., CVPR 2018).]],
    positions = { "channels", "squeezed" },
    { "channels", "integer", min = 1, required = true, doc = "size of the second dimension" },
    { "squeezed", "integer", min = 1, required = true, doc = "channels between the two layers" },
    { "activation", "choice", "relu", choices = kinds, doc = "what stands between them" },
    { "gate", "choice", "sigmoid", choices = { "sigmoid", "hard_sigmoid" },
      doc = "what makes shares of them; hard_sigmoid: relu6(x + 3) / 6, as in MobileNetV3" },
    example = "nn.SqueezeExcite { 64, 16 }" },
  init = function(self, o)
    self.channels, self.squeezed = o.channels, o.squeezed
    self.activation, self.gate = o.activation, o.gate
    self.fc1 = layers.Conv2d { o.channels, o.squeezed, kernel = 1 }
    self.fc2 = layers.Conv2d { o.squeezed, o.channels, kernel = 1 }
  end,
  forward = function(self, x)
    local h = self.fc1(x:mean { axes = { 3, 4 }, keepdim = true })
    return x * gates[self.gate](self.fc2(h[self.activation](h)))
  end,
  describe = function(self)
    return ("%d, %d"):format(self.channels, self.squeezed)
  end }

blocks.InvertedResidual = class { "InvertedResidual",
  options = { doc = [[A convolution of 1 to more channels, one of each channel by itself, and one of
      1 back, each with a norm; x is added where shapes agree (Sandler et al., CVPR 2018).]],
    positions = { "n_in", "n_out" },
    { "n_in", "integer", min = 1, required = true, doc = "channels of the input" },
    { "n_out", "integer", min = 1, required = true, doc = "channels of the output" },
    { "stride", "integer", 1, min = 1, doc = "step of the convolution in the middle" },
    { "expand", "number", 6, above = 0, doc = "channels in the middle for each of the input; 1 \z
        leaves the first convolution out" },
    { "kernel", "integer", 3, min = 1, doc = "size of the convolution in the middle" },
    { "activation", "choice", "relu6", choices = kinds, doc = "behind the first two" },
    { "squeezed", "integer", min = 1, unset = "none",
      doc = "channels of a squeeze-excite behind the second" },
    example = "nn.InvertedResidual { 16, 24, stride = 2 }" },
  init = function(self, o)
    local middle = math.floor(o.n_in * o.expand + 0.5)
    local activation = classes[o.activation]
    if o.kernel % 2 == 0 then
      fail(("nn.InvertedResidual: kernel expects an odd size, got %d"):format(o.kernel))
    end
    -- Without more channels the first convolution would only mix them: MobileNetV2's first block
    -- leaves it out.
    if o.expand ~= 1 then
      self.expand = layers.Conv2d { o.n_in, middle, kernel = 1, bias = false }
      self.expand_norm = norm.BatchNorm2d { middle }
    end
    self.depthwise = layers.Conv2d { middle, middle, kernel = o.kernel, stride = o.stride,
      pad = o.kernel // 2, groups = middle, bias = false }
    self.depthwise_norm = norm.BatchNorm2d { middle }
    if o.squeezed then
      self.squeeze = blocks.SqueezeExcite { middle, o.squeezed, activation = "relu",
        gate = o.activation == "hard_swish" and "hard_sigmoid" or "sigmoid" }
    end
    self.project = layers.Conv2d { middle, o.n_out, kernel = 1, bias = false }
    self.project_norm = norm.BatchNorm2d { o.n_out }
    self.activate = activations[activation] {}
    -- The input is added where it has the result's shape.
    self.adds = o.stride == 1 and o.n_in == o.n_out
    self.sizes = ("%d, %d"):format(o.n_in, o.n_out)
  end,
  forward = function(self, x)
    local h = x
    if self.expand then h = self.activate(self.expand_norm(self.expand(h))) end
    h = self.activate(self.depthwise_norm(self.depthwise(h)))
    if self.squeeze then h = self.squeeze(h) end
    h = self.project_norm(self.project(h))
    return self.adds and x + h or h
  end,
  describe = function(self) return self.sizes end }

return blocks
