/* move.c: one strided copy for all ops that only move elements.
 *
 * The box is first made simple: dimensions of 1 go, the rest are ordered as the target lies in
 * memory, and neighbours that are contiguous in both source and target become one. What is left is
 * one of four: runs (the last dimension is dense in both: memcpy), a transpose (the last is dense
 * in the target, another one in the source: square tiles, so that each cache line is used whole), a
 * fill (the last repeats one element), or plain strided rows.
 */
#include "math/move.h"

#include "math/vec.h"

#include <stdlib.h>
#include <string.h>

/* ---- a simple box ---------------------------------------------------------------------------- */

static void swap_dims(neap_move *m, int a, int b) {
  const int64_t dim = m->dim[a], in_stride = m->in_stride[a], out_stride = m->out_stride[a];
  m->dim[a] = m->dim[b], m->in_stride[a] = m->in_stride[b], m->out_stride[a] = m->out_stride[b];
  m->dim[b] = dim, m->in_stride[b] = in_stride, m->out_stride[b] = out_stride;
}

/* Larger target strides first; among equals (never, for boxes that keep the invariant) the order
 * stays. */
static void sort_by_target(neap_move *m) {
  for (int i = 1; i < m->n_dim; i++)
    for (int j = i; j > 0; j--) {
      /* Equal strides stop the walk too, so that the sort is stable; the sign does not matter for
       * locality. */
      if (llabs(m->out_stride[j - 1]) >= llabs(m->out_stride[j])) break;
      swap_dims(m, j - 1, j);
    }
}

/* The same box in its simplest form, dimensions from the largest target stride to the smallest.
 * Elements go where they went: neighbours are joined only where one step of the outer is `dim`
 * steps of the inner on both sides. At least one dimension is left. O(D^2) for D dimensions, once a
 * copy. */
static neap_move simplify(const neap_move *move) {
  neap_move kept = {0}, out = {0};
  /* A dimension of one element has no steps. */
  for (int i = 0; i < move->n_dim; i++)
    if (move->dim[i] != 1)
      neap_move_add(&kept, move->dim[i], move->in_stride[i], move->out_stride[i]);
  sort_by_target(&kept);

  /* From the outermost inward: a dimension goes on where the one before it ends, or begins a new
   * one. */
  for (int i = 0; i < kept.n_dim; i++) {
    int last = out.n_dim - 1;
    if (last >= 0 && out.in_stride[last] == kept.in_stride[i] * kept.dim[i] &&
        out.out_stride[last] == kept.out_stride[i] * kept.dim[i]) {
      out.dim[last] *= kept.dim[i];
      out.in_stride[last] = kept.in_stride[i];
      out.out_stride[last] = kept.out_stride[i];
    } else {
      neap_move_add(&out, kept.dim[i], kept.in_stride[i], kept.out_stride[i]);
    }
  }
  /* A single element, or what a box without dimensions stands for. */
  if (out.n_dim == 0) neap_move_add(&out, 1, 1, 1);
  return out;
}

/* Elements that go in twos, fours or eights become one of that width: the pairs of a layout of
 * bf16, for instance. Returns the bytes of an element then. */
static size_t widen_items(neap_move *m, size_t item_bytes) {
  int last = m->n_dim - 1;
  int64_t n = m->dim[last];
  bool is_dense = m->in_stride[last] == 1 && m->out_stride[last] == 1;
  if (last == 0 || !is_dense || (n != 2 && n != 4 && n != 8)) return item_bytes;
  if ((size_t)n * item_bytes > sizeof(uint64_t)) return item_bytes;
  /* All else must step by whole ones. */
  for (int d = 0; d < last; d++)
    if (m->in_stride[d] % n != 0 || m->out_stride[d] % n != 0) return item_bytes;

  /* The last dimension goes, and the strides of the others are counted in the wider elements. */
  m->n_dim--;
  for (int d = 0; d < last; d++) m->in_stride[d] /= n, m->out_stride[d] /= n;
  return (size_t)n * item_bytes;
}

