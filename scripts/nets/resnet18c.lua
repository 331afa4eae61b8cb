-- resnet18c: ResNet-18 (He et al., CVPR 2016) for 32x32 images: a 3x3 stem without pooling.
local neap = require "neap"
local nn = neap.nn
local classes = (select(2, ...) or {}).classes or 10

local function conv(n_in, n_out, kernel, stride)
  return nn.Conv2d {
    n_in, n_out, kernel = kernel, stride = stride or 1, pad = kernel // 2, bias = false,
  }
end

-- Two 3x3 convolutions; a 1x1 convolution on the shortcut where the shape changes.
local function basic(n_in, n_out, stride)
  local shortcut
  if stride ~= 1 or n_in ~= n_out then
    shortcut = nn.Sequential { conv(n_in, n_out, 1, stride), nn.BatchNorm2d { n_out } }
  end
  return nn.Sequential {
    nn.Residual {
      conv(n_in, n_out, 3, stride), nn.BatchNorm2d { n_out }, nn.ReLU(), conv(n_out, n_out, 3),
      nn.BatchNorm2d { n_out },
      shortcut = shortcut,
    },
    nn.ReLU(),
  }
end

local layers = { input = { 3, 32, 32 }, conv(3, 64, 3), nn.BatchNorm2d { 64 }, nn.ReLU() }
local width = 64
for _, stage in ipairs {
  { 64, 1 }, { 64, 1 }, { 128, 2 }, { 128, 1 }, { 256, 2 }, { 256, 1 }, { 512, 2 }, { 512, 1 },
} do
  layers[#layers + 1] = basic(width, stage[1], stage[2])
  width = stage[1]
end
layers[#layers + 1] = nn.GlobalAvgPool()
layers[#layers + 1] = nn.Flatten()
layers[#layers + 1] = nn.Linear { 512, classes }

return { model = nn.Sequential(layers), batch = 32, n_class = classes }
