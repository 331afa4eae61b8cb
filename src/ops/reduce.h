/* ops/reduce.h: what reductions share: the attributes `axes` and `keepdim`, the shape they give,
 * and a walk that brings every case down to two loops: over contiguous elements into one
 * accumulator, and over rows into a row of accumulators.
 *
 * An accumulator is 8 bytes whatever the input: double for floats, int64 for integers. So a sum of
 * many f32 keeps its digits, and one set of kernels serves all inputs.
 */
#ifndef NEAP_OPS_REDUCE_H
#define NEAP_OPS_REDUCE_H

#include "math/vec.h"
#include "ops/op.h"

/* ORDER of the attributes, in every reduction: these two first. */
enum { NEAP_REDUCE_AXES, NEAP_REDUCE_KEEPDIM };
#define NEAP_REDUCE_ATTRS                                                                 \
  [NEAP_REDUCE_AXES] = {"axes", "dimensions to reduce; none given: all", NEAP_ATTR_AXES}, \
  [NEAP_REDUCE_KEEPDIM] = {"keepdim", "leave reduced dimensions in the shape, as 1",      \
                           NEAP_ATTR_BOOL}

/* Which dimensions of an input are reduced, as a bit set. The second is for kernels, where the
 * first has succeeded. */
neap_status neap_reduce_axes(const neap_infer *infer, int n_dim, unsigned *axes, neap_error *error);
unsigned neap_reduce_axes_checked(const neap_attr_value *axes, int n_dim);
/* The shape left; with `keepdim`, or with 1 in place of each reduced dimension. */
neap_shape neap_reduce_shape(const neap_shape *shape, unsigned axes, bool keepdim);
int64_t neap_reduce_count(const neap_shape *shape, unsigned axes); /* elements that go into one */
/* Output 0 has the input's dtype and the shape left. */
neap_status neap_reduce_infer(neap_infer *infer, neap_error *error);
/* For backward ops: input 0 is the forward's, every other has the shape left of it; output 0 is of
 * input 0's type. */
neap_status neap_reduce_infer_grad(neap_infer *infer, neap_error *error);

/* The dimensions of an input, collapsed: neighbours of the same kind are one, and dimensions of 1
 * are gone. Strides are in elements of the input. */
typedef struct neap_reduce_walk {
  int n_kept, n_reduced; /* dimensions */
  int64_t kept[NEAP_MAX_DIM], kept_stride[NEAP_MAX_DIM];
  int64_t reduced[NEAP_MAX_DIM], reduced_stride[NEAP_MAX_DIM];
  int64_t n_out, count; /* elements kept; elements reduced into each */
  bool rows;            /* the innermost dimension is reduced */
} neap_reduce_walk;
neap_reduce_walk neap_reduce_walk_of(const neap_shape *shape, unsigned axes);
/* Offset of the k-th element, in row-major order of n_dim dimensions. */
int64_t neap_reduce_offset(int n_dim, const int64_t *dim, const int64_t *stride, int64_t k);

typedef union neap_accumulator {
  double f;
  int64_t i;
} neap_accumulator;

typedef struct neap_reduction {
  neap_accumulator start;
  /* acc takes in n contiguous elements */
  void (*row)(const void *in, int64_t n, neap_accumulator *acc);
  /* acc[j] takes in element j, j < n */
  void (*columns)(const void *in, int64_t n, neap_accumulator *acc);
} neap_reduction;

/* Reduces input 0 into output 0, by the reduction of its dtype; bf16 and f16 take that of f32.
 * Floats are divided by `divisor` before they are stored. */
void neap_reduce_run(const neap_call *call, const neap_reduction reductions[NEAP_N_DTYPE],
                     double divisor);

#endif
