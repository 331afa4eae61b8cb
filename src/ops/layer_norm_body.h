/* ops/layer_norm_body.h: LayerNorm and RmsNorm for one type (layer_norm.c). */

/* Statistics in two passes: the sum of squared differences from the mean, since the mean of squares
 * minus the square of the mean cancels for x far from 0. Without `centre` the mean is 0, so the
 * second pass gives the mean of squares. A row is read again while it is in cache; y may be x. A
 * row of no elements has the statistics of zeros. */
static void OF(stats)(const T *x, int64_t n, bool centre, double eps, T *mean, T *rstd) {
  const double count = (double)NEAP_MAX(n, 1);
  *mean = centre ? (T)(OF(neap_row_sum)(x, n) / count) : 0;
  *rstd = (T)(1 / sqrt(OF(neap_row_spread)(x, *mean, n) / count + eps));
}

NEAP_MULTIVERSION static void OF(normalise)(const T *x, T *y, const T *gamma, const T *beta,
                                            int64_t n, T mean, T rstd) {
  /* Four loops, so that none asks in its middle what there is. */
  if (gamma != NULL && beta != NULL)
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
  else if (gamma != NULL)
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * gamma[i];
  else if (beta != NULL)
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd + beta[i];
  else
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd;
}

static void OF(forward)(void *context, int64_t begin, int64_t end, float *tile) {
  const job *k = context;
  for (int64_t i = begin; i < end; i++) {
    T mean, rstd;
    /* Of a half the row is widened into the tile, and rounded from there. */
    const T *x = neap_row_load(k->x, i * k->n, 1, k->n, k->n, tile);
    OF(stats)(x, k->n, k->centre, k->eps, &mean, &rstd);
    OF(normalise)(x, neap_row_target(k->y, i * k->n, tile), k->gamma, k->beta, k->n, mean, rstd);
    neap_row_store(k->y, i * k->n, 1, k->n, k->n, tile);
    if (k->mean_out != NULL) neap_number_put(k->mean_out, i, (double)mean);
    if (k->rstd_out != NULL) neap_number_put(k->rstd_out, i, (double)rstd);
  }
}

/* With z = (x - mean) rstd and h = dy gamma: dx = rstd (h - mean(h) - z mean(h z)). dx
 * may be dy or x. */
NEAP_MULTIVERSION static void OF(back_row)(const T *x, const T *dy, const T *gamma, T *dx,
                                           T *dgamma, T *dbeta, int64_t n, bool centre, T mean,
                                           T rstd) {
  /* Both means first. Sums of a piece are of one type with x, for speed; those of pieces double. */
  double total = 0, total_z = 0;
  NEAP_EACH_PART(n, NEAP_PIECE, from, to) {
    T part = 0, part_z = 0;
#pragma omp simd reduction(+ : part, part_z)
    for (int64_t i = from; i < to; i++) {
      T h = gamma != NULL ? dy[i] * gamma[i] : dy[i];
      part += h;
      part_z += h * ((x[i] - mean) * rstd);
    }
    total += (double)part;
    total_z += (double)part_z;
  }
  /* Without a centre the mean is no function of x, and its term is not there. */
  const T sum = centre ? (T)(total / (double)n) : 0, sum_z = (T)(total_z / (double)n);
  /* dx last, since it may lie over dy or x, which these still read. */
  if (dgamma != NULL)
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dgamma[i] += dy[i] * ((x[i] - mean) * rstd);
  if (dbeta != NULL)
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dbeta[i] += dy[i];
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    T h = gamma != NULL ? dy[i] * gamma[i] : dy[i];
    dx[i] = rstd * (h - sum - (x[i] - mean) * rstd * sum_z);
  }
}

/* Parts [begin, end): part p has the rows [M p / parts, M (p + 1) / parts). */
static void OF(backward)(void *context, int64_t begin, int64_t end) {
  const job *k = context;
  for (int64_t p = begin; p < end; p++) {
    double *total = total_of(k, p, sizeof(T));
    /* The sums of a run of rows, behind the part's totals. */
    T *run = (T *)(void *)(total + 2 * k->n);
    T *dgamma = k->want_gamma ? run : NULL, *dbeta = k->want_beta ? run + k->n : NULL;
    /* A part has room of its own for everything, so that threads never meet. */
    float *tile = tile_of(k, p), *tile_dy = tile == NULL ? NULL : tile + k->n;
    int64_t first = k->n_row * p / k->n_part, n_row = k->n_row * (p + 1) / k->n_part - first;
    memset(total, 0, 2 * (size_t)k->n * sizeof *total);
    /* Runs of rows are summed in T and added up in double: many rows lose no digits. */
    NEAP_EACH_PART(n_row, NEAP_RUN, from, to) {
      memset(run, 0, 2 * (size_t)k->n * sizeof *run);
      for (int64_t i = first + from; i < first + to; i++) {
        int64_t at = i * k->n;
        const T *x = neap_row_load(k->x, at, 1, k->n, k->n, tile);
        const T *dy = neap_row_load(k->dy, at, 1, k->n, k->n, tile_dy);
        T mean = k->mean != NULL ? (T)neap_number_at(k->mean, i) : 0;
        OF(back_row)
        (x, dy, k->gamma, neap_row_target(k->dx, at, tile_dy), dgamma, dbeta, k->n, k->centre, mean,
         (T)neap_number_at(k->rstd, i));
        neap_row_store(k->dx, at, 1, k->n, k->n, tile_dy);
      }
      for (int64_t j = 0; j < 2 * k->n; j++) total[j] += (double)run[j];
    }
  }
}

/* out (N) = the totals of all parts, from element `at` of each on */
static void OF(add_parts)(const job *k, int64_t at, const neap_operand *out) {
  for (int64_t i = 0; i < k->n; i++) {
    double sum = 0;
    for (int64_t p = 0; p < k->n_part; p++) sum += total_of(k, p, sizeof(T))[at + i];
    neap_number_put(out, i, sum);
  }
}