/* ---- the innermost loops, by element size ---------------------------------------------------- */

/* Rows: n_row of n elements each. A tile: out[i * out_stride + j] = in[j * in_stride + i] for i <
 * rows, j < columns. */
typedef struct inner {
  int64_t n, in_stride, out_stride; /* of the last dimension */
  int64_t n_row, in_step, out_step; /* of the one before it, where the last one is short */
  int64_t rows, row_out_stride;     /* of the one that is dense in the source */
} inner;

/* By width, not by dtype: a copy does not interpret its elements. */
#define NEAP_BODY "math/move_body.h"
#include "math/each_width.h"

/* Four elements of 4 bytes: one SSE register. */
typedef uint32_t quad __attribute__((vector_size(16)));

/* 4x4 elements in registers: eight shuffles instead of sixteen scattered stores. */
static void transpose_quad(const uint32_t *in, int64_t in_stride, uint32_t *out,
                           int64_t out_stride) {
  quad a, b, c, d;
  memcpy(&a, in, sizeof a);
  memcpy(&b, in + in_stride, sizeof b);
  memcpy(&c, in + 2 * in_stride, sizeof c);
  memcpy(&d, in + 3 * in_stride, sizeof d);
  /* Interleaves pairs of rows, then pairs of pairs; memcpy, since neither side needs to be
   * aligned. */
  quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5),
       ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5),
       cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  quad r0 = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
       r1 = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  quad r2 = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
       r3 = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
  memcpy(out, &r0, sizeof r0);
  memcpy(out + out_stride, &r1, sizeof r1);
  memcpy(out + 2 * out_stride, &r2, sizeof r2);
  memcpy(out + 3 * out_stride, &r3, sizeof r3);
}

/* A tile of 4-byte elements: the part in whole quads by registers, then the rows below it over all
 * columns, then the columns beside it. */
static void tile_4(const uint32_t *in, int64_t in_stride, uint32_t *out, int64_t out_stride,
                   int64_t rows, int64_t columns) {
  int64_t whole_rows = rows & ~(int64_t)3, whole_columns = columns & ~(int64_t)3;
  for (int64_t i = 0; i < whole_rows; i += 4)
    for (int64_t j = 0; j < whole_columns; j += 4)
      transpose_quad(in + j * in_stride + i, in_stride, out + i * out_stride + j, out_stride);
  corner_4(in + whole_rows, in_stride, out + whole_rows * out_stride, out_stride, rows - whole_rows,
           columns);
  corner_4(in + whole_columns * in_stride, in_stride, out + whole_columns, out_stride, whole_rows,
           columns - whole_columns);
}

/* A tile of elements of item_bytes (1, 2, 4, 8); strides in elements. */
static void tile(size_t item_bytes, const void *in, int64_t in_stride, void *out,
                 int64_t out_stride, int64_t rows, int64_t columns) {
  switch (item_bytes) {
    case 1: corner_1(in, in_stride, out, out_stride, rows, columns); break;
    case 2: corner_2(in, in_stride, out, out_stride, rows, columns); break;
    case 4: tile_4(in, in_stride, out, out_stride, rows, columns); break;
    default: corner_8(in, in_stride, out, out_stride, rows, columns); break;
  }
}

/* ---- walking the box ------------------------------------------------------------------------- */

/* edge of a transposed tile in elements: two tiles of 8-byte elements fit the first-level cache */
enum { TILE = 32 };

/* A copy under way: strides in elements, as in neap_move. */
typedef struct walk {
  neap_move outer; /* dimensions left to loop over */
  inner inner;
  bool transpose;
  int64_t n_strip; /* transpose: strips of TILE rows; else 1 */
  size_t item_bytes;
  const char *in;
  char *out;
} walk;

/* Rows by the width of their elements. */
static void run_rows(const walk *w, const char *in, char *out) {
  switch (w->item_bytes) {
    case 1: rows_1(&w->inner, in, out); break;
    case 2: rows_2(&w->inner, in, out); break;
    case 4: rows_4(&w->inner, in, out); break;
    default: rows_8(&w->inner, in, out); break;
  }
}

