--- What the spec of records makes of layers: what each can't do without, the shape of an example,
-- and the text of its nets.
local neap = require "neap"
local nn = neap.nn
local record_layers = {}

local function linear() return nn.Linear { 4, 2 } end

-- By record: options that are required, and what shows the others.
local base = {
  ["nn.PositionEmbedding"] = { length = 3, width = 4 },
  ["nn.PixelShuffle"] = { factor = 2 }, ["nn.PixelUnshuffle"] = { factor = 2 },
  ["nn.ChannelShuffle"] = { groups = 4 },
  ["nn.Parallel"] = { linear() }, ["nn.ModuleList"] = { linear() },
  ["nn.Bidirectional"] = { forward = nn.RNN { 4, 4 }, backward = nn.RNN { 4, 4 } },
  ["nn.Unflatten"] = { sizes = { 2, 2 } }, ["nn.Fold"] = { sizes = { 6, 6 }, kernel = 2 },
  ["nn.SqueezeExcite"] = { channels = 4, squeezed = 2 },
  ["nn.Bilinear"] = { n_a = 3, n_b = 3, n_out = 2 },
  ["nn.Unfold"] = { kernel = 2 }, ["nn.EmbeddingBag"] = { n_row = 5, width = 4 },
  ["nn.InvertedResidual"] = { n_in = 4, n_out = 4 },
  ["nn.MultiheadAttention"] = { width = 8 }, ["nn.TransformerEncoderLayer"] = { width = 8 },
  ["nn.TransformerDecoderLayer"] = { width = 8 }, ["nn.TransformerEncoder"] = { width = 8 },
  ["nn.TransformerDecoder"] = { width = 8 },
  ["nn.Lambda"] = { f = function(x) return x:relu() end },
  ["nn.Sequential"] = { linear() }, ["nn.Residual"] = { nn.Linear { 4, 4 } },
  ["nn.Concat"] = { linear(), linear() },
  ["nn.Embedding"] = { n_row = 5, width = 4 }, ["nn.SelfAttention"] = { width = 4 },
}
for _, rank in ipairs { 1, 2, 3 } do
  base[("nn.Conv%dd"):format(rank)] = { n_in = 2, n_out = 2, kernel = 2 }
  for _, kind in ipairs { "Max", "Avg" } do
    base[("nn.Adaptive%sPool%dd"):format(kind, rank)] = { output_size = 2 }
  end
  base[("nn.ConvTranspose%dd"):format(rank)] = { n_in = 2, n_out = 2, kernel = 2 }
end
for _, name in ipairs { "MaxPool1d", "MaxPool2d", "MaxPool3d", "AvgPool1d", "AvgPool2d",
  "AvgPool3d", "LPPool1d", "LPPool2d", "LPPool3d" } do
  base["nn." .. name] = { kernel = 4, pad = 1 }
end
base["nn.GroupNorm"] = { groups = 2, channels = 4 }
for _, name in ipairs { "Linear", "LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell" } do
  base["nn." .. name] = { n_in = 4, n_out = 2 }
end
for _, name in ipairs { "Zero", "Constant", "Reflection", "Replication", "Circular" } do
  for rank = 1, 3 do base[("nn.%sPad%dd"):format(name, rank)] = { pad = 1 } end
end
record_layers.needed = base

