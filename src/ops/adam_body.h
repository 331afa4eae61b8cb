/* ops/adam_body.h: the row of Adam for one type (adam.c): inputs w, g, m and v, outputs w, m and
 * v. */
NEAP_MULTIVERSION static void OF(step)(const neap_row *row) {
  const neap_attr_value *attrs = row->call->attrs;
  const T beta1 = (T)attrs[BETA1].f, beta2 = (T)attrs[BETA2].f, eps = (T)row->param[ADDED];
  const T fresh1 = (T)(1 - attrs[BETA1].f), fresh2 = (T)(1 - attrs[BETA2].f);
  const T size = (T)row->param[SIZE], correction = (T)row->param[CORRECTION];
  const T keep = (T)row->param[KEEP], decay = (T)row->param[DECAY];
  const T *w = row->in[0], *g = row->in[1], *m = row->in[2], *v = row->in[3], *v_max = row->in[4];
  T *w_out = row->out[0], *m_out = row->out[1], *v_out = row->out[2], *v_max_out = row->out[3];
  const int64_t n = row->n;
  const bool has_max = v_max != NULL;
  /* Each element is read before it is written: outputs lie over inputs. */
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) {
    const T d = g[i] + decay * w[i];
    const T first = beta1 * m[i] + fresh1 * d, second = beta2 * v[i] + fresh2 * d * d;
    T under = second;
    m_out[i] = first;
    v_out[i] = second;
    if (has_max) {
      /* A NaN on either side is the larger one. */
      under = second < v_max[i] || v_max[i] != v_max[i] ? v_max[i] : second;
      v_max_out[i] = under;
    }
    w_out[i] = keep * w[i] - size * first / (sqrt(under) / correction + eps);
  }
}
