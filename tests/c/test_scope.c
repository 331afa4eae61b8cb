/* test_scope.c: what neap.h says of child workspaces, strings, scopes and step trees, used as a C
 * program would; and the same from several threads at once. */
#include "neap.h"
#include "check.h"

#include <pthread.h>
#include <stdlib.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__})

static neap_workspace *open_workspace(void) {
  neap_workspace *ws = NULL;
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  return ws;
}

static neap_net *net_of(const char *text) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_read(text, &net, &error));
  return net;
}

static neap_status put(neap_workspace *ws, const char *name, float x, neap_error *error) {
  return neap_workspace_write(ws, name, NEAP_DTYPE_F32, 1, (int64_t[]){1}, &x, error);
}

static double get(neap_workspace *ws, const char *name) {
  double x = NAN;
  CHECK_OK(neap_workspace_read(ws, name, NEAP_DTYPE_F64, 1, &x, &error));
  return x;
}

static void add_net(neap_workspace *ws, const char *text) {
  CHECK_OK(neap_workspace_add_net(ws, net_of(text), false, &error));
}

#define COUNTER                                                                                   \
  "net counter\nstate count f32 (1) = Constant\ninput minus f32 (1)\none = Constant() { shape = " \
  "{1}, value = 1 }\n"

/* ---- workspaces ------------------------------------------------------------------------------ */

TEST(a_child_sees_all_or_what_is_forwarded) {
  neap_workspace *parent = open_workspace(), *child = NULL, *narrow = NULL, *none = NULL;
  CHECK_OK(put(parent, "a", 1, &error));
  CHECK_OK(put(parent, "b", 2, &error));
  CHECK_OK(neap_workspace_open_child(parent, 0, NULL, NULL, &child, &error));
  CHECK_OK(neap_workspace_open_child(parent, 1, NAMES("inner"), NAMES("a"), &narrow, &error));
  CHECK_FAILS(neap_workspace_open_child(parent, 1, NAMES("nobody"), NULL, &none, &error), NEAP_NAME,
              "nobody");
  CHECK(none == NULL);
  CHECK_EQ(get(child, "b"), 2);
  CHECK_EQ(get(narrow, "inner"), 1);
  double x;
  CHECK_FAILS(neap_workspace_read(narrow, "b", NEAP_DTYPE_F64, 1, &x, &error), NEAP_NAME, "b");
  CHECK_OK(neap_workspace_create(child, "a", true, &error));
  CHECK_OK(put(child, "a", 5, &error));
  CHECK_EQ(get(parent, "a"), 1);
  neap_workspace_release(parent); /* the children keep it */
  CHECK_EQ(get(narrow, "inner"), 1);
  neap_workspace_release(child);
  neap_workspace_release(narrow);
}

TEST(strings_are_blobs_and_no_operands) {
  neap_workspace *ws = open_workspace();
  const char *text = NULL;
  size_t n = 0;
  CHECK_OK(neap_workspace_feed_string(ws, "s", "a\0b", 3, &error));
  CHECK_OK(neap_workspace_fetch_string(ws, "s", &text, &n, &error));
  CHECK(n == 3 && memcmp(text, "a\0b", 4) == 0);
  CHECK_OK(put(ws, "t", 1, &error));
  CHECK_FAILS(neap_workspace_fetch_string(ws, "t", &text, &n, &error), NEAP_DTYPE,
              "holds a tensor");
  CHECK_FAILS(neap_workspace_fetch_string(ws, "u", &text, &n, &error), NEAP_NAME, "u");
  neap_net *net = net_of("net f\ninput s f32 (1)\ny = Neg(s)\n");
  CHECK_FAILS(neap_workspace_run_once(ws, net, NULL, NULL, &error), NEAP_DTYPE,
              "only tensors are operands");
  neap_net_free(net);
  neap_workspace_release(ws);
}

/* ---- scopes ---------------------------------------------------------------------------------- */

