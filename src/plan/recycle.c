/* recycle.c: what the planner knows of a net's blob names: when each lives, what may overlap it, in which orders the ops may
 * run. memonger (lua/neap/memonger.lua) chooses and renames by it.
 *
 * The net's graph is prepared so that node n is op n, and one schedule of it under policy `name` gives the lives of all values;
 * a name lives from the first write of any version to the last read of any. A net whose Gradient op stands as it is has more
 * nodes than ops: its names live as long as the backward pass reads them, and lives count nodes. In `dag`, name A is over before B begins when a
 * path leads from all that touches A to all that writes B.
 * INVARIANT: names that `conflict` keeps apart may not become one; any other two of one class may.
 */
#include "plan/plan_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What neap_recycle_open needs while it works; all but `r` is given back by finish_open. `blob_of` lies in r's arena. */
typedef struct opener {
  neap_recycle *r;
  neap_work work;
  neap_schedule schedule;
  neap_map index; /* interned name -> blob */
  int *blob_of;   /* by value; -1: nameless */
} opener;

static neap_status no_memory(neap_error *error) { return neap_fail_memory(error, 4096, "the live ranges of a net"); }

/* ---- what may not be shared ----------------------------------------------------------------------------------------------- */

/* Why a blob keeps its name and bytes, as far as the net's definition says; NULL: nothing there against it. Static text. Names
 * are interned: equal ones are one pointer. */
static const char *why_fixed(const neap_net *net, const neap_net_blob *blob) {
  if (blob->type.dtype != NEAP_DTYPE_NONE || blob->role == NEAP_ROLE_INPUT) return "is declared";
  if (blob->keep) return "is kept";
  if (blob->role == NEAP_ROLE_OUTPUT) return "is an output";
  if (blob->role == NEAP_ROLE_GRADIENT || blob->role == NEAP_ROLE_STATE) return "stays from run to run";
  for (int k = 0; k < neap_net_n_outputs(net); k++)
    if (neap_net_output_at(net, k) == blob->name) return "is an output";
  return NULL;
}

/* Whether the op reads or writes the name. */
static bool is_operand(const neap_net_op *op, const char *name) {
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i] == name) return true;
  for (int k = 0; k < op->n_out; k++)
    if (op->out[k] == name) return true;
  return false;
}

/* Names that a subnet of `owner` has to itself, parameters and results that stand for other operands among them: a renaming
 * from outside would reach them too. */
static void fix_inner_names(opener *o, const neap_net_op *owner, const neap_net *sub) {
  for (int i = 0; i < neap_net_n_blobs(sub); i++) {
    const char *name = neap_net_blob_at(sub, i)->name;
    int b = neap_map_get(&o->index, name, -1);
    bool given = false;
    for (int k = 0; k < neap_net_n_outputs(sub); k++) given = given || neap_net_output_at(sub, k) == name;
    for (int k = 0; k < neap_net_n_sub_inputs(sub); k++) given = given || neap_net_sub_input_at(sub, k) == name;
    if (b >= 0 && !(given && is_operand(owner, name)) && o->r->blob[b].fixed == NULL)
      o->r->blob[b].fixed = "is a name inside a subnet too";
  }
  for (int i = 0; i < neap_net_n_ops(sub); i++) {
    const neap_net_op *op = neap_net_op_at(sub, i);
    for (int a = 0; a < neap_op_n_attrs(op->op); a++)
      if (op->op->attrs[a].type == NEAP_ATTR_NET && op->attrs[a].net != NULL) fix_inner_names(o, op, op->attrs[a].net);
  }
}

/* One record per name of the net, with no life yet, and the index of names; then what keeps a name fixed. Fails with MEMORY. */
static neap_status list_blobs(opener *o, neap_error *error) {
  neap_recycle *r = o->r;
  r->n_blob = neap_net_n_blobs(r->net);
  r->blob = neap_arena_alloc(&r->arena, ((size_t)r->n_blob + 1) * sizeof *r->blob);
  if (r->blob == NULL) return no_memory(error);
  for (int i = 0; i < r->n_blob; i++) {
    const neap_net_blob *blob = neap_net_blob_at(r->net, i);
    r->blob[i] = (neap_recycle_blob){.name = blob->name,
                                     .gradient_of = blob->gradient_of,
                                     .role = blob->role,
                                     .type = blob->type,
                                     .first = -1,
                                     .last = -1,
                                     .is_one_device = true,
                                     .fixed = why_fixed(r->net, blob)};
    if (!neap_map_set(&o->index, blob->name, i)) return no_memory(error);
  }
  for (int i = 0; i < r->n_op; i++) {
    const neap_net_op *op = neap_net_op_at(r->net, i);
    for (int a = 0; a < neap_op_n_attrs(op->op); a++)
      if (op->op->attrs[a].type == NEAP_ATTR_NET && op->attrs[a].net != NULL) fix_inner_names(o, op, op->attrs[a].net);
  }
  return NEAP_OK;
}

