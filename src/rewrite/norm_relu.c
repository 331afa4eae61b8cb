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

/* False where memory is refused. An output that is left out has no name. */
static bool list_outputs(neap_map *list, const neap_net_op *op) {
  for (int k = 0; k < op->n_out; k++)
    if (op->out[k] != NULL && !neap_map_set(list, op->out[k], 1)) return false;
  return true;
}

/* Looks at one op on the way from a gradient: 1 where it takes a gradient of what `depends` lists,
 * 0 where not, and then what it gives is listed too if it reads of the list; -1 where memory is
 * refused. */
static int follow(neap_map *depends, const neap_net_op *op) {
  bool reads = false;
  for (int k = 0; k < op->n_in; k++)
    if (op->in[k] != NULL && neap_map_get(depends, op->in[k], 0) != 0) reads = true;
  if (!reads) return 0;
  if (strcmp(op->op->name, "Gradient") == 0) return 1;
  return list_outputs(depends, op) ? 0 : -1;
}

/* Whether a gradient is taken, from op `next_op` on, of what the gradient before it gives: of a
 * norm with relu there is no second one. 1 or 0; -1 where memory is refused. */
static int is_taken_twice(const neap_net *net, int next_op) {
  neap_map depends = {0};
  int answer = 0;

  /* What the first gradient gives; then all that is made of it, in the order of definition. */
  if (next_op > 0 && !list_outputs(&depends, neap_net_op_at(net, next_op - 1))) answer = -1;
  for (int i = next_op; i < neap_net_n_ops(net); i++) {
    if (answer != 0) break;
    answer = follow(&depends, neap_net_op_at(net, i));
  }
  neap_map_fini(&depends);
  return answer;
}

/* BatchNorm takes over the Relu's output value, so that readers and names stay. The Relu keeps its
 * place in the list with no input and an output that nobody reads: node numbers do not move here,
 * finish.c takes it out. */
neap_status rewrite_norm_relu(neap_builder *b, int next_op, neap_error *error) {
  neap_graph *graph = neap_builder_graph(b);
  int is_twice = is_taken_twice(neap_builder_net(b), next_op);
  if (is_twice < 0) return graph_no_memory(error);
  if (is_twice > 0) return NEAP_OK;

  /* Each norm of the forward that has no relu yet. */
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
