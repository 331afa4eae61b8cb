--- Distillation: a small net learns from a large one's answers as well as from labels.
--
--   build/neap run scripts/examples/distill.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = arg and arg[1] == "--quick"
neap.seed(1)

local function net(width)
  return nn.Sequential { nn.Linear { 2, width }, nn.Tanh(), nn.Linear { width, 2 } }
end
local x = neap.randn(400, 2)
local y = (x:narrow(2, 1, 1) * x:narrow(2, 2, 1)):gt(0):to("i64"):reshape(400)
local set = neap.data.tensors { x = x, y = y, batch = 50, shuffle = true }

local teacher <close> = neap.trainer {
  model = net(64), optimizer = optim.Adam { lr = 0.02 }, metrics = "accuracy", seed = 1,
}
teacher:fit(set, { epochs = quick and 30 or 100, verbose = 0 })

-- The large net's logits are a field of the data: soft(y, t, soft) names it.
local soft = teacher:predict(x)
local T = 2
local function match(logits, soft)
  return (logits * (1 / T)):log_softmax():kl_div_loss((soft * (1 / T)):softmax()) * (T * T)
end
local student <close> = neap.trainer {
  model = net(6), metrics = "accuracy",
  losses = { { nn.CrossEntropyLoss(), weight = 0.3 }, { match, name = "match", weight = 0.7 } },
  optimizer = optim.Adam { lr = 0.02 }, seed = 2,
}
local both = neap.data.tensors { x = x, y = y, soft = soft, batch = 50, shuffle = true }
student:fit(both, { epochs = quick and 40 or 150, verbose = 0 })
print(("teacher %.3f, student %.3f of the labels right"):format(
  teacher:evaluate(set).accuracy, student:evaluate(both).accuracy))
