-- cifar: a small residual net on the CIFAR-10 sample. Two thousand images can be learnt by heart:
-- the point is that loss goes to nothing.
-- neap run scripts/examples/cifar.lua [--quick] [f32 | bf16 | f16]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim

local quick, dtype = false, "f32"
for _, word in ipairs { ... } do
  if word == "--quick" then quick = true else dtype = word end
end
local batch, epochs = 50, quick and 1 or 20
local train = neap.data.cifar10 { split = "train", batch = batch, limit = quick and 500 or nil }
local test = neap.data.cifar10 { split = "test", batch = batch, limit = quick and 200 or nil }

--- Two convolutions and the way past them; where the shape changes, the way past is a 1x1
-- convolution (He et al., 2016).
local function block(n_in, n_out, stride)
  local shortcut
  if stride ~= 1 or n_in ~= n_out then
    shortcut = nn.Conv2d { n_in, n_out, kernel = 1, stride = stride, bias = false }
  end
  return nn.Sequential {
    nn.Residual {
      nn.Conv2d { n_in, n_out, kernel = 3, stride = stride, pad = 1, bias = false },
      nn.BatchNorm2d { n_out }, nn.ReLU(),
      nn.Conv2d { n_out, n_out, kernel = 3, pad = 1, bias = false }, nn.BatchNorm2d { n_out },
      shortcut = shortcut,
    },
    nn.ReLU(),
  }
end

local model = nn.Sequential { input = { 3, 32, 32 },
  nn.Conv2d { 3, 32, kernel = 3, pad = 1, bias = false }, nn.BatchNorm2d { 32 }, nn.ReLU(),
  block(32, 32, 1), block(32, 64, 2), block(64, 128, 2),
  nn.GlobalAvgPool(), nn.Flatten(), nn.Linear { 128, 10 },
}

local trainer <close> = neap.trainer {
  model = model, loss = nn.CrossEntropyLoss(), metrics = { "accuracy" }, seed = 1, name = "cifar",
  dtype = dtype, -- mixed precision: parameters and losses stay f32
  optimizer = optim.SGD { lr = 0.05, momentum = 0.9, weight_decay = 1e-4 },
  schedule = optim.cosine { epochs * #train },
}

print(trainer:plan(batch):forecast())
trainer:fit(train, { epochs = epochs })
local seen, unseen = trainer:evaluate(train), trainer:evaluate(test)
print(("test accuracy %.2f %% (of a net that saw %d images)"):format(100 * unseen.accuracy,
  train:spec().n))
print(("train accuracy %.2f %%"):format(100 * seen.accuracy))
