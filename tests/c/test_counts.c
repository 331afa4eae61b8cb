/* test_counts.c: what is said of a net without running it: mem_param, dry runs, counts; gradients
 * given back; verifiers and pools. */
#include "plan/plan_int.h"
#include "report/report.h"
#include "tanh_chain.h"

/* mem_param's translation, a dry run and both counts of a net that trains; nothing of it is
 * left. */
static neap_status tell(const neap_net *net, bool dag, neap_error *error) {
  neap_mem_param param = {.n_exclude_blob = 2, .exclude_blob = NAMES("fc1", "relu1.diff")};
  neap_compile_options options = {.plan.policy = NEAP_POLICY_OFFSET,
                                  .plan.executor = dag ? NEAP_EXECUTOR_DAG : NEAP_EXECUTOR_SIMPLE,
                                  .mem_param = &param};
  neap_forecast forecast;
  neap_dry_run *log = NULL;
  neap_counts before, after;
  NEAP_TRY(neap_driver_plan(net, &options, &forecast, error));
  neap_status status = neap_report_dry_run(forecast.plan, forecast.graph, net, &log, error);
  neap_forecast_fini(&forecast);
  if (status != NEAP_OK) {
    CHECK(log == NULL);
    return status;
  }

  /* the last one is lr */
  CHECK_EQ(log->raw_diff_bytes, 4 * (MLP_BATCH * (MLP_IN + 2 * MLP_HIDDEN + MLP_OUT) + 1 + 1));
  neap_dry_run_free(log);
  return neap_driver_count(net, &options, NULL, &before, &after, error);
}

TEST(every_refused_allocation_is_survived_by_dry_runs_and_counts) {
  neap_net *net = NULL;
  CHECK_OK(mlp_build(true, &net, &error));
  for (int dag = 0; dag < 2; dag++) {
    CHECK_OK(tell(net, dag, &error)); /* names are interned once */
    neap_memory_stats start = neap_memory_read();
    int n_failed = 0;
    bool done = false;
    for (int64_t n = 1; !done && n < 100000 && check_failures < 5; n++) {
      neap_error own = {0};
      neap_memory_fail_nth_block(n);
      neap_status status = tell(net, dag, &own);
      done = !neap_memory_failed();
      neap_memory_fail_nth(0, false);
      if (status != NEAP_OK && status != NEAP_MEMORY)
        printf("  allocation %lld: %s\n", (long long)n, own.message), check_failures++;
      CHECK(!done || status == NEAP_OK);
      CHECK_EQ(neap_memory_read().n_live, start.n_live);
      CHECK_EQ(neap_memory_read().held_bytes[NEAP_DATA_BYTES], start.held_bytes[NEAP_DATA_BYTES]);
      n_failed += !done;
    }
    CHECK(done && n_failed > 100);
  }
  neap_net_free(net);
}

/* A run that can't have its gradients back is refused and changes nothing; the next one has
 * them. */
TEST(every_refused_allocation_is_survived_by_gradients_made_again) {
  neap_compile_options options = {.plan.policy = NEAP_POLICY_OFFSET};
  mlp m;
  CHECK_OK(mlp_open(&m, true, &options, &error));
  CHECK_OK(neap_session_run(m.session, &error));
  int n_failed = 0;
  bool done = false;
  for (int64_t n = 1; !done && n < 1000 && check_failures < 5; n++) {
    int64_t held = neap_memory_read().held_bytes[NEAP_DATA_BYTES];
    float before = mlp_element(m.ws, "w1", 3);
    uint32_t step = neap_workspace_step(m.ws);
    neap_error own = {0};
    int64_t bytes = neap_workspace_drop_gradients(m.ws);
    CHECK(bytes > 0);
    CHECK_EQ(held - neap_memory_read().held_bytes[NEAP_DATA_BYTES], bytes);
    neap_memory_fail_nth_block(n);
    neap_status status = neap_session_run(m.session, &own);
    done = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    if (!done) {
      CHECK_EQ(status, NEAP_MEMORY);
      CHECK(mlp_element(m.ws, "w1", 3) == before);
      CHECK_EQ(neap_workspace_step(m.ws), step);
      CHECK_OK(neap_session_run(m.session, &error));
      n_failed++;
    } else {
      CHECK_EQ(status, NEAP_OK);
    }
    CHECK(mlp_element(m.ws, "w1", 3) != before);
    CHECK_EQ(neap_memory_read().held_bytes[NEAP_DATA_BYTES], held);
  }
  CHECK(done && n_failed > 2);
  mlp_close(&m);
}

