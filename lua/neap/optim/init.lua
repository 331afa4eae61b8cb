--- Optimizers and schedules. An optimizer is settings; `apply` adds its update ops to a net, one per parameter, with the
-- learning rate as an input blob, so that a change of `lr` takes effect at the next step without planning again.
--
-- INVARIANT: one input "lr" serves every group: group k updates with lr times its `scale`, its own rate over the base rate. So
-- a schedule moves all groups alike.
-- @module neap.optim
local fail = require("neap.core").fail
local options = require "neap.inner.options"
local none = options.none
local optim = {}

local Optimizer = { __name = "neap.optimizer" }
Optimizer.__index = Optimizer
Optimizer.__tostring = function(o) return ("optim.%s { lr = %g }"):format(o.name, o.lr) end
Optimizer.__newindex = function(o, key)
  fail(("optim.%s: \"%s\" can't be set; lr can, and the rest when it is made"):format(o.name, tostring(key)))
end

local function pattern_of(glob) return "^" .. glob:gsub("[%^%$%(%)%%%.%[%]%+%-]", "%%%0"):gsub("%*", ".*"):gsub("%?", ".") .. "$" end

--- The settings that hold for a parameter: those of the group whose glob matches its dotted name, over the optimizer's.
local function settings_for(self, name)
  local own
  for _, group in ipairs(self.groups) do
    if name:match(group.pattern) then
      if own then fail(("optim.%s: parameter \"%s\" is of two groups, \"%s\" and \"%s\""):format(self.name, name, own.glob, group.glob)) end
      own = group
    end
  end
  return own and own.settings or self.settings, own
end

--- One norm of all gradients, and each scaled down by it to at most `clip`.
local function clipped(self, net, list)
  if not self.clip then return end
  local gradients = {}
  for i, pair in ipairs(list) do gradients[i] = pair[2] end
  local norm = net:op("GradNorm", gradients, { net:fresh_name "grad_norm" }, {})
  for _, pair in ipairs(list) do
    pair[2] = net:op("ClipByNorm", { pair[2], norm }, { net:fresh_name(pair[2].name .. "_clipped") }, { max = self.clip })
  end
end

