/* finish.c: the last pass over a graph: commits behind everything that can fault, dead nodes and
 * values out, values numbered in order of first mention, and the explicit edge list.
 *
 * INVARIANT: a fault stops a run before anything that lasts has changed, unless the fault lies in
 * what reads what was committed; then the workspace puts it back.
 * INVARIANT: the edges say everything about order: planner, verifier and runner look at nothing
 * else. A pair of nodes has one edge; that of the data where there are both.
 * INVARIANT: numbers of values depend on the ops and their order alone, so that equal nets have
 * equal canonical texts.
 */
#include "graph/graph_int.h"

#include <stdlib.h>
#include <string.h>

/* ---- commits last ---------------------------------------------------------------------------- */

/* An op whose length depends on data, or a subnet with one. */
static bool has_extent(const neap_node *node) {
  if (node->extent > 0) return true;
  for (int s = 0; s < node->n_sub; s++)
    for (int n = 0; n < node->sub[s]->n_node; n++)
      if (has_extent(&node->sub[s]->node[n])) return true;
  return false;
}

/* One whose length is not known yet. */
static bool seeks(const neap_node *node) {
  if (node->extent > 0 && node->n_found < 0) return true;
  for (int s = 0; s < node->n_sub; s++)
    for (int n = 0; n < node->sub[s]->n_node; n++)
      if (seeks(&node->sub[s]->node[n])) return true;
  return false;
}

/* What stands behind the first commit. A node is late when it writes resident storage, reads what a
 * late one makes, or frees what a late one reads. */
typedef struct lateness {
  bool *node;
  bool *made, *read; /* by value: by a late node */
} lateness;

static bool has_any(const neap_node *node, const bool *set) {
  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] >= 0 && set[node->in[i]]) return true;
  return false;
}

/* GRAPH error: a length must be known before anything is committed, since a run that finds another
 * one begins anew. */
static neap_status fail_late_length(const neap_node *node, neap_error *error) {
  neap_error inner = {0};
  if (node->extent > 0)
    neap_fail(
      &inner, NEAP_GRAPH,
      "how long its output is depends on data, so it can't read what an update has written");
  else
    neap_fail(&inner, NEAP_GRAPH,
              "it has an op whose length depends on data, so it can't update anything or read what "
              "an update has written");
  return graph_locate(error, &inner, node->op->name, node->name, node->scope, node->line);
}

/* One pass decides, since what a late node makes is read behind it. */
static neap_status find_late(const neap_graph *graph, lateness *late, neap_error *error) {
  for (int n = 0; n < graph->n_node; n++) {
    /* Late is what commits, what reads something made late, and a Free of what a late node reads:
     * it has to stay behind its reader. */
    const neap_node *node = &graph->node[n];
    const bool commits = (node->effects & NEAP_EFFECT_COMMIT) != 0;
    const bool releases = (node->effects & NEAP_EFFECT_RELEASE) != 0;
    late->node[n] = commits || has_any(node, late->made) || (releases && has_any(node, late->read));
    if (!late->node[n]) continue;
    /* A run that finds another length begins anew, which a commit would have made impossible. */
    if (has_extent(node)) return fail_late_length(node, error);
    for (int k = 0; k < node->n_out; k++) late->made[node->out[k]] = true;
    for (int i = 0; i < node->n_in; i++)
      if (node->in[i] >= 0) late->read[node->in[i]] = true;
  }
  return NEAP_OK;
}

