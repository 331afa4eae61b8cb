--- Products of vectors, matrices and tensors, made of MatMul.
-- @module neap.ops.products
local core = require "neap.core"
local compose = require "neap.ops.compose"
local kit = require "neap.ops.kit"
local fail = core.fail

local function rank_of(name, x, what, rank)
  if #x.shape ~= rank then
    fail(("%s: %s is (%s), expected %d dimension%s"):format(name, what, table.concat(x.shape, ","),
      rank, rank == 1 and "" or "s"))
  end
end

compose.define { "Outer",
  summary = "Outer product of two vectors.",
  math = "y_ij = a_i b_j",
  example = 'net:Outer({"a", "b"}, "y")',
  source = "torch.outer",
  inputs = { { "a", "(n)", dtypes = "number" }, { "b", "(m)", dtypes = "number" } },
  outputs = { { "y", "(n, m)" } },
  cases = "{ {a={4}, b={5}} }",
  of = function(_, a, b)
    rank_of("Outer", a, "a", 1)
    rank_of("Outer", b, "b", 1)
    return a:unsqueeze { axes = { 2 } } * b:unsqueeze { axes = { 1 } }
  end }

compose.define { "Dot",
  summary = "Inner product of two vectors.",
  math = "y = sum a_i b_i",
  example = 'net:Dot({"a", "b"}, "y")',
  source = "torch.dot",
  inputs = { { "a", "(n)" }, { "b", "(n)" } },
  outputs = { { "y", "scalar" } },
  cases = "{ {a={7}, b={7}} }",
  of = function(_, a, b)
    rank_of("Dot", a, "a", 1)
    rank_of("Dot", b, "b", 1)
    kit.same_shape("Dot", a, b, "a", "b")
    return (a * b):sum()
  end }

