--- How parameters start: each initialiser is a table {op = fill op, its attributes}, which a net
-- keeps beside the parameter and a workspace runs when it initialises the net. Same seed and
-- parameter name, same numbers.
-- @module neap.init
local record = require "neap.inner.record"
local init = {}

--- A function that makes initialisers of an op, whose attributes its options are.
local function maker(name, op, spec)
  local own = record.declare("neap.init." .. name, spec)
  return function(given)
    local out = own:read(given)
    record.note(out, out)
    out.op = op
    return out
  end
end

init.kaiming = maker("kaiming", "Kaiming", {
  doc = [[Uniform in +-sqrt(3 * gain^2 / fan_in): He et al., ICCV 2015. The gain sqrt(2) suits ReLU;
    sqrt(1/3) is Torch's default for layers without a statement about what follows.]],
  { of = "Kaiming.gain", unset = "sqrt(2)" }, { of = "Kaiming.mode", unset = "\"in\"" },
  { of = "Kaiming.distribution", unset = "\"uniform\"" },
  example = "neap.init.kaiming { gain = math.sqrt(2), distribution = \"normal\" }",
})

init.xavier = maker("xavier", "Xavier", {
  doc = "Uniform in +-sqrt(6 gain^2 / (fan_in + fan_out)): Glorot and Bengio, AISTATS 2010.",
  { of = "Xavier.gain", unset = "1" }, { of = "Xavier.mode", unset = "\"avg\"" },
  { of = "Xavier.distribution", unset = "\"uniform\"" },
  example = "neap.init.xavier { distribution = \"normal\" }" })

init.normal = maker("normal", "Gaussian", {
  doc = "Gaussian numbers.", positions = { "mean", "std" },
  { "mean", "number", 0, doc = "their mean" },
  { "std", "number", 1, min = 0, doc = "their standard deviation" },
  example = "neap.init.normal { 0, 0.02 }" })

init.truncated_normal = maker("truncated_normal", "TruncatedNormal", {
  doc = "Gaussian numbers, of which those outside an interval are left out.",
  positions = { "mean", "std", "low", "high" },
  { "mean", "number", 0, doc = "their mean" },
  { "std", "number", 1, above = 0, doc = "their standard deviation before the cut" },
  { "low", "number", -2, doc = "the least" },
  { "high", "number", 2, doc = "the greatest" },
  example = "neap.init.truncated_normal { std = 0.02 }" })

init.orthogonal = maker("orthogonal", "Orthogonal", {
  doc = [[A random matrix (out, in * ..) whose rows or columns, of both the fewer, are orthonormal:
    Saxe et al., ICLR 2014. For recurrent weights, and deep chains.]], positions = { "gain" },
  { of = "Orthogonal.gain" }, example = "neap.init.orthogonal { gain = math.sqrt(2) }" })

init.eye = maker("eye", "Eye", {
  doc = "Ones on a diagonal, zeros elsewhere: a linear layer that hands on what it gets.",
  { of = "Eye.diagonal" }, example = "neap.init.eye {}" })

init.dirac = maker("dirac", "Dirac", {
  doc = "A convolution's weight that hands channels on as they are.", positions = { "groups" },
  { of = "Dirac.groups" }, example = "neap.init.dirac { groups = 2 }" })

init.sparse = maker("sparse", "SparseGaussian", {
  doc = "Gaussian numbers, of which a share of every column is 0: Martens, ICML 2010.",
  positions = { "sparsity" },
  { of = "SparseGaussian.sparsity" }, { of = "SparseGaussian.std" },
  example = "neap.init.sparse { 0.9, std = 0.01 }" })

init.lecun = maker("lecun", "Kaiming", {
  doc = [[Uniform in +-sqrt(3 / fan_in), variance 1 / fan_in: LeCun et al., 1998. For SELU and
    Tanh.]],
  { of = "Kaiming.gain", default = 1 }, example = "neap.init.lecun {}" })

init.uniform = maker("uniform", "Uniform", {
  doc = "Uniform numbers.", positions = { "low", "high" },
  { "low", "number", 0, doc = "the smallest" },
  { "high", "number", 1, doc = "what they stay below" },
  example = "neap.init.uniform { -0.1, 0.1 }" })

init.constant = maker("constant", "Constant", {
  doc = "Every element the same.", positions = { "value" },
  { "value", "number", required = true, doc = "what they are" },
  example = "neap.init.constant(0.1)" })

--- Every element 0.
-- @usage net = neap.net "f"; net:param("w", { 2, 3 }, neap.init.zeros)
init.zeros = init.constant(0)
--- Every element 1.
-- @usage net = neap.net "f"; net:param("w", { 2, 3 }, neap.init.ones)
init.ones = init.constant(1)

return require("neap.inner.guard").functions(init, "neap.init.")