/* Puts the late nodes behind the others. `sorted` and `place` are room, by node. */
static void move_late(neap_graph *graph, const bool *late, neap_node *sorted, int *place) {
  /* Where the late ones begin. */
  const int n = graph->n_node;
  int n_early = 0;
  for (int i = 0; i < n; i++)
    if (!late[i]) n_early++;

  /* Both halves keep their order. So the readers of an old version, which are not late unless for
   * another reason, still come before what overwrites it. */
  int at = 0, at_late = n_early;
  for (int i = 0; i < n; i++) place[i] = late[i] ? at_late++ : at++;

  /* A gradient that reads nothing of its forward (Sum's: a shape) stays where it is when the
   * forward moves behind it. Then they are no pair: kernels are chosen in order, and a backward's
   * after its forward's. */
  for (int i = 0; i < n; i++) {
    sorted[place[i]] = graph->node[i];
    int forward = place[graph->node[i].forward];
    sorted[place[i]].forward = forward <= place[i] ? forward : place[i];
  }
  neap_copy_bytes(graph->node, sorted, (size_t)n * sizeof *sorted);
  for (int v = 0; v < graph->n_value; v++)
    if (graph->value[v].node >= 0) graph->value[v].node = place[graph->value[v].node];
}

static neap_status commits_last(neap_graph *graph, neap_error *error) {
  const size_t n = (size_t)graph->n_node, n_value = (size_t)graph->n_value;
  lateness late = {neap_alloc_zeroed(n), neap_alloc_zeroed(n_value), neap_alloc_zeroed(n_value)};
  neap_node *sorted = neap_alloc(n * sizeof *sorted);
  int *place = neap_alloc(n * sizeof *place);

  /* All room at once, so that one exit frees it whatever failed. */
  neap_status status = NEAP_OK;
  if (late.node == NULL || late.made == NULL || late.read == NULL || sorted == NULL ||
      place == NULL)
    status = graph_no_memory(error);
  if (status == NEAP_OK) status = find_late(graph, &late, error);
  if (status == NEAP_OK) move_late(graph, late.node, sorted, place);
  neap_free(late.node);
  neap_free(late.made);
  neap_free(late.read);
  neap_free(sorted);
  neap_free(place);
  return status;
}

/* ---- dead nodes and values ------------------------------------------------------------------- */

static void mark_inputs(const neap_node *node, bool *needed) {
  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] >= 0) needed[node->in[i]] = true;
}

/* live[n] and needed[v], from what the world sees back to what that needs. */
static void mark(const neap_graph *graph, bool *live, bool *needed) {
  /* The world sees outputs, and the last version of what has bytes of its own. */
  for (int k = 0; k < graph->n_output; k++) needed[graph->output[k]] = true;
  for (int v = 0; v < graph->n_value; v++)
    if (graph->value[v].region != NEAP_REGION_ARENA && graph->value[v].is_last &&
        graph->value[v].node >= 0)
      needed[v] = true;

  /* Readers stand behind makers: when a node is looked at, all that could need it has been. */
  for (int n = graph->n_node - 1; n >= 0; n--) {
    const neap_node *node = &graph->node[n];
    /* A write that lasts is needed by itself; in a probe so is an op whose length is being looked
     * for. */
    live[n] = (node->effects & NEAP_EFFECT_COMMIT) != 0 ||
              (graph->probe && (node->extent > 0 || seeks(node)));
    for (int k = 0; k < node->n_out; k++)
      if (needed[node->out[k]]) live[n] = true;
    if (live[n]) mark_inputs(node, needed);
  }

  /* A Free stays when something that it frees does: by itself it needs nothing to be made. */
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    if ((node->effects & NEAP_EFFECT_RELEASE) == 0) continue;
    if (has_any(node, needed)) live[n] = true;
    if (live[n]) mark_inputs(node, needed);
  }
}

/* Trailing outputs that nobody reads and nobody can name, where the record lets them be absent: a
 * kernel writes the others whether asked or not, and the length of a variadic list means
 * something. */
static void trim_outputs(const neap_graph *graph, neap_node *node, const bool *needed) {
  /* Outputs are its subnets'; frames go by trim_frames. */
  if ((node->effects & NEAP_EFFECT_CONTROL) != 0) return;

  /* From the end: an output in the middle has a position that others count from. */
  for (; node->n_out > 1; node->n_out--) {
    neap_value_id last = node->out[node->n_out - 1];
    unsigned flags = neap_op_output(node->op, node->n_out - 1)->flags;
    if (needed[last] || graph->value[last].is_blob ||
        (flags & (NEAP_ARG_OPTIONAL | NEAP_ARG_VARIADIC)) != NEAP_ARG_OPTIONAL)
      return;
  }
}

