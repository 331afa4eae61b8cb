--- The update of optim.LBFGS, as ops of the step's net.
--
-- What is remembered are pairs s, y: how parameters and gradients have changed over a step, a row
-- of S and Y each, the newest last; rows that nothing has filled are zeros. The direction -H g is
-- computed without a loop, by the compact form of H (Byrd, Nocedal and Schnabel, Math. Programming
-- 63, 1994, equation 3.13), in which dot products over all parameters are matrices of
-- history x history:
--
--   H g = c g + S' a - c Y' u,  u = R^-1 S g,  a = R^-T ((D + c Y Y') u - c Y g)
--
-- with R the upper triangle of S Y', D its diagonal, and c = s y / y y of the newest pair.
--
-- A step that did not let the loss fall enough (Armijo) goes back: the next point lies between,
-- where a parabola through what is known has its least. INVARIANT: `base` is the last point that
-- was taken, `direction` leads from it to where the parameters are now, `t` says how far.
-- @module neap.optim.lbfgs
local fail = require("neap.core").fail
local state = require("neap.optim.kept").state

local function sum(list)
  local total = list[1]
  for i = 2, #list do total = total + list[i] end
  return total
end

local function set(net, blob, value) net:op("Copy", { value }, { blob }, {}) end

--- f(part) of each parameter, added up.
local function over(parts, f)
  local terms = {}
  for i, p in ipairs(parts) do terms[i] = f(p) end
  return sum(terms)
end

--- A product of stacks of rows, over all parameters.
local function products(parts, a, b)
  return over(parts, function(p) return p[a]:mat_mul(p[b], { trans_b = true }) end)
end

--- Parameters and what is kept of each: rows of n elements.
local function parts_of(net, list, history)
  local parts = {}
  for i, pair in ipairs(list) do
    local w, n = pair[1], pair[1]:n_element()
    if w.dtype ~= list[1][1].dtype then
      fail(("optim.LBFGS expects parameters of one dtype, got %s and %s"):format(
        list[1][1].dtype, w.dtype))
    end

    -- S and Y (history, n); base, slope and direction are rows (1, n) of the last point taken.
    local p = { w = w,
      S = state(net, w, "s", { history, n }), Y = state(net, w, "y", { history, n }),
      base = state(net, w, "base", { 1, n }), slope = state(net, w, "slope", { 1, n }),
      direction = state(net, w, "direction", { 1, n }) }
    p.at, p.g = w:reshape(1, n), pair[2]:reshape(1, n)
    -- s and y are the change since that point, of the parameter and its gradient.
    p.s, p.y = p.at - p.base, p.g - p.slope
    parts[i] = p
  end
  return parts
end

--- The pairs with the new one, where `keep` says that it tells something.
local function remember(net, parts, keep, history)
  for _, p in ipairs(parts) do
    -- The oldest row goes, the new one comes last; where the pair says nothing, the rows stay.
    local function pushed(rows, row)
      local new = history > 1
        and net:Concat({ rows:narrow(1, 2, history - 1), row }, 1, { axis = 1 }) or row
      return net:Where { keep, new, rows }
    end
    p.S_new, p.Y_new = pushed(p.S, p.s), pushed(p.Y, p.y)
  end
end

--- -H g of each parameter as p.d, and its product with g; c is that of a first step.
local function direct(net, parts, first_c, history)
  -- Everything that couples parameters is a matrix of history x history, or a column of it: the
  -- sums run over all parameters.
  local sy, yy = products(parts, "S_new", "Y_new"), products(parts, "Y_new", "Y_new")
  local sg, yg = products(parts, "S_new", "g"), products(parts, "Y_new", "g")
  local own = sy:diagonal()
  local filled = own:gt(0)
  -- Rows without a pair are zeros: any number does for their diagonal.
  local r = sy:triu() + net:Where { filled, own * 0, own * 0 + 1 }:diag()

  -- c scales the plain gradient; before there is a pair it is that of a first step.
  local newest = own:narrow(1, history, 1)
  local c = net:Where { newest:gt(0), newest / yy:diagonal():narrow(1, history, 1), first_c }
    :reshape {}

  -- u and a by two triangular solves; then each parameter's own direction, of its rows alone.
  local u = r:solve_triangular(sg, { upper = true })
  local a = r:solve_triangular(own:reshape(-1, 1) * u + c * (yy:mat_mul(u) - yg),
    { upper = true, transposed = true })
  for _, p in ipairs(parts) do
    p.d = -(c * p.g + a:mat_mul(p.S_new, { trans_a = true })
      - c * u:mat_mul(p.Y_new, { trans_a = true }))
  end
  return over(parts, function(p) return (p.d * p.g):sum() end)
end

--- How far a step that was too long may go: where the parabola has its least, but between a tenth
-- and a half.
local function shorter(net, t, f, f0, slope)
  -- The parabola goes through f0 at 0, with `slope`, and through f at t. Where it has no least, or
  -- one outside of these bounds, it is a quarter of the way.
  local least = -slope * t * t / ((f - f0 - slope * t) * 2)
  local is_between = least:ge(t * 0.1):logical_and(least:le(t * 0.5)) -- no NaN either
  return net:Where { is_between, least, t * 0.25 }
end

--- A first step is no longer than 1 in all.
local function first_factor(parts, name)
  local length = over(parts, function(p) return p[name]:abs():sum() end)
  return 1 / length:maximum(1)
end

--- Adds the update: see neap.optim, maker.
return function(settings, net, list, lr, loss)
  if settings.search and not loss then
    fail "optim.LBFGS looks at the loss: opt:apply(net, grads, loss), or search = false"
  end

  -- Blobs of the whole: how many points, how far the last one was, the loss at the last taken
  -- point, and the slope along the direction.
  local history, w1, dtype = settings.history, list[1][1], list[1][1].dtype
  local parts = parts_of(net, list, history)
  local n, t, f0, slope = state(net, w1, "n", {}), state(net, w1, "t", {}), state(net, w1, "f", {}),
    state(net, w1, "along", {})
  local rate, f = dtype == "f32" and lr or lr:to(dtype), loss and loss:reshape {}:to(dtype) or f0
  local is_first = n:eq(0)
  -- What rounding hides is no rise.
  local falls = f:le(f0 + slope * t * 1e-4 + f0:abs() * 1e-6)

  -- Without search every point is taken; n >= 0 is always true, and a blob like the other.
  local taken = settings.search and is_first:logical_or(falls) or is_first:logical_or(n:ge(0))

  -- A pair with s y near 0 would make H no longer positive: it is not remembered.
  local sy, yy = over(parts, function(p) return (p.s * p.y):sum() end),
    over(parts, function(p) return (p.y * p.y):sum() end)
  local tells = taken:logical_and(is_first:logical_not()):logical_and(sy:gt(yy * 1e-10))
  remember(net, parts, tells, history)
  local along = direct(net, parts, first_factor(parts, "g"), history)

  -- Not taken: back towards the base; when hardly anything is left, down the slope there, and what
  -- is remembered is forgotten.
  local less = shorter(net, t, f, f0, slope)
  local gives_up = taken:logical_not():logical_and(less:lt(rate * 1e-5))
  local factor = first_factor(parts, "slope")
  local down = -over(parts, function(p) return (p.slope * p.slope):sum() end) * factor
  local function choose(on, over_again, back)
    return net:Where { taken, on, net:Where { gives_up, over_again, back } }
  end

  -- Every choice is made by Where, since the net has no branches: both sides are computed, and one
  -- is kept.
  local t_new = choose(rate, rate, less)
  for _, p in ipairs(parts) do
    local base = net:Where { taken, p.at, p.base }
    local d = choose(p.d, -p.slope * factor, p.direction)
    set(net, p.w, (base + d * t_new):reshape(p.w.shape))
    set(net, p.S, net:Where { gives_up, p.S * 0, p.S_new })
    set(net, p.Y, net:Where { gives_up, p.Y * 0, p.Y_new })
    set(net, p.base, base)
    set(net, p.slope, net:Where { taken, p.g, p.slope })
    set(net, p.direction, d)
  end
  set(net, slope, choose(along, down, slope))
  set(net, f0, net:Where { taken, f, f0 })
  set(net, t, t_new)
  set(net, n, n + 1)
end
