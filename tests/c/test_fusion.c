/* test_fusion.c: what of constants and fusion Lua can't reach: bytes written behind the engine's
 * back, plans that lie about constants, and memory refused while a graph is rewritten. */
#include "check.h"
#include "driver/driver.h"
#include "neap.h"

static const char *const layer_text =
  "net layer\ninput x f32 (1,2)\nparam w f32 (2,2) = Constant { value = 1 }\n"
  "t = Tanh(w)\ny = FC(x, t)\nz = Relu(y)\noutputs z\n";

static float run_and_read(neap_workspace *ws, neap_session *session) {
  float z[2] = {-1, -1};
  CHECK_OK(neap_session_run(session, &error));
  CHECK_OK(neap_workspace_read(ws, "z", NEAP_DTYPE_F32, 2, z, &error));
  return z[0];
}

TEST(a_write_through_a_pointer_is_told_by_touch) {
  static float w[4] __attribute__((aligned(64))) = {0.5f, 0.5f, 0.5f, 0.5f};
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  CHECK_OK(neap_net_read(layer_text, &net, &error));
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  neap_storage *storage = neap_storage_borrow(w, sizeof w, NULL, NULL);
  neap_shape shape = NEAP_SHAPE(2, 2);
  neap_tensor tensor = neap_tensor_view(storage, 0, NEAP_DTYPE_F32, &shape);
  CHECK_OK(neap_workspace_feed(ws, "w", &tensor, true, &error));
  CHECK_OK(
    neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){1, 2}, (float[]){1, 1}, &error));
  CHECK_OK(neap_session_open(ws, net, NULL, &session, &error));
  CHECK(neap_session_figures(session).constant_bytes > 0);
  CHECK_NEAR(run_and_read(ws, session), 2 * tanh(0.5), 1e-6);
  for (int i = 0; i < 4; i++) w[i] = 2;
  CHECK_OK(neap_workspace_touch(ws, "w", &error));
  CHECK_NEAR(run_and_read(ws, session), 2 * tanh(2.0), 1e-6);
  CHECK_FAILS(neap_workspace_touch(ws, "u", &error), NEAP_NAME, "no such blob");
  neap_session_free(session);
  neap_tensor_fini(&tensor);
  neap_storage_release(storage);
  neap_workspace_release(ws);
  neap_net_free(net);
}

TEST(a_version_is_never_seen_twice) {
  uint64_t last = 0;
  for (int i = 0; i < 100; i++) {
    neap_storage *storage = neap_storage_new(64);
    CHECK(storage != NULL && neap_storage_version(storage) > last);
    last = neap_storage_version(storage);
    neap_storage_touch(storage);
    CHECK(neap_storage_version(storage) > last);
    last = neap_storage_version(storage);
    neap_storage_release(storage);
  }
}

TEST(no_fuse_runs_what_is_written) {
  neap_net *net = NULL;
  neap_figures fused, plain;
  CHECK_OK(neap_net_read(layer_text, &net, &error));
  CHECK_OK(neap_net_forecast(net, NULL, &fused, NULL, &error));
  CHECK_OK(neap_net_forecast(net, &(neap_options){.fuse = "false"}, &plain, NULL, &error));
  CHECK_EQ(fused.n_op, 2);
  CHECK_EQ(plain.n_op, 3);
  CHECK(fused.baseline_bytes < plain.baseline_bytes); /* each of its own kernels and values */
  neap_net_free(net);
}

static const char *const pooled_text =
  "net pooled\ninput x f32 (16,4,64,64)\nparam w f32 (8,4,3,3) = Xavier\nc = Conv(x, w) { pad = "
  "{1} }\n"
  "y = MaxPool(c) { kernel = {2} }\noutputs y\n";

