/* loop_gradient_op.c: the backward of a loop in a net that is written out (to_net.c): one op, which
 * says of which loop it is, what arrives and what is wanted. The loop's gradient is taken again
 * from that, and the cut made again (loop_gradient.c): a text that spelled out frames, ports and
 * items could break their invariant (graph.h).
 *
 * INVARIANT: the operands that the op names are those that its loop was given.
 */
#include "build/build_int.h"

/* What the op says of its loop: which gradients arrive, which are wanted. The other operands must
 * be what the loop was given. */
static neap_status check_operands(const neap_builder *b, const neap_net_op *op,
                                  const neap_node *node, const neap_value_id *in, bool *want,
                                  neap_error *error) {
  /* A text may name anything: the loop must be one of the forward, and be differentiated here for
   * the first time. */
  const neap_graph *graph = b->graph;
  const neap_attr_value *wrt = &op->attrs[neap_op_attr_index(op->op, "wrt")];
  if (node->loop == NULL || node->loop->is_backward || node->loop->frames >= 0 ||
      op->n_in < node->n_out)
    return neap_fail(error, NEAP_GRAPH,
                     "expects a loop whose gradient is not taken yet, and a gradient or _ for each "
                     "of its results");
  for (int k = 0; k < node->n_out; k++)
    if (in[k] >= 0 && !neap_type_equal(&graph->value[in[k]].type, &graph->value[node->out[k]].type))
      return neap_fail(error, NEAP_SHAPE,
                       "the gradient of result %d has another type than the result", k + 1);

  /* The other names tell memonger what the op reads; a name may have got another value since. */
  for (int i = node->n_out; i < op->n_in; i++) {
    bool is_given = in[i] < 0;
    for (int k = 0; k < node->n_in; k++)
      if (node->in[k] == in[i]) is_given = true;
    if (!is_given)
      return neap_fail(error, NEAP_GRAPH, "\"%s\" is not what the loop was given under this name",
                       op->in[i]);
  }

  /* And what is asked for are inputs that the loop has. */
  for (int k = 0; k < wrt->n; k++) {
    if (wrt->ints[k] < 0 || wrt->ints[k] >= node->n_in || node->in[wrt->ints[k]] < 0)
      return neap_fail(error, NEAP_ATTRIBUTE, "wrt: the loop has no input %lld",
                       (long long)wrt->ints[k]);
    want[wrt->ints[k]] = true;
  }
  return NEAP_OK;
}

static neap_status build_backward(neap_builder *b, const neap_net_op *op, neap_error *error) {
  int index = op->origin.forward != NULL ? build_find_node(b->graph, op->origin.forward) : -1;
  if (index < 0)
    return neap_fail(error, NEAP_GRAPH, "there is no loop \"%s\" before it",
                     op->origin.forward != NULL ? op->origin.forward : "_");

  /* By value, since the gradient adds nodes to the list. */
  const neap_node node = b->graph->node[index];
  bool *want = neap_arena_alloc(&b->graph->arena, (size_t)node.n_in + 1);
  neap_value_id *in, *din = build_ids(b, node.n_in + 1);
  if (want == NULL || din == NULL) return graph_no_memory(error);
  NEAP_TRY(build_read_names(b, op, &in, error));
  NEAP_TRY(check_operands(b, op, &node, in, want, error));

  /* It is emitted as in any gradient, and then gets the names that the net has for it. */
  for (int i = 0; i < node.n_in; i++) din[i] = NEAP_NO_VALUE;
  b->forward = index;
  neap_status status = graph_gradient_loop(b, index, in, want, din, error);
  b->forward = -1;
  if (status != NEAP_OK) return status;

  /* The last node that was added is the backward loop. */
  neap_node *back = &b->graph->node[b->graph->n_node - 1];
  if (back->n_out != op->n_out)
    return neap_fail(error, NEAP_GRAPH,
                     "gives %d gradients, of the inputs in wrt that one reaches, got %d names",
                     back->n_out, op->n_out);

  /* The op's own texts, and the blobs that the net names as its outputs. */
  back->name = neap_intern(op->name), back->scope = neap_intern(op->scope),
  back->layer = neap_intern(op->layer), back->line = neap_intern(op->line);
  for (int k = 0; k < op->n_out; k++) b->graph->value[back->out[k]].name = op->out[k];
  const bool has_all =
    back->name != NULL && back->scope != NULL && back->layer != NULL && back->line != NULL;
  return has_all ? NEAP_OK : graph_no_memory(error);
}

neap_status graph_build_loop_gradient(neap_builder *b, const neap_net_op *op, neap_error *error) {
  neap_error inner = {0};
  b->graph->train = true;
  if (build_backward(b, op, &inner) == NEAP_OK) return NEAP_OK;
  return graph_locate(error, &inner, op->op->name, op->name, op->scope, op->line);
}
