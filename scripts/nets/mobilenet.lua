-- MobileNets. v1: Howard et al., arXiv 1704.04861, table 1 (4.2 million parameters). v2: Sandler et
-- al., CVPR 2018, table 2. v3: Howard et al., ICCV 2019, tables 1 and 2. Parameters of v2 and v3
-- are those of torchvision's models of the same names.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, conv, add = neap.nn, parts.conv, parts.add

local builders = {}

--- Depthwise 3x3, then 1x1.
function builders.v1(o)
  local n_in = parts.scaled(32, o.width)
  local layers = { input = { 3, o.image, o.image },
    conv { 3, n_in, kernel = 3, stride = 2, act = nn.ReLU } }
  for _, row in ipairs {
    { 64, 1 }, { 128, 2 }, { 128, 1 }, { 256, 2 }, { 256, 1 }, { 512, 2 },
    { 512, 1 }, { 512, 1 }, { 512, 1 }, { 512, 1 }, { 512, 1 }, { 1024, 2 }, { 1024, 1 },
  } do
    local n_out = parts.scaled(row[1], o.width)
    add(layers,
      conv { n_in, n_in, kernel = 3, stride = row[2], groups = n_in, act = nn.ReLU },
      conv { n_in, n_out, act = nn.ReLU })
    n_in = n_out
  end
  return add(layers, parts.head(n_in, o.classes))
end

function builders.v2(o)
  local n_in, last = parts.scaled(32, o.width), parts.scaled(1280, math.max(1, o.width))
  local layers = { input = { 3, o.image, o.image },
    conv { 3, n_in, kernel = 3, stride = 2, act = nn.ReLU6 } }
  for _, row in ipairs { -- expansion, channels, blocks, stride of the first
    { 1, 16, 1, 1 }, { 6, 24, 2, 2 }, { 6, 32, 3, 2 }, { 6, 64, 4, 2 }, { 6, 96, 3, 1 },
    { 6, 160, 3, 2 }, { 6, 320, 1, 1 },
  } do
    local n_out = parts.scaled(row[2], o.width)
    for i = 1, row[3] do
      add(layers, parts.inverted { n_in, n_out, expanded = n_in * row[1],
        stride = i == 1 and row[4] or 1, act = nn.ReLU6 })
      n_in = n_out
    end
  end
  add(layers, conv { n_in, last, act = nn.ReLU6 }, nn.GlobalAvgPool(), nn.Flatten(),
    nn.Dropout { 0.2 }, nn.Linear { last, o.classes })
  return layers
end

-- Kernel, expanded channels, channels, squeeze and excite, Hardswish, stride.
local rows = {
  v3_small = { last = 1024,
    { 3, 16, 16, true, false, 2 }, { 3, 72, 24, false, false, 2 }, { 3, 88, 24, false, false, 1 },
    { 5, 96, 40, true, true, 2 }, { 5, 240, 40, true, true, 1 }, { 5, 240, 40, true, true, 1 },
    { 5, 120, 48, true, true, 1 }, { 5, 144, 48, true, true, 1 }, { 5, 288, 96, true, true, 2 },
    { 5, 576, 96, true, true, 1 }, { 5, 576, 96, true, true, 1 },
  },
  v3_large = { last = 1280,
    { 3, 16, 16, false, false, 1 }, { 3, 64, 24, false, false, 2 }, { 3, 72, 24, false, false, 1 },
    { 5, 72, 40, true, false, 2 }, { 5, 120, 40, true, false, 1 }, { 5, 120, 40, true, false, 1 },
    { 3, 240, 80, false, true, 2 }, { 3, 200, 80, false, true, 1 }, { 3, 184, 80, false, true, 1 },
    { 3, 184, 80, false, true, 1 }, { 3, 480, 112, true, true, 1 }, { 3, 672, 112, true, true, 1 },
    { 5, 672, 160, true, true, 2 }, { 5, 960, 160, true, true, 1 }, { 5, 960, 160, true, true, 1 },
  },
}

local function v3(o)
  local table_of = rows[o.version]
  local n_in = parts.scaled(16, o.width)
  local layers = { input = { 3, o.image, o.image },
    conv { 3, n_in, kernel = 3, stride = 2, eps = 1e-3, act = nn.Hardswish } }
  for _, row in ipairs(table_of) do
    local expanded, n_out = parts.scaled(row[2], o.width), parts.scaled(row[3], o.width)
    add(layers, parts.inverted { n_in, n_out, expanded = expanded, kernel = row[1],
      stride = row[6], eps = 1e-3, act = row[5] and nn.Hardswish or nn.ReLU,
      squeeze = row[4] and { parts.scaled(expanded // 4, 1), "relu", "hard_sigmoid" } or nil })
    n_in = n_out
  end
  local last = parts.scaled(table_of.last, o.width)
  return add(layers, conv { n_in, 6 * n_in, eps = 1e-3, act = nn.Hardswish },
    nn.GlobalAvgPool(), nn.Flatten(), nn.Linear { 6 * n_in, last }, nn.Hardswish(),
    nn.Dropout { 0.2 }, nn.Linear { last, o.classes })
end
builders.v3_small, builders.v3_large = v3, v3

local function build(o)
  return { model = nn.Sequential(builders[o.version](o)), batch = o.batch, n_class = o.classes }
end

return {
  options = {
    doc = "A MobileNet: depthwise convolutions between 1x1 ones.",
    { "version", "choice", "v2", choices = { "v1", "v2", "v3_small", "v3_large" },
      doc = "which of the papers' nets" },
    { "width", "number", 1, above = 0, doc = "factor of all channels" },
    parts.classes(), parts.image(224), parts.batch(32),
  },
  nets = {
    mobilenet_v1 = { version = "v1" }, mobilenet_v2 = { version = "v2" },
    mobilenet_v3_small = { version = "v3_small" }, mobilenet_v3_large = { version = "v3_large" },
  },
  published = {
    mobilenet_v1 = 4231976, mobilenet_v2 = 3504872, mobilenet_v3_small = 2542856,
    mobilenet_v3_large = 5483032,
  },
  build = build,
}