/* What a view or another program still needs stays. */
TEST(gradients_given_back_leave_views_and_other_workspaces_alone) {
  neap_compile_options options = {.plan.policy = NEAP_POLICY_OFFSET};
  mlp m, other;
  neap_tensor view;
  CHECK_OK(mlp_open(&m, true, &options, &error));
  CHECK_OK(mlp_open(&other, true, &options, &error));
  CHECK_OK(neap_session_run(m.session, &error));
  CHECK_OK(neap_session_run(other.session, &error));
  CHECK_OK(neap_workspace_view(m.ws, "w1_grad", &view, NULL, &error));
  const float *number = (const float *)(const void *)neap_tensor_data(&view), first = number[0];
  CHECK(neap_workspace_drop_gradients(m.ws) > 0);
  CHECK(!neap_workspace_has(m.ws, "w1_grad"));
  CHECK(number[0] == first);
  CHECK_OK(neap_session_run(m.session, &error));
  CHECK(number[0] == first); /* the new gradient lies elsewhere */
  CHECK(neap_workspace_has(m.ws, "w1_grad") && neap_workspace_has(other.ws, "w1_grad"));
  neap_tensor_fini(&view);
  mlp_close(&m);
  mlp_close(&other);
}

/* Tables of a large plan are an allocation each: the verifier is refused any of them and says
 * so. */
TEST(every_refused_allocation_of_a_verifier_is_said) {
  neap_net *net = NULL;
  neap_forecast f;
  CHECK_OK(neap_net_new("long", &net, &error));
  CHECK_OK(neap_net_add_text(net, &error, "input h0 f32 (4)"));
  for (int k = 0; k < 300; k++)
    CHECK_OK(neap_net_add_text(net, &error, "h%d = Tanh(h%d)", k + 1, k));
  CHECK_OK(neap_net_add_text(net, &error, "s300 = Relu(h300)"));
  for (int k = 300; k > 0; k--)
    CHECK_OK(neap_net_add_text(net, &error, "s%d = Mul(s%d, h%d)", k - 1, k, k));
  neap_compile_options o = {.plan = {.policy = NEAP_POLICY_POOL}, .n_thread = 1, .engine = "ref"};
  CHECK_OK(neap_driver_plan(net, &o, &f, &error));
  o.plan.budget_bytes = f.plan->arena_bytes / 2;
  neap_forecast_fini(&f);
  CHECK_OK(neap_driver_plan(net, &o, &f, &error));
  CHECK(f.plan->script.n_turn > 0);
  int64_t n = 1;
  for (bool done = false; !done && check_failures == 0; n++) {
    neap_memory_fail_nth_block(n);
    neap_status status = neap_plan_verify(f.plan, f.graph, NULL);
    done = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    CHECK_EQ(status, done ? NEAP_OK : NEAP_MEMORY);
  }
  CHECK(n > 10);
  neap_forecast_fini(&f);
  neap_net_free(net);
}

/* One number of a script is another one: the verifier says so, and puts nothing outside its
 * tables. */
