/* ops/conv_gemm_body.h: rows of the column matrix for one type (conv_gemm.c). */

/* Row `r` of the column matrix is one tap of one channel. `into_columns` copies x there, else adds
 * it back to dx. */
NEAP_MULTIVERSION static void OF(move_row)(const job *j, int64_t r, bool into_columns) {
  const neap_window *w = &j->w;
  /* r counts the channels of the group, and in each the taps (kd,kh,kw). */
  int64_t kw = r % w->kernel[2], kh = r / w->kernel[2] % w->kernel[1],
          kd = r / w->kernel[2] / w->kernel[1] % w->kernel[0];
  T *plane = (T *)(void *)j->image + r / w->n_kernel * w->n_in; /* of x or dx */
  T *column = (T *)(void *)j->columns + r * w->n_out;
  int64_t from, to, s = w->stride[2], shift = kw * w->dilation[2] - w->begin[2];
  /* Outputs [from, to) of a row read inside x with this tap; those beside them read padding. */
  neap_window_range(w, 2, kw, 0, w->in[2], &from, &to);
  to = NEAP_MAX(from, to);
  for (int64_t od = 0; od < w->out[0]; od++)
    for (int64_t oh = 0; oh < w->out[1]; oh++, column += w->out[2]) {
      int64_t d = od * w->stride[0] - w->begin[0] + kd * w->dilation[0];
      int64_t h = oh * w->stride[1] - w->begin[1] + kh * w->dilation[1];
      bool inside = d >= 0 && d < w->in[0] && h >= 0 && h < w->in[1];
      /* plane[row + i s] is what output i reads, when inside */
      int64_t row = (d * w->in[1] + h) * w->in[2] + shift;
      if (into_columns && !inside) {
        memset(column, 0, (size_t)w->out[2] * sizeof(T));
      } else if (into_columns) {
        /* Into the columns: zeros for padding, and between them what the tap reads. */
        for (int64_t i = 0; i < NEAP_MIN(from, w->out[2]); i++) column[i] = 0;
        if (s == 1 && to > from)
          memcpy(column + from, plane + row + from, (size_t)(to - from) * sizeof(T));
        else
          for (int64_t i = from; i < to; i++) column[i] = plane[row + i * s];
        for (int64_t i = to; i < w->out[2]; i++) column[i] = 0;
      } else if (inside) {
        /* Back: each element of dx is the sum of all columns that it was copied into. */
        for (int64_t i = from; i < to; i++) plane[row + i * s] += column[i];
      }
    }
}
