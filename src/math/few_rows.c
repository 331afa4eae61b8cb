/* few_rows.c: products of a few rows with the rows of a large matrix, as a fully connected layer
 * makes at small batches.
 *
 * Such a product reads each weight once and does little with it, so it should run at the speed of
 * memory; libraries copy the weights into blocks first. Here they are read in place, in tiles of
 * ROWS rows of w by 2 rows of x whose sums stay in registers.
 *
 * INVARIANT: each element of y is summed by one thread, in an order that depends on K alone.
 */
#include "math/blas.h"

#include <string.h>

/* A tile has ROWS rows of w and two of x; a vector has LANES elements: an AVX-512 register, or two
 * or four narrower ones. STEP elements of x stay in the cache while all rows of w pass: 32 rows of
 * x take 256 KiB. */
enum { ROWS = 4, LANES = 16, STEP = 2048 };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

/* y (M,N) = x (M,K) w^T, w (N,K): all dense, row by row. */
typedef struct few_rows {
  int64_t m, n, k;
  const float *x, *w;
  float *y;
} few_rows;

/* Vectors go by address: by value, their passing would differ between instruction sets. */
#define LOAD(v, from) memcpy(&(v), (from), sizeof(v))

/* The sum of a vector's lanes, halves folded onto each other: the same order on every instruction
 * set. */
static inline __attribute__((always_inline)) float sum_of(const lanes *v) {
  float sum[LANES];
  memcpy(sum, v, sizeof sum);
  for (int width = LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) sum[i] += sum[i + width];
  return sum[0];
}

/* out[r][i] = dot product of length k of row r of w and row i of x; rows are `row` elements
 * apart. */
static inline __attribute__((always_inline)) void tile(const float *w, const float *x0,
                                                       const float *x1, int64_t row, int64_t k,
                                                       float out[ROWS][2]) {
  const float *w0 = w, *w1 = w + row, *w2 = w1 + row, *w3 = w2 + row;
  lanes zero = {0}, a0 = zero, a1 = zero, a2 = zero, a3 = zero, b0 = zero, b1 = zero, b2 = zero,
        b3 = zero;
  int64_t j = 0;
  /* Eight sums at once, so that each vector of x serves four rows, and each of w two. */
  for (; j + LANES <= k; j += LANES) {
    lanes a, b, v;
    LOAD(a, x0 + j), LOAD(b, x1 + j);
    LOAD(v, w0 + j), a0 += v * a, b0 += v * b;
    LOAD(v, w1 + j), a1 += v * a, b1 += v * b;
    LOAD(v, w2 + j), a2 += v * a, b2 += v * b;
    LOAD(v, w3 + j), a3 += v * a, b3 += v * b;
  }

  /* Each vector of sums becomes one number; the order of its lanes is fixed (sum_of). */
  out[0][0] = sum_of(&a0), out[1][0] = sum_of(&a1), out[2][0] = sum_of(&a2),
  out[3][0] = sum_of(&a3);
  out[0][1] = sum_of(&b0), out[1][1] = sum_of(&b1), out[2][1] = sum_of(&b2),
  out[3][1] = sum_of(&b3);
  /* What is left of k behind the last whole vector, one element at a time. */
  for (; j < k; j++)
    for (int r = 0; r < ROWS; r++) {
      out[r][0] += w[r * row + j] * x0[j];
      out[r][1] += w[r * row + j] * x1[j];
    }
}

/* Columns [begin, end) of y, for elements [from, from + k) of the rows: sets y when from is 0, else
 * adds to it. Of an odd number of rows of x the last is taken as its own partner, and the second
 * result dropped: no loop of another shape, and the same order of summing. */
static NEAP_MULTIVERSION void multiply_step(const few_rows *p, int64_t begin, int64_t end,
                                            int64_t from, int64_t k) {
  float out[ROWS][2];
  for (int64_t j = begin; j < end; j += ROWS) {
    int64_t n = NEAP_MIN(end - j, ROWS);
    for (int64_t i = 0; i < p->m; i += 2) {
      /* Two rows of x at a time: the last of an odd number with itself. */
      int64_t second = NEAP_MIN(i + 1, p->m - 1);
      const float *x0 = p->x + i * p->k + from, *x1 = p->x + second * p->k + from,
                  *w = p->w + j * p->k + from;
      if (n == ROWS)
        tile(w, x0, x1, p->k, k, out);
      else /* the last rows, one by one: a tile of the same row four times */
        for (int64_t r = 0; r < n; r++) {
          float one[ROWS][2];
          tile(w + r * p->k, x0, x1, 0, k, one);
          memcpy(out[r], one[0], sizeof out[r]);
        }

      for (int64_t r = 0; r < n; r++) {
        /* A first step sets what the next ones add to. */
        float *y0 = p->y + i * p->n + j + r, *y1 = p->y + second * p->n + j + r;
        *y0 = from == 0 ? out[r][0] : *y0 + out[r][0];
        if (second > i) *y1 = from == 0 ? out[r][1] : *y1 + out[r][1];
      }
    }
  }
}

/* Columns [begin, end) of y, over K in steps. */
static void multiply(void *context, int64_t begin, int64_t end) {
  const few_rows *p = context;
  for (int64_t from = 0; from < p->k; from += STEP)
    multiply_step(p, begin, end, from, NEAP_MIN(p->k - from, STEP));
}

/* Threads share out the columns of y, that is the rows of w, so that each weight is read by one of
 * them. */
void neap_product_few_rows_f32(int64_t m, int64_t n, int64_t k, const float *x, const float *w,
                               float *y, int n_thread) {
  NEAP_ASSERT(m <= NEAP_FEW_ROWS, "few rows are %d at most, these are %lld", NEAP_FEW_ROWS,
              (long long)m);
  few_rows p = {m, n, k, x, w, y};
  if (m > 0)
    neap_parallel_for(n, NEAP_MAX(NEAP_GRAIN / NEAP_MAX(k, 1), ROWS), n_thread, multiply, &p);
}
