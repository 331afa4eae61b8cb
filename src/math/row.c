/* row.c: reductions over one dense row. See row.h. */
#include "math/row.h"

#include "math/vec.h"

enum { COLUMNS = 1024 }; /* of rows that are added up: their sums fit the first-level cache */

/* Each loop for one type; EXP is the exponential that the compiler can put into a vector loop of it
 * (f32), or the C library's. The `omp simd` reductions allow the one change of order that vector
 * sums need; -ffast-math would allow more. */
#define ROW(type, suffix, EXP)                                                                 \
  NEAP_MULTIVERSION type neap_row_max_##suffix(const type *x, int64_t n) {                     \
    type most = (type)-INFINITY;                                                               \
    _Pragma("omp simd reduction(max : most)") for (int64_t i = 0; i < n; i++) most =           \
      x[i] > most ? x[i] : most;                                                               \
    return most;                                                                               \
  }                                                                                            \
  NEAP_MULTIVERSION type neap_row_exp_##suffix(const type *x, type scale, type shift, type *y, \
                                               int64_t n) {                                    \
    double total = 0;                                                                          \
    NEAP_EACH_PART(n, NEAP_PIECE, from, to) {                                                  \
      type sum = 0;                                                                            \
      _Pragma("omp simd reduction(+ : sum)") for (int64_t i = from; i < to; i++) {             \
        type e = EXP(scale * x[i] - shift);                                                    \
        y[i] = e;                                                                              \
        sum += e;                                                                              \
      }                                                                                        \
      total += (double)sum;                                                                    \
    }                                                                                          \
    return (type)total;                                                                        \
  }                                                                                            \
  NEAP_MULTIVERSION type neap_row_exp_rest_##suffix(const type *x, type most, int64_t n) {     \
    double total = 0;                                                                          \
    type ties = 0;                                                                             \
    NEAP_EACH_PART(n, NEAP_PIECE, from, to) {                                                  \
      type rest = 0;                                                                           \
      _Pragma("omp simd reduction(+ : rest, ties)") for (int64_t i = from; i < to; i++) {      \
        type tie = x[i] == most ? 1 : 0;                                                       \
        rest += EXP(x[i] - most) - tie;                                                        \
        ties += tie;                                                                           \
      }                                                                                        \
      total += (double)rest;                                                                   \
    }                                                                                          \
    return (type)(total + (double)(ties - 1));                                                 \
  }                                                                                            \
  NEAP_MULTIVERSION type neap_row_dot_##suffix(const type *x, const type *y, int64_t n) {      \
    double total = 0;                                                                          \
    NEAP_EACH_PART(n, NEAP_PIECE, from, to) {                                                  \
      type sum = 0;                                                                            \
      _Pragma("omp simd reduction(+ : sum)") for (int64_t i = from; i < to; i++) sum +=        \
        x[i] * y[i];                                                                           \
      total += (double)sum;                                                                    \
    }                                                                                          \
    return (type)total;                                                                        \
  }                                                                                            \
  NEAP_MULTIVERSION double neap_row_sum_##suffix(const type *x, int64_t n) {                   \
    double total = 0;                                                                          \
    NEAP_EACH_PART(n, NEAP_PIECE, from, to) {                                                  \
      type sum = 0;                                                                            \
      _Pragma("omp simd reduction(+ : sum)") for (int64_t i = from; i < to; i++) sum += x[i];  \
      total += (double)sum;                                                                    \
    }                                                                                          \
    return total;                                                                              \
  }                                                                                            \
  NEAP_MULTIVERSION double neap_row_spread_##suffix(const type *x, type centre, int64_t n) {   \
    double total = 0;                                                                          \
    NEAP_EACH_PART(n, NEAP_PIECE, from, to) {                                                  \
      type sum = 0;                                                                            \
      _Pragma("omp simd reduction(+ : sum)") for (int64_t i = from; i < to; i++) sum +=        \
        (x[i] - centre) * (x[i] - centre);                                                     \
      total += (double)sum;                                                                    \
    }                                                                                          \
    return total;                                                                              \
  }                                                                                            \
  /* As many columns as `run` and `total` have room for, row after row, so that x is read \
   * in order. */    \
  NEAP_MULTIVERSION static void columns_sum_##suffix(                                          \
    const type *restrict x, int64_t m, int64_t step, int64_t n, type *restrict out) {          \
    type run[COLUMNS];                                                                         \
    double total[COLUMNS];                                                                     \
    for (int64_t j = 0; j < n; j++) total[j] = 0;                                              \
    NEAP_EACH_PART(m, NEAP_RUN, from, to) {                                                    \
      for (int64_t j = 0; j < n; j++) run[j] = 0;                                              \
      for (int64_t i = from; i < to; i++)                                                      \
        for (int64_t j = 0; j < n; j++) run[j] += x[i * step + j];                             \
      for (int64_t j = 0; j < n; j++) total[j] += (double)run[j];                              \
    }                                                                                          \
    for (int64_t j = 0; j < n; j++) out[j] = (type)total[j];                                   \
  }                                                                                            \
  void neap_rows_sum_##suffix(const type *x, int64_t m, int64_t step, int64_t n, type *out) {  \
    NEAP_EACH_PART(n, COLUMNS, from, to)                                                       \
    columns_sum_##suffix(x + from, m, step, to - from, out + from);                            \
  }                                                                                            \
  NEAP_MULTIVERSION void neap_row_scale_##suffix(type *x, type factor, int64_t n) {            \
    for (int64_t i = 0; i < n; i++) x[i] *= factor;                                            \
  }
ROW(float, f32, neap_exp_f32)
ROW(double, f64, exp)
