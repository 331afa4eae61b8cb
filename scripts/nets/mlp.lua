-- mlp: 784-500-300-10 with ReLU, the smallest of the benchmark nets.
local neap = require "neap"
local nn = neap.nn
local classes = (select(2, ...) or {}).classes or 10

return {
  model = nn.Sequential {
    input = { 784 },
    nn.Linear { 784, 500 }, nn.ReLU(), nn.Linear { 500, 300 }, nn.ReLU(),
    nn.Linear { 300, classes },
  },
  batch = 128, n_class = classes,
}
