/* ops/moments_body.h: rows of Adam's relatives for one type (moments.c). Each element is read
 * before it is written: outputs lie over inputs. */

/* Inputs w, g, m and v, outputs w, m and v; v is a decaying largest value. A NaN in g stays one. */
NEAP_MULTIVERSION static void OF(adamax)(const neap_row *row) {
  const T share1 = (T)row->param[SHARE1], share2 = (T)row->param[SHARE2];
  const T fresh1 = (T)(1 - row->param[SHARE1]), eps = (T)row->param[TINY];
  const T decay = (T)row->param[DECAY], size = (T)row->param[OF_M];
  const T *w = row->in[0], *g = row->in[1], *m = row->in[2], *v = row->in[3];
  T *w_out = row->out[0], *m_out = row->out[1], *v_out = row->out[2];
  const int64_t n = row->n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) {
    /* v is what was largest, decaying; eps keeps it off 0, so that nothing is divided by it. */
    const T d = g[i] + decay * w[i], first = share1 * m[i] + fresh1 * d;
    const T old = share2 * v[i], now = fabs(d) + eps, largest = old > now || old != old ? old : now;
    m_out[i] = first;
    v_out[i] = largest;
    w_out[i] = w[i] - size * first / largest;
  }
}

/* Nadam, and Radam once it knows the variance: a step by m and g over the root of v. */
NEAP_MULTIVERSION static void OF(nadam)(const neap_row *row) {
  const T share1 = (T)row->param[SHARE1], share2 = (T)row->param[SHARE2];
  const T fresh1 = (T)(1 - row->param[SHARE1]), fresh2 = (T)(1 - row->param[SHARE2]);
  const T eps = (T)row->param[TINY], decay = (T)row->param[DECAY];
  const T of_m = (T)row->param[OF_M], of_g = (T)row->param[OF_G];
  const T correction = (T)row->param[CORRECTION];
  const T *w = row->in[0], *g = row->in[1], *m = row->in[2], *v = row->in[3];
  T *w_out = row->out[0], *m_out = row->out[1], *v_out = row->out[2];
  const int64_t n = row->n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) {
    /* of_m and of_g hold all that depends on the step alone, the rate too. */
    const T d = g[i] + decay * w[i];
    const T first = share1 * m[i] + fresh1 * d, second = share2 * v[i] + fresh2 * d * d;
    m_out[i] = first;
    v_out[i] = second;
    w_out[i] = w[i] - (of_m * first + of_g * d) / (sqrt(second) / correction + eps);
  }
}

/* Radam at first: the step is m alone; v is kept for later. */
NEAP_MULTIVERSION static void OF(plain_radam)(const neap_row *row) {
  const T share1 = (T)row->param[SHARE1], share2 = (T)row->param[SHARE2];
  const T fresh1 = (T)(1 - row->param[SHARE1]), fresh2 = (T)(1 - row->param[SHARE2]);
  const T decay = (T)row->param[DECAY], of_m = (T)row->param[OF_M];
  const T *w = row->in[0], *g = row->in[1], *m = row->in[2], *v = row->in[3];
  T *w_out = row->out[0], *m_out = row->out[1], *v_out = row->out[2];
  const int64_t n = row->n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) {
    const T d = g[i] + decay * w[i], first = share1 * m[i] + fresh1 * d;
    m_out[i] = first;
    v_out[i] = share2 * v[i] + fresh2 * d * d;
    w_out[i] = w[i] - of_m * first;
  }
}

/* Inputs w, g and m, outputs w and m. The sign of a NaN is that NaN. */
NEAP_MULTIVERSION static void OF(lion)(const neap_row *row) {
  const T share1 = (T)row->param[SHARE1], share2 = (T)row->param[SHARE2];
  const T fresh1 = (T)(1 - row->param[SHARE1]), fresh2 = (T)(1 - row->param[SHARE2]);
  const T lr = (T)row->param[OF_M], keep = (T)row->param[KEEP];
  const T *w = row->in[0], *g = row->in[1], *m = row->in[2];
  T *w_out = row->out[0], *m_out = row->out[1];
  const int64_t n = row->n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) {
    /* The step goes by a mean of its own, of beta1; what is kept is that of beta2. */
    const T mean = share1 * m[i] + fresh1 * g[i];
    const T sign = mean > 0 ? (T)1 : mean < 0 ? (T)-1 : mean;
    m_out[i] = share2 * m[i] + fresh2 * g[i];
    w_out[i] = keep * w[i] - lr * sign;
  }
}
