/* test_api_chain.c: a chain of layers as C programs meet it: neap.h alone. Gradients against finite
 * differences, batches in one memory, entries dropped in any order, and what is refused. */
#include "check.h"

#include <stdlib.h>
#include <unistd.h>

/* A convolution net in f64, so that finite differences mean something. ROWS is the declared
 * batch. */
enum { ROWS = 4, MOST = 5, N_LAYER = 7, IMAGE = 2 * 5 * 5, CLASSES = 3 };
static const char *const layer_text[N_LAYER] = {
  "net conv1\ninput x f64 (4,2,5,5)\nparam conv1.w f64 (3,2,3,3) = Xavier\nparam conv1.b f64 (3) = "
  "Constant { value = 0.1 }\n"
  "y = Conv(x, conv1.w, conv1.b) { pad = {1} }\n",
  "net norm1\ninput x f64 (4,3,5,5)\nparam norm1.g f64 (3) = Constant { value = 1 }\nparam norm1.b "
  "f64 (3) = Constant\n"
  "state norm1.m f64 (3) = Constant\nstate norm1.v f64 (3) = Constant { value = 1 }\n"
  "y, mean, var = BatchNorm(x, norm1.g, norm1.b) { training = true }\n"
  "norm1.m = RunningAverage(norm1.m, mean)\nnorm1.v = RunningAverage(norm1.v, var)\noutputs y\n",
  "net tanh1\ninput x f64 (4,3,5,5)\ny = Tanh(x)\n",
  "net pool1\ninput x f64 (4,3,5,5)\ny = MaxPool(x) { kernel = {2}, stride = {1} }\n",
  "net drop1\ninput x f64 (4,3,4,4)\ny = Dropout(x) { rate = 0.4, training = true }\n",
  "net flat1\ninput x f64 (4,3,4,4)\ny = Flatten(x)\n",
  "net fc1\ninput x f64 (4,48)\nparam fc1.w f64 (3,48) = Xavier\nparam fc1.b f64 (3) = Constant\ny "
  "= FC(x, fc1.w, fc1.b)\n",
};

typedef struct setting {
  neap_workspace *ws;
  neap_net *net[N_LAYER];
  neap_chain *chain;
} setting;

static setting open_with(const neap_options *options) {
  setting s = {0};
  CHECK_OK(neap_workspace_open(3, &s.ws, &error));
  for (int i = 0; i < N_LAYER; i++) CHECK_OK(neap_net_read(layer_text[i], &s.net[i], &error));
  CHECK_OK(neap_chain_open(s.ws, N_LAYER, (const neap_net *const *)s.net, MOST, options, &s.chain,
                           &error));
  return s;
}

static void close_setting(setting *s) {
  neap_chain_free(s->chain);
  for (int i = 0; i < N_LAYER; i++) neap_net_free(s->net[i]);
  neap_workspace_release(s->ws);
}

/* The k-th of some numbers in (-1, 1). */
static double number(int k) { return fmod(0.61803398875 * (k + 1), 1.0) * 2 - 1; }

static void write_batch(const setting *s, int rows, int at) {
  double x[MOST * IMAGE], dy[MOST * CLASSES];
  for (int i = 0; i < rows * IMAGE; i++) x[i] = number(i + at);
  for (int i = 0; i < rows * CLASSES; i++) dy[i] = number(3 * i + at);
  CHECK_OK(
    neap_workspace_write(s->ws, "x", NEAP_DTYPE_F64, 4, (int64_t[]){rows, 2, 5, 5}, x, &error));
  CHECK_OK(neap_workspace_write(s->ws, "fc1/output_grad", NEAP_DTYPE_F64, 2,
                                (int64_t[]){rows, CLASSES}, dy, &error));
}

static neap_entry entry(const neap_chain *chain, neap_list list, int i) {
  neap_entry e = {0};
  CHECK_OK(neap_chain_entry(chain, list, i, &e, &error));
  return e;
}

static neap_entry param(const neap_chain *chain, const char *name) {
  neap_entry e = {0};
  CHECK_OK(neap_chain_param(chain, name, &e, &error));
  return e;
}

/* Bytes of tensors that the process holds: what any session says of its last run. */
static int64_t held_bytes(void) {
  neap_workspace *ws = NULL;
  neap_net *net = NULL;
  neap_session *session = NULL;
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  CHECK_OK(neap_net_read("net probe\nparam p f32 (1) = Constant\ny = Relu(p)\n", &net, &error));
  CHECK_OK(neap_session_open(ws, net, NULL, &session, &error));
  CHECK_OK(neap_session_run(session, &error));
  int64_t bytes = neap_session_figures(session).process_bytes;
  neap_session_free(session);
  neap_net_free(net);
  neap_workspace_release(ws);
  return bytes;
}

/* sum(y dy) after a training forward. */
static double loss_of(const setting *s, int rows, int at) {
  CHECK_OK(neap_chain_forward(s->chain, true, &error));
  const double *y = entry(s->chain, NEAP_LIST_OUTPUTS, N_LAYER - 1).data.data;
  double sum = 0;
  for (int i = 0; y != NULL && i < rows * CLASSES; i++) sum += y[i] * number(3 * i + at);
  return sum;
}

/* Central differences of the loss by element `i` of blob `name` of n elements. */
static double slope(const setting *s, const char *name, int n_dim, const int64_t *dim, int n, int i,
                    int rows, int at) {
  const double h = 1e-6;
  double *x = malloc((size_t)n * sizeof *x), side[2];
  CHECK_OK(neap_workspace_read(s->ws, name, NEAP_DTYPE_F64, n, x, &error));

  const double was = x[i];
  for (int k = 0; k < 2; k++) {
    x[i] = was + (k == 0 ? h : -h);
    CHECK_OK(neap_workspace_write(s->ws, name, NEAP_DTYPE_F64, n_dim, dim, x, &error));
    side[k] = loss_of(s, rows, at);
  }
  x[i] = was;
  CHECK_OK(neap_workspace_write(s->ws, name, NEAP_DTYPE_F64, n_dim, dim, x, &error));
  free(x);
  return (side[0] - side[1]) / (2 * h);
}

