/* lapack.c: the only file that calls LAPACK. Its routines are Fortran's: everything goes by
 * address, and the length of each word goes at the end.
 */
#include "math/lapack.h"

#include "math/blas.h"

enum { BLOCK = 32 }; /* columns that QR takes at once */

void dgetrf_(const int *m, const int *n, double *a, const int *lda, int *pivot, int *info);
void dgetrs_(const char *trans, const int *n, const int *k, const double *a, const int *lda,
             const int *pivot, double *b, const int *ldb, int *info, size_t);
void dpotrf_(const char *uplo, const int *n, double *a, const int *lda, int *info, size_t);
void dtrsm_(const char *side, const char *uplo, const char *trans, const char *diag, const int *n,
            const int *k, const double *alpha, const double *a, const int *lda, double *b,
            const int *ldb, size_t, size_t, size_t, size_t);
void dgeqrf_(const int *m, const int *n, double *a, const int *lda, double *tau, double *work,
             const int *lwork, int *info);
void dorgqr_(const int *m, const int *n, const int *k, double *a, const int *lda, const double *tau,
             double *work, const int *lwork, int *info);
void dgesdd_(const char *job, const int *m, const int *n, double *a, const int *lda, double *s,
             double *u, const int *ldu, double *vt, const int *ldvt, double *work, const int *lwork,
             int *iwork, int *info, size_t);
void dsyevd_(const char *job, const char *uplo, const int *n, double *a, const int *lda, double *w,
             double *work, const int *lwork, int *iwork, const int *liwork, int *info, size_t,
             size_t);

/* Strides are at least 1, of empty matrices too. */
static int stride(int64_t rows) { return (int)NEAP_MAX(rows, 1); }

int neap_lapack_lu(int64_t n, double *a, int *pivot) {
  int size = (int)n, lda = stride(n), info = 0, before = neap_blas_enter();
  dgetrf_(&size, &size, a, &lda, pivot, &info);
  neap_blas_leave(before);
  return info;
}

void neap_lapack_lu_solve(bool transposed, int64_t n, int64_t k, const double *lu, const int *pivot,
                          double *b) {
  int size = (int)n, columns = (int)k, lda = stride(n), info = 0, before = neap_blas_enter();
  dgetrs_(transposed ? "T" : "N", &size, &columns, lu, &lda, pivot, b, &lda, &info, 1);
  neap_blas_leave(before);
}

int neap_lapack_cholesky(int64_t n, double *a) {
  int size = (int)n, lda = stride(n), info = 0, before = neap_blas_enter();
  dpotrf_("L", &size, a, &lda, &info, 1);
  neap_blas_leave(before);
  return info;
}

void neap_lapack_triangle_solve(bool upper, bool transposed, bool unit, int64_t n, int64_t k,
                                const double *a, double *b) {
  int size = (int)n, columns = (int)k, lda = stride(n), before = neap_blas_enter();
  double one = 1;
  dtrsm_("L", upper ? "U" : "L", transposed ? "T" : "N", unit ? "U" : "N", &size, &columns, &one, a,
         &lda, b, &lda, 1, 1, 1, 1);
  neap_blas_leave(before);
}

/* ---- QR -------------------------------------------------------------------------------------- */

int64_t neap_lapack_qr_work(int64_t n) { return BLOCK * NEAP_MAX(n, 1); }

void neap_lapack_qr(int64_t m, int64_t n, double *a, double *tau, double *work) {
  int rows = (int)m, columns = (int)n, lda = stride(m), info = 0, before = neap_blas_enter();
  int length = (int)neap_lapack_qr_work(n);
  dgeqrf_(&rows, &columns, a, &lda, tau, work, &length, &info);
  neap_blas_leave(before);
}

void neap_lapack_qr_q(int64_t m, int64_t k, int64_t n_reflector, double *q, const double *tau,
                      double *work) {
  int rows = (int)m, columns = (int)k, n = (int)n_reflector, lda = stride(m), info = 0;
  int length = (int)neap_lapack_qr_work(k), before = neap_blas_enter();
  dorgqr_(&rows, &columns, &n, q, &lda, tau, work, &length, &info);
  neap_blas_leave(before);
}

/* ---- SVD and eigenvalues: integers lie behind the doubles of their work ---------------------- */

/* The least that LAPACK 3.9 and older and newer releases ask for, and blocks of the reductions. */
static int64_t svd_doubles(int64_t m, int64_t n) {
  int64_t k = NEAP_MIN(m, n), longer = NEAP_MAX(m, n);
  return 3 * k + longer + 4 * k * k + 4 * k + BLOCK * (m + n);
}

int64_t neap_lapack_svd_work(int64_t m, int64_t n) {
  return svd_doubles(m, n) + 4 * NEAP_MIN(m, n) + 1; /* 8 k integers */
}

bool neap_lapack_svd(bool full, int64_t m, int64_t n, double *a, double *u, double *s, double *vt,
                     double *work) {
  int rows = (int)m, columns = (int)n, info = 0, lda = stride(m), before = neap_blas_enter();
  int ldvt = stride(full ? n : NEAP_MIN(m, n)), length = (int)svd_doubles(m, n);
  dgesdd_(full ? "A" : "S", &rows, &columns, a, &lda, s, u, &lda, vt, &ldvt, work, &length,
          (int *)(void *)(work + length), &info, 1);
  neap_blas_leave(before);
  return info == 0;
}

static int64_t eigh_doubles(int64_t n) { return 1 + 6 * n + 2 * n * n + BLOCK * n; }

int64_t neap_lapack_eigh_work(int64_t n) { return eigh_doubles(n) + (3 + 5 * n) / 2 + 1; }

bool neap_lapack_eigh(int64_t n, double *a, double *w, double *work) {
  int size = (int)n, lda = stride(n), info = 0, n_int = (int)(3 + 5 * n);
  int length = (int)eigh_doubles(n), before = neap_blas_enter();
  dsyevd_("V", "L", &size, a, &lda, w, work, &length, (int *)(void *)(work + length), &n_int, &info,
          1, 1);
  neap_blas_leave(before);
  return info == 0;
}
