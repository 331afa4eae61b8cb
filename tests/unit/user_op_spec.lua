--- Ops of users: neap.op, in Lua, and neap.load_ops, in C. They are ops like any other.
local neap = require "neap"
local nn = neap.nn

local function said(words, f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok)
  for _, text in ipairs(type(words) == "table" and words or { words }) do
    assert.is_truthy(tostring(err):find(text, 1, true), tostring(err))
  end
end

neap.op { "SpecCube", inputs = { "x" }, outputs = { "y" },
  attrs = { { "scale", "number", 1, doc = "a factor" } },
  run = function(o, x) return x * x * x * o.scale end,
  grad = function(o, x, _, dy) return dy * x * x * (3 * o.scale) end,
  cost = function(_, x) return 3 * (x.shape[1] or 1) end,
  cases = "{ {x={2,3}}, {x={4}, scale=2} }" }

describe("an op of a script", function()
  local x = neap.tensor { 1, 2, 3 }

  it("is a function and a method of tensors, of blobs and of nets", function()
    assert.are.same({ 1, 8, 27 }, neap.spec_cube(x):totable())
    assert.are.same({ 2, 16, 54 }, x:spec_cube { scale = 2 }:totable())
    assert.are.same({ 3, 24, 81 }, x:spec_cube(3):totable())
    local net = neap.net "n"
    local y = net:SpecCube({ net:input("a", { 3 }) }, "y", { scale = 2 })
    net:outputs { y:spec_cube() }
    local ws <close> = neap.workspace { store = false }
    local results = ws:run(net, { a = x })
    assert.are.same({ 8, 4096, 157464 }, select(2, next(results)):totable())
    local again = neap.net_from(net:text())
    assert.are.same({ 8, 4096, 157464 }, select(2, next(ws:run(again, { a = x }))):totable())
  end)

  it("has a page, and is one of the ops", function()
    local page = tostring(neap.help "SpecCube")
    for _, words in ipairs { "scale", "a factor", "user_op_spec.lua:", "an input" } do
      assert.is_truthy(page:find(words, 1, true), words)
    end
    local found = false
    for _, row in ipairs(neap.ops()) do found = found or row.name == "SpecCube" end
    assert.is_true(found)
    assert.is_true(neap.check.op("SpecCube").same)
  end)

  it("has gradients of gradients, planned and in a dag", function()
    local f = function(t) return t:spec_cube { scale = 2 }:sum() end
    assert.are.same({ 6, 24, 54 }, neap.grad(f)(x):totable())
    assert.are.same({ { 12, 0, 0 }, { 0, 24, 0 }, { 0, 0, 36 } }, neap.hessian(f)(x):totable())
    local function net()
      local n = neap.net "planned"
      local w = n:param("w", { 4, 3 }, neap.init.uniform { -1, 1 })
      local loss = n:Mean({ n:SpecCube({ n:MatMul { n:input("a", { 5, 4 }), w } }) }, "loss")
      n:gradient(loss)
      return n
    end
    for _, executor in ipairs { "simple", "dag" } do
      assert.is_true(neap.check.plan(net(), { executor = executor, poison = true }).same)
    end
  end)

  it("runs on the calling thread, whatever the dag has for others", function()
    local net = neap.net "beside"
    local a = net:input("x", { 200, 300 })
    local b, c = a, a
    for _ = 1, 4 do a, b, c = a:sin(), b:spec_cube(), c:cos() end
    net:outputs { a, b, c }
    local ws <close> = neap.workspace { store = false }
    local t = neap.rand(200, 300)
    local want = ws:run(net, { x = t })
    for k = 1, 24 do
      local got = ws:run(net, { x = t }, { executor = "dag", threads = k % 2 + 1 })
      for name, y in pairs(want) do assert.is_true(y:equal(got[name])) end
    end
  end)

  it("trains in a model, which a file can't hold", function()
    local m = nn.Sequential { input = { 3 }, nn.Linear { 3, 4 },
      nn.Lambda(function(t) return t:spec_cube() end), nn.Linear { 4, 2 } }
    assert.is_true(neap.check.gradient(m, { neap.rand(5, 3) }).same)
    local t = neap.trainer { model = m, loss = nn.MseLoss(),
      optimizer = neap.optim.SGD { lr = 0.1 } }
    local batch = { x = neap.rand(8, 3), y = neap.rand(8, 2) }
    local first = t:step(batch).loss
    for _ = 1, 20 do t:step(batch) end
    assert.is_true(t:step(batch).loss < first)
    local path = os.tmpname() .. ".safetensors"
    said({ "SpecCube \"", "a script computes it (user_op_spec.lua:", "no model file" }, neap.export,
      m, path)
    os.remove(path)
  end)

  it("gives its error where it is called, and leaves nothing behind", function()
    neap.op { "SpecFussy", inputs = { "x" }, outputs = { "y" }, grad = "d.x = d.y",
      run = function(_, t)
        if t:sum():item() > 100 then error "too much" end
        return t
      end }
    said({ "SpecFussy", "too much" }, neap.spec_fussy, neap.full { 3, value = 100 })
    local net = neap.net "n"
    local w = net:param("w", { 3 }, neap.init.constant(1))
    local a = net:input("a", { 3 })
    local loss = net:Sum({ net:SpecFussy { net:Mul { a, w } } }, "loss")
    neap.optim.SGD { lr = 0.1 }:apply(net, net:gradient(loss))
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    local feeds = { a = neap.full { 3, value = 100 }, lr = neap.tensor(0.1) }
    said({ "SpecFussy \"spec_fussy_1\"", "too much" }, ws.run, ws, net, feeds)
    assert.are.same({ 1, 1, 1 }, ws:fetch("w"):totable())
    feeds.a = neap.ones(3)
    ws:run(net, feeds)
    assert.is_true(ws:fetch("w"):close(neap.full { 3, value = 0.9 }))
  end)

  it("is held to what it says of its outputs", function()
    neap.op { "SpecWrong", inputs = { "x" }, outputs = { "y" },
      run = function(_, t) return t:sum() end }
    said("run gives f32 () as y, expected f32 (3)", neap.spec_wrong, x)
    neap.op { "SpecNothing", inputs = { "x" }, outputs = { "y" }, run = function() end }
    said("run gives a nil as y", neap.spec_nothing, x)
    neap.op { "SpecShapeless", inputs = { "x" }, outputs = { "y" },
      infer = function() return { 3 } end, run = function(_, t) return t end }
    said("infer gives no { dtype =, shape = } for y", neap.spec_shapeless, x)
    neap.op { "SpecGradWrong", inputs = { "x" }, outputs = { "y" },
      run = function(_, t) return t end, grad = function(_, _, _, dy) return dy:sum() end }
    said({ "SpecGradWrong", "grad gives f32 ()" },
      neap.grad(function(t) return t:spec_grad_wrong():sum() end), x)
    said("no gradient is defined through SpecWrong",
      neap.grad(function(t) return t:spec_wrong():sum() end), x)
    said("scale expects a number", neap.spec_cube, x, { scale = "a" })
    said("did you mean \"scale\"", neap.spec_cube, x, { skale = 2 })
    said("does not take dtype i64", neap.spec_cube, neap.tensor({ 1 }, "i64"))
  end)

  it("does not get at nets and workspaces that are at work", function()
    local ws <close>, net = neap.workspace { store = false }, neap.net "outer"
    neap.op { "SpecReenter", inputs = { "x" }, outputs = { "y" }, run = function(_, t)
      ws:run(net, { a = t })
      return t
    end }
    net:outputs { net:SpecReenter({ net:input("a", { 2 }) }, "y") }
    said("is at work", ws.run, ws, net, { a = neap.ones(2) })
    neap.op { "SpecInner", inputs = { "x" }, outputs = { "y" }, run = function(_, t)
      local inner = neap.net "inner"
      inner:outputs { inner:Exp({ inner:input("a", t.shape) }, "y") }
      local own <close> = neap.workspace { store = false }
      return own:run(inner, { a = t }).y
    end }
    assert.is_true(neap.spec_inner(x):close(x:exp()))
  end)

  it("runs in coroutines, and within itself", function()
    assert.are.same({ 1, 8, 27 },
      coroutine.wrap(function() return neap.spec_cube(x) end)():totable())
    neap.op { "SpecSumTo", inputs = { { "n", dtypes = "integer" } }, outputs = { "s" },
      run = function(_, n)
        local k = n:item()
        return neap.tensor(k == 0 and 0 or k + neap.spec_sum_to(n - 1):item(), "i64")
      end }
    assert.are.equal(15, neap.spec_sum_to(neap.tensor(5, "i64")):item())
  end)

  it("has several outputs, optional and any number of inputs, a gradient by a run", function()
    neap.op { "SpecTwo", inputs = { "x", { "w", optional = true } }, outputs = { "y", "z" },
      infer = function(_, a) return a, { shape = {} } end,
      run = function(_, a, w) return a * (w or 1), a:sum() end,
      run_grad = function(_, a, w, _, _, dy, dz)
        local dx, dw = a * 0, w and w * 0
        if dy then dx, dw = dx + dy * (w or 1), w and dw + dy * a end
        if dz then dx = dx + dz end
        return dx, dw
      end }
    local y, z = neap.spec_two(x, x)
    assert.are.same({ 1, 4, 9 }, y:totable())
    assert.are.equal(6, z:item())
    local dx, dw = neap.grad(function(a, w)
      local p, q = neap.spec_two(a, w)
      return p:sum() * q
    end)(x, x)
    assert.are.same({ 20, 26, 32 }, dx:totable()) -- q w + p's sum
    assert.are.same({ 6, 12, 18 }, dw:totable())
    assert.are.same({ 1, 1, 1 },
      neap.grad(function(a) return (select(2, neap.spec_two(a))) end)(x):totable())
    neap.op { "SpecAll", inputs = { { "x", variadic = true } }, outputs = { "y" },
      run = function(_, list)
        local sum = list[1]
        for i = 2, #list do sum = sum + list[i] end
        return sum
      end,
      grad = function(_, list, _, dy)
        local out = {}
        for i = 1, #list do out[i] = dy end
        return out
      end }
    assert.are.same({ 3, 6, 9 }, neap.spec_all(x, x, x):totable())
    assert.are.same({ 3, 3, 3 },
      neap.grad(function(a) return neap.spec_all(a, a, a):sum() end)(x):totable())
  end)

  it("may be made of others, and then goes into model files", function()
    neap.op { "SpecHalf", inputs = { "x" }, outputs = { "y" }, cases = "{ {x={3}} }",
      of = function(_, t) return t * 0.5 end }
    assert.are.same({ 0.5, 1, 1.5 }, x:spec_half():totable())
    assert.is_true(neap.check.op("SpecHalf").same)
    local m, path = nn.Sequential { input = { 3 }, nn.Linear { 3, 2 },
      nn.Lambda(function(t) return t:spec_half() end) }, os.tmpname() .. ".safetensors"
    assert(neap.export(m, path))
    assert(neap.import(path))
    os.remove(path)
  end)

  it("keeps to the range of an attribute, also where an end of it is 0", function()
    neap.op { "SpecRange", inputs = { "x" }, outputs = { "y" },
      attrs = { { "up", "number", 1, doc = "a factor", min = 0 },
        { "down", "number", -1, doc = "another", max = 0 } },
      run = function(o, a) return a * o.up * o.down end, grad = false,
      cases = "{ {x={2,3}}, {x={4}, up=2, down=-3} }" }
    local text = "net t\ninput x f32 (3)\ny = SpecRange(x) { %s }\n"
    for given, words in pairs { ["up = -1"] = "expected at least 0",
      ["down = 1"] = "expected at most 0" } do
      said({ "line 3", words }, neap.net_from, text:format(given))
    end
    assert.are.same({ -6, -12, -18 }, x:spec_range { up = 2, down = -3 }:totable())
    assert.are.same({ 0, 0, 0 }, x:spec_range { up = 0, down = 0 }:abs():totable())
  end)

  it("has attributes of all types, whose defaults are what is not given", function()
    local seen
    neap.op { "SpecOptions", inputs = { "x" }, outputs = { "y" },
      attrs = { { "number", "number", 1.5, doc = "a" }, { "integer", "integer", 7, doc = "a" },
        { "boolean", "boolean", true, doc = "a" },
        { "choice", "choice", "two", choices = { "one", "two" }, doc = "a" },
        { "axis", "axis", 2, doc = "a" }, { "axes", "axes", { 1, -1 }, doc = "a" },
        { "shape", "shape", { 2, 3 }, doc = "a" }, { "dtype", "dtype", "f64", doc = "a" } },
      run = function(o, a)
        seen = o
        return a + 0
      end }
    local defaults = { number = 1.5, integer = 7, boolean = true, choice = "two", axis = 2,
      axes = { 1, -1 }, shape = { 2, 3 }, dtype = "f64" }
    local given = { number = 2, integer = 8, boolean = false, choice = "one", axis = -1,
      axes = { 2 }, shape = { 4 }, dtype = "i8" }
    x:spec_options()
    assert.are.same(defaults, seen)
    x:spec_options(given)
    assert.are.same(given, seen)

    -- in a net, and in its text, the same
    local ws <close> = neap.workspace { store = false }
    for _, want in ipairs { defaults, given } do
      local net = neap.net "n"
      net:outputs { net:SpecOptions(net:input("a", { 3 }), "y", want == given and given or {}) }
      for _, n in ipairs { net, neap.net_from(net:text()) } do
        seen = nil
        ws:run(n, { a = x })
        assert.are.same(want, seen)
      end
    end

    -- its page counts dimensions from 1, as its caller does
    local page = tostring(neap.help "SpecOptions")
    for _, line in ipairs { "float, 1.5: a", "int, 7: a", "bool, true: a", "one|two, two: a",
      "axis, 2: a", "axes, {1,-1}: a", "ints, {2,3}: a", "dtype, f64: a" } do
      assert.is_truthy(page:find(line, 1, true), line .. " is not in " .. page)
    end
  end)

  it("is refused defaults that its attributes do not take", function()
    local function define(...)
      return neap.op { "SpecBad", inputs = { "x" }, outputs = { "y" }, attrs = { ... },
        run = function(_, a) return a end }
    end
    local function attr(type, default)
      return { "a", type, default, doc = "a", choices = type == "choice" and { "one" } or nil }
    end
    said({ 'expects "one"', '"three"' }, define, attr("choice", "three"))
    said("expects a dimension, from 1", define, attr("axis", 0))
    said("expects dimensions, from 1", define, attr("axes", { 0 }))
    said("expects a shape", define, attr("shape", { -1 }))
    said("expects a dtype", define, attr("dtype", "f33"))
    said("expects an integer", define, attr("integer", 1.5))
    said("can't be of type string", define, attr("string", "x"))
    local many = {}
    for i = 1, 17 do many[i] = { "a" .. i, "number", 1, doc = "a" } end
    said("an op has at most 16 attributes", define, table.unpack(many))
    said("neap has no \"spec_bad\"", function() return neap.spec_bad end)
  end)

  it("is refused in words where its record is wrong", function()
    local io = { inputs = { "x" }, outputs = { "y" } }
    local function define(o)
      for key, value in pairs(io) do o[key] = value end
      return neap.op(o)
    end
    local run = function(_, t) return t end
    said("one of run and of", define, { "SpecNone" })
    said("nothing reads its field \"scale\"", define, { "SpecKeys", run = run,
      attrs = { scale = 1 } })
    said("nothing reads its field \"w\"", neap.op, { "SpecKeys", run = run,
      inputs = { "x", w = "weight" }, outputs = { "y" } })
    said("is the name of an op already", define, { "SpecCube", run = run })
    said("is the name of an op already", define, { "Relu", run = run })
    said("would be \"shape\"", define, { "Shape", run = run })
    said("would be \"end\"", define, { "End", run = run })
    said("would be \"clone\"", define, { "Clone", run = run })
    said("begins with a capital", define, { "cube", run = run })
    said("grad and run_grad exclude each other", define,
      { "SpecBoth", run = run, grad = "d.x = d.y", run_grad = run })
    said("with of there is no grad", define, { "SpecOf", of = run, grad = false })
    said("unknown field \"rnu\"", define, { "SpecTypo", rnu = run })
    said("dtypes = \"floats\"", neap.op,
      { "SpecDtypes", inputs = { { "x", dtypes = "floats" } }, outputs = { "y" }, run = run })
  end)
end)

