-- resnet50: He et al., CVPR 2016, with the stride in the 3x3 convolution, as everybody runs it now.
local neap = require "neap"
local nn = neap.nn
local classes = (select(2, ...) or {}).classes or 1000

local function conv(n_in, n_out, kernel, stride)
  return nn.Conv2d {
    n_in, n_out, kernel = kernel, stride = stride or 1, pad = kernel // 2, bias = false,
  }
end

-- 1x1 down, 3x3, 1x1 up to four times the width.
local function bottleneck(n_in, width, stride)
  local n_out, shortcut = 4 * width, nil
  if stride ~= 1 or n_in ~= n_out then
    shortcut = nn.Sequential { conv(n_in, n_out, 1, stride), nn.BatchNorm2d { n_out } }
  end
  return nn.Sequential {
    nn.Residual {
      conv(n_in, width, 1), nn.BatchNorm2d { width }, nn.ReLU(),
      conv(width, width, 3, stride), nn.BatchNorm2d { width }, nn.ReLU(),
      conv(width, n_out, 1), nn.BatchNorm2d { n_out },
      shortcut = shortcut,
    },
    nn.ReLU(),
  }
end

local layers = {
  input = { 3, 224, 224 },
  conv(3, 64, 7, 2), nn.BatchNorm2d { 64 }, nn.ReLU(), nn.MaxPool2d { 3, stride = 2, pad = 1 },
}
local n_in = 64
for _, stage in ipairs { { 64, 3, 1 }, { 128, 4, 2 }, { 256, 6, 2 }, { 512, 3, 2 } } do
  for i = 1, stage[2] do
    layers[#layers + 1] = bottleneck(n_in, stage[1], i == 1 and stage[3] or 1)
    n_in = 4 * stage[1]
  end
end
layers[#layers + 1] = nn.GlobalAvgPool()
layers[#layers + 1] = nn.Flatten()
layers[#layers + 1] = nn.Linear { 2048, classes }

return { model = nn.Sequential(layers), batch = 16, n_class = classes }
