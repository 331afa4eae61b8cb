/* test_chain.c: chains of layers when memory is refused, and the stack of tensors that their caches
 * are. */
#include "check.h"

#include "driver/driver.h"

/* ---- the stack ------------------------------------------------------------------------------- */

static neap_tensor tensor_of(neap_dtype dtype, int64_t n) {
  neap_tensor t = {0};
  neap_shape shape = NEAP_SHAPE(n);
  CHECK_OK(neap_tensor_new(&t, dtype, &shape, &error));
  return t;
}

TEST(a_cache_is_a_stack_that_grows_and_a_failed_pop_takes_nothing) {
  neap_cache cache = {.name = "fc1"};
  neap_tensor a = tensor_of(NEAP_DTYPE_F32, 2), b = tensor_of(NEAP_DTYPE_I64, 3), out = {0};
  neap_shape two = NEAP_SHAPE(2), three = NEAP_SHAPE(3);
  for (int k = 0; k < 50; k++)
    CHECK_OK(neap_cache_push(&cache, k % 2 == 0 ? &a : &b, k % 2 == 0 ? "a" : NULL, &error));
  CHECK_EQ(cache.n, 50);
  CHECK_EQ(neap_storage_n_ref(a.storage), 26);
  CHECK_FAILS(neap_cache_pop(&cache, &(neap_cache_want){.label = "a"}, &out, &error), NEAP_NAME,
              "on top is \"nothing by name\"");
  CHECK_FAILS(neap_cache_pop(&cache, &(neap_cache_want){.dtype = NEAP_DTYPE_F32}, &out, &error),
              NEAP_DTYPE, "on top is i64");
  CHECK_FAILS(neap_cache_pop(&cache, &(neap_cache_want){.shape = &two}, &out, &error), NEAP_SHAPE,
              "expects (2), on top is (3)");
  CHECK_EQ(cache.n, 50);
  CHECK_OK(neap_cache_pop(&cache, &(neap_cache_want){.shape = &three, .dtype = NEAP_DTYPE_I64},
                          &out, &error));
  CHECK(out.storage == b.storage);
  neap_tensor_fini(&out);
  CHECK_OK(neap_cache_drop(&cache, 48, &error));
  CHECK_FAILS(neap_cache_drop(&cache, 48, &error), NEAP_RELEASED, "\"a\" was dropped already");
  CHECK_FAILS(neap_cache_drop(&cache, 49, &error), NEAP_ARGUMENT, "has 49 tensors");
  CHECK_FAILS(neap_cache_pop(&cache, NULL, &out, &error), NEAP_RELEASED, "was dropped");
  CHECK_OK(neap_cache_check(&cache, 1, &(neap_cache_want){.dtype = NEAP_DTYPE_I64}, &error));
  neap_cache_clear(&cache);
  CHECK_FAILS(neap_cache_pop(&cache, NULL, &out, &error), NEAP_RELEASED, "nothing is left");
  CHECK_EQ(neap_storage_n_ref(a.storage), 1);
  neap_memory_fail_nth(1, true);
  cache.cap = 0, neap_free(cache.item), cache.item = NULL;
  CHECK(neap_cache_push(&cache, &a, "a", NULL) == NEAP_MEMORY);
  neap_memory_fail_nth(0, false);
  CHECK_EQ(cache.n, 0);
  CHECK_EQ(neap_storage_n_ref(a.storage), 1);
  neap_cache_fini(&cache);
  neap_tensor_fini(&a);
  neap_tensor_fini(&b);
}

/* ---- refused memory -------------------------------------------------------------------------- */

static const char *const layer_text[] = {
  "net one\ninput x f32 (2,4)\nparam w f32 (4,4) = Xavier\nstate m f32 (4) = Constant\nh = FC(x, "
  "w)\n"
  "param g f32 (4) = Constant { value = 1 }\nparam b f32 (4) = Constant\n"
  "y, mean, var = BatchNorm(h, g, b) { training = true }\nm = RunningAverage(m, mean)\nstate v f32 "
  "(4) = Constant\n"
  "v = RunningAverage(v, var)\noutputs y\n",
  "net two\ninput x f32 (2,4)\ny = Dropout(x) { rate = 0.5, training = true }\n",
  "net three\ninput x f32 (2,4)\nparam w f32 (4,4) = Xavier\nt = Tanh(x)\ny = FC(t, w)\n"};
