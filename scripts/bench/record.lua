-- What recording costs: steps of a training with its run in a database against steps of the same
-- training without, by turns in one process, so that the machine's moods meet both.
--
--   neap run scripts/bench/record.lua [SECONDS]
local core = require "neap.core"
local neap = require "neap"
local nn = neap.nn

local seconds = tonumber(arg[1]) or 20
local path = os.tmpname()
os.remove(path)
local db = assert(neap.db(path))

local labels = {}
for i = 1, 64 do labels[i] = i % 10 end
local batch = { x = neap.randn(64, 1, 28, 28), y = neap.tensor(labels, "i64") }

--- A trainer of LeNet on one batch of 64, recorded or not: its program is made by the first step.
local function trainer(where)
  core.use_db(where)
  local model = nn.Sequential {
    name = "lenet", input = { 1, 28, 28 },
    nn.Conv2d { 1, 20, kernel = 5 }, nn.MaxPool2d { 2 }, nn.Conv2d { 20, 50, kernel = 5 },
    nn.MaxPool2d { 2 }, nn.Flatten(), nn.Linear { 800, 500 }, nn.ReLU(), nn.Linear { 500, 10 },
  }
  local t = neap.trainer {
    model = model, optimizer = neap.optim.SGD { lr = 0.01 }, metrics = "accuracy", seed = 1,
  }
  for _ = 1, 10 do t:step(batch) end
  return t
end

local way = { { name = "without", t = trainer(false) }, { name = "recorded", t = trainer(db) } }
for _, w in ipairs(way) do w.ns, w.n = 0, 0 end

--- Seconds within the calls that record.
local inside = 0
for _, name in ipairs { "step", "metric" } do
  local record = core.Run[name]
  core.Run[name] = function(...)
    local start = core.clock()
    record(...)
    inside = inside + core.clock() - start
  end
end

-- Turns of 20 steps, which is less than a second: writes fall into turns as they come.
local from, turn = core.clock(), 0
while core.clock() - from < seconds do
  turn = turn + 1
  local w = way[turn % 2 + 1]
  local start = core.clock()
  for _ = 1, 20 do w.t:step(batch) end
  w.ns, w.n = w.ns + (core.clock() - start) * 1e9, w.n + 20
end
for _, w in ipairs(way) do
  print(("%-9s %6d steps of %.4f ms"):format(w.name, w.n, w.ns / w.n / 1e6))
end
print(("recorded steps take %+.2f %% of the others; within what records: %.3f %%"):format(
  100 * ((way[2].ns / way[2].n) / (way[1].ns / way[1].n) - 1), 100 * inside * 1e9 / way[2].ns))
for _, w in ipairs(way) do w.t:close() end
print(("%d rows of figures"):format(db:sql("select count(*) as n from run_metric")[1].n))
core.use_db(false)
db:close()
os.execute("rm -f '" .. path .. "'*")
