/* test_graph.c: what a net means: gradient from value to value, versions, commits last, If, choices
 * as text. */
#include "check.h"
#include "driver/driver.h"
#include "graph/graph.h"

static neap_type f32(neap_shape shape) { return (neap_type){NEAP_DTYPE_F32, shape}; }

static void add(neap_net *net, const char *type, int n_in, const char *const *in, int n_out,
                const char *const *out, const neap_set *attrs) {
  neap_net_call call = {
    .type = type, .n_in = n_in, .n_out = n_out, .in = in, .out = out, .attrs = attrs};
  CHECK_OK(neap_net_add(net, &call, NULL, &error));
}
#define IN(...) \
  (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), (const char *[]) { __VA_ARGS__ }

static void declare(neap_net *net, const char *name, neap_role role, neap_shape shape,
                    double value) {
  neap_type type = f32(shape);
  neap_set attrs[] = {NEAP_SET_FLOAT("value", value), {0}};
  CHECK_OK(neap_net_declare(net, name, role, &type, role == NEAP_ROLE_PARAMETER,
                            role == NEAP_ROLE_INPUT ? NULL : "Constant",
                            role == NEAP_ROLE_INPUT ? NULL : attrs, NULL, &error));
}

/* x (2,3) -> FC w (2,3) -> Relu -> Sum = loss; gradient of w. */
static neap_net *small_net(void) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_new("small", &net, &error));
  declare(net, "x", NEAP_ROLE_INPUT, NEAP_SHAPE(2, 3), 0);
  declare(net, "w", NEAP_ROLE_PARAMETER, NEAP_SHAPE(2, 3), 0.5);
  add(net, "FC", IN("x", "w"), IN("h"), NULL);
  add(net, "Relu", IN("h"), IN("r"), NULL);
  add(net, "Sum", IN("r"), IN("loss"), NULL);
  return net;
}

static neap_tensor tensor_of(neap_shape shape, const float *values) {
  neap_tensor t = {0};
  CHECK_OK(neap_tensor_new(&t, NEAP_DTYPE_F32, &shape, &error));
  if (values != NULL)
    memcpy(neap_tensor_data(&t), values, (size_t)neap_tensor_elems(&t) * sizeof(float));
  return t;
}

static void feed(neap_workspace *ws, const char *name, neap_shape shape, const float *values) {
  neap_tensor t = tensor_of(shape, values);
  CHECK_OK(neap_workspace_feed(ws, name, &t, false, &error));
  neap_tensor_fini(&t);
}

static double fetch(neap_workspace *ws, const char *name, int64_t i) {
  neap_tensor t = {0};
  CHECK_OK(neap_workspace_fetch(ws, name, &t, &error));
  double v = t.storage != NULL ? neap_element_get(t.dtype, neap_tensor_data(&t), i) : NAN;
  neap_tensor_fini(&t);
  return v;
}

/* What the loss does not depend on has a gradient of zeros. */
TEST(a_gradient_by_what_the_loss_does_not_read_is_zero) {
  neap_net *net = small_net();
  declare(net, "apart", NEAP_ROLE_INPUT, NEAP_SHAPE(2), 0);
  CHECK_OK(neap_net_add_gradient(net, "loss", 2, (const char *[]){"w", "apart"},
                                 (const char *[]){NULL, "zero"}, NULL, &error));
  neap_forecast forecast = {0};
  CHECK_OK(neap_driver_plan(net, &(neap_compile_options){0}, &forecast, &error));
  neap_forecast_fini(&forecast);
  neap_net_free(net);
}

TEST(gradient_of_a_small_net_is_exact) {
  neap_net *net = small_net();
  CHECK_OK(neap_net_add_gradient(net, "loss", 1, (const char *[]){"w"}, (const char *[]){NULL},
                                 NULL, &error));
  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 1}, &ws, &error));
  CHECK_OK(neap_workspace_init(ws, net, &error));
  feed(ws, "x", NEAP_SHAPE(2, 3), (float[]){1, 2, 3, -4, -5, -6});
  CHECK_OK(neap_driver_compile(
    ws, net, &(neap_compile_options){.plan = {.policy = NEAP_POLICY_OFFSET}}, &session, &error));
  if (session != NULL) {
    CHECK_OK(neap_session_run(session, &error));
    CHECK_NEAR(fetch(ws, "loss", 0), 6.0, 0);
    for (int i = 0; i < 6; i++) CHECK_NEAR(fetch(ws, "w_grad", i), 1.0 + i % 3, 0);
  }
  neap_session_free(session);
  neap_workspace_release(ws);
  neap_net_free(net);
}

