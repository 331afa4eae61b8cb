-- busy.lua: the step time of the benchmark nets beside processes that are always busy. A net that
-- keeps its fair share takes alone time x (busy + threads) / cores; printed is the time over that,
-- which at 2 is twice the fair time. Alone and beside others by turns in one process, medians of
-- all rounds; so run it on a machine that is idle otherwise. neap run scripts/bench/busy.lua
-- [--rounds 3] [--seconds 1.5] [--dtype bf16] [--peers SCRIPT [--python INTERPRETER]]
-- [NET:BATCH ...]
--
-- Nets are those of `neap bench` unless they are named. SCRIPT measures PyTorch's training and ONNX
-- Runtime's inference: it is called as `INTERPRETER SCRIPT one NET:BATCH MODE PEER SECONDS`, by
-- default python3, and prints a line with the median in its sixth column. A peer without its module
-- is left out, and said to be.
local core = require "neap.core"
local netfile = require "neap.net.file"
local bench = require "neap.bench"

local n_round, round_s, python, dtype = 3, 1.5, "python3", nil
local beside = { 2, 4 }
local peers = { torch = "torch", ort = "onnxruntime" }

local function output(command)
  local pipe <close> = assert(io.popen(command))
  return pipe:read "a"
end

local n_core = tonumber(output "nproc")

--- Runs f() beside n busy processes, which end with this one whatever happens.
local function beside_busy(n, f)
  -- Each loop looks every 20000 turns whether its parent is still there.
  local loop =
    "while kill -0 $PPID 2>/dev/null; do i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; done"
  local pids = output(
    ("for k in $(seq %d); do { %s; } </dev/null >/dev/null 2>&1 & echo $!; done"):format(n,
      loop)):gsub("\n", " ")

  local ok, result = pcall(f)
  if n > 0 then os.execute("kill " .. pids) end
  if not ok then error(result, 0) end
  return result
end

local function median(list)
  table.sort(list)
  return list[(#list + 1) // 2]
end

--- Appends the milliseconds of the steps of a round.
local function time_round(step, times)
  local stop = core.clock() + round_s
  repeat
    local start = core.clock()
    step()
    times[#times + 1] = (core.clock() - start) * 1e3
  until core.clock() > stop
end

local function line(name, who, alone, busy)
  local text = ("%-14s %-6s %8.2f"):format(name, who, alone)
  for i, n in ipairs(beside) do
    text = text
      .. ("   %9.2f  %5.2f"):format(busy[i], busy[i] / (alone * (n + core.threads()) / n_core))
  end
  print(text)
end

local function measure_neap(name)
  local setup <close> = bench.prepare(netfile.load(name),
    { train = true, memory = { store = false, dtype = dtype } })
  local function step() setup.program:run() end
  local times = { {}, {}, {} }
  -- The first step makes what is made once.
  step()
  for _ = 1, n_round do
    time_round(step, times[1])
    for i, n in ipairs(beside) do beside_busy(n, function() time_round(step, times[i + 1]) end) end
  end
  line(name, "neap", median(times[1]), { median(times[2]), median(times[3]) })
end

--- A process for each measurement, as the script is made; training by torch, inference by ort.
local function measure_peer(script, name, peer)
  local function run()
    local mode = peer == "ort" and "infer" or "train"
    local out = output(("'%s' '%s' one '%s' %s %s %g 2>/dev/null"):format(python, script, name,
      mode, peer, n_round * round_s))
    return tonumber(out:match "^[^\t]*\t[^\t]*\t[^\t]*\t[^\t]*\t[^\t]*\t([%d.]+)")
  end

  local alone, busy = run(), {}
  for i, n in ipairs(beside) do busy[i] = beside_busy(n, run) end
  if alone and busy[1] and busy[2] then
    line(name, peer, alone, busy)
  else
    print(("%-14s %-6s failed"):format(name, peer))
  end
end

local script, names = nil, {}

--- What an option sets, by the text behind it; false where that is none.
local options = {
  ["--peers"] = function(text) script = text return text end,
  ["--dtype"] = function(text) dtype = text return text end,
  ["--python"] = function(text) python = text return text end,
  ["--rounds"] = function(text)
    n_round = math.tointeger(tonumber(text or ""))
    return n_round and n_round > 0
  end,
  ["--seconds"] = function(text)
    round_s = tonumber(text or "")
    return round_s and round_s > 0
  end,
}
local expected = {
  ["--rounds"] = "an integer above 0", ["--seconds"] = "a number above 0",
  ["--dtype"] = "bf16 or f16",
}
local i = 1
while arg[i] do
  local set = options[arg[i]]
  if set then
    if not set(arg[i + 1]) then
      error(("busy: %s expects %s, got %s"):format(arg[i],
        expected[arg[i]] or "a path", arg[i + 1] or "nothing"), 0)
    end
    i = i + 1
  elseif arg[i]:find "^-" then
    error(("busy: unknown option %s; it takes --rounds, --seconds, --dtype, --peers, \z
      --python"):format(
      arg[i]), 0)
  else
    names[#names + 1] = arg[i]
  end
  i = i + 1
end
if #names == 0 then names = bench.nets end

local present = {}
for _, peer in ipairs { "torch", "ort" } do
  local module = peers[peer]
  if not script then
    print(peer .. ": skipped, no --peers SCRIPT")
  elseif not os.execute(("'%s' -c 'import %s' 2>/dev/null"):format(python, module)) then
    print(("%s: skipped, %s has no module %s"):format(peer, python, module))
  else
    present[#present + 1] = peer
  end
end

print(("%d cores, %d threads; ms a step, and times the fair share"):format(n_core, core.threads()))
print(("%-14s %-6s %8s"):format("net", "", "alone")
  .. ("   %9s  %5s"):rep(2):format("beside 2", "x fair", "beside 4", "x fair"))
for _, name in ipairs(names) do
  measure_neap(name)
  for _, peer in ipairs(present) do measure_peer(script, name, peer) end
end
