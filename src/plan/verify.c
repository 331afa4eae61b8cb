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
 * O(n_value^2) pairs at worst, met in order of offset; in `dag` n_edge * n_node / 64 words of
 * paths.
 */
#include "plan/plan_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct check {
  const neap_plan *plan;
  const neap_graph *graph;
  neap_error *error;
  int *step; /* by node */
  /* readers of value v: reader[reader_at[v] .. reader_at[v+1]), with repeats */
  int *reader_at, *reader;
  int *last_step;  /* by value: step of its last reader or definition */
  int *content;    /* by value: the value whose elements it shows */
  uint64_t *above; /* dag: bit matrix, above[n]: nodes with a path to n */
  size_t n_word;
  neap_arena arena;
} check;

/* For messages: a value may have no name. */
static const char *label(const check *c, int v) {
  return c->graph->value[v].name != NULL ? c->graph->value[v].name : "?";
}

/* A PLAN error about value v. */
#define FAIL(c, v, ...) fail_about(c, v, neap_fail((c)->error, NEAP_PLAN, __VA_ARGS__))
static neap_status fail_about(const check *c, int v, neap_status status) {
  if (c->error != NULL && c->error->blob[0] == '\0')
    snprintf(c->error->blob, sizeof c->error->blob, "%s", label(c, v));
  return status;
}