compose.define { "Kron",
  summary = "Kronecker product: every element of one tensor times the whole other one.",
  math = "y_(i n + j) = a_i b_j, in each dimension",
  example = 'net:Kron({"a", "b"}, "y")',
  source = "torch.kron",
  inputs = { { "a", "any shape", dtypes = "number" },
    { "b", "as many dimensions", dtypes = "number" } },
  outputs = { { "y", "sizes of a times those of b" } },
  cases = "{ {a={2,3}, b={4,2}}, {a={3}, b={2}}, {a={2,1,2}, b={2,2,1}} }",
  of = function(_, a, b)
    rank_of("Kron", b, "b", #a.shape)
    local long_a, long_b, sizes = {}, {}, {}
    for d = 1, #a.shape do
      long_a[2 * d - 1], long_a[2 * d] = a.shape[d], 1
      long_b[2 * d - 1], long_b[2 * d] = 1, b.shape[d]
      sizes[d] = a.shape[d] * b.shape[d]
    end
    return (a:reshape(long_a) * b:reshape(long_b)):reshape(sizes)
  end }

compose.define { "Gemm",
  summary = "Product of two matrices, scaled, and another one added.",
  math = "y = alpha a b + beta c",
  example = 'net:Gemm({"a", "b", "c"}, "y", {trans_b = true})',
  source = "ONNX Gemm-13",
  inputs = { { "a", "(n, k), or (k, n) with trans_a" }, { "b", "(k, m), or (m, k) with trans_b" },
    { "c", "broadcasts with (n, m)", optional = true } },
  outputs = { { "y", "(n, m)" } },
  { "alpha", "number", 1, doc = "factor of the product" },
  { "beta", "number", 1, doc = "factor of c" },
  { "trans_a", "boolean", false, doc = "take a transposed" },
  { "trans_b", "boolean", false, doc = "take b transposed" },
  cases = "{ {a={3,4}, b={4,5}, c={5}}, {a={4,3}, b={5,4}, trans_a=true, trans_b=true, alpha=0.5}, "
    .. "{a={3,4}, b={4,5}, c={3,1}, beta=2} }",
  of = function(o, a, b, c)
    rank_of("Gemm", a, "a", 2)
    rank_of("Gemm", b, "b", 2)
    local y = a:mat_mul(b, { trans_a = o.trans_a, trans_b = o.trans_b })
    if o.alpha ~= 1 then y = y * o.alpha end
    if c == nil then return y end
    return y + (o.beta == 1 and c or c * o.beta)
  end }

compose.define { "Bilinear",
  summary = "Bilinear form of two vectors for each output, and a bias.",
  math = "y_o = a^T weight_o b + bias_o",
  example = 'net:Bilinear({"a", "b", "w", "bias"}, "y")',
  source = "torch.nn.functional.bilinear",
  inputs = { { "a", "(.., n)" }, { "b", "(.., m), as many rows" }, { "weight", "(o, n, m)" },
    { "bias", "(o)", optional = true } },
  outputs = { { "y", "(.., o)" } },
  cases = "{ {a={3,4}, b={3,2}, weight={5,4,2}, bias={5}}, "
    .. "{a={2,3,4}, b={2,3,2}, weight={5,4,2}} }",
  of = function(_, a, b, weight, bias)
    rank_of("Bilinear", weight, "weight", 3)
    local n_out, n, m = table.unpack(weight.shape)
    local sizes = table.move(a.shape, 1, #a.shape - 1, 1, {})
    local wide = table.move(sizes, 1, #sizes, 1, {})
    wide[#wide + 1], wide[#wide + 2] = n_out, m
    -- a times all matrices side by side, each result then times b
    local rows = a:mat_mul(weight:permute({ 2, 1, 3 }):reshape { n, n_out * m }):reshape(wide)
    local y = (rows * b:unsqueeze { axes = { -2 } }):sum { axes = { -1 } }
    return bias and y + bias or y
  end }

local eps = { "eps", "number", 1e-8, above = 0, doc = "what lengths are at least taken for" }

local function length(x, d) return kit.root(x:square():sum { axes = { d }, keepdim = true }) end

compose.define { "CosineSimilarity",
  summary = "Cosine of the angle between two vectors, along a dimension.",
  math = "y = a . b / (max(|a|, eps) max(|b|, eps))",
  example = 'net:CosineSimilarity({"a", "b"}, "y", {axis = -1})',
  source = "torch.nn.functional.cosine_similarity",
  inputs = { { "a", "any shape" }, { "b", "broadcasts with a" } },
  outputs = { { "y", "broadcast shape without the dimension" } },
  { "axis", "axis", 2, doc = "the dimension of the vectors" },
  eps,
  cases = "{ {a={4,5}, b={4,5}}, {a={3,4,2}, b={4,2}, axis=-1} }",
  of = function(o, a, b)
    local sizes = kit.broadcast("CosineSimilarity", a.shape, b.shape)
    a, b = a:expand(sizes), b:expand(sizes)
    local d = kit.axis("CosineSimilarity", a, o.axis) - #a.shape - 1
    local y = (a * b):sum { axes = { d }, keepdim = true }
      / (length(a, d):maximum(o.eps) * length(b, d):maximum(o.eps))
    return y:squeeze { axes = { d } }
  end }

compose.define { "Cdist",
  summary = "Distances of all pairs of vectors, by a p-norm.",
  math = "y_ij = (sum_k |a_ik - b_jk|^p)^(1/p)",
  example = 'net:Cdist({"a", "b"}, "y")',
  source = "torch.cdist",
  inputs = { { "a", "(.., n, k)" }, { "b", "(.., m, k)" } },
  outputs = { { "y", "(.., n, m)" } },
  { "p", "number|choice", 2, min = 0, choices = { "inf" }, doc = "the power" },
  cases = "{ {a={3,4}, b={5,4}}, {a={2,3,4}, b={2,2,4}, p=1}, {a={3,4}, b={2,4}, p='inf'} }",
  of = function(o, a, b)
    if #a.shape < 2 or #b.shape < 2 or a.shape[#a.shape] ~= b.shape[#b.shape] then
      fail(("Cdist: a is (%s), b (%s): expected (.., n, k) and (.., m, k)"):format(
        table.concat(a.shape, ","), table.concat(b.shape, ",")))
    end
    return (a:unsqueeze { axes = { -2 } } - b:unsqueeze { axes = { -3 } }):norm {
      p = o.p, axes = { -1 },
    }
  end }

-- ---- Einsum -------------------------------------------------------------------------------------

--- The letters of one operand, in order; "..." becomes ".1", ".2" .., counted from the last one.
local function letters_of(term, rank)
  local list, dots = {}, term:find("...", 1, true)

  -- The dots stand for the dimensions that the letters leave: counted from the last, so that
  -- operands with fewer of them broadcast.
  local n_dot = rank - #term:gsub("%.%.%.", "")
  if n_dot < 0 or n_dot > 0 and not dots then
    fail(("Einsum: \"%s\" names %d dimensions, the operand has %d"):format(term, rank - n_dot,
      rank))
  end
  for letter in (dots and term:sub(1, dots - 1) or term):gmatch "." do list[#list + 1] = letter end
  for i = n_dot, dots and 1 or n_dot + 1, -1 do list[#list + 1] = "." .. i end
  for letter in (dots and term:sub(dots + 3) or ""):gmatch "." do list[#list + 1] = letter end
  return list
end

--- Operands with a letter twice lose all but the diagonal of it.
local function diagonals(x, letters)
  local at = {}
  for d, letter in ipairs(letters) do
    -- The diagonal is the last dimension, so its letter goes to the end; it may stand there a third
    -- time.
    if at[letter] then
      if x.shape[d] ~= x.shape[at[letter]] then
        fail(("Einsum: %s is %d and %d"):format(letter, x.shape[at[letter]], x.shape[d]))
      end
      local rest = {}
      for i, other in ipairs(letters) do
        if i ~= d and i ~= at[letter] then rest[#rest + 1] = other end
      end
      rest[#rest + 1] = letter
      return diagonals(x:diagonal { axis1 = at[letter], axis2 = d }, rest)
    end
    at[letter] = d
  end
  return x, letters
end

local function set_of(list)
  local set = {}
  for i, letter in ipairs(list) do set[letter] = i end
  return set
end

local function with(set, list)
  local both = {}
  for letter in pairs(set) do both[letter] = true end
  for _, letter in ipairs(list) do both[letter] = true end
  return both
end

--- x with one dimension for each letter of `order`, size 1 where it has none.
local function laid_out(x, letters, order)
  local at, permuted, sizes = set_of(letters), {}, {}
  for i, letter in ipairs(order) do
    -- A letter that x has not is a dimension of 1: it broadcasts.
    sizes[i] = at[letter] and x.shape[at[letter]] or 1
    permuted[#permuted + 1] = at[letter]
  end
  return x:permute(permuted):reshape(sizes)
end

--- Sums of the letters that nobody needs any more.
local function sum_out(x, letters, needed)
  local gone, left = {}, {}
  for d, letter in ipairs(letters) do
    if needed[letter] then left[#left + 1] = letter else gone[#gone + 1] = d end
  end
  return #gone > 0 and x:sum { axes = gone } or x, left
end

local function product(x, letters, order)
  local n = 1
  for _, letter in ipairs(order) do n = n * x.shape[set_of(letters)[letter]] end
  return n
end

--- Two operands as one product of matrices: what both have and the result keeps is a batch, what
-- both have and it does not is summed. A size of 1 beside a larger one broadcasts, which a matrix
-- product does not: then element by element.
local function contract(x, a, y, b, needed)
  local in_a, in_b = set_of(a), set_of(b)
  local batch, inner, left, right, broadcasts = {}, {}, {}, {}, false

  -- A letter of a is a batch (both have it, and it is needed), inner (both have it, and nobody
  -- needs it), or left; what only b has is right.
  for d, letter in ipairs(a) do
    local other = in_b[letter]
    broadcasts = broadcasts or other and x.shape[d] ~= y.shape[other]
    local list = not other and left or needed[letter] and batch or inner
    list[#list + 1] = letter
  end
  for _, letter in ipairs(b) do
    if not in_a[letter] then right[#right + 1] = letter end
  end

  -- The result's letters: batch, left, right.
  local order = table.move(batch, 1, #batch, 1, {})
  table.move(left, 1, #left, #order + 1, order)
  table.move(right, 1, #right, #order + 1, order)

  -- Nothing to sum, or a size of 1 that would have to be repeated: element by element.
  if #inner == 0 or broadcasts then
    table.move(inner, 1, #inner, #order + 1, order)
    return laid_out(x, a, order) * laid_out(y, b, order), order
  end

  -- (batch, rows, columns) of each operand; the product is (batch, left, right).
  local function matrix(t, letters, rows, columns)
    local own = table.move(batch, 1, #batch, 1, {})
    table.move(rows, 1, #rows, #own + 1, own)
    table.move(columns, 1, #columns, #own + 1, own)
    return laid_out(t, letters, own):reshape {
      product(t, letters, batch), product(t, letters, rows), product(t, letters, columns),
    }
  end
  local sizes = {}
  for i, letter in ipairs(order) do
    sizes[i] = in_a[letter] and x.shape[in_a[letter]] or y.shape[in_b[letter]]
  end
  return matrix(x, a, left, inner):mat_mul(matrix(y, b, inner, right)):reshape(sizes), order
end

--- "ij,jk->ik" as {"ij", "jk"} and "ik"; without an arrow the letters that stand once, in the order
-- of the alphabet.
local function terms_of(equation, n)
  local text = equation:gsub("%s", "")
  local left, right = text:match "^(.-)%->(.*)$"
  left = left or text
  if left:find "[^%a,%.]" or right and right:find "[^%a%.]" then
    fail(("Einsum: \"%s\" is no equation such as \"ij,jk->ik\""):format(equation))
  end
  local terms = {}
  for term in (left .. ","):gmatch "([^,]*)," do terms[#terms + 1] = term end
  if #terms ~= n then
    fail(("Einsum: \"%s\" is of %d operands, got %d"):format(equation, #terms, n))
  end
  if right then return terms, right end
  -- numpy's rule without an arrow: summed over is what stands twice.
  local count, once = {}, {}
  for letter in left:gmatch "%a" do count[letter] = (count[letter] or 0) + 1 end
  for letter, k in pairs(count) do
    if k == 1 then once[#once + 1] = letter end
  end
  table.sort(once)
  return terms, (left:find("...", 1, true) and "..." or "") .. table.concat(once)
end

compose.define { "Einsum",
  summary = "Sum of products of elements, as an equation of indices says.",
  math = "\"ij,jk->ik\": y_ik = sum_j a_ij b_jk",
  example = 'net:Einsum({"q", "k"}, "scores", {equation = "bhid,bhjd->bhij"})',
  source = "ONNX Einsum-12",
  inputs = { { "x", "a dimension for each letter of its term", variadic = true } },
  outputs = { { "y", "a dimension for each letter behind the arrow" } },
  { "equation", "string", required = true,
    doc = 'letters for dimensions, "..." for any number of them: "ij,jk->ik"' },
  cases = "{ {x={{2,3},{3,4}}, equation='ij,jk->ik'}, "
    .. "{x={{2,3,4},{2,4,5}}, equation='bij,bjk->bki'}, {x={{3,3}}, equation='ii'}, "
    .. "{x={{3,4}}, equation='ij->ji'}, {x={{3},{4}}, equation='i,j->ij'}, "
    .. "{x={{2,3,4},{4,5}}, equation='...j,jk->...k'}, "
    .. "{x={{2,3},{3,4},{4,2}}, equation='ij,jk,kl->il'} }",
  of = function(o, list)
    local terms, result = terms_of(o.equation, #list)
    local x, letters, rank = {}, {}, 0
    for i, term in ipairs(terms) do
      x[i], letters[i] = diagonals(list[i], letters_of(term, #list[i].shape))
      for _, letter in ipairs(letters[i]) do
        rank = math.max(rank, tonumber(letter:match "^%.(%d+)") or 0)
      end
    end
    local plain = #result:gsub("%.%.%.", "")
    local want = letters_of(result, plain + (result:find("...", 1, true) and rank or 0))
    -- From the left: a letter is summed as soon as neither the result nor a later operand has it.
    local y, own = x[1], letters[1]
    for i = 1, #x do
      local needed = set_of(want)
      for k = i + 1, #x do
        for _, letter in ipairs(letters[k]) do needed[letter] = true end
      end
      if i > 1 then
        y, own = sum_out(y, own, with(needed, letters[i]))
        x[i], letters[i] = sum_out(x[i], letters[i], with(needed, own))
        y, own = contract(y, own, x[i], letters[i], needed)
      end
      y, own = sum_out(y, own, needed)
    end
    for i, letter in ipairs(want) do
      if set_of(want)[letter] ~= i then
        fail(("Einsum: \"%s\": %s stands twice behind the arrow"):format(o.equation, letter))
      end
      if not set_of(own)[letter] then
        fail(("Einsum: \"%s\": no operand has the letter %s"):format(o.equation, letter))
      end
    end
    return laid_out(y, own, want)
  end }
