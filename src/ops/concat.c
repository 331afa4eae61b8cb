/* concat.c: Concat and Split, each the gradient of the other.
 *
 * Both see the tensor as (outer, axis, inner): each part is `outer` runs of its axis times inner
 * elements. Blocks of channels are such runs too, in the same places, when every part is whole
 * blocks: then the layout of convolutions goes through.
 */
#include "math/move.h"
#include "ops/op.h"

enum { AXIS, SIZES };

/* Copies between the whole, at position `at` of the axis, and one part with `n` positions: into the
 * whole with `gather`, else out of it. */
static void move_part(const neap_call *call, const neap_shape *whole, int axis, int64_t at,
                      int64_t n, void *part, bool gather, char *base) {
  size_t bytes = neap_dtype_bytes(call->out[0].type.dtype);
  int64_t outer = neap_shape_span(whole, 0, axis),
          inner = neap_shape_span(whole, axis + 1, whole->n_dim);
  int64_t row = whole->dim[axis] * inner, run = n * inner; /* elements of the whole's row; ours */
  if (outer == 0 || run == 0) return;

  /* `outer` runs, which stand one behind the other in the part and a row apart in the whole. */
  char *place = base + (size_t)(at * inner) * bytes;
  neap_move move = {0};
  if (gather) {
    neap_move_add(&move, outer, run, row);
    neap_move_add(&move, run, 1, 1);
    neap_move_run(&move, bytes, part, place, call->n_thread);
  } else {
    neap_move_add(&move, outer, row, run);
    neap_move_add(&move, run, 1, 1);
    neap_move_run(&move, bytes, place, part, call->n_thread);
  }
}

/* Blocked over dimension 1 alone, the dimensions in order, nothing padded: `n` channels are one run
 * of an image. */
static bool is_whole_blocks(const neap_layout *layout, const neap_type *type) {
  if (layout->kind != NEAP_LAYOUT_BLOCKED || layout->n_inner != 1 || layout->inner_dim[0] != 1)
    return false;
  for (int d = 0; d < type->shape.n_dim; d++)
    if (layout->order[d] != d) return false;
  return type->shape.n_dim > 1 && type->shape.dim[1] % layout->inner_block[0] == 0;
}

/* Whether all operands can have the layout at hand of the first: it cuts nothing but the channels,
 * which are the axis, and each part is whole blocks. */
static bool suits_all(const neap_choose *c) {
  const neap_layout *at_hand = &c->in_layout[0];
  if (neap_axis(c->attrs[AXIS].i, c->in[0].shape.n_dim) != 1) return false;
  /* One layout for all: a copy of runs reads nothing of what is inside a block. */
  for (int i = 0; i < c->n_in; i++) {
    if (!neap_layout_equal(&c->in_layout[i], at_hand)) return false;
    if (!is_whole_blocks(at_hand, &c->in[i])) return false;
  }
  for (int k = 0; k < c->n_out; k++)
    if (!is_whole_blocks(at_hand, &c->out[k])) return false;
  return true;
}

/* The layout at hand when it suits all parts, else plain, which a choice is without more. */
static bool choose(neap_choose *c) {
  if (suits_all(c)) {
    for (int i = 0; i < c->n_in; i++) c->choice->in[i] = c->in_layout[0];
    for (int k = 0; k < c->n_out; k++) c->choice->out[k] = c->in_layout[0];
  }
  return true;
}

/* ---- Concat ---------------------------------------------------------------------------------- */

/* All inputs have the dtype and the rank of the first, and its sizes in every dimension but
 * axis. */
