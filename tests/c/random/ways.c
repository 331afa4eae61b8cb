/* ways.c: a net is run unplanned, then in every other way, under poison: every blob that can be had
 * must have the same bits.
 *
 * A way is a workspace to run in (its own, a child's, a child's with forwarded names), options, and
 * a limit.
 */
#include "random/trial.h"
#include "memonger/memonger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool is_refusal(const neap_error *error, const char *text) {
  if (error->code != NEAP_GRAPH || strstr(text, " = Gradient(") == NULL) return false;
  return (strstr(error->message, "has freed it") != NULL && strstr(text, "Free(") != NULL) ||
         (strstr(error->message, "has overwritten it") != NULL &&
          strstr(text, "\nstate m") != NULL);
}

/* ---- policies, executors, limits ------------------------------------------------------------- */

typedef struct way {
  const char *name;
  neap_policy policy;
  neap_executor executor;
  bool no_in_place, dynamic, limited;
  lodging where;
} way;

static const way ways[] = {
  {.name = "offset", .policy = NEAP_POLICY_OFFSET},
  {.name = "name", .policy = NEAP_POLICY_NAME},
  {.name = "offset, nothing in place", .policy = NEAP_POLICY_OFFSET, .no_in_place = true},
  {.name = "none, dag", .policy = NEAP_POLICY_NONE, .executor = NEAP_EXECUTOR_DAG},
  {.name = "offset, dag", .policy = NEAP_POLICY_OFFSET, .executor = NEAP_EXECUTOR_DAG},
  {.name = "name, dag", .policy = NEAP_POLICY_NAME, .executor = NEAP_EXECUTOR_DAG},
  {.name = "pool", .policy = NEAP_POLICY_POOL},
  {.name = "dynamic", .policy = NEAP_POLICY_POOL, .dynamic = true},
  {.name = "offset, in a child", .policy = NEAP_POLICY_OFFSET, .where = CHILD},
  {.name = "offset, forwarded", .policy = NEAP_POLICY_OFFSET, .where = FORWARDED},
  {.name = "name, dag, forwarded",
   .policy = NEAP_POLICY_NAME,
   .executor = NEAP_EXECUTOR_DAG,
   .where = FORWARDED},
  {.name = "dynamic, in a child", .policy = NEAP_POLICY_POOL, .dynamic = true, .where = CHILD},
  {.name = "offset, limited", .policy = NEAP_POLICY_OFFSET, .limited = true},
  {.name = "offset, dag, limited",
   .policy = NEAP_POLICY_OFFSET,
   .executor = NEAP_EXECUTOR_DAG,
   .limited = true},
  {.name = "pool, limited", .policy = NEAP_POLICY_POOL, .limited = true},
  {.name = "dynamic, limited", .policy = NEAP_POLICY_POOL, .dynamic = true, .limited = true},
};

/* The arena without a limit, and the least that a limit may be, as the refusal of one byte says; 0
 * for both: there is no arena, or a loop that grows. */
static neap_status limits(trial *t, const char *name, const neap_compile_options *o, size_t *least,
                          size_t *most, neap_error *error) {
  neap_forecast forecast;
  neap_compile_options with = *o;
  with.plan.budget_bytes = 0;
  *least = *most = 0;
  NEAP_TRY(neap_driver_plan(t->net, &with, &forecast, error));
  *most = forecast.plan->arena_bytes;
  neap_forecast_fini(&forecast);
  if (*most == 0) return NEAP_OK;

  /* One byte is never enough: the refusal says the least that would do. */
  with.plan.budget_bytes = 1;
  neap_error refused = {0};
  neap_status status = neap_driver_plan(t->net, &with, &forecast, &refused);
  if (status == NEAP_OK) neap_forecast_fini(&forecast);
  if (status == NEAP_BUDGET && strstr(refused.message, "has no maximum of iterations") != NULL) {
    *most = 0; /* training through such a loop: no limit can be promised */
    return strstr(t->made.text, ", n_state = ") != NULL && t->made.trains
             ? NEAP_OK
             : neap_fail(error, NEAP_PLAN, "%s", refused.message);
  }
  if (status != NEAP_BUDGET)
    return neap_fail(error, NEAP_PLAN, "%s: one byte is no refusal of memory: %s", name,
                     refused.message);
  *least = (size_t)refused.least_bytes;
  return *least > 1 && *least <= *most
           ? NEAP_OK
           : neap_fail(error, NEAP_PLAN, "the least is %zu bytes, without a limit there are %zu",
                       *least, *most);
}

