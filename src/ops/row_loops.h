/* ops/row_loops.h: the loops of elementwise ops over one stretch, included once per type T of the
 * inputs and type OUT of the output (elementwise.h). Each takes the function of one element, which
 * is inlined, so that the loop is vector code. p: the op's parameters.
 */

/* The parameters in the type computed in, kept apart from what the loop writes. */
#define NEAP_ROW_PARAMS_OF(row)                                                                \
  const T p[NEAP_ROW_MAX_PARAM] = {(T)(row)->param[0], (T)(row)->param[1], (T)(row)->param[2], \
                                   (T)(row)->param[3], (T)(row)->param[4], (T)(row)->param[5], \
                                   (T)(row)->param[6], (T)(row)->param[7]}

/* out = f(x) */
NEAP_INLINE void OF(NEAP_ROW_LOOP(map1))(const neap_row *row, OUT (*f)(T x, const T *p)) {
  const T *in = row->in[0];
  OUT *out = row->out[0];
  const int64_t n = row->n;
  NEAP_ROW_PARAMS_OF(row);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) out[i] = f(in[i], p);
}

/* The same where x may be one element. */
NEAP_INLINE void OF(NEAP_ROW_LOOP(map1_spread))(const neap_row *row, OUT (*f)(T x, const T *p)) {
  const T *in = row->in[0];
  OUT *out = row->out[0];
  const int64_t n = row->n;
  NEAP_ROW_PARAMS_OF(row);
  if (row->step[0] == 1) {
    OF(NEAP_ROW_LOOP(map1))(row, f);
    return;
  }
  /* Once for all: f is of the element alone. */
  const OUT y = f(in[0], p);
  for (int64_t i = 0; i < n; i++) out[i] = y;
}

/* out = f(x, y), both of the output's shape: backward ops, where y is the gradient that arrives. */
NEAP_INLINE void OF(NEAP_ROW_LOOP(map2_same))(const neap_row *row, OUT (*f)(T x, T y, const T *p)) {
  const T *in0 = row->in[0], *in1 = row->in[1];
  OUT *out = row->out[0];
  const int64_t n = row->n;
  NEAP_ROW_PARAMS_OF(row);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) out[i] = f(in0[i], in1[i], p);
}

/* out = f(x, y), either of which may be one element: three loops, each with constant steps, so that
 * each is vector code. (Both steps 0 occurs only for n = 1, where any of them will do.) */
NEAP_INLINE void OF(NEAP_ROW_LOOP(map2))(const neap_row *row, OUT (*f)(T x, T y, const T *p)) {
  const T *in0 = row->in[0], *in1 = row->in[1];
  OUT *out = row->out[0];
  const int64_t n = row->n;
  NEAP_ROW_PARAMS_OF(row);
  if (row->step[0] == 0) {
    const T x = in0[0];
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) out[i] = f(x, in1[i], p);
  } else if (row->step[1] == 0) {
    const T y = in1[0];
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) out[i] = f(in0[i], y, p);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) out[i] = f(in0[i], in1[i], p);
  }
}

/* out = f(x, y, z); vector code when all step. */
NEAP_INLINE void OF(NEAP_ROW_LOOP(map3))(const neap_row *row, OUT (*f)(T x, T y, T z, const T *p)) {
  const T *in0 = row->in[0], *in1 = row->in[1], *in2 = row->in[2];
  OUT *out = row->out[0];
  const int64_t n = row->n, s0 = row->step[0], s1 = row->step[1], s2 = row->step[2];
  NEAP_ROW_PARAMS_OF(row);
  if (s0 + s1 + s2 == 3) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) out[i] = f(in0[i], in1[i], in2[i], p);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) out[i] = f(in0[i * s0], in1[i * s1], in2[i * s2], p);
  }
}

#undef NEAP_ROW_PARAMS_OF
