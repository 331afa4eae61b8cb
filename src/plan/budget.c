/* budget.c: a budget is a promise: an arena above it is refused with what is needed and what stands in the way.
 *
 * It bounds the arena (under policy `pool` the pool), and a total the arena with all that lies beside it. The refusal is one
 * message that a user can act on: the least bytes that the order and kernels tried last need, the step where the most is live,
 * and the blobs that live there, largest first; error->least_bytes has the figure for callers that go on from there.
 *
 * INVARIANT: a plan that passes never needs more than the budget, whatever data come: loops whose frames grow are refused.
 */
#include "plan/plan_int.h"

#include <stdio.h>

enum { N_NAMED = 4 }; /* blobs in a message */

/* A loop without a maximum takes as much as its condition asks for: that can't be promised. */
static const neap_node *growing_loop(const neap_graph *graph) {
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n], *inner = NULL;
    if (node->loop != NULL && node->loop->grows) return node;
    for (int s = 0; s < node->n_sub && inner == NULL; s++) inner = growing_loop(node->sub[s]);
    if (inner != NULL) return inner;
  }
  return NULL;
}

/* BUDGET error at the loop's line. Within a maximum the frames would be part of the arena, so that is the hint. */
static neap_status refuse_growth(const neap_node *node, size_t budget_bytes, neap_error *error) {
  char asked[24], record[24];
  neap_fail(error, NEAP_BUDGET,
            "%s \"%s\" has no maximum of iterations: training through it takes %s for each, and no budget (%s) "
            "can be promised",
            node->op->name, node->name, neap_bytes_text((double)node->loop->record_bytes, record),
            neap_bytes_text((double)budget_bytes, asked));
  neap_hint(error, "give the loop max = n: its frames are planned then");
  if (error != NULL) snprintf(error->line, sizeof error->line, "%s", node->line != NULL ? node->line : "");
  return NEAP_BUDGET;
}

int neap_plan_changed(const neap_graph *graph) {
  int n = 0;
  for (int i = 0; i < graph->n_node; i++) {
    n += graph->node[i].choice.changed;
    for (int s = 0; s < graph->node[i].n_sub; s++) n += neap_plan_changed(graph->node[i].sub[s]);
  }
  return n;
}

/* Without an arena no step is in the way: what lies beside it is too much for the total. */
static neap_status refuse_beside(const neap_graph *graph, size_t beside, size_t total, neap_error *error) {
  char text[24], asked[24];
  neap_fail(error, NEAP_BUDGET, "least total for \"%s\" is %s, all of it beside the arena, the total is %s",
            graph->name != NULL ? graph->name : "net", neap_bytes_text((double)beside, text),
            neap_bytes_text((double)total, asked));
  if (error != NULL) error->least_bytes = (int64_t)beside;
  return NEAP_BUDGET;
}

/* 0 is no budget; a total counts the bytes beside the arena too. Called when everything has been tried: what is said to be
 * least is so for this order and these kernels. */
