/* test_driver.c: the way from net to run: stored plans found, checked and replaced, budgets kept, a
 * convolutional net under every engine, policy and schedule, and a store that fails without
 * stopping anything. */
#include "mlp.h"
#include "plan/plan_int.h"
#include "store/store_int.h"
#include "report/report.h"

#include <sys/stat.h>
#include <unistd.h>

static char path[64];

static neap_store *open_store(void) {
  neap_store *store = NULL;
  CHECK_OK(neap_store_open(path, &store, &error));
  return store;
}

static void fresh_path(void) {
  snprintf(path, sizeof path, "/tmp/neap_test_%d.db", (int)getpid());
  unlink(path);
}

static void drop_path(void) {
  char other[80];
  unlink(path);
  snprintf(other, sizeof other, "%s-wal", path);
  unlink(other);
  snprintf(other, sizeof other, "%s-shm", path);
  unlink(other);
}

static bool take_integer(void *context, int n, const neap_sql_value *value) {
  (void)n;
  *(int64_t *)context = value[0].integer;
  return false;
}

static int64_t ask(neap_store *store, const char *sql) {
  int64_t answer = -1;
  CHECK_OK(neap_store_query(store, sql, 0, NULL, take_integer, &answer, &error));
  return answer;
}

/* ---- conv net -------------------------------------------------------------------------------- */

/* x (4,3,12,12) -> Conv 20 -> Relu -> MaxPool -> Conv 13 -> Relu -> FC 10 -> loss; 20 and 13 fill
 * no block of 8 or 16. */
static neap_status build_conv(bool train, neap_net **out, neap_error *error) {
  NEAP_TRY(neap_net_new("convnet", out, error));
  neap_net *net = *out;
  NEAP_TRY(mlp_declare(net, "x", NEAP_ROLE_INPUT, NEAP_DTYPE_F32, NEAP_SHAPE(4, 3, 12, 12), error));
  NEAP_TRY(mlp_declare(net, "label", NEAP_ROLE_INPUT, NEAP_DTYPE_I32, NEAP_SHAPE(4), error));
  NEAP_TRY(
    mlp_declare(net, "cw1", NEAP_ROLE_PARAMETER, NEAP_DTYPE_F32, NEAP_SHAPE(20, 3, 3, 3), error));
  NEAP_TRY(
    mlp_declare(net, "cw2", NEAP_ROLE_PARAMETER, NEAP_DTYPE_F32, NEAP_SHAPE(13, 20, 3, 3), error));
  NEAP_TRY(
    mlp_declare(net, "fw", NEAP_ROLE_PARAMETER, NEAP_DTYPE_F32, NEAP_SHAPE(MLP_OUT, 117), error));
  neap_set kernel[] = {NEAP_SET_INTS("kernel", 2, ((int64_t[]){3, 3})), {0}};
  neap_set window[] = {NEAP_SET_INTS("kernel", 2, ((int64_t[]){2, 2})),
                       NEAP_SET_INTS("stride", 2, ((int64_t[]){2, 2})),
                       {0}};
  NEAP_TRY(mlp_add(net, "Conv", 2, NAMES("x", "cw1"), "c1", kernel, error));
  NEAP_TRY(mlp_add(net, "Relu", 1, NAMES("c1"), "r1", NULL, error));
  NEAP_TRY(mlp_add(net, "MaxPool", 1, NAMES("r1"), "p1", window, error));
  NEAP_TRY(mlp_add(net, "Conv", 2, NAMES("p1", "cw2"), "c2", kernel, error));
  NEAP_TRY(mlp_add(net, "Relu", 1, NAMES("c2"), "r2", NULL, error));
  NEAP_TRY(mlp_add(net, "FC", 2, NAMES("r2", "fw"), "y", (neap_set[]){NEAP_SET_INT("axis", 1), {0}},
                   error));
  NEAP_TRY(mlp_add(net, "SoftmaxCrossEntropy", 2, NAMES("y", "label"), "loss", NULL, error));
  NEAP_TRY(neap_net_set_outputs(net, 1, NAMES("loss"), error));
  if (!train) return NEAP_OK;
  NEAP_TRY(mlp_declare(net, "lr", NEAP_ROLE_INPUT, NEAP_DTYPE_F32, NEAP_SHAPE(1), error));
  NEAP_TRY(neap_net_add_gradient(net, "loss", 3, NAMES("cw1", "cw2", "fw"), NULL, NULL, error));
  NEAP_TRY(mlp_add(net, "Sgd", 3, NAMES("cw1", "cw1_grad", "lr"), "cw1", NULL, error));
  NEAP_TRY(mlp_add(net, "Sgd", 3, NAMES("cw2", "cw2_grad", "lr"), "cw2", NULL, error));
  return mlp_add(net, "Sgd", 3, NAMES("fw", "fw_grad", "lr"), "fw", NULL, error);
}