/* ---- lives ------------------------------------------------------------------------------------------------------------------- */

/* The definition order under policy `name`, without scratch, which no name has. `dag` adds reachability. */
static neap_status schedule_net(opener *o, bool dag, neap_error *error) {
  neap_recycle *r = o->r;
  size_t *scratch_bytes = neap_arena_alloc(&r->arena, ((size_t)r->graph->n_node + 1) * sizeof *scratch_bytes);
  if (scratch_bytes == NULL) return no_memory(error);
  o->work = (neap_work){.graph = r->graph,
                        .options = {.policy = NEAP_POLICY_NAME, .executor = dag ? NEAP_EXECUTOR_DAG : NEAP_EXECUTOR_SIMPLE},
                        .scratch_bytes = scratch_bytes};
  NEAP_TRY(neap_graph_uses(r->graph, &o->work.uses, error));
  if (dag) NEAP_TRY(neap_reach_new(r->graph, &o->work.reach, &o->work.n_word, error));
  return neap_schedule_init(&o->schedule, &o->work, NULL, error);
}

/* The net's graph, owned by the recycle, with all ops left as they are written. INTERNAL error when nodes should be ops, and are
 * not as many. */
static neap_status prepare_net(opener *o, const neap_graph_options *given, neap_error *error) {
  neap_recycle *r = o->r;
  neap_graph_options options = given != NULL ? *given : (neap_graph_options){0};
  options.by_op = r->by_op;
  options.no_rewrite = true;
  NEAP_TRY(neap_graph_prepare(r->net, &options, &r->graph, error));
  if (r->by_op && r->graph->n_node != r->n_op)
    return neap_fail(error, NEAP_INTERNAL, "net \"%s\" has %d ops, its graph %d nodes", neap_net_name(r->net), r->n_op,
                     r->graph->n_node);
  return NEAP_OK;
}

/* One version of a name adds to what is known of it: its life, its largest type, whether it stays on one device. */
static void add_version(opener *o, int v) {
  const neap_value *value = &o->r->graph->value[v];
  const neap_schedule *s = &o->schedule;
  neap_recycle_blob *blob = &o->r->blob[o->blob_of[v]];
  const char *device = value->node >= 0 ? o->r->graph->node[value->node].device : "";
  blob->is_one_device = blob->is_one_device && (blob->device == NULL || blob->device == device);
  blob->device = device;
  if (value->node >= 0) blob->first = blob->first < 0 ? s->first[v] : NEAP_MIN(blob->first, s->first[v]);
  blob->last = NEAP_MAX(blob->last, s->last[v]);
  if (blob->bytes <= neap_align(value->bytes)) blob->bytes = neap_align(value->bytes), blob->type = value->type;
  if (value->is_stash && blob->fixed == NULL) blob->fixed = "is a stash, whose size its kernel chooses";
  if (value->region != NEAP_REGION_ARENA && blob->fixed == NULL) blob->fixed = "stays from run to run";
}

/* Marks the names on either side of a view op. */
static void mark_views(opener *o) {
  neap_recycle *r = o->r;
  for (int n = 0; n < r->graph->n_node; n++) {
    const neap_node *node = &r->graph->node[n];
    for (int k = 0; k < node->op->n_alias; k++) {
      neap_pair pair = node->op->alias[k];
      int in = pair.in < node->n_in ? node->in[pair.in] : -1, out = pair.out < node->n_out ? node->out[pair.out] : -1;
      if (in >= 0 && o->blob_of[in] >= 0) r->blob[o->blob_of[in]].is_view = true;
      if (out >= 0 && o->blob_of[out] >= 0) r->blob[o->blob_of[out]].is_view = true;
    }
  }
}

