/* ops/conv_add_bias_body.h: a bias for each channel, for one type (conv_ref.c). */

/* Blocks [begin, end) of channels, numbered image by image. The lanes behind the last channel keep
 * their zeros. */
static void OF(add_bias)(void *context, int64_t begin, int64_t end) {
  const bias_add *k = context;
  int64_t blocks = (k->n_channel + k->side - 1) / k->side;
  for (int64_t p = begin; p < end; p++) {
    int64_t first = p % blocks * k->side, n = NEAP_MIN(k->side, k->n_channel - first);
    const T *b = (const T *)k->b + first;
    T *y = (T *)k->y + p * k->side * k->n_space;
    for (int64_t i = 0; i < k->n_space; i++)
      for (int64_t c = 0; c < n; c++) y[i * k->side + c] += b[c];
  }
}
