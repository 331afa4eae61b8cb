/* plan.c: the words of plans (policies, executors, reasons, refusals) and the begin and end of a
 * plan's life.
 *
 * A plan is a block of tables in one arena that it lies in itself: by node, by step and by value of
 * one graph, and the plans of that graph's subnets. It borrows nothing from the graph, so it may be
 * stored and read back; but its numbers mean something only beside the graph it was made for, or
 * one of the same form.
 *
 * INVARIANT: names of policies and codes of reasons are part of stored plans and of the database:
 * they may be added, not changed.
 */
#include "plan/plan_int.h"

#include <string.h>

static const char *const policies[] = {
#define COMMA ,
  NEAP_POLICY_MAP(NEAP_POLICY_WORD, COMMA)
#undef COMMA
};
/* In the order of the enum in plan.h. */
static const char *const executors[] = {"simple", "dag"};

const char *neap_policy_name(neap_policy policy) {
  return (unsigned)policy < (unsigned)NEAP_COUNT(policies) ? policies[policy] : "?";
}

/* False, and *policy as it was, for any other word. */
bool neap_policy_from_name(const char *name, neap_policy *policy) {
  for (int i = 0; i < NEAP_COUNT(policies); i++)
    if (strcmp(name, policies[i]) == 0) {
      *policy = (neap_policy)i;
      return true;
    }
  return false;
}

const char *neap_executor_name(neap_executor executor) {
  return (unsigned)executor < (unsigned)NEAP_COUNT(executors) ? executors[executor] : "?";
}

/* One table of codes and one of words, from the one list in plan.h. */
#define X(symbol, code, words) code,
static const char *const reason_codes[] = {NEAP_REASON_MAP(X)};
static const char *const refusal_codes[] = {NEAP_REFUSAL_MAP(X)};
#undef X
#define X(symbol, code, words) words,
static const char *const reason_words[] = {NEAP_REASON_MAP(X)};
static const char *const refusal_words[] = {NEAP_REFUSAL_MAP(X)};
#undef X

const char *neap_reason_code(neap_reason reason) {
  return (unsigned)reason < (unsigned)NEAP_COUNT(reason_codes) ? reason_codes[reason] : "?";
}

const char *neap_reason_words(neap_reason reason) {
  return (unsigned)reason < (unsigned)NEAP_COUNT(reason_words) ? reason_words[reason] : "?";
}

const char *neap_refusal_code(neap_refusal refusal) {
  return (unsigned)refusal < (unsigned)NEAP_COUNT(refusal_codes) ? refusal_codes[refusal] : "?";
}

const char *neap_refusal_words(neap_refusal refusal) {
  return (unsigned)refusal < (unsigned)NEAP_COUNT(refusal_words) ? refusal_words[refusal] : "?";
}

/* All zeros, with room for each node and value and one more, so that no table is ever empty. NULL
 * when refused. The arena is set up outside and moves in with the plan. */
neap_plan *neap_plan_new(const neap_graph *graph) {
  neap_arena arena = {0};
  neap_plan *plan = neap_arena_alloc(&arena, sizeof *plan);
  if (plan == NULL) return NULL;
  size_t n = (size_t)graph->n_node + 1, m = (size_t)graph->n_value + 1;
  plan->arena = arena;
  plan->n_node = graph->n_node;
  plan->n_value = graph->n_value;

  /* The tables. What is refused stays NULL, and all are looked at together in the end. */
  plan->order = neap_arena_alloc(&plan->arena, n * sizeof *plan->order);
  plan->place = neap_arena_alloc(&plan->arena, m * sizeof *plan->place);
  plan->scratch_offset = neap_arena_alloc(&plan->arena, n * sizeof *plan->scratch_offset);
  plan->scratch_bytes = neap_arena_alloc(&plan->arena, n * sizeof *plan->scratch_bytes);
  plan->live_bytes = neap_arena_alloc(&plan->arena, n * sizeof *plan->live_bytes);
  plan->sub = neap_arena_alloc(&plan->arena, n * sizeof *plan->sub);
  plan->n_bank = graph->n_bank;
  plan->bank = neap_arena_alloc(&plan->arena, (size_t)graph->n_bank * sizeof *plan->bank);
  if (plan->bank != NULL && plan->order != NULL && plan->place != NULL &&
      plan->scratch_offset != NULL && plan->scratch_bytes != NULL && plan->live_bytes != NULL &&
      plan->sub != NULL)
    return plan;
  neap_plan_free(plan);
  return NULL;
}

size_t neap_plan_total_bytes(const neap_plan *plan) {
  size_t bytes = 0;
  for (int r = 0; r < NEAP_N_REGION; r++)
    if (r != NEAP_REGION_ARGUMENT) bytes += plan->region_bytes[r];
  return bytes;
}

/* Plans of subnets are freed with their owner: `sub` has a NULL-terminated list by node. */
void neap_plan_free(neap_plan *plan) {
  if (plan == NULL) return;

  /* Without `sub` the plan's own tables were refused, and it has no subnets. */
  int n_owner = plan->sub != NULL ? plan->n_node : 0;
  for (int i = 0; i < n_owner; i++) {
    if (plan->sub[i] == NULL) continue;
    for (int k = 0; plan->sub[i][k] != NULL; k++) neap_plan_free(plan->sub[i][k]);
  }
  neap_arena arena = plan->arena; /* holds the plan itself */
  neap_arena_fini(&arena);
}

/* Where what it makes begins to live. */
int neap_plan_step_of(const neap_plan *plan, const neap_graph *graph, int node) {
  return plan->place[graph->node[node].out[0]].first;
}
