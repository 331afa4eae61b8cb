/* test_api_recycle.c: memonger from C, by neap.h alone: names recycled under options, Frees,
 * estimates, live ranges, assignments, renaming, comparing. Every planned net is run and its bits
 * compared with those of the unplanned one. */
#include "check.h"
#include "neap.h"

#include <stdlib.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__})

static const char chain_text[] =
  "net chain\n"
  "input x f32 (4,8)\n"
  "input label i32 (4)\n"
  "param w1 f32 (8,8) = Xavier\n"
  "param w2 f32 (8,8) = Xavier\n"
  "param w3 f32 (8,8) = Xavier\n"
  "a = FC(x, w1)\n"
  "ra = Tanh(a)\n"
  "b = FC(ra, w2)\n"
  "rb = Relu(b)\n"
  "c = FC(rb, w3)\n"
  "rc = Tanh(c)\n"
  "loss = SoftmaxCrossEntropy(rc, label)\n"
  "outputs loss\n";

/* x -> wide branches, of which the definition order holds all at once. */
static const char wide_text[] =
  "net wide\ninput x f32 (4,8)\n"
  "a1 = Relu(x)\na2 = Tanh(x)\na3 = Sigmoid(x)\na4 = Exp(x)\n"
  "s1 = Sum(a1) { axes = {0, 1} }\ns2 = Sum(a2) { axes = {0, 1} }\ns3 = Sum(a3) { axes = {0, 1} "
  "}\ns4 = Sum(a4) { axes = {0, 1} "
  "}\n"
  "t1 = Add(s1, s2)\nt2 = Add(s3, s4)\ny = Add(t1, t2)\noutputs y\n";

/* A training step through `middle`, which makes m (4,8) of h (4,8), w (8,8) and the condition c. */
static neap_net *trained(const char *middle) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_new("trained", &net, &error));
  CHECK_OK(neap_net_add_text(
    net, &error,
    "input x f32 (4,8)\ninput label i32 (4)\ninput c f32 (1)\nparam w f32 (8,8) = Xavier\n"
    "h1 = Tanh(x)\nh2 = Relu(h1)\nh3 = Tanh(h2)\nh = Copy(h3)\n%s"
    "m1 = Tanh(m)\nm2 = Relu(m1)\nm3 = Copy(m2)\nloss = SoftmaxCrossEntropy(m3, label)\noutputs "
    "loss\n",
    middle));
  CHECK_OK(neap_net_add_gradient(net, "loss", 0, NULL, NULL, NULL, &error));
  return net;
}

static const char if_text[] =
  "subnet yes\n  p = Tanh(h)\n  q = MatMul(p, w)\n  takes h, w\n  gives q\nend\n"
  "subnet no\n  p = Relu(h)\n  takes h, w\n  gives p\nend\n"
  "m = If(c, h, w) { then_net = yes, else_net = no }\n";

static const char recurrent_text[] =
  "x3 = Reshape(h) { shape = {2, 2, 8} }\nz = Sum(x3) { axes = {0} }\n"
  "subnet step\n  input s\n  input r\n  p = MatMul(s, w)\n  q = Add(p, r)\n  o = Tanh(q)\n  takes "
  "s, r, w\n  gives o\nend\n"
  "last = Recurrent(z, x3, w) { step_net = step, n_state = 1, n_seq = 1 }\n"
  "two = Concat(last, last) { axis = 0 }\nm = Copy(two)\n";

static neap_net *net_of(const char *text) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_read(text, &net, &error));
  return net;
}

static neap_net *training_chain(void) {
  neap_net *net = net_of(chain_text);
  CHECK_OK(neap_net_add_gradient(net, "loss", 0, NULL, NULL, NULL, &error));
  return net;
}

/* One run; `n` floats of blob `name` into `out`. */
static void run(const neap_net *net, const char *policy, bool dag, const char *name, int64_t n,
                float *out) {
  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  float x[32], c = 1;
  for (int i = 0; i < 32; i++) x[i] = (float)(i % 7) / 4 - 0.7f;
  const int32_t label[4] = {0, 3, 1, 7};
  CHECK_OK(neap_workspace_open(5, &ws, &error));
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){4, 8}, x, &error));
  CHECK_OK(neap_workspace_write(ws, "label", NEAP_DTYPE_I32, 1, (int64_t[]){4}, label, &error));
  CHECK_OK(neap_workspace_write(ws, "c", NEAP_DTYPE_F32, 1, (int64_t[]){1}, &c, &error));
  neap_options options = {
    .policy = policy, .engine = "ref", .executor = dag ? "dag" : NULL, .threads = dag ? 2 : 0};
  CHECK_OK(neap_session_open(ws, net, &options, &session, &error));
  if (session != NULL) {
    CHECK_OK(neap_session_run(session, &error));
    CHECK_OK(neap_workspace_read(ws, name, NEAP_DTYPE_F32, n, out, &error));
  }
  neap_session_free(session);
  neap_workspace_release(ws);
}

