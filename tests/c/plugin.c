/* plugin.c: the plugin that tests/unit/user_op_spec.lua compiles, as a user would. -DBROKEN: a
 * record without a kernel, -DOLD: compiled for another Neap. */
#include <neap/record.h>

static void run(const neap_call *call) {
  int64_t n = neap_shape_elems(&call->in[0].type.shape);
  neap_dtype dtype = call->in[0].type.dtype;
  for (int64_t i = 0; i < n; i++) {
    double x = neap_element_get(dtype, call->in[0].data, i);
    if (x == 13) neap_call_fault(call, "13 at element %lld", (long long)i);
    neap_element_set(dtype, call->out[0].data, i, call->attrs[0].f * x * x);
  }
}

static const neap_op square = {
  .name = "ScaledSquare",
  .summary = "The square, scaled.",
  .math = "y = by x^2",
  .inputs = {{"x", "any shape", NEAP_BIT(F32) | NEAP_BIT(F64)}},
  .outputs = {{"y", "shape of x"}},
  .attrs = {{.name = "by", .doc = "a factor", .type = NEAP_ATTR_FLOAT, .value = {.f = 1}}},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .effects = NEAP_EFFECT_FAULT,
  .infer = neap_infer_like,
  .grad_formula = "d.x = d.y * x * (2 * by)",
#ifndef BROKEN
  .kernels = NEAP_REF(run, NEAP_BIT(F32) | NEAP_BIT(F64)),
#endif
  .cases = "{ {x={2,3}}, {x={4}, by=3} }",
};

#ifdef OLD
const int neap_ops_abi = NEAP_OPS_ABI + 1;
#else
const int neap_ops_abi = NEAP_OPS_ABI;
#endif
const neap_op *const neap_ops[] = {&square, NULL};
