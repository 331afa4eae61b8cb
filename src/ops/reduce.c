/* reduce.c: the walk of reductions. See reduce.h.
 *
 * Outputs are divided among threads, never one output among several: so the bits of a reduction do
 * not depend on the number of threads. Where the innermost dimension is kept, a block of columns is
 * accumulated at once, so that memory is read in order and the accumulators stay in the first-level
 * cache.
 */
#include "ops/reduce.h"

#include "ops/tile.h"

enum { COLUMNS = 256 }; /* accumulators at once: 2 KiB */

/* Errors count dimensions from 1, as scripts do. */
neap_status neap_reduce_axes(const neap_infer *infer, int n_dim, unsigned *axes,
                             neap_error *error) {
  const neap_attr_value *given = &infer->attrs[NEAP_REDUCE_AXES];
  for (int i = 0; i < given->n; i++) {
    int axis = neap_axis(given->ints[i], n_dim);
    if (axis < 0 || axis >= n_dim)
      return neap_infer_fail(infer, NEAP_ATTRIBUTE, 0, error,
                             "axes has %lld, out of range for %d dimensions",
                             (long long)neap_axis_said(given->ints[i]), n_dim);
    /* named twice: 2 and -1 may be the same dimension */
    for (int j = 0; j < i; j++)
      if (neap_axis(given->ints[j], n_dim) == axis)
        return neap_infer_fail(infer, NEAP_ATTRIBUTE, 0, error, "axes names dimension %d twice",
                               (int)neap_axis_said(axis));
  }
  *axes = neap_reduce_axes_checked(given, n_dim);
  return NEAP_OK;
}

unsigned neap_reduce_axes_checked(const neap_attr_value *given, int n_dim) {
  if (given->n == 0) return (1u << n_dim) - 1; /* none named: over all */
  unsigned axes = 0;
  for (int i = 0; i < given->n; i++) axes |= 1u << neap_axis(given->ints[i], n_dim);
  return axes;
}

neap_shape neap_reduce_shape(const neap_shape *shape, unsigned axes, bool keepdim) {
  neap_shape out = {0};
  for (int d = 0; d < shape->n_dim; d++) {
    bool reduced = (axes >> d & 1) != 0;
    if (!reduced)
      out.dim[out.n_dim++] = shape->dim[d];
    else if (keepdim)
      out.dim[out.n_dim++] = 1;
  }
  return out;
}

int64_t neap_reduce_count(const neap_shape *shape, unsigned axes) {
  int64_t count = 1;
  for (int d = 0; d < shape->n_dim; d++)
    if ((axes >> d & 1) != 0) count *= shape->dim[d];
  return count;
}

neap_status neap_reduce_infer(neap_infer *infer, neap_error *error) {
  unsigned axes;
  NEAP_TRY(neap_reduce_axes(infer, infer->in[0].shape.n_dim, &axes, error));
  infer->out[0].dtype = infer->in[0].dtype;
  infer->out[0].shape =
    neap_reduce_shape(&infer->in[0].shape, axes, infer->attrs[NEAP_REDUCE_KEEPDIM].i != 0);
  return NEAP_OK;
}

neap_status neap_reduce_infer_grad(neap_infer *infer, neap_error *error) {
  NEAP_TRY(neap_infer_same_dtype(infer, 0, error));

  /* Input 0 is x; the others (y, dy) have the shape that the forward gives, and dx that of x. */
  NEAP_TRY(neap_reduce_infer(infer, error));
  for (int i = 1; i < infer->n_in; i++)
    NEAP_TRY(neap_infer_expect(infer, i, &infer->out[0], error));
  infer->out[0] = infer->in[0];
  return NEAP_OK;
}

/* Appends a dimension, merging it with the one before where the two are contiguous. */
static void add_dim(int *n_dim, int64_t *dim, int64_t *stride, int64_t n, int64_t step) {
  if (*n_dim > 0 && stride[*n_dim - 1] == n * step) {
    dim[*n_dim - 1] *= n;
    stride[*n_dim - 1] = step;
    return;
  }
  dim[*n_dim] = n;
  stride[(*n_dim)++] = step;
}

neap_reduce_walk neap_reduce_walk_of(const neap_shape *shape, unsigned axes) {
  neap_reduce_walk w = {.n_out = 1, .count = 1, .rows = true};
  int64_t stride[NEAP_MAX_DIM];
  neap_shape_strides(shape, stride);

  /* Dimensions of x from the outermost to the innermost; of size 1 they need no loop. `rows` is
   * what the last one says: whether the innermost dimension is reduced. */
  for (int d = 0; d < shape->n_dim; d++) {
    if (shape->dim[d] == 1) continue;
    w.rows = (axes >> d & 1) != 0;
    if (w.rows) {
      add_dim(&w.n_reduced, w.reduced, w.reduced_stride, shape->dim[d], stride[d]);
      w.count *= shape->dim[d];
    } else {
      add_dim(&w.n_kept, w.kept, w.kept_stride, shape->dim[d], stride[d]);
      w.n_out *= shape->dim[d];
    }
  }

  /* Each kind has an innermost dimension, so that the loops need no special case. */
  if (w.n_reduced == 0) add_dim(&w.n_reduced, w.reduced, w.reduced_stride, 1, 1);
  if (w.n_kept == 0) add_dim(&w.n_kept, w.kept, w.kept_stride, 1, 1);
  return w;
}

