-- dcgan: Radford, Metz and Chintala, ICLR 2016, in the sizes of PyTorch's example: 64x64 images of
-- 100 numbers; 3,576,704 parameters of the generator and 2,765,568 of the discriminator. dcgan is
-- the generator and its judge, model.G and model.D: what comes out is how real a drawn image looks.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, init, add = neap.nn, neap.init, parts.add

local small = init.normal { 0, 0.02 }

local function generator(o)
  local n_in, layers = o.latent, { input = { o.latent, 1, 1 } }
  for i = 3, 0, -1 do
    local n, first = o.width << i, i == 3
    add(layers, nn.ConvTranspose2d { n_in, n, kernel = 4, stride = first and 1 or 2,
      pad = first and 0 or 1, bias = false, init = small }, nn.BatchNorm2d { n }, nn.ReLU())
    n_in = n
  end
  add(layers, nn.ConvTranspose2d { n_in, o.channels, kernel = 4, stride = 2, pad = 1, bias = false,
    init = small }, nn.Tanh())
  return nn.Sequential(layers)
end

local function discriminator(o)
  local n_in, layers = o.channels, { input = { o.channels, 64, 64 } }
  for i = 0, 3 do
    local n = o.width << i
    add(layers, nn.Conv2d { n_in, n, kernel = 4, stride = 2, pad = 1, bias = false, init = small })
    if i > 0 then add(layers, nn.BatchNorm2d { n }) end
    add(layers, nn.LeakyReLU(0.2))
    n_in = n
  end
  add(layers, nn.Conv2d { n_in, 1, kernel = 4, bias = false, init = small }, nn.Flatten())
  return nn.Sequential(layers)
end

local Gan = nn.module { "DCGAN",
  init = function(self, o) self.G, self.D = o.G, o.D end,
  forward = function(self, z) return self.D(self.G(z)) end }

local function build(o)
  local model
  if o.part == "both" then
    model = Gan { G = generator(o), D = discriminator(o), input = { o.latent, 1, 1 } }
  else
    model = (o.part == "generator" and generator or discriminator)(o)
  end
  local loss = o.part == "generator" and nn.MseLoss() or nn.BceWithLogitsLoss()
  return { model = model, loss = loss, batch = o.batch }
end

return {
  options = {
    doc = "DCGAN: a generator of images, and the discriminator that judges them.",
    { "part", "choice", "both", choices = { "both", "generator", "discriminator" }, doc = "which" },
    { "latent", "integer", 100, min = 1, doc = "numbers that an image is made of" },
    { "width", "integer", 64, min = 1, doc = "channels of the largest images" },
    { "channels", "integer", 3, min = 1, doc = "of an image" },
    parts.batch(64),
  },
  nets = {
    dcgan = {}, dcgan_generator = { part = "generator" },
    dcgan_discriminator = { part = "discriminator" },
  },
  published = { dcgan = 6342272, dcgan_generator = 3576704, dcgan_discriminator = 2765568 },
  build = build,
}
