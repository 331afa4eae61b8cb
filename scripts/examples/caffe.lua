-- A net and a solver of Caffe's: the net planned and run, then trained as the solver says.
-- It writes both files first, a small LeNet in the words of Caffe's own example.
--
--   build/neap run scripts/examples/caffe.lua [--quick]
local neap = require "neap"
local quick = arg and arg[1] == "--quick"

local net = [[
name: "LeNet"
layer { name: "mnist" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { scale: 0.00390625 } data_param { source: "mnist_train_lmdb" batch_size: 64 } }
layer { name: "mnist" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { scale: 0.00390625 } data_param { source: "mnist_test_lmdb" batch_size: 100 } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  param { lr_mult: 1 } param { lr_mult: 2 }
  convolution_param { num_output: 20 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool1" top: "ip1"
  inner_product_param { num_output: 100 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy"
  include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
]]
local solver = [[
net: "net.prototxt"
base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005
lr_policy: "inv" gamma: 0.0001 power: 0.75
max_iter: 100
]]

local folder = os.tmpname()
os.remove(folder)
assert(os.execute(("mkdir '%s'"):format(folder)))
local paths = { net = folder .. "/net.prototxt", solver = folder .. "/solver.prototxt" }
for path, text in pairs { [paths.net] = net, [paths.solver] = solver } do
  local file <close> = assert(io.open(path, "w"))
  file:write(text)
end

-- What the test phase takes is known before anything is allocated: a batch of 100, the file's own.
local f = assert(neap.import(paths.net))
print(f.net:forecast())

-- The solver gives a trainer, and what t:fit takes; the data are MNIST, as the layer's source says.
local t, fit = assert(neap.import(paths.solver))
for _, note in ipairs(t.model.notes) do print(note) end
fit.steps = quick and 5 or fit.steps
fit.valid = t.model:data("TEST", quick and 100 or 1000)
print(t:fit(t.model:data "TRAIN", fit))

for _, path in pairs(paths) do os.remove(path) end
os.remove(folder)
