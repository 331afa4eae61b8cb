/* make.c: neap_plan_make, the way from graph to plan.
 *
 *   subnets first (their arenas are their owner's scratch) -> candidate orders -> schedule of each
 *   (storages, lives, peak)
 *   -> the one of least peak -> addresses by policy -> places, reasons, partners -> budget
 *
 * The definition order is kept unless another has a lower peak: a plan then reads as the net was
 * written.
 */
#include "plan/plan_int.h"

#include <string.h>

#define SUB_STEPS INT64_C(500000)
#define ORDER_MAX_NODE 20000 /* the list scheduler looks at every ready node in every step */

/* A body's values that lie in its iteration's frame: at their items. */
static void place_items(neap_plan *plan, const neap_graph *body, const neap_loop *loop) {
  for (int v = 0; v < body->n_value; v++)
    if (body->value[v].region == NEAP_REGION_FRAME)
      plan->place[v].offset = loop->item[body->value[v].argument].offset;
}

neap_status neap_plan_take_subs(neap_plan *plan, const neap_graph *graph, neap_plan_sub *make,
                                const void *context, neap_error *error) {
  for (int n = 0; n < graph->n_node; n++) {
    /* The list ends with NULL, so that a plan that is freed half made has no plans behind those it
     * got. */
    const neap_node *node = &graph->node[n];
    if (node->n_sub > 0) {
      plan->sub[n] =
        neap_arena_alloc(&plan->arena, ((size_t)node->n_sub + 1) * sizeof *plan->sub[n]);
      if (plan->sub[n] == NULL)
        return neap_fail_memory(error, (size_t)node->n_sub * sizeof *plan->sub[n],
                                "plans of subnets");
    }
    /* Only one of a node's subnets runs at a time: they share room for the largest arena. */
    size_t most = 0;
    for (int k = 0; k < node->n_sub; k++) {
      NEAP_TRY(make(context, n, k, node->sub[k], &plan->sub[n][k], error));
      plan->n_search += plan->sub[n][k]->n_search;
      place_items(plan->sub[n][k], node->sub[k], node->loop);
      most = NEAP_MAX(most, neap_align(plan->sub[n][k]->arena_bytes));
    }
    plan->scratch_bytes[n] = most + node->choice.scratch_bytes;
  }
  return NEAP_OK;
}

/* For neap_plan_take_subs: a subnet planned like the net around it. */
static neap_status plan_sub(const void *context, int node, int k, const neap_graph *sub,
                            neap_plan **out, neap_error *error) {
  (void)node, (void)k;
  return neap_plan_make(sub, context, out, error);
}

/* What subnets are planned by. A budget is the whole net's affair, so they have none. Under policy
 * `pool` a subnet's arena is one block of the pool, taken while its owner runs, and planned within.
 * That the order of the net around them is kept says nothing of theirs. A search for recomputations
 * plans them many times over, so that their addresses are searched for in few steps: in all plans,
 * since what the search has seen is what a plan takes. */
static neap_plan_options options_within(const neap_plan_options *options) {
  neap_plan_options inner = *options;
  inner.budget_bytes = 0;
  inner.keep_order = false;
  if (inner.most_steps == 0 || inner.most_steps > SUB_STEPS) inner.most_steps = SUB_STEPS;
  if (inner.policy == NEAP_POLICY_POOL) inner.policy = NEAP_POLICY_OFFSET;
  return inner;
}

neap_status neap_plan_subs(neap_plan *plan, const neap_graph *graph,
                           const neap_plan_options *options, neap_error *error) {
  const neap_plan_options inner = options_within(options);
  return neap_plan_take_subs(plan, graph, plan_sub, &inner, error);
}

neap_status neap_plan_scratch(const neap_graph *graph, int n, const neap_plan_options *options,
                              size_t *bytes, neap_error *error) {
  const neap_plan_options inner = options_within(options);
  const neap_node *node = &graph->node[n];
  size_t most = 0;
  for (int k = 0; k < node->n_sub; k++) {
    neap_plan *plan = NULL;
    NEAP_TRY(neap_plan_make(node->sub[k], &inner, &plan, error));
    most = NEAP_MAX(most, neap_align(plan->arena_bytes));
    neap_plan_free(plan);
  }
  *bytes = most + node->choice.scratch_bytes;
  return NEAP_OK;
}

/* What holds for every order; `scratch_bytes` stays the plan's, borrowed. On failure there is
 * nothing to finish. */
