--- Which Neap ops each golden name stands for.
--
-- An entry is a function (net, blobs, attrs) -> list of output blobs. `blobs` are the inputs by name; a golden's axes count
-- from 0, Neap's from 1. An entry may return nil, reason: that case needs something Neap lacks.
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

local function op(net, type, ins, attrs, n_out) return { net:op(type, ins, n_out or 1, attrs or {}) } end

--- Ops of one input named x, attributes renamed by `names` (golden -> Neap).
local function unary(type, names)
  return function(net, b, a)
    local attrs = {}
    for from, to in pairs(names or {}) do attrs[to] = given(a[from]) end
    return op(net, type, { b.x }, attrs)
  end
end
for golden, type in pairs { abs = "Abs", exp = "Exp", log = "Log", sqrt = "Sqrt", rsqrt = "Rsqrt", square = "Square", sin = "Sin", cos = "Cos",
  reciprocal = "Reciprocal", floor = "Floor", ceil = "Ceil", round = "Round", erf = "Erf", sigmoid = "Sigmoid", tanh = "Tanh", relu = "Relu",
  silu = "Silu", relu6 = "Relu6" } do
  map[golden] = unary(type)
end
map.gelu = unary("Gelu", { approximate = "approximate" })
map.leaky_relu = unary("LeakyRelu", { negative_slope = "slope" })
map.elu = unary("Elu", { alpha = "alpha" })
map.softplus = unary("Softplus", { beta = "beta", threshold = "threshold" })
map.clamp = unary("Clamp", { min = "min", max = "max" })

local function binary(type) return function(net, b) return op(net, type, { b.x, b.y }) end end
for golden, type in pairs { add = "Add", sub = "Sub", mul = "Mul", div = "Div", maximum = "Maximum", minimum = "Minimum", pow = "Pow",
  remainder = "Mod", eq = "Eq", ne = "Ne", lt = "Lt", le = "Le", gt = "Gt", ge = "Ge", int_add = "Add", int_sub = "Sub", int_mul = "Mul",
  int_floor_divide = "FloorDiv", logical_xor = "LogicalXor" } do
  map[golden] = binary(type)
end
map.div_rounding = function(net, b, a)
  if a.rounding_mode ~= "floor" then return nil, "division rounded towards zero" end
  return op(net, "FloorDiv", { b.x, b.y })
end
map.pow_scalar = function(net, b, a) return op(net, "Pow", { b.x, net:const(a.exponent) }) end
map.where = function(net, b) return op(net, "Where", { b.c, b.x, b.y }) end

local function reduction(type)
  return function(net, b, a) return op(net, type, { b.x }, { axes = axes(given(a.dim)), keepdim = a.keepdim or false }) end
end
for golden, type in pairs { sum = "Sum", mean = "Mean", prod = "Prod", amax = "Max", amin = "Min" } do map[golden] = reduction(type) end
local function arg(type)
  return function(net, b, a) return op(net, type, { b.x }, { axis = given(a.dim) and axis(a.dim), keepdim = a.keepdim or false }) end
end
map.argmax, map.argmin = arg "ArgMax", arg "ArgMin"

map.softmax = function(net, b, a) return op(net, "Softmax", { b.x }, { axis = axis(a.dim) }) end
map.log_softmax = function(net, b, a) return op(net, "LogSoftmax", { b.x }, { axis = axis(a.dim) }) end

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
map.cat = function(net, b, a) return op(net, "Concat", { b.a, b.b, b.c }, { axis = axis(a.dim) }) end
map.stack = function(net, b, a)
  local wide, ins = axis(a.dim), {}
  for i, name in ipairs { "a", "b", "c" } do
    if b[name] then ins[i] = op(net, "Unsqueeze", { b[name] }, { axes = { wide } })[1] end
  end
  return op(net, "Concat", ins, { axis = wide })
end
map.unbind = function(net, b, a)
  local n = b.x.shape[a.dim + 1]
  local parts = { net:op("Split", { b.x }, n, { axis = axis(a.dim) }) }
  for i, part in ipairs(parts) do parts[i] = op(net, "Squeeze", { part }, { axes = { axis(a.dim) } })[1] end
  return parts
end
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

map.matmul = function(net, b) return op(net, "MatMul", { b.input, b.other }) end
map.linear = function(net, b) return op(net, "FC", { b.x, b.weight, b.bias }) end
map.addmm = function(net, b, a)
  local product = op(net, "Mul", { op(net, "MatMul", { b.a, b.b })[1], net:const(a.alpha) })[1]
  return op(net, "Add", { product, op(net, "Mul", { b.c, net:const(a.beta) })[1] })
end
map.baddbmm = map.addmm
map.embedding = function(net, b) return op(net, "Embedding", { b.idx, b.weight }) end

local function conv(net, b, a)
  return op(net, "Conv", { b.x, b.weight, b.bias }, { stride = a.stride, pad = a.padding, dilation = a.dilation, groups = a.groups })
end
map.conv1d, map.conv2d, map.conv3d = conv, conv, conv

