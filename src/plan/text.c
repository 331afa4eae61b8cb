/* text.c: a plan as text, and back. Line by line, words separated by blanks:
 *
 *   plan 2 offset simple size                    version, policy, executor, packer
 *   bytes ARENA BOUND BASELINE PROVED PEAK_STEP
 *   region BYTES ...                             one number for each region
 *   bank BEGIN BYTES BOUND                       for each bank of the graph
 *   count N_NODE N_VALUE
 *   n NODE LIVE SCRATCH_OFFSET SCRATCH_BYTES     by step
 *   v REGION STORAGE OFFSET BYTES FIRST LAST REASON REFUSAL PARTNER     by value
 *   script TURNS EVICTED RECOMPUTED EVICTED_BYTES SHARE_OF_WORK         where values are evicted
 *   t STEP AGAIN TAKES (SLOT OFFSET)... GIVES SLOT...                   by turn
 *   sub NODE K                                   the plan of subnet K follows
 *   end
 *
 * INVARIANT: reading what was printed and printing it again gives the same text.
 * INVARIANT: what is read is in range for its graph, whatever the text says: every index, region
 * and reason can be used. That it is also safe is verify.c's business.
 */
#include "plan/plan_int.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_VERSION "2"

/* A turn a line: its step, whether it recomputes, takes (slot and offset) and gives (slots), each
 * list after its number. */
static void print_script(const neap_plan *plan, neap_buffer *out) {
  const neap_script *s = &plan->script;
  neap_buffer_add(out, "script %d %d %d %lld %.17g\n", s->n_turn, s->n_evicted, s->n_recomputed,
                  (long long)s->evicted_bytes, s->recomputed_work);
  int take = 0, give = 0;
  for (int t = 0; t < s->n_turn; t++) {
    const neap_turn *turn = &s->turn[t];
    neap_buffer_add(out, "t %d %d %d", turn->step, turn->recomputed, turn->take_end - take);
    for (; take < turn->take_end; take++)
      neap_buffer_add(out, " %d %zu", s->take[take].slot, s->take[take].offset);
    neap_buffer_add(out, " %d", turn->give_end - give);
    for (; give < turn->give_end; give++) neap_buffer_add(out, " %d", s->give[give]);
    neap_buffer_add(out, "\n");
  }
}

void neap_plan_print(const neap_plan *plan, neap_buffer *out) {
  /* The head: what the plan is, its figures, and the counts by which a reader checks that it
   * fits. */
  neap_buffer_add(out, "plan %s %s %s %s\n", TEXT_VERSION, neap_policy_name(plan->policy),
                  neap_executor_name(plan->executor), plan->packer);
  neap_buffer_add(out, "bytes %zu %zu %zu %d %d\nregion", plan->arena_bytes,
                  plan->lower_bound_bytes, plan->baseline_bytes, plan->proved, plan->peak_step);
  for (int r = 0; r < NEAP_N_REGION; r++) neap_buffer_add(out, " %zu", plan->region_bytes[r]);
  for (int b = 0; b < plan->n_bank; b++)
    neap_buffer_add(out, "\nbank %zu %zu %zu", plan->bank[b].begin_bytes, plan->bank[b].bytes,
                    plan->bank[b].lower_bound_bytes);
  neap_buffer_add(out, "\ncount %d %d\n", plan->n_node, plan->n_value);

  /* By step, then by value. */
  for (int i = 0; i < plan->n_node; i++) {
    int n = plan->order[i];
    neap_buffer_add(out, "n %d %zu %zu %zu\n", n, plan->live_bytes[i], plan->scratch_offset[n],
                    plan->scratch_bytes[n]);
  }
  for (int v = 0; v < plan->n_value; v++) {
    const neap_place *p = &plan->place[v];
    neap_buffer_add(out, "v %s %d %zu %zu %d %d %s %s %d\n", neap_region_name(p->region),
                    p->storage, p->offset, p->bytes, p->first, p->last, neap_reason_code(p->reason),
                    neap_refusal_code(p->refusal), p->partner);
  }
  if (plan->script.n_turn > 0) print_script(plan, out);

  /* Each subnet's plan is a whole text of its own. */
  for (int n = 0; n < plan->n_node; n++) {
    if (plan->sub[n] == NULL) continue;
    for (int k = 0; plan->sub[n][k] != NULL; k++) {
      neap_buffer_add(out, "sub %d %d\n", n, k);
      neap_plan_print(plan->sub[n][k], out);
    }
  }
  neap_buffer_add(out, "end\n");
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A failed read sets `failed` and makes all later ones give 0, so that a record is read first and
 * checked once. */
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
  if (r->failed || *r->at != '\n') {
    r->failed = true; /* `line` stays at the first one that does not fit */
    return;
  }
  r->at++;
  r->line++;
}

