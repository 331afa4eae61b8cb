--- ONNX's recurrent layers: both directions, peepholes, clipping and other activations included.
-- In a net the steps are a loop, on tensors one after the other.
-- @module neap.onnx.recurrent
local kit = require "neap.onnx.kit"
local op_module = require "neap.op"
local F = kit.F

-- ---- activations --------------------------------------------------------------------------------

local function number(v, x) return kit.number(v, x.dtype) end

--- name -> f(x, alpha, beta); what is missing is ONNX's default.
local activations = {
  Relu = function(x) return F.Relu(x) end,
  Tanh = function(x) return F.Tanh(x) end,
  Sigmoid = function(x) return F.Sigmoid(x) end,
  Affine = function(x, a, b) return F.Add { F.Mul { x, number(a or 1, x) }, number(b or 0, x) } end,
  LeakyRelu = function(x, a) return F.LeakyRelu(x, { slope = a or 0.01 }) end,
  ThresholdedRelu = function(x, a) return F.Threshold(x, { threshold = a or 1, value = 0 }) end,
  ScaledTanh = function(x, a, b)
    return F.Mul { F.Tanh(F.Mul { x, number(b or 1, x) }), number(a or 1, x) }
  end,
  HardSigmoid = function(x, a, b)
    return F.HardSigmoid(x, { slope = a or 0.2, offset = b or 0.5 })
  end,
  Elu = function(x, a) return F.Elu(x, { alpha = a or 1 }) end,
  Softsign = function(x) return F.Softsign(x) end,
  Softplus = function(x) return F.Softplus(x) end,
}
-- Which of these read alpha, and which beta: the lists of the attributes have no gaps.
local reads_alpha = { Affine = true, LeakyRelu = true, ThresholdedRelu = true, ScaledTanh = true,
  HardSigmoid = true, Elu = true }
local reads_beta = { Affine = true, ScaledTanh = true, HardSigmoid = true }

