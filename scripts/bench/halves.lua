-- halves.lua: training in bf16 beside f32, and beside PyTorch's autocast, by turns: each round
-- measures every one of them once, in a process of its own. Printed are the best milliseconds a
-- step, what bf16 gains over f32, and how many times as long PyTorch takes.
--
--   neap run scripts/bench/halves.lua [--infer] [--rounds 3] [--seconds 3]
--     [--peers SCRIPT [--python INTERPRETER]] [NET:BATCH ..]
--
-- SCRIPT is Python whose build(name, batch) gives a model, its input, target and loss, as
-- busy.lua's has one; without it, or where INTERPRETER has no torch, PyTorch is left out.
local core = require "neap.core"
local cjson = require "cjson"

local n_round, seconds, python, script, infer = 3, 3, "python3", nil, false
local nets = {}

local python_code = [[
import importlib.util, sys, time, torch
import torch.nn.functional as F
spec = importlib.util.spec_from_file_location("peers", sys.argv[1])
peers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(peers)
name, batch = sys.argv[2].split(":")
infer, seconds = sys.argv[3] == "infer", float(sys.argv[4])
torch.set_num_threads(2)
model, x, target, loss = peers.build(name, int(batch))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
model.train(not infer)
def step():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if infer:
            with torch.inference_mode():
                model(x)
            return
        value = loss(model, x, target)
    optimizer.zero_grad(set_to_none=False)
    value.backward()
    optimizer.step()
step()
step()
best, n, start = 1e9, 0, time.perf_counter()
while n < 5 or time.perf_counter() - start < seconds:
    begin = time.perf_counter()
    step()
    best = min(best, time.perf_counter() - begin)
    n += 1
print(best * 1e3)
]]

local function output(command)
  local pipe <close> = assert(io.popen(command))
  return pipe:read "a"
end

local takes = {
  ["--rounds"] = function(text) n_round = math.tointeger(tonumber(text)) return n_round end,
  ["--seconds"] = function(text) seconds = tonumber(text) return seconds end,
  ["--peers"] = function(text) script = text return text end,
  ["--python"] = function(text) python = text return text end,
}
local i = 1
while arg[i] do
  if arg[i] == "--infer" then
    infer = true
  elseif takes[arg[i]] then
    assert(takes[arg[i]](arg[i + 1]), "halves: a value should follow " .. arg[i])
    i = i + 1
  elseif arg[i]:find "^%-" then
    error("halves: unknown option " .. arg[i], 0)
  else
    nets[#nets + 1] = arg[i]
  end
  i = i + 1
end
if #nets == 0 then nets = { "resnet50:16", "vgg16:8", "resnet18c:32", "googlenet:16", "gpt:8" } end

local has_torch = script ~= nil
  and os.execute(("'%s' -c 'import torch' 2>/dev/null"):format(python))
if not has_torch then
  print(script and "torch: skipped, no such module" or "torch: skipped, no --peers")
end
local code_path = os.tmpname()
do
  local file <close> = assert(io.open(code_path, "w"))
  file:write(python_code)
end

local program = core.program_path()
local function neap_ms(net, dtype)
  local text = output(("NEAP_DB=off '%s' bench %s %s --dtype %s --seconds %g --json"):format(
    program, net, infer and "--infer" or "", dtype, seconds))
  return cjson.decode(text)[1].step_ms_min
end
local function torch_ms(net)
  return tonumber(output(("'%s' '%s' '%s' %s %s %g 2>/dev/null"):format(python, code_path, script,
    net, infer and "infer" or "train", seconds)))
end

print(("%-14s %9s %9s %9s %9s %12s"):format("net", "f32", "bf16", "torch", "f32/bf16",
  "torch/bf16"))
for _, net in ipairs(nets) do
  -- The best of all rounds: what others do to the machine only adds.
  local f32, bf16, torch = math.huge, math.huge, math.huge
  for _ = 1, n_round do
    f32 = math.min(f32, neap_ms(net, "f32"))
    bf16 = math.min(bf16, neap_ms(net, "bf16"))
    torch = math.min(torch, has_torch and torch_ms(net) or math.huge)
  end
  print(("%-14s %9.1f %9.1f %9.1f %9.2f %12.2f"):format(net, f32, bf16, torch, f32 / bf16,
    torch / bf16))
end
os.remove(code_path)
