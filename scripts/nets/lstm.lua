-- lstm: characters to characters through two LSTM layers of 256 (the net of Karpathy's char-rnn,
-- 2015, at a fixed length). The characters are turned to time first once, before they are embedded,
-- and the scores back at the end: both are small.
local neap = require "neap"
local nn = neap.nn

local length, width, vocabulary = 64, 256, 65
local function turn() return nn.Lambda(function(x) return x:transpose(1, 2) end) end

return {
  model = nn.Sequential {
    input = { length }, dtype = "i64",
    turn(), nn.Embedding { vocabulary, width },
    nn.LSTM { width, width, layers = 2, time_first = true }, nn.Linear { width, vocabulary },
    turn(),
  },
  batch = 32, n_class = vocabulary,
}
