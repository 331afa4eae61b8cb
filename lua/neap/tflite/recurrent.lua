--- TFLite's operators over sequences, where what lasts from step to step begins as zeros in every
-- run; and those that run subgraphs.
-- @module neap.tflite.recurrent
local T = require "neap.tflite.kit"
local kit = require "neap.onnx.kit"
local F = kit.F

--- Raises for inputs that make another operator of it: `names` by place.
local function lacks(n, names)
  for i, what in pairs(names) do
    if n.inputs[i] then n:fail("%s, which is not read", what) end
  end
end

--- Input i, weights in few bits as the numbers that they stand for.
local function numbers(n, i)
  if not n.inputs[i] then n:fail("input %d is missing", i) end
  local t, x = T.quantised(n.row.reads[i]), n:x(i)
  return t and T.dequantised(x, t) or kit.cast(x, "f32")
end

--- Rows of several inputs, one under the other, with a direction in front: (1,4H,..).
local function stacked(n, places)
  local y = kit.concat(kit.map(places, function(i) return numbers(n, i) end), 1)
  return kit.unsqueeze(y, { 1 })
end

--- x as (T,B,I), and what brings a result (T,B,H) back into the file's order.
local function in_time(n, x)
  if #x.shape ~= 3 then n:fail("x has %d dimensions, expected 3", #x.shape) end
  if n:flag "time_major" then return x, function(y) return y end end
  return kit.permute(x, { 2, 1, 3 }), function(y) return kit.permute(y, { 2, 1, 3 }) end
end

--- The gates of the file are input, forget, cell, output; ONNX's are input, output, forget, cell.
local function lstm(n)
  if T.quantised(n.row.reads[1]) then n:fail "sequences of integers are not read" end
  lacks(n, { [10] = "peepholes", [11] = "peepholes", [12] = "peepholes", [17] = "a projection",
    [21] = "layer normalisation", [22] = "layer normalisation" })
  if not n.inputs[2] then n:fail "no input gate (CIFG), which is not read" end
  if n:int("fused_activation_function", 0) ~= 4 then n:fail "an activation other than tanh" end
  if n:float("cell_clip", 0) ~= 0 then n:fail "a clipped cell, which is not read" end

  -- Gates are put into ONNX's order as the rows are stacked; its bias has a second half, for the
  -- state, that TFLite lacks.
  local x, back = in_time(n, T.plain(n, 1))
  local w, r = stacked(n, { 2, 5, 3, 4 }), stacked(n, { 6, 9, 7, 8 })
  local b = stacked(n, { 13, 16, 14, 15 })
  local hidden = r.shape[3]
  b = kit.concat({ b, kit.full({ 1, 4 * hidden }, 0, "f32") }, 2)
  local y = T.onnx(n, "LSTM", { x, w, r, b }, { hidden_size = hidden })
  return back(kit.reshape(y, { y.shape[1], y.shape[3], y.shape[4] }))
end

local activations = { [1] = "Relu", [4] = "Tanh" }

local function rnn(n)
  local name = activations[n:int("fused_activation_function", 0)]
    or n:fail "an activation other than Relu and tanh"
  local x, back = in_time(n, T.plain(n, 1))
  local w, r, b = stacked(n, { 2 }), stacked(n, { 3 }), stacked(n, { 4 })
  local hidden = r.shape[3]
  b = kit.concat({ b, kit.full({ 1, hidden }, 0, "f32") }, 2)
  local y = T.onnx(n, "RNN", { x, w, r, b }, { hidden_size = hidden, activations = { name } })
  return back(kit.reshape(y, { y.shape[1], y.shape[3], y.shape[4] }))
end

--- The first step of a filter whose memory is empty: of the time's weights the last column alone
-- meets something, and ranks of a unit are added up.
local function svdf(n)
  local rank = n:int("rank", 0)
  local x, features, time = T.plain(n, 1), numbers(n, 2), numbers(n, 3)
  if T.quantised(n.row.reads[1]) then n:fail "sequences of integers are not read" end
  if #features.shape ~= 2 or #time.shape ~= 2 or #x.shape ~= 2 then n:fail "no matrices" end
  if rank < 1 or features.shape[1] % rank ~= 0 then n:fail("a rank of %d", rank) end

  -- Ranks of a unit lie next to each other.
  local last = kit.reshape(kit.part(time, 2, time.shape[2], 1), { -1 })
  local y = F.Mul { F.FC { x, features }, last }
  y = F.Sum(kit.reshape(y, { x.shape[1], features.shape[1] // rank, rank }), { axes = { 3 } })
  if n.inputs[4] then y = F.Add { y, n:x(4) } end
  return T.activated(n, y)
end

-- ---- subgraphs ----------------------------------------------------------------------------------

--- Turns of loops that are written out, of all in a file together.
local MOST_TURNS = 1024

--- A condition that must be known when the net is built.
local function holds(n, v, what)
  if not v.x or not kit.is_known(v.x) then n:fail("%s that only a run can tell", what) end
  return kit.cast(kit.reshape(v.x, {}), "i32"):item() ~= 0
end

local function call(n) return table.unpack(n.state:run_subgraph(n:graph "body", {}, n.inputs)) end

local function choose(n)
  local name = holds(n, n.inputs[1], "a condition") and "then_branch" or "else_branch"
  local inputs = table.move(n.inputs, 2, #n.row.inputs, 1, {})
  return table.unpack(n.state:run_subgraph(n:graph(name), {}, inputs))
end

--- A loop turn by turn: it counts, and how far is known.
local function loop(n)
  local state, values = n.state, n.inputs

  -- Both graphs are written out once for each turn, with what is known in between, until the
  -- condition says so.
  local cond, body = n:graph "cond", n:graph "body"
  while holds(n, state:run_subgraph(cond, {}, values)[1] or {}, "a loop's end") do
    state.turns = (state.turns or 0) + 1
    if state.turns > MOST_TURNS then n:fail("more than %d turns of loops", MOST_TURNS) end
    values = state:run_subgraph(body, {}, values)
  end
  return table.unpack(values, 1, #n.row.outputs)
end

return function(op, needs)
  needs[3] = "SVDF"
  needs[4] = "UNIDIRECTIONAL_SEQUENCE_RNN"
  op.UNIDIRECTIONAL_SEQUENCE_LSTM, op.UNIDIRECTIONAL_SEQUENCE_RNN, op.SVDF = lstm, rnn, svdf
  op.CALL, op.IF, op.WHILE = call, choose, loop
end
