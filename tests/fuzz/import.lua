-- What fuzz_import.c makes of bytes: a file of another program's, opened through the readers and
-- the builders of layers to a net. The first byte says which kind of file, and whether as a
-- function or as a module; the rest is the file.
--
-- Whatever it holds, neap.import gives a result, or nil with a message that names the file and a
-- code; a net that it gives can be written as text, read again and planned, or says why not. What
-- is an error of Lua's own is none of the file's.
--
-- Returns try(bytes) -> bytes of tensors that are held when all has been collected, and seed(k) ->
-- bytes, or nil behind the last.
local folder = ...
package.path = "tests/?.lua;" .. package.path
local neap = require "neap"
local core = require "neap.core"
local kit = require "import.onnx_kit"

local node, tensor, value = kit.node, kit.tensor, kit.value

-- ---- what must hold -----------------------------------------------------------------------------

--- Raises for messages that say that a script of Neap's has gone wrong, not the file.
local function check_said(message)
  message = tostring(message)
  for _, words in ipairs { "attempt to %a+", "bad argument #", "stack overflow", "internal" } do
    if message:find(words) then
      error("a file is answered with an error of Lua's own: " .. message)
    end
  end
end

local function try_plan(net)
  local text = net:text()
  assert(neap.net_from(text):text() == text, "a net's text is not the text of what is read from it")
  local ok, err = pcall(net.plan, net, { store = false })
  if not ok then check_said(err) end
end

local kinds = { { "m.onnx" }, { "m.onnx", model = true }, { "m.prototxt" },
  { "m.prototxt", model = true }, { "m.prototxt", phase = "TRAIN" } }

