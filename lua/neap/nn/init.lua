--- Layers and containers. Each layer is a few lines over ops; see neap.nn.module for how they become nets, neap.nn.loss for
-- losses.
-- @module neap.nn
local fail = require("neap.core").fail
local module = require "neap.nn.module"
require "neap.nn.build"
require "neap.nn.state"
local options = require "neap.inner.options"
local tree = require "neap.nn.tree"
local init = require "neap.nn.initializers"

local Module, class, none = module.Module, module.class, options.none
local nn = { module = class, is_module = module.is_module }

-- ---- containers --------------------------------------------------------------------------------------------------------

--- The string fields of a container's table, checked; its array part is the children.
local function container_fields(who, spec, o)
  local given = {}
  if type(o) ~= "table" or module.is_module(o) then fail(who .. " takes a table of modules: " .. who .. " { nn.Linear { 4, 2 }, nn.ReLU() }") end
  for key, value in pairs(o) do
    if math.type(key) == "integer" then
      if key < 1 or key > #o then fail(("%s: item %d is nil"):format(who, #o + 1)) end
    elseif key ~= "input" or spec.input ~= nil or type(value) ~= "table" then -- every class takes the shape of one example
      given[key] = value
    end
  end
  local fields = options.read(who, spec, given)
  return fields
end

--- One layer after another. `input` is the shape of one example, without the batch; `dtype` of it, "f32" by default.
-- @usage nn.Sequential { input = {784}, nn.Linear { 784, 10 } }   nn.Sequential { nn.Linear { 8, 8, name = "up" }, nn.ReLU() }
nn.Sequential = class { "Sequential", name = "block",
  init = function(self, o)
    local fields = container_fields("nn.Sequential", { input = none, dtype = none, seed = none, name = none }, o)
    if fields.input ~= nil and type(fields.input) ~= "table" then
      fail("nn.Sequential: input expects the shape of one example, e.g. { 1, 28, 28 }, got a " .. type(fields.input))
    end
    self.input_shape, self.input_dtype, self._seed = fields.input, fields.dtype, fields.seed
    Module.add_all(self, o)
  end,
  forward = function(self, ...)
    local xs = table.pack(...)
    for _, child in ipairs(tree.layers(self)) do xs = table.pack(child(table.unpack(xs, 1, xs.n))) end
    return table.unpack(xs, 1, xs.n)
  end }

--- x + f(x), f being the layers in order; `shortcut` (a module) stands for x where shapes differ.
-- @usage nn.Residual { nn.Linear { 64, 64 }, nn.ReLU(), nn.Linear { 64, 64 } }
nn.Residual = class { "Residual",
  init = function(self, o)
    local fields = container_fields("nn.Residual", { shortcut = none, name = none }, o)
    Module.add_all(self, o)
    if fields.shortcut then self.shortcut = Module.expect(fields.shortcut, "nn.Residual: shortcut") end
  end,
  forward = function(self, x)
    local y, short = x, self.shortcut
    for _, child in ipairs(tree.layers(self)) do
      if child ~= short then y = child(y) end
    end
    return y + (short and short(x) or x)
  end }

--- The outputs of the branches, side by side along `axis` (2, the channels, by default).
-- @usage nn.Concat { nn.Conv2d { 64, 32, kernel = 1 }, nn.Conv2d { 64, 32, kernel = 3, pad = 1 } }
nn.Concat = class { "Concat",
  init = function(self, o)
    self.axis = container_fields("nn.Concat", { axis = 2, name = none }, o).axis
    Module.add_all(self, o)
  end,
  forward = function(self, x)
    local ys = {}
    for i, child in ipairs(tree.layers(self)) do ys[i] = child(x) end
    return Module.op(self, "Concat", ys, { axis = self.axis })
  end }

--- A function of blobs (or tensors) as a layer.
-- It is called once for each kind of input: what it reads besides is as it was then (help "nn.module").
-- @usage nn.Lambda(function(x) return x:tanh() * 2 end)
nn.Lambda = class { "Lambda",
  options = { positions = { "f" }, f = none, name = none },
  init = function(self, o)
    self.f = o.f
    if type(self.f) ~= "function" then fail("nn.Lambda takes a function") end
  end,
  forward = function(self, ...) return self.f(...) end }

--- Layers may leave out the width of their input: `declare` then waits for the first net that is built.
local function declare_or_wait(self, known)
  if known then self:declare() else self._lazy = true end
