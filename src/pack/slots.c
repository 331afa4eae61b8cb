/* slots.c: which blobs share a slot, given when each lives: the assignment behind recycling by
 * name.
 *
 * An item has bytes, a class (items of different classes never share) and a life in steps; two
 * items may share a slot when the one is defined strictly after the other's last read, so that no
 * sharing makes an op work in place; or as a conflict matrix says, where ops run side by side. The
 * cost of an assignment is the sum over slots of the largest member.
 *
 * INVARIANT: the result depends on the items' order of definition and on nothing else: ties are
 * broken by index, and what ends an exact search is a number of steps. Only a caller who sets a
 * limit of time gives that up.
 * INVARIANT: no two slots of the result could be one, so that assigning a result again changes
 * nothing.
 */
#include "pack/pack.h"

#include <stdlib.h>
#include <string.h>

/* An assignment under way, and the cheapest so far. The members of a slot form a list, so that the
 * last one put can be taken off again in O(1). Arrays are n + 1 long and lie in the caller's
 * arena. */
typedef struct assigner {
  int n;
  const neap_assign_item *item;
  const neap_assign_options *options;
  int *slot, *order;   /* by item; items in the order they are placed */
  int64_t *slot_bytes; /* by slot */
  int *head, *next;    /* members of a slot, a list */
  int n_slot;
  int *best; /* by item: the cheapest assignment so far */
  int64_t best_bytes;
  int64_t n_step, most_steps;
  bool stopped;
} assigner;

static neap_interval life_of(const neap_assign_item *item) {
  return (neap_interval){item->first, NEAP_MAX(item->first, item->last), (size_t)item->bytes};
}

bool neap_assign_conflict(const neap_assign_item *item, const neap_assign_options *options, int a,
                          int b) {
  if (item[a].class_id != item[b].class_id) return true;
  if (options->conflict != NULL) return neap_interferes(options->conflict, options->n_word, a, b);
  const neap_interval x = life_of(&item[a]), y = life_of(&item[b]);
  return neap_intervals_meet(&x, &y);
}

/* Whether item i may join the slot: O(members). */
static bool fits(const assigner *s, int slot, int i) {
  for (int j = s->head[slot]; j >= 0; j = s->next[j])
    if (neap_assign_conflict(s->item, s->options, i, j)) return false;
  return true;
}

/* Better fit: the smallest that is large enough, else the largest that is not. */
static bool is_better(int64_t want, int64_t a, int64_t b) {
  if ((a >= want) != (b >= want)) return a >= want;
  return a >= want ? a < b : a > b;
}

int neap_assign_best_slot(int n_slot, const int64_t *slot_bytes, const bool *usable,
                          int64_t want_bytes) {
  /* Of equal ones the first stays, so that the answer does not depend on chance. */
  int best = -1;
  for (int k = 0; k < n_slot; k++) {
    if (!usable[k]) continue;
    if (best < 0 || is_better(want_bytes, slot_bytes[k], slot_bytes[best])) best = k;
  }
  return best;
}

/* Item i joins the slot; the number n_slot opens a new one. */
static void put(assigner *s, int i, int slot) {
  if (slot == s->n_slot) {
    /* A slot that was opened before the search went back keeps nothing of that. */
    s->head[slot] = -1;
    s->slot_bytes[slot] = 0;
    s->n_slot++;
  }
  s->next[i] = s->head[slot];
  s->head[slot] = i;
  s->slot[i] = slot;
  s->slot_bytes[slot] = NEAP_MAX(s->slot_bytes[slot], s->item[i].bytes);
}

/* Items one by one, in s->order, each into the best fitting slot it may join, else into a new one:
 * so the first member of a slot conflicts with a member of each slot before it, and no two could be
 * one. O(n^2) conflict tests. */
static void place_all(assigner *s) {
  s->n_slot = 0;
  for (int k = 0; k < s->n; k++) {
    /* The best fitting of the slots whose members all let i in. */
    int i = s->order[k], best = -1;
    for (int slot = 0; slot < s->n_slot; slot++) {
      if (!fits(s, slot, i)) continue;
      if (best < 0 || is_better(s->item[i].bytes, s->slot_bytes[slot], s->slot_bytes[best]))
        best = slot;
    }
    put(s, i, best >= 0 ? best : s->n_slot);
  }
}

