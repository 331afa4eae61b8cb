/* gather.c: Gather, GatherElements and GatherND: rows or elements of a tensor by number. What they
 * have in common is in places.h. Their gradients are scatters that add (scatter.c).
 */
#include "ops/places.h"

#include <inttypes.h>

/* ORDER: the first attribute of a gather is that of its scatter, too. */
enum { AXIS, BATCH_DIMS = AXIS };

/* Only the rows that are asked for are read. */
static void cost(const neap_infer *c, neap_cost *cost) {
  cost->write_bytes = (double)neap_type_bytes(&c->out[0]);
  cost->read_bytes = cost->write_bytes + (double)neap_type_bytes(&c->in[1]);
}

/* The places of a call whose operands 0 and 1 are the table and the indices. */
static void run_places(const neap_call *call, neap_places places) {
  places.indices = &call->in[1];
  places.name = call->op->inputs[1].name;
  neap_gather(call, &places, &call->in[0], &call->out[0]);
}

/* ---- along an axis --------------------------------------------------------------------------- */

/* x with the axis replaced by the dimensions of the indices. */
static neap_status infer_along(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape, *indices = &c->in[1].shape;
  int axis;
  NEAP_TRY(neap_infer_rank(c, 0, 1, NEAP_MAX_DIM, error));
  NEAP_TRY(neap_infer_axis(c, AXIS, x->n_dim, &axis, error));
  if (x->n_dim - 1 + indices->n_dim > NEAP_MAX_DIM)
    return neap_infer_fail(c, NEAP_SHAPE, 1, error,
                           "the output would have %d dimensions, at most %d are possible",
                           x->n_dim - 1 + indices->n_dim, NEAP_MAX_DIM);
  neap_shape y = {0};
  for (int d = 0; d < axis; d++) y.dim[y.n_dim++] = x->dim[d];
  for (int d = 0; d < indices->n_dim; d++) y.dim[y.n_dim++] = indices->dim[d];
  for (int d = axis + 1; d < x->n_dim; d++) y.dim[y.n_dim++] = x->dim[d];
  c->out[0] = (neap_type){c->in[0].dtype, y};
  return NEAP_OK;
}

static void run_along(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape;
  run_places(
    call, neap_places_along(&call->in[1].type.shape, x, neap_axis(call->attrs[AXIS].i, x->n_dim)));
}

/* ---- element by element ---------------------------------------------------------------------- */

/* y has the shape of the indices, which are nowhere longer than x but along the axis. */
static neap_status infer_elements(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape, *indices = &c->in[1].shape;
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  int axis;
  NEAP_TRY(neap_infer_rank(c, 0, 1, NEAP_MAX_DIM, error));
  NEAP_TRY(neap_infer_axis(c, AXIS, x->n_dim, &axis, error));
  bool fits = indices->n_dim == x->n_dim;
  for (int d = 0; d < x->n_dim && fits; d++) fits = d == axis || indices->dim[d] <= x->dim[d];
  if (!fits)
    return neap_infer_fail(c, NEAP_SHAPE, 1, error,
                           "indices expects the dimensions of x %s, none of them longer but the "
                           "axis, got %s",
                           neap_shape_text(x, a), neap_shape_text(indices, b));
  c->out[0] = (neap_type){c->in[0].dtype, *indices};
  return NEAP_OK;
}

static void run_elements(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape;
  run_places(call, neap_places_elements(&call->in[1].type.shape, x,
                                        neap_axis(call->attrs[AXIS].i, x->n_dim)));
}

/* ---- by the first dimensions ----------------------------------------------------------------- */

/* indices (batch.., places.., K) name what is behind K dimensions of x (batch.., ..). */
static neap_status infer_nd(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape, *indices = &c->in[1].shape;
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  int64_t n_batch = c->attrs[BATCH_DIMS].i;
  NEAP_TRY(neap_infer_rank(c, 0, 1, NEAP_MAX_DIM, error));
  NEAP_TRY(neap_infer_rank(c, 1, 1, NEAP_MAX_DIM, error));
  int last = indices->n_dim - 1;
  if (n_batch > last || n_batch >= x->n_dim)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 1, error,
                           "batch_dims = %" PRId64
                           " leaves no dimension of x %s, or no numbers in "
                           "indices %s",
                           n_batch, neap_shape_text(x, a), neap_shape_text(indices, b));
  for (int d = 0; d < n_batch; d++)
    if (indices->dim[d] != x->dim[d])
      return neap_infer_fail(c, NEAP_SHAPE, 1, error,
                             "indices %s differs from x %s in the first %" PRId64 " dimensions",
                             neap_shape_text(indices, b), neap_shape_text(x, a), n_batch);

  /* The last dimension of indices holds K numbers: a position in K dimensions of x, at least in
   * one. */
  int64_t depth = indices->dim[last];
  if (depth < 1 || depth > x->n_dim - n_batch)
    return neap_infer_fail(c, NEAP_SHAPE, 1, error,
                           "the last dimension of indices %s expects 1 to %" PRId64
                           " numbers, one for each dimension of x %s that it names",
                           neap_shape_text(indices, b), x->n_dim - n_batch, neap_shape_text(x, a));

  /* y is what indices has but its numbers, then what x has behind the position. */
  int behind = (int)(n_batch + depth);
  if (last + x->n_dim - behind > NEAP_MAX_DIM)
    return neap_infer_fail(c, NEAP_SHAPE, 1, error,
                           "the output would have %d dimensions, at most %d are possible",
                           last + x->n_dim - behind, NEAP_MAX_DIM);
  neap_shape y = {0};
  for (int d = 0; d < last; d++) y.dim[y.n_dim++] = indices->dim[d];
  for (int d = behind; d < x->n_dim; d++) y.dim[y.n_dim++] = x->dim[d];
  c->out[0] = (neap_type){c->in[0].dtype, y};
  return NEAP_OK;
}

