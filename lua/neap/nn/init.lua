--- Layers, containers and losses. Each layer is a few lines over ops; see neap.nn.module for how they become nets.
-- @module neap.nn
local module = require "neap.nn.module"
local options = require "neap.options"
local init = require "neap.initializers"

local Module, class, none = module.Module, module.class, options.none
local nn = { module = class, is_module = module.is_module }

-- ---- containers --------------------------------------------------------------------------------------------------------

local function add_children(self, list)
  for i = 1, #list do
    local child = list[i]
    if not module.is_module(child) then
      error(("%s: item %d is a %s, expected a module%s"):format(self._class, i, type(child),
        type(child) == "table" and " (write nn.ReLU(), with parentheses)" or ""), 4)
    end
    Module.add(self, Module.child_name(self, child), child)
  end
end

--- One layer after another. `input` is the shape of one example, without the batch.
-- @usage nn.Sequential { input = {784}, nn.Linear {784, 10} }
nn.Sequential = class { "Sequential", name = "block",
  init = function(self, o)
    self.input_shape, self.input_dtype = o.input, o.dtype
    rawset(self, "_seed", o.seed)
    add_children(self, o)
  end,
  forward = function(self, x)
    for _, name in ipairs(self._order) do x = self._children[name](x) end
    return x
  end }