TEST(an_unused_branch_costs_nothing) {
  neap_net *net = small_net();
  add(net, "Relu", IN("h"), IN("unused"), NULL);
  CHECK_OK(neap_net_set_outputs(net, 1, (const char *[]){"loss"}, &error));
  neap_graph *graph = NULL;
  CHECK_OK(neap_graph_prepare(net, NULL, &graph, &error));
  CHECK_EQ(graph->n_node, 3);
  neap_graph_free(graph);
  neap_net_free(net);
}

TEST(a_loss_that_is_no_scalar_is_refused) {
  neap_net *net = small_net();
  neap_graph *graph = NULL;
  CHECK_OK(neap_net_add_gradient(net, "h", 1, (const char *[]){"w"}, (const char *[]){NULL}, NULL,
                                 &error));
  CHECK_FAILS(neap_graph_prepare(net, NULL, &graph, &error), NEAP_SHAPE,
              "one floating-point element");
  neap_net_free(net);
}

/* w is updated by Sgd inside the branch that is taken. */
static neap_net *if_net(void) {
  neap_net *net = NULL, *then_net = NULL, *else_net = NULL;
  CHECK_OK(neap_net_new("choice", &net, &error));
  declare(net, "x", NEAP_ROLE_INPUT, NEAP_SHAPE(2, 3), 0);
  declare(net, "c", NEAP_ROLE_INPUT, NEAP_SHAPE(1), 0);
  declare(net, "w", NEAP_ROLE_PARAMETER, NEAP_SHAPE(2, 3), 0.5);
  declare(net, "lr", NEAP_ROLE_STATE, neap_shape_of(0, NULL), 0.25);
  add(net, "FC", IN("x", "w"), IN("h"), NULL);
  CHECK_OK(neap_net_new_sub(net, "then", &then_net, &error));
  CHECK_OK(neap_net_new_sub(net, "else", &else_net, &error));
  add(then_net, "Relu", IN("w"), IN("g"), NULL);
  add(then_net, "Sgd", IN("w", "g", "lr"), IN("w"), NULL);
  add(then_net, "Relu", IN("h"), IN("y"), NULL);
  add(else_net, "Neg", IN("h"), IN("t"), NULL);
  add(else_net, "Neg", IN("t"), IN("t2"), NULL);
  add(else_net, "Neg", IN("t2"), IN("y"), NULL);
  const char *const in[] = {"w", "lr", "h"}, *const out[] = {"y", "w"};
  CHECK_OK(neap_net_set_sub_interface(then_net, 3, in, 2, out, &error));
  CHECK_OK(neap_net_set_sub_interface(else_net, 3, in, 2, out, &error));
  neap_set attrs[] = {{"then_net", {.given = true, .net = then_net}},
                      {"else_net", {.given = true, .net = else_net}},
                      {0}};
  add(net, "If", IN("c", "w", "lr", "h"), IN("y", "w"), attrs);
  CHECK_OK(neap_net_set_outputs(net, 1, (const char *[]){"y"}, &error));
  return net;
}

TEST(sgd_inside_a_branch_updates_the_parameter_under_every_policy) {
  static const neap_policy policies[] = {NEAP_POLICY_NONE, NEAP_POLICY_NAME, NEAP_POLICY_OFFSET};
  for (int p = 0; p < NEAP_COUNT(policies); p++) {
    neap_net *net = if_net();
    neap_workspace *ws = NULL;
    neap_session *session = NULL;
    CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 1}, &ws, &error));
    CHECK_OK(neap_workspace_init(ws, net, &error));
    feed(ws, "x", NEAP_SHAPE(2, 3), (float[]){1, 2, 3, -4, -5, -6});
    feed(ws, "c", NEAP_SHAPE(1), (float[]){0});
    CHECK_OK(neap_driver_compile(ws, net, &(neap_compile_options){.plan = {.policy = policies[p]}},
                                 &session, &error));
    if (session != NULL) {
      CHECK_OK(neap_session_run(session, &error));
      CHECK_NEAR(fetch(ws, "w", 0), 0.5, 0); /* not taken: unchanged */
      CHECK_NEAR(fetch(ws, "y", 0), -3.0, 0);
      feed(ws, "c", NEAP_SHAPE(1), (float[]){1});
      CHECK_OK(neap_session_run(session, &error));
      CHECK_NEAR(fetch(ws, "w", 0), 0.375, 0); /* 0.5 - 0.25 * 0.5 */
      CHECK_NEAR(fetch(ws, "y", 0), 3.0, 0);
      CHECK_NEAR(fetch(ws, "y", 2), 0.0, 0);
    }
    neap_session_free(session);
    neap_workspace_release(ws);
    neap_net_free(net);
  }
}

