--- A table in a CSV file: columns by name, a split that keeps the shares of the classes, rare rows
-- drawn more often, and a report of the rows that were not in training.
--
--   build/neap run scripts/examples/csv.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = ... == "--quick"
neap.seed(1)

-- Machines: how hot, how fast, how old; one in eight fails, when hot and old.
local path, n = os.tmpname() .. ".csv", quick and 400 or 3000
do
  local file <close> = assert(io.open(path, "w"))
  file:write "temperature,speed,age,fails\n"
  for _, row in ipairs(neap.rand(n, 4):totable()) do
    local heat, speed, age, luck = table.unpack(row)
    local fails = heat + age + (luck - 0.5) * 0.3 > 1.5 and "yes" or "no"
    file:write(("%.1f,%.0f,%.1f,%s\n"):format(20 + 80 * heat, 3000 * speed, 15 * age, fails))
  end
end

local machines = neap.data.csv { path = path, y = "fails", batch = 20, shuffle = true }
print(("%s; %s"):format(table.concat(machines.columns, ", "), table.concat(machines.classes, "/")))
local train, valid = machines:split({ 0.8, 0.2 }, { stratify = "y" })

-- What a column's numbers are around is measured on the rows of training alone.
local scale = neap.data.normalise(train:moments())
train = train:with { transform = { scale } }:weighted "y"
valid = valid:with { transform = { scale } }:plain()

local t <close> = neap.trainer { loss = nn.CrossEntropyLoss(), metrics = "accuracy", seed = 2,
  model = nn.Sequential { input = { 3 }, nn.Linear { 3, 16 }, nn.ReLU(), nn.Linear { 16, 2 } },
  optimizer = optim.Adam { lr = 0.01 } }
t:fit(train, { epochs = quick and 20 or 10, valid = valid, verbose = 0 })
print(t:evaluate(valid))

-- Of the machines that fail, how many are found, and of the alarms, how many are right?
local found, alarms, failing = 0, 0, 0
for batch in valid:epoch(1) do
  local alarm, fails = t:predict(batch.x):arg_max { axis = 2 }, batch.y
  found = found + (alarm * fails):sum():item()
  alarms, failing = alarms + alarm:sum():item(), failing + fails:sum():item()
end
print(("found %d of %d that fail, by %d alarms"):format(found, failing, alarms))
os.remove(path)
