/* verify.c: an independent check that a plan is safe for its graph. Shares no code with the rest of
 * this room: readers, paths and lives are found again here, from the graph's nodes and edges alone.
 *
 * What is proved, value by value rather than storage by storage: two values whose bytes meet are
 * either ordered (all that touches the one runs before the other is written), or hold the same
 * content (views), or one replaces the other in place at a node whose record allows it and that
 * reads it last. "Runs before" is the position in the order; in `dag` it is a path of edges, so
 * that every schedule the edges allow is safe.
 *
 * The bound is counted again too; only in `dag`, where a heavier clique may be known, it is merely
 * held to lie between what the order shows and the arena. Steps count from 1 in messages.
 * In one order O(log n_value) for each value and for each two that meet in bytes and time; in `dag`
 * O(n_value^2) pairs at worst, met in order of offset, and n_edge * n_node / 64 words of paths.
 */
#include "plan/verify_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- order ----------------------------------------------------------------------------------- */

/* By from, then to: the order that the graph keeps its edges in. The kind of edge does not
 * count. */
static int compare_edges(const void *a, const void *b) {
  const neap_edge *x = a, *y = b;
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  return (x->to > y->to) - (x->to < y->to);
}

/* The order is a permutation of the nodes in which every edge leads forward; the edges are sorted,
 * distinct, and lead from lower nodes to higher ones, which later passes rely on. Fills step. */
static neap_status check_order(check *c) {
  const neap_plan *plan = c->plan;

  /* As many steps as nodes, none of them twice: then each node has its step. */
  for (int n = 0; n < plan->n_node; n++) c->step[n] = -1;
  for (int i = 0; i < plan->n_node; i++) {
    int n = plan->order[i];
    if (n < 0 || n >= plan->n_node || c->step[n] >= 0)
      return neap_fail(c->error, NEAP_PLAN, "step %d: the order is no permutation of the %d ops",
                       i + 1, plan->n_node);
    c->step[n] = i;
  }

  /* Every edge leads up, is listed in order, and runs from an earlier step to a later one. */
  for (int e = 0; e < c->graph->n_edge; e++) {
    const neap_edge *edge = &c->graph->edge[e];
    bool leads_up = edge->from >= 0 && edge->from < edge->to && edge->to < plan->n_node;
    bool is_sorted = e == 0 || compare_edges(edge - 1, edge) < 0;
    if (!leads_up || !is_sorted)
      return neap_fail(c->error, NEAP_PLAN, "edge %d (op %d to op %d) is out of order", e,
                       edge->from, edge->to);
    if (c->step[edge->from] >= c->step[edge->to])
      return neap_fail(c->error, NEAP_PLAN,
                       "op \"%s\" runs at step %d, before \"%s\" at step %d, which it needs",
                       c->graph->node[edge->to].name, c->step[edge->to] + 1,
                       c->graph->node[edge->from].name, c->step[edge->from] + 1);
  }
  return NEAP_OK;
}

/* Every read must be held by an edge: the schedule of a dag knows nothing else. */
static neap_status check_reads(check *c) {
  /* Edges are sorted and distinct by now, so each is found by bisection. */
  const neap_graph *g = c->graph;
  for (int n = 0; n < g->n_node; n++)
    for (int i = 0; i < g->node[n].n_in; i++) {
      int v = g->node[n].in[i];
      if (v == NEAP_NO_VALUE || g->value[v].node < 0) continue;
      neap_edge want = {g->value[v].node, n, NEAP_EDGE_DATA};
      if (bsearch(&want, g->edge, (size_t)g->n_edge, sizeof want, compare_edges) == NULL)
        return FAIL(c, v,
                    "op \"%s\" reads \"%s\", but no edge leads to it from \"%s\", which makes it",
                    g->node[n].name, label(c, v), g->node[g->value[v].node].name);
    }
  return NEAP_OK;
}

