--- Dynamic scheduling: shapes known only at run time, bytes taken from a pool and given back at the last use.
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
        local r = neap.check.plan(name, { policy = "pool", layouts = "plain", poison = poison, steps = 2 })
        assert.is_true(r.same, name .. ": " .. tostring(r.different))
        assert.is_true(r.n_blob > 4)
        assert.are.equal(0, r.allocations)
      end
    end
    assert.is_true(neap.check.plan("resnet18c:2", { train = false, policy = "pool", layouts = "plain", steps = 1, count_steps = 2 }).same)
  end)

  it("needs at most three hundredths more than the static plan of every net of the zoo, with the same kernels", function()
    for _, batch in ipairs { 1, 4, 16, 32 } do
      for _, name in ipairs(neap.zoo.names()) do
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
          for i, op in ipairs(mine) do assert.are.equal(theirs[i].engine, op.engine, name .. " " .. op.name) end
        end
      end
    end
  end)

  it("reaches exactly as far as was foretold, and what the plan calls alive is what is taken, step by step", function()
    for _, name in ipairs { "mlp:8", "lenet:4" } do
      local net = net_of(name, true)
      local feeds = {}
      for _, input in ipairs(net:inputs()) do feeds[input.name] = core.zeros { dtype = input.dtype, table.unpack(input.shape) } end
      local program <close> = program_of(net, { policy = "pool" }, feeds)
      program:run()
      local pool = program:pool()
      assert.are.equal(program.plan.arena_bytes, pool.reach)
      assert.are.equal(program.plan.arena_bytes, pool.reserved)
      assert.are.equal(program.plan.lower_bound_bytes, pool.high)
      for i, op in ipairs(program.plan:_ops()) do assert.are.equal(op.live_bytes, pool.curve[i], name .. " " .. op.name) end
      assert.are.equal(0, pool.used)
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
    local reserved, n_take = program:pool().reserved, program:pool().n_take
    for _ = 1, 5 do
      program:run()
      assert.are.equal(0, program:stats().n_alloc_last)
    end
    assert.are.equal(reserved, program:pool().reserved)
    assert.are.equal(6 * n_take, program:pool().n_take)
    assert.are.equal(0, program:pool().used)
    assert.are.equal(reserved, program.workspace:trim_pool()) -- all of it, since nothing is in use
    assert.are.equal(0, program:pool().reserved)
    program:run()
    assert.are.equal(reserved, program:pool().reserved)
  end)

  it("gives back at the last use: a blob is gone after the run, and the message says when and what to do", function()
    local net = chain()
    local program <close>, ws = program_of(net, { policy = "pool" }, { x = neap.rand(8, 64) })
    program:run()
    for _, how in ipairs { "fetch", "view" } do
      local ok, err = pcall(ws[how], ws, "b")
      assert.is_false(ok)
      assert.are.equal("released", err.code)
      assert.are.equal("b", err.blob)
      assert.is_truthy(tostring(err):find("released to the pool after step 3", 1, true), tostring(err))
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
    local program <close> = program_of(build(true), { policy = "pool", in_place = false }, { x = neap.rand(1024) })
    program:run()
    local curve, at = program:pool().curve, nil
    for i, op in ipairs(program.plan:_ops()) do
      if op.type == "Free" then at = i end
    end
    assert.is_truthy(at)
    assert.is_true(curve[at] >= 4096) -- still there when Free begins
    assert.is_true(curve[at + 1] < curve[at] + 4096) -- c takes its bytes after it
    local without <close> = program_of(build(false), { policy = "pool", in_place = false }, { x = neap.rand(1024) })
    without:run()
    assert.is_true(program:pool().high <= without:pool().high)
  end)

  it("refuses a pool above the hard limit, naming blob and bytes, and leaves everything as it was", function()
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
    assert.is_true(fits:pool().reserved <= err.least_bytes)
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
    dynamic:compile(chain(), { executor = "simple", x = { 2, 64 } }):close() -- what the call says counts
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
    local most = a:pool().reserved
    assert.is_true(most > 16384)
    ws:feed("x", neap.rand(table.unpack(small)))
    b:run()
    assert.are.equal(16384, b:pool().reserved)
    ws:feed("x", neap.rand(table.unpack(large)))
    a:run()
    assert.are.equal(most, a:pool().reserved)
  end)

  it("keeps the pool as large as it was where nothing says how large it may stay", function()
    local net, small, large = chain(), { 2, 64 }, { 64, 64 }
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    local a <close> = ws:compile(net, { policy = "pool", x = large })
    local b <close> = ws:compile(net, { policy = "pool", x = small })
    ws:feed("x", neap.rand(table.unpack(large)))
    a:run()
    local most = a:pool().reserved
    ws:feed("x", neap.rand(table.unpack(small)))
    b:run()
    assert.are.equal(most, b:pool().reserved)
  end)

  it("is refused for a dag, whose order is not known beforehand", function()
    local ok, err = pcall(function() return chain():plan { policy = "pool", executor = "dag", store = false } end)
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find("executor simple", 1, true), tostring(err))
  end)

  it("runs If with its branches' frames taken from the pool", function()
    local net = neap.net "branch"
    local x, c = net:input("x", { 16 }), net:input("c", {}, "bool")
    local y = net:If(c, function(b) return b:Tanh(b:Sigmoid(x)) end, function(b) return b:Neg(x) end)
    net:outputs { net:Sum(y, "s") }
    local program <close>, ws = program_of(net, { policy = "pool" }, { x = neap.ones(16), c = core.tensor(true, "bool") })
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
    if blob.role == "parameter" or blob.role == "state" then bits[blob.name] = ws:fetch(blob.name):hash() end
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
  for parameter, gradient in pairs(net:gradient(loss)) do net:Sgd({ parameter, gradient, lr }, { parameter }) end
  net:outputs { "loss" }
  return net
end

describe("eviction under a hard limit", function()
  it("runs in half of what the unlimited run takes, and in less, to the same bits, where a static plan without recomputation can't", function()
    for _, name in ipairs { "resnet110:1", "chargpt:1" } do
      local net = net_of(name, true)
      local feeds = feeds_of(net)
      local bits, pool = steps_of(net, { executor = "dynamic" }, feeds)
      for _, share in ipairs { 0.5, 0.4 } do
        local budget = math.floor(pool.reach * share)
        local ok, err = pcall(net.plan, net, { budget = budget, recompute = false, store = false })
        assert.is_false(ok, name)
        assert.are.equal("budget", err.code)
        local same, limited, stats = steps_of(net, { executor = "dynamic", budget = budget }, feeds)
        assert.same(bits, same, name)
        assert.is_true(limited.reach <= budget and limited.reserved <= budget, name)
        assert.is_true(limited.n_evicted > 0 and limited.n_recomputed > 0 and limited.evicted_bytes > 0)
        assert.are.equal(0, stats.n_alloc_last)
      end
    end
  end)

  it("counts what a value is made of and what is made of it: as long as there are others, no two neighbours go", function()
    for _, n in ipairs { 12, 30 } do
      local net = tower(n)
      local budget = net:plan({ executor = "dynamic", store = false }).arena_bytes * 65 // 100
      local text = tostring(net:plan({ executor = "dynamic", budget = budget, store = false }):explain())
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
    assert.is_true(limited.reach <= budget and budget < 0.3 * pool.reach)
    assert.is_true(limited.n_recomputed > 0 and limited.recomputed_work > 0)
    assert.is_true(plan:verify())
    assert.is_truthy(tostring(plan:explain()):find("evicts", 1, true))
  end)

  it("says of each step what it takes, stays below the limit in all of them, and gives the same bits under each", function()
    local net = tower(12)
    local feeds = { x = neap.rand(64, 32), lr = core.tensor(0.01) }
    local bits, unlimited = steps_of(net, { executor = "dynamic" }, feeds)
    local scripts, n_script = {}, 0 -- a limit changes what is evicted
    for percent = 95, 30, -4 do
      local budget = unlimited.reach * percent // 100
      local fits, plan = pcall(net.plan, net, { executor = "dynamic", budget = budget, store = false })
      if not fits then
        assert.is_true(percent < 40 and plan.least_bytes > budget)
        break
      end
      local same, pool = steps_of(net, { executor = "dynamic", budget = budget }, feeds)
      assert.same(bits, same, percent .. " %")
      local script = ("%d %d %d"):format(pool.n_evicted, pool.n_recomputed, pool.evicted_bytes)
      if not scripts[script] then scripts[script], n_script = true, n_script + 1 end
      -- One op after another, as the plan has them; the dynamic executor may have several under way.
      local sequence, in_order = steps_of(net, { policy = "pool", budget = budget }, feeds)
      assert.same(bits, sequence, percent .. " %")
      assert.are.equal(plan.arena_bytes, pool.reach)
      assert.are.equal(plan.arena_bytes, in_order.reach)
      for i, op in ipairs(plan:_ops()) do
        assert.is_true(pool.curve[i] <= budget and in_order.curve[i] <= budget)
        assert.is_true(op.live_bytes <= in_order.curve[i])
      end
    end
    assert.is_true(n_script > 8)
  end)

  it("refuses what can't be run even so, naming the op of the greatest need; the least that it names is met", function()
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
    assert.is_truthy(err.line:find("10_dynamic_spec.lua", 1, true))
    local bits = steps_of(net, { executor = "dynamic" }, feeds)
    local same, pool = steps_of(net, { executor = "dynamic", budget = err.least_bytes }, feeds)
    assert.same(bits, same)
    assert.is_true(pool.reserved <= err.least_bytes)
  end)

  it("is off where recomputation is", function()
    local net = tower(12)
    local plan = net:plan { executor = "dynamic", store = false }
    local ok, err = pcall(net.plan, net, { executor = "dynamic", budget = plan.arena_bytes // 2, recompute = false, store = false })
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
        print(plan.hit, plan:verify(), (tostring(plan:explain()):match "evicts[^\n]*"), plan.arena_bytes)
      end]]
    file:flush()
    local lines = {}
    local command = ("NEAP_DB=%s %s run %s"):format(path, support.program, script)
    for line in support.shell(command):gmatch "[^\n]+" do lines[#lines + 1] = line end
    os.remove(path)
    os.remove(script)
    assert.is_truthy(lines[1]:match "^false%s+true%s+evicts %d+", lines[1])
    assert.are.equal((lines[1]:gsub("^false", "true")), lines[2])
  end)
end)

--- A small net over rows: any number of them.
local function rows_net()
  local net = neap.net "rows"
  local x = net:input("x", { 1, 16 })
  net:param("w1", { 32, 16 }, neap.init.xavier())
  net:param("b1", { 32 })
  local h = net:Tanh(net:FC({ x, "w1", "b1" }, "h"))
  net:outputs { net:Softmax(h, "y") }
  return net
end

--- Rows of x where mask holds, through a layer, to a loss; the same with the mask as a factor.
local function masked_net(compressed)
  local net = neap.net "masked"
  local x, lr = net:input("x", { 6, 4 }), net:input("lr", {})
  local m = compressed and net:input("m", { 6 }, "bool") or net:input("m", { 6, 1 })
  net:param("w", { 3, 4 }, neap.init.xavier())
  net:param("b", { 3 })
  local h = net:Tanh(net:FC({ x, "w", "b" }, "h"))
  local part = compressed and net:Compress({ h, m }, "part", { axis = 1 }) or net:Mul({ h, m }, "part")
  local loss = net:Sum(net:Mul { part, part }, "loss")
  for parameter, gradient in pairs(net:gradient(loss)) do net:Sgd({ parameter, gradient, lr }, { parameter }) end
  net:outputs { "loss" }
  return net
end

local masks = { { 1, 0, 1, 1, 0, 0 }, { 1, 1, 1, 1, 1, 1 }, { 0, 0, 0, 1, 0, 1 }, { 0, 0, 0, 0, 0, 0 }, { 0, 1, 0, 0, 0, 1 } }

describe("the dynamic executor", function()
  it("runs one program handle on inputs of any shape, with the bits of a program planned for each", function()
    local net = rows_net()
    local ws <close> = neap.workspace { executor = "dynamic", seed = 2, store = false }
    local fixed <close> = neap.workspace { policy = "none", seed = 2, store = false }
    ws:init(net)
    fixed:init(net)
    local program <close> = ws:compile(net)
    for _, n in ipairs { 3, 40, 7, 3, 40, 1 } do -- small after large, too
      local x = neap.rand(n, 16)
      ws:feed("x", x)
      program:run()
      local reference <close> = fixed:compile(net, { x = { n, 16 }, layouts = "plain" })
      fixed:feed("x", x)
      reference:run()
      assert.are.equal(fixed:fetch("y"):hash(), ws:fetch("y"):hash())
      assert.same({ n, 32 }, ws:fetch("y").shape)
      assert.are.equal(n, program.plan.batch)
    end
    local stats = program:stats()
    assert.are.equal(4, stats.n_made) -- declared (1), 3, 40 and 7: one for each shape, not for each run
    assert.are.equal(4, stats.n_program)
    assert.are.equal(0, stats.n_restart)
  end)

  it("holds nothing of a large batch once a small one has run", function()
    local net = neap.net "first"
    net:input("x", { 1, 100 })
    net:outputs { net:Tanh("x", "y") }
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    local before, held = support.held(), {}
    for k, n in ipairs { 1, 10000, 1 } do
      ws:run(net, { x = neap.zeros(n, 100) })
      held[k] = support.held() - before
    end
    assert.is_true(held[2] >= 2 * 10000 * 400)
    assert.are.equal(held[1], held[3])
  end)

  it("keeps memory within the largest shape's need plus a tenth over a thousand batches of random shapes", function()
    local net = rows_net()
    local ws <close> = neap.workspace { executor = "dynamic", seed = 2, store = false }
    ws:init(net)
    local largest = net:plan { policy = "pool", x = { 60, 16 }, store = false }
    local program <close> = ws:compile(net)
    local buffer, state = neap.rand(60, 16), 17
    local function batch(n)
      ws:feed("x", buffer:narrow(1, 1, n))
      program:run()
    end
    batch(60)
    settle()
    local held = neap.memory().held
    local most_pool, most_held, most_cache, most_programs = 0, 0, 0, 0
    for _ = 1, 1000 do
      state = (state * 1103515245 + 12345) % 2147483648
      batch(1 + state // 65536 % 60)
      local pool, stats = program:pool(), program:stats()
      most_pool, most_held = math.max(most_pool, pool.reserved), math.max(most_held, stats.process_bytes)
      most_cache, most_programs = math.max(most_cache, stats.cache_bytes), math.max(most_programs, stats.n_program)
      assert.are.equal(0, pool.used)
      assert.are.equal(1, pool.n_free_block) -- one region, empty
    end
    assert.is_true(most_pool <= 1.1 * largest.arena_bytes, most_pool .. " of " .. largest.arena_bytes)
    assert.is_true(most_held <= 1.1 * held, ("%d held, %d with the largest shape"):format(most_held, held))
    assert.is_true(most_programs <= 16 and most_cache <= 64 * 2 ^ 20 and most_cache > 0)
    assert.is_true(program:stats().n_dropped > 0)
  end)

  it("allocates nothing once a shape is known and its inputs have come", function()
    local net = rows_net()
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    ws:init(net)
    local program <close> = ws:compile(net)
    ws:feed("x", neap.rand(9, 16))
    program:run(2)
    program:run()
    assert.are.equal(0, program:stats().n_alloc_last)
  end)

  it("finds lengths that depend on data: Compress and NonZero give what the tensor functions give", function()
    local net = neap.net "lengths"
    local x, m = net:input("x", { 6, 4 }), net:input("m", { 6 }, "bool")
    local z = net:Compress({ net:Tanh(x), m }, "z", { axis = 1 })
    net:outputs { z, net:Sum(z, "s", { axes = { 2 } }), net:NonZero(m, "i") }
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    ws:poison(true)
    local input = neap.rand(6, 4)
    for round = 1, 2 do
      for _, mask in ipairs(masks) do
        local holds = neap.tensor(mask):gt(0.5)
        local out = ws:run(net, { x = input, m = holds })
        local want = input:tanh():compress(holds, { axis = 1 })
        assert.are.equal(want:hash(), out.z:hash())
        assert.same(want.shape, out.z.shape)
        assert.same({ want.shape[1] }, out.s.shape)
        assert.are.equal(neap.non_zero(holds):hash(), out.i:hash(), "round " .. round)
      end
    end
  end)

  it("finds the different values of a tensor, where each element's stands and how often it occurs", function()
    local net = neap.net "values"
    local x = net:input("x", { 1 }, "i32")
    net:outputs { net:Unique(x, { "y", "inverse", "counts" }) }
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    for _, list in ipairs { { 5, -2, 5, 7, -2, 5 }, { 3 }, { 9, 8, 7, 6, 5, 4, 3, 2, 1, 0 }, {} } do
      local t = #list > 0 and neap.tensor(list, "i32") or neap.zeros { 0, dtype = "i32" }
      local out = ws:run(net, { x = t })
      local seen, sorted = {}, {}
      for _, v in ipairs(list) do
        if not seen[v] then sorted[#sorted + 1] = v end
        seen[v] = (seen[v] or 0) + 1
      end
      table.sort(sorted)
      assert.same({ #sorted }, out.y.shape)
      for k, v in ipairs(sorted) do
        assert.are.equal(v, out.y:at(k))
        assert.are.equal(seen[v], out.counts:at(k))
      end
      for i, v in ipairs(list) do assert.are.equal(v, sorted[out.inverse:at(i) + 1]) end
    end
    assert.are.equal(3, #neap.unique(neap.tensor { 0 / 0, 1, 0 / 0, 1 })) -- no NaN is another
  end)

  it("begins anew only while lengths change, and at most once for each op whose length does", function()
    local net = masked_net(true)
    local ws <close> = neap.workspace { executor = "dynamic", seed = 4, store = false }
    ws:init(net)
    local program <close> = ws:compile(net)
    ws:feed("x", neap.rand(6, 4))
    ws:feed("lr", core.tensor(0.0))
    ws:feed("m", neap.tensor(masks[1]):gt(0.5))
    program:run()
    assert.are.equal(0, program:stats().n_restart) -- a probe has found the length
    assert.are.equal(2, program:stats().n_made)
    program:run(5)
    assert.are.equal(0, program:stats().n_restart)
    assert.are.equal(2, program:stats().n_made)
    ws:feed("m", neap.tensor(masks[3]):gt(0.5))
    program:run()
    assert.are.equal(1, program:stats().n_restart) -- the guess was wrong
    assert.are.equal(3, program:stats().n_made) -- the probe is the old one
    assert.are.equal(7, ws:step()) -- a step that began twice counts once
  end)

  it("writes what subnets write once, not in the probe too", function()
    local writers = {
      Add = function(net) net:Add({ "m", "one" }, "m") end,
      Accumulate = function(net) net:op("Accumulate", { "m", "one" }, "m") end,
      If = function(net) net:If(net:const(true), function(b) b:Add({ "m", "one" }, "m") end) end,
      ["Accumulate in an If"] = function(net) net:If(net:const(true), function(b) b:op("Accumulate", { "m", "one" }, "m") end) end,
      Recurrent = function(net)
        net:Recurrent { seq = { "one" }, init = {}, step = function(b, row)
          b:Add({ "m", "one" }, "m")
          return b:Copy(row)
        end }
      end,
      ["a Loop in a Do"] = function(net)
        net:CreateScope({}, "s")
        net:Do { scope = "s", bindings = { k = "m", one = "one" }, body = function(d)
          d:Loop { trip = 1, init = {}, body = function(b)
            b:Add({ "k", "one" }, "k")
            return true
          end }
        end }
      end,
    }
    for how, write in pairs(writers) do
      local net = neap.net "once"
      local x = net:input("x", { 4 })
      net:declare("m", "state", { 1 }, "f32", { op = "Constant", value = 0 })
      net:declare("one", "state", { 1 }, "f32", { op = "Constant", value = 1 })
      write(net)
      net:Compress({ x, x:gt(1) }, "y", { axis = 1 })
      net:outputs { "y" }
      local ws <close> = neap.workspace { executor = "dynamic", store = false }
      for step, last in ipairs { 1, 4, 4, 0 } do
        assert.are.equal(last > 1 and 3 or 2, #ws:run(net, { x = { 1, 2, 3, last } }).y:totable())
        assert.are.equal(step, ws:fetch("m"):item(), how)
      end
    end
  end)

  it("differentiates through Compress: parameters follow those of the same net with the mask as a factor", function()
    local a, b = masked_net(true), masked_net(false)
    local ws <close> = neap.workspace { executor = "dynamic", seed = 5, store = false }
    local other <close> = neap.workspace { seed = 5, store = false }
    ws:poison(true)
    for _, mask in ipairs(masks) do
      local x, m = neap.rand(6, 4), neap.tensor(mask)
      local got = ws:run(a, { x = x, m = m:gt(0.5), lr = core.tensor(0.1) })
      local want = other:run(b, { x = x, m = m:reshape(6, 1), lr = core.tensor(0.1) })
      assert.is_true(got.loss:close(want.loss, { rtol = 1e-5, atol = 1e-6 }))
      for _, name in ipairs { "w", "b" } do
        assert.is_true(ws:fetch(name):close(other:fetch(name), { rtol = 1e-5, atol = 1e-6 }), name)
      end
    end
  end)

  it("finds lengths that follow from one another, and ops that need two of them alike", function()
    local net = neap.net "chained"
    local x, m = net:input("x", { 1, 3 }), net:input("m", { 1 }, "bool")
    local some = net:Compress({ x, m }, "some", { axis = 1 }) -- the rows that m picks,
    local sums = net:Sum(some, "sums", { axes = { 2 } })
    local large = net:Gt({ sums, net:const(0) }, "large")
    local rest = net:Compress({ some, large }, "rest", { axis = 1 }) -- of these the ones with a positive sum,
    local same = net:Compress({ sums, large }, "same")
    net:outputs { net:Add({ net:Sum(rest, nil, { axes = { 2 } }), same }, "twice"), net:NonZero(large, "where") } -- and both again
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    for _, n in ipairs { 7, 3, 7 } do
      for seed = 1, 3 do
        neap.seed(seed)
        local t, pick = neap.rand { n, 3, low = -1, high = 1 }, neap.rand(n):gt(0.4)
        local out = ws:run(net, { x = t, m = pick })
        local s = t:compress(pick, { axis = 1 }):sum { axes = { 2 } }
        local want = s:compress(s:gt(0)) * 2
        assert.same(want.shape, out.twice.shape)
        assert.is_true(out.twice:close(want))
        assert.are.equal(neap.non_zero(s:gt(0)):hash(), out.where:hash())
      end
    end
  end)

  it("takes new shapes with which the lengths found last do not go", function()
    local net = neap.net "beside"
    local x, m, y = net:input("x", { 6 }), net:input("m", { 6 }, "bool"), net:input("y", { 6 })
    net:outputs { net:Add({ net:Compress { x, m }, y }, "z") }
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    for _, n in ipairs { 3, 3, 4, 4, 2, 6, 1 } do
      local mask = {}
      for i = 1, 6 do mask[i] = i > 6 - n and 1 or 0 end
      local t, pick, add = neap.rand(6), neap.tensor(mask):gt(0.5), neap.rand(n)
      assert.is_true(ws:run(net, { x = t, m = pick, y = add }).z:close(t:compress(pick) + add))
    end
  end)

  it("takes new shapes with which a length found last in a branch does not go, trusted or not", function()
    local net = neap.net "inside"
    local x, m, y = net:input("x", { 6 }), net:input("m", { 6 }, "bool"), net:input("y", { 6 })
    local z = net:If(net:input("c", {}, "bool"), function(b) return b:Sum(b:Mul { b:Compress { x, m }, y }) end,
      function(b) return b:Sum(y) end)
    net:outputs { z }
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    for _, n in ipairs { 4, 5, 3, 6, 6, 2 } do
      local t, add = neap.rand(n), neap.rand(n)
      local out = ws:run(net, { x = t, m = neap.ones(n):gt(0.5), y = add, c = neap.tensor(1):gt(0.5) })
      assert.is_true(out[z.name]:close((t * add):sum(), { rtol = 1e-5 }))
    end
  end)

  it("draws the same random numbers when a run begins anew", function()
    local function build(compressed)
      local net = neap.net "drawn"
      local x, m = net:input("x", { 6 }), net:input("m", { 6 }, "bool")
      local noise = net:Uniform(nil, "noise", { shape = { 6 } })
      local y = net:Add({ x, noise }, "y")
      net:outputs(compressed and { y, net:Compress({ y, m }, "z") } or { y })
      return net
    end
    local ws <close> = neap.workspace { executor = "dynamic", seed = 9, store = false }
    local other <close> = neap.workspace { seed = 9, store = false }
    local x, m = neap.rand(6), neap.tensor(masks[1]):gt(0.5)
    other:feed("m", m)
    local out = ws:run(build(true), { x = x, m = m })
    assert.are.equal(other:run(build(false), { x = x }).y:hash(), out.y:hash())
    assert.are.equal(out.y:compress(m):hash(), out.z:hash())
  end)

  it("finds lengths in branches, and in branches within them, as the conditions have it", function()
    local net = neap.net "branches"
    local x, m = net:input("x", { 6, 4 }), net:input("m", { 6 }, "bool")
    local c, d = net:input("c", {}, "bool"), net:input("d", {}, "bool")
    local some = net:Compress({ x, m }, "some", { axis = 1 }) -- a length that a branch depends on
    local y = net:If(c, function(b)
      local large = b:Compress({ some, b:Gt { b:Sum(some, nil, { axes = { 2 } }), b:const(0) } }, nil, { axis = 1 })
      return b:If(d, function(b2) return b2:Sum(b2:Tanh(large)) end,
        function(b2) return b2:Sum(b2:Unique(b2:Floor(b2:Mul { large, b2:const(4) }))) end)
    end, function(b) return b:Sum(b:Cast(b:NonZero(m), nil, { to = "f32" })) end)
    net:outputs { net:Add({ y, net:Sum(x) }, "y") }
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    ws:poison(true)
    local function truth(b) return neap.tensor(b and 1 or 0):gt(0.5) end
    for round = 1, 20 do
      neap.seed(round)
      local t = neap.rand { 5 + round % 3, 4, low = -1, high = 1 }
      local pick = neap.rand(t.shape[1]):gt(0.4)
      local first, second = round % 4 ~= 0, round % 2 == 0
      local got = ws:run(net, { x = t, m = pick, c = truth(first), d = truth(second) }).y
      local want = neap.non_zero(pick):to("f32"):sum()
      if first then
        local part = t:compress(pick, { axis = 1 })
        local large = part:compress(part:sum { axes = { 2 } }:gt(0), { axis = 1 })
        want = second and large:tanh():sum() or neap.unique((large * 4):floor()):sum()
      end
      assert.is_true(got:close(want + t:sum(), { rtol = 1e-5, atol = 1e-5 }), "round " .. round)
    end
  end)

  --- masked_net's loss in a branch; the other one takes all rows.
  local function branching_net(compressed)
    local net = neap.net "branching"
    local x, lr, c = net:input("x", { 6, 4 }), net:input("lr", {}), net:input("c", {}, "bool")
    local m = compressed and net:input("m", { 6 }, "bool") or net:input("m", { 6, 1 })
    net:param("w", { 3, 4 }, neap.init.xavier())
    net:param("b", { 3 })
    local h = net:Tanh(net:FC({ x, "w", "b" }, "h"))
    local loss = net:If(c, function(b)
      local part = compressed and b:Compress({ h, m }, nil, { axis = 1 }) or b:Mul { h, m }
      return b:Sum(b:Mul { part, part })
    end, function(b) return b:Sum(b:Mul { h, h }) end)
    for parameter, gradient in pairs(net:gradient(loss)) do net:Sgd({ parameter, gradient, lr }, { parameter }) end
    net:outputs { loss }
    return net, loss
  end

  it("differentiates through lengths in a branch, under a limit too", function()
    local a, loss = branching_net(true)
    local b, other_loss = branching_net(false)
    local other <close> = neap.workspace { seed = 5, store = false }
    local free <close> = neap.workspace { executor = "dynamic", seed = 5, store = false }
    local least = select(2, pcall(a.plan, a, { executor = "dynamic", budget = 1, store = false })).least_bytes
    local tight <close> = neap.workspace { executor = "dynamic", seed = 5, budget = least, store = false }
    free:poison(true)
    tight:poison(true)
    local lr = core.tensor(0.1)
    for round, mask in ipairs(masks) do
      local x, m, c = neap.rand(6, 4), neap.tensor(mask), neap.tensor(round % 3 ~= 0 and 1 or 0):gt(0.5)
      local got = free:run(a, { x = x, m = m:gt(0.5), c = c, lr = lr })
      local within = tight:run(a, { x = x, m = m:gt(0.5), c = c, lr = lr })
      local want = other:run(b, { x = x, m = m:reshape(6, 1), c = c, lr = lr })
      assert.is_true(got[loss.name]:close(want[other_loss.name], { rtol = 1e-5, atol = 1e-6 }))
      assert.are.equal(got[loss.name]:hash(), within[loss.name]:hash())
      for _, name in ipairs { "w", "b" } do
        assert.is_true(free:fetch(name):close(other:fetch(name), { rtol = 1e-5, atol = 1e-6 }), name)
        assert.are.equal(free:fetch(name):hash(), tight:fetch(name):hash())
      end
    end
    assert.are.equal(#masks, free:step()) -- a step that began anew counts once
  end)

  it("begins anew for a branch only when its length is another than the last time it ran", function()
    local net = branching_net(true)
    local ws <close> = neap.workspace { executor = "dynamic", seed = 4, store = false }
    ws:init(net)
    local program <close> = ws:compile(net)
    ws:feed("x", neap.rand(6, 4))
    ws:feed("lr", core.tensor(0.0))
    local function run(mask, c)
      ws:feed("m", neap.tensor(mask):gt(0.5))
      ws:feed("c", neap.tensor(c):gt(0.5))
      local before = program:stats()
      program:run()
      local after = program:stats()
      return after.n_restart - before.n_restart
    end
    assert.are.equal(0, run(masks[1], 1)) -- a probe has found the length
    assert.are.equal(0, run(masks[1], 1))
    assert.are.equal(0, run(masks[3], 0)) -- not asked
    assert.are.equal(0, run(masks[1], 1)) -- as it was
    assert.is_true(run(masks[3], 1) >= 1)
    assert.are.equal(0, run(masks[3], 1))
  end)

  it("refuses what a branch gives when its own length depends on data, and an update beside such an op", function()
    local net = neap.net "open"
    local x, m, c = net:input("x", { 4 }), net:input("m", { 4 }, "bool"), net:input("c", {}, "bool")
    net:outputs { net:If(c, function(b) return b:Compress { x, m } end, function(b) return b:Copy(x) end) }
    local ws <close> = neap.workspace { executor = "dynamic", store = false }
    local function feeds(on) return { x = neap.rand(4), m = neap.tensor { 1, 0, 1, 0 }:gt(0.5), c = neap.tensor(on):gt(0.5) } end
    local ok, err = pcall(ws.run, ws, net, feeds(1))
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find("then_net", 1, true) and tostring(err):find("10_dynamic_spec.lua:", 1, true), tostring(err))
    ws:run(net, feeds(0)) -- nothing is left of the failure

    local update = neap.net "update"
    local y, k, e, lr = update:input("x", { 4 }), update:input("m", { 4 }, "bool"), update:input("c", {}, "bool"), update:input("lr", {})
    update:param("s", {})
    update:If(e, function(b) b:Sgd({ "s", b:Sum(b:Compress { y, k }), lr }, { "s" }) end)
    update:outputs { "s" }
    local fine, why = pcall(update.plan, update, { executor = "dynamic", store = false })
    assert.is_false(fine)
    assert.is_truthy(tostring(why):find("can't update anything", 1, true), tostring(why))
  end)

  it("is named by the error when such a net is planned", function()
    local net = masked_net(true)
    for _, executor in ipairs { "simple", "dag" } do
      local ok, err = pcall(net.plan, net, { executor = executor, store = false })
      assert.is_false(ok)
      assert.are.equal("graph", err.code)
      assert.is_truthy(tostring(err):find('executor = "dynamic"', 1, true), tostring(err))
      assert.is_truthy(tostring(err):find("Compress", 1, true))
    end
    local branch = neap.net "branch"
    local x, m, c = branch:input("x", { 4 }), branch:input("m", { 4 }, "bool"), branch:input("c", {}, "bool")
    branch:If(c, function(b) return b:Sum(b:Compress { x, m }) end, function(b) return b:Sum(x) end)
    local ok, err = pcall(branch.plan, branch, { store = false })
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find("Compress", 1, true) and tostring(err):find('executor = "dynamic"', 1, true), tostring(err))
  end)

  it("refuses a shape that needs more than the hard limit, and goes on with the next one as if nothing had been", function()
    local net = rows_net()
    local ws <close> = neap.workspace { executor = "dynamic", seed = 2, budget = 16384, store = false }
    local before = ws:run(net, { x = neap.ones(4, 16) }).y:hash()
    local w = ws:fetch("w1"):hash()
    local ok, err = pcall(ws.run, ws, net, { x = neap.rand(400, 16) })
    assert.is_false(ok)
    assert.are.equal("budget", err.code)
    assert.are.equal("tanh_1", err.blob) -- h is part of it: the net does not train
    assert.is_truthy(tostring(err):find("50.0 KiB", 1, true), tostring(err))
    assert.are.equal(w, ws:fetch("w1"):hash())
    assert.are.equal(before, ws:run(net, { x = neap.ones(4, 16) }).y:hash())
  end)

  it("trains through the trainer with batches of any size", function()
    local nn = neap.nn
    local model = nn.Sequential { input = { 4 }, nn.Linear { 4, 8 }, nn.Tanh(), nn.Linear { 8, 3 } }
    local t <close> = neap.trainer { model = model, optimizer = neap.optim.SGD { lr = 0.1 }, memory = { executor = "dynamic" }, seed = 1 }
    local other = nn.Sequential { input = { 4 }, nn.Linear { 4, 8 }, nn.Tanh(), nn.Linear { 8, 3 } }
    local u <close> = neap.trainer { model = other, optimizer = neap.optim.SGD { lr = 0.1 }, memory = { policy = "none", layouts = "plain" }, seed = 1 }
    for _, n in ipairs { 8, 3, 8, 5 } do
      local batch = { x = neap.rand(n, 4), y = neap.zeros { n, dtype = "i64" } }
      assert.are.equal(u:step(batch).loss, t:step(batch).loss)
    end
  end)
end)

describe("control flow under the pool", function()
  local function same_under_pool(build, feeds)
    local net = build()
    local function run(memory, poison)
      local ws <close> = neap.workspace { seed = 3, store = false }
      ws:init(net)
      ws:poison(poison)
      for name, t in pairs(feeds) do ws:feed(name, t) end
      local program <close> = ws:compile(net, memory)
      program:run(2)
      local bits = {}
      for _, name in ipairs(net:outputs()) do bits[name] = ws:fetch(name):hash() end
      return bits
    end
    assert.same(run({ policy = "none", layouts = "plain" }, false), run({ policy = "pool" }, true))
  end

  it("runs While with its frame taken from the pool", function()
    same_under_pool(function()
      local net = neap.net "loop"
      net:input("x", { 32 })
      local _, y = net:While { init = { net:const(0), "x" }, cond = function(_, i) return i:lt(5) end,
        body = function(b, i, x) return i + 1, b:Tanh(b:Add { x, x }) end }
      net:outputs { net:Sum(y, "s"), net:Sigmoid("x", "t") }
      return net
    end, { x = neap.rand(32) })
  end)

  it("trains through a While with a declared maximum", function()
    same_under_pool(function()
      local net = neap.net "loop"
      net:param("w", { 8 }, neap.init.ones)
      local _, y = net:While { init = { net:const(0), "w" }, max = 3, cond = function(_, i) return i:lt(3) end,
        body = function(b, i, x) return i + 1, b:Sigmoid(b:Mul { x, x }) end }
      local loss = net:Sum(y, "loss")
      local g = net:gradient(loss, { wrt = { "w" } })
      local out = { loss }
      for _, gradient in pairs(g) do out[#out + 1] = gradient end
      net:outputs(out)
      return net
    end, {})
  end)
end)
