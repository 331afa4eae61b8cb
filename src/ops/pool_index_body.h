/* ops/pool_index_body.h: planes moved by indices, for one type (pool_more.c). `tile`, where halves
 * are widened, has room for a plane of what goes in and one of what comes out. */

NEAP_INLINE const T *OF(index_in)(const index_job *j, int64_t p, float *tile) {
  return neap_row_load(&j->call->in[0], p * j->n_in, 1, j->n_in, j->n_in, tile);
}
NEAP_INLINE T *OF(index_out)(const index_job *j, int64_t p, float *tile) {
  return neap_row_target(&j->call->out[0], p * j->n_out, tile == NULL ? NULL : tile + j->n_in);
}
NEAP_INLINE void OF(index_store)(const index_job *j, int64_t p, const T *out) {
  neap_row_store(&j->call->out[0], p * j->n_out, 1, j->n_out, j->n_out,
                 (const float *)(const void *)out);
}

static void OF(plane_take)(void *context, int64_t begin, int64_t end, float *tile) {
  const index_job *j = context;
  for (int64_t p = begin; p < end; p++) {
    const T *in = OF(index_in)(j, p, tile);
    T *out = OF(index_out)(j, p, tile);
    int64_t at;
    for (int64_t i = 0; i < j->n_out; i++)
      out[i] = find_element(j, p, p * j->n_out + i, j->n_in, &at) ? in[at] : 0;
    OF(index_store)(j, p, out);
  }
}

static void OF(plane_add)(void *context, int64_t begin, int64_t end, float *tile) {
  const index_job *j = context;
  for (int64_t p = begin; p < end; p++) {
    const T *in = OF(index_in)(j, p, tile);
    T *out = OF(index_out)(j, p, tile);
    int64_t at;
    for (int64_t i = 0; i < j->n_out; i++) out[i] = 0;
    for (int64_t i = 0; i < j->n_in; i++)
      if (find_element(j, p, p * j->n_in + i, j->n_out, &at)) out[at] += in[i];
    OF(index_store)(j, p, out);
  }
}

static void OF(plane_put)(void *context, int64_t begin, int64_t end, float *tile) {
  const index_job *j = context;
  for (int64_t p = begin; p < end; p++) {
    const T *in = OF(index_in)(j, p, tile);
    T *out = OF(index_out)(j, p, tile);
    int64_t at;
    for (int64_t i = 0; i < j->n_out; i++) out[i] = 0;
    for (int64_t i = 0; i < j->n_in; i++)
      if (find_element(j, p, p * j->n_in + i, j->n_out, &at)) out[at] = in[i];
    OF(index_store)(j, p, out);
  }
}
