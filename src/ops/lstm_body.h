/* ops/lstm_body.h: the steps of LSTM for one type (lstm.c). */

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

/* Step k->t of units [j, j+n) of one sequence, the gates' sums included. */
static void OF(cells)(const lstm_job *k, int64_t seq, int64_t j, int64_t n) {
  int64_t n_unit = k->s->n_unit, at = seq * n_unit + j, wide = 4 * seq * n_unit + j;
  T *c = (T *)k->c + at, *h = (T *)k->h + at, *y = (T *)k->y + at, *cell = (T *)k->cell + at;
  const T *before = (const T *)k->h_before + at;
  if (k->t < lstm_length_of(k->s, seq)) {
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
  const lstm_job *k = context;
  int64_t n_unit = k->s->n_unit, n;
  for (int64_t at = begin; at < end; at += n) {
    n = NEAP_MIN(n_unit - at % n_unit, end - at);
    OF(cells)(k, at / n_unit, at % n_unit, n);
  }
}
