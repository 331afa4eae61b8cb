/* view.c: other looks at the same bytes. Nothing is copied; each view holds a reference of its own.
 *
 * INVARIANT: element (i0,i1,..) of a view lies at offset_bytes + sum of i_d stride_d, in elements
 * of the dtype, inside the storage. An empty view may point anywhere, since nothing is read through
 * it; its offset is kept within bounds.
 */
#include "tensor/tensor.h"

#include <string.h>

/* What the head of the file claims, for a view that is about to be given out. */
static void check_inside(const neap_tensor *view) {
  if (view->storage == NULL || neap_tensor_elems(view) == 0) return;
  int64_t low = view->offset_bytes, width = (int64_t)neap_dtype_bytes(view->dtype), high = low;
  for (int d = 0; d < view->shape.n_dim; d++) {
    int64_t reach = (view->shape.dim[d] - 1) * view->stride[d] * width;
    if (reach < 0)
      low += reach;
    else
      high += reach;
  }
  NEAP_ASSERT(low >= 0 && (size_t)(high + width) <= neap_storage_bytes(view->storage),
              "elements inside the storage of %zu bytes, got %lld to %lld",
              neap_storage_bytes(view->storage), (long long)low, (long long)(high + width));
}

/* `what` names the operation in the message. */
static neap_status check_dim(const neap_tensor *t, int dim, const char *what, neap_error *error) {
  if (dim >= 0 && dim < t->shape.n_dim) return NEAP_OK;
  char text[NEAP_SHAPE_TEXT];
  return neap_fail(error, NEAP_SHAPE, "%s: dimension %d (from 0) is not one of shape %s", what, dim,
                   neap_shape_text(&t->shape, text));
}

/* Strides count elements, offsets bytes. */
static int64_t stride_bytes(const neap_tensor *t, int dim) {
  return t->stride[dim] * (int64_t)neap_dtype_bytes(t->dtype);
}

/* Elements from, from + step, .. (n of them) of dimension dim. `step` may be negative, not 0. */
neap_status neap_tensor_narrow(const neap_tensor *t, int dim, int64_t from, int64_t n, int64_t step,
                               neap_tensor *out, neap_error *error) {
  NEAP_TRY(check_dim(t, dim, "narrow", error));
  int64_t size = t->shape.dim[dim], last;
  if (step == 0) return neap_fail(error, NEAP_SHAPE, "narrow: the step of dimension %d is 0", dim);
  /* n - 1 steps may leave int64; the check has to notice, not to wrap back inside. An empty range
   * may begin at the very end. */
  bool wraps =
    __builtin_mul_overflow(n - 1, step, &last) || __builtin_add_overflow(last, from, &last);
  bool inside = false;
  if (n == 0)
    inside = from >= 0 && from <= size;
  else if (n > 0 && !wraps)
    inside = from >= 0 && from < size && last >= 0 && last < size;
  if (!inside)
    return neap_fail(error, NEAP_SHAPE,
                     "narrow: %lld elements from %lld (from 0) in steps of %lld leave dimension "
                     "%d, which has %lld",
                     (long long)n, (long long)from, (long long)step, dim, (long long)size);
  neap_tensor view = neap_tensor_retain(t);
  view.shape.dim[dim] = n;
  if (neap_tensor_elems(&view) > 0) view.offset_bytes += from * stride_bytes(t, dim);
  /* One element is never stepped over: it keeps its stride, so that dense stays dense. */
  view.stride[dim] = n > 1 ? t->stride[dim] * step : t->stride[dim];
  if (NEAP_DEBUG) check_inside(&view);
  *out = view;
  return NEAP_OK;
}

/* Dimension dim at `index`; the view has one dimension less. */
neap_status neap_tensor_select(const neap_tensor *t, int dim, int64_t index, neap_tensor *out,
                               neap_error *error) {
  NEAP_TRY(check_dim(t, dim, "select", error));
  if (index < 0 || index >= t->shape.dim[dim])
    return neap_fail(error, NEAP_SHAPE,
                     "select: index %lld (from 0) is out of dimension %d, which has %lld",
                     (long long)index, dim, (long long)t->shape.dim[dim]);
  neap_tensor view = neap_tensor_retain(t);
  if (neap_tensor_elems(t) > 0) view.offset_bytes += index * stride_bytes(t, dim);
  /* Entries past the view's dimensions become 0, as shapes that are compared need them. */
  for (int i = dim; i < NEAP_MAX_DIM; i++) {
    view.shape.dim[i] = i + 1 < NEAP_MAX_DIM ? t->shape.dim[i + 1] : 0;
    view.stride[i] = i + 1 < NEAP_MAX_DIM ? t->stride[i + 1] : 0;
  }
  view.shape.n_dim--;
  if (NEAP_DEBUG) check_inside(&view);
  *out = view;
  return NEAP_OK;
}

/* Dimension i of the view is dimension order[i] of t. `order` has n_dim entries. */
neap_status neap_tensor_permute(const neap_tensor *t, const int *order, neap_tensor *out,
                                neap_error *error) {
  neap_tensor view = *t;
  unsigned seen = 0;
  /* A bit for each dimension that was named: n of them, none twice, are all. */
  for (int i = 0; i < t->shape.n_dim; i++) {
    NEAP_TRY(check_dim(t, order[i], "permute", error));
    if (seen >> order[i] & 1u)
      return neap_fail(error, NEAP_SHAPE, "permute: dimension %d (from 0) is named twice",
                       order[i]);
    seen |= 1u << order[i];
    view.shape.dim[i] = t->shape.dim[order[i]];
    view.stride[i] = t->stride[order[i]];
  }
  neap_storage_retain(view.storage);
  *out = view;
  return NEAP_OK;
}

