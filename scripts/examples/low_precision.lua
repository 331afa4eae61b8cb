--- Inference in fewer bits: a trained net asked in f32, bf16 and f16. What each takes in memory is
-- known before it runs; what it costs is measured in answers that differ.
--
--   build/neap run scripts/examples/low_precision.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = ... == "--quick"
neap.seed(1)

-- Pictures of one of eight waves, in noise.
local n = quick and 400 or 2000
local at = (neap.rand(n) * 8):floor()
local phase = (at % 4):reshape(n, 1, 1, 1) * (math.pi / 4)
local lies = at:lt(4):to("f32"):reshape(n, 1, 1, 1)
local row, column = neap.arange(0, 16):reshape(1, 1, 16, 1), neap.arange(0, 16):reshape(1, 1, 1, 16)
local x = ((row * lies + column * (1 - lies)) * (math.pi / 4) + phase):sin()
  + neap.randn(n, 1, 16, 16) * 0.8
local set = neap.data.tensors { x = x, y = at:to "i64", batch = 40, shuffle = true }
local train, valid = set:split { 0.75, 0.25 }

local model = nn.Sequential { input = { 1, 16, 16 }, seed = 2,
  nn.Conv2d { 1, 16, kernel = 3, pad = 1 }, nn.ReLU(), nn.MaxPool2d { 2 },
  nn.Conv2d { 16, 32, kernel = 3, pad = 1 }, nn.ReLU(), nn.MaxPool2d { 2 },
  nn.Flatten(), nn.Linear { 512, 64 }, nn.ReLU(), nn.Linear { 64, 8 } }
do
  local t <close> = neap.trainer { model = model, loss = nn.CrossEntropyLoss(), seed = 3,
    optimizer = optim.Adam { lr = 3e-3 } }
  t:fit(train, { epochs = quick and 4 or 6, verbose = 0 })
end

-- The same weights in trainers that only ask: what a dtype is given to computes in it.
local exact
for _, dtype in ipairs { "f32", "bf16", "f16" } do
  local t <close> = neap.trainer { model = model, loss = nn.CrossEntropyLoss(),
    metrics = "accuracy", dtype = dtype, optimizer = optim.SGD { lr = 0 } }
  local plan, y = model:plan { batch = 40, dtype = dtype }, t:predict(valid:with({ batch = 100,
    shuffle = false }):epoch(1)().x)
  exact = exact or y
  print(("%-4s arena %9s, %d ops computed in f32; %.3f right, logits off by %.2g"):format(dtype,
    neap.bytes(plan.arena_bytes), plan.n_widened, t:evaluate(valid).accuracy,
    (y - exact):abs():max():item()))
end
