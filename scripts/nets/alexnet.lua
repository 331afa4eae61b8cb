-- alexnet: Krizhevsky, Sutskever and Hinton, NIPS 2012, in the form of Caffe's AlexNet: one device, with the two groups and the
-- local response normalisation of the paper, which comes before pooling. 227x227 is the size at which the paper's first layer gives 55x55. The net of OpenCV's figures.
-- Called with { variant = "one_tower" } it is the net of "One weird trick for parallelizing convolutional neural networks"
-- (Krizhevsky, arXiv 1404.5997), without groups and normalisation: the net of optnet's and convnet-benchmarks' figures.
local neap = require "neap"
local nn, init = neap.nn, neap.init

local variant = (select(2, ...) or {}).variant or "caffe"

local layers, n_in
local function add(layer) layers[#layers + 1] = layer end
local function conv(n_out, o)
  o[1], o[2], n_in = n_in, n_out, n_out
  o.init = init.kaiming {} -- learns without the schedule of the paper
  add(nn.Conv2d(o))
  add(nn.ReLU())
end
local function pool() add(nn.MaxPool2d { 3, stride = 2 }) end
local function classifier(n_feature)
  add(nn.Flatten())
  for _, n in ipairs { n_feature, 4096 } do
    if variant == "one_tower" then add(nn.Dropout { 0.5 }) end
    add(nn.Linear { n, 4096 })
    add(nn.ReLU())
    if variant == "caffe" then add(nn.Dropout { 0.5 }) end
  end
  add(nn.Linear { 4096, 1000 })
end

if variant == "caffe" then
  layers, n_in = { input = { 3, 227, 227 } }, 3
  conv(96, { kernel = 11, stride = 4 })
  add(nn.LRN { 5, alpha = 1e-4, beta = 0.75 })
  pool()
  conv(256, { kernel = 5, pad = 2, groups = 2 })
  add(nn.LRN { 5, alpha = 1e-4, beta = 0.75 })
  pool()
  conv(384, { kernel = 3, pad = 1 })
  conv(384, { kernel = 3, pad = 1, groups = 2 })
  conv(256, { kernel = 3, pad = 1, groups = 2 })
  pool()
elseif variant == "one_tower" then
  layers, n_in = { input = { 3, 224, 224 } }, 3
  conv(64, { kernel = 11, stride = 4, pad = 2 })
  pool()
  conv(192, { kernel = 5, pad = 2 })
  pool()
  conv(384, { kernel = 3, pad = 1 })
  conv(256, { kernel = 3, pad = 1 })
  conv(256, { kernel = 3, pad = 1 })
  pool()
else
  error("alexnet: variant expects \"caffe\" or \"one_tower\", got " .. tostring(variant))
end
classifier(256 * 6 * 6)

return { model = nn.Sequential(layers), batch = 128, n_class = 1000, name = variant == "caffe" and "alexnet" or "alexnet_one_tower" }
