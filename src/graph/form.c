/* form.c: whether two graphs differ in sizes alone, as those of one net at two batch sizes do. Then
 * what was decided for the one (choices, order, who shares bytes with whom) can be taken over by
 * the other, node by node and value by value.
 *
 * Sizes are shapes, bytes, and the attributes that hold shapes; so attributes are not compared.
 * Names and lines are not either.
 */
#include "graph/graph_int.h"

#include <string.h>

static bool same_ids(const neap_value_id *a, const neap_value_id *b, int n) {
  return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static bool same_pairs(const neap_pair *a, const neap_pair *b, int n) {
  return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* All but names, shapes, layouts and bytes. The rank counts: it says which dimensions kernels
 * see. */
static bool same_value(const neap_value *a, const neap_value *b) {
  return a->type.dtype == b->type.dtype && a->type.shape.n_dim == b->type.shape.n_dim &&
         a->role == b->role && a->region == b->region && a->is_stash == b->is_stash &&
         a->keep == b->keep && a->node == b->node && a->position == b->position &&
         a->root == b->root && a->argument == b->argument;
}

/* The choice is not compared: it is what is to be taken over. */
static bool same_node(const neap_node *a, const neap_node *b) {
  return a->op == b->op && a->n_in == b->n_in && a->n_out == b->n_out &&
         a->n_enforced == b->n_enforced && a->n_sub == b->n_sub &&
         (a->loop == NULL) == (b->loop == NULL) && a->phase == b->phase &&
         a->forward == b->forward && a->effects == b->effects && same_ids(a->in, b->in, a->n_in) &&
         same_ids(a->out, b->out, a->n_out) && same_pairs(a->enforced, b->enforced, a->n_enforced);
}

/* GRAPH error for the first difference, subgraphs included. Nodes come before counts, so that the
 * message names an op where it can. O(nodes + values). */
neap_status neap_graph_check_form(const neap_graph *graph, const neap_graph *like,
                                  neap_error *error) {
  /* The shorter one's nodes: where one graph goes on, the counts say so. */
  int n_common = NEAP_MIN(graph->n_node, like->n_node);
  for (int n = 0; n < n_common; n++) {
    const neap_node *a = &graph->node[n], *b = &like->node[n];
    if (!same_node(a, b))
      return neap_fail(error, NEAP_GRAPH, "op %d is %s \"%s\" in one graph, %s \"%s\" in the other",
                       n + 1, a->op->name, a->name, b->op->name, b->name);
    for (int s = 0; s < a->n_sub; s++) NEAP_TRY(neap_graph_check_form(a->sub[s], b->sub[s], error));
  }
  if (graph->n_node != like->n_node || graph->n_value != like->n_value ||
      graph->n_output != like->n_output || graph->n_param != like->n_param ||
      graph->n_edge != like->n_edge)
    return neap_fail(error, NEAP_GRAPH, "one graph has %d ops and %d values, the other %d and %d",
                     graph->n_node, graph->n_value, like->n_node, like->n_value);

  /* Nodes and counts are equal by now, so that a number means one value in both. */
  for (int v = 0; v < graph->n_value; v++)
    if (!same_value(&graph->value[v], &like->value[v]))
      return neap_fail(error, NEAP_GRAPH,
                       "value %d is \"%s\" in one graph, \"%s\" in the other, of another kind",
                       v + 1, graph->value[v].name, like->value[v].name);
  if (!same_ids(graph->output, like->output, graph->n_output) ||
      !same_ids(graph->param, like->param, graph->n_param))
    return neap_fail(error, NEAP_GRAPH, "the graphs give other values as results");
  return NEAP_OK;
}