/* Fills the lists of readers by counting sort, and last_step. O(values + reads). */
static neap_status find_readers(check *c) {
  const neap_graph *g = c->graph;
  size_t n_read = 0;
  for (int n = 0; n < g->n_node; n++) n_read += (size_t)g->node[n].n_in;
  c->reader = neap_arena_alloc(&c->arena, n_read * sizeof(int) + 1);
  if (c->reader == NULL) return neap_fail_memory(c->error, n_read * sizeof(int), "checking a plan");

  /* How many readers each value has, and from these where its list begins. */
  for (int n = 0; n < g->n_node; n++)
    for (int i = 0; i < g->node[n].n_in; i++) {
      int v = g->node[n].in[i];
      if (v != NEAP_NO_VALUE) c->reader_at[v + 1]++;
    }
  for (int v = 0; v < g->n_value; v++) c->reader_at[v + 1] += c->reader_at[v];

  /* The readers; `last_step` holds for now where a value's next reader goes. */
  for (int v = 0; v < g->n_value; v++) c->last_step[v] = c->reader_at[v];
  for (int n = 0; n < g->n_node; n++)
    for (int i = 0; i < g->node[n].n_in; i++) {
      int v = g->node[n].in[i];
      if (v != NEAP_NO_VALUE) c->reader[c->last_step[v]++] = n;
    }

  /* A value that nobody reads lives in the step that makes it. */
  for (int v = 0; v < g->n_value; v++) {
    c->last_step[v] = g->value[v].node < 0 ? -1 : c->step[g->value[v].node];
    for (int k = c->reader_at[v]; k < c->reader_at[v + 1]; k++)
      c->last_step[v] = NEAP_MAX(c->last_step[v], c->step[c->reader[k]]);
  }
  return NEAP_OK;
}

/* Edges come sorted by `from`, and lead upward: when those of a node are met, its own row is
 * complete. */
static neap_status find_paths(check *c) {
  if (c->plan->executor != NEAP_EXECUTOR_DAG) return NEAP_OK;
  c->n_word = ((size_t)c->graph->n_node + 63) / 64;
  size_t bytes = c->n_word * (size_t)c->graph->n_node * sizeof(uint64_t);
  c->above = neap_arena_alloc(&c->arena, bytes + 1);
  if (c->above == NULL) return neap_fail_memory(c->error, bytes, "checking a plan");

  /* Whatever leads to `from` leads to `to`, and so does `from`. */
  for (int e = 0; e < c->graph->n_edge; e++) {
    size_t from = (size_t)c->graph->edge[e].from, to = (size_t)c->graph->edge[e].to;
    const uint64_t *row = c->above + from * c->n_word;
    uint64_t *below = c->above + to * c->n_word;
    for (size_t k = 0; k < c->n_word; k++) below[k] |= row[k];
    below[from / 64] |= (uint64_t)1 << (from % 64);
  }
  return NEAP_OK;
}

/* Node a has run when node b starts, in every schedule that the plan allows. */
static bool runs_before(const check *c, int a, int b) {
  if (c->above == NULL) return c->step[a] < c->step[b];
  return (c->above[(size_t)b * c->n_word + (size_t)a / 64] >> (a % 64) & 1u) != 0;
}

/* All that touches value v, its definition and its readers, has run when node n starts; with
 * `but_n`, n may be a reader itself. */
static bool is_over_before(const check *c, int v, int n, bool but_n) {
  /* In one order the last step says it all. */
  if (c->above == NULL && !but_n) return c->last_step[v] < c->step[n];
  if (!runs_before(c, c->graph->value[v].node, n)) return false;
  for (int k = c->reader_at[v]; k < c->reader_at[v + 1]; k++) {
    int reader = c->reader[k];
    if (but_n && reader == n) continue;
    if (!runs_before(c, reader, n)) return false;
  }
  return true;
}

/* ---- places, one by one ---------------------------------------------------------------------- */

/* Whether (in, out) is among n pairs. */
static bool has_pair(const neap_pair *pair, int n, int in, int out) {
  for (int k = 0; k < n; k++)
    if (pair[k].in == in && pair[k].out == out) return true;
  return false;
}

/* Whether the value is output of a node that has `partner` at an input with which `pair` lists
 * it. */
static bool is_paired(const check *c, int v, const neap_pair *pair, int n_pair) {
  const neap_value *value = &c->graph->value[v];
  const neap_node *node = &c->graph->node[value->node];
  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] == c->plan->place[v].partner && has_pair(pair, n_pair, i, value->position))
      return true;
  return false;
}

/* The reason that the plan gives for joining v to its partner is one that the graph or the op's
 * record allows; without such a reason a value is the root of its own storage. */
