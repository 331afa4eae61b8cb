-- Linear algebra: what factors and solutions must fulfil, what PyTorch gives for small matrices,
-- and which matrix of a stack is named when there is no answer.
local neap = require "neap"

local function near(expected, x, tolerance)
  local difference = (x - expected):abs():max():item()
  assert.is_true(difference <= (tolerance or 1e-10), tostring(difference))
end

--- A stack of well-conditioned matrices.
local function stack(...)
  local sizes = { ... }
  local n = sizes[#sizes]
  return neap.randn { dtype = "f64", ... } + neap.eye(n):to "f64" * (2 * n)
end

local function turned(x) return x:transpose(-2, -1) end

describe("linear algebra", function()
  it("solves A x = b, for vectors, matrices and batches that broadcast", function()
    for _, case in ipairs { { { 4, 4 }, { 4 } }, { { 4, 4 }, { 4, 2 } }, { { 3, 4, 4 }, { 4, 2 } },
      { { 2, 1, 4, 4 }, { 3, 4, 5 } } } do
      local a, b = stack(table.unpack(case[1])), neap.randn { dtype = "f64",
        table.unpack(case[2]) }
      local x = a:solve(b)
      near(b, a:matmul(x))
    end
    local upper = stack(3, 5, 5):triu()
    local b = neap.randn { 3, 5, 2, dtype = "f64" }
    near(b, upper:matmul(upper:solve_triangular(b, { upper = true })))
  end)

  it("has inverses and determinants", function()
    local a = stack(2, 5, 5)
    near(neap.eye(5):to "f64", a:matmul(a:inverse()))
    local m = neap.tensor({ { 1, 2 }, { 3, 4 } }, "f64")
    near(neap.tensor(-2.0, "f64"), m:det())
    local sign, log = m:slog_det()
    assert.equal(-1, sign:item())
    near(neap.tensor(math.log(2), "f64"), log)
    -- singular: 0, and minus infinity for the logarithm, as in PyTorch
    sign, log = neap.ones(3, 3):slog_det()
    assert.same({ 0, -math.huge }, { sign:item(), log:item() })
    assert.equal(0, neap.ones(3, 3):det():item())
    assert.equal(1, neap.zeros(0, 0):det():item())
  end)

  it("has factors whose product is the matrix", function()
    for _, sizes in ipairs { { 3, 6, 4 }, { 4, 6 }, { 5, 5 } } do
      local x = neap.randn { dtype = "f64", table.unpack(sizes) }
      local q, r = x:qr()
      near(x, q:matmul(r))
      near(neap.eye(q:size(-1)):to "f64", turned(q):matmul(q))
      local u, s, v = x:svd()
      near(x, (u * s:unsqueeze(-2)):matmul(v))
    end
    local a = stack(2, 4, 4)
    local symmetric = a:matmul(turned(a))
    local l = symmetric:cholesky()
    near(symmetric, l:matmul(turned(l)), 1e-9)
    local w, v = symmetric:eigh()
    near(symmetric, (v * w:unsqueeze(-2)):matmul(turned(v)), 1e-9)
  end)

  it("has the exponential of a matrix: of a rotation's generator the rotation", function()
    for _, angle in ipairs { 0, 0.3, 1, 20, -700 } do
      local g = neap.tensor({ { 0, -angle }, { angle, 0 } }, "f64")
      local c, s = math.cos(angle), math.sin(angle)
      near(neap.tensor({ { c, -s }, { s, c } }, "f64"), g:matrix_exp(), 1e-9)
    end
  end)

  it("has the exponential of what is far from normal, whose powers are below its norm", function()
    local function is(expected, x)
      local got = neap.tensor(x, "f64"):matrix_exp()
      for i, row in ipairs(expected) do
        for j, y in ipairs(row) do
          local g = got[{ i, j }]
          assert.is_true(g == y or math.abs(g - y) <= 1e-14 * math.abs(y),
            ("%d,%d: %.17g, %.17g"):format(i, j, g, y))
        end
      end
    end
    local e = math.exp(1)
    is({ { e, 1e6 * e }, { 0, e } }, { { 1, 1e6 }, { 0, 1 } })
    is({ { e, 0 }, { 1e6 * e, e } }, { { 1, 0 }, { 1e6, 1 } })
    is({ { 1 / e, 1e300 / e * (1 - 1 / e) }, { 0, 1 / e / e } }, { { -1, 1e300 }, { 0, -2 } })
    is({ { 1, 1e308 }, { 0, 1 } }, { { 0, 1e308 }, { 0, 0 } })
    is({ { math.huge, 0 }, { 0, 0 } }, { { 1000, 0 }, { 0, -1000 } })
    is({ { math.exp(-200), 200 * math.exp(-200) }, { 0, math.exp(-200) } },
      { { -200, 200 }, { 0, -200 } })
    is({ { 1, 2, 3 + 4e5 }, { 0, 1, 4e5 }, { 0, 0, 1 } },
      { { 0, 2, 3 }, { 0, 0, 4e5 }, { 0, 0, 0 } })
    -- the derivative by the diagonal: e^a + b ((a - d - 1) e^a + e^d) / (a - d)^2
    local x = neap.tensor({ { -1, 1e6 }, { 0, -2 } }, "f64")
    local d = neap.grad(function(m) return m:matrix_exp():sum() end)(x)
    near(neap.tensor(1 / e + 1e6 / e / e, "f64"), neap.tensor(d[{ 1, 1 }], "f64"), 1e-7)
  end)

  it("has determinants, and gradients of them, where rows and columns are of other sizes",
    function()
      local function diagonal(...) return neap.tensor({ ... }, "f64"):diag() end
      local large, small = diagonal(1e200, 1e200, 1e-300), diagonal(1e-200, 1e-200, 1e300)
      local function is(expected, x)
        assert.is_true(math.abs(x - expected) <= 1e-13 * math.abs(expected), tostring(x))
      end
      is(1e100, large:det():item())
      is(1e-100, small:det():item())
      local slope = neap.grad(function(x) return x:det() end)
      local d = slope(large)
      is(1e-100, d[{ 1, 1 }])
      assert.are.equal(0, d[{ 1, 2 }])
      is(1e100, slope(small)[{ 2, 2 }])
      -- a row of zeros: what a large element of another row would be off by stays in its row
      d = slope(neap.tensor({ { 1e8, 1 }, { 0, 0 } }, "f64"))
      is(-1, d[{ 2, 1 }])
      is(1e8, d[{ 2, 2 }])
      assert.is_true(math.abs(d[{ 1, 1 }]) < 1e-15)
    end)

  it("has gradients of pseudo-inverses where singular values are equal, or 0", function()
    local w = neap.arange(6):to("f64"):reshape(2, 3)
    local function slope(x) return neap.grad(function(a) return (a:pinv() * w):sum() end)(x) end
    near(neap.tensor({ { 0, -1 }, { -3, -4 }, { 2, 5 } }, "f64"),
      slope(neap.tensor({ { 1, 0 }, { 0, 1 }, { 0, 0 } }, "f64")))
    -- rank 1: PyTorch's
    near(neap.tensor({ { -0.0114285714, -0.0126530612 }, { -0.0314285714, -0.0424489796 },
      { -0.0514285714, -0.0722448980 } }, "f64"),
      slope(neap.tensor({ { 1, 2 }, { 2, 4 }, { 3, 6 } }, "f64")), 1e-9)
    near(neap.tensor({ { 0.5, 0 }, { 0, 0 } }, "f64"),
      neap.tensor({ { 2, 0 }, { 0, 1e-3 } }, "f64"):pinv { rtol = 0.01 })
  end)

  it("names the matrix that has no answer", function()
    local x = stack(3, 2, 2)
    x[2] = neap.zeros { 2, 2, dtype = "f64" }
    for _, case in ipairs {
      { x.inverse, "Inverse: matrix 2 of x is singular" },
      { x.cholesky, "Cholesky: matrix 2 of x is not positive definite" },
    } do
      local _, err = pcall(case[1], x)
      assert.equal("data", err.code)
      assert.matches(case[2], tostring(err))
    end
    local _, err = pcall(x.solve, x, neap.ones { 2, 1, dtype = "f64" })
    assert.matches("matrix 2", tostring(err))
    _, err = pcall(x.svd, neap.full { 2, 2, value = 0 / 0 })
    assert.matches("has a NaN or an infinity", tostring(err))
    for _, f in ipairs { x.inverse, x.det, x.cholesky, x.eigh, x.matrix_exp } do
      _, err = pcall(f, neap.zeros(3, 2))
      assert.equal("shape", err.code)
      assert.matches("square matrices", tostring(err))
    end
  end)

  it("has the same bits on one thread and on several", function()
    local x = stack(7, 6, 6)
    local function all()
      local u = x:svd()
      return { u, x:inverse(), x:matrix_exp(), (x:qr()) }
    end
    local one, more = neap.with({ threads = 1 }, all), neap.with({ threads = 2 }, all)
    for i, y in ipairs(one) do assert.is_true(y:equal(more[i])) end
  end)

  it("makes pseudo-inverses, least squares and norms of factors", function()
    local function T(t) return neap.tensor(t, "f64") end
    local a, b = neap.randn { 5, 3, dtype = "f64" }, neap.randn { 5, 2, dtype = "f64" }
    near(a:pinv():matmul(b), a:lstsq(b))
    near(turned(a):matmul(b), turned(a):matmul(a:matmul(a:lstsq(b))))
    -- of rank 1: the other singular value counts as 0
    near(T { { 0.04, 0.08 }, { 0.08, 0.16 } }, T({ { 1, 2 }, { 2, 4 } }):pinv())
    local m = T { { 3, 0 }, { 0, -4 } }
    near(T { 4, 3 }, m:svd_vals())
    for kind, norm in pairs { frobenius = 5, nuclear = 7, spectral = 4, one = 4, inf = 4 } do
      near(T(norm), m:matrix_norm { kind = kind })
    end
    assert.equal(7.0, T({ { 1, -6 }, { 2, 1 } }):matrix_norm({ kind = "one" }):item())
    assert.equal(7.0, T({ { 1, -6 }, { 2, 1 } }):matrix_norm({ kind = "inf" }):item())
    assert.has_error(function() return turned(a):lstsq(b) end)
  end)

  it("has gradients of determinants where there is no inverse, and of equal values", function()
    local function slope(f, x) return neap.grad(f)(neap.tensor(x, "f64")) end
    local function det(x) return x:det() end
    local function want(t) return neap.tensor(t, "f64") end
    near(want { { 4, -2 }, { -2, 1 } }, slope(det, { { 1, 2 }, { 2, 4 } }))
    near(want { { -3, 6, -3 }, { 6, -12, 6 }, { -3, 6, -3 } },
      slope(det, { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 } }))
    near(want { { 0, 0 }, { 0, 0 } }, slope(det, { { 0, 0 }, { 0, 0 } }))
    near(want { { 1 } }, slope(det, { { 0 } }))
    near(want { { 1, 0 }, { 0, 1 } },
      slope(function(x) return x:svd_vals():sum() end, { { 1, 0 }, { 0, 1 } }))
    local ok, err = pcall(slope, function(x) return (x:qr { full = true }):sum() end,
      { { 1 }, { 2 } })
    assert.is_false(ok)
    assert.matches("no gradient is defined through Qr", tostring(err))
  end)
end)