static neap_status work_init(neap_work *work, const neap_graph *graph,
                             const neap_plan_options *options, const neap_plan *plan,
                             neap_error *error) {
  *work = (neap_work){.graph = graph, .options = *options, .scratch_bytes = plan->scratch_bytes};
  NEAP_TRY(neap_graph_uses(graph, &work->uses, error));
  neap_status status = NEAP_OK;
  if (options->executor == NEAP_EXECUTOR_DAG)
    status = neap_reach_new(graph, &work->reach, &work->n_word, error);
  if (status != NEAP_OK) neap_uses_fini(&work->uses);
  return status;
}

static void work_fini(neap_work *work) {
  neap_free(work->reach);
  neap_uses_fini(&work->uses);
}

/* The schedule of least peak, owned by the caller, on failure too. `dag` keeps the definition
 * order: there an order is only one of many that may run. So do `none` and `name`, whose bytes are
 * not those of the peak, and very large graphs. */
neap_status neap_schedule_best(neap_schedule *best, const neap_work *work, neap_error *error) {
  /* The order of definition is there in any case, and is the answer where no other one may be
   * looked for. */
  NEAP_TRY(neap_schedule_init(best, work, NULL, error));
  bool packed =
    work->options.policy == NEAP_POLICY_OFFSET || work->options.policy == NEAP_POLICY_POOL;
  if (!packed || work->options.keep_order || work->reach != NULL) return NEAP_OK;
  if (work->graph->n_node > ORDER_MAX_NODE) return NEAP_OK;

  /* A greedy search may end worse than it began, so the two peaks are compared. */
  int *order = NULL;
  int64_t n_search = 0;
  neap_schedule other = {0};
  neap_status status = neap_order_least_peak(work, &order, &n_search, error);
  if (status == NEAP_OK) status = neap_schedule_init(&other, work, order, error);
  neap_free(order);

  /* The other one is the caller's when it is better; after a failure it is empty. */
  if (status != NEAP_OK || other.peak_bytes < best->peak_bytes) {
    neap_schedule_fini(best);
    *best = other;
  } else {
    neap_schedule_fini(&other);
  }
  best->n_search = n_search;
  return status;
}

void neap_plan_fill_places(neap_plan *plan, const neap_graph *graph, const neap_schedule *s,
                           const size_t *offset) {
  /* A value lies where its storage does: only roots have an offset. */
  size_t constant_bytes = 0;
  for (int v = 0; v < graph->n_value; v++) {
    const neap_value *value = &graph->value[v];
    bool in_arena = value->region == NEAP_REGION_ARENA;
    plan->place[v] = (neap_place){.region = value->region,
                                  .storage = s->root[v],
                                  .offset = in_arena ? offset[s->root[v]] : 0,
                                  .bytes = value->bytes,
                                  .first = s->first[v],
                                  .last = s->last[v],
                                  .reason = s->reason[v],
                                  .refusal = s->refusal[v],
                                  .partner = s->partner[v]};
    /* Constants outlive the run, so none shares bytes: they lie one after another. */
    if (value->region != NEAP_REGION_CONSTANT) continue;
    plan->place[v].offset = constant_bytes;
    constant_bytes += neap_align(value->bytes);
  }

  /* The schedule is freed; what the plan says of its steps is a copy. */
  neap_copy_bytes(plan->order, s->order, (size_t)graph->n_node * sizeof *plan->order);
  neap_copy_bytes(plan->live_bytes, s->live_bytes,
                  (size_t)graph->n_node * sizeof *plan->live_bytes);
  plan->peak_step = s->peak_step;
  plan->lower_bound_bytes = s->peak_bytes;
}

/* Bytes of a region, for the reader of a plan; the arena's are those laid out, padding and all. */
static size_t count_region(const neap_plan *plan, const neap_graph *graph, neap_region r) {
  return r == NEAP_REGION_ARENA ? plan->arena_bytes : neap_graph_region_bytes(graph, r);
}

/* Whether the value would have bytes of its own without reuse: views too, whose ops copy then, as
 * they do under policy `none`; what a budget recomputes would not be there. The graph alone says
 * it, so that all policies have one figure. */
static bool counts_alone(const neap_graph *graph, int v) {
  const neap_value *value = &graph->value[v];
  bool recomputed = value->node >= 0 && graph->node[value->node].recomputes > 0;
  return value->region == NEAP_REGION_ARENA && value->root == v && !recomputed;
}

