-- SqueezeNet: Iandola et al., arXiv 1602.07360, table 1, and the authors' version 1.1: a 3x3 stem
-- of 64 and pooling one stage earlier. Parameters are those of torchvision's models of the same
-- names.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, init, add = neap.nn, neap.init, parts.add

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

-- Channels and kernel of the stem; widths of the fires, 0 being a pool.
local versions = {
  ["1.0"] = { 96, 7, 0, 16, 16, 32, 0, 32, 48, 48, 64, 0, 64 },
  ["1.1"] = { 64, 3, 0, 16, 16, 0, 32, 32, 0, 48, 48, 64, 64 },
}

local function build(o)
  local version = versions[o.version]
  local n_in, layers = version[1], { input = { 3, o.image, o.image } }
  add(layers, conv(3, n_in, { kernel = version[2], stride = 2 }))
  for _, width in ipairs { table.unpack(version, 3) } do
    if width == 0 then
      add(layers, pool())
    else
      add(layers, fire(n_in, width))
      n_in = 8 * width
    end
  end
  add(layers, nn.Dropout { 0.5 }, conv(n_in, o.classes, { kernel = 1 }), nn.GlobalAvgPool(),
    nn.Flatten())
  return { model = nn.Sequential(layers), batch = o.batch, n_class = o.classes }
end

return {
  options = {
    doc = "SqueezeNet: as good as AlexNet with a fiftieth of its parameters.",
    { "version", "choice", "1.1", choices = { "1.0", "1.1" }, doc = "of the authors' models" },
    parts.classes(), parts.image(227), parts.batch(32),
  },
  nets = { squeezenet1_0 = { version = "1.0" }, squeezenet1_1 = { version = "1.1" } },
  published = { squeezenet1_0 = 1248424, squeezenet1_1 = 1235496 },
  build = build,
}
