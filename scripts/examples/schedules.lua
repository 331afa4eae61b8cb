--- Rates that warm up, then fall along a cosine, and an exponential moving average of the weights:
-- what the average gives is judged beside what the last step left, and saved.
--
--   build/neap run scripts/examples/schedules.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local epochs = ... == "--quick" and 8 or 30
neap.seed(1)

-- Two spirals, with a quarter of the labels wrong.
local n = 600
local turn = neap.rand(n, 1) * 9 + 1
local label = neap.rand(n, 1):gt(0.5):to "f32"
local angle = turn * 0.7 + label * math.pi
local x = neap.concat({ angle:cos() * turn, angle:sin() * turn }, { axis = 2 }) / 5
local wrong = neap.rand(n, 1):lt(0.25):to "f32"
local seen = (label - wrong):abs():reshape(n):to "i64"
local train = neap.data.tensors { x = x, y = seen, batch = 20, shuffle = true }
local truth = neap.data.tensors { x = x, y = label:reshape(n):to "i64", batch = 100 }

local steps = epochs * n // 20
local rise = steps // 10
local schedule = optim.sequence { at = { rise },
  { optim.linear { rise, from = 0.01 }, optim.cosine { steps - rise, least = 0.005 } } }
for _, at in ipairs { 1, rise // 2, rise, steps // 2, steps } do
  print(("rate of step %4d: %.5f"):format(at, schedule(at, 0.02, {})))
end

local t <close> = neap.trainer { loss = nn.CrossEntropyLoss(), metrics = "accuracy", seed = 2,
  model = nn.Sequential { input = { 2 }, nn.Linear { 2, 64 }, nn.SiLU(), nn.Linear { 64, 64 },
    nn.SiLU(), nn.Linear { 64, 2 } },
  optimizer = optim.AdamW { lr = 0.02, average = 0.97 }, schedule = schedule }
t:fit(train, { epochs = epochs, verbose = 0 })
local last = t:evaluate(truth).accuracy
t:averaged(function()
  local averaged = t:evaluate(truth).accuracy
  local path = os.tmpname() .. ".safetensors"
  assert(t.model:save(path))
  os.remove(path)
  print(("true labels found: %.3f by the last weights, %.3f by their average"):format(
    last, averaged))
end)