static size_t count_baseline(const neap_plan *plan, const neap_graph *graph) {
  size_t values = 0, scratch = 0;
  /* Scratch is the exception to "without reuse": ops run one by one, so the largest would do. */
  for (int v = 0; v < graph->n_value; v++)
    if (counts_alone(graph, v)) values += neap_align(graph->value[v].bytes);
  for (int n = 0; n < graph->n_node; n++)
    scratch = NEAP_MAX(scratch, neap_align(plan->scratch_bytes[n]));
  return NEAP_MAX(values + scratch, plan->arena_bytes);
}

void neap_plan_set_baseline(neap_plan *plan, const neap_graph *graph) {
  plan->baseline_bytes = count_baseline(plan, graph);
}

neap_status neap_plan_check_counts(const neap_plan *plan, const neap_graph *graph,
                                   neap_error *error) {
  for (int r = 0; r < NEAP_N_REGION; r++) {
    size_t bytes = count_region(plan, graph, (neap_region)r);
    if (bytes != plan->region_bytes[r])
      return neap_fail(error, NEAP_PLAN, "\"%s\" has %zu bytes in %s, the plan says %zu",
                       graph->name, bytes, neap_region_name((neap_region)r), plan->region_bytes[r]);
  }
  if (plan->baseline_bytes != count_baseline(plan, graph))
    return neap_fail(error, NEAP_PLAN, "without reuse \"%s\" has %zu bytes, the plan says %zu",
                     graph->name, count_baseline(plan, graph), plan->baseline_bytes);
  for (int n = 0; n < graph->n_node; n++)
    for (int k = 0; k < graph->node[n].n_sub; k++)
      NEAP_TRY(neap_plan_check_counts(plan->sub[n][k], graph->node[n].sub[k], error));
  return NEAP_OK;
}

/* Policy `pool`: as it comes; where the budget leaves no room, with evictions. */
static neap_status foretell(neap_plan *plan, const neap_graph *graph,
                            const neap_plan_options *options, neap_error *error) {
  NEAP_TRY(neap_plan_foretell(plan, graph, error));
  bool over = options->budget_bytes > 0 && plan->arena_bytes > options->budget_bytes;
  if (!over || !options->evict) return NEAP_OK;

  /* Frames that grow keep no budget, whatever is evicted: neap_plan_check_budget refuses. */
  if (neap_graph_region_bytes(graph, NEAP_REGION_FRAME) > 0) return NEAP_OK;
  return neap_plan_evict(plan, graph, options, plan->arena_bytes, error);
}

/* Everything but subnets and budget. On failure the plan is half filled, and its owner frees it. */
static neap_status plan_graph(neap_plan *plan, const neap_graph *graph,
                              const neap_plan_options *options, neap_error *error) {
  /* Lists of readers, and paths in a dag, hold for every order, so they are made once. */
  neap_work work;
  neap_schedule schedule = {0};
  neap_layout_out out = {.scratch_offset = plan->scratch_offset, .bank = plan->bank};
  NEAP_TRY(work_init(&work, graph, options, plan, error));
  neap_status status = NEAP_OK;
  out.offset = neap_alloc_zeroed(((size_t)graph->n_value + 1) * sizeof *out.offset);
  if (out.offset == NULL)
    status = neap_fail_memory(error, (size_t)graph->n_value * sizeof *out.offset, "offsets");

  /* When each storage lives, then where. */
  if (status == NEAP_OK) status = neap_schedule_best(&schedule, &work, error);
  if (status == NEAP_OK) status = neap_policy_lay_out(&work, &schedule, &out, error);
  if (status != NEAP_OK) goto done;
  neap_plan_fill_places(plan, graph, &schedule, out.offset);
  plan->arena_bytes = out.arena_bytes;
  plan->packer = out.packer;
  plan->n_search += schedule.n_search + out.n_search;

  /* The schedule's peak is a bound; in a dag the packer may know a higher one. */
  plan->lower_bound_bytes = NEAP_MAX(plan->lower_bound_bytes, out.lower_bound_bytes);
  if (plan->policy == NEAP_POLICY_POOL) status = foretell(plan, graph, options, error);
  if (status != NEAP_OK) goto done;

  /* Reaching the bound is the proof; nothing else is. */
  plan->proved = plan->arena_bytes == plan->lower_bound_bytes;
  for (int r = 0; r < NEAP_N_REGION; r++)
    plan->region_bytes[r] = count_region(plan, graph, (neap_region)r);
  status = neap_plan_find_partners(plan, graph, error);
done:
  neap_schedule_fini(&schedule);
  neap_free(out.offset);
  work_fini(&work);
  return status;
}