/* From values to names, and the figures of the net: bytes live by op, the most of them, and the sum without any sharing. */
static neap_status find_lives(opener *o, neap_error *error) {
  neap_recycle *r = o->r;
  o->blob_of = neap_arena_alloc(&r->arena, ((size_t)r->graph->n_value + 1) * sizeof *o->blob_of);
  r->live_bytes = neap_arena_alloc(&r->arena, ((size_t)r->n_op + 1) * sizeof *r->live_bytes);
  if (o->blob_of == NULL || r->live_bytes == NULL) return no_memory(error);
  if (r->by_op) neap_copy_bytes(r->live_bytes, o->schedule.live_bytes, (size_t)r->n_op * sizeof *r->live_bytes);
  for (int v = 0; v < r->graph->n_value; v++) {
    o->blob_of[v] = neap_map_get(&o->index, r->graph->value[v].name, -1);
    if (!r->graph->value[v].is_blob) o->blob_of[v] = -1;
    if (o->blob_of[v] >= 0) add_version(o, v);
  }
  mark_views(o);
  r->lower_bound_bytes = o->schedule.peak_bytes;
  for (int b = 0; b < r->n_blob; b++)
    if (r->blob[b].fixed == NULL) r->baseline_bytes += r->blob[b].bytes;
  return NEAP_OK;
}

/* ---- conflicts ------------------------------------------------------------------------------------------------------------- */

/* Narrows a row `after` to what `node` reaches too. In find_conflicts_dag, after[b]: nodes that every writer and reader of name b
 * reaches; writers[b]: its writers. Rows of n_word words. */
static void note_node(const opener *o, uint64_t *after, int node) {
  if (node < 0) return;
  const uint64_t *reach = o->work.reach + (size_t)node * (size_t)o->work.n_word;
  for (int k = 0; k < o->work.n_word; k++) after[k] &= reach[k];
}

static bool is_subset(const uint64_t *a, const uint64_t *b, int n_word) {
  for (int k = 0; k < n_word; k++)
    if ((a[k] & ~b[k]) != 0) return false;
  return true;
}

/* Two names conflict unless all writers of the one come after all that touches the other. O(blobs^2 * nodes / 64) words. */
static neap_status find_conflicts_dag(opener *o, neap_error *error) {
  neap_recycle *r = o->r;
  size_t words = (size_t)o->work.n_word, rows = (size_t)r->n_blob;
  uint64_t *after = neap_alloc((rows * words + 1) * sizeof *after),
           *writers = neap_alloc_zeroed((rows * words + 1) * sizeof *writers);
  neap_status status = after == NULL || writers == NULL ? no_memory(error) : NEAP_OK;
  if (status == NEAP_OK) {
    memset(after, 0xff, rows * words * sizeof *after);
    for (int v = 0; v < r->graph->n_value; v++) {
      int b = o->blob_of[v], node = r->graph->value[v].node;
      if (b < 0) continue;
      if (node >= 0) neap_bit_set(writers + (size_t)b * words, node);
      note_node(o, after + (size_t)b * words, node);
      for (int k = o->work.uses.first[v]; k < o->work.uses.first[v + 1]; k++)
        note_node(o, after + (size_t)b * words, o->work.uses.list[k]);
    }
    for (int a = 0; a < r->n_blob; a++)
      for (int b = 0; b < a; b++) {
        const uint64_t *wa = writers + (size_t)a * words, *wb = writers + (size_t)b * words;
        if (is_subset(wb, after + (size_t)a * words, (int)words) || is_subset(wa, after + (size_t)b * words, (int)words))
          continue;
        neap_bit_set(r->conflict + (size_t)a * (size_t)r->n_word, b);
        neap_bit_set(r->conflict + (size_t)b * (size_t)r->n_word, a);
      }
  }
  neap_free(after);
  neap_free(writers);
  return status;
}

/* Fills the matrix; on a line, names conflict when their lives overlap. */
static neap_status find_conflicts(opener *o, neap_error *error) {
  neap_recycle *r = o->r;
  r->n_word = (r->n_blob + 63) / 64;
  r->conflict = neap_arena_alloc(&r->arena, ((size_t)r->n_blob * (size_t)r->n_word + 1) * sizeof *r->conflict);
  if (r->conflict == NULL) return no_memory(error);
  if (o->work.reach != NULL) return find_conflicts_dag(o, error);
  for (int a = 0; a < r->n_blob; a++)
    for (int b = 0; b < r->n_blob; b++)
      if (a != b && r->blob[a].first <= r->blob[b].last && r->blob[b].first <= r->blob[a].last)
        neap_bit_set(r->conflict + (size_t)a * (size_t)r->n_word, b);
  return NEAP_OK;
}

