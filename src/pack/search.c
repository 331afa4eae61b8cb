/* search.c: local search over the order of greedy packing (as TVM's hill climbing does), for what
 * the exact search does not take: conflict matrices and very many blocks.
 *
 * Placing blocks by ascending offset of the best packing gives that packing again, or a lower one.
 * A move takes a block that ends above the target and puts it at an earlier place of the order; it
 * stays when the total grows no higher. Ties are accepted, so that the search walks along plateaus.
 * Chance comes from a fixed seed: equal input, equal result.
 */
#include "pack/pack_int.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_IDLE = 400 }; /* moves without gain */

/* A block by its offset in the present packing. */
typedef struct key {
  size_t offset;
  int block;
} key;

static int compare_keys(const void *a, const void *b) {
  const key *x = a, *y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return x->block < y->block ? -1 : 1;
}

/* The order in which placing blocks gives the packing `offset` again, or a lower one. */
static void order_by_offset(const neap_pack_work *w, const size_t *offset, key *keys, int *order) {
  for (int b = 0; b < w->n; b++) keys[b] = (key){offset[b], b};
  qsort(keys, (size_t)w->n, sizeof *keys, compare_keys);
  for (int i = 0; i < w->n; i++) order[i] = keys[i].block;
}

/* A climb under way. All arrays are by block or by place in the order, n long, and lie in the
 * caller's arena. */
typedef struct climb {
  neap_pack_work *w;
  key *keys;
  int *order, *trial;
  size_t *offset; /* of the trial */
  size_t *here;   /* of the present order */
  neap_placed *room;
  uint64_t state;
} climb;

/* Below n, from a linear congruential generator (Knuth's MMIX constants); its low bits are weak and
 * left out. */
static uint64_t draw(climb *c, uint64_t n) {
  c->state = c->state * 6364136223846793005u + 1442695040888963407u;
  return (c->state >> 33) % n;
}

/* One move into `trial`: a block that ends above the target, the first from a chance place on, goes
 * to a chance place before its own. False: no block ends above the target, or the one found is the
 * first already. */
static bool make_move(climb *c) {
  /* The block to move: drawn from a chance place on, so that not always the same one is tried. */
  const neap_pack_work *w = c->w;
  int from = -1, start = (int)draw(c, (uint64_t)w->n);

  /* Only where a block ends too high is there something to gain. */
  for (int k = 0; k < w->n; k++) {
    int i = (start + k) % w->n, b = c->order[i];
    if (c->here[b] + w->block[b].bytes <= w->stop_at_bytes) continue;
    from = i;
    break;
  }
  if (from <= 0) return false;

  /* The blocks between the two places move up by one. */
  int to = (int)draw(c, (uint64_t)from), block = c->order[from];
  memcpy(c->trial, c->order, (size_t)w->n * sizeof *c->trial);
  memmove(c->trial + to + 1, c->trial + to, (size_t)(from - to) * sizeof *c->trial);
  c->trial[to] = block;
  return true;
}

/* Climbs from the work's best packing. The greedy pass is limited to `now` + 1, so that a tie
 * counts as a step and anything worse is given up halfway. The climb goes on from where it is, not
 * from the best: the best is kept in the work. */
static void run(climb *c) {
  /* Here the climb begins: the order that gives the work's packing again. */
  neap_pack_work *w = c->w;
  size_t now = w->best_bytes, n = (size_t)w->n;
  memcpy(c->here, w->offset, n * sizeof *c->here);
  order_by_offset(w, c->here, c->keys, c->order);

  /* Moves, until the bound is reached or many in a row have gained nothing. */
  for (int idle = 0; idle < MAX_IDLE; idle++) {
    if (neap_pack_is_done(w) || !make_move(c)) return;
    size_t total = neap_pack_greedy(w, c->trial, NEAP_FIT_FIRST, now + 1, c->room, c->offset);
    if (total > now) continue;
    /* No worse: the climb stands here now. The order is made anew from the offsets, because placing
     * by them may come out lower still. */
    now = total;
    memcpy(c->here, c->offset, n * sizeof *c->here);
    order_by_offset(w, c->here, c->keys, c->order);
    /* A tie is a step of the climb, but only a gain is kept and gives it new patience. */
    if (total >= w->best_bytes) continue;
    memcpy(w->offset, c->offset, n * sizeof *c->offset);
    w->best_bytes = total;
    w->packer = "search";
    idle = 0;
  }
}

/* O(n^2) a move; fails with MEMORY alone, and leaves the work's packing valid. */
neap_status neap_pack_search(neap_pack_work *w, neap_error *error) {
  /* Room for one climb. The seed is fixed: equal input gives an equal result. */
  size_t n = (size_t)w->n;
  neap_arena arena = {0};
  climb c = {.w = w, .state = 1};
  c.keys = neap_arena_alloc(&arena, n * sizeof *c.keys);
  c.order = neap_arena_alloc(&arena, n * sizeof *c.order);
  c.trial = neap_arena_alloc(&arena, n * sizeof *c.trial);
  c.offset = neap_arena_alloc(&arena, n * sizeof *c.offset);
  c.here = neap_arena_alloc(&arena, n * sizeof *c.here);
  c.room = neap_arena_alloc(&arena, neap_pack_placed_bytes(w->n));
  bool ok = c.keys != NULL && c.order != NULL && c.trial != NULL && c.offset != NULL &&
            c.here != NULL && c.room != NULL;
  if (ok) run(&c);
  neap_arena_fini(&arena);
  return ok ? NEAP_OK : neap_fail_memory(error, n * sizeof *c.keys, "packing");
}
