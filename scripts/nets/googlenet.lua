-- googlenet: Szegedy et al., "Going deeper with convolutions", CVPR 2015, table 1, without the
-- auxiliary classifiers; local response normalisation where figure 3 of the paper has it. Pooling
-- rounds up, as in Caffe's model, whose sizes are those of the table; so are its 6,998,552
-- parameters.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, init, add = neap.nn, neap.init, parts.add

local function conv(n_in, n_out, kernel, stride)
  return nn.Sequential {
    nn.Conv2d {
      n_in, n_out, kernel = kernel, stride = stride or 1, pad = kernel // 2, init = init.kaiming {},
    },
    nn.ReLU(),
  }
end
local function norm() return nn.LRN { 5, alpha = 1e-4, beta = 0.75 } end
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

-- Inception modules in order; a pool where there is none.
local modules = {
  { 64, 96, 128, 16, 32, 32 }, { 128, 128, 192, 32, 96, 64 }, {}, -- 3a, 3b
  { 192, 96, 208, 16, 48, 64 }, { 160, 112, 224, 24, 64, 64 }, { 128, 128, 256, 24, 64, 64 },
  { 112, 144, 288, 32, 64, 64 }, { 256, 160, 320, 32, 128, 128 }, {}, -- 4a to 4e
  { 256, 160, 320, 32, 128, 128 }, { 384, 192, 384, 48, 128, 128 }, -- 5a, 5b
}

local function build(o)
  local layers, n_in = { input = { 3, o.image, o.image },
    conv(3, 64, 7, 2), pool(), norm(), conv(64, 64, 1), conv(64, 192, 3), norm(), pool(),
  }, 192
  for _, w in ipairs(modules) do
    if #w == 0 then
      add(layers, pool())
    else
      add(layers, inception(n_in, w))
      n_in = w[1] + w[3] + w[5] + w[6]
    end
  end
  add(layers, parts.head(n_in, o.classes, 0.4))
  return { model = nn.Sequential(layers), batch = o.batch, n_class = o.classes }
end

return {
  options = { doc = "GoogLeNet, the first Inception net.",
    parts.classes(), parts.image(224, 47), parts.batch(16) },
  published = 6998552,
  build = build,
}
