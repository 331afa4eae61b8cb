/* stored.c: what a store keeps of a plan, as text, and the one door through which it comes back. A
 * file may hold anything: a plan of other libraries, a row that somebody changed, half a row.
 *
 * There are two texts. The choices: a line "digest HEX", which is of key, choices and plan; a line
 * "section N" of the ladder (ladder.c); then what neap_choices_print says. And the plan, as
 * neap_plan_print says it.
 *
 * INVARIANT: the digest shows that both texts are whole and belong to the key, and no more: what
 * they say is not believed for it. Every kernel is asked again for engine, algorithm, threads,
 * scratch, stash and layouts; order and addresses are verified against the graph that this gives;
 * policy, executor and limits are those of the options; figures are counted again. The text alone
 * says what kernels don't say and of which several answers would be right: which plan of the ladder
 * it is, an order, addresses.
 */
#include "driver/driver_int.h"

#include <stdio.h>
#include <string.h>

/* ---- writing --------------------------------------------------------------------------------- */

/* Of all three texts: one that was stored under another key is no good here. */
static void digest_of(const neap_way *w, const char *choices, const char *plan_text,
                      char text[33]) {
  neap_hash all[] = {w->hash, neap_hash_words(choices, strlen(choices)),
                     neap_hash_words(plan_text, strlen(plan_text))};
  neap_hash_text(neap_hash_words(all, sizeof all), text);
}

void neap_stored_print(const neap_way *w, neap_buffer *choices, neap_buffer *plan_text) {
  neap_buffer body = {0};
  char digest[33];
  neap_buffer_add(&body, "section %d\n", w->section);
  neap_choices_print(&w->choices, w->prepared, &body);
  neap_plan_print(w->plan, plan_text);
  choices->failed = body.failed || plan_text->failed;
  if (!choices->failed) {
    digest_of(w, body.text, plan_text->text, digest);
    neap_buffer_add(choices, "digest %s\n%s", digest, body.text);
  }
  neap_buffer_fini(&body);
}

/* Words to be hashed: numbers alone, since structs have gaps. */
typedef struct words {
  int64_t *word;
  int n, cap;
} words;

static bool add_words(words *to, int n, const int64_t *word) {
  if (!neap_list_grow(&to->word, &to->cap, to->n + n, sizeof *to->word)) return false;
  memcpy(to->word + to->n, word, (size_t)n * sizeof *word);
  to->n += n;
  return true;
}

/* Of node n: its step's order, where its scratch lies, which kernel it has. */
static bool add_node_words(words *to, const neap_plan *plan, const neap_graph *graph, int n) {
  const neap_choice *choice = &graph->node[n].choice;
  const int64_t node[] = {plan->order[n],
                          (int64_t)plan->scratch_offset[n],
                          (int64_t)plan->scratch_bytes[n],
                          graph->node[n].recomputes,
                          choice->engine,
                          choice->algorithm,
                          choice->n_thread};
  return add_words(to, NEAP_COUNT(node), node);
}

/* What a plan says of a graph, and, within, of its subnets. False: memory is refused. */
static bool add_plan_words(words *to, const neap_plan *plan, const neap_graph *graph) {
  /* Counts are hashed with the lists, so that no list can stand for the begin of another. */
  const int64_t head[] = {plan->policy, plan->executor, plan->n_node, plan->n_value,
                          (int64_t)plan->arena_bytes};
  if (!add_words(to, NEAP_COUNT(head), head)) return false;
  for (int n = 0; n < plan->n_node; n++) {
    if (!add_node_words(to, plan, graph, n)) return false;
    for (int k = 0; k < graph->node[n].n_sub; k++)
      if (!add_plan_words(to, plan->sub[n][k], graph->node[n].sub[k])) return false;
  }
  for (int v = 0; v < plan->n_value; v++) {
    const neap_place *place = &plan->place[v];
    const int64_t value[] = {place->region, place->storage, (int64_t)place->offset,
                             (int64_t)place->bytes, place->reason};
    if (!add_words(to, NEAP_COUNT(value), value)) return false;
  }
  for (int t = 0; t < plan->script.n_turn; t++) {
    const int64_t turn[] = {plan->script.turn[t].step, plan->script.turn[t].recomputed};
    if (!add_words(to, NEAP_COUNT(turn), turn)) return false;
  }
  return true;
}

neap_status neap_stored_digest(const neap_way *w, char digest[33], neap_error *error) {
  words all = {0};
  const int64_t key[] = {(int64_t)w->hash.high, (int64_t)w->hash.low};
  const bool ok = add_words(&all, NEAP_COUNT(key), key) && add_plan_words(&all, w->plan, w->graph);
  const size_t bytes = (size_t)all.n * sizeof *all.word;
  if (ok) neap_hash_text(neap_hash_words(all.word, bytes), digest);
  neap_free(all.word);
  return ok ? NEAP_OK : neap_fail_memory(error, bytes, "a plan's digest");
}

/* ---- reading --------------------------------------------------------------------------------- */

