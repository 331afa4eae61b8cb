/* ops/adaptive_body.h: rows of RmsProp, Adagrad and Adadelta for one type (adaptive.c). Each
 * element is read before it is written: outputs lie over inputs. */

/* Inputs w, g, v, m and mean, of which the last two may be absent; outputs w, v, m and mean. */
NEAP_MULTIVERSION static void OF(rms_prop)(const neap_row *row) {
  const T lr = (T)row->param[RATE], decay = (T)row->param[DECAY], share = (T)row->param[SHARE];
  const T fresh = (T)row->param[FRESH], eps = (T)row->param[EPS];
  const T momentum = (T)row->param[MOMENTUM];
  const T *w = row->in[0], *g = row->in[1], *v = row->in[2], *m = row->in[3], *mean = row->in[4];
  T *w_out = row->out[0], *v_out = row->out[1], *m_out = row->out[2], *mean_out = row->out[3];
  const int64_t n = row->n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) {
    const T d = g[i] + decay * w[i], square = share * v[i] + fresh * d * d;
    T under = square;
    v_out[i] = square;
    if (mean != NULL) {
      const T middle = share * mean[i] + fresh * d;
      mean_out[i] = middle;
      under = square - middle * middle;
      /* Rounding may leave less than nothing of a variance. */
      under = under < 0 ? 0 : under;
    }

    /* The rate comes in at the end: momentum adds up steps as they were, so that another rate
     * counts for all of them at once. */
    T step = d / (sqrt(under) + eps);
    if (m != NULL) {
      step += momentum * m[i];
      m_out[i] = step;
    }
    w_out[i] = w[i] - lr * step;
  }
}

/* Inputs w, g and v, outputs w and v. */
NEAP_MULTIVERSION static void OF(adagrad)(const neap_row *row) {
  const T lr = (T)row->param[RATE], decay = (T)row->param[DECAY], eps = (T)row->param[EPS];
  const T *w = row->in[0], *g = row->in[1], *v = row->in[2];
  T *w_out = row->out[0], *v_out = row->out[1];
  const int64_t n = row->n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) {
    const T d = g[i] + decay * w[i], sum = v[i] + d * d;
    v_out[i] = sum;
    w_out[i] = w[i] - lr * d / (sqrt(sum) + eps);
  }
}

/* Inputs w, g, v and d, outputs w, v and d. */
NEAP_MULTIVERSION static void OF(adadelta)(const neap_row *row) {
  const T lr = (T)row->param[RATE], decay = (T)row->param[DECAY], share = (T)row->param[SHARE];
  const T fresh = (T)row->param[FRESH], eps = (T)row->param[EPS];
  const T *w = row->in[0], *g = row->in[1], *v = row->in[2], *d = row->in[3];
  T *w_out = row->out[0], *v_out = row->out[1], *d_out = row->out[2];
  const int64_t n = row->n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) {
    const T slope = g[i] + decay * w[i], square = share * v[i] + fresh * slope * slope;
    /* The step has the units of w: the root of earlier steps over that of gradients (Zeiler,
     * 2012). */
    const T step = sqrt(d[i] + eps) / sqrt(square + eps) * slope;
    v_out[i] = square;
    d_out[i] = share * d[i] + fresh * step * step;
    w_out[i] = w[i] - lr * step;
  }
}
