--- Which Neap ops each golden name stands for.
--
-- An entry is a function (net, blobs, attrs) -> list of output blobs. `blobs` are the inputs by
-- name; a golden's axes count from 0, Neap's from 1. An entry may return nil, reason: that case
-- needs something Neap lacks. A third result, `read`, turns an expected output into what the op
-- gives, where a golden stores it in a form of its own. What takes several ops and no thought about
-- any one of them stands in compose.lua.
local neap = require "neap"

local map = {}

--- 0-based or negative axis to ours.
local function axis(d) return d < 0 and d or d + 1 end
local function axes(list)
  if list == nil then return nil end
  if type(list) == "number" then return { axis(list) } end
  local out = {}
  for i, d in ipairs(list) do out[i] = axis(d) end
  return out
end

local null = require("cjson").null
local function given(v) return v ~= nil and v ~= null and v or nil end

local function op(net, type, ins, attrs, n_out)
  return { net:op(type, ins, n_out or 1, attrs or {}) }
end

--- Ops of one input named x, attributes renamed by `names` (golden -> Neap).
local function unary(type, names)
  return function(net, b, a)
    local attrs = {}
    for from, to in pairs(names or {}) do attrs[to] = given(a[from]) end
    return op(net, type, { b.x }, attrs)
  end
end
for golden, type in pairs {
  abs = "Abs", exp = "Exp", log = "Log", sqrt = "Sqrt", rsqrt = "Rsqrt", square = "Square",
  sin = "Sin", cos = "Cos",
  cholesky = "Cholesky", inverse = "Inverse", det = "Det", svdvals = "SvdVals",
  acos = "Acos", atan = "Atan", reciprocal = "Reciprocal", floor = "Floor", ceil = "Ceil",
  round = "Round", erf = "Erf",
  sigmoid = "Sigmoid", tanh = "Tanh", relu = "Relu", silu = "Silu", relu6 = "Relu6",
  exp2 = "Exp2", erfc = "Erfc", erfinv = "Erfinv", lgamma = "Lgamma", digamma = "Digamma",
  sinc = "Sinc",
  expm1 = "Expm1", log1p = "Log1p", log2 = "Log2", log10 = "Log10", tan = "Tan", sinh = "Sinh",
  cosh = "Cosh", asinh = "Asinh", acosh = "Acosh", atanh = "Atanh", neg = "Neg", sign = "Sign",
  trunc = "Trunc", frac = "Frac", logsigmoid = "LogSigmoid", softsign = "Softsign", mish = "Mish",
  selu = "Selu", hardswish = "HardSwish", hardsigmoid = "HardSigmoid", tanhshrink = "TanhShrink",
} do
  map[golden] = unary(type)
end
map.gelu = unary("Gelu", { approximate = "approximate" })
map.celu = unary("Celu", { alpha = "alpha" })
map.hardshrink = unary("HardShrink", { lambd = "lambda" })
map.softshrink = unary("SoftShrink", { lambd = "lambda" })
map.hardtanh = unary("HardTanh", { min = "min", max = "max" })
map.threshold = unary("Threshold", { threshold = "threshold", value = "value" })
map.leaky_relu = unary("LeakyRelu", { negative_slope = "slope" })
map.elu = unary("Elu", { alpha = "alpha" })
map.softplus = unary("Softplus", { beta = "beta", threshold = "threshold" })
map.clamp = unary("Clamp", { min = "min", max = "max" })

local function binary(type) return function(net, b) return op(net, type, { b.x, b.y }) end end
for golden, type in pairs {
  add = "Add", sub = "Sub", mul = "Mul", div = "Div", maximum = "Maximum", minimum = "Minimum",
  pow = "Pow",
  remainder = "Mod", eq = "Eq", ne = "Ne", lt = "Lt", le = "Le", gt = "Gt", ge = "Ge",
  int_add = "Add", int_sub = "Sub", int_mul = "Mul",
  int_floor_divide = "FloorDiv", logical_xor = "LogicalXor", logical_and = "LogicalAnd",
  logical_or = "LogicalOr", hypot = "Hypot", atan2 = "Atan2", bitwise_or = "BitwiseOr",
  bitwise_xor = "BitwiseXor", bitwise_and = "BitwiseAnd", logaddexp = "LogAddExp",
} do
  map[golden] = binary(type)
end
map.pow_scalar = function(net, b, a) return op(net, "Pow", { b.x, net:const(a.exponent) }) end
map.where = function(net, b) return op(net, "Where", { b.c, b.x, b.y }) end

map.lerp = function(net, b, a)
  return op(net, "Lerp", { b.input, b["end"], b.weight or net:const(a.weight, b.input.dtype) })
