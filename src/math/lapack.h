/* math/lapack.h: factors of matrices, by LAPACK as OpenBLAS has it, in double.
 *
 * A matrix (rows,cols) is dense and lies column by column, as LAPACK wants it. Every function works
 * on the calling thread alone and takes all memory from its caller; `work` is as long as the
 * function beside it says, in doubles. At most the square of NEAP_LAPACK_MOST elements, since
 * LAPACK counts them in 32 bits.
 */
#ifndef NEAP_MATH_LAPACK_H
#define NEAP_MATH_LAPACK_H

#include "base/base.h"

enum { NEAP_LAPACK_MOST = 16384 };

/* a (n,n) becomes its factors L and U; rows were swapped as `pivot` (n) says, from 1. The first
 * pivot that is 0, from 1; 0: none is. */
int neap_lapack_lu(int64_t n, double *a, int *pivot);
/* b (n,k) becomes the solution of A x = b, or A' x = b, by those factors. */
void neap_lapack_lu_solve(bool transposed, int64_t n, int64_t k, const double *lu, const int *pivot,
                          double *b);
/* The lower triangle of a (n,n) becomes L, A = L L'. The order of the first leading part that is
 * not positive definite; 0: there is none. */
int neap_lapack_cholesky(int64_t n, double *a);
/* b (n,k) becomes the solution of A x = b, or A' x = b, A a triangle of a, with ones on the
 * diagonal where `unit`. */
void neap_lapack_triangle_solve(bool upper, bool transposed, bool unit, int64_t n, int64_t k,
                                const double *a, double *b);
/* a (m,n) becomes R above the diagonal and what Q is made of below it, with tau (min(m,n)); then
 * q (m,k), whose first min(m,n,k) columns are those of a, becomes the first k columns of Q. */
int64_t neap_lapack_qr_work(int64_t n);
void neap_lapack_qr(int64_t m, int64_t n, double *a, double *tau, double *work);
void neap_lapack_qr_q(int64_t m, int64_t k, int64_t n_reflector, double *q, const double *tau,
                      double *work);
/* a (m,n), which is used up, is u diag(s) vt: u (m,k), s (min(m,n)), vt (k,n), k = min(m,n), or u
 * and vt square where `full`. False where LAPACK does not get there. */
int64_t neap_lapack_svd_work(int64_t m, int64_t n);
bool neap_lapack_svd(bool full, int64_t m, int64_t n, double *a, double *u, double *s, double *vt,
                     double *work);
/* The lower triangle of a (n,n) says a symmetric matrix: its eigenvalues w (n), ascending, and its
 * eigenvectors, the columns that a becomes. False where LAPACK does not get there. */
int64_t neap_lapack_eigh_work(int64_t n);
bool neap_lapack_eigh(int64_t n, double *a, double *w, double *work);

#endif
