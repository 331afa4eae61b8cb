-- squeezenet1_1: Iandola et al., arXiv 1602.07360, in the authors' version 1.1: a 3x3 stem of 64
-- and pooling one stage earlier.
local neap = require "neap"
local nn, init = neap.nn, neap.init

local function conv(n_in, n_out, o)
  o[1], o[2], o.init = n_in, n_out, init.kaiming {}
  return nn.Sequential { nn.Conv2d(o), nn.ReLU() }
end
local function pool() return nn.MaxPool2d { 3, stride = 2, ceil_mode = true } end

-- Section 3.1 of the paper: 1x1 squeezes to `width`, 1x1 and 3x3 side by side expand to four times
-- that each.
local function fire(n_in, width)
  return nn.Sequential {
    conv(n_in, width, { kernel = 1 }),
    nn.Concat {
      conv(width, 4 * width, { kernel = 1 }), conv(width, 4 * width, { kernel = 3, pad = 1 }),
    },
  }
end

return {
  model = nn.Sequential { input = { 3, 227, 227 },
    conv(3, 64, { kernel = 3, stride = 2 }), pool(),
    fire(64, 16), fire(128, 16), pool(),
    fire(128, 32), fire(256, 32), pool(),
    fire(256, 48), fire(384, 48), fire(384, 64), fire(512, 64),
    nn.Dropout { 0.5 }, conv(512, 1000, { kernel = 1 }), nn.GlobalAvgPool(), nn.Flatten(),
  },
  batch = 32, n_class = 1000,
}
