--- A budget reaches the bodies of loops and the branches of an If: what an iteration or a branch
-- keeps for its backward is recomputed there where nothing beside it would do.
local neap = require "neap"
local support = require "support"

--- Some ops of one input's shape whose gradients read what they make.
local function mix(h, x, dropout)
  local s = h + x
  local u, v = s:sigmoid(), s:tanh()
  local q = u * v
  if dropout then q = q:dropout { rate = 0.25 } end
  local r = (q + u):sigmoid()
  return (r * q + v):tanh()
end

local function train(net, loss)
  for parameter, gradient in pairs(net:gradient(loss)) do
    net:op("Sgd", { parameter, gradient, net:const(0.1) }, { parameter })
  end
  return net:outputs { loss }
end

--- A Recurrent over rows of x; `dropout` draws numbers in its body.
local function recurrent(dropout)
  local net = neap.net "recurrent"
  net:input("x", { 24, 8, 32 })
  net:param("w", { 32, 32 }, { "Xavier" })
  net:param("h0", { 8, 32 }, { "Xavier" })
  local h = net:Recurrent { seq = { "x" }, init = { "h0" }, step = function(b, h, x)
    return mix(b:FC { h, "w" }, x, dropout)
  end }
  return train(net, (h * h):mean())
end

--- A While with a maximum, whose body is the same.
local function bounded()
  local net = neap.net "bounded"
  net:input("x", { 8, 32 })
  net:param("w", { 32, 32 }, { "Xavier" })
  local i, h = net:While { init = { net:const(0), net:blob "x" }, max = 24,
    cond = function(_, i) return i:lt(20) end,
    body = function(b, i, h) return i + 1, mix(b:FC { h, "w" }, h) end }
  net:Copy(i, "n")
  return train(net, (h * h):mean())
end

--- An If whose branch is long: n products, one after the other.
local function choice(n)
  local net = neap.net "choice"
  net:input("x", { 64, 32 })
  net:input("c", {}, "bool")
  for k = 1, n do net:param("w" .. k, { 32, 32 }, { "Xavier" }) end
  local h = net:If("c", function(sub)
    local h = sub:Copy "x"
    for k = 1, n do h = sub:FC { h, "w" .. k }:tanh():sigmoid() end
    return h
  end, function(sub) return sub:Tanh "x" end)
  return train(net, (h * h):mean())
end

--- A state that goes over rows of x, and whose iterations do the same one level deeper: `kinds`
-- says what stands at each level, from outside in.
local function deep(kinds, dropout)
  return function()
    local net, shape = neap.net "deep", { 8, 32 }
    if table.concat(kinds):find "If" then net:input("c", {}, "bool") end
    net:param("w", { 32, 32 }, { "Xavier" })
    net:param("h0", { 8, 32 }, { "Xavier" })
    for level, kind in ipairs(kinds) do
      if kind == "Recurrent" then table.insert(shape, 1, 3 + level) end
    end
    net:input("x", shape)
    local at
    local function step(b, level, h, x)
      local inner = kinds[level + 1] and at(b, level + 1, x, h) or b:FC { h, "w" }
      return mix(inner, h, dropout)
    end
    function at(b, level, x, h)
      if kinds[level] == "Recurrent" then
        return b:Recurrent { seq = { x }, init = { h },
          step = function(s, state, row) return step(s, level, state, row) end }
      elseif kinds[level] == "If" then
        return b:If("c", function(s) return step(s, level, h, x) end,
          function(s) return s:Tanh(h) end)
      end
      local _, out = b:While { init = { b:const(0), h }, max = 5,
        cond = function(_, i) return i:lt(4) end,
        body = function(s, i, state) return i + 1, step(s, level, state, x) end }
      return out
    end
    local h = at(net, 1, net:blob "x", net:blob "h0")
    return train(net, (h * h):mean())
  end
end

