/* op.c: ops of a net, in definition order, to nodes. Reads and writes names through the
 * environment, so that each write makes a new version. Ops that no kernel runs are expanded in
 * their place: Gradient, Do, scopes.
 *
 * INVARIANT: each name is bound to a value of its own: a value that would stand for two is copied.
 * INVARIANT: which random numbers an op draws says its place in the definition alone: not what
 * became of the ops before it, how many nodes that took, or how often it is built.
 */
#include "build/build_int.h"

#include <string.h>

/* Writes the outputs' names into the environment; each is a blob. What a Free names is no longer
 * there. */
static neap_status bind_names(neap_builder *b, const neap_net_op *op, const neap_value_id *out,
                              neap_error *error) {
  if ((op->op->effects & NEAP_EFFECT_RELEASE) != 0) {
    for (int i = 0; i < op->n_in; i++)
      if (op->in[i] != NULL) neap_map_remove(&b->env, op->in[i]);
    return NEAP_OK;
  }

  /* Each output is a new version of its name. */
  for (int k = 0; k < op->n_out; k++) {
    if (op->out[k] == NULL) continue;
    const neap_value_id v = out[k];
    NEAP_TRY(build_bind(b, op->out[k], v, error));
    b->graph->value[v].is_blob = true;
    /* A net that was written out says so of its blobs; reports read it of values. */
    const neap_net_blob *blob = neap_net_find_blob(b->net, op->out[k]);
    if (blob != NULL && blob->gradient_of != NULL)
      b->graph->value[v].gradient_of = neap_intern(blob->gradient_of);
  }
  return NEAP_OK;
}

/* A value that graph made itself becomes the blob `name`. */
static neap_status bind_value(neap_builder *b, const char *name, neap_value_id v,
                              neap_error *error) {
  b->graph->value[v].name = name;
  b->graph->value[v].is_blob = true;
  return build_bind(b, name, v, error);
}

neap_status build_read_names(neap_builder *b, const neap_net_op *op, neap_value_id **out,
                             neap_error *error) {
  neap_value_id *in = *out = build_ids(b, NEAP_MAX(op->n_in, 1));
  if (in == NULL) return graph_no_memory(error);
  for (int i = 0; i < op->n_in; i++) {
    neap_error inner = {0};
    in[i] = NEAP_NO_VALUE;
    if (op->in[i] != NULL && build_value_of(b, op->in[i], &in[i], &inner) != NEAP_OK)
      return graph_locate(error, &inner, op->op->name, op->name, op->scope, op->line);
  }
  return NEAP_OK;
}

/* An enforced pair of an op in a subnet whose input is the owner's transient blob writes a copy of
 * it; so does one whose input is a declared name that an op before has given a transient value. */
static neap_status copy_before_write(neap_builder *b, const neap_net_op *op, neap_value_id *in,
                                     neap_error *error) {
  build_begin_emit(b, error);
  for (int p = 0; p < op->op->n_enforced; p++) {
    int i = op->op->enforced[p].in;
    if (i >= op->n_in || in[i] < 0) continue;
    const neap_value *value = &b->graph->value[in[i]];
    bool lent = value->region == NEAP_REGION_ARGUMENT && !build_is_writable(value);
    bool pending = neap_map_get(&b->stored, op->in[i], NEAP_NO_VALUE) != NEAP_NO_VALUE;
    if (!lent && !pending) continue;
    in[i] = build_emit_copy(b, in[i]);
    NEAP_TRY(b->emit_status);
  }
  return NEAP_OK;
}

/* What subnets write in place, they may take a second time: as a sequence, or as what another state
 * begins with. That means the value from before the op, all along, and gets bytes of its own. The
 * condition of an If is read before anything is written. */
