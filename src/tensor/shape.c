/* shape.c: arithmetic on shapes.
 *
 * INVARIANT: counts never wrap. A product beyond int64_t saturates (elements to INT64_MAX, bytes to
 * SIZE_MAX), and the allocator refuses such sizes: so a hostile shape ends in an error, not in a
 * small block.
 */
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

/* Dimensions beyond NEAP_MAX_DIM are counted, so that checks see them, and not stored. */
neap_shape neap_shape_of(int n_dim, const int64_t *dim) {
  neap_shape shape = {.n_dim = n_dim};
  for (int i = 0; i < n_dim && i < NEAP_MAX_DIM; i++) shape.dim[i] = dim[i];
  return shape;
}

/* Elements of the dimensions [from, to): 1 when there are none, 0 as soon as one of them is 0,
 * INT64_MAX when they are too many. */
int64_t neap_shape_span(const neap_shape *shape, int from, int to) {
  /* A dimension of 0 decides, however large the others are. */
  for (int i = from; i < to; i++)
    if (shape->dim[i] == 0) return 0;
  int64_t n = 1;
  for (int i = from; i < to; i++) n = neap_count_mul(n, shape->dim[i]);
  return n;
}

int64_t neap_shape_elems(const neap_shape *shape) {
  return neap_shape_span(shape, 0, shape->n_dim);
}

/* Dimensions past n_dim are not looked at. */
bool neap_shape_equal(const neap_shape *a, const neap_shape *b) {
  return a->n_dim == b->n_dim && memcmp(a->dim, b->dim, (size_t)a->n_dim * sizeof *a->dim) == 0;
}

/* Dimensions that no memory could hold may leave the last ones out. */
const char *neap_shape_text(const neap_shape *shape, char text[NEAP_SHAPE_TEXT]) {
  size_t n = 0;
  text[n++] = '(';
  for (int i = 0; i < shape->n_dim && n < NEAP_SHAPE_TEXT - NEAP_INTEGER_TEXT - 2; i++) {
    if (i > 0) text[n++] = ',';
    n += neap_integer_text(shape->dim[i], text + n);
  }
  text[n++] = ')';
  text[n] = '\0';
  return text;
}

/* Every output dimension is the larger of the two, or 0 where 1 meets 0; so an empty operand gives
 * an empty result. */
bool neap_shape_broadcast(const neap_shape *a, const neap_shape *b, neap_shape *out) {
  neap_shape wide = {.n_dim = NEAP_MAX(a->n_dim, b->n_dim)};
  /* From the last dimension, where both are aligned; one that is missing counts as 1. */
  for (int i = 1; i <= wide.n_dim; i++) {
    int64_t da = i <= a->n_dim ? a->dim[a->n_dim - i] : 1,
            db = i <= b->n_dim ? b->dim[b->n_dim - i] : 1;
    if (da != db && da != 1 && db != 1) return false;
    wide.dim[wide.n_dim - i] = da == 1 ? db : da;
  }
  *out = wide;
  return true;
}

/* A dimension of 0 counts as 1 here, as in NumPy: strides of empty tensors are those of a tensor of
 * one slice. */
void neap_shape_strides(const neap_shape *shape, int64_t stride[NEAP_MAX_DIM]) {
  /* unsigned: in an empty tensor the other dimensions may multiply to anything */
  uint64_t step = 1;
  for (int i = shape->n_dim - 1; i >= 0; i--) {
    stride[i] = (int64_t)step;
    step *= (uint64_t)NEAP_MAX(shape->dim[i], 1);
  }
  for (int i = shape->n_dim; i < NEAP_MAX_DIM; i++) stride[i] = 0;
}

/* SIZE_MAX, which no allocation grants, when the bytes cannot be counted. */
size_t neap_type_bytes(const neap_type *type) {
  return neap_size_of(neap_shape_elems(&type->shape), neap_dtype_bytes(type->dtype));
}

/* Bytes are counted as if no dimension were 0: an empty tensor has strides too, and part of it may
 * be asked for. */
neap_status neap_type_check(const neap_type *type, const char *what, neap_error *error) {
  const neap_shape *shape = &type->shape;
  char text[NEAP_SHAPE_TEXT], most[24];
  if (type->dtype <= NEAP_DTYPE_NONE || type->dtype >= NEAP_N_DTYPE)
    return neap_fail(error, NEAP_DTYPE, "%s expects one of the dtypes from f32 to bool, got %s",
                     what, neap_dtype_name(type->dtype));
  if (shape->n_dim < 0 || shape->n_dim > NEAP_MAX_DIM)
    return neap_fail(error, NEAP_SHAPE, "%s expects 0 to %d dimensions, got %d", what, NEAP_MAX_DIM,
                     shape->n_dim);
  /* Dimensions one by one: the product stays at the most once it is there. */
  size_t bytes = neap_dtype_bytes(type->dtype);
  for (int i = 0; i < shape->n_dim; i++) {
    if (shape->dim[i] < 0)
      return neap_fail(error, NEAP_SHAPE, "%s has a negative dimension: %s", what,
                       neap_shape_text(shape, text));
    bytes = neap_size_mul(bytes, (size_t)NEAP_MAX(shape->dim[i], 1));
  }
  if (bytes <= NEAP_MOST_BYTES) return NEAP_OK;
  return neap_fail(error, NEAP_SHAPE, "%s would be %s %s, more than the %s that a tensor may have",
                   what, neap_dtype_name(type->dtype), neap_shape_text(shape, text),
                   neap_bytes_text((double)NEAP_MOST_BYTES, most));
}

bool neap_type_equal(const neap_type *a, const neap_type *b) {
  return a->dtype == b->dtype && neap_shape_equal(&a->shape, &b->shape);
}
