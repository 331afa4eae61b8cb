--- ONNX's products of matrices and what is made of them: Gemm, Einsum, attention.
-- @module neap.onnx.products
local core = require "neap.core"
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

--- The product with a turned matrix, and perhaps the bias that is added to it, as a linear layer;
-- nil where it is none.
local function linear(n, x)
  local turned = n:maker(2, "Transpose")
  local w = turned and turned.inputs[1]
  -- Exporters write a linear layer as the product with a matrix that the file turns before.
  if n.folds or not w or not w.x or #w.x.shape ~= 2 or #x.shape < 2 or not kit.is_float(x)
    or table.concat(turned:ints("perm", { 1, 0 })) ~= "10" then
    return nil
  end

  -- The bias is taken where nobody else reads the product; the Add then gives on what it is given.
  local reader, bias = n:sole_reader "Add"
  local fits = bias and bias.x and kit.is_known(bias.x) and #bias.x.shape == 1
    and bias.x.shape[1] == w.x.shape[1]
  local b = fits and n.state:operand(bias) or nil
  if b then n.state.absorbed[reader] = reader.inputs[1] == n.row.outputs[1] and 1 or 2 end
  return F.FC { x, n.state:operand(w), b }
end

-- ---- attention ----------------------------------------------------------------------------------

