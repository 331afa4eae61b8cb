/* math/blas.h: matrix products. Row-major; lda, ldb, ldc are row strides. C = alpha A' B' + beta C,
 * where ' transposes when asked. n_thread 1 keeps it on the calling thread, as any call inside a
 * share or a parallel region does. */
#ifndef NEAP_MATH_BLAS_H
#define NEAP_MATH_BLAS_H

#include "math/engine.h"

/* By that engine's library; OpenBLAS's where it has none for these. Not REF. */
void neap_gemm_f32(neap_engine engine, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                   float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                   float beta, float *c, int64_t ldc, int n_thread);
void neap_gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha,
                   const double *a, int64_t lda, const double *b, int64_t ldb, double beta,
                   double *c, int64_t ldc, int n_thread);
/* Between the two OpenBLAS stays on the thread that calls it; the first returns what the second
 * goes back to. */
int neap_blas_enter(void);
void neap_blas_leave(int before);
/* Products of more terms than this are made in runs of K: so the sums of millions are as exact as
 * those of this many. */
enum { NEAP_DEEP = 1 << 18 };
/* By dtype, dense, alpha 1. REF: plain loops in the same dtype, the oracle. */
void neap_gemm(neap_dtype dtype, neap_engine engine, bool trans_a, bool trans_b, int64_t m,
               int64_t n, int64_t k, const void *a, const void *b, bool add, void *c, int n_thread);
/* y (M,N) = x (M,K) w' (K,N), all dense, reading w (N,K) once. neap_gemm takes it up to these rows,
 * from the engine's few_rows_depth on. */
enum { NEAP_FEW_ROWS = 32 };
void neap_product_few_rows_f32(int64_t m, int64_t n, int64_t k, const float *x, const float *w,
                               float *y, int n_thread);

#endif
