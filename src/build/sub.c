/* sub.c: subnets to subgraphs, whose parameters and results are operands of the owning node.
 *
 * INVARIANT: parameters and results have region ARGUMENT and the owner's operand as their place.
 * INVARIANT: a result that is a parameter unchanged, or appears twice, gets a Copy of its own,
 * unless it is the next version of a resident parameter, which is the same storage.
 */
#include "build/build_int.h"

#include <string.h>

/* A workspace holds what lasts from run to run by the names of the outermost net: what a branch or
 * body declares has no bytes. */
static neap_status check_declared(const neap_net *net, neap_error *error) {
  for (int i = 0; i < neap_net_n_blobs(net); i++) {
    const neap_net_blob *blob = neap_net_blob_at(net, i);
    if (blob->role == NEAP_ROLE_INPUT || blob->role == NEAP_ROLE_ACTIVATION ||
        blob->type.dtype == NEAP_DTYPE_NONE)
      continue;
    neap_hint(error, "declare it in the net around; it is read here by its name");
    return neap_fail(error, NEAP_GRAPH, "subnet \"%s\" declares %s \"%s\", and has none of its own",
                     neap_net_name(net), neap_role_name(blob->role), blob->name);
  }
  return NEAP_OK;
}

/* Values for the owner's operands, bound to the names that the subnet has for them. Those behind,
 * which hold gradients that arrive, have no name. A parameter that a result is a version of may be
 * written in place; in a recomputed forward nothing may. */
static neap_status add_params(neap_builder *b, const neap_sub_spec *spec, neap_error *error) {
  neap_graph *graph = b->graph;
  graph->param = build_ids(b, NEAP_MAX(spec->n_in, 1));
  if (graph->param == NULL) return graph_no_memory(error);

  /* With seeds there may be more: gradients that arrive stand behind the net's own. */
  int n_named = spec->net != NULL ? neap_net_n_sub_inputs(spec->net) : spec->n_in;
  if (spec->net != NULL && (spec->n_seed == 0 ? n_named != spec->n_in : n_named > spec->n_in))
    return neap_fail(error, NEAP_GRAPH, "subnet \"%s\" takes %d blobs, got %d",
                     neap_net_name(spec->net), n_named, spec->n_in);

  /* the identity has names for its captures, and none for gradients */
  /* Each lies in an operand of the owner: that is all that a subgraph sees of what is around it. */
  for (int i = 0; i < spec->n_in; i++) {
    const char *name = NULL;
    if (spec->net == NULL)
      name = spec->in_name[i];
    else if (i < n_named)
      name = neap_net_sub_input_at(spec->net, i);
    int v = graph_add_value(graph, name != NULL ? name : "seed", &spec->in_type[i]);
    if (v < 0 || (name != NULL && !neap_map_set(&b->env, name, v))) return graph_no_memory(error);
    graph->value[v].region = NEAP_REGION_ARGUMENT;
    graph->value[v].role = NEAP_ROLE_INPUT;
    graph->value[v].argument = spec->in_argument[i];
    if (!b->no_commits) {
      for (int k = 0; k < spec->n_out; k++)
        if (spec->out_argument[k] == spec->in_argument[i]) graph->value[v].role = NEAP_ROLE_STATE;
    }
    graph->value[v].is_blob = name != NULL;
    graph->param[graph->n_param++] = v;
  }
  return NEAP_OK;
}

/* The newest value that lies in the owner's operand, which a result may have to replace;
 * NEAP_NO_VALUE: nobody reads it. */
static neap_value_id last_version(const neap_graph *graph, int argument) {
  for (int v = graph->n_value - 1; v >= 0; v--)
    if (graph->value[v].region == NEAP_REGION_ARGUMENT && graph->value[v].argument == argument)
      return v;
  return NEAP_NO_VALUE;
}

/* A result that replaces what the body reads in the same bytes is assigned, so that edges hold the
 * readers' order. */
