--- Sequence to sequence: an encoder reads digits, a decoder writes them backwards, looking at what
-- was read by attention. Trained on texts whose ends are known, then asked letter by letter.
--
--   build/neap run scripts/examples/seq2seq.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = ... == "--quick"
local longest, start, width = quick and 5 or 8, 10, 48
neap.seed(1)

local Copier = nn.module { "Copier",
  init = function(self)
    self.embed, self.out = nn.Embedding { 11, width }, nn.Linear { 2 * width, 10 }
    self.encoder = nn.GRU { width, width, bidirectional = true, states = true }
    self.bridge, self.keep = nn.Linear { 2 * width, width }, nn.Linear { 2 * width, width }
    self.decoder = nn.GRU { width, width }
    self.attend = nn.MultiheadAttention { width, heads = 4 }
  end,
  -- What is read (N,T), its lengths, and what has been written so far (N,S), the start in front.
  forward = function(self, text, lengths, written)
    local seen, last = self.encoder(self.embed(text), lengths)
    local first = self.bridge(neap.concat({ last[1], last[2] }, { axis = -1 })):tanh()
    local y = self.decoder(self.embed(written), nil, first:unsqueeze(1))
    local memory = self.keep(seen)
    local found = self.attend(y, memory, memory, nil, lengths)
    return self.out(neap.concat({ y, found }, { axis = -1 }))
  end }

local steps = neap.arange(0, longest):to("i64"):reshape(1, longest)
--- n texts of digits, padded by 0; what is to be written, -1 behind the end.
local function texts(n)
  local lengths = neap.rand_int { shape = { n }, low = 2, high = longest + 1 }
  local counts = steps:lt(lengths:reshape(n, 1))
  local text = neap.where(counts, neap.rand_int { shape = { n, longest }, high = 10 }, 0)
  local turned = neap.reverse_sequence(text, lengths, { time_axis = 2, batch_axis = 1 })
  local first = neap.full { n, 1, value = start, dtype = "i64" }
  return { text = text, lengths = lengths, y = neap.where(counts, turned, -1),
    written = neap.concat({ first, turned:narrow(2, 1, longest - 1) }, { axis = 2 }) }
end

local model = Copier {}
local steps_of_training = quick and 150 or 800
local t <close> = neap.trainer { model = model, loss = nn.CrossEntropyLoss { ignore_index = -1 },
  optimizer = optim.Adam { lr = 5e-3, clip = 1 }, seed = 2,
  schedule = optim.one_cycle { steps_of_training } }
for step = 1, steps_of_training do
  local row = t:step(texts(32))
  if step % 50 == 0 then print(("step %3d  loss %.3f"):format(step, row.loss)) end
end

model:eval()
local new = texts(100)
local written = neap.full { 100, 1, value = start, dtype = "i64" }
for _ = 1, longest do
  local next_letter = model(new.text, new.lengths, written):select(2, -1):arg_max { axis = -1 }
  written = neap.concat({ written, next_letter:reshape(100, 1) }, { axis = 2 })
end
local right = written:narrow(2, 2, longest):eq(new.y):logical_or(new.y:lt(0)):all { axes = { 2 } }
print(("%d of 100 new texts backwards, to the last letter"):format(right:to("f32"):sum():item()))
