/* ops/softmax_body.h: Softmax and LogSoftmax for one type (softmax.c). */

/* Forward over a block of `columns` (at most BLOCK) columns: x, y (C, inner), from the block's
 * first column.
 *
 * The largest element is taken off before exp, so that no term exceeds 1 and the sum is at least 1:
 * nothing overflows, and the logarithm is of no tiny number. Over the block, three passes along C:
 * maxima, sums, results; exp is computed twice, once for the sum and once for the result. A dense
 * row keeps the exponentials in y at once and scales them afterwards. Either loop reads an element
 * of x before it writes that of y, so y may be x.
 *
 * `forward` and `backward` take pairs [begin, end) of a job; of bf16 and f16 a block has its place
 * in the tile, of the gradient a second one. */
NEAP_MULTIVERSION static void OF(columns)(const T *x, T *y, int64_t n_class, int64_t inner,
                                          int64_t columns, bool log_) {
  T most[BLOCK], sum[BLOCK];
  double total[BLOCK] = {0};
  /* Columns lie side by side, so that every loop runs over them within: it reads x in order. */
  for (int64_t j = 0; j < columns; j++) most[j] = (T)-INFINITY;
  for (int64_t c = 0; c < n_class; c++)
    for (int64_t j = 0; j < columns; j++)
      most[j] = x[c * inner + j] > most[j] ? x[c * inner + j] : most[j];
  if (log_) {
    /* log1p of what the others add to the largest one's 1 keeps the digits of a small sum. Each
     * element equal to the largest is a tie, which is counted and not summed. */
    T ties[BLOCK] = {0};
    NEAP_EACH_PART(n_class, NEAP_RUN, from, to) {
      for (int64_t j = 0; j < columns; j++) sum[j] = 0;
      for (int64_t c = from; c < to; c++)
        for (int64_t j = 0; j < columns; j++) {
          T tie = x[c * inner + j] == most[j] ? 1 : 0;
          sum[j] += neap_exp(x[c * inner + j] - most[j]) - tie;
          ties[j] += tie;
        }
      for (int64_t j = 0; j < columns; j++) total[j] += (double)sum[j];
    }
    for (int64_t j = 0; j < columns; j++) sum[j] = (T)log1p(total[j] + (double)(ties[j] - 1));
    for (int64_t c = 0; c < n_class; c++)
      for (int64_t j = 0; j < columns; j++) y[c * inner + j] = x[c * inner + j] - most[j] - sum[j];
  } else {
    NEAP_EACH_PART(n_class, NEAP_RUN, from, to) {
      for (int64_t j = 0; j < columns; j++) sum[j] = 0;
      for (int64_t c = from; c < to; c++)
        for (int64_t j = 0; j < columns; j++) sum[j] += neap_exp(x[c * inner + j] - most[j]);
      for (int64_t j = 0; j < columns; j++) total[j] += (double)sum[j];
    }
    /* One division a column; the exponentials again, rather than a place for them. */
    for (int64_t j = 0; j < columns; j++) sum[j] = (T)(1 / total[j]);
    for (int64_t c = 0; c < n_class; c++)
      for (int64_t j = 0; j < columns; j++)
        y[c * inner + j] = neap_exp(x[c * inner + j] - most[j]) * sum[j];
  }
}

static void OF(row)(const T *x, T *y, int64_t n, bool log_) {
  T most = OF(neap_row_max)(x, n);
  if (log_) {
    T shift = (T)log1p((double)OF(neap_row_exp_rest)(x, most, n));
    for (int64_t i = 0; i < n; i++) y[i] = x[i] - most - shift;
  } else {
    OF(neap_row_scale)(y, 1 / OF(neap_row_exp)(x, 1, most, y, n), n);
  }
}

/* The block of pair i: its first element, rows of `columns` elements. */
static void OF(forward)(void *context, int64_t begin, int64_t end, float *tile) {
  const job *k = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t first = i % k->n_block * BLOCK, at = i / k->n_block * k->n_class * k->inner + first;
    /* Pieces of a block: one row of classes, or for each class its columns. */
    int64_t columns = NEAP_MIN(k->inner - first, BLOCK), n_piece = k->n_class, n = columns;
    if (k->inner == 1) n_piece = 1, n = k->n_class;
    const T *x = neap_row_load(k->a, at, n_piece, k->inner, n, tile);
    T *y = neap_row_target(k->out, at, tile);
    if (k->inner == 1)
      OF(row)(x, y, k->n_class, k->log);
    else
      OF(columns)(x, y, k->n_class, neap_row_step(k->a, k->inner, n), columns, k->log);
    neap_row_store(k->out, at, n_piece, k->inner, n, tile);
  }
}

/* Softmax: dx = y (dy - sum y dy), the same with any number taken off all dy: with dy
 * of the class above one half, or 0. */
NEAP_MULTIVERSION static void OF(back_columns)(const T *y, const T *dy, T *dx, int64_t n_class,
                                               int64_t inner, int64_t columns) {
  T sum[BLOCK], off[BLOCK] = {0};
  double total[BLOCK] = {0};
  /* At most one class is above one half. With its dy taken off, its own term is zero, and so the
   * small sum of the others is not lost in it. */
  for (int64_t c = 0; c < n_class; c++)
    for (int64_t j = 0; j < columns; j++)
      off[j] += y[c * inner + j] > (T)0.5 ? dy[c * inner + j] : 0;
  /* The sum of the others' y dy in runs: T within a run, double across them (row.h). */
  NEAP_EACH_PART(n_class, NEAP_RUN, from, to) {
    for (int64_t j = 0; j < columns; j++) sum[j] = 0;
    for (int64_t c = from; c < to; c++)
      for (int64_t j = 0; j < columns; j++)
        sum[j] += y[c * inner + j] * (dy[c * inner + j] - off[j]);
    for (int64_t j = 0; j < columns; j++) total[j] += (double)sum[j];
  }
  for (int64_t j = 0; j < columns; j++) sum[j] = (T)total[j];
  for (int64_t c = 0; c < n_class; c++)
    for (int64_t j = 0; j < columns; j++)
      dx[c * inner + j] = y[c * inner + j] * (dy[c * inner + j] - off[j] - sum[j]);
}

