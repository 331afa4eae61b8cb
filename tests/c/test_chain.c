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

/* A sum of as many ones as layers share the parameter: in bf16 one that grows one by one stays at
 * 256. */
static void sum_over_layers(const char *dtype_name, neap_dtype dtype) {
  enum { N_TERM = 300 };
  neap_compile_options options = {.plan.policy = NEAP_POLICY_OFFSET};
  neap_net *net[N_TERM] = {0};
  for (int i = 0; i < N_TERM; i++) {
    char text[160];
    snprintf(text, sizeof text,
             "net l%d\ninput x %s (1)\nparam w %s (1) = Constant\ny = Add(x, w)\n", i, dtype_name,
             dtype_name);
    CHECK_OK(neap_net_read(text, &net[i], &error));
  }

  neap_chain *chain = NULL;
  neap_workspace *ws = NULL;
  neap_tensor one = {0};
  const neap_shape shape = NEAP_SHAPE(1);
  CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 1}, &ws, &error));
  CHECK_OK(neap_chain_new(ws, N_TERM, (const neap_net *const *)net, 1, &options, &chain, &error));
  CHECK_OK(neap_tensor_new(&one, dtype, &shape, &error));
  neap_element_set(dtype, neap_tensor_data(&one), 0, 1);
  for (int step = 0; step < 2; step++) { /* each step begins anew */
    /* Ones go in at the end, and come by each layer unchanged, since adding has slope 1. */
    char seed[40];
    snprintf(seed, sizeof seed, "l%d/output_grad", N_TERM - 1);
    CHECK_OK(neap_workspace_feed(ws, "x", &one, false, &error));
    CHECK_OK(neap_workspace_feed(ws, seed, &one, false, &error));
    CHECK_OK(neap_chain_forward(chain, true, &error));
    CHECK_OK(neap_chain_backward(chain, &error));
    neap_chain_item item = {0};
    CHECK_OK(neap_chain_find_param(chain, "w", &item, &error));
    CHECK(item.diff.dtype == dtype);
    CHECK(neap_element_get(dtype, neap_tensor_data(&item.diff), 0) == N_TERM);
    neap_chain_item_fini(&item);
  }
  neap_tensor_fini(&one);
  neap_chain_free(chain);
  neap_workspace_release(ws);
  for (int i = 0; i < N_TERM; i++) neap_net_free(net[i]);
}

