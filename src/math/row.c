/* row.c: reductions over one dense row. See row.h. */
#include "math/row.h"

#include "math/vec.h"

/* Each loop for one type; EXP is the exponential that the compiler can put into a vector loop of it (f32), or the C
 * library's. The `omp simd` reductions allow the one change of order that vector sums need; -ffast-math would allow
 * more. */
#define ROW(type, suffix, EXP)                                                                                  \
  NEAP_MULTIVERSION type neap_row_max_##suffix(const type *x, int64_t n) {                                      \
    type most = (type)-INFINITY;                                                                                \
    _Pragma("omp simd reduction(max : most)") for (int64_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most; \
    return most;                                                                                                \
  }                                                                                                             \
  NEAP_MULTIVERSION type neap_row_exp_##suffix(const type *x, type scale, type shift, type *y, int64_t n) {     \
    type sum = 0;                                                                                               \
    _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) {                                    \
      type e = EXP(scale * x[i] - shift);                                                                       \
      y[i] = e;                                                                                                 \
      sum += e;                                                                                                 \
    }                                                                                                           \
    return sum;                                                                                                 \
  }                                                                                                             \
  NEAP_MULTIVERSION type neap_row_exp_rest_##suffix(const type *x, type most, int64_t n) {                      \
    type rest = 0, ties = 0;                                                                                    \
    _Pragma("omp simd reduction(+ : rest, ties)") for (int64_t i = 0; i < n; i++) {                             \
      type tie = x[i] == most ? 1 : 0;                                                                          \
      rest += EXP(x[i] - most) - tie;                                                                           \
      ties += tie;                                                                                              \
    }                                                                                                           \
    return rest + (ties - 1);                                                                                   \
  }                                                                                                             \
  NEAP_MULTIVERSION type neap_row_dot_##suffix(const type *x, const type *y, int64_t n) {                       \
    type sum = 0;                                                                                               \
    _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];                  \
    return sum;                                                                                                 \
  }                                                                                                             \
  NEAP_MULTIVERSION void neap_row_scale_##suffix(type *x, type factor, int64_t n) {                             \
    for (int64_t i = 0; i < n; i++) x[i] *= factor;                                                             \
  }
ROW(float, f32, neap_exp_f32)
ROW(double, f64, exp)
