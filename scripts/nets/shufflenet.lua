-- ShuffleNets. v1: Zhang et al., CVPR 2018, table 1, three groups. v2: Ma et al., ECCV 2018, table
-- 5; its parameters are those of torchvision's models of the same names.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, conv, add = neap.nn, parts.conv, parts.add

-- Channels of the second stage of v1 by groups; of all five stages of v2 by width.
local channels = {
  v1 = { [1] = 144, [2] = 200, [3] = 240, [4] = 272, [8] = 384 },
  v2 = {
    [0.5] = { 48, 96, 192, 1024 }, [1.0] = { 116, 232, 464, 1024 },
    [1.5] = { 176, 352, 704, 1024 }, [2.0] = { 244, 488, 976, 2048 },
  },
}

-- Grouped 1x1, shuffle, depthwise 3x3, grouped 1x1. With stride 2 the means of x stand before it.
-- The first 1x1 of the net reads too few channels for groups.
local function unit_v1(n_in, n_out, stride, o, is_first)
  local n_new = stride == 2 and n_out - n_in or n_out
  local layers = {
    conv { n_in, n_out // 4, groups = is_first and 1 or o.groups, act = nn.ReLU },
    nn.ChannelShuffle { o.groups },
    conv { n_out // 4, n_out // 4, kernel = 3, stride = stride, groups = n_out // 4 },
    conv { n_out // 4, n_new, groups = o.groups },
  }
  local joined = stride == 2
      and nn.Concat { nn.AvgPool2d { 3, stride = 2, pad = 1, count_include_pad = true },
        nn.Sequential(layers) }
    or nn.Residual(layers)
  return nn.Sequential { joined, nn.ReLU() }
end

-- One half of the channels as it is, of the other 1x1, depthwise 3x3, 1x1; with stride 2 both read
-- all.
local Half = nn.module { "Half",
  options = { { "half", "integer", required = true, doc = "which" } },
  init = function(self, o) self.half = o.half end,
  forward = function(self, x)
    local n = x.shape[2] // 2
    return x:narrow(2, (self.half - 1) * n + 1, n)
  end }

local function unit_v2(n_in, n_out, stride)
  local n, n_read = n_out // 2, stride == 2 and n_in or n_in // 2
  local right = {
    conv { n_read, n, act = nn.ReLU }, conv { n, n, kernel = 3, stride = stride, groups = n },
    conv { n, n, act = nn.ReLU },
  }
  local left = Half { half = 1 }
  if stride == 2 then
    left = nn.Sequential {
      conv { n_in, n_in, kernel = 3, stride = 2, groups = n_in }, conv { n_in, n, act = nn.ReLU },
    }
  else
    table.insert(right, 1, Half { half = 2 })
  end
  return nn.Sequential { nn.Concat { left, nn.Sequential(right) }, nn.ChannelShuffle { 2 } }
end

local function build(o)
  local n_in = 24
  local layers = { input = { 3, o.image, o.image },
    conv { 3, n_in, kernel = 3, stride = 2, act = nn.ReLU },
    nn.MaxPool2d { 3, stride = 2, pad = 1 } }
  local widths = channels.v2[o.width]
  if o.version == "v1" then
    local first = channels.v1[o.groups]
    widths = { first, 2 * first, 4 * first }
  end
  for stage, n_block in ipairs { 4, 8, 4 } do
    for i = 1, n_block do
      local unit = o.version == "v1" and unit_v1 or unit_v2
      add(layers, unit(n_in, widths[stage], i == 1 and 2 or 1, o, i == 1 and stage == 1))
      n_in = widths[stage]
    end
  end
  if widths[4] then
    add(layers, conv { n_in, widths[4], act = nn.ReLU })
    n_in = widths[4]
  end
  add(layers, parts.head(n_in, o.classes))
  return { model = nn.Sequential(layers), batch = o.batch, n_class = o.classes }
end

return {
  options = {
    doc = "A ShuffleNet: channels are mixed by shuffling between cheap convolutions.",
    { "version", "choice", "v2", choices = { "v1", "v2" }, doc = "which of the papers' nets" },
    { "groups", "choice", 3, choices = { 1, 2, 3, 4, 8 }, doc = "groups of v1's 1x1 convolutions" },
    { "width", "choice", 1.0, choices = { 0.5, 1.0, 1.5, 2.0 }, doc = "which widths of v2" },
    parts.classes(), parts.image(224), parts.batch(32),
  },
  nets = {
    shufflenet_v1 = { version = "v1" },
    shufflenet_v2_x0_5 = { width = 0.5 }, shufflenet_v2_x1_0 = { width = 1.0 },
    shufflenet_v2_x1_5 = { width = 1.5 }, shufflenet_v2_x2_0 = { width = 2.0 },
  },
  published = {
    shufflenet_v1 = 1865728, shufflenet_v2_x0_5 = 1366792, shufflenet_v2_x1_0 = 2278604,
    shufflenet_v2_x1_5 = 3503624, shufflenet_v2_x2_0 = 7393996,
  },
  build = build,
}
