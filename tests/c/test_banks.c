/* test_banks.c: memory banks: blobs and ops in bytes of their own, refused memory, plans that mix
 * them. */
#include "mlp.h"
#include "plan/plan_int.h"

/* ---- memory banks ---------------------------------------------------------------------------- */

static const char in_banks[] =
  "net n\ninput x f32 (4,6)\nparam w f32 (6,6) = Uniform { low = -0.5, high = 0.5 }\n"
  "h = FC(x, w) on fast\nr = Relu(h)\ns = Tanh(r) on huge\nloss = Sum(s)\n"
  "w_grad = Gradient(loss, w)\noutputs loss\nbank fast r, w\n";
static const neap_bank two_banks[] = {{.name = "fast", .bytes = 1 << 16},
                                      {.name = "huge", .kind = NEAP_BANK_HUGE}};

/* One step of it, then its parameter put into a bank and back while it runs again; *loss gets what
 * it gives each time, or 0. */
static neap_status step_in_banks(const neap_net *net, const neap_options *options, double *loss,
                                 neap_error *error) {
  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  float x[24], y = 0;
  for (int i = 0; i < 24; i++) x[i] = (float)(i % 7) * 0.3f - 1;
  neap_status status = neap_workspace_open(3, &ws, error);
  if (status == NEAP_OK)
    status = neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){4, 6}, x, error);
  if (status == NEAP_OK) status = neap_session_open(ws, net, options, &session, error);
  if (status == NEAP_OK) status = neap_session_run(session, error);
  if (status == NEAP_OK) status = neap_workspace_read(ws, "loss", NEAP_DTYPE_F32, 1, &y, error);
  *loss = y;

  /* Where the parameter lies must not show in what comes out. */
  static const neap_bank main_bank = {.name = "main"};
  for (int k = 0; k < 3 && status == NEAP_OK; k++) {
    const neap_bank *to = k < 2 ? &two_banks[k] : &main_bank;
    status = neap_workspace_assign(ws, 1, (const char *const[]){"w"}, to, k == 1, error);
    if (status == NEAP_OK) status = neap_session_run(session, error);
    if (status == NEAP_OK) status = neap_workspace_read(ws, "loss", NEAP_DTYPE_F32, 1, &y, error);
    if (y != (float)*loss) *loss = 0;
  }
  neap_session_free(session);
  neap_workspace_release(ws);
  return status;
}

TEST(every_refused_allocation_is_survived_in_banks) {
  neap_net *net = NULL;
  double plain = 0, loss = 0;
  neap_options options = {.n_banks = 2, .banks = two_banks};
  CHECK_OK(neap_net_read(in_banks, &net, &error));
  CHECK_OK(step_in_banks(net, NULL, &plain, &error));
  CHECK_OK(step_in_banks(net, &options, &loss, &error)); /* names are interned once */
  CHECK(loss == plain && loss != 0);
  int64_t live = neap_memory_read().n_live, n_failed = 0;
  bool done = false;
  for (int64_t n = 1; !done && n < 100000 && check_failures < 5; n++) {
    neap_error own = {0};
    neap_memory_fail_nth_block(n);
    neap_status status = step_in_banks(net, &options, &loss, &own);
    done = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    if (status != NEAP_OK && status != NEAP_MEMORY)
      printf("  allocation %lld: %s\n", (long long)n, own.message), check_failures++;
    CHECK_EQ(neap_memory_read().n_live, live);
    n_failed += status == NEAP_MEMORY;
  }
  CHECK(done && n_failed > 100);
  neap_net_free(net);
}

/* A stranger's plan: banks that begin elsewhere, values that lie in another one. */
TEST(the_verifier_refuses_plans_that_mix_banks) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_read(in_banks, &net, &error));
  neap_compile_options o = {
    .plan.policy = NEAP_POLICY_OFFSET, .n_thread = 1, .graph = {.n_bank = 2, .bank = two_banks}};
  neap_forecast f;
  CHECK_OK(neap_driver_plan(net, &o, &f, &error));
  CHECK_OK(neap_plan_verify(f.plan, f.graph, &error));
  neap_plan *plan = f.plan;
  CHECK_EQ(plan->n_bank, 3);
  size_t *const figure[] = {&plan->bank[1].begin_bytes, &plan->bank[2].bytes,
                            &plan->bank[1].lower_bound_bytes};
  for (int k = 0; k < NEAP_COUNT(figure); k++) {
    *figure[k] += NEAP_ALIGN;
    CHECK_EQ(neap_plan_verify(plan, f.graph, NULL), NEAP_PLAN);
    *figure[k] -= NEAP_ALIGN;
  }
  /* The end of one bank is another one's begin: what lay there is outside of its own. */
  plan->bank[1].bytes -= NEAP_ALIGN, plan->bank[2].begin_bytes -= NEAP_ALIGN;
  plan->bank[2].bytes += NEAP_ALIGN;
  CHECK_FAILS(neap_plan_verify(plan, f.graph, &error), NEAP_PLAN, "does not lie there");
  plan->bank[1].bytes += NEAP_ALIGN, plan->bank[2].begin_bytes += NEAP_ALIGN;
  plan->bank[2].bytes -= NEAP_ALIGN;
  int n_moved = 0;
  for (int v = 0; v < plan->n_value; v++) {
    neap_value *value = &f.graph->value[v];
    if (value->region != NEAP_REGION_ARENA || value->bytes == 0) continue;
    int bank = value->bank;
    /* the graph says otherwise: the value lies outside its bank, or its reader does */
    value->bank = (bank + 1) % 3;
    CHECK_EQ(neap_plan_verify(plan, f.graph, NULL), NEAP_PLAN);
    value->bank = bank;
    n_moved++;
  }
  CHECK(n_moved > 5);
  CHECK_OK(neap_plan_verify(plan, f.graph, &error));
  neap_forecast_fini(&f);
  neap_net_free(net);
}

/* What can't be planned is refused whether or not the caller wants to know why. */
TEST(a_refusal_may_go_unread) {
  neap_net *net = NULL;
  neap_forecast f;
  CHECK_OK(neap_net_read(in_banks, &net, &error));
  const neap_bank other = {.name = "fats"};
  neap_compile_options o = {.plan.policy = NEAP_POLICY_OFFSET,
                            .graph = {.n_bank = 1, .bank = &other}};
  CHECK_FAILS(neap_driver_plan(net, &o, &f, &error), NEAP_GRAPH, "assigned to bank \"fast\"");
  CHECK_EQ(neap_driver_plan(net, &o, &f, NULL), NEAP_GRAPH);
  neap_bank small[] = {{.name = "fast", .bytes = 64}, {.name = "huge"}};
  o.graph = (neap_graph_options){.n_bank = 2, .bank = small};
  CHECK_FAILS(neap_driver_plan(net, &o, &f, &error), NEAP_BUDGET, "bank \"fast\" has 64 B");
  CHECK_EQ(neap_driver_plan(net, &o, &f, NULL), NEAP_BUDGET);
  o.graph = (neap_graph_options){.n_bank = 2, .bank = two_banks};
  o.plan.budget_bytes = 1;
  CHECK_FAILS(neap_driver_plan(net, &o, &f, &error), NEAP_BUDGET, "budget");
  CHECK_EQ(neap_driver_plan(net, &o, &f, NULL), NEAP_BUDGET);
  CHECK(f.plan == NULL && f.graph == NULL);
  neap_net_free(net);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(every_refused_allocation_is_survived_in_banks),
             T(the_verifier_refuses_plans_that_mix_banks), T(a_refusal_may_go_unread));
}
