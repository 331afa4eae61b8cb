/* compress.c: ops whose outputs' length depends on the data: Compress takes the positions at which
 * a condition holds, NonZero gives those positions. And CompressGrad, which puts a gradient back
 * among zeros.
 *
 * Both count first and write then, so that nothing is written when the outputs were made too short
 * (see neap/record.h, EXTENT).
 */
#include "ops/op.h"

#include <string.h>

enum { AXIS, SHAPE };

/* ---- Compress -------------------------------------------------------------------------------- */

/* x as (outer, n, inner): along an axis, or all its elements as n of one. */
typedef struct split {
  int64_t outer, n, inner;
} split;

/* The axis must have been checked. */
static split split_of(const neap_attr_value *attrs, const neap_shape *x) {
  if (!attrs[AXIS].given) return (split){1, neap_shape_elems(x), 1};
  int axis = neap_axis(attrs[AXIS].i, x->n_dim);
  return (split){neap_shape_span(x, 0, axis), x->dim[axis], neap_shape_span(x, axis + 1, x->n_dim)};
}

/* A condition may be shorter than the axis: what lies behind its end is not taken. */
static neap_status check_condition(const neap_infer *c, int64_t n, int64_t given,
                                   neap_error *error) {
  if (given <= n) return NEAP_OK;
  return neap_infer_fail(c, NEAP_SHAPE, 1, error,
                         "condition expects at most %lld elements, got %lld", (long long)n,
                         (long long)given);
}

/* The length along the axis is that of the condition, until an extent says how many hold. */
static neap_status infer(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape;
  int axis = 0;
  if (c->attrs[AXIS].given) NEAP_TRY(neap_infer_axis(c, AXIS, x->n_dim, &axis, error));
  NEAP_TRY(neap_infer_rank(c, 1, 1, 1, error));
  int64_t n_condition = c->in[1].shape.dim[0];
  NEAP_TRY(check_condition(c, split_of(c->attrs, x).n, n_condition, error));
  /* Until a run has counted, as many as may hold. */
  int64_t n = c->extent != NULL ? *c->extent : n_condition;
  c->out[0] = (neap_type){c->in[0].dtype, c->attrs[AXIS].given ? *x : NEAP_SHAPE(n)};
  c->out[0].shape.dim[axis] = n;
  return NEAP_OK;
}

static int64_t count_true(const bool *condition, int64_t n) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) count += condition[i];
  return count;
}

/* Copies rows of `inner` elements where the condition holds, from the long side (n rows an outer
 * step) to the short one (n_taken rows), or back. */
static void move_rows(char *to, const char *from, split s, int64_t n_taken,
                      const neap_operand *condition, size_t bytes, bool back) {
  size_t row = (size_t)s.inner * bytes;
  const bool *holds = condition->data;
  int64_t n_condition = condition->type.shape.dim[0];
  for (int64_t o = 0; o < s.outer; o++)
    for (int64_t i = 0, k = 0; i < n_condition; i++) {
      if (k == n_taken) break; /* no more places, though more may hold */
      if (!holds[i]) continue;
      size_t at_long = (size_t)(o * s.n + i) * row, at_short = (size_t)(o * n_taken + k) * row;
      memcpy(to + (back ? at_long : at_short), from + (back ? at_short : at_long), row);
      k++;
    }
}

/* The extent receives the count even where y is too short for it; then nothing is written. */
static void run(const neap_call *call) {
  const neap_operand *x = &call->in[0], *condition = &call->in[1], *y = &call->out[0];
  int64_t n = *call->extent = count_true(condition->data, condition->type.shape.dim[0]);
  int axis = call->attrs[AXIS].given ? neap_axis(call->attrs[AXIS].i, x->type.shape.n_dim) : 0;
  if (n > y->type.shape.dim[axis]) return;
  move_rows(y->data, x->data, split_of(call->attrs, &x->type.shape), n, condition,
            neap_dtype_bytes(x->type.dtype), false);
}

