-- mlp: fully connected layers with ReLU between them, for digits of 28x28: 784-500-300-10, the
-- smallest of the benchmark nets. { widths = { 300, 100 } } is the net of LeCun et al., Proc. IEEE
-- 1998, section C.3, with its 266,610 parameters.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn = neap.nn

local function build(o)
  local layers, n_in = { input = { o.inputs } }, o.inputs
  for _, width in ipairs(o.widths) do
    parts.add(layers, nn.Linear { n_in, width }, nn.ReLU())
    n_in = width
  end
  parts.add(layers, nn.Linear { n_in, o.classes })
  return { model = nn.Sequential(layers), batch = o.batch, n_class = o.classes }
end

return {
  options = {
    doc = "Fully connected layers with ReLU between them.",
    { "inputs", "integer", 784, min = 1, doc = "numbers of one example" },
    { "widths", "shape", { 500, 300 }, doc = "widths of the layers between" },
    parts.classes(10), parts.batch(128),
  },
  published = 545810,
  build = build,
}
