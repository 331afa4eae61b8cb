--- Nets of many kinds with ways to plan them, and what holds of their plans, computed in plain Lua
-- from shapes, operands, offsets and kinds of blobs. tests/unit/figures_spec.lua compares a plan's
-- reports with it, figures_kept_spec.lua what a database keeps of it, and others beside it runs,
-- models and the command line.
local neap = require "neap"
local assert = require "luassert"
local cjson = require "cjson"
local netfile = require "neap.net.file"

-- ---- the plans ----------------------------------------------------------------------------------

--- A net with views, an in-place chain, names that are written again with other shapes, and an op
-- that nothing reads.
local function views()
  local net = neap.net "views"
  net:input("x", { 6, 8 })
  net:param("w", { 5, 8 }, 0.5)
  net:FC({ "x", "w" }, "a")
  net:Relu("a", "a")
  net:Reshape("a", "b", { shape = { 5, 6 } })
  net:op("Split", { "b" }, { "b1", "b2" }, { axis = 2 })
  net:Slice("a", "c", { starts = { 1 }, ends = { 3 } })
  net:Sum("c", "s")
  net:Sum("b", "t")
  net:Tanh("b1", "a") -- another shape under the same name
  net:Relu("a", "unread")
  net:Add({ "a", "b2" }, "d")
  net:outputs { "d", "s", "t" }
  return net
end

--- Recurrence by hand, through a While with a maximum, and an If behind it.
local function control()
  local net = neap.net "control"
  local x = net:input("x", { 4, 6 })
  net:param("w", { 6, 6 }, neap.init.uniform { low = -0.1, high = 0.1 })
  net:param("v", { 3, 6 }, 0.25)
  local _, h = net:While { init = { 0, x }, max = 5, cond = function(_, i) return i:lt(4) end,
    body = function(b, i, h) return i + 1, b:Tanh(b:FC { h, "w" }) end }
  local y = net:If(h:sum():gt(0), function(b) return b:Relu(b:FC { h, "v" }) end,
    function(b) return b:Sigmoid(b:FC { h, "v" }) end)
  local loss = y:sum()
  net:outputs { loss }
  net:gradient(loss)
  return net
end

local function recurrent()
  local net = neap.net "recurrent"
  net:input("xs", { 5, 2, 4 })
  net:input("h0", { 2, 3 })
  net:param("w", { 3, 4 }, 0.1)
  net:param("u", { 3, 3 }, 0.1)
  local hs = net:Recurrent { seq = { "xs" }, init = { "h0" }, step = function(b, h, x)
    local next_h = b:Tanh(b:Add { b:FC { x, "w" }, b:FC { h, "u" } })
    return next_h, next_h
  end }
  local loss = hs:sum()
  net:outputs { loss }
  net:gradient(loss)
  return net
end

--- Two layers, the middle of which lies in a bank of its own.
local function banked()
  local net = neap.net "banked"
  local x = net:input("x", { 32, 64 })
  net:param("w1", { 128, 64 }, 0.01)
  net:param("w2", { 10, 128 }, 0.02)
  net:FC({ x, "w1" }, "h")
  net:bank("fast", function() net:Tanh(net:Relu("h", "r"), "t") end)
  net:FC({ "t", "w2" }, "y")
  local loss = net:Mean(net:Square("y", "sq"), "loss")
  net:gradient(loss)
  net:outputs { "loss" }
  return net
end

local function zoo(name, o, options)
  local file = netfile.load(name, nil, options)
  return (netfile.build(file, o or {}))
end

local small_gpt = { layers = 2, width = 32, heads = 2, length = 16 }