TEST(fuse_pool_is_an_option) {
  neap_net *net = NULL;
  neap_figures pooled, plain;
  CHECK_OK(neap_net_read(pooled_text, &net, &error));
  CHECK_OK(neap_net_forecast(net, NULL, &plain, NULL, &error));
  CHECK_OK(neap_net_forecast(net, &(neap_options){.fuse = "pool"}, &pooled, NULL, &error));
  CHECK(pooled.arena_bytes < plain.arena_bytes);
  CHECK_FAILS(neap_net_forecast(net, &(neap_options){.fuse = "poll"}, &pooled, NULL, &error),
              NEAP_ARGUMENT, "fuse expects true, false or pool, got \"poll\"");
  neap_net_free(net);
}

/* An op that writes a state by name stays the op that does: no product takes it in, and its layout
 * is that of the state. */
TEST(a_sum_that_is_assigned_to_a_state_keeps_its_place_and_layout) {
  static const char *const text[] = {
    "net dense\ninput x f32 (1,2)\nparam w f32 (2,2) = Constant { value = 1 }\nparam b f32 (2) = "
    "Constant { value = 1 }\n"
    "state m f32 (1,2) = Constant { value = 0.5 }\nt = FC(x, w, b)\ny = Tanh(m)\nm = Add(m, "
    "t)\noutputs y\n",
    "net blocked\ninput x f32 (1,1,1,1)\nparam w f32 (2,1,1,1) = Constant { value = 2 }\nparam b "
    "f32 (2) = Constant { value = 1 "
    "}\n"
    "state m f32 (1,2,1,1) = Constant { value = 0.5 }\nt = Conv(x, w, b)\ny = Tanh(m)\nm = Add(m, "
    "t)\noutputs y\n"};
  for (int k = 0; k < 2 * NEAP_COUNT(text); k++) {
    neap_net *net = NULL;
    neap_workspace *ws = NULL;
    neap_session *session = NULL;
    float y[2] = {0}, m[2] = {0};
    CHECK_OK(neap_net_read(text[k / 2], &net, &error));
    CHECK_OK(neap_workspace_open(1, &ws, &error));
    CHECK_OK(neap_workspace_init(ws, net, &error));
    neap_type type = neap_net_find_blob(net, "x")->type;
    CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, type.shape.n_dim, type.shape.dim,
                                  (float[]){1, 1}, &error));
    CHECK_OK(neap_session_open(ws, net, &(neap_options){.executor = k % 2 == 1 ? "dag" : NULL},
                               &session, &error));
    CHECK_OK(neap_session_run(session, &error));
    CHECK_OK(neap_workspace_read(ws, "y", NEAP_DTYPE_F32, 2, y, &error));
    CHECK_OK(neap_workspace_read(ws, "m", NEAP_DTYPE_F32, 2, m, &error));
    CHECK_NEAR(y[0], tanh(0.5), 1e-6);
    CHECK_NEAR(m[1], 3.5, 1e-6);
    neap_session_free(session);
    neap_workspace_release(ws);
    neap_net_free(net);
  }
}

/* A plan whose constants overlap, or lie outside their region, or depend on what changes, is
 * refused. */
TEST(plans_that_lie_about_constants_are_refused) {
  static const char *const text =
    "net two\ninput x f32 (4,4)\nparam w f32 (4,4) = Constant { value = 1 }\nt = Tanh(w)\ns = "
    "Sigmoid(w)\n"
    "y = FC(x, t)\nz = FC(y, s)\noutputs z\n";
  neap_net *net = NULL;
  neap_forecast f;
  neap_compile_options options = {0};
  CHECK_OK(neap_net_read(text, &net, &error));
  CHECK_OK(neap_driver_plan(net, &options, &f, &error));
  int t = neap_graph_find(f.graph, "t"), s = neap_graph_find(f.graph, "s"),
      x = neap_graph_find(f.graph, "x");
  CHECK_EQ(f.plan->region_bytes[NEAP_REGION_CONSTANT], 128);
  CHECK_OK(neap_plan_verify(f.plan, f.graph, &error));
  size_t offset = f.plan->place[s].offset;
  f.plan->place[s].offset = f.plan->place[t].offset;
  CHECK_FAILS(neap_plan_verify(f.plan, f.graph, &error), NEAP_PLAN, "its own");
  f.plan->place[s].offset = 128;
  CHECK_FAILS(neap_plan_verify(f.plan, f.graph, &error), NEAP_PLAN, "its own");
  f.plan->place[s].offset = offset;

  /* as if the input were a parameter, and then a constant hung on it */
  neap_region region = f.graph->value[x].region;
  neap_node *node = &f.graph->node[f.graph->value[t].node];
  neap_value_id w = node->in[0];
  node->in[0] = x;
  CHECK_FAILS(neap_plan_verify(f.plan, f.graph, &error), NEAP_PLAN, "");
  node->in[0] = w;
  f.graph->value[x].region = region;
  CHECK_OK(neap_plan_verify(f.plan, f.graph, &error));
  neap_forecast_fini(&f);
  neap_net_free(net);
}

