--- What users and maintainers of earlier systems complained about: each complaint as the
-- requirement it makes, and the test that Neap meets it, or that it can't arise by construction.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local support = require "support"
local raises, settle = support.raises, support.settle

--- Branches with batch norm, joined by Concat: the net on which planning once changed the loss.
local function inception()
  local function branch(n, kernel)
    return nn.Sequential {
      nn.Conv2d { 6, n, kernel = kernel, pad = kernel // 2, bias = false },
      nn.BatchNorm2d { n },
      nn.ReLU(),
    }
  end
  return nn.Sequential {
    input = { 3, 12, 12 },
    nn.Conv2d { 3, 6, kernel = 3, pad = 1 }, nn.BatchNorm2d { 6 }, nn.ReLU(),
    nn.Concat { branch(4, 1), branch(5, 3), branch(3, 5) },
    nn.Residual { nn.Conv2d { 12, 12, kernel = 1 }, nn.BatchNorm2d { 12 } },
    nn.MaxPool2d { 2 },
    nn.Dropout { 0.3 }, nn.Flatten(), nn.Linear { 432, 4 },
  }
end

local function conv_net()
  return nn.Sequential {
    input = { 1, 10, 10 },
    nn.Conv2d { 1, 4, kernel = 3 }, nn.ReLU(), nn.MaxPool2d { 2 }, nn.Flatten(),
    nn.Linear { 64, 3 },
  }
end

local function training(model, batch, memory)
  local o = {
    batch = batch,
    train = true,
    loss = nn.CrossEntropyLoss(),
    optimizer = optim.SGD { lr = 0.1, momentum = 0.9 },
  }
  for key, value in pairs(memory or {}) do o[key] = value end
  return o
end

local function batch_of(n, shape, n_class, seed)
  neap.seed(seed or 1)
  local y = neap.zeros { n, dtype = "i64" }
  for i = 1, n do y[i] = (i * 7) % n_class end
  return { x = neap.randn { n, table.unpack(shape) }, y = y, lr = neap.tensor(0.1) }
end

--- A net of random ops over values of one shape: chains, joins, views, in place by name.
local function random_net(seed)
  math.randomseed(seed)
  local net, values = neap.net("random" .. seed), {}
  for i = 1, 3 do values[i] = net:input("x" .. i, { 4, 6 }) end
  for i = 1, 30 do
    local a, b, kind = values[math.random(#values)], values[math.random(#values)], math.random(6)
    local out = "h" .. i
    if kind == 1 then
      values[#values + 1] = net:Relu(a, out)
    elseif kind == 2 then
      values[#values + 1] = net:Add({ a, b }, out)
    elseif kind == 3 then
      values[#values + 1] = net:Tanh(a, out)
    elseif kind == 4 then
      values[#values + 1] = net:Reshape(net:Reshape(a, out .. "/flat", { shape = { 24 } }), out,
        { shape = { 4, 6 } })
    elseif kind == 5 then
      values[#values + 1] = net:AddN({ a, b, values[1] }, out)
    else
      values[#values + 1] = net:Softmax(a, out, { axis = -1 })
    end
  end
  net:outputs { net:Sum(values[#values], "out") }
  return net
end

describe("complaints about named systems:", function()
  it("planned, held and resident bytes are told side by side, and what the plan saves \z
      the process saves", function()
    local held = {}
    for _, policy in ipairs { "none", "offset" } do
      settle()
      local before = neap.memory().held
      local ws <close> = neap.workspace { store = false }
      local net = conv_net():net(training(nil, 32))
      local feeds = batch_of(32, { 1, 10, 10 }, 3)
      ws:init(net)
      for name, t in pairs(feeds) do ws:feed(name, t) end
      feeds = nil -- luacheck: ignore 311
      settle()
      local program = ws:compile(net, { policy = policy })
      program:run()
      settle()
      local memory = neap.memory()
      held[policy] = memory.held - before
      assert.are.equal(program.plan.total_bytes, held[policy], policy)
      assert.is_true(memory.resident > 0 and program.plan.scratch_bytes_max >= 0)
      held[policy .. " arena"] = program.plan.arena_bytes
      program:close()
    end
    assert.is_true(held.offset < held.none)
    assert.are.equal(held["none arena"] - held["offset arena"], held.none - held.offset)
  end)

  it("fetching a recycled blob is an error that names the new owner and the way out; a kept one \z
      can be fetched; poison shows misuse", function()
    local net = neap.net "middle"
    local h = net:input("x", { 1000 })
    for i = 1, 4 do h = net:Tanh(net:Mul { h, h }, "h" .. i) end
    net:outputs { net:Sum(h, "y") }
    local ws <close> = neap.workspace { store = false }
    local feeds = { x = neap.rand { 1000 } }
    local y = ws:run(net, feeds).y
    local err = raises("its bytes now belong to", ws.fetch, ws, "h1")
    assert.are.equal("released", err.code)
    assert.is_truthy(err.hint:find("ws:keep \"h1\"", 1, true))
    ws:keep "h1"
    ws:poison(true)
    assert.is_true(ws:run(net, feeds).y:equal(y))
    assert.is_true(ws:fetch("h1"):close((feeds.x * feeds.x):tanh()))
  end)

  it("a built-in command compares planned and unplanned runs bit for bit, on branches \z
      with batch norm too", function()
    for _, o in ipairs {
      { policy = "offset" }, { policy = "name" }, { policy = "offset", executor = "dag" },
      { policy = "offset", poison = true },
    } do
      o.batch, o.n_class = 4, 4
      local report = neap.check.plan(inception(), o)
      assert.is_true(report.same, (o.policy .. " differs at %s"):format(report.different))
      assert.is_true(report.n_blob > 10)
    end
  end)

  it("scratch is declared and planned, never borrowed: no op's scratch overlaps a value that is \z
      live in its step", function()
    local n = 0
    for _, model in ipairs { inception(), (neap.zoo.resnet18c()) } do
      local plan = model:plan { batch = 4, train = true }
      local values = plan:values()
      for _, op in ipairs(plan:ops()) do
        if op.scratch_bytes > 0 then
          n = n + 1
          assert.is_true(op.scratch_offset + op.scratch_bytes <= plan.arena_bytes)
          for _, v in ipairs(values) do
            if v.region == "arena" and v.bytes > 0 and v.first_step <= op.step and op.step
                <= v.last_step then
              assert.is_true(
                v.offset_bytes + v.bytes <= op.scratch_offset
                  or op.scratch_offset + op.scratch_bytes <= v.offset_bytes,
                ("scratch of %s lies in %s"):format(op.name, v.blob))
            end
          end
        end
      end
    end
    assert.is_true(n > 0 or not support.has_engine "dnnl", "no op has scratch")
  end)

  it("a smaller input after a larger one, and any order of shapes, gives the bits of \z
      a fresh workspace", function()
    local net = conv_net():net { batch = 8 }
    local ws <close> = neap.workspace { seed = 2, store = false }
    ws:poison(true)
    for _, n in ipairs { 8, 3, 8, 1, 16, 3 } do
      local fresh <close> = neap.workspace { seed = 2, store = false }
      local x = { x = neap.randn { n, 1, 10, 10 } }
      local name = net:outputs()[1]
      local got, want = ws:run(net, x)[name], fresh:run(net, x)[name]
      assert.are.equal(n, got:size(1))
      assert.are.equal(want:hash(), got:hash(), "batch " .. n)
    end
  end)

  it("views and in place are part of the live ranges: they do not collide with reuse", function()
    local net = neap.net "views"
    local x = net:input("x", { 4, 6 })
    local a = net:Tanh(x, "a")
    local joined = net:Concat({ a, net:Relu(a, "b") }, "joined", { axis = 1 })
    local flat = net:Reshape(joined, "flat", { shape = { 48 } })
    local low, high = net:Split(flat, { "low", "high" }, { axis = 1 })
    net:Alias(low, "seen")
    net:Mul({ high, high }, "high") -- in place by name over a part of a view
    net:outputs { net:Add({ net:Mul({ "seen", "high" }, "product"), low }, "y") }
    local feeds, hashes = { x = neap.randn { 4, 6 } }, {}
    for _, policy in ipairs { "none", "name", "offset" } do
      for _, executor in ipairs { "simple", "dag" } do
        local ws <close> = neap.workspace { store = false, policy = policy, executor = executor }
        ws:poison(true)
        hashes[#hashes + 1] = ws:run(net, feeds).y:hash()
        assert.are.equal(hashes[1], hashes[#hashes], policy .. " " .. executor)
      end
    end
  end)

  it("external inputs are never recycled: two nets read one input one after the other", function()
    local first, second = neap.net "first", neap.net "second"
    first:outputs { first:Sum(first:Relu(first:Neg(first:input("x", { 500 }), "n"), "r"), "y1") }
    second:outputs { second:Sum(second:Tanh(second:input("x", { 500 }), "t"), "y2") }
    local ws <close> = neap.workspace { store = false }
    ws:poison(true)
    local x = neap.randn { 500 }
    ws:run(first, { x = x })
    assert.is_true(ws:fetch("x"):equal(x))
    local again = ws:run(second) -- not fed again
    assert.is_true(again.y2:close(x:tanh():sum(), { rtol = 1e-4, atol = 1e-4 }))
    for _, v in ipairs(first:plan():values()) do
      if v.blob == "x" then assert.are.equal("io", v.region) end
    end
  end)

  it("a plan is made from shapes alone, before anything is allocated", function()
    settle()
    neap.reset_peak()
    local before = neap.memory()
    local plan = neap.zoo.vgg16():plan { batch = 64, train = true }
    local after = neap.memory()
    assert.is_true(plan.total_bytes > 3e9)
    assert.are.equal(before.held, after.held)
    assert.are.equal(before.held, after.high)
  end)

  it("planning has no side effects: batch statistics, parameters and \z
      outputs are as before", function()
    local model = inception()
    local x = neap.randn { 2, 3, 12, 12 }
    local before = {}
    model(x)
    for name, t in pairs(model:state_dict()) do before[name] = t:hash() end
    model:plan { batch = 4, train = true }
    model:forecast { batch = 7 }
    model:summary {}
    neap.fit_batch(model, { total = "4MiB", train = true })
    local n = 0
    for name, t in pairs(model:state_dict()) do
      assert.are.equal(before[name], t:hash(), name)
      n = n + 1
    end
    assert.is_true(n >= 20)
  end)

  it("memory is steady over steps, epochs and a checkpoint read back", function()
    local net, path = conv_net():net(training(nil, 16)), os.tmpname() .. ".safetensors"
    local feeds = batch_of(16, { 1, 10, 10 }, 3)
    local ws <close> = neap.workspace { store = false }
    ws:run(net, feeds)
    settle()
    local held = neap.memory().held
    for _ = 1, 3 do
      for _ = 1, 5 do ws:run(net, feeds) end
      assert(ws:save(path))
      assert(ws:load(path))
      settle()
      assert.are.equal(held, neap.memory().held)
    end
    os.remove(path)
  end)

  it("gradients, not only the loss, are equal with and without sharing", function()
    local m = inception()
    local net = m:net { batch = 4, train = true, loss = nn.CrossEntropyLoss() }
    local feeds, hashes = batch_of(4, { 3, 12, 12 }, 4), {}
    for _, policy in ipairs { "none", "name", "offset" } do
      local ws <close> = neap.workspace { seed = 3, store = false, policy = policy }
      ws:init(net)
      ws:feed("x", feeds.x)
      ws:feed("y", feeds.y)
      ws:compile(net):run()
      local n = 0
      for _, row in ipairs(net:_blobs()) do
        if row.role == "gradient" then
          n = n + 1
          local hash = ws:fetch(row.name):hash()
          assert.are.equal(hashes[row.name] or hash, hash, policy .. " " .. row.name)
          hashes[row.name] = hash
        end
      end
      assert.is_true(n >= 16, n)
    end
  end)

  it("no plan is worse than what it starts from, less budget never means more memory, and drawn \z
      numbers do not depend on order", function()
    for _, model in ipairs { inception(), neap.zoo.lenet(), (neap.zoo.gpt()) } do
      local arena = {}
      for _, policy in ipairs { "none", "name", "offset" } do
        arena[policy] = model:plan({ batch = 2, train = true, policy = policy }).arena_bytes
      end
      assert.is_true(arena.offset <= arena.name and arena.name <= arena.none)
      local least = arena.offset
      for _, share in ipairs { 1.0, 0.9, 0.8 } do
        local ok, plan = pcall(model.plan, model, {
          batch = 2, train = true, budget = math.floor(arena.offset * share),
        })
        if ok then
          assert.is_true(plan.arena_bytes <= math.min(least, math.floor(arena.offset * share)))
          least = plan.arena_bytes
        else
          assert.are.equal("budget", plan.code)
        end
      end
    end
    local net = neap.net "drawn"
    local x = net:input("x", { 400 })
    local a = net:Dropout(x, "a", { rate = 0.5 })
    local b = net:Dropout(net:Tanh(x, "t"), "b", { rate = 0.5 })
    net:outputs { net:Add({ a, b }, "y") }
    local feeds, hash = { x = neap.ones(400) }, nil
    for _, o in ipairs { { executor = "simple" }, { executor = "dag" }, { policy = "none" } } do
      local ws <close> = neap.workspace {
        seed = 4, store = false, executor = o.executor, policy = o.policy,
      }
      local got = ws:run(net, feeds).y:hash()
      hash = hash or got
      assert.are.equal(hash, got)
    end
  end)

  it("programs of several shapes share one arena, as large as the largest needs", function()
    local net = conv_net():net(training(nil, 8))
    local ws <close> = neap.workspace { store = false }
    local most = 0
    ws:init(net)
    for _, n in ipairs { 4, 32, 8, 16 } do
      local program = ws:compile(net, { x = { n, 1, 10, 10 }, y = { n } })
      most = math.max(most, program.plan.arena_bytes)
      assert.are.equal(most, ws:arena_bytes())
    end
  end)

  it("plans of random dags pass the independent verifier, and run to the bits of the unplanned \z
      run in every schedule", function()
    for seed = 1, 25 do
      local net = random_net(seed)
      local feeds, hash = {}, nil
      neap.seed(seed)
      for i = 1, 3 do feeds["x" .. i] = neap.randn { 4, 6 } end
      for _, o in ipairs {
        { policy = "none" }, { policy = "offset" }, { policy = "offset", executor = "dag" },
        { policy = "name", executor = "dag" },
      } do
        o.store = false
        local plan = net:plan { policy = o.policy, executor = o.executor, store = false }
        assert.is_true(plan:verify())
        local ws <close> = neap.workspace(o)
        ws:poison(true)
        for _ = 1, 2 do
          local got = ws:run(net, feeds).out:hash()
          hash = hash or got
          assert.are.equal(hash, got,
            ("net %d, %s %s"):format(seed, o.policy, o.executor or "simple"))
        end
      end
    end
  end)

  it("roles are data, never name suffixes: names with _grad in them change nothing", function()
    local function build(infix)
      local net = neap.net "names"
      local x, w = net:input("x" .. infix, { 6, 5 }), net:param("w" .. infix, { 5, 5 }, 0.1)
      local h = x
      for i = 1, 4 do h = net:Tanh(net:FC({ h, w }, "h" .. infix .. i), "t" .. infix .. i) end
      net:outputs { net:Sum(h, "y" .. infix) }
      net:gradient("y" .. infix)
      return net
    end
    local plain, odd = build "", build "_grad_split"
    assert.are.equal(plain:hash(), odd:hash())
    local a, b = plain:plan { store = false }, odd:plan { store = false }
    local rows, others = a:values(), b:values()
    assert.are.equal(#rows, #others)
    for i, row in ipairs(rows) do
      assert.are.equal(row.region, others[i].region)
      assert.are.equal(row.offset_bytes, others[i].offset_bytes)
    end
  end)

  it("there are runnable examples in Lua, which the tests run, and one in C at the \z
      head of its manual", function()
    local function read(path)
      local file = assert(io.open(path))
      local text = file:read "a"
      file:close()
      return text
    end
    local spec, n = read "tests/unit/examples_spec.lua", 0
    local pipe = assert(io.popen "ls scripts/examples/*.lua")
    for path in pipe:lines() do
      n = n + 1
      assert.is_truthy(load(read(path):gsub("^#[^\n]*", "")), path)
      assert.is_truthy(spec:find(path:match "([%w_]+)%.lua$", 1, true),
        path .. " is not run by the tests")
    end
    pipe:close()
    assert.is_true(n >= 4)
    assert.is_truthy(read("src/neap.h"):find("neap_session_run", 1, true))
    -- taken from neap.h, compiled and run
    assert.is_truthy(read("tests/c/test_api.c"):find("manual_example.c", 1, true))
  end)

  it("a kept blob, a parameter and its gradient stay at one address from run to run; a dropout's \z
      state is no blob of the user's", function()
    local net = conv_net():net(training(nil, 8))
    local ws <close> = neap.workspace { store = false }
    ws:keep "conv1"
    local feeds = batch_of(8, { 1, 10, 10 }, 3)
    ws:run(net, feeds)
    local names, views = { "conv1" }, {}
    for _, row in ipairs(net:_blobs()) do
      if row.role == "parameter" or row.role == "gradient" or row.role == "state" then
        names[#names + 1] = row.name
      end
    end
    for _, name in ipairs(names) do views[name] = ws:view(name) end
    for _ = 1, 3 do
      ws:run(net, feeds)
      for _, name in ipairs(names) do assert.is_true(views[name]:same(ws:view(name)), name) end
    end
    assert.is_true(#names >= 9)
    for _, v in ipairs(inception():plan({ batch = 2, train = true }):values()) do
      if v.blob:find "dropout.*stash" then assert.are.equal("arena", v.region) end
    end
  end)

  it("the arena is there before the first run, which allocates no tensor bytes", function()
    local net = conv_net():net(training(nil, 16))
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    for name, t in pairs(batch_of(16, { 1, 10, 10 }, 3)) do ws:feed(name, t) end
    local program = ws:compile(net)
    assert.are.equal(program.plan.arena_bytes, ws:arena_bytes())
    settle()
    local before = neap.memory()
    program:run()
    local after = neap.memory()
    assert.are.equal(before.held, after.held)
    assert.are.equal(before.n_alloc, after.n_alloc)
  end)

  it("Free gives bytes back to the arena's pool, and the pool's own figures show it, \z
      without any flag", function()
    local function build(free)
      local net = neap.net "freed"
      local x = net:input("x", { 4096 })
      local a = net:Tanh(x, "a")
      local b = net:Tanh(a, "b")
      if free then net:Free "a" end
      local c = net:Tanh(b, "c")
      net:outputs { net:Sum(c, "y") }
      return net
    end
    local high = {}
    for _, free in ipairs { true, false } do
      local ws <close> = neap.workspace { store = false }
      local net = build(free)
      ws:init(net)
      ws:feed("x", neap.randn { 4096 })
      local program = ws:compile(net, { policy = "pool", in_place = false })
      program:run()
      local pool = program:pool()
      assert.are.equal(0, pool.used_bytes)
      high[free] = pool.high_bytes
      if free then raises("has freed it", ws.fetch, ws, "a") end
    end
    assert.is_true(high[true] <= high[false])
    assert.is_true(high[true] < 3 * 4096 * 4 + 4096)
  end)

  it("totals count storages, not names", function()
    local ws <close> = neap.workspace { store = false }
    local t = neap.ones(1000)
    ws:feed("a", t, { share = true })
    ws:feed("b", t, { share = true })
    assert.are.equal(4000, ws:blobs().bytes)
    local child <close> = ws:child {}
    child:feed("c", neap.ones(10))
    assert.are.equal(40, child:blobs().bytes)
    local net = neap.net "chain"
    local h = net:input("x", { 1000 })
    for _ = 1, 6 do h = net:Relu(h) end
    net:outputs { net:Sum(h, "y") }
    local plan, storages, sum = net:plan { store = false }, {}, 0
    for _, v in ipairs(plan:values()) do
      if v.region == "arena" and not storages[v.storage_no] then
        storages[v.storage_no], sum = true, sum + v.bytes
      end
    end
    assert.are.equal(4000, sum) -- six in-place layers, one storage
  end)

  it("slots are drawn over time, and the net with its backward, subnets and branches", function()
    local plan = inception():plan { batch = 2, train = true }
    assert.is_truthy(plan:svg():find('class="box"', 1, true))
    assert.is_truthy(plan:dot():find("ConvGradWeight", 1, true))
    -- tests/named/13_pictures_spec.lua has a test for each of the gaps
  end)

  it("accumulated gradients are pinned across iterations: several micro-batches give the step \z
      of the whole batch", function()
    local function step(micro)
      local ws_model = conv_net()
      neap.seed(8)
      local t <close> = neap.trainer {
        model = ws_model,
        loss = nn.CrossEntropyLoss(),
        optimizer = optim.SGD { lr = 0.1 },
        micro = micro,
        seed = 8,
      }
      local feeds = batch_of(12, { 1, 10, 10 }, 3, 9)
      for _ = 1, 3 do t:step { x = feeds.x, y = feeds.y } end
      local out = {}
      for name, value in pairs(ws_model:state_dict()) do out[name] = value:clone() end
      return out
    end
    local whole, parts, n = step(nil), step(4), 0
    for name, t in pairs(whole) do
      n = n + 1
      assert.is_true(t:close(parts[name], { rtol = 1e-4, atol = 1e-5 }), name)
    end
    assert.are.equal(4, n)
  end)
end)
