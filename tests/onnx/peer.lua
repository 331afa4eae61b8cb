--- peer.lua [--python INTERPRETER] [OP ..]: every case of every op that ONNX has, exported and run
-- by ONNX Runtime: largest difference at most 1e-4 of the largest value, of halves 1e-2. Ops that
-- ONNX Runtime itself has no kernel for, or another way, are listed apart. The last line is
-- `N passed, N failed, N without a kernel, N not in ONNX`; exit code 1 where one failed.
local neap = require "neap"
local cases = require "neap.check.cases"
local op = require "neap.op"

-- Reads FOLDER/NAME.onnx, NAME.in.npz, NAME.out.npz for each NAME of the list on its input, and
-- prints what is wrong with each: "NAME<tab>ok" or "NAME<tab>kernel|failed<tab>why".
local python_code = [[
import sys, numpy, onnxruntime as ort
folder = sys.argv[1]
options = ort.SessionOptions()
options.log_severity_level = 4
def check(name):
    path = folder + "/" + name
    try:
        s = ort.InferenceSession(path + ".onnx", options, providers=["CPUExecutionProvider"])
    except Exception as e:
        text = str(e).replace("\n", " ")
        return ("kernel" if "NOT_IMPLEMENTED" in text else "failed") + "\t" + text[:300]
    given, want = numpy.load(path + ".in.npz"), numpy.load(path + ".out.npz")
    try:
        got = s.run(None, {i.name: given[i.name] for i in s.get_inputs()})
    except Exception as e:
        return "failed\t" + str(e).replace("\n", " ")[:300]
    for k, y in enumerate(got):
        w = want["out%d" % (k + 1)]
        if y.shape != w.shape or y.dtype != w.dtype:
            return "failed\toutput %d is %s %s, expected %s %s" % (k, y.dtype, y.shape, w.dtype,
                w.shape)
        a, b = y.astype(numpy.float64), w.astype(numpy.float64)
        same = (a == b) | (numpy.isnan(a) & numpy.isnan(b))
        if same.all(): continue
        finite = b[numpy.isfinite(b)]
        most = max(abs(finite).max() if finite.size else 0, 1e-30)
        off = numpy.abs(a - b)[~same]
        limit = 1e-2 if w.dtype == numpy.float16 else 1e-4
        if not (off <= limit * most).all():
            return "failed\toutput %d: off by %.3g of %.3g" % (k, off.max(), most)
    return "ok"
for line in sys.stdin:
    name = line.strip()
    print(name + "\t" + check(name), flush=True)
]]

local python, only, i = "python3", {}, 1
while arg[i] do
  if arg[i] == "--python" then
    python = arg[i + 1] or error("peer.lua: --python expects a path", 0)
    i = i + 1
  else
    only[arg[i]] = op.records[arg[i]] and true
      or error(('peer.lua: there is no op "%s"'):format(arg[i]), 0)
  end
  i = i + 1
end

--- Cases in which ONNX Runtime has a way or a limit of its own, by what is in the net's text.
local of_the_peers = {
  ConvTranspose = { "output_padding = {2}", "its output_padding stays below the stride" },
  GroupNorm = { "(0,4,3)", "it refuses Reshapes of nothing" },
  LRN = { "size = 4", "its windows are odd" },
  LSTM = { "", "a sequence of no steps ends in zeros, not in its first state" },
  Pad = { "(1,1)", "one element is reflected nowhere" },
  SoftmaxCrossEntropy = { "(0,4)", "it refuses Reshapes of nothing" },
  TopK = { "sorted = false", "the order is anyone's" },
}

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

if not os.execute(quoted(python) .. " -c 'import onnxruntime' 2>/dev/null") then
  print(("skipped: %s has no module onnxruntime"):format(python))
  os.exit(0)
end

local folder = os.tmpname()
os.remove(folder)
assert(os.execute("mkdir -p " .. folder))
local n = { ok = 0, failed = 0, kernel = 0, lacking = 0 }
local other_way = {} -- by file: why it may differ

--- Exports one case; true where there is a file to run.
local function export(name, case)
  local net, feeds = cases.net_of(case), cases.values_of(case)
  local ws <close> = cases.run(net, feeds)
  local path = folder .. "/" .. name
  local peers = of_the_peers[name:match "^%w+"]
  if peers and net:text():find(peers[1], 1, true) then other_way[name] = peers[2] end
  local ok, message, _, list = neap.export(net, path .. ".onnx", { workspace = ws })
  if not ok then
    if not list then error(message, 0) end
    n.lacking = n.lacking + 1
    return false
  end
  local given, want = {}, {}
  for _, input in ipairs(net:inputs()) do given[input.name] = feeds[input.name] end
  for k, output in ipairs(net:outputs()) do want["out" .. k] = ws:fetch(output) end
  if not next(given) then given.none = neap.zeros(1) end
  for _, t in pairs(given) do
    if t.dtype == "bf16" then return false end
  end
  assert(neap.save(path .. ".in.npz", given))
  assert(neap.save(path .. ".out.npz", want))
  return true
end

local list <close> = assert(io.open(folder .. "/list", "w"))
for _, name in ipairs(cases.own_names()) do
  local record = op.records[name]
  local is_public = not (record.internal or record.control or record.random or record.extent
    or #record.enforced > 0)
  if is_public and (not next(only) or only[name]) then
    for k, case in ipairs(cases.cases_of(record)) do
      local file = ("%s.%d"):format(name, k)
      local ok, result = pcall(export, file, case)
      if ok and result then list:write(file, "\n") end
      if not ok then
        n.failed = n.failed + 1
        print(("FAILED %s: %s"):format(file, tostring(type(result) == "table" and result.message
          or result)))
      end
    end
    collectgarbage()
  end
end
list:close()
local code = assert(io.open(folder .. "/peer.py", "w"))
code:write(python_code)
code:close()
local pipe <close> = assert(io.popen(("%s %s/peer.py %s <%s/list 2>/dev/null"):format(
    quoted(python), folder, folder, folder)))
for line in pipe:lines() do
  local name, what, why = line:match "^([^\t]*)\t([^\t]*)\t?(.*)$"
  if what == "failed" and other_way[name] then
    what, why = "kernel", other_way[name]
  end
  n[what] = n[what] + 1
  if what ~= "ok" then
    print(("%-7s %s: %s"):format(what == "failed" and "FAILED" or what, name, why))
  end
end
os.execute("rm -rf " .. folder)
print(("%d passed, %d failed, %d without a kernel, %d not in ONNX"):format(n.ok, n.failed, n.kernel,
  n.lacking))
os.exit(n.failed == 0 and 0 or 1, true)
