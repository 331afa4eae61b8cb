/* ops/fc_bias_body.h: the gradient of a bias for one type (fc.c). */
static void OF(sum_rows)(void *context, int64_t begin, int64_t end) {
  const row_sum *k = context;
  OF(neap_rows_sum)((const T *)k->dy + begin, k->m, k->n, end - begin, (T *)k->db + begin);
}
