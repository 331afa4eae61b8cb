-- Kills trainings in the middle of their writes, again and again, and cuts the power under the
-- files that they leave; looks at what the database has then: the file is whole, no run is said to
-- be running, and what was written stays.
--
--   neap run scripts/bench/kill.lua [KILLS [PROCESSES]]
--
-- Every fourth process ends by SIGTERM, the others by SIGKILL; PROCESSES, 4 unless told, write at
-- once. After each kill the power goes three times, on copies: database and journal as they are
-- now, the journal cut off or torn at a random byte, as a disk leaves it that had no time. (It has
-- time before a checkpoint, so that journals long enough for one are left alone.) SQLite promises
-- that the file is whole, and has what the journal has up to its last whole commit.
local core = require "neap.core"
local neap = require "neap"

local n_kill = math.tointeger(tonumber(arg[1] or "300"))
local n_process = math.tointeger(tonumber(arg[2] or "4"))
local path = os.tmpname()
os.remove(path)
math.randomseed(1)

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
do
  local file <close> = assert(io.open(script, "w"))
  file:write(training)
end

--- Starts PROCESSES of them, and kills all so many seconds after the last has begun: each says so
-- in a file of its own.
local function kill_all(signal, seconds)
  os.execute(([[
    n=%d; children=
    for i in $(seq $n); do
      rm -f %s.began.$i
      NEAP_DB=%s NEAP_NUM_THREADS=1 %s run %s %s.began.$i >/dev/null 2>&1 & children="$children $!"
    done
    for i in $(seq $n); do
      until [ -s %s.began.$i ] || ! kill -0 $children 2>/dev/null; do sleep 0.01; done
    done
    sleep %.3f
    kill -%s $children
    wait $children 2>/dev/null
    true]]):format(n_process, path, path, core.program_path(), script, path, path, seconds, signal))
end

local faults, seen, n_step, n_cut = 0, 0, 0, 0
local function fault(text)
  faults = faults + 1
  print(text)
end

local function read(name)
  local file <close> = io.open(name, "rb")
  return file and file:read "a" or ""
end

local function write(name, text)
  local file <close> = assert(io.open(name, "wb"))
  file:write(text)
end

--- What a power cut leaves of a journal: its beginning, the last page perhaps torn or zero.
local function torn(text)
  if #text == 0 or #text > 990 * 4120 then return text end

  -- Cut off there; or with the last page before the cut zero, or turned around.
  local at = math.random(0, #text)
  local kind = math.random(3)
  if kind == 1 then return text:sub(1, at) end
  local from = math.max(0, at - 4096)
  local tail = kind == 2 and ("\0"):rep(at - from) or text:sub(from + 1, at):reverse()
  return text:sub(1, from) .. tail
end

--- Rows of runs, and whether the file is whole; the count of a moment before the cut at most.
local function check_cut(i, most)
  local copy = path .. ".cut"
  write(copy, read(path))
  write(copy .. "-wal", torn(read(path .. "-wal")))
  os.remove(copy .. "-shm")

  local db, why = neap.db(copy)
  if not db then
    fault(("kill %d, power: %s"):format(i, why))
    return
  end
  local report = db:verify()
  if not report.ok then fault(("kill %d, power: %s"):format(i, tostring(report))) end

  -- Opening it has settled who still runs; what was whole before the cut is there, and nothing that
  -- never was.
  local count = db:sql "select count(*) as n, total(status = 'running') as running from run"[1]
  if count.running ~= 0 then fault(("kill %d, power: %d are running"):format(i, count.running)) end
  if count.n > most then fault(("kill %d, power: %d runs, of %d"):format(i, count.n, most)) end
  if count.n < seen then fault(("kill %d, power: %d runs, %d before"):format(i, count.n, seen)) end
  local alone = db:sql [[select count(*) as n from run_op where run_id not in
    (select run_id from run)]][1].n
  if alone ~= 0 then fault(("kill %d, power: times of no run"):format(i)) end
  n_cut = n_cut + 1
  db:close()
end

for i = 1, n_kill do
  -- When the kill comes goes through all of 100 ms, so that it meets each kind of write.
  local signal = i % 4 == 0 and "TERM" or "KILL"
  kill_all(signal, (i * 37 % 100) / 1000)
  for _ = 1, 3 do check_cut(i, seen + n_process) end

  local db <close> = assert(neap.db(path))
  local report = db:verify()
  if not report.ok then fault(("kill %d: %s"):format(i, tostring(report))) end
  local count = db:sql([[select count(*) as n, total(n_step) as steps,
    total(status = 'running') as running, total(status = 'lost') as lost,
    total(status = 'interrupted') as interrupted, total(status = 'finished') as finished
    from run]])[1]
  if count.running ~= 0 then fault(("kill %d: %d runs are running"):format(i, count.running)) end
  if count.n ~= seen + n_process then
    fault(("kill %d: %d runs, %d before"):format(i, count.n, seen))
  end
  if count.steps < n_step then fault(("kill %d: steps are gone"):format(i)) end
  seen, n_step = count.n, count.steps
  if i == n_kill then
    print(("%d kills of %d processes, %d cuts of power; %d runs: %d lost, %d interrupted, \z
      %d finished; %d steps; %d faults"):format(n_kill, n_process, n_cut, count.n, count.lost,
      count.interrupted, count.finished, count.steps, faults))
  end
end
os.execute(("rm -f '%s'*"):format(path))
os.exit(faults == 0 and 0 or 1)
