--- Optimizers and schedules. An optimizer is settings; `apply` adds its update ops to a net, one per parameter, with the
-- learning rate as an input blob, so that a change of `lr` takes effect at the next step without planning again.
-- @module neap.optim
local options = require "neap.options"
local none = options.none
local optim = {}

local Optimizer = {}
Optimizer.__index = Optimizer
Optimizer.__tostring = function(o) return ("optim.%s { lr = %g }"):format(o.name, o.lr) end

--- Adds update ops for the parameters of net:gradient's result.
-- @param net neap.net
-- @param grads table {parameter blob = gradient blob}, or nil: takes the net's own
function Optimizer:apply(net, grads)
  local lr = net:input("lr", {}, "f32")
  local list = {}
  for parameter, gradient in pairs(grads) do list[#list + 1] = { parameter, gradient } end
  table.sort(list, function(a, b) return a[1].name < b[1].name end) -- pairs has no order, a net has
  for _, pair in ipairs(list) do self:update(net, pair[1], pair[2], lr) end
end

--- Adds an op of several enforced in-place states.
local function state(net, parameter, suffix, shape, dtype)
  return net:declare(parameter.name .. "." .. suffix, "state", shape or parameter.shape, dtype or parameter.dtype, { op = "Constant", value = 0 }, false)
end

local function maker(name, spec, update)
  return function(given)
    local o = options.read("optim." .. name, spec, given, 2)
    if type(o.lr) ~= "number" then error("optim." .. name .. " takes { lr = number }", 2) end
    o.name, o.update = name, update
    return setmetatable(o, Optimizer)
  end
end

--- Stochastic gradient descent: m = momentum m + g; w = w - lr m. Weight decay is added to the gradient (as in Torch).
optim.SGD = maker("SGD", { lr = none, momentum = 0, nesterov = false, weight_decay = 0, dampening = 0 }, function(self, net, w, g, lr)
  local attrs = { momentum = self.momentum, nesterov = self.nesterov, weight_decay = self.weight_decay, dampening = self.dampening }
  if self.momentum ~= 0 then
    local m = state(net, w, "momentum")
    net:op("Sgd", { w, g, lr, m }, { w, m }, attrs)
  else
    net:op("Sgd", { w, g, lr }, { w }, attrs)
  end
end)

local function adam(decoupled)
  return function(self, net, w, g, lr)
    local m, v, t = state(net, w, "m"), state(net, w, "v"), state(net, w, "t", {}, "i64")
    net:op("Adam", { w, g, lr, m, v, t }, { w, m, v, t },
      { beta1 = self.beta1, beta2 = self.beta2, eps = self.eps, weight_decay = self.weight_decay, decoupled = decoupled })
  end
end

local adam_spec = { lr = none, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0 }
--- Adam (Kingma and Ba, ICLR 2015). @field lr @field beta1 @field beta2 @field eps @field weight_decay
optim.Adam = maker("Adam", adam_spec, adam(false))
--- AdamW: weight decay apart from the gradient (Loshchilov and Hutter, ICLR 2019).
optim.AdamW = maker("AdamW", { lr = none, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01 }, adam(true))

-- ---- schedules: functions of (step from 1, base lr) ---------------------------------------------------------------------

--- Half a cosine from the base rate to `least` over `steps`, after a linear warm-up of `warmup` steps.
function optim.cosine(given)
  local o = options.read("optim.cosine", { positions = { "steps" }, steps = none, warmup = 0, least = 0 }, given, 2)
  return function(step, lr)
    if step <= o.warmup then return lr * step / o.warmup end
    local t = math.min(1, (step - o.warmup) / math.max(1, o.steps - o.warmup))
    return o.least + (lr - o.least) * 0.5 * (1 + math.cos(math.pi * t))
  end
end

--- The base rate times `factor` after every `every` steps.
function optim.step(given)
  local o = options.read("optim.step", { every = none, factor = 0.1 }, given, 2)
  return function(step, lr) return lr * o.factor ^ ((step - 1) // o.every) end
end

--- Linear from 0 to the base rate over `steps`, then constant.
function optim.warmup(given)
  local o = options.read("optim.warmup", { positions = { "steps" }, steps = none }, given, 2)
  return function(step, lr) return lr * math.min(1, step / o.steps) end
end

return optim
