--- Parts that several nets of the zoo have: a convolution with its norm and activation, the head of
-- a classifier, and the options that their families share.
-- @module neap.zoo.parts
local nn = require "neap.nn"
local parts = {}

--- Convolution without bias, batch norm, activation: what most nets since 2015 are made of. Kernels
-- of odd size keep the size of the image, but for the stride.
-- @param o table { n_in, n_out, kernel = 1, stride = 1, groups = 1, pad = kernel // 2, act = a
--   class of nn, none by default, init =, eps =, momentum = }
-- @return module
function parts.conv(o)
  local kernel = o.kernel or 1
  local layers = {
    nn.Conv2d {
      o[1], o[2], kernel = kernel, stride = o.stride or 1, groups = o.groups or 1,
      pad = o.pad or kernel // 2, bias = false, init = o.init,
    },
    nn.BatchNorm2d { o[2], eps = o.eps, momentum = o.momentum },
  }
  if o.act then layers[3] = o.act() end
  return nn.Sequential(layers)
end

--- Inverted residual: 1x1 up to `expanded` channels, depthwise convolution, 1x1 down; x is added
-- where the shape stays (Sandler et al., CVPR 2018): nn.InvertedResidual with norms' eps and a gate
-- of the net's own.
-- @param o table { n_in, n_out, expanded =, kernel = 3, stride = 1, act = class, eps =,
--   squeeze = { channels, activation, gate } of nn.SqueezeExcite, none by default }
-- @return module
-- Up to `expanded` channels unless there are as many already; depthwise; down again.
function parts.inverted(o)
  local layers, n = {}, o.expanded
  if n ~= o[1] then parts.add(layers, parts.conv { o[1], n, eps = o.eps, act = o.act }) end
  parts.add(layers, parts.conv {
    n, n, kernel = o.kernel or 3, stride = o.stride, groups = n, eps = o.eps, act = o.act,
  })
  if o.squeeze then
    local squeezed, activation, gate = table.unpack(o.squeeze)
    parts.add(layers, nn.SqueezeExcite { n, squeezed, activation = activation, gate = gate })
  end
  parts.add(layers, parts.conv { n, o[2], eps = o.eps })

  -- The sum only where shapes stay.
  return o.stride ~= 2 and o[1] == o[2] and nn.Residual(layers) or nn.Sequential(layers)
end

--- Appends layers to a list. @return the list
function parts.add(list, ...)
  for _, layer in ipairs { ... } do list[#list + 1] = layer end
  return list
end

--- The mean over the image, then scores. `dropout` is what is dropped between the two.
-- @return list of layers
function parts.head(n_in, classes, dropout)
  local layers = { nn.GlobalAvgPool(), nn.Flatten() }
  if dropout then parts.add(layers, nn.Dropout { dropout }) end
  return table.unpack(parts.add(layers, nn.Linear { n_in, classes }))
end

--- A number of channels times a factor, a multiple of 8 that is not below nine tenths of it: the
-- rule of the MobileNets.
function parts.scaled(channels, factor)
  local wanted = channels * factor
  local rounded = math.max(8, (wanted + 4) // 8 * 8)
  if rounded < 0.9 * wanted then rounded = rounded + 8 end
  return math.tointeger(rounded)
end

--- Options of families: { name, type, default, .. } of records.
function parts.classes(n)
  return { "classes", "integer", n or 1000, min = 1, doc = "scores that the net gives" }
end
function parts.image(side, least)
  return { "image", "integer", side, min = least or 32, doc = "height and width of the images" }
end
function parts.batch(n)
  return { "batch", "integer", n, min = 1, doc = "examples of a batch, where nobody says more" }
end

return parts
