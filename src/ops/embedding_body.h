/* ops/embedding_body.h: EmbeddingGrad for one type (embedding.c). */

/* out (n) = sum of the rows order[0], .., order[count - 1] of dy, `step` elements apart, from
 * column `at` on. */
NEAP_MULTIVERSION static void OF(add)(const neap_operand *dy, const int64_t *order, int64_t count,
                                      int64_t step, int64_t at, int64_t n, T *restrict out) {
  double total[COLUMNS];
  float tile[COLUMNS];
  for (int64_t j = 0; j < n; j++) out[j] = 0;
  if (count > NEAP_RUN)
    for (int64_t j = 0; j < n; j++) total[j] = 0;
  /* Few terms are summed in T; of more, runs of them are added up in double. */
  NEAP_EACH_PART(count, NEAP_RUN, from, to) {
    for (int64_t i = from; i < to; i++) {
      const T *row = neap_row_load(dy, order[i] * step + at, 1, n, n, tile);
      for (int64_t j = 0; j < n; j++) out[j] += row[j];
    }
    if (count <= NEAP_RUN) return;
    for (int64_t j = 0; j < n; j++) total[j] += (double)out[j], out[j] = 0;
  }
  if (count > NEAP_RUN)
    for (int64_t j = 0; j < n; j++) out[j] = (T)total[j];
}

/* Columns [begin, end) of all rows. */
static void OF(add_rows)(void *context, int64_t begin, int64_t end) {
  const job *k = context;
  const neap_operand *dy = &k->call->in[1], *dw = &k->call->out[0];
  float tile[COLUMNS];
  for (int64_t v = 0; v < k->n_row; v++) {
    int64_t first = v == 0 ? 0 : k->end[v - 1], count = k->end[v] - first;
    NEAP_EACH_PART(end - begin, COLUMNS, from, to) {
      int64_t column = begin + from, n = to - from, at = v * k->row_elems + column;
      OF(add)
      (dy, k->order + first, count, k->row_elems, column, n, neap_row_target(dw, at, tile));
      neap_row_store(dw, at, 1, n, n, tile);
    }
  }
}
