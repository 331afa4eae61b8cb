/* unique.c: Unique, the different values of a tensor, ascending, and where each element's went:
 * read off the order of the elements (order.h).
 */
#include "ops/order.h"

#include <string.h>

/* The number of values is known only when the op has run; until then it is `extent`, when somebody
 * has given one, or else the most there can be: all elements. */
static neap_status infer(neap_infer *c, neap_error *error) {
  (void)error;
  int64_t elems = neap_shape_elems(&c->in[0].shape), n = c->extent != NULL ? *c->extent : elems;
  c->out[0] = (neap_type){c->in[0].dtype, NEAP_SHAPE(n)};
  if (c->n_out > 1) c->out[1] = (neap_type){NEAP_DTYPE_I64, NEAP_SHAPE(elems)};
  if (c->n_out > 2) c->out[2] = (neap_type){NEAP_DTYPE_I64, NEAP_SHAPE(n)};
  return NEAP_OK;
}

static bool choose(neap_choose *c) {
  c->choice->scratch_bytes = neap_order_bytes(1, neap_shape_elems(&c->in[0].shape));
  return true;
}

/* Whether the i-th element in sorted order begins a new value. Every NaN does. */
static bool is_new(const neap_operand *x, const neap_ordered *order, int64_t i) {
  if (i == 0 || order[i - 1].key != order[i].key) return true;
  if (!neap_dtype_is_float(x->type.dtype)) return false;
  double v = neap_element_get(x->type.dtype, x->data, order[i].index);
  return v != v;
}

/* Counts first, and tells the extent even when y has too little room for it: then nothing is
 * written. Of equal elements the first in x is the one copied, since the sort is stable. */
static void run(const neap_call *call) {
  const neap_operand *x = &call->in[0], *y = &call->out[0];
  int64_t n = neap_shape_elems(&x->type.shape), found = 0;
  int64_t *inverse = call->n_out > 1 ? call->out[1].data : NULL,
          *count = call->n_out > 2 ? call->out[2].data : NULL;
  const neap_ordered *order = n > 0 ? neap_order(x, 0, 1, n, false, call->scratch) : NULL;
  for (int64_t i = 0; i < n; i++) found += is_new(x, order, i);
  *call->extent = found;
  if (found > y->type.shape.dim[0]) return;
  size_t bytes = neap_dtype_bytes(x->type.dtype);
  /* k counts the values begun so far; the second pass visits the elements in the order of the
   * first. */
  for (int64_t i = 0, k = -1; i < n; i++) {
    if (is_new(x, order, i)) {
      memcpy((char *)y->data + (size_t)++k * bytes,
             (const char *)x->data + (size_t)order[i].index * bytes, bytes);
      if (count != NULL) count[k] = 0;
    }
    if (inverse != NULL) inverse[order[i].index] = k;
    if (count != NULL) count[k]++;
  }
}

const neap_op neap_op_Unique = {
  .name = "Unique",
  .summary =
    "The different values, ascending; how many there are is known only when it has run. A NaN "
    "equals no other. "
    "No gradient goes through the values: asking for one is an error.",
  .math = "x[i] = y[inverse[i]]",
  .example = "net:Unique(\"x\", {\"y\", \"inverse\", \"counts\"})",
  .source = "ONNX Unique-11, all elements, sorted",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "one dimension", NEAP_ANY},
              {"inverse", "of each element of x, in order: where its value stands in y, from 0",
               NEAP_BIT(I64), NEAP_ARG_OPTIONAL},
              {"counts", "how often each value of y occurs", NEAP_BIT(I64), NEAP_ARG_OPTIONAL}},
  .effects = NEAP_EFFECT_EXTENT | NEAP_EFFECT_FAULT,
  .infer = infer,
  .nan = NEAP_NAN_DECIDES,
  .special = "NaN come last, each a value of its own",
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_ANY,
                                    .any_team = true,
                                    .one_thread = true,
                                    .choose = choose,
                                    .run = run},
                                   {0}},
  .cases =
    "{ {x={{4,5}, dtype=\"i32\", low=0, high=6}, outputs=3}, {x={{7}, dtype=\"bool\"}, outputs=2}, "
    "{x={3,3}} }",
};
