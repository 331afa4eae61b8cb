/* ops/pool_body.h: the plain loops of pooling for one type (pool.c).
 *
 * Kernels work on planes [begin, end), numbered n * C + c: each gives a plane of y, or of dx, which
 * belongs to one thread. So bits do not depend on how many threads there are. `tile`, where halves
 * are widened, has room for a plane of x and one of y.
 */

/* The largest element of the window at s in a plane whose elements lie `side` apart; *won is the
 * number of its tap. The first of equal elements wins; a NaN wins over all. A window without an
 * element inside x gives -infinity; its tap is then 0, which is outside x, so the backward checks
 * the tap before it writes. */
NEAP_INLINE T OF(window_max)(const neap_window *w, const T *in, int64_t side, const pool_spot *s,
                             int64_t *won) {
  T best = (T)-INFINITY;
  int64_t first = -1;
  for (int64_t kd = s->from[0]; kd < s->to[0]; kd++)
    for (int64_t kh = s->from[1]; kh < s->to[1]; kh++) {
      const int64_t row = pool_spot_at(w, s, kd, kh, 0),
                    number = (kd * w->kernel[1] + kh) * w->kernel[2];
      for (int64_t kw = s->from[2]; kw < s->to[2]; kw++) {
        const T v = in[(row + kw * w->dilation[2]) * side];
        /* The first element counts whatever it is; then a larger one, or the first NaN: nothing is
         * above a NaN, and no second NaN takes its place. */
        if (first >= 0 && !(v > best) && (v == v || best != best)) continue;
        best = v;
        first = number + kw;
      }
    }
  *won = NEAP_MAX(first, 0);
  return best;
}

/* The sum of the window at s, in double. Without an element inside x it is 0. */
NEAP_INLINE double OF(window_sum)(const neap_window *w, const T *in, const pool_spot *s) {
  double sum = 0;
  for (int64_t kd = s->from[0]; kd < s->to[0]; kd++)
    for (int64_t kh = s->from[1]; kh < s->to[1]; kh++) {
      const int64_t row = pool_spot_at(w, s, kd, kh, 0);
      for (int64_t kw = s->from[2]; kw < s->to[2]; kw++)
        sum += (double)in[row + kw * w->dilation[2]];
    }
  return sum;
}

/* The same share to each element of the window at s. */
NEAP_INLINE void OF(window_add)(const neap_window *w, T *out, const pool_spot *s, T share) {
  for (int64_t kd = s->from[0]; kd < s->to[0]; kd++)
    for (int64_t kh = s->from[1]; kh < s->to[1]; kh++) {
      const int64_t row = pool_spot_at(w, s, kd, kh, 0);
      for (int64_t kw = s->from[2]; kw < s->to[2]; kw++) out[row + kw * w->dilation[2]] += share;
    }
}

/* A plane of the operand that goes in, of n elements, and where one that comes out is made. The
 * first lies at the tile's begin, the second behind it. */
NEAP_INLINE const T *OF(plane_in)(const pool_job *j, int64_t p, int64_t n, float *tile) {
  return neap_row_load(j->in, p * n, 1, n, n, tile);
}
NEAP_INLINE T *OF(plane_out)(const pool_job *j, int64_t p, int64_t n_in, int64_t n, float *tile) {
  return neap_row_target(j->out, p * n, tile == NULL ? NULL : tile + n_in);
}
NEAP_INLINE void OF(plane_store)(const pool_job *j, int64_t p, int64_t n, const T *out) {
  neap_row_store(j->out, p * n, 1, n, n, (const float *)(const void *)out);
}

static void OF(max)(void *context, int64_t begin, int64_t end, float *tile) {
  const pool_job *j = context;
  const neap_window *w = &j->w;
  for (int64_t p = begin; p < end; p++) {
    const T *in = OF(plane_in)(j, p, w->n_in, tile);
    T *out = OF(plane_out)(j, p, w->n_in, w->n_out, tile);
    pool_spot s = pool_spot_first(w);
    int64_t won;
    for (int64_t i = 0; i < w->n_out; i++, pool_spot_next(w, &s)) {
      out[i] = OF(window_max)(w, in, 1, &s, &won);
      pool_set_index(j, p * w->n_out + i, won);
      /* A position counts all elements of x, from the planes before this one on. */
      if (j->position != NULL) {
        int64_t at;
        bool has = pool_spot_has(w, &s, won, &at);
        j->position[p * w->n_out + i] = has ? p * w->n_in + at : -1;
      }
    }
    OF(plane_store)(j, p, w->n_out, out);
  }
}

