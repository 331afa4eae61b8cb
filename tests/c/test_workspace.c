/* test_workspace.c: names and their look-up, feed, fetch and the fetch rule, segments, seeds, the
 * arena of several programs, checkpoints, and two workspaces in two threads. */
#include "mlp.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static neap_workspace *workspace(neap_workspace *parent) {
  neap_workspace *ws = NULL;
  CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 1, .parent = parent}, &ws, &error));
  return ws;
}

/* ---- names ----------------------------------------------------------------------------------- */

TEST(feed_and_fetch_copy) {
  neap_workspace *ws = workspace(NULL);
  neap_tensor t, back;
  CHECK_OK(mlp_numbers(NEAP_DTYPE_F32, NEAP_SHAPE(2, 3), 1, &t, &error));
  CHECK_OK(neap_workspace_feed(ws, "x", &t, false, &error));
  neap_element_set(t.dtype, neap_tensor_data(&t), 0, 99); /* the blob does not see this */
  CHECK_OK(neap_workspace_fetch(ws, "x", &back, &error));
  CHECK(neap_element_get(back.dtype, neap_tensor_data(&back), 0) != 99);
  neap_element_set(back.dtype, neap_tensor_data(&back), 0, 98); /* nor this */
  CHECK(mlp_element(ws, "x", 0) != 98);
  neap_tensor_fini(&back);
  CHECK_OK(neap_workspace_feed(ws, "x", &t, true, &error)); /* shared: it does */
  neap_element_set(t.dtype, neap_tensor_data(&t), 0, 97);
  CHECK_EQ(mlp_element(ws, "x", 0), 97);
  CHECK_OK(mlp_feed_number(ws, "x", 5, &error)); /* and is let go unharmed */
  CHECK_EQ(neap_element_get(t.dtype, neap_tensor_data(&t), 0), 97);
  neap_tensor_fini(&t);
  CHECK_FAILS(neap_workspace_fetch(ws, "xx", &back, &error), NEAP_NAME, "xx");
  neap_workspace_release(ws);
}

TEST(a_child_reads_through_and_shadows) {
  neap_workspace *parent = workspace(NULL), *child = workspace(parent);
  CHECK_OK(mlp_feed_number(parent, "a", 1, &error));
  CHECK_EQ(mlp_element(child, "a", 0), 1);
  CHECK_OK(mlp_feed_number(child, "a", 2, &error)); /* the parent's blob: no new one */
  CHECK_EQ(mlp_element(parent, "a", 0), 2);
  CHECK_OK(neap_workspace_create(child, "a", false, &error)); /* exists: no effect */
  CHECK(!neap_workspace_remove(child, "a"));                  /* not its own */
  CHECK_OK(neap_workspace_create(child, "a", true, &error));
  CHECK_OK(mlp_feed_number(child, "a", 3, &error));
  CHECK_EQ(mlp_element(parent, "a", 0), 2);
  CHECK_EQ(mlp_element(child, "a", 0), 3);
  CHECK(neap_workspace_remove(child, "a"));
  CHECK_EQ(mlp_element(child, "a", 0), 2); /* the shadow is gone */
  CHECK_OK(mlp_feed_number(child, "own", 4, &error));
  CHECK(!neap_workspace_has(parent, "own"));
  neap_workspace_release(parent); /* the child keeps it */
  CHECK_EQ(mlp_element(child, "a", 0), 2);
  neap_workspace_release(child);
}

TEST(forwarded_names_and_nothing_else_fall_through) {
  neap_workspace *parent = workspace(NULL), *child = NULL;
  CHECK_OK(mlp_feed_number(parent, "w", 1, &error));
  CHECK_OK(mlp_feed_number(parent, "v", 2, &error));
  neap_workspace_options options = {
    .parent = parent, .n_forward = 1, .forward_name = NAMES("inner"), .forward_target = NAMES("w")};
  CHECK_OK(neap_workspace_new(&options, &child, &error));
  CHECK_EQ(mlp_element(child, "inner", 0), 1);
  CHECK(!neap_workspace_has(child, "v"));
  CHECK(!neap_workspace_has(child, "w"));
  CHECK_OK(mlp_feed_number(child, "inner", 7, &error));
  CHECK_EQ(mlp_element(parent, "w", 0), 7);
  neap_workspace *bad = NULL;
  options.forward_target = NAMES("nobody");
  CHECK_FAILS(neap_workspace_new(&options, &bad, &error), NEAP_NAME, "nobody");
  options.parent = NULL;
  CHECK_FAILS(neap_workspace_new(&options, &bad, &error), NEAP_ARGUMENT, "parent");
  neap_workspace_release(child);
  neap_workspace_release(parent);
}

