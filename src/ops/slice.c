/* slice.c: Slice, a box of evenly spaced positions; SliceGrad, which puts a gradient back among
 * zeros; and SetSlice, which writes a box.
 *
 * Positions count from 1 in Lua and include both ends. `starts` is converted like an axis (stored
 * 0-based, negative from the end); `ends` is stored as given: position of the last element, -1 the
 * last, 0 (with a start of 1) for an empty range.
 */
#include "math/move.h"
#include "ops/op.h"

#include <string.h>

/* Attributes of both ops, in this order; SHAPE is SliceGrad's alone. */
enum { STARTS, ENDS, STEPS, AXES, SHAPE };

/* Of one dimension: positions start + i step for 0 <= i < n, from 0. */
typedef struct range {
  int64_t start, step, n;
} range;

/* How many positions lie from `start` to `last`, both in [0, size), `step` apart; a step may be any
 * number but 0. */
static int64_t count_positions(int64_t start, int64_t last, int64_t step) {
  uint64_t far = (uint64_t)(last - start), stride = (uint64_t)step;
  /* Backwards both are negative. Unsigned, even the least of all steps has an opposite. */
  if (step < 0) {
    far = -far;
    stride = -stride;
  }
  return (int64_t)(far / stride) + 1;
}

/* The ranges of all dimensions of x; dimensions not named are taken whole. Fails when the lists
 * differ in length, an axis or a position is out of range, or a step is 0. An empty range may lie
 * anywhere; its start is set to 0. */
static neap_status ranges_of(const neap_infer *c, const neap_shape *x, range out[NEAP_MAX_DIM],
                             neap_error *error) {
  const neap_attr_value *a = c->attrs;
  for (int d = 0; d < x->n_dim; d++) out[d] = (range){0, 1, x->dim[d]};
  int n = a[STARTS].n;
  /* One entry each, so that none is read that is not there. */
  if (a[ENDS].n != n || (a[STEPS].n != 0 && a[STEPS].n != n) ||
      (a[AXES].n != 0 && a[AXES].n != n) || n > x->n_dim)
    return neap_infer_fail(
      c, NEAP_ATTRIBUTE, 0, error,
      "starts, ends, steps and axes need as many entries each, at most %d: got %d, %d, %d and %d",
      x->n_dim, n, a[ENDS].n, a[STEPS].n, a[AXES].n);

  for (int i = 0; i < n; i++) {
    int d = a[AXES].n > 0 ? neap_axis(a[AXES].ints[i], x->n_dim) : i;
    if (d < 0 || d >= x->n_dim)
      return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "axes is out of range for %d dimensions",
                             x->n_dim);

    int64_t size = x->dim[d], step = a[STEPS].n > 0 ? a[STEPS].ints[i] : 1;
    /* A negative start counts from the end. Both are from 0 from here on; `last` is included. */
    int64_t start = a[STARTS].ints[i] < 0 ? a[STARTS].ints[i] + size : a[STARTS].ints[i];
    int64_t last = a[ENDS].ints[i] < 0 ? a[ENDS].ints[i] + size : a[ENDS].ints[i] - 1;

    if (step == 0) return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "steps must not be 0");
    bool empty = step > 0 ? last < start : last > start;
    char text[NEAP_SHAPE_TEXT];
    /* Both ends of a range are checked, and with a constant step all positions lie between them. */
    if (!empty && (start < 0 || start >= size || last < 0 || last >= size))
      return neap_infer_fail(c, NEAP_SHAPE, 0, error,
                             "the range %lld..%lld leaves a dimension of %lld in x %s",
                             (long long)start + (start < INT64_MAX), (long long)last + 1,
                             (long long)size, neap_shape_text(x, text));

    int64_t count = empty ? 0 : count_positions(start, last, step);
    /* A step that is never taken may be larger than any stride can be. */
    out[d] = (range){empty ? 0 : start, count > 1 ? step : 1, count};
  }
  return NEAP_OK;
}

/* The same for kernels: infer has checked. */
static void ranges_of_call(const neap_call *call, const neap_shape *x, range out[NEAP_MAX_DIM]) {
  neap_infer c = {.op = call->op, .attrs = call->attrs};
  (void)ranges_of(&c, x, out, NULL);
}

/* Element offset of the box's first element in x; strides of the box in x go to `stride`. */
static int64_t place(const neap_shape *x, const range *r, int64_t stride[NEAP_MAX_DIM]) {
  int64_t first = 0;
  neap_shape_strides(x, stride);
  for (int d = 0; d < x->n_dim; d++) {
    first += r[d].start * stride[d];
    stride[d] *= r[d].step;
  }
  return first;
}