--- (B, S, H D) as (B, H, S, D); what has four dimensions is that already.
local function in_heads(n, x, heads)
  if #x.shape == 4 then return x end
  if not heads then n:fail "three dimensions need q_num_heads and kv_num_heads" end
  local b, s, d = x.shape[1], x.shape[2], x.shape[3]
  if heads < 1 or d % heads ~= 0 then n:fail("%d heads cannot share %d numbers", heads, d) end
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
    -- True of a bool mask is what is seen.
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
local function repeated(n, x, heads)
  local own = x.shape[2]
  if own == heads then return x end
  if own == 0 or heads % own ~= 0 then
    n:fail("%d heads of queries cannot share %d of keys and values", heads, own)
  end
  return F.RepeatInterleave(x, { repeats = heads // own, axis = 2 })
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

--- Attention as one op, where the node asks for nothing that Neap's op has not; else nil.
local function plain_attention(n, q, k, v, mask, past, lengths)
  local three = #q.shape == 3
  local heads, kv_heads = n:int("q_num_heads", 0), n:int("kv_num_heads", 0)
  if n.folds or past or lengths or n:wants(2) or n:wants(3) or n:wants(4)
    or n:float("softcap", 0) ~= 0 or n:int("softmax_precision", 0) ~= 0
    or q.dtype ~= "f32" or #k.shape ~= #q.shape or #v.shape ~= #q.shape then
    return nil
  end
  if three and (heads < 1 or kv_heads < 1 or q.shape[3] // heads * kv_heads ~= k.shape[3]) then
    return nil
  end
  -- A mask that is too short hides the rest.
  if mask and (mask.shape[#mask.shape] ~= k.shape[three and 2 or 3] or #mask.shape < 2) then
    return nil
  end
  return F.Attention({ q, k, v, mask }, { causal = n:flag "is_causal",
    scale = n:float "scale", heads = three and heads or 0 })
end

local function attention(n, q, k, v, mask, past_k, past_v, lengths)
  for i, x in ipairs { q, k, v } do n:check_rank(i, x, 3, 4) end
  if mask then n:check_rank(4, mask, 1, 4) end
  local plain = plain_attention(n, q, k, v, mask, past_k or past_v, lengths)
  if plain then return plain end

  local flat = #q.shape == 3
  q, k = in_heads(n, q, n:int "q_num_heads"), in_heads(n, k, n:int "kv_num_heads")
  v = in_heads(n, v, n:int "kv_num_heads")
  -- What came before stands in front.
  local past = past_k and past_k.shape[3] or 0
  if past_k then k, v = kit.concat({ past_k, k }, 3), kit.concat({ past_v, v }, 3) end
  -- What is handed on holds what came before, and no repeated heads.
  local present_k, present_v = k, v
  local heads, s, t, d = q.shape[2], q.shape[3], k.shape[3], q.shape[4]
  k, v = repeated(n, k, heads), repeated(n, v, heads)
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

  -- Heads stand third here, as they lie in rows; of four dimensions they are turned there and back.
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

  -- Pairs lie next to each other, or half of what is turned apart.
  local a, c
  local interleaved = n:flag "interleaved"
  if interleaved then
    local two = kit.reshape(front, { b, s, x.shape[3], half, 2 })
    a = kit.reshape(kit.part(two, 5, 1, 1), { b, s, x.shape[3], half })
    c = kit.reshape(kit.part(two, 5, 2, 1), { b, s, x.shape[3], half })
  else
    a, c = kit.part(front, 4, 1, half), kit.part(front, 4, half + 1, half)
  end

  -- A pair as a complex number, turned by its angle.
  local real = F.Sub { F.Mul { cos, a }, F.Mul { sin, c } }
  local imag = F.Add { F.Mul { sin, a }, F.Mul { cos, c } }
  local y
  if interleaved then
    y = kit.reshape(F.Stack({ real, imag }, { axis = -1 }), { b, s, x.shape[3], turned })
  else
    y = kit.concat({ real, imag }, 4)
  end
  -- Numbers behind those that are turned stay.
  if rest then y = kit.concat({ y, rest }, 4) end
  return flat and kit.reshape(y, { b, s, heads * d }) or kit.permute(y, { 1, 3, 2, 4 })
end

-- ---- the way back -------------------------------------------------------------------------------

--- The last two dimensions of v, changed for each other.
local function turned(n, v, rank)
  local perm = {}
  for d = 1, rank do perm[d] = d - 1 end
  perm[rank], perm[rank - 1] = rank - 2, rank - 1
  return n:transpose(v, perm)
end

--- Attention in parts, for opsets that have no such op.
local function attention_parts(n, q, k, v, mask, o)
  local function heads_of(x, dims, count)
    if #dims == 4 then return x end
    local d = dims[3] // count
    return n:transpose(n:reshape(x, { dims[1], dims[2], count, d }), { 0, 2, 1, 3 })
  end

  -- Of fewer heads each stands for a group of neighbours: it is there once for each of these.
  local group = o.heads // o.kv_heads
  local function for_group(x, dims)
    if group == 1 then return x end
    local flat = #dims == 3
    local length, size = flat and dims[2] or dims[3], flat and dims[3] // o.kv_heads or dims[4]
    x = n:node("Unsqueeze", { x, n:const { 2 } })
    x = n:node("Expand", { x, n:const { 1, 1, group, 1, 1 } })
    return n:reshape(x, { dims[1], o.heads, length, size })
  end
  q = heads_of(q, o.q, o.heads)
  k = for_group(heads_of(k, o.k, o.kv_heads), o.k)
  v = for_group(heads_of(v, o.v, o.kv_heads), o.v)
  local scores = n:node("MatMul", { q, turned(n, k, 4) })
  scores = n:node("Mul", { scores, n:number(o.scale, o.dtype) })

  -- A triangle of -infinity above the diagonal, known when the file is written.
  if o.causal then
    local t = n:static({ o.q[#o.q - 1], o.k[#o.k - 1] }, "a sequence's length")
    local hides = kit.full({ t[1], t[2] }, 0, o.dtype)
    hides = core.eager("Where", { core.eager("Triu", { kit.full({ t[1], t[2] }, 1, o.dtype) },
      { diagonal = 1 }):to "bool", core.tensor(-math.huge, o.dtype), hides }, {})
    scores = n:node("Add", { scores, n:const(hides) })
  end
  if mask then
    if mask.dtype == "bool" then
      mask = n:node("Where", { mask, n:number(0, o.dtype), n:number(-math.huge, o.dtype) })
    end
    scores = n:node("Add", { scores, mask })
  end
  local y = n:node("MatMul", { n:node("Softmax", { scores }, { axis = -1 }), v })
  if #o.q == 4 then return y end
  return n:reshape(n:transpose(y, { 0, 2, 1, 3 }), n:result().dims)
end

local function write_attention(n, q, k, v, mask, o)
  if o.scale == 0 then
    local d = #o.q == 4 and o.q[4] or o.q[3] // o.heads
    o.scale = 1 / math.sqrt(n:static({ d }, "a head's size")[1])
  end
  if not n:has(23) then return attention_parts(n, q, k, v, mask, o) end

  -- One row of a mask for all queries is written once for each: ONNX Runtime wants it so (1.32:
  -- "inconsistent q_sequence_length"), though the standard lets it be broadcast.
  if mask and o.mask[#o.mask - 1] == 1 and o.q[#o.q - 1] ~= 1 then
    local rows = n:static({ o.q[#o.q - 1] }, "a sequence's length")[1]
    mask = n:node("Expand", { mask, n:const { rows, 1 } })
  end

  local flat = #o.q == 3
  return n:node("Attention", { q, k, v, mask }, { is_causal = o.causal, scale = o.scale + 0.0,
    q_num_heads = flat and o.heads or nil, kv_num_heads = flat and o.kv_heads or nil })
end

local function write(out)
  out.Det = "Det"
  function out.MatMul(n, a, b)
    if n.attrs.trans_a then a = turned(n, a, #n:dims(1)) end
    if n.attrs.trans_b then b = turned(n, b, #n:dims(2)) end
    return n:node("MatMul", { a, b })
  end

  --- Rows of two dimensions are a Gemm; of more a product with the turned weight. The builders know
  -- both as FC again.
  function out.FC(n, x, w, b)
    local dims, first = n:dims(1), n:axis(n.attrs.axis)
    local rank = #dims
    if first == rank - 1 and rank > 2 then
      local y = n:node("MatMul", { x, n:transpose(w, { 1, 0 }) })
      return b and n:node("Add", { y, b }) or y
    end
    -- What has other rows is made a matrix first, and shaped again.
    local rows = first == rank - 1 and rank == 2
    if not rows then x = n:node("Flatten", { x }, { axis = first }) end
    local y = n:node("Gemm", { x, w, b }, { transB = 1 })
    return #n:result().dims == 2 and y or n:reshape(y, n:result().dims)
  end

  function out.Attention(n, q, k, v, mask)
    local o = { q = n:dims(1), k = n:dims(2), v = n:dims(3), heads = n.attrs.heads,
      causal = n.attrs.causal, scale = n.attrs.scale, dtype = n:dtype(1),
      mask = mask and n:dims(4) }
    if #o.q == 4 then
      o.heads, o.kv_heads = o.q[2], o.k[2]
    else
      o.kv_heads = o.k[3] // (o.q[3] // o.heads)
    end
    return write_attention(n, q, k, v, mask, o)
  end
  function out.PackedAttention(n, qkv, mask)
    local dims, heads = n:dims(1), n.attrs.heads

    local each = dims[3] // 3
    local q, k, v = n:node("Split", { qkv, n:const { each, each, each } }, { axis = 2 }, 3)
    local one = { dims[1], dims[2], each }
    return write_attention(n, q, k, v, mask, { q = one, k = one, v = one, heads = heads,
      kv_heads = heads, causal = n.attrs.causal, scale = n.attrs.scale, dtype = n:dtype(1),
      mask = mask and n:dims(2) })
  end
end

return function(op, writers)
  write(writers)
  --- What a linear layer turns is no weight beside the one that it turns, and is not asked for.
  function op.MatMul(n, a) return linear(n, a) or mat_mul(a, n:x(2)) end

  function op.Gemm(n, a, b, c)
    local y = function(x) return kit.is_float(x) and x or kit.cast(x, "f64") end
    local wide, out = kit.is_float(a), a.dtype
    -- Integers are summed in f64.
    local ins = { y(a), y(b), c and y(c) or nil }
    local alpha, beta = n:float("alpha", 1), n:float("beta", 1)

    -- A layer, which Neap's op computes faster, where the node asks for no more.
    local is_bias = not c or #c.shape == 1 and c.shape[1] == (n:flag "transB" and b.shape[1] or nil)
    if wide and not n.folds and alpha == 1 and beta == 1 and is_bias and n:flag "transB"
      and not n:flag "transA" then
      return F.FC { a, b, c }
    end
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
