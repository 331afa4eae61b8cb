/* element.c: one element at a time, for scripts, printing and tests; loops belong in cast.c.
 *
 * `base` points at element 0 of a dense run and `index` counts elements. Each function is one
 * switch over the dtypes, written by NEAP_ELEMENT_MAP, so that a new dtype cannot be forgotten in
 * one of them.
 */
#include "tensor/tensor_int.h"

/* Exact but for i64 beyond 2^53. A dtype outside the list reads 0 and writes nothing. */
double neap_element_get(neap_dtype dtype, const void *base, int64_t index) {
  switch (dtype) {
#define X(symbol, name, type, wide) \
  case NEAP_DTYPE_##symbol: return (double)name##_to_wide(((const type *)base)[index]);
    NEAP_ELEMENT_MAP(X)
#undef X
    case NEAP_DTYPE_NONE:
    case NEAP_N_DTYPE: break;
  }
  return 0;
}

/* Floats are rounded and saturated, as a cast to i64 does. */
int64_t neap_element_get_i64(neap_dtype dtype, const void *base, int64_t index) {
  switch (dtype) {
#define X(symbol, name, type, wide) \
  case NEAP_DTYPE_##symbol: return i64_from_##wide(name##_to_wide(((const type *)base)[index]));
    NEAP_ELEMENT_MAP(X)
#undef X
    case NEAP_DTYPE_NONE:
    case NEAP_N_DTYPE: break;
  }
  return 0;
}

/* Each dtype's one rounding from f64: the same bits as a cast. */
void neap_element_set(neap_dtype dtype, void *base, int64_t index, double value) {
  switch (dtype) {
#define X(symbol, name, type, wide) \
  case NEAP_DTYPE_##symbol: ((type *)base)[index] = name##_from_f64(value); break;
    NEAP_ELEMENT_MAP(X)
#undef X
    case NEAP_DTYPE_NONE:
    case NEAP_N_DTYPE: break;
  }
}

/* The same from i64: saturating, and exact where the dtype holds the value. */
void neap_element_set_i64(neap_dtype dtype, void *base, int64_t index, int64_t value) {
  switch (dtype) {
#define X(symbol, name, type, wide) \
  case NEAP_DTYPE_##symbol: ((type *)base)[index] = name##_from_i64(value); break;
    NEAP_ELEMENT_MAP(X)
#undef X
    case NEAP_DTYPE_NONE:
    case NEAP_N_DTYPE: break;
  }
}
