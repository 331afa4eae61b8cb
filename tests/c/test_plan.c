/* test_plan.c: plans of hand-made and of random graphs. The random ones go through the verifier,
 * which shares no code with the planner; and the verifier itself is tested by plans that were
 * damaged on purpose. */
#include "check.h"

#include "plan/plan.h"
#include "report/report.h"

#include <stdlib.h>

/* ---- graphs by hand -------------------------------------------------------------------------- */

static const neap_op op_plain = {.name = "Plain"};
static const neap_op op_relu = {.name = "Relu", .inplace = {{0, 0}}, .n_inplace = 1};
static const neap_op op_mul = {.name = "Mul", .inplace = {{0, 0}, {1, 0}}, .n_inplace = 2};
static const neap_op op_view = {.name = "View", .alias = {{0, 0}}, .n_alias = 1};
static const neap_op op_addn = {.name = "AddN", .inplace_any_input = true};
static const neap_op op_two = {.name = "Two", .inplace = {{0, 0}, {0, 1}}, .n_inplace = 2};
static const neap_op op_control = {
  .name = "If", .effects = NEAP_EFFECT_CONTROL, .inplace = {{0, 0}}, .n_inplace = 1};

enum { MAX_NODE = 4000, MAX_VALUE = 8000, MAX_EDGE = 40000 };

static neap_graph *graph_new(void) {
  neap_graph *g = neap_alloc_zeroed(sizeof *g);
  g->name = "test";
  g->node = neap_alloc_zeroed(MAX_NODE * sizeof *g->node);
  g->value = neap_alloc_zeroed(MAX_VALUE * sizeof *g->value);
  g->edge = neap_alloc_zeroed(MAX_EDGE * sizeof *g->edge);
  return g;
}

static void graph_free(neap_graph *g) {
  for (int n = 0; n < g->n_node; n++)
    for (int k = 0; k < g->node[n].n_sub; k++) graph_free(g->node[n].sub[k]);
  neap_arena_fini(&g->arena);
  neap_free(g->node);
  neap_free(g->value);
  neap_free(g->edge);
  neap_free(g);
}

static int value_new(neap_graph *g, const char *name, size_t bytes, neap_region region) {
  int v = g->n_value++;
  g->value[v] = (neap_value){.name = neap_intern(name),
                             .bytes = bytes,
                             .region = region,
                             .node = -1,
                             .root = v,
                             .is_blob = true,
                             .is_last = true,
                             .type = {NEAP_DTYPE_U8, {1, {(int64_t)bytes}}}};
  return v;
}

static int input(neap_graph *g, const char *name, size_t bytes) {
  return value_new(g, name, bytes, NEAP_REGION_IO);
}
static int transient(neap_graph *g, const char *name, size_t bytes) {
  return value_new(g, name, bytes, NEAP_REGION_ARENA);
}

/* Edges stay sorted and without repeats. */
static void edge(neap_graph *g, int from, int to, neap_edge_kind kind) {
  int at = g->n_edge;
  for (int e = 0; e < g->n_edge; e++)
    if (g->edge[e].from == from && g->edge[e].to == to) return;
  while (at > 0 && (g->edge[at - 1].from > from ||
                    (g->edge[at - 1].from == from && g->edge[at - 1].to > to))) {
    g->edge[at] = g->edge[at - 1];
    at--;
  }
  g->edge[at] = (neap_edge){from, to, kind};
  g->n_edge++;
}

/* Data edges come with the inputs. */
static int node_new(neap_graph *g, const neap_op *op, size_t scratch, int n_in, const int *in,
                    int n_out, const int *out) {
  int n = g->n_node++;
  char name[32];
  snprintf(name, sizeof name, "%s_%d", op->name, n);
  g->node[n] = (neap_node){.op = op,
                           .name = neap_intern(name),
                           .scope = "",
                           .line = "test.lua:1",
                           .n_in = n_in,
                           .n_out = n_out,
                           .in = neap_arena_copy(&g->arena, in, (size_t)n_in * sizeof *in),
                           .out = neap_arena_copy(&g->arena, out, (size_t)n_out * sizeof *out),
                           .choice.scratch_bytes = scratch};
  for (int o = 0; o < n_out; o++)
    if (out[o] >= 0) g->value[out[o]].node = n, g->value[out[o]].position = o;
  for (int i = 0; i < n_in; i++)
    if (in[i] >= 0 && g->value[in[i]].node >= 0) edge(g, g->value[in[i]].node, n, NEAP_EDGE_DATA);
  return n;
}
#define NODE(g, op, scratch, ins, outs)                                         \
  node_new(g, op, scratch, (int)(sizeof((int[])ins) / sizeof(int)), (int[])ins, \
           (int)(sizeof((int[])outs) / sizeof(int)), (int[])outs)
#define L(...) \
  { __VA_ARGS__ }

static neap_plan *plan_with(const neap_graph *g, neap_plan_options options) {
  neap_plan *plan = NULL;
  CHECK_OK(neap_plan_make(g, &options, &plan, &error));
  if (plan != NULL) CHECK_OK(neap_plan_verify(plan, g, &error));
  return plan;
}

static neap_plan *plan_simple(const neap_graph *g) {
  return plan_with(g, (neap_plan_options){.policy = NEAP_POLICY_OFFSET});
}

/* ---- single patterns ------------------------------------------------------------------------- */

/* x -> a -> b -> c -> y with equal sizes: two storages at once are enough, and one with in
 * place. */
TEST(chain_shares_bytes) {
  neap_graph *g = graph_new();
  int x = input(g, "x", 1000), a = transient(g, "a", 1000), b = transient(g, "b", 1000),
      c = transient(g, "c", 1000), y = value_new(g, "y", 1000, NEAP_REGION_IO);
  NODE(g, &op_plain, 0, L(x), L(a));
  NODE(g, &op_plain, 0, L(a), L(b));
  NODE(g, &op_plain, 0, L(b), L(c));
  NODE(g, &op_relu, 0, L(c), L(y));
  neap_plan *plan = plan_simple(g);
  CHECK_EQ(plan->arena_bytes, 2048);
  CHECK_EQ(plan->lower_bound_bytes, 2048);
  CHECK(plan->proved);
  CHECK_EQ(plan->place[a].offset, plan->place[c].offset);
  CHECK_EQ(plan->place[c].reason, NEAP_REASON_REUSE);
  CHECK_EQ(plan->place[c].partner, a);
  CHECK_EQ(plan->place[a].reason, NEAP_REASON_OWN);
  CHECK_EQ(plan->place[y].region, NEAP_REGION_IO);
  CHECK_EQ(neap_plan_overwriter(plan, g, a), c);
  CHECK_EQ(neap_plan_overwriter(plan, g, c), -1);
  neap_plan_free(plan);
  graph_free(g);
}