NEAP_MULTIVERSION static void OF(back_row)(const T *y, const T *dy, T *dx, int64_t n) {
  /* As back_columns, for one dense row. */
  T sum, off = 0;
  double total = 0;
#pragma omp simd reduction(+ : off)
  for (int64_t i = 0; i < n; i++) off += y[i] > (T)0.5 ? dy[i] : 0;
  NEAP_EACH_PART(n, NEAP_PIECE, from, to) {
    sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = from; i < to; i++) sum += y[i] * (dy[i] - off);
    total += (double)sum;
  }
  sum = (T)total;
#pragma omp simd
  for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - off - sum);
}

/* Log: dx = dy - exp(y) sum dy; of the class above one half, which holds `own` of that
 * sum: -dy (exp(y) - 1) - exp(y) rest. */
NEAP_MULTIVERSION static void OF(log_back_columns)(const T *y, const T *dy, T *dx, int64_t n_class,
                                                   int64_t inner, int64_t columns) {
  T rest[BLOCK], own[BLOCK], log_top[BLOCK] = {0}, less[BLOCK];
  double total[BLOCK] = {0}, total_own[BLOCK] = {0};
  /* Of each column: the sum of dy without the top class, its own dy, and its log probability. */
  NEAP_EACH_PART(n_class, NEAP_RUN, from, to) {
    for (int64_t j = 0; j < columns; j++) rest[j] = own[j] = 0;
    for (int64_t c = from; c < to; c++)
      for (int64_t j = 0; j < columns; j++) {
        T p = y[c * inner + j], g = dy[c * inner + j];
        /* Apart from the others, for the same reason. */
        bool is_top = p > LOG_HALF;
        rest[j] += is_top ? 0 : g;
        own[j] += is_top ? g : 0;
        log_top[j] += is_top ? p : 0;
      }
    for (int64_t j = 0; j < columns; j++) {
      total[j] += (double)rest[j];
      total_own[j] += (double)own[j];
    }
  }
  /* exp(y) - 1 of the class above one half is small where y is near 0: expm1 has its digits. */
  for (int64_t j = 0; j < columns; j++) {
    rest[j] = (T)total[j];
    own[j] = (T)total_own[j];
  }
  for (int64_t j = 0; j < columns; j++) less[j] = (T)expm1((double)log_top[j]);
  /* dx of the top class by expm1, so that it is not dy less nearly dy; of the others as it says. */
  for (int64_t c = 0; c < n_class; c++)
    for (int64_t j = 0; j < columns; j++) {
      T p = y[c * inner + j], g = dy[c * inner + j], e = neap_exp(p);
      T top = -g * less[j] - e * rest[j], other = g - e * (rest[j] + own[j]);
      dx[c * inner + j] = p > LOG_HALF ? top : other;
    }
}

NEAP_MULTIVERSION static void OF(log_back_row)(const T *y, const T *dy, T *dx, int64_t n) {
  /* As log_back_columns, for one dense row. */
  double all = 0, own = 0, log_top = 0;
  /* In double: a compiler that adds one after the other, as for some processors, rounds as
   * often. */
#pragma omp simd reduction(+ : all, own, log_top)
  for (int64_t i = 0; i < n; i++) {
    bool is_top = y[i] > LOG_HALF;
    all += is_top ? 0 : (double)dy[i];
    own += is_top ? (double)dy[i] : 0;
    log_top += is_top ? (double)y[i] : 0;
  }
  T rest = (T)all, less = (T)expm1(log_top), sum = (T)(all + own);
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    T e = neap_exp(y[i]), top = -dy[i] * less - e * rest, other = dy[i] - e * sum;
    dx[i] = y[i] > LOG_HALF ? top : other;
  }
}

static void OF(backward)(void *context, int64_t begin, int64_t end, float *tile) {
  const job *k = context;
  float *tile_dy = tile == NULL ? NULL : tile + block_elems(k);
  for (int64_t i = begin; i < end; i++) {
    /* Pair i of the job, as in forward. */
    int64_t first = i % k->n_block * BLOCK, at = i / k->n_block * k->n_class * k->inner + first;
    int64_t columns = NEAP_MIN(k->inner - first, BLOCK), n_piece = k->n_class, n = columns;
    if (k->inner == 1) n_piece = 1, n = k->n_class;
    const T *y = neap_row_load(k->a, at, n_piece, k->inner, n, tile);
    const T *dy = neap_row_load(k->b, at, n_piece, k->inner, n, tile_dy);
    /* dx goes over dy's tile: each element is read for the last time when it is written. */
    T *dx = neap_row_target(k->out, at, tile_dy);
    int64_t step = neap_row_step(k->a, k->inner, n);
    if (k->inner == 1)
      (k->log ? OF(log_back_row) : OF(back_row))(y, dy, dx, k->n_class);
    else
      (k->log ? OF(log_back_columns) : OF(back_columns))(y, dy, dx, k->n_class, step, columns);
    neap_row_store(k->out, at, n_piece, k->inner, n, tile_dy);
  }
}
