/* onednn.c */
#include "math/onednn.h"

#include <string.h>

bool neap_onednn_ask(neap_onednn_case *problem) {
  (void)problem;
  return false;
}

neap_status neap_onednn_make(const neap_onednn_case *problem, neap_onednn **out, neap_error *error) {
  (void)problem, (void)out;
  return neap_fail(error, NEAP_PLAN, "the plan asks for engine dnnl, but this Neap is built without oneDNN");
}

void neap_onednn_free(neap_onednn *kernel) { (void)kernel; }

void neap_onednn_run(neap_onednn *kernel, void *const *in, void *const *out, void *scratch) {
  (void)kernel, (void)in, (void)out, (void)scratch;
}

const char *neap_onednn_version(char text[24]) { return strcpy(text, "none"); }