TEST(in_place_takes_the_input) {
  neap_graph *g = graph_new();
  int x = input(g, "x", 100), a = transient(g, "a", 100), b = transient(g, "b", 100),
      c = transient(g, "c", 100);
  NODE(g, &op_relu, 0, L(x), L(a));
  NODE(g, &op_relu, 0, L(a), L(b));
  NODE(g, &op_relu, 0, L(b), L(c));
  neap_plan *plan = plan_simple(g);
  CHECK_EQ(plan->arena_bytes, 128);
  CHECK_EQ(plan->place[a].refusal, NEAP_REFUSAL_RESIDENT_INPUT);
  CHECK_EQ(plan->place[b].reason, NEAP_REASON_IN_PLACE);
  CHECK_EQ(plan->place[c].partner, b);
  CHECK_EQ(plan->place[c].storage, a);
  CHECK_EQ(neap_plan_overwriter(plan, g, a), c);
  neap_plan_free(plan);
  plan = plan_with(g, (neap_plan_options){.policy = NEAP_POLICY_OFFSET, .no_in_place = true});
  CHECK_EQ(plan->arena_bytes, 256);
  CHECK_EQ(plan->place[b].refusal, NEAP_REFUSAL_OFF);
  neap_plan_free(plan);
  graph_free(g);
}

TEST(in_place_is_refused_with_the_reason) {
  neap_graph *g = graph_new();
  int x = input(g, "x", 100), a = transient(g, "a", 100), b = transient(g, "b", 100),
      c = transient(g, "c", 100), d = transient(g, "d", 200), e = transient(g, "e", 100),
      f = transient(g, "f", 100), h = transient(g, "h", 100);
  NODE(g, &op_plain, 0, L(x), L(a));
  NODE(g, &op_relu, 0, L(a), L(b));   /* a is read again below */
  NODE(g, &op_relu, 0, L(b), L(d));   /* another size */
  NODE(g, &op_mul, 0, L(a, a), L(c)); /* both positions are pairs: allowed */
  /* a sum of two equal inputs can't be done in place pass by pass */
  NODE(g, &op_addn, 0, L(c, c), L(e));
  NODE(g, &op_two, 0, L(e), L(f, h)); /* one input, two takers */
  neap_plan *plan = plan_simple(g);
  CHECK_EQ(plan->place[a].refusal, NEAP_REFUSAL_NO_PAIR);
  CHECK_EQ(plan->place[b].refusal, NEAP_REFUSAL_READ_LATER);
  CHECK_EQ(plan->place[d].refusal, NEAP_REFUSAL_BYTES);
  CHECK_EQ(plan->place[c].reason, NEAP_REASON_IN_PLACE);
  CHECK_EQ(plan->place[e].refusal, NEAP_REFUSAL_READ_TWICE);
  CHECK_EQ(plan->place[f].reason, NEAP_REASON_IN_PLACE);
  CHECK_EQ(plan->place[h].refusal, NEAP_REFUSAL_TAKEN);
  neap_plan_free(plan);
  graph_free(g);
}

/* A view keeps its source alive: in place on the source is refused while the view is read later,
 * and the other way round. */
TEST(views_are_counted_with_their_source) {
  neap_graph *g = graph_new();
  int x = input(g, "x", 100), a = transient(g, "a", 100), v = transient(g, "v", 100),
      b = transient(g, "b", 100), c = transient(g, "c", 100), d = transient(g, "d", 100);
  NODE(g, &op_plain, 0, L(x), L(a));
  NODE(g, &op_view, 0, L(a), L(v));
  NODE(g, &op_relu, 0, L(a), L(b));
  NODE(g, &op_relu, 0, L(v), L(c));
  NODE(g, &op_plain, 0, L(b, c), L(d));
  neap_plan *plan = plan_simple(g);
  CHECK_EQ(plan->place[v].reason, NEAP_REASON_ALIAS);
  CHECK_EQ(plan->place[v].offset, plan->place[a].offset);
  int last = plan->place[b].first > plan->place[c].first ? b : c, early = last == b ? c : b;
  CHECK_EQ(plan->place[early].refusal, NEAP_REFUSAL_READ_LATER);
  CHECK_EQ(plan->place[last].reason, NEAP_REASON_IN_PLACE);
  CHECK_EQ(neap_plan_overwriter(plan, g, a), last);
  neap_plan_free(plan);
  plan = plan_with(g, (neap_plan_options){.policy = NEAP_POLICY_NONE});
  CHECK_EQ(plan->arena_bytes, 5 * 128);
  CHECK_EQ(plan->place[v].reason, NEAP_REASON_UNPLANNED);
  CHECK(plan->place[v].offset != plan->place[a].offset);
  neap_plan_free(plan);
  graph_free(g);
}

TEST(views_of_resident_bytes_are_copies) {
  neap_graph *g = graph_new();
  int x = input(g, "x", 100), v = transient(g, "v", 100),
      y = value_new(g, "y", 100, NEAP_REGION_IO);
  NODE(g, &op_view, 0, L(x), L(v));
  NODE(g, &op_view, 0, L(v), L(y));
  neap_plan *plan = plan_simple(g);
  CHECK_EQ(plan->place[v].reason, NEAP_REASON_OWN);
  CHECK_EQ(plan->place[y].storage, y);
  neap_plan_free(plan);
  graph_free(g);
}

/* w' is the next version of w; the reader of w comes first by an order edge. */
TEST(versions_share_resident_storage) {
  neap_graph *g = graph_new();
  static const neap_op op_sgd = {
    .name = "Sgd", .effects = NEAP_EFFECT_COMMIT, .enforced = {{0, 0}}, .n_enforced = 1};
  int w = value_new(g, "w", 100, NEAP_REGION_PARAMETER), dw = transient(g, "dw", 100),
      r = transient(g, "r", 100), w2 = value_new(g, "w", 100, NEAP_REGION_PARAMETER);
  NODE(g, &op_plain, 0, L(w), L(dw));
  NODE(g, &op_plain, 0, L(w), L(r));
  int n = NODE(g, &op_sgd, 0, L(w, dw), L(w2));
  g->node[n].enforced = neap_arena_copy(&g->arena, (neap_pair[]){{0, 0}}, sizeof(neap_pair));
  g->node[n].n_enforced = 1;
  g->value[w2].root = w;
  edge(g, 1, 2, NEAP_EDGE_ORDER);
  neap_plan *plan = plan_simple(g);
  CHECK_EQ(plan->place[w2].reason, NEAP_REASON_VERSION);
  CHECK_EQ(plan->place[w2].partner, w);
  CHECK_EQ(plan->place[w2].storage, w);
  CHECK_EQ(neap_plan_overwriter(plan, g, w), w2);
  neap_plan_free(plan);
  g->n_edge--; /* without the order edge a dag is not safe, and the verifier says so */
  neap_plan_options dag = {.policy = NEAP_POLICY_OFFSET, .executor = NEAP_EXECUTOR_DAG};
  CHECK_OK(neap_plan_make(g, &dag, &plan, &error));
  CHECK_FAILS(neap_plan_verify(plan, g, &error), NEAP_PLAN, "writes a new version");
  neap_plan_free(plan);
  graph_free(g);
}

