-- ConvNeXt: Liu et al., "A ConvNet for the 2020s", CVPR 2022, without stochastic depth. Parameters
-- are those of torchvision's models of the same names (28,589,128 of tiny).
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, init, add = neap.nn, neap.init, parts.add

-- Layer norm of the channels of images.
local ChannelNorm = nn.module { "ChannelNorm",
  options = { { "channels", "integer", required = true, doc = "size of the second dimension" } },
  init = function(self, o) self.norm = nn.LayerNorm { o.channels, eps = 1e-6 } end,
  forward = function(self, x)
    return self.norm(x:permute { 1, 3, 4, 2 }):permute { 1, 4, 2, 3 }
  end }

-- x and a small multiple of: depthwise 7x7, then norm and two Linears over the channels.
local Block = nn.module { "Block",
  options = { { "channels", "integer", required = true, doc = "channels" } },
  init = function(self, o)
    local n, small = o.channels, init.normal { 0, 0.02 }
    self.depthwise = nn.Conv2d { n, n, kernel = 7, pad = 3, groups = n, init = small }
    self.norm = nn.LayerNorm { n, eps = 1e-6 }
    self.up, self.down = nn.Linear { n, 4 * n, init = small }, nn.Linear { 4 * n, n, init = small }
    self:param("scale", { n }, 1e-6)
  end,
  forward = function(self, x)
    local y = self.norm(self.depthwise(x):permute { 1, 3, 4, 2 })
    y = self.down(self.up(y):gelu()) * self.scale
    return x + y:permute { 1, 4, 2, 3 }
  end }

local function build(o)
  local small, n_in = init.normal { 0, 0.02 }, o.width
  local layers = { input = { 3, o.image, o.image },
    nn.Conv2d { 3, n_in, kernel = 4, stride = 4, init = small }, ChannelNorm { channels = n_in } }
  for stage, n in ipairs { 3, 3, o.depth, 3 } do
    if stage > 1 then
      add(layers, ChannelNorm { channels = n_in },
        nn.Conv2d { n_in, 2 * n_in, kernel = 2, stride = 2, init = small })
      n_in = 2 * n_in
    end
    for _ = 1, n do add(layers, Block { channels = n_in }) end
  end
  add(layers, nn.GlobalAvgPool(), nn.Flatten(), nn.LayerNorm { n_in, eps = 1e-6 },
    nn.Linear { n_in, o.classes, init = small })
  return { model = nn.Sequential(layers), batch = o.batch, n_class = o.classes }
end

return {
  options = {
    doc = "A ConvNeXt.",
    { "width", "integer", 96, min = 1, doc = "channels of the first stage" },
    { "depth", "integer", 9, min = 1, doc = "blocks of the third stage" },
    parts.classes(), parts.image(224), parts.batch(8),
  },
  nets = {
    convnext_tiny = {}, convnext_small = { depth = 27 },
    convnext_base = { width = 128, depth = 27 },
  },
  published = { convnext_tiny = 28589128, convnext_small = 50223688, convnext_base = 88591464 },
  build = build,
}