--- The functions of all directions, in order.
local function functions_of(n, defaults, directions)
  local names = n:texts "activations"
  if not names or #names == 0 then
    names = {}
    for _ = 1, directions do table.move(defaults, 1, #defaults, #names + 1, names) end
  end

  -- Lists of alphas and betas have one for each function that reads one, in the order of the
  -- functions.
  local alphas, betas = n:floats("activation_alpha", {}), n:floats("activation_beta", {})
  local a, b, lower = 0, 0, {}
  for name in pairs(activations) do lower[name:lower()] = name end
  return kit.map(names, function(given)
    local name = lower[given:lower()] or n:fail("activation \"%s\"", given)
    local f, alpha, beta = activations[name], nil, nil
    if reads_alpha[name] then
      a = a + 1
      alpha = alphas[a]
    end
    if reads_beta[name] then
      b = b + 1
      beta = betas[b]
    end
    return function(x) return f(x, alpha, beta) end
  end)
end

-- ---- steps --------------------------------------------------------------------------------------

local function reversed(x, lengths)
  if lengths then return F.ReverseSequence({ x, lengths }, { time_axis = 1, batch_axis = 2 }) end
  return F.Flip(x, { axes = { 1 } })
end

--- states = step(states, row) over the rows of x (T,N,..); the first state is what comes out of
-- each step. All steps (T,N,H), and the last states.
local function recur(x, states, lengths, step)
  if op_module.is_blob(x) then
    -- In a net the loop carries the states, and hands out the first after each step.
    local results = table.pack(op_module.net_of(x):Recurrent { seq = { x }, init = states,
      lengths = lengths, step = function(_, ...)
        local before = table.pack(...)
        local row = table.remove(before)
        local after = step(before, row)
        local out = kit.copy(after)
        out[#out + 1] = after[1]
        return table.unpack(out)
      end })
    return results[#states + 1], table.move(results, 1, #states, 1, {})
  end
  local rows = {}
  for t = 1, x.shape[1] do
    local after = step(states, F.Squeeze(kit.part(x, 1, t, 1), { axes = { 1 } }))
    local row = after[1]
    if lengths then -- past its end a sequence keeps its states, and gives 0
      local alive = kit.unsqueeze(F.Gt { lengths, kit.number(t - 1, "i64") }, { 2 })
      row = F.Where { alive, row, number(0, row) }
      for i, state in ipairs(after) do after[i] = F.Where { alive, state, states[i] } end
    end
    rows[t], states = row, after
  end
  return F.Stack(rows, { axis = 1 }), states
end

--- A state beside blobs is a blob, so that a loop can carry it.
local function first_state(n, state, x, width)
  if state then return state end
  return n:make("Constant", { shape = { x.shape[2], width }, dtype = x.dtype, value = 0 })
end

--- Part i of `count` blocks of rows.
local function block(w, i, width) return kit.part(w, 1, (i - 1) * width + 1, width) end

--- One direction's part of a tensor (D, ..), without that dimension.
local function direction(v, d) return v and F.Squeeze(kit.part(v, 1, d, 1), { axes = { 1 } }) end

local function clipped(n)
  local clip = n:float "clip"
  return function(x) return clip and F.Clamp(x, { min = -clip, max = clip }) or x end
end

--- Whether the node asks for nothing that Neap's op of the whole layer has not.
local function is_plain(n, o)
  if n:float("clip", 0) ~= 0 or n:flag "input_forget" then return false end
  for i, name in ipairs(n:texts("activations", {})) do
    local own = o.activations[(i - 1) % #o.activations + 1]
    if name:lower() ~= own:lower() then return false end
  end
  return true
end

--- The layer: `make(d, w, r, bias of the inputs, bias of the states, peepholes, activations)` gives
-- a direction's step, `n_gate` blocks of rows, `n_state` states.
local function layer(n, x, w, r, b, lengths, states, p, o)
  for i, operand in ipairs { x, w, r } do n:check_rank(i, operand, 3) end
  if b then n:check_rank(4, b, 2) end
  local batch_first = n:flag "layout"
  if batch_first then x = kit.permute(x, { 2, 1, 3 }) end
  lengths = lengths and kit.cast(lengths, "i64")
  local way = n:word("direction", "forward reverse bidirectional", "forward")
  local count = way == "bidirectional" and 2 or 1
  local width = n:int("hidden_size", r.shape[3])
  local functions, all, last = functions_of(n, o.activations, count), {}, {}
  for i = 1, o.n_state do last[i] = {} end

  -- Each direction by itself: the sequence backwards, perhaps, its part of each weight, its first
  -- state.
  for d = 1, count do
    local back = way == "reverse" or d == 2
    local init = {}
    for i = 1, o.n_state do
      local state = states[i]
      if state and batch_first then state = kit.permute(state, { 2, 1, 3 }) end
      init[i] = first_state(n, direction(state, d), x, width)
    end
    local bias = direction(b, d)
    if o.op and not n.folds and not p and is_plain(n, o) then
      -- One op with the sum of both biases.
      local half = bias and bias.shape[1] // 2
      local sum = bias and F.Add { kit.part(bias, 1, 1, half), kit.part(bias, 1, half + 1, half) }
      local ins = { x, direction(w, d), direction(r, d), sum or false, init[1], init[2], lengths }
      local results = table.pack(F[o.op](ins, { order = o.order, reverse = back }, 1 + o.n_state))
      all[d] = kit.unsqueeze(results[1], { 2 })
      for i = 1, o.n_state do last[i][d] = kit.unsqueeze(results[i + 1], { 1 }) end
      goto next_direction
    end
    do
      local rows = o.n_gate * width
      local b_in = bias and kit.part(bias, 1, 1, rows)
      local b_state = bias and kit.part(bias, 1, rows + 1, rows)
      local input = back and reversed(x, lengths) or x
      -- The products with the inputs don't wait for the states.
      local of_x = F.FC { input, direction(w, d), b_in or false }
      local step = o.step(n, direction(r, d), b_state, direction(p, d), width,
        table.move(functions, (d - 1) * #o.activations + 1, d * #o.activations, 1, {}))
      local y, after = recur(of_x, init, lengths, step)
      all[d] = kit.unsqueeze(back and reversed(y, lengths) or y, { 2 })
      for i, state in ipairs(after) do last[i][d] = kit.unsqueeze(state, { 1 }) end
    end
    ::next_direction::
  end

  -- Directions go side by side, as the file's layout asks.
  local y = kit.concat(all, 2)
  if batch_first then y = kit.permute(y, { 3, 1, 2, 4 }) end
  local results = { y }
  for i, parts in ipairs(last) do
    local state = kit.concat(parts, 1)
    results[i + 1] = batch_first and kit.permute(state, { 2, 1, 3 }) or state
  end
  return table.unpack(results)
end

local function gates(v, count, width)
  local parts = {}
  for i = 1, count do parts[i] = kit.part(v, 2, (i - 1) * width + 1, width) end
  return parts
end

local rnn = { n_gate = 1, n_state = 1, activations = { "Tanh" },
  step = function(n, r, b_state, _, _, f)
    local clip = clipped(n)
    return function(states, row)
      return { f[1](clip(F.Add { row, F.FC { states[1], r, b_state or false } })) }
    end
  end }

--- Gates in ONNX's order: update, reset, hidden.
local gru = { n_gate = 3, n_state = 1, activations = { "Sigmoid", "Tanh" },
  step = function(n, r, b_state, _, width, f)
    local clip, after = clipped(n), n:flag "linear_before_reset"

    -- The hidden gate's product stands by itself: it meets the reset before or after.
    local r_hidden, b_hidden = block(r, 3, width), b_state and block(b_state, 3, width)
    local r_gates = kit.part(r, 1, 1, 2 * width)
    local b_gates = b_state and kit.part(b_state, 1, 1, 2 * width)
    return function(states, row)
      local h = states[1]
      local x = gates(row, 3, width)
      local s = gates(F.FC { h, r_gates, b_gates or false }, 2, width)
      local z = f[1](clip(F.Add { x[1], s[1] }))
      local reset = f[1](clip(F.Add { x[2], s[2] }))
      local hidden = after and F.Mul { reset, F.FC { h, r_hidden, b_hidden or false } }
        or F.FC { F.Mul { reset, h }, r_hidden, b_hidden or false }
      local new = f[2](clip(F.Add { x[3], hidden }))

      return { F.Add { new, F.Mul { z, F.Sub { h, new } } } }
    end
  end }

--- Gates in ONNX's order: input, output, forget, cell. Peepholes: input, output, forget.
local lstm = { op = "LSTM", order = "iofg", n_gate = 4, n_state = 2,
  activations = { "Sigmoid", "Tanh", "Tanh" },
  step = function(n, r, b_state, p, width, f)
    local clip, coupled = clipped(n), n:flag "input_forget"
    local function peep(x, i, c)
      return p and F.Add { x, F.Mul { kit.part(p, 1, (i - 1) * width + 1, width), c } } or x
    end
    return function(states, row)
      local h, c = states[1], states[2]
      local x = gates(F.Add { row, F.FC { h, r, b_state or false } }, 4, width)
      local input = f[1](clip(peep(x[1], 1, c)))
      local forget = coupled and F.Sub { number(1, input), input } or f[1](clip(peep(x[3], 3, c)))
      c = F.Add { F.Mul { forget, c }, F.Mul { input, f[2](clip(x[4])) } }
      local output = f[1](clip(peep(x[2], 2, c)))
      return { F.Mul { output, f[3](c) }, c }
    end
  end }

-- ---- the way back -------------------------------------------------------------------------------

-- The gates of Neap's orders in ONNX's, input, output, forget, cell: rows that are known.
local gates_of = { ifgo = { 1, 4, 2, 3 }, iofg = { 1, 2, 3, 4 }, ifog = { 1, 3, 2, 4 } }

local function in_order(n, v, order)
  local h, parts = v.dims[1] // 4, {}
  if order == "iofg" then return v end
  if v.tensor then
    for i, g in ipairs(gates_of[order]) do parts[i] = kit.part(v.tensor, 1, (g - 1) * h + 1, h) end
    return n:const(kit.concat(parts, 1))
  end
  for i, g in ipairs(gates_of[order]) do
    parts[i] = n:node("Slice", { v, n:const { (g - 1) * h }, n:const { g * h }, n:const { 0 } })
  end
  return n:node("Concat", parts, { axis = 0 })
end

local function write(out)
  function out.LSTM(n, x, w, r, b, h0, c0, lengths)
    -- The file wants a direction in front of each weight, biases of inputs and of states one behind
    -- the other (Neap's one bias is the first), and gates in its own order.
    local order, h = n.attrs.order, n:dims(3)[2]
    --- One direction's part, for a file in which a direction is the first dimension.
    local function first(v)
      if v.tensor then return n:const(kit.unsqueeze(v.tensor, { 1 })) end
      return n:node("Unsqueeze", { v, n:const { 0 } })
    end
    local bias
    if b then
      local of_x, zero = in_order(n, b, order), kit.full(b.dims, 0, n:dtype(4))
      bias = first(of_x.tensor and n:const(kit.concat({ of_x.tensor, zero }, 1))
        or n:node("Concat", { of_x, n:const(zero) }, { axis = 0 }))
    end
    local function state(v) return v and n:node("Unsqueeze", { v, n:const { 0 } }) end
    if lengths and n:dtype(7) ~= "i32" then lengths = n:cast(lengths, "i32") end

    local y, last, cell = n:node("LSTM", { x, first(in_order(n, w, order)),
      first(in_order(n, r, order)), bias, lengths, state(h0), state(c0) },
      { hidden_size = h, direction = n.attrs.reverse and "reverse" or nil }, 3)
    local function without(v, axis) return n:node("Squeeze", { v, n:const { axis } }) end
    return without(y, 1), without(last, 0), without(cell, 0)
  end
end

return function(op, writers)
  write(writers)
  function op.RNN(n, x, w, r, b, lengths, h)
    return layer(n, x, w, r, b, lengths, { h }, nil, rnn)
  end
  function op.GRU(n, x, w, r, b, lengths, h)
    return layer(n, x, w, r, b, lengths, { h }, nil, gru)
  end
  function op.LSTM(n, x, w, r, b, lengths, h, c, p)
    return layer(n, x, w, r, b, lengths, { h, c }, p, lstm)
  end
end
