-- Kills a training in the middle of its writes, again and again, and looks at what the database has
-- then: the file is whole, no run is said to be running, and what was written stays.
--
--   neap run scripts/bench/kill.lua [KILLS]       every fourth by SIGTERM, the others by SIGKILL
local core = require "neap.core"
local neap = require "neap"

local n_kill = math.tointeger(tonumber(arg[1] or "300"))
local path = os.tmpname()
os.remove(path)

--- Short fits one after the other: each writes twice, so that a kill meets a write.
local training = [[
local neap = require "neap"
local nn = neap.nn
local model = nn.Sequential { name = "killed", nn.Linear(3, 2) }
local t = neap.trainer {
  model = model, optimizer = neap.optim.SGD { lr = 0.1 }, metrics = "accuracy",
}
local set = neap.data.tensors {
  x = neap.randn(8, 3), y = neap.tensor({ 0, 1, 1, 0, 0, 1, 1, 0 }, "i64"), batch = 4,
}
t:fit(set, { verbose = 0 })
local began <close> = io.open(arg[1], "w")
began:write "began"
began:flush()
while true do t:fit(set, { verbose = 0 }) end
]]

local script = path .. ".lua"
local file <close> = assert(io.open(script, "w"))
file:write(training)
file:flush()

--- Starts it, and kills it so many seconds after it has begun: its line in the file `began`.
local function kill_one(signal, seconds)
  os.execute(([[
    rm -f %s.began
    NEAP_DB=%s %s run %s %s.began >/dev/null 2>&1 & child=$!
    until [ -s %s.began ] || ! kill -0 $child 2>/dev/null; do sleep 0.01; done
    sleep %.3f
    kill -%s $child
    wait $child 2>/dev/null
    true]]):format(path, path, core.program_path(), script, path, path, seconds, signal))
end

local faults, seen, n_step = 0, 0, 0
local function fault(text)
  faults = faults + 1
  print(text)
end

for i = 1, n_kill do
  local signal = i % 4 == 0 and "TERM" or "KILL"
  kill_one(signal, (i * 37 % 100) / 1000)
  local db <close> = assert(neap.db(path))
  local report = db:verify()
  if not report.ok then fault(("kill %d: %s"):format(i, tostring(report))) end
  local count = db:sql([[select count(*) as n, total(n_step) as steps,
    total(status = 'running') as running, total(status = 'lost') as lost,
    total(status = 'interrupted') as interrupted, total(status = 'finished') as finished
    from run]])[1]
  if count.running ~= 0 then fault(("kill %d: %d runs are running"):format(i, count.running)) end
  if count.n ~= seen + 1 then fault(("kill %d: %d runs, %d before"):format(i, count.n, seen)) end
  if count.steps < n_step then fault(("kill %d: steps are gone"):format(i)) end
  seen, n_step = count.n, count.steps
  if i == n_kill then
    print(("%d kills, %d runs: %d lost, %d interrupted, %d finished; %d steps; %d faults"):format(
      n_kill, count.n, count.lost, count.interrupted, count.finished, count.steps, faults))
  end
end
os.execute(("rm -f '%s'*"):format(path))
os.exit(faults == 0 and 0 or 1)
