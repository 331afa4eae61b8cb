/* test_plan_verify.c: random graphs planned and run on paper, and plans damaged in every way that
 * the verifier must see. */
#include "hand_graph.h"

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
/* The same, behind the first bytes of the one that lives longer. */
static bool overlay_behind(neap_graph *g, neap_plan *plan) {
  (void)g;
  int a = pick(plan, is_long);
  for (int b = 0; a >= 0 && b < plan->n_value; b++) {
    const neap_place *at_a = &plan->place[a], *at_b = &plan->place[b];
    size_t offset = at_a->offset + NEAP_ALIGN;
    if (b != a && is_solid(plan, b) && at_b->first > at_a->first && at_b->first < at_a->last &&
        at_a->bytes > NEAP_ALIGN && offset + at_b->bytes <= plan->arena_bytes) {
      move_storage(plan, b, offset);
      return true;
    }
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
                 {"overlay_behind", overlay_behind},
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

    /* Not every graph has what a damage needs; over all rounds each must have been applied
     * often. */
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

/* An op that may overwrite any of its inputs may not where it reads one twice, nor by its second
 * output. */
TEST(in_place_of_any_input_is_of_one_that_is_read_once) {
  static const neap_op any = {.name = "Any", .inplace_any_input = true};
  for (int twice = 0; twice < 2; twice++) {
    neap_graph *g = graph_new();
    int x = input(g, "x", 64), a = transient(g, "a", 64), b = transient(g, "b", 64),
        c = transient(g, "c", 64);
    NODE(g, &op_plain, 0, L(x), L(a));
    if (twice)
      NODE(g, &any, 0, L(a, a), L(c, b));
    else
      NODE(g, &any, 0, L(a), L(b, c));
    neap_plan *plan = plan_with(g, (neap_plan_options){.policy = NEAP_POLICY_NONE});
    neap_place *at = &plan->place[c];
    at->reason = NEAP_REASON_IN_PLACE, at->partner = a, at->storage = a;
    at->offset = plan->place[a].offset;
    CHECK_FAILS(neap_plan_verify(plan, g, &error), NEAP_PLAN,
                twice ? "share bytes" : "allows no in_place of \"a\" and \"c\"");
    neap_plan_free(plan);
    graph_free(g);
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

int main(int argc, char **argv) {
  return RUN(argc, argv, T(random_graphs_pass_the_verifier), T(planned_reads_equal_unplanned_reads),
             T(damaged_plans_are_caught), T(in_place_of_any_input_is_of_one_that_is_read_once),
             T(a_wrong_life_is_told_in_steps_from_one));
}
