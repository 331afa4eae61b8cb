-- alexnet: Krizhevsky, Sutskever and Hinton, NIPS 2012, in the form of Caffe's AlexNet: one device,
-- with the two groups and the local response normalisation of the paper, which comes before
-- pooling. 227x227 is the size at which the paper's first layer gives 55x55. The net of OpenCV's
-- figures. Called with { variant = "two_towers" } it has the two halves of the paper's figure 2
-- side by side, which meet only in the classifier, and no normalisation: Torch's form, whose
-- outputs add up to what optnet publishes.
local neap = require "neap"
local nn, init = neap.nn, neap.init

local variant = (select(2, ...) or {}).variant or "caffe"
if variant ~= "caffe" and variant ~= "two_towers" then
  error("alexnet: variant expects \"caffe\" or \"two_towers\", got " .. tostring(variant))
end

local function conv(list, n_in, n_out, o)
  o[1], o[2], o.init = n_in, n_out, init.kaiming {}
  list[#list + 1] = nn.Conv2d(o)
  list[#list + 1] = nn.ReLU()
end
local function pool(list) list[#list + 1] = nn.MaxPool2d { 3, stride = 2 } end

--- The convolutions, of all channels in groups or of one half.
local function features(list, half)
  local n, groups = half and 2 or 1, half and 1 or 2
  local function norm()
    if not half then list[#list + 1] = nn.LRN { 5, alpha = 1e-4, beta = 0.75 } end
  end
  conv(list, 3, 96 // n, { kernel = 11, stride = 4, pad = half and 2 or 0 })
  norm()
  pool(list)
  conv(list, 96 // n, 256 // n, { kernel = 5, pad = 2, groups = groups })
  norm()
  pool(list)
  conv(list, 256 // n, 384 // n, { kernel = 3, pad = 1 })
  conv(list, 384 // n, 384 // n, { kernel = 3, pad = 1, groups = groups })
  conv(list, 384 // n, 256 // n, { kernel = 3, pad = 1, groups = groups })
  pool(list)
  return list
end

local layers
if variant == "caffe" then
  layers = features { input = { 3, 227, 227 } }
else
  layers = {
    input = { 3, 224, 224 },
    nn.Concat { nn.Sequential(features({}, true)), nn.Sequential(features({}, true)) },
  }
end
for _, layer in ipairs {
  nn.Flatten(), nn.Linear { 9216, 4096 }, nn.ReLU(), nn.Dropout { 0.5 }, nn.Linear { 4096, 4096 },
  nn.ReLU(),
  nn.Dropout { 0.5 }, nn.Linear { 4096, 1000 },
} do
  layers[#layers + 1] = layer
end

return { model = nn.Sequential(layers), batch = 128, n_class = 1000 }
