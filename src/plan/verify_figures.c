/* verify_figures.c: the figures of a plan, counted again from its places, as verify.c does with the
 * places themselves. */
#include "plan/verify_int.h"

#include <string.h>

/* The bound of each bank, counted again in `live`: the most of its bytes that live at once; *sum of
 * what the plan says they are. */
static neap_status sum_bounds(check *c, size_t *live, const int *from, const int *to,
                              const size_t *bytes, size_t *sum) {
  /* Bank by bank; `live` is used anew for each. */
  const neap_plan *plan = c->plan;
  const neap_graph *g = c->graph;
  *sum = 0;
  for (int b = 0; b < plan->n_bank; b++) {
    /* First by how much `live` changes at each step, then the sums. */
    memset(live, 0, ((size_t)plan->n_node + 2) * sizeof *live);
    for (int v = 0; v < g->n_value; v++) {
      if (to[v] < 0 || g->value[v].bank != b) continue;
      live[from[v]] += bytes[v];
      live[to[v] + 1] -= bytes[v];
    }
    size_t most = 0;
    for (int i = 0; i < plan->n_node; i++) {
      int n = plan->order[i];
      if (i > 0) live[i] += live[i - 1];
      size_t scratch = g->node[n].bank == b ? neap_align(plan->scratch_bytes[n]) : 0;
      most = NEAP_MAX(most, live[i] + scratch);
    }
    /* In a dag a heavier clique may be known, but no bound lies above what is laid out. */
    size_t bound = plan->bank[b].lower_bound_bytes;
    bool is_true = bound == most;
    if (c->above != NULL) is_true = bound >= most && bound <= plan->bank[b].bytes;
    if (!is_true)
      return neap_fail(
        c->error, NEAP_PLAN,
        "the most bytes live at once in bank \"%s\" are %zu, the plan's bound is %zu",
        g->bank[b].name, most, bound);
    *sum += bound;
  }
  return NEAP_OK;
}

/* Bytes live at each step, counted again: storages by their hull of steps, aligned, and scratch. */
neap_status verify_figures(check *c, size_t *live, int *from, int *to, size_t *bytes) {
  const neap_plan *plan = c->plan;
  const neap_graph *g = c->graph;

  /* By root: the steps from which to which a storage lives, and its bytes. */
  for (int v = 0; v < g->n_value; v++) {
    from[v] = plan->n_node;
    to[v] = -1;
  }
  for (int v = 0; v < g->n_value; v++) {
    if (!in_arena(c, v)) continue;
    int root = plan->place[v].storage;
    from[root] = NEAP_MIN(from[root], c->step[g->value[v].node]);
    to[root] = NEAP_MAX(to[root], c->last_step[v]);
    bytes[root] = NEAP_MAX(bytes[root], neap_align(g->value[v].bytes));
  }

  /* First by how much `live` changes at each step, then the sums. */
  for (int v = 0; v < g->n_value; v++) {
    if (to[v] < 0) continue;
    live[from[v]] += bytes[v];
    live[to[v] + 1] -= bytes[v];
  }
  size_t most = 0;
  for (int i = 0; i < plan->n_node; i++) {
    if (i > 0) live[i] += live[i - 1];
    size_t now = live[i] + neap_align(plan->scratch_bytes[plan->order[i]]);
    if (now != plan->live_bytes[i])
      return neap_fail(c->error, NEAP_PLAN, "%zu bytes are live at step %d, the plan says %zu", now,
                       i + 1, plan->live_bytes[i]);
    most = NEAP_MAX(most, now);
  }

  /* The bound of the arena as a whole; with banks the sum of theirs. In a dag it may come from a
   * clique, and lie higher. */
  size_t bound = most;
  if (plan->n_bank > 0) NEAP_TRY(sum_bounds(c, live, from, to, bytes, &bound));
  bool is_true = plan->lower_bound_bytes == bound;
  if (c->above != NULL) is_true = plan->lower_bound_bytes >= bound;
  if (!is_true)
    return neap_fail(c->error, NEAP_PLAN,
                     "the most bytes live at once are %zu, the plan's bound is %zu", bound,
                     plan->lower_bound_bytes);

  /* The step that a report shows as the peak is one where as much is live. */
  if (plan->n_node > 0 && (plan->peak_step < 0 || plan->peak_step >= plan->n_node ||
                           plan->live_bytes[plan->peak_step] != most))
    return neap_fail(c->error, NEAP_PLAN, "step %d is not the peak", plan->peak_step + 1);

  /* And the figures of the whole: aligned, the bound below the arena, and proved just when they are
   * equal. */
  if (plan->arena_bytes % NEAP_ALIGN != 0 || plan->lower_bound_bytes % NEAP_ALIGN != 0 ||
      plan->arena_bytes < plan->lower_bound_bytes ||
      plan->proved != (plan->arena_bytes == plan->lower_bound_bytes))
    return neap_fail(c->error, NEAP_PLAN, "an arena of %zu bytes with a bound of %zu is %sproved",
                     plan->arena_bytes, plan->lower_bound_bytes, plan->proved ? "not " : "");
  return NEAP_OK;
}
