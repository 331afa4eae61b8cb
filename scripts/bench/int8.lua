--- int8.lua [NET:BATCH ..]: inference with bytes beside ONNX Runtime's, on the same quantised net.
--
-- Each net is quantised by neap.quantize over random pictures (speed does not depend on what it has
-- learnt), run here, and exported to an ONNX file, which ONNX Runtime runs: once as exported, and
-- once as its own quantizer makes it of the real net, where that is to be had. Rounds alternate;
-- of each side the median of the rounds' best times counts. A ratio above 1 means Neap is faster.
-- $PEERS_PYTHON: a Python with onnxruntime (and onnx for the second figure).
local neap = require "neap"
local python = os.getenv "PEERS_PYTHON" or "python3"
local here = arg[0]:match "^(.*/)" or "./"
local ROUNDS <const>, SECONDS <const> = 5, 0.7

local function median(list)
  table.sort(list)
  return list[#list // 2 + 1]
end

--- Best of the times of f in SECONDS.
local function best_of(f)
  local best, ends = math.huge, neap.clock() + SECONDS
  repeat
    local from = neap.clock()
    f()
    best = math.min(best, neap.clock() - from)
  until neap.clock() > ends
  return best * 1000
end

--- Milliseconds of a run by ONNX Runtime; nil where it has no such file or can't run it.
local function peer(path, batch)
  local command = ("%s %sint8_peer.py run %s %d %d %g 2>/dev/null"):format(python, here, path,
    batch, neap.threads(), SECONDS)
  local pipe <close> = io.popen(command)
  return tonumber(pipe:read "a")
end

--- A program of a model at a batch, with random inputs.
local function program_of(model, batch)
  local ws, net = model:workspace(), (model:net { batch = batch, train = false })
  ws:init(net)
  for _, input in ipairs(net:inputs()) do ws:feed(input.name, neap.rand(input.shape)) end
  return ws:compile(net)
end

local names = #arg > 0 and arg or { "lenet:1", "lenet:64", "mlp:1", "mlp:128", "resnet50:1" }
print(("%d threads; times of ONNX Runtime as shares of Neap's with bytes"):format(neap.threads()))
print(("%-14s %12s %12s %12s"):format("net", "ort, ours", "ort, its own", "neap, real"))
for _, name in ipairs(names) do
  local net_name, batch = name:match "^(.-):(%d+)$"
  if not net_name then error(name .. ": expected NET:BATCH") end
  batch = tonumber(batch)

  local model = neap.zoo[net_name] {}
  local shape = model:net { batch = 1 }:inputs()[1].shape
  shape[1] = 4
  local q = neap.quantize(model:eval(), neap.rand(shape))

  -- Files whose names say what they are; `own` is what ONNX Runtime's quantizer makes.
  local real_path, path, own = os.tmpname(), os.tmpname(), os.tmpname()
  assert(os.rename(real_path, real_path .. ".onnx") and os.rename(path, path .. ".onnx"))
  real_path, path = real_path .. ".onnx", path .. ".onnx"
  assert(neap.export(q, path, { batch = batch }))
  assert(neap.export(model, real_path, { batch = batch }))
  os.execute(("%s %sint8_peer.py quantize %s %s %d >/dev/null 2>&1"):format(python, here, real_path,
    own, batch))

  local bytes, real = program_of(q, batch), program_of(model, batch)
  local times = { {}, {}, {}, {} }
  for _ = 1, ROUNDS do
    table.insert(times[1], best_of(function() bytes:run() end))
    table.insert(times[2], peer(path, batch))
    table.insert(times[3], peer(own, batch))
    table.insert(times[4], best_of(function() real:run() end))
  end
  for k, list in ipairs(times) do times[k] = #list > 0 and median(list) or nil end
  local function ratio(k) return times[k] and ("%.2f"):format(times[k] / times[1]) or "-" end
  print(("%-14s %12s %12s %12s"):format(name, ratio(2), ratio(3), ratio(4)))
  os.remove(path)
  os.remove(real_path)
  os.remove(own)
end
