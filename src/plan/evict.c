/* evict.c: policy `pool` under a limit. Where a run needs a block and the limit leaves no room,
 * values are evicted; when an evicted one is read again, the ops that made it run once more, and
 * before them those that make what they read.
 *
 * Runs are rehearsed (evict_turns.c) over what the plan knows of its storages (evict_cells.c); here
 * their blocks get addresses, the run that recomputes less work is taken and written down as a
 * script, or, where none keeps the limit, the least that would do is told.
 *
 * INVARIANT: what is refused can be had with the bytes that the refusal names.
 */
#include "plan/evict_int.h"

#include <stdio.h>
#include <string.h>

enum {
  MOST_PACK_STEPS = 5000000,
  MOST_TRIES = 5,    /* of evicting more, because the packing did not reach the peak */
  MOST_HALVINGS = 6, /* of the search for the least limit that would do */
  MOST_STEPS = 16    /* from there on down, one after the other */
};

/* A rehearsal that keeps a limit, to be played once more: the bytes that it reaches may be less. */
typedef struct rehearsal {
  size_t limit, reach;
  bool ahead;
} rehearsal;

/* ---- addresses ------------------------------------------------------------------------------- */

/* Rehearses with ever less, until the packing of the stays keeps the limit too. *reach gets the
 * bytes. */
static neap_status fit(evict_machine *m, size_t limit, bool ahead, bool *fits, size_t *reach,
                       neap_error *error) {
  /* A rehearsal counts bytes, not addresses: what it keeps within the target may need more when it
   * is packed, because of holes. */
  size_t target = limit;
  *fits = false;
  for (int try = 0; try < MOST_TRIES; try++) {
    const bool has_room = evict_rehearse(m, target, ahead);
    m->n_search += m->n_look + m->n_turn;
    if (!has_room) return m->no_memory ? evict_refused(error, sizeof *m->turn) : NEAP_OK;
    neap_pack_options options = {.stop_at_bytes = limit, .most_steps = MOST_PACK_STEPS};
    neap_pack_result result;
    NEAP_TRY(neap_pack(m->n_stay, m->stay, &options, &result, error));
    m->n_search += result.n_step;
    *reach = result.total_bytes;
    *fits = *reach <= limit;
    if (*fits) return NEAP_OK;
    /* Holes between the blocks are in the way: that many bytes less are used in the next try. */
    size_t over = *reach - limit;
    if (over >= target) return NEAP_OK;
    target -= over;
  }
  return NEAP_OK;
}

/* Work of one run without recomputations. */
static double all_work(const evict_machine *m) {
  double work = 0;
  for (int n = 0; n < m->plan->n_node; n++) work += m->work[n];
  return work;
}

/* The better of the two ways to judge under the limit, left in m; *fits: whether there is one.
 * Little recomputed work is not worth a second rehearsal. */
static neap_status find_best(evict_machine *m, size_t limit, bool *fits, size_t *reach,
                             neap_error *error) {
  /* First by how long ago a cell was used, then by when it is read next. Neither is better for all
   * nets. */
  NEAP_TRY(fit(m, limit, false, fits, reach, error));
  bool first_fits = *fits;
  double work = m->recomputed;
  if (first_fits && work <= all_work(m) / 8) return NEAP_OK;
  NEAP_TRY(fit(m, limit, true, fits, reach, error));

  /* The machine holds one rehearsal: where the first was better, it is played once more. */
  if (first_fits && (!*fits || work <= m->recomputed))
    return fit(m, limit, false, fits, reach, error);
  return NEAP_OK;
}

