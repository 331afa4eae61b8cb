/* batches.h: stacks of matrices, whose leading dimensions are a batch and broadcast, as NumPy has
 * it: which matrix of each operand belongs to which of the result. */
#ifndef NEAP_OPS_BATCHES_H
#define NEAP_OPS_BATCHES_H

#include "ops/op.h"

typedef struct neap_batches {
  neap_shape all; /* the batch of the result */
  /* matrices to go for one step of a batch dimension; 0: broadcast */
  int64_t a_step[NEAP_MAX_DIM], b_step[NEAP_MAX_DIM];
} neap_batches;

/* Of a and b, whose last two dimensions are the matrix; b's last `b_rank`, of which it may have
 * fewer. False when the batches do not broadcast. */
bool neap_batches_of(const neap_shape *a, const neap_shape *b, int b_rank, neap_batches *out);
/* The numbers of the operands' matrices for matrix `i` of the result. */
void neap_batches_at(const neap_batches *batches, int64_t i, int64_t *a, int64_t *b);

#endif
