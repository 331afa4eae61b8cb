-- layers: a model stepped through by hand, layer by layer, and its memory as four lists.
-- neap run scripts/examples/layers.lua [--quick]
local neap = require "neap"
local nn = neap.nn
local steps = ... == "--quick" and 150 or 2000

local model = nn.Sequential {
  input = { 2 }, seed = 3,
  nn.Linear { 2, 16, name = "fc1" }, nn.Tanh { name = "tanh" }, nn.Dropout { 0.1, name = "drop" },
  nn.Linear { 16, 1, name = "fc2" },
}
-- planned once; any smaller batch runs in the same bytes
local memory = model:memory { max_batch = 8 }

--- n points, and whether their coordinates differ in sign.
local function batch(n)
  local x, t = neap.rand { n, 2 } * 2 - 1, neap.zeros(n, 1)
  for i = 1, n do t[{ i, 1 }] = x[{ i, 1 }] * x[{ i, 2 }] < 0 and 1 or -1 end
  return x, t
end

neap.seed(5)
local first, last
for step = 1, steps do
  local n = step % 8 + 1
  local x, t = batch(n)
  local d = memory:forward(x) - t
  last = 0.95 * (last or 1) + 0.05 * (d * d):mean():item()
  first = first or last
  memory:backward(d * (2 / n))
  for _, p in ipairs(model.params) do p.data:copy_(p.data - p.diff * 0.1) end
end
print(("loss %.3f at first, %.3f at last"):format(first, last))

-- What a training forward leaves: outputs, inputs that are the outputs below them, and on each
-- cache what its backward will read.
memory:forward((batch(4)))
for i, output in ipairs(model.outputs) do
  print(output.name, "in " .. model.inputs[i].data:n_bytes() .. " B",
    "out " .. output.data:n_bytes() .. " B",
    "cache: " .. table.concat(model.caches[i]:labels(), ", "))
end
print("an input is the output below it:", model.inputs[2].data:same(model.outputs[1].data))

-- After the backward the caches are empty, and all have their diffs; entries go in any order, each
-- once.
memory:backward(neap.ones(4, 1))
print("left on caches:", #model.caches[1] + #model.caches[2] + #model.caches[3] + #model.caches[4])
print("fc1.weight.diff:", table.unpack(model.params["fc1.weight"].diff.shape))
memory:drop("outputs", 1)
print("the shadow still has its numbers:", model.inputs[2].data.shape[2] == 16)
memory:drop("inputs", 2)
memory:free()
