--- The ops of ONNX that Neap has: by domain and name a builder f(node, operands ..) -> results. One
-- builder knows all versions of its op: node.version is that of the model's opset.
-- @module neap.onnx.ops
local ops = { by_domain = { [""] = {} } }

--- The builder of an op, nil where there is none.
function ops.find(domain, name)
  local list = ops.by_domain[domain]
  return list and list[name]
end

--- How many inputs must be there: one, but for these.
local needs = {
  [0] = "Constant SequenceEmpty SequenceConstruct Optional OptionalHasElement Loop Scan",
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
function ops.n_needed(domain, name) return domain == "" and n_needed[name] or 1 end

for _, family in ipairs {
  "elementwise", "reductions", "shapes", "norms", "products", "vision", "quantised", "recurrent",
  "control", "losses", "signal",
} do
  require("neap.onnx." .. family)(ops.by_domain[""], ops.by_domain)
end

return ops
