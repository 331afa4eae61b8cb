-- Every figure of the reports of nets and of runs against one that is computed another way, as
-- figures_spec.lua does it for plans.
local neap = require "neap"
local figures = require "figures"
local check_exports = figures.check_exports

--- By the name of a report: f(plan, facts of tests/figures.lua, net, case).
local reports = {}

-- ---- a net's reports ----------------------------------------------------------------------------

reports["mem_param.mem_param.dry_run"] = function(p, f, net, case)
  local _, memory = figures.open(case, false)
  local r = net:dry_run(memory)
  local level = r.plan:_tree()
  local data, diff, own, in_net, raw_of, scratch, blobs = 0, 0, 0, {}, {}, 0, 0
  for _, row in ipairs(net:blobs()) do in_net[row.name] = true end
  local i = 0
  for _, v in ipairs(level.values) do
    if v.role ~= "parameter" and v.role ~= "state" and v.role ~= "gradient" then
      i = i + 1
      assert.are.equal(v.bytes, r[i].bytes, v.blob)
      assert.are.equal(v.first_step, r[i].first_step, v.blob)
      assert.are.equal(v.last_step, r[i].last_step, v.blob)
      assert.are.equal(v.blob, r[i].key == "diff" and r[i].blob .. ".grad" or r[i].blob)
      if in_net[v.blob] then
        local bytes = figures.elements(v.shape) * figures.element_bytes[v.dtype]
        local is_float = v.dtype:match "f%d+$" ~= nil
        if raw_of[v.blob] == nil or raw_of[v.blob].bytes < bytes then
          raw_of[v.blob] = { bytes = bytes, diff = is_float and bytes or 0 }
        end
      end
      if v.region ~= "arena" and v.reason ~= "version" and v.reason ~= "alias" then
        own = own + v.bytes
      end
      if v.region == "arena" then
        local slot = r.slots[tonumber(r[i].slot:match "slot (%d+)")]
        assert.are.equal(v.offset_bytes, slot.offset_bytes)
        assert.is_true(v.bytes <= slot.bytes)
        blobs = blobs + 1
      end
    end
  end
  assert.are.equal(i, #r)
  for _, raw in pairs(raw_of) do data, diff = data + raw.bytes, diff + raw.diff end
  for _, op in ipairs(level.ops) do scratch = math.max(scratch, op.scratch_bytes) end
  assert.are.equal(data, r.raw_data_bytes)
  assert.are.equal(diff, r.raw_diff_bytes)
  assert.are.equal(data + diff, r.raw_bytes)
  assert.are.equal(r.plan.arena_bytes + own, r.planned_bytes)
  assert.are.equal(r.plan.arena_bytes, r.arena_bytes)
  assert.are.equal(scratch, r.scratch_bytes_max)
  assert.is_true(math.abs(r.saved - (1 - r.planned_bytes / r.raw_bytes)) < 1e-12)
  local raw, largest, n = 0, {}, 0
  for k = 1, #r.layers do raw = raw + r.layers[k].raw_bytes end
  assert.are.equal(r.raw_bytes, raw)
  for k = 1, #r do largest[r[k].slot] = math.max(largest[r[k].slot] or 0, r[k].bytes) end
  for k = 1, #r.slots do
    assert.are.equal(largest["slot " .. k], r.slots[k].bytes)
    n = n + r.slots[k].n_blob
  end
  assert.are.equal(blobs, n)
  check_exports(r)
  check_exports(r.slots)
  check_exports(r.layers)
end

reports["net.Net:ops"] = function(_, _, net)
  local r, n = net:ops(), 0
  for line in net:text { lines = false }:gmatch "[^\n]+" do
    n = n + (line:match "^[%w@/_.%[%], ]+ = %u" and 1 or line:match "^%u%w+%(" and 1 or 0)
  end
  assert.is_true(#r > 0 and #r <= math.max(n, #r))
  check_exports(r)
end

reports["net.Net:blobs"] = function(p, f, net)
  local r, shapes = net:blobs(), {}
  for _, v in ipairs(f.values) do
    shapes[v.blob] = shapes[v.blob] or {}
    shapes[v.blob][v.dtype .. v.shape] = true
  end
  for i = 1, #r do
    local row = r[i]
    if row.shape and shapes[row.name] then
      assert.is_true(shapes[row.name][row.dtype .. row.shape], row.name .. row.shape)
    end
  end
  check_exports(r)
end

-- ---- runs ---------------------------------------------------------------------------------------

reports["check.check.plan"] = function(p, f, net, case)
  local memory = case[3] or {}
  local same_options = not (memory.keep or memory.banks or memory.max_batch
    or memory.in_place == false or p.policy == "none")
  -- options that check.plan does not take, and nets that run for seconds
  if not same_options or #f.ops > 300 then return end
  local r = neap.check.plan(net, {
    steps = 2, count_steps = 1, policy = memory.policy, executor = memory.executor,
    budget = memory.budget,
    exact = memory.exact, engine = memory.engine, layouts = memory.layouts,
  })
  assert.are.equal(p.arena_bytes, r.arena_bytes)
  assert.are.equal(r.forecast_bytes, r.held_bytes)
  assert.are.equal(p.total_bytes, r.forecast_bytes)
  assert.are.equal(f.n_again, r.n_recomputed)
  assert.are.equal(p.n_changed, r.n_changed)
  assert.are.equal(p.baseline_bytes, r.baseline_bytes)
  assert.are.equal(p.lower_bound_bytes, r.lower_bound_bytes)
  assert.are.equal(f.scratch_most, r.scratch_bytes_max)
  local n = 0
  for i = 1, #r do n = n + (r[i].same and 0 or 1) end
  assert.are.equal(0, n)
  assert.is_true(r.same)
  assert.are.equal(#r, r.n_blob)
  check_exports(r)
end

figures.describe(reports)
