--- Attention, transformer layers and positions.
local neap = require "neap"
local nn = neap.nn
local raises = require("support").raises

--- Numbers that differ, of any shape.
local function filled(shape, k)
  return neap.zeros(shape):apply_(function()
    k = (k * 37 + 11) % 101
    return k / 50 - 1
  end)
end

local function assert_close(a, b, what) assert.is_true(a:close(b, { atol = 2e-5 }), what) end

--- Gives every parameter numbers of its own.
local function fill(m)
  local k = 1
  for _, p in m:parameters() do
    p.data = filled(p.shape, k) * 0.3
    k = k + 1
  end
  return m
end

--- Attention by its formula, of projections as the module's parameters say; seen (N,T,S) or nil.
local function by_hand(m, q, k, v, seen)
  local W, b, C, H = m:param("in_proj_weight").data, m:param("in_proj_bias").data, m.width, m.heads
  local rows, D = m.key_rows, m.width // m.heads
  local function project(x, from, n)
    return x:matmul(W:narrow(1, from, n):transpose(1, 2)) + b:narrow(1, from, n)
  end
  local Q, K, V = project(q, 1, C), project(k, C + 1, rows), project(v, C + rows + 1, rows)
  local heads = {}
  for h = 1, H do
    local g = (h - 1) // (H // m.key_heads)
    local s = Q:narrow(3, (h - 1) * D + 1, D):matmul(K:narrow(3, g * D + 1, D):transpose(2, 3))
    s = s * (1 / math.sqrt(D))
    if seen then s = s + (seen:to "f32" - 1) * 1e9 end
    heads[h] = s:softmax():matmul(V:narrow(3, g * D + 1, D))
  end
  local y = heads[1].concat(heads, { axis = 3 })
  return y:matmul(m:param("out_proj.weight").data:transpose(1, 2)) + m:param("out_proj.bias").data
end