static neap_status check_relation(check *c, int v) {
  const neap_graph *g = c->graph;
  const neap_place *place = &c->plan->place[v];
  bool linked = place->reason == NEAP_REASON_ALIAS || place->reason == NEAP_REASON_IN_PLACE ||
                place->reason == NEAP_REASON_VERSION;

  /* Numbers first: a stored plan may say anything. */
  if (place->partner < -1 || place->partner >= g->n_value)
    return FAIL(c, v, "\"%s\" has an unknown partner", label(c, v));
  if (!linked) {
    if (place->storage == v) return NEAP_OK;
    return FAIL(c, v, "\"%s\" lies in the storage of \"%s\", but nothing joins them", label(c, v),
                label(c, place->storage));
  }
  if (place->partner < 0 || g->value[v].node < 0)
    return FAIL(c, v, "\"%s\" is joined to no value", label(c, v));

  /* Joined values lie in one storage, and so where that does; only versions may differ in size. */
  const neap_node *node = &g->node[g->value[v].node];
  const neap_place *partner = &c->plan->place[place->partner];
  if (partner->storage != place->storage ||
      (partner->bytes != place->bytes && place->reason != NEAP_REASON_VERSION))
    return FAIL(c, v, "\"%s\" should lie in the bytes of \"%s\", but lies elsewhere", label(c, v),
                label(c, place->partner));

  /* And some list must say that they may. Who else reads what is overwritten in place is looked at
   * in check_meeting. */
  bool ok = false;
  if (place->reason == NEAP_REASON_ALIAS) ok = is_paired(c, v, node->op->alias, node->op->n_alias);
  if (place->reason == NEAP_REASON_VERSION)
    ok = is_paired(c, v, node->enforced, node->n_enforced) || place->partner == g->value[v].root;
  if (place->reason == NEAP_REASON_IN_PLACE && node->n_sub == 0)
    ok = is_paired(c, v, node->op->inplace, node->op->n_inplace) ||
         (node->op->inplace_any_input && g->value[v].position == 0);
  if (ok) return NEAP_OK;
  return FAIL(c, v, "op \"%s\" allows no %s of \"%s\" and \"%s\"", node->name,
              neap_reason_code(place->reason), label(c, place->partner), label(c, v));
}

/* All versions of a root lie in its storage, and the next one may be written only when all readers
 * of the one before have run. */
static neap_status check_version(check *c, int v) {
  const neap_value *value = &c->graph->value[v];
  if (value->root == v || value->node < 0) return NEAP_OK;
  if (c->plan->place[v].storage != c->plan->place[value->root].storage)
    return FAIL(c, v, "\"%s\" is a version of \"%s\", but lies in another storage", label(c, v),
                label(c, value->root));

  /* The version that it replaces: the root, unless the node names another. */
  const neap_node *node = &c->graph->node[value->node];
  int before = value->root;
  for (int k = 0; k < node->n_enforced; k++) {
    neap_pair pair = node->enforced[k];
    if (pair.out != value->position || pair.in >= node->n_in || node->in[pair.in] < 0) continue;
    before = node->in[pair.in];
  }

  /* Its readers must all be done, but for the node itself, which may read what it replaces. */
  for (int k = c->reader_at[before]; k < c->reader_at[before + 1]; k++) {
    int reader = c->reader[k];
    if (reader == value->node || runs_before(c, reader, value->node)) continue;
    return FAIL(c, v,
                "op \"%s\" writes a new version of \"%s\" while \"%s\" may still read the old one",
                node->name, label(c, before), c->graph->node[reader].name);
  }
  return NEAP_OK;
}

/* Whether [at, at + bytes) lies in the part of the arena that bank `b` has. */
static bool is_in_bank(const check *c, int b, size_t at, size_t bytes) {
  if (c->plan->n_bank == 0) return true;
  const neap_plan_bank *bank = &c->plan->bank[b];
  return at >= bank->begin_bytes && at <= bank->begin_bytes + bank->bytes &&
         bytes <= bank->begin_bytes + bank->bytes - at;
}

/* A value of the arena lies in its bank. */
static neap_status check_bank(check *c, int v) {
  const neap_value *value = &c->graph->value[v];
  if (!in_arena(c, v) || c->plan->n_bank == 0) return NEAP_OK;
  if (is_in_bank(c, value->bank, c->plan->place[v].offset, value->bytes)) return NEAP_OK;
  return FAIL(c, v, "\"%s\" is of bank \"%s\" and does not lie there", label(c, v),
              c->graph->bank[value->bank].name);
}

/* Whether the node may touch operand v: it works on its own bank alone. What an enforced pair
 * writes, or a Free ends, is where it is. */
static bool is_within_reach(const check *c, const neap_node *node, int v, int position, bool out) {
  const neap_value *value = &c->graph->value[v];
  if (!node->confined || (node->effects & NEAP_EFFECT_RELEASE) != 0) return true;
  for (int p = 0; p < node->n_enforced; p++)
    if ((out ? node->enforced[p].out : node->enforced[p].in) == position) return true;
  return (value->region == NEAP_REGION_ARENA ? value->bank : value->home) == node->bank;
}

/* Banks lie one after another in the whole arena, and confined nodes touch nothing outside their
 * own. */