/* From the graph on. Closes the recycle when something fails, now or before. */
static neap_status finish_open(opener *o, bool dag, neap_status status, neap_error *error) {
  if (status == NEAP_OK) status = schedule_net(o, dag, error);
  if (status == NEAP_OK) status = find_lives(o, error);
  if (status == NEAP_OK) status = find_conflicts(o, error);
  neap_schedule_fini(&o->schedule);
  neap_uses_fini(&o->work.uses);
  neap_free(o->work.reach);
  neap_map_fini(&o->index);
  if (status != NEAP_OK) neap_recycle_close(o->r);
  return status;
}

neap_status neap_recycle_open(neap_recycle *recycle, const neap_net *net, const neap_graph_options *options, bool dag,
                              neap_error *error) {
  *recycle = (neap_recycle){.net = net, .n_op = neap_net_n_ops(net), .by_op = true};
  opener o = {.r = recycle};
  for (int i = 0; i < recycle->n_op; i++)
    if ((neap_net_op_at(net, i)->op->effects & NEAP_EFFECT_PSEUDO) != 0) recycle->by_op = false;
  neap_status status = list_blobs(&o, error);
  if (status == NEAP_OK) status = prepare_net(&o, options, error);
  return finish_open(&o, dag, status, error);
}

/* What a subnet takes is static, and so are its results, which lie in its owner's operands. */
neap_status neap_recycle_open_sub(neap_recycle *recycle, const neap_net *sub, neap_graph *graph, neap_error *error) {
  *recycle = (neap_recycle){.net = sub, .n_op = neap_net_n_ops(sub), .graph = graph, .is_sub = true};
  opener o = {.r = recycle};
  neap_status status = list_blobs(&o, error);
  for (int k = 0; k < neap_net_n_sub_inputs(sub) && status == NEAP_OK; k++) {
    int b = neap_map_get(&o.index, neap_net_sub_input_at(sub, k), -1);
    if (b >= 0 && recycle->blob[b].fixed == NULL) recycle->blob[b].fixed = "comes from around the subnet";
  }
  return finish_open(&o, false, status, error);
}

void neap_recycle_close(neap_recycle *recycle) {
  if (!recycle->is_sub) neap_graph_free(recycle->graph);
  neap_arena_fini(&recycle->arena);
  *recycle = (neap_recycle){0};
}

/* What counts ops needs a graph whose nodes are ops. */
static neap_status must_be_by_op(const neap_recycle *r, const char *what, neap_error *error) {
  if (r->by_op) return NEAP_OK;
  neap_fail(error, NEAP_ARGUMENT, "net \"%s\" has a Gradient or Do op, whose work is not written out: it has no %s by op",
            neap_net_name(r->net), what);
  neap_hint(error, "net:expand() writes it out, unless the net has subnets");
  return NEAP_ARGUMENT;
}

/* ---- orders -------------------------------------------------------------------------------------------------------------------- */

static int compare_edges(const void *a, const void *b) {
  const neap_edge *x = a, *y = b;
  return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : (x->to > y->to) - (x->to < y->to);
}

/* Edges of a net whose names are kept; grows, freed by neap_recycle_sort. */
typedef struct edges {
  neap_edge *list;
  int n, cap;
} edges;

/* An edge unless it says nothing: from before the net, or from a node to itself. False: memory is refused. */
static bool add_edge(edges *e, int from, int to) {
  if (from < 0 || from == to) return true;
  if (!neap_list_grow(&e->list, &e->cap, e->n + 1, sizeof *e->list)) return false;
  e->list[e->n++] = (neap_edge){from, to, NEAP_EDGE_ORDER};
  return true;
}

/* The graph's edges, and those that names bring: a name is written again only when its last version has been read. Sorted, each
 * once. False: memory is refused. */
static bool collect_edges(const neap_graph *graph, const neap_uses *uses, edges *e) {
  neap_map last = {0}; /* name -> its newest value so far */
  bool ok = true;
  for (int k = 0; ok && k < graph->n_edge; k++) ok = add_edge(e, graph->edge[k].from, graph->edge[k].to);
  for (int n = 0; ok && n < graph->n_node; n++)
    for (int k = 0; ok && k < graph->node[n].n_out; k++) {
      const neap_value *value = &graph->value[graph->node[n].out[k]];
      if (!value->is_blob) continue;
      int before = neap_map_get(&last, value->name, -1);
      if (before >= 0) ok = add_edge(e, graph->value[before].node, n);
      for (int u = before >= 0 ? uses->first[before] : 0; ok && before >= 0 && u < uses->first[before + 1]; u++)
        if (uses->list[u] < n) ok = add_edge(e, uses->list[u], n);
      ok = ok && neap_map_set(&last, value->name, graph->node[n].out[k]);
    }
  neap_map_fini(&last);
  if (ok && e->n > 0) qsort(e->list, (size_t)e->n, sizeof *e->list, compare_edges);
  int kept = 0;
  for (int k = 0; ok && k < e->n; k++)
    if (kept == 0 || compare_edges(&e->list[kept - 1], &e->list[k]) != 0) e->list[kept++] = e->list[k];
  e->n = kept;
  return ok;
}