describe("MultiheadAttention", function()
  local x, memory = filled({ 2, 5, 8 }, 3), filled({ 2, 4, 8 }, 7)

  it("is its formula: of itself, of a memory, with fewer heads of keys, and while it drops nothing",
    function()
      for _, key_heads in ipairs { 4, 2, 1 } do
        local m = fill(nn.MultiheadAttention { 8, 4, key_heads = key_heads, dropout = 0.5 })
        m:eval()
        assert_close(by_hand(m, x, x, x), m(x), "self")
        assert_close(by_hand(m, x, memory, memory), m(x, memory), "memory")
        assert_close(by_hand(m, x, memory, memory * 2), m(x, memory, memory * 2), "values")
        m:train()
        m.drop.rate = 0
        assert_close(by_hand(m, x, memory, memory), m(x, memory), "with the way of dropout")
        m.drop.rate = 0.5
        assert.is_false(m(x, memory):close(by_hand(m, x, memory, memory), { atol = 1e-3 }))
      end
    end)

  it("sees what masks, lengths and causal let it see, by either way", function()
    local lengths = neap.tensor({ 3, 5 }, "i64")
    local seen = neap.ones(2, 5, 5)
    seen[{ 1, {}, { 4, 5 } }] = 0
    local causal = neap.ones(2, 5, 5):tril()
    local mask = neap.ones(5, 5)
    mask[{ {}, 2 }] = 0
    mask = mask:gt(0)
    for _, drops in ipairs { false, true } do
      local m = fill(nn.MultiheadAttention { 8, 2, dropout = drops and 0.5 or 0 })
      local c = fill(nn.MultiheadAttention { 8, 2, dropout = drops and 0.5 or 0, causal = true })
      m.drop.rate, c.drop.rate = 0, 0
      assert_close(by_hand(m, x, x, x, seen), m(x, x, x, nil, lengths), "lengths")
      local both = seen * mask:to("f32"):reshape(1, 5, 5)
      assert_close(by_hand(m, x, x, x, both), m(x, x, x, mask, lengths), "a mask and lengths")
      local added = (mask:to "f32" - 1) * 1e9
      assert_close(m(x, x, x, mask, lengths), m(x, x, x, added, lengths), "numbers and lengths")
      assert_close(by_hand(c, x, x, x, causal), c(x), "causal")
      assert_close(by_hand(c, x, x, x, causal * seen), c(x, x, x, nil, lengths), "both")
    end
  end)

  it("gives a query that sees no key the output's bias, by either way",
    function()
      local bias_alone = { filled({ 2, 5, 8 }, 1) * 0, neap.tensor({ 0, 5 }, "i64") }
      local inf = math.huge
      local rest = neap.zeros(5, 5)
      rest[{ {}, 1 }] = -inf
      for _, rate in ipairs { 0, 0.5 } do
        for _, causal in ipairs { false, true } do
          local m = fill(nn.MultiheadAttention { 8, 2, dropout = rate, causal = causal })
          m.drop.rate = 0
          local bias = bias_alone[1] + m:param("out_proj.bias").data
          local function is_blind(y, what) assert_close(bias, y, what .. ", dropout " .. rate) end
          is_blind(m(x, x, x, neap.zeros(5, 5):gt(0)), "bool")
          is_blind(m(x, x, x, neap.zeros(5, 5) - inf), "numbers")
          local y = m(x, x, x, nil, bias_alone[2])
          is_blind(y:narrow(1, 1, 1):expand(2, 5, 8), "lengths")
          assert_close(m(x):narrow(1, 2, 1), y:narrow(1, 2, 1), "its neighbour")
          -- The mask hides the first key, and the length all others.
          y = m(x, x, x, rest, neap.tensor({ 1, 1 }, "i64"))
          is_blind(y, "numbers and lengths")
          y = m(x, memory, memory, neap.zeros(5, 4):gt(0))
          is_blind(y, "a memory")
        end
      end
    end)

  it("gives hidden keys no gradient, by either way", function()
    local other = memory:clone()
    other[{ {}, { 2, 4 } }] = 7 -- all but the first
    local mask = neap.zeros(5, 4)
    mask[{ {}, { 2, 4 } }] = -math.huge
    for _, rate in ipairs { 0, 0.5 } do
      --- The gradient of the projections' weights, of a new module.
      local function gradient(keys, ...)
        local m = fill(nn.MultiheadAttention { 8, 2, dropout = rate })
        m.drop.rate = 0
        m:backward(x, keys, keys, ..., filled({ 2, 5, 8 }, 4))
        return m:param("in_proj_weight").grad
      end
      local want = gradient(memory, mask)
      assert.is_true(want:abs():sum():item() > 0)
      assert_close(want, gradient(other, mask), "numbers")
      assert_close(want, gradient(other, mask:eq(0)), "bool")
      assert.are.equal(0, gradient(memory, mask:gt(0)):abs():sum():item())
      assert.are.equal(0, gradient(memory, mask - math.huge):abs():sum():item())
    end
  end)

  it("refuses values without keys, where a mask or lengths may have been meant", function()
    local lengths = neap.tensor({ 3, 2 }, "i64")
    for _, o in ipairs { { 8, 2 }, { 8, 2, dropout = 0.5 }, { 8, 2, rotary = true } } do
      local m = nn.MultiheadAttention(o)
      raises("values (argument 3) go with keys", m, x, nil, lengths)
      raises("lengths are argument 5", m, x, nil, x)
    end
  end)

  it("refuses lengths that are no integers, not one a sequence, or out of range, as nn.GRU does",
    function()
      local layers = { nn.GRU { 8, 8 }, nn.MultiheadAttention { 8, 2 },
        nn.MultiheadAttention { 8, 2, dropout = 0.5 }, nn.TransformerEncoderLayer { 8, 2 },
        nn.TransformerDecoderLayer { 8, 2 } }
      for i, m in ipairs(layers) do
        local function with(lengths)
          if i == 1 then return m(x, lengths) end
          if i <= 3 then return m(x, x, x, nil, lengths) end
          if i == 4 then return m(x, nil, lengths) end
          return m(x, memory, nil, nil, nil, lengths)
        end
        with(neap.tensor({ 3, 4 }, "i64"))
        raises("lengths", with, neap.tensor({ 3 }, "i64"))
        raises("lengths", with, neap.tensor({ 3, 4, 4 }, "i64"))
        raises("lengths", with, neap.tensor({ 3, 4 }, "f32"))
        raises("length -1 of sequence 2 is out of range", with, neap.tensor({ 3, -1 }, "i64"))
        raises("length 6 of sequence 1 is out of range", with, neap.tensor({ 6, 1 }, "i64"))
      end
    end)

  it("has gradients of all its parameters, as differences say", function()
    local m = fill(nn.MultiheadAttention { 4, 2, key_width = 3, causal = true, rotary = true })
    local q, k = filled({ 2, 3, 4 }, 5), filled({ 2, 3, 3 }, 9)
    local w = filled({ 2, 3, 4 }, 4)
    m:backward(q, k, w)
    for name, p in m:parameters() do
      local g, before = p.grad:clone(), p.data:clone()
      local direction = filled(p.shape, 13)
      local function at(step)
        p.data = before + direction * step
        return (m(q, k) * w):sum():item()
      end
      local slope = (at(1e-2) - at(-1e-2)) / 2e-2
      p.data = before
      assert.is_true(math.abs(slope - (g * direction):sum():item()) < 2e-3, name)
    end
  end)

  it("has PyTorch's names, and refuses widths that do not divide", function()
    local names = {}
    for name in nn.MultiheadAttention({ 8, 2 }):parameters() do names[#names + 1] = name end
    assert.are.same({ "in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias" }, names)
    raises("has to divide", nn.MultiheadAttention, { 8, 3 })
    raises("has to divide", nn.MultiheadAttention, { 8, 4, key_heads = 3 })
  end)
end)

describe("positions", function()
  it("turn queries and keys so that their product tells the distance alone", function()
    local m = nn.RotaryEmbedding()
    local a, b = filled({ 1, 1, 8 }, 3):expand(1, 6, 8), filled({ 1, 1, 8 }, 8):expand(1, 6, 8)
    local s = m(a:contiguous()):matmul(m(b:contiguous()):transpose(2, 3))
    for i = 1, 5 do
      for j = 1, 5 do
        assert.is_true(math.abs(s:at(1, i, j) - s:at(1, i + 1, j + 1)) < 1e-5)
      end
    end
    assert.is_true(math.abs(s:at(1, 1, 1) - s:at(1, 1, 3)) > 1e-3)
    raises("a width of 3 is odd", m, neap.ones(1, 2, 3))
  end)

  it("are sines and cosines", function()
    local y = nn.PositionalEncoding()(neap.zeros(2, 4, 5))
    for t = 0, 3 do
      for c = 0, 4 do
        local angle = t * 10000 ^ (-(c - c % 2) / 6)
        local want = c % 2 == 0 and math.sin(angle) or math.cos(angle)
        assert.is_true(math.abs(y:at(2, t + 1, c + 1) - want) < 1e-5)
      end
    end
  end)

  it("are of the model's dtype: in f64 to the last digits, rounded once to halves", function()
    -- At position 90 an angle in f32 is off by 1e-6, one in bf16 by a quarter.
    for i, make in ipairs { nn.PositionalEncoding, nn.RotaryEmbedding,
      function() return fill(nn.MultiheadAttention { 8, 2, rotary = true }) end } do
      local m, long = nn.Sequential { make() }:eval(), filled({ 1, 90, 8 }, i)
      local want, weights = m(long):to "f64", m:state_dict()
      for dtype, off in pairs { f64 = 1e-4, f16 = 4e-3, bf16 = 3e-2 } do
        m:to(dtype)
        local y = m(long:to(dtype))
        assert.are.equal(dtype, y.dtype)
        assert.is_true((y:to "f64" - want):abs():max():item() < off, dtype)
        m:to "f32"
        m:load_state_dict(weights)
      end
    end
    local y = nn.PositionalEncoding():to "f64"(neap.zeros { 1, 90, 4, dtype = "f64" })
    assert.is_true(math.abs(y:at(1, 90, 3) - math.sin(89 / 100)) < 1e-12)
  end)
end)

describe("a transformer", function()
  local x, memory = filled({ 2, 5, 8 }, 3), filled({ 2, 4, 8 }, 7)

  it("is sums of norms of its parts, in either order", function()
    for _, first in ipairs { false, true } do
      local e = fill(nn.TransformerEncoderLayer { 8, 2, hidden = 12, dropout = 0,
        norm_first = first, activation = "gelu" })
      local function ff(h) return e.linear2(e.linear1(h):gelu()) end
      local want
      if first then
        want = x + e.self_attn(e.norm1(x))
        want = want + ff(e.norm2(want))
      else
        want = e.norm1(x + e.self_attn(x))
        want = e.norm2(want + ff(want))
      end
      assert_close(want, e(x), "encoder")
      local d = fill(nn.TransformerDecoderLayer { 8, 2, hidden = 12, dropout = 0,
        norm_first = first })
      local function ffd(h) return d.linear2(d.linear1(h):relu()) end
      if first then
        want = x + d.self_attn(d.norm1(x))
        want = want + d.multihead_attn(d.norm2(want), memory)
        want = want + ffd(d.norm3(want))
      else
        want = d.norm1(x + d.self_attn(x))
        want = d.norm2(want + d.multihead_attn(want, memory))
        want = d.norm3(want + ffd(want))
      end
      assert_close(want, d(x, memory), "decoder")
    end
  end)

  it("that decodes refuses to go without a memory", function()
    raises("without a memory", nn.TransformerDecoderLayer { 8, 2 }, x)
    raises("without a memory", nn.TransformerDecoder { 8, 2, layers = 2 }, x)
  end)

  it("gives a sequence the same, however it is padded", function()
    local e = fill(nn.TransformerEncoder { 8, 2, layers = 2, dropout = 0, norm_first = true })
    local short = filled({ 1, 3, 8 }, 3)
    local padded = short.concat({ short, filled({ 1, 2, 8 }, 77) }, { axis = 2 })
    assert_close(e(short), e(padded, nil, neap.tensor({ 3 }, "i64")):narrow(2, 1, 3), "encoder")
    local d = fill(nn.TransformerDecoder { 8, 2, layers = 2, dropout = 0 })
    local whole = d(padded, memory:narrow(1, 1, 1):contiguous())
    assert_close(d(short, memory:narrow(1, 1, 1):contiguous()), whole:narrow(2, 1, 3), "causal")
  end)

  it("learns to copy what stands before, which needs a mask, positions and dropout", function()
    local Copy = nn.module {
      "Copy",
      init = function(self)
        self.embed, self.positions = nn.Embedding { 6, 16 }, nn.PositionalEncoding()
        self.encoder = nn.TransformerEncoder { 16, 2, layers = 1, hidden = 32, dropout = 0.02,
          causal = true, norm_first = true }
        self.out = nn.Linear { 16, 6 }
      end,
      forward = function(self, ids, lengths)
        return self.out(self.encoder(self.positions(self.embed(ids)), nil, lengths))
      end,
    }
    local ids, tags = {}, {}
    for i = 1, 48 do
      ids[i], tags[i] = {}, {}
      for j = 1, 3 + i % 4 do ids[i][j] = (i * i * 3 + j * j * (i % 5 + 1)) % 6 end
      for j = 1, #ids[i] do tags[i][j] = ids[i][j - 1] or 0 end
    end
    local set = neap.data.sequences { ids = ids, y = tags, pad = { y = -1 }, bucket = 2,
      batch = 16, shuffle = true }
    local t <close> = neap.trainer { model = Copy {}, optimizer = neap.optim.Adam { lr = 0.01 },
      loss = nn.CrossEntropyLoss { ignore_index = -1 }, metrics = "accuracy", seed = 4 }
    t:fit(set, { epochs = 60, verbose = 0 })
    assert.is_true(t:evaluate(set).accuracy > 0.95)
  end)
end)
