--- Losses of one's own: a function of outputs and fields by name, with a parameter that is learnt,
-- and its gradient checked against differences. A net learns a mean and how far off it may be.
--
--   build/neap run scripts/examples/custom_loss.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = ... == "--quick"
neap.seed(1)

-- y = sin x, with noise that grows with |x|; a few rows are far off, and weigh little.
local n = quick and 400 or 4000
local x = neap.rand(n, 1) * 6 - 3
local far = neap.rand(n, 1):lt(0.05):to "f32"
local y = x:sin() + neap.randn(n, 1) * (x:abs() * 0.1 + 0.05) + far * 8
local trust = 1 - far * 0.9999

local Normal = nn.module { "Normal",
  init = function(self)
    self.body = nn.Sequential { nn.Linear { 1, 32 }, nn.Tanh(), nn.Linear { 32, 32 }, nn.Tanh() }
    self.mean, self.log_sd = nn.Linear { 32, 1 }, nn.Linear { 32, 1 }
  end,
  forward = function(self, x)
    local h = self.body(x)
    return self.mean(h), self.log_sd(h)
  end }

--- Negative log-likelihood of a normal distribution, each row as trustworthy as it is said to be.
local function likelihood(mean, log_sd, y, trust)
  local off = (y - mean) * (-log_sd):exp()
  return (trust * (off:square() * 0.5 + log_sd)):sum() / trust:sum()
end

local column = neap.randn(5, 1)
assert(neap.check.gradient(likelihood, { column, column * 0.1, column + 1, neap.rand(5, 1) }).same)
print "its gradient is what differences say"

local t <close> = neap.trainer { model = Normal {}, loss = likelihood, seed = 2,
  optimizer = optim.Adam { lr = 5e-3, clip = 1 } }
t:fit(neap.data.tensors { x = x, y = y, trust = trust, batch = 100, shuffle = true },
  { epochs = quick and 80 or 40, verbose = 0 })
for _, at in ipairs { 0, 1.5, -2.5 } do
  local mean, log_sd = t:predict(neap.full { 1, 1, value = at })
  print(("at %4.1f: %5.2f +- %.2f, truly %5.2f +- %.2f"):format(at, mean:item(),
    math.exp(log_sd:item()), math.sin(at), math.abs(at) * 0.1 + 0.05))
end
