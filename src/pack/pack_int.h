/* pack_int.h: what the three packers share. They work on one `pack`: blocks, who conflicts with
 * whom, the best offsets so far. Each improves it and returns; the pack is a valid packing at any
 * time.
 */
#ifndef NEAP_PACK_INT_H
#define NEAP_PACK_INT_H

#include "pack/pack.h"

typedef struct neap_pack_work {
  int n; /* blocks of more than zero bytes */
  const neap_block *block;
  const uint64_t *conflict; /* NULL: lives on a line */
  int n_word;
  size_t *offset; /* the best packing so far, of total `best_bytes` */
  size_t best_bytes;
  size_t stop_at_bytes;       /* good enough */
  int64_t n_step, most_steps; /* blocks looked at so far, and how many may be */
  const char *packer;         /* who found it */
} neap_pack_work;

static inline neap_interval neap_block_life(const neap_block *block) {
  return (neap_interval){block->first, block->last, block->bytes};
}

static inline bool neap_pack_conflicts(const neap_pack_work *w, int a, int b) {
  if (w->conflict != NULL) return neap_interferes(w->conflict, w->n_word, a, b);
  const neap_interval x = neap_block_life(&w->block[a]), y = neap_block_life(&w->block[b]);
  return neap_intervals_meet(&x, &y);
}

static inline bool neap_pack_is_done(const neap_pack_work *w) {
  return w->best_bytes <= w->stop_at_bytes || w->n_step > w->most_steps;
}

static inline size_t neap_round_up(size_t bytes, size_t align) {
  return align <= 1 ? bytes : (bytes + align - 1) / align * align;
}

/* greedy.c: places blocks one after another, in `order`, each in a gap between those already
 * there. */
typedef enum neap_fit { NEAP_FIT_FIRST, NEAP_FIT_BEST } neap_fit;
typedef struct neap_placed neap_placed; /* room for the n blocks placed, ordered by offset */
size_t neap_pack_placed_bytes(int n);
/* Offsets go to `offset`; gives the total, or SIZE_MAX as soon as it would reach `limit`. */
size_t neap_pack_greedy(neap_pack_work *w, const int *order, neap_fit fit, size_t limit,
                        neap_placed *room, size_t *offset);
/* All static orders (size, life, area, first step) with both fits. */
neap_status neap_pack_try_orders(neap_pack_work *w, neap_error *error);

/* search.c: hill climbing over orders; stops after some hundred moves without gain, or at the
 * limit. */
neap_status neap_pack_search(neap_pack_work *w, neap_error *error);
/* exact.c: branch and bound, for blocks on a line, up to NEAP_PACK_EXACT_MAX of them. `goal_bytes`,
 * the bound or what is good enough, is tried first. Ends there, at the limit, or when nothing
 * smaller can be had. */
enum { NEAP_PACK_EXACT_MAX = 5000 };
neap_status neap_pack_exact(neap_pack_work *w, size_t goal_bytes, neap_error *error);

#endif
