--- Lengths that depend on data in the bodies of loops: an iteration's are its own, and the dynamic
-- executor has a body for each that it has met.
local neap = require "neap"
local core = require "neap.core"
local support = require "support"

local function dynamic(o)
  o = o or {}
  o.executor, o.store, o.seed = "dynamic", false, o.seed or 3
  return neap.workspace(o)
end

--- For each row m of masks: the rows of x that it picks, worked on, summed; and the sum of what has
-- been so far.
local function picking(name)
  local net = neap.net(name or "picking")
  local x, m = net:input("x", { 6, 4 }), net:input("m", { 5, 6 }, "bool")
  local total = net:input("start", { 4 })
  local last, each = net:Recurrent { seq = { m }, init = { total }, step = function(b, sum, row)
    local some = b:Compress({ x, row }, nil, { axis = 1 })
    local part = b:Sum(b:Tanh(b:Mul { some, some }), nil, { axes = { 1 } })
    return b:Add { sum, part }, part
  end }
  net:outputs { net:Copy(last, "last"), net:Copy(each, "each") }
  return net
end

--- The same written out by hand.
local function picked(x, m, total)
  local rows = {}
  for t = 1, m.shape[1] do
    local some = x:compress(m[t], { axis = 1 })
    local part = (some * some):tanh():sum { axes = { 1 } }
    total = total + part
    rows[t] = part:totable()
  end
  return total, core.tensor(rows)
end

local function masks(seed, n, width)
  neap.seed(seed)
  return neap.rand(n or 5, width or 6):gt(0.4)
end

--- Outputs of a run as hashes.
local function bits(out)
  local hashes = {}
  for name, t in pairs(out) do hashes[name] = t:hash() end
  return hashes
end

local function truth(b) return core.tensor(b and 1 or 0):gt(0.5) end

--- Sieves x as long as something is left: rows above the mean go on, a branch looks at them in one
-- of two ways.
local function sieving()
  local net = neap.net "sieving"
  local x, c = net:input("x", { 9, 3 }), net:input("c", {}, "bool")
  local _, level, total = net:While {
    init = { net:const(0), net:const(-1), net:const(0) },
    cond = function(b, i, level)
      return b:LogicalAnd { b:Lt { i, b:const(12) }, b:Lt { level, b:const(0.8) } }
    end,
    body = function(b, i, level, total)
      local sums = b:Sum(x, nil, { axes = { 2 } })
      local some = b:Compress({ x, b:Gt { sums, level } }, nil, { axis = 1 }) -- a length,
      local mean = b:Sum(some, nil, { axes = { 2 } })
      -- one that follows from it, with
      local rest = b:Compress({ some, b:Gt { mean, b:const(0) } }, nil, { axis = 1 })
      local same = b:Compress { mean, b:Gt { mean, b:const(0) } } -- one that must be like it,
      local found = b:Sum(b:Mul { b:Sum(rest, nil, { axes = { 2 } }), same })
      -- and others in branches
      local seen = b:If(c,
        function(t) return t:Sum(t:Unique(t:Floor(t:Mul { same, t:const(3) }))) end,
        function(e)
          return e:Sum(e:Cast(e:NonZero(e:Gt { mean, e:const(0.5) }), nil, { to = "f32" }))
        end)
      return b:Add { i, b:const(1) }, b:Add { level, b:const(0.25) },
        b:Add { total, b:Add { found, seen } }
    end,
  }
  net:outputs { net:Copy(level, "level"), net:Copy(total, "sum") }
  return net
end

local function sieved(x, c)
  local i, level, total = 0, core.tensor(-1), core.tensor(0.0)
  while i < 12 and level:item() < 0.8 do
    local some = x:compress(x:sum { axes = { 2 } }:gt(level), { axis = 1 })
    local mean = some:sum { axes = { 2 } }
    local rest, same = some:compress(mean:gt(0), { axis = 1 }), mean:compress(mean:gt(0))
    local found = (rest:sum { axes = { 2 } } * same):sum()
    local seen = c and neap.unique((same * 3):floor()):sum()
      or neap.non_zero(mean:gt(0.5)):to("f32"):sum()
    i, level, total = i + 1, level + 0.25, total + (found + seen)
  end
  return level, total
end