/* Under the least that there may be, just below what is free, and between. */
static bool limited_agree(trial *t, const way *v, neap_compile_options o) {
  size_t least, most;
  neap_error error = {0};
  if (limits(t, v->name, &o, &least, &most, &error) != NEAP_OK)
    return fail(t, v->name, error.message);
  size_t budget[] = {least, (least + most) / 2, most > NEAP_ALIGN ? most - NEAP_ALIGN : 0};

  /* A limit may be as small as what was said to do: it must then be met, and to the same bits. */
  for (int k = 0; k < NEAP_COUNT(budget); k++) {
    if (budget[k] < least || budget[k] == 0) continue;
    ran r = {0};
    o.plan.budget_bytes = budget[k];
    bool holds = agrees(t, v->name, t->net, &o, v->where, &r);
    if (holds) {
      const neap_plan *plan = neap_program_plan(neap_session_program(r.session));
      double work;
      t->totals->n_budget++;
      t->totals->n_recomputed +=
        neap_plan_recomputed(neap_program_graph(neap_session_program(r.session)), &work) > 0;
      t->totals->n_evicted += plan->script.n_evicted > 0;
      if (v->dynamic) holds = turns_wait(t, v->name, neap_session_program(r.session));
      if (plan->arena_bytes > budget[k])
        holds = fail(t, v->name, "the arena is larger than its limit");
    }

    /* A fault says under which limit, since there are three to a way. */
    ran_close(&r);
    if (!holds) {
      size_t used = strlen(t->fault->message);
      snprintf(t->fault->message + used, sizeof t->fault->message - used,
               " (limit %zu, of %zu to %zu)", budget[k], least, most);
      return false;
    }
  }
  return true;
}

/* Without a limit. */
static bool free_agrees(trial *t, const way *v, const neap_compile_options *o) {
  ran r = {0};
  bool holds = agrees(t, v->name, t->net, o, v->where, &r);
  if (holds && v->dynamic) holds = turns_wait(t, v->name, neap_session_program(r.session));
  ran_close(&r);
  return holds;
}

static bool policies_agree(trial *t) {
  for (int k = 0; k < NEAP_COUNT(ways); k++) {
    const way *v = &ways[k];
    if (!begins(t, v->name)) continue;
    neap_compile_options o = t->options;
    o.plan = (neap_plan_options){.policy = v->policy,
                                 .executor = v->executor,
                                 .no_in_place = v->no_in_place,
                                 .most_steps = 300000};
    o.dynamic = v->dynamic;
    if (v->limited ? !limited_agree(t, v, o) : !free_agrees(t, v, &o)) return false;
  }
  return true;
}

/* ---- the net in other words ------------------------------------------------------------------ */

