--- A differential equation solved by a net that never sees its solution: heat in a rod, u_t = a
-- u_xx on 0 < x < 1 with u = 0 at both ends and sin(pi x) at the start. The loss is the mean square
-- of u_t - a u_xx at random points, both derivatives taken by neap.grad inside the forward.
-- A second or two. neap run scripts/examples/pinn.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim

local steps = ... == "--quick" and 500 or 1500
local a, pi = 0.1, math.pi

--- u at points (x, t). The start and the ends hold whatever the net gives.
local Rod = nn.module { "Rod",
  init = function(self)
    self.body = nn.Sequential { nn.Linear { 2, 32 }, nn.Tanh {}, nn.Linear { 32, 32 }, nn.Tanh {},
      nn.Linear { 32, 1 } }
  end,
  forward = function(self, x, t)
    local free = self.body(neap.concat({ x, t }, { axis = 2 }))
    return (x * pi):sin() + t * x * (1 - x) * free
  end }

local Heat = nn.module { "Heat",
  init = function(self) self.rod = Rod {} end,
  forward = function(self, x, t)
    local function u(p, q) return self.rod(p, q):sum() end
    local function u_x(p, q) return neap.grad(u, { wrt = 1 })(p, q):sum() end
    return neap.grad(u, { wrt = 2 })(x, t) - a * neap.grad(u_x, { wrt = 1 })(x, t)
  end }

neap.seed(1)
local heat = Heat {}
local trainer = neap.trainer { model = heat, seed = 1, optimizer = optim.Adam { lr = 3e-3 },
  loss = function(residual, zero) return (residual - zero):square():mean() end }
local zero = neap.zeros(256, 1)
for step = 1, steps do
  local row = trainer:step { x = neap.rand(256, 1), t = neap.rand(256, 1), y = zero }
  if step % (steps // 5) == 0 then print(("step %5d  loss %.3g"):format(step, row.loss)) end
end

local x, t = neap.rand(1000, 1), neap.rand(1000, 1)
local want = (x * pi):sin() * (t * (-a * pi * pi)):exp()
local off = ((heat.rod(x, t) - want):square():sum() / want:square():sum()):sqrt():item()
print(("error against exp(-a pi^2 t) sin(pi x): %.2f %%"):format(100 * off))
