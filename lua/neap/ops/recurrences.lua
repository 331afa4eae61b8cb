--- Recurrent layers of one direction that are made of a step: in nets a loop, on tensors the steps
-- one after the other. LSTM has a kernel of its own, and is in C.
-- @module neap.ops.recurrences
local compose = require "neap.ops.compose"
local core = require "neap.core"
local kit = require "neap.ops.kit"
local op = require "neap.op"

local fail = core.fail

--- x along the first dimension from the end, each sequence from its own where lengths are given.
local function turned(x, lengths)
  if lengths then
    return op.apply("ReverseSequence", { x, lengths }, { time_axis = 1, batch_axis = 2 })
  end
  return x:slice { axes = { 1 }, starts = { -1 }, ends = { 1 }, steps = { -1 } }
end

--- The rows and the last state of h = step(h, row), over the rows of x (T,N,..).
local function recur(x, h, lengths, step)
  -- On blobs a loop, whose gradient the engine knows; on tensors the steps themselves.
  if op.is_blob(x) then
    local last, all = op.net_of(x):Recurrent { seq = { x }, init = { h }, lengths = lengths,
      step = function(_, before, row)
        local after = step(before, row)
        return after, after
      end }
    return all, last
  end
  if lengths and lengths:n_element() > 0
    and (lengths:min():item() < 0 or lengths:max():item() > x.shape[1]) then
    fail(("lengths expect numbers from 0 to %d, the steps there are"):format(x.shape[1]))
  end
  if x.shape[1] == 0 then return kit.zeros(x, { 0, h.shape[1], h.shape[2] }), h end
  local rows = {}
  for t = 1, x.shape[1] do
    local after = step(h, x:select(1, t))
    local row = after
    if lengths then -- past its end a sequence keeps its state, and gives 0
      local alive = lengths:gt(t - 1):unsqueeze { axes = { 2 } }
      row, after = kit.where(alive, after, 0), kit.where(alive, after, h)
    end
    rows[t], h = row, after
  end
  return op.apply("Stack", rows, { axis = 1 }), h
end

local inputs = {
  { "x", "(T,N,I), time first" },
  { "input_weight", "(gates H, I)" },
  { "state_weight", "(gates H, H)" },
  { "input_bias", "(gates H)", optional = true },
  { "state_bias", "(gates H)", optional = true },
  { "h", "(N,H): the first state, 0 where it is left out", optional = true },
  { "lengths", "(N): steps of each sequence; y is 0 from there on", dtypes = "integer",
    optional = true },
}

--- Steps by their op's name, for layers of one step: f(options, h, row of input products, products
-- of h) -> the next h.
local steps = {}

--- Defines a recurrence of `n_gate` blocks of H rows in its weights.
-- @tparam function step (h, row of input products, products of h) -> the next h
local function recurrence(spec)
  local name, n_gate, step = spec[1], spec.n_gate, spec.step
  spec.n_gate, spec.step, spec.once = nil, nil, true
  steps[name] = step
  spec.inputs, spec.outputs = inputs, { { "y", "(T,N,H)" }, { "h", "(N,H): the last state" } }
  table.insert(spec, 2, { "reverse", "boolean", false, doc = "from the last step to the first" })
  spec.example = ('net:%s({"x", "w_in", "w_state"}, {"y", "h"})'):format(name)
  spec.of = function(o, x, w_in, w_state, b_in, b_state, h, lengths)
    local n_row, width = w_state.shape[1], w_state.shape[2]
    if #x.shape ~= 3 or n_row ~= n_gate * width then
      fail(("%s: x is (%s), state_weight (%s): expected (T,N,I) and (%d H, H)"):format(name,
        table.concat(x.shape, ","), table.concat(w_state.shape, ","), n_gate))
    end
    h = h or kit.zeros(x, { x.shape[2], width })
    if table.concat(h.shape, ",") ~= ("%d,%d"):format(x.shape[2], width) then
      fail(("%s: h is (%s), expected (%d,%d)"):format(name, table.concat(h.shape, ","), x.shape[2],
        width))
    end
    if o.reverse then x = turned(x, lengths) end
    -- The products with the input don't wait for the state: one product for all steps.
    local of_x = op.apply("FC", { x, w_in, b_in or false }, {})
    local y, last = recur(of_x, h, lengths, function(before, row)
      return step(o, before, row, op.apply("FC", { before, w_state, b_state or false }, {}))
    end)
    return o.reverse and turned(y, lengths) or y, last
  end
  compose.define(spec)
end

recurrence { "GRU", n_gate = 3,
  summary = "Gated recurrent unit over whole sequences: one layer, one direction.",
  math = "r, z = sigmoid(a x + b h); n = tanh(a x + r (b h)); h = (1 - z) n + z h",
  source = "Cho et al., EMNLP 2014; torch.nn.GRU, gates in its order: reset, update, candidate",
  nan = "reaches",
  cases = "{ {x={3,2,4}, input_weight={9,4}, state_weight={9,3}, input_bias={9}, state_bias={9}, "
    .. "h={2,3}}, {x={2,2,3}, input_weight={6,3}, state_weight={6,2}, reverse=true}, "
    .. "{x={3,2,3}, input_weight={6,3}, state_weight={6,2}, "
    .. "lengths={{2}, dtype='i64', low=1, high=4}}, "
    .. "{x={4,2,3}, input_weight={6,3}, state_weight={6,2}, reverse=true, "
    .. "lengths={{2}, dtype='i64', low=1, high=4}} }",
  step = function(_, h, x, s)
    local xr, xz, xn = x:split { axis = -1, outputs = 3 }
    local hr, hz, hn = s:split { axis = -1, outputs = 3 }
    local z = (xz + hz):sigmoid()
    local n = (xn + (xr + hr):sigmoid() * hn):tanh()
    return n + z * (h - n)
  end }

recurrence { "RNN", n_gate = 1,
  summary = "Simple recurrent layer over whole sequences, of one direction.",
  math = "h = f(a x + b h)",
  source = "Elman 1990; torch.nn.RNN",
  nan = "reaches",
  { "activation", "choice", "tanh", choices = { "tanh", "relu" },
    doc = "what the sum goes through" },
  cases = "{ {x={3,2,4}, input_weight={3,4}, state_weight={3,3}, input_bias={3}, h={2,3}}, "
    .. "{x={3,2,4}, input_weight={3,4}, state_weight={3,3}, activation='relu', reverse=true} }",
  step = function(o, _, x, s)
    local sum = x + s
    return o.activation == "relu" and sum:relu() or sum:tanh()
  end }

return steps
