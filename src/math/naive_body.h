/* math/naive_body.h: the plain product for one type (blas.c). */

/* c (m,n), rows [begin, end). The sum runs in double: the oracle should be the more exact one. */
static void OF(naive)(void *context, int64_t begin, int64_t end) {
  const naive_product *p = context;
  const T *a = p->a, *b = p->b;
  T *c = p->c;
  for (int64_t i = begin; i < end; i++)
    for (int64_t j = 0; j < p->n; j++) {
      double sum = p->add ? (double)c[i * p->n + j] : 0.0;
      for (int64_t l = 0; l < p->k; l++)
        sum += (double)a[p->ta ? l * p->m + i : i * p->k + l] *
               (double)b[p->tb ? j * p->k + l : l * p->n + j];
      c[i * p->n + j] = (T)sum;
    }
}