/* Both nets give the same bits of a blob, the one unplanned, the other under `policy`. */
static void check_same_run(const neap_net *net, const neap_net *planned, const char *policy,
                           bool dag, const char *name, int64_t n) {
  float a[64] = {0}, b[64] = {1};
  run(net, "none", dag, name, n, a);
  run(planned, policy, dag, name, n, b);
  CHECK_EQ(memcmp(a, b, (size_t)n * sizeof *a), 0);
}

static int count(const char *text, const char *word) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word)) n++;
  return n;
}

static int count_in(const neap_net *net, const char *word) {
  char *text = NULL;
  CHECK_OK(neap_net_text(net, &text, &error));
  int n = text != NULL ? count(text, word) : -1;
  neap_free(text);
  return n;
}

static bool same_text(const neap_net *a, const neap_net *b) {
  char *x = NULL, *y = NULL;
  CHECK_OK(neap_net_text(a, &x, &error));
  CHECK_OK(neap_net_text(b, &y, &error));
  bool same = x != NULL && y != NULL && strcmp(x, y) == 0;
  neap_free(x), neap_free(y);
  return same;
}

/* ---- recycling ------------------------------------------------------------------------------- */

TEST(gradients_share_and_activations_too_when_asked) {
  neap_net *net = training_chain();
  for (int dag = 0; dag < 2; dag++) {
    neap_recycle_figures all = {0}, gradients = {0};
    neap_net *fewer = NULL, *fewest = NULL;
    neap_recycle_options o = {.dag = dag,
                              .prefix = "g/",
                              .gradients_only = true,
                              .keep_last = 2,
                              .n_head = 1,
                              .head = NAMES("loss")};
    CHECK_OK(neap_net_recycle(net, &o, &fewer, &gradients, &error));
    o.gradients_only = false;
    CHECK_OK(neap_net_recycle(net, &o, &fewest, &all, &error));
    CHECK(gradients.n_shared > 0 && all.n_shared > 0);
    CHECK(all.planned_bytes < gradients.planned_bytes &&
          gradients.planned_bytes < gradients.baseline_bytes);
    CHECK(all.lower_bound_bytes <= all.planned_bytes &&
          gradients.lower_bound_bytes <= gradients.planned_bytes);
    CHECK_EQ(all.baseline_bytes, gradients.baseline_bytes);
    CHECK(all.saved > gradients.saved && all.saved < 1);
    CHECK(count_in(fewer, "g/shared_1") > 0);
    /* Activations keep their names in the first; in the second the last two layers do. */
    CHECK(count_in(fewer, "ra = ") == 1 && count_in(fewer, "rb = ") == 1);
    CHECK(count_in(fewest, "\nc = ") == 1 && count_in(fewest, "\nb = ") == 1 &&
          count_in(fewest, "\na = ") == 0);
    check_same_run(net, fewer, "name", dag, "w1_grad", 64);
    check_same_run(net, fewest, "name", dag, "w1_grad", 64);
    check_same_run(net, fewest, "name", dag, "loss", 1);
    neap_net_free(fewer), neap_net_free(fewest);
  }
  neap_net_free(net);
}

