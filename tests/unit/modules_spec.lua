-- Modules: identity decides what is shared, whatever layers are called and however they are
-- reached.
local neap = require "neap"
local nn = neap.nn
local support = require "support"
local raises = support.raises

local function names_of(iterator)
  local list = {}
  for name in iterator do list[#list + 1] = name end
  return list
end

--- A block with one weight, whose forward multiplies by it.
local Block = nn.module { "Block",
  init = function(self, o)
    self.factor = o[1]
    self:param("w", { 1 }, neap.init.constant(o[1]))
  end,
  forward = function(self, x) return x * self.w end }

local function scaled(m, by) return m(neap.ones(1, 1)):item() == by end

describe("layers in tables", function()
  local Stack = nn.module { "Stack",
    init = function(self) self.blocks = { Block { 2 }, Block { 3 } } end,
    forward = function(self, x)
      for _, block in ipairs(self.blocks) do x = block(x) end
      return x
    end }

  it("are each their own, counted, saved and trained", function()
    local m = Stack {}
    assert.are.same({ "blocks.1.w", "blocks.2.w" }, names_of(m:parameters()))
    assert.is_true(scaled(m, 6))
    local state = m:state_dict()
    assert.are.equal(2, state["blocks.1.w"]:item())
    assert.are.equal(3, state["blocks.2.w"]:item())
    local other = Stack {}
    other:param "blocks.1.w".data = neap.tensor { 7 }
    assert.is_true(scaled(other, 21))
    other:load_state_dict(state)
    assert.is_true(scaled(other, 6))
    m:backward(neap.ones(1, 1), neap.ones(1, 1))
    assert.are.equal(3, m:param "blocks.1.w".grad:item())
    assert.are.equal(2, m:param "blocks.2.w".grad:item())
  end)

  it("may be filled after the table was given, and later still", function()
    local Late = nn.module { "Late",
      init = function(self)
        self.embed = Block { 5 }
        self.blocks = {}
        self.head = Block { 7 }
        for i = 1, 2 do self.blocks[i] = Block { i + 1 } end
      end,
      forward = function(self, x)
        x = self.embed(x)
        for _, block in ipairs(self.blocks) do x = block(x) end
        return self.head(x)
      end }
    local m = Late {}
    assert.are.same({ "embed.w", "blocks.1.w", "blocks.2.w", "head.w" }, names_of(m:parameters()))
    assert.is_true(scaled(m, 210))
    table.insert(m.blocks, Block { 10 })
    assert.is_true(scaled(m, 2100))
    assert.are.equal(5, #names_of(m:parameters()))
  end)

  it("keep their numbers when they move in it, and lose their place when \z
      they are taken out", function()
    local m = Stack {}
    m:param "blocks.1.w".data = neap.tensor { 20 }
    assert.is_true(scaled(m, 60))
    local first = m.blocks[1]
    table.remove(m.blocks, 1)
    assert.is_true(scaled(m, 3))
    assert.are.same({ "blocks.1.w" }, names_of(m:parameters()))
    assert.are.equal(20, first:param "w".data:item())
    table.insert(m.blocks, first)
    assert.is_true(scaled(m, 60))
    assert.are.equal(20, m:param "blocks.2.w".data:item())
  end)

  it("may have names, and lie in tables of tables", function()
    local m = nn.module {
      "Deep",
      init = function(self)
        self.stages = {
          { Block { 2 }, Block { 3 } }, { Block { 5 } }, side = { left = Block { 7 } }, width = 3,
        }
      end,
      forward = function(self, x)
        for _, stage in ipairs(self.stages) do
          for _, block in ipairs(stage) do x = block(x) end
        end
        return self.stages.side.left(x)
      end,
    } {}
    assert.are.same({ "stages.1.1.w", "stages.1.2.w", "stages.2.1.w", "stages.side.left.w" },
      names_of(m:parameters()))
    assert.is_true(scaled(m, 210))
    assert.are.equal(3, m.stages.width)
  end)

  it("are looked at when they are given", function()
    raises("item 2 is the class nn.ReLU: call it", nn.module {
      "Bad", init = function(self) self.acts = { nn.Tanh(), nn.ReLU } end,
    })
    raises("positions or names", nn.module {
      "Bad", init = function(self) self.acts = { ["a b"] = nn.Tanh() } end,
    })
  end)

  it("that hold other things are the user's", function()
    local m = nn.module {
      "Plain",
      init = function(self) self.sizes, self.cache = { 3, 4 }, {} end,
      forward = function(_, x) return x end,
    } {}
    assert.are.same({ 3, 4 }, m.sizes)
    m.cache.x = 1
    assert.are.equal("x", (next(m.cache)))
    assert.are.same({ "" }, names_of(m:modules()))
  end)
end)

describe("a layer that lies in no slot", function()
  it("belongs to the module whose forward meets it", function()
    local a = nn.Linear { 1, 1, bias = false, init = neap.init.constant(2) }
    local b = nn.Linear { 1, 1, bias = false, init = neap.init.constant(3) }
    local m = nn.Sequential {
      input = { 1 },
      nn.Lambda(function(x) return b(a(x)) end),
      nn.Linear { 1, 1, bias = false, init = neap.init.constant(5) },
    }
    assert.are.same({ "lambda1.@linear1.weight", "lambda1.@linear2.weight", "linear1.weight" },
      names_of(m:parameters()))
    assert.is_true(scaled(m, 30))
    assert.are.equal(3, m:summary {}.parameters)
    local copy = m:state_dict()
    assert.are.equal(2, copy["lambda1.@linear1.weight"]:item())
    assert.are.equal(3, copy["lambda1.@linear2.weight"]:item())
  end)

  it("is trained, and the same in every net", function()
    local hidden = nn.Linear { 1, 1, bias = false, init = neap.init.constant(1) }
    local m = nn.Sequential { input = { 1 }, nn.Lambda(function(x) return hidden(x) end) }
    local t <close> = neap.trainer {
      model = m, loss = nn.MseLoss(), optimizer = neap.optim.SGD { lr = 0.25 },
    }
    t:step { x = neap.ones(1, 1), y = neap.zeros(1, 1) }
    assert.are.equal(0.5, hidden:param "weight".data:item())
    assert.are.equal(0.5, t:predict(neap.ones(1, 1)):item())
  end)

  it("may be of a function in a class of one's own, called twice", function()
    local function block() -- a residual block as a plain function
      local fc = nn.Linear { 1, 1, bias = false, init = neap.init.constant(2) }
      return function(x) return x + fc(x) end
    end
    local f, g = block(), block()
    local m = nn.module { "Net", forward = function(_, x) return g(f(f(x))) end } {}
    assert.is_true(scaled(m, 27))
    assert.are.same({ "@linear1.weight", "@linear2.weight" }, names_of(m:parameters()))
  end)

  it("can't be made inside a forward, where it would be another one each time", function()
    local m = nn.module { "Bad", forward = function(_, x) return nn.Linear { 1, 1 }(x) end } {}
    raises("made inside a forward", m, neap.ones(1, 1))
    local fine = nn.module { "Fine", forward = function(_, x) return nn.ReLU()(x) end } {}
    assert.is_true(scaled(fine, 1))
  end)

  it("has a parameter made by self:param, not by assigning what it gives", function()
    local Twice = nn.module {
      "Twice", init = function(self) self.w = self:param("w", { 2 }, neap.init.constant(1)) end,
      forward = function(self, x) return x * self.w end,
    }
    local ok, err = pcall(Twice, {})
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find("self:param(\"w\", ..) has made self.w already", 1, true),
      tostring(err))
  end)
  it("may be a loss with a parameter", function()
    local Loss = nn.module {
      "Scaled", init = function(self) self:param("weight", { 1 }, neap.init.constant(3)) end,
      forward = function(self, y, t) return ((y - t) ^ 2 * self.weight):mean() end,
    }
    local m = nn.Linear { 1, 1, bias = false, init = neap.init.constant(1) }
    local t <close> = neap.trainer {
      model = m, loss = Loss {}, optimizer = neap.optim.SGD { lr = 0.5 },
    }
    local r = t:step { x = neap.ones(1, 1), y = neap.zeros(1, 1) }
    assert.are.equal(3, r.loss)
    assert.are.equal(-2, m:param "weight".data:item())
    assert.are.equal(2.5, m:param "@scaled1.weight".data:item())
  end)
end)

describe("an op's name", function()
  it("is no other op's, however it came to be", function()
    local m =
      nn.module { "Both", forward = function(_, x) return x:relu() + nn.ReLU()(x * -1) * 10 end } {}
    assert.is_true(scaled(m, 1))
    assert.are.equal(20, m(neap.full { 1, 1, value = -2 }):item())
  end)
end)

describe("children", function()
  it("can be replaced, and taken out", function()
    local m = nn.module { "Two", init = function(self)
      self.a = Block { 2 }
      self.b = Block { 3 }
    end,
      forward = function(self, x)
        x = self.a(x)
        return self.b and self.b(x) or x
      end } {}
    assert.is_true(scaled(m, 6))
    local old = m.b
    m.b = Block { 5 }
    assert.is_true(scaled(m, 10))
    assert.are.same({ "a.w", "b.w" }, names_of(m:parameters()))
    assert.is_true(scaled(old, 3))
    m.b = nil
    assert.is_true(scaled(m, 2))
    assert.are.same({ "a.w" }, names_of(m:parameters()))
  end)

  it("of another width take the old one's place in training too", function()
    local m = nn.Sequential { input = { 3 }, nn.Linear { 3, 4 }, nn.Linear { 4, 2, name = "head" } }
    local t <close> = neap.trainer {
      model = m, optimizer = neap.optim.SGD { lr = 0.1, momentum = 0.9 },
    }
    t:step { x = neap.rand(5, 3), y = neap.zeros { 5, dtype = "i64" } }
    local kept = m:param "linear1.weight".data:clone()
    m.head = nn.Linear { 4, 7 }
    assert.is_true(m:param "linear1.weight".data:equal(kept))
    assert.are.same({ 5, 7 }, t:predict(neap.rand(5, 3)).shape)
    t:step { x = neap.rand(5, 3), y = neap.full { 5, value = 6, dtype = "i64" } }
    assert.are.same({ 7, 4 }, m:state_dict()["head.weight"].shape)
  end)

  it("keep the name of a parameter, and of a module's own words, for what has it", function()
    local m = Block { 2 }
    raises("is a parameter", function() m.w = nn.ReLU() end)
    raises("own word", function() m.train = nn.ReLU() end)
    raises("own word", function() m.train = 3 end)
    raises("own word", function() m.forward = function() end end)
    raises("own word", function() m.outputs = {} end)
    raises("child named", nn.module { "Bad", init = function(self)
      self.a = nn.ReLU()
      self:param("a", { 1 })
    end })
  end)

  it("that hold themselves are refused", function()
    local m = nn.module { "Ring", init = function(self) self.x = nn.ReLU() end } {}
    raises("its own child", function() m.me = m end)
    local outer = nn.module { "Outer", init = function(self) self.inner = m end } {}
    raises("its own child", function() m.up = outer end)
    m.list = { outer }
    raises("its own child", m.parameters, m)
  end)
end)

describe("a module that has run alone", function()
  it("can be put into another, numbers and all", function()
    local fc = nn.Linear { 1, 1, bias = false }
    fc:param "weight".data = neap.tensor { { 4 } }
    assert.is_true(scaled(fc, 4))
    local m = nn.Sequential { fc, nn.Linear { 1, 1, bias = false, init = neap.init.constant(2) } }
    assert.is_true(scaled(m, 8))
    assert.are.equal(4, fc:param "weight".data:item())
    assert.are.equal(4, m:param "linear1.weight".data:item())
    assert.is_true(scaled(fc, 4))
  end)

  it("keeps its training when it becomes the part of a model", function()
    local body = nn.Sequential {
      input = { 1 }, nn.Linear { 1, 1, bias = false, init = neap.init.constant(1) },
    }
    local t <close> = neap.trainer {
      model = body, loss = nn.MseLoss(), optimizer = neap.optim.SGD { lr = 0.25 },
    }
    t:step { x = neap.ones(1, 1), y = neap.zeros(1, 1) }
    local m = nn.Sequential {
      input = { 1 }, body, nn.Linear { 1, 1, bias = false, init = neap.init.constant(6) },
    }
    assert.is_true(scaled(m, 3))
    t:step { x = neap.ones(1, 1), y = neap.zeros(1, 1) } -- the trainer goes on with the same weight
    assert.is_true(scaled(m, 1.5))
  end)
end)

describe("a module that two models share", function()
  it("has one weight, whoever trains it", function()
    local encoder = nn.Linear { 1, 1, bias = false, init = neap.init.constant(2) }
    local first = nn.Sequential {
      input = { 1 }, encoder, nn.Linear { 1, 1, bias = false, init = neap.init.constant(3) },
    }
    local second = nn.Sequential {
      input = { 1 }, encoder, nn.Linear { 1, 1, bias = false, init = neap.init.constant(5) },
    }
    assert.is_true(scaled(first, 6))
    assert.is_true(scaled(second, 10))
    local t <close> = neap.trainer {
      model = second, loss = nn.MseLoss(), optimizer = neap.optim.SGD { lr = 0.01 },
    }
    -- d encoder = 2 * (10 - 9) * 5
    t:step { x = neap.ones(1, 1), y = neap.full { 1, 1, value = 9 } }
    assert.is_true(math.abs(encoder:param "weight".data:item() - 1.9) < 1e-6)
    -- packed weights are made anew
    assert.is_true(math.abs(first(neap.ones(1, 1)):item() - 5.7) < 1e-5)
    assert.is_true(math.abs(second:state_dict()["linear1.weight"]:item() - 1.9) < 1e-6)
    first:param "linear1.weight".data = neap.tensor { { 7 } }
    assert.are.equal(7, second:param "linear1.weight".data:item())
    encoder:param "weight".data:fill_(1)
    assert.is_true(math.abs(first(neap.ones(1, 1)):item() - 3) < 1e-6)
  end)

  it("is in the checkpoint of each", function()
    local encoder = Block { 2 }
    local first, second = nn.Sequential { encoder }, nn.Sequential { encoder, Block { 3 } }
    assert.is_true(scaled(first, 2))
    assert.is_true(scaled(second, 6))
    local path = os.tmpname() .. ".safetensors"
    assert(second:workspace():save(path))
    local saved = assert(neap.load(path))
    os.remove(path)
    assert.are.equal(2, saved["block1.w"]:item())
    assert.are.equal(3, saved["block2.w"]:item())
  end)

  it("is frozen, switched and looked at for a trainer of either, \z
      whichever model is told", function()
    local inner = nn.Sequential {
      input = { 2 }, seed = 2, nn.Linear { 2, 2 }, nn.Dropout { 0.5 }, nn.Linear { 2, 1 },
    }
    local outer = nn.Sequential { input = { 2 }, seed = 1, nn.Linear { 2, 2 }, inner }
    local batch = { x = neap.ones(2, 2), y = neap.ones(2, 1) }
    local function trainer(m)
      return neap.trainer {
        model = m, loss = nn.MseLoss(), optimizer = neap.optim.SGD { lr = 0.1 },
      }
    end
    local t <close> = trainer(inner)
    local u <close> = trainer(outer)
    local function changes(by)
      local was = inner:state_dict()
      by:step(batch)
      local out, now = {}, inner:state_dict()
      for name in pairs(was) do out[name] = not was[name]:equal(now[name]) or nil end
      return out
    end
    t:step(batch)
    u:step(batch)
    outer:freeze "block1.linear1*"
    assert.is_nil(changes(t)["linear1.weight"])
    assert.is_true(changes(t)["linear2.bias"])
    outer:freeze("block1.linear1*", false)
    inner:freeze "linear2*"
    assert.is_nil(changes(u)["linear2.bias"])
    outer:freeze "block1*"
    raises("parameter", t.step, t, batch)
    raises("true or false after the glob, got \"false\"", outer.freeze, outer, "*", "false")
    outer:freeze("*", false)
    assert.is_true(changes(t)["linear2.bias"])
    local seen = 0
    outer:on("block1.linear1", "forward", function() seen = seen + 1 end)
    t:step(batch)
    assert.is_true(seen > 0)
    inner:find("Dropout")[1]:eval()
    local function is_dropping()
      for _, row in ipairs(inner:net({ batch = 2, train = true, loss = nn.MseLoss() }):_ops()) do
        if row.type == "Dropout" then return true end
      end
      return false
    end
    assert.is_false(is_dropping())
    outer:train()
    assert.is_true(is_dropping())
  end)

  it("twice in one model is shared there", function()
    local block = Block { 3 }
    local m = nn.Sequential { block, block }
    assert.are.same({ "block1.w" }, names_of(m:parameters()))
    assert.is_true(scaled(m, 9))
  end)
end)

describe("two models without a seed", function()
  it("begin with different numbers, the same after the same neap.seed", function()
    local function build() return nn.Linear { 4, 4 } end
    neap.seed(5)
    local a, b = build():state_dict().weight, build():state_dict().weight
    neap.seed(5)
    local c = build():state_dict().weight
    assert.is_false(a:equal(b))
    assert.is_true(a:equal(c))
  end)
end)

describe("what a class is called with", function()
  it("is used or refused", function()
    assert.are.equal("Linear { 3, 4 }", tostring(nn.Linear(3, 4)))
    assert.are.same({ 4, 3 }, nn.Linear(3, 4):param "weight".shape)
    assert.is_nil(nn.Linear(3, 4, { bias = false })._params.bias)
    assert.are.equal("Dropout { 0.25 }", tostring(nn.Dropout(0.25)))
    assert.are.equal("Sequential\n  relu1: ReLU\n  tanh1: Tanh",
      tostring(nn.Sequential(nn.ReLU(), nn.Tanh())))
    assert.are.equal("Conv2d { 1, 20, kernel = 5x5 }", tostring(nn.Conv2d(1, 20, { kernel = 5 })))
    raises("positional", nn.Linear, 3, 4, 5)
    raises("positional", nn.ReLU, 3)
    raises("positional", nn.Identity, { 3 })
    raises("unknown field", nn.Lambda, { function(x) return x end, g = 3 })
    raises("before the table, or in it", nn.Linear, 3, { 4 })
  end)
end)

describe("what a module is given and gives", function()
  local x = neap.ones(2, 8)
  local Two = nn.module {
    "Two", init = function(self) self.a, self.b = nn.Linear { 8, 2 }, nn.Linear { 8, 2 } end,
    forward = function(self, v) return self.a(v), self.b(v) end,
  }
  local function trainer(model, loss)
    return neap.trainer { model = model, loss = loss, optimizer = neap.optim.SGD { lr = 0.1 } }
  end
  local batch = { x = x, y = neap.ones(2, 2) }

  it("is read, or raises: inputs that a forward does not have", function()
    for class, m in pairs {
      Linear = nn.Linear { 8, 2 }, Lambda = nn.Lambda(function(v) return v end), ReLU = nn.ReLU(),
    } do
      raises(("nn.%s takes 1 input, got 2"):format(class), m, x, x)
    end
    raises("nn.Linear takes 1 input, got 2", nn.Sequential { nn.Linear { 8, 2 } }, x, x)
    raises("takes 1 input, got 2", nn.SelfAttention { 8, heads = 2 }, neap.ones(1, 2, 8), x)
    raises("nn.Linear takes 1 input, got 2", nn.Sequential { Two {}, nn.Linear { 2, 2 } }, x)
  end)

  it("comes through: all outputs of a layer go to the next one, to the \z
      loss and to predict", function()
    local sum = nn.Sequential { Two {}, nn.Lambda(function(a, b) return a + b end) }
    local a, b = sum:children()[1](x)
    assert.is_true(sum(x):close(a + b))
    local m = Two {}
    local t <close> = trainer(m, function(p, q, y) return ((p + q - y) ^ 2):mean() end)
    local before = m:state_dict()["b.weight"]
    local loss = t:step(batch).loss
    assert.is_true(t:step(batch).loss < loss)
    assert.is_false(m:state_dict()["b.weight"]:equal(before))
    assert.are.equal(2, select("#", t:predict(x)))
    local short <close> = trainer(Two {}, function(p, y) return ((p - y) ^ 2):mean() end)
    raises("the loss function takes 2 inputs, got 3", short.step, short, batch)
  end)

  it("is a loss of one blob that depends on the model", function()
    for words, loss in pairs {
      ["the loss gives 0 values"] = function(_, _) end,
      ["the loss gives a number"] = function(_, _) return 3 end,
      ["the loss gives 2 values"] = function(p, y) return (p - y):mean(), y end,
      ["depends on no trainable parameter"] = function(_, y) return y:mean() end,
    } do
      local t <close> = trainer(nn.Linear { 8, 2 }, loss)
      raises(words, t.step, t, batch)
    end
    raises("one shape is expected", nn.BceWithLogitsLoss(), neap.ones(2, 1), neap.ones(2))
  end)

  it("is not run twice: a layer that only the loss met is no layer of the model", function()
    local m, p = nn.Sequential { input = { 8 }, nn.Linear { 8, 2 } }, nn.Linear { 2, 2 }
    p:freeze "*"
    local out = m(x):clone()
    local t <close> = neap.trainer {
      model = m,
      loss = function(o, y) return (p(o) - y):abs():mean() end,
      optimizer = neap.optim.SGD { lr = 0 },
    }
    assert.are.equal((p(out) - batch.y):abs():mean():item(), t:step(batch).loss)
    assert.is_true(t:predict(x):equal(out))
    assert.is_true(m(x):equal(out))
  end)

  it("is in the lists of a model that has not run, closures and all", function()
    local l = nn.Linear { 8, 2 }
    local m = nn.Sequential { input = { 8 }, nn.Lambda(function(v) return l(v) end) }
    assert.are.equal(2, #m.params)
    raises("memory expects a table", neap.trainer, {
      model = m, memory = "20KiB", optimizer = neap.optim.SGD { lr = 0.1 },
    })
  end)

  it("is built anew when a field that the forward reads is set", function()
    local Scale = nn.module {
      "Scale",
      init = function(self) self.by = 2 end, forward = function(self, v) return v * self.by end,
    }
    local s = Scale {}
    assert.are.equal(2, s(neap.ones(1)):item())
    s.by = 4
    assert.are.equal(4, s(neap.ones(1)):item())
  end)
end)

describe("modes", function()
  it("are set by a boolean too, and hold for a child of a model that evaluates", function()
    local m = nn.Sequential { nn.Linear { 8, 64 }, nn.Dropout(0.5) }
    local x = neap.ones(2, 8)
    assert.is_false(m:train(false).training)
    assert.is_true(m:train(true).training)
    raises("expects nothing, true or false", m.train, m, 3)
    m:eval()
    m:children()[2]:train()
    assert.are_not.equal(m(x):hash(), m(x):hash())
    m:eval()
    assert.are.equal(m(x):hash(), m(x):hash())
  end)
end)

describe("names of a child", function()
  it("are its own in what it gives and takes", function()
    local body = nn.Sequential { nn.Linear { 8, 4 } }
    local whole = nn.Sequential { body, nn.Linear { 4, 2 } }
    local other = nn.Sequential { nn.Linear { 8, 4 } }
    local x = neap.ones(2, 8)
    whole(x)
    other(x)
    body:load_state_dict(other:state_dict())
    assert.is_true(body(x):equal(other(x)))
    local names = {}
    for name in body:parameters() do names[#names + 1] = name end
    assert.same({ "linear1.weight", "linear1.bias" }, names)
    body:freeze "linear1.*"
    assert.is_false(whole:param("block1.linear1.weight").trainable)
    assert.is_not_nil(whole:state_dict()["block1.linear1.weight"])
  end)
end)

describe("layers in branches and loops", function()
  local X = neap.tensor { { 1, 2, 6 }, { 3, 1, 2 } }

  --- A class with two batch norms, of which x.net:If runs one.
  local Either = nn.module { "Either",
    init = function(self) self.a, self.b = nn.BatchNorm1d { 3 }, nn.BatchNorm1d { 3 } end,
    forward = function(self, x)
      return x.net:If(x:sum():gt(0), function() return self.a(x) end,
        function() return self.b(x) end)
    end }

  it("belong to their branch: the one not taken leaves its statistics alone", function()
    for _, sign in ipairs { 1, -1 } do
      local m = Either {}
      local results = table.pack(m(X * sign))
      assert.equal(1, results.n)
      local state, taken, other = m:state_dict(), sign == 1 and "a" or "b", sign == 1 and "b" or "a"
      assert.is_true(state[taken .. ".running_mean"]:abs():sum():item() > 0)
      assert.equal(0, state[other .. ".running_mean"]:abs():sum():item())
      assert.is_true(results[1]:equal(nn.BatchNorm1d { 3 }(X * sign)))
    end
    local outer = Either {}:net { batch = 2, input = { 3 } }
    for _, op in ipairs(outer:_ops()) do assert.are_not.equal("BatchNorm", op.type) end
  end)

  it("learn in the branch that ran alone", function()
    local M = nn.module {
      "M",
      init = function(self)
        self.a, self.b = nn.Sequential { nn.Linear { 3, 1 }, nn.Dropout { 0.5 } },
          nn.Linear { 3, 1 }
      end,
      forward = function(self, x)
        return x.net:If(x:sum():gt(0), function() return self.a(x) end,
          function() return self.b(x) end)
      end,
    }
    local m = M {}
    m(X)
    local before = m:state_dict()
    local t = neap.trainer {
      model = m, optimizer = neap.optim.SGD { lr = 0.1 }, loss = nn.MseLoss(),
    }
    t:step { x = X * -1, y = neap.ones(2, 1) }
    local after = m:state_dict()
    assert.is_true(before["a.linear1.weight"]:equal(after["a.linear1.weight"]))
    assert.is_false(before["b.weight"]:equal(after["b.weight"]))
    assert.equal(8, m:summary { batch = 2, input = { 3 } }.trainable)
  end)

  it("run in the bodies of While and Recurrent, with the parameters that \z
      they have outside", function()
    local Loop = nn.module { "Loop",
      init = function(self) self.f = nn.Linear { 3, 3 } end,
      forward = function(self, x)
        return x.net:While {
          init = { x }, max = 3, cond = function(_, h) return h:square():sum():gt(0) end,
          body = function(_, h) return self.f(h):tanh() end,
        }
      end }
    local Unrolled = nn.module { "Unrolled",
      init = function(self) self.f = nn.Linear { 3, 3 } end,
      forward = function(self, x)
        for _ = 1, 3 do x = self.f(x):tanh() end
        return x
      end }
    local Steps = nn.module {
      "Steps",
      init = function(self)
        self.f, self.n = nn.Linear { 3, 3 }, nn.Sequential { nn.LayerNorm { 3 }, nn.Dropout { 0 } }
      end,
      forward = function(self, x)
        local h, all = x.net:Recurrent {
          seq = { x },
          init = { neap.zeros(3) },
          step = function(_, h, row)
            local next_h = self.n(self.f(row + h)):tanh()
            return next_h, next_h
          end,
        }
        return h, all
      end,
    }
    local loop, unrolled, steps = Loop {}, Unrolled {}, Steps {}
    loop:seed(1)
    unrolled:seed(1)
    assert.is_true((loop(X) - unrolled(X)):abs():max():item() < 1e-6)
    for _, m in ipairs { loop, unrolled } do
      local t = neap.trainer {
        model = m, optimizer = neap.optim.SGD { lr = 0.1 }, loss = nn.MseLoss(),
      }
      for _ = 1, 2 do t:step { x = X, y = neap.ones(2, 3) } end
    end
    assert.is_true((loop(X) - unrolled(X)):abs():max():item() < 1e-6)
    local h, all = steps(X)
    assert.is_true(h:equal(all[2]))
    local dx = steps:backward(X, neap.ones(3))
    assert.same({ 2, 3 }, dx.shape)
  end)

  it("count each step of a loop in their statistics", function()
    local M = nn.module { "M",
      init = function(self) self.n = nn.BatchNorm1d { 3, momentum = 0.5 } end,
      forward = function(self, x)
        return x.net:While {
          init = { x },
          max = 2,
          cond = function(b) return b:const(1) end,
          body = function(_, h) return self.n(h) + 1 end,
        }
      end }
    local m = M {}
    local results = table.pack(m(X))
    assert.equal(1, results.n)
    -- means: 2, 1.5, 4 at first, then 1 each
    local mean = m:state_dict()["n.running_mean"]
    assert.is_true((mean - neap.tensor { 1, 0.875, 1.5 }):abs():max():item() < 1e-5)
  end)

  it("say where they cannot be called or watched", function()
    local Watched = nn.module { "Watched",
      init = function(self) self.a = nn.Linear { 3, 1 } end,
      forward = function(self, x)
        return x.net:If(x:sum():gt(0), function() return self.a(x) end,
          function(b) return b:const(0) + x:sum() end)
      end }
    local m = Watched {}
    m:on("a", "backward", function() end)
    raises("gradients stay inside", m, X)
    local InDo = nn.module { "InDo",
      init = function(self) self.a = nn.Linear { 3, 1 } end,
      forward = function(self, x)
        x.net:CreateScope({}, "s")
        return (x.net:Do {
          bindings = { h = x }, scope = "s", body = function(d) return self.a(d:Neg "h") end,
        })
      end }
    raises("call the layer outside", InDo {}, X)
  end)
end)

describe("the fields of a class", function()
  local function forward(_, x) return x end

  it("are checked: a misspelt one is nobody's, methods and constants \z
      are the class's own", function()
    raises('did you mean "forward"?', nn.module, { "A", forwrd = forward })
    raises('did you mean "init"?', nn.module, { "A", forward = forward, inti = function() end })
    raises('did you mean "options"?', nn.module, { "A", forward = forward, option = { a = 1 } })
    raises("init is a function, got a table", nn.module, { "A", forward = forward, init = {} })
    raises("options is a table, got a function", nn.module,
      { "A", forward = forward, options = forward })
    local A = nn.module {
      "A",
      forward = function(self, x) return self:scaled(x) end,
      scaled = function(self, x) return x * self.factor end, factor = 3,
    }
    assert.equal(3, A {}(neap.ones(1)):item())
  end)

  it("that init does not read are refused where it declares none", function()
    local M = nn.module {
      "M", init = function(self, o) self.width, self.bias = o[1], o.bias end, forward = forward,
    }
    raises('nn.M: unknown field "nonsense"', M, { 3, nonsense = 5 })
    raises('nn.M: unknown field "bais"', M, 3, { bais = true })
    assert.same({ 3, true }, { M { 3, bias = true }.width, M { 3, bias = true }.bias })
    assert.equal("M", tostring(M { 3, name = "first" }))
    local Kept = nn.module {
      "Kept",
      init = function(self, o) self.o = o end,
      forward = function(self, x) return x * self.o.factor end,
    }
    assert.equal(2, Kept { factor = 2 }(neap.ones(1)):item())
    assert.is_nil(getmetatable(Kept { factor = 2 }.o))
    local Walked = nn.module { "Walked", forward = forward, init = function(self, o)
      self.n, self.last = #o, select(-1, table.unpack(o))
      for key, value in pairs(o) do self["the_" .. key] = value end
      o.added = 1
      self.added = o.added
    end }
    local m = Walked { 5, 6, a = 1, b = 2 }
    assert.same({ 2, 6, 1, 2, 1 }, { m.n, m.last, m.the_a, m.the_b, m.added })
    local Handed = nn.module {
      "Handed",
      forward = function(self, x) return self.l(x) end,
      init = function(self, o) self.l = nn.Linear(o) end,
    }
    assert.is_false(Handed { 2, 1, bias = false }.l.has_bias)
    raises('did you mean "bias"', Handed, { 2, 1, bais = false })
  end)

  it("have the shape of one example among them in every class", function()
    local function made(options)
      return nn.module {
        "M", options = options, init = function(self) self.l = nn.Linear { 2 } end,
        forward = function(self, x) return self.l(x) end,
      }
    end
    for _, M in ipairs { made(nil), made { width = 3 } } do
      local m = M { input = { 3 } }
      assert.equal(8, m:count { train = false }.parameters or m:summary {}.parameters)
      assert.same({ 2, 2 }, m:net { batch = 2 } and select(2, m:net { batch = 2 }).output.shape)
    end
    assert.equal(8, nn.Linear { 2, input = { 3 } }:summary({}).parameters)
    assert.equal(12, nn.Residual { nn.Linear { 3, 3 }, input = { 3 } }:summary({}).parameters)
    raises("input expects the shape of one example", nn.Linear, { 2, input = 3 })
    raises("input expects the shape of one example", made { width = 3 }, { input = { "x" } })
    local Own = nn.module {
      "Own", init = function(self, o) self.width = o.input end, forward = forward,
    }
    assert.equal(3, Own { input = 3 }.width)
    assert.is_nil(Own { input = 3 }.input_shape)
  end)
end)

describe("what nothing can be made of", function()
  it("is a call without an input", function()
    for _, m in ipairs {
      nn.Linear { 4, 2 }, nn.Sequential { nn.Linear { 4, 2 } },
      nn.Sequential { nn.Dropout { 0.5 } },
    } do
      raises("expects its input, a tensor: m(x) or m:forward(x), got nothing", function()
        return m:forward()
      end)
      raises("expects its input", function() return m(nil) end)
    end
    local Own = nn.module {
      "Own",
      init = function(self) self:param("w", { 2 }, 3) end,
      forward = function(self) return self.w * 2 end,
    }
    assert.equal(12, Own {}():sum():item())
  end)

  it("is a forward that gives nothing, or what it does not compute", function()
    local function of(f) return nn.Lambda(f) end
    local x = neap.ones(2, 2)
    raises("forward gives nothing: is its return missing?", of(function(_) end), x)
    raises("forward gives a number as result 1", of(function(_) return 3 end), x)
    raises("a table as result 1, expected what it computes of its inputs; several results",
      of(function(y) return { y } end), x)
    local t <close> = neap.trainer { model = of(function(_) end),
      optimizer = neap.optim.SGD { lr = 1 }, loss = function(y) return y:mean() end }
    raises("forward gives nothing", t.step, t, { x = x })
    local Plain = nn.module { "PlainForward", init = function() end,
      forward = function(y) return y end }
    raises("forward(self, x) has self before it", Plain {}, x)
  end)

  it("is a loss whose gradient reaches no parameter: past stop_gradient, \z
      integers or flags", function()
    local function step(forward)
      local M = nn.module {
        "M", init = function(self) self.a = nn.Linear { 2, 2 } end, forward = forward,
      }
      local t = neap.trainer {
        model = M {}, optimizer = neap.optim.SGD { lr = 0.1 }, loss = nn.MseLoss(),
      }
      return t:step { x = neap.ones(2, 2), y = neap.ones(2, 2) }
    end
    local none = "the loss depends on no trainable parameter"
    raises(none, step, function(self, x) return self.a(x):stop_gradient() end)
    raises(none, step, function(self, x) return self.a(x):to("i32"):to "f32" end)
    raises(none, step, function(self, x) return self.a(x):gt(0):to "f32" end)
    assert.is_number(step(function(self, x) return self.a(x) + self.a(x):stop_gradient() end).loss)
    assert.is_number(step(function(self, x)
      return x.net:If(x:sum():gt(0), function() return self.a(x) end, function() return x * 2 end)
    end).loss)
  end)
end)

describe("a buffer", function()
  -- A memory bank: its rows are negatives, then the batch's take the place of the oldest.
  local function bank_of(write)
    return nn.module { "Bank",
      init = function(self)
        self.a = nn.Linear { 2, 2, bias = false, init = neap.init.constant(0.5) }
        self:buffer("bank", { 4, 2 }, 1)
      end,
      forward = function(self, x)
        local y = self.a(x)
        local far = y:matmul(self.bank:transpose(1, 2))
        local new = neap.concat({ x, self.bank:narrow(1, 1, 2) }, { axis = 1 })
        if self.training then write(self, new) end
        return far
      end } {}
  end
  local x = neap.tensor { { 1, 2 }, { 3, 4 } }

  it("is written by a forward that trains, and a gradient is of what was read", function()
    local function trained(write, memory)
      local m = bank_of(write)
      local t <close> = neap.trainer { model = m, loss = function(y) return y:square():mean() end,
        optimizer = neap.optim.SGD { lr = 0.1 }, memory = memory }
      t:step { x = x }
      return m.a.weight.data:clone(), m
    end
    local plain = trained(function() end)
    for _, memory in ipairs { {}, { policy = "none" }, { policy = "pool" },
      { executor = "dag" } } do
      local weight, m = trained(function(self, new) new.net:Copy({ new }, { self.bank }) end,
        memory)
      assert.is_true(weight:equal(plain))
      local want = neap.tensor { { 1, 2 }, { 3, 4 }, { 1, 1 }, { 1, 1 } }
      assert.is_true(m.bank.data:equal(want))
      m:eval()
      m(x)
      assert.is_true(m.bank.data:equal(want))
    end
  end)
  it("is not assigned in a forward: the error says what writes it", function()
    raises({ '"bank" is a buffer', "net:Copy({ new }, { self.bank })" },
      bank_of(function(self, new) self.bank = new end), x)
  end)
end)
