-- What the database keeps of plans, in every table, view and canned query, against figures computed
-- another way; and that none of them goes unchecked.
local neap = require "neap"
local figures = require "figures"
local support = require "support"
local core = require "neap.core"
local aligned, by, keys_of, rows = figures.aligned, figures.by, figures.names_of, figures.rows

local folder = support.shell "mktemp -d":match "[^\n]+"
teardown(function() os.execute("rm -rf " .. folder) end)

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

  -- The scratch of the op at the peak is its layer's, by the row of the op.
  local op = db:sql([[select o.layer, o.scratch_bytes from plan_op o join plan p using (plan_id)
    where plan_id = ? and step = peak_step]], { id })[1]
  peak[op.layer] = (peak[op.layer] or 0) + op.scratch_bytes
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
-- ---- nothing left out ---------------------------------------------------------------------------

--- Those that are checked elsewhere: by runs, and by the structure of a plan.
local told = {
  -- tests/unit/structure_spec.lua
  ["view v_reader"] = true, ["view v_choice"] = true, ["view v_category"] = true,
  ["view v_module"] = true, ["query module"] = true,
  ["view run_op"] = true, ["view v_program"] = true, ["view v_machine"] = true, -- machine_spec
  ["view v_machine_peak"] = true, ["view v_layer_time"] = true, -- by the queries that ask them
  ["view subnet_op"] = true, ["view subnet_value"] = true,
  ["view v_layer_value"] = true, -- what v_layer and v_module add up
  ["query who_reads"] = true, ["query choices"] = true, ["query category"] = true,
  ["query history"] = true, -- db_spec
  -- tests/questions/kernels_spec.lua
  ["view v_kernel"] = true, ["query kernels"] = true,
  -- tests/questions/asked_spec.lua
  ["query fragmentation"] = true, ["query losses"] = true, ["query refused"] = true,
  ["query reorders"] = true, ["query roofline"] = true, ["query trainings"] = true,
  -- tests/unit/figures_profiled_spec.lua
  ["view v_run"] = true, ["view v_op_time"] = true, ["query runs"] = true, ["query op_time"] = true,
}

describe("every report", function()
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
