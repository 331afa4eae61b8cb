-- Workspaces and programs: feeding, running, the fetch rule, keeping, children, checkpoints, the
-- database.
local neap = require "neap"
local support = require "support"
local raises, settle = support.raises, support.settle

--- loss of x (n,4) through two layers against labels t, with Sgd
local function training_net(n)
  local net = neap.net "train"
  local x, t = net:input("x", { n or 8, 4 }), net:input("t", { n or 8 }, "i64")
  local h = net:FC({ x, net:param("w1", { 16, 4 }, neap.init.xavier {}), net:param("b1", { 16 }) },
    "h"):relu()
  local y = net:FC({ h, net:param("w2", { 3, 16 }, neap.init.xavier {}) }, "y")
  local loss = net:SoftmaxCrossEntropy({ y, t }, "loss")
  neap.optim.SGD { lr = 0.1, momentum = 0.9 }:apply(net, net:gradient(loss))
  net:outputs { loss }
  return net
end

local function feeds(n)
  neap.seed(1)
  return { x = neap.randn(n or 8, 4), t = neap.tensor({ 0, 1, 2, 0, 1, 2, 0, 1 }, "i64"), lr = 0.1 }
end

local function train(ws, net, steps)
  local loss
  for _ = 1, steps do loss = ws:run(net, feeds()).loss:item() end
  return loss
end

