-- vgg_a: configuration A of Simonyan and Zisserman, ICLR 2015, table 1: eight convolutions, three
-- fully connected layers.
local neap = require "neap"
local nn, init = neap.nn, neap.init

local layers, n_in = { input = { 3, 224, 224 } }, 3
for _, n_out in ipairs { 64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0 } do
  if n_out == 0 then
    layers[#layers + 1] = nn.MaxPool2d { 2 }
  else
    layers[#layers + 1] = nn.Conv2d { n_in, n_out, kernel = 3, pad = 1, init = init.kaiming {} }
    layers[#layers + 1] = nn.ReLU()
    n_in = n_out
  end
end
for _, layer in ipairs {
  nn.Flatten(), nn.Linear { 25088, 4096 }, nn.ReLU(), nn.Dropout { 0.5 }, nn.Linear { 4096, 4096 },
  nn.ReLU(),
  nn.Dropout { 0.5 }, nn.Linear { 4096, 1000 },
} do
  layers[#layers + 1] = layer
end

return { model = nn.Sequential(layers), batch = 64, n_class = 1000 }
