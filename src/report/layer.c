/* layer.c: to which layer an op belongs. The ops that the user wrote are layers; all others were
 * made for one of them: its backward, its recomputation, the Reorders before and behind it, the sum
 * of the gradients of what it makes, the update of its parameters.
 *
 * INVARIANT: an owner owns itself. The ways to it go from made ops to those that they were made
 * for: a recomputation leads to an earlier node, a Reorder to a node that is none, a backward to
 * its forward. Gradients are found by the names of what they are of, casts and folded weights by
 * the name of the op that they were made for, and all are followed on.
 */
#include "report/report_int.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The node that `n` was made for, as the graph says; itself where nothing is said. */
static int made_for(const neap_graph *graph, int n) {
  /* As many steps as there are nodes are enough where the ways lead in no circle. */
  for (int steps = 0; steps <= graph->n_node; steps++) {
    const neap_node *node = &graph->node[n];
    int next = node->forward;
    if (node->recomputes > 0) next = node->recomputes - 1;
    if (node->serves > 0) next = node->serves - 1;
    if (next < 0 || next >= graph->n_node || next == n) return n;
    n = next;
  }
  NEAP_ASSERT(false, "what node %d of \"%s\" was made for is an op that the user wrote", n,
              graph->name);
  return n;
}

/* By root of a storage, the first forward node that reads one of its versions; -1: none. */
static void find_readers(const neap_graph *graph, int *reader) {
  for (int v = 0; v < graph->n_value; v++) reader[v] = -1;
  for (int n = graph->n_node - 1; n >= 0; n--) {
    const neap_node *node = &graph->node[n];
    if (node->phase != NEAP_PHASE_FORWARD) continue;
    for (int i = 0; i < node->n_in; i++)
      if (node->in[i] != NEAP_NO_VALUE) reader[graph->value[node->in[i]].root] = n;
  }
}

/* The layer that reads the parameter which an update writes; -1: it writes none, or several. */
static int parameter_reader(const neap_graph *graph, const neap_node *node, const int *reader) {
  int found = -1;

  /* An update writes over its parameter: of the pairs it must do in place, the one that is a
   * parameter's. */
  for (int p = 0; p < node->n_enforced; p++) {
    neap_value_id v = node->in[node->enforced[p].in];
    if (v == NEAP_NO_VALUE || graph->value[v].role != NEAP_ROLE_PARAMETER) continue;
    if (found >= 0) return -1;
    found = reader[graph->value[v].root];
  }
  return found;
}

/* The node that makes, or else first reads, the value whose gradient the node's first output is;
 * -1: it is no gradient's. */
static int of_gradient(const neap_graph *graph, const neap_node *node, const int *reader,
                       const neap_map *values) {
  if (node->n_out == 0) return -1;
  const char *name = graph->value[node->out[0]].gradient_of;
  int v = name != NULL ? neap_map_get(values, name, -1) : -1;
  if (v < 0) return -1;
  return graph->value[v].node >= 0 ? graph->value[v].node : reader[graph->value[v].root];
}

/* What is found by its name: values, of each name the last one, as gradients are called after
 * names; and nodes. */
typedef struct named {
  neap_map values, nodes;
} named;

static bool list_names(const neap_graph *graph, named *list) {
  for (int v = 0; v < graph->n_value; v++) {
    const neap_value *value = &graph->value[v];
    bool is_named = value->name != NULL && value->gradient_of == NULL && !value->is_reordered;
    if (is_named && !neap_map_set(&list->values, value->name, v)) return false;
  }
  for (int n = 0; n < graph->n_node; n++)
    if (!neap_map_set(&list->nodes, graph->node[n].name, n)) return false;
  return true;
}

/* The node that node `n`, of which the graph notes no other, is for by a name; -1: none. */
static int by_name(const neap_graph *graph, int n, const int *reader, const named *list) {
  const neap_node *node = &graph->node[n];
  if (node->made_for[0] != '\0') return neap_map_get(&list->nodes, node->made_for, -1);
  if (node->phase == NEAP_PHASE_UPDATE) return parameter_reader(graph, node, reader);
  if (node->phase == NEAP_PHASE_BACKWARD) return of_gradient(graph, node, reader, &list->values);
  return -1;
}

/* The op that the node was made for, found from op to op: a sum of a parameter's gradients leads to
 * the parameter's update, and that to the layer which reads it. Where the ways lead in a circle a
 * node is its own. */
static int find_owner(const neap_graph *graph, int n, const int *reader, const named *list) {
  /* By what the graph notes of its nodes first; by names where it notes nothing. */
  int owner = made_for(graph, n);
  for (int steps = 0; steps <= graph->n_node; steps++) {
    int other = by_name(graph, owner, reader, list);
    if (other < 0) return owner;
    int next = made_for(graph, other);
    if (next == owner) return owner;
    owner = next;
  }
  return n;
}

static void check_owners(const neap_graph *graph, const int *owner) {
  for (int n = 0; n < graph->n_node; n++)
    NEAP_ASSERT(owner[owner[n]] == owner[n], "the owner of node %d, %d, owns itself; it is %d's", n,
                owner[n], owner[owner[n]]);
}

int *report_owners(const neap_graph *graph) {
  int *owner = neap_alloc(((size_t)graph->n_node + 1) * sizeof *owner);
  int *reader = neap_alloc(((size_t)graph->n_value + 1) * sizeof *reader);
  named list = {0};
  const bool good = owner != NULL && reader != NULL && list_names(graph, &list);
  if (good) {
    find_readers(graph, reader);
    for (int n = 0; n < graph->n_node; n++) owner[n] = find_owner(graph, n, reader, &list);
    if (NEAP_DEBUG) check_owners(graph, owner);
  }

  neap_map_fini(&list.values);
  neap_map_fini(&list.nodes);
  neap_free(reader);
  if (good) return owner;
  neap_free(owner);
  return NULL;
}

/* Whether `part` is a name that net made up for an op of this type: "max_pool_3" for MaxPool. */
static bool is_made_up(const char *part, const char *type) {
  /* The type's letters in lower case, with "_" anywhere between; then "_" and a number. */
  for (; *type != '\0' && *part != '\0'; part++) {
    if (*part == '_') continue;
    if (tolower((unsigned char)*type++) != *part) return false;
  }

  /* All letters of the type were there: what is left must be the number. */
  if (*type != '\0' || *part++ != '_' || !isdigit((unsigned char)*part)) return false;
  return part[strspn(part, "0123456789")] == '\0';
}

/* What was said of it when it was added to the net: a module without parts says its path. Else its
 * name, or only its scope where the name adds nothing to it. */
const char *report_layer(const neap_graph *graph, int owner, char text[REPORT_LAYER_TEXT]) {
  const neap_node *n = &graph->node[owner];
  if (n->layer[0] != '\0') {
    snprintf(text, REPORT_LAYER_TEXT, "%s", n->layer);
    return text;
  }
  const char *slash = strrchr(n->name, '/');
  const char *part = slash != NULL ? slash + 1 : n->name;
  bool scope_says_it = n->scope != NULL && n->scope[0] != '\0' && is_made_up(part, n->op->name);
  snprintf(text, REPORT_LAYER_TEXT, "%s", scope_says_it ? n->scope : n->name);
  return text;
}
