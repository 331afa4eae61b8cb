/* expand.c: Expand, broadcasting made real.
 *
 * Most ops broadcast by themselves and need no bytes for it; Expand is for those that do not, and
 * for results that are to have a given shape. One strided copy: a repeated dimension has stride 0
 * in x.
 */
#include "math/move.h"
#include "ops/op.h"

enum { SHAPE };

/* y has the shape given, into which x must broadcast as NumPy's rules say: from the last dimension,
 * sizes are equal or that of x is 1. ATTRIBUTE error for a size that is none, SHAPE where x does
 * not fit. */
static neap_status infer(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape;
  if (c->attrs[SHAPE].n > NEAP_MAX_DIM)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "shape has %d dimensions, at most %d are possible", c->attrs[SHAPE].n,
                           NEAP_MAX_DIM);

  /* -1 keeps the size of x. Dimensions are counted from the last: y may have more in front. */
  neap_shape to = neap_shape_of(c->attrs[SHAPE].n, c->attrs[SHAPE].ints), both;
  for (int d = 0; d < to.n_dim; d++) {
    int from = d - (to.n_dim - x->n_dim);
    if (to.dim[d] == -1 && from >= 0) to.dim[d] = x->dim[from];
    if (to.dim[d] < 0)
      return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "shape has %lld, expected a size",
                             (long long)to.dim[d]);
  }

  /* The broadcast of both is `to` itself exactly where only x is repeated. */
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  if (!neap_shape_broadcast(x, &to, &both) || !neap_shape_equal(&both, &to))
    return neap_infer_fail(c, NEAP_SHAPE, 0, error, "x %s can't be broadcast to %s",
                           neap_shape_text(x, a), neap_shape_text(&to, b));
  c->out[0] = (neap_type){c->in[0].dtype, to};
  return NEAP_OK;
}

/* Dimensions of y; those that x lacks or has once are not moved along in x. */
static void run(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape, *y = &call->out[0].type.shape;
  int64_t in_stride[NEAP_MAX_DIM], out_stride[NEAP_MAX_DIM];
  neap_shape_strides(x, in_stride);
  neap_shape_strides(y, out_stride);
  neap_move move = {0};
  for (int d = 0; d < y->n_dim; d++) {
    int from = d - (y->n_dim - x->n_dim);
    bool repeats = from < 0 || x->dim[from] == 1;
    neap_move_add(&move, y->dim[d], repeats ? 0 : in_stride[from], out_stride[d]);
  }
  neap_move_run(&move, neap_dtype_bytes(call->out[0].type.dtype), call->in[0].data,
                call->out[0].data, call->n_thread);
}

/* Each element of x gets the sum over its copies. */
static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  g->din[0] = neap_grad_reduce_to(g, g->dout[0], g->in[0]);
  return NEAP_OK;
}

const neap_op neap_op_Expand = {
  .name = "Expand",
  .summary = "Repeats dimensions of size 1, and adds dimensions in front, up to a shape.",
  .math = "y[i, j] = x[1, j]",
  .example = "net:Expand(\"x\", \"y\", {shape = {8, 3, 4}})",
  .source = "ONNX Expand-13; NumPy broadcasting",
  .inputs = {{"x", "broadcasts to shape", NEAP_ANY}},
  .outputs = {{"y", "the given shape", NEAP_ANY}},
  .attrs = {[SHAPE] = {"shape", "sizes; -1 keeps the size of x there", NEAP_ATTR_INTS,
                       .required = true}},
  .infer = infer,
  .grad = grad,
  .kernels = NEAP_REF(run, NEAP_ANY),
  .cases =
    "{ {x={3,1}, shape={2,3,4}}, {x={4}, shape={3,-1}}, {x={}, shape={2,2}}, {x={1,3}, "
    "shape={0,3}} }",
};
