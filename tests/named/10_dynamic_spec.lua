--- Dynamic scheduling: shapes known only at run time, bytes taken from a pool and given back at the
-- last use.
local neap = require "neap"
local core = require "neap.core"
local support = require "support"
local settle = support.settle

--- A small net over rows: any number of them.
local function rows_net()
  local net = neap.net "rows"
  local x = net:input("x", { 1, 16 })
  net:param("w1", { 32, 16 }, neap.init.xavier())
  net:param("b1", { 32 })
  local h = net:Tanh(net:FC({ x, "w1", "b1" }, "h"))
  net:outputs { net:Softmax(h, "y") }
  return net
end

--- Rows of x where mask holds, through a layer, to a loss; the same with the mask as a factor.
local function masked_net(compressed)
  local net = neap.net "masked"
  local x, lr = net:input("x", { 6, 4 }), net:input("lr", {})
  local m = compressed and net:input("m", { 6 }, "bool") or net:input("m", { 6, 1 })
  net:param("w", { 3, 4 }, neap.init.xavier())
  net:param("b", { 3 })
  local h = net:Tanh(net:FC({ x, "w", "b" }, "h"))
  local part = compressed and net:Compress({ h, m }, "part", { axis = 1 })
    or net:Mul({ h, m }, "part")
  local loss = net:Sum(net:Mul { part, part }, "loss")
  for parameter, gradient in pairs(net:gradient(loss)) do
    net:Sgd({ parameter, gradient, lr }, { parameter })
  end
  net:outputs { "loss" }
  return net
end

local masks = {
  { 1, 0, 1, 1, 0, 0 }, { 1, 1, 1, 1, 1, 1 }, { 0, 0, 0, 1, 0, 1 }, { 0, 0, 0, 0, 0, 0 },
  { 0, 1, 0, 0, 0, 1 },
}

