--- Layers over sequences: embedding, attention, LSTM.
-- @module neap.nn.sequence
local fail = require("neap.core").fail
local init = require "neap.nn.initializers"
local layers = require "neap.nn.layers"
local module = require "neap.nn.module"
local reading = require "neap.nn.reading"
local op = require "neap.op"
local steps = require "neap.ops.recurrences"
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
    reading.check_causal(self)
    local qkv = self.qkv(x)

    -- Piece by piece: queries, keys and values apart, since keys and values go to the caches.
    -- (B,T,3C)
    if reading.now() then
      local width = qkv.shape[3] // 3
      local function third(i) return qkv:narrow(3, (i - 1) * width + 1, width) end
      return self.proj(reading.attend(self, third(1), third(2), third(3), self.heads))
    end
    local y = Module.op(self, "PackedAttention", { qkv },
      { heads = self.heads, causal = self.causal })
    return self.proj(y)
  end,
  describe = function(self)
    return ("heads = %d%s"):format(self.heads, self.causal and ", causal" or "")
  end }

--- The first states that a recurrent layer was given, (layers x directions, N, n_out) each.
-- @param x (T,N,..)
local function first_states(self, n_state, x, ...)
  local given = { ... }
  local want = ("%d,%d,%d"):format(self.layers * self.directions, x.shape[2], self.n_out)
  for k = 1, select("#", ...) do
    local h = given[k]
    if k > n_state and h ~= nil then
      fail(("nn.%s takes %d state%s, got %d"):format(self._class, n_state,
        n_state == 1 and "" or "s", k))
    elseif h and table.concat(h.shape, ",") ~= want then
      fail(("nn.%s: state %d is (%s), expected (%s): layers x directions, rows, width"):format(
        self._class, k, table.concat(h.shape, ","), want))
    end
  end
  return given
end

