/* evict.c: policy `pool` under a limit. Where a run needs a block and the limit leaves no room,
 * values are evicted; when an evicted one is read again, the ops that made it run once more, and
 * before them those that make what they read.
 *
 * Which one goes is decided as in M. Kirisame et al., "Dynamic tensor rematerialization" (ICLR
 * 2021): the one for which
 *     work to make it again, its evicted neighbourhood's included / (bytes * how long nobody has
 *     read it)
 * is least. A rehearsal knows what comes, so the time until it is read next is tried in the place
 * of the time since it was read last, and the one that recomputes less work is taken.
 *
 * A *cell* is a storage. It is made by its writers in turn, and made again by all that have run so
 * far; so it is either whole or has no block. Some stay: what no op can make again, and what would
 * be read later than an op runs that overwrites something which making it again reads. INVARIANT:
 * `horizon` is the last step at which a cell can be had, and no cell is evicted that is needed
 * later than its horizon.
 *
 * Residents are never evicted: parameters, inputs, outputs, state. Nor is anything written by an op
 * with subnets, or with effects other than random numbers (which depend on op and step alone, so
 * that they are the same again) and faults.
 */
#include "plan/plan_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
  MOST_NEIGHBOURS = 64, /* cells that an eviction looks at around each candidate */
  MOST_DEPTH = 4000,    /* of makings within makings */
  MOST_TURNS_A_STEP = 10,
  LEAST_TURNS = 500,
  MOST_LOOKS = 5000000, /* of a rehearsal, at cells: a tenth of a second */
  MOST_PACK_STEPS = 5000000,
  MOST_TRIES = 5,   /* of evicting more, because the packing did not reach the peak */
  MOST_HALVINGS = 6 /* of the search for the least limit that would do */
};
static const unsigned HARMLESS = NEAP_EFFECT_RANDOM | NEAP_EFFECT_FAULT | NEAP_EFFECT_EXTENT;

typedef struct cell {
  size_t bytes; /* aligned; 0: nothing of the pool */
  int to;       /* last step that needs it; -1: none */
  int writer_at, n_writer;
  /* steps that need it, and the first of them that is still to come */
  int need_at, n_need, next_need;
  int horizon;
  bool evictable;
  double work; /* of all writers */
  /* as the rehearsal goes */
  int n_done; /* writers that have run for the first time */
  bool live;
  int pins, used_at; /* turn */
  int stay, place;   /* while live: among the stays, and among the live ones */
  int mark;          /* of the last walk that met it */
} cell;

typedef struct machine {
  const neap_plan *plan;
  const neap_graph *graph;
  cell *cell;          /* by root value */
  int *writer, *need;  /* nodes; steps */
  int *step;           /* by node */
  int *first;          /* by storage: its first value */
  int *next;           /* by value: the next one in the same storage; -1 */
  double *work;        /* by node */
  bool *idle;          /* by node: touches no bytes, as a Free or a view in its source's bytes */
  size_t least;        /* the most that one op needs, */
  int least_node;      /* and which */
  bool ahead;          /* judges by the next read */
  size_t target, used; /* bytes */
  int now;             /* step under way */
  int n_mark, depth;
  int64_t n_look;
  double recomputed; /* work recomputed */
  int n_evicted;
  int64_t evicted_bytes;
  int *live; /* cells */
  int n_live;
  neap_turn *turn;
  size_t *turn_used; /* by turn: bytes taken */
  int n_turn, cap_turn, cap_used;
  neap_block *stay; /* first and last: turns */
  int *slot;        /* by stay */
  int n_stay, cap_stay, cap_slot;
  int stuck_node; /* where there was no room */
  bool no_memory;
  neap_arena arena;
} machine;

static neap_status refused(neap_error *error, size_t bytes) {
  return neap_fail_memory(error, bytes, "what a pool evicts");
}

/* ---- what holds for every limit -------------------------------------------------------------- */

