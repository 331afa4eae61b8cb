/* test_plan_text.c: plans as text, read back, and text that is none. */
#include "hand_graph.h"
#include "report/report.h"

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

/* The first number with a letter in front. Every line still has as many words as it should. */
static neap_status read_with_letter(const char *text, const neap_graph *g, neap_error *error) {
  const char *at = strstr(text, "\nbytes ") + strlen("\nbytes ");
  neap_buffer hurt = {0};
  neap_plan *plan = NULL;
  neap_buffer_add(&hurt, "%.*sx%s", (int)(at - text), text, at);
  neap_status status = neap_plan_read(hurt.text, g, &plan, error);
  neap_plan_free(plan);
  neap_buffer_fini(&hurt);
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

    /* Numbers of many digits, a letter in one, and a plan of another graph. */
    neap_free(hurt);
    CHECK_OK(read_with_long_number(text.text, 31, g, &error));
    CHECK_FAILS(read_with_long_number(text.text, 32, g, &error), NEAP_PLAN, "line 2");
    CHECK_FAILS(read_with_letter(text.text, g, &error), NEAP_PLAN, "line 2 of");
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
TEST(no_recomputation_undercuts_what_one_node_takes) {
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

    /* An operand twice, one that is no transient, and sizes that are rounded up. */
    int n = NODE(g, kind[k].op, 10, L(a, a, x, b), L(c));
    g->node[n].n_sub = kind[k].op == &op_loop;
    g->node[n].sub = neap_arena_copy(&g->arena, &sub, sizeof(void *));
    neap_plan_options options = {.policy = NEAP_POLICY_OFFSET};
    size_t least = 1;
    int n_failed = 0;

    /* Counted with every allocation refused once, too. */
    for (bool passed = false; !passed && n_failed < 1000; n_failed += !passed) {
      int64_t live = neap_memory_read().n_live;
      neap_error error = {0};
      neap_memory_fail_nth_block(n_failed + 1);
      neap_status status = neap_recomputes_least(g, &options, &least, &error);
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
  return RUN(argc, argv, T(text_reads_back_and_refuses_the_rest), T(explain_says_who_shares),
             T(refused_allocations_leave_nothing),
             T(no_recomputation_undercuts_what_one_node_takes),
             T(refused_allocations_leave_nothing_on_reading), T(large_dags_are_planned_quickly));
}
