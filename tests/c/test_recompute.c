/* test_recompute.c: what a budget makes a net compute again or evict, and what it must not. */
#include "plan/plan_int.h"
#include "tanh_chain.h"

TEST(a_budget_recomputes_no_more_than_it_must) {
  neap_net *net = NULL;
  neap_forecast whole, half, off;
  neap_error refused = {0};
  CHECK_OK(build_chain(&net, &error));
  neap_compile_options o = {.plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 1, .engine = "ref"};
  double work;
  CHECK_OK(neap_driver_plan(net, &o, &whole, &error));
  CHECK_EQ(neap_plan_recomputed(whole.graph, &work), 0);
  o.plan.budget_bytes = whole.plan->arena_bytes - 1;
  CHECK_OK(neap_driver_plan(net, &o, &half, &error));
  CHECK(neap_plan_recomputed(half.graph, &work) <= 2 &&
        half.plan->arena_bytes < whole.plan->arena_bytes && work < 0.1);
  neap_forecast_fini(&half);
  o.plan.budget_bytes = whole.plan->arena_bytes / 2;
  CHECK_OK(neap_driver_plan(net, &o, &half, &error));
  CHECK(neap_plan_recomputed(half.graph, &work) > 2 &&
        half.plan->arena_bytes <= o.plan.budget_bytes && half.plan->proved);
  o.no_recompute = true;
  CHECK(neap_driver_plan(net, &o, &off, &refused) == NEAP_BUDGET &&
        refused.least_bytes == (int64_t)whole.plan->arena_bytes);
  neap_forecast_fini(&half);
  neap_forecast_fini(&whole);
  neap_net_free(net);
}

/* Recomputation would let more rows into a budget, and each would cost more. */
TEST(micro_batches_that_are_fitted_repeat_nothing) {
  neap_net *net = NULL;
  neap_forecast whole;
  neap_workspace *ws = NULL;
  neap_micro *micro = NULL;
  double work;
  CHECK_OK(build_chain(&net, &error));
  neap_compile_options options = {
    .plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 1, .engine = "ref"};
  CHECK_OK(neap_driver_plan(net, &options, &whole, &error));
  options.plan.budget_bytes = whole.plan->arena_bytes / 2;
  CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 3}, &ws, &error));
  CHECK_OK(neap_workspace_init(ws, net, &error));
  CHECK_OK(neap_micro_new(ws, net, 0, &options, &micro, &error));
  if (micro != NULL) {
    CHECK(neap_micro_rows(micro) > 8 && neap_micro_rows(micro) < 64);
    CHECK_EQ(neap_plan_recomputed(
               neap_program_graph(neap_session_program(neap_micro_part_session(micro))), &work),
             0);
  }
  neap_micro_free(micro);
  neap_workspace_release(ws);
  neap_forecast_fini(&whole);
  neap_net_free(net);
}

/* What a stranger may have written into a store: none of it is taken for a recomputation. */
TEST(choices_that_recompute_what_must_not_be_are_refused) {
  neap_net *net = NULL;
  neap_graph *graph = NULL, *laid = NULL;
  neap_choices choices = {0};
  CHECK_OK(build_chain(&net, &error));
  CHECK_OK(neap_graph_prepare(net, NULL, &graph, &error));
  CHECK_OK(neap_graph_choose(
    graph, &(neap_choose_options){.n_thread = 1, .scratch_limit = SIZE_MAX}, &choices, &error));
  CHECK_OK(neap_graph_lay_out(graph, &choices, &laid, &error));
  int update = laid->n_node - 1, backward = 0;
  while (laid->node[backward].phase != NEAP_PHASE_BACKWARD) backward++;
  const int wrong[][2] = {{update, -1},       {backward, -1}, {-1, -1},
                          {laid->n_node, -1}, {1, 1},         {3, 1}};
  for (int n = 0; n < laid->n_node; n++)
    CHECK(laid->node[n].phase == NEAP_PHASE_FORWARD || !neap_graph_can_recompute(laid, n));
  neap_graph_free(laid);
  laid = NULL;
  for (int i = 0; i < NEAP_COUNT(wrong); i++) {
    const neap_recomputed set = {.n_node = wrong[i][1] >= 0 ? 2 : 1, .node = wrong[i]};
    CHECK_OK(neap_choices_recompute(&choices, &set, &error));
    CHECK_FAILS(neap_graph_lay_out(graph, &choices, &laid, &error), NEAP_PLAN,
                "can't be recomputed");
    CHECK(laid == NULL);
  }

  /* The chain has no bodies. */
  const int none[] = {0};
  const neap_recomputed set = {.n_body = 1, .body = none};
  CHECK_OK(neap_choices_recompute(&choices, &set, &error));
  CHECK_FAILS(neap_graph_lay_out(graph, &choices, &laid, &error), NEAP_PLAN, "can't be recomputed");
  CHECK(laid == NULL);
  neap_choices_fini(&choices);
  neap_graph_free(graph);
  neap_net_free(net);
}

