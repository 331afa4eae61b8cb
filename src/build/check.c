/* check.c: what the heads of this room claim that a finished graph alone does not show
 * (graph/check.c looks at that): it takes the builder, a subnet's spec or a cut. For builds with
 * NEAP_DEBUG alone.
 *
 * Not checked, since nothing that is left of building shows it: that which random numbers an op
 * draws says its place alone (op.c), that skipped lengths count (probe.c, branch.c), when a name
 * came to be kept (keep.c), and that zeros are made by those who ask (gradient.c). Tests compare
 * nets built in two ways.
 */
#include "build/build_int.h"

static const char *name_of(const neap_graph *graph, neap_value_id v) {
  return graph->value[v].name != NULL ? graph->value[v].name : "?";
}

void build_check_names(const neap_builder *b) {
  if (!NEAP_DEBUG) return;
  for (int i = 0; i < neap_net_n_blobs(b->net); i++) {
    const neap_net_blob *blob = neap_net_blob_at(b->net, i);
    neap_value_id v = neap_map_get(&b->env, blob->name, NEAP_NO_VALUE);
    if (v < 0) continue;
    const neap_value *value = &b->graph->value[v];
    /* A value that two names stand for would have one of them alone. */
    NEAP_ASSERT(value->name == blob->name, "\"%s\" is bound to a value of its own, not to \"%s\"",
                blob->name, name_of(b->graph, v));
    bool lasts = blob->role == NEAP_ROLE_PARAMETER || blob->role == NEAP_ROLE_STATE;
    if (!lasts || blob->type.dtype == NEAP_DTYPE_NONE || !b->assigns) continue;
    NEAP_ASSERT(
      value->region == build_region_of(blob->role) && b->graph->value[value->root].node < 0,
      "the last version of \"%s\" lies in the blob's own bytes, not in %s", blob->name,
      neap_region_name(value->region));
    /* What is written there waits for all that may fail. */
    NEAP_ASSERT(value->node < 0 || (b->graph->node[value->node].effects & NEAP_EFFECT_COMMIT) != 0,
                "%s \"%s\", which writes \"%s\", is a commit", b->graph->node[value->node].op->name,
                b->graph->node[value->node].name, blob->name);
  }
}

void build_check_roles(const neap_graph *graph) {
  if (!NEAP_DEBUG) return;
  for (int v = 0; v < graph->n_value; v++) {
    const neap_value *value = &graph->value[v];
    bool is_older = value->is_blob && !value->is_last && value->region == NEAP_REGION_ARENA;
    NEAP_ASSERT(!is_older || !value->keep, "\"%s\" is kept in its last version, not in value %d",
                name_of(graph, v), v);
  }
}

void build_check_sub(const neap_graph *sub, const neap_sub_spec *spec) {
  /* The spec says where in the owner each parameter and each result lies. */
  if (!NEAP_DEBUG) return;
  for (int i = 0; i < sub->n_param; i++) {
    const neap_value *param = &sub->value[sub->param[i]];
    NEAP_ASSERT(param->region == NEAP_REGION_ARGUMENT && param->argument == spec->in_argument[i],
                "parameter %d of \"%s\" lies in operand %d of the owner: %s, %d", i, sub->name,
                spec->in_argument[i], neap_region_name(param->region), param->argument);
  }

  /* Two results that were one value could not lie in two places. */
  for (int k = 0; k < sub->n_output; k++) {
    const neap_value *result = &sub->value[sub->output[k]];
    NEAP_ASSERT(result->region == NEAP_REGION_ARGUMENT && result->argument == spec->out_argument[k],
                "result %d of \"%s\" lies in operand %d of the owner: %s, %d", k, sub->name,
                spec->out_argument[k], neap_region_name(result->region), result->argument);
    for (int j = 0; j < k; j++)
      NEAP_ASSERT(sub->output[j] != sub->output[k], "results %d and %d of \"%s\" are two values", j,
                  k, sub->name);
  }
}

void build_check_cut(const neap_graph *joint, const build_cut *cut) {
  if (!NEAP_DEBUG) return;
  for (int m = 0; m < cut->n_forward; m++) {
    const neap_node *node = &joint->node[m];
    if (cut->recompute[m])
      for (int i = 0; i < node->n_in; i++) {
        neap_value_id v = node->in[i];
        bool is_there = v < 0 || joint->value[v].node < 0 || cut->label[v] != BUILD_DEAD;
        NEAP_ASSERT(is_there, "%s \"%s\" is recomputed from \"%s\", which nobody has then",
                    node->op->name, node->name, name_of(joint, v));
      }
  }
}

void build_check_backward(const neap_graph *half, int n_forward) {
  if (!NEAP_DEBUG) return;
  for (int m = 0; m < n_forward; m++)
    NEAP_ASSERT((half->node[m].effects & NEAP_EFFECT_COMMIT) == 0,
                "state is written by the forward half alone, not once more by %s \"%s\"",
                half->node[m].op->name, half->node[m].name);
}
