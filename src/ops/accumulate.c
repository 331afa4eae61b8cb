/* accumulate.c: Accumulate and Assign, which write a running sum, or a blob's next value, where the
 * old one lies. Made by graph for the bodies of loops and branches, where no later pass could tell
 * that the bytes are the same.
 *
 * A sum that grows from iteration to iteration is f32 where its terms are bf16 or f16: in their few
 * digits 256 + 1 is 256, and the sum would stop growing. Who reads the sum rounds it, once. */
#include "ops/elementwise.h"

#include <string.h>

NEAP_MAP2_SAME(accumulate, x + y)

/* Of one shape; of one dtype, or the sum in the dtype that its terms are computed in. */
static neap_status infer_accumulate(neap_infer *c, neap_error *error) {
  neap_type sum = c->in[1];
  if (c->in[0].dtype != sum.dtype) sum.dtype = neap_compute_dtype(sum.dtype);
  NEAP_TRY(neap_infer_expect(c, 0, &sum, error));
  c->out[0] = sum;
  return NEAP_OK;
}

static void run_assign(const neap_call *call) {
  neap_copy_bytes(call->out[0].data, call->in[1].data, neap_type_bytes(&call->in[1].type));
}

const neap_op neap_op_Accumulate = {
  .name = "Accumulate",
  .summary = "Adds to a running sum, in its bytes.",
  .math = "sum = sum + x",
  .internal = true,
  .inputs = {{"sum", "the sum so far"}, {"x", "shape of sum; its dtype, or a half of f32"}},
  .outputs = {{"sum", "its next version"}},
  .enforced = {{0, 0}},
  .n_enforced = 1,
  .infer = infer_accumulate,
  .no_grad = true,
  .kernels = NEAP_REF(run_accumulate, NEAP_FLOATS),
  .cases =
    "{ {sum={7}, x={7}, grad=false}, {sum={0,3}, x={0,3}, grad=false}, "
    "{sum={{300}, dtype=\"f32\"}, x={{300}, dtype=\"bf16\"}, grad=false} }",
};

const neap_op neap_op_Assign = {
  .name = "Assign",
  .summary = "Gives a resident blob its next value.",
  .math = "y = x",
  .internal = true,
  .inputs = {{"old", "the value before", NEAP_ANY},
             {"x", "the value after; type of old", NEAP_ANY}},
  .outputs = {{"y", "the next version of old", NEAP_ANY}},
  .enforced = {{0, 0}},
  .n_enforced = 1,
  .effects = NEAP_EFFECT_COMMIT,
  .infer = neap_infer_like,
  .no_grad = true,
  .kernels = NEAP_REF(run_assign, NEAP_ANY),
  .cases = "{ {old={7}, x={7}, grad=false} }",
};
