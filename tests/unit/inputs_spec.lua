--- Models of several inputs, trained.
local neap = require "neap"
local nn = neap.nn
local support = require "support"
local raises = support.raises

local Two = nn.module { "Two", init = function(self)
  self.left = nn.Linear { 3, 4 }
  self.right = nn.Linear { 2, 4 }
end, forward = function(self, image, text) return self.left(image):tanh() * self.right(text) end }

--- The same with one input, whose columns are both.
local Joined = nn.module {
  "Joined",
  init = function(self)
    self.left = nn.Linear { 3, 4 }
    self.right = nn.Linear { 2, 4 }
  end,
  forward = function(self, x)
    return self.left(x:narrow(2, 1, 3)):tanh() * self.right(x:narrow(2, 4, 2))
  end,
}

local function trainer_of(class, given)
  local o = { model = class {}, optimizer = neap.optim.SGD { lr = 0.1 }, seed = 3 }
  for key, value in pairs(given or {}) do o[key] = value end
  return neap.trainer(o)
end

local n = 12
local image, text = neap.rand(n, 3), neap.rand(n, 2)
local y = neap.tensor({ 0, 1, 2, 3, 0, 1, 2, 3, 3, 2, 1, 0 }, "i64")
local both = neap.tensor(image).concat({ image, text }, { axis = 2 })

local function same_start(a, b) b.model:load_state_dict(a.model:state_dict()) end

--- Both trainers' parameters are alike.
local function assert_alike(a, b, what)
  for name, t in pairs(a.model:state_dict()) do
    assert.is_true(t:close(b.model:state_dict()[name], { atol = 1e-6 }), what .. ": " .. name)
  end
end

