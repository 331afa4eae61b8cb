/* ops/rprop_body.h: the row of Rprop for one type (rprop.c): inputs w, g, s and before, outputs
 * w, s and before. Each element is read before it is written: outputs lie over inputs. */
NEAP_MULTIVERSION static void OF(rprop)(const neap_row *row) {
  const T shrink = (T)row->param[SHRINK], grow = (T)row->param[GROW];
  const T least = (T)row->param[LEAST], most = (T)row->param[MOST];
  const T first = (T)row->param[FIRST];
  const bool is_first = row->param[IS_FIRST] != 0;
  const T *w = row->in[0], *g = row->in[1], *size = row->in[2], *before = row->in[3];
  T *w_out = row->out[0], *size_out = row->out[1], *before_out = row->out[2];
  const int64_t n = row->n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) {
    /* Only the sign of g times g before: above 0 it goes on, below 0 it has turned. */
    const T turn = g[i] * before[i];
    /* 1 where there is no turn, and NaN of a NaN. */
    const T factor = turn > 0 ? grow : turn < 0 ? shrink : (T)1 + turn * 0;
    T rate = (is_first ? first : size[i]) * factor;
    rate = rate < least ? least : rate > most ? most : rate;
    /* Where the gradient has turned nothing moves, and the next step takes it for a first one. */
    const T d = turn < 0 ? (T)0 : turn >= 0 ? g[i] : turn;
    size_out[i] = rate;
    before_out[i] = d;
    w_out[i] = w[i] - rate * (d > 0 ? (T)1 : d < 0 ? (T)-1 : d);
  }
}
