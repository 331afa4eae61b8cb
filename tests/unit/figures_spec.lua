-- Every figure of every report against one that is computed another way: in plain Lua from shapes,
-- operands, offsets and kinds of blobs (tests/figures.lua), from sums over ops, or from another
-- report.
local neap = require "neap"
local figures = require "figures"
local support = require "support"
local bytes_text = neap.bytes

-- ---- words and rows -----------------------------------------------------------------------------

local aligned, check_exports = figures.aligned, figures.check_exports

local function lines_of(text)
  local lines = {}
  for line in (text .. "\n"):gmatch "(.-)\n" do lines[#lines + 1] = line end
  while lines[#lines] == "" do lines[#lines] = nil end
  return lines
end

local function same_lines(expected, text)
  local got = lines_of(text)
  for i = 1, math.max(#expected, #got) do assert.are.equal(expected[i], got[i], "line " .. i) end
end

local function sorted(list)
  table.sort(list)
  return table.concat(list, "\n")
end

--- Like C's %.Nf of a share, where that has none.
local function percent(part, whole) return ("%.1f %%"):format(100 * part / whole) end

-- ---- a plan's reports ---------------------------------------------------------------------------

--- By the name of a report, or of several told by one: f(plan, facts of tests/figures.lua, net,
-- case).
local reports = {}

--- Bytes of a region as the plan holds them; a plan within a larger batch has its memory.
local function region_bytes(p, f, name)
  if f.most then return f.most.regions[name] or 0 end
  return
    name == "arena" and (p.policy == "pool" and p.arena_bytes or f.arena) or f.regions[name] or 0
end

reports["plan's fields"] = function(p, f)
  local total, own = 0, 0
  for _, name in ipairs {
    "parameters", "gradients", "state", "io", "constants", "arena", "frames",
  } do
    assert.are.equal(region_bytes(p, f, name), p.regions[name] or 0, name)
    total = total + region_bytes(p, f, name)
  end
  for _, v in ipairs(f.values) do
    local op = f.ops[v.first_step]
    if v.region == "arena" and v.value_no == v.storage_no
        or v.reason == "in_place" and v.region == "arena" then
      if not (op and op.recomputes) and v.reason ~= "alias" then
        own = own + figures.aligned(v.bytes)
      end
    end
  end
  assert.are.equal(total, p.total_bytes)
  assert.are.equal(region_bytes(p, f, "arena"), p.arena_bytes)
  local bound = 0
  for _, bank in ipairs(p:banks()) do bound = bound + bank.lower_bound_bytes end
  if p.policy == "offset" and p.executor == "simple" then
    assert.are.equal(bound > 0 and bound or f.peak, p.lower_bound_bytes)
  end
  assert.is_true(p.lower_bound_bytes >= f.peak and p.arena_bytes >= p.lower_bound_bytes)
  assert.are.equal(p.arena_bytes == p.lower_bound_bytes, p.proved)
  assert.are.equal(f.peak_step, p.peak_step)
  assert.are.equal(#f.ops, p.n_op)
  assert.are.equal(#f.values, p.n_value)
  assert.are.equal(f.scratch_most, p.scratch_bytes_max)
  assert.are.equal(f.flops, p.flops)
  assert.are.equal(f.n_again, p.n_recomputed)
  local work, again, changed = 0, 0, 0
  local function count(level)
    for _, op in ipairs(level.ops) do
      changed = changed + (op.changed and 1 or 0)
      for _, sub in ipairs(op.subs) do count(sub) end
    end
  end
  count(f.level)
  for _, op in ipairs(f.ops) do
    local bytes = 0
    for _, list in ipairs { op.ins, op.outs } do
      for _, v in ipairs(list) do bytes = bytes + f.values[v].bytes end
    end
    if op.recomputes then
      again = again + op.flops + 10 * bytes
    else
      work = work + op.flops + 10 * bytes
    end
  end
  assert.are.equal(changed, p.n_changed)
  assert.is_true(math.abs(p.recomputed_work - again / work) < 1e-12)
  for _, op in ipairs(f.ops) do
    assert.is_true(
      op.recomputes == nil or op.recomputes < op.step and f.ops[op.recomputes].type == op.type)
  end
end

--- plan of "lenet", training, batch 8: arena ...
local function title_of(p)
  return ("plan of \"%s\", %s, batch %d: %s %s, least for these kernels and this order %s%s, \z
    without reuse %s (%s)"):format(p.net, p.train and "training" or "inference", p.batch,
    p.policy == "pool" and "not planned: peak forecast of the pool" or "arena",
    bytes_text(p.arena_bytes), bytes_text(p.lower_bound_bytes),
    p.arena_bytes == p.lower_bound_bytes and " (proved)" or "", bytes_text(p.baseline_bytes),
    percent(p.arena_bytes, p.baseline_bytes))
end

reports["plan.Plan:forecast"] = function(p, f)
  local r, total, seen = p:forecast(), 0, {}
  for i = 1, #r - 1 do
    assert.are.equal(region_bytes(p, f, r[i].region), r[i].bytes)
    assert.are.equal(bytes_text(r[i].bytes) .. (r[i].region == "frames" and " an iteration" or ""),
      r[i].size)
    total, seen[r[i].region] = total + r[i].bytes, true
  end
  for name in pairs(f.regions) do assert.is_true(seen[name] or f.regions[name] == 0, name) end
  assert.are.equal("total", r[#r].region)
  assert.are.equal(total, r[#r].bytes)
  assert.are.equal(total, r.total_bytes)
  assert.are.equal(title_of(p), lines_of(tostring(r))[1])
  for _, name in ipairs {
    "arena_bytes", "lower_bound_bytes", "proved", "baseline_bytes", "scratch_bytes_max", "flops",
    "n_recomputed", "recomputed_work",
    "n_changed",
  } do
    assert.are.equal(p[name], r[name], name)
  end
  check_exports(r)
end

reports["plan.Plan:banks"] = function(p, f, _, case)
  local r, arena, given = p:banks(), 0, case[3] and case[3].banks or {}
  assert.are.equal(#given > 0 and #given + 1 or 0, #r)
  for i = 1, #r do
    local row, n_value, n_op, reach, bound = r[i], 0, 0, 0, 0
    for step, op in ipairs(f.ops) do
      local live = op.bank == row.bank and aligned(op.scratch_bytes) or 0
      for _, s in ipairs(f.storages) do
        local lives =
          s.region == "arena" and s.members[1].bank == row.bank and s.from <= step and step <= s.to
        live = live + (lives and aligned(s.bytes) or 0)
      end
      bound = math.max(bound, live)
      local alone = op.bank == row.bank
      for _, list in ipairs { op.ins, op.outs } do
        for _, v in ipairs(list) do
          alone = alone and (f.values[v].region ~= "arena" or f.values[v].bank == row.bank)
        end
      end
      n_op = n_op + (alone and 1 or 0)
      if op.bank == row.bank and op.scratch_bytes > 0 then
        reach = math.max(reach, op.scratch_offset + aligned(op.scratch_bytes) - arena)
      end
    end
    for _, v in ipairs(f.values) do
      if v.region == "arena" and v.bank == row.bank then
        n_value, reach = n_value + 1, math.max(reach, v.offset_bytes + aligned(v.bytes) - arena)
      end
    end
    assert.are.equal(reach, row.arena_bytes)
    assert.are.equal(bound, row.lower_bound_bytes)
    assert.are.equal(reach == bound, row.proved)
    assert.are.equal(n_value, row.n_value)
    assert.are.equal(n_op, row.n_op)
    assert.are.equal(i > 1 and given[i - 1].bytes or nil, row.capacity_bytes)
    arena = arena + row.arena_bytes
  end
  assert.are.equal(#r, r.n)
  assert.are.equal(arena, r.arena_bytes)
  if #r > 0 then assert.are.equal(p.arena_bytes, arena) end
  check_exports(r)
end

reports["plan.Plan:ops"] = function(p, f)
  local r = p:ops()
  assert.are.equal(#f.ops, #r)
  for step, bytes in ipairs(f.live) do
    assert.are.equal(step, r[step].step)
    assert.are.equal(bytes, r[step].live_bytes)
    local moved = 0
    for _, list in ipairs { f.ops[step].ins, f.ops[step].outs } do
      for _, v in ipairs(list) do moved = moved + f.values[v].bytes end
    end
    assert.is_true(r[step].scratch_bytes >= 0
      and r[step].flops >= 0
      and r[step].read_bytes >= 0
      and r[step].write_bytes >= 0)
  end
  assert.are.equal(f.peak_step, r.peak_step)
  check_exports(r)
end

reports["plan.Plan:values"] = function(p, f)
  local r = p:values()
  for i, v in ipairs(f.values) do
    assert.are.equal(f.first[i] or 0, r[i].first_step, v.blob)
    assert.are.equal(f.last[i], r[i].last_step, v.blob)
    local plain = figures.elements(r[i].shape) * figures.element_bytes[r[i].dtype]
    if v.layout == "plain" then
      assert.are.equal(plain, r[i].bytes, v.blob)
    else
      assert.is_true(r[i].bytes >= plain, v.blob)
    end
    assert.are.equal(v.region == "arena", r[i].offset_bytes ~= nil)
  end
  check_exports(r)
end

--- The parameter behind an operand: kernels read some in another layout.
local function parameter_of(f, v)
  local value = f.values[v]
  local maker = f.ops[f.first[v] or 0]
  if maker and maker.type == "Reorder" then return parameter_of(f, maker.ins[1]) end
  return value.role == "parameter" and value.storage_no or nil
end

local function flops_text(x)
  for _, unit in ipairs { { 1e12, "T" }, { 1e9, "G" }, { 1e6, "M" }, { 1e3, "k" } } do
    if x >= unit[1] then return ("%.2f %s"):format(x / unit[1], unit[2]) end
  end
  return ("%.0f"):format(x)
end

reports["plan.Plan:summary"] = function(p, f)
  local r, i, seen, total = p:summary(), 0, {}, 0
  for _, op in ipairs(f.ops) do
    if op.phase == "forward" and op.type ~= "Reorder" and not op.recomputes then
      i = i + 1
      local n = 0
      for _, v in ipairs(op.ins) do
        local storage = parameter_of(f, v)
        if storage and not seen[storage] then
          seen[storage] = true
          n = n + figures.elements(f.values[storage].shape)
        end
      end
      total = total + n
      assert.are.equal(op.name, r[i].name)
      assert.are.equal(f.values[op.outs[1]].shape, r[i].output, op.name)
      assert.are.equal(n, r[i].parameters, op.name)
      assert.are.equal(flops_text(op.flops), r[i].flops, op.name)
    end
  end
  assert.are.equal(i, #r)
  assert.are.equal(total, r.parameters)
  assert.are.equal(f.flops, r.flops)
  -- No parameter of the net goes uncounted.
  local all = 0
  for _, v in ipairs(f.values) do
    all = all + (v.role == "parameter" and v.value_no == v.storage_no and figures.elements(v.shape)
      or 0)
  end
  assert.are.equal(all, total)
  check_exports(r)
end

reports["plan.Plan:rewrites"] = function(p, f)
  local r, saved = p:rewrites(), 0
  for i = 1, #r do saved = saved + r[i].saved_bytes end
  assert.are.equal(saved, r.saved_bytes)
  assert.are.equal(#r, r.n)
  for i = 1, #r do
    for _, op in ipairs(f.ops) do assert.are_not.equal(r[i].absorbed, op.name) end
  end
  check_exports(r)
end

--- Storages that live at a step, by their newest living value: {value, bytes, ..} largest first.
local function living(f, step)
  local list = {}
  for _, s in ipairs(f.storages) do
    local newest
    for _, v in ipairs(s.members) do
      local lives = s.region == "arena" and v.bytes > 0 and v.first_step >= 1
        and v.first_step <= step and step <= v.last_step
      if lives and (newest == nil or v.first_step >= newest.first_step) then newest = v end
    end
    list[#list + 1] = newest
  end
  table.sort(list, function(a, b)
    if a.bytes ~= b.bytes then return a.bytes > b.bytes end
    return a.value_no < b.value_no
  end)
  return list
end

local function peak_lines(p, f)
  local list, op = living(f, p.peak_step), f.ops[p.peak_step]
  local lines, shown = {}, figures.aligned(op.scratch_bytes)
  lines[1] = ("peak %s at step %d of %d, %s \"%s\"%s"):format(bytes_text(f.live[p.peak_step]),
    p.peak_step, #f.ops, op.type, op.name, (op.line or "") ~= "" and ", " .. op.line or "")
  for i = 1, math.min(20, #list) do
    local v = list[i]
    shown = shown + figures.aligned(v.bytes)
    lines[#lines + 1] = ("  %10s  %-28s %-5s %-20s steps %d-%d"):format(bytes_text(v.bytes), v.blob,
      v.dtype, v.shape, v.first_step, v.last_step)
  end
  if op.scratch_bytes > 0 then
    lines[#lines + 1] = ("  %10s  scratch"):format(bytes_text(op.scratch_bytes))
  end
  local rest = 0
  for i = 21, #list do rest = rest + figures.aligned(list[i].bytes) end
  assert.are.equal(f.live[p.peak_step], shown + rest)
  if rest > 0 then lines[#lines + 1] = ("  %10s  in smaller blobs"):format(bytes_text(rest)) end
  return lines
end

reports["plan.Plan:peak"] = function(p, f)
  local r, want = p:peak(), {}
  same_lines(peak_lines(p, f), tostring(r))
  for i, v in ipairs(living(f, p.peak_step)) do
    want[i] = v.blob .. " " .. v.bytes .. " " .. v.first_step .. " " .. v.last_step
  end
  local got = {}
  for i = 1, #r do
    got[i] = r[i].blob .. " " .. r[i].bytes .. " " .. r[i].first_step .. " " .. r[i].last_step
  end
  assert.are.equal(sorted(want), sorted(got))
  assert.are.equal(p.arena_bytes, r.arena_bytes)
  assert.are.equal(f.peak_step, r.peak_step)
  check_exports(r)
end

local blocks = { [0] = " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" }

--- What a column of n shows: the most live bytes of its steps.
local function columns_of(f, n)
  local most = {}
  for c = 1, n do
    most[c] = 0
    for step = (c - 1) * #f.ops // n + 1, c * #f.ops // n do
      most[c] = math.max(most[c], f.live[step])
    end
  end
  return most
end

reports["plan.Plan:curve"] = function(p, f)
  local r, text = p:curve(), {}
  for step, bytes in ipairs(f.live) do assert.are.equal(bytes, r[step].live_bytes) end
  for c, bytes in ipairs(columns_of(f, math.min(60, #f.ops))) do
    text[c] = blocks[math.max(1, math.ceil(8 * bytes / math.max(f.peak, 1)))]
  end
  assert.are.equal(table.concat(text), tostring(r))
  assert.are.equal(math.max(f.peak, 1), r.peak_bytes)
  check_exports(r)
end

--- The whole explanation, line by line.
local function explanation(p, f)
  local lines = { ("%s: %d ops, %d values"):format(p.net, #f.ops, #f.values) }
  local pool = p.policy == "pool"
  local function add(...)
    lines[#lines + 1] = select("#", ...) > 1 and (...):format(select(2, ...)) or (...)
  end
  add("%s %s, least for these kernels and this order %s%s, without reuse %s",
    pool and "not planned: peak forecast of the pool" or "arena",
    bytes_text(region_bytes(p, f, "arena")), bytes_text(p.lower_bound_bytes),
    p.arena_bytes == p.lower_bound_bytes and " (proved)"
      or (" (%.4f of the bound)"):format(p.arena_bytes / p.lower_bound_bytes),
    bytes_text(p.baseline_bytes))
  local padding, seen = 0, {}
  for _, v in ipairs(f.values) do
    if v.region == "arena"
        and v.first_step <= p.peak_step
        and p.peak_step <= v.last_step
        and not seen[v.storage_no] then
      seen[v.storage_no] = true
      padding = padding + math.max(0, figures.aligned(v.bytes)
        - figures.aligned(figures.elements(v.shape) * figures.element_bytes[v.dtype]))
    end
  end
  add("of its peak %s are padding of layouts and %s scratch", bytes_text(padding),
    bytes_text(figures.aligned(f.ops[p.peak_step].scratch_bytes)))
  local is_short = p.plan_ns < 1000000
  local took = (", planned in %.1f %s"):format(p.plan_ns * (is_short and 1e-3 or 1e-6),
    is_short and "us" or "ms")
  add("policy %s, executor %s, %s%s%s", p.policy, p.executor,
    pool and "" or "packed by ", pool and "addresses found while running" or p.packer,
    p.plan_ns > 0 and took or "")
  for _, bank in ipairs(p:banks()) do
    local capacity = bank.capacity_bytes and " of " .. bytes_text(bank.capacity_bytes) or ""
    add("  bank %-7s %10s%s, least for these kernels and this order %s", bank.bank,
      bytes_text(bank.arena_bytes), capacity, bytes_text(bank.lower_bound_bytes))
  end
  for _, name in ipairs {
    "arena", "parameters", "gradients", "state", "io", "constants", "frames",
  } do
    if region_bytes(p, f, name) > 0 then
      add("  %-12s %10s%s", name, bytes_text(region_bytes(p, f, name)),
        name == "frames" and " an iteration: a loop without a maximum grows them at run time" or "")
    end
  end
  local curve = {}
  for c, bytes in ipairs(columns_of(f, math.min(60, #f.ops))) do
    curve[c] = blocks[math.min(8, math.floor(8 * bytes / p.lower_bound_bytes + 0.5))]
  end
  add("memory over one run  " .. table.concat(curve))
  local rules, by_rule = {}, {}
  for _, row in ipairs(p:rewrites()) do
    if not by_rule[row.rule] then
      by_rule[row.rule] = { n = 0, bytes = 0 }
      rules[#rules + 1] = row.rule
    end
    by_rule[row.rule].n, by_rule[row.rule].bytes = by_rule[row.rule].n + 1,
      by_rule[row.rule].bytes + row.saved_bytes
  end
  for _, rule in ipairs(rules) do
    add("fused: %d times %s, %s of values gone", by_rule[rule].n, rule,
      bytes_text(by_rule[rule].bytes))
  end
  if f.n_again > 0 then
    add("recomputed: %d of %d ops run again in the backward pass, about %.0f %% more work",
      f.n_again, #f.ops - f.n_again, 100 * p.recomputed_work)
  end
  if p.n_changed > 0 then
    local names = {}
    for _, op in ipairs(f.ops) do names[#names + 1] = op.changed and op.name or nil end
    add("other kernels than without the budget, so other bits: %d of %d ops: %s%s", #names, #f.ops,
      table.concat(names, ", ", 1, math.min(4, #names)), #names > 4 and ", ..." or "")
  end
  for _, reason in ipairs {
    "own", "reuse", "in_place", "alias", "version", "slot", "unplanned", "frame",
  } do
    local n, bytes, words = 0, 0, nil
    for _, v in ipairs(f.values) do
      if v.region == "arena" and v.reason == reason then
        n, bytes, words = n + 1, bytes + v.bytes, v.words
      end
    end
    if n > 0 then
      add("  %5d %s %10s  %s: %s", n, n == 1 and "value " or "values", bytes_text(bytes), reason,
        words)
    end
  end
  add "largest"
  local roots = {}
  for _, v in ipairs(f.values) do
    if v.region == "arena" and v.bytes > 0 and v.storage_no == v.value_no then
      roots[#roots + 1] = v
    end
  end
  table.sort(roots, function(a, b)
    if a.bytes ~= b.bytes then return a.bytes > b.bytes end
    return a.value_no < b.value_no
  end)
  for i = 1, math.min(10, #roots) do
    local v = roots[i]
    add("  %10s  at %-12d %-28s %-5s %-20s steps %d-%d", bytes_text(v.bytes), v.offset_bytes,
      v.blob, v.dtype, v.shape, v.first_step, v.last_step)
  end
  return table.move(peak_lines(p, f), 1, 24, #lines + 1, lines)
end

--- Storages other than v's that lie on its bytes, the nearest in time before and after it.
local function neighbours(f, v)
  local before, after, any
  for _, s in ipairs(f.storages) do
    for _, w in ipairs(
      s.region == "arena" and s.members[1].storage_no ~= v.storage_no and s.members or {}) do
      if v.offset_bytes < w.offset_bytes + w.bytes
          and w.offset_bytes < v.offset_bytes + v.bytes then
        any = true
        if w.last_step < v.first_step and (before == nil or w.last_step > before) then
          before = w.last_step
        end
        if w.first_step > v.last_step and (after == nil or w.first_step < after) then
          after = w.first_step
        end
      end
    end
  end
  return before, after, any
end

local function check_value_text(p, f, v, text)
  local function has(words, ...)
    words = select("#", ...) > 0 and words:format(...) or words
    assert.is_truthy(text:find(words, 1, true), words .. " is not in " .. text)
  end
  has("%s %s %s, %s", v.blob, v.shape, v.dtype, bytes_text(v.bytes))
  if v.region == "arena" then
    has(" at offset %d (%s), steps %d-%d", v.offset_bytes, bytes_text(v.offset_bytes), v.first_step,
      v.last_step)
  end
  if v.region ~= "arena" then has(" in %s", v.region) end
  if v.first_step > 0 then
    has(", steps %d-%d, made by %s \"%s\"", v.first_step, v.last_step, f.ops[v.first_step].type,
      f.ops[v.first_step].name)
  end
  if v.region ~= "arena" then return end
  local before, after, any = neighbours(f, v)
  local last = tonumber(text:match "Shares bytes with [^\n]- %(steps %d+%-(%d+)%) before it")
  local first = tonumber(text:match "Shares bytes with [^\n]- %(steps (%d+)%-%d+%) after it")
  assert.are.equal(before, last, text)
  assert.are.equal(after, first, text)
  if p.executor == "simple" then
    assert.are.equal(not any, text:find("No other storage shares its bytes", 1, true) ~= nil, text)
  end
  for step in text:gmatch "computed in place over it at step (%d+)" do
    local found = false
    for _, w in ipairs(f.values) do
      found = found or w.storage_no == v.storage_no and w.reason == "in_place" and w.first_step
        == tonumber(step)
    end
    assert.is_true(found, text)
  end
end

reports["plan.Plan:explain"] = function(p, f, net, case)
  same_lines(explanation(p, f), tostring(p:explain()))
  local n_keep = 0
  for i = 1, #f.values, math.max(1, #f.values // 25) do
    local r = p:explain(f.values[i].blob)
    local v, text = f.values[r[1].value_no], tostring(r)
    check_value_text(p, f, v, text)
    local all, arena = text:match "costs ([^\n]-) in all, planned again: the arena ([^\n]-)%.\n?$"
    if all and n_keep < (#f.ops > 300 and 1 or 3) then
      n_keep = n_keep + 1
      local _, memory = figures.open(case, false)
      local keep = table.move(memory.keep or {}, 1, #(memory.keep or {}), 1, {})
      keep[#keep + 1] = v.blob
      memory.keep = keep
      local kept = net:plan(memory)
      local function signed(x) return (x < 0 and "-" or "+") .. bytes_text(math.abs(x)) end
      assert.are.equal(signed(kept.total_bytes - p.total_bytes), all)
      assert.are.equal(signed(kept.arena_bytes - p.arena_bytes), arena)
    end
  end
end

reports["plan.Plan:why"] = function(p, f)
  for i = 1, 40 do
    local a, b = f.values[i * 7 % #f.values + 1], f.values[i * 13 % #f.values + 1]
    local r = p:why(a.blob, b.blob)
    a, b = f.values[r[1].value_no], f.values[r[2].value_no]
    local text = tostring(r)
    local both = a.region == "arena" and b.region == "arena"
    local meet = both and a.offset_bytes < b.offset_bytes + b.bytes and b.offset_bytes
      < a.offset_bytes + a.bytes
    assert.are.equal(a.storage_no == b.storage_no or meet, r.together)
    local storage = {}
    for _, s in ipairs(f.storages) do storage[s.members[1].storage_no] = s end
    if both and a.storage_no ~= b.storage_no then
      for _, v in ipairs { a, b } do
        local s = storage[v.storage_no]
        local line = ("%s: %s at offset %d, needed in steps %d-%d"):format(v.blob,
          bytes_text(v.bytes), v.offset_bytes, s.from, s.to)
        if s.to > s.from then
          line = line .. (", last by %s \"%s\""):format(f.ops[s.to].type, f.ops[s.to].name)
        end
        assert.is_truthy(text:find(line .. ".\n", 1, true) or text:sub(-#line - 1) == line .. ".",
          line .. " is not in " .. text)
      end
      local from = math.max(storage[a.storage_no].from, storage[b.storage_no].from)
      local to = math.min(storage[a.storage_no].to, storage[b.storage_no].to)
      if not meet and from <= to then
        local steps = from < to and ("steps %d-%d,"):format(from, to) or ("step %d,"):format(from)
        assert.is_truthy(text:find("both are needed in " .. steps, 1, true), text)
      end
    end
  end
end

-- ---- pictures -----------------------------------------------------------------------------------

local function unescaped(text)
  return (text:gsub("&lt;", "<"):gsub("&gt;", ">"):gsub("&quot;", '"'):gsub("&amp;", "&"))
end

reports["plan:svg"] = function(p, f)
  local svg = p:svg()
  local got, want = {}, {}
  for title, rect in svg:gmatch '<g class="box"><title>(.-)</title>\n<rect(.-)/>' do
    got[#got + 1] = unescaped(title)
    local size = title:match "\n([%d.]+ %a+) at offset"
    local height = tonumber(rect:match ' height="([%d.]+)"')
    local bytes = neap.bytes((size:gsub(" ", "")))
    assert.is_true(
      math.abs(height - 460 * bytes / p.arena_bytes) <= 0.02 + 460 * bytes / p.arena_bytes * 0.06,
      title)
  end
  for _, s in ipairs(f.storages) do
    local names, bytes = {}, 0
    for _, v in ipairs(s.members) do
      if v.bytes > 0 and v.first_step >= 1 then
        names[#names + 1], bytes = v.blob, math.max(bytes, v.bytes)
      end
    end
    if s.region == "arena" and bytes > 0 then
      want[#want + 1] = ("%s\n%s at offset %d, steps %d-%d"):format(table.concat(names, ", "),
        bytes_text(bytes), s.offset, s.from, s.to)
    end
  end
  assert.are.equal(sorted(want), sorted(got))
  got, want = {}, {}
  for title in svg:gmatch 'class="scratch"[^>]*><title>(.-)</title>' do
    got[#got + 1] = unescaped(title)
  end
  for step, op in ipairs(f.ops) do
    if op.scratch_bytes > 0 then
      want[#want + 1] = ("%s of %s\n%s at offset %d, step %d"):format(
        #op.subs > 0 and "frames and scratch" or "scratch", op.name, bytes_text(op.scratch_bytes),
        op.scratch_offset, step)
    end
  end
  assert.are.equal(sorted(want), sorted(got))
  got, want = {}, {}
  for title in svg:gmatch '<g class="resident"><title>(.-)</title>' do
    got[#got + 1] = unescaped(title)
  end
  for _, s in ipairs(f.storages) do
    if s.region ~= "arena" and s.region ~= "argument" and s.members[1].bytes > 0 then
      want[#want + 1] = s.members[1].blob .. "\n" .. bytes_text(s.members[1].bytes)
    end
  end
  assert.are.equal(sorted(want), sorted(got))
  for name in pairs(f.regions) do
    if region_bytes(p, f, name) > 0 then
      assert.is_truthy(svg:find(">" .. bytes_text(region_bytes(p, f, name)), 1, true), name)
    end
  end
  local text = unescaped(svg)
  local head = ("%s %s, least for these kernels and this order %s%s, without reuse %s; policy %s, \z
    %s; hatched: scratch"):format(p.policy == "pool" and "peak forecast of the pool" or "arena",
    bytes_text(p.arena_bytes), bytes_text(p.lower_bound_bytes),
    p.arena_bytes == p.lower_bound_bytes and " (proved)" or "", bytes_text(p.baseline_bytes),
    p.policy, p.executor)
  assert.is_truthy(text:find(head, 1, true), head)
  local peak = ("peak %s, step %d: %s"):format(bytes_text(f.live[p.peak_step]), p.peak_step,
    f.ops[p.peak_step].name)
  assert.is_truthy(text:find(peak, 1, true), peak)
  -- The curve: two points a step, as high as its live bytes, on the scale of the most or the bound.
  local points = {}
  for x, y in svg:match('<polygon points="(.-)"'):gmatch "([%d.]+),([%d.]+)" do
    points[#points + 1] = { tonumber(x), tonumber(y) }
  end
  assert.are.equal(2 * #f.ops + 2, #points)
  local bottom, most = points[1][2], math.max(f.peak, p.lower_bound_bytes)
  for step, bytes in ipairs(f.live) do
    assert.is_true(math.abs(bottom - 90 * bytes / most - points[2 * step][2]) < 0.06, step)
  end
  support.check_xml(svg)
end

reports["plan:dot"] = function(p, f)
  local text = p:dot()
  local n_edge, n_op = 0, 0
  local labels, tips = {}, {}
  for name, label, rest in text:gmatch '\n%s*(v%d+) %[style="filled,rounded" shape=box \z
    label="(.-)"(.-)%];' do
    labels[name], tips[name] = label, rest:match 'tooltip="(.-)"' or ""
  end
  for i, v in ipairs(f.values) do
    local size = v.bytes > 0 and "\\n" .. bytes_text(v.bytes) or ""
    local want = v.blob .. "\\n" .. v.dtype .. " " .. v.shape .. size
    assert.are.equal(want, labels["v" .. i])
    if v.region == "arena" and v.bytes > 0 then
      assert.are.equal(("offset %d, %s"):format(v.offset_bytes, v.words), tips["v" .. i])
    end
    if v.region ~= "arena" then assert.are.equal(v.region, tips["v" .. i]) end
  end
  for step, op in ipairs(f.ops) do
    n_op, n_edge = n_op + (text:find(("\n  o%d [shape"):format(step), 1, true) and 1 or 0),
      n_edge + #op.ins + #op.outs
  end
  assert.are.equal(#f.ops, n_op)
  assert.are.equal(n_edge, select(2, text:gsub("\n  v%d+ %-> o%d+%f[; ]", "")) + select(2,
    text:gsub("\n  o%d+ %-> v%d+;", "")))
  assert.is_truthy(text:find("arena " .. bytes_text(p.arena_bytes) .. ",", 1, true))
end

figures.describe(reports)
