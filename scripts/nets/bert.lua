-- bert: Devlin et al., NAACL 2019: post-norm transformer encoders over words, positions and
-- segments; the pooled first position beside it. bert_base and bert_large have the parameters of
-- the released uncased models with their pooler: 109,482,240 and 335,141,888.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, init = neap.nn, neap.init

local Bert = nn.module { "Bert",
  options = {
    { "size", "table", required = true, doc = "the options of the net" },
  },
  init = function(self, given)
    local o, small = given.size, init.normal { 0, 0.02 }
    self.words = nn.Embedding { o.vocabulary, o.width, init = small }
    self.kinds = nn.Embedding { 2, o.width, init = small }
    self:param("positions", { o.longest, o.width }, small)
    self.norm, self.drop = nn.LayerNorm { o.width, eps = 1e-12 }, nn.Dropout { o.dropout }
    self.encoder = nn.TransformerEncoder { o.width, o.heads, layers = o.layers,
      activation = "gelu", dropout = o.dropout, eps = 1e-12 }
    self.pooler = nn.Linear { o.width, o.width, init = small }
    self.states = o.states
  end,
  forward = function(self, ids, segments, lengths)
    -- Without segments all words are of the first kind.
    local kinds = segments and self.kinds(segments) or self.kinds.weight:narrow(1, 1, 1)
    local x = self.words(ids) + kinds + self.positions:narrow(1, 1, ids.shape[2])
    x = self.encoder(self.drop(self.norm(x)), nil, lengths)

    local pooled = self.pooler(x:select(2, 1)):tanh()
    if self.states then return pooled, x end
    return pooled
  end }

local function build(o)
  local length = { o.length, dtype = "i64" }
  return { model = Bert { size = o, input = { ids = length, segments = length } },
    batch = o.batch, n_class = 2 }
end

-- Names in the files that Hugging Face's transformers writes of BERT: queries, keys and values are
-- three layers there.
local function weights()
  local function of(ours, theirs)
    return { "^encoder%.layers%.(%d+)%." .. ours .. "$", function(i, what)
      return ("encoder.layer.%d.%s.%s"):format(i - 1, theirs, what)
    end }
  end
  return {
    theirs = { { "^bert%.", "" }, { "LayerNorm%.gamma$", "LayerNorm.weight" },
      { "LayerNorm%.beta$", "LayerNorm.bias" } },
    ignored = { "^embeddings%.position_ids$", "^cls%." },
    { "^positions$", "embeddings.position_embeddings.weight" },
    { "^words%.weight$", "embeddings.word_embeddings.weight" },
    { "^kinds%.weight$", "embeddings.token_type_embeddings.weight" },
    { "^norm%.(%a+)$", "embeddings.LayerNorm.%1" },
    { "^encoder%.layers%.(%d+)%.self_attn%.in_proj_(%a+)$", function(i, what)
      local names = {}
      for k, part in ipairs { "query", "key", "value" } do
        names[k] = ("encoder.layer.%d.attention.self.%s.%s"):format(i - 1, part, what)
      end
      return names
    end },
    of("self_attn%.out_proj%.(%a+)", "attention.output.dense"),
    of("norm1%.(%a+)", "attention.output.LayerNorm"), of("linear1%.(%a+)", "intermediate.dense"),
    of("linear2%.(%a+)", "output.dense"), of("norm2%.(%a+)", "output.LayerNorm"),
    { "^pooler%.(%a+)$", "pooler.dense.%1" },
  }
end

return {
  options = {
    doc = [[BERT's encoder and pooler: forward(ids, segments, lengths). Segments are 0 where they
      are left out; lengths (N), integers, are of padded texts, behind whose ends nobody looks.]],
    { "layers", "integer", 12, min = 1, doc = "blocks" },
    { "width", "integer", 768, min = 1, doc = "channels, which heads divides" },
    { "heads", "integer", 12, min = 1, doc = "heads of attention" },
    { "length", "integer", 128, min = 1, doc = "length of a text" },
    { "longest", "integer", 512, min = 1, doc = "positions that the net knows" },
    { "vocabulary", "integer", 30522, min = 1, doc = "different numbers of words" },
    { "dropout", "number", 0.1, min = 0, below = 1, doc = "share dropped while training" },
    { "states", "boolean", false,
      doc = "whether the last states (N,T,width) of all words come behind the pooled one" },
    parts.batch(8),
  },
  nets = { bert_base = {}, bert_large = { layers = 24, width = 1024, heads = 16 } },
  published = { bert_base = 109482240, bert_large = 335141888 },
  build = build, weights = weights, weights_of = "transformers",
}
