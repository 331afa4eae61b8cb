/* greedy.c: packing by placing blocks one after another, each in a gap between the blocks already
 * placed that it conflicts with. What decides is the order: by size, by length of life, by both, by
 * first step.
 *
 * The blocks placed are kept in one list ordered by offset, so that one walk meets the gaps from
 * low to high: O(n) for a block, O(n^2) in all, with a small constant (a walk for a lowest fit ends
 * at the first gap). Lives are copied into the list, so that the walk reads memory in order.
 */
#include "pack/pack_int.h"

#include <stdlib.h>
#include <string.h>

/* A block that has its place: bytes [offset, end), steps [first, last]. */
struct neap_placed {
  size_t offset, end;
  int first, last, block;
};

size_t neap_pack_placed_bytes(int n) { return (size_t)n * sizeof(neap_placed); }

/* The offset for block b among n placed ones: the lowest gap that holds it, or with NEAP_FIT_BEST
 * the one that it fills best; without a gap, on top of all that it conflicts with. `top` is the
 * highest end among conflicting blocks met so far: lives differ, so that a block that begins higher
 * may end lower. O(n). */
static size_t find_gap(const neap_pack_work *w, int b, neap_fit fit, const neap_placed *placed,
                       int n) {
  const neap_block *block = &w->block[b];
  const uint64_t *row = w->conflict != NULL ? w->conflict + (size_t)b * (size_t)w->n_word : NULL;
  size_t top = 0, best = SIZE_MAX, best_gap = SIZE_MAX;
  for (int i = 0; i < n; i++) {
    const neap_placed *p = &placed[i];
    /* Who does not conflict may share the bytes: his place is no obstacle. */
    bool conflicts =
      row != NULL ? neap_bit(row, p->block) : p->first <= block->last && p->last >= block->first;
    if (!conflicts) continue;

    /* A gap lies between the top so far and the next obstacle. */
    if (p->offset > top) {
      size_t start = neap_round_up(top, block->align);
      if (start + block->bytes <= p->offset) {
        if (fit == NEAP_FIT_FIRST) return start;
        if (p->offset - start < best_gap) {
          best = start;
          best_gap = p->offset - start;
        }
      }
    }
    if (p->end > top) top = p->end;
  }
  if (best != SIZE_MAX) return best;
  return neap_round_up(top, block->align);
}

/* Keeps the list ordered by offset. Room for one more is the caller's affair. */
static void insert(neap_placed *placed, int n, neap_placed item) {
  int low = 0, high = n;

  /* Behind those of equal offset: the list then depends on the order of placing alone. */
  while (low < high) {
    int mid = low + (high - low) / 2;
    if (placed[mid].offset <= item.offset)
      low = mid + 1;
    else
      high = mid;
  }
  memmove(placed + low + 1, placed + low, (size_t)(n - low) * sizeof *placed);
  placed[low] = item;
}

size_t neap_pack_greedy(neap_pack_work *w, const int *order, neap_fit fit, size_t limit,
                        neap_placed *room, size_t *offset) {
  size_t total = 0;
  int n = 0;
  for (int i = 0; i < w->n; i++) {
    /* The offset of a block left out is 0 too, since the caller copies all of them. */
    const neap_block *block = &w->block[order[i]];
    offset[order[i]] = 0;
    if (block->bytes == 0) continue; /* meets nobody */

    /* A step for each placed block that the walk may pass: what the searches are limited by. */
    w->n_step += n + 1;
    size_t at = find_gap(w, order[i], fit, room, n);
    if (at + block->bytes > total) total = at + block->bytes;
    /* Totals only grow, so this order can't get below the limit any more. */
    if (total >= limit) return SIZE_MAX;
    offset[order[i]] = at;
    insert(room, n++, (neap_placed){at, at + block->bytes, block->first, block->last, order[i]});
  }
  return total;
}

/* ---- static orders --------------------------------------------------------------------------- */

/* What a static order sorts by. */
typedef struct key {
  double major, minor;
  int block;
} key;

/* Larger first; ties by the definition, so that equal input gives an equal plan on every
 * machine. */
static int compare_keys(const void *a, const void *b) {
  const key *x = a, *y = b;
  if (x->major != y->major) return x->major > y->major ? -1 : 1;
  if (x->minor != y->minor) return x->minor > y->minor ? -1 : 1;
  return x->block < y->block ? -1 : 1;
}

/* Life in steps; for a conflict matrix the number of conflicts, which plays the same part. */
static double life_of(const neap_pack_work *w, int b) {
  if (w->conflict == NULL) return (double)w->block[b].last - (double)w->block[b].first + 1;
  const uint64_t *row = w->conflict + (size_t)b * (size_t)w->n_word;
  /* A block with many conflicts is as hard to place as one that lives long. */
  int n = 1;
  for (int k = 0; k < w->n_word; k++) n += __builtin_popcountll(row[k]);
  return n;
}

/* By order: what the plan says of who packed it. Two orders by size differ in their ties (start,
 * life). */
static const char *const names[] = {"size", "size", "area", "life", "start"};

/* Blocks into `order` by static order `which`, an index of `names`. */
static void sort_by(const neap_pack_work *w, int which, key *keys, int *order) {
  for (int b = 0; b < w->n; b++) {
    /* All figures of each block, whichever the order takes: they cost little beside the sort.
     * Starts are negated, since larger keys come first. */
    double size = (double)w->block[b].bytes, life = life_of(w, b);
    double start = -(double)w->block[b].first;
    /* One column for each of `names`. */
    double major[] = {size, size, size * life, life, start};
    double minor[] = {start, life, start, size, size};
    keys[b] = (key){major[which], minor[which], b};
  }
  qsort(keys, (size_t)w->n, sizeof *keys, compare_keys);
  for (int i = 0; i < w->n; i++) order[i] = keys[i].block;
}

/* Ten packings, O(n^2) each; one that can't beat the best so far is given up at the block where
 * that shows. The limit is looked at between two of them: there is always a packing. Fails with
 * MEMORY alone. */
neap_status neap_pack_try_orders(neap_pack_work *w, neap_error *error) {
  /* Room for all packings, taken once. */
  neap_status status = NEAP_OK;
  size_t n = (size_t)w->n,
         bytes = n * (sizeof(key) + sizeof(int) + sizeof(size_t)) + neap_pack_placed_bytes(w->n);
  neap_arena arena = {0};
  key *keys = neap_arena_alloc(&arena, n * sizeof *keys);
  int *order = neap_arena_alloc(&arena, n * sizeof *order);
  size_t *offset = neap_arena_alloc(&arena, n * sizeof *offset);
  neap_placed *room = neap_arena_alloc(&arena, neap_pack_placed_bytes(w->n));
  if (keys == NULL || order == NULL || offset == NULL || room == NULL) {
    status = neap_fail_memory(error, bytes, "packing");
    goto done;
  }
  for (int which = 0; which < NEAP_COUNT(names); which++) {
    /* Neither fit is always the better one: each order is tried with both. */
    sort_by(w, which, keys, order);
    for (int fit = NEAP_FIT_FIRST; fit <= NEAP_FIT_BEST; fit++) {
      if (neap_pack_is_done(w)) goto done;
      size_t total = neap_pack_greedy(w, order, (neap_fit)fit, w->best_bytes, room, offset);
      /* No gain; the same total found by an earlier order stays, so that the result is one. */
      if (total >= w->best_bytes) continue;
      memcpy(w->offset, offset, n * sizeof *offset);
      w->best_bytes = total;
      w->packer = names[which];
    }
  }
done:
  neap_arena_fini(&arena);
  return status;
}