static const char *const block_text =
  "net block\ninput x f32 (1,4,5,5)\nparam w f32 (4,4,3,3) = Xavier\nparam g f32 (4) = Constant { "
  "value = 1 }\n"
  "param b f32 (4)\nstate m f32 (4)\nstate v f32 (4) = Constant { value = 1 }\nc = Conv(x, w) { "
  "pad = {1} }\n"
  "n = BatchNorm(c, g, b, m, v) { training = false }\na = Add(n, x)\ny = Relu(a)\noutputs y\n";

/* Constants have bytes of their own and makers that always make the same, of what nobody writes. */
static void check_constants_are_checked(neap_forecast *f) {
  neap_graph *graph = f->graph;
  int first = -1, n_constant = 0;
  for (int v = 0; v < graph->n_value; v++) {
    if (graph->value[v].region != NEAP_REGION_CONSTANT) continue;
    n_constant++;
    neap_node *maker = &graph->node[graph->value[v].node];
    maker->effects |= NEAP_EFFECT_RANDOM;
    CHECK_FAILS(neap_plan_verify(f->plan, graph, &error), NEAP_PLAN, "is no constant");
    maker->effects &= ~(unsigned)NEAP_EFFECT_RANDOM;
    if (first < 0) {
      first = v;
      continue;
    }
    size_t offset = f->plan->place[v].offset;
    f->plan->place[v].offset = f->plan->place[first].offset;
    CHECK_FAILS(neap_plan_verify(f->plan, graph, &error), NEAP_PLAN, "that are its own");
    f->plan->place[v].offset = offset;
  }
  CHECK(n_constant > 1);

  /* A second version of each parameter, which the graph would write. */
  int n_written = 0, x = 0;
  while (graph->value[x].region != NEAP_REGION_IO) x++;
  for (int v = 0; v < graph->n_value; v++) {
    if (graph->value[v].region != NEAP_REGION_PARAMETER) continue;
    graph->value[x].root = v;
    CHECK_FAILS(neap_plan_verify(f->plan, graph, &error), NEAP_PLAN, "may change from run to run");
    graph->value[x].root = x;
    n_written++;
  }
  CHECK(n_written > 0);
}

