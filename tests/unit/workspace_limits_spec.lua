-- Limits of a workspace: what a run may take, and what its programs and blobs leave of it.
local neap = require "neap"
local support = require "support"
local raises = support.raises

describe("limits of a workspace", function()
  local function net_of(name, width)
    local net = neap.net(name)
    net:input("x", { 8, 6 })
    net:param("w_" .. name, { width, 6 }, neap.init.normal { std = 0.5 })
    net:Tanh(net:FC { "x", "w_" .. name }, "a_" .. name)
    net:Mul({ "a_" .. name, "a_" .. name }, "b_" .. name)
    net:Exp("b_" .. name, "y_" .. name)
    net:outputs { "y_" .. name }
    return net
  end
  local nets, policies = { net_of("small", 20), net_of("large", 30) }, { "offset", "pool", "none" }

  --- Runs both nets, by turns, until one is refused. @return workspace, error or nil
  local function run(limit, first, second)
    limit.store, limit.seed = false, 3
    local ws = neap.workspace(limit)
    for turn = 1, 4 do
      local net, policy = nets[2 - turn % 2], turn % 2 == 1 and first or second
      local ok, err = pcall(ws.run, ws, net, { x = neap.ones { 8, 6 } }, { policy = policy })
      if not ok then return ws, err end
    end
    return ws
  end

  it("count all its programs: two that keep them alone can't exceed them together", function()
    for _, first in ipairs(policies) do
      for _, second in ipairs(policies) do
        local free <close> = run({}, first, second)
        local total = free:held_bytes()
        local regions = free:arena_bytes() + free:trim_pool()
        for name, needs in pairs { budget = regions, total = total } do
          local enough <close>, refused = run({ [name] = needs }, first, second)
          assert.is_nil(refused)
          assert.are.equal(total, enough:held_bytes())
          local less <close>, err = run({ [name] = needs - 1 }, first, second)
          assert.are.equal("budget", err and err.code,
            ("%s and %s within a %s of one byte less"):format(first, second, name))
          assert.are.equal(needs, err.least_bytes)
          local got = name == "total" and less:held_bytes() or less:arena_bytes() + less:trim_pool()
          assert.is_true(got < needs)
        end
      end
    end
  end)
end)