static neap_status check_banks(check *c) {
  const neap_plan *plan = c->plan;

  /* Each bank begins where the one before it ends, and the last ends where the arena does. */
  size_t at = 0;
  for (int b = 0; b < plan->n_bank; b++) {
    if (plan->bank[b].begin_bytes != at || plan->bank[b].bytes % NEAP_ALIGN != 0)
      return neap_fail(c->error, NEAP_PLAN, "bank \"%s\" begins at %zu, expected %zu",
                       c->graph->bank[b].name, plan->bank[b].begin_bytes, at);
    at += plan->bank[b].bytes;
  }
  if (plan->n_bank > 0 && at != plan->arena_bytes)
    return neap_fail(c->error, NEAP_PLAN, "the banks have %zu bytes, the arena %zu", at,
                     plan->arena_bytes);

  /* A confined node works on one bank: each of its operands has to lie there. */
  for (int n = 0; n < c->graph->n_node; n++) {
    const neap_node *node = &c->graph->node[n];
    for (int k = 0; k < node->n_in + node->n_out; k++) {
      bool is_out = k >= node->n_in;
      int position = is_out ? k - node->n_in : k;
      int v = is_out ? node->out[position] : node->in[position];
      if (v == NEAP_NO_VALUE || is_within_reach(c, node, v, position, is_out)) continue;
      return FAIL(c, v, "op \"%s\" is of bank \"%s\", and \"%s\" lies in another", node->name,
                  c->graph->bank[node->bank].name, label(c, v));
    }
  }
  return NEAP_OK;
}

/* What can be said of a place alone: region, bytes and life are the graph's, the offset is aligned
 * and inside, the storage is a root and lies where its member does. Then its relation and its
 * version. */
static neap_status check_place(check *c, int v) {
  const neap_value *value = &c->graph->value[v];
  const neap_place *place = &c->plan->place[v];
  int first = value->node < 0 ? -1 : c->step[value->node];

  /* What the graph says of the value. What is kept must outlive the run, and the arena does not. */
  if (place->region != value->region || place->bytes != value->bytes)
    return FAIL(c, v, "\"%s\" has %zu bytes in %s, the plan %zu in %s", label(c, v), value->bytes,
                neap_region_name(value->region), place->bytes, neap_region_name(place->region));
  if (place->region == NEAP_REGION_ARENA && value->keep)
    return FAIL(c, v, "\"%s\" is kept, but lies in the arena", label(c, v));

  /* Its storage is the root of one, and lies in the same bytes. */
  if (place->storage < 0 || place->storage >= c->graph->n_value ||
      c->plan->place[place->storage].storage != place->storage)
    return FAIL(c, v, "\"%s\" lies in no storage", label(c, v));
  if (place->offset != c->plan->place[place->storage].offset ||
      place->region != c->plan->place[place->storage].region)
    return FAIL(c, v, "\"%s\" lies apart from its storage \"%s\"", label(c, v),
                label(c, place->storage));

  /* Its life is what the order makes it, found again here. */
  if (place->first != first || place->last != c->last_step[v])
    return FAIL(c, v, "\"%s\" lives in steps %d to %d, the plan says %d to %d", label(c, v),
                first + 1, c->last_step[v] + 1, place->first + 1, place->last + 1);
  NEAP_TRY(check_bank(c, v));

  /* Its bytes are aligned and inside. Constants and frames have checks of their own. */
  bool has_offset = value->region == NEAP_REGION_ARENA || value->region == NEAP_REGION_CONSTANT ||
                    value->region == NEAP_REGION_FRAME;
  bool fits = has_offset || place->offset == 0;
  if (in_arena(c, v))
    fits =
      place->offset <= c->plan->arena_bytes && place->bytes <= c->plan->arena_bytes - place->offset;
  if (place->offset % NEAP_ALIGN != 0 || !fits)
    return FAIL(c, v, "\"%s\" lies at offset %zu with %zu bytes, in an arena of %zu", label(c, v),
                place->offset, place->bytes, c->plan->arena_bytes);
  NEAP_TRY(check_relation(c, v));
  return check_version(c, v);
}

/* What each value shows: its own elements, or those of the value it views. Definitions are met
 * before views of them. */
static void find_contents(check *c) {
  const neap_graph *g = c->graph;
  for (int v = 0; v < g->n_value; v++) c->content[v] = v;
  for (int n = 0; n < g->n_node; n++)
    for (int o = 0; o < g->node[n].n_out; o++) {
      int v = g->node[n].out[o];
      if (v != NEAP_NO_VALUE && c->plan->place[v].reason == NEAP_REASON_ALIAS)
        c->content[v] = c->content[c->plan->place[v].partner];
    }
}