enum { N_LAYER = 3 };

static neap_status feed(neap_workspace *ws, const char *name, neap_error *error) {
  neap_tensor t = {0};
  neap_shape shape = NEAP_SHAPE(2, 4);
  NEAP_TRY(neap_tensor_new(&t, NEAP_DTYPE_F32, &shape, error));
  for (int i = 0; i < 8; i++) neap_element_set(t.dtype, neap_tensor_data(&t), i, i - 3);
  neap_status status = neap_workspace_feed(ws, name, &t, false, error);
  neap_tensor_fini(&t);
  return status;
}

/* Everything that a chain does, once. */
static neap_status live(const neap_net *const *net, neap_chain **out, neap_workspace **ws,
                        neap_error *error) {
  neap_chain_item item = {0};
  neap_compile_options options = {.plan.policy = NEAP_POLICY_OFFSET};
  NEAP_TRY(neap_workspace_new(&(neap_workspace_options){.seed = 1}, ws, error));
  NEAP_TRY(neap_chain_new(*ws, N_LAYER, net, 3, &options, out, error));
  NEAP_TRY(feed(*ws, "x", error));
  NEAP_TRY(feed(*ws, "three/output_grad", error));
  NEAP_TRY(neap_chain_forward(*out, false, error));
  NEAP_TRY(neap_chain_forward(*out, true, error));
  NEAP_TRY(neap_chain_backward(*out, error));
  NEAP_TRY(neap_chain_item_at(*out, NEAP_LIST_OUTPUTS, 1, &item, error));
  neap_chain_item_fini(&item);
  NEAP_TRY(neap_chain_drop(*out, NEAP_LIST_OUTPUTS, 0, error));
  NEAP_TRY(neap_chain_drop(*out, NEAP_LIST_INPUTS, 1, error));
  NEAP_TRY(neap_chain_forward(*out, true, error));
  neap_chain_clear(*out);
  return NEAP_OK;
}

/* The same calls once more on what a refusal left: they go well, and give what they give without
 * one. */
static void check_usable(neap_chain *chain, neap_workspace *ws) {
  CHECK_OK(feed(ws, "x", &error));
  CHECK_OK(feed(ws, "three/output_grad", &error));
  CHECK_OK(neap_chain_forward(chain, true, &error));
  CHECK_OK(neap_chain_backward(chain, &error));
  CHECK_EQ(neap_chain_n(chain, NEAP_LIST_CACHES), 0);
}

static int64_t held(void) {
  neap_memory_stats m = neap_memory_read();
  return m.held_bytes[NEAP_DATA_BYTES];
}

TEST(a_refused_allocation_fails_the_call_and_leaves_a_chain_that_works) {
  neap_net *net[N_LAYER] = {0};
  for (int i = 0; i < N_LAYER; i++) CHECK_OK(neap_net_read(layer_text[i], &net[i], &error));
  int64_t before = held();
  bool passed = false;
  for (int n = 1; n < 100000 && !passed; n += 1 + n / 100) {
    neap_chain *chain = NULL;
    neap_workspace *ws = NULL;
    neap_error said = {0};
    neap_memory_fail_nth_block(n);
    neap_status status = live((const neap_net *const *)net, &chain, &ws, &said);
    neap_memory_fail_nth(0, false);
    CHECK(status == NEAP_OK || (status == NEAP_MEMORY && said.message[0] != '\0'));
    if (status != NEAP_OK && status != NEAP_MEMORY) printf("  %d: %s\n", n, said.message);
    if (chain != NULL) check_usable(chain, ws);
    passed = status == NEAP_OK;
    neap_chain_free(chain);
    neap_workspace_release(ws);
    CHECK_EQ(held(), before);
  }
  CHECK(passed);
  for (int i = 0; i < N_LAYER; i++) neap_net_free(net[i]);
}