/* What one can see without looking for who overlaps whom, which verify.c does for every plan. */
static void check_plan(const neap_plan *plan, const neap_graph *graph,
                       const neap_plan_options *options) {
  /* The figures agree with each other and with what was asked for. */
  NEAP_ASSERT(plan->lower_bound_bytes <= plan->arena_bytes,
              "the arena, %zu bytes, is no smaller than its bound, %zu", plan->arena_bytes,
              plan->lower_bound_bytes);
  NEAP_ASSERT(plan->proved == (plan->lower_bound_bytes == plan->arena_bytes),
              "a plan is proved when its arena, %zu bytes, is its bound, %zu", plan->arena_bytes,
              plan->lower_bound_bytes);
  NEAP_ASSERT(plan->arena_bytes % NEAP_ALIGN == 0, "an arena has a multiple of %u bytes: %zu",
              NEAP_ALIGN, plan->arena_bytes);
  NEAP_ASSERT(options->budget_bytes == 0 || plan->arena_bytes <= options->budget_bytes,
              "the arena keeps to its budget of %zu bytes: %zu", options->budget_bytes,
              plan->arena_bytes);
  NEAP_ASSERT(plan->arena_bytes <= plan->baseline_bytes,
              "reuse takes no bytes: %zu with, %zu without", plan->arena_bytes,
              plan->baseline_bytes);

  /* Each value lies where its storage does, and inside. */
  for (int v = 0; v < graph->n_value; v++) {
    const neap_place *place = &plan->place[v], *storage = &plan->place[place->storage];
    NEAP_ASSERT(storage->storage == place->storage && storage->offset == place->offset,
                "value %d lies where its storage does: at %zu, storage %d at %zu", v, place->offset,
                place->storage, storage->offset);
    NEAP_ASSERT(place->region != NEAP_REGION_ARENA || place->first < 0 ||
                  place->offset + place->bytes <= plan->arena_bytes,
                "value %d lies in the arena of %zu bytes: %zu at %zu", v, plan->arena_bytes,
                place->bytes, place->offset);
  }
}

/* The plan is owned by the caller. ARGUMENT for pool with dag or banks, BUDGET for a budget that
 * does not suffice, GRAPH for a value that is read and never made, MEMORY. On failure *out is not
 * set. */
neap_status neap_plan_make(const neap_graph *graph, const neap_plan_options *options,
                           neap_plan **out, neap_error *error) {
  /* What no policy can do together is refused before anything is planned. */
  int64_t start = neap_clock_ns();
  if (options->policy == NEAP_POLICY_POOL && options->executor == NEAP_EXECUTOR_DAG)
    return neap_fail(
      error, NEAP_ARGUMENT,
      "policy pool takes bytes in the order of the run, so it needs executor simple, not dag");
  if (options->policy == NEAP_POLICY_POOL && graph->n_bank > 0)
    return neap_fail(error, NEAP_ARGUMENT,
                     "policy pool takes bytes while it runs, and memory banks are planned before: "
                     "use executor simple or dag");
  neap_plan *plan = neap_plan_new(graph);
  if (plan == NULL)
    return neap_fail_memory(error, (size_t)graph->n_value * sizeof *plan->place, "a plan");
  plan->policy = options->policy;
  plan->executor = options->executor;

  /* Subnets first: their arenas are scratch of their owners. */
  neap_status status = neap_plan_subs(plan, graph, options, error);
  if (status == NEAP_OK) status = plan_graph(plan, graph, options, error);
  if (status == NEAP_OK) neap_plan_set_baseline(plan, graph);

  /* The budget last: a refusal names what is live at the peak of the plan that was found. */
  const neap_limit limit = {.bytes = options->budget_bytes};
  if (status == NEAP_OK) status = neap_plan_check_budget(plan, graph, &limit, error);
  if (status != NEAP_OK) {
    neap_plan_free(plan);
    return status;
  }
  plan->plan_ns = neap_clock_ns() - start;
  if (NEAP_DEBUG) check_plan(plan, graph, options);
  *out = plan;
  return NEAP_OK;
}
