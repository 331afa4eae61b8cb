-- seq2seq: sequences to sequences by two recurrent nets with attention: Luong, Pham and Manning,
-- EMNLP 2015, the global attention "general" of section 3.1, with GRUs of one layer. What the
-- decoder reads is the target one step late: forward(source, before). 1,060,961 parameters by the
-- paper's equations at the sizes here: 2 V C of the embeddings, 2 (6 C C + 6 C) of the GRUs, C C
-- and 2 C C + C of the attention, C V + V of the scores.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, init = neap.nn, neap.init

-- A GRU that begins with a state it is given.
local Decoder = nn.module { "Decoder",
  options = { { "width", "integer", required = true, doc = "of inputs and states" } },
  init = function(self, o)
    local n, bound = o.width, 1 / math.sqrt(o.width)
    local initial = init.uniform { -bound, bound }
    self:param("input_weight", { 3 * n, n }, initial)
    self:param("state_weight", { 3 * n, n }, initial)
    self:param("input_bias", { 3 * n }, initial)
    self:param("state_bias", { 3 * n }, initial)
  end,
  forward = function(self, x, state)
    local y = x:transpose(1, 2):gru(self.input_weight, self.state_weight, self.input_bias,
      self.state_bias, state)
    return y:transpose(1, 2)
  end }

local Seq2Seq = nn.module { "Seq2Seq",
  options = {
    { "vocabulary", "integer", required = true, doc = "different numbers" },
    { "width", "integer", required = true, doc = "of embeddings and states" },
  },
  init = function(self, o)
    self.source_table = nn.Embedding { o.vocabulary, o.width }
    self.target_table = nn.Embedding { o.vocabulary, o.width }
    self.encoder, self.decoder = nn.GRU { o.width, o.width }, Decoder { width = o.width }
    self.query = nn.Linear { o.width, o.width, bias = false }
    self.mix = nn.Linear { 2 * o.width, o.width }
    self.scores = nn.Linear { o.width, o.vocabulary }
  end,
  forward = function(self, source, before)
    local seen = self.encoder(self.source_table(source))
    local last = seen:select(2, seen.shape[2])
    local y = self.decoder(self.target_table(before), last)
    local share = self.query(y):matmul(seen:transpose(2, 3)):softmax()
    local found = share:matmul(seen)
    return self.scores(self.mix(found:concat(y, { axis = 3 })):tanh())
  end }

local function build(o)
  local text = { o.length, dtype = "i64" }
  return {
    model = Seq2Seq { vocabulary = o.vocabulary, width = o.width,
      input = { source = text, before = text } },
    batch = o.batch, n_class = o.vocabulary, length = o.length,
  }
end

return {
  options = {
    doc = "Sequences to sequences with attention: forward(source, before).",
    { "width", "integer", 256, min = 1, doc = "width of embeddings and states" },
    { "length", "integer", 32, min = 1, doc = "length of both sequences" },
    { "vocabulary", "integer", 97, min = 1, doc = "different numbers that they are made of" },
    parts.batch(32),
  },
  published = 1060961,
  build = build,
}
