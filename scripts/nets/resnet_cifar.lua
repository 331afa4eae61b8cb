-- Residual nets for images of 32x32: He et al., CVPR 2016, section 4.2: 6 n + 2 layers, with the
-- shortcuts of option A, which have no parameters: where the shape changes, every other position,
-- and zeros for the new channels. Table 6 of the paper has 0.27, 0.46, 0.66, 0.85 and 1.7 million
-- parameters for depths 20 to 110.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, init = neap.nn, neap.init

local function conv(n_in, n_out, stride, act)
  return parts.conv {
    n_in, n_out, kernel = 3, stride = stride, init = init.kaiming {}, act = act,
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
      conv(n_in, n_out, stride, nn.ReLU), conv(n_out, n_out),
      shortcut = stride > 1 and nn.Lambda(widen) or nil,
    },
    nn.ReLU(),
  }
end

local function build(o)
  if (o.depth - 2) % 6 ~= 0 then
    error(("resnet_cifar: depth expects 6 n + 2, got %d"):format(o.depth), 0)
  end
  local layers, n_in = { input = { 3, o.image, o.image }, conv(3, 16, 1, nn.ReLU) }, 16
  for _, width in ipairs { 16, 32, 64 } do
    for _ = 1, (o.depth - 2) // 6 do
      parts.add(layers, block(n_in, width))
      n_in = width
    end
  end
  parts.add(layers, parts.head(n_in, o.classes))
  return { model = nn.Sequential(layers), batch = o.batch, n_class = o.classes }
end

return {
  options = {
    doc = "A residual net for small images, with shortcuts that have no parameters.",
    { "depth", "integer", 110, min = 8, doc = "layers with weights, 6 n + 2" },
    parts.classes(10), parts.image(32, 4), parts.batch(128),
  },
  nets = {
    resnet20 = { depth = 20 }, resnet32 = { depth = 32 }, resnet44 = { depth = 44 },
    resnet56 = { depth = 56 }, resnet110 = { depth = 110 },
  },
  published = {
    resnet20 = 269722, resnet32 = 464154, resnet44 = 658586, resnet56 = 853018, resnet110 = 1727962,
  },
  build = build,
}
