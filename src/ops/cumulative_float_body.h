/* ops/cumulative_float_body.h: LogCumSumExp and LinearRecurrence for one type (cumulative.c). */

/* The sum of e^x is kept as e^most times `sum`, which never overflows. An infinity that equals
 * `most` counts 1, since its distance to it is no number. */
static void OF(log_sum)(const scan *s, int64_t at, int64_t n_column) {
  const E *x = s->call->in[0].data;
  E *y = s->call->out[0].data;
  double most[COLUMNS], sum[COLUMNS];
  for (int64_t j = 0; j < n_column; j++) most[j] = -INFINITY, sum[j] = 0;
  for (int64_t i = 0; i < s->n; i++, at += s->step)
    for (int64_t j = 0; j < n_column; j++) {
      double value = (double)WIDEN(x[at + j]);
      /* The three cases: an equal of the largest, one below it, and a new largest, to which the sum
       * shrinks. A NaN compares with nothing and comes to the last one. */
      if (value == most[j]) {
        sum[j] += 1;
      } else if (value < most[j]) {
        sum[j] += exp(value - most[j]);
      } else {
        sum[j] = sum[j] * exp(most[j] - value) + 1;
        most[j] = value;
      }
      y[at + j] = NARROW((T)(most[j] + log(sum[j])));
    }
}

/* y_i = a_i y_(i-1) + b_i, or with the coefficient of the position that is left. */
NEAP_MULTIVERSION static void OF(recur)(const scan *s, int64_t at, int64_t n_column) {
  const E *a = s->call->in[0].data, *b = s->call->in[1].data;
  E *y = s->call->out[0].data;
  /* `factor`: of the position before */
  double state[COLUMNS] = {0}, factor[COLUMNS] = {0};
  for (int64_t i = 0; i < s->n; i++, at += s->step)
#pragma GCC ivdep
    for (int64_t j = 0; j < n_column; j++) {
      double own = (double)WIDEN(a[at + j]), before = state[j];
      /* The first has none before it: nothing is multiplied by what would be 0. */
      double carried = i == 0 ? 0 : (s->by == BY_LEAVING ? factor[j] : own) * before;
      state[j] = carried + (double)WIDEN(b[at + j]);
      factor[j] = own;
      y[at + j] = NARROW((T)(s->by == BY_BEFORE ? before : state[j]));
    }
}
