--- A generative adversarial net: two trainers share two nets, and each trains one of them.
--
--   build/neap run scripts/examples/gan.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = arg and arg[1] == "--quick"
neap.seed(3)

local G = nn.Sequential { nn.Linear { 2, 16 }, nn.Tanh(), nn.Linear { 16, 2 } }
local D = nn.Sequential { nn.Linear { 2, 16 }, nn.LeakyReLU(0.2), nn.Linear { 16, 1 } }

local Fake = nn.module {
  "Fake",
  init = function(self) self.G, self.D = G, D end,
  forward = function(self, z) return self.D(self.G(z)) end,
}
local Both = nn.module {
  "Both",
  init = function(self) self.G, self.D = G, D end,
  forward = function(self, z, x) return self.D(self.G(z)), self.D(x) end,
}

-- A little decay keeps the judge from growing so steep that the two chase each other in circles.
local adam = { lr = 5e-3, beta1 = 0.5 }
local decayed = { lr = 5e-3, beta1 = 0.5, weight_decay = 0.01 }
local g <close> = neap.trainer {
  model = Fake {}, train = "G.*", optimizer = optim.Adam(adam),
  loss = function(fake) return (-fake):softplus():mean() end,
}
local d <close> = neap.trainer {
  model = Both {}, train = "D.*", optimizer = optim.Adam(decayed),
  loss = function(fake, real) return fake:softplus():mean() + (-real):softplus():mean() end,
}

--- Points around (1.5, -0.5).
local function real(n) return neap.randn(n, 2) * 0.3 + neap.tensor { 1.5, -0.5 } end
local function noise(n) return neap.randn(n, 2) end

for _ = 1, quick and 400 or 2000 do
  d:step { z = noise(64), x = real(64) }
  g:step { z = noise(64) }
end
local made = G(noise(2000))
local mean = made:mean { axes = { 1 } }
local spread = (made - mean):square():mean({ axes = { 1 } }):sqrt()
print(("generated around (%.2f, %.2f) +- (%.2f, %.2f), real ones (1.50, -0.50) +- 0.30"):format(
  mean[1], mean[2], spread[1], spread[2]))
local function gradients(t) return t:plan().regions.gradients end
print(("gradients: %d B of the generator's, %d B of the discriminator's"):format(
  gradients(g), gradients(d)))