--- Golden pools give one number for all dimensions, or a list.
local function each(value, rank)
  if type(value) == "table" then return value end
  local out = {}
  for d = 1, rank do out[d] = value end
  return out
end
local function pool(type, keys)
  return function(net, b, a)
    if given(a.divisor_override) then return nil, "divisor_override" end
    local rank = #b.x.shape - 2
    local attrs = { kernel = each(a.kernel, rank), stride = each(given(a.stride) or a.kernel, rank), pad = each(a.padding or 0, rank), ceil_mode = a.ceil_mode }
    for _, key in ipairs(keys) do attrs[key] = key == "dilation" and each(a[key] or 1, rank) or a[key] end
    return op(net, type, { b.x }, attrs)
  end
end
for _, d in ipairs { "1d", "2d", "3d" } do
  map["max_pool" .. d] = pool("MaxPool", { "dilation" })
  map["avg_pool" .. d] = pool("AveragePool", { "count_include_pad" })
  map["adaptive_avg_pool" .. d] = function(net, b, a)
    for _, n in ipairs(each(a.output, 1)) do
      if n ~= 1 then return nil, "adaptive pooling to more than one place" end
    end
    return op(net, "GlobalAveragePool", { b.x })
  end
end

map.batch_norm = function(net, b, a)
  if not a.training then return op(net, "BatchNorm", { b.x, b.weight, b.bias, b.running_mean, b.running_var }, { eps = a.eps, training = false }) end
  local y, mean, var = net:op("BatchNorm", { b.x, b.weight, b.bias }, 3, { eps = a.eps, training = true })
  local n = 1
  for d, size in ipairs(b.x.shape) do n = d == 2 and n or n * size end
  -- The golden's second and third output are the running statistics after the step.
  local m, keep = net:const(a.momentum), net:const(1 - a.momentum)
  local function blend(running, batch, factor)
    local fresh = op(net, "Mul", { batch, net:const(factor) })[1]
    return op(net, "Add", { op(net, "Mul", { running, keep })[1], op(net, "Mul", { fresh, m })[1] })[1]
  end
  if not b.running_mean then return { y } end
  return { y, blend(b.running_mean, mean, 1), blend(b.running_var, var, n / (n - 1)) }
end
map.layer_norm = function(net, b, a) return op(net, "LayerNorm", { b.x, b.weight, b.bias }, { axis = -#a.normalized_shape, eps = a.eps }) end
map.rms_norm = function(net, b, a) return op(net, "RmsNorm", { b.x, b.weight }, { axis = -#a.normalized_shape, eps = a.eps }) end

map.cross_entropy = function(net, b, a)
  if b.w then return nil, "class weights" end
  if a.target == "probabilities" or b.t.dtype == "f32" then return nil, "targets that are probabilities" end
  local x, shape = b.x, b.x.shape
  if #shape > 2 then -- (N,C,...) in PyTorch; the classes come last here
    local order = { 1 }
    for d = 3, #shape do order[#order + 1] = d end
    order[#order + 1] = 2
    x = op(net, "Permute", { x }, { axes = order })[1]
  end
  return op(net, "SoftmaxCrossEntropy", { x, b.t }, { reduction = a.reduction or "mean", ignore_index = given(a.ignore_index),
    label_smoothing = given(a.label_smoothing) })
end
local function pair_loss(type)
  return function(net, b, a)
    if a.reduction == "mean" then return op(net, type, { b.x, b.y }) end
    local d = op(net, "Sub", { b.x, b.y })[1]
    local e = op(net, type == "MseLoss" and "Square" or "Abs", { d })
    return a.reduction == "sum" and op(net, "Sum", e) or e
  end
end
map.mse_loss, map.l1_loss = pair_loss "MseLoss", pair_loss "L1Loss"

map.sdpa = function(net, b, a)
  if a.enable_gqa then return nil, "grouped queries" end
  if b.mask and b.mask.dtype == "bool" then return nil, "boolean masks" end
  return op(net, "Attention", { b.q, b.k, b.v, b.mask }, { causal = a.is_causal or false })
end
map.transformer_encoder_layer = function(net, b, a)
  local function norm(x, n) return op(net, "LayerNorm", { x, b["p.norm" .. n .. ".weight"], b["p.norm" .. n .. ".bias"] }, { eps = a.eps })[1] end
  local function fc(x, name) return op(net, "FC", { x, b["p." .. name .. "weight"], b["p." .. name .. "bias"] })[1] end
  local function attention(x)
    local y = op(net, "PackedAttention", { fc(x, "self_attn.in_proj_") }, { heads = a.heads })[1]
    return fc(y, "self_attn.out_proj.")
  end
  local function feed(x) return fc(op(net, a.activation == "gelu" and "Gelu" or "Relu", { fc(x, "linear1.") })[1], "linear2.") end
  local function add(x, y) return op(net, "Add", { x, y })[1] end
  if a.norm_first then
    local x = add(b.x, attention(norm(b.x, 1)))
    return { add(x, feed(norm(x, 2))) }
  end
  local x = norm(add(b.x, attention(b.x)), 1)
  return { norm(add(x, feed(x)), 2) }
end

return map