/* dy is like x in all dimensions but the axis; without an axis it has one. */
static neap_status infer_grad(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_infer_attr_type(c, SHAPE, &c->out[0], error));
  neap_shape x = c->out[0].shape;
  int axis = 0;
  if (c->attrs[AXIS].given) NEAP_TRY(neap_infer_axis(c, AXIS, x.n_dim, &axis, error));
  NEAP_TRY(neap_infer_rank(c, 1, 1, 1, error));
  NEAP_TRY(check_condition(c, split_of(c->attrs, &x).n, c->in[1].shape.dim[0], error));
  const neap_shape *dy = &c->in[0].shape;
  bool fits = dy->n_dim == (c->attrs[AXIS].given ? x.n_dim : 1);
  if (fits) {
    for (int d = 0; d < dy->n_dim; d++)
      if (d != axis && dy->dim[d] != x.dim[d]) fits = false;
  }
  /* How many were taken only the run knows: along the axis any length will do. */
  if (!fits)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error, "dy does not have the shape of a part of x");
  return NEAP_OK;
}

/* What was not taken has the gradient zero. */
static void run_grad(const neap_call *call) {
  const neap_operand *dy = &call->in[0], *dx = &call->out[0];
  size_t bytes = neap_type_bytes(&dx->type);
  neap_clear_bytes(dx->data, bytes);
  int axis = call->attrs[AXIS].given ? neap_axis(call->attrs[AXIS].i, dx->type.shape.n_dim) : 0;
  move_rows(dx->data, dy->data, split_of(call->attrs, &dx->type.shape), dy->type.shape.dim[axis],
            &call->in[1], neap_dtype_bytes(dx->type.dtype), true);
}

static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  neap_type x = neap_grad_type(g, g->in[0]);
  neap_value_id in[] = {g->dout[0], g->in[1]};
  g->din[0] =
    neap_grad_emit1(g, "CompressGrad", 2, in, g,
                    (neap_set[]){NEAP_SET_INTS("shape", x.shape.n_dim, x.shape.dim), {0}});
  return NEAP_OK;
}

/* What a gradient was put back from is taken from its own: by positions, as many as dy has, since
 * its length is known here and Compress would have to find it. Those where the condition holds come
 * first in its order, which keeps equals as they stand. */
static neap_status grad_twice(neap_grad *g, neap_error *error) {
  (void)error;
  neap_shape dy = neap_grad_type(g, g->in[0]).shape;
  neap_value_id from = g->dout[0];
  int64_t axis = g->attrs[AXIS].given ? neap_axis(g->attrs[AXIS].i, dy.n_dim) : 0;
  const int64_t first = 0, last = dy.dim[axis], flat = -1;
  if (last == 0) return NEAP_OK;

  /* Without an axis positions are those of all elements in their order. */
  if (!g->attrs[AXIS].given)
    from = neap_grad_emit1(g, "Reshape", 1, &from, NULL,
                           (neap_set[]){NEAP_SET_INTS("shape", 1, &flat), {0}});

  /* What is taken is 0 and sorts first, and the sort keeps equals in their order: the first `last`
   * of it are the positions. */
  neap_value_id not_taken = neap_grad_emit1(g, "LogicalNot", 1, &g->in[1], NULL, NULL);
  neap_value_id order = neap_grad_emit1(g, "ArgSort", 1, &not_taken, NULL, NULL);
  neap_value_id at = neap_grad_emit1(g, "Slice", 1, &order, NULL,
                                     (neap_set[]){NEAP_SET_INTS("axes", 1, &first),
                                                  NEAP_SET_INTS("starts", 1, &first),
                                                  NEAP_SET_INTS("ends", 1, &last),
                                                  {0}});
  g->din[0] = neap_grad_emit1(g, "Gather", 2, (neap_value_id[]){from, at}, NULL,
                              (neap_set[]){NEAP_SET_INT("axis", axis), {0}});
  return NEAP_OK;
}

#define AXIS_ATTR                                                                        \
  [AXIS] = {"axis", "along which; all elements in order when not given", NEAP_ATTR_AXIS, \
            .unlike_default = true}
#define CONDITION_ARG \
  { "condition", "one dimension, at most as long as the axis", NEAP_BIT(BOOL) }

