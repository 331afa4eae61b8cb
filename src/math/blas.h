/* math/blas.h: matrix products. Row-major; lda, ldb, ldc are row strides. C = alpha A' B' + beta C,
 * where ' transposes when asked. n_thread 1 keeps it on the calling thread, as any call inside a
 * share or a parallel region does. */
#ifndef NEAP_MATH_BLAS_H
#define NEAP_MATH_BLAS_H

#include "tensor/tensor.h"

/* By whom. DNNL: f32 only, and only where neap_onednn_is_built(); f64 goes to OpenBLAS then. */
typedef enum neap_gemm_engine { NEAP_GEMM_NAIVE, NEAP_GEMM_BLAS, NEAP_GEMM_DNNL } neap_gemm_engine;

/* Of BLAS and DNNL. */
void neap_gemm_f32(neap_gemm_engine engine, bool trans_a, bool trans_b, int64_t m, int64_t n,
                   int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                   float beta, float *c, int64_t ldc, int n_thread);
void neap_gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha,
                   const double *a, int64_t lda, const double *b, int64_t ldb, double beta,
                   double *c, int64_t ldc, int n_thread);
/* By dtype, dense, alpha 1. NAIVE: plain loops in the same dtype, the oracle. */
void neap_gemm(neap_dtype dtype, neap_gemm_engine engine, bool trans_a, bool trans_b, int64_t m,
               int64_t n, int64_t k, const void *a, const void *b, bool add, void *c, int n_thread);
/* y (M,N) = x (M,K) w' (K,N), all dense, reading w (N,K) once. neap_gemm takes it up to these rows,
 * from this depth on, which is larger where oneDNN is the other way: of its time this needs 0.6 to
 * 1.1 from there on, twice as much at depth 256 (measured on one core with AVX-512, 1 to 32 rows).
 * Against OpenBLAS 0.3.21 it is 0.11 to 0.94 (on a loaded machine). */
enum { NEAP_FEW_ROWS = 32, NEAP_FEW_ROWS_DEPTH = 128, NEAP_FEW_ROWS_DEPTH_DNNL = 1024 };
void neap_product_few_rows_f32(int64_t m, int64_t n, int64_t k, const float *x, const float *w,
                               float *y, int n_thread);
const char *neap_blas_version(void);

#endif