describe("lengths that depend on data in a body", function()
  it("give the bits of the loop written out by hand, run after run, whatever \z
      each iteration finds", function()
    local net = picking()
    local ws <close> = dynamic()
    ws:poison(true)
    for seed = 1, 12 do
      local m = masks(seed)
      local feeds = { x = neap.randn(6, 4), m = m, start = neap.randn(4) }
      local out = ws:run(net, feeds)
      local last, each = picked(feeds.x, m, feeds.start)
      assert.are.equal(last:hash(), out.last:hash())
      assert.are.equal(each:hash(), out.each:hash())
    end
  end)

  it("may follow from one another, be alike, and stand in branches, in a \z
      loop that data ends", function()
    local net = sieving()
    local ws <close> = dynamic()
    ws:poison(true)
    for seed = 1, 12 do
      neap.seed(seed)
      local x, c = neap.rand { 7 + seed % 3, 3, low = -1, high = 1 }, seed % 2 == 0
      local out = ws:run(net, { x = x, c = truth(c) })
      local level, total = sieved(x, c)
      assert.are.equal(level:hash(), out.level:hash())
      assert.is_true(out.sum:close(total, { rtol = 1e-5, atol = 1e-5 }), "seed " .. seed)
    end
  end)

  it("may stand in a loop in a branch, behind lengths found before it, with \z
      any number of rows", function()
    local net = neap.net "within"
    local x, m = net:input("x", { 6, 4 }), net:input("m", { 5, 6 }, "bool")
    local c = net:input("c", {}, "bool")
    local k = net:input("k", { 6 }, "bool")
    -- the loop's own capture is as long as data says
    local kept = net:Compress({ x, k }, nil, { axis = 1 })
    local y = net:If(c, function(t)
      local sum = t:Recurrent { seq = { m }, init = { t:const(0) }, step = function(b, sum, row)
        local pairs_of = b:MatMul({ b:Compress({ x, row }, nil, { axis = 1 }), kept }, nil,
          { trans_b = true })
        return b:Add { sum, b:Sum(pairs_of) }
      end }
      return sum
    end, function(e) return e:Sum(x) end)
    net:outputs { net:Copy(y, "y") }
    local ws <close> = dynamic()
    ws:poison(true)
    for seed = 1, 10 do
      local rows = masks(seed, 1 + seed % 5)
      local t, pick, on = neap.randn(6, 4), neap.rand(6):gt(0.5), seed % 3 ~= 0
      local got = ws:run(net, { x = t, m = rows, c = truth(on), k = pick }).y
      local want = on and core.tensor(0.0) or t:sum()
      local other = t:compress(pick, { axis = 1 }):transpose(1, 2)
      for r = 1, on and rows.shape[1] or 0 do
        want = want + t:compress(rows[r], { axis = 1 }):matmul(other):sum()
      end
      assert.is_true(got:close(want, { rtol = 1e-4, atol = 1e-4 }), "seed " .. seed)
    end
  end)

  it("are run once they are known without beginning anew and without allocating", function()
    local net = picking()
    local ws <close> = dynamic()
    ws:init(net)
    local program <close> = ws:compile(net)
    ws:feed("start", neap.zeros(4))
    ws:feed("x", neap.randn(6, 4))
    ws:feed("m", masks(1))
    program:run()
    local first = program:stats()
    -- a body for each length, of at most five
    assert.is_true(first.n_restart >= 1 and first.n_restart <= 5)
    assert.are.equal(1, first.n_program) -- they share one program
    program:run(3)
    assert.are.equal(first.n_restart, program:stats().n_restart)
    assert.are.equal(0, program:stats().n_alloc)
  end)

  it("keep the program small: beyond those of a run, sixteen bodies; and a \z
      run may need more", function()
    local net = neap.net "many"
    local x, m = net:input("x", { 64 }), net:input("m", { 4, 64 }, "bool")
    local last = net:Recurrent { seq = { m }, init = { net:const(0) }, step = function(b, sum, row)
      return b:Add { sum, b:Sum(b:Tanh(b:Compress { x, row })) }
    end }
    net:outputs { net:Copy(last, "last") }
    local ws <close> = dynamic()
    ws:init(net)
    local program <close> = ws:compile(net)
    local t = neap.randn(64)
    local function run(first, n)
      local rows = {}
      for r = 1, n do
        rows[r] = {}
        for i = 1, 64 do rows[r][i] = i <= first + r and 1 or 0 end
      end
      local pick = core.tensor(rows):gt(0.5)
      ws:feed("x", t)
      ws:feed("m", pick)
      program:run()
      local want = core.tensor(0.0)
      for r = 1, n do want = want + t:compress(pick[r]):tanh():sum() end
      assert.are.equal(want:hash(), ws:fetch("last"):hash())
      return program:stats().cache_bytes
    end
    local early, most = 0, 0
    for k = 0, 14 do
      local bytes = run(4 * k, 4)
      if k < 5 then early = math.max(early, bytes) end
      most = math.max(most, bytes)
    end
    assert.is_true(most <= 1.25 * early, most .. " bytes, after twenty lengths " .. early)
    run(0, 40) -- forty lengths in one run
    run(3, 4)
  end)

  it("leave the random numbers as they are, in the loop and behind it, \z
      whatever was met before", function()
    local function build()
      local net = neap.net "noisy"
      local x, m = net:input("x", { 6 }), net:input("m", { 5, 6 }, "bool")
      local last = net:Recurrent {
        seq = { m },
        init = { net:const(0) },
        step = function(b, sum, row)
          local noise = b:Uniform(nil, nil, { shape = { 6 } })
          return b:Add { sum, b:Sum(b:Compress { b:Mul { x, noise }, row }) }
        end,
      }
      net:outputs { net:Copy(last, "last"), net:Uniform(nil, "behind", { shape = { 8 } }) }
      return net
    end
    local net, x = build(), neap.ones(6)
    local fresh, used = dynamic { seed = 8 }, dynamic { seed = 8 }
    for seed = 1, 4 do used:run(net, { x = x, m = masks(seed) }) end
    for seed = 1, 4 do fresh:run(net, { x = x, m = masks(5 - seed) }) end
    for seed = 5, 8 do
      local m = masks(seed)
      assert.same(bits(fresh:run(net, { x = x, m = m })), bits(used:run(net, { x = x, m = m })))
    end
    fresh:close()
    used:close()
  end)
end)

