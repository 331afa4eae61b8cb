/* reshape.c: the ops that only see the same elements under another shape: Reshape, Flatten,
 * Squeeze, Unsqueeze, Alias.
 *
 * All are alias pairs: the planner gives input and output the same bytes, and the kernel runs only
 * where it can't (policy `none`, resident outputs). Their gradients are Reshapes back to the shape
 * of x.
 */
#include "ops/op.h"

#include <string.h>

/* Does nothing where the planner gave both the same bytes. */
static void run(const neap_call *call) {
  if (call->in[0].data != call->out[0].data)
    neap_copy_bytes(call->out[0].data, call->in[0].data, neap_type_bytes(&call->out[0].type));
}

static const neap_kernel kernels[] = {
  {.engine = NEAP_ENGINE_REF, .dtypes = NEAP_ANY, .any_team = true, .run = run}, {0}};

static void cost(const neap_infer *c, neap_cost *cost) {
  (void)c;
  *cost = (neap_cost){0}; /* a view: nothing is computed or moved */
}

static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  if (!g->want[0]) return NEAP_OK;
  g->din[0] = neap_grad_view(g, g->dout[0], neap_grad_type(g, g->in[0]).shape);
  return NEAP_OK;
}

/* ---- Reshape --------------------------------------------------------------------------------- */

enum { SHAPE, ALLOW_ZERO };

/* ATTRIBUTE error for a list that is no shape, SHAPE error when x has other elements than it. A -1
 * takes elements / product of the others; where that product is 0 or does not divide, it counts as
 * 0. */
static neap_status infer_reshape(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape;
  neap_shape to = {.n_dim = c->attrs[SHAPE].n};
  char text[NEAP_SHAPE_TEXT], text_to[NEAP_SHAPE_TEXT];
  if (to.n_dim > NEAP_MAX_DIM)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "shape has %d dimensions, at most %d are possible", to.n_dim,
                           NEAP_MAX_DIM);

  /* What each size stands for: 0 for that of x (or for none, with allow_zero), -1 for what is left
   * over. `known` is the product of the others. */
  int unknown = -1;
  int64_t known = 1;
  for (int d = 0; d < to.n_dim; d++) {
    int64_t n = c->attrs[SHAPE].ints[d];
    if (n == 0 && c->attrs[ALLOW_ZERO].i == 0) {
      if (d >= x->n_dim)
        return neap_infer_fail(c, NEAP_SHAPE, 0, error, "shape keeps a dimension that x %s lacks",
                               neap_shape_text(x, text));
      n = x->dim[d];
    }
    if (n < -1 || (n == -1 && unknown >= 0))
      return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                             "shape expects sizes and at most one -1, got %lld", (long long)n);
    if (n == -1) {
      unknown = d; /* stays 0 until the others are known */
    } else {
      known = neap_count_mul(known, n);
      to.dim[d] = n;
    }
  }

  /* The same elements, none more and none less. */
  int64_t elems = neap_shape_elems(x);
  if (unknown >= 0 && known > 0 && elems % known == 0) to.dim[unknown] = elems / known;
  if (neap_shape_elems(&to) != elems)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error, "x %s with %lld elements can't become %s%s",
                           neap_shape_text(x, text), (long long)elems,
                           neap_shape_text(&to, text_to), unknown >= 0 ? " (with -1 as 0)" : "");
  c->out[0] = (neap_type){c->in[0].dtype, to};
  return NEAP_OK;
}