/* Takes and gives by turn. */
static neap_status write_script(const evict_machine *m, neap_plan *plan, neap_error *error) {
  size_t n_stay = (size_t)m->n_stay + 1;
  neap_script *s = &plan->script;
  *s = (neap_script){
    .n_turn = m->n_turn,
    .turn = neap_arena_copy(&plan->arena, m->turn, (size_t)m->n_turn * sizeof *s->turn),
    .take = neap_arena_alloc(&plan->arena, n_stay * sizeof *s->take),
    .give = neap_arena_alloc(&plan->arena, n_stay * sizeof *s->give),
    .n_evicted = m->n_evicted,
    .evicted_bytes = m->evicted_bytes};
  if (s->turn == NULL || s->take == NULL || s->give == NULL)
    return evict_refused(error, n_stay * sizeof *s->take);
  for (int t = 0; t < m->n_turn; t++)
    if (s->turn[t].recomputed) s->n_recomputed++;
  double all = all_work(m);
  s->recomputed_work = all > 0 ? m->recomputed / all : 0;

  /* Counting sort by turn: first how many blocks each turn takes and gives. */
  for (int k = 0; k < m->n_stay; k++) {
    s->turn[m->stay[k].first].take_end++;
    s->turn[m->stay[k].last].give_end++;
  }

  /* Then where each turn's begin, and how many blocks are taken while it runs. */
  int n_taken = 0, n_given = 0;
  for (int t = 0; t < m->n_turn; t++) {
    neap_turn *turn = &s->turn[t];
    int n_take = turn->take_end, n_give = turn->give_end;
    turn->take_end = n_taken;
    turn->give_end = n_given;
    n_taken += n_take;
    s->n_block = NEAP_MAX(s->n_block, n_taken - n_given);
    n_given += n_give;
  }

  /* Each stay is put at the end of its turn's; when all are, the ends are where they should be. */
  for (int k = 0; k < m->n_stay; k++) {
    neap_turn *from = &s->turn[m->stay[k].first], *to = &s->turn[m->stay[k].last];
    s->take[from->take_end++] = (neap_take){m->slot[k], m->stay[k].offset};
    s->give[to->give_end++] = m->slot[k];
  }
  return NEAP_OK;
}

/* The plan's words for the run: where each storage lies first, and how much is live in each
 * step. */
static neap_status write_plan(const evict_machine *m, neap_plan *plan, size_t reach,
                              neap_error *error) {
  /* The name says how to find this run again: by which judgement, and within how many bytes. */
  char name[32];
  snprintf(name, sizeof name, "%s:%zu", m->ahead ? "ahead" : "stale", m->target);
  plan->packer = neap_arena_strdup(&plan->arena, name);
  plan->arena_bytes = reach;
  plan->lower_bound_bytes = m->least;
  plan->peak_step = 0;

  /* From the last stay to the first one, which has the last word: offsets are those of first
   * stays. */
  for (int k = m->n_stay - 1; k >= 0; k--) {
    int turn = m->stay[k].first, slot = m->slot[k];
    if (slot < plan->n_value)
      plan->place[slot].offset = m->stay[k].offset;
    else if (!m->turn[turn].recomputed)
      plan->scratch_offset[plan->order[m->turn[turn].step]] = m->stay[k].offset;
  }
  for (int v = 0; v < plan->n_value; v++)
    if (plan->place[v].region == NEAP_REGION_ARENA)
      plan->place[v].offset = plan->place[plan->place[v].storage].offset;

  /* Turns that recompute an op belong to no step of the plan's. */
  for (int t = 0; t < m->n_turn; t++)
    if (!m->turn[t].recomputed) plan->live_bytes[m->turn[t].step] = m->turn_used[t];
  for (int i = 0; i < plan->n_node; i++)
    if (plan->live_bytes[i] > plan->live_bytes[plan->peak_step]) plan->peak_step = i;
  return plan->packer != NULL ? NEAP_OK : evict_refused(error, sizeof name);
}

/* ---- what can't be had ----------------------------------------------------------------------- */

/* The least bytes that do, as far as it is found by halving and then step by step, each from what
 * the one before reaches; `most` does, as nothing has to go there. The way there depends on no
 * limit that was asked for: whoever is refused is told the same figure, and whatever is not below
 * it can be had. Where the steps end by a refusal, what is below by one block can't. */
static neap_status find_least(evict_machine *m, size_t most, rehearsal *least, neap_error *error) {
  /* Between what is too little for the most needy op and what does for certain. `below` is the most
   * that is known not to do. */
  size_t below = (m->least > NEAP_ALIGN ? m->least - NEAP_ALIGN : 0) & ~(size_t)(NEAP_ALIGN - 1);
  size_t next = neap_align(m->least); /* often the least op's need is all it takes */
  bool fits = true;
  *least = (rehearsal){most, most, true};
  for (int i = 0; i < MOST_HALVINGS && least->reach > below + NEAP_ALIGN; i++) {
    size_t reach;
    if (next <= below || next >= least->reach)
      next = neap_align(below + (least->reach - below) / 2);
    if (next >= least->reach) break;
    NEAP_TRY(fit(m, next, true, &fits, &reach, error));
    if (fits)
      *least = (rehearsal){next, reach, true};
    else
      below = next;
    next = 0; /* from the second try on: halving */
  }

  /* Both ways to judge, as whoever asks for such a limit would have them tried. */
  for (int i = 0; i < MOST_STEPS; i++) {
    if (least->reach < neap_align(m->least) + NEAP_ALIGN) break;
    size_t reach, limit = least->reach - NEAP_ALIGN;
    NEAP_TRY(find_best(m, limit, &fits, &reach, error));
    if (!fits) break;
    *least = (rehearsal){limit, reach, m->ahead};
  }
  return NEAP_OK;
}

