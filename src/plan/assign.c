/* assign.c: which blobs share a slot, given when each lives: the assignment behind recycling by name.
 *
 * An item has bytes, a class (items of different classes never share) and a life in steps; two items may share a slot when the
 * one is defined strictly after the other's last read, so that no sharing makes an op work in place; or as a conflict matrix
 * says, where ops run side by side. The cost of an assignment is the sum over slots of the largest member.
 *
 * INVARIANT: the result depends on the items' order of definition and on nothing else: ties are broken by index.
 * INVARIANT: no two slots of the result could be one, so that assigning a result again changes nothing.
 */
#include "plan/plan_int.h"

#include <stdlib.h>

/* An assignment under way, and the cheapest so far. The members of a slot form a list, so that the last one put can be taken
 * off again in O(1). Arrays are n + 1 long and lie in the caller's arena. */
typedef struct assigner {
  int n;
  const neap_assign_item *item;
  const neap_assign_options *options;
  int *slot, *order;  /* by item; items in the order they are placed */
  size_t *slot_bytes; /* by slot */
  int *head, *next;   /* members of a slot, a list */
  int n_slot;
  int *best; /* by item: the cheapest assignment so far */
  size_t best_bytes;
  int64_t deadline_ns;
  int64_t n_step;
  bool stopped;
} assigner;

bool neap_assign_conflict(const neap_assign_item *item, const neap_assign_options *options, int a, int b) {
  if (item[a].class_id != item[b].class_id) return true;
  if (options->conflict != NULL) return neap_bit(options->conflict + (size_t)a * (size_t)options->n_word, b);
  return item[a].first <= item[b].last && item[b].first <= item[a].last;
}

/* Whether item i may join the slot: O(members). */
static bool fits(const assigner *s, int slot, int i) {
  for (int j = s->head[slot]; j >= 0; j = s->next[j])
    if (neap_assign_conflict(s->item, s->options, i, j)) return false;
  return true;
}

/* Better fit: the smallest that is large enough, else the largest that is not. */
static bool is_better(size_t want, size_t a, size_t b) {
  if ((a >= want) != (b >= want)) return a >= want;
  return a >= want ? a < b : a > b;
}

int neap_assign_best_slot(int n_slot, const size_t *slot_bytes, const bool *usable, size_t want_bytes) {
  int best = -1;
  for (int k = 0; k < n_slot; k++)
    if (usable[k] && (best < 0 || is_better(want_bytes, slot_bytes[k], slot_bytes[best]))) best = k;
  return best;
}

/* Item i joins the slot; the number n_slot opens a new one. */
static void put(assigner *s, int i, int slot) {
  if (slot == s->n_slot) {
    s->head[slot] = -1;
    s->slot_bytes[slot] = 0;
    s->n_slot++;
  }
  s->next[i] = s->head[slot];
  s->head[slot] = i;
  s->slot[i] = slot;
  s->slot_bytes[slot] = NEAP_MAX(s->slot_bytes[slot], s->item[i].bytes);
}

/* Items one by one, in s->order, each into the best fitting slot it may join, else into a new one. O(n^2) conflict tests. */
static void place_all(assigner *s) {
  s->n_slot = 0;
  for (int k = 0; k < s->n; k++) {
    int i = s->order[k], best = -1;
    for (int slot = 0; slot < s->n_slot; slot++)
      if (fits(s, slot, i) && (best < 0 || is_better(s->item[i].bytes, s->slot_bytes[slot], s->slot_bytes[best]))) best = slot;
    put(s, i, best >= 0 ? best : s->n_slot);
  }
}

/* Bytes of all slots: each as large as its largest member. */
static size_t cost(const assigner *s) {
  size_t bytes = 0;
  for (int k = 0; k < s->n_slot; k++) bytes += s->slot_bytes[k];
  return bytes;
}

/* Two slots without a conflict between their members become one, which never costs more: the larger size stays, the smaller one
 * goes. This is what makes the second INVARIANT hold for the greedy results. */
static void merge_slots(assigner *s) {
  for (int a = 0; a < s->n_slot; a++)
    for (int b = a + 1; b < s->n_slot; b++) {
      bool can = true;
      for (int j = s->head[b]; can && j >= 0; j = s->next[j]) can = fits(s, a, j);
      if (!can) continue;
      for (int j = s->head[b]; j >= 0;) {
        int after = s->next[j];
        put(s, j, a);
        j = after;
      }
      s->n_slot--;
      for (int k = b; k < s->n_slot; k++) {
        s->head[k] = s->head[k + 1];
        s->slot_bytes[k] = s->slot_bytes[k + 1];
        for (int j = s->head[k]; j >= 0; j = s->next[j]) s->slot[j] = k;
      }
      b = a; /* slot a has grown: look at all that follow it again */
    }
}

