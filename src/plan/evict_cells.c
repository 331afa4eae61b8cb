/* evict_cells.c: the cells of a pool under a limit: which of them can be evicted, until when, and
 * what it costs to make them again. All of that is of the plan, and the same under every limit.
 *
 * A *cell* is a storage. It is made by its writers in turn, and made again by all that have run so
 * far; so it is either whole or has no block. Some stay: what no op can make again, and what would
 * be read later than an op runs that overwrites something which making it again reads.
 *
 * Residents are never evicted: parameters, inputs, outputs, state. Nor is anything written by an op
 * with subnets, or with effects other than random numbers (which depend on op and step alone, so
 * that they are the same again) and faults.
 *
 * INVARIANT: `horizon` is the last step at which a cell can be had, and no cell is evicted that is
 * needed later than its horizon.
 */
#include "plan/evict_int.h"

static const unsigned HARMLESS =
  NEAP_EFFECT_RANDOM | NEAP_EFFECT_FAULT | NEAP_EFFECT_EXTENT | NEAP_EFFECT_CALLER;

neap_status evict_refused(neap_error *error, size_t bytes) {
  return neap_fail_memory(error, bytes, "what a pool evicts");
}

evict_cell *evict_cell_of(const evict_machine *m, neap_value_id v) {
  if (v < 0 || m->plan->place[v].region != NEAP_REGION_ARENA) return NULL;
  evict_cell *c = &m->cell[m->plan->place[v].storage];
  return c->bytes > 0 ? c : NULL;
}

evict_cell *evict_operand_cell(const evict_machine *m, const neap_node *node, int k) {
  const neap_value_id *list = k < node->n_in ? node->in : node->out;
  int at = k < node->n_in ? k : k - node->n_in;
  evict_cell *c = evict_cell_of(m, list[at]);
  if (c == NULL) return NULL;
  for (int i = 0; i < at; i++)
    if (evict_cell_of(m, list[i]) == c) return NULL;
  return c;
}

bool evict_reads(const evict_machine *m, const neap_node *node, const evict_cell *c) {
  for (int i = 0; i < node->n_in; i++)
    if (evict_cell_of(m, node->in[i]) == c) return true;
  return false;
}

