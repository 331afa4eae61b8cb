/* ops/lrn_body.h: Lrn for one type (lrn.c). */

/* The steps of a tile, n elements each: q squares (in the backward, later, t = dy x r / s), s sums
 * of windows, r = s^-beta, u scaled sums of t. Powers: 3/4, of the papers, without logarithms. */
NEAP_MULTIVERSION static void OF(powers)(const T *s, T *r, double beta, int64_t n) {
  if (beta == 0.75) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) r[i] = 1 / (sqrt(s[i]) * sqrt(sqrt(s[i])));
  } else {
    for (int64_t i = 0; i < n; i++) r[i] = pow(s[i], (T)-beta);
  }
}

/* sum[i] = shift + scale * (q[i] + q[i + P] + ...), `size` terms. */
NEAP_MULTIVERSION static void OF(window_sums)(const T *q, T *sum, T shift, T scale, int64_t size,
                                              int64_t tile, int64_t n) {
  for (int64_t i = 0; i < n; i++) sum[i] = q[i];
  for (int64_t k = 1; k < size; k++)
    for (int64_t i = 0; i < n; i++) sum[i] += q[i + k * tile];
  for (int64_t i = 0; i < n; i++) sum[i] = shift + scale * sum[i];
}

NEAP_MULTIVERSION static void OF(squares)(const T *x, T *q, int64_t n) {
  for (int64_t i = 0; i < n; i++) q[i] = x[i] * x[i];
}

NEAP_MULTIVERSION static void OF(scale)(const T *x, const T *r, T *y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = x[i] * r[i];
}

NEAP_MULTIVERSION static void OF(quotient)(const T *x, const T *dy, const T *r, const T *s, T *t,
                                           int64_t n) {
  for (int64_t i = 0; i < n; i++) t[i] = dy[i] * x[i] * r[i] / s[i];
}

NEAP_MULTIVERSION static void OF(gradient)(const T *x, const T *dy, const T *r, const T *u, T *dx,
                                           int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * r[i] - x[i] * u[i];
}

/* The tile that begins at element `at` of x, `width` positions wide. Rows of x are
 * dense: block channels of one position, or one channel of `width`. */
static void OF(tile)(const job *k, int64_t at, int64_t width, T *scratch) {
  const T *x = (const T *)k->x + at, *dy = k->dy == NULL ? NULL : (const T *)k->dy + at;
  T *out = (T *)k->out + at;
  int64_t n = k->n_channel * width, whole = n + (k->size - 1) * width, step = k->n_space * k->block;
  T *q = scratch, *s = q + whole, *r = s + whole;
  for (int64_t i = 0; i < k->before * width; i++) q[i] = 0;
  for (int64_t i = n + k->before * width; i < whole; i++) q[i] = 0;
  for (int64_t c = 0; c < k->n_channel; c += k->block) OF(squares)
  (x + c / k->block * step, q + (k->before + c) * width,
   NEAP_MIN(k->block, k->n_channel - c) * width);
  OF(window_sums)(q, s, (T)k->bias, (T)k->alpha, k->size, width, n);
  OF(powers)(s, r, k->beta, n);
  if (dy != NULL) { /* channel c is in the windows of c - after .. c + before */
    for (int64_t i = 0; i < k->after * width; i++) q[i] = 0;
    for (int64_t i = n + k->after * width; i < whole; i++) q[i] = 0;
    for (int64_t c = 0; c < k->n_channel; c += k->block) OF(quotient)
    (x + c / k->block * step, dy + c / k->block * step, r + c * width, s + c * width,
     q + (k->after + c) * width, NEAP_MIN(k->block, k->n_channel - c) * width);
    OF(window_sums)(q, s, 0, (T)(2 * k->alpha * k->beta), k->size, width, n);
  }
  for (int64_t c = 0; c < k->n_channel; c += k->block) {
    int64_t row = c / k->block * step, lanes = NEAP_MIN(k->block, k->n_channel - c) * width;
    if (dy == NULL)
      OF(scale)(x + row, r + c * width, out + row, lanes);
    else
      OF(gradient)(x + row, dy + row, r + c * width, s + c * width, out + row, lanes);
    for (int64_t j = lanes; j < k->block; j++) out[row + j] = 0; /* lanes beyond the last channel */
  }
}

/* Parts [begin, end) of n_part equal shares of all tiles. */
static void OF(parts)(void *context, int64_t begin, int64_t end) {
  const job *k = context;
  size_t bytes = part_bytes(k, sizeof(T) == 8 ? NEAP_DTYPE_F64 : NEAP_DTYPE_F32);
  int64_t per_image = (k->n_space + k->tile - 1) / k->tile, n_tile = k->n_image * per_image;
  int64_t image_elems = (k->n_channel + k->block - 1) / k->block * k->block * k->n_space;
  for (int64_t part = begin; part < end; part++)
    for (int64_t i = part * n_tile / k->n_part; i < (part + 1) * n_tile / k->n_part; i++) {
      int64_t p = i % per_image * k->tile;
      OF(tile)
      (k, i / per_image * image_elems + p * k->block, NEAP_MIN(k->tile, k->n_space - p),
       (T *)(void *)(k->scratch + (size_t)part * bytes));
    }
}
