/* ops/lstm_grad_body.h: the steps of LSTM's backward for one type (lstm_grad.c). */

/* Rows and their pointers are as in lstm_body.h. */

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

/* Elements [begin, end) of the state (N,H). Past a sequence's length dgates are 0, and dh and dc go
 * on as they are. */
static void OF(backward)(void *context, int64_t begin, int64_t end) {
  const lstm_job *k = context;
  int64_t n_unit = k->s->n_unit, n;
  for (int64_t at = begin; at < end; at += n) {
    int64_t seq = at / n_unit, j = at % n_unit, wide = 4 * seq * n_unit + j;
    T *da = (T *)k->dgates + wide;
    n = NEAP_MIN(n_unit - j, end - at);
    /* The units of one sequence at a time: its length says for all of them whether step t is
     * there. */
    if (k->t < lstm_length_of(k->s, seq)) {
      OF(backward_row)
      (k->s->gate, (const T *)k->gates + wide, (const T *)k->cell + at, (const T *)k->c_before + at,
       (const T *)k->dy + at, da, (T *)k->dh + at, (T *)k->dc + at, n);
    } else {
      for (int g = 0; g < 4; g++)
        for (int64_t m = 0; m < n; m++) da[g * n_unit + m] = 0;
    }
  }
}
