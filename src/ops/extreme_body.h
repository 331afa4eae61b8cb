/* ops/extreme_body.h: the loops of Max or Min for one type (extreme.c): T the element, A the type
 * of the accumulator's MEMBER, BEATS the comparison. */

NEAP_INLINE T OF(EXTREME(better))(T x, T best) { return (x BEATS best) | IS_NAN(x) ? x : best; }

NEAP_INLINE A OF(EXTREME(better_acc))(A x, A best) { return (x BEATS best) | IS_NAN(x) ? x : best; }

NEAP_MULTIVERSION static void OF(EXTREME(row))(const void *in, int64_t n, neap_accumulator *acc) {
  const T *x = in;
  if (n == 0) return;
  T best[LANES], all = x[0];
  int64_t i = 0;
  /* So many candidates side by side, none of which waits for another; all begin as x[0], so that no
   * start value of the type is needed. */
  for (int k = 0; k < LANES; k++) best[k] = x[0];
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) best[k] = OF(EXTREME(better))(x[i + k], best[k]);
  for (; i < n; i++) all = OF(EXTREME(better))(x[i], all);
  for (int k = 0; k < LANES; k++) all = OF(EXTREME(better))(best[k], all);
  acc->MEMBER = OF(EXTREME(better_acc))((A)all, acc->MEMBER);
}

NEAP_MULTIVERSION static void OF(EXTREME(columns))(const void *in, int64_t n,
                                                   neap_accumulator *restrict acc) {
  const T *x = in;
  for (int64_t j = 0; j < n; j++) acc[j].MEMBER = OF(EXTREME(better_acc))((A)x[j], acc[j].MEMBER);
}
