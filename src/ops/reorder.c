/* reorder.c: Reorder, the same value in another layout. Inserted by lay_out; the layouts come with
 * the operands.
 *
 * Every plain or blocked layout is a strided box once each dimension is cut at the block sizes of
 * both layouts: position p of a dimension then has mixed-radix digits, and each digit has one
 * stride in each layout. A dimension that is no multiple of the blocks is taken in pieces: whole
 * blocks, then ever smaller ones. So a Reorder is a few calls of neap_move_run.
 *
 * INVARIANT: padding lanes of a blocked output are zero afterwards; those of the input are read
 * only where both layouts are equal and all bytes are copied, zeros too.
 */
#include "math/move.h"
#include "ops/op.h"

#include <string.h>

/* Strides of one layout: within dimension d, level 0 is the step between outermost blocks, level i
 * that of the i-th inner block of d, counted from the slowest. `unit` is how many positions of the
 * dimension one step of the level is. */
typedef struct dim_levels {
  int n;
  int64_t unit[5], stride[5];
} dim_levels;

/* Sets levels[d] of all dimensions. Returns the elements with padding: the stride that a next level
 * would have. */
static int64_t levels_of(const neap_shape *shape, const neap_layout *layout,
                         dim_levels levels[NEAP_MAX_DIM]) {
  /* From the inside out: within the blocks a step of each level is what all faster ones hold. */
  int64_t block[NEAP_MAX_DIM], stride = 1;
  for (int d = 0; d < shape->n_dim; d++) levels[d].n = 0, block[d] = 1;
  int n_inner = layout->kind == NEAP_LAYOUT_BLOCKED ? layout->n_inner : 0;
  for (int i = n_inner - 1; i >= 0; i--) { /* fastest first; turned round below */
    int d = layout->inner_dim[i];
    dim_levels *l = &levels[d];
    l->unit[l->n] = block[d], l->stride[l->n++] = stride;
    block[d] *= layout->inner_block[i];
    stride *= layout->inner_block[i];
  }
  /* Outside of the blocks each dimension steps by whole blocks, in the layout's order. */
  for (int i = shape->n_dim - 1; i >= 0; i--) {
    int d = layout->kind == NEAP_LAYOUT_BLOCKED ? layout->order[i] : i;
    dim_levels *l = &levels[d];
    l->unit[l->n] = block[d], l->stride[l->n++] = stride;
    stride *= (shape->dim[d] + block[d] - 1) / block[d];
  }
  /* The levels were found fastest first; all below wants the slowest first. */
  for (int d = 0; d < shape->n_dim; d++)
    for (int i = 0, j = levels[d].n - 1; i < j; i++, j--) {
      dim_levels old = levels[d];
      levels[d].unit[i] = old.unit[j], levels[d].stride[i] = old.stride[j];
      levels[d].unit[j] = old.unit[i], levels[d].stride[j] = old.stride[i];
    }
  return stride;
}

/* Offset, in elements, of position p of a dimension. The offset of an element is the sum over its
 * dimensions. */
static int64_t offset_of(const dim_levels *l, int64_t p) {
  int64_t offset = 0;
  for (int i = 0; i < l->n; i++) {
    offset += p / l->unit[i] * l->stride[i];
    p %= l->unit[i];
  }
  return offset;
}

/* The stride of a digit that steps by `unit` positions: that of the largest level not above it. */
static int64_t stride_of(const dim_levels *l, int64_t unit) {
  for (int i = 0; i < l->n; i++)
    if (l->unit[i] <= unit) return unit / l->unit[i] * l->stride[i];
  return 0;
}

/* Digits of one dimension: units of both layouts, largest first, each once. Where they do not
 * divide each other (blocks of 8 against 12), positions go one by one. */
typedef struct digits {
  int n;
  bool singly;
  int64_t unit[10];
} digits;

/* The steps at which either layout changes its block, largest first, or single positions where the
 * one's steps do not divide the other's. */
static digits digits_of(const dim_levels *a, const dim_levels *b) {
  digits out = {0};
  /* Both lists fall to 1: they are merged, and what both have is taken once. */
  for (int i = 0, j = 0; i < a->n || j < b->n;) {
    int64_t u = i < a->n ? a->unit[i] : 0, v = j < b->n ? b->unit[j] : 0, most = NEAP_MAX(u, v);
    i += u == most, j += v == most;
    if (out.n > 0 && out.unit[out.n - 1] % most != 0) return (digits){1, true, {1}};
    out.unit[out.n++] = most;
  }
  return out;
}

/* What the recursion over dimensions has in common. Strides and offsets are in elements until
 * neap_move_run. */
typedef struct walk {
  const neap_shape *shape;
  dim_levels in[NEAP_MAX_DIM], out[NEAP_MAX_DIM];
  digits digits[NEAP_MAX_DIM];
  int64_t from[NEAP_MAX_DIM], to[NEAP_MAX_DIM]; /* the box, in positions */
  /* write zeros: the source is one element, repeated */
  bool zero;
  size_t item_bytes;
  const char *source;
  char *target;
  int n_thread;
} walk;