TEST(rename_needs_an_own_blob_and_a_free_name) {
  neap_workspace *parent = workspace(NULL), *ws = workspace(parent);
  CHECK_OK(mlp_feed_number(parent, "up", 1, &error));
  CHECK_OK(mlp_feed_number(ws, "a", 2, &error));
  CHECK_OK(mlp_feed_number(ws, "b", 3, &error));
  CHECK_FAILS(neap_workspace_rename(ws, "a", "b", &error), NEAP_NAME, "already");
  CHECK_FAILS(neap_workspace_rename(ws, "a", "up", &error), NEAP_NAME, "already");
  CHECK_FAILS(neap_workspace_rename(ws, "up", "c", &error), NEAP_NAME, "parent");
  CHECK_FAILS(neap_workspace_rename(ws, "nobody", "c", &error), NEAP_NAME, "nobody");
  CHECK_OK(neap_workspace_rename(ws, "a", "c", &error));
  CHECK(!neap_workspace_has(ws, "a"));
  CHECK_EQ(mlp_element(ws, "c", 0), 2);
  CHECK_EQ(mlp_element(ws, "b", 0), 3);
  neap_workspace_release(ws);
  neap_workspace_release(parent);
}

static void count_blob(void *context, const neap_blob_info *info) {
  int *count = context;
  count[info->borrowed]++;
}

TEST(each_visits_every_visible_name_once) {
  neap_workspace *parent = workspace(NULL), *ws = workspace(parent);
  CHECK_OK(mlp_feed_number(parent, "a", 1, &error));
  CHECK_OK(mlp_feed_number(parent, "b", 1, &error));
  CHECK_OK(neap_workspace_create(ws, "a", true, &error));
  CHECK_OK(mlp_feed_number(ws, "c", 1, &error));
  int count[2] = {0};
  neap_workspace_each(ws, count_blob, count);
  CHECK_EQ(count[false], 2); /* a, c */
  CHECK_EQ(count[true], 1);  /* b; the parent's a is hidden */
  neap_workspace_release(ws);
  neap_workspace_release(parent);
}

TEST(nets_are_stored_by_name) {
  neap_workspace *ws = workspace(NULL), *child = workspace(ws);
  neap_net *a = NULL, *b = NULL;
  CHECK_OK(mlp_build(false, &a, &error));
  CHECK_OK(mlp_build(false, &b, &error));
  CHECK_OK(neap_workspace_add_net(ws, a, false, &error));
  CHECK_FAILS(neap_workspace_add_net(ws, b, false, &error), NEAP_NAME, "mlp");
  CHECK(neap_workspace_net(ws, "mlp") == a);
  CHECK_OK(neap_workspace_add_net(ws, b, true, &error));
  CHECK(neap_workspace_net(ws, "mlp") == b && neap_workspace_net_at(ws, 0) == b &&
        neap_workspace_net_at(ws, 1) == NULL);
  CHECK(neap_workspace_net(child, "mlp") == b && neap_workspace_net_at(child, 0) == NULL);
  CHECK(!neap_workspace_delete_net(child, "mlp")); /* the parent's */
  neap_net_retain(b);
  CHECK(neap_workspace_delete_net(ws, "mlp"));
  CHECK(!neap_workspace_delete_net(ws, "mlp"));
  CHECK(neap_workspace_net(child, "mlp") == NULL);
  CHECK(strcmp(neap_net_name(b), "mlp") == 0); /* whoever else holds it keeps it */
  neap_net_free(b);
  neap_workspace_release(child);
  neap_workspace_release(ws);
}