TEST(scratch_lies_apart_from_what_lives) {
  neap_graph *g = graph_new();
  int x = input(g, "x", 100), a = transient(g, "a", 1000), b = transient(g, "b", 64),
      c = transient(g, "c", 1000);
  NODE(g, &op_plain, 500, L(x), L(a));
  NODE(g, &op_plain, 3000, L(a), L(b));
  NODE(g, &op_plain, 0, L(b), L(c));
  neap_plan *plan = plan_simple(g);
  CHECK_EQ(plan->arena_bytes, 1024 + 64 + 3008);
  CHECK_EQ(plan->peak_step, 1);
  CHECK(plan->proved);
  CHECK_EQ(plan->live_bytes[2], 64 + 1024);
  neap_plan_free(plan);
  graph_free(g);
}

TEST(empty_values_take_nothing) {
  neap_graph *g = graph_new();
  int x = input(g, "x", 0), a = transient(g, "a", 0), b = transient(g, "b", 0);
  NODE(g, &op_plain, 0, L(x), L(a));
  NODE(g, &op_relu, 0, L(a), L(b));
  neap_plan *plan = plan_simple(g);
  CHECK_EQ(plan->arena_bytes, 0);
  CHECK(plan->proved);
  neap_plan_free(plan);
  graph_free(g);
  g = graph_new();
  plan = plan_simple(g);
  CHECK_EQ(plan->arena_bytes, 0);
  neap_plan_free(plan);
  graph_free(g);
}

/* Two branches of a dag may run at once: they share nothing, and join only in place of what both
 * have done with. */
TEST(dag_branches_share_nothing) {
  neap_graph *g = graph_new();
  int x = input(g, "x", 64), a = transient(g, "a", 64), b = transient(g, "b", 64),
      c = transient(g, "c", 64), d = transient(g, "d", 64), e = transient(g, "e", 64);
  NODE(g, &op_plain, 0, L(x), L(a));
  NODE(g, &op_relu, 128, L(a), L(b));
  NODE(g, &op_relu, 128, L(a), L(c));
  NODE(g, &op_plain, 0, L(b, c), L(d));
  NODE(g, &op_plain, 0, L(d), L(e));
  neap_plan *plan =
    plan_with(g, (neap_plan_options){.policy = NEAP_POLICY_OFFSET, .executor = NEAP_EXECUTOR_DAG});
  CHECK_EQ(plan->place[b].refusal, NEAP_REFUSAL_READ_LATER);
  CHECK_EQ(plan->place[c].refusal, NEAP_REFUSAL_ORDER);
  CHECK(plan->place[b].offset != plan->place[c].offset);
  CHECK(plan->arena_bytes >= 3 * 64 + 2 * 128);
  neap_plan_free(plan);
  neap_plan *simple = plan_simple(g);
  CHECK_EQ(simple->arena_bytes, 4 * 64); /* a, b and scratch; c takes the bytes of a */
  neap_plan_free(simple);
  graph_free(g);
}

/* Policy `name`: the two versions of x share a slot of the larger size; y and z have their own. */
TEST(policy_name_shares_by_name) {
  neap_graph *g = graph_new();
  int in = input(g, "in", 64), x1 = transient(g, "x", 64), y = transient(g, "y", 64),
      x2 = transient(g, "x", 128), z = transient(g, "z", 64);
  NODE(g, &op_plain, 0, L(in), L(x1));
  NODE(g, &op_relu, 0, L(x1), L(y));
  NODE(g, &op_plain, 0, L(y), L(x2));
  NODE(g, &op_plain, 256, L(x2), L(z));
  neap_plan *plan = plan_with(g, (neap_plan_options){.policy = NEAP_POLICY_NAME});
  CHECK_EQ(plan->place[x1].offset, plan->place[x2].offset);
  CHECK_EQ(plan->place[x2].reason, NEAP_REASON_SLOT);
  CHECK_EQ(plan->place[y].reason, NEAP_REASON_OWN);
  CHECK_EQ(plan->arena_bytes, 128 + 64 + 64 + 256);
  neap_plan_free(plan);
  graph_free(g);
}

TEST(subnets_overlay_in_their_owners_scratch) {
  neap_graph *g = graph_new(), *sub[2] = {graph_new(), graph_new()};
  for (int k = 0; k < 2; k++) {
    int p = value_new(sub[k], "p", 64, NEAP_REGION_ARGUMENT),
        t = transient(sub[k], "t", k == 0 ? 1000 : 500),
        r = value_new(sub[k], "r", 64, NEAP_REGION_ARGUMENT);
    node_new(sub[k], &op_plain, 0, 1, &p, 1, &t);
    node_new(sub[k], &op_plain, 0, 1, &t, 1, &r);
  }
  int x = input(g, "x", 64), a = transient(g, "a", 64), b = transient(g, "b", 64);
  NODE(g, &op_plain, 0, L(x), L(a));
  int n = NODE(g, &op_control, 100, L(a), L(b));
  g->node[n].n_sub = 2;
  g->node[n].sub = neap_arena_copy(&g->arena, sub, sizeof sub);
  neap_plan *plan = plan_simple(g);
  CHECK_EQ(plan->scratch_bytes[n], 1024 + 100);
  CHECK_EQ(plan->arena_bytes, 64 + 64 + 1024 + 128);
  /* a branch may write b while it still reads a */
  CHECK(plan->place[b].offset != plan->place[a].offset);
  CHECK_EQ(plan->sub[n][0]->arena_bytes, 1024);
  CHECK_EQ(plan->sub[n][0]->place[0].reason, NEAP_REASON_ARGUMENT);
  neap_buffer text = {0}, again = {0};
  neap_plan_print(plan, &text);
  neap_plan *copy = NULL;
  CHECK_OK(neap_plan_read(text.text, g, &copy, &error));
  neap_plan_print(copy, &again);
  CHECK(strcmp(text.text, again.text) == 0);
  CHECK_OK(neap_plan_verify(copy, g, &error));
  copy->sub[n][0]->place[1].offset = 64 * 1024;
  CHECK_FAILS(neap_plan_verify(copy, g, &error), NEAP_PLAN, "\"t\"");
  neap_buffer_fini(&text);
  neap_buffer_fini(&again);
  neap_plan_free(copy);
  neap_plan_free(plan);
  graph_free(g);
}

