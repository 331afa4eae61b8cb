/* accuracy.c: Accuracy, the share of rows whose label is among the k largest logits.
 *
 * Logits (M,C), or with the classes along any axis; labels of the other dimensions. Ties go to the
 * smaller number, as ArgMax counts, so that the share for k = 1 is that of ArgMax. One thread: it
 * is called once a step, on few rows.
 */
#include "ops/op.h"

#include <inttypes.h>

enum { AXIS, TOP_K, IGNORE_INDEX };

/* Whether fewer than k classes come before `label`: larger, or equal with a smaller number. A NaN
 * comes before all. */
static bool is_hit(neap_dtype dtype, const void *x, int64_t first, int64_t stride, int64_t n_class,
                   int64_t label, int64_t k) {
  double own = neap_element_get(dtype, x, first + label * stride);
  /* NaN is the largest of none. */
  if (own != own) return false;
  int64_t before = 0;
  for (int64_t c = 0; c < n_class; c++) {
    if (c == label) continue;
    /* Of equal ones the first counts; NaN, which is not at most anything, comes before all. */
    double other = neap_element_get(dtype, x, first + c * stride);
    if (!(other <= own) || (other == own && c < label)) before++;
    if (before == k) return false;
  }
  return before < k;
}

/* Rows with label `ignore_index` count neither as right nor as wrong; a label out of range is a
 * fault, and counts as wrong. */
static void run(const neap_call *call) {
  const neap_type *x = &call->in[0].type, *labels = &call->in[1].type;
  int axis = neap_axis(call->attrs[AXIS].i, x->shape.n_dim);
  int64_t n_class = x->shape.dim[axis],
          inner = neap_shape_span(&x->shape, axis + 1, x->shape.n_dim),
          n_row = neap_shape_elems(&labels->shape);
  int64_t hits = 0, counted = 0;
  for (int64_t i = 0; i < n_row; i++) {
    int64_t label = neap_element_get_i64(labels->dtype, call->in[1].data, i);
    if (label == call->attrs[IGNORE_INDEX].i) continue;
    counted++;
    /* A row's classes lie `inner` apart, and rows of one outer index side by side. */
    if (label >= 0 && label < n_class)
      hits += is_hit(x->dtype, call->in[0].data, i / inner * n_class * inner + i % inner, inner,
                     n_class, label, call->attrs[TOP_K].i);
    else
      neap_call_fault(call,
                      "label %" PRId64 " at element %" PRId64 " is out of range for %" PRId64
                      " classes (labels count from 0)",
                      label, i + 1, n_class);
  }
  *(float *)call->out[0].data = counted == 0 ? 0.0f : (float)((double)hits / (double)counted);
}

/* Labels have the shape of the logits without the axis of classes: SHAPE error otherwise. */
static neap_status infer(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape;
  int axis;
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_rank(c, 0, 1, NEAP_MAX_DIM, error));
  NEAP_TRY(neap_infer_axis(c, AXIS, x->n_dim, &axis, error));
  /* The dimension of the classes is gone. */
  neap_shape rows = {.n_dim = x->n_dim - 1};
  for (int d = 0, to = 0; d < x->n_dim; d++)
    if (d != axis) rows.dim[to++] = x->dim[d];
  if (!neap_shape_equal(&rows, &c->in[1].shape))
    return neap_infer_fail(c, NEAP_SHAPE, 1, error, "labels expect shape %s, got %s",
                           neap_shape_text(&rows, a), neap_shape_text(&c->in[1].shape, b));
  c->out[0] = (neap_type){NEAP_DTYPE_F32, {0}};
  return NEAP_OK;
}

const neap_op neap_op_Accuracy = {
  .name = "Accuracy",
  .summary = "Share of rows whose label is among the largest logits.",
  .math = "y = mean over rows of [label in top_k(logits)]",
  .example = "net:Accuracy({\"logits\", \"labels\"}, \"accuracy\")",
  .source = "Caffe2 Accuracy",
  .inputs = {{"logits", "(M,C); classes along axis"},
             {"labels", "(M) from 0 to C-1", NEAP_BIT(I32) | NEAP_BIT(I64) | NEAP_BIT(U8)}},
  .outputs = {{"accuracy", "a scalar from 0 to 1; 0 without rows", NEAP_BIT(F32)}},
  .attrs = {[AXIS] = {"axis", "dimension of the classes", NEAP_ATTR_AXIS, .value = {.i = -1}},
            [TOP_K] = {"top_k", "how many of the largest logits count", NEAP_ATTR_INT,
                       .value = {.i = 1}, .least = 1, .most = 1e9},
            [IGNORE_INDEX] = {"ignore_index", "label of rows that do not count", NEAP_ATTR_INT,
                              .value = {.i = -100}}},
  .effects = NEAP_EFFECT_FAULT,
  .infer = infer,
  .nan = NEAP_NAN_DECIDES,
  .empty = NEAP_EMPTY_FILLED,
  .special = "a NaN comes before all numbers; of no rows 0",
  .no_grad = true,
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_FLOATS,
                                    .any_team = true,
                                    .one_thread = true,
                                    .run = run},
                                   {0}},
  .cases =
    "{ {logits={7,4}, labels={{7}, dtype=\"i64\", low=0, high=4}}, {logits={7,9}, labels={{7}, "
    "dtype=\"i32\", low=0, high=9}, "
    "top_k=5} }",
};
