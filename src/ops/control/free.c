/* free.c: Free, the end of a blob's life as the user states it. Its outputs, where they are named,
 * are its inputs, one by one: net/add.c enforces it, for a list of any length. No gradient: asking
 * for one through Free is an error. */
#include "ops/op.h"

static neap_status infer(neap_infer *infer, neap_error *error) {
  (void)error;
  /* The same bytes under the same types: what ends is the right to read them. */
  for (int k = 0; k < infer->n_out; k++) infer->out[k] = infer->in[k];
  return NEAP_OK;
}

/* An order edge, not work: the planner ends the lives here, and under policy `pool` the runner
 * returns the bytes. */
static void run(const neap_call *call) { (void)call; }

const neap_op neap_op_Free = {
  .name = "Free",
  .summary = "Ends the life of blobs at this point; reading one of them later is an error.",
  .math = "nothing is computed",
  .example = "net:Free(\"x\")",
  .source = "Caffe2 Free",
  .inputs = {{"x", "blobs that are neither kept nor declared", NEAP_ANY, NEAP_ARG_VARIADIC}},
  .outputs = {{"y", "the same blobs, untyped from here on; may be left out", NEAP_ANY,
               NEAP_ARG_VARIADIC | NEAP_ARG_OPTIONAL}},
  .effects = NEAP_EFFECT_RELEASE,
  .infer = infer,
  .kernels = NEAP_REF(run, NEAP_ANY),
};
