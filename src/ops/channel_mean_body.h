/* ops/channel_mean_body.h: the mean over a window of channels, for one type (lrn.c). */

/* Planes [begin, end) of y, numbered n C + c: the channels of the window in their order. Of halves
 * a tile of the plane at a time, which is summed in f32 and rounded once. */
NEAP_MULTIVERSION static void OF(channel_mean)(void *context, int64_t begin, int64_t end) {
  const mean_job *k = context;
  float wide[NEAP_TILE], sums[NEAP_TILE];
  for (int64_t p = begin; p < end; p++) {
    const int64_t c = p % k->n_channel, first = NEAP_MAX(c - k->before, 0),
                  last = NEAP_MIN(c + k->after, k->n_channel - 1);
    int64_t n;
    for (int64_t at = 0; at < k->n_space; at += n) {
      n = neap_tile_elems(k->x, k->n_space - at);
      T *y = neap_row_target(k->y, p * k->n_space + at, sums);

      /* Channel by channel over all positions at hand, so that each loop is dense. */
      for (int64_t i = 0; i < n; i++) y[i] = 0;
      for (int64_t from = first; from <= last; from++) {
        const T *x = neap_tile_load(k->x, (p - c + from) * k->n_space + at, n, wide);
        for (int64_t i = 0; i < n; i++) y[i] += x[i];
      }
      for (int64_t i = 0; i < n; i++) y[i] *= (T)k->share;
      neap_row_store(k->y, p * k->n_space + at, 1, n, n, sums);
    }
  }
}