TEST(budget_names_what_is_in_the_way) {
  neap_graph *g = graph_new();
  int x = input(g, "x", 64), a = transient(g, "small", 64), b = transient(g, "huge", 1 << 20),
      c = transient(g, "c", 64);
  NODE(g, &op_plain, 0, L(x), L(a));
  NODE(g, &op_plain, 0, L(a), L(b));
  NODE(g, &op_plain, 0, L(b), L(c));
  neap_plan *plan = NULL;
  neap_plan_options options = {.policy = NEAP_POLICY_OFFSET, .budget_bytes = 1 << 20};
  neap_error refused = {0};
  CHECK_EQ(neap_plan_make(g, &options, &plan, &refused), NEAP_BUDGET);
  CHECK(plan == NULL);
  CHECK_EQ(refused.least_bytes, (1 << 20) + 64);
  CHECK(strstr(refused.message, "huge 1.0 MiB") != NULL);
  options.budget_bytes += 64;
  CHECK_OK(neap_plan_make(g, &options, &plan, &error));
  neap_plan_free(plan);
  graph_free(g);
}

/* A wide start that frees much: the greedy order runs each branch to its end, the definition order
 * does not. */
TEST(order_lowers_the_peak) {
  neap_graph *g = graph_new();
  int x = input(g, "x", 64), big[8], small[8];
  for (int i = 0; i < 8; i++) {
    big[i] = transient(g, "big", 1 << 16);
    node_new(g, &op_plain, 0, 1, &x, 1, &big[i]);
  }
  for (int i = 0; i < 8; i++) {
    small[i] = transient(g, "small", 64);
    node_new(g, &op_plain, 0, 1, &big[i], 1, &small[i]);
  }
  neap_plan *plan = plan_simple(g),
            *fixed = plan_with(g, (neap_plan_options){.policy = NEAP_POLICY_NONE});
  CHECK_EQ(plan->arena_bytes, (1 << 16) + 64);
  CHECK_EQ(fixed->lower_bound_bytes, 8 * (1 << 16) + 64);
  neap_plan_free(plan);
  neap_plan_free(fixed);
  /* The order of definition stays where it is asked for, and for `dag`. */
  const neap_plan_options kept[] = {{.policy = NEAP_POLICY_OFFSET, .keep_order = true},
                                    {.policy = NEAP_POLICY_OFFSET, .executor = NEAP_EXECUTOR_DAG}};
  for (int i = 0; i < NEAP_COUNT(kept); i++) {
    plan = plan_with(g, kept[i]);
    for (int n = 0; n < plan->n_node; n++) CHECK_EQ(plan->order[n], n);
    CHECK(plan->arena_bytes >= 8 * (1 << 16) + 64);
    neap_plan_free(plan);
  }
  graph_free(g);
}

/* ---- random graphs --------------------------------------------------------------------------- */

static uint64_t seed = 1;
static int below(int n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (int)((seed >> 33) % (uint64_t)n);
}

static neap_graph *random_graph(int n_node, bool with_subs) {
  static const neap_op *const ops[] = {&op_plain, &op_relu, &op_mul,  &op_view,
                                       &op_addn,  &op_two,  &op_relu, &op_mul};
  static const size_t sizes[] = {0, 64, 100, 256, 256, 256, 1000, 4096};
  neap_graph *g = graph_new();
  for (int i = 0; i < 3; i++) input(g, "in", 256);
  int window = 1 + below(12); /* narrow graphs are chains, wide ones have many branches */
  for (int n = 0; n < n_node; n++) {
    const neap_op *op = ops[below(NEAP_COUNT(ops))];
    int n_in = op == &op_mul                       ? 2
               : op == &op_addn || op == &op_plain ? below(4)
                                                   : 1,
        n_out = op == &op_two ? 2 : 1, in[4], out[2];
    for (int i = 0; i < n_in; i++) {
      int from = g->n_value - 1 - below(below(8) == 0 ? g->n_value : NEAP_MIN(window, g->n_value));
      in[i] = from;
    }
    bool same_size = op != &op_plain && n_in > 0;
    size_t bytes = same_size ? g->value[in[0]].bytes : sizes[below(NEAP_COUNT(sizes))];
    if (op != &op_view && below(16) == 0) bytes = 512;
    for (int o = 0; o < n_out; o++) {
      char name[16];
      snprintf(name, sizeof name, "b%d", below(20));
      out[o] =
        below(16) == 0 ? value_new(g, name, bytes, NEAP_REGION_IO) : transient(g, name, bytes);
      if (below(8) == 0) g->value[out[o]].is_blob = false;
    }
    int node = node_new(g, op, below(6) == 0 ? (size_t)below(3000) : 0, n_in, in, n_out, out);
    if (node > 0 && below(10) == 0) edge(g, below(node), node, NEAP_EDGE_ORDER);
    if (with_subs && below(20) == 0) {
      neap_graph *sub[2] = {random_graph(1 + below(8), false), random_graph(1 + below(8), false)};
      g->node[node].n_sub = 2;
      g->node[node].sub = neap_arena_copy(&g->arena, sub, sizeof sub);
    }
  }
  return g;
}

TEST(random_graphs_pass_the_verifier) {
  int n_plan = 0, n_proved = 0, n_in_place = 0, n_alias = 0;
  for (int round = 0; round < 1500; round++) {
    seed = (uint64_t)round + 1;
    neap_graph *g = random_graph(1 + below(40), true);
    for (int policy = NEAP_POLICY_NONE; policy <= NEAP_POLICY_POOL; policy++)
      for (int executor = 0; executor < (policy == NEAP_POLICY_POOL ? 1 : 2); executor++) {
        neap_plan *plan = plan_with(g, (neap_plan_options){.policy = (neap_policy)policy,
                                                           .executor = (neap_executor)executor,
                                                           .no_in_place = below(8) == 0,
                                                           .most_steps = 1000000});
        if (plan == NULL) continue;
        n_plan++;
        if (policy == NEAP_POLICY_OFFSET && executor == 0) n_proved += plan->proved;
        for (int v = 0; v < g->n_value; v++) {
          n_in_place += plan->place[v].reason == NEAP_REASON_IN_PLACE;
          n_alias += plan->place[v].reason == NEAP_REASON_ALIAS;
        }
        neap_plan_free(plan);
      }
    graph_free(g);
    if (check_failures > 0) break;
  }
  printf("  %d plans, %d of 1500 proved minimal, %d values in place, %d views\n", n_plan, n_proved,
         n_in_place, n_alias);
  CHECK(n_plan == 10500 && n_in_place > 10000 && n_alias > 5000);
}

