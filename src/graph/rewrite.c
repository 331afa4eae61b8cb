/* rewrite.c: engine-free rewrites of the forward graph, before its gradient is taken. Each keeps the result of every
 * value that stays, and removes a value only when nobody can ask for it.
 *
 *   BatchNorm, then Relu of its output alone  ->  BatchNorm with relu = true: one pass over memory less in each direction,
 *   and the backward reads a mask of bits instead of an activation.
 */
#include "graph/graph_int.h"

#include <string.h>

/* Operand positions that read v; *reader: the last node that does, untouched when none. */
static int n_readers(const neap_graph *graph, neap_value_id v, int *reader) {
  int n = 0;
  for (int i = 0; i < graph->n_node; i++)
    for (int k = 0; k < graph->node[i].n_in; k++)
      if (graph->node[i].in[k] == v) n++, *reader = i;
  return n;
}

/* Whether the blob may vanish: nobody keeps it, names it as an output, or reads it in an op still to come. */
static bool is_free_to_go(const neap_builder *b, neap_value_id v, int next_op) {
  const neap_value *value = &b->graph->value[v];
  if (value->region != NEAP_REGION_ARENA) return false;
  if (!value->is_blob || neap_map_get(&b->env, value->name, -1) != v) return true;
  const neap_net_blob *blob = neap_net_find_blob(b->net, value->name);
  if (blob != NULL && (blob->keep || blob->role != NEAP_ROLE_ACTIVATION)) return false;
  if (blob != NULL && blob->bank != NULL && b->options->n_bank > 0) return false; /* it lies where it was said to */
  for (int i = 0; i < b->options->n_keep; i++)
    if (strcmp(b->options->keep[i], value->name) == 0) return false;
  for (int i = 0; i < neap_net_n_outputs(b->net); i++)
    if (neap_net_output_at(b->net, i) == value->name) return false;
  if (graph_do_may_read(b, value->name, next_op)) return false;
  for (int i = next_op; i < neap_net_n_ops(b->net); i++)
    for (int k = 0; k < neap_net_op_at(b->net, i)->n_in; k++)
      if (neap_net_op_at(b->net, i)->in[k] == value->name) return false;
  return true;
}

/* BatchNorm takes over the Relu's output value, so that readers and names stay. The Relu keeps its place in the list with no
 * input and an output that nobody reads: node numbers do not move here, finish.c takes it out. */
static neap_status fuse_batch_norm_relu(neap_builder *b, int next_op, neap_error *error) {
  neap_graph *graph = b->graph;
  for (int n = 0; n < graph->n_node; n++) {
    neap_node *norm = &graph->node[n];
    int relu_attr = strcmp(norm->op->name, "BatchNorm") == 0 ? neap_op_attr_index(norm->op, "relu") : -1, reader = -1;
    if (relu_attr < 0 || norm->phase != NEAP_PHASE_FORWARD || norm->attrs[relu_attr].i != 0) continue;
    neap_value_id y = norm->out[0];
    if (n_readers(graph, y, &reader) != 1 || strcmp(graph->node[reader].op->name, "Relu") != 0 || !is_free_to_go(b, y, next_op))
      continue;
    neap_node *relu = &graph->node[reader];
    if (b->options->n_bank > 0 && !graph_same_bank(relu->device, norm->device)) continue; /* each works in its own */
    neap_value_id z = relu->out[0];
    if (graph->value[y].is_blob && graph->value[y].name != graph->value[z].name &&
        !graph_add_gone(graph, graph->value[y].name, norm->name))
      return graph_no_memory(error);
    norm->attrs[relu_attr].i = 1;
    norm->out[0] = z;
    graph->value[z].node = n;
    graph->value[z].position = 0;
    relu->out[0] = y; /* the node dies with its unread output */
    graph->value[y].node = reader;
    graph->value[y].is_blob = false;
    relu->in[0] = NEAP_NO_VALUE;
  }
  return NEAP_OK;
}

neap_status graph_rewrite(neap_builder *b, int next_op, neap_error *error) { return fuse_batch_norm_relu(b, next_op, error); }
