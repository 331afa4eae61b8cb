/* ops/prod_body.h: the loops of Prod for one type (prod.c): T the element, U what is multiplied, A
 * the type of the accumulator's MEMBER. */
static void OF(row)(const void *in, int64_t n, neap_accumulator *acc) {
  const T *x = in;
  U product = (U)acc->MEMBER;
  for (int64_t i = 0; i < n; i++) product *= (U)x[i];
  acc->MEMBER = (A)product;
}

NEAP_MULTIVERSION static void OF(columns)(const void *in, int64_t n,
                                          neap_accumulator *restrict acc) {
  const T *x = in;
  for (int64_t j = 0; j < n; j++) acc[j].MEMBER = (A)((U)acc[j].MEMBER * (U)x[j]);
}
