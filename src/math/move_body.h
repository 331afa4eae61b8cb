/* math/move_body.h: the innermost loops of a copy for elements of one width (move.c). */

/* One row of k->n elements: by memcpy where both sides are dense, as a fill where the source
 * repeats. */
static void OF(row)(const inner *k, const void *from, void *to) {
  const T *restrict in = from;
  T *restrict out = to;
  if (k->in_stride == 1 && k->out_stride == 1) {
    memcpy(out, in, (size_t)k->n * sizeof *out);
  } else if (k->in_stride == 0 && k->out_stride == 1) {
    T x = *in;
    for (int64_t i = 0; i < k->n; i++) out[i] = x;
  } else {
    for (int64_t i = 0; i < k->n; i++) out[i * k->out_stride] = in[i * k->in_stride];
  }
}

static void OF(rows)(const inner *k, const void *from, void *to) {
  const T *restrict in = from;
  T *restrict out = to;
  if (k->n_row == 1) {
    OF(row)(k, in, out);
    return;
  }
  /* Short rows: a call of memcpy would cost more than they take. */
  for (int64_t r = 0; r < k->n_row; r++, in += k->in_step, out += k->out_step)
    for (int64_t i = 0; i < k->n; i++) out[i * k->out_stride] = in[i * k->in_stride];
}

/* A tile of any size, element by element: what is left of a tile at the box's edge, and all tiles
 * of widths that have no register transpose. */
static void OF(corner)(const T *in, int64_t in_stride, T *out, int64_t out_stride, int64_t rows,
                       int64_t columns) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) out[i * out_stride + j] = in[j * in_stride + i];
}