/* A run on paper: every node writes a number that depends on what it reads into each byte range;
 * planned and unplanned runs must read the same numbers. In `dag` the order is a random one that
 * the edges allow. */
static uint64_t mix(uint64_t a, uint64_t b) {
  return (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xbf58476d1ce4e5b9u;
}

static void run_on_paper(const neap_graph *g, const neap_plan *plan, const int *order,
                         uint64_t *seen) {
  size_t n_cell = plan->arena_bytes / 4 + 1;
  uint64_t *cell = neap_alloc_zeroed(n_cell * sizeof *cell),
           *own = neap_alloc_zeroed((size_t)g->n_value * sizeof *own + 1);
  for (int v = 0; v < g->n_value; v++)
    if (g->value[v].node < 0) own[v] = (uint64_t)v + 77;
  for (int step = 0; step < g->n_node; step++) {
    const neap_node *node = &g->node[order[step]];
    uint64_t sum = (uint64_t)order[step];
    for (int i = 0; i < node->n_in; i++) {
      const neap_place *p = &plan->place[node->in[i]];
      if (p->region != NEAP_REGION_ARENA) {
        sum = mix(sum, own[node->in[i]]);
        continue;
      }
      for (size_t k = p->offset / 4; k < (p->offset + p->bytes) / 4; k++)
        sum = mix(sum, cell[k] - cell[p->offset / 4]); /* one value all over */
      sum = mix(sum, p->bytes >= 4 ? cell[p->offset / 4] : 0);
    }
    seen[order[step]] = sum;
    size_t scratch = plan->scratch_offset[order[step]] / 4,
           n_scratch = plan->scratch_bytes[order[step]] / 4;
    for (size_t k = 0; k < n_scratch; k++) cell[scratch + k] = 0xdead + k;
    for (int o = 0; o < node->n_out; o++) {
      const neap_place *p = &plan->place[node->out[o]];
      uint64_t x = node->op == &op_view ? 0 : mix(sum, (uint64_t)o + 1);
      if (node->op == &op_view) { /* shows its input */
        const neap_place *q = &plan->place[node->in[0]];
        x = q->region == NEAP_REGION_ARENA
              ? (q->bytes >= 4 && p->reason != NEAP_REASON_ALIAS ? seen[order[step]] : 0)
              : own[node->in[0]];
        if (p->reason == NEAP_REASON_ALIAS) continue;
      }
      own[node->out[o]] = x;
      for (size_t k = p->offset / 4;
           p->region == NEAP_REGION_ARENA && k < (p->offset + p->bytes) / 4; k++)
        cell[k] = x;
    }
  }
  neap_free(cell);
  neap_free(own);
}

static void random_order(const neap_graph *g, int *order) {
  int *blocked = neap_alloc_zeroed((size_t)g->n_node * sizeof *blocked + 1),
      *ready = neap_alloc((size_t)g->n_node * sizeof *ready + 1), n = 0;
  for (int e = 0; e < g->n_edge; e++) blocked[g->edge[e].to]++;
  for (int i = 0; i < g->n_node; i++)
    if (blocked[i] == 0) ready[n++] = i;
  for (int step = 0; step < g->n_node; step++) {
    int k = below(n), node = ready[k];
    ready[k] = ready[--n];
    order[step] = node;
    for (int e = 0; e < g->n_edge; e++)
      if (g->edge[e].from == node && --blocked[g->edge[e].to] == 0) ready[n++] = g->edge[e].to;
  }
  neap_free(blocked);
  neap_free(ready);
}

TEST(planned_reads_equal_unplanned_reads) {
  for (int round = 0; round < 400 && check_failures == 0; round++) {
    seed = (uint64_t)round + 5000;
    neap_graph *g = random_graph(1 + below(40), false);
    for (int n = 0; n < g->n_node; n++)
      if (g->node[n].op == &op_view) g->node[n].op = &op_relu; /* paper has no views */
    size_t bytes = (size_t)g->n_node * sizeof(uint64_t) + 1;
    uint64_t *want = neap_alloc_zeroed(bytes), *got = neap_alloc_zeroed(bytes);
    int *order = neap_alloc(bytes);
    neap_plan *none = plan_with(g, (neap_plan_options){.policy = NEAP_POLICY_NONE});
    run_on_paper(g, none, none->order, want);
    for (int executor = 0; executor < 2; executor++) {
      neap_plan *plan = plan_with(g, (neap_plan_options){.policy = NEAP_POLICY_OFFSET,
                                                         .executor = (neap_executor)executor,
                                                         .most_steps = 1000000});
      for (int run = 0; run < 5; run++) {
        memcpy(order, plan->order, (size_t)g->n_node * sizeof *order);
        if (executor == NEAP_EXECUTOR_DAG) random_order(g, order);
        run_on_paper(g, plan, order, got);
        CHECK(memcmp(want, got, bytes - 1) == 0);
      }
      neap_plan_free(plan);
    }
    neap_plan_free(none);
    neap_free(want);
    neap_free(got);
    neap_free(order);
    graph_free(g);
  }
}

/* ---- damaged plans --------------------------------------------------------------------------- */

/* Each damages the plan (or its graph's edges) in one way; false: this plan offers no place for
 * it. */
typedef bool damage(neap_graph *g, neap_plan *plan);

static int pick(const neap_plan *plan, bool (*fits)(const neap_plan *plan, int v)) {
  int start = below(plan->n_value);
  for (int k = 0; k < plan->n_value; k++)
    if (fits(plan, (start + k) % plan->n_value)) return (start + k) % plan->n_value;
  return -1;
}
static bool is_solid(const neap_plan *plan, int v) {
  return plan->place[v].region == NEAP_REGION_ARENA && plan->place[v].bytes > 0 &&
         plan->place[v].storage == v;
}
static bool is_long(const neap_plan *plan, int v) {
  return is_solid(plan, v) && plan->place[v].last > plan->place[v].first;
}
static bool is_in_place(const neap_plan *plan, int v) {
  return plan->place[v].reason == NEAP_REASON_IN_PLACE && plan->place[v].bytes > 0;
}
static bool is_alias(const neap_plan *plan, int v) {
  return plan->place[v].reason == NEAP_REASON_ALIAS && plan->place[v].bytes > 0;
}
static bool is_resident(const neap_plan *plan, int v) {
  return plan->place[v].region == NEAP_REGION_IO && plan->place[v].bytes > 0;
}

static void move_storage(neap_plan *plan, int root, size_t offset) {
  for (int v = 0; v < plan->n_value; v++)
    if (plan->place[v].storage == root) plan->place[v].offset = offset;
}

/* Two storages that live together, laid on top of each other. */
static bool overlay(neap_graph *g, neap_plan *plan) {
  (void)g;
  int a = pick(plan, is_long);
  for (int b = 0; a >= 0 && b < plan->n_value; b++)
    if (b != a && is_solid(plan, b) && plan->place[b].first > plan->place[a].first &&
        plan->place[b].first < plan->place[a].last) {
      move_storage(plan, b, plan->place[a].offset);
      return true;
    }
  return false;
}
static bool shift_out(neap_graph *g, neap_plan *plan) {
  (void)g;
  int a = pick(plan, is_solid);
  if (a >= 0) move_storage(plan, a, plan->arena_bytes);
  return a >= 0;
}
static bool shift_unaligned(neap_graph *g, neap_plan *plan) {
  (void)g;
  int a = pick(plan, is_solid);
  if (a >= 0) move_storage(plan, a, plan->place[a].offset + 4);
  return a >= 0;
}
static bool shorten_life(neap_graph *g, neap_plan *plan) {
  (void)g;
  int a = pick(plan, is_long);
  if (a >= 0) plan->place[a].last--;
  return a >= 0;
}
static bool shrink_bytes(neap_graph *g, neap_plan *plan) {
  (void)g;
  int a = pick(plan, is_solid);
  if (a >= 0) plan->place[a].bytes--;
  return a >= 0;
}
static bool drop_edge(neap_graph *g, neap_plan *plan) {
  (void)plan;
  for (int e = 0; e < g->n_edge; e++)
    if (g->edge[e].kind == NEAP_EDGE_DATA && below(3) == 0) {
      memmove(&g->edge[e], &g->edge[e + 1], (size_t)(g->n_edge - e - 1) * sizeof *g->edge);
      g->n_edge--;
      return true;
    }
  return false;
}
static bool swap_steps(neap_graph *g, neap_plan *plan) {
  if (g->n_edge == 0) return false;
  neap_edge e = g->edge[below(g->n_edge)];
  int a = 0, b = 0;
  for (int i = 0; i < plan->n_node; i++) {
    if (plan->order[i] == e.from) a = i;
    if (plan->order[i] == e.to) b = i;
  }
  plan->order[a] = e.to;
  plan->order[b] = e.from;
  return true;
}
static bool repeat_step(neap_graph *g, neap_plan *plan) {
  (void)g;
  if (plan->n_node < 2) return false;
  plan->order[plan->n_node - 1] = plan->order[0];
  return true;
}
static bool wrong_alias(neap_graph *g, neap_plan *plan) {
  (void)g;
  int a = pick(plan, is_alias);
  if (a < 0) return false;
  plan->place[a].partner = a == 0 ? 1 : 0; /* an input of the graph */
  return true;
}
static bool false_alias(neap_graph *g, neap_plan *plan) {
  (void)g;
  int a = pick(plan, is_in_place);
  if (a >= 0) plan->place[a].reason = NEAP_REASON_ALIAS;
  return a >= 0;
}
static bool false_in_place(neap_graph *g, neap_plan *plan) {
  (void)g;
  int a = pick(plan, is_solid);
  if (a < 0) return false;
  plan->place[a].reason = NEAP_REASON_IN_PLACE;
  return true;
}
static bool split_storage(neap_graph *g, neap_plan *plan) {
  (void)g;
  int a = pick(plan, is_in_place);
  if (a >= 0) plan->place[a].storage = a;
  return a >= 0;
}
static bool resident_in_arena(neap_graph *g, neap_plan *plan) {
  (void)g;
  int a = pick(plan, is_resident);
  if (a >= 0) plan->place[a].region = NEAP_REGION_ARENA;
  return a >= 0;
}
static bool keep_in_arena(neap_graph *g, neap_plan *plan) {
  int a = pick(plan, is_solid);
  if (a >= 0) g->value[a].keep = true;
  return a >= 0;
}
static bool move_scratch(neap_graph *g, neap_plan *plan) {
  for (int n = 0; n < plan->n_node; n++)
    for (int i = 0; plan->scratch_bytes[n] > 0 && i < g->node[n].n_in; i++) {
      const neap_place *p = &plan->place[g->node[n].in[i]];
      if (p->region != NEAP_REGION_ARENA || p->bytes == 0 ||
          p->offset + plan->scratch_bytes[n] > plan->arena_bytes)
        continue;
      plan->scratch_offset[n] = p->offset;
      return true;
    }
  return false;
}
static bool less_scratch(neap_graph *g, neap_plan *plan) {
  (void)g;
  for (int n = 0; n < plan->n_node; n++)
    if (plan->scratch_bytes[n] > 0) {
      plan->scratch_bytes[n]--;
      return true;
    }
  return false;
}
static bool lower_arena(neap_graph *g, neap_plan *plan) {
  (void)g;
  if (plan->arena_bytes == 0) return false;
  plan->arena_bytes--;
  return true;
}
static bool raise_bound(neap_graph *g, neap_plan *plan) {
  (void)g;
  plan->lower_bound_bytes++;
  return true;
}
static bool false_proof(neap_graph *g, neap_plan *plan) {
  (void)g;
  plan->proved = !plan->proved;
  return true;
}
/* the graph has one more reader than the plan was made for */
static bool later_reader(neap_graph *g, neap_plan *plan) {
  int a = pick(plan, is_in_place), n = g->n_node - 1;
  if (a < 0 || g->value[a].node >= n) return false;
  int from = plan->place[a].partner,
      *in = neap_arena_alloc(&g->arena, (size_t)(g->node[n].n_in + 1) * sizeof *in);
  memcpy(in, g->node[n].in, (size_t)g->node[n].n_in * sizeof *in);
  in[g->node[n].n_in++] = from;
  g->node[n].in = in;
  edge(g, g->value[from].node, n, NEAP_EDGE_DATA);
  plan->place[from].last = NEAP_MAX(plan->place[from].last, plan->n_node - 1);
  return plan->order[plan->n_node - 1] == n;
}

TEST(damaged_plans_are_caught) {
  static const struct {
    const char *name;
    damage *apply;
  } damages[] = {{"overlay", overlay},
                 {"shift_out", shift_out},
                 {"shift_unaligned", shift_unaligned},
                 {"shorten_life", shorten_life},
                 {"shrink_bytes", shrink_bytes},
                 {"drop_edge", drop_edge},
                 {"swap_steps", swap_steps},
                 {"repeat_step", repeat_step},
                 {"wrong_alias", wrong_alias},
                 {"false_alias", false_alias},
                 {"false_in_place", false_in_place},
                 {"split_storage", split_storage},
                 {"resident_in_arena", resident_in_arena},
                 {"keep_in_arena", keep_in_arena},
                 {"move_scratch", move_scratch},
                 {"less_scratch", less_scratch},
                 {"lower_arena", lower_arena},
                 {"raise_bound", raise_bound},
                 {"false_proof", false_proof},
                 {"later_reader", later_reader}};
  for (int d = 0; d < NEAP_COUNT(damages); d++) {
    int n_done = 0;
    for (int round = 0; round < 200; round++) {
      seed = (uint64_t)round + 900;
      neap_graph *g = random_graph(10 + below(30), false);
      neap_plan *plan = plan_with(g, (neap_plan_options){.policy = NEAP_POLICY_OFFSET,
                                                         .executor = (neap_executor)(round % 2),
                                                         .most_steps = 1000000});
      if (plan->arena_bytes > 0 && damages[d].apply(g, plan)) {
        n_done++;
        neap_error error = {0};
        if (neap_plan_verify(plan, g, &error) != NEAP_PLAN || error.message[0] == '\0') {
          printf("  %s passes unseen (round %d)\n", damages[d].name, round);
          check_failures++;
        }
      }
      neap_plan_free(plan);
      graph_free(g);
      if (check_failures > 0) break;
    }
    if (n_done < 20)
      printf("  %s was applied %d times only\n", damages[d].name, n_done), check_failures++;
  }
}

TEST(a_wrong_life_is_told_in_steps_from_one) {
  neap_graph *g = graph_new();
  int x = input(g, "x", 64), a = transient(g, "a", 64), y = value_new(g, "y", 64, NEAP_REGION_IO);
  NODE(g, &op_plain, 0, L(x), L(a));
  NODE(g, &op_plain, 0, L(a), L(y));
  neap_plan *plan = plan_simple(g);
  plan->place[a].last--;
  CHECK_FAILS(neap_plan_verify(plan, g, &error), NEAP_PLAN,
              "\"a\" lives in steps 1 to 2, the plan says 1 to 1");
  plan->place[a].last++, plan->place[a].first++;
  CHECK_FAILS(neap_plan_verify(plan, g, &error), NEAP_PLAN,
              "\"a\" lives in steps 1 to 2, the plan says 2 to 2");
  neap_plan_free(plan);
  graph_free(g);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* The first number with so many zeros in front that it has `width` digits. */
static neap_status read_with_long_number(const char *text, int width, const neap_graph *g,
                                         neap_error *error) {
  const char *at = strstr(text, "\nbytes ") + strlen("\nbytes ");
  neap_buffer padded = {0};
  neap_plan *plan = NULL;
  neap_buffer_add(&padded, "%.*s%0*lld%s", (int)(at - text), text, width, atoll(at),
                  at + strspn(at, "0123456789"));
  neap_status status = neap_plan_read(padded.text, g, &plan, error);
  neap_plan_free(plan);
  neap_buffer_fini(&padded);
  return status;
}

TEST(text_reads_back_and_refuses_the_rest) {
  for (int round = 0; round < 60 && check_failures == 0; round++) {
    seed = (uint64_t)round + 300;
    neap_graph *g = random_graph(2 + below(30), true);
    neap_plan *plan =
      plan_with(g, (neap_plan_options){.policy = (neap_policy)(round % 4),
                                       .executor = (neap_executor)(round / 4 % 2 * (round % 4 < 3)),
                                       .most_steps = 1000000});
    neap_buffer text = {0};
    neap_plan_print(plan, &text);
    neap_plan *copy = NULL;
    CHECK_OK(neap_plan_read(text.text, g, &copy, &error));
    CHECK_OK(neap_plan_verify(copy, g, &error));
    neap_buffer again = {0};
    neap_plan_print(copy, &again);
    CHECK(strcmp(text.text, again.text) == 0);
    neap_plan_free(copy);
    char *hurt = neap_alloc(text.n + 1);
    /* cut short, or one byte changed: an error or another plan, which explain can show */
    for (int k = 0; k < 200; k++) {
      memcpy(hurt, text.text, text.n + 1);
      if (k % 2 == 0)
        hurt[below((int)text.n)] = '\0';
      else
        hurt[below((int)text.n)] = "0123456789-x\n "[below(14)];
      neap_error error = {0};
      copy = NULL;
      neap_status status = neap_plan_read(hurt, g, &copy, &error);
      CHECK(status == NEAP_OK || (status == NEAP_PLAN && copy == NULL));
      if (k % 2 == 0) CHECK(status == NEAP_PLAN);
      if (status != NEAP_OK) continue;
      neap_buffer words = {0};
      for (int v = NEAP_NO_VALUE; v < g->n_value; v++) {
        neap_report_explain(copy, g, v, &words);
        if (v >= 0) neap_plan_overwriter(copy, g, v);
      }
      (void)neap_plan_verify(copy, g, &error);
      neap_buffer_fini(&words);
      neap_plan_free(copy);
    }
    neap_free(hurt);
    CHECK_OK(read_with_long_number(text.text, 31, g, &error));
    CHECK_FAILS(read_with_long_number(text.text, 32, g, &error), NEAP_PLAN, "line 2");
    neap_graph *other = random_graph(1, false);
    CHECK_FAILS(neap_plan_read(text.text, other, &copy, &error), NEAP_PLAN, "line");
    graph_free(other);
    neap_buffer_fini(&text);
    neap_buffer_fini(&again);
    neap_plan_free(plan);
    graph_free(g);
  }
}

TEST(explain_says_who_shares) {
  neap_graph *g = graph_new();
  int x = input(g, "x", 4096), a = transient(g, "conv", 4096), b = transient(g, "relu", 4096),
      c = transient(g, "pool", 4096), d = transient(g, "late", 4096);
  NODE(g, &op_plain, 0, L(x), L(a));
  NODE(g, &op_relu, 0, L(a), L(b));
  NODE(g, &op_plain, 0, L(b), L(c));
  NODE(g, &op_plain, 0, L(c), L(d));
  neap_plan *plan = plan_simple(g);
  neap_buffer text = {0};
  neap_report_explain(plan, g, b, &text);
  CHECK(strstr(text.text,
               "overwrites an input that is read for the last time here (in_place: conv)") != NULL);
  CHECK(strstr(text.text, "Shares bytes with late (steps 4-4) after it") != NULL);
  CHECK(strstr(text.text, "keep = {\"relu\"} would cost 4.0 KiB") != NULL);
  neap_buffer_fini(&text);
  neap_report_explain(plan, g, NEAP_NO_VALUE, &text);
  CHECK(strstr(text.text,
               "arena 8.0 KiB, least for these kernels and this order 8.0 KiB (proved)") != NULL);
  neap_buffer_fini(&text);
  neap_plan_free(plan);
  graph_free(g);
}

TEST(refused_allocations_leave_nothing) {
  seed = 4242;
  neap_graph *g = random_graph(40, true);
  for (int executor = 0; executor < 2; executor++) {
    int n_failed = 0;
    for (int64_t nth = 1; nth < 100000; nth++) {
      int64_t live = neap_memory_read().n_live;
      neap_plan *plan = NULL;
      neap_error error = {0};
      neap_plan_options options = {
        .policy = NEAP_POLICY_OFFSET, .executor = (neap_executor)executor, .most_steps = 1000000};
      neap_memory_fail_nth_block(nth);
      neap_status status = neap_plan_make(g, &options, &plan, &error);
      bool failed = neap_memory_failed();
      neap_memory_fail_nth(0, false);
      if (!failed) {
        CHECK_EQ(status, NEAP_OK);
        neap_plan_free(plan);
        CHECK_EQ(neap_memory_read().n_live, live);
        break;
      }
      n_failed++;
      CHECK(status == NEAP_MEMORY && plan == NULL);
      CHECK_EQ(neap_memory_read().n_live, live);
    }
    CHECK(n_failed > 10);
  }
  graph_free(g);
}

/* What a node takes by itself: operands, each once, and scratch; where outputs may lie in inputs,
 * the larger of the two. */
TEST(no_repetition_undercuts_what_one_node_takes) {
  static const neap_op op_loop = {.name = "Loop", .effects = NEAP_EFFECT_CONTROL};
  static const struct {
    const neap_op *op;
    size_t want;
  } kind[] = {{&op_plain, 64 + 1024 + 640},
              {&op_relu, 64 + 1024},
              {&op_view, 64 + 1024},
              {&op_addn, 64 + 1024},
              {&op_loop, 64 + 1024}};
  for (int k = 0; k < NEAP_COUNT(kind); k++) {
    neap_graph *g = graph_new(), *sub = graph_new();
    int p = value_new(sub, "p", 64, NEAP_REGION_ARGUMENT),
        r = value_new(sub, "r", 64, NEAP_REGION_ARGUMENT);
    int x = input(g, "x", 4096), a = transient(g, "a", 960), b = transient(g, "b", 60),
        c = transient(g, "c", 640);
    node_new(sub, &op_plain, 0, 1, &p, 1, &r);
    NODE(g, &op_plain, 0, L(x), L(a, b));
    int n = NODE(g, kind[k].op, 10, L(a, a, x, b), L(c));
    g->node[n].n_sub = kind[k].op == &op_loop;
    g->node[n].sub = neap_arena_copy(&g->arena, &sub, sizeof(void *));
    neap_plan_options options = {.policy = NEAP_POLICY_OFFSET};
    size_t least = 1;
    int n_failed = 0;
    for (bool passed = false; !passed && n_failed < 1000; n_failed += !passed) {
      int64_t live = neap_memory_read().n_live;
      neap_error error = {0};
      neap_memory_fail_nth_block(n_failed + 1);
      neap_status status = neap_repeats_least(g, &options, &least, &error);
      passed = !neap_memory_failed();
      neap_memory_fail_nth(0, false);
      CHECK_EQ(status, passed ? NEAP_OK : NEAP_MEMORY);
      CHECK_EQ(error.code, status);
      CHECK_EQ(least, passed ? kind[k].want : 1);
      CHECK_EQ(neap_memory_read().n_live, live);
    }
    CHECK(n_failed > 3 && n_failed < 1000);
    if (kind[k].op != &op_loop) graph_free(sub);
    graph_free(g);
  }
}

/* The same for what a stored plan goes through. */
TEST(refused_allocations_leave_nothing_on_reading) {
  seed = 77;
  neap_graph *g = random_graph(30, true);
  neap_plan *plan = plan_with(
    g, (neap_plan_options){
         .policy = NEAP_POLICY_OFFSET, .executor = NEAP_EXECUTOR_DAG, .most_steps = 1000000});
  neap_buffer text = {0};
  neap_plan_print(plan, &text);
  int n_failed = 0;
  for (int64_t nth = 1; nth < 100000; nth++) {
    int64_t live = neap_memory_read().n_live;
    neap_plan *copy = NULL;
    neap_error error = {0};
    neap_memory_fail_nth_block(nth);
    neap_status status = neap_plan_read(text.text, g, &copy, &error);
    if (status == NEAP_OK) status = neap_plan_verify(copy, g, &error);
    bool failed = neap_memory_failed();
    neap_memory_fail_nth(0, false);
    neap_plan_free(copy);
    CHECK_EQ(neap_memory_read().n_live, live);
    CHECK_EQ(status, failed ? NEAP_MEMORY : NEAP_OK);
    if (!failed) break;
    n_failed++;
  }
  CHECK(n_failed > 5);
  neap_buffer_fini(&text);
  neap_plan_free(plan);
  graph_free(g);
}

TEST(large_dags_are_planned_quickly) {
  seed = 99;
  neap_graph *g = random_graph(3000, false);
  for (int executor = 0; executor < 2; executor++) {
    int64_t start = neap_clock_ns();
    neap_plan *plan = plan_with(g, (neap_plan_options){.policy = NEAP_POLICY_OFFSET,
                                                       .executor = (neap_executor)executor,
                                                       .most_steps = 200000000});
    printf("  %s: 3000 ops, %d values: arena/bound %.4f, %.0f ms planning, %.0f ms with checking\n",
           neap_executor_name(plan->executor), g->n_value,
           (double)plan->arena_bytes / (double)plan->lower_bound_bytes,
           (double)plan->plan_ns * 1e-6, (double)(neap_clock_ns() - start) * 1e-6);
    neap_plan_free(plan);
  }
  graph_free(g);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(chain_shares_bytes), T(in_place_takes_the_input),
             T(in_place_is_refused_with_the_reason), T(views_are_counted_with_their_source),
             T(views_of_resident_bytes_are_copies), T(versions_share_resident_storage),
             T(scratch_lies_apart_from_what_lives), T(empty_values_take_nothing),
             T(dag_branches_share_nothing), T(policy_name_shares_by_name),
             T(subnets_overlay_in_their_owners_scratch), T(budget_names_what_is_in_the_way),
             T(order_lowers_the_peak), T(random_graphs_pass_the_verifier),
             T(planned_reads_equal_unplanned_reads), T(damaged_plans_are_caught),
             T(a_wrong_life_is_told_in_steps_from_one), T(text_reads_back_and_refuses_the_rest),
             T(explain_says_who_shares), T(refused_allocations_leave_nothing),
             T(no_repetition_undercuts_what_one_node_takes),
             T(refused_allocations_leave_nothing_on_reading), T(large_dags_are_planned_quickly));
}