TEST(the_gradient_of_what_many_layers_share_does_not_stop_growing) {
  sum_over_layers("bf16", NEAP_DTYPE_BF16);
  sum_over_layers("f16", NEAP_DTYPE_F16);
  sum_over_layers("f32", NEAP_DTYPE_F32);
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

/* Layers with a loop of fixed length, a choice, a loop with a maximum and one without: their ops,
 * reading IN and giving OUT. Blobs and subnets of each begin with its letter. */
static const char *const loop_ops[] = {
  "param aw f32 (4,4) = Constant { value = 0.3 }\nstate ah f32 (4) = Constant { value = 0.1 }\n"
  "subnet abody\n  input ar\n  as = Add(ah, ar)\n  an = Tanh(as)\n  takes ah, ar\n  gives an\nend\n"
  "af = FC(IN, aw)\nal = Recurrent(ah, af) { n_state = 1, n_seq = 1, step_net = abody }\n"
  "at = Sigmoid(af)\nOUT = Mul(at, al)\n",
  "state bc bool () = Constant { value = 1, dtype = bool }\n"
  "bf = Tanh(IN)\nsubnet bthen\n  bs = Sigmoid(bf)\n  bt = Mul(bs, bf)\n  takes bf\n  gives "
  "bt\nend\n"
  "subnet belse\n  bt = Tanh(bf)\n  takes bf\n  gives bt\nend\n"
  "bt = If(bc, bf) { then_net = bthen, else_net = belse }\nOUT = Mul(bt, bf)\n",
  "param clim f32 (1) frozen = Constant { value = 1000 }\n"
  "subnet ccond\n  input cp\n  cs = Sum(cp)\n  cm = Lt(cs, clim)\n  takes cp, clim\n  gives "
  "cm\nend\n"
  "subnet cbody\n  input cp\n  ct = Tanh(cp)\n  cq = Add(ct, cp)\n  takes cp, clim\n  gives "
  "cq\nend\n"
  "OUT = While(IN, clim) { cond_net = ccond, body_net = cbody, n_state = 1, max = 3 }\n",
  "param dlim f32 (1) frozen = Constant { value = 30 }\n"
  "subnet dcond\n  input dp\n  dq = Mul(dp, dp)\n  ds = Sum(dq)\n  dm = Lt(ds, dlim)\n  takes dp, "
  "dlim\n  gives dm\nend\n"
  "subnet dbody\n  input dp\n  dt = Tanh(dp)\n  dq = Add(dt, dp)\n  takes dp, dlim\n  gives "
  "dq\nend\n"
  "OUT = While(IN, dlim) { cond_net = dcond, body_net = dbody, n_state = 1 }\n"};
enum { N_LOOPING = NEAP_COUNT(loop_ops), N_WIDE = 4 * 4 };

/* The ops with IN and OUT replaced. */
static void add_ops(neap_buffer *out, const char *ops, const char *in, const char *result) {
  for (; *ops != '\0'; ops++)
    if (strncmp(ops, "OUT", 3) == 0)
      neap_buffer_add(out, "%s", result), ops += 2;
    else if (strncmp(ops, "IN", 2) == 0)
      neap_buffer_add(out, "%s", in), ops += 1;
    else
      neap_buffer_add_n(out, ops, 1);
}

static neap_net *looping_layer_of(int i) {
  neap_buffer text = {0};
  neap_net *net = NULL;
  neap_buffer_add(&text, "net n%d\ninput x f32 (4,4)\n", i);
  add_ops(&text, loop_ops[i], "x", "y");
  neap_buffer_add(&text, "outputs y\n");
  CHECK_OK(neap_net_read(text.text, &net, &error));
  neap_buffer_fini(&text);
  return net;
}

/* The gradients that the net of all layers has, in one program. */
static void whole_gradients(neap_workspace *ws, float dw[N_WIDE], float dx[N_WIDE]) {
  neap_compile_options options = {.plan.policy = NEAP_POLICY_OFFSET};
  neap_buffer text = {0};
  neap_net *net = NULL;
  neap_buffer_add(&text, "net whole\ninput x f32 (4,4)\ninput d f32 (4,4)\n");

  /* What each layer gives is the next one's input, under a name of its own. */
  char in[16] = "x", out[16];
  for (int i = 0; i < N_LOOPING; i++, memcpy(in, out, sizeof in)) {
    snprintf(out, sizeof out, "y%d", i);
    add_ops(&text, loop_ops[i], in, out);
  }

  /* Summed with the weights d, so that the gradient that arrives at the last layer is d, as in the
   * chain. */
  neap_buffer_add(
    &text, "p = Mul(%s, d)\nloss = Sum(p)\ndw, dx = Gradient(loss, aw, x)\noutputs dw, dx\n", in);
  CHECK_OK(neap_net_read(text.text, &net, &error));
  CHECK_OK(neap_driver_run_once(ws, net, &options, NULL, &error));
  read_floats(ws, "dw", dw, N_WIDE);
  read_floats(ws, "dx", dx, N_WIDE);
  neap_net_free(net);
  neap_buffer_fini(&text);
}

/* Loops and choices in layers: gradients have the bits that they have in one net. Frames that
 * cross are blobs, which anybody may write: what then comes out is nonsense, and nothing else is
 * harmed. */
TEST(layers_with_loops_have_the_gradients_of_the_whole_net) {
  neap_compile_options options = {.plan.policy = NEAP_POLICY_OFFSET};
  neap_net *net[N_LOOPING] = {0};
  neap_workspace *ws = NULL, *own = NULL;
  neap_chain *chain = NULL;
  float want[2][N_WIDE] = {0}, got[2][N_WIDE] = {0};
  const neap_shape shape = NEAP_SHAPE(4, 4);
  CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 1}, &own, &error));
  feed_numbers(own, "x", shape);
  feed_numbers(own, "d", shape);
  whole_gradients(own, want[0], want[1]);
  CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 1}, &ws, &error));
  for (int i = 0; i < N_LOOPING; i++) net[i] = looping_layer_of(i);
  CHECK_OK(
    neap_chain_new(ws, N_LOOPING, (const neap_net *const *)net, 4, &options, &chain, &error));
  feed_numbers(ws, "x", shape);
  for (int round = 0; round < 2; round++) {
    feed_numbers(ws, "n3/output_grad", shape);
    CHECK_OK(neap_chain_forward(chain, true, &error));
    CHECK_OK(neap_chain_backward(chain, &error));
    read_floats(ws, "aw_grad", got[0], N_WIDE);
    read_floats(ws, "x_grad", got[1], N_WIDE);
    CHECK(memcmp(want, got, sizeof want) == 0);
  }
  bool flows = false;
  for (int i = 0; i < N_WIDE; i++) flows = flows || want[0][i] != 0;
  CHECK(flows);
  CHECK_OK(neap_chain_forward(chain, true, &error));
  static const char *const frames[] = {"n0/al.frames", "n2/y.frames"};
  for (int i = 0; i < NEAP_COUNT(frames); i++) {
    neap_tensor t = {0};
    CHECK_OK(neap_workspace_view(ws, frames[i], &t, NULL, &error));
    if (t.storage != NULL) memset(neap_tensor_data(&t), 0x7f, (size_t)t.shape.dim[0]);
    neap_tensor_fini(&t);
  }
  CHECK_OK(neap_chain_backward(chain, &error));
  neap_chain_free(chain);
  neap_workspace_release(ws);
  neap_workspace_release(own);
  for (int i = 0; i < N_LOOPING; i++) neap_net_free(net[i]);
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

