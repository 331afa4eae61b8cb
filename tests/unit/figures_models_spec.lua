-- What models, trainers and memonger report of bytes, parameters and means, against figures
-- computed another way.
local neap = require "neap"
local figures = require "figures"
local support = require "support"
local nn, optim = neap.nn, neap.optim
local aligned = figures.aligned

--- Bytes that any of some ranges touch.
local function cover(list)
  table.sort(list, function(a, b) return a[1] < b[1] end)
  local total, at = 0, 0
  for _, r in ipairs(list) do
    total = total + math.max(0, r[2] - math.max(r[1], at))
    at = math.max(at, r[2])
  end
  return total
end

--- Classes of Torch's optnet, from a plan's values.
local function classes_of(net, p)
  local in_net, bytes, spans = {}, {}, {}
  for _, row in ipairs(net:blobs()) do in_net[row.name] = true end
  local of_region = {
    parameters = "parameters",
    gradients = "gradients",
    state = "buffers",
    constants = "buffers",
    frames = "buffers",
  }
  local seen = {}
  local function put(class, region, storage, from, size)
    for _, c in ipairs { class, "total" } do
      spans[c] = spans[c] or {}
      if region == "arena" then
        table.insert(spans[c], { from, from + size })
      elseif not seen[storage .. c] then
        seen[storage .. c] = true
        bytes[c] = (bytes[c] or 0) + size
      end
    end
  end
  local f = figures.facts_of(p)
  for _, s in ipairs(f.storages) do
    for i, v in ipairs(s.members) do
      local is_gradient = v.role == "gradient" or v.blob:match "%.grad$" ~= nil
      local class = of_region[v.region]
        or (is_gradient and "gradient inputs" or in_net[v.blob] and "outputs" or "buffers")
      if v.region == "arena" or i == 1 then
        put(class, v.region, v.storage_no, v.offset_bytes or 0, v.bytes)
      end
    end
  end
  for _, op in ipairs(f.ops) do
    if op.scratch_bytes > 0 then put("buffers", "arena", 0, op.scratch_offset, op.scratch_bytes) end
  end
  for class, list in pairs(spans) do bytes[class] = (bytes[class] or 0) + cover(list) end
  return bytes
end

