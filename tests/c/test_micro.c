/* test_micro.c: micro-batches, and the batch that fits, while memory is refused. */
#include "mlp.h"

/* ---- micro-batches --------------------------------------------------------------------------- */

/* Steps of 8 rows as micro-batches of 3, with a refusal wherever *n says; *same: the parameters are
 * as before the failed step. */
static neap_status step_in_parts(const neap_net *net, bool dag, bool *same, neap_error *error) {
  neap_compile_options options = {.plan.policy = NEAP_POLICY_OFFSET,
                                  .plan.executor = dag ? NEAP_EXECUTOR_DAG : NEAP_EXECUTOR_SIMPLE};
  neap_workspace *ws = NULL;
  neap_micro *micro = NULL;
  float before[MLP_OUT * MLP_HIDDEN] = {0}, *w2 = NULL;
  *same = true;
  neap_status status = neap_workspace_new(&(neap_workspace_options){.seed = 3}, &ws, error);
  if (status == NEAP_OK) status = neap_workspace_init(ws, net, error);
  if (status == NEAP_OK) status = mlp_feed_all(ws, true, error);
  if (status == NEAP_OK) status = neap_micro_new(ws, net, 3, &options, &micro, error);
  uint32_t step = ws != NULL ? neap_workspace_step(ws) : 0;
  for (int k = 0; k < 2 && status == NEAP_OK; k++) {
    neap_tensor view;
    status = neap_workspace_view(ws, "w2", &view, NULL, error);
    if (status != NEAP_OK) break;
    w2 = (void *)neap_tensor_data(&view);
    memcpy(before, w2, sizeof before);
    step = neap_workspace_step(ws);
    status = neap_micro_run(micro, 0, NULL, error);
    *same = memcmp(before, w2, sizeof before) == 0 && neap_workspace_step(ws) == step;
    neap_type x = {0};
    CHECK(neap_workspace_type(ws, "x", &x) && x.shape.dim[0] == MLP_BATCH); /* lent rows are back */
    neap_tensor_fini(&view);
  }
  neap_micro_free(micro);
  if (ws != NULL) neap_workspace_release(ws);
  return status;
}

TEST(every_refused_allocation_is_survived_by_micro_batches) {
  neap_net *net = NULL;
  bool same;
  CHECK_OK(mlp_build(true, &net, &error));
  for (int dag = 0; dag < 2; dag++) {
    CHECK_OK(step_in_parts(net, dag, &same, &error)); /* names are interned once */
    CHECK(!same);
    int64_t live = neap_memory_read().n_live, n_failed = 0;
    bool done = false;
    for (int64_t n = 1; !done && n < 100000 && check_failures < 5; n++) {
      neap_error own = {0};
      neap_memory_fail_nth_block(n);
      neap_status status = step_in_parts(net, dag, &same, &own);
      done = !neap_memory_failed();
      neap_memory_fail_nth(0, false);
      if (status != NEAP_OK && status != NEAP_MEMORY)
        printf("  allocation %lld: %s\n", (long long)n, own.message), check_failures++;
      CHECK(status == NEAP_OK || same);
      CHECK_EQ(neap_memory_read().n_live, live);
      n_failed += status == NEAP_MEMORY;
    }
    CHECK(done && n_failed > 100);
  }
  neap_net_free(net);
}

/* A refusal by the system says nothing of the batch: the search fails, or finds what it finds
 * otherwise. */
TEST(refused_memory_is_no_batch_that_does_not_fit) {
  neap_net *net = NULL;
  int64_t most = 0;
  CHECK_OK(mlp_build(true, &net, &error));
  neap_compile_options options = {.plan.policy = NEAP_POLICY_OFFSET, .total_bytes = 20000};
  CHECK_OK(neap_driver_fit_net(net, &options, 1000, &most, NULL, &error));
  CHECK(most > 1 && most < 1000);
  int64_t live = neap_memory_read().n_live;
  bool done = false;
  for (int64_t n = 1; !done && n < 1000000 && check_failures < 5; n += 1 + n / 50) {
    neap_error own = {0};
    int64_t found = 0;
    neap_memory_fail_nth_block(n);
    neap_status status = neap_driver_fit_net(net, &options, 1000, &found, NULL, &own);
    done = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    CHECK(status == NEAP_OK ? found == most : status == NEAP_MEMORY && found == 0);
    CHECK_EQ(neap_memory_read().n_live, live);
  }
  CHECK(done);
  neap_net_free(net);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(every_refused_allocation_is_survived_by_micro_batches),
             T(refused_memory_is_no_batch_that_does_not_fit));
}
