/* ops/batch_norm_body.h: BatchNorm for one type (batch_norm.c). */

/* sum of (x - shift)^power over l elements, power 1 or 2 */
NEAP_MULTIVERSION static double OF(moment)(const T *x, int64_t l, double shift, bool square) {
  /* Eight sums, added up in one order: vector code, and the same bits everywhere. */
  double part[8] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + 8 <= l; i += 8)
    for (int64_t k = 0; k < 8; k++) {
      double d = (double)x[i + k] - shift;
      part[k] += square ? d * d : d;
    }
  for (; i < l; i++)
    sum += square ? ((double)x[i] - shift) * ((double)x[i] - shift) : (double)x[i] - shift;
  for (int k = 0; k < 8; k++) sum += part[k];
  return sum;
}

NEAP_MULTIVERSION static void OF(scale_shift)(const T *x, T *y, int64_t l, T scale, T shift,
                                              T mean) {
  for (int64_t i = 0; i < l; i++) y[i] = (x[i] - mean) * scale + shift;
}

/* As Relu and its backward have it: NaN stays, and passes. */
static void OF(clip)(T *y, int64_t l, uint8_t *mask) {
  if (mask != NULL) memset(mask, 0, (size_t)(l + 7) / 8);
  for (int64_t i = 0; i < l; i++) {
    bool pass = !(y[i] <= 0);
    if (mask != NULL && pass) mask[i / 8] |= (uint8_t)(1u << i % 8);
    if (!pass) y[i] = 0;
  }
}

/* The sum of (x - shift)^power over the channel's planes. */
static double OF(channel_moment)(const job *j, int64_t c, double shift, bool square) {
  const int64_t take = neap_tile_elems(j->x, j->l);
  float tile[NEAP_TILE];
  double sum = 0;
  for (int64_t n = 0; n < j->n; n++)
    for (int64_t i = 0; i < j->l; i += take) {
      int64_t part = NEAP_MIN(take, j->l - i);
      const T *x = neap_tile_load(j->x, (n * j->channels + c) * j->l + i, part, tile);
      sum += OF(moment)(x, part, shift, square);
    }
  return sum;
}

static void OF(forward)(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  const int64_t take = neap_tile_elems(j->x, j->l);
  float tile[NEAP_TILE];
  for (int64_t c = begin; c < end; c++) {
    /* In two passes: the mean of squares less the square of the mean would cancel. */
    double mean = 0, var = 0, m = (double)NEAP_MAX(j->n * j->l, 1);
    if (j->training) {
      mean = OF(channel_moment)(j, c, 0.0, false) / m;
      var = OF(channel_moment)(j, c, mean, true) / m;
    } else {
      mean = neap_number_at(j->mean_in, c), var = neap_number_at(j->var_in, c);
    }

    if (j->mean != NULL) neap_number_put(j->mean, c, mean);
    if (j->var != NULL) neap_number_put(j->var, c, var);
    /* One multiplication and addition an element. */
    T scale = (T)(neap_number_at(j->gamma, c) / sqrt(var + j->eps)),
      shift = (T)neap_number_at(j->beta, c);
    for (int64_t n = 0; n < j->n; n++) {
      int64_t plane = n * j->channels + c;
      for (int64_t i = 0; i < j->l; i += take) {
        int64_t part = NEAP_MIN(take, j->l - i), at = plane * j->l + i;
        const T *x = neap_tile_load(j->x, at, part, tile);
        T *y = neap_row_target(j->y, at, tile);
        OF(scale_shift)(x, y, part, scale, shift, (T)mean);
        /* a tile begins on a byte of the mask */
        if (j->relu)
          OF(clip)(y, part, j->mask != NULL ? j->mask + plane * j->mask_row + i / 8 : NULL);
        neap_row_store(j->y, at, 1, part, part, tile);
      }
    }
  }
}

/* adds sum of g and of g (x - mean), g = dy where the mask lets it pass */
static void OF(reduce)(const T *x, const T *dy, const uint8_t *mask, int64_t l, double mean,
                       double sum[2]) {
  double a = 0, b = 0;
  for (int64_t i = 0; i < l; i++) {
    double g = mask != NULL && (mask[i / 8] >> i % 8 & 1) == 0 ? 0.0 : (double)dy[i];
    a += g, b += g * ((double)x[i] - mean);
  }
  sum[0] += a, sum[1] += b;
}