/* A parameter that two layers share: the gradient of the lower one is added to that of the
 * upper. */
static const char *const sharing_text[] = {
  "net below\ninput x f32 (2,4)\nparam w f32 (4,4) = Xavier\ny = FC(x, w)\n",
  "net above\ninput x f32 (2,4)\nparam w f32 (4,4) = Xavier\nt = Tanh(x)\ny = FC(t, w)\n"};
enum { N_SHARING = 2, N_WEIGHT = 16 };

/* Its gradient after one step. */
static neap_status step_of_sharing(neap_chain *chain, neap_workspace *ws, float grad[N_WEIGHT],
                                   neap_error *error) {
  NEAP_TRY(feed(ws, "x", error));
  NEAP_TRY(feed(ws, "above/output_grad", error));
  NEAP_TRY(neap_chain_forward(chain, true, error));
  NEAP_TRY(neap_chain_backward(chain, error));
  neap_chain_item item = {0};
  NEAP_TRY(neap_chain_find_param(chain, "w", &item, error));
  memcpy(grad, neap_tensor_data(&item.diff), N_WEIGHT * sizeof *grad);
  neap_chain_item_fini(&item);
  return NEAP_OK;
}

/* Where memory is refused, a step fails or has the gradients that it has otherwise; the next one
 * has them in any case. */
TEST(a_refused_allocation_costs_no_part_of_a_gradient) {
  neap_compile_options options = {.plan.policy = NEAP_POLICY_OFFSET};
  neap_net *net[N_SHARING] = {0};
  for (int i = 0; i < N_SHARING; i++) CHECK_OK(neap_net_read(sharing_text[i], &net[i], &error));
  float want[N_WEIGHT] = {0};
  int n_failed = 0;
  bool passed = false;
  for (int n = 0; n < 100000 && !passed && check_failures < 5; n++) {
    neap_chain *chain = NULL;
    neap_workspace *ws = NULL;
    neap_error said = {0};
    float got[N_WEIGHT] = {0};
    CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 1}, &ws, &error));
    CHECK_OK(
      neap_chain_new(ws, N_SHARING, (const neap_net *const *)net, 2, &options, &chain, &error));
    neap_memory_fail_nth_block(n); /* 0: none */
    neap_status status = step_of_sharing(chain, ws, got, &said);
    passed = n > 0 && !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    if (n == 0) memcpy(want, got, sizeof want);
    CHECK(status == NEAP_OK ? memcmp(got, want, sizeof want) == 0 : status == NEAP_MEMORY);
    CHECK_OK(step_of_sharing(chain, ws, got, &error));
    CHECK(memcmp(got, want, sizeof want) == 0);
    n_failed += status == NEAP_MEMORY;
    if (check_failures > 0) printf("  allocation %d: %s\n", n, said.message);
    neap_chain_free(chain);
    neap_workspace_release(ws);
  }
  CHECK(passed && n_failed > 100);
  for (int i = 0; i < N_SHARING; i++) neap_net_free(net[i]);
}

/* ---- gradients ------------------------------------------------------------------------------- */

enum { N_PIXEL = 2 * 2 * 4 * 4 };

/* A blob of n floats of no particular pattern, of any shape. */
static void feed_numbers(neap_workspace *ws, const char *name, neap_shape shape) {
  neap_tensor t = {0};
  CHECK_OK(neap_tensor_new(&t, NEAP_DTYPE_F32, &shape, &error));
  for (int64_t i = 0; i < neap_shape_elems(&shape); i++)
    neap_element_set(t.dtype, neap_tensor_data(&t), i, (double)(i * 7 % 11) - 5);
  CHECK_OK(neap_workspace_feed(ws, name, &t, false, &error));
  neap_tensor_fini(&t);
}

