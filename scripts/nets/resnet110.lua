-- resnet110: He et al., CVPR 2016, section 4.2: 6n + 2 layers on 32x32 images, n = 18, with the
-- shortcuts of option A, which have no parameters: where the shape changes, every other position,
-- and zeros for the new channels. Called with { depth = 6 n + 2 } it is another one of the family.
local neap = require "neap"
local nn, init = neap.nn, neap.init

local depth = (select(2, ...) or {}).depth or 110
if (depth - 2) % 6 ~= 0 then error("resnet110: depth expects 6 n + 2, got " .. tostring(depth)) end

local function conv(n_in, n_out, stride)
  return nn.Conv2d {
    n_in, n_out, kernel = 3, stride = stride or 1, pad = 1, bias = false, init = init.kaiming {},
  }
end

-- Half the positions, twice the channels.
local function widen(x)
  local y = x:slice {
    axes = { 3, 4 }, starts = { 1, 1 }, ends = { x.shape[3], x.shape[4] }, steps = { 2, 2 },
  }
  return y:pad { pads = { 0, 0, 0, 0, 0, x.shape[2], 0, 0 } }
end

local function block(n_in, n_out)
  local stride = n_out // n_in
  return nn.Sequential {
    nn.Residual {
      conv(n_in, n_out, stride), nn.BatchNorm2d { n_out }, nn.ReLU(), conv(n_out, n_out),
      nn.BatchNorm2d { n_out },
      shortcut = stride > 1 and nn.Lambda(widen) or nil,
    },
    nn.ReLU(),
  }
end

local layers, n_in = { input = { 3, 32, 32 }, conv(3, 16), nn.BatchNorm2d { 16 }, nn.ReLU() }, 16
for _, width in ipairs { 16, 32, 64 } do
  for _ = 1, (depth - 2) // 6 do
    layers[#layers + 1] = block(n_in, width)
    n_in = width
  end
end
for _, layer in ipairs { nn.GlobalAvgPool(), nn.Flatten(), nn.Linear { 64, 10 } } do
  layers[#layers + 1] = layer
end

return { model = nn.Sequential(layers), batch = 128, n_class = 10 }