--- A recurrent layer of an op that is one layer in one direction, layer upon layer.
-- @param name string of the class and of the op
-- @param n_gate integer blocks of n_out rows in each weight
-- @param biases string[] by what each bias is called
-- @param n_state integer states that the op takes behind its weights
-- @param spec table doc, example, more options
local function recurrent(name, n_gate, biases, n_state, spec)
  local options = { doc = spec.doc, example = spec.example,
    positions = { "[n_in]", "n_out" },
    { "n_in", "integer", min = 1, unset = "that of the first input", doc = "width of the input" },
    { "n_out", "integer", min = 1, required = true,
      doc = "width of the state, and of the output of each direction" },
    { "layers", "integer", 1, min = 1, doc = "how many stand one upon the other" },
    { "bidirectional", "boolean", false, doc = [[whether each layer runs in both directions, whose
      outputs lie side by side]] },
    { "dropout", "number", 0, min = 0, below = 1,
      doc = "share that is dropped between layers while training" },
    { "bias", "boolean", true, doc = "whether a bias is added" },
    { "time_first", "boolean", false,
      doc = "x and y are (T,N,..), which saves a copy of each" },
    { "states", "boolean", false,
      doc = "whether the last states come behind y, (layers x directions, N, n_out) each" },
    { "init", "initial", unset = "uniform in +-sqrt(1 / n_out)", doc = "how the weights start" } }
  for _, option in ipairs(spec) do options[#options + 1] = option end
  --- Names of the parameters of a layer in a direction end so.
  local function suffix(layer, direction) return layer .. (direction == 2 and "_reverse" or "") end
  return class { name,
    options = options,
    init = function(self, o)
      self.n_in, self.n_out, self.layers, self.has_bias = o.n_in, o.n_out, o.layers, o.bias
      self.time_first, self.weight_init, self.dropout = o.time_first, o.init, o.dropout
      self.states = o.states
      self.directions, self.activation = o.bidirectional and 2 or 1, o.activation
      widths.declare_or_wait(self, o.n_in)
    end,
    declare = function(self)
      -- The bound as in PyTorch. Every layer but the first reads the outputs of all directions of
      -- the one below.
      local bound, n_in, n_row = 1 / math.sqrt(self.n_out), self.n_in, n_gate * self.n_out
      local initial = self.weight_init or init.uniform { -bound, bound }
      for layer = 1, self.layers do
        for direction = 1, self.directions do
          local own = suffix(layer, direction)
          self:param("input_weight" .. own, { n_row, n_in }, initial)
          self:param("state_weight" .. own, { n_row, self.n_out }, initial)
          for _, bias in ipairs(self.has_bias and biases or {}) do
            self:param(bias .. own, { n_row }, init.uniform { -bound, bound })
          end
        end
        n_in = self.directions * self.n_out
      end
    end,
    forward = function(self, x, lengths, ...)
      widths.learn(self, "n_in", x, -1)
      if not self.time_first then x = x:transpose(1, 2) end

      -- The ops want time first, x (T,N,..).
      local first, last = first_states(self, n_state, x, ...), {}
      for k = 1, n_state do last[k] = {} end
      for layer = 1, self.layers do
        local sides = {}

        -- One op for each direction; the second one reads backwards, by an attribute.
        for direction = 1, self.directions do
          local own = suffix(layer, direction)
          local ins = { x, self["input_weight" .. own], self["state_weight" .. own] }
          for i, bias in ipairs(biases) do
            ins[3 + i] = self.has_bias and self[bias .. own] or false
          end

          -- States of all layers and directions lie in one tensor, layer by layer.
          local at = (layer - 1) * self.directions + direction
          for i = 1, n_state do
            ins[3 + #biases + i] = first[i] and first[i]:select(1, at) or false
          end
          ins[#ins + 1] = lengths
          local outs = { Module.op(self, name, ins,
            { reverse = direction == 2, activation = self.activation }, spec.n_out) }
          sides[direction] = outs[1]
          for k = 1, n_state do last[k][at] = outs[1 + k] end
        end

        -- The directions' outputs side by side are the next layer's input, (T,N,directions n_out).
        x = #sides > 1 and op.apply("Concat", sides, { axis = -1 }) or sides[1]

        -- Between layers, never behind the last one.
        if self.dropout > 0 and self.training and layer < self.layers then
          x = Module.op(self, "Dropout", { x }, { rate = self.dropout, training = true })
        end
      end
      local y = self.time_first and x or x:transpose(1, 2)
      if not self.states then return y end
      for k = 1, n_state do last[k] = op.apply("Stack", last[k], { axis = 1 }) end
      return y, table.unpack(last)
    end,
    describe = function(self)
      return ("%s%d%s%s"):format(self.n_in and self.n_in .. ", " or "", self.n_out,
        self.layers > 1 and ", layers = " .. self.layers or "",
        self.directions > 1 and ", bidirectional" or "")
    end }
end

sequence.LSTM = recurrent("LSTM", 4, { "bias" }, 2, { n_out = 3,
  doc = [[Long short-term memory over sequences x (N,T,n_in), layer upon layer; gives
    y (N,T,n_out) of the last one. A second argument, integers (N), says how long each sequence
    is: y is 0 from there on; a third and fourth are the first states h and c. Weights as in
    PyTorch: (4 n_out, n_in) and (4 n_out, n_out), gates
    in the order input, forget, candidate, output; one bias.]],
  example = "nn.LSTM { 256, 256, layers = 2 }" })

sequence.GRU = recurrent("GRU", 3, { "input_bias", "state_bias" }, 1, { n_out = 2,
  doc = [[Gated recurrent unit over sequences x (N,T,n_in), layer upon layer; gives y (N,T,n_out)
    of the last one. A second argument, integers (N), says how long each sequence is: y is 0 from
    there on; a third one is the first state. Weights as in PyTorch: (3 n_out, n_in) and
    (3 n_out, n_out), gates in the order reset, update, candidate; two biases.]],
  example = "nn.GRU { 256, 256, bidirectional = true }" })

sequence.RNN = recurrent("RNN", 1, { "input_bias", "state_bias" }, 1, { n_out = 2,
  doc = [[Simple recurrent layer over sequences x (N,T,n_in), layer upon layer; gives y (N,T,n_out)
    of the last one. A second argument, integers (N), says how long each sequence is; a third one
    is the first state.]],
  { of = "RNN.activation" },
  example = 'nn.RNN { 32, 32, activation = "relu" }' })

-- ---- one step -----------------------------------------------------------------------------------

--- A layer of one step of a recurrence.
-- @param n_gate integer blocks of n_out rows in each weight
-- @param step f(self, row of input products, products of h, h, c) -> the next h, c
local function cell(name, n_gate, n_state, spec, step)
  local options = { doc = spec.doc, example = spec.example, positions = { "[n_in]", "n_out" },
    { "n_in", "integer", min = 1, unset = "that of the first input", doc = "width of the input" },
    { "n_out", "integer", min = 1, required = true, doc = "width of the state" },
    { "bias", "boolean", true, doc = "whether biases are added" },
    { "init", "initial", unset = "uniform in +-sqrt(1 / n_out)", doc = "how the weights start" },
    spec[1] }
  sequence[name] = class { name,
    options = options,
    init = function(self, o)
      self.n_in, self.n_out, self.has_bias, self.weight_init = o.n_in, o.n_out, o.bias, o.init
      self.o = { activation = o.activation }
      widths.declare_or_wait(self, o.n_in)
    end,
    declare = function(self)
      local bound, n_row = 1 / math.sqrt(self.n_out), n_gate * self.n_out
      local uniform = init.uniform { -bound, bound }
      self:param("input_weight", { n_row, self.n_in }, self.weight_init or uniform)
      self:param("state_weight", { n_row, self.n_out }, self.weight_init or uniform)
      if not self.has_bias then return end
      self:param("input_bias", { n_row }, uniform)
      self:param("state_bias", { n_row }, uniform)
    end,
    forward = function(self, x, ...)
      widths.learn(self, "n_in", x, -1)
      local states = { ... }

      -- Left out, a state is zeros for each row.
      for k = 1, n_state do
        states[k] = states[k] or x.net:op("Constant", {}, 1,
          { shape = { x.shape[1], self.n_out }, dtype = x.dtype })
      end
      -- The gates' products of x and of h apart: a GRU multiplies a part of the latter before it
      -- adds.
      local function product(of, what)
        return op.apply("FC", { of, self[what .. "_weight"],
          self.has_bias and self[what .. "_bias"] or false }, {})
      end
      return step(self, product(x, "input"), product(states[1], "state"), states[1], states[2])
    end,
    describe = function(self)
      return ("%s%d"):format(self.n_in and self.n_in .. ", " or "", self.n_out)
    end }
end

cell("LSTMCell", 4, 2, {
  doc = [[One step of an LSTM: x (N,n_in), h and c (N,n_out), 0 where they are left out, give the
    next h and c. Weights as in PyTorch, gates in the order input, forget, candidate, output.]],
  example = "nn.LSTMCell { 32, 64 }" }, function(_, x, s, _, c)
    local i, f, g, o = (x + s):split { axis = -1, outputs = 4 }
    local next_c = f:sigmoid() * c + i:sigmoid() * g:tanh()
    return o:sigmoid() * next_c:tanh(), next_c
  end)

cell("GRUCell", 3, 1, {
  doc = [[One step of a GRU: x (N,n_in) and h (N,n_out), 0 where it is left out, give the next h.
    Weights as in PyTorch, gates in the order reset, update, candidate.]],
  example = "nn.GRUCell { 32, 64 }" },
  function(self, x, s, h) return steps.GRU(self.o, h, x, s) end)

cell("RNNCell", 1, 1, {
  doc = "One step of a simple recurrent layer: x (N,n_in) and h (N,n_out) give the next h.",
  { of = "RNN.activation" },
  example = "nn.RNNCell { 32, 64 }" },
  function(self, x, s, h) return steps.RNN(self.o, h, x, s) end)

return sequence