static void check_gradients(bool dag) {
  static const char *const name[] = {"conv1.w", "conv1.b", "norm1.g", "norm1.b", "fc1.w", "fc1.b"};
  neap_options options = {.executor = dag ? "dag" : NULL};
  setting s = open_with(&options);
  for (int round = 0; round < 2; round++) {
    int rows = round == 0 ? MOST : 2, at = 11 * round;
    write_batch(&s, rows, at);
    /* The same masks for the gradient and for its slopes: the counter moves with a backward
     * only. */
    loss_of(&s, rows, at);
    double want[6][4];
    neap_entry in = entry(s.chain, NEAP_LIST_INPUTS, 0);
    CHECK_EQ(in.data.dim[0], rows);
    for (int p = 0; p < 6; p++) {
      neap_entry e = param(s.chain, name[p]);
      int n = (int)(e.data.bytes / 8);
      for (int k = 0; k < 4; k++)
        want[p][k] = slope(&s, name[p], e.data.n_dim, e.data.dim, n, (k * 7) % n, rows, at);
    }

    double dx = slope(&s, "x", 4, (int64_t[]){rows, 2, 5, 5}, rows * IMAGE, 13, rows, at);

    /* Once more forward, since the slopes have left the chain with another input. */
    loss_of(&s, rows, at);
    CHECK_OK(neap_chain_backward(s.chain, &error));
    for (int p = 0; p < 6; p++) {
      neap_entry e = param(s.chain, name[p]);
      int n = (int)(e.data.bytes / 8);
      for (int k = 0; k < 4; k++)
        CHECK_NEAR(((const double *)e.diff.data)[(k * 7) % n], want[p][k], 2e-6);
    }
    CHECK_NEAR(((const double *)entry(s.chain, NEAP_LIST_INPUTS, 0).diff.data)[13], dx, 2e-6);
  }
  close_setting(&s);
}

TEST(gradients_of_parameters_and_input_are_those_of_finite_differences) {
  check_gradients(false);
  check_gradients(true);
}

TEST(lists_name_what_a_step_leaves_and_caches_hold_what_the_backward_reads) {
  /* label of what each layer's cache holds */
  static const char *const cached[][2] = {{"conv1", "x"},      {"norm1", "x"}, {"norm1", "mean"},
                                          {"norm1", "var"},    {"tanh1", "y"}, {"pool1", "x"},
                                          {"drop1", "y.mask"}, {"fc1", "x"}};
  setting s = open_with(NULL);
  CHECK_EQ(neap_chain_n(s.chain, NEAP_LIST_PARAMS), 6);
  CHECK_EQ(neap_chain_n(s.chain, NEAP_LIST_OUTPUTS), 0);
  CHECK(param(s.chain, "fc1.w").data.data != NULL);
  CHECK(param(s.chain, "fc1.w").diff.data == NULL);
  write_batch(&s, 3, 0);
  CHECK_OK(neap_chain_forward(s.chain, true, &error));
  CHECK_EQ(neap_chain_n(s.chain, NEAP_LIST_OUTPUTS), N_LAYER);
  CHECK_EQ(neap_chain_n(s.chain, NEAP_LIST_INPUTS), N_LAYER);
  CHECK_EQ(neap_chain_n(s.chain, NEAP_LIST_CACHES), 8);
  for (int k = 0; k < 8; k++) {
    neap_entry e = entry(s.chain, NEAP_LIST_CACHES, k);
    bool found = false;
    for (int c = 0; c < 8 && e.name != NULL; c++)
      found = found || (strcmp(e.layer, cached[c][0]) == 0 && strcmp(e.name, cached[c][1]) == 0);
    CHECK(found);
    /* a bit for each element */
    if (strcmp(e.layer, "drop1") == 0) CHECK_EQ(e.data.bytes, 3 * 48 / 8);
  }
  for (int i = 1; i < N_LAYER; i++) { /* one storage, seen from both sides */
    neap_entry in = entry(s.chain, NEAP_LIST_INPUTS, i),
               out = entry(s.chain, NEAP_LIST_OUTPUTS, i - 1);
    CHECK(in.data.data == out.data.data && strcmp(in.blob, out.blob) == 0);
    CHECK(in.diff.data == NULL);
    CHECK_EQ(in.data.dim[0], 3);
  }
  CHECK_OK(neap_chain_backward(s.chain, &error));
  CHECK_EQ(neap_chain_n(s.chain, NEAP_LIST_CACHES), 0);
  for (int i = 1; i < N_LAYER; i++) {
    neap_entry in = entry(s.chain, NEAP_LIST_INPUTS, i),
               out = entry(s.chain, NEAP_LIST_OUTPUTS, i - 1);
    CHECK(in.diff.data != NULL && in.diff.data == out.diff.data);
    CHECK_EQ(in.diff.bytes, in.data.bytes);
  }
  CHECK_FAILS(neap_chain_param(s.chain, "fc1.ww", &(neap_entry){0}, &error), NEAP_NAME, "fc1.ww");
  CHECK_FAILS(neap_chain_entry(s.chain, NEAP_LIST_OUTPUTS, N_LAYER, &(neap_entry){0}, &error),
              NEAP_ARGUMENT, "7 entries");
  close_setting(&s);
}

