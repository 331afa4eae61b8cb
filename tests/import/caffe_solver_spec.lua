-- Caffe's solvers: each type's steps by its own formulas, rates by its policies, and the nets that
-- come with Caffe trained for a few steps.
local neap = require "neap"
local kit = require "import.caffe_kit"

-- y = w x, half of y squared: the gradient of w is w where x is 1.
local net = kit.input("x", 1, 1) .. kit.input("z", 1, 1) .. [[
  layer { name: "fc" type: "InnerProduct" bottom: "x" top: "y" param { lr_mult: %g decay_mult: %g }
    inner_product_param { num_output: 1 bias_term: false
      weight_filler { type: "constant" value: 2 } } }
  layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "z" top: "loss" }]]

--- w after each of some steps by a solver's text.
local function steps_of(text, n, o)
  o = o or {}
  local folder <close> = kit.folder()
  folder:write("n.prototxt", net:format(o.lr_mult or 1, o.decay_mult or 1))
  local t = assert(neap.import(folder:write("solver.prototxt",
    'net: "somewhere/else/n.prototxt" max_iter: 100 ' .. text)))
  local x, z, list = neap.ones(1, 1), neap.zeros(1, 1), {}
  for i = 1, n do
    t:step { x = x, z = z }
    list[i] = t.model:param "fc.weight".data:item()
  end
  return list
end

--- w by f(w, gradient, rate, iteration from 0, state) -> step.
local function by_hand(n, o, f)
  local w, list, state = 2.0, {}, {}
  for i = 0, n - 1 do
    local g = w
    if o.clip and g > o.clip then g = o.clip end
    g = g + (o.l1 or 0) + (o.l2 or 0) * w
    w = w - f(g, o.rate(i), i + 1, state)
    list[i + 1] = w
  end
  return list
end

local function compare(want, got)
  for i in ipairs(want) do
    assert.is_true(math.abs(want[i] - got[i]) < 2e-6, ("step %d: %.7f, expected %.7f"):format(i,
      got[i], want[i]))
  end
end

