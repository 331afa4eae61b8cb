/* attention_tile.h: the kernels of attention.c for one dtype. Included once for each, with REAL,
 * GEMM, NAME(x) and the row functions ROW_MAX, ROW_EXP, ROW_SCALE, ROW_DOT defined; no header of
 * its own.
 *
 * A tile is QUERIES rows of scores against KEYS keys: it fits the second-level cache, and its
 * products are large enough for a library. Row i of a causal tile sees `seen` of its keys; the
 * others get probability 0.
 */

static REAL *NAME(at)(const neap_attention_view *view, int64_t batch, int64_t head, int64_t row) {
  return (REAL *)view->data + batch * view->batch + head * view->head + row * view->row;
}

/* Keys of the tile from `key` that a query may see by causality; it stands at key `place`. */
static int64_t NAME(seen)(const neap_attention *a, int64_t place, int64_t key, int64_t n_key) {
  return a->causal ? NEAP_MAX(0, NEAP_MIN(place + 1 - key, n_key)) : n_key;
}

/* Adds the mask to `n` scores of one row. */
static void NAME(add_mask)(const neap_attention *a, int64_t batch, int64_t head, int64_t query,
                           int64_t key, REAL *score, int64_t n) {
  if (a->mask == NULL) return;
  /* Steps are 0 along what the mask broadcasts, so that any mask is read so. */
  int64_t first = batch * a->mask_step[0] + head * a->mask_step[1] + query * a->mask_step[2] +
                  key * a->mask_step[3];
  for (int64_t j = 0; j < n; j++) {
    int64_t at = first + j * a->mask_step[3];
    if (!a->mask_is_bool)
      score[j] += ((const REAL *)a->mask)[at];
    else if (((const uint8_t *)a->mask)[at] == 0)
      score[j] = (REAL)-INFINITY;
  }
}

/* Whether all `n` numbers are finite: the sum of 0 times each is 0 then, else NaN. */
NEAP_MULTIVERSION static bool NAME(all_finite)(const REAL *x, int64_t n) {
  REAL sum = 0;
  /* The sum has no branch, so that it takes as many lanes as the machine has. */
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; j++) sum += 0 * x[j];
  return sum == 0;
}

/* One score, its sum in double and scaled before it is rounded. */
static REAL NAME(score_of)(const neap_attention *a, const REAL *q, const REAL *k) {
  double dot = 0;
  for (int64_t d = 0; d < a->depth; d++) dot += (double)q[d] * (double)k[d];
  return (REAL)(a->scale * dot);
}

/* score (n,m) = scale q k^T. A library scales what it has summed up in the dtype, and that may be
 * too large for it where the score is not: such scores are computed again, one by one. */
static void NAME(scores)(const neap_attention *a, int64_t n, int64_t m, const REAL *q,
                         const REAL *k, REAL *score) {
  GEMM(false, true, n, m, a->depth, (REAL)a->scale, q, a->q.row, k, a->k.row, 0, score, KEYS, 1);
  for (int64_t i = 0; i < n; i++) {
    REAL *row = score + i * KEYS;
    if (NAME(all_finite)(row, m)) continue;
    for (int64_t j = 0; j < m; j++)
      if (!isfinite(row[j])) row[j] = NAME(score_of)(a, q + i * a->q.row, k + j * a->k.row);
  }
}

/* ---- tiled forward --------------------------------------------------------------------------- */

/* Softmax of one row of a tile against the running maximum and sum of its query; `y` (E) holds the
 * sum so far. ROW_MAX passes over NaN, so a row without another maximum has unseen keys, NaN or
 * both: the NaN go into the sum, which then keeps them. */
