/* recompute.c: recomputation. A forward node that runs again in the backward pass need not have its
 * outputs kept until then.
 *
 * A recomputed node is a node of its own with values of its own ("h.again"), made by the same
 * kernel from the same bytes: planner, verifier and runners know nothing of it, and results are the
 * same to the last bit. Random numbers too: it keeps the stream. Which nodes are worth it is the
 * planner's affair (plan/recompute.c); it says so in neap_choices, and lay_out does it.
 *
 * Recomputed nodes stand right before the first backward node that wants one of them, in the order
 * of those that they run again, and order edges hold each back until all that stands before it has
 * run: else they could be sorted to where nothing is saved.
 *
 * INVARIANT: a node is recomputed at most once, and only if it is forward, without effects but
 * random numbers, and all it makes is transient; what it reads is neither freed nor overwritten
 * before the backward pass is over. What an update reads (running statistics) is the first run's,
 * so that no recomputed node stands among commits.
 */
#include "rewrite/rewrite_int.h"

#include <stdio.h>
#include <string.h>

/* The last node that may want a recomputed node: a Reorder behind it belongs to an update. */
static int last_backward(const neap_graph *graph) {
  int n = graph->n_node - 1;
  while (n >= 0 && (graph->node[n].phase != NEAP_PHASE_BACKWARD ||
                    strcmp(graph->node[n].op->name, "Reorder") == 0))
    n--;
  return n;
}

/* Whether the graph overwrites the storage of v before the backward pass is over. Commits come last
 * of all nodes but those that read what was committed, and the backward pass may be among these:
 * then a commit stands before it. */
static bool is_rewritten_early(const neap_graph *graph, neap_value_id v) {
  int last = last_backward(graph);
  for (int w = 0; w < graph->n_value; w++) {
    const neap_value *value = &graph->value[w];
    if (value->root != graph->value[v].root || value->node < 0 || w == graph->value[w].root)
      continue;
    if (graph->node[value->node].phase != NEAP_PHASE_UPDATE || value->node < last) return true;
  }
  return false;
}

/* Whether a Free ends v: nobody may read it behind that. */
static bool is_freed(const neap_graph *graph, neap_value_id v) {
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    if ((node->effects & NEAP_EFFECT_RELEASE) == 0) continue;
    for (int i = 0; i < node->n_in; i++)
      if (node->in[i] == v) return true;
  }
  return false;
}

bool rewrite_is_stable(const neap_graph *graph, neap_value_id v) {
  return !is_freed(graph, v) &&
         (graph->value[v].region == NEAP_REGION_ARENA || !is_rewritten_early(graph, v));
}

bool neap_graph_can_recompute(const neap_graph *graph, int n) {
  const neap_node *node = &graph->node[n];
  if (node->phase != NEAP_PHASE_FORWARD || (node->effects & ~(unsigned)NEAP_EFFECT_RANDOM) != 0)
    return false;
  if (node->n_sub > 0 || node->n_enforced > 0 || node->n_in == 0 || node->recomputes > 0)
    return false;

  /* All that it makes is transient. */
  for (int k = 0; k < node->n_out; k++) {
    const neap_value *value = &graph->value[node->out[k]];
    if (value->region != NEAP_REGION_ARENA || value->root != node->out[k]) return false;
  }

  /* All that it reads is there, and the same, when the backward pass runs. */
  for (int i = 0; i < node->n_in; i++) {
    neap_value_id v = node->in[i];
    if (v >= 0 && !rewrite_is_stable(graph, v)) return false;
  }
  return true;
}

typedef struct recomputer {
  neap_graph *graph;
  neap_node *old;   /* the nodes as they were, with room for as many */
  int n_old, last;  /* last_backward of them: what reads behind it gets the first run's values */
  bool *recomputed; /* by old node: to be recomputed */
  bool *wanted;     /* by old node: its recomputed node stands before the node at hand */
  int *place;       /* by old node: its new index */
  bool *done;       /* by old node: its recomputed node has been added */
  neap_value_id *again; /* by old value: the recomputed node's, or NEAP_NO_VALUE */
} recomputer;

/* The old node whose recomputed node gives v; -1: v is kept. */
static int recomputed_maker(const recomputer *r, neap_value_id v) {
  int maker = v >= 0 ? r->graph->value[v].node : -1;
  if (maker < 0 || maker >= r->n_old || !r->recomputed[maker]) return -1;
  return r->again[v] == NEAP_NO_VALUE ? maker : -1;
}

/* Marks what has to be recomputed for node n to find its inputs; returns the lowest, or n where
 * nothing is. From the highest down, since inputs come from lower nodes. */