local function fixed() return 0.1 end
local function halved(i) return 0.1 * 0.5 ^ (i // 2) end
local step = 'base_lr: 0.1 lr_policy: "step" gamma: 0.5 stepsize: 2 '

local function sgd(g, lr, _, s)
  s.h = 0.9 * (s.h or 0) + lr * g
  return s.h
end

describe("a solver of Caffe's", function()
  it("keeps the rate in SGD's momentum", function()
    compare(by_hand(6, { rate = halved }, sgd), steps_of(step .. "momentum: 0.9", 6))
    compare(by_hand(3, { rate = fixed }, function(g, lr) return lr * g end),
      steps_of('base_lr: 0.1 lr_policy: "fixed" type: "SGD"', 3))
  end)

  it("adds decays of both kinds, and multiplies them and rates for a parameter", function()
    compare(by_hand(4, { rate = halved, l2 = 0.2 }, sgd),
      steps_of(step .. "momentum: 0.9 weight_decay: 0.2", 4))
    compare(by_hand(4, { rate = halved, l1 = 0.2 }, sgd),
      steps_of(step .. 'momentum: 0.9 weight_decay: 0.2 regularization_type: "L1"', 4))
    compare(by_hand(4, { rate = function(i) return 2 * halved(i) end, l2 = 0.1 }, sgd),
      steps_of(step .. "momentum: 0.9 weight_decay: 0.2", 4, { lr_mult = 2, decay_mult = 0.5 }))
    compare(by_hand(4, { rate = function(i) return 2 * halved(i) end, l1 = 0.1 }, sgd),
      steps_of(step .. 'momentum: 0.9 weight_decay: 0.2 regularization_type: "L1"', 4,
        { lr_mult = 2, decay_mult = 0.5 }))
  end)

  it("multiplies the decay of a parameter whose rate is the solver's", function()
    compare(by_hand(4, { rate = halved, l2 = 0.1 }, sgd),
      steps_of(step .. "momentum: 0.9 weight_decay: 0.2", 4, { decay_mult = 0.5 }))
  end)

  it("bounds the sum of several batches' gradients, and takes their mean", function()
    -- Twice 2 is bounded to 1, whose mean over two batches is a half.
    compare({ 2, 1.95, 1.95, 1.9 },
      steps_of('base_lr: 0.1 lr_policy: "fixed" iter_size: 2 clip_gradients: 1', 4))
  end)

  it("bounds the norm before it adds the decay", function()
    compare(by_hand(3, { rate = fixed, clip = 0.5, l2 = 0.1 }, sgd),
      steps_of("base_lr: 0.1 momentum: 0.9 weight_decay: 0.1 clip_gradients: 0.5", 3))
  end)

  it("computes the other types as Caffe does", function()
    compare(by_hand(5, { rate = halved }, function(g, lr, _, s)
      local before = s.h or 0
      s.h = 0.9 * before + lr * g
      return 1.9 * s.h - 0.9 * before
    end), steps_of(step .. 'momentum: 0.9 type: "Nesterov"', 5))
    compare(by_hand(5, { rate = fixed }, function(g, lr, _, s)
      s.h = (s.h or 0) + g * g
      return lr * g / (math.sqrt(s.h) + 0.01)
    end), steps_of('base_lr: 0.1 type: "AdaGrad" delta: 0.01', 5))
    compare(by_hand(5, { rate = fixed }, function(g, lr, _, s)
      s.h = 0.8 * (s.h or 0) + 0.2 * g * g
      return lr * g / (math.sqrt(s.h) + 0.01)
    end), steps_of('base_lr: 0.1 type: "RMSProp" rms_decay: 0.8 delta: 0.01', 5))
    compare(by_hand(5, { rate = fixed }, function(g, lr, _, s)
      s.h, s.d = 0.9 * (s.h or 0) + 0.1 * g * g, s.d or 0
      local u = g * math.sqrt((s.d + 0.01) / (s.h + 0.01))
      s.d = 0.9 * s.d + 0.1 * u * u
      return lr * u
    end), steps_of('base_lr: 0.1 solver_type: ADADELTA momentum: 0.9 delta: 0.01', 5))
    compare(by_hand(5, { rate = fixed }, function(g, lr, t, s)
      s.m, s.v = 0.9 * (s.m or 0) + 0.1 * g, 0.99 * (s.v or 0) + 0.01 * g * g
      local correction = math.sqrt(1 - 0.99 ^ t) / (1 - 0.9 ^ t)
      return lr * correction * s.m / (math.sqrt(s.v) + 0.01)
    end), steps_of('base_lr: 0.1 type: "Adam" momentum: 0.9 momentum2: 0.99 delta: 0.01', 5))
  end)

  it("follows the policies of the rate", function()
    local function plain(rate)
      return by_hand(5, { rate = rate }, function(g, lr) return lr * g end)
    end
    local function of(text) return steps_of("base_lr: 0.1 " .. text, 5) end
    compare(plain(function(i) return 0.1 * 0.5 ^ i end), of 'lr_policy: "exp" gamma: 0.5')
    compare(plain(function(i) return 0.1 * (1 + 0.5 * i) ^ -0.75 end),
      of 'lr_policy: "inv" gamma: 0.5 power: 0.75')
    compare(plain(function(i) return 0.1 * 0.5 ^ ((i >= 1 and 1 or 0) + (i >= 3 and 1 or 0)) end),
      of 'lr_policy: "multistep" gamma: 0.5 stepvalue: 1 stepvalue: 3')
    compare(plain(function(i) return 0.1 * (1 - i / 100) ^ 2 end), of 'lr_policy: "poly" power: 2')
    compare(plain(function(i) return 0.1 / (1 + math.exp(0.5 * (i - 2))) end),
      of 'lr_policy: "sigmoid" gamma: -0.5 stepsize: 2')
  end)

  it("trains nothing whose rate is 0, and says what it passes over", function()
    local m = assert(kit.import(kit.input("x", 1, 1) .. kit.input("z", 1, 1) .. [[
      layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { lr_mult: 0 }
        inner_product_param { num_output: 1 } }
      layer { name: "l" type: "EuclideanLoss" bottom: "a" bottom: "z" top: "l" }]],
      { model = true }))
    assert.is_false(m:param "a.weight".trainable)
    assert.is_true(m:param "a.bias".trainable)
    local t, fit = assert(kit.import('net_param { name: "inner" ' .. net:format(1, 1)
      .. ' } base_lr: 0.1 max_iter: 7 solver_mode: GPU snapshot: 5 snapshot_prefix: "no/where/x"'))
    assert.same({ steps = 7 }, fit)
    assert.matches("no folder \"no/where\"", t.model.notes[1])
    assert.matches("solver_mode", t.model.notes[2])
  end)

  it("has snapshots, rows to look at and shared memory as its text says", function()
    local folder <close> = kit.folder()
    local inner = kit.input("x", 4, 1) .. kit.input("z", 4, 1)
      .. net:match("layer { name: \"fc.*"):format(1, 1) .. " mem_param { optimize_train: true }"
    local t, fit = assert(kit.import(([[net_param { %s } base_lr: 0.1 max_iter: 7 snapshot: 5
      snapshot_prefix: "%s/x" test_iter: 3 test_interval: 2]]):format(inner, folder.path)))
    local solver = require "neap.caffe.solver"
    assert.same({ steps = 7, checkpoint = { folder.path .. "/x.safetensors", every = 5 } }, fit)
    assert.equal(12, solver.test_rows[t])
    assert.equal(2, solver.test_every[t])
    assert.is_true(t.memory.mem_param.optimize_train)
  end)

  it("is refused what it can't mean, with the line", function()
    local folder <close> = kit.folder()
    folder:write("n.prototxt", net:format(1, 1))
    local function refused(text, why)
      text = 'net: "n.prototxt"\n' .. text
      local t, message, code = neap.import(folder:write("s.prototxt", text))
      assert.is_nil(t)
      assert.equal("data", code)
      assert.matches(why, message)
    end
    refused("base_lr: 0.1", "max_iter is missing")
    refused("max_iter: 1", "base_lr is missing")
    refused('base_lr: 0.1 max_iter: 1\ntype: "LBFGS"', 's.prototxt:3: there is no solver of type')
    refused('base_lr: 0.1 max_iter: 1\nlr_policy: "up"', 's.prototxt:3: there is no lr_policy "up"')
    refused('base_lr: 0.1 max_iter: 1 lr_policy: "step"', 'lr_policy "step" needs stepsize')
    refused('base_lr: 0.1 max_iter: 1\n\nmomentun: 0.9', "s.prototxt:4: nothing reads momentun")
    refused('base_lr: 0.1 max_iter: 1 type: "AdaGrad" momentum: 0.5', "momentum can't be used")
    local _, message = neap.import(folder:write("t.prototxt", 'net: "gone.prototxt" base_lr: 1'))
    assert.matches('net is "gone.prototxt", which is neither there nor', message)
  end)
end)

