-- What the database, runs, models, workspaces and the command line show, against figures computed
-- another way; and that no report, view or query goes unchecked.
local neap = require "neap"
local figures = require "figures"
local support = require "support"
local cjson = require "cjson"
local core = require "neap.core"
local nn, optim = neap.nn, neap.optim
local aligned = figures.aligned

local folder = support.shell "mktemp -d":match "[^\n]+"
teardown(function() os.execute("rm -rf " .. folder) end)

local function rows(db, sql, params) return assert(db:sql(sql, params)) end

--- Rows as a table by one of their columns.
local function by(list, key)
  local out = {}
  for i = 1, #list do out[list[i][key]] = list[i] end
  return out
end

-- ---- views and queries of the database, of every plan -------------------------------------------

--- f(db, plan's id, facts, plan), by the name of a table, view or query.
local kept = {}

kept["table plan"] = function(db, id, f, p)
  local r = rows(db, "select * from plan where plan_id = ?", { id })[1]
  for _, name in ipairs {
    "arena_bytes", "lower_bound_bytes", "baseline_bytes", "total_bytes", "peak_step", "policy",
    "executor", "batch", "plan_ns",
  } do
    assert.are.equal(p[name], r[name], name)
  end
  assert.are.equal(p.arena_bytes == p.lower_bound_bytes and 1 or 0, r.proved)
  assert.are.equal(f.arena, r.arena_bytes)
  assert.are.equal(f.peak_step, r.peak_step)
  local total = r.arena_bytes
  for column, region in pairs {
    parameter_bytes = "parameters", gradient_bytes = "gradients", state_bytes = "state",
    io_bytes = "io",
    constant_bytes = "constants", frame_bytes = "frames",
  } do
    assert.are.equal(f.regions[region] or 0, r[column], column)
    total = total + r[column]
  end
  assert.are.equal(total, r.total_bytes)
end

kept["view plan_op"] = function(db, id, f)
  local list = rows(db, "select * from plan_op where plan_id = ? order by step", { id })
  assert.are.equal(#f.ops, #list)
  for step, op in ipairs(f.ops) do
    local r = list[step]
    assert.are.equal(step, r.step)
    assert.are.equal(op.name, r.name)
    assert.are.equal(op.type, r.type)
    assert.are.equal(op.phase, r.phase)
    assert.are.equal(f.live[step], r.live_bytes)
    assert.are.equal(op.scratch_bytes, r.scratch_bytes)
    assert.are.equal(op.flops // 1, r.flops)
    assert.are.equal(op.recomputes, r.recomputes)
    assert.are.same({ op.read_bytes, op.write_bytes }, { r.read_bytes, r.write_bytes })
    if op.recomputes then
      local bytes = 0
      for _, v in ipairs(op.outs) do bytes = bytes + f.values[v].bytes end
      assert.are.equal(
        ("the budget has no room to keep %s from step %d"):format(neap.bytes(bytes), op.recomputes),
        r.reason)
    end
  end
end

kept["view plan_value"] = function(db, id, f)
  local list = rows(db, "select * from plan_value where plan_id = ? order by value_no", { id })
  assert.are.equal(#f.values, #list)
  for i, v in ipairs(f.values) do
    local r = list[i]
    assert.are.equal(v.blob, r.blob)
    assert.are.equal(v.bytes, r.bytes)
    assert.are.equal(v.storage_no, r.storage_no)
    assert.are.equal(v.region, r.region)
    assert.are.equal(v.role, r.role)
    assert.are.equal(v.shape, r.shape)
    assert.are.equal(v.offset_bytes or 0, r.offset_bytes)
    assert.are.equal(f.first[i] or 0, r.first_step)
    assert.are.equal(f.last[i], r.last_step)
    assert.are.equal(v.kept and 1 or 0, r.kept)
  end
end

-- The text is the net's, which reads back to it; rows count it once, however many plans it has.
kept["view v_net"] = function(db, id)
  local list = rows(db, [[select v.name, v.text, p.net from plan p join v_net v using (net_id)
    where p.plan_id = ?]], { id })
  assert.equal(1, #list)
  local row = list[1]
  assert.equal(row.net, row.name)
  assert.equal(row.name, tostring(neap.net_from(row.text)):match '^net "(.-)":')
end

kept["view v_plan"] = function(db, id, _, p)
  local r = rows(db, "select * from v_plan where plan_id = ?", { id })[1]
  assert.are.equal(p.arena_bytes - p.lower_bound_bytes, r.gap_bytes)
  assert.is_true(math.abs(p.arena_bytes / p.lower_bound_bytes - r.over_bound) <= 5.1e-5)
  assert.is_true(math.abs(1 - p.arena_bytes / p.baseline_bytes - r.saved) <= 5.1e-5)
  assert.are.equal(p.net, r.net)
end

kept["view v_peak"] = function(db, id, f, p)
  local list = rows(db, "select * from v_peak where plan_id = ?", { id })
  local n, bytes = 0, 0
  for _, s in ipairs(f.storages) do
    n = n + (s.region == "arena" and s.from <= p.peak_step and p.peak_step <= s.to and 1 or 0)
  end
  assert.are.equal(n, #list)
  for i = 1, #list do
    assert.are.equal(p.peak_step, list[i].step)
    assert.are.equal(f.live[p.peak_step], list[i].live_bytes)
    assert.are.equal(f.ops[p.peak_step].name, list[i].op)
    bytes = bytes + aligned(list[i].bytes)
  end
  if n > 0 then
    assert.are.equal(f.live[p.peak_step], bytes + aligned(f.ops[p.peak_step].scratch_bytes))
  end
end

kept["view v_blob_life"] = function(db, id, f)
  local list = rows(db, "select * from v_blob_life where plan_id = ? order by value_no", { id })
  assert.are.equal(#f.values, #list)
  for i, v in ipairs(f.values) do
    assert.are.equal(math.max(f.last[i], 1) - math.max(f.first[i] or 0, 1) + 1, list[i].n_step)
    assert.are.equal(f.ops[math.max(f.first[i] or 0, 1)].name, list[i].first_op)
    assert.are.equal(f.ops[math.max(f.last[i], 1)].name, list[i].last_op)
    local others, got = {}, {}
    for _, w in ipairs(f.values) do
      others[#others + 1] = w.storage_no == v.storage_no and w.value_no ~= v.value_no and w.blob
        or nil
    end
    for name in (list[i].same_storage or ""):gmatch "[^,]+" do
      got[#got + 1] = name:match "^%s*(.-)$"
    end
    table.sort(others)
    table.sort(got)
    assert.are.same(others, got, v.blob)
  end
end

--- The layer of each value, as its row tells.
local function layers_of(db, id)
  local layer = {}
  for r in db:rows("select value_no, layer from plan_value where plan_id = ?", { id }) do
    layer[r.value_no] = r.layer
  end
  return layer
end

kept["view v_layer"] = function(db, id, f, p)
  local layer, bytes, parameters, peak = layers_of(db, id), {}, {}, {}
  for _, s in ipairs(f.storages) do
    local first, newest = s.members[1], nil
    bytes[layer[first.value_no]] = (bytes[layer[first.value_no]] or 0) + first.bytes
    if first.role == "parameter" then
      parameters[layer[first.value_no]] = (parameters[layer[first.value_no]] or 0) + first.bytes
    end
    for _, v in ipairs(s.region == "arena" and s.members or {}) do
      if math.max(f.first[v.value_no] or 0, 1) <= p.peak_step and p.peak_step <= v.last_step then
        newest = v
      end
    end
    if newest then
      peak[layer[newest.value_no]] = (peak[layer[newest.value_no]] or 0) + newest.bytes
    end
  end
  for r in db:rows("select * from v_layer where plan_id = ?", { id }) do
    assert.are.equal(bytes[r.layer] or 0, r.bytes, r.layer)
    assert.are.equal(parameters[r.layer] or 0, r.parameter_bytes, r.layer)
    assert.are.equal(peak[r.layer] or 0, r.peak_bytes, r.layer)
    bytes[r.layer] = nil
  end
  assert.is_nil(next(bytes))
end

kept["view v_reuse"] = function(db, id, f)
  local step = math.max(1, #f.values // 12)
  for i = 1, #f.values, step do
    local v, want, got = f.values[i], {}, {}
    local same_name = 0
    for _, w in ipairs(f.values) do same_name = same_name + (w.blob == v.blob and 1 or 0) end
    if v.region == "arena" and same_name == 1 then
      for _, w in ipairs(f.values) do
        local shared = w.region == "arena" and w.value_no ~= v.value_no and math.min(
          v.offset_bytes + v.bytes, w.offset_bytes + w.bytes)
          - math.max(v.offset_bytes, w.offset_bytes)
        if shared and shared > 0 then want[#want + 1] = w.blob .. " " .. shared end
      end
      for r in db:rows("select b, shared_bytes, why from v_reuse where plan_id = ? and a = ?",
        { id, v.blob }) do
        got[#got + 1] = r.b .. " " .. r.shared_bytes
        assert.is_nil(r.why:find "OVERLAP", r.why)
      end
      table.sort(want)
      table.sort(got)
      assert.are.same(want, got, v.blob)
    end
  end
end

kept["query plans"] = function(db, id, _, p)
  local r = by(assert(db:query "plans"), "plan_id")[id]
  for _, name in ipairs {
    "arena_bytes", "lower_bound_bytes", "baseline_bytes", "total_bytes", "net", "batch", "policy",
    "executor",
  } do
    assert.are.equal(p[name], r[name], name)
  end
end

--- Queries tell of the newest plan of a net and mode: here the one just planned.
kept["query peak"] = function(db, id, f, p)
  local list = assert(db:query("peak", { net = p.net }))
  local bytes = aligned(f.ops[p.peak_step].scratch_bytes)
  local of_plan = rows(db, "select mode from plan where plan_id = ?", { id })[1].mode
  for i = 1, #list do bytes = bytes + (list[i].mode == of_plan and aligned(list[i].bytes) or 0) end
  if #list > 0 then assert.are.equal(f.live[p.peak_step], bytes) end
end

kept["query largest"] = function(db, id, f, p)
  local mode = rows(db, "select mode from plan where plan_id = ?", { id })[1].mode
  local list, want = assert(db:query("largest", { net = p.net })), {}
  for _, s in ipairs(f.storages) do want[#want + 1] = s.members[1].bytes end
  table.sort(want, function(a, b) return a > b end)
  local n = 0
  for i = 1, #list do
    if list[i].mode == mode then
      n = n + 1
      assert.are.equal(want[n], list[i].bytes)
    end
    assert.is_true(i == 1 or list[i].bytes <= list[i - 1].bytes)
  end
end

kept["query layer"] = function(db, id, f, p)
  local mode, all, want = rows(db, "select mode from plan where plan_id = ?", { id })[1].mode, 0, 0
  for r in db:rows("select bytes from v_layer where plan_id = ?", { id }) do all = all + r.bytes end
  local list, got = assert(db:query("layer", { net = p.net })), 0
  for i = 1, #list do got = got + (list[i].mode == mode and list[i].bytes or 0) end
  for _, s in ipairs(f.storages) do want = want + s.members[1].bytes end
  assert.are.equal(want, all)
  assert.are.equal(want, got)
end

kept["query who_shares"] = function(db, id, f, p)
  for _, v in ipairs(f.values) do
    if v.region == "arena" and v.bytes > 0 then
      local n = rows(db, "select count(*) as n from v_reuse where net = ? and newest and a = ?",
        { p.net, v.blob })[1].n
      assert.are.equal(n, #assert(db:query("who_shares", { blob = v.blob, net = p.net })))
      assert.is_true(id > 0)
      return
    end
  end
end

local function keys_of(t)
  local list = {}
  for key in pairs(t) do list[#list + 1] = key end
  table.sort(list)
  return list
end

for _, case in ipairs(figures.cases) do
  if not (case[3] and case[3].max_batch) then -- plans within a larger batch are not stored
    describe("stored, the plan of " .. case[1], function()
      local db, p, f
      setup(function()
        db = assert(neap.db(folder .. "/" .. case[1]:gsub("%W", "_") .. ".db"))
        core.use_db(db)
        local net, memory = figures.open(case)
        p = net:plan(memory)
        core.use_db(false)
        f = figures.facts_of(p)
        if p.policy == "pool" then f.arena = p.arena_bytes end
      end)
      teardown(function() db:close() end)
      for _, name in ipairs(keys_of(kept)) do
        it("is told rightly by " .. name, function() kept[name](db, p.plan_id, f, p) end)
      end
    end)
  end
end

-- ---- runs ---------------------------------------------------------------------------------------

--- Those that the profiled run below is told by, and the structure of a plan.
local told = {
  -- tests/unit/structure_spec.lua
  ["view v_reader"] = true, ["view v_choice"] = true, ["view v_category"] = true,
  ["view run_op"] = true, ["view v_program"] = true, ["view v_machine"] = true, -- machine_spec
  ["view subnet_op"] = true, ["view subnet_value"] = true,
  ["query who_reads"] = true, ["query choices"] = true, ["query category"] = true,
  ["query history"] = true, -- db_spec
  -- tests/questions/asked_spec.lua
  ["query fragmentation"] = true, ["query losses"] = true, ["query refused"] = true,
  ["query reorders"] = true, ["query roofline"] = true, ["query trainings"] = true,
  ["view v_run"] = true, ["view v_op_time"] = true, ["query runs"] = true, ["query op_time"] = true,
}

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
        assert.is_true(math.abs(op.flops / times[i].min_ns - list[i].gflop_per_s) < 1e-6)
      end
      assert.are.equal(op.live_bytes, list[i].live_bytes)
      percent = percent + list[i].percent
    end
    assert.is_true(math.abs(percent - 100) < 1e-6)
    -- one number for the slowest op, in every face
    local slowest = run:table()[1]
    local row = rows(db, "select step, name, percent, median_ns from v_op_time where newest \z
      order by median_ns desc, step limit 1")[1]
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
        assert.is_true(math.abs(list[i].flops / list[i].min_ns - list[i].gflop_per_s) <= 0.051)
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

-- ---- models -------------------------------------------------------------------------------------

--- Bytes that any of some ranges touch.
local function cover(list)
  table.sort(list, function(a, b) return a[1] < b[1] end)
  local total, at = 0, 0
  for _, r in ipairs(list) do
    total = total + math.max(0, r[2] - math.max(r[1], at))
    at = math.max(at, r[2])
  end
  return total
end

--- Classes of Torch's optnet, from a plan's values.
local function classes_of(net, p)
  local in_net, bytes, spans = {}, {}, {}
  for _, row in ipairs(net:blobs()) do in_net[row.name] = true end
  local of_region = {
    parameters = "parameters",
    gradients = "gradients",
    state = "buffers",
    constants = "buffers",
    frames = "buffers",
  }
  local seen = {}
  local function put(class, region, storage, from, size)
    for _, c in ipairs { class, "total" } do
      spans[c] = spans[c] or {}
      if region == "arena" then
        table.insert(spans[c], { from, from + size })
      elseif not seen[storage .. c] then
        seen[storage .. c] = true
        bytes[c] = (bytes[c] or 0) + size
      end
    end
  end
  local f = figures.facts_of(p)
  for _, s in ipairs(f.storages) do
    for i, v in ipairs(s.members) do
      local is_gradient = v.role == "gradient" or v.blob:match "%.grad$" ~= nil
      local class = of_region[v.region]
        or (is_gradient and "gradient inputs" or in_net[v.blob] and "outputs" or "buffers")
      if v.region == "arena" or i == 1 then
        put(class, v.region, v.storage_no, v.offset_bytes or 0, v.bytes)
      end
    end
  end
  for _, op in ipairs(f.ops) do
    if op.scratch_bytes > 0 then put("buffers", "arena", 0, op.scratch_offset, op.scratch_bytes) end
  end
  for class, list in pairs(spans) do bytes[class] = (bytes[class] or 0) + cover(list) end
  return bytes
end

describe("a model's reports", function()
  for _, name in ipairs { "lenet", "mlp", "lstm" } do
    it("count bytes by class and parameters by layer, of " .. name, function()
      local model = neap.zoo[name]()
      for _, train in ipairs { false, true } do
        local o = { batch = 2, train = train, store = false }
        local net = model:net {
          batch = 2, train = train, loss = train and nn.CrossEntropyLoss() or nil,
        }
        local before = classes_of(net, net:plan { policy = "none", rewrite = false, store = false })
        local after = classes_of(net, net:plan { store = false })
        local r = neap.count_memory(model, o)
        for i = 1, #r do
          assert.are.equal(before[r[i].class] or 0, r[i].before, r[i].class .. " before")
          assert.are.equal(after[r[i].class] or 0, r[i].after, r[i].class .. " after")
        end
        assert.are.equal(before.total, r.before_bytes)
        assert.are.equal(after.total, r.after_bytes)
        assert.is_true(math.abs(r.saved - (1 - after.total / before.total)) < 1e-12)
      end
      local summary, n, bytes, layers, work = model:summary { batch = 2 }, 0, 0, 0, 0
      for _, p in model:parameters() do
        local size = 1
        for _, d in ipairs(p.shape) do size = size * d end
        n, bytes = n + size, bytes + size * figures.element_bytes[p.data.dtype]
      end
      for i = 1, #summary do
        layers, work = layers + summary[i].parameters, work + summary[i].mult_adds
      end
      assert.are.equal(n, summary.parameters)
      assert.are.equal(n, summary.trainable)
      assert.are.equal(n, layers)
      assert.are.equal(work, summary.mult_adds)
      assert.are.equal(bytes, summary.parameter_bytes)
      local net = model:net { batch = 2 }
      assert.are.equal(n, net:summary({ store = false }).parameters)
    end)
  end

  it("are worked out by hand for two layers", function()
    local model = nn.Sequential {
      input = { 1, 6, 6 }, nn.Conv2d { 1, 3, kernel = 3 }, nn.Flatten(), nn.Linear { 48, 5 },
    }
    local r = model:summary { batch = 7 }
    assert.are.equal(3 * 9 + 3, r[1].parameters)
    assert.are.equal("(7,3,4,4)", r[1].output)
    assert.are.equal(7 * 3 * 4 * 4 * 9, r[1].mult_adds)
    assert.are.equal(48 * 5 + 5, r[#r].parameters)
    assert.are.equal(7 * 48 * 5, r[#r].mult_adds)
    local plan = model:plan({ batch = 7, layouts = "plain", fuse = false, store = false }):summary()
    assert.are.equal(30, plan[1].parameters)
    assert.are.equal(245, plan[#plan].parameters)
  end)

  it("of training tell what it holds, and its means", function()
    local x, y = support.batch({ 10, 1, 28, 28 }, 10, 0.4)
    local t <close> = neap.trainer {
      model = neap.zoo.lenet(),
      optimizer = optim.Adam { lr = 0.001 },
      metrics = { "accuracy" },
      memory = { store = false },
    }
    local forecast = t:forecast(5, { x = x:narrow(1, 1, 5), y = y:narrow(1, 1, 5) })
    local total = 0
    for i = 1, #forecast do total = total + forecast[i].bytes end
    assert.are.equal(total, forecast.total_bytes)
    local losses = {}
    local h = t:fit(neap.data.tensors { x = x, y = y, batch = 5 }, {
      epochs = 1, verbose = 0, on_step = function(r) losses[#losses + 1] = r.loss end,
    })
    assert.are.equal(forecast.total_bytes, t.ws:held_bytes())
    assert.is_true(math.abs((losses[1] + losses[2]) / 2 - h[1].loss) < 1e-9)
    local r = t:evaluate(neap.data.tensors { x = x, y = y, batch = 4 })
    local scores, right = t:predict(x), 0
    for i = 1, 10 do right = right + (scores[i][y[i] + 1] == scores[i]:max():item() and 1 or 0) end
    assert.are.equal(10, r.n)
    assert.is_true(math.abs(right / 10 - r.accuracy) < 1e-6)
    local loss = 0
    for i = 1, 10 do loss = loss - scores[i]:log_softmax(1)[y[i] + 1] / 10 end
    assert.is_true(math.abs(loss - r.loss) < 1e-5)
  end)
end)

describe("memonger's reports", function()
  it("add up to what the nets hold", function()
    local net = (neap.zoo.mlp()):net { batch = 4 }
    local sizes, total, kinds = neap.memonger.collect_blob_sizes(net), 0, 0
    for _ in pairs(sizes) do kinds = kinds + 1 end
    local made = 0
    for _, v in ipairs(net:plan({ policy = "none", rewrite = false, store = false }):_values()) do
      if v.role == "activation" or v.role == "output" then made = made + aligned(v.bytes) end
    end
    local r = neap.memonger.estimate_memory_usage(net)
    for i = 1, #r do total = total + r[i].bytes end
    assert.are.equal(total, r.total_bytes)
    assert.are.equal(made, r.total_bytes)
    assert.is_true(kinds > 0 and r.high_water_bytes <= made + 1)
    local _, slots = neap.memonger.optimize_inference_net(net)
    local shared = 0
    for i = 1, #slots do
      local most, n = 0, 0
      for _, blob in ipairs(type(slots[i].blobs) == "table" and slots[i].blobs or {}) do
        most, n = math.max(most, sizes[blob] or 0), n + 1
      end
      if n > 0 then
        assert.are.equal(aligned(most), aligned(slots[i].bytes))
        assert.are.equal(n, slots[i].n_blob)
      end
      shared = shared + slots[i].bytes
    end
    assert.is_true(
      slots.planned_bytes <= slots.baseline_bytes and shared <= slots.planned_bytes + 64 * #slots)
    assert.is_true(math.abs(slots.saved - (1 - slots.planned_bytes / slots.baseline_bytes)) < 1e-12)
  end)
end)

-- ---- the command line ---------------------------------------------------------------------------

describe("neap plan", function()
  --- Its output, which must be a success.
  local function neap_plan(words)
    local out, code = support.shell(("NEAP_DB=off %s plan %s"):format(support.program, words))
    assert.are.equal(0, code, out)
    return out
  end

  local function check_same(report, json)
    local want = cjson.decode(report:json())
    want.plan_ns, json.plan_ns = nil, nil
    local function same(a, b, what)
      if type(a) == "table" then
        for key, value in pairs(a) do
          -- the loss is made here
          if key ~= "line" then same(value, b[key], what .. "." .. tostring(key)) end
        end
      elseif type(a) == "number" then
        assert.is_true(math.abs(a - b) <= 1e-9 * math.abs(a), what)
      elseif not (type(a) == "string" and a:find "planned in") then
        assert.are.equal(a, b, what)
      end
    end
    same(want, json, "report")
  end

  for _, words in ipairs {
    "lenet:8 --train", "resnet18c:2 --train --budget 75%", "lenet:4 --train --policy pool", "mlp:3",
    "lenet:4 --keep conv1",
  } do
    it("says of " .. words .. " what the plan says", function()
      local netfile = require "neap.net.file"
      local file = netfile.load(words:match "^%S+")
      local net = netfile.build(file, { train = words:find "train" ~= nil })
      local p = net:plan {
        store = false,
        budget = words:match "budget (%S+)",
        policy = words:match "policy (%S+)",
        keep = { words:match "keep (%S+)" },
      }
      for flag, report in pairs {
        [""] = p:forecast(), ["--ops"] = p:ops(), ["--values"] = p:values(), ["--peak"] = p:peak(),
      } do
        check_same(report, cjson.decode(neap_plan(words .. " --json " .. flag)))
      end
      local text, f = neap_plan(words), figures.facts_of(p)
      local op = f.ops[f.peak_step]
      local line = ("peak       %s at step %d of %d, %s \"%s\""):format(
        neap.bytes(f.live[f.peak_step]), f.peak_step, #f.ops, op.type, op.name)
      assert.is_truthy(text:find(line, 1, true), line .. " is not in " .. text)
      assert.is_truthy(text:find("over steps " .. tostring(p:curve()), 1, true))
      local again =
        ("recomputed %d of %d ops run again in the backward pass, about %.0f %% more work"):format(
          f.n_again, #f.ops - f.n_again, 100 * p.recomputed_work)
      assert.are.equal(f.n_again > 0, text:find(again, 1, true) ~= nil)
      local explained = neap_plan(words .. " --explain")
      assert.are.equal(tostring(p:explain()):gsub("planned in [^\n]*", ""),
        -- its first line says which plan it is
        (explained:gsub("^plan of [^\n]*\n", ""):gsub("%s*$", ""):gsub("planned in [^\n]*", "")))
    end)
  end
end)

-- ---- nothing left out ---------------------------------------------------------------------------

--- Where the figures of each report are checked, by file and function; words: it shows none, or
-- none that can be had otherwise.
local checked = {
  ["bench/init.lua bench.run"] = "here: neap.bench.measure",
  ["bench/memory.lua memory.run"] = "tests/unit/cli_spec.lua",
  ["machine.lua machine.peaks"] = "tests/unit/machine_spec.lua",
  ["check/init.lua check.plan"] = "tests/unit/figures_runs_spec.lua",
  ["check/gradient.lua report_of"] = "tests/unit/check_spec.lua",
  ["check/nan.lua M.check"] = "tests/unit/check_spec.lua",
  ["check/op.lua checked"] = "tests/unit/check_spec.lua",
  ["cli/db.lua plural"] = "a sentence",
  ["inner/export.lua report_of"] = "tests/unit/care_spec.lua",
  ["inner/export.lua write_json"] = "tests/unit/care_spec.lua",
  ["cli/sql.lua list"] = "a list of names",
  ["memory/count.lua count_memory.count"] = "here", ["db.lua ask"] = "here: views and queries",
  ["db.lua Db:info"] = "here",
  ["init.lua neap.engines"] = "a list of names",
  ["db.lua Db:verify"] = "tests/unit/db_spec.lua", ["init.lua neap.config"] = "texts of this build",
  ["init.lua neap.help"] = "texts",
  ["init.lua help_on_name"] = "texts",
  ["init.lua neap.memory"] = "tests/unit/tensor_spec.lua, tests/named/11_within_memory_spec.lua",
  ["init.lua neap.ops"] = "a list of names",
  ["memory/mem_param.lua mem_param.dry_run"] = "tests/unit/figures_runs_spec.lua",
  ["memonger/init.lua memonger.estimate_memory_usage"] = "here",
  ["memonger/init.lua plan"] = "here",
  ["net/init.lua Net:blobs"] = "tests/unit/figures_runs_spec.lua",
  ["net/init.lua Net:ops"] = "tests/unit/figures_runs_spec.lua",
  ["nn/planned.lua Module.summary"] = "here",
  ["tensor/picture.lua Tensor.plot"] = "tests/unit/picture_spec.lua",
  ["plan/diff.lua diff.sides"] = "tests/questions/diff_spec.lua",
  ["plan/doctor.lua Plan:doctor"] = "tests/questions/whatif_spec.lua",
  ["plan/whatif.lua compare"] = "tests/questions/whatif_spec.lua",
  ["plan/whatif.lua curve"] = "tests/questions/whatif_spec.lua",
  ["plan/init.lua Plan:banks"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:curve"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:explain"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:forecast"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:ops"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:peak"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:rewrites"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:summary"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:values"] = "tests/unit/figures_spec.lua",
  ["plan/init.lua Plan:why"] = "tests/unit/figures_spec.lua", ["plan/init.lua Run:ops"] = "here",
  ["plan/init.lua Run:table"] = "here",
  ["prune.lua report_of"] = "tests/unit/prune_spec.lua",
  ["tensor/init.lua Tensor.stats"] = "tests/unit/tensor_spec.lua",
  ["train/evaluate.lua Trainer:history"] = "here",
  ["train/evaluate.lua evaluate"] = "here",
  ["train/find_lr.lua Trainer:find_lr"] = "tests/unit/train_looks_spec.lua",
  ["train/programs.lua forecast"] = "here",
  ["workspace/report.lua Workspace:blobs"] = "here",
  ["workspace/report.lua Workspace:picture"] = "here",
  ["workspace/report.lua Workspace:sizes"] = "here",
}

describe("every report", function()
  it("of the Lua files has its figures checked", function()
    local found = {}
    local pipe <close> = assert(io.popen "find lua/neap -name '*.lua' | LC_ALL=C sort")
    for path in pipe:lines() do
      local name
      for line in io.lines(path) do
        name = line:match "^local function ([%w_.:]+)"
          or line:match "^function ([%w_.:]+)"
          or name
          or line:match "^%s*local function ([%w_.:]+)"
        local makes = line:find("report.new", 1, true) or line:find("report.of(", 1, true)
        if makes and path ~= "lua/neap/report/init.lua" then
          found[path:match "^lua/neap/(.*)" .. " " .. name] = true
        end
      end
    end
    assert.are.same(keys_of(checked), keys_of(found))
  end)

  it("of a plan has its figures checked, pictures too", function()
    local found = {}
    local known = {
      close = true, graph_text = true, text = true, verify = true, dot = true, svg = true,
      html = true, -- tests/report/html_spec.lua
      whatif = true, diff = true, -- plan/whatif.lua compare, plan/diff.lua diff.sides
    }
    for name in pairs(checked) do
      local method = name:match "^plan/%l+%.lua Plan:(.*)"
      if method then known[method] = true end
    end
    for name, f in pairs(core.Plan) do
      if type(f) == "function" and name:sub(1, 1) ~= "_" then found[name] = true end
    end
    for name in pairs(found) do assert.is_truthy(known[name], name) end
  end)

  it("of the database has its figures checked", function()
    local db <close> = assert(neap.db(folder .. "/names.db"))
    for r in db:rows "select name from sqlite_schema where type = 'view'" do
      assert.is_truthy(kept["view " .. r.name] or told["view " .. r.name], r.name)
    end
    for _, name in ipairs(require("neap.db").queries()) do
      assert.is_truthy(kept["query " .. name] or told["query " .. name], name)
    end
  end)
end)
