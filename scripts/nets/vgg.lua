-- VGG: Simonyan and Zisserman, "Very deep convolutional networks for large-scale image
-- recognition", ICLR 2015, table 1: configurations A, B, D and E. Parameters are those of table 2,
-- to the digit those of torchvision's models of the same names. vgg_a is another name of vgg11: the
-- paper's configuration A.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, init = neap.nn, neap.init

-- Convolutions of each of the five stages, which end with pooling.
local convolutions = {
  [11] = { 1, 1, 2, 2, 2 }, [13] = { 2, 2, 2, 2, 2 },
  [16] = { 2, 2, 3, 3, 3 }, [19] = { 2, 2, 4, 4, 4 },
}

local function build(o)
  local layers, n_in = { input = { 3, o.image, o.image } }, 3
  for stage, n in ipairs(convolutions[o.depth]) do
    local n_out = o.width << math.min(stage - 1, 3)
    for _ = 1, n do
      parts.add(layers,
        nn.Conv2d { n_in, n_out, kernel = 3, pad = 1, init = init.kaiming {} }, nn.ReLU())
      n_in = n_out
    end
    parts.add(layers, nn.MaxPool2d { 2 })
  end
  parts.add(layers,
    nn.Flatten(), nn.Linear { n_in * (o.image // 32) * (o.image // 32), o.hidden }, nn.ReLU(),
    nn.Dropout { 0.5 }, nn.Linear { o.hidden, o.hidden }, nn.ReLU(),
    nn.Dropout { 0.5 }, nn.Linear { o.hidden, o.classes })
  return { model = nn.Sequential(layers), batch = o.batch, n_class = o.classes }
end

-- Names in torchvision's files: a layer's number counts activations, pooling and dropout, too.
local function weights(o)
  local place, at = {}, 0
  for _, n in ipairs(convolutions[o.depth]) do
    for _ = 1, n do place[#place + 1], at = at, at + 2 end
    at = at + 1
  end
  return {
    { "^conv(%d+)%.(%a+)$", function(i, what)
      return ("features.%d.%s"):format(place[math.tointeger(i)], what)
    end },
    { "^linear(%d)%.(%a+)$", function(i, what)
      return ("classifier.%d.%s"):format(3 * (i - 1), what)
    end },
  }
end

return {
  options = {
    doc = "VGG: 3x3 convolutions, then three fully connected layers.",
    { "depth", "choice", 16, choices = { 11, 13, 16, 19 }, doc = "layers with weights" },
    { "width", "integer", 64, min = 1, doc = "channels of the first stage" },
    { "hidden", "integer", 4096, min = 1, doc = "width of the fully connected layers" },
    parts.classes(), parts.image(224), parts.batch(8),
  },
  nets = {
    vgg11 = { depth = 11 }, vgg13 = { depth = 13 }, vgg16 = { depth = 16 }, vgg19 = { depth = 19 },
    vgg_a = { depth = 11, batch = 64 },
  },
  published = {
    vgg11 = 132863336, vgg13 = 133047848, vgg16 = 138357544, vgg19 = 143667240, vgg_a = 132863336,
  },
  build = build, weights = weights, weights_of = "torchvision",
}