static void NAME(absorb_row)(REAL *score, int64_t seen, int64_t n, bool first, REAL *most,
                             REAL *sum, REAL *y, int64_t value_depth) {
  /* Unseen keys stay in the tile, with probability 0: the product runs over all of it. */
  REAL tile_most = ROW_MAX(score, seen), new_most = tile_most > *most ? tile_most : *most;
  for (int64_t j = seen; j < n; j++) score[j] = 0;
  if (new_most == (REAL)-INFINITY) { /* no key seen yet: exp(-inf - -inf) is no probability */
    for (int64_t j = 0; j < seen; j++) {
      score[j] = score[j] != score[j] ? score[j] : 0;
      *sum += score[j];
    }
    return;
  }
  /* A larger maximum than so far: what was summed below the old one shrinks to the new one. */
  REAL tile_sum = ROW_EXP(score, 1, new_most, score, seen);
  if (!first && new_most > *most) {
    REAL shrink = (REAL)exp((double)(*most - new_most));
    *sum *= shrink;
    ROW_SCALE(y, shrink, value_depth);
  }
  *sum += tile_sum;
  *most = new_most;
}

/* y (n,E) += scores (n,m) v. Of one query the libraries add key after key to y itself, all of them
 * in one long sum: it gets the sum of its tile in `tile` (E) first. */
static void NAME(add_values)(const neap_attention *a, int64_t n, int64_t m, const REAL *score,
                             const REAL *v, REAL *y, REAL *tile) {
  if (n > 1) {
    GEMM(false, false, n, a->value_depth, m, 1, score, KEYS, v, a->v.row, 1, y, a->y.row, 1);
    return;
  }
  GEMM(false, false, 1, a->value_depth, m, 1, score, KEYS, v, a->v.row, 0, tile, a->value_depth, 1);
  for (int64_t e = 0; e < a->value_depth; e++) y[e] += tile[e];
}

/* Queries [query, query + n) of one head. scratch: scores (n,KEYS), then most (n), sum (n) and a
 * row of a tile's values (E). */
static void NAME(forward_block)(const neap_attention *a, int64_t batch, int64_t head, int64_t query,
                                int64_t n, REAL *scratch) {
  /* Several heads of queries may read one head of keys. The tiles end at `end`, the first key that
   * the last query of the block does not see. */
  int64_t key_head = head / (a->n_head / a->n_key_head),
          place = query + (a->first == NULL ? 0 : a->first[batch]),
          end = a->causal ? NEAP_MAX(0, NEAP_MIN(a->n_key, place + n)) : a->n_key;
  REAL *score = scratch, *most = scratch + QUERIES * KEYS, *sum = most + QUERIES;
  const REAL *q = NAME(at)(&a->q, batch, head, query);
  REAL *y = NAME(at)(&a->y, batch, head, query);

  /* Where no key is seen at all there is no tile, and nobody else writes y. */
  for (int64_t i = 0; i < n; i++) {
    most[i] = (REAL)-INFINITY, sum[i] = 0;
    if (end == 0) memset(y + i * a->y.row, 0, (size_t)a->value_depth * sizeof *y);
  }

  /* Tile after tile along the keys; causal queries end where the last of them ends. */
  for (int64_t key = 0; key < end; key += KEYS) {
    /* Scores of all queries against these keys, and in their place exp(score - maximum so far). */
    int64_t m = NEAP_MIN(end - key, KEYS);
    NAME(scores)(a, n, m, q, NAME(at)(&a->k, batch, key_head, key), score);
    for (int64_t i = 0; i < n; i++) {
      int64_t seen = NAME(seen)(a, place + i, key, m);
      NAME(add_mask)(a, batch, head, query + i, key, score + i * KEYS, seen);
      NAME(absorb_row)
      (score + i * KEYS, seen, m, key == 0, &most[i], &sum[i], y + i * a->y.row, a->value_depth);
    }
    /* The first tile writes y, so that nobody has to clear it. */
    const REAL *v = NAME(at)(&a->v, batch, key_head, key);
    if (key == 0)
      GEMM(false, false, n, a->value_depth, m, 1, score, KEYS, v, a->v.row, 0, y, a->y.row, 1);
    else
      NAME(add_values)(a, n, m, score, v, y, sum + QUERIES);
  }

  /* What the backward needs of the softmax is one number a row: exp(score - lse) is the
   * probability. */
  REAL *lse =
    a->lse == NULL ? NULL : (REAL *)a->lse + (batch * a->n_head + head) * a->n_query + query;

  /* The sums divide at last, once a row. One that has seen no key stays zero; NaN is handed on. */
  for (int64_t i = 0; i < n; i++) {
    if (sum[i] > 0 || sum[i] != sum[i]) ROW_SCALE(y + i * a->y.row, 1 / sum[i], a->value_depth);
    if (lse != NULL) lse[i] = sum[i] == 0 ? (REAL)-INFINITY : most[i] + (REAL)log((double)sum[i]);
  }
}

