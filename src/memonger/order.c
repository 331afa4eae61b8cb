/* order.c: orders of a net's ops that keep what it computes, names that are written again included,
 * and the net in such an order.
 *
 * INVARIANT: every order respects the graph's edges and those that names bring: a name is written
 * again only when its last version has been read. An order that is given out or followed has been
 * compared with the net (neap_net_same_in_order), which knows nothing of how it was found.
 */
#include "memonger/memonger_int.h"

#include <stdlib.h>
#include <string.h>

static neap_status no_memory(neap_error *error) {
  return neap_fail_memory(error, 4096, "the order of a net");
}

static int compare_edges(const void *a, const void *b) {
  const neap_edge *x = a, *y = b;
  return x->from != y->from ? (x->from > y->from) - (x->from < y->from)
                            : (x->to > y->to) - (x->to < y->to);
}

/* Edges of a net whose names are kept; grows, freed by its caller. */
typedef struct edges {
  neap_edge *list;
  int n, cap;
} edges;

/* An edge unless it says nothing: from before the net, or from a node to itself. False: memory is
 * refused. */
static bool add_edge(edges *e, int from, int to) {
  if (from < 0 || from == to) return true;
  if (!neap_list_grow(&e->list, &e->cap, e->n + 1, sizeof *e->list)) return false;
  e->list[e->n++] = (neap_edge){from, to, NEAP_EDGE_ORDER};
  return true;
}

/* The blobs that exist before the net runs (inputs, parameters, state): their first versions are
 * read too. False: memory is refused. */
static bool note_declared(const neap_graph *graph, neap_map *last) {
  for (int v = 0; v < graph->n_value; v++)
    if (graph->value[v].node < 0 && graph->value[v].is_blob &&
        !neap_map_set(last, graph->value[v].name, v))
      return false;
  return true;
}

/* Node n writes `value`, whose name had version `before` (-1: none): that one's maker and all that
 * have read it come first. False: memory is refused. */
static bool add_rewrite(const neap_graph *graph, const neap_uses *uses, edges *e, int before,
                        int n) {
  if (before < 0) return true;

  /* Its maker first, in case that nobody has read it. */
  if (!add_edge(e, graph->value[before].node, n)) return false;
  for (int u = uses->first[before]; u < uses->first[before + 1]; u++)
    if (uses->list[u] < n && !add_edge(e, uses->list[u], n)) return false;
  return true;
}

/* The edges that names bring: a name is written again only when its last version has been read.
 * `last`: name -> its newest value so far. False: memory is refused. */
static bool add_name_edges(const neap_graph *graph, const neap_uses *uses, neap_map *last,
                           edges *e) {
  if (!note_declared(graph, last)) return false;
  for (int n = 0; n < graph->n_node; n++)
    for (int k = 0; k < graph->node[n].n_out; k++) {
      /* A value without a name is no version of any. */
      int v = graph->node[n].out[k];
      if (!graph->value[v].is_blob) continue;
      /* The version that the name had until now. */
      int before = neap_map_get(last, graph->value[v].name, -1);
      if (!add_rewrite(graph, uses, e, before, n)) return false;
      if (!neap_map_set(last, graph->value[v].name, v)) return false;
    }
  return true;
}

/* The graph's edges, and those that names bring. Sorted, each once. False: memory is refused. */
static bool collect_edges(const neap_graph *graph, const neap_uses *uses, edges *e) {
  for (int k = 0; k < graph->n_edge; k++)
    if (!add_edge(e, graph->edge[k].from, graph->edge[k].to)) return false;

  /* Edges that names bring, then all sorted: equal ones are neighbours, and one of them stays. */
  neap_map last = {0};
  bool ok = add_name_edges(graph, uses, &last, e);
  neap_map_fini(&last);
  if (!ok) return false;
  if (e->n > 0) qsort(e->list, (size_t)e->n, sizeof *e->list, compare_edges);

  /* Twice the same edge would count twice in a chain's lists. */
  int kept = 0;
  for (int k = 0; k < e->n; k++)
    if (kept == 0 || compare_edges(&e->list[kept - 1], &e->list[k]) != 0)
      e->list[kept++] = e->list[k];
  e->n = kept;
  return true;
}

/* Producers of each node, those on the longer chain first; and how long the chain to each node
 * is. */
typedef struct chains {
  int *depth, *first, *list, *stack, *at;
  bool *done;
} chains;

/* The longer chain first, ties by definition. */
static bool is_before(const chains *c, int a, int b) {
  return c->depth[a] != c->depth[b] ? c->depth[a] > c->depth[b] : a < b;
}

/* Depths and lists of producers, by counting sort over the edges. Lists lie in `arena`. False:
 * memory is refused. */
