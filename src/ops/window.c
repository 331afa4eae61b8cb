/* window.c: the geometry of a sliding window: reads the attributes kernel, stride, pad, dilation
 * and checks them.
 *
 * A window has three spatial dimensions, whatever x has: those that x lacks come first and have
 * size 1, so that kernels have one loop nest for one, two and three dimensions.
 */
#include "ops/window.h"

/* Item i of n from a list of none, one for all, or n. */
static int64_t item(const neap_attr_value *list, int i, int64_t missing) {
  if (list->n == 0) return missing;
  return list->n == 1 ? list->ints[0] : list->ints[i];
}

/* x (N,C,...). y NULL: its sizes are not known yet and stay 0. kernel NULL: it is an attribute
 * (pools), else the weight's. The attributes have been checked. */
neap_window neap_window_of(const neap_attr_value *attrs, const neap_shape *x, const neap_shape *y,
                           const int64_t *kernel) {
  const neap_attr_value *pad = &attrs[NEAP_WINDOW_PAD];
  neap_window w = {.n = x->n_dim - 2,
                   .batch = x->dim[0],
                   .channels = x->dim[1],
                   .n_in = 1,
                   .n_out = 1,
                   .n_kernel = 1};
  for (int d = 0; d < 3; d++) {
    int i = d - (3 - w.n); /* its place in the user's lists */
    w.in[d] = 1;
    w.out[d] = 1;
    w.kernel[d] = 1;
    w.stride[d] = 1;
    w.dilation[d] = 1;
    if (i < 0) continue; /* a dimension that x lacks: one element, one step */

    w.in[d] = x->dim[2 + i];
    w.out[d] = y != NULL ? y->dim[2 + i] : 0;
    w.kernel[d] = kernel != NULL ? kernel[i] : item(&attrs[NEAP_WINDOW_KERNEL], i, 1);
    /* Only pools leave `kernel` to the attribute, and theirs is the default stride. */
    w.stride[d] = item(&attrs[NEAP_WINDOW_STRIDE], i, kernel != NULL ? 1 : w.kernel[d]);
    w.dilation[d] = item(&attrs[NEAP_WINDOW_DILATION], i, 1);

    /* Pads are all begins and then all ends, or the same at both sides. */
    w.begin[d] = item(pad, i, 0);
    w.end[d] = pad->n == 2 * w.n ? pad->ints[w.n + i] : w.begin[d];

    NEAP_ASSERT(w.kernel[d] >= (kernel == NULL) && w.stride[d] >= 1 && w.dilation[d] >= 1 &&
                  w.begin[d] >= 0 && w.end[d] >= 0,
                "a window has elements and steps in each dimension; in %d: kernel %lld, stride "
                "%lld, dilation %lld",
                d, (long long)w.kernel[d], (long long)w.stride[d], (long long)w.dilation[d]);
    w.n_in *= w.in[d];
    w.n_out *= w.out[d];
    /* A list's numbers may be anything up to 2^31 - 1 until they are compared with x's. */
    w.n_kernel = neap_count_mul(w.n_kernel, w.kernel[d]);
  }
  return w;
}

/* Lists have one item, one per spatial dimension, or (pads) a begin and an end per dimension. Their
 * numbers are so small that neither a window's reach nor a padded size leaves the integers. */
neap_status neap_window_check_lists(const neap_infer *c, int n, neap_error *error) {
  for (int a = 0; a < NEAP_WINDOW_N_ATTR; a++) {
    int got = c->attrs[a].n;
    if (got <= 1 || got == n || (a == NEAP_WINDOW_PAD && got == 2 * n)) continue;
    return neap_infer_fail(
      c, NEAP_ATTRIBUTE, 0, error, "%s expects 1 or %d values%s for %d spatial dimensions, got %d",
      c->op->attrs[a].name, n, a == NEAP_WINDOW_PAD ? " (or begins and ends)" : "", n, got);
  }
  for (int a = 0; a < NEAP_WINDOW_N_ATTR; a++) {
    /* no padding is fine; a window of no elements or a step of 0 is none */
    int64_t least = a == NEAP_WINDOW_PAD ? 0 : 1;
    for (int i = 0; i < c->attrs[a].n; i++) {
      int64_t x = c->attrs[a].ints[i];
      if (x < least || x > INT32_MAX)
        return neap_infer_fail(
          c, NEAP_ATTRIBUTE, 0, error, "%s expects values from %lld to %lld, got %lld",
          c->op->attrs[a].name, (long long)least, (long long)INT32_MAX, (long long)x);
    }
  }
  return NEAP_OK;
}