/* Producers of each node, those on the longer chain first; and how long the chain to each node is. */
typedef struct chains {
  int *depth, *first, *list, *stack, *at;
  bool *done;
} chains;

/* The longer chain first, ties by definition. */
static bool is_before(const chains *c, int a, int b) { return c->depth[a] != c->depth[b] ? c->depth[a] > c->depth[b] : a < b; }

/* Depths and lists of producers, by counting sort over the edges. Lists lie in `arena`. False: memory is refused. */
static bool find_chains(chains *c, const neap_graph *g, neap_arena *arena) {
  size_t n = (size_t)g->n_node + 2;
  int **lists[] = {&c->depth, &c->first, &c->stack, &c->at};
  for (int k = 0; k < NEAP_COUNT(lists); k++)
    if ((*lists[k] = neap_arena_alloc(arena, n * sizeof(int))) == NULL) return false;
  c->list = neap_arena_alloc(arena, ((size_t)g->n_edge + 1) * sizeof(int));
  c->done = neap_arena_alloc(arena, n);
  if (c->list == NULL || c->done == NULL) return false;
  for (int e = 0; e < g->n_edge; e++) { /* sorted by `from`, and edges lead upwards: depths are final when they are read */
    c->depth[g->edge[e].to] = NEAP_MAX(c->depth[g->edge[e].to], c->depth[g->edge[e].from] + 1);
    c->first[g->edge[e].to + 1]++;
  }
  for (int k = 0; k < g->n_node; k++) c->first[k + 1] += c->first[k];
  for (int k = 0; k < g->n_node; k++) c->at[k] = c->first[k];
  for (int e = 0; e < g->n_edge; e++) { /* insertion: producers are few */
    int to = g->edge[e].to, p = c->at[to]++;
    for (; p > c->first[to] && is_before(c, g->edge[e].from, c->list[p - 1]); p--) c->list[p] = c->list[p - 1];
    c->list[p] = g->edge[e].from;
  }
  return true;
}

/* From each sink, the deepest first, back to its sources, and each node after its producers. A stack of its own: chains are
 * as long as nets are deep. */
static void walk_chains(chains *c, const neap_graph *g, int *order) {
  int n = 0;
  for (int k = 0; k < g->n_node; k++) c->at[k] = c->first[k];
  while (n < g->n_node) {
    int sink = -1;
    for (int k = 0; k < g->n_node; k++)
      if (!c->done[k] && (sink < 0 || is_before(c, k, sink))) sink = k;
    int top = 0;
    c->stack[top++] = sink;
    while (top > 0) {
      int node = c->stack[top - 1];
      while (c->at[node] < c->first[node + 1] && c->done[c->list[c->at[node]]]) c->at[node]++;
      if (c->at[node] < c->first[node + 1]) {
        c->stack[top++] = c->list[c->at[node]];
        continue;
      }
      c->done[node] = true;
      order[n++] = node;
      top--;
    }
  }
}

/* Into `order`: the list scheduler's order, or the definition order where that has no higher peak. */
static neap_status least_memory(const neap_graph *g, const neap_recycle *r, const neap_uses *uses, int *order,
                                neap_error *error) {
  size_t *scratch_bytes = neap_alloc_zeroed(((size_t)r->n_op + 1) * sizeof *scratch_bytes);
  if (scratch_bytes == NULL) return no_memory(error);
  neap_work work = {.graph = g, .options = {.policy = NEAP_POLICY_NAME}, .scratch_bytes = scratch_bytes, .uses = *uses};
  neap_schedule plain = {0}, other = {0};
  int *found = NULL;
  neap_status status = neap_schedule_init(&plain, &work, NULL, error);
  if (status == NEAP_OK) status = neap_order_least_peak(&work, &found, error);
  if (status == NEAP_OK) status = neap_schedule_init(&other, &work, found, error);
  for (int i = 0; i < r->n_op && status == NEAP_OK; i++) order[i] = other.peak_bytes < plain.peak_bytes ? found[i] : i;
  neap_schedule_fini(&plain);
  neap_schedule_fini(&other);
  neap_free(found);
  neap_free(scratch_bytes);
  return status;
}

