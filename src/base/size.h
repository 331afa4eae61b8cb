/* size.h: sizes that saturate. What is computed from shapes, attributes and files may be larger
 * than any machine: it then is NEAP_SIZE_TOO_LARGE (bytes) or NEAP_COUNT_TOO_LARGE (elements,
 * positions), whatever is added to it or multiplied with it, and whoever checks a size refuses it.
 * So nothing wraps around on the way, and nobody need ask at every step.
 *
 * INVARIANT: what has passed neap_type_check (tensor.h) has at most NEAP_MOST_BYTES bytes, with
 * every dimension of 0 counted as 1; so strides, offsets and products of some of its dimensions are
 * exact, and kernels compute with them as they are.
 */
#ifndef NEAP_BASE_SIZE_H
#define NEAP_BASE_SIZE_H

#include <stddef.h>
#include <stdint.h>

#define NEAP_SIZE_TOO_LARGE SIZE_MAX
#define NEAP_COUNT_TOO_LARGE INT64_MAX

/* The ceilings. A tensor, a kernel's scratch: what the processors of today can address (128 TiB).
 * All values of a graph together: so much less than 2^63 that sums of plans, with what
 * recomputation, loops and padding add to them, stay exact. */
#define NEAP_MOST_BYTES ((size_t)1 << 47)
#define NEAP_MOST_GRAPH_BYTES ((size_t)1 << 56)
/* Ops of a net and subnets of it, each counted as often as it is built: a subnet that two ops name
 * is built twice, so a short text could ask for more than any memory holds. */
enum { NEAP_MOST_NODES = 1 << 18, NEAP_MOST_SUBNETS = 1 << 14 };

static inline size_t neap_size_add(size_t a, size_t b) {
  size_t sum;
  return __builtin_add_overflow(a, b, &sum) ? NEAP_SIZE_TOO_LARGE : sum;
}

/* Nothing of anything is nothing: only a product that is too large itself saturates. */
static inline size_t neap_size_mul(size_t a, size_t b) {
  size_t product;
  return __builtin_mul_overflow(a, b, &product) ? NEAP_SIZE_TOO_LARGE : product;
}

/* To the next multiple of `align`, a power of two. */
static inline size_t neap_size_align(size_t bytes, size_t align) {
  return bytes > NEAP_SIZE_TOO_LARGE - (align - 1) ? NEAP_SIZE_TOO_LARGE
                                                   : (bytes + align - 1) & ~(align - 1);
}

/* Counts are never negative: neither is what goes in. */
static inline int64_t neap_count_add(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? NEAP_COUNT_TOO_LARGE : sum;
}

static inline int64_t neap_count_mul(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? NEAP_COUNT_TOO_LARGE : product;
}

/* A cost, which is a sum of products in floating point, as a count. */
static inline int64_t neap_whole(double x) {
  return x < 0x1p63 ? (int64_t)x : NEAP_COUNT_TOO_LARGE;
}

/* Bytes of n elements; a count that is too large has too many. */
static inline size_t neap_size_of(int64_t n, size_t item_bytes) {
  return n == NEAP_COUNT_TOO_LARGE ? NEAP_SIZE_TOO_LARGE : neap_size_mul((size_t)n, item_bytes);
}

#endif
