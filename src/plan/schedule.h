/* schedule.h: one order of a graph and what follows from it, for those who ask who lives when:
 * planning itself, and memonger.
 *
 * A `work` is what holds for every order of one graph (readers, reachability, scratch). A
 * `schedule` is what one order leads to: who shares bytes with whom, when each storage lives, how
 * much is live at each step. neap_plan_make compares schedules, packs the best one, and writes the
 * result into a neap_plan.
 *
 * A *storage* is a set of ARENA values that lie in the same bytes: chains of in place, alias and
 * enforced versions. It is named by its root, the value defined first.
 */
#ifndef NEAP_SCHEDULE_H
#define NEAP_SCHEDULE_H

#include "pack/pack.h"
#include "plan/plan.h"

typedef struct neap_work {
  const neap_graph *graph;
  neap_plan_options options;
  const size_t *scratch_bytes; /* by node; borrowed from the plan */
  neap_uses uses;
  uint64_t *reach; /* dag only, else NULL */
  int n_word;
} neap_work;

typedef struct neap_schedule {
  int *order, *step; /* order[step] = node, step[node] */
  int *root, *next;  /* by value: root of its storage; next member, a ring */
  neap_reason *reason;
  neap_refusal *refusal;
  int *partner;
  int *first, *last;   /* by value; -1 for a value that exists before the graph runs */
  neap_interval *life; /* by root: of the storage, with its bytes aligned */
  size_t *live_bytes;  /* by step */
  size_t peak_bytes;
  int peak_step;
  int64_t n_search; /* nodes that the search for the order looked at */
  neap_arena arena; /* owns all of the above */
} neap_schedule;

/* schedule.c. `order` NULL: definition order. Copies it. */
neap_status neap_schedule_init(neap_schedule *s, const neap_work *work, const int *order,
                               neap_error *error);
/* Order and storages as `plan` has them; lives and bytes of the work's own graph, which is of the
 * same form. */
neap_status neap_schedule_init_like(neap_schedule *s, const neap_work *work, const neap_plan *plan,
                                    neap_error *error);
void neap_schedule_fini(neap_schedule *s);

/* order.c: an order of low peak, greedily; *out from neap_alloc. */
neap_status neap_order_least_peak(const neap_work *work, int **out, int64_t *n_search,
                                  neap_error *error);

#endif
