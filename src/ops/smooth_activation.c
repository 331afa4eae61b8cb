/* smooth_activation.c: Selu, Celu, Mish, Softsign and LogSigmoid: activations without a backward
 * op. Their gradients are said in other ops, of the output where it tells the slope, so that the
 * forward may run in place.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

enum { ALPHA, GAMMA };
NEAP_MAP1(Selu, p[GAMMA] * (x > 0 ? x : p[ALPHA] * expm1(x)))
NEAP_MAP1(Celu, x > 0 ? x : p[ALPHA] * expm1(x / p[ALPHA]))

/* Far below 0 the factor vanishes faster than x grows, and must not meet an infinite one. */
NEAP_MAP1(Mish, x<-1000 ? 0 : x> 1000 ? x : x *tanh(log1p(exp(x))))
/* Beyond 1e30 it is 1 or -1 to the last digit; an infinity would give infinity / infinity. */
NEAP_MAP1(Softsign, x > (T)1e30 ? 1 : x < (T)-1e30 ? -1 : x / (1 + fabs(x)))
/* Of the two forms the one whose exponential can't overflow. */
NEAP_MAP1(LogSigmoid, x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x)))

#define OF_FLOATS                                                                        \
  .inputs = {{"x", "any shape"}}, .outputs = {{"y", "shape of x"}}, .inplace = {{0, 0}}, \
  .n_inplace = 1, .infer = neap_infer_like
#define CASES "{ {x={2,3,7}}, {x={{2,3,40}, low=-9, high=9}}, {x={0,4}}, {x={}} }"

const neap_op neap_op_Selu = {
  .name = "Selu",
  .summary =
    "Scaled exponential linear unit, element by element: keeps mean 0 and variance 1 through "
    "layers.",
  .math = "y = gamma (x > 0 ? x : alpha (e^x - 1))",
  .example = "net:Selu(\"x\", \"y\")",
  .source = "Klambauer et al., arXiv 1706.02515; ONNX Selu-6",
  OF_FLOATS,
  .attrs = {[ALPHA] = {"alpha", "minus the limit towards minus infinity, before gamma",
                       NEAP_ATTR_FLOAT, .value = {.f = 1.67326324235437728481}, .least = 0,
                       .most = 1e30},
            [GAMMA] = {"gamma", "factor of the whole", NEAP_ATTR_FLOAT,
                       .value = {.f = 1.05070098735548049342}, .least = 1e-30, .most = 1e30}},
  .grad_formula = "d.x = d.y * (y > 0 ? gamma : y + gamma * alpha)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Selu, NEAP_FLOATS),
  .cases = CASES,
};

const neap_op neap_op_Celu = {
  .name = "Celu",
  .summary = "Exponential linear unit with a slope without steps, element by element.",
  .math = "y = x > 0 ? x : alpha (e^(x / alpha) - 1)",
  .example = "net:Celu(\"x\", \"y\")",
  .source = "Barron, arXiv 1704.07483; ONNX Celu-12",
  OF_FLOATS,
  .attrs = {[ALPHA] = {"alpha", "minus the limit towards minus infinity", NEAP_ATTR_FLOAT,
                       .value = {.f = 1}, .least = 1e-6, .most = 1e30}},
  .grad_formula = "d.x = d.y * (y > 0 ? 1 : y / alpha + 1)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Celu, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}}, {x={{2,3,40}, low=-9, high=9}, alpha=0.4}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_Mish = {
  .name = "Mish",
  .summary = "Each element times the hyperbolic tangent of its softplus.",
  .math = "y = x tanh(ln(1 + e^x))",
  .example = "net:Mish(\"x\", \"y\")",
  .source = "Misra, arXiv 1908.08681; ONNX Mish-18",
  OF_FLOATS,
  .grad_formula = "t = Tanh(Softplus(x)); d.x = d.y * (t + x * (1 - t * t) * Sigmoid(x))",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Mish, NEAP_FLOATS),
  .cases = CASES,
};

const neap_op neap_op_Softsign = {
  .name = "Softsign",
  .summary = "A sigmoid that nears its bounds slowly, element by element.",
  .math = "y = x / (1 + |x|)",
  .example = "net:Softsign(\"x\", \"y\")",
  .source = "ONNX Softsign-1",
  OF_FLOATS,
  .grad_formula = "a = 1 + Abs(x); d.x = d.y / (a * a)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Softsign, NEAP_FLOATS),
  .cases = CASES,
};

const neap_op neap_op_LogSigmoid = {
  .name = "LogSigmoid",
  .summary = "Logarithm of the logistic function, element by element.",
  .math = "y = -ln(1 + e^-x)",
  .example = "net:LogSigmoid(\"x\", \"y\")",
  .source = "torch.nn.LogSigmoid",
  OF_FLOATS,
  .grad_formula = "d.x = d.y * Sigmoid(-x)",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_LogSigmoid, NEAP_FLOATS),
  .cases = CASES,
};