/* The cell of a value; NULL: absent, or no bytes of the pool. */
static cell *cell_of(const machine *m, neap_value_id v) {
  if (v < 0 || m->plan->place[v].region != NEAP_REGION_ARENA) return NULL;
  cell *c = &m->cell[m->plan->place[v].storage];
  return c->bytes > 0 ? c : NULL;
}

/* The cell of operand k of the node, inputs first; NULL as well where an earlier operand of the
 * same side has it. */
static cell *operand_cell(const machine *m, const neap_node *node, int k) {
  const neap_value_id *list = k < node->n_in ? node->in : node->out;
  int at = k < node->n_in ? k : k - node->n_in;
  cell *c = cell_of(m, list[at]);
  if (c == NULL) return NULL;
  for (int i = 0; i < at; i++)
    if (cell_of(m, list[i]) == c) return NULL;
  return c;
}

static bool reads(const machine *m, const neap_node *node, const cell *c) {
  for (int i = 0; i < node->n_in; i++)
    if (cell_of(m, node->in[i]) == c) return true;
  return false;
}

/* Whether the node does nothing: it frees, or shows bytes where they are. */
static bool is_idle(const machine *m, const neap_node *node) {
  if ((node->effects & NEAP_EFFECT_RELEASE) != 0) return true;
  if (node->op->n_alias == 0 || node->n_sub > 0) return false;
  /* Each view that its record lists must be one in this plan: else the kernel copies. */
  for (int p = 0; p < node->op->n_alias; p++) {
    neap_pair pair = node->op->alias[p];
    if (pair.in >= node->n_in || pair.out >= node->n_out) continue;
    neap_value_id from = node->in[pair.in], to = node->out[pair.out];
    if (from < 0 || to < 0 || m->plan->place[to].reason != NEAP_REASON_ALIAS) return false;
    if (m->plan->place[from].storage != m->plan->place[to].storage) return false;
  }
  return true;
}

/* Bytes of all cells that the node touches, and its scratch: what it needs when all else is
 * away. */
static size_t own_bytes(const machine *m, int n) {
  const neap_node *node = &m->graph->node[n];
  size_t bytes = neap_align(m->plan->scratch_bytes[n]);
  if (m->idle[n]) return bytes;
  for (int k = 0; k < node->n_in + node->n_out; k++) {
    const cell *c = operand_cell(m, node, k);
    if (c == NULL) continue;
    /* An output in a cell that the node reads has been counted with its inputs. */
    bool is_counted = k >= node->n_in && reads(m, node, c);
    if (!is_counted) bytes += c->bytes;
  }
  return bytes;
}

/* Adds the step to what a cell needs, once. The first walk counts, the second fills. */
static void add_need(machine *m, cell *c, int step, bool fill) {
  if (c->to == step && c->n_need > 0) return;
  if (fill) m->need[c->need_at + c->n_need] = step;
  c->n_need++;
  c->to = step;
}

static void add_writer(machine *m, cell *c, int n, bool fill) {
  if (fill) m->writer[c->writer_at + c->n_writer] = n;
  c->n_writer++;
}

/* Who needs and who writes each cell, in the order of the plan. */
static void walk_operands(machine *m, bool fill) {
  for (int v = 0; v < m->plan->n_value; v++) {
    cell *c = &m->cell[v];
    c->n_need = 0;
    c->n_writer = 0;
    c->to = -1;
  }
  for (int step = 0; step < m->plan->n_node; step++) {
    int n = m->plan->order[step];
    const neap_node *node = &m->graph->node[n];
    if (m->idle[n]) continue; /* it needs no bytes to be there */
    for (int k = 0; k < node->n_in + node->n_out; k++) {
      cell *c = operand_cell(m, node, k);
      if (c == NULL) continue;
      add_need(m, c, step, fill);
      if (k >= node->n_in) add_writer(m, c, n, fill);
    }
  }
}

/* Lists of the readers and writers of all cells: counted first, then each with a part of one
 * array. */