/* The frames of a loop whose backward is not live: nothing is kept, and what lay in them is
 * computed like anything else in the body. */
static neap_status trim_frames(neap_graph *graph, neap_node *node, const bool *needed,
                               neap_error *error) {
  const int frames = node->loop != NULL && !node->loop->is_backward ? node->loop->frames : -1;
  if (frames < 0 || needed[node->out[frames - node->n_in]]) return NEAP_OK;

  /* Bodies for lengths that were met later are built from the op, so there is one here. */
  neap_loop *loop = graph_copy_loop(&graph->arena, node->loop);
  if (loop == NULL) return graph_no_memory(error);

  /* Frames are the last of the outputs, so that no other operand's number changes. */
  node->loop = loop;
  node->n_out--;
  loop->frames = -1;
  loop->grows = false;
  loop->n_item = 0;
  loop->state_bytes = loop->record_bytes = 0;
  for (int s = 0; s < loop->n_state; s++) loop->state[s].item = -1;

  /* Values that lay in the frames are transient now, and live until the iteration's last reader. */
  neap_graph *body = node->sub[node->n_sub - 1];
  for (int v = 0; v < body->n_value; v++) {
    neap_value *value = &body->value[v];
    if (value->region != NEAP_REGION_FRAME) continue;
    value->region = NEAP_REGION_ARENA;
    value->is_last = false;
  }

  /* What was only computed to be kept goes, too. */
  return graph_finish(body, false, error);
}

/* What nobody makes any more is not freed either: a Free may have several operands, some of them
 * dead. Its outputs, where it has them, are its inputs one by one. */
static void trim_free(neap_graph *graph, neap_node *node, const bool *live) {
  int n_in = 0, n_out = 0;
  for (int i = 0; i < node->n_in; i++) {
    const int maker = node->in[i] >= 0 ? graph->value[node->in[i]].node : -1;
    if (maker >= 0 && !live[maker]) continue;
    node->in[n_in++] = node->in[i];
    if (i >= node->n_out) continue;
    graph->value[node->out[i]].position = n_out;
    node->out[n_out++] = node->out[i];
  }
  node->n_in = n_in;
  node->n_out = n_out;
}

/* Old numbers to new ones and back; -1: not mentioned yet. */
typedef struct renumbering {
  neap_graph *graph;
  int *new_id, *old_id, n;
} renumbering;

static void number(renumbering *r, int old) {
  if (old < 0 || r->new_id[old] >= 0) return;
  r->new_id[old] = r->n;
  r->old_id[r->n++] = old;
}

/* The oldest version first, so that roots exist before those that refer to them. */
static void number_with_root(renumbering *r, int old) {
  if (old >= 0) number(r, r->graph->value[old].root);
  number(r, old);
}

/* A name whose last value is not computed means that value all the same: what the workspace has of
 * the name is older. */
static neap_status note_dead(neap_graph *graph, const int *new_id, neap_error *error) {
  for (int v = 0; v < graph->n_value; v++) {
    const neap_value *value = &graph->value[v];
    if (new_id[v] >= 0 || value->node < 0) continue;
    if (!value->is_blob || !value->is_last || value->name == NULL) continue;
    if (neap_graph_find_gone(graph, value->name) == NULL &&
        !graph_add_gone(graph, value->name, NULL))
      return graph_no_memory(error);
  }
  return NEAP_OK;
}

/* New numbers in the order in which the nodes that stay mention the values; parameters of a
 * subgraph first, since their order is the owner's. A value that nothing mentions gets none, but
 * for what is held all the same, which comes last. Also the new places of the nodes, -1 for those
 * that go; returns how many stay. */
