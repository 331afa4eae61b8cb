--- Attention, transformer layers and positions.
--
-- Parameters are called as in PyTorch, so that its state_dicts load. INVARIANT: a boolean mask is
-- true where a query sees a key, as the op Attention has it (PyTorch's module has the opposite).
-- @module neap.nn.attention
local activations = require "neap.nn.activations"
local fail = require("neap.core").fail
local init = require "neap.nn.initializers"
local kit = require "neap.ops.kit"
local layers = require "neap.nn.layers"
local module = require "neap.nn.module"
local norm = require "neap.nn.norm"
local op = require "neap.op"
local reading = require "neap.nn.reading"

local Module, class = module.Module, module.class
local attention = {}

-- ---- positions ----------------------------------------------------------------------------------

--- Cosines and sines of the positions of x (N,T,..), in its dtype: of position times
-- base^(-2 i / width), (1,T, width / 2), or (N,T, width / 2) where each sequence stands at a place
-- of its own.
local function waves_of(x, width, base)
  -- A half has no digits for positions and angles: those are f32, and what is made of them rounded.
  local dtype = x.dtype == "f64" and "f64" or "f32"
  local position = reading.positions(x, dtype)

  -- base^(-2 i / width) as an exponential: range gives i from 0.
  local step = kit.range(x, width // 2, dtype) * (-2 * math.log(base) / width)
  local angle = position:reshape(position.shape[1], x.shape[2], 1)
    * step:exp():reshape(1, 1, width // 2)
  local cos, sin = angle:cos(), angle:sin()
  if x.dtype == dtype then return cos, sin end
  return cos:to(x.dtype), sin:to(x.dtype)
end

--- Neighbours of the last dimension turned by the angle of their position: the second dimension is
-- the time.
local function turned(x, base)
  local shape, rank = x.shape, #x.shape

  -- Elements i and i + width / 2 are a pair, as in Llama's weights; the paper pairs neighbours.
  local length, width = shape[2], shape[rank]
  if width % 2 ~= 0 then
    fail(("rotary positions turn pairs of elements: a width of %d is odd"):format(width))
  end

  -- Waves broadcast over the dimensions between time and the last one.
  local cos, sin = waves_of(x, width, base)
  local sizes = { cos.shape[1], length }
  for d = 3, rank - 1 do sizes[d] = 1 end
  sizes[rank] = width // 2
  cos, sin = cos:reshape(sizes), sin:reshape(sizes)
  local a, b = x:narrow(-1, 1, width // 2), x:narrow(-1, width // 2 + 1, width // 2)
  return op.apply("Concat", { a * cos - b * sin, b * cos + a * sin }, { axis = -1 })
end

attention.PositionalEncoding = class { "PositionalEncoding", name = "positions",
  options = { doc = [[x (N,T,C) and sines and cosines of its positions (Vaswani et al., NeurIPS
      2017, section 3.5), then dropout.]],
    positions = { "dropout" },
    { "dropout", "number", 0, min = 0, below = 1, doc = "share that is dropped while training" },
    { "base", "number", 10000, above = 1, doc = "of the wave lengths, which grow to 2 pi base" },
    example = "nn.PositionalEncoding(0.1)" },
  init = function(self, o)
    self.base = o.base
    self.dropout = activations.Dropout { o.dropout }
  end,
  forward = function(self, x)
    local length, width = x.shape[2], x.shape[3]

    -- Sine and cosine alternate: (N,T,C/2) of each, stacked behind, read as one row. An odd C has
    -- one cosine too many.
    local cos, sin = waves_of(x, width + width % 2, self.base)
    local both = op.apply("Stack", { sin, cos }, { axis = 4 })
    local waves = both:reshape(cos.shape[1], length, width + width % 2):narrow(3, 1, width)
    return self.dropout(x + waves)
  end }

attention.PositionEmbedding = class { "PositionEmbedding", name = "positions",
  options = { doc = [[x (N,T,C) and a learned row for each of its positions, at most `length` of
      them (Gehring et al., ICML 2017; GPT and BERT have it).]],
    positions = { "length", "width" },
    { "length", "integer", min = 1, required = true, doc = "positions that have a row" },
    { "width", "integer", min = 1, required = true, doc = "channels of x, and of a row" },
    { "init", "initial", unset = "normal, 0.02 wide", doc = "how the rows start" },
    example = "nn.PositionEmbedding { 1024, 768 }" },
  init = function(self, o)
    self.length, self.width = o.length, o.width
    self:param("weight", { o.length, o.width }, o.init or init.normal { 0, 0.02 })
  end,
  forward = function(self, x)
    local here, length = reading.now(), x.shape[2]
    if (here and here.length or length) > self.length then
      fail(("nn.PositionEmbedding: %s %d positions, and there are rows for %d"):format(
        here and "a text may have" or "x has", here and here.length or length, self.length))
    end
    if here then
      -- a piece may go on behind the last row, where it counts for nothing: any row will do
      local rows = reading.positions(x, "i64"):minimum(self.length - 1)
      return x + Module.op(self, "Embedding", { rows, self.weight })
    end
    return x + (length == self.length and self.weight or self.weight:narrow(1, 1, length))
  end,
  describe = function(self) return ("%d, %d"):format(self.length, self.width) end }

attention.RotaryEmbedding = class { "RotaryEmbedding", name = "positions",
  options = { doc = [[Pairs of x's last dimension, i and i + D / 2, turned by an angle that grows
      with the position, the second dimension (Su et al., 2021): x (N,T,..,D), queries or keys.]],
    { "base", "number", 10000, above = 1, doc = "of the wave lengths" },
    example = "nn.RotaryEmbedding()" },
  init = function(self, o) self.base = o.base end,
  forward = function(self, x) return turned(x, self.base) end }

-- ---- attention ----------------------------------------------------------------------------------

-- INVARIANT: a key is hidden from a query where its score is -infinity, and a query that sees no
-- key gets 0, with dropout and without: so the op Attention has it. Hidden keys get no gradient.

--- What a query sees of keys k (N,S,..) by lengths (N): (N,1,1,S). The op refuses lengths that are
-- no integers, not one for each sequence, or out of [0,S].
local function seen_by(lengths, k)
  local steps = k:narrow(3, 1, 1):transpose(1, 2)
  local seen = op.apply("SequenceMask", { steps, lengths }, {})
  return seen:transpose(1, 2):reshape(k.shape[1], 1, 1, k.shape[2])
end

--- A mask and what lengths allow, as one.
-- SequenceMask is of time first: one column of the keys stands for all of them.
local function masked(mask, lengths, k)
  if not lengths then return mask end
  local seen = seen_by(lengths, k)
  if not mask then return seen end
  if mask.dtype == "bool" then return op.apply("LogicalAnd", { mask, seen }) end
  return kit.where(seen, mask, -math.huge)
end

--- The softmax of scores (B,H,T,S) over the keys that are not hidden; 0 where all are.
local function shares_of(scores)
  -- A row of -infinity has no softmax: such rows get zeros before it, and zeros after it.
  local is_blind = scores:max { axes = { 4 }, keepdim = true }:eq(-math.huge)
  return kit.where(is_blind, 0, kit.where(is_blind, 0, scores):softmax())
end

--- Attention with dropout among the probabilities, which the op keeps to itself: q (B,T,H,D), k and
-- v (B,S,G,D).
local function with_dropout(self, q, k, v, mask)
  local n, T, S, H, D = q.shape[1], q.shape[2], k.shape[2], self.heads, q.shape[4]

  -- Keys and values have fewer heads: each stands for a group of neighbours.
  local per_group = H // self.key_heads
  local function in_heads(x, length)
    if per_group > 1 and x ~= q then x = x:repeat_interleave { repeats = per_group, axis = 3 } end
    return op.apply("Permute", { x }, { axes = { 1, 3, 2, 4 } }):reshape(n, H, length, D)
  end

  -- scores (N,H,T,S)
  local scores = in_heads(q, T):matmul(in_heads(k, S):transpose(3, 4)) * (1 / math.sqrt(D))
  if mask and mask.dtype ~= "bool" then
    scores = scores + mask
  elseif mask then
    scores = kit.where(mask, scores, -math.huge)
  end

  -- The mask of what comes later is added to the user's: a key is hidden by either.
  if self.causal then
    local later = kit.range(q, T, "i64"):reshape(T, 1):lt(kit.range(q, S, "i64"):reshape(1, S))
    scores = scores:masked_fill(later, { value = -math.huge })
  end

  -- Back to (N,T,C), heads side by side.
  local y = self.drop(shares_of(scores)):matmul(in_heads(v, S))
  return op.apply("Permute", { y }, { axes = { 1, 3, 2, 4 } }):reshape(n, T, H * D)
end

attention.MultiheadAttention = class { "MultiheadAttention", name = "attn",
  options = { doc = [[Multi-head attention of queries q (N,T,C) to keys and values (N,S,..): q
      alone, (q, memory) or (q, k, v), then a mask, which broadcasts to (N,heads,T,S), bool, true =
      sees, or numbers that are added to the scores, then lengths (N) of the keys, integers. A query
      that sees no key gets 0 and the output's bias. Gives (N,T,C). Parameters as in PyTorch.]],
    positions = { "width", "heads" },
    { "width", "integer", min = 1, required = true, doc = "C, which heads divides" },
    { "heads", "integer", 1, min = 1, doc = "heads, each of width / heads" },
    { "key_heads", "integer", min = 1, unset = "heads",
      doc = "heads of keys and values, which divide heads: neighbours share one" },
    { "causal", "boolean", false, doc = "whether query i sees keys 1 to i" },
    { "bias", "boolean", true, doc = "whether the projections add a bias" },
    { "dropout", "number", 0, min = 0, below = 1,
      doc = "share of the probabilities that is dropped while training" },
    { "key_width", "integer", min = 1, unset = "width", doc = "width of keys as they come" },
    { "value_width", "integer", min = 1, unset = "key_width", doc = "width of values" },
    { "rotary", "boolean", false, doc = "whether queries and keys are turned by their positions" },
    { "init", "initial", unset = "Xavier's", doc = "how the weights of the projections start" },
    example = "nn.MultiheadAttention { 384, 6, causal = true }" },
  init = function(self, o)
    self.heads, self.key_heads, self.causal = o.heads, o.key_heads or o.heads, o.causal
    self.width, self.rotary, self.has_bias = o.width, o.rotary, o.bias
    self.key_width = o.key_width or o.width
    self.value_width = o.value_width or self.key_width
    if o.width % o.heads ~= 0 or o.heads % self.key_heads ~= 0 then
      fail(("nn.MultiheadAttention: heads = %d has to divide width = %d, and key_heads = %d \z
        heads"):format(o.heads, o.width, self.key_heads))
    end

    -- PyTorch has one weight for all three where all widths agree, and a bias for all in any case.
    self.key_rows = self.key_heads * (o.width // o.heads)
    self.is_packed = self.key_width == o.width and self.value_width == o.width
    local initial, rows = o.init or init.xavier {}, self.key_rows
    if self.is_packed then
      self:param("in_proj_weight", { o.width + 2 * rows, o.width }, initial)
    else
      self:param("q_proj_weight", { o.width, o.width }, initial)
      self:param("k_proj_weight", { rows, self.key_width }, initial)
      self:param("v_proj_weight", { rows, self.value_width }, initial)
    end
    if o.bias then self:param("in_proj_bias", { o.width + 2 * rows }, init.zeros) end
    self.out_proj = layers.Linear { o.width, o.width, bias = o.bias, init = o.init }
    self.rate, self.drop = o.dropout, activations.Dropout { o.dropout }
  end,

  --- The projection of x whose weight is rows `from` on.
  project = function(self, x, name, from, rows)
    local weight = self.is_packed and self.in_proj_weight:narrow(1, from, rows)
      or self[name .. "_proj_weight"]
    local bias = self.has_bias and self.in_proj_bias:narrow(1, from, rows) or nil
    return Module.op(self, "FC", { x, weight, bias })
  end,

  --- Raises where a text can't be read piece by piece.
  check_readable = function(self, is_self, mask, lengths)
    reading.check_causal(self)
    if not is_self or mask or lengths then
      fail("nn.MultiheadAttention: a text is read piece by piece by causal self-attention, \z
        without a memory, a mask or lengths")
    end
  end,

  forward = function(self, q, k, v, mask, lengths)
    local is_self = k == nil
    if is_self and v ~= nil then
      fail("nn.MultiheadAttention: values (argument 3) go with keys (argument 2), which are nil; \z
        a mask is argument 4, lengths are argument 5")
    end
    if reading.now() then self:check_readable(is_self, mask, lengths) end
    k = k or q
    v = v or k
    mask = masked(mask, lengths, k)

    -- One op for all, where nothing has to be done between projection and attention: what is saved
    -- is two products and a copy.
    local drops = self.rate > 0 and self.training
    local is_read = reading.now() ~= nil
    local is_whole = self.is_packed and self.key_heads == self.heads
    if is_self and is_whole and not drops and not self.rotary and not is_read then
      local qkv = Module.op(self, "FC",
        { q, self.in_proj_weight, self.has_bias and self.in_proj_bias or nil })
      return self.out_proj(Module.op(self, "PackedAttention", { qkv, mask },
        { heads = self.heads, causal = self.causal }))
    end

    -- Else the projections apart, each (N,T, heads depth), which the last op takes as they are.
    local width, rows, depth = self.width, self.key_rows, self.width // self.heads
    local function split(x, heads) return x:reshape(x.shape[1], x.shape[2], heads, depth) end
    local q_in = self:project(q, "q", 1, width)
    local k_in = self:project(k, "k", width + 1, rows)
    local v_in = self:project(v, "v", width + rows + 1, rows)
    if self.rotary then
      q_in = turned(split(q_in, self.heads), 10000):reshape(q_in.shape)
      k_in = turned(split(k_in, self.key_heads), 10000):reshape(k_in.shape)
    end
    if is_read then return self.out_proj(reading.attend(self, q_in, k_in, v_in, self.heads)) end
    if drops then
      return self.out_proj(with_dropout(self, split(q_in, self.heads),
        split(k_in, self.key_heads), split(v_in, self.key_heads), mask))
    end
    return self.out_proj(Module.op(self, "Attention", { q_in, k_in, v_in, mask },
      { heads = self.heads, causal = self.causal }))
  end,
  describe = function(self)
    return ("%d, %d%s"):format(self.width, self.heads, self.causal and ", causal" or "")
  end }

-- ---- transformers -------------------------------------------------------------------------------

--- The options that layers of a transformer share; causal is what they are without being told.
local function layer_options(causal)
  return {
    { "width", "integer", min = 1, required = true, doc = "C, which heads divides" },
    { "heads", "integer", 1, min = 1, doc = "heads of the attention" },
    { "hidden", "integer", min = 1, unset = "4 width",
      doc = "width between the two linear layers" },
    { "dropout", "number", 0.1, min = 0, below = 1, doc = "share that is dropped while training" },
    { "activation", "choice", "relu", choices = { "relu", "gelu", "silu", "tanh" },
      doc = "what stands between the two linear layers" },
    { "norm_first", "boolean", false,
      doc = "whether each part is normalised before it, and not behind the sum" },
    { "bias", "boolean", true, doc = "whether linear layers and attention add a bias" },
    { "causal", "boolean", causal, doc = "whether a position sees none behind it" },
    { of = "LayerNorm.eps" },
  }
end

--- The options of a layer, or of a stack of layers.
local function options_of(spec, causal, more)
  for _, option in ipairs(layer_options(causal)) do spec[#spec + 1] = option end
  for _, option in ipairs(more or {}) do spec[#spec + 1] = option end
  return spec
end

local function attention_of(o, causal)
  return attention.MultiheadAttention { o.width, o.heads, dropout = o.dropout, bias = o.bias,
    causal = causal }
end

--- What every layer of a transformer has: two linear layers, n norms, and as many dropouts.
local function init_layer(self, o, n)
  local hidden = o.hidden or 4 * o.width
  self.width, self.norm_first, self.activation = o.width, o.norm_first, o.activation
  self.linear1 = layers.Linear { o.width, hidden, bias = o.bias }
  self.dropout = activations.Dropout { o.dropout }
  self.linear2 = layers.Linear { hidden, o.width, bias = o.bias }
  for i = 1, n do
    self["norm" .. i] = norm.LayerNorm { o.width, eps = o.eps }
    self["dropout" .. i] = activations.Dropout { o.dropout }
  end
end

--- x and part i of a layer, f, with norm and dropout where they belong.
local function add_part(self, i, x, f)
  local its_norm, drop = self["norm" .. i], self["dropout" .. i]
  if self.norm_first then return x + drop(f(its_norm(x))) end
  return its_norm(x + drop(f(x)))
end

local function feed_forward(self)
  return function(x)
    local h = self.linear1(x)
    return self.linear2(self.dropout(h[self.activation](h)))
  end
end

attention.TransformerEncoderLayer = class { "TransformerEncoderLayer", name = "layer",
  options = options_of({ doc = [[Self-attention and two linear layers, each with a sum and a norm
      (Vaswani et al., NeurIPS 2017), of x (N,T,C), a mask as nn.MultiheadAttention takes it, and
      lengths (N).]],
    positions = { "width", "heads" },
    example = "nn.TransformerEncoderLayer { 64, 4, norm_first = true }" }, false),
  init = function(self, o)
    self.self_attn = attention_of(o, o.causal)
    init_layer(self, o, 2)
  end,
  forward = function(self, x, mask, lengths)
    x = add_part(self, 1, x, function(h) return self.self_attn(h, nil, nil, mask, lengths) end)
    return add_part(self, 2, x, feed_forward(self))
  end,
  describe = function(self) return tostring(self.width) end }

attention.TransformerDecoderLayer = class { "TransformerDecoderLayer", name = "layer",
  options = options_of({ doc = [[Self-attention, attention to a memory (N,S,C) and two linear
      layers, each with a sum and a norm: (x, memory, mask, memory_mask, lengths, memory_lengths),
      masks as nn.MultiheadAttention takes them, lengths (N) of x and of the memory.]],
    positions = { "width", "heads" },
    example = "nn.TransformerDecoderLayer { 64, 4 }" }, true),
  init = function(self, o)
    self.self_attn = attention_of(o, o.causal)
    self.multihead_attn = attention_of(o, false)
    init_layer(self, o, 3)
  end,
  forward = function(self, x, memory, mask, memory_mask, lengths, memory_lengths)
    if memory == nil then
      fail("nn.TransformerDecoderLayer expects (x, memory, ..), got x without a memory; a layer \z
        of x alone is nn.TransformerEncoderLayer { .., causal = true }")
    end
    x = add_part(self, 1, x, function(h) return self.self_attn(h, nil, nil, mask, lengths) end)
    x = add_part(self, 2, x, function(h)
      return self.multihead_attn(h, memory, memory, memory_mask, memory_lengths)
    end)
    return add_part(self, 3, x, feed_forward(self))
  end,
  describe = function(self) return tostring(self.width) end }

--- A stack of layers of a class, and a norm behind it.
local function stack(name, layer, causal, doc, example)
  return class { name, name = name == "TransformerEncoder" and "encoder" or "decoder",
    options = options_of(
      { doc = doc, positions = { "width", "heads", "layers" }, example = example }, causal, {
        { "layers", "integer", 1, min = 1, doc = "how many stand one upon the other" },
        { "norm", "boolean", unset = "norm_first", doc = "whether a norm ends it" },
      }),
    init = function(self, o)
      local list = {}
      for i = 1, o.layers do
        list[i] = attention[layer] { o.width, o.heads, hidden = o.hidden, dropout = o.dropout,
          activation = o.activation, norm_first = o.norm_first, bias = o.bias, causal = o.causal,
          eps = o.eps }
      end
      self.layers, self.width = list, o.width
      local has_norm = o.norm
      if has_norm == nil then has_norm = o.norm_first end
      if has_norm then self.norm = norm.LayerNorm { o.width, eps = o.eps } end
    end,
    forward = function(self, x, ...)
      for _, each in ipairs(self.layers) do x = each(x, ...) end
      return self.norm and self.norm(x) or x
    end,
    describe = function(self) return ("%d, layers = %d"):format(self.width, #self.layers) end }
end

attention.TransformerEncoder = stack("TransformerEncoder", "TransformerEncoderLayer", false,
  "Encoder layers one upon the other: (x, mask, lengths).",
  "nn.TransformerEncoder { 64, 4, layers = 2 }")
attention.TransformerDecoder = stack("TransformerDecoder", "TransformerDecoderLayer", true,
  "Decoder layers one upon the other: (x, memory, mask, memory_mask, lengths, memory_lengths).",
  "nn.TransformerDecoder { 64, 4, layers = 2 }")

return attention
