-- diffusion_unet: the U-Net of Ho, Jain and Abbeel, "Denoising diffusion probabilistic models",
-- NeurIPS 2020, appendix B, for CIFAR-10: forward(x, t) says what noise is in the image x after t
-- steps. 35,746,307 parameters, the paper's 35.7 million.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, init, add = neap.nn, neap.init, parts.add

-- Two convolutions with norm and SiLU before each; the time is added between them.
local Block = nn.module { "Block",
  options = {
    { "n_in", "integer", required = true, doc = "channels of x" },
    { "n_out", "integer", required = true, doc = "channels of y" },
    { "size", "table", required = true, doc = "the options of the net" },
  },
  init = function(self, o)
    local n_in, n_out, size = o.n_in, o.n_out, o.size
    self.norm1, self.norm2 = nn.GroupNorm { size.groups, n_in }, nn.GroupNorm { size.groups, n_out }
    self.conv1 = nn.Conv2d { n_in, n_out, kernel = 3, pad = 1 }
    self.time = nn.Linear { 4 * size.width, n_out }
    self.drop = nn.Dropout { size.dropout }
    self.conv2 = nn.Conv2d { n_out, n_out, kernel = 3, pad = 1, init = init.zeros }
    self.short = n_in ~= n_out and nn.Conv2d { n_in, n_out, kernel = 1 } or nn.Identity()
  end,
  forward = function(self, x, time)
    local added = self.time(time:silu())
    local y = self.conv1(self.norm1(x):silu())
    y = y + added:reshape(added.shape[1], added.shape[2], 1, 1)
    return self.short(x) + self.conv2(self.drop(self.norm2(y):silu()))
  end }

-- Each position of the image sees all others.
local Seeing = nn.module { "Seeing",
  options = {
    { "channels", "integer", required = true, doc = "channels" },
    { "size", "table", required = true, doc = "the options of the net" },
  },
  init = function(self, o)
    self.norm = nn.GroupNorm { o.size.groups, o.channels }
    self.attention = nn.MultiheadAttention { o.channels, 1 }
  end,
  forward = function(self, x)
    local n, c, h, w = table.unpack(x.shape)
    local y = self.attention(self.norm(x):reshape(n, c, h * w):transpose(2, 3))
    return x + y:transpose(2, 3):reshape(n, c, h, w)
  end }

-- A block, and behind it what sees everything where the image is small enough.
local Stage = nn.module { "Stage",
  options = {
    { "n_in", "integer", required = true, doc = "channels of x" },
    { "n_out", "integer", required = true, doc = "channels of y" },
    { "side", "integer", required = true, doc = "height of the image" },
    { "size", "table", required = true, doc = "the options of the net" },
  },
  init = function(self, o)
    self.block = Block { n_in = o.n_in, n_out = o.n_out, size = o.size }
    self.see = o.side == o.size.sees and Seeing { channels = o.n_out, size = o.size }
      or nn.Identity()
  end,
  forward = function(self, x, time) return self.see(self.block(x, time)) end }

-- `down` and `up` have `blocks` stages of each level, and one more; `halve` and `double` stand
-- between levels. Each of `up` reads, beside x, what the way down has left last.
local UNet = nn.module { "DiffusionUNet",
  options = { { "size", "table", required = true, doc = "the options of the net" } },
  init = function(self, given)
    local o = given.size
    local n_in, side, left, down, up, halve, double = o.width, o.image, { o.width }, {}, {}, {}, {}
    for i, factor in ipairs(o.factors) do
      for _ = 1, o.blocks do
        add(down, Stage { n_in = n_in, n_out = o.width * factor, side = side, size = o })
        n_in = o.width * factor
        add(left, n_in)
      end
      if i < #o.factors then
        add(halve, nn.Conv2d { n_in, n_in, kernel = 3, stride = 2, pad = 1 })
        add(left, n_in)
        side = side // 2
      end
    end
    self.middle1 = Stage { n_in = n_in, n_out = n_in, side = o.sees, size = o }
    self.middle2 = Block { n_in = n_in, n_out = n_in, size = o }
    for i = #o.factors, 1, -1 do
      local n_out = o.width * o.factors[i]
      for _ = 0, o.blocks do
        add(up, Stage { n_in = n_in + table.remove(left), n_out = n_out, side = side, size = o })
        n_in = n_out
      end
      if i > 1 then
        add(double, nn.Sequential {
          nn.Upsample { 2 }, nn.Conv2d { n_in, n_in, kernel = 3, pad = 1 },
        })
        side = side * 2
      end
    end
    self.down, self.halve, self.up, self.double = down, halve, up, double
    self.width, self.blocks = o.width, o.blocks
    self.time1 = nn.Linear { o.width, 4 * o.width }
    self.time2 = nn.Linear { 4 * o.width, 4 * o.width }
    self.stem = nn.Conv2d { o.channels, o.width, kernel = 3, pad = 1 }
    self.norm = nn.GroupNorm { o.groups, n_in }
    self.head = nn.Conv2d { n_in, o.channels, kernel = 3, pad = 1, init = init.zeros }
  end,

  --- Sines and cosines of the time, (N) to (N,width), then two linear layers.
  time_of = function(self, t)
    local n, net = self.width // 2, t.net
    local place = net:op("Range", {}, { net:fresh_name "place" }, { stop = n, dtype = "f32" })
    local rate = (place * (-math.log(10000) / (n - 1))):exp()
    local angle = t:reshape(-1, 1) * rate:reshape(1, n)
    return self.time2(self.time1(angle:sin():concat(angle:cos(), { axis = 2 })):silu())
  end,

  forward = function(self, x, t)
    local time, left = self:time_of(t), {}
    x = self.stem(x)
    left[1] = x
    for i, stage in ipairs(self.down) do
      x = stage(x, time)
      add(left, x)
      local between = i % self.blocks == 0 and self.halve[i // self.blocks]
      if between then
        x = between(x)
        add(left, x)
      end
    end
    x = self.middle2(self.middle1(x, time), time)
    for i, stage in ipairs(self.up) do
      x = stage(x:concat(table.remove(left), { axis = 2 }), time)
      local between = i % (self.blocks + 1) == 0 and self.double[i // (self.blocks + 1)]
      if between then x = between(x) end
    end
    return self.head(self.norm(x):silu())
  end }

local function build(o)
  return {
    model = UNet { size = o, input = { x = { o.channels, o.image, o.image }, t = {} } },
    loss = nn.MseLoss(), batch = o.batch,
  }
end

return {
  options = {
    doc = "A U-Net that finds the noise in an image: forward(x, t).",
    { "width", "integer", 128, min = 4, doc = "channels of the first level" },
    { "factors", "shape", { 1, 2, 2, 2 }, doc = "of the channels, level by level" },
    { "blocks", "integer", 2, min = 1, doc = "blocks of a level on the way down" },
    { "sees", "integer", 16, min = 1, doc = "height of the images on which there is attention" },
    { "groups", "integer", 32, min = 1, doc = "groups of the norms, which divide all channels" },
    { "dropout", "number", 0.1, min = 0, below = 1, doc = "share dropped in blocks" },
    { "channels", "integer", 3, min = 1, doc = "channels of the images" },
    parts.image(32, 8), parts.batch(16),
  },
  nets = { diffusion_unet = {} },
  published = { diffusion_unet = 35746307 },
  build = build,
}
