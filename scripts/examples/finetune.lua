-- finetune: a net of an ONNX file learns another task: MNIST's digits with a new head tell grey
-- pictures of CIFAR-10 apart; what came of it is an ONNX file again. A minute on two cores.
-- neap run scripts/examples/finetune.lua MODEL.onnx [OUT.onnx] [--quick]
-- MODEL.onnx is mnist-8 of ONNX's model zoo; CIFAR-10 is looked for as by neap.data.cifar10.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim

local path, out, quick = ...
if out == "--quick" then out, quick = nil, out end
assert(path, "usage: neap run scripts/examples/finetune.lua MODEL.onnx [OUT.onnx] [--quick]")

--- CIFAR's pictures as one grey plane, the middle 28 x 28 of it.
local function grey(split, limit)
  local parts, labels = {}, {}
  for b in neap.data.cifar10({ split = split, batch = 100, limit = limit }):epoch(1) do
    local plane = b.x:mean { axes = { 2 }, keepdim = true }
    parts[#parts + 1] = plane:slice { starts = { 3, 3 }, ends = { 30, 30 }, axes = { 3, 4 } }
    labels[#labels + 1] = b.y:clone()
  end
  return neap.concat(parts, { axis = 1 }), neap.concat(labels, { axis = 1 })
end

-- The file's net up to its last pool: what its own head made of that is left behind.
local body = assert(neap.import(path, { model = true, outputs = { "Pooling160_Output_0" } }))
local model = nn.Sequential { input = { 1, 28, 28 },
  body, nn.Flatten(), nn.Linear { 256, 64 }, nn.ReLU(), nn.Linear { 64, 10 },
}

local x, y = grey("train", quick and 500 or 2000)
local test_x, test_y = grey("test", quick and 200 or 1000)
local trainer <close> = neap.trainer { model = model, loss = nn.CrossEntropyLoss(),
  optimizer = optim.Adam { lr = 1e-3 }, metrics = { "accuracy" }, seed = 1 }
local test = neap.data.tensors { x = test_x, y = test_y, batch = 100 }
local before = trainer:evaluate(test)
trainer:fit(neap.data.tensors { x = x, y = y, batch = 50 }, { epochs = quick and 2 or 10 })
local after = trainer:evaluate(test)
print(("loss %.3f before, %.3f after; accuracy %.1f %% before, %.1f %% after"):format(
  before.loss, after.loss, 100 * before.accuracy, 100 * after.accuracy))

if out then
  assert(neap.export(model, out, { batch = "batch" }))
  local f = assert(neap.import(out, { dims = { batch = 100 } }))
  local want = model(test_x:slice { starts = { 1 }, ends = { 100 }, axes = { 1 } })
  local got = f(test_x:slice { starts = { 1 }, ends = { 100 }, axes = { 1 } })
  print(("written to %s; read again it differs by %.2g of %.3g"):format(
    out, (got - want):abs():max():item(), want:abs():max():item()))
end
