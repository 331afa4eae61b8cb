--- Batches with named fields: forward and losses take those that they name.
local neap = require "neap"
local nn, optim, data = neap.nn, neap.optim, neap.data
local raises = require("support").raises

local function trainer(o)
  o.optimizer = o.optimizer or optim.SGD { lr = 0.1 }
  return neap.trainer(o)
end

local Tagger = nn.module {
  "Tagger",
  init = function(self)
    self.embed = nn.Embedding { 10, 6 }
    self.rnn = nn.GRU { 6, 4, bidirectional = true }
    self.out = nn.Linear { 8, 3 }
  end,
  forward = function(self, ids, lengths) return self.out(self.rnn(self.embed(ids), lengths)) end,
}

local Vae = nn.module {
  "Vae",
  init = function(self) self.enc, self.dec = nn.Linear { 4, 4 }, nn.Linear { 2, 4 } end,
  forward = function(self, x)
    local h = self.enc(x)
    local mu, logvar = h:narrow(2, 1, 2), h:narrow(2, 3, 2)
    return self.dec(mu), mu, logvar
  end,
}

local function filled(shape, dtype, k)
  local sizes = table.move(shape, 1, #shape, 1, { dtype = dtype })
  return neap.zeros(sizes):apply_(function()
    k = (k * 5 + 3) % 7
    return dtype == "i64" and k % 3 or k / 7
  end)
end

--- A batch of sequences of T ids, n of which count in each row.
local function words(n, T, y)
  return {
    ids = filled({ n, T }, "i64", 1),
    lengths = neap.full { n, value = math.max(T - 1, 1), dtype = "i64" },
    y = y or filled({ n, T }, "i64", 2),
  }
end

describe("a batch of named fields", function()
  it("gives forward and a loss those that they name", function()
    local x = filled({ 6, 4 }, "f32", 3)
    local t <close> = trainer { model = Vae {}, seed = 3,
      loss = function(r, mu, logvar, x) return r:mse_loss(x) + (mu * mu + logvar:exp()):mean() end }
    local same <close> = trainer { model = Vae {}, seed = 3, -- t is no field: the target
      loss = function(r, mu, logvar, t) return r:mse_loss(t) + (mu * mu + logvar:exp()):mean() end }
    assert.are.equal(same:step({ x = x, y = x }).loss, t:step({ x = x }).loss)
    local blind <close> = trainer { model = Vae {},
      loss = function(r, mu, logvar) return (r * r):mean() + (mu * logvar):mean() end }
    raises("takes 3 inputs, got 4: the model's outputs and the target", blind.step, blind,
      { x = x, y = x })
  end)

  it("adds weighted losses, and tells the value of each", function()
    local x = filled({ 6, 4 }, "f32", 3)
    local function make(o)
      o.model, o.seed = Vae {}, 5
      return trainer(o)
    end
    local t <close> = make { losses = {
      { function(r, _, _, x) return r:mse_loss(x) end, name = "recon" },
      { function(_, mu) return (mu * mu):mean() end, weight = 0.25 },
      { nn.L1Loss(), output = 3, target = "z", weight = 0.5, name = "third" },
    } }
    local one <close> = make { loss = function(r, mu, logvar, x, z)
      return r:mse_loss(x) + (mu * mu):mean() * 0.25 + logvar:l1_loss(z) * 0.5
    end }
    local batch = { x = x, z = filled({ 6, 2 }, "f32", 1) }
    for _ = 1, 3 do
      local got, want = t:step(batch), one:step(batch)
      assert.is_true(math.abs(got.loss - want.loss) < 1e-6)
      assert.is_true(
        math.abs(got.recon + 0.25 * got.loss2 + 0.5 * got.third - got.loss) < 1e-6)
    end
    batch.batch = 4
    local set = data.tensors(batch)
    local report = t:fit(set, { epochs = 2, verbose = 0, valid = set })
    assert.is_true(report[2].valid_recon > 0 and report[1].third > 0)
    assert.is_true(math.abs(t:evaluate(set).loss - report[2].valid_loss) < 1e-6)
  end)

  it("is the same step in micro-batches, whose labels the loss counts", function()
    local y = filled({ 6, 5 }, "i64", 2)
    y[{ 1, { 2, 5 } }] = -1
    y[{ 4, {} }] = -1
    local function make(o)
      o.model, o.seed, o.loss = Tagger {}, 7, nn.CrossEntropyLoss { ignore_index = -1 }
      return trainer(o)
    end
    local whole <close> = make {}
    local parts <close> = make { micro = 2 }
    local other <close> = make { micro = 4, losses = nil }
    for _ = 1, 2 do
      local want = whole:step(words(6, 5, y)).loss
      assert.is_true(math.abs(parts:step(words(6, 5, y)).loss - want) < 1e-6)
      assert.is_true(math.abs(other:step(words(6, 5, y)).loss - want) < 1e-6)
    end
    for name, p in pairs(whole.model:state_dict()) do
      assert.is_true(p:close(parts.model:state_dict()[name], { atol = 1e-6 }), name)
    end
  end)

  it("may have other sizes each time: programs of all run in the bytes of the largest", function()
    local function make(o)
      o.model, o.seed, o.loss = Tagger {}, 7, nn.CrossEntropyLoss()
      return trainer(o)
    end
    local t <close> = make {}
    local fresh = { t:step(words(4, 9)).loss }
    local held = t.ws:arena_bytes()
    for _, T in ipairs { 3, 7, 1, 9 } do fresh[#fresh + 1] = t:step(words(4, T)).loss end
    assert.are.equal(held, t.ws:arena_bytes())
    -- a trainer that has met no larger one does the same
    local other <close> = make {}
    for i, T in ipairs { 9, 3, 7, 1, 9 } do
      assert.are.equal(fresh[i], other:step(words(4, T)).loss)
      other:evaluate(data.tensors { ids = words(4, T).ids, lengths = words(4, T).lengths,
        y = words(4, T).y, batch = 3 })
    end
    local images <close> = trainer {
      model = nn.Sequential { nn.Conv2d { 1, 2, kernel = 3 }, nn.GlobalAvgPool(), nn.Flatten(),
        nn.Linear { 2, 2 } } }
    for _, size in ipairs { { 8, 5 }, { 5, 8 }, { 12, 6 }, { 8, 5 } } do
      local x = filled({ 3, 1, size[1], size[2] }, "f32", 1)
      local r = images:step { x = x, y = neap.tensor({ 0, 1, 1 }, "i64") }
      assert.is_true(r.updated)
      assert.are.same({ 3, 2 }, images:predict(x).shape)
    end
  end)

  it("of other fields, dtypes or dimensions is refused, and changes nothing", function()
    local t <close> = trainer { model = Tagger {}, loss = nn.CrossEntropyLoss() }
    raises({ 'nothing reads its field "length"', 'did you mean "lengths"' }, t.step, t,
      { ids = words(2, 3).ids, length = words(2, 3).lengths, y = words(2, 3).y })
    t:step(words(2, 3))
    local was = t.model:state_dict()
    local b = words(2, 3)
    b.weights = b.lengths
    raises("a batch has weights: nothing reads it, the trainer's so far had none", t.step, t, b)
    b = words(2, 3)
    b.lengths = nil
    raises("a batch has no lengths", t.step, t, b)
    b = words(2, 3)
    b.ids = b.ids:to "i32"
    raises("a batch's ids has examples of i32 (3), the trainer's so far i64 (3)", t.step, t, b)
    local s <close> = trainer { model = Vae {}, loss = function(r, mu, logvar, x, t, w)
      return ((r - x) ^ 2):mean() + mu:mean() + logvar:mean() + (w - t):mean()
    end }
    raises('the loss or metric takes "w"', s.step, s,
      { x = filled({ 2, 4 }, "f32", 1), y = filled({ 2, 4 }, "f32", 1) })
    for name, p in pairs(t.model:state_dict()) do assert.is_true(p:equal(was[name]), name) end
  end)

  it("needs no target where the outputs are all that a loss takes", function()
    local Three = nn.module {
      "Three",
      init = function(self) self.f = nn.Linear { 4, 2 } end,
      forward = function(self, a, b, c) return self.f(a), self.f(b), self.f(c) end,
    }
    local t <close> = trainer { model = Three {}, loss = nn.TripletMarginLoss() }
    local batch = { a = filled({ 5, 4 }, "f32", 1), b = filled({ 5, 4 }, "f32", 2),
      c = filled({ 5, 4 }, "f32", 3) }
    assert.is_true(t:step(batch).loss > t:step(batch).loss)
    batch.y = filled({ 5 }, "i64", 1)
    raises("a batch has a y", t.step, t, batch)
  end)

  it("reaches metrics that name them", function()
    local t <close> = trainer { model = Tagger {}, loss = nn.CrossEntropyLoss(),
      metrics = { longest = function(_, lengths) return lengths:to("f32"):max() end } }
    assert.are.equal(4, t:step(words(3, 5)).longest)
  end)
end)

describe("a trainer's own parameters", function()
  local function pair()
    local G = nn.Sequential { nn.Linear { 2, 8 }, nn.Tanh(), nn.Linear { 8, 2 } }
    local D = nn.Sequential { nn.Linear { 2, 4 }, nn.Tanh(), nn.Linear { 4, 1 } }
    local Both = nn.module {
      "Both",
      init = function(self) self.G, self.D = G, D end,
      forward = function(self, z, x)
        local fake = self.D(self.G(z))
        if x then return fake, self.D(x) end
        return fake
      end,
    }
    return G, D, Both
  end

  it("are all that a step changes and pays gradients for", function()
    local G, D, Both = pair()
    local g <close> = trainer { model = Both {}, train = { "G.*" },
      loss = function(f) return (-f):softplus():mean() end }
    local d <close> = trainer { model = Both {}, train = "D.*",
      loss = function(f, r) return f:softplus():mean() + (-r):softplus():mean() end }
    local z, x = filled({ 8, 2 }, "f32", 1), filled({ 8, 2 }, "f32", 4)
    local g0, d0 = G:state_dict(), D:state_dict()
    local function changed(m, was)
      for name, p in pairs(m:state_dict()) do
        if not p:equal(was[name]) then return true end
      end
      return false
    end
    g:step { z = z }
    assert.is_true(changed(G, g0))
    assert.is_false(changed(D, d0))
    g0 = G:state_dict()
    d:step { z = z, x = x }
    assert.is_true(changed(D, d0))
    assert.is_false(changed(G, g0))
    local function elements(m)
      local bytes = 0
      for _, p in m:parameters() do
        local n = 4
        for _, size in ipairs(p.shape) do n = n * size end
        bytes = bytes + (n + 63) // 64 * 64
      end
      return bytes
    end
    assert.are.equal(elements(G), g:plan().regions.gradients)
    assert.are.equal(elements(D), d:plan().regions.gradients)
  end)

  it("are refused where the globs name none, or the loss reaches none", function()
    local _, _, Both = pair()
    local z = filled({ 8, 2 }, "f32", 1)
    local t <close> = trainer { model = Both {}, train = "H.*",
      loss = function(f) return f:mean() end }
    raises('what is trained: no trainable parameter matches "H.*"', t.step, t, { z = z })
    local s <close> = trainer { model = Both {}, train = "G.*",
      loss = function(f) return f:stop_gradient():mean() end }
    raises("depends on no trainable parameter", s.step, s, { z = z })
  end)
end)

describe("the arguments of a loss", function()
  local x, y, w = neap.rand(4, 8), neap.rand(4, 1), neap.rand(4, 1)

  local function loss_of(o, batch)
    o.model, o.optimizer, o.seed = neap.nn.Linear { 8, 1 }, neap.optim.SGD { lr = 0 }, 1
    local t <close> = neap.trainer(o)
    return t:step(batch)
  end
  local function weighted(out, y, w) return ((out - y):square() * w):mean() end

  it("are the fields they name: one that no field has is no second target", function()
    local with = loss_of({ loss = weighted }, { x = x, y = y, w = w }).loss
    local without = loss_of({ loss = neap.nn.MseLoss() }, { x = x, y = y }).loss
    assert.are_not.equal(with, without)
    for _, f in ipairs { weighted,
      function(out, target, y) return ((out - y):square() * target):mean() end } do
      local ok, err = pcall(loss_of, { loss = f }, { x = x, y = y })
      assert.is_false(ok)
      assert.is_truthy(tostring(err):find("a batch has no field of that name", 1, true))
    end
  end)

  it("are the loss's own target where one is called y, or as nothing else is", function()
    local expected = loss_of({ loss = neap.nn.MseLoss() }, { x = x, y = w }).loss
    for _, f in ipairs { function(out, y) return (out - y):square():mean() end,
      function(out, t) return (out - t):square():mean() end,
      function(out, w) return (out - w):square():mean() end } do
      local found = loss_of({ losses = { { f, target = "w", name = "own" } } }, { x = x, w = w })
      assert.are.equal(expected, found.loss)
      assert.are.equal(expected, found.own) -- a single loss with a name is told, too
    end
  end)
end)

describe("a batch to predict", function()
  it("has what forward was trained with, or the error names what is missing", function()
    local Pair = nn.module { "Pair",
      init = function(self) self.left, self.right = nn.Linear { 3, 4 }, nn.Linear { 2, 4 } end,
      forward = function(self, image, text) return self.left(image) * self.right(text) end }
    local t = trainer { model = Pair(), loss = nn.MseLoss(), memory = { store = false } }
    local image, text = neap.rand(8, 3), neap.rand(8, 2)
    t:fit(data.tensors { image = image, text = text, y = neap.rand(8, 4), batch = 4 },
      { verbose = 0 })
    assert.are.same({ 8, 4 }, t:predict(image, text).shape)
    assert.are.same({ 8, 4 }, t:predict({ image = image, text = text }).shape)
    for _, given in ipairs { image, { image = image } } do
      raises("there is no text, which training had: forward(image, text) takes it", t.predict, t,
        given)
    end
    raises("there is no image", t.predict, t, { text = text })
  end)
end)