static int mark_wanted(recomputer *r, int n) {
  /* The walk goes down as far as something is wanted; `lowest` moves with it. */
  int lowest = n;
  for (int at = n; at >= lowest; at--) {
    if (at != n && !r->wanted[at]) continue;
    /* Node n itself, or one that is wanted before it: the makers of its inputs are wanted too. */
    for (int i = 0; i < r->old[at].n_in; i++) {
      int maker = recomputed_maker(r, r->old[at].in[i]);
      if (maker < 0 || r->done[maker]) continue;
      r->wanted[maker] = true;
      lowest = NEAP_MIN(lowest, maker);
    }
  }
  return lowest;
}

/* `v` as the backward sees it. */
static neap_value_id seen(const recomputer *r, neap_value_id v) {
  if (v < 0 || v >= r->graph->n_value) return v;
  return r->again[v] != NEAP_NO_VALUE ? r->again[v] : v;
}

/* A node's own list of operands, as the backward sees its inputs. */
static bool redirect(recomputer *r, neap_node *node) {
  neap_value_id *ids =
    neap_arena_alloc(&r->graph->arena, (size_t)(node->n_in + node->n_out + 1) * sizeof *ids);
  if (ids == NULL) return false;
  for (int i = 0; i < node->n_in; i++) ids[i] = seen(r, node->in[i]);
  for (int k = 0; k < node->n_out; k++) ids[node->n_in + k] = node->out[k];
  node->in = ids;
  node->out = ids + node->n_in;
  return true;
}

/* What v is of the first node, for the recomputed one: the same type and bytes, but no name that a
 * user could ask for. Negative: memory is refused. */
static neap_value_id add_again(recomputer *r, neap_value_id v, int node, int position) {
  char text[256];
  neap_value again = r->graph->value[v];
  snprintf(text, sizeof text, "%s.again", again.name != NULL ? again.name : "");
  int id = graph_add_value(r->graph, neap_intern(text), &again.type);
  if (id < 0) return id;
  again.name = r->graph->value[id].name;
  again.is_last = false;
  again.is_blob = false;
  again.node = node;
  again.position = position;
  again.root = id;
  r->graph->value[id] = again;
  return id;
}

/* The recomputed node of old node m as the next node. */
static neap_status add_recomputed(recomputer *r, int m, neap_error *error) {
  neap_graph *graph = r->graph;
  neap_node node = r->old[m];
  int n = graph->n_node;

  /* The same op on the same operands, recomputed where they are; its pair is itself. */
  if (!redirect(r, &node)) return graph_no_memory(error);
  node.phase = NEAP_PHASE_BACKWARD;
  node.forward = n;
  node.recomputes = r->place[m] + 1;

  /* Values of its own. From here on the backward sees these in place of the first ones. */
  for (int k = 0; k < node.n_out; k++) {
    neap_value_id v = r->old[m].out[k], again = add_again(r, v, n, k);
    if (again < 0) return graph_no_memory(error);
    r->again[v] = again;
    node.out[k] = again;
  }
  graph->node[graph->n_node++] = node;
  r->done[m] = true;
  return NEAP_OK;
}

/* The nodes in their new order: before each backward node the recomputed ones that it is the first
 * to want. */
static neap_status place_nodes(recomputer *r, neap_error *error) {
  neap_graph *graph = r->graph;
  for (int n = 0; n < r->n_old; n++) {
    neap_node node = r->old[n];
    if (node.phase == NEAP_PHASE_BACKWARD && n <= r->last) {
      /* In the order of the nodes that they recompute, so that makers come before readers. */
      for (int m = mark_wanted(r, n); m < n; m++) {
        if (!r->wanted[m]) continue;
        r->wanted[m] = false;
        NEAP_TRY(add_recomputed(r, m, error));
      }
      if (!redirect(r, &node)) return graph_no_memory(error);
    }
    /* The forward of its pair, itself or a node before it, has its new place by now. */
    r->place[n] = graph->n_node;
    node.forward = r->place[node.forward];
    graph->node[graph->n_node++] = node;
  }

  /* A Reorder may stand before the node that it serves, whose place is known only now. */
  for (int n = 0; n < graph->n_node; n++) {
    neap_node *node = &graph->node[n];
    if (node->serves > 0) node->serves = r->place[node->serves - 1] + 1;
  }
  return NEAP_OK;
}

/* Lists of the old graph's size; the graph's own node list gets room for the recomputed nodes. */
static bool take_room(recomputer *r, int n_recomputed) {
  /* All room at once: from here on nodes are moved in place, and a failure would leave half of
   * them. */
  neap_graph *graph = r->graph;
  size_t n = (size_t)graph->n_node + 1, m = (size_t)graph->n_value + 1;
  r->n_old = graph->n_node;
  r->old = neap_alloc(n * sizeof *r->old);
  r->recomputed = neap_alloc_zeroed(n);
  r->wanted = neap_alloc_zeroed(n);
  r->done = neap_alloc_zeroed(n);
  r->place = neap_alloc_zeroed(n * sizeof *r->place);
  r->again = neap_alloc(m * sizeof *r->again);
  if (r->old == NULL || r->recomputed == NULL || r->wanted == NULL || r->done == NULL ||
      r->place == NULL || r->again == NULL)
    return false;
  for (size_t v = 0; v < m; v++) r->again[v] = NEAP_NO_VALUE;
  neap_copy_bytes(r->old, graph->node, (size_t)graph->n_node * sizeof *r->old);
  return neap_list_grow(&graph->node, &graph->cap_node, graph->n_node + n_recomputed + 1,
                        sizeof *graph->node);
}