/* Sets w->out as well: floor or (with `ceil`) ceiling of room / stride, plus 1. */
neap_status neap_window_infer(const neap_infer *c, const int64_t *kernel, bool ceil, neap_window *w,
                              neap_error *error) {
  const neap_shape *x = &c->in[0].shape;
  char text[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_rank(c, 0, 3, 5, error));
  NEAP_TRY(neap_window_check_lists(c, x->n_dim - 2, error));
  *w = neap_window_of(c->attrs, x, NULL, kernel);
  w->n_out = 1;
  for (int d = 3 - w->n; d < 3; d++) { /* those that x has: the last n of three */
    /* From its first element to its last a window covers `reach` positions of the padded x. */
    int64_t reach = neap_count_add(neap_count_mul(w->kernel[d] - 1, w->dilation[d]), 1),
            padded = w->in[d] + w->begin[d] + w->end[d];
    if (padded < reach || w->in[d] < 1)
      return neap_infer_fail(
        c, NEAP_SHAPE, 0, error,
        "a window of %lld elements needs at least as many, got %lld in x %s with its padding",
        (long long)reach, (long long)padded, neap_shape_text(x, text));
    /* A pool's window must not lie in padding alone; a convolution's may: it sums zeros. */
    if (kernel == NULL && (w->begin[d] >= reach || w->end[d] >= reach))
      return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                             "pad expects less than the window's %lld elements, got %lld",
                             (long long)reach, (long long)NEAP_MAX(w->begin[d], w->end[d]));

    /* The first window begins at 0, the last at `room` or before: one every `stride`. */
    int64_t room = padded - reach;
    w->out[d] = (ceil ? room + w->stride[d] - 1 : room) / w->stride[d] + 1;
    /* Rounded up, the last window may begin in the padding behind x: it is dropped, as in
     * PyTorch. */
    if (ceil && (w->out[d] - 1) * w->stride[d] >= w->in[d] + w->begin[d]) w->out[d]--;
    if (__builtin_mul_overflow(w->n_out, w->out[d], &w->n_out))
      return neap_infer_fail(c, NEAP_SHAPE, 0, error, "x %s has more windows than can be counted",
                             neap_shape_text(x, text));
  }
  return NEAP_OK;
}

/* (N, channels, ...) with as many spatial dimensions as x has. */
neap_shape neap_window_shape(const neap_window *w, int64_t channels) {
  neap_shape shape = {.n_dim = w->n + 2, .dim = {w->batch, channels}};
  for (int i = 0; i < w->n; i++) shape.dim[2 + i] = w->out[3 - w->n + i];
  return shape;
}

/* oneDNN counts the dimensions that there are, from the first. */
void neap_window_to_case(neap_onednn_case *c, const neap_window *w) {
  c->n_space = w->n;
  for (int d = 0; d < w->n; d++) {
    int from = 3 - w->n + d;
    c->kernel[d] = w->kernel[from];
    c->stride[d] = w->stride[from];
    c->dilation[d] = w->dilation[from];
    c->begin[d] = w->begin[from];
    c->end[d] = w->end[from];
  }
}

bool neap_window_is_pointwise(const neap_window *w) {
  for (int d = 0; d < 3; d++)
    if (w->kernel[d] != 1 || w->stride[d] != 1 || w->begin[d] != 0 || w->end[d] != 0) return false;
  return true;
}

int64_t neap_window_side_by_side(const neap_layout *layout, const neap_shape *shape) {
  if (layout->kind == NEAP_LAYOUT_PLAIN) return 1;
  if (layout->kind != NEAP_LAYOUT_BLOCKED || layout->n_inner > 1) return 0;

  /* The order of the dimensions: (N,C,spatial), or (N,spatial,C). */
  bool in_order = true;
  for (int d = 0; d < shape->n_dim; d++) in_order &= layout->order[d] == d;
  bool channels_last = layout->order[0] == 0 && layout->order[shape->n_dim - 1] == 1;
  for (int d = 1; d < shape->n_dim - 1; d++) channels_last &= layout->order[d] == d + 1;

  /* With blocks inside: known where they are of channels, over planes in order. */
  if (layout->n_inner == 1) {
    bool of_channels = in_order && layout->inner_dim[0] == 1;
    return of_channels ? layout->inner_block[0] : 0;
  }
  if (channels_last) return shape->dim[1];
  return in_order ? 1 : 0;
}

bool neap_window_channels_last(const neap_layout *layout, const neap_shape *shape) {
  return layout->kind == NEAP_LAYOUT_BLOCKED && layout->n_inner == 0 &&
         neap_window_side_by_side(layout, shape) == shape->dim[1];
}
