--- The pool policy: bytes taken and given back while running, and eviction under a hard limit.
local neap = require "neap"
local core = require "neap.core"
local netfile = require "neap.net.file"
local support = require "support"
local settle = support.settle

local function net_of(name, train) return netfile.build(netfile.load(name), { train = train }) end

--- A program in a workspace of its own, fed; closing the program is enough, it holds the workspace.
local function program_of(net, memory, feeds)
  local ws = neap.workspace { seed = 3, store = false }
  ws:init(net)
  for name, t in pairs(feeds or {}) do ws:feed(name, t) end
  local program = ws:compile(net, memory)
  return program, program.workspace
end

--- x -> big -> small -> y, with values of very different sizes.
local function chain()
  local net = neap.net "chain"
  local x = net:input("x", { 8, 64 })
  local a = net:Relu(x, "a")
  local b = net:Concat({ a, a, a }, "b", { axis = 2 })
  local c = net:Sum(b, "c", { axes = { 2 } })
  net:outputs { net:Tanh(c, "y") }
  return net
end

describe("the pool policy", function()
  it("computes the same bits as a run in which every value has bytes of its own", function()
    for _, name in ipairs { "mlp:8", "lenet:4" } do
      for _, poison in ipairs { false, true } do
        local r = neap.check.plan(name, {
          policy = "pool", layouts = "plain", poison = poison, steps = 2,
        })
        assert.is_true(r.same, name .. ": " .. tostring(r.different))
        assert.is_true(r.n_blob > 4)
        assert.are.equal(0, r.allocations)
      end
    end
    assert.is_true(neap.check.plan("resnet18c:2", {
      train = false, policy = "pool", layouts = "plain", steps = 1, count_steps = 2,
    }).same)
  end)

  it("needs at most three hundredths more than the static plan of nets of every structure, with \z
      the same kernels", function()
    for _, batch in ipairs { 1, 4, 16, 32 } do
      for _, name in ipairs(support.nets) do
        for _, train in ipairs { true, false } do
          local net = net_of(name .. ":" .. batch, train)
          local static = net:plan { store = false }
          local pool = net:plan { policy = "pool", store = false }
          assert.is_true(pool.arena_bytes <= 1.03 * static.arena_bytes,
            ("%s:%d: pool %d, static %d"):format(name, batch, pool.arena_bytes, static.arena_bytes))
          assert.is_true(pool.arena_bytes >= pool.lower_bound_bytes)
          assert.is_true(pool:verify())
          local mine, theirs = pool:_ops(), static:_ops()
          assert.are.equal(#theirs, #mine)
          for i, op in ipairs(mine) do
            assert.are.equal(theirs[i].engine, op.engine, name .. " " .. op.name)
          end
        end
      end
    end
  end)

  it("reaches exactly as far as was foretold, and what the plan calls alive is what is \z
      taken, step by step", function()
    for _, name in ipairs { "mlp:8", "lenet:4" } do
      local net = net_of(name, true)
      local feeds = {}
      for _, input in ipairs(net:inputs()) do
        feeds[input.name] = core.zeros { dtype = input.dtype, table.unpack(input.shape) }
      end
      local program <close> = program_of(net, { policy = "pool" }, feeds)
      program:run()
      local pool = program:pool()
      assert.are.equal(program.plan.arena_bytes, pool.reach_bytes)
      assert.are.equal(program.plan.arena_bytes, pool.reserved_bytes)
      assert.are.equal(program.plan.lower_bound_bytes, pool.high_bytes)
      for i, op in ipairs(program.plan:_ops()) do
        assert.are.equal(op.live_bytes, pool.curve[i], name .. " " .. op.name)
      end
      assert.are.equal(0, pool.used_bytes)
      assert.are.equal(0, pool.n_used)
      assert.are.equal(1, pool.n_free_block)
    end
  end)

  it("keeps one region between steps, empty, and allocates nothing after the first", function()
    local net = chain()
    local program <close> = program_of(net, { policy = "pool" }, { x = neap.rand(8, 64) })
    local before = neap.memory().pool
    program:run()
    assert.are.equal(program.plan.arena_bytes, neap.memory().pool - before)
    local reserved, n_take = program:pool().reserved_bytes, program:pool().n_take
    for _ = 1, 5 do
      program:run()
      assert.are.equal(0, program:stats().n_alloc)
    end
    assert.are.equal(reserved, program:pool().reserved_bytes)
    assert.are.equal(6 * n_take, program:pool().n_take)
    assert.are.equal(0, program:pool().used_bytes)
    assert.are.equal(reserved, program.workspace:trim_pool()) -- all of it, since nothing is in use
    assert.are.equal(0, program:pool().reserved_bytes)
    program:run()
    assert.are.equal(reserved, program:pool().reserved_bytes)
  end)

  it("gives back at the last use: a blob is gone after the run, and the message says \z
      when and what to do", function()
    local net = chain()
    local program <close>, ws = program_of(net, { policy = "pool" }, { x = neap.rand(8, 64) })
    program:run()
    for _, how in ipairs { "fetch", "view" } do
      local ok, err = pcall(ws[how], ws, "b")
      assert.is_false(ok)
      assert.are.equal("released", err.code)
      assert.are.equal("b", err.blob)
      assert.is_truthy(tostring(err):find("released to the pool after step 3", 1, true),
        tostring(err))
      assert.is_truthy(tostring(err):find("ws:keep", 1, true))
    end
    assert.are.equal(8, #ws:fetch "y")
    local kept <close> = ws:compile(net, { policy = "pool", keep = { "b" } })
    kept:run()
    assert.same({ 8, 192 }, ws:fetch("b").shape)
  end)

  it("has Free give the bytes back at once, and the statistics show it", function()
    local function build(free)
      local net = neap.net "freed"
      local x = net:input("x", { 1024 })
      local a = net:Sigmoid(x, "a")
      local b = net:Sum(a, "b")
      if free then net:Free "a" end
      local c = net:Tanh(x, "c")
      net:outputs { net:Add({ net:Sum(c, "d"), b }, "y") }
      return net
    end
    local program <close> = program_of(build(true), { policy = "pool", in_place = false },
      { x = neap.rand(1024) })
    program:run()
    local curve, at = program:pool().curve, nil
    for i, op in ipairs(program.plan:_ops()) do
      if op.type == "Free" then at = i end
    end
    assert.is_truthy(at)
    assert.is_true(curve[at] >= 4096) -- still there when Free begins
    assert.is_true(curve[at + 1] < curve[at] + 4096) -- c takes its bytes after it
    local without <close> = program_of(build(false), { policy = "pool", in_place = false },
      { x = neap.rand(1024) })
    without:run()
    assert.is_true(program:pool().high_bytes <= without:pool().high_bytes)
  end)

  it("refuses a pool above the hard limit, naming blob and bytes, and leaves \z
      everything as it was", function()
    local net = chain()
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    ws:feed("x", neap.rand(8, 64))
    settle()
    local before = neap.memory()
    local ok, err = pcall(ws.compile, ws, net, { policy = "pool", budget = 4096 })
    assert.is_false(ok)
    assert.are.equal("budget", err.code)
    assert.are.equal("b", err.blob)
    assert.is_true(err.least_bytes > 4096)
    assert.is_truthy(tostring(err):find("b 6.0 KiB", 1, true), tostring(err))
    assert.are.equal(before.pool, neap.memory().pool)
    assert.same({ 8, 64 }, ws:fetch("x").shape)
    local fits <close> = ws:compile(net, { policy = "pool", budget = err.least_bytes })
    fits:run()
    assert.is_true(fits:pool().reserved_bytes <= err.least_bytes)
  end)

  it("refuses a soft limit where there is no pool", function()
    local ok, err = pcall(neap.workspace, { soft = "1KiB" })
    assert.is_false(ok)
    assert.matches('executor = "dynamic"', tostring(err))
    local ws <close> = neap.workspace {}
    ok, err = pcall(ws.compile, ws, chain(), { soft = "1KiB", x = { 2, 64 } })
    assert.is_false(ok)
    assert.matches("policy offset has none", tostring(err))
    local dynamic <close> = neap.workspace { executor = "dynamic", soft = "1KiB" }
    -- what the call says counts
    dynamic:compile(chain(), { executor = "simple", x = { 2, 64 } }):close()
  end)

  it("trims the pool down to the soft limit as soon as a run needs less", function()
    local net = chain()
    local small, large = { 2, 64 }, { 64, 64 }
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    local a <close> = ws:compile(net, { policy = "pool", soft = 16384, x = large })
    local b <close> = ws:compile(net, { policy = "pool", x = small })
    ws:feed("x", neap.rand(table.unpack(large)))
    a:run()
    local most = a:pool().reserved_bytes
    assert.is_true(most > 16384)
    ws:feed("x", neap.rand(table.unpack(small)))
    b:run()
    assert.are.equal(16384, b:pool().reserved_bytes)
    ws:feed("x", neap.rand(table.unpack(large)))
    a:run()
    assert.are.equal(most, a:pool().reserved_bytes)
  end)

  it("keeps the pool as large as it was where nothing says how large it may stay", function()
    local net, small, large = chain(), { 2, 64 }, { 64, 64 }
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    local a <close> = ws:compile(net, { policy = "pool", x = large })
    local b <close> = ws:compile(net, { policy = "pool", x = small })
    ws:feed("x", neap.rand(table.unpack(large)))
    a:run()
    local most = a:pool().reserved_bytes
    ws:feed("x", neap.rand(table.unpack(small)))
    b:run()
    assert.are.equal(most, b:pool().reserved_bytes)
  end)

  it("is refused for a dag, whose order is not known beforehand", function()
    local ok, err = pcall(function()
      return chain():plan { policy = "pool", executor = "dag", store = false }
    end)
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find("executor simple", 1, true), tostring(err))
  end)

  it("runs If with its branches' frames taken from the pool", function()
    local net = neap.net "branch"
    local x, c = net:input("x", { 16 }), net:input("c", {}, "bool")
    local y = net:If(c, function(b) return b:Tanh(b:Sigmoid(x)) end,
      function(b) return b:Neg(x) end)
    net:outputs { net:Sum(y, "s") }
    local program <close>, ws = program_of(net, { policy = "pool" }, {
      x = neap.ones(16), c = core.tensor(true, "bool"),
    })
    ws:poison(true)
    program:run()
    local yes = ws:fetch("s"):item()
    ws:feed("c", core.tensor(false, "bool"))
    program:run()
    assert.are.equal(-16, ws:fetch("s"):item())
    assert.is_true(math.abs(yes - 16 * 0.6237) < 1e-2)
  end)

  it("says in words that addresses are not planned", function()
    local text = tostring(chain():plan({ policy = "pool", store = false }):explain())
    assert.is_truthy(text:find("not planned: peak forecast", 1, true), text)
  end)
end)

--- Bits of all outputs and parameters after two steps, and what the program says of its pool.
local function steps_of(net, memory, feeds)
  local program <close>, ws = program_of(net, memory, feeds)
  ws:poison(true)
  program:run(2)
  local bits = {}
  for _, name in ipairs(net:outputs()) do bits[name] = ws:fetch(name):hash() end
  for _, blob in ipairs(ws:blobs()) do
    if blob.role == "parameter" or blob.role == "state" then
      bits[blob.name] = ws:fetch(blob.name):hash()
    end
  end
  return bits, program:pool(), program:stats()
end

--- Feeds for all inputs of a net of the zoo: integers are labels or tokens, and 0 will do.
local function feeds_of(net)
  neap.seed(5)
  local feeds = {}
  for _, input in ipairs(net:inputs()) do
    feeds[input.name] = input.dtype == "f32" and neap.rand { table.unpack(input.shape) }
      or core.zeros { dtype = input.dtype, table.unpack(input.shape) }
  end
  return feeds
end

--- A training net of `n` layers of equal width, with noise in each.
local function tower(n)
  local net = neap.net "tower"
  local h, lr = net:input("x", { 64, 32 }), net:input("lr", {})
  for k = 1, n do
    net:param("w" .. k, { 32, 32 }, neap.init.xavier())
    net:param("b" .. k, { 32 })
    h = net:Tanh(net:FC({ h, "w" .. k, "b" .. k }))
    h = net:Dropout(h, nil, { rate = 0.1 })
  end
  local loss = net:Sum(net:Mul { h, h }, "loss")
  for parameter, gradient in pairs(net:gradient(loss)) do
    net:Sgd({ parameter, gradient, lr }, { parameter })
  end
  net:outputs { "loss" }
  return net
end

describe("eviction under a hard limit", function()
  it("runs in half of what the unlimited run takes, and in less, to the same bits, where a static \z
      plan without recomputation can't", function()
    for _, name in ipairs { "resnet110:1", "chargpt:1" } do
      local net = net_of(name, true)
      local feeds = feeds_of(net)
      local bits, pool = steps_of(net, { executor = "dynamic" }, feeds)
      for _, share in ipairs { 0.5, 0.4 } do
        local budget = math.floor(pool.reach_bytes * share)
        local ok, err = pcall(net.plan, net, { budget = budget, recompute = false, store = false })
        assert.is_false(ok, name)
        assert.are.equal("budget", err.code)
        local same, limited, stats = steps_of(net, { executor = "dynamic", budget = budget }, feeds)
        assert.same(bits, same, name)
        assert.is_true(limited.reach_bytes <= budget and limited.reserved_bytes <= budget, name)
        assert.is_true(
          limited.n_evicted > 0 and limited.n_recomputed > 0 and limited.evicted_bytes > 0)
        assert.are.equal(0, stats.n_alloc)
      end
    end
  end)

  it("counts what a value is made of and what is made of it: as long as there are others, no \z
      two neighbours go", function()
    for _, n in ipairs { 12, 30 } do
      local net = tower(n)
      local budget = net:plan({ executor = "dynamic", store = false }).arena_bytes * 65 // 100
      local text = tostring(
        net:plan({ executor = "dynamic", budget = budget, store = false }):explain())
      local evicted, again = text:match "evicts (%d+) values .* and runs (%d+) ops again"
      assert.is_true(tonumber(evicted) >= 10, text)
      assert.are.equal(evicted, again) -- else making one would need the other again
    end
  end)

  it("runs what static planning refuses, recomputation and all", function()
    local net = tower(40)
    local feeds = { x = neap.rand(64, 32), lr = core.tensor(0.01) }
    local bits, pool = steps_of(net, { executor = "dynamic" }, feeds)
    local _, refused = pcall(net.plan, net, { budget = 1, store = false })
    local budget = math.floor(refused.least_bytes * 0.8)
    assert.is_false((pcall(net.plan, net, { budget = budget, store = false })))
    local plan = net:plan { executor = "dynamic", budget = budget, store = false }
    local same, limited = steps_of(net, { executor = "dynamic", budget = budget }, feeds)
    assert.same(bits, same)
    assert.is_true(limited.reach_bytes <= budget and budget < 0.3 * pool.reach_bytes)
    assert.is_true(limited.n_recomputed > 0 and limited.recomputed_work > 0)
    assert.is_true(plan:verify())
    assert.is_truthy(tostring(plan:explain()):find("evicts", 1, true))
  end)

  it("says of each step what it takes, stays below the limit in all of them, and gives the \z
      same bits under each", function()
    local net = tower(12)
    local feeds = { x = neap.rand(64, 32), lr = core.tensor(0.01) }
    local bits, unlimited = steps_of(net, { executor = "dynamic" }, feeds)
    local scripts, n_script = {}, 0 -- a limit changes what is evicted
    for percent = 95, 30, -4 do
      local budget = unlimited.reach_bytes * percent // 100
      local fits, plan = pcall(net.plan, net, {
        executor = "dynamic", budget = budget, store = false,
      })
      if not fits then
        assert.is_true(percent < 40 and plan.least_bytes > budget)
        break
      end
      local same, pool = steps_of(net, { executor = "dynamic", budget = budget }, feeds)
      assert.same(bits, same, percent .. " %")
      local script = ("%d %d %d"):format(pool.n_evicted, pool.n_recomputed, pool.evicted_bytes)
      if not scripts[script] then scripts[script], n_script = true, n_script + 1 end
      -- One op after another, as the plan has them; the dynamic executor may have several under
      -- way.
      local sequence, in_order = steps_of(net, { policy = "pool", budget = budget }, feeds)
      assert.same(bits, sequence, percent .. " %")
      assert.are.equal(plan.arena_bytes, pool.reach_bytes)
      assert.are.equal(plan.arena_bytes, in_order.reach_bytes)
      for i, op in ipairs(plan:_ops()) do
        assert.is_true(pool.curve[i] <= budget and in_order.curve[i] <= budget)
        assert.is_true(op.live_bytes <= in_order.curve[i])
      end
    end
    assert.is_true(n_script > 8)
  end)

  it("refuses what can't be run even so, naming the op of the greatest need; the least \z
      that it names is met", function()
    local net = tower(12)
    local feeds = { x = neap.rand(64, 32), lr = core.tensor(0.01) }
    local ok, err = pcall(net.plan, net, { executor = "dynamic", budget = 4096, store = false })
    assert.is_false(ok)
    assert.are.equal("budget", err.code)
    local need, list = tostring(err):match "alone needs ([%d.]+) KiB: ([^\n]*)"
    assert.is_truthy(need, tostring(err))
    local sum = 0
    for kib in list:gmatch "([%d.]+) KiB" do sum = sum + kib end
    assert.are.equal(tonumber(need), sum)
    assert.is_truthy(err.line:find("10_pool_spec.lua", 1, true))
    local bits = steps_of(net, { executor = "dynamic" }, feeds)
    local same, pool = steps_of(net, { executor = "dynamic", budget = err.least_bytes }, feeds)
    assert.same(bits, same)
    assert.is_true(pool.reserved_bytes <= err.least_bytes)
  end)

  it("is off where recomputation is", function()
    local net = tower(12)
    local plan = net:plan { executor = "dynamic", store = false }
    local ok, err = pcall(net.plan, net, {
      executor = "dynamic", budget = plan.arena_bytes // 2, recompute = false, store = false,
    })
    assert.is_false(ok)
    assert.are.equal(plan.arena_bytes, err.least_bytes)
  end)

  it("comes back from the store as it was made", function()
    local path, script = os.tmpname(), os.tmpname()
    local file <close> = assert(io.open(script, "w"))
    file:write [[
      local neap, netfile = require "neap", require "neap.net.file"
      local net = netfile.build(netfile.load "chargpt:2", { train = true })
      local budget = net:plan({ policy = "pool" }).arena_bytes // 2
      for _ = 1, 2 do
        local plan = net:plan { policy = "pool", budget = budget }
        local evicts = tostring(plan:explain()):match "evicts[^\n]*"
        print(plan.hit, plan:verify(), evicts, plan.arena_bytes)
      end]]
    file:flush()
    local lines = {}
    local command = ("NEAP_CACHE=all NEAP_DB=%s %s run %s"):format(path, support.program, script)
    for line in support.shell(command):gmatch "[^\n]+" do lines[#lines + 1] = line end
    os.remove(path)
    os.remove(script)
    assert.is_truthy(lines[1]:match "^false%s+true%s+evicts %d+", lines[1])
    assert.are.equal((lines[1]:gsub("^false", "true")), lines[2])
  end)
end)
