/* schedule.c: one order of a graph and what follows from it: storages, lives, bytes live at each step.
 *
 * A schedule is what all policies pack: which values are one storage, from which step to which it lives, and how many bytes are
 * live while each step runs. Storages are found from the graph (alias.c), or taken over from a plan that stands already, when
 * the same addresses are to serve another batch size; lives come from the one analysis (live_range.c) either way.
 *
 * INVARIANT: `order` and `step` are inverse to each other; members of a storage form a ring through `next`, which starts
 * anywhere.
 */
#include "plan/plan_int.h"

#include <string.h>

/* All arrays of a schedule in one place, so that the memory is refused at once or not at all. */
static bool take_arrays(neap_schedule *s, const neap_graph *g) {
  size_t n = (size_t)g->n_node, m = (size_t)g->n_value;
  int **by_value[] = {&s->root, &s->next, &s->partner, &s->first, &s->last, &s->from, &s->to};
  int **by_node[] = {&s->order, &s->step};
  for (int i = 0; i < NEAP_COUNT(by_value); i++)
    if ((*by_value[i] = neap_arena_alloc(&s->arena, m * sizeof(int))) == NULL) return false;
  for (int i = 0; i < NEAP_COUNT(by_node); i++)
    if ((*by_node[i] = neap_arena_alloc(&s->arena, n * sizeof(int))) == NULL) return false;
  s->reason = neap_arena_alloc(&s->arena, m * sizeof *s->reason);
  s->refusal = neap_arena_alloc(&s->arena, m * sizeof *s->refusal);
  s->bytes = neap_arena_alloc(&s->arena, m * sizeof *s->bytes);
  s->live_bytes = neap_arena_alloc(&s->arena, n * sizeof *s->live_bytes);
  return s->reason != NULL && s->refusal != NULL && s->bytes != NULL && s->live_bytes != NULL;
}

/* `order` NULL: that of definition. On failure *s is empty. */
/* An empty schedule whose steps are those of `order`; NULL: of definition. On failure *s is empty. */
static neap_status begin(neap_schedule *s, const neap_graph *g, const int *order, neap_error *error) {
  memset(s, 0, sizeof *s);
  if (!take_arrays(s, g)) {
    neap_schedule_fini(s);
    return neap_fail_memory(error, (size_t)(g->n_node + g->n_value) * 8 * sizeof(int), "a schedule");
  }
  for (int i = 0; i < g->n_node; i++) {
    s->order[i] = order != NULL ? order[i] : i;
    s->step[s->order[i]] = i;
  }
  return NEAP_OK;
}

/* The lives of the storages that s has by now. */
static neap_status complete(neap_schedule *s, const neap_work *work, neap_error *error) {
  neap_status status = neap_schedule_live(s, work, error);
  if (status != NEAP_OK) neap_schedule_fini(s);
  return status;
}

neap_status neap_schedule_init(neap_schedule *s, const neap_work *work, const int *order, neap_error *error) {
  NEAP_TRY(begin(s, work->graph, order, error));
  neap_schedule_share(s, work);
  return complete(s, work, error);
}

/* The ring of a storage: its members in order of value, then the first again. */
static void link_ring(neap_schedule *s, int n_value) {
  for (int v = 0; v < n_value; v++) s->next[v] = v;
  for (int v = 0; v < n_value; v++) {
    int root = s->root[v];
    if (root == v) continue;
    s->next[v] = s->next[root]; /* behind the root */
    s->next[root] = v;
  }
}

/* Order and storages of `plan`, which was made for a graph of the same form. On failure *s is empty. */
neap_status neap_schedule_init_like(neap_schedule *s, const neap_work *work, const neap_plan *plan, neap_error *error) {
  const neap_graph *g = work->graph;
  NEAP_TRY(begin(s, g, plan->order, error));
  for (int v = 0; v < g->n_value; v++) {
    s->root[v] = plan->place[v].storage;
    s->reason[v] = plan->place[v].reason;
    s->refusal[v] = plan->place[v].refusal;
    s->partner[v] = plan->place[v].partner;
  }
  link_ring(s, g->n_value);
  return complete(s, work, error);
}

void neap_schedule_fini(neap_schedule *s) {
  neap_arena_fini(&s->arena);
  memset(s, 0, sizeof *s);
}
