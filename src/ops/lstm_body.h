/* ops/lstm_body.h: the steps of Lstm for one type (lstm.c). */

/* Rows are of one sequence, units [j, j+n). All pointers are at unit j of that sequence; the gates
 * i, f, g, o are H apart, in the order of `gate`. */

/* a += from, all four gates: h r^T, or the bias. */
NEAP_MULTIVERSION static void OF(add_gates)(const int64_t *gate, const T *from, T *a, int64_t n) {
  for (int at = 0; at < 4; at++) {
    const T *more = from + gate[at];
    T *sum = a + gate[at];
#pragma omp simd
    for (int64_t j = 0; j < n; j++) sum[j] += more[j];
  }
}

/* a: the gates, in as sums, out activated. c becomes f c + i g, h = o tanh(c); y and `cell` keep
 * copies of h and c. */
NEAP_MULTIVERSION static void OF(forward_row)(const int64_t *gate, T *a, T *c, T *h, T *y, T *cell,
                                              int64_t n) {
  T *ai = a + gate[0], *af = a + gate[1], *ag = a + gate[2], *ao = a + gate[3];
  /* One pass per unit from sums to h: four gates, the cell and the output stay in registers. */
#pragma omp simd
  for (int64_t j = 0; j < n; j++) {
    T i = neap_sigmoid(ai[j]), f = neap_sigmoid(af[j]), g = neap_tanh(ag[j]),
      o = neap_sigmoid(ao[j]);
    T state = f * c[j] + i * g, out = o * neap_tanh(state);
    ai[j] = i;
    af[j] = f;
    ag[j] = g;
    ao[j] = o;
    c[j] = state;
    cell[j] = state;
    h[j] = out;
    y[j] = out;
  }
}

/* From the activated gates a and the cells after and before the step: da, the gradient of the gates
 * before their activation (s' = s (1 - s), tanh' = 1 - tanh^2), and dc for the step before. da may
 * be a: an element is read before it is written. */
NEAP_MULTIVERSION static void OF(backward_row)(const int64_t *gate, const T *a, const T *cell,
                                               const T *before, const T *dy, T *da, T *dh, T *dc,
                                               int64_t n) {
  const T *ai = a + gate[0], *af = a + gate[1], *ag = a + gate[2], *ao = a + gate[3];
  T *di = da + gate[0], *df = da + gate[1], *dg = da + gate[2], *d_o = da + gate[3];
#pragma omp simd
  for (int64_t j = 0; j < n; j++) {
    T i = ai[j], f = af[j], g = ag[j], o = ao[j], th = neap_tanh(cell[j]);
    /* h goes out as y and on to the next step; c goes on through h and on its own */
    T out = dh[j] + dy[j], state = dc[j] + out * o * (1 - th * th);
    di[j] = state * g * i * (1 - i);
    df[j] = state * before[j] * f * (1 - f);
    dg[j] = state * i * (1 - g * g);
    d_o[j] = out * th * o * (1 - o);
    dc[j] = state * f;
    dh[j] = 0; /* goes on through the gates alone: dgates r is added next */
  }
}

/* Step k->t of units [j, j+n) of one sequence, the gates' sums included. */
static void OF(cells)(const job *k, int64_t seq, int64_t j, int64_t n) {
  int64_t n_unit = k->s->n_unit, at = seq * n_unit + j, wide = 4 * seq * n_unit + j;
  T *c = (T *)k->c + at, *h = (T *)k->h + at, *y = (T *)k->y + at, *cell = (T *)k->cell + at;
  const T *before = (const T *)k->h_before + at;
  if (k->t < length_of(k->s, seq)) {
    T *a = (T *)k->gates + wide;
    if (k->product != NULL) OF(add_gates)(k->s->gate, (const T *)k->product + wide, a, n);
    if (k->bias != NULL) OF(add_gates)(k->s->gate, (const T *)k->bias + j, a, n);
    OF(forward_row)(k->s->gate, a, c, h, y, cell, n);
  } else {
    /* past its length a sequence keeps its state and gives 0 */
    for (int64_t m = 0; m < n; m++) {
      cell[m] = c[m];
      y[m] = 0;
      h[m] = before[m];
    }
  }
}

/* Elements [begin, end) of the state (N,H): a piece of one row after the other. */
static void OF(forward)(void *context, int64_t begin, int64_t end) {
  const job *k = context;
  int64_t n_unit = k->s->n_unit, n;
  for (int64_t at = begin; at < end; at += n) {
    n = NEAP_MIN(n_unit - at % n_unit, end - at);
    OF(cells)(k, at / n_unit, at % n_unit, n);
  }
}

/* Likewise for the backward. Past a sequence's length dgates are 0, and dh and dc go on as they
 * are. */
static void OF(backward)(void *context, int64_t begin, int64_t end) {
  const job *k = context;
  int64_t n_unit = k->s->n_unit, n;
  for (int64_t at = begin; at < end; at += n) {
    int64_t seq = at / n_unit, j = at % n_unit, wide = 4 * seq * n_unit + j;
    T *da = (T *)k->dgates + wide;
    n = NEAP_MIN(n_unit - j, end - at);
    /* The units of one sequence at a time: its length says for all of them whether step t is
     * there. */
    if (k->t < length_of(k->s, seq)) {
      OF(backward_row)
      (k->s->gate, (const T *)k->gates + wide, (const T *)k->cell + at, (const T *)k->c_before + at,
       (const T *)k->dy + at, da, (T *)k->dh + at, (T *)k->dc + at, n);
    } else {
      for (int g = 0; g < 4; g++)
        for (int64_t m = 0; m < n; m++) da[g * n_unit + m] = 0;
    }
  }
}
