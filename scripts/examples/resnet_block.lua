--- A residual net whose block is a plain function, which returns a module of ready-made parts:
-- no class is written. It tells bars that rise from bars that fall.
--
--   build/neap run scripts/examples/resnet_block.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = ... == "--quick"

--- Two convolutions and what goes round them; the way round has one of its own where sizes differ.
local function block(n_in, n_out, stride)
  local around
  if n_in ~= n_out or stride > 1 then
    around = nn.Sequential { nn.Conv2d { n_in, n_out, kernel = 1, stride = stride, bias = false },
      nn.BatchNorm2d { n_out } }
  end
  return nn.Sequential {
    nn.Residual { shortcut = around,
      nn.Conv2d { n_in, n_out, kernel = 3, stride = stride, pad = 1, bias = false },
      nn.BatchNorm2d { n_out }, nn.ReLU(),
      nn.Conv2d { n_out, n_out, kernel = 3, pad = 1, bias = false }, nn.BatchNorm2d { n_out } },
    nn.ReLU(),
  }
end

local model = nn.Sequential { input = { 1, 16, 16 }, seed = 1,
  nn.Conv2d { 1, 8, kernel = 3, pad = 1, bias = false }, nn.BatchNorm2d { 8 }, nn.ReLU(),
  block(8, 8, 1), block(8, 16, 2), block(16, 16, 1),
  nn.GlobalAvgPool(), nn.Flatten(), nn.Linear { 16, 2 },
}

--- Pictures of a bar in noise; label 1: it falls to the right.
local function bars(n)
  neap.seed(n)
  local row = neap.arange(0, 16):reshape(1, 1, 16, 1)
  local column = neap.arange(0, 16):reshape(1, 1, 1, 16)
  local falls = neap.rand(n, 1, 1, 1):gt(0.5):to "f32"
  local at = row - 7.5 - (column - 7.5) * (falls * 2 - 1) + neap.randn(n, 1, 1, 1) * 2
  return at:abs():lt(1.5):to "f32" + neap.randn(n, 1, 16, 16) * 0.4,
    falls:reshape(n):to "i64"
end

local x, y = bars(quick and 400 or 2000)
local t <close> = neap.trainer { model = model, loss = nn.CrossEntropyLoss(), seed = 3,
  optimizer = optim.SGD { lr = 0.05, momentum = 0.9, weight_decay = 1e-4 }, metrics = "accuracy" }
t:fit(neap.data.tensors { x = x, y = y, batch = 50, shuffle = true },
  { epochs = quick and 3 or 8, verbose = 0 })
local new_x, new_y = bars(301)
print(model:summary { batch = 1 })
print(("%.0f %% of new pictures right"):format(
  100 * t:evaluate(neap.data.tensors { x = new_x, y = new_y, batch = 50 }).accuracy))
