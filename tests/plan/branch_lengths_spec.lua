--- Lengths that depend on data in branches: unknown until the branch has run, so that nothing is
-- checked against them before, and what ran earlier changes neither bits nor what is refused.
local neap = require "neap"
local core = require "neap.core"
local support = require "support"

local line = "branch_lengths_spec.lua:"

local function dynamic(o)
  o = o or {}
  o.executor, o.store, o.seed = "dynamic", false, o.seed or 3
  local ws = neap.workspace(o)
  ws:poison(true)
  return ws
end

local function truth(b) return core.tensor(b and 1 or 0):gt(0.5) end

--- A mask over `width` elements of which the first n hold.
local function first(n, width)
  local t = {}
  for i = 1, width or 6 do t[i] = i <= n and 1 or 0 end
  return core.tensor(t):gt(0.5)
end

local function feeds(n, on, deep)
  neap.seed(n)
  return { x = neap.rand(6), m = first(n), y = neap.rand(n), c = truth(on), d = truth(deep) }
end

local function inputs(net)
  return net:input("x", { 6 }), net:input("m", { 6 }, "bool"), net:input("y", { 6 }),
    net:input("c", {}, "bool"), net:input("d", {}, "bool")
end

--- Outputs of a run in one text.
local function bits(out)
  local names = {}
  for name in pairs(out) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do names[i] = name .. out[name]:hash() end
  return table.concat(names, " ")
end

local function product(b, p, q)
  return b:Sum(b:MatMul {
    b:Reshape(p, nil, { shape = { 1, -1 } }), b:Reshape(q, nil, { shape = { -1, 1 } }),
  })
end

--- Nets in which y must be as long as what a branch finds. Each ends in one output "z".
local builders = {
  ["by broadcasting"] = function(net)
    local x, m, y, c = inputs(net)
    return net:If(c, function(b) return b:Sum(b:Add { b:Compress { x, m }, y }) end,
      function(b) return b:Sum(y) end)
  end,
  ["by a product, in both"] = function(net) -- neither bounds nor ones go together
    local x, m, y, c = inputs(net)
    return net:If(c, function(b) return product(b, b:Compress { x, m }, y) end,
      function(b) return b:Sum(b:Exp(product(b, y, b:Compress { b:Tanh(x), m }))) end)
  end,
  ["with a length found outside"] = function(net)
    local x, m, y, c = inputs(net)
    local outer = net:Compress { x, m }
    return net:If(c,
      function(b) return b:Sum(b:Mul { b:Compress { b:Tanh(x), m }, b:Add { outer, y } }) end,
      function(b) return b:Sum(outer) end)
  end,
  ["in branches within them"] = function(net)
    local x, m, y, c, d = inputs(net)
    return net:If(c, function(b)
      return b:If(d, function(e) return product(e, e:Compress { x, m }, y) end,
        function(e) return e:Sum(e:Sub { y, e:Compress { e:Exp(x), m } }) end)
    end, function(b)
      local some = b:Compress { x, m }
      return b:If(d, function(e) return e:Sum(e:Add { some, y }) end,
        function(e) return e:Sum(e:Compress { x, m }) end)
    end)
  end,
  ["and says what is long outside"] = function(net)
    local x, m, y, c = inputs(net)
    local level = net:If(c, function(b)
      return b:Sum(b:Relu(b:Sub { y, b:Add { b:Compress { x, m }, y } }))
    end, function(b)
      return b:Mul { b:Sum(b:Compress { x, m }), b:const(0) } -- nothing in any case
    end)
    return net:Sum(net:Mul { net:Compress { x, net:LogicalAnd { m, net:Ge { x, level } } }, y })
  end,
  ["and is what a branch gives"] = function(net) -- both branches find the same
    local x, m, y, c = inputs(net)
    local part = net:If(c, function(b) return b:Compress { x, m } end,
      function(b) return b:Neg(b:Compress { x, m }) end)
    return net:Sum(net:Mul { part, y })
  end,
  ["in a Do"] = function(net)
    local x, m, y, c = inputs(net)
    return net:If(c, function(b)
      b:Copy(b:const(0), "t")
      b:CreateScope({}, "s")
      b:Do { scope = "s", bindings = { p = x, q = m, r = y, t = "t" },
        body = function(e) e:Sum(e:Add { e:Compress { "p", "q" }, "r" }, "t") end }
      return b:Copy "t"
    end, function(b) return b:Sum(y) end)
  end,
  ["in an iteration"] = function(net)
    local x, m, y, c, d = inputs(net)
    local _, sum = net:While {
      init = { net:const(0), net:const(0) },
      cond = function(b, i) return b:Lt { i, b:const(3) } end,
      body = function(b, i, sum)
        local part = b:If(c, function(e) return e:Sum(e:Add { e:Compress { x, m }, y }) end,
          function(e)
            return e:If(d, function(f) return f:Sum(y) end,
              function(f) return f:Sum(f:Mul { f:Compress { x, m }, y }) end)
          end)
        return b:Add { i, b:const(1) }, b:Add { sum, part }
      end,
    }
    return sum
  end,
  ["beside one in each iteration"] = function(net)
    local x, m, y, c = inputs(net)
    return net:If(c, function(b)
      local some = b:Compress { x, m }
      local _, sum = b:While {
        init = { b:const(0), b:const(0) }, cond = function(e, i) return e:Lt { i, e:const(2) } end,
        body = function(e, i, sum)
          return e:Add { i, e:const(1) }, e:Add { sum, e:Sum(e:Mul { e:Compress { x, m }, some }) }
        end,
      }
      return b:Add {
        sum,
        b:Sum(b:Add { b:Compress { x, b:LogicalAnd { m, b:Ge { x, b:Sub { sum, sum } } } }, y }),
      }
    end, function(b) return b:Sum(y) end)
  end,
}