static neap_status open_conv(mlp *m, const neap_compile_options *options, neap_error *error) {
  *m = (mlp){0};
  NEAP_TRY(neap_workspace_new(&(neap_workspace_options){.seed = 42}, &m->ws, error));
  NEAP_TRY(build_conv(true, &m->net, error));
  NEAP_TRY(neap_workspace_init(m->ws, m->net, error));
  NEAP_TRY(mlp_feed(m->ws, "x", NEAP_DTYPE_F32, NEAP_SHAPE(4, 3, 12, 12), 1, error));
  NEAP_TRY(mlp_feed(m->ws, "label", NEAP_DTYPE_I32, NEAP_SHAPE(4), 2, error));
  NEAP_TRY(mlp_feed(m->ws, "cw1", NEAP_DTYPE_F32, NEAP_SHAPE(20, 3, 3, 3), 3, error));
  NEAP_TRY(mlp_feed(m->ws, "cw2", NEAP_DTYPE_F32, NEAP_SHAPE(13, 20, 3, 3), 4, error));
  NEAP_TRY(mlp_feed(m->ws, "fw", NEAP_DTYPE_F32, NEAP_SHAPE(MLP_OUT, 117), 5, error));
  NEAP_TRY(mlp_feed_number(m->ws, "lr", 0.01f, error));
  return neap_driver_compile(m->ws, m->net, options, &m->session, error);
}

/* Trains five steps under `options`; *loss gets the last loss, and cw1 stays in the workspace. */
static void train_conv(mlp *m, const neap_compile_options *options, bool poison) {
  CHECK_OK(open_conv(m, options, &error));
  if (m->session == NULL) return;
  neap_workspace_set_poison(m->ws, poison);
  for (int i = 0; i < 5; i++) CHECK_OK(neap_session_run(m->session, &error));
}

TEST(a_convolutional_net_trains_alike_under_every_plan) {
  static const neap_policy policy[] = {NEAP_POLICY_NONE, NEAP_POLICY_NAME, NEAP_POLICY_OFFSET};
  mlp base, m;
  train_conv(&base, &(neap_compile_options){.plan = {.policy = NEAP_POLICY_NONE}, .n_thread = 1},
             false);
  for (int p = 0; p < NEAP_COUNT(policy); p++)
    for (int executor = 0; executor < 2; executor++)
      for (int poison = 0; poison < 2; poison++) {
        train_conv(
          &m,
          &(neap_compile_options){
            .plan = {.policy = policy[p], .executor = (neap_executor)executor}, .n_thread = 1},
          poison != 0);
        CHECK(mlp_same_bits(base.ws, m.ws, "loss"));
        CHECK(mlp_same_bits(base.ws, m.ws, "cw1"));
        mlp_close(&m);
      }
  mlp_close(&base);
}

TEST(engines_agree) {
  mlp ref, m;
  train_conv(&ref, &(neap_compile_options){.plan = {.policy = NEAP_POLICY_OFFSET}, .engine = "ref"},
             false);
  for (int e = 0; e < 3; e++) {
    train_conv(&m,
               &(neap_compile_options){.plan = {.policy = NEAP_POLICY_OFFSET},
                                       .engine = NAMES("blas", "dnnl", "free")[e]},
               false);
    CHECK_NEAR(mlp_element(m.ws, "loss", 0), mlp_element(ref.ws, "loss", 0), 1e-4);
    CHECK_NEAR(mlp_element(m.ws, "cw1", 5), mlp_element(ref.ws, "cw1", 5), 1e-4);
    mlp_close(&m);
  }
  mlp_close(&ref);
  neap_compile_options bad = {.engine = "cudnn"};
  CHECK_FAILS(open_conv(&m, &bad, &error), NEAP_ARGUMENT, "cudnn");
  mlp_close(&m);
}