TEST(who_shares_is_the_callers_choice) {
  neap_net *net = net_of(chain_text), *made = NULL;
  CHECK_OK(neap_net_recycle(net, &(neap_recycle_options){.n_op = 3, .op = (int[]){0, 1, 2}}, &made,
                            NULL, &error));
  CHECK(count_in(made, "rb = ") == 1 && count_in(made, "rc = ") == 1 &&
        count_in(made, "\na = ") == 0);
  neap_net_free(made);
  CHECK_OK(neap_net_recycle(net,
                            &(neap_recycle_options){.n_shareable = 2, .shareable = NAMES("a", "b")},
                            &made, NULL, &error));
  CHECK(count_in(made, "ra = ") == 1 && count_in(made, "rb = ") == 1 &&
        count_in(made, "shared_1 = FC") == 2);
  check_same_run(net, made, "name", false, "loss", 1);
  neap_net_free(made);
  CHECK_OK(neap_net_recycle(
    net, &(neap_recycle_options){.n_dont_share = 2, .dont_share = NAMES("a", "rb")}, &made, NULL,
    &error));
  CHECK(count_in(made, "\na = ") == 1 && count_in(made, "rb = ") == 1);
  neap_net_free(made);
  neap_net_free(net);
}

TEST(wrong_options_say_what_and_leave_everything) {
  neap_net *net = training_chain(), *made = NULL;
  char *before = NULL, *after = NULL;
  CHECK_OK(neap_net_text(net, &before, &error));
  CHECK_FAILS(
    neap_net_recycle(net, &(neap_recycle_options){.n_dont_share = 1, .dont_share = NAMES("los")},
                     &made, NULL, &error),
    NEAP_NAME, "dont_share: blob \"los\" is not defined here, did you mean \"loss\"");
  CHECK_FAILS(
    neap_net_recycle(net, &(neap_recycle_options){.n_shareable = 1, .shareable = NAMES("zz")},
                     &made, NULL, &error),
    NEAP_NAME, "shareable");
  CHECK_FAILS(neap_net_recycle(net, &(neap_recycle_options){.n_head = 1, .head = NAMES("zz")},
                               &made, NULL, &error),
              NEAP_NAME, "head");
  CHECK_FAILS(neap_net_recycle(net, &(neap_recycle_options){.n_op = 1, .op = (int[]){9999}}, &made,
                               NULL, &error),
              NEAP_ARGUMENT, "got number 10000");
  CHECK_FAILS(
    neap_net_recycle(net, &(neap_recycle_options){.order = "shortest"}, &made, NULL, &error),
    NEAP_ARGUMENT, "got \"shortest\"");
  CHECK_FAILS(neap_net_release_when_used(net, 1, NAMES("zz"), &made, NULL, NULL, &error), NEAP_NAME,
              "zz");
  CHECK(made == NULL);
  CHECK_OK(neap_net_text(net, &after, &error));
  CHECK_EQ(strcmp(before, after), 0);
  neap_free(before), neap_free(after);
  neap_net_free(net);
}

TEST(another_order_needs_fewer_bytes_and_computes_the_same) {
  neap_net *net = net_of(wide_text), *plain = NULL, *least = NULL;
  neap_recycle_figures a = {0}, b = {0};
  int order[16], seen[16] = {0};
  CHECK_OK(neap_net_recycle(net, NULL, &plain, &a, &error));
  CHECK_OK(
    neap_net_recycle(net, &(neap_recycle_options){.order = "least_memory"}, &least, &b, &error));
  CHECK(b.planned_bytes < a.planned_bytes);
  check_same_run(net, plain, "name", false, "y", 1);
  check_same_run(net, least, "name", false, "y", 1);
  CHECK_OK(neap_net_sort(net, "longest_path", order, &error));
  for (int i = 0; i < 11; i++) seen[order[i]]++;
  for (int i = 0; i < 11; i++) CHECK_EQ(seen[i], 1);
  neap_net_free(net), neap_net_free(plain), neap_net_free(least);
  net = training_chain();
  CHECK_FAILS(neap_net_sort(net, "least_memory", order, &error), NEAP_ARGUMENT, "Gradient");
  neap_net_free(net);
}

TEST(an_exact_search_ends_the_same_way_in_every_run) {
  neap_net *net = training_chain();
  for (int64_t most = 1; most <= 100000; most *= 100) {
    neap_recycle_figures greedy = {0}, first = {0}, second = {0};
    neap_net *a = NULL, *b = NULL, *c = NULL;
    neap_recycle_options o = {.exact = true, .most_steps = most};
    CHECK_OK(neap_net_recycle(net, NULL, &c, &greedy, &error));
    CHECK_OK(neap_net_recycle(net, &o, &a, &first, &error));
    CHECK_OK(neap_net_recycle(net, &o, &b, &second, &error));
    CHECK(same_text(a, b));
    CHECK(first.planned_bytes <= greedy.planned_bytes &&
          first.lower_bound_bytes <= first.planned_bytes);
    CHECK_EQ(first.proved, second.proved);
    neap_net_free(a), neap_net_free(b), neap_net_free(c);
  }
  neap_net_free(net);
}