describe("the dynamic executor", function()
  it("runs one program handle on inputs of any shape, with the bits of a program \z
      planned for each", function()
    local net = rows_net()
    local ws <close> = neap.workspace { executor = "dynamic", seed = 2, store = false }
    local fixed <close> = neap.workspace { policy = "none", seed = 2, store = false }
    ws:init(net)
    fixed:init(net)
    local program <close> = ws:compile(net)
    for _, n in ipairs { 3, 40, 7, 3, 40, 1 } do -- small after large, too
      local x = neap.rand(n, 16)
      ws:feed("x", x)
      program:run()
      local reference <close> = fixed:compile(net, { x = { n, 16 }, layouts = "plain" })
      fixed:feed("x", x)
      reference:run()
      assert.are.equal(fixed:fetch("y"):hash(), ws:fetch("y"):hash())
      assert.same({ n, 32 }, ws:fetch("y").shape)
      assert.are.equal(n, program.plan.batch)
    end
    local stats = program:stats()
    -- declared (1), 3, 40 and 7: one for each shape, not for each run
    assert.are.equal(4, stats.n_made)
    assert.are.equal(4, stats.n_program)
    assert.are.equal(0, stats.n_restart)
  end)

  it("holds nothing of a large batch once a small one has run", function()
    local net = neap.net "first"
    net:input("x", { 1, 100 })
    net:outputs { net:Tanh("x", "y") }
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    local before, held = support.held(), {}
    for k, n in ipairs { 1, 10000, 1 } do
      ws:run(net, { x = neap.zeros(n, 100) })
      held[k] = support.held() - before
    end
    assert.is_true(held[2] >= 2 * 10000 * 400)
    assert.are.equal(held[1], held[3])
  end)

  it("keeps memory within the largest shape's need plus a tenth over a thousand batches \z
      of random shapes", function()
    local net = rows_net()
    local ws <close> = neap.workspace { executor = "dynamic", seed = 2, store = false }
    ws:init(net)
    local largest = net:plan { policy = "pool", x = { 60, 16 }, store = false }
    local program <close> = ws:compile(net)
    local buffer, state = neap.rand(60, 16), 17
    local function batch(n)
      ws:feed("x", buffer:narrow(1, 1, n))
      program:run()
    end
    batch(60)
    settle()
    local held = neap.memory().held
    local most_pool, most_held, most_cache, most_programs = 0, 0, 0, 0
    for _ = 1, 1000 do
      state = (state * 1103515245 + 12345) % 2147483648
      batch(1 + state // 65536 % 60)
      local pool, stats = program:pool(), program:stats()
      most_pool, most_held = math.max(most_pool, pool.reserved_bytes),
        math.max(most_held, stats.process_bytes)
      most_cache, most_programs = math.max(most_cache, stats.cache_bytes),
        math.max(most_programs, stats.n_program)
      assert.are.equal(0, pool.used_bytes)
      assert.are.equal(1, pool.n_free_block) -- one region, empty
    end
    assert.is_true(most_pool <= 1.1 * largest.arena_bytes,
      most_pool .. " of " .. largest.arena_bytes)
    assert.is_true(most_held <= 1.1 * held,
      ("%d held, %d with the largest shape"):format(most_held, held))
    assert.is_true(most_programs <= 16 and most_cache <= 64 * 2 ^ 20 and most_cache > 0)
    assert.is_true(program:stats().n_dropped > 0)
  end)

  it("allocates nothing once a shape is known and its inputs have come", function()
    local net = rows_net()
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    ws:init(net)
    local program <close> = ws:compile(net)
    ws:feed("x", neap.rand(9, 16))
    program:run(2)
    program:run()
    assert.are.equal(0, program:stats().n_alloc)
  end)

  it("finds lengths that depend on data: Compress and NonZero give what the \z
      tensor functions give", function()
    local net = neap.net "lengths"
    local x, m = net:input("x", { 6, 4 }), net:input("m", { 6 }, "bool")
    local z = net:Compress({ net:Tanh(x), m }, "z", { axis = 1 })
    net:outputs { z, net:Sum(z, "s", { axes = { 2 } }), net:NonZero(m, "i") }
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    ws:poison(true)
    local input = neap.rand(6, 4)
    for round = 1, 2 do
      for _, mask in ipairs(masks) do
        local holds = neap.tensor(mask):gt(0.5)
        local out = ws:run(net, { x = input, m = holds })
        local want = input:tanh():compress(holds, { axis = 1 })
        assert.are.equal(want:hash(), out.z:hash())
        assert.same(want.shape, out.z.shape)
        assert.same({ want.shape[1] }, out.s.shape)
        assert.are.equal(neap.non_zero(holds):hash(), out.i:hash(), "round " .. round)
      end
    end
  end)

  it("finds the different values of a tensor, where each element's stands and \z
      how often it occurs", function()
    local net = neap.net "values"
    local x = net:input("x", { 1 }, "i32")
    net:outputs { net:Unique(x, { "y", "inverse", "counts" }) }
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    for _, list in ipairs { { 5, -2, 5, 7, -2, 5 }, { 3 }, { 9, 8, 7, 6, 5, 4, 3, 2, 1, 0 }, {} } do
      local t = #list > 0 and neap.tensor(list, "i32") or neap.zeros { 0, dtype = "i32" }
      local out = ws:run(net, { x = t })
      local seen, sorted = {}, {}
      for _, v in ipairs(list) do
        if not seen[v] then sorted[#sorted + 1] = v end
        seen[v] = (seen[v] or 0) + 1
      end
      table.sort(sorted)
      assert.same({ #sorted }, out.y.shape)
      for k, v in ipairs(sorted) do
        assert.are.equal(v, out.y:at(k))
        assert.are.equal(seen[v], out.counts:at(k))
      end
      for i, v in ipairs(list) do assert.are.equal(v, sorted[out.inverse:at(i) + 1]) end
    end
    assert.are.equal(3, #neap.unique(neap.tensor { 0 / 0, 1, 0 / 0, 1 })) -- no NaN is another
  end)

  it("begins anew only while lengths change, and at most once for each op \z
      whose length does", function()
    local net = masked_net(true)
    local ws <close> = neap.workspace { executor = "dynamic", seed = 4, store = false }
    ws:init(net)
    local program <close> = ws:compile(net)
    ws:feed("x", neap.rand(6, 4))
    ws:feed("lr", core.tensor(0.0))
    ws:feed("m", neap.tensor(masks[1]):gt(0.5))
    program:run()
    assert.are.equal(0, program:stats().n_restart) -- a probe has found the length
    assert.are.equal(2, program:stats().n_made)
    program:run(5)
    assert.are.equal(0, program:stats().n_restart)
    assert.are.equal(2, program:stats().n_made)
    ws:feed("m", neap.tensor(masks[3]):gt(0.5))
    program:run()
    assert.are.equal(1, program:stats().n_restart) -- the guess was wrong
    assert.are.equal(3, program:stats().n_made) -- the probe is the old one
    assert.are.equal(7, ws:step()) -- a step that began twice counts once
  end)

  it("writes what subnets write once, not in the probe too", function()
    local writers = {
      Add = function(net) net:Add({ "m", "one" }, "m") end,
      Accumulate = function(net) net:op("Accumulate", { "m", "one" }, "m") end,
      If = function(net) net:If(net:const(true), function(b) b:Add({ "m", "one" }, "m") end) end,
      ["Accumulate in an If"] = function(net)
        net:If(net:const(true), function(b) b:op("Accumulate", { "m", "one" }, "m") end)
      end,
      Recurrent = function(net)
        net:Recurrent { seq = { "one" }, init = {}, step = function(b, row)
          b:Add({ "m", "one" }, "m")
          return b:Copy(row)
        end }
      end,
      ["a Loop in a Do"] = function(net)
        net:CreateScope({}, "s")
        net:Do { scope = "s", bindings = { k = "m", one = "one" }, body = function(d)
          d:Loop { trip = 1, init = {}, body = function(b)
            b:Add({ "k", "one" }, "k")
            return true
          end }
        end }
      end,
    }
    for how, write in pairs(writers) do
      local net = neap.net "once"
      local x = net:input("x", { 4 })
      net:declare("m", "state", { 1 }, "f32", { op = "Constant", value = 0 })
      net:declare("one", "state", { 1 }, "f32", { op = "Constant", value = 1 })
      write(net)
      net:Compress({ x, x:gt(1) }, "y", { axis = 1 })
      net:outputs { "y" }
      local ws <close> = neap.workspace { executor = "dynamic", store = false }
      for step, last in ipairs { 1, 4, 4, 0 } do
        assert.are.equal(last > 1 and 3 or 2, #ws:run(net, { x = { 1, 2, 3, last } }).y:totable())
        assert.are.equal(step, ws:fetch("m"):item(), how)
      end
    end
  end)

  it("differentiates through Compress: parameters follow those of the same net with the \z
      mask as a factor", function()
    local a, b = masked_net(true), masked_net(false)
    local ws <close> = neap.workspace { executor = "dynamic", seed = 5, store = false }
    local other <close> = neap.workspace { seed = 5, store = false }
    ws:poison(true)
    for _, mask in ipairs(masks) do
      local x, m = neap.rand(6, 4), neap.tensor(mask)
      local got = ws:run(a, { x = x, m = m:gt(0.5), lr = core.tensor(0.1) })
      local want = other:run(b, { x = x, m = m:reshape(6, 1), lr = core.tensor(0.1) })
      assert.is_true(got.loss:close(want.loss, { rtol = 1e-5, atol = 1e-6 }))
      for _, name in ipairs { "w", "b" } do
        assert.is_true(ws:fetch(name):close(other:fetch(name), { rtol = 1e-5, atol = 1e-6 }), name)
      end
    end
  end)

  it("finds lengths that follow from one another, and ops that need two of them alike", function()
    local net = neap.net "chained"
    local x, m = net:input("x", { 1, 3 }), net:input("m", { 1 }, "bool")
    local some = net:Compress({ x, m }, "some", { axis = 1 }) -- the rows that m picks,
    local sums = net:Sum(some, "sums", { axes = { 2 } })
    local large = net:Gt({ sums, net:const(0) }, "large")
    -- of these the ones with a positive sum,
    local rest = net:Compress({ some, large }, "rest", { axis = 1 })
    local same = net:Compress({ sums, large }, "same")
    -- and both again
    net:outputs {
      net:Add({ net:Sum(rest, nil, { axes = { 2 } }), same }, "twice"), net:NonZero(large, "where"),
    }
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    for _, n in ipairs { 7, 3, 7 } do
      for seed = 1, 3 do
        neap.seed(seed)
        local t, pick = neap.rand { n, 3, low = -1, high = 1 }, neap.rand(n):gt(0.4)
        local out = ws:run(net, { x = t, m = pick })
        local s = t:compress(pick, { axis = 1 }):sum { axes = { 2 } }
        local want = s:compress(s:gt(0)) * 2
        assert.same(want.shape, out.twice.shape)
        assert.is_true(out.twice:close(want))
        assert.are.equal(neap.non_zero(s:gt(0)):hash(), out.where:hash())
      end
    end
  end)

  it("takes new shapes with which the lengths found last do not go", function()
    local net = neap.net "beside"
    local x, m, y = net:input("x", { 6 }), net:input("m", { 6 }, "bool"), net:input("y", { 6 })
    net:outputs { net:Add({ net:Compress { x, m }, y }, "z") }
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    for _, n in ipairs { 3, 3, 4, 4, 2, 6, 1 } do
      local mask = {}
      for i = 1, 6 do mask[i] = i > 6 - n and 1 or 0 end
      local t, pick, add = neap.rand(6), neap.tensor(mask):gt(0.5), neap.rand(n)
      assert.is_true(ws:run(net, { x = t, m = pick, y = add }).z:close(t:compress(pick) + add))
    end
  end)

  it("takes new shapes with which a length found last in a branch does not \z
      go, trusted or not", function()
    local net = neap.net "inside"
    local x, m, y = net:input("x", { 6 }), net:input("m", { 6 }, "bool"), net:input("y", { 6 })
    local z = net:If(net:input("c", {}, "bool"),
      function(b) return b:Sum(b:Mul { b:Compress { x, m }, y }) end,
      function(b) return b:Sum(y) end)
    net:outputs { z }
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    for _, n in ipairs { 4, 5, 3, 6, 6, 2 } do
      local t, add = neap.rand(n), neap.rand(n)
      local out = ws:run(net, {
        x = t, m = neap.ones(n):gt(0.5), y = add, c = neap.tensor(1):gt(0.5),
      })
      assert.is_true(out[z.name]:close((t * add):sum(), { rtol = 1e-5 }))
    end
  end)

  it("draws the same random numbers when a run begins anew", function()
    local function build(compressed)
      local net = neap.net "drawn"
      local x, m = net:input("x", { 6 }), net:input("m", { 6 }, "bool")
      local noise = net:Uniform(nil, "noise", { shape = { 6 } })
      local y = net:Add({ x, noise }, "y")
      net:outputs(compressed and { y, net:Compress({ y, m }, "z") } or { y })
      return net
    end
    local ws <close> = neap.workspace { executor = "dynamic", seed = 9, store = false }
    local other <close> = neap.workspace { seed = 9, store = false }
    local x, m = neap.rand(6), neap.tensor(masks[1]):gt(0.5)
    other:feed("m", m)
    local out = ws:run(build(true), { x = x, m = m })
    assert.are.equal(other:run(build(false), { x = x }).y:hash(), out.y:hash())
    assert.are.equal(out.y:compress(m):hash(), out.z:hash())
  end)

  it("finds lengths in branches, and in branches within them, as the conditions have it", function()
    local net = neap.net "branches"
    local x, m = net:input("x", { 6, 4 }), net:input("m", { 6 }, "bool")
    local c, d = net:input("c", {}, "bool"), net:input("d", {}, "bool")
    local some = net:Compress({ x, m }, "some", { axis = 1 }) -- a length that a branch depends on
    local y = net:If(c, function(b)
      local large = b:Compress({ some, b:Gt { b:Sum(some, nil, { axes = { 2 } }), b:const(0) } },
        nil, { axis = 1 })
      return b:If(d, function(b2) return b2:Sum(b2:Tanh(large)) end,
        function(b2) return b2:Sum(b2:Unique(b2:Floor(b2:Mul { large, b2:const(4) }))) end)
    end, function(b) return b:Sum(b:Cast(b:NonZero(m), nil, { to = "f32" })) end)
    net:outputs { net:Add({ y, net:Sum(x) }, "y") }
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    ws:poison(true)
    local function truth(b) return neap.tensor(b and 1 or 0):gt(0.5) end
    for round = 1, 20 do
      neap.seed(round)
      local t = neap.rand { 5 + round % 3, 4, low = -1, high = 1 }
      local pick = neap.rand(t.shape[1]):gt(0.4)
      local first, second = round % 4 ~= 0, round % 2 == 0
      local got = ws:run(net, { x = t, m = pick, c = truth(first), d = truth(second) }).y
      local want = neap.non_zero(pick):to("f32"):sum()
      if first then
        local part = t:compress(pick, { axis = 1 })
        local large = part:compress(part:sum { axes = { 2 } }:gt(0), { axis = 1 })
        want = second and large:tanh():sum() or neap.unique((large * 4):floor()):sum()
      end
      assert.is_true(got:close(want + t:sum(), { rtol = 1e-5, atol = 1e-5 }), "round " .. round)
    end
  end)

  --- masked_net's loss in a branch; the other one takes all rows.
  local function branching_net(compressed)
    local net = neap.net "branching"
    local x, lr, c = net:input("x", { 6, 4 }), net:input("lr", {}), net:input("c", {}, "bool")
    local m = compressed and net:input("m", { 6 }, "bool") or net:input("m", { 6, 1 })
    net:param("w", { 3, 4 }, neap.init.xavier())
    net:param("b", { 3 })
    local h = net:Tanh(net:FC({ x, "w", "b" }, "h"))
    local loss = net:If(c, function(b)
      local part = compressed and b:Compress({ h, m }, nil, { axis = 1 }) or b:Mul { h, m }
      return b:Sum(b:Mul { part, part })
    end, function(b) return b:Sum(b:Mul { h, h }) end)
    for parameter, gradient in pairs(net:gradient(loss)) do
      net:Sgd({ parameter, gradient, lr }, { parameter })
    end
    net:outputs { loss }
    return net, loss
  end

  it("differentiates through lengths in a branch, under a limit too", function()
    local a, loss = branching_net(true)
    local b, other_loss = branching_net(false)
    local other <close> = neap.workspace { seed = 5, store = false }
    local free <close> = neap.workspace { executor = "dynamic", seed = 5, store = false }
    local least =
      select(2, pcall(a.plan, a, { executor = "dynamic", budget = 1, store = false })).least_bytes
    local tight <close> = neap.workspace {
      executor = "dynamic", seed = 5, budget = least, store = false,
    }
    free:poison(true)
    tight:poison(true)
    local lr = core.tensor(0.1)
    for round, mask in ipairs(masks) do
      local x, m = neap.rand(6, 4), neap.tensor(mask)
      local c = neap.tensor(round % 3 ~= 0 and 1 or 0):gt(0.5)
      local got = free:run(a, { x = x, m = m:gt(0.5), c = c, lr = lr })
      local within = tight:run(a, { x = x, m = m:gt(0.5), c = c, lr = lr })
      local want = other:run(b, { x = x, m = m:reshape(6, 1), c = c, lr = lr })
      assert.is_true(got[loss.name]:close(want[other_loss.name], { rtol = 1e-5, atol = 1e-6 }))
      assert.are.equal(got[loss.name]:hash(), within[loss.name]:hash())
      for _, name in ipairs { "w", "b" } do
        assert.is_true(free:fetch(name):close(other:fetch(name), { rtol = 1e-5, atol = 1e-6 }),
          name)
        assert.are.equal(free:fetch(name):hash(), tight:fetch(name):hash())
      end
    end
    assert.are.equal(#masks, free:step()) -- a step that began anew counts once
  end)

  it("begins anew for a branch only when its length is another than the \z
      last time it ran", function()
    local net = branching_net(true)
    local ws <close> = neap.workspace { executor = "dynamic", seed = 4, store = false }
    ws:init(net)
    local program <close> = ws:compile(net)
    ws:feed("x", neap.rand(6, 4))
    ws:feed("lr", core.tensor(0.0))
    local function run(mask, c)
      ws:feed("m", neap.tensor(mask):gt(0.5))
      ws:feed("c", neap.tensor(c):gt(0.5))
      local before = program:stats()
      program:run()
      local after = program:stats()
      return after.n_restart - before.n_restart
    end
    assert.are.equal(0, run(masks[1], 1)) -- a probe has found the length
    assert.are.equal(0, run(masks[1], 1))
    assert.are.equal(0, run(masks[3], 0)) -- not asked
    assert.are.equal(0, run(masks[1], 1)) -- as it was
    assert.is_true(run(masks[3], 1) >= 1)
    assert.are.equal(0, run(masks[3], 1))
  end)

  it("keeps the length of a branch that was not taken while others were looked for", function()
    local net = neap.net "apart"
    local x, m = net:input("x", { 6, 4 }), net:input("m", { 6 }, "bool")
    local inner, c = net:input("inner", { 6 }, "bool"), net:input("c", {}, "bool")
    local some = net:Sum(net:Compress({ x, m }, nil, { axis = 1 })) -- a length outside the branch
    local y = net:If(c, function(b) return b:Sum(b:Compress({ x, inner }, nil, { axis = 1 })) end,
      function(b) return b:Sum(x) end)
    net:outputs { net:Add({ y, some }, "y") }
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    local program <close> = ws:compile(net)
    local t, inside = neap.rand(6, 4), neap.tensor(masks[1]):gt(0.5)
    ws:feed("x", t)
    ws:feed("inner", inside)
    local function run(mask, on)
      local pick = neap.tensor(mask):gt(0.5)
      ws:feed("m", pick)
      ws:feed("c", neap.tensor(on):gt(0.5))
      local before = program:stats().n_restart
      program:run()
      local want = on == 1 and t:compress(inside, { axis = 1 }):sum() or t:sum()
      assert.is_true(ws:fetch("y"):close(want + t:compress(pick, { axis = 1 }):sum(),
        { rtol = 1e-5, atol = 1e-5 }))
      return program:stats().n_restart - before
    end
    run(masks[1], 1)
    run(masks[1], 1)
    run(masks[3], 0) -- the other length changes: all are looked for, and the branch finds none
    run(masks[3], 0)
    assert.are.equal(0, run(masks[3], 1)) -- the branch as it was when it ran
  end)

  it("refuses what a branch gives when its own length depends on data, and an update \z
      beside such an op", function()
    local net = neap.net "open"
    local x, m, c = net:input("x", { 4 }), net:input("m", { 4 }, "bool"), net:input("c", {}, "bool")
    net:outputs {
      net:If(c, function(b) return b:Compress { x, m } end, function(b) return b:Copy(x) end),
    }
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    local function feeds(on)
      return {
        x = neap.rand(4), m = neap.tensor { 1, 0, 1, 0 }:gt(0.5), c = neap.tensor(on):gt(0.5),
      }
    end
    local ok, err = pcall(ws.run, ws, net, feeds(1))
    assert.is_false(ok)
    assert.is_truthy(
      tostring(err):find("then_net", 1, true)
        and tostring(err):find("10_dynamic_spec.lua:", 1, true), tostring(err))
    ws:run(net, feeds(0)) -- nothing is left of the failure

    local update = neap.net "update"
    local y, k = update:input("x", { 4 }), update:input("m", { 4 }, "bool")
    local e, lr = update:input("c", {}, "bool"), update:input("lr", {})
    update:param("s", {})
    update:If(e, function(b) b:Sgd({ "s", b:Sum(b:Compress { y, k }), lr }, { "s" }) end)
    update:outputs { "s" }
    local fine, why = pcall(update.plan, update, { executor = "dynamic", store = false })
    assert.is_false(fine)
    assert.is_truthy(tostring(why):find("can't update anything", 1, true), tostring(why))
  end)

  it("is named by the error when such a net is planned", function()
    local net = masked_net(true)
    for _, executor in ipairs { "simple", "dag" } do
      local ok, err = pcall(net.plan, net, { executor = executor, store = false })
      assert.is_false(ok)
      assert.are.equal("graph", err.code)
      assert.is_truthy(tostring(err):find('executor = "dynamic"', 1, true), tostring(err))
      assert.is_truthy(tostring(err):find("Compress", 1, true))
    end
    local branch = neap.net "branch"
    local x, m = branch:input("x", { 4 }), branch:input("m", { 4 }, "bool")
    local c = branch:input("c", {}, "bool")
    branch:If(c, function(b) return b:Sum(b:Compress { x, m }) end, function(b) return b:Sum(x) end)
    local ok, err = pcall(branch.plan, branch, { store = false })
    assert.is_false(ok)
    assert.is_truthy(
      tostring(err):find("Compress", 1, true)
        and tostring(err):find('executor = "dynamic"', 1, true), tostring(err))
  end)

  it("refuses a shape that needs more than the hard limit, and goes on with the next one as if \z
      nothing had been", function()
    local net = rows_net()
    local ws <close> = neap.workspace {
      executor = "dynamic", seed = 2, budget = 16384, store = false,
    }
    local before = ws:run(net, { x = neap.ones(4, 16) }).y:hash()
    local w = ws:fetch("w1"):hash()
    local ok, err = pcall(ws.run, ws, net, { x = neap.rand(400, 16) })
    assert.is_false(ok)
    assert.are.equal("budget", err.code)
    assert.are.equal("tanh_1", err.blob) -- h is part of it: the net does not train
    assert.is_truthy(tostring(err):find("50.0 KiB", 1, true), tostring(err))
    assert.are.equal(w, ws:fetch("w1"):hash())
    assert.are.equal(before, ws:run(net, { x = neap.ones(4, 16) }).y:hash())
  end)

  it("trains through the trainer with batches of any size", function()
    local nn = neap.nn
    local model = nn.Sequential { input = { 4 }, nn.Linear { 4, 8 }, nn.Tanh(), nn.Linear { 8, 3 } }
    local t <close> = neap.trainer {
      model = model,
      optimizer = neap.optim.SGD { lr = 0.1 },
      memory = { executor = "dynamic" },
      seed = 1,
    }
    local other = nn.Sequential { input = { 4 }, nn.Linear { 4, 8 }, nn.Tanh(), nn.Linear { 8, 3 } }
    local u <close> = neap.trainer {
      model = other,
      optimizer = neap.optim.SGD { lr = 0.1 },
      memory = { policy = "none", layouts = "plain" },
      seed = 1,
    }
    for _, n in ipairs { 8, 3, 8, 5 } do
      local batch = { x = neap.rand(n, 4), y = neap.zeros { n, dtype = "i64" } }
      assert.are.equal(u:step(batch).loss, t:step(batch).loss)
    end
  end)
end)

describe("control flow under the pool", function()
  local function same_under_pool(build, feeds)
    local net = build()
    local function run(memory, poison)
      local ws <close> = neap.workspace { seed = 3, store = false }
      ws:init(net)
      ws:poison(poison)
      for name, t in pairs(feeds) do ws:feed(name, t) end
      local program <close> = ws:compile(net, memory)
      program:run(2)
      local bits = {}
      for _, name in ipairs(net:outputs()) do bits[name] = ws:fetch(name):hash() end
      return bits
    end
    assert.same(run({ policy = "none", layouts = "plain" }, false), run({ policy = "pool" }, true))
  end

  it("runs While with its frame taken from the pool", function()
    same_under_pool(function()
      local net = neap.net "loop"
      net:input("x", { 32 })
      local _, y = net:While {
        init = { net:const(0), "x" }, cond = function(_, i) return i:lt(5) end,
        body = function(b, i, x) return i + 1, b:Tanh(b:Add { x, x }) end,
      }
      net:outputs { net:Sum(y, "s"), net:Sigmoid("x", "t") }
      return net
    end, { x = neap.rand(32) })
  end)

  it("trains through a While with a declared maximum", function()
    same_under_pool(function()
      local net = neap.net "loop"
      net:param("w", { 8 }, neap.init.ones)
      local _, y = net:While {
        init = { net:const(0), "w" }, max = 3, cond = function(_, i) return i:lt(3) end,
        body = function(b, i, x) return i + 1, b:Sigmoid(b:Mul { x, x }) end,
      }
      local loss = net:Sum(y, "loss")
      local g = net:gradient(loss, { wrt = { "w" } })
      local out = { loss }
      for _, gradient in pairs(g) do out[#out + 1] = gradient end
      net:outputs(out)
      return net
    end, {})
  end)
end)