/* Merges slots, then keeps the present assignment if it is cheaper, or as cheap with fewer slots. */
static void consider(assigner *s, int *best_n_slot) {
  merge_slots(s);
  size_t bytes = cost(s);
  if (bytes > s->best_bytes || (bytes == s->best_bytes && s->n_slot >= *best_n_slot)) return;
  s->best_bytes = bytes;
  *best_n_slot = s->n_slot;
  neap_copy_bytes(s->best, s->slot, (size_t)s->n * sizeof *s->best);
}

/* What items are sorted by. */
typedef struct keyed {
  size_t bytes;
  int first, index;
} keyed;

/* By first step, then by index. */
static int by_definition(const void *a, const void *b) {
  const keyed *x = a, *y = b;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

/* Largest first, then by definition. */
static int by_bytes(const void *a, const void *b) {
  const keyed *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return by_definition(a, b);
}

/* Items into s->order. */
static void sort_items(assigner *s, keyed *key, int (*compare)(const void *, const void *)) {
  for (int i = 0; i < s->n; i++) key[i] = (keyed){s->item[i].bytes, s->item[i].first, i};
  if (s->n > 0) qsort(key, (size_t)s->n, sizeof *key, compare);
  for (int i = 0; i < s->n; i++) s->order[i] = key[i].index;
}

/* Branch and bound over the items, largest first: each joins one of the slots it may, or opens one. With the largest first a
 * slot's bytes are those of its first member, so joining costs nothing and opening costs the item: a branch whose open slots
 * cost as much as the best known assignment is cut. */
static void search(assigner *s, int k, size_t bytes, int *best_n_slot) {
  if (s->stopped || bytes >= s->best_bytes) return;
  if ((++s->n_step & 1023) == 0 && neap_clock_ns() > s->deadline_ns) {
    s->stopped = true;
    return;
  }
  if (k == s->n) {
    s->best_bytes = bytes;
    *best_n_slot = s->n_slot;
    neap_copy_bytes(s->best, s->slot, (size_t)s->n * sizeof *s->best);
    return;
  }
  int i = s->order[k], n_slot = s->n_slot;
  for (int slot = 0; slot <= n_slot && !s->stopped; slot++) {
    if (slot < n_slot && !fits(s, slot, i)) continue;
    put(s, i, slot);
    search(s, k + 1, slot < n_slot ? bytes : bytes + s->item[i].bytes, best_n_slot);
    s->head[slot] = s->next[i]; /* undo */
    s->n_slot = n_slot;
  }
}

/* The recursion is as deep as there are items: more than this are left to the greedy orders. */
enum { MOST_EXACT = 5000 };

/* From s->best to the caller's numbers. */
static void renumber(const assigner *s, int *slot, int n_slot) {
  /* by the first member in order of definition; s->order is sorted so, s->slot is free to use as the map */
  for (int k = 0; k < s->n; k++) s->slot[k] = -1;
  int n = 0;
  for (int k = 0; k < s->n; k++) {
    int old = s->best[s->order[k]];
    if (s->slot[old] < 0) s->slot[old] = n++;
    slot[s->order[k]] = s->slot[old];
  }
  (void)n_slot;
}

/* Two greedy passes first, by definition and the largest first: neither is always the better one. The exact search then
 * has a good result to cut against, and that one stands when time runs out. MEMORY is the one failure. */
neap_status neap_assign(int n, const neap_assign_item *item, const neap_assign_options *options, int *slot,
                        neap_assign_result *result, neap_error *error) {
  neap_arena arena = {0};
  size_t room = (size_t)n + 1;
  assigner s = {.n = n, .item = item, .options = options, .best_bytes = SIZE_MAX};
  int **lists[] = {&s.slot, &s.order, &s.head, &s.next, &s.best};
  keyed *key = neap_arena_alloc(&arena, room * sizeof *key);
  s.slot_bytes = neap_arena_alloc(&arena, room * sizeof *s.slot_bytes);
  bool ok = key != NULL && s.slot_bytes != NULL;
  for (int k = 0; k < NEAP_COUNT(lists); k++) ok = ok && (*lists[k] = neap_arena_alloc(&arena, room * sizeof(int))) != NULL;
  if (!ok) {
    neap_arena_fini(&arena);
    return neap_fail_memory(error, room * sizeof(int) * 8, "an assignment");
  }
  int best_n_slot = INT32_MAX;
  sort_items(&s, key, by_definition);
  place_all(&s);
  consider(&s, &best_n_slot);
  sort_items(&s, key, by_bytes);
  place_all(&s);
  consider(&s, &best_n_slot);
  *result = (neap_assign_result){.exact = false};
  if (options->exact && n <= MOST_EXACT) {
    s.deadline_ns = neap_clock_ns() + (options->time_limit_ns > 0 ? options->time_limit_ns : 1000000000);
    s.n_slot = 0;
    search(&s, 0, 0, &best_n_slot);
    result->exact = !s.stopped;
  }
  result->bytes = n > 0 ? s.best_bytes : 0;
  result->n_slot = n > 0 ? best_n_slot : 0;
  sort_items(&s, key, by_definition);
  renumber(&s, slot, best_n_slot);
  neap_arena_fini(&arena);
  return NEAP_OK;
}