end
map.prelu = function(net, b)
  local sizes = {}
  for d = 1, #b.x.shape - 1 do sizes[d] = d == 1 and b.weight.shape[1] or 1 end
  return op(net, "PRelu", { b.x, b.weight:reshape(sizes) })
end

local function reduction(type, own)
  return function(net, b, a)
    local attrs = { axes = axes(given(a.dim)), keepdim = a.keepdim or false }
    for name, value in pairs(own or {}) do attrs[name] = value end
    return op(net, type, { b.x }, attrs)
  end
end
for golden, type in pairs {
  sum = "Sum", mean = "Mean", prod = "Prod", amax = "Max", amin = "Min", logsumexp = "LogSumExp",
  var = "Var", std = "Std", all = "All", any = "Any",
} do
  map[golden] = reduction(type)
end
map.var_biased = reduction("Var", { correction = 0 })
local function power(p) return p == "inf" and p or tonumber(p) end
map.norm = function(net, b, a)
  return op(net, "Norm", { b.x }, {
    axes = axes(given(a.dim)), keepdim = a.keepdim or false, p = power(a.p),
  })
end
map.normalize = function(net, b, a)
  return op(net, "LpNormalization", { b.x }, { axis = axis(a.dim), p = a.p, eps = a.eps })
end
local function arg_of(type)
  return function(net, b, a)
    return op(net, type, { b.x }, {
      axis = given(a.dim) and axis(a.dim), keepdim = a.keepdim or false,
    })
  end
end
local function lengthwise(type, n_out)
  return function(net, b, a) return op(net, type, { b.x }, { axis = axis(a.dim) }, n_out) end
end
map.cumsum, map.cumprod = lengthwise "CumSum", lengthwise "CumProd"
map.logcumsumexp = lengthwise "LogCumSumExp"
map.cummax, map.cummin = lengthwise("CumMax", 2), lengthwise("CumMin", 2)
map.sort = function(net, b, a)
  given(a.stable) -- it always is
  return op(net, "Sort", { b.x }, { axis = axis(a.dim or -1), descending = a.descending }, 2)
end
map.topk = function(net, b, a)
  return op(net, "TopK", { b.x }, { k = a.k, axis = axis(a.dim), largest = a.largest }, 2)
end
map.median = function(net, b, a)
  return op(net, "Median", { b.x }, { axis = given(a.dim) and axis(a.dim) }, 2)
end
map.searchsorted = function(net, b, a)
  return op(net, "SearchSorted", { b.s, b.v }, { right = a.right })
end
map.argmax, map.argmin = arg_of "ArgMax", arg_of "ArgMin"

map.softmax = function(net, b, a) return op(net, "Softmax", { b.x }, { axis = axis(a.dim) }) end
map.log_softmax = function(net, b, a)
  return op(net, "LogSoftmax", { b.x }, { axis = axis(a.dim) })
end

