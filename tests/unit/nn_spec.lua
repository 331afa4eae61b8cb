-- Layers: names, parameters, modes, eager calls and gradients, state, reports, and what is said
-- when they are used wrongly.
local neap = require "neap"
local nn = neap.nn
local support = require "support"
local raises, settle = support.raises, support.settle

local function names_of(iterator)
  local list = {}
  for name in iterator do list[#list + 1] = name end
  return list
end

local function small()
  return nn.Sequential {
    input = { 4 }, seed = 3, nn.Linear { 4, 6 }, nn.Tanh(), nn.Linear { 6, 3 },
  }
end

describe("names", function()
  it("number layers by kind in order, and a name given replaces them", function()
    local m = nn.Sequential {
      nn.Conv2d { 1, 2, kernel = 3 }, nn.ReLU(), nn.Conv2d { 2, 2, kernel = 3 },
      nn.Linear { 8, 2, name = "head" },
    }
    assert.are.same({ "", "conv1", "relu1", "conv2", "head" }, names_of(m:modules()))
    assert.are.same({
      "conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "head.weight", "head.bias",
    }, names_of(m:parameters()))
  end)
  it("reach into blocks, by name and by glob", function()
    local m = nn.Sequential {
      nn.Sequential { nn.Linear { 4, 4 }, nn.ReLU() }, nn.Residual { nn.Linear { 4, 4 } },
    }
    assert.are.same({ 4, 4 }, m:param("block1.linear1.weight").shape)
    assert.are.equal(2, #m:find "Linear")
    assert.are.equal(m:find("residual1.*")[1], m.residual1.linear1)
    assert.are.same({ 4 }, m.block1:param("linear1.bias").shape)
  end)
  it("that are not there are answered with the nearest", function()
    raises('did you mean "linear1.weight"?', function() small():param "linera1.weight" end)
    raises('did you mean "ReLU"?', function() return nn.Relu end)
    raises('did you mean "kernel"?', nn.Conv2d, { 1, 2, kernal = 3 })
    raises('did you mean "input"?', nn.Sequential, { inputs = { 3 }, nn.ReLU() })
  end)
  it("can't be used twice, nor be a module's own words", function()
    raises('two children named "a"', nn.Sequential,
      { nn.ReLU { name = "a" }, nn.Tanh { name = "a" } })
    raises("own word", nn.Sequential, { nn.ReLU { name = "train" } })
  end)
end)

describe("a class", function()
  it("given uncalled says so", function()
    raises("item 2 is the class nn.ReLU: call it", nn.Sequential, { nn.Linear { 2, 2 }, nn.ReLU })
    raises("call it", nn.module { "Bad", init = function(self) self.act = nn.ReLU end })
    raises("make a module first", nn.ReLU, neap.ones(2))
  end)
  it("of one's own is written once, for nets and for tensors", function()
    local Twice = nn.module { "Twice",
      init = function(self, o)
        self.fc = nn.Linear { o[1], o[1] }
        self:param("scale", { o[1] }, neap.init.constant(2))
      end,
      forward = function(self, x) return self.fc(x) * self.scale end }
    local m = nn.Sequential { input = { 3 }, Twice { 3 } }
    local x = neap.rand(2, 3)
    local w, b = m:param("twice1.fc.weight").data, m:param("twice1.fc.bias").data
    assert.is_true(m(x):close((x:matmul(w:transpose(1, 2)) + b) * 2, { atol = 1e-5 }))
    assert.are.same({ 2, 3 },
      m:net({ batch = 2 }):infer({})[m:net({ batch = 2 }):outputs()[1]].shape)
  end)
end)

describe("widths left out", function()
  it("are learnt from the first use", function()
    local m = nn.Sequential {
      input = { 1, 8, 8 },
      nn.Conv2d { 3, kernel = 3 }, nn.BatchNorm2d {}, nn.Flatten(), nn.Linear { 5 },
      nn.LayerNorm {},
    }
    assert.are.same({ 3, 1, 3, 3 }, m:param("conv1.weight").shape)
    assert.are.same({ 5, 108 }, m:param("linear1.weight").shape)
    assert.are.same({ 5 }, m:param("norm2.bias").shape)
    local alone = nn.Linear { 4 }
    assert.are.same({ 2, 4 }, alone(neap.rand(2, 7)).shape)
    assert.are.same({ 4, 7 }, alone.weight.shape)
  end)
  it("need an input's shape", function()
    raises("input", function() nn.Sequential { nn.Linear { 3 } }:state_dict() end)
  end)
end)

describe("a model on tensors", function()
  it("gives what its formula says, and forward is the same", function()
    local m, x = small(), neap.rand(5, 4)
    local h = (x:matmul(m.linear1.weight.data:transpose(1, 2)) + m.linear1.bias.data):tanh()
    local y = h:matmul(m.linear2.weight.data:transpose(1, 2)) + m.linear2.bias.data
    assert.is_true(m(x):close(y, { atol = 1e-5 }))
    assert.is_true(m:forward(x):equal(m(x)))
  end)
  it("gives gradients that finite differences agree with", function()
    local m, x, dy = small(), neap.rand(2, 4), neap.rand(2, 3)
    local dx = m:backward(x, dy)
    local function value() return (m(x) * dy):sum():item() end
    local function slope(t, put)
      local eps, old = 1e-2, t:at(1, 2)
      put(old + eps)
      local up = value()
      put(old - eps)
      local down = value()
      put(old)
      return (up - down) / (2 * eps)
    end
    assert.is_true(math.abs(slope(x, function(v) x:set(v, 1, 2) end) - dx:at(1, 2)) < 2e-3)
    local p = m:param "linear1.weight"
    local got = p.grad:at(1, 2)
    assert.is_true(math.abs(slope(p.data, function(v) p.data:set(v, 1, 2) end) - got) < 2e-3)
    assert.is_true(p.diff:equal(p.grad))
  end)
  it("gives no gradient to the row of padding", function()
    local ids, dy = neap.tensor({ 0, 2, 3, 2 }, "i64"), neap.ones(4, 2)
    for padding, want in pairs {
      [0] = { 0, 0, 2, 1 }, [-2] = { 1, 0, 0, 1 }, [1] = { 1, 0, 2, 1 },
    } do
      local m = nn.Sequential { nn.Embedding { 4, 2, padding_idx = padding } }
      local weight = m:param "embedding1.weight"
      m:backward(ids, dy)
      local row = weight.data:totable()
      -- its ids are looked up like the others
      assert.are.same({ row[1], row[3], row[4], row[3] }, m(ids):totable())
      for v, count in ipairs(want) do
        assert.are.same({ count, count }, weight.grad:totable()[v])
      end
    end
    assert.are.equal("Embedding { 4, 2, padding_idx = 0 }",
      tostring(nn.Embedding { 4, 2, padding_idx = 0 }))
    for _, padding in ipairs { 4, -5 } do
      raises("padding_idx " .. padding
        .. " is no row of the table: rows are 0 to 3, or -4 to -1", function()
        nn.Embedding { 4, 2, padding_idx = padding }(ids)
      end)
    end
  end)
  it("drops elements in training alone", function()
    local m, x = nn.Sequential { nn.Dropout { 0.5 } }, neap.ones(1000)
    assert.is_true(m:eval()(x):equal(x))
    assert.is_false(m:train()(x):equal(x))
    assert.is_true(m.training)
    m.dropout1:eval()
    assert.is_true(m(x):equal(x))
  end)
end)

describe("parameters", function()
  it("can be read, assigned and frozen", function()
    local m = small()
    m:param("linear1.bias").data = { 1, 2, 3, 4, 5, 6 }
    assert.are.same({ 1, 2, 3, 4, 5, 6 }, m.linear1.bias.data:totable())
    raises("expects (6)", function() m:param("linear1.bias").data = { 1 } end)
    m:freeze "linear1"
    assert.is_false(m:param("linear1.weight").trainable)
    assert.is_true(m:param("linear2.weight").trainable)
    m:param("linear1.bias").trainable = true
    assert.is_true(m.linear1.bias.trainable)
    raises("matches", m.freeze, m, "nothing*")
  end)
  it("frozen ones stay as they are while the others train", function()
    local m = small()
    m:freeze "linear1"
    local before = m:state_dict()
    local t <close> = neap.trainer { model = m, optimizer = neap.optim.SGD { lr = 0.5 } }
    t:step { x = neap.rand(4, 4), y = neap.tensor({ 0, 1, 2, 0 }, "i64") }
    assert.is_true(m.linear1.weight.data:equal(before["linear1.weight"]))
    assert.is_false(m.linear2.weight.data:equal(before["linear2.weight"]))
    m:freeze("linear1", false) -- the trainer's programs are made anew
    t:step { x = neap.rand(4, 4), y = neap.tensor({ 0, 1, 2, 0 }, "i64") }
    assert.is_false(m.linear1.weight.data:equal(before["linear1.weight"]))
  end)
  it("tied are stored once, and their gradients add up", function()
    local m = nn.Sequential {
      input = { 4 }, nn.Linear { 4, 4, bias = false }, nn.Linear { 4, 4, bias = false },
    }
    local x, dy = neap.rand(2, 4), neap.rand(2, 4)
    m.linear2.weight.data = m.linear1.weight.data:clone()
    m:backward(x, dy)
    local sum = m.linear1.weight.grad + m.linear2.weight.grad
    m:tie("linear1.weight", "linear2.weight")
    m:backward(x, dy)
    assert.is_true(m.linear2.weight.grad:close(sum, { atol = 1e-6 }))
    assert.are.same({ "linear1.weight" }, names_of(m:parameters()))
    assert.is_nil(m:state_dict()["linear2.weight"])
    assert.are.equal(16, m:summary().parameters)
  end)
  it("travel by state_dict and file", function()
    local a = small()
    local b = nn.Sequential {
      input = { 4 }, seed = 9, nn.Linear { 4, 6 }, nn.Tanh(), nn.Linear { 6, 3 },
    }
    local path = os.tmpname()
    local x = neap.rand(2, 4)
    assert.is_false(a(x):equal(b(x)))
    assert(a:save(path .. ".safetensors"))
    assert(b:load(path .. ".safetensors"))
    assert.is_true(a(x):equal(b(x)))
    local before = b:state_dict()
    raises('did you mean "linear1.bias"?', b.load_state_dict, b,
      { ["linear1.bais"] = neap.zeros(6) })
    raises("is missing", b.load_state_dict, b, { ["linear1.bias"] = neap.zeros(6) })
    raises("expects (6), got (5)", b.load_state_dict, b, { ["linear1.bias"] = neap.zeros(5) },
      { strict = false })
    assert.is_true(b:state_dict()["linear1.bias"]:equal(before["linear1.bias"]))
    local none, message, code = b:load "/no/such.safetensors"
    assert.is_nil(none)
    assert.is_truthy(message:find("/no/such", 1, true))
    assert.are.equal("io", code)
    os.remove(path)
    os.remove(path .. ".safetensors")
  end)
end)

describe("loading what does not fit", function()
  local function other() -- another head
    return nn.Sequential { input = { 4 }, nn.Linear { 4, 6 }, nn.Tanh(), nn.Linear { 6, 5 } }
  end
  it("skip_mismatch takes what fits and returns what it skipped", function()
    local a, b, path = other(), small(), os.tmpname() .. ".safetensors"
    assert(a:save(path))
    local head = b.linear2.weight.data:clone()
    local same, skipped = b:load(path, { skip_mismatch = true })
    assert.are.equal(b, same)
    assert.are.same(
      { missing = {}, unexpected = {}, mismatched = { "linear2.bias", "linear2.weight" } }, skipped)
    assert.is_true(b.linear1.weight.data:equal(a.linear1.weight.data))
    assert.is_true(b.linear2.weight.data:equal(head))
    os.remove(path)
  end)
  it("strict = false returns the names it skipped; a shape is an error that \z
      says how to skip it", function()
    local b = small()
    local before = b:state_dict()
    local _, skipped = b:load_state_dict({ ["linear1.bias"] = neap.zeros(6), more = neap.zeros(1) },
      { strict = false })
    assert.are.same({
      missing = { "linear1.weight", "linear2.bias", "linear2.weight" },
      unexpected = { "more" },
      mismatched = {},
    }, skipped)
    b:load_state_dict(before)
    raises("{ skip_mismatch = true } takes what fits", b.load_state_dict, b,
      { ["linear1.bias"] = neap.zeros(5) }, { strict = false })
    raises("{ strict = false } takes what fits by name", b.load_state_dict, b,
      { more = neap.zeros(1) })
    assert.is_true(b:state_dict()["linear1.bias"]:equal(before["linear1.bias"]))
    assert.are.same({ missing = {}, unexpected = {}, mismatched = {} },
      (select(2, b:load_state_dict(before))))
  end)
  it("options that say nothing, or two things, raise", function()
    local b = small()
    raises("strict expects true or false", b.load_state_dict, b, {}, { strict = "no" })
    raises("strict = true refuses", b.load_state_dict, b, {},
      { strict = true, skip_mismatch = true })
    raises("unknown field", b.load, b, "/no/such.safetensors", { stric = false })
  end)
end)

describe("reports", function()
  it("summary counts shapes, parameters and mult-adds by layer", function()
    local r = nn.Sequential {
      input = { 1, 6, 6 },
      nn.Conv2d { 1, 2, kernel = 3 }, nn.ReLU(), nn.Flatten(), nn.Linear { 32, 5 },
    }:summary { batch = 3 }
    assert.are.equal("conv1", r[1].layer)
    assert.are.equal("(3,2,4,4)", r[1].output)
    assert.are.equal(20, r[1].parameters)
    assert.are.equal(3 * 2 * 16 * 9, r[1].mult_adds)
    assert.are.equal(20 + 165, r.parameters)
    assert.are.equal(4 * (20 + 165), r.parameter_bytes)
    local m = nn.Sequential { input = { 3 }, nn.Linear { 2 } }
    support.raises("takes no shapes x or y", m.summary, m, { x = { 5, 3 } })
  end)
  it("plan and forecast allocate nothing", function()
    settle() -- what earlier tests left must not go while this one counts
    local m, held = small(), neap.memory().held
    local p = m:plan {
      batch = 8,
      train = true,
      loss = nn.CrossEntropyLoss(),
      optimizer = neap.optim.SGD { lr = 0.1 },
    }
    assert.is_true(p.arena_bytes > 0)
    assert.are.equal(p.total_bytes,
      m:forecast({ batch = 8, train = true, optimizer = neap.optim.SGD { lr = 0.1 } }).total_bytes)
    assert.are.equal(held, neap.memory().held)
  end)
end)

describe("hooks", function()
  it("see the blobs of a layer forward, and its gradient backward", function()
    local m, seen = small(), {}
    m:on("linear1", "forward", function(layer, y)
      seen[#seen + 1] = layer._class .. " " .. table.concat(y.shape, ",")
    end)
    m:on("linear1", "backward", function(_, g)
      seen[#seen + 1] = "gradient " .. tostring(type(g.name))
    end)
    m:net { batch = 2, train = true, loss = nn.CrossEntropyLoss() }
    assert.are.same({ "Linear 2,6", "gradient string" }, seen)
    raises("no module matches", m.on, m, "nope", "forward", print)
  end)
end)

describe("losses", function()
  it("agree with their formulas", function()
    local y, t = neap.tensor { { 1, 2, 3 }, { 1, 1, 1 } }, neap.tensor({ 2, 0 }, "i64")
    local expected =
      (-math.log(math.exp(3) / (math.exp(1) + math.exp(2) + math.exp(3))) + math.log(3)) / 2
    assert.is_true(math.abs(nn.CrossEntropyLoss()(y, t):item() - expected) < 1e-5)
    local a, b = neap.tensor { 1, 2, 4 }, neap.tensor { 1, 4, 1 }
    assert.is_true(math.abs(nn.MseLoss()(a, b):item() - 13 / 3) < 1e-5)
    assert.is_true(math.abs(nn.L1Loss()(a, b):item() - 5 / 3) < 1e-5)
    local bce = -(math.log(1 / (1 + math.exp(-2))) + math.log(1 - 1 / (1 + math.exp(1)))) / 2
    assert.is_true(
      math.abs(nn.BceWithLogitsLoss()(neap.tensor { 2, -1 }, neap.tensor { 1, 0 }):item()
        - (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-1))) / 2) < 1e-5, bce)
  end)
end)