describe("a model of two inputs", function()
  local forms = {
    ["by name"] = { image = image, text = text, y = y },
    ["by number"] = { x1 = image, x2 = text, y = y },
    ["as a list"] = { x = { image, text }, y = y }, ["in order"] = { image, text, y = y },
    ["the target last"] = { image, text, y },
    ["x first"] = { x = image, text = text, y = y },
  }
  for what, batch in pairs(forms) do
    it("steps as one of one input does: " .. what, function()
      for kind, o in pairs {
        whole = {}, micro = { micro = 5 }, fit = { micro = "fit", memory = { total = "64MiB" } },
        accumulate = { accumulate = 2 },
        both = { micro = 5, accumulate = 2 },
      } do
        local a <close> = trainer_of(Two, o)
        local b <close> = trainer_of(Joined, o)
        same_start(a, b)
        for _ = 1, 4 do
          local p, q = a:step(batch), b:step { x = both, y = y }
          assert.is_true(math.abs(p.loss - q.loss) < 1e-6, kind)
        end
        assert_alike(a, b, what .. ", " .. kind)
      end
    end)
  end

  it("is fitted, evaluated and asked for predictions", function()
    for _, o in ipairs { {}, { micro = 3 }, { accumulate = 2 } } do
      local a <close> = trainer_of(Two, o)
      local b <close> = trainer_of(Joined, o)
      same_start(a, b)
      local set = neap.data.tensors { image = image, text = text, y = y, batch = 5, shuffle = true }
      local one = neap.data.tensors { x = both, y = y, batch = 5, shuffle = true }
      a:fit(set, { epochs = 2, verbose = 0, valid = set })
      b:fit(one, { epochs = 2, verbose = 0, valid = one })
      assert_alike(a, b, "fit")
      assert.is_true(math.abs(a:evaluate(set).loss - b:evaluate(one).loss) < 1e-6)
      local out = b:predict(both)
      assert.is_true(a:predict(image, text):close(out, { atol = 1e-6 }))
      assert.is_true(a:predict({ image = image, text = text }):close(out, { atol = 1e-6 }))
      assert.is_true(a:predict({ x = { image, text } }):close(out, { atol = 1e-6 }))
    end
  end)

  it("has inputs of the dtype that is given for all that do not say one", function()
    local Ids = nn.module { "Ids", init = function(self) self.table = nn.Embedding { 10, 4 } end,
      forward = function(self, a, b)
        local y = self.table(a)
        return b and y + self.table(b) or y
      end }
    local function dtypes(input)
      local list = {}
      for i, x in ipairs(Ids():net({ batch = 2, input = input, input_dtype = "i64" }):inputs()) do
        list[i] = x.dtype
      end
      return list
    end
    assert.are.same({ "i64" }, dtypes { 5 })
    assert.are.same({ "i64" }, dtypes { { 5 } })
    assert.are.same({ "i64", "i64" }, dtypes { { 5 }, { 5 } })
    assert.are.same({ "i64", "i64" }, dtypes { a = { 5 }, b = { 5 } })
    assert.are.same({ "i32", "i64" }, dtypes { a = { 5, dtype = "i32" }, b = { 5 } })
  end)

  it("is planned and counted before data is seen, by the shapes that it is given", function()
    local m = Two {}
    local shapes = { image = { 3 }, text = { 2 } }
    assert.are.equal(m:plan({ batch = 7, input = shapes }).total_bytes,
      m:plan({ batch = 7, input = { { 3 }, { 2 } } }).total_bytes)
    assert.is_true((neap.fit_batch(m, { input = shapes, total = "64KiB", train = true })) > 1)
    assert.is_truthy(
      tostring(m:summary { batch = 2, input = shapes }):find("Two: (2,3), (2,2) to (2,4)", 1, true))
    local own = Two { input = shapes } -- the model's own
    assert.are.equal(m:plan({ batch = 7, input = shapes }).total_bytes,
      own:plan({ batch = 7 }).total_bytes)
    local t <close> = trainer_of(Two)
    assert.is_true(t:forecast(9, { image = image, text = text, y = y }).total_bytes > 0)
  end)

  it("takes rows from Lua and from a data set's map", function()
    local a <close> = trainer_of(Two)
    local b <close> = trainer_of(Two)
    same_start(a, b)
    a:fit(
      neap.data.from {
        n = n,
        batch = 4,
        image = { 3 },
        text = { 2 },
        y = { dtype = "i64" },
        get = function(i, slot)
          slot.image:copy_(image[i])
          slot.text:copy_(text[i])
          slot.y:fill_(y[i])
        end,
      }, { verbose = 0 })
    b:fit(neap.data.tensors { x = both, y = y, batch = 4, map = function(batch)
      return {
        image = batch.x:narrow(2, 1, 3):clone(),
        text = batch.x:narrow(2, 4, 2):clone(),
        y = batch.y,
      }
    end }, { verbose = 0 })
    assert_alike(a, b, "map")
  end)

  it("an argument that the data does not give is nil", function()
    local Maybe = nn.module {
      "Maybe",
      init = function(self) self.f = nn.Linear { 3, 4 } end,
      forward = function(self, x, mask)
        local h = self.f(x)
        return mask and h * mask or h
      end,
    }
    local a <close> = trainer_of(Maybe)
    local b <close> = trainer_of(Maybe)
    same_start(a, b)
    a:step { x = image, y = y }
    b:step { x = image, mask = neap.ones(n, 1), y = y }
    assert_alike(a, b, "mask")
  end)

  it("refuses what fits no argument, and changes nothing", function()
    local t <close> = trainer_of(Two)
    raises("forward(image, text): nothing reads its field \"txt\", did you mean \"text\"?", t.step,
      t, { image = image, txt = text, y = y })
    raises("are both argument 1", t.step, t, { image = image, x1 = image, text = text, y = y })
    raises("has 5 rows", t.step, t, { image = image, text = neap.rand(5, 2), y = y })
    raises("text expects a tensor", t.step, t, { image = image, text = 3, y = y })
    assert.are.equal(1, t:step({ image = image, text = text, y = y }).step)
    raises("a batch has no text", t.step, t, { image = image, y = y })
    raises("unknown field", neap.data.tensors, { image = image, y = y, shufle = true })
    raises("image has 12 rows, text 5", neap.data.tensors,
      { image = image, text = neap.rand(5, 2), y = y })
    assert.are.equal(2, t:step({ image = image, text = text, y = y }).step)
  end)
end)

