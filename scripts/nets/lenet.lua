-- lenet: LeCun et al., "Gradient-based learning applied to document recognition", Proc. IEEE 1998,
-- in the form of Caffe's MNIST example, with its 431,080 parameters.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn = neap.nn

local function build(o)
  return {
    model = nn.Sequential { input = { 1, 28, 28 },
      nn.Conv2d { 1, 20, kernel = 5 }, nn.MaxPool2d { 2 },
      nn.Conv2d { 20, 50, kernel = 5 }, nn.MaxPool2d { 2 },
      nn.Flatten(), nn.Linear { 800, 500 }, nn.ReLU(), nn.Linear { 500, o.classes },
    },
    batch = o.batch, n_class = o.classes,
  }
end

return {
  options = { doc = "LeNet in the form of Caffe's MNIST example.",
    parts.classes(10), parts.batch(64) },
  published = 431080,
  build = build,
}
