/* norm_relu.c: BatchNorm, then Relu of its output alone, becomes BatchNorm with relu = true: one
 * pass over memory less in each direction, and the backward reads a mask of bits instead of an
 * activation. Before the gradient is taken. Every value that stays keeps its result, and one is
 * removed only when nobody can ask for it.
 */
#include "rewrite/rewrite_int.h"

#include <string.h>

/* Operand positions that read v; *reader: the last node that does, untouched when none. */
static int n_readers(const neap_graph *graph, neap_value_id v, int *reader) {
  int n = 0;
  for (int i = 0; i < graph->n_node; i++)
    for (int k = 0; k < graph->node[i].n_in; k++)
      if (graph->node[i].in[k] == v) {
        n++;
        *reader = i;
      }
  return n;
}

/* BatchNorm takes over the Relu's output value, so that readers and names stay. The Relu keeps its
 * place in the list with no input and an output that nobody reads: node numbers do not move here,
 * finish.c takes it out. */
neap_status rewrite_norm_relu(neap_builder *b, int next_op, neap_error *error) {
  neap_graph *graph = neap_builder_graph(b);
  for (int n = 0; n < graph->n_node; n++) {
    neap_node *norm = &graph->node[n];
    if (strcmp(norm->op->name, "BatchNorm") != 0) continue;
    int relu_attr = neap_op_attr_index(norm->op, "relu");
    if (relu_attr < 0 || norm->phase != NEAP_PHASE_FORWARD || norm->attrs[relu_attr].i != 0)
      continue;
    /* Its output is read by a Relu, by nobody else, and can't be asked for. */
    neap_value_id y = norm->out[0];
    int reader = -1;
    if (n_readers(graph, y, &reader) != 1 || strcmp(graph->node[reader].op->name, "Relu") != 0)
      continue;
    if (!neap_builder_may_go(b, y, next_op)) continue;
    /* Ops of different banks stay apart: each works in its own. */
    neap_node *relu = &graph->node[reader];
    if (neap_builder_options(b)->n_bank > 0 && !graph_same_bank(relu->device, norm->device))
      continue;
    /* The name of what goes stays explained; then the norm gives what the Relu gave. */
    neap_value_id z = relu->out[0];
    if (graph->value[y].is_blob && graph->value[y].name != graph->value[z].name &&
        !graph_add_gone(graph, graph->value[y].name, norm->name))
      return graph_no_memory(error);
    norm->attrs[relu_attr].i = 1;
    norm->out[0] = z;
    graph->value[z].node = n;
    graph->value[z].position = 0;
    /* The Relu has the output that nobody reads, and dies with it. */
    relu->out[0] = y;
    graph->value[y].node = reader;
    graph->value[y].is_blob = false;
    relu->in[0] = NEAP_NO_VALUE;
  }
  return NEAP_OK;
}