describe("bodies for several lengths under a limit", function()
  --- The loop between large values that a limit makes the run throw away and compute again.
  local function heavy()
    local net = neap.net "heavy"
    local x, m = net:input("x", { 32, 16 }), net:input("m", { 4, 32 }, "bool")
    local large = net:Tanh(net:Concat({ x, x, x, x }, nil, { axis = 2 }), "large")
    local sum = net:Recurrent { seq = { m }, init = { net:const(0) }, step = function(b, total, row)
      local some = b:Compress({ x, row }, nil, { axis = 1 })
      return b:Add {
        total,
        b:Sum(b:Tanh(
          b:Concat({ some, some, some, some, some, some, some, some, some }, nil, { axis = 2 }))),
      }
    end }
    net:outputs { net:Add({ net:Sum(large), sum }, "y") }
    return net
  end

  it("are counted by it: what fits gives the same bits, what doesn't is refused by name, and the \z
      next run is as before", function()
    local net = heavy()
    local free <close> = dynamic()
    neap.seed(4)
    local few, many = neap.rand(4, 32):gt(0.9), neap.rand(4, 32):gt(0.02)
    local x = neap.randn(32, 16)
    local want = free:run(net, { x = x, m = few }).y:hash()
    local whole = free:run(net, { x = x, m = many }).y:hash()
    local bound = net:plan { executor = "dynamic", store = false }.arena_bytes
    local lowest, seen
    for budget = 4096, bound, 1024 do
      local ws <close> = dynamic { budget = budget }
      local ok, err = pcall(ws.run, ws, net, { x = x, m = few })
      if ok then
        assert.are.equal(want, ws:run(net, { x = x, m = few }).y:hash())
        lowest = lowest or budget
        local fine, why = pcall(ws.run, ws, net, { x = x, m = many })
        if not fine then
          seen = why
          assert.are.equal("budget", why.code)
          -- nothing is left of the failure
          assert.are.equal(want, ws:run(net, { x = x, m = few }).y:hash())
        end
      else
        assert.are.equal("budget", err.code)
        assert.is_nil(lowest)
      end
    end
    assert.is_true(lowest ~= nil and lowest < bound) -- few rows need less than the bound of all
    assert.is_truthy(seen and (seen.blob or seen.op))
    local ws <close> = dynamic { budget = bound }
    assert.are.equal(whole, ws:run(net, { x = x, m = many }).y:hash())
  end)

  it("are counted by a total", function()
    local net = heavy()
    neap.seed(4)
    local few, many = neap.rand(4, 32):gt(0.9), neap.rand(4, 32):gt(0.02)
    local x = neap.randn(32, 16)
    local free <close> = dynamic()
    local want = free:run(net, { x = x, m = few }).y:hash()
    local total = free:held_bytes() + 256
    free:run(net, { x = x, m = many })
    assert.is_true(free:held_bytes() > total)
    local ws <close> = dynamic { total = total }
    assert.are.equal(want, ws:run(net, { x = x, m = few }).y:hash())
    local err = support.raises("total", ws.run, ws, net, { x = x, m = many })
    assert.are.equal("budget", err.code)
    assert.is_true(ws:held_bytes() <= total)
    assert.are.equal(want, ws:run(net, { x = x, m = few }).y:hash())
  end)

  for _, persist in ipairs { false, true } do
    it("outlive refused memory" .. (persist and ", and all after it" or ""), function()
      local net = picking()
      local feeds = { x = neap.randn(6, 4), m = masks(2), start = neap.zeros(4) }
      local other = { x = feeds.x, m = masks(3), start = feeds.start }
      local last = picked(feeds.x, other.m, feeds.start)
      support.refuse_in_turn(7, persist, function(refused)
        local ws <close> = dynamic()
        local before = bits(ws:run(net, feeds))
        if not refused(ws.run, ws, net, other) then
          assert.same(before, bits(ws:run(net, feeds)))
        end
        assert.are.equal(last:hash(), ws:run(net, other).last:hash())
      end)
    end)
  end
end)