/* With its backward pass written out, and with its names recycled. */
static bool rewritten_agree(trial *t) {
  neap_error error = {0};
  neap_net *other = NULL;
  neap_compile_options o = t->options;
  bool holds = true;
  if (begins(t, "written out")) {
    holds = neap_recycle_write_out(t->net, NULL, &other, &error) == NEAP_OK ||
            fail(t, "written out", error.message);
    if (other != NULL) { /* there is a backward pass, and none of it is a loop's */
      holds = holds && agrees(t, "written out", other, &o, OWN, NULL);
      t->totals->n_written += holds;
    }
    neap_net_free(other);
  }

  /* Names that are shared must not change a bit, nor the figures be in another order than what they
   * mean. */
  for (int dag = 0; dag < 2 && holds; dag++) {
    const char *name = dag ? "recycled, dag" : "recycled";
    if (!begins(t, name)) continue;
    neap_recycle_figures f;
    other = NULL;
    o.plan = (neap_plan_options){.policy = NEAP_POLICY_NAME,
                                 .executor = dag ? NEAP_EXECUTOR_DAG : NEAP_EXECUTOR_SIMPLE};
    if (neap_net_recycle(t->net, &(neap_recycle_options){.dag = dag}, &other, &f, &error) !=
        NEAP_OK)
      holds = fail(t, name, error.message);
    else if (f.lower_bound_bytes > f.planned_bytes || f.planned_bytes > f.baseline_bytes)
      holds = fail(t, name, "the figures are in the wrong order");
    else
      holds = agrees(t, name, other, &o, OWN, NULL);
    neap_net_free(other);
  }
  return holds;
}

/* ---- memory banks ---------------------------------------------------------------------------- */

/* Draws that follow from the recipe's seed alone. */
static uint32_t bank_draw(const trial *t, int *n) {
  uint32_t word[4];
  neap_philox(t->recipe->seed, 79, 0, (uint64_t)(*n)++, word);
  return word[0];
}

/* The text with labels on some of the ops outside of subnets, and some of their outputs in banks,
 * anywhere: to be freed. */
static char *in_banks(const trial *t) {
  static const char *const bank[] = {"fast", "slow", "main"};
  neap_buffer body = {0}, after = {0};
  int depth = 0, n = 0;

  /* Line by line: ops outside of subnets may get a label, and blobs that they write a bank. Banks
   * are said at the end, when all blobs are there. */
  for (const char *text = t->made.text; *text != '\0'; text += strcspn(text, "\n") + 1) {
    int length = (int)strcspn(text, "\n"), end = 0;
    const char *word = text + strspn(text, " ");
    if (strncmp(word, "subnet ", 7) == 0) depth++;
    bool is_op = depth == 0 && memchr(text, '(', (size_t)length) != NULL &&
                 strncmp(text, "input ", 6) != 0 && strncmp(text, "param ", 6) != 0 &&
                 strncmp(text, "state ", 6) != 0;
    neap_buffer_add_n(&body, text, (size_t)length);
    if (is_op && bank_draw(t, &n) % 100 < 40)
      neap_buffer_add(&body, " on %s", bank[bank_draw(t, &n) % 3]);
    neap_buffer_add(&body, "\n");
    char name[24];
    if (is_op && sscanf(text, "%23[v0-9a-z] =%n", name, &end) == 1 && end > 0 && name[0] == 'v' &&
        bank_draw(t, &n) % 100 < 20)
      neap_buffer_add(&after, "bank %s %s\n", bank[bank_draw(t, &n) % 3], name);
    if (strncmp(word, "end", 3) == 0 && depth > 0) depth--;
  }
  neap_buffer_add(&body, "%s", after.text != NULL ? after.text : "");
  char *copy = strdup(body.text);
  neap_buffer_fini(&body);
  neap_buffer_fini(&after);
  return copy;
}

static neap_status count_moves(const neap_net *net, const neap_compile_options *o, int *n_moved,
                               neap_error *error) {
  neap_forecast forecast;
  NEAP_TRY(neap_driver_plan(net, o, &forecast, error));
  for (int n = 0; n < forecast.graph->n_node; n++) {
    const neap_node *node = &forecast.graph->node[n];
    *n_moved +=
      strcmp(node->op->name, "Reorder") == 0 && neap_graph_bank_of(forecast.graph, node->in[0]) !=
                                                  neap_graph_bank_of(forecast.graph, node->out[0]);
  }
  neap_forecast_fini(&forecast);
  return NEAP_OK;
}

