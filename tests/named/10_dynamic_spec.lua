--- Dynamic scheduling: shapes known only at run time, bytes taken from a pool and given back at the last use.
local neap = require "neap"
local core = require "neap.core"
local netfile = require "neap.netfile"

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

  it("needs at most a tenth more than the offset plan of the same graph, order and choices", function()
    for _, name in ipairs { "mlp", "lenet", "resnet18c", "gpt" } do
      for _, train in ipairs { true, false } do
        local net = net_of(name, train)
        local offset = net:plan { policy = "offset", layouts = "plain", store = false }
        local pool = net:plan { policy = "pool", store = false }
        assert.is_true(pool.arena_bytes <= 1.1 * offset.arena_bytes,
          ("%s: pool %d, offset %d"):format(name, pool.arena_bytes, offset.arena_bytes))
        assert.is_true(pool.arena_bytes >= pool.lower_bound_bytes)
        assert.is_true(pool:verify())
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
    collectgarbage()
    collectgarbage()
    local before = neap.memory()
    local ok, err = pcall(ws.compile, ws, net, { policy = "pool", budget = 4096 })
    assert.is_false(ok)
    assert.are.equal("memory", err.code)
    assert.are.equal("b", err.blob)
    assert.is_true(err.least_bytes > 4096)
    assert.is_truthy(tostring(err):find("b 6.0 KiB", 1, true), tostring(err))
    assert.are.equal(before.pool, neap.memory().pool)
    assert.same({ 8, 64 }, ws:fetch("x").shape)
    local fits <close> = ws:compile(net, { policy = "pool", budget = err.least_bytes })
    fits:run()
    assert.is_true(fits:pool().reserved <= err.least_bytes)
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

  it("is refused for a dag, whose order is not known beforehand", function()
    local ok, err = pcall(function() return chain():plan { policy = "pool", executor = "dag", store = false } end)
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find("executor simple", 1, true), tostring(err))
  end)

  it("runs If with its branches' frames taken from the pool", function()
    local net = neap.net "branch"
    local x, c = net:input("x", { 16 }), net:input("c", {}, "bool")
    local y = net:If(c, function() return net:Tanh(net:Sigmoid(x)) end, function() return net:Neg(x) end)
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