--- Loops over rows of x, one behind the other. A body is the ops of a word in turn, the first one
-- of the state: "m" a product with a wide matrix, "t" tanh, "n" the product back; "+" and "*" with
-- the row, "s" times the state. What they make has the names "1a", "1b" and so on. `again`: names
-- of what the loops are told to recompute.
local function words(bodies, again)
  local net, D, wide = neap.net "words", 32, 96
  net:input("u", { D, wide })
  net:input("v", { wide, D })
  local losses, names = {}, {}
  for k, body in ipairs(bodies) do
    net:input("x" .. k, { 3, 16, D })
    net:input("h" .. k, { 16, D })
    local marked = {}
    local function step(b, h, x)
      local at = h
      for i = 1, #body do
        local op, name = body:sub(i, i), k .. string.char(96 + i)
        if op == "m" then at = b:MatMul({ at, "u" }, name)
        elseif op == "t" then at = b:Tanh(at, name)
        elseif op == "n" then at = b:MatMul({ at, "v" }, name)
        elseif op == "+" then at = b:Add({ at, x }, name)
        elseif op == "*" then at = b:Mul({ at, x }, name)
        else at = b:Mul({ at, h }, name) end
        table.insert(names, name)
        if again[name] then table.insert(marked, name) end
      end
      return at, at
    end
    local _, all = net:Recurrent { seq = { "x" .. k }, init = { "h" .. k }, step = step,
      recompute = #marked > 0 and marked or nil }
    table.insert(losses, net:Sum(all * all))
  end
  local loss = #losses == 2 and losses[1] + losses[2] or losses[1]
  local wrt = {}
  for k = 1, #bodies do
    table.insert(wrt, "x" .. k)
    table.insert(wrt, "h" .. k)
  end
  net:gradient(loss, { wrt = wrt, allow_unused = true })
  net:outputs { loss }
  return net, names
end

local function check(make, share, may_be_loose)
  local free = make():plan { store = false }
  local budget = math.floor(share * free.arena_bytes)
  local plan = make():plan { budget = budget, store = false }
  assert.is_true(plan.arena_bytes <= budget)
  assert.is_true(plan.n_recomputed > 0)
  if not may_be_loose then assert.are.equal(plan.lower_bound_bytes, plan.arena_bytes) end
  local r = neap.check.plan(make(), { train = true, budget = budget, poison = true, steps = 3 })
  assert.is_true(r.same, r.different)
  assert.are.equal(r.forecast_bytes, r.held_bytes)
  assert.are.equal(0, r.allocations)
end

describe("a budget in bodies", function()
  it("takes what a Recurrent keeps out of its frames, to the same bits", function()
    check(recurrent, 0.6)
  end)

  it("draws the masks of the first run where a body has a Dropout", function()
    check(function() return recurrent(true) end, 0.6)
  end)

  it("does the same in a While with a maximum", function() check(bounded, 0.6) end)

  it("recomputes within the branch of an If", function()
    check(function() return choice(12) end, 0.8)
  end)

  for _, kinds in ipairs {
    { "Recurrent", "Recurrent" },
    { "Recurrent", "Recurrent", "Recurrent" },
    { "Recurrent", "While", "Recurrent", "Recurrent" },
    { "While", "Recurrent", "If" },
    { "If", "Recurrent", "Recurrent" },
    { "Recurrent", "If", "Recurrent" },
    { "If", "While", "If", "Recurrent" },
  } do
    local words = table.concat(kinds, " of ")
    it("reaches the innermost body of a " .. words, function()
      check(deep(kinds, true), 0.7, true)
    end)
  end

  it("asks for no more work than the budget needs", function()
    local free = recurrent():plan { store = false }
    assert.are.equal(0, free.n_recomputed)
    local last = math.huge
    for percent = 100, 20, -10 do
      local ok, plan = pcall(function()
        return recurrent():plan { budget = free.arena_bytes * percent // 100, store = false }
      end)
      if not ok then break end
      assert.is_true(plan.arena_bytes <= last)
      last = plan.arena_bytes
    end
    assert.is_true(last <= 0.6 * free.arena_bytes)
  end)

  it("names a least that is met", function()
    for _, make in ipairs { recurrent, bounded } do
      local ok, refused = pcall(function() return make():plan { budget = 4096, store = false } end)
      assert.is_false(ok)
      local plan = make():plan { budget = refused.least_bytes, store = false }
      assert.is_true(plan.arena_bytes <= refused.least_bytes)
    end
  end)

  -- A product that is kept in place of its tanh, a state that is kept for it, a state that need not
  -- be; of two loops each has its own.
  for _, bodies in ipairs { { "mtn+*" }, { "+mtns" }, { "mtnmtn" }, { "*+s" }, { "*t", "mtn" } } do
    local said = table.concat(bodies, " then ")
    it("goes as low as any recompute = of a loop does: " .. said, function()
      local free, names = words(bodies, {})
      local arena = free:plan({ store = false }).arena_bytes
      local ok, refused = pcall(free.plan, free, { budget = 1, store = false })
      assert.is_false(ok)
      for set = 1, (1 << #names) - 1 do
        local again = {}
        for i, name in ipairs(names) do again[name] = set & (1 << (i - 1)) ~= 0 end
        local told = words(bodies, again):plan({ store = false }).arena_bytes
        assert.is_true(refused.least_bytes <= told)
      end
      -- All from there on is met, less with less.
      local last = 0
      for part = 0, 16 do
        local budget = refused.least_bytes + (arena - refused.least_bytes) * part // 16
        local got = words(bodies, {}):plan({ budget = budget, store = false }).arena_bytes
        assert.is_true(got <= budget and got >= last)
        last = got
      end
      assert.are.equal(arena, last)
      local r = neap.check.plan(words(bodies, {}),
        { train = true, budget = refused.least_bytes, poison = true, steps = 2 })
      assert.is_true(r.same, r.different)
    end)
  end

  it("is stored and read back", function()
    local base = os.tmpname()
    local script <close> = assert(io.open(base, "w"))
    script:write [[
      local neap = require "neap"
      local net = neap.net "stored"
      net:input("x", { 24, 8, 32 })
      net:param("h0", { 8, 32 }, { "Xavier" })
      local h = net:Recurrent { seq = { "x" }, init = { "h0" }, step = function(_, h, x)
        local u = (h + x):sigmoid()
        return (u * x):tanh()
      end }
      net:gradient((h * h):mean())
      local free = net:plan { store = false }
      local plan = net:plan { budget = free.arena_bytes * 7 // 10 }
      print(plan.n_recomputed, plan.arena_bytes, plan.hit)
    ]]
    script:flush()
    local run = ("NEAP_CACHE=all NEAP_DB=%s.db %s run %s 2>&1"):format(base, support.program, base)
    local first, again = support.shell(run), support.shell(run)
    assert.has_match("^[1-9]%d*\t%d+\tfalse\n$", first)
    assert.equal(first:gsub("false", "true"), again)
    support.shell(("rm -f %s %s.db*"):format(base, base))
  end)
end)
