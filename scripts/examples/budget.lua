-- budget: a training step in less memory, to the same bits: what there is no room to keep is
-- computed again. neap run scripts/examples/budget.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = ... == "--quick"

-- A deep net, so that the backward pass has much to remember.
local depth, width, rows = quick and 16 or 48, quick and 64 or 256, quick and 128 or 1024
local function model()
  local layers = { input = { width }, seed = 1 }
  for _ = 1, depth do
    layers[#layers + 1] = nn.Linear { width, width }
    layers[#layers + 1] = nn.Tanh()
  end
  layers[#layers + 1] = nn.Linear { width, 2 }
  return nn.Sequential(layers)
end
local x = neap.zeros(rows, width)
local at = 0
x:apply_(function()
  at = (at + 0.61803398875) % 1
  return 2 * at - 1
end)
local y = x:narrow(2, 1, 1):gt(neap.tensor(0)):to("i64"):reshape(rows)

-- The weights after a few steps, as one text, and the plan they were made under.
local function train(memory)
  local trainer <close> = neap.trainer {
    model = model(), optimizer = optim.SGD { lr = 0.05, momentum = 0.9 }, memory = memory, seed = 2,
  }
  for _ = 1, quick and 3 or 10 do trainer:step { x = x, y = y } end
  local bits = {}
  for name, p in trainer.model:parameters() do bits[#bits + 1] = name .. " " .. p.data:hash() end
  local plan = trainer:plan(rows)
  print(("%-16s arena %10s   %3d ops run again, %2.0f %% more work"):format(
    memory and memory.budget and "within " .. neap.bytes(memory.budget) or "no budget",
    neap.bytes(plan.arena_bytes), plan.n_recomputed, 100 * plan.recomputed_work))
  return table.concat(bits, "\n"), plan.arena_bytes
end

local whole, bytes = train()
for _, percent in ipairs { 75, 50 } do
  print("the same bits:", train { budget = bytes * percent // 100 } == whole)
end

-- How far down it goes: of the order of the square root of the depth. The refusal says what would
-- do.
local ok, refusal = pcall(train, { budget = bytes // 100 })
print(ok or refusal)