-- Shapes of one example, by class.
local shape_of = { Conv1d = { 2, 6 }, Conv2d = { 2, 6, 6 }, Conv3d = { 2, 4, 4, 4 },
  ConvTranspose1d = { 2, 4 }, ConvTranspose2d = { 2, 4, 4 }, ConvTranspose3d = { 2, 3, 3, 3 },
  MaxPool1d = { 2, 7 }, AvgPool1d = { 2, 7 }, MaxPool2d = { 2, 7, 7 }, AvgPool2d = { 2, 7, 7 },
  LPPool1d = { 2, 7 }, LPPool2d = { 2, 7, 7 }, LPPool3d = { 2, 5, 5, 5 },
  AdaptiveAvgPool1d = { 2, 7 }, AdaptiveAvgPool2d = { 2, 7, 7 }, AdaptiveAvgPool3d = { 2, 5, 5, 5 },
  AdaptiveMaxPool1d = { 2, 7 }, AdaptiveMaxPool2d = { 2, 7, 7 }, AdaptiveMaxPool3d = { 2, 5, 5, 5 },
  MaxPool3d = { 2, 5, 5, 5 }, AvgPool3d = { 2, 5, 5, 5 },
  GroupNorm = { 4, 3 }, InstanceNorm1d = { 2, 3 }, InstanceNorm2d = { 2, 3, 3 },
  InstanceNorm3d = { 2, 2, 2, 2 }, BatchNorm1d = { 2 }, BatchNorm2d = { 2, 3, 3 },
  BatchNorm3d = { 2, 2, 2, 2 }, LSTM = { 3, 4 }, GRU = { 3, 4 }, RNN = { 3, 4 },
  Upsample = { 2, 3, 3 },
  PixelShuffle = { 36, 6, 6 }, PixelUnshuffle = { 2, 6, 6 }, ChannelShuffle = { 20 },
  Unfold = { 2, 6, 6 }, Fold = function(m)
    local o, patches = m.o, 1
    for d = 1, 2 do
      local reach = (o.dilation[d] * (o.kernel[d] - 1)) + 1
      patches = patches * ((o.sizes[d] + 2 * o.pad[d] - reach) // o.stride[d] + 1)
    end
    return { 2 * o.kernel[1] * o.kernel[2], patches }
  end,
  Unflatten = { 4, 4 }, Flatten = { 3, 4 },
  SqueezeExcite = { 4, 3, 3 }, Bidirectional = { 3, 4 },
  PositionEmbedding = function(m) return { 3, m.width } end,
  PositionalEncoding = { 3, 4 }, RotaryEmbedding = { 3, 4 },
  MultiheadAttention = function(m)
    return { { 3, m.width }, { 2, m.key_width }, { 2, m.value_width } }
  end,
  TransformerEncoderLayer = function(m) return { 3, m.width } end,
  TransformerEncoder = function(m) return { 3, m.width } end,
  TransformerDecoderLayer = function(m) return { { 3, m.width }, { 2, m.width } } end,
  TransformerDecoder = function(m) return { { 3, m.width }, { 2, m.width } } end,
  LSTMCell = { 4 }, GRUCell = { 4 }, RNNCell = { 4 },
  CosineSimilarity = { { 4 }, { 4 } }, PairwiseDistance = { { 4 }, { 4 } },
  Bilinear = function(m)
    local sizes = m:param("weight").shape
    return { { sizes[2] }, { sizes[3] } }
  end,
  InvertedResidual = function(m) return { (m.expand or m.depthwise).n_in, 4, 4 } end,
  EmbeddingBag = { shape = { 3 }, dtype = "i64" },
  SelfAttention = { 3, 4 }, GlobalAvgPool = { 2, 3, 3 }, LocalResponseNorm = { 6, 3, 3 },
  Embedding = { shape = { 3 }, dtype = "i64" } }

for _, name in ipairs { "Zero", "Constant", "Reflection", "Replication", "Circular" } do
  shape_of[name .. "Pad1d"], shape_of[name .. "Pad2d"] = { 2, 5 }, { 2, 5, 5 }
  shape_of[name .. "Pad3d"] = { 2, 5, 5, 5 }
end

local mean = nn.module { "Mean", name = "loss", forward = function(_, y) return y:mean() end } {}

-- Something to train behind a layer that has no parameters.
local scale = nn.module { "Scale", init = function(self) self:param("by", { 1 }, 1) end,
  forward = function(self, x) return x * self.by end }

--- The nets of a layer, for training and without, and how its parameters begin.
function record_layers.text(m)
  local class, found = m._class, { tostring(rawget(m, "input_shape") or m._fields.input_shape) }
  local width = rawget(m, "_fields").width or rawget(m, "_fields").n_in
    or rawget(m, "_fields").channels
  local shape, dtype = shape_of[class] or { 4 }, "f32"
  if type(shape) == "function" then shape, width = shape(m), nil end
  if shape.shape then shape, dtype = shape.shape, shape.dtype end
  if class == "SelfAttention" then shape = { 3, m.proj.n_in } end
  if width and class ~= "Embedding" and class ~= "SelfAttention" then
    shape = table.move(shape, 1, #shape, 1, {})
    local of_channels = class:find "Conv" or class:find "BatchNorm" or class:find "GroupNorm"
      or class:find "InstanceNorm" or class == "SqueezeExcite"
    local d = of_channels and 1 or #shape
    shape[d] = width
  end
  if class == "ModuleList" then -- which has no forward
    for name, p in m:parameters() do found[#found + 1] = name .. table.concat(p.shape, ",") end
    return table.concat(found, "\n") .. tostring(m._wanted_name)
  end
  -- Of a layer that gives states, too, all of them.
  local one = m
  if m.states or class:find "Cell" then
    one = nn.Lambda(function(x)
      local all = { m(x) }
      for k = 2, #all do all[1] = all[1] + all[k]:sum() end
      return all[1]
    end)
  end
  local root = nn.Sequential { one, scale {} }
  for _, train in ipairs { true, false } do
    local ok, net = pcall(root.net, root, { batch = 2, train = train, loss = train and mean or nil,
      target = false, input = shape, input_dtype = dtype })
    if ok then found[#found + 1] = net:text() end
  end
  assert(#found > 1, class .. ": no net of it")
  if m._seed then found[#found + 1] = tostring(m._seed) end
  return table.concat(found, "\n")
end

return record_layers
