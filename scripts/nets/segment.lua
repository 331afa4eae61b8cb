-- Nets that give scores to each pixel. unet: Ronneberger, Fischer and Brox, MICCAI 2015, figure 1:
-- 572x572 in, 388x388 out, 31.0 million parameters. segnet: Badrinarayanan, Kendall and Cipolla,
-- PAMI 2017: VGG16's convolutions and their mirror, which puts maxima back where they were: 29.4
-- million. fcn8: Shelhamer, Long and Darrell, PAMI 2017: VGG16 as convolutions, with scores of
-- three depths added: 134 million.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, init, add = neap.nn, neap.init, parts.add

local function plain(n_in, n_out, o)
  o = o or {}
  return nn.Sequential {
    nn.Conv2d { n_in, n_out, kernel = o.kernel or 3, pad = o.pad or 0, init = init.kaiming {} },
    nn.ReLU(),
  }
end

--- The middle of x, as high and wide as y.
local function cropped(x, y)
  local h, w = y.shape[3], y.shape[4]
  return x:narrow(3, (x.shape[3] - h) // 2 + 1, h):narrow(4, (x.shape[4] - w) // 2 + 1, w)
end

local options = { { "channels", "integer", required = true, doc = "of the images" },
  { "width", "integer", required = true, doc = "of the first stage" },
  { "classes", "integer", required = true, doc = "scores of a pixel" } }

local builders = {}

builders.unet = nn.module { "UNet", options = options,
  init = function(self, o)
    local down, up, join = {}, {}, {}
    local n_in = o.channels
    for i = 1, 5 do
      local n = o.width << (i - 1)
      down[i] = nn.Sequential { plain(n_in, n), plain(n, n) }
      n_in = n
    end
    for i = 4, 1, -1 do
      local n = o.width << (i - 1)
      up[5 - i] = nn.ConvTranspose2d { 2 * n, n, kernel = 2, stride = 2 }
      join[5 - i] = nn.Sequential { plain(2 * n, n), plain(n, n) }
    end
    self.down, self.up, self.join = down, up, join
    self.pool = nn.MaxPool2d { 2 }
    self.head = nn.Conv2d { o.width, o.classes, kernel = 1 }
  end,
  forward = function(self, x)
    local seen = {}
    for i = 1, 4 do
      seen[i] = self.down[i](x)
      x = self.pool(seen[i])
    end
    x = self.down[5](x)
    for i = 1, 4 do
      x = self.up[i](x)
      x = self.join[i](cropped(seen[5 - i], x):concat(x, { axis = 2 }))
    end
    return self.head(x)
  end }

-- Convolutions of VGG16's stages.
local vgg = { 2, 2, 3, 3, 3 }

local function normed(n_in, n_out)
  return nn.Sequential { nn.Conv2d { n_in, n_out, kernel = 3, pad = 1 }, nn.BatchNorm2d { n_out },
    nn.ReLU() }
end

builders.segnet = nn.module { "SegNet", options = options,
  init = function(self, o)
    local down, up, n_in = {}, {}, o.channels
    for stage, n in ipairs(vgg) do
      local n_out, list, back = o.width << math.min(stage - 1, 3), {}, {}
      for i = 1, n do list[i] = normed(i == 1 and n_in or n_out, n_out) end
      for i = 1, n - 1 do back[i] = normed(n_out, n_out) end
      back[n] = stage == 1 and nn.Conv2d { n_out, o.classes, kernel = 3, pad = 1 }
        or normed(n_out, n_in)
      down[stage], up[stage], n_in = nn.Sequential(list), nn.Sequential(back), n_out
    end
    self.down, self.up = down, up
  end,
  forward = function(self, x)
    local places, sizes = {}, {}
    for i, stage in ipairs(self.down) do
      x = stage(x)
      sizes[i] = { x.shape[3], x.shape[4] }
      x, places[i] = x:max_pool_with_indices { kernel = { 2, 2 }, stride = { 2, 2 } }
    end
    for i = #vgg, 1, -1 do
      x = self.up[i](x:max_unpool(places[i], {
        kernel = { 2, 2 }, stride = { 2, 2 }, output_shape = sizes[i],
      }))
    end
    return x
  end }

builders.fcn8 = nn.module { "FCN8", options = options,
  init = function(self, o)
    local stages, n_in, pad = {}, o.channels, 100
    for stage, n in ipairs(vgg) do
      local n_out, list = o.width << math.min(stage - 1, 3), {}
      for i = 1, n do
        list[i] = plain(i == 1 and n_in or n_out, n_out, { pad = pad })
        pad = 1
      end
      add(list, nn.MaxPool2d { 2, ceil_mode = true })
      stages[stage], n_in = nn.Sequential(list), n_out
    end
    self.stages, self.top = stages, nn.Sequential {
      plain(n_in, 8 * n_in, { kernel = 7 }), nn.Dropout { 0.5 },
      plain(8 * n_in, 8 * n_in, { kernel = 1 }), nn.Dropout { 0.5 },
    }
    local function score(n) return nn.Conv2d { n, o.classes, kernel = 1, init = init.zeros } end
    local function double(k)
      return nn.ConvTranspose2d { o.classes, o.classes, kernel = 2 * k, stride = k, bias = false }
    end
    self.score5, self.score4, self.score3 = score(8 * n_in), score(n_in), score(n_in // 2)
    self.up5, self.up4, self.up3 = double(2), double(2), double(8)
  end,
  forward = function(self, x)
    local image, seen = x, {}
    for i, stage in ipairs(self.stages) do
      x = stage(x)
      seen[i] = x
    end
    local y = self.up5(self.score5(self.top(x)))
    y = self.up4(y + cropped(self.score4(seen[4]), y))
    y = self.up3(y + cropped(self.score3(seen[3]), y))
    return cropped(y, image)
  end }

-- Cross-entropy of the scores in the second dimension with a label for each pixel.
local PixelLoss = nn.module { "PixelLoss", name = "loss", reduces = "mean",
  target = function(_, scores)
    return { scores.shape[1], scores.shape[3], scores.shape[4] }, "i64"
  end,
  forward = function(_, scores, y) return (scores:softmax_cross_entropy(y, { axis = 2 })) end }

local function build(o)
  local class = builders[o.form]
  return {
    model = class { channels = o.channels, width = o.width, classes = o.classes,
      input = { o.channels, o.image, o.image } },
    loss = PixelLoss(),
    batch = o.batch, n_class = o.classes,
  }
end

return {
  options = {
    doc = "A net that gives scores to each pixel.",
    { "form", "choice", "unet", choices = { "unet", "segnet", "fcn8" }, doc = "which" },
    { "channels", "integer", 3, min = 1, doc = "channels of the images" },
    { "width", "integer", 64, min = 1, doc = "channels of the first stage" },
    parts.classes(21), parts.image(224, 32), parts.batch(2),
  },
  nets = {
    unet = { channels = 1, classes = 2, image = 572 },
    segnet = { form = "segnet", classes = 11 }, fcn8 = { form = "fcn8" },
  },
  published = { unet = 31030658, segnet = 29449355, fcn8 = 134489759 },
  build = build,
}