/* ---- init ------------------------------------------------------------------------------------ */

TEST(parameters_lie_in_one_segment) {
  neap_workspace *ws = workspace(NULL);
  neap_net *net = NULL;
  CHECK_OK(mlp_build(false, &net, &error));
  int64_t before = neap_memory_read().held_bytes[NEAP_DATA_BYTES];
  CHECK_OK(neap_workspace_init(ws, net, &error));
  int64_t bytes = (int64_t)(neap_align(4 * MLP_HIDDEN * MLP_IN) + neap_align(4 * MLP_HIDDEN) +
                            neap_align(4 * MLP_OUT * MLP_HIDDEN) + neap_align(4 * MLP_OUT));
  CHECK_EQ(neap_memory_read().held_bytes[NEAP_DATA_BYTES] - before, bytes);
  CHECK_FAILS(neap_workspace_fetch(ws, "w1", &(neap_tensor){0}, &error), NEAP_RELEASED, "fed");
  CHECK_OK(mlp_feed_all(ws, false, &error));
  neap_tensor w1, b1, b2;
  CHECK_OK(neap_workspace_view(ws, "w1", &w1, NULL, &error));
  CHECK_OK(neap_workspace_view(ws, "b1", &b1, NULL, &error));
  CHECK_OK(neap_workspace_view(ws, "b2", &b2, NULL, &error));
  CHECK(w1.storage == b1.storage && w1.storage == b2.storage);
  CHECK(neap_tensor_data(&b1) - neap_tensor_data(&w1) ==
        (ptrdiff_t)neap_align(4 * MLP_HIDDEN * MLP_IN));
  CHECK_FAILS(mlp_feed_number(ws, "w1", 1, &error), NEAP_SHAPE, "w1"); /* a segment never moves */
  CHECK_FAILS(neap_workspace_feed(ws, "b1", &b1, true, &error), NEAP_ARGUMENT, "segment");
  CHECK_OK(neap_workspace_init(ws, net, &error)); /* what exists stays as it is */
  neap_tensor again;
  CHECK_OK(neap_workspace_view(ws, "w1", &again, NULL, &error));
  CHECK(neap_tensor_data(&again) == neap_tensor_data(&w1));
  neap_tensor_fini(&again);
  neap_tensor_fini(&w1);
  neap_tensor_fini(&b1);
  neap_tensor_fini(&b2);
  neap_workspace_release(ws);
  neap_net_free(net);
  CHECK_EQ(neap_memory_read().held_bytes[NEAP_DATA_BYTES], before);
}

/* A net with n random parameters p0, p1, ... */
static neap_status random_net(int first, int n, neap_net **out, neap_error *error) {
  NEAP_TRY(neap_net_new("random", out, error));
  for (int i = first; i < first + n; i++) {
    char name[16];
    snprintf(name, sizeof name, "p%d", i);
    neap_type type = {NEAP_DTYPE_F32, NEAP_SHAPE(3, 5)};
    NEAP_TRY(neap_net_declare(*out, name, NEAP_ROLE_PARAMETER, &type, true, "Gaussian", NULL, NULL,
                              error));
  }
  return NEAP_OK;
}

TEST(random_initial_values_depend_on_seed_and_name_alone) {
  if (!has_ops(1, NAMES("Gaussian"))) SKIP("Gaussian is not built in yet");
  neap_workspace *a = workspace(NULL), *b = workspace(NULL), *c = workspace(NULL);
  neap_net *all = NULL, *one = NULL;
  CHECK_OK(random_net(0, 4, &all, &error));
  CHECK_OK(random_net(2, 1, &one, &error));
  neap_workspace_set_seed(c, 2);
  CHECK_OK(neap_workspace_init(a, all, &error));
  CHECK_OK(neap_workspace_init(b, one, &error));
  CHECK_OK(neap_workspace_init(c, one, &error));
  CHECK(mlp_same_bits(a, b, "p2"));
  CHECK(!mlp_same_bits(b, c, "p2"));
  CHECK(mlp_element(a, "p0", 0) != mlp_element(a, "p1", 0));
  neap_workspace_release(a);
  neap_workspace_release(b);
  neap_workspace_release(c);
  neap_net_free(all);
  neap_net_free(one);
}

