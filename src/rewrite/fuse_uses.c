/* fuse_uses.c: who reads what in a graph that is being fused, and what is fixed there.
 *
 * By value: how many operand positions read it, and a list of nodes that do. A list may hold nodes
 * that no longer do, or one twice; whoever walks it looks at the node. Items of lists are taken
 * from one array and not given back: there are as many as operands were ever read.
 *
 * INVARIANT: n_read of each value is what counting all nodes' operands would give, and each node
 * that reads a value is on its list.
 * INVARIANT: no rewrite makes a root unstable, or stable again: what has another version or is
 * freed is not rewritten. */
#include "rewrite/fuse_int.h"

#include <stdlib.h>

neap_status fuse_uses_grow(fuser *f, neap_error *error) {
  const neap_graph *graph = f->graph;
  if (!neap_list_grow(&f->value, &f->cap_value, graph->n_value, sizeof *f->value))
    return graph_no_memory(error);
  const int first = f->n_value;
  for (; f->n_value < graph->n_value; f->n_value++)
    f->value[f->n_value] = (fuse_value){.first_use = -1};

  /* What has a later version does not keep its content. */
  for (int v = first; v < graph->n_value; v++)
    if (graph->value[v].root != v) f->value[graph->value[v].root].unstable = true;
  return NEAP_OK;
}

/* v's list gets this node. */
static neap_status list_use(fuser *f, neap_value_id v, int node, neap_error *error) {
  if (!neap_list_grow(&f->use, &f->cap_use, f->n_use + 1, sizeof *f->use))
    return graph_no_memory(error);
  f->use[f->n_use] = (fuse_use){node, f->value[v].first_use};
  f->value[v].first_use = f->n_use++;
  return NEAP_OK;
}

/* Whether what node n makes of its operands is as fixed as they are, and they all are. */
static bool makes_fixed(const fuser *f, int n) {
  const neap_node *node = &f->graph->node[n];
  if (node->effects != NEAP_EFFECT_NONE || node->n_sub > 0) return false;
  for (int i = 0; i < node->n_in; i++)
    if (!fuse_is_fixed(f, node->in[i])) return false;
  return true;
}

/* Notes which of its outputs are fixed. A later version is not: its node reads the version before
 * it, whose content does not stay. */
static void fix_outputs(fuser *f, int n) {
  const neap_node *node = &f->graph->node[n];
  const bool fixed = makes_fixed(f, n);
  for (int k = 0; k < node->n_out; k++)
    if (node->out[k] != NEAP_NO_VALUE) f->value[node->out[k]].fixed = fixed;
}

neap_status fuse_uses_add(fuser *f, int n, neap_error *error) {
  const neap_node *node = &f->graph->node[n];
  for (int i = 0; i < node->n_in; i++) {
    if (node->in[i] == NEAP_NO_VALUE) continue;
    f->value[node->in[i]].n_read++;
    NEAP_TRY(list_use(f, node->in[i], n, error));
  }
  fix_outputs(f, n);
  return NEAP_OK;
}

void fuse_uses_remove(fuser *f, int n) {
  const neap_node *node = &f->graph->node[n];
  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] != NEAP_NO_VALUE) f->value[node->in[i]].n_read--;
}

neap_status fuse_uses_move(fuser *f, neap_value_id from, neap_value_id to, neap_error *error) {
  for (int u = f->value[from].first_use; u >= 0; u = f->use[u].next) {
    const int n = f->use[u].node;
    const neap_node *node = &f->graph->node[n];
    bool reads = false;
    for (int i = 0; i < node->n_in; i++) {
      if (node->in[i] != from) continue;
      node->in[i] = to;
      f->value[from].n_read--;
      f->value[to].n_read++;
      reads = true;
    }
    if (reads) NEAP_TRY(list_use(f, to, n, error));
  }
  NEAP_ASSERT(f->value[from].n_read == 0, "nobody reads what was passed on; %d do",
              f->value[from].n_read);
  return NEAP_OK;
}

bool fuse_uses_cross_banks(const fuser *f, neap_value_id v, const char *device) {
  for (int u = f->value[v].first_use; u >= 0; u = f->use[u].next) {
    const neap_node *node = &f->graph->node[f->use[u].node];
    for (int i = 0; i < node->n_in; i++)
      if (node->in[i] == v && !graph_same_bank(node->device, device)) return true;
  }
  return false;
}

/* First what is there before the graph runs; outputs follow from their nodes. A node of this order
 * reads only what nodes before it make, so one pass is enough, however deep the net is. */
void fuse_find_fixed(fuser *f) {
  const neap_graph *graph = f->graph;
  for (int v = 0; v < graph->n_value; v++) {
    const neap_value *value = &graph->value[v];
    const bool kept = value->region == NEAP_REGION_PARAMETER || value->region == NEAP_REGION_STATE;
    f->value[v].fixed = kept && fuse_is_stable(f, v);
  }
  for (int n = 0; n < graph->n_node; n++) fix_outputs(f, n);
}

neap_status fuse_uses_init(fuser *f, neap_error *error) {
  const neap_graph *graph = f->graph;
  NEAP_TRY(fuse_uses_grow(f, error));
  for (int n = 0; n < graph->n_node; n++) {
    NEAP_TRY(fuse_uses_add(f, n, error));

    /* What is freed does not keep its content either. */
    if ((graph->node[n].effects & NEAP_EFFECT_RELEASE) == 0) continue;
    for (int i = 0; i < graph->node[n].n_in; i++) {
      const neap_value_id v = graph->node[n].in[i];
      if (v != NEAP_NO_VALUE) f->value[graph->value[v].root].unstable = true;
    }
  }
  return NEAP_OK;
}

void fuse_uses_check(const fuser *f) {
  /* The C library's memory, as graph/check.c has: tests that refuse allocations see none of it. */
  int *n_read = calloc((size_t)f->n_value + 1, sizeof *n_read);
  if (n_read == NULL) return; /* nothing is known then */
  for (int n = 0; n < f->graph->n_node; n++)
    for (int i = 0; i < f->graph->node[n].n_in; i++)
      if (f->graph->node[n].in[i] != NEAP_NO_VALUE) n_read[f->graph->node[n].in[i]]++;
  for (int v = 0; v < f->n_value; v++)
    NEAP_ASSERT(n_read[v] == f->value[v].n_read, "value %d is read at %d places; %d are counted", v,
                n_read[v], f->value[v].n_read);
  free(n_read);
}

void fuse_uses_fini(fuser *f) {
  neap_free(f->value);
  neap_free(f->use);
  neap_free(f->seen);
}
