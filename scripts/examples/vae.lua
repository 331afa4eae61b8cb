--- A variational autoencoder: a model of three outputs, two losses of which one
-- reads the input, and noise that the data bring along.
--
--   build/neap run scripts/examples/vae.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = arg and arg[1] == "--quick"
neap.seed(1)

-- Pictures of 8 by 8: a bright bar, upright or lying, at one of eight places.
local n = 256
local x = neap.zeros(n, 64)
for i = 1, n do
  local at, upright = (i * 5) % 8, i % 2 == 0
  for k = 0, 7 do x:set(1, i, 1 + (upright and k * 8 + at or at * 8 + k)) end
end

local Vae = nn.module {
  "Vae",
  init = function(self)
    self.encode = nn.Sequential { nn.Linear { 64, 48 }, nn.ReLU(), nn.Linear { 48, 8 } }
    self.decode = nn.Sequential { nn.Linear { 4, 48 }, nn.ReLU(), nn.Linear { 48, 64 } }
  end,
  forward = function(self, x, noise)
    local h = self.encode(x)
    local mu, logvar = h:narrow(2, 1, 4), h:narrow(2, 5, 4)
    return self.decode(mu + (logvar * 0.5):exp() * noise), mu, logvar
  end,
}

local function recon(logits, _, _, x) return logits:bce_with_logits_loss(x) end
local function kl(_, mu, logvar) return (mu * mu + logvar:exp() - logvar - 1):mean() * 0.5 end

local t <close> = neap.trainer {
  model = Vae {},
  losses = { { recon, name = "recon" }, { kl, name = "kl", weight = 0.02 } },
  optimizer = optim.Adam { lr = 5e-3 },
  seed = 1,
}
local set = neap.data.tensors {
  x = x, batch = 32, shuffle = true, map = function(b) b.noise = neap.randn(b.n, 4) end,
}
local first = t:evaluate(set).recon
t:fit(set, { epochs = quick and 40 or 200, verbose = 0 })
local last = t:evaluate(set)
print(("reconstruction %.3f at first, %.3f at last; kl %.3f"):format(first, last.recon, last.kl))
