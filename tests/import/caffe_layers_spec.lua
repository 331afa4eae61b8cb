-- Layers of Caffe's on numbers whose results are worked out by hand from Caffe's definitions.
local neap = require "neap"
local kit = require "import.caffe_kit"
local layer, plane, near = kit.layer, kit.plane, kit.near

local function t(numbers) return neap.tensor(numbers) end

describe("Caffe's pooling", function()
  it("rounds up, and divides by places within the pads", function()
    local x = plane { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 } }
    near({ { { { 5, 6 }, { 8, 9 } } } },
      layer('type: "Pooling" pooling_param { pool: MAX kernel_size: 2 stride: 2 }', { x }))
    near({ { { { 3, 4.5 }, { 7.5, 9 } } } },
      layer('type: "Pooling" pooling_param { pool: AVE kernel_size: 2 stride: 2 }', { x }))
    near({ { { { 3 } } } }, layer([[type: "Pooling" pooling_param { pool: AVE kernel_size: 2
      stride: 2 ceil_mode: false }]], { x }))
    -- padded to 5 by 5, windows of 3 in steps of 2; the first has 4 elements of 9 places
    near({ { { { 12 / 9, 16 / 9 }, { 24 / 9, 28 / 9 } } } }, layer([[type: "Pooling"
      pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }]], { x }))
    near({ { { { 5 } } } }, layer(
      'type: "Pooling" pooling_param { pool: AVE global_pooling: true }', { x }))
  end)
end)

describe("Caffe's products", function()
  it("are of weights as its files have them", function()
    local x = plane { { 1, 2 }, { 3, 4 } }
    near({ { { { 1 * 1 + 2 * 2 + 3 * 3 + 4 * 4 + 0.5 } } } }, layer([[type: "Convolution"
      convolution_param { num_output: 1 kernel_size: 2 }]], { x }, nil,
      { kit.blob({ 1, 1, 2, 2 }, { 1, 2, 3, 4 }), kit.blob({ 1 }, { 0.5 }) }))
    near({ { { { 1, 2 }, { 3, 4 } }, { { 2, 4 }, { 6, 8 } } } }, layer([[type: "Convolution"
      convolution_param { num_output: 2 kernel_h: 1 kernel_w: 1 bias_term: false }]], { x }, nil,
      { kit.blob({ 2, 1, 1, 1 }, { 1, 2 }) }))
    near({ { 14, 5 } }, layer('type: "InnerProduct" inner_product_param { num_output: 2 }',
      { t { { 1, 2, 3 } } }, nil, { kit.blob({ 2, 3 }, { 1, 2, 3, 1, -1, 2 }),
        kit.blob({ 2 }, { 0, 0 }) }))
    near({ { 7, 10 } }, layer([[type: "InnerProduct" inner_product_param { num_output: 2
      transpose: true bias_term: false }]], { t { { 1, 2 } } }, nil,
      { kit.blob({ 2, 2 }, { 1, 2, 3, 4 }) }))
    near({ { { 3, 4.5 }, { 1, 2.5 } } }, layer([[type: "Embed" embed_param { num_output: 2
      input_dim: 2 }]], { t { { 1, 0 } } }, nil, { kit.blob({ 2, 2 }, { 1, 2, 3, 4 }),
        kit.blob({ 2 }, { 0, 0.5 }) }))
  end)

  it("interpolate by a bilinear filler", function()
    near({ { { { 0.0625, 0.1875, 0.1875, 0.0625 }, { 0.1875, 0.5625, 0.5625, 0.1875 },
      { 0.1875, 0.5625, 0.5625, 0.1875 }, { 0.0625, 0.1875, 0.1875, 0.0625 } } } },
      layer([[type: "Deconvolution" convolution_param { num_output: 1 kernel_size: 4 stride: 2
        bias_term: false weight_filler { type: "bilinear" } }]], { plane { { 1 } } }))
  end)
end)

