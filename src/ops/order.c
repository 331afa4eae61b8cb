/* order.c: see order.h. Rows are sorted by the bytes of their keys, the lowest first (radix sort):
 * stable, and with no bad case.
 */
#include "ops/order.h"

#include <string.h>

uint64_t neap_order_key(neap_dtype dtype, const void *data, int64_t i) {
  /* A signed integer with its top bit turned is an unsigned one of the same order. */
  const uint64_t top = (uint64_t)1 << 63;
  if (!neap_dtype_is_float(dtype)) return (uint64_t)neap_element_get_i64(dtype, data, i) ^ top;
  /* -0 plus 0 is 0. */
  double value = neap_element_get(dtype, data, i) + 0.0;
  if (value != value) return UINT64_MAX;
  /* The bits of positive floats are in their order, those of negative ones in the opposite: so the
   * first get the top bit and the second are turned. */
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits >= top ? ~bits : bits | top;
}

size_t neap_order_bytes(int64_t n_part, int64_t n) {
  return neap_size_of(neap_count_mul(n_part, n), 2 * sizeof(neap_ordered));
}

enum { DIGITS = 256, N_BYTE = sizeof(uint64_t), FEW = 32 };

/* Few are put in place one by one. */
static void insert(neap_ordered *row, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    neap_ordered moved = row[i];
    int64_t to = i;
    for (; to > 0 && row[to - 1].key > moved.key; to--) row[to] = row[to - 1];
    row[to] = moved;
  }
}

/* From `from` to `to` by byte `byte`, of which count[d] have the digit d. */
static void distribute(const neap_ordered *from, neap_ordered *to, int64_t n, int byte,
                       const int64_t count[DIGITS]) {
  int64_t place[DIGITS], sum = 0;
  /* Where each digit's elements begin: behind all of the smaller digits. */
  for (int d = 0; d < DIGITS; d++) {
    place[d] = sum;
    sum += count[d];
  }
  for (int64_t i = 0; i < n; i++) to[place[from[i].key >> 8 * byte & 0xff]++] = from[i];
}

const neap_ordered *neap_order(const neap_operand *x, int64_t at, int64_t step, int64_t n,
                               bool descending, void *scratch) {
  neap_ordered *from = scratch, *to = from + n;
  uint64_t least = UINT64_MAX;
  for (int64_t i = 0; i < n; i++) {
    uint64_t key = neap_order_key(x->type.dtype, x->data, at + i * step);
    from[i] = (neap_ordered){descending ? ~key : key, i};
    least = NEAP_MIN(least, from[i].key);
  }
  /* From the least on, so that numbers of a small range differ in few bytes. */
  for (int64_t i = 0; i < n; i++) from[i].key -= least;
  if (n <= FEW) {
    insert(from, n);
    return from;
  }
  /* All bytes are counted in one walk; in any order of the row the counts are the same. */
  int64_t count[N_BYTE][DIGITS] = {{0}};
  for (int64_t i = 0; i < n; i++)
    for (int b = 0; b < N_BYTE; b++) count[b][from[i].key >> 8 * b & 0xff]++;
  for (int b = 0; b < N_BYTE; b++) {
    /* A byte that all have in common moves nothing. */
    if (count[b][from[0].key >> 8 * b & 0xff] == n) continue;
    distribute(from, to, n, b, count[b]);
    neap_ordered *swap = from;
    from = to, to = swap;
  }
  return from;
}