TEST(a_script_of_eviction_that_was_tampered_with_is_refused) {
  neap_net *net = NULL;
  neap_forecast f;
  CHECK_OK(build_chain(&net, &error));

  /* Half of what it would take, so that there is something to evict. */
  neap_compile_options o = {.plan = {.policy = NEAP_POLICY_POOL}, .n_thread = 1, .engine = "ref"};
  CHECK_OK(neap_driver_plan(net, &o, &f, &error));
  o.plan.budget_bytes = f.plan->arena_bytes / 2;
  neap_forecast_fini(&f);
  CHECK_OK(neap_driver_plan(net, &o, &f, &error));
  CHECK(f.plan->script.n_turn > 0);
  neap_script *s = &f.plan->script;
  int n_value = f.plan->n_value, n_take = s->turn[s->n_turn - 1].take_end,
      n_give = s->turn[s->n_turn - 1].give_end;
  CHECK(n_take > 1 && n_give > 0);
  CHECK_OK(neap_plan_verify(f.plan, f.graph, &error));

  /* No value, one beyond the last, and a block that is taken already. */
  for (int i = 0; i < n_take; i++) {
    const int wrong[] = {-1, n_value + 1, s->take[i > 0 ? i - 1 : n_take - 1].slot};
    int was = s->take[i].slot;
    for (int k = 0; k < (i > 0 && s->take[i - 1].slot != was ? 3 : 2); k++) {
      s->take[i].slot = wrong[k];
      CHECK_FAILS(neap_plan_verify(f.plan, f.graph, &error), NEAP_PLAN,
                  k < 2 ? "takes a block that is taken" : "");
      s->take[i].slot = was;
    }
  }
  for (int i = 0; i < n_give; i++) {
    int was = s->give[i];
    for (int k = 0; k < 2; k++) {
      s->give[i] = k == 0 ? -1 : n_value + 1;
      CHECK_FAILS(neap_plan_verify(f.plan, f.graph, &error), NEAP_PLAN,
                  "gives a block back that is not taken");
      s->give[i] = was;
    }
  }

  /* An op that reads a parameter is not repeated once that is written. */
  int n_refused = 0;
  for (int v = 0; v < n_value; v++) {
    int maker = f.graph->value[v].node;
    if (maker < 0 || f.graph->value[v].region != NEAP_REGION_PARAMETER) continue;
    for (int n = 0; n < f.plan->n_node; n++) {
      neap_error said = {0};
      f.graph->value[v].node = n;
      if (neap_plan_verify_script(f.plan, f.graph, &said) == NEAP_OK) continue;
      CHECK(strstr(said.message, "can't be recomputed there") != NULL);
      n_refused++;
    }
    f.graph->value[v].node = maker;
  }
  CHECK(n_refused > 0);
  CHECK_OK(neap_plan_verify_script(f.plan, f.graph, &error));

  neap_buffer text = {0};
  neap_plan *copy = NULL;
  s->turn[0].step = f.plan->n_node; /* of a step that the plan has not */
  neap_plan_print(f.plan, &text);
  CHECK_FAILS(neap_plan_read(text.text, f.graph, &copy, &error), NEAP_PLAN, "line");
  neap_buffer_fini(&text);
  neap_forecast_fini(&f);
  neap_net_free(net);
}

/* Not read from run to run, but made by the first op: its block is one like others. */
TEST(what_a_net_makes_first_is_taken_from_the_pool_too) {
  neap_net *net = NULL;
  neap_forecast f;
  CHECK_OK(build_chain_from("h0 = Gaussian() { shape = {64, 16} }", &net, &error));
  neap_compile_options o = {.plan = {.policy = NEAP_POLICY_POOL}, .n_thread = 1, .engine = "ref"};
  CHECK_OK(neap_driver_plan(net, &o, &f, &error));
  o.plan.budget_bytes = f.plan->arena_bytes / 2;
  neap_forecast_fini(&f);
  CHECK_OK(neap_driver_plan(net, &o, &f, &error));
  CHECK(f.plan != NULL && f.plan->script.n_turn > 0 &&
        f.plan->place[0].region == NEAP_REGION_ARENA);
  if (f.plan != NULL) CHECK_OK(neap_plan_verify(f.plan, f.graph, &error));
  if (f.plan != NULL) { /* and who reads it before that is refused */
    int maker = f.plan->order[0];
    f.plan->order[0] = f.plan->order[1];
    f.plan->order[1] = maker;
    CHECK_FAILS(neap_plan_verify_script(f.plan, f.graph, &error), NEAP_PLAN,
                "reads \"h0\", which is not there");
  }
  neap_forecast_fini(&f);
  neap_net_free(net);
}

