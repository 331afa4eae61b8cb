--- A small U-Net that finds discs in noisy pictures, pixel by pixel: the loss is cross entropy and
-- the dice of the masks together.
--
--   build/neap run scripts/examples/unet.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = ... == "--quick"
neap.seed(1)

--- n pictures (n,1,32,32) of a disc in noise, and the masks of the discs.
local function discs(n)
  local row = neap.arange(0, 32):reshape(1, 1, 32, 1)
  local column = neap.arange(0, 32):reshape(1, 1, 1, 32)
  local x, y = neap.rand(n, 1, 1, 1) * 20 + 6, neap.rand(n, 1, 1, 1) * 20 + 6
  local radius = neap.rand(n, 1, 1, 1) * 4 + 3
  local mask = ((row - y):square() + (column - x):square()):lt(radius:square()):to "f32"
  return mask + neap.randn(n, 1, 32, 32) * 0.7, mask
end

local function twice(n_in, n_out)
  return nn.Sequential {
    nn.Conv2d { n_in, n_out, kernel = 3, pad = 1, bias = false }, nn.BatchNorm2d { n_out },
    nn.ReLU(),
    nn.Conv2d { n_out, n_out, kernel = 3, pad = 1, bias = false }, nn.BatchNorm2d { n_out },
    nn.ReLU(),
  }
end

local UNet = nn.module { "UNet",
  init = function(self)
    self.down1, self.down2, self.bottom = twice(1, 8), twice(8, 16), twice(16, 32)
    self.pool = nn.MaxPool2d { 2 }
    self.up2 = nn.ConvTranspose2d { 32, 16, kernel = 2, stride = 2 }
    self.up1 = nn.ConvTranspose2d { 16, 8, kernel = 2, stride = 2 }
    self.join2, self.join1 = twice(32, 16), twice(16, 8)
    self.out = nn.Conv2d { 8, 1, kernel = 1 }
  end,
  forward = function(self, x)
    local a = self.down1(x)
    local b = self.down2(self.pool(a))
    local c = self.bottom(self.pool(b))
    b = self.join2(neap.concat({ self.up2(c), b }, { axis = 2 }))
    a = self.join1(neap.concat({ self.up1(b), a }, { axis = 2 }))
    return self.out(a)
  end }

local t <close> = neap.trainer { model = UNet {}, seed = 2, optimizer = optim.Adam { lr = 0.01 },
  losses = { { nn.BceWithLogitsLoss(), name = "entropy" },
    { function(y, mask) return y:sigmoid():dice_loss(mask) end, name = "dice" } } }
for step = 1, quick and 24 or 300 do
  local x, mask = discs(16)
  local row = t:step { x = x, y = mask }
  if step % 12 == 0 then
    print(("step %3d  entropy %.3f  dice %.3f"):format(step, row.entropy, row.dice))
  end
end
local x, mask = discs(64)
local found = t:predict(x):gt(0):to "f32"
local both = (found * mask):sum() / (found:maximum(mask)):sum()
print(("overlap %.2f of found and true pixels"):format(both:item()))