/* A transient value in a blocked layout comes out plain. */
TEST(fetch_reorders_blocked_values) {
  mlp m, kept;
  neap_net *net = NULL;
  CHECK_OK(build_conv(false, &net, &error));
  neap_compile_options options = {.plan = {.policy = NEAP_POLICY_NONE}};
  neap_compile_options keep = {.plan = {.policy = NEAP_POLICY_NONE},
                               .graph = {.n_keep = 1, .keep = NAMES("r2")}};
  train_conv(&m, &options, false);
  train_conv(&kept, &keep, false);
  neap_tensor a = {0}, b = {0};
  CHECK_OK(neap_workspace_fetch(m.ws, "r2", &a, &error));
  CHECK_OK(neap_workspace_fetch(kept.ws, "r2", &b, &error));
  CHECK_EQ(neap_tensor_elems(&a), 4 * 13 * 3 * 3);
  for (int64_t i = 0; i < neap_tensor_elems(&a) && check_failures == 0; i++)
    CHECK_NEAR(neap_element_get(a.dtype, neap_tensor_data(&a), i),
               neap_element_get(b.dtype, neap_tensor_data(&b), i), 1e-5);
  neap_tensor_fini(&a);
  neap_tensor_fini(&b);
  mlp_close(&m);
  mlp_close(&kept);
  neap_net_free(net);
}

/* ---- the store ------------------------------------------------------------------------------- */

TEST(a_second_compile_finds_the_plan) {
  fresh_path();
  neap_store *store = open_store();
  neap_net *net = NULL;
  neap_forecast first, second, third;
  CHECK_OK(build_conv(true, &net, &error));
  neap_compile_options options = {.plan = {.policy = NEAP_POLICY_OFFSET}, .store = store};
  CHECK_OK(neap_driver_plan(net, &options, &first, &error));
  CHECK(!first.hit && first.plan_id > 0);
  CHECK_OK(neap_driver_plan(net, &options, &second, &error));
  CHECK(second.hit);
  CHECK_EQ(second.plan_id, first.plan_id);
  CHECK_EQ(second.plan->arena_bytes, first.plan->arena_bytes);
  CHECK(memcmp(second.plan->order, first.plan->order, (size_t)first.plan->n_node * sizeof(int)) ==
        0);
  for (int v = 0; v < first.plan->n_value; v++)
    CHECK_EQ(second.plan->place[v].offset, first.plan->place[v].offset);
  options.plan.policy = NEAP_POLICY_NONE; /* another key */
  CHECK_OK(neap_driver_plan(net, &options, &third, &error));
  CHECK(!third.hit && third.plan_id != first.plan_id);
  neap_forecast_fini(&first);
  neap_forecast_fini(&second);
  neap_forecast_fini(&third);
  neap_net_free(net);
  neap_store_close(store);
  drop_path();
}

TEST(a_stored_plan_runs_bit_for_bit) {
  fresh_path();
  neap_store *store = open_store();
  mlp a, b;
  neap_compile_options options = {
    .plan = {.policy = NEAP_POLICY_OFFSET}, .store = store, .n_thread = 1};
  train_conv(&a, &options, false);
  train_conv(&b, &options, false);
  CHECK_EQ(neap_session_plan_id(a.session), neap_session_plan_id(b.session));
  CHECK(mlp_same_bits(a.ws, b.ws, "loss"));
  CHECK(mlp_same_bits(a.ws, b.ws, "cw2"));
  mlp_close(&a);
  mlp_close(&b);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run WHERE n_step = 5"), 2);
  neap_store_close(store);
  drop_path();
}