TEST(frames_are_left_last_in_first_out_and_trimmed) {
  neap_workspace *ws = open_workspace(), *frame[3], *back = NULL;
  neap_scope *scope = NULL;
  neap_net *net = net_of("net f\ninput x f32 (1)\nh = Neg(x)\n");
  int64_t before = neap_memory_read().held_bytes[NEAP_DATA_BYTES];
  CHECK_OK(neap_workspace_create_scope(ws, "s", &scope, &error));
  CHECK_FAILS(neap_scope_push(scope, ws, 2, NAMES("x", "x"), NAMES("a", "b"), &back, &error),
              NEAP_NAME, "bound to both");
  for (int i = 0; i < 3; i++) {
    CHECK_OK(put(ws, "a", (float)i, &error));
    CHECK_OK(neap_scope_push(scope, ws, 1, NAMES("x"), NAMES("a"), &frame[i], &error));
    CHECK_OK(neap_workspace_run_once(frame[i], net, NULL, NULL, &error));
  }
  CHECK_EQ(neap_scope_n_frames(scope), 3);
  CHECK_FAILS(neap_scope_push(scope, ws, 1, NAMES("x"), NAMES("s"), &back, &error), NEAP_NAME,
              "differ");
  CHECK_OK(neap_scope_reuse_last(scope, ws, 1, NAMES("z"), NAMES("a"), &back, &error));
  CHECK(back == frame[2]);
  for (int i = 2; i >= 0; i--) {
    CHECK_OK(neap_scope_pop_gradient(scope, ws, 0, NULL, NULL, &back, &error));
    CHECK(back == frame[i]);
    CHECK_EQ(get(back, "h"), -i);
  }
  CHECK(neap_scope_empty(scope));
  CHECK_OK(neap_scope_pop_gradient(scope, ws, 0, NULL, NULL, &back, &error));
  CHECK(back == NULL);
  CHECK(neap_scope_held_bytes(scope) > 0);
  neap_scope_trim(scope);
  CHECK_EQ(neap_scope_held_bytes(scope), 0);
  neap_net_free(net);
  neap_workspace_release(ws);
  CHECK_EQ(neap_memory_read().held_bytes[NEAP_DATA_BYTES], before);
}

TEST(a_do_runs_from_text) {
  neap_workspace *ws = open_workspace();
  neap_net *net = net_of(
    "net f\ninput a f32 (2)\ninput b f32 (2)\ns = CreateScope()\n"
    "subnet body closed\ninput x\ninput y\nz = Add(x, y)\nend\n"
    "c, s = Do(a, b, s) { net = body, inner_blobs = {x, y, z}, outer_blobs_idx = {0,1,2} }\n");
  float c[2] = {0};
  CHECK_OK(
    neap_workspace_write(ws, "a", NEAP_DTYPE_F32, 1, (int64_t[]){2}, (float[]){1, 2}, &error));
  CHECK_OK(
    neap_workspace_write(ws, "b", NEAP_DTYPE_F32, 1, (int64_t[]){2}, (float[]){3, 4}, &error));
  CHECK_OK(neap_workspace_run_once(ws, net, NULL, NULL, &error));
  CHECK_OK(neap_workspace_read(ws, "c", NEAP_DTYPE_F32, 2, c, &error));
  CHECK(c[0] == 4 && c[1] == 6);
  neap_net_free(net);
  neap_workspace_release(ws);
}

/* ---- step trees ------------------------------------------------------------------------------ */

static neap_workspace *counting(const char *more) {
  neap_workspace *ws = open_workspace();
  char text[400];
  snprintf(text, sizeof text, COUNTER "count = Sgd(count, one, minus)\n%s", more);
  add_net(ws, text);
  CHECK_OK(put(ws, "count", 0, &error));
  CHECK_OK(put(ws, "minus", -1, &error));
  return ws;
}

