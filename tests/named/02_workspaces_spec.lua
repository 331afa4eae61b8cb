-- Point 2: workspaces: parents, forwarded names, shadowing, typed blobs, sizes, nets by name, step
-- trees.
local neap = require "neap"
local support = require "support"
local raises = support.raises

local function workspace(o)
  o = o or {}
  o.store = false
  return neap.workspace(o)
end

local function numbers(t) return t:totable() end

--- y = op(x), both (2)
local function unary(name, op, x, y)
  local net = neap.net(name)
  net:input(x or "x", { 2 })
  net:op(op, x or "x", y or "y")
  return net
end

--- count = count + 1 at each run, in place; stop = count >= most
local function counter(most, count, minus)
  count, minus = count or "count", minus or "minus"
  local net = neap.net(count == "count" and "counter" or "counter_of_" .. count)
  net:declare(count, "state", { 1 })
  net:input(minus, {})
  net:Sgd({ count, net:const(1):reshape(1), minus }, count)
  if most then net:op("Ge", { count, net:const(most) }, "stop") end
  return net
end

local function counting(most)
  local ws, net = workspace {}, counter(most)
  ws:feed("count", neap.zeros(1))
  ws:feed("minus", -1)
  return ws, net
end

describe("A workspace with a shared parent", function()
  it("reads fall through, and create of a name of the parent's gives the parent's blob", function()
    local parent = workspace {}
    parent:feed("a", neap.tensor { 1, 2 })
    local child = parent:child {}
    assert.are.same({ 1, 2 }, numbers(child:fetch "a"))
    child:create "a"
    child:feed("a", neap.tensor { 3, 4 })
    assert.are.same({ 3, 4 }, numbers(parent:fetch "a"))
    assert.is_false(child:remove "a") -- not its own
    child:feed("own", 1)
    assert.is_false(parent:has "own")
  end)

  it("hides the parent's blob by one of its own, until that is removed", function()
    local parent = workspace {}
    parent:feed("a", neap.tensor { 1 })
    local child = parent:child {}
    child:create_local "a"
    raises("nothing has been fed", child.fetch, child, "a")
    child:feed("a", neap.tensor { 2 })
    assert.are.same({ 1 }, numbers(parent:fetch "a"))
    assert.is_true(child:remove "a")
    assert.are.same({ 1 }, numbers(child:fetch "a"))
  end)

  it("lets a child's net write a blob that was created in the parent", function()
    local parent = workspace {}
    parent:create "y"
    local child = parent:child {}
    child:run(unary("n", "Neg"), { x = neap.tensor { 1, 2 } })
    assert.are.same({ -1, -2 }, numbers(parent:fetch "y"))
  end)
end)

