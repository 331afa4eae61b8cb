-- onnx.lua: ONNX files in Neap, ONNX Runtime and OpenVINO, by turns, each measurement in a process
-- of its own: time of a run, peak memory above what the process held before it opened the file, and
-- the time to open it and make it ready. neap run scripts/bench/onnx.lua [--rounds 5] [--seconds 2]
-- [--python INTERPRETER] [FILE | FOLDER ..]
--
-- Without files: the light and real ones of the shared data, where they are at hand. Of a folder
-- each .onnx file directly in it, and model.onnx in folders below. A file has one input of floats,
-- which is fed i/n; sizes that it leaves open are 1. All have NEAP_NUM_THREADS threads, 2 unless
-- set. A peer that the interpreter does not have is left out, and said to be.
--
-- The table: best and median ms of all rounds; peak MiB; ms to open the file, of peers to compile
-- it, too, and ms to plan. The last columns say how Neap stands: its best time and its peak over
-- the least of the peers'.
local core = require "neap.core"

local peers = { ort = "onnxruntime", openvino = "openvino" }

-- What a peer's process runs: argv is PEER FILE SECONDS THREADS; one line of figures as Neap's.
local python_code = [[
import sys, time, statistics, numpy
peer, path, seconds, threads = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
if peer == "ort": import onnxruntime as ort
else: import openvino as ov
def status(key):
    for line in open("/proc/self/status"):
        if line.startswith(key): return int(line.split()[1])
def ramp(shape):
    shape = [d if isinstance(d, int) and d > 0 else 1 for d in shape]
    n = int(numpy.prod(shape))
    return (numpy.arange(n) / n).astype(numpy.float32).reshape(shape)
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
start = time.perf_counter()
if peer == "ort":
    o = ort.SessionOptions()
    o.intra_op_num_threads, o.log_severity_level = threads, 3
    s = ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])
    i = s.get_inputs()[0]
    x = {i.name: ramp(i.shape)}
    step = lambda: s.run(None, x)
else:
    c = ov.Core()
    m = c.read_model(path)
    i = m.input(0)
    shape = [d.get_length() if d.is_static else 1 for d in i.partial_shape]
    m.reshape(shape)
    r = c.compile_model(m, "CPU", {"INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    x = ramp(shape)
    step = lambda: r.infer([x])
opened = time.perf_counter() - start
for _ in range(3): step()
times, begun = [], time.perf_counter()
while len(times) < 10 or time.perf_counter() - begun < seconds and len(times) < 1000:
    t = time.perf_counter()
    step()
    times.append(time.perf_counter() - t)
print("figures", min(times) * 1e3, statistics.median(times) * 1e3, status("VmHWM") - before,
    opened * 1e3, 0)
]]

-- ---- one measurement ----------------------------------------------------------------------------