/* Whatever lies under the key: plans are made again, said to be, and kept in its place. */
TEST(a_stored_plan_is_checked) {
  static const char *const damage[] = {
    "UPDATE plan SET plan_text = 'none' WHERE policy = 'offset'",
    "UPDATE plan SET choices = 'none' WHERE policy = 'offset'",
    /* The plan without a budget is a right one of this graph, but for the limit. */
    "UPDATE plan SET (choices, plan_text) = (SELECT choices, plan_text FROM plan WHERE policy = "
    "'none')"};
  fresh_path();
  neap_store *store = open_store();
  neap_net *net = NULL;
  neap_forecast large = {0}, f = {0};
  CHECK_OK(build_conv(true, &net, &error));
  neap_compile_options options = {.plan = {.policy = NEAP_POLICY_NONE}, .store = store};
  CHECK_OK(neap_driver_plan(net, &options, &large, &error));
  options.plan.policy = NEAP_POLICY_OFFSET;
  options.plan.budget_bytes = large.plan->arena_bytes - 1;
  CHECK_OK(neap_driver_plan(net, &options, &f, &error));
  CHECK(f.plan->arena_bytes < large.plan->arena_bytes);
  neap_forecast_fini(&f);
  for (int k = 0; k < NEAP_COUNT(damage); k++) {
    CHECK_EQ(sqlite3_exec(store->db, damage[k], NULL, NULL, NULL), SQLITE_OK);
    CHECK_OK(neap_driver_plan(net, &options, &f, &error));
    CHECK(!f.hit && strstr(f.warning, "failed its check") != NULL);
    CHECK(f.plan->arena_bytes <= options.plan.budget_bytes);
    neap_forecast_fini(&f);
    CHECK_OK(neap_driver_plan(net, &options, &f, &error));
    CHECK(f.hit && f.warning[0] == '\0');
    neap_forecast_fini(&f);
  }
  neap_forecast_fini(&large);
  neap_net_free(net);
  neap_store_close(store);
  drop_path();
}

/* One that names a kernel which is not there, as of a build with another library, is right by
 * itself and could not be bound. */
TEST(a_stored_plan_of_other_kernels_is_made_again) {
  fresh_path();
  neap_store *store = open_store();
  mlp first, again;
  neap_compile_options options = {
    .plan = {.policy = NEAP_POLICY_OFFSET}, .store = store, .n_thread = 1, .engine = "ref"};
  CHECK_OK(mlp_open(&first, true, &options, &error));
  CHECK_EQ(sqlite3_exec(store->db, "UPDATE plan SET choices = replace(choices, 'ref ', 'blas ')",
                        NULL, NULL, NULL),
           SQLITE_OK);
  for (int k = 0; k < 2; k++) {
    CHECK_OK(mlp_open(&again, true, &options, &error));
    CHECK(k > 0 || strstr(neap_session_warning(again.session),
                          "failed its check and was made again") != NULL);
    CHECK(k == 0 || neap_session_warning(again.session)[0] == '\0');
    CHECK_OK(neap_session_run(again.session, &error));
    if (k == 0) CHECK_OK(neap_session_run(first.session, &error));
    CHECK(mlp_same_bits(first.ws, again.ws, "loss"));
    CHECK(mlp_same_bits(first.ws, again.ws, "w1"));
    mlp_close(&again);
  }
  mlp_close(&first);
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan"), 1);
  neap_store_close(store);
  drop_path();
}

TEST(a_run_is_recorded_with_its_ops_and_metrics) {
  fresh_path();
  neap_store *store = open_store();
  mlp m;
  neap_compile_options options = {
    .plan = {.policy = NEAP_POLICY_OFFSET}, .store = store, .profile = true};
  train_conv(&m, &options, false);
  int n_node = neap_program_graph(neap_session_program(m.session))->n_node;
  neap_session_metric(m.session, "loss", 5, 1.5);
  CHECK_OK(neap_session_record(m.session, "ok", &error));
  CHECK(neap_session_run_id(m.session) > 0);
  CHECK_OK(neap_session_record(m.session, "ok", &error)); /* once is enough */
  mlp_close(&m);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run"), 1);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run_op"), n_node);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run_op WHERE n_call = 5"), n_node);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run_metric WHERE value = 1.5"), 1);
  CHECK_EQ(ask(store, "SELECT step_median_ns >= step_min_ns AND step_min_ns > 0 FROM run"), 1);
  neap_store_close(store);
  drop_path();
}

