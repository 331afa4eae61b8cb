--- Losses made of elementwise ops and a reduction. Each is computed element by element, or row by
-- row, and reduced in one place.
-- @module neap.ops.losses
local compose = require "neap.ops.compose"
local core = require "neap.core"
local kit = require "neap.ops.kit"

local where, fail = kit.where, core.fail

local reduction = { "reduction", "choice", "mean", choices = { "mean", "sum", "none" },
  doc = "what becomes of the terms: their mean, their sum, or nothing" }

local function reduce(o, terms)
  if o.reduction == "none" then return terms end
  if o.reduction == "batchmean" then return terms:sum() * (1 / terms.shape[1]) end
  return o.reduction == "sum" and terms:sum() or terms:mean()
end

--- Defines a loss. `rows`: its second input has not the shape of the first.
-- @param spec as of compose.define; `terms(o, ..)` gives what is reduced
local function loss(spec)
  local terms, name = spec.terms, spec[1]
  spec.inputs = spec.inputs or { { "x", "prediction" }, { "target", "shape of x" } }
  if terms then
    spec.of = function(o, x, target, ...)
      -- As many targets as predictions: (n) beside (n,1) would be compared pair by pair.
      if not spec.rows then
        kit.same_shape(name, x, target, spec.inputs[1][1], spec.inputs[2][1])
      end
      return reduce(o, terms(o, x, target, ...))
    end
  end
  spec[#spec + 1] = spec.reduction or reduction
  spec.outputs = { { "loss", "scalar; the terms for none" } }
  local names = {}
  for i, input in ipairs(spec.inputs) do
    if not input.optional then names[i] = ('"%s"'):format(input[1]) end
  end
  spec.example = spec.example or ('net:%s({%s}, "loss")'):format(spec[1], table.concat(names, ", "))
  compose.define(spec)
end

local pair = "{ {x={4,5}, target={4,5}}, {x={4,5}, target={4,5}, reduction='sum'}, "
  .. "{x={3,7}, target={3,7}, reduction='none'} }"

-- ---- distances ----------------------------------------------------------------------------------

loss { "HuberLoss",
  summary = "Half the squared difference near the target, delta times the distance farther off.",
  math = "|d| <= delta: d^2 / 2, else delta (|d| - delta / 2), d = x - target",
  source = "torch.nn.HuberLoss; Huber 1964",
  cases = pair,
  { "delta", "number", 1, above = 0, doc = "where the square goes over into the distance" },
  terms = function(o, x, target)
    -- m d - m^2 / 2, m the part of d up to delta: no branch that overflows where it isn't taken
    local d = (x - target):abs()
    local m = d:minimum(o.delta)
    return m * (d - m * 0.5)
  end }

loss { "SmoothL1Loss",
  summary = "The squared difference near the target, the distance farther off.",
  math = "|d| < beta: d^2 / (2 beta), else |d| - beta / 2, d = x - target",
  source = "torch.nn.SmoothL1Loss; Girshick, ICCV 2015",
  cases = pair,
  { "beta", "number", 1, min = 0, doc = "where the square goes over; 0: the distance alone" },
  terms = function(o, x, target)
    local d = (x - target):abs()
    if o.beta == 0 then return d end
    local m = d:minimum(o.beta)
    return m * (d - m * 0.5) * (1 / o.beta)
  end }

-- ---- probabilities ------------------------------------------------------------------------------

local weight = { "weight", "broadcasts with x: factors of the terms", optional = true }

--- Raises where factors would make more terms than x has.
local function check_factor(name, x, factors, what)
  local n, more = #x.shape, factors and #factors.shape - #x.shape or 0
  local fits = more <= 0
  for d = 1, fits and factors and #factors.shape or 0 do
    local size = factors.shape[d]
    fits = fits and (size == 1 or size == x.shape[n - #factors.shape + d])
  end
  if not fits then
    fail(("%s: %s (%s) does not broadcast to x (%s)"):format(name, what,
      table.concat(factors.shape, ","), table.concat(x.shape, ",")))
  end
end

--- The logarithm, -100 at 0, where its slope is large and finite: 1e12, as PyTorch has it.
local function bounded_log(p)
  local none = p:le(0)
  return where(none, p * 1e12 - 100, where(none, 1, p):log():maximum(-100))
end

loss { "BceLoss",
  summary = "Binary cross-entropy of probabilities; logarithms are at least -100, as in PyTorch.",
  math = "-(target log x + (1 - target) log(1 - x))",
  source = "torch.nn.BCELoss",
  inputs = { { "x", "probabilities" }, { "target", "shape of x, 0 to 1" }, weight },
  cases = "{ {x={{4,5}, low=0.1, high=0.9}, target={{4,5}, low=0, high=1}}, {x={{4,5}, low=0.1, "
    .. "high=0.9}, target={{4,5}, low=0, high=1}, weight={5}, reduction='sum'} }",
  terms = function(_, x, target, factors)
    check_factor("BceLoss", x, factors, "weight")
    local terms = -(target * bounded_log(x) + (1 - target) * bounded_log(1 - x))
    return factors and terms * factors or terms
  end }

loss { "BceWithLogitsLoss",
  summary = "Binary cross-entropy of logits, computed without overflow.",
  math = "(1 - target) x + (1 + (pos_weight - 1) target) softplus(-x)",
  source = "torch.nn.BCEWithLogitsLoss",
  inputs = { { "x", "logits" }, { "target", "shape of x, 0 to 1" }, weight,
    { "pos_weight", "broadcasts with x: factors of the positive class", optional = true } },
  cases = "{ {x={4,5}, target={{4,5}, low=0, high=1}}, {x={4,5}, target={{4,5}, low=0, high=1}, "
    .. "weight={4,1}, pos_weight={5}, reduction='sum'} }",
  terms = function(_, x, target, factors, positive)
    check_factor("BceWithLogitsLoss", x, factors, "weight")
    check_factor("BceWithLogitsLoss", x, positive, "pos_weight")
    local log = (-x):softplus()
    if positive then log = log * ((positive - 1) * target + 1) end
    local terms = (1 - target) * x + log
    return factors and terms * factors or terms
  end }

--- t log t, whose limit at 0 is 0.
local function t_log_t(t)
  local zero = t:eq(0)
  return where(zero, 0, t * where(zero, 1, t):log())
end

loss { "KlDivLoss",
  summary = "Kullback-Leibler divergence of a target from logarithms of probabilities.",
  math = "target (log target - x)",
  source = "torch.nn.KLDivLoss",
  inputs = { { "x", "logarithms of probabilities" },
    { "target", "shape of x: probabilities, or their logarithms with log_target" } },
  cases = "{ {x={4,5}, target={{4,5}, low=0.1, high=1}}, "
    .. "{x={4,5}, target={4,5}, log_target=true, reduction='sum'} }",
  reduction = { "reduction", "choice", "mean", choices = { "mean", "batchmean", "sum", "none" },
    doc = "what becomes of the terms: their mean, their sum over the rows, their sum, or nothing" },
  { "log_target", "boolean", false, doc = "whether the target is of logarithms" },
  terms = function(o, x, target)
    if o.log_target then return target:exp() * (target - x) end
    return t_log_t(target) - target * x
  end }

loss { "PoissonNllLoss",
  summary = "Negative log-likelihood of counts under a Poisson distribution.",
  math = "exp(x) - target x; without log_input x - target log(x + eps)",
  source = "torch.nn.PoissonNLLLoss",
  inputs = { { "x", "logarithm of the rate, or the rate" }, { "target", "shape of x: counts" } },
  cases = "{ {x={4,5}, target={{4,5}, low=0, high=3}}, {x={{4,5}, low=0.5, high=2}, "
    .. "target={{4,5}, low=2, high=5}, log_input=false, full=true, reduction='sum'} }",
  { "log_input", "boolean", true, doc = "whether x is the logarithm of the rate" },
  { "full", "boolean", false, doc = "add Stirling's term for the factorial of counts above 1" },
  { "eps", "number", 1e-8, above = 0, doc = "keeps the logarithm of a rate of 0 finite" },
  terms = function(o, x, target)
    local terms = o.log_input and x:exp() - target * x or x - target * (x + o.eps):log()
    if not o.full then return terms end
    local above = target:gt(1)
    local t = where(above, target, 2)
    return terms + where(above, t * t:log() - t + (t * (2 * math.pi)):log() * 0.5, 0)
  end }

loss { "GaussianNllLoss",
  summary = "Negative log-likelihood of a target under a normal distribution.",
  math = "(log v + (x - target)^2 / v) / 2, v = max(variance, eps)",
  source = "torch.nn.GaussianNLLLoss",
  inputs = { { "x", "mean" }, { "target", "shape of x" },
    { "variance", "broadcasts with x" } },
  cases = "{ {x={4,5}, target={4,5}, variance={{4,5}, low=0.5, high=2}}, {x={4,5}, target={4,5}, "
    .. "variance={{4,1}, low=0.5, high=2}, full=true, reduction='sum'} }",
  { "full", "boolean", false, doc = "add the constant log(2 pi) / 2" },
  { "eps", "number", 1e-6, above = 0, doc = "what the variance is at least taken for" },
  terms = function(o, x, target, variance)
    -- The bound is no part of the gradient: a variance below it moves on.
    local low = variance:lt(o.eps)
    local v = where(low, variance - (variance - o.eps):stop_gradient(), variance)
    local terms = (v:log() + (x - target):square() / v) * 0.5
    return o.full and terms + 0.5 * math.log(2 * math.pi) or terms
  end }

-- ---- classes ------------------------------------------------------------------------------------

--- The classes that labels name, as numbers: those that are none are out of every range. Raises
-- unless labels are (n, ..) beside x (n, classes, ..).
local function classes_of(name, x, labels)
  local want = {}
  for d = 1, #x.shape - 1 do want[d] = x.shape[d == 1 and 1 or d + 1] end
  if #x.shape < 2 or table.concat(want, ",") ~= table.concat(labels.shape, ",") then
    fail(("%s: x is (%s), labels (%s): expected (n, classes, ..) and (n, ..)"):format(name,
      table.concat(x.shape, ","), table.concat(labels.shape, ",")))
  end

  -- A negative label is none: it becomes one that is too large, which gathers refuse.
  local class = labels:to "i64"
  return where(class:lt(0), x.shape[2], class)
end

--- Raises unless weights are one for each class of x.
local function check_classes(name, x, factors)
  if factors and (#factors.shape ~= 1 or factors.shape[1] ~= x.shape[2]) then
    fail(("%s: weight is (%s), expected (%s), one a class"):format(name,
      table.concat(factors.shape, ","), tostring(x.shape[2])))
  end
end

local labels = { "labels", "(n, ..), counted from 0", dtypes = "integer" }

loss { "NllLoss",
  summary = "Negative log-likelihood of labels under logarithms of probabilities.",
  math = "-weight_label x_label; the mean is over the weights",
  source = "ONNX NegativeLogLikelihoodLoss-13, torch.nn.NLLLoss",
  inputs = { { "x", "(n, classes, ..): logarithms of probabilities" }, labels,
    { "weight", "(classes): factors of the terms", optional = true } },
  cases = "{ {x={4,5}, labels={{4}, low=0, high=5}}, {x={2,3,4}, labels={{2,4}, low=0, high=3}, "
    .. "weight={{3}, low=0.5, high=1.5}}, {x={4,5}, labels={{4}, low=0, high=5}, ignore_index=2, "
    .. "reduction='none'} }",
  { "ignore_index", "integer", unset = "no label", doc = "the label of what does not count" },
  of = function(o, x, label, factors)
    check_classes("NllLoss", x, factors)
    -- What does not count is looked up as class 0, and left out behind it.
    local counts = o.ignore_index and label:ne(o.ignore_index)
    local class = classes_of("NllLoss", x, counts and where(counts, label, 0) or label)
    local terms = -x:gather_elements(class:unsqueeze { axes = { 2 } }, { axis = 2 })
      :squeeze { axes = { 2 } }
    local share = factors and factors:gather(class)
    if share then terms = terms * share end
    if counts then terms = where(counts, terms, 0) end

    -- The mean is over the weights of what counts, not over the rows.
    if o.reduction ~= "mean" then return o.reduction == "sum" and terms:sum() or terms end
    if not share and not counts then return terms:mean() end
    local weights = share or counts:to(x.dtype)
    return terms:sum() / (share and counts and where(counts, share, 0) or weights):sum()
  end }

loss { "MultiMarginLoss",
  summary = "Hinge loss of classes: how far others come within the margin of the label's.",
  math = "sum_j max(0, margin - x_label + x_j)^p / classes, j != label",
  source = "torch.nn.MultiMarginLoss",
  rows = true,
  inputs = { { "x", "(n, classes)" }, { "labels", "(n), counted from 0", dtypes = "integer" },
    { "weight", "(classes): factors of the rows, by their labels", optional = true } },
  cases = "{ {x={4,5}, labels={{4}, low=0, high=5}, weight={{5}, low=0.5, high=1.5}}, "
    .. "{x={4,5}, labels={{4}, low=0, high=5}, p=2, margin=0.5, reduction='none'} }",
  { "p", "integer", 1, min = 1, max = 2, doc = "the power" },
  { "margin", "number", 1, doc = "the distance that is asked for" },
  terms = function(o, x, label, factors)
    local class = classes_of("MultiMarginLoss", x, label)
    local at = class:unsqueeze { axes = { 2 } }
    check_classes("MultiMarginLoss", x, factors)
    local own = at:eq(kit.range(x, x.shape[2]))
    local at_label = x:gather_elements(at, { axis = 2 })

    -- Every class but the label's own that comes within the margin.
    local over = where(own, 0, (x - at_label + o.margin):relu())
    local terms = (o.p == 2 and over:square() or over):sum { axes = { 2 } } * (1 / x.shape[2])
    return factors and terms * factors:gather(class) or terms
  end }

loss { "MultilabelMarginLoss",
  summary = "Hinge loss of several labels a row: how far other classes come within 1 of theirs.",
  math = "sum_ij max(0, 1 - x_label_j + x_i) / classes, i no label",
  source = "torch.nn.MultiLabelMarginLoss",
  rows = true,
  inputs = { { "x", "(n, classes)" },
    { "labels", "(n, classes): labels from 0 in front, then -1", dtypes = "integer" } },
  cases = "{ {x={4,5}, labels={{4,5}, low=-1, high=5}}, "
    .. "{x={3,4}, labels={{3,4}, low=-1, high=4}, reduction='none'} }",
  terms = function(_, x, label)
    kit.same_shape("MultilabelMarginLoss", x, label, "x", "labels")
    if #x.shape ~= 2 then fail "MultilabelMarginLoss: x expects (n, classes)" end
    local n, classes = x.shape[1], x.shape[2]
    local class = label:to "i64"
    -- The first that is none ends the list.
    local counts = class:ge(0):to("i64"):cum_prod({ axis = 2 }):gt(0)
    class = where(counts, class, 0)

    -- hit (n, labels, classes): whether a label that counts is a class.
    local hit = class:unsqueeze({ axes = { 3 } }):eq(kit.range(x, classes))
      :logical_and(counts:unsqueeze { axes = { 3 } })
    local is_label = hit:any { axes = { 2 } }
    local at_label = x:gather_elements(class, { axis = 2 })

    -- How far each class that is no label comes within 1 of each label, (n, labels, classes).
    local over = (1 - at_label:unsqueeze { axes = { 3 } } + x:reshape(n, 1, classes)):relu()
    local both = counts:unsqueeze({ axes = { 3 } }):logical_and(
      is_label:logical_not():reshape(n, 1, classes))
    return where(both, over, 0):sum({ axes = { 2, 3 } }) * (1 / classes)
  end }

loss { "MultilabelSoftMarginLoss",
  summary = "Binary cross-entropy of logits, a mean over the classes of each row.",
  math = "mean_j target_j softplus(-x_j) + (1 - target_j) softplus(x_j)",
  source = "torch.nn.MultiLabelSoftMarginLoss",
  inputs = { { "x", "(.., classes): logits" }, { "target", "shape of x, 0 or 1" }, weight },
  cases = "{ {x={4,5}, target={{4,5}, low=0, high=1}, weight={5}}, "
    .. "{x={4,5}, target={{4,5}, low=0, high=1}, reduction='none'} }",
  terms = function(_, x, target, factors)
    local terms = (1 - target) * x + (-x):softplus()
    check_factor("MultilabelSoftMarginLoss", x, factors, "weight")
    return (factors and terms * factors or terms):mean { axes = { -1 } }
  end }

loss { "SoftMarginLoss",
  summary = "Logistic loss of targets 1 and -1.",
  math = "log(1 + exp(-target x))",
  source = "torch.nn.SoftMarginLoss",
  inputs = { { "x", "prediction" }, { "target", "shape of x: 1 or -1" } },
  cases = pair,
  terms = function(_, x, target) return (-(target * x)):softplus() end }

loss { "HingeLoss",
  summary = "Hinge loss of targets 1 and -1: how far the prediction is within the margin.",
  math = "max(0, margin - target x)",
  source = "keras.losses.Hinge",
  inputs = { { "x", "prediction" }, { "target", "shape of x: 1 or -1" } },
  cases = pair,
  { "margin", "number", 1, doc = "the distance that is asked for" },
  terms = function(o, x, target) return (o.margin - target * x):relu() end }

loss { "HingeEmbeddingLoss",
  summary = "A distance where the target is 1, what it lacks to the margin where it is -1.",
  math = "target = 1: x, else max(0, margin - x)",
  source = "torch.nn.HingeEmbeddingLoss",
  nan = "decides", special = "a NaN in target is none of 1: as -1",
  inputs = { { "x", "distances" }, { "target", "shape of x: 1 or -1" } },
  cases = "{ {x={4,5}, target={{4,5}, low=1, high=1}, wrt={'x'}}, "
    .. "{x={4,5}, target={{4,5}, low=-1, high=-1}, wrt={'x'}} }",
  { "margin", "number", 1, doc = "the distance that is asked for" },
  terms = function(o, x, target) return where(target:eq(1), x, (o.margin - x):relu()) end }

-- ---- several predictions ------------------------------------------------------------------------

loss { "MarginRankingLoss",
  summary = "Whether one of two scores is above the other by a margin, as the target says.",
  math = "max(0, margin - target (a - b))",
  source = "torch.nn.MarginRankingLoss",
  inputs = { { "a", "scores" }, { "b", "shape of a" }, { "target", "shape of a: 1 or -1" } },
  cases = "{ {a={6}, b={6}, target={{6}, low=1, high=1}, margin=0.2} }",
  { "margin", "number", 0, doc = "the distance that is asked for" },
  terms = function(o, a, b, target)
    kit.same_shape("MarginRankingLoss", a, target, "a", "target")
    return (o.margin - target * (a - b)):relu()
  end }

loss { "CosineEmbeddingLoss",
  summary = "Angle of two vectors: small where the target is 1, above a margin where it is -1.",
  math = "target = 1: 1 - cos(a, b), else max(0, cos(a, b) - margin)",
  source = "torch.nn.CosineEmbeddingLoss",
  nan = "decides", special = "a NaN in target is none of 1: as -1",
  inputs = { { "a", "(.., k)" }, { "b", "(.., k)" }, { "target", "(..): 1 or -1" } },
  cases = "{ {a={4,3}, b={4,3}, target={{4}, low=1, high=1}, wrt={'a','b'}}, "
    .. "{a={4,3}, b={4,3}, target={{4}, low=-1, high=-1}, margin=-0.9, reduction='sum', "
    .. "wrt={'a','b'}} }",
  { "margin", "number", 0, min = -1, max = 1, doc = "the cosine that is allowed" },
  terms = function(o, a, b, target)
    local cosine = a:cosine_similarity(b, { axis = -1 })
    kit.same_shape("CosineEmbeddingLoss", cosine, target, "each of the rows", "target")
    return where(target:eq(1), 1 - cosine, (cosine - o.margin):relu())
  end }

loss { "TripletMarginLoss",
  summary = "The anchor is to be nearer to the positive than to the negative, by a margin.",
  math = "max(0, |a - p| - |a - n| + margin)",
  source = "torch.nn.TripletMarginLoss; Balntas et al., BMVC 2016",
  inputs = { { "anchor", "(.., k)" }, { "positive", "shape of anchor" },
    { "negative", "shape of anchor" } },
  cases = "{ {anchor={4,3}, positive={4,3}, negative={4,3}}, "
    .. "{anchor={4,3}, positive={4,3}, negative={4,3}, p=1, swap=true, margin=2} }",
  { "margin", "number", 1, min = 0, doc = "the distance that is asked for" },
  { "p", "number", 2, above = 0, doc = "the power of the norm" },
  { "swap", "boolean", false, doc = "take the distance of positive and negative where smaller" },
  { "eps", "number", 1e-6, min = 0, doc = "added to differences, so that norms have gradients" },
  terms = function(o, anchor, positive, negative)
    kit.same_shape("TripletMarginLoss", anchor, negative, "anchor", "negative")
    local function distance(a, b) return (a - b + o.eps):norm { p = o.p, axes = { -1 } } end
    local far = distance(anchor, negative)
    if o.swap then far = far:minimum(distance(positive, negative)) end
    return (distance(anchor, positive) - far + o.margin):relu()
  end }

-- ---- overlap and focus --------------------------------------------------------------------------

loss { "DiceLoss",
  summary = "What two masks lack of overlapping, per row.",
  math = "1 - (2 sum x t + smooth) / (sum x + sum t + smooth)",
  source = "Milletari et al., 3DV 2016",
  inputs = { { "x", "(n, ..): probabilities" }, { "target", "shape of x, 0 to 1" } },
  cases = "{ {x={{3,4,2}, low=0.1, high=0.9}, target={{3,4,2}, low=0, high=1}}, "
    .. "{x={{3,5}, low=0.1, high=0.9}, target={{3,5}, low=0, high=1}, reduction='none'} }",
  { "smooth", "number", 1, min = 0, doc = "keeps the quotient of empty masks finite" },
  terms = function(o, x, target)
    local rows = { axes = {} }
    for d = 2, #x.shape do rows.axes[d - 1] = d end
    if #rows.axes == 0 then fail "DiceLoss: x expects (n, ..), got one dimension" end
    local overlap, all = (x * target):sum(rows), x:sum(rows) + target:sum(rows)
    return 1 - (overlap * 2 + o.smooth) / (all + o.smooth)
  end }

loss { "FocalLoss",
  summary = "Binary cross-entropy of logits in which what is easy weighs less.",
  math = "-alpha_t (1 - p_t)^gamma log p_t",
  source = "torchvision.ops.sigmoid_focal_loss; Lin et al., ICCV 2017",
  inputs = { { "x", "logits" }, { "target", "shape of x, 0 to 1" } },
  cases = "{ {x={4,5}, target={{4,5}, low=0, high=1}}, "
    .. "{x={4,5}, target={{4,5}, low=0, high=1}, gamma=1, alpha=-1, reduction='sum'} }",
  { "gamma", "number", 2, min = 0, doc = "how much less" },
  { "alpha", "number", 0.25, max = 1, doc = "weight of the positive class; below 0: none" },
  terms = function(o, x, target)
    local p = x:sigmoid()

    -- How wrong the prediction is: 1 - p where the target is 1, p where it is 0.
    local wrong = p + target - p * target * 2
    local terms = x:bce_with_logits_loss(target, { reduction = "none" }) * wrong ^ o.gamma
    if o.alpha < 0 then return terms end
    return terms * (target * (2 * o.alpha - 1) + (1 - o.alpha))
  end }