/* x's shape with the ranges' lengths; the dtype may be any, since elements are only moved. */
static neap_status infer(neap_infer *c, neap_error *error) {
  range r[NEAP_MAX_DIM];
  NEAP_TRY(ranges_of(c, &c->in[0].shape, r, error));
  c->out[0] = c->in[0];
  for (int d = 0; d < c->in[0].shape.n_dim; d++) c->out[0].shape.dim[d] = r[d].n;
  return NEAP_OK;
}

/* One strided copy: the box's strides in x against dense ones in y. A step that goes backwards is a
 * negative stride. */
static void run(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape, *y = &call->out[0].type.shape;
  size_t bytes = neap_dtype_bytes(call->out[0].type.dtype);
  range r[NEAP_MAX_DIM];
  int64_t in_stride[NEAP_MAX_DIM], out_stride[NEAP_MAX_DIM];

  ranges_of_call(call, x, r);
  int64_t first = place(x, r, in_stride);
  neap_shape_strides(y, out_stride);

  neap_move move = {0};
  for (int d = 0; d < y->n_dim; d++) neap_move_add(&move, y->dim[d], in_stride[d], out_stride[d]);
  if (neap_shape_elems(y) > 0)
    neap_move_run(&move, bytes, (const char *)call->in[0].data + first * (int64_t)bytes,
                  call->out[0].data, call->n_thread);
}

/* dx's shape is the attribute; dy must have the shape that Slice gives for it. */
static neap_status infer_grad(neap_infer *c, neap_error *error) {
  range r[NEAP_MAX_DIM];
  NEAP_TRY(neap_infer_attr_type(c, SHAPE, &c->out[0], error));
  NEAP_TRY(ranges_of(c, &c->out[0].shape, r, error));
  neap_type y = c->out[0];
  for (int d = 0; d < y.shape.n_dim; d++) y.shape.dim[d] = r[d].n;
  return neap_infer_expect(c, 0, &y, error);
}

/* The same copy the other way: dense from dy, strided into dx, which is all zeros before. */
static void run_grad(const neap_call *call) {
  const neap_shape *dy = &call->in[0].type.shape, *dx = &call->out[0].type.shape;
  size_t bytes = neap_dtype_bytes(call->out[0].type.dtype);
  range r[NEAP_MAX_DIM];
  int64_t in_stride[NEAP_MAX_DIM], out_stride[NEAP_MAX_DIM];
  if (neap_shape_elems(dx) == 0) return;

  /* What no position of the box touches is zero; the box itself is written over. */
  memset(call->out[0].data, 0, neap_type_bytes(&call->out[0].type));

  ranges_of_call(call, dx, r);
  int64_t first = place(dx, r, out_stride);
  neap_shape_strides(dy, in_stride);

  neap_move move = {0};
  for (int d = 0; d < dy->n_dim; d++) neap_move_add(&move, dy->dim[d], in_stride[d], out_stride[d]);
  if (neap_shape_elems(dy) > 0)
    neap_move_run(&move, bytes, call->in[0].data,
                  (char *)call->out[0].data + first * (int64_t)bytes, call->n_thread);
}

/* x's shape goes along as an attribute, so that x need not live until the backward. */
static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  neap_type x = neap_grad_type(g, g->in[0]);
  g->din[0] =
    neap_grad_emit1(g, "SliceGrad", 1, g->dout, g,
                    (neap_set[]){NEAP_SET_INTS("shape", x.shape.n_dim, x.shape.dim), {0}});
  return NEAP_OK;
}

/* SliceGrad's own gradient: the slice of what arrives. */
static neap_status grad_grad(neap_grad *g, neap_error *error) {
  (void)error;
  g->din[0] = neap_grad_emit1(g, "Slice", 1, g->dout, g, NULL);
  return NEAP_OK;
}

/* ---- SetSlice -------------------------------------------------------------------------------- */

/* v is as large as the box, or broadcast to it. */
static neap_status infer_set(neap_infer *c, neap_error *error) {
  range r[NEAP_MAX_DIM];
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_same_dtype(c, 0, error));
  NEAP_TRY(ranges_of(c, &c->in[0].shape, r, error));
  neap_shape box = c->in[0].shape, both;
  for (int d = 0; d < box.n_dim; d++) box.dim[d] = r[d].n;
  if (!neap_shape_broadcast(&c->in[1].shape, &box, &both) || !neap_shape_equal(&both, &box))
    return neap_infer_fail(c, NEAP_SHAPE, 1, error,
                           "v expects %s, or what is broadcast to it, got %s",
                           neap_shape_text(&box, a), neap_shape_text(&c->in[1].shape, b));
  c->out[0] = c->in[0];
  return NEAP_OK;
}

/* All of x, unless it is there, then the box; a dimension that v lacks, or has once, stands
 * still. */