TEST(training_through_subnets_shares_too) {
  const char *const middles[] = {if_text, recurrent_text};
  for (int k = 0; k < 2; k++) {
    neap_net *net = trained(middles[k]);
    for (int dag = 0; dag < 2; dag++) {
      neap_net *planned = NULL, *again = NULL;
      neap_recycle_figures figures = {0};
      CHECK_OK(
        neap_net_recycle(net, &(neap_recycle_options){.dag = dag}, &planned, &figures, &error));
      CHECK(figures.n_shared > 0 && figures.planned_bytes < figures.baseline_bytes);
      CHECK(figures.lower_bound_bytes <= figures.planned_bytes);
      check_same_run(net, planned, "name", dag, "w_grad", 64);
      check_same_run(net, planned, "offset", dag, "w_grad", 64);
      check_same_run(net, planned, "name", dag, "loss", 1);
      CHECK_OK(
        neap_net_recycle(planned, &(neap_recycle_options){.dag = dag}, &again, NULL, &error));
      check_same_run(net, again, "name", dag, "w_grad", 64);
      neap_net_free(planned), neap_net_free(again);
    }
    neap_net_free(net);
  }
}

/* A chain has one order, so that a dag asks for no more names than the definition order does,
 * however long the chain. */
TEST(a_chain_of_any_length_shares_as_much_in_a_dag) {
  for (int n_op = 60; n_op < 70; n_op++) {
    neap_net *net = net_of("net long\ninput x f32 (4,8)\na0 = Tanh(x)\n"), *planned = NULL;
    for (int i = 1; i < n_op; i++)
      CHECK_OK(neap_net_add_text(net, &error, "a%d = Tanh(a%d)\n", i, i - 1));
    neap_recycle_figures figures[2] = {0};
    for (int dag = 0; dag < 2; dag++) {
      neap_recycle_options o = {.dag = dag};
      CHECK_OK(neap_net_recycle(net, &o, &planned, &figures[dag], &error));
      neap_net_free(planned);
    }
    CHECK(figures[0].planned_bytes < figures[0].baseline_bytes);
    CHECK_EQ(figures[1].planned_bytes, figures[0].planned_bytes);
    CHECK_EQ(figures[1].n_shared, figures[0].n_shared);
    neap_net_free(net);
  }
}

/* The expanded net of a loop with its LoopGradient line replaced by `line`. */
static void check_refused(const char *line, neap_status status, const char *words) {
  neap_net *net = trained(recurrent_text), *expanded = NULL, *wrong = NULL;
  char *text = NULL, *made = NULL;
  neap_figures figures;
  CHECK_OK(neap_net_expand(net, NULL, &expanded, &error));
  CHECK_OK(neap_net_text(expanded, &text, &error));
  char *at = text != NULL ? strstr(text, " = LoopGradient(") : NULL;
  CHECK(at != NULL);
  if (at != NULL) {
    char *end = strchr(at, '\n');
    made = malloc(strlen(text) + strlen(line) + 1);
    sprintf(made, "%.*s%s%s", (int)(at - text), text, line, end);
    CHECK_OK(neap_net_read(made, &wrong, &error));
    CHECK_FAILS(neap_net_forecast(wrong, NULL, &figures, NULL, &error), status, words);
  }
  free(made);
  neap_free(text);
  neap_net_free(net), neap_net_free(expanded), neap_net_free(wrong);
}

TEST(a_backward_op_that_does_not_fit_its_loop_is_refused) {
  check_refused(" = LoopGradient(two.grad) { wrt = {2} } as g back nobody", NEAP_GRAPH,
                "no loop \"nobody\"");
  check_refused(" = LoopGradient(two.grad) { wrt = {2} } as g back _", NEAP_GRAPH, "no loop");
  check_refused(" = LoopGradient(z) { wrt = {9} } as g back last", NEAP_ATTRIBUTE, "no input 9");
  check_refused(" = LoopGradient(z) { wrt = {0, 2} } as g back last", NEAP_GRAPH,
                "gives 2 gradients");
  check_refused(" = LoopGradient(z, h1) { wrt = {2} } as g back last", NEAP_GRAPH,
                "\"h1\" is not what the loop was given");
  check_refused(" = LoopGradient(z, last) { wrt = {2} } as g back last", NEAP_GRAPH,
                "\"last\" is not what the loop was given");
  check_refused(" = LoopGradient(z, x) { wrt = {2} } as g back last", NEAP_GRAPH,
                "\"x\" is not what the loop was given");
  check_refused(" = LoopGradient(h) { wrt = {2} } as g back last", NEAP_SHAPE,
                "the gradient of result 1 has another type than the result");
  check_refused(" = LoopGradient(z) { wrt = {2} } as g back z", NEAP_GRAPH, "expects a loop");
}