/* y = if c: 3 x x, else: 5 x; gradient of x is 6 x or 5. */
TEST(a_gradient_goes_through_the_branch_that_is_taken) {
  neap_net *net = NULL, *then_net = NULL, *else_net = NULL;
  CHECK_OK(neap_net_new("choice", &net, &error));
  declare(net, "x", NEAP_ROLE_PARAMETER, NEAP_SHAPE(4), 2);
  declare(net, "three", NEAP_ROLE_STATE, NEAP_SHAPE(1), 3);
  declare(net, "five", NEAP_ROLE_STATE, NEAP_SHAPE(1), 5);
  declare(net, "c", NEAP_ROLE_INPUT, NEAP_SHAPE(1), 0);
  CHECK_OK(neap_net_new_sub(net, "then", &then_net, &error));
  CHECK_OK(neap_net_new_sub(net, "else", &else_net, &error));
  add(then_net, "Mul", IN("x", "x"), IN("t"), NULL);
  add(then_net, "Mul", IN("t", "three"), IN("y"), NULL);
  add(else_net, "Mul", IN("x", "five"), IN("y"), NULL);
  const char *const in[] = {"x", "three", "five"}, *const out[] = {"y"};
  CHECK_OK(neap_net_set_sub_interface(then_net, 3, in, 1, out, &error));
  CHECK_OK(neap_net_set_sub_interface(else_net, 3, in, 1, out, &error));

  neap_set attrs[] = {{"then_net", {.given = true, .net = then_net}},
                      {"else_net", {.given = true, .net = else_net}},
                      {0}};
  add(net, "If", IN("c", "x", "three", "five"), IN("y"), attrs);
  add(net, "Sum", IN("y"), IN("loss"), NULL);
  CHECK_OK(neap_net_add_gradient(net, "loss", 1, (const char *[]){"x"}, (const char *[]){NULL},
                                 NULL, &error));

  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 1}, &ws, &error));
  CHECK_OK(neap_workspace_init(ws, net, &error));
  feed(ws, "c", NEAP_SHAPE(1), (float[]){1});
  CHECK_OK(neap_driver_compile(
    ws, net, &(neap_compile_options){.plan = {.policy = NEAP_POLICY_OFFSET}}, &session, &error));
  if (session != NULL) {
    CHECK_OK(neap_session_run(session, &error));

    /* Four elements of 2: 3 x x is 12 each, and its slope 12. */
    CHECK_NEAR(fetch(ws, "loss", 0), 48.0, 0);
    CHECK_NEAR(fetch(ws, "x_grad", 3), 12.0, 0);

    /* The other branch, by the same program. */
    feed(ws, "c", NEAP_SHAPE(1), (float[]){0});
    CHECK_OK(neap_session_run(session, &error));
    CHECK_NEAR(fetch(ws, "loss", 0), 40.0, 0);
    CHECK_NEAR(fetch(ws, "x_grad", 0), 5.0, 0);
  }
  neap_session_free(session);
  neap_workspace_release(ws);
  neap_net_free(net);
}

