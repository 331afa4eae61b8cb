/* activation.c: Sigmoid, Tanh, Silu, Relu6, LeakyRelu, Elu, Softplus and Clamp, and their backward
 * ops.
 *
 * Where the output tells the slope, the backward reads the output, so that the forward may run in
 * place. It does not for Silu, which is not monotonic; for Softplus, which steps down at its
 * threshold; and for Clamp, whose slope at a bound is 1 if the input was there, 0 if it was moved
 * there.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

NEAP_MAP1(Sigmoid, neap_sigmoid(x))
NEAP_MAP2_SAME(SigmoidGrad, y *(x *(1 - x)))

NEAP_MAP1(Tanh, neap_tanh(x))
NEAP_MAP2_SAME(TanhGrad, y *(1 - x * x))

/* s + x s (1 - s) = s (1 + x (1 - s)), s = sigmoid(x) */
#define SILU_SLOPE(s, x) ((s) * (1 + (x) * (1 - (s))))
NEAP_MAP1(Silu, x *neap_sigmoid(x))
NEAP_MAP2_SAME(SiluGrad, y *SILU_SLOPE(neap_sigmoid(x), x))

/* Comparisons are written so that NaN fails them and passes through. */
NEAP_MAP1(Relu6, x<0 ? 0 : x> 6 ? 6 : x)
NEAP_MAP2_SAME(Relu6Grad, (x <= 0) | (x >= 6) ? 0 : y)

enum { SLOPE };
NEAP_MAP1(LeakyRelu, x > 0 ? x : p[SLOPE] * x)
NEAP_MAP2_SAME(LeakyReluGrad, x > 0 ? y : p[SLOPE] * y)

/* expm1 keeps the digits near 0. Backward: alpha e^x = y + alpha below 0. */
enum { ALPHA };
NEAP_MAP1(Elu, x > 0 ? x : p[ALPHA] * expm1(x))
NEAP_MAP2_SAME(EluGrad, x > 0 ? y : y * (x + p[ALPHA]))

/* Above the threshold y is x. */
enum { BETA, THRESHOLD };
NEAP_MAP1(Softplus, x *p[BETA] > p[THRESHOLD] ? x : log1p(exp(x * p[BETA])) / p[BETA])
NEAP_MAP2_SAME(SoftplusGrad, x *p[BETA] > p[THRESHOLD] ? y : y * neap_sigmoid(p[BETA] * x))

enum { LEAST, MOST };
NEAP_MAP1(Clamp, x<p[LEAST] ? p[LEAST] : x> p[MOST] ? p[MOST] : x)
NEAP_MAP2_SAME(ClampGrad, (x >= p[LEAST]) & (x <= p[MOST]) ? y : 0)

/* Bounds in the wrong order would make Clamp a constant: ATTRIBUTE error. */
static neap_status infer_clamp(neap_infer *c, neap_error *error) {
  if (c->attrs[LEAST].f > c->attrs[MOST].f)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "min = %g expects to be at most max = %g",
                           c->attrs[LEAST].f, c->attrs[MOST].f);
  return neap_infer_like(c, error);
}

/* The backward as op NAMEGrad of what the forward left, `in` or `out`, and dy; attributes of the
 * same names go along. */
#define GRAD(NAME, saved)                                                                       \
  static neap_status grad_##NAME(neap_grad *g, neap_error *error) {                             \
    (void)error;                                                                                \
    g->din[0] =                                                                                 \
      neap_grad_emit1(g, #NAME "Grad", 2, (neap_value_id[]){g->saved[0], g->dout[0]}, g, NULL); \
    return NEAP_OK;                                                                             \
  }
GRAD(Sigmoid, out)
GRAD(Tanh, out)
GRAD(Silu, in)
GRAD(Relu6, out)
GRAD(LeakyRelu, out)
GRAD(Elu, out)
GRAD(Softplus, in)
GRAD(Clamp, in)

/* What the records share. In place, where the planner finds that nobody else reads x. */
#define FORWARD                                                                          \
  .inputs = {{"x", "any shape"}}, .outputs = {{"y", "shape of x"}}, .inplace = {{0, 0}}, \
  .n_inplace = 1, .infer = neap_infer_like
#define BACKWARD_OF(forward, saved, saved_doc)                                        \
  .internal = true, .summary = "Backward of " forward ".",                            \
  .inputs = {{saved, saved_doc " of the forward"}, {"dy", "gradient of its output"}}, \
  .outputs = {{"dx", "shape of dy"}}, .inplace = {{1, 0}, {0, 0}}, .n_inplace = 2,    \
  .infer = neap_infer_like
#define CASES "{ {x={2,3,7}}, {x={{2,3,40}, low=-9, high=9}}, {x={0,4}}, {x={}} }"