describe("a model's reports", function()
  for _, name in ipairs { "lenet", "mlp", "lstm" } do
    it("count bytes by class and parameters by layer, of " .. name, function()
      local model = neap.zoo[name]()
      for _, train in ipairs { false, true } do
        local o = { batch = 2, train = train, store = false }
        local net = model:net {
          batch = 2, train = train, loss = train and nn.CrossEntropyLoss() or nil,
        }
        local before = classes_of(net, net:plan { policy = "none", rewrite = false, store = false })
        local after = classes_of(net, net:plan { store = false })
        local r = neap.count_memory(model, o)
        for i = 1, #r do
          assert.are.equal(before[r[i].class] or 0, r[i].before, r[i].class .. " before")
          assert.are.equal(after[r[i].class] or 0, r[i].after, r[i].class .. " after")
        end
        assert.are.equal(before.total, r.before_bytes)
        assert.are.equal(after.total, r.after_bytes)
        assert.is_true(math.abs(r.saved - (1 - after.total / before.total)) < 1e-12)
      end
      local summary, n, bytes, layers, work = model:summary { batch = 2 }, 0, 0, 0, 0
      for _, p in model:parameters() do
        local size = 1
        for _, d in ipairs(p.shape) do size = size * d end
        n, bytes = n + size, bytes + size * figures.element_bytes[p.data.dtype]
      end
      for i = 1, #summary do
        layers, work = layers + summary[i].parameters, work + summary[i].mult_adds
      end
      assert.are.equal(n, summary.parameters)
      assert.are.equal(n, summary.trainable)
      assert.are.equal(n, layers)
      assert.are.equal(work, summary.mult_adds)
      assert.are.equal(bytes, summary.parameter_bytes)
      local net = model:net { batch = 2 }
      assert.are.equal(n, net:summary({ store = false }).parameters)
    end)
  end

  it("are worked out by hand for two layers", function()
    local model = nn.Sequential {
      input = { 1, 6, 6 }, nn.Conv2d { 1, 3, kernel = 3 }, nn.Flatten(), nn.Linear { 48, 5 },
    }
    local r = model:summary { batch = 7 }
    assert.are.equal(3 * 9 + 3, r[1].parameters)
    assert.are.equal("(7,3,4,4)", r[1].output)
    assert.are.equal(7 * 3 * 4 * 4 * 9, r[1].mult_adds)
    assert.are.equal(48 * 5 + 5, r[#r].parameters)
    assert.are.equal(7 * 48 * 5, r[#r].mult_adds)
    local plan = model:plan({ batch = 7, layouts = "plain", fuse = false, store = false }):summary()
    assert.are.equal(30, plan[1].parameters)
    assert.are.equal(245, plan[#plan].parameters)
  end)

  it("of training tell what it holds, and its means", function()
    local x, y = support.batch({ 10, 1, 28, 28 }, 10, 0.4)
    local t <close> = neap.trainer {
      model = neap.zoo.lenet(),
      optimizer = optim.Adam { lr = 0.001 },
      metrics = { "accuracy" },
      memory = { store = false },
    }
    local forecast = t:forecast(5, { x = x:narrow(1, 1, 5), y = y:narrow(1, 1, 5) })
    local total = 0
    for i = 1, #forecast do total = total + forecast[i].bytes end
    assert.are.equal(total, forecast.total_bytes)
    local losses = {}
    local h = t:fit(neap.data.tensors { x = x, y = y, batch = 5 }, {
      epochs = 1, verbose = 0, on_step = function(r) losses[#losses + 1] = r.loss end,
    })
    assert.are.equal(forecast.total_bytes, t.ws:held_bytes())
    assert.is_true(math.abs((losses[1] + losses[2]) / 2 - h[1].loss) < 1e-9)
    local r = t:evaluate(neap.data.tensors { x = x, y = y, batch = 4 })
    local scores, right = t:predict(x), 0
    for i = 1, 10 do right = right + (scores[i][y[i] + 1] == scores[i]:max():item() and 1 or 0) end
    assert.are.equal(10, r.n)
    assert.is_true(math.abs(right / 10 - r.accuracy) < 1e-6)
    local loss = 0
    for i = 1, 10 do loss = loss - scores[i]:log_softmax(1)[y[i] + 1] / 10 end
    assert.is_true(math.abs(loss - r.loss) < 1e-5)
  end)
end)

describe("memonger's reports", function()
  it("add up to what the nets hold", function()
    local net = (neap.zoo.mlp()):net { batch = 4 }
    local sizes, total, kinds = neap.memonger.collect_blob_sizes(net), 0, 0
    for _ in pairs(sizes) do kinds = kinds + 1 end
    local made = 0
    for _, v in ipairs(net:plan({ policy = "none", rewrite = false, store = false }):_values()) do
      if v.role == "activation" or v.role == "output" then made = made + aligned(v.bytes) end
    end
    local r = neap.memonger.estimate_memory_usage(net)
    for i = 1, #r do total = total + r[i].bytes end
    assert.are.equal(total, r.total_bytes)
    assert.are.equal(made, r.total_bytes)
    assert.is_true(kinds > 0 and r.high_water_bytes <= made + 1)
    local _, slots = neap.memonger.optimize_inference_net(net)
    local shared = 0
    for i = 1, #slots do
      local most, n = 0, 0
      for _, blob in ipairs(type(slots[i].blobs) == "table" and slots[i].blobs or {}) do
        most, n = math.max(most, sizes[blob] or 0), n + 1
      end
      if n > 0 then
        assert.are.equal(aligned(most), aligned(slots[i].bytes))
        assert.are.equal(n, slots[i].n_blob)
      end
      shared = shared + slots[i].bytes
    end
    assert.is_true(
      slots.planned_bytes <= slots.baseline_bytes and shared <= slots.planned_bytes + 64 * #slots)
    assert.is_true(math.abs(slots.saved - (1 - slots.planned_bytes / slots.baseline_bytes)) < 1e-12)
  end)
end)
