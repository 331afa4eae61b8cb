/* partner.c: for the reader of a plan: whose bytes did a storage take?
 *
 * The arena is painted in the order of first definition; each storage that is painted over others
 * of which it takes bytes names the one that died last.
 */
#include "plan/plan_int.h"

#include <stdlib.h>

/* One range of the arena and the storage that was painted there last. INVARIANT: ranges of the list
 * do not meet. */
typedef struct paint {
  size_t from, to;
  int owner; /* root value */
} paint;

/* What the painting is ordered by. */
typedef struct life {
  int first, root;
} life;

/* For qsort: by first step; storages that begin together by number, so that plans are the same each
 * time. */
static int compare_lives(const void *a, const void *b) {
  const life *x = a, *y = b;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return x->root < y->root ? -1 : 1;
}

/* Of each storage the member that is read last: `last_member[root]`. */
static void find_last_members(const neap_plan *plan, int *last_member) {
  for (int v = 0; v < plan->n_value; v++) last_member[v] = v;
  for (int v = 0; v < plan->n_value; v++) {
    int *best = &last_member[plan->place[v].storage];
    if (plan->place[v].last >= plan->place[*best].last) *best = v;
  }
}

/* Paints [from, to) with `owner`; gives the painted-over owner whose last member is read last, or
 * -1. `n` grows by two at most. Order within the list means nothing. */
static int paint_over(paint *list, int *n, size_t from, size_t to, int owner, const neap_plan *plan,
                      const int *last_member) {
  int best = -1, m = *n;

  /* Takes [from, to) out of each range that it meets: what sticks out on the right becomes a new
   * range, what sticks out on the left stays in the old one. */
  for (int i = 0; i < m; i++) {
    paint *p = &list[i];
    if (p->from >= to || p->to <= from) continue;
    if (best < 0 || plan->place[last_member[p->owner]].last > plan->place[last_member[best]].last)
      best = p->owner;
    if (p->to > to) list[(*n)++] = (paint){to, p->to, p->owner};
    p->to = NEAP_MAX(p->from, from);
  }

  /* Ranges of which nothing is left go, and the new one comes last. */
  int kept = 0;
  for (int i = 0; i < *n; i++)
    if (list[i].to > list[i].from) list[kept++] = list[i];
  list[kept++] = (paint){from, to, owner};
  *n = kept;
  if (NEAP_DEBUG)
    for (int i = 0; i + 1 < kept; i++)
      NEAP_ASSERT(list[i].to <= from || list[i].from >= to,
                  "painted ranges do not meet: %zu to %zu, and %zu to %zu", list[i].from,
                  list[i].to, from, to);
  return best;
}

/* Only reports read what this finds: addresses are settled. O(storages^2) at worst, when each is
 * painted over by many. */
neap_status neap_plan_find_partners(neap_plan *plan, const neap_graph *graph, neap_error *error) {
  size_t m = (size_t)graph->n_value + 1;
  neap_arena arena = {0};
  life *lives = neap_arena_alloc(&arena, m * sizeof *lives);
  int *last_member = neap_arena_alloc(&arena, m * sizeof *last_member);
  size_t *bytes = neap_arena_alloc(&arena, m * sizeof *bytes);
  paint *list = neap_arena_alloc(&arena, (2 * m + 2) * sizeof *list);
  if (lives == NULL || last_member == NULL || bytes == NULL || list == NULL) {
    neap_arena_fini(&arena);
    return neap_fail_memory(error, m * sizeof *list, "the partners of a plan");
  }

  /* The storages of the arena, each with the bytes of its largest member. */
  int n = 0;
  find_last_members(plan, last_member);
  for (int v = 0; v < plan->n_value; v++) {
    const neap_place *place = &plan->place[v];
    bytes[place->storage] = NEAP_MAX(bytes[place->storage], place->bytes);
    if (place->region == NEAP_REGION_ARENA && place->storage == v && place->first >= 0)
      lives[n++] = (life){place->first, v};
  }
  qsort(lives, (size_t)n, sizeof *lives, compare_lives);

  /* One after the other is painted over those that were there before. */
  int n_paint = 0;
  for (int i = 0; i < n; i++) {
    int v = lives[i].root;
    neap_place *place = &plan->place[v];
    if (bytes[v] == 0) continue;
    int owner =
      paint_over(list, &n_paint, place->offset, place->offset + bytes[v], v, plan, last_member);
    /* Nobody was there before: the reason stays that of a first tenant. */
    if (owner < 0) continue;
    place->partner = last_member[owner];
    place->reason = plan->policy == NEAP_POLICY_NAME ? NEAP_REASON_SLOT : NEAP_REASON_REUSE;
  }
  neap_arena_fini(&arena);
  return NEAP_OK;
}