/* Whether the node does nothing: it frees, or shows bytes where they are. */
static bool is_idle(const evict_machine *m, const neap_node *node) {
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
static size_t own_bytes(const evict_machine *m, int n) {
  const neap_node *node = &m->graph->node[n];
  size_t bytes = neap_align(m->plan->scratch_bytes[n]);
  if (m->idle[n]) return bytes;
  for (int k = 0; k < node->n_in + node->n_out; k++) {
    const evict_cell *c = evict_operand_cell(m, node, k);
    if (c == NULL) continue;
    /* An output in a cell that the node reads has been counted with its inputs. */
    bool is_counted = k >= node->n_in && evict_reads(m, node, c);
    if (!is_counted) bytes += c->bytes;
  }
  return bytes;
}

/* Adds the step to what a cell needs, once. The first walk counts, the second fills. */
static void add_need(evict_machine *m, evict_cell *c, int step, bool fill) {
  if (c->to == step && c->n_need > 0) return;
  if (fill) m->need[c->need_at + c->n_need] = step;
  c->n_need++;
  c->to = step;
}

static void add_writer(evict_machine *m, evict_cell *c, int n, bool fill) {
  if (fill) m->writer[c->writer_at + c->n_writer] = n;
  c->n_writer++;
}

/* Who needs and who writes each cell, in the order of the plan. */
static void walk_operands(evict_machine *m, bool fill) {
  /* Counts start anew: the second of the two walks fills what the first has counted. */
  for (int v = 0; v < m->plan->n_value; v++) {
    evict_cell *c = &m->cell[v];
    c->n_need = 0;
    c->n_writer = 0;
    c->to = -1;
  }

  /* Steps ascend, so that the needs and the writers of each cell come sorted. */
  for (int step = 0; step < m->plan->n_node; step++) {
    int n = m->plan->order[step];
    const neap_node *node = &m->graph->node[n];
    if (m->idle[n]) continue; /* it needs no bytes to be there */
    for (int k = 0; k < node->n_in + node->n_out; k++) {
      evict_cell *c = evict_operand_cell(m, node, k);
      if (c == NULL) continue;
      add_need(m, c, step, fill);
      if (k >= node->n_in) add_writer(m, c, n, fill);
    }
  }
}

/* Lists of the readers and writers of all cells: counted first, then each with a part of one
 * array. */
static void list_operands(evict_machine *m) {
  walk_operands(m, false);
  int n_need = 0, n_writer = 0;
  for (int v = 0; v < m->plan->n_value; v++) {
    evict_cell *c = &m->cell[v];
    c->need_at = n_need;
    c->writer_at = n_writer;
    n_need += c->n_need;
    n_writer += c->n_writer;
  }
  walk_operands(m, true);
}

/* The first step after that of node n which writes the storage of v anew; beyond all steps when
 * none does. */
static int next_write(const evict_machine *m, neap_value_id v, int n) {
  int first = m->plan->n_node;

  /* Values of one storage replace each other in the same bytes, so each maker of another value
   * there is a write. Those of steps before n have gone by. */
  for (int w = m->first[m->plan->place[v].storage]; w >= 0; w = m->next[w]) {
    int maker = m->graph->value[w].node;
    if (w != v && maker >= 0 && !m->idle[maker] && m->step[maker] >= m->step[n])
      first = NEAP_MIN(first, m->step[maker]);
  }
  return first;
}

/* Whether running the node again writes nothing but what it wrote the first time. `c`: the cell
 * that is made again. */
static bool is_recomputable(const evict_machine *m, const neap_node *node, const evict_cell *c,
                            bool first) {
  if ((node->effects & ~HARMLESS) != 0 || node->n_sub > 0) return false;

  /* The first writer begins the cell, so what it reads lies elsewhere; each later one goes on from
   * what the one before it has left there. */
  if (evict_reads(m, node, c) == first) return false;

  /* Everything it writes has to be the pool's, and end up as it was. */
  for (int k = 0; k < node->n_out; k++) {
    neap_value_id v = node->out[k];
    if (v < 0) continue;
    if (m->plan->place[v].region != NEAP_REGION_ARENA) return false;
    /* Another cell that it writes would lose what later writers have made of it. */
    const evict_cell *other = evict_cell_of(m, v);
    if (other != NULL && other != c &&
        m->writer[other->writer_at + other->n_writer - 1] != (int)(node - m->graph->node))
      return false;
  }
  return true;
}

/* The last step at which the writers of c can run again, each finding what it read the first
 * time. */
static int find_horizon(const evict_machine *m, const evict_cell *c) {
  int horizon = m->plan->n_node;
  for (int j = 0; j < c->n_writer; j++) {
    int n = m->writer[c->writer_at + j];
    const neap_node *node = &m->graph->node[n];
    if (!is_recomputable(m, node, c, j == 0)) return -1;
    for (int i = 0; i < node->n_in; i++) {
      const evict_cell *in = evict_cell_of(m, node->in[i]);
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
static void find_horizons(evict_machine *m) {
  /* A cell is looked at with its first writer. What that reads was written at earlier steps, so its
   * horizon is known. */
  for (int step = 0; step < m->plan->n_node; step++) {
    int n = m->plan->order[step];
    const neap_node *node = &m->graph->node[n];
    if (m->idle[n]) continue;
    for (int k = 0; k < node->n_out; k++) {
      evict_cell *c = evict_cell_of(m, node->out[k]);
      if (c == NULL || m->writer[c->writer_at] != n) continue;
      c->horizon = find_horizon(m, c);

      /* To be evicted a cell must be there to be had for as long as anybody needs it. */
      c->evictable = c->horizon >= c->to;
      for (int j = 0; j < c->n_writer; j++) c->work += m->work[m->writer[c->writer_at + j]];
    }
  }
}

neap_status evict_init(evict_machine *m, const neap_plan *plan, const neap_graph *graph,
                       neap_error *error) {
  /* Room by the number of values, nodes and operands: a cell is needed, or written, at most once
   * for each operand. */
  *m = (evict_machine){.plan = plan, .graph = graph};
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
    return evict_refused(error, n_operand * sizeof *m->need);

  /* A cell has the bytes of its largest member. */
  for (int v = 0; v < plan->n_value; v++) {
    const neap_place *place = &plan->place[v];
    if (place->region != NEAP_REGION_ARENA || place->first < 0) continue;
    evict_cell *c = &m->cell[place->storage];
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

  /* Who needs what and until when it can be had. Both follow from the order, and hold under every
   * limit. */
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

void evict_fini(evict_machine *m) {
  neap_free(m->turn);
  neap_free(m->turn_used);
  neap_free(m->stay);
  neap_free(m->slot);
  neap_arena_fini(&m->arena);
}