/* A blob within a layer may be called as the layer's output is in the workspace, and another one as
 * the first is then renamed. */
TEST(blobs_within_a_layer_meet_neither_its_output_nor_each_other) {
  static const char text[] =
    "net one\ninput x f32 (2,4)\nparam one/output~ f32 (2,4) = Constant { value = 8 }\n"
    "output = Abs(x)\noutput~ = Mul(output, one/output~)\noutput~~ = Neg(output~)\n"
    "t = Add(output, output~)\ny = Sub(t, output~~)\noutputs y\n";
  neap_compile_options options = {.plan.policy = NEAP_POLICY_OFFSET};
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_chain *chain = NULL;
  float y[8] = {0};
  CHECK_OK(neap_net_read(text, &net, &error));
  CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 1}, &ws, &error));
  CHECK_OK(neap_chain_new(ws, 1, &(const neap_net *){net}, 2, &options, &chain, &error));
  CHECK_OK(feed(ws, "x", &error));
  for (int train = 0; train < 2; train++) {
    CHECK_OK(neap_chain_forward(chain, train, &error));
    read_floats(ws, "one/output", y, 8);
    for (int i = 0; i < 8; i++) CHECK_EQ((long)y[i], 17 * (i < 3 ? 3 - i : i - 3));
  }
  neap_chain_free(chain);
  neap_workspace_release(ws);
  neap_net_free(net);
}

/* ---- halves ---------------------------------------------------------------------------------- */

/* One half of a layer with output y and the gradient dy that arrives, differentiated by "x", "w" or
 * both, "xw"; NULL after a failure. */
static neap_graph *half_of(const char *text, bool backward, const char *by, neap_error *said) {
  static const char *const all[] = {"x", "w"}, *const grads[] = {"dx", "dw"};
  const int first = by[0] == 'w';
  const neap_half half = {.backward = backward,
                          .output = "y",
                          .d_output = "dy",
                          .n_wrt = (int)strlen(by),
                          .wrt = all + first,
                          .grad = grads + first,
                          .prefix = "layer/"};

  neap_net *net = NULL;
  neap_graph *graph = NULL;
  CHECK_OK(neap_net_read(text, &net, &error));
  (void)neap_graph_prepare(net, &(neap_graph_options){.half = &half}, &graph, said);
  neap_net_free(net);
  return graph;
}