neap_status build_result(neap_builder *b, int argument, neap_value_id v, neap_error *error) {
  neap_graph *graph = b->graph;
  bool is_version =
    graph->value[v].region == NEAP_REGION_ARGUMENT && graph->value[v].argument == argument;
  neap_value_id old = is_version ? NEAP_NO_VALUE : last_version(graph, argument);

  /* A version lies in its place already. Else what is resident elsewhere has to stay there, and a
   * transient value may simply be made in the place. */
  if (old != NEAP_NO_VALUE) {
    neap_grad g = build_emitter(b);
    neap_value_id in[2] = {old, v};
    build_begin_emit(b, error);
    v = neap_grad_emit1(&g, "Assign", 2, in, NULL, NULL);
    NEAP_TRY(b->emit_status);
  } else if (!is_version && graph->value[v].region != NEAP_REGION_ARENA) {
    build_begin_emit(b, error);
    v = build_emit_copy(b, v);
    NEAP_TRY(b->emit_status);
  }

  /* All versions of its storage lie where it does: a copy that an op of the body then wrote in
   * place. */
  neap_value_id root = graph->value[v].root;
  for (int u = 0; u < graph->n_value; u++)
    if (graph->value[u].root == root)
      graph->value[u].region = NEAP_REGION_ARGUMENT, graph->value[u].argument = argument;

  /* The owner reads it there, so nothing behind may take the bytes. */
  graph->value[v].is_last = true;
  graph->output[graph->n_output++] = v;
  return NEAP_OK;
}

/* The values that the subnet's outputs stand for. */
static neap_status result_values(neap_builder *b, const neap_sub_spec *spec, int n,
                                 neap_value_id *out, neap_error *error) {
  for (int k = 0; k < n; k++) {
    const char *name = spec->net != NULL ? neap_net_output_at(spec->net, k) : spec->out_name[k];
    out[k] = neap_map_get(&b->env, name, NEAP_NO_VALUE);
    if (out[k] == NEAP_NO_VALUE)
      return neap_fail(
        error, NEAP_GRAPH,
        "the branch that is not taken must yield \"%s\", which does not exist before", name);
  }
  return NEAP_OK;
}

/* The backward of a subnet from results to parameters: seed_result[i] is a result's position,
 * seed_param[i] the parameter that holds its gradient, wrt[i] a parameter. out[i] is NEAP_NO_VALUE
 * where no gradient arrives. */
static neap_status sub_gradient(neap_builder *b, const neap_sub_spec *spec,
                                const neap_value_id *result, neap_value_id *out,
                                neap_error *error) {
  neap_value_id *seed = build_ids(b, NEAP_MAX(spec->n_seed, 1)),
                *dseed = build_ids(b, NEAP_MAX(spec->n_seed, 1)),
                *wrt = build_ids(b, NEAP_MAX(spec->n_wrt, 1));
  if (seed == NULL || dseed == NULL || wrt == NULL) return graph_no_memory(error);

  for (int i = 0; i < spec->n_seed; i++) {
    seed[i] = result[spec->seed_result[i]];
    dseed[i] = b->graph->param[spec->seed_param[i]];
  }

  /* Gradients go from results to parameters, both of this graph: the owner's values are not
   * here. */
  for (int i = 0; i < spec->n_wrt; i++) wrt[i] = b->graph->param[spec->wrt[i]];
  b->phase = NEAP_PHASE_BACKWARD;

  /* kernels of forward ops recomputed here are chosen with their backward in mind */
  b->graph->train = true;
  return graph_gradient(b, spec->n_seed, seed, dseed, spec->n_wrt, wrt, out, error);
}

/* With seeds the subgraph's results are the gradients of spec->wrt, zeros where none arrives;
 * without, the subnet's outputs. */