/* ---- tiled backward -------------------------------------------------------------------------- */

/* From scores to ds = p (dp - delta), p left in `p`; ds goes over dp. One row of a tile. */
static void NAME(back_row)(REAL *p, REAL *dp, int64_t seen, int64_t n, REAL lse, REAL delta) {
  /* A query that saw no key has no probabilities. */
  if (lse == (REAL)-INFINITY) seen = 0;
  ROW_EXP(p, 1, lse, p, seen);
  /* The derivative of a softmax: dp against its mean under p, which is delta. */
  for (int64_t j = 0; j < seen; j++) dp[j] = p[j] * (dp[j] - delta);
  for (int64_t j = seen; j < n; j++) p[j] = dp[j] = 0;
}

/* Queries [query, query + n) of one head against all keys they see. dk and dv are added to.
 * scratch: p, dp (n,KEYS). */
static void NAME(backward_block)(const neap_attention *a, int64_t batch, int64_t head,
                                 int64_t query, int64_t n, REAL *scratch) {
  /* Training has whole sequences: query i stands at key i, and `first` is not read. */
  int64_t key_head = head / (a->n_head / a->n_key_head),
          end = a->causal ? NEAP_MIN(a->n_key, query + n) : a->n_key;
  int64_t row = (batch * a->n_head + head) * a->n_query + query;
  REAL *p = scratch, *dp = p + QUERIES * KEYS, *delta = dp + QUERIES * KEYS;
  const REAL *q = NAME(at)(&a->q, batch, head, query), *y = NAME(at)(&a->y, batch, head, query),
             *dy = NAME(at)(&a->dy, batch, head, query);
  REAL *dq = NAME(at)(&a->dq, batch, head, query);

  for (int64_t i = 0; i < n; i++) {
    /* sum of p dp over all keys is y dy: known before any tile (FlashAttention). */
    delta[i] = ROW_DOT(y + i * a->y.row, dy + i * a->dy.row, a->value_depth);
    if (end == 0) memset(dq + i * a->dq.row, 0, (size_t)a->depth * sizeof *dq);
    /* No tile visits the keys past `end`: their dmask is 0. */
    if (a->dmask != NULL)
      memset((REAL *)a->dmask + (row + i) * a->n_key, 0, (size_t)a->n_key * sizeof *dq);
  }

  /* The same tiles as in the forward, each of them visited once. */
  for (int64_t key = 0; key < end; key += KEYS) {
    int64_t m = NEAP_MIN(end - key, KEYS);
    const REAL *k = NAME(at)(&a->k, batch, key_head, key),
               *v = NAME(at)(&a->v, batch, key_head, key);
    /* Scores again, which the forward has not kept, and from lse the probabilities; dp = dy v^T. */
    NAME(scores)(a, n, m, q, k, p);
    GEMM(false, true, n, m, a->value_depth, 1, dy, a->dy.row, v, a->v.row, 0, dp, KEYS, 1);
    for (int64_t i = 0; i < n; i++) {
      int64_t seen = NAME(seen)(a, query + i, key, m);
      NAME(add_mask)(a, batch, head, query + i, key, p + i * KEYS, seen);
      NAME(back_row)
      (p + i * KEYS, dp + i * KEYS, seen, m, ((const REAL *)a->lse)[row + i], delta[i]);
      /* The mask is added to the scores after they are scaled: its gradient is ds as it is. */
      if (a->dmask != NULL)
        memcpy((REAL *)a->dmask + (row + i) * a->n_key + key, dp + i * KEYS,
               (size_t)m * sizeof *dp);
    }
    /* dv += p^T dy; dq = ds k, of all tiles; dk += ds^T q: one task has them all, in this order. */
    GEMM(true, false, m, a->value_depth, n, 1, p, KEYS, dy, a->dy.row, 1,
         NAME(at)(&a->dv, batch, key_head, key), a->dv.row, 1);
    GEMM(false, false, n, a->depth, m, (REAL)a->scale, dp, KEYS, k, a->k.row, key == 0 ? 0 : 1, dq,
         a->dq.row, 1);
    GEMM(true, false, m, a->depth, n, (REAL)a->scale, dp, KEYS, q, a->q.row, 1,
         NAME(at)(&a->dk, batch, key_head, key), a->dk.row, 1);
  }
}

