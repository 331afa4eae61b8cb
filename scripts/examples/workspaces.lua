-- workspaces: nets by name and trees of steps, a model's memory as lists, files as blobs, pictures.
-- neap run scripts/examples/workspaces.lua [--quick]
local neap = require "neap"
local nn = neap.nn
local rounds = ... == "--quick" and 3 or 100

-- Two nets of one workspace, run by a tree of steps: what `count` adds up is resident, so the next
-- round finds it.
local ws <close> = neap.workspace { seed = 1 }
local count = neap.net "count"
count:declare("total", "state", { 1 }, "f32", { op = "Constant", value = 0 })
count:op("Accumulate", { "total", count:const(neap.tensor { 1 }) }, "total")
local square = neap.net "square"
square:declare("total", "state", { 1 })
square:Mul({ "total", "total" }, "squared")
square:outputs { "squared" }
ws:init(count)
ws:add_net(count)
ws:add_net(square)
ws:run_steps { { "count", iterations = rounds }, { "square" } }
print(("after %d rounds: total %g, squared %g"):format(rounds, ws:fetch("total"):item(),
  ws:fetch("squared"):item()))

-- A child reads its parent's blobs under names of its own, and writes its own.
local child <close> = ws:child { forward = { input = "total" } }
print("the child sees", child:fetch("input"):item())

-- A model's memory as lists; nothing of it is stored twice, and each parameter has its data and its
-- diff.
local model = nn.Sequential {
  input = { 12 }, seed = 2, nn.Linear { 12, 8 }, nn.ReLU(), nn.Linear { 8, 3 },
}
local x = neap.ones(4, 12)
model:backward(x, neap.ones(4, 3))
for _, p in ipairs(model.params) do print(p.name, p.data:n_bytes(), p.diff and p.diff:n_bytes()) end

-- Net and parameters in one file; read back mapped, its parameters are the file's bytes and nothing
-- is held for them.
local path = os.tmpname() .. ".safetensors"
assert(neap.export(model, path, { batch = 4 }))
local f = assert(neap.import(path, { map = "r" }))
print("the mapped model gives the same bits:", f(x):equal(model(x)))
os.remove(path)

-- Pictures: the net with a colour for each place in memory, and bytes by name over op order.
local plan = model:plan { batch = 4, train = true }
print(plan:dot():match "digraph [^\n]*")
local svg = os.tmpname()
assert(plan:svg(svg))
print("drawn:", svg)
os.remove(svg)
