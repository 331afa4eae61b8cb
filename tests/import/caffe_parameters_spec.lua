-- Parameters of Caffe's layers that change numbers, one by one: results are worked out by hand from
-- Caffe's definitions.
local neap = require "neap"
local kit = require "import.caffe_kit"
local layer, plane, near = kit.layer, kit.plane, kit.near

local function t(numbers) return neap.tensor(numbers) end

describe("parameters of Caffe's", function()
  local grid = plane { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 } }

  it("convolutions: bottoms that share a weight, groups the other way round", function()
    local a, b = layer('type: "Convolution" convolution_param { num_output: 1 kernel_size: 1 '
      .. "bias_term: false }", { plane { { 1 } }, plane { { 5 } } }, { "a", "b" },
      { kit.blob({ 1, 1, 1, 1 }, { 2 }) })
    near({ { { { 2 } } } }, a)
    near({ { { { 10 } } } }, b)
    near({ { { { 3 } }, { { 10 } } } }, layer([[type: "Deconvolution" convolution_param {
      num_output: 2 kernel_size: 1 group: 2 bias_term: false }]],
      { t { { { { 1 } }, { { 2 } } } } }, nil, { kit.blob({ 2, 1, 1, 1 }, { 3, 5 }) }))
  end)

  it("pools: rounding, and windows that would be empty", function()
    near({ { { { 3 } } } }, layer([[type: "Pooling" pooling_param { pool: AVE kernel_size: 2
      stride: 2 round_mode: FLOOR }]], { grid }))
    assert.error_matches(function()
      layer('type: "Pooling" pooling_param { kernel_size: 1 stride: 3 }', { grid })
    end, "the last window of 1, by strides of 3, has no element")
  end)

  it("interpolation: what is cropped, and how far sizes shrink and grow", function()
    near({ { { { 5, 6 }, { 8, 9 } } } }, layer('type: "Interp" interp_param { pad_beg: -1 }',
      { grid }))
    near({ { { { 1, 2 }, { 4, 5 } } } }, layer('type: "Interp" interp_param { pad_end: -1 }',
      { grid }))
    near({ { { { 1, 3 }, { 7, 9 } } } }, layer('type: "Interp" interp_param { shrink_factor: 2 }',
      { grid }))
    near({ { { { 1, 1.5, 2 }, { 2, 2.5, 3 }, { 3, 3.5, 4 } } } }, layer(
      'type: "Interp" interp_param { zoom_factor: 2 }', { plane { { 1, 2 }, { 3, 4 } } }))
  end)

  it("norms: regions, channels and scales", function()
    local y, under = plane { { 1, 2 }, { 3, 4 } }, (1 + 30 / 9) ^ 0.75
    -- Within a channel k is not read.
    near({ { { { 1 / under, 2 / under }, { 3 / under, 4 / under } } } }, layer([[type: "LRN"
      lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL k: 2 }]], { y }))
    local x, s, root = t { { { { 1 } }, { { 2 } }, { { 3 } } } }, math.sqrt(2 / 3), math.sqrt(14)
    near({ { { { -1 / s } }, { { 0 } }, { { 1 / s } } } }, layer(
      'type: "MVN" mvn_param { across_channels: true }', { x }))
    near({ { { { 1 / root } }, { { 4 / root } }, { { 9 / root } } } }, layer([[type: "Normalize"
      norm_param { across_spatial: false channel_shared: false }]], { x }, nil,
      { kit.blob({ 3 }, { 1, 2, 3 }) }))
  end)

  it("cross entropies: what they are divided by", function()
    local zeros, half = neap.zeros(1, 2, 2), math.log(2)
    -- Rows are all that stands before the axis.
    near(half, layer([[type: "SoftmaxWithLoss" softmax_param { axis: 2 }
      loss_param { normalization: BATCH_SIZE }]], { zeros, t { { 0, 1 } } }))
    -- With the probabilities as a second top, too.
    near(half, (layer('type: "SoftmaxWithLoss" loss_param { normalization: BATCH_SIZE }',
      { neap.zeros(2, 2), t { 0, 1 } }, { "loss", "p" })))
    near(half / 2, (layer([[type: "SoftmaxWithLoss" loss_param { normalization: FULL
      ignore_label: 1 }]], { neap.zeros(2, 2), t { 0, 1 } }, { "loss", "p" })))
    for by, want in pairs { BATCH_SIZE = half / 2, FULL = half / 2, VALID = half, NONE = half } do
      near(want, layer(([[type: "SigmoidCrossEntropyLoss" loss_param { ignore_label: -1
        normalization: %s }]]):format(by), { t { { 0 }, { 0 } }, t { { 1 }, { -1 } } }))
    end
  end)

  it("distances: norms, shares and widths", function()
    near((2.25 + 2) / 2, layer('type: "HingeLoss" hinge_loss_param { norm: L2 }',
      { t { { 0.5, 1 }, { 0, 0 } }, t { 1, 0 } }))
    local x, y = t { { 3, -3, 0.1 } }, neap.zeros(1, 3)
    near(2.875 * 2 + 0.02, layer('type: "SmoothL1Loss" smooth_l1_loss_param { sigma: 2 }',
      { x, y }))
    near(2 * 2.5 + 0.005, layer('type: "SmoothL1Loss"', { x, y, t { { 1, 0, 1 } },
      t { { 2, 1, 1 } } }))
  end)

  it("a norm whose file has summed up nothing, and one whose Scale is of several axes", function()
    local text = kit.input("x", 1, 2, 1, 2) .. [[
      layer { name: "bn" type: "BatchNorm" bottom: "x" top: "x" batch_norm_param { eps: 1 } }
      layer { name: "sc" type: "Scale" bottom: "x" top: "x" scale_param { axis: 1 num_axes: 3 } }]]
    local f = assert(kit.import(text, { weights = kit.weights {
      { "bn", kit.blob({ 2 }, { 0, 0 }), kit.blob({ 2 }, { 0, 0 }), kit.blob({ 1 }, { 0 }) },
      { "sc", kit.blob({ 2, 1, 2 }, { 1, 2, 3, 4 }) } } }))
    near({ { { { 1, 4 } }, { { 9, 16 } } } }, f(t { { { { 1, 2 } }, { { 3, 4 } } } }):totable())
  end)

  it("weights: a blob too many is no other layer's", function()
    local text = kit.input("x", 1, 2) .. [[layer { name: "fc" type: "InnerProduct" bottom: "x"
      top: "y" inner_product_param { num_output: 1 bias_term: false } }]]
    local _, message = kit.import(text, { weights = kit.weights {
      { "fc", kit.blob({ 1, 2 }, { 1, 2 }), kit.blob({ 1 }, { 3 }) } } })
    assert.matches('layer "fc" has 2 blobs, the net\'s 1', tostring(message))
  end)
end)
