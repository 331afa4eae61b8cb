/* ops/distance_body.h: sums of distances for one type (distance_loss.c), in double. */

/* Eight partial sums make vector code; they are added in a fixed order. */
NEAP_INLINE double OF(sum_distances)(const T *x, const T *y, int64_t n, double (*f)(double)) {
  double part[LANES] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) part[k] += f((double)x[i + k] - (double)y[i + k]);
  for (; i < n; i++) sum += f((double)x[i] - (double)y[i]);
  for (int k = 0; k < LANES; k++) sum += part[k];
  return sum;
}

NEAP_MULTIVERSION static double OF(sum_squares)(const T *x, const T *y, int64_t n) {
  return OF(sum_distances)(x, y, n, square);
}

NEAP_MULTIVERSION static double OF(sum_absolute)(const T *x, const T *y, int64_t n) {
  return OF(sum_distances)(x, y, n, absolute);
}
