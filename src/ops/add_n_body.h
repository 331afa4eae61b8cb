/* ops/add_n_body.h: AddN for one type (add_n.c): T the element, U the type of its sums. */

/* Two inputs, which most sums have, need no block: element by element any overlap is safe. */
NEAP_MULTIVERSION static void OF(add)(void *context, int64_t begin, int64_t end) {
  const neap_call *call = context;
  T *y = call->out[0].data;
  if (call->n_in == 2) {
    const T *a = call->in[0].data, *b = call->in[1].data;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) y[i] = (T)((U)a[i] + (U)b[i]);
    return;
  }
  /* A block of each input in turn: the sum is written once, so that y may be any of them. */
  U sum[BLOCK];
  for (int64_t at = begin; at < end; at += BLOCK) {
    int64_t n = NEAP_MIN(BLOCK, end - at);
    for (int k = 0; k < call->n_in; k++) {
      const T *x = (const T *)call->in[k].data + at;
      if (k == 0)
        for (int64_t i = 0; i < n; i++) sum[i] = (U)x[i];
      else
        for (int64_t i = 0; i < n; i++) sum[i] = (U)(sum[i] + (U)x[i]);
    }
    for (int64_t i = 0; i < n; i++) y[at + i] = (T)sum[i];
  }
}
