/* build.c: net to graph, as a whole: the ops (op.c), what they assign to declared blobs, then roles
 * and outputs, one half where that is asked for, the rewrites of inference, the finish.
 *
 * INVARIANT: only the last version of a name has the name's role; versions before it are transient.
 */
#include "build/build_int.h"

#include <stdio.h>
#include <string.h>

bool build_is_kept(const neap_builder *b, const char *name) {
  for (int i = 0; i < b->options->n_keep; i++)
    if (strcmp(b->options->keep[i], name) == 0) return true;
  return b->options->keep_all;
}

/* "x.grad" is kept, but no gradient reaches x: it is zero, and has bytes like any other that is
 * kept. */
static neap_status keep_zero_gradients(neap_builder *b, neap_error *error) {
  static const char suffix[] = ".grad";
  build_begin_emit(b, error);
  for (int i = 0; i < b->options->n_keep; i++) {
    const char *name = b->options->keep[i];
    size_t n = strlen(name), n_suffix = sizeof suffix - 1;
    char base[256];
    if (n <= n_suffix || n >= sizeof base || strcmp(name + n - n_suffix, suffix) != 0) continue;
    snprintf(base, sizeof base, "%.*s", (int)(n - n_suffix), name);
    const char *kept = neap_intern(name), *of = neap_intern(base);
    if (kept == NULL || of == NULL) return graph_no_memory(error);
    neap_value_id v = neap_map_get(&b->env, of, -1);
    if (neap_map_get(&b->env, kept, -1) >= 0 || v < 0 ||
        !neap_dtype_is_float(b->graph->value[v].type.dtype))
      continue;
    neap_value_id zero = build_constant(b, b->graph->value[v].type, 0);
    NEAP_TRY(b->emit_status);
    b->graph->value[zero].name = kept;
    b->graph->value[zero].is_blob = true;
    if (!neap_map_set(&b->env, kept, zero)) return graph_no_memory(error);
  }
  return NEAP_OK;
}

/* A name to keep that the net lacks is a slip of the pen, and would be missed when it is
 * fetched. */
static neap_status check_keeps(const neap_builder *b, neap_error *error) {
  /* Labels too, not only blobs: "x.grad" names a value that graph made. */
  for (int i = 0; i < b->options->n_keep; i++) {
    const char *name = b->options->keep[i];
    int v = 0;
    while (v < b->graph->n_value && strcmp(b->graph->value[v].name, name) != 0) v++;
    if (v < b->graph->n_value) continue;
    const char *best = NULL;
    int least = 1 + (int)strlen(name) / 3;
    for (v = 0; v < b->graph->n_value; v++) {
      int d = neap_text_distance(name, b->graph->value[v].name);
      if (d <= least) least = d - 1, best = b->graph->value[v].name;
    }
    neap_fail(error, NEAP_NAME, "keep: net \"%s\" has no blob \"%s\"", neap_net_name(b->net), name);
    if (best != NULL) neap_hint(error, "did you mean \"%s\"?", best);
    return NEAP_NAME;
  }
  return NEAP_OK;
}

/* The last version of a name gets the name's role. A value that is two things at once (an output
 * that is also another blob's value) can't arise: each name was bound to a value of its own. */
static neap_status assign_roles(neap_builder *b, neap_error *error) {
  neap_graph *graph = b->graph;
  int n_output = neap_net_n_outputs(b->net);
  NEAP_TRY(check_keeps(b, error));
  graph->output =
    neap_arena_alloc(&graph->arena, (size_t)NEAP_MAX(n_output, 1) * sizeof *graph->output);
  if (graph->output == NULL) return graph_no_memory(error);
  for (int v = 0; v < graph->n_value; v++) {
    neap_value *value = &graph->value[v];
    value->is_last = value->is_blob && neap_map_get(&b->env, value->name, -1) == v;
    if (!value->is_last || value->region != NEAP_REGION_ARENA) continue;
    const neap_net_blob *blob = neap_net_find_blob(b->net, value->name);
    if (blob != NULL) value->role = blob->role;
    value->keep = (blob != NULL && blob->keep) || build_is_kept(b, value->name);
    value->region = value->keep && build_region_of(value->role) == NEAP_REGION_ARENA
                      ? NEAP_REGION_IO
                      : build_region_of(value->role);
  }
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

/* Rewrites of inference come behind roles, since those say what nobody can ask for. On failure
 * nothing is left. */
neap_status neap_build(const neap_net *net, const neap_graph_options *options,
                       const neap_pass *passes, neap_graph **out, neap_error *error) {
  static const neap_graph_options none = {0};
  const neap_half *half = options != NULL ? options->half : NULL;
  uint32_t stream = NEAP_NET_FIRST_STREAM + (half != NULL ? half->stream : 0);
  int n_extent = 0;
  neap_build_count count = {0};
  const neap_net_op *last = neap_net_too_large_at(net);
  if (last != NULL) {
    neap_error inner = {0};
    neap_net_fail_too_many("", &inner);
    return graph_locate(error, &inner, last->op->name, last->name, last->scope, last->line);
  }
  neap_builder b = {
    .graph = graph_new(neap_intern(neap_net_name(net))),
    .net = net,
    .options = options != NULL ? options : &none,
    .passes = passes,
    .is_top = true,
    .assigns = options == NULL || !(options->by_op || options->probe),
    .all_outputs = half != NULL || (neap_net_is_train(net) && (options == NULL || !options->by_op)),
    .forward = -1,
    .stream = stream,
    .first_stream = stream,
    .n_extent = &n_extent,
    .count = &count};
  if (b.graph != NULL) b.graph->probe = b.options->probe;
  neap_status status = b.graph == NULL ? graph_no_memory(error) : build_ops(&b, error);
  if (status == NEAP_OK && !b.options->probe && neap_net_is_train(net))
    status = keep_zero_gradients(&b, error);
  if (status == NEAP_OK) status = build_assign_all(&b, error);
  if (status == NEAP_OK && !b.options->probe) status = assign_roles(&b, error);
  if (status == NEAP_OK && half != NULL) status = build_half(&b, error);
  if (status == NEAP_OK && NEAP_DEBUG) graph_check_nodes(b.graph);
  bool infers = status == NEAP_OK && !b.graph->train && !b.options->no_fuse && !b.options->probe &&
                half == NULL;
  if (infers) status = build_run_passes(&b, NEAP_PASS_INFERENCE, neap_net_n_ops(net), error);
  if (status == NEAP_OK) status = graph_finish(b.graph, b.options->by_op, error);
  if (status == NEAP_OK) status = graph_assign_banks(b.graph, net, b.options, error);
  build_fini(&b);
  if (status != NEAP_OK) {
    neap_graph_free(b.graph);
    return status;
  }
  *out = b.graph;
  return NEAP_OK;
}
