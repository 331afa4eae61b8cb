--- int8_accuracy.lua [NET ..] [--epochs 10]: what neap.quantize costs in accuracy.
--
-- Each net of the zoo for CIFAR's pictures is trained a little on the sample of CIFAR-10, quantised
-- by its first batches, and evaluated on all pictures of the sample: in real numbers, and in bytes
-- by each way to find ranges. Fails where one loses more than half a point.
--
--   neap run scripts/bench/int8_accuracy.lua resnet20
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local MOST_LOST <const> = 0.5

local nets, epochs = {}, 10
local i = 1
while arg[i] do
  if arg[i] == "--epochs" then
    epochs = assert(math.tointeger(tonumber(arg[i + 1])), "--epochs expects a number")
    i = i + 1
  else
    nets[#nets + 1] = arg[i]
  end
  i = i + 1
end
if #nets == 0 then nets = { "resnet20" } end

local train = neap.data.cifar10 { split = "train", batch = 50 }
local test = neap.data.cifar10 { split = "test", batch = 50 }

local function trainer_of(model)
  return neap.trainer { model = model, loss = nn.CrossEntropyLoss(), metrics = { "accuracy" },
    seed = 1, optimizer = optim.SGD { lr = 0.05, momentum = 0.9, weight_decay = 1e-4 } }
end

--- Per cent right of both parts.
local function accuracy(trainer)
  return 100 * trainer:evaluate(train).accuracy, 100 * trainer:evaluate(test).accuracy
end

local worst = 0
for _, name in ipairs(nets) do
  local model = neap.zoo[name] { classes = 10 }
  local trainer <close> = trainer_of(model)
  trainer:fit(train, { epochs = epochs, verbose = 0 })
  local real_train, real_test = accuracy(trainer)
  print(("%-12s %-11s %6.2f %% of train, %6.2f %% of test"):format(name, "real", real_train,
    real_test))
  for _, method in ipairs { "minmax", "percentile" } do
    local bytes <close> = trainer_of(neap.quantize(model:eval(), train, { method = method }))
    local own_train, own_test = accuracy(bytes)
    worst = math.max(worst, real_train - own_train, real_test - own_test)
    print(("%-12s %-11s %6.2f %% of train, %6.2f %% of test"):format(name, method, own_train,
      own_test))
  end
end
print(("at most %.2f points lost"):format(worst))
if worst > MOST_LOST + 1e-9 then error(("more than %.1f points lost"):format(MOST_LOST), 0) end