--- {name, f -> net, memory}
local cases = {
  { "mlp, training", function() return zoo("mlp:16", { train = true }) end },
  { "lenet, training", function() return zoo("lenet:16", { train = true }) end },
  { "lenet, inference", function() return zoo "lenet:16" end },
  {
    "lenet, not in place", function() return zoo("lenet:8", { train = true }) end,
    { in_place = false },
  },
  {
    "lenet, kept", function() return zoo("lenet:16", { train = true }) end,
    { keep = { "conv1", "pool2" } },
  },
  {
    "lenet, policy none", function() return zoo("lenet:4", { train = true }) end,
    { policy = "none" },
  },
  {
    "lenet, policy name", function() return zoo("lenet:4", { train = true }) end,
    { policy = "name" },
  },
  {
    "lenet, policy pool", function() return zoo("lenet:4", { train = true }) end,
    { policy = "pool" },
  },
  { "lenet, a dag", function() return zoo("lenet:8", { train = true }) end, { executor = "dag" } },
  {
    "lenet, plain", function() return zoo("lenet:8", { train = true }) end,
    { layouts = "plain", engine = "ref" },
  },
  {
    "lenet, of a larger batch", function() return zoo("lenet:8", { train = true }) end,
    { max_batch = 16 },
  },
  { "a residual net, training", function() return zoo("resnet18c:2", { train = true }) end },
  {
    "a residual net, recomputing", function() return zoo("resnet18c:2", { train = true }) end,
    { budget = "75%" },
  },
  {
    "a residual net, other kernels", function() return zoo("resnet18c:4", { train = true }) end,
    { budget = "60%", exact = false },
  },
  { "lstm, training", function() return zoo("lstm:2", { train = true }) end },
  { "a small gpt", function() return zoo("gpt:2", nil, small_gpt) end },
  { "a small gpt, training", function() return zoo("gpt:2", { train = true }, small_gpt) end },
  { "views", views },
  { "views, not in place", views, { in_place = false } },
  { "views, a dag", views, { executor = "dag" } },
  { "a loop and a branch", control },
  { "a recurrence", recurrent },
  { "two memory banks", banked, { banks = { neap.bank { "fast", bytes = "1MiB" } } } },
}

-- ---- what holds of a plan, computed from its rows -----------------------------------------------

local element_bytes = {
  f32 = 4, f64 = 8, f16 = 2, bf16 = 2, i8 = 1, u8 = 1, i16 = 2, u16 = 2, i32 = 4, i64 = 8, bool = 1,
}
local function aligned(n) return (n + 63) // 64 * 64 end

local function elements(shape)
  local n = 1
  for d in shape:gmatch "%d+" do n = n * math.tointeger(tonumber(d)) end
  return n
end

--- Steps from the ops that make and read each value; 0: it is there before.
local function lives_of(level)
  local first, last = {}, {}
  for step, op in ipairs(level.ops) do
    for _, v in ipairs(op.outs) do first[v] = step end
  end
  for v in ipairs(level.values) do last[v] = first[v] or 0 end
  for step, op in ipairs(level.ops) do
    for _, v in ipairs(op.ins) do last[v] = math.max(last[v], step) end
  end
  return first, last
end