TEST(steps_repeat_and_stop) {
  neap_workspace *ws =
    counting("most = Constant() { shape = {1}, value = 9 }\nstop = Ge(count, most)\n");
  const char *const nets[] = {"counter", "counter"};
  neap_step inner = {.n_net = 2, .net = nets, .iterations = 2},
            tree = {.n_step = 1, .step = &inner, .iterations = 2};
  CHECK_OK(neap_workspace_run_steps(ws, &tree, NULL, NULL, &error));
  CHECK_EQ(get(ws, "count"), 8);
  CHECK_OK(put(ws, "count", 0, &error));
  CHECK_OK(
    neap_workspace_write(ws, "stop", NEAP_DTYPE_BOOL, 1, (int64_t[]){1}, (bool[]){false}, &error));
  neap_step until = {.n_net = 1, .net = nets, .stop_blob = "stop"};
  CHECK_OK(neap_workspace_run_steps(ws, &until, NULL, NULL, &error));
  CHECK_EQ(get(ws, "count"), 9);
  neap_step empty = {0}, both = {.n_net = 1, .net = nets, .n_step = 1, .step = &empty};
  CHECK_OK(neap_workspace_run_steps(ws, &empty, NULL, NULL, &error));
  CHECK_FAILS(neap_workspace_run_steps(ws, &both, NULL, NULL, &error), NEAP_ARGUMENT,
              "nets and substeps");
  neap_step unknown = {.n_net = 2, .net = NAMES("counter", "nobody")};
  CHECK_FAILS(neap_workspace_run_steps(ws, &unknown, NULL, NULL, &error), NEAP_NAME,
              "no net \"nobody\"");
  const neap_step negative[] = {{.n_net = -1},        {.n_step = -1},          {.iterations = -1},
                                {.run_every_ms = -1}, {.report_every_ms = -1}, {.n_instance = -1},
                                {.n_instance = 257}};
  for (int i = 0; i < NEAP_COUNT(negative); i++)
    CHECK_FAILS(neap_workspace_run_steps(ws, &negative[i], NULL, NULL, &error), NEAP_ARGUMENT,
                "can't be negative");
  CHECK_EQ(get(ws, "count"), 9);
  neap_workspace_release(ws);
}

TEST(steps_run_nets_that_are_given_without_a_name) {
  neap_workspace *ws = counting(""), *child = NULL;
  neap_net *other = net_of(COUNTER "two = Add(one, one)\ncount = Sgd(count, two, minus)\n");
  const neap_net *const given[] = {NULL, other};
  neap_step tree = {.n_net = 2, .net = NAMES("counter", NULL), .given = given};
  CHECK_OK(neap_workspace_run_steps(ws, &tree, NULL, NULL, &error));

  /* 1 by name, 2 by the other net of that name, which the workspace does not know */
  CHECK_EQ(get(ws, "count"), 3);
  neap_step report = {
    .n_net = 1, .net = NAMES("counter"), .given_report = other, .report_every_ms = 100000};

  /* it finds its parent's nets */
  CHECK_OK(neap_workspace_open_child(ws, 0, NULL, NULL, &child, &error));
  CHECK_OK(neap_workspace_run_steps(child, &report, NULL, NULL, &error));
  CHECK_EQ(get(ws, "count"), 6);
  neap_step nothing = {.n_net = 2, .net = NAMES("counter", NULL)};
  CHECK_FAILS(neap_workspace_run_steps(ws, &nothing, NULL, NULL, &error), NEAP_NAME, "no net \"\"");
  report.report_every_ms = 0;
  CHECK_FAILS(neap_workspace_run_steps(ws, &report, NULL, NULL, &error), NEAP_ARGUMENT,
              "report net needs an interval");
  CHECK_EQ(get(ws, "count"), 6);
  neap_net_free(other);
  neap_workspace_release(child);
  neap_workspace_release(ws);
}

static void add_unary(neap_workspace *ws, const char *name, const char *op) {
  char text[200];
  snprintf(text, sizeof text,
           "net %s\ninput x f32 (64,64)\n%s_h = MatMul(x, x)\n%s_y = %s(%s_h)\noutputs %s_y\n",
           name, name, name, op, name, name);
  add_net(ws, text);
}

