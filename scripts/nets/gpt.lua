-- gpt: pre-norm transformer decoders: Radford et al., "Language models are unsupervised multitask
-- learners", 2019: learned positions, GELU. gpt is one of characters; chargpt learns on two cores
-- while one watches, the net of `make demo`: its characters are 97: new line, the printable ones of
-- ASCII, and one for any other byte. gpt2 and its larger sisters have the parameters of the
-- released models: 124,439,808, 354,823,168, 774,030,080 and 1,557,611,200; scores are products
-- with the table of the embedding (tie).
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, init, add = neap.nn, neap.init, parts.add

local function build(o)
  local small = init.normal { 0, 0.02 }
  -- The two projections into the residual stream start smaller, by the square root of their number.
  local into_stream = init.normal { 0, 0.02 / math.sqrt(2 * o.layers) }
  local function block()
    local gelu = o.tie and nn.GELU { approximate = "tanh" } or nn.GELU()
    return nn.Sequential {
      nn.Residual {
        nn.LayerNorm { o.width },
        nn.SelfAttention { o.width, heads = o.heads, causal = true, init = small },
      },
      nn.Residual {
        nn.LayerNorm { o.width }, nn.Linear { o.width, 4 * o.width, init = small }, gelu,
        nn.Linear { 4 * o.width, o.width, init = into_stream },
      },
    }
  end
  local table_of = nn.Embedding { o.vocabulary, o.width, init = small }
  local layers = { input = { o.length }, dtype = "i64",
    table_of, nn.PositionEmbedding { o.length, o.width, init = small } }
  for _ = 1, o.layers do add(layers, block()) end
  add(layers, nn.LayerNorm { o.width })
  add(layers, nn.Linear { o.width, o.vocabulary, bias = not o.tie, init = small, name = "head" })
  local model = nn.Sequential(layers)
  if o.tie then model:tie("embedding1.weight", "head.weight") end
  local file = { model = model, batch = o.batch, n_class = o.vocabulary, length = o.length }
  if o.recipe then
    file.loss = nn.CrossEntropyLoss()
    file.optimizer = neap.optim.AdamW { lr = 3e-3, weight_decay = 0.1, beta2 = 0.99 }
  end
  return file
end

-- Names in the files that Hugging Face's transformers writes of GPT-2, whose linear layers keep
-- their weights transposed.
local function weights(o)
  local function of(ours, theirs, transpose)
    return { "^block(%d+)%." .. ours .. "$", function(i, what)
      return ("h.%d.%s.%s"):format(i - 1, theirs, what)
    end, transpose = transpose }
  end
  return {
    theirs = { { "^transformer%.", "" } },
    ignored = { "^h%.%d+%.attn%.bias$", "^h%.%d+%.attn%.masked_bias$",
      o.tie and "^lm_head%.weight$" or nil },
    { "^embedding1%.weight$", "wte.weight" }, { "^positions1%.weight$", "wpe.weight" },
    of("residual1%.norm1%.(%a+)", "ln_1"), of("residual1%.attn1%.qkv%.(%a+)", "attn.c_attn", true),
    of("residual1%.attn1%.proj%.(%a+)", "attn.c_proj", true), of("residual2%.norm1%.(%a+)", "ln_2"),
    of("residual2%.linear1%.(%a+)", "mlp.c_fc", true),
    of("residual2%.linear2%.(%a+)", "mlp.c_proj", true),
    { "^norm1%.(%a+)$", "ln_f.%1" }, { "^head%.(%a+)$", "lm_head.%1" },
  }
end

-- The sizes of the released models.
local function gpt2(layers, width, heads)
  return { layers = layers, width = width, heads = heads, length = 1024, vocabulary = 50257,
    tie = true, batch = 1 }
end

return {
  options = {
    doc = "A GPT: transformer blocks with causal attention, learned positions and GELU.",
    { "layers", "integer", 6, min = 1, doc = "blocks" },
    { "width", "integer", 384, min = 1, doc = "channels, which heads divides" },
    { "heads", "integer", 6, min = 1, doc = "heads of attention" },
    { "length", "integer", 256, min = 1, doc = "length of a text" },
    { "vocabulary", "integer", 65, min = 1, doc = "different numbers that a text is made of" },
    { "tie", "boolean", false, doc = "whether scores are products with the embedding's table" },
    { "recipe", "boolean", false, doc = "whether loss and AdamW for characters come with it" },
    parts.batch(8),
  },
  nets = {
    gpt = {},
    chargpt = { layers = 4, width = 128, heads = 4, length = 64, vocabulary = 97, batch = 32,
      recipe = true },
    gpt2 = gpt2(12, 768, 12), gpt2_medium = gpt2(24, 1024, 16), gpt2_large = gpt2(36, 1280, 20),
    gpt2_xl = gpt2(48, 1600, 25),
  },
  published = {
    gpt = 10795841, chargpt = 826465, gpt2 = 124439808, gpt2_medium = 354823168,
    gpt2_large = 774030080, gpt2_xl = 1557611200,
  },
  build = build, weights = weights, weights_of = "transformers",
}