const neap_op neap_op_Reshape = {
  .name = "Reshape",
  .summary = "The same elements in the same order under another shape.",
  .math = "y[i] = x[i], i counting all elements",
  .example = "net:Reshape(\"x\", \"y\", {shape = {0, -1}})",
  .source = "ONNX Reshape-14",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "the given shape", NEAP_ANY}},
  .attrs = {[SHAPE] = {"shape", "sizes; one -1 takes what is left, 0 keeps the size of x there",
                       NEAP_ATTR_INTS, .required = true},
            [ALLOW_ZERO] = {"allow_zero", "0 is a size, for empty tensors", NEAP_ATTR_BOOL}},
  .alias = {{0, 0}},
  .n_alias = 1,
  .infer = infer_reshape,
  .cost = cost,
  .grad = grad,
  .kernels = kernels,
  .cases =
    "{ {x={2,3,4}, shape={6,-1}}, {x={2,3,4}, shape={0,12}}, {x={}, shape={1,1}}, {x={1}, "
    "shape={}}, "
    "{x={0,4}, shape={2,0}, allow_zero=true}, {x={{2,3}, dtype=\"i64\"}, shape={3,2}, grad=false} "
    "}",
};

/* ---- Flatten --------------------------------------------------------------------------------- */

enum { FIRST, LAST };

/* Dimensions axis to last as one. A scalar becomes (1). */
static neap_status infer_flatten(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape;
  c->out[0] = (neap_type){c->in[0].dtype, NEAP_SHAPE(1)};
  if (x->n_dim == 0) return NEAP_OK;
  int first, last;
  NEAP_TRY(neap_infer_axis(c, FIRST, x->n_dim, &first, error));
  NEAP_TRY(neap_infer_axis(c, LAST, x->n_dim, &last, error));
  if (last < first)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "last = %d lies before axis = %d",
                           (int)neap_axis_said(last), (int)neap_axis_said(first));
  neap_shape y = neap_shape_of(first, x->dim);
  y.dim[y.n_dim++] = neap_shape_span(x, first, last + 1);
  for (int d = last + 1; d < x->n_dim; d++) y.dim[y.n_dim++] = x->dim[d];
  c->out[0].shape = y;
  return NEAP_OK;
}

const neap_op neap_op_Flatten = {
  .name = "Flatten",
  .summary = "Makes one dimension of several neighbours; by default of all but the first.",
  .math = "(N,C,H,W) -> (N,C H W)",
  .example = "net:Flatten(\"x\", \"y\")",
  .source = "PyTorch torch.flatten",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "with the dimensions from axis to last as one", NEAP_ANY}},
  .attrs = {[FIRST] = {"axis", "first dimension of those that become one", NEAP_ATTR_AXIS,
                       .value = {.i = 1}},
            [LAST] = {"last", "last of them", NEAP_ATTR_AXIS, .value = {.i = -1}}},
  .alias = {{0, 0}},
  .n_alias = 1,
  .infer = infer_flatten,
  .cost = cost,
  .grad = grad,
  .kernels = kernels,
  .cases = "{ {x={2,3,4,2}}, {x={2,3,4,2}, axis=2, last=3}, {x={5}, axis=1}, {x={}}, {x={0,3,2}} }",
};

/* ---- Squeeze and Unsqueeze ------------------------------------------------------------------- */

enum { AXES };

/* Marks the listed axes of n_dim dimensions. */
static neap_status mark_axes(const neap_infer *c, int n_dim, bool mark[NEAP_MAX_DIM],
                             neap_error *error) {
  for (int i = 0; i < c->attrs[AXES].n; i++) {
    int64_t given = c->attrs[AXES].ints[i];
    int d = neap_axis(given, n_dim);
    if (d < 0 || d >= n_dim)
      return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                             "axes has %lld, out of range for %d dimensions",
                             (long long)neap_axis_said(given), n_dim);
    if (mark[d])
      return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "axes names dimension %d twice",
                             (int)neap_axis_said(d));
    mark[d] = true;
  }
  return NEAP_OK;
}