TEST(concurrent_steps_have_arenas_of_their_own_and_their_results_land) {
  neap_workspace *ws = open_workspace();
  static float x[64 * 64], y[64 * 64], z[64 * 64];
  for (int i = 0; i < 64 * 64; i++) x[i] = (float)((i * 37) % 101) / 50 - 1;
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){64, 64}, x, &error));
  add_unary(ws, "a", "Neg");
  add_unary(ws, "b", "Abs");
  add_unary(ws, "c", "Copy");
  static const char *const name[] = {"a", "b", "c"};
  neap_step branch[3];
  for (int i = 0; i < 3; i++)
    branch[i] = (neap_step){.n_net = 1, .net = &name[i], .iterations = 50};
  neap_step tree = {.n_step = 3, .step = branch, .concurrent = true, .iterations = 2};
  CHECK_OK(neap_workspace_run_steps(ws, &tree, NULL, NULL, &error));
  CHECK_OK(neap_workspace_read(ws, "a_y", NEAP_DTYPE_F32, 64 * 64, y, &error));
  CHECK_OK(neap_workspace_read(ws, "c_y", NEAP_DTYPE_F32, 64 * 64, z, &error));
  int n_wrong = 0;
  for (int i = 0; i < 64 * 64; i++) n_wrong += y[i] != -z[i];
  CHECK_EQ(n_wrong, 0);
  branch[1].net = &name[0];
  CHECK_FAILS(neap_workspace_run_steps(ws, &tree, NULL, NULL, &error), NEAP_GRAPH,
              "would meet at blob \"a_y\"");
  neap_workspace_release(ws);
}

TEST(the_first_failure_stops_the_rest) {
  neap_workspace *ws = counting("");
  add_net(ws, "net bad\ninput table f32 (4,2)\ninput id i64 (1)\nrow = Embedding(id, table)\n");
  CHECK_OK(
    neap_workspace_write(ws, "table", NEAP_DTYPE_F32, 2, (int64_t[]){4, 2}, (float[8]){0}, &error));
  CHECK_OK(
    neap_workspace_write(ws, "id", NEAP_DTYPE_I64, 1, (int64_t[]){1}, (int64_t[]){9}, &error));
  neap_step branch[] = {{.n_net = 1, .net = NAMES("counter"), .iterations = INT64_MAX},
                        {.n_net = 1, .net = NAMES("bad")}};
  neap_step tree = {.n_step = 2, .step = branch, .concurrent = true};
  CHECK_FAILS(neap_workspace_run_steps(ws, &tree, NULL, NULL, &error), NEAP_DATA, "Embedding");
  neap_workspace_release(ws);
}

/* Every refused allocation is an error that leaks nothing, concurrent steps included. */
TEST(every_refused_allocation_is_survived) {
  neap_workspace *ws = open_workspace();
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){64, 64},
                                (float[64 * 64]){0}, &error));
  add_unary(ws, "a", "Neg");
  add_unary(ws, "b", "Abs");
  neap_step branch[] = {{.n_net = 1, .net = NAMES("a")},
                        {.n_net = 1, .net = NAMES("b"), .create_workspace = true}};
  neap_step tree = {.n_step = 2, .step = branch, .concurrent = true};
  CHECK_OK(neap_workspace_run_steps(ws, &tree, NULL, NULL, &error));
  int64_t live = neap_memory_read().n_live;
  int n = 1;
  for (bool done = false; !done && n < 5000; n += 7) {
    neap_error error = {0};
    neap_memory_fail_nth_block(n);
    neap_status status = neap_workspace_run_steps(ws, &tree, NULL, NULL, &error);
    done = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    CHECK(done ? status == NEAP_OK : status == NEAP_OK || status == NEAP_MEMORY);
    CHECK_EQ(neap_memory_read().n_live, live);
  }
  CHECK(n > 20 && n < 5000);
  neap_workspace_release(ws);
}