/* ---- the fetch rule -------------------------------------------------------------------------- */

/* x -> Tanh -> h0 -> Tanh -> h1 ... : in place is off, so that two slots take turns. */
static neap_status chain(int n, const char *name, neap_net **out, neap_error *error) {
  NEAP_TRY(neap_net_new(name, out, error));
  NEAP_TRY(mlp_declare(*out, "x", NEAP_ROLE_INPUT, NEAP_DTYPE_F32, NEAP_SHAPE(100), error));
  for (int i = 0; i < n; i++) {
    char in[16], to[16];
    snprintf(in, sizeof in, i == 0 ? "x" : "%s_h%d", name, i - 1);
    snprintf(to, sizeof to, "%s_h%d", name, i);
    NEAP_TRY(mlp_add(*out, "Relu", 1, NAMES(in), to, NULL, error));
  }
  return NEAP_OK;
}

TEST(fetch_gives_intact_values_and_names_the_new_owner_of_others) {
  neap_workspace *ws = workspace(NULL);
  neap_net *net = NULL, *other = NULL;
  neap_session *session = NULL, *second = NULL;
  neap_compile_options options = {.plan = {.policy = NEAP_POLICY_OFFSET, .no_in_place = true},
                                  .graph = {.no_rewrite = true}};
  CHECK_OK(chain(4, "a", &net, &error));
  CHECK_OK(chain(6, "b", &other, &error));
  CHECK_OK(mlp_feed(ws, "x", NEAP_DTYPE_F32, NEAP_SHAPE(100), 3, &error));
  CHECK_OK(neap_driver_compile(ws, net, &options, &session, &error));
  if (session == NULL) return;
  CHECK_FAILS(neap_workspace_fetch(ws, "a_h1", &(neap_tensor){0}, &error), NEAP_RELEASED,
              "has not run yet");
  CHECK_OK(neap_session_run(session, &error));
  CHECK(!isnan(mlp_element(ws, "a_h3", 0))); /* the output */
  CHECK(!isnan(mlp_element(ws, "a_h2", 0))); /* transient, but the last to use its bytes */
  CHECK_FAILS(neap_workspace_fetch(ws, "a_h0", &(neap_tensor){0}, &error), NEAP_RELEASED,
              "its bytes now belong to \"a_h2\"");
  CHECK_FAILS(neap_workspace_fetch(ws, "a_h0", &(neap_tensor){0}, &error), NEAP_RELEASED,
              "ws:keep \"a_h0\"");

  neap_tensor view;
  uint64_t generation;
  CHECK_OK(neap_workspace_view(ws, "a_h2", &view, &generation, &error));
  CHECK(generation != 0 && generation == neap_workspace_generation(ws));
  CHECK_OK(neap_driver_compile(ws, other, &options, &second, &error));
  CHECK_OK(neap_session_run(second, &error));
  CHECK(generation != neap_workspace_generation(ws));
  neap_tensor_fini(&view);
  CHECK_FAILS(neap_workspace_fetch(ws, "a_h2", &(neap_tensor){0}, &error), NEAP_RELEASED,
              "net \"b\"");
  CHECK(!isnan(mlp_element(ws, "a_h3", 0))); /* resident: any time */
  CHECK_OK(neap_workspace_view(ws, "a_h3", &view, &generation, &error));
  CHECK_EQ(generation, 0);
  neap_tensor_fini(&view);
  neap_session_free(session);
  neap_session_free(second);

  options.graph.n_keep = 1; /* the advice taken */
  options.graph.keep = NAMES("a_h0");
  CHECK_OK(neap_driver_compile(ws, net, &options, &session, &error));
  CHECK_OK(neap_session_run(session, &error));
  CHECK(!isnan(mlp_element(ws, "a_h0", 0)));
  neap_session_free(session);
  neap_workspace_release(ws);
  neap_net_free(net);
  neap_net_free(other);
}