/* ---- places, two by two ---------------------------------------------------------------------- */

static bool bytes_meet(size_t a, size_t n_a, size_t b, size_t n_b) {
  return a < b + n_b && b < a + n_a;
}

/* Value `b` may be written over `a` by the node that makes it: its last reader, at allowed
 * positions only. */
static bool may_replace(const check *c, int a, int b) {
  const neap_graph *g = c->graph;
  const neap_place *at_a = &c->plan->place[a], *at_b = &c->plan->place[b];
  const neap_node *node = &g->node[g->value[b].node];
  if (at_b->reason != NEAP_REASON_IN_PLACE && at_b->reason != NEAP_REASON_VERSION) return false;

  /* In place means the very same bytes: an element is read before it is written only where both lie
   * alike. */
  if (at_a->offset != at_b->offset || at_a->bytes != at_b->bytes) return false;

  /* Inputs of the node in these bytes: all, and those that a list allows there. */
  int out = g->value[b].position, n_read = 0, n_listed = 0;
  for (int i = 0; i < node->n_in; i++) {
    int v = node->in[i];
    if (v == NEAP_NO_VALUE || !in_arena(c, v)) continue;
    if (!bytes_meet(c->plan->place[v].offset, c->plan->place[v].bytes, at_b->offset, at_b->bytes))
      continue;
    n_read++;
    if (has_pair(node->op->inplace, node->op->n_inplace, i, out) ||
        has_pair(node->enforced, node->n_enforced, i, out))
      n_listed++;
  }

  /* All of them must be allowed there. An op that may overwrite any input may do so where it reads
   * that one alone. */
  bool allowed = n_listed == n_read || (n_read == 1 && node->op->inplace_any_input && out == 0);
  return allowed && is_over_before(c, a, g->value[b].node, true);
}

/* Two values with common bytes: PLAN error unless one is over before the other is written, both
 * show the same content in the same place, or one replaces the other in place. */
static neap_status check_meeting(const check *c, int a, int b) {
  const neap_value *value = c->graph->value;
  const neap_place *at_a = &c->plan->place[a], *at_b = &c->plan->place[b];

  /* The three ways in which two values may have common bytes. */
  if (is_over_before(c, a, value[b].node, false) || is_over_before(c, b, value[a].node, false))
    return NEAP_OK;
  if (c->content[a] == c->content[b]) return NEAP_OK; /* views are checked to lie in one place */
  if (may_replace(c, a, b) || may_replace(c, b, a)) return NEAP_OK;
  return FAIL(c, a,
              "\"%s\" (steps %d to %d) and \"%s\" (steps %d to %d) share bytes from offset %zu "
              "while both may live",
              label(c, a), c->step[value[a].node] + 1, c->last_step[a] + 1, label(c, b),
              c->step[value[b].node] + 1, c->last_step[b] + 1,
              NEAP_MAX(at_a->offset, at_b->offset));
}

/* For qsort: by where they begin. */
static int compare_spans(const void *a, const void *b) {
  const span *x = a, *y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return (x->value > y->value) - (x->value < y->value);
}

/* All values of the arena, sorted by offset; how many. */
static int list_spans(const check *c, span *spans) {
  int n = 0;
  for (int v = 0; v < c->graph->n_value; v++)
    if (in_arena(c, v)) spans[n++] = (span){c->plan->place[v].offset, c->plan->place[v].bytes, v};
  qsort(spans, (size_t)n, sizeof *spans, compare_spans);
  return n;
}

/* dag: all values two by two. */
static neap_status check_meetings(check *c, span *spans) {
  /* Sorted by offset, a value is compared only with those that begin within its bytes: all that
   * meet it are compared with it once. */
  const int n = list_spans(c, spans);
  for (int i = 0; i < n; i++) {
    size_t end = spans[i].offset + spans[i].bytes;
    for (int j = i + 1; j < n; j++) {
      if (spans[j].offset >= end) break;
      NEAP_TRY(check_meeting(c, spans[i].value, spans[j].value));
    }
  }
  return NEAP_OK;
}

static neap_status scratch_meets(const check *c, int n, int v) {
  return FAIL(c, v, "scratch of op \"%s\" shares bytes with \"%s\", which may live while it runs",
              c->graph->node[n].name, label(c, v));
}

/* Whose turn it is, for the check in one order. */
typedef struct turns {
  live_spans live;
  int *at;           /* by value: its number among the spans; -1: it has none */
  int *first, *next; /* by step: the values that are read there last; the next one of the same */
} turns;

/* What node n makes meets nothing that is in use, but as check_meeting allows; then its scratch
 * meets nothing; what is read for the last time is in use no more. */
