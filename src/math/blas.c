/* blas.c: the only file that includes cblas.h; and the naive product that checks it.
 *
 * neap_gemm chooses by shape as well as by engine: a product of few rows with a large matrix is
 * bound by memory and goes to few_rows.c, everything else to a library.
 */
#include "math/blas.h"

#include "math/vec.h"

#include <cblas.h>
#include <stdio.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static CBLAS_TRANSPOSE turned(bool flag) { return flag ? CblasTrans : CblasNoTrans; }

/* OpenMP's threads, which OpenBLAS uses, wait for each other without end where fewer come than were
 * asked for. It asks OpenMP how many there may be. */
int neap_blas_enter(void) {
#ifdef _OPENMP
  int before = omp_get_max_threads();
  if (before != 1) omp_set_num_threads(1);
  return before;
#else
  return 1;
#endif
}

void neap_blas_leave(int before) {
#ifdef _OPENMP
  if (before != 1) omp_set_num_threads(before);
#endif
  (void)before;
}

/* C (M,N) = alpha op(A) op(B) + beta C, cut along the longer side of C in units of CUT rows or
 * columns. */
typedef struct cut_product {
  neap_dtype dtype;
  bool ta, tb, by_rows;
  int64_t m, n, k, lda, ldb, ldc;
  double alpha, beta;
  const char *a, *b;
  char *c;
} cut_product;

enum { CUT = 64 };

/* Units [begin, end). */
static void multiply_cut(void *context, int64_t begin, int64_t end) {
  const cut_product *p = context;
  int64_t from = begin * CUT, m = p->m, n = p->n, to = NEAP_MIN(end * CUT, p->by_rows ? m : n);
  int64_t bytes = (int64_t)neap_dtype_bytes(p->dtype), by = from * bytes;
  const char *a = p->a, *b = p->b;
  char *c = p->c;
  /* Where the part begins in A or B, whichever way that lies, and in C. */
  if (p->by_rows)
    a += p->ta ? by : by * p->lda, c += by * p->ldc, m = to - from;
  else
    b += p->tb ? by * p->ldb : by, c += by, n = to - from;
  /* The part is this thread's alone, so that no order of threads shows in the bits. */
  int before = neap_blas_enter();
  if (p->dtype == NEAP_DTYPE_F64)
    cblas_dgemm(CblasRowMajor, turned(p->ta), turned(p->tb), (blasint)m, (blasint)n, (blasint)p->k,
                p->alpha, (const double *)(const void *)a, (blasint)p->lda,
                (const double *)(const void *)b, (blasint)p->ldb, p->beta, (double *)(void *)c,
                (blasint)p->ldc);
  else
    cblas_sgemm(CblasRowMajor, turned(p->ta), turned(p->tb), (blasint)m, (blasint)n, (blasint)p->k,
                (float)p->alpha, (const float *)(const void *)a, (blasint)p->lda,
                (const float *)(const void *)b, (blasint)p->ldb, (float)p->beta, (float *)(void *)c,
                (blasint)p->ldc);
  neap_blas_leave(before);
}

static void multiply_blas(cut_product *p, int n_thread) {
  enum { LEAST = 1 << 20 }; /* multiply-adds that are worth a thread */
  /* A thread with fewer multiply-adds than LEAST takes longer to wake than to work. */
  p->by_rows = p->m > p->n;
  int64_t n_unit = (NEAP_MAX(p->m, p->n) + CUT - 1) / CUT,
          grain = LEAST / NEAP_MAX(CUT * NEAP_MIN(p->m, p->n) * p->k, 1) + 1;
  neap_parallel_for(n_unit, grain, n_thread, multiply_cut, p);
}

/* The engine may refuse; then, as for all else, it is OpenBLAS's. */
static void multiply_f32(neap_engine engine, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                         float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                         float beta, float *c, int64_t ldc, int n_thread) {
  const neap_engine_record *by = neap_engine_at(engine);
  if (by->gemm_f32 != NULL &&
      by->gemm_f32(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, n_thread))
    return;
  cut_product p = {NEAP_DTYPE_F32,
                   ta,
                   tb,
                   false,
                   m,
                   n,
                   k,
                   lda,
                   ldb,
                   ldc,
                   (double)alpha,
                   (double)beta,
                   (const char *)a,
                   (const char *)b,
                   (char *)c};
  multiply_blas(&p, n_thread);
}

/* c (rows,cols) = factor c + x; where the factor is 0, c is not read: it may be NaN. */
static void add_run(float *c, int64_t ldc, const float *x, int64_t rows, int64_t cols,
                    float factor) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      const float before = factor == 0 ? 0 : factor * c[i * ldc + j];
      c[i * ldc + j] = before + x[i * cols + j];
    }
}

