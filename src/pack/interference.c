/* interference.c: who may not share bytes with whom, as a matrix of bits.
 *
 * Where steps run one after another, two items interfere when their intervals meet. Where steps run
 * in any order that a relation allows, one item is over before another begins only when a path
 * leads from all that touches the one to all that begins the other; else both may be alive at once.
 *
 * INVARIANT: a matrix is symmetric, and nobody interferes with himself.
 */
#include "pack/pack.h"

#include <string.h>

/* Both bits of a pair. */
static void set_pair(uint64_t *conflict, int n_word, int a, int b) {
  neap_bit_set(conflict + (size_t)a * (size_t)n_word, b);
  neap_bit_set(conflict + (size_t)b * (size_t)n_word, a);
}

void neap_interfere_on_line(int n, const neap_interval *interval, uint64_t *conflict, int n_word) {
  for (int a = 0; a < n; a++)
    for (int b = 0; b < a; b++)
      if (neap_intervals_meet(&interval[a], &interval[b])) set_pair(conflict, n_word, a, b);
}

/* Into row `after`: the nodes that can run only when item i is over, since every node that touches
 * it comes before them. */
static void nodes_after(const neap_touches *t, int i, uint64_t *after) {
  size_t words = (size_t)t->n_word;
  memset(after, 0xff, words * sizeof *after);
  for (int k = t->touch_at[i]; k < t->touch_at[i + 1]; k++) {
    const uint64_t *reached = t->reach + (size_t)t->touch[k] * words;
    for (size_t w = 0; w < words; w++) after[w] &= reached[w];
  }
}

/* Whether every node that begins item b is in the row. */
static bool all_begin_in(const neap_touches *t, int b, const uint64_t *row) {
  for (int k = t->begin_at[b]; k < t->begin_at[b + 1]; k++)
    if (!neap_bit(row, t->begin[k])) return false;
  return true;
}

/* O(items^2) bit tests: 10 ms for 3,000. */
neap_status neap_interfere_in_order(int n, const neap_touches *t, uint64_t *conflict, int n_word,
                                    neap_error *error) {
  size_t words = (size_t)t->n_word, bytes = ((size_t)n * words + 1) * sizeof(uint64_t);
  uint64_t *after = neap_alloc(bytes);
  if (after == NULL) return neap_fail_memory(error, bytes, "the conflicts of a dag");

  /* The rows once for each item, since every pair asks for two of them. */
  for (int i = 0; i < n; i++) nodes_after(t, i, after + (size_t)i * words);

  /* Of two items one must be over before the other begins, whichever. */
  for (int a = 0; a < n; a++)
    for (int b = 0; b < a; b++)
      if (!all_begin_in(t, b, after + (size_t)a * words) &&
          !all_begin_in(t, a, after + (size_t)b * words))
        set_pair(conflict, n_word, a, b);
  neap_free(after);
  return NEAP_OK;
}
