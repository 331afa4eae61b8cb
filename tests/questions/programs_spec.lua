-- Of which program is a time? A run has several, by mode and batch: what is said of its ops is of
-- the plan that it is said beside, with that plan's batch. And what is a forecast of time worth? It
-- is of ops that run as those that were measured, on this machine, or it is not given.
local core = require "neap.core"
local neap = require "neap"
local support = require "support"
local times = require "neap.plan.times"
local nn = neap.nn

local function mlp(name)
  return nn.Sequential { name = name, input = { 16 }, nn.Linear { 16, 64 }, nn.Tanh(),
    nn.Linear { 64, 3 } }
end

local function rows_of(n)
  return { x = neap.rand(n, 16), y = neap.zeros(n):to "i64" }
end

local function trainer(name)
  return neap.trainer { model = mlp(name), loss = nn.CrossEntropyLoss(),
    optimizer = neap.optim.SGD { lr = 0.1 } }
end

describe("times by op", function()
  local db, path
  setup(function() db, path = support.open_db() end)
  teardown(function() support.close_db(db, path) end)

  it("are of the largest batch of a training, as is its plan, whichever came first", function()
    local t = trainer "sizes"
    local function figures(plan)
      return { arena = plan.arena_bytes, total = plan.total_bytes, n_op = plan.n_op }
    end
    local small, large = figures(t:plan(8)), figures(t:plan(32))
    for _ = 1, 3 do t:step(rows_of(8)) end
    for _ = 1, 2 do t:step(rows_of(32)) end
    t:close()
    local run = assert(db:sql "select * from v_run where net = 'sizes'")[1]
    assert.are.equal(32, run.batch)
    assert.are.equal(large.arena, run.arena_bytes)
    assert.are.equal(large.total, run.planned_bytes)
    assert.is_true(large.arena > small.arena)
    for _, query in ipairs { "op_time", "roofline" } do
      local said = assert(db:query(query, { net = "sizes", batch = 32 }))
      assert.are.equal(large.n_op, #said, query)
      for i = 1, #said do assert.are.equal(32, said[i].batch, query) end
    end
    for _, row in ipairs(assert(db:sql [[select n_call from v_op_time where net = 'sizes']])) do
      assert.are.equal(2, row.n_call)
    end
    assert.is_falsy(pcall(db.query, db, "op_time", { net = "sizes", batch = 8 }))
    -- a side of a comparison names the batch whose bytes it has
    local side = require("neap.plan.diff").of_run_id(db, run.run_id)
    assert.is_truthy(side.label:find("batch 32", 1, true), side.label)
    assert.are.equal(large.total, side.total_bytes)
  end)

  it("are found by a batch that is trained on in parts, and say the rows of a part", function()
    local t = neap.trainer { model = mlp "parts", loss = nn.CrossEntropyLoss(), micro = 4,
      optimizer = neap.optim.SGD { lr = 0.1 } }
    t:step(rows_of(16))
    t:close()
    assert.are.equal(16, assert(db:sql "select batch from run where net = 'parts'")[1].batch)
    for _, batch in ipairs { 16, 4 } do
      local said = assert(db:query("op_time", { net = "parts", batch = batch }))
      assert.is_true(#said > 4)
      for i = 1, #said do assert.are.equal(4, said[i].batch) end
    end
    assert.is_falsy(pcall(db.query, db, "op_time", { net = "parts", batch = 8 }))
  end)

  it("are none where only the evaluation behind a failed step was timed", function()
    local t = trainer "failed"
    local x = neap.zeros(8, 16)
    x:fill_(0 / 0)
    assert.is_false(pcall(t.step, t, { x = x, y = neap.zeros(8):to "i64" }))
    local set = rows_of(8)
    set.batch = 8
    t:evaluate(neap.data.tensors(set))
    t:close()
    local run = assert(db:sql "select run_id, mode from run where net = 'failed'")[1]
    assert.are.equal("train", run.mode)
    assert.are.equal(0, #assert(db:sql("select * from run_op where run_id = ?", { run.run_id })))
    assert.is_true(#assert(db:sql("select * from program_op where run_id = ?",
      { run.run_id })) > 0)
  end)

  it("stand beside the layers of an evaluation, too", function()
    local t = trainer "looked_at"
    local set = rows_of(16)
    set.batch = 16
    local data = neap.data.tensors(set)
    t:fit(data, { verbose = 0, epochs = 2, valid = data })
    t:close()
    local n = 0
    for _, query in ipairs { "layer", "module" } do
      local said, sum = assert(db:query(query, { net = "looked_at", mode = "infer" })), 0
      for i = 1, #said do
        if (said[i].depth or 1) == 1 then sum = sum + (said[i].median_ns or 0) end
      end
      local of_ops = assert(db:sql [[select sum(median_ns) as ns from program_op o
        join program g using (run_id, program_no) where g.net = 'looked_at' and g.mode = 'infer']])
      assert.are.equal(of_ops[1].ns, sum, query)
      n = n + #said
    end
    assert.is_true(n > 4)
  end)
end)

describe("a page of a run", function()
  it("has the course of that run, in whichever file it is recorded", function()
    -- the first run of another file, which the environment names, is not this one
    local script, first, second = os.tmpname(), os.tmpname(), os.tmpname()
    support.write_file(script, [[
      local neap, second = require "neap", ...
      local function train(name, n)
        local t <close> = neap.trainer { loss = neap.nn.CrossEntropyLoss(),
          model = neap.nn.Sequential { name = name, input = { 4 }, neap.nn.Linear { 4, 3 } },
          optimizer = neap.optim.SGD { lr = 0.1 }, metrics = name == "first" and "accuracy" or nil }
        local set = neap.data.tensors { x = neap.rand(8, 4), y = neap.zeros(8):to "i64", batch = 8 }
        t:fit(set, { epochs = n, verbose = 0 })
        return t:run():html(), t:plan():html()
      end
      train("first", 5)
      neap.use_db(assert(neap.db(second)))
      local of_run, of_plan = train("second", 2)
      io.write(of_run:find('"accuracy"', 1, true) and "another run's" or "its own", " ",
        of_run:find('"name":"loss"', 1, true) and "course" or "nothing")
    ]])
    local said = support.shell(("NEAP_DB='%s' %s run %s '%s' 2>&1"):format(first, support.program,
      script, second))
    for _, file in ipairs { script, first, second } do os.execute("rm -f '" .. file .. "'*") end
    assert.are.equal("its own course", said)
  end)
end)

describe("a forecast of time", function()
  local db, path
  setup(function() db, path = support.open_db() end)
  teardown(function() support.close_db(db, path) end)

  --- What a user does with the file.
  local function set(sql)
    assert.are.equal(0, select(2, support.shell(("sqlite3 '%s' \"%s\""):format(path, sql))))
  end

  --- Runs a net, and makes its times by op those of `ns`.
  local function measured(o, ns)
    local net, ws = mlp("priced"):net { batch = o.batch or 8 }, neap.workspace { seed = 1 }
    ws:init(net)
    for _, input in ipairs(net:inputs()) do ws:feed(input.name, neap.rand(o.batch or 8, 16)) end
    local program = ws:compile(net, { dtype = o.dtype, threads = o.threads, engine = o.engine })
    program:run(2)
    local id = program:stats().run_id
    program:close()
    ws:close()
    set(("update program_op set median_ns = %d where run_id = %d"):format(ns, id))
    return id
  end

  local function plan(o)
    local all = { batch = 8, store = false }
    for key, value in pairs(o or {}) do all[key] = value end
    return mlp("priced"):plan(all)
  end

  --- How many ops take part in a step: what makes constants does not, whatever time it has.
  local function n_timed(p)
    local n = 0
    for _, o in ipairs(p:_ops()) do n = n + (o.once and 0 or 1) end
    return n
  end

  local function forecast(p)
    local found = times.measured("test", nil, p)
    return times.forecast(times.ops(p), found)
  end

  it("is of the run that is like the plan, not of the newest", function()
    local first = measured({}, 1000)
    local halved = measured({ dtype = "bf16" }, 50000)
    local shares = assert(db:sql([[select once, count(*) as n, sum(percent) as percent
      from v_op_time where run_id = ? group by once order by once]], { halved }))
    assert.are.same({ 0, 1 }, { shares[1].once, shares[2].once })
    assert.is_true(math.abs(shares[1].percent - 100) < 0.01 * shares[1].n)
    assert.are.equal(0, shares[2].percent)
    measured({ engine = "ref" }, 7000)
    measured({ threads = 1 }, 300)
    local p = plan()
    local ns, known, _, runs = forecast(p)
    assert.are.equal(1000 * n_timed(p), ns)
    assert.are.equal(1, known)
    assert.are.same({ first }, runs)
    local halves = plan { dtype = "bf16" }
    assert.is_true(n_timed(halves) < halves.n_op) -- weights in halves are made once
    assert.are.equal(50000 * n_timed(halves), (forecast(halves)))
    -- halves are told as such, though inputs are f32
    local dtypes = {}
    for _, row in ipairs(assert(db:query("plans", { net = "priced" }))) do
      dtypes[row.dtype] = (dtypes[row.dtype] or 0) + 1
    end
    assert.are.equal(1, dtypes.bf16)
    assert.is_true(dtypes.f32 > 1)
    assert.are.equal("bf16",
      assert(db:sql "select dtype from v_run where net = 'priced' order by run_id")[2].dtype)
    -- and a course from run to run names what else may have changed
    for _, name in ipairs { "history", "runs" } do
      local ways = {}
      for _, row in ipairs(assert(db:query(name, { net = "priced" }))) do
        ways[#ways + 1] = row.dtype .. " " .. row.n_thread
      end
      table.sort(ways)
      local n = core.threads()
      local wanted = { "bf16 " .. n, "f32 1", "f32 " .. n, "f32 " .. n }
      table.sort(wanted)
      assert.are.same(wanted, ways)
    end
    local said = p:whatif { engine = "ref" }
    assert.are.equal(7000 * n_timed(said.plan), said.time_ns)
    assert.are.same({ 1, 1 }, { said.time_before_known, said.time_known })
    if core.threads() > 1 then
      assert.are.equal(300 * n_timed(p), p:whatif({ threads = 1 }).time_ns)
    end
  end)

  it("is of that run however many there are of other batches since", function()
    local p = plan()
    local ns, _, _, runs = forecast(p)
    for batch = 17, 24 do measured({ batch = batch }, 90000) end
    local later, known, _, later_runs = forecast(p)
    assert.are.same({ ns, 1, runs }, { later, known, later_runs })
    local said = p:whatif { batch = 24 }
    assert.are.same({ ns, 90000 * said.plan.n_op }, { said.time_before_ns, said.time_ns })
  end)

  it("stands beside one of other threads, or of another machine, with both named", function()
    local diff = require "neap.plan.diff"
    local function said(a, b)
      return tostring(diff.sides(diff.of_run_id(db, a), diff.of_run_id(db, b)))
    end
    local one, two = measured({ threads = 1 }, 300), measured({ threads = 1 }, 400)
    assert.is_falsy(said(one, two):find("measured on", 1, true))
    assert.is_falsy(said(one, two):find("options", 1, true))
    local half = measured({ threads = 1, dtype = "bf16" }, 300)
    assert.is_truthy(said(one, half):find("\noptions dtype f32 -> bf16\n", 1, true))
    set("update run set n_thread = 7 where run_id = " .. two)
    assert.is_truthy(said(one, two):find "measured on [^\n]+, 1 thread %-> [^\n]+, 7 threads")
  end)

  it("is told only where most of it was measured", function()
    local said = plan():whatif { dtype = "f16" }
    local row = said[#said]
    assert.are.equal("time of the ops", row.figure)
    assert.is_true(said.time_known < times.least_known and said.time_before_known == 1)
    assert.are.equal("not measured", row.after)
    assert.is_truthy(row.change:find "^%d+ %% of it measured$", row.change)
    assert.is_truthy(plan():svg(nil, { time = true }):find("time of ops, from run", 1, true))
    local p = plan { dtype = "f16" }
    assert.is_truthy(p:html():find('"times":false', 1, true))
    assert.error_matches(function() p:svg(nil, { time = true }) end, "%% was measured")
  end)

  it("is not made of what another machine took", function()
    set "update machine set cpu = 'another one'"
    assert.is_nil(times.measured("test", nil, plan()))
    for _, row in ipairs(plan():whatif { batch = 16 }) do
      assert.is_falsy(row.figure:find("time", 1, true))
    end
  end)
end)
