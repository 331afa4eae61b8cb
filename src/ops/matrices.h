/* matrices.h: what ops of linear algebra share (matrices.c): a stack of matrices, each taken by one
 * thread into scratch of doubles, column by column as LAPACK has it, and its results put back,
 * rounded once.
 *
 * INVARIANT: a matrix is one thread's from end to end, so that bits do not depend on threads.
 */
#ifndef NEAP_OPS_MATRICES_H
#define NEAP_OPS_MATRICES_H

#include "math/lapack.h"
#include "ops/batches.h"

/* Matrices are (m,n); right sides, where input 1 is one, (m,k). */
typedef struct neap_matrices {
  int64_t m, n, k;
  bool is_vector; /* input 1 has no columns, of which there is one then */
  neap_batches batches;
} neap_matrices;

typedef struct neap_matrix_job neap_matrix_job;
struct neap_matrix_job {
  const neap_call *call;
  /* matrix `at` of the results; `scratch` is as long as was asked for */
  void (*one)(const neap_matrix_job *job, int64_t at, double *scratch);
  neap_matrices size;
  int64_t n_double; /* of scratch, for a matrix */
  int64_t n_matrix;
  int n_part;
};

/* Of checked types. */
neap_matrices neap_matrices_of(const neap_type *in, int n_in);
/* Input 0 is a stack of matrices, square where it must be, and no larger than LAPACK's; input 1,
 * where there is one, of right sides. */
neap_status neap_matrices_infer(neap_infer *infer, bool square, neap_matrices *size,
                                neap_error *error);
/* The doubles that all threads need for one matrix each: for choose. */
bool neap_matrices_choose(neap_choose *choose, int64_t n_double);
/* All matrices of a call, by `one`; n_double as chosen. */
void neap_matrices_run(const neap_call *call, int64_t n_double,
                       void (*one)(const neap_matrix_job *job, int64_t at, double *scratch));

/* Matrix `at` of x, (rows,columns), column by column into `to`; whether all of it is finite. */
bool neap_matrix_load(const neap_operand *x, int64_t at, int64_t rows, int64_t columns, double *to);
/* The first rows of what lies in columns of `stride` becomes matrix `at` of y; y may be absent. */
void neap_matrix_store(const neap_operand *y, int64_t at, int64_t rows, int64_t columns,
                       int64_t stride, const double *from);
/* All of matrix `at` of y. */
void neap_matrix_fill(const neap_operand *y, int64_t at, int64_t n, double value);
/* Says which matrix of the stack it is, when there are several. */
void neap_matrix_fault(const neap_matrix_job *job, int64_t at, const char *what);
/* a (n,n) becomes (a + a') / 2. */
void neap_matrix_symmetric(int64_t n, double *a);
#define NEAP_NOT_FINITE "has a NaN or an infinity"
/* 2/3 n^3 of a factor, times a factor of its kind. */
void neap_matrices_cost(const neap_infer *infer, neap_cost *cost);

#endif
