/* ops/group_norm_body.h: GroupNorm and InstanceNorm for one type (group_norm.c). */

NEAP_MULTIVERSION static void OF(normalise)(const T *x, T *y, int64_t n, T mean, T scale, T shift) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * scale + shift;
}

/* Rows [begin, end): groups of channels, numbered n G + g. Statistics in two passes, as in
 * layer_norm_body.h; y may be x. */
static void OF(forward)(void *context, int64_t begin, int64_t end, float *tile) {
  const job *k = context;
  for (int64_t r = begin; r < end; r++) {
    const int64_t n = k->n_channel * k->n_space;
    const T *x = neap_row_load(k->x, r * n, 1, n, n, tile);
    T *y = neap_row_target(k->y, r * n, tile);
    const double count = (double)NEAP_MAX(n, 1);
    const T mean = (T)(OF(neap_row_sum)(x, n) / count);
    const T rstd = (T)(1 / sqrt(OF(neap_row_spread)(x, mean, n) / count + k->eps));
    /* Each channel of the group has its own gamma and beta. Rows without elements may lie nowhere:
     * nothing is counted from them. */
    const int64_t n_channel = n > 0 ? k->n_channel : 0;
    for (int64_t i = 0; i < n_channel; i++) {
      const int64_t c = r % k->n_group * k->n_channel + i, at = i * k->n_space;
      const T gamma = k->gamma != NULL ? (T)neap_number_at(k->gamma, c) : 1,
              beta = k->beta != NULL ? (T)neap_number_at(k->beta, c) : 0;
      OF(normalise)(x + at, y + at, k->n_space, mean, rstd * gamma, beta);
    }
    neap_row_store(k->y, r * n, 1, n, n, tile);
    if (k->mean != NULL) neap_number_put(k->mean, r, (double)mean);
    if (k->rstd != NULL) neap_number_put(k->rstd, r, (double)rstd);
  }
}
