-- Densely connected nets: Huang et al., CVPR 2017, table 1: each layer reads all that the ones
-- before it in its block have made, and adds `growth` channels. Parameters are those of
-- torchvision's models of the same names.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, add = neap.nn, parts.add

-- Layers of each of the four blocks.
local blocks = {
  [121] = { 6, 12, 24, 16 }, [161] = { 6, 12, 36, 24 },
  [169] = { 6, 12, 32, 32 }, [201] = { 6, 12, 48, 32 },
}

-- Norm and ReLU come before the convolution.
local function conv(n_in, n_out, kernel)
  return nn.BatchNorm2d { n_in }, nn.ReLU(),
    nn.Conv2d { n_in, n_out, kernel = kernel, pad = kernel // 2, bias = false }
end

-- Channels of x, and behind them `growth` new ones: 1x1 to four times as many, then 3x3.
local function dense(n_in, growth)
  local layers = add({}, conv(n_in, 4 * growth, 1))
  add(layers, conv(4 * growth, growth, 3))
  return nn.Concat { nn.Identity(), nn.Sequential(layers) }
end

local function build(o)
  local n_in = 2 * o.growth
  local layers = { input = { 3, o.image, o.image },
    parts.conv { 3, n_in, kernel = 7, stride = 2, act = nn.ReLU },
    nn.MaxPool2d { 3, stride = 2, pad = 1 },
  }
  for stage, n in ipairs(blocks[o.depth]) do
    if stage > 1 then
      add(layers, conv(n_in, n_in // 2, 1))
      add(layers, nn.AvgPool2d { 2 })
      n_in = n_in // 2
    end
    for _ = 1, n do
      add(layers, dense(n_in, o.growth))
      n_in = n_in + o.growth
    end
  end
  add(layers, nn.BatchNorm2d { n_in }, nn.ReLU(), parts.head(n_in, o.classes))
  return { model = nn.Sequential(layers), batch = o.batch, n_class = o.classes }
end

-- Names in torchvision's files: layers are numbered block by block there.
local function weights(o)
  local place = {}
  for block, n in ipairs(blocks[o.depth]) do
    for layer = 1, n do
      place[#place + 1] = ("features.denseblock%d.denselayer%d"):format(block, layer)
    end
  end
  return {
    ignored = { "num_batches_tracked$" },
    -- older files say "norm.1" for norm1
    theirs = { { "%.(%a+)%.(%d)%.([%a_]+)$", ".%1%2.%3" } },
    { "^block1%.(%a+)1%.([%a_]+)$", "features.%10.%2" },
    { "^concat(%d+)%.block1%.(%w+)%.([%a_]+)$", function(i, what, name)
      return ("%s.%s.%s"):format(place[math.tointeger(i)], what, name)
    end },
    { "^norm4%.([%a_]+)$", "features.norm5.%1" },
    { "^(%a+)(%d)%.([%a_]+)$", function(what, i, name)
      if what == "linear" then return "classifier." .. name end
      return ("features.transition%s.%s.%s"):format(i, what, name)
    end },
  }
end

return {
  options = {
    doc = "A densely connected net.",
    { "depth", "choice", 121, choices = { 121, 161, 169, 201 }, doc = "layers with weights" },
    { "growth", "integer", 32, min = 1, doc = "channels that each layer adds" },
    parts.classes(), parts.image(224), parts.batch(16),
  },
  nets = {
    densenet121 = {}, densenet161 = { depth = 161, growth = 48 }, densenet169 = { depth = 169 },
    densenet201 = { depth = 201 },
  },
  published = {
    densenet121 = 7978856, densenet161 = 28681000, densenet169 = 14149480, densenet201 = 20013928,
  },
  build = build, weights = weights, weights_of = "torchvision",
}