static void read_floats(neap_workspace *ws, const char *name, float *out, size_t n) {
  neap_tensor t = {0};
  CHECK_OK(neap_workspace_view(ws, name, &t, NULL, &error));
  if (t.storage != NULL) memcpy(out, neap_tensor_data(&t), n * sizeof *out);
  neap_tensor_fini(&t);
}

/* What a layer frees and its gradient reads crosses, so that the forward half does not free it. Two
 * such layers have the gradients of the net that is both. */
TEST(a_layer_may_free_what_its_gradient_reads) {
  static const char *const freeing[] = {
    "net low\ninput x f32 (2,2,4,4)\nparam w f32 (2,2,4,4) = Constant { value = 2 }\n"
    "v = Mul(x, w)\np = MaxPool(v) { kernel = {2,2}, stride = {2,2} }\nr = Relu(v)\nFree(v)\n"
    "q = MaxPool(r) { kernel = {2,2}, stride = {2,2} }\ny = Mul(p, q)\noutputs y\n",
    "net high\ninput x f32 (2,2,2,2)\n"
    "v = Add(x, x)\np = MaxPool(v) { kernel = {2,2}, stride = {2,2} }\nr = Relu(v)\nFree(v)\n"
    "q = MaxPool(r) { kernel = {2,2}, stride = {2,2} }\ny = Mul(p, q)\noutputs y\n"};
  static const char whole_text[] =
    "net whole\ninput x f32 (2,2,4,4)\ninput d f32 (2,2,1,1)\n"
    "param w f32 (2,2,4,4) = Constant { value = 2 }\n"
    "v = Mul(x, w)\np = MaxPool(v) { kernel = {2,2}, stride = {2,2} }\nr = Relu(v)\n"
    "q = MaxPool(r) { kernel = {2,2}, stride = {2,2} }\nm = Mul(p, q)\n"
    "v2 = Add(m, m)\np2 = MaxPool(v2) { kernel = {2,2}, stride = {2,2} }\nr2 = Relu(v2)\n"
    "q2 = MaxPool(r2) { kernel = {2,2}, stride = {2,2} }\ny = Mul(p2, q2)\n"
    "s = Mul(y, d)\nloss = Sum(s)\ndw, dx = Gradient(loss, w, x)\noutputs dw, dx\n";
  neap_compile_options options = {.plan.policy = NEAP_POLICY_OFFSET};
  neap_net *net[2] = {0}, *whole = NULL;
  neap_workspace *ws = NULL, *own = NULL;
  neap_chain *chain = NULL;
  float want[2][N_PIXEL] = {0}, got[2][N_PIXEL] = {0};
  for (int i = 0; i < 2; i++) CHECK_OK(neap_net_read(freeing[i], &net[i], &error));
  CHECK_OK(neap_net_read(whole_text, &whole, &error));
  CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 1}, &own, &error));
  feed_numbers(own, "x", NEAP_SHAPE(2, 2, 4, 4));
  feed_numbers(own, "d", NEAP_SHAPE(2, 2, 1, 1));
  CHECK_OK(neap_driver_run_once(own, whole, &options, NULL, &error));
  read_floats(own, "dw", want[0], N_PIXEL);
  read_floats(own, "dx", want[1], N_PIXEL);
  CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 1}, &ws, &error));
  CHECK_OK(neap_chain_new(ws, 2, (const neap_net *const *)net, 2, &options, &chain, &error));
  feed_numbers(ws, "x", NEAP_SHAPE(2, 2, 4, 4));
  feed_numbers(ws, "high/output_grad", NEAP_SHAPE(2, 2, 1, 1));
  CHECK_OK(neap_chain_forward(chain, true, &error));
  CHECK_OK(neap_chain_backward(chain, &error));
  read_floats(ws, "w_grad", got[0], N_PIXEL);
  read_floats(ws, "x_grad", got[1], N_PIXEL);
  CHECK(memcmp(want, got, sizeof want) == 0);
  bool flows = false;
  for (int i = 0; i < N_PIXEL; i++) flows = flows || want[0][i] != 0;
  CHECK(flows);
  neap_chain_free(chain);
  neap_workspace_release(ws);
  neap_workspace_release(own);
  neap_net_free(whole);
  for (int i = 0; i < 2; i++) neap_net_free(net[i]);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Layers and parameters are told apart however long their names are, and whatever stands before the
 * letter that differs: the gradients are those of short names. */