neap_status neap_plan_check_budget(const neap_plan *plan, const neap_graph *graph, size_t budget_bytes, bool is_total,
                                   size_t beside_bytes, neap_error *error) {
  size_t need = plan->arena_bytes + beside_bytes;
  if (budget_bytes == 0) return NEAP_OK;
  if (plan->region_bytes[NEAP_REGION_FRAME] > 0) return refuse_growth(growing_loop(graph), budget_bytes, error);
  NEAP_ASSERT(growing_loop(graph) == NULL, "no loop of \"%s\" takes more than the plan says: its frames do not grow",
              graph->name);
  if (need <= budget_bytes) return NEAP_OK;
  /* The peak is where something would have to go. */
  if (plan->arena_bytes == 0) return refuse_beside(graph, need, budget_bytes, error);
  int value[N_NAMED], n = neap_plan_live_at(plan, graph, -1, plan->peak_step, N_NAMED, value);
  const neap_node *node = &graph->node[plan->order[plan->peak_step]];
  neap_buffer list = {0};
  char text[24], asked[24];
  for (int i = 0; i < n; i++)
    neap_buffer_add(&list, "%s%s %s", i > 0 ? ", " : "", graph->value[value[i]].name != NULL ? graph->value[value[i]].name : "?",
                    neap_bytes_text((double)plan->place[value[i]].bytes, text));
  if (plan->scratch_bytes[plan->order[plan->peak_step]] > 0)
    neap_buffer_add(&list, "%sscratch %s", n > 0 ? ", " : "",
                    neap_bytes_text((double)plan->scratch_bytes[plan->order[plan->peak_step]], text));
  bool has_line = node->line != NULL && node->line[0] != '\0';
  char beside[80] = "", arena[24], rest[24];
  if (is_total)
    snprintf(beside, sizeof beside, " (arena %s, beside it %s)", neap_bytes_text((double)plan->arena_bytes, arena),
             neap_bytes_text((double)beside_bytes, rest));
  neap_fail(error, NEAP_BUDGET, "least %s for \"%s\" is %s%s, the %s %s; in the way at step %d (%s%s%s): %s",
            is_total                           ? "total"
            : plan->policy == NEAP_POLICY_POOL ? "pool"
                                               : "arena",
            graph->name != NULL ? graph->name : "net", neap_bytes_text((double)need, text), beside,
            is_total ? "total is" : "budget", neap_bytes_text((double)budget_bytes, asked), plan->peak_step + 1,
            node->name != NULL ? node->name : "?", has_line ? ", " : "", has_line ? node->line : "",
            list.text != NULL ? list.text : "");
  if (error != NULL) {
    error->least_bytes = (int64_t)need;
    if (n > 0 && graph->value[value[0]].name != NULL)
      snprintf(error->blob, sizeof error->blob, "%s", graph->value[value[0]].name);
    if (node->line != NULL) snprintf(error->line, sizeof error->line, "%s", node->line);
    if (node->scope != NULL) snprintf(error->scope, sizeof error->scope, "%s", node->scope);
  }
  neap_buffer_fini(&list);
  return NEAP_BUDGET;
}

/* The step of the most bytes live in bank `b`, and those bytes, by the places. */
static int bank_peak(const neap_plan *plan, const neap_graph *graph, int b) {
  size_t most = 0;
  int peak = 0;
  for (int i = 0; i < plan->n_node; i++) {
    size_t live = graph->node[plan->order[i]].bank == b ? plan->scratch_bytes[plan->order[i]] : 0;
    for (int v = 0; v < plan->n_value; v++) {
      const neap_place *place = &plan->place[v];
      bool here = place->region == NEAP_REGION_ARENA && graph->value[v].bank == b && place->reason != NEAP_REASON_ALIAS;
      if (here && place->first <= i && i <= place->last) live += place->bytes;
    }
    if (live > most) most = live, peak = i;
  }
  return peak;
}

static neap_status refuse_bank(const neap_plan *plan, const neap_graph *graph, int b, neap_error *error) {
  const neap_bank *bank = &graph->bank[b];
  int step = bank_peak(plan, graph, b), largest;
  bool some = neap_plan_live_at(plan, graph, b, step, 1, &largest) > 0;
  const char *blob = some ? graph->value[largest].name : "";
  const neap_node *node = &graph->node[plan->order[step]];
  char need[24], has[24], most[24], text[160] = "";
  if (some)
    snprintf(text, sizeof text, ", the largest \"%.80s\" with %s", blob,
             neap_bytes_text((double)plan->place[largest].bytes, most));
  neap_fail(error, NEAP_BUDGET, "bank \"%s\" has %s, \"%s\" needs at least %s of it; in the way at step %d (%s)%s", bank->name,
            neap_bytes_text((double)bank->bytes, has), graph->name, neap_bytes_text((double)plan->bank[b].bytes, need), step + 1,
            node->name, text);
  neap_hint(error, "assign fewer ops or blobs to \"%s\"", bank->name);
  if (error != NULL) {
    error->least_bytes = (int64_t)plan->bank[b].bytes;
    snprintf(error->line, sizeof error->line, "%s", node->line);
    snprintf(error->blob, sizeof error->blob, "%s", blob);
  }
  return NEAP_BUDGET;
}

neap_status neap_plan_check_banks(const neap_plan *plan, const neap_graph *graph, neap_error *error) {
  for (int b = 0; b < plan->n_bank; b++) {
    size_t limit = (size_t)graph->bank[b].bytes;
    if (limit > 0 && plan->bank[b].bytes > limit) return refuse_bank(plan, graph, b, error);
  }
  return NEAP_OK;
}
