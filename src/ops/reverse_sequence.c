/* reverse_sequence.c: ReverseSequence, the first steps of each sequence in the opposite order.
 *
 * x is (A, first axis, M, second axis, E), of which one is the steps and the other the sequences.
 */
#include "ops/op.h"

#include <inttypes.h>

enum { TIME_AXIS, BATCH_AXIS };

static neap_status infer(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape, *lengths = &c->in[1].shape;
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  int time, batch;
  NEAP_TRY(neap_infer_rank(c, 0, 2, NEAP_MAX_DIM, error));
  NEAP_TRY(neap_infer_rank(c, 1, 1, 1, error));
  NEAP_TRY(neap_infer_axis(c, TIME_AXIS, x->n_dim, &time, error));
  NEAP_TRY(neap_infer_axis(c, BATCH_AXIS, x->n_dim, &batch, error));
  if (time == batch)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "time_axis and batch_axis expect two dimensions, got %lld for both",
                           (long long)neap_axis_said(time));
  if (lengths->dim[0] != x->dim[batch])
    return neap_infer_fail(
      c, NEAP_SHAPE, 1, error, "lengths expects (%lld), one for each sequence of x %s, got %s",
      (long long)x->dim[batch], neap_shape_text(x, a), neap_shape_text(lengths, b));
  c->out[0] = c->in[0];
  return NEAP_OK;
}

typedef struct job {
  const neap_call *call;
  int64_t n[2], between; /* of the two axes, and between them */
  bool time_first;
  size_t bytes; /* of what is behind both */
} job;

/* Items [begin, end): what is behind both axes, as one. */
static void move_items(void *context, int64_t begin, int64_t end) {
  const job *k = context;
  const neap_operand *lengths = &k->call->in[1];
  const char *x = k->call->in[0].data;
  char *y = k->call->out[0].data;
  for (int64_t item = begin; item < end; item++) {
    /* An item's number is (A, first axis, M, second axis), the last one fastest. */
    int64_t second = item % k->n[1], rest = item / k->n[1], first = rest / k->between % k->n[0];
    int64_t step = k->time_first ? first : second, sequence = k->time_first ? second : first;
    int64_t n_step = k->n[k->time_first ? 0 : 1],
            length = neap_element_get_i64(lengths->type.dtype, lengths->data, sequence);
    char *to = y + (size_t)item * k->bytes;
    if (length < 0 || length > n_step) {
      neap_clear_bytes(to, k->bytes);
      neap_call_fault(
        k->call, "length %" PRId64 " of sequence %" PRId64 " is out of range for %" PRId64 " steps",
        length, sequence + 1, n_step);
      continue;
    }

    /* What is behind the end stays where it is. */
    /* `from` is the step that is shown here; a step is `stride` items. */
    int64_t from = step < length ? length - 1 - step : step,
            stride = k->time_first ? k->between * k->n[1] : 1;
    neap_copy_bytes(to, x + (size_t)(item + (from - step) * stride) * k->bytes, k->bytes);
  }
}

static void run(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape;
  int time = neap_axis(call->attrs[TIME_AXIS].i, x->n_dim),
      batch = neap_axis(call->attrs[BATCH_AXIS].i, x->n_dim), low = NEAP_MIN(time, batch),
      high = NEAP_MAX(time, batch);

  /* An item is all that lies behind both axes: it is moved as bytes, in one piece. Which of the
   * axes comes first decides how far apart two steps of a sequence are. */
  int64_t behind = neap_shape_span(x, high + 1, x->n_dim);
  if (neap_shape_elems(x) == 0) return;
  job k = {call,
           {x->dim[low], x->dim[high]},
           neap_shape_span(x, low + 1, high),
           time < batch,
           (size_t)behind * neap_dtype_bytes(call->in[0].type.dtype)};
  neap_parallel_for(neap_shape_span(x, 0, high + 1), NEAP_MAX(NEAP_GRAIN / behind, 1),
                    call->n_thread, move_items, &k);
}

const neap_op neap_op_ReverseSequence = {
  .name = "ReverseSequence",
  .summary = "The first steps of each sequence in the opposite order, as many as it is long.",
  .math = "y[t,n] = t < lengths[n] ? x[lengths[n] - 1 - t, n] : x[t,n]",
  .example = "net:ReverseSequence({\"x\", \"lengths\"}, \"y\")",
  .source = "ONNX ReverseSequence-10",
  .inputs = {{"x", "(T,N,...), or as the axes say", NEAP_ANY},
             {"lengths", "(N), each in [0,T]", NEAP_INTEGERS}},
  .outputs = {{"y", "shape of x", NEAP_ANY}},
  .attrs = {[TIME_AXIS] = {"time_axis", "the dimension of the steps", NEAP_ATTR_AXIS},
            [BATCH_AXIS] = {"batch_axis", "the dimension of the sequences", NEAP_ATTR_AXIS,
                            .value = {.i = 1}}},
  .effects = NEAP_EFFECT_FAULT,
  .infer = infer,
  .grad_formula = "d.x = ReverseSequence(d.y, lengths, ..)",
  .kernels = NEAP_REF(run, NEAP_ANY),
  .cases =
    "{ {x={4,3,2}, lengths={{3}, dtype=\"i64\", low=0, high=5}}, {x={3,5}, lengths={{3}, "
    "dtype=\"i32\", low=0, high=6}, time_axis=2, batch_axis=1}, {x={2,3,2,4}, lengths={{2}, "
    "dtype=\"i64\", low=0, high=5}, time_axis=-1, batch_axis=1}, {x={2,3,2}, lengths={{2}, "
    "dtype=\"u8\", low=0, high=4}, time_axis=2, batch_axis=3}, {x={4,0}, lengths={{0}, "
    "dtype=\"i64\"}} }",
};