int64_t neap_reduce_offset(int n_dim, const int64_t *dim, const int64_t *stride, int64_t k) {
  int64_t offset = 0;
  /* k counts the positions with the last dimension fastest. */
  for (int d = n_dim - 1; d >= 0; d--) {
    offset += k % dim[d] * stride[d];
    k /= dim[d];
  }
  return offset;
}

typedef struct job {
  const neap_call *call;
  const neap_reduction *reduction;
  double divisor;
  neap_reduce_walk walk;
} job;

/* `acc` takes in the n elements of x from `offset` on: one accumulator for all, or one each. */
static void take(const job *j, int64_t offset, int64_t n, neap_accumulator *acc, bool each) {
  const neap_operand *x = &j->call->in[0];
  float tile[NEAP_TILE];
  int64_t step = neap_tile_elems(x, n);

  /* A tile of bf16 or f16 becomes f32 first; f32 and f64 are read where they are, all n at once. */
  for (int64_t at = 0; at < n; at += step) {
    int64_t part = NEAP_MIN(step, n - at);
    const void *from = neap_tile_load(x, offset + at, part, tile);
    if (each)
      j->reduction->columns(from, part, acc + at);
    else
      j->reduction->row(from, part, acc);
  }
}

/* Outputs [begin, begin + n) from their accumulators. */
static void store(const job *j, int64_t begin, int64_t n, const neap_accumulator *acc) {
  const neap_operand *out = &j->call->out[0];
  float *f32 = (float *)out->data + begin;
  double *f64 = (double *)out->data + begin;
  for (int64_t k = 0; k < n; k++) {
    /* Floats of all widths are accumulated in f, integers and bool in i. A mean is divided here, in
     * double, so that it is rounded once. */
    switch (out->type.dtype) {
      case NEAP_DTYPE_F32: f32[k] = (float)(acc[k].f / j->divisor); break;
      case NEAP_DTYPE_F64: f64[k] = acc[k].f / j->divisor; break;
      case NEAP_DTYPE_BF16:
      case NEAP_DTYPE_F16:
        neap_element_set(out->type.dtype, out->data, begin + k, acc[k].f / j->divisor);
        break;
      default: neap_element_set_i64(out->type.dtype, out->data, begin + k, acc[k].i);
    }
  }
}

/* The innermost reduced dimension is contiguous: one output at a time, row by row. */
static void reduce_rows(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  const neap_reduce_walk *w = &j->walk;
  int64_t n = w->reduced[w->n_reduced - 1], n_row = n == 0 ? 0 : w->count / n;
  for (int64_t o = begin; o < end; o++) {
    /* its first element in x, then all rows of it, in the order of memory */
    /* A row is what lies side by side: the reduction's inner loop runs over it alone. */
    int64_t base = neap_reduce_offset(w->n_kept, w->kept, w->kept_stride, o);
    neap_accumulator acc = j->reduction->start;
    for (int64_t r = 0; r < n_row; r++)
      take(j, base + neap_reduce_offset(w->n_reduced - 1, w->reduced, w->reduced_stride, r), n,
           &acc, false);
    store(j, o, 1, &acc);
  }
}

/* The innermost kept dimension is contiguous: blocks of outputs along it. */
static void reduce_columns(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  const neap_reduce_walk *w = &j->walk;
  int64_t width = w->kept[w->n_kept - 1], n;
  neap_accumulator acc[COLUMNS];
  for (int64_t o = begin; o < end; o += n) {
    /* as many as lie side by side, are ours, and have an accumulator */
    n = NEAP_MIN(NEAP_MIN(width - o % width, end - o), COLUMNS);
    int64_t base = neap_reduce_offset(w->n_kept, w->kept, w->kept_stride, o);
    for (int64_t k = 0; k < n; k++) acc[k] = j->reduction->start;
    for (int64_t r = 0; r < w->count; r++)
      take(j, base + neap_reduce_offset(w->n_reduced, w->reduced, w->reduced_stride, r), n, acc,
           true);
    store(j, o, n, acc);
  }
}

/* Outputs to threads, so many at a time that they have about NEAP_GRAIN elements of x. */
void neap_reduce_run(const neap_call *call, const neap_reduction reductions[NEAP_N_DTYPE],
                     double divisor) {
  const neap_shape *shape = &call->in[0].type.shape;
  job j = {call, &reductions[neap_compute_dtype(call->in[0].type.dtype)], divisor,
           neap_reduce_walk_of(
             shape, neap_reduce_axes_checked(&call->attrs[NEAP_REDUCE_AXES], shape->n_dim))};
  int64_t grain = NEAP_MAX(NEAP_GRAIN / NEAP_MAX(j.walk.count, 1), 1);
  neap_parallel_for(j.walk.n_out, grain, call->n_thread, j.walk.rows ? reduce_rows : reduce_columns,
                    &j);
}
