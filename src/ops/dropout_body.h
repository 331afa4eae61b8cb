/* ops/dropout_body.h: what Dropout does to elements for one type (dropout.c). */

/* y = keep ? scale x : 0, for n elements from `at`. */
NEAP_MULTIVERSION static void OF(apply)(const job *j, int64_t at, int64_t n,
                                        const uint8_t *restrict keep) {
  const T *x = (const T *)j->x + at;
  T *y = (T *)j->y + at;
  const T scale = (T)j->scale;
#pragma GCC ivdep
  for (int64_t k = 0; k < n; k++) y[k] = keep[k] != 0 ? x[k] * scale : 0;
}