static neap_status build_sub_in(neap_builder *b, const neap_sub_spec *spec, neap_error *error) {
  /* Results of the forward are needed to seed its backward, though they are not what this graph
   * gives. */
  int n_result = spec->n_out;
  if (spec->n_seed > 0 && spec->net != NULL) n_result = neap_net_n_outputs(spec->net);
  int n_out = spec->n_seed > 0 ? spec->n_wrt : n_result;
  neap_value_id *result = build_ids(b, n_result + 1), *out = build_ids(b, n_out + 1);
  b->graph->output = build_ids(b, n_out + 1);
  if (result == NULL || out == NULL || b->graph->output == NULL) return graph_no_memory(error);

  /* Names come before ops, which read them. A blank one has no ops: it is for shapes that go with
   * nothing the net does. */
  if (spec->net != NULL) NEAP_TRY(check_declared(spec->net, error));
  NEAP_TRY(add_params(b, spec, error));
  if (spec->net != NULL) {
    if (spec->n_seed == 0 && neap_net_n_outputs(spec->net) != n_out)
      return neap_fail(error, NEAP_GRAPH, "subnet \"%s\" gives %d results, expected %d",
                       neap_net_name(spec->net), neap_net_n_outputs(spec->net), n_out);
    if (!spec->is_blank) NEAP_TRY(build_ops(b, error));
  }
  if (spec->is_blank)
    n_result = 0;
  else
    NEAP_TRY(result_values(b, spec, n_result, result, error));
  NEAP_TRY(build_mix_results(b, n_result, result, error));
  build_begin_emit(b, error);

  /* Nobody reads it: the body that is run in its place is for what this one finds. */
  if (b->finds) {
    for (int k = 0; k < n_result; k++)
      if (spec->is_open || result[k] == BUILD_UNKNOWN)
        result[k] = build_constant(b, spec->result[k], 0);
  }
  NEAP_TRY(b->emit_status);

  /* With seeds the backward comes behind, and its gradients are the results. */
  if (spec->n_seed > 0) {
    for (int i = 0; i < spec->n_wrt; i++) out[i] = NEAP_NO_VALUE;
    if (!spec->is_blank) NEAP_TRY(sub_gradient(b, spec, result, out, error));
    /* Another branch may have set it: a gradient that arrives in one flows for both. */
    if (spec->flows != NULL) {
      for (int i = 0; i < spec->n_wrt; i++)
        if (spec->is_blank || out[i] != NEAP_NO_VALUE) spec->flows[i] = true;
    }
    /* The owner has one output for both branches: where this one has no gradient it gives zeros. */
    for (int i = 0; i < spec->n_wrt; i++)
      if (out[i] == NEAP_NO_VALUE)
        out[i] = build_constant(b, b->graph->value[b->graph->param[spec->wrt[i]]].type, 0);
    NEAP_TRY(b->emit_status);
  } else if (n_out > 0) {
    memcpy(out, result, (size_t)n_out * sizeof *out);
  }

  /* Places last: what assigns a result's bytes must come behind whatever reads them. */
  for (int k = 0; k < n_out; k++) NEAP_TRY(build_result(b, spec->out_argument[k], out[k], error));
  NEAP_TRY(graph_finish(b->graph, b->options->by_op, error));
  build_check_sub(b->graph, spec);
  return NEAP_OK;
}

void build_joint_fini(neap_joint *joint) {
  neap_graph_free(joint->builder.graph);
  build_fini(&joint->builder);
}

/* Forward nodes first, n_forward of them, then the backward. Not finished: who cuts it finishes the
 * halves. */