/* *text: behind the digest. */
static neap_status read_digest(const neap_way *w, const char **text, const char *plan_text,
                               neap_error *error) {
  char want[33], got[33];
  int used = 0;
  if (sscanf(*text, "digest %32[0-9a-f]\n%n", got, &used) != 1 || used == 0)
    return neap_fail(error, NEAP_PLAN, "stored choices do not begin with their digest");
  *text += used;
  digest_of(w, *text, plan_text, want);
  if (strcmp(want, got) != 0)
    return neap_fail(error, NEAP_PLAN, "what is stored is not what had been stored under its key");
  return NEAP_OK;
}

/* Choices as the kernels make them today; from the text which section of the ladder they are of,
 * what is held and what is recomputed, as far as the options allow it. */
static neap_status read_choices(neap_way *w, const char *text, neap_error *error) {
  /* The section decides how much scratch kernels may take, so they are asked within it. */
  int section = 0, used = 0;
  if (sscanf(text, "section %d\n%n", &section, &used) != 1 || used == 0)
    return neap_fail(error, NEAP_PLAN,
                     "stored choices do not say how much scratch their kernels may take");
  NEAP_TRY(neap_ladder_choose(w, section, error));
  NEAP_TRY(neap_choices_recall(text + used, w->prepared, &w->choices, error));

  /* The ladder has plans with constants unless the options forbid it, and plans without them where
   * the options forbid it or a total has to be met (ladder.c, climb). */
  const bool has_with = !w->resolved.no_constants;
  const bool has_without = w->resolved.no_constants || w->resolved.total_left < SIZE_MAX;
  if (w->choices.no_constants && !has_without)
    return neap_fail(error, NEAP_PLAN, "stored choices hold no constants, the options do");
  if (!w->choices.no_constants && !has_with)
    return neap_fail(error, NEAP_PLAN, "stored choices hold constants, the options don't");
  const neap_recomputed *r = &w->choices.recomputed;
  if ((r->n_node > 0 || r->n_body > 0) && !neap_way_may_recompute(w))
    return neap_fail(error, NEAP_PLAN, "stored choices recompute ops, the options don't");
  return NEAP_OK;
}

/* The plan is of the kind that was asked for, and so are those of its subnets: frames are planned
 * within. */
static neap_status check_kind(const neap_plan *plan, const neap_graph *graph, neap_policy policy,
                              neap_executor executor, neap_error *error) {
  if (plan->policy != policy || plan->executor != executor)
    return neap_fail(
      error, NEAP_PLAN,
      "the stored plan of \"%s\" is of policy %s and executor %s, expected %s and %s", graph->name,
      neap_policy_name(plan->policy), neap_executor_name(plan->executor), neap_policy_name(policy),
      neap_executor_name(executor));
  neap_policy inner = policy == NEAP_POLICY_POOL ? NEAP_POLICY_OFFSET : policy; /* of subnets */
  for (int n = 0; n < graph->n_node; n++)
    for (int k = 0; k < graph->node[n].n_sub; k++)
      NEAP_TRY(check_kind(plan->sub[n][k], graph->node[n].sub[k], inner, executor, error));
  return NEAP_OK;
}

/* Whether a pool would do what the plan says it does: the run is rehearsed, without kernels. */
static neap_status rehearse(const neap_plan *plan, const neap_graph *graph, neap_error *error) {
  neap_arena room = {0};
  neap_script script;
  if (plan->policy != NEAP_POLICY_POOL) return NEAP_OK;
  neap_status status = neap_plan_rehearse(plan, graph, &room, &script, error);
  neap_arena_fini(&room);
  return status;
}

/* What the text claims is checked from what needs no plan to what needs a whole one: its form, its
 * kind, that no two live values share bytes, its figures, the pool's run, the limits. */
static neap_status read_plan(neap_way *w, const char *text, neap_error *error) {
  const neap_plan_options *asked = &w->resolved.plan;
  NEAP_TRY(neap_plan_read(text, w->graph, &w->plan, error));
  NEAP_TRY(check_kind(w->plan, w->graph, asked->policy, asked->executor, error));
  if (w->plan->script.n_turn > 0 && !asked->evict)
    return neap_fail(error, NEAP_PLAN, "the stored plan evicts values, the options don't");
  NEAP_TRY(neap_plan_verify(w->plan, w->graph, error));
  NEAP_TRY(neap_plan_check_counts(w->plan, w->graph, error));
  NEAP_TRY(rehearse(w->plan, w->graph, error));
  if (!neap_way_fits(w))
    return neap_fail(error, NEAP_PLAN, "arena of %zu bytes exceeds its limits",
                     w->plan->arena_bytes);
  return NEAP_OK;
}

neap_status neap_stored_read(neap_way *w, const char *choices, const char *plan_text,
                             neap_error *error) {
  neap_status status = read_digest(w, &choices, plan_text, error);
  if (status == NEAP_OK) status = read_choices(w, choices, error);
  if (status == NEAP_OK) status = neap_graph_lay_out(w->prepared, &w->choices, &w->graph, error);
  if (status == NEAP_OK) status = read_plan(w, plan_text, error);
  if (status != NEAP_OK) neap_way_drop_result(w);
  return status;
}
