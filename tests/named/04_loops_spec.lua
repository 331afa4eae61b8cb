-- Loop, nets with loops, several conditions and stop_if.
local neap = require "neap"
local support = require "support"
local run = support.run
local kit = require "control_kit"
local schedules, memories = kit.schedules, kit.memories

describe("a second gradient through a loop", function()
  it("is refused by the loop's name, with what to do", function()
    local net = neap.net "twice"
    net:param("a", { 2 }, 0.5)
    net:param("b", { 2 }, 0.25)
    local y = net:Loop { trip = 2, init = { net:blob "b" * 2 }, body = function(n, _, h)
      return true, (h * n:blob "a"):tanh()
    end }
    net:gradient(net:Sum(y), { wrt = { "a" } })
    local ok, err = pcall(function()
      net:gradient(net:Sum(y * y), { wrt = { "b" } })
      net:plan { store = false }
    end)
    assert.is_false(ok)
    for _, words in ipairs { "While", "another gradient", "sum of the losses" } do
      assert.is_truthy(tostring(err):find(words, 1, true), tostring(err))
    end
  end)
end)

describe("Loop", function()
  --- Fibonacci as ONNX's Loop: until the number exceeds 100 or the trip count is reached.
  local function fibonacci()
    local net = neap.net "fibonacci"
    net:input("trip", {}, "i64")
    local one = net:const(1, "i64")
    local a, b, all, n = net:Loop { trip = "trip", max = 100, init = { one, one },
      body = function(_, _, a, b) return b:le(100), b, a + b, a end }
    net:outputs { a, b, all, n }
    return net, a, b, all, n
  end

  it("computes Fibonacci numbers until one is over 100, for any trip \z
      count from 0 to 100", function()
    local net, a, b, all, n = fibonacci()
    for _, memory in ipairs(schedules) do
      local ws <close> = neap.workspace { store = false }
      ws:init(net)
      local program <close> = ws:compile(net, memory)
      for trip = 0, 100, 7 do
        local x, y, list, count = 1, 1, {}, 0
        while count < trip do
          list[#list + 1] = x
          local go = y <= 100
          x, y, count = y, x + y, count + 1
          if not go then break end
        end
        ws:feed("trip", neap.tensor(trip, "i64"))
        program:run()
        assert.are.equal(x, ws:fetch(a.name):item())
        assert.are.equal(y, ws:fetch(b.name):item())
        assert.are.equal(count, ws:fetch(n.name):item())
        local rows = ws:fetch(all.name):totable()
        for i = 1, 100 do assert.are.equal(list[i] or 0, rows[i]) end
      end
    end
  end)

  it("takes a number of trips, also 0, and an initial condition", function()
    for trip, expected in pairs { [0] = 0, [1] = 1, [4] = 4 } do
      local net = neap.net "f"
      local x, n = net:Loop {
        trip = trip, init = { net:const(0) }, body = function(_, _, x) return true, x + 1 end,
      }
      net:outputs { x, n }
      local r = run(net)
      assert.are.equal(expected, r[x.name]:item())
      assert.are.equal(expected, r[n.name]:item())
    end
    local net = neap.net "f"
    net:input("go", {})
    local x = net:Loop {
      trip = 3,
      cond = net:blob("go"):ne(0),
      init = { net:const(0) },
      body = function(_, i, x) return true, x + i:to "f32" end,
    }
    net:outputs { x }
    assert.are.equal(3, run(net, { go = 1 })[x.name]:item())
    assert.are.equal(0, run(net, { go = 0 })[x.name]:item())
  end)

  it("has a gradient through its states and stacked rows", function()
    local net = neap.net "f"
    net:input("x", { 2 })
    local y, rows = net:Loop {
      trip = 3, init = { "x" }, body = function(_, _, x) return true, x * x, x end,
    }
    net:Add({ net:Sum(y), net:Sum(rows) }, "loss")
    net:gradient("loss", { wrt = { "x" } })
    net:outputs { "x_grad" }
    for _, memory in ipairs(memories) do
      local g = run(net, { x = { 1, 2 } }, memory).x_grad:totable()
      -- x + x^2 + x^4 + x^8
      assert.are.same({ 1 + 2 + 4 + 8, 1 + 4 + 32 + 8 * 128 }, g)
    end
  end)
end)

describe("a net with loops", function()
  local function build()
    local net = neap.net "all"
    net:input("x", { 3, 2 })
    net:param("w", { 2 }, 0.5)
    local h = net:scope("block", function()
      local _, y = net:While {
        init = { net:const(0), net:Sum("x", nil, { axes = { 1 } }) },
        max = 4,
        cond = function(_, i) return i:lt(3) end,
        body = function(b, i, x) return i + 1, b:Tanh(x * net:blob "w") end,
      }
      return y
    end)
    local last, all = net:Recurrent {
      seq = { "x" },
      init = { h },
      step = function(b, s, x) local n = b:Tanh(s * net:blob "w" + x) return n, n end,
    }
    net:Add({ net:Sum(last), net:Sum(all) }, "loss")
    net:gradient "loss"
    net:outputs { "loss", "w_grad" }
    return net
  end

  it("survives text, clone and rename with the same hash and the same bits", function()
    local net = build()
    local again, clone = neap.net_from(net:text()), net:clone()
    assert.are.equal(net:text(), again:text())
    assert.are.equal(net:hash(), again:hash())
    assert.are.equal(net:hash(), clone:hash())
    local feeds = { x = neap.rand { 3, 2 } }
    local a = run(net, feeds)
    for _, other in ipairs { again, clone } do
      local b = run(other, feeds)
      assert.is_true(a.loss:equal(b.loss) and a.w_grad:equal(b.w_grad))
    end
    local renamed = net:rename { w = "weight", x = "features", w_grad = "slope" }
    assert.are.equal(net:hash(), renamed:hash())
    assert.is_true(a.w_grad:equal(run(renamed, { features = feeds.x }).slope))
  end)

  it("has summary, forecast, explanation, peak and a drawing", function()
    local net = build()
    local plan = net:plan {}
    local reports = {
      net:summary {}, net:forecast {}, plan:explain(), plan:peak(), net:graph_text(),
    }
    for _, text in ipairs { net:dot(), table.unpack(reports) } do
      text = tostring(text)
      assert.is_true(#text > 40)
    end
    assert.is_truthy(net:dot():find("While", 1, true))
    assert.is_truthy(net:graph_text():find("LoopGradient", 1, true))
  end)

  it("has one row in the database, however often it is planned", function()
    local path = os.tmpname()
    local feeds, first = { x = neap.rand { 3, 2 } }, nil
    local db <close> = neap.db(path)
    local _ <close> = setmetatable({}, { __close = function() neap.use_db(false) end })
    neap.use_db(db)
    for _ = 1, 2 do
      local ws <close> = neap.workspace {}
      local r = ws:run(build(), feeds)
      first = first or r.w_grad
      assert.is_true(first:equal(r.w_grad))
    end
    assert.are.equal(1, db:rows("select count(*) as n from plan")().n)
    assert.are.equal(2, db:rows("select count(*) as n from run")().n)
    os.remove(path)
  end)
end)

describe("several conditions", function()
  local neap = require "neap"
  local raises = require("support").raises
  local function value(build, x)
    local net = neap.net "cases"
    net:input("x", { 1 })
    for i, limit in ipairs { 0, 10, 100 } do net:Lt({ "x", net:const(limit) }, "c" .. i) end
    net:outputs { build(net) }
    local ws <close> = neap.workspace { store = false }
    return select(2, next(ws:run(net, { x = neap.tensor { x } }))):item()
  end
  local function add(n)
    return function(b) return b:Add { "x", b:const(n) } end
  end
  local want = { [-5] = -5 + 1, [5] = 5 + 2, [50] = 50 + 3, [500] = 500 + 4 }
  local forms = {
    ["as a list"] = function(net)
      return (net:If { { "c1", add(1) }, { "c2", add(2) }, { "c3", add(3) }, add(4) })
    end,
    ["by Elif"] = function(net)
      return (net:If("c1", add(1), net:Elif("c2", add(2), net:Elif("c3", add(3), add(4)))))
    end,
    ["built where they are looked at"] = function(net)
      local function below(n)
        return function(b) return b:Lt { "x", b:const(n) } end
      end
      return (net:If {
        { below(0), add(1) }, { below(10), add(2) }, { below(100), add(3) }, add(4),
      })
    end,
    ["of AsyncIf"] = function(net)
      return (net:AsyncIf { { "c1", add(1) }, { "c2", add(2) }, { "c3", add(3) }, add(4) })
    end,
    ["that write by name"] = function(net)
      net:Copy("x", "y")
      local function write(n)
        return function(b) b:Add({ "x", b:const(n) }, "y") end
      end
      net:If { { "c1", write(1) }, { "c2", write(2) }, { "c3", write(3) }, write(4) }
      return "y"
    end,
  }
  for name, build in pairs(forms) do
    it(name .. " take the first that holds", function()
      for x, y in pairs(want) do assert.are.equal(y, value(build, x), x) end
    end)
  end

  it("without a last branch leave what they would write", function()
    local function build(net)
      net:Copy("x", "y")
      net:If {
        { "c1", function(b) b:Neg("x", "y") end }, { "c2", function(b) b:Square("x", "y") end },
      }
      return "y"
    end
    assert.are.equal(5, value(build, -5))
    assert.are.equal(25, value(build, 5))
    assert.are.equal(50, value(build, 50))
  end)

  it("have gradients through the branch that was taken", function()
    local net = neap.net "trained"
    net:input("x", { 1 })
    net:param("w", { 1 }, 3)
    local function times(n)
      return function(b) return b:Mul { b:Mul { "w", "x" }, b:const(n) } end
    end
    local y = net:If {
      { net:Lt { "x", net:const(0) }, times(1) },
      { net:Lt { "x", net:const(10) }, times(2) },
      times(3),
    }
    net:gradient(net:Sum(y))
    local ws <close> = neap.workspace { store = false }
    for x, dw in pairs { [-5] = -5, [5] = 10, [50] = 150 } do
      ws:run(net, { x = neap.tensor { x } })
      assert.are.equal(dw, ws:fetch("w_grad"):item())
    end
  end)

  it("say what a list expects", function()
    local net = neap.net "wrong"
    net:input("c", { 1 })
    raises("expects { condition, function }", net.If, net, { { "c" } })
    raises("expects { condition, function }", net.If, net, { "c" })
    raises("must be the last", net.If, net, {
      { "c", function() end }, function() end, { "c", function() end },
    })
    raises("one list of", net.If, net, { { "c", function() end } }, function() end)
    raises("net:Elif expects", net.Elif, net, "c")
    assert.are.equal(0, #net:_ops())
  end)
end)

describe("stop_if", function()
  local neap = require "neap"
  local raises = require("support").raises
  local function doubled(limit, stop_if, max, train)
    local net = neap.net "stop"
    net:input("x", { 1 })
    net:param("w", { 1 }, 2)
    local y, rows = net:While { init = { "x" }, max = max, stop_if = stop_if,
      cond = function(b, x) return b:Lt { x, b:const(limit) } end,
      body = function(b, x)
        local n = b:Mul { x, "w" }
        return n, n
      end }
    if train then net:gradient(net:Sum(y)) end
    net:outputs { y, rows }
    return net, y.name, rows.name
  end
  local function above(n)
    return function(b, x) return b:Gt { x, b:const(n) } end
  end

  it("leaves a loop after the iteration in which it holds, before the condition does", function()
    for _, executor in ipairs { "simple", "dag" } do
      for _, case in ipairs {
        { 1000, above(20), 32, 5 }, { 10, above(20), 16, 4 }, { 1000, above(0), 2, 1 },
        { 1, above(20), 1, 0 },
      } do
        local net, y, rows = doubled(case[1], case[2], 12)
        local ws <close> = neap.workspace { store = false, executor = executor }
        local out = ws:run(net, { x = neap.tensor { 1 } })
        assert.are.equal(case[3], out[y]:item())
        local n = 0
        for i = 1, 12 do n = n + (out[rows][{ i, 1 }] ~= 0 and 1 or 0) end
        assert.are.equal(case[4], n)
      end
    end
  end)

  it("takes any number as a condition, and blobs written by name", function()
    local net = neap.net "named"
    net:input("x", { 1 })
    net:Copy("x", "total")
    local function positive(b) return b:Clamp("total", nil, { min = 0, max = 1 }) end
    local k = net:While {
      init = { net:const(0) }, cond = function(b) return b:const(1) end, stop_if = positive,
      body = function(b, k)
        b:Add({ "total", b:const(1) }, "total")
        return k + 1
      end,
    }
    net:outputs { k, "total" }
    local ws <close> = neap.workspace { store = false }
    local out = ws:run(net, { x = neap.tensor { -3 } })
    assert.are.equal(4, out[k.name]:item())
    assert.are.equal(1, out.total:item())
  end)

  it("lets the gradient go through the iterations that ran", function()
    local net = doubled(1000, above(20), 12, true)
    local ws <close> = neap.workspace { store = false }
    ws:run(net, { x = neap.tensor { 1 } })
    assert.are.equal(5 * 2 ^ 4, ws:fetch("w_grad"):item())
  end)

  it("says what it expects", function()
    raises("stop_if must be a function", doubled, 10, "done")
    raises("stop_if returns a blob", doubled, 10, function() return 3 end)
  end)
end)

describe("a net with loops, written out", function()
  it("keeps states apart that begin as one blob", function()
    local net = neap.net "twins"
    local x = net:input("x", { 3 })
    local a, b = net:Loop { trip = 3, init = { x, x },
      body = function(n, _, a, b) return true, n:Tanh(b), n:Add { a, b } end }
    net:outputs { net:Sub({ a, b }, "y") }
    local feeds = { x = neap.tensor { 0.1, -0.2, 0.3 } }
    local function difference(of)
      local ws <close> = neap.workspace { store = false }
      return ws:run(of, feeds).y
    end
    local whole = difference(net)
    assert.is_true(whole:equal(difference(net:expand {})))
    assert.is_false(whole:equal(neap.zeros(3)))
  end)
end)
