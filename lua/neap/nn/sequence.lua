--- Layers over sequences: embedding, attention, LSTM.
-- @module neap.nn.sequence
local fail = require("neap.core").fail
local init = require "neap.nn.initializers"
local layers = require "neap.nn.layers"
local module = require "neap.nn.module"
local widths = require "neap.nn.widths"

local Module, class = module.Module, module.class
local sequence = {}

sequence.Embedding = class { "Embedding",
  options = { doc = "Rows of a table by number, numbers from 0: (..) to (.., width).",
    positions = { "n_row", "width" },
    { "n_row", "integer", min = 1, required = true, doc = "rows of the table" },
    { "width", "integer", min = 1, required = true, doc = "length of a row" },
    { "padding_idx", "integer", unset = "none", doc = [[a row that gets no gradient, from 0 or
      negative from the end: fill it with what padding is to mean]] },
    { "init", "initial", unset = "normal, mean 0, deviation 1", doc = "how the table starts" },
    example = "nn.Embedding { 65, 384 }" },
  init = function(self, o)
    self.n_row, self.width, self.padding_idx = o.n_row, o.width, o.padding_idx
    self:param("weight", { o.n_row, o.width }, o.init or init.normal { 0, 1 })
  end,
  forward = function(self, ids)
    return Module.op(self, "Embedding", { ids, self.weight }, { padding_idx = self.padding_idx })
  end,
  describe = function(self)
    return ("%d, %d%s"):format(self.n_row, self.width,
      self.padding_idx and ", padding_idx = " .. self.padding_idx or "")
  end }

sequence.SelfAttention = class { "SelfAttention", name = "attn",
  options = { doc = [[Multi-head self-attention of x (B,T,C): one projection to queries, keys and
      values, attention, one projection back.]],
    positions = { "width" },
    { "width", "integer", min = 1, required = true, doc = "C, which heads divides" },
    { "heads", "integer", 1, min = 1, doc = "heads, each of width / heads" },
    { of = "PackedAttention.causal" },
    { "bias", "boolean", true, doc = "whether the projections add a bias" },
    { "init", "initial", unset = "as in nn.Linear", doc = "how both weights start" },
    example = "nn.SelfAttention { 384, heads = 6, causal = true }" },
  init = function(self, o)
    if o.width % o.heads ~= 0 then
      fail(("nn.SelfAttention: heads = %d has to divide width = %d"):format(o.heads, o.width))
    end
    self.heads, self.causal = o.heads, o.causal
    self.qkv = layers.Linear { o.width, 3 * o.width, bias = o.bias, init = o.init }
    self.proj = layers.Linear { o.width, o.width, bias = o.bias, init = o.init }
  end,
  forward = function(self, x)
    local y = Module.op(self, "PackedAttention", { self.qkv(x) },
      { heads = self.heads, causal = self.causal })
    return self.proj(y)
  end,
  describe = function(self)
    return ("heads = %d%s"):format(self.heads, self.causal and ", causal" or "")
  end }

sequence.LSTM = class { "LSTM",
  options = { doc = [[Long short-term memory over sequences x (N,T,n_in), layer upon layer; gives
      y (N,T,n_out) of the last one. A second argument, integers (N), says how long each sequence
      is: y is 0 from there on. Weights as in PyTorch: (4 n_out, n_in) and (4 n_out, n_out), gates
      in the order input, forget, candidate, output; one bias.]],
    positions = { "[n_in]", "n_out" },
    { "n_in", "integer", min = 1, unset = "that of the first input", doc = "width of the input" },
    { "n_out", "integer", min = 1, required = true, doc = "width of state and output" },
    { "layers", "integer", 1, min = 1, doc = "how many stand one upon the other" },
    { "bias", "boolean", true, doc = "whether a bias is added" },
    { "time_first", "boolean", false,
      doc = "x and y are (T,N,..), which saves a copy of each" },
    { "init", "initial", unset = "uniform in +-sqrt(1 / n_out)", doc = "how the weights start" },
    example = "nn.LSTM { 256, 256, layers = 2 }" },
  init = function(self, o)
    self.n_in, self.n_out, self.layers, self.has_bias = o.n_in, o.n_out, o.layers, o.bias
    self.time_first, self.weight_init = o.time_first, o.init
    widths.declare_or_wait(self, o.n_in)
  end,
  declare = function(self)
    local bound, n_in, n_gate = 1 / math.sqrt(self.n_out), self.n_in, 4 * self.n_out
    local initial = self.weight_init or init.uniform { -bound, bound }
    for layer = 1, self.layers do
      self:param("input_weight" .. layer, { n_gate, n_in }, initial)
      self:param("state_weight" .. layer, { n_gate, self.n_out }, initial)
      if self.has_bias then
        self:param("bias" .. layer, { n_gate }, init.uniform { -bound, bound })
      end
      n_in = self.n_out
    end
  end,
  forward = function(self, x, lengths)
    widths.learn(self, "n_in", x, -1)
    if not self.time_first then x = x:transpose(1, 2) end
    for layer = 1, self.layers do
      x = Module.op(self, "LSTM", { x, self["input_weight" .. layer],
        self["state_weight" .. layer], self.has_bias and self["bias" .. layer] or nil, nil, nil,
        lengths }, nil, 3)
    end
    return self.time_first and x or x:transpose(1, 2)
  end,
  describe = function(self)
    return ("%s%d%s"):format(self.n_in and self.n_in .. ", " or "", self.n_out,
      self.layers > 1 and ", layers = " .. self.layers or "")
  end }

return sequence