TEST(batches_up_to_the_largest_run_in_the_same_bytes_in_any_order) {
  static const int order[] = {2, 5, 1, 4, 3, 5, 1, 2};
  static double first[MOST + 1][MOST * CLASSES];
  setting s = open_with(NULL);
  int64_t held = 0;
  for (int round = 0; round < 2; round++)
    for (int k = 0; k < 8; k++) {
      int rows = order[k];
      write_batch(&s, rows, rows);
      /* no statistics, no masks: the same numbers every time */
      CHECK_OK(neap_chain_forward(s.chain, false, &error));
      const double *y = entry(s.chain, NEAP_LIST_OUTPUTS, N_LAYER - 1).data.data;
      if (round == 0 && k < 5)
        memcpy(first[rows], y, (size_t)rows * CLASSES * sizeof *y);
      else if (round == 0)
        CHECK(memcmp(first[rows], y, (size_t)rows * CLASSES * sizeof *y) == 0);
    }
  for (int round = 0; round < 3; round++)
    for (int k = 0; k < 8; k++) {
      write_batch(&s, order[k], k);
      CHECK_OK(neap_chain_forward(s.chain, true, &error));
      CHECK_OK(neap_chain_backward(s.chain, &error));
      if (round == 0 && k == 0) held = held_bytes();
      CHECK_EQ(held_bytes(), held);
    }
  write_batch(&s, 2, 0);
  double too_many[(MOST + 1) * IMAGE] = {0};
  CHECK_OK(neap_workspace_write(s.ws, "x", NEAP_DTYPE_F64, 4, (int64_t[]){MOST + 1, 2, 5, 5},
                                too_many, &error));
  CHECK_FAILS(neap_chain_forward(s.chain, true, &error), NEAP_SHAPE, "or fewer rows");

  /* a scalar has none */
  CHECK_OK(neap_workspace_write(s.ws, "x", NEAP_DTYPE_F64, 0, NULL, too_many, &error));
  CHECK_FAILS(neap_chain_forward(s.chain, true, &error), NEAP_SHAPE, "or fewer rows");
  close_setting(&s);
}

TEST(statistics_are_counted_once_and_evaluation_reads_them) {
  setting s = open_with(NULL);
  double before[3], after[3], again[3], mean = 0;
  write_batch(&s, 4, 5);
  CHECK_OK(neap_workspace_read(s.ws, "norm1.m", NEAP_DTYPE_F64, 3, before, &error));
  CHECK_OK(neap_chain_forward(s.chain, true, &error));
  const double *x = entry(s.chain, NEAP_LIST_INPUTS, 1).data.data; /* (4,3,5,5) */
  for (int n = 0; n < 4; n++)
    for (int k = 0; k < 25; k++) mean += x[(n * 3 + 1) * 25 + k] / 100;
  CHECK_OK(neap_workspace_read(s.ws, "norm1.m", NEAP_DTYPE_F64, 3, after, &error));
  CHECK_NEAR(after[1], 0.9 * before[1] + 0.1 * mean, 1e-12);
  CHECK_OK(neap_chain_backward(s.chain, &error));
  CHECK_OK(neap_workspace_read(s.ws, "norm1.m", NEAP_DTYPE_F64, 3, again, &error));
  CHECK(memcmp(after, again, sizeof after) == 0);
  CHECK_OK(neap_chain_forward(s.chain, false, &error));
  CHECK_OK(neap_workspace_read(s.ws, "norm1.m", NEAP_DTYPE_F64, 3, again, &error));
  CHECK(memcmp(after, again, sizeof after) == 0);
  CHECK_EQ(neap_chain_n(s.chain, NEAP_LIST_CACHES), 0);
  double v[3];
  CHECK_OK(neap_workspace_read(s.ws, "norm1.v", NEAP_DTYPE_F64, 3, v, &error));
  const double *in = entry(s.chain, NEAP_LIST_INPUTS, 1).data.data,
               *out = entry(s.chain, NEAP_LIST_OUTPUTS, 1).data.data;
  CHECK_NEAR(out[25], (in[25] - again[1]) / sqrt(v[1] + 1e-5), 1e-9);
  const double *kept = entry(s.chain, NEAP_LIST_INPUTS, 4).data.data,
               *same = entry(s.chain, NEAP_LIST_OUTPUTS, 4).data.data;
  CHECK(memcmp(kept, same, 4 * 48 * sizeof *kept) == 0); /* dropout lets all through */
  CHECK_FAILS(neap_chain_backward(s.chain, &error), NEAP_RELEASED, "did not train");
  close_setting(&s);
}

/* Drops all outputs and inputs of layers 1 .. in an order made of `seed`. */
static void drop_all(neap_chain *chain, unsigned seed) {
  int place[2 * N_LAYER], n = 2 * N_LAYER;
  for (int i = 0; i < n; i++) place[i] = i;
  for (int i = n - 1; i > 0; i--) {
    seed = seed * 1664525u + 1013904223u;
    int k = (int)(seed >> 8) % (i + 1), t = place[i];
    place[i] = place[k], place[k] = t;
  }

  /* An output and the next layer's input are two names of one storage. */
  for (int i = 0; i < n; i++) {
    neap_list list = place[i] < N_LAYER ? NEAP_LIST_OUTPUTS : NEAP_LIST_INPUTS;
    int at = place[i] % N_LAYER;
    int twin = list == NEAP_LIST_OUTPUTS ? at + 1 : at - 1;
    neap_list other = list == NEAP_LIST_OUTPUTS ? NEAP_LIST_INPUTS : NEAP_LIST_OUTPUTS;
    neap_entry before = {0}, after = {0};
    bool has_twin =
      twin >= 0 && twin < N_LAYER && neap_chain_entry(chain, other, twin, &before, NULL) == NEAP_OK;
    double value = has_twin ? ((const double *)before.data.data)[0] : 0;
    CHECK_OK(neap_chain_drop(chain, list, at, &error));
    CHECK_FAILS(neap_chain_drop(chain, list, at, &error), NEAP_RELEASED, "dropped already");
    CHECK_FAILS(neap_chain_entry(chain, list, at, &(neap_entry){0}, &error), NEAP_RELEASED,
                "dropped already");
    if (!has_twin) continue; /* the other side of the storage lives on */
    CHECK_OK(neap_chain_entry(chain, other, twin, &after, &error));
    CHECK(after.data.data == before.data.data && ((const double *)after.data.data)[0] == value);
  }
}