static void run_nd(const neap_call *call) {
  run_places(call, neap_places_nd(&call->in[1].type.shape, &call->in[0].type.shape,
                                  (int)call->attrs[BATCH_DIMS].i));
}

/* ---- records --------------------------------------------------------------------------------- */

#define GATHER(run_function) \
  .effects = NEAP_EFFECT_FAULT, .cost = cost, .kernels = NEAP_REF(run_function, NEAP_ANY)

const neap_op neap_op_Gather = {
  .name = "Gather",
  .summary = "Positions along a dimension, by number.",
  .math = "y[.., i.., ..] = x[.., indices[i..], ..]; numbers from 0, or from -1 at the end",
  .example = "net:Gather({\"x\", \"indices\"}, \"y\", {axis = 2})",
  .source = "ONNX Gather-13",
  .inputs = {{"x", "any shape", NEAP_ANY}, {"indices", "any shape", NEAP_INDEX_DTYPES}},
  .outputs = {{"y", "x, with the shape of indices for the axis", NEAP_ANY}},
  .attrs = {[AXIS] = {"axis", "along which", NEAP_ATTR_AXIS}},
  .infer = infer_along,
  .grad_formula = "d.x = IndexAdd(zeros(x), indices, d.y, ..)",
  GATHER(run_along),
  .cases =
    "{ {x={5,3}, indices={{2,4}, dtype=\"i64\", low=-5, high=5}}, {x={3,4,2}, indices={{7}, "
    "dtype=\"i32\", low=0, high=2}, axis=2}, {x={2,6}, indices={{}, dtype=\"i64\", low=-6, "
    "high=6}, axis=-1}, {x={4,0}, indices={{3}, dtype=\"u8\", low=0, high=4}}, {x={0,2}, "
    "indices={{0}, dtype=\"i64\"}} }",
};

const neap_op neap_op_GatherElements = {
  .name = "GatherElements",
  .summary =
    "Elements by number: each number is a position along a dimension, at its own place in "
    "the others.",
  .math = "y[i,j,k] = x[i, indices[i,j,k], k], axis 2; numbers from 0, or from -1 at the end",
  .example = "net:GatherElements({\"x\", \"indices\"}, \"y\", {axis = 2})",
  .source = "ONNX GatherElements-13; PyTorch gather, take_along_dim",
  .inputs = {{"x", "any shape", NEAP_ANY},
             {"indices", "dimensions as x has, none longer but the axis", NEAP_INDEX_DTYPES}},
  .outputs = {{"y", "shape of indices", NEAP_ANY}},
  .attrs = {[AXIS] = {"axis", "along which", NEAP_ATTR_AXIS}},
  .infer = infer_elements,
  .grad_formula = "d.x = ScatterElements(zeros(x), indices, d.y, .., reduction = add)",
  GATHER(run_elements),
  .cases =
    "{ {x={3,4,2}, indices={{3,7,2}, dtype=\"i64\", low=-4, high=4}, axis=2}, {x={5,3}, "
    "indices={{2,2}, dtype=\"i32\", low=0, high=5}}, {x={2,3,4}, indices={{1,2,3}, "
    "dtype=\"i64\", low=-4, high=4}, axis=-1}, {x={0,3}, indices={{0,3}, dtype=\"i64\"}}, "
    "{x={4}, indices={{6}, dtype=\"u8\", low=0, high=4}} }",
};

const neap_op neap_op_GatherND = {
  .name = "GatherND",
  .summary = "Slices named by a number for each of the first dimensions.",
  .math = "y[b.., i.., ..] = x[b.., indices[b.., i.., 1], .., indices[b.., i.., K], ..]",
  .example = "net:GatherND({\"x\", \"indices\"}, \"y\")",
  .source = "ONNX GatherND-13",
  .inputs = {{"x", "any shape", NEAP_ANY},
             {"indices", "(.., K): K numbers each, from 0, or from -1 at the end",
              NEAP_INDEX_DTYPES}},
  .outputs = {{"y", "indices without K, then what is behind the dimensions named", NEAP_ANY}},
  .attrs = {[BATCH_DIMS] = {"batch_dims", "first dimensions that both have, which are not named",
                            NEAP_ATTR_INT, .most = NEAP_MAX_DIM}},
  .infer = infer_nd,
  .grad_formula = "d.x = ScatterND(zeros(x), indices, d.y, .., reduction = add)",
  GATHER(run_nd),
  .cases =
    "{ {x={3,4,2}, indices={{5,2}, dtype=\"i64\", low=-3, high=3}}, {x={4,3}, indices={{2,6,1}, "
    "dtype=\"i32\", low=0, high=4}}, {x={2,3,4}, indices={{2,5,1}, dtype=\"i64\", low=-3, "
    "high=3}, batch_dims=1}, {x={2,2,3}, indices={{2,2,1}, dtype=\"i64\", low=0, high=3}, "
    "batch_dims=2}, {x={2,2}, indices={{2}, dtype=\"i64\", low=0, high=2}}, {x={3,0}, "
    "indices={{2,1}, dtype=\"i64\", low=0, high=3}} }",
};
