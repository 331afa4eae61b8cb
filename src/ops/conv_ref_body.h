/* ops/conv_ref_body.h: rows of the plain convolution for one type (conv_ref.c). */

/* The unit step is spelled out: the compiler makes contiguous loads of it. dot keeps eight sums for
 * the same reason. */
NEAP_MULTIVERSION static void OF(gather)(double *sum, const void *data, int64_t at, int64_t step,
                                         double scale, int64_t n) {
  const T *x = (const T *)data + at;
  if (step == 1)
    for (int64_t i = 0; i < n; i++) sum[i] += scale * (double)x[i];
  else
    for (int64_t i = 0; i < n; i++) sum[i] += scale * (double)x[i * step];
}

NEAP_MULTIVERSION static void OF(scatter)(double *sum, int64_t step, const void *data, int64_t at,
                                          double scale, int64_t n) {
  const T *x = (const T *)data + at;
  if (step == 1)
    for (int64_t i = 0; i < n; i++) sum[i] += scale * (double)x[i];
  else
    for (int64_t i = 0; i < n; i++) sum[i * step] += scale * (double)x[i];
}

NEAP_MULTIVERSION static double OF(dot)(const void *data_a, int64_t at_a, const void *data_b,
                                        int64_t at_b, int64_t step, int64_t n) {
  const T *a = (const T *)data_a + at_a, *b = (const T *)data_b + at_b;
  double sum[8] = {0};
  int64_t i = 0;
  /* Eight sums at once, in one order for either step, so that the bits are the same. */
  if (step == 1)
    for (; i + 8 <= n; i += 8)
      for (int64_t l = 0; l < 8; l++) sum[l] += (double)a[i + l] * (double)b[i + l];
  for (; i + 8 <= n; i += 8)
    for (int64_t l = 0; l < 8; l++) sum[l] += (double)a[i + l] * (double)b[(i + l) * step];
  for (; i < n; i++) sum[0] += (double)a[i] * (double)b[i * step];
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static void OF(store)(void *data, int64_t at, const double *sum, int64_t n) {
  T *y = (T *)data + at;
  for (int64_t i = 0; i < n; i++) y[i] = (T)sum[i];
}

static double OF(get)(const void *x, int64_t at) { return (double)((const T *)x)[at]; }
static const row_functions OF(rows) = {OF(gather), OF(scatter), OF(dot), OF(store), OF(get)};