-- ---- Caffe's examples ---------------------------------------------------------------------------

local examples = "../shared/data/caffe-prototxt/bvlc/"

local function is_there(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

--- Whether the examples and MNIST are there; else the test is pending, with a line.
local function ready()
  local mnist = neap.data.find("mnist/train-images-idx3-ubyte.gz", "mnist/train-images-idx3-ubyte")
  if is_there(examples .. "mnist__lenet_solver.prototxt") and mnist then return true end
  pending "Caffe's examples or MNIST are not there"
  return false
end

local function trainer(solver, net_file)
  return assert(neap.import(examples .. solver .. ".prototxt",
    { net = examples .. net_file .. ".prototxt" }))
end

describe("Caffe's examples", function()
  it("train LeNet by its solver's words", function()
    if not ready() then return end
    local t, fit = trainer("mnist__lenet_solver", "mnist__lenet_train_test")
    assert.equal(10000, fit.steps)
    fit.steps, fit.verbose = 30, 0
    fit.valid = t.model:data("TEST", 500)
    local history = t:fit(t.model:data "TRAIN", fit)
    local last = history[#history]
    assert.is_true(last.valid_accuracy > 0.6)
    assert.is_true(math.abs(last.lr - 0.01 * (1 + 1e-4 * 29) ^ -0.75) < 1e-9)
  end)

  it("train the siamese net, whose two halves are one", function()
    if not ready() then return end
    local t = trainer("siamese__mnist_siamese_solver", "siamese__mnist_siamese_train_test")
    local n = 0
    for _ in t.model:parameters() do n = n + 1 end
    assert.equal(10, n)
    local digits = neap.data.mnist { split = "train", batch = 128, limit = 2560 }
    local first, last
    for b in digits:epoch(1) do
      local a, c = b.x:narrow(1, 1, 64), b.x:narrow(1, 65, 64)
      local same = b.y:narrow(1, 1, 64):eq(b.y:narrow(1, 65, 64)):to "i64"
      local pair = neap.concat({ a, c }, { axis = 2 }) * (255 / 256)
      last = t:step { pair_data = pair, sim = same }.loss
      first = first or last
    end
    assert.is_true(last < first / 2, ("%g, %g at first"):format(last, first))
  end)

  it("train the autoencoder, with a loss that is only looked at", function()
    if not ready() then return end
    local t = trainer("mnist__mnist_autoencoder_solver", "mnist__mnist_autoencoder")
    local set = neap.data.mnist { split = "train", batch = 100, limit = 2000 }
    local first, last
    for b in set:epoch(1) do
      last = t:step { data = b.x }.loss
      first = first or last
    end
    assert.is_true(last < 0.8 * first, ("%g, %g at first"):format(last, first))
  end)
end)