TEST(programs_share_one_arena) {
  neap_workspace *ws = workspace(NULL);
  neap_net *net[2] = {NULL, NULL};
  neap_session *session[2] = {NULL, NULL};
  neap_compile_options options = {.plan = {.policy = NEAP_POLICY_NONE},
                                  .graph = {.no_rewrite = true}};
  CHECK_OK(chain(3, "a", &net[0], &error));
  CHECK_OK(chain(9, "b", &net[1], &error));
  CHECK_OK(mlp_feed(ws, "x", NEAP_DTYPE_F32, NEAP_SHAPE(100), 3, &error));
  for (int i = 0; i < 2; i++)
    CHECK_OK(neap_driver_compile(ws, net[i], &options, &session[i], &error));
  size_t most = neap_program_plan(neap_session_program(session[1]))->arena_bytes;
  CHECK(most > neap_program_plan(neap_session_program(session[0]))->arena_bytes);
  CHECK_EQ(neap_workspace_arena_bytes(ws), most);
  for (int turn = 0; turn < 4; turn++) CHECK_OK(neap_session_run(session[turn % 2], &error));
  CHECK(mlp_element(ws, "a_h2", 7) == mlp_element(ws, "b_h8", 7));
  for (int i = 0; i < 2; i++) neap_session_free(session[i]), neap_net_free(net[i]);
  neap_workspace_release(ws);
}

TEST(budgets_of_the_workspace_are_kept) {
  neap_workspace *ws = NULL;
  neap_net *net = NULL;
  neap_session *session = NULL;
  neap_compile_options options = {.plan = {.policy = NEAP_POLICY_NONE},
                                  .graph = {.no_rewrite = true}};
  CHECK_OK(neap_workspace_new(&(neap_workspace_options){.budget_bytes = 1000}, &ws, &error));
  CHECK_OK(chain(9, "a", &net, &error));
  CHECK_FAILS(neap_driver_compile(ws, net, &options, &session, &error), NEAP_BUDGET, "budget");
  neap_error alone = {0};
  CHECK(neap_driver_compile(ws, net, &options, &session, &alone) != NEAP_OK &&
        strstr(alone.message, "beside") == NULL);
  CHECK_EQ(neap_workspace_arena_bytes(ws), 0);
  CHECK(!neap_workspace_has(ws, "a_h8")); /* a refused program leaves nothing */
  neap_net_free(net);
  neap_workspace_release(ws);
}

/* What a parent holds keeps its type: a child's program that would write another is refused before
 * it is run, and leaves nothing. */