--- Storages of the arena: {bytes, offset, from, to, members}.
local function storages_of(level)
  local list, by_root = {}, {}
  for _, v in ipairs(level.values) do
    local s = by_root[v.storage_no]
    if s == nil then
      s = {
        region = v.region,
        bytes = 0,
        offset = v.offset_bytes,
        from = math.huge,
        to = -1,
        members = {},
      }
      by_root[v.storage_no] = s
      list[#list + 1] = s
    end
    s.bytes, s.from, s.to = math.max(s.bytes, v.bytes), math.min(s.from, v.first_step),
      math.max(s.to, v.last_step)
    s.members[#s.members + 1] = v
  end
  return list
end

--- All that the tests below compare with.
local function facts_of(plan)
  local level = plan:_tree()
  local f = {
    level = level, values = level.values, ops = level.ops, storages = storages_of(level), live = {},
    regions = {}, arena = 0, flops = 0,
    scratch_most = 0, n_again = 0,
  }
  f.first, f.last = lives_of(level)
  for step, op in ipairs(f.ops) do
    local bytes = aligned(op.scratch_bytes)
    for _, s in ipairs(f.storages) do
      if s.region == "arena" and s.from <= step and step <= s.to then
        bytes = bytes + aligned(s.bytes)
      end
    end
    f.live[step] = bytes
    f.arena = math.max(f.arena,
      op.scratch_bytes > 0 and op.scratch_offset + aligned(op.scratch_bytes) or 0)
    f.flops, f.scratch_most = f.flops + op.flops, math.max(f.scratch_most, op.scratch_bytes)
    f.n_again = f.n_again + (op.recomputes and 1 or 0)
  end
  for _, s in ipairs(f.storages) do
    if s.region == "arena" then
      f.arena = math.max(f.arena, s.offset + aligned(s.bytes))
    else
      f.regions[s.region] = (f.regions[s.region] or 0) + aligned(s.bytes)
    end
  end
  f.peak = 0
  for step, bytes in ipairs(f.live) do
    if bytes > f.peak then f.peak, f.peak_step = bytes, step end
  end
  return f
end

local M = {
  cases = cases,
  facts_of = facts_of,
  elements = elements,
  element_bytes = element_bytes,
  aligned = aligned,
}

--- The net of a case, and its memory options; with `store` false the database is left alone.
function M.open(case, store)
  local memory = { store = store }
  for key, value in pairs(case[3] or {}) do memory[key] = value end
  return case[2](), memory
end

--- JSON and CSV of a report have what it has.
function M.check_exports(report)
  local function same(want, got, what)
    if type(want) == "table" then
      if want.json then want = cjson.decode(want:json()) end
      for key, value in pairs(want) do same(value, got[key], what .. "." .. tostring(key)) end
    elseif type(want) == "number" and want == want and math.abs(want) ~= math.huge then
      assert.is_true(math.abs(got - want) <= 1e-13 * math.abs(want), what)
    elseif type(want) == "string" or type(want) == "boolean" then
      assert.are.equal(want, got, what)
    end
  end
  local json = cjson.decode(report:json())
  local rows = json.rows or json[1] and json or {}
  assert.are.equal(#report, #rows)
  for i = 1, #report do same(report[i], rows[i], "row " .. i) end
  for name, value in pairs(rawget(report, "_totals")) do same(value, json[name], name) end
  local csv = select(2, report:csv():gsub("\r\n", ""))
  assert.are.equal(#report + 1, csv)
end

--- The plan of a case, its facts, and its net; what is held is that of the largest batch.
function M.planned(case)
  local net, memory = M.open(case, false)
  local p = net:plan(memory)
  local f = M.facts_of(p)
  if memory.max_batch then
    local largest = M.open { case[1], function()
      return (netfile.build(netfile.load("lenet:" .. memory.max_batch), { train = true }))
    end }
    local of = M.facts_of(largest:plan { store = false })
    of.regions.arena, f.most = of.arena, of
  end
  return p, f, net
end

--- The keys of a table, sorted.
function M.names_of(t)
  local names = {}
  for name in pairs(t) do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- Rows of a query, which must not fail.
function M.rows(db, sql, params) return assert(db:sql(sql, params)) end

--- Rows as a table by one of their columns.
function M.by(list, key)
  local out = {}
  for i = 1, #list do out[list[i][key]] = list[i] end
  return out
end

--- Every report of `reports`, by name, f(plan, facts, net, case), for every case.
function M.describe(reports)
  local busted = require "busted"
  local describe, it, setup = busted.describe, busted.it, busted.setup
  for _, case in ipairs(M.cases) do
    describe("the figures of " .. case[1], function()
      local p, f, net
      setup(function() p, f, net = M.planned(case) end)
      for _, name in ipairs(M.names_of(reports)) do
        it("are right in " .. name, function() reports[name](p, f, net, case) end)
      end
    end)
  end
end

return M
