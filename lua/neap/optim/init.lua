--- Optimizers and schedules, which are beside them: optim.step { 1000 }. An optimizer is settings;
-- `apply` adds its update ops to a net, one per parameter, with the learning rate as an input blob,
-- so that a change of `lr` takes effect at the next step without planning again.
--
-- INVARIANT: one input "lr" serves every group: group k updates with lr times its `scale`, its own
-- rate over the base rate. So a schedule moves all groups alike.
-- @module neap.optim
local fail = require("neap.core").fail
local kept = require "neap.optim.kept"
local missing = require "neap.inner.missing"
local names = require "neap.nn.names"
local record = require "neap.inner.record"
local records = require("neap.op").records
local state = kept.state
local optim = {}

local Optimizer = { __name = "neap.optimizer" }
Optimizer.__index = Optimizer
Optimizer.__tostring = function(o) return ("optim.%s { lr = %g }"):format(o.name, o.lr) end
Optimizer.__newindex = function(o, key)
  fail(("optim.%s: \"%s\" can't be set; lr can, and the rest when it is made"):format(
    o.name, tostring(key)))
end

--- The settings that hold for a parameter: those of the group whose glob matches its dotted name,
-- over the optimizer's.
local function settings_for(self, name)
  -- A parameter of two groups would have two rates: neither would be meant.
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

--- Each element moved into the interval of `clip_value`; then one norm of all gradients, and each
-- scaled down by it to at most `clip`.
local function clipped(self, net, list)
  -- First each element, then one norm of what is left: as if the gradients had come so.
  local most = self.settings.clip_value
  for _, pair in ipairs(most and list or {}) do
    pair[2] = net:op("Clamp", { pair[2] }, { net:fresh_name(pair[2].name .. "_clamped") },
      { min = -most, max = most })
  end
  if not self.clip then return end
  local gradients = {}
  for i, pair in ipairs(list) do gradients[i] = pair[2] end
  local norm = net:op("GradNorm", gradients, { net:fresh_name "grad_norm" }, {})
  for _, pair in ipairs(list) do
    pair[2] = net:op("ClipByNorm", { pair[2], norm },
      { net:fresh_name(pair[2].name .. "_clipped") }, { max = self.clip })
  end
end

--- The gradient with what l1_decay adds to it.
local function with_l1(settings, net, parameter, gradient)
  local decay = settings.l1_decay
  if decay == nil or decay == 0 then return gradient end
  local sign = net:op("Sign", { parameter }, 1)
  return net:op("Add", { gradient, sign * decay }, { net:fresh_name(gradient.name .. "_l1") })
end

--- The average of a parameter's values, moved towards what the update has made of it: by 1 / n for
-- "mean", by 1 - decay for an exponential one, but whole at the first step.
local function average(decay, net, w)
  local mean, n = state(net, w, "average"), state(net, w, "averaged", {}, "f32")

  -- Ops on one element; Where keeps the first value whole, so that the average does not begin at 0.
  local n_new = n + 1
  local share = 1 / n_new
  if decay ~= "mean" then share = net:Where { n:eq(0), share, n * 0 + (1 - decay) } end
  if w.dtype ~= "f32" then share = share:to(w.dtype) end
  local moved = mean + (w - mean) * share
  net:op("Copy", { moved }, { mean }, {})
  net:op("Copy", { n_new }, { n }, {})
end

--- A group that matches nothing is a slip in its glob. One whose parameters are all frozen, or not
-- this trainer's, is none: it waits until they are trained.
local function check_groups(self, net, used)
  for _, group in ipairs(self.groups) do
    local found = used[group]
    for _, row in ipairs(found and {} or net:_blobs()) do
      found = found or row.role == "parameter" and row.name:gsub("/", "."):match(group.pattern)
    end
    if not found then
      fail(("optim.%s: the group \"%s\" matches no parameter"):format(self.name, group.glob))
    end
  end
end