/* What a text says of kernels is compared with what they say, word by word. */
TEST(choices_are_recalled_only_as_the_kernels_make_them) {
  static const struct {
    const char *word, *said;
  } wrong[] = {{"blas", "stored engine is \"blas\", its kernels say \"ref\""},
               {"1", "stored algorithm"},
               {"16", "stored threads is \"16\", its kernels say \"2\""},
               {"64", "stored scratch"},
               {"-1", "stored stash"},
               {"1", "stored changed"},
               {"|x", "stored layout"},
               {"ba@0", "stored layout is \"ba@0\", its kernels say \"plain@0\""},
               {"plain@0\n", "stored layout"}};
  neap_net *net = small_net();
  neap_graph *graph = NULL;
  neap_choices choices = {0};
  neap_buffer a = {0}, b = {0};
  CHECK_OK(neap_graph_prepare(net, NULL, &graph, &error));
  CHECK_OK(neap_graph_choose(
    graph,
    &(neap_choose_options){
      .engine = NEAP_ENGINE_REF, .force = true, .n_thread = 2, .scratch_limit = SIZE_MAX},
    &choices, &error));

  /* What is printed reads back, and prints the same. */
  choices.hold_constants = true;
  neap_choices_print(&choices, graph, &a);
  choices.hold_constants = false;
  CHECK_OK(neap_choices_recall(a.text, graph, &choices, &error));
  CHECK(choices.hold_constants && !choices.no_constants && choices.recomputed.n_node == 0);
  neap_choices_print(&choices, graph, &b);
  CHECK(a.text != NULL && b.text != NULL && strcmp(a.text, b.text) == 0);

  /* The k-th word of the first node's line is another one. */
  for (int k = 0; k < NEAP_COUNT(wrong); k++) {
    neap_buffer bad = {0};
    const char *at = strstr(a.text, "ref");
    for (int skip = 0; skip < k; skip++) at += strcspn(at, " ") + 1;
    neap_buffer_add(&bad, "%.*s%s%s", (int)(at - a.text), a.text, wrong[k].word,
                    at + strcspn(at, " \n"));
    CHECK_FAILS(neap_choices_recall(bad.text, graph, &choices, &error), NEAP_PLAN, wrong[k].said);
    neap_buffer_fini(&bad);
  }

  /* The lines before the nodes, each wrong by itself; then a line too many. */
  CHECK_FAILS(neap_choices_recall("constants 1\nrecomputed 0\nref 0 1 0", graph, &choices, &error),
              NEAP_PLAN, "its stored threads");
  const char *const bad[] = {"", "constant 1\n", "constants x\n", "constants -1\nrecomputed 0\n",
                             "constants 3\nrecomputed 0\n"};
  for (int i = 0; i < NEAP_COUNT(bad); i++)
    CHECK_FAILS(neap_choices_recall(bad[i], graph, &choices, &error), NEAP_PLAN,
                "whether constants are held");
  const char *const again[] = {"constants 1\nrecomputed 2 1",
                               "constants 1\nagain -1\n",
                               "constants 1\nrecomputed 9999999\n",
                               "constants 1\n",
                               "constants 1\nrecomputed 0\nbodies 2 1\n",
                               "constants 1\nrecomputed 0\nbodies x\n"};
  for (int i = 0; i < NEAP_COUNT(again); i++)
    CHECK_FAILS(neap_choices_recall(again[i], graph, &choices, &error), NEAP_PLAN,
                "which ops run again");
  neap_buffer_add(&a, "%s", "ref 0 2 0 0 0 | >\n");
  CHECK_FAILS(neap_choices_recall(a.text, graph, &choices, &error), NEAP_PLAN,
              "more than the graph has nodes");
  neap_buffer_fini(&a);
  neap_buffer_fini(&b);
  neap_choices_fini(&choices);
  neap_graph_free(graph);
  neap_net_free(net);
}

TEST(a_backward_that_needs_an_overwritten_parameter_is_refused) {
  neap_net *net = NULL;
  neap_graph *graph = NULL;
  CHECK_OK(neap_net_new("late", &net, &error));
  declare(net, "w", NEAP_ROLE_PARAMETER, NEAP_SHAPE(3), 2);
  declare(net, "x", NEAP_ROLE_PARAMETER, NEAP_SHAPE(3), 2);
  declare(net, "lr", NEAP_ROLE_STATE, neap_shape_of(0, NULL), 0.25);
  add(net, "Mul", IN("w", "x"), IN("y"), NULL);
  add(net, "Sgd", IN("w", "x", "lr"), IN("w"), NULL);
  add(net, "Sum", IN("y"), IN("loss"), NULL);
  CHECK_OK(neap_net_add_gradient(net, "loss", 1, (const char *[]){"x"}, (const char *[]){NULL},
                                 NULL, &error));

  /* The update is a commit, so it moves behind the backward: the old version is still there. */
  CHECK_OK(neap_graph_prepare(net, NULL, &graph, &error));
  if (graph != NULL) CHECK((graph->node[graph->n_node - 1].effects & NEAP_EFFECT_COMMIT) != 0);
  neap_graph_free(graph);
  neap_net_free(net);
}

