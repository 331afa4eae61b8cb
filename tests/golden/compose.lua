--- Golden names that stand for several Neap ops: entries of the table that map.lua returns, in the
-- same form.
--
-- What is written here shows that an op can be had by composition, and that its gradient then needs
-- no kernel of its own.
local neap = require "neap"

local entry = {}

local function axis(d) return d < 0 and d or d + 1 end
local function axes(list)
  local out = {}
  for i, d in ipairs(type(list) == "table" and list or { list }) do out[i] = axis(d) end
  return out
end
local function over(a) return { axes = axes(a.dim), keepdim = a.keepdim or false } end
local function range(net, n, dtype)
  return (net:op("Range", {}, nil, { stop = n, dtype = dtype or "f32" }))
end
local function constant(net, shape, value, dtype)
  return (net:op("Constant", {}, nil, { shape = shape, value = value, dtype = dtype }))
end
local function copy(list) return table.move(list, 1, #list, 1, {}) end
local function concat(parts, d)
  return #parts > 1 and neap.concat(parts, { axis = d }) or parts[1]
end
local function part(x, d, from, to, step)
  return x:slice { axes = { d }, starts = { from }, ends = { to }, steps = { step or 1 } }
end
local function choose(c, a, b)
  return neap.where(c, type(a) == "number" and c.net:const(a) or a,
    type(b) == "number" and c.net:const(b) or b)
end

--- Elementwise
-- -------------------------------------------------------------------------------------------------

local function truncated(x) return x:sign() * x:abs():floor() end
local function exp(x) return x:exp() end

local of_x = {
  expm1 = function(x) return exp(x) - 1 end,
  log1p = function(x) return (x + 1):log() end,
  log2 = function(x) return x:log() * (1 / math.log(2)) end,
  log10 = function(x) return x:log() * (1 / math.log(10)) end,
  tan = function(x) return x:sin() / x:cos() end,
  sinh = function(x) return (exp(x) - exp(-x)) * 0.5 end,
  cosh = function(x) return (exp(x) + exp(-x)) * 0.5 end,
  asinh = function(x) return x:sign() * (x:abs() + (x:square() + 1):sqrt()):log() end,
  acosh = function(x) return (x + (x:square() - 1):sqrt()):log() end,
  atanh = function(x) return ((x + 1) / (-x + 1)):log() * 0.5 end,
  logsigmoid = function(x) return -(-x):softplus() end,
  softsign = function(x) return x / (x:abs() + 1) end,
  hardswish = function(x) return x * (x + 3):relu6() * (1 / 6) end,
  hardsigmoid = function(x) return (x + 3):relu6() * (1 / 6) end,
  mish = function(x) return x * x:softplus():tanh() end,
  selu = function(x) return x:elu({ alpha = 1.6732632423543772 }) * 1.0507009873554805 end,
  tanhshrink = function(x) return x - x:tanh() end,
  neg = function(x) return -x end,
  sign = function(x) return x:sign() end,
  trunc = truncated,
  frac = function(x) return x - truncated(x) end,
  celu = function(x, a) return (x * (1 / a.alpha)):elu() * a.alpha end,
  hardshrink = function(x, a) return choose(x:abs():gt(a.lambd), x, 0) end,
  softshrink = function(x, a) return x - x:clamp { min = -a.lambd, max = a.lambd } end,
  hardtanh = function(x, a) return x:clamp { min = a.min, max = a.max } end,
  glu = function(x, a)
    local u, gate = x:split { axis = axis(a.dim), outputs = 2 }
    return u * gate:sigmoid()
  end,
  softmin = function(x, a) return (-x):softmax { axis = axis(a.dim) } end,
}
for name, f in pairs(of_x) do
  entry[name] = function(_, b, a) return { f(b.x, a) } end
end

local of_xy = {
  hypot = function(x, y) return (x:square() + y:square()):sqrt() end,
  logaddexp = function(x, y) return y + (x - y):softplus() end,
  fmod = function(x, y) return x - y * truncated(x / y) end,
  logical_and = function(x, y) return x & y end,
  logical_or = function(x, y) return x | y end,
}
for name, f in pairs(of_xy) do
  entry[name] = function(_, b) return { f(b.x, b.y) } end
end
entry.div_rounding = function(_, b, a)
  return { a.rounding_mode == "floor" and b.x // b.y or truncated(b.x / b.y) }
end
entry.lerp = function(_, b, a)
  return { b.input + (b["end"] - b.input) * (b.weight or a.weight) }
end
entry.addcdiv = function(_, b, a) return { b.x + b.a / b.b * a.value } end
entry.addcmul = function(_, b, a) return { b.x + b.a * b.b * a.value } end
entry.prelu = function(_, b)
  local shape, n = {}, b.weight.shape[1]
  for d = 1, #b.x.shape do shape[d] = d == 2 and n or 1 end
  return { choose(b.x:gt(0), b.x, b.x * b.weight:reshape(shape)) }
end
entry.masked_fill = function(net, b, a) return { neap.where(b.m, net:const(a.value), b.x) } end
entry.one_hot = function(net, b, a)
  return { b.x:unsqueeze(-1):eq(range(net, a.num_classes, "i64")):cast { to = "i64" } }
end
entry.searchsorted = function(_, b, a)
  local v = b.v:unsqueeze(-1)
  return {
    (a.right and v:ge(b.s) or v:gt(b.s)):cast({ to = "f32" }):sum({ axes = { -1 } }):cast {
      to = "i64",
    },
  }
end

--- Reductions
-- -------------------------------------------------------------------------------------------------

local function norm(x, p, options)
  if p == math.huge then return x:abs():max(options) end
  if p == 2 then return x:square():sum(options):sqrt() end
  return p == 1 and x:abs():sum(options) or (x:abs() ^ p):sum(options) ^ (1 / p)
end
local function variance(correction)
  return function(x, a)
    local n = 1
    for _, d in ipairs(axes(a.dim)) do n = n * x:size(d) end
    return (x - x:mean { axes = axes(a.dim), keepdim = true }):square():sum(over(a))
      * (1 / (n - correction))
  end
end
local function log_sum_exp(x, list, keepdim)
  local largest = x:max({ axes = list, keepdim = true }):stop_gradient()
  local y = (x - largest):exp():sum({ axes = list, keepdim = true }):log() + largest
  return keepdim and y or y:squeeze { axes = list }
end
local reductions = {
  logsumexp = function(x, a) return log_sum_exp(x, axes(a.dim), a.keepdim) end,
  var = variance(1), var_biased = variance(0),
  std = function(x, a) return variance(1)(x, a):sqrt() end,
  norm = function(x, a) return norm(x, a.p == "inf" and math.huge or tonumber(a.p), over(a)) end,
  normalize = function(x, a)
    return x / norm(x, a.p, { axes = axes(a.dim), keepdim = true }):maximum(a.eps)
  end,
  all = function(x, a) return x:cast({ to = "f32" }):min(over(a)):cast { to = "bool" } end,
  any = function(x, a) return x:cast({ to = "f32" }):max(over(a)):cast { to = "bool" } end,
  trace = function(x) return part(x:reshape(-1), 1, 1, -1, x.shape[2] + 1):sum() end,
}
for name, f in pairs(reductions) do
  entry[name] = function(_, b, a) return { f(b.x, a) } end
end

--- Running reductions: each position is the reduction of all positions up to it.
local function running(...)
  local all = { ... }
  return function(_, b, a)
    local d, outs = a.dim % #b.x.shape + 1, {}
    for k, f in ipairs(all) do
      local parts = {}
      for i = 1, b.x.shape[d] do parts[i] = f(part(b.x, d, 1, i), d) end
      outs[k] = concat(parts, d)
    end
    return outs
  end
end
local function reduced(method)
  return function(x, d) return x[method](x, { axes = { d }, keepdim = true }) end
end
local function place(method)
  return function(x, d) return x[method](x, { axis = d, keepdim = true }) end
end
entry.cummax, entry.cummin = running(reduced "max", place "arg_max"),
  running(reduced "min", place "arg_min")

--- Movement
-- -------------------------------------------------------------------------------------------------

entry.roll = function(_, b, a)
  local x = b.x
  for i, d in ipairs(axes(a.dims)) do
    local n = x:size(d)
    local shift = a.shifts[i] % n
    if shift > 0 then x = concat({ part(x, d, n - shift + 1, n), part(x, d, 1, n - shift) }, d) end
  end
  return { x }
end
entry.repeat_interleave = function(_, b, a)
  local d, shape, wide = axis(a.dim), copy(b.x.shape), copy(b.x.shape)
  table.insert(wide, d + 1, a.repeats)
  shape[d] = shape[d] * a.repeats
  return { b.x:unsqueeze(d + 1):expand(wide):reshape(shape) }
end
local function triangle(keep)
  return function(net, b, a)
    local n, m = b.x:size(-2), b.x:size(-1)
    local distance = range(net, m) - range(net, n):reshape(n, 1)
    return { choose(keep(distance, a.diagonal or 0), b.x, 0) }
  end
end
entry.tril = triangle(function(distance, k) return distance:le(k) end)
entry.triu = triangle(function(distance, k) return distance:ge(k) end)
entry.pixel_shuffle = function(_, b, a)
  local n, c, h, w = table.unpack(b.x.shape)
  local r = a.r
  return {
    b.x:reshape(n, c // (r * r), r, r, h,
      w):permute({ 1, 2, 5, 3, 6, 4 }):reshape(n, c // (r * r), h * r, w * r),
  }
end
entry.pixel_unshuffle = function(_, b, a)
  local n, c, h, w = table.unpack(b.x.shape)
  local r = a.r
  return {
    b.x:reshape(n, c, h // r, r, w // r,
      r):permute({ 1, 2, 4, 6, 3, 5 }):reshape(n, c * r * r, h // r, w // r),
  }
end
--- Dimension d of x with `before` and `after` positions more; negative ones take away. fill(n,
-- side) gives the new ones.
local function widen(x, d, before, after, fill)
  local n = x:size(d)
  if before < 0 or after < 0 then
    x = part(x, d, 1 - math.min(before, 0), n + math.min(after, 0))
  end
  local parts = {}
  if before > 0 then parts[1] = fill(before, "before") end
  parts[#parts + 1] = x
  if after > 0 then parts[#parts + 1] = fill(after, "after") end
  return concat(parts, d)
end
local function zeros_around(net, x, d, before, after, value)
  return widen(x, d, before, after, function(n)
    local shape = copy(x.shape)
    shape[d] = n
    return constant(net, shape, value or 0)
  end)
end
entry.pad = function(net, b, a)
  -- the other modes have no use for a value
  local x, rank, value = b.x, #b.x.shape, tonumber(a.value) or 0
  if a.mode == "constant" and math.min(table.unpack(a.pad)) >= 0 then
    local pads = {}
    for d = 1, 2 * rank do pads[d] = 0 end
    for i = 1, #a.pad, 2 do -- pairs from the last dimension on
      local d = rank - i // 2
      pads[d], pads[rank + d] = a.pad[i], a.pad[i + 1]
    end
    return { (net:op("Pad", { x }, 1, { pads = pads, value = value })) }
  end
  for i = 1, #a.pad, 2 do
    local d = rank - i // 2
    local n, whole = x.shape[d], x
    if a.mode == "constant" then
      x = zeros_around(net, x, d, a.pad[i], a.pad[i + 1], value)
    else
      x = widen(x, d, a.pad[i], a.pad[i + 1], function(k, side)
        if a.mode == "reflect" then
          return side == "before" and part(whole, d, k + 1, 2, -1)
            or part(whole, d, n - 1, n - k, -1)
        end
        if a.mode == "circular" then
          return side == "before" and part(whole, d, n - k + 1, n) or part(whole, d, 1, k)
        end
        local shape = copy(whole.shape)
        shape[d] = k
        -- replicate
        return (side == "before" and part(whole, d, 1, 1) or part(whole, d, n, n)):expand(shape)
      end)
    end
  end
  return { x }
end
entry.unfold = function(net, b, a)
  local x, places = b.x, {}
  local n_out = {}
  for d = 1, 2 do
    x = zeros_around(net, x, d + 2, a.padding[d], a.padding[d])
    n_out[d] = (x.shape[d + 2] - a.dilation[d] * (a.kernel[d] - 1) - 1) // a.stride[d]
  end
  for i = 0, a.kernel[1] - 1 do
    for j = 0, a.kernel[2] - 1 do
      local from = { i * a.dilation[1] + 1, j * a.dilation[2] + 1 }
      local to = { from[1] + n_out[1] * a.stride[1], from[2] + n_out[2] * a.stride[2] }
      places[#places + 1] =
        x:slice({ axes = { 3, 4 }, starts = from, ends = to, steps = a.stride }):unsqueeze(3)
    end
  end
  return { concat(places, 3):reshape(x.shape[1], x.shape[2] * #places, -1) }
end

--- Products
-- -------------------------------------------------------------------------------------------------

entry.outer = function(_, b) return { b.input:unsqueeze(2) * b.vec2:unsqueeze(1) } end
entry.kron = function(_, b)
  local n, m = table.unpack(b.input.shape)
  local k, l = table.unpack(b.other.shape)
  return { (b.input:reshape(n, 1, m, 1) * b.other:reshape(1, k, 1, l)):reshape(n * k, m * l) }
end
entry.bilinear = function(_, b)
  local n, i = table.unpack(b.a.shape)
  local o, _, j = table.unpack(b.weight.shape)
  local rows = b.a:matmul(b.weight:permute({ 2, 1, 3 }):reshape(i, o * j)):reshape(n, o, j)
  local y = (rows * b.b:unsqueeze(2)):sum { axes = { 3 } }
  return { b.bias and y + b.bias or y }
end
entry.cdist = function(_, b, a)
  return { norm(b.a:unsqueeze(-2) - b.b:unsqueeze(-3), a.p, { axes = { -1 } }) }
end
local function cosine(x, y, d, eps)
  local options = { axes = { d } }
  return (x * y):sum(options)
    / (norm(x, 2, options):maximum(eps) * norm(y, 2, options):maximum(eps))
end
entry.cosine_similarity = function(_, b, a) return { cosine(b.a, b.b, axis(a.dim), a.eps) } end

--- Letters of one operand; "..." becomes capital letters, the last dimensions the same in all
-- operands.
local function letters_of(term, rank)
  local dots = term:find("...", 1, true)
  local n = rank - #term + 3
  local list = {}
  for letter in (dots and term:sub(1, dots - 1) or term):gmatch "%a" do list[#list + 1] = letter end
  for i = n, dots and 1 or n + 1, -1 do list[#list + 1] = "dot" .. i end
  for letter in (dots and term:sub(dots + 3) or ""):gmatch "%a" do list[#list + 1] = letter end
  return list
end
--- Every operand gets one dimension a letter, in one order; then they are multiplied, and what is
-- not asked for is summed.
entry.einsum = function(_, b, a)
  local left, right = a.equation:match "^(.-)%->(.*)$"
  local order, seen, operands, k = {}, {}, {}, 0
  local function add(list)
    for _, letter in ipairs(list) do
      if not seen[letter] then seen[letter], order[#order + 1] = true, letter end
    end
  end
  for term in (left .. ","):gmatch "([^,]*)," do
    local x = b["x" .. k]
    local letters = letters_of(term, #x.shape)
    if #letters == 2 and letters[1] == letters[2] then
      x, letters = part(x:reshape(-1), 1, 1, -1, x.shape[2] + 1), { letters[1] }
    end
    k = k + 1
    operands[k] = { x = x, letters = letters }
  end
  local most = 0
  for _, o in ipairs(operands) do
    for _, letter in ipairs(o.letters) do
      most = math.max(most, tonumber(letter:match "dot(%d+)") or 0)
    end
  end
  local n_right = #right:gsub("%.%.%.", "")
  add(letters_of(right, n_right + (right:find("...", 1, true) and most or 0)))
  local n_kept = #order
  for _, o in ipairs(operands) do add(o.letters) end
  local y
  for _, o in ipairs(operands) do
    local at, permuted, shape = {}, {}, {}
    for d, letter in ipairs(o.letters) do at[letter] = d end
    for i, letter in ipairs(order) do
      shape[i] = at[letter] and o.x.shape[at[letter]] or 1
      permuted[#permuted + 1] = at[letter]
    end
    local x = o.x:permute(permuted):reshape(shape)
    y = y and y * x or x
  end
  local summed = {}
  for i = n_kept + 1, #order do summed[#summed + 1] = i end
  return { #summed > 0 and y:sum { axes = summed } or y }
end

--- Interpolation: along each dimension a product with a small matrix, whose rows say which
-- positions make the new one.
local function cubic(t)
  t = math.abs(t)
  local A = -0.75
  if t <= 1 then return ((A + 2) * t - (A + 3)) * t * t + 1 end
  return t < 2 and ((A * t - 5 * A) * t + 8 * A) * t - 4 * A or 0
end
local function weights_of(mode, n, m, scale, corners)
  local rows = {}
  for i = 0, m - 1 do
    local row = {}
    local function add(at, weight)
      at = math.max(0, math.min(n - 1, at)) + 1
      row[at] = row[at] + weight
    end
    for j = 1, n do row[j] = 0.0 end
    local from = corners and (m > 1 and i * (n - 1) / (m - 1) or 0) or (i + 0.5) * scale - 0.5
    if mode == "nearest" then
      add(math.floor(i * scale), 1)
    elseif mode == "nearest-exact" then
      add(math.floor((i + 0.5) * scale), 1)
    elseif mode == "area" then
      local first, last = i * n // m, -(-(i + 1) * n // m) - 1
      for j = first, last do add(j, 1 / (last - first + 1)) end
    elseif mode == "bicubic" then
      for j = -1, 2 do add(math.floor(from) + j, cubic(from - math.floor(from) - j)) end
    else
      from = math.max(from, 0)
      local share = from - math.floor(from)
      add(math.floor(from), 1 - share)
      add(math.floor(from) + 1, share)
    end
    rows[i + 1] = row
  end
  return rows
end
local function interpolate(net, b, a)
  local x = b.x
  local rank, factor = #x.shape - 2, tonumber(a.scale_factor)
  for d = 1, rank do
    local n = x.shape[d + 2]
    local m = factor and math.floor(n * factor) or a.size[d]
    local weights = weights_of(a.mode, n, m, factor and 1 / factor or n / m,
      a.align_corners == true)
    x = x:transpose(d + 2, rank + 2):matmul(net:const(neap.tensor(weights)),
      { trans_b = true }):transpose(d + 2, rank + 2)
  end
  return { x }
end
entry.interpolate1d, entry.interpolate2d, entry.interpolate3d = interpolate, interpolate,
  interpolate

--- Norms
-- -------------------------------------------------------------------------------------------------

local function grouped_norm(b, groups, eps)
  local shape, channels = b.x.shape, {}
  for d = 1, #shape do channels[d] = d == 2 and shape[2] or 1 end
  local y = b.x:reshape(shape[1], groups, -1):layer_norm({ eps = eps }):reshape(shape)
  return { b.weight and y * b.weight:reshape(channels) + b.bias:reshape(channels) or y }
end
entry.group_norm = function(_, b, a) return grouped_norm(b, a.groups, a.eps) end
entry.instance_norm = function(_, b, a) return grouped_norm(b, b.x.shape[2], a.eps) end
entry.local_response_norm = function(net, b, a)
  if a.size % 2 == 1 then
    return {
      (net:op("LRN", { b.x }, 1, { size = a.size, alpha = a.alpha, beta = a.beta, bias = a.k })),
    }
  end
  local n, c = b.x.shape[1], b.x.shape[2]
  local window = {
    kernel = { a.size, 1 }, stride = 1, pad = { a.size // 2, 0, (a.size - 1) // 2, 0 },
  }
  local mean = b.x:square():reshape(n, 1, c, -1):average_pool(window):reshape(b.x.shape)
  return { b.x / (mean * a.alpha + a.k) ^ a.beta }
end
entry.lp_pool2d = function(_, b, a)
  local mean = (b.x ^ a.p):average_pool {
    kernel = { a.kernel, a.kernel }, stride = { a.stride, a.stride },
  }
  return { (mean * a.kernel ^ 2) ^ (1 / a.p) }
end

--- Losses
-- -------------------------------------------------------------------------------------------------

local function reduce(x, a)
  if a.reduction == "none" then return x end
  if a.reduction == "batchmean" then return x:sum() * (1 / x.shape[1]) end
  return a.reduction == "sum" and x:sum() or x:mean()
end
local function one_hot(t, n)
  return t:unsqueeze(-1):eq(range(t.net, n, t.dtype)):cast { to = "f32" }
end

local losses = {
  huber_loss = function(b, a)
    local d = (b.x - b.y):abs()
    return choose(d:le(a.delta), d:square() * 0.5, (d - a.delta / 2) * a.delta)
  end,
  smooth_l1_loss = function(b, a)
    local d = (b.x - b.y):abs()
    return choose(d:lt(a.beta), d:square() * (0.5 / a.beta), d - a.beta / 2)
  end,
  binary_cross_entropy = function(b)
    local loss = -(b.y * b.x:log() + (-b.y + 1) * (-b.x + 1):log())
    return b.w and loss * b.w or loss
  end,
  bce_with_logits = function(b)
    local weight = b.pw and (b.pw - 1) * b.y + 1
    local loss = (-b.x):softplus()
    loss = (-b.y + 1) * b.x + (weight and weight * loss or loss)
    return b.w and loss * b.w or loss
  end,
  soft_margin_loss = function(b) return (-(b.y * b.x)):softplus() end,
  hinge_embedding_loss = function(b, a) return choose(b.y:eq(1), b.x, (-b.x + a.margin):relu()) end,
  multi_margin_loss = function(b, a)
    local hot = one_hot(b.y, b.x.shape[2])
    local own = (b.x * hot):sum { axes = { 2 }, keepdim = true }
    local over_margin = (b.x - own + a.margin):relu()
    return ((a.p == 1 and over_margin or over_margin ^ a.p) * (-hot + 1)):sum({ axes = { 2 } })
      * (1 / b.x.shape[2])
  end,
  multilabel_soft_margin_loss = function(b)
    return (b.y * (-b.x):softplus() + (-b.y + 1) * b.x:softplus()):mean { axes = { -1 } }
  end,
  poisson_nll_loss = function(b, a)
    if a.full then return nil, "Stirling's term" end
    return a.log_input and b.x:exp() - b.y * b.x or b.x - b.y * (b.x + (a.eps or 1e-8)):log()
  end,
  margin_ranking_loss = function(b, a) return (-(b.y * (b.a - b.b)) + a.margin):relu() end,
  cosine_embedding_loss = function(b, a)
    local c = cosine(b.a, b.b, -1, 1e-8)
    return choose(b.y:eq(1), -c + 1, (c - a.margin):relu())
  end,
  triplet_margin_loss = function(b, a)
    -- PyTorch's eps
    local function distance(y) return norm(b.a - y + 1e-6, a.p, { axes = { -1 } }) end
    return (distance(b.p) - distance(b.n) + a.margin):relu()
  end,
  gaussian_nll_loss = function(b) return (b.v:log() + (b.x - b.y):square() / b.v) * 0.5 end,
  kl_div = function(b, a)
    return a.log_target and b.y:exp() * (b.y - b.x) or b.y * (b.y:log() - b.x)
  end,
}
for name, f in pairs(losses) do
  entry[name] = function(_, b, a)
    local loss, why = f(b, a)
    if not loss then return nil, why end
    return { reduce(loss, a) }
  end
end
entry.nll_loss = function(_, b, a)
  local hot = one_hot(b.t, b.x.shape[2])
  if b.w then hot = hot * b.w end
  if a.ignore_index then hot = hot * b.t:ne(a.ignore_index):cast({ to = "f32" }):unsqueeze(2) end
  local loss = -(b.x * hot):sum { axes = { 2 } }
  return { a.reduction == "mean" and loss:sum() / hot:sum() or reduce(loss, a) }
end

--- Recurrent nets, step by step
-- ------------------------------------------------------------------------------------------------

local cells = {}
local function plain_cell(activation)
  return function(gx, gh) return (gx + gh)[activation](gx + gh) end
end
cells.rnn_tanh, cells.rnn_relu = plain_cell "tanh", plain_cell "relu"
function cells.lstm(gx, gh, _, c)
  local i, f, g, o = (gx + gh):split { axis = -1, outputs = 4 }
  c = f:sigmoid() * c + i:sigmoid() * g:tanh()
  return o:sigmoid() * c:tanh(), c
end
function cells.gru(gx, gh, h)
  local xr, xz, xn = gx:split { axis = -1, outputs = 3 }
  local hr, hz, hn = gh:split { axis = -1, outputs = 3 }
  local z = (xz + hz):sigmoid()
  local n = (xn + (xr + hr):sigmoid() * hn):tanh()
  return n + z * (h - n)
end

--- One layer in one direction over x (T,N,I): y (T,N,H), and the last h and c, each (N,H).
local function run_layer(net, cell, b, x, suffix, reverse, h, c)
  local function weight(name) return b["p." .. name .. suffix] end
  local function fc(input, name)
    return (net:op("FC", { input, weight("weight_" .. name), weight("bias_" .. name) }))
  end
  -- the op itself; without projections that is all there is
  if cell == cells.lstm and not weight "weight_hr" then
    local bias = weight "bias_ih" and weight "bias_ih" + weight "bias_hh" or nil
    return net:op("LSTM", { x, weight "weight_ih", weight "weight_hh", bias, h, c, b.lens }, nil,
      { reverse = reverse })
  end
  local gates, rows, n = fc(x, "ih"), {}, x.shape[1]
  for k = 1, n do
    local t = reverse and n + 1 - k or k
    local next_h, next_c = cell(gates:select(1, t), fc(h, "hh"), h, c)
    if weight "weight_hr" then next_h = net:op("FC", { next_h, weight "weight_hr" }) end
    local row = next_h
    if b.lens then -- past its length a sample keeps its state and gives 0
      local here = b.lens:ge(t):reshape(-1, 1)
      row, next_h = choose(here, next_h, 0), choose(here, next_h, h)
    end
    h, c, rows[t] = next_h, next_c, row:unsqueeze(1)
  end
  return concat(rows, 1), h, c
end
local function recurrent(name)
  return function(net, b, a, case)
    if b.lens and a.bidirectional and name ~= "lstm" then
      return nil, "packed sequences in both directions"
    end
    local x, states = a.batch_first and b.x:transpose(1, 2) or b.x, { h = {}, c = {} }
    local n_direction, at = a.bidirectional and 2 or 1, 0
    local function start(state, size)
      return state and state:select(1, at) or constant(net, { x.shape[2], size }, 0)
    end
    for layer = 0, (a.num_layers or 1) - 1 do
      local sides = {}
      for direction = 1, n_direction do
        local suffix = "_l" .. layer .. (direction == 2 and "_reverse" or "")
        at = at + 1
        local h = start(b.h0, b["p.weight_hh" .. suffix].shape[2])
        local c = name == "lstm" and start(b.c0, a.hidden) or nil
        sides[direction], h, c = run_layer(net, cells[name], b, x, suffix, direction == 2, h, c)
        states.h[at], states.c[at] = h:unsqueeze(1), c and c:unsqueeze(1)
      end
      x = concat(sides, 3)
    end
    local outs = {
      a.batch_first and x:transpose(1, 2) or x, concat(states.h, 1),
      name == "lstm" and concat(states.c, 1) or nil,
    }
    -- some goldens keep y only
    while not case.tensors["out." .. (#outs - 1)] do outs[#outs] = nil end
    return outs
  end
end
for name in pairs(cells) do entry[name] = recurrent(name) end

return entry
