/* ops/scatter_body.h: how a scatter combines a row with those whose places name it, for one type T
 * (scatter.c). A: what is added up and multiplied in. ADD: in T, integers wrapping around.
 */

/* Row i of the places `order`, n elements from column `column` on. */
static const T *OF(update)(const scatter *s, int64_t place, int64_t column, int64_t n,
                           float *tile) {
  return neap_row_load(s->updates, place * s->places->row_elems + column, 1, n, n, tile);
}

/* out (n) += the rows. Few are added up in T; of more, runs of them in A. */
NEAP_MULTIVERSION static void OF(add)(const scatter *s, const int64_t *order, int64_t count,
                                      int64_t column, int64_t n, T *restrict out) {
  A total[COLUMNS];
  float tile[COLUMNS];
  if (count > NEAP_RUN)
    for (int64_t j = 0; j < n; j++) total[j] = 0;
  NEAP_EACH_PART(count, NEAP_RUN, from, to) {
    for (int64_t i = from; i < to; i++) {
      const T *row = OF(update)(s, order[i], column, n, tile);
      for (int64_t j = 0; j < n; j++) out[j] = ADD(out[j], row[j]);
    }
    /* Few rows: they are in `out` already. Of more, the run goes to the total and `out` begins
     * again. */
    if (count <= NEAP_RUN) return;
    for (int64_t j = 0; j < n; j++) total[j] += (A)out[j], out[j] = 0;
  }
  for (int64_t j = 0; j < n; j++) out[j] = (T)total[j];
}

/* out (n) = the mean of the rows, whose sum may be too large for T. */
static void OF(average)(const scatter *s, const int64_t *order, int64_t count, int64_t column,
                        int64_t n, T *restrict out) {
  A total[COLUMNS];
  float tile[COLUMNS];
  for (int64_t j = 0; j < n; j++) total[j] = 0;
  for (int64_t i = 0; i < count; i++) {
    const T *row = OF(update)(s, order[i], column, n, tile);
    for (int64_t j = 0; j < n; j++) total[j] += (A)row[j];
  }
  for (int64_t j = 0; j < n; j++) out[j] = (T)(total[j] / (A)count);
}

/* out (n) times the rows, rounded once. */
static void OF(multiply)(const scatter *s, const int64_t *order, int64_t count, int64_t column,
                         int64_t n, T *restrict out) {
  A total[COLUMNS];
  float tile[COLUMNS];
  for (int64_t j = 0; j < n; j++) total[j] = (A)out[j];
  for (int64_t i = 0; i < count; i++) {
    const T *row = OF(update)(s, order[i], column, n, tile);
    for (int64_t j = 0; j < n; j++) total[j] *= (A)row[j];
  }
  for (int64_t j = 0; j < n; j++) out[j] = (T)total[j];
}

/* out (n), or what is less in the rows, or greater. A NaN wins. */
static void OF(choose)(const scatter *s, const int64_t *order, int64_t count, int64_t column,
                       int64_t n, T *restrict out) {
  float tile[COLUMNS];
  for (int64_t i = 0; i < count; i++) {
    const T *row = OF(update)(s, order[i], column, n, tile);
    if (s->how == NEAP_SCATTER_MIN)
      for (int64_t j = 0; j < n; j++) out[j] = row[j] < out[j] || IS_NAN(row[j]) ? row[j] : out[j];
    else
      for (int64_t j = 0; j < n; j++) out[j] = row[j] > out[j] || IS_NAN(row[j]) ? row[j] : out[j];
  }
}

/* n elements of one row, from element `at` on: what the table has there, then the rows. */
static void OF(combine)(const scatter *s, const int64_t *order, int64_t count, int64_t at,
                        int64_t column, int64_t n) {
  float tile[COLUMNS];
  T *out = neap_row_target(s->out, at, tile);
  /* Widened, the table's row is in the tile already; over the table, it is in its place. */
  const T *row = s->table == NULL ? NULL : neap_row_load(s->table, at, 1, n, n, tile);
  /* Without a table, what is chosen among is the rows alone. */
  if (row == NULL && s->how == NEAP_SCATTER_MAX) {
    row = OF(update)(s, order[0], column, n, tile);
    order++;
    count--;
  }
  if (row == NULL)
    neap_clear_bytes(out, (size_t)n * sizeof *out);
  else if (row != out)
    neap_copy_bytes(out, row, (size_t)n * sizeof *out);

  switch (s->how) {
    case NEAP_SCATTER_MEAN: OF(average)(s, order, count, column, n, out); break;
    case NEAP_SCATTER_ADD: OF(add)(s, order, count, column, n, out); break;
    case NEAP_SCATTER_MUL: OF(multiply)(s, order, count, column, n, out); break;
    default: OF(choose)(s, order, count, column, n, out); break;
  }
  neap_row_store(s->out, at, 1, n, n, tile);
}