TEST(entries_drop_in_any_order_without_leak_or_double_free) {
  setting s = open_with(NULL);
  write_batch(&s, 5, 0);
  CHECK_OK(neap_chain_forward(s.chain, true, &error));
  CHECK_OK(neap_chain_backward(s.chain, &error));
  int64_t full = held_bytes();
  neap_chain_clear(s.chain);
  int64_t empty = held_bytes();
  CHECK(empty < full);
  CHECK_EQ(neap_chain_n(s.chain, NEAP_LIST_OUTPUTS), 0);
  for (unsigned seed = 1; seed <= 24; seed++) {
    write_batch(&s, 1 + (int)seed % MOST, (int)seed);
    CHECK_OK(neap_chain_forward(s.chain, true, &error));
    if (seed % 3 != 0) CHECK_OK(neap_chain_backward(s.chain, &error));
    drop_all(s.chain, seed);
    /* caches hold all that it reads */
    if (seed % 3 == 0) CHECK_OK(neap_chain_backward(s.chain, &error));
    neap_chain_clear(s.chain);
    CHECK_EQ(held_bytes(), empty);
  }
  close_setting(&s);
}

TEST(an_output_and_the_input_above_it_share_bytes_that_return_with_the_last_of_both) {
  for (int first = 0; first < 2; first++) {
    setting s = open_with(NULL);
    write_batch(&s, 5, 0);
    CHECK_OK(neap_chain_forward(s.chain, false, &error));
    int64_t held = held_bytes();
    neap_list order[] = {first == 0 ? NEAP_LIST_OUTPUTS : NEAP_LIST_INPUTS,
                         first == 0 ? NEAP_LIST_INPUTS : NEAP_LIST_OUTPUTS};
    CHECK_OK(neap_chain_drop(s.chain, order[0], order[0] == NEAP_LIST_OUTPUTS ? 2 : 3, &error));
    CHECK_EQ(held_bytes(), held);
    CHECK_OK(neap_chain_drop(s.chain, order[1], order[1] == NEAP_LIST_OUTPUTS ? 2 : 3, &error));
    CHECK(held_bytes() <= held - 5 * 3 * 25 * 8);
    CHECK_OK(neap_chain_forward(s.chain, false, &error)); /* made again */
    CHECK_EQ(held_bytes(), held);
    close_setting(&s);
  }
}

TEST(a_dropped_or_popped_cache_entry_stops_the_backward_and_nothing_else) {
  setting s = open_with(NULL);
  neap_entry e;
  write_batch(&s, 2, 0);
  CHECK_OK(neap_chain_forward(s.chain, true, &error));
  CHECK_OK(neap_chain_drop(s.chain, NEAP_LIST_CACHES, 1, &error));
  CHECK_FAILS(neap_chain_drop(s.chain, NEAP_LIST_CACHES, 1, &error), NEAP_RELEASED,
              "dropped already");
  CHECK_EQ(neap_chain_n(s.chain, NEAP_LIST_CACHES), 8);
  CHECK_FAILS(neap_chain_backward(s.chain, &error), NEAP_RELEASED, "was dropped");
  CHECK_OK(neap_chain_forward(s.chain, true, &error));
  CHECK_FAILS(neap_chain_pop(s.chain, 1, "x'", &e, &error), NEAP_NAME, "pop expects \"x'\"");
  CHECK_FAILS(neap_chain_pop(s.chain, N_LAYER, NULL, &e, &error), NEAP_ARGUMENT, "7 layers");
  CHECK_FAILS(neap_chain_pop(s.chain, 5, NULL, &e, &error), NEAP_RELEASED, "nothing is left");
  CHECK_OK(neap_chain_pop(s.chain, 6, "x", &e, &error));
  CHECK(e.data.data == entry(s.chain, NEAP_LIST_INPUTS, 6).data.data);
  CHECK_FAILS(neap_chain_backward(s.chain, &error), NEAP_RELEASED, "nothing is left");
  CHECK_OK(neap_chain_forward(s.chain, true, &error));
  CHECK_OK(neap_chain_backward(s.chain, &error));
  close_setting(&s);
}

TEST(backward_comes_once_after_a_training_forward_and_two_forwards_count_as_the_second) {
  setting s = open_with(NULL);
  double twice[9], once[9];
  CHECK_FAILS(neap_chain_backward(s.chain, &error), NEAP_RELEASED, "no forward pass");
  CHECK_FAILS(neap_chain_forward(s.chain, true, &error), NEAP_NAME,
              "\"x\" is not in the workspace");
  write_batch(&s, 3, 1);
  CHECK_OK(neap_chain_forward(s.chain, true, &error));
  write_batch(&s, 2, 2);
  CHECK_FAILS(neap_chain_backward(s.chain, &error), NEAP_SHAPE, "fc1/output_grad");
  CHECK_OK(neap_chain_forward(s.chain, true, &error));
  CHECK_OK(neap_chain_backward(s.chain, &error));
  memcpy(twice, param(s.chain, "fc1.w").diff.data, sizeof twice);
  CHECK_FAILS(neap_chain_backward(s.chain, &error), NEAP_RELEASED, "has had its backward");
  close_setting(&s);
  s = open_with(NULL);
  write_batch(&s, 2, 2);
  CHECK_OK(neap_chain_forward(s.chain, true, &error));
  CHECK_OK(neap_chain_backward(s.chain, &error));
  memcpy(once, param(s.chain, "fc1.w").diff.data, sizeof once);
  CHECK(memcmp(once, twice, sizeof once) == 0);
  close_setting(&s);
}

/* Opens a chain of these layers and gives what it says. */
static neap_status try_open(int n, const char *const *text, int64_t most, const char *policy,
                            neap_error *said) {
  neap_workspace *ws = NULL;
  neap_net *net[4] = {0};
  neap_chain *chain = NULL;
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  for (int i = 0; i < n; i++) CHECK_OK(neap_net_read(text[i], &net[i], &error));
  neap_status status = neap_chain_open(ws, n, (const neap_net *const *)net, most,
                                       &(neap_options){.policy = policy}, &chain, said);
  CHECK((status == NEAP_OK) == (chain != NULL));
  if (status == NEAP_OK && neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){1, 3},
                                                (float[3]){0}, said) == NEAP_OK)
    status = neap_chain_forward(chain, true, said);
  neap_chain_free(chain);
  for (int i = 0; i < n; i++) neap_net_free(net[i]);
  neap_workspace_release(ws);
  return status;
}