static int number_all(renumbering *r, const bool *live, int *place) {
  const neap_graph *graph = r->graph;
  int n_node = 0;

  /* Parameters of a subgraph keep the order in which the owner counts them. */
  for (int v = 0; v < graph->n_value; v++) r->new_id[v] = -1;
  for (int i = 0; i < graph->n_param; i++) number(r, graph->param[i]);

  /* Then as the nodes mention them. Names play no part, so that nets which differ in names alone
   * have one text. */
  for (int n = 0; n < graph->n_node; n++) {
    place[n] = live[n] ? n_node++ : -1;
    if (!live[n]) continue;
    for (int i = 0; i < graph->node[n].n_in; i++) number_with_root(r, graph->node[n].in[i]);
    for (int k = 0; k < graph->node[n].n_out; k++) number_with_root(r, graph->node[n].out[k]);
  }

  /* Results that no node mentions, and blobs that a workspace holds though nobody uses them
   * here. */
  for (int k = 0; k < graph->n_output; k++) number_with_root(r, graph->output[k]);
  for (int v = 0; v < graph->n_value; v++)
    if (graph->value[v].is_held) number(r, v);
  return n_node;
}

/* Nodes to their new places; subgraphs of those that go are freed. */
static void move_nodes(neap_graph *graph, const bool *live, const int *place, int n_node) {
  /* No place is above the old one, so a node never lies where another is still to be read. */
  for (int n = 0; n < graph->n_node; n++) {
    if (live[n]) {
      graph->node[place[n]] = graph->node[n];
    } else {
      for (int s = 0; s < graph->node[n].n_sub; s++) neap_graph_free(graph->node[n].sub[s]);
    }
  }
  graph->n_node = n_node;
}

/* All that refers to a node or a value by its number, after move_nodes. `value`: room. */
static void rename_all(const renumbering *r, const int *place, neap_value *value) {
  neap_graph *graph = r->graph;
  for (int n = 0; n < graph->n_node; n++) {
    neap_node *node = &graph->node[n];
    /* A node whose forward is gone is a pair of its own. */
    node->forward = place[node->forward] >= 0 ? place[node->forward] : n;
    for (int i = 0; i < node->n_in; i++)
      node->in[i] = node->in[i] >= 0 ? r->new_id[node->in[i]] : NEAP_NO_VALUE;
    for (int k = 0; k < node->n_out; k++) node->out[k] = r->new_id[node->out[k]];
  }

  /* Values change places in both directions, so they are written anew beside the old ones. */
  for (int v = 0; v < r->n; v++) {
    value[v] = graph->value[r->old_id[v]];
    value[v].root = r->new_id[value[v].root];
    value[v].node = value[v].node >= 0 ? place[value[v].node] : -1;
  }
  neap_copy_bytes(graph->value, value, (size_t)r->n * sizeof *value);
  graph->n_value = r->n;
  for (int i = 0; i < graph->n_param; i++) graph->param[i] = r->new_id[graph->param[i]];
  for (int k = 0; k < graph->n_output; k++) graph->output[k] = r->new_id[graph->output[k]];
}

/* Takes out nodes that are not live, frees their subgraphs, and keeps only values that something
 * mentions. */
static neap_status compact(neap_graph *graph, const bool *live, neap_error *error) {
  neap_status status = NEAP_OK;
  renumbering r = {.graph = graph};
  r.new_id = neap_alloc((size_t)(graph->n_value + 1) * sizeof *r.new_id);
  r.old_id = neap_alloc((size_t)(graph->n_value + 1) * sizeof *r.old_id);
  int *place = neap_alloc((size_t)(graph->n_node + 1) * sizeof *place);
  neap_value *value = neap_alloc((size_t)(graph->n_value + 1) * sizeof *value);
  if (r.new_id == NULL || r.old_id == NULL || place == NULL || value == NULL) {
    status = graph_no_memory(error);
    goto done;
  }
  int n_node = number_all(&r, live, place);
  status = note_dead(graph, r.new_id, error);
  if (status != NEAP_OK) goto done;

  /* Nothing can fail from here on: until now the graph was as it came, for whoever frees it. */
  move_nodes(graph, live, place, n_node);
  rename_all(&r, place, value);
done:
  neap_free(r.new_id);
  neap_free(r.old_id);
  neap_free(place);
  neap_free(value);
  return status;
}