TEST(long_names_that_differ_at_their_end_are_different_names) {
  enum { LONG = 290 };
  neap_compile_options options = {.plan.policy = NEAP_POLICY_OFFSET};
  char front[LONG + 1];
  memset(front, 'n', LONG);
  front[LONG] = '\0';
  float grad[2][2][N_WEIGHT];
  for (int is_long = 0; is_long < 2; is_long++) {
    const char *f = is_long ? front : "";
    char text[2][10 * LONG], head[2 * LONG];
    neap_net *net[2] = {0};
    for (int i = 0; i < 2; i++) {
      char c = (char)('a' + i);
      snprintf(text[i], sizeof text[i],
               "net %s%c\ninput x f32 (2,4)\nparam %sw%c f32 (4,4) = Constant { value = %d }\n"
               "%sh = FC(x, %sw%c)\n%st = Tanh(%sh)\ny = Add(%st, %sh)\noutputs y\n",
               f, c, f, c, i + 1, f, f, c, f, f, f, f);
      CHECK_OK(neap_net_read(text[i], &net[i], &error));
    }
    neap_workspace *ws = NULL;
    neap_chain *chain = NULL;
    CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 1}, &ws, &error));
    CHECK_OK(neap_chain_new(ws, 2, (const neap_net *const *)net, 2, &options, &chain, &error));
    snprintf(head, sizeof head, "%sb/output_grad", f);
    CHECK_OK(feed(ws, "x", &error));
    CHECK_OK(feed(ws, head, &error));
    CHECK_OK(neap_chain_forward(chain, true, &error));
    CHECK_OK(neap_chain_backward(chain, &error));
    for (int i = 0; i < 2; i++) {
      neap_chain_item item = {0};
      char name[2 * LONG];
      snprintf(name, sizeof name, "%sw%c", f, 'a' + i);
      CHECK_OK(neap_chain_find_param(chain, name, &item, &error));
      if (item.diff.storage != NULL)
        memcpy(grad[is_long][i], neap_tensor_data(&item.diff), sizeof grad[0][0]);
      neap_chain_item_fini(&item);
    }
    neap_chain_free(chain);
    neap_workspace_release(ws);
    for (int i = 0; i < 2; i++) neap_net_free(net[i]);
  }
  CHECK(memcmp(grad[0], grad[1], sizeof grad[0]) == 0);
  CHECK(memcmp(grad[0][0], grad[0][1], sizeof grad[0][0]) != 0);
}

/* ---- halves ---------------------------------------------------------------------------------- */

TEST(halves_take_across_what_the_backward_reads_and_nothing_else) {
  neap_net *net = NULL;
  neap_halves halves = {0};
  const char *const wrt[] = {"w", "x"}, *const grad[] = {"dw", "dx"};
  neap_halves_spec spec = {.output = "y", .d_output = "dy", .n_wrt = 2, .wrt = wrt, .grad = grad};
  CHECK_OK(
    neap_net_read("net layer\ninput x f32 (2,4)\nparam w f32 (3,4)\nstate n f32 (2,3)\na = FC(x, "
                  "w)\nt = Tanh(a)\n"
                  "s = Sigmoid(t)\ny = Mul(s, t)\nn = RunningAverage(n, s)\noutputs y\n",
                  &net, &error));
  CHECK_OK(neap_graph_halves(net, &spec, NULL, &halves, &error));
  CHECK(!halves.repeats);
  CHECK_EQ(neap_net_n_outputs(halves.forward), 3); /* y, and t and s; a is read by nobody */
  CHECK_EQ(neap_net_n_ops(halves.forward), 5);     /* what makes the seed is not among them */
  CHECK(neap_net_find_blob(halves.backward, "t")->role == NEAP_ROLE_INPUT);
  CHECK(neap_net_find_blob(halves.backward, "s")->role == NEAP_ROLE_INPUT);
  CHECK(neap_net_find_blob(halves.backward, "a") == NULL);
  for (int i = 0; i < neap_net_n_ops(halves.backward); i++) {
    const neap_net_op *op = neap_net_op_at(halves.backward, i);
    CHECK(op->origin.backward || op->n_in == 0);
    CHECK((op->op->effects & NEAP_EFFECT_COMMIT) == 0);
  }
  neap_net_free(halves.forward);
  neap_net_free(halves.backward);
  neap_net_free(net);
}