/* ---- Free and estimates ---------------------------------------------------------------------- */

TEST(one_free_stands_behind_each_last_reader) {
  neap_net *net = net_of(
    "net f\ninput x f32 (4,8)\na = Relu(x)\nb = Tanh(a)\nc = Add(a, b)\nv = Alias(c)\ny = "
    "Exp(v)\noutputs y\n");
  neap_net *released = NULL, *kept = NULL, *again = NULL;
  int n = -1;
  CHECK_OK(neap_net_release_when_used(net, 0, NULL, &released, NULL, &n, &error));
  CHECK_EQ(n, 2); /* a and b; c is looked at by v, y is an output */
  CHECK_EQ(count_in(released, "Free("), 2);
  CHECK_EQ(count_in(released, "Free(a)"), 1);
  const char *const policies[] = {"none", "name", "offset", "pool"};
  for (int p = 0; p < 4; p++) check_same_run(net, released, policies[p], false, "y", 32);
  check_same_run(net, released, "offset", true, "y", 32);
  CHECK_OK(neap_net_release_when_used(released, 0, NULL, &again, NULL, &n, &error));
  CHECK_EQ(n, 0);
  CHECK(same_text(released, again));
  CHECK_OK(neap_net_release_when_used(net, 1, NAMES("a"), &kept, NULL, NULL, &error));
  CHECK_EQ(count_in(kept, "Free(a)"), 0);
  CHECK_EQ(count_in(kept, "Free(b)"), 1);
  neap_net_free(net), neap_net_free(released), neap_net_free(kept), neap_net_free(again);
}

TEST(a_backward_pass_is_written_out_and_freed) {
  neap_net *net = training_chain(), *released = NULL;
  int n = 0;
  CHECK_OK(neap_net_release_when_used(net, 0, NULL, &released, NULL, &n, &error));
  CHECK(n > 6);
  CHECK_EQ(count_in(released, "Free("), n);
  check_same_run(net, released, "pool", false, "w1_grad", 64);
  check_same_run(net, released, "offset", true, "w1_grad", 64);
  neap_net_free(net), neap_net_free(released);
}

TEST(an_estimate_counts_what_is_made_and_what_free_gives_back) {
  neap_net *net =
             net_of("net f\ninput x f32 (4,8)\na = Relu(x)\nb = Tanh(a)\ny = Relu(b)\noutputs y\n"),
           *released = NULL;
  neap_memory_estimate e;
  CHECK_OK(neap_net_estimate_memory(1, (const neap_net *[]){net}, NULL, NULL, &e, &error));
  CHECK_EQ(e.total_bytes, 3 * 128);
  CHECK_EQ(e.high_bytes, 3 * 128);
  CHECK_EQ(e.n_type, 2);
  CHECK(strcmp(e.by_type[0].type, "Relu") == 0 && e.by_type[0].bytes == 256 &&
        e.by_type[1].bytes == 128);
  neap_free(e.by_type);
  CHECK_OK(neap_net_release_when_used(net, 0, NULL, &released, NULL, NULL, &error));
  CHECK_OK(
    neap_net_estimate_memory(2, (const neap_net *[]){released, net}, NULL, NULL, &e, &error));
  CHECK_EQ(e.total_bytes, 5 * 128); /* y of the first is y of the second */
  CHECK_EQ(e.high_bytes, 3 * 128);
  neap_free(e.by_type);
  CHECK_OK(neap_net_estimate_memory(1, (const neap_net *[]){net}, "cpu:1", NULL, &e, &error));
  CHECK(e.total_bytes == 0 && e.high_bytes == 0 && e.n_type == 0);
  neap_free(e.by_type);
  neap_net_free(net), neap_net_free(released);
}

/* ---- ranges and assignments ------------------------------------------------------------------ */

