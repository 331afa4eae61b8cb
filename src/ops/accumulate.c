/* accumulate.c: Accumulate and Assign, which write a running sum, or a blob's next value, where the
 * old one lies. Made by graph for the bodies of loops and branches, where no later pass could tell
 * that the bytes are the same. */
#include "ops/elementwise.h"

#include <string.h>

/* In bf16 and f16 the sum is rounded once an iteration. */
NEAP_MAP2_SAME(accumulate, x + y)

static void run_assign(const neap_call *call) {
  memcpy(call->out[0].data, call->in[1].data, neap_type_bytes(&call->in[1].type));
}

const neap_op neap_op_Accumulate = {
  .name = "Accumulate",
  .summary = "Adds to a running sum, in its bytes.",
  .math = "sum = sum + x",
  .internal = true,
  .inputs = {{"sum", "the sum so far"}, {"x", "shape of sum"}},
  .outputs = {{"sum", "its next version"}},
  .enforced = {{0, 0}},
  .n_enforced = 1,
  .infer = neap_infer_like,
  .no_grad = true,
  .kernels =
    (const neap_kernel[]){
      {.engine = NEAP_ENGINE_REF, .dtypes = NEAP_FLOATS, .any_team = true, .run = run_accumulate},
      {0}},
  .cases = "{ {sum={7}, x={7}, grad=false}, {sum={0,3}, x={0,3}, grad=false} }",
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
  .kernels =
    (const neap_kernel[]){
      {.engine = NEAP_ENGINE_REF, .dtypes = NEAP_ANY, .any_team = true, .run = run_assign}, {0}},
  .cases = "{ {old={7}, x={7}, grad=false} }",
};
