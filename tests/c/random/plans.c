/* plans.c: plans of random nets under every policy, through the independent verifier. */
#include "random/ways.h"

#include "driver/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void count_plan(const neap_graph *graph, const neap_plan *plan, totals *t) {
  t->n_plan++;
  if (plan->policy != NEAP_POLICY_OFFSET) return;
  t->n_proved += plan->proved;
  if (plan->lower_bound_bytes > 0)
    t->worst = NEAP_MAX(t->worst, (double)plan->arena_bytes / (double)plan->lower_bound_bytes);

  /* What is the graph's own is counted once, with the plan for executor `simple`. */
  if (plan->executor != NEAP_EXECUTOR_SIMPLE) return;
  t->n_node += graph->n_node;
  t->most_nodes = NEAP_MAX(t->most_nodes, graph->n_node);
  t->n_train += graph->train;
  for (int n = 0; n < graph->n_node; n++) t->n_loop += graph->node[n].loop != NULL;
  for (int v = 0; v < plan->n_value; v++) {
    t->n_in_place += plan->place[v].reason == NEAP_REASON_IN_PLACE;
    t->n_alias += plan->place[v].reason == NEAP_REASON_ALIAS;
  }
}

static neap_status plan_and_verify(const neap_graph *graph, uint64_t seed, totals *t,
                                   neap_error *error) {
  static const neap_policy policy[] = {NEAP_POLICY_OFFSET, NEAP_POLICY_OFFSET, NEAP_POLICY_NAME,
                                       NEAP_POLICY_NAME, NEAP_POLICY_NONE};
  for (int k = 0; k < 4; k++) { /* offset for both executors, then by turns what is left */
    int which = k < 2 ? k : 2 + (int)((seed + (uint64_t)k) % 3);
    neap_plan_options o = {.policy = policy[which],
                           .executor = (neap_executor)(which % 2),
                           .most_steps = 300000,
                           .no_in_place = k == 3 && seed % 7 == 0};

    /* The verifier shares no code with the planner; the bound is compared here, since it is only
     * counted there. */
    neap_plan *plan = NULL;
    NEAP_TRY(neap_plan_make(graph, &o, &plan, error));
    neap_status status = neap_plan_verify(plan, graph, error);
    if (status == NEAP_OK && plan->arena_bytes < plan->lower_bound_bytes)
      status = neap_fail(error, NEAP_PLAN, "the arena is below its lower bound");
    count_plan(graph, plan, t);
    neap_plan_free(plan);
    NEAP_TRY(status);
  }
  return NEAP_OK;
}

/* Every other node that may be is repeated for the backward, in bodies too: the plans must be as
 * sound as those of the graph itself. */
static neap_status plan_repeated(const neap_graph *graph, neap_graph *laid, neap_choices *choices,
                                 uint64_t seed, totals *t, neap_error *error) {
  neap_graph *repeated = NULL;
  neap_body_node *list = NULL;
  int n_list = 0;
  NEAP_TRY(neap_graph_body_nodes(laid, &n_list, &list, error));
  int *again = malloc(((size_t)laid->n_node + 1) * sizeof *again), n_again = 0;
  int *body = malloc(((size_t)n_list + 1) * sizeof *body), n_body = 0;
  totals apart = {0};

  /* Which nodes follows from the seed, some two in three of those that may be. */
  for (int n = 0; n < laid->n_node; n++)
    if (neap_graph_can_recompute(laid, n) && (seed + (uint64_t)n * 7) % 3 > 0) again[n_again++] = n;
  for (int i = 0; i < n_list; i++)
    if ((seed + (uint64_t)i * 5) % 3 > 0) body[n_body++] = i;

  /* The choices say what is repeated; the graph is laid out once more by them. */
  const neap_recomputed set = {n_again, n_body, again, body};
  neap_status s = neap_choices_recompute(choices, &set, error);
  if (s == NEAP_OK) s = neap_graph_lay_out(graph, choices, &repeated, error);
  if (s == NEAP_OK) s = plan_and_verify(repeated, seed, &apart, error);
  for (int n = 0; s == NEAP_OK && n < repeated->n_node; n++)
    t->n_again += repeated->node[n].recomputes > 0;
  t->n_plan += apart.n_plan;
  neap_graph_free(repeated);
  free(again);
  free(body);
  neap_free(list);
  return s;
}

static neap_status plan_net(const char *text, uint64_t seed, totals *t, neap_error *error) {
  neap_net *net = NULL;
  neap_graph *graph = NULL, *laid = NULL;
  neap_choices choices = {0};
  NEAP_TRY(neap_net_read(text, &net, error));
  neap_status s =
    neap_graph_prepare(net, &(neap_graph_options){.no_rewrite = seed % 5 == 0}, &graph, error);

  /* Engines and threads by turns: their kernels have scratch and layouts of their own. */
  neap_choose_options choose = {.force = seed % 3 != 0,
                                .engine = NEAP_ENGINE_REF,
                                .n_thread = 1 + (int)(seed % 2),
                                .scratch_limit = SIZE_MAX};
  if (s == NEAP_OK) s = neap_graph_choose(graph, &choose, &choices, error);
  if (s == NEAP_OK) s = neap_graph_lay_out(graph, &choices, &laid, error);
  if (s == NEAP_OK) s = plan_and_verify(laid, seed, t, error);
  if (s == NEAP_OK && laid->train) s = plan_repeated(graph, laid, &choices, seed, t, error);
  neap_choices_fini(&choices);
  neap_graph_free(laid);
  neap_graph_free(graph);
  neap_net_free(net);
  return s;
}

bool plans_hold(const recipe *r, totals *t, fault *f) {
  made m = write_net(r);
  neap_error error = {0};
  neap_status status = plan_net(m.text, r->seed, t, &error);
  bool refused = is_refusal(&error, m.text), holds = status == NEAP_OK || refused;
  t->n_net += status == NEAP_OK, t->n_refused += refused;
  for (int k = 0; k < m.n_family; k++) t->by_family[k] += m.by_family[k] > 0;

  /* Plans are one way in the words of a fault. */
  if (!holds)
    snprintf(f->way, sizeof f->way, "plans"),
      snprintf(f->message, sizeof f->message, "%s", error.message);
  made_fini(&m);
  return holds;
}
