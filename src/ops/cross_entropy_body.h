/* ops/cross_entropy_body.h: rows of SoftmaxCrossEntropy for one type (cross_entropy.c). */

/* t_c of class c; `at` is the element of class c. */
static double OF(target)(const job *k, target t, int64_t c, int64_t at) {
  double even = k->smoothing / (double)k->n_class;
  double share = k->is_soft ? (double)((const T *)k->label)[at] : (c == t.label ? 1.0 : 0.0);
  return class_weight(k, c) * ((1 - k->smoothing) * share + even);
}

/* Largest logit, and log of the sum of exp(x - largest): log1p of what the others add
 * to its 1. */
static void OF(normaliser)(const job *k, const T *x, T *most, double *log_sum) {
  if (k->inner == 1) {
    *most = OF(neap_row_max)(x, k->n_class);
    *log_sum = log1p((double)OF(neap_row_exp_rest)(x, *most, k->n_class));
    return;
  }
  double rest = 0, ties = 0;
  *most = (T)-INFINITY;
  for (int64_t c = 0; c < k->n_class; c++)
    *most = x[c * k->inner] > *most ? x[c * k->inner] : *most;
  for (int64_t c = 0; c < k->n_class; c++) {
    double tie = x[c * k->inner] == *most ? 1 : 0;
    rest += (double)neap_exp(x[c * k->inner] - *most) - tie;
    ties += tie;
  }
  *log_sum = log1p(rest + (ties - 1));
}

/* row[i] and row[M + i]: loss and weight of row i; for reduction none the losses go to
 * out. */
static void OF(forward)(void *context, int64_t begin, int64_t end) {
  const job *k = context;
  for (int64_t i = begin; i < end; i++) {
    target t = target_of(k, i, true);
    double loss = 0, log_sum;
    if (!t.skip) {
      int64_t first = row_offset(k, i);
      const T *x = (const T *)k->x + first;
      T most;
      OF(normaliser)(k, x, &most, &log_sum);
      if (!k->is_soft && k->smoothing == 0) {
        loss = t.weight * (log_sum - (double)(x[t.label * k->inner] - most));
      } else {
        for (int64_t c = 0; c < k->n_class; c++)
          loss += OF(target)(k, t, c, first + c * k->inner) *
                  (log_sum - (double)(x[c * k->inner] - most));
      }
    }
    if (k->reduction == NONE)
      ((T *)k->out)[i] = (T)loss;
    else
      k->row[i] = loss, k->row[k->n_row + i] = t.weight;
  }
}

/* dx may be x: a class's logit is read for the last time when its gradient is written. */
static void OF(backward)(void *context, int64_t begin, int64_t end) {
  const job *k = context;
  for (int64_t i = begin; i < end; i++) {
    target t = target_of(k, i, false);
    int64_t first = row_offset(k, i), inner = k->inner, n = k->n_class;
    const T *x = (const T *)k->x + first;
    T *dx = (T *)k->out + first, most;
    double log_sum, g = (double)((const T *)k->dloss)[k->reduction == NONE ? i : 0] / k->divisor;
    if (t.skip) {
      for (int64_t c = 0; c < n; c++) dx[c * inner] = 0;
      continue;
    }
    if (inner == 1 && !k->is_soft && k->smoothing == 0) {
      T scale = (T)(g * t.weight);
      most = OF(neap_row_max)(x, n);
      T own = neap_exp(x[t.label] - most), rest = OF(neap_row_exp)(x, 1, most, dx, t.label);
      rest += OF(neap_row_exp)(x + t.label + 1, 1, most, dx + t.label + 1, n - t.label - 1);
      dx[t.label] = -rest;
      OF(neap_row_scale)(dx, scale / (own + rest), n);
      continue;
    }
    OF(normaliser)(k, x, &most, &log_sum);
    double total = 0;
    for (int64_t c = 0; c < n; c++) total += OF(target)(k, t, c, first + c * inner);
    for (int64_t c = 0; c < n; c++) {
      double log_p = (double)(x[c * inner] - most) - log_sum,
             wanted = OF(target)(k, t, c, first + c * inner);
      double off =
        log_p > LOG_HALF ? expm1(log_p) * total + (total - wanted) : exp(log_p) * total - wanted;
      dx[c * inner] = (T)(g * off);
    }
  }
}