/* Rows [strip * TILE, ...) of a transpose. */
static void run_strip(const walk *w, int64_t strip, const char *in, char *out) {
  const inner *k = &w->inner;
  int64_t bytes = (int64_t)w->item_bytes, first = strip * TILE,
          rows = NEAP_MIN(k->rows - first, TILE);
  in += first * bytes;
  out += first * k->row_out_stride * bytes;
  for (int64_t j = 0; j < k->n; j += TILE)
    tile(w->item_bytes, in + j * k->in_stride * bytes, k->in_stride, out + j * bytes,
         k->row_out_stride, rows, NEAP_MIN(k->n - j, TILE));
}

/* Items [begin, end): an item is one position of the outer dimensions and one strip, strips running
 * fastest. The position of `begin` is found by division; from there on it is counted up like an
 * odometer, without any. */
static void walk_items(void *context, int64_t begin, int64_t end) {
  const walk *w = context;
  const neap_move *m = &w->outer;
  int64_t index[NEAP_MOVE_MAX_DIM], rest = begin / w->n_strip, strip = begin % w->n_strip, from = 0,
                                    to = 0;

  for (int d = m->n_dim - 1; d >= 0; d--) {
    index[d] = rest % m->dim[d];
    rest /= m->dim[d];
    from += index[d] * m->in_stride[d];
    to += index[d] * m->out_stride[d];
  }

  for (int64_t i = begin; i < end; i++) {
    const char *in = w->in + from * (int64_t)w->item_bytes;
    char *out = w->out + to * (int64_t)w->item_bytes;
    if (w->transpose)
      run_strip(w, strip, in, out);
    else
      run_rows(w, in, out);
    /* The next strip; after the last one the odometer: a dimension that is through goes back to its
     * begin, and the one before it one on. */
    if (++strip < w->n_strip) continue;
    strip = 0;
    for (int d = m->n_dim - 1; d >= 0; d--) {
      from += m->in_stride[d];
      to += m->out_stride[d];
      if (++index[d] < m->dim[d]) break;
      from -= m->dim[d] * m->in_stride[d];
      to -= m->dim[d] * m->out_stride[d];
      index[d] = 0;
    }
  }
}

/* Takes dimension d out; those behind it move up. */
static void remove_dim(neap_move *m, int d) {
  for (m->n_dim--; d < m->n_dim; d++)
    m->dim[d] = m->dim[d + 1], m->in_stride[d] = m->in_stride[d + 1],
    m->out_stride[d] = m->out_stride[d + 1];
}

/* Elements [begin, end) of a box that is one dense run. */
static void copy_range(void *context, int64_t begin, int64_t end) {
  const walk *w = context;
  size_t at = (size_t)begin * w->item_bytes;
  memcpy(w->out + at, w->in + at, (size_t)(end - begin) * w->item_bytes);
}

/* From the first to the last element that a box touches, in elements from its origin. */
static void reach(const neap_move *m, const int64_t *stride, int64_t *low, int64_t *high) {
  *low = *high = 0;
  for (int d = 0; d < m->n_dim; d++) *(stride[d] < 0 ? low : high) += (m->dim[d] - 1) * stride[d];
}

/* No two positions have one target: from the innermost dimension outward, a step of each goes
 * beyond all that those inside it reach. Source and target lie apart. `m` is in simple form. */
static void check_box(const neap_move *m, size_t item_bytes, const void *in, const void *out) {
  int64_t inside = 0, low_in, high_in, low_out, high_out;
  for (int d = m->n_dim - 1; d >= 0; d--) {
    int64_t step = m->out_stride[d] < 0 ? -m->out_stride[d] : m->out_stride[d];
    NEAP_ASSERT(m->dim[d] == 1 || step > inside,
                "a step of dimension %d of a box goes beyond what is inside it: %lld of %lld", d,
                (long long)step, (long long)inside);
    inside += (m->dim[d] - 1) * step;
  }
  reach(m, m->in_stride, &low_in, &high_in);
  reach(m, m->out_stride, &low_out, &high_out);
  const int64_t bytes = (int64_t)item_bytes;
  const char *from = in, *to = out;
  NEAP_ASSERT(from + (high_in + 1) * bytes <= to + low_out * bytes ||
                to + (high_out + 1) * bytes <= from + low_in * bytes,
              "source and target lie apart, from %p and %p on", in, out);
}

