/* graph.c: the graph as a data structure: growth, uses, look-ups, sums.
 *
 * A graph is two lists, of values and of nodes, that name each other by index; a list of edges
 * comes when it is finished. Nodes stand in an order in which they can run. Small things (lists of
 * ids, attributes, texts made on the way) lie in the arena, which only grows: a graph is built
 * once, changed a little, and freed whole.
 *
 * INVARIANT: a value's `root` is the first version of its storage, itself where it is the first,
 * and never stands behind it.
 * INVARIANT: texts in values and nodes are interned or in the arena, never a net's own: a graph
 * outlives its net.
 */
#include "graph/graph_int.h"

#include <stdio.h>
#include <string.h>

const char *neap_region_name(neap_region region) {
  static const char *const name[] = {
#define X(symbol, text) text,
    NEAP_REGION_MAP(X)
#undef X
  };
  return (unsigned)region < NEAP_N_REGION ? name[region] : "?";
}

const char *neap_phase_name(neap_phase phase) {
  static const char *const name[] = {"forward", "backward", "update"};
  return (unsigned)phase < 3 ? name[phase] : "?";
}

neap_status graph_no_memory(neap_error *error) {
  return neap_fail(error, NEAP_MEMORY, "memory for a graph was refused");
}

/* `name` interned, or constant. NULL when refused. */
neap_graph *graph_new(const char *name) {
  neap_graph *graph = neap_alloc_zeroed(sizeof *graph);
  if (graph != NULL) graph->name = name;
  return graph;
}

/* Subgraphs belong to their nodes. NULL is allowed. */
void neap_graph_free(neap_graph *graph) {
  if (graph == NULL) return;
  for (int n = 0; n < graph->n_node; n++)
    for (int s = 0; s < graph->node[n].n_sub; s++) neap_graph_free(graph->node[n].sub[s]);

  /* Lists that grow are the heap's; all that they point to lies in the arena. */
  neap_free(graph->node);
  neap_free(graph->value);
  neap_free(graph->edge);
  neap_free(graph->gone);
  neap_free(graph->rewrite);
  neap_arena_fini(&graph->arena);
  neap_free(graph);
}

/* `type` may be that of another value, whose list moves as it grows: so it is copied first. */
int graph_add_value(neap_graph *graph, const char *name, const neap_type *type) {
  const neap_type own = *type;
  if (!neap_list_grow(&graph->value, &graph->cap_value, graph->n_value + 1, sizeof *graph->value))
    return -1;

  int id = graph->n_value++;

  /* Transient, made by nobody and a storage of its own, until the caller says otherwise. */
  graph->value[id] = (neap_value){.name = name,
                                  .type = own,
                                  .node = -1,
                                  .root = id,
                                  .argument = -1,
                                  .bytes = neap_type_bytes(&own)};
  return id;
}

/* Inputs and outputs are one list in the arena, so that a node costs one allocation; `forward` is
 * the node itself until somebody pairs it. */
int graph_add_node(neap_graph *graph, const neap_op *op, int n_in, int n_out) {
  neap_value_id *ids = neap_arena_alloc(&graph->arena, (size_t)(n_in + n_out) * sizeof *ids);
  if (ids == NULL ||
      !neap_list_grow(&graph->node, &graph->cap_node, graph->n_node + 1, sizeof *graph->node))
    return -1;
  int index = graph->n_node++;

  /* Texts are never NULL, so that whatever prints a node need not look. */
  graph->node[index] = (neap_node){.op = op,
                                   .n_in = n_in,
                                   .n_out = n_out,
                                   .in = ids,
                                   .out = ids + n_in,
                                   .forward = index,
                                   .name = "",
                                   .scope = "",
                                   .line = "",
                                   .device = "",
                                   .layer = "",
                                   .made_for = "",
                                   .effects = op->effects};
  return index;
}

bool graph_add_gone(neap_graph *graph, const char *name, const char *into) {
  if (!neap_list_grow(&graph->gone, &graph->cap_gone, graph->n_gone + 1, sizeof *graph->gone))
    return false;
  graph->gone[graph->n_gone].name = name;
  graph->gone[graph->n_gone++].into = into;
  return true;
}

bool graph_add_rewrite(neap_graph *graph, const neap_rewrite *rewrite) {
  if (!neap_list_grow(&graph->rewrite, &graph->cap_rewrite, graph->n_rewrite + 1,
                      sizeof *graph->rewrite))
    return false;
  graph->rewrite[graph->n_rewrite++] = *rewrite;
  return true;
}