--- Adds update ops for the parameters of net:gradient's result.
-- @param net neap.net
-- @param grads table|nil {parameter blob = gradient blob}; nil: of what net:gradient(loss) gave,
--   which is the caller's to pass
-- @param loss blob|nil what the gradients are of, for optimizers that look at it
function Optimizer:apply(net, grads, loss)
  if type(grads) ~= "table" then
    fail("opt:apply(net, grads) takes what net:gradient(loss) gave")
  end
  local list, used = {}, {}
  for parameter, gradient in pairs(grads) do list[#list + 1] = { parameter, gradient } end
  table.sort(list, function(a, b) return a[1].name < b[1].name end) -- pairs has no order, a net has

  kept.note(net, list)

  -- One input for all groups; rates of groups are a multiple of it, made once for each.
  local lr, scaled = net:input("lr", {}, "f32"), {}

  -- Clipping is of all gradients together, before any update.
  clipped(self, net, list)
  if self.whole then return self.whole(self.settings, net, list, lr, loss) end
  for _, pair in ipairs(list) do
    local settings, group = settings_for(self, (pair[1].name:gsub("/", ".")))
    if group then used[group] = true end
    local rate = lr
    if settings.lr ~= self.settings.lr then
      scaled[settings.lr] = scaled[settings.lr] or lr * (settings.lr / self.settings.lr)
      rate = scaled[settings.lr]
    end
    self.update(settings, net, pair[1], with_l1(settings, net, pair[1], pair[2]), rate)
    if self.settings.average then average(self.settings.average, net, pair[1]) end
  end

  check_groups(self, net, used)
end

-- ---- making one ---------------------------------------------------------------------------------

local clip = { "clip", "number", above = 0, unset = "no bound",
  doc = "bound of the norm of all gradients together" }
local clip_value = { "clip_value", "number", above = 0, unset = "no bound",
  doc = "bound of each element of a gradient, before its norm is taken" }

local l1_decay = { "l1_decay", "number", min = 0, unset = "0",
  doc = "times the sign of w, added to the gradient" }
local average_field = { "average", "number|choice", above = 0, below = 1, choices = { "mean" },
  unset = "none", doc = [[keeps an average of each parameter's values after the updates: a number is
    the decay of an exponential one (0.999), "mean" weighs all alike. t:averaged(f) uses them]] }

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

    -- What the group does not say is the optimizer's.
    local own = of_group:read_given(given, ("%s, group %d"):format(who, i))
    local glob = own.glob
    own.glob = nil
    groups[i] = { glob = glob, pattern = names.glob_to_pattern(glob, who),
      settings = setmetatable(own, { __index = settings }) }
  end
  return groups
end

--- What one setting asks of another.
local function check_settings(who, settings, groups)
  -- Without momentum there is nothing to dampen, and nothing to look ahead by.
  if settings.momentum == 0 then
    if (settings.dampening or 0) > 0 then fail(who .. ": dampening needs momentum") end
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
-- @param whole f(settings, net, {{parameter, gradient}, ..}, rate, loss), instead of that: of all
--   parameters at once, which know no groups then
local function maker(name, spec, update, whole)
  if not whole then spec[#spec + 1] = l1_decay end
  local who, of_group = "optim." .. name, group_record(name, spec)
  spec[#spec + 1], spec[#spec + 2] = clip, clip_value
  if not whole then spec.items, spec[#spec + 1] = "{ glob, lr =, .. }, ..", average_field end
  local own = record.declare(who, spec)
  return function(given)
    -- optim.SGD(0.1) is optim.SGD { lr = 0.1 }.
    local settings = own:read(type(given) == "table" and given or { lr = given })
    local o = setmetatable({
      name = name,
      update = update,
      whole = whole,
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
  { of = "Sgd.rate_inside" },
  example = "optim.SGD { lr = 0.1, momentum = 0.9, { \"*.bias\", weight_decay = 0 }, "
    .. "{ \"head.weight\", lr = 0.5 } }" }, function(s, net, w, g, lr)
  local attrs = { momentum = s.momentum, nesterov = s.nesterov, weight_decay = s.weight_decay,
    dampening = s.dampening, rate_inside = s.rate_inside }
  if s.momentum ~= 0 then
    local m = state(net, w, "momentum")
    local t = s.dampening ~= 0 and state(net, w, "t", {}, "i64") or nil
    net:op("Sgd", { w, g, lr, m, t }, { w, m, t }, attrs)
  else
    net:op("Sgd", { w, g, lr }, { w }, attrs)
  end
end)

local learning_rate = { "lr", "number", 1e-3, min = 0, doc = "learning rate" }
local decay = { of = "Adam.weight_decay" }

--- What an op of two moments and a count keeps: m, v, t.
local function moments(net, w)
  return state(net, w, "m"), state(net, w, "v"), state(net, w, "t", {}, "i64")
end

--- The settings that are attributes of the op.
local function attrs_of(s, op_name)
  local attrs = {}
  for _, a in ipairs(records[op_name].attrs) do attrs[a.name] = s[a.name] end
  return attrs
end

local function adam(decoupled)
  return function(s, net, w, g, lr)
    local m, v, t = moments(net, w)
    local attrs = attrs_of(s, "Adam")
    attrs.decoupled = decoupled
    if s.amsgrad then
      local v_max = state(net, w, "v_max")
      net:op("Adam", { w, g, lr, m, v, t, v_max }, { w, m, v, t, v_max }, attrs)
    else
      net:op("Adam", { w, g, lr, m, v, t }, { w, m, v, t }, attrs)
    end
  end
end

local function adam_options(doc, example, weight_decay)
  return { doc = doc, example = example, learning_rate,
    { of = "Adam.beta1", below = 1 },
    { of = "Adam.beta2", below = 1 },
    { of = "Adam.eps" },
    { of = "Adam.eps_hat" },
    weight_decay,
    { "amsgrad", "boolean", false,
      doc = "divide by the largest second moment so far (Reddi et al., ICLR 2018)" } }
end

optim.Adam = maker("Adam", adam_options("Adam (Kingma and Ba, ICLR 2015).",
  "optim.Adam { lr = 3e-4, clip = 1 }", decay), adam(false))
optim.AdamW = maker("AdamW", adam_options(
  "Adam with weight decay apart from the gradient (Loshchilov and Hutter, ICLR 2019).",
  "optim.AdamW { lr = 3e-4, { \"*.bias\", weight_decay = 0 } }",
  { of = "Adam.weight_decay", default = 0.01, doc = "times lr w, taken from w" }), adam(true))

--- An optimizer of two moments whose op has its name.
local function of_moments(name, doc, rate)
  optim[name] = maker(name, { doc = doc, example = ("optim.%s { lr = %g }"):format(name, rate),
    { "lr", "number", rate, min = 0, doc = "learning rate" },
    { of = name .. ".beta1", below = 1 },
    { of = name .. ".beta2", below = 1 },
    { of = name .. ".eps" },
    { of = name .. ".weight_decay" } }, function(s, net, w, g, lr)
      local m, v, t = moments(net, w)
      net:op(name, { w, g, lr, m, v, t }, { w, m, v, t }, attrs_of(s, name))
    end)
end
of_moments("Adamax", "Adam by the largest gradient, in place of the mean square.", 2e-3)
of_moments("Radam", "Adam that waits until the variance of gradients is known (Liu et al., 2020).",
  1e-3)

optim.Nadam = maker("Nadam", {
  doc = "Adam with Nesterov's momentum (Dozat 2016).", example = "optim.Nadam { lr = 2e-3 }",
  { "lr", "number", 2e-3, min = 0, doc = "learning rate" },
  { of = "Nadam.beta1", below = 1 },
  { of = "Nadam.beta2", below = 1 },
  { of = "Nadam.eps" },
  { of = "Nadam.weight_decay" },
  { of = "Nadam.momentum_decay" } }, function(s, net, w, g, lr)
    local m, v, t = moments(net, w)
    local p = state(net, w, "p", {}, "f64", 1)
    net:op("Nadam", { w, g, lr, m, v, t, p }, { w, m, v, t, p }, attrs_of(s, "Nadam"))
  end)

--- The norm of a blob, a scalar of its dtype.
local function norm(net, x)
  return net:op("GradNorm", { x }, { net:fresh_name(x.name .. "_norm") }, {})
end

--- |w| / |step|, 1 where one of the two is 0: what layer-wise rates are multiplied by.
local function trust(net, w_norm, step_norm)
  local both = w_norm:gt(0):logical_and(step_norm:gt(0))
  return net:Where { both, w_norm / net:Where { both, step_norm, step_norm + 1 }, w_norm * 0 + 1 }
end

--- A scalar in the dtype asked for.
local function as(factor, dtype) return factor.dtype == dtype and factor or factor:to(dtype) end

--- x scaled by a scalar of any dtype.
local function scaled_by(x, factor) return x * as(factor, x.dtype) end

optim.Lamb = maker("Lamb", {
  doc = [[Adam's step, scaled for each parameter so that it is as long as the parameter itself,
    times the rate: for large batches (You et al., ICLR 2020).]],
  example = "optim.Lamb { lr = 1e-3, weight_decay = 0.01 }",
  { "lr", "number", 1e-3, min = 0, doc = "learning rate" },
  { of = "Adam.beta1", below = 1 },
  { of = "Adam.beta2", below = 1 },
  { "eps", "number", 1e-6, above = 0, doc = "keeps the divisor above 0" },
  { of = "Adam.weight_decay", doc = "times w, added to the step before it is scaled" },
}, function(s, net, w, g, lr)
    local m, v, t = state(net, w, "m"), state(net, w, "v"), state(net, w, "t", {}, "f32")

    -- Moments as in Adam, in ops: the step is needed before it is scaled, which the op Adam does
    -- not give.
    local m_new, v_new = m * s.beta1 + g * (1 - s.beta1), v * s.beta2 + g * g * (1 - s.beta2)
    local t_new = t + 1
    local function bias(beta) -- 1 / (1 - beta^t)
      return beta == 0 and t_new * 0 + 1 or 1 / (1 - (t_new * math.log(beta)):exp())
    end
    local root = scaled_by(v_new, bias(s.beta2)):sqrt() + s.eps
    local step = scaled_by(m_new, bias(s.beta1)) / root
    if s.weight_decay ~= 0 then step = step + w * s.weight_decay end

    -- As long as the parameter, times the rate.
    local rate = lr * as(trust(net, norm(net, w), norm(net, step)), lr.dtype)

    -- State is written behind all that reads it.
    for _, pair in ipairs { { m_new, m }, { v_new, v }, { t_new, t } } do
      net:op("Copy", { pair[1] }, { pair[2] }, {})
    end
    net:op("Sgd", { w, step, rate }, { w }, {})
  end)

optim.Lars = maker("Lars", {
  doc = [[SGD with momentum whose gradient is scaled for each parameter by eta |w| / |gradient|: for
    large batches (You et al., 2017).]],
  example = "optim.Lars { lr = 1, weight_decay = 1e-4, { \"*.bias\", weight_decay = 0 } }",
  { "lr", "number", required = true, min = 0, doc = "learning rate" },
  { "eta", "number", 1e-3, above = 0, doc = "how long a step is, in lengths of the parameter" },
  { of = "Sgd.momentum", below = 1, default = 0.9 },
  { of = "Sgd.nesterov" },
  { of = "Sgd.weight_decay" },
}, function(s, net, w, g, lr)
    if s.weight_decay ~= 0 then g = g + w * s.weight_decay end
    local factor = trust(net, norm(net, w), norm(net, g)) * s.eta
    local attrs, step = { momentum = s.momentum, nesterov = s.nesterov }, scaled_by(g, factor)
    if s.momentum == 0 then return net:op("Sgd", { w, step, lr }, { w }, attrs) end
    local m = state(net, w, "momentum")
    net:op("Sgd", { w, step, lr, m }, { w, m }, attrs)
  end)

optim.Lion = maker("Lion", {
  doc = [[The sign of a mean of gradients, times the rate (Chen et al., 2023); rates are some ten
    times smaller than Adam's.]], example = "optim.Lion { lr = 1e-4, weight_decay = 0.1 }",
  { "lr", "number", 1e-4, min = 0, doc = "learning rate" },
  { of = "Lion.beta1", below = 1 },
  { of = "Lion.beta2", below = 1 },
  { of = "Lion.weight_decay" } }, function(s, net, w, g, lr)
    local m = state(net, w, "m")
    net:op("Lion", { w, g, lr, m }, { w, m }, attrs_of(s, "Lion"))
  end)

optim.Adafactor = maker("Adafactor", {
  doc = [[Second moments of matrices by their rows and columns alone, steps as long as the parameter
    says (Shazeer and Stern, ICML 2018), as in PyTorch: memory of a vector for each matrix.]],
  example = "optim.Adafactor { lr = 0.01 }",
  { "lr", "number", 0.01, min = 0, doc = "length of a step, in sizes of the parameter, at most" },
  { "decay", "number", 0.8, above = 0, max = 1,
    doc = "the second moment takes t^-decay of step t's" },
  { "least", "number", 1e-3, min = 0, doc = "what a parameter's size is at least taken for" },
  { "bound", "number", 1, above = 0, doc = "of the root mean square of a step, before its rate" },
  { "weight_decay", "number", 0, min = 0, doc = "times lr w, taken from w" },
}, function(s, net, w, g, lr)
    -- share = t^-decay: the second moment takes all of the first step's, and less and less later.
    local rounding = w.dtype == "f64" and 2 ^ -52 or 2 ^ -23
    local t = state(net, w, "t", {}, "f32")
    local t_new = t + 1
    local share = (t_new:log() * -s.decay):exp()
    local function moved(suffix, shape, value)
      local v = state(net, w, suffix, shape)
      local new = v + scaled_by(value - v, share)
      net:op("Copy", { new }, { v }, {})
      return new
    end

    -- A matrix keeps the means of its rows and of its columns; their product over the mean of all
    -- stands for the matrix of second moments.
    local shape, rank, square = w.shape, #w.shape, g:square()
    local variance
    if rank > 1 then
      local rows, columns = table.move(shape, 1, rank, 1, {}), table.move(shape, 1, rank, 1, {})
      rows[rank], columns[rank - 1] = 1, 1
      local r = moved("rows", rows, square:mean { axes = { -1 }, keepdim = true })
      local c = moved("columns", columns, square:mean { axes = { -2 }, keepdim = true })
      variance = r * c / r:mean({ axes = { -2 }, keepdim = true }):maximum(rounding)
    else
      variance = moved("v", shape, square)
    end

    -- The step's own size is bounded, then it is scaled by the parameter's.
    local step = g / variance:maximum(rounding ^ 2):sqrt()
    local function rms(x) return x:square():mean():sqrt():to "f32" end
    local rate = lr:minimum(1 / t_new:sqrt()) * rms(w):maximum(s.least)
      / (rms(step) / s.bound):maximum(1)
    local kept = s.weight_decay > 0 and w - scaled_by(w, lr * s.weight_decay) or w
    net:op("Copy", { t_new }, { t }, {})
    net:op("Copy", { kept - scaled_by(step, rate) }, { w }, {})
  end)

optim.RmsProp = maker("RmsProp", {
  doc = "RMSProp (Hinton 2012), as in PyTorch.", example = "optim.RmsProp { lr = 1e-3 }",
  { "lr", "number", 1e-2, min = 0, doc = "learning rate" },
  { of = "RmsProp.alpha", below = 1 },
  { of = "RmsProp.eps" },
  { of = "RmsProp.momentum", below = 1 },
  { of = "RmsProp.weight_decay" },
  { "centered", "boolean", false, doc = "divide by the variance, in place of the mean square" },
}, function(s, net, w, g, lr)
    local v = state(net, w, "v")
    local m = (s.momentum > 0 or s.centered) and state(net, w, "momentum") or nil
    local mean = s.centered and state(net, w, "mean") or nil
    net:op("RmsProp", { w, g, lr, v, m, mean }, { w, v, m, mean }, attrs_of(s, "RmsProp"))
  end)

optim.Adagrad = maker("Adagrad", {
  doc = "Adagrad (Duchi et al., JMLR 2011).", example = "optim.Adagrad { lr = 0.01 }",
  { "lr", "number", 1e-2, min = 0, doc = "learning rate" },
  { of = "Adagrad.lr_decay" },
  { of = "Adagrad.eps" },
  { of = "Adagrad.weight_decay" },
  { "start", "number", 0, min = 0, doc = "what the sums of squares begin with" },
}, function(s, net, w, g, lr)
    local v = state(net, w, "v", nil, nil, s.start)
    local t = state(net, w, "t", {}, "i64")
    net:op("Adagrad", { w, g, lr, v, t }, { w, v, t }, attrs_of(s, "Adagrad"))
  end)

optim.Adadelta = maker("Adadelta", {
  doc = "Adadelta (Zeiler 2012).", example = "optim.Adadelta {}",
  { "lr", "number", 1, min = 0, doc = "learning rate" },
  { of = "Adadelta.rho", below = 1 },
  { of = "Adadelta.eps" },
  { of = "Adadelta.weight_decay" } }, function(s, net, w, g, lr)
    local v, d = state(net, w, "v"), state(net, w, "d")
    net:op("Adadelta", { w, g, lr, v, d }, { w, v, d }, attrs_of(s, "Adadelta"))
  end)

optim.Rprop = maker("Rprop", {
  doc = "Resilient backpropagation (Riedmiller and Braun, 1993), for whole batches.",
  example = "optim.Rprop { lr = 0.01 }",
  { "lr", "number", 1e-2, min = 0, doc = "rate of every element at the first step" },
  { of = "Rprop.shrink" },
  { of = "Rprop.grow" },
  { of = "Rprop.least" },
  { of = "Rprop.most" } }, function(s, net, w, g, lr)
    local size, before = state(net, w, "s"), state(net, w, "before")
    local t = state(net, w, "t", {}, "i64")
    net:op("Rprop", { w, g, lr, size, before, t }, { w, size, before, t }, attrs_of(s, "Rprop"))
  end)

optim.LBFGS = maker("LBFGS", {
  doc = [[Newton's step as gradients of the last steps say it (Liu and Nocedal, 1989), for losses
    of all data at once: every step sees the same batch, and nothing is drawn; it takes no micro and
    no accumulate. A step of training
    is one look at the loss: where that has not fallen as the slope promised, the next one is
    shorter, in the same direction.]],
  { "lr", "number", 1, min = 0, doc = "length of the steps that are tried first" },
  { "history", "integer", 10, min = 1, max = 1000, doc = "steps that are remembered" },
  { "search", "boolean", true, doc = "whether steps are shortened; false: all are as long as lr" },
  example = "optim.LBFGS { history = 20 }" }, nil, require "neap.optim.lbfgs")

for name, make in pairs(require "neap.optim.schedules") do optim[name] = make end

require("neap.inner.guard").functions(Optimizer, "optim:")
return setmetatable(require("neap.inner.guard").functions(optim, "optim."), {
  __index = function(_, key)
    missing.fail("optim", key, missing.names(optim))
  end,
})
