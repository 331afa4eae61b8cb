/* build.c: net to graph, as a whole: the ops (op.c), what they assign to declared blobs, then roles
 * and outputs, one half where that is asked for, the rewrites of inference, the finish.
 *
 * INVARIANT: only the last version of a name has the name's role; versions before it are transient.
 */
#include "build/build_int.h"

#include <string.h>

/* The last version of a name gets the name's role. A value that is two things at once (an output
 * that is also another blob's value) can't arise: each name was bound to a value of its own. */
static neap_status assign_roles(neap_builder *b, neap_error *error) {
  neap_graph *graph = b->graph;
  int n_output = neap_net_n_outputs(b->net);
  NEAP_TRY(build_check_keeps(b, error));
  graph->output =
    neap_arena_alloc(&graph->arena, (size_t)NEAP_MAX(n_output, 1) * sizeof *graph->output);
  if (graph->output == NULL) return graph_no_memory(error);

  for (int v = 0; v < graph->n_value; v++) {
    neap_value *value = &graph->value[v];
    /* A name stands for its newest value; versions before it keep the role of what is only
     * computed. */
    value->is_last = value->is_blob && neap_map_get(&b->env, value->name, -1) == v;
    /* What is resident already got its role where it was declared. */
    if (!value->is_last || value->region != NEAP_REGION_ARENA) continue;
    const neap_net_blob *blob = neap_net_find_blob(b->net, value->name);
    if (blob != NULL) value->role = blob->role;
    value->keep = (blob != NULL && blob->keep) || build_is_kept(b, value->name);
    /* Somebody will look for a kept value, so it has bytes of its own whatever its role is. */
    value->region = value->keep && build_region_of(value->role) == NEAP_REGION_ARENA
                      ? NEAP_REGION_IO
                      : build_region_of(value->role);
  }

  /* Outputs are fetched by name; an input or parameter that is also an output stays where it
   * lies. */
  for (int k = 0; k < n_output; k++) {
    const char *name = neap_net_output_at(b->net, k);
    neap_value_id v;
    NEAP_TRY(build_value_of(b, name, &v, error));
    neap_value *value = &graph->value[v];
    value->is_last = true;
    if (value->region == NEAP_REGION_ARENA)
      value->region = NEAP_REGION_IO, value->role = NEAP_ROLE_OUTPUT;
    graph->output[graph->n_output++] = v;
  }
  return NEAP_OK;
}

/* A workspace holds what the net declares, whoever reads it: it is a value, so that plans count it.
 * What an op has written in its place is there already. Of a layer's halves the forward counts
 * it. */
static neap_status hold_declared(neap_builder *b, neap_error *error) {
  for (int i = 0; i < neap_net_n_blobs(b->net); i++) {
    const neap_net_blob *blob = neap_net_blob_at(b->net, i);
    const bool is_held = blob->role == NEAP_ROLE_PARAMETER || blob->role == NEAP_ROLE_STATE ||
                         blob->role == NEAP_ROLE_GRADIENT || blob->role == NEAP_ROLE_INPUT;
    if (!is_held || blob->type.dtype == NEAP_DTYPE_NONE) continue;
    neap_value_id v;
    NEAP_TRY(build_value_of(b, blob->name, &v, error));
    /* One that an op makes is counted already, as the value of that op. */
    b->graph->value[v].is_held = b->graph->value[v].node < 0;
  }
  return NEAP_OK;
}

static int64_t n_built; /* atomic; for tests: nothing builds a net twice for one plan */

int64_t neap_n_built(void) { return __atomic_load_n(&n_built, __ATOMIC_RELAXED); }

/* Whether some op reads what others leave for their backward: one of the net, or of a subnet at any
 * depth, which may differentiate within. */
static bool has_gradient(const neap_net *net) {
  /* Known of the net itself; subnets are asked only where it has none. */
  if (neap_net_is_train(net)) return true;
  for (int i = 0; i < neap_net_n_ops(net); i++) {
    const neap_net_op *op = neap_net_op_at(net, i);
    for (int a = 0; a < neap_op_n_attrs(op->op); a++) {
      const neap_net *sub = op->op->attrs[a].type == NEAP_ATTR_NET ? op->attrs[a].net : NULL;
      if (sub != NULL && has_gradient(sub)) return true;
    }
  }
  return false;
}

