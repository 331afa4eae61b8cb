/* ops/extreme_grad_body.h: the backward of Max and Min for one type (extreme.c). */

/* dx = x == y ? dy / (number of such x) : 0, for outputs [begin, end): once to count, once to
 * write. */
static void OF(spread)(void *context, int64_t begin, int64_t end) {
  const spread_job *j = context;
  const neap_reduce_walk *w = &j->walk;
  const E *x = j->call->in[0].data, *y = j->call->in[1].data, *dy = j->call->in[2].data;
  E *dx = j->call->out[0].data;
  int last = w->n_reduced - 1;
  int64_t n = w->reduced[last], step = w->reduced_stride[last], n_row = n == 0 ? 0 : w->count / n;
  for (int64_t o = begin; o < end; o++) {
    int64_t base = neap_reduce_offset(w->n_kept, w->kept, w->kept_stride, o), n_tie = 0;
    /* The elements that are the extreme share its gradient evenly: their number comes first. */
    const T best = WIDEN(y[o]);
    for (int64_t r = 0; r < n_row; r++) {
      const E *from = x + base + neap_reduce_offset(last, w->reduced, w->reduced_stride, r);
      for (int64_t i = 0; i < n; i++) n_tie += WIDEN(from[i * step]) == best;
    }
    /* NaN equals nothing, so that there may be none. */
    const T share = WIDEN(dy[o]) / (T)NEAP_MAX(n_tie, 1);
    for (int64_t r = 0; r < n_row; r++) {
      int64_t at = base + neap_reduce_offset(last, w->reduced, w->reduced_stride, r);
      for (int64_t i = 0; i < n; i++)
        dx[at + i * step] = NARROW(WIDEN(x[at + i * step]) == best ? share : 0);
    }
  }
}