const neap_op neap_op_Compress = {
  .name = "Compress",
  .summary =
    "The positions along an axis at which a condition holds; as many as hold, so its length is "
    "known only when it has run.",
  .math = "y = x[condition]",
  .example = "net:Compress({\"x\", \"mask\"}, \"y\", {axis = 1})",
  .source = "ONNX Compress-11",
  .inputs = {{"x", "any shape", NEAP_ANY}, CONDITION_ARG},
  .outputs = {{"y", "x with the axis cut to the positions taken, or one dimension", NEAP_ANY}},
  .attrs = {AXIS_ATTR},
  .effects = NEAP_EFFECT_EXTENT | NEAP_EFFECT_FAULT,
  .infer = infer,
  .grad = grad,
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_ANY,
                                    .any_team = true,
                                    .one_thread = true,
                                    .run = run},
                                   {0}},
  .cases =
    "{ {x={4,3}, condition={4}, axis=1, grad=false}, {x={2,5,3}, condition={4}, axis=-2, "
    "grad=false}, "
    "{x={2,3}, condition={6}, grad=false} }",
};

const neap_op neap_op_CompressGrad = {
  .name = "CompressGrad",
  .summary = "Gradient of Compress: dy at the positions taken, zero elsewhere.",
  .math = "dx[condition] = dy",
  .internal = true,
  .inputs = {{"dy", "shape of what was taken", NEAP_ANY}, CONDITION_ARG},
  .outputs = {{"dx", "shape of x", NEAP_ANY}},
  .attrs = {AXIS_ATTR, [SHAPE] = {"shape", "of x", NEAP_ATTR_INTS, .required = true}},
  .infer = infer_grad,
  .grad = grad_twice,
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_ANY,
                                    .any_team = true,
                                    .one_thread = true,
                                    .run = run_grad},
                                   {0}},
  .cases =
    "{ {dy={2,3}, condition={4}, axis=1, shape={4,3}}, {dy={3}, condition={6}, shape={2,3}} }",
};

/* ---- NonZero --------------------------------------------------------------------------------- */

static neap_status infer_non_zero(neap_infer *c, neap_error *error) {
  (void)error;
  int64_t n = c->extent != NULL ? *c->extent : neap_shape_elems(&c->in[0].shape);
  c->out[0] = (neap_type){NEAP_DTYPE_I64, NEAP_SHAPE(c->in[0].shape.n_dim, n)};
  return NEAP_OK;
}

/* y (R,n): column k holds the indices of the k-th element that is not zero, in the order of the
 * elements. NaN is not zero. */
static void run_non_zero(const neap_call *call) {
  const neap_operand *x = &call->in[0];
  const neap_shape *shape = &x->type.shape;
  int64_t n = 0, elems = neap_shape_elems(shape), *y = call->out[0].data;
  for (int64_t i = 0; i < elems; i++) n += neap_element_get(x->type.dtype, x->data, i) != 0;
  /* The count is known before a column is written, which needs it as its stride. */
  *call->extent = n;
  if (n > call->out[0].type.shape.dim[1]) return;
  for (int64_t i = 0, k = 0; i < elems; i++) {
    if (!(neap_element_get(x->type.dtype, x->data, i) != 0)) continue;
    /* From the last dimension, which steps fastest. */
    int64_t left = i;
    for (int d = shape->n_dim - 1; d >= 0; d--) {
      y[d * n + k] = left % shape->dim[d];
      left /= shape->dim[d];
    }
    k++;
  }
}

const neap_op neap_op_NonZero = {
  .name = "NonZero",
  .summary =
    "The indices of the elements that are not zero, one column each, counted from 0; their number "
    "is known only when it has run.",
  .math = "x[y[1,k], .., y[R,k]] != 0",
  .example = "net:NonZero(\"x\", \"y\")",
  .source = "ONNX NonZero-13",
  .inputs = {{"x", "any shape (R dimensions)", NEAP_ANY}},
  .outputs = {{"y", "(R,n)", NEAP_BIT(I64)}},
  .effects = NEAP_EFFECT_EXTENT | NEAP_EFFECT_FAULT,
  .infer = infer_non_zero,
  .nan = NEAP_NAN_DECIDES,
  .special = "a NaN is not 0",
  .no_grad = true,
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_ANY,
                                    .any_team = true,
                                    .one_thread = true,
                                    .run = run_non_zero},
                                   {0}},
  .cases = "{ {x={{3,4}, dtype=\"i32\", low=0, high=2}}, {x={{5}, dtype=\"bool\"}}, {x={2,2}} }",
};