describe("a loop whose body has such lengths", function()
  local line = "found_lengths_spec.lua:"

  it("is refused by executors that plan addresses, with the name of the \z
      one that runs it", function()
    local net = picking()
    for _, executor in ipairs { "simple", "dag" } do
      support.raises({ 'executor = "dynamic"', "Compress", line }, net.plan, net,
        { executor = executor, store = false })
    end
    local ws <close> = neap.workspace { store = false }
    support.raises('executor = "dynamic"', ws.run, ws, net, {
      x = neap.randn(6, 4), m = masks(1), start = neap.zeros(4),
    })
    -- for their bounds
    assert.is_true(net:plan({ executor = "dynamic", store = false }).arena_bytes > 0)
  end)

  it("is refused a gradient while it is built, with its place and what to do", function()
    local net = neap.net "trained"
    local x, m = net:input("x", { 6, 4 }), net:input("m", { 5, 6 }, "bool")
    local w = net:param("w", { 4 }, neap.init.ones)
    local sum = net:Recurrent { seq = { m }, init = { net:const(0) }, step = function(b, total, row)
      return b:Add { total, b:Sum(b:Mul { b:Compress({ x, row }, nil, { axis = 1 }), w }) }
    end }
    net:gradient(sum, { wrt = { "w" } })
    net:outputs { sum }
    local err = support.raises({ "Recurrent", "no gradient is defined through such a loop", line },
      net.plan, net, { executor = "dynamic", store = false })
    assert.are.equal("graph", err.code)
    assert.is_truthy(err.hint:find("mask", 1, true))
  end)

  it("must leave to the next iteration, and in each row, what has one shape", function()
    local rows = masks(1)
    for _, where in ipairs { "state", "row" } do
      local net = neap.net(where)
      local x, m = net:input("x", { 6 }), net:input("m", { 5, 6 }, "bool")
      local a, b = net:Recurrent { seq = { m }, init = { x }, step = function(b, h, row)
        local some = b:Compress { h, row }
        if where == "state" then return some, b:Sum(some) end
        return h, some
      end }
      net:outputs { a, b }
      local ws <close> = dynamic()
      local err = support.raises({ "Recurrent", "depends on data", line }, ws.run, ws, net,
        { x = neap.randn(6), m = rows })
      assert.are.equal("shape", err.code)
      assert.is_truthy(err.hint:find("scatter", 1, true), err.hint)
      -- Nothing is left of the failure: rows of full length have one shape.
      assert.are.equal(2, #net:outputs())
      ws:run(net, { x = neap.randn(6), m = neap.ones(5, 6):gt(0.5) })
    end
  end)

  it("has none in its condition, and in no loop within it", function()
    local net = neap.net "condition"
    local x = net:input("x", { 6 })
    net:While {
      init = { x },
      cond = function(b, h)
        return b:Gt { b:Sum(b:Compress { h, b:Gt { h, b:const(0) } }), b:const(0) }
      end,
      body = function(b, h) return b:Sub { h, b:const(1) } end,
    }
    support.raises({ "Compress", "condition", line }, net.plan, net,
      { executor = "dynamic", store = false })
    local inner = neap.net "inner"
    local y, m = inner:input("x", { 6 }), inner:input("m", { 5, 6 }, "bool")
    local sum = inner:Recurrent {
      seq = { m },
      init = { inner:const(0) },
      step = function(b, total, row)
        return b:Recurrent {
          seq = { m },
          init = { total },
          step = function(c, part) return c:Add { part, c:Sum(c:Compress { y, row }) } end,
        }
      end,
    }
    inner:outputs { sum }
    support.raises({ "Compress", "loop within a loop", line }, inner.plan, inner,
      { executor = "dynamic", store = false })
  end)
end)
