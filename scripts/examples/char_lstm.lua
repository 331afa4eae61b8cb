--- Names, letter by letter: an LSTM learns which letter comes next, then writes names of its own,
-- its states handed on from letter to letter.
--
--   build/neap run scripts/examples/char_lstm.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = ... == "--quick"
neap.seed(1)

-- Names of syllables, by rules that can be learnt: a file of real ones would do as well.
local path, syllables = os.tmpname(), { "ka", "ri", "mo", "len", "ta", "su", "nor", "el" }
do
  local file <close> = assert(io.open(path, "w"))
  for _, row in ipairs(neap.rand_int({ shape = { quick and 300 or 2000, 3 }, low = 1, high = 9 })
      :totable()) do
    local a, b, c = table.unpack(row)
    file:write(syllables[a], syllables[b], c < 5 and syllables[c] or "", "\n")
  end
end
local names = neap.data.chars { path = path, batch = 25, shuffle = true }
os.remove(path)
local n_letter = names.n_class

local Writer = nn.module { "Writer",
  init = function(self)
    self.embed, self.out = nn.Embedding { n_letter, 16 }, nn.Linear { 64, n_letter }
    self.lstm = nn.LSTM { 16, 64, states = true }
  end,
  forward = function(self, x, h, c)
    local y
    y, h, c = self.lstm(self.embed(x), nil, h, c)
    return self.out(y), h, c
  end }
local writer = Writer {}
local t <close> = neap.trainer { model = writer, optimizer = optim.Adam { lr = 0.01, clip = 1 },
  losses = { { nn.CrossEntropyLoss { ignore_index = -1 }, output = 1, name = "nats" } } }
local history = t:fit(names, { epochs = quick and 8 or 20, verbose = 0 })
print(("%.2f nats a letter at first, %.2f at last"):format(history[1].nats, history[#history].nats))

-- Eight names at once. A name begins and ends with number 0.
writer:eval()
local letter, written, states = neap.zeros { 8, 1, dtype = "i64" }, {}, {}
for i = 1, 12 do
  local y, h, c = writer(letter, table.unpack(states))
  states = { h, c }
  letter = y:select(2, 1):softmax():multinomial()
  written[i] = letter
end
for i, row in ipairs(neap.concat(written, { axis = 2 }):totable()) do
  local ended = 1
  while row[ended] and row[ended] ~= 0 do ended = ended + 1 end
  written[i] = names:decode { table.unpack(row, 1, ended - 1) }
end
print(table.concat(written, " ", 1, 8))
