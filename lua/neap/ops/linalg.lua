--- Linear algebra that is made of factors of matrices: singular values, norms and least
-- squares.
-- @module neap.ops.linalg
local compose = require "neap.ops.compose"
local core = require "neap.core"
local kit = require "neap.ops.kit"
local op = require "neap.op"
local fail = core.fail

local function values(x)
  local _, s = x:svd()
  return s
end

compose.define { "SvdVals",
  summary = "Singular values of matrices, descending.",
  math = "s of x = u diag(s) vt",
  example = 'net:SvdVals("x", "s")',
  source = "torch.linalg.svdvals",
  nan = "stops", special = "a NaN or an infinity has no singular values",
  inputs = { { "x", "(..,M,N)" } },
  outputs = { { "s", "(..,K), K = min(M,N)" } },
  cases = "{ {x={4,3}}, {x={2,3,5}} }",
  of = function(_, x) return values(x) end }

compose.define { "Lstsq",
  summary = "Least squares: what comes nearest to solving systems of more equations than unknowns.",
  math = "x that makes |a x - b| least",
  example = 'net:Lstsq({"a", "b"}, "x")',
  source = "torch.linalg.lstsq with driver gels: a of full rank",
  inputs = { { "a", "(..,M,N), M >= N, of full rank" }, { "b", "(..,M,K)" } },
  outputs = { { "x", "(..,N,K)" } },
  cases = "{ {a={5,3}, b={5,2}}, {a={2,3,3}, b={2,3,1}} }",
  of = function(_, a, b)
    local n = #a.shape
    if n < 2 or #b.shape < 2 or a.shape[n - 1] < a.shape[n] then
      fail(("Lstsq: a is (%s), b (%s): expected (..,M,N) with M >= N, and (..,M,K)"):format(
        table.concat(a.shape, ","), table.concat(b.shape, ",")))
    end

    -- a = q r: the triangle r is solved for q' b.
    local q, r = a:qr()
    return r:solve_triangular(q:mat_mul(b, { trans_a = true }), { upper = true })
  end }

compose.define { "MatrixNorm",
  summary = "Norms of matrices.",
  math = "frobenius: sqrt(sum x^2); nuclear: sum s; spectral: max s; one and inf: the largest sum "
    .. "of magnitudes of a column or a row",
  example = 'net:MatrixNorm("x", "y", {kind = "nuclear"})',
  source = "torch.linalg.matrix_norm",
  nan = "reaches", special = "nuclear and spectral norms of a NaN or an infinity stop the run",
  inputs = { { "x", "(..,M,N)" } },
  outputs = { { "y", "(..)" } },
  { "kind", "choice", "frobenius",
    choices = { "frobenius", "nuclear", "spectral", "one", "inf" }, doc = "which" },
  cases = "{ {x={4,3}}, {x={2,3,5}, kind='nuclear'}, {x={3,4}, kind='spectral'}, "
    .. "{x={2,3,4}, kind='one'}, {x={3,4}, kind='inf'} }",
  of = function(o, x)
    if #x.shape < 2 then fail "MatrixNorm: x expects (..,M,N)" end
    if o.kind == "frobenius" then return kit.root(x:square():sum { axes = { -2, -1 } }) end
    if o.kind == "nuclear" then return values(x):sum { axes = { -1 } } end
    if o.kind == "spectral" then return values(x):max { axes = { -1 } } end
    local first = o.kind == "one" and -2 or -1
    return x:abs():sum({ axes = { first } }):max { axes = { -1 } }
  end }

compose.define { "MatrixPower",
  summary = "Powers of matrices; a negative one is of the inverse.",
  math = "y = x^n",
  example = 'net:MatrixPower("x", "y", {n = 3})',
  source = "torch.linalg.matrix_power",
  nan = "reaches",
  inputs = { { "x", "(..,N,N)" } },
  outputs = { { "y", "shape of x" } },
  { "n", "integer", required = true, min = -1000000, max = 1000000, doc = "the power" },
  cases = "{ {x={3,3}, n=5}, {x={2,3,3}, n=0}, {x={{2,2}, eye=3}, n=-2} }",
  of = function(o, x)
    local rank = #x.shape
    if rank < 2 or x.shape[rank] ~= x.shape[rank - 1] then
      fail(("MatrixPower: x is (%s), expected (..,N,N)"):format(table.concat(x.shape, ",")))
    end
    if o.n == 0 then
      local attrs = { shape = x.shape, dtype = x.dtype }

      -- x * 0 keeps x as an input, and gives each matrix of the batch its identity.
      local one = op.is_blob(x) and op.net_of(x):op("Eye", {}, 1, attrs)
        or core.eager("Eye", {}, attrs)
      return x * 0 + one
    end
    local base, n, y = o.n < 0 and x:inverse() or x, math.abs(o.n), nil
    while n > 0 do -- squares, of which those are taken that n has as bits
      if n % 2 == 1 then y = y and y:mat_mul(base) or base end
      n = n // 2
      if n > 0 then base = base:mat_mul(base) end
    end
    return y
  end }

compose.define { "CholeskySolve",
  summary = "Solutions of systems whose matrix is known by its Cholesky factor.",
  math = "x of l l' x = b, or of l' l x = b where upper",
  example = 'net:CholeskySolve({"b", "l"}, "x")',
  source = "torch.cholesky_solve",
  inputs = { { "b", "(..,N,K)" }, { "l", "(..,N,N): a triangle" } },
  outputs = { { "x", "shape of b" } },
  { "upper", "boolean", false, doc = "whether l is an upper triangle" },
  cases = "{ {b={3,2}, l={{3,3}, eye=3}}, {b={2,3,1}, l={{2,3,3}, eye=3}, upper=true} }",
  of = function(o, b, l)
    -- l l' x = b by two triangles: first l y = b, then l' x = y. With an upper l the transposed one
    -- comes first.
    local first = l:solve_triangular(b, { upper = o.upper, transposed = o.upper })
    return l:solve_triangular(first, { upper = o.upper, transposed = not o.upper })
  end }

compose.define { "Cross",
  summary = "Cross products of vectors in space, with broadcasting.",
  math = "y = a x b",
  example = 'net:Cross({"a", "b"}, "y", {axis = -1})',
  source = "torch.linalg.cross",
  inputs = { { "a", "3 along the dimension" }, { "b", "broadcasts with a" } },
  outputs = { { "y", "broadcast shape" } },
  { "axis", "axis", -1, doc = "the dimension of the vectors, from the end where ranks differ" },
  cases = "{ {a={4,3}, b={4,3}}, {a={3,2}, b={3,2}, axis=1}, {a={2,3}, b={3}} }",
  of = function(o, a, b)
    -- a x b by rotations of the three elements: a_(i+1) b_(i+2) - a_(i+2) b_(i+1).
    local function turned(x, by)
      local d = kit.axis("Cross", x, o.axis)
      if x.shape[d] ~= 3 then
        fail(("Cross: an operand is (%s), expected 3 along the dimension"):format(
          table.concat(x.shape, ",")))
      end
      return x:roll { shifts = { -by }, axes = { d } }
    end
    return turned(a, 1) * turned(b, 2) - turned(a, 2) * turned(b, 1)
  end }
