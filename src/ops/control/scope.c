/* scope.c: CreateScope and HasScope, the ops of a scope blob. A scope is a stack of frames that is
 * known while the net is written (net/scope.c), so neither op has a kernel: graph drops the one and
 * makes a Constant of the other. */
#include "ops/op.h"

/* A scope has no type. */
static neap_status infer_scope(neap_infer *c, neap_error *error) {
  (void)error;
  c->out[0] = (neap_type){0};
  return NEAP_OK;
}

static neap_status infer_has(neap_infer *c, neap_error *error) {
  (void)error;
  c->out[0] = (neap_type){NEAP_DTYPE_BOOL, NEAP_SHAPE(1)};
  return NEAP_OK;
}

const neap_op neap_op_CreateScope = {
  .name = "CreateScope",
  .summary = "A scope without frames; one of that name is emptied.",
  .math = "nothing is computed",
  .example = "net:CreateScope({}, \"s\")",
  .source = "Caffe2 CreateScope",
  .outputs = {{"scope", "a stack of frames", NEAP_ANY, NEAP_ARG_SCOPE}},
  .effects = NEAP_EFFECT_PSEUDO,
  .infer = infer_scope,
};

const neap_op neap_op_HasScope = {
  .name = "HasScope",
  .summary = "Whether a scope has a frame.",
  .math = "y = the scope is not empty",
  .example = "net:HasScope(\"s\", \"y\")",
  .source = "Caffe2 HasScope",
  .inputs = {{"scope", "a stack of frames", NEAP_ANY, NEAP_ARG_SCOPE}},
  .outputs = {{"y", "(1) bool", NEAP_BIT(BOOL)}},
  .effects = NEAP_EFFECT_PSEUDO,
  .infer = infer_has,
};