/* Whether the value has bytes in the arena that a node writes. */
static bool in_arena(const check *c, int v) {
  return c->graph->value[v].region == NEAP_REGION_ARENA && c->graph->value[v].bytes > 0 &&
         c->graph->value[v].node >= 0;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* By from, then to: the order that the graph keeps its edges in. The kind of edge does not
 * count. */
static int compare_edges(const void *a, const void *b) {
  const neap_edge *x = a, *y = b;
  return x->from != y->from ? (x->from < y->from ? -1 : 1) : (x->to > y->to) - (x->to < y->to);
}

/* The order is a permutation of the nodes in which every edge leads forward; the edges are sorted,
 * distinct, and lead from lower nodes to higher ones, which later passes rely on. Fills step. */
static neap_status check_order(check *c) {
  const neap_plan *plan = c->plan;
  for (int n = 0; n < plan->n_node; n++) c->step[n] = -1;
  for (int i = 0; i < plan->n_node; i++) {
    int n = plan->order[i];
    if (n < 0 || n >= plan->n_node || c->step[n] >= 0)
      return neap_fail(c->error, NEAP_PLAN, "step %d: the order is no permutation of the %d ops",
                       i + 1, plan->n_node);
    c->step[n] = i;
  }
  for (int e = 0; e < c->graph->n_edge; e++) {
    const neap_edge *edge = &c->graph->edge[e];
    if (edge->from < 0 || edge->from >= edge->to || edge->to >= plan->n_node ||
        (e > 0 && compare_edges(edge - 1, edge) >= 0))
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
  for (int n = 0; n < g->n_node; n++)
    for (int i = 0; i < g->node[n].n_in; i++)
      if (g->node[n].in[i] != NEAP_NO_VALUE) c->reader_at[g->node[n].in[i] + 1]++;
  for (int v = 0; v < g->n_value; v++) c->reader_at[v + 1] += c->reader_at[v];
  /* for now: where the next reader goes */
  for (int v = 0; v < g->n_value; v++) c->last_step[v] = c->reader_at[v];
  for (int n = 0; n < g->n_node; n++)
    for (int i = 0; i < g->node[n].n_in; i++)
      if (g->node[n].in[i] != NEAP_NO_VALUE) c->reader[c->last_step[g->node[n].in[i]]++] = n;
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
  for (int e = 0; e < c->graph->n_edge; e++) {
    size_t from = (size_t)c->graph->edge[e].from, to = (size_t)c->graph->edge[e].to;
    for (size_t k = 0; k < c->n_word; k++)
      c->above[to * c->n_word + k] |= c->above[from * c->n_word + k];
    c->above[to * c->n_word + from / 64] |= (uint64_t)1 << (from % 64);
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
  if (c->above == NULL && !but_n) return c->last_step[v] < c->step[n];
  if (!runs_before(c, c->graph->value[v].node, n)) return false;
  for (int k = c->reader_at[v]; k < c->reader_at[v + 1]; k++)
    if (!(but_n && c->reader[k] == n) && !runs_before(c, c->reader[k], n)) return false;
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
  const neap_node *node = &g->node[g->value[v].node];
  const neap_place *partner = &c->plan->place[place->partner];
  if (partner->storage != place->storage || partner->offset != place->offset ||
      partner->region != place->region ||
      (partner->bytes != place->bytes && place->reason != NEAP_REASON_VERSION))
    return FAIL(c, v, "\"%s\" should lie in the bytes of \"%s\", but lies elsewhere", label(c, v),
                label(c, place->partner));
  bool ok = false;
  if (place->reason == NEAP_REASON_ALIAS) ok = is_paired(c, v, node->op->alias, node->op->n_alias);
  if (place->reason == NEAP_REASON_VERSION)
    ok = is_paired(c, v, node->enforced, node->n_enforced) || place->partner == g->value[v].root;
  if (place->reason == NEAP_REASON_IN_PLACE) /* who else reads it: check_meeting */
    ok = node->n_sub == 0 && (is_paired(c, v, node->op->inplace, node->op->n_inplace) ||
                              (node->op->inplace_any_input && g->value[v].position == 0));
  return ok ? NEAP_OK
            : FAIL(c, v, "op \"%s\" allows no %s of \"%s\" and \"%s\"", node->name,
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
  const neap_node *node = &c->graph->node[value->node];
  int before = value->root; /* unless the node says which version it replaces */
  for (int k = 0; k < node->n_enforced; k++)
    if (node->enforced[k].out == value->position && node->enforced[k].in < node->n_in &&
        node->in[node->enforced[k].in] >= 0)
      before = node->in[node->enforced[k].in];
  for (int k = c->reader_at[before]; k < c->reader_at[before + 1]; k++)
    if (c->reader[k] != value->node && !runs_before(c, c->reader[k], value->node))
      return FAIL(
        c, v, "op \"%s\" writes a new version of \"%s\" while \"%s\" may still read the old one",
        node->name, label(c, before), c->graph->node[c->reader[k]].name);
  return NEAP_OK;
}

/* Whether [at, at + bytes) lies in the part of the arena that bank `b` has. */
static bool is_in_bank(const check *c, int b, size_t at, size_t bytes) {
  if (c->plan->n_bank == 0) return true;
  const neap_plan_bank *bank = &c->plan->bank[b];
  return at >= bank->begin_bytes && at <= bank->begin_bytes + bank->bytes &&
         bytes <= bank->begin_bytes + bank->bytes - at;
}

/* A value of the arena lies in its bank, and so does its storage. */
static neap_status check_bank(check *c, int v) {
  const neap_value *value = &c->graph->value[v];
  int root = c->plan->place[v].storage;
  if (!in_arena(c, v) || c->plan->n_bank == 0) return NEAP_OK;
  if (is_in_bank(c, value->bank, c->plan->place[v].offset, value->bytes) &&
      c->graph->value[root].bank == value->bank)
    return NEAP_OK;
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
  for (int n = 0; n < c->graph->n_node; n++) {
    const neap_node *node = &c->graph->node[n];
    for (int k = 0; k < node->n_in + node->n_out; k++) {
      int v = k < node->n_in ? node->in[k] : node->out[k - node->n_in];
      if (v == NEAP_NO_VALUE ||
          is_within_reach(c, node, v, k < node->n_in ? k : k - node->n_in, k >= node->n_in))
        continue;
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
  if (place->region != value->region || place->bytes != value->bytes)
    return FAIL(c, v, "\"%s\" has %zu bytes in %s, the plan %zu in %s", label(c, v), value->bytes,
                neap_region_name(value->region), place->bytes, neap_region_name(place->region));
  if (place->region == NEAP_REGION_ARENA && value->keep)
    return FAIL(c, v, "\"%s\" is kept, but lies in the arena", label(c, v));
  if (place->storage < 0 || place->storage >= c->graph->n_value ||
      c->plan->place[place->storage].storage != place->storage)
    return FAIL(c, v, "\"%s\" lies in no storage", label(c, v));
  if (place->offset != c->plan->place[place->storage].offset ||
      place->region != c->plan->place[place->storage].region)
    return FAIL(c, v, "\"%s\" lies apart from its storage \"%s\"", label(c, v),
                label(c, place->storage));
  if (place->first != first || place->last != c->last_step[v])
    return FAIL(c, v, "\"%s\" lives in steps %d to %d, the plan says %d to %d", label(c, v),
                first + 1, c->last_step[v] + 1, place->first + 1, place->last + 1);
  NEAP_TRY(check_bank(c, v));
  bool has_offset = value->region == NEAP_REGION_ARENA || value->region == NEAP_REGION_CONSTANT ||
                    value->region == NEAP_REGION_FRAME;
  if (place->offset % NEAP_ALIGN != 0 || (!has_offset && place->offset != 0) ||
      (in_arena(c, v) && (place->offset > c->plan->arena_bytes ||
                          place->bytes > c->plan->arena_bytes - place->offset)))
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
  int out = g->value[b].position, n_read = 0, n_listed = 0, n_read_a = 0;
  if (at_b->reason != NEAP_REASON_IN_PLACE && at_b->reason != NEAP_REASON_VERSION) return false;
  /* In place means the very same bytes: an element is read before it is written only where both lie
   * alike. */
  if (at_a->offset != at_b->offset || at_a->bytes != at_b->bytes) return false;
  for (int i = 0; i < node->n_in; i++) {
    int v = node->in[i];
    if (v == NEAP_NO_VALUE || !in_arena(c, v)) continue;
    if (!bytes_meet(c->plan->place[v].offset, c->plan->place[v].bytes, at_b->offset, at_b->bytes))
      continue;
    n_read++;
    n_read_a += v == a;
    n_listed += has_pair(node->op->inplace, node->op->n_inplace, i, out) ||
                has_pair(node->enforced, node->n_enforced, i, out);
  }
  /* Other inputs in the same bytes must be allowed there as well; n_listed counts them. */
  if (n_read_a == 0) return false;
  bool allowed = n_listed == n_read || (n_read == 1 && node->op->inplace_any_input && out == 0);
  return allowed && is_over_before(c, a, g->value[b].node, true);
}

/* Two values with common bytes: PLAN error unless one is over before the other is written, both
 * show the same content in the same place, or one replaces the other in place. */
static neap_status check_meeting(const check *c, int a, int b) {
  const neap_value *value = c->graph->value;
  const neap_place *at_a = &c->plan->place[a], *at_b = &c->plan->place[b];
  if (is_over_before(c, a, value[b].node, false) || is_over_before(c, b, value[a].node, false))
    return NEAP_OK;
  if (c->content[a] == c->content[b] && at_a->offset == at_b->offset && at_a->bytes == at_b->bytes)
    return NEAP_OK;
  if (may_replace(c, a, b) || may_replace(c, b, a)) return NEAP_OK;
  return FAIL(c, a,
              "\"%s\" (steps %d to %d) and \"%s\" (steps %d to %d) share bytes from offset %zu "
              "while both may live",
              label(c, a), c->step[value[a].node] + 1, c->last_step[a] + 1, label(c, b),
              c->step[value[b].node] + 1, c->last_step[b] + 1,
              NEAP_MAX(at_a->offset, at_b->offset));
}

/* A value by where it begins. */
typedef struct span {
  size_t offset;
  int value;
} span;

static int compare_spans(const void *a, const void *b) {
  const span *x = a, *y = b;
  return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1)
                                : (x->value > y->value) - (x->value < y->value);
}

/* Values in order of offset: those that meet value i's bytes and start no lower follow it
 * directly. */
static neap_status check_meetings(check *c, span *spans) {
  int n = 0;
  for (int v = 0; v < c->graph->n_value; v++)
    if (in_arena(c, v)) spans[n++] = (span){c->plan->place[v].offset, v};
  qsort(spans, (size_t)n, sizeof *spans, compare_spans);
  for (int i = 0; i < n; i++) {
    size_t end = spans[i].offset + c->plan->place[spans[i].value].bytes;
    for (int j = i + 1; j < n && spans[j].offset < end; j++)
      NEAP_TRY(check_meeting(c, spans[i].value, spans[j].value));
  }
  return NEAP_OK;
}

/* Whether v holds the same in every run: a parameter or state that the graph does not write, a
 * constant, or what a node makes that runs once for constants. */
static bool is_same_in_every_run(const neap_graph *g, neap_value_id v) {
  const neap_value *value = &g->value[v];
  if (value->node >= 0) return value->region == NEAP_REGION_CONSTANT || g->node[value->node].once;
  if (value->region != NEAP_REGION_PARAMETER && value->region != NEAP_REGION_STATE) return false;
  for (int w = 0; w < g->n_value; w++)
    if (w != v && g->value[w].root == value->root) return false;
  return true;
}

/* A node that need not run while constants are valid gives the same in every run, and leaves
 * nothing in the arena that another node, or a user who knows its name, would look for: it may have
 * been overwritten since. */
static neap_status check_once(check *c) {
  const neap_graph *g = c->graph;
  for (int n = 0; n < g->n_node; n++) {
    const neap_node *node = &g->node[n];
    for (int i = 0; i < node->n_in; i++) {
      if (node->in[i] == NEAP_NO_VALUE) continue;
      const neap_value *in = &g->value[node->in[i]];
      if (node->once && !is_same_in_every_run(g, node->in[i]))
        return FAIL(c, node->in[i],
                    "\"%s\" may change from run to run, and %s \"%s\" reads it for a constant",
                    label(c, node->in[i]), node->op->name, node->name);
      if (!node->once && in->node >= 0 && g->node[in->node].once && in->region == NEAP_REGION_ARENA)
        return FAIL(c, node->in[i],
                    "%s \"%s\" reads \"%s\", which is made once for constants and not kept",
                    node->op->name, node->name, label(c, node->in[i]));
    }
    for (int k = 0; node->once && k < node->n_out; k++)
      if (g->value[node->out[k]].region != NEAP_REGION_CONSTANT &&
          (g->value[node->out[k]].region != NEAP_REGION_ARENA || g->value[node->out[k]].is_blob))
        return FAIL(c, node->out[k],
                    "\"%s\" is made once for constants, and is asked for in every run",
                    label(c, node->out[k]));
  }
  return NEAP_OK;
}

/* Constants keep their bytes from run to run: none may meet another or leave the region, and the
 * node that makes one must give the same in every run: no effects, and nothing read that is
 * transient or that this graph writes. */
static neap_status check_constants(check *c, span *spans) {
  const neap_graph *g = c->graph;
  const neap_place *place = c->plan->place;
  int n = 0;
  NEAP_TRY(check_once(c));
  for (int v = 0; v < g->n_value; v++) {
    if (g->value[v].region != NEAP_REGION_CONSTANT) continue;
    const neap_node *node = g->value[v].node >= 0 ? &g->node[g->value[v].node] : NULL;
    if (node == NULL || !node->once || node->effects != 0 || node->n_sub > 0 ||
        place[v].storage != v)
      return FAIL(c, v, "\"%s\" is no constant: what makes it may differ from run to run",
                  label(c, v));
    spans[n++] = (span){place[v].offset, v};
  }
  qsort(spans, (size_t)n, sizeof *spans, compare_spans);
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
  if (at % NEAP_ALIGN != 0 || at > plan->arena_bytes || bytes > plan->arena_bytes - at)
    return neap_fail(c->error, NEAP_PLAN,
                     "scratch of op \"%s\" lies at offset %zu with %zu bytes, in an arena of %zu",
                     g->node[n].name, at, bytes, plan->arena_bytes);
  if (!is_in_bank(c, g->node[n].bank, at, bytes))
    return neap_fail(c->error, NEAP_PLAN, "scratch of op \"%s\" does not lie in bank \"%s\"",
                     g->node[n].name, g->bank[g->node[n].bank].name);
  for (int v = 0; v < g->n_value; v++) {
    if (!in_arena(c, v) || !bytes_meet(at, bytes, plan->place[v].offset, plan->place[v].bytes))
      continue;
    if (is_over_before(c, v, n, false) || runs_before(c, n, g->value[v].node)) continue;
    return FAIL(c, v, "scratch of op \"%s\" shares bytes with \"%s\", which may live while it runs",
                g->node[n].name, label(c, v));
  }
  for (int m = 0; m < n && c->above != NULL; m++)
    if (bytes_meet(at, bytes, plan->scratch_offset[m], plan->scratch_bytes[m]) &&
        plan->scratch_bytes[m] > 0 && !runs_before(c, m, n) && !runs_before(c, n, m))
      return neap_fail(c->error, NEAP_PLAN,
                       "scratch of ops \"%s\" and \"%s\" shares bytes while both may run",
                       g->node[m].name, g->node[n].name);
  return NEAP_OK;
}

/* ---- figures --------------------------------------------------------------------------------- */

/* The bound of each bank, counted again in `live`: the most of its bytes that live at once; *sum of
 * what the plan says they are. */
static neap_status sum_bounds(check *c, size_t *live, const int *from, const int *to,
                              const size_t *bytes, size_t *sum) {
  const neap_plan *plan = c->plan;
  const neap_graph *g = c->graph;
  *sum = 0;
  for (int b = 0; b < plan->n_bank; b++) {
    size_t most = 0, bound = plan->bank[b].lower_bound_bytes;
    memset(live, 0, ((size_t)plan->n_node + 2) * sizeof *live);
    for (int v = 0; v < g->n_value; v++)
      if (to[v] >= 0 && g->value[v].bank == b)
        live[from[v]] += bytes[v], live[to[v] + 1] -= bytes[v];
    for (int i = 0; i < plan->n_node; i++) {
      int n = plan->order[i];
      if (i > 0) live[i] += live[i - 1];
      most =
        NEAP_MAX(most, live[i] + (g->node[n].bank == b ? neap_align(plan->scratch_bytes[n]) : 0));
    }
    if (c->above == NULL ? bound != most : bound < most || bound > plan->bank[b].bytes)
      return neap_fail(
        c->error, NEAP_PLAN,
        "the most bytes live at once in bank \"%s\" are %zu, the plan's bound is %zu",
        g->bank[b].name, most, bound);
    *sum += bound;
  }
  return NEAP_OK;
}

/* Bytes live at each step, counted again: storages by their hull of steps, aligned, and scratch. */
static neap_status check_figures(check *c, size_t *live, int *from, int *to, size_t *bytes) {
  const neap_plan *plan = c->plan;
  const neap_graph *g = c->graph;
  size_t most = 0;
  for (int v = 0; v < g->n_value; v++) from[v] = plan->n_node, to[v] = -1;
  for (int v = 0; v < g->n_value; v++) {
    int root = plan->place[v].storage;
    if (!in_arena(c, v)) continue;
    from[root] = NEAP_MIN(from[root], c->step[g->value[v].node]);
    to[root] = NEAP_MAX(to[root], c->last_step[v]);
    bytes[root] = NEAP_MAX(bytes[root], neap_align(g->value[v].bytes));
  }
  for (int v = 0; v < g->n_value; v++)
    if (to[v] >= 0) live[from[v]] += bytes[v], live[to[v] + 1] -= bytes[v];
  for (int i = 0; i < plan->n_node; i++) {
    if (i > 0) live[i] += live[i - 1];
    size_t now = live[i] + neap_align(plan->scratch_bytes[plan->order[i]]);
    if (now != plan->live_bytes[i])
      return neap_fail(c->error, NEAP_PLAN, "%zu bytes are live at step %d, the plan says %zu", now,
                       i + 1, plan->live_bytes[i]);
    most = NEAP_MAX(most, now);
  }
  size_t bound = most; /* of the arena as a whole; with banks the sum of theirs */
  if (plan->n_bank > 0) NEAP_TRY(sum_bounds(c, live, from, to, bytes, &bound));
  /* dag: may come from a clique */
  if (c->above == NULL ? plan->lower_bound_bytes != bound : plan->lower_bound_bytes < bound)
    return neap_fail(c->error, NEAP_PLAN,
                     "the most bytes live at once are %zu, the plan's bound is %zu", bound,
                     plan->lower_bound_bytes);
  if (plan->n_node > 0 && (plan->peak_step < 0 || plan->peak_step >= plan->n_node ||
                           plan->live_bytes[plan->peak_step] != most))
    return neap_fail(c->error, NEAP_PLAN, "step %d is not the peak", plan->peak_step + 1);
  if (plan->arena_bytes % NEAP_ALIGN != 0 || plan->lower_bound_bytes % NEAP_ALIGN != 0 ||
      plan->arena_bytes < plan->lower_bound_bytes ||
      plan->proved != (plan->arena_bytes == plan->lower_bound_bytes))
    return neap_fail(c->error, NEAP_PLAN, "an arena of %zu bytes with a bound of %zu is %sproved",
                     plan->arena_bytes, plan->lower_bound_bytes, plan->proved ? "not " : "");
  return NEAP_OK;
}

/* The items of a loop's frames: aligned, apart, in the record, those of states first. */
static neap_status check_items(check *c, const neap_node *node) {
  const neap_loop *l = node->loop;
  for (int i = 0; i < l->n_item; i++) {
    const neap_frame_item *a = &l->item[i];
    if (a->offset % NEAP_ALIGN != 0 || a->offset > l->record_bytes ||
        a->bytes > l->record_bytes - a->offset)
      return neap_fail(c->error, NEAP_PLAN,
                       "item %d of the frames of \"%s\" lies outside the record", i, node->name);
    for (int j = 0; j < i; j++)
      if (bytes_meet(a->offset, a->bytes, l->item[j].offset, l->item[j].bytes))
        return neap_fail(c->error, NEAP_PLAN, "items %d and %d of the frames of \"%s\" share bytes",
                         j, i, node->name);
  }
  for (int s = 0; s < l->n_state; s++) {
    int item = l->state[s].item;
    if (item < 0) continue;
    if (l->is_backward || item >= l->n_item || l->item[item].bytes < l->state[s].bytes ||
        l->item[item].offset + l->item[item].bytes > l->state_bytes)
      return neap_fail(c->error, NEAP_PLAN,
                       "state %d of \"%s\" does not fit its item of the frames", s, node->name);
  }
  if (l->frames < 0) return NEAP_OK;
  int v = l->frames < node->n_in ? node->in[l->frames] : node->out[l->frames - node->n_in];
  size_t records = l->grows ? 0 : (size_t)l->max * l->record_bytes + l->state_bytes;
  if (v < 0 || c->graph->value[v].bytes < NEAP_ALIGN + records)
    return neap_fail(c->error, NEAP_PLAN, "the frames of \"%s\" do not hold %lld iterations",
                     node->name, (long long)l->max);
  return NEAP_OK;
}

/* Each kept value of a body lies at its item, and is as large as the other half of the loop takes
 * it to be. */
static neap_status check_kept(check *c, const neap_node *node, const neap_plan *plan,
                              const neap_graph *body) {
  for (int v = 0; v < body->n_value; v++) {
    const neap_value *value = &body->value[v];
    if (value->region != NEAP_REGION_FRAME) continue;
    const neap_frame_item *item =
      node->loop != NULL && value->argument >= 0 && value->argument < node->loop->n_item
        ? &node->loop->item[value->argument]
        : NULL;
    if (item == NULL || plan->place[v].offset != item->offset ||
        neap_align(value->bytes) != item->bytes)
      return neap_fail(c->error, NEAP_PLAN,
                       "\"%s\" does not lie at its item of the frames of \"%s\"", value->name,
                       node->name);
    for (int w = 0; w < v; w++)
      if (body->value[w].region == NEAP_REGION_FRAME && body->value[w].argument == value->argument)
        return neap_fail(c->error, NEAP_PLAN,
                         "\"%s\" and \"%s\" lie at one item of the frames of \"%s\"",
                         body->value[w].name, value->name, node->name);
  }
  return NEAP_OK;
}

/* What a backward loop reads at an item, the forward whose frames it has must have put there. */
static neap_status check_halves(check *c, const neap_node *back) {
  const neap_loop *l = back->loop;
  int frames = back->in[l->frames];
  const neap_node *node = frames >= 0 && c->graph->value[frames].node >= 0
                            ? &c->graph->node[c->graph->value[frames].node]
                            : NULL;
  /* in a body of an outer loop the frames may have been kept */
  const neap_loop *f = node != NULL ? node->loop : NULL;
  if (f == NULL) return NEAP_OK;
  bool equal = f->n_item == l->n_item && f->record_bytes == l->record_bytes && f->max == l->max &&
               f->grows == l->grows;
  for (int i = 0; equal && i < f->n_item; i++)
    equal = f->item[i].offset == l->item[i].offset && f->item[i].bytes == l->item[i].bytes;
  return equal ? NEAP_OK
               : neap_fail(c->error, NEAP_PLAN,
                           "the two halves of \"%s\" see its frames differently", node->name);
}

/* States' buffers and the condition's flag, counted again. */
static size_t own_bytes(const neap_loop *l) {
  size_t bytes = l->has_condition ? NEAP_ALIGN : 0;
  for (int s = 0; s < l->n_state; s++) {
    if (l->state[s].item >= 0) continue;
    bytes += neap_align(l->state[s].bytes);
    if (l->state[s].final < 0) bytes += neap_align(l->state[s].bytes);
  }
  return bytes;
}

/* The loop's own bytes, its frames, and, of a backward loop, that both halves agree about them. */
static neap_status check_loop(check *c, const neap_node *node) {
  if (node->loop == NULL) return NEAP_OK;
  if (node->choice.scratch_bytes != own_bytes(node->loop))
    return neap_fail(c->error, NEAP_PLAN, "the states of \"%s\" need %zu bytes, the plan gives %zu",
                     node->name, own_bytes(node->loop), node->choice.scratch_bytes);
  NEAP_TRY(check_items(c, node));
  return node->loop->is_backward ? check_halves(c, node) : NEAP_OK;
}

/* Frames: every subnet's plan is safe, and the owner's scratch holds the largest and the op's
 * own. */
static neap_status check_subs(check *c) {
  const neap_plan *plan = c->plan;
  for (int n = 0; n < plan->n_node; n++) {
    const neap_node *node = &c->graph->node[n];
    size_t frame = 0;
    NEAP_TRY(check_loop(c, node));
    for (int k = 0; k < node->n_sub; k++) {
      const neap_plan *sub = plan->sub[n] != NULL ? plan->sub[n][k] : NULL;
      if (sub == NULL)
        return neap_fail(c->error, NEAP_PLAN, "op \"%s\" has %d subnets, the plan fewer",
                         node->name, node->n_sub);
      if (sub->policy == NEAP_POLICY_POOL)
        return neap_fail(c->error, NEAP_PLAN,
                         "a subnet of op \"%s\" would take bytes from a pool while its frame runs",
                         node->name);
      NEAP_TRY(neap_plan_verify(sub, node->sub[k], c->error));
      NEAP_TRY(check_kept(c, node, sub, node->sub[k]));
      frame = NEAP_MAX(frame, neap_align(sub->arena_bytes));
    }
    if (plan->scratch_bytes[n] != frame + node->choice.scratch_bytes)
      return neap_fail(c->error, NEAP_PLAN,
                       "op \"%s\" needs %zu bytes of scratch, the plan gives %zu", node->name,
                       frame + node->choice.scratch_bytes, plan->scratch_bytes[n]);
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
  for (int k = 0; k < NEAP_COUNT(lists); k++)
    if ((*lists[k] = neap_arena_alloc(&c->arena, NEAP_MAX(n, m + 1) * sizeof(int))) == NULL)
      return neap_fail_memory(c->error, m * sizeof(int), "checking a plan");
  span *spans = neap_arena_alloc(&c->arena, m * sizeof *spans);
  size_t *live = neap_arena_alloc(&c->arena, (n + 1) * sizeof *live),
         *bytes = neap_arena_alloc(&c->arena, m * sizeof *bytes);
  int *from = neap_arena_alloc(&c->arena, m * sizeof *from),
      *to = neap_arena_alloc(&c->arena, m * sizeof *to);
  if (spans == NULL || live == NULL || bytes == NULL || from == NULL || to == NULL)
    return neap_fail_memory(c->error, m * sizeof *spans, "checking a plan");
  NEAP_TRY(check_order(c));
  NEAP_TRY(check_reads(c));
  NEAP_TRY(find_readers(c));
  NEAP_TRY(find_paths(c));
  NEAP_TRY(check_subs(c));
  NEAP_TRY(check_banks(c));
  for (int v = 0; v < g->n_value; v++) {
    if (g->value[v].region == NEAP_REGION_ARENA && g->value[v].node < 0 && c->last_step[v] >= 0)
      return FAIL(c, v, "\"%s\" is read, but no op makes it", label(c, v));
    NEAP_TRY(check_place(c, v));
  }
  NEAP_TRY(check_constants(c, spans));
  if (c->plan->script.n_turn > 0) { /* storages come and go, and move */
    if (c->plan->policy == NEAP_POLICY_POOL) return neap_plan_verify_script(c->plan, g, c->error);
    return neap_fail(c->error, NEAP_PLAN, "a script moves values, and policy %s does not",
                     neap_policy_name(c->plan->policy));
  }
  find_contents(c);
  NEAP_TRY(check_meetings(c, spans));
  for (int i = 0; i < g->n_node; i++) NEAP_TRY(check_scratch(c, i));
  return check_figures(c, live, from, to, bytes);
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
