/* order.c: an order of low peak, by a greedy list scheduler: of all nodes that may run next, the
 * one that leaves the fewest bytes live; ties go to the definition order.
 *
 * Greedy may lose to the definition order (it can't see a large value two steps ahead), so the
 * caller compares peaks. Views count with their source; in place needs no special care: what it
 * takes it frees in the same step.
 */
#include "plan/plan_int.h"

/* The state after the steps scheduled so far. */
typedef struct scheduler {
  const neap_work *work;
  int *group;      /* by value: the value whose bytes it views, or itself */
  int *n_left;     /* by group: reads still to come */
  int *n_blocked;  /* by node: edges from nodes that have not run */
  int *edge_first; /* by node: its edges start here (the list is sorted by `from`) */
  int *ready;
  int n_ready;
  int64_t n_search; /* nodes looked at */
  neap_arena arena;
} scheduler;

static bool is_arena(const neap_graph *g, int v) {
  return v != NEAP_NO_VALUE && g->value[v].region == NEAP_REGION_ARENA;
}

/* Views share their source's bytes, so their reads count as reads of the source. */
static void find_groups(scheduler *s) {
  const neap_graph *g = s->work->graph;
  for (int v = 0; v < g->n_value; v++) s->group[v] = v;

  /* Nodes come in the order of definition, so that a source's group is known before its views'. */
  for (int n = 0; n < g->n_node; n++) {
    const neap_node *node = &g->node[n];
    for (int k = 0; k < node->op->n_alias; k++) {
      neap_pair pair = node->op->alias[k];
      if (pair.in >= node->n_in || pair.out >= node->n_out) continue;
      int from = node->in[pair.in], to = node->out[pair.out];
      if (is_arena(g, from) && is_arena(g, to)) s->group[to] = s->group[from];
    }
  }
  for (int v = 0; v < g->n_value; v++)
    s->n_left[s->group[v]] += s->work->uses.first[v + 1] - s->work->uses.first[v];
}

/* Whether an earlier position reads the same value: readers are counted once a node, as in
 * neap_uses. */
static bool is_repeated(const neap_node *node, int position) {
  for (int p = 0; p < position; p++)
    if (node->in[p] == node->in[position]) return true;
  return false;
}

/* Whether input p of the node counts as a read of the group: one of its values, at the first
 * position that has it. */
static bool reads_group(const scheduler *s, const neap_node *node, int p, int group) {
  return is_arena(s->work->graph, node->in[p]) && s->group[node->in[p]] == group &&
         !is_repeated(node, p);
}

/* Bytes live after node n, less those before: outputs that somebody reads, less the groups that it
 * reads last. Scratch is left out: it is gone after the step. O(n_in^2), and inputs are few. */
static int64_t growth(const scheduler *s, int n) {
  const neap_graph *g = s->work->graph;
  const neap_node *node = &g->node[n];
  int64_t bytes = 0;

  /* A view takes no bytes, and what nobody reads is gone after the step. */
  for (int o = 0; o < node->n_out; o++) {
    int v = node->out[o];
    if (!is_arena(g, v) || s->group[v] != v || s->n_left[v] == 0) continue;
    bytes += (int64_t)neap_align(g->value[v].bytes);
  }
  for (int i = 0; i < node->n_in; i++) {
    if (!is_arena(g, node->in[i]) || is_repeated(node, i)) continue;
    /* Inputs of one group are counted together, at the first of them. */
    int group = s->group[node->in[i]], n_read = 0;
    bool is_first = true;
    for (int p = 0; p < node->n_in; p++) {
      if (!reads_group(s, node, p, group)) continue;
      if (p < i) is_first = false;
      n_read++;
    }
    /* The group goes when these are all the reads that are left. */
    if (is_first && s->n_left[group] == n_read) bytes -= (int64_t)neap_align(g->value[group].bytes);
  }
  return bytes;
}

