--- Transfer: a net that has learnt to tell ten pictures, of two strokes each, lends its body to
-- another task, five other pairs of the strokes, of which there are few examples. First the new
-- head alone is trained, then all of it, the body slowly.
--
--   build/neap run scripts/examples/transfer.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = ... == "--quick"
neap.seed(1)

-- Six strokes in pictures of 12 x 12, and the pairs of them; all shifted a little, in noise.
local strokes, pairs_of = neap.randn(6, 1, 12, 12), {}
for i = 1, 6 do
  for j = i + 1, 6 do pairs_of[#pairs_of + 1] = strokes[i] + strokes[j] end
end
local function pictures(first, last, each, batch)
  local rows, labels = {}, {}
  for k = 1, (last - first + 1) * each do
    local label = k % (last - first + 1)
    rows[k], labels[k] = pairs_of[first + label] + neap.randn(1, 12, 12), label
  end
  return neap.data.tensors { x = neap.stack(rows), y = neap.tensor(labels, "i64"), batch = batch,
    shuffle = true, transform = { neap.data.random_crop { 12, pad = 1 } } }
end

local function net(n_class)
  return nn.Sequential { input = { 1, 12, 12 }, seed = 2,
    nn.Sequential { name = "body",
      nn.Conv2d { 1, 16, kernel = 3, pad = 1 }, nn.ReLU(), nn.MaxPool2d { 2 },
      nn.Conv2d { 16, 32, kernel = 3, pad = 1 }, nn.ReLU(), nn.MaxPool2d { 2 },
      nn.Flatten(), nn.Linear { 32 * 9, 64 }, nn.ReLU() },
    nn.Linear { 64, n_class, name = "head" } }
end

local function accuracy(model, data, optimizer, epochs, judge)
  local t <close> = neap.trainer { model = model, loss = nn.CrossEntropyLoss(), seed = 3,
    metrics = "accuracy", optimizer = optimizer }
  t:fit(data, { epochs = epochs, verbose = 0 })
  return t:evaluate(judge).accuracy
end

local path = os.tmpname() .. ".safetensors"
local source = net(10)
local many = pictures(1, 10, quick and 60 or 200, 30)
print(("ten pairs: %.2f right"):format(accuracy(source, many, optim.Adam { lr = 3e-3 },
  quick and 4 or 10, many:plain())))
assert(source:save(path))

local few, judge = pictures(11, 15, 3, 5), pictures(11, 15, 60, 50):plain()
print(("others, from three examples each: %.2f right from scratch"):format(accuracy(net(5), few,
  optim.Adam { lr = 3e-3 }, 8, judge)))
local model = net(10)
assert(model:load(path))
model.head = nn.Linear { 64, 5 }
model:freeze "body.*"
local head = accuracy(model, few, optim.Adam { lr = 1e-2 }, 8, judge)
for _, p in model:parameters() do p.trainable = true end
print(("%.2f by a new head, %.2f with the body behind it"):format(head, accuracy(model, few,
  optim.Adam { lr = 1e-3, { "body.*", lr = 1e-4 } }, 8, judge)))
os.remove(path)
