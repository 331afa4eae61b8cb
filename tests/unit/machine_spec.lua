-- What a machine reaches at most is measured once, kept, and said of each op that ran there; and a
-- run has a program for each of its plans.
local core = require "neap.core"
local neap = require "neap"
local support = require "support"
local nn = neap.nn

describe("what a machine reaches", function()
  local db, path
  setup(function()
    db, path = support.open_db()
  end)
  teardown(function()
    support.close_db(db, path)
  end)

  it("is measured once and kept, by threads", function()
    local first = neap.machine()
    local seen = {}
    for i = 1, #first do
      local row = first[i]
      seen[row.what .. " " .. row.n_thread] = row.per_second
      -- no machine of these years is outside of this
      assert.is_true(row.per_second > 1e7 and row.per_second < 1e16, row.what)
    end
    assert.is_truthy(seen["f32 1"] and seen["memory 1"])
    assert.is_truthy(seen["f32 " .. core.threads()])
    assert.is_truthy(seen["f64 1"] and seen["i8 1"])
    local again = neap.machine()
    assert.are.equal(#first, #again)
    for i = 1, #again do
      assert.are.equal(seen[again[i].what .. " " .. again[i].n_thread], again[i].per_second)
    end
    local row = assert(db:sql "select peak_flop_per_s, peak_byte_per_s from machine")[1]
    assert.are.same({ first.flop_per_s, first.byte_per_s },
      { row.peak_flop_per_s, row.peak_byte_per_s })
    assert.are.equal(#first, #assert(db:sql "select * from v_machine"))
    neap.machine { again = true }
    -- a measurement of a busy machine does not lower what was reached
    assert(db:_note_peak("f32", 1, 1e18))
    assert(db:_note_peak("f32", 1, 1e7))
    assert.are.equal(1e18, neap.machine().flop_per_s)
    assert.are.equal(1e18, neap.machine { again = true }.flop_per_s)
    assert.are.equal(#first, assert(db:sql "select count(*) as n from machine_peak")[1].n)
    support.raises("above 0", function() assert(db:_note_peak("f32", 1, 0)) end)
    support.raises("\"f16\"", function() assert(db:_note_peak("f16", 1, 1)) end)
  end)

  it("stands beside the programs of a training, and of its evaluation", function()
    local model = nn.Sequential { name = "looked", input = { 4 }, nn.Linear { 4, 8 }, nn.ReLU(),
      nn.Linear { 8, 3 } }
    local x, y = neap.rand(20, 4), neap.zeros(20):to "i64"
    local t = neap.trainer { model = model, optimizer = neap.optim.SGD { lr = 0.1 } }
    local set = neap.data.tensors { x = x, y = y, batch = 8 }
    t:fit(set, { verbose = 0, epochs = 2, valid = set })
    t:evaluate(set)
    local run = assert(db:sql "select * from run where net = 'looked'")
    assert.are.equal(1, #run)
    assert.are.same({ "finished", "train", 8, 6 }, { run[1].status, run[1].mode, run[1].batch,
      run[1].n_step })
    t:close()
    local programs = assert(db:sql([[select mode, batch, n_step, step_min_ns <= step_median_ns
      and step_median_ns <= step_p95_ns as in_order, planned_bytes > 0 as planned from v_program
      where run_id = :id order by mode desc, batch desc]], { id = run[1].run_id }))
    local list = {}
    for i = 1, #programs do
      local p = programs[i]
      assert.are.same({ 1, 1 }, { p.in_order, p.planned })
      list[i] = ("%s %d %d"):format(p.mode, p.batch, p.n_step)
    end
    assert.are.same({ "train 8 4", "train 4 2", "infer 8 6", "infer 4 3" }, list)
    -- times by op, with nobody having asked for a profile; fewer rows run in the largest's plan,
    -- which has no row of its own
    local timed = assert(db:sql([[select program_no, count(*) as n, min(n_call) as calls,
      min(min_ns) > 0 and min(p95_ns - median_ns) >= 0 and min(gap_ns) >= 0 as fine
      from program_op where run_id = :id group by program_no]], { id = run[1].run_id }))
    assert.are.equal(2, #timed)
    for i = 1, #timed do assert.are.equal(1, timed[i].fine) end
    local main = assert(db:sql([[select count(*) as n, min(n_call) as calls from run_op
      where run_id = :id]], { id = run[1].run_id }))[1]
    assert.are.equal(4, main.calls)
    assert.are.equal(main.n, #assert(db:query("op_time", { net = "looked", mode = "train" })))
  end)

  it("has a row for a forward, too", function()
    do
      local m <const> = nn.Sequential { name = "forward", nn.Linear { 4, 2 } }
      m:forward(neap.rand(3, 4))
      m:forward(neap.rand(3, 4))
      m:forward(neap.rand(5, 4))
    end
    collectgarbage()
    collectgarbage()
    local rows = assert(db:sql [[select p.batch, p.n_step, r.mode from program p
      join run r using (run_id) where p.mode = 'infer' and r.net <> 'looked'
      order by p.batch]])
    local list = {}
    for i = 1, #rows do
      list[i] = ("%d %d %s"):format(rows[i].batch, rows[i].n_step, rows[i].mode)
    end
    assert.are.same({ "3 2 infer", "5 1 infer" }, list)
  end)

  it("is another roof for each dtype that ops compute in", function()
    for i, dtype in ipairs { "f32", "f64", "bf16", "f16" } do
      local name = "roofed." .. dtype
      local net = neap.net(name)
      net:outputs { net:MatMul {
        net:param("a", { 64, 64 }, { "Xavier" }, { dtype = dtype }),
        net:param("b", { 64, 64 }, { "Xavier" }, { dtype = dtype }) } }
      local ws <close> = neap.workspace { seed = 1 }
      ws:init(net)
      local program = ws:compile(net, { profile = true })
      program:profile { steps = 3 }
      program:close()
      if i < 4 then assert(db:_note_peak(dtype, 1, i * 1e18)) end -- above what was measured
      local row = assert(db:query("roofline", { net = name }))[1]
      assert.are.same({ dtype, i < 4 and i * 1e9 or 1e9 }, { row.dtype, row.machine_gflop_per_s })
      assert.are.equal("measured in " .. (i < 4 and dtype or "f32"), row.roof)
    end
  end)

  it("has one roof for bytes with a sign and without", function()
    local net = neap.net "unsigned"
    local one = net:param("one", {}, { "Constant", value = 1 })
    local function of(name)
      return net:param(name, { 64, 64 }, { "Constant", value = 3 }, { dtype = "u8" })
    end
    net:outputs { net:QLinearMatMul { of "a", one, false, of "b", one, false, one } }
    local ws <close> = neap.workspace { seed = 1 }
    ws:init(net)
    local program = ws:compile(net, { profile = true })
    program:profile { steps = 3 }
    program:close()
    neap.machine()
    local function of_u8()
      local rows = assert(db:query("roofline", { net = "unsigned" }))
      for i = 1, #rows do if rows[i].flop_per_byte > 0 then return rows[i] end end
    end
    assert(db:_note_peak("i8", 1, 7e18))
    local row = of_u8()
    assert.are.same({ "u8", 7e9, "measured in i8" }, { row.dtype, row.machine_gflop_per_s,
      row.roof })
    -- what is under that of i8 asks for no other measurement, whatever f32 reaches
    assert.is_nil(neap.machine({ seen = { u8 = 6e18 } }).measured)
    assert.matches("faster", neap.machine({ seen = { u8 = 8e18 } }).measured)
  end)

  it("is measured again where an op was faster, and is no less than the fastest op", function()
    local net = neap.net "roofed"
    net:outputs { net:MatMul { net:param("a", { 64, 64 }, { "Xavier" }),
      net:param("b", { 64, 64 }, { "Xavier" }) } }
    local ws <close> = neap.workspace { seed = 1 }
    ws:init(net)
    local program = ws:compile(net, { profile = true })
    program:profile { steps = 3 }
    program:close()
    local function roof() return assert(db:query("roofline", { net = "roofed" }))[1] end
    local function set(text)
      assert(os.execute(("sqlite3 '%s' '%s'"):format(path, text)))
    end
    local function keep(peak)
      set(("update machine_peak set per_second = %s; update machine set \z
        peak_flop_per_s = %s, peak_byte_per_s = 1e15"):format(peak, peak))
    end

    keep "1e6" -- as no machine is: the op is above it
    local row = roof()
    assert.are.equal("fastest op in f32", row.roof)
    assert.are.equal(row.gflop_per_s, row.machine_gflop_per_s)
    assert.are.equal(100, row.percent_of_peak)
    assert.is_true(neap.machine({ seen = { f32 = 1e5 } }).flop_per_s == 1e6)
    assert.is_true(neap.machine({ seen = { f16 = 1e5 } }).flop_per_s == 1e6)
    assert.is_true(neap.machine({ seen = { f16 = 2e6 } }).flop_per_s > 1e6)
    keep "1e18"
    assert.are.equal("measured in f32", roof().roof)
    set "delete from machine_peak; update machine set peak_flop_per_s = null"
    assert.matches("neap profile run NET", roof().roof, 1, true)
    assert.is_nil(roof().percent_of_peak)
  end)
end)
