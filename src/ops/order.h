/* ops/order.h: the order of elements, the one that all ops that sort or search agree on: numbers by
 * size, both zeros equal, a NaN behind all numbers and equal to every other NaN.
 */
#ifndef NEAP_OPS_ORDER_H
#define NEAP_OPS_ORDER_H

#include "ops/op.h"

/* Keys stand in the order of the elements. */
uint64_t neap_order_key(neap_dtype dtype, const void *data, int64_t i);

/* An element on its way to its place. */
typedef struct neap_ordered {
  uint64_t key; /* less the least of the row */
  int64_t index;
} neap_ordered;

/* Scratch of a sort of n elements, and of n_part of them at the same time. */
size_t neap_order_bytes(int64_t n_part, int64_t n);
/* The n elements of x that begin at `at`, `step` apart, sorted; equals keep their order. They lie
 * in the scratch. Never more than 8 walks over a row, and 1 for each byte in which
 * keys differ. */
const neap_ordered *neap_order(const neap_operand *x, int64_t at, int64_t step, int64_t n,
                               bool descending, void *scratch);

#endif