/* ---- naive ----------------------------------------------------------------------------------- */

/* Scores of one query against all keys, unseen ones -infinity; sums in double. */
static void NAME(naive_scores)(const neap_attention *a, int64_t batch, int64_t head, int64_t query,
                               REAL *score) {
  int64_t key_head = head / (a->n_head / a->n_key_head),
          place = query + (a->first == NULL ? 0 : a->first[batch]);
  const REAL *q = NAME(at)(&a->q, batch, head, query);
  /* Causality before the mask, which may take away more keys, but give none back. */
  for (int64_t j = 0; j < a->n_key; j++) {
    const REAL *k = NAME(at)(&a->k, batch, key_head, j);
    score[j] = a->causal && j > place ? (REAL)-INFINITY : NAME(score_of)(a, q, k);
  }
  NAME(add_mask)(a, batch, head, query, 0, score, a->n_key);
}

static void NAME(naive_forward_block)(const neap_attention *a, int64_t batch, int64_t head,
                                      int64_t query, int64_t n, REAL *score) {
  int64_t key_head = head / (a->n_head / a->n_key_head);
  for (int64_t i = query; i < query + n; i++) {
    NAME(naive_scores)(a, batch, head, i, score);
    /* A NaN becomes the maximum and stays it, so that the row is NaN. */
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < a->n_key; j++)
      most = score[j] != score[j] || (double)score[j] > most ? (double)score[j] : most;
    for (int64_t j = 0; j < a->n_key; j++)
      sum += most == -INFINITY ? 0 : exp((double)score[j] - most);
    /* Each y[e] is summed over all keys at once, in double and rounded once; what exp costs again,
     * the oracle may take. */
    REAL *y = NAME(at)(&a->y, batch, head, i);
    for (int64_t e = 0; e < a->value_depth; e++) {
      double total = 0;
      /* No key seen: zeros. */
      if (most != -INFINITY)
        for (int64_t j = 0; j < a->n_key; j++)
          total +=
            exp((double)score[j] - most) / sum * (double)NAME(at)(&a->v, batch, key_head, j)[e];
      y[e] = (REAL)total;
    }
    if (a->lse != NULL)
      ((REAL *)a->lse)[(batch * a->n_head + head) * a->n_query + i] =
        (REAL)(most == -INFINITY ? -INFINITY : most + log(sum));
  }
}

/* One key head of one sequence, with all the queries that look at it. What they add up to is summed
 * in double: scratch holds dk (S,depth), dv (S,value_depth) and dq (depth) of the query at hand,
 * then scores (S) and dp (S). */