--- Adds update ops for the parameters of net:gradient's result.
-- @param net neap.net
-- @param grads table|nil {parameter blob = gradient blob}; nil: of what net:gradient(loss) gave, which is the caller's to pass
function Optimizer:apply(net, grads)
  if type(grads) ~= "table" then fail("opt:apply(net, grads) takes what net:gradient(loss) gave") end
  local list, used = {}, {}
  for parameter, gradient in pairs(grads) do list[#list + 1] = { parameter, gradient } end
  table.sort(list, function(a, b) return a[1].name < b[1].name end) -- pairs has no order, a net has
  local lr, scaled = net:input("lr", {}, "f32"), {}
  clipped(self, net, list)
  for _, pair in ipairs(list) do
    local settings, group = settings_for(self, (pair[1].name:gsub("/", ".")))
    if group then used[group] = true end
    local rate = lr
    if settings.lr ~= self.settings.lr then
      scaled[settings.lr] = scaled[settings.lr] or lr * (settings.lr / self.settings.lr)
      rate = scaled[settings.lr]
    end
    self.update(settings, net, pair[1], pair[2], rate)
  end
  for _, group in ipairs(self.groups) do
    if not used[group] then fail(("optim.%s: the group \"%s\" matches no trainable parameter"):format(self.name, group.glob)) end
  end
end

--- State of the optimizer for a parameter: zeros at first, part of every checkpoint.
local function state(net, parameter, suffix, shape, dtype)
  return net:declare(parameter.name .. "." .. suffix, "state", shape or parameter.shape, dtype or parameter.dtype, { op = "Constant", value = 0 }, false)
end

--- Shares of what was: at 1 and above nothing new would ever count, or sums would grow without end.
local below_one = { momentum = true, beta1 = true, beta2 = true }

local function check_numbers(who, o)
  for name, value in pairs(o) do
    if name ~= "nesterov" and (type(value) ~= "number" or value ~= value or value < 0) then
      fail(("%s: %s expects a number of at least 0, got %s"):format(who, name, tostring(value)))
    end
    if below_one[name] and value >= 1 then fail(("%s: %s expects a number from 0 to below 1, got %s"):format(who, name, tostring(value))) end
    if name == "dampening" and value > 1 then fail(("%s: dampening expects a number from 0 to 1, got %s"):format(who, tostring(value))) end
  end
end

--- {{glob, lr = .., ..}, ..} as {glob, pattern, settings}.
local function read_groups(who, spec, settings, list)
  local groups = {}
  for i, given in ipairs(list) do
    if type(given) ~= "table" or type(given[1]) ~= "string" then
      fail(("%s: group %d is { glob, lr = .. }, e.g. { \"*.bias\", weight_decay = 0 }"):format(who, i))
    end
    local fields, own = { positions = { "glob" }, glob = none }, {}
    for name in pairs(spec) do fields[name] = none end
    for name, value in pairs(options.read(("%s, group %d"):format(who, i), fields, given)) do own[name] = value end
    local glob = own.glob
    own.glob = nil
    check_numbers(who, own)
    groups[i] = { glob = glob, pattern = pattern_of(glob), settings = setmetatable(own, { __index = settings }) }
  end
  return groups
end

local function maker(name, spec, update)
  local who = "optim." .. name
  return function(given)
    local own, groups = {}, {}
    if type(given) ~= "table" then given = { lr = given } end
    for key, value in pairs(given) do
      if math.type(key) == "integer" then groups[key] = value else own[key] = value end
    end
    local clip, fields = own.clip, { clip = none }
    for key, value in pairs(spec) do fields[key] = value end
    local settings = options.read(who, fields, own)
    settings.clip = nil
    if type(settings.lr) ~= "number" then fail(who .. " takes { lr = number }") end
    check_numbers(who, settings)
    if clip ~= nil and (type(clip) ~= "number" or clip ~= clip or clip <= 0) then fail(who .. ": clip expects a norm above 0, got " .. tostring(clip)) end
    if settings.dampening and settings.dampening > 0 and settings.momentum == 0 then fail(who .. ": dampening needs momentum") end
    if settings.nesterov and settings.momentum == 0 then fail(who .. ": nesterov needs momentum") end
    local o = { name = name, update = update, settings = settings, clip = clip, lr = settings.lr }
    o.groups = read_groups(who, spec, settings, groups)
    if #groups > 0 and settings.lr == 0 then fail(who .. ": groups are scaled from the base rate, which can't be 0") end
    return setmetatable(o, Optimizer)
  end
end

--- Stochastic gradient descent: m = momentum m + (1 - dampening) g; w = w - lr m. The first m is the first gradient, whole, and
-- weight decay is added to the gradient, both as in PyTorch. `clip` bounds the norm of all gradients together.
-- @usage optim.SGD { lr = 0.1, momentum = 0.9, { "*.bias", weight_decay = 0 }, { "head.weight", lr = 0.5 } }
optim.SGD = maker("SGD", { lr = none, momentum = 0, nesterov = false, weight_decay = 0, dampening = 0 }, function(s, net, w, g, lr)
  local attrs = { momentum = s.momentum, nesterov = s.nesterov, weight_decay = s.weight_decay, dampening = s.dampening }
  if s.momentum ~= 0 then
    local m = state(net, w, "momentum")
    local t = s.dampening ~= 0 and state(net, w, "t", {}, "i64") or nil
    net:op("Sgd", { w, g, lr, m, t }, { w, m, t }, attrs)
  else
    net:op("Sgd", { w, g, lr }, { w }, attrs)
  end
end)

local function adam(decoupled)
  return function(s, net, w, g, lr)
    local m, v, t = state(net, w, "m"), state(net, w, "v"), state(net, w, "t", {}, "i64")
    net:op("Adam", { w, g, lr, m, v, t }, { w, m, v, t },
      { beta1 = s.beta1, beta2 = s.beta2, eps = s.eps, weight_decay = s.weight_decay, decoupled = decoupled })
  end
end

--- Adam (Kingma and Ba, ICLR 2015). @field lr @field beta1 @field beta2 @field eps @field weight_decay @field clip
optim.Adam = maker("Adam", { lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0 }, adam(false))
--- AdamW: weight decay apart from the gradient (Loshchilov and Hutter, ICLR 2019).
optim.AdamW = maker("AdamW", { lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01 }, adam(true))

for _, name in ipairs { "RmsProp", "Adagrad" } do
  optim[name] = function(...) fail(("optim.%s is reserved, and not available yet; optim.Adam is near"):format(name)) end
end

-- ---- schedules: functions of (step from 1, base lr) ---------------------------------------------------------------------

local function count(who, field, value)
  if math.type(value) ~= "integer" or value < 1 then
    fail(("%s: %s expects a number of steps, got %s"):format(who, field, tostring(value)))
  end
  return value
end

--- Half a cosine from the base rate to `least` over `steps`, after a linear warm-up of `warmup` steps.
function optim.cosine(given)
  local o = options.read("optim.cosine", { positions = { "steps" }, steps = none, warmup = 0, least = 0 }, given)
  count("optim.cosine", "steps", o.steps)
  return function(step, lr)
    if step <= o.warmup then return lr * step / o.warmup end
    local t = math.min(1, (step - o.warmup) / math.max(1, o.steps - o.warmup))
    return o.least + (lr - o.least) * 0.5 * (1 + math.cos(math.pi * t))
  end
end

--- The base rate times `factor` after every `every` steps.
function optim.step(given)
  local o = options.read("optim.step", { positions = { "every" }, every = none, factor = 0.1 }, given)
  count("optim.step", "every", o.every)
  return function(step, lr) return lr * o.factor ^ ((step - 1) // o.every) end
end

--- Linear from 0 to the base rate over `steps`; then constant, or as the schedule `next` says, whose steps count from there.
-- @usage optim.warmup { 100, next = optim.step { 1000 } }
function optim.warmup(given)
  local o = options.read("optim.warmup", { positions = { "steps" }, steps = none, next = none }, given)
  count("optim.warmup", "steps", o.steps)
  return function(step, lr)
    if step <= o.steps then return lr * step / o.steps end
    return o.next and o.next(step - o.steps, lr) or lr
  end
end

require("neap.inner.guard").functions(Optimizer, "optim:")
return setmetatable(require("neap.inner.guard").functions(optim, "optim."), { __index = function(_, key)
  local names = {}
  for name in pairs(optim) do names[#names + 1] = name end
  local near = options.nearest(tostring(key), names)
  fail(("optim has no \"%s\"%s"):format(tostring(key), near and (", did you mean \"" .. near .. "\"?") or ""))
end })
