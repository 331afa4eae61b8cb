--- Layers with weights that are products (Linear, convolutions), and pooling.
-- @module neap.nn.layers
local fail = require("neap.core").fail
local init = require "neap.nn.initializers"
local module = require "neap.nn.module"
local widths = require "neap.nn.widths"

local Module, class = module.Module, module.class
local declare_or_wait, learn, per_dim = widths.declare_or_wait, widths.learn, widths.per_dim
local layers = {}

-- Options that Linear and the convolutions share.
local n_in = { "n_in", "integer", min = 1, unset = "that of the first input",
  doc = "width of the input, or its channels" }
local n_out = { "n_out", "integer", min = 1, required = true,
  doc = "width of the output, or its channels" }
local bias = { "bias", "boolean", true, doc = "whether a bias is added" }
local weight_init = { "init", "initial", unset = "uniform in +-sqrt(1 / fan_in)",
  doc = "how the weight starts" }

layers.Linear = class { "Linear",
  options = { doc = "x W^T + b over the last dimension; the weight W is (n_out, n_in).",
    positions = { "[n_in]", "n_out" }, n_in, n_out, bias, weight_init,
    example = "nn.Linear { 784, 10 }" },
  init = function(self, o)
    self.n_in, self.n_out, self.has_bias, self.weight_init = o.n_in, o.n_out, o.bias, o.init
    declare_or_wait(self, o.n_in)
  end,
  declare = function(self)
    self:param("weight", { self.n_out, self.n_in },
      self.weight_init or init.kaiming { gain = math.sqrt(1 / 3) })
    local bound = 1 / math.sqrt(self.n_in)
    if self.has_bias then self:param("bias", { self.n_out }, init.uniform { -bound, bound }) end
  end,
  forward = function(self, x)
    learn(self, "n_in", x, -1)
    return Module.op(self, "FC", { x, self.weight, self.has_bias and self.bias or nil })
  end,
  describe = function(self) return (self.n_in and self.n_in .. ", " or "") .. self.n_out end }

