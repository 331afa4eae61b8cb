-- What a run shows of its times and bytes, and the workspace, the database and bench of it, against
-- figures computed another way.
local neap = require "neap"
local figures = require "figures"
local support = require "support"
local core = require "neap.core"
local aligned, by, rows = figures.aligned, figures.by, figures.rows

local folder = support.shell "mktemp -d":match "[^\n]+"
teardown(function() os.execute("rm -rf " .. folder) end)

describe("a profiled run", function()
  local db, run, program, ws

  setup(function()
    db = assert(neap.db(folder .. "/runs.db"))
    core.use_db(db)
    local net = (require "neap.net.file").build(require("neap.net.file").load "lenet:4",
      { train = true })
    ws = neap.workspace { seed = 1 }
    ws:init(net)
    program = ws:compile(net, { profile = true, tag = "a tag" })
    local x, y = support.batch({ 4, 1, 28, 28 }, 10, 0.2)
    ws:feed("x", x)
    ws:feed("y", y)
    ws:feed("lr", neap.tensor(0.1))
    run = program:profile { steps = 5 }
  end)
  teardown(function()
    core.use_db(false)
    db:close()
  end)

  it("lists the times of its ops, whose shares and speeds follow from them", function()
    local list, total, times = run:ops(), 0, program:times()
    for i = 1, #times do total = total + times[i].median_ns end
    local percent = 0
    for i = 1, #list do
      local op = run.plan:ops()[i]
      assert.are.equal(times[i].min_ns / 1000, list[i].min_us)
      assert.are.equal(5, list[i].n_call)
      assert.is_true(math.abs(100 * times[i].median_ns / total - list[i].percent) < 1e-6)
      if times[i].min_ns > 0 then
        assert.is_true(math.abs(op.flops / times[i].median_ns - list[i].gflop_per_s) < 1e-6)
      end
      assert.are.equal(op.live_bytes, list[i].live_bytes)
      percent = percent + list[i].percent
    end
    assert.is_true(math.abs(percent - 100) < 1e-6)
    -- one number for the slowest op, in every face
    local slowest = run:table()[1]
    local row = rows(db, "select step, name, percent, median_ns from v_op_time where newest \z
      order by once, median_ns desc, step limit 1")[1]
    if row then
      assert.are.same({ slowest.step, slowest.name, slowest.median_us }, { row.step, row.name,
        row.median_ns / 1000 })
    end
    assert.are.equal(5, list.n_step)
    assert.are.equal(program:stats().median_ns, list.median_ns)
    local top = run:table { sort = "min_us", limit = 3 }
    assert.are.equal(3, #top)
    for i = 1, #list do assert.is_true(list[i].min_us <= top[1].min_us) end
  end)

  it("holds what its plan says, blob by blob", function()
    local p, padded = program.plan, 0
    assert.are.equal(p.total_bytes, program:stats().planned_bytes)
    assert.are.equal(p.total_bytes, ws:held_bytes())
    local sizes, all, percent, own = ws:sizes(), 0, 0, 0
    for i = 1, #sizes - 1 do all, percent = all + sizes[i].bytes, percent + sizes[i].percent end
    assert.are.equal(all, sizes.bytes)
    assert.are.equal(all, sizes[#sizes].bytes)
    assert.is_true(math.abs(percent - 100) < 1e-6)
    assert.are.equal(p.arena_bytes, by(sizes, "name")["(arena)"].bytes)
    assert.are.equal(ws:picture().bytes, ws:blobs().bytes)
    assert.are.equal(all - p.arena_bytes, ws:blobs().bytes)
    local blobs, picture = ws:blobs(), by(ws:picture(), "name")
    for i = 1, #blobs do
      local r = blobs[i]
      local size = r.shape and figures.elements(r.shape) * figures.element_bytes[r.dtype]
      if r.kind == "tensor" then
        own, padded = own + size, padded + aligned(size)
        assert.are.equal(size, r.bytes, r.name)
      end
      assert.are.equal(r.bytes, picture[r.name].bytes)
    end
    assert.are.equal(all - p.arena_bytes, own)
    assert.are.equal(ws:held_bytes() - p.arena_bytes, padded) -- bytes lie in steps of 64
  end)

  it("is told apart from what else the process holds", function()
    local before = program:stats()
    assert.are.equal(ws:held_bytes(), before.held_bytes)
    local stray, other <close> = neap.zeros(100, 100), neap.workspace { store = false }
    other:feed("stray", stray)
    assert.are.equal(before.held_bytes, program:stats().held_bytes)
    assert.is_true(before.process_bytes >= before.held_bytes)
    ws:feed("stray", neap.zeros(10, 10))
    assert.are.equal(before.held_bytes + 448, program:stats().held_bytes)
    ws:remove "stray"
  end)

  it("is told by the database as it was", function()
    local p, times, stats = program.plan, program:times(), program:stats()
    local arena, flops = p.arena_bytes, 0
    for _, op in ipairs(p:_ops()) do flops = flops + op.flops // 1 end
    program:close()
    local r = rows(db, "select * from v_run")[1]
    for name, want in pairs {
      net = "lenet", batch = 4, arena_bytes = arena, flops = flops, n_step = 5, tag = "a tag",
      status = "finished",
      planned_bytes = stats.planned_bytes, step_median_ns = stats.median_ns,
      step_min_ns = stats.min_ns,
    } do
      assert.are.equal(want, r[name], name)
    end
    local q = assert(db:query "runs")[1]
    for _, name in ipairs {
      "run_id", "n_step", "step_min_ns", "step_median_ns", "planned_bytes", "held_bytes",
      "resident_bytes", "status",
    } do
      assert.are.equal(r[name], q[name], name)
    end
    local n = neap.runs { db = db }[1]
    for _, name in ipairs {
      "run_id", "n_step", "step_min_ns", "step_median_ns", "planned_bytes", "held_bytes",
    } do
      assert.are.equal(r[name], n[name], name)
    end
    local list, total = rows(db, "select * from v_op_time order by step"), 0
    assert.are.equal(#times, #list)
    for i = 1, #list do total = total + list[i].median_ns end
    for i = 1, #list do
      assert.are.equal(times[i].min_ns, list[i].min_ns)
      assert.are.equal(5, list[i].n_call)
      assert.is_true(math.abs(100 * list[i].median_ns / total - list[i].percent) <= 0.0051)
      if list[i].min_ns > 0 then
        assert.is_true(math.abs(list[i].flops / list[i].median_ns - list[i].gflop_per_s) <= 0.051)
      end
    end
    local slowest = assert(db:query "op_time")
    local stored = by(list, "step")
    for i = 1, #slowest do
      assert.is_true(i == 1 or slowest[i].median_ns <= slowest[i - 1].median_ns)
      for _, name in ipairs { "median_ns", "percent", "gflop_per_s", "name", "kernel" } do
        assert.are.equal(stored[slowest[i].step][name], slowest[i][name], name)
      end
    end
    local info = db:info()
    for i = 1, #info do
      assert.are.equal(rows(db, "select count(*) as n from " .. info[i].table)[1].n, info[i].rows,
        info[i].table)
    end
    assert.is_true(info.bytes > 0 and info.bytes % 512 == 0)
  end)

  it("is measured by bench with the plan's figures", function()
    core.use_db(false)
    local bench = require "neap.bench"
    local r = bench.measure("lenet:4", { train = true, steps = 3 })
    local net = (require "neap.net.file").build(require("neap.net.file").load "lenet:4",
      { train = true })
    local p = net:plan { store = false }
    for _, name in ipairs {
      "arena_bytes", "lower_bound_bytes", "proved", "baseline_bytes", "scratch_bytes_max", "flops",
      "batch",
    } do
      assert.are.equal(p[name], r[name], name)
    end
    assert.are.equal(p.total_bytes, r.forecast_bytes)
    assert.are.equal(r.forecast_bytes, r.held_bytes)
    assert.are.equal(3, r.steps)
    assert.is_true(r.step_ms_min <= r.step_ms_median and r.allocations_per_step == 0)
  end)
end)
