-- Point 8, mem_param: Caffe's words for memory options, translated into policy and keep.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local support = require "support"
local raises, settle, batch = support.raises, support.settle, support.batch

local memory = { store = false }
local function with(o)
  for key, value in pairs(memory) do o[key] = value end
  return o
end

--- x -> fc1 -> relu1 -> fc2 -> relu2 -> fc3 -> loss; training when asked.
local function chain(train, name)
  local net = neap.net(name or "chain")
  net:input("x", { 16, 8 })
  net:input("y", { 16 }, "i64")
  local width = { 8, 24, 24, 4 }
  local top = "x"
  for k = 1, 3 do
    net:param("w" .. k, { width[k + 1], width[k] }, neap.init.normal { std = 0.4 })
    net:FC({ top, "w" .. k }, "fc" .. k)
    top = "fc" .. k
    if k < 3 then
      net:Relu(top, "relu" .. k)
      top = "relu" .. k
    end
  end
  local loss = net:SoftmaxCrossEntropy({ top, "y" }, "loss")
  local gradients
  if train then gradients = net:gradient(loss) end
  net:outputs { "loss" }
  return net, gradients
end

local function fill(ws)
  local x, y = batch({ 16, 8 }, 4, 0.3)
  ws:feed("x", x)
  ws:feed("y", y)
end

--- Runs a net once; f(ws) looks.
local function run(net, options, f)
  local ws <close> = neap.workspace { seed = 4, store = false }
  ws:poison(true)
  ws:init(net)
  fill(ws)
  local program <close> = ws:compile(net, with(options))
  program:run()
  return f(ws, program)
end

