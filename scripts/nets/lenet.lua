-- lenet: LeCun et al., Proc. IEEE 1998, in the form of Caffe's MNIST example.
local neap = require "neap"
local nn = neap.nn
local classes = (select(2, ...) or {}).classes or 10

return {
  model = nn.Sequential { input = { 1, 28, 28 },
    nn.Conv2d { 1, 20, kernel = 5 }, nn.MaxPool2d { 2 },
    nn.Conv2d { 20, 50, kernel = 5 }, nn.MaxPool2d { 2 },
    nn.Flatten(), nn.Linear { 800, 500 }, nn.ReLU(), nn.Linear { 500, classes },
  },
  batch = 64, n_class = classes,
}