--- The convolution over `rank` dimensions by an op, Conv or ConvTranspose, whose weight begins with
-- the channels that come out, or that go in; `extra` is the option that only it has.
local function conv(op, rank, doc, example, extra)
  local name = op .. rank .. "d"
  return class { name,
    options = { doc = doc, positions = { "[n_in]", "n_out" }, n_in, n_out,
      { of = op .. ".kernel", n = rank, required = true, doc = "size of the window" },
      { of = op .. ".stride", default = 1, n = rank },
      { of = op .. ".pad", default = 0, n = rank, most_n = 2 * rank },
      { of = op .. ".dilation", default = 1, n = rank },
      { of = op .. ".groups" },
      bias, weight_init, extra, example = example },
    init = function(self, o)
      self.o = { kernel = per_dim(o.kernel, rank), stride = per_dim(o.stride, rank),
        pad = per_dim(o.pad, rank), dilation = per_dim(o.dilation, rank), groups = o.groups,
        output_padding = o.output_padding and per_dim(o.output_padding, rank) }
      self.n_in, self.n_out, self.has_bias, self.weight_init = o.n_in, o.n_out, o.bias, o.init
      declare_or_wait(self, o.n_in)
    end,
    declare = function(self)
      local groups = self.o.groups
      if self.n_in % groups ~= 0 or self.n_out % groups ~= 0 then
        fail(("nn.%s: groups = %d has to divide %d and %d channels"):format(name, groups, self.n_in,
          self.n_out))
      end
      -- As torch has it, the second size is the fan, whichever side it is of.
      local shape = op == "Conv" and { self.n_out, self.n_in // groups }
        or { self.n_in, self.n_out // groups }
      local fan = shape[2]
      for d = 1, rank do
        shape[2 + d] = self.o.kernel[d]
        fan = fan * self.o.kernel[d]
      end
      self:param("weight", shape, self.weight_init or init.kaiming { gain = math.sqrt(1 / 3) })
      local bound = 1 / math.sqrt(fan)
      if self.has_bias then self:param("bias", { self.n_out }, init.uniform { -bound, bound }) end
    end,
    forward = function(self, x)
      learn(self, "n_in", x, 2)
      return Module.op(self, op, { x, self.weight, self.has_bias and self.bias or nil }, self.o)
    end,
    describe = function(self)
      return ("%s%d, kernel = %s"):format(self.n_in and self.n_in .. ", " or "", self.n_out,
        table.concat(self.o.kernel, "x"))
    end }
end

layers.Conv1d = conv("Conv", 1, [[Convolution over one dimension; x (batch, channels, length),
  weight (n_out, n_in / groups, kernel).]], "nn.Conv1d { 16, 32, kernel = 3, pad = 1 }")
layers.Conv2d = conv("Conv", 2, [[Convolution over two dimensions; x (batch, channels, height,
  width), weight (n_out, n_in / groups, kernel, kernel).]],
  "nn.Conv2d { 3, 64, kernel = 7, stride = 2, pad = 3 }")
layers.Conv3d = conv("Conv", 3, [[Convolution over three dimensions; x (batch, channels, depth,
  height, width), weight (n_out, n_in / groups, kernel, kernel, kernel).]],
  "nn.Conv3d { 1, 8, kernel = { 3, 5, 5 } }")

local function conv_transpose(rank, space, example)
  return conv("ConvTranspose", rank, ([[Transposed convolution over %s, which makes x larger by the
  stride: what the gradient of nn.Conv%dd computes. Weight (n_in, n_out / groups, kernel, ..).]])
    :format(space, rank), example, { of = "ConvTranspose.output_padding", default = 0, n = rank })
end
layers.ConvTranspose1d = conv_transpose(1, "one dimension",
  "nn.ConvTranspose1d { 16, 8, kernel = 4, stride = 2, pad = 1 }")
layers.ConvTranspose2d = conv_transpose(2, "two dimensions",
  "nn.ConvTranspose2d { 64, 32, kernel = 2, stride = 2 }")
layers.ConvTranspose3d = conv_transpose(3, "three dimensions",
  "nn.ConvTranspose3d { 8, 1, kernel = 2, stride = 2 }")

-- ---- pooling -----------------------------------------------------------------------------------

--- Pooling over windows of `rank` dimensions by an op; `extra` is the option that only it has.
local function pool(op, name, rank, doc, extra)
  return class { name, name = "pool",
    options = { doc = doc, positions = { "kernel" },
      { of = op .. ".kernel", n = rank, required = true, doc = "size of the window" },
      { of = op .. ".stride", n = rank, unset = "the kernel", doc = "step of the window" },
      { of = op .. ".pad", default = 0, n = rank, most_n = 2 * rank },
      { of = op .. ".ceil_mode" }, extra,
      example = ("nn.%s { 3, stride = 2 }"):format(name) },
    init = function(self, o)
      self.o = { kernel = per_dim(o.kernel, rank), stride = per_dim(o.stride or o.kernel, rank),
        pad = per_dim(o.pad, rank), ceil_mode = o.ceil_mode,
        dilation = o.dilation and per_dim(o.dilation, rank),
        count_include_pad = o.count_include_pad, p = o.p }
    end,
    forward = function(self, x) return Module.op(self, op, { x }, self.o) end,
    describe = function(self) return table.concat(self.o.kernel, "x") end }
end

local function max_pool(rank)
  return pool("MaxPool", ("MaxPool%dd"):format(rank), rank, "The largest element of each window.",
    { of = "MaxPool.dilation", default = 1, n = rank })
end

local function average_pool(rank)
  return pool("AveragePool", ("AvgPool%dd"):format(rank), rank, "The mean of each window.",
    { of = "AveragePool.count_include_pad" })
end

layers.MaxPool1d, layers.MaxPool2d, layers.MaxPool3d = max_pool(1), max_pool(2), max_pool(3)
local dims = { "one dimension", "two dimensions", "three dimensions" }

--- Pooling to a size of y by an op.
local function adaptive_pool(op, name, rank, doc)
  return class { name, name = "pool",
    options = { doc = doc:format(dims[rank]), positions = { "output_size" },
      { of = op .. ".output_size", n = rank, required = true },
      example = ("nn.%s { 7 }"):format(name) },
    init = function(self, o) self.o = { output_size = per_dim(o.output_size, rank) } end,
    forward = function(self, x) return Module.op(self, op, { x }, self.o) end,
    describe = function(self) return table.concat(self.o.output_size, "x") end }
end

for rank = 1, 3 do
  local max, average = ("AdaptiveMaxPool%dd"):format(rank), ("AdaptiveAvgPool%dd"):format(rank)
  local norm = ("LPPool%dd"):format(rank)
  layers[max] = adaptive_pool("AdaptiveMaxPool", max, rank,
    "The largest element of each of output_size windows, which share %s out.")
  layers[average] = adaptive_pool("AdaptiveAveragePool", average, rank,
    "The mean of each of output_size windows, which share %s out.")
  layers[norm] = pool("LpPool", norm, rank, "The p-norm of each window.", { of = "LpPool.p" })
end

layers.AvgPool1d, layers.AvgPool2d, layers.AvgPool3d = average_pool(1), average_pool(2),
  average_pool(3)

return layers
