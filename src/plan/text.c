/* text.c: a plan as text, and back. Line by line, words separated by blanks:
 *
 *   plan 1 offset simple size                    version, policy, executor, packer
 *   bytes ARENA BOUND BASELINE PROVED PEAK_STEP PLAN_NS
 *   region BYTES ...                             one number for each region
 *   count N_NODE N_VALUE
 *   n NODE LIVE SCRATCH_OFFSET SCRATCH_BYTES     by step
 *   v REGION STORAGE OFFSET BYTES FIRST LAST REASON REFUSAL PARTNER     by value
 *   sub NODE K                                   the plan of subnet K follows
 *   end
 *
 * INVARIANT: reading what was printed and printing it again gives the same text.
 * INVARIANT: what is read is in range for its graph, whatever the text says: every index, region and reason can be used.
 * That it is also safe is verify.c's business.
 */
#include "plan/plan_int.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_VERSION "1"

void neap_plan_print(const neap_plan *plan, neap_buffer *out) {
  neap_buffer_add(out, "plan %s %s %s %s\n", TEXT_VERSION, neap_policy_name(plan->policy), neap_executor_name(plan->executor),
                  plan->packer);
  neap_buffer_add(out, "bytes %zu %zu %zu %d %d %lld\nregion", plan->arena_bytes, plan->lower_bound_bytes, plan->baseline_bytes,
                  plan->proved, plan->peak_step, (long long)plan->plan_ns);
  for (int r = 0; r < NEAP_N_REGION; r++) neap_buffer_add(out, " %zu", plan->region_bytes[r]);
  neap_buffer_add(out, "\ncount %d %d\n", plan->n_node, plan->n_value);
  for (int i = 0; i < plan->n_node; i++) {
    int n = plan->order[i];
    neap_buffer_add(out, "n %d %zu %zu %zu\n", n, plan->live_bytes[i], plan->scratch_offset[n], plan->scratch_bytes[n]);
  }
  for (int v = 0; v < plan->n_value; v++) {
    const neap_place *p = &plan->place[v];
    neap_buffer_add(out, "v %s %d %zu %zu %d %d %s %s %d\n", neap_region_name(p->region), p->storage, p->offset, p->bytes,
                    p->first, p->last, neap_reason_code(p->reason), neap_refusal_code(p->refusal), p->partner);
  }
  for (int n = 0; n < plan->n_node; n++)
    for (int k = 0; plan->sub[n] != NULL && plan->sub[n][k] != NULL; k++) {
      neap_buffer_add(out, "sub %d %d\n", n, k);
      neap_plan_print(plan->sub[n][k], out);
    }
  neap_buffer_add(out, "end\n");
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

/* A failed read sets `failed` and makes all later ones give 0, so that a record is read first and checked once. */
typedef struct reader {
  const char *at;
  int line;
  bool failed;
} reader;

/* The next word of this line, cut off at the room given. */
static const char *read_word(reader *r, char word[32]) {
  while (*r->at == ' ') r->at++;
  size_t n = strcspn(r->at, " \n");
  word[0] = '\0';
  if (n == 0 || n >= 32) {
    r->failed = true;
    return word;
  }
  memcpy(word, r->at, n);
  word[n] = '\0';
  r->at += n;
  return word;
}

/* This word and no other. */
static void expect(reader *r, const char *word) {
  char got[32];
  if (strcmp(read_word(r, got), word) != 0) r->failed = true;
}

/* Nothing may stand behind what a line is known to hold. */
static void end_line(reader *r) {
  if (*r->at == '\n')
    r->at++, r->line++;
  else
    r->failed = true;
}

/* Within these limits, else the read fails and the number is one that later code can use. */
static int64_t read_number(reader *r, int64_t least, int64_t most) {
  char word[32], *end;
  read_word(r, word);
  long long number = strtoll(word, &end, 10);
  if (r->failed || *end != '\0' || number < least || number > most) {
    r->failed = true;
    return least < 0 ? -1 : 0;
  }
  return number;
}

/* A quarter of the range, so that sums of a few can't overflow before the verifier looks. */
static size_t read_bytes(reader *r) { return (size_t)read_number(r, 0, INT64_MAX / 4); }

/* The index of the next word among n names. */
static int read_name(reader *r, const char *(*name)(int), int n) {
  char word[32];
  read_word(r, word);
  for (int i = 0; i < n && !r->failed; i++)
    if (strcmp(word, name(i)) == 0) return i;
  r->failed = true;
  return 0;
}

/* Enums as indices, for read_name. */
static const char *region_at(int i) { return neap_region_name((neap_region)i); }
static const char *reason_at(int i) { return neap_reason_code((neap_reason)i); }
static const char *refusal_at(int i) { return neap_refusal_code((neap_refusal)i); }
static const char *policy_at(int i) { return neap_policy_name((neap_policy)i); }
static const char *executor_at(int i) { return neap_executor_name((neap_executor)i); }
#define X(symbol, code, words) +1
enum { N_REASON = 0 NEAP_REASON_MAP(X), N_REFUSAL = 0 NEAP_REFUSAL_MAP(X) };
#undef X

/* Counts are compared with the graph's before anything is read by them. */
static void read_head(reader *r, neap_plan *plan) {
  char word[32];
  expect(r, "plan");
  expect(r, TEXT_VERSION);
  plan->policy = (neap_policy)read_name(r, policy_at, NEAP_POLICY_POOL + 1);
  plan->executor = (neap_executor)read_name(r, executor_at, NEAP_EXECUTOR_DAG + 1);
  plan->packer = neap_arena_strdup(&plan->arena, read_word(r, word)); /* NULL when refused: read_plan looks */
  end_line(r);
  expect(r, "bytes");
  plan->arena_bytes = read_bytes(r);
  plan->lower_bound_bytes = read_bytes(r);
  plan->baseline_bytes = read_bytes(r);
  plan->proved = read_number(r, 0, 1) != 0;
  plan->peak_step = (int)read_number(r, 0, NEAP_MAX(plan->n_node - 1, 0));
  plan->plan_ns = read_number(r, 0, INT64_MAX);
  end_line(r);
  expect(r, "region");
  for (int i = 0; i < NEAP_N_REGION; i++) plan->region_bytes[i] = read_bytes(r);
  end_line(r);
  expect(r, "count");
  read_number(r, plan->n_node, plan->n_node);
  read_number(r, plan->n_value, plan->n_value);
  end_line(r);
}

/* Scratch stands with the step that uses it, and is kept by node. That every node comes once is verify.c's business. */
static void read_steps(reader *r, neap_plan *plan) {
  for (int i = 0; i < plan->n_node && !r->failed; i++) {
    expect(r, "n");
    int n = plan->order[i] = (int)read_number(r, 0, plan->n_node - 1);
    plan->live_bytes[i] = read_bytes(r);
    plan->scratch_offset[n] = read_bytes(r);
    plan->scratch_bytes[n] = read_bytes(r);
    end_line(r);
  }
}

/* By value. What a place says of another is in range; whether it is true is verify.c's business. */
static void read_places(reader *r, neap_plan *plan) {
  for (int v = 0; v < plan->n_value && !r->failed; v++) {
    neap_place *p = &plan->place[v];
    expect(r, "v");
    p->region = (neap_region)read_name(r, region_at, NEAP_N_REGION);
    p->storage = (int)read_number(r, 0, plan->n_value - 1);
    p->offset = read_bytes(r);
    p->bytes = read_bytes(r);
    p->first = (int)read_number(r, -1, plan->n_node - 1);
    p->last = (int)read_number(r, p->first, plan->n_node - 1);
    p->reason = (neap_reason)read_name(r, reason_at, N_REASON);
    p->refusal = (neap_refusal)read_name(r, refusal_at, N_REFUSAL);
    p->partner = (int)read_number(r, -1, plan->n_value - 1);
    if (p->reason == NEAP_REASON_ALIAS && p->partner < 0) r->failed = true; /* views are followed to their source */
    end_line(r);
  }
}

/* One plan and, between its places and its end, those of its subnets, in order. Sizes come from the graph: the text can't ask
 * for memory. */
static neap_status read_plan(reader *r, const neap_graph *graph, neap_plan **out, neap_error *error) {
  neap_plan *plan = neap_plan_new(graph);
  if (plan == NULL) return neap_fail_memory(error, (size_t)graph->n_value * sizeof *plan->place, "a plan");
  neap_status status = NEAP_OK;
  read_head(r, plan);
  if (!r->failed) read_steps(r, plan);
  if (!r->failed) read_places(r, plan);
  for (int n = 0; n < graph->n_node && !r->failed && status == NEAP_OK; n++) {
    int n_sub = graph->node[n].n_sub;
    if (n_sub == 0) continue;
    if ((plan->sub[n] = neap_arena_alloc(&plan->arena, ((size_t)n_sub + 1) * sizeof *plan->sub[n])) == NULL)
      status = neap_fail_memory(error, (size_t)n_sub * sizeof *plan->sub[n], "a plan");
    for (int k = 0; k < n_sub && !r->failed && status == NEAP_OK; k++) {
      expect(r, "sub");
      read_number(r, n, n);
      read_number(r, k, k);
      end_line(r);
      if (!r->failed) status = read_plan(r, graph->node[n].sub[k], &plan->sub[n][k], error);
    }
  }
  if (status == NEAP_OK) {
    expect(r, "end");
    end_line(r);
  }
  if (status == NEAP_OK && plan->packer == NULL) status = neap_fail_memory(error, sizeof "offset", "a plan");
  if (status == NEAP_OK && r->failed)
    status = neap_fail(error, NEAP_PLAN, "line %d of the plan's text does not fit a net of %d ops and %d values", r->line,
                       graph->n_node, graph->n_value);
  if (status == NEAP_OK)
    *out = plan;
  else
    neap_plan_free(plan);
  return status;
}

neap_status neap_plan_read(const char *text, const neap_graph *graph, neap_plan **out, neap_error *error) {
  reader r = {.at = text, .line = 1};
  neap_plan *plan = NULL;
  NEAP_TRY(read_plan(&r, graph, &plan, error));
  if (*r.at != '\0') {
    neap_plan_free(plan);
    return neap_fail(error, NEAP_PLAN, "line %d of the plan's text comes after its end", r.line);
  }
  *out = plan;
  return NEAP_OK;
}
