-- Recurrent language models. lstm: characters to characters through two LSTM layers of 256 (the net
-- of Karpathy's char-rnn, 2015, at a fixed length); gru: the same of GRUs. lstm_ptb: words of the
-- Penn Treebank: Zaremba, Sutskever and Vinyals, arXiv 1409.2329, "medium", with 20 million
-- parameters. The numbers are turned to time first once, before they are embedded, and the scores
-- back at the end.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn = neap.nn

local function turn() return nn.Lambda(function(x) return x:transpose(1, 2) end) end

local function build(o)
  local class = o.cell == "lstm" and nn.LSTM or nn.GRU
  local layers = { input = { o.length }, dtype = "i64",
    turn(), nn.Embedding { o.vocabulary, o.width } }
  if o.dropout > 0 then parts.add(layers, nn.Dropout { o.dropout }) end
  parts.add(layers, class {
    o.width, o.width, layers = o.layers, dropout = o.dropout, time_first = true,
  })
  if o.dropout > 0 then parts.add(layers, nn.Dropout { o.dropout }) end
  parts.add(layers, nn.Linear { o.width, o.vocabulary }, turn())
  return { model = nn.Sequential(layers), batch = o.batch, n_class = o.vocabulary,
    length = o.length }
end

return {
  options = {
    doc = "A recurrent language model.",
    { "cell", "choice", "lstm", choices = { "lstm", "gru" }, doc = "what the layers are made of" },
    { "layers", "integer", 2, min = 1, doc = "layers one upon the other" },
    { "width", "integer", 256, min = 1, doc = "width of embedding and states" },
    { "length", "integer", 64, min = 1, doc = "length of a text" },
    { "vocabulary", "integer", 65, min = 1, doc = "different numbers that a text is made of" },
    { "dropout", "number", 0, min = 0, below = 1, doc = "share dropped between layers" },
    parts.batch(32),
  },
  nets = {
    lstm = {}, gru = { cell = "gru" },
    lstm_ptb = { width = 650, length = 35, vocabulary = 10000, dropout = 0.5, batch = 20 },
  },
  published = { lstm = 1083969, gru = 822849, lstm_ptb = 19775200 },
  build = build,
}
