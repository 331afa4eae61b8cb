--- A siamese net: one encoder of three inputs, and a loss of its three outputs.
--
--   build/neap run scripts/examples/siamese.lua [--quick]
local neap = require "neap"
local nn, optim = neap.nn, neap.optim
local quick = arg and arg[1] == "--quick"
neap.seed(1)

local Siamese = nn.module {
  "Siamese",
  init = function(self)
    self.encoder = nn.Sequential { nn.Linear { 8, 32 }, nn.ReLU(), nn.Linear { 32, 4 } }
  end,
  forward = function(self, anchor, same, other)
    return self.encoder(anchor), self.encoder(same), self.encoder(other)
  end,
}

-- Points of five classes, whose sign patterns differ; noise hides them.
local centres = neap.randn(5, 8)
local function points(classes)
  return centres:gather(classes) + neap.randn(#classes, 8) * 0.6
end
local n = 200
local classes = neap.arange(0, n):to("i64"):apply_(function(i) return i % 5 end)
local others = neap.arange(0, n):to("i64"):apply_(function(i) return (i + 1 + i // 5 % 4) % 5 end)

local t <close> = neap.trainer {
  model = Siamese {}, loss = nn.TripletMarginLoss { margin = 1 },
  optimizer = optim.Adam { lr = 5e-3 }, seed = 2,
}
local set = neap.data.tensors {
  anchor = points(classes), same = points(classes), other = points(others), batch = 40,
  shuffle = true,
}
t:fit(set, { epochs = quick and 30 or 100, verbose = 0 })

local a, b, c = t:predict(points(classes), points(classes), points(others))
local distance = nn.PairwiseDistance()
local right = distance(a, b):lt(distance(a, c)):to("f32"):mean():item()
print(("%.0f %% of new pairs of a class are nearer than pairs of two"):format(100 * right))