/* As NumPy's broadcast_to: dimensions of 1 repeat (stride 0), missing leading ones are added. */
neap_status neap_tensor_expand(const neap_tensor *t, const neap_shape *shape, neap_tensor *out,
                               neap_error *error) {
  /* Broadcasting must give the shape itself: t's dimensions may grow, not those asked for. */
  neap_shape wide;
  char from[NEAP_SHAPE_TEXT], to[NEAP_SHAPE_TEXT];
  if (shape->n_dim > NEAP_MAX_DIM || !neap_shape_broadcast(&t->shape, shape, &wide) ||
      !neap_shape_equal(&wide, shape))
    return neap_fail(error, NEAP_SHAPE, "shape %s does not broadcast to %s",
                     neap_shape_text(&t->shape, from), neap_shape_text(shape, to));
  NEAP_TRY(neap_type_check(&(neap_type){t->dtype, wide}, "the expanded tensor", error));
  neap_tensor view = *t;
  view.shape = wide;
  memset(view.stride, 0, sizeof view.stride);
  /* A dimension that repeats, and one that was missing, has stride 0. */
  int added = wide.n_dim - t->shape.n_dim;
  for (int i = 0; i < t->shape.n_dim; i++)
    view.stride[added + i] = t->shape.dim[i] == wide.dim[added + i] ? t->stride[i] : 0;
  neap_storage_retain(view.storage);
  if (NEAP_DEBUG) check_inside(&view);
  *out = view;
  return NEAP_OK;
}

/* The shape that `dim` asks for, with its -1 replaced. */
static neap_status resolve_shape(const neap_tensor *t, int n_dim, const int64_t *dim,
                                 neap_shape *out, neap_error *error) {
  char from[NEAP_SHAPE_TEXT], to[NEAP_SHAPE_TEXT];
  if (n_dim < 0 || n_dim > NEAP_MAX_DIM)
    return neap_fail(error, NEAP_SHAPE, "a tensor has 0 to %d dimensions, got %d", NEAP_MAX_DIM,
                     n_dim);
  neap_shape shape = neap_shape_of(n_dim, dim);
  int64_t elems = neap_tensor_elems(t);
  /* At most one is left open. */
  int open = -1;
  for (int i = 0; i < n_dim; i++) {
    if (dim[i] < -1 || (dim[i] == -1 && open >= 0))
      return neap_fail(error, NEAP_SHAPE,
                       "%s is no shape: one dimension may be -1, the others are 0 or more",
                       neap_shape_text(&shape, to));
    if (dim[i] == -1) open = i;
  }
  /* Elements over the product of the others; left at -1, and refused below, where that does not
   * come out even. */
  if (open >= 0) {
    shape.dim[open] = 1;
    int64_t rest = neap_shape_elems(&shape);
    shape.dim[open] = rest > 0 && elems % rest == 0 ? elems / rest : -1;
  }
  if ((open >= 0 && shape.dim[open] < 0) || neap_shape_elems(&shape) != elems) {
    neap_shape asked = neap_shape_of(n_dim, dim);
    return neap_fail(error, NEAP_SHAPE, "%s, of %lld elements, cannot be seen as %s",
                     neap_shape_text(&t->shape, from), (long long)elems,
                     neap_shape_text(&asked, to));
  }
  /* An empty tensor can be seen as any other: as one that is none, too. */
  NEAP_TRY(neap_type_check(&(neap_type){t->dtype, shape}, "the view", error));
  *out = shape;
  return NEAP_OK;
}

/* Strides of `shape` over t's elements in t's order; false when there are none. Works from the last
 * dimension on: a run is a group of old dimensions that lie back to back in memory, and new
 * dimensions must fill whole runs. */
static bool view_strides(const neap_tensor *t, const neap_shape *shape,
                         int64_t stride[NEAP_MAX_DIM]) {
  neap_shape_strides(shape, stride);
  if (neap_tensor_elems(t) == 0) return true;
  int next = shape->n_dim - 1; /* the new dimension to place next */
  for (int old = t->shape.n_dim - 1; old >= 0;) {
    int64_t step = t->stride[old], run = t->shape.dim[old--];
    /* The run: on as long as the next old dimension steps exactly over what has been gathered. */
    if (run == 1) continue;
    for (; old >= 0 && (t->shape.dim[old] == 1 || t->stride[old] == step * run); old--)
      run *= t->shape.dim[old];
    /* New dimensions from the last on, until they have filled the run; one that reaches beyond it
     * has no stride. */
    for (int64_t filled = 1; filled < run; next--) {
      if (next < 0) return false;
      stride[next] = step * filled;
      filled *= shape->dim[next];
      if (run % filled != 0) return false;
    }
  }
  return true; /* what is left are dimensions of 1 */
}

/* SHAPE error when the counts differ, and another, with a hint, when the strides do not allow
 * it. */
neap_status neap_tensor_reshape_view(const neap_tensor *t, int n_dim, const int64_t *dim,
                                     neap_tensor *out, neap_error *error) {
  neap_tensor view = *t;
  NEAP_TRY(resolve_shape(t, n_dim, dim, &view.shape, error));
  if (!view_strides(t, &view.shape, view.stride)) {
    char from[NEAP_SHAPE_TEXT], to[NEAP_SHAPE_TEXT];
    neap_fail(error, NEAP_SHAPE, "the strides of this %s tensor do not allow a view as %s",
              neap_shape_text(&t->shape, from), neap_shape_text(&view.shape, to));
    neap_hint(error, "copy it first: a dense tensor can be seen in any shape");
    return NEAP_SHAPE;
  }
  neap_storage_retain(view.storage);
  if (NEAP_DEBUG) check_inside(&view);
  *out = view;
  return NEAP_OK;
}