/* Within these limits, else the read fails and the number is one that later code can use. */
static int64_t read_number(reader *r, int64_t least, int64_t most) {
  /* The whole word must be a number within the limits. After a failure none is believed. */
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
  if (r->failed) return 0;
  for (int i = 0; i < n; i++)
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

  /* Texts of other versions are refused. */
  expect(r, "plan");
  expect(r, TEXT_VERSION);
  plan->policy = (neap_policy)read_name(r, policy_at, NEAP_POLICY_POOL + 1);
  plan->executor = (neap_executor)read_name(r, executor_at, NEAP_EXECUTOR_DAG + 1);

  /* NULL when refused: read_plan looks */
  plan->packer = neap_arena_strdup(&plan->arena, read_word(r, word));
  end_line(r);

  /* Figures. Whether they are true is verify.c's business. */
  expect(r, "bytes");
  plan->arena_bytes = read_bytes(r);
  plan->lower_bound_bytes = read_bytes(r);
  plan->baseline_bytes = read_bytes(r);
  plan->proved = read_number(r, 0, 1) != 0;
  plan->peak_step = (int)read_number(r, 0, NEAP_MAX(plan->n_node - 1, 0));
  end_line(r);
  expect(r, "region");
  for (int i = 0; i < NEAP_N_REGION; i++) plan->region_bytes[i] = read_bytes(r);
  end_line(r);
  for (int b = 0; b < plan->n_bank; b++) {
    expect(r, "bank");
    plan->bank[b].begin_bytes = read_bytes(r);
    plan->bank[b].bytes = read_bytes(r);
    plan->bank[b].lower_bound_bytes = read_bytes(r);
    end_line(r);
  }

  /* From here on lines are counted by the graph, which must have as many. */
  expect(r, "count");
  read_number(r, plan->n_node, plan->n_node);
  read_number(r, plan->n_value, plan->n_value);
  end_line(r);
}

/* Scratch stands with the step that uses it, and is kept by node. That every node comes once is
 * verify.c's business. */
static void read_steps(reader *r, neap_plan *plan) {
  for (int i = 0; i < plan->n_node; i++) {
    if (r->failed) return;
    expect(r, "n");
    int n = (int)read_number(r, 0, plan->n_node - 1);
    plan->order[i] = n;
    plan->live_bytes[i] = read_bytes(r);
    plan->scratch_offset[n] = read_bytes(r);
    plan->scratch_bytes[n] = read_bytes(r);
    end_line(r);
  }
}

/* By value. What a place says of another is in range; whether it is true is verify.c's business. */
static void read_places(reader *r, neap_plan *plan) {
  for (int v = 0; v < plan->n_value; v++) {
    if (r->failed) return;
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
    /* A view is followed to its source before anybody looks whether it has one. */
    if (p->reason == NEAP_REASON_ALIAS && p->partner < 0) r->failed = true;
    end_line(r);
  }
}

/* A share: from 0 on. */
static double read_share(reader *r) {
  char word[32], *end;
  double share = neap_number_read(read_word(r, word), &end);
  if (*end == '\0' && share >= 0) return share;
  r->failed = true;
  return 0;
}

/* The lines of a script. Lists grow as lines come: the text can't ask for memory. False when memory
 * is refused. */
static bool read_turns(reader *r, const neap_plan *plan, neap_script *s) {
  /* The number of turns is what the text claims. It bounds the loop and nothing that is
   * allocated. */
  int cap_turn = 0, cap_take = 0, cap_give = 0;
  int n_turn = s->n_turn, n_take = 0, n_give = 0;
  s->n_turn = 0;
  while (s->n_turn < n_turn && !r->failed) {
    expect(r, "t");
    neap_turn turn = {.step = (int)read_number(r, 0, plan->n_node - 1),
                      .recomputed = read_number(r, 0, 1) != 0};
    /* What it takes: each a slot and an offset. */
    int64_t left = read_number(r, 0, plan->n_value + 1);
    for (; left > 0; left--) {
      if (r->failed) break;
      neap_take take = {.slot = (int)read_number(r, 0, plan->n_value)};
      take.offset = read_bytes(r);
      if (!neap_list_grow(&s->take, &cap_take, n_take + 1, sizeof take)) return false;
      s->take[n_take++] = take;
    }
    s->n_block = NEAP_MAX(s->n_block, n_take - n_give);
    /* What it gives: slots. */
    left = read_number(r, 0, plan->n_value + 1);
    for (; left > 0; left--) {
      if (r->failed) break;
      int slot = (int)read_number(r, 0, plan->n_value);
      if (!neap_list_grow(&s->give, &cap_give, n_give + 1, sizeof slot)) return false;
      s->give[n_give++] = slot;
    }
    end_line(r);
    turn.take_end = n_take;
    turn.give_end = n_give;
    if (!neap_list_grow(&s->turn, &cap_turn, s->n_turn + 1, sizeof turn)) return false;
    s->turn[s->n_turn++] = turn;
  }
  return true;
}