static neap_status take_turn(check *c, turns *t, int n) {
  const neap_node *node = &c->graph->node[n];
  for (int k = 0; k < node->n_out; k++) {
    const int v = node->out[k], at = v != NEAP_NO_VALUE ? t->at[v] : -1;
    if (at < 0) continue;
    const span *s = &t->live.span[at];
    int i = 0;
    while ((i = verify_live_next(&t->live, i, s->offset, s->bytes)) < t->live.n) {
      NEAP_TRY(check_meeting(c, t->live.span[i].value, v));
      i++;
    }
    verify_live_begin(&t->live, at);
  }

  const size_t scratch = c->plan->scratch_bytes[n];
  const int met = verify_live_next(&t->live, 0, c->plan->scratch_offset[n], scratch);
  if (scratch > 0 && met < t->live.n) return scratch_meets(c, n, t->live.span[met].value);
  for (int v = t->first[c->step[n]]; v >= 0; v = t->next[v]) verify_live_end(&t->live, t->at[v]);
  return NEAP_OK;
}

/* One order: two values that are never in use at one moment need not be compared, so the steps are
 * gone through with what is in use at each. However many values lie in the same bytes one after the
 * other, as in a chain, each is compared with those alone that it meets. */
static neap_status check_in_order(check *c, span *spans, int *first, int *next) {
  turns t = {.first = first, .next = next};
  const int n = list_spans(c, spans);
  NEAP_TRY(verify_live_init(&t.live, n, spans, &c->arena, c->error));
  t.at = neap_arena_alloc(&c->arena, ((size_t)c->graph->n_value + 1) * sizeof *t.at);
  if (t.at == NULL) return neap_fail_memory(c->error, (size_t)n * sizeof *t.at, "checking a plan");

  for (int v = 0; v < c->graph->n_value; v++) t.at[v] = -1;
  for (int i = 0; i < c->graph->n_node; i++) first[i] = -1;
  for (int i = 0; i < n; i++) {
    const int v = spans[i].value;
    t.at[v] = i;
    next[v] = first[c->last_step[v]];
    first[c->last_step[v]] = v;
  }
  for (int i = 0; i < c->graph->n_node; i++) NEAP_TRY(take_turn(c, &t, c->plan->order[i]));
  return NEAP_OK;
}

/* Whether v holds the same in every run: a parameter or state that the graph does not write, a
 * constant, or what a node makes that runs once for constants. `n_version`: by root, how many
 * values have it. */
static bool is_same_in_every_run(const neap_graph *g, const int *n_version, neap_value_id v) {
  const neap_value *value = &g->value[v];
  if (value->node >= 0) return value->region == NEAP_REGION_CONSTANT || g->node[value->node].once;
  if (value->region != NEAP_REGION_PARAMETER && value->region != NEAP_REGION_STATE) return false;
  return n_version[value->root] == 1;
}

/* A node that need not run while constants are valid gives the same in every run, and leaves
 * nothing in the arena that another node, or a user who knows its name, would look for: it may have
 * been overwritten since. */
static neap_status check_once(check *c, int *n_version) {
  const neap_graph *g = c->graph;
  for (int v = 0; v < g->n_value; v++) n_version[v] = 0;
  for (int v = 0; v < g->n_value; v++) n_version[g->value[v].root]++;
  for (int n = 0; n < g->n_node; n++) {
    const neap_node *node = &g->node[n];

    /* What it reads is as lasting as what it makes. */
    for (int i = 0; i < node->n_in; i++) {
      int v = node->in[i];
      if (v == NEAP_NO_VALUE) continue;
      if (node->once && !is_same_in_every_run(g, n_version, v))
        return FAIL(c, v,
                    "\"%s\" may change from run to run, and %s \"%s\" reads it for a constant",
                    label(c, v), node->op->name, node->name);
      const neap_value *in = &g->value[v];
      bool is_made_once = in->node >= 0 && g->node[in->node].once;
      if (!node->once && is_made_once && in->region == NEAP_REGION_ARENA)
        return FAIL(c, v, "%s \"%s\" reads \"%s\", which is made once for constants and not kept",
                    node->op->name, node->name, label(c, v));
    }
    if (!node->once) continue;
    /* What it makes is a constant, or on the way to one and without a name. */
    for (int k = 0; k < node->n_out; k++) {
      const neap_value *out = &g->value[node->out[k]];
      if (out->region == NEAP_REGION_CONSTANT) continue;
      if (out->region == NEAP_REGION_ARENA && !out->is_blob) continue;
      return FAIL(c, node->out[k],
                  "\"%s\" is made once for constants, and is asked for in every run",
                  label(c, node->out[k]));
    }
  }
  return NEAP_OK;
}

