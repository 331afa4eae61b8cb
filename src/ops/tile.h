/* ops/tile.h: floats of any dtype for kernels that compute in float and double. What has the type
 * computed in is used where it lies; bf16 and f16 are widened to f32, a tile at a time, and rounded
 * once, to nearest even, when they are stored.
 */
#ifndef NEAP_OPS_TILE_H
#define NEAP_OPS_TILE_H

#include "ops/op.h"

enum { NEAP_TILE = 256 }; /* elements: 1 KiB of f32 */

static inline bool neap_is_half(neap_dtype dtype) { return neap_dtype_in(dtype, NEAP_HALVES); }

/* The dtype that a dtype is computed in. */
static inline neap_dtype neap_compute_dtype(neap_dtype dtype) {
  return neap_is_half(dtype) ? NEAP_DTYPE_F32 : dtype;
}

/* Address of element `at` of an operand, in row-major order. */
static inline void *neap_element_at(const neap_operand *x, int64_t at) {
  return (char *)x->data + at * (int64_t)neap_dtype_bytes(x->type.dtype);
}

/* Elements [at, at + n) of x, n at most NEAP_TILE for a half: x's own, or in `tile`. */
static inline const void *neap_tile_load(const neap_operand *x, int64_t at, int64_t n,
                                         float *tile) {
  const void *from = neap_element_at(x, at);
  if (!neap_is_half(x->type.dtype)) return from;
  neap_cast(NEAP_DTYPE_F32, tile, x->type.dtype, from, n);
  return tile;
}

/* How many elements of x to take at once, of n: all, or a tile. */
static inline int64_t neap_tile_elems(const neap_operand *x, int64_t n) {
  return neap_is_half(x->type.dtype) ? NEAP_MIN(n, NEAP_TILE) : n;
}

#endif
