-- quantize: trains LeNet on MNIST for an epoch, then computes with bytes: accuracy and memory.
-- neap run scripts/examples/quantize.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim

local quick = ... == "--quick"
local train = neap.data.mnist { split = "train", batch = 64, limit = quick and 2048 or nil }
local test = neap.data.mnist { split = "test", batch = 100, limit = quick and 500 or nil }
local model = neap.zoo.lenet {}

local function trainer_of(m)
  return neap.trainer { model = m, loss = nn.CrossEntropyLoss(), metrics = { "accuracy" }, seed = 1,
    optimizer = optim.SGD { lr = 0.02, momentum = 0.9 } }
end

local trainer <close> = trainer_of(model)
trainer:fit(train, { epochs = 1, verbose = 0 })

-- A few batches say how far the numbers between the layers go.
local q = neap.quantize(model, train, { batches = 5 })
local evaluator <close> = trainer_of(q)
for _, row in ipairs { { "real numbers", trainer, model }, { "bytes", evaluator, q } } do
  local plan = row[3]:plan { batch = 100 }
  print(("%-12s %.2f %% right, weights %s, arena %s"):format(row[1],
    100 * row[2]:evaluate(test).accuracy, neap.bytes(plan.regions.parameters + plan.regions.state),
    neap.bytes(plan.arena_bytes)))
end
