--- A bidirectional tagger of sentences of different lengths, in buckets.
--
--   build/neap run scripts/examples/tagger.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = arg and arg[1] == "--quick"
neap.seed(1)

-- A word's tag depends on both neighbours: whether the next is larger than the last.
local ids, tags = {}, {}
for i = 1, 300 do
  local words = neap.rand(2 + i % 13):totable()
  ids[i], tags[i] = {}, {}
  for j, r in ipairs(words) do ids[i][j] = math.floor(r * 20) end
  for j = 1, #words do
    tags[i][j] = (ids[i][j + 1] or 0) > (ids[i][j - 1] or 0) and 1 or 0
  end
end

local Tagger = nn.module {
  "Tagger",
  init = function(self)
    self.embed = nn.Embedding { 20, 16 }
    self.rnn = nn.Bidirectional { nn.GRU { 16, 16 }, nn.GRU { 16, 16 } }
    self.out = nn.Linear { 32, 2 }
  end,
  forward = function(self, ids, lengths) return self.out(self.rnn(self.embed(ids), lengths)) end,
}

local t <close> = neap.trainer {
  model = Tagger {}, loss = nn.CrossEntropyLoss { ignore_index = -1 }, metrics = "accuracy",
  optimizer = optim.Adam { lr = 0.01 }, grad_norm = true, seed = 3,
}
local set = neap.data.sequences {
  ids = ids, y = tags, pad = { y = -1 }, bucket = { 5, 10, 15 }, batch = 30, shuffle = true,
}
print(t:fit(set, { epochs = quick and 12 or 40, verbose = 0 }))
local plans = 0
for key in pairs(t.programs) do plans = plans + (key:find "^train 30" and 1 or 0) end
print(("accuracy %.3f, by %d plans in %s"):format(t:evaluate(set).accuracy, plans,
  neap.bytes(t.ws:arena_bytes())))
