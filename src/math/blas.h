/* math/blas.h: matrix products through OpenBLAS. Row-major; lda, ldb, ldc are row strides. C = alpha A' B' + beta C, where
 * ' transposes when asked. n_thread 1 keeps OpenBLAS on the calling thread. */
#ifndef NEAP_MATH_BLAS_H
#define NEAP_MATH_BLAS_H

#include "tensor/tensor.h"

void neap_gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                   const float *b, int64_t ldb, float beta, float *c, int64_t ldc, int n_thread);
void neap_gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t lda,
                   const double *b, int64_t ldb, double beta, double *c, int64_t ldc, int n_thread);
/* By dtype, dense, alpha 1. `naive`: plain loops in the same dtype, the oracle. */
void neap_gemm(neap_dtype dtype, bool naive, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const void *a,
               const void *b, bool add, void *c, int n_thread);
const char *neap_blas_version(void);

#endif