describe("Caffe's elementwise layers", function()
  it("compute what their parameters say", function()
    local x = t { { 1, -2 } }
    near({ { 1, -0.2 } }, layer('type: "ReLU" relu_param { negative_slope: 0.1 }', { x }))
    near({ { 9, 9 } }, layer('type: "Power" power_param { power: 2 scale: 2 shift: 1 }', { x }))
    near({ { 8, 0.125 } }, layer('type: "Exp" exp_param { base: 2 scale: 2 shift: 1 }', { x }))
    near({ { math.log(3, 2), 0 } }, layer('type: "Log" log_param { base: 2 scale: 0.666666667 '
      .. 'shift: 2.333333333 }', { x }))
    near({ { 1, math.exp(-2) - 1 } }, layer('type: "ELU"', { x }))
    near({ { 1, 2 } }, layer('type: "AbsVal"', { x }))
    near({ { 1, 0 } }, layer('type: "Threshold" threshold_param { threshold: 0 }', { x }))
    near({ { 1, -0.5 } }, layer('type: "PReLU"', { x }))
    -- A slope for each channel, which is the second dimension, however large the last is.
    local slopes = kit.blob({ 2 }, { 0.5, 0.1 })
    near({ { { -0.5, 2 }, { -0.3, -0.4 } } }, layer('type: "PReLU"',
      { t { { { -1, 2 }, { -3, -4 } } } }, nil, { slopes }))
    near({ { { { -0.5, 2, -1 } }, { { -0.1, 4, -0.6 } } } }, layer('type: "PReLU"',
      { t { { { { -1, 2, -2 } }, { { -1, 4, -6 } } } } }, nil, { slopes }))
    near({ { { -3, 6 }, { -9, -12 } } }, layer('type: "PReLU" prelu_param { channel_shared: true }',
      { t { { { -1, 6 }, { -3, -4 } } } }, nil, { kit.blob({ 1 }, { 3 }) }))
    near({ { math.log(1 + math.exp(1)), math.log(1 + math.exp(-2)) } },
      layer('type: "BNLL"', { x }))
    near({ { 1, -1 } }, layer('type: "Clip" clip_param { min: -1 max: 1 }', { x }))
    near({ { 1, -2 } }, layer('type: "Dropout"', { x }))
  end)

  it("take several bottoms", function()
    local a, b = t { { 1, 2 } }, t { { 3, -4 } }
    near({ { 4, -2 } }, layer('type: "Eltwise"', { a, b }))
    near({ { -1, 8 } }, layer('type: "Eltwise" eltwise_param { operation: SUM coeff: 2 coeff: -1 }',
      { a, b }))
    near({ { 3, -8 } }, layer('type: "Eltwise" eltwise_param { operation: PROD }', { a, b }))
    near({ { 3, 2 } }, layer('type: "Eltwise" eltwise_param { operation: 2 }', { a, b }))
    near({ { 10, 40 } }, layer('type: "Scale" scale_param { axis: 1 }', { a, t { 10, 20 } }))
    near({ { 11, 22 } }, layer('type: "Bias" bias_param { axis: 1 }', { a, t { 10, 20 } }))
    near({ { 2.5, 6.5 } }, layer('type: "Scale" scale_param { bias_term: true }', { a }, nil,
      { kit.blob({ 2 }, { 2, 3 }), kit.blob({ 2 }, { 0.5, 0.5 }) }))
  end)
end)