TEST(what_is_no_layer_is_refused_with_its_place_what_is_expected_and_what_it_got) {
  const char *fine = "net a\ninput x f32 (2,3)\ny = Relu(x)\n",
             *wide = "net b\ninput x f32 (2,4)\ny = Relu(x)\n",
             *whole = "net b\ninput x i64 (2,3)\ny = Relu(x)\n";
  CHECK_OK(try_open(1, (const char *[]){fine}, 2, NULL, &error));
  CHECK_FAILS(try_open(2, (const char *[]){fine, wide}, 2, NULL, &error), NEAP_SHAPE,
              "layer \"b\": input \"x\" expects f32 (2,4), and layer \"a\" below gives f32 (2,3)");
  CHECK_FAILS(try_open(2, (const char *[]){fine, whole}, 2, NULL, &error), NEAP_DTYPE,
              "expects i64 (2,3)");
  CHECK_FAILS(try_open(2, (const char *[]){fine, fine}, 2, NULL, &error), NEAP_NAME,
              "another layer has this name");
  CHECK_FAILS(
    try_open(1, (const char *[]){"net a\ninput x f32 (2,3)\ninput z f32 (2,3)\ny = Add(x, z)\n"}, 2,
             NULL, &error),
    NEAP_GRAPH, "layer \"a\": a layer has one input, got 2 (x, z)");
  CHECK_FAILS(try_open(1, (const char *[]){"net a\ninput x f32 (2,3)\ny = Relu(x)\nz = Tanh(x)\n"},
                       2, NULL, &error),
              NEAP_GRAPH, "one output, got 2");
  CHECK_FAILS(
    try_open(1, (const char *[]){"net a\ninput x f32 (2,3)\nx = Add(x, x) as twice\ny = Relu(x)\n"},
             2, NULL, &error),
    NEAP_GRAPH, "layer \"a\": Add \"twice\" writes the layer's input \"x\"");
  CHECK_FAILS(try_open(1, (const char *[]){"net a\nparam p f32 (2,3) = Xavier\ny = Relu(p)\n"}, 2,
                       NULL, &error),
              NEAP_GRAPH, "one input, got 0");
  CHECK_FAILS(try_open(1, (const char *[]){fine}, 0, NULL, &error), NEAP_ARGUMENT, "max_batch");
  CHECK_FAILS(try_open(0, NULL, 1, NULL, &error), NEAP_ARGUMENT, "at least one layer");
  CHECK_FAILS(try_open(1, (const char *[]){fine}, 1, "pool", &error), NEAP_ARGUMENT,
              "chain: its batches share planned addresses");
}

TEST(attached_parameters_are_in_the_list_under_their_own_names) {
  setting s = open_with(NULL);
  float mine[3] = {1, 2, 3};
  CHECK_OK(
    neap_chain_attach_param(s.chain, "scale", NEAP_DTYPE_F32, 1, (int64_t[]){3}, mine, &error));
  CHECK_EQ(neap_chain_n(s.chain, NEAP_LIST_PARAMS), 7);
  mine[1] = 7;
  CHECK(((const float *)param(s.chain, "scale").data.data)[1] == 7);
  CHECK(param(s.chain, "scale").diff.data == NULL);
  CHECK_FAILS(
    neap_chain_attach_param(s.chain, "scale", NEAP_DTYPE_F32, 1, (int64_t[]){3}, mine, &error),
    NEAP_NAME, "already");
  CHECK_FAILS(
    neap_chain_attach_param(s.chain, "fc1.w", NEAP_DTYPE_F32, 1, (int64_t[]){3}, mine, &error),
    NEAP_NAME, "already");
  CHECK_FAILS(
    neap_chain_attach_param(s.chain, "b", NEAP_DTYPE_NONE, 1, (int64_t[]){3}, mine, &error),
    NEAP_ARGUMENT, "dtype");
  CHECK_FAILS(neap_chain_drop(s.chain, NEAP_LIST_PARAMS, 0, &error), NEAP_ARGUMENT, "conv1.w");
  CHECK_OK(neap_chain_drop(s.chain, NEAP_LIST_PARAMS, 6, &error));
  CHECK_FAILS(neap_chain_drop(s.chain, NEAP_LIST_PARAMS, 6, &error), NEAP_RELEASED,
              "dropped already");
  for (int list = -1; list < 5; list += 5)
    CHECK_FAILS(neap_chain_drop(s.chain, (neap_list)list, 0, &error), NEAP_ARGUMENT, "no list");
  for (int i = 0; i < 20; i++) {
    char name[16];
    snprintf(name, sizeof name, "own%d", i);
    CHECK_OK(
      neap_chain_attach_param(s.chain, name, NEAP_DTYPE_F32, 1, (int64_t[]){3}, mine, &error));
    CHECK(((const float *)param(s.chain, name).data.data)[1] == 7);
  }
  close_setting(&s);
}

TEST(a_parameter_of_two_layers_is_stored_once_and_gets_the_sum_of_both_gradients) {
  static const char *const text[] = {
    "net a\ninput x f64 (2,3)\nparam w f64 (3,3) = Xavier\ny = FC(x, w)\n",
    "net b\ninput x f64 (2,3)\nparam w f64 (3,3) = Xavier\nh = Tanh(x)\ny = FC(h, w)\n"};
  neap_workspace *ws = NULL;
  neap_net *net[2] = {0}, *whole = NULL;
  neap_chain *chain = NULL;
  neap_session *session = NULL;
  double x[6], sum[9];
  for (int i = 0; i < 6; i++) x[i] = number(i);
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  for (int i = 0; i < 2; i++) CHECK_OK(neap_net_read(text[i], &net[i], &error));
  CHECK_OK(neap_chain_open(ws, 2, (const neap_net *const *)net, 2, NULL, &chain, &error));
  CHECK_EQ(neap_chain_n(chain, NEAP_LIST_PARAMS), 1);

  /* Twice: the second step must not add to the sum of the first. */
  for (int step = 0; step < 2; step++) {
    CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F64, 2, (int64_t[]){2, 3}, x, &error));
    CHECK_OK(neap_workspace_write(ws, "b/output_grad", NEAP_DTYPE_F64, 2, (int64_t[]){2, 3},
                                  (double[]){1, 1, 1, 1, 1, 1}, &error));
    CHECK_OK(neap_chain_forward(chain, true, &error));
    CHECK_OK(neap_chain_backward(chain, &error));
  }
  memcpy(sum, param(chain, "w").diff.data, sizeof sum);
  CHECK_OK(
    neap_net_read("net whole\ninput x f64 (2,3)\nparam w f64 (3,3)\na = FC(x, w)\nh = Tanh(a)\ny = "
                  "FC(h, w)\nl = Sum(y)\n",
                  &whole, &error));
  CHECK_OK(neap_net_add_gradient(whole, "l", 1, (const char *[]){"w"}, (const char *[]){"dw"}, NULL,
                                 &error));
  CHECK_OK(neap_session_open(ws, whole, NULL, &session, &error));
  CHECK_OK(neap_session_run(session, &error));

  double want[9];
  CHECK_OK(neap_workspace_read(ws, "dw", NEAP_DTYPE_F64, 9, want, &error));
  for (int i = 0; i < 9; i++) CHECK_NEAR(sum[i], want[i], 1e-12);
  neap_session_free(session);
  neap_net_free(whole);
  neap_chain_free(chain);
  for (int i = 0; i < 2; i++) neap_net_free(net[i]);
  neap_workspace_release(ws);
}