static void end_room(recomputer *r) {
  neap_free(r->old);
  neap_free(r->recomputed);
  neap_free(r->wanted);
  neap_free(r->done);
  neap_free(r->place);
  neap_free(r->again);
}

/* All but the edges. After a failure the graph is as it was: its owner frees every subgraph
 * once. */
static neap_status recompute_nodes(neap_graph *graph, int n_recomputed, const int *recomputed,
                                   neap_error *error) {
  recomputer r = {.graph = graph, .last = last_backward(graph)};
  int n_value = graph->n_value;
  neap_status status = NEAP_OK;
  if (!take_room(&r, n_recomputed)) {
    status = graph_no_memory(error);
    goto done;
  }

  /* The list of nodes is written anew, from the copy of the old one. */
  for (int i = 0; i < n_recomputed; i++) r.recomputed[recomputed[i]] = true;
  graph->n_node = 0;
  status = place_nodes(&r, error);
  if (status != NEAP_OK) {
    neap_copy_bytes(graph->node, r.old, (size_t)r.n_old * sizeof *r.old);
    graph->n_node = r.n_old;
    graph->n_value = n_value;
    goto done;
  }

  /* Old values are made by the old nodes, at their new places. */
  for (int v = 0; v < n_value; v++)
    if (graph->value[v].node >= 0) graph->value[v].node = r.place[graph->value[v].node];
done:
  end_room(&r);
  return status;
}

neap_status neap_graph_recompute(neap_graph *graph, int n_recomputed, const int *recomputed,
                                 neap_error *error) {
  /* The list may come from a file: each is a node of the graph, later than the one before it, and
   * one that may run again. */
  if (n_recomputed == 0) return NEAP_OK;
  for (int i = 0; i < n_recomputed; i++) {
    bool is_next = recomputed[i] >= 0 && recomputed[i] < graph->n_node &&
                   (i == 0 || recomputed[i] > recomputed[i - 1]);
    if (!is_next || !neap_graph_can_recompute(graph, recomputed[i]))
      return neap_fail(error, NEAP_PLAN,
                       "op %d of \"%s\" can't be recomputed for the backward pass",
                       recomputed[i] + 1, graph->name != NULL ? graph->name : "?");
  }
  NEAP_TRY(recompute_nodes(graph, n_recomputed, recomputed, error));
  return graph_make_edges(graph, error);
}

neap_status neap_graph_sketch(const neap_graph *graph, int n_recomputed, const int *recomputed,
                              neap_graph **out, neap_error *error) {
  /* Room for the recomputed nodes, and for about two values of each; more values make the list
   * grow. */
  neap_graph *sketch = graph_new(graph->name);
  *out = NULL;
  if (sketch == NULL) return graph_no_memory(error);
  if (!neap_list_grow(&sketch->node, &sketch->cap_node, graph->n_node + n_recomputed + 1,
                      sizeof *sketch->node) ||
      !neap_list_grow(&sketch->value, &sketch->cap_value, graph->n_value + 2 * n_recomputed + 1,
                      sizeof *sketch->value)) {
    neap_graph_free_sketch(sketch);
    return graph_no_memory(error);
  }

  /* Nodes and values as they are: lists within them are the graph's own. */
  neap_copy_bytes(sketch->node, graph->node, (size_t)graph->n_node * sizeof *sketch->node);
  neap_copy_bytes(sketch->value, graph->value, (size_t)graph->n_value * sizeof *sketch->value);

  /* What planning reads of the graph beside its nodes. */
  sketch->n_node = graph->n_node;
  sketch->n_value = graph->n_value;
  sketch->train = graph->train;
  sketch->step = graph->step;
  sketch->n_bank = graph->n_bank;
  sketch->bank = graph->bank;
  neap_status status = recompute_nodes(sketch, n_recomputed, recomputed, error);
  if (status != NEAP_OK) {
    neap_graph_free_sketch(sketch);
    return status;
  }
  if (NEAP_DEBUG) graph_check_nodes(sketch);
  *out = sketch;
  return NEAP_OK;
}

void neap_graph_free_sketch(neap_graph *sketch) {
  if (sketch == NULL) return;
  sketch->n_node = 0; /* subgraphs are not its own */
  neap_graph_free(sketch);
}
