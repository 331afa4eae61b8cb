/* shrink.c: the plan of one batch size carried over to a smaller one: order, storages and addresses
 * stay, bytes shrink.
 *
 * INVARIANT: nothing lies elsewhere than in the larger plan, and nothing is larger. So what shared
 * no byte there shares none here, and all batches run in one arena.
 *
 * The figures are the smaller batch's own where they speak of need (live bytes, bound, baseline),
 * and the larger one's where they speak of what is held (arena, regions). A plan here is only
 * "proved" when both happen to be equal.
 */
#include "plan/plan_int.h"

#include <string.h>

/* PLAN error for the first value that is larger than its place. */
static neap_status check_sizes(const neap_graph *graph, const neap_plan *like, neap_error *error) {
  for (int v = 0; v < graph->n_value; v++)
    if (graph->value[v].bytes > like->place[v].bytes)
      return neap_fail(error, NEAP_PLAN,
                       "\"%s\" has %zu bytes, the plan that it is to fit into %zu",
                       graph->value[v].name, graph->value[v].bytes, like->place[v].bytes);
  return NEAP_OK;
}

/* For neap_plan_take_subs: the plan of the subnet in the same place of the larger plan, shrunk. */
static neap_status shrink_sub(const void *context, int node, int k, const neap_graph *sub,
                              neap_plan **out, neap_error *error) {
  const neap_plan *like = context;
  return neap_plan_shrink(like->sub[node][k], sub, out, error);
}

/* Plans of the subnets, shrunk; then each node's scratch: frames stay as large as they were. PLAN
 * error for more of it. */
static neap_status shrink_subs(neap_plan *plan, const neap_graph *graph, const neap_plan *like,
                               neap_error *error) {
  NEAP_TRY(neap_plan_take_subs(plan, graph, shrink_sub, like, error));
  for (int n = 0; n < graph->n_node; n++)
    if (plan->scratch_bytes[n] > like->scratch_bytes[n])
      return neap_fail(
        error, NEAP_PLAN,
        "op \"%s\" needs %zu bytes of scratch, the plan that it is to fit into has %zu",
        graph->node[n].name, plan->scratch_bytes[n], like->scratch_bytes[n]);
  return NEAP_OK;
}

/* Lives and figures by the one analysis, over the storages of the larger plan. */
static neap_status shrink_places(neap_plan *plan, const neap_graph *graph, const neap_plan *like,
                                 neap_error *error) {
  neap_work work = {.graph = graph, .scratch_bytes = plan->scratch_bytes};
  neap_schedule schedule = {0};
  NEAP_TRY(neap_graph_uses(graph, &work.uses, error));
  neap_status status = neap_schedule_init_like(&schedule, &work, like, error);
  if (status != NEAP_OK) goto done;

  /* Addresses are those of the larger plan, lives and figures those of the schedule. */
  size_t *offset = neap_arena_alloc(&schedule.arena, ((size_t)graph->n_value + 1) * sizeof *offset);
  if (offset == NULL) {
    status = neap_fail_memory(error, (size_t)graph->n_value * sizeof *offset, "offsets");
    goto done;
  }
  for (int v = 0; v < graph->n_value; v++) offset[v] = like->place[v].offset;
  neap_plan_fill_places(plan, graph, &schedule, offset);

  /* With banks the bound is the sum of theirs. */
  if (plan->n_bank > 0) plan->lower_bound_bytes = 0;
  for (int b = 0; b < plan->n_bank; b++) {
    neap_plan_bank *bank = &plan->bank[b];
    *bank = like->bank[b];
    status = neap_schedule_bank_peak(&schedule, &work, b, &bank->lower_bound_bytes, error);
    if (status != NEAP_OK) goto done;
    plan->lower_bound_bytes += bank->lower_bound_bytes;
  }
done:
  neap_schedule_fini(&schedule);
  neap_uses_fini(&work.uses);
  return status;
}

/* Nothing lies elsewhere than in the larger plan, and nothing is larger. */
static void check_within(const neap_plan *plan, const neap_plan *like) {
  /* Values first, then scratch by node and the order, then the arena as a whole. */
  for (int v = 0; v < plan->n_value; v++) {
    const neap_place *small = &plan->place[v], *large = &like->place[v];
    NEAP_ASSERT(small->storage == large->storage && small->bytes <= large->bytes &&
                  (small->region != NEAP_REGION_ARENA || small->offset == large->offset),
                "value %d lies where it does in the larger plan, and is no larger: %zu bytes at "
                "%zu, there %zu at %zu",
                v, small->bytes, small->offset, large->bytes, large->offset);
  }
  for (int n = 0; n < plan->n_node; n++)
    NEAP_ASSERT(
      plan->order[n] == like->order[n] && plan->scratch_bytes[n] <= like->scratch_bytes[n] &&
        plan->scratch_offset[n] == like->scratch_offset[n],
      "step %d is that of the larger plan, and so is the scratch of node %d: %zu bytes, there %zu",
      n, n, plan->scratch_bytes[n], like->scratch_bytes[n]);
  NEAP_ASSERT(
    plan->lower_bound_bytes <= plan->arena_bytes && plan->arena_bytes == like->arena_bytes,
    "both have one arena, %zu bytes: %zu, bound %zu", like->arena_bytes, plan->arena_bytes,
    plan->lower_bound_bytes);
}

neap_status neap_plan_shrink(const neap_plan *like, const neap_graph *graph, neap_plan **out,
                             neap_error *error) {
  *out = NULL;
  if (like->n_node != graph->n_node || like->n_value != graph->n_value ||
      like->n_bank != graph->n_bank)
    return neap_fail(error, NEAP_PLAN,
                     "the plan is for %d ops and %d values, the graph has %d and %d", like->n_node,
                     like->n_value, graph->n_node, graph->n_value);
  NEAP_TRY(check_sizes(graph, like, error));
  neap_plan *plan = neap_plan_new(graph);
  if (plan == NULL)
    return neap_fail_memory(error, (size_t)graph->n_value * sizeof *plan->place, "a plan");

  /* What the smaller batch has in common with the larger one. */
  plan->policy = like->policy;
  plan->executor = like->executor;
  plan->packer = like->packer;
  plan->arena_bytes = like->arena_bytes;

  /* What is held is the larger batch's: all programs of the range share its segments and arena. */
  memcpy(plan->region_bytes, like->region_bytes, sizeof plan->region_bytes);
  memcpy(plan->scratch_offset, like->scratch_offset,
         (size_t)graph->n_node * sizeof *plan->scratch_offset);

  /* What is its own. */
  neap_status status = shrink_subs(plan, graph, like, error);
  if (status == NEAP_OK) status = shrink_places(plan, graph, like, error);
  if (status != NEAP_OK) {
    neap_plan_free(plan);
    return status;
  }
  plan->proved = plan->arena_bytes == plan->lower_bound_bytes;
  neap_plan_set_baseline(plan, graph);
  if (NEAP_DEBUG) check_within(plan, like);
  *out = plan;
  return NEAP_OK;
}
