/* ops/squares_body.h: the sum of squares for one type (clip_norm.c), in double and in lanes. */
NEAP_MULTIVERSION static double OF(squares)(const T *x, int64_t n) {
  double part[LANES] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) part[k] += (double)x[i + k] * (double)x[i + k];
  for (; i < n; i++) sum += (double)x[i] * (double)x[i];
  for (int k = 0; k < LANES; k++) sum += part[k];
  return sum;
}
