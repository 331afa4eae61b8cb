/* ops/sgd_body.h: rows of Sgd for one type (sgd.c): inputs w, g and m, outputs w and m. Each
 * element is read before it is written, in place or not. */

/* w -= lr (g + decay w) */
NEAP_MULTIVERSION static void OF(plain_step)(const neap_row *row) {
  const T lr = (T)row->param[RATE], decay = (T)row->param[DECAY];
  const T *w = row->in[0], *g = row->in[1];
  T *w_out = row->out[0];
  const int64_t n = row->n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) w_out[i] = w[i] - lr * (g[i] + decay * w[i]);
}

/* d = g + decay w; m = momentum m + (1 - dampening) d; w -= lr (nesterov ? d + momentum m : m).
 * `own` and `of_m` are the shares of d and of the new momentum in the step, so that one loop serves
 * both variants. */
NEAP_MULTIVERSION static void OF(step)(const neap_row *row) {
  const T lr = (T)row->param[RATE], decay = (T)row->param[DECAY], momentum = (T)row->param[SHARE];
  const T fresh = (T)row->param[FRESH], own = (T)row->param[OWN], of_m = (T)row->param[OF_M];
  const T *w = row->in[0], *g = row->in[1], *m = row->in[2];
  T *w_out = row->out[0], *m_out = row->out[1];
  const int64_t n = row->n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) {
    const T d = g[i] + decay * w[i], next = momentum * m[i] + fresh * d;
    m_out[i] = next;
    w_out[i] = w[i] - lr * (own * d + of_m * next);
  }
}