/* Without axes every dimension of 1 goes; with axes those, which must be 1. */
static neap_status infer_squeeze(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape;
  bool mark[NEAP_MAX_DIM] = {false}, all = c->attrs[AXES].n == 0;
  NEAP_TRY(mark_axes(c, x->n_dim, mark, error));
  neap_shape y = {0};
  char text[NEAP_SHAPE_TEXT];
  for (int d = 0; d < x->n_dim; d++) {
    if (mark[d] && x->dim[d] != 1)
      return neap_infer_fail(c, NEAP_SHAPE, 0, error, "only a dimension of 1 can go, got x %s",
                             neap_shape_text(x, text));
    if (!mark[d] && !(all && x->dim[d] == 1)) y.dim[y.n_dim++] = x->dim[d];
  }
  c->out[0] = (neap_type){c->in[0].dtype, y};
  return NEAP_OK;
}

/* The axes count in y, as in ONNX, so their order does not matter. */
static neap_status infer_unsqueeze(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape;
  int n_dim = x->n_dim + c->attrs[AXES].n;
  if (n_dim > NEAP_MAX_DIM)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error, "%d dimensions, at most %d are possible", n_dim,
                           NEAP_MAX_DIM);
  bool mark[NEAP_MAX_DIM] = {false};
  NEAP_TRY(mark_axes(c, n_dim, mark, error));
  /* The marked dimensions are 1, the others x's in their order. */
  neap_shape y = {.n_dim = n_dim};
  for (int d = 0, from = 0; d < n_dim; d++) y.dim[d] = mark[d] ? 1 : x->dim[from++];
  c->out[0] = (neap_type){c->in[0].dtype, y};
  return NEAP_OK;
}

const neap_op neap_op_Squeeze = {
  .name = "Squeeze",
  .summary = "Drops dimensions of size 1.",
  .math = "(N,1,C) -> (N,C)",
  .example = "net:Squeeze(\"x\", \"y\", {axes = {2}})",
  .source = "ONNX Squeeze-13",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "x without those dimensions", NEAP_ANY}},
  .attrs = {[AXES] = {"axes", "dimensions of 1 to drop; all when not given", NEAP_ATTR_AXES}},
  .alias = {{0, 0}},
  .n_alias = 1,
  .infer = infer_squeeze,
  .cost = cost,
  .grad = grad,
  .kernels = kernels,
  .cases = "{ {x={3,1,2}, axes={2}}, {x={1,3,1}}, {x={1,3,1}, axes={-1}}, {x={0,1}, axes={2}} }",
};

const neap_op neap_op_Unsqueeze = {
  .name = "Unsqueeze",
  .summary = "Adds dimensions of size 1.",
  .math = "(N,C) -> (N,1,C)",
  .example = "net:Unsqueeze(\"x\", \"y\", {axes = {2}})",
  .source = "ONNX Unsqueeze-13",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "x with the new dimensions", NEAP_ANY}},
  .attrs = {[AXES] = {"axes", "positions of the new dimensions in y", NEAP_ATTR_AXES,
                      .required = true}},
  .alias = {{0, 0}},
  .n_alias = 1,
  .infer = infer_unsqueeze,
  .cost = cost,
  .grad = grad,
  .kernels = kernels,
  .cases = "{ {x={3,2}, axes={2}}, {x={3}, axes={1,-1}}, {x={}, axes={1}}, {x={0,2}, axes={1}} }",
};

/* ---- Alias ----------------------------------------------------------------------------------- */

/* The gradient of y is that of x: no op is needed. */
static neap_status grad_alias(neap_grad *g, neap_error *error) {
  (void)error;
  g->din[0] = g->dout[0];
  return NEAP_OK;
}

const neap_op neap_op_Alias = {
  .name = "Alias",
  .summary = "Another name for the same value.",
  .math = "y = x",
  .example = "net:Alias(\"x\", \"y\")",
  .source = "Caffe2 Alias",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "x itself", NEAP_ANY}},
  .alias = {{0, 0}},
  .n_alias = 1,
  .infer = neap_infer_like,
  .cost = cost,
  .grad = grad_alias,
  .kernels = kernels,
  .cases = "{ {x={2,3}}, {x={}}, {x={0,2}} }",
};