/* A piece of dimension d from p: `count` steps of the largest digit that fits, whose smaller digits
 * are full. Returns its positions. */
static int64_t piece(const walk *w, int d, int64_t p, int *first_digit, int64_t *count) {
  const digits *g = &w->digits[d];
  for (int i = 0; i < g->n; i++) {
    /* A piece ends where the next larger digit would step, since that may lie elsewhere. */
    int64_t unit = g->unit[i], whole = i > 0 ? g->unit[i - 1] : INT64_MAX;
    int64_t end = i > 0 ? NEAP_MIN(w->to[d], p - p % whole + whole) : w->to[d];
    if (p % unit != 0 || end - p < unit) continue;
    *first_digit = i;
    *count = g->singly ? 1 : (end - p) / unit;
    return *count * unit;
  }
  /* Nothing larger fits: a position by itself. */
  *first_digit = g->n - 1;
  *count = 1;
  return 1;
}

/* Dimensions d and on of the box; `move` holds those before, `in` and `out` their offsets. One
 * neap_move_run for each combination of pieces; only there do threads come in. */
static void walk_dim(const walk *w, int d, const neap_move *move, int64_t in, int64_t out) {
  if (d == w->shape->n_dim) {
    int64_t bytes = (int64_t)w->item_bytes;
    neap_move_run(move, w->item_bytes, w->zero ? w->source : w->source + in * bytes,
                  w->target + out * bytes, w->n_thread);
    return;
  }
  for (int64_t p = w->from[d]; p < w->to[d];) {
    /* A dimension of the move for each digit of the piece, as few as there can be. */
    neap_move more = *move;
    int first;
    int64_t count, n = piece(w, d, p, &first, &count);
    for (int i = first; i < w->digits[d].n; i++) {
      int64_t unit = w->digits[d].unit[i],
              steps = i == first ? count : w->digits[d].unit[i - 1] / unit;
      if (steps > 1)
        neap_move_add(&more, steps, w->zero ? 0 : stride_of(&w->in[d], unit),
                      stride_of(&w->out[d], unit));
    }
    walk_dim(w, d + 1, &more, in + (w->zero ? 0 : offset_of(&w->in[d], p)),
             out + offset_of(&w->out[d], p));
    p += n;
  }
}

/* Zeros in every position that a block of the output adds behind dimension d's end: one box for
 * each dimension, those before it within the value, those after it with their own padding. */
static void zero_padding(walk *w, const neap_shape *shape, int64_t padded[NEAP_MAX_DIM]) {
  static const uint64_t zero = 0;
  neap_move none = {0};
  w->zero = true;
  w->source = (const char *)&zero;
  for (int d = 0; d < shape->n_dim; d++) {
    if (padded[d] == shape->dim[d]) continue;
    for (int e = 0; e < shape->n_dim; e++) {
      /* The boxes do not meet: each element of the padding is in that of the first dimension it
       * leaves. */
      w->from[e] = e == d ? shape->dim[d] : 0;
      w->to[e] = e < d ? shape->dim[e] : padded[e];
      w->digits[e] = digits_of(&w->out[e], &w->out[e]);
    }
    walk_dim(w, 0, &none, 0, 0);
  }
}

/* Another layout of the same elements. Equal layouts are one copy of bytes. */
static void run(const neap_call *call) {
  const neap_operand *in = &call->in[0], *out = &call->out[0];
  const neap_shape *shape = &in->type.shape;
  if (neap_shape_elems(shape) == 0) return;
  if (neap_layout_equal(&in->layout, &out->layout)) {
    if (in->data != out->data)
      memcpy(out->data, in->data, neap_layout_bytes(&in->type, &in->layout));
    return;
  }
  walk w = {.shape = shape,
            .item_bytes = neap_dtype_bytes(in->type.dtype),
            .source = in->data,
            .target = out->data,
            .n_thread = call->n_thread};
  levels_of(shape, &in->layout, w.in);
  levels_of(shape, &out->layout, w.out);
  /* What the output's blocks round up to. */
  int64_t padded[NEAP_MAX_DIM];
  for (int d = 0; d < shape->n_dim; d++) {
    int64_t block = w.out[d].unit[0]; /* the outermost level steps by whole blocks */
    padded[d] = (shape->dim[d] + block - 1) / block * block;
    w.digits[d] = digits_of(&w.in[d], &w.out[d]);
    w.to[d] = shape->dim[d];
  }
  /* The value itself first; what lies behind it in the output's blocks is written by nobody
   * else. */
  neap_move none = {0};
  walk_dim(&w, 0, &none, 0, 0);
  zero_padding(&w, shape, padded);
}

const neap_op neap_op_Reorder = {
  .name = "Reorder",
  .summary = "The same value in another layout.",
  .math = "y = x; padding lanes are zero",
  .internal = true,
  .inputs = {{"x", "plain or blocked", NEAP_ANY}},
  .outputs = {{"y", "plain or blocked", NEAP_ANY}},
  .infer = neap_infer_like,
  .kernels = NEAP_REF(run, NEAP_ANY),
  .cases = "{ {x={2,20,5,7}} }",
};
