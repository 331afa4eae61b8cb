-- What plans, the zoo and net:gradient say: reasons for pairs of blobs, slips in options, gradients
-- of nothing.
local neap = require "neap"
local nn = neap.nn
local raises = require("support").raises

local function says(words, report)
  assert.is_truthy(tostring(report):find(words, 1, true),
    ("%q is not in %q"):format(words, tostring(report)))
end

local function lenet() return (neap.zoo.lenet()) end

describe("an op that reads one blob at two places", function()
  it("writes over it only where both are read element by element", function()
    -- Each element of what is scattered is read when others have been written already.
    local net = neap.net "twice"
    local h = net:Exp(net:input("x", { 6 }))
    local y = net:ScatterElements({ h, net:input("at", { 6 }, "i64"), h }, nil, { axis = 1 })
    net:outputs { net:Neg(y, "y") } -- an output has bytes of its own
    local x, want = neap.randn(6), {}
    for i, v in ipairs(x:exp():totable()) do want[7 - i] = -v end
    for _, o in ipairs { {}, { policy = "pool" }, { executor = "dag" }, { policy = "name" } } do
      local ws <close> = neap.workspace { store = false }
      ws:feed("x", x)
      ws:feed("at", neap.tensor({ 5, 4, 3, 2, 1, 0 }, "i64"))
      local program <close> = ws:compile(net, o)
      program:run()
      assert.are.same(want, ws:fetch("y"):totable())
    end
  end)
end)