static neap_status infer_concat(neap_infer *c, neap_error *error) {
  const neap_shape *first = &c->in[0].shape;
  int axis;
  NEAP_TRY(neap_infer_same_dtype(c, 0, error));
  NEAP_TRY(neap_infer_rank(c, 0, 1, NEAP_MAX_DIM, error));
  NEAP_TRY(neap_infer_axis(c, AXIS, first->n_dim, &axis, error));
  c->out[0] = c->in[0];

  /* Sizes along the axis add up; an overflow stays the largest count, which is refused later. */
  for (int i = 1; i < c->n_in; i++) {
    const neap_shape *x = &c->in[i].shape;
    bool fits = x->n_dim == first->n_dim;
    if (fits) {
      for (int d = 0; d < x->n_dim; d++)
        if (d != axis && x->dim[d] != first->dim[d]) fits = false;
    }
    char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
    if (!fits)
      return neap_infer_fail(c, NEAP_SHAPE, i, error,
                             "input %d %s must agree with the first %s in all dimensions but axis",
                             i + neap_first_number(), neap_shape_text(x, a),
                             neap_shape_text(first, b));
    c->out[0].shape.dim[axis] = neap_count_add(c->out[0].shape.dim[axis], x->dim[axis]);
  }
  return NEAP_OK;
}

static void run_concat(const neap_call *call) {
  const neap_shape *y = &call->out[0].type.shape;
  int axis = neap_axis(call->attrs[AXIS].i, y->n_dim);
  int64_t at = 0;
  for (int i = 0; i < call->n_in; i++) {
    /* Each part begins where the one before it ends. */
    int64_t n = call->in[i].type.shape.dim[axis];
    move_part(call, y, axis, at, n, call->in[i].data, true, call->out[0].data);
    at += n;
  }
}

/* One Split for all inputs: dy is read once, and unwanted parts are the price of a single op. */
static neap_status grad_concat(neap_grad *g, neap_error *error) {
  int axis = neap_axis(g->attrs[AXIS].i, neap_grad_type(g, g->in[0]).shape.n_dim);

  /* One allocation for both lists: the sizes of the parts, then the values they become. */
  size_t n = (size_t)g->n_in;
  int64_t *sizes = neap_alloc(n * (sizeof *sizes + sizeof(neap_value_id)));
  if (sizes == NULL) return neap_fail_memory(error, n * sizeof *sizes, "the gradient of Concat");
  neap_value_id *part = (neap_value_id *)(sizes + n);

  for (int i = 0; i < g->n_in; i++) sizes[i] = neap_grad_type(g, g->in[i]).shape.dim[axis];
  neap_grad_emit(g, "Split", 1, g->dout, g->n_in, part, g,
                 (neap_set[]){NEAP_SET_INTS("sizes", g->n_in, sizes), {0}});
  for (int i = 0; i < g->n_in; i++) g->din[i] = part[i];
  neap_free(sizes);
  return NEAP_OK;
}

const neap_op neap_op_Concat = {
  .name = "Concat",
  .summary = "Joins tensors along one dimension.",
  .math = "y = [x1, x2, ...] along axis",
  .example = "net:Concat({\"a\", \"b\"}, \"y\", {axis = 2})",
  .source = "ONNX Concat-13",
  .inputs = {{"x", "equal in all dimensions but axis", NEAP_ANY, NEAP_ARG_VARIADIC}},
  .outputs = {{"y", "the sizes along axis add up", NEAP_ANY}},
  .attrs = {[AXIS] = {"axis", "dimension along which to join", NEAP_ATTR_AXIS, .value = {.i = 1}}},
  .infer = infer_concat,
  .grad = grad_concat,
  .kernels = NEAP_REF_CHOOSE(choose, run_concat, NEAP_ANY),
  .cases =
    "{ {x={2,3,4}}, {x={5}, axis=1}, {x={2,0,3}}, {x={ {2,3,4}, {2,1,4}, {2,20,4} }, axis=2}, {x={ "
    "{2,3}, {0,3} }, axis=1}, {x={ "
    "{3}, {2} }, axis=-1} }",
};

/* ---- Split ----------------------------------------------------------------------------------- */

/* Positions in part k: as `sizes` says, else an equal share of `whole`. */
static int64_t split_size(const neap_attr_value *sizes, int64_t whole, int n_out, int k) {
  return sizes->n > 0 ? sizes->ints[k] : whole / n_out;
}

/* INVARIANT: the parts cover the axis exactly, so that Concat of their gradients has the shape of
 * x. */
