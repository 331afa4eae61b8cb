-- EfficientNet: Tan and Le, ICML 2019, table 1, and its compound scaling. Parameters are those of
-- torchvision's models of the same names (5,288,548 of B0), without its stochastic depth.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, conv, add = neap.nn, parts.conv, parts.add

local stages = { -- expansion, kernel, stride, channels, blocks
  { 1, 3, 1, 16, 1 }, { 6, 3, 2, 24, 2 }, { 6, 5, 2, 40, 2 }, { 6, 3, 2, 80, 3 },
  { 6, 5, 1, 112, 3 }, { 6, 5, 2, 192, 4 }, { 6, 3, 1, 320, 1 },
}

local function build(o)
  local n_in = parts.scaled(32, o.width)
  local layers = { input = { 3, o.image, o.image },
    conv { 3, n_in, kernel = 3, stride = 2, act = nn.SiLU } }
  for _, stage in ipairs(stages) do
    local n_out = parts.scaled(stage[4], o.width)
    for i = 1, math.ceil(stage[5] * o.depth) do
      add(layers, parts.inverted { n_in, n_out, expanded = n_in * stage[1], kernel = stage[2],
        stride = i == 1 and stage[3] or 1, act = nn.SiLU,
        squeeze = { math.max(1, n_in // 4), "silu", "sigmoid" } })
      n_in = n_out
    end
  end
  add(layers, conv { n_in, 4 * n_in, act = nn.SiLU }, parts.head(4 * n_in, o.classes, o.dropout))
  return { model = nn.Sequential(layers), batch = o.batch, n_class = o.classes }
end

return {
  options = {
    doc = "An EfficientNet: inverted residuals with squeeze and excite.",
    { "width", "number", 1, above = 0, doc = "factor of all channels" },
    { "depth", "number", 1, above = 0, doc = "factor of the blocks of each stage" },
    { "dropout", "number", 0.2, min = 0, below = 1, doc = "share dropped before the scores" },
    parts.classes(), parts.image(224), parts.batch(16),
  },
  nets = {
    efficientnet_b0 = {}, efficientnet_b1 = { depth = 1.1, image = 240 },
    efficientnet_b2 = { width = 1.1, depth = 1.2, image = 288, dropout = 0.3 },
  },
  published = { efficientnet_b0 = 5288548, efficientnet_b1 = 7794184, efficientnet_b2 = 9109994 },
  build = build,
}