/* order[i]: the op that runs as number i, n_op of them, the caller's room. Any order respects the edges that names bring, so that
 * the net reordered computes the same. ARGUMENT error for a net with work not written out, but for
 * the plain order. */
neap_status neap_recycle_sort(const neap_recycle *recycle, neap_recycle_order kind, int *order, neap_error *error) {
  for (int i = 0; i < recycle->n_op; i++) order[i] = i;
  if (kind == NEAP_ORDER_PLAIN) return NEAP_OK;
  NEAP_TRY(must_be_by_op(recycle, "order", error));
  neap_uses uses;
  edges e = {0};
  neap_arena arena = {0};
  NEAP_TRY(neap_graph_uses(recycle->graph, &uses, error));
  neap_status status = collect_edges(recycle->graph, &uses, &e) ? NEAP_OK : no_memory(error);
  neap_graph graph = *recycle->graph; /* the same nodes under more edges; borrowed */
  graph.edge = e.list;
  graph.n_edge = e.n;
  if (status == NEAP_OK && kind == NEAP_ORDER_LEAST_MEMORY) status = least_memory(&graph, recycle, &uses, order, error);
  if (status == NEAP_OK && kind == NEAP_ORDER_LONGEST_PATH) {
    chains c = {0};
    if (find_chains(&c, &graph, &arena))
      walk_chains(&c, &graph, order);
    else
      status = no_memory(error);
  }
  neap_arena_fini(&arena);
  neap_uses_fini(&uses);
  neap_free(e.list);
  return status;
}

/* ---- estimate --------------------------------------------------------------------------------------------------------------------- */

/* A view op's output lies in its input's bytes. */
static bool is_view_output(const neap_node *node, int k) {
  for (int p = 0; p < node->op->n_alias; p++)
    if (node->op->alias[p].out == k) return true;
  return false;
}

/* A walk over the ops in definition order: a name's bytes are held from its first write to the Free that releases it, else to
 * the end; views hold none. made_bytes, by op, lies in the recycle's arena. */
neap_status neap_recycle_estimate_memory(neap_recycle *recycle, neap_recycle_estimate *out, neap_error *error) {
  NEAP_TRY(must_be_by_op(recycle, "estimate", error));
  const neap_graph *g = recycle->graph;
  neap_map held = {0}; /* name -> 1 while its bytes are held */
  neap_map index = {0};
  size_t now_bytes = 0;
  bool ok = true;
  *out = (neap_recycle_estimate){.made_bytes = neap_arena_alloc(&recycle->arena, ((size_t)recycle->n_op + 1) * sizeof(size_t))};
  for (int b = 0; ok && b < recycle->n_blob; b++) ok = neap_map_set(&index, recycle->blob[b].name, b);
  for (int n = 0; ok && n < g->n_node && out->made_bytes != NULL; n++) {
    const neap_node *node = &g->node[n];
    for (int k = 0; ok && k < node->n_out; k++) {
      const neap_value *value = &g->value[node->out[k]];
      int b = value->is_blob ? neap_map_get(&index, value->name, -1) : -1;
      if (b < 0 || value->root != node->out[k] || is_view_output(node, k) || neap_map_get(&held, value->name, 0)) continue;
      ok = neap_map_set(&held, value->name, 1);
      out->made_bytes[n] += recycle->blob[b].bytes;
    }
    out->total_bytes += out->made_bytes[n];
    now_bytes += out->made_bytes[n];
    out->high_bytes = NEAP_MAX(out->high_bytes, now_bytes);
    for (int i = 0; (node->effects & NEAP_EFFECT_RELEASE) != 0 && i < node->n_in; i++) {
      const char *name = node->in[i] >= 0 ? g->value[node->in[i]].name : NULL;
      if (name == NULL || !neap_map_get(&held, name, 0)) continue;
      now_bytes -= recycle->blob[neap_map_get(&index, name, 0)].bytes;
      neap_map_remove(&held, name);
    }
  }
  neap_map_fini(&held);
  neap_map_fini(&index);
  return ok && out->made_bytes != NULL ? NEAP_OK : no_memory(error);
}
