/* ops/dropout_body.h: what Dropout does to elements for one type (dropout.c). */

/* y = keep ? scale x : 0, for n elements. y may be x. */
NEAP_MULTIVERSION static void OF(apply)(const T *x, T *y, T scale, int64_t n,
                                        const uint8_t *restrict keep) {
#pragma GCC ivdep
  for (int64_t k = 0; k < n; k++) y[k] = keep[k] != 0 ? x[k] * scale : 0;
}