/* Names in lists are interned and stay where they are; the list of them is copied like numbers,
 * which are as wide. */
neap_attr_value *graph_copy_attrs(neap_graph *graph, const neap_op *op,
                                  const neap_attr_value *attrs) {
  int n = neap_op_n_attrs(op);
  neap_attr_value *copy = neap_arena_copy(&graph->arena, attrs, (size_t)n * sizeof *copy);
  if (copy == NULL) return NULL;
  for (int i = 0; i < n; i++) {
    neap_attr_type type = op->attrs[i].type;
    bool is_list = type == NEAP_ATTR_INTS || type == NEAP_ATTR_FLOATS || type == NEAP_ATTR_AXES ||
                   type == NEAP_ATTR_NAMES;
    /* Texts are interned and nets the net's own: both stay where they are. */
    if (!is_list || copy[i].n == 0) continue;
    /* Elements of all lists are of 8 bytes. */
    copy[i].ints =
      neap_arena_copy(&graph->arena, copy[i].ints, (size_t)copy[i].n * sizeof(int64_t));
    if (copy[i].ints == NULL) return NULL;
  }
  return copy;
}

/* The first one to speak wins: an error that stands in *error already is not replaced, whatever
 * inner says. */
neap_status graph_locate(neap_error *error, const neap_error *inner, const char *type,
                         const char *name, const char *scope, const char *line) {
  if (error == NULL || error->code != NEAP_OK) return inner->code;
  *error = *inner;
  if (error->op[0] != '\0') return inner->code; /* a deeper op has located it */
  /* This op is the deepest that knows its name. */
  snprintf(error->message, sizeof error->message, "%s \"%s\": %.600s", type, name, inner->message);
  snprintf(error->op, sizeof error->op, "%s", type);
  snprintf(error->scope, sizeof error->scope, "%s", scope);
  snprintf(error->line, sizeof error->line, "%s", line);
  return inner->code;
}

/* Whether input i repeats an earlier input of the node, or is absent. */
static bool is_repeat(const neap_node *node, int i) {
  for (int j = 0; j < i; j++)
    if (node->in[j] == node->in[i]) return true;
  return node->in[i] < 0;
}

/* Counting sort: count, sum to ends, then fill from the last node down, so that each list
 * ascends. */
neap_status neap_graph_uses(const neap_graph *graph, neap_uses *out, neap_error *error) {
  out->list = NULL;
  out->first = neap_alloc_zeroed((size_t)(graph->n_value + 1) * sizeof *out->first);
  if (out->first == NULL) return graph_no_memory(error);

  /* How many readers each value has. */
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    for (int i = 0; i < node->n_in; i++)
      if (!is_repeat(node, i)) out->first[node->in[i]]++;
  }

  /* Where each list ends. */
  int total = 0;
  for (int v = 0; v < graph->n_value; v++) {
    total += out->first[v];
    out->first[v] = total;
  }
  out->first[graph->n_value] = total;
  out->list = neap_alloc((size_t)total * sizeof *out->list);
  if (out->list == NULL) {
    neap_uses_fini(out);
    return graph_no_memory(error);
  }

  /* Each reader before those that are there: when all are, the ends have become beginnings. */
  for (int n = graph->n_node - 1; n >= 0; n--) {
    const neap_node *node = &graph->node[n];
    for (int i = 0; i < node->n_in; i++)
      if (!is_repeat(node, i)) out->list[--out->first[node->in[i]]] = n;
  }
  return NEAP_OK;
}

void neap_uses_fini(neap_uses *uses) {
  neap_free(uses->first);
  neap_free(uses->list);
  memset(uses, 0, sizeof *uses);
}

/* The newest value of the name, and only where the name means it at the end: earlier versions can't
 * be asked for. O(values). */
neap_value_id neap_graph_find(const neap_graph *graph, const char *name) {
  for (int v = graph->n_value - 1; v >= 0; v--)
    if (graph->value[v].is_blob && graph->value[v].is_last &&
        strcmp(graph->value[v].name, name) == 0)
      return v;
  return NEAP_NO_VALUE;
}

const struct neap_gone *neap_graph_find_gone(const neap_graph *graph, const char *name) {
  for (int i = 0; i < graph->n_gone; i++)
    if (strcmp(graph->gone[i].name, name) == 0) return &graph->gone[i];
  return NULL;
}