/* One frame entered, run and left, and a net with Dos read and planned. */
static neap_status use_scopes(neap_workspace *ws, neap_error *error) {
  neap_scope *scope = NULL;
  neap_workspace *frame = NULL;
  neap_net *net = NULL;
  neap_figures figures;

  /* All ways into a frame: a new one, the last one again, and the last one for its gradient. */
  neap_status status = neap_workspace_create_scope(ws, "s", &scope, error);

  if (status == NEAP_OK)
    status = neap_scope_push(scope, ws, 1, NAMES("x"), NAMES("a"), &frame, error);
  if (status == NEAP_OK) status = neap_workspace_feed_string(frame, "label", "one", 3, error);
  if (status == NEAP_OK)
    status = neap_scope_reuse_last(scope, ws, 1, NAMES("z"), NAMES("a"), &frame, error);
  if (status == NEAP_OK)
    status = neap_scope_pop_gradient(scope, ws, 1, NAMES("g"), NAMES("a"), &frame, error);
  if (status == NEAP_OK)
    status = neap_net_read(
      "net f\ninput a f32 (2)\ns = CreateScope()\nsubnet body closed\ninput x\ny = Mul(x, x)\nend\n"
      "b, s = Do(a, s) { net = body, inner_blobs = {x, y}, outer_blobs_idx = {0,1}, "
      "copy_external_blobs = true }\n"
      "subnet more closed\ninput y\nz = Neg(y)\nend\n"
      "c, s = Do(s) { net = more, inner_blobs = {z}, outer_blobs_idx = {0}, reuse_workspace = true "
      "}\nl = Sum(c)\n",
      &net, error);
  if (status == NEAP_OK) status = neap_net_add_gradient(net, "l", 1, NAMES("a"), NULL, NULL, error);
  if (status == NEAP_OK) status = neap_net_forecast(net, NULL, &figures, NULL, error);
  neap_net_free(net);
  if (scope != NULL) neap_scope_clear(scope), neap_scope_trim(scope);
  return status;
}

TEST(scopes_survive_every_refused_allocation) {
  neap_workspace *ws = open_workspace();
  CHECK_OK(put(ws, "a", 1, &error));
  CHECK_OK(use_scopes(ws, &error));
  int64_t live = neap_memory_read().n_live;
  int n = 1;
  for (bool done = false; !done && n < 5000; n++) {
    neap_error error = {0};
    neap_memory_fail_nth_block(n);
    neap_status status = use_scopes(ws, &error);
    done = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    CHECK(done ? status == NEAP_OK : status == NEAP_OK || status == NEAP_MEMORY);
    CHECK_EQ(neap_memory_read().n_live, live);
  }
  CHECK(n > 50 && n < 5000);
  neap_workspace_release(ws);
}

/* A first push that was refused, at whatever allocation, leaves no bindings that others must be
 * like. */
TEST(a_first_push_that_is_refused_binds_nothing) {
  neap_workspace *ws = open_workspace(), *frame = NULL;
  CHECK_OK(put(ws, "a", 1, &error));
  CHECK_OK(put(ws, "b", 1, &error));
  bool done = false;
  for (int n = 1; !done && n < 100; n++) {
    neap_scope *scope = NULL;
    CHECK_OK(neap_workspace_create_scope(ws, "s", &scope, &error));
    neap_memory_fail_nth_block(n);
    neap_status status = neap_scope_push(scope, ws, 1, NAMES("x"), NAMES("a"), &frame, NULL);
    done = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    CHECK_EQ(status, done ? NEAP_OK : NEAP_MEMORY);
    if (!done) CHECK_OK(neap_scope_push(scope, ws, 1, NAMES("y"), NAMES("b"), &frame, &error));
    CHECK_EQ(neap_scope_n_frames(scope), 1);
    CHECK(neap_workspace_remove(ws, "s"));
  }
  CHECK(done);
  neap_workspace_release(ws);
}

