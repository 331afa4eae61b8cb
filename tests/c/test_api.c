/* test_api.c: the public C API as its users meet it: this program includes neap.h and links with
 * libneap.so, no object of a room. The example at the head of the manual is taken from there,
 * compiled and run. */
#include "check.h"

#include <stdlib.h>
#include <unistd.h>

#define main example
#include "manual_example.c"
#undef main

enum { N = 4 };
static const char *const layer_text =
  "net layer\ninput x f32 (4,3)\nparam w f32 (2,3) = Constant { value = 0.5 }\n"
  "y = FC(x, w)\nz = Relu(y)\noutputs z\n";

static const float numbers[12] = {1, 2, 3, -1, -2, -3, 0, 0, 0, 1, 1, 1};

/* What `run` prints to stdout, and its result. */
static int capture(int (*run)(void), char *text, size_t room) {
  char path[] = "/tmp/neap_test_XXXXXX";
  int file = mkstemp(path), out = dup(1);
  fflush(stdout);
  dup2(file, 1);
  int result = run();
  fflush(stdout);
  dup2(out, 1);
  ssize_t n = pread(file, text, room - 1, 0);
  text[n > 0 ? n : 0] = '\0';
  close(file);
  close(out);
  unlink(path);
  return result;
}

TEST(the_example_of_the_manual_learns_and_explains) {
  static char said[4096];
  CHECK_EQ(capture(example, said, sizeof said), 0);
  double loss = 1;
  long long arena = 0, baseline = 0;
  CHECK_EQ(sscanf(said, "loss %lf, arena %lld bytes of %lld", &loss, &arena, &baseline), 3);
  CHECK(loss < 0.05);
  CHECK(arena > 0 && arena <= baseline);
  CHECK(strstr(said, "hidden") != NULL);
}

/* Runs a net of one input x (4,8) once under `policy` and gives its output y. */
static neap_status run_named(const neap_net *net, const char *policy, bool dag, float y[32],
                             neap_error *error) {
  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  float x[32];
  for (int i = 0; i < 32; i++) x[i] = (float)(i % 7) - 3;
  neap_status status = neap_workspace_open(1, &ws, error);
  if (status == NEAP_OK)
    status = neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){4, 8}, x, error);
  if (status == NEAP_OK)
    status = neap_session_open(
      ws, net, &(neap_options){.policy = policy, .executor = dag ? "dag" : NULL}, &session, error);
  if (status == NEAP_OK) status = neap_session_run(session, error);
  if (status == NEAP_OK) status = neap_workspace_read(ws, "y", NEAP_DTYPE_F32, 32, y, error);
  neap_session_free(session);
  neap_workspace_release(ws);
  return status;
}

TEST(recycled_names_save_bytes_and_keep_the_result) {
  static const char text[] =
    "net deep\ninput x f32 (4,8)\na = Relu(x)\nb = Tanh(a)\nc = Sigmoid(b)\nd = Tanh(c)\ne = "
    "Relu(d)\ny = Tanh(e)\noutputs y\n";
  neap_net *net = NULL, *planned = NULL, *again = NULL;
  neap_recycle_figures figures = {0}, second = {0};
  float plain[32], shared[32];
  char *once = NULL, *twice = NULL;
  CHECK_OK(neap_net_read(text, &net, &error));
  CHECK_OK(run_named(net, "none", false, plain, &error));
  for (int dag = 0; dag < 2; dag++) {
    CHECK_OK(neap_net_recycle(net, &(neap_recycle_options){.dag = dag, .prefix = "recycled/"},
                              &planned, &figures, &error));
    CHECK_EQ(figures.baseline_bytes, 5 * 128);
    CHECK_EQ(figures.planned_bytes, 2 * 128);
    CHECK_EQ(figures.lower_bound_bytes, 2 * 128);
    CHECK_EQ(figures.n_shared, 2);
    CHECK_OK(neap_net_text(planned, &once, &error));
    CHECK(strstr(once, "recycled/shared_1") != NULL);
    CHECK_OK(run_named(planned, "name", dag, shared, &error));
    CHECK_EQ(memcmp(plain, shared, sizeof plain), 0);
    CHECK_OK(neap_net_recycle(planned, &(neap_recycle_options){.dag = dag, .prefix = "recycled/"},
                              &again, &second, &error));
    CHECK_OK(neap_net_text(again, &twice, &error));
    CHECK_EQ(strcmp(once, twice), 0);
    CHECK_EQ(second.n_shared, 0);
    neap_free(once), neap_free(twice);
    neap_net_free(planned), neap_net_free(again);
  }
  neap_net_free(net);
}