static bool find_chains(chains *c, const neap_graph *g, neap_arena *arena) {
  /* Lists by node; the last one is by edge. */
  size_t n = (size_t)g->n_node + 2;
  int **lists[] = {&c->depth, &c->first, &c->stack, &c->at};
  for (int k = 0; k < NEAP_COUNT(lists); k++) {
    *lists[k] = neap_arena_alloc(arena, n * sizeof(int));
    if (*lists[k] == NULL) return false;
  }
  c->list = neap_arena_alloc(arena, ((size_t)g->n_edge + 1) * sizeof(int));
  c->done = neap_arena_alloc(arena, n);
  if (c->list == NULL || c->done == NULL) return false;

  /* sorted by `from`, and edges lead upwards: depths are final when they are read */
  for (int e = 0; e < g->n_edge; e++) {
    c->depth[g->edge[e].to] = NEAP_MAX(c->depth[g->edge[e].to], c->depth[g->edge[e].from] + 1);
    c->first[g->edge[e].to + 1]++;
  }

  /* The lists of producers stand one behind the other; each is filled in order of depth. */
  for (int k = 0; k < g->n_node; k++) c->first[k + 1] += c->first[k];
  for (int k = 0; k < g->n_node; k++) c->at[k] = c->first[k];
  for (int e = 0; e < g->n_edge; e++) { /* insertion: producers are few */
    int to = g->edge[e].to, p = c->at[to]++;
    for (; p > c->first[to] && is_before(c, g->edge[e].from, c->list[p - 1]); p--)
      c->list[p] = c->list[p - 1];
    c->list[p] = g->edge[e].from;
  }
  return true;
}

/* From each sink, the deepest first, back to its sources, and each node after its producers. A
 * stack of its own: chains are as long as nets are deep. */
