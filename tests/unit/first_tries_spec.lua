-- What someone tries who has read the README alone: each wrong try is refused where it stands, and
-- says what to write.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim

local function raises(parts, f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok, "nothing was raised")
  for _, part in ipairs(type(parts) == "table" and parts or { parts }) do
    assert.is_truthy(tostring(err):find(part, 1, true), ("%s\nlacks\n%s"):format(err, part))
  end
  return err
end

local function mlp()
  local net = neap.net "f"
  net:input("x", { 64, 8 })
  local zeros = neap.init.zeros
  net:FC({ "x", net:param("w", { 16, 8 }, zeros), net:param("b", { 16 }, zeros) }, "h")
  net:Tanh("h", "g")
  net:FC({ "g", net:param("v", { 4, 16 }, zeros), net:param("c", { 4 }, zeros) }, "y")
  return net
end

local function trainer(more)
  local o = more or {}
  o.model = nn.Sequential { input = { 8 }, nn.Linear { 16 }, nn.ReLU(), nn.Linear { 4 } }
  o.optimizer = o.optimizer or optim.SGD { lr = 0.1 }
  o.memory = o.memory or { store = false }
  return neap.trainer(o)
end

local function set(map)
  return neap.data.tensors {
    x = neap.rand(128, 8), y = neap.zeros { 128, dtype = "i64" }, batch = 64, map = map,
  }
end

describe("a limit", function()
  it("of no bytes, or of half a byte, is refused: without one there is none", function()
    local net = mlp()
    for _, limit in ipairs { "budget", "total" } do
      for _, zero in ipairs { 0, "0", "0 MiB" } do
        local part = limit .. " expects at least 1 byte"
        raises(part, net.plan, net, { [limit] = zero, store = false })
        raises(part, neap.workspace, { [limit] = zero })
        raises(part, trainer, { memory = { [limit] = zero } })
        raises(part, neap.fit_batch, net, { [limit] = zero })
      end
      raises(limit .. " expects bytes", net.plan, net, { [limit] = 1.5, store = false })
      assert.is_truthy(net:plan { [limit] = 1e6, store = false })
    end
  end)

  it("as a share is one of a net's plan, which a workspace has many of", function()
    raises({ "share of one net's plan", "60%" }, neap.workspace, { budget = "60%" })
    assert.is_truthy(tostring(neap.help "options"):find("neap.workspace: bytes alone", 1, true))
  end)

  it("that is soft is a pool's alone", function()
    local net = mlp()
    raises("soft is what a pool is cut down to", net.plan, net, { soft = 1000, store = false })
    raises("soft is what a pool is cut down to", trainer { memory = { soft = 1000 } }.step,
      trainer { memory = { soft = 1000, store = false } }, set():epoch(1)())
    assert.is_truthy(net:plan { soft = 1000, policy = "pool", store = false })
  end)

  it("and what is needed never look alike in a message", function()
    local net = mlp()
    local need = net:plan({ store = false }).arena_bytes
    local err = raises("least arena", net.plan, net, { budget = need - 1, store = false })
    local least, budget = err.message:match "is (.-), the budget (.-);"
    assert.is_truthy(budget)
    assert.are_not.equal(least, budget)
  end)
end)

describe("a refused batch", function()
  it("says which one a workspace's own limit would let through", function()
    local net = mlp()
    for _, o in ipairs { { total = 7000 }, { budget = 2000 }, { total = 7000, policy = "pool" } } do
      o.store = false
      local ws <close> = neap.workspace(o)
      local err = raises("would do", ws.compile, ws, net)
      local n = err.batch
      assert.is_true(n >= 1 and n < 64)
      ws:compile(net, { x = { n, 8 } })
      local other <close> = neap.workspace(o)
      raises("would do", other.compile, other, net, { x = { n + 1, 8 } })
    end
  end)

  it("says which one a trainer could do beside what it holds", function()
    local t <close> = trainer { memory = { total = 14000, store = false } }
    t:step { x = neap.rand(64, 8), y = neap.zeros { 64, dtype = "i64" } }
    local function measure(n)
      return t:evaluate(neap.data.tensors {
        x = neap.rand(n, 8), y = neap.zeros { n, dtype = "i64" }, batch = n,
      })
    end
    local n = raises("would do", measure, 512).batch
    assert.are.equal(n, measure(n).n)
    raises("would do", measure, 512)
  end)
end)