/* Shapes come and go, and each would leave its row. */
TEST(a_dynamic_run_leaves_no_plans) {
  fresh_path();
  neap_store *store = open_store();
  mlp m;
  neap_compile_options options = {
    .plan = {.policy = NEAP_POLICY_POOL}, .store = store, .dynamic = true};
  train_conv(&m, &options, false);
  mlp_close(&m);
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan"), 0);
  neap_store_close(store);
  drop_path();
}

/* What fails in the store is said and stops nothing. */
TEST(a_store_that_cannot_write_stops_nothing) {
  fresh_path();
  neap_store_close(open_store());
  CHECK(chmod(path, 0444) == 0);
  neap_store *store = NULL;
  CHECK_OK(neap_store_open(path, &store, &error));
  if (store == NULL) return;
  mlp m;
  neap_compile_options options = {.plan = {.policy = NEAP_POLICY_OFFSET}, .store = store};
  train_conv(&m, &options, false);
  CHECK(m.session != NULL && neap_session_n_steps(m.session) == 5);
  if (m.session != NULL && neap_store_is_readonly(store))
    CHECK(neap_session_warning(m.session)[0] != '\0');
  mlp_close(&m);
  neap_store_close(store);
  drop_path();
}

/* Compile, run and record with the n-th allocation refused, for all n. Refusals inside the store
 * cost the record only. */
TEST(every_refused_allocation_is_survived_with_a_store) {
  fresh_path();
  const char *kept = neap_intern("loss"); /* a list of keeps to refuse, too */
  neap_compile_options options = {
    .plan = {.policy = NEAP_POLICY_OFFSET}, .profile = true, .graph = {.keep = &kept, .n_keep = 1}};
  mlp warm;
  CHECK_OK(mlp_open(&warm, true, &options, &error)); /* names are interned once */
  mlp_close(&warm);
  int64_t outside = neap_memory_read().n_live;
  neap_store *store = options.store = open_store();
  neap_compile_options next = options;
  int64_t live = neap_memory_read().n_live;
  bool done = false;
  for (int64_t n = 1; !done && n < 100000 && check_failures < 5; n++) {
    mlp m;
    neap_error error = {0};
    /* every other time a new key: planned and stored */
    next.plan.budget_bytes = n % 2 == 0 ? 0 : (size_t)(1 << 30) + (size_t)n;
    neap_memory_fail_nth_block(n);
    neap_status status = mlp_open(&m, true, &next, &error);
    if (status == NEAP_OK) status = neap_session_run(m.session, &error);
    if (m.session != NULL) neap_session_metric(m.session, "loss", 1, 2.0);
    mlp_close(&m);
    done = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    if (status != NEAP_OK && status != NEAP_MEMORY)
      printf("  allocation %lld: %s\n", (long long)n, error.message), check_failures++;
    CHECK(neap_memory_read().n_live <= live + 2); /* the store keeps its last answer: two texts */
  }
  CHECK(done);
  neap_store_close(store);
  CHECK_EQ(neap_memory_read().n_live, outside);
  drop_path();
}

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

/* ---- one op on blobs ------------------------------------------------------------------------- */

/* Refused at the n-th allocation, then at the next, until it passes: the blobs are as before each
 * time. */