describe("plan:why(a, b)", function()
  it("names the link where two blobs are the same bytes", function()
    local m = nn.Sequential { input = { 4 }, nn.Linear { 4, 3 }, nn.ReLU(), nn.Linear { 3, 2 } }
    local why = m:plan({ batch = 3, fuse = false }):why("relu1", "linear1")
    says("are the same bytes: relu1 overwrites an input", why)
    assert.is_true(why.together)
    assert.are.equal(2, #why)
  end)

  it("counts the life of a storage from its first blob, be it the very first of the net", function()
    local net = neap.net "drawn"
    net:Gaussian({}, "a", { shape = { 64 } })
    net:Tanh("a", "b")
    net:Gaussian({}, "c", { shape = { 64 } })
    net:outputs { net:Sum(net:Add { "b", "c" }, "s") }
    local plan = net:plan { store = false }
    says("a and b are the same bytes: b overwrites an input that is read for the last time \z
      here (in_place: a).", plan:why("a", "b"))
    says("b: 256 B at offset 0, needed in steps 1-5", plan:why("b", "c"))
  end)

  it("names, of several blobs that end together, the last one that took the bytes", function()
    local net = neap.net "views"
    net:Gaussian({}, "a", { shape = { 8, 8 } })
    net:Sum(
      net:MatMul({
        "a", net:Reshape(net:Reshape("a", "v", { shape = { 64 } }), "w", { shape = { 8, 8 } }),
      }, "m"), "t")
    net:Gaussian({}, "c", { shape = { 64 } })
    net:Gaussian({}, "d", { shape = { 64 } })
    net:outputs { net:Add { "t", net:Sum(net:Add { "c", "d" }) } }
    local partner = {}
    for _, value in ipairs(net:plan({ store = false }):values()) do
      partner[value.blob] = value.partner
    end
    assert.are.equal("w", partner.c)
    assert.are.equal("m", partner.d)
  end)

  it("says for every pair of a training plan whether they share, as their \z
      places do, and why", function()
    for _, executor in ipairs { "simple", "dag" } do
      local plan = lenet():plan { batch = 4, train = true, executor = executor }
      local values, counts = plan:values(), {}
      for i = 1, #values do
        for j = 1, i - 1 do
          local a, b = values[i], values[j]
          local why = plan:why(a.blob, b.blob)
          a, b = why[1], why[2] -- a name may stand for a later value than the row
          local share = a.storage_no == b.storage_no
            or a.region == "arena" and b.region == "arena" and a.bytes > 0 and b.bytes > 0
              and a.offset_bytes < b.offset_bytes + b.bytes
              and b.offset_bytes < a.offset_bytes + a.bytes
          local text = tostring(why)
          local kind = text:find("are the same bytes", 1, true) and "same"
            or text:find("takes bytes of", 1, true) and "reuse"
            or text:find("from run to run", 1, true) and "resident"
            or text:find("both are needed in step", 1, true) and "lives"
            or text:find("no path in the dag", 1, true) and "dag"
            or text:find("never live at once", 1, true) and "packing"
          assert.is_truthy(kind, text)
          assert.are.equal(share, kind == "same" or kind == "reuse", text)
          if kind == "lives" then
            assert.is_false(a.last_step < b.first_step and b.last_step < a.first_step, text)
          end
          counts[kind] = (counts[kind] or 0) + 1
        end
      end
      for _, kind in ipairs { "same", "reuse", "resident", "lives" } do
        assert.is_truthy(counts[kind], executor .. ": no pair is " .. kind)
      end
    end
  end)

  it("knows values that the library makes, and the nearest name of what \z
      it does not know", function()
    local plan = lenet():plan { batch = 64, train = true }
    raises("did you mean \"pool1\"?", plan.why, plan, "pool1", "pol1")
    for _, v in ipairs(plan:values()) do assert.are.equal(2, #plan:why("pool1", v.blob)) end
  end)
end)

describe("plan:explain(blob)", function()
  it("says what keeping a blob costs as planning with it kept does", function()
    local netfile = require "neap.net.file"
    local net = netfile.build(netfile.load "lenet:64", { train = true })
    local free = net:plan { store = false }
    for _, blob in ipairs { "conv1", "pool1", "conv2" } do
      local kept = net:plan { store = false, keep = { blob } }
      local function signed(n) return (n < 0 and "-" or "+") .. neap.bytes(math.abs(n)) end
      says(
        ("costs %s in all, planned again: the arena %s."):format(
          signed(kept.total_bytes - free.total_bytes), signed(kept.arena_bytes - free.arena_bytes)),
        free:explain(blob))
    end
  end)
end)

describe("what a plan would take without reuse", function()
  it("is of the same kernels, and never below the arena, whatever \z
      policy, budget or batch", function()
    for _, name in ipairs { "lenet", "mlp" } do
      for _, train in ipairs { true, false } do
        local function plan(o)
          o.batch, o.train, o.store = o.batch or 8, train, false
          return (neap.zoo[name]()):plan(o)
        end
        for _, o in ipairs {
          {}, { policy = "name" }, { policy = "none" }, { policy = "pool" }, { executor = "dag" },
          { engine = "ref" }, { layouts = "plain" },
          { batch = 1 }, { max_batch = 9 }, { in_place = false },
        } do
          local p, values, scratch = plan(o), 0, 0
          assert.is_true(p.arena_bytes <= p.baseline_bytes, tostring(p))
          for _, v in ipairs(p:_values()) do
            if v.region == "arena" then values = values + (v.bytes + 63) // 64 * 64 end
          end
          for _, op in ipairs(p:_ops()) do
            scratch = math.max(scratch, (op.scratch_bytes + 63) // 64 * 64)
          end
          assert.are.equal(math.max(values + scratch, p.arena_bytes), p.baseline_bytes)
        end
        local unplanned = plan { policy = "none" }
        assert.are.equal(unplanned.arena_bytes, unplanned.baseline_bytes)
        for _, policy in ipairs { "offset", "name", "pool" } do
          assert.are.equal(unplanned.arena_bytes, plan({ policy = policy }).baseline_bytes)
        end
      end
    end
  end)

  it("is told with what layouts' padding and scratch take of the peak", function()
    for _, layouts in ipairs { "plain", "free" } do
      local plan = lenet():plan { batch = 64, train = true, layouts = layouts, store = false }
      local padding, seen = 0, {}
      for _, v in ipairs(plan:_values()) do
        if v.region == "arena"
            and v.first_step <= plan.peak_step
            and plan.peak_step <= v.last_step
            and not seen[v.storage_no] then
          local n, size = 1, tonumber(v.dtype:match "%d+") // 8
          for d in tostring(v.shape):gmatch "%d+" do n = n * math.tointeger(tonumber(d)) end
          seen[v.storage_no], padding = true,
            padding + math.max(0, (v.bytes + 63) // 64 * 64 - (n * size + 63) // 64 * 64)
        end
      end
      local scratch = (plan:ops()[plan.peak_step].scratch_bytes + 63) // 64 * 64
      local text = require("neap.core").bytes_text
      says(
        ("of its peak %s are padding of layouts and %s scratch"):format(text(padding),
          text(scratch)), plan:explain())
      if layouts == "plain" then assert.are.equal(0, padding) end
    end
  end)

  it("does not count what a budget runs again", function()
    local model = nn.Sequential { input = { 16 } }
    for k = 1, 6 do
      model:add("block" .. k, nn.Sequential { nn.Linear { 16, 16 }, nn.Tanh(), nn.GELU() })
    end
    local function plan(budget)
      return model:plan { batch = 64, train = true, budget = budget, store = false }
    end
    local free = plan()
    local tight = plan(free.arena_bytes * 8 // 10)
    assert.is_true(tight.n_recomputed > 0)
    assert.are.equal(free.baseline_bytes, tight.baseline_bytes)
    raises("least arena", model.plan, model, {
      batch = 64,
      train = true,
      budget = free.arena_bytes * 8 // 10,
      recompute = false,
      store = false,
    })
  end)
end)

describe("slips", function()
  it("in the fields of m:plan, m:forecast and m:summary name the nearest of all \z
      fields they take", function()
    local m = nn.Sequential { input = { 4 }, nn.Linear { 4, 3 } }
    raises("m:plan: unknown field \"bach\", did you mean \"batch\"?", m.plan, m, { bach = 3 })
    raises("m:plan: unknown field \"budgt\", did you mean \"budget\"?", m.plan, m,
      { batch = 3, budgt = 3 })
    raises("m:forecast: unknown field \"polcy\", did you mean \"policy\"?", m.forecast, m,
      { polcy = "none" })
    raises("m:summary: unknown field \"btch\", did you mean \"batch\"?", m.summary, m, { btch = 3 })
  end)

  it("in the options of net:plan name the nearest option or input", function()
    local net = neap.net "slip"
    net:Relu(net:input("picture", { 4 }), "y")
    raises("did you mean \"picture\"?", net.plan, net, { pictur = { 8 } })
    raises("did you mean \"engine\"?", net.plan, net, { enginee = "ref" })
  end)
end)

describe("net:gradient", function()
  local function build(wrt, allow_unused)
    local net = neap.net "unused"
    local x, z = net:input("x", { 4 }), net:input("z", { 4 })
    local loss = net:Sum(x * net:StopGradient(z, "stopped"), "loss")
    local grads = net:gradient(loss, { wrt = wrt, allow_unused = allow_unused })
    if grads[z] then net:Copy(grads[z], "dz") end
    return net
  end

  it("by a blob that the loss does not depend on is an error that names it, unless \z
      zeros are asked for", function()
    local err = raises("\"loss\" does not depend on \"z\"", function()
      build({ "x", "z" }):check()
    end)
    assert.are.equal("graph", err.code)
    assert.is_truthy(err.line:find "plan_spec.lua")
    assert.is_true(build({ "x" }):check())
    local ws <close> = neap.workspace { store = false }
    local out = ws:run(build({ "x", "z" }, true), { x = neap.ones(4), z = neap.ones(4) })
    assert.is_true(out.dz:equal(neap.zeros(4)))
    raises("did you mean \"wrt\"?", neap.net("w").gradient, build { "x" }, "loss",
      { wtr = { "x" } })
  end)
end)

describe("neap.zoo", function()
  it("names its nets; each is a function that builds the model", function()
    local names = neap.zoo.names()
    assert.is_true(#names >= 6)
    local model, file = neap.zoo.lenet { classes = 7 }
    assert.are.equal(64, file.batch)
    assert.are.equal("(1,7)", model:summary()[#model:summary()].output)
    for _, name in ipairs(names) do assert.are.equal("function", type(neap.zoo[name])) end
  end)

  it("refuses options that a net does not read, and names the nearest net", function()
    raises("neap.zoo.lenet: unknown field \"clases\", did you mean \"classes\"?", neap.zoo.lenet,
      { clases = 7 })
    raises("neap.zoo.resnet50: depth expects 18, 34, 50, 101 or 152, got 51", neap.zoo.resnet50,
      { depth = 51 })
    raises("did you mean \"lenet\"?", function() return neap.zoo.lennet end)
  end)
end)

describe("a plan", function()
  it("names the method that was meant, and has no figure that is not one", function()
    local net = neap.net "bare"
    net:outputs { net:input("x", { 4, 3 }):relu() }
    local plan = net:plan { store = false }
    local ok, message = pcall(function() return plan:explan() end)
    assert.is_false(ok)
    assert.matches('a plan has no "explan", did you mean "explain"%?', tostring(message))
    assert.is_true(plan.plan_id == nil or plan.plan_id == 0)
    assert.is_nil(tostring(plan:explain()):find("planned in 0.0", 1, true))
  end)
end)

describe("v_layer", function()
  it("has a row per op of a net without scopes, whose bytes add up", function()
    local path = os.tmpname()
    os.remove(path)
    local db <close> = neap.db(path)
    neap.use_db(db)
    local net = neap.net "bare"
    net:Sum(net:Relu(net:FC({ net:input("x", { 4, 3 }), net:param("w", { 5, 3 }) }, "h"), "r"),
      "loss")
    net:gradient "loss"
    net:plan()
    local by_layer, sum = {}, 0
    for _, row in ipairs(db:sql "select layer, bytes, parameter_bytes from v_layer where newest") do
      by_layer[row.layer], sum = row, sum + row.bytes
    end
    local all = db:sql("select sum(bytes) as n from plan_value where value_no = storage_no")[1].n
    neap.use_db(false)
    assert.are.equal(60, by_layer.fc_1.parameter_bytes)
    assert.is_truthy(by_layer.relu_1 and by_layer.sum_1)
    assert.are.equal(all, sum)
    for _, suffix in ipairs { "", "-wal", "-shm" } do os.remove(path .. suffix) end
  end)
end)
