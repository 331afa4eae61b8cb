/* budget.c: a budget is a promise: an arena above it is refused with what is needed and what stands in the way. */
#include "plan/plan_int.h"

#include <stdio.h>

enum { N_NAMED = 4 };

neap_status neap_plan_check_budget(const neap_plan *plan, const neap_graph *graph, size_t budget_bytes, neap_error *error) {
  if (budget_bytes == 0 || plan->arena_bytes <= budget_bytes) return NEAP_OK;
  int value[N_NAMED], n = neap_plan_live_at(plan, plan->peak_step, N_NAMED, value);
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
  neap_fail(error, NEAP_MEMORY, "least %s for \"%s\" is %s, the budget %s; in the way at step %d (%s%s%s): %s",
            plan->policy == NEAP_POLICY_POOL ? "pool" : "arena", graph->name != NULL ? graph->name : "net",
            neap_bytes_text((double)plan->arena_bytes, text), neap_bytes_text((double)budget_bytes, asked), plan->peak_step + 1,
            node->name != NULL ? node->name : "?", has_line ? ", " : "", has_line ? node->line : "",
            list.text != NULL ? list.text : "");
  if (error != NULL) {
    error->least_bytes = (int64_t)plan->arena_bytes;
    if (n > 0 && graph->value[value[0]].name != NULL)
      snprintf(error->blob, sizeof error->blob, "%s", graph->value[value[0]].name);
    if (node->line != NULL) snprintf(error->line, sizeof error->line, "%s", node->line);
    if (node->scope != NULL) snprintf(error->scope, sizeof error->scope, "%s", node->scope);
  }
  neap_buffer_fini(&list);
  return NEAP_MEMORY;
}