describe("what a model is made for", function()
  it("may name a dtype beside the one shape, as among several", function()
    local one, list = { 5, dtype = "i64" }, { { 5, dtype = "i64" } }
    local function words(given) return nn.Sequential { input = given, nn.Embedding { 10, 8 } } end
    for _, input in ipairs { one, list } do
      assert.is_truthy(tostring(words(input):summary()):find("(1,5) to (1,5,8)", 1, true))
      local net = words(nil):net { batch = 3, input = input }
      assert.are.same({ { 3, 5 }, "i64" }, { net:inputs()[1].shape, net:inputs()[1].dtype })
      assert.is_true((neap.fit_batch(words(nil), { input = input, total = "64KiB" })) > 1)
    end
    local halves = nn.Sequential { input = { 64, dtype = "bf16" }, nn.ReLU {} }
    assert.are.equal("bf16", halves:net({ batch = 2 }):inputs()[1].dtype)
    local linear = nn.Sequential { input = { 64, dtype = "bf16" }, nn.Linear { 64, 8 } }
    local err = raises("w expects dtype bf16, as x has, got f32", linear.plan, linear, {})
    assert.are.equal("Cast makes one dtype of another", err.hint)
    raises("unknown dtype bf61", function()
      return nn.Sequential { input = { 64, dtype = "bf61" }, nn.ReLU {} }:plan {}
    end)
    for _, wrong in ipairs { { 64, 2.5 }, { 64, names = "i64" }, { { 64 }, dtype = "i64" } } do
      raises("input expects the shape of one example", function()
        return nn.Sequential { input = wrong, nn.ReLU {} }
      end)
    end
  end)

  it("is the last batch that it has met, where it was not told", function()
    local function said(m) return (tostring(m:summary { batch = 2 }):match "^[^\n]+") end
    local called = nn.Sequential { nn.ReLU {} }
    raises("the shape of one example is unknown", called.summary, called)
    called(neap.zeros(5, 4))
    assert.are.equal("Sequential: (2,4) to (2,4)", said(called))
    called(neap.zeros(5, 6))
    called(neap.zeros(5, 3))
    called(neap.zeros(5, 6)) -- a net that is there already
    assert.are.equal("Sequential: (2,6) to (2,6)", said(called))
    pcall(called, neap.zeros(5, 7), neap.zeros(5, 7))
    assert.are.equal("Sequential: (2,6) to (2,6)", said(called))

    local data = neap.data.tensors { image = image, text = text, y = y, batch = 5 }
    for _, f in ipairs {
      function(t) t:fit(data, { verbose = 0 }) end, function(t) t:evaluate(data) end,
      function(t) t:step { image = image, text = text, y = y } end,
      function(t) t:predict(image, text) end,
    } do
      local t <close> = trainer_of(Two)
      f(t)
      assert.are.equal("Two: (2,3), (2,2) to (2,4)", said(t.model))
      local told = Two { input = { { 3 }, { 2 } } }
      assert.are.equal(told:plan({ batch = 7 }).total_bytes,
        t.model:plan({ batch = 7 }).total_bytes)
      local other <close> = neap.trainer {
        model = t.model, optimizer = neap.optim.SGD { lr = 0.1 },
      }
      assert.is_true(other:forecast(7).total_bytes > t.model:plan({ batch = 7 }).total_bytes)
      assert.is_true(other:plan(7).total_bytes > 0)
    end

    local t <close> = trainer_of(Two)
    local bad = y:clone()
    bad[1] = 9
    pcall(t.step, t, { image = image, text = text, y = bad })
    raises("the shape of one example is unknown", t.model.summary, t.model)
  end)
end)