TEST(a_forecast_is_what_a_run_holds) {
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  neap_figures forecast = {0};
  float z[8] = {0};
  char *why = NULL;
  CHECK_OK(neap_net_read(layer_text, &net, &error));
  CHECK_OK(neap_net_forecast(net, NULL, &forecast, &why, &error));
  CHECK(why != NULL && why[0] != '\0');
  CHECK(forecast.parameter_bytes >= 24 && forecast.lower_bound_bytes <= forecast.arena_bytes);
  CHECK_OK(neap_workspace_open(7, &ws, &error));
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){4, 3}, numbers, &error));
  CHECK_OK(neap_session_open(ws, net, NULL, &session, &error));
  for (int i = 0; i < N; i++) CHECK_OK(neap_session_run(session, &error));
  CHECK_OK(neap_workspace_read(ws, "z", NEAP_DTYPE_F32, 8, z, &error));
  const float expected[8] = {3, 3, 0, 0, 0, 0, 1.5f, 1.5f};
  for (int i = 0; i < 8; i++) CHECK_NEAR(z[i], expected[i], 1e-6);
  neap_figures figures = neap_session_figures(session);
  CHECK_EQ(figures.total_bytes, forecast.total_bytes);
  CHECK_EQ(figures.process_bytes, forecast.total_bytes);
  CHECK_EQ(figures.held_bytes, forecast.total_bytes);
  CHECK_EQ(figures.n_step, N);
  CHECK_EQ(figures.n_alloc, 0);
  neap_free(why);
  neap_session_free(session);
  neap_workspace_release(ws);
  neap_net_free(net);
}

TEST(wrong_use_says_what_where_expected_and_got) {
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  neap_figures figures;
  float one;
  char *text = NULL;
  CHECK_FAILS(neap_net_read("net a\ny = Relu(x)\n", &net, &error), NEAP_DATA, "line 2");
  CHECK_OK(neap_net_read(layer_text, &net, &error));
  CHECK_FAILS(neap_net_add_text(net, &error, "q = Reluu(z)"), NEAP_DATA, "Reluu");
  CHECK_FAILS(neap_net_forecast(net, &(neap_options){.policy = "best"}, &figures, NULL, &error),
              NEAP_ARGUMENT, "\"best\"");
  CHECK_FAILS(neap_net_forecast(net, &(neap_options){.engine = "gpu"}, &figures, NULL, &error),
              NEAP_ARGUMENT, "\"gpu\"");
  CHECK_OK(neap_workspace_open(7, &ws, &error));
  CHECK_OK(neap_session_open(ws, net, NULL, &session, &error));
  CHECK_FAILS(neap_session_run(session, &error), NEAP_NAME, "x"); /* never written */
  CHECK_FAILS(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 9, (int64_t[9]){0}, numbers, &error),
              NEAP_SHAPE, "got 9");
  CHECK_FAILS(neap_workspace_read(ws, "w", NEAP_DTYPE_F32, 5, &one, &error), NEAP_SHAPE,
              "(2,3) has 6 elements, asked for 5");
  CHECK_FAILS(neap_workspace_read(ws, "nothing", NEAP_DTYPE_F32, 1, &one, &error), NEAP_NAME,
              "nothing");
  CHECK_FAILS(neap_session_explain(session, "nothing", &text, &error), NEAP_NAME,
              "no blob \"nothing\"");
  neap_session_free(session);
  neap_workspace_release(ws);
  neap_net_free(net);
}

TEST(a_gradient_that_does_not_arrive_is_zeros_or_an_error_as_asked) {
  static const char text[] =
    "net still\ninput x f32 (2)\nparam w f32 (2) = Constant { value = 0.5 }\nf = Floor(w)\nz = "
    "Mul(x, f)\nloss = Sum(z)\n";
  const char *const wrt[] = {"w"};
  neap_figures figures;
  for (int allowed = 0; allowed < 2; allowed++) {
    neap_net *net = NULL;
    CHECK_OK(neap_net_read(text, &net, &error));
    CHECK_OK(neap_net_add_gradient_of(net, "loss", 1, wrt, NULL, allowed, NULL, &error));
    if (allowed)
      CHECK_OK(neap_net_forecast(net, NULL, &figures, NULL, &error));
    else
      CHECK_FAILS(neap_net_forecast(net, NULL, &figures, NULL, &error), NEAP_GRAPH,
                  "\"loss\" does not depend on \"w\"");
    neap_net_free(net);
  }
}

