--- Caffe's recurrent layers: steps come first, and a second bottom says of each step of each
-- sequence whether it goes on (1) or begins anew (0). In a net they are a loop.
-- @module neap.caffe.recurrent
local kit = require "neap.caffe.kit"
local F = kit.F

--- x (T,N,..) times a weight (M,D), plus b: (T,N,M).
local function rows(x, w, b)
  local t, n = x.shape[1], x.shape[2]
  local flat = kit.reshape(x, { t * n, kit.product(x.shape, 3) })
  return kit.reshape(F.FC { flat, w, b }, { t, n, w.shape[1] })
end

--- What both layers have: x in the gates' weights, the marks as (T,N,1), first states, and
-- parameters in the order of Caffe's files. `n_gate` blocks of rows, `n_state` states.
local function begin(n, n_gate, n_state, bottoms)
  local x, cont = bottoms[1], bottoms[2]
  local p = n:options "recurrent_param"
  local h = p:size "num_output" or n:fail "num_output is missing"
  local exposed = p:flag("expose_hidden", false)
  p:leave "debug_info"
  local most = 3 + (exposed and n_state or 0)
  n:expect(exposed and 2 + n_state or 2, most)
  if #x.shape < 3 then
    n:fail("a bottom of shape (%s), (T,N,..) is expected", table.concat(x.shape, ","))
  end
  local t, count, d = x.shape[1], x.shape[2], kit.product(x.shape, 3)
  if table.concat(cont.shape, ",") ~= ("%d,%d"):format(t, count) then
    n:fail("marks of shape (%s), (%d,%d) is expected", table.concat(cont.shape, ","), t, count)
  end

  -- Parameters are counted as Caffe's files have them.
  local k = 0
  local function param(suffix, shape, filler)
    k = k + 1
    return n:param(k, suffix, shape, p:message(filler))
  end
  local gates = rows(x, param("weight", { n_gate * h, d }, "weight_filler"),
    param("bias", { n_gate * h }, "bias_filler"))
  -- What each sequence has besides, the same in all steps.
  local has_fixed = #bottoms == most
  if has_fixed then
    local fixed = bottoms[3]
    if fixed.shape[1] ~= count then
      n:fail("%d rows beside %d sequences", fixed.shape[1], count)
    end
    fixed = kit.reshape(fixed, { 1, count, kit.product(fixed.shape, 2) })
    gates = F.Add { gates, rows(fixed, param("static", { n_gate * h, fixed.shape[3] },
      "weight_filler")) }
  end
  -- First states are bottoms where they are exposed, else zeros.
  local states = {}
  for i = 1, n_state do
    local given = exposed and bottoms[(has_fixed and 3 or 2) + i]
    states[i] = given and kit.reshape(given, { count, h })
      or (n.state.net:op("Constant", {}, 1, { shape = { count, h }, value = 0 }))
  end
  return { gates = gates, marks = kit.reshape(cont, { t, count, 1 }), states = states, h = h,
    param = param, exposed = exposed, count = count }
end

--- The layer's tops: all steps, and where they are exposed the last states.
local function tops(r, all, last)
  if not r.exposed then return all end
  for i, state in ipairs(last) do last[i] = kit.reshape(state, { 1, r.count, r.h }) end
  return all, table.unpack(last)
end

local function part(x, i, h)
  return F.Slice(x, { axes = { 2 }, starts = { (i - 1) * h + 1 }, ends = { i * h } })
end

--- Gates: input, forget, output, cell.
local function lstm(n, ...)
  local r = begin(n, 4, 2, { ... })
  local h, w = r.h, r.param("hidden", { 4 * r.h, r.h }, "weight_filler")
  local last_h, last_c, all = n.state.net:Recurrent { seq = { r.gates, r.marks }, init = r.states,
    step = function(_, before, cell, gates, mark)
      -- A mark of 0 begins anew: what was before counts nothing.
      local x = F.Add { gates, F.FC { F.Mul { before, mark }, w } }
      local kept = F.Mul { F.Mul { F.Sigmoid(part(x, 2, h)), cell }, mark }
      local c = F.Add { kept, F.Mul { F.Sigmoid(part(x, 1, h)), F.Tanh(part(x, 4, h)) } }
      local y = F.Mul { F.Sigmoid(part(x, 3, h)), F.Tanh(c) }
      return y, c, y
    end }
  return tops(r, all, { last_h, last_c })
end

local function rnn(n, ...)
  local r = begin(n, 1, 1, { ... })
  local w = r.param("hidden", { r.h, r.h }, "weight_filler")
  local out = r.param("output", { r.h, r.h }, "weight_filler")
  local b = r.param("output_bias", { r.h }, "bias_filler")
  local last, all = n.state.net:Recurrent { seq = { r.gates, r.marks }, init = r.states,
    step = function(_, before, gates, mark)
      local y = F.Tanh(F.Add { gates, F.FC { F.Mul { before, mark }, w } })
      return y, y
    end }
  return tops(r, F.Tanh(rows(all, out, b)), { last })
end

return function(layer) layer.LSTM, layer.RNN = lstm, rnn end
