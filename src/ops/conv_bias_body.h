/* ops/conv_bias_body.h: the gradient of a bias for one type (conv_ref.c). */

/* Blocks [begin, end) of channels. A block's positions times its channels are one stretch of an
 * image, seen as rows of `width` elements, a multiple of `side`; what is left of the last row is
 * added by itself. Images are added in double. */
static void OF(sum_bias)(void *context, int64_t begin, int64_t end) {
  const bias_sum *k = context;
  int64_t blocks = (k->o + k->side - 1) / k->side, stretch = k->side * k->l;
  int64_t width = NEAP_MAX(LANES / k->side, 1) * k->side, rows = stretch / width,
          rest = stretch % width;
  for (int64_t b = begin; b < end; b++)
    for (int64_t first = 0; first < k->side; first += LANES) {
      int64_t n_side = NEAP_MIN(k->side - first, LANES), n_sum = k->side <= LANES ? width : n_side;
      double total[LANES] = {0};
      T sum[LANES];
      /* Of more channels than a row of sums has, so many at a time. */
      for (int64_t i = 0; i < k->n; i++) {
        const T *dy = (const T *)k->dy->data + (i * blocks + b) * stretch + first;
        if (k->side == 1) {
          total[0] += OF(neap_row_sum)(dy, k->l);
          continue;
        }
        /* Several positions of a block in one row of sums, folded onto its channels. */
        OF(neap_rows_sum)(dy, rows, width, n_sum, sum);
        for (int64_t j = 0; j < n_sum; j++) total[j % n_side] += (double)sum[j];
        OF(neap_rows_sum)(dy + rows * width, rest > 0, width, NEAP_MIN(rest, n_sum), sum);
        for (int64_t j = 0; j < NEAP_MIN(rest, n_sum); j++) total[j % n_side] += (double)sum[j];
      }
      /* Padding channels have no bias. */
      for (int64_t j = 0; j < NEAP_MIN(n_side, k->o - b * k->side - first); j++)
        ((T *)k->db->data)[b * k->side + first + j] = (T)total[j];
    }
}
