/* ops/cumulative_body.h: CumSum or CumProd, named CUMULATIVE, for one type (cumulative.c): U is
 * what is computed in, NEUTRAL where it begins and OPERATION what it goes on by. Integers wrap
 * around, so they are computed unsigned. */
NEAP_MULTIVERSION static void OF(CUMULATIVE)(const scan *s, int64_t at, int64_t n_column) {
  const E *x = s->call->in[0].data;
  E *y = s->call->out[0].data;
  U total[COLUMNS];
  for (int64_t j = 0; j < n_column; j++) total[j] = NEUTRAL;
  for (int64_t i = 0; i < s->n; i++, at += s->step) {
#pragma GCC ivdep
    for (int64_t j = 0; j < n_column; j++) {
      /* Read before it is written: y may be x. */
      U before = total[j];
      total[j] = before OPERATION(U) WIDEN(x[at + j]);
      y[at + j] = NARROW((T)(s->exclusive ? before : total[j]));
    }
  }
}
