/* ops/sum_body.h: the loops of Sum and Mean for one type (sum.c): T the element, U what is added, A
 * the type of the accumulator's MEMBER. */

/* n contiguous elements into one accumulator, by partial sums that do not wait for each other. */
NEAP_MULTIVERSION static void OF(row)(const void *in, int64_t n, neap_accumulator *acc) {
  const T *x = in;
  U part[LANES] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) part[k] += (U)x[i + k];
  for (; i < n; i++) sum += (U)x[i];
  for (int k = 0; k < LANES; k++) sum += part[k];
  acc->MEMBER = (A)((U)acc->MEMBER + sum);
}

/* One row of n elements into n accumulators, which is dense when an outer dimension is summed. */
NEAP_MULTIVERSION static void OF(columns)(const void *in, int64_t n,
                                          neap_accumulator *restrict acc) {
  const T *x = in;
  for (int64_t j = 0; j < n; j++) acc[j].MEMBER = (A)((U)acc[j].MEMBER + (U)x[j]);
}
