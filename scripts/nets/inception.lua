-- inception_v3: Szegedy et al., "Rethinking the Inception architecture", CVPR 2016, table 1,
-- without the auxiliary classifier: 23,834,568 parameters, those of torchvision's model without it.
local neap = require "neap"
local parts = require "neap.zoo.parts"
local nn, add = neap.nn, parts.add

-- Kernels and pads are numbers, or { height, width }.
local function conv(n_in, n_out, kernel, pad, stride)
  return nn.Sequential {
    nn.Conv2d { n_in, n_out, kernel = kernel, pad = pad or 0, stride = stride or 1, bias = false },
    nn.BatchNorm2d { n_out, eps = 1e-3 }, nn.ReLU(),
  }
end
local function row(n_in, n_out, k) return conv(n_in, n_out, { 1, k }, { 0, k // 2 }) end
local function column(n_in, n_out, k) return conv(n_in, n_out, { k, 1 }, { k // 2, 0 }) end
local function in_order(...) return nn.Sequential { ... } end
local function average()
  return nn.AvgPool2d { 3, stride = 1, pad = 1, count_include_pad = true }
end
local function pool() return nn.MaxPool2d { 3, stride = 2 } end

-- Figure 5 of the paper: 1x1; 5x5; two 3x3; pooling.
local function module_a(n_in, n_pool)
  return nn.Concat {
    conv(n_in, 64, 1), in_order(conv(n_in, 48, 1), conv(48, 64, 5, 2)),
    in_order(conv(n_in, 64, 1), conv(64, 96, 3, 1), conv(96, 96, 3, 1)),
    in_order(average(), conv(n_in, n_pool, 1)),
  }
end

-- Figure 6: 7x7 as rows and columns.
local function module_b(n_in, n)
  return nn.Concat {
    conv(n_in, 192, 1), in_order(conv(n_in, n, 1), row(n, n, 7), column(n, 192, 7)),
    in_order(conv(n_in, n, 1), column(n, n, 7), row(n, n, 7), column(n, n, 7), row(n, 192, 7)),
    in_order(average(), conv(n_in, 192, 1)),
  }
end

-- Figure 7: rows and columns side by side.
local function module_c(n_in)
  local function both() return nn.Concat { row(384, 384, 3), column(384, 384, 3) } end
  return nn.Concat {
    conv(n_in, 320, 1), in_order(conv(n_in, 384, 1), both()),
    in_order(conv(n_in, 448, 1), conv(448, 384, 3, 1), both()),
    in_order(average(), conv(n_in, 192, 1)),
  }
end

local function build(o)
  local layers = { input = { 3, o.image, o.image },
    conv(3, 32, 3, 0, 2), conv(32, 32, 3), conv(32, 64, 3, 1), pool(),
    conv(64, 80, 1), conv(80, 192, 3), pool(),
    module_a(192, 32), module_a(256, 64), module_a(288, 64),
    nn.Concat { conv(288, 384, 3, 0, 2),
      in_order(conv(288, 64, 1), conv(64, 96, 3, 1), conv(96, 96, 3, 0, 2)), pool() },
    module_b(768, 128), module_b(768, 160), module_b(768, 160), module_b(768, 192),
    nn.Concat { in_order(conv(768, 192, 1), conv(192, 320, 3, 0, 2)),
      in_order(conv(768, 192, 1), row(192, 192, 7), column(192, 192, 7), conv(192, 192, 3, 0, 2)),
      pool() },
    module_c(1280), module_c(2048),
  }
  add(layers, parts.head(2048, o.classes, 0.5))
  return { model = nn.Sequential(layers), batch = o.batch, n_class = o.classes }
end

return {
  options = { doc = "Inception v3.", parts.classes(), parts.image(299, 75), parts.batch(16) },
  nets = { inception_v3 = {} },
  published = { inception_v3 = 23834568 },
  build = build,
}