TEST(live_ranges_are_the_planners) {
  neap_net *net = net_of(
    "net f\ninput x f32 (4,8)\na = Relu(x)\nb = Tanh(a)\nc = Add(a, b)\ny = Exp(c)\noutputs y\n");
  neap_live_range *range = NULL;
  int n = 0;
  CHECK_OK(neap_net_live_ranges(net, &range, &n, &error));
  CHECK_EQ(n, 5);
  const struct {
    const char *name;
    int first, last;
    bool fixed;
  } want[] = {{"x", -1, 0, true},
              {"a", 0, 2, false},
              {"b", 1, 2, false},
              {"c", 2, 3, false},
              {"y", 3, 3, true}};
  for (int i = 0; i < n && i < 5; i++) {
    CHECK_EQ(strcmp(range[i].name, want[i].name), 0);
    CHECK_EQ(range[i].first, want[i].first);
    CHECK_EQ(range[i].last, want[i].last);
    CHECK_EQ(range[i].fixed != NULL, want[i].fixed);
    CHECK_EQ(range[i].bytes, 128);
    CHECK_EQ(range[i].dtype, NEAP_DTYPE_F32);
  }
  neap_free(range);
  neap_net_free(net);
}

TEST(interference_is_who_reads_what_who_wrote) {
  neap_net *net = net_of(
    "net f\ninput x f32 (2)\na = Relu(x) as o1\na = Tanh(a) as o2\nb = Exp(x) as o3\ny = Add(a, b) "
    "as o4\noutputs y\n");
  int n = 0, (*pair)[2] = NULL;
  const int want[][2] = {{0, 1}, {0, 3}, {1, 3}, {2, 3}};
  CHECK_OK(neap_net_interference(net, &n, &pair, &error));
  CHECK_EQ(n, 4);
  CHECK(n == 4 && memcmp(pair, want, sizeof want) == 0);
  neap_free(pair);
  neap_net_free(net);
}

TEST(an_assignment_is_small_measured_and_verified) {
  /* Put in order of definition, b2 would take b1's slot and b3 a new one of 10. */
  const neap_assign_item item[] = {
    {.bytes = 10, .first = 1, .last = 2, .name = "b1"},
    {.bytes = 1, .first = 4, .last = 6, .name = "b2"},
    {.bytes = 10, .first = 5, .last = 6, .name = "b3"},
    {.bytes = (int64_t)1 << 40, .class_id = 1, .first = 7, .last = 7, .name = "big"}};
  const neap_assign_options exact = {.exact = true};
  int slot[4];
  neap_assign_figures f = {0}, again = {0};
  for (int k = 0; k < 2; k++) {
    CHECK_OK(neap_assign(3, item, k ? &exact : NULL, slot, &f, &error));
    CHECK_EQ(f.bytes, 11);
    CHECK_EQ(f.baseline_bytes, 21);
    CHECK_EQ(f.lower_bound_bytes, 11);
    CHECK_EQ(f.n_slot, 2);
    CHECK(f.proved && slot[0] == slot[2] && slot[0] == 0 && slot[1] == 1);
  }
  CHECK_OK(neap_assign(4, item, NULL, slot, &f, &error));
  CHECK(slot[3] != slot[0] && slot[3] != slot[1]); /* of another class */
  CHECK_EQ(f.bytes, 11 + ((int64_t)1 << 40));
  CHECK_OK(neap_assign_verify(4, item, NULL, slot, &error));
  CHECK_OK(neap_assign_measure(4, item, slot, &again, &error));
  CHECK_EQ(again.bytes, f.bytes);
  CHECK_FAILS(neap_assign_verify(3, item, NULL, (int[]){0, 1, 1}, &error), NEAP_PLAN,
              "\"b2\" (ops 4 to 6) is alive when \"b3\"");
  CHECK_FAILS(neap_assign_verify(4, item, NULL, (int[]){0, 1, -1, 0}, &error), NEAP_PLAN,
              "different classes");

  /* By a matrix: nobody may share with the first. */
  const uint64_t conflict[3] = {6, 1, 1};
  CHECK_OK(neap_assign(3, item, &(neap_assign_options){.conflict = conflict, .n_word = 1}, slot, &f,
                       &error));
  CHECK(slot[0] != slot[1] && slot[1] == slot[2]);
  CHECK_EQ(f.bytes, 20);
  CHECK_OK(neap_assign(0, NULL, NULL, slot, &f, &error));
  CHECK(f.bytes == 0 && f.n_slot == 0);
}