/* The script of a plan that evicts, into the plan's arena. False when memory is refused. */
static bool read_script(reader *r, neap_plan *plan) {
  /* The head: how many turns there are, and the figures that a report shows. */
  neap_script s = {0};
  expect(r, "script");
  s.n_turn = (int)read_number(r, 1, INT32_MAX);
  s.n_evicted = (int)read_number(r, 0, INT32_MAX);
  s.n_recomputed = (int)read_number(r, 0, INT32_MAX);
  s.evicted_bytes = read_number(r, 0, INT64_MAX);
  s.recomputed_work = read_share(r);
  end_line(r);
  bool ok = read_turns(r, plan, &s);
  plan->script = s;

  /* Its lists have grown on their own, and are copied to where the plan's tables lie. */
  if (ok && !r->failed) {
    const neap_turn *last = &s.turn[s.n_turn - 1];
    plan->script.turn = neap_arena_copy(&plan->arena, s.turn, (size_t)s.n_turn * sizeof *s.turn);
    plan->script.take =
      neap_arena_copy(&plan->arena, s.take, (size_t)last->take_end * sizeof *s.take);
    plan->script.give =
      neap_arena_copy(&plan->arena, s.give, (size_t)last->give_end * sizeof *s.give);
    ok = plan->script.turn != NULL && plan->script.take != NULL && plan->script.give != NULL;
  }
  neap_free(s.turn);
  neap_free(s.take);
  neap_free(s.give);
  return ok;
}

/* One plan and, between its places and its end, those of its subnets, in order. Sizes come from the
 * graph: the text can't ask for memory. */
static neap_status read_plan(reader *r, const neap_graph *graph, neap_plan **out,
                             neap_error *error) {
  neap_plan *plan = neap_plan_new(graph);
  if (plan == NULL)
    return neap_fail_memory(error, (size_t)graph->n_value * sizeof *plan->place, "a plan");

  /* The lines in their order. After the first that does not fit nothing more is believed. */
  neap_status status = NEAP_OK;
  read_head(r, plan);
  if (!r->failed) read_steps(r, plan);
  if (!r->failed) read_places(r, plan);
  if (!r->failed && neap_plan_evicts(plan) && !read_script(r, plan))
    status = neap_fail_memory(error, sizeof *plan->script.turn, "a plan's script");

  /* The plans of each node's subnets. Those that have not been read stay NULL. */
  for (int n = 0; n < graph->n_node; n++) {
    if (r->failed || status != NEAP_OK) break;
    const neap_node *node = &graph->node[n];
    if (node->n_sub == 0) continue;
    size_t bytes = ((size_t)node->n_sub + 1) * sizeof *plan->sub[n];
    plan->sub[n] = neap_arena_alloc(&plan->arena, bytes);
    if (plan->sub[n] == NULL) status = neap_fail_memory(error, bytes, "a plan");

    /* Their numbers stand in the text, so that a list which is too short or too long is noticed. */
    for (int k = 0; k < node->n_sub; k++) {
      if (r->failed || status != NEAP_OK) break;
      expect(r, "sub");
      read_number(r, n, n);
      read_number(r, k, k);
      end_line(r);
      if (!r->failed) status = read_plan(r, node->sub[k], &plan->sub[n][k], error);
    }
  }
  if (status == NEAP_OK) {
    expect(r, "end");
    end_line(r);
  }

  /* Now what went wrong on the way: memory that was refused, then a text that does not fit. */
  if (status == NEAP_OK && plan->packer == NULL)
    status = neap_fail_memory(error, sizeof "offset", "a plan");
  if (status == NEAP_OK && r->failed)
    status = neap_fail(error, NEAP_PLAN,
                       "line %d of the plan's text does not fit a net of %d ops and %d values",
                       r->line, graph->n_node, graph->n_value);
  if (status == NEAP_OK)
    *out = plan;
  else
    neap_plan_free(plan);
  return status;
}

neap_status neap_plan_read(const char *text, const neap_graph *graph, neap_plan **out,
                           neap_error *error) {
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