static bool banks_agree(trial *t) {
  static const way in[] = {
    {.name = "in banks", .policy = NEAP_POLICY_OFFSET},
    {.name = "in banks, dag", .policy = NEAP_POLICY_OFFSET, .executor = NEAP_EXECUTOR_DAG},
    {.name = "in banks, name", .policy = NEAP_POLICY_NAME},
    {.name = "in banks, none, dag", .policy = NEAP_POLICY_NONE, .executor = NEAP_EXECUTOR_DAG}};
  static const neap_bank bank[] = {{.name = "fast", .bytes = 1 << 26},
                                   {.name = "slow", .kind = NEAP_BANK_HUGE}};
  char *text = in_banks(t);
  neap_net *net = NULL;
  neap_error error = {0};
  neap_compile_options o = t->options;
  bool holds = neap_net_read(text, &net, &error) == NEAP_OK || fail(t, in[0].name, error.message);

  /* The plain run to compare with is one that fuses nothing, either: it stands in the place of the
   * other for a while. */
  ran all = t->plain;
  o.graph.no_fuse = true; /* what is fused depends on the banks, and bits on what is fused */
  if (!t->made.trains && (t->only == NULL || strncmp(t->only, "in banks", 8) == 0))
    holds = holds && (run_net(t->net, &o, OWN, false, &t->plain, &error) == NEAP_OK ||
                      fail(t, in[0].name, error.message));

  /* Two banks beside main, one with a limit that is never met and one of huge pages. */
  o.graph.n_bank = 2, o.graph.bank = bank;
  for (int k = 0; k < NEAP_COUNT(in) && holds; k++) {
    if (!begins(t, in[k].name)) continue;
    o.plan =
      (neap_plan_options){.policy = in[k].policy, .executor = in[k].executor, .most_steps = 300000};
    holds = agrees(t, in[k].name, net, &o, OWN, NULL);
    if (holds && k == 0)
      holds = count_moves(net, &o, &t->totals->n_moved, &error) == NEAP_OK ||
              fail(t, in[k].name, error.message);
  }
  if (t->plain.ws != all.ws) ran_close(&t->plain);
  t->plain = all;
  neap_net_free(net);
  free(text);
  return holds;
}

/* ---- the whole ------------------------------------------------------------------------------- */

bool runs_agree(const recipe *r, const char *only, totals *all, fault *f) {
  trial t = {.recipe = r, .made = write_net(r), .totals = all, .fault = f, .only = only};
  uint64_t seed = r->seed;
  t.options = (neap_compile_options){.plan = {.policy = NEAP_POLICY_NONE},
                                     .n_thread = 1 + (int)(seed % 3),
                                     .engine = seed % 3 != 0 ? "ref" : "free"};
  neap_error error = {0};
  snprintf(ways_at, sizeof ways_at, "%llu: unplanned", (unsigned long long)seed);

  /* Unplanned first: all other ways are compared with it. */
  bool runs = neap_net_read(t.made.text, &t.net, &error) == NEAP_OK &&
              run_net(t.net, &t.options, OWN, false, &t.plain, &error) == NEAP_OK;
  bool refused = !runs && is_refusal(&error, t.made.text),
       holds = runs || refused || fail(&t, "unplanned", error.message);
  all->n_refused += refused, all->n_run += runs;
  for (int k = 0; runs && k < t.made.n_family; k++) all->by_family[k] += t.made.by_family[k] > 0;

  /* Rewriting is the slowest way: one net of four. */
  holds = holds && (!runs || (policies_agree(&t) && programs_agree(&t) && chains_agree(&t) &&
                              banks_agree(&t) && (seed % 4 != 0 || rewritten_agree(&t))));
  ran_close(&t.plain);
  neap_net_free(t.net);
  made_fini(&t.made);
  return holds;
}
