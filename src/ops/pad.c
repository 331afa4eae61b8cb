/* pad.c: Pad, a tensor within a frame of one number. Its gradient is a Slice, which ends what Pad
 * added. */
#include "math/move.h"
#include "ops/fill.h"
#include "ops/op.h"

enum { PADS, VALUE };

/* `pads`: what comes before each dimension, then what comes after each, in elements, as ONNX has
 * it. */
static neap_status infer(neap_infer *c, neap_error *error) {
  const neap_attr_value *pads = &c->attrs[PADS];
  int n_dim = c->in[0].shape.n_dim;
  if (pads->n != 2 * n_dim)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "pads expects %d numbers, before and after for %d dimensions, got %d",
                           2 * n_dim, n_dim, pads->n);
  NEAP_TRY(neap_fill_check(c, "value", c->attrs[VALUE].f, c->in[0].dtype, error));

  c->out[0] = c->in[0];
  for (int d = 0; d < n_dim; d++) {
    int64_t more = neap_count_add(pads->ints[d], pads->ints[n_dim + d]);
    c->out[0].shape.dim[d] = neap_count_add(c->out[0].shape.dim[d], more);
  }
  return NEAP_OK;
}

/* All of y is filled, then x is copied into it: simpler than filling the frame alone, which is up
 * to two boxes a dimension. */
static void run(const neap_call *call) {
  const neap_type *x = &call->in[0].type, *y = &call->out[0].type;
  size_t bytes = neap_dtype_bytes(y->dtype);
  int64_t in_stride[NEAP_MAX_DIM], out_stride[NEAP_MAX_DIM], first = 0;
  neap_move move = {0};
  neap_fill(&call->out[0], call->attrs[VALUE].f, call->n_thread);
  if (neap_shape_elems(&x->shape) == 0) return;

  /* x's first element stands behind what comes before it in every dimension. */
  neap_shape_strides(&x->shape, in_stride);
  neap_shape_strides(&y->shape, out_stride);
  for (int d = 0; d < x->shape.n_dim; d++) {
    first += call->attrs[PADS].ints[d] * out_stride[d];
    neap_move_add(&move, x->shape.dim[d], in_stride[d], out_stride[d]);
  }
  neap_move_run(&move, bytes, call->in[0].data, (char *)call->out[0].data + first * (int64_t)bytes,
                call->n_thread);
}

/* The pads before a dimension are where the Slice starts, counted from 0. */
static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  neap_type x = neap_grad_type(g, g->in[0]);
  int64_t last[NEAP_MAX_DIM]; /* Slice counts these from 1 */
  for (int d = 0; d < x.shape.n_dim; d++) last[d] = g->attrs[PADS].ints[d] + x.shape.dim[d];
  g->din[0] =
    neap_grad_emit1(g, "Slice", 1, g->dout, NULL,
                    (neap_set[]){NEAP_SET_INTS("starts", x.shape.n_dim, g->attrs[PADS].ints),
                                 NEAP_SET_INTS("ends", x.shape.n_dim, last),
                                 {0}});
  return NEAP_OK;
}

const neap_op neap_op_Pad = {
  .name = "Pad",
  .summary = "A tensor with one number around it.",
  .math = "y[i + before] = x[i], value elsewhere",
  .example = "net:Pad(\"x\", \"y\", {pads = {0, 0, 1, 1, 0, 0, 1, 1}})",
  .source = "ONNX Pad-13, mode constant",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "each dimension longer by before and after", NEAP_ANY}},
  .attrs = {[PADS] = {"pads", "positions added before all dimensions, then after all",
                      NEAP_ATTR_INTS, .required = true, .least = 0, .most = 1 << 20},
            [VALUE] = {"value", "of the positions added; one that x's dtype holds",
                       NEAP_ATTR_FLOAT}},
  .infer = infer,
  .grad = grad,
  .empty = NEAP_EMPTY_FILLED,
  .special = "what is padded on to nothing is `value`",
  .kernels =
    (const neap_kernel[]){
      {.engine = NEAP_ENGINE_REF, .dtypes = NEAP_ANY, .any_team = true, .run = run}, {0}},
  .cases =
    "{ {x={2,3,4}, pads={0,1,2,1,0,3}, value=0.5}, {x={5}, pads={2,0}}, {x={0,3}, pads={1,0,0,1}, "
    "value=-2}, "
    "{x={{2,2}, dtype=\"i64\", low=0, high=9}, pads={1,1,1,1}, value=3} }",
};