const neap_op neap_op_Sigmoid = {
  .name = "Sigmoid",
  .summary = "Logistic function, element by element.",
  .math = "y = 1 / (1 + e^-x)",
  .example = "net:Sigmoid(\"x\", \"y\")",
  .source = "ONNX Sigmoid-13",
  FORWARD,
  .grad = grad_Sigmoid,
  .kernels = NEAP_REF(run_Sigmoid, NEAP_FLOATS),
  .cases = CASES,
};

const neap_op neap_op_SigmoidGrad = {
  .name = "SigmoidGrad",
  BACKWARD_OF("Sigmoid", "y", "output"),
  .math = "dx = dy y (1 - y)",
  .formula = "dx = dy * y * (1 - y)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_SigmoidGrad, NEAP_FLOATS),
  .cases = "{ {y={{2,3,7}, low=0, high=1}, dy={2,3,7}} }",
};

const neap_op neap_op_Tanh = {
  .name = "Tanh",
  .summary = "Hyperbolic tangent, element by element.",
  .math = "y = tanh x",
  .example = "net:Tanh(\"x\", \"y\")",
  .source = "ONNX Tanh-13",
  FORWARD,
  .grad = grad_Tanh,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Tanh, NEAP_FLOATS),
  .cases = CASES,
};

const neap_op neap_op_TanhGrad = {
  .name = "TanhGrad",
  BACKWARD_OF("Tanh", "y", "output"),
  .math = "dx = dy (1 - y^2)",
  .formula = "dx = dy * (1 - y * y)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_TanhGrad, NEAP_FLOATS),
  .cases = "{ {y={{2,3,7}, low=-1, high=1}, dy={2,3,7}} }",
};

const neap_op neap_op_Silu = {
  .name = "Silu",
  .summary = "Sigmoid linear unit (swish): each element times its logistic function.",
  .math = "y = x / (1 + e^-x)",
  .example = "net:Silu(\"x\", \"y\")",
  .source = "Hendrycks and Gimpel, arXiv 1606.08415; Ramachandran et al., arXiv 1710.05941",
  FORWARD,
  .grad = grad_Silu,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Silu, NEAP_FLOATS),
  .cases = CASES,
};

const neap_op neap_op_SiluGrad = {
  .name = "SiluGrad",
  BACKWARD_OF("Silu", "x", "input"),
  .math = "dx = dy s (1 + x (1 - s)), s = 1 / (1 + e^-x)",
  .formula = "s = Sigmoid(x); dx = dy * s * (1 + x * (1 - s))",
  .kernels = NEAP_REF_ANY_LAYOUT(run_SiluGrad, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}, dy={2,3,7}} }",
};

const neap_op neap_op_Relu6 = {
  .name = "Relu6",
  .summary = "Rectified linear unit that saturates at 6, element by element.",
  .math = "y = min(max(x, 0), 6)",
  .example = "net:Relu6(\"x\", \"y\")",
  .source = "Howard et al., arXiv 1704.04861",
  FORWARD,
  .grad = grad_Relu6,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Relu6, NEAP_FLOATS),
  .cases = CASES,
};

const neap_op neap_op_Relu6Grad = {
  .name = "Relu6Grad",
  BACKWARD_OF("Relu6", "y", "output"),
  .math = "dx = 0 < y < 6 ? dy : 0",
  .nan = NEAP_NAN_DECIDES,
  .special = "where y is NaN dy passes",
  .grad_formula = "d.dy = Relu6Grad(y, d.dx)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Relu6Grad, NEAP_FLOATS),
  .cases = "{ {y={{2,3,7}, low=-1, high=7}, dy={2,3,7}} }",
};

/* The slope is not negative, so that the output has the sign of the input. */
#define LEAKY_ATTRS         \
  {                         \
    [SLOPE] = {             \
      "slope",              \
      "slope below 0",      \
      NEAP_ATTR_FLOAT,      \
      .value = {.f = 0.01}, \
      .least = 0,           \
      .most = 1e30          \
    }                       \
  }

const neap_op neap_op_LeakyRelu = {
  .name = "LeakyRelu",
  .summary = "Rectified linear unit with a small slope below 0, element by element.",
  .math = "y = x > 0 ? x : slope x",
  .example = "net:LeakyRelu(\"x\", \"y\", {slope = 0.1})",
  .source = "Maas, Hannun and Ng, ICML 2013",
  FORWARD,
  .attrs = LEAKY_ATTRS,
  .grad = grad_LeakyRelu,
  .kernels = NEAP_REF_ANY_LAYOUT(run_LeakyRelu, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}}, {x={2,3,7}, slope=0.3}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_LeakyReluGrad = {
  .name = "LeakyReluGrad",
  BACKWARD_OF("LeakyRelu", "y", "output"),
  .math = "dx = y > 0 ? dy : slope dy",
  .attrs = LEAKY_ATTRS,
  .nan = NEAP_NAN_DECIDES,
  .special = "where y is NaN dy passes as below 0",
  .grad_formula = "d.dy = LeakyReluGrad(y, d.dx, ..)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_LeakyReluGrad, NEAP_FLOATS),
  .cases = "{ {y={2,3,7}, dy={2,3,7}} }",
};