/* Bytes of all slots: each as large as its largest member. */
static int64_t cost(const assigner *s) {
  int64_t bytes = 0;
  for (int k = 0; k < s->n_slot; k++) bytes += s->slot_bytes[k];
  return bytes;
}

/* Keeps the present assignment if it is cheaper, or as cheap with fewer slots. */
static void consider(assigner *s, int *best_n_slot) {
  int64_t bytes = cost(s);
  if (bytes > s->best_bytes || (bytes == s->best_bytes && s->n_slot >= *best_n_slot)) return;
  s->best_bytes = bytes;
  *best_n_slot = s->n_slot;
  neap_copy_bytes(s->best, s->slot, (size_t)s->n * sizeof *s->best);
}

/* What items are sorted by. */
typedef struct keyed {
  int64_t bytes, first;
  int index;
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

/* Branch and bound over the items, largest first: each joins one of the slots it may, or opens one.
 * With the largest first a slot's bytes are those of its first member, so joining costs nothing and
 * opening costs the item: a branch whose open slots cost as much as the best known assignment is
 * cut. */
static void search(assigner *s, int k, int64_t bytes, int *best_n_slot) {
  /* The cost only grows from here on: what is not cheaper by now never will be. */
  if (s->stopped || bytes >= s->best_bytes) return;
  if (++s->n_step > s->most_steps) {
    s->stopped = true;
    return;
  }

  /* All items have a slot, and for less than ever before. */
  if (k == s->n) {
    s->best_bytes = bytes;
    *best_n_slot = s->n_slot;
    neap_copy_bytes(s->best, s->slot, (size_t)s->n * sizeof *s->best);
    return;
  }

  /* The next item. Slots opened below this node are closed again when it is left. */
  int i = s->order[k], n_slot = s->n_slot;

  /* The open slots first, and then one more: where i may join, that costs nothing. */
  for (int slot = 0; slot <= n_slot; slot++) {
    bool is_new = slot == n_slot;
    if (!is_new && !fits(s, slot, i)) continue;
    put(s, i, slot);
    search(s, k + 1, is_new ? bytes + s->item[i].bytes : bytes, best_n_slot);
    if (s->stopped) return;
    /* Back: i is the member put last, so the head of the list. */
    s->head[slot] = s->next[i];
    s->n_slot = n_slot;
  }
}

/* The recursion is as deep as there are items: more than this are left to the greedy orders. */
enum { MOST_EXACT = 5000, MOST_STEPS = 1000000 };

/* From s->best to the caller's numbers: by the first member in order of definition. s->order is
 * sorted so; s->slot is free to use as the map. */
static void renumber(const assigner *s, int *slot) {
  /* The numbers are given out in the order in which slots are first met. */
  for (int k = 0; k < s->n; k++) s->slot[k] = -1;
  int n = 0;
  for (int k = 0; k < s->n; k++) {
    int old = s->best[s->order[k]];
    if (s->slot[old] < 0) s->slot[old] = n++;
    slot[s->order[k]] = s->slot[old];
  }
}

/* Whether some member of slot a conflicts with one of slot b. */
static bool are_apart(const assigner *s, const int *slot, int a, int b) {
  /* One conflicting pair is enough: then the two slots must stay two. */
  for (int i = 0; i < s->n; i++) {
    if (slot[i] != a) continue;
    for (int j = 0; j < s->n; j++)
      if (slot[j] == b && neap_assign_conflict(s->item, s->options, i, j)) return true;
  }
  return false;
}

/* No two slots of the result could be one: of each two, some members conflict. Quartic at worst, so
 * for few items. */
static void check_slots_apart(const assigner *s, const int *slot) {
  enum { FEW = 200 };
  if (s->n > FEW) return;
  int n_slot = 0;
  for (int i = 0; i < s->n; i++) n_slot = NEAP_MAX(n_slot, slot[i] + 1);
  for (int a = 0; a < n_slot; a++)
    for (int b = 0; b < a; b++)
      NEAP_ASSERT(are_apart(s, slot, a, b), "slots %d and %d of %d could not be one", a, b, n_slot);
}

/* ARGUMENT error for what is no size, and for sizes whose sum is none. */
static neap_status check_items(int n, const neap_assign_item *item, neap_error *error) {
  int64_t room = INT64_MAX;

  /* `room` is what the sum may still grow by. */
  for (int i = 0; i < n; i++) {
    const char *name = item[i].name != NULL ? item[i].name : "";
    if (item[i].bytes < 0)
      return neap_fail(error, NEAP_ARGUMENT, "assign: item %d \"%s\" has %lld bytes", i + 1, name,
                       (long long)item[i].bytes);
    if (item[i].bytes > room)
      return neap_fail(error, NEAP_ARGUMENT, "assign: %d items have more bytes than can be counted",
                       n);
    room -= item[i].bytes;
  }
  return NEAP_OK;
}

/* Arrays for n items, in the arena. */
static bool take_arrays(assigner *s, neap_arena *arena) {
  size_t room = (size_t)s->n + 1;
  int **lists[] = {&s->slot, &s->order, &s->head, &s->next, &s->best};
  s->slot_bytes = neap_arena_alloc(arena, room * sizeof *s->slot_bytes);
  for (int k = 0; k < NEAP_COUNT(lists); k++)
    if ((*lists[k] = neap_arena_alloc(arena, room * sizeof(int))) == NULL) return false;
  return s->slot_bytes != NULL;
}

/* Two greedy passes first, by definition and the largest first: neither is always the better one.
 * The exact search then has a good result to cut against, and that one stands when a limit is
 * reached. Fails with MEMORY, or ARGUMENT for the items. */
neap_status neap_assign(int n, const neap_assign_item *item, const neap_assign_options *options,
                        int *slot, neap_assign_figures *figures, neap_error *error) {
  /* What is refused is refused before anything is taken. */
  static const neap_assign_options defaults;
  NEAP_TRY(check_items(n, item, error));
  neap_arena arena = {0};
  neap_status status = NEAP_OK;
  assigner s = {.n = n,
                .item = item,
                .options = options != NULL ? options : &defaults,
                .best_bytes = INT64_MAX};
  keyed *key = neap_arena_alloc(&arena, ((size_t)n + 1) * sizeof *key);
  if (key == NULL || !take_arrays(&s, &arena)) {
    status = neap_fail_memory(error, ((size_t)n + 1) * sizeof(int) * 8, "an assignment");
    goto done;
  }

  /* The better of the two greedy passes stays in s.best. */
  int best_n_slot = INT32_MAX;
  sort_items(&s, key, by_definition);
  place_all(&s);
  consider(&s, &best_n_slot);
  sort_items(&s, key, by_bytes);
  place_all(&s);
  consider(&s, &best_n_slot);

  /* The items lie largest first now, which the search relies on. */
  bool proved = false;
  if (s.options->exact && n <= MOST_EXACT) {
    s.most_steps = s.options->most_steps > 0 ? s.options->most_steps : MOST_STEPS;
    s.n_slot = 0;
    search(&s, 0, 0, &best_n_slot);
    proved = !s.stopped;
  }

  /* The search may have left any order; numbers go by definition. */
  sort_items(&s, key, by_definition);
  renumber(&s, slot);
  if (NEAP_DEBUG) check_slots_apart(&s, slot);
  if (figures == NULL) goto done;
  status = neap_assign_measure(n, item, slot, figures, error);
  if (status == NEAP_OK) figures->proved = proved || figures->bytes == figures->lower_bound_bytes;
done:
  neap_arena_fini(&arena);
  return status;
}

/* ---- what an assignment is worth, and whether it is one -------------------------------------- */

/* ARGUMENT error for a slot that n items can't have. */
static neap_status check_slots(int n, const int *slot, neap_error *error) {
  for (int i = 0; i < n; i++)
    if (slot[i] >= n)
      return neap_fail(error, NEAP_ARGUMENT, "assign: item %d is in slot %d of %d items", i + 1,
                       slot[i] + 1, n);
  return NEAP_OK;
}

/* O(n log n). A life that ends at the last of all steps never ends. */
neap_status neap_assign_measure(int n, const neap_assign_item *item, const int *slot,
                                neap_assign_figures *figures, neap_error *error) {
  NEAP_TRY(check_items(n, item, error));
  NEAP_TRY(check_slots(n, slot, error));
  int n_slot = 0;
  for (int i = 0; i < n; i++) n_slot = NEAP_MAX(n_slot, slot[i] + 1);
  neap_peak peak;
  neap_interval *life = neap_alloc(((size_t)n + 1) * sizeof *life);
  int64_t *bytes = neap_alloc_zeroed(((size_t)n_slot + 1) * sizeof *bytes);
  neap_status status = NEAP_OK;
  if (life == NULL || bytes == NULL) {
    status =
      neap_fail_memory(error, ((size_t)n + 1) * sizeof *life, "the figures of an assignment");
    goto done;
  }
  *figures = (neap_assign_figures){.n_slot = n_slot};

  /* Every item is counted three times: alone, in its slot, and as a life. */
  for (int i = 0; i < n; i++) {
    figures->baseline_bytes += item[i].bytes;
    /* Without a slot an item has bytes of its own; in one it shares with the largest. */
    if (slot[i] < 0)
      figures->bytes += item[i].bytes;
    else
      bytes[slot[i]] = NEAP_MAX(bytes[slot[i]], item[i].bytes);
    life[i] = life_of(&item[i]);
  }

  /* What sharing leaves of the bytes, and the least that any sharing of lives would need. */
  for (int k = 0; k < n_slot; k++) figures->bytes += bytes[k];
  status = neap_interval_peak(n, life, &peak, error);
  if (status == NEAP_OK) figures->lower_bound_bytes = (int64_t)peak.bytes;
done:
  neap_free(life);
  neap_free(bytes);
  return status;
}

static const char *name_of(const neap_assign_item *item) {
  return item->name != NULL ? item->name : "?";
}

/* What is wrong with two items, whose slots are slot[i] and slot[j]. */
static neap_status verify_pair(const neap_assign_item *item, const neap_assign_options *options,
                               const int *slot, int i, int j, neap_error *error) {
  /* One name in two items would have two slots. */
  const char *a = name_of(&item[i]), *b = name_of(&item[j]);
  if (item[i].name != NULL && item[j].name != NULL && strcmp(a, b) == 0)
    return neap_fail(error, NEAP_PLAN, "\"%s\" is there twice, in slots %d and %d", a, slot[i] + 1,
                     slot[j] + 1);

  /* Who has no slot, or one of his own, or conflicts with nobody there, is fine. */
  if (slot[i] < 0 || slot[i] != slot[j] || !neap_assign_conflict(item, options, i, j))
    return NEAP_OK;
  if (item[i].class_id != item[j].class_id)
    return neap_fail(error, NEAP_PLAN, "slot %d: \"%s\" and \"%s\" are of different classes",
                     slot[i] + 1, a, b);
  return neap_fail(error, NEAP_PLAN,
                   "slot %d: \"%s\" (ops %lld to %lld) is alive when \"%s\" is defined (op %lld)",
                   slot[i] + 1, a, (long long)item[i].first, (long long)life_of(&item[i]).last, b,
                   (long long)item[j].first);
}

/* O(n^2). */
neap_status neap_assign_verify(int n, const neap_assign_item *item,
                               const neap_assign_options *options, const int *slot,
                               neap_error *error) {
  static const neap_assign_options defaults;
  if (options == NULL) options = &defaults;
  NEAP_TRY(check_items(n, item, error));
  NEAP_TRY(check_slots(n, slot, error));
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++) {
      bool later = item[j].first > item[i].first; /* the one defined first is named first */
      NEAP_TRY(verify_pair(item, options, slot, later ? i : j, later ? j : i, error));
    }
  return NEAP_OK;
}
