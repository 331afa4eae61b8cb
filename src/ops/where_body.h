/* ops/where_body.h: the row of Where for elements of one width (where.c). */

/* y where the condition holds, else z; vector code when all step. */
NEAP_MULTIVERSION static void OF(choose)(const neap_row *row) {
  const uint8_t *c = row->in[0];
  const T *y = row->in[1], *z = row->in[2];
  T *out = row->out[0];
  const int64_t n = row->n, s0 = row->step[0], s1 = row->step[1], s2 = row->step[2];
  if (s0 + s1 + s2 == 3) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) out[i] = c[i] != 0 ? y[i] : z[i];
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) out[i] = c[i * s0] != 0 ? y[i * s1] : z[i * s2];
  }
}