/* An output that an op may leave out goes where nobody reads it, and stays where an op does, as
 * whichever input. */
TEST(halves_keep_the_outputs_that_are_read) {
  static const char *const reader[] = {"q = Tanh(n)", "k = Gt(mean, t)\nq = Where(k, n, x)",
                                       "k = Gt(t, mean)\nq = Where(k, n, x)"};
  const char *const wrt[] = {"w"}, *const grad[] = {"dw"};
  neap_halves_spec spec = {.output = "y", .d_output = "dy", .n_wrt = 1, .wrt = wrt, .grad = grad};
  for (int i = 0; i < NEAP_COUNT(reader); i++) {
    char text[300];
    neap_net *net = NULL;
    neap_halves halves = {0};
    snprintf(text, sizeof text,
             "net layer\ninput x f32 (4,4)\nparam w f32 (3,4)\nstate t f32 (1)\nn, mean = "
             "LayerNorm(x)\n%s\ny = FC(q, w)\n"
             "outputs y\n",
             reader[i]);
    CHECK_OK(neap_net_read(text, &net, &error));
    CHECK_OK(neap_graph_halves(net, &spec, NULL, &halves, &error));
    CHECK_EQ(halves.forward != NULL && neap_net_find_blob(halves.forward, "mean") != NULL, i > 0);
    neap_net_free(halves.forward), neap_net_free(halves.backward), neap_net_free(net);
  }
}

/* Others stay, read or not. */
TEST(halves_keep_the_outputs_that_an_op_must_have) {
  neap_net *net = NULL;
  neap_halves halves = {0};
  const char *const wrt[] = {"x"}, *const grad[] = {"dx"};
  neap_halves_spec spec = {.output = "y", .d_output = "dy", .n_wrt = 1, .wrt = wrt, .grad = grad};
  CHECK_OK(
    neap_net_read("net layer\ninput x f32 (3,2,4)\nparam w f32 (12,4)\nparam r f32 (12,3)\nn, h, c "
                  "= LSTM(x, w, r)\n"
                  "y = Tanh(n)\noutputs y\n",
                  &net, &error));
  CHECK_OK(neap_graph_halves(net, &spec, NULL, &halves, &error));
  CHECK(halves.forward != NULL && neap_net_find_blob(halves.forward, "h") != NULL &&
        neap_net_find_blob(halves.forward, "c") != NULL);
  neap_net_free(halves.forward), neap_net_free(halves.backward), neap_net_free(net);
}

/* Banks and labels of `net` are those of what the half has of it, and no others. */
static void check_banks(const neap_net *net, const neap_net *half) {
  for (int b = 0; half != NULL && b < neap_net_n_blobs(half); b++) {
    const neap_net_blob *copy = neap_net_blob_at(half, b),
                        *blob = neap_net_find_blob(net, copy->name);
    const char *bank = blob != NULL ? blob->bank : NULL;
    if (copy->bank != bank)
      printf("  %s: \"%s\" is not in the bank of its net\n", neap_net_name(half), copy->name);
    CHECK(copy->bank == bank);
  }
  for (int i = 0; half != NULL && i < neap_net_n_ops(half); i++) {
    const neap_net_op *copy = neap_net_op_at(half, i), *op = NULL;
    for (int k = 0; k < neap_net_n_ops(net); k++)
      if (neap_net_op_at(net, k)->name == copy->name) op = neap_net_op_at(net, k);
    if (op != NULL) CHECK(copy->device == op->device);
  }
}