TEST(a_net_made_line_by_line_prints_what_reads_back) {
  neap_net *net = NULL, *again = NULL;
  char *text = NULL, *second = NULL;
  CHECK_OK(neap_net_new("lines", &net, &error));
  CHECK_OK(neap_net_add_text(net, &error, "input x f32 (%d,3)\n", 5));
  for (int i = 0; i < 3; i++)
    CHECK_OK(neap_net_add_text(net, &error, "x%d = Tanh(%s)", i,
                               i == 0   ? "x"
                               : i == 1 ? "x0"
                                        : "x1"));
  CHECK_OK(neap_net_text(net, &text, &error));
  CHECK(text != NULL && strstr(text, "x2 = Tanh(x1)") != NULL);
  CHECK_OK(neap_net_read(text, &again, &error));
  CHECK_OK(neap_net_text(again, &second, &error));
  CHECK(text != NULL && second != NULL && strcmp(text, second) == 0);
  neap_free(text);
  neap_free(second);
  neap_net_free(net);
  neap_net_free(again);
}

TEST(a_checkpoint_carries_the_parameters) {
  char path[] = "/tmp/neap_test_XXXXXX.safetensors";
  close(mkstemps(path, 12));
  neap_net *net = NULL;
  neap_workspace *a = NULL, *b = NULL;
  neap_session *first = NULL, *second = NULL;
  const float w[6] = {1, 2, 3, 4, 5, 6};
  float got[6] = {0};
  int n_dim = 0;
  int64_t dim[NEAP_MAX_DIM];
  neap_dtype dtype = NEAP_DTYPE_NONE;

  /* Seeds differ, so that equal numbers come from the file. */
  CHECK_OK(neap_net_read(layer_text, &net, &error));
  CHECK_OK(neap_workspace_open(1, &a, &error));
  CHECK_OK(neap_workspace_open(2, &b, &error));
  CHECK_OK(neap_session_open(a, net, NULL, &first, &error));
  CHECK_OK(neap_session_open(b, net, NULL, &second, &error));
  CHECK_OK(neap_workspace_write(a, "w", NEAP_DTYPE_F32, 2, (int64_t[]){2, 3}, w, &error));
  CHECK_OK(neap_workspace_save(a, path, 0, NULL, &error));
  CHECK_OK(neap_workspace_load(b, path, NEAP_IO_COPY, NULL, &error));
  CHECK_OK(neap_workspace_read(b, "w", NEAP_DTYPE_F32, 6, got, &error));
  CHECK(memcmp(w, got, sizeof w) == 0);
  CHECK_OK(neap_workspace_shape(b, "w", &dtype, &n_dim, dim, &error));
  CHECK(dtype == NEAP_DTYPE_F32 && n_dim == 2 && dim[0] == 2 && dim[1] == 3);
  CHECK_FAILS(neap_workspace_load(b, "/nowhere/at/all", NEAP_IO_COPY, NULL, &error), NEAP_IO,
              "/nowhere/at/all");

  /* the same file mapped: run from there, and not held */
  neap_workspace *c = NULL;
  neap_session *third = NULL;
  float from_copy[8] = {0}, from_map[8] = {1};
  int64_t mapped = neap_mapped_bytes();
  CHECK_OK(neap_workspace_open(3, &c, &error));
  CHECK_OK(neap_workspace_load(c, path, NEAP_IO_MAP_READ, NULL, &error));
  CHECK(neap_mapped_bytes() > mapped);
  CHECK_OK(neap_session_open(c, net, NULL, &third, &error));
  CHECK_OK(neap_workspace_write(a, "x", NEAP_DTYPE_F32, 2, (int64_t[]){4, 3}, numbers, &error));
  CHECK_OK(neap_workspace_write(c, "x", NEAP_DTYPE_F32, 2, (int64_t[]){4, 3}, numbers, &error));

  /* Bit for bit what the one with a copy gives. */
  CHECK_OK(neap_session_run(first, &error));
  CHECK_OK(neap_session_run(third, &error));
  CHECK_OK(neap_workspace_read(a, "z", NEAP_DTYPE_F32, 8, from_copy, &error));
  CHECK_OK(neap_workspace_read(c, "z", NEAP_DTYPE_F32, 8, from_map, &error));
  CHECK(memcmp(from_copy, from_map, sizeof from_map) == 0);
  CHECK_FAILS(neap_workspace_load(b, path, NEAP_IO_MAP_READ, NULL, &error), NEAP_ARGUMENT,
              "segment of the parameters");
  neap_session_free(third);
  neap_workspace_release(c);
  CHECK_EQ(neap_mapped_bytes(), mapped);
  neap_session_free(first);
  neap_session_free(second);
  neap_workspace_release(a);
  neap_workspace_release(b);
  neap_net_free(net);
  unlink(path);
}

