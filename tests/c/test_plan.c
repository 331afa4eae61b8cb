/* test_plan.c: plans of graphs made by hand: each pattern of sharing, alone. */
#include "hand_graph.h"
#include "report/report.h"

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

/* As many bytes in another order are no bytes to share, for a view nor in place; nor are fewer in
 * the same order. */
TEST(bytes_in_another_order_are_not_shared) {
  neap_graph *g = graph_new();
  int x = input(g, "x", 128), a = transient(g, "a", 128), b = transient(g, "b", 128),
      c = transient(g, "c", 128), d = transient(g, "d", 64), e = transient(g, "e", 64);
  g->value[b].layout =
    (neap_layout){.kind = NEAP_LAYOUT_BLOCKED, .n_inner = 1, .inner_dim = {0}, .inner_block = {16}};
  NODE(g, &op_plain, 0, L(x), L(a));
  NODE(g, &op_relu, 0, L(a), L(b));
  NODE(g, &op_view, 0, L(b), L(c));
  NODE(g, &op_view, 0, L(c), L(d));
  NODE(g, &op_plain, 0, L(d), L(e));
  neap_plan *plan = plan_simple(g);
  CHECK_EQ(plan->place[b].refusal, NEAP_REFUSAL_BYTES);
  CHECK(plan->place[c].reason != NEAP_REASON_ALIAS);
  CHECK(plan->place[d].reason != NEAP_REASON_ALIAS);
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

int main(int argc, char **argv) {
  return RUN(argc, argv, T(chain_shares_bytes), T(in_place_takes_the_input),
             T(in_place_is_refused_with_the_reason), T(bytes_in_another_order_are_not_shared),
             T(views_are_counted_with_their_source), T(views_of_resident_bytes_are_copies),
             T(versions_share_resident_storage), T(scratch_lies_apart_from_what_lives),
             T(empty_values_take_nothing), T(dag_branches_share_nothing),
             T(policy_name_shares_by_name), T(subnets_overlay_in_their_owners_scratch),
             T(budget_names_what_is_in_the_way), T(order_lowers_the_peak));
}
