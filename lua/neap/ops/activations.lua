--- Activations and normalisations of one dimension that are made of others.
-- @module neap.ops.activations
local compose = require "neap.ops.compose"
local core = require "neap.core"
local kit = require "neap.ops.kit"
local op = require "neap.op"

local axis = { "axis", "axis", -1, doc = "the dimension" }

--- Uniform numbers like x, drawn anew in each run.
local function uniform(x, low, high)
  local attrs = { shape = x.shape, dtype = x.dtype, low = low, high = high }
  if op.is_blob(x) then return (op.net_of(x):op("Uniform", {}, 1, attrs)) end
  return (core.eager("Uniform", {}, attrs))
end

local function activation(spec)
  spec.inputs = spec.inputs or { { "x", "any shape" } }
  spec.outputs = spec.outputs or { { "y", "shape of x" } }
  spec.example = spec.example or ('net:%s("x", "y")'):format(spec[1])
  spec.cases = spec.cases or "{ {x={3,4}}, {x={2,4,3}, axis=2} }"
  compose.define(spec)
end

activation { "Glu",
  summary = "Gated linear unit: one half of a dimension times the logistic function of the other.",
  math = "y = a sigmoid(b), x = (a, b)",
  source = "torch.nn.functional.glu; Dauphin et al., ICML 2017",
  outputs = { { "y", "shape of x, that dimension halved" } },
  axis,
  of = function(o, x)
    local d = kit.axis("Glu", x, o.axis)
    if x.shape[d] % 2 ~= 0 then
      core.fail(("Glu: dimension %d is %d, which has no halves"):format(d, x.shape[d]))
    end
    local a, b = x:split { axis = d, outputs = 2 }
    return a * b:sigmoid()
  end }

activation { "Softmin",
  summary = "Softmax of the negated elements: the smallest weighs most.",
  math = "y_i = exp(-x_i) / sum exp(-x_j)",
  source = "torch.nn.functional.softmin",
  axis,
  of = function(o, x) return (-x):softmax { axis = o.axis } end }

activation { "Hardmax", no_grad = true,
  summary = "1 at the largest element along a dimension, the first of equals, 0 elsewhere.",
  math = "y_i = i == argmax x",
  source = "ONNX Hardmax-13",
  nan = "decides", special = "a NaN is larger than all numbers",
  axis,
  of = function(o, x)
    local d = kit.axis("Hardmax", x, o.axis)
    return x:arg_max({ axis = d }):one_hot { depth = x.shape[d], axis = d, dtype = x.dtype }
  end }

activation { "GumbelSoftmax",
  summary = "Softmax of logits with Gumbel noise: a class drawn at random, as soft as tau says.",
  math = "y = softmax((x + g) / tau), g = -log(-log u), u ~ U(0, 1)",
  source = "torch.nn.functional.gumbel_softmax; Jang et al., ICLR 2017",
  { "tau", "number", 1, above = 0, doc = "the temperature" },
  { "hard", "boolean", false,
    doc = "1 at the class drawn and 0 elsewhere, with the gradient of the soft one" },
  { "noise", "boolean", true, doc = "false: softmax at that temperature, to evaluate with" },
  axis,
  cases = "{ {x={3,4}, noise=false, tau=0.5}, "
    .. "{x={2,4,3}, axis=2, hard=true, noise=false, grad=false} }",
  of = function(o, x)
    if o.noise then x = x - (-uniform(x, 0x1p-24, 1):log()):log() end -- never 0
    local soft = (x * (1 / o.tau)):softmax { axis = o.axis }
    if not o.hard then return soft end
    local d = kit.axis("GumbelSoftmax", x, o.axis)

    -- The value is the hard one; its gradient is that of the soft one, since the difference passes
    -- none.
    local hard = soft:arg_max({ axis = d })
      :one_hot { depth = x.shape[d], axis = d, dtype = x.dtype }
    return (hard - soft):stop_gradient() + soft
  end }

activation { "RRelu",
  summary = "Leaky ReLU whose slopes below 0 are drawn, one an element, or their mean.",
  math = "y = x >= 0 ? x : a x, a ~ U(low, high)",
  source = "torch.nn.functional.rrelu; Xu et al., 2015",
  { "low", "number", 1 / 8, doc = "least slope" },
  { "high", "number", 1 / 3, doc = "largest slope" },
  { "training", "boolean", false, doc = "whether slopes are drawn" },
  cases = "{ {x={3,4}}, {x={3,4}, low=0.1, high=0.2} }",
  of = function(o, x)
    local slope = o.training and uniform(x, o.low, o.high) or (o.low + o.high) / 2
    return kit.where(x:ge(0), x, x * slope)
  end }

activation { "TanhShrink",
  summary = "Each element less its hyperbolic tangent.",
  math = "y = x - tanh(x)",
  source = "torch.nn.functional.tanhshrink",
  cases = "{ {x={3,4}} }",
  of = function(_, x) return x - x:tanh() end }