static neap_status build_joint_in(neap_joint *joint, const neap_sub_spec *spec, neap_error *error) {
  neap_builder *b = &joint->builder;
  joint->result = build_ids(b, spec->n_out + 1);
  joint->grad = build_ids(b, spec->n_wrt + 1);
  if (joint->result == NULL || joint->grad == NULL) return graph_no_memory(error);
  NEAP_TRY(add_params(b, spec, error));
  NEAP_TRY(build_ops(b, error));
  NEAP_TRY(result_values(b, spec, spec->n_out, joint->result, error));
  NEAP_TRY(build_mix_results(b, spec->n_out, joint->result, error));

  /* All that was built so far is forward, passes included; nothing else says where the backward
   * begins. */
  joint->n_forward = b->graph->n_node;
  return sub_gradient(b, spec, joint->result, joint->grad, error);
}

neap_status build_joint(neap_builder *outer, const neap_sub_spec *spec, neap_joint *out,
                        neap_error *error) {
  /* A builder that stays open: whoever cuts the graph still emits into it. */
  NEAP_TRY(build_count(outer, 0, 1, 0, error));
  *out = (neap_joint){.builder = {.graph = graph_new(neap_intern(neap_net_name(spec->net))),
                                  .net = spec->net,
                                  .options = outer->options,
                                  .passes = outer->passes,
                                  .no_commits = outer->no_commits,
                                  .all_outputs = true,
                                  .forward = -1,
                                  .after = -1,
                                  .is_sub = true,
                                  .n_recompute = spec->n_recompute,
                                  .recompute = spec->recompute,
                                  .in_loop = true,
                                  .stream = spec->stream,
                                  .first_stream = spec->stream,
                                  .n_extent = outer->n_extent,
                                  .count = outer->count,
                                  .kept = outer->kept}};
  neap_status status =
    out->builder.graph == NULL ? graph_no_memory(error) : build_joint_in(out, spec, error);
  if (status != NEAP_OK) build_joint_fini(out);
  return status;
}

uint32_t build_sub_stream(const neap_node *node, int subnet) {
  uint32_t stream = node->stream + 1;
  for (int s = 0; s < subnet; s++) {
    int a = neap_op_subnet_attr(node->op, s);
    const neap_net *net = a >= 0 ? node->attrs[a].net : NULL;
    if (net == NULL) continue;
    /* Subnets before it take theirs, whether they were built or not. */
    for (int i = 0; i < neap_net_n_ops(net); i++)
      stream += neap_net_n_streams(neap_net_op_at(net, i));
  }
  return stream;
}

/* *out is owned; on failure nothing is left. */
neap_status build_sub(neap_builder *outer, const neap_sub_spec *spec, neap_graph **out,
                      neap_error *error) {
  /* What a subnet takes over from the builder around it: options, passes, counters, and whether it
   * stands in a loop. */
  NEAP_TRY(build_count(outer, 0, 1, 0, error));
  neap_builder b = {
    .graph = graph_new(spec->net != NULL ? neap_intern(neap_net_name(spec->net)) : "identity"),
    .net = spec->net,
    .options = outer->options,
    .passes = outer->passes,
    .is_sub = true,
    /* A recomputed forward commits nothing; neither does anything inside what commits nothing. */
    .no_commits = outer->no_commits || spec->n_seed > 0,
    .all_outputs = outer->all_outputs,
    .forward = -1,
    .after = -1,
    .in_loop = outer->in_loop || spec->in_loop,
    .in_body = spec->in_loop ? spec->is_body && !outer->in_loop : outer->in_body,
    .met = spec->is_body ? spec->met : outer->met,
    .finds = spec->result != NULL,
    .trial = spec->trial != BUILD_NO_TRIAL ? spec->trial : outer->trial,
    .stream = spec->stream,
    .first_stream = spec->stream,
    .n_extent = outer->n_extent,
    .count = outer->count,
    .kept = outer->kept};
  if (b.graph != NULL) b.graph->probe = b.finds;
  neap_status status = b.graph == NULL ? graph_no_memory(error) : build_sub_in(&b, spec, error);
  build_fini(&b);
  if (status != NEAP_OK) {
    neap_graph_free(b.graph);
    return status;
  }
  *out = b.graph;
  return NEAP_OK;
}