/* Alpha is not negative, for the same reason. */
#define ELU_ATTRS                               \
  {                                             \
    [ALPHA] = {                                 \
      "alpha",                                  \
      "minus the limit towards minus infinity", \
      NEAP_ATTR_FLOAT,                          \
      .value = {.f = 1},                        \
      .least = 0,                               \
      .most = 1e30                              \
    }                                           \
  }

const neap_op neap_op_Elu = {
  .name = "Elu",
  .summary = "Exponential linear unit, element by element.",
  .math = "y = x > 0 ? x : alpha (e^x - 1)",
  .example = "net:Elu(\"x\", \"y\", {alpha = 1})",
  .source = "Clevert, Unterthiner and Hochreiter, arXiv 1511.07289",
  FORWARD,
  .attrs = ELU_ATTRS,
  .grad = grad_Elu,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Elu, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}}, {x={2,3,7}, alpha=0.4}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_EluGrad = {
  .name = "EluGrad",
  BACKWARD_OF("Elu", "y", "output"),
  .math = "dx = y > 0 ? dy : dy (y + alpha)",
  .attrs = ELU_ATTRS,
  .formula = "dx = y > 0 ? dy : dy * (y + alpha)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_EluGrad, NEAP_FLOATS),
  .cases = "{ {y={{2,3,7}, low=-1, high=2}, dy={2,3,7}} }",
};

#define SOFTPLUS_ATTR_LIST                                                                   \
  {                                                                                          \
    [BETA] =                                                                                 \
      {"beta", "sharpness", NEAP_ATTR_FLOAT, .value = {.f = 1}, .least = 1e-6, .most = 1e6}, \
    [THRESHOLD] = {                                                                          \
      "threshold",                                                                           \
      "of beta x, above which y = x",                                                        \
      NEAP_ATTR_FLOAT,                                                                       \
      .value = {.f = 20}                                                                     \
    }                                                                                        \
  }

const neap_op neap_op_Softplus = {
  .name = "Softplus",
  .summary = "Smooth rectified linear unit, element by element.",
  .math = "y = beta x > threshold ? x : ln(1 + e^(beta x)) / beta",
  .example = "net:Softplus(\"x\", \"y\")",
  .source = "Dugas et al., NIPS 2000",
  FORWARD,
  .attrs = SOFTPLUS_ATTR_LIST,
  .grad = grad_Softplus,
  .kernels = NEAP_REF(run_Softplus, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}}, {x={2,3,7}, beta=2.5}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_SoftplusGrad = {
  .name = "SoftplusGrad",
  BACKWARD_OF("Softplus", "x", "input"),
  .math = "dx = beta x > threshold ? dy : dy / (1 + e^(-beta x))",
  .attrs = SOFTPLUS_ATTR_LIST,
  .formula = "dx = beta * x > threshold ? dy : dy * Sigmoid(beta * x)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_SoftplusGrad, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}, dy={2,3,7}} }",
};

#define CLAMP_ATTR_LIST                                                                      \
  {                                                                                          \
    [LEAST] = {"min", "lower bound", NEAP_ATTR_FLOAT, .value = {.f = -INFINITY}}, [MOST] = { \
      "max",                                                                                 \
      "upper bound",                                                                         \
      NEAP_ATTR_FLOAT,                                                                       \
      .value = {.f = INFINITY}                                                               \
    }                                                                                        \
  }

/* Plain only: the padding lanes would become a bound that is not 0. */
const neap_op neap_op_Clamp = {
  .name = "Clamp",
  .summary = "Moves elements into an interval; the gradient passes within it, bounds included.",
  .math = "y = min(max(x, min), max)",
  .example = "net:Clamp(\"x\", \"y\", {min = -1, max = 1})",
  .source = "ONNX Clip-13",
  .inputs = {{"x", "any shape"}},
  .outputs = {{"y", "shape of x"}},
  .attrs = CLAMP_ATTR_LIST,
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = infer_clamp,
  .grad = grad_Clamp,
  .kernels = NEAP_REF(run_Clamp, NEAP_FLOATS),
  .cases =
    "{ {x={2,3,7}, min=-0.5, max=0.7}, {x={2,3,7}, max=0.3}, {x={2,3,7}, min=-0.2}, {x={0,4}}, "
    "{x={}} }",
};

const neap_op neap_op_ClampGrad = {
  .name = "ClampGrad",
  BACKWARD_OF("Clamp", "x", "input"),
  .math = "dx = min <= x <= max ? dy : 0",
  .attrs = CLAMP_ATTR_LIST,
  .grad_formula = "d.dy = ClampGrad(x, d.dx, ..)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_ClampGrad, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}, dy={2,3,7}, min=-0.5, max=0.7} }",
};