describe("Forwarded names", function()
  it("are all that a child sees; parent and name must exist", function()
    local parent = workspace {}
    parent:feed("w", neap.tensor { 1 })
    parent:feed("v", neap.tensor { 2 })
    local child = parent:child { forward = { inner = "w" } }
    assert.are.same({ 1 }, numbers(child:fetch "inner"))
    assert.is_false(child:has "v" or child:has "w")
    raises("no such blob", function() parent:child { forward = { inner = "nobody" } } end)
    raises("to a parent only", workspace, { forward = { inner = "w" } })
  end)

  it("are looked up when they are used: nothing is copied", function()
    local parent = workspace {}
    parent:feed("w", neap.tensor { 1 })
    collectgarbage()
    local before, child = neap.memory().held, parent:child { forward = { inner = "w" } }
    assert.are.equal(before, neap.memory().held)
    parent:feed("w", neap.tensor { 5 })
    assert.are.same({ 5 }, numbers(child:fetch "inner"))
    parent:remove "w"
    raises("no such blob", child.fetch, child, "inner")
    parent:feed("w", neap.tensor { 6 })
    assert.are.same({ 6 }, numbers(child:fetch "inner"))
  end)

  it("come after own names and before the parent's", function()
    local parent = workspace {}
    parent:feed("a", neap.tensor { 1 })
    parent:feed("b", neap.tensor { 2 })
    local child = parent:child {}
    assert.are.same({ 1 }, numbers(child:fetch "a"))
    child:forward("a", "b")
    assert.are.same({ 2 }, numbers(child:fetch "a"))
    assert.are.same({ 2 }, numbers(child:fetch "b")) -- still falls through
    child:create_local "a"
    child:feed("a", neap.tensor { 3 })
    assert.are.same({ 3 }, numbers(child:fetch "a"))
  end)

  it("may be given twice with one target; another target or an own blob is an \z
      error, unless skipped", function()
    local parent = workspace {}
    parent:feed("a", neap.tensor { 1 })
    parent:feed("b", neap.tensor { 2 })
    local child = parent:child {}
    child:forward("x", "a"):forward("x", "a")
    raises("is forwarded to both \"a\" and \"b\"", child.forward, child, "x", "b")
    child:feed("own", neap.tensor { 3 })
    raises("it is a blob here", child.forward, child, "own", "a")
    child:forward("own", "a", { skip = true })
    assert.are.same({ 3 }, numbers(child:fetch "own"))
    raises("no such blob", child.forward, child, "z", "nobody")
    raises("to a parent only", parent.forward, parent, "z", "a")
  end)

  it("become local copies on request, tensors only", function()
    local parent = workspace {}
    parent:feed("a", neap.tensor { 1 })
    parent:feed("s", "text")
    local child = parent:child { forward = { x = "a" } }
    child:copy_forwarded()
    child:feed("x", neap.tensor { 7 })
    assert.are.same({ 1 }, numbers(parent:fetch "a"))
    assert.is_true(child:remove "x")
    assert.are.same({ 1 }, numbers(child:fetch "x"))
    child:forward("t", "s")
    raises("only tensors", child.copy_forwarded, child)
    assert.is_false(child:remove "x") -- nothing was copied
  end)

  it("let a net in the child write the parent's blob, though the net would not keep it", function()
    local parent = workspace {}
    parent:create "out"
    local child = parent:child { forward = { y = "out" } }
    local net = unary("n", "Neg")
    net:Exp("y", "z")
    child:run(net, { x = neap.tensor { 1, 2 } })
    assert.are.same({ -1, -2 }, numbers(parent:fetch "out"))
  end)
end)

