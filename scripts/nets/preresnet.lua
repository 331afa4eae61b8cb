-- Residual nets whose norms and activations come first, for images of 32x32: He et al., "Identity
-- mappings in deep residual networks", ECCV 2016: preresnet110 of two 3x3 convolutions a block,
-- preresnet164 of bottlenecks (both 1.7 million parameters). wrn_DEPTH_WIDTH are the wide nets of
-- Zagoruyko and Komodakis, BMVC 2016, table 5: 8.9, 11.0 and 36.5 million.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, init, add = neap.nn, neap.init, parts.add

local function conv(n_in, n_out, kernel, stride)
  return nn.Conv2d {
    n_in, n_out, kernel = kernel, stride = stride or 1, pad = kernel // 2, bias = false,
    init = init.kaiming {},
  }
end
local function norm(n) return nn.BatchNorm2d { n }, nn.ReLU() end

-- The convolutions of a block with a norm before each but the first, whose input is normed already
-- where the shape changes.
local function branch(n_in, width, stride, o)
  if not o.bottleneck then
    local layers = { conv(n_in, width, 3, stride) }
    add(layers, norm(width))
    if o.dropout > 0 then add(layers, nn.Dropout { o.dropout }) end
    return add(layers, conv(width, width, 3))
  end
  local layers = add({ conv(n_in, width // 4, 1) }, norm(width // 4))
  add(layers, conv(width // 4, width // 4, 3, stride), norm(width // 4))
  return add(layers, conv(width // 4, width, 1))
end

-- Where the shape changes the shortcut, a 1x1 convolution, reads the normed input too.
local function block(n_in, width, stride, o)
  local layers = branch(n_in, width, stride, o)
  if n_in == width then
    return nn.Residual { nn.Sequential { norm(n_in) }, table.unpack(layers) }
  end
  layers.shortcut = conv(n_in, width, 1, stride)
  return nn.Sequential(add({ norm(n_in) }, nn.Residual(layers)))
end

local function build(o)
  local per_block = o.bottleneck and 9 or 6
  local rest = o.depth - 2
  if o.widen > 1 then rest = o.depth - 4 end
  if rest % per_block ~= 0 then
    error(("preresnet: depth expects %d n + %d, got %d"):format(per_block, o.depth - rest,
      o.depth), 0)
  end
  local n_in, scale = 16, o.widen * (o.bottleneck and 4 or 1)
  local layers = { input = { 3, o.image, o.image }, conv(3, n_in, 3) }
  for stage, width in ipairs { 16 * scale, 32 * scale, 64 * scale } do
    for i = 1, rest // per_block do
      add(layers, block(n_in, width, stage > 1 and i == 1 and 2 or 1, o))
      n_in = width
    end
  end
  add(layers, norm(n_in))
  add(layers, parts.head(n_in, o.classes))
  return { model = nn.Sequential(layers), batch = o.batch, n_class = o.classes }
end

return {
  options = {
    doc = "A residual net for small images whose norms come first; wide where `widen` says so.",
    { "depth", "integer", 110, min = 8,
      doc = "layers with weights: 6 n + 2, 9 n + 2 of bottlenecks, 6 n + 4 of wide nets" },
    { "bottleneck", "boolean", false, doc = "1x1, 3x3 and 1x1 in place of two 3x3" },
    { "widen", "integer", 1, min = 1, doc = "factor of all channels" },
    { "dropout", "number", 0, min = 0, below = 1, doc = "share dropped between convolutions" },
    parts.classes(10), parts.image(32, 4), parts.batch(128),
  },
  nets = {
    preresnet110 = {}, preresnet164 = { depth = 164, bottleneck = true },
    wrn_16_8 = { depth = 16, widen = 8 }, wrn_28_10 = { depth = 28, widen = 10 },
    wrn_40_4 = { depth = 40, widen = 4 },
  },
  published = {
    preresnet110 = 1730522, preresnet164 = 1703258, wrn_16_8 = 10961370, wrn_28_10 = 36479194,
    wrn_40_4 = 8949210,
  },
  build = build,
}
