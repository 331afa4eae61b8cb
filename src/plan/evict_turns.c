/* evict_turns.c: a run of a pool under a limit, turn by turn, before it is run. Each op is a turn;
 * where a turn finds no room, values are evicted, and where it finds an input gone, the ops that
 * made it are turns once more.
 *
 * Which one goes is decided as in M. Kirisame et al., "Dynamic tensor rematerialization" (ICLR
 * 2021): the one for which
 *     work to make it again, its evicted neighbourhood's included / (bytes * how long nobody has
 *     read it)
 * is least. A rehearsal knows what comes, so it can also judge by the time until it is read next.
 *
 * INVARIANT: `used` are the bytes of the live cells, and never more than the target; what a turn
 * reads or writes is pinned until it is over.
 */
#include "plan/evict_int.h"

#include <math.h>

enum {
  MOST_NEIGHBOURS = 64, /* cells that an eviction looks at around each candidate */
  MOST_DEPTH = 4000,    /* of makings within makings */
  MOST_TURNS_A_STEP = 10,
  LEAST_TURNS = 500,
  MOST_LOOKS = 5000000 /* of a rehearsal, at cells: a tenth of a second */
};

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A stay of the slot that begins with the turn about to be written; its index, or -1 when memory is
 * refused. */
static int add_stay(evict_machine *m, int slot, size_t bytes) {
  if (!neap_list_grow(&m->stay, &m->cap_stay, m->n_stay + 1, sizeof *m->stay) ||
      !neap_list_grow(&m->slot, &m->cap_slot, m->n_stay + 1, sizeof *m->slot)) {
    m->no_memory = true;
    return -1;
  }

  /* It ends with its first turn, until somebody gives it back later. */
  m->stay[m->n_stay] =
    (neap_block){.bytes = bytes, .align = NEAP_ALIGN, .first = m->n_turn, .last = m->n_turn};
  m->slot[m->n_stay] = slot;
  return m->n_stay++;
}

static bool take(evict_machine *m, evict_cell *c) {
  c->stay = add_stay(m, (int)(c - m->cell), c->bytes);
  if (c->stay < 0) return false;
  c->live = true;
  c->place = m->n_live;
  m->live[m->n_live++] = (int)(c - m->cell);
  m->used += c->bytes;
  return true;
}

/* Back after the last turn written. */
static void give(evict_machine *m, evict_cell *c) {
  NEAP_ASSERT(c->live && c->pins == 0, "bytes that nobody needs now are given back; %d do",
              c->pins);
  m->stay[c->stay].last = m->n_turn - 1;
  c->live = false;
  m->used -= c->bytes;

  /* The last of the live ones fills the gap: their order means nothing. */
  int last = m->live[--m->n_live];
  m->live[c->place] = last;
  m->cell[last].place = c->place;
}

/* ---- who goes -------------------------------------------------------------------------------- */

/* Whether the cell would have to be made again for somebody. */
static bool is_gone(const evict_cell *c) { return !c->live && c->n_done > 0; }

/* Work of all cells that are gone and lead to c, in addition to what this walk has met; *left cells
 * may still be met. */
static double work_before(evict_machine *m, const evict_cell *c, int *left) {
  double work = 0;
  for (int j = 0; j < c->n_done; j++) {
    const neap_node *node = &m->graph->node[m->writer[c->writer_at + j]];
    for (int i = 0; i < node->n_in; i++) {
      if (*left <= 0) return work;
      evict_cell *in = evict_cell_of(m, node->in[i]);
      if (in == NULL || in == c || !is_gone(in) || in->mark == m->n_mark) continue;
      in->mark = m->n_mark;
      --*left;
      work += in->work + work_before(m, in, left);
    }
  }
  return work;
}

/* The same for those that c leads to, and that will be read again. */
static double work_after(evict_machine *m, const evict_cell *c, int *left) {
  double work = 0;
  for (int k = 0; k < c->n_need; k++) {
    /* Only what has run can be gone. */
    int step = m->need[c->need_at + k];
    if (step >= m->now) break;
    const neap_node *node = &m->graph->node[m->plan->order[step]];
    for (int o = 0; o < node->n_out; o++) {
      if (*left <= 0) return work;
      evict_cell *out = evict_cell_of(m, node->out[o]);
      if (out == NULL || out == c || !is_gone(out) || out->mark == m->n_mark) continue;
      if (out->to < m->now) continue; /* nobody will ask for it */
      out->mark = m->n_mark;
      --*left;
      work += out->work + work_after(m, out, left);
    }
  }
  return work;
}