describe("Caffe's normalisations", function()
  it("have statistics as sums over a count, with the scale that follows", function()
    local text = kit.input("x", 1, 2, 1, 1) .. [[
      layer { name: "bn" type: "BatchNorm" bottom: "x" top: "x" batch_norm_param { eps: 0 } }
      layer { name: "sc" type: "Scale" bottom: "x" top: "x" scale_param { bias_term: true } }]]
    local f = assert(kit.import(text, { weights = kit.weights {
      { "bn", kit.blob({ 2 }, { 2, 4 }), kit.blob({ 2 }, { 8, 2 }), kit.blob({ 1 }, { 2 }) },
      { "sc", kit.blob({ 2 }, { 10, 1 }), kit.blob({ 2 }, { 0, 5 }) } } }))
    near({ { { { 10 } }, { { 6 } } } }, f(t { { { { 3 } }, { { 3 } } } }):totable())
    local n = 0
    for _ in f.net:text():gmatch "= BatchNorm" do n = n + 1 end
    assert.equal(1, n)
    assert.is_nil(f.net:text():match "= Mul")
  end)

  it("follow batches in training, weighed by the moving average's fraction", function()
    local m = assert(kit.import(kit.input("x", 4, 1) .. kit.input("z", 4, 1) .. [[
      layer { name: "bn" type: "BatchNorm" bottom: "x" top: "b"
        batch_norm_param { moving_average_fraction: 0.5 } }
      layer { name: "sc" type: "Scale" bottom: "b" top: "b" }
      layer { name: "l" type: "EuclideanLoss" bottom: "b" bottom: "z" top: "l" }]],
      { model = true }))
    local tr = neap.trainer { model = m, loss = function(l) return l end,
      optimizer = neap.optim.SGD { lr = 1e-6 } }
    local zeros = neap.zeros(4, 1)
    tr:step { x = t { { 1 }, { 2 }, { 3 }, { 6 } }, z = zeros }
    near({ 3 }, m:state_dict()["bn.mean"]:totable())
    near({ 14 / 3 }, m:state_dict()["bn.var"]:totable())
    tr:step { x = t { { 9 }, { 9 }, { 9 }, { 9 } }, z = zeros }
    -- sums 0.5 * 3 + 9 and 0.5 * 14/3 + 0, over 0.5 * 1 + 1
    near({ 10.5 / 1.5 }, m:state_dict()["bn.mean"]:totable())
    near({ 7 / 3 / 1.5 }, m:state_dict()["bn.var"]:totable())
  end)

  it("are those of LRN, MVN, Normalize and BN", function()
    local x = t { { { { 1 } }, { { 2 } }, { { 3 } } } }
    near({ { { { 1 / (1 + 5 / 3) ^ 0.75 } }, { { 2 / (1 + 14 / 3) ^ 0.75 } },
      { { 3 / (1 + 13 / 3) ^ 0.75 } } } }, layer('type: "LRN" lrn_param { local_size: 3 }', { x }))
    local y = plane { { 1, 2 }, { 3, 4 } }
    local under = (1 + 30 / 9) ^ 0.75
    near({ { { { 1 / under, 2 / under }, { 3 / under, 4 / under } } } }, layer([[type: "LRN"
      lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL }]], { y }))
    local s = math.sqrt(1.25)
    near({ { { { -1.5 / s, -0.5 / s }, { 0.5 / s, 1.5 / s } } } }, layer('type: "MVN"', { y }))
    near({ { { { -1.5, -0.5 }, { 0.5, 1.5 } } } }, layer(
      'type: "MVN" mvn_param { normalize_variance: false }', { y }))
    local root = math.sqrt(14)
    near({ { { { 20 / root } }, { { 40 / root } }, { { 60 / root } } } }, layer([[type: "Normalize"
      norm_param { across_spatial: false channel_shared: true
      scale_filler { type: "constant" value: 20 } }]], { x }))
    near({ { { { 2 } }, { { 3 } }, { { 8 } } } }, layer('type: "BN" bn_param { eps: 0 }', { x },
      nil, { kit.blob({ 3 }, { 2, 1, 2 }), kit.blob({ 3 }, { 0, 1, 4 }),
        kit.blob({ 3 }, { 0, 0, 1 }), kit.blob({ 3 }, { 1, 1, 1 }) }))
  end)
end)