/* What crosses, what is made again (v, a view), parameters, state; a choice, where the backward
 * half is the forward with its gradient. */
TEST(halves_have_the_banks_of_their_blobs_and_the_labels_of_their_ops) {
  static const char *const text[] = {
    "net layer\ninput x f32 (2,4)\nparam w f32 (3,4)\nstate n f32 (2,3)\na = FC(x, w) on fast\nt = "
    "Tanh(a)\n"
    "v = Reshape(t) { shape = {2, 3} }\ns = Sigmoid(v) on slow\nr = Relu(s)\nm = Mul(s, r)\ny = "
    "Mul(m, v)\n"
    "n = RunningAverage(n, s)\noutputs y\nbank fast w, t, y, x\nbank slow v, n, m, a, r\n",
    "net layer\ninput x f32 (2,4)\ninput c bool ()\nparam w f32 (3,4)\na = FC(x, w)\nsubnet more\n "
    " t = Tanh(a)\n  takes a\n  "
    "gives t\nend\n"
    "subnet less\n  t = Relu(a)\n  takes a\n  gives t\nend\nt = If(c, a) { then_net = more, "
    "else_net = less }\n"
    "y = Sigmoid(t) on slow\noutputs y\nbank fast w, a\nbank slow y\n"};
  const char *const wrt[] = {"w", "x"}, *const grad[] = {"dw", "dx"};
  neap_halves_spec spec = {.output = "y", .d_output = "dy", .n_wrt = 2, .wrt = wrt, .grad = grad};
  for (int i = 0; i < NEAP_COUNT(text); i++) {
    neap_net *net = NULL, *evaluation = NULL;
    neap_halves halves = {0};
    CHECK_OK(neap_net_read(text[i], &net, &error));
    CHECK_OK(neap_graph_halves(net, &spec, NULL, &halves, &error));
    CHECK_OK(neap_net_evaluation(net, &evaluation, &error));
    check_banks(net, halves.forward);
    check_banks(net, halves.backward);
    check_banks(net, evaluation);
    neap_net_free(halves.forward), neap_net_free(halves.backward), neap_net_free(evaluation),
      neap_net_free(net);
  }
}

TEST(a_backward_that_needs_overwritten_state_is_refused) {
  neap_net *net = NULL;
  neap_halves halves = {0};
  const char *const wrt[] = {"x"}, *const grad[] = {"dx"};
  neap_halves_spec spec = {.output = "y", .d_output = "dy", .n_wrt = 1, .wrt = wrt, .grad = grad};
  CHECK_OK(
    neap_net_read("net layer\ninput x f32 (2,3)\nstate n f32 (2,3)\nn = RunningAverage(n, x)\ny = "
                  "Mul(x, n)\noutputs y\n",
                  &net, &error));
  CHECK_FAILS(neap_graph_halves(net, &spec, NULL, &halves, &error), NEAP_GRAPH, "\"n\"");
  neap_error said = {0};
  CHECK_EQ(neap_graph_halves(net, &spec, NULL, &halves, &said), NEAP_GRAPH);
  CHECK(strstr(said.hint, "its own gradient needs") != NULL);
  CHECK(halves.forward == NULL && halves.backward == NULL);
  neap_net_free(net);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(a_cache_is_a_stack_that_grows_and_a_failed_pop_takes_nothing),
             T(a_refused_allocation_fails_the_call_and_leaves_a_chain_that_works),
             T(a_refused_allocation_costs_no_part_of_a_gradient),
             T(a_layer_may_free_what_its_gradient_reads),
             T(long_names_that_differ_at_their_end_are_different_names),
             T(halves_take_across_what_the_backward_reads_and_nothing_else),
             T(halves_keep_the_outputs_that_are_read),
             T(halves_keep_the_outputs_that_an_op_must_have),
             T(halves_have_the_banks_of_their_blobs_and_the_labels_of_their_ops),
             T(a_backward_that_needs_overwritten_state_is_refused));
}
