/* permute.c: Permute, the transpose of any rank. One strided copy; math/move.c finds runs and
 * square tiles in it. */
#include "math/move.h"
#include "ops/op.h"

enum { AXES };

/* Source dimension of target dimension d; without axes the order is reversed, as NumPy's transpose
 * does. */
static int source_dim(const neap_attr_value *axes, int d, int n_dim) {
  return axes->n == 0 ? n_dim - 1 - d : neap_axis(axes->ints[d], n_dim);
}

/* y has the dimensions of x in the order of `axes`. ATTRIBUTE error unless these are a
 * permutation. */
static neap_status infer(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape;
  const neap_attr_value *axes = &c->attrs[AXES];
  bool seen[NEAP_MAX_DIM] = {false};
  char text[NEAP_SHAPE_TEXT];
  if (axes->n != 0 && axes->n != x->n_dim)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "axes expects %d entries for x %s, got %d",
                           x->n_dim, neap_shape_text(x, text), axes->n);

  /* n_dim names in range and none twice: then each dimension is named once. */
  c->out[0] = (neap_type){c->in[0].dtype, {.n_dim = x->n_dim}};
  for (int d = 0; d < x->n_dim; d++) {
    int from = source_dim(axes, d, x->n_dim);
    if (from < 0 || from >= x->n_dim || seen[from])
      return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                             "axes must name each of the %d dimensions of x once", x->n_dim);
    seen[from] = true;
    c->out[0].shape.dim[d] = x->dim[from];
  }
  return NEAP_OK;
}

/* The dimensions are those of y, each with the stride that its source has in x. */
static void run(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape, *y = &call->out[0].type.shape;
  int64_t in_stride[NEAP_MAX_DIM], out_stride[NEAP_MAX_DIM];
  neap_shape_strides(x, in_stride);
  neap_shape_strides(y, out_stride);
  neap_move move = {0};
  for (int d = 0; d < y->n_dim; d++)
    neap_move_add(&move, y->dim[d], in_stride[source_dim(&call->attrs[AXES], d, x->n_dim)],
                  out_stride[d]);
  neap_move_run(&move, neap_dtype_bytes(call->out[0].type.dtype), call->in[0].data,
                call->out[0].data, call->n_thread);
}

/* The inverse permutation. */
static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  int n = neap_grad_type(g, g->in[0]).shape.n_dim;
  int64_t back[NEAP_MAX_DIM] = {0};
  for (int d = 0; d < n; d++) back[source_dim(&g->attrs[AXES], d, n)] = d;
  g->din[0] = neap_grad_emit1(g, "Permute", 1, g->dout, NULL,
                              (neap_set[]){NEAP_SET_INTS("axes", n, back), {0}});
  return NEAP_OK;
}

const neap_op neap_op_Permute = {
  .name = "Permute",
  .summary = "Dimensions in another order.",
  .math = "y[i[axes[1]], i[axes[2]], ...] = x[i[1], i[2], ...]",
  .example = "net:Permute(\"x\", \"y\", {axes = {1, 3, 2}})",
  .source = "ONNX Transpose-13",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "x with its dimensions in that order", NEAP_ANY}},
  .attrs = {[AXES] = {"axes", "dimension of x at each place of y; reversed when not given",
                      NEAP_ATTR_AXES}},
  .infer = infer,
  .grad = grad,
  .kernels = NEAP_REF(run, NEAP_ANY),
  .cases =
    "{ {x={2,3,4}}, {x={2,3,4,5}, axes={3,1,4,2}}, {x={35,41}, axes={2,1}}, {x={2,4,3,5}, "
    "axes={1,3,2,4}}, {x={}}, {x={0,3}}, "
    "{x={{3,5}, dtype=\"u8\"}, grad=false}, {x={{3,5}, dtype=\"f64\"}, axes={-1,-2}} }",
};
