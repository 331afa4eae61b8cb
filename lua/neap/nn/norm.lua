--- Normalisation.
-- @module neap.nn.norm
local init = require "neap.nn.initializers"
local module = require "neap.nn.module"
local widths = require "neap.nn.widths"

local Module, class = module.Module, module.class
local declare_or_wait, learn = widths.declare_or_wait, widths.learn
local norm = {}

--- The option of a layer that says how wide its input is.
local function width(name, doc)
  return { name, "integer", min = 1, unset = "that of the first input", doc = doc }
end

local function batch_norm(name)
  return class { name, name = "norm",
    options = { doc = [[Batch normalisation over all dimensions but the second (Ioffe and Szegedy,
        ICML 2015). Running statistics are state.]],
      positions = { "channels" }, width("channels", "size of the second dimension"),
      { of = "BatchNorm.eps" },
      { "momentum", "number", 0.1, min = 0, max = 1,
        doc = "share of a batch in the running statistics" },
      example = ("nn.%s { 64 }"):format(name) },
    init = function(self, o)
      self.channels, self.eps, self.momentum = o.channels, o.eps, o.momentum
      declare_or_wait(self, o.channels)
    end,
    declare = function(self)
      self:param("weight", { self.channels }, init.ones)
      self:param("bias", { self.channels }, init.zeros)
      self:buffer("running_mean", { self.channels }, init.zeros)
      self:buffer("running_var", { self.channels }, init.ones)
    end,
    forward = function(self, x)
      learn(self, "channels", x, 2)

      -- Evaluation reads the running statistics and leaves them.
      if not self.training then
        return Module.op(self, "BatchNorm",
          { x, self.weight, self.bias, self.running_mean, self.running_var },
          { eps = self.eps, training = false })
      end

      -- Training reads the batch's own, and moves the running ones towards them, in place: outputs
      -- with the inputs' names.
      local y, mean, var = Module.op(self, "BatchNorm", { x, self.weight, self.bias },
        { eps = self.eps, training = true }, 3)

      -- The running variance is that of a sample, n / (n - 1) of the batch's (as in PyTorch).
      local n = x:n_element() // self.channels
      local net = y.net
      net:op("RunningAverage", { self.running_mean, mean }, { self.running_mean },
        { momentum = self.momentum })
      net:op("RunningAverage", { self.running_var, var }, { self.running_var },
        { momentum = self.momentum, factor = n > 1 and n / (n - 1) or 1 })
      return y
    end,
    describe = function(self) return self.channels and tostring(self.channels) or "" end }
end

norm.BatchNorm1d, norm.BatchNorm2d = batch_norm "BatchNorm1d", batch_norm "BatchNorm2d"
norm.BatchNorm3d = batch_norm "BatchNorm3d"

norm.LayerNorm = class { "LayerNorm", name = "norm",
  options = { doc = "Layer normalisation over the last dimension (Ba et al., 2016).",
    positions = { "width" }, width("width", "size of the last dimension"),
    { of = "LayerNorm.eps" }, example = "nn.LayerNorm { 384 }" },
  init = function(self, o)
    self.width, self.eps = o.width, o.eps
    declare_or_wait(self, o.width)
  end,
  declare = function(self)
    self:param("weight", { self.width }, init.ones)
    self:param("bias", { self.width }, init.zeros)
  end,
  forward = function(self, x)
    learn(self, "width", x, -1)
    return Module.op(self, "LayerNorm", { x, self.weight, self.bias }, { eps = self.eps })
  end,
  describe = function(self) return self.width and tostring(self.width) or "" end }

--- A norm of each image by an op; `groups` the option that only one has.
local function image_norm(op, name, doc, positions, affine, groups, example)
  return class { name, name = "norm",
    options = { doc = doc, positions = positions,
      width("channels", "size of the second dimension"),
      { of = op .. ".eps" },
      { "affine", "boolean", affine, doc = "whether each channel is scaled and shifted" },
      groups, example = example },
    init = function(self, o)
      self.channels, self.affine, self.o = o.channels, o.affine, { groups = o.groups, eps = o.eps }
      declare_or_wait(self, o.channels)
    end,
    declare = function(self)
      if not self.affine then return end
      self:param("weight", { self.channels }, init.ones)
      self:param("bias", { self.channels }, init.zeros)
    end,
    forward = function(self, x)
      learn(self, "channels", x, 2)
      local inputs = self.affine and { x, self.weight, self.bias } or { x }
      return Module.op(self, op, inputs, self.o)
    end,
    describe = function(self)
      local n = self.channels and tostring(self.channels) or ""
      return self.o.groups and self.o.groups .. (self.channels and ", " .. n or "") or n
    end }
end

norm.GroupNorm = image_norm("GroupNorm", "GroupNorm", [[Normalisation of groups of channels of each
  image (Wu and He, 2018): the same for training and without, whatever the batch.]],
  { "groups", "channels" }, true, { of = "GroupNorm.groups", required = true },
  "nn.GroupNorm { 8, 64 }")
for rank = 1, 3 do
  local name = ("InstanceNorm%dd"):format(rank)
  norm[name] = image_norm("InstanceNorm", name, [[Normalisation of each channel of each image
  (Ulyanov et al., 2016), without running statistics.]], { "channels" }, false, nil,
    ("nn.%s { 64 }"):format(name))
end

norm.RMSNorm = class { "RMSNorm", name = "norm",
  options = { doc = [[Division by the root mean square over the last dimension (Zhang and Sennrich,
      NeurIPS 2019).]],
    positions = { "width" }, width("width", "size of the last dimension"),
    { of = "RmsNorm.eps", doc = "added to the mean square" }, example = "nn.RMSNorm { 384 }" },
  init = function(self, o)
    self.width, self.eps = o.width, o.eps
    declare_or_wait(self, o.width)
  end,
  declare = function(self) self:param("weight", { self.width }, init.ones) end,
  forward = function(self, x)
    learn(self, "width", x, -1)
    return Module.op(self, "RmsNorm", { x, self.weight }, { eps = self.eps })
  end,
  describe = function(self) return self.width and tostring(self.width) or "" end }

norm.LocalResponseNorm = class { "LocalResponseNorm", name = "norm",
  options = { doc = [[Division by a power of the mean square over neighbouring channels (Krizhevsky
      et al., 2012, section 3.3). nn.LRN is the same class.]],
    positions = { "size" },
    { of = "LRN.size" }, { of = "LRN.alpha" }, { of = "LRN.beta" },
    { "k", of = "LRN.bias", doc = "what the mean is added to: k of the paper" },
    example = "nn.LocalResponseNorm { 5, alpha = 1e-4, beta = 0.75 }" },
  init = function(self, o)
    self.o = { size = o.size, alpha = o.alpha, beta = o.beta, bias = o.k }
  end,
  forward = function(self, x) return Module.op(self, "LRN", { x }, self.o) end,
  describe = function(self) return tostring(self.o.size) end }
norm.LRN = norm.LocalResponseNorm

return norm
