/* math/panels_body.h: rows times four panels for one instruction set (panels.c), which defines V,
 * MOST_ROWS, TARGET and OF; they end here.
 */

/* Rows [i, i + n) of y over columns [from, from + depth) of x, lanes [lane, lane + V's) of the
 * panels. n is a constant at every call, so that the sums are in registers. */
NEAP_INLINE void OF(tile)(const product *p, int64_t i, const int n, int64_t from, int64_t depth,
                          int64_t lane) {
  V sum[MOST_ROWS][4];
  const float *x = p->x + i * p->ldx + from, *w = p->panels + from * NEAP_PANEL + lane;
  float *y = p->y + i * p->ldy + lane;

  /* What the pieces before this one, or y itself, have left. */
  for (int r = 0; r < n; r++)
    for (int g = 0; g < 4; g++) {
      if (from > 0 || p->add)
        memcpy(&sum[r][g], y + r * p->ldy + g * p->column_step, sizeof sum[r][g]);
      else
        sum[r][g] = (V){0};
    }

  /* An element of x for four vectors of products. */
  for (int64_t j = 0; j < depth; j++) {
    V w0, w1, w2, w3;
    const float *at = w + j * NEAP_PANEL;
    memcpy(&w0, at, sizeof w0);
    memcpy(&w1, at + p->panel_step, sizeof w1);
    memcpy(&w2, at + 2 * p->panel_step, sizeof w2);
    memcpy(&w3, at + 3 * p->panel_step, sizeof w3);
    for (int r = 0; r < n; r++) {
      float factor = x[r * p->ldx + j];
      sum[r][0] += w0 * factor;
      sum[r][1] += w1 * factor;
      sum[r][2] += w2 * factor;
      sum[r][3] += w3 * factor;
    }
  }

  for (int r = 0; r < n; r++)
    for (int g = 0; g < 4; g++)
      memcpy(y + r * p->ldy + g * p->column_step, &sum[r][g], sizeof sum[r][g]);
}

/* All rows, in tiles as even as can be; how an element is summed does not depend on its tile. */
TARGET static void OF(add)(const product *p) {
  const int64_t lanes = (int64_t)(sizeof(V) / sizeof(float)),
                n_tile = (p->m + MOST_ROWS - 1) / MOST_ROWS;
  /* A piece of the panels is used by all rows before the next piece comes: it stays in the
   * cache. */
  for (int64_t from = 0; from < p->k; from += DEPTH)
    for (int64_t lane = 0; lane < NEAP_PANEL; lane += lanes)
      for (int64_t t = 0, depth = NEAP_MIN(p->k - from, DEPTH); t < n_tile; t++) {
        /* Cut so, no tile is of one row while another has all. The switch makes n a constant for
         * each number of rows. */
        const int64_t i = p->m * t / n_tile;
        switch (p->m * (t + 1) / n_tile - i) {
          case 1: OF(tile)(p, i, 1, from, depth, lane); break;
          case 2: OF(tile)(p, i, 2, from, depth, lane); break;
#if MOST_ROWS >= 3
          case 3: OF(tile)(p, i, 3, from, depth, lane); break;
#endif
#if MOST_ROWS >= 6
          case 4: OF(tile)(p, i, 4, from, depth, lane); break;
          case 5: OF(tile)(p, i, 5, from, depth, lane); break;
          case 6: OF(tile)(p, i, 6, from, depth, lane); break;
#endif
        }
      }
}

#undef V
#undef MOST_ROWS
#undef TARGET
#undef OF