local function try_file(bytes)
  local kind = kinds[(bytes:byte(1) or 0) % #kinds + 1]
  local path = folder .. "/" .. kind[1]
  local file <close> = assert(io.open(path, "wb"))
  file:write(bytes:sub(2))
  file:flush()
  local result, message, code = neap.import(path, { model = kind.model, phase = kind.phase })
  if not result then
    assert(type(message) == "string" and message:find(kind[1], 1, true), "no file in a message")
    assert(type(code) == "string", "a message without a code")
    return check_said(message)
  end
  if rawget(result, "net") then return try_plan(result.net) end
  local ok, net = pcall(function() return result:net { batch = 1 } end)
  if not ok then return check_said(net) end
  try_plan(net)
end

local function try(bytes)
  local ok, err = xpcall(try_file, function(e)
    local code = type(e) == "table" and e.code
    return code == "memory" and "refused" or debug.traceback(tostring(e))
  end, bytes)
  for _ = 1, 3 do collectgarbage() end
  if not ok and err ~= "refused" then error(err, 0) end
  return core.memory().held
end

-- ---- files to begin with ------------------------------------------------------------------------

local function i64(name, ints)
  return tensor { name = name, elem = 7, dims = { #ints }, ints = ints }
end

local function weights(name, ...)
  local n, dims, list = 1, { ... }, {}
  for _, d in ipairs(dims) do n = n * d end
  for i = 1, n do list[i] = (i * 7 % 11 - 5) / 8 end
  return tensor { name = name, dims = dims, floats = list }
end

-- Graphs of nodes of each family, small: {nodes, tensors, inputs [, opset]}.
local graphs = {
  { { node("Conv", { "x", "w", "b" }, { "h" }, { pads = { 1, 1, 1, 1 } }, "conv"),
    node("BatchNormalization", { "h", "b", "b", "b", "v" }, { "n" }),
    node("Relu", { "n" }, { "r" }),
    node("MaxPool", { "r" }, { "p" }, { kernel_shape = { 2, 2 } }),
    node("GlobalAveragePool", { "p" }, { "g" }), node("Flatten", { "g" }, { "f" }),
    node("Gemm", { "f", "u" }, { "y" }, { transB = 1 }), node("Softmax", { "y" }, { "z" }) },
    { weights("w", 2, 3, 3, 3), weights("b", 2), weights("v", 2), weights("u", 4, 2) },
    { value("x", { "batch", 3, 6, 6 }) } },
  { { node("Shape", { "x" }, { "s" }), node("Gather", { "s", "one" }, { "d" }),
    node("Concat", { "d", "rest" }, { "t" }, { axis = 0 }), node("Reshape", { "x", "t" }, { "y" }),
    node("Transpose", { "y" }, { "z" }, { perm = { 1, 0 } }),
    node("Slice", { "z", "from", "to" }, { "c" }),
    node("Split", { "c" }, { "a", "b" }, { axis = 1 }),
    node("Expand", { "a", "big" }, { "e" }), node("Where", { "m", "e", "e" }, { "f" }) },
    { i64("one", { 1 }), i64("rest", { -1 }), i64("from", { 0 }), i64("to", { 2 }),
      i64("big", { 2, 2, 1 }), tensor { name = "m", elem = 9, dims = { 1 }, raw = "\1" } },
    { value("x", { 2, 2, 3 }) }, 11 },
  { { node("LSTM", { "x", "w", "r" }, { "h" }, { hidden_size = 2, direction = "bidirectional" }),
    node("GRU", { "x", "w6", "r6" }, { "g" }, { hidden_size = 2 }),
    node("ReduceMean", { "h" }, { "y" }, { axes = { 1, 2 } }) },
    { weights("w", 2, 8, 3), weights("r", 2, 8, 2), weights("w6", 1, 6, 3),
      weights("r6", 1, 6, 2) },
    { value("x", { 3, "batch", 3 }) } },
  { { node("If", { "c" }, { "y" }, {
      then_branch = { kind = "graph", kit.graph { nodes = { node("Relu", { "x" }, { "t" }) },
        outputs = { value("t", { 3 }) } } },
      else_branch = { kind = "graph", kit.graph { nodes = { node("Neg", { "x" }, { "e" }) },
        outputs = { value("e", { 3 }) } } } }) }, {}, { value("x", { 3 }), value("c", {}, 9) } },
  { { node("Loop", { "n", "", "x" }, { "y", "all" }, { body = { kind = "graph", kit.graph {
      nodes = { node("Add", { "s", "x" }, { "next" }), node("Identity", { "k" }, { "on" }) },
      inputs = { value("i", {}, 7), value("k", {}, 9), value("s", { 3 }) },
      outputs = { value("on", {}, 9), value("next", { 3 }), value("next", { 3 }) } } } }) },
    { tensor { name = "n", elem = 7, dims = {}, ints = { 3 } } }, { value("x", { 3 }) } },
  { { node("Resize", { "x", "", "s" }, { "y" }, { mode = "linear" }),
    node("Pad", { "y", "p" }, { "z" }), node("TopK", { "z", "k" }, { "v", "at" }),
    node("OneHot", { "at", "depth", "ends" }, { "o" }), node("CumSum", { "v", "axis" }, { "c" }),
    node("Cast", { "c" }, { "h" }, { to = 10 }), node("LRN", { "x" }, { "l" }, { size = 3 }) },
    { tensor { name = "s", dims = { 4 }, floats = { 1, 1, 2, 0.5 } }, i64("k", { 1 }),
      i64("p", { 0, 0, 0, 1, 0, 0, 1, 0 }),
      tensor { name = "axis", elem = 7, dims = {}, ints = { 1 } },
      tensor { name = "depth", elem = 7, dims = {}, ints = { 4 } },
      tensor { name = "ends", dims = { 2 }, floats = { 0, 1 } } }, { value("x", { 1, 2, 3, 4 }) } },
  { { node("QuantizeLinear", { "x", "s", "z" }, { "q" }),
    node("DequantizeLinear", { "q", "s", "z" }, { "d" }), node("Einsum", { "d", "d" }, { "y" },
      { equation = "ij,kj->ik" }), node("ConstantOfShape", { "n" }, { "c" }),
    node("Range", { "a", "b", "a" }, { "r" }), node("MatMul", { "y", "c" }, { "m" }) },
    { tensor { name = "s", dims = {}, floats = { 0.5 } }, tensor { name = "z", elem = 2, dims = {},
      raw = "\3" }, i64("n", { 2, 3 }), tensor { name = "a", elem = 7, dims = {}, ints = { 1 } },
      tensor { name = "b", elem = 7, dims = {}, ints = { 5 } } }, { value("x", { 2, 4 }) } },
}

local function onnx(g)
  local outputs = {}
  for _, name in ipairs { "z", "f", "y", "m", "o", "c", "all" } do
    for _, row in ipairs(g[1]) do
      if row:find("\x12\x01" .. name, 1, true) and #outputs == 0 then outputs[1] = value(name) end
    end
  end
  return kit.model({ nodes = g[1], tensors = g[2], inputs = g[3],
    outputs = #outputs > 0 and outputs or { value "y" } }, g[4])
end

local texts = {
  [[name: "n" input: "data" input_shape { dim: 1 dim: 3 dim: 8 dim: 8 }
layer { name: "c" type: "Convolution" bottom: "data" top: "c" param { lr_mult: 1 name: "w" }
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "r" type: "ReLU" bottom: "c" top: "c" }
layer { name: "p" type: "Pooling" bottom: "c" top: "p"
  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "l" type: "LRN" bottom: "p" top: "l" lrn_param { local_size: 3 } }
layer { name: "f" type: "InnerProduct" bottom: "l" top: "f"
  inner_product_param { num_output: 5 } }
layer { name: "s" type: "Softmax" bottom: "f" top: "s" }]],
  [[layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { crop_size: 8 } data_param { source: "x" batch_size: 2 } }
layer { name: "d" type: "Input" top: "data" include { phase: TEST }
  input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer { name: "b" type: "BatchNorm" bottom: "data" top: "b" }
layer { name: "s" type: "Scale" bottom: "b" top: "b" scale_param { bias_term: true } }
layer { name: "x" type: "Concat" bottom: "b" bottom: "data" top: "x" }
layer { name: "e" type: "Eltwise" bottom: "x" bottom: "x" top: "e"
  eltwise_param { operation: SUM coeff: 1 coeff: -1 } }
layer { name: "g" type: "Pooling" bottom: "e" top: "g"
  pooling_param { pool: AVE global_pooling: true } }
layer { name: "f" type: "InnerProduct" bottom: "g" top: "f"
  inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "f" bottom: "label"
  include { phase: TRAIN } loss_weight: 0.5 }]],
  [[input: "l" input_shape { dim: 1 dim: 16 } input: "c" input_shape { dim: 1 dim: 12 }
input: "data" input_shape { dim: 1 dim: 3 dim: 8 dim: 8 }
input: "is" input_shape { dim: 1 dim: 1 dim: 2 dim: 8 }
layer { name: "r" type: "Reshape" bottom: "l" top: "r"
  reshape_param { shape { dim: 0 dim: 4 dim: 2 dim: -1 } } }
layer { name: "m" type: "Permute" bottom: "r" top: "m"
  permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "n" type: "Normalize" bottom: "m" top: "n" norm_param { across_spatial: false } }
layer { name: "pb" type: "PriorBox" bottom: "r" bottom: "data" top: "pb"
  prior_box_param { min_size: 2 } }
layer { name: "det" type: "DetectionOutput" bottom: "l" bottom: "c" bottom: "pb" top: "det"
  detection_output_param { num_classes: 3 nms_param { top_k: 3 } keep_top_k: 4 } }
layer { name: "eval" type: "DetectionEvaluate" bottom: "det" bottom: "is" top: "eval"
  detection_evaluate_param { num_classes: 3 evaluate_difficult_gt: false } }
layer { name: "mb" type: "MultiBoxLoss" bottom: "l" bottom: "c" bottom: "pb" bottom: "is" top: "mb"
  multibox_loss_param { num_classes: 3 code_type: CENTER_SIZE bp_inside: true } }
layer { name: "v" type: "Deconvolution" bottom: "data" top: "v"
  convolution_param { num_output: 2 kernel_size: 4 stride: 2 } }
layer { name: "k" type: "Crop" bottom: "v" bottom: "data" top: "k"
  crop_param { axis: 2 offset: 1 } }
layers { name: "old" type: POOLING bottom: "k" top: "old"
  pooling_param { pool: AVE kernel_size: 2 } }]],
}

--- Each file in each of its forms.
local seeds = {}
for _, g in ipairs(graphs) do
  for kind = 0, 1 do seeds[#seeds + 1] = string.char(kind) .. onnx(g) end
end
for _, text in ipairs(texts) do
  for kind = 2, 4 do seeds[#seeds + 1] = string.char(kind) .. text end
end

return try, function(k) return seeds[k + 1] end