/* Libraries add each stretch of some hundred terms to what C holds, or even term after term: of
 * millions, sums lose their last three digits so. A deep product is made in runs of K, each a
 * product of its own in a tile, and the runs are added up. */
void neap_gemm_f32(neap_engine engine, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                   float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                   float beta, float *c, int64_t ldc, int n_thread) {
  enum { SIDE = 128, DEPTH = 1 << 14 };
  float tile[SIDE * SIDE];
  if (k <= NEAP_DEEP) {
    multiply_f32(engine, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, n_thread);
    return;
  }
  /* Tile by tile of C, so that a run has room on the stack. */
  for (int64_t i = 0; i < m; i += SIDE)
    for (int64_t j = 0; j < n; j += SIDE) {
      int64_t rows = NEAP_MIN(m - i, SIDE), cols = NEAP_MIN(n - j, SIDE);
      for (int64_t l = 0; l < k; l += DEPTH) {
        multiply_f32(engine, ta, tb, rows, cols, NEAP_MIN(k - l, DEPTH), alpha,
                     ta ? a + l * lda + i : a + i * lda + l, lda,
                     tb ? b + j * ldb + l : b + l * ldb + j, ldb, 0, tile, cols, n_thread);
        /* beta is for what C held before: with the second run on that is the sum so far. */
        add_run(c + i * ldc + j, ldc, tile, rows, cols, l == 0 ? beta : 1);
      }
    }
}

void neap_gemm_f64(bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a,
                   int64_t lda, const double *b, int64_t ldb, double beta, double *c, int64_t ldc,
                   int n_thread) {
  cut_product p = {
    NEAP_DTYPE_F64,  ta,       tb, false, m, n, k, lda, ldb, ldc, alpha, beta, (const char *)a,
    (const char *)b, (char *)c};
  multiply_blas(&p, n_thread);
}

/* Dense operands: a (M,K), or (K,M) when `ta`; b (K,N), or (N,K) when `tb`; `add`: to what c
 * holds. */
typedef struct naive_product {
  bool ta, tb, add;
  int64_t m, n, k;
  const void *a, *b;
  void *c;
} naive_product;

#define NEAP_BODY "math/naive_body.h"
#include "math/each_float.h"

/* Leading dimensions follow from density; at least 1, as BLAS demands even of empty matrices. */
void neap_gemm(neap_dtype dtype, neap_engine engine, bool ta, bool tb, int64_t m, int64_t n,
               int64_t k, const void *a, const void *b, bool add, void *c, int n_thread) {
  if (m == 0 || n == 0) return;
  /* f64 knows no oneDNN, and the loop for few rows is written for w as it lies in a fully connected
   * layer: (N,K). */
  int64_t lda = NEAP_MAX(ta ? m : k, 1), ldb = NEAP_MAX(tb ? k : n, 1);
  if (engine == NEAP_ENGINE_REF || k == 0) { /* libraries do not promise to clear C when k is 0 */

    naive_product p = {ta, tb, add, m, n, k, a, b, c};
    neap_parallel_for(m, 1, n_thread, dtype == NEAP_DTYPE_F64 ? naive_f64 : naive_f32, &p);
  } else if (dtype == NEAP_DTYPE_F64) {
    neap_gemm_f64(ta, tb, m, n, k, 1.0, a, lda, b, ldb, add ? 1.0 : 0.0, c, n, n_thread);
  } else if (!ta && tb && !add && m <= NEAP_FEW_ROWS &&
             k >= neap_engine_at(engine)->few_rows_depth) {
    neap_product_few_rows_f32(m, n, k, a, b, c, n_thread);
  } else {
    neap_gemm_f32(engine, ta, tb, m, n, k, 1.0f, a, lda, b, ldb, add ? 1.0f : 0.0f, c, n, n_thread);
  }
}

/* ---- the engine ------------------------------------------------------------------------------ */

static const char *never_missing(void) { return NULL; }

/* "OpenBLAS 0.3.21 DYNAMIC_ARCH ...": the version is the second word. */
static const char *version(char text[24]) {
  if (sscanf(openblas_get_config(), "%*s %23s", text) != 1) snprintf(text, 24, "unknown");
  return text;
}

/* Few rows: the loop takes 0.11 to 0.94 of OpenBLAS 0.3.21's time (on a loaded machine). */
const neap_engine_record neap_engine_blas = {
  .name = "blas",
  .doc = "matrix products of OpenBLAS, and loops around them",
  .dtypes = NEAP_WIDE,
  .missing = never_missing,
  .version = version,
  .few_rows_depth = 128,
};
