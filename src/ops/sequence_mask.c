/* sequence_mask.c: SequenceMask, which of T steps belong to each of N sequences: what keeps a step
 * net from running past an end.
 *
 * x gives T alone: it is named as an input rather than a number as an attribute, so that the mask
 * follows the batch.
 */
#include "ops/op.h"

#include <inttypes.h>

/* mask (T,N). x needs a dimension of steps; a second one must agree with lengths (N). */
static neap_status infer(neap_infer *c, neap_error *error) {
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  const neap_shape *x = &c->in[0].shape, *lengths = &c->in[1].shape;
  NEAP_TRY(neap_infer_rank(c, 1, 1, 1, error));
  if (x->n_dim < 1 || (x->n_dim > 1 && x->dim[1] != lengths->dim[0]))
    return neap_infer_fail(c, NEAP_SHAPE, 0, error,
                           "x (T,N,...) and lengths (N) differ in N: %s and %s",
                           neap_shape_text(x, a), neap_shape_text(lengths, b));
  c->out[0] = (neap_type){NEAP_DTYPE_BOOL, NEAP_SHAPE(x->dim[0], lengths->dim[0])};
  return NEAP_OK;
}

/* A fault for each length out of [0,T], as LSTM's. */
static void run(const neap_call *call) {
  int64_t n_step = call->out[0].type.shape.dim[0], n = call->out[0].type.shape.dim[1];
  uint8_t *mask = call->out[0].data;
  for (int64_t k = 0; k < n; k++) {
    int64_t length = neap_element_get_i64(call->in[1].type.dtype, call->in[1].data, k);
    if (length < 0 || length > n_step)
      neap_call_fault(
        call, "length %" PRId64 " of sequence %" PRId64 " is out of range for %" PRId64 " steps",
        length, k + 1, n_step);
  }
  /* A length out of range is a fault, and harms nothing here: it is only compared. */
  for (int64_t t = 0; t < n_step; t++)
    for (int64_t k = 0; k < n; k++)
      mask[t * n + k] = t < neap_element_get_i64(call->in[1].type.dtype, call->in[1].data, k);
}

const neap_op neap_op_SequenceMask = {
  .name = "SequenceMask",
  .summary = "Which steps belong to each sequence, by its length.",
  .math = "mask[t,n] = t < lengths[n]",
  .example = "net:SequenceMask({\"x\", \"lengths\"}, \"mask\")",
  .source = "TensorFlow sequence_mask",
  .inputs = {{"x", "(T,...) or (T,N,...): only its shape is read", NEAP_ANY},
             {"lengths", "(N), each in [0,T]", NEAP_INTEGERS}},
  .outputs = {{"mask", "(T,N)", NEAP_BIT(BOOL)}},
  .effects = NEAP_EFFECT_FAULT,
  .infer = infer,
  .nan = NEAP_NAN_DECIDES,
  .special = "of x only the shape counts",
  .no_grad = true,
  .kernels = NEAP_REF(run, NEAP_ANY),
  .cases =
    "{ {x={4,3,2}, lengths={{3}, dtype=\"i64\", low=0, high=5}, grad=false}, {x={5}, lengths={{2}, "
    "dtype=\"i32\", low=0, "
    "high=6}, grad=false}, {x={0,2}, lengths={{2}, dtype=\"i64\", low=0, high=1}, grad=false} }",
};
