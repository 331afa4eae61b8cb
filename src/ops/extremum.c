/* extremum.c: Maximum and Minimum of two tensors, with broadcasting. NaN in either wins, as in
 * NumPy and PyTorch; where both are equal each gets half of the gradient.
 *
 * One backward op serves both inputs: the input it differentiates comes first. */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

/* `x != x` keeps a NaN in x; a NaN in y fails the comparison and is taken. */
NEAP_MAP2_NUMBERS(Maximum, (x > y) | (x != x) ? x : y, x > y ? x : y)
NEAP_MAP2_NUMBERS(Minimum, (x < y) | (x != x) ? x : y, x < y ? x : y)

/* x = the input, y = the other one, z = the gradient that arrives */
NEAP_MAP3(MaximumGrad, x < y ? 0 : x == y ? (T)0.5 * z : z)
NEAP_MAP3(MinimumGrad, x > y ? 0 : x == y ? (T)0.5 * z : z)

static neap_status grad_both(neap_grad *g, const char *type) {
  for (int i = 0; i < 2; i++)
    if (g->want[i]) {
      neap_value_id din = neap_grad_emit1(
        g, type, 3, (neap_value_id[]){g->in[i], g->in[1 - i], g->dout[0]}, NULL, NULL);
      g->din[i] = neap_grad_reduce_to(g, din, g->in[i]);
    }
  return NEAP_OK;
}

static neap_status grad_max(neap_grad *g, neap_error *error) {
  (void)error;
  return grad_both(g, "MaximumGrad");
}

static neap_status grad_min(neap_grad *g, neap_error *error) {
  (void)error;
  return grad_both(g, "MinimumGrad");
}

#define BINARY                                                                                  \
  .inputs = {{"a", "any shape", NEAP_NUMBERS}, {"b", "broadcasts with a", NEAP_NUMBERS}},       \
  .outputs = {{"y", "broadcast shape", NEAP_NUMBERS}}, .inplace = {{0, 0}, {1, 0}},             \
  .n_inplace = 2, .infer = neap_elementwise_infer,                                              \
  .cases =                                                                                      \
    "{ {a={3,4}, b={3,4}}, {a={3,4}, b={4}}, {a={3,4}, b={3,1}}, {a={2,3,4}, b={}}, {a={3,1}, " \
    "b={1,5}}, "                                                                                \
    "{a={4}, b={2,3,4}}, {a={0,4}, b={4}}, {a={}, b={}} }"
#define BACKWARD                                                                           \
  .internal = true,                                                                        \
  .inputs = {{"a", "the input differentiated"},                                            \
             {"b", "the other one"},                                                       \
             {"dy", "gradient of the output"}},                                            \
  .outputs = {{"da", "shape of dy"}}, .inplace = {{2, 0}, {0, 0}, {1, 0}}, .n_inplace = 3, \
  .infer = neap_elementwise_infer,                                                         \
  .cases = "{ {a={3,4}, b={4}, dy={3,4}}, {a={3,4}, b={3,4}, dy={3,4}} }"

const neap_op neap_op_Maximum = {
  .name = "Maximum",
  .summary =
    "The larger of two tensors, element by element, with broadcasting; half the gradient to each "
    "on ties.",
  .math = "y = max(a, b)",
  .example = "net:Maximum({\"a\", \"b\"}, \"y\")",
  .source = "NumPy maximum",
  BINARY,
  .grad = grad_max,
  .special = "a NaN in either wins",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Maximum, NEAP_NUMBERS),
};

const neap_op neap_op_MaximumGrad = {
  .name = "MaximumGrad",
  .summary =
    "Gradient of Maximum with respect to one input, before it is summed back to its shape.",
  .math = "da = a > b ? dy : a = b ? dy / 2 : 0",
  BACKWARD,
  .nan = NEAP_NAN_DECIDES,
  .special = "where either is NaN dy passes to both",
  .grad_formula = "d.dy = MaximumGrad(a, b, d.da)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_MaximumGrad, NEAP_FLOATS),
};

const neap_op neap_op_Minimum = {
  .name = "Minimum",
  .summary =
    "The smaller of two tensors, element by element, with broadcasting; half the gradient to each "
    "on ties.",
  .math = "y = min(a, b)",
  .example = "net:Minimum({\"a\", \"b\"}, \"y\")",
  .source = "NumPy minimum",
  BINARY,
  .grad = grad_min,
  .special = "a NaN in either wins",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Minimum, NEAP_NUMBERS),
};

const neap_op neap_op_MinimumGrad = {
  .name = "MinimumGrad",
  .summary =
    "Gradient of Minimum with respect to one input, before it is summed back to its shape.",
  .math = "da = a < b ? dy : a = b ? dy / 2 : 0",
  BACKWARD,
  .nan = NEAP_NAN_DECIDES,
  .special = "where either is NaN dy passes to both",
  .grad_formula = "d.dy = MinimumGrad(a, b, d.da)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_MinimumGrad, NEAP_FLOATS),
};