describe("Caffe's layers of shapes", function()
  local x = t { { 1, 2, 3, 4 }, { 5, 6, 7, 8 } }

  it("cut, join and turn", function()
    local a, b = layer('type: "Slice" slice_param { slice_point: 1 }', { x }, { "a", "b" })
    near({ { { 1 }, { 5 } }, { { 2, 3, 4 }, { 6, 7, 8 } } }, { a, b })
    near({ { 1, 2, 3, 4 } }, layer('type: "Slice" slice_param { slice_dim: 0 }', { x },
      { "a", "b" }))
    near({ { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 0, 0, 0, 0 } }, layer(
      'type: "Concat" concat_param { axis: 0 }', { x, neap.zeros(1, 4) }))
    near({ { { 1, 2 }, { 3, 4 } }, { { 5, 6 }, { 7, 8 } } }, layer(
      'type: "Reshape" reshape_param { shape { dim: 0 dim: 2 dim: -1 } }', { x }))
    near({ { { 1 }, { 2 }, { 3 }, { 4 } }, { { 5 }, { 6 }, { 7 }, { 8 } } }, layer(
      'type: "Reshape" reshape_param { shape { dim: 1 } axis: -1 num_axes: 0 }', { x }))
    near({ { 1, 5 }, { 2, 6 }, { 3, 7 }, { 4, 8 } }, layer(
      'type: "Permute" permute_param { order: 1 order: 0 }', { x }))
    near({ { 1, 1, 2, 2 } }, { (function()
      local r = layer('type: "Tile" tile_param { axis: 0 tiles: 2 }', { t { { 1 }, { 2 } } })
      return { r[1][1], r[3][1], r[2][1], r[4][1] }
    end)() })
    local p, q = layer('type: "Split"', { x }, { "p", "q" })
    near({ p, p }, { q, x:totable() })
  end)

  it("crop to the second bottom", function()
    near({ { { { 4 } } } }, layer('type: "Crop" crop_param { offset: 1 }',
      { plane { { 1, 2 }, { 3, 4 } }, plane { { 0 } } }))
  end)

  it("reduce", function()
    near({ 10, 26 }, layer('type: "Reduction" reduction_param { axis: 1 }', { x }))
    near({ 5, 13 }, layer('type: "Reduction" reduction_param { axis: 1 operation: MEAN coeff: 2 }',
      { x }))
    near({ 30, 174 }, layer('type: "Reduction" reduction_param { axis: 1 operation: SUMSQ }',
      { x }))
    near({ { { 3, 2 } }, { { 3, 2 } } }, layer('type: "ArgMax" argmax_param { top_k: 2 }', { x }))
    near({ { 4 }, { 8 } }, layer('type: "ArgMax" argmax_param { axis: 1 out_max_val: true }',
      { x }))
  end)

  it("lay boxes around places", function()
    local boxes = layer([[type: "PriorBox" prior_box_param { min_size: 2 max_size: 8
      aspect_ratio: 4 flip: false variance: 0.1 }]], { plane { { 0 } }, neap.zeros(1, 3, 8, 8) })
    near({ 3 / 8, 3 / 8, 5 / 8, 5 / 8, 2 / 8, 2 / 8, 6 / 8, 6 / 8, 2 / 8, 3.5 / 8, 6 / 8, 4.5 / 8 },
      boxes[1][1])
    near({ 0.1, 0.1 }, { boxes[1][2][1], boxes[1][2][12] })

    -- Of an image that is no square, with places in a row: a square, one between the sizes, and the
    -- ratio both ways; one of 1 is the square, and one that comes twice comes once.
    boxes = layer([[type: "PriorBox" prior_box_param { min_size: 4 max_size: 9 aspect_ratio: 1
      aspect_ratio: 4 aspect_ratio: 0.25 variance: 0.1 }]],
      { plane { { 0, 0 } }, neap.zeros(1, 3, 10, 20) })
    local want = {}
    for _, x in ipairs { 5, 15 } do
      for _, size in ipairs { { 4, 4 }, { 6, 6 }, { 8, 2 }, { 2, 8 } } do
        local w, h = size[1] / 2, size[2] / 2
        for _, v in ipairs { (x - w) / 20, (5 - h) / 10, (x + w) / 20, (5 + h) / 10 } do
          want[#want + 1] = v
        end
      end
    end
    near(want, boxes[1][1])
  end)

  it("find the best of them, by class, without those that better ones cover", function()
    -- Four boxes: the second is nearly the first, the others lie apart; three classes, of which the
    -- first is the background.
    local corners = { 0, 0, 0.5, 0.5, 0, 0, 0.5, 0.45, 0.5, 0.5, 1, 1, 0.6, 0, 0.8, 0.2 }
    local prior = neap.full { 1, 2, 16, value = 0.1 }
    for k, v in ipairs(corners) do prior:set(v, 1, 1, k) end
    local loc = neap.zeros(1, 16)
    loc:set(1, 1, 9) -- the third box is a tenth further to the right, or of its width
    local conf = t { { 0, 0.9, 0.1, 0, 0.8, 0.7, 0, 0.3, 0.6, 0, 0.1, 0.2 } }
    local function found(more)
      return layer(([[type: "DetectionOutput" detection_output_param { num_classes: 3
        nms_param { nms_threshold: 0.45 top_k: 3 } confidence_threshold: 0.25 %s }]]):format(more),
        { loc, conf, prior })[1][1]
    end
    local none = { -1, -1, -1, -1, -1, -1, -1 }
    near({ { 0, 1, 0.9, 0, 0, 0.5, 0.5 }, { 0, 2, 0.7, 0, 0, 0.5, 0.45 },
      { 0, 2, 0.6, 0.6, 0.5, 1, 1 }, { 0, 1, 0.3, 0.6, 0.5, 1, 1 }, none },
      found "code_type: CORNER keep_top_k: 5")
    near({ { 0, 1, 0.9, 0, 0, 0.5, 0.5 }, { 0, 2, 0.7, 0, 0, 0.5, 0.45 },
      { 0, 2, 0.6, 0.55, 0.5, 1.05, 1 } }, found "code_type: CENTER_SIZE keep_top_k: 3")
    near({ 0, 2, 0.6, 0.55, 0.5, 1, 1 }, found("code_type: CORNER_SIZE")[3])
    near({ 0, 2, 0.6, 1.5, 0.5, 1, 1 },
      found("code_type: CORNER variance_encoded_in_target: true")[3])

    -- In a row each covers the next one alone: the second goes, and takes the third along no more.
    prior = neap.full { 1, 2, 12, value = 0.1 }
    for k, v in ipairs { 0, 0, 0.5, 0.5, 0.15, 0, 0.65, 0.5, 0.3, 0, 0.8, 0.5 } do
      prior:set(v, 1, 1, k)
    end
    near({ { 0, 1, 0.9, 0, 0, 0.5, 0.5 }, { 0, 1, 0.7, 0.3, 0, 0.8, 0.5 }, none },
      layer([[type: "DetectionOutput" detection_output_param { num_classes: 2 code_type: CORNER
        nms_param { nms_threshold: 0.45 top_k: 3 } keep_top_k: 3 confidence_threshold: 0.25 }]],
        { neap.zeros(1, 12), t { { 0, 0.9, 0, 0.8, 0, 0.7 } }, prior })[1][1])
    assert.error_matches(function() found "share_location: false" end,
      "12 and 3 of each are expected")
    assert.error_matches(function()
      layer([[type: "DetectionOutput" detection_output_param { num_classes: 3
        nms_param { eta: 1.5 } }]], { neap.zeros(1, 12), neap.zeros(1, 9), prior })
    end, "an eta of 1.5, of 0 to 1")
  end)
end)

describe("Caffe's recurrent layers", function()
  local function sigmoid(v) return 1 / (1 + math.exp(-v)) end
  local tanh = function(v) return (math.exp(2 * v) - 1) / (math.exp(2 * v) + 1) end
  -- Two steps of two sequences of one number; the second sequence begins anew at the second step.
  local x = t { { { 1 }, { 2 } }, { { 3 }, { 4 } } }
  local cont = t { { 1, 1 }, { 1, 0 } }

  it("go on or begin anew as the marks say, of one unit: LSTM", function()
    local w, b, u = { 0.1, 0.2, 0.3, 0.4 }, { 0.5, 0.6, 0.7, 0.8 }, { -0.1, 0.2, -0.3, 0.4 }
    local function run(xs, marks, h, c, fixed)
      local out = {}
      for i, v in ipairs(xs) do
        local g = {}
        for k = 1, 4 do
          g[k] = w[k] * v + b[k] + u[k] * h * marks[i] + (fixed and 0.25 * fixed or 0)
        end
        c = sigmoid(g[2]) * c * marks[i] + sigmoid(g[1]) * tanh(g[4])
        h = sigmoid(g[3]) * tanh(c)
        out[i] = h
      end
      return out, h, c
    end
    local blobs = { kit.blob({ 4, 1 }, w), kit.blob({ 4 }, b), kit.blob({ 4, 1 }, u) }
    local first, second = run({ 1, 3 }, { 1, 1 }, 0, 0), run({ 2, 4 }, { 1, 0 }, 0, 0)
    near({ { { first[1] }, { second[1] } }, { { first[2] }, { second[2] } } },
      layer('type: "LSTM" recurrent_param { num_output: 1 }', { x, cont }, nil, blobs))
    -- First states that come in, last ones that go out.
    local _, h, c = run({ 1, 3 }, { 1, 1 }, 0.5, -1)
    local _, hs, cs = layer('type: "LSTM" recurrent_param { num_output: 1 expose_hidden: true }',
      { x, cont, t { { { 0.5 }, { 0 } } }, t { { { -1 }, { 0 } } } }, { "y", "h", "c" }, blobs)
    near({ h, c }, { hs[1][1][1], cs[1][1][1] })
    -- And what is the same in all steps.
    first = run({ 1, 3 }, { 1, 1 }, 0, 0, 2)
    local y = layer('type: "LSTM" recurrent_param { num_output: 1 }',
      { x, cont, t { { 2 }, { 0 } } }, nil, { blobs[1], blobs[2],
        kit.blob({ 4, 1 }, { 0.25, 0.25, 0.25, 0.25 }), blobs[3] })
    near({ first[1], first[2] }, { y[1][1][1], y[2][1][1] })
  end)

  it("go on or begin anew as the marks say: RNN", function()
    local blobs = { kit.blob({ 1, 1 }, { 0.3 }), kit.blob({ 1 }, { 0.1 }),
      kit.blob({ 1, 1 }, { 0.5 }), kit.blob({ 1, 1 }, { 2 }), kit.blob({ 1 }, { -0.2 }) }
    local y = layer('type: "RNN" recurrent_param { num_output: 1 }', { x, cont }, nil, blobs)
    local h1 = tanh(0.4)
    near({ tanh(2 * h1 - 0.2), tanh(2 * tanh(0.9 + 0.1 + 0.5 * h1) - 0.2),
      tanh(2 * tanh(1.3) - 0.2) }, { y[1][1][1], y[2][1][1], y[2][2][1] })
    local ok, err = pcall(layer, 'type: "RNN" recurrent_param { num_output: 1 }', { x, x })
    assert.is_false(ok)
    assert.matches("marks of shape %(2,2,1%), %(2,2%) is expected", tostring(err))
  end)
end)

describe("Caffe's losses", function()
  local x = t { { 0, math.log(3) }, { 0, 0 } }
  local first, second = -math.log(0.75), -math.log(0.5)

  it("are divided as their parameters say", function()
    local function loss(text, labels)
      return layer('type: "SoftmaxWithLoss" ' .. (text or ""), { x, t(labels or { 1, 0 }) })
    end
    near((first + second) / 2, loss())
    near(first, loss("loss_param { ignore_label: 0 }"))
    near(first / 2, loss("loss_param { ignore_label: 0 normalization: FULL }"))
    near(first + second, loss "loss_param { normalization: NONE }")
    near(first / 2, loss "loss_param { ignore_label: 0 normalize: false }")
  end)

  it("are those of other distances", function()
    local a, b = t { { 1, 2 }, { 0, 0 } }, t { { 1, 0 }, { 2, 0 } }
    near(8 / 4, layer('type: "EuclideanLoss"', { a, b }))
    near((1 + 2 + (1 + math.log(3)) * 0 + 1 + 1 - 1) / 2, layer('type: "HingeLoss"',
      { t { { 0, 1 }, { 0, 0 } }, t { 1, 0 } }) + 0.5)
    near(-(math.log(0.25) + math.log(0.5)) / 2, layer('type: "MultinomialLogisticLoss"',
      { t { { 0.25, 0.75 }, { 0.5, 0.5 } }, t { 0, 1 } }))
    near((math.log(1 + math.exp(-1)) + math.log(2)) / 2, layer('type: "SigmoidCrossEntropyLoss"',
      { t { { 1 }, { 0 } }, t { { 1 }, { 0 } } }))
    -- alike: distance 2, squared; else 0.5 within the margin of 1
    near((4 + 0.25) / 4, layer('type: "ContrastiveLoss"', { t { { 2 }, { 0.5 } },
      t { { 0 }, { 0 } }, t { 1, 0 } }))
    near((4 + 0.75) / 4, layer('type: "ContrastiveLoss" contrastive_loss_param '
      .. "{ legacy_version: true }", { t { { 2 }, { 0.5 } }, t { { 0 }, { 0 } }, t { 1, 0 } }))
  end)

  it("count hits", function()
    near(0.5, layer('type: "Accuracy"', { t { { 0, 1 }, { 0, 1 } }, t { 1, 0 } }))
    near(1, layer('type: "Accuracy" accuracy_param { top_k: 2 }', { t { { 0, 1 }, { 0, 1 } },
      t { 1, 0 } }))
  end)

  it("are summed by their weights", function()
    local m = assert(kit.import(kit.input("x", 1, 1) .. kit.input("z", 1, 1) .. [[
      layer { name: "fc" type: "InnerProduct" bottom: "x" top: "y" inner_product_param {
        num_output: 1 bias_term: false weight_filler { type: "constant" value: 2 } } }
      layer { name: "a" type: "EuclideanLoss" bottom: "y" bottom: "z" top: "a" loss_weight: 0.5 }
      layer { name: "b" type: "Reduction" bottom: "y" top: "b" loss_weight: 10 }]],
      { model = true }))
    local sum = m:eval()(t { { 3 } }, t { { 0 } })
    near(0.5 * 18 + 10 * 6, sum:item())
  end)
end)