/* Its bytes are the kernel's own, and how many there are is not known while ops are read. */
/* What a commit feeds moves behind it, and Sum with it; Sum's gradient reads a shape alone and
 * stays before. Who looks for its pair looks at nodes before it. */
TEST(a_gradient_that_comes_before_its_forward_has_no_pair) {
  static const char text[] =
    "net late\ninput x f32 (2,3)\ninput c bool ()\nstate m f32 () = Constant { value = 0 }\nstate "
    "one f32 () = Constant { value "
    "= 1 }\n"
    "subnet up\n  r = Add(m, one)\n  takes m, one\n  gives r\nend\nm = If(c, m, one) { then_net = "
    "up }\n"
    "y = Add(x, m)\nloss = Sum(y)\nx_grad = Gradient(loss, x)\noutputs loss, x_grad\n";
  neap_net *net = NULL;
  neap_graph *graph = NULL;
  CHECK_OK(neap_net_read(text, &net, &error));
  CHECK_OK(neap_graph_prepare(net, NULL, &graph, &error));
  bool has_sum = false;
  for (int n = 0; graph != NULL && n < graph->n_node; n++) {
    CHECK(graph->node[n].forward >= 0 && graph->node[n].forward <= n);
    if (strcmp(graph->node[n].op->name, "Sum") == 0) has_sum = true;
    if (strcmp(graph->node[n].op->name, "SumGrad") == 0)
      CHECK(!has_sum && graph->node[n].forward == n);
  }
  CHECK(has_sum);
  neap_graph_free(graph);
  neap_net_free(net);
}

/* Whether an edge leads from node `a` to node `b`. */
static bool has_edge(const neap_graph *graph, int a, int b) {
  for (int e = 0; e < graph->n_edge; e++)
    if (graph->edge[e].from == a && graph->edge[e].to == b) return true;
  return false;
}

TEST(every_check_has_an_edge_to_every_commit_and_a_free_stands_behind_its_readers) {
  static const char text[] =
    "net f\ninput x f32 (4)\ninput z f32 (4)\ninput lr f32 ()\nparam w f32 (4)\nparam v f32 "
    "(4)\nh = Exp(z)\nw = Sgd(w, h, lr)\nv = Sgd(v, x, lr)\nFree(h)\na = CheckFinite(x)\nb = "
    "CheckFinite(z)\noutputs a, b\n";
  neap_net *net = NULL;
  neap_graph *graph = NULL;
  CHECK_OK(neap_net_read(text, &net, &error));
  CHECK_OK(neap_graph_prepare(net, NULL, &graph, &error));
  int n_pair = 0, reader = -1, release = -1;
  for (int n = 0; graph != NULL && n < graph->n_node; n++) {
    const char *type = graph->node[n].op->name;
    if (strcmp(type, "Free") == 0) release = n;
    if (strcmp(type, "Sgd") != 0) continue;
    if (reader < 0) reader = n;
    for (int f = 0; f < n; f++)
      if (strcmp(graph->node[f].op->name, "CheckFinite") == 0 && has_edge(graph, f, n)) n_pair++;
  }
  CHECK_EQ(n_pair, 4);
  CHECK(reader >= 0 && release > reader && has_edge(graph, reader, release));
  neap_graph_free(graph);
  neap_net_free(net);
}

TEST(a_stash_is_read_by_its_backward_alone) {
  static const char *const readers[] = {"z = Copy(q)", "z = Add(q, q)", "z = Cast(q) { to = f32 }"};
  for (int i = 0; i < NEAP_COUNT(readers); i++) {
    neap_net *net = NULL;
    neap_graph *graph = NULL;
    CHECK_OK(neap_net_new("n", &net, &error));
    CHECK_OK(neap_net_add_text(
      net, &error, "input x f32 (64)\ny, q = Dropout(x) { rate = 0.5 }\n%s\noutputs y, z\n",
      readers[i]));
    CHECK_FAILS(neap_graph_prepare(net, NULL, &graph, &error), NEAP_GRAPH,
                "keeps for its backward");
    CHECK(graph == NULL);
    neap_net_free(net);
  }
}