static neap_graph *good_half(const char *text, bool backward, const char *by) {
  neap_error error = {0};
  neap_graph *graph = half_of(text, backward, by, &error);
  if (graph == NULL) printf("  %s\n", error.message);
  CHECK(graph != NULL);
  return graph;
}

/* Whether the half takes a blob of this name, rather than make it. */
static bool takes(const neap_graph *half, const char *name) {
  neap_value_id v = half != NULL ? neap_graph_find(half, name) : NEAP_NO_VALUE;
  return v >= 0 && half->value[v].node < 0 && half->value[v].region == NEAP_REGION_IO;
}

static int count_ops(const neap_graph *half, const char *type) {
  int n = 0;
  for (int i = 0; half != NULL && i < half->n_node; i++)
    n += strcmp(half->node[i].op->name, type) == 0;
  return n;
}

TEST(halves_take_across_what_the_backward_reads_and_nothing_else) {
  static const char text[] =
    "net layer\ninput x f32 (2,4)\nparam w f32 (3,4)\nstate n f32 (2,3)\na = FC(x, w)\n"
    "t = Tanh(a)\ns = Sigmoid(t)\ny = Mul(s, t)\nn = RunningAverage(n, s)\noutputs y\n";
  neap_graph *forward = good_half(text, false, "xw"), *backward = good_half(text, true, "xw");
  CHECK_EQ(forward->n_output, 3); /* y, and t and s; a is read by nobody */
  CHECK_EQ(forward->n_node, 5);   /* nothing of the gradient is among them */
  CHECK(takes(backward, "t") && takes(backward, "s") && takes(backward, "dy"));
  CHECK(neap_graph_find(backward, "a") == NEAP_NO_VALUE);
  CHECK_EQ(backward->n_output, 2);
  for (int i = 0; i < backward->n_node; i++) {
    const neap_node *node = &backward->node[i];
    CHECK(node->phase == NEAP_PHASE_BACKWARD || node->n_in == 0);
    CHECK((node->effects & NEAP_EFFECT_COMMIT) == 0);
  }
  neap_graph_free(forward), neap_graph_free(backward);
}

/* As the whole net's graph has them (tests/unit/held_spec.lua); once, since both halves run in one
 * workspace. */
TEST(a_forward_half_holds_what_the_layer_declares_and_nobody_reads) {
  static const char text[] =
    "net layer\ninput x f32 (2,4)\nparam w f32 (3,4)\nparam idle f32 (100)\nstate calm f32 (64)\n"
    "h = FC(x, w)\ny = Tanh(h)\noutputs y\n";
  neap_graph *forward = good_half(text, false, "xw"), *backward = good_half(text, true, "xw");
  neap_value_id idle = neap_graph_find(forward, "idle"), calm = neap_graph_find(forward, "calm");
  CHECK(idle >= 0 && forward->value[idle].region == NEAP_REGION_PARAMETER);
  CHECK(calm >= 0 && forward->value[calm].region == NEAP_REGION_STATE);
  CHECK(neap_graph_find(backward, "idle") < 0 && neap_graph_find(backward, "calm") < 0);
  neap_graph_free(forward), neap_graph_free(backward);
}

/* An output that an op may leave out goes where nobody reads it, and stays where an op does, as
 * whichever input. */
TEST(halves_keep_the_outputs_that_are_read) {
  static const char *const reader[] = {"q = Tanh(n)", "k = Gt(mean, t)\nq = Where(k, n, x)",
                                       "k = Gt(t, mean)\nq = Where(k, n, x)"};
  for (int i = 0; i < NEAP_COUNT(reader); i++) {
    char text[300];
    snprintf(text, sizeof text,
             "net layer\ninput x f32 (4,4)\nparam w f32 (3,4)\nstate t f32 (1)\nn, mean = "
             "LayerNorm(x)\n%s\ny = FC(q, w)\n"
             "outputs y\n",
             reader[i]);
    neap_graph *forward = good_half(text, false, "w");
    CHECK_EQ(neap_graph_find(forward, "mean") != NEAP_NO_VALUE, i > 0);
    neap_graph_free(forward);
  }
}

