/* math/row_body.h: the rows of row.h for one type. */

/* Each loop for one type; EXP is the exponential that the compiler can put into a vector loop of it
 * (f32), or the C library's. The `omp simd` reductions allow the one change of order that vector
 * sums need; -ffast-math would allow more. */
NEAP_MULTIVERSION T OF(neap_row_max)(const T *x, int64_t n) {
  T most = (T)-INFINITY;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
  return most;
}

NEAP_MULTIVERSION T OF(neap_row_exp)(const T *x, T scale, T shift, T *y, int64_t n) {
  double total = 0;
  /* Pieces are summed in T, over the lanes of a vector, and added up in double (INVARIANT in
   * row.h). */
  NEAP_EACH_PART(n, NEAP_PIECE, from, to) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = from; i < to; i++) {
      /* x is read before y is written: they may be one. */
      T e = neap_exp(scale * x[i] - shift);
      y[i] = e;
      sum += e;
    }
    total += (double)sum;
  }
  return (T)total;
}

NEAP_MULTIVERSION T OF(neap_row_exp_rest)(const T *x, T most, int64_t n) {
  double total = 0;
  T ties = 0;
  NEAP_EACH_PART(n, NEAP_PIECE, from, to) {
    T rest = 0;
#pragma omp simd reduction(+ : rest, ties)
    for (int64_t i = from; i < to; i++) {
      /* An element that equals the maximum gives exactly 1. It is counted apart, so that small
       * terms are not added to it here. */
      T tie = x[i] == most ? 1 : 0;
      rest += neap_exp(x[i] - most) - tie;
      ties += tie;
    }
    total += (double)rest;
  }
  /* The largest is 1 itself and is left out; equal ones are 1 each. */
  return (T)(total + (double)(ties - 1));
}

NEAP_MULTIVERSION T OF(neap_row_dot)(const T *x, const T *y, int64_t n) {
  double total = 0;
  NEAP_EACH_PART(n, NEAP_PIECE, from, to) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = from; i < to; i++) sum += x[i] * y[i];
    total += (double)sum;
  }
  return (T)total;
}

/* Of what f32 adds up to infinity: the sum may be a number all the same, or its root. */
static double OF(wide_sum)(const T *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)x[i];
  return sum;
}

static double OF(wide_spread)(const T *x, T centre, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    const double d = (double)x[i] - (double)centre;
    sum += d * d;
  }
  return sum;
}

NEAP_MULTIVERSION double OF(neap_row_sum)(const T *x, int64_t n) {
  double total = 0;
  NEAP_EACH_PART(n, NEAP_PIECE, from, to) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = from; i < to; i++) sum += x[i];
    total += isfinite(sum) ? (double)sum : OF(wide_sum)(x + from, to - from);
  }
  return total;
}

NEAP_MULTIVERSION double OF(neap_row_spread)(const T *x, T centre, int64_t n) {
  double total = 0;
  NEAP_EACH_PART(n, NEAP_PIECE, from, to) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = from; i < to; i++) sum += (x[i] - centre) * (x[i] - centre);
    total += isfinite(sum) ? (double)sum : OF(wide_spread)(x + from, centre, to - from);
  }
  return total;
}

/* As many columns as `run` and `total` have room for, row after row, so that x is read
 * in order. */
NEAP_MULTIVERSION static void OF(columns_sum)(const T *restrict x, int64_t m, int64_t step,
                                              int64_t n, T *restrict out) {
  T run[COLUMNS];
  double total[COLUMNS];
  /* Runs of rows are summed in T and added up in double. */
  for (int64_t j = 0; j < n; j++) total[j] = 0;
  NEAP_EACH_PART(m, NEAP_RUN, from, to) {
    for (int64_t j = 0; j < n; j++) run[j] = 0;
    for (int64_t i = from; i < to; i++)
      for (int64_t j = 0; j < n; j++) run[j] += x[i * step + j];
    for (int64_t j = 0; j < n; j++) total[j] += (double)run[j];
  }
  for (int64_t j = 0; j < n; j++) out[j] = (T)total[j];
}

void OF(neap_rows_sum)(const T *x, int64_t m, int64_t step, int64_t n, T *out) {
  NEAP_EACH_PART(n, COLUMNS, from, to)
  OF(columns_sum)(x + from, m, step, to - from, out + from);
}

NEAP_MULTIVERSION void OF(neap_row_scale)(T *x, T factor, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] *= factor;
}