/* The names that a Do's blobs have around it are made while types are asked for. Each net has a
 * scope of its own, whose names nobody has interned. */
TEST(types_of_a_do_survive_every_refused_name) {
  bool passed = false;
  int n = 1;
  for (; !passed && n < 1000; n++) {
    char text[400];
    snprintf(text, sizeof text,
             "net f\ninput a f32 (2)\nfresh%d = CreateScope()\nsubnet body closed\ninput x\n"
             "y = Mul(x, x)\nz = Neg(y)\nend\nb, fresh%d = Do(a, fresh%d) { net = body, "
             "inner_blobs = {x, z}, outer_blobs_idx = {0,1}, copy_external_blobs = true }\n",
             n, n, n);
    neap_net *net = net_of(text);
    neap_error said = {0};
    neap_memory_fail_nth_block(n);
    neap_status status = neap_net_check_types(net, &said);
    passed = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    CHECK(status == (passed ? NEAP_OK : NEAP_MEMORY));
    CHECK_OK(neap_net_check_types(net, &error));
    neap_net_free(net);
  }
  CHECK(passed && n > 5);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { N_THREAD = 4 };

/* A thread's own workspace, with scopes and nets; the result depends on nothing else. */
static void *live_alone(void *context) {
  double *result = context;
  neap_workspace *ws = NULL, *frame = NULL;
  neap_scope *scope = NULL;
  neap_net *net = NULL;
  neap_error error = {0};
  bool failed =
    neap_workspace_open(1, &ws, &error) != NEAP_OK ||
    neap_net_read(
      "net f\ninput x f32 (1)\nparam w f32 (1) = Constant { value = 2 }\ny = Mul(x, w)\n", &net,
      &error) != NEAP_OK ||
    neap_workspace_create_scope(ws, "s", &scope, &error) != NEAP_OK;

  /* Frames pile up by fours, so that there are some to clear and some to use again. */
  for (int i = 0; i < 40 && !failed; i++) {
    double y = 0;
    failed =
      put(ws, "a", (float)i, &error) != NEAP_OK ||
      neap_scope_push(scope, ws, 1, NAMES("x"), NAMES("a"), &frame, &error) != NEAP_OK ||
      neap_workspace_run_once(frame, net, &(neap_options){.threads = 1}, NULL, &error) != NEAP_OK ||
      neap_workspace_read(frame, "y", NEAP_DTYPE_F64, 1, &y, &error) != NEAP_OK;
    *result += y;
    if (i % 4 == 3) neap_scope_clear(scope);
  }
  if (failed) *result = NAN;
  neap_net_free(net);
  neap_workspace_release(ws);
  return NULL;
}

TEST(workspaces_in_several_threads_do_not_disturb_each_other) {
  double alone = 0, result[N_THREAD] = {0};
  live_alone(&alone);
  CHECK_EQ(alone, 2 * 780);
  pthread_t thread[N_THREAD];
  for (int i = 0; i < N_THREAD; i++)
    CHECK_EQ(pthread_create(&thread[i], NULL, live_alone, &result[i]), 0);
  for (int i = 0; i < N_THREAD; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < N_THREAD; i++) CHECK_EQ(result[i], alone);
}

int main(int argc, char **argv) {
  return RUN(
    argc, argv, T(a_child_sees_all_or_what_is_forwarded), T(strings_are_blobs_and_no_operands),
    T(frames_are_left_last_in_first_out_and_trimmed), T(a_do_runs_from_text),
    T(steps_repeat_and_stop), T(steps_run_nets_that_are_given_without_a_name),
    T(concurrent_steps_have_arenas_of_their_own_and_their_results_land),
    T(the_first_failure_stops_the_rest), T(every_refused_allocation_is_survived),
    T(scopes_survive_every_refused_allocation), T(a_first_push_that_is_refused_binds_nothing),
    T(types_of_a_do_survive_every_refused_name),
    T(workspaces_in_several_threads_do_not_disturb_each_other));
}
