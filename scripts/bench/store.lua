-- A database of many plans and runs: how long each canned query and each view takes, and how large
-- the file is.
--
--   neap run scripts/bench/store.lua [PLANS [RUNS [FILE]]]     1000 and 10000; FILE is kept
local core = require "neap.core"
local neap = require "neap"

local n_plan = math.tointeger(tonumber(arg[1] or "1000"))
local n_run = math.tointeger(tonumber(arg[2] or "10000"))
local path = arg[3] or os.tmpname()
os.remove(path)
local db = assert(neap.db(path))
core.use_db(db)

local function size()
  return db:sql("select page_count * page_size as n from pragma_page_count, pragma_page_size")[1].n
end

--- Bytes that one more plan takes: what the tables have of it, free pages left out.
local function one_plan(name, batch)
  local before = size()
  local plan = neap.zoo[name]():plan { batch = batch, train = true }
  return size() - before, plan
end

local start = core.clock()
-- the first one brings its words and the text of the net along
print(("resnet50 takes %d bytes, another batch of it %d, the same again %d"):format(
  (one_plan("resnet50", 16)), (one_plan("resnet50", 8)), (one_plan("resnet50", 8))))
-- Most plans are of one small net, at many batches.
one_plan("gpt", 2)
local lenet = neap.zoo.lenet()
for batch = 1, n_plan - 3 do lenet:plan { batch = batch, train = batch % 2 == 0 } end

local net = neap.net "small"
local x = net:input("x", { 4, 8 })
for i = 1, 5 do x = net:FC({ x, net:param("w" .. i, { 8, 8 }, { "Xavier" }) }):relu() end
net:outputs { x }
local ws = neap.workspace { seed = 1 }
ws:init(net)
ws:feed("x", neap.zeros(4, 8))
for _ = 1, n_run do
  local program <close> = ws:compile(net)
  program:run(3)
  for step = 1, 3 do program:metric("loss", step, 1 / step) end
end
print(("%d plans and %d runs in %.0f s, %.1f MB"):format(
  db:sql("select count(*) as n from plan")[1].n, db:sql("select count(*) as n from run")[1].n,
  core.clock() - start, size() / 1e6))

-- What asks for a training, for times by op or for a refusal finds one of lenet.
local function train_lenet(memory, n_step)
  local t <close> = neap.trainer {
    model = neap.zoo.lenet(), loss = neap.nn.CrossEntropyLoss(), memory = memory,
    optimizer = neap.optim.SGD { lr = 0.01 },
  }
  local fields = { x = neap.zeros(8, 1, 28, 28), y = neap.zeros { 8, dtype = "i64" } }
  for _ = 1, n_step do t:step(fields) end
end
train_lenet(nil, 30)
assert(not pcall(train_lenet, { budget = "8KiB" }, 1), "8 KiB are refused")
-- What asks for kernels finds those of its newest inference plan.
local timed = lenet:plan { batch = 8 }:kernels()
assert(#timed > 0 and #db:query("kernels", { net = "lenet" }) == #timed, "their times are stored")

--- ms of the second asking, and the number of rows; what refuses to answer is counted as no row.
local function time(ask)
  ask()
  local from = core.clock()
  local rows = assert(ask())
  return (core.clock() - from) * 1e3, #rows
end

print(("%-34s %9s %8s"):format("asked", "ms", "rows"))
local worst = { query = 0, view = 0 }
local function row(kind, name, ask)
  local ms, n = time(ask)
  worst[kind] = math.max(worst[kind], ms)
  print(("%-34s %9.2f %8d"):format(kind .. " " .. name, ms, n))
end

local of = {
  who_reads = { net = "lenet", blob = "conv1" }, who_shares = { net = "lenet", blob = "conv1" },
  op_time = { net = "small" }, runs = { net = "small" }, history = { net = "small" },
}
local names = require("neap.db").queries()
table.sort(names)
for _, name in ipairs(names) do
  row("query", name, function() return db:query(name, of[name] or { net = "lenet" }) end)
end
for _, name in ipairs(names) do
  if not (of[name] and of[name].blob) then
    row("query", name .. ", of all nets", function() return db:query(name) end)
  end
end

local of_view = { v_op_time = "small", v_run = "small", v_program = "small" }
for view in db:rows [[select name from sqlite_schema where type = 'view' and name glob 'v_*'
    order by name]] do
  local name, where = view.name, "net = '" .. (of_view[view.name] or "lenet") .. "' and newest"
  if name == "v_reuse" then where = where .. " and a = 'conv1'" end
  if name == "v_net" then where = "name = 'lenet'" end
  if name == "v_layer_value" then where = "plan_id = 3" end
  if name:find "^v_machine" then where = "true" end
  row("view", name, function()
    return db:sql(("select * from %s where %s"):format(name, where))
  end)
end
row("view", "v_op_time, of a run", function()
  return db:sql("select * from v_op_time where run_id = " .. n_run)
end)
row("view", "v_layer, of all nets' newest", function()
  return db:sql "select net, layer, bytes from v_layer where newest"
end)
print(("slowest query %.1f ms, slowest view %.1f ms"):format(worst.query, worst.view))

core.use_db(false)
ws:close()
db:close()
if not arg[3] then os.execute("rm -f '" .. path .. "'*") end
