/* math/move.h: copies of strided boxes, for elements of 1, 2, 4 or 8 bytes: what Permute, Slice,
 * Concat, Expand and Reorder come down to.
 *
 * INVARIANT: no two positions of the box have the same target, and source and target do not
 * overlap.
 */
#ifndef NEAP_MATH_MOVE_H
#define NEAP_MATH_MOVE_H

#include "tensor/tensor.h"

/* Blocked layouts split a dimension in two or three, so boxes have more dimensions than tensors. */
enum { NEAP_MOVE_MAX_DIM = 24 };

/* A box: dim[i] steps of in_stride[i] in the source and out_stride[i] in the target, in elements,
 * of any sign; in_stride 0 repeats. Order of the dimensions has no meaning. */
typedef struct neap_move {
  int n_dim;
  int64_t dim[NEAP_MOVE_MAX_DIM], in_stride[NEAP_MOVE_MAX_DIM], out_stride[NEAP_MOVE_MAX_DIM];
} neap_move;

static inline void neap_move_add(neap_move *move, int64_t dim, int64_t in_stride,
                                 int64_t out_stride) {
  NEAP_ASSERT(move->n_dim < NEAP_MOVE_MAX_DIM, "a box has at most %d dimensions",
              NEAP_MOVE_MAX_DIM);
  move->dim[move->n_dim] = dim;
  move->in_stride[move->n_dim] = in_stride;
  move->out_stride[move->n_dim++] = out_stride;
}

/* Copies the box whose first element is *in to *out. Elements have `item_bytes`. */
void neap_move_run(const neap_move *move, size_t item_bytes, const void *in, void *out,
                   int n_thread);

#endif
