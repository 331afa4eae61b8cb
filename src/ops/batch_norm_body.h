/* ops/batch_norm_body.h: BatchNorm for one type (batch_norm.c). */

/* Bits of 8 elements at a time; the backward reads them the same way. */
/* sum of (x - shift)^power over l elements, power 1 or 2 */
NEAP_MULTIVERSION static double OF(moment)(const T *x, int64_t l, double shift, bool square) {
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

static void OF(clip)(T *y, int64_t l, uint8_t *mask) {
  if (mask != NULL) memset(mask, 0, (size_t)(l + 7) / 8);
  for (int64_t i = 0; i < l; i++) {
    bool pass = y[i] > 0;
    if (mask != NULL && pass) mask[i / 8] |= (uint8_t)(1u << i % 8);
    if (!pass && y[i] == y[i]) y[i] = 0;
  }
}

static void OF(forward)(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  for (int64_t c = begin; c < end; c++) {
    double mean = 0, var = 0, m = (double)NEAP_MAX(j->n * j->l, 1);
    const T *x = (const T *)j->x + c * j->l;
    T *y = (T *)j->y + c * j->l;
    int64_t step = j->channels * j->l;
    if (j->training) {
      for (int64_t n = 0; n < j->n; n++) mean += OF(moment)(x + n * step, j->l, 0.0, false);
      mean /= m;
      for (int64_t n = 0; n < j->n; n++) var += OF(moment)(x + n * step, j->l, mean, true);
      var /= m;
    } else {
      mean = (double)((const T *)j->mean_in)[c], var = (double)((const T *)j->var_in)[c];
    }
    if (j->mean != NULL) ((T *)j->mean)[c] = (T)mean;
    if (j->var != NULL) ((T *)j->var)[c] = (T)var;
    T scale = (T)((double)((const T *)j->gamma)[c] / sqrt(var + j->eps));
    for (int64_t n = 0; n < j->n; n++) {
      OF(scale_shift)(x + n * step, y + n * step, j->l, scale, ((const T *)j->beta)[c], (T)mean);
      if (j->relu) OF(clip)
      (y + n * step, j->l, j->mask != NULL ? j->mask + (n * j->channels + c) * j->mask_row : NULL);
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

static void OF(backward)(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  for (int64_t c = begin; c < end; c++) {
    double mean = (double)((const T *)j->mean_in)[c], m = (double)NEAP_MAX(j->n * j->l, 1),
           sum[2] = {0};
    double inverse = 1.0 / sqrt((double)((const T *)j->var_in)[c] + j->eps);
    double scale = (double)((const T *)j->gamma)[c] * inverse;
    for (int64_t n = 0; n < j->n; n++) {
      int64_t plane = n * j->channels + c, at = plane * j->l;
      OF(reduce)
      ((const T *)j->x + at, (const T *)j->dy + at, j->relu ? j->mask + plane * j->mask_row : NULL,
       j->l, mean, sum);
    }
    ((T *)j->dbeta)[c] = (T)sum[0];
    ((T *)j->dgamma)[c] = (T)(sum[1] * inverse);
    double offset = j->training ? sum[0] / m : 0.0,
           slope = j->training ? sum[1] * inverse * inverse / m : 0.0;
    for (int64_t n = 0; n < j->n; n++) {
      int64_t plane = n * j->channels + c, at = plane * j->l;
      const T *x = (const T *)j->x + at, *dy = (const T *)j->dy + at;
      const uint8_t *mask = j->relu ? j->mask + plane * j->mask_row : NULL;
      T *dx = (T *)j->dx + at;
      for (int64_t i = 0; i < j->l; i++) {
        double g = mask != NULL && (mask[i / 8] >> i % 8 & 1) == 0 ? 0.0 : (double)dy[i];
        dx[i] = (T)(scale * (g - offset - ((double)x[i] - mean) * slope));
      }
    }
  }
}