end

--- Called by forward: the width is that of dimension d of x.
local function learn(self, field, x, d)
  if not self._lazy then return end
  self[field] = x:size(d)
  self:declare()
  self._lazy = false
  module.changed(self)
end

local function is_count(n) return math.type(n) == "integer" and n > 0 end

--- { out } or { in, out } as o.n_in (nil when it is to be learnt), o.n_out.
local function take_widths(who, o)
  if o.n_out == nil then o.n_in, o.n_out = nil, o.n_in end
  if not is_count(o.n_out) or not (o.n_in == nil or is_count(o.n_in)) then
    fail(("nn.%s takes { [n_in,] n_out }, integers above 0"):format(who))
  end
end

-- ---- linear and convolution ----------------------------------------------------------------------------------------------

--- y = x W^T + b over the last dimension. Weight (n_out, n_in).
-- @usage nn.Linear { 784, 10 }   nn.Linear { 10, bias = false }   -- the second learns its input's width when it is first used
nn.Linear = class { "Linear",
  options = { positions = { "n_in", "n_out" }, n_in = none, n_out = none, bias = true, init = none, name = none },
  init = function(self, o)
    take_widths("Linear", o)
    self.n_in, self.n_out, self.has_bias, self.weight_init = o.n_in, o.n_out, o.bias, o.init
    declare_or_wait(self, o.n_in)
  end,
  declare = function(self)
    self:param("weight", { self.n_out, self.n_in }, self.weight_init or init.kaiming { gain = math.sqrt(1 / 3) })
    local bound = 1 / math.sqrt(self.n_in)
    if self.has_bias then self:param("bias", { self.n_out }, init.uniform { -bound, bound }) end
  end,
  forward = function(self, x)
    learn(self, "n_in", x, -1)
    return Module.op(self, "FC", { x, self.weight, self.has_bias and self.bias or nil })
  end,
  describe = function(self) return (self.n_in and self.n_in .. ", " or "") .. self.n_out end }

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
      take_widths(name, o)
      if not o.kernel then fail("nn." .. name .. " takes { [n_in,] n_out, kernel = k }") end
      self.o = { kernel = per_dim(o.kernel, rank), stride = per_dim(o.stride, rank), pad = per_dim(o.pad, rank),
        dilation = per_dim(o.dilation, rank), groups = o.groups }
      self.n_in, self.n_out, self.has_bias, self.weight_init = o.n_in, o.n_out, o.bias, o.init
      declare_or_wait(self, o.n_in)
    end,
    declare = function(self)
      if self.n_in % self.o.groups ~= 0 or self.n_out % self.o.groups ~= 0 then
        fail(("nn.%s: groups = %d has to divide %d and %d channels"):format(name, self.o.groups, self.n_in, self.n_out))
      end
      local shape, fan = { self.n_out, self.n_in // self.o.groups }, self.n_in // self.o.groups
      for d = 1, rank do
        shape[2 + d] = self.o.kernel[d]
        fan = fan * self.o.kernel[d]
      end
      self:param("weight", shape, self.weight_init or init.kaiming { gain = math.sqrt(1 / 3) })
      if self.has_bias then self:param("bias", { self.n_out }, init.uniform { -1 / math.sqrt(fan), 1 / math.sqrt(fan) }) end
    end,
    forward = function(self, x)
      learn(self, "n_in", x, 2)
      return Module.op(self, "Conv", { x, self.weight, self.has_bias and self.bias or nil }, self.o)
    end,
    describe = function(self)
      return ("%s%d, kernel = %s"):format(self.n_in and self.n_in .. ", " or "", self.n_out, table.concat(self.o.kernel, "x"))
    end }
end

--- Convolutions over 1, 2 and 3 spatial dimensions; x (batch, channels, ...), weight (n_out, n_in / groups, kernel ...).
-- @usage nn.Conv2d { 3, 64, kernel = 7, stride = 2, pad = 3 }
nn.Conv1d, nn.Conv2d, nn.Conv3d = conv(1), conv(2), conv(3)

