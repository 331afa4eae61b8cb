--- Weights to PyTorch and back: a net saved under the names that torch.nn.Sequential gives, the
-- code that opens it there, and a file of PyTorch's names read by a model that has others.
--
--   build/neap run scripts/examples/exchange.lua [--quick]
local neap = require "neap"
local nn = neap.nn
neap.seed(1)

local model = nn.Sequential { input = { 3, 16, 16 },
  nn.Conv2d { 3, 8, kernel = 3, pad = 1, name = "0" }, nn.BatchNorm2d { 8, name = "1" }, nn.ReLU(),
  nn.MaxPool2d { 2 }, nn.Flatten(), nn.Linear { 512, 10, name = "5" } }

-- Shapes and orders are PyTorch's own: (out, in, kh, kw), (out, in). Names are, too, as long as
-- layers are called by their places there.
local weights = model:state_dict()
local names = {}
for name in pairs(weights) do names[#names + 1] = name end
table.sort(names)
for _, name in ipairs(names) do
  print(("%-16s (%s)"):format(name, table.concat(weights[name].shape, ",")))
end
local folder = os.getenv "TMPDIR" or "/tmp"
local path = folder .. "/neap_exchange.safetensors"
assert(neap.save(path, weights))
print([[
in PyTorch:
  net = torch.nn.Sequential(Conv2d(3, 8, 3, padding=1), BatchNorm2d(8), ReLU(), MaxPool2d(2),
                            Flatten(), Linear(512, 10))
  net.load_state_dict(safetensors.torch.load_file("]] .. path .. [["), strict=False)]])

-- The way back: a model whose layers have names of their own takes a file by a table of names.
local other = nn.Sequential { input = { 3, 16, 16 },
  nn.Conv2d { 3, 8, kernel = 3, pad = 1, name = "stem" }, nn.BatchNorm2d { 8, name = "norm" },
  nn.ReLU(), nn.MaxPool2d { 2 }, nn.Flatten(), nn.Linear { 512, 10, name = "head" } }
local own, renamed = { ["0"] = "stem", ["1"] = "norm", ["5"] = "head" }, {}
for name, t in pairs(assert(neap.load(path))) do
  local layer, rest = name:match "^(%d+)%.(.+)$"
  renamed[own[layer] .. "." .. rest] = t
end
other:load_state_dict(renamed)
local x = neap.rand(2, 3, 16, 16)
model:eval()
other:eval()
print("the same answers:", model(x):equal(other(x)))

-- The whole net, not its weights alone, goes as ONNX.
local onnx = folder .. "/neap_exchange.onnx"
assert(neap.export(model, onnx, { batch = 2 }))
local again = assert(neap.import(onnx))
print("and from ONNX:", (again(x) - model(x)):abs():max():item() < 1e-5)
os.remove(path)
os.remove(onnx)