/* With `all` every node stays, and values are only numbered anew. */
static neap_status remove_dead(neap_graph *graph, bool all, neap_error *error) {
  neap_status status = NEAP_OK;
  bool *live = neap_alloc_zeroed((size_t)graph->n_node + 1);
  bool *needed = neap_alloc_zeroed((size_t)graph->n_value + 1);
  if (live == NULL || needed == NULL) {
    status = graph_no_memory(error);
    goto done;
  }

  /* Which nodes stay, and of those only the operands that mean something. */
  if (all) {
    memset(live, true, (size_t)graph->n_node);
  } else {
    mark(graph, live, needed);
    for (int n = 0; n < graph->n_node; n++) {
      neap_node *node = &graph->node[n];
      if (!live[n]) continue;
      if ((node->effects & NEAP_EFFECT_RELEASE) != 0)
        trim_free(graph, node, live);
      else
        trim_outputs(graph, node, needed);
      status = trim_frames(graph, node, needed, error);
      if (status != NEAP_OK) goto done;
    }
  }

  /* Nodes and values that nothing needs are out of use by now; last the numbers close up. */
  status = compact(graph, live, error);
done:
  neap_free(live);
  neap_free(needed);
  return status;
}

/* ---- edges ----------------------------------------------------------------------------------- */

/* No edge from a value that exists before the graph runs (from < 0), nor from a node to itself. */
static neap_status add_edge(neap_graph *graph, int from, int to, neap_edge_kind kind,
                            neap_error *error) {
  if (from < 0 || from == to) return NEAP_OK;
  if (!neap_list_grow(&graph->edge, &graph->cap_edge, graph->n_edge + 1, sizeof *graph->edge))
    return graph_no_memory(error);
  graph->edge[graph->n_edge++] = (neap_edge){from, to, kind};
  return NEAP_OK;
}

/* For qsort. */
static int compare_edges(const void *a, const void *b) {
  const neap_edge *x = a, *y = b;
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  if (x->to != y->to) return x->to < y->to ? -1 : 1;
  return (int)x->kind - (int)y->kind; /* a data edge hides an order edge between the same nodes */
}

/* A reader behind the node that overwrites or frees what it reads. The user's own order is at
 * fault, so both are named. */
static neap_status edge_too_late(const neap_graph *graph, int reader, int writer, neap_value_id v,
                                 neap_error *error) {
  const neap_node *r = &graph->node[reader], *w = &graph->node[writer];
  neap_error inner = {0};
  bool release = (w->effects & NEAP_EFFECT_RELEASE) != 0;
  neap_fail(&inner, NEAP_GRAPH, "needs \"%s\" after %s \"%s\" has %s it", graph->value[v].name,
            w->op->name, w->name, release ? "freed" : "overwritten");

  /* What to do about it is another thing for a Free than for an update. */
  neap_hint(&inner, release ? "free it after its last reader, the backward pass included"
                            : "take the gradient before the update, or copy the blob first");
  return graph_locate(error, &inner, r->op->name, r->name, r->scope, r->line);
}

/* Node `last` writes the next version of v, or frees it: every other reader of v comes first. */
static neap_status readers_first(neap_graph *graph, const neap_uses *uses, neap_value_id v,
                                 int last, neap_error *error) {
  for (int u = uses->first[v]; u < uses->first[v + 1]; u++) {
    int reader = uses->list[u];
    if (reader > last) return edge_too_late(graph, reader, last, v, error);
    NEAP_TRY(add_edge(graph, reader, last, NEAP_EDGE_ORDER, error));
  }
  return add_edge(graph, graph->value[v].node, last, NEAP_EDGE_ORDER, error);
}

/* Edges from every node that can stop the run to every later one that commits. A node that can stop
 * and stands behind a commit (it reads what was committed) is left where it is:
 * neap_graph_stops_late. */