local function median(list)
  table.sort(list)
  return list[(#list + 1) // 2]
end

--- KiB that /proc says of this process.
local function status(key)
  local file <close> = assert(io.open "/proc/self/status")
  return tonumber(file:read("a"):match(key .. ":%s*(%d+)"))
end

--- i/n in the input's shape.
local function ramp(input)
  local n = 1
  for _, d in ipairs(input.shape) do n = n * d end
  return (core.arange(0, n, 1, "f64") / n):to("f32"):reshape(table.unpack(input.shape))
end

--- Opens a file, runs it, and prints the line of figures that the parent reads.
local function measure(path, seconds)
  local neap = require "neap"
  require "neap.onnx"

  -- What the process holds now is taken off; clear_refs lets the peak begin anew.
  collectgarbage()
  local before = status "VmRSS"
  local file <close> = assert(io.open("/proc/self/clear_refs", "w"))
  file:write "5"
  file:flush()

  local start = core.clock()
  local f = assert(neap.import(path))
  local imported = core.clock()
  local input, output = f.net:inputs()[1], f.net:outputs()[1]
  local x, ws = ramp(input), f.workspace
  local program = ws:compile(f.net)
  local planned = core.clock()
  local function step()
    ws:feed(input.name, x)
    program:run()
    return ws:fetch(output)
  end

  -- Three steps to warm up; then ten at least, and as many as there is time for.
  for _ = 1, 3 do step() end
  local times, begun = {}, core.clock()
  while #times < 10 or core.clock() - begun < seconds and #times < 1000 do
    local t = core.clock()
    step()
    times[#times + 1] = core.clock() - t
  end

  local best = math.min(table.unpack(times))
  print("figures", best * 1e3, median(times) * 1e3, status "VmHWM" - before,
    (imported - start) * 1e3, (planned - imported) * 1e3)
  program:close()
end

if arg[1] == "one" then
  measure(arg[2], tonumber(arg[3]))
  os.exit(0)
end

-- ---- the rounds ---------------------------------------------------------------------------------

local n_round, seconds, python, files = 5, 2, "python3", {}
local threads = os.getenv "NEAP_NUM_THREADS" or "2"

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local function lines_of(command)
  local list = {}
  local pipe <close> = assert(io.popen(command))
  for line in pipe:lines() do list[#list + 1] = line end
  return list
end

--- A path of a file as it is, of a folder those of its files.
local function add_files(path)
  if path:match "%.onnx$" then files[#files + 1] = path return end
  for _, found in ipairs(lines_of(("find %s/ -maxdepth 1 -name '*.onnx' -o -maxdepth 2 \z
      -name model.onnx | LC_ALL=C sort"):format(quoted(path)))) do
    files[#files + 1] = found
  end
end

local function default_files()
  local folder = "../shared/data/"
  for _, name in ipairs { "resnet50", "inception_v1", "inception_v2", "densenet121", "squeezenet",
    "shufflenet", "vgg19", "zfnet512" } do
    files[#files + 1] = ("%sonnx-light/light_%s.onnx"):format(folder, name)
  end
  for _, name in ipairs { "super_resolution_10", "mnist_8" } do
    files[#files + 1] = ("%sonnx-real/%s/model.onnx"):format(folder, name)
  end
end

local function positive(text, option)
  local value = tonumber(text or "")
  if value and value > 0 then return value end
  error(("onnx: %s expects a number above 0, got %s"):format(option, text or "nothing"), 0)
end

local options = {
  ["--rounds"] = function(text) n_round = positive(text, "--rounds") end,
  ["--seconds"] = function(text) seconds = positive(text, "--seconds") end,
  ["--python"] = function(text) python = text or error("onnx: --python expects a path", 0) end,
}
local i = 1
while arg[i] do
  if options[arg[i]] then
    options[arg[i]](arg[i + 1])
    i = i + 1
  elseif arg[i]:find "^-" then
    error(("onnx: unknown option %s; it takes --rounds, --seconds, --python"):format(arg[i]), 0)
  else
    add_files(arg[i])
  end
  i = i + 1
end
if #files == 0 then default_files() end

-- This very program, whatever it is called by.
local program = lines_of "readlink /proc/$PPID/exe"[1]
local code_path = os.tmpname()

--- What each engine's process is called as, for a path.
local commands = {
  neap = function(path)
    return ("NEAP_DB=off NEAP_NUM_THREADS=%s %s run %s one %s %g"):format(threads, quoted(program),
      quoted(arg[0]), quoted(path), seconds)
  end,
}
local engines = { "neap" }
for _, peer in ipairs { "ort", "openvino" } do
  if os.execute(("%s -c 'import %s' 2>/dev/null"):format(quoted(python), peers[peer])) then
    engines[#engines + 1] = peer
    commands[peer] = function(path)
      return ("%s %s %s %s %g %s"):format(quoted(python), code_path, peer, quoted(path), seconds,
        threads)
    end
  else
    print(("%s: skipped, %s has no module %s"):format(peer, python, peers[peer]))
  end
end

local fields = { "best", "median", "peak", "import", "plan" }

--- The figures of one process by name, nil where it failed.
local function figures(engine, path)
  for _, line in ipairs(lines_of(commands[engine](path) .. " 2>&1")) do
    local row, k = {}, 0
    if line:match "^figures%s" then
      -- The figures stand in the order of `fields`.
      for text in line:gmatch "[%d.e+-]+" do
        if tonumber(text) then k = k + 1 row[fields[k]] = tonumber(text) end
      end
      return row
    end
  end
end

--- Of all rounds: the best and median of the times, the median of the rest.
local function over_rounds(rows)
  local out = {}
  for _, field in ipairs(fields) do
    local list = {}
    for k, row in ipairs(rows) do list[k] = row[field] end
    out[field] = field == "best" and math.min(table.unpack(list)) or median(list)
  end
  return out
end

local function name_of(path)
  local folder, stem = path:match "([^/]*)/([^/]*)%.onnx$"
  stem = stem or path:gsub("%.onnx$", "")
  return stem == "model" and folder or stem
end

local n_faster, n_smaller, n_compared = 0, 0, 0

--- Prints a file's rows, and counts where Neap is ahead.
local function report(path, by_engine)
  local neap, least = by_engine.neap, {}
  for engine, row in pairs(by_engine) do
    if engine ~= "neap" then
      least.best = math.min(least.best or math.huge, row.best)
      least.peak = math.min(least.peak or math.huge, row.peak)
    end
  end

  for k, engine in ipairs(engines) do
    local row, text = by_engine[engine], "failed"
    if row then
      text = ("%9.2f %9.2f %9.1f %9.0f %9.0f"):format(row.best, row.median, row.peak / 1024,
        row.import, row.plan)
    end
    if engine == "neap" and row and least.best then
      text = text .. ("   %5.2f %5.2f"):format(neap.best / least.best, neap.peak / least.peak)
      n_compared = n_compared + 1
      n_faster = n_faster + (neap.best < least.best and 1 or 0)
      n_smaller = n_smaller + (neap.peak < least.peak and 1 or 0)
    end
    print(("%-22s %-9s%s"):format(k == 1 and name_of(path) or "", engine, text))
  end
end

local file <close> = assert(io.open(code_path, "w"))
file:write(python_code)
file:flush()
print(("%s threads, %d rounds; ms, MiB, ms; Neap's over the least of the peers'"):format(threads,
  n_round))
print(("%-22s %-9s%9s %9s %9s %9s %9s   %5s %5s"):format("", "", "best", "median", "peak", "open",
  "plan", "time", "peak"))
for _, path in ipairs(files) do
  -- Engines take turns, so that a busy minute of the machine meets all of them.
  local rows = {}
  for _ = 1, n_round do
    for _, engine in ipairs(engines) do
      local row = figures(engine, path)
      rows[engine] = rows[engine] or {}
      table.insert(rows[engine], row)
    end
  end

  local by_engine = {}
  for engine, list in pairs(rows) do by_engine[engine] = #list > 0 and over_rounds(list) or nil end
  report(path, by_engine)
end
print(("faster than each peer in %d of %d, less memory than each in %d"):format(n_faster,
  n_compared, n_smaller))
os.remove(code_path)