describe("a trainer's fit", function()
  it("expects the data first, and options then", function()
    local t <close> = trainer()
    raises({ "a data set first, then options", "got 5" }, t.fit, t, 5, set())
    raises("a data set first, then options", t.fit, t, { epochs = 5 }, set())
  end)

  it("refuses another one inside, and goes on when that is caught", function()
    local t <close> = trainer()
    local seen = 0
    t:fit(set(), {
      verbose = 0,
      on_step = function(_, me)
        raises("in a fit already", me.fit, me, set(), { verbose = 0 })
        seen = seen + 1
      end,
    })
    assert.are.equal(2, seen)
    t:fit(set(), { verbose = 0 })
    assert.are.equal(4, #t:history() * 2)
    local function stop() error "stop here" end
    raises("stop here", t.fit, t, set(), { verbose = 0, on_step = stop })
    t:fit(set(), { verbose = 0 })
  end)

  it("hands on whatever a callback raises, a checkpoint beside it or not", function()
    local t <close> = trainer()
    local path = os.tmpname() .. ".safetensors"
    for _, what in ipairs { 42, true } do
      local ok, err = pcall(t.fit, t, set(), { verbose = 0, checkpoint = path,
        on_step = function() error(what) end })
      assert.is_false(ok)
      assert.are.equal(what, err)
    end
    os.remove(path)
  end)

  it("says what shape its examples had so far, and takes the next right batch", function()
    local t <close> = trainer()
    local function batch(n) return { x = neap.rand(4, n), y = neap.zeros { 4, dtype = "i64" } } end
    t:step(batch(8))
    local err = raises({ "examples of shape (9)", "so far (8)" }, t.step, t, batch(9))
    assert.are.equal("shape", err.code)
    assert.are.equal(2, t:step(batch(8)).step)
  end)

  it("says what map has to give", function()
    local t <close> = trainer()
    raises({ "map expects to give a batch", "it gave 3" }, t.fit, t, set(function() return 3 end),
      { verbose = 0 })
    t:fit(set(function() end), { verbose = 0 })
  end)
end)

describe("a number", function()
  it("that is none, or has no end, is no learning rate", function()
    raises("lr expects a finite number of at least 0", optim.SGD, { lr = 1 / 0 })
    raises("lr expects a finite number of at least 0", optim.Adam, { lr = 0 / 0 })
  end)

  it("given to neap.full by position is a size", function()
    raises("numbers by position are sizes", neap.full, 2, 7)
  end)
end)

describe("a message", function()
  it("names the loss that got too little, or too much", function()
    raises("nn.CrossEntropyLoss takes 2 inputs, the output and the target, got 1",
      nn.CrossEntropyLoss(), neap.rand(3, 4))
    local t <close> = trainer { loss = function(y) return y:mean() end }
    raises("the loss function takes 1 input, got 2", t.step, t,
      { x = neap.rand(4, 8), y = neap.zeros { 4, dtype = "i64" } })
  end)

  it("says that one side of an operator is nil", function()
    local Model = nn.module {
      "Model",
      init = function(self) self.fc = nn.Linear { 4, 4 } end,
      forward = function(self, x) return self.fc(x) + self.position end,
    }
    raises({ "one side is nil", "self.name" }, Model(), neap.rand(2, 4))
    raises("one side is nil", function() return neap.rand(2) * nil end)
  end)

  it("says what a gradient is of", function()
    local net = mlp()
    raises("gradient expects the loss first, one blob or its name, got a list", net.gradient, net,
      { "y", "h" })
    raises("one blob or its name, got 3", net.gradient, net, 3)
  end)

  it("says what fills a parameter", function()
    local net = neap.net_from("net f\ninput x f32 (4,2)\nparam w f32 (3,2)\n"
      .. "y = MatMul(x, w) { trans_b = true }\n")
    local ws <close> = neap.workspace { store = false }
    local err = raises("\"w\" has not been fed", ws.run, ws, net, { x = neap.rand(4, 2) })
    assert.is_truthy(err.hint:find("declared without an init", 1, true))
  end)

  it("names what a table or a value has instead, at the line that asked", function()
    local net, x = neap.net "f", neap.tensor { 1, 2 }
    local b, ws <close> = net:input("x", { 2 }), neap.workspace { store = false }
    local function asked(says, f, ...)
      local err = raises(says, f, ...)
      assert.is_truthy(tostring(err):find("first_tries_spec.lua:", 1, true), err)
    end
    for key, name in pairs { cat = "concat", bmm = "mat_mul", argmax = "arg_max" } do
      asked({ 'neap has no "' .. key .. '"', 'did you mean "' .. name .. '"?' }, function()
        return neap[key]
      end)
    end
    asked('a tensor has no "summ", did you mean "sum"?', function() x:summ() end)
    asked('a tensor has no "sume", did you mean "sum"?', function() x:sume() end)
    asked('a tensor has no "tolist", did you mean "totable"?', function() x:tolist() end)
    asked('a blob has no "cat", did you mean "concat"?', function() b:cat() end)
    asked('a net has no "relu", did you mean "Relu"?', function() net:relu(b) end)
    asked('a net has no "linear", did you mean "FC"?', function() net:linear(b) end)
    asked('a workspace has no "fech", did you mean "fetch"?', function() ws:fech "x" end)
    asked('a tensor has no "xyzzy"', function() return x.xyzzy end)
    assert.is_nil(x.name)
    assert.is_nil(x._own)
  end)

  it("suggests near names alone", function()
    raises("Conv", neap.help, "Covn")
    local _, err = pcall(neap.help, "Foo")
    assert.is_nil(tostring(err):find("Cos", 1, true))
  end)

  it("counts inputs and axes from 1, as Lua does", function()
    raises("input 2 (3,4)", neap.concat, { neap.zeros(2, 4), neap.zeros(3, 4) }, { axis = 2 })
  end)
end)

describe("a script", function()
  it("ends with the number that it returns, where that is an exit code", function()
    for _, case in ipairs { { "return 3", 3 }, { "return 256", 255 }, { "return -1", 255 },
      { "return 2.5", 0 }, { "return false", 0 }, { "os.exit(7)", 7 }, { "error {}", 1 } } do
      local program = (os.getenv "NEAP_BUILD" or "build") .. "/neap"
      local _, _, code = os.execute(("%s -e '%s' 2> /dev/null"):format(program, case[1]))
      assert.are.equal(case[2], code, case[1])
    end
  end)

  it("has help, which prints", function()
    local pipe <close> = io.popen((os.getenv "NEAP_BUILD" or "build")
      .. "/neap -e 'help \"neap.arange\"'")
    assert.is_truthy(pipe:read("a"):find("below stop, which is left out", 1, true))
  end)
end)
