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

/* Zeros around the n elements of q that begin at `margin`: for neighbours that are no channels. */
static void OF(clear_margins)(T *q, int64_t margin, int64_t n, int64_t whole) {
  for (int64_t i = 0; i < margin; i++) q[i] = 0;
  for (int64_t i = n + margin; i < whole; i++) q[i] = 0;
}

/* The tile that begins at element `at` of x, `width` positions wide. Its pieces, `piece` elements
 * each, are dense: block channels of one position, or one channel of `width`. The last of a block
 * has padding lanes. */
static void OF(tile)(const job *k, int64_t at, int64_t width, T *scratch) {
  const int64_t n = k->n_channel * width, whole = n + (k->size - 1) * width;
  const int64_t piece = k->block * width, far = k->n_space * k->block, many = n_piece(k);
  T *q = scratch, *s = q + whole, *r = s + whole;

  /* Where the pieces are read and written, `step` apart. What is made of a half replaces the tile
   * that it is made of: dy, or x in the forward. */
  float *wide = NULL, *wide_dy = NULL;
  if (neap_is_half(k->x->type.dtype)) {
    wide = (float *)(void *)(scratch + buffer_elems(k));
    wide_dy = wide + wide_elems(k);
  }
  const T *x = neap_row_load(k->x, at, many, far, piece, wide), *dy = NULL;
  if (k->dy != NULL) dy = neap_row_load(k->dy, at, many, far, piece, wide_dy);
  float *made = dy == NULL ? wide : wide_dy;
  T *out = neap_row_target(k->out, at, made);
  const int64_t step = neap_row_step(k->x, far, piece);

  /* Squares, the sums over windows, their powers. */
  OF(clear_margins)(q, k->before * width, n, whole);
  for (int64_t c = 0, row = 0; c < k->n_channel; c += k->block, row += step) {
    int64_t lanes = NEAP_MIN(k->block, k->n_channel - c) * width;
    OF(squares)(x + row, q + (k->before + c) * width, lanes);
  }
  OF(window_sums)(q, s, (T)k->bias, (T)k->alpha, k->size, width, n);
  OF(powers)(s, r, k->beta, n);

  /* In the backward, sums of quotients: channel c is in the windows of c - after .. c + before. */
  if (dy != NULL) {
    OF(clear_margins)(q, k->after * width, n, whole);
    for (int64_t c = 0, row = 0; c < k->n_channel; c += k->block, row += step) {
      int64_t lanes = NEAP_MIN(k->block, k->n_channel - c) * width;
      T *t = q + (k->after + c) * width;
      OF(quotient)(x + row, dy + row, r + c * width, s + c * width, t, lanes);
    }
    OF(window_sums)(q, s, 0, (T)(2 * k->alpha * k->beta), k->size, width, n);
  }

  /* What comes out, with zeros in the lanes beyond the last channel. */
  for (int64_t c = 0, row = 0; c < k->n_channel; c += k->block, row += step) {
    int64_t lanes = NEAP_MIN(k->block, k->n_channel - c) * width;
    if (dy == NULL)
      OF(scale)(x + row, r + c * width, out + row, lanes);
    else
      OF(gradient)(x + row, dy + row, r + c * width, s + c * width, out + row, lanes);
    for (int64_t i = lanes; i < piece; i++) out[row + i] = 0;
  }
  neap_row_store(k->out, at, many, far, piece, made);
}

/* Parts [begin, end) of n_part equal shares of all tiles. */
static void OF(parts)(void *context, int64_t begin, int64_t end) {
  const job *k = context;
  size_t bytes = part_bytes(k, k->x->type.dtype, k->dy == NULL ? 1 : 2);
  int64_t per_image = (k->n_space + k->tile - 1) / k->tile, n_tile = k->n_image * per_image;
  int64_t image_elems = n_piece(k) * k->block * k->n_space;
  for (int64_t part = begin; part < end; part++)
    for (int64_t i = part * n_tile / k->n_part; i < (part + 1) * n_tile / k->n_part; i++) {
      int64_t p = i % per_image * k->tile, at = i / per_image * image_elems + p * k->block;
      T *scratch = (T *)(void *)(k->scratch + (size_t)part * bytes);
      OF(tile)(k, at, NEAP_MIN(k->tile, k->n_space - p), scratch);
    }
}