static neap_status copy_beside_write(neap_builder *b, const neap_node_spec *spec, neap_value_id *in,
                                     neap_error *error) {
  /* never run: readers and writer are one node either way */
  if (b->options->by_op && !b->is_sub) return NEAP_OK;
  build_begin_emit(b, error);

  for (int k = 0; k < spec->n_out; k++) {
    int source = build_version_source(b->graph, spec, k);
    if (source < 0) continue;
    /* Every other operand in the same bytes would change under its reader. */
    bool is_loop = (spec->op->effects & NEAP_EFFECT_LOOP) != 0;
    for (int i = is_loop ? 0 : BUILD_FIRST_CAPTURE; i < spec->n_in; i++) {
      if (i == source || in[i] < 0 ||
          b->graph->value[in[i]].root != b->graph->value[in[source]].root)
        continue;
      in[i] = build_emit_copy(b, in[i]);
      NEAP_TRY(b->emit_status);
    }
  }
  return NEAP_OK;
}

/* HasScope: known while the graph is built. CreateScope leaves nothing. */
static neap_status expand_scope(neap_builder *b, const neap_net_op *op, neap_error *error) {
  if (op->n_in == 0) return NEAP_OK;
  build_begin_emit(b, error);
  neap_value_id v = build_constant(b, (neap_type){NEAP_DTYPE_BOOL, NEAP_SHAPE(1)}, op->frame > 0);
  NEAP_TRY(b->emit_status);
  return bind_value(b, op->out[0], v, error);
}

neap_status build_copy(neap_builder *b, const char *from, const char *to, neap_error *error) {
  neap_value_id v;
  NEAP_TRY(build_value_of(b, from, &v, error));

  /* In a probe: a copy of what is not known is not known. */
  if (v == BUILD_UNKNOWN) return neap_map_set(&b->env, to, v) ? NEAP_OK : graph_no_memory(error);
  build_begin_emit(b, error);
  v = build_emit_copy(b, v);
  NEAP_TRY(b->emit_status);
  return bind_value(b, to, v, error);
}

/* The ops that building itself carries out. What is neither a Do nor a Gradient is CreateScope or
 * HasScope. */
static neap_status expand_pseudo(neap_builder *b, const neap_net_op *op, int next_op,
                                 neap_error *error) {
  if (neap_net_do_body(op) != NULL) return graph_expand_do(b, op, error);
  if (strcmp(op->op->name, "Gradient") == 0) return build_gradient(b, op, next_op, error);
  return expand_scope(b, op, error);
}

/* Node of this name, the newest first; -1: none. */
int build_find_node(const neap_graph *graph, const char *name) {
  for (int n = graph->n_node - 1; n >= 0; n--)
    if (strcmp(graph->node[n].name, name) == 0) return n;
  return -1;
}

/* build_node, with what an expanded net remembers: the phase, the other half of the pair. */
static neap_status build_from_origin(neap_builder *b, const neap_net_op *op,
                                     const neap_node_spec *spec, int *node, neap_error *error) {
  const neap_net_origin *origin = &op->origin;
  if (origin->backward) {
    /* The pair is found by name, as the net tells it; the kernels of both are then chosen as
     * one. */
    b->graph->train = true;
    b->phase = NEAP_PHASE_BACKWARD;
    b->forward = origin->forward != NULL ? build_find_node(b->graph, origin->forward) : -1;
  }
  neap_status status = build_node(b, spec, node, error);
  if (origin->backward) b->phase = NEAP_PHASE_FORWARD, b->forward = -1;
  return status;
}