map.reshape = function(net, b, a) return op(net, "Reshape", { b.x }, { shape = a.shape }) end
map.flatten = function(net, b, a)
  local shape, out = b.x.shape, {}
  local from, to = a.start + 1, a["end"] + 1
  for d = 1, #shape do
    if d > from and d <= to then out[#out] = out[#out] * shape[d] else out[#out + 1] = shape[d] end
  end
  return op(net, "Reshape", { b.x }, { shape = out })
end
map.permute = function(net, b, a) return op(net, "Permute", { b.x }, { axes = axes(a.dims) }) end
map.transpose = function(net, b, a)
  local order = {}
  for d = 1, #b.x.shape do order[d] = d end
  local i, j = a.dims[1] + 1, a.dims[2] + 1
  order[i], order[j] = order[j], order[i]
  return op(net, "Permute", { b.x }, { axes = order })
end
map.squeeze = function(net, b, a) return op(net, "Squeeze", { b.x }, { axes = axes(a.dim) }) end
map.expand = function(net, b, a) return op(net, "Expand", { b.x }, { shape = a.shape }) end
map.cat = function(net, b, a)
  return op(net, "Concat", { b.a, b.b, b.c }, { axis = axis(a.dim) })
end
map.stack = function(net, b, a)
  return op(net, "Stack", { b.a, b.b, b.c }, { axis = axis(a.dim) })
end
map.unbind = function(net, b, a) return { net:Unbind(b.x, nil, { axis = axis(a.dim) }) } end
map.repeat_interleave = function(net, b, a)
  return op(net, "RepeatInterleave", { b.x }, { repeats = a.repeats, axis = axis(a.dim) })
end
map.pixel_shuffle = function(net, b, a)
  return op(net, "PixelShuffle", { b.x }, { factor = a.r })
end
map.pixel_unshuffle = function(net, b, a)
  return op(net, "PixelUnshuffle", { b.x }, { factor = a.r })
end
map.masked_fill = function(net, b, a)
  return op(net, "MaskedFill", { b.x, b.m }, { value = a.value })
end
map.masked_select = function() return nil, "a length that depends on data has no gradient" end
map.one_hot = function(net, b, a)
  return op(net, "OneHot", { b.x }, { depth = a.num_classes, dtype = "i64" })
end
map.glu = function(net, b, a) return op(net, "Glu", { b.x }, { axis = axis(a.dim) }) end
map.softmin = function(net, b, a) return op(net, "Softmin", { b.x }, { axis = axis(a.dim) }) end

--- "1:5:2,:,-3:-1" in Python's slice notation.
map.slice = function(net, b, a)
  local starts, ends, steps, list, d = {}, {}, {}, {}, 0
  for part in (a.spec .. ","):gmatch "([^,]*)," do
    d = d + 1
    local from, to, step = part:match "^%s*(-?%d*):?(-?%d*):?(-?%d*)%s*$"
    if not from then return nil, "slices with indices" end
    local n = b.x.shape[d]
    from, to, step = tonumber(from) or 0, tonumber(to) or n, tonumber(step) or 1
    if step < 1 then return nil, "slices with negative steps" end
    if from < 0 then from = from + n end
    if to < 0 then to = to + n end
    list[#list + 1], starts[#starts + 1], ends[#ends + 1], steps[#steps + 1] = d, from + 1, to, step
  end
  return op(net, "Slice", { b.x }, { axes = list, starts = starts, ends = ends, steps = steps })
end

map.solve = function(net, b) return op(net, "Solve", { b.A, b.B }) end
map.matmul = function(net, b) return op(net, "MatMul", { b.input, b.other }) end
map.linear = function(net, b) return op(net, "FC", { b.x, b.weight, b.bias }) end
map.addmm = function(net, b, a)
  local product = op(net, "Mul", { op(net, "MatMul", { b.a, b.b })[1], net:const(a.alpha) })[1]
  return op(net, "Add", { product, op(net, "Mul", { b.c, net:const(a.beta) })[1] })
end
map.baddbmm = map.addmm
map.outer = function(net, b) return op(net, "Outer", { b.input, b.vec2 }) end
map.kron = function(net, b) return op(net, "Kron", { b.input, b.other }) end
map.bilinear = function(net, b) return op(net, "Bilinear", { b.a, b.b, b.weight, b.bias }) end
map.cdist = function(net, b, a) return op(net, "Cdist", { b.a, b.b }, { p = power(a.p) }) end
map.cosine_similarity = function(net, b, a)
  return op(net, "CosineSimilarity", { b.a, b.b }, { axis = axis(a.dim), eps = a.eps })
end
map.einsum = function(net, b, a)
  local operands, k = {}, 0
  while b["x" .. k] do operands[k + 1], k = b["x" .. k], k + 1 end
  return op(net, "Einsum", operands, { equation = a.equation })
end
map.embedding = function(net, b, a)
  for _, name in ipairs { "max_norm", "scale_grad_by_freq" } do
    if given(a[name]) then return nil, "embeddings with " .. name end
  end
  return op(net, "Embedding", { b.idx, b.weight }, { padding_idx = given(a.padding_idx) })
end

map.roll = function(net, b, a)
  return op(net, "Roll", { b.x }, { shifts = a.shifts, axes = axes(a.dims) })
end
map.tril = function(net, b, a) return op(net, "Tril", { b.x }, { diagonal = a.diagonal }) end
map.triu = function(net, b, a) return op(net, "Triu", { b.x }, { diagonal = a.diagonal }) end
--- Pairs from the last dimension on become all befores, then all afters.
local pad_modes = { constant = "constant", reflect = "reflect", replicate = "edge",
  circular = "wrap" }
map.pad = function(net, b, a)
  local n, pads, dims = #a.pad // 2, {}, {}
  for i = 1, n do
    dims[i], pads[i], pads[n + i] = -i, a.pad[2 * i - 1], a.pad[2 * i]
  end
  -- the other modes have no use for a value
  return op(net, "Pad", { b.x }, {
    pads = pads, axes = dims, mode = pad_modes[a.mode], value = tonumber(a.value) or 0,
  })
end

--- Elements and positions by number.
local function with_axis(a, rest)
  rest = rest or {}
  rest.axis = axis(a.dim)
  return rest
end
map.gather = function(net, b, a) return op(net, "GatherElements", { b.x, b.idx }, with_axis(a)) end
map.take_along = map.gather
map.index_select = function(net, b, a) return op(net, "Gather", { b.x, b.idx }, with_axis(a)) end
map.index_add = function(net, b, a)
  return op(net, "IndexAdd", { b.x, b.idx, b.src * a.alpha }, with_axis(a))
end
local function scatter(net, b, a, reduction)
  return op(net, "ScatterElements", { b.x, b.idx, b.src }, with_axis(a, { reduction = reduction }))
end
map.scatter_add = function(net, b, a) return scatter(net, b, a, "add") end
local reductions = { sum = "add", mean = "add", prod = "mul", amin = "min", amax = "max" }
map.scatter_reduce = function(net, b, a)
  if not a.include_self then return nil, "reductions that leave out what was there" end
  local y = scatter(net, b, a, reductions[a.reduce])
  if a.reduce ~= "mean" then return y end
  local function ones(x)
    return op(net, "Constant", {}, { shape = x.shape, value = 1, dtype = x.dtype })[1]
  end
  return { y[1] / scatter(net, { x = ones(b.x), idx = b.idx, src = ones(b.src) }, a, "add")[1] }
end
--- "i,:,j" in Python's notation: the dimensions that are named come first.
map.index_nd = function(net, b, a)
  local order, rest, parts, d = {}, {}, {}, 0
  for word in (a.spec .. ","):gmatch "([^,]*)," do
    d = d + 1
    local list = word == ":" and rest or order
    list[#list + 1] = d
    if word ~= ":" then parts[#parts + 1] = b[word]:unsqueeze(-1) end
  end
  table.move(rest, 1, #rest, #order + 1, order)
  return op(net, "GatherND", { b.x:permute(order), neap.concat(parts, { axis = -1 }) })
end

map.embedding_bag = function(net, b, a)
  return op(net, "EmbeddingBag", { b.idx, b.weight, b.offsets }, { mode = a.mode })
end

--- "valid" or "same" as numbers: all begins, then all ends; the odd one goes to the end.
local function padding_of(b, a)
  if a.padding ~= "valid" and a.padding ~= "same" then return a.padding end
  local begins, ends, rank = {}, {}, #b.x.shape - 2
  for d = 1, rank do
    local whole =
      a.padding == "same" and (b.weight.shape[d + 2] - 1) * (a.dilation and a.dilation[d] or 1) or 0
    begins[d], ends[d] = whole // 2, whole - whole // 2
  end
  return table.move(ends, 1, rank, rank + 1, begins)
end
local function conv(net, b, a)
  return op(net, "Conv", { b.x, b.weight, b.bias }, {
    stride = a.stride, pad = padding_of(b, a), dilation = a.dilation, groups = a.groups,
  })
end
map.conv1d, map.conv2d, map.conv3d = conv, conv, conv

local function conv_transpose(net, b, a)
  return op(net, "ConvTranspose", { b.x, b.weight, b.bias }, { stride = a.stride, pad = a.padding,
    output_padding = a.output_padding, dilation = a.dilation, groups = a.groups })
end
map.conv_transpose1d, map.conv_transpose2d, map.conv_transpose3d = conv_transpose, conv_transpose,
  conv_transpose

--- Golden pools give one number for all dimensions, or a list.
local function each(value, rank)
  if type(value) == "table" then return value end
  local out = {}
  for d = 1, rank do out[d] = value end
  return out
end
local function window_of(b, a)
  local rank = #b.x.shape - 2
  return {
    kernel = each(a.kernel, rank),
    stride = each(given(a.stride) or a.kernel, rank),
    pad = each(a.padding or 0, rank),
    ceil_mode = a.ceil_mode,
  }
end

--- Pooling to a size.
local function adaptive(name)
  return function(net, b, a)
    return op(net, name, { b.x }, { output_size = each(a.output, #b.x.shape - 2) })
  end
end
for _, d in ipairs { "1d", "2d", "3d" } do
  map["max_pool" .. d] = function(net, b, a)
    local w = window_of(b, a)
    w.dilation = each(a.dilation or 1, #w.kernel)
    local y, at = net:op("MaxPoolWithIndices", { b.x }, 2, w)
    -- of a golden they count the elements of one plane
    local n = 1
    for i = 3, #b.x.shape do n = n * b.x.shape[i] end
    return { y, op(net, "Mod", { at, net:const(n, "i64") })[1] }
  end
  map["avg_pool" .. d] = function(net, b, a)
    local w, override = window_of(b, a), given(a.divisor_override)
    w.count_include_pad = a.count_include_pad or override ~= nil
    for _, step in ipairs(each(a.dilation or 1, #w.kernel)) do
      if step ~= 1 then return nil, "means over windows with gaps" end
    end
    local y = op(net, "AveragePool", { b.x }, w)[1]
    if not override then return { y } end
    local n = 1
    for _, k in ipairs(w.kernel) do n = n * k end
    return { y * (n / override) }
  end
  map["adaptive_avg_pool" .. d], map["adaptive_max_pool" .. d] = adaptive "AdaptiveAveragePool",
    adaptive "AdaptiveMaxPool"
end

map.max_unpool2d = function(net, b, a)
  if a.note ~= "max_pool2d(2,2) then unpool to 7x8" then return nil, "unpooling otherwise" end
  local y, at = net:op("MaxPoolWithIndices", { b.x }, 2, { kernel = 2 })
  return op(net, "MaxUnpool", { y, at }, { kernel = 2, output_shape = { 7, 8 } })
end

map.group_norm = function(net, b, a)
  return op(net, "GroupNorm", { b.x, b.weight or false, b.bias or false },
    { groups = a.groups, eps = a.eps })
end
map.instance_norm = function(net, b, a)
  return op(net, "InstanceNorm", { b.x, b.weight or false, b.bias or false }, { eps = a.eps })
end

-- By golden mode: ours, and what goes with it.
local modes = {
  nearest = { "nearest", "asymmetric", "floor" },
  ["nearest-exact"] = { "nearest", "half_pixel", "round_prefer_ceil" },
}
local function interpolate(net, b, a)
  local rank, factor = #b.x.shape - 2, given(a.scale_factor)
  if a.mode == "area" then
    local sizes = {}
    for d = 1, rank do
      sizes[d] = factor and math.floor(b.x.shape[d + 2] * factor) or a.size[d]
    end
    assert(given(a.align_corners) == nil)
    return op(net, "AdaptiveAveragePool", { b.x }, { output_size = sizes })
  end
  local own = modes[a.mode]
    or { a.mode == "bicubic" and "cubic" or "linear",
      given(a.align_corners) and "align_corners" or "half_pixel" }
  assert(not modes[a.mode] or given(a.align_corners) == nil)
  return op(net, "Resize", { b.x }, { mode = own[1], coordinates = own[2], rounding = own[3],
    scales = factor, sizes = not factor and a.size or nil })
end
for _, d in ipairs { "1d", "2d", "3d" } do map["interpolate" .. d] = interpolate end
local function patches(type)
  return function(net, b, a)
    return op(net, type, { b.x }, { kernel = a.kernel, stride = a.stride, pad = a.padding,
      dilation = a.dilation, sizes = a.output })
  end
end
map.unfold, map.fold = patches "Unfold", patches "Fold"
map.affine_grid = function(net, b, a)
  return op(net, "AffineGrid", { b.theta or b.x }, {
    sizes = table.move(a.size, 3, #a.size, 1, {}), align_corners = a.align_corners,
  })
end
map.grid_sample = function(net, b, a)
  local mode = ({ bilinear = "linear", bicubic = "cubic" })[a.mode] or a.mode
  return op(net, "GridSample", { b.x, b.grid },
    { mode = mode, padding = a.padding_mode, align_corners = a.align_corners })
end

map.batch_norm = function(net, b, a)
  local channels, m = { b.x.shape[2] }, a.momentum -- of running statistics, where there are any
  local gamma = b.weight or op(net, "Constant", {}, { shape = channels, value = 1 })[1]
  local beta = b.bias or op(net, "Constant", {}, { shape = channels, value = 0 })[1]
  if not a.training then
    return op(net, "BatchNorm", { b.x, gamma, beta, b.running_mean, b.running_var },
      { eps = a.eps, training = false })
  end
  local y, mean, var = net:op("BatchNorm", { b.x, gamma, beta }, 3,
    { eps = a.eps, training = true })
  if not b.running_mean then return { y } end
  local n = 1
  for d, size in ipairs(b.x.shape) do n = d == 2 and n or n * size end
  -- The second and third output are the running statistics after the step, of which the variance is
  -- the unbiased one.
  return {
    y, b.running_mean * (1 - m) + mean * m, b.running_var * (1 - m) + var * (m * n / (n - 1)),
  }
end
map.layer_norm = function(net, b, a)
  return op(net, "LayerNorm", { b.x, b.weight, b.bias },
    { axis = -#a.normalized_shape, eps = a.eps })
end
map.rms_norm = function(net, b, a)
  return op(net, "RmsNorm", { b.x, b.weight }, { axis = -#a.normalized_shape, eps = a.eps })
end

map.cross_entropy = function(net, b, a)
  return op(net, "SoftmaxCrossEntropy", { b.x, b.t, b.w }, {
    axis = #b.x.shape > 1 and 2 or 1, reduction = a.reduction,
    ignore_index = given(a.ignore_index), label_smoothing = given(a.label_smoothing),
  })
end
local function pair_loss(type)
  return function(net, b, a) return op(net, type, { b.x, b.y }, { reduction = a.reduction }) end
end
map.mse_loss, map.l1_loss = pair_loss "MseLoss", pair_loss "L1Loss"

--- A loss: its op, its inputs in order, its attributes by the golden's names.
local function loss(type, inputs, names)
  return function(net, b, a)
    local ins, attrs = {}, { reduction = a.reduction }
    for i, name in ipairs(inputs) do ins[i] = b[name] or false end
    for from, to in pairs(names or {}) do attrs[to] = given(a[from]) end
    return op(net, type, ins, attrs)
  end
end
local xy = { "x", "y" }
map.huber_loss = loss("HuberLoss", xy, { delta = "delta" })
map.smooth_l1_loss = loss("SmoothL1Loss", xy, { beta = "beta" })
map.binary_cross_entropy = loss("BceLoss", { "x", "y", "w" })
map.bce_with_logits = loss("BceWithLogitsLoss", { "x", "y", "w", "pw" })
map.soft_margin_loss = loss("SoftMarginLoss", xy)
map.hinge_embedding_loss = loss("HingeEmbeddingLoss", xy, { margin = "margin" })
map.multi_margin_loss = loss("MultiMarginLoss", xy, { p = "p", margin = "margin" })
map.multilabel_soft_margin_loss = loss("MultilabelSoftMarginLoss", xy)
map.poisson_nll_loss = loss("PoissonNllLoss", xy,
  { log_input = "log_input", full = "full", eps = "eps" })
map.margin_ranking_loss = loss("MarginRankingLoss", { "a", "b", "y" }, { margin = "margin" })
map.cosine_embedding_loss = loss("CosineEmbeddingLoss", { "a", "b", "y" }, { margin = "margin" })
map.triplet_margin_loss = loss("TripletMarginLoss", { "a", "p", "n" }, { margin = "margin", p = "p",
  swap = "swap" })
map.gaussian_nll_loss = loss("GaussianNllLoss", { "x", "y", "v" }, { full = "full", eps = "eps" })
map.kl_div = loss("KlDivLoss", xy, { log_target = "log_target" })
map.ctc_loss = function(net, b, a)
  return op(net, "CtcLoss", { b.x:log_softmax { axis = -1 }, b.t, b.il, b.tl },
    { reduction = a.reduction, blank = a.blank })
end
map.nll_loss = loss("NllLoss", { "x", "t", "w" }, { ignore_index = "ignore_index" })

map.sdpa = function(net, b, a)
  return op(net, "Attention", { b.q, b.k, b.v, b.m },
    { causal = a.is_causal, scale = given(a.scale) })
end

local function fc(net, x, weight, bias) return op(net, "FC", { x, weight, bias })[1] end

--- Rows (part - 1) n + 1 to part n of a packed weight or bias; nothing of nothing.
local function packed_part(net, packed, part, n)
  return packed and op(net, "Slice", { packed }, {
    axes = { 1 }, starts = { (part - 1) * n + 1 }, ends = { part * n },
  })[1]
end

map.multihead_attention = function(net, b, a)
  if a.batch_first == false then return nil, "sequences that run along the first dimension" end
  local sources, heads, n = { b.q or b.x, b.k or b.x, b.v or b.k or b.x }, a.heads, a.embed
  local projected = {}
  for i = 1, 3 do
    projected[i] = fc(net, sources[i], packed_part(net, b["p.in_proj_weight"], i, n),
      packed_part(net, b["p.in_proj_bias"], i, n))
  end
  local q, k = projected[1], projected[2]
  local mask = b.kpm and (~b.kpm):reshape(b.kpm.shape[1], 1, 1, b.kpm.shape[2])
  local y = op(net, "Attention", { q, k, projected[3], mask }, { heads = heads })[1]
  local outs = { fc(net, y, b["p.out_proj.weight"], b["p.out_proj.bias"]) }
  -- the weights, averaged over heads, which Attention does not keep
  if a.outputs and #a.outputs > 1 then
    local function split(x)
      return x:reshape(x.shape[1], x.shape[2], heads, n // heads):permute { 1, 3, 2, 4 }
    end
    local scores = op(net, "MatMul", { split(q), split(k) }, { trans_b = true })[1]
      * (n // heads) ^ -0.5
    if mask then scores = neap.where(mask, scores, net:const(-math.huge)) end
    outs[2] = scores:softmax({ axis = -1 }):mean { axes = { 2 } }
  end
  return outs
end
map.transformer_encoder_layer = function(net, b, a)
  local function norm(x, n)
    return op(net, "LayerNorm", { x, b["p.norm" .. n .. ".weight"], b["p.norm" .. n .. ".bias"] },
      { eps = a.eps })[1]
  end
  local function linear(x, name)
    return fc(net, x, b["p." .. name .. "weight"], b["p." .. name .. "bias"])
  end
  local function attention(x)
    local y =
      op(net, "PackedAttention", { linear(x, "self_attn.in_proj_") }, { heads = a.heads })[1]
    return linear(y, "self_attn.out_proj.")
  end
  local function feed(x)
    return linear(
      op(net, a.activation == "gelu" and "Gelu" or "Relu", { linear(x, "linear1.") })[1],
      "linear2.")
  end
  local function add(x, y) return op(net, "Add", { x, y })[1] end
  if a.norm_first then
    local x = add(b.x, attention(norm(b.x, 1)))
    return { add(x, feed(norm(x, 2))) }
  end
  local x = norm(add(b.x, attention(b.x)), 1)
  return { norm(add(x, feed(x)), 2) }
end

--- Whole nets, which a note describes and no attribute does.
local nets = {}
function nets.residual_block(net, b)
  local function conv_norm(x, conv_name, norm_name, attrs)
    local y = op(net, "Conv", { x, b["p." .. conv_name .. ".weight"] }, attrs)[1]
    return norm_name and op(net, "BatchNorm", {
      y, b["p." .. norm_name .. ".weight"], b["p." .. norm_name .. ".bias"],
    }, { training = true })[1]
      or y
  end
  local h = conv_norm(b.x, "c1", "b1", { stride = 2, pad = 1 }):relu()
  return {
    (conv_norm(h, "c2", "b2", { pad = 1 }) + conv_norm(b.x, "d", nil, { stride = 2 })):relu(),
  }
end
function nets.gpt_block_tied(net, b)
  local function norm(x, name)
    return op(net, "LayerNorm", { x, b["p." .. name .. ".weight"], b["p." .. name .. ".bias"] })[1]
  end
  local function linear(x, name)
    return fc(net, x, b["p." .. name .. ".weight"], b["p." .. name .. ".bias"])
  end
  local x = op(net, "Embedding", { b.t, b["p.tok.weight"] })[1] + b["p.pos.weight"]
  x = x + linear(
    op(net, "PackedAttention", { linear(norm(x, "l1"), "qkv") }, { heads = 2, causal = true })[1],
    "o")
  x = x + linear(linear(norm(x, "l2"), "a"):gelu({ approximate = "tanh" }), "b")
  local logits = fc(net, norm(x, "lf"), b["p.tok.weight"])
  return { op(net, "SoftmaxCrossEntropy", { logits, b.y })[1], logits }
end
map.net = function(net, b, _, case)
  local build = nets[case.name:match "^net__(.*)$"]
  if not build then return nil, "a net that only its name describes" end
  return build(net, b)
end

--- The parameter after each of the steps that the golden's gradients, one a row, ask for.
local own_name = { RMSprop = "RmsProp", NAdam = "Nadam", RAdam = "Radam" }
local own_option = { initial_accumulator_value = "start" }
local pairs_of = { betas = { "beta1", "beta2" }, etas = { "shrink", "grow" },
  step_sizes = { "least", "most" } }
map.optim = function(net, b, a, case)
  local make = rawget(neap.optim, own_name[a.class] or a.class)
  if not make then return nil, a.class end
  local options = {}
  for name in pairs(case.attrs) do
    local value = a[name]
    if pairs_of[name] then
      for k, own in ipairs(pairs_of[name]) do options[own] = value[k] end
    elseif name ~= "class" then
      options[own_option[name] or name] = value
    end
  end
  local optimizer = make(options)
  local lr, path = net:const(a.lr), {}
  for i = 1, b.g.shape[1] do
    optimizer.update(optimizer.settings, net, b.p, b.g:select(1, i), lr)
    path[i] = b.p:clone():unsqueeze(1)
  end
  return op(net, "Concat", path, { axis = 1 })
end

--- Schedules by the case's name, which is all that says how they were made; one_cycle has a base
-- rate of its own.
local optim = neap.optim
local schedules = {
  step = optim.step { 3, factor = 0.5 },
  multistep = optim.multistep { { 2, 5, 9 }, factor = 0.3 },
  exp = optim.exponential { 0.9 },
  linear = optim.linear { 6, from = 0.1 },
  cosine_restart = optim.cosine_restarts { 4, longer = 2 },
  onecycle = optim.one_cycle { 20 },
}
map.lr_schedule = function(net, b, a, case)
  local name = case.name:match "__(.*)$"
  local schedule, rates = schedules[name], {}
  if not schedule then return nil, "a schedule that only its name describes" end
  for step = 1, a.steps do rates[step] = schedule(step, 1) end
  local base = name == "onecycle" and b.lr0 * 0 + 0.1 or b.lr0
  return op(net, "Mul", { net:const(neap.tensor(rates)), base })
end

map.clip_grad_norm = function(net, b, a)
  local norm = op(net, "GradNorm", { b.a, b.b }, {
    p = a.norm_type == "inf" and math.huge or tonumber(a.norm_type),
  })[1]
  local outs = { norm }
  for i, x in ipairs { b.a, b.b } do
    outs[i + 1] = op(net, "ClipByNorm", { x, norm }, { max = a.max_norm })[1]
  end
  return outs
end

--- The number that a 16-bit pattern stands for.
local function number_of(bits, n_exponent)
  local n_fraction = 15 - n_exponent
  local bias, sign = (1 << n_exponent - 1) - 1, bits & 0x8000 ~= 0 and -1.0 or 1.0
  local exponent = bits >> n_fraction & (1 << n_exponent) - 1
  local fraction = bits & (1 << n_fraction) - 1
  if exponent == (1 << n_exponent) - 1 then return fraction == 0 and sign * math.huge or 0 / 0 end
  local scale = exponent == 0 and 1 - bias or exponent - bias
  return sign * ((exponent == 0 and 0 or 1) + fraction / (1 << n_fraction)) * 2.0 ^ scale
end
map.cast_bits = function(net, b, a)
  local n_exponent = ({ float16 = 5, bfloat16 = 8 })[a.to]
  if not n_exponent then return nil, "casts to " .. a.to end
  local narrow = op(net, "Cast", { b.x }, { to = ({ float16 = "f16", bfloat16 = "bf16" })[a.to] })
  return op(net, "Cast", narrow, { to = "f64" }), nil, function(bits)
    local values = {}
    for i = 1, #bits do values[i] = number_of(bits:at(i) & 0xffff, n_exponent) end
    return values
  end
end

for name, f in pairs(dofile((arg[0]:match "^(.*/)" or "") .. "compose.lua")) do
  map[name] = map[name] or f
end

local function same(u, v)
  if type(u) ~= "table" or type(v) ~= "table" then return u == v end
  for i = 1, math.max(#u, #v) do
    if u[i] ~= v[i] then return false end
  end
  return true
end

--- Attributes that say again what the inputs say, and what that is. They steer nothing; the two
-- must agree.
local said = {}
local function kernel_of(b) return table.move(b.weight.shape, 3, #b.weight.shape, 1, {}) end
for _, d in ipairs { "1d", "2d", "3d" } do
  said["conv" .. d], said["conv_transpose" .. d] = { kernel = kernel_of }, { kernel = kernel_of }
end
for name, n_gate in pairs { rnn_tanh = 1, rnn_relu = 1, gru = 3, lstm = 4 } do
  said[name] = {
    input = function(b) return b["p.weight_ih_l0"].shape[2] end,
    hidden = function(b) return b["p.weight_ih_l0"].shape[1] // n_gate end,
    bias = function(b) return b["p.bias_ih_l0"] ~= nil end,
    proj_size = function(b) return b["p.weight_hr_l0"] and b["p.weight_hr_l0"].shape[1] or 0 end,
  }
end
said.multihead_attention = { key_padding_mask = function(b) return b.kpm and "true = ignore" end }
said.transformer_encoder_layer = {
  d_model = function(b) return b["p.linear1.weight"].shape[2] end,
  ff = function(b) return b["p.linear1.weight"].shape[1] end,
}
said.cross_entropy = {
  target = function(b) return b.t.dtype:find "^f" and "probabilities" or "labels" end,
}
said.sdpa = {
  mask = function(b)
    return b.m and (b.m.dtype == "bool" and "bool, true = attend" or "additive")
  end,
  enable_gqa = function(b) return b.q.shape[2] ~= b.k.shape[2] end,
}
for name, checks in pairs(said) do
  local f = map[name]
  map[name] = function(net, b, a, case)
    for attr, of in pairs(checks) do
      local value = given(a[attr])
      assert(value == nil or same(value, of(b)), attr .. " of the case is not what its inputs say")
    end
    return f(net, b, a, case)
  end
end

return map
