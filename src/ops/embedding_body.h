/* ops/embedding_body.h: EmbeddingGrad for one type (embedding.c). */

/* out (n) = sum of the rows order[0], .., order[count - 1] of dy, `step` elements apart. */
NEAP_MULTIVERSION static void OF(add)(const T *dy, const int64_t *order, int64_t count,
                                      int64_t step, int64_t n, T *restrict out) {
  double total[COLUMNS];
  for (int64_t j = 0; j < n; j++) out[j] = 0;
  if (count > NEAP_RUN)
    for (int64_t j = 0; j < n; j++) total[j] = 0;
  NEAP_EACH_PART(count, NEAP_RUN, from, to) {
    for (int64_t i = from; i < to; i++)
      for (int64_t j = 0; j < n; j++) out[j] += dy[order[i] * step + j];
    if (count <= NEAP_RUN) return;
    for (int64_t j = 0; j < n; j++) total[j] += (double)out[j], out[j] = 0;
  }
  if (count > NEAP_RUN)
    for (int64_t j = 0; j < n; j++) out[j] = (T)total[j];
}

/* Columns [begin, end) of all rows. */
static void OF(add_rows)(void *context, int64_t begin, int64_t end) {
  const job *k = context;
  const T *dy = (const T *)(const void *)k->from;
  T *dw = (T *)(void *)k->to;
  for (int64_t v = 0; v < k->n_row; v++) {
    int64_t first = v == 0 ? 0 : k->end[v - 1], count = k->end[v] - first;
    NEAP_EACH_PART(end - begin, COLUMNS, from, to)
    OF(add)
    (dy + begin + from, k->order + first, count, k->row_elems, to - from,
     dw + v * k->row_elems + begin + from);
  }
}