--- x + f(x), f being the layers in order; `shortcut` (a module) stands for x where shapes differ.
-- @usage nn.Residual { nn.Linear {64, 64}, nn.ReLU(), nn.Linear {64, 64} }
nn.Residual = class { "Residual",
  init = function(self, o)
    add_children(self, o)
    rawset(self, "_n_body", #self._order)
    if o.shortcut then self.shortcut = o.shortcut end
  end,
  forward = function(self, x)
    local y = x
    for i = 1, self._n_body do y = self._children[self._order[i]](y) end
    local short = self._children.shortcut
    return y + (short and short(x) or x)
  end }

--- The outputs of the branches, side by side along `axis` (2, the channels, by default).
nn.Concat = class { "Concat",
  init = function(self, o)
    self.axis = o.axis or 2
    add_children(self, o)
  end,
  forward = function(self, x)
    local ys = {}
    for i, name in ipairs(self._order) do ys[i] = self._children[name](x) end
    return Module.op(self, "Concat", ys, { axis = self.axis })
  end }

--- A function of blobs (or tensors) as a layer.
nn.Lambda = class { "Lambda",
  init = function(self, o)
    self.f = type(o) == "function" and o or o[1]
    if type(self.f) ~= "function" then error("nn.Lambda takes a function", 4) end
  end,
  forward = function(self, ...) return self.f(...) end }

-- ---- linear and convolution ----------------------------------------------------------------------------------------------

--- y = x W^T + b over the last dimension. Weight (n_out, n_in).
nn.Linear = class { "Linear",
  options = { positions = { "n_in", "n_out" }, n_in = none, n_out = none, bias = true, init = none, name = none },
  init = function(self, o)
    if not (math.type(o.n_in) == "integer" and math.type(o.n_out) == "integer") then
      error("nn.Linear takes { n_in, n_out }, two integers", 4)
    end
    self.n_in, self.n_out = o.n_in, o.n_out
    self:param("weight", { o.n_out, o.n_in }, o.init or init.kaiming { gain = math.sqrt(1 / 3) })
    if o.bias then
      local bound = 1 / math.sqrt(math.max(o.n_in, 1))
      self:param("bias", { o.n_out }, init.uniform { -bound, bound })
    end
  end,
  forward = function(self, x) return Module.op(self, "FC", { x, self.weight, self._params.bias and self.bias or nil }) end,
  describe = function(self) return self.n_in .. ", " .. self.n_out end }

local function per_dim(value, n)
  if type(value) == "table" then return value end
  local out = {}
  for i = 1, n do out[i] = value end
  return out
end

local function conv(rank)
  local name = "Conv" .. rank .. "d"
  return class { name,
    options = { positions = { "n_in", "n_out" }, n_in = none, n_out = none, kernel = none, stride = 1, pad = 0, dilation = 1, groups = 1,
      bias = true, init = none, name = none },
    init = function(self, o)
      if not (o.n_in and o.n_out and o.kernel) then error("nn." .. name .. " takes { n_in, n_out, kernel = k }", 4) end
      local kernel = per_dim(o.kernel, rank)
      self.o = { kernel = kernel, stride = per_dim(o.stride, rank), pad = per_dim(o.pad, rank), dilation = per_dim(o.dilation, rank),
        groups = o.groups }
      self.n_in, self.n_out = o.n_in, o.n_out
      local shape, fan = { o.n_out, o.n_in // o.groups }, o.n_in // o.groups
      for d = 1, rank do
        shape[2 + d] = kernel[d]
        fan = fan * kernel[d]
      end
      self:param("weight", shape, o.init or init.kaiming { gain = math.sqrt(1 / 3) })
      if o.bias then self:param("bias", { o.n_out }, init.uniform { -1 / math.sqrt(fan), 1 / math.sqrt(fan) }) end
    end,
    forward = function(self, x) return Module.op(self, "Conv", { x, self.weight, self._params.bias and self.bias or nil }, self.o) end,
    describe = function(self) return ("%d, %d, kernel = %s"):format(self.n_in, self.n_out, table.concat(self.o.kernel, "x")) end }
end

--- Convolutions over 1, 2 and 3 spatial dimensions; x (batch, channels, ...), weight (n_out, n_in / groups, kernel ...).
-- @usage nn.Conv2d { 3, 64, kernel = 7, stride = 2, pad = 3 }
nn.Conv1d, nn.Conv2d, nn.Conv3d = conv(1), conv(2), conv(3)

local function pool(op, name, rank, extra)
  local spec = { positions = { "kernel" }, kernel = none, stride = none, pad = 0, ceil_mode = false, name = none }
  for key, value in pairs(extra) do spec[key] = value end
  return class { name, name = "pool", options = spec,
    init = function(self, o)
      if not o.kernel then error("nn." .. name .. " takes { kernel }", 4) end
      self.o = { kernel = per_dim(o.kernel, rank), stride = per_dim(o.stride or o.kernel, rank), pad = per_dim(o.pad, rank), ceil_mode = o.ceil_mode }
      for key in pairs(extra) do self.o[key] = key == "dilation" and per_dim(o[key], rank) or o[key] end
    end,
    forward = function(self, x) return Module.op(self, op, { x }, self.o) end,
    describe = function(self) return table.concat(self.o.kernel, "x") end }
end

--- Pooling over windows; stride defaults to the kernel.
nn.MaxPool1d, nn.MaxPool2d = pool("MaxPool", "MaxPool1d", 1, { dilation = 1 }), pool("MaxPool", "MaxPool2d", 2, { dilation = 1 })
nn.AvgPool1d = pool("AveragePool", "AvgPool1d", 1, { count_include_pad = true })
nn.AvgPool2d = pool("AveragePool", "AvgPool2d", 2, { count_include_pad = true })

--- A layer that is one op of one input.
local function unary(name, op, base, spec)
  spec = spec or {}
  spec.name = none
  return class { name, name = base, options = spec,
    init = function(self, o)
      self.o = {}
      for key in pairs(spec) do
        if key ~= "name" and key ~= "positions" then self.o[key] = o[key] end
      end
    end,
    forward = function(self, x) return Module.op(self, op, { x }, self.o) end }
end

--- The mean over all spatial positions: (N,C,...) to (N,C,1,1).
nn.GlobalAvgPool = unary("GlobalAvgPool", "GlobalAveragePool", "pool")

-- ---- activations and shape -------------------------------------------------------------------------------------------------

nn.ReLU = unary("ReLU", "Relu", "relu")
nn.Sigmoid = unary("Sigmoid", "Sigmoid", "sigmoid")
nn.Tanh = unary("Tanh", "Tanh", "tanh")
nn.SiLU = unary("SiLU", "Silu", "silu")
--- Gelu; approximate = "tanh" for the cheaper form of GPT-2.
nn.GELU = unary("GELU", "Gelu", "gelu", { approximate = "none" })
nn.Softmax = unary("Softmax", "Softmax", "softmax", { positions = { "axis" }, axis = -1 })
--- (N, d, e, ...) to (N, d e ...).
nn.Flatten = unary("Flatten", "Flatten", "flatten")
nn.Identity = class { "Identity", forward = function(_, x) return x end }

--- Drops elements with probability `rate` while training, and scales the others by 1 / (1 - rate).
nn.Dropout = class { "Dropout", options = { positions = { "rate" }, rate = 0.5, name = none },
  init = function(self, o) self.rate = o.rate end,
  forward = function(self, x)
    if not Module.is_training() or self.rate == 0 then return x end
    return Module.op(self, "Dropout", { x }, { rate = self.rate, training = true })
  end,
  describe = function(self) return tostring(self.rate) end }

-- ---- normalisation -----------------------------------------------------------------------------------------------------------

local function batch_norm(name)
  return class { name, name = "norm",
    options = { positions = { "channels" }, channels = none, eps = 1e-5, momentum = 0.1, name = none },
    init = function(self, o)
      if not o.channels then error("nn." .. name .. " takes { channels }", 4) end
      self.channels, self.eps, self.momentum = o.channels, o.eps, o.momentum
      self:param("weight", { o.channels }, init.ones)
      self:param("bias", { o.channels }, init.zeros)
      self:buffer("running_mean", { o.channels }, init.zeros)
      self:buffer("running_var", { o.channels }, init.ones)
    end,
    forward = function(self, x)
      if not Module.is_training() then
        return Module.op(self, "BatchNorm", { x, self.weight, self.bias, self.running_mean, self.running_var },
          { eps = self.eps, training = false })
      end
      local y, mean, var = Module.op(self, "BatchNorm", { x, self.weight, self.bias }, { eps = self.eps, training = true }, 3)
      local n = x:n_element() // self.channels
      local net = y.net
      net:op("RunningAverage", { self.running_mean, mean }, { self.running_mean }, { momentum = self.momentum })
      net:op("RunningAverage", { self.running_var, var }, { self.running_var },
        { momentum = self.momentum, factor = n > 1 and n / (n - 1) or 1 })
      return y
    end,
    describe = function(self) return tostring(self.channels) end }
end

--- Batch normalisation over all dimensions but the second (Ioffe and Szegedy, ICML 2015). Running statistics are state.
nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d = batch_norm "BatchNorm1d", batch_norm "BatchNorm2d", batch_norm "BatchNorm3d"

--- Layer normalisation over the last dimension (Ba et al., 2016).
nn.LayerNorm = class { "LayerNorm", name = "norm", options = { positions = { "width" }, width = none, eps = 1e-5, name = none },
  init = function(self, o)
    if not o.width then error("nn.LayerNorm takes { width }", 4) end
    self.width, self.eps = o.width, o.eps
    self:param("weight", { o.width }, init.ones)
    self:param("bias", { o.width }, init.zeros)
  end,
  forward = function(self, x) return Module.op(self, "LayerNorm", { x, self.weight, self.bias }, { eps = self.eps }) end,
  describe = function(self) return tostring(self.width) end }

-- ---- sequences -----------------------------------------------------------------------------------------------------------------

--- Rows of a table by number, numbers from 0: (...) to (..., width).
nn.Embedding = class { "Embedding", options = { positions = { "n_row", "width" }, n_row = none, width = none, init = none, name = none },
  init = function(self, o)
    if not (o.n_row and o.width) then error("nn.Embedding takes { n_row, width }", 4) end
    self.n_row, self.width = o.n_row, o.width
    self:param("weight", { o.n_row, o.width }, o.init or init.normal { 0, 1 })
  end,
  forward = function(self, ids) return Module.op(self, "Embedding", { ids, self.weight }) end,
  describe = function(self) return self.n_row .. ", " .. self.width end }

--- Multi-head self-attention of x (B,T,C): one projection to queries, keys and values, attention, one projection back.
-- @usage nn.SelfAttention { 384, heads = 6, causal = true }
nn.SelfAttention = class { "SelfAttention", name = "attn",
  options = { positions = { "width" }, width = none, heads = 1, causal = false, bias = true, init = none, name = none },
  init = function(self, o)
    if not o.width or o.width % o.heads ~= 0 then error("nn.SelfAttention takes { width, heads = n }, n a divisor of width", 4) end
    self.heads, self.causal = o.heads, o.causal
    self.qkv = nn.Linear { o.width, 3 * o.width, bias = o.bias, init = o.init }
    self.proj = nn.Linear { o.width, o.width, bias = o.bias, init = o.init }
  end,
  forward = function(self, x)
    return self.proj((Module.op(self, "PackedAttention", { self.qkv(x) }, { heads = self.heads, causal = self.causal })))
  end,
  describe = function(self) return ("heads = %d%s"):format(self.heads, self.causal and ", causal" or "") end }

-- ---- losses ---------------------------------------------------------------------------------------------------------------------

local function loss_class(name, spec)
  spec.name, spec[1] = "loss", name
  return class(spec)
end

--- Softmax and cross entropy, mean over rows. Labels are integers from 0, shape of the logits without the last dimension.
nn.CrossEntropyLoss = loss_class("CrossEntropyLoss", {
  options = { label_smoothing = 0, ignore_index = none },
  init = function(self, o) self.o = { label_smoothing = o.label_smoothing, ignore_index = o.ignore_index } end,
  target = function(_, output)
    local shape = {}
    for d = 1, #output.shape - 1 do shape[d] = output.shape[d] end
    return shape, "i64"
  end,
  forward = function(self, logits, labels) return (logits.net:op("SoftmaxCrossEntropy", { logits, labels }, { "loss" }, self.o)) end,
  metric = function(_, name, logits, labels)
    if name ~= "accuracy" then error("CrossEntropyLoss knows the metric \"accuracy\", not \"" .. tostring(name) .. "\"", 0) end
    return (logits.net:op("Accuracy", { logits, labels }, { "accuracy" }, {}))
  end })

--- Mean of the squared differences.
nn.MseLoss = loss_class("MseLoss", {
  target = function(_, output) return output.shape, output.dtype end,
  forward = function(_, y, t) return (y.net:op("MseLoss", { y, t }, { "loss" }, {})) end,
  metric = function(_, name) error("MseLoss has no metric \"" .. tostring(name) .. "\"", 0) end })

-- A class given uncalled is a frequent slip; the containers say so. Names of all classes, for help.
function nn.names()
  local names = {}
  for name, value in pairs(nn) do
    if type(value) == "table" and value._class_name then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

return nn