/* What is made once and not kept may be read by its like alone. */
TEST(plans_that_read_what_was_made_once_are_refused) {
  static const char *const text =
    "net n\ninput x f32 (4,16,32,32)\nparam w f32 (16,16,3,3) = Xavier\nparam g f32 (16) = "
    "Constant { value = 1 }\n"
    "param b f32 (16)\nstate m f32 (16)\nstate v f32 (16) = Constant { value = 1 }\nc = Conv(x, w) "
    "{ pad = {1} }\n"
    "n = BatchNorm(c, g, b, m, v) { training = false }\nr = Relu(n)\nd = Conv(r, w) { pad = {1} }\n"
    "y = BatchNorm(d, g, b, m, v) { training = false }\noutputs y\n";
  neap_net *net = NULL;
  neap_forecast f;
  neap_compile_options options = {.plan = {.policy = NEAP_POLICY_OFFSET}};
  int n_way = 0;
  CHECK_OK(neap_net_read(text, &net, &error));
  CHECK_OK(neap_driver_plan(net, &options, &f, &error));
  CHECK_OK(neap_plan_verify(f.plan, f.graph, &error));
  for (int n = 0; n < f.graph->n_node; n++) {
    neap_node *node = &f.graph->node[n];
    for (int i = 0; i < node->n_in; i++) {
      int maker = node->in[i] >= 0 ? f.graph->value[node->in[i]].node : -1;
      if (maker < 0 || !f.graph->node[maker].once ||
          f.graph->value[node->in[i]].region != NEAP_REGION_ARENA)
        continue;
      n_way++;
      CHECK(node->once);
      node->once = false; /* would read what another run has overwritten */
      CHECK_FAILS(neap_plan_verify(f.plan, f.graph, &error), NEAP_PLAN,
                  "made once for constants and not kept");
      node->once = true;
      f.graph->value[node->in[i]].is_blob = true; /* could be fetched */
      CHECK_FAILS(neap_plan_verify(f.plan, f.graph, &error), NEAP_PLAN, "asked for in every run");
      f.graph->value[node->in[i]].is_blob = false;
      f.graph->node[maker].once = false; /* the packed weight would hang on what a run may change */
      CHECK_FAILS(neap_plan_verify(f.plan, f.graph, &error), NEAP_PLAN,
                  "may change from run to run");
      f.graph->node[maker].once = true;
    }
  }
  check_constants_are_checked(&f);
  CHECK_OK(neap_plan_verify(f.plan, f.graph, &error));
  CHECK(n_way > 0 ||
        neap_engine_at(NEAP_ENGINE_DNNL)->missing() != NULL); /* without oneDNN nothing is packed */
  neap_forecast_fini(&f);
  neap_net_free(net);
}

TEST(refused_memory_leaves_nothing) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_read(block_text, &net, &error));
  neap_graph *graph = NULL;
  CHECK_OK(neap_graph_prepare(net, NULL, &graph, &error));
  CHECK_EQ(graph->n_rewrite, 3);
  neap_graph_free(graph);
  int64_t before = neap_memory_read().n_live;
  int n = 0;
  for (bool done = false; !done && n < 5000; n++) {
    neap_error refused = {0};
    neap_memory_fail_nth_block(n + 1);
    graph = NULL;
    neap_status status = neap_graph_prepare(net, NULL, &graph, &refused);
    neap_memory_fail_nth(0, false);
    done = status == NEAP_OK;
    if (done)
      neap_graph_free(graph);
    else
      CHECK_EQ(status, NEAP_MEMORY);
    CHECK_EQ(neap_memory_read().n_live, before);
  }
  CHECK(n > 20 && n < 5000);
  neap_net_free(net);
}

/* A kernel of two kernels gives back the first when the second can't be had. */
TEST(refused_memory_leaves_no_half_of_a_kernel) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_read(pooled_text, &net, &error));
  int n = 0;
  for (bool done = false; !done && n < 5000; n++) {
    int64_t before = neap_memory_read().n_live;
    neap_workspace *ws = NULL;
    neap_session *session = NULL;
    neap_error refused = {0};
    CHECK_OK(neap_workspace_open(1, &ws, &error));
    neap_memory_fail_nth_block(n + 1);
    neap_status status =
      neap_session_open(ws, net, &(neap_options){.fuse = "pool"}, &session, &refused);
    neap_memory_fail_nth(0, false);
    done = status == NEAP_OK;
    if (!done) CHECK_EQ(status, NEAP_MEMORY);
    neap_session_free(session);
    neap_workspace_release(ws);
    if (n > 0) CHECK_EQ(neap_memory_read().n_live, before); /* names are interned once */
  }
  CHECK(n > 20 && n < 5000);
  neap_net_free(net);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(a_write_through_a_pointer_is_told_by_touch),
             T(a_version_is_never_seen_twice), T(no_fuse_runs_what_is_written),
             T(fuse_pool_is_an_option),
             T(a_sum_that_is_assigned_to_a_state_keeps_its_place_and_layout),
             T(plans_that_lie_about_constants_are_refused),
             T(plans_that_read_what_was_made_once_are_refused), T(refused_memory_leaves_nothing),
             T(refused_memory_leaves_no_half_of_a_kernel));
}