local function build(how)
  local net = neap.net "branches"
  net:outputs { net:Copy(builders[how](net), "z") }
  return net
end

--- f(order) for each order of the list's elements.
local function each_order(list, f, n)
  n = n or #list
  if n <= 1 then return f(list) end
  for i = 1, n do
    list[n], list[i] = list[i], list[n]
    each_order(list, f, n - 1)
    list[n], list[i] = list[i], list[n]
  end
end

describe("lengths that depend on data in a branch", function()
  for how in pairs(builders) do
    it("give the bits of a fresh workspace in every order, met " .. how, function()
      local net, want = build(how), {}
      for n = 1, 6 do
        for way = 0, 3 do
          local ws <close> = dynamic()
          want[4 * n + way] = bits(ws:run(net, feeds(n, way < 2, way % 2 == 0)))
        end
      end
      local ws, k, every = dynamic(), 0, how == "by broadcasting" and 1 or 48
      each_order({ 1, 2, 3, 4, 5, 6 }, function(order)
        k = k + 1
        if k % every ~= 0 then return end -- all 720, or 15 of them
        if k % 180 == 0 then
          ws:close()
          ws = dynamic()
        end
        for i, n in ipairs(order) do
          local way = (k // every + i * i) % 4
          assert.are.equal(want[4 * n + way], bits(ws:run(net, feeds(n, way < 2, way % 2 == 0))))
        end
      end)
      ws:close()
    end)
  end

  it("may be met by one found outside it, whether anybody reads the result or not", function()
    local function run(write)
      local net = neap.net "outer"
      local x, m, _, c = inputs(net)
      local outer = net:Compress { x, m }
      net:outputs {
        net:Copy(
          net:If(c, function(b) return write(b, x, m, outer) end, function(b) return b:Sum(x) end),
          "z"),
      }
      local ws <close> = dynamic()
      return ws:run(net, {
        x = neap.ones(6), m = first(3), c = truth(true), y = neap.ones(6), d = truth(true),
      }).z:item()
    end
    assert.are.equal(6,
      run(function(b, x, m, outer) return b:Sum(b:Add { b:Compress { x, m }, outer }) end))
    assert.are.equal(3, run(function(b, x, m, outer)
      b:Add { b:Compress { x, m }, outer }
      return b:Sum(outer)
    end))
    assert.are.equal(3, run(function(b, x, m, outer)
      local own = b:Compress { x, m }
      b:Add { own, outer }
      return b:Sum(own)
    end))
  end)

  it("are refused with their place where they don't go together, whatever ran before, and \z
      nothing is left of it", function()
    for _, how in ipairs {
      "by broadcasting", "by a product, in both", "with a length found outside",
      "in branches within them",
    } do
      local net = build(how)
      for before = 0, 6 do
        local ws <close> = dynamic()
        local want = before > 0 and bits(ws:run(net, feeds(before, true, true)))
        local wrong = feeds(3, true, true)
        wrong.y = neap.rand(4)
        local err = support.raises({ line, "4", "3" }, ws.run, ws, net, wrong)
        assert.are.equal("shape", err.code)
        if want then assert.are.equal(want, bits(ws:run(net, feeds(before, true, true)))) end
        ws:run(net, feeds(3, true, true))
      end
    end
  end)

  it("are not looked at in the branch that isn't taken", function()
    local net = build "by broadcasting"
    for before = 0, 6 do
      local ws <close> = dynamic()
      if before > 0 then ws:run(net, feeds(before, true)) end
      local f = feeds(3, false)
      f.y = neap.rand(4) -- wrong for the other branch
      assert.are.equal(f.y:sum():hash(), ws:run(net, f).z:hash())
    end
  end)

  it("leave the random numbers in and behind the branches as they are", function()
    local function noisy()
      local net = neap.net "noisy"
      local x, m, y, c, d = inputs(net)
      local z = net:If(c, function(b)
        local noise = b:Uniform(nil, nil, { shape = { 6 } })
        local part = b:Add { b:Compress { b:Mul { x, noise }, m }, y }
        return b:Sum(b:Mul {
          part,
          b:If(d, function(e) return e:Sum(e:Uniform(nil, nil, { shape = { 3 } })) end,
            function(e)
              return e:Sum(e:Mul { e:Compress { e:Uniform(nil, nil, { shape = { 6 } }), m }, y })
            end),
        })
      end, function(b)
        return b:Sum(b:Mul { b:Compress { b:Uniform(nil, nil, { shape = { 6 } }), m }, y })
      end)
      net:outputs { net:Copy(z, "z"), net:Uniform(nil, "behind", { shape = { 8 } }) }
      return net
    end
    local net, seen = noisy(), {}
    for round = 1, 12 do -- step k of a workspace draws the same whatever the steps before it found
      local ws <close> = dynamic { seed = 8 }
      for step = 1, 6 do
        local n, way = (round * step) % 6 + 1, (round + step) % 4
        local out = ws:run(net, feeds(n, way < 2, way % 2 == 0))
        local key = step .. " " .. n .. " " .. way
        seen[key] = seen[key] or bits(out)
        assert.are.equal(seen[key], bits(out))
        seen[step] = seen[step] or out.behind:hash()
        assert.are.equal(seen[step], out.behind:hash())
      end
    end
  end)

  for _, by in ipairs { "broadcasting", "a product" } do
    it("are differentiated through, whichever branch ran before, met by " .. by, function()
      local function train(compressed)
        local net = neap.net "trained"
        local x, _, y, c = inputs(net)
        local lr = net:input("lr", {})
        local w, v = net:param("w", {}, neap.init.ones), net:param("v", {}, neap.init.ones)
        local function part(b, t)
          return compressed and b:Compress { t, "m" }
            or b:Slice(t, nil, { axis = 1, stop = compressed or 6 })
        end
        local function dot(b, p, q)
          return by == "a product" and product(b, p, q) or b:Sum(b:Mul { p, q })
        end
        local loss = net:If(c, function(b) return dot(b, part(b, b:Mul { x, w }), y) end,
          function(b) return dot(b, y, part(b, b:Mul { b:Tanh(x), v })) end)
        for p, g in pairs(net:gradient(loss)) do net:Sgd({ p, g, lr }, { p }) end
        net:outputs { net:Copy(loss, "loss") }
        return net
      end
      local net = train(true)
      for round = 1, 6 do
        local ws <close> = dynamic()
        local w, v = 1, 1
        for step = 1, 8 do
          local n, on = (round * step * step) % 6 + 1, (round + step) % 3 ~= 0
          local f = feeds(n, on)
          f.lr, f.d = core.tensor(0.125), nil
          local part = (on and f.x or f.x:tanh()):compress(f.m)
          local slope = (part * f.y):sum():item()
          local out = ws:run(net, f)
          assert.is_true(math.abs(out.loss:item() - slope * (on and w or v)) < 1e-4)
          if on then w = w - 0.125 * slope else v = v - 0.125 * slope end
          assert.is_true(math.abs(ws:fetch("w"):item() - w) < 1e-4)
          assert.is_true(math.abs(ws:fetch("v"):item() - v) < 1e-4)
        end
      end
    end)
  end

  it("take no memory where the branch isn't taken, and under a hard limit are refused or not \z
      whatever ran before", function()
    local net = neap.net "limited"
    local x, m = net:input("x", { 64 }), net:input("m", { 64 }, "bool")
    local y, c = net:input("y", { 64 }), net:input("c", {}, "bool")
    local z = net:If(c, function(b)
      local some = b:Tanh(b:Add { b:Compress { x, m }, y })
      return b:Sum(
        b:Exp(b:Concat({ some, some, some, some, some, some, some, some }, nil, { axis = 1 })))
    end, function(b) return b:Sum(b:Relu(y)) end)
    net:outputs { net:Copy(z, "z") }
    local function given(n, on)
      neap.seed(n)
      return { x = neap.rand(64), m = first(n, 64), y = neap.rand(n), c = truth(on) }
    end
    local cases = { { 4, true }, { 40, true }, { 64, true }, { 8, false }, { 64, false } }
    local n_refused, n_met, n_order = 0, 0, 0
    for budget = 1024, 6144, 1024 do
      local want = {}
      for k, case in ipairs(cases) do
        local ws <close> = dynamic { budget = budget }
        local ok, out = pcall(ws.run, ws, net, given(case[1], case[2]))
        want[k] = ok and bits(out) or out.code
      end
      local ws <close> = dynamic { budget = budget }
      each_order({ 1, 2, 3, 4, 5 }, function(order)
        n_order = n_order + 1
        if n_order % 13 ~= 0 then return end
        for _, k in ipairs(order) do
          local ok, out = pcall(ws.run, ws, net, given(cases[k][1], cases[k][2]))
          assert.are.equal(want[k], ok and bits(out) or out.code)
          n_refused, n_met = n_refused + (ok and 0 or 1), n_met + (ok and 1 or 0)
        end
      end)
    end
    assert.is_true(n_refused > 10 and n_met > 10)
  end)

  for _, persist in ipairs { false, true } do
    it("outlive refused memory" .. (persist and ", and all after it" or ""), function()
      local net = neap.net "refused"
      local x, m, y, c = inputs(net)
      net:param("w", {}, neap.init.ones)
      local z = net:If(c, function(b) return product(b, b:Compress { b:Mul { x, "w" }, m }, y) end,
        function(b) return product(b, b:Compress { x, m }, b:Mul { y, "w" }) end)
      for p, g in pairs(net:gradient(z)) do net:Sgd({ p, g, net:const(0) }, { p }) end
      net:outputs { net:Copy(z, "z") }
      local before, other = feeds(2, true), feeds(4, false)
      before.d, other.d = nil, nil
      local fresh <close> = dynamic()
      local want = bits(fresh:run(net, other))
      support.refuse_in_turn(61, persist, function(refused)
        local ws <close> = dynamic()
        local had = bits(ws:run(net, before))
        if not refused(ws.run, ws, net, other) then
          assert.are.equal(had, bits(ws:run(net, before)))
        end
        assert.are.equal(want, bits(ws:run(net, other)))
      end)
    end)
  end
end)