TEST(sizes_that_are_none_are_refused) {
  int slot[2] = {7, 7};
  neap_assign_figures f = {0};
  const neap_assign_item negative[] = {{.bytes = -1, .name = "n"}},
                         huge[] = {{.bytes = INT64_MAX}, {.bytes = 1}};
  CHECK_FAILS(neap_assign(1, negative, NULL, slot, &f, &error), NEAP_ARGUMENT,
              "\"n\" has -1 bytes");
  CHECK_FAILS(neap_assign(2, huge, NULL, slot, &f, &error), NEAP_ARGUMENT,
              "more bytes than can be counted");
  CHECK_EQ(slot[0], 7);
  CHECK_FAILS(neap_assign_measure(1, huge, (int[]){3}, &f, &error), NEAP_ARGUMENT, "slot 4");
  CHECK_FAILS(neap_assign_verify(1, negative, NULL, (int[]){0}, &error), NEAP_ARGUMENT,
              "\"n\" has -1 bytes");
  CHECK_FAILS(neap_assign_verify(1, huge, NULL, (int[]){3}, &error), NEAP_ARGUMENT, "slot 4");
  const neap_assign_item twice[] = {{.bytes = 1, .first = 1, .last = 1, .name = "t"},
                                    {.bytes = 1, .first = 5, .last = 6, .name = "t"}};
  CHECK_FAILS(neap_assign_verify(2, twice, NULL, (int[]){0, 1}, &error), NEAP_PLAN,
              "\"t\" is there twice, in slots 1 and 2");
}

/* ---- renaming and comparing ------------------------------------------------------------------ */

TEST(names_do_not_count_when_nets_are_compared) {
  neap_net *a =
    net_of("net f\ninput x f32 (4,8)\np = Tanh(x) as o1\ny = Relu(p) as o2\noutputs y\n");
  neap_net *in_place =
    net_of("net f\ninput x f32 (4,8)\np = Tanh(x) as o1\np = Relu(p) as o2\noutputs p\n");
  neap_net *other =
    net_of("net f\ninput x f32 (4,8)\np = Tanh(x) as o1\ny = Relu(x) as o2\noutputs y\n");
  bool same = false;
  char *where = NULL;
  CHECK_OK(neap_net_same(a, in_place, NEAP_SAME_GRAPH, &same, &where, &error));
  CHECK(same && where == NULL);
  CHECK_OK(neap_net_same(a, in_place, NEAP_SAME_GRAPH | NEAP_SAME_IN_PLACE, &same, &where, &error));
  CHECK(!same && where != NULL && strstr(where, "in place") != NULL);
  neap_free(where);
  CHECK_OK(neap_net_same(a, other, NEAP_SAME_GRAPH, &same, &where, &error));
  CHECK(!same && where != NULL && strstr(where, "op 2") != NULL);
  neap_free(where);
  CHECK_OK(neap_net_same(a, other, NEAP_SAME_GRAPH, &same, NULL, &error));
  CHECK(!same);
  neap_net_free(a), neap_net_free(in_place), neap_net_free(other);
}

/* Two nets that differ in what their subnets do with what they are given. */
static void check_told_apart(const char *a_text, const char *b_text, const char *words) {
  neap_net *a = net_of(a_text), *b = net_of(b_text);
  bool same = false;
  char *where = NULL;
  CHECK_OK(neap_net_same(a, a, NEAP_SAME_GRAPH | NEAP_SAME_IN_PLACE, &same, NULL, &error));
  CHECK(same);
  CHECK_OK(neap_net_same(a, b, NEAP_SAME_GRAPH | NEAP_SAME_IN_PLACE, &same, &where, &error));
  CHECK(!same && where != NULL && strstr(where, words) != NULL);
  neap_free(where);
  neap_net_free(a), neap_net_free(b);
}

