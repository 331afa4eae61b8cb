-- prune: LeNet on MNIST, then nine of ten weights taken away step by step, training in between.
-- neap run scripts/examples/prune.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim

local quick = ... == "--quick"
local train = neap.data.mnist { split = "train", batch = 64, limit = quick and 3072 or nil }
local test = neap.data.mnist { split = "test", batch = 100, limit = quick and 500 or nil }
local model = neap.zoo.lenet {}
local trainer <close> = neap.trainer { model = model, loss = nn.CrossEntropyLoss(), seed = 1,
  metrics = { "accuracy" }, optimizer = optim.SGD { lr = 0.02, momentum = 0.9 } }


trainer:fit(train, { epochs = 2, verbose = 0 })
print(("%-22s %.2f %% right"):format("all weights", 100 * trainer:evaluate(test).accuracy))
for i, amount in ipairs { 0.5, 0.75, 0.9 } do
  neap.prune(model, { amount = amount })
  trainer:fit(train, { epochs = i < 3 and 1 or 2, verbose = 0 })
  print(("%-22s %.2f %% right"):format(("%g %% of weights zero"):format(amount * 100),
    100 * trainer:evaluate(test).accuracy))
end
print(neap.sparsity(model))