static void walk_chains(chains *c, const neap_graph *g, int *order) {
  int n = 0;
  for (int k = 0; k < g->n_node; k++) c->at[k] = c->first[k];
  while (n < g->n_node) {
    /* The deepest sink that is left: what it needs comes first, and then the sink itself. */
    int sink = -1;
    for (int k = 0; k < g->n_node; k++)
      if (!c->done[k] && (sink < 0 || is_before(c, k, sink))) sink = k;

    /* The stack holds the way from the sink down to what is looked at. */
    int top = 0;
    c->stack[top++] = sink;
    while (top > 0) {
      int node = c->stack[top - 1];

      /* A node is done when all its producers are; the next one that is not goes on top. */
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

/* Into `order`: the list scheduler's order, or the definition order where that has no higher
 * peak. */
static neap_status least_memory(const neap_graph *g, const neap_recycle *r, const neap_uses *uses,
                                int *order, neap_error *error) {
  size_t *scratch_bytes = neap_alloc_zeroed(((size_t)r->n_op + 1) * sizeof *scratch_bytes);
  if (scratch_bytes == NULL) return no_memory(error);
  neap_work work = {.graph = g,
                    .options = {.policy = NEAP_POLICY_NAME},
                    .scratch_bytes = scratch_bytes,
                    .uses = *uses};

  /* The order as it stands, and the scheduler's. */
  neap_schedule plain = {0}, other = {0};
  int *found = NULL;
  neap_status status = neap_schedule_init(&plain, &work, NULL, error);

  /* Both orders are measured: the scheduler's is a guess that need not be better. */
  if (status == NEAP_OK) status = neap_order_least_peak(&work, &found, NULL, error);
  if (status == NEAP_OK) status = neap_schedule_init(&other, &work, found, error);
  if (status == NEAP_OK) {
    bool is_better = other.peak_bytes < plain.peak_bytes;
    for (int i = 0; i < r->n_op; i++) order[i] = is_better ? found[i] : i;
  }
  neap_schedule_fini(&plain);
  neap_schedule_fini(&other);
  neap_free(found);
  neap_free(scratch_bytes);
  return status;
}

/* Each node comes after those that its edges lead from. */
static void check_edges(const neap_graph *g, const int *order) {
  int *at = malloc(((size_t)g->n_node + 1) * sizeof *at);
  if (at == NULL) return;
  for (int k = 0; k < g->n_node; k++) at[order[k]] = k;
  for (int e = 0; e < g->n_edge; e++)
    NEAP_ASSERT(at[g->edge[e].from] < at[g->edge[e].to], "node %d comes before node %d",
                g->edge[e].from, g->edge[e].to);
  free(at);
}

/* The order of a recycle whose nodes are ops. */
static neap_status sort_ops(const neap_recycle *recycle, neap_recycle_order kind, int *order,
                            neap_error *error) {
  neap_uses uses;
  edges e = {0};
  neap_arena arena = {0};
  NEAP_TRY(neap_graph_uses(recycle->graph, &uses, error));
  neap_status status = collect_edges(recycle->graph, &uses, &e) ? NEAP_OK : no_memory(error);
  neap_graph graph = *recycle->graph; /* the same nodes under more edges; borrowed */
  graph.edge = e.list;
  graph.n_edge = e.n;

  /* By bytes, as the planner orders nodes; or by chains. */
  if (status == NEAP_OK && kind == NEAP_ORDER_LEAST_MEMORY)
    status = least_memory(&graph, recycle, &uses, order, error);
  if (status == NEAP_OK && kind == NEAP_ORDER_LONGEST_PATH) {
    chains c = {0};
    if (find_chains(&c, &graph, &arena))
      walk_chains(&c, &graph, order);
    else
      status = no_memory(error);
  }
  if (NEAP_DEBUG && status == NEAP_OK) check_edges(&graph, order);
  neap_arena_fini(&arena);
  neap_uses_fini(&uses);
  neap_free(e.list);
  return status;
}

/* Error of `code` unless the net computes in this order what it computes as it stands. */
static neap_status prove_order(const neap_net *net, const int *order, neap_status code,
                               neap_error *error) {
  neap_buffer where = {0};
  bool same = false;

  /* Whichever way the order was found: it is compared with the net, by code that has not seen
   * edges. */
  neap_status status = neap_net_same_in_order(net, order, &same, &where, error);
  if (status == NEAP_OK && !same)
    status = neap_fail(
      error, code,
      "order: net \"%s\" would not compute in this order what it computes as it stands: %s",
      neap_net_name(net), where.text != NULL ? where.text : "they differ");
  neap_buffer_fini(&where);
  return status;
}

/* ARGUMENT error for a word that is none of the three. NULL: plain. */
static neap_status find_kind(const char *word, neap_recycle_order *kind, neap_error *error) {
  static const char *const words[] = {"plain", "longest_path", "least_memory"};
  *kind = NEAP_ORDER_PLAIN;
  for (int k = 0; k < NEAP_COUNT(words); k++) {
    if (word != NULL && strcmp(word, words[k]) != 0) continue;
    *kind = (neap_recycle_order)k;
    return NEAP_OK;
  }
  return neap_fail(error, NEAP_ARGUMENT,
                   "order expects plain, longest_path or least_memory, got \"%s\"", word);
}

/* Of the net as it stands. */
neap_status neap_net_sort(const neap_net *net, const char *order, int *position,
                          neap_error *error) {
  neap_recycle_order kind;
  neap_recycle recycle;
  NEAP_TRY(find_kind(order, &kind, error));

  /* As it stands: all that "plain" asks for. */
  for (int i = 0; i < neap_net_n_ops(net); i++) position[i] = i;
  if (kind == NEAP_ORDER_PLAIN) return NEAP_OK;
  NEAP_TRY(neap_recycle_open(&recycle, net, NULL, NULL, error));
  neap_status status = neap_recycle_by_op(&recycle, "order", error);
  if (status == NEAP_OK) status = sort_ops(&recycle, kind, position, error);
  neap_recycle_close(&recycle);
  return status == NEAP_OK ? prove_order(net, position, NEAP_INTERNAL, error) : status;
}

/* ---- the net in another order ---------------------------------------------------------------- */

/* The op, or one in its subnets, draws random numbers. */
static bool is_random(const neap_net_op *op) {
  return ((op->op->effects | neap_net_sub_effects(op)) & NEAP_EFFECT_RANDOM) != 0;
}

void neap_recycle_streams(const neap_net *net, uint32_t *stream) {
  uint32_t at = NEAP_NET_FIRST_STREAM;
  for (int i = 0; i < neap_net_n_ops(net); i++) {
    const neap_net_op *op = neap_net_op_at(net, i);
    stream[i] = op->origin.stream == 0 && is_random(op) ? at : 0;
    at += neap_net_n_streams(op);
  }
}

neap_status neap_recycle_reorder(const neap_net *net, const int *order, neap_net **out,
                                 neap_error *error) {
  neap_net *made = NULL;
  uint32_t *stream = neap_alloc(((size_t)neap_net_n_ops(net) + 1) * sizeof *stream);
  if (stream == NULL) return no_memory(error);

  /* Numbers that were drawn stay with their ops: streams are said before the order changes. */
  neap_recycle_streams(net, stream);
  neap_status status =
    neap_net_copy_edited(net, &(neap_net_edit){.order = order, .stream = stream}, &made, error);
  /* each op once: the copy has passed that */
  if (status == NEAP_OK) status = prove_order(net, order, NEAP_PLAN, error);
  neap_free(stream);
  if (status != NEAP_OK) {
    neap_net_free(made);
    return status;
  }
  *out = made;
  return NEAP_OK;
}
