-- Refused memory at every entry of the Lua surface: the n-th allocation fails, then the one after,
-- until the call passes. Each failure must be an error object with code "memory", change nothing,
-- and leak nothing.
local neap = require "neap"
local core = require "neap.core"
local settle = require("support").settle

--- Calls make() for fresh arguments and then f(...) with the n-th allocation (and, when `persist`,
-- all later ones) refused, for n = 1, 2, .. until f passes without a refusal. Then counts what is
-- left over.
local function sweep(persist, make, f, check)
  settle()
  local live
  for n = 1, 5000 do
    local args = table.pack(make())
    core.fail_nth(n, persist)
    local ok, err = pcall(f, table.unpack(args, 1, args.n))
    local failed = core.failed()
    core.fail_nth(0)
    if not ok then
      assert.are.equal("memory", type(err) == "table" and err.code or tostring(err))
      if check then check(table.unpack(args, 1, args.n)) end
    end
    args, err = nil, nil -- luacheck: ignore
    settle()
    -- Interned names and caches of kernels stay; they must not grow by more than a little per
    -- failure.
    local now = core.memory().held
    if live == nil then live = now end
    assert.is_true(now <= live + 65536,
      ("%d bytes of tensors were left at allocation %d"):format(now - live, n))
    if ok and not failed then
      assert.is_true(n > 2, "nothing was refused on the way")
      return n
    end
  end
  error "the call never passed"
end

local function small_net()
  local net = neap.net "f"
  local x, t = net:input("x", { 4, 3 }), net:input("t", { 4 }, "i64")
  local h =
    net:FC({ x, net:param("w", { 5, 3 }, neap.init.xavier {}), net:param("b", { 5 }) }, "h"):relu()
  local loss = net:SoftmaxCrossEntropy({ h, t }, "loss")
  return net, loss
end

local function trained_net()
  local net, loss = small_net()
  neap.optim.SGD { lr = 0.1, momentum = 0.9 }:apply(net, net:gradient(loss))
  net:outputs { loss }
  return net
end

local function nothing() end

