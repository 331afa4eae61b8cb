-- alexnet: Krizhevsky, Sutskever and Hinton, NIPS 2012, in the form of Caffe's AlexNet: one device,
-- with the two groups and the local response normalisation of the paper, which comes before
-- pooling. 227x227 is the size at which the paper's first layer gives 55x55. The net of OpenCV's
-- figures, with 60,965,224 parameters. { variant = "two_towers" } has the two halves of the paper's
-- figure 2 side by side, which meet only in the classifier, and no normalisation: Torch's form,
-- whose outputs add up to what optnet publishes.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, init, add = neap.nn, neap.init, parts.add

--- The convolutions, of all channels in groups or of one half, appended to a list.
local function features(list, half)
  local n, groups = half and 2 or 1, half and 1 or 2
  local function conv(n_in, n_out, o)
    o[1], o[2], o.init = n_in // n, n_out // n, init.kaiming {}
    add(list, nn.Conv2d(o), nn.ReLU())
  end
  local function norm()
    if not half then add(list, nn.LRN { 5, alpha = 1e-4, beta = 0.75 }) end
  end
  local function pool() add(list, nn.MaxPool2d { 3, stride = 2 }) end
  conv(3 * n, 96, { kernel = 11, stride = 4, pad = half and 2 or 0 })
  norm()
  pool()
  conv(96, 256, { kernel = 5, pad = 2, groups = groups })
  norm()
  pool()
  conv(256, 384, { kernel = 3, pad = 1 })
  conv(384, 384, { kernel = 3, pad = 1, groups = groups })
  conv(384, 256, { kernel = 3, pad = 1, groups = groups })
  pool()
  return list
end

--- Height of the image behind the convolutions.
local function side(image, pad)
  local size = (image + 2 * pad - 11) // 4 + 1
  for _ = 1, 3 do size = (size - 3) // 2 + 1 end
  return size
end

local function build(o)
  local is_one = o.variant == "caffe"
  local image = is_one and o.image or o.image - 3
  local layers, size = { input = { 3, image, image } }, side(image, is_one and 0 or 2)
  if is_one then
    features(layers)
  else
    add(layers, nn.Concat {
      nn.Sequential(features({}, true)), nn.Sequential(features({}, true)),
    })
  end
  add(layers, nn.Flatten(),
    nn.Linear { 256 * size * size, o.hidden }, nn.ReLU(), nn.Dropout { 0.5 },
    nn.Linear { o.hidden, o.hidden }, nn.ReLU(), nn.Dropout { 0.5 },
    nn.Linear { o.hidden, o.classes })
  return { model = nn.Sequential(layers), batch = o.batch, n_class = o.classes }
end

return {
  options = {
    doc = "AlexNet in the form of Caffe's model, or in two towers.",
    { "variant", "choice", "caffe", choices = { "caffe", "two_towers" },
      doc = "one tower with groups, or two side by side, for images 3 smaller" },
    { "hidden", "integer", 4096, min = 1, doc = "width of the fully connected layers" },
    parts.classes(), parts.image(227, 67), parts.batch(128),
  },
  published = 60965224,
  build = build,
}
