--- A transformer with a mask: sequence to sequence, it learns to write a word backwards.
--
--   build/neap run scripts/examples/transformer.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = arg and arg[1] == "--quick"
neap.seed(1)

local width, n_token, start = 32, 9, 8 -- tokens 0 to 7, and one that begins
local Reverser = nn.module {
  "Reverser",
  init = function(self)
    self.embed, self.place = nn.Embedding { n_token, width }, nn.PositionalEncoding()
    local o = { width, 4, hidden = 64, dropout = 0, norm_first = true }
    self.encoder, self.decoder = nn.TransformerEncoder(o), nn.TransformerDecoder(o)
    self.out = nn.Linear { width, n_token }
  end,
  forward = function(self, source, lengths, given)
    local function embedded(ids) return self.place(self.embed(ids)) end
    local memory = self.encoder(embedded(source), nil, lengths)
    return self.out(self.decoder(embedded(given), memory, nil, nil, lengths, lengths))
  end,
}

local source, given, y = {}, {}, {}
for i = 1, 512 do
  local length = 3 + i % 4
  source[i], given[i], y[i] = {}, { start }, {}
  for j, r in ipairs(neap.rand(length):totable()) do source[i][j] = math.floor(r * 8) end
  for j = 1, length do y[i][j] = source[i][length + 1 - j] end
  for j = 2, length do given[i][j] = y[i][j - 1] end
end
local set = neap.data.sequences {
  source = source, given = given, y = y, pad = { y = -1 }, bucket = { 4, 6 }, batch = 64,
  shuffle = true,
}
local t <close> = neap.trainer {
  model = Reverser {}, loss = nn.CrossEntropyLoss { ignore_index = -1 }, metrics = "accuracy",
  optimizer = optim.Adam { lr = 3e-3 }, seed = 3,
}
t:fit(set, { epochs = quick and 32 or 60, verbose = 0 })
print(("%.3f of the letters are right, each known those before it"):format(
  t:evaluate(set).accuracy))

-- Written letter by letter, from nothing but the word.
local word, written = { 3, 1, 4, 1, 5 }, { start }
local n = neap.tensor({ #word }, "i64")
for i = 1, #word do
  while #written < #word do written[#written + 1] = 0 end
  local logits = t:predict(neap.tensor({ word }, "i64"), n, neap.tensor({ written }, "i64"))
  written[i + 1] = math.tointeger(logits:arg_max { axis = -1 }:at(1, i))
end
print("31415 backwards: " .. table.concat(written, "", 2, #word + 1))
