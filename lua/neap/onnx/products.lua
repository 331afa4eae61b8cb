--- ONNX's products of matrices and what is made of them: Gemm, Einsum, attention.
-- @module neap.onnx.products
local kit = require "neap.onnx.kit"
local F = kit.F

--- A product of integers is computed in f64, which holds sums below 2^53.
local function product(a, b)
  if kit.is_float(a) then return F.MatMul { a, b } end
  return kit.cast(F.MatMul { kit.cast(a, "f64"), kit.cast(b, "f64") }, a.dtype)
end

--- Vectors are rows on the left and columns on the right, and go again.
local function mat_mul(a, b)
  local left, right = #a.shape == 1, #b.shape == 1
  if left then a = kit.unsqueeze(a, { 1 }) end
  if right then b = kit.unsqueeze(b, { -1 }) end
  local y, gone = product(a, b), {}
  if left then gone[#gone + 1] = #y.shape - 1 end
  if right then gone[#gone + 1] = #y.shape end
  return #gone > 0 and F.Squeeze(y, { axes = gone }) or y
end

-- ---- attention ----------------------------------------------------------------------------------

--- (B, S, H D) as (B, H, S, D); what has four dimensions is that already.
local function in_heads(n, x, heads)
  if #x.shape == 4 then return x end
  if not heads then n:fail "three dimensions need q_num_heads and kv_num_heads" end
  local b, s, d = x.shape[1], x.shape[2], x.shape[3]
  return kit.permute(kit.reshape(x, { b, s, heads, d // heads }), { 1, 3, 2, 4 })
end

local function row(n, from, to)
  local t = n:make("Range", { stop = to, dtype = "i64" })
  return from == 0 and t or F.Add { t, kit.number(from, "i64") }
end

--- What is added to the scores (B, H, S, T): the mask, bool ones as 0 and -infinity, filled up to T
-- with what hides; what causality hides; and what lies behind a sequence's end.
local function hidden(n, mask, dtype, s, t, past, lengths)
  local low, zero = kit.number(-math.huge, dtype), kit.number(0, dtype)
  local bias
  if mask then
    bias = mask.dtype == "bool" and F.Where { mask, zero, low } or kit.cast(mask, dtype)
    local short = t - bias.shape[#bias.shape]
    if short > 0 then
      bias = F.Pad(bias, { pads = { 0, short }, axes = { -1 }, value = -math.huge })
    end
  end
  local function add(b) bias = bias and F.Add { bias, b } or b end
  if n:flag "is_causal" then
    -- Query i stands at position past + i.
    local at = kit.reshape(row(n, 0, s), { s, 1 })
    at = F.Add { at, type(past) == "number" and kit.number(past, "i64") or past }
    add(F.Where { F.Le { kit.reshape(row(n, 0, t), { 1, t }), at }, zero, low })
  end
  if lengths then
    local ends = kit.reshape(lengths, { lengths.shape[1], 1, 1, 1 })
    add(F.Where { F.Lt { kit.reshape(row(n, 0, t), { 1, 1, 1, t }), ends }, zero, low })
  end
  return bias
end

--- Keys and values of fewer heads serve several of the queries'.
local function repeated(x, heads)
  if x.shape[2] == heads then return x end
  return F.RepeatInterleave(x, { repeats = heads // x.shape[2], axis = 2 })
end

--- softmax in another type where the attribute says one; a row that sees nothing gives 0.
local function softmax(n, scores)
  local elem = n:int("softmax_precision", 0)
  local row_type = kit.types[elem]
  local x = row_type and row_type.dtype and kit.cast(scores, row_type.dtype) or scores
  local y = F.Softmax(x, { axis = -1 })
  local nothing = F.Eq { F.Max(x, { axes = { -1 }, keepdim = true }),
    kit.number(-math.huge, x.dtype) }
  return kit.cast(F.Where { nothing, kit.number(0, x.dtype), y }, scores.dtype)
end

local function attention(n, q, k, v, mask, past_k, past_v, lengths)
  local flat = #q.shape == 3
  q, k = in_heads(n, q, n:int "q_num_heads"), in_heads(n, k, n:int "kv_num_heads")
  v = in_heads(n, v, n:int "kv_num_heads")
  -- What came before stands in front.
  local past = past_k and past_k.shape[3] or 0
  if past_k then k, v = kit.concat({ past_k, k }, 3), kit.concat({ past_v, v }, 3) end
  local present_k, present_v = k, v
  local heads, s, t, d = q.shape[2], q.shape[3], k.shape[3], q.shape[4]
  k, v = repeated(k, heads), repeated(v, heads)
  lengths = lengths and kit.cast(lengths, "i64")
  -- With lengths of a cache outside the queries are its last steps.
  local offset = past
  if lengths then
    offset = kit.reshape(F.Sub { lengths, kit.number(s, "i64") }, { lengths.shape[1], 1, 1, 1 })
  end
  -- Both are scaled by the root, which keeps halves in their range.
  local root = kit.number(math.sqrt(n:float("scale", 1 / math.sqrt(d))), q.dtype)
  local scores = F.MatMul({ F.Mul { q, root }, F.Mul { k, root } }, { trans_b = true })
  -- What the fourth output shows: the products, these capped, with the mask, or as shares.
  local mode, cap = n:int("qk_matmul_output_mode", 0), n:float("softcap", 0)
  local shown = { [0] = scores }
  if cap ~= 0 then
    local c = kit.number(cap, q.dtype)
    scores = F.Mul { F.Tanh(F.Div { scores, c }), c }
  end
  shown[1] = scores
  local bias = hidden(n, mask, q.dtype, s, t, offset, lengths)
  if bias then scores = F.Add { scores, bias } end
  shown[2] = scores
  local weights = softmax(n, scores)
  shown[3] = weights
  local y = F.MatMul { weights, v }
  if flat then
    y = kit.reshape(kit.permute(y, { 1, 3, 2, 4 }), { y.shape[1], s, heads * y.shape[4] })
  end
  return y, present_k, present_v, shown[mode]
end

--- Pairs of each head's numbers are turned by the position's angles.
local function rotary(n, x, cos, sin, positions)
  local flat, heads = #x.shape == 3, n:int("num_heads", 0)
  if flat then
    if heads < 1 then n:fail "three dimensions need num_heads" end
    x = kit.reshape(x, { x.shape[1], x.shape[2], heads, x.shape[3] // heads })
  else
    x = kit.permute(x, { 1, 3, 2, 4 })
  end
  local b, s, d = x.shape[1], x.shape[2], x.shape[4]
  local turned = n:int("rotary_embedding_dim", 0)
  if turned == 0 then turned = d end
  local half = turned // 2
  if positions then
    cos = F.Gather({ cos, positions }, { axis = 1 })
    sin = F.Gather({ sin, positions }, { axis = 1 })
  end
  cos = kit.reshape(kit.part(cos, #cos.shape, 1, half), { b, s, 1, half })
  sin = kit.reshape(kit.part(sin, #sin.shape, 1, half), { b, s, 1, half })
  local front = kit.part(x, 4, 1, turned)
  local rest = turned < d and kit.part(x, 4, turned + 1, d - turned)
  local a, c
  local interleaved = n:flag "interleaved"
  if interleaved then
    local two = kit.reshape(front, { b, s, x.shape[3], half, 2 })
    a = kit.reshape(kit.part(two, 5, 1, 1), { b, s, x.shape[3], half })
    c = kit.reshape(kit.part(two, 5, 2, 1), { b, s, x.shape[3], half })
  else
    a, c = kit.part(front, 4, 1, half), kit.part(front, 4, half + 1, half)
  end
  local real = F.Sub { F.Mul { cos, a }, F.Mul { sin, c } }
  local imag = F.Add { F.Mul { sin, a }, F.Mul { cos, c } }
  local y
  if interleaved then
    y = kit.reshape(F.Stack({ real, imag }, { axis = -1 }), { b, s, x.shape[3], turned })
  else
    y = kit.concat({ real, imag }, 4)
  end
  if rest then y = kit.concat({ y, rest }, 4) end
  return flat and kit.reshape(y, { b, s, heads * d }) or kit.permute(y, { 1, 3, 2, 4 })
end

return function(op)
  function op.MatMul(_, a, b) return mat_mul(a, b) end

  function op.Gemm(n, a, b, c)
    local y = function(x) return kit.is_float(x) and x or kit.cast(x, "f64") end
    local wide, out = kit.is_float(a), a.dtype
    local ins = { y(a), y(b), c and y(c) or nil }
    local alpha, beta = n:float("alpha", 1), n:float("beta", 1)
    local result = F.Gemm(ins, { alpha = alpha, beta = beta, trans_a = n:flag "transA",
      trans_b = n:flag "transB" })
    return wide and result or kit.cast(result, out)
  end

  --- Blanks in the equation mean nothing, and without an arrow the letters that come once, in
  -- alphabetical order, are the result's.
  function op.Einsum(n, ...)
    local ins, dtype = table.pack(...), nil
    for i, x in ipairs(ins) do
      if not kit.is_float(x) then ins[i], dtype = kit.cast(x, "f64"), x.dtype end
    end
    ins.n = nil
    local equation = n:text "equation" or n:fail "attribute \"equation\" is missing"
    local y = F.Einsum(ins, { equation = (equation:gsub("%s", "")) })
    return dtype and kit.cast(y, dtype) or y
  end

  op.Attention, op.RotaryEmbedding = attention, rotary
  function op.Det(_, x) return F.Det(x) end
end