/* Others stay, read or not. */
TEST(halves_keep_the_outputs_that_an_op_must_have) {
  neap_graph *forward = good_half(
    "net layer\ninput x f32 (3,2,4)\nparam w f32 (12,4)\nparam r f32 (12,3)\nn, h, c = LSTM(x, w, "
    "r)\ny = Tanh(n)\noutputs y\n",
    false, "x");
  CHECK(neap_graph_find(forward, "h") != NEAP_NO_VALUE);
  CHECK(neap_graph_find(forward, "c") != NEAP_NO_VALUE);
  neap_graph_free(forward);
}

/* Of one name that is written twice each value crosses under a name of its own; what is no blob of
 * the net gets the prefix. */
TEST(halves_call_what_crosses_by_one_name_each) {
  static const char text[] =
    "net layer\ninput x f32 (2,4)\nparam w f32 (4,4)\nv = Tanh(x)\na = FC(v, w)\nv = Sigmoid(a) as "
    "second\n"
    "d = Dropout(v) { rate = 0.5, training = true }\ny = FC(d, w)\noutputs y\n";
  neap_graph *forward = good_half(text, false, "xw"), *backward = good_half(text, true, "xw");
  int n_taken = 0;
  for (int k = 0; k < forward->n_output; k++) {
    const char *name = forward->value[forward->output[k]].name;
    for (int j = 0; j < k; j++) CHECK(strcmp(name, forward->value[forward->output[j]].name) != 0);
    n_taken += takes(backward, name);
  }
  CHECK_EQ(n_taken, forward->n_output - 1); /* all but y: both v, d and the mask */
  CHECK_EQ(n_taken, 4);
  CHECK(takes(backward, "v") && takes(backward, "v~") && takes(backward, "d"));
  CHECK_EQ(count_ops(backward, "Dropout"), 0);
  neap_graph_free(forward), neap_graph_free(backward);
}

static const char branching_layer[] =
  "net layer\ninput x f32 (2,4)\ninput c bool ()\nparam w f32 (3,4)\na = FC(x, w)\nsubnet more\n "
  " t = Tanh(a)\n  takes a\n  gives t\nend\nsubnet less\n  t = Relu(a)\n  takes a\n  gives "
  "t\nend\nt = If(c, a) { then_net = more, else_net = less }\ny = Sigmoid(t) on slow\noutputs "
  "y\n";
static const char looping_layer[] =
  "net layer\ninput x f32 (5,4)\nparam w f32 (4,4)\na = FC(x, w)\nstate h f32 (4)\nsubnet body\n  "
  "input r\n"
  "  s = Add(h, r)\n  h2 = Tanh(s)\n  takes h, r\n  gives h2\nend\n"
  "h2 = Recurrent(h, a) { n_state = 1, n_seq = 1, step_net = body }\ny = Sigmoid(h2)\noutputs y\n";

/* A layer with a choice or a loop steps back over what its forward left: nothing before it is
 * computed again, and a loop not at all. */
TEST(halves_of_a_layer_with_subnets_compute_nothing_twice) {
  neap_graph *backward = good_half(branching_layer, true, "xw");
  CHECK_EQ(count_ops(backward, "FC") + count_ops(backward, "Sigmoid"), 0);
  CHECK_EQ(count_ops(backward, "If"), 1); /* its gradient */
  neap_graph_free(backward);
  backward = good_half(looping_layer, true, "xw");
  CHECK_EQ(count_ops(backward, "FC") + count_ops(backward, "Recurrent"), 0);
  CHECK_EQ(count_ops(backward, "LoopGradient"), 1);
  neap_graph_free(backward);
}