TEST(refused_memory_leaves_the_blobs_of_one_op_as_they_were) {
  const float a[] = {3, 1, 2};
  float now[3] = {0};
  bool passed = false;
  for (int64_t n = 1; !passed && n < 400; n++) {
    neap_workspace *ws = NULL;
    CHECK_OK(neap_workspace_open(1, &ws, &error));
    CHECK_OK(neap_workspace_write(ws, "a", NEAP_DTYPE_F32, 1, (int64_t[]){3}, a, &error));
    CHECK_OK(neap_workspace_write(ws, "b", NEAP_DTYPE_F32, 1, (int64_t[]){3}, a, &error));
    neap_memory_fail_nth_block(n);
    neap_error own = {0};
    neap_status status =
      neap_workspace_run_op(ws, "b, i = Split(a) { axis = 0, sizes = {2, 1} }", &own);
    passed = status == NEAP_OK && !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    if (status != NEAP_OK) {
      CHECK_EQ(status, NEAP_MEMORY);
      CHECK_OK(neap_workspace_read(ws, "b", NEAP_DTYPE_F32, 3, now, &error));
      CHECK(memcmp(now, a, sizeof a) == 0 && !neap_workspace_has(ws, "i"));
    }
    neap_workspace_release(ws);
  }
  CHECK(passed);
}

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

/* ---- budgets --------------------------------------------------------------------------------- */

TEST(a_budget_is_kept_or_refused_with_what_would_do) {
  neap_net *net = NULL;
  neap_forecast free_plan, tight;
  CHECK_OK(build_conv(true, &net, &error));
  neap_compile_options options = {.plan = {.policy = NEAP_POLICY_OFFSET}};
  CHECK_OK(neap_driver_plan(net, &options, &free_plan, &error));
  options.plan.budget_bytes = free_plan.plan->arena_bytes;
  CHECK_OK(neap_driver_plan(net, &options, &tight, &error));
  CHECK(tight.plan->arena_bytes <= options.plan.budget_bytes);
  neap_forecast_fini(&tight);
  neap_error refusal = {0};
  options.plan.budget_bytes = 1000;
  CHECK_EQ(neap_driver_plan(net, &options, &tight, &refusal), NEAP_BUDGET);
  CHECK(refusal.least_bytes > 1000 && (size_t)refusal.least_bytes <= free_plan.plan->arena_bytes);
  options.plan.budget_bytes = (size_t)refusal.least_bytes; /* what the error says would do, does */
  CHECK_OK(neap_driver_plan(net, &options, &tight, &error));
  neap_forecast_fini(&tight);
  options.plan.budget_bytes = 0;
  options.total_bytes = free_plan.total_bytes;
  CHECK_OK(neap_driver_plan(net, &options, &tight, &error));
  CHECK(tight.total_bytes <= options.total_bytes);
  neap_forecast_fini(&tight);
  options.total_bytes = 1000;
  CHECK_FAILS(neap_driver_plan(net, &options, &tight, &error), NEAP_BUDGET, "total");
  neap_forecast_fini(&free_plan);
  neap_net_free(net);
}

/* ---- dynamic --------------------------------------------------------------------------------- */

/* Rows picked by a mask, through a layer and an update: two batches of different size and number of
 * rows. */
static const char *const masked =
  "net masked\ninput x f32 (1,3)\ninput m bool (1)\ninput lr f32 ()\nparam w f32 (2,3) = Constant "
  "{ value = 0.5 }\n"
  "h = FC(x, w)\npart = Compress(h, m) { axis = 0 }\nsquare = Mul(part, part)\nloss = Sum(square)\n"
  "dw = Gradient(loss, w)\nw = Sgd(w, dw, lr)\noutputs loss\n";

static neap_status feed_batch(neap_workspace *ws, int64_t n, const bool *mask, neap_error *error) {
  float rows[15] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, rate = 0.001f;
  const struct {
    const char *name;
    neap_dtype dtype;
    neap_shape shape;
    void *data;
  } blob[] = {{"x", NEAP_DTYPE_F32, NEAP_SHAPE(n, 3), rows},
              {"m", NEAP_DTYPE_BOOL, NEAP_SHAPE(n), (void *)(uintptr_t)mask},
              {"lr", NEAP_DTYPE_F32, neap_shape_of(0, NULL), &rate}};
  for (int b = 0; b < NEAP_COUNT(blob); b++) {
    neap_tensor t;
    NEAP_TRY(neap_tensor_new(&t, blob[b].dtype, &blob[b].shape, error));
    neap_type type = neap_tensor_type(&t);
    memcpy(neap_tensor_data(&t), blob[b].data, neap_type_bytes(&type));
    neap_status status = neap_workspace_feed(ws, blob[b].name, &t, false, error);
    neap_tensor_fini(&t);
    NEAP_TRY(status);
  }
  return NEAP_OK;
}

