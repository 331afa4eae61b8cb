-- A call that fails leaves nothing behind: what it was about is as it was, and the next right call
-- does what it would have done.
local neap = require "neap"
local support = require "support"
local raises = support.raises
local fail_nth, failed = require("neap.core").fail_nth, require("neap.core").failed
local nn, optim = neap.nn, neap.optim
local kit = require "failed_kit"
local blobs_text = kit.blobs_text

--- A net with an input and a parameter, the same each time.
local function start()
  local net = neap.net "f"
  net:input("c", {})
  return net, net:input("x", { 2, 3 }), net:param("w", { 4, 3 }, 0.5)
end

--- What can be seen of a net: text, outputs, and how the next names go.
local function seen(net)
  return net:text { lines = false } .. table.concat(net:outputs(), ",") .. net:_version()
end

describe("a net", function()
  --- What fails in a net, each more than one change deep.
  local bad = {
    ["an op of wrong shapes"] = function(net) net:FC({ "x", "w", "w" }, "y") end,
    ["an op of a wrong attribute"] = function(net) net:Softmax("x", "y", { axis = 7 }) end,
    ["a blob method beside a number"] = function(_, x) return x + neap.ones(5) end,
    ["numbers that became constants"] = function(_, x)
      return neap.where(neap.ones(2, 3):gt(0.25), x, neap.ones(5))
    end,
    ["a key of several ops"] = function(_, x) return x[{ 1, 9 }] end,
    ["a position of a dimension that is not there"] = function(_, x) return x:select(3, 1) end,
    ["outputs by number"] = function(net) net:op("Split", { "x" }, 5, { axis = 1 }) end,
    ["an If whose branch fails"] = function(net)
      net:If("c", function(b) b:Relu("x", "z") end, function(b) b:Relu("none", "z") end)
    end,
    ["an If whose branches differ"] = function(net)
      net:If("c", function(b) return b:Relu "x" end, function(b) return b:FC { "x", "w" } end)
    end,
    ["a branch of an If in a body"] = function(net)
      net:While { init = { 0 }, cond = function(_, i) return i:lt(3) end, body = function(b, i)
        b:If(i:lt(1), function(c) c:Relu("x", "z") end, function() error "no" end)
        return i + 1
      end }
    end,
    ["a While whose states change shape"] = function(net)
      net:While {
        init = { "x" },
        cond = function(_, x) return x:sum():lt(3) end,
        body = function(_, x) return x:reshape(3, 2) end,
      }
    end,
    ["a Recurrent without its states"] = function(net)
      net:Recurrent {
        seq = { "x" }, init = { 0 }, lengths = "w", step = function(_, h, x) return h + x, h end,
      }
    end,
    ["a Do whose body fails"] = function(net)
      net:CreateScope({}, "s")
      net:Do {
        bindings = { a = "x" },
        scope = "s",
        body = function(d) d:Relu("a", "b") d:Relu("none", "c") end,
      }
    end,
    ["a Gradient of what is no scalar"] = function(net, x) net:gradient(x, { wrt = { "w" } }) end,
    ["a Gradient of what nothing depends on"] = function(net)
      net:gradient("c", { wrt = { "w" } })
    end,
    ["a scope whose function fails"] = function(net)
      net:scope("a", function() net:Relu("x", "y") net:Relu "none" end)
    end,
    ["a variable scope whose function fails"] = function(net)
      net:variable_scope("a", {}, function() net:param("p", { 2 }, 0) net:Relu "none" end)
    end,
    ["shared scopes whose function fails"] = function(net)
      net:parameter_sharing({ b = "a" }, function()
        net:scope("b", function() net:param("p", { 2 }, 0) net:Relu "none" end)
      end)
    end,
    ["an Elif whose branch fails"] = function(net)
      net:If("c", function(b) return b:Relu "x" end,
        net:Elif("c", function(b) return b:Copy "x" end, function(b) return b:Relu "none" end))
    end,
    ["a declaration of another shape"] = function(net) net:param("w", { 3, 3 }) end,
    ["outputs that are not there"] = function(net) net:outputs { "x", "none" } end,
    ["keeps of which one is not there"] = function(net) net:keep("w", "none") end,
  }

  --- Right uses after it, whose names, ops and outputs must be those of a net that nothing failed
  -- in.
  local function go_on(net, x)
    local y = net:FC { "x", "w" }
    local z = net:If((x * 2):sum():gt(1), function(b) return b:Relu(y) end,
      function(b) return b:Copy(y) end)
    net:While {
      init = { 0 },
      cond = function(_, i) return i:lt(3) end,
      body = function(_, i) return i + 1 end,
    }
    net:CreateScope({}, "s")
    net:Do { bindings = { a = "x" }, scope = "s", body = function(d) return d:Relu "a" end }
    net:variable_scope("a", {}, function() net:param("p", { 2 }, 0) end)
    net:gradient(z:sum() + x[{ 1, 2 }] + 0.25)
    return net:text { lines = false } .. net:hash() .. table.concat(net:outputs(), ",")
  end

  local names = {}
  for name in pairs(bad) do names[#names + 1] = name end
  table.sort(names)
  local want = go_on(start())
  for _, name in ipairs(names) do
    it("is as it was after " .. name, function()
      local net, x, w = start()
      local before = seen(net)
      for _ = 1, 2 do
        local run = name == "a Do whose body fails"
          and function() net:scope("in", function() bad[name](net, x, w) end) end
          or bad[name]
        assert.is_false((pcall(run, net, x, w)))
        assert.are.equal(before, seen(net))
      end
      assert.are.equal(want, go_on(net, x))
    end)
  end

  it("goes back no further than the call that failed", function()
    local net, x = start()
    net:scope("a", function()
      net:Relu("x", "y")
      assert.is_false((pcall(net.If, net, x:sum():gt(1), function(b) b:Relu("a/y", "z") end,
        function() error "no" end)))
      net:Relu("y", "z")
    end)
    assert.are.equal("a/z", net:outputs()[#net:outputs()])
  end)

  it("refuses ops in a subnet that was given up", function()
    local net, x = start()
    local held
    pcall(net.If, net, x:sum():gt(1), function(b)
      held = b
      b:Relu("x", "z")
      error "no"
    end)
    raises("given up", function() held:Relu("x", "y") end)
    raises("given up", function() held:input("y", { 2 }) end)
    assert.are.equal("branch.then", held:name())
  end)

  it("read from a text is right, or is not made", function()
    raises("can't become", neap.net_from,
      "net f\ninput x f32 (2,3)\ny = Reshape(x) { shape = {7} }\n")
  end)
end)

describe("a module", function()
  local function make()
    return nn.Sequential { seed = 3, nn.Linear { 4 }, nn.ReLU(), nn.Linear { 2 } }
  end
  local x = neap.tensor { { 1, -2, 3 }, { 0.5, 0.25, -1 } }
  --- The numbers of a right call, gradients included.
  local function use(m)
    local y = m(x)
    return y:hash() .. m:backward(x, neap.ones(2, 2)):hash()
      .. m:param("linear1.weight").grad:hash() .. tostring(m)
  end

  local function shapes(m)
    local list = {}
    for name, p in m:parameters() do list[#list + 1] = name .. table.concat(p.shape, ",") end
    return table.concat(list, " ")
  end

  it("learns no width of what its forward fails on", function()
    local m = nn.Sequential {
      seed = 3,
      nn.Linear { 4 }, nn.Lambda { function(y) return y:reshape(-1, 5) end }, nn.Linear { 2 },
    }
    assert.is_false((pcall(m, neap.ones(2, 7))))
    assert.is_false((pcall(m.net, m, { input = { 9 }, batch = 2 })))
    assert.is_false((pcall(m.backward, m, neap.ones(2, 6), neap.ones(2, 2))))
    assert.are.equal(0, #m:workspace():_blobs())
    m(neap.ones(5, 3))
    assert.are.equal("linear1.weight4,3 linear1.bias4 linear2.weight2,5 linear2.bias2", shapes(m))
  end)

  it("learns no width of what fails when it runs", function()
    local function with(index)
      local m = nn.Sequential { seed = 3, nn.Embedding { 4, 3 }, nn.Linear { 2 } }
      if index then raises("out of range", m, neap.tensor({ index }, "i64")) end
      return m(neap.tensor({ 1 }, "i64")):hash()
    end
    assert.are.equal(with(), with(9))
  end)

  it("is built by a coroutine apart from those of others, and with the coroutines that \z
      its forward resumes", function()
    local inner = nn.Linear { 3, 2 }
    local m = nn.Sequential { seed = 3, nn.Lambda { function(y)
      coroutine.yield "waits"
      return coroutine.wrap(function() return inner(y) end)()
    end } }
    local waiting = coroutine.wrap(function() return m(x) end)
    assert.are.equal("waits", waiting())
    assert.are.same({ 2, 4 }, nn.Linear { 3, 4 }(x).shape)
    assert.are.same({ 2, 2 }, waiting().shape)
  end)

  -- A call notes the modules it may have to put back: when its own end fails, and when it never
  -- ends, the notes go with it.
  it("is let go of after a step whose metric can't be read, and when a call of it \z
      is never resumed", function()
    local seen = setmetatable({}, { __mode = "v" })
    local function model()
      seen[#seen + 1] = nn.Sequential { input = { 3 }, nn.Linear { 3, 2 } }
      return seen[#seen]
    end
    local batch = { x = neap.ones(4, 3), y = neap.tensor({ 0, 1, 0, 1 }, "i64") }
    local t = neap.trainer {
      model = model(), metrics = { all = function(y) return y end },
      optimizer = optim.SGD { lr = 0.1 },
      memory = { store = false },
    }
    raises("one element", t.step, t, batch)
    local waiting = coroutine.wrap(function(m)
      m:on("*", "forward", function() coroutine.yield() end)
      m(batch.x)
    end)
    waiting(model())
    t, waiting = nil, nil -- luacheck: ignore 311
    model():state_dict()
    support.settle()
    assert.are.same({}, seen)
  end)

  it("keeps no layer that only a failed forward met", function()
    local inner, fails = nn.Linear { 3, 4 }, true
    local m = nn.Sequential { seed = 3, nn.Lambda { function(y)
      y = inner(y)
      if fails then error "no" end
      return y
    end } }
    raises("no", m, x)
    assert.are.equal("", shapes(m))
    fails = false
    m(x)
    assert.are.equal("lambda1.@linear1.weight4,3 lambda1.@linear1.bias4", shapes(m))
  end)

  local bad = {
    ["another width"] = function(m) m(neap.ones(2, 5)) end,
    ["a dtype that the layer does not take"] = function(m)
      m(neap.ones({ 2, 3, dtype = "i64" }))
    end,
    ["a gradient of another shape"] = function(m) m:backward(x, neap.ones(2, 3)) end,
    ["parameters that are not its own"] = function(m) m:load_state_dict { nothing = x } end,
    ["parameters of another shape"] = function(m)
      local t = m:state_dict()
      t["linear2.bias"] = neap.ones(7)
      m:load_state_dict(t)
    end,
    ["a dtype that parameters can't be"] = function(m) m:to "i8" end,
    ["a tie of different shapes"] = function(m) m:tie("linear1.weight", "linear2.weight") end,
    ["a name that is taken"] = function(m) m.forward = nn.ReLU() end,
    ["a child that is itself"] = function(m) m:add("again", m) end,
    ["a freeze of nothing"] = function(m) m:freeze "none*" end,
    ["a hook of nothing"] = function(m) m:on("none*", "forward", print) end,
  }
  for name, f in pairs(bad) do
    it("goes on as a fresh one does after " .. name, function()
      local fresh, m = make(), make()
      m(x)
      fresh(x)
      assert.is_false((pcall(f, m)))
      assert.are.equal(use(fresh), use(m))
      local late = make() -- failed before it was ever used rightly
      pcall(f, late)
      if name ~= "another width" then assert.are.equal(use(make()), use(late)) end
    end)
  end
end)

describe("a trainer", function()
  local function make(micro)
    return neap.trainer {
      model = nn.Sequential { seed = 3, nn.Linear { 8 }, nn.ReLU(), nn.Linear { 3 } },
      optimizer = optim.SGD { lr = 0.1, momentum = 0.9 },
      micro = micro,
    }
  end
  local function labels(...) return neap.tensor({ ... }, "i64") end
  local good = { x = neap.ones(4, 5), y = labels(0, 1, 2, 0) }
  local bad = {
    ["no labels"] = { x = neap.ones(4, 7) },
    ["labels of other rows"] = { x = neap.ones(4, 7), y = labels(0, 1) },
    ["a label out of range"] = { x = neap.ones(4, 7), y = labels(0, 1, 2, 9) },
    ["an input of a dtype that no layer takes"] = { x = labels(1, 2, 3, 4), y = good.y },
    ["an input that is no number"] = { x = neap.zeros(4, 7) / 0, y = good.y },
  }
  --- Losses and parameters of two right steps.
  local function go_on(t)
    local a, b = t:step(good), t:step(good)
    return ("%a %a %d "):format(a.loss, b.loss, b.step) .. support.state_of(t.model:workspace())
  end
  for _, micro in ipairs { 0, 2 } do
    for name, batch in pairs(bad) do
      it(("has learnt nothing of %s%s"):format(name, micro > 0 and ", in micro-batches" or ""),
        function()
          local size = micro > 0 and micro or nil
          local t <close> = make(size)
          local fresh <close> = make(size)
          assert.is_false((pcall(t.step, t, batch)))
          assert.are.equal(0, #t.model:workspace():_blobs())
          assert.are.equal(go_on(fresh), go_on(t))
          assert.is_false((pcall(t.step, t, batch))) -- and later
          assert.are.equal(go_on(fresh), go_on(t))
        end)
    end
  end

  it("leaves running statistics as they were when a micro-batch behind others fails", function()
    local function make_norm()
      return neap.trainer {
        model = nn.Sequential { seed = 3, nn.Linear { 8 }, nn.BatchNorm1d { 8 }, nn.Linear { 3 } },
        optimizer = optim.SGD { lr = 0.1, momentum = 0.9 }, micro = 2,
      }
    end
    local t <close> = make_norm()
    local fresh <close> = make_norm()
    local x = neap.zeros(4, 5)
    support.filler(0.2)(x)
    local right, wrong = { x = x, y = labels(0, 1, 2, 0) }, { x = x * 3, y = labels(0, 1, 2, 9) }
    for _ = 1, 2 do
      for _, one in ipairs { t, fresh } do one:step(right) end
      for _ = 1, 2 do
        raises("9", t.step, t, wrong)
        assert.are.equal(support.state_of(fresh.model:workspace()),
          support.state_of(t.model:workspace()))
      end
    end
  end)

  it("makes anew what a call that fails has closed for another's optimizer", function()
    local model = nn.Sequential { input = { 5 }, nn.Linear { 5, 3 } }
    local function make_one()
      return neap.trainer { model = model, micro = 2,
        optimizer = optim.SGD { lr = 0.1, momentum = 0.9 } }
    end
    local t <close> = make_one()
    local other <close> = make_one()
    local set = neap.data.tensors { x = good.x, y = good.y, batch = 4 }
    t:step(good)
    t:evaluate(set)
    -- The other one's step has taken over the momentum: all programs of the first are closed by its
    -- next step, one of rows that it has not had yet.
    local want = other:step(good) and other:evaluate(set).loss
    assert.is_false((pcall(t.step, t, { x = neap.ones(6, 5), y = labels(0, 1, 2, 0, 1, 9) })))
    assert.are.equal(want, t:evaluate(set).loss)
  end)

  it("forgets a data set that does not fit", function()
    local t <close> = make()
    local fresh <close> = make()
    local wrong = neap.data.tensors { x = neap.ones(4, 7), y = labels(9, 9, 9, 9), batch = 2 }
    local right = neap.data.tensors { x = good.x, y = good.y, batch = 2 }
    for _, f in ipairs { "fit", "evaluate" } do
      assert.is_false((pcall(t[f], t, wrong, f == "fit" and { verbose = 0 } or nil)))
      assert.are.equal(0, #t.model:workspace():_blobs())
    end
    assert.is_false((pcall(t.plan, t, 4)))
    assert.is_false((pcall(t.forecast, t, 4, { x = neap.ones(4, 7), y = neap.ones(4, 2) })))
    for _, one in ipairs { t, fresh } do one:fit(right, { verbose = 0 }) end
    assert.are.equal(support.state_of(fresh.model:workspace()),
      support.state_of(t.model:workspace()))
  end)
end)

describe("a run that fails", function()
  it("puts outputs back with the inputs, and what a loop has written", function()
    local net = neap.net "f"
    local x, n = net:input("x", { 2 }), net:Neg("x", "n")
    net:CheckFinite(net:Log("x"), "y")
    net:outputs { n, "y" }
    local ws <close> = neap.workspace { store = false }
    ws:run(net, { x = neap.tensor { 1, 2 } })
    raises("CheckFinite", ws.run, ws, net, { x = neap.tensor { 8, -9 } })
    assert.are.same({ { 1, 2 }, { -1, -2 } }, { ws:fetch(x):totable(), ws:fetch(n):totable() })

    local loop = neap.net "loop"
    loop:input("x", { 2 })
    loop:param("w", { 2 }, 0)
    loop:param("lr", {}, 1)
    local y = loop:Loop { trip = 5, init = { loop:Copy "x" }, body = function(b, _, y)
      b:Sgd({ "w", b:Neg(y), "lr" }, { "w" })
      local z = b:CheckFinite(b:Log(b:Sub { y, b:const(1.0) }))
      return true, b:Add { b:Sub { y, b:const(1.0) }, b:Mul { z, b:const(0.0) } }
    end }
    loop:Sum(y, "s")
    loop:outputs { "s" }
    for _, memory in ipairs { {}, { executor = "dag" }, { policy = "pool" } } do
      local own <close> = neap.workspace { store = false }
      own:run(loop, { x = neap.tensor { 10, 10 } }, memory)
      local before = own:fetch("w"):totable()
      raises("CheckFinite", own.run, own, loop, { x = neap.tensor { 3, 3 } }, memory)
      assert.are.same(before, own:fetch("w"):totable())
    end
  end)

  --- How ops may write a blob that is there before the run: its name in, the same out.
  local writers = {
    Add = function(b) b:Add({ "m", "one" }, "m") end,
    Accumulate = function(b) b:op("Accumulate", { "m", "one" }, "m") end,
    WeightedAccumulate = function(b) b:WeightedAccumulate({ "m", "one", "one", "one" }, "m") end,
    RunningAverage = function(b) b:RunningAverage({ "m", "one" }, "m") end,
  }
  local function embed(b) return b:Embedding { "x", "w" } end
  local function embed_row(b, row)
    return b:Embedding { b:Reshape(row, nil, { shape = { 1 } }), "w" }
  end
  --- Where in a net one is: what fails, an Embedding of an id that is not there, is beside it or
  -- behind it.
  local places = {
    ["the net"] = function(net, write)
      write(net)
      return embed(net)
    end,
    ["an If"] = function(net, write)
      net:If(net:const(true), write)
      return embed(net)
    end,
    ["an If that fails"] = function(net, write)
      return (net:If(net:const(true), function(b)
        write(b)
        return embed(b)
      end, embed))
    end,
    ["a Do"] = function(net, write)
      net:CreateScope({}, "s")
      net:Do { scope = "s", bindings = { m = "m", one = "one" }, body = write }
      return embed(net)
    end,
    ["a Recurrent in a Do"] = function(net, write)
      net:CreateScope({}, "s")
      net:Do {
        scope = "s",
        bindings = { m = "m", one = "one", x = "x", w = "w", e = "e" },
        body = function(d)
          local rows = d:Recurrent { seq = { "x" }, init = {}, step = function(b, row)
            write(b)
            return embed_row(b, row)
          end }
          d:Copy(rows, "e")
        end,
      }
      return "e"
    end,
    ["a Loop"] = function(net, write)
      net:Loop { trip = 2, init = {}, body = function(b)
        write(b)
        return true
      end }
      return embed(net)
    end,
    ["a While that fails"] = function(net, write)
      local _, sum = net:While {
        init = { net:const(0), net:const(0) },
        cond = function(_, i) return i:lt(2) end,
        body = function(b, i, sum)
          write(b)
          return i + 1, sum + b:Sum(embed(b))
        end,
      }
      return sum
    end,
    ["a Recurrent that fails"] = function(net, write)
      return (net:Recurrent { seq = { "x" }, init = {}, step = function(b, row)
        write(b)
        return embed_row(b, row)
      end })
    end,
  }
  local function writing(role, place, write)
    local net = neap.net "f"
    net:input("x", { 2 }, "i64")
    net:param("w", { 3, 2 }, 1)
    net:declare("m", role, { 1 }, "f32", role ~= "input" and { op = "Constant", value = 0 } or nil)
    net:declare("one", "state", { 1 }, "f32", { op = "Constant", value = 1 })
    net:Copy(place(net, write), "out")
    net:outputs { "out" }
    return net
  end
  for _, role in ipairs { "state", "parameter", "input" } do
    for writer, write in pairs(writers) do
      it(("leaves a blob of role %s that %s writes, wherever it stands"):format(role, writer),
        function()
          for where, place in pairs(places) do
            local net = writing(role, place, write)
            for _, executor in ipairs { "simple", "dag", "dynamic" } do
              local ws <close> = neap.workspace { store = false, executor = executor }
              ws:init(net)
              ws:feed("m", neap.tensor { 0 })
              ws:run(net, { x = { 0, 1 } })
              local before = ws:fetch("m"):item()
              assert.is_true(before > 0)
              raises("out of range", ws.run, ws, net, { x = { 0, 7 } })
              assert.are.equal(before, ws:fetch("m"):item(), where .. ", " .. executor)
              ws:run(net, { x = { 0, 1 } })
              assert.is_true(ws:fetch("m"):item() > before)
            end
          end
        end)
    end
  end

  --- However a net is run: door(net, memory) -> a workspace and run(x), which feeds x and runs the
  -- net once.
  local doors = {
    ["ws:run"] = function(net, memory)
      local ws = neap.workspace { store = false, seed = 3 }
      return ws, function(x) ws:run(net, { x = x }, memory) end
    end,
    ["program:run"] = function(net, memory)
      local ws = neap.workspace { store = false, seed = 3 }
      local program = ws:compile(net, memory)
      return ws, function(x)
        ws:feed("x", x)
        program:run()
      end
    end,
    ["program:run(3)"] = function(net, memory)
      local ws = neap.workspace { store = false, seed = 3 }
      local program = ws:compile(net, memory)
      return ws, function(x)
        ws:feed("x", x)
        program:run(3)
      end
    end,
    ["ws:run_once"] = function(net, memory)
      local ws = neap.workspace { store = false, seed = 3 }
      return ws, function(x)
        ws:feed("x", x)
        ws:run_once(net, memory)
      end
    end,
    ["ws:run_steps"] = function(net, memory)
      local ws = neap.workspace { store = false, seed = 3 }
      return ws, function(x)
        ws:feed("x", x)
        ws:run_steps({ net }, memory)
      end
    end,
    ["a program of a child"] = function(net, memory)
      local ws = neap.workspace { store = false, seed = 3 }
      ws:init(net)
      local child = ws:child()
      local program = child:compile(net, memory)
      return ws, function(x)
        child:feed("x", x)
        program:run()
      end
    end,
  }
  local memories = {
    { executor = "simple" }, { executor = "dag" }, { executor = "dynamic" }, { policy = "pool" },
  }

  for door, open in pairs(doors) do
    it(("twice, by %s, leaves all that lasts, and the next right ones do what \z
      they would have done"):format(door), function()
      for where, place in pairs(places) do
        for _, memory in ipairs(memories) do
          local net = writing("state", place, writers.WeightedAccumulate)
          local ws, run = open(net, memory)
          local fresh, run_fresh = open(net, memory)
          local what = where .. ", " .. (memory.executor or memory.policy)
          for _, each in ipairs { run, run_fresh } do each(neap.tensor({ 0, 1 }, "i64")) end
          for _ = 1, 2 do
            raises("out of range", run, neap.tensor({ 0, 7 }, "i64"))
            assert.are.equal(support.state_of(fresh), support.state_of(ws), what)
          end
          for _, each in ipairs { run, run_fresh } do each(neap.tensor({ 2, 1 }, "i64")) end
          assert.are.equal(support.state_of(fresh), support.state_of(ws), what)
          assert.are.equal(fresh:fetch("m"):item(), ws:fetch("m"):item())
          ws:close()
          fresh:close()
        end
      end
    end)
  end

  --- What can fail reads one update, so the other comes behind the failure, and the step is not
  -- counted.
  it("behind an update has not updated anything", function()
    local net = neap.net "late"
    net:input("x", { 2 }, "i64")
    net:param("w", { 3, 2 }, 1)
    net:param("v", { 3, 2 }, 1)
    net:declare("lr", "state", {}, "f32", { op = "Constant", value = 0.5 })
    net:gradient(net:Sum(net:Mul { "w", "v" }))
    net:Sgd({ "w", "w_grad", "lr" }, "w", { momentum = 0 })
    net:Sgd({ "v", "v_grad", "lr" }, "v", { momentum = 0 })
    net:Embedding({ "x", "w" }, "out")
    net:outputs { "out" }
    assert.matches("copies of what the net updates",
      tostring(net:plan({ store = false }):explain()))
    local first = neap.net_from "net first\n\z
      input x f32 (2)\n\z
      state m f32 (2)\n\z
      y = CheckFinite(x)\n\z
      m = Add(m, y)\n\z
      outputs y"
    assert.is_nil(tostring(first:plan({ store = false }):explain()):find("copies", 1, true))
    for door, open in pairs(doors) do
      for _, memory in ipairs(memories) do
        local ws, run = open(net, memory)
        run(neap.tensor({ 0, 1 }, "i64"))
        local before = support.state_of(ws)
        for _ = 1, 2 do
          raises("out of range", run, neap.tensor({ 0, 7 }, "i64"))
          assert.are.equal(before, support.state_of(ws), door)
        end
        run(neap.tensor({ 0, 1 }, "i64"))
        assert.are_not.equal(before, support.state_of(ws))
        ws:close()
      end
    end
  end)

  it("in the middle of steps leaves those before it", function()
    local net = writing("state", places["a Recurrent that fails"], writers.Accumulate)
    local next_x = neap.net "next"
    next_x:input("x", { 2 }, "i64")
    next_x:input("two", { 2 }, "i64")
    next_x:Add({ "x", "two" }, "x") -- ids 0, 2, then 4, which is none
    local ws <close> = neap.workspace { store = false, seed = 3 }
    ws:feed("x", neap.tensor({ 0, 0 }, "i64"))
    ws:feed("two", neap.tensor({ 2, 2 }, "i64"))
    raises("out of range", ws.run_steps, ws, { net, next_x, iterations = 5 })
    local fresh <close> = neap.workspace { store = false, seed = 3 }
    fresh:feed("x", neap.tensor({ 0, 0 }, "i64"))
    fresh:feed("two", neap.tensor({ 2, 2 }, "i64"))
    fresh:run_steps { net, next_x, iterations = 2 }
    assert.are.equal(support.state_of(fresh), support.state_of(ws))
    assert.are.same({ 4, 4 }, ws:fetch("x"):totable())
  end)

  it("to be made leaves no blobs of the steps before it", function()
    local good = writing("state", places["the net"], writers.Accumulate)
    local bad = neap.net "bad"
    bad:input("x", { 3 }, "i64") -- another shape than the workspace has
    bad:param("other", { 2 }, 1)
    bad:Copy("x", "z")
    bad:outputs { "z" }
    local ws <close> = neap.workspace { store = false, seed = 3 }
    ws:feed("x", neap.tensor({ 0, 1 }, "i64"))
    local before = blobs_text(ws)
    assert.is_false((pcall(ws.run_steps, ws, { good, bad }, { total = 64 })))
    assert.are.equal(before, blobs_text(ws))
  end)

  it("as memory is refused leaves all that lasts, whichever allocation it is", function()
    for door, open in pairs(doors) do
      for _, memory in ipairs(memories) do
        local net = writing("state", places["a Recurrent that fails"], writers.WeightedAccumulate)
        local ws, run = open(net, memory)
        local good = neap.tensor({ 0, 1 }, "i64")
        run(good)
        local n, passed = 0, false
        while not passed do
          n = n + 1
          local before = support.state_of(ws)
          fail_nth(n)
          local ok = pcall(run, good)
          passed = not failed()
          fail_nth(0)
          if ok then
            assert.are_not.equal(before, support.state_of(ws), door)
          else
            assert.are.equal(before, support.state_of(ws), door)
          end
        end
        ws:close()
      end
    end
  end)

  it("leaves what a scope shares", function()
    local net, asks = neap.net "a", neap.net "asks"
    net:input("x", { 2 })
    net:input("c", {}, "bool")
    net:CreateScope({}, "s")
    net:If("c", function(b)
      b:Do { scope = "s", bindings = { x = "x" }, body = function(d) d:op("Neg", "x", "h") end }
    end, nil)
    net:export_scope "s"
    net:CheckFinite(net:Log "x", "fin")
    net:outputs { "fin" }
    asks:import_scope("s", net)
    asks:HasScope("s", "has")
    asks:outputs { "has" }
    local ws <close> = neap.workspace { store = false }
    ws:run(net, { x = neap.tensor { 1, 2 }, c = true })
    raises("CheckFinite", ws.run, ws, net, { x = neap.tensor { -5, 2 }, c = false })
    assert.is_true(ws:run(asks).has[1])
  end)

  it("of a batch too large for a model's layers leaves the smaller ones", function()
    -- twice tanh's result is no blob that the backward pass reads: it lies in the arena
    local Block = nn.module {
      "Block",
      init = function(self) self.fc1, self.fc2 = nn.Linear { 16, 32 }, nn.Linear { 32, 10 } end,
      forward = function(self, x) return self.fc2((self.fc1(x):tanh() * 2):sigmoid()) end,
    }
    local m = nn.Sequential { Block(), nn.ReLU {} }
    local memory = m:train():memory { budget = 4096 }
    local small = memory:forward(neap.ones(2, 16)):totable()
    raises("least arena", memory.forward, memory, neap.ones(64, 16))
    assert.are.same(small, memory:forward(neap.ones(2, 16)):totable())
    memory:backward(neap.ones(2, 10))
    memory:forward(neap.ones(1, 16))
  end)
end)

describe("a workspace", function()
  local net = neap.net "f"
  net:input("x", { 2 })
  net:input("at", {}, "i64")
  net:param("w", { 3, 2 }, neap.init.uniform { low = -1, high = 1 })
  net:Add({ net:Embedding({ "at", "w" }, "row"), "x" }, "y")
  net:outputs { "y" }
  local x, at = neap.tensor { 1, 2 }, neap.tensor(1, "i64")

  local bad = {
    ["a run of an index out of range"] = function(ws)
      ws:run(net, { x = neap.tensor { 8, 9 }, at = neap.tensor(7, "i64") })
    end,
    ["a run of a shape that does not fit"] = function(ws)
      ws:run(net, { x = neap.ones(5), at = at })
    end,
    ["a run without an input"] = function(ws)
      ws:create "x"
      ws:run(net, { at = neap.tensor(2, "i64"), none = neap.ones(3), x = "text" })
    end,
    ["a run under a budget that can't be"] = function(ws)
      ws:run(net, { x = neap.tensor { 8, 9 }, at = at }, { total = 8 })
    end,
    ["a compile under a total that can't be"] = function(ws) ws:compile(net, { total = 8 }) end,
    ["a compile with a wrong option"] = function(ws) ws:compile(net, { nothing = 8 }) end,
    ["a fetch of nothing"] = function(ws) ws:fetch "none" end,
    ["a load of nothing"] = function(ws) assert(ws:load "/none/none.safetensors") end,
    ["a feed of no tensor"] = function(ws) ws:feed("z", function() end) end,
    ["a run of a net by a name that is not there"] = function(ws) ws:run "none" end,
    ["steps of a net that is not there"] = function(ws) ws:run_steps { "none" } end,
    ["a net under a name that is taken"] = function(ws) ws:create_net "net f\ny = Relu(none)\n" end,
  }
  for name, f in pairs(bad) do
    it("is as it was after " .. name, function()
      for _, used in ipairs { false, true } do
        local ws <close> = neap.workspace { seed = 2 }
        local fresh <close> = neap.workspace { seed = 2 }
        for _, one in ipairs { ws, fresh } do
          if name == "a run without an input" then one:create "x" end
          if used then one:run(net, { x = x, at = at }) end
        end
        local before = blobs_text(ws)
        assert.is_false((pcall(f, ws)))
        assert.are.equal(before, blobs_text(ws))
        assert.are.equal(fresh:run(net, { x = x, at = at }).y:hash(),
          ws:run(net, { x = x, at = at }).y:hash())
      end
    end)
  end

  it("loads no part of a file that does not fit", function()
    local path = os.tmpname() .. ".safetensors"
    neap.save(path, { a = neap.ones(2), w = neap.ones(5) })
    local ws <close> = neap.workspace { seed = 2 }
    ws:run(net, { x = x, at = at })
    local before = blobs_text(ws)
    assert.is_false((pcall(ws.load, ws, path)))
    assert.are.equal(before, blobs_text(ws))
    os.remove(path)
  end)
end)

describe("a workspace that is put back", function()
  it("has its programs read the bytes that blobs had before, not those they had between", function()
    local net = neap.net "put_back"
    net:outputs { net:Neg(net:input("x", { 2 }), "y") }
    local ws <close> = neap.workspace { store = false }
    local before, between = neap.tensor { 1, 2 }, neap.tensor { 3, 4 }
    ws:feed("x", before, { share = true })
    local program <close> = ws:compile(net)
    local mark = ws:_mark(true, { "x" })
    ws:feed("x", between, { share = true })
    program:run()
    assert.are.same({ -3, -4 }, ws:fetch("y"):totable())
    ws:_end_mark(mark, false, { "x" })
    program:run()
    assert.are.same({ -1, -2 }, ws:fetch("y"):totable())
  end)
end)