activation { "LogAddExp",
  summary = "Logarithm of the sum of two exponentials, with broadcasting, without overflow.",
  math = "y = log(exp(a) + exp(b))",
  source = "torch.logaddexp",
  example = 'net:LogAddExp({"a", "b"}, "y")',
  inputs = { { "a", "any shape" }, { "b", "broadcasts with a" } },
  outputs = { { "y", "broadcast shape" } },
  cases = "{ {a={3,4}, b={4}}, {a={3,4}, b={3,4}} }",
  -- Two infinities of one sign are that infinity: their difference would be NaN.
  of = function(_, a, b)
    local same = a:eq(b)
    local d = kit.where(same, 0, a:sub(b))
    return a:maximum(b) + (-d:abs()):exp():log1p()
  end }

activation { "LpNormalization",
  summary = "Divides by the p-norm along a dimension; a vector of zeros stays so.",
  math = "y = x / max(|x|_p, eps)",
  source = "ONNX LpNormalization-22, torch.nn.functional.normalize",
  example = 'net:LpNormalization("x", "y", {axis = -1})',
  axis,
  { "p", "number|choice", 2, min = 0, choices = { "inf" }, doc = "the power" },
  { "eps", "number", 1e-12, above = 0, doc = "what the norm is at least taken for" },
  cases = "{ {x={3,4}}, {x={2,4,3}, axis=2, p=1} }",
  of = function(o, x)
    return x / x:norm({ axes = { o.axis }, p = o.p, keepdim = true }):maximum(o.eps)
  end }

-- ---- dropouts -----------------------------------------------------------------------------------

local rate = { "rate", "number", 0.5, min = 0, below = 1, doc = "probability of being dropped" }

--- 1 / (1 - rate) where something stays, 0 where it is dropped: one draw for all elements of x that
-- lie behind the first `n_dim` dimensions.
local function kept(name, o, x, n_dim)
  if #x.shape < n_dim then
    core.fail(("%s: x (%s) has less than %d dimensions"):format(name,
      table.concat(x.shape, ","), n_dim))
  end

  -- One element for each draw, which broadcasts over the rest.
  local sizes = {}
  for d, size in ipairs(x.shape) do sizes[d] = d <= n_dim and size or 1 end
  return (kit.zeros(x, sizes) + 1):dropout { rate = o.rate, training = true }
end

compose.define { "ChannelDropout",
  summary = "Drops whole channels at random, and scales the others by 1 / (1 - rate).",
  math = "y = x mask / (1 - rate), one draw a channel",
  example = "net:ChannelDropout(\"x\", \"y\", {rate = 0.2})",
  source = "torch.nn.Dropout2d; Tompson et al., CVPR 2015",
  inputs = { { "x", "(N,C,..)" } }, outputs = { { "y", "shape of x" } }, rate,
  cases = "{ {x={2,3,4}, rate=0}, {x={2,3}, rate=0} }",
  of = function(o, x) return x * kept("ChannelDropout", o, x, 2) end }

compose.define { "DropPath",
  summary = "Stochastic depth: drops whole examples, and scales the others by 1 / (1 - rate).",
  math = "y = x mask / (1 - rate), one draw an example, or one for the batch",
  example = "net:DropPath(\"x\", \"y\", {rate = 0.2})",
  source = "torchvision.ops.stochastic_depth; Huang et al., ECCV 2016",
  inputs = { { "x", "(N,..)" } }, outputs = { { "y", "shape of x" } }, rate,
  { "batch", "boolean", false, doc = "one draw for all examples" },
  cases = "{ {x={2,3,4}, rate=0}, {x={2}, rate=0, batch=true} }",
  of = function(o, x) return x * kept("DropPath", o, x, o.batch and 0 or 1) end }

compose.define { "AlphaDropout",
  summary = "Dropout for SELU: what is dropped takes SELU's lowest value, mean and variance stay.",
  math = "y = a (x mask + alpha (1 - mask)) + b, alpha = -1.7581, a and b by the rate",
  example = "net:AlphaDropout(\"x\", \"y\", {rate = 0.1})",
  source = "torch.nn.AlphaDropout; Klambauer et al., NeurIPS 2017",
  inputs = { { "x", "any shape; (N,C,..) by channels" } },
  outputs = { { "y", "shape of x" } }, rate,
  { "channels", "boolean", false, doc = "whole channels are dropped" },
  cases = "{ {x={2,3,4}, rate=0}, {x={2,3,4}, rate=0, channels=true} }",
  of = function(o, x)
    -- The value that SELU goes to far below 0; a and b bring mean and variance back to 0 and 1.
    local alpha = -1.7580993408473766
    local a = ((1 - o.rate) * (1 + o.rate * alpha ^ 2)) ^ -0.5
    local mask = kept("AlphaDropout", o, x, o.channels and 2 or #x.shape) * (1 - o.rate)
    return (x * mask + (1 - mask) * alpha) * a - a * alpha * o.rate
  end }