/* The op draws from b->stream, and those of its subnets from what follows. */
static neap_status build_here(neap_builder *b, const neap_net_op *op, int next_op,
                              neap_error *error) {
  /* What leads to no length is left out of a probe, before anything of the op is looked at. */
  bool probe = (b->options->probe && !b->is_sub) || b->finds;
  if (probe && build_probe_skips(b, op)) return build_probe_skip(b, op, error);
  if ((op->op->effects & NEAP_EFFECT_PSEUDO) != 0) return expand_pseudo(b, op, next_op, error);

  if (strcmp(op->op->name, "LoopGradient") == 0) {
    NEAP_TRY(graph_build_loop_gradient(b, op, error));
    return bind_names(b, op, b->graph->node[b->graph->n_node - 1].out, error);
  }

  /* Where there may be a backward, optional outputs exist although the net does not name them: grad
   * may ask for a stash. Those that nobody reads in the end are trimmed. */
  bool has_backward = op->op->grad != NULL || op->op->grad_formula != NULL;
  int n_out = NEAP_MAX(op->n_out, b->all_outputs && has_backward ? neap_op_n_outputs(op->op) : 0);
  const char **out_name =
    neap_arena_alloc(&b->graph->arena, (size_t)(n_out + 1) * sizeof *out_name);
  if (out_name == NULL) return graph_no_memory(error);
  for (int k = 0; k < op->n_out; k++) out_name[k] = op->out[k];
  neap_node_spec spec = {.op = op->op,
                         .attrs = graph_copy_attrs(b->graph, op->op, op->attrs),
                         .n_in = op->n_in,
                         .n_out = n_out,
                         .out_name = out_name,
                         .name = neap_intern(op->name),
                         .scope = neap_intern(op->scope),
                         .layer = neap_intern(op->layer),
                         .line = neap_intern(op->line),
                         .device = neap_intern(op->device),
                         .stream = b->stream,
                         .in_blob = (const char *const *)op->in};
  neap_value_id *in, *out = build_ids(b, n_out + 1);
  int node;
  if (out == NULL || spec.attrs == NULL || spec.name == NULL || spec.scope == NULL ||
      spec.layer == NULL || spec.line == NULL || spec.device == NULL)
    return graph_no_memory(error);

  /* the texts are interned: a graph outlives its net */
  NEAP_TRY(build_read_names(b, op, &in, error));

  /* Copies come before the node, which reads them in place of what would be written. */
  NEAP_TRY(copy_before_write(b, op, in, error));
  spec.in = in;
  NEAP_TRY(copy_beside_write(b, &spec, in, error));

  /* What an expanded net says of its backward it says in full. */
  if (!op->origin.backward) NEAP_TRY(build_mix_inputs(b, &spec, in, error));
  NEAP_TRY(build_from_origin(b, op, &spec, &node, error));
  NEAP_TRY(build_mix_outputs(b, &spec, node, out, error));
  NEAP_TRY(bind_names(b, op, out, error));

  /* A probe ends where a length begins: whatever reads the outputs waits for it. */
  bool unknown =
    (b->graph->node[node].extent > 0 && b->graph->node[node].n_found < 0) || b->open == node + 1;
  return probe && unknown ? build_probe_unknown(b, op, error) : NEAP_OK;
}

/* An op that is left out, or remembers a stream, takes its own all the same. */
neap_status build_op(neap_builder *b, const neap_net_op *op, int next_op, neap_error *error) {
  uint32_t next = b->stream + neap_net_n_streams(op);
  if (op->origin.stream != 0) b->stream = op->origin.stream;
  neap_status status = build_here(b, op, next_op, error);
  b->stream = next;
  return status;
}

/* Entries of `recompute` are op positions in the net; an op may give several nodes, and all of them
 * are marked. */
neap_status build_ops(neap_builder *b, neap_error *error) {
  /* An op may become none, one or several nodes: those between `first` and the end are its own. */
  int n = neap_net_n_ops(b->net);
  for (int i = 0; i < n; i++) {
    int first = b->graph->n_node;
    NEAP_TRY(build_op(b, neap_net_op_at(b->net, i), i + 1, error));
    for (int r = 0; r < b->n_recompute; r++) {
      if (b->recompute[r] != i) continue;
      for (int m = first; m < b->graph->n_node; m++) b->graph->node[m].recompute = true;
    }
  }

  /* Once for what stands behind the last Gradient; each of those has done so for what stands before
   * it. */
  NEAP_TRY(build_keep_terms(b, error));
  return build_run_passes(b, NEAP_PASS_FORWARD, n, error);
}