describe("Names", function()
  it("are renamed only when they are own and the new one means nothing", function()
    local parent = workspace {}
    parent:feed("p", neap.tensor { 1 })
    local child = parent:child {}
    child:feed("a", neap.tensor { 2 })
    child:rename("a", "b")
    assert.are.same({ 2 }, numbers(child:fetch "b"))
    raises("only own blobs", child.rename, child, "p", "q")
    raises("already", child.rename, child, "b", "p")
    raises("no such blob", child.rename, child, "nobody", "q")
    assert.is_true(child:has "b" and child:has "p")
  end)

  it("are created once: a second create leaves what is there", function()
    local ws = workspace {}
    ws:feed("a", neap.tensor { 1 })
    ws:create("a"):create_local "a"
    assert.are.same({ 1 }, numbers(ws:fetch "a"))
    assert.is_true(ws:remove "a")
    assert.is_false(ws:remove "a")
  end)

  it("of all workspaces that are alive can be visited", function()
    local ws, found = workspace {}, {}
    neap.for_each_workspace(function(one) found[one] = true end)
    assert.is_true(found[ws])
    local n = #neap.workspaces()
    local child, youngest = ws:child {}, workspace {}
    assert.are.equal(n + 2, #neap.workspaces())
    child:close()
    assert.are.equal(n + 1, #neap.workspaces())
    assert.are.equal(youngest, neap.workspaces()[1], "the newest is first, whichever was closed")
    youngest:close()
    assert.are.equal(n, #neap.workspaces())
  end)
end)

describe("Typed blobs", function()
  it("hold tensors, numbers, strings of any bytes, and scopes", function()
    local ws = workspace {}
    ws:feed("t", neap.tensor { 1, 2 })
    ws:feed("n", 3.5)
    ws:feed("s", "a\0b")
    local scope = ws:create_scope "stack"
    assert.are.same({ 1, 2 }, numbers(ws:fetch "t"))
    assert.are.equal(3.5, ws:fetch("n"):item())
    assert.are.equal("a\0b", ws:fetch "s")
    assert.are.equal(scope, ws:fetch "stack")
    local kinds = {}
    for _, row in ipairs(ws:blobs()) do kinds[row.name] = row.kind end
    assert.are.same({ t = "tensor", n = "tensor", s = "string", stack = "scope" }, kinds)
  end)

  it("change their kind when they are fed another one", function()
    local ws = workspace {}
    ws:feed("a", "text")
    ws:feed("a", neap.tensor { 1 })
    assert.are.same({ 1 }, numbers(ws:fetch "a"))
    ws:feed("a", "again")
    assert.are.equal("again", ws:fetch "a")
    ws:feed("a", "")
    assert.are.equal("", ws:fetch "a")
  end)

  it("that are no tensors are no operands: the error names net and blob, \z
      before a run and after", function()
    local ws, net = workspace {}, unary("n", "Neg")
    ws:feed("x", "text")
    local err = raises("holds a string; only tensors are operands", ws.compile, ws, net)
    assert.are.equal("x", err.blob)
    ws:feed("x", neap.tensor { 1, 2 })
    local program = ws:compile(net)
    program:run()
    ws:feed("x", "text")
    raises("only tensors are operands", program.run, program)
    ws:create_scope "x"
    raises("holds a scope", program.run, program)
    raises("holds a scope", ws.view, ws, "x")
    ws:feed("x", neap.tensor { 3, 4 })
    program:run()
    assert.are.same({ -3, -4 }, numbers(ws:fetch "y"))
  end)

  it("parameters stay tensors", function()
    local ws, net = workspace {}, neap.net "n"
    net:param("w", { 2 }, 1)
    net:Neg("w", "y")
    ws:init(net)
    raises("stay tensors", ws.feed, ws, "w", "text")
    local other = workspace {}
    other:feed("w", "text")
    raises("holds a string", other.init, other, net)
  end)
end)

describe("Sizes", function()
  it("are listed the largest first, with shape, percent and a total", function()
    local ws = workspace {}
    ws:feed("small", neap.zeros(10))
    ws:feed("large", neap.zeros(3, 10))
    ws:feed("text", "12345678")
    local sizes = ws:sizes()
    assert.are.same({ "large", "small", "text", "total" }, {
      sizes[1].name, sizes[2].name, sizes[3].name, sizes[4].name,
    })
    assert.are.equal("(3,10)", sizes[1].shape)
    assert.are.same({ 120, 40, 8, 168 }, {
      sizes[1].bytes, sizes[2].bytes, sizes[3].bytes, sizes[4].bytes,
    })
    assert.are.equal(168, sizes.bytes)
    assert.is_true(math.abs(sizes[1].percent - 100 * 120 / 168) < 1e-9)
    assert.is_truthy(tostring(sizes):find("total", 1, true))
  end)

  it("count storage that names share once, in whole or in part", function()
    local ws, t = workspace {}, neap.zeros(100)
    ws:feed("a", t, { share = true })
    ws:feed("b", t, { share = true })
    ws:feed("half", t:narrow(1, 1, 50), { share = true })
    assert.are.equal(400, ws:sizes().bytes)
    ws:remove "a"
    ws:remove "b"
    assert.are.equal(200, ws:sizes().bytes)
    ws:feed("rest", t:narrow(1, 26, 50), { share = true })
    assert.are.equal(300, ws:sizes().bytes)
  end)

  it("leave out what is the parent's, and count the arena once for all programs", function()
    local parent = workspace {}
    parent:feed("p", neap.zeros(1000))
    local child = parent:child {}
    child:feed("x", neap.tensor { 1, 2 })
    local net = unary("n", "Neg", "x", "h")
    net:Exp("h", "y")
    child:run(net)
    local sizes = child:sizes()
    assert.are.equal(8 + 8 + child:arena_bytes(), sizes.bytes)
  end)
end)

describe("Nets by name", function()
  it("are created, found, overwritten and deleted", function()
    local ws = workspace {}
    local a, b = unary("n", "Neg"), unary("n", "Exp")
    ws:add_net(a)
    assert.are.equal(a, ws:net "n")
    raises("a net \"n\" already", ws.add_net, ws, b)
    ws:add_net(b, { overwrite = true })
    assert.are.equal(b, ws:net "n")
    assert.is_true(ws:delete_net "n")
    assert.is_false(ws:delete_net "n")
    raises("no net \"n\"", ws.net, ws, "n")
    raises("no net \"n\"", ws.run, ws, "n")
  end)

  it("are seen by children", function()
    local ws = workspace {}
    ws:add_net(unary("n", "Neg"))
    assert.are.same({ -1, -2 }, numbers(ws:child {}:run("n", { x = neap.tensor { 1, 2 } }).y))
  end)

  it("are listed, a workspace's own before its parents', each name once", function()
    local ws = workspace {}
    local child = ws:child {}
    assert.are.same({}, child:nets())
    for _, name in ipairs { "n", "m" } do ws:add_net(unary(name, "Neg")) end
    child:add_net(unary("n", "Exp"))
    assert.are.same({ "n", "m" }, ws:nets())
    assert.are.same({ "n", "m" }, child:nets())
    assert.are_not.equal(ws:net "n", child:net "n")
    child:delete_net "n"
    assert.are.equal(ws:net "n", child:net "n")
    assert.is_false(child:delete_net "n")
    assert.are.equal(2, #child:nets())
  end)

  it("stay their maker's: what is added later runs, and closing the handle \z
      takes nothing away", function()
    local ws = workspace {}
    local net = unary("n", "Neg")
    ws:add_net(net)
    net:Exp("y", "z")
    assert.are.same({ 1, 1 }, numbers(ws:run("n", { x = neap.zeros(2) }).z))
    do local _ <close> = net end
    raises("was closed", net.text, net)
    assert.are.same({ 1, 1 }, numbers(ws:run("n", { x = neap.zeros(2) }).z))
    assert.is_truthy(ws:net("n"):text():find "Exp")
  end)

  it("keep their programs while the workspace has them, though nobody holds the handle", function()
    local ws = workspace {}
    ws:create_net "net n\ninput x f32 (2)\ny = Neg(x)\n"
    ws:run("n", { x = neap.zeros(2) })
    support.settle()
    local takes = neap.memory().n_live
    for _ = 1, 3 do
      ws:run("n", { x = neap.zeros(2) })
      support.settle()
    end
    assert.are.equal(takes, neap.memory().n_live)
    ws:delete_net "n"
    support.settle()
    assert.is_true(neap.memory().n_live < takes)
  end)

  it("are subnets too, which live as long as somebody holds them", function()
    local net = neap.net "outer"
    net:input("x", { 2 })
    local inner
    net:If(net:input("c", {}, "bool"), function(b) inner = b return b:Neg "x" end,
      function(b) return b:Exp "x" end)
    do local _ <close> = net end
    net = nil -- luacheck: ignore
    support.settle()
    assert.is_truthy(inner:text():find "Neg")
    assert.is_truthy(tostring(inner):find "1 ops")
  end)

  it("leave nothing when their creation fails", function()
    local ws = workspace {}
    raises("unknown op type", ws.create_net, ws, "net bad\ninput x f32 (2)\ny = Nonsense(x)\n")
    raises("boom", ws.create_net, ws, function() error "boom" end, { name = "bad" })
    raises("no net \"bad\"", ws.net, ws, "bad")
    local net = ws:create_net("net good\ninput x f32 (2)\ny = Neg(x)\n")
    assert.are.equal(net, ws:net "good")
    raises("already", ws.create_net, ws, "net good\ninput x f32 (2)\ny = Exp(x)\n")
    assert.are.equal(net, ws:net "good")
  end)

  it("run once, without a program that stays", function()
    local ws = workspace {}
    ws:feed("x", neap.tensor { 1, 2 })
    collectgarbage()
    local net = unary("n", "Neg")
    ws:run_once(net)
    assert.are.same({ -1, -2 }, numbers(ws:fetch "y"))
    local held = neap.memory().held
    ws:run_once(net)
    assert.are.equal(held, neap.memory().held)
    local blobs = #ws:blobs()
    raises("has not been fed", ws.run_once, ws, unary("m", "Neg", "nobody", "z"))
    raises("holds a string", function()
      ws:feed("text", "no")
      ws:run_once(unary("m", "Neg", "text", "zz"))
    end)
    assert.is_false(ws:has "zz")
    assert.is_true(#ws:blobs() >= blobs)
  end)
end)

describe("Step trees", function()
  it("run nets in order, a number of iterations, with substeps inside", function()
    local ws, net = counting()
    ws:run_steps { net }
    ws:run_steps { net, net, iterations = 3 }
    ws:run_steps { { net, iterations = 2 }, { { net }, { net } }, iterations = 10 }
    assert.are.equal(1 + 6 + 40, ws:fetch("count")[1])
  end)

  it("stop when the stop blob is true", function()
    local ws, net = counting(7)
    ws:feed("stop", neap.tensor({ 0 }, "bool"))
    ws:run_steps { net, stop = "stop" }
    assert.are.equal(7, ws:fetch("count")[1])
    ws:run_steps { net, stop = "stop" } -- looked at before each net: it is true still
    assert.are.equal(7, ws:fetch("count")[1])
  end)

  it("say what is wrong before anything runs", function()
    local ws, net = counting()
    local function fails(words, tree)
      raises(words, ws.run_steps, ws, tree)
      assert.are.equal(0, ws:fetch("count")[1])
    end
    fails("nets and substeps", { net, { net } })
    fails("number of iterations and a stop blob", {
      { net }, { net, iterations = 2, stop = "count" },
    })
    fails("there is no net \"nobody\"", { { net }, { "nobody" } })
    fails("two nets are named \"counter\"", { net, counter() })
    fails("two nets are named", { nets = { net, counter() }, "counter" })
    fails("stop blob \"nobody\" does not exist", { { net }, { net, stop = "nobody" } })
    ws:feed("f", neap.zeros(1))
    ws:feed("two", neap.tensor({ 0, 0 }, "bool"))
    fails("must be one bool, got f32 (1)", { net, stop = "f" })
    fails("must be one bool, got bool (2)", { net, stop = "two" })
    fails("a report net needs an interval", { net, report = net })
    local deep = { net }
    for _ = 1, 66 do deep = { deep } end
    fails("nested too deeply", deep)
    fails("did you mean", { net, iteration = 3 })
    fails("iterations expects an integer of at least 1, got -1", { net, iterations = -1 })
    fails("got a number", { net, 3 })
    ws:feed("text", "t")
    fails("holds a string", { { net }, { unary("m", "Neg", "text", "out") } })
  end)

  it("that are empty are fine, with a warning", function()
    local ws = workspace {}
    local same, warning = ws:run_steps {}
    assert.are.equal(ws, same)
    assert.is_truthy(warning:find("empty", 1, true))
    ws:feed("x", neap.tensor { 1, 2 })
    assert.is_nil((select(2, ws:run_steps { unary("n", "Exp") })))
  end)

  it("with create_workspace run in a child that ends with each execution", function()
    local ws = workspace {}
    ws:feed("x", neap.tensor { 1, 2 })
    local n, held = #neap.workspaces(), neap.memory().held
    ws:run_steps {
      { unary("n", "Neg"), unary("m", "Exp", "y", "z"), create_workspace = true }, iterations = 3,
    }
    assert.is_false(ws:has "y" or ws:has "z")
    assert.are.equal(n, #neap.workspaces())
    assert.are.equal(held, neap.memory().held)
  end)

  it("run concurrent substeps, whose results land in the workspace", function()
    local ws = workspace {}
    ws:feed("x", neap.tensor { 1, 2 })
    ws:run_steps {
      { unary("neg", "Neg", "x", "a"), iterations = 20 },
      { unary("double", "Abs", "x", "b"), iterations = 20 },
      { unary("exp", "Exp", "x", "c") }, concurrent = true,
    }
    assert.are.same({ -1, -2 }, numbers(ws:fetch "a"))
    assert.are.same({ 1, 2 }, numbers(ws:fetch "b"))
    assert.is_true(ws:fetch("c"):close(neap.tensor { math.exp(1), math.exp(2) }))
  end)

  it("train two nets side by side to the bits that one thread gives", function()
    local function training(k)
      local net = neap.net("train" .. k)
      local x, t = net:input("x", { 8, 4 }), net:input("t", { 8 }, "i64")
      local h = net:FC({ x, net:param("w" .. k, { 16, 4 }, neap.init.xavier {}) }, "h" .. k):tanh()
      local y = net:FC({ h, net:param("v" .. k, { 3, 16 }, neap.init.xavier {}) }, "y" .. k)
      local loss = net:SoftmaxCrossEntropy({ y, t }, "loss" .. k)
      neap.optim.SGD { lr = 0.1 }:apply(net, net:gradient(loss))
      return net:outputs { loss }
    end
    local function run(concurrent)
      local ws = workspace { seed = 5 }
      neap.seed(1)
      ws:feed("x", neap.randn(8, 4))
      ws:feed("t", neap.tensor({ 0, 1, 2, 0, 1, 2, 0, 1 }, "i64"))
      ws:feed("lr", 0.1)
      ws:run_steps({
        { training(1), iterations = 30 }, { training(2), iterations = 30 }, concurrent = concurrent,
      }, { threads = 1 })
      return ws
    end
    local alone, together = run(false), run(true)
    for _, name in ipairs { "w1", "v1", "w2", "v2", "loss1", "loss2" } do
      assert.is_true(alone:fetch(name):equal(together:fetch(name)), name)
    end
    assert.is_true(together:fetch("loss1"):item() < 1)
  end)

  it("give concurrent substeps one thread each, and its bits", function()
    -- The gradient of a convolution's weight is added up in as many parts as there are threads.
    local shape = { 16, 3, 24, 24 }
    local function gradient()
      local net = neap.net "gradient"
      local w = net:param("w", { 16, 3, 3, 3 }, neap.init.xavier {})
      local y = net:Tanh(net:Conv({ net:input("x", shape), w }, "c", { pad = 1 }))
      net:outputs { net:gradient(net:Sum(y, "loss"))[w] }
      return net
    end
    local function run(step, options)
      local ws = workspace { seed = 1 }
      ws:feed("x", neap.linspace(-1, 1, 16 * 3 * 24 * 24):reshape(table.unpack(shape)))
      ws:feed("v", neap.ones(2))
      ws:run_steps(step, options)
      return ws:fetch "w_grad"
    end
    local before = neap.threads()
    neap.threads(2)
    local alone = run({ gradient() }, { threads = 1 })
    local together = run { { gradient() }, { unary("neg", "Neg", "v", "a") }, concurrent = true }
    neap.threads(before)
    assert.is_true(alone:equal(together))
  end)

  it("refuse concurrent substeps that would write what another one writes or reads", function()
    local ws = workspace {}
    ws:feed("x", neap.tensor { 1, 2 })
    local neg = unary("neg", "Neg", "x", "y")
    local exp = unary("exp", "Exp", "x", "y")
    local read = unary("read", "Abs", "y", "z")
    local err = raises("would meet at blob \"y\"", ws.run_steps, ws,
      { { neg }, { exp }, concurrent = true })
    assert.are.equal("y", err.blob)
    raises("would meet at blob \"y\"", ws.run_steps, ws,
      { { neg }, { { read } }, concurrent = true })
    raises("would meet at blob \"y\"", ws.run_steps, ws, { neg, instances = 2 })
    assert.is_false(pcall(ws.fetch, ws, "y"))
    local makes = neap.net "makes" -- its first blob is the one they share
    makes:Constant({}, "c", { shape = { 2 }, value = 1 })
    ws:feed("c", neap.tensor { 1, 2 })
    raises("would meet at blob \"c\"", ws.run_steps, ws, {
      { makes }, { unary("reads", "Abs", "c", "d") }, concurrent = true,
    })
  end)

  it("run instances of a step side by side, each with blobs of its own", function()
    local ws = workspace {}
    ws:feed("x", neap.tensor { 1, 2 })
    ws:run_steps { unary("neg", "Neg"), instances = 4, create_workspace = true, iterations = 5 }
    assert.is_false(ws:has "y")
  end)

  it("stop all at the first failure of a concurrent substep", function()
    local ws, count = counting()
    ws:feed("x", neap.tensor { 1, 2 })
    local bad = neap.net "bad"
    bad:input("table", { 4, 2 })
    bad:input("index", { 1 }, "i64")
    bad:op("Embedding", { "index", "table" }, "row")
    ws:feed("table", neap.zeros(4, 2))
    ws:feed("index", neap.tensor({ 9 }, "i64"))
    raises("Embedding", ws.run_steps, ws, {
      { count, iterations = 1000000000 }, { bad }, concurrent = true,
    })
    assert.is_true(ws:fetch("count")[1] < 1e9)
  end)

  it("repeat a periodic substep until its siblings have ended", function()
    local ws, count = counting()
    ws:feed("other", neap.zeros(1))
    ws:feed("back", -1)
    local other = counter(nil, "other", "back")
    ws:run_steps {
      { count, run_every_ms = 1 }, { other, iterations = 5, run_every_ms = 40 },
      concurrent = true,
    }
    -- the one as often as there is time, the other as often as it was told
    assert.is_true(ws:fetch("count")[1] > 1)
    assert.are.equal(5, ws:fetch("other")[1])
  end)

  it("run the report net at its interval, and at the end", function()
    local ws, count = counting()
    ws:feed("x", neap.tensor { 1, 2 })
    ws:run_steps { unary("neg", "Neg"), iterations = 3, report = count, report_every_ms = 100000 }
    assert.are.equal(1, ws:fetch("count")[1])
    ws:run_steps {
      unary("neg", "Neg"), iterations = 5, run_every_ms = 3, report = count, report_every_ms = 1,
    }
    assert.is_true(ws:fetch("count")[1] > 2)
  end)

  it("stop at an interrupt", function()
    local core = require "neap.core"
    local ws, count = counting()
    core.interrupt()
    local err = raises("interrupted", ws.run_steps, ws, { count, iterations = 1000000000 })
    assert.are.equal("interrupted", err.code)
    assert.are.equal(0, ws:fetch("count")[1])
    ws:run_steps { count }
    assert.are.equal(1, ws:fetch("count")[1])
  end)
end)

describe("one op on named blobs", function()
  local function ready()
    local ws = neap.workspace { seed = 3, store = false }
    ws:feed("a", neap.tensor { 1, -2, 3 })
    ws:feed("b", neap.tensor { 10, 20, 30 })
    return ws
  end

  it("reads blobs, makes and writes blobs, and may work in place", function()
    local ws <close> = ready()
    assert.are.equal(ws, ws:run_op("Add", { "a", "b" }, "c"))
    assert.are.same({ 11, 18, 33 }, ws:fetch("c"):totable())
    neap.memonger.process_op(ws, "Relu", "a", { "a" })
    assert.are.same({ 1, 0, 3 }, ws:fetch("a"):totable())
    ws:run_op("Sum", "c", "s", { keepdim = true }):run_op("Cast", "s", "i", { to = "i64" })
    assert.are.same({ 62 }, ws:fetch("i"):totable())
    ws:feed("lr", neap.tensor { 0.5 })
    ws:run_op("Sgd", { "a", "b", "lr" }, "a")
    assert.are.same({ -4, -10, -12 }, ws:fetch("a"):totable())
    ws:run_op("NonZero", "a", "n")
    assert.are.equal(3, ws:fetch("n"):n_element())
  end)

  it("writes the bytes that programs read", function()
    local ws <close> = ready()
    local net = neap.net "n"
    net:param("w", { 3 }, neap.init.constant(2))
    net:Copy("w", "y")
    ws:run(net)
    ws:run_op("Copy", "b", "w")
    assert.are.same({ 10, 20, 30 }, ws:run(net).y:totable())
    ws:run_op("Add", { "y", "a" }, "z") -- an output of the last run
    assert.are.same({ 11, 18, 33 }, ws:fetch("z"):totable())
  end)

  it("guesses at a name only where one is near", function()
    local ws <close> = ready()
    ws:feed("velocity", neap.ones(1))
    assert.are.equal('did you mean "velocity"?',
      raises('"velocty"', ws.run_op, ws, "Relu", "velocty", "y").hint)
    assert.is_nil(raises('"momentum"', ws.run_op, ws, "Relu", "momentum", "y").hint)
  end)

  it("writes all outputs or none, and leaves no blob behind that was not there", function()
    local ws <close> = ready()
    local net = neap.net "n"
    net:param("w", { 3 }, neap.init.constant(2))
    net:Copy("w", "y")
    ws:run(net)
    ws:feed("pair", neap.tensor { { 5, 6 } })
    for _, outputs in ipairs { { "a", "w" }, { "fresh", "w" } } do
      raises('"w"', ws.run_op, ws, "Split", "pair", outputs, { axis = 2 })
    end
    assert.are.same({ 1, -2, 3 }, ws:fetch("a"):totable())
    assert.is_false(ws:has "fresh")
    assert.are.same({ 2, 2, 2 }, ws:fetch("w"):totable())
  end)

  it("draws by the workspace: anew each time, and the same after the same seed", function()
    local function draws()
      local ws <close> = ready()
      ws:feed("ones", neap.ones(64))
      local first = ws:run_op("Dropout", "ones", "d"):fetch "d"
      return first, ws:run_op("Dropout", "ones", "d"):fetch "d"
    end
    local a, b = draws()
    assert.is_false(a:equal(b))
    local c, d = draws()
    assert.is_true(a:equal(c) and b:equal(d))
  end)

  it("says what is wrong and leaves all blobs as they were", function()
    local ws <close> = ready()
    raises("no such blob", ws.run_op, ws, "Relu", "nobody", "y")
    raises("did you mean \"Relu\"", ws.run_op, ws, "Rellu", "a", "y")
    raises("works in a net only", ws.run_op, ws, "Free", "a", {})
    raises("unknown attribute", ws.run_op, ws, "Relu", "a", "y", { slope = 1 })
    raises("expects 2 inputs", ws.run_op, ws, "Add", { "a", "b", "a" }, "y")
    ws:feed("text", "words")
    raises("string", ws.run_op, ws, "Relu", "text", "y")
    ws:feed("odd", neap.tensor { 1, 2 })
    raises("does not broadcast", ws.run_op, ws, "Add", { "a", "odd" }, "a")
    raises("expects (type", ws.run_op, ws, nil, "a", "y")
    assert.is_false(ws:has "y")
    assert.are.same({ 1, -2, 3 }, ws:fetch("a"):totable())
  end)
end)

describe("the current workspace", function()
  local function close_all()
    for _, name in ipairs(neap.workspace_names()) do
      neap.switch_workspace(name)
      neap.reset_workspace { store = false }
    end
    neap.switch_workspace "default"
  end

  it("is switched by name: what each holds stays apart, and is there again", function()
    local _ <close> = setmetatable({}, { __close = close_all })
    local first, name = neap.current_workspace()
    assert.are.equal("default", name)
    local there = {}
    for _, one in ipairs(neap.workspace_names()) do there[one] = true end
    first:feed("x", neap.tensor { 1 })
    raises({ "there is no workspace \"other\"", "switch_workspace(name, true)" },
      neap.switch_workspace, "other")
    assert.are.equal(first, (neap.current_workspace()))
    local other = neap.switch_workspace("other", true)
    assert.are_not.equal(first, other)
    assert.are.equal("other", select(2, neap.current_workspace()))
    assert.is_false(other:has "x")
    other:feed("x", neap.tensor { 2 })
    assert.are.equal(first, neap.switch_workspace "default")
    assert.are.equal(1, neap.current_workspace():fetch("x"):item())
    -- it is there: it is not made again
    assert.are.equal(2, neap.switch_workspace("other", true):fetch("x"):item())
    local names = {} -- those of other files apart
    for _, one in ipairs(neap.workspace_names()) do
      if not there[one] then names[#names + 1] = one end
    end
    assert.are.same({ "other" }, names)
    assert.is_true(there.default)
    raises("did you mean \"other\"", neap.switch_workspace, "othre")
    raises("expects a name", neap.switch_workspace, nil)
  end)

  it("is made anew by a reset, the others are not", function()
    local _ <close> = setmetatable({}, { __close = close_all })
    local kept = neap.switch_workspace("kept", true)
    kept:feed("x", neap.tensor { 3 })
    neap.switch_workspace "default"
    local old = neap.current_workspace()
    old:feed("x", neap.tensor { 1 })
    raises("unknown", neap.reset_workspace, { sead = 1 })
    assert.are.equal(1, neap.current_workspace():fetch("x"):item())
    local fresh = neap.reset_workspace { seed = 7, store = false }
    assert.are.equal(fresh, (neap.current_workspace()))
    assert.is_false(fresh:has "x")
    assert.are.equal(7, fresh:seed())
    assert.are.equal(3, neap.switch_workspace("kept"):fetch("x"):item())
  end)
end)
