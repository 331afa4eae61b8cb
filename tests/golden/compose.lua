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
local function concat(parts, d)
  return #parts > 1 and neap.concat(parts, { axis = d }) or parts[1]
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