/* The loop of the manual, with its gradient, bounded and not. */
TEST(a_loop_of_the_manual_runs_and_gives_its_frames_back) {
  static const char text[] =
    "net doubled\ninput x f32 (1)\nstate limit f32 () = Constant { value = 100 }\nstate two f32 () "
    "= Constant { value = 2 }\n"
    "subnet cond\n  input p\n  more = Lt(p, limit)\n  takes p, limit, two\n  gives more\nend\n"
    "subnet body\n  input p\n  q = Mul(p, two)\n  takes p, limit, two\n  gives q\nend\n";
  static const char *const max[] = {"", ", max = 20"};
  for (int k = 0; k < 2; k++) {
    neap_net *net = NULL;
    neap_workspace *ws = NULL;
    neap_session *session = NULL;
    float x = 3, y = 0, dx = 0;
    CHECK_OK(neap_net_read(text, &net, &error));
    CHECK_OK(neap_net_add_text(
      net, &error,
      "y = While(x, limit, two) { cond_net = cond, body_net = body, n_state = 1%s }\n"
      "z = Mul(y, y)\nloss = Sum(z)\nx_grad = Gradient(loss, x)\noutputs y, x_grad\n",
      max[k]));
    CHECK_OK(neap_workspace_open(1, &ws, &error));
    CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 1, (int64_t[]){1}, &x, &error));
    CHECK_OK(neap_session_open(ws, net, NULL, &session, &error));
    CHECK_OK(neap_session_run(session, &error));
    CHECK_OK(neap_workspace_read(ws, "y", NEAP_DTYPE_F32, 1, &y, &error));
    CHECK_OK(neap_workspace_read(ws, "x_grad", NEAP_DTYPE_F32, 1, &dx, &error));
    CHECK_NEAR(y, 192, 0);
    CHECK_NEAR(dx, 2.0 * 192 * 64, 0);
    neap_figures f = neap_session_figures(session);
    CHECK_EQ(f.frame_bytes > 0, neap_session_trim(session) > 0);
    CHECK_EQ(neap_session_trim(session), 0);
    neap_session_free(session);
    neap_workspace_release(ws);
    neap_net_free(net);
  }
}

TEST(a_dynamic_session_takes_any_shapes_and_lengths) {
  static const char *const text =
    "net rows\ninput x f32 (1,3)\ninput m bool (1)\nparam w f32 (2,3) = Constant { value = 0.5 }\n"
    "y = FC(x, w)\nz = Compress(y, m) { axis = 0 }\noutputs z\n";
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  CHECK_OK(neap_net_read(text, &net, &error));
  CHECK_OK(neap_workspace_open(1, &ws, &error));

  /* How long z is depends on the mask: there are no addresses to plan. */
  CHECK_FAILS(neap_session_open(ws, net, NULL, &session, &error), NEAP_GRAPH,
              "executor = \"dynamic\"");
  CHECK_FAILS(neap_session_open(ws, net, &(neap_options){.executor = "dynamic", .policy = "offset"},
                                &session, &error),
              NEAP_ARGUMENT, "pool");
  CHECK_OK(neap_session_open(ws, net, &(neap_options){.executor = "dynamic", .soft = 1 << 20},
                             &session, &error));
  neap_net_free(net); /* the session has its own */
  for (int64_t n = 1; n <= 4; n++) {
    const bool mask[4] = {true, n == 3, true, false};
    int64_t want = n >= 3 ? n == 3 ? 3 : 2 : 1, dim[NEAP_MAX_DIM] = {0};
    int n_dim = 0;
    neap_dtype dtype = NEAP_DTYPE_NONE;
    float got[8] = {0};
    CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){n, 3}, numbers, &error));
    CHECK_OK(neap_workspace_write(ws, "m", NEAP_DTYPE_BOOL, 1, &n, mask, &error));
    CHECK_OK(neap_session_run(session, &error));
    CHECK_OK(neap_workspace_shape(ws, "z", &dtype, &n_dim, dim, &error));
    CHECK(n_dim == 2 && dim[0] == want && dim[1] == 2);
    CHECK_OK(neap_workspace_read(ws, "z", NEAP_DTYPE_F32, 2 * want, got, &error));
    CHECK(got[0] == 3.0f);
  }

  /* One program for each shape, and one made anew where the length turned out to be another. */
  neap_pool_figures pool = neap_session_pool(session);
  neap_figures figures = neap_session_figures(session);
  CHECK(pool.reserved_bytes > 0 && pool.used_bytes == 0 && pool.high_bytes > 0 && pool.n_take > 0);
  CHECK(figures.n_made >= 5 && figures.n_restart >= 1 && figures.n_program <= figures.n_made);
  int64_t made = figures.n_made;
  CHECK_OK(neap_session_run(session, &error)); /* shapes and length known */
  CHECK_EQ(neap_session_figures(session).n_alloc, 0);
  CHECK_EQ(neap_session_figures(session).n_made, made);
  CHECK_FAILS(neap_workspace_read(ws, "y", NEAP_DTYPE_F32, 8, (float[8]){0}, &error), NEAP_RELEASED,
              "pool");
  neap_session_free(session);
  neap_workspace_release(ws);
}

