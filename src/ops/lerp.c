/* lerp.c: Lerp, the point between two tensors that a weight says. */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

/* From the nearer end, so that weights 0 and 1 give the ends themselves. */
NEAP_MAP3(Lerp, z < (T)0.5 ? x + z * (y - x) : y - (1 - z) * (y - x))

const neap_op neap_op_Lerp = {
  .name = "Lerp",
  .summary = "Linear interpolation between two tensors, element by element, with broadcasting.",
  .math = "y = a + weight (b - a)",
  .example = "net:Lerp({\"a\", \"b\", \"weight\"}, \"y\")",
  .source = "torch.lerp",
  .inputs = {{"a", "any shape, where the weight is 0"},
             {"b", "broadcasts with a, where it is 1"},
             {"weight", "broadcasts with both"}},
  .outputs = {{"y", "broadcast shape"}},
  .inplace = {{0, 0}, {1, 0}, {2, 0}},
  .n_inplace = 3,
  .infer = neap_elementwise_infer,
  .infinity = NEAP_INFINITY_OVERFLOWS,
  .grad_formula = "d.a = d.y * (1 - weight); d.b = d.y * weight; d.weight = d.y * (b - a)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Lerp, NEAP_FLOATS),
  .cases =
    "{ {a={3,4}, b={3,4}, weight={3,4}}, {a={3,4}, b={4}, weight={}}, {a={2,1}, b={1,3}, "
    "weight={{2,3}, low=0, high=1}}, {a={0,4}, b={4}, weight={}} }",
};
