-- Ends and odd sizes of ONNX's ops, worked out by hand: pads of which one is left over, images
-- beyond the last window, places between pixels of volumes, unequal parts, starts beyond an end.
local kit = require "import.onnx_kit"
local neap = require "neap"

local F32 <const>, U8 <const>, I64 <const> = 1, 2, 7

local function floats(name, dims, list)
  return kit.tensor { name = name, dims = dims, floats = list }
end
local function integers(name, list)
  return kit.tensor { name = name, elem = I64, dims = { #list }, ints = list }
end

--- What one node makes of x and tensors of the file: its outputs, of the names given, as one list
-- or, of several, by name.
local function made(node, tensors, x, outputs, opset)
  local elem = x.dtype == "u8" and U8 or F32
  local values = {}
  for i, name in ipairs(outputs or { "y" }) do values[i] = kit.value(name, nil, elem) end
  local folder <close> = kit.folder()
  local path = folder:write("m.onnx", kit.model({ nodes = { node }, tensors = tensors,
    inputs = { kit.value("x", x.shape, elem) }, outputs = values }, opset or 20))
  return assert(neap.import(path))(x)
end

local function row(t) return t:reshape(-1):totable() end

describe("at its ends an ONNX file", function()
  it("puts the odd pad of a transposed convolution behind, or in front", function()
    local x, w = neap.tensor { { { 1, 2 } } }, floats("w", { 1, 1, 3 }, { 1, 10, 100 })
    local wants = { SAME_UPPER = { 1, 10, 102, 20 }, SAME_LOWER = { 10, 102, 20, 200 } }
    for auto, want in pairs(wants) do
      assert.same(want, row(made(kit.node("ConvTranspose", { "x", "w" }, { "y" },
        { auto_pad = auto, strides = { 2 } }), { w }, x)))
    end
  end)

  it("has the bias, once, where an image goes on beyond the last window", function()
    assert.same({ 6, 15, 7, 25, 5, 5 }, row(made(kit.node("ConvTranspose", { "x", "w", "b" },
      { "y" }, { strides = { 2 }, output_shape = { 6 } }),
      { floats("w", { 1, 1, 2 }, { 1, 10 }), floats("b", { 1 }, { 5 }) },
      neap.tensor { { { 1, 2 } } })))
  end)

  it("reads a volume at the nearest place, or between two", function()
    local x = neap.tensor({ 3, 7 }):reshape(1, 1, 1, 1, 2)
    for mode, want in pairs { nearest = 7, linear = 5.8 } do
      local y = made(kit.node("GridSample", { "x", "g" }, { "y" },
        { mode = mode, align_corners = 1 }),
        { floats("g", { 1, 1, 1, 1, 3 }, { 0.4, 0, 0 }) }, x)
      assert.is_true(math.abs(y:item() - want) < 1e-5, mode)
    end
  end)

  it("cuts what lies between two integers", function()
    local y = made(kit.node("Resize", { "x", "", "", "n" }, { "y" }, { mode = "linear" }),
      { integers("n", { 1, 4 }) }, neap.tensor({ { 0, 3 } }, "u8"))
    assert.same({ 0, 0, 2, 3 }, row(y))
  end)

  it("stretches by a factor that leaves the number of pixels as it is", function()
    local y = made(kit.node("Resize", { "x", "", "s" }, { "y" },
      { mode = "linear", coordinate_transformation_mode = "asymmetric" }),
      { floats("s", { 1 }, { 1.25 }) }, neap.tensor { 0, 1, 2 })
    assert.is_true(y:close(neap.tensor { 0, 0.8, 1.6 }, { atol = 1e-6 }))
  end)

  it("reads the pixel of a place that is whole in 32 bits", function()
    -- The fourth place is 3 / 0.6, where 0.6 in 32 bits is a little more.
    local y = made(kit.node("Resize", { "x", "", "s" }, { "y" }, { mode = "nearest",
      coordinate_transformation_mode = "asymmetric", nearest_mode = "floor" }),
      { floats("s", { 1 }, { 0.6 }) }, neap.arange(0, 10):to "f32")
    assert.same({ 0, 1, 3, 5, 6, 8 }, row(y))
  end)

  it("fills what lies before and behind an image, and no pixel of its ends", function()
    local y = made(kit.node("Resize", { "x", "r", "", "n" }, { "y" },
      { mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize",
        extrapolation_value = 9.0 }),
      { floats("r", { 2 }, { -0.25, 1.25 }), integers("n", { 7 }) },
      neap.tensor { 1, 2, 3, 4, 5 })
    assert.same({ 9, 1, 2, 3, 4, 5, 9 }, row(y))
  end)

  it("splits into parts of which the last is smaller", function()
    local parts = made(kit.node("Split", { "x" }, { "a", "b" }, { num_outputs = 2 }), {},
      neap.tensor { 1, 2, 3, 4, 5 }, { "a", "b" })
    assert.same({ 1, 2, 3 }, row(parts.a))
    assert.same({ 4, 5 }, row(parts.b))
  end)

  it("has flags that are 0 or 1", function()
    assert.error_matches(function()
      made(kit.node("ReduceSum", { "x" }, { "y" }, { keepdims = 2 }), {}, neap.tensor { 1, 2, 3 })
    end, 'attribute "keepdims" is 2, expected 0 or 1')
  end)

  it("takes nothing backwards from before the first element", function()
    local y = made(kit.node("Slice", { "x", "s", "e", "a", "d" }, { "y" }),
      { integers("s", { -10 }), integers("e", { -20 }), integers("a", { 0 }),
        integers("d", { -1 }) }, neap.tensor { 1, 2, 3 })
    assert.equal(0, y:n_element())
  end)

  it("reduces nothing where no axes mean that, and else all", function()
    local x = neap.tensor { 1, 2, 3 }
    assert.same({ 1, 2, 3 }, row(made(kit.node("ReduceSum", { "x" }, { "y" },
      { noop_with_empty_axes = 1 }), {}, x)))
    assert.same({ 6 }, row(made(kit.node("ReduceSum", { "x" }, { "y" }), {}, x)))
  end)

  it("drops half in training where no ratio is given, and scales what stays", function()
    local y = made(kit.node("Dropout", { "x", "", "t" }, { "y", "m" }),
      { kit.tensor { name = "t", elem = 9, dims = {}, raw = "\1" } }, neap.ones(1000),
      { "y" })
    local n = y:sum():item() / 2
    assert.is_true(n > 400 and n < 600, tostring(n))
    assert.equal(2, y:max():item())
  end)

  it("has the functions of recurrent ops with their numbers, or those of the standard", function()
    local e = math.exp(1)
    local function near(want, x, name, alpha, beta)
      local y = made(kit.node("RNN", { "x", "w", "r" }, { "", "y" }, { hidden_size = 1,
        activations = { name }, activation_alpha = alpha and { alpha },
        activation_beta = beta and { beta } }),
        { floats("w", { 1, 1, 1 }, { 1 }), floats("r", { 1, 1, 1 }, { 0 }) },
        neap.tensor { { { x } } }):item()
      assert.is_true(math.abs(y - want) < 1e-5, ("%s: %g, expected %g"):format(name, y, want))
    end
    near(5, 1, "Affine", 2.0, 3.0)
    near(-0.25, -1, "LeakyRelu", 0.25)
    near(-0.01, -1, "LeakyRelu")
    near(2 * (1 - 2 / (e ^ 6 + 1)), 1, "ScaledTanh", 2.0, 3.0)
    near(0.5, 1, "HardSigmoid", 0.25, 0.25)
    near(0.7, 1, "HardSigmoid")
    near(2 / e - 2, -1, "Elu", 2.0)
    near(0, 1, "ThresholdedRelu", 1.5)
    near(1.25, 1.25, "ThresholdedRelu")
  end)
end)