TEST(a_layer_with_a_loop_and_a_first_layer_of_integers_train) {
  static const char *const text[] = {
    "net words\ninput x i64 (2,3)\nparam table f64 (5,2) = Xavier\ne = Embedding(x, table)\ny = "
    "Flatten(e)\n",
    "net twice\ninput x f64 (2,6)\nparam limit f64 (1) frozen = Constant { value = 100 }\n"
    "param two f64 (1) frozen = Constant { value = 2 }\n"
    "subnet cond\n  input p\n  s = Sum(p)\n  q = Mul(s, s)\n  more = Lt(q, limit)\n  takes p, "
    "limit, two\n  gives more\nend\n"
    "subnet body\n  input p\n  q = Mul(p, two)\n  takes p, limit, two\n  gives q\nend\n"
    "y = While(x, limit, two) { cond_net = cond, body_net = body, n_state = 1, max = 3 }\n"};
  neap_workspace *ws = NULL;
  neap_net *net[2] = {0};
  neap_chain *chain = NULL;
  const int64_t word[6] = {0, 1, 2, 2, 2, 4};
  double dy[12];
  for (int i = 0; i < 12; i++) dy[i] = 1;
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  for (int i = 0; i < 2; i++) CHECK_OK(neap_net_read(text[i], &net[i], &error));
  CHECK_OK(neap_chain_open(ws, 2, (const neap_net *const *)net, 2, NULL, &chain, &error));
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_I64, 2, (int64_t[]){2, 3}, word, &error));
  CHECK_OK(neap_workspace_write(ws, "twice/output_grad", NEAP_DTYPE_F64, 2, (int64_t[]){2, 6}, dy,
                                &error));
  CHECK_OK(neap_chain_forward(chain, true, &error));
  CHECK_OK(neap_chain_backward(chain, &error));
  const double *d = param(chain, "table").diff.data;
  const double *in = entry(chain, NEAP_LIST_INPUTS, 1).data.data,
               *out = entry(chain, NEAP_LIST_OUTPUTS, 1).data.data;
  double scale = out[0] / in[0];
  CHECK_NEAR(scale, 8, 1e-12); /* three doublings */
  CHECK_NEAR(d[0], scale, 1e-12);
  CHECK_NEAR(d[4], 3 * scale, 1e-12); /* word 2 stands three times */
  CHECK_NEAR(d[6], 0, 0);
  CHECK(entry(chain, NEAP_LIST_INPUTS, 0).diff.data == NULL);
  neap_chain_free(chain);
  for (int i = 0; i < 2; i++) neap_net_free(net[i]);
  neap_workspace_release(ws);
}

TEST(a_chain_learns_with_an_update_net_beside_it) {
  static const char *const text[] = {
    "net fc1\ninput x f32 (4,2)\nparam fc1.w f32 (8,2) = Xavier\nparam fc1.b f32 (8) = Constant\nh "
    "= FC(x, fc1.w, fc1.b)\n"
    "y = Tanh(h)\nkeep h\n",
    "net fc2\ninput x f32 (4,8)\nparam fc2.w f32 (1,8) = Xavier\nparam fc2.b f32 (1) = Constant\ny "
    "= FC(x, fc2.w, fc2.b)\n"};
  static const char update_text[] =
    "net update\ninput lr f32 (1)\nparam fc1.w f32 (8,2)\nparam fc1.b f32 (8)\nparam fc2.w f32 "
    "(1,8)\nparam fc2.b f32 (1)\n"
    "input fc1.w_grad f32 (8,2)\ninput fc1.b_grad f32 (8)\ninput fc2.w_grad f32 (1,8)\ninput "
    "fc2.b_grad f32 (1)\n"
    "fc1.w = Sgd(fc1.w, fc1.w_grad, lr)\nfc1.b = Sgd(fc1.b, fc1.b_grad, lr)\n"
    "fc2.w = Sgd(fc2.w, fc2.w_grad, lr)\nfc2.b = Sgd(fc2.b, fc2.b_grad, lr)\n";
  const float x[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}}, want[4] = {0, 1, 1, 0}, lr = 0.3f;
  for (int dag = 0; dag < 2; dag++) {
    neap_workspace *ws = NULL;
    neap_net *net[2] = {0}, *update = NULL;
    neap_chain *chain = NULL;
    neap_session *session = NULL;
    neap_options options = {.executor = dag ? "dag" : NULL};
    float loss = 0, dy[4];
    CHECK_OK(neap_workspace_open(1, &ws, &error));
    for (int i = 0; i < 2; i++) CHECK_OK(neap_net_read(text[i], &net[i], &error));
    CHECK_OK(neap_net_read(update_text, &update, &error));
    CHECK_OK(neap_chain_open(ws, 2, (const neap_net *const *)net, 4, &options, &chain, &error));
    CHECK_OK(neap_workspace_write(ws, "lr", NEAP_DTYPE_F32, 1, (int64_t[]){1}, &lr, &error));

    /* Exclusive or: no layer alone can learn it. */
    for (int step = 0; step < 400; step++) {
      CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){4, 2}, x, &error));
      CHECK_OK(neap_chain_forward(chain, true, &error));
      neap_entry out = entry(chain, NEAP_LIST_OUTPUTS, 1);
      if (out.data.data == NULL) break;
      loss = 0;
      for (int i = 0; i < 4; i++) {
        float d = ((const float *)out.data.data)[i] - want[i];
        loss += d * d / 4;
        dy[i] = d / 2;
      }
      CHECK_OK(
        neap_workspace_write(ws, out.diff_blob, NEAP_DTYPE_F32, 2, (int64_t[]){4, 1}, dy, &error));
      CHECK_OK(neap_chain_backward(chain, &error));

      /* Opened once the gradients are there, which it has as inputs. */
      if (session == NULL) CHECK_OK(neap_session_open(ws, update, &options, &session, &error));
      CHECK_OK(neap_session_run(session, &error));
    }
    CHECK(loss < 0.01f);
    float h[32];
    /* a kept blob of the layer */
    CHECK_OK(neap_workspace_read(ws, "fc1/h", NEAP_DTYPE_F32, 32, h, &error));
    CHECK_NEAR(tanh(h[5]), ((const float *)entry(chain, NEAP_LIST_OUTPUTS, 0).data.data)[5], 1e-6);
    neap_session_free(session);
    neap_chain_free(chain);
    for (int i = 0; i < 2; i++) neap_net_free(net[i]);
    neap_net_free(update);
    neap_workspace_release(ws);
  }
}

