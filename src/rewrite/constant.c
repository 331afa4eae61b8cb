/* constant.c: values that need computing once per content of the parameters, not once a run:
 * weights in the layout that a kernel wants, weights with a normalisation folded in, whatever a net
 * computes from its parameters.
 *
 * INVARIANT: a value of region CONSTANT is defined by a node without effects and subnets, whose
 * inputs are constants, or parameters and state of which the graph has one version. So in every run
 * it would get the same bits, until somebody else writes what it depends on; who notices that is
 * the workspace (attach.c). What only the makers of constants read (a weight with its normalisation
 * folded in, on its way into a kernel's layout) need not be held: it lies in the arena, and its
 * maker runs when theirs do. Constants lie in no bank: what is assigned to one is computed in every
 * run.
 * INVARIANT: a node is `once` when all that it makes is constant, or read by `once` nodes alone and
 * by nobody's name. A graph that trains has none: each step changes its parameters, and packed
 * weights would only take bytes from run to run.
 */
#include "rewrite/rewrite_int.h"

/* Larger than this times what it is made from (and than LEAST), a result is cheaper to make in each
 * run than to hold: a bias expanded over a batch, a block of zeros. */
enum { MOST_GROWTH = 8, LEAST_BYTES = 1 << 16 };

typedef struct marker {
  neap_graph *graph;
  /* by root: the graph writes a later version; none is freed, as only transient values are */
  bool *rewritten;
} marker;

/* Whether the value has the same content in every run, as far as this graph goes. */
static bool is_fixed(const marker *m, neap_value_id v) {
  const neap_value *value = &m->graph->value[v];
  if (value->region == NEAP_REGION_CONSTANT) return true;
  bool is_kept = value->region == NEAP_REGION_PARAMETER || value->region == NEAP_REGION_STATE;
  return is_kept && value->node < 0 && !m->rewritten[value->root];
}

/* Whether what the node gives may be made once and kept: it depends on nothing that a run changes,
 * changes nothing, and is not much larger than what it is made of, since it is held from then
 * on. */
static bool is_constant_node(const marker *m, const neap_node *node) {
  if (node->effects != NEAP_EFFECT_NONE || node->n_sub > 0) return false;
  if (node->n_enforced > 0 || node->n_out == 0) return false;

  /* It reads only what is the same in every run. */
  size_t in_bytes = 0, out_bytes = 0;
  for (int i = 0; i < node->n_in; i++) {
    if (node->in[i] == NEAP_NO_VALUE) continue;
    if (!is_fixed(m, node->in[i])) return false;
    in_bytes += m->graph->value[node->in[i]].bytes;
  }

  /* A stash is read by a backward alone, and constants lie in no bank. */
  for (int k = 0; k < node->n_out; k++) {
    const neap_value *value = &m->graph->value[node->out[k]];
    if (value->region != NEAP_REGION_ARENA || value->is_stash || value->bank != 0) return false;
    out_bytes += value->bytes;
  }
  return out_bytes <= NEAP_MAX(in_bytes * MOST_GROWTH, (size_t)LEAST_BYTES);
}

/* Whether constant v is only passed on: makers of constants read it, nobody else, and it has no
 * name to be asked for. */
static bool is_passing(const neap_graph *graph, const neap_uses *uses, neap_value_id v) {
  const neap_value *value = &graph->value[v];
  if (value->region != NEAP_REGION_CONSTANT || value->is_blob) return false;
  if (uses->first[v] == uses->first[v + 1]) return false;
  for (int k = uses->first[v]; k < uses->first[v + 1]; k++)
    if (!graph->node[uses->list[k]].once) return false;
  return true;
}

neap_status neap_graph_has_passing(const neap_graph *graph, bool *found, neap_error *error) {
  neap_uses uses;
  *found = false;
  NEAP_TRY(neap_graph_uses(graph, &uses, error));
  for (int v = 0; v < graph->n_value; v++) {
    *found = is_passing(graph, &uses, v);
    if (*found) break;
  }
  neap_uses_fini(&uses);
  return NEAP_OK;
}

/* Values on the way to constants go back to the arena. Their readers stay `once`, so no answer
 * depends on those before it. */
static neap_status release_ways(neap_graph *graph, neap_error *error) {
  neap_uses uses;
  NEAP_TRY(neap_graph_uses(graph, &uses, error));
  for (int v = 0; v < graph->n_value; v++)
    if (is_passing(graph, &uses, v)) graph->value[v].region = NEAP_REGION_ARENA;
  neap_uses_fini(&uses);
  return NEAP_OK;
}

/* What the head says of values of region CONSTANT and of nodes that run once. */
static void check_constants(const neap_graph *graph) {
  /* Who makes a constant runs once, and so does whoever makes what that reads. */
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    for (int k = 0; k < node->n_out; k++)
      NEAP_ASSERT(node->once || graph->value[node->out[k]].region != NEAP_REGION_CONSTANT,
                  "%s \"%s\", which makes a constant, runs once", node->op->name, node->name);
    if (!node->once) continue;
    NEAP_ASSERT(node->effects == NEAP_EFFECT_NONE && node->n_sub == 0,
                "%s \"%s\", which runs once, has no effects and no subnets", node->op->name,
                node->name);
    for (int i = 0; i < node->n_in; i++) {
      neap_value_id v = node->in[i];
      if (v == NEAP_NO_VALUE) continue;
      /* Made by a node that runs once itself, or there before: as it was stored. */
      const neap_value *value = &graph->value[v];
      bool is_fixed = value->node >= 0 ? graph->node[value->node].once
                                       : value->region == NEAP_REGION_PARAMETER ||
                                           value->region == NEAP_REGION_STATE;
      NEAP_ASSERT(is_fixed, "%s \"%s\" runs once, and what it reads, \"%s\", stays as it is",
                  node->op->name, node->name, value->name != NULL ? value->name : "?");
    }
  }
}

/* Nodes come in an order in which definitions precede readers, so one pass finds chains. */
neap_status graph_mark_constants(neap_graph *graph, bool all, neap_error *error) {
  if (graph->train) return NEAP_OK;
  marker m = {.graph = graph, .rewritten = neap_alloc_zeroed((size_t)graph->n_value + 1)};
  if (m.rewritten == NULL) return graph_no_memory(error);

  /* A root with a later version changes while the graph runs. */
  for (int v = 0; v < graph->n_value; v++)
    if (graph->value[v].root != v) m.rewritten[graph->value[v].root] = true;

  /* What is marked here is fixed for the nodes behind it. */
  for (int n = 0; n < graph->n_node; n++) {
    neap_node *node = &graph->node[n];
    if (!is_constant_node(&m, node)) continue;
    node->once = true;
    for (int k = 0; k < node->n_out; k++) graph->value[node->out[k]].region = NEAP_REGION_CONSTANT;
  }
  neap_free(m.rewritten);
  neap_status status = all ? NEAP_OK : release_ways(graph, error);
  if (NEAP_DEBUG && status == NEAP_OK) check_constants(graph);
  return status;
}