--- What other programs and blobs leave of a limit is what a net is planned within: the planner
-- trades time for it.
describe("what a workspace's limits leave", function()
  local function deep()
    local net = neap.net "deep"
    local h = net:input("x", { 64, 64 })
    for i = 1, 8 do
      local w = net:param("w" .. i, { 64, 64 }, neap.init.xavier {})
      h = net:Tanh(net:FC({ h, w }, "a" .. i), "h" .. i)
    end
    local loss = net:Sum(h, "loss")
    neap.optim.SGD { lr = 0.1 }:apply(net, net:gradient(loss))
    net:outputs { loss }
    return net
  end
  local x = neap.ones(64, 64)

  --- Two steps beside a blob and another net. @return held bytes, arena bytes, loss or error
  local function steps(limit, memory)
    local limits = { store = false, seed = 1, total = limit.total, budget = limit.budget }
    local ws <close> = neap.workspace(limits)
    ws:feed("other", neap.ones(1000))
    local small = neap.net "small"
    small:outputs { small:Sum(small:Exp(small:input("z", { 16 }))) }
    ws:run(small, { z = neap.ones(16) })
    local ok, result
    for _ = 1, 2 do
      ok, result = pcall(ws.run, ws, deep(), { x = x, lr = 0.1 }, memory)
    end
    return ws:held_bytes(), ws:arena_bytes(), ok and result.loss:item() or result
  end

  it("is planned within: the same bits, and what is said to be the least does", function()
    local all, arena, loss = steps {}
    for name, free in pairs { total = all, budget = arena } do
      for _, less in ipairs { 0, 1, 20000 } do
        local held, its_arena, got = steps { [name] = free - less }
        assert.are.equal(loss, got)
        assert.is_true((name == "total" and held or its_arena) <= free - less)
      end
      local _, _, refused = steps { [name] = free - arena // 2 }
      local err = refused.code and refused or error(refused)
      assert.are.equal("budget", err.code)
      assert.are.equal(name, err.limit)
      assert.is_true(err.least_bytes < free and err.least_bytes > free - arena // 2)
      local _, _, least = steps { [name] = err.least_bytes }
      assert.are.equal(loss, least)
      local _, _, too_small = steps { [name] = err.least_bytes - 1 }
      assert.are.equal("budget", too_small.code)
    end
  end)

  it("leaves the pool's soft limit as it was when a program is refused", function()
    local ws <close> = neap.workspace { store = false, total = "256KiB" }
    local fits, odd = neap.net "fits", neap.net "odd"
    fits:outputs { fits:Sum(fits:Exp(fits:input("x", { 64 }))) }
    odd:outputs { odd:Sum(odd:Exp(odd:input("x", { 1 << 20 }))) }
    local program <close> = ws:compile(fits, { policy = "pool", soft = "1MiB" })
    ws:feed("x", neap.ones(64))
    program:run()
    raises("total", ws.compile, ws, odd, { policy = "pool", soft = "3MiB" })
    assert.are.equal(1 << 20, program:pool().soft_bytes)
  end)
end)

describe("limits of a workspace", function()
  local function nets(ws)
    for _, name in ipairs { "a", "b" } do
      local net = neap.net(name)
      net:Sum(net:Exp(net:input("x", { 64, 64 }), "h" .. name), "s" .. name)
      ws:add_net(net)
    end
    return ws
  end
  it("are kept by the children that steps make, all together", function()
    local KIB16 = 64 * 64 * 4
    for _, limit in ipairs { "budget", "total" } do
      local function runs(bytes, steps)
        local ws <close> = nets(neap.workspace { store = false, [limit] = bytes })
        if not pcall(ws.feed, ws, "x", neap.ones(64, 64)) then return false end
        return (pcall(ws.run_steps, ws, steps))
      end
      local beside = limit == "total" and KIB16 + 4096 or 0
      assert.is_true(runs(beside + KIB16 + 256, { "a", create_workspace = true }))
      assert.is_false(runs(beside + KIB16 // 2, { "a", create_workspace = true }))
      assert.is_true(runs(beside + 2 * KIB16 + 4096, { { "a" }, { "b" }, concurrent = true }))
      assert.is_false(runs(beside + KIB16 + 512, { { "a" }, { "b" }, concurrent = true }))
    end
  end)
  it("counts what an op by itself makes: all its outputs or none", function()
    local ws <close> = neap.workspace { store = false, total = 2048 }
    local x = neap.rand(16, 16)
    ws:feed("x", x)
    ws:run_op("Relu", { "x" }, "y")
    local e = support.raises(
      "Relu: the workspace would hold 3.0 KiB with its outputs, its total is 2.0 KiB", ws.run_op,
      ws, "Relu", { "x" }, "z")
    assert.are.equal("budget", e.code)
    assert.is_false(ws:has "z")
    assert.are.equal(2048, ws:held_bytes())
    ws:run_op("Neg", { "x" }, "x") -- in the bytes that are there
    assert.is_true(ws:fetch("x"):equal(-x))
    assert.are.equal(2048, ws:held_bytes())
  end)
  it("refuses an op by itself without the outputs that it writes", function()
    local ws <close> = neap.workspace { store = false }
    ws:feed("x", neap.ones(2, 3))
    support.raises("Relu: output y is missing", ws.run_op, ws, "Relu", "x", {})
    support.raises("Split: output y is missing", ws.run_op, ws, "Split", "x", {},
      { axis = 1, sizes = { 1, 1 } })
  end)
  it("count nothing for what an op by itself writes over the bytes of its blobs, \z
      its own among them", function()
    local x = neap.rand(16, 16)
    local ws <close> = neap.workspace { store = false, total = 2048 }
    ws:feed("x", x)
    ws:run_op("Relu", { "x" }, "y")
    assert.are.equal(2048, ws:held_bytes())
    local view = ws:view "y"
    ws:run_op("Neg", { "x" }, "y") -- full, and in the bytes of y
    assert.is_true(ws:fetch("y"):equal(-x))
    assert.is_true(view:equal(-x))
    ws:feed("y", x * 2)
    assert.is_true(view:equal(x * 2))
    assert.are.equal(2048, ws:held_bytes())
    local net = neap.net "n"
    net:Sum(net:input("y", { 16, 16 }), "s")
    local open <close> = neap.workspace { store = false }
    open:feed("x", x)
    open:run_op("Relu", { "x" }, "y")
    local program <close> = open:compile(net)
    for _, op in ipairs { "Neg", "Square" } do -- a program reads what was written last
      open:run_op(op, { "x" }, "y")
      program:run()
      assert.is_true(open:fetch("s"):equal(open:fetch("y"):sum()))
    end
  end)
  it("let several outputs of an op by itself come together or not at all, in \z
      whatever blobs they are", function()
    local x = neap.rand(16, 16)
    -- (16,16), and (16) or (16,1): 1024 and 64 bytes
    local function norm(ws) ws:run_op("LayerNorm", { "x" }, { "y", "mean" }) end
    local free <close> = neap.workspace { store = false }
    free:feed("x", x)
    norm(free)
    local mean, all = free:fetch "mean", free:held_bytes()
    assert.are.equal(2 * 1024 + 64, all)
    for _, c in ipairs {
      { fed = {} },
      { fed = { y = -x } },
      { fed = { mean = mean * 2 } },
      { fed = { y = -x, mean = mean * 2 }, shared = true },
    } do
      local function set(total)
        local ws <const> = neap.workspace { store = false, total = total }
        ws:feed("x", x)
        for name, t in pairs(c.fed) do ws:feed(name, t, { share = c.shared }) end
        return ws
      end
      -- what is another's is not written over
      local most = c.shared and 1024 + 2 * (1024 + 64) or all
      local less, enough <close> = set(most - 64), set(most)
      local held = less:held_bytes()
      local e = support.raises("LayerNorm: the workspace would hold", norm, less)
      assert.are.equal("budget", e.code)
      assert.are.equal(held, less:held_bytes())
      for _, name in ipairs { "y", "mean" } do
        assert.are.equal(c.fed[name] ~= nil, less:has(name))
        if c.fed[name] then assert.is_true(less:fetch(name):equal(c.fed[name])) end
      end
      less:close()
      for _ = 1, 3 do -- and again, exactly full
        norm(enough)
        assert.are.equal(all, enough:held_bytes())
        assert.is_true(enough:fetch("y"):equal(free:fetch "y"))
        assert.is_true(enough:fetch("mean"):equal(mean))
      end
    end
    local ws <close> = neap.workspace { store = false }
    local net = neap.net "n" -- the second output is a parameter in a segment, of another shape
    net:param("i", { 3 }, { op = "Constant", value = 2 })
    net:param("j", { 3 }, { op = "Constant", value = 2 })
    net:Add({ "i", "j" }, "k")
    ws:init(net)
    ws:feed("x", x)
    local e = support.raises('"i": expects f32 (3), got f32 ', ws.run_op, ws, "LayerNorm", { "x" },
      { "v", "i" })
    assert.are.equal("shape", e.code)
    assert.is_false(ws:has "v")
    assert.are.same({ 2, 2, 2 }, ws:fetch("i"):totable())
  end)
  it("leave inputs called as options are to be fed", function()
    for _, executor in ipairs { "linear", "dynamic" } do
      local net = neap.net "n"
      local total = net:input("total", { 8, 4 })
      local keep = net:input("keep", { 8, 4 })
      local budget = net:input("budget", { 8, 4 })
      local inputs, most = net:input("inputs", { 8, 4 }), net:input("max_batch", { 8, 4 })
      net:Add({ net:Add({ net:Add({ total, keep }), budget }), net:Add({ inputs, most }) }, "y")
      net:outputs { "y" }
      local ws <close> = neap.workspace { store = false }
      for _, rows in ipairs { 8, 3, 5 } do
        local t = neap.ones(rows, 4)
        local feeds = { total = t, keep = t, budget = t, inputs = t, max_batch = t }
        local memory = { total = "1MiB" }
        if executor == "dynamic" then memory.executor = executor end
        assert.are.same((t * 5):totable(), ws:run(net, feeds, memory).y:totable())
        local e = support.raises("64 B", ws.run, neap.workspace { store = false }, net, feeds,
          { total = 64 })
        assert.are.equal("budget", e.code)
      end
      ws:feed("total", neap.ones(8, 4))
      for _, name in ipairs { "keep", "budget", "inputs", "max_batch" } do
        ws:feed(name, neap.ones(8, 4))
      end
      local program <close> = ws:compile(net, {
        total = { 8, 4 }, inputs = { keep = { 8, 4 }, inputs = { 8, 4 } },
      })
      program:run()
      assert.are.equal(5 * 32, ws:fetch("y"):sum():item())
      support.raises('inputs: net "n" has no input "z"', ws.compile, ws, net,
        { inputs = { z = { 8, 4 } } })
      support.raises("inputs expects shapes by name", ws.compile, ws, net, { inputs = 3 })
    end
    local net = neap.net "m"
    net:Relu(net:input("total", { 8, 4 }), "y")
    net:outputs { "y" }
    local ws <close> = neap.workspace { store = false }
    for rows = 8, 1, -3 do
      assert.are.same({ rows, 4 },
        ws:run(net, { total = neap.ones(rows, 4) }, { max_batch = 8 }).y.shape)
    end
  end)
  it("are kept by what is fed", function()
    local ws <close> = neap.workspace { store = false, total = "40KiB" }
    ws:feed("x", neap.ones(64, 64))
    local held = ws:held_bytes()
    local e = support.raises("its total is 40.0 KiB", ws.feed, ws, "y", neap.ones(128, 128))
    assert.is_true(e == nil or e.code == "budget")
    assert.are.equal(held, ws:held_bytes())
    assert.is_false(ws:has "y")
    ws:feed("x", neap.zeros(64, 64))
  end)
end)