/* Constants keep their bytes from run to run: none may meet another or leave the region, and the
 * node that makes one must give the same in every run: no effects, and nothing read that is
 * transient or that this graph writes. */
static neap_status check_constants(check *c, span *spans, int *n_version) {
  /* First each one alone: who makes it, and whether that may run but once. */
  const neap_graph *g = c->graph;
  const neap_place *place = c->plan->place;
  NEAP_TRY(check_once(c, n_version));
  int n = 0;
  for (int v = 0; v < g->n_value; v++) {
    if (g->value[v].region != NEAP_REGION_CONSTANT) continue;
    const neap_node *node = g->value[v].node >= 0 ? &g->node[g->value[v].node] : NULL;
    if (node == NULL || !node->once || node->effects != 0 || node->n_sub > 0 ||
        place[v].storage != v)
      return FAIL(c, v, "\"%s\" is no constant: what makes it may differ from run to run",
                  label(c, v));
    spans[n++] = (span){place[v].offset, place[v].bytes, v};
  }
  qsort(spans, (size_t)n, sizeof *spans, compare_spans);

  /* In order of offset each ends before the next one begins, and the last within the region. */
  for (int i = 0; i < n; i++) {
    size_t end = spans[i].offset + place[spans[i].value].bytes;
    size_t limit = i + 1 < n ? spans[i + 1].offset : c->plan->region_bytes[NEAP_REGION_CONSTANT];
    if (end > limit)
      return FAIL(c, spans[i].value,
                  "constant \"%s\" ends at byte %zu, beyond the %zu that are its own",
                  label(c, spans[i].value), end, limit);
  }
  return NEAP_OK;
}

/* Scratch of node n against values that may live while it runs, and scratch of nodes that may run
 * at the same time. */