/* Opens, runs two batches, closes; *weight gets the first parameter. */
static neap_status run_masked(const neap_net *net, float *weight, neap_error *error) {
  static const bool first[3] = {true, false, true}, second[5] = {false, true, true, true, false};
  neap_compile_options options = {.plan = {.policy = NEAP_POLICY_POOL}, .dynamic = true};
  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  neap_status status = neap_workspace_new(&(neap_workspace_options){.seed = 1}, &ws, error);
  if (status == NEAP_OK) status = neap_driver_compile(ws, net, &options, &session, error);
  if (status == NEAP_OK) status = feed_batch(ws, 3, first, error);
  if (status == NEAP_OK) status = neap_session_run(session, error);
  if (status == NEAP_OK) status = feed_batch(ws, 5, second, error);
  if (status == NEAP_OK) status = neap_session_run(session, error);
  neap_tensor w = {0};
  if (status == NEAP_OK) status = neap_workspace_fetch(ws, "w", &w, error);
  if (status == NEAP_OK) *weight = *(const float *)neap_tensor_data(&w);
  neap_tensor_fini(&w);
  neap_session_free(session);
  neap_workspace_release(ws);
  return status;
}

TEST(every_refused_allocation_is_survived_by_a_dynamic_session) {
  neap_net *net = NULL;
  float want = 0, got = 0;
  CHECK_OK(neap_net_read(masked, &net, &error));
  CHECK_OK(run_masked(net, &want, &error));
  CHECK(want < 0.5f);
  int64_t live = neap_memory_read().n_live, pool_reserved, pool_used;
  bool done = false;
  for (int64_t n = 1; !done && n < 100000 && check_failures < 5; n++) {
    neap_error own = {0};
    neap_memory_fail_nth_block(n);
    neap_status status = run_masked(net, &got, &own);
    done = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    if (status != NEAP_OK && status != NEAP_MEMORY)
      printf("  allocation %lld: %s\n", (long long)n, own.message), check_failures++;
    if (status == NEAP_OK) CHECK(got == want);
    CHECK_EQ(neap_memory_read().n_live, live);
  }
  CHECK(done);
  neap_pool_totals(&pool_reserved, &pool_used);
  CHECK(pool_reserved == 0 && pool_used == 0);
  neap_net_free(net);
}

/* ---- recomputation --------------------------------------------------------------------------- */

/* Twelve layers of FC and Tanh, trained. */
static neap_status build_chain_from(const char *first, neap_net **out, neap_error *error) {
  NEAP_TRY(neap_net_new("chain", out, error));
  NEAP_TRY(neap_net_add_text(*out, error, "%s\nstate lr f32 () = Constant { value = 0.1 }", first));
  for (int i = 0; i < 12; i++)
    NEAP_TRY(neap_net_add_text(
      *out, error, "param w%d f32 (16,16) = Xavier\ns%d = FC(h%d, w%d)\nh%d = Tanh(s%d)", i, i, i,
      i, i + 1, i));
  NEAP_TRY(neap_net_add_text(*out, error, "sq = Mul(h12, h12)\nloss = Mean(sq)"));
  NEAP_TRY(neap_net_add_gradient(*out, "loss", 0, NULL, NULL, NULL, error));
  for (int i = 0; i < 12; i++)
    NEAP_TRY(neap_net_add_text(*out, error, "w%d = Sgd(w%d, w%d_grad, lr)", i, i, i));
  return neap_net_add_text(*out, error, "outputs loss");
}

static neap_status build_chain(neap_net **out, neap_error *error) {
  return build_chain_from("input h0 f32 (64,16)", out, error);
}