TEST(captures_that_are_swapped_make_another_net) {
#define BRANCH(takes, op)                                                                    \
  "net f\ninput c f32 (1)\ninput x f32 (2)\np = Relu(x)\nq = Tanh(x)\nsubnet yes\n  r = " op \
  "\n  takes " takes "\n  gives r\nend\nsubnet no\n  r = Tanh(p)\n  takes " takes            \
  "\n  gives r\nend\n"                                                                       \
  "y = If(c, p, q) { then_net = yes, else_net = no }\noutputs y\n"
  check_told_apart(BRANCH("p, q", "Sub(p, q)"), BRANCH("q, p", "Sub(p, q)"),
                   "different ops or operands");
  check_told_apart(BRANCH("p, q", "Sub(p, q)"), BRANCH("p, q", "Sub(q, p)"),
                   "different ops or operands");
#define DO(names, idx)                                                                            \
  "net f\ninput a f32 (2)\ninput b f32 (2)\ns = CreateScope()\nsubnet body closed\n  input u\n  " \
  "input v\n"                                                                                     \
  "  w = Sub(u, v)\nend\nc, s = Do(a, b, s) { net = body, inner_blobs = {" names                  \
  "}, outer_blobs_idx = {" idx                                                                    \
  "} }\n"                                                                                         \
  "outputs c\n"
  check_told_apart(DO("u, v, w", "0,1,2"), DO("u, v, w", "1,0,2"), "different ops or operands");
  check_told_apart(DO("u, v, w", "0,1,2"), DO("v, u, w", "0,1,2"), "different ops or operands");
#define LEAVES(name)                                                                     \
  "net f\ninput a f32 (2)\ns = CreateScope()\nsubnet body closed\n  input u\n  " name    \
  " = Tanh(u)\n  w = Relu(u)\nend\nc, s = Do(a, s) { net = body, inner_blobs = {u, w}, " \
  "outer_blobs_idx = "                                                                   \
  "{0,1} }\noutputs c\n"

  /* a later Do may look for them in its frame */
  check_told_apart(LEAVES("t"), LEAVES("r"), "other names of a Do's body");
  neap_net *a = net_of(DO("u, v, w", "0,1,2")), *b = net_of(DO("v, u, w", "1,0,2"));
  bool same = false;
  CHECK_OK(neap_net_same(a, b, NEAP_SAME_GRAPH | NEAP_SAME_IN_PLACE, &same, NULL, &error));
  CHECK(same); /* the same bindings in another order */
  neap_net_free(a), neap_net_free(b);
}

TEST(a_renaming_reaches_subnets_or_is_refused) {
  neap_net *net = trained(if_text), *renamed = NULL, *none = NULL;
  CHECK_OK(neap_net_rename(net, 2, NAMES("h", "m1"), NAMES("state", "n1"), &renamed, &error));
  CHECK(count_in(renamed, "takes state, w") == 2 && count_in(renamed, "Tanh(state)") == 1 &&
        count_in(renamed, "n1 = Tanh(m)") == 1);
  bool same = false;
  CHECK_OK(neap_net_same(net, renamed, NEAP_SAME_GRAPH | NEAP_SAME_IN_PLACE, &same, NULL, &error));
  CHECK(same);
  check_same_run(net, renamed, "offset", false, "w_grad", 64);
  CHECK_FAILS(neap_net_rename(net, 1, NAMES("hh"), NAMES("z"), &none, &error), NEAP_NAME, "hh");
  CHECK_FAILS(neap_net_rename(net, 1, NAMES("x"), NAMES("label"), &none, &error), NEAP_NAME,
              "label");
  CHECK(none == NULL);
  neap_net_free(net), neap_net_free(renamed);
}

int main(int argc, char **argv) {
  return RUN(
    argc, argv, T(gradients_share_and_activations_too_when_asked),
    T(who_shares_is_the_callers_choice), T(wrong_options_say_what_and_leave_everything),
    T(another_order_needs_fewer_bytes_and_computes_the_same),
    T(an_exact_search_ends_the_same_way_in_every_run), T(training_through_subnets_shares_too),
    T(a_chain_of_any_length_shares_as_much_in_a_dag),
    T(a_backward_op_that_does_not_fit_its_loop_is_refused),
    T(one_free_stands_behind_each_last_reader), T(a_backward_pass_is_written_out_and_freed),
    T(an_estimate_counts_what_is_made_and_what_free_gives_back), T(live_ranges_are_the_planners),
    T(interference_is_who_reads_what_who_wrote), T(an_assignment_is_small_measured_and_verified),
    T(sizes_that_are_none_are_refused), T(names_do_not_count_when_nets_are_compared),
    T(captures_that_are_swapped_make_another_net), T(a_renaming_reaches_subnets_or_is_refused));
}