TEST(masks_are_one_a_layer_and_step_and_the_backward_reads_those_of_its_forward) {
  static const char *const text[] = {
    "net a\ninput x f32 (3,40)\ny = Dropout(x) { rate = 0.5, training = true }\n",
    "net b\ninput x f32 (3,40)\ny = Dropout(x) { rate = 0.5, training = true }\n"};
  enum { N = 120 };
  float one[N], before[N] = {0};
  neap_workspace *ws = NULL;
  neap_net *net[2] = {0};
  neap_chain *chain = NULL;
  for (int i = 0; i < N; i++) one[i] = 1;
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  for (int i = 0; i < 2; i++) CHECK_OK(neap_net_read(text[i], &net[i], &error));
  CHECK_OK(neap_chain_open(ws, 2, (const neap_net *const *)net, 3, NULL, &chain, &error));
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){3, 40}, one, &error));
  CHECK_OK(
    neap_workspace_write(ws, "b/output_grad", NEAP_DTYPE_F32, 2, (int64_t[]){3, 40}, one, &error));
  for (int step = 0; step < 3; step++) {
    CHECK_OK(neap_chain_forward(chain, true, &error));
    float y[N];
    memcpy(y, entry(chain, NEAP_LIST_OUTPUTS, 1).data.data, sizeof y);
    const float *a = entry(chain, NEAP_LIST_OUTPUTS, 0).data.data;
    int n_lost = 0;
    for (int i = 0; i < N; i++) n_lost += a[i] != 0 && y[i] == 0;
    CHECK(n_lost > 0); /* the second layer drops others than the first */
    CHECK_OK(neap_chain_backward(chain, &error));
    CHECK(memcmp(y, entry(chain, NEAP_LIST_INPUTS, 0).diff.data, sizeof y) == 0);
    CHECK(memcmp(y, before, sizeof y) != 0);
    memcpy(before, y, sizeof y);
  }
  neap_chain_free(chain);
  for (int i = 0; i < 2; i++) neap_net_free(net[i]);
  neap_workspace_release(ws);
}

TEST(planned_steps_give_the_bits_of_unplanned_ones) {
  static const char *const policy[] = {"none", "name", "offset"};
  static double want[3 * 48 + 54 + 3], got[3 * 48 + 54 + 3];
  for (int k = 0; k < 6; k++) {
    setting s = open_with(&(neap_options){
      .policy = policy[k % 3], .executor = k >= 3 ? "dag" : NULL, .threads = 1, .engine = "ref"});
    for (int step = 0; step < 2; step++) {
      write_batch(&s, 5 - 2 * step, step);
      CHECK_OK(neap_chain_forward(s.chain, true, &error));
      CHECK_OK(neap_chain_backward(s.chain, &error));
    }
    memcpy(got, param(s.chain, "fc1.w").diff.data, 3 * 48 * 8);
    memcpy(got + 3 * 48, param(s.chain, "conv1.w").diff.data, 54 * 8);
    CHECK_OK(neap_workspace_read(s.ws, "norm1.v", NEAP_DTYPE_F64, 3, got + 3 * 48 + 54, &error));
    if (k == 0)
      memcpy(want, got, sizeof got);
    else
      CHECK(memcmp(want, got, sizeof got) == 0);
    close_setting(&s);
  }
}

/* The caller's options are his again once the chain is open. */
TEST(a_batch_may_have_nets_of_its_own) {
  static const char text[] =
    "net norm\ninput x f64 (%d,2)\nparam g f64 (2) = Constant { value = 1 }\nparam b f64 (2) = "
    "Constant\n"
    "state v f64 (2) = Constant\ny, mean, var = BatchNorm(x, g, b) { training = true }\n"
    "v = RunningAverage(v, var) { momentum = 1, factor = %.17g }\noutputs y\n";
  const double x[8] = {1, 5, 3, 5, 1, 5, 3, 5};
  neap_workspace *ws = NULL;
  neap_net *net[2] = {0};
  neap_chain *chain = NULL;
  double v[2];
  char engine[] = "ref";
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  for (int i = 0; i < 2; i++) {
    char line[512];
    snprintf(line, sizeof line, text, i == 0 ? 4 : 2, i == 0 ? 4.0 / 3 : 2.0);
    CHECK_OK(neap_net_read(line, &net[i], &error));
  }
  CHECK_OK(neap_chain_open(ws, 1, (const neap_net *const *)&net[0], 4,
                           &(neap_options){.engine = engine}, &chain, &error));
  memset(engine, 'x', 3);
  CHECK_OK(neap_chain_add_batch(chain, 2, (const neap_net *const *)&net[1], &error));
  CHECK_FAILS(neap_chain_add_batch(chain, 2, (const neap_net *const *)&net[1], &error),
              NEAP_ARGUMENT, "is there already");
  CHECK_FAILS(neap_chain_add_batch(chain, 5, (const neap_net *const *)&net[1], &error), NEAP_SHAPE,
              "1 to 4 rows");
  for (int rows = 4; rows >= 2; rows -= 2) {
    CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F64, 2, (int64_t[]){rows, 2}, x, &error));
    CHECK_OK(neap_chain_forward(chain, true, &error));
    CHECK_OK(neap_workspace_read(ws, "v", NEAP_DTYPE_F64, 2, v, &error));
    CHECK_NEAR(v[0], rows == 4 ? 4.0 / 3 : 2, 1e-6); /* a variance of 1, made unbiased */
  }
  neap_chain_free(chain);
  for (int i = 0; i < 2; i++) neap_net_free(net[i]);
  neap_workspace_release(ws);
}

