--- budget: the same training step in ever less memory: what recomputation costs, planned and
-- measured.
--
-- neap run scripts/bench/budget.lua [NET:BATCH] [seconds a row]
--
-- Steps of all programs take turns, so that a noisy machine treats them alike; `time` is the
-- fastest step over the fastest without a budget, `work` what the planner reckons. Rows with less
-- scratch ran other convolution kernels.
local neap = require "neap"
local core = require "neap.core"
local netfile = require "neap.net.file"

local name, seconds = ...
name, seconds = name or "resnet50:16", tonumber(seconds or 8)
if not seconds or seconds <= 0 then
  io.stderr:write "usage: budget.lua [NET:BATCH] [seconds a row, a number above 0]\n"
  os.exit(2, true)
end
local net = netfile.build(netfile.load(name), { train = true })
local whole = net:plan { store = false }
local ws <close> = neap.workspace { seed = 1, store = false }
ws:init(net)

local rows = {}
for _, percent in ipairs { 100, 90, 75, 60, 50, 40, 33, 25, 20 } do
  local ok, program = pcall(ws.compile, ws, net, {
    budget = whole.arena_bytes * percent // 100, store = false,
  })
  if not ok then
    print(("%d %%: %s"):format(percent, tostring(program):match "^[^\n]+"))
    break
  end
  local plan = program.plan
  rows[#rows + 1] = {
    percent = percent, program = program, fastest = math.huge, arena_bytes = plan.arena_bytes,
    again = plan.n_recomputed,
    work = 100 * plan.recomputed_work, n_op = plan.n_op - plan.n_recomputed,
    scratch_bytes = plan.scratch_bytes_max, plan_ms = plan.plan_ns / 1e6,
  }
end
for _, input in ipairs(net:inputs()) do
  ws:feed(input.name, #input.shape == 0 and core.tensor(0.0, input.dtype)
    or core.zeros { dtype = input.dtype, table.unpack(input.shape) })
end
local began = core.clock()
repeat
  for _, row in ipairs(rows) do
    local start = core.clock()
    row.program:run()
    row.fastest = math.min(row.fastest, core.clock() - start)
  end
until core.clock() - began > seconds * #rows
for _, row in ipairs(rows) do
  row.ms, row.time = row.fastest * 1e3, row.fastest / rows[1].fastest
end
print(require("neap.report").new {
  rows = rows,
  title = ("%s, training, %d ops, arena %s without a budget"):format(name, rows[1].n_op,
    neap.bytes(whole.arena_bytes)),
  columns = { "percent", "arena_bytes", "again", "work", "scratch_bytes", "ms", "time" },
})
