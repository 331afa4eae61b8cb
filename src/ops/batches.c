/* batches.c: how the batches of stacks of matrices broadcast. */
#include "ops/batches.h"

/* Leading dimensions of x, without the last `rank`. */
static neap_shape batch_of(const neap_shape *x, int rank) {
  return neap_shape_of(x->n_dim > rank ? x->n_dim - rank : 0, x->dim);
}

/* `batch`: the batch dimensions of one operand; `all`: those of the result. They are aligned at the
 * end; where the operand lacks a dimension or has 1, its step is 0 and the same matrix serves
 * again. */
static void steps_of(const neap_shape *batch, const neap_shape *all, int64_t step[NEAP_MAX_DIM]) {
  int lead = all->n_dim - batch->n_dim;
  int64_t matrices = 1;
  for (int d = all->n_dim - 1; d >= 0; d--) {
    int64_t n = d < lead ? 1 : batch->dim[d - lead];
    step[d] = n == 1 ? 0 : matrices;
    matrices *= n;
  }
}

bool neap_batches_of(const neap_shape *a, const neap_shape *b, int b_rank, neap_batches *out) {
  neap_shape batch_a = batch_of(a, 2), batch_b = batch_of(b, b_rank);
  if (!neap_shape_broadcast(&batch_a, &batch_b, &out->all)) return false;
  steps_of(&batch_a, &out->all, out->a_step);
  steps_of(&batch_b, &out->all, out->b_step);
  return true;
}

/* The place in the batch, digit by digit, and what each operand has there. */
void neap_batches_at(const neap_batches *batches, int64_t i, int64_t *a, int64_t *b) {
  *a = *b = 0;
  for (int d = batches->all.n_dim - 1; d >= 0; d--) {
    int64_t at = i % batches->all.dim[d];
    i /= batches->all.dim[d];
    *a += at * batches->a_step[d];
    *b += at * batches->b_step[d];
  }
}
