/* pack: blocks on a line, and items in slots. Knows base only, so that it can be used alone, on
 * instances from files.
 *
 * A block lives from one step to another, or conflicts with whom a matrix says. neap_pack gives it
 * an offset such that blocks that conflict share no byte, and the total is small: greedy orders
 * first (greedy.c), then branch and bound (exact.c) and local search (search.c), each ended by a
 * number of steps, never by time. neap_assign puts items that do not conflict into slots as large
 * as their largest (slots.c): what is left when bytes are shared by name.
 *
 * What both rest on is asked of them alone, by others too: the most bytes alive at once (peak.c),
 * and who interferes with whom (interference.c).
 *
 * INVARIANT: lower_bound_bytes <= total_bytes; proved exactly when equal.
 */
#ifndef NEAP_PACK_H
#define NEAP_PACK_H

#include "base/base.h"

/* ---- lives ----------------------------------------------------------------------------------- */

/* Bytes that are alive from one step to another, both included; of 0 bytes they are nowhere. */
typedef struct neap_interval {
  int64_t first, last;
  size_t bytes;
} neap_interval;

static inline bool neap_intervals_meet(const neap_interval *a, const neap_interval *b) {
  return a->first <= b->last && b->first <= a->last;
}

/* The most bytes alive at once, and the first step where they are; 0 and 0 where nothing lives. */
typedef struct neap_peak {
  size_t bytes;
  int64_t step;
} neap_peak;

/* Of intervals within the steps 0 to n_step - 1: also live[i], the bytes alive at step i. */
neap_peak neap_interval_live(int n, const neap_interval *interval, int n_step, size_t *live);
/* Of any intervals. Fails with MEMORY. */
neap_status neap_interval_peak(int n, const neap_interval *interval, neap_peak *peak,
                               neap_error *error);
/* Who is alive at the step, largest first: fills `who` and returns how many of `room` were. */
int neap_interval_alive(int n, const neap_interval *interval, int64_t step, int room, int *who);

/* A matrix of conflicts has a row of n_word words of 64 bits for each item; bit b of row a says
 * that a and b may not share. These add bits to a matrix of n rows. */
static inline bool neap_interferes(const uint64_t *conflict, int n_word, int a, int b) {
  return neap_bit(conflict + (size_t)a * (size_t)n_word, b);
}
/* Items on a line. */
void neap_interfere_on_line(int n, const neap_interval *interval, uint64_t *conflict, int n_word);

/* Items that nodes touch: item i is touched by touch[touch_at[i]] up to touch[touch_at[i + 1] - 1],
 * and begun by the nodes that `begin` lists alike. `reach` has a row of n_word words for each node:
 * bit j of row i says that node i comes before node j in every order that may run. */
typedef struct neap_touches {
  const int *touch_at, *touch, *begin_at, *begin;
  const uint64_t *reach;
  int n_word;
} neap_touches;
neap_status neap_interfere_in_order(int n, const neap_touches *touches, uint64_t *conflict,
                                    int n_word, neap_error *error);

/* ---- offsets --------------------------------------------------------------------------------- */

typedef struct neap_block {
  size_t bytes, align; /* align 0: 1 */
  int first, last;     /* inclusive steps; used when `overlaps` is NULL */
  size_t offset;       /* out */
} neap_block;

typedef struct neap_pack_options {
  int64_t most_steps;   /* blocks looked at; 0: a default that takes some seconds at most */
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
  int64_t n_step; /* blocks looked at: the work of the search, the same on every machine */
} neap_pack_result;

neap_status neap_pack(int n, neap_block *block, const neap_pack_options *options,
                      neap_pack_result *result, neap_error *error);

/* ---- slots (slots.c); the rest of them is in neap.h ------------------------------------------ */

/* Whether two items may not share a slot. */
bool neap_assign_conflict(const neap_assign_item *item, const neap_assign_options *options, int a,
                          int b);

#endif