static void list_operands(machine *m) {
  walk_operands(m, false);
  int n_need = 0, n_writer = 0;
  for (int v = 0; v < m->plan->n_value; v++) {
    cell *c = &m->cell[v];
    c->need_at = n_need;
    c->writer_at = n_writer;
    n_need += c->n_need;
    n_writer += c->n_writer;
  }
  walk_operands(m, true);
}

/* The first step after that of node n which writes the storage of v anew; beyond all steps when
 * none does. */
static int next_write(const machine *m, neap_value_id v, int n) {
  int first = m->plan->n_node;
  for (int w = m->first[m->plan->place[v].storage]; w >= 0; w = m->next[w]) {
    int maker = m->graph->value[w].node;
    if (w != v && maker >= 0 && !m->idle[maker] && m->step[maker] >= m->step[n])
      first = NEAP_MIN(first, m->step[maker]);
  }
  return first;
}

/* Whether running the node again writes nothing but what it wrote the first time. `c`: the cell
 * that is made again. */
static bool is_recomputable(const machine *m, const neap_node *node, const cell *c, bool first) {
  if ((node->effects & ~HARMLESS) != 0 || node->n_sub > 0) return false;
  /* The first writer begins the cell, so what it reads lies elsewhere; each later one goes on from
   * what the one before it has left there. */
  if (reads(m, node, c) == first) return false;
  for (int k = 0; k < node->n_out; k++) {
    neap_value_id v = node->out[k];
    if (v < 0) continue;
    if (m->plan->place[v].region != NEAP_REGION_ARENA) return false;
    /* Another cell that it writes would lose what later writers have made of it. */
    const cell *other = cell_of(m, v);
    if (other != NULL && other != c &&
        m->writer[other->writer_at + other->n_writer - 1] != (int)(node - m->graph->node))
      return false;
  }
  return true;
}

/* The last step at which the writers of c can run again, each finding what it read the first
 * time. */
static int find_horizon(const machine *m, const cell *c) {
  int horizon = m->plan->n_node;
  for (int j = 0; j < c->n_writer; j++) {
    int n = m->writer[c->writer_at + j];
    const neap_node *node = &m->graph->node[n];
    if (!is_recomputable(m, node, c, j == 0)) return -1;
    for (int i = 0; i < node->n_in; i++) {
      const cell *in = cell_of(m, node->in[i]);
      if (node->in[i] < 0 || in == c) continue;
      /* What it reads is what it was until it is written anew. */
      horizon = NEAP_MIN(horizon, next_write(m, node->in[i], n));
      if (in == NULL) continue;
      /* And it is there until its own last need, or for as long as it can be made again itself. */
      int until = in->to;
      if (in->evictable) until = NEAP_MAX(until, in->horizon);
      horizon = NEAP_MIN(horizon, until);
    }
  }
  return horizon;
}

/* In the order of first writing, so that what a cell is made from is known before it. */
static void find_horizons(machine *m) {
  for (int step = 0; step < m->plan->n_node; step++) {
    int n = m->plan->order[step];
    const neap_node *node = &m->graph->node[n];
    if (m->idle[n]) continue;
    for (int k = 0; k < node->n_out; k++) {
      cell *c = cell_of(m, node->out[k]);
      if (c == NULL || m->writer[c->writer_at] != n) continue;
      c->horizon = find_horizon(m, c);
      c->evictable = c->horizon >= c->to;
      for (int j = 0; j < c->n_writer; j++) c->work += m->work[m->writer[c->writer_at + j]];
    }
  }
}

/* Everything but what changes as a rehearsal goes. The arena is the caller's to finish, on failure
 * too. */