/* Blobs of the half that the net has are in the net's banks, and ops have its labels. */
static void check_banks(const char *text, const neap_graph *half) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_read(text, &net, &error));
  for (int v = 0; half != NULL && v < half->n_value; v++) {
    const neap_net_blob *blob = neap_net_find_blob(net, half->value[v].name);
    if (blob == NULL || blob->bank == NULL || !half->value[v].is_blob) continue;
    const char *bank = half->bank[half->value[v].bank].name;
    if (strcmp(bank, blob->bank) != 0)
      printf("  %s: \"%s\" is not in the bank of its net\n", half->name, blob->name);
    CHECK(strcmp(bank, blob->bank) == 0);
  }

  /* An op of the half is the net's if it has its name; those that the half adds have no label to
   * keep. */
  for (int i = 0; half != NULL && i < half->n_node; i++) {
    const neap_net_op *op = NULL;
    for (int k = 0; k < neap_net_n_ops(net); k++)
      if (neap_net_op_at(net, k)->name == half->node[i].name) op = neap_net_op_at(net, k);
    if (op != NULL) CHECK(strcmp(half->node[i].device, op->device) == 0);
  }
  neap_net_free(net);
}

/* What crosses, what is made again (v, a view), parameters, state; a choice. */
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
  static const neap_bank bank[] = {{.name = "fast"}, {.name = "slow"}};
  static const char *const wrt[] = {"w", "x"}, *const grad[] = {"dw", "dx"};
  for (int i = 0; i < 2 * NEAP_COUNT(text); i++) {
    const neap_half half = {.backward = i % 2 == 1,
                            .output = "y",
                            .d_output = "dy",
                            .n_wrt = 2,
                            .wrt = wrt,
                            .grad = grad};
    neap_net *net = NULL, *evaluation = NULL;
    neap_graph *graph = NULL;
    CHECK_OK(neap_net_read(text[i / 2], &net, &error));
    CHECK_OK(neap_graph_prepare(
      net, &(neap_graph_options){.half = &half, .n_bank = NEAP_COUNT(bank), .bank = bank}, &graph,
      &error));
    check_banks(text[i / 2], graph);
    neap_graph_free(graph);
    CHECK_OK(neap_net_evaluation(net, &evaluation, &error));
    CHECK_OK(neap_graph_prepare(
      evaluation, &(neap_graph_options){.n_bank = NEAP_COUNT(bank), .bank = bank}, &graph, &error));
    check_banks(text[i / 2], graph);
    neap_graph_free(graph);
    neap_net_free(evaluation), neap_net_free(net);
  }
}

TEST(a_backward_that_needs_overwritten_state_is_refused) {
  static const char *const text[] = {
    "net layer\ninput x f32 (2,3)\nstate n f32 (2,3)\nn = RunningAverage(n, x)\ny = Mul(x, n)\n"
    "outputs y\n",
    "net layer\ninput x f32 (2,3)\nstate n f32 (2,3)\ny = Mul(x, n)\nn = RunningAverage(n, x)\n"
    "outputs y\n"};
  for (int i = 0; i < 2 * NEAP_COUNT(text); i++) {
    neap_error said = {0};
    CHECK(half_of(text[i / 2], i % 2 == 1, "x", &said) == NULL);
    CHECK_EQ(said.code, NEAP_GRAPH);
    CHECK(strstr(said.message, "\"n\"") != NULL);
    CHECK(strstr(said.hint, "its own gradient needs") != NULL);
  }
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(a_cache_is_a_stack_that_grows_and_a_failed_pop_takes_nothing),
             T(a_refused_allocation_fails_the_call_and_leaves_a_chain_that_works),
             T(a_refused_allocation_costs_no_part_of_a_gradient),
             T(the_gradient_of_what_many_layers_share_does_not_stop_growing),
             T(a_layer_may_free_what_its_gradient_reads),
             T(layers_with_loops_have_the_gradients_of_the_whole_net),
             T(long_names_that_differ_at_their_end_are_different_names),
             T(blobs_within_a_layer_meet_neither_its_output_nor_each_other),
             T(halves_take_across_what_the_backward_reads_and_nothing_else),
             T(a_forward_half_holds_what_the_layer_declares_and_nobody_reads),
             T(halves_keep_the_outputs_that_are_read),
             T(halves_keep_the_outputs_that_an_op_must_have),
             T(halves_call_what_crosses_by_one_name_each),
             T(halves_of_a_layer_with_subnets_compute_nothing_twice),
             T(halves_have_the_banks_of_their_blobs_and_the_labels_of_their_ops),
             T(a_backward_that_needs_overwritten_state_is_refused));
}
