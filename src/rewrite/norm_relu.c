/* norm_relu.c: BatchNorm, then Relu of its output alone, becomes BatchNorm with relu = true: one
 * pass over memory less in each direction, and the backward reads a mask of bits instead of an
 * activation. Before the gradient is taken. Every value that stays keeps its result, and one is
 * removed only when nobody can ask for it.
 */
#include "rewrite/rewrite_int.h"

#include <string.h>

/* By value: how many operand positions read it, and the last node that does. Of what is still to
 * be looked at no rewrite changes them. */
typedef struct value_readers {
  int n, last;
} value_readers;

/* From neap_alloc; NULL when memory is refused. */
static value_readers *count_readers(const neap_graph *graph) {
  value_readers *readers = neap_alloc_zeroed(((size_t)graph->n_value + 1) * sizeof *readers);
  if (readers == NULL) return NULL;
  for (int n = 0; n < graph->n_node; n++)
    for (int i = 0; i < graph->node[n].n_in; i++) {
      const neap_value_id v = graph->node[n].in[i];
      if (v == NEAP_NO_VALUE) continue;
      readers[v].n++;
      readers[v].last = n;
    }
  return readers;
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

/* Whether norm n, which has no relu yet, can have that of the Relu which alone reads its output:
 * *relu, a node. */
static bool has_own_relu(neap_builder *b, const value_readers *readers, int n, int next_op,
                         int *relu) {
  /* Its output is read by a Relu, by nobody else, and can't be asked for. */
  const neap_graph *graph = neap_builder_graph(b);
  const neap_node *norm = &graph->node[n];
  const neap_value_id y = norm->out[0];
  if (readers[y].n != 1) return false;
  *relu = readers[y].last;
  const neap_node *reader = &graph->node[*relu];
  if (strcmp(reader->op->name, "Relu") != 0 || !neap_builder_may_go(b, y, next_op)) return false;

  /* Ops of different banks stay apart: each works in its own. */
  return neap_builder_options(b)->n_bank == 0 || graph_same_bank(reader->device, norm->device);
}

/* BatchNorm takes over the Relu's output value, so that readers and names stay. The Relu keeps its
 * place in the list with no input and an output that nobody reads: node numbers do not move here,
 * finish.c takes it out. */
static neap_status take_relu(neap_graph *graph, int n, int relu_node, neap_error *error) {
  /* The name of what goes stays explained; then the norm gives what the Relu gave. */
  neap_node *norm = &graph->node[n], *relu = &graph->node[relu_node];
  const neap_value_id y = norm->out[0], z = relu->out[0];
  if (graph->value[y].is_blob && graph->value[y].name != graph->value[z].name &&
      !graph_add_gone(graph, graph->value[y].name, norm->name))
    return graph_no_memory(error);
  norm->attrs[neap_op_attr_index(norm->op, "relu")].i = 1;
  norm->out[0] = z;
  graph->value[z].node = n;
  graph->value[z].position = 0;

  /* The Relu has the output that nobody reads, and dies with it. */
  relu->out[0] = y;
  graph->value[y].node = relu_node;
  graph->value[y].is_blob = false;
  relu->in[0] = NEAP_NO_VALUE;
  return NEAP_OK;
}

neap_status rewrite_norm_relu(neap_builder *b, int next_op, neap_error *error) {
  neap_graph *graph = neap_builder_graph(b);
  int is_twice = is_taken_twice(neap_builder_net(b), next_op);
  if (is_twice < 0) return graph_no_memory(error);
  if (is_twice > 0) return NEAP_OK;
  value_readers *readers = count_readers(graph);
  if (readers == NULL) return graph_no_memory(error);

  /* Each norm of the forward that has no relu yet. */
  neap_status status = NEAP_OK;
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *norm = &graph->node[n];
    if (norm->phase != NEAP_PHASE_FORWARD || strcmp(norm->op->name, "BatchNorm") != 0) continue;
    const int relu_attr = neap_op_attr_index(norm->op, "relu");
    int relu;
    if (relu_attr < 0 || norm->attrs[relu_attr].i != 0) continue;
    if (has_own_relu(b, readers, n, next_op, &relu)) status = take_relu(graph, n, relu, error);
    if (status != NEAP_OK) break;
  }
  neap_free(readers);
  return status;
}