/* A search for what to evict that fails under some limits, and does with less: those limits are
 * kept too. */
TEST(a_pool_that_does_with_less_does_with_more) {
  static const char text[] =
    "net wide\ninput x f64 (1,2)\ninput x1 f64 (3,6)\nparam w f64 (6) = Constant { value = 1 "
    "}\nstate lr f32 () = Constant\n"
    "v = Add(x1, w)\na_wide = Mean(x1)\na = Cast(a_wide) { to = f32 }\nb_wide = Mean(v)\nb = "
    "Cast(b_wide) { to = f32 }\n"
    "c_wide = Mean(w)\nc = Cast(c_wide) { to = f32 }\nloss = AddN(a, b, c)\nw_grad = "
    "Gradient(loss, w)\n"
    "w = Sgd(w, w_grad, lr)\noutputs loss\n";
  neap_net *net = NULL;
  neap_forecast f = {0};
  neap_error refused = {0};
  neap_compile_options o = {.plan = {.policy = NEAP_POLICY_POOL}, .n_thread = 1, .engine = "ref"};
  CHECK_OK(neap_net_read(text, &net, &error));
  CHECK_OK(neap_driver_plan(net, &o, &f, &error));
  size_t most = f.plan->arena_bytes;
  neap_forecast_fini(&f);
  o.plan.budget_bytes = 1;
  CHECK_EQ(neap_driver_plan(net, &o, &f, &refused), NEAP_BUDGET);
  size_t least = (size_t)refused.least_bytes;
  CHECK(least > 0 && least < most);
  for (o.plan.budget_bytes = least; o.plan.budget_bytes <= most;
       o.plan.budget_bytes += NEAP_ALIGN / 2) {
    CHECK_OK(neap_driver_plan(net, &o, &f, &error));
    if (f.plan != NULL) CHECK(f.plan->arena_bytes <= o.plan.budget_bytes);
    neap_forecast_fini(&f);
  }
  o.plan.budget_bytes = least - 1;
  CHECK_FAILS(neap_driver_plan(net, &o, &f, &error), NEAP_BUDGET, "least pool");
  neap_net_free(net);
}

/* A state that is assigned before the backward pass, since that follows from a loop which commits:
 * what reads its old value can't run again. */
