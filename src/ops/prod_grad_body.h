/* ops/prod_grad_body.h: ProdGrad for one type (prod.c). */

/* For outputs [begin, end): once for the product of what is not 0 and the number of zeros, once to
 * write. */
static void OF(spread)(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  const neap_reduce_walk *w = &j->walk;
  const E *x = j->call->in[0].data, *dy = j->call->in[1].data;
  E *dx = j->call->out[0].data;
  for (int64_t o = begin; o < end; o++) {
    int64_t base = neap_reduce_offset(w->n_kept, w->kept, w->kept_stride, o), n_zero = 0;
    /* dy times the product: what is divided by x or given to the one zero has it already. */
    double product = (double)WIDEN(dy[o]);
    for (int64_t k = 0; k < w->count; k++) {
      int64_t at = base + neap_reduce_offset(w->n_reduced, w->reduced, w->reduced_stride, k);
      double value = (double)WIDEN(x[at]);
      n_zero += value == 0;
      product *= value == 0 ? 1 : value;
    }
    for (int64_t k = 0; k < w->count; k++) {
      int64_t at = base + neap_reduce_offset(w->n_reduced, w->reduced, w->reduced_stride, k);
      double value = (double)WIDEN(x[at]);
      /* The product of all others: of several zeros one is among them, whichever is left out. */
      double others = 0;
      if (n_zero == 0) others = product / value;
      if (n_zero == 1 && value == 0) others = product;
      dx[at] = NARROW((T)others);
    }
  }
}