TEST(refused_choices_leave_nothing) {
  neap_net *net = small_net();
  neap_graph *graph = NULL;
  CHECK_OK(neap_graph_prepare(net, NULL, &graph, &error));
  bool done = false;
  for (int64_t n = 1; !done && check_failures == 0; n++) {
    int64_t live = neap_memory_read().n_live;
    neap_choices choices;
    neap_memory_fail_nth_block(n);
    neap_status status = neap_graph_choose(
      graph, &(neap_choose_options){.n_thread = 1, .scratch_limit = SIZE_MAX}, &choices, NULL);
    done = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    CHECK(done ? status == NEAP_OK : status == NEAP_MEMORY);
    if (status == NEAP_OK) neap_choices_fini(&choices);
    CHECK_EQ(neap_memory_read().n_live, live);
  }
  neap_graph_free(graph);
  neap_net_free(net);
}

/* y (n,300) = x (n,300) w^T, then y tanh(w): oneDNN multiplies few rows by another algorithm than
 * many. */
static neap_graph *product_of(int64_t n) {
  neap_net *net = NULL;
  neap_graph *graph = NULL;
  CHECK_OK(neap_net_new("product", &net, &error));
  declare(net, "x", NEAP_ROLE_INPUT, NEAP_SHAPE(n, 300), 0);
  declare(net, "w", NEAP_ROLE_PARAMETER, NEAP_SHAPE(300, 300), 0.5);
  add(net, "FC", IN("x", "w"), IN("y"), NULL);
  add(net, "Tanh", IN("w"), IN("t"), NULL);
  add(net, "MatMul", IN("y", "t"), IN("z"), NULL);
  CHECK_OK(neap_graph_prepare(net, NULL, &graph, &error));
  neap_net_free(net);
  return graph;
}

TEST(choices_like_those_of_a_larger_batch_have_their_algorithms) {
  neap_graph *large = product_of(512), *small = product_of(2);
  neap_choices by_large = {0}, alone = {0}, alike = {0};
  neap_choose_options options = {.n_thread = 1, .scratch_limit = SIZE_MAX};
  CHECK_OK(neap_graph_choose(large, &options, &by_large, &error));
  CHECK_OK(neap_graph_choose(small, &options, &alone, &error));
  options.like = &by_large;
  CHECK_OK(neap_graph_choose(small, &options, &alike, &error));
  if (neap_engine_at(NEAP_ENGINE_DNNL)->missing() == NULL)
    CHECK(alone.choice[0].algorithm != by_large.choice[0].algorithm);
  for (int i = 0; i < alike.n; i++)
    CHECK_EQ(alike.choice[i].algorithm, by_large.choice[i].algorithm);
  neap_choices_fini(&by_large), neap_choices_fini(&alone), neap_choices_fini(&alike);
  neap_graph_free(large), neap_graph_free(small);
}

/* Two sizes of one net have one form; whatever else differs, one thing at a time, makes another. */
TEST(a_form_is_all_but_sizes) {
  neap_graph *large = product_of(512), *small = product_of(2);
  CHECK_OK(neap_graph_check_form(small, large, &error));
  for (int k = 0; k < 10; k++) {
    neap_value *value = &small->value[small->output[0]], was = *value;
    if (k == 0) value->keep = !was.keep;
    if (k == 1) value->node--;
    if (k == 2) value->role = NEAP_ROLE_STATE;
    if (k == 3)
      value->region = NEAP_REGION_ARENA == was.region ? NEAP_REGION_IO : NEAP_REGION_ARENA;
    if (k == 4) value->is_stash = !was.is_stash;
    if (k == 5) value->position++;
    if (k == 6) value->root--;
    if (k == 7) value->argument++;
    if (k == 8) value->type.dtype = NEAP_DTYPE_F64;
    if (k == 9) value->type.shape.n_dim--;
    CHECK_FAILS(neap_graph_check_form(small, large, &error), NEAP_GRAPH, "of another kind");
    *value = was;
  }
  CHECK_OK(neap_graph_check_form(small, large, &error));
  neap_graph_free(large), neap_graph_free(small);
}