TEST(what_reads_a_state_that_moves_before_the_backward_is_not_repeated) {
  static const char text[] =
    "net early\ninput x f32 (64,8)\nparam w f32 (8,8) = Constant { value = 0.1 }\nparam u f32 "
    "(8,8) = Constant { value = 0.1 }\n"
    "state m f32 (64,8) = Constant { value = 0.5 }\nstate r f32 (64,8) = Constant { value = 0.5 "
    "}\nstate lr f32 () = Constant\n"
    "state zero f32 () = Constant\nstate one f32 () = Constant { value = 1 }\nstate three f32 () = "
    "Constant { value = 3 }\n"
    "v = Tanh(m)\nm = Add(m, x)\ny = FC(x, w)\nh = Mul(y, v)\ng = Tanh(h)\n"
    "subnet cond\n  input i\n  input p\n  more = Lt(i, three)\n  takes i, p, r, three, one, lr\n  "
    "gives more\nend\n"
    "subnet body\n  input i\n  input p\n  j = Add(i, one)\n  a = Tanh(p)\n  s = StopGradient(a)\n  "
    "r = Sgd(r, s, lr)\n"
    "  n = Add(a, p)\n  takes i, p, r, three, one, lr\n  gives j, n, r\nend\n"
    "k, z, r = While(zero, g, r, three, one, lr) { cond_net = cond, body_net = body, n_state = 3, "
    "max = 3 }\n"
    "b = FC(z, u)\nloss = Mean(b)\nw_grad, u_grad = Gradient(loss, w, u)\nw = Sgd(w, w_grad, lr)\n"
    "u = Sgd(u, u_grad, lr)\noutputs loss\n";
  neap_net *net = NULL;
  neap_forecast f = {0};
  neap_error refused = {0};
  neap_compile_options o = {
    .plan = {.policy = NEAP_POLICY_OFFSET, .budget_bytes = 1}, .n_thread = 1, .engine = "ref"};
  CHECK_OK(neap_net_read(text, &net, &error));
  CHECK_EQ(neap_driver_plan(net, &o, &f, &refused), NEAP_BUDGET);
  if (refused.code != NEAP_BUDGET) printf("  %s\n", refused.message);
  o.plan.budget_bytes = (size_t)refused.least_bytes;
  CHECK_OK(neap_driver_plan(net, &o, &f, &error));
  for (int n = 0; f.graph != NULL && n < f.graph->n_node; n++)
    CHECK(f.graph->node[n].recomputes == 0 || strcmp(f.graph->node[n].name, "v") != 0);
  neap_forecast_fini(&f);
  neap_net_free(net);
}

/* A Reorder for what a state is assigned stands behind the update that overwrites the convolution's
 * weight: nothing runs again for it. */
TEST(what_is_assigned_after_the_backward_is_of_the_first_run) {
  static const char text[] =
    "net late\ninput x f32 (1,1,1,1)\nparam w f32 (1,1,1,1) = Constant { value = 0.5 }\nparam b "
    "f32 (1) = Constant\n"
    "state m f32 (1,1,1,1) = Constant { value = 0.5 }\nstate lr f32 () = Constant { value = 0.05 "
    "}\n"
    "y = Conv(x, w, b) { stride = {1}, pad = {0}, dilation = {1}, groups = 1 }\nm = Add(m, y)\n"
    "p = Mean(m)\nq = Mean(x)\nr = Mean(w)\nloss = AddN(p, q, r)\nw_grad, b_grad = Gradient(loss, "
    "w, b)\n"
    "w = Sgd(w, w_grad, lr)\nb = Sgd(b, b_grad, lr)\noutputs loss\n";
  neap_net *net = NULL;
  neap_forecast f = {0};
  neap_error refused = {0};
  neap_compile_options o = {.plan = {.policy = NEAP_POLICY_OFFSET, .budget_bytes = 1},
                            .n_thread = 1};
  CHECK_OK(neap_net_read(text, &net, &error));
  CHECK_EQ(neap_driver_plan(net, &o, &f, &refused), NEAP_BUDGET);
  if (refused.code != NEAP_BUDGET) printf("  %s\n", refused.message);
  neap_forecast_fini(&f);
  neap_net_free(net);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(every_refused_allocation_is_survived_by_dry_runs_and_counts),
             T(every_refused_allocation_is_survived_by_gradients_made_again),
             T(gradients_given_back_leave_views_and_other_workspaces_alone),
             T(every_refused_allocation_of_a_verifier_is_said),
             T(a_script_of_eviction_that_was_tampered_with_is_refused),
             T(what_a_net_makes_first_is_taken_from_the_pool_too),
             T(a_pool_that_does_with_less_does_with_more),
             T(what_reads_a_state_that_moves_before_the_backward_is_not_repeated),
             T(what_is_assigned_after_the_backward_is_of_the_first_run));
}
