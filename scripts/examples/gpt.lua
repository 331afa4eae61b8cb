-- gpt: a character GPT on a text file, with samples at the end.
-- neap run scripts/examples/gpt.lua [--quick] [--seconds N] [TEXT FILE]
-- Without a file: tinyshakespeare, where it is found. Any text will do: try README.md, or the
-- sources of your own.
local neap = require "neap"
local optim = neap.optim

local quick, seconds, path = false, 480, nil
local args, i = { ... }, 1
while args[i] do
  if args[i] == "--quick" then
    quick = true
  elseif args[i] == "--seconds" then
    i = i + 1
    seconds = tonumber(args[i] or "") or error("--seconds expects a number", 0)
  else
    path = args[i]
  end
  i = i + 1
end
if quick then seconds = math.min(seconds, 10) end
path = path or neap.data.find("text/tinyshakespeare.txt", "tinyshakespeare.txt")
if not path then
  error("tinyshakespeare.txt is not at hand; give a text file: neap run \z
    scripts/examples/gpt.lua README.md", 0)
end

local length, batch = quick and 32 or 128, quick and 8 or 16
local train = neap.data.text {
  path = path,
  length = length,
  stride = length // 4,
  batch = batch,
  split = "train",
  shuffle = true,
  seed = 7,
}
local valid = neap.data.text {
  path = path,
  length = length,
  batch = batch,
  split = "valid",
  vocabulary = train.chars,
  last = "drop",
}

local sizes = {
  layers = quick and 2 or 4,
  width = quick and 64 or 192,
  heads = quick and 2 or 6,
  length = length,
  vocabulary = train.n_class,
  batch = batch,
}
local model = neap.zoo.gpt(sizes)

-- The rate follows the clock rather than a number of steps: whatever the machine, training ends at
-- a small one, in time.
local start, total = neap.clock(), quick and 60 or 100000
local trainer <close> = neap.trainer {
  model = model, seed = 1, name = "gpt",
  optimizer = optim.AdamW { lr = quick and 3e-3 or 1.5e-3, weight_decay = 0.1, beta2 = 0.99 },
  schedule = function(step, lr)
    local done = math.max((neap.clock() - start) / seconds, step / total)
    return lr * math.min(1, step / 100) * math.max(0.02,
      0.5 * (1 + math.cos(math.pi * math.min(1, done))))
  end,
}
print(trainer:plan(batch):forecast())

local smooth
local stop = {}
local ok, err = pcall(function()
  trainer:fit(train, { steps = total, epochs = 1000, verbose = 0, on_step = function(r)
    smooth = smooth and 0.98 * smooth + 0.02 * r.loss or r.loss
    if r.step % 200 == 0 then
      print(("step %5d  %3.0f s  loss %.3f  lr %.5f  %.1f ms a step"):format(r.step,
        neap.clock() - start, smooth, r.lr, r.ms))
    end
    if neap.clock() - start > seconds then error(stop) end
  end })
end)
if not ok and err ~= stop then error(err, 0) end

--- Draws `n` characters after `text`, at temperature `t`.
local function sample(text, n, t)
  local ids = train.encode(text)
  for _ = 1, n do
    local window = { table.unpack(ids, math.max(1, #ids - length + 1)) }
    local fill = #window
    -- behind what is known: attention looks back only
    while #window < length do window[#window + 1] = 0 end
    local logits = trainer:predict(neap.tensor({ window }, "i64"))
    local most, sum, p = -math.huge, 0, {}
    for c = 1, train.n_class do most = math.max(most, logits:at(1, fill, c)) end
    for c = 1, train.n_class do
      p[c] = math.exp((logits:at(1, fill, c) - most) / t)
      sum = sum + p[c]
    end
    local u, c = math.random() * sum, 1
    while u > p[c] and c < train.n_class do
      u = u - p[c]
      c = c + 1
    end
    ids[#ids + 1] = c - 1
  end
  return train.decode(ids)
end

math.randomseed(1)
print "it writes:"
print(sample("\n", quick and 60 or 300, 0.8))
print(("validation loss %.3f nats per character"):format(trainer:evaluate(valid).loss))