for _, persist in ipairs { false, true } do
  describe("refused memory" .. (persist and ", and all after it" or ""), function()
    it("in making and indexing tensors", function()
      sweep(persist, function() return neap.arange(12):view(3, 4) end, function(x)
        local y = neap.zeros(3, 4)
        y[{ {}, { 1, 2 } }] = x[{ {}, { 3, 4 } }]
        y[y:gt(3)] = 0
        return x:transpose(1, 2):reshape(-1):to("i64"):clone()
      end, function(x) assert.are.equal(66, x:sum():item()) end)
    end)

    it("in eager ops", function()
      local x = neap.ones(3, 4)
      sweep(persist, nothing, function() return (x * 2 + 1):softmax({ axis = 1 }):sum() end)
      assert.is_true(x:equal(neap.ones(3, 4)))
    end)

    it("in one op on blobs, which stay as they were", function()
      local function ready()
        local ws = neap.workspace { store = false }
        ws:feed("a", neap.tensor { 3, 1, 2 })
        return ws
      end
      sweep(persist, ready, function(ws)
        ws:run_op("Split", "a", { "a", "i" }, { axis = 1, sizes = { 2, 1 } })
      end, function(ws)
        assert.are.same({ 3, 1, 2 }, ws:fetch("a"):totable())
        assert.is_false(ws:has "i")
      end)
    end)

    it("in building a net, which stays as it was", function()
      sweep(persist, nothing, small_net)
      local text
      sweep(persist, function()
        local net, loss = small_net()
        text = net:text()
        return net, loss
      end, function(net, loss)
        net:Relu(loss, "out", nil)
      end, function(net) assert.are.equal(text, net:text()) end)
      sweep(persist, small_net, function(net, loss) return net:gradient(loss) end,
        function(net) assert.are.equal(text, net:text()) end)
    end)

    it("in text, hash, clone, plan", function()
      local net = trained_net()
      local text = net:text()
      sweep(persist, nothing, function()
        return neap.net_from(net:text()), net:clone(), net:hash()
      end)
      sweep(persist, nothing, function() return net:plan { policy = "offset" } end)
      sweep(persist, nothing, function() return net:expand {} end)
      assert.are.equal(text, net:text())
    end)

    it("in dry runs and counts by class", function()
      local net = trained_net()
      sweep(persist, nothing, function()
        return net:dry_run { store = false, mem_param = { exclude_blob = { "h", "loss.diff" } } }
      end)
      sweep(persist, nothing, function() return net:_count { store = false } end)
    end)

    it("in pictures", function()
      local net = trained_net()
      local plan, ws <close> = net:plan { store = false }, neap.workspace { store = false }
      local program <close> = ws:compile(net)
      local dot, svg = plan:dot(), plan:svg()
      sweep(persist, nothing, function() return net:dot() end)
      sweep(persist, nothing, function() assert.are.equal(dot, plan:dot()) end)
      sweep(persist, nothing, function() assert.are.equal(svg, plan:svg()) end)
      sweep(persist, nothing, function() return ws:picture(), program end)
      local path = os.tmpname()
      sweep(persist, nothing, function() assert.is_true(ws:picture(path)) end)
      os.remove(path)
    end)

    it("in making gradients again that were given back, which changes no parameter", function()
      local net = trained_net()
      neap.seed(1)
      local feeds = { x = neap.randn(4, 3), t = neap.tensor({ 0, 1, 2, 3 }, "i64"), lr = 0.1 }
      local before
      sweep(persist, function()
        local ws = neap.workspace { seed = 1, store = false }
        local program = ws:compile(net, { store = false })
        for name, value in pairs(feeds) do
          ws:feed(name, type(value) == "number" and neap.tensor(value) or value)
        end
        program:run()
        ws:drop_gradients()
        before = ws:fetch "w"
        return ws, program
      end, function(_, program) program:run() end, function(ws, program)
        assert.is_true(before:equal(ws:fetch "w"))
        program:close()
        ws:close()
      end)
    end)

    it("in running, which changes no parameter", function()
      local net = trained_net()
      neap.seed(1)
      local feeds = { x = neap.randn(4, 3), t = neap.tensor({ 0, 1, 2, 3 }, "i64"), lr = 0.1 }
      sweep(persist, function() return neap.workspace { seed = 1, store = false } end, function(ws)
        ws:run(net, feeds)
        ws:close()
      end)
      local before
      sweep(persist, function()
        local ws = neap.workspace { seed = 1, store = false }
        ws:init(net)
        before = ws:fetch "w"
        return ws
      end, function(ws) ws:compile(net, { store = false }):close() end, function(ws)
        assert.is_true(before:equal(ws:fetch "w"))
        ws:close()
      end)
    end)

    it("in stepping layer by layer, and in caches", function()
      local nn = neap.nn
      local model = nn.Sequential {
        input = { 3 }, seed = 2,
        nn.Linear { 3, 4 }, nn.BatchNorm1d { 4 }, nn.Dropout { 0.5 }, nn.Linear { 4, 2 },
      }
      local memory, x, dy = model:memory(), neap.ones(5, 3), neap.ones(5, 2)
      local function step()
        memory:forward(x)
        return memory:backward(dy)
      end
      step()
      sweep(persist, nothing, step, function() assert.are.same({ 5, 3 }, step().shape) end)
      sweep(persist, function()
        memory:free()
        return memory
      end, step, function() assert.are.same({ 5, 3 }, step().shape) end)
      local held = neap.ones(2)
      sweep(persist, function() return neap.cache "a" end, function(cache)
        for k = 1, 9 do cache:push(held, "t" .. k) end
        return cache:pop "t9"
      end, function(cache)
        local n = #cache
        cache:push(held, "again")
        assert.are.equal(n + 1, #cache)
      end)
    end)

    it("in subnets, which leave no half of an op", function()
      local text
      sweep(persist, function()
        local net = small_net()
        net:input("c", {}, "bool")
        text = net:text()
        return net
      end, function(net)
        net:If("c", function(b) return b:Relu "x" end, function(b) return b:Neg "x" end)
        net:While {
          init = { "x" },
          max = 3,
          cond = function(_, x) return x:sum():lt(3) end,
          body = function(_, x) return x + 1 end,
        }
        net:Recurrent {
          seq = { "x" }, init = { 0 }, step = function(_, h, x) return h + x:sum(), h end,
        }
      end, function(net) assert.are.equal(1, (net:text():find(text, 1, true))) end)
    end)

    it("in memonger", function()
      local net, memonger = small_net(), neap.memonger
      local text = net:text()
      sweep(persist, nothing, function()
        return memonger.optimize_net(net, { dont_share = { "h" } })
      end)
      sweep(persist, nothing, function() return memonger.estimate_memory_usage({ net }, {}) end)
      sweep(persist, nothing, function() return memonger.release_blobs_when_used(net, { "h" }) end)
      assert.are.equal(text, net:text())
    end)

    it("in single runs, trees of steps, ranges and scopes, which leave no blobs", function()
      local net = small_net()
      local blobs
      local function ready()
        local ws = neap.workspace { seed = 1, store = false }
        ws:feed("x", neap.ones(4, 3))
        ws:feed("t", neap.tensor({ 0, 1, 2, 0 }, "i64"))
        blobs = #ws:_blobs()
        return ws
      end
      local function unchanged(ws) assert.are.equal(blobs, #ws:_blobs()) end
      sweep(persist, ready, function(ws) ws:run_once(net, { store = false }) end, unchanged)
      sweep(persist, ready, function(ws)
        ws:run_steps({ { net, iterations = 2 }, { net, create_workspace = true } },
          { store = false })
      end, unchanged)
      sweep(persist, ready, function(ws)
        ws:compile_within(net, core.new_range(net, {}), { store = false })
      end, unchanged)
      sweep(persist, ready, function(ws) ws:create_scope("s"):_push(ws, { inner = "x" }) end)
      sweep(persist, ready, function(ws) ws:assign({ "x" }, neap.bank { "fast", bytes = 4096 }) end,
        unchanged)
    end)

    it("in looking for the batch that fits", function()
      local net = small_net()
      sweep(persist, nothing, function()
        return neap.fit_batch(net, { total = "4KiB", max = 2 })
      end)
    end)

    it("in exports and imports", function()
      local name = os.tmpname()
      local path, x = name .. ".safetensors", neap.ones(2, 3)
      local model = neap.nn.Sequential {
        input = { 3 }, seed = 2, neap.nn.Linear { 3, 4 }, neap.nn.ReLU(),
      }
      local function raised(ok, message, code)
        if not ok then error(core.error { code = code, message = message }) end
        return ok
      end
      local want = model:eval()(x)
      sweep(persist, nothing, function() return raised(neap.export(model, path)) end,
        function() assert.is_true(want:equal(model(x))) end)
      sweep(persist, nothing, function() return raised(neap.import(path))(x) end)
      assert.is_true(want:equal(assert(neap.import(path))(x)))
      os.remove(path)
      os.remove(name)
    end)

    it("in files", function()
      local path = os.tmpname()
      local x = neap.ones(3)
      for _, ending in ipairs { ".npy", ".npz", ".safetensors" } do
        sweep(persist, nothing, function()
          local ok, message, code = neap.save(path .. ending, ending == ".npy" and x or { x = x })
          if not ok then error(core.error { code = code, message = message }) end
          local back
          back, message, code = neap.load(path .. ending)
          if not back then error(core.error { code = code, message = message }) end
        end)
        os.remove(path .. ending)
      end
      os.remove(path)
    end)
  end)
end
