-- Losses of nn: what they take as options. Numbers are PyTorch's.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local raises = require("support").raises

local y = neap.tensor { { 0.1, 0.2, 0.7 }, { 1, -1, 0.5 }, { 0.3, 0.3, -0.2 } }
local labels = neap.tensor({ 0, 2, 1 }, "i64")
local bits = neap.tensor { { 0, 1, 1 }, { 1, 0, 1 }, { 0, 0, 1 } }
local weight = neap.tensor { 1, 2, 0.5 }

local function is(loss, x, t, expected)
  local got = loss(x, t):item()
  assert.is_true(math.abs(got - expected) <= 2e-7 * math.max(1, math.abs(expected)),
    ("%.9g, expected %.9g"):format(got, expected))
end

describe("options of losses", function()
  it("weigh classes", function()
    is(nn.CrossEntropyLoss { weight = weight }, y, labels, 1.0889909267425537)
    is(nn.CrossEntropyLoss { weight = { 1, 2, 0.5 } }, y, labels, 1.0889909267425537)
    is(nn.CrossEntropyLoss { weight = weight, reduction = "sum", label_smoothing = 0.1 }, y,
      labels, 3.8997626304626465)
    is(nn.NllLoss { weight = weight }, y, labels, -0.27142858505249023)
  end)

  it("weigh terms, and the positive ones", function()
    is(nn.BceWithLogitsLoss { weight = weight, pos_weight = { 2, 3, 1 } }, y, bits,
      0.99856036901474)
    is(nn.BceLoss { weight = weight, reduction = "sum" }, y:sigmoid(), bits, 6.28122615814209)
    local z = neap.tensor { { 0.5, -1, 2 }, { 1, 0, -2 } }
    local t = neap.tensor { { 1, 0, 1 }, { 0, 1, 1 } }
    is(nn.BceWithLogitsLoss { weight = 2, pos_weight = 3 }, z, t, 3.963254928588867)
    is(nn.MultiMarginLoss { weight = { 1, 2, 3 } }, z, neap.tensor({ 0, 2 }, "i64"),
      3.9166667461395264)
    is(nn.MultilabelSoftMarginLoss { weight = { 1, 2, 3 } }, z, t, 1.7602875232696533)
  end)

  it("say what becomes of the terms", function()
    is(nn.MseLoss { reduction = "sum" }, y, bits, 3.609999895095825)
    is(nn.L1Loss { reduction = "sum" }, neap.tensor { 1, -2 }, neap.tensor { 0, 0.5 }, 3.5)
    assert.are.same({ 3, 3 }, nn.L1Loss { reduction = "none" }(y, bits).shape)
    assert.are.same({ 3 }, nn.CrossEntropyLoss { reduction = "none" }(y, labels).shape)
    require("support").raises({ "labels expect shape", 'y:to "i64"' }, nn.CrossEntropyLoss(), y,
      labels:to "f32")
    assert.are.equal("sum", nn.MseLoss { reduction = "sum" }.reduces)
    assert.are.equal("mean", nn.KlDivLoss { reduction = "batchmean" }.reduces)
  end)

  it("name the dimension of the classes", function()
    local x = y:transpose(1, 2):reshape(1, 3, 3) -- (n, classes, ..)
    is(nn.CrossEntropyLoss { axis = 2, weight = weight }, x, labels:reshape(1, 3),
      1.0889909267425537)
    local net = nn.Sequential { nn.Conv2d { 2, 3, kernel = 1 } }:net { input = { 2, 4, 5 },
      batch = 6, train = true, loss = nn.CrossEntropyLoss { axis = 2 }, metrics = "accuracy" }
    assert.are.same({ 6, 4, 5 }, net:blob("y").shape)
  end)

  it("are the loss's own: later changes of a tensor are not", function()
    local own = weight:clone()
    local loss = nn.CrossEntropyLoss { weight = own }
    own:fill_(9)
    is(loss, y, labels, 1.0889909267425537)
  end)

  it("are refused where they don't fit", function()
    raises("weight expects f32 (3), one for each class, got f32 (2)", function()
      nn.CrossEntropyLoss { weight = { 1, 2 } }(y, labels)
    end)
    raises("weight expects a tensor, or a table of numbers, got 3", function()
      nn.CrossEntropyLoss { weight = 3 }
    end)
    raises("weight (2,3,3) does not broadcast to x (3,3)", function()
      nn.BceWithLogitsLoss { weight = neap.ones(2, 3, 3) }(y, bits)
    end)
    raises("pos_weight (2) does not broadcast to x (3,3)", function()
      nn.BceWithLogitsLoss { pos_weight = { 1, 2 } }(y, bits)
    end)
    raises("MultiMarginLoss: weight is (2), expected (3)", function()
      nn.MultiMarginLoss { weight = { 1, 2 } }(y, labels)
    end)
    raises("weight is an option of the loss, and an input too", function()
      nn.BceLoss { weight = weight }(y, bits, weight)
    end)
    raises('CrossEntropyLoss knows the metric "accuracy", not "mae"', function()
      nn.CrossEntropyLoss():metric("mae", y, labels)
    end)
  end)

  it("are constants of what is trained, saved and read", function()
    local x, path = neap.randn(5, 4), os.tmpname() .. ".safetensors"
    local t = neap.tensor({ 0, 1, 2, 1, 0 }, "i64")
    local function trainer()
      return neap.trainer { model = nn.Linear { 4, 3 }, optimizer = optim.SGD { lr = 0.1 },
        loss = nn.CrossEntropyLoss { weight = weight }, seed = 3 }
    end
    local a, b <close> = trainer(), trainer()
    a:step { x = x, y = t }
    assert(a:save(path))
    assert(b:load(path))
    assert.are.equal(a:step({ x = x, y = t }).loss, b:step({ x = x, y = t }).loss)
    os.remove(path)
    a:close()
  end)
end)

it("a cross entropy's weights have a gradient", function()
  local net = neap.net "weights"
  local w = net:param("w", { 3 }, neap.init.constant(1))
  local loss = net:SoftmaxCrossEntropy({ net:input("y", { 3, 3 }),
    net:input("labels", { 3 }, "i64"), w }, "loss")
  local dw = net:gradient(loss)[w]
  net:outputs { loss, dw }
  local ws <close> = neap.workspace { store = false }
  ws:init(net)
  ws:feed("w", weight)
  local got = ws:run(net, { y = y, labels = labels })[dw.name]
  local expected = neap.tensor { 0.07970247, -0.03742024, -0.00972399 }
  assert.is_true(got:close(expected, { atol = 1e-6 }), tostring(got))
end)