describe("an op of a plugin", function()
  local folder = os.getenv "NEAP_BUILD" or "build"
  local function compiled(name, flags)
    local path = ("%s/tests/%s.so"):format(folder, name)
    os.execute(("mkdir -p %s/tests && cc -std=c11 -shared -fPIC -Isrc %s -o %s \z
      tests/c/plugin.c"):format(folder, flags, path))
    return path
  end

  it("is refused whole where its record or its interface is not this one's", function()
    said("has no kernel of engine ref", neap.load_ops, compiled("broken", "-DBROKEN"))
    said("compiled for another Neap", neap.load_ops, compiled("old", "-DOLD"))
    local none, message, code = neap.load_ops "nowhere.so"
    assert.is_nil(none)
    assert.is_truthy(message:find("nowhere.so", 1, true))
    assert.are.equal("io", code)
    assert.is_nil((neap.load_ops "tests/c/plugin.c"))
    said("unknown op type \"ScaledSquare\"", function() return neap.net("n").ScaledSquare end)
  end)

  it("is an op like any other", function()
    local path = compiled("plugin", "")
    assert.are.same({ "ScaledSquare" }, neap.load_ops(path))
    assert.are.same({ "ScaledSquare" }, neap.load_ops(path))
    assert.are.same({ 2, 8 }, neap.scaled_square(neap.tensor { 1, 2 }, { by = 2 }):totable())
    assert.is_true(neap.check.op("ScaledSquare").same)
    assert.is_truthy(tostring(neap.help "ScaledSquare"):find(path, 1, true))
    said({ "ScaledSquare", "13 at element 1" }, neap.scaled_square, neap.tensor { 1, 13 })
    local m, file = nn.Sequential { input = { 3 }, nn.Linear { 3, 2 },
      nn.Lambda(function(t) return t:scaled_square() end) }, os.tmpname() .. ".safetensors"
    local x = neap.rand(2, 3)
    assert(neap.export(m, file))
    assert.is_true(assert(neap.import(file))(x):equal(m(x)))
    os.remove(file)
  end)
end)
