-- googlenet: Szegedy et al., CVPR 2015, table 1, without the auxiliary classifiers; local response
-- normalisation where figure 3 of the paper has it. Pooling rounds up, as in Caffe's model, whose
-- sizes are those of the table.
local neap = require "neap"
local nn, init = neap.nn, neap.init

local function conv(n_in, n_out, kernel, stride)
  return nn.Sequential {
    nn.Conv2d {
      n_in, n_out, kernel = kernel, stride = stride or 1, pad = kernel // 2, init = init.kaiming {},
    },
    nn.ReLU(),
  }
end
local function pool() return nn.MaxPool2d { 3, stride = 2, ceil_mode = true } end

-- Widths as the table's columns: 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection.
local function inception(n_in, w)
  return nn.Concat {
    conv(n_in, w[1], 1),
    nn.Sequential { conv(n_in, w[2], 1), conv(w[2], w[3], 3) },
    nn.Sequential { conv(n_in, w[4], 1), conv(w[4], w[5], 5) },
    nn.Sequential { nn.MaxPool2d { 3, stride = 1, pad = 1 }, conv(n_in, w[6], 1) },
  }
end

local layers = { input = { 3, 224, 224 },
  conv(3, 64, 7, 2), pool(), nn.LRN { 5, alpha = 1e-4, beta = 0.75 },
  conv(64, 64, 1), conv(64, 192, 3), nn.LRN { 5, alpha = 1e-4, beta = 0.75 }, pool(),
}
local n_in = 192
for _, w in ipairs {
  { 64, 96, 128, 16, 32, 32 }, { 128, 128, 192, 32, 96, 64 }, {}, -- 3a, 3b
  { 192, 96, 208, 16, 48, 64 }, { 160, 112, 224, 24, 64, 64 }, { 128, 128, 256, 24, 64, 64 },
  { 112, 144, 288, 32, 64, 64 },
  { 256, 160, 320, 32, 128, 128 }, {}, -- 4a to 4e
  { 256, 160, 320, 32, 128, 128 }, { 384, 192, 384, 48, 128, 128 }, -- 5a, 5b
} do
  if #w == 0 then
    layers[#layers + 1] = pool()
  else
    layers[#layers + 1] = inception(n_in, w)
    n_in = w[1] + w[3] + w[5] + w[6]
  end
end
for _, layer in ipairs {
  nn.GlobalAvgPool(), nn.Flatten(), nn.Dropout { 0.4 }, nn.Linear { 1024, 1000 },
} do
  layers[#layers + 1] = layer
end

return { model = nn.Sequential(layers), batch = 16, n_class = 1000 }