static neap_status check_scratch(check *c, int n) {
  const neap_plan *plan = c->plan;
  const neap_graph *g = c->graph;
  size_t at = plan->scratch_offset[n], bytes = plan->scratch_bytes[n];
  if (bytes == 0) return NEAP_OK;

  /* It lies in the arena, and in the bank of its node. */
  if (at % NEAP_ALIGN != 0 || at > plan->arena_bytes || bytes > plan->arena_bytes - at)
    return neap_fail(c->error, NEAP_PLAN,
                     "scratch of op \"%s\" lies at offset %zu with %zu bytes, in an arena of %zu",
                     g->node[n].name, at, bytes, plan->arena_bytes);
  if (!is_in_bank(c, g->node[n].bank, at, bytes))
    return neap_fail(c->error, NEAP_PLAN, "scratch of op \"%s\" does not lie in bank \"%s\"",
                     g->node[n].name, g->bank[g->node[n].bank].name);

  /* No value lives there while the node runs; in one order take_turn sees to that, and no other
   * node runs meanwhile. */
  if (c->above == NULL) return NEAP_OK;
  for (int v = 0; v < g->n_value; v++) {
    if (!in_arena(c, v) || !bytes_meet(at, bytes, plan->place[v].offset, plan->place[v].bytes))
      continue;
    if (is_over_before(c, v, n, false) || runs_before(c, n, g->value[v].node)) continue;
    return scratch_meets(c, n, v);
  }

  /* And no other node's scratch, unless a path orders the two. */
  for (int m = 0; m < n; m++) {
    if (plan->scratch_bytes[m] == 0) continue;
    if (!bytes_meet(at, bytes, plan->scratch_offset[m], plan->scratch_bytes[m])) continue;
    if (runs_before(c, m, n) || runs_before(c, n, m)) continue;
    return neap_fail(c->error, NEAP_PLAN,
                     "scratch of ops \"%s\" and \"%s\" shares bytes while both may run",
                     g->node[m].name, g->node[n].name);
  }
  return NEAP_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Subnets: each one's plan is safe, and the owner's scratch holds the largest of their arenas and
 * the op's own. */
static neap_status check_subs(check *c) {
  /* A subnet has an arena of its own, which is part of its owner's scratch: so its plan is checked
   * by itself, and then that the scratch is large enough. */
  const neap_plan *plan = c->plan;
  for (int n = 0; n < plan->n_node; n++) {
    const neap_node *node = &c->graph->node[n];
    NEAP_TRY(neap_plan_verify_loop(c->graph, node, c->error));
    size_t most = 0;
    for (int k = 0; k < node->n_sub; k++) {
      const neap_plan *sub = plan->sub[n] != NULL ? plan->sub[n][k] : NULL;
      if (sub == NULL)
        return neap_fail(c->error, NEAP_PLAN, "op \"%s\" has %d subnets, the plan fewer",
                         node->name, node->n_sub);
      if (sub->policy == NEAP_POLICY_POOL)
        return neap_fail(c->error, NEAP_PLAN,
                         "a subnet of op \"%s\" would take bytes from a pool while its owner runs",
                         node->name);
      NEAP_TRY(neap_plan_verify(sub, node->sub[k], c->error));
      NEAP_TRY(neap_plan_verify_kept(node, sub, node->sub[k], c->error));
      most = NEAP_MAX(most, neap_align(sub->arena_bytes));
    }

    /* Only one subnet of a node runs at a time, so room for the largest will do. */
    if (plan->scratch_bytes[n] != most + node->choice.scratch_bytes)
      return neap_fail(c->error, NEAP_PLAN,
                       "op \"%s\" needs %zu bytes of scratch, the plan gives %zu", node->name,
                       most + node->choice.scratch_bytes, plan->scratch_bytes[n]);
  }
  return NEAP_OK;
}

/* Lists first, then checks in an order in which each may rely on those before it: the order of
 * nodes, readers, paths, subnets, places one by one, places two by two, constants, scratch,
 * figures. */
static neap_status check_all(check *c) {
  const neap_graph *g = c->graph;
  size_t n = (size_t)g->n_node + 1, m = (size_t)g->n_value + 1;
  int **lists[] = {&c->step, &c->reader_at, &c->last_step, &c->content};
  for (int k = 0; k < NEAP_COUNT(lists); k++) {
    *lists[k] = neap_arena_alloc(&c->arena, NEAP_MAX(n, m + 1) * sizeof(int));
    if (*lists[k] == NULL) return neap_fail_memory(c->error, m * sizeof(int), "checking a plan");
  }
  span *spans = neap_arena_alloc(&c->arena, m * sizeof *spans);
  size_t *live = neap_arena_alloc(&c->arena, (n + 1) * sizeof *live);
  size_t *bytes = neap_arena_alloc(&c->arena, m * sizeof *bytes);
  int *from = neap_arena_alloc(&c->arena, NEAP_MAX(n, m) * sizeof *from);
  int *to = neap_arena_alloc(&c->arena, m * sizeof *to);
  if (spans == NULL || live == NULL || bytes == NULL || from == NULL || to == NULL)
    return neap_fail_memory(c->error, m * sizeof *spans, "checking a plan");

  /* What the graph says: from here on steps, readers and paths are known. */
  NEAP_TRY(check_order(c));
  NEAP_TRY(check_reads(c));
  NEAP_TRY(find_readers(c));
  NEAP_TRY(find_paths(c));

  /* What holds of the plan of each subnet, each bank and each value alone. */
  NEAP_TRY(check_subs(c));
  NEAP_TRY(check_banks(c));
  for (int v = 0; v < g->n_value; v++) {
    if (g->value[v].region == NEAP_REGION_ARENA && g->value[v].node < 0 && c->last_step[v] >= 0)
      return FAIL(c, v, "\"%s\" is read, but no op makes it", label(c, v));
    NEAP_TRY(check_place(c, v));
  }
  NEAP_TRY(check_constants(c, spans, from));

  /* With a script storages come and go, and move: it is played, in place of what follows. */
  if (c->plan->script.n_turn > 0) {
    if (c->plan->policy == NEAP_POLICY_POOL) return neap_plan_verify_script(c->plan, g, c->error);
    return neap_fail(c->error, NEAP_PLAN, "a script moves values, and policy %s does not",
                     neap_policy_name(c->plan->policy));
  }

  /* What holds of two at a time, and of all together. */
  find_contents(c);
  for (int i = 0; i < g->n_node; i++) NEAP_TRY(check_scratch(c, i));
  if (c->above == NULL)
    NEAP_TRY(check_in_order(c, spans, from, to));
  else
    NEAP_TRY(check_meetings(c, spans));
  return verify_figures(c, live, from, to, bytes);
}

neap_status neap_plan_verify(const neap_plan *plan, const neap_graph *graph, neap_error *error) {
  if (plan->n_node != graph->n_node || plan->n_value != graph->n_value)
    return neap_fail(error, NEAP_PLAN,
                     "the plan is for %d ops and %d values, the graph has %d and %d", plan->n_node,
                     plan->n_value, graph->n_node, graph->n_value);
  check c = {.plan = plan, .graph = graph, .error = error};
  neap_status status = check_all(&c);
  neap_arena_fini(&c.arena);
  return status;
}