/* Batches 1 to 4 of one net in one workspace, in both directions: one arena, one number of bytes,
 * the right rows. */
TEST(smaller_batches_run_in_the_memory_of_the_largest) {
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_range *range = NULL;
  neap_session *session[N + 1] = {NULL};
  static const int64_t order[] = {2, 4, 1, 3, 4, 1};
  CHECK_OK(neap_net_read(layer_text, &net, &error));
  CHECK_OK(neap_range_open(net, N, NULL, &range, &error));
  CHECK_OK(neap_workspace_open(7, &ws, &error));
  CHECK_FAILS(neap_range_session(range, ws, net, N + 1, NULL, &session[0], &error), NEAP_SHAPE,
              "largest batch");
  CHECK_FAILS(neap_range_session(range, ws, net, -1, NULL, &session[0], &error), NEAP_ARGUMENT,
              "-1 rows");

  neap_figures most = neap_range_figures(range);
  int64_t held = 0;
  for (int k = 0; k < (int)(sizeof order / sizeof *order); k++) {
    int64_t n = order[k];
    float z[2 * N] = {0};
    CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){n, 3}, numbers, &error));
    if (session[n] == NULL)
      CHECK_OK(neap_range_session(range, ws, net, n, NULL, &session[n], &error));
    CHECK_OK(neap_session_run(session[n], &error));
    CHECK_OK(neap_workspace_read(ws, "z", NEAP_DTYPE_F32, 2 * n, z, &error));
    /* half the sum of a row, at least 0 */
    CHECK(z[0] == 3.0f && (n < 4 || z[6] == 1.5f) && (n < 2 || z[2] == 0.0f));

    /* Bytes are those of the largest batch, from the first session on. */
    neap_figures f = neap_session_figures(session[n]);
    CHECK_EQ(f.arena_bytes, most.arena_bytes);
    CHECK_EQ(f.total_bytes, most.total_bytes);
    if (k == 0) held = f.held_bytes;
    CHECK_EQ(f.held_bytes, held);
  }
  neap_range_free(range); /* sessions outlive it */
  CHECK_OK(neap_session_run(session[1], &error));
  for (int n = 0; n <= N; n++) neap_session_free(session[n]);
  neap_workspace_release(ws);
  neap_net_free(net);
}

/* z of the layer for the numbers, through a session of ws. */
static neap_status run_layer(neap_workspace *ws, const neap_net *net, float z[8],
                             neap_error *error) {
  neap_session *session = NULL;
  neap_status status =
    neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){N, 3}, numbers, error);
  if (status == NEAP_OK) status = neap_session_open(ws, net, NULL, &session, error);
  if (status == NEAP_OK) status = neap_session_run(session, error);
  if (status == NEAP_OK) status = neap_workspace_read(ws, "z", NEAP_DTYPE_F32, 2 * N, z, error);
  neap_session_free(session);
  return status;
}

TEST(one_op_runs_on_named_blobs) {
  neap_workspace *ws = NULL;
  const float a[] = {1, -2, 3};
  float y[3] = {0};
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  CHECK_OK(neap_workspace_write(ws, "a", NEAP_DTYPE_F32, 1, (int64_t[]){3}, a, &error));
  CHECK_OK(neap_workspace_run_op(ws, "y = Relu(a)", &error));
  CHECK_OK(neap_workspace_run_op(ws, "y = Add(y, a)", &error));
  CHECK_OK(neap_workspace_read(ws, "y", NEAP_DTYPE_F32, 3, y, &error));
  CHECK(y[0] == 2 && y[1] == -2 && y[2] == 6);
  CHECK_OK(neap_workspace_run_op(ws, "s = Sum(y) { axes = {0}, keepdim = true }", &error));
  CHECK_OK(neap_workspace_read(ws, "s", NEAP_DTYPE_F32, 1, y, &error));
  CHECK(y[0] == 6);
  CHECK_FAILS(neap_workspace_run_op(ws, "z = Relu(aa)", &error), NEAP_DATA,
              "\"aa\" is not defined");
  CHECK_FAILS(neap_workspace_run_op(ws, "input q f32 (3)", &error), NEAP_ARGUMENT,
              "expects the line of one op");
  CHECK_FAILS(neap_workspace_run_op(ws, "p = Relu(a)\nq = Relu(p)", &error), NEAP_ARGUMENT,
              "expects the line of one op");
  CHECK_FAILS(neap_workspace_run_op(ws, "z = Relu(a) { slope = 2 }", &error), NEAP_DATA, "slope");
  CHECK(!neap_workspace_has(ws, "z") && !neap_workspace_has(ws, "q"));
  neap_workspace_release(ws);
}

