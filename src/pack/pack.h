/* pack: blocks on a line, and items in slots. Knows base only, so that it can be used alone, on
 * instances from files.
 *
 * A block lives from one step to another, or conflicts with whom a matrix says. neap_pack gives it
 * an offset such that blocks that conflict share no byte, and the total is small: greedy orders
 * first (greedy.c), then branch and bound (exact.c) and local search (search.c), each ended by a
 * number of steps, never by time. neap_assign puts items that do not conflict into slots as large
 * as their largest (slots.c): what is left when bytes are shared by name.
 *
 * INVARIANT: lower_bound_bytes <= total_bytes; proved exactly when equal.
 */
#ifndef NEAP_PACK_H
#define NEAP_PACK_H

#include "base/base.h"

typedef struct neap_block {
  size_t bytes, align; /* align 0: 1 */
  int first, last;     /* inclusive steps; used when `overlaps` is NULL */
  size_t offset;       /* out */
} neap_block;

typedef struct neap_pack_options {
  int64_t most_steps;   /* blocks looked at; 0: a default that takes a second or two */
  size_t stop_at_bytes; /* good enough: usually the lower bound */
  /* Conflict relation for dag: bit matrix n x n (row-major, 64-bit words, n_word words a row);
   * NULL: lives on a line */
  const uint64_t *conflict;
  int n_word;
} neap_pack_options;

typedef struct neap_pack_result {
  size_t total_bytes, lower_bound_bytes;
  bool proved;
  const char *packer;
} neap_pack_result;

neap_status neap_pack(int n, neap_block *block, const neap_pack_options *options,
                      neap_pack_result *result, neap_error *error);

/* ---- slots (slots.c); the rest of them is in neap.h ------------------------------------------ */

/* Whether two items may not share a slot. */
bool neap_assign_conflict(const neap_assign_item *item, const neap_assign_options *options, int a,
                          int b);
/* The best fit among usable slots: the smallest that is large enough, else the largest; ties to the
 * first. -1: none. */
int neap_assign_best_slot(int n_slot, const int64_t *slot_bytes, const bool *usable,
                          int64_t want_bytes);

#endif
