/* ops/arg_body.h: the loop of ArgMax or ArgMin, named ARG, for one type (extreme.c): BEATS is the
 * comparison. The search ends at the first NaN: it is the extreme, and the first one counts. */
static void OF(ARG)(void *context, int64_t begin, int64_t end) {
  const arg_job *j = context;
  int64_t *out = j->call->out[0].data;
  for (int64_t o = begin; o < end; o++) {
    /* Output o is row o / inner of the outer dimensions and column o % inner; its n elements are
     * `inner` apart. */
    const E *x = (const E *)j->call->in[0].data + o / j->inner * j->n * j->inner + o % j->inner;
    T best = WIDEN(x[0]);
    int64_t at = 0;
    for (int64_t i = 1; i < j->n; i++) {
      if (IS_NAN(best)) break;
      T value = WIDEN(x[i * j->inner]);
      if (value BEATS best || IS_NAN(value)) {
        best = value;
        at = i;
      }
    }
    out[o] = at;
  }
}
