--- Golden names that stand for several Neap ops: entries of the table that map.lua returns, in the
-- same form.
--
-- What is written here shows that an op can be had by composition, and that its gradient then needs
-- no kernel of its own.
local neap = require "neap"

local entry = {}

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

--- Elementwise
-- -------------------------------------------------------------------------------------------------

entry.fmod = function(_, b) return { b.x - b.y * (b.x / b.y):trunc() } end
entry.div_rounding = function(_, b, a)
  return { a.rounding_mode == "floor" and b.x // b.y or (b.x / b.y):trunc() }
end
entry.addcdiv = function(_, b, a) return { b.x + b.a / b.b * a.value } end
entry.addcmul = function(_, b, a) return { b.x + b.a * b.b * a.value } end

--- Reductions
-- -------------------------------------------------------------------------------------------------

entry.trace = function(_, b) return { b.x:diagonal():sum() } end

--- Movement
-- -------------------------------------------------------------------------------------------------

--- Dimension d of x with `before` and `after` zeros around it; negative ones take away.
local function zeros_around(x, d, before, after)
  return x:pad { pads = { before, after }, axes = { d } }
end
entry.unfold = function(_, b, a)
  local x, places = b.x, {}
  local n_out = {}
  for d = 1, 2 do
    x = zeros_around(x, d + 2, a.padding[d], a.padding[d])
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

--- Convolution with x spread out by the stride and the kernel turned round.
local function conv_transpose(net, b, a)
  local x, w, groups = b.x, b.weight, a.groups
  local rank = #x.shape - 2
  for d = 1, rank do
    local s, k, n = a.stride[d], w.shape[d + 2], x.shape[d + 2]
    if s > 1 then
      local wide, shape = copy(x.shape), copy(x.shape)
      table.insert(wide, d + 3, s - 1)
      shape[d + 2] = n * s
      x = part(concat({ x:unsqueeze(d + 3), constant(net, wide, 0) }, d + 3):reshape(shape), d + 2,
        1, (n - 1) * s + 1)
    end
    local reach = a.dilation[d] * (k - 1) - a.padding[d]
    x = zeros_around(net, x, d + 2, reach, reach + a.output_padding[d])
    w = part(w, d + 2, -1, 1, -1)
  end
  local c_in, c_out = w.shape[1], w.shape[2]
  local split, order = { groups, c_in // groups, c_out }, { 1, 3, 2 }
  local shape = { groups * c_out, c_in // groups }
  for d = 1, rank do
    split[d + 3], order[d + 3], shape[d + 2] = w.shape[d + 2], d + 3, w.shape[d + 2]
  end
  w = w:reshape(split):permute(order):reshape(shape)
  return { (net:op("Conv", { x, w, b.bias }, nil, { dilation = a.dilation, groups = groups })) }
end
entry.conv_transpose1d, entry.conv_transpose2d, entry.conv_transpose3d = conv_transpose,
  conv_transpose, conv_transpose

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

--- Recurrent nets, step by step
-- ------------------------------------------------------------------------------------------------

-- By golden name: the op, and its activation.
local kinds = { lstm = { "LSTM" }, gru = { "GRU" }, rnn_tanh = { "RNN", "tanh" },
  rnn_relu = { "RNN", "relu" } }

--- One step of an LSTM: the next h and c.
local function lstm_cell(gx, gh, c)
  local i, f, g, o = (gx + gh):split { axis = -1, outputs = 4 }
  c = f:sigmoid() * c + i:sigmoid() * g:tanh()
  return o:sigmoid() * c:tanh(), c
end

--- One layer in one direction over x (T,N,I): y (T,N,H), and the last h and c, each (N,H).
local function run_layer(net, kind, b, x, suffix, reverse, h, c)
  local function weight(name) return b["p." .. name .. suffix] end
  local w, u, bias, state_bias = weight "weight_ih", weight "weight_hh", weight "bias_ih",
    weight "bias_hh"
  if kind[1] ~= "LSTM" then
    return net:op(kind[1], { x, w, u, bias, state_bias, h, b.lens }, nil,
      { reverse = reverse, activation = kind[2] })
  end
  -- the op itself; without projections that is all there is
  if not weight "weight_hr" then
    return net:op("LSTM", { x, w, u, bias and bias + state_bias, h, c, b.lens }, nil,
      { reverse = reverse })
  end
  local gates, rows, n = net:op("FC", { x, w, bias }), {}, x.shape[1]
  for k = 1, n do
    local t = reverse and n + 1 - k or k
    h, c = lstm_cell(gates:select(1, t), net:op("FC", { h, u, state_bias }), c)
    h = net:op("FC", { h, weight "weight_hr" })
    rows[t] = h:unsqueeze(1)
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
        sides[direction], h, c = run_layer(net, kinds[name], b, x, suffix, direction == 2, h, c)
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
for name in pairs(kinds) do entry[name] = recurrent(name) end

return entry