TEST(every_refused_allocation_is_survived_by_recomputation) {
  neap_net *net = NULL;
  neap_forecast forecast;
  CHECK_OK(build_chain(&net, &error));
  neap_compile_options o = {.plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 1, .engine = "ref"};
  CHECK_OK(neap_driver_plan(net, &o, &forecast, &error));
  o.plan.budget_bytes = forecast.plan->arena_bytes / 2;
  neap_forecast_fini(&forecast);
  CHECK_OK(neap_driver_plan(net, &o, &forecast, &error)); /* names are interned once */
  neap_forecast_fini(&forecast);
  int64_t live = neap_memory_read().n_live, step = 1;
  bool done = false;
  for (int64_t n = 1; !done && check_failures < 5; n += step, step = n / 64 + 1) {
    neap_error own = {0};
    neap_memory_fail_nth_block(n);
    neap_status status = neap_driver_plan(net, &o, &forecast, &own);
    done = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    if (status == NEAP_OK) neap_forecast_fini(&forecast);
    if (status != NEAP_OK && status != NEAP_MEMORY)
      printf("  allocation %lld: %s\n", (long long)n, own.message), check_failures++;
    CHECK_EQ(neap_memory_read().n_live, live);
  }
  CHECK(done);
  neap_net_free(net);
}

/* Two steps of the chain within a limit; the first element of the first weight then. */
static neap_status run_evicting(const neap_net *net, size_t budget_bytes, float *weight,
                                int *n_evicted, neap_error *error) {
  neap_compile_options options = {
    .plan = {.policy = NEAP_POLICY_POOL, .budget_bytes = budget_bytes},
    .dynamic = true,
    .n_thread = 2,
    .engine = "ref"};

  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  neap_shape shape = NEAP_SHAPE(64, 16);
  neap_tensor x = {0}, w = {0};
  neap_status status = neap_workspace_new(&(neap_workspace_options){.seed = 1}, &ws, error);
  if (status == NEAP_OK) status = neap_driver_compile(ws, net, &options, &session, error);
  if (status == NEAP_OK) status = neap_tensor_new(&x, NEAP_DTYPE_F32, &shape, error);
  for (int i = 0; status == NEAP_OK && i < 64 * 16; i++)
    ((float *)neap_tensor_data(&x))[i] = (float)(i % 7) / 8;
  if (status == NEAP_OK) status = neap_workspace_feed(ws, "h0", &x, false, error);

  /* Two steps: the second begins with what the first has evicted and brought back. */
  for (int k = 0; status == NEAP_OK && k < 2; k++) status = neap_session_run(session, error);
  if (status == NEAP_OK) status = neap_workspace_fetch(ws, "w0", &w, error);
  if (status == NEAP_OK) *weight = *(const float *)neap_tensor_data(&w);
  if (status == NEAP_OK)
    *n_evicted = neap_program_plan(neap_session_program(session))->script.n_evicted;
  neap_tensor_fini(&w);
  neap_tensor_fini(&x);
  neap_session_free(session);
  neap_workspace_release(ws);
  return status;
}

TEST(every_refused_allocation_is_survived_by_eviction) {
  neap_net *net = NULL;
  neap_forecast forecast;
  float free_weight = 0, want = 0, got = 0;
  int n_evicted = 0;
  CHECK_OK(build_chain(&net, &error));
  neap_compile_options o = {.plan = {.policy = NEAP_POLICY_POOL}, .n_thread = 1, .engine = "ref"};
  CHECK_OK(neap_driver_plan(net, &o, &forecast, &error));
  size_t budget = forecast.plan->arena_bytes / 2;
  neap_forecast_fini(&forecast);
  CHECK_OK(run_evicting(net, 0, &free_weight, &n_evicted, &error));
  CHECK_EQ(n_evicted, 0);
  CHECK_OK(run_evicting(net, budget, &want, &n_evicted, &error));
  CHECK(n_evicted > 0 && want == free_weight);
  int64_t live = neap_memory_read().n_live, pool_reserved, pool_used, n = 1;
  for (bool done = false; !done && check_failures < 5; n++) {
    neap_error own = {0};
    neap_memory_fail_nth_block(n);
    neap_status status = run_evicting(net, budget, &got, &n_evicted, &own);
    done = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    if (status != NEAP_OK && status != NEAP_MEMORY)
      printf("  allocation %lld: %s\n", (long long)n, own.message), check_failures++;
    if (status == NEAP_OK) CHECK(got == want && n_evicted > 0);
    CHECK_EQ(neap_memory_read().n_live, live);
  }
  CHECK(n > 500);
  neap_pool_totals(&pool_reserved, &pool_used);
  CHECK(pool_reserved == 0 && pool_used == 0);
  neap_net_free(net);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(a_budget_recomputes_no_more_than_it_must),
             T(micro_batches_that_are_fitted_repeat_nothing),
             T(choices_that_recompute_what_must_not_be_are_refused),
             T(every_refused_allocation_is_survived_by_recomputation),
             T(every_refused_allocation_is_survived_by_eviction));
}
