/* ops/pad_grad_body.h: PadGrad for one type of elements (pad.c). */

/* Elements [begin, end) of dx: what arrives at all places that show one, a list for each dimension,
 * in double. */
static void OF(add_shown)(void *context, int64_t begin, int64_t end) {
  const grad_job *k = context;
  const E *dy = k->call->in[0].data;
  E *dx = k->call->out[0].data;
  int n_dim = k->f.n_dim;
  int64_t from[NEAP_MAX_DIM], to[NEAP_MAX_DIM], at[NEAP_MAX_DIM];
  for (int64_t i = begin; i < end; i++) {
    double sum = 0;
    bool more = lists_of(k, i, from, to);
    for (int d = 0; d < n_dim; d++) at[d] = from[d];
    /* All combinations, the last dimension fastest. */
    while (more) {
      /* The lists of a dimension say where in dy its position is shown. */
      int64_t place = 0;
      for (int d = 0; d < n_dim; d++) place += k->order[d][at[d]] * k->stride[d];
      sum += (double)WIDEN(dy[place]);
      more = false;
      for (int d = n_dim - 1; d >= 0 && !more; d--) {
        more = ++at[d] < to[d];
        if (!more) at[d] = from[d];
      }
    }
    dx[i] = NARROW((T)sum);
  }
}