TEST(a_model_travels_as_one_file) {
  static const neap_io_map maps[] = {NEAP_IO_COPY, NEAP_IO_MAP_READ, NEAP_IO_MAP_WRITE};
  const float weights[6] = {1, -2, 3, 4, 5, -6};
  char folder[] = "/tmp/neap_test_XXXXXX", path[64], bare[64];
  CHECK(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/layer.safetensors", folder);
  snprintf(bare, sizeof bare, "%s/bare.safetensors", folder);
  neap_net *net = NULL, *read = NULL;
  neap_workspace *ws = NULL;
  float z[2 * N], again[2 * N];
  CHECK_OK(neap_net_read(layer_text, &net, &error));
  CHECK_OK(neap_workspace_open(1, &ws, &error));

  /* its parameter is not there yet */
  CHECK_FAILS(neap_workspace_export(ws, net, path, &error), NEAP_NAME, "w");
  CHECK(access(path, F_OK) != 0);
  CHECK_OK(neap_workspace_write(ws, "w", NEAP_DTYPE_F32, 2, (int64_t[]){2, 3}, weights, &error));
  CHECK_OK(run_layer(ws, net, z, &error));
  CHECK_OK(neap_workspace_export(ws, net, path, &error));
  CHECK_OK(neap_workspace_save(ws, bare, 0, NULL, &error));
  neap_workspace_release(ws);

  /* Read back in each way that a file can be, into a workspace that knows nothing of it. */
  for (int m = 0; m < 3; m++) {
    CHECK_OK(neap_workspace_open(2, &ws, &error));
    CHECK_OK(neap_workspace_import(ws, path, maps[m], &read, &error));
    CHECK(strcmp(neap_net_name(read), "layer") == 0);
    CHECK_OK(run_layer(ws, read, again, &error));
    CHECK(memcmp(z, again, sizeof z) == 0);
    neap_net_free(read);
    neap_workspace_release(ws);
  }

  /* A file of parameters alone has no net, and leaves none of them. */
  CHECK_OK(neap_workspace_open(3, &ws, &error));
  CHECK_FAILS(neap_workspace_import(ws, bare, NEAP_IO_COPY, &read, &error), NEAP_DATA,
              "has no net in its metadata");
  CHECK(read == NULL && !neap_workspace_has(ws, "w"));
  CHECK_FAILS(neap_workspace_import(ws, "/nowhere/at.safetensors", NEAP_IO_COPY, &read, &error),
              NEAP_IO, "/nowhere/at.safetensors");
  neap_workspace_release(ws);
  neap_net_free(net);
  unlink(path);
  unlink(bare);
  rmdir(folder);
}

TEST(names_are_forwarded_renamed_and_removed_by_rules) {
  neap_workspace *parent = NULL, *child = NULL;
  const float one = 1, two = 2;
  float got = 0;
  CHECK_OK(neap_workspace_open(1, &parent, &error));
  CHECK_OK(neap_workspace_write(parent, "a", NEAP_DTYPE_F32, 0, NULL, &one, &error));
  CHECK_OK(neap_workspace_write(parent, "b", NEAP_DTYPE_F32, 0, NULL, &two, &error));
  CHECK_OK(neap_workspace_open_child(parent, 0, NULL, NULL, &child, &error));
  CHECK_OK(neap_workspace_forward(child, "other", "b", false, &error));
  CHECK_OK(neap_workspace_forward(child, "other", "b", false, &error));
  CHECK_FAILS(neap_workspace_forward(child, "other", "a", false, &error), NEAP_NAME, "other");
  CHECK_OK(neap_workspace_read(child, "other", NEAP_DTYPE_F32, 1, &got, &error));
  CHECK(got == 2);
  CHECK_OK(neap_workspace_create(child, "a", true, &error));
  CHECK_OK(neap_workspace_write(child, "a", NEAP_DTYPE_F32, 0, NULL, &two, &error));
  CHECK_FAILS(neap_workspace_forward(child, "a", "b", false, &error), NEAP_NAME, "a");
  CHECK_OK(neap_workspace_forward(child, "a", "b", true, &error)); /* the own one stays */
  CHECK_FAILS(neap_workspace_rename(child, "a", "b", &error), NEAP_NAME, "b");
  CHECK_FAILS(neap_workspace_rename(child, "b", "c", &error), NEAP_NAME, "b");
  CHECK_OK(neap_workspace_rename(child, "a", "mine", &error));
  CHECK(neap_workspace_has(child, "mine") && !neap_workspace_has(parent, "mine") &&
        neap_workspace_has(child, "a"));
  CHECK(neap_workspace_remove(child, "mine") && !neap_workspace_remove(child, "mine") &&
        !neap_workspace_remove(child, "b"));
  CHECK(!neap_workspace_has(child, "mine") && neap_workspace_has(parent, "b"));
  neap_workspace_release(child);
  neap_workspace_release(parent);
}

TEST(rewrites_are_listed) {
  neap_net *net = NULL;
  char *list = NULL;
  CHECK_OK(neap_net_read(layer_text, &net, &error));
  CHECK_OK(neap_net_rewrites(net, NULL, &list, &error));
  CHECK(list != NULL && strstr(list, "Relu") != NULL && strstr(list, " into ") != NULL &&
        list[strlen(list) - 1] == '\n');
  neap_free(list);
  CHECK_OK(neap_net_rewrites(net, &(neap_options){.fuse = "false"}, &list, &error));
  CHECK(list != NULL && list[0] == '\0');
  neap_free(list);
  neap_net_free(net);
}

TEST(a_budget_is_met_by_recomputing_to_the_same_bits) {
  neap_net *net = NULL;
  neap_figures whole, half;
  float loss[2] = {0}, w[2][64], x[256];
  for (int i = 0; i < 256; i++) x[i] = (float)(i % 11) / 11 - 0.5f;

  /* A dozen layers: as many outputs that the backward reads, of which few fit into half. */
  CHECK_OK(neap_net_read(
    "net deep\ninput h0 f32 (32,8)\nstate lr f32 () = Constant { value = 0.1 }\n", &net, &error));
  for (int i = 0; i < 12; i++)
    CHECK_OK(neap_net_add_text(net, &error,
                               "param w%d f32 (8,8) = Xavier\ns%d = FC(h%d, w%d)\nh%d = Tanh(s%d)",
                               i, i, i, i, i + 1, i));
  CHECK_OK(neap_net_add_text(net, &error, "sq = Mul(h12, h12)\nloss = Mean(sq)"));
  CHECK_OK(neap_net_add_gradient(net, "loss", 0, NULL, NULL, NULL, &error));
  for (int i = 0; i < 12; i++)
    CHECK_OK(neap_net_add_text(net, &error, "w%d = Sgd(w%d, w%d_grad, lr)", i, i, i));
  CHECK_OK(neap_net_add_text(net, &error, "outputs loss"));
  CHECK_OK(neap_net_forecast(net, NULL, &whole, NULL, &error));

  /* Without a limit, and within half of what that takes. */
  for (int k = 0; k < 2; k++) {
    neap_workspace *ws = NULL;
    neap_session *session = NULL;
    neap_options options = {.budget = k == 1 ? whole.arena_bytes / 2 : 0};
    CHECK_OK(neap_workspace_open(1, &ws, &error));
    CHECK_OK(neap_workspace_write(ws, "h0", NEAP_DTYPE_F32, 2, (int64_t[]){32, 8}, x, &error));
    CHECK_OK(neap_session_open(ws, net, &options, &session, &error));
    for (int step = 0; step < 3; step++) CHECK_OK(neap_session_run(session, &error));
    CHECK_OK(neap_workspace_read(ws, "loss", NEAP_DTYPE_F32, 1, &loss[k], &error));
    CHECK_OK(neap_workspace_read(ws, "w0", NEAP_DTYPE_F32, 64, w[k], &error));
    half = neap_session_figures(session);
    neap_session_free(session);
    neap_workspace_release(ws);
  }
  CHECK(whole.n_recomputed == 0 && half.n_recomputed > 0 && half.recomputed_work > 0);
  CHECK(half.arena_bytes <= whole.arena_bytes / 2 && half.n_alloc == 0);
  CHECK(loss[0] == loss[1] && memcmp(w[0], w[1], sizeof w[0]) == 0);
  CHECK_FAILS(
    neap_net_forecast(net, &(neap_options){.budget = whole.arena_bytes / 2, .recompute = NEAP_OFF},
                      &half, NULL, &error),
    NEAP_BUDGET, "least arena");
  neap_net_free(net);
}

/* A program that knows no option by name: from text, by the records, as JSON. */
TEST(options_are_set_by_name_and_read_back) {
  neap_options options = {0};
  const neap_option *option;
  char *json = NULL;
  int n = 0, n_set = 0;
  for (; (option = neap_option_at(n)) != NULL; n++) {
    const char *text[] = {[NEAP_OPTION_BYTES] = "3KiB",
                          [NEAP_OPTION_COUNT] = "7",
                          [NEAP_OPTION_SWITCH] = "false",
                          [NEAP_OPTION_TEXT] = "a \"label\""};
    char word[16] = "";
    if (option->type == NEAP_OPTION_CHOICE) sscanf(option->range, "%15s", word);
    CHECK(option->doc[0] != '\0' && option->fallback[0] != '\0' && option->faces != 0);
    if (option->type >= NEAP_OPTION_NAMES) continue;
    CHECK_OK(neap_options_set(&options, option->name, word[0] != '\0' ? word : text[option->type],
                              &error));
    n_set++;
  }
  CHECK(neap_option_at(-1) == NULL && n > n_set && n_set > 15);
  CHECK(options.budget == 3072 && options.threads == 7 && options.recompute == NEAP_OFF &&
        strcmp(options.policy, "none") == 0);
  CHECK_OK(neap_options_json(&options, &json, &error));
  for (int i = 0; (option = neap_option_at(i)) != NULL; i++) {
    char key[40];
    snprintf(key, sizeof key, "\"%s\":", option->name);
    CHECK_EQ(strstr(json, key) != NULL, option->type < NEAP_OPTION_NAMES);
  }
  CHECK(strstr(json, "\"budget\":3072,") != NULL &&
        strstr(json, "\"tag\":\"a \\\"label\\\"\"") != NULL);
  neap_free(json);

  /* What is refused leaves all as it was. */
  neap_options before = options;
  CHECK_FAILS(neap_options_set(&options, "recompte", "false", &error), NEAP_ATTRIBUTE,
              "no option \"recompte\"");
  CHECK_FAILS(neap_options_set(&options, "recompute", "no", &error), NEAP_ARGUMENT,
              "expects true or false, got \"no\"");
  CHECK_FAILS(neap_options_set(&options, "policy", "best", &error), NEAP_ARGUMENT,
              "none, name, offset or pool, got \"best\"");
  CHECK_FAILS(neap_options_set(&options, "budget", "60%", &error), NEAP_ARGUMENT, "expects bytes");
  CHECK_FAILS(neap_options_set(&options, "threads", "5000", &error), NEAP_ARGUMENT, "1 to 4096");
  CHECK_FAILS(neap_options_set(&options, "keep", "h", &error), NEAP_ARGUMENT, "set the field");
  CHECK(memcmp(&before, &options, sizeof before) == 0);

  /* What this face has no use for is refused, not dropped. */
  neap_net *net = NULL;
  neap_figures figures;
  CHECK_OK(neap_net_read("net n\ninput x f32 (2,3)\ny = Relu(x)\n", &net, &error));
  CHECK_FAILS(neap_net_forecast(net, &(neap_options){.max_batch = 4}, &figures, NULL, &error),
              NEAP_ARGUMENT, "\"max_batch\"");
  CHECK_FAILS(neap_net_forecast(net, &(neap_options){.accumulate = "mean"}, &figures, NULL, &error),
              NEAP_ARGUMENT, "accumulate");
  CHECK_FAILS(
    neap_net_forecast(net, &(neap_options){.exact = (neap_switch)9}, &figures, NULL, &error),
    NEAP_ARGUMENT, "NEAP_OFF");
  neap_net_free(net);
}

int main(int argc, char **argv) {
  return RUN(
    argc, argv, T(the_example_of_the_manual_learns_and_explains), T(a_forecast_is_what_a_run_holds),
    T(recycled_names_save_bytes_and_keep_the_result), T(wrong_use_says_what_where_expected_and_got),
    T(a_gradient_that_does_not_arrive_is_zeros_or_an_error_as_asked),
    T(a_net_made_line_by_line_prints_what_reads_back), T(a_checkpoint_carries_the_parameters),
    T(a_dynamic_session_takes_any_shapes_and_lengths),
    T(smaller_batches_run_in_the_memory_of_the_largest),
    T(a_loop_of_the_manual_runs_and_gives_its_frames_back), T(a_model_travels_as_one_file),
    T(one_op_runs_on_named_blobs), T(names_are_forwarded_renamed_and_removed_by_rules),
    T(rewrites_are_listed), T(a_budget_is_met_by_recomputing_to_the_same_bits),
    T(options_are_set_by_name_and_read_back));
}