TEST(a_budget_recomputes_no_more_than_it_must) {
  neap_net *net = NULL;
  neap_forecast whole, half, off;
  neap_error refused = {0};
  CHECK_OK(build_chain(&net, &error));
  neap_compile_options o = {.plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 1, .engine = "ref"};
  double work;
  CHECK_OK(neap_driver_plan(net, &o, &whole, &error));
  CHECK_EQ(neap_plan_repeated(whole.graph, &work), 0);
  o.plan.budget_bytes = whole.plan->arena_bytes - 1;
  CHECK_OK(neap_driver_plan(net, &o, &half, &error));
  CHECK(neap_plan_repeated(half.graph, &work) <= 2 &&
        half.plan->arena_bytes < whole.plan->arena_bytes && work < 0.1);
  neap_forecast_fini(&half);
  o.plan.budget_bytes = whole.plan->arena_bytes / 2;
  CHECK_OK(neap_driver_plan(net, &o, &half, &error));
  CHECK(neap_plan_repeated(half.graph, &work) > 2 &&
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
    CHECK_EQ(neap_plan_repeated(
               neap_program_graph(neap_session_program(neap_micro_part_session(micro))), &work),
             0);
  }
  neap_micro_free(micro);
  neap_workspace_release(ws);
  neap_forecast_fini(&whole);
  neap_net_free(net);
}

/* What a stranger may have written into a store: none of it is taken for a repetition. */
TEST(choices_that_repeat_what_must_not_be_are_refused) {
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
    CHECK(laid->node[n].phase == NEAP_PHASE_FORWARD || !neap_graph_can_repeat(laid, n));
  neap_graph_free(laid);
  laid = NULL;
  for (int i = 0; i < NEAP_COUNT(wrong); i++) {
    CHECK_OK(neap_choices_repeat(&choices, wrong[i][1] >= 0 ? 2 : 1, wrong[i], &error));
    CHECK_FAILS(neap_graph_lay_out(graph, &choices, &laid, &error), NEAP_PLAN, "can't be repeated");
    CHECK(laid == NULL);
  }
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

/* ---- mem_param, dry runs, counts, gradients given back --------------------------------------- */

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
      CHECK(strstr(said.message, "can't be repeated there") != NULL);
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
    CHECK(f.graph->node[n].repeats == 0 || strcmp(f.graph->node[n].name, "v") != 0);
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
  return RUN(
    argc, argv, T(a_convolutional_net_trains_alike_under_every_plan), T(engines_agree),
    T(fetch_reorders_blocked_values), T(a_second_compile_finds_the_plan),
    T(a_stored_plan_runs_bit_for_bit), T(a_stored_plan_is_checked),
    T(a_stored_plan_of_other_kernels_is_made_again), T(a_run_is_recorded_with_its_ops_and_metrics),
    T(a_dynamic_run_leaves_no_plans), T(a_store_that_cannot_write_stops_nothing),
    T(every_refused_allocation_is_survived_with_a_store),
    T(every_refused_allocation_is_survived_in_banks), T(the_verifier_refuses_plans_that_mix_banks),
    T(a_refusal_may_go_unread), T(every_refused_allocation_is_survived_by_micro_batches),
    T(refused_memory_is_no_batch_that_does_not_fit),
    T(refused_memory_leaves_the_blobs_of_one_op_as_they_were),
    T(a_budget_is_kept_or_refused_with_what_would_do), T(a_budget_recomputes_no_more_than_it_must),
    T(micro_batches_that_are_fitted_repeat_nothing),
    T(choices_that_repeat_what_must_not_be_are_refused),
    T(every_refused_allocation_is_survived_by_recomputation),
    T(every_refused_allocation_is_survived_by_eviction),
    T(every_refused_allocation_is_survived_by_a_dynamic_session),
    T(every_refused_allocation_is_survived_by_dry_runs_and_counts),
    T(every_refused_allocation_is_survived_by_gradients_made_again),
    T(gradients_given_back_leave_views_and_other_workspaces_alone),
    T(every_refused_allocation_of_a_verifier_is_said),
    T(a_script_of_eviction_that_was_tampered_with_is_refused),
    T(what_a_net_makes_first_is_taken_from_the_pool_too),
    T(a_pool_that_does_with_less_does_with_more),
    T(what_reads_a_state_that_moves_before_the_backward_is_not_repeated),
    T(what_is_assigned_after_the_backward_is_of_the_first_run));
}
