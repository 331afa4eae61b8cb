-- Residual nets for ImageNet: He et al., "Deep residual learning for image recognition", CVPR 2016,
-- table 1, with the stride of a bottleneck in its 3x3 convolution. ResNeXt (Xie et al., CVPR 2017)
-- splits that convolution into groups, the wide nets (Zagoruyko and Komodakis, BMVC 2016) double
-- its channels. Parameters are those of torchvision's models of the same names. resnet18c is
-- ResNet-18 for images of 32x32: a 3x3 stem without pooling.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, conv = neap.nn, parts.conv

-- Blocks of each of the four stages.
local blocks = {
  [18] = { 2, 2, 2, 2 }, [34] = { 3, 4, 6, 3 },
  [50] = { 3, 4, 6, 3 }, [101] = { 3, 4, 23, 3 }, [152] = { 3, 8, 36, 3 },
}

-- relu(f(x) + x); a 1x1 convolution stands for x where the shape changes.
local function residual(n_in, n_out, stride, f)
  if stride ~= 1 or n_in ~= n_out then f.shortcut = conv { n_in, n_out, stride = stride } end
  return nn.Sequential { nn.Residual(f), nn.ReLU() }
end

-- Two 3x3 convolutions: depths 18 and 34.
local function basic(n_in, width, stride)
  return residual(n_in, width, stride, {
    conv { n_in, width, kernel = 3, stride = stride, act = nn.ReLU },
    conv { width, width, kernel = 3 },
  }), width
end

-- 1x1 down, 3x3, 1x1 up to four times the width: from depth 50 on.
local function bottleneck(n_in, width, stride, o)
  local inner, n_out = width * o.group_width // 64 * o.groups, 4 * width
  return residual(n_in, n_out, stride, {
    conv { n_in, inner, act = nn.ReLU },
    conv { inner, inner, kernel = 3, stride = stride, groups = o.groups, act = nn.ReLU },
    conv { inner, n_out },
  }), n_out
end

local function build(o)
  local block = o.depth < 50 and basic or bottleneck
  local layers = { input = { 3, o.image, o.image } }
  if o.stem == "small" then
    parts.add(layers, conv { 3, o.width, kernel = 3, act = nn.ReLU })
  else
    parts.add(layers, conv { 3, o.width, kernel = 7, stride = 2, act = nn.ReLU },
      nn.MaxPool2d { 3, stride = 2, pad = 1 })
  end
  local n_in = o.width
  for stage, n in ipairs(blocks[o.depth]) do
    for i = 1, n do
      local stride = i == 1 and stage > 1 and 2 or 1
      layers[#layers + 1], n_in = block(n_in, o.width << (stage - 1), stride, o)
    end
  end
  parts.add(layers, parts.head(n_in, o.classes))
  return { model = nn.Sequential(layers), batch = o.batch, n_class = o.classes }
end

-- Names in torchvision's files: the blocks behind the stem are numbered in four stages there.
local function weights(o)
  local place, n = {}, 1
  for stage, count in ipairs(blocks[o.depth]) do
    for unit = 1, count do
      n = n + 1
      place[n] = ("layer%d.%d"):format(stage, unit - 1)
    end
  end
  local function in_block(ours, theirs)
    return { "^block(%d+)%.residual1%." .. ours .. "$", function(i, a, b)
      return place[math.tointeger(i)] .. "." .. theirs:format(a, b)
    end }
  end
  return {
    ignored = { "num_batches_tracked$" },
    { "^block1%.conv1%.weight$", "conv1.weight" }, { "^block1%.norm1%.([%a_]+)$", "bn1.%1" },
    in_block("block(%d)%.conv1%.(%a+)", "conv%s.%s"),
    in_block("block(%d)%.norm1%.([%a_]+)", "bn%s.%s"),
    in_block("shortcut%.conv1%.(%a+)", "downsample.0.%s"),
    in_block("shortcut%.norm1%.([%a_]+)", "downsample.1.%s"),
    { "^linear1%.(%a+)$", "fc.%1" },
  }
end

return {
  options = {
    doc = "A residual net (He et al., CVPR 2016).",
    { "depth", "choice", 50, choices = { 18, 34, 50, 101, 152 }, doc = "layers with weights" },
    { "width", "integer", 64, min = 1, doc = "channels of the first stage" },
    { "groups", "integer", 1, min = 1, doc = "groups of a bottleneck's 3x3 convolution" },
    { "group_width", "integer", 64, min = 1, doc = "channels of one group, in the first stage" },
    { "stem", "choice", "large", choices = { "large", "small" },
      doc = "7x7 with pooling, or 3x3 for small images" },
    parts.classes(), parts.image(224), parts.batch(16),
  },
  nets = {
    resnet18 = { depth = 18 }, resnet34 = { depth = 34 }, resnet50 = { depth = 50 },
    resnet101 = { depth = 101 }, resnet152 = { depth = 152 },
    resnext50_32x4d = { groups = 32, group_width = 4 },
    wide_resnet50_2 = { group_width = 128 }, wide_resnet101_2 = { depth = 101, group_width = 128 },
    resnet18c = { depth = 18, stem = "small", classes = 10, image = 32, batch = 32 },
  },
  published = {
    resnet18 = 11689512, resnet34 = 21797672, resnet50 = 25557032, resnet101 = 44549160,
    resnet152 = 60192808, resnext50_32x4d = 25028904, wide_resnet50_2 = 68883240,
    wide_resnet101_2 = 126886696, resnet18c = 11173962,
  },
  build = build, weights = weights, weights_of = "torchvision",
}
