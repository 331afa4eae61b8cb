-- Trainings that must reach a figure: each says what it reached, what it should, and how long it
-- took; exit code 1 where one falls short. Each ends as soon as its figure is reached.
--
--   neap run scripts/bench/train.lua [NAME ..] [--seconds N]
--
-- NAME: cifar, cifar-bf16, lstm, names; all without.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim

--- A text's path in the options of its sets, or nil where it is not at hand.
local function found(name, o)
  o.path = neap.data.find("text/" .. name, name)
  return o.path and o
end

--- The training of resnet18c, in f32 or in mixed precision.
local function cifar(dtype)
  local function make()
    if not neap.data.find("cifar10/cifar10_train_first2000.bin.gz") then return nil end

    local function set(shuffle)
      return neap.data.cifar10 { split = "train", batch = 50, shuffle = shuffle }
    end
    local t = neap.trainer {
      model = neap.zoo.resnet18c(), loss = nn.CrossEntropyLoss(), metrics = "accuracy", seed = 1,
      optimizer = optim.SGD { lr = 0.05, momentum = 0.9, weight_decay = 5e-4 },
      schedule = optim.one_cycle { 480 }, dtype = dtype,
    }
    local all = set(false)
    return t, set(true), function() return t:evaluate(all).accuracy end, 80
  end
  return { what = "training accuracy of resnet18c on the CIFAR-10 sample", target = 0.95,
    above = true, make = make }
end

-- By name: `what`, the figure's `target`, whether it is to be `above` it, and `make(seconds)`,
-- which gives a trainer, its data, a function that measures, and how many steps lie between two
-- looks.
local trainings = {
  cifar = cifar(),
  ["cifar-bf16"] = cifar("bf16"),
  lstm = {
    what = "held-out nats a character of an LSTM on tinyshakespeare", target = 1.75,
    make = function(seconds)
      local o = { length = 64, stride = 32, batch = 32, split = "train", shuffle = true, seed = 7 }
      if not found("tinyshakespeare.txt", o) then return nil end
      local train = neap.data.text(o)
      local valid = neap.data.text { path = o.path, length = 64, batch = 32, split = "valid",
        vocabulary = train.chars, last = "drop" }
      local start = neap.clock()
      local t = neap.trainer {
        model = neap.zoo.lstm { vocabulary = train.n_class }, seed = 1,
        optimizer = optim.Adam { lr = 4e-3, clip = 1 },
        schedule = function(_, lr)
          return lr * math.max(0.05, 1 - (neap.clock() - start) / seconds)
        end,
      }
      return t, train, function() return t:evaluate(valid).loss end, 500
    end,
  },
  names = {
    what = "held-out nats a character of a GPT on names", target = 2.05,
    make = function()
      local o = { batch = 64, split = "train", shuffle = true, seed = 3 }
      if not found("names.txt", o) then return nil end
      local train = neap.data.chars(o)
      local valid = neap.data.chars { path = o.path, batch = 64, split = "valid",
        vocabulary = train.chars, length = train.length, seed = 3 }
      local t = neap.trainer {
        model = neap.zoo.gpt {
          layers = 3, width = 64, heads = 4, length = train.length, vocabulary = train.n_class,
        },
        loss = nn.CrossEntropyLoss { ignore_index = train.ignore_index }, seed = 1,
        optimizer = optim.AdamW { lr = 3e-3, weight_decay = 0.05 },
        schedule = optim.cosine { 7000 },
      }
      return t, train, function() return t:evaluate(valid).loss end, 500
    end,
  },
}

local names, seconds, i = {}, 900, 1
while arg[i] do
  if arg[i] == "--seconds" then
    i = i + 1
    seconds = tonumber(arg[i] or "") or error("--seconds expects a number", 0)
  elseif trainings[arg[i]] then
    names[#names + 1] = arg[i]
  else
    error(('no training is called "%s"; there are cifar, cifar-bf16, lstm, names'):format(arg[i]),
      0)
  end
  i = i + 1
end
if #names == 0 then names = { "cifar", "cifar-bf16", "names", "lstm" } end

--- Trains until the figure is reached or the time is over.
local function run(name)
  local training = trainings[name]
  local t, set, measure, every = training.make(seconds)
  if not t then
    print(("%-10s skipped: its data are not at hand"):format(name))
    return true
  end

  local start, value, reached = neap.clock(), nil, false
  t:fit(set, { epochs = 1000, verbose = 0, on_step = function(r)
    local over = neap.clock() - start > seconds
    if r.step % every ~= 0 and not over then return end
    value = measure()
    if training.above then reached = value > training.target
    else reached = value < training.target end
    io.stderr:write(("%-10s step %5d, %4.0f s: %.4f\n"):format(name, r.step, neap.clock() - start,
      value))
    if reached or over then return false end
  end })
  print(("%-10s %s: %.4f, %s %.2f: %s, %d steps in %.0f s"):format(name, training.what, value,
    training.above and "above" or "below", training.target, reached and "reached" or "NOT reached",
    t:history()[#t:history()].step, neap.clock() - start))
  t:close()
  return reached
end

local all = true
for _, name in ipairs(names) do all = run(name) and all end
os.exit(all and 0 or 1, true)