TEST(bad_data_in_a_layer_ends_the_pass_and_names_it) {
  static const char text[] =
    "net words\ninput x i64 (2,3)\nparam table f32 (5,2) = Xavier\ne = Embedding(x, table)\ny = "
    "Flatten(e)\n";
  neap_workspace *ws = NULL;
  neap_net *net = NULL;
  neap_chain *chain = NULL;
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  CHECK_OK(neap_net_read(text, &net, &error));
  CHECK_OK(neap_chain_open(ws, 1, (const neap_net *const *)&net, 2, NULL, &chain, &error));
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_I64, 2, (int64_t[]){2, 3},
                                (int64_t[]){0, 1, 9, 0, 0, 0}, &error));
  CHECK_FAILS(neap_chain_forward(chain, true, &error), NEAP_DATA, "layer \"words\": ");
  CHECK_EQ(neap_chain_n(chain, NEAP_LIST_OUTPUTS), 0);
  CHECK_FAILS(neap_chain_backward(chain, &error), NEAP_RELEASED, "no forward pass");
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_I64, 2, (int64_t[]){1, 3}, (int64_t[]){0, 1, 4},
                                &error));
  CHECK_OK(neap_chain_forward(chain, true, &error));
  CHECK_EQ(entry(chain, NEAP_LIST_OUTPUTS, 0).data.dim[0], 1);
  neap_chain_free(chain);
  neap_net_free(net);
  neap_workspace_release(ws);
}

/* A pass forward and backward is a step of one run, whatever its programs; so is a look. */
TEST(a_chain_is_one_run_of_the_database) {
  static const char *const text[] = {
    "net a\ninput x f64 (2,3)\nparam w f64 (3,3) = Xavier\ny = FC(x, w)\n",
    "net b\ninput x f64 (2,3)\ny = Tanh(x)\n"};
  static char path[] = "/tmp/neap-api-chain-XXXXXX";
  const double x[6] = {1, 2, 3, 4, 5, 6};
  neap_db *db = NULL;
  neap_workspace *ws = NULL;
  neap_net *net[2];
  neap_chain *chain = NULL;
  neap_sql_rows *rows = NULL;
  CHECK(mkstemp(path) >= 0);
  CHECK_OK(neap_db_open(path, &db, &error));
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  for (int i = 0; i < 2; i++) CHECK_OK(neap_net_read(text[i], &net[i], &error));
  CHECK_OK(neap_chain_open(ws, 2, (const neap_net *const *)net, 2, &(neap_options){.db = db},
                           &chain, &error));
  for (int k = 0; k < 3; k++) {
    CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F64, 2, (int64_t[]){2, 3}, x, &error));
    CHECK_OK(
      neap_workspace_write(ws, "b/output_grad", NEAP_DTYPE_F64, 2, (int64_t[]){2, 3}, x, &error));
    CHECK_OK(neap_chain_forward(chain, k < 2, &error));
    if (k < 2) CHECK_OK(neap_chain_backward(chain, &error));
  }
  neap_chain_free(chain);
  CHECK_OK(neap_db_rows(db, "SELECT count(*), max(n_step), max(status = 'finished') FROM run", 0,
                        NULL, true, &rows, &error));
  static const int64_t want[] = {1, 3, 1};
  for (int i = 0; rows != NULL && i < 3; i++) CHECK_EQ(rows->value[i].integer, want[i]);
  neap_free(rows);
  for (int i = 0; i < 2; i++) neap_net_free(net[i]);
  neap_workspace_release(ws);
  neap_db_close(db);
  unlink(path);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(gradients_of_parameters_and_input_are_those_of_finite_differences),
             T(lists_name_what_a_step_leaves_and_caches_hold_what_the_backward_reads),
             T(batches_up_to_the_largest_run_in_the_same_bytes_in_any_order),
             T(statistics_are_counted_once_and_evaluation_reads_them),
             T(entries_drop_in_any_order_without_leak_or_double_free),
             T(an_output_and_the_input_above_it_share_bytes_that_return_with_the_last_of_both),
             T(a_dropped_or_popped_cache_entry_stops_the_backward_and_nothing_else),
             T(backward_comes_once_after_a_training_forward_and_two_forwards_count_as_the_second),
             T(what_is_no_layer_is_refused_with_its_place_what_is_expected_and_what_it_got),
             T(attached_parameters_are_in_the_list_under_their_own_names),
             T(a_parameter_of_two_layers_is_stored_once_and_gets_the_sum_of_both_gradients),
             T(a_layer_with_a_loop_and_a_first_layer_of_integers_train),
             T(a_chain_learns_with_an_update_net_beside_it),
             T(masks_are_one_a_layer_and_step_and_the_backward_reads_those_of_its_forward),
             T(planned_steps_give_the_bits_of_unplanned_ones), T(a_batch_may_have_nets_of_its_own),
             T(bad_data_in_a_layer_ends_the_pass_and_names_it),
             T(a_chain_is_one_run_of_the_database));
}