/* What reports call the batch; 1 for a net whose inputs are all scalars, or that has none. */
int64_t neap_graph_batch(const neap_graph *graph) {
  for (int v = 0; v < graph->n_value; v++)
    if (graph->value[v].role == NEAP_ROLE_INPUT && graph->value[v].type.shape.n_dim > 0)
      return graph->value[v].type.shape.dim[0];
  return 1;
}

/* Length of "x" in "x.grad", 0 for any other label. */
size_t neap_gradient_stem(const char *label) {
  static const char suffix[] = ".grad";
  size_t n = label != NULL ? strlen(label) : 0, n_suffix = sizeof suffix - 1;
  if (n <= n_suffix || strcmp(label + n - n_suffix, suffix) != 0) return 0;
  return n - n_suffix;
}

/* Bytes an iteration of the loops whose frames grow, wherever they are nested. */
static size_t growing_bytes(const neap_graph *graph) {
  size_t total = 0;
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    /* The backward reads what its forward left: counted once. */
    if (node->loop != NULL && node->loop->grows && !node->loop->is_backward)
      total += node->loop->record_bytes;
    for (int s = 0; s < node->n_sub; s++) total += growing_bytes(node->sub[s]);
  }
  return total;
}

/* ---- what a failed run must put back --------------------------------------------------------- */

bool neap_node_may_stop(const neap_node *node) {
  const neap_loop *loop = node->loop;
  if ((node->effects & NEAP_EFFECT_FAULT) != 0) return true;

  /* Frames that grow are memory that a run asks for, and may be refused. */
  if (loop != NULL && loop->grows && !loop->is_backward && loop->frames >= 0) return true;
  for (int s = 0; s < node->n_sub; s++)
    for (int n = 0; n < node->sub[s]->n_node; n++)
      if (neap_node_may_stop(&node->sub[s]->node[n])) return true;
  return false;
}

/* Whether a run of the node alone may stop behind a commit of its own: in another iteration, or in
 * a branch. */
static bool stops_behind_itself(const neap_node *node) {
  if ((node->effects & NEAP_EFFECT_COMMIT) == 0 || !neap_node_may_stop(node)) return false;
  /* A loop: iteration t may stop when iteration t - 1 has committed. A kernel: nothing says in what
   * order it does the two. */
  if (node->loop != NULL || node->n_sub == 0) return true;
  for (int s = 0; s < node->n_sub; s++)
    if (neap_graph_stops_late(node->sub[s])) return true;
  return false;
}

/* Nodes are in an order of definition in which all that does not follow from a commit comes before
 * the first one; so what stands behind it runs behind it, whatever order the plan has. */
bool neap_graph_stops_late(const neap_graph *graph) {
  bool committed = false;
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];

    /* Behind a commit of another node, or behind one of its own. */
    if (committed && neap_node_may_stop(node)) return true;
    if (stops_behind_itself(node)) return true;
    if ((node->effects & NEAP_EFFECT_COMMIT) != 0) committed = true;
  }
  return false;
}

/* Whether a later version lies in the storage that v is the first of. */
static bool has_next_version(const neap_graph *graph, int v) {
  for (int u = v + 1; u < graph->n_value; u++)
    if (graph->value[u].root == v) return true;
  return false;
}

/* Of each storage that is there before the graph runs and gets a new version. */
static size_t copied_bytes(const neap_graph *graph) {
  /* Only where a run can fail behind a commit must it be possible to put back what was there. */
  if (!neap_graph_stops_late(graph)) return 0;
  size_t total = 0;
  for (int v = 0; v < graph->n_value; v++) {
    const neap_value *value = &graph->value[v];
    if (value->root != v || value->node >= 0) continue;
    if (value->region == NEAP_REGION_ARGUMENT) continue; /* counted by its owner */
    if (has_next_version(graph, v)) total += neap_align(value->bytes);
  }
  return total;
}

/* Each storage once, by its first version, aligned as a workspace lays it out. Frames are those
 * that grow at run time. */
size_t neap_graph_region_bytes(const neap_graph *graph, neap_region region) {
  if (region == NEAP_REGION_FRAME) return growing_bytes(graph);
  size_t total = region == NEAP_REGION_STATE ? copied_bytes(graph) : 0;

  /* Versions behind the first lie in its bytes. */
  for (int v = 0; v < graph->n_value; v++)
    if (graph->value[v].region == region && graph->value[v].root == v)
      total += neap_align(graph->value[v].bytes);
  return total;
}
