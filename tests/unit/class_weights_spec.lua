-- Evaluation of losses with class weights: one number, whatever the batches.
local neap = require "neap"
local nn, optim, data = neap.nn, neap.optim, neap.data
local raises = require("support").raises

describe("a loss with class weights", function()
  neap.seed(3)
  local x, y = neap.randn(60, 8), neap.rand_int { shape = { 60 }, low = 0, high = 4 }
  local function points(batch) return data.tensors { x = x, y = y, batch = batch } end
  local function trainer(loss, o)
    o = o or {}
    local last = o.log and nn.LogSoftmax() or nn.Identity()
    return neap.trainer { model = nn.Sequential { input = { 8 }, nn.Linear { 8, 4 }, last },
      optimizer = optim.SGD { lr = 0 }, loss = loss, metrics = o.metrics, reduces = o.reduces }
  end
  local weight = { 1, 20, 3, 0.5 }
  local function same(t, name)
    local whole = t:evaluate(points(60))[name]
    for _, batch in ipairs { 20, 16, 7, 1 } do
      local e = t:evaluate(points(batch))[name]
      assert.is_true(math.abs(e - whole) < 1e-5 * math.abs(whole), ("%d: %g, %g"):format(batch, e,
        whole))
    end
    return whole
  end

  it("is evaluated by the weights of its labels", function()
    local t <close> = trainer(nn.CrossEntropyLoss { weight = weight }, { metrics = "accuracy" })
    local loss = same(t, "loss")
    same(t, "accuracy") -- by rows, as before

    -- the sum of weighted losses over the sum of weights
    local sum <close> = neap.trainer { model = t.model, optimizer = optim.SGD { lr = 0 },
      reduces = "sum", loss = nn.CrossEntropyLoss { weight = weight, reduction = "sum" } }
    local weights = 0
    for _, label in ipairs(y:totable()) do weights = weights + weight[label + 1] end
    assert.is_true(math.abs(sum:evaluate(points(7)).loss / weights - loss) < 1e-5)

    -- validation is the same evaluation
    local history = t:fit(points(20), { verbose = 0, valid = points(7) })
    assert.is_true(math.abs(history[1].valid_loss - loss) < 1e-5)
  end)
  it("leaves out labels that do not count, and is told of NllLoss too", function()
    for _, loss in ipairs {
      nn.CrossEntropyLoss { weight = weight, ignore_index = 1 },
      nn.CrossEntropyLoss { weight = weight, label_smoothing = 0.1 },
    } do
      local t <close> = trainer(loss)
      same(t, "loss")
    end
    local t <close> = trainer(nn.NllLoss { weight = weight }, { log = true })
    same(t, "loss")
  end)
  it("is refused where nobody tells the weights, unless one batch is all", function()
    local own = nn.CrossEntropyLoss { weight = weight }
    local t <close> = trainer(function(out, target) return own(out, target) * 2 end)
    t:evaluate(points(60))
    raises({ "trainer:evaluate", "class weights", "reduction = \"sum\"" }, t.evaluate, t,
      points(20))
  end)
end)