static void NAME(naive_backward)(const neap_attention *a, int64_t batch, int64_t key_head,
                                 void *scratch) {
  int64_t group = a->n_head / a->n_key_head, n_dk = a->n_key * a->depth,
          n_dv = a->n_key * a->value_depth;
  double *dk = scratch, *dv = dk + n_dk, *dq = dv + n_dv;
  REAL *p = (REAL *)(void *)(dq + a->depth), *dp = p + a->n_key;
  memset(scratch, 0, (size_t)(n_dk + n_dv) * sizeof(double));

  /* t: the queries of all heads that read this one, head after head. */
  for (int64_t t = 0; t < group * a->n_query; t++) {
    int64_t head = key_head * group + t / a->n_query, i = t % a->n_query,
            row = (batch * a->n_head + head) * a->n_query + i;
    double lse = (double)((const REAL *)a->lse)[row], delta = 0;
    const REAL *q = NAME(at)(&a->q, batch, head, i), *dy = NAME(at)(&a->dy, batch, head, i);
    /* p and dp of all keys, and delta, which every ds needs. */
    NAME(naive_scores)(a, batch, head, i, p);
    for (int64_t j = 0; j < a->n_key; j++) {
      const REAL *v = NAME(at)(&a->v, batch, key_head, j);
      double dot = 0;
      for (int64_t e = 0; e < a->value_depth; e++) dot += (double)dy[e] * (double)v[e];
      p[j] = lse == -INFINITY ? 0 : (REAL)exp((double)p[j] - lse);
      dp[j] = (REAL)dot;
      delta += (double)p[j] * dot;
    }

    /* Each key's share of dq, and this query's share of every dk and dv. */
    for (int64_t d = 0; d < a->depth; d++) dq[d] = 0;
    for (int64_t j = 0; j < a->n_key; j++) {
      double ds = (double)p[j] * ((double)dp[j] - delta), scaled = a->scale * ds;
      const REAL *k = NAME(at)(&a->k, batch, key_head, j);
      double *dk_row = dk + j * a->depth, *dv_row = dv + j * a->value_depth;
      for (int64_t d = 0; d < a->depth; d++)
        dq[d] += scaled * (double)k[d], dk_row[d] += scaled * (double)q[d];
      for (int64_t e = 0; e < a->value_depth; e++) dv_row[e] += (double)p[j] * (double)dy[e];
      if (a->dmask != NULL) ((REAL *)a->dmask)[row * a->n_key + j] = (REAL)ds;
    }
    REAL *out = NAME(at)(&a->dq, batch, head, i);
    for (int64_t d = 0; d < a->depth; d++) out[d] = (REAL)dq[d];
  }

  /* Rounded once, when all queries have been added. */
  for (int64_t j = 0; j < a->n_key; j++) {
    REAL *dk_out = NAME(at)(&a->dk, batch, key_head, j),
         *dv_out = NAME(at)(&a->dv, batch, key_head, j);
    for (int64_t d = 0; d < a->depth; d++) dk_out[d] = (REAL)dk[j * a->depth + d];
    for (int64_t e = 0; e < a->value_depth; e++) dv_out[e] = (REAL)dv[j * a->value_depth + e];
  }
}

/* ---- tasks ----------------------------------------------------------------------------------- */

/* Forward task: one block of queries of one head. */
static void NAME(forward_task)(const neap_attention *a, int64_t task, void *scratch) {
  /* Tasks go through the blocks of a head first, so that neighbours read the same keys. */
  int64_t n_block = (a->n_query + QUERIES - 1) / QUERIES, query = task % n_block * QUERIES,
          head = task / n_block;
  int64_t n = NEAP_MIN(a->n_query - query, QUERIES);
  (a->engine == NEAP_ENGINE_REF ? NAME(naive_forward_block) : NAME(forward_block))(
    a, head / a->n_head, head % a->n_head, query, n, scratch);
}

/* Backward task: one key head with all heads and queries that read it, since they add to the same
 * dk and dv. */
static void NAME(backward_task)(const neap_attention *a, int64_t task, void *scratch) {
  int64_t batch = task / a->n_key_head, key_head = task % a->n_key_head,
          group = a->n_head / a->n_key_head;
  if (a->engine == NEAP_ENGINE_REF) {
    NAME(naive_backward)(a, batch, key_head, scratch);
    return;
  }
  /* Tiles add to dk and dv from their first on. */
  for (int64_t j = 0; j < a->n_key; j++) {
    memset(NAME(at)(&a->dk, batch, key_head, j), 0, (size_t)a->depth * sizeof(REAL));
    memset(NAME(at)(&a->dv, batch, key_head, j), 0, (size_t)a->value_depth * sizeof(REAL));
  }
  for (int64_t head = key_head * group; head < (key_head + 1) * group; head++)
    for (int64_t query = 0; query < a->n_query; query += QUERIES)
      NAME(backward_block)(a, batch, head, query, NEAP_MIN(a->n_query - query, QUERIES), scratch);
}