static neap_status checks_before_commits(neap_graph *graph, neap_error *error) {
  for (int c = 0; c < graph->n_node; c++) {
    if ((graph->node[c].effects & NEAP_EFFECT_COMMIT) == 0) continue;
    for (int f = 0; f < c; f++)
      if (neap_node_may_stop(&graph->node[f]))
        NEAP_TRY(add_edge(graph, f, c, NEAP_EDGE_ORDER, error));
  }
  return NEAP_OK;
}

/* A recomputation waits for all nodes before it: edges from those that nobody before it waits for.
 * *n_seen edges have been counted in `closed`, by node. */
static neap_status wait_for_all(neap_graph *graph, int n, bool *closed, int *n_seen,
                                neap_error *error) {
  for (; *n_seen < graph->n_edge; ++*n_seen) closed[graph->edge[*n_seen].from] = true;
  for (int m = 0; m < n; m++)
    if (!closed[m]) NEAP_TRY(add_edge(graph, m, n, NEAP_EDGE_ORDER, error));
  return NEAP_OK;
}

/* All edges, with repeats: data, readers before what overwrites or frees, checks before commits.
 * `closed`: zeroed room, by node. */
static neap_status collect_edges(neap_graph *graph, const neap_uses *uses, bool *closed,
                                 neap_error *error) {
  int n_seen = 0;
  for (int n = 0; n < graph->n_node; n++) {
    /* Edges of nodes before n are all there, so that a recomputation sees which of them nobody
     * waits for. */
    const neap_node *node = &graph->node[n];
    const bool releases = (node->effects & NEAP_EFFECT_RELEASE) != 0;
    if (node->recomputes > 0) NEAP_TRY(wait_for_all(graph, n, closed, &n_seen, error));
    for (int i = 0; i < node->n_in; i++)
      if (node->in[i] >= 0)
        NEAP_TRY(add_edge(graph, graph->value[node->in[i]].node, n, NEAP_EDGE_DATA, error));
    /* What is written in place or freed is not there any more for readers that come later. */
    for (int p = 0; p < node->n_enforced; p++)
      NEAP_TRY(readers_first(graph, uses, node->in[node->enforced[p].in], n, error));
    for (int i = 0; i < node->n_in; i++)
      if (releases && node->in[i] >= 0) NEAP_TRY(readers_first(graph, uses, node->in[i], n, error));
  }
  return checks_before_commits(graph, error);
}

/* Sorted, then the first of each (from, to) is kept. Fails where a reader stands behind what
 * overwrites or frees its value. */
neap_status graph_make_edges(neap_graph *graph, neap_error *error) {
  /* Made from nothing each time: passes change nodes and values and leave old edges behind. */
  neap_uses uses;
  graph->n_edge = 0;
  bool *closed = neap_alloc_zeroed((size_t)graph->n_node + 1);
  if (closed == NULL) return graph_no_memory(error);
  neap_status status = neap_graph_uses(graph, &uses, error);
  if (status == NEAP_OK) {
    status = collect_edges(graph, &uses, closed, error);
    neap_uses_fini(&uses);
  }
  neap_free(closed);
  if (status != NEAP_OK) return status;

  /* Sorted, so that what reads edges finds those of a node side by side. */
  if (graph->n_edge > 0)
    qsort(graph->edge, (size_t)graph->n_edge, sizeof *graph->edge, compare_edges);

  /* Equal pairs stand side by side, the data edge first: that one is kept. */
  int kept = 0;
  for (int e = 0; e < graph->n_edge; e++)
    if (kept == 0 || graph->edge[kept - 1].from != graph->edge[e].from ||
        graph->edge[kept - 1].to != graph->edge[e].to)
      graph->edge[kept++] = graph->edge[e];
  graph->n_edge = kept;
  if (NEAP_DEBUG) graph_check(graph);
  return NEAP_OK;
}

neap_status graph_finish(neap_graph *graph, bool by_op, neap_error *error) {
  if (!by_op) NEAP_TRY(commits_last(graph, error));
  NEAP_TRY(remove_dead(graph, by_op, error));
  return graph_make_edges(graph, error);
}