local function pool(op, name, rank, extra)
  local spec = { positions = { "kernel" }, kernel = none, stride = none, pad = 0, ceil_mode = false, name = none }
  for key, value in pairs(extra) do spec[key] = value end
  return class { name, name = "pool", options = spec,
    init = function(self, o)
      if not o.kernel then fail("nn." .. name .. " takes { kernel }") end
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
      local attrs = {}
      for key in pairs(spec) do
        if key ~= "name" and key ~= "positions" then attrs[key] = o[key] end
      end
      self.o = next(attrs) and attrs or nil
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
nn.ReLU6 = unary("ReLU6", "Relu6", "relu")
nn.LeakyReLU = unary("LeakyReLU", "LeakyRelu", "relu", { positions = { "slope" }, slope = 0.01 })
nn.ELU = unary("ELU", "Elu", "elu", { positions = { "alpha" }, alpha = 1 })
nn.Softplus = unary("Softplus", "Softplus", "softplus")
nn.LogSoftmax = unary("LogSoftmax", "LogSoftmax", "softmax", { positions = { "axis" }, axis = -1 })
--- Gelu; approximate = "tanh" for the cheaper form of GPT-2.
nn.GELU = unary("GELU", "Gelu", "gelu", { approximate = "none" })
nn.Softmax = unary("Softmax", "Softmax", "softmax", { positions = { "axis" }, axis = -1 })
--- (N, d, e, ...) to (N, d e ...).
nn.Flatten = unary("Flatten", "Flatten", "flatten")
nn.Identity = class { "Identity", forward = function(_, x) return x end }

--- Drops elements with probability `rate` while training, and scales the others by 1 / (1 - rate).
nn.Dropout = class { "Dropout", options = { positions = { "rate" }, rate = 0.5, name = none },
  init = function(self, o)
    if type(o.rate) ~= "number" or o.rate < 0 or o.rate >= 1 then fail("nn.Dropout takes { rate }, at least 0 and below 1") end
    self.rate = o.rate
  end,
  forward = function(self, x)
    if not self.training or self.rate == 0 then return x end
    return Module.op(self, "Dropout", { x }, { rate = self.rate, training = true })
  end,
  describe = function(self) return tostring(self.rate) end }

-- ---- normalisation -----------------------------------------------------------------------------------------------------------

local function batch_norm(name)
  return class { name, name = "norm",
    options = { positions = { "channels" }, channels = none, eps = 1e-5, momentum = 0.1, name = none },
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
      if not self.training then
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
    describe = function(self) return self.channels and tostring(self.channels) or "" end }
end

--- Batch normalisation over all dimensions but the second (Ioffe and Szegedy, ICML 2015). Running statistics are state.
nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d = batch_norm "BatchNorm1d", batch_norm "BatchNorm2d", batch_norm "BatchNorm3d"

--- Layer normalisation over the last dimension (Ba et al., 2016).
nn.LayerNorm = class { "LayerNorm", name = "norm", options = { positions = { "width" }, width = none, eps = 1e-5, name = none },
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

--- Division by the root mean square over the last dimension (Zhang and Sennrich, NeurIPS 2019).
nn.RMSNorm = class { "RMSNorm", name = "norm", options = { positions = { "width" }, width = none, eps = 1e-6, name = none },
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

--- Division by a power of the mean square over `size` neighbouring channels (Krizhevsky et al., 2012, section 3.3); `k` is
-- the op's bias. nn.LRN is the same class.
-- @usage nn.LocalResponseNorm { 5, alpha = 1e-4, beta = 0.75 }
nn.LocalResponseNorm = class { "LocalResponseNorm", name = "norm",
  options = { positions = { "size" }, size = 5, alpha = 1e-4, beta = 0.75, k = 1, name = none },
  init = function(self, o)
    if not is_count(o.size) then fail("nn.LocalResponseNorm takes { size }, an integer above 0") end
    self.o = { size = o.size, alpha = o.alpha, beta = o.beta, bias = o.k }
  end,
  forward = function(self, x) return Module.op(self, "LRN", { x }, self.o) end,
  describe = function(self) return tostring(self.o.size) end }
nn.LRN = nn.LocalResponseNorm

-- ---- sequences -----------------------------------------------------------------------------------------------------------------

--- Rows of a table by number, numbers from 0: (...) to (..., width). The row `padding_idx`, from 0 or negative from the end,
-- gets no gradient: fill it with what padding is to mean.
nn.Embedding = class { "Embedding",
  options = { positions = { "n_row", "width" }, n_row = none, width = none, padding_idx = none, init = none, name = none },
  init = function(self, o)
    if not (o.n_row and o.width) then fail("nn.Embedding takes { n_row, width }") end
    self.n_row, self.width, self.padding_idx = o.n_row, o.width, o.padding_idx
    self:param("weight", { o.n_row, o.width }, o.init or init.normal { 0, 1 })
  end,
  forward = function(self, ids) return Module.op(self, "Embedding", { ids, self.weight }, { padding_idx = self.padding_idx }) end,
  describe = function(self)
    return ("%d, %d%s"):format(self.n_row, self.width, self.padding_idx and ", padding_idx = " .. self.padding_idx or "")
  end }

--- Multi-head self-attention of x (B,T,C): one projection to queries, keys and values, attention, one projection back.
-- @usage nn.SelfAttention { 384, heads = 6, causal = true }
nn.SelfAttention = class { "SelfAttention", name = "attn",
  options = { positions = { "width" }, width = none, heads = 1, causal = false, bias = true, init = none, name = none },
  init = function(self, o)
    if not o.width or o.width % o.heads ~= 0 then fail("nn.SelfAttention takes { width, heads = n }, n a divisor of width") end
    self.heads, self.causal = o.heads, o.causal
    self.qkv = nn.Linear { o.width, 3 * o.width, bias = o.bias, init = o.init }
    self.proj = nn.Linear { o.width, o.width, bias = o.bias, init = o.init }
  end,
  forward = function(self, x)
    return self.proj((Module.op(self, "PackedAttention", { self.qkv(x) }, { heads = self.heads, causal = self.causal })))
  end,
  describe = function(self) return ("heads = %d%s"):format(self.heads, self.causal and ", causal" or "") end }

--- Long short-term memory over sequences x (N,T,n_in), layer upon layer; gives y (N,T,n_out) of the last one. With
-- `time_first` x and y are (T,N,..), which saves a copy of each. A second argument, integers (N), says how long each
-- sequence is: y is 0 from there on.
-- Weights as in PyTorch: (4 n_out, n_in) and (4 n_out, n_out), gates in the order input, forget, candidate, output; one bias.
-- @usage nn.LSTM { 256, 256, layers = 2 }
nn.LSTM = class { "LSTM",
  options = { positions = { "n_in", "n_out" }, n_in = none, n_out = none, layers = 1, bias = true, time_first = false, init = none, name = none },
  init = function(self, o)
    take_widths("LSTM", o)
    if not is_count(o.layers) then fail("nn.LSTM: layers expects an integer above 0, got " .. tostring(o.layers)) end
    self.n_in, self.n_out, self.layers, self.has_bias, self.time_first, self.weight_init = o.n_in, o.n_out, o.layers, o.bias, o.time_first, o.init
    declare_or_wait(self, o.n_in)
  end,
  declare = function(self)
    local bound, n_in = 1 / math.sqrt(self.n_out), self.n_in
    local initial = self.weight_init or init.uniform { -bound, bound }
    for layer = 1, self.layers do
      self:param("input_weight" .. layer, { 4 * self.n_out, n_in }, initial)
      self:param("state_weight" .. layer, { 4 * self.n_out, self.n_out }, initial)
      if self.has_bias then self:param("bias" .. layer, { 4 * self.n_out }, init.uniform { -bound, bound }) end
      n_in = self.n_out
    end
  end,
  forward = function(self, x, lengths)
    learn(self, "n_in", x, -1)
    if not self.time_first then x = x:transpose(1, 2) end
    for layer = 1, self.layers do
      x = Module.op(self, "LSTM", { x, self["input_weight" .. layer], self["state_weight" .. layer],
        self.has_bias and self["bias" .. layer] or nil, nil, nil, lengths }, nil, 3)
    end
    return self.time_first and x or x:transpose(1, 2)
  end,
  describe = function(self)
    return ("%s%d%s"):format(self.n_in and self.n_in .. ", " or "", self.n_out, self.layers > 1 and ", layers = " .. self.layers or "")
  end }

-- ---- names -----------------------------------------------------------------------------------------------------------------------

for name, value in pairs(require "neap.nn.loss") do nn[name] = value end

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
return setmetatable(require("neap.inner.guard").functions(nn, "nn."), { __index = function(_, key)
  local near = options.nearest(tostring(key), nn.names())
  fail(("nn has no \"%s\"%s"):format(tostring(key),
    near and (", did you mean \"" .. near .. "\"?") or "; print(table.concat(nn.names(), \" \")) lists what there is"))
end })