static neap_status machine_init(machine *m, const neap_plan *plan, const neap_graph *graph,
                                neap_error *error) {
  *m = (machine){.plan = plan, .graph = graph};
  size_t n_value = (size_t)plan->n_value + 1, n_node = (size_t)plan->n_node + 1;
  size_t n_operand = 1;
  for (int n = 0; n < plan->n_node; n++)
    n_operand += (size_t)(graph->node[n].n_in + graph->node[n].n_out);
  m->cell = neap_arena_alloc(&m->arena, n_value * sizeof *m->cell);
  m->live = neap_arena_alloc(&m->arena, n_value * sizeof *m->live);
  m->first = neap_arena_alloc(&m->arena, n_value * sizeof *m->first);
  m->next = neap_arena_alloc(&m->arena, n_value * sizeof *m->next);
  m->step = neap_arena_alloc(&m->arena, n_node * sizeof *m->step);
  m->work = neap_arena_alloc(&m->arena, n_node * sizeof *m->work);
  m->idle = neap_arena_alloc(&m->arena, n_node * sizeof *m->idle);
  m->writer = neap_arena_alloc(&m->arena, n_operand * sizeof *m->writer);
  m->need = neap_arena_alloc(&m->arena, n_operand * sizeof *m->need);
  if (m->cell == NULL || m->live == NULL || m->first == NULL || m->next == NULL ||
      m->step == NULL || m->work == NULL || m->idle == NULL || m->writer == NULL || m->need == NULL)
    return refused(error, n_operand * sizeof *m->need);
  /* A cell has the bytes of its largest member. */
  for (int v = 0; v < plan->n_value; v++) {
    const neap_place *place = &plan->place[v];
    if (place->region != NEAP_REGION_ARENA || place->first < 0) continue;
    cell *c = &m->cell[place->storage];
    c->bytes = NEAP_MAX(c->bytes, neap_align(place->bytes));
  }
  /* Members of each storage as a chain, in the order of values: from the last one on, each is put
   * before those behind it. */
  for (int v = 0; v < plan->n_value; v++) m->first[v] = -1;
  for (int v = plan->n_value - 1; v >= 0; v--) {
    m->next[v] = m->first[plan->place[v].storage];
    m->first[plan->place[v].storage] = v;
  }
  for (int step = 0; step < plan->n_node; step++) m->step[plan->order[step]] = step;
  for (int n = 0; n < plan->n_node; n++) {
    m->idle[n] = is_idle(m, &graph->node[n]);
    m->work[n] = neap_plan_work(graph, &graph->node[n]);
  }
  list_operands(m);
  find_horizons(m);
  /* No eviction helps an op that needs more than the limit by itself. */
  for (int n = 0; n < plan->n_node; n++) {
    size_t own = own_bytes(m, n);
    if (own <= m->least) continue;
    m->least = own;
    m->least_node = n;
  }
  return NEAP_OK;
}