describe("a workspace", function()
  it("holds tensors by name", function()
    local ws <close> = neap.workspace {}
    local x = neap.tensor { 1, 2 }
    ws:feed("x", x)
    x:zero_()
    assert.are.same({ 1, 2 }, ws:fetch("x"):totable())
    assert.is_true(ws:has "x")
    ws:rename("x", "y")
    assert.is_false(ws:has "x")
    assert.is_true(ws:remove "y")
    assert.is_false(ws:remove "y")
    ws:feed("n", 5)
    assert.are.equal(5, ws:fetch("n"):item())
    local err = raises("nothing", function() ws:fetch "nothing" end)
    assert.are.equal("name", err.code)
  end)

  it("has no blob of a name that no net can hold", function()
    local path = os.tmpname() .. ".safetensors"
    local odd = { "", "a b", "a b{", "x,y", "f(x)", "\"q\"", "=", "_", "line\nbreak" }
    for _, name in ipairs(odd) do
      local parent <close> = neap.workspace { store = false }
      parent:feed("x", 1)
      local ws <close> = parent:child { forward = {} }
      local tries = {
        function() ws:feed(name, neap.ones(2)) end,
        function() ws:feed(name, "text") end,
        function() ws:feed(name, neap.ones(2), { share = true }) end,
        function() ws:create(name) end,
        function() ws:create_scope(name) end,
        function() ws:run_op("Relu", neap.ones(2), { name }) end,
        function() parent:rename("x", name) end,
        function() parent:child { forward = { [name] = "x" } } end,
        function()
          neap.save(path, { [name] = neap.ones(2) })
          ws:load(path)
        end,
      }
      for i, try in ipairs(tries) do
        local ok, err = pcall(try)
        assert.is_false(ok, ("%q, by way %d"):format(name, i))
        assert.is_truthy(tostring(err):find("name", 1, true), tostring(err))
        assert.is_true(parent:has "x")
        assert.is_false(ws:has(name) or parent:has(name))
        assert.are.equal(1, #ws:blobs()) -- the parent's
      end
    end
    os.remove(path)
  end)

  it("shares a tensor's bytes when asked", function()
    local ws <close> = neap.workspace {}
    local x = neap.tensor { 1, 2 }
    ws:feed("x", x, { share = true })
    x:fill_(7)
    assert.are.same({ 7, 7 }, ws:fetch("x"):totable())
  end)

  it("lists what it has", function()
    local ws <close> = neap.workspace {}
    ws:feed("x", neap.ones(2, 3))
    local r = ws:blobs()
    assert.are.equal("x", r[1].name)
    assert.are.equal("(2,3)", r[1].shape)
    assert.are.equal(24, r.bytes)
  end)

  it("lists from which step to which its programs need each blob", function()
    local ws <close> = neap.workspace {}
    local net = neap.net "f"
    net:input("x", { 4 })
    net:param("w", { 4 }, 1)
    net:gradient(net:Sum(net:Exp(net:Mul { "x", "w" }, "h"), "loss"))
    net:outputs "loss"
    ws:run(net, { x = neap.ones(4) })
    local first, last, n = {}, {}, 0
    for _, v in ipairs(net:plan():values()) do
      first[v.blob] = math.min(first[v.blob] or math.huge, v.first_step)
      last[v.blob] = math.max(last[v.blob] or 0, v.last_step)
    end
    for _, row in ipairs(ws:blobs()) do
      local from, to = first[row.name], last[row.name]
      assert.are.equal(("%s-%d"):format(from == 0 and "before" or from, to), row.steps, row.name)
      n = n + 1
    end
    assert.are.equal(6, n)
  end)

  it("gives all its bytes back when it is closed", function()
    settle()
    local before = neap.memory().held
    do
      local ws <close> = neap.workspace {}
      ws:run(training_net(), feeds())
      assert.is_true(neap.memory().held > before)
    end
    settle()
    assert.is_true(neap.memory().held <= before + 4096) -- scratch of eager ops may have grown
  end)

  it("may not be used when it is closed", function()
    local ws = neap.workspace {}
    ws:close()
    ws:close()
    raises("closed", function() ws:feed("x", 1) end)
  end)
end)

describe("running", function()
  it("gives the outputs as copies, the same for the same seed", function()
    local net = training_net()
    local a <close> = neap.workspace { seed = 7 }
    local b <close> = neap.workspace { seed = 7 }
    local c <close> = neap.workspace { seed = 8 }
    local first = train(a, net, 1)
    assert.are.equal(first, train(b, net, 1))
    assert.are_not.equal(first, train(c, net, 1))
    assert.is_true(train(a, net, 30) < first)
    assert.are.equal(31, a:step())
  end)

  it("makes a program per shape of the inputs, all on one arena", function()
    local net = neap.net "f"
    net:Relu(net:input("x", { 2, 3 }), "y")
    local ws <close> = neap.workspace {}
    for _, n in ipairs { 2, 5, 1, 5 } do
      assert.are.same({ n, 3 }, ws:run(net, { x = neap.ones(n, 3) }).y.shape)
    end
  end)

  it("compiles anew when the net has grown", function()
    local net = neap.net "f"
    local y = net:Relu(net:input("x", { 2 }), "y")
    local ws <close> = neap.workspace {}
    assert.is_nil(ws:run(net, { x = { 1, 2 } }).z)
    net:outputs { net:Add({ y, y }, "z") }
    assert.are.same({ 2, 4 }, ws:run(net, { x = { 1, 2 } }).z:totable())
  end)

  it("says in fields, too, what a name can't be and which operand is no tensor", function()
    local _, err = pcall(neap.net, "a b")
    assert.same({ "name", "a b" }, { err.code, err.blob })
    local net = neap.net "f"
    net:outputs(net:Tanh(net:input("x", { 2 }), "y"))
    local ws <close> = neap.workspace { store = false }
    ws:feed("x", "a text")
    _, err = pcall(ws.run, ws, net)
    assert.same({ "dtype", "x", "a tensor", "a string" },
      { err.code, err.blob, err.expected, err.got })
  end)

  it("says which input was not fed", function()
    local net = neap.net "f"
    net:Relu(net:input("x", { 2 }), "y")
    local ws <close> = neap.workspace {}
    local err = raises("x", function() ws:run(net) end)
    assert.are.equal("string", type(err.code))
  end)

  it("names op and blob when the data is bad, and changes no parameter", function()
    local net = training_net()
    local ws <close> = neap.workspace { seed = 1 }
    train(ws, net, 1)
    local before, step = ws:fetch "w1", ws:step()
    local bad = feeds()
    bad.t = neap.tensor({ 0, 1, 2, 99, 1, 2, 0, 1 }, "i64")
    local err = raises("99", function() ws:run(net, bad) end)
    assert.are.equal("data", err.code)
    assert.are.equal("SoftmaxCrossEntropy", err.op)
    assert.is_truthy(err.line:match "^workspace_spec.lua:%d+$")
    assert.is_true(before:equal(ws:fetch "w1"))
    assert.are.equal(step, ws:step())
  end)

  it("takes nets by name and trees of steps", function()
    local net = training_net()
    local ws <close> = neap.workspace {}
    ws:add_net(net)
    for name, t in pairs(feeds()) do ws:feed(name, t) end
    ws:init(net)
    ws:run_steps { { "train", iterations = 2 }, { { "train" }, iterations = 3 } }
    assert.are.equal(5, ws:step())
    raises("no net \"x\"", function() ws:run "x" end)
  end)
end)

describe("a feed", function()
  local function scaled()
    local net = neap.net "scaled"
    net:outputs {
      net:Mul({ net:input("x", { 2 }), net:input("lr", {}) }, "y"),
      net:Copy(net:input("mask", { 2 }, "bool"), "m"),
      net:Copy(net:input("ids", { 2 }, "i64"), "i"),
    }
    return net
  end
  local function good(more)
    local given = { x = neap.ones(2), lr = 1, mask = { true, false }, ids = { 1, 2 } }
    for name, value in pairs(more or {}) do given[name] = value end
    return given
  end

  it("of a name that the net does not know is an error, and changes nothing", function()
    local net, ws <close> = scaled(), neap.workspace { store = false }
    ws:run(net, good())
    local err = raises("no blob \"Lr\"", function() ws:run(net, good { Lr = neap.tensor(5) }) end)
    assert.are.equal("name", err.code)
    assert.is_truthy(err.hint:find("did you mean \"lr\"", 1, true))
    assert.is_false(ws:has "Lr")
    assert.is_truthy(raises("no blob \"other\"", function()
      ws:run(net, good { other = 1 })
    end).hint:find("x, lr, mask, ids", 1, true))
  end)

  it("reaches what only a branch of the net reads", function()
    local net, ws <close> = neap.net "branches", neap.workspace { store = false }
    local yes, x, w = net:input("yes", {}, "bool"), net:input("x", { 2 }), net:input("w", { 2 })
    net:outputs { net:If(yes, function() return x * w end, function() return x + w end) }
    ws:run(net, { yes = true, x = neap.ones(2), w = neap.ones(2) })
    raises("no blob \"W2\"", function()
      ws:run(net, { yes = true, x = neap.ones(2), w = neap.ones(2), W2 = neap.ones(2) })
    end)
  end)

  it("is converted where its values can be said, and refused where they can't", function()
    local net, ws <close> = scaled(), neap.workspace { store = false }
    assert.are.same({ 3, 4 }, ws:run(net, good { x = neap.tensor({ 3, 4 }, "i64") }).y:totable())
    assert.are.same({ 1, 0 }, ws:run(net, good { ids = neap.tensor({ true, false }) }).i:totable())
    for name, t in pairs { mask = neap.tensor { 0.5, 2 }, ids = neap.tensor { 0.5, 2 } } do
      local err = raises(name, function() ws:run(net, good { [name] = t }) end)
      assert.are.equal("dtype", err.code)
      assert.are.equal("f32", err.got)
    end
  end)

  it("has a name, and a net to go to", function()
    local net, ws <close> = scaled(), neap.workspace { store = false }
    raises("feeds are { name = tensor }, got the key 1", function()
      ws:run(net, { neap.ones(2), lr = 1 })
    end)
    raises("expects feeds as", function() ws:run(net, 3) end)
    raises("expects feeds as", function() ws:run(net, net:blob "x") end)
    raises("expects (net or its name", function() ws:run(neap.ones(2), {}) end)
    raises("expects (net or its name", function() ws:run() end)
  end)
end)

describe("the fetch rule", function()
  local net, ws
  before_each(function()
    net = neap.net "chain" -- a long chain of transient values in little memory
    local x = net:input("x", { 64 })
    for i = 1, 6 do x = net:Permute(x:reshape(8, 8), "v" .. i, { axes = { 2, 1 } }):reshape(64) end
    net:outputs { net:Sum(x, "s") }
    ws = neap.workspace {}
  end)
  after_each(function() ws:close() end)

  it("names the new owner of bytes that were taken, and the way out", function()
    ws:run(net, { x = neap.ones(64) })
    local err = raises("keep", function()
      for i = 1, 6 do ws:fetch("v" .. i) end
    end)
    assert.are.equal("released", err.code)
  end)

  it("fetches what is kept", function()
    ws:run(net, { x = neap.ones(64) })
    ws:keep("v1", "v2")
    ws:run(net, { x = neap.ones(64) })
    assert.are.equal(64, ws:fetch("v1"):sum():item())
    assert.are.equal(64, ws:fetch("v2"):sum():item())
  end)

  it("makes a view of transient bytes fail after a later run", function()
    ws:run(net, { x = neap.ones(64) })
    local view
    for i = 6, 1, -1 do
      local ok, v = pcall(ws.view, ws, "v" .. i)
      if ok then view = v break end
    end
    assert.is_truthy(view, "no transient blob is intact after the run")
    assert.are.equal(1, view[{ 1, 1 }])
    ws:run(net, { x = neap.zeros(64) })
    local err = raises("older than the last run", function() return view[1] end)
    assert.are.equal("released", err.code)
    assert.are.equal(64, ws:view("x"):n_element()) -- resident ones stay good
  end)
end)

describe("a program", function()
  it("runs many steps, allocates nothing after the first, and holds what its plan says", function()
    local net = training_net()
    local ws <close> = neap.workspace { seed = 1 }
    ws:init(net)
    local program <close> = ws:compile(net)
    for name, t in pairs(feeds()) do ws:feed(name, t) end
    program:run()
    program:run(9)
    local s = program:stats()
    assert.are.equal(10, s.n_step)
    assert.are.equal(0, s.n_alloc)
    assert.are.equal(program.plan.total_bytes, s.planned_bytes)
    assert.is_true(s.median_ns > 0)
    assert.is_true(program.plan:verify())
  end)

  it("gives the same bits under every policy and executor", function()
    local function losses(memory)
      local net = training_net()
      local ws <close> = neap.workspace { seed = 3 }
      ws:init(net)
      local program <close> = ws:compile(net, memory)
      for name, t in pairs(feeds()) do ws:feed(name, t) end
      program:run(5)
      return ws:fetch "w1"
    end
    local expected = losses { policy = "none" }
    for _, memory in ipairs {
      { policy = "offset" }, { policy = "name" }, { executor = "dag" }, { in_place = false },
    } do
      assert.is_true(expected:equal(losses(memory)))
    end
  end)

  it("has times op by op, and calls one by one when it is asked to profile", function()
    local net = training_net()
    local ws <close> = neap.workspace {}
    ws:init(net)
    for name, t in pairs(feeds()) do ws:feed(name, t) end
    local plain <close> = ws:compile(net)
    local seen = plain:profile { steps = 2 }
    assert.are.equal(#plain.plan:ops(), #seen:ops())
    assert.are.equal(2, seen:ops()[1].n_call)
    raises("profile = true", seen.trace, seen)
    local program <close> = ws:compile(net, { profile = true })
    local run = program:profile { steps = 3 }
    assert.are.equal(#program.plan:ops(), #run:ops())
    assert.is_true(run:ops()[1].n_call == 3)
    assert.are.equal(4, #run:table { limit = 4 })
  end)

  it("leaves its plan unreadable once closed, not dangling", function()
    local net = training_net()
    local ws <close> = neap.workspace {}
    ws:init(net)
    local program = ws:compile(net)
    local plan = program.plan
    program:close()
    program:close()
    raises("closed", function() program:run() end)
    raises("closed", function() return plan:ops() end)
  end)

  it("outlives the handles of its workspace and net", function()
    local program
    do
      local net = training_net()
      local ws = neap.workspace { seed = 1 }
      ws:init(net)
      for name, t in pairs(feeds()) do ws:feed(name, t) end
      program = ws:compile(net)
    end
    settle()
    program:run()
    assert.are.equal(1, program:stats().n_step)
    program:close()
  end)
end)

describe("children", function()
  it("read through to the parent and write their own", function()
    local parent <close> = neap.workspace {}
    parent:feed("x", 1)
    parent:feed("y", 2)
    local child <close> = parent:child {}
    assert.are.equal(1, child:fetch("x"):item())
    child:feed("z", 3)
    assert.is_false(parent:has "z")
    local narrow <close> = parent:child { forward = { a = "x" } }
    assert.are.equal(1, narrow:fetch("a"):item())
    assert.is_false(narrow:has "y")
  end)
end)

describe("checkpoints", function()
  it("bring back parameters, state, seed and step, with the same bits after", function()
    local path = os.tmpname() .. ".safetensors"
    local net = training_net()
    local a <close> = neap.workspace { seed = 5 }
    train(a, net, 3)
    assert(a:save(path, { note = "here" }))
    local expected = train(a, net, 4)
    local b <close> = neap.workspace { seed = 99 }
    b:init(net)
    local meta = assert(b:load(path))
    assert.are.equal("here", meta.note)
    assert.are.equal(3, b:step())
    assert.are.equal(expected, train(b, net, 4))
    os.remove(path)
    local nothing, message, code = b:load(path)
    assert.is_nil(nothing)
    assert.is_truthy(message:find(path, 1, true))
    assert.are.equal("io", code)
  end)
end)

describe("the database", function()
  local db, path
  before_each(function()
    db, path = support.open_db()
  end)
  after_each(function()
    support.close_db(db, path)
  end)

  it("answers with SQL what was planned and run", function()
    local net = training_net()
    local ws <close> = neap.workspace {}
    ws:init(net)
    local program = ws:compile(net)
    for name, t in pairs(feeds()) do ws:feed(name, t) end
    program:run(3)
    local arena = program.plan.arena_bytes
    assert(program:record "finished")
    program:close()
    local plans = db:sql("select net, mode, arena_bytes from v_plan where net = :net",
      { net = "train" })
    assert.are.equal(1, #plans)
    assert.are.equal(arena, plans[1].arena_bytes)
    assert.are.equal(3, db:sql("select n_step from run")[1].n_step)
    for row in db:rows("select ? as a, ? as b", { 1, "x" }) do
      assert.are.equal(1, row.a)
      assert.are.equal("x", row.b)
    end
    assert.is_true(#db:query("plans", { net = "train" }) >= 1)
    assert.is_true(db:verify().ok)
    assert.are.equal(path, db:info().path)
    -- A second program of the same net finds its plan there.
    assert.are.equal(1, net:plan({}).plan_id)
  end)

  it("gives nil and a message for bad SQL, and never changes the file by a question", function()
    local r, message, code = db:sql "selct 1"
    assert.is_nil(r)
    assert.is_truthy(message)
    assert.are.equal("db", code)
    assert.is_nil((db:sql "delete from plan"))
    raises("no query", function() db:query "nothing" end)
  end)
end)

describe("what is to be kept", function()
  local x = neap.tensor { 1, -2 }
  local function net_of(hidden)
    local net = neap.net(hidden)
    net:input("x", { 2 })
    net:Relu("x", hidden)
    net:Neg(hidden, "y")
    net:outputs { "y" }
    return net
  end

  it("the net has, where a call names it", function()
    local net = net_of "h"
    for _, set_up in ipairs { function() end, function(ws) ws:keep "h" end } do
      local ws <close> = neap.workspace { store = false }
      set_up(ws)
      for _, keep in ipairs { "hh", { "hh" }, { "h", "hh" } } do
        for _, f in ipairs {
          function(m) return ws:run(net, { x = x }, m) end,
          function(m) return ws:compile(net, m) end,
          function(m) return ws:run_once(net, m) end, function(m) return net:plan(m) end,
        } do
          local err = raises('keep: net "h" has no blob "hh"', f, { keep = keep })
          assert.are.same({ "name", 'did you mean "h"?' }, { err.code, err.hint })
        end
      end
      assert.are.equal(0, ws:step())
      ws:run(net, { x = x }, { keep = "h" })
      assert.are.same({ 1, 0 }, ws:fetch("h"):totable())
      ws:run(net, { x = x }, { keep = { net:blob "h" } })
    end
  end)

  it("each net has, where the workspace was made with it", function()
    for _, keep in ipairs { "hh", { "h", "hh" } } do
      local ws <close> = neap.workspace { store = false, keep = keep }
      for _, f in ipairs {
        function(net) return ws:run(net, { x = x }) end,
        function(net) return ws:compile(net) end, function(net) return ws:run_once(net) end,
      } do
        local err = raises('neap.workspace: keep: net "h" has no blob "hh"', f, net_of "h")
        assert.are.same({ "name", 'did you mean "h"?' }, { err.code, err.hint })
      end
      ws:run(net_of "something", { x = x }, { keep = "something" })
      assert.are.same({ 1, 0 }, ws:fetch("something"):totable())
      ws:run(net_of "hh", { x = x }, { keep = {} })
    end
    local ws <close> = neap.workspace { store = false, keep = { "hidden", "x" } }
    local err = raises('net "h" has no blob "hidden"', ws.run, ws, net_of "h", { x = x })
    assert.are.equal('ws:keep "hidden" keeps it in those nets that have it', err.hint)
    ws:run(net_of "hidden", { x = x })
    assert.are.same({ 1, 0 }, ws:fetch("hidden"):totable())
  end)

  it("is kept by the nets that have it, where the workspace wishes so", function()
    local ws <close> = neap.workspace { store = false }
    ws:keep("h", "g")
    for _, hidden in ipairs { "h", "g", "other" } do ws:run(net_of(hidden), { x = x }) end
    assert.are.same({ { 1, 0 }, { 1, 0 } }, { ws:fetch("h"):totable(), ws:fetch("g"):totable() })
  end)
end)
