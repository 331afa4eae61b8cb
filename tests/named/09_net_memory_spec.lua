-- Point 9, the net memory model: one memory for all batch sizes up to a declared maximum.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local support = require "support"
local raises, held = support.raises, support.held

local function lenet()
  return nn.Sequential {
    input = { 1, 12, 12 }, seed = 3,
    nn.Conv2d { 1, 8, kernel = 3 }, nn.BatchNorm2d { 8 }, nn.ReLU(), nn.MaxPool2d { 2 },
    nn.Conv2d { 8, 16, kernel = 3, pad = 1 }, nn.ReLU(), nn.Flatten(), nn.Dropout { 0.25 },
    nn.Linear { 400, 32 }, nn.ReLU(), nn.Linear { 32, 10 },
  }
end

local function training_net(batch)
  local model = lenet()
  return (model:net {
    batch = batch,
    train = true,
    loss = nn.CrossEntropyLoss {},
    optimizer = optim.SGD { lr = 0.05, momentum = 0.9 },
  })
end

local function batch_of(n, k) return support.batch({ n, 1, 12, 12 }, 10, 0.37 * k) end

local function feed(ws, n, k)
  local x, y = batch_of(n, k)
  ws:feed("x", x)
  ws:feed("y", y)
  ws:feed("lr", neap.tensor(0.05))
end