/* dx of l elements, in double. dx may be dy. */
static void OF(back)(const T *x, const T *dy, const uint8_t *mask, int64_t l, double mean,
                     double scale, double offset, double slope, T *dx) {
  for (int64_t i = 0; i < l; i++) {
    double g = mask != NULL && (mask[i / 8] >> i % 8 & 1) == 0 ? 0.0 : (double)dy[i];
    dx[i] = (T)(scale * (g - offset - ((double)x[i] - mean) * slope));
  }
}

/* The mask's bits from element i of a plane on, which begin a byte; NULL: all pass. */
static const uint8_t *OF(mask_at)(const job *j, int64_t plane, int64_t i) {
  return j->relu ? j->mask + plane * j->mask_row + i / 8 : NULL;
}

/* The sums over channel c (N,L) that dgamma and dbeta come from: of g, and of g (x - mean). */
static void OF(reduce_channel)(const job *j, int64_t c, double mean, double sum[2]) {
  const int64_t take = neap_tile_elems(j->x, j->l);
  float tile_x[NEAP_TILE], tile_dy[NEAP_TILE];
  for (int64_t n = 0; n < j->n; n++) {
    int64_t plane = n * j->channels + c;
    for (int64_t i = 0; i < j->l; i += take) {
      int64_t part = NEAP_MIN(take, j->l - i), at = plane * j->l + i;
      const T *x = neap_tile_load(j->x, at, part, tile_x);
      const T *dy = neap_tile_load(j->dy, at, part, tile_dy);
      OF(reduce)(x, dy, OF(mask_at)(j, plane, i), part, mean, sum);
    }
  }
}

/* dx of channel c (N,L). */
static void OF(back_channel)(const job *j, int64_t c, double mean, double scale, double offset,
                             double slope) {
  const int64_t take = neap_tile_elems(j->x, j->l);
  float tile_x[NEAP_TILE], tile_dy[NEAP_TILE];
  for (int64_t n = 0; n < j->n; n++) {
    int64_t plane = n * j->channels + c;
    for (int64_t i = 0; i < j->l; i += take) {
      int64_t part = NEAP_MIN(take, j->l - i), at = plane * j->l + i;
      const T *x = neap_tile_load(j->x, at, part, tile_x);
      const T *dy = neap_tile_load(j->dy, at, part, tile_dy);
      /* dx may take dy's bytes: a tile of dy is read before it is written. */
      T *dx = neap_row_target(j->dx, at, tile_dy);
      OF(back)(x, dy, OF(mask_at)(j, plane, i), part, mean, scale, offset, slope, dx);
      neap_row_store(j->dx, at, 1, part, part, tile_dy);
    }
  }
}

/* With xhat = (x - mean) / s, s = sqrt(var + eps) and m elements in a channel:
 * dx = gamma / s (dy - mean of dy - xhat * mean of dy xhat). Source: Ioffe and Szegedy, "Batch
 * normalization", 2015, section 3. */
static void OF(backward)(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  for (int64_t c = begin; c < end; c++) {
    double mean = neap_number_at(j->mean_in, c), m = (double)NEAP_MAX(j->n * j->l, 1), sum[2] = {0};
    double inverse = 1.0 / sqrt(neap_number_at(j->var_in, c) + j->eps), offset = 0, slope = 0;
    double scale = neap_number_at(j->gamma, c) * inverse;
    OF(reduce_channel)(j, c, mean, sum);

    /* Mean and variance of the batch depend on every x, too. With given statistics nothing flows
     * through them: dx is scale times dy. */
    if (j->training) {
      offset = sum[0] / m;
      slope = sum[1] * inverse * inverse / m;
    }
    OF(back_channel)(j, c, mean, scale, offset, slope);
    neap_number_put(j->dbeta, c, sum[0]);
    neap_number_put(j->dgamma, c, sum[1] * inverse);
  }
}