/* Its reads are done; what waited for it last becomes ready. */
static void run_node(scheduler *s, int n) {
  const neap_graph *g = s->work->graph;
  const neap_node *node = &g->node[n];
  for (int i = 0; i < node->n_in; i++)
    if (is_arena(g, node->in[i]) && !is_repeated(node, i)) s->n_left[s->group[node->in[i]]]--;
  for (int e = s->edge_first[n]; e < s->edge_first[n + 1]; e++) {
    int to = g->edge[e].to;
    s->n_blocked[to]--;
    if (s->n_blocked[to] == 0) s->ready[s->n_ready++] = to;
  }
}

/* Takes the node of least growth out of `ready`, whose own order means nothing; ties to the one
 * defined first. O(width) growths a step. */
static int take_best(scheduler *s) {
  int best = 0;
  int64_t least = 0;
  s->n_search += s->n_ready;
  for (int i = 0; i < s->n_ready; i++) {
    int64_t bytes = growth(s, s->ready[i]);
    bool is_tie = bytes == least && s->ready[i] < s->ready[best];
    if (i > 0 && bytes >= least && !is_tie) continue;
    best = i;
    least = bytes;
  }
  int node = s->ready[best];
  s->ready[best] = s->ready[--s->n_ready];
  return node;
}

/* Zeroed arrays; false when memory is refused. */
static bool take_arrays(scheduler *s, const neap_graph *g) {
  size_t n = (size_t)g->n_node, m = (size_t)g->n_value;
  s->group = neap_arena_alloc(&s->arena, m * sizeof(int));
  s->n_left = neap_arena_alloc(&s->arena, m * sizeof(int));
  s->n_blocked = neap_arena_alloc(&s->arena, n * sizeof(int));
  s->edge_first = neap_arena_alloc(&s->arena, (n + 1) * sizeof(int));
  s->ready = neap_arena_alloc(&s->arena, n * sizeof(int));
  return s->group != NULL && s->n_left != NULL && s->n_blocked != NULL && s->edge_first != NULL &&
         s->ready != NULL;
}

/* Kahn's topological sort with `ready` as its set of sources. Edges lead from lower nodes to higher
 * ones, so there is no cycle and `ready` is never empty before the end. *out is owned by the
 * caller; on failure (MEMORY) it is not set. *n_search (may be NULL): nodes looked at. */
neap_status neap_order_least_peak(const neap_work *work, int **out, int64_t *n_search,
                                  neap_error *error) {
  const neap_graph *g = work->graph;
  scheduler s = {.work = work};
  neap_status status = NEAP_OK;
  int *order = neap_alloc((size_t)g->n_node * sizeof *order);
  if (order == NULL || !take_arrays(&s, g)) {
    status = neap_fail_memory(error, (size_t)g->n_node * sizeof *order, "the order of a plan");
    goto done;
  }
  find_groups(&s);

  /* What blocks each node, and where its own edges begin: their counts, added up. */
  for (int e = 0; e < g->n_edge; e++) {
    s.n_blocked[g->edge[e].to]++;
    s.edge_first[g->edge[e].from + 1]++;
  }
  for (int n = 0; n < g->n_node; n++) s.edge_first[n + 1] += s.edge_first[n];

  /* From the nodes that wait for nothing on. */
  for (int n = 0; n < g->n_node; n++)
    if (s.n_blocked[n] == 0) s.ready[s.n_ready++] = n;

  /* A node at each step, greedily: no choice is ever taken back. */
  for (int step = 0; step < g->n_node; step++) {
    NEAP_ASSERT(s.n_ready > 0, "some node may run at step %d of %d", step, g->n_node);
    order[step] = take_best(&s);
    run_node(&s, order[step]);
  }
  *out = order;
  order = NULL;
  if (n_search != NULL) *n_search = s.n_search;
done:
  neap_free(order);
  neap_arena_fini(&s.arena);
  return status;
}