/* The elements that won, of another x: 0 for a window of padding alone. */
static void OF(max_take)(void *context, int64_t begin, int64_t end, float *tile) {
  const pool_job *j = context;
  const neap_window *w = &j->w;
  for (int64_t p = begin; p < end; p++) {
    const T *in = OF(plane_in)(j, p, w->n_in, tile);
    T *out = OF(plane_out)(j, p, w->n_in, w->n_out, tile);
    pool_spot s = pool_spot_first(w);
    int64_t at;
    for (int64_t i = 0; i < w->n_out; i++, pool_spot_next(w, &s))
      out[i] = pool_spot_has(w, &s, pool_get_index(j, p * w->n_out + i), &at) ? in[at] : 0;
    OF(plane_store)(j, p, w->n_out, out);
  }
}

/* dx is a sum over the windows that an element won. */
static void OF(max_grad)(void *context, int64_t begin, int64_t end, float *tile) {
  const pool_job *j = context;
  const neap_window *w = &j->w;
  for (int64_t p = begin; p < end; p++) {
    const T *in = OF(plane_in)(j, p, w->n_out, tile);
    T *out = OF(plane_out)(j, p, w->n_out, w->n_in, tile);
    memset(out, 0, (size_t)w->n_in * sizeof *out);
    pool_spot s = pool_spot_first(w);
    int64_t at;
    for (int64_t i = 0; i < w->n_out; i++, pool_spot_next(w, &s))
      if (pool_spot_has(w, &s, pool_get_index(j, p * w->n_out + i), &at)) out[at] += in[i];
    OF(plane_store)(j, p, w->n_in, out);
  }
}

/* A window without an element inside x gives 0. */
static void OF(average)(void *context, int64_t begin, int64_t end, float *tile) {
  const pool_job *j = context;
  const neap_window *w = &j->w;
  for (int64_t p = begin; p < end; p++) {
    const T *in = OF(plane_in)(j, p, w->n_in, tile);
    T *out = OF(plane_out)(j, p, w->n_in, w->n_out, tile);
    pool_spot s = pool_spot_first(w);
    for (int64_t i = 0; i < w->n_out; i++, pool_spot_next(w, &s)) {
      const double n = pool_divisor(j, &s);
      out[i] = (T)(n > 0 ? OF(window_sum)(w, in, &s) / n : 0.0);
    }
    OF(plane_store)(j, p, w->n_out, out);
  }
}

static void OF(average_grad)(void *context, int64_t begin, int64_t end, float *tile) {
  const pool_job *j = context;
  const neap_window *w = &j->w;
  for (int64_t p = begin; p < end; p++) {
    const T *in = OF(plane_in)(j, p, w->n_out, tile);
    T *out = OF(plane_out)(j, p, w->n_out, w->n_in, tile);
    memset(out, 0, (size_t)w->n_in * sizeof *out);
    pool_spot s = pool_spot_first(w);
    for (int64_t i = 0; i < w->n_out; i++, pool_spot_next(w, &s)) {
      const double n = pool_divisor(j, &s);
      OF(window_add)(w, out, &s, (T)(n > 0 ? (double)in[i] / n : 0.0));
    }
    OF(plane_store)(j, p, w->n_in, out);
  }
}

/* The p-th root of the window's sum of powers, in double. */
NEAP_INLINE double OF(window_norm)(const neap_window *w, const T *in, const pool_spot *s,
                                   double power) {
  double sum = 0;
  for (int64_t kd = s->from[0]; kd < s->to[0]; kd++)
    for (int64_t kh = s->from[1]; kh < s->to[1]; kh++) {
      const int64_t row = pool_spot_at(w, s, kd, kh, 0);
      for (int64_t kw = s->from[2]; kw < s->to[2]; kw++)
        sum += power_of(fabs((double)in[row + kw * w->dilation[2]]), power);
    }
  return root_of(sum, power);
}

static void OF(lp)(void *context, int64_t begin, int64_t end, float *tile) {
  const pool_job *j = context;
  const neap_window *w = &j->w;
  for (int64_t p = begin; p < end; p++) {
    const T *in = OF(plane_in)(j, p, w->n_in, tile);
    T *out = OF(plane_out)(j, p, w->n_in, w->n_out, tile);
    pool_spot s = pool_spot_first(w);
    for (int64_t i = 0; i < w->n_out; i++, pool_spot_next(w, &s))
      out[i] = (T)OF(window_norm)(w, in, &s, j->p);
    OF(plane_store)(j, p, w->n_out, out);
  }
}