--- Engines, algorithms, layouts and threads of a plan's ops: what its bits depend on.
local function choices(plan)
  local out = {}
  for _, op in ipairs(plan:_ops()) do
    out[#out + 1] = op.name .. " " .. op.type .. " " .. op.engine
  end
  for _, v in ipairs(plan:_values()) do out[#out + 1] = v.blob .. " " .. v.layout end
  return table.concat(out, "\n")
end

--- Hash of everything that a training step leaves behind.
local function bits(ws)
  return support.hashes(ws, function(blob) return blob.role ~= "input" end)
end

describe("a declared maximum batch", function()
  it("gives one arena and the same bytes held whichever batches run, in whatever order", function()
    for _, executor in ipairs { "simple", "dag" } do
      local most = 9
      local nets = {}
      for n = 1, most do nets[n] = training_net(n) end
      local ws <close> = neap.workspace { seed = 5, store = false, executor = executor }
      local range <close> = neap.range(nets[most], { store = false, executor = executor })
      local programs, arena, bytes = {}, nil, nil
      for k, n in ipairs { 3, 9, 1, 8, 2, 9, 7, 4, 6, 5, 1, 9 } do
        local x, y = batch_of(n, k) -- of the test's own
        if not programs[n] then
          ws:init(nets[n])
          programs[n] = ws:compile_within(nets[n], range, { store = false, executor = executor })
        end
        ws:feed("x", x)
        ws:feed("y", y)
        ws:feed("lr", neap.tensor(0.05))
        x, y = nil, nil -- luacheck: ignore
        programs[n]:run()
        arena, bytes = arena or ws:arena_bytes(), bytes or held()
        assert.are.equal(arena, ws:arena_bytes())
        assert.are.equal(bytes, held())
        assert.is_true(programs[n].plan:verify())
      end
      for _, p in pairs(programs) do p:close() end
    end
  end)

  --- Whether a batch of n has the choices of a program planned for it alone; then its three steps
  -- must leave the same bits.
  local function runs_alike(n, big, range, memory)
    local small = training_net(n)
    local within <close> = neap.workspace { seed = 5, store = false }
    local alone <close> = neap.workspace { seed = 5, store = false }
    within:poison(true)
    within:init(big)
    alone:init(small)
    local large <close> = within:compile_within(big, range, memory)
    local a <close> = within:compile_within(small, range, memory)
    local b <close> = alone:compile(small, memory)
    assert.is_true(large ~= nil)
    if choices(b.plan) ~= choices(a.plan) then return false end
    for k = 1, 3 do
      feed(within, n, k)
      feed(alone, n, k)
      a:run()
      b:run()
      assert.are.equal(bits(alone), bits(within))
    end
    return true
  end

  it("runs every smaller batch bit for bit as a program planned for that batch with \z
      the same choices", function()
    local big, sizes = training_net(8), { 1, 3, 6, 7 }
    for _, executor in ipairs { "simple", "dag" } do
      for _, engine in ipairs { "ref", "blas", "free" } do
        local memory = { store = false, executor = executor, engine = engine }
        local range <close> = neap.range(big, memory)
        local n_compared = 0
        for _, n in ipairs(sizes) do
          n_compared = n_compared + (runs_alike(n, big, range, memory) and 1 or 0)
        end
        -- Free choices may differ with the batch, as kernels do; a forced engine's can't.
        assert.is_true(n_compared >= (engine == "free" and 1 or #sizes),
          ("%d batches compared with engine %s"):format(n_compared, engine))
      end
    end
  end)
end)

--- Linear (2 to 2), ReLU, Linear (2 to 1) with numbers that a person can follow.
local function by_hand()
  local model = nn.Sequential {
    input = { 2 }, nn.Linear { 2, 2, name = "fc1" }, nn.ReLU(), nn.Linear { 2, 1, name = "fc2" },
  }
  model:param("fc1.weight").data = { { 1, 2 }, { -1, 1 } }
  model:param("fc1.bias").data = { 0.5, -1 }
  model:param("fc2.weight").data = { { 3, -2 } }
  model:param("fc2.bias").data = { 0.25 }
  return model
end

describe("the four lists of a model's memory", function()
  it("hold the layers of nested Sequentials in their place, as those of a flat one", function()
    local function run(make)
      local model = nn.Sequential(
        make(nn.Linear { 3, 4 }, nn.Tanh(), nn.Linear { 4, 4 }, nn.ReLU(), nn.Linear { 4, 2 }))
      for _, p in model:parameters() do
        p.data = (neap.arange(p.data:n_element()):to "f32" * 0.7):sin():view(p.data.shape)
      end
      model:train()
      local memory = model:memory()
      local y = memory:forward(neap.arange(6):to("f32"):view(2, 3))
      local dx = memory:backward(neap.ones(2, 2))
      local shapes = {}
      for i, list in ipairs { model.outputs, model.inputs } do
        for k, entry in ipairs(list) do
          shapes[#shapes + 1] = { i, k, table.concat(entry.data.shape, ","), entry.diff:hash() }
        end
      end
      return { #model.params, #model.caches, shapes, y:hash(), dx:hash() }, memory.names
    end
    local flat = run(function(...) return { ... } end)
    local nested, names = run(function(a, b, c, d, e)
      return { nn.Sequential { a, b }, nn.Sequential { nn.Sequential { c, d }, e } }
    end)
    assert.are.equal(5, flat[2])
    assert.same(flat, nested)
    assert.same({
      "block1.linear1", "block1.tanh1", "block2.block1.linear1", "block2.block1.relu1",
      "block2.linear1",
    }, names)
  end)

  it("hold params, outputs, inputs and caches by name, data and diff, with values \z
      worked out by hand", function()
    local model = by_hand()
    local memory = model:memory()
    -- x = (1, 2): fc1 = (1 + 4 + 0.5, -1 + 2 - 1) = (5.5, 0); relu the same; fc2 = 3 * 5.5 + 0.25 =
    -- 16.75
    local y = memory:forward(neap.tensor { { 1, 2 } })
    assert.are.equal(16.75, y:item())
    assert.are.same({ { 5.5, 0 } }, model.outputs[1].data:totable())
    assert.are.same({ { 5.5, 0 } }, model.inputs[3].data:totable())
    assert.are.same({ "fc1", "relu1", "fc2" }, {
      model.outputs[1].name, model.outputs[2].name, model.outputs[3].name,
    })
    for _, cache in ipairs(model.caches) do assert.are.equal(1, #cache) end
    -- dy = 2: fc2.weight 2 * (5.5, 0), bias 2; relu lets the first through; fc1.weight (6, 0)^T (1,
    -- 2), bias (6, 0); dx = 6 * (1, 2)
    local dx = memory:backward(neap.tensor { { 2 } })
    assert.are.same({ { 6, 12 } }, dx:totable())
    assert.are.same({ { 11, 0 } }, model.params["fc2.weight"].diff:totable())
    assert.are.same({ 2 }, model:param("fc2.bias").diff:totable())
    assert.are.same({ { 6, 12 }, { 0, 0 } }, model.params["fc1.weight"].diff:totable())
    assert.are.same({ 6, 0 }, model:param("fc1.bias").diff:totable())
    assert.are.same({ { 6, -4 } }, model.outputs[2].diff:totable())
    assert.are.same({ { 6, 0 } }, model.inputs[2].diff:totable())
    for _, cache in ipairs(model.caches) do assert.are.equal(0, #cache) end
  end)

  it("find what is there, and nil for what is not", function()
    local model = by_hand()
    assert.are.same({ { 1, 2 }, { -1, 1 } }, model.params["fc1.weight"].data:totable())
    assert.is_nil(model.params["fc3.weight"])
    assert.is_nil(model.params["fc1.weight"].diff)
    assert.is_nil(model.params["fc1.weight"].velocity)
    assert.are.equal(4, #model.params)
    local t <close> = neap.trainer {
      model = model,
      loss = nn.MseLoss {},
      optimizer = optim.SGD { lr = 0.1, momentum = 0.9 },
      memory = { store = false },
    }
    t:step { x = neap.ones(3, 2), y = neap.zeros(3, 1) }
    assert.are.same({ 2, 2 }, model.params["fc1.weight"].velocity.shape)
  end)

  it("take parameters of the user's own, each name once", function()
    local model = by_hand()
    local mine = neap.ones(3)
    model:attach_param("scale", mine)
    assert.are.same({ 1, 1, 1 }, model.params.scale.data:totable())
    mine:fill_(2) -- held by reference
    assert.are.same({ 2, 2, 2 }, model.params.scale.data:totable())
    assert.has_error(function() model:attach_param("scale", mine) end)
    assert.has_error(function() model:attach_param("fc1.weight", mine) end)
    assert.has_error(function() model:attach_param("other", 3) end)
    assert.are.equal(5, #model.params)
  end)

  it("share one storage between an output and the input above it, and let it go in any order \z
      without leak or double free", function()
    local model = nn.Sequential {
      input = { 64 }, seed = 1, nn.Linear { 64, 64 }, nn.Tanh(), nn.Linear { 64, 64 },
    }
    local memory = model:memory()
    memory:forward(neap.ones(8, 64))
    model.inputs[2].data:fill_(7)
    assert.are.equal(7, model.outputs[1].data[{ 3, 5 }])
    memory:free()
    local empty = held()
    local orders = {
      { 1, 2, 3, 4 }, { 4, 3, 2, 1 }, { 2, 4, 1, 3 }, { 3, 1, 4, 2 }, { 1, 3, 2, 4 },
      { 4, 2, 3, 1 },
    }
    for _, order in ipairs(orders) do
      memory:forward(neap.ones(8, 64))
      local handles = {
        model.outputs[1].data, model.inputs[2].data, model.outputs[2].data, model.inputs[3].data,
      }
      memory:free()
      for _, k in ipairs(order) do
        local twin = ({ 2, 1, 4, 3 })[k]
        local value = handles[twin] and handles[twin][{ 1, 1 }]
        handles[k] = nil
        collectgarbage()
        -- the other one still lives
        if handles[twin] then assert.are.equal(value, handles[twin][{ 1, 1 }]) end
      end
      assert.are.equal(empty, held())
    end
  end)

  it("hold in caches what each layer's backward reads, as views: nothing \z
      is computed again", function()
    local model = nn.Sequential {
      input = { 1, 6, 6 }, seed = 2,
      nn.Conv2d { 1, 2, kernel = 3, name = "conv" }, nn.BatchNorm2d { 2, name = "norm" },
      nn.Tanh { name = "tanh" }, nn.Flatten { name = "flat" }, nn.Linear { 32, 3, name = "fc" },
    }
    local memory = model:memory()
    memory:forward(neap.ones(2, 1, 6, 6))
    assert.are.same({ "input" }, model.caches[1]:labels())
    assert.are.equal(3, #model.caches[2]) -- x, and the batch's mean and variance
    assert.are.equal(1, #model.caches[3])
    assert.are.equal(0, #model.caches[4]) -- a view needs nothing
    assert.are.same({ "input" }, model.caches[5]:labels())
    local cached = model.caches[3]:pop() -- tanh's own output
    model.outputs[3].data:fill_(0.25)
    assert.are.equal(0.25, cached[{ 1, 1, 1, 1 }])
    assert.has_error(function() memory:backward(neap.ones(2, 3)) end) -- what was popped is missed
    memory:forward(neap.ones(2, 1, 6, 6))
    memory:backward(neap.ones(2, 3))
    for _, cache in ipairs(model.caches) do assert.are.equal(0, #cache) end
  end)

  it("drop entries in any order, each once, and the shadow of a dropped output \z
      still has its numbers", function()
    local model = nn.Sequential {
      input = { 64 }, seed = 1, nn.Linear { 64, 64 }, nn.Tanh(), nn.Linear { 64, 64 },
    }
    local memory = model:memory()
    memory:forward(neap.ones(8, 64))
    memory:free()
    local empty = held()
    local orders = {
      { 1, 2, 3, 4, 5, 6 }, { 6, 5, 4, 3, 2, 1 }, { 2, 5, 1, 4, 6, 3 }, { 4, 1, 5, 2, 3, 6 },
      { 3, 6, 1, 2, 5, 4 },
    }
    for round, order in ipairs(orders) do
      memory:forward(neap.ones(8, 64))
      if round % 2 == 0 then memory:backward(neap.ones(8, 64)) end
      for _, k in ipairs(order) do
        local list, i = k <= 3 and "outputs" or "inputs", (k - 1) % 3 + 1
        local other, twin = k <= 3 and "inputs" or "outputs", k <= 3 and i + 1 or i - 1
        local entry = model[other][twin]
        local value = entry and entry.data and entry.data[{ 1, 1 }]
        memory:drop(list, i)
        assert.is_nil(model[list][i].data)
        assert.has_error(function() memory:drop(list, i) end)
        if value then assert.are.equal(value, model[other][twin].data[{ 1, 1 }]) end
      end
      -- the caches hold all that it reads
      if round % 2 == 1 then memory:backward(neap.ones(8, 64)) end
      memory:free()
      -- the gradient of the output, which is the caller's, stays
      assert.is_true(held() <= empty + 8 * 64 * 4)
    end
  end)

  it("run any batch up to the declared one in the same bytes, and are what the \z
      whole model gives", function()
    local function make()
      return nn.Sequential {
        input = { 1, 8, 8 }, seed = 6,
        nn.Conv2d { 1, 4, kernel = 3 }, nn.BatchNorm2d { 4 }, nn.ReLU(), nn.MaxPool2d { 2 },
        nn.Flatten(), nn.Linear { 36, 5 },
      }
    end
    local model, whole = make(), make()
    local memory, bytes = model:memory { max_batch = 7 }, nil
    for k, n in ipairs { 3, 7, 1, 7, 2, 5, 3 } do
      local x, dy = neap.zeros { n, 1, 8, 8 }, neap.zeros { n, 5 }
      local at = 0.1 * k
      for _, t in ipairs { x, dy } do
        t:apply_(function()
          at = (at + 0.61803398875) % 1
          return 2 * at - 1
        end)
      end
      do
        local y = memory:forward(x)
        local dx = memory:backward(dy)
        assert.is_true(whole(x):close(y, { rtol = 1e-4, atol = 1e-5 }))
        -- an eager backward counts its forward too
        local running = whole:param("norm1.running_var").data:clone()
        assert.is_true(
          running:close(model:param("norm1.running_var").data, { rtol = 1e-4, atol = 1e-5 }))
        assert.is_true(whole:backward(x, dy):close(dx, { rtol = 1e-4, atol = 1e-4 }))
        for name, p in whole:parameters() do
          assert.is_true(p.grad:close(model:param(name).grad, { rtol = 1e-4, atol = 1e-4 }), name)
        end
        whole:param("norm1.running_mean").data, whole:param("norm1.running_var").data = model:param(
          "norm1.running_mean").data:clone(), model:param("norm1.running_var").data:clone()
      end
      local ws = model:workspace()
      bytes = bytes or ws:held_bytes()
      assert.are.equal(bytes, ws:held_bytes())
    end
  end)

  it("hold for layers of every kind: blocks of layers, branches, norms, recurrent \z
      ones, embeddings", function()
    local kinds = {
      residual = { { 3, 6, 6 }, function()
        return nn.Conv2d { 3, 4, kernel = 3, pad = 1 }, nn.Residual {
          nn.Conv2d { 4, 4, kernel = 3, pad = 1 }, nn.BatchNorm2d { 4 }, nn.ReLU(),
          nn.Conv2d { 4, 4, kernel = 3, pad = 1 },
        }, nn.ReLU(), nn.Flatten(), nn.Linear { 144, 3 }
      end },
      block = { { 3, 6, 6 }, function()
        return nn.Sequential {
          nn.Conv2d { 3, 4, kernel = 3 }, nn.BatchNorm2d { 4 }, nn.ReLU(), nn.MaxPool2d { 2 },
        }, nn.Flatten(), nn.Linear { 16, 3 }
      end },
      branches = { { 3, 6, 6 }, function()
        return nn.Concat {
          nn.Conv2d { 3, 2, kernel = 1 }, nn.Conv2d { 3, 2, kernel = 3, pad = 1 },
        },
          nn.Tanh()
      end },
      norm = { { 5, 8 }, function() return nn.LayerNorm { 8 }, nn.GELU(), nn.Linear { 8, 3 } end },
      recurrent = { { 5, 8 }, function() return nn.LSTM { 8, 6 }, nn.Linear { 6, 3 } end },
    }
    for kind, case in pairs(kinds) do
      local a = nn.Sequential { input = case[1], seed = 2, case[2]() }
      local b = nn.Sequential { input = case[1], seed = 2, case[2]() }
      local x, at = neap.zeros { 4, table.unpack(case[1]) }, 0.3
      x:apply_(function()
        at = (at + 0.61803398875) % 1
        return 2 * at - 1
      end)
      local y = a:memory():forward(x)
      local dy = y:tanh()
      local dx = a:memory():backward(dy)
      assert.is_true(b(x):close(y, { rtol = 1e-4, atol = 1e-5 }), kind)
      assert.is_true(b:backward(x, dy):close(dx, { rtol = 1e-4, atol = 1e-4 }), kind)
      for name, p in b:parameters() do
        assert.is_true(p.grad:close(a:param(name).grad, { rtol = 1e-4, atol = 1e-4 }),
          kind .. " " .. name)
      end
    end
    local words = nn.Sequential {
      input = { 3 }, dtype = "i64", seed = 2,
      nn.Embedding { 5, 4 }, nn.Flatten(), nn.Linear { 12, 2 },
    }
    -- no gradient of integers
    assert.is_nil(
      words:memory():backward(words:memory():forward(neap.tensor({ { 0, 1, 4 } }, "i64")) * 0 + 1))
    assert.are.equal(0, words:param("embedding1.weight").grad[{ 3, 1 }])
    assert.are_not.equal(0, words:param("embedding1.weight").grad[{ 5, 1 }])
  end)

  it("draw one mask a step: the gradient through dropout is that of the numbers that \z
      its forward dropped", function()
    local model = nn.Sequential { input = { 50 }, seed = 3, nn.Dropout { 0.5 }, nn.Dropout { 0.5 } }
    local memory = model:memory()
    local first
    for _ = 1, 3 do
      local y = memory:forward(neap.ones(4, 50))
      assert.is_true(memory:backward(neap.ones(4, 50)):equal(y)) -- 0 or 4, at the same places
      local a, b = model.outputs[1].data, model.outputs[2].data
      local both = 0
      for i = 1, 50 do both = both + ((a[{ 1, i }] ~= 0 and b[{ 1, i }] == 0) and 1 or 0) end
      assert.is_true(both > 0) -- the layers' masks differ
      assert.is_false(first ~= nil and first:equal(y)) -- and so do the steps'
      first = y
    end
  end)

  it("refuse a batch above the largest declared, and grow where none is", function()
    local model = nn.Sequential { input = { 2 }, nn.Linear { 2, 2 } }
    local memory = model:memory { max_batch = 4 }
    local kept = memory:forward(neap.ones(4, 2))
    local bytes = held()
    local err = raises("forward expects 1 to 4 rows, as max_batch says, got 5", memory.forward,
      memory, neap.ones(5, 2))
    assert.are.equal("shape", err.code)
    assert.is_truthy(err.hint:find("max_batch", 1, true))
    assert.are.equal(bytes, held())
    -- the forward before it stays, with its backward
    assert.is_true(memory.outputs[1].data:equal(kept))
    assert.are.same({ 4, 2 }, memory:backward(neap.ones(4, 2)).shape)
    assert.are.same({ 5, 2 }, model:memory { max_batch = 6 }:forward(neap.ones(5, 2)).shape)
    assert.are.same({ 9, 2 }, model:memory {}:forward(neap.ones(9, 2)).shape)
    assert.are.same({ 11, 2 }, model:memory():forward(neap.ones(11, 2)).shape)
  end)

  it("give the same bits under every policy and in dag, and refuse \z
      options that are none", function()
    local want
    for _, executor in ipairs { "simple", "dag" } do
      for _, policy in ipairs { "none", "name", "offset" } do
        local model = nn.Sequential {
          input = { 1, 6, 6 }, seed = 2,
          nn.Conv2d { 1, 2, kernel = 3 }, nn.BatchNorm2d { 2 }, nn.ReLU(),
          nn.Flatten(), nn.Linear { 32, 3 },
        }
        local memory = model:memory {
          max_batch = 4, executor = executor, policy = policy, engine = "ref", threads = 1,
        }
        local x = neap.zeros(3, 1, 6, 6)
        local at = 0.3
        x:apply_(function()
          at = (at + 0.61803398875) % 1
          return 2 * at - 1
        end)
        memory:forward(x)
        local dx = memory:backward(neap.ones(3, 3))
        want = want or dx
        assert.is_true(want:equal(dx))
      end
    end
    local model = nn.Sequential { input = { 2 }, nn.Linear { 2, 2 } }
    assert.has_error(function() model:memory { max_batch = "4" } end)
    assert.has_error(function() model:memory { policy = "pool" }:forward(neap.ones(1, 2)) end)
    assert.has_error(function() model:memory { polcy = "none" }:forward(neap.ones(1, 2)) end)
    model:memory {}:forward(neap.ones(1, 2))
  end)

  it("alternate between training and evaluation, whose layers keep nothing and leave \z
      statistics alone", function()
    local model = nn.Sequential {
      input = { 6 }, seed = 4,
      nn.Linear { 6, 8 }, nn.BatchNorm1d { 8 }, nn.Dropout { 0.5 }, nn.Linear { 8, 3 },
    }
    local memory = model:memory()
    local x = neap.ones(4, 6)
    for _ = 1, 2 do
      model:train()
      memory:forward(x)
      memory:backward(neap.ones(4, 3))
      model:eval()
      local kept = model:param("norm1.running_mean").data:clone()
      local y = memory:forward(x)
      assert.is_true(model(x):close(y, { rtol = 1e-6, atol = 1e-6 }))
      for _, cache in ipairs(model.caches) do assert.are.equal(0, #cache) end
      assert.is_true(kept:equal(model:param("norm1.running_mean").data))
    end
  end)

  it("leave statistics as they were when a layer behind them fails", function()
    local function make()
      local model = nn.Sequential {
        input = { 6 }, seed = 4, nn.Linear { 6, 8 }, nn.BatchNorm1d { 8 },
        nn.Lambda { function(y) return y.net:CheckFinite(y) end }, nn.Linear { 8, 3 },
      }
      return model:train(), model:memory()
    end
    local function pass(memory, x)
      local y = memory:forward(x)
      memory:backward(neap.ones(4, 3))
      return y:hash()
    end
    local model, memory = make()
    local fresh, fresh_memory = make()
    local x = neap.zeros(4, 6)
    support.filler(0.2)(x)
    for round = 1, 2 do
      assert.are.equal(pass(fresh_memory, x), pass(memory, x))
      for _ = 1, 2 do
        support.raises("CheckFinite", memory.forward, memory, x / 0)
        for _, name in ipairs { "norm1.running_mean", "norm1.running_var" } do
          assert.is_true(fresh:param(name).data:equal(model:param(name).data), name .. " " .. round)
        end
      end
    end
  end)

  it("pass no cache at inference", function()
    local model = by_hand()
    model:eval()
    model:memory():forward(neap.ones(2, 2))
    for _, cache in ipairs(model.caches) do assert.are.equal(0, #cache) end
    assert.has_error(function() model:memory():backward(neap.ones(2, 1)) end)
  end)

  it("give what the whole model's backward gives, statistics counted once", function()
    local function make()
      return nn.Sequential {
        input = { 6 }, seed = 4,
        nn.Linear { 6, 8 }, nn.BatchNorm1d { 8 }, nn.Tanh(), nn.Linear { 8, 3 },
      }
    end
    local a, b = make(), make()
    local x, dy = neap.zeros(5, 6), neap.ones(5, 3)
    support.filler(0.2)(x)
    local y = a:memory():forward(x)
    local dx = a:memory():backward(dy)
    assert.is_true(b(x):close(y, { rtol = 1e-6, atol = 1e-6 }))
    local running = b:param("norm1.running_mean").data:clone()
    assert.is_true(b:backward(x, dy):close(dx, { rtol = 1e-5, atol = 1e-5 }))
    for name, p in b:parameters() do
      assert.is_true(p.grad:close(a:param(name).grad, { rtol = 1e-5, atol = 1e-5 }), name)
    end
    assert.is_true(a:param("norm1.running_mean").data:equal(running))
  end)
end)

describe("a layer's cache", function()
  it("is a stack without bound, and errs on a pop out of order or of another type", function()
    local cache = neap.cache "conv1"
    for k = 1, 100 do cache:push(neap.full { 2, value = k }, "t" .. k) end
    assert.are.equal(100, #cache)
    assert.has_error(function() cache:pop "t1" end)
    assert.has_error(function() cache:pop { shape = { 3 } } end)
    assert.has_error(function() cache:pop { dtype = "f64" } end)
    assert.are.equal(100, #cache) -- a refused pop takes nothing
    for k = 100, 1, -1 do
      assert.are.equal(k, cache:pop { label = "t" .. k, shape = { 2 }, dtype = "f32" }[1])
    end
    assert.has_error(function() cache:pop() end)
    assert.has_error(function() cache:push(3) end)
  end)
end)

describe("the counters of the allocator", function()
  it("give totals, print, and start their high-water mark again", function()
    local before = held()
    local n = neap.memory().n_alloc
    do
      local t <const> = neap.zeros(1000)
      assert.are.equal(4000, t:n_bytes())
      assert.is_true(neap.memory().held >= before + 4000)
      assert.is_true(neap.memory().n_alloc > n)
    end
    held()
    neap.reset_peak()
    assert.are.equal(neap.memory().held, neap.memory().high)
    assert.is_truthy(tostring(neap.memory()):find("tensors", 1, true))
  end)
end)

describe("the option max_batch", function()
  local function net_of()
    local net = neap.net "rows"
    net:input("x", { 4, 6 })
    net:param("w", { 5, 6 }, neap.init.normal { std = 0.5 })
    net:FC({ "x", "w" }, "h")
    net:Tanh("h", "a")
    net:Softmax("a", "y")
    net:outputs { "y" }
    return net
  end

  local function rows(n) return support.filler(0.1)(neap.zeros { n, 6 }) end

  it("is taken by net:plan, ws:compile, ws:run, workspaces, model plans and trainers", function()
    local net = net_of()
    local most = net:plan { x = { 32, 6 }, store = false }
    local small = net:plan { max_batch = 32, x = { 3, 6 }, store = false }
    assert.are.equal(3, small.batch)
    assert.are.equal(most.arena_bytes, small.arena_bytes)
    assert.are.equal(most.total_bytes, small.total_bytes)
    assert.is_true(small.lower_bound_bytes < most.lower_bound_bytes)
    assert.is_true(small:verify())
    local ws <close> = neap.workspace { seed = 2, store = false, max_batch = 32 }
    local alone <close> = neap.workspace { seed = 2, store = false }
    local bytes
    for _, n in ipairs { 5, 32, 1, 31, 5 } do
      assert.is_true(ws:run(net, { x = rows(n) }).y:equal(alone:run(net, { x = rows(n) }).y))
      bytes = bytes or ws:held_bytes()
      assert.are.equal(bytes, ws:held_bytes())
    end
    local model = lenet()
    local o = { batch = 3, max_batch = 16, store = false }
    assert.are.equal((model:plan { batch = 16, store = false }).regions.io,
      model:plan(o).regions.io)
    local t <close> = neap.trainer {
      model = lenet(),
      optimizer = optim.SGD { lr = 0.1 },
      max_batch = 8,
      memory = { store = false },
    }
    local arena
    for _, n in ipairs { 2, 8, 5, 1 } do
      local x, y = batch_of(n, 1)
      t:step { x = x, y = y }
      arena = arena or t.ws:held_bytes()
      assert.are.equal(arena, t.ws:held_bytes())
    end
  end)

  it("gives right results small after large and large after small", function()
    local net = net_of()
    local ws <close> = neap.workspace { seed = 2, store = false, max_batch = 9 }
    local want <close> = neap.workspace { seed = 2, store = false }
    ws:poison(true)
    for _, n in ipairs { 9, 2, 9, 1, 4, 9 } do
      assert.is_true(ws:run(net, { x = rows(n) }).y:equal(want:run(net, { x = rows(n) }).y))
    end
  end)

  it("says what is wrong: a batch above it, or no number", function()
    local net = net_of()
    local err = raises("the largest batch of the range", net.plan, net,
      { max_batch = 8, x = { 9, 6 }, store = false })
    assert.are.equal("shape", err.code)
    assert.is_truthy(err.hint:find("max_batch", 1, true))
    raises("max_batch expects", net.plan, net, { max_batch = "8" })
    raises("executor dynamic runs batches of any size", net.plan, net,
      { max_batch = 8, executor = "dynamic", store = false })
  end)

  it("is of the first input, be it declared without rows: others keep their \z
      own first dimension", function()
    local net = neap.net "table"
    net:input("x", { 0, 6 })
    net:input("table", { 6, 5 })
    net:MatMul({ "x", "table" }, "h")
    net:Tanh("h", "y")
    net:outputs { "y" }
    local most = net:plan { x = { 32, 6 }, store = false }
    assert.are.equal(most.total_bytes,
      (net:plan { max_batch = 32, x = { 3, 6 }, store = false }).total_bytes)
  end)

  it("serves a batch whose graph differs from the largest one's, within the same bytes", function()
    -- At batch 1 the gradient of a broadcast needs no sum: another graph.
    local function build(n)
      local broadcast = neap.net "broadcast"
      broadcast:input("x", { n, 6 })
      broadcast:param("p", { 1, 6 }, neap.init.normal { std = 0.5 })
      broadcast:Mul({ "x", "p" }, "h")
      broadcast:Tanh("h", "a")
      broadcast:Sum("a", "loss")
      broadcast:gradient "loss"
      broadcast:outputs { "loss" }
      return broadcast
    end
    local memory = { store = false }
    local range <close> = neap.range(build(8), memory)
    local ws <close> = neap.workspace { seed = 3, store = false }
    local alone <close> = neap.workspace { seed = 3, store = false }
    local bytes
    for _, n in ipairs { 8, 1, 3, 1, 8 } do
      local net = build(n)
      ws:init(net)
      alone:init(net)
      local a <close> = ws:compile_within(net, range, memory)
      local b <close> = alone:compile(net, memory)
      ws:feed("x", rows(n))
      alone:feed("x", rows(n))
      a:run()
      b:run()
      assert.is_true(ws:fetch("p_grad"):equal(alone:fetch("p_grad")))
      bytes = bytes or ws:held_bytes()
      assert.are.equal(bytes, ws:held_bytes())
    end
  end)

  it("grows for a batch whose graph takes more than the largest one's, as far as a budget \z
      or total lets it", function()
    -- The batch is a constant of the graph, which another batch has other ways with.
    local x = support.filler(0.1)(neap.zeros { 10, 3 })
    local y = support.filler(0.7)(neap.zeros { 10, 1 })
    local function trainer(memory)
      return neap.trainer {
        model = nn.Sequential { input = { 3 }, seed = 2, nn.Linear { 3, 1 } },
        optimizer = optim.SGD { lr = 0 },
        memory = memory,
        loss = function(p, t) return ((p - t) ^ 2):sum() / p.shape[1] end,
      }
    end
    local function evaluate(t) return t:evaluate(neap.data.tensors { x = x, y = y, batch = 4 }) end
    local t <close> = trainer { store = false }
    local found = evaluate(t)
    assert.is_true(math.abs(found.loss - ((t.model(x) - y) ^ 2):mean():item()) < 1e-6)
    local function plan_of(n) return t.programs[("eval %d x(3) y(1)"):format(n)].program.plan end
    local whole, part = plan_of(4), plan_of(2)
    assert.is_true(part.arena_bytes > whole.arena_bytes and part:verify())
    local bytes = t.ws:held_bytes()
    evaluate(t)
    assert.are.equal(bytes, t.ws:held_bytes())
    for _, limit in ipairs { "budget", "total" } do
      local tight <close> = trainer {
        store = false, [limit] = limit == "budget" and whole.arena_bytes or whole.total_bytes,
      }
      local err = raises("least", evaluate, tight)
      assert.are.equal("budget", err.code)
      local enough <close> = trainer { store = false, [limit] = err.least_bytes }
      assert.are.equal(found.loss, evaluate(enough).loss)
      if limit == "budget" then
        assert.is_true(enough.ws:arena_bytes() <= err.least_bytes)
      else
        assert.is_true(enough.ws:held_bytes() <= err.least_bytes)
      end
    end
  end)
end)

describe("awnn's recorded values", function()
  --- n numbers from a to b, in this shape.
  local function line(a, b, shape)
    local n, values = 1, {}
    for _, d in ipairs(shape) do n = n * d end
    for i = 1, n do values[i] = a + (b - a) * (i - 1) / (n - 1) end
    return neap.tensor(values, "f64"):reshape(table.unpack(shape))
  end

  -- Its test of a net of two layers: inputs, weights and biases are straight lines, and half the
  -- sum of the squared weights is added.
  it("of the loss are those of the same net, without and with the regulariser", function()
    local net = neap.net "awnn"
    local feeds = {
      x = line(-5.5, 4.5, { 3, 5 }),
      w1 = line(-0.7, 0.3, { 5, 50 }),
      b1 = line(-0.1, 0.9, { 50 }),
      w2 = line(-0.3, 0.4, { 50, 7 }),
      b2 = line(-0.9, 0.1, { 7 }), y = neap.tensor({ 0, 5, 1 }, "i64"),
    }
    for _, name in ipairs { "x", "w1", "b1", "w2", "b2", "y" } do
      net:input(name, feeds[name].shape, feeds[name].dtype)
    end
    local h = (net:MatMul { "x", "w1" } + net:blob "b1"):relu()
    net:SoftmaxCrossEntropy({ net:MatMul { h, "w2" } + net:blob "b2", "y" }, "loss")
    net:Add({ "loss", (net:Square("w1"):sum() + net:Square("w2"):sum()) * 0.5 }, "with_regulariser")
    net:outputs { "loss", "with_regulariser" }
    local ws <close> = neap.workspace { store = false }
    for _, policy in ipairs { "none", "offset" } do
      local out = ws:run(net, feeds, { policy = policy })
      assert.is_true(math.abs(out.loss:item() - 2.994112658) < 1e-9)
      assert.is_true(math.abs(out.with_regulariser:item() - 26.11873099) < 1e-8)
    end
  end)
end)

describe("the memory of a model", function()
  it("prints what each of its lists has", function()
    local m = neap.nn.Sequential { input = { 4 }, neap.nn.Linear { 3 }, neap.nn.ReLU() }
    local memory = m:train():memory()
    assert.matches("params%s+2%s+60%s+parameters", tostring(memory))
    local y = memory:forward(neap.randn(2, 4))
    assert.matches("outputs%s+2%s+48", tostring(memory))
    assert.matches("caches%s+2", tostring(memory))
    memory:backward(y)
    assert.matches("params%s+2%s+60%s+their gradients", tostring(memory))
    assert.matches("caches%s+0", tostring(memory))
  end)
end)