static void run_set(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape, *v = &call->in[1].type.shape;
  size_t bytes = neap_dtype_bytes(call->out[0].type.dtype);
  range r[NEAP_MAX_DIM];
  int64_t in_stride[NEAP_MAX_DIM], out_stride[NEAP_MAX_DIM];
  if (call->in[0].data != call->out[0].data) {
    neap_move all = {0};
    neap_move_add(&all, neap_shape_elems(x), 1, 1);
    neap_move_run(&all, bytes, call->in[0].data, call->out[0].data, call->n_thread);
  }

  ranges_of_call(call, x, r);
  int64_t first = place(x, r, out_stride);
  neap_shape_strides(v, in_stride);
  neap_move move = {0};
  for (int d = 0; d < x->n_dim; d++) {
    /* v is aligned at the last dimension, as NumPy broadcasts. */
    int own = d - (x->n_dim - v->n_dim);
    neap_move_add(&move, r[d].n, own < 0 || v->dim[own] == 1 ? 0 : in_stride[own], out_stride[d]);
  }
  neap_move_run(&move, bytes, call->in[1].data, (char *)call->out[0].data + first * (int64_t)bytes,
                call->n_thread);
}

/* ---- records --------------------------------------------------------------------------------- */

#define RANGE_ATTRS                                                                             \
  [STARTS] = {"starts", "first positions, negative from the end", NEAP_ATTR_AXES,               \
              .required = true},                                                                \
  [ENDS] = {"ends", "last positions, included; -1 the last", NEAP_ATTR_INTS, .required = true}, \
  [STEPS] = {"steps", "distances, negative to go backwards; 1 when not given", NEAP_ATTR_INTS}, \
  [AXES] = {"axes", "dimensions they speak of; the first ones when not given", NEAP_ATTR_AXES}

const neap_op neap_op_Slice = {
  .name = "Slice",
  .summary = "A range of positions, with steps, of some dimensions.",
  .math = "y[i] = x[start + i step]",
  .example = "net:Slice(\"x\", \"y\", {starts = {2, 1}, ends = {5, -1}})",
  .source = "ONNX Slice-13, with positions as Lua counts them",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "the ranges' lengths", NEAP_ANY}},
  .attrs = {RANGE_ATTRS},
  .infer = infer,
  .grad = grad,
  .kernels = NEAP_REF(run, NEAP_ANY),
  .cases =
    "{ {x={6,2,5}, starts={2,1,-3}, ends={5,-1,-2}, steps={2,1,1}}, {x={4,5}, starts={-1}, "
    "ends={1}, steps={-2}}, "
    "{x={3,4}, starts={2}, ends={3}, axes={2}}, {x={3,4}, starts={1}, ends={0}} }",
};

const neap_op neap_op_SliceGrad = {
  .name = "SliceGrad",
  .summary = "Gradient of Slice: dy at its positions, zero elsewhere.",
  .math = "dx[start + i step] = dy[i]",
  .internal = true,
  .inputs = {{"dy", "shape of the slice", NEAP_ANY}},
  .outputs = {{"dx", "shape of x", NEAP_ANY}},
  .attrs = {RANGE_ATTRS, [SHAPE] = {"shape", "of x", NEAP_ATTR_INTS, .required = true}},
  .infer = infer_grad,
  .grad = grad_grad,
  .grad_formula = "d.dy = Slice(d.dx, ..)",
  .kernels = NEAP_REF(run_grad, NEAP_ANY),
  .cases = "{ {dy={2,5}, starts={2}, ends={4}, steps={2}, shape={6,5}} }",
};

const neap_op neap_op_SetSlice = {
  .name = "SetSlice",
  .summary = "A tensor with a range of positions, with steps, written over.",
  .math = "y = x; y[start + i step] = v[i]",
  .example = "net:SetSlice({\"x\", \"v\"}, \"y\", {starts = {2, 1}, ends = {5, -1}})",
  .source = "PyTorch slice_scatter, with positions as in Slice",
  .inputs = {{"x", "any shape", NEAP_ANY},
             {"v", "the ranges' lengths, or broadcast to them", NEAP_ANY}},
  .outputs = {{"y", "shape of x", NEAP_ANY}},
  .attrs = {RANGE_ATTRS},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = infer_set,
  .grad_formula = "d.x = SetSlice(d.y, 0, ..); d.v = like(Slice(d.y, ..), v)",
  .empty = NEAP_EMPTY_NONE,
  .special = "what is outside of the range keeps its bits",
  .kernels = NEAP_REF(run_set, NEAP_ANY),
  .cases =
    "{ {x={6,2,5}, v={2,2,2}, starts={2,1,-3}, ends={5,-1,-2}, steps={2,1,1}}, {x={4,5}, v={5}, "
    "starts={-1}, ends={1}, steps={-2}}, {x={3,4}, v={3,1}, starts={2}, ends={3}, axes={2}}, "
    "{x={3,4}, v={}, starts={2}, ends={2}}, {x={3,4}, v={0,4}, starts={1}, ends={0}} }",
};
