/* ops/cumulative_extreme_body.h: CumMax or CumMin, named EXTREME, for one type (cumulative.c):
 * BEATS is the comparison, which holds for equals too: the last of them counts. Nothing follows a
 * NaN but another one. */
static void OF(EXTREME)(const scan *s, int64_t at, int64_t n_column) {
  const E *x = s->call->in[0].data;
  E *y = s->call->out[0].data;
  int64_t *indices = s->call->out[1].data, place[COLUMNS];
  E best[COLUMNS];
  /* Columns that lie side by side go together, so that memory is read in its order. */
  for (int64_t i = 0; i < s->n; i++, at += s->step)
    for (int64_t j = 0; j < n_column; j++) {
      T value = WIDEN(x[at + j]);
      /* A NaN replaces what is there, and only another NaN replaces it. */
      if (i == 0 || IS_NAN(value) || (!IS_NAN(WIDEN(best[j])) && value BEATS WIDEN(best[j]))) {
        best[j] = x[at + j];
        place[j] = i;
      }
      y[at + j] = best[j];
      indices[at + j] = place[j];
    }
}
