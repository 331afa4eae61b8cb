/* gelu.c: Gelu, exact (by the error function) and by the tanh approximation of the paper, and its
 * backward.
 *
 * The output does not determine the input, so the backward reads the input. */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

enum { APPROXIMATE };
enum { EXACT, BY_TANH };

/* 1/sqrt(2), 1/sqrt(2 pi), sqrt(2/pi) */
#define ROOT_HALF 0.70710678118654752440
#define DENSITY 0.39894228040143267794
#define ROOT_2_PI 0.79788456080286535588
#define CUBIC 0.044715

/* The argument of tanh, and its derivative; the slope of the whole, t that tanh. */
#define INNER(x) ((T)ROOT_2_PI * (x + (T)CUBIC * x * x * x))
#define INNER_SLOPE(x) ((T)ROOT_2_PI * (1 + (T)(3 * CUBIC) * x * x))
#define SLOPE(t, x) ((T)0.5 * (1 + (t)) + (T)0.5 * (x) * (1 - (t) * (t)) * INNER_SLOPE(x))
/* Beyond, tanh is 1 or -1 and its slope 0, which must not meet an infinite factor. NaN stays. */
#define NEAR(x) ((x) > (T)16 ? (T)16 : (x) < (T)-16 ? (T)-16 : (x))

NEAP_MAP1(exact, (T)0.5 * x * (1 + neap_erf(x * (T)ROOT_HALF)))
NEAP_MAP1(tanh, (T)0.5 * x * (1 + neap_tanh(INNER(x))))

/* y = gradient of the output. d/dx (x P(x)) = P(x) + x p(x). */
NEAP_MAP2_SAME(exact_grad, y *((T)0.5 * (1 + neap_erf(x * (T)ROOT_HALF)) +
                               x * (T)DENSITY * neap_exp((T)-0.5 * x * x)))
NEAP_MAP2_SAME(tanh_grad, y *SLOPE(neap_tanh(INNER(x)), NEAR(x)))

static void run_forward(const neap_call *call) {
  (call->attrs[APPROXIMATE].i == EXACT ? run_exact : run_tanh)(call);
}

static void run_backward(const neap_call *call) {
  (call->attrs[APPROXIMATE].i == EXACT ? run_exact_grad : run_tanh_grad)(call);
}

static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  g->din[0] = neap_grad_emit1(g, "GeluGrad", 2, (neap_value_id[]){g->in[0], g->dout[0]}, g, NULL);
  return NEAP_OK;
}

#define GELU_ATTRS                        \
  {                                       \
    [APPROXIMATE] = {                     \
      "approximate",                      \
      "exact, or the tanh form of GPT-2", \
      NEAP_ATTR_ENUM,                     \
      .value = {.i = EXACT},              \
      .choices = "none|tanh"              \
    }                                     \
  }

const neap_op neap_op_Gelu = {
  .name = "Gelu",
  .summary =
    "Gaussian error linear unit: each element times the normal distribution function of it.",
  .math =
    "y = x P(x), P(x) = (1 + erf(x / sqrt 2)) / 2;  tanh: y = x (1 + tanh(sqrt(2/pi) (x + 0.044715 "
    "x^3))) / 2",
  .example = "net:Gelu(\"x\", \"y\", {approximate = \"tanh\"})",
  .source = "Hendrycks and Gimpel, arXiv 1606.08415",
  .inputs = {{"x", "any shape"}},
  .outputs = {{"y", "shape of x"}},
  .attrs = GELU_ATTRS,
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = neap_infer_like,
  .grad = grad,
  .kernels = NEAP_REF_ANY_LAYOUT(run_forward, NEAP_FLOATS),
  .cases =
    "{ {x={2,3,7}}, {x={2,3,7}, approximate=\"tanh\"}, {x={{33}, low=-9, high=9}}, {x={0,4}}, "
    "{x={}} }",
};

const neap_op neap_op_GeluGrad = {
  .name = "GeluGrad",
  .summary = "Backward of Gelu.",
  .math = "dx = dy (P(x) + x p(x)), p the normal density;  tanh: the derivative of the tanh form",
  .internal = true,
  .inputs = {{"x", "input of the forward"}, {"dy", "gradient of its output"}},
  .outputs = {{"dx", "shape of x"}},
  .attrs = GELU_ATTRS,
  .inplace = {{1, 0}, {0, 0}},
  .n_inplace = 2,
  .infer = neap_infer_like,
  .formula =
    "t = approximate ? Tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)) : "
    "Erf(0.70710678118654752440 * x);"
    "slope = approximate ? (1 - t * t) * 0.79788456080286535588 * (1 + 0.134145 * x * x) "
    ": 0.79788456080286535588 * Exp(-0.5 * x * x);"
    "dx = 0.5 * dy * (1 + t + x * slope)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_backward, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}, dy={2,3,7}}, {x={2,3,7}, dy={2,3,7}, approximate=\"tanh\"} }",
};