static void machine_fini(machine *m) {
  neap_free(m->turn);
  neap_free(m->turn_used);
  neap_free(m->stay);
  neap_free(m->slot);
  neap_arena_fini(&m->arena);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A stay of the slot that begins with the turn about to be written; its index, or -1 when memory is
 * refused. */
static int add_stay(machine *m, int slot, size_t bytes) {
  if (!neap_list_grow(&m->stay, &m->cap_stay, m->n_stay + 1, sizeof *m->stay) ||
      !neap_list_grow(&m->slot, &m->cap_slot, m->n_stay + 1, sizeof *m->slot)) {
    m->no_memory = true;
    return -1;
  }
  m->stay[m->n_stay] =
    (neap_block){.bytes = bytes, .align = NEAP_ALIGN, .first = m->n_turn, .last = m->n_turn};
  m->slot[m->n_stay] = slot;
  return m->n_stay++;
}

static bool take(machine *m, cell *c) {
  c->stay = add_stay(m, (int)(c - m->cell), c->bytes);
  if (c->stay < 0) return false;
  c->live = true;
  c->place = m->n_live;
  m->live[m->n_live++] = (int)(c - m->cell);
  m->used += c->bytes;
  return true;
}

/* Back after the last turn written. */
static void give(machine *m, cell *c) {
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
static bool is_gone(const cell *c) { return !c->live && c->n_done > 0; }

/* Work of all cells that are gone and lead to c, in addition to what this walk has met; *left cells
 * may still be met. */
static double work_before(machine *m, const cell *c, int *left) {
  double work = 0;
  for (int j = 0; j < c->n_done; j++) {
    const neap_node *node = &m->graph->node[m->writer[c->writer_at + j]];
    for (int i = 0; i < node->n_in; i++) {
      if (*left <= 0) return work;
      cell *in = cell_of(m, node->in[i]);
      if (in == NULL || in == c || !is_gone(in) || in->mark == m->n_mark) continue;
      in->mark = m->n_mark;
      --*left;
      work += in->work + work_before(m, in, left);
    }
  }
  return work;
}

/* The same for those that c leads to, and that will be read again. */
static double work_after(machine *m, const cell *c, int *left) {
  double work = 0;
  for (int k = 0; k < c->n_need; k++) {
    /* Only what has run can be gone. */
    int step = m->need[c->need_at + k];
    if (step >= m->now) break;
    const neap_node *node = &m->graph->node[m->plan->order[step]];
    for (int o = 0; o < node->n_out; o++) {
      if (*left <= 0) return work;
      cell *out = cell_of(m, node->out[o]);
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
static int distance(machine *m, cell *c) {
  /* Steps only rise while a rehearsal goes, so that needs that are over are passed for good. */
  while (c->next_need < c->n_need && m->need[c->need_at + c->next_need] < m->now) c->next_need++;
  int next = m->plan->n_node; /* nobody reads it again */
  if (c->next_need < c->n_need) next = m->need[c->need_at + c->next_need];
  return next - m->now + 1;
}

/* The work that evicting c costs, for each of its bytes and for each step, or turn, in which nobody
 * reads it. */
static double price_of(machine *m, cell *c) {
  /* Making it again may need gone cells made before it, and gone ones that are made from it would
   * need it: all their work counts, within a number of neighbours. */
  int left = MOST_NEIGHBOURS;
  c->mark = ++m->n_mark;
  double work = c->work + work_before(m, c, &left) + work_after(m, c, &left);
  m->n_look += MOST_NEIGHBOURS - left + c->n_need + c->n_writer + 1;
  double time = m->ahead ? distance(m, c) : m->n_turn - c->used_at + 1;
  return work / ((double)c->bytes * time);
}

/* False: all that is left is needed now, or stays. */
static bool evict_one(machine *m) {
  cell *best = NULL;
  double least = INFINITY;
  for (int k = 0; k < m->n_live; k++) {
    cell *c = &m->cell[m->live[k]];
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
  give(m, best);
  m->n_evicted++;
  m->evicted_bytes += (int64_t)best->bytes;
  return true;
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* Outputs that have a block already may not be evicted to make room for the others. `by`: 1, and -1
 * when there is room. */
static void pin_live_outputs(machine *m, const neap_node *node, int by) {
  for (int k = node->n_in; k < node->n_in + node->n_out; k++) {
    cell *c = operand_cell(m, node, k);
    if (c == NULL) continue;
    /* Nothing is taken in between: those that are pinned are those that were live. */
    bool is_meant = by > 0 ? c->live : c->pins > 0;
    if (is_meant) c->pins += by;
  }
}

/* Room for `bytes` more; false when it can't be had. */
static bool make_room(machine *m, size_t bytes) {
  while (m->used + bytes > m->target)
    if (!evict_one(m)) return false;
  return true;
}

/* Writes the turn of node n, whose inputs are live and pinned: takes its outputs and scratch. */
static bool run_turn(machine *m, int n, bool recomputed) {
  const neap_node *node = &m->graph->node[n];
  const bool idle = m->idle[n];
  /* What it needs beside its inputs. */
  size_t scratch = neap_align(m->plan->scratch_bytes[n]), more = scratch;
  for (int k = node->n_in; k < node->n_in + node->n_out; k++) {
    const cell *c = idle ? NULL : operand_cell(m, node, k);
    if (c != NULL && !c->live) more += c->bytes;
  }
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
    cell *c = idle ? NULL : operand_cell(m, node, k);
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
static bool is_spent(const machine *m, const cell *c) { return c->to < m->now; }

static bool make_again(machine *m, cell *c);

/* All inputs of node n but `own` are whole and pinned afterwards; on failure some are. */
static bool hold_inputs(machine *m, int n, const cell *own) {
  const neap_node *node = &m->graph->node[n];
  if (m->idle[n]) return true;
  for (int i = 0; i < node->n_in; i++) {
    cell *c = operand_cell(m, node, i);
    if (c == NULL || c == own) continue;
    if (!c->live && !make_again(m, c)) return false;
    c->pins++;
  }
  return true;
}

/* Takes the pins of hold_inputs back. What is spent goes at once. */
static void let_inputs_go(machine *m, int n, const cell *own) {
  const neap_node *node = &m->graph->node[n];
  if (m->idle[n]) return;
  for (int i = 0; i < node->n_in; i++) {
    cell *c = operand_cell(m, node, i);
    if (c == NULL || c == own) continue;
    c->pins--;
    if (c->pins == 0 && c->live && is_spent(m, c)) give(m, c);
  }
}

/* Runs again all writers of c that have run. What else they write stays if it will be read. */
static bool make_again(machine *m, cell *c) {
  /* Too late for it, or too deep: each level of makings within makings is a call. */
  if (c->n_done == 0 || c->horizon < m->now || ++m->depth > MOST_DEPTH) {
    m->stuck_node = m->plan->order[m->now];
    return false;
  }
  for (int j = 0; j < c->n_done; j++) {
    int n = m->writer[c->writer_at + j];
    const neap_node *node = &m->graph->node[n];
    if (!hold_inputs(m, n, c) || !run_turn(m, n, true)) return false;
    if (j == 0) c->pins++; /* it has a block now, which may not go half made */
    let_inputs_go(m, n, c);
    for (int k = node->n_in; k < node->n_in + node->n_out; k++) {
      cell *other = operand_cell(m, node, k);
      if (other != NULL && other != c && other->live && other->pins == 0 && is_spent(m, other))
        give(m, other);
    }
  }
  c->pins--;
  m->depth--;
  return true;
}

/* The first run of a step, and the gives of what it was the last to need. */
static bool run_step(machine *m, int step) {
  int n = m->plan->order[step];
  const neap_node *node = &m->graph->node[n];
  m->now = step;
  if (!hold_inputs(m, n, NULL) || !run_turn(m, n, false)) return false;
  if (m->idle[n]) { /* it has taken and pinned nothing */
    m->now = step + 1;
    return true;
  }
  for (int k = node->n_in; k < node->n_in + node->n_out; k++) {
    cell *c = operand_cell(m, node, k);
    if (c != NULL) c->n_done++;
  }
  /* From here on this step's needs are over. */
  m->now = step + 1;
  let_inputs_go(m, n, NULL);
  for (int k = node->n_in; k < node->n_in + node->n_out; k++) {
    cell *c = operand_cell(m, node, k);
    if (c != NULL && c->live && is_spent(m, c)) give(m, c);
  }
  return true;
}

/* One rehearsal with `target` bytes. False: it can't be done, or m->no_memory. */
static bool rehearse(machine *m, size_t target, bool ahead) {
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
  for (int v = 0; v < m->plan->n_value; v++) {
    cell *c = &m->cell[v];
    c->n_done = 0;
    c->next_need = 0;
    c->live = false;
    c->pins = 0;
    c->used_at = 0;
    c->mark = 0;
  }
  if (m->least > target) return false;
  for (int step = 0; step < m->plan->n_node; step++)
    if (!run_step(m, step)) return false;
  return true;
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* Rehearses with ever less, until the packing of the stays keeps the limit too. *reach gets the
 * bytes. */
static neap_status fit(machine *m, size_t limit, bool ahead, bool *fits, size_t *reach,
                       neap_error *error) {
  size_t target = limit;
  *fits = false;
  for (int try = 0; try < MOST_TRIES; try++) {
    if (!rehearse(m, target, ahead))
      return m->no_memory ? refused(error, sizeof *m->turn) : NEAP_OK;
    neap_pack_options options = {.stop_at_bytes = limit, .most_steps = MOST_PACK_STEPS};
    neap_pack_result result;
    NEAP_TRY(neap_pack(m->n_stay, m->stay, &options, &result, error));
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
static double all_work(const machine *m) {
  double work = 0;
  for (int n = 0; n < m->plan->n_node; n++) work += m->work[n];
  return work;
}

/* The better of the two ways to judge under the limit, left in m; *fits: whether there is one.
 * Little recomputed work is not worth a second rehearsal. */
static neap_status find_best(machine *m, size_t limit, bool *fits, size_t *reach,
                             neap_error *error) {
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
static neap_status write_script(const machine *m, neap_plan *plan, neap_error *error) {
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
    return refused(error, n_stay * sizeof *s->take);
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
static neap_status write_plan(const machine *m, neap_plan *plan, size_t reach, neap_error *error) {
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
  return plan->packer != NULL ? NEAP_OK : refused(error, sizeof name);
}

/* ---- what can't be had ----------------------------------------------------------------------- */

/* The least limit that does, as far as halving finds it; `most` does, as nothing has to go there.
 * The way there depends on no limit that was asked for: whoever is refused is told the same figure,
 * and whatever is not below it can be had. */
static neap_status find_least(machine *m, size_t most, size_t *least, neap_error *error) {
  size_t below = (m->least > NEAP_ALIGN ? m->least - NEAP_ALIGN : 0) & ~(size_t)(NEAP_ALIGN - 1);
  size_t above = most;
  size_t next = neap_align(m->least); /* often the least op's need is all it takes */
  for (int i = 0; i < MOST_HALVINGS && above > below + NEAP_ALIGN; i++) {
    bool fits;
    size_t reach;
    if (next <= below || next >= above) next = neap_align(below + (above - below) / 2);
    if (next >= above) break;
    NEAP_TRY(fit(m, next, true, &fits, &reach, error));
    if (fits)
      above = next;
    else
      below = next;
    next = 0; /* from the second try on: halving */
  }
  *least = above;
  return NEAP_OK;
}

/* BUDGET error at the op of the greatest need, with its operands. */
static neap_status refuse(const machine *m, const neap_limit *limit, size_t least,
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
    const cell *c = operand_cell(m, node, k);
    if (c == NULL || (k >= node->n_in && reads(m, node, c))) continue;
    neap_value_id v = k < node->n_in ? node->in[k] : node->out[k - node->n_in];
    const char *name = neap_plan_name(m->graph, v);
    neap_refused_blob(&refused, name, c->bytes);
    neap_buffer_add(&why, "%s%s %s", n++ > 0 ? ", " : "", name,
                    neap_bytes_text((double)c->bytes, text));
  }
  size_t scratch = m->plan->scratch_bytes[m->least_node];
  if (scratch > 0)
    neap_buffer_add(&why, "%sscratch %s", n > 0 ? ", " : "",
                    neap_bytes_text((double)scratch, text));
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
  machine m;
  const neap_limit own = {.bytes = options->budget_bytes};
  const size_t limit_bytes = options->budget_bytes;
  bool fits = false;
  size_t reach = 0, least = 0;
  neap_status status = machine_init(&m, plan, graph, error);
  if (status == NEAP_OK) status = find_best(&m, limit_bytes, &fits, &reach, error);
  if (status == NEAP_OK && !fits) {
    status = find_least(&m, most_bytes, &least, error);
    /* A greedy search may fail under a limit and do with less: then less it is. */
    if (status == NEAP_OK && least <= limit_bytes)
      status = fit(&m, least, true, &fits, &reach, error);
    if (status == NEAP_OK && !fits)
      status = refuse(&m, options->limit != NULL ? options->limit : &own, least, error);
  }
  if (status == NEAP_OK) status = write_script(&m, plan, error);
  if (status == NEAP_OK) status = write_plan(&m, plan, reach, error);
  machine_fini(&m);
  return status;
}

bool neap_plan_evicts(const neap_plan *plan) {
  return plan->packer != NULL &&
         (strncmp(plan->packer, "stale:", 6) == 0 || strncmp(plan->packer, "ahead:", 6) == 0);
}