/* BUDGET error at the op of the greatest need, with its operands. */
static neap_status refuse(const evict_machine *m, const neap_limit *limit, size_t least,
                          neap_error *error) {
  const neap_node *node = &m->graph->node[m->least_node];
  neap_buffer why = {0};
  neap_error refused = {0};
  char text[24], own[24];
  bool has_line = node->line != NULL && node->line[0] != '\0';
  int n = 0;

  /* The op, and each cell that it touches with its bytes: for the message and for the record. */
  neap_buffer_add(&why, "values are evicted and made again, and %s \"%s\"%s%s alone needs %s: ",
                  node->op->name, node->name != NULL ? node->name : "?", has_line ? " at " : "",
                  has_line ? node->line : "", neap_bytes_text((double)m->least, own));
  for (int k = 0; k < node->n_in + node->n_out; k++) {
    const evict_cell *c = evict_operand_cell(m, node, k);
    if (c == NULL || (k >= node->n_in && evict_reads(m, node, c))) continue;
    neap_value_id v = k < node->n_in ? node->in[k] : node->out[k - node->n_in];
    const char *name = neap_plan_name(m->graph, v);
    neap_refused_blob(&refused, name, c->bytes);
    neap_buffer_add(&why, "%s%s %s", n++ > 0 ? ", " : "", name,
                    neap_bytes_text((double)c->bytes, text));
  }

  /* Scratch is no cell, but part of the op's own need. */
  size_t scratch = m->plan->scratch_bytes[m->least_node];
  if (scratch > 0)
    neap_buffer_add(&why, "%sscratch %s", n > 0 ? ", " : "",
                    neap_bytes_text((double)scratch, text));

  /* Where in the net this is, for callers that show it. */
  if (node->name != NULL) snprintf(refused.op, sizeof refused.op, "%s", node->name);
  if (node->line != NULL) snprintf(refused.line, sizeof refused.line, "%s", node->line);
  if (node->scope != NULL) snprintf(refused.scope, sizeof refused.scope, "%s", node->scope);

  /* A total counts for the arena what another program needs anyway. */
  least = NEAP_MAX(least, limit->is_total ? limit->least_arena : 0);
  neap_plan_refuse(m->graph, limit, "pool", least, why.text != NULL ? why.text : "", &refused,
                   error);
  neap_buffer_fini(&why);
  return NEAP_BUDGET;
}

/* ---- the door -------------------------------------------------------------------------------- */

neap_status neap_plan_evict(neap_plan *plan, const neap_graph *graph,
                            const neap_plan_options *options, size_t most_bytes,
                            neap_error *error) {
  /* Everything is tried within the budget first; only a refusal is worth the search for the least
   * that would do. */
  evict_machine m;
  const neap_limit own = {.bytes = options->budget_bytes};
  const size_t limit_bytes = options->budget_bytes;
  bool fits = false;
  size_t reach = 0;
  rehearsal least = {0};
  neap_status status = evict_init(&m, plan, graph, error);
  if (status == NEAP_OK) status = find_best(&m, limit_bytes, &fits, &reach, error);
  if (status == NEAP_OK && !fits) {
    status = find_least(&m, most_bytes, &least, error);
    /* A greedy search may fail under a limit and do with less: then less it is. */
    if (status == NEAP_OK && least.reach <= limit_bytes)
      status = fit(&m, least.limit, least.ahead, &fits, &reach, error);
    if (status == NEAP_OK && !fits)
      status = refuse(&m, options->limit != NULL ? options->limit : &own, least.reach, error);
  }
  if (status == NEAP_OK) status = write_script(&m, plan, error);
  if (status == NEAP_OK) status = write_plan(&m, plan, reach, error);
  plan->n_search += m.n_search;
  evict_fini(&m);
  return status;
}

bool neap_plan_evicts(const neap_plan *plan) {
  return plan->packer != NULL &&
         (strncmp(plan->packer, "stale:", 6) == 0 || strncmp(plan->packer, "ahead:", 6) == 0);
}
