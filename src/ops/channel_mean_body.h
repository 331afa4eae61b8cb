/* ops/channel_mean_body.h: the mean over a window of channels, for one type (lrn.c). */

/* Planes [begin, end) of y, numbered n C + c: the channels of the window in their order. */
NEAP_MULTIVERSION static void OF(channel_mean)(void *context, int64_t begin, int64_t end) {
  const mean_job *k = context;
  for (int64_t p = begin; p < end; p++) {
    const int64_t c = p % k->n_channel, first = NEAP_MAX(c - k->before, 0),
                  last = NEAP_MIN(c + k->after, k->n_channel - 1);
    const T *x = (const T *)k->x + (p - c) * k->n_space;
    T *y = (T *)k->y + p * k->n_space;
    /* Channel by channel over the whole plane, so that each loop is dense. */
    for (int64_t i = 0; i < k->n_space; i++) y[i] = 0;
    for (int64_t from = first; from <= last; from++)
      for (int64_t i = 0; i < k->n_space; i++) y[i] += x[from * k->n_space + i];
    for (int64_t i = 0; i < k->n_space; i++) y[i] *= (T)k->share;
  }
}