/* The dimension, not the last, that is dense in the source while the last is dense in the target
 * alone: with it the last one is transposed. -1: there is none, or rows too short for tiles. */
static int dense_in_source(const neap_move *m) {
  enum { SHORT = 4 };
  int last = m->n_dim - 1, found = -1;
  if (m->out_stride[last] != 1 || m->in_stride[last] == 1 || m->in_stride[last] == 0) return -1;
  if (m->dim[last] < SHORT && last > 1) return -1;
  for (int d = 0; d < last; d++)
    if (m->in_stride[d] == 1) found = d;
  return found;
}

/* Takes from the box what the innermost loops do: a transpose where that is worth it, else rows;
 * short ones, for which the walk's steps would cost more than the copy, several at once. */
static void take_inner(walk *w) {
  enum { SHORT = 16 };
  neap_move *m = &w->outer;
  int last = m->n_dim - 1, dense = dense_in_source(m);

  /* The last dimension is the innermost loop in any case. */
  w->inner = (inner){.n = m->dim[last],
                     .in_stride = m->in_stride[last],
                     .out_stride = m->out_stride[last],
                     .n_row = 1};
  /* Transposed: the dimension that is dense in the source is the other side of the tiles, and is
   * walked in strips. */
  if (dense >= 0) {
    w->transpose = true;
    w->inner.rows = m->dim[dense];
    w->inner.row_out_stride = m->out_stride[dense];
    w->n_strip = (m->dim[dense] + TILE - 1) / TILE;
  }

  /* What the innermost loops do is no longer walked. `dense` lies before `last`, so its number
   * stays. */
  remove_dim(m, last);
  if (dense >= 0) {
    remove_dim(m, dense);
  } else if (last > 0 && w->inner.n < SHORT) {
    w->inner.n_row = m->dim[last - 1];
    w->inner.in_step = m->in_stride[last - 1];
    w->inner.out_step = m->out_stride[last - 1];
    remove_dim(m, last - 1);
  }
}

void neap_move_run(const neap_move *move, size_t item_bytes, const void *in, void *out,
                   int n_thread) {
  /* An empty box: nothing to do, and the steps below divide by its dimensions. */
  for (int i = 0; i < move->n_dim; i++)
    if (move->dim[i] == 0) return;
  walk w = {.outer = simplify(move), .n_strip = 1, .in = in, .out = out};
  if (NEAP_DEBUG) check_box(&w.outer, item_bytes, in, out);

  /* Wider elements first, since that may leave one dense run. It is shared in even ranges, as the
   * kernels around share what they write: most of a range is in its own thread's cache. */
  w.item_bytes = widen_items(&w.outer, item_bytes);
  if (w.outer.n_dim == 1 && w.outer.in_stride[0] == 1 && w.outer.out_stride[0] == 1) {
    neap_parallel_for(w.outer.dim[0], NEAP_GRAIN, n_thread, copy_range, &w);
    return;
  }
  take_inner(&w);

  /* The grain in items. Larger than for what computes: a small box lies in the cache of whoever
   * wrote it, and to fetch half of it from there costs another thread more than to move it all does
   * this one (27 us against 7 for 50,000 elements). */
  enum { MOVE_GRAIN = 4 * NEAP_GRAIN };
  int64_t n = w.n_strip, item_elems = w.inner.n * w.inner.n_row;
  if (w.transpose) item_elems *= NEAP_MIN(w.inner.rows, TILE);
  for (int d = 0; d < w.outer.n_dim; d++) n *= w.outer.dim[d];
  neap_parallel_for(n, NEAP_MAX(MOVE_GRAIN / item_elems, 1), n_thread, walk_items, &w);
}
