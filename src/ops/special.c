/* special.c: functions beyond the elementary ones, element by element: Erfc, Erfinv, Lgamma,
 * Digamma, Polygamma, Sinc. All but Erfc are computed in double (math/special.h) and rounded once.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#include "math/special.h"
#include "ops/elementwise.h"

enum { N }; /* ORDER: Polygamma's parameter */

NEAP_MAP1(Erfc, erfc(x))
NEAP_MAP1(Erfinv, neap_erfinv((double)x))
NEAP_MAP1(Lgamma, neap_lgamma((double)x))
NEAP_MAP1(Digamma, neap_digamma((double)x))
NEAP_MAP1(Polygamma, neap_polygamma((int)p[N], (double)x))
NEAP_MAP1(Sinc, neap_sinc((double)x))
/* clang-format on */

/* A kernel under NEAP_REF_ANY_LAYOUT maps 0 to 0. */
#define OF_FLOATS                                                                        \
  .inputs = {{"x", "any shape"}}, .outputs = {{"y", "shape of x"}}, .inplace = {{0, 0}}, \
  .n_inplace = 1, .infer = neap_infer_like
#define CASES "{ {x={2,3,7}}, {x={0,4}}, {x={}} }"
/* Between the poles of the gamma functions, and on both sides of 0. */
#define GAMMA_CASES(more)                                                        \
  "{ {x={{2,3,7}, low=0.2, high=4}" more "}, {x={{5}, low=-0.8, high=-0.2}" more \
  "}, {x={{5}, "                                                                 \
  "low=-3.8, high=-3.2}" more "}, {x={0,4}" more "}, {x={{}, low=9, high=20}" more "} }"

const neap_op neap_op_Erfc = {
  .name = "Erfc",
  .summary =
    "Complement of the error function, element by element: its digits are kept where that "
    "is near 1.",
  .math = "y = 1 - erf(x)",
  .example = "net:Erfc(\"x\", \"y\")",
  .source = "C11 erfc",
  OF_FLOATS,
  .grad_formula = "d.x = d.y * Exp(-x * x) * -1.12837916709551257390",
  .kernels = NEAP_REF(run_Erfc, NEAP_FLOATS),
  .cases = CASES,
};

const neap_op neap_op_Erfinv = {
  .name = "Erfinv",
  .summary = "Inverse of the error function, element by element; NaN beyond -1 and 1.",
  .math = "erf(y) = x",
  .example = "net:Erfinv(\"x\", \"y\")",
  .source = "torch.erfinv; Winitzki, 2008; Halley's method",
  OF_FLOATS,
  .grad_formula = "d.x = d.y * Exp(y * y) * 0.88622692545275801365",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Erfinv, NEAP_FLOATS),
  .cases = "{ {x={{2,3,7}, low=-0.9, high=0.9}}, {x={0,4}}, {x={{}, low=-0.9, high=0.9}} }",
};

const neap_op neap_op_Lgamma = {
  .name = "Lgamma",
  .summary = "Logarithm of the absolute value of the gamma function, element by element.",
  .math = "y = ln |gamma(x)|",
  .example = "net:Lgamma(\"x\", \"y\")",
  .source = "C11 lgamma",
  OF_FLOATS,
  .grad_formula = "d.x = d.y * Digamma(x)",
  .special = "infinite at 0 and the negative integers",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_Lgamma, NEAP_FLOATS),
  .cases = GAMMA_CASES(""),
};

const neap_op neap_op_Digamma = {
  .name = "Digamma",
  .summary = "Derivative of the logarithm of the gamma function, element by element.",
  .math = "y = d/dx ln gamma(x)",
  .example = "net:Digamma(\"x\", \"y\")",
  .source = "torch.digamma; Abramowitz and Stegun 6.3",
  OF_FLOATS,
  .grad_formula = "d.x = d.y * Polygamma(x, n = 1)",
  .special = "-infinity at 0, infinity at -0, NaN at the negative integers",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_Digamma, NEAP_FLOATS),
  .cases = GAMMA_CASES(""),
};

/* The next derivative: a formula can't count. */
static neap_status grad_polygamma(neap_grad *g, neap_error *error) {
  (void)error;
  neap_value_id next = neap_grad_emit1(g, "Polygamma", 1, g->in, NULL,
                                       (neap_set[]){NEAP_SET_INT("n", g->attrs[N].i + 1), {0}});
  g->din[0] = neap_grad_emit1(g, "Mul", 2, (neap_value_id[]){g->dout[0], next}, NULL, NULL);
  return NEAP_OK;
}

const neap_op neap_op_Polygamma = {
  .name = "Polygamma",
  .summary =
    "The n-th derivative of Digamma, element by element; the first is the trigamma "
    "function.",
  .math = "y = d^n/dx^n digamma(x)",
  .example = "net:Polygamma(\"x\", \"y\", {n = 1})",
  .source = "torch.polygamma; Abramowitz and Stegun 6.4",
  OF_FLOATS,
  .attrs = {[N] = {"n", "how many times Digamma is differentiated", NEAP_ATTR_INT,
                   .value = {.i = 1}, .least = 0, .most = 100}},
  .grad = grad_polygamma,
  .special = "infinite at 0 and the negative integers",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_Polygamma, NEAP_FLOATS),
  .cases = GAMMA_CASES(", n=1"),
};

/* Near 0 the derivative is a difference of what is nearly equal: there its series, whose next term
 * is 1e-14 of it. */
const neap_op neap_op_Sinc = {
  .name = "Sinc",
  .summary = "Normalised sinc function, element by element.",
  .math = "y = sin(pi x) / (pi x), 1 at 0",
  .example = "net:Sinc(\"x\", \"y\")",
  .source = "torch.sinc",
  OF_FLOATS,
  .grad_formula =
    "near = Abs(x) < 0.03; u = near ? 1 : x; s = x * x;"
    "a = x * (s * (3.24696970113341 - s * (1.14451094473251 - s * 0.209182782541238)) -"
    " 3.28986813369645);"
    "d.x = d.y * (near ? a : (Cos(u * 3.14159265358979324) - Sinc(u)) / u)",
  .kernels = NEAP_REF(run_Sinc, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}}, {x={{9}, low=-0.02, high=0.02}}, {x={0,4}}, {x={}} }",
};