/* Rewrites of inference come behind roles, since those say what nobody can ask for. On failure
 * nothing is left. */
neap_status neap_build(const neap_net *net, const neap_graph_options *options,
                       const neap_pass *passes, neap_graph **out, neap_error *error) {
  /* Counters and names to keep are shared with all subgraphs, whose builders point to them. */
  static const neap_graph_options none = {0};
  const neap_half *half = options != NULL ? options->half : NULL;
  uint32_t stream = NEAP_NET_FIRST_STREAM + (half != NULL ? half->stream : 0);
  int n_extent = 0;
  neap_build_count count = {0};
  neap_map kept = {0};
  __atomic_add_fetch(&n_built, 1, __ATOMIC_RELAXED);

  /* The ceilings come first: what they refuse would take long to build. */
  const neap_net_op *last = neap_net_too_large_at(net);
  if (last != NULL) {
    neap_error inner = {0};
    neap_net_fail_too_many("", &inner);
    return graph_locate(error, &inner, last->op->name, last->name, last->scope, last->line);
  }

  /* A probe is run for lengths alone and assigns nothing; a walk by op is never run. */
  neap_builder b = {
    .graph = graph_new(neap_intern(neap_net_name(net))),
    .net = net,
    .options = options != NULL ? options : &none,
    .passes = passes,
    .is_top = true,
    .assigns = options == NULL || !(options->by_op || options->probe),
    .all_outputs = half != NULL || (has_gradient(net) && (options == NULL || !options->by_op)),
    .forward = -1,
    .after = -1,
    .stream = stream,
    .first_stream = stream,
    .n_extent = &n_extent,
    .count = &count,
    .kept = &kept};
  if (b.graph != NULL) b.graph->probe = b.options->probe;

  /* Names to keep are known before the first op, whose passes would drop their values. */
  neap_status status = b.graph == NULL ? graph_no_memory(error) : build_keep_listed(&b, error);
  if (status == NEAP_OK) status = build_ops(&b, error);
  if (status == NEAP_OK && !b.options->probe && neap_net_is_train(net))
    status = build_keep_zeros(&b, error);
  if (status == NEAP_OK && !b.options->probe) status = build_mix_net_outputs(&b, error);

  /* Behind all ops, since only the newest value of a declared name becomes the blob. */
  if (status == NEAP_OK) status = build_assign_all(&b, error);
  if (status == NEAP_OK) build_check_names(&b);
  if (status == NEAP_OK && !b.options->probe && !b.options->by_op &&
      (half == NULL || !half->backward))
    status = hold_declared(&b, error);
  if (status == NEAP_OK && !b.options->probe) status = assign_roles(&b, error);
  if (status == NEAP_OK) build_check_roles(b.graph);

  /* A half is cut from the whole layer, whose outputs and keeps are known by now. */
  if (status == NEAP_OK && half != NULL) status = build_half(&b, error);
  if (status == NEAP_OK && NEAP_DEBUG) graph_check_nodes(b.graph);

  /* The forward of a half draws as its backward does, by no step of its own. */
  if (status == NEAP_OK) b.graph->step = b.graph->train && (half != NULL || neap_net_is_step(net));

  /* Fusing takes away values that a backward would read: a half trains, though its graph may not
   * say so. */
  bool infers = status == NEAP_OK && !b.graph->train && !b.options->no_fuse && !b.options->probe &&
                half == NULL;
  if (infers) status = build_run_passes(&b, NEAP_PASS_INFERENCE, neap_net_n_ops(net), error);

  /* No node comes behind this: dead ones go, and edges are drawn over what is left. */
  if (status == NEAP_OK) status = graph_finish(b.graph, b.options->by_op, error);
  if (status == NEAP_OK) status = graph_assign_banks(b.graph, net, b.options, error);
  build_fini(&b);
  neap_map_fini(&kept);
  if (status != NEAP_OK) {
    neap_graph_free(b.graph);
    return status;
  }
  *out = b.graph;
  return NEAP_OK;
}