static neap_status infer_split(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape;
  const neap_attr_value *sizes = &c->attrs[SIZES];
  int axis;
  char text[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_rank(c, 0, 1, NEAP_MAX_DIM, error));
  NEAP_TRY(neap_infer_axis(c, AXIS, x->n_dim, &axis, error));
  if (sizes->n > 0 && sizes->n != c->n_out)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "sizes expects %d entries, one an output, got %d", c->n_out, sizes->n);
  /* Without sizes the parts are equal. */
  if (sizes->n == 0 && (c->n_out == 0 || x->dim[axis] % c->n_out != 0))
    return neap_infer_fail(
      c, NEAP_SHAPE, 0, error,
      "x %s has %lld positions along axis, which %d equal parts do not share evenly",
      neap_shape_text(x, text), (long long)x->dim[axis], c->n_out);
  int64_t total = 0;
  for (int k = 0; k < c->n_out; k++) {
    int64_t n = split_size(sizes, x->dim[axis], c->n_out, k);
    if (n < 0)
      return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "sizes has %lld, expected 0 or more",
                             (long long)n);
    /* Like x in all but the axis. */
    c->out[k] = c->in[0];
    c->out[k].shape.dim[axis] = n;
    total = neap_count_add(total, n);
  }
  if (total != x->dim[axis])
    return neap_infer_fail(c, NEAP_SHAPE, 0, error,
                           "sizes add up to %lld%s, x %s has %lld along axis", (long long)total,
                           total == NEAP_COUNT_TOO_LARGE ? " or more" : "",
                           neap_shape_text(x, text), (long long)x->dim[axis]);
  return NEAP_OK;
}

/* A part without data is passed over; the next one still begins behind it. */
static void run_split(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape;
  int axis = neap_axis(call->attrs[AXIS].i, x->n_dim);
  int64_t at = 0;
  for (int k = 0; k < call->n_out; k++) {
    int64_t n = split_size(&call->attrs[SIZES], x->dim[axis], call->n_out, k);
    if (call->out[k].data != NULL)
      move_part(call, x, axis, at, n, call->out[k].data, false, call->in[0].data);
    at += n;
  }
}

/* Concat of the gradients of all parts; a part without one gets zeros, since Concat needs each of
 * them. */
static neap_status grad_split(neap_grad *g, neap_error *error) {
  size_t n = (size_t)g->n_out;
  neap_value_id *part = neap_alloc(n * sizeof *part);
  if (part == NULL) return neap_fail_memory(error, n * sizeof *part, "the gradient of Split");
  for (int k = 0; k < g->n_out; k++) {
    part[k] = g->dout[k];
    if (part[k] != NEAP_NO_VALUE) continue; /* nobody used this part: its gradient is zero */
    neap_type type = neap_grad_type(g, g->out[k]);
    part[k] = neap_grad_emit1(g, "Constant", 0, NULL, NULL,
                              (neap_set[]){NEAP_SET_INTS("shape", type.shape.n_dim, type.shape.dim),
                                           NEAP_SET_FLOAT("value", 0),
                                           NEAP_SET_INT("dtype", type.dtype),
                                           {0}});
  }
  g->din[0] = neap_grad_emit1(g, "Concat", g->n_out, part, g, NULL);
  neap_free(part);
  return NEAP_OK;
}

const neap_op neap_op_Split = {
  .name = "Split",
  .summary = "Cuts a tensor into parts along one dimension.",
  .math = "[y1, y2, ...] = x along axis",
  .example = "net:Split(\"x\", {\"a\", \"b\"}, {axis = 2, sizes = {3, 5}})",
  .source = "ONNX Split-13",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "a part of x", NEAP_ANY, NEAP_ARG_VARIADIC}},
  .attrs = {[AXIS] = {"axis", "dimension along which to cut", NEAP_ATTR_AXIS, .value = {.i = 1}},
            [SIZES] = {"sizes", "positions in each part; equal parts when not given",
                       NEAP_ATTR_INTS}},
  .infer = infer_split,
  .grad = grad_split,
  .kernels = NEAP_REF_CHOOSE(choose, run_split, NEAP_ANY),
  .cases =
    "{ {x={2,3,4}}, {x={6}, axis=1}, {x={2,5}, axis=2, sizes={5}}, {x={2,6,3}, axis=2, outputs=3}, "
    "{x={2,7}, axis=-1, "
    "sizes={4,0,3}, outputs=3} }",
};
