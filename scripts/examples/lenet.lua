-- lenet: trains LeNet on MNIST and prints the test accuracy last; half a minute or so on two cores.
-- neap run scripts/examples/lenet.lua [--quick]
-- MNIST is looked for in $NEAP_DATA, ./data and ../shared/data/datasets; a message says what is
-- missing.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim

local quick = ... == "--quick"
local batch, epochs = 64, quick and 1 or 5
local train = neap.data.mnist { split = "train", batch = batch, limit = quick and 2048 or nil }
local test = neap.data.mnist { split = "test", batch = 100, limit = quick and 500 or nil }

-- `input` is the shape of one example: with it every layer's shape is known before any data is
-- read.
local model = nn.Sequential { input = { 1, 28, 28 },
  nn.Conv2d { 1, 20, kernel = 5 }, nn.MaxPool2d { 2 },
  nn.Conv2d { 20, 50, kernel = 5 }, nn.MaxPool2d { 2 },
  nn.Flatten(), nn.Linear { 800, 500 }, nn.ReLU(), nn.Linear { 500, 10 },
}

local trainer <close> = neap.trainer {
  model = model, loss = nn.CrossEntropyLoss(), metrics = { "accuracy" }, seed = 1, name = "lenet",
  optimizer = optim.SGD { lr = 0.02, momentum = 0.9, weight_decay = 5e-4 },
  schedule = optim.cosine { epochs * #train },
}

print(trainer:plan(batch):forecast()) -- before the first step, and exact
trainer:fit(train, { epochs = epochs, valid = test })
local result = trainer:evaluate(test)
print(("test accuracy %.2f %%"):format(100 * result.accuracy))