TEST(what_depends_on_parameters_alone_is_constant_unless_that_is_refused) {
  neap_graph *graph = product_of(2), *laid = NULL;
  neap_choices choices = {0};
  CHECK_OK(neap_graph_choose(
    graph, &(neap_choose_options){.n_thread = 1, .scratch_limit = SIZE_MAX}, &choices, &error));
  for (int refused = 0; refused < 2; refused++) {
    int n_constant = 0;
    choices.no_constants = refused;
    CHECK_OK(neap_graph_lay_out(graph, &choices, &laid, &error));
    for (int v = 0; v < laid->n_value; v++)
      n_constant += laid->value[v].region == NEAP_REGION_CONSTANT;
    CHECK(refused ? n_constant == 0 : n_constant > 0);
    neap_graph_free(laid);
  }
  neap_choices_fini(&choices);
  neap_graph_free(graph);
}

/* What the branch writes over is the owner's: it writes a copy, and where that is refused memory,
 * the error says so. */
TEST(refused_memory_is_told_by_an_error) {
  neap_net *net = NULL;
  neap_graph *graph = NULL;
  CHECK_OK(neap_net_read(
    "net f\ninput c f32 (1)\ninput x f32 (4)\nh = Tanh(x)\nsubnet yes\n  h = RunningAverage(h, x) "
    "as mean\n"
    "  takes h, x\n  gives h\nend\nsubnet no\n  z = Neg(h)\n  takes h, x\n  gives z\nend\n"
    "y = If(c, h, x) { then_net = yes, else_net = no }\noutputs y\n",
    &net, &error));
  bool done = false;
  for (int64_t n = 1; !done && check_failures == 0; n++) {
    int64_t live = neap_memory_read().n_live;
    neap_error error = {0};
    neap_memory_fail_nth_block(n);
    neap_status status = neap_graph_prepare(net, NULL, &graph, &error);
    done = !neap_memory_failed();
    neap_memory_fail_nth(0, false);
    CHECK_EQ(status, done ? NEAP_OK : NEAP_MEMORY);
    CHECK_EQ(error.code, status);
    if (done) {
      bool copies = false;
      for (int i = 0; i < graph->n_node; i++)
        for (int k = 0; k < graph->node[i].n_sub; k++)
          copies = copies || strcmp(graph->node[i].sub[k]->node[0].op->name, "Copy") == 0;
      CHECK(copies);
      neap_graph_free(graph);
    }
    if (status != NEAP_OK) CHECK_EQ(neap_memory_read().n_live, live);
  }
  neap_net_free(net);
}

TEST(a_type_is_that_of_a_blob_which_is_there) {
  neap_net *net = small_net();
  neap_type type;
  CHECK_OK(neap_graph_type(net, NULL, "w", &type, &error));
  CHECK(type.dtype == NEAP_DTYPE_F32 && type.shape.n_dim == 2 && type.shape.dim[0] == 2 &&
        type.shape.dim[1] == 3);
  CHECK_FAILS(neap_graph_type(net, NULL, "nobody", &type, &error), NEAP_NAME,
              "has no blob \"nobody\"");
  neap_net_free(net);
}

int main(int argc, char **argv) {
  return RUN(
    argc, argv, T(a_gradient_by_what_the_loss_does_not_read_is_zero),
    T(gradient_of_a_small_net_is_exact), T(an_unused_branch_costs_nothing),
    T(a_loss_that_is_no_scalar_is_refused),
    T(sgd_inside_a_branch_updates_the_parameter_under_every_policy),
    T(a_gradient_goes_through_the_branch_that_is_taken),
    T(choices_are_recalled_only_as_the_kernels_make_them),
    T(a_backward_that_needs_an_overwritten_parameter_is_refused),
    T(every_check_has_an_edge_to_every_commit_and_a_free_stands_behind_its_readers),
    T(a_stash_is_read_by_its_backward_alone),
    T(a_gradient_that_comes_before_its_forward_has_no_pair), T(refused_choices_leave_nothing),
    T(choices_like_those_of_a_larger_batch_have_their_algorithms), T(a_form_is_all_but_sizes),
    T(what_depends_on_parameters_alone_is_constant_unless_that_is_refused),
    T(a_type_is_that_of_a_blob_which_is_there), T(refused_memory_is_told_by_an_error));
}
