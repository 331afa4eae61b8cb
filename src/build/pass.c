/* pass.c: passes run on a graph under construction, and what they see of it. */
#include "build/build_int.h"

neap_status build_run_passes(neap_builder *b, neap_pass_when when, int next_op, neap_error *error) {
  if (b->passes == NULL) return NEAP_OK;
  for (const neap_pass *pass = b->passes; pass->name != NULL; pass++)
    if (pass->when == when) NEAP_TRY(pass->run(b, next_op, error));
  return NEAP_OK;
}

neap_graph *neap_builder_graph(neap_builder *b) { return b->graph; }
const neap_net *neap_builder_net(const neap_builder *b) { return b->net; }
const neap_graph_options *neap_builder_options(const neap_builder *b) { return b->options; }

bool neap_builder_may_go(const neap_builder *b, neap_value_id v, int next_op) {
  const neap_value *value = &b->graph->value[v];
  if (value->region != NEAP_REGION_ARENA) return false;

  /* Nobody can name an older version, nor what the graph made for itself. */
  if (!value->is_blob || neap_map_get(&b->env, value->name, -1) != v) return true;
  const neap_net_blob *blob = neap_net_find_blob(b->net, value->name);
  if (blob != NULL && (blob->keep || blob->role != NEAP_ROLE_ACTIVATION)) return false;

  /* it lies where it was said to */
  if (blob != NULL && blob->bank != NULL && b->options->n_bank > 0) return false;

  /* Nor may go what the options keep, the net gives, or an op to come still reads. */
  if (neap_map_get(b->kept, value->name, 0) != 0) return false;
  for (int i = 0; i < neap_net_n_outputs(b->net); i++)
    if (neap_net_output_at(b->net, i) == value->name) return false;
  if (graph_do_may_read(b, value->name, next_op)) return false;
  for (int i = next_op; i < neap_net_n_ops(b->net); i++)
    for (int k = 0; k < neap_net_op_at(b->net, i)->n_in; k++)
      if (neap_net_op_at(b->net, i)->in[k] == value->name) return false;
  return true;
}

neap_status neap_builder_emit(neap_builder *b, const char *type, int n_in, const neap_value_id *in,
                              int n_out, neap_value_id *out, const neap_grad *inherit,
                              const neap_set *set, neap_error *error) {
  neap_grad grad = build_emitter(b);
  build_begin_emit(b, error);
  neap_grad_emit(&grad, type, n_in, in, n_out, out, inherit, set);
  neap_status status = b->emit_status;
  b->emit_status = NEAP_OK;
  return status;
}
