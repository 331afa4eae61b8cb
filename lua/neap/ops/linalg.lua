--- Linear algebra that is made of factors of matrices: singular values, norms and least
-- squares.
-- @module neap.ops.linalg
local compose = require "neap.ops.compose"
local core = require "neap.core"
local kit = require "neap.ops.kit"
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
    local q, r = a:qr()
    return r:solve_triangular(q:mat_mul(b, { trans_a = true }), { upper = true })
  end }

compose.define { "MatrixNorm",
  summary = "Norms of matrices.",
  math = "frobenius: sqrt(sum x^2); nuclear: sum s; spectral: max s; one and inf: the largest sum "
    .. "of magnitudes of a column or a row",
  example = 'net:MatrixNorm("x", "y", {kind = "nuclear"})',
  source = "torch.linalg.matrix_norm",
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
