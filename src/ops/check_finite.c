/* check_finite.c: a value that is not finite stops the run. Faults come before a run's first change
 * of resident bytes, so a training step whose loss passes through this op is dropped whole:
 * parameters, statistics and counters stay as they were. */
#include "ops/op.h"

#include <math.h>
#include <string.h>

static const char *name_of(double value) {
  if (isnan(value)) return "NaN";
  return value > 0 ? "inf" : "-inf";
}

/* The first such element in memory is named; its number counts from 1. In place there is nothing to
 * copy. */
static void run(const neap_call *call) {
  const neap_operand *x = &call->in[0];
  int64_t n = neap_shape_elems(&x->type.shape);
  for (int64_t i = 0; i < n; i++) {
    double value = neap_element_get(x->type.dtype, x->data, i);
    if (isfinite(value)) continue;
    neap_call_fault(call, "%s at element %lld, where a finite number is expected", name_of(value),
                    (long long)(i + 1));
    break;
  }
  if (call->out[0].data != x->data)
    neap_copy_bytes(call->out[0].data, x->data, neap_type_bytes(&x->type));
}

/* As of a copy, without one: the gradient that arrives is x's. */
static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  g->din[0] = g->dout[0];
  return NEAP_OK;
}

const neap_op neap_op_CheckFinite = {
  .name = "CheckFinite",
  .summary =
    "The same tensor; a NaN or an infinity in it stops the run before anything that lasts has "
    "changed.",
  .math = "y = x",
  .example = "net:CheckFinite(\"loss\", \"checked_loss\")",
  .source = "PyTorch torch.nn.utils.clip_grad_norm_, error_if_nonfinite",
  .inputs = {{"x", "any shape"}},
  .outputs = {{"y", "shape of x"}},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .effects = NEAP_EFFECT_FAULT,
  .infer = neap_infer_like,
  .grad = grad,
  .nan = NEAP_NAN_STOPS,
  .special = "infinities stop it too",
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_FLOATS,
                                    .any_team = true,
                                    .one_thread = true,
                                    .run = run},
                                   {0}},
  .cases = "{ {x={2,3,7}}, {x={}} }",
};
