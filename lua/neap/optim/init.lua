--- Optimizers and schedules. An optimizer is settings; `apply` adds its update ops to a net, one
-- per parameter, with the learning rate as an input blob, so that a change of `lr` takes effect at
-- the next step without planning again.
--
-- INVARIANT: one input "lr" serves every group: group k updates with lr times its `scale`, its own
-- rate over the base rate. So a schedule moves all groups alike.
-- @module neap.optim
local fail = require("neap.core").fail
local missing = require "neap.inner.missing"
local record = require "neap.inner.record"
local optim = {}

local Optimizer = { __name = "neap.optimizer" }
Optimizer.__index = Optimizer
Optimizer.__tostring = function(o) return ("optim.%s { lr = %g }"):format(o.name, o.lr) end
Optimizer.__newindex = function(o, key)
  fail(("optim.%s: \"%s\" can't be set; lr can, and the rest when it is made"):format(
    o.name, tostring(key)))
end

local function pattern_of(glob)
  return "^" .. glob:gsub("[%^%$%(%)%%%.%[%]%+%-]", "%%%0"):gsub("%*", ".*"):gsub("%?", ".") .. "$"
end

--- The settings that hold for a parameter: those of the group whose glob matches its dotted name,
-- over the optimizer's.
local function settings_for(self, name)
  local own
  for _, group in ipairs(self.groups) do
    if name:match(group.pattern) then
      if own then
        fail(("optim.%s: parameter \"%s\" is of two groups, \"%s\" and \"%s\""):format(
          self.name, name, own.glob, group.glob))
      end
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
    pair[2] = net:op("ClipByNorm", { pair[2], norm },
      { net:fresh_name(pair[2].name .. "_clipped") }, { max = self.clip })
  end
end

--- Adds update ops for the parameters of net:gradient's result.
-- @param net neap.net
-- @param grads table|nil {parameter blob = gradient blob}; nil: of what net:gradient(loss) gave,
--   which is the caller's to pass
function Optimizer:apply(net, grads)
  if type(grads) ~= "table" then
    fail("opt:apply(net, grads) takes what net:gradient(loss) gave")
  end
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
    if not used[group] then
      fail(("optim.%s: the group \"%s\" matches no trainable parameter"):format(
        self.name, group.glob))
    end
  end
end

--- State of the optimizer for a parameter: zeros at first, part of every checkpoint.
local function state(net, parameter, suffix, shape, dtype)
  return net:declare(parameter.name .. "." .. suffix, "state", shape or parameter.shape,
    dtype or parameter.dtype, { op = "Constant", value = 0 }, false)
end

-- ---- making one ---------------------------------------------------------------------------------

local clip = { "clip", "number", above = 0, unset = "no bound",
  doc = "bound of the norm of all gradients together" }