TEST(a_parents_blob_of_another_type_is_no_result) {
  neap_workspace *parent = workspace(NULL), *child = workspace(parent);
  neap_net *net = NULL;
  neap_session *session = NULL;
  neap_compile_options options = {.plan = {.policy = NEAP_POLICY_OFFSET}};
  CHECK_OK(chain(2, "a", &net, &error));
  CHECK_OK(mlp_feed_number(parent, "a_h1", 3, &error));
  CHECK_FAILS(neap_driver_compile(child, net, &options, &session, &error), NEAP_SHAPE,
              "\"a_h1\": expects f32 (100), got f32 (1)");
  CHECK_EQ(mlp_element(child, "a_h1", 0), 3);

  /* one of its own may have any type */
  CHECK_OK(neap_workspace_create(child, "a_h1", true, &error));
  CHECK_OK(neap_driver_compile(child, net, &options, &session, &error));
  CHECK_OK(mlp_feed(child, "x", NEAP_DTYPE_F32, NEAP_SHAPE(100), 3, &error));
  if (session != NULL) CHECK_OK(neap_session_run(session, &error));
  CHECK_EQ(mlp_element(parent, "a_h1", 0), 3);
  neap_session_free(session);
  neap_net_free(net);
  neap_workspace_release(child);
  neap_workspace_release(parent);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* What no name has counts in no total: a program that waits for its next run doesn't keep it. */
TEST(a_blob_that_is_something_else_now_leaves_no_bytes) {
  enum { N = 1 << 16 };
  for (int way = 0; way < 3; way++) {
    neap_net *net = NULL;
    neap_workspace *ws = workspace(NULL);
    neap_session *session = NULL;
    neap_tensor x = {0};
    CHECK_OK(neap_net_read("net f\ninput x f32 (65536)\ny = Sum(x)\n", &net, &error));
    CHECK_OK(mlp_numbers(NEAP_DTYPE_F32, NEAP_SHAPE(N), 1, &x, &error));
    CHECK_OK(neap_workspace_feed(ws, "x", &x, false, &error));
    neap_tensor_fini(&x);
    CHECK_OK(neap_driver_compile(
      ws, net, &(neap_compile_options){.plan = {.policy = NEAP_POLICY_OFFSET}}, &session, &error));
    CHECK_OK(neap_session_run(session, &error));

    int64_t held = neap_memory_read().held_bytes[NEAP_DATA_BYTES];
    neap_scope *scope;
    if (way == 0) CHECK_OK(neap_workspace_feed_string(ws, "x", "a text", 6, &error));
    if (way == 1) CHECK_OK(neap_workspace_create_scope(ws, "x", &scope, &error));
    if (way == 2) CHECK(neap_workspace_remove(ws, "x"));
    CHECK(neap_memory_read().held_bytes[NEAP_DATA_BYTES] <= held - 4 * N);

    CHECK(neap_session_run(session, NULL) != NEAP_OK);
    CHECK_OK(mlp_feed(ws, "x", NEAP_DTYPE_F32, NEAP_SHAPE(N), 1, &error));
    CHECK_OK(neap_session_run(session, &error));
    neap_session_free(session);
    neap_workspace_release(ws);
    neap_net_free(net);
  }
}

TEST(a_run_needs_its_inputs) {
  neap_workspace *ws = workspace(NULL);
  neap_net *net = NULL;
  neap_session *session = NULL;
  neap_compile_options options = {.plan = {.policy = NEAP_POLICY_OFFSET}};
  CHECK_OK(chain(2, "a", &net, &error));
  CHECK_OK(neap_driver_compile(ws, net, &options, &session, &error));
  if (session == NULL) return;
  CHECK_FAILS(neap_session_run(session, &error), NEAP_NAME, "\"x\" has not been fed");
  CHECK_OK(mlp_feed_number(ws, "x", 1, &error));
  CHECK_FAILS(neap_session_run(session, &error), NEAP_SHAPE, "expects f32 (100), got f32 (1)");
  CHECK_OK(mlp_feed(ws, "x", NEAP_DTYPE_F32, NEAP_SHAPE(100), 3, &error));
  CHECK_OK(neap_session_run(session, &error));
  neap_tensor shared; /* bytes of the user's, read where they are */
  CHECK_OK(mlp_numbers(NEAP_DTYPE_F32, NEAP_SHAPE(100), 4, &shared, &error));
  CHECK_OK(neap_workspace_feed(ws, "x", &shared, true, &error));
  neap_element_set(NEAP_DTYPE_F32, neap_tensor_data(&shared), 0, 12345);
  CHECK_OK(neap_session_run(session, &error));
  CHECK_EQ(mlp_element(ws, "a_h1", 0), 12345);
  neap_tensor_fini(&shared);
  CHECK(neap_workspace_remove(ws, "x"));
  CHECK_FAILS(neap_session_run(session, &error), NEAP_NAME, "removed");
  neap_session_free(session);
  neap_net_free(net);
  neap_workspace_release(ws);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

TEST(a_checkpoint_restores_numbers_seed_and_step) {
  mlp a, b;
  char path[] = "/tmp/neap_test_XXXXXX.safetensors";
  int file = mkstemps(path, 12);
  CHECK(file >= 0);
  close(file);
  CHECK_OK(mlp_open(&a, false, NULL, &error));
  CHECK_OK(mlp_open(&b, false, NULL, &error));
  if (a.ws == NULL || b.ws == NULL) return;
  neap_workspace_set_step(a.ws, 77);
  neap_workspace_set_seed(a.ws, 123456789012345);
  CHECK_OK(neap_workspace_save(a.ws, path, 0, NULL, &error));
  CHECK_OK(mlp_feed(b.ws, "w1", NEAP_DTYPE_F32, NEAP_SHAPE(MLP_HIDDEN, MLP_IN), 50, &error));
  CHECK(!mlp_same_bits(a.ws, b.ws, "w1"));
  CHECK_OK(neap_workspace_load(b.ws, path, NEAP_IO_COPY, NULL, &error));
  CHECK(mlp_same_bits(a.ws, b.ws, "w1"));
  CHECK_EQ(neap_workspace_step(b.ws), 77);
  CHECK_EQ(neap_workspace_seed(b.ws), 123456789012345);
  CHECK_OK(neap_session_run(a.session, &error));
  CHECK_OK(neap_session_run(b.session, &error));
  CHECK(mlp_same_bits(a.ws, b.ws, "loss"));

  neap_workspace *empty = workspace(NULL), *other = workspace(NULL);

  /* into nothing: the blobs are made */
  CHECK_OK(neap_workspace_load(empty, path, NEAP_IO_COPY, NULL, &error));
  CHECK(mlp_same_bits(a.ws, empty, "b2"));
  CHECK(!neap_workspace_has(empty, "x")); /* inputs are not part of it */
  CHECK_OK(mlp_feed_number(other, "w1", 3, &error));
  CHECK_FAILS(neap_workspace_load(other, path, NEAP_IO_COPY, NULL, &error), NEAP_SHAPE, "w1");
  CHECK(!neap_workspace_has(other, "b2")); /* nothing has changed */
  CHECK_EQ(mlp_element(other, "w1", 0), 3);
  CHECK_EQ(neap_workspace_step(other), 0);
  neap_workspace_release(empty);
  neap_workspace_release(other);
  mlp_close(&a);
  mlp_close(&b);
  unlink(path);
}

/* ---- refused memory -------------------------------------------------------------------------- */

/* Each public call that takes memory, on the same workspace. Returns the first failure. */
static neap_status do_everything(neap_workspace *parent, const neap_net *net, const char *path,
                                 neap_error *error) {
  neap_workspace *ws = NULL;
  neap_tensor t = {0};
  neap_workspace_options options = {.parent = parent,
                                    .n_forward = 1,
                                    .forward_name = NAMES("inner"),
                                    .forward_target = NAMES("outer")};
  neap_status s = neap_workspace_new(&options, &ws, error);
  if (s == NEAP_OK) s = neap_workspace_init(ws, net, error);
  if (s == NEAP_OK) s = mlp_feed_all(ws, false, error);
  if (s == NEAP_OK) s = neap_workspace_create(ws, "empty", true, error);
  if (s == NEAP_OK) s = neap_workspace_rename(ws, "empty", "other", error);
  if (s == NEAP_OK) s = neap_workspace_save(ws, path, 0, NULL, error);
  if (s == NEAP_OK && neap_workspace_remove(ws, "b2"))
    s = neap_workspace_load(ws, path, NEAP_IO_COPY, NULL, error);
  if (s == NEAP_OK) s = neap_workspace_fetch(ws, "b2", &t, error);
  if (s == NEAP_OK) s = neap_workspace_copy_forwarded(ws, error);
  neap_tensor_fini(&t);
  neap_workspace_release(ws);
  return s;
}

TEST(every_refused_allocation_is_survived) {
  char path[] = "/tmp/neap_test_XXXXXX.safetensors";
  int file = mkstemps(path, 12);
  CHECK(file >= 0);
  close(file);
  neap_workspace *parent = workspace(NULL);
  neap_net *net = NULL;
  CHECK_OK(mlp_feed_number(parent, "outer", 1, &error));
  CHECK_OK(mlp_build(false, &net, &error));
  CHECK_OK(do_everything(parent, net, path, &error)); /* names are interned once */
  int64_t live = neap_memory_read().n_live;
  bool done = false;
  for (int64_t n = 1; !done && n < 10000 && check_failures < 5; n++) {
    neap_error error = {0};
    neap_memory_fail_nth_block(n);
    neap_status status = do_everything(parent, net, path, &error);
    done = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    if (status != NEAP_OK && status != NEAP_MEMORY)
      printf("  allocation %lld: %s\n", (long long)n, error.message), check_failures++;
    CHECK(!done || status == NEAP_OK);
    CHECK_EQ(neap_memory_read().n_live, live);
  }
  CHECK(done);
  neap_net_free(net);
  neap_workspace_release(parent);
  unlink(path);
}

/* A refused init, feed or load has changed nothing that a user can see. */
TEST(a_refused_call_changes_nothing) {
  neap_workspace *ws = workspace(NULL);
  neap_net *net = NULL;
  CHECK_OK(mlp_build(false, &net, &error));
  CHECK_OK(mlp_feed_number(ws, "x", 1, &error));
  for (int64_t n = 1; n < 1000; n++) {
    int before[2] = {0}, after[2] = {0};
    neap_workspace_each(ws, count_blob, before);
    neap_memory_fail_nth_block(n);
    neap_status status = neap_workspace_init(ws, net, NULL);
    bool failed = neap_memory_failed();
    neap_memory_fail_nth(0, false);
    if (status == NEAP_OK) {
      CHECK(!failed);
      break;
    }
    neap_workspace_each(ws, count_blob, after);
    CHECK_EQ(after[0], before[0]);
    CHECK(!neap_workspace_has(ws, "w1"));
  }
  CHECK(neap_workspace_has(ws, "w1"));
  neap_memory_fail_nth(1, true);
  CHECK_EQ(mlp_feed(ws, "x", NEAP_DTYPE_F32, NEAP_SHAPE(3), 1, NULL), NEAP_MEMORY);
  neap_memory_fail_nth(0, false);
  CHECK_EQ(mlp_element(ws, "x", 0), 1);
  neap_workspace_release(ws);
  neap_net_free(net);
}

/* ---- threads --------------------------------------------------------------------------------- */

typedef struct thread_result {
  double loss;
  int failed;
} thread_result;

static void *run_alone(void *context) {
  thread_result *result = context;
  mlp m;
  neap_compile_options options = {.plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 1};
  if (mlp_open(&m, false, &options, NULL) != NEAP_OK) {
    result->failed++;
    return NULL;
  }
  for (int i = 0; i < 200; i++) {
    if (mlp_feed_inputs(m.ws, i % 5, NULL) != NEAP_OK ||
        neap_session_run(m.session, NULL) != NEAP_OK)
      result->failed++;
    result->loss += mlp_element(m.ws, "loss", 0);
  }
  mlp_close(&m);
  return NULL;
}

TEST(two_workspaces_in_two_threads_do_not_meet) {
  thread_result alone = {0}, result[2] = {{0}};
  run_alone(&alone);
  pthread_t thread[2];
  for (int i = 0; i < 2; i++) CHECK_EQ(pthread_create(&thread[i], NULL, run_alone, &result[i]), 0);
  for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
  CHECK_EQ(alone.failed, 0);
  for (int i = 0; i < 2; i++) {
    CHECK_EQ(result[i].failed, 0);
    CHECK(result[i].loss == alone.loss);
  }
}

int main(int argc, char **argv) {
  return RUN(
    argc, argv, T(feed_and_fetch_copy), T(a_child_reads_through_and_shadows),
    T(forwarded_names_and_nothing_else_fall_through), T(rename_needs_an_own_blob_and_a_free_name),
    T(each_visits_every_visible_name_once), T(nets_are_stored_by_name),
    T(parameters_lie_in_one_segment), T(random_initial_values_depend_on_seed_and_name_alone),
    T(fetch_gives_intact_values_and_names_the_new_owner_of_others), T(programs_share_one_arena),
    T(budgets_of_the_workspace_are_kept), T(a_parents_blob_of_another_type_is_no_result),
    T(a_blob_that_is_something_else_now_leaves_no_bytes), T(a_run_needs_its_inputs),
    T(a_checkpoint_restores_numbers_seed_and_step), T(every_refused_allocation_is_survived),
    T(a_refused_call_changes_nothing), T(two_workspaces_in_two_threads_do_not_meet));
}
