--- The ops of ONNX that Neap has: by domain and name a builder f(node, operands ..) -> results. A
-- builder knows all versions of its op: node.version is that of the model's opset. And beside it
-- the way back: by the name of Neap's op a writer f(op, values ..) -> values, which adds nodes
-- (neap.onnx.out), or the name of the ONNX op that is the same and has no attributes.
-- @module neap.onnx.ops
local ops = { by_domain = { [""] = {}, ["com.microsoft"] = {} }, out = {},
  needed_of = { ["com.microsoft"] = { QLinearAdd = 7, QLinearConcat = 4 } } }

--- The builder of an op, nil where there is none.
function ops.find(domain, name)
  local list = ops.by_domain[domain]
  return list and list[name]
end

--- How many inputs must be there: one, but for these.
local needs = {
  [0] = "Constant RandomUniform RandomNormal SequenceEmpty SequenceConstruct Optional \z
    OptionalHasElement Loop Scan",
  [2] = "Add Sub Mul Div Pow Mod And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual \z
    BitwiseAnd BitwiseOr BitwiseXor BitShift CastLike MatMul Gemm Conv ConvTranspose PRelu Gather \z
    GatherElements GatherND Expand CumSum CumProd GridSample AffineGrid QuantizeLinear \z
    DequantizeLinear MaxUnpool ConvInteger MatMulInteger NegativeLogLikelihoodLoss \z
    SoftmaxCrossEntropyLoss ReverseSequence Compress CenterCropPad TensorScatter STFT SequenceAt \z
    SequenceInsert RMSNormalization LayerNormalization",
  [3] = "Where RoiAlign DeformConv ScatterElements ScatterND Scatter Attention RotaryEmbedding \z
    RNN GRU LSTM Range OneHot InstanceNormalization GroupNormalization Col2Im",
  [5] = "BatchNormalization", [8] = "QLinearMatMul QLinearConv",
}
local n_needed = {}
for n, names in pairs(needs) do
  for name in names:gmatch "%w+" do n_needed[name] = n end
end

--- How many of its inputs, from the first on, a node of this op has.
function ops.n_needed(domain, name)
  local needed = domain == "" and n_needed or ops.needed_of[domain]
  return needed and needed[name] or 1
end

-- Inputs that may be left out though one behind them is needed: zero points, which are 0 then.
local optional = { ["com.microsoft"] = { QLinearAdd = { [3] = true, [6] = true } } }

--- Whether a node of this op has to have its input i, one of those that ops.n_needed counts.
function ops.is_needed(domain, name, i)
  local may_lack = optional[domain] and optional[domain][name]
  return not (may_lack and may_lack[i])
end

-- Inputs that hold what a net has seen: no gradient reaches them.
ops.statistics = { BatchNormalization = { 4, 5 } }
--- Inputs that are first states.
ops.first_states = { LSTM = { 6, 7 }, GRU = { 6 }, RNN = { 6 } }

for _, family in ipairs {
  "elementwise", "reductions", "shapes", "norms", "products", "vision", "quantised", "recurrent",
  "control", "losses", "signal", "draws",
} do
  require("neap.onnx." .. family)(ops.by_domain[""], ops.out, ops.by_domain["com.microsoft"])
end

return ops