describe("mem_param", function()
  it("has Caffe's defaults: training is planned, testing is not", function()
    local param = neap.mem_param {}
    assert.is_true(param.optimize_train)
    assert.is_false(param.optimize_test)
    assert.is_false(param.debug_info)
    assert.are.equal("offset", (chain(true)):plan(with { mem_param = {} }).policy)
    assert.are.equal("none", (chain(false)):plan(with { mem_param = {} }).policy)
    assert.are.equal("offset",
      (chain(false)):plan(with { mem_param = { optimize_test = true } }).policy)
    assert.are.equal("none",
      (chain(true)):plan(with { mem_param = { optimize_train = false } }).policy)
  end)

  it("switches planning off with debug_info", function()
    local net = chain(true)
    assert.are.equal("none", net:plan(with { mem_param = { debug_info = true } }).policy)
    run(net, { mem_param = { debug_info = true } }, function(ws)
      for _, name in ipairs { "fc1", "relu1", "fc2", "relu2", "fc3" } do
        assert.are.same({ 16, name == "fc3" and 4 or 24 }, ws:fetch(name).shape)
      end
    end)
  end)

  it("is translated into the existing options: the plan is the one that \z
      policy and keep give", function()
    local net = chain(true)
    local a = net:plan(with { mem_param = { exclude_blob = { "fc1", "relu2.grad" } } })
    local b = net:plan(with { keep = { "loss", "loss.grad", "fc1", "fc1.grad", "relu2.grad" } })
    assert.are.equal(b.key, a.key)
  end)

  it("says what is wrong with unknown fields, blobs and types", function()
    raises("did you mean \"optimize_train\"", neap.mem_param, { optimise_train = true })
    raises("exclude_blob expects names", neap.mem_param, { exclude_blob = { 3 } })
    raises("optimize_test expects true or false", neap.mem_param, { optimize_test = 1 })
    local net = chain(true)
    local err = raises("has no blob \"relu11\"", net.plan, net,
      with { mem_param = { exclude_blob = { "relu11" } } })
    assert.are.equal("name", err.code)
    assert.is_truthy(tostring(err):find("did you mean \"relu1\"", 1, true))
    raises("give one of them", net.plan, net, with { policy = "none", mem_param = {} })
  end)

  it("lets excluded blobs be fetched, data and diff, with the bytes of \z
      the unplanned run", function()
    for _, executor in ipairs { "simple", "dag" } do
      local names = { "fc1", "relu1", "fc2", "relu2", "fc3" }
      local keys = {}
      for _, name in ipairs(names) do
        keys[#keys + 1] = name
        keys[#keys + 1] = name .. ".grad"
      end
      local net, want = chain(true), {}
      run(net, { policy = "none", keep = keys, executor = executor, threads = 1 }, function(ws)
        for _, key in ipairs(keys) do want[key] = ws:fetch(key) end
      end)
      for _, name in ipairs(names) do
        run(net, { mem_param = { exclude_blob = name }, executor = executor, threads = 1 },
          function(ws)
            assert.is_true(ws:fetch(name):equal(want[name]), name)
            assert.is_true(ws:fetch(name .. ".grad"):equal(want[name .. ".grad"]), name .. ".grad")
            assert.is_true(want[name .. ".grad"]:stats().max > 0)
          end)
      end
    end
  end)

  it("keeps data and diff of a blob as separate keys", function()
    local net = chain(true)
    local both = net:plan(with { mem_param = { exclude_blob = { "fc2" } } })
    local data = net:plan(with { mem_param = { exclude_blob = { "fc2.data" } } })
    local diff = net:plan(with { mem_param = { exclude_blob = { "fc2.diff" } } })
    local function region(plan, name) return plan:explain(name)[1].region end
    assert.are.equal("io", region(both, "fc2"))
    assert.are.equal("io", region(both, "fc2.grad"))
    assert.are.equal("io", region(data, "fc2"))
    assert.are.equal("arena", region(diff, "fc2"))
    assert.are.equal("io", region(diff, "fc2.grad"))
    assert.are.equal(2 * (data.regions.io - (net:plan(with { mem_param = {} })).regions.io),
      both.regions.io - (net:plan(with { mem_param = {} })).regions.io)
  end)

  it("excludes by itself: net inputs, net outputs, tops of layers without \z
      bottoms, and every loss", function()
    local net = chain(true)
    net:op("Constant", {}, { "offset" }, { shape = { 16, 24 }, value = 2 })
    net:Add({ "relu1", "offset" }, "shifted")
    net:Sum("shifted", "side")
    net:outputs { "loss", "side" }
    run(net, { mem_param = {} }, function(ws, program)
      for _, name in ipairs { "x", "y", "loss", "side", "offset", "loss.grad" } do
        assert.is_not_nil(ws:fetch(name), name)
      end
      assert.are.equal(2, ws:fetch("offset")[{ 1, 1 }])
      assert.is_true(program.plan:verify())
    end)
    -- What no rewrite can fold, read early and followed by much that would take its bytes: only the
    -- rule keeps it.
    local drawn = neap.net "drawn"
    drawn:Uniform({}, { "noise" }, { shape = { 16, 24 } })
    local at = drawn:Tanh("noise", "h1")
    for i = 2, 6 do at = drawn:Relu(drawn:Exp(at), "h" .. i) end
    drawn:Sum(at, "total")
    drawn:outputs { "total" }
    for _, executor in ipairs { "simple", "dag" } do
      run(drawn, { mem_param = { optimize_test = true }, executor = executor },
        function(ws, program)
          assert.are.equal("io", program.plan:explain("noise")[1].region)
          assert.are_not.equal("io", program.plan:explain("h1")[1].region)
          local noise = ws:fetch "noise"
          assert.is_true(noise:stats().max > 0.9 and noise:stats().min < 0.1)
        end)
    end
  end)

  it("refuses other blobs with a message that names the new owner and the fix", function()
    for _, executor in ipairs { "simple", "dag" } do
      run(chain(true), { mem_param = {}, executor = executor }, function(ws)
        local taken = 0
        for _, name in ipairs {
          "fc1", "relu1", "fc2", "relu2", "fc3", "fc1.grad", "relu1.grad", "fc2.grad", "relu2.grad",
          "fc3.grad",
        } do
          local ok, err = pcall(ws.fetch, ws, name)
          if not ok then
            taken = taken + 1
            assert.are.equal("released", err.code)
            assert.is_truthy(
              err.message:find("belong to", 1, true)
                or err.message:find("scratch", 1, true)
                or err.message:find("value between two ops", 1, true), err.message)
            assert.is_truthy(err.message:find("ws:keep \"" .. name .. "\"", 1, true), err.message)
            assert.is_truthy(err.hint:find("exclude_blob", 1, true), err.hint)
          end
        end
        assert.is_true(taken >= 5, "sharing has taken bytes")
      end)
    end
  end)

  it("shares through split and reshape, one after the other (cascaded sharing)", function()
    local function build(train)
      local net = neap.net "cascade"
      net:input("x", { 4, 6 })
      net:param("w", { 6, 6 }, neap.init.normal { std = 0.5 })
      net:FC({ "x", "w" }, "a")
      net:Alias("a", "b") -- a split: two names, one storage
      net:Reshape("b", "c", { shape = { 2, 12 } })
      net:Relu("c", "d")
      net:Reshape("a", "e", { shape = { 24 } })
      net:Tanh("e", "f")
      net:Sum("d", "s1")
      net:Sum("f", "s2")
      net:Add({ "s1", "s2" }, "loss")
      if train then net:gradient "loss" end
      net:outputs { "loss" }
      return net
    end
    for _, train in ipairs { false, true } do
      local net = build(train)
      local param = { optimize_test = true }
      local plan = net:plan(with { mem_param = param })
      local storage = {}
      for _, row in ipairs(plan:values()) do
        storage[row.blob] = storage[row.blob] or row.storage_no
      end
      assert.are.equal(storage.a, storage.b)
      assert.are.equal(storage.a, storage.c)
      assert.are.equal(storage.a, storage.e)
      for _, executor in ipairs { "simple", "dag" } do
        assert.is_true(neap.check.plan(net, { executor = executor, poison = true }).same)
      end
    end
  end)

  it("gives a zero diff to a blob that nothing is propagated to", function()
    local net = neap.net "stopped"
    net:input("x", { 4, 6 })
    net:param("w", { 6, 6 }, neap.init.normal { std = 0.5 })
    net:param("v", { 6, 6 }, neap.init.normal { std = 0.5 })
    net:FC({ "x", "w" }, "a")
    net:StopGradient("a", "b")
    net:FC({ "b", "v" }, "c")
    net:Sum("c", "loss")
    net:gradient "loss"
    net:outputs { "loss" }
    local ws <close> = neap.workspace { seed = 4, store = false }
    ws:poison(true)
    ws:init(net)
    local program <close> = ws:compile(net, with {
      mem_param = { exclude_blob = { "x", "a", "b", "c" } },
    })
    for k = 1, 2 do -- the second run finds what the first has left
      ws:feed("x", neap.full { 4, 6, value = k })
      program:run()
      for _, name in ipairs { "x", "a" } do -- it stops between b and a
        local s = ws:fetch(name .. ".grad"):stats()
        assert.are.equal(0, s.min)
        assert.are.equal(0, s.max)
        assert.are.equal(0, s.nan)
      end
      assert.are.equal(1, ws:fetch("c.grad"):stats().min)
      assert.are.equal(0, ws:fetch("w_grad"):stats().max)
    end
  end)

  it("logs a dry run: raw against planned by layer, blob and slot, with \z
      nothing allocated", function()
    local net = chain(true)
    settle()
    local held = neap.memory().held
    local log = net:dry_run(with { mem_param = { exclude_blob = { "relu1" } } })
    assert.are.equal(held, neap.memory().held)
    -- x, fc1, relu1, fc2, relu2, fc3, loss: floats, data and diff; y: labels, data alone. The
    -- gradients of parameters are no blobs.
    local float = 4 * (16 * 8 + 4 * 16 * 24 + 16 * 4 + 1)
    assert.are.equal(float + 16 * 8, log.raw_data_bytes)
    assert.are.equal(float, log.raw_diff_bytes)
    assert.are.equal(log.raw_data_bytes + log.raw_diff_bytes, log.raw_bytes)
    assert.is_true(log.planned_bytes < log.raw_bytes)
    assert.are.equal(log.plan.arena_bytes, log.arena_bytes)
    local keys = {}
    for _, row in ipairs(log) do keys[row.blob .. " " .. row.key] = row end
    assert.are.equal("io", keys["relu1 data"].slot)
    assert.are.equal("io", keys["relu1 diff"].slot)
    assert.is_truthy(keys["fc2 diff"].slot:match "^slot %d+$")
    local layers = 0
    for _, row in ipairs(log.layers) do layers = layers + row.raw_bytes end
    assert.are.equal(log.raw_bytes, layers)
    local top = 0
    for _, row in ipairs(log.slots) do top = math.max(top, row.offset_bytes + row.bytes) end
    assert.is_true(top <= log.arena_bytes)
    assert.is_truthy(tostring(log):find("raw", 1, true))
  end)

  it("logs that nothing is saved where there is nothing", function()
    local net = neap.net "empty"
    net:outputs { net:Exp(net:input("x", { 0, 3 }), "y") }
    assert.are.equal(0, net:dry_run(with { mem_param = {} }).saved)
  end)

  it("is taken by ws:run, workspaces, models and trainers alike", function()
    local net = chain(false)
    local ws <close> = neap.workspace { seed = 4, store = false }
    ws:init(net)
    fill(ws)
    ws:run(net, {}, { mem_param = { optimize_test = true, exclude_blob = { "relu1" } } })
    assert.are.same({ 16, 24 }, ws:fetch("relu1").shape)
    raises("exclude_blob", ws.fetch, ws, "fc1")
    local shared <close> = neap.workspace {
      seed = 4, store = false, mem_param = { optimize_test = true },
    }
    shared:init(net)
    fill(shared)
    shared:run(net, {})
    raises("exclude_blob", shared.fetch, shared, "fc1")
    local function model()
      return nn.Sequential {
        input = { 8 }, seed = 2, nn.Linear { 8, 24 }, nn.ReLU(), nn.Linear { 24, 4 },
      }
    end
    assert.are.equal("none", model():plan(with { batch = 4, mem_param = {} }).policy)
    assert.are.equal("offset", model():plan(with{ batch = 4, train = true, mem_param = {} }).policy)
    assert.is_true(model():dry_run(with { batch = 4, train = true }).planned_bytes > 0)
    local t <close> = neap.trainer { model = model(), optimizer = optim.SGD { lr = 0.1 },
      mem_param = { exclude_blob = { "relu1" } }, memory = { store = false } }
    t:step { x = neap.rand(6, 8), y = neap.zeros { 6, dtype = "i64" } }
    assert.are.equal("offset", t:plan(6).policy)
    assert.are.same({ 6, 24 }, t.ws:fetch("relu1").shape)
    assert.are.same({ 6, 24 }, t.ws:fetch("relu1.grad").shape)
  end)

  it("holds for every batch of a range, and two ranges of one net do not \z
      mix their blobs up", function()
    local net = chain(false)
    local ws <close> = neap.workspace { seed = 4, store = false }
    ws:init(net)
    fill(ws)
    for _, name in ipairs { "fc1", "relu2" } do
      local memory = with {
        max_batch = 32, mem_param = { optimize_test = true, exclude_blob = { name } },
      }
      local program <close> = ws:compile(net, memory)
      program:run()
      assert.are.same({ 16, 24 }, ws:fetch(name).shape)
    end
    local ranges = require "neap.memory.range"
    local function key(param) return ranges.key(net, { mem_param = neap.mem_param(param) }, 32) end
    assert.are.equal(key { exclude_blob = "fc1" }, key { exclude_blob = { "fc1" } })
    assert.are_not.equal(key { exclude_blob = "fc1" }, key { exclude_blob = "fc2" })
    assert.are_not.equal(key {}, key { optimize_test = true })
  end)

  it("holds in training by micro-batches: excluded blobs are those of the micro-batch", function()
    local one = { x = neap.rand(12, 8), y = neap.zeros { 12, dtype = "i64" } }
    for _, micro in ipairs { 4, "fit" } do
      local model = nn.Sequential {
        input = { 8 }, seed = 2, nn.Linear { 8, 24 }, nn.ReLU(), nn.Linear { 24, 4 },
      }
      local t <close> = neap.trainer {
        model = model, optimizer = optim.SGD { lr = 0.1, momentum = 0.9 }, micro = micro,
        mem_param = { optimize_test = true, exclude_blob = { "relu1" } },
        memory = { store = false, total = micro == "fit" and "60KiB" or nil },
      }
      t:step(one)
      local rows = micro == "fit" and t.micro_fit or micro
      assert.are.same({ rows, 24 }, t.ws:fetch("relu1").shape)
    end
  end)

  it("has nothing to switch off where bytes are given back as soon as \z
      they have been read", function()
    local dynamic = with { executor = "dynamic", mem_param = {} }
    raises("switches planning off", (chain(false)).plan, chain(false), dynamic)
    local plan = (chain(true)):plan(with {
      executor = "dynamic", mem_param = { exclude_blob = { "relu1.data" } },
    })
    assert.are.equal("pool", plan.policy)
    assert.are.equal("io", plan:explain("relu1")[1].region)
  end)

  it("finds the loss behind a check that it is finite, even one in place", function()
    local net = chain(false)
    net:op("CheckFinite", { "loss" }, { "loss" }, {})
    net:gradient "loss"
    net:outputs { "fc3" }
    run(net, { mem_param = {} }, function(ws) assert.are.equal(1, ws:fetch("loss"):n_element()) end)
  end)

  it("never recycles a loss, whichever of them a gradient is taken of", function()
    local net = chain(false)
    net:input("target", { 16, 24 })
    net:MseLoss({ "relu1", "target" }, "aux1") -- a term of the total
    net:L1Loss({ "relu2", "target" }, "aux2") -- of no gradient
    net:Mul({ "relu2", "relu2" }, "square")
    net:Mean("square", "custom") -- a term by one's own hand
    net:Add({ "loss", "aux1" }, "part")
    net:Mul({ "custom", net:const(0.01) }, "weighted")
    net:Add({ "part", "weighted" }, "total")
    net:CheckFinite({ "total" }, "total")
    net:Add({ "aux2", "aux2" }, "report")
    net:gradient "total"
    net:outputs { "report" }
    local losses = { "loss", "aux1", "aux2", "custom", "part", "weighted", "total" }
    for name, one in pairs {
      ["as written"] = net, expanded = net:clone():outputs({ "report", "total" }):expand {},
    } do
      local plan = one:plan(with { mem_param = {} })
      for _, loss in ipairs(name == "expanded" and { "loss", "aux1", "aux2" } or losses) do
        assert.are.equal("io", plan:explain(loss)[1].region, name .. ": " .. loss)
      end
      assert.are.equal("arena", plan:explain("square")[1].region)
    end
    local function ready(ws)
      ws:init(net)
      fill(ws)
      ws:feed("target", neap.full { 16, 24, value = 0.5 })
    end
    local want = {}
    for _, options in ipairs { { policy = "none", keep = losses }, { mem_param = {} } } do
      local ws <close> = neap.workspace { seed = 4, store = false }
      ws:poison(options.mem_param ~= nil)
      ready(ws)
      ws:run(net, {}, with(options))
      for _, loss in ipairs(losses) do
        want[loss] = want[loss] or ws:fetch(loss)
        assert.is_true(ws:fetch(loss):equal(want[loss]), loss)
      end
      if options.mem_param then
        for _, loss in ipairs { "loss", "custom" } do
          assert.are.equal(1, ws:fetch(loss .. ".grad"):n_element(), loss)
        end
      end
    end
  end)

  it("never recycles a term of the loss, be it the very first value", function()
    local net = neap.net "terms"
    net:input("x", { 16, 8 })
    net:Sum("x", "first")
    net:Sum(net:Exp(net:Mul { "x", net:param("w", { 8 }, 1) }), "second")
    net:gradient(net:Add({ "first", "second" }, "loss"))
    net:outputs "loss"
    local ws <close> = neap.workspace { seed = 4, store = false }
    ws:init(net)
    ws:feed("x", neap.ones(16, 8))
    local program <close> = ws:compile(net, { mem_param = {} })
    program:run()
    assert.are.equal(128, ws:fetch("first"):item())
    assert.is_true(ws:fetch("second"):item() > 300)
  end)

  it("recycles what an op makes beside a term of the loss", function()
    local net = neap.net "beside"
    net:input("x", { 16, 2 })
    net:Split(
      net:Mean(net:Mul { "x", net:param("w", { 2 }, 1) }, "m", { axes = { 1 }, keepdim = true }),
      { "left", "right" }, { axis = 2 })
    net:gradient(net:Sum("right", "loss"))
    net:outputs { net:Exp "left" }
    local plan = net:plan { mem_param = {}, store = false }
    assert.are.equal("io", plan:explain("right")[1].region)
    assert.are.equal("arena", plan:explain("left")[1].region)
  end)

  it("stands in a net file, and holds wherever the file is planned or run", function()
    local netfile, bench = require "neap.net.file", require "neap.bench"
    local path = os.tmpname()
    local function load_file(param)
      local file <close> = assert(io.open(path .. ".lua", "w"))
      file:write(([[
local nn = require("neap").nn
return { batch = 4, name = "filed", mem_param = %s,
  model = nn.Sequential {
    input = { 8 }, seed = 2, nn.Linear { 8, 24 }, nn.ReLU(), nn.Linear { 24, 4 },
  } }]]):format(param))
      file:close()
      return netfile.load(path .. ".lua")
    end
    local _ <close> = setmetatable({}, {
      __close = function() os.remove(path) os.remove(path .. ".lua") end,
    })
    local file = load_file "{ exclude_blob = \"relu1\" }"
    local function plan_of(train, given)
      return (netfile.build(file, { train = train })):plan(netfile.memory(file, with(given or {})))
    end
    assert.are.equal("none", plan_of(false).policy)
    assert.are.equal("offset", plan_of(true).policy)
    assert.are.equal("io", plan_of(true):explain("relu1")[1].region)
    assert.are.equal("name", plan_of(false, { policy = "name" }).policy)
    assert.are.equal("offset", plan_of(false, { mem_param = { optimize_test = true } }).policy)
    do
      local setup <close> = bench.prepare(file, { train = true, memory = { store = false } })
      assert.are.equal("io", setup.program.plan:explain("relu1")[1].region)
    end
    local pipe <close> = assert(io.popen(
      "NEAP_DB=off " .. support.program .. " plan " .. path .. ".lua --train --explain relu1"))
    assert.is_truthy(pipe:read("a"):find("io", 1, true))
    raises("did you mean \"exclude_blob\"", load_file, "{ exclude_blobs = {} }")
  end)

  it("numbers slots by address, however many there are", function()
    local net = neap.net "wide"
    net:input("x", { 16 })
    local top = "x"
    for k = 1, 200 do
      net:Tanh(top, "a" .. k)
      top = "a" .. k
    end
    local log = net:dry_run(with { policy = "none" })
    assert.are.equal(199, #log.slots) -- 64 bytes each; the last one is the output
    for k, slot in ipairs(log.slots) do
      assert.are.equal(64 * (k - 1), slot.offset_bytes)
      assert.are.equal(1, slot.n_blob)
    end
    for _, row in ipairs(log) do
      if row.slot:match "^slot" then assert.are.same({ row.blob }, log.slots[row.slot_no].blobs) end
    end
  end)
end)
