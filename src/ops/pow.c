/* pow.c: Pow, the power of one tensor to another, with broadcasting.
 *
 * At the edges the gradients follow PyTorch: an exponent of 0 gives no gradient to the base, and a
 * base of 0 with an exponent that is not negative gives none to the exponent, where the formulas
 * would say 0 times infinity.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

/* By squaring; wraps around. A negative exponent leaves what truncation leaves: 1, -1 or 0. */
static inline uint64_t power_of_integer(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == -1) return exponent % 2 == 0 ? 1 : UINT64_MAX;
    return base == 1;
  }
  /* x^n by the bits of n: the factors x, x^2, x^4, .. of those that are set. */
  uint64_t y = 1, factor = (uint64_t)base;
  for (; exponent > 0; exponent /= 2, factor *= factor)
    if (exponent % 2 == 1) y *= factor;
  return y;
}

/* The exponent that scripts write most often needs no logarithm. */
NEAP_MAP2_NUMBERS(Pow, y == 2 ? x * x : pow(x, y), power_of_integer(x, y))

/* x = base, y = exponent, z = gradient of the power */
NEAP_MAP3(PowGradBase, y == 0 ? 0 : z * y * pow(x, y - 1))
NEAP_MAP3(PowGradExponent, (x == 0) & (y >= 0) ? 0 : z * pow(x, y) * log(x))

/* One op for each gradient that is wanted; what was broadcast is summed back. */
static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  static const char *const type[] = {"PowGradBase", "PowGradExponent"};
  for (int i = 0; i < 2; i++)
    if (g->want[i]) {
      neap_value_id din = neap_grad_emit1(
        g, type[i], 3, (neap_value_id[]){g->in[0], g->in[1], g->dout[0]}, NULL, NULL);
      g->din[i] = neap_grad_reduce_to(g, din, g->in[i]);
    }
  return NEAP_OK;
}

#define BACKWARD                                                                                   \
  .internal = true, .inputs = {{"a", "base"}, {"b", "exponent"}, {"dy", "gradient of the power"}}, \
  .inplace = {{2, 0}, {0, 0}, {1, 0}}, .n_inplace = 3, .infer = neap_elementwise_infer,            \
  .cases = "{ {a={{3,4}, low=0.2, high=3}, b={4}, dy={3,4}} }"

const neap_op neap_op_Pow = {
  .name = "Pow",
  .summary = "Power of one tensor to another, element by element, with broadcasting.",
  .math = "y = a^b",
  .example = "net:Pow({\"a\", \"b\"}, \"y\")",
  .source = "ONNX Pow-15",
  .inputs = {{"a", "base, any shape", NEAP_NUMBERS},
             {"b", "exponent, broadcasts with a", NEAP_NUMBERS}},
  .outputs = {{"y", "broadcast shape", NEAP_NUMBERS}},
  .inplace = {{0, 0}, {1, 0}},
  .n_inplace = 2,
  .infer = neap_elementwise_infer,
  .grad = grad,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_Pow, NEAP_NUMBERS),
  .cases =
    "{ {a={{3,4}, low=0.2, high=3}, b={3,4}}, {a={{3,4}, low=0.2, high=3}, b={4}}, {a={{3,1}, "
    "low=0.2, high=3}, b={1,5}}, "
    "{a={{2,3,4}, low=0.2, high=3}, b={}}, {a={0,4}, b={4}} }",
};

const neap_op neap_op_PowGradBase = {
  .name = "PowGradBase",
  .summary = "Gradient of Pow with respect to the base, before it is summed back to its shape.",
  .math = "da = b = 0 ? 0 : dy b a^(b-1)",
  .outputs = {{"da", "shape of dy"}},
  BACKWARD,
  .formula = "e = b == 0 ? 1 : b; da = dy * b * Pow(a, e - 1)",
  .kernels = NEAP_REF(run_PowGradBase, NEAP_FLOATS),
};

const neap_op neap_op_PowGradExponent = {
  .name = "PowGradExponent",
  .summary = "Gradient of Pow with respect to the exponent, before it is summed back to its shape.",
  .math = "db = a = 0 and b >= 0 ? 0 : dy a^b ln a",
  .outputs = {{"db", "shape of dy"}},
  BACKWARD,
  .formula = "s = a == 0 ? 1 : a; db = dy * Pow(s, b) * Log(s)",
  .kernels = NEAP_REF(run_PowGradExponent, NEAP_FLOATS),
};
