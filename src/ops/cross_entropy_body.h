/* ops/cross_entropy_body.h: rows of SoftmaxCrossEntropy for one type (cross_entropy.c). */

/* One row at hand: its classes and, where labels are probabilities, theirs, `step` apart. */
typedef struct OF(row) {
  const T *x, *share;
  int64_t step;
} OF(row);

/* The row from element `first` on, widened where it is no T. */
static OF(row) OF(row_at)(const job *k, int64_t first, float *tile) {
  OF(row) r = {.step = neap_row_step(k->x, k->inner, 1)};
  int64_t n_piece = k->n_class, n = 1;
  if (k->inner == 1) n_piece = 1, n = k->n_class;
  r.x = neap_row_load(k->x, first, n_piece, k->inner, n, tile);
  if (k->is_soft)
    r.share =
      neap_row_load(k->label, first, n_piece, k->inner, n, tile == NULL ? NULL : tile + k->n_class);
  return r;
}

/* t_c of class c. */
static double OF(target)(const job *k, target t, const OF(row) * r, int64_t c) {
  double even = k->smoothing / (double)k->n_class;
  double share = k->is_soft ? (double)r->share[c * r->step] : (double)(c == t.label);
  return class_weight(k, c) * ((1 - k->smoothing) * share + even);
}

/* Largest logit, and log of the sum of exp(x - largest): log1p of what the others add
 * to its 1. */
static void OF(normaliser)(const job *k, const OF(row) * r, T *most, double *log_sum) {
  const T *x = r->x;
  if (r->step == 1) {
    *most = OF(neap_row_max)(x, k->n_class);
    *log_sum = log1p((double)OF(neap_row_exp_rest)(x, *most, k->n_class));
    return;
  }
  /* As Softmax's columns: ties are counted, and log1p has the digits of what the others add. */
  double rest = 0, ties = 0;
  *most = (T)-INFINITY;
  for (int64_t c = 0; c < k->n_class; c++) *most = x[c * r->step] > *most ? x[c * r->step] : *most;
  for (int64_t c = 0; c < k->n_class; c++) {
    double tie = x[c * r->step] == *most ? 1 : 0;
    rest += (double)neap_exp(x[c * r->step] - *most) - tie;
    ties += tie;
  }
  *log_sum = log1p(rest + (ties - 1));
}

static double OF(loss_of)(const job *k, target t, const OF(row) * r) {
  double loss = 0, log_sum;
  T most;
  OF(normaliser)(k, r, &most, &log_sum);
  /* Of one label all other terms are zero. */
  if (!k->is_soft && k->smoothing == 0)
    return t.weight * (log_sum - (double)(r->x[t.label * r->step] - most));
  for (int64_t c = 0; c < k->n_class; c++)
    loss += OF(target)(k, t, r, c) * (log_sum - (double)(r->x[c * r->step] - most));
  return loss;
}

/* row[i] and row[M + i]: loss and weight of row i; for reduction none the losses go to
 * out. */
static void OF(forward)(void *context, int64_t begin, int64_t end, float *tile) {
  const job *k = context;
  for (int64_t i = begin; i < end; i++) {
    target t = target_of(k, i, true);
    double loss = 0;
    if (!t.skip) {
      OF(row) r = OF(row_at)(k, row_offset(k, i), tile);
      loss = OF(loss_of)(k, t, &r);
    }
    /* What is reduced is summed by one thread afterwards, in the order of rows. */
    if (k->reduction == NONE)
      neap_number_put(k->out, i, loss);
    else
      k->row[i] = loss, k->row[k->n_row + i] = t.weight;
  }
}

/* Without smoothing, of dense classes: dx = g (softmax(x) - 1 at the label). */
static void OF(back_dense)(const T *x, T *dx, int64_t n, int64_t label, T scale) {
  const T most = OF(neap_row_max)(x, n), own = neap_exp(x[label] - most);
  /* The label's own gradient is minus the others' share: no difference of two numbers near 1. */
  /* exp(x - most) of the classes before the label and behind it, straight into dx. */
  T rest = OF(neap_row_exp)(x, 1, most, dx, label);
  rest += OF(neap_row_exp)(x + label + 1, 1, most, dx + label + 1, n - label - 1);
  dx[label] = -rest;
  OF(neap_row_scale)(dx, scale / (own + rest), n);
}

static void OF(back_row)(const job *k, target t, const OF(row) * r, T *dx, double g) {
  double log_sum, total = 0;
  T most;
  OF(normaliser)(k, r, &most, &log_sum);
  /* softmax(x)_c sum(t) - t_c. */
  for (int64_t c = 0; c < k->n_class; c++) total += OF(target)(k, t, r, c);
  for (int64_t c = 0; c < k->n_class; c++) {
    double log_p = (double)(r->x[c * r->step] - most) - log_sum, wanted = OF(target)(k, t, r, c);
    /* Above one half p is 1 + expm1(log p), and what is near 1 cancels before it is rounded. */
    double off =
      log_p > LOG_HALF ? expm1(log_p) * total + (total - wanted) : exp(log_p) * total - wanted;
    dx[c * r->step] = (T)(g * off);
  }
}

/* dx may be x: a class's logit is read for the last time when its gradient is written. */
static void OF(backward)(void *context, int64_t begin, int64_t end, float *tile) {
  const job *k = context;
  for (int64_t i = begin; i < end; i++) {
    target t = target_of(k, i, false);
    int64_t first = row_offset(k, i), inner = k->inner, n = k->n_class;
    double g = neap_number_at(k->dloss, k->reduction == NONE ? i : 0) / k->divisor;
    OF(row) r = OF(row_at)(k, first, tile);
    T *dx = neap_row_target(k->out, first, tile);
    /* A row that is ignored has a gradient all the same: zero. Where one class alone has a share
     * and the row is dense, vector code makes softmax less 1 at the label; else it goes class by
     * class. */
    if (t.skip)
      for (int64_t c = 0; c < n; c++) dx[c * r.step] = 0;
    else if (inner == 1 && !k->is_soft && k->smoothing == 0)
      OF(back_dense)(r.x, dx, n, t.label, (T)(g * t.weight));
    else
      OF(back_row)(k, t, &r, dx, g);
    if (inner == 1)
      neap_row_store(k->out, first, 1, n, n, tile);
    else
      neap_row_store(k->out, first, n, inner, 1, tile);
  }
}
