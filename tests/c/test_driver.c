/* test_driver.c: the way from net to run: stored plans found, checked and replaced, a convolutional
 * net under every engine, policy and schedule, and a store that fails without stopping anything. */
#include "mlp.h"
#include "plan/plan_int.h"
#include "store/store_int.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[64];

static neap_store *open_store(void) {
  neap_store *store = NULL;
  CHECK_OK(neap_db_open(path, &store, &error));
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
  CHECK_OK(neap_db_query(store, sql, 0, NULL, take_integer, &answer, &error));
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
  neap_db_close(store);
  drop_path();
}

/* A plan that needs no search is made again, which takes no longer than finding it; all the same it
 * has one row. */
TEST(what_is_cheap_to_find_is_not_kept) {
  fresh_path();
  unsetenv("NEAP_CACHE");
  neap_store *store = open_store();
  neap_net *net = NULL;
  neap_forecast f[3];
  CHECK_OK(build_conv(true, &net, &error));
  neap_compile_options options = {.plan = {.policy = NEAP_POLICY_OFFSET}, .store = store};
  for (int k = 0; k < 2; k++) {
    CHECK_OK(neap_driver_plan(net, &options, &f[k], &error));
    CHECK(!f[k].hit && !f[k].kept && f[k].plan->n_search > 0);
    CHECK(strcmp(neap_forecast_figures(&f[k]).source, "planned") == 0);
  }
  CHECK(f[0].plan_id > 0 && f[0].plan_id == f[1].plan_id);
  CHECK_EQ(f[0].plan->n_search, f[1].plan->n_search);
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan_cache"), 0);
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan"), 1);
  CHECK_EQ(ask(store, "SELECT n_search FROM plan"), f[0].plan->n_search);
  setenv("NEAP_CACHE", "all", 1);
  CHECK_OK(neap_driver_plan(net, &options, &f[2], &error));
  CHECK(!f[2].hit && f[2].kept && f[2].plan_id == f[0].plan_id);
  neap_forecast_fini(&f[2]);
  CHECK_OK(neap_driver_plan(net, &options, &f[2], &error));
  CHECK(f[2].hit && f[2].plan->n_search == f[0].plan->n_search);
  CHECK(strcmp(neap_forecast_figures(&f[2]).source, "read") == 0);
  for (int k = 0; k < 3; k++) neap_forecast_fini(&f[k]);
  neap_net_free(net);
  neap_db_close(store);
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
  neap_db_close(store);
  drop_path();
}

/* Whatever lies under the key: plans are made again, said to be, and kept in its place. */
TEST(a_stored_plan_is_checked) {
#define OF(policy) "(SELECT key FROM plan WHERE policy = '" policy "')"
  static const char *const damage[] = {
    "UPDATE plan_cache SET (plan_text, plan_bytes) = (x'6e6f6e65', 4) WHERE key = " OF("offset"),
    "UPDATE plan_cache SET (choices, choice_bytes) = (x'6e6f6e65', 4) WHERE key = " OF("offset"),
    /* The plan without a budget is a right one of this graph, but for the limit. */
    "UPDATE plan_cache SET (choices, choice_bytes, plan_text, plan_bytes) = (SELECT choices, "
    "choice_bytes, plan_text, plan_bytes FROM plan_cache WHERE key = " OF("none") ")"};
#undef OF
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
  neap_db_close(store);
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
  CHECK_EQ(
    sqlite3_exec(store->db,
                 "WITH other (text) AS (SELECT CAST(replace(CAST(sqlar_uncompress(choices, "
                 "choice_bytes) AS TEXT), 'ref ', 'blas ') AS BLOB) FROM plan_cache) "
                 "UPDATE plan_cache SET (choices, choice_bytes) = (SELECT sqlar_compress(text), "
                 "length(text) FROM other)",
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
  neap_db_close(store);
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
  CHECK_OK(neap_session_metric(m.session, "loss", 5, 1.5, &error));
  CHECK_OK(neap_session_record(m.session, "finished", &error));
  CHECK(neap_session_run_id(m.session) > 0);
  CHECK_OK(neap_session_record(m.session, "finished", &error)); /* once is enough */
  mlp_close(&m);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run"), 1);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run_op"), n_node);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run_op WHERE n_call = 5"), n_node);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run_metric WHERE value = 1.5"), 1);
  CHECK_EQ(ask(store, "SELECT step_median_ns >= step_min_ns AND step_min_ns > 0 FROM run"), 1);
  neap_db_close(store);
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
  neap_db_close(store);
  drop_path();
}

/* What fails in the store is said and stops nothing. */
TEST(a_store_that_cannot_write_stops_nothing) {
  fresh_path();
  neap_db_close(open_store());
  CHECK(chmod(path, 0444) == 0);
  neap_store *store = NULL;
  CHECK_OK(neap_db_open(path, &store, &error));
  if (store == NULL) return;
  mlp m;
  neap_compile_options options = {.plan = {.policy = NEAP_POLICY_OFFSET}, .store = store};
  train_conv(&m, &options, false);
  CHECK(m.session != NULL && neap_session_n_steps(m.session) == 5);
  if (m.session != NULL && neap_db_is_readonly(store))
    CHECK(neap_session_warning(m.session)[0] != '\0');
  mlp_close(&m);
  neap_db_close(store);
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
    if (m.session != NULL) (void)neap_session_metric(m.session, "loss", 1, 2.0, NULL);
    mlp_close(&m);
    done = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    if (status != NEAP_OK && status != NEAP_MEMORY)
      printf("  allocation %lld: %s\n", (long long)n, error.message), check_failures++;
    CHECK(neap_memory_read().n_live <= live + 2); /* the store keeps its last answer: two texts */
  }
  CHECK(done);
  neap_db_close(store);
  CHECK_EQ(neap_memory_read().n_live, outside);
  drop_path();
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

int main(int argc, char **argv) {
  setenv("NEAP_CACHE", "all", 1); /* cheap plans are read back, too */
  return RUN(argc, argv, T(a_convolutional_net_trains_alike_under_every_plan), T(engines_agree),
             T(fetch_reorders_blocked_values), T(a_second_compile_finds_the_plan),
             T(what_is_cheap_to_find_is_not_kept), T(a_stored_plan_runs_bit_for_bit),
             T(a_stored_plan_is_checked), T(a_stored_plan_of_other_kernels_is_made_again),
             T(a_run_is_recorded_with_its_ops_and_metrics), T(a_dynamic_run_leaves_no_plans),
             T(a_store_that_cannot_write_stops_nothing),
             T(every_refused_allocation_is_survived_with_a_store),
             T(refused_memory_leaves_the_blobs_of_one_op_as_they_were),
             T(a_budget_is_kept_or_refused_with_what_would_do));
}
