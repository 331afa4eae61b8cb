--- What a net declares is held, whether an op reads it or not: plans count it.
local neap = require "neap"
local support = require "support"
local nn, optim = neap.nn, neap.optim
local raises = support.raises

--- x times w; 64 bytes of another input, 400 of a parameter, 256 of state and 128 of a gradient
-- that no op reads.
local function spare_net()
  local net = neap.net "spare"
  local x, w = net:input("x", { 4, 4 }), net:param("w", { 4, 4 }, 1)
  net:input("idle", { 16 })
  net:param("unread", { 100 }, 0)
  net:declare("calm", "state", { 64 }, "f32", { op = "Constant", value = 0 })
  net:declare("slope", "gradient", { 32 })
  net:outputs { net:MatMul({ x, w }, "y") }
  return net
end

describe("what is declared and not read", function()
  it("is in a plan's figures, as a workspace holds it", function()
    local net = spare_net()
    local ways = { {}, { policy = "none" }, { executor = "dynamic" }, { executor = "dag" } }
    for _, o in ipairs(ways) do
      local plan = net:plan(o)
      assert.are.equal(64 + 448, plan.parameter_bytes)
      assert.are.equal(256, plan.state_bytes)
      assert.are.equal(128, plan.gradient_bytes)
      assert.are.equal(64 + 64 + 64, plan.io_bytes)
      assert.are.equal(plan.total_bytes, net:forecast(o).total_bytes)
      plan:verify()
      local ws <close> = neap.workspace { store = false }
      ws:init(net)
      ws:feed("idle", neap.ones(16))
      ws:feed("x", neap.ones(4, 4))
      ws:run(net, nil, o)
      assert.are.equal(plan.total_bytes, ws:held_bytes())
    end
  end)

  it("is in the total that a workspace keeps to", function()
    local net = spare_net()
    local all = net:plan().total_bytes
    assert.are.equal(all, net:plan { total = all }.total_bytes)
    raises({ "parameters 512 B" }, net.plan, net, { total = all - 64 })
    local ws <close> = neap.workspace { store = false, total = all }
    ws:init(net)
    ws:feed("x", neap.ones(4, 4))
    ws:run(net)
  end)

  it("need not be fed, and is kept as it was fed", function()
    local net = spare_net()
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    ws:feed("x", neap.ones(4, 4))
    ws:run(net)
    raises({ "idle" }, ws.fetch, ws, "idle")
    ws:feed("idle", neap.ones(16) * 3)
    ws:run(net)
    assert.are.equal(3, ws:fetch("idle")[16])
  end)
end)

describe("a layer's parameter that forward does not read", function()
  local Spare = nn.module { "Spare",
    init = function(self)
      self.fc = nn.Linear { 4, 3 }
      self:param("unread", { 100 }, 0)
    end,
    forward = function(self, x) return self.fc(x) end,
  }

  it("is in a model's forecast and a trainer's", function()
    local model = nn.Sequential { seed = 1, input = { 4 }, Spare {} }
    for _, o in ipairs { { batch = 8 }, { batch = 8, train = true } } do
      assert.are.equal(448 + 128, model:plan(o).parameter_bytes)
      assert.are.equal(model:plan(o).total_bytes, model:forecast(o).total_bytes)
    end
    for _, o in ipairs { {}, { micro = 2 }, { accumulate = 2 } } do
      local net = nn.Sequential { seed = 1, input = { 4 }, Spare {} }
      o.model, o.optimizer, o.loss = net, optim.Adam { lr = 0.1 }, nn.CrossEntropyLoss {}
      o.reduces = "mean"
      local t <close> = neap.trainer(o)
      local batch = { x = neap.ones(8, 4), y = neap.zeros(8):to "i64" }
      local forecast = t:forecast(8, batch)
      for _ = 1, 2 do t:step(batch) end
      assert.are.equal(forecast.total_bytes, t.ws:held_bytes())
    end
  end)
end)

describe("the forecast of a trainer that evaluates, too", function()
  it("is what its workspace holds after both", function()
    local model = nn.Sequential {
      seed = 1, input = { 1, 12, 12 }, nn.Conv2d { 1, 8, kernel = 3 }, nn.BatchNorm2d { 8 },
      nn.ReLU(), nn.MaxPool2d { 2 }, nn.Flatten(), nn.Linear { 200, 10 },
    }
    local t <close> = neap.trainer {
      model = model, optimizer = optim.Adam { lr = 0.1 }, loss = nn.CrossEntropyLoss {},
      metrics = "accuracy",
    }
    local batch = { x = neap.rand(8, 1, 12, 12), y = neap.zeros(8):to "i64" }
    local forecast = t:forecast(8, batch, 8)
    t:step(batch)
    assert.are.equal(forecast.total_bytes, t.ws:held_bytes())
    t:evaluate(neap.data.tensors { x = batch.x, y = batch.y, batch = 8 })
    assert.are.equal(forecast.evaluated_bytes, t.ws:held_bytes())
  end)
end)
