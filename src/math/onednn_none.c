/* onednn_none.c: the engine dnnl where Neap is built without oneDNN, in place of all other files of
 * it (onednn.mk). It can't be had, so nothing is ever asked or made.
 */
#include "math/onednn.h"

bool neap_onednn_ask(neap_onednn_case *problem) {
  (void)problem;
  return false;
}

bool neap_onednn_ask_algorithm(neap_onednn_case *problem) {
  (void)problem;
  return false;
}

bool neap_onednn_ask_bytes(neap_onednn_case *problem) {
  (void)problem;
  return false;
}

bool neap_onednn_sums_bytes(void) { return false; }

const bool neap_onednn_norm_adds_images = false;

static const char *missing(void) { return "this Neap is built without oneDNN"; }

neap_status neap_onednn_make(const neap_onednn_case *problem, neap_onednn **out,
                             neap_error *error) {
  (void)problem, (void)out;
  return neap_fail(error, NEAP_PLAN, "the plan asks for engine dnnl, but %s", missing());
}

void neap_onednn_free(neap_onednn *kernel) { (void)kernel; }

bool neap_onednn_run(neap_onednn *kernel, void *const *in, void *const *out, void *scratch) {
  (void)kernel, (void)in, (void)out, (void)scratch;
  return false;
}

const neap_engine_record neap_engine_dnnl = {
  .name = "dnnl",
  .doc = "primitives and matrix products of oneDNN, in layouts of its own",
  .dtypes = NEAP_BIT(F32) | NEAP_HALVES,
  .missing = missing,
};