/* Steps until c is read next, from 1. */
static int distance(evict_machine *m, evict_cell *c) {
  /* Steps only rise while a rehearsal goes, so that needs that are over are passed for good. */
  while (c->next_need < c->n_need && m->need[c->need_at + c->next_need] < m->now) c->next_need++;
  int next = m->plan->n_node; /* nobody reads it again */
  if (c->next_need < c->n_need) next = m->need[c->need_at + c->next_need];
  return next - m->now + 1;
}

/* The work that evicting c costs, for each of its bytes and for each step, or turn, in which nobody
 * reads it. */
static double price_of(evict_machine *m, evict_cell *c) {
  /* Making it again may need gone cells made before it, and gone ones that are made from it would
   * need it: all their work counts, within a number of neighbours. */
  int left = MOST_NEIGHBOURS;
  c->mark = ++m->n_mark;
  double work = c->work + work_before(m, c, &left) + work_after(m, c, &left);
  m->n_look += MOST_NEIGHBOURS - left + c->n_need + c->n_writer + 1;

  /* Large cells that nobody reads for long are cheap: their bytes are free for a long time. */
  double time = m->ahead ? distance(m, c) : m->n_turn - c->used_at + 1;
  return work / ((double)c->bytes * time);
}

/* False: all that is left is needed now, or stays. */
static bool evict_one(evict_machine *m) {
  /* Of all that may go the cheapest. An eviction changes the prices of its neighbours, so
   * none is kept for the next. */
  evict_cell *best = NULL;
  double least = INFINITY;
  for (int k = 0; k < m->n_live; k++) {
    evict_cell *c = &m->cell[m->live[k]];
    if (c->pins > 0 || !c->evictable) continue;
    double price = price_of(m, c);
    if (best == NULL || price < least) {
      best = c;
      least = price;
    }
  }
  if (best == NULL) return false;
  NEAP_ASSERT(best->to <= best->horizon,
              "a cell that is needed at step %d can be had until then, not until %d only", best->to,
              best->horizon);

  /* Its stay ends with the last turn that was written: the one under way does not need it. */
  give(m, best);
  m->n_evicted++;
  m->evicted_bytes += (int64_t)best->bytes;
  return true;
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* Outputs that have a block already may not be evicted to make room for the others. `by`: 1, and -1
 * when there is room. */
static void pin_live_outputs(evict_machine *m, const neap_node *node, int by) {
  for (int k = node->n_in; k < node->n_in + node->n_out; k++) {
    evict_cell *c = evict_operand_cell(m, node, k);
    if (c == NULL) continue;
    /* Nothing is taken in between: those that are pinned are those that were live. */
    bool is_meant = by > 0 ? c->live : c->pins > 0;
    if (is_meant) c->pins += by;
  }
}

/* Room for `bytes` more; false when it can't be had. */
static bool make_room(evict_machine *m, size_t bytes) {
  while (m->used + bytes > m->target)
    if (!evict_one(m)) return false;
  return true;
}

/* Writes the turn of node n, whose inputs are live and pinned: takes its outputs and scratch. */
static bool run_turn(evict_machine *m, int n, bool recomputed) {
  const neap_node *node = &m->graph->node[n];
  const bool idle = m->idle[n];

  /* What it needs beside its inputs. */
  size_t scratch = neap_align(m->plan->scratch_bytes[n]), more = scratch;
  for (int k = node->n_in; k < node->n_in + node->n_out; k++) {
    const evict_cell *c = idle ? NULL : evict_operand_cell(m, node, k);
    if (c != NULL && !c->live) more += c->bytes;
  }

  /* Inputs are pinned by the caller, outputs that are there already for the moment here: else room
   * for one operand might be made of another. */
  pin_live_outputs(m, node, 1);
  bool ok = make_room(m, more);
  pin_live_outputs(m, node, -1);

  /* A run that repeats itself over and over is no better than one that does not fit. */
  int limit = LEAST_TURNS + MOST_TURNS_A_STEP * m->plan->n_node;
  if (!ok || m->n_turn >= limit || m->n_look > MOST_LOOKS) {
    m->stuck_node = n;
    return false;
  }
  if (!neap_list_grow(&m->turn, &m->cap_turn, m->n_turn + 1, sizeof *m->turn) ||
      !neap_list_grow(&m->turn_used, &m->cap_used, m->n_turn + 1, sizeof *m->turn_used)) {
    m->no_memory = true;
    return false;
  }

  /* Scratch stays for this turn alone, and is not among what later turns find used. */
  if (scratch > 0 && add_stay(m, m->plan->n_value, scratch) < 0) return false;
  for (int k = 0; k < node->n_in + node->n_out; k++) {
    evict_cell *c = idle ? NULL : evict_operand_cell(m, node, k);
    if (c == NULL) continue;
    if (!c->live && !take(m, c)) return false;
    c->used_at = m->n_turn;
  }
  m->turn_used[m->n_turn] = m->used + scratch;
  m->turn[m->n_turn++] = (neap_turn){.step = m->step[n], .recomputed = recomputed};
  if (recomputed) m->recomputed += m->work[n];
  return true;
}

/* Whether nobody will read the cell again but to make others again. */
static bool is_spent(const evict_machine *m, const evict_cell *c) { return c->to < m->now; }

static bool make_again(evict_machine *m, evict_cell *c);

/* All inputs of node n but `own` are whole and pinned afterwards; on failure some are. */
static bool hold_inputs(evict_machine *m, int n, const evict_cell *own) {
  const neap_node *node = &m->graph->node[n];
  if (m->idle[n]) return true;
  for (int i = 0; i < node->n_in; i++) {
    evict_cell *c = evict_operand_cell(m, node, i);
    if (c == NULL || c == own) continue;
    if (!c->live && !make_again(m, c)) return false;
    c->pins++;
  }
  return true;
}

/* Takes the pins of hold_inputs back. What is spent goes at once. */
static void let_inputs_go(evict_machine *m, int n, const evict_cell *own) {
  /* An idle node has pinned nothing. */
  const neap_node *node = &m->graph->node[n];
  if (m->idle[n]) return;
  for (int i = 0; i < node->n_in; i++) {
    evict_cell *c = evict_operand_cell(m, node, i);
    if (c == NULL || c == own) continue;
    c->pins--;
    if (c->pins == 0 && c->live && is_spent(m, c)) give(m, c);
  }
}

/* Runs again all writers of c that have run. What else they write stays if it will be read. */
static bool make_again(evict_machine *m, evict_cell *c) {
  /* Too late for it, or too deep: each level of makings within makings is a call. */
  if (c->n_done == 0 || c->horizon < m->now || ++m->depth > MOST_DEPTH) {
    m->stuck_node = m->plan->order[m->now];
    return false;
  }

  /* All writers in their order, since each goes on from what the one before it has left. */
  for (int j = 0; j < c->n_done; j++) {
    int n = m->writer[c->writer_at + j];
    const neap_node *node = &m->graph->node[n];
    if (!hold_inputs(m, n, c) || !run_turn(m, n, true)) return false;
    if (j == 0) c->pins++; /* it has a block now, which may not go half made */
    let_inputs_go(m, n, c);
    for (int k = node->n_in; k < node->n_in + node->n_out; k++) {
      evict_cell *other = evict_operand_cell(m, node, k);
      if (other != NULL && other != c && other->live && other->pins == 0 && is_spent(m, other))
        give(m, other);
    }
  }
  c->pins--;
  m->depth--;
  return true;
}

/* The first run of a step, and the gives of what it was the last to need. */
static bool run_step(evict_machine *m, int step) {
  int n = m->plan->order[step];
  const neap_node *node = &m->graph->node[n];
  m->now = step;
  if (!hold_inputs(m, n, NULL) || !run_turn(m, n, false)) return false;
  if (m->idle[n]) { /* it has taken and pinned nothing */
    m->now = step + 1;
    return true;
  }

  /* From now on its outputs can be made again by running it once more. */
  for (int k = node->n_in; k < node->n_in + node->n_out; k++) {
    evict_cell *c = evict_operand_cell(m, node, k);
    if (c != NULL) c->n_done++;
  }

  /* From here on this step's needs are over. */
  m->now = step + 1;
  let_inputs_go(m, n, NULL);
  for (int k = node->n_in; k < node->n_in + node->n_out; k++) {
    evict_cell *c = evict_operand_cell(m, node, k);
    if (c != NULL && c->live && is_spent(m, c)) give(m, c);
  }
  return true;
}

bool evict_rehearse(evict_machine *m, size_t target, bool ahead) {
  m->target = target;
  m->ahead = ahead;

  /* The pool is empty, nothing has run, and nothing has been written down. */
  m->used = 0;
  m->n_live = 0;
  m->n_turn = 0;
  m->n_stay = 0;
  m->n_evicted = 0;
  m->evicted_bytes = 0;
  m->recomputed = 0;
  m->n_mark = 0;
  m->n_look = 0;
  m->depth = 0;
  m->stuck_node = m->least_node;

  /* What evict_cells.c has found of the cells holds under every limit and stays. */
  for (int v = 0; v < m->plan->n_value; v++) {
    evict_cell *c = &m->cell[v];
    c->n_done = 0;
    c->next_need = 0;
    c->live = false;
    c->pins = 0;
    c->used_at = 0;
    c->mark = 0;
  }

  /* An op that needs more than the target by itself can't be helped. */
  if (m->least > target) return false;
  for (int step = 0; step < m->plan->n_node; step++)
    if (!run_step(m, step)) return false;
  return true;
}