--- The record of a group: the optimizer's settings, none of them required, for the parameters that
-- a glob matches.
local function group_record(name, fields)
  local spec = { positions = { "glob" }, { "glob", "string", required = true,
    doc = "which parameters, by their dotted names: \"*.bias\"" } }
  for _, field in ipairs(fields) do spec[#spec + 1] = field end
  return record.new("optim." .. name .. ", group", spec)
end

--- {{glob, lr = .., ..}, ..} as {glob, pattern, settings}.
local function read_groups(who, of_group, settings, list)
  local groups = {}
  for i, given in ipairs(list) do
    if type(given) ~= "table" or type(given[1]) ~= "string" then
      fail(("%s: group %d is { glob, lr = .. }, e.g. { \"*.bias\", weight_decay = 0 }"):format(who,
        i))
    end
    local own = of_group:read_given(given, ("%s, group %d"):format(who, i))
    local glob = own.glob
    own.glob = nil
    groups[i] = { glob = glob, pattern = pattern_of(glob),
      settings = setmetatable(own, { __index = settings }) }
  end
  return groups
end

--- What one setting asks of another.
local function check_settings(who, settings, groups)
  if settings.momentum == 0 then
    if settings.dampening > 0 then fail(who .. ": dampening needs momentum") end
    if settings.nesterov then fail(who .. ": nesterov needs momentum") end
  end
  if #groups > 0 and settings.lr == 0 then
    fail(who .. ": groups are scaled from the base rate, which can't be 0")
  end
end

--- A function that makes optimizers of a kind.
-- @param name string
-- @param spec table of the record: doc, example and what can be set, per group too
-- @param update f(settings, net, parameter, gradient, rate): adds the ops of one parameter's update
local function maker(name, spec, update)
  local who, of_group = "optim." .. name, group_record(name, spec)
  spec[#spec + 1], spec.items = clip, "{ glob, lr =, .. }, .."
  local own = record.declare(who, spec)
  return function(given)
    local settings = own:read(type(given) == "table" and given or { lr = given })
    local o = setmetatable({
      name = name,
      update = update,
      settings = settings,
      clip = settings.clip,
      lr = settings.lr,
      groups = read_groups(who, of_group, settings, settings),
    }, Optimizer)
    check_settings(who, settings, o.groups)
    return record.note(o, settings)
  end
end

optim.SGD = maker("SGD", {
  doc = [[Stochastic gradient descent: m = momentum m + (1 - dampening) g; w = w - lr m. The first m
    is the first gradient, whole, and weight decay is added to the gradient, both as in PyTorch.]],
  { "lr", "number", min = 0, required = true, doc = "learning rate" },
  { of = "Sgd.momentum", below = 1 },
  { of = "Sgd.nesterov" },
  { of = "Sgd.weight_decay" },
  { of = "Sgd.dampening" },
  example = "optim.SGD { lr = 0.1, momentum = 0.9, { \"*.bias\", weight_decay = 0 }, "
    .. "{ \"head.weight\", lr = 0.5 } }" }, function(s, net, w, g, lr)
  local attrs = { momentum = s.momentum, nesterov = s.nesterov, weight_decay = s.weight_decay,
    dampening = s.dampening }
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
    net:op("Adam", { w, g, lr, m, v, t }, { w, m, v, t }, {
      beta1 = s.beta1,
      beta2 = s.beta2,
      eps = s.eps,
      weight_decay = s.weight_decay,
      decoupled = decoupled,
    })
  end
end

local function adam_options(doc, example, weight_decay)
  return { doc = doc, example = example,
    { "lr", "number", 1e-3, min = 0, doc = "learning rate" },
    { of = "Adam.beta1", below = 1 },
    { of = "Adam.beta2", below = 1 },
    { of = "Adam.eps" },
    weight_decay }
end

optim.Adam = maker("Adam", adam_options("Adam (Kingma and Ba, ICLR 2015).",
  "optim.Adam { lr = 3e-4, clip = 1 }", { of = "Adam.weight_decay" }), adam(false))
optim.AdamW = maker("AdamW", adam_options(
  "Adam with weight decay apart from the gradient (Loshchilov and Hutter, ICLR 2019).",
  "optim.AdamW { lr = 3e-4, { \"*.bias\", weight_decay = 0 } }",
  { of = "Adam.weight_decay", default = 0.01, doc = "times lr w, taken from w" }), adam(true))

for _, name in ipairs { "RmsProp", "Adagrad" } do
  optim[name] = function(...)
    fail(("optim.%s is reserved, and not available yet; optim.Adam is near"):format(name))
  end
end

-- ---- schedules: functions of (step from 1, base rate) ------------------------------------------

local cosine = record.declare("optim.cosine", {
  doc = "Half a cosine from the base rate down to `least`, after a linear warm-up.",
  positions = { "steps" },
  { "steps", "integer", min = 1, required = true, doc = "steps until `least`, warm-up included" },
  { "warmup", "integer", 0, min = 0, doc = "steps from 0 to the base rate" },
  { "least", "number", 0, min = 0, doc = "rate at the end" },
  example = "optim.cosine { 1000, warmup = 100 }" })

--- Half a cosine: see the record.
function optim.cosine(given)
  local o = cosine:read(given)
  return record.note(function(step, lr)
    if step <= o.warmup then return lr * step / o.warmup end
    local t = math.min(1, (step - o.warmup) / math.max(1, o.steps - o.warmup))
    return o.least + (lr - o.least) * 0.5 * (1 + math.cos(math.pi * t))
  end, o)
end

local by_step = record.declare("optim.step", {
  doc = "The base rate, multiplied by `factor` again and again.",
  positions = { "every" },
  { "every", "integer", min = 1, required = true, doc = "steps from one change to the next" },
  { "factor", "number", 0.1, min = 0, doc = "what the rate is multiplied by" },
  example = "optim.step { 1000, factor = 0.5 }" })

--- Steps: see the record.
function optim.step(given)
  local o = by_step:read(given)
  return record.note(function(step, lr) return lr * o.factor ^ ((step - 1) // o.every) end, o)
end

local warmup = record.declare("optim.warmup", {
  doc = "Linear from 0 to the base rate; then constant, or as another schedule says.",
  positions = { "steps" },
  { "steps", "integer", min = 1, required = true, doc = "steps of the warm-up" },
  { "next", "function", unset = "the base rate",
    doc = "schedule that follows; its steps count from the end of the warm-up" },
  example = "optim.warmup { 100, next = optim.step { 1000 } }" })

--- A warm-up: see the record.
function optim.warmup(given)
  local o = warmup:read(given)
  return record.note(function(step, lr)
    if step <= o.steps then return lr * step / o.steps end
    return o.next and o.next(step - o.steps, lr) or lr
  end, o)
end

require("neap.inner.guard").functions(Optimizer, "optim:")
return setmetatable(require("neap.inner.guard").functions(optim, "optim."), {
  __index = function(_, key)
    missing.fail("optim", key, missing.names(optim))
  end,
})
