/* fuse_node.c: what the rules of a fusion ask of a graph, and the few changes that they make to it.
 *
 * A rule that asks here need not know regions, versions or banks; one that changes the graph here
 * keeps names, lines and the list of the gone. See fuse_int.h for the invariants.
 */
#include "rewrite/fuse_int.h"

#include <stdio.h>
#include <string.h>

/* ---- looking --------------------------------------------------------------------------------- */

int fuse_made_by(const fuser *f, neap_value_id v, const char *name) {
  int n = v == NEAP_NO_VALUE ? -1 : f->graph->value[v].node;
  return n >= 0 && fuse_is_op(f, n, name) ? n : -1;
}

/* Whether v is assigned to a memory bank, or an op of another bank than its maker reads it: then
 * both stay, as for a blob that is kept, so that each is where it was said to be. */
static bool leaves_bank(const fuser *f, neap_value_id v) {
  const neap_graph *graph = f->graph;
  const neap_value *value = &graph->value[v];

  /* Assigned by its name. */
  const neap_net_blob *blob = NULL;
  if (value->is_blob) blob = neap_net_find_blob(neap_builder_net(f->b), value->name);
  if (blob != NULL && blob->bank != NULL) return true;

  /* Or read in another bank than it is made in. */
  if (value->node < 0) return false;
  return fuse_uses_cross_banks(f, v, graph->node[value->node].device);
}

bool fuse_may_go(const fuser *f, neap_value_id v, int n_read) {
  const neap_value *value = &f->graph->value[v];
  /* What is kept is not in the arena. */
  if (value->region != NEAP_REGION_ARENA) return false;
  if (f->value[v].n_read != n_read) return false;
  return neap_builder_options(f->b)->n_bank == 0 || n_read == 0 || !leaves_bank(f, v);
}

bool fuse_is_stable(const fuser *f, neap_value_id v) {
  return v == NEAP_NO_VALUE || !f->value[f->graph->value[v].root].unstable;
}

bool fuse_is_fixed(const fuser *f, neap_value_id v) {
  return v == NEAP_NO_VALUE || f->value[v].fixed;
}

bool fuse_is_number(const fuser *f, neap_value_id v, double *number) {
  int n = fuse_made_by(f, v, "Constant");
  if (n < 0) return false;
  *number = fuse_attr(f, n, "value")->f;
  return true;
}

const neap_attr_value *fuse_attr(const fuser *f, int n, const char *name) {
  static const neap_attr_value none;
  int i = neap_op_attr_index(f->graph->node[n].op, name);
  return i < 0 ? &none : &f->graph->node[n].attrs[i];
}

/* ---- changing -------------------------------------------------------------------------------- */

neap_status fuse_add(fuser *f, const char *type, int n_in, const neap_value_id *in, int n_out,
                     neap_value_id *out, int like, const neap_set *set, neap_error *error) {
  /* Built behind all other nodes; move_to_readers finds its place when all rules are done. */
  neap_graph *graph = f->graph;
  NEAP_TRY(neap_builder_emit(f->b, type, n_in, in, n_out, out, NULL, set, error));

  /* For people it stands where `like` does, and is called after it. */
  neap_node *node = &graph->node[graph->n_node - 1];
  const neap_node *named = &graph->node[like];
  char text[256];
  snprintf(text, sizeof text, "%s.%s", named->name, type);
  node->name = neap_intern(text);
  node->scope = named->scope;
  node->line = named->line;
  node->made_for = named->name;
  node->device = named->device;
  if (node->name == NULL) return graph_no_memory(error);

  /* So do the values that it makes, which have no name of the net's. */
  for (int k = 0; k < n_out; k++) {
    snprintf(text, sizeof text, "%s.%s", named->name, neap_op_output(node->op, k)->name);
    graph->value[out[k]].name = neap_intern(text);
    if (graph->value[out[k]].name == NULL) return graph_no_memory(error);
  }
  NEAP_TRY(fuse_uses_grow(f, error));
  return fuse_uses_add(f, graph->n_node - 1, error);
}

neap_status fuse_put(fuser *f, int n, const char *type, int n_in, const neap_value_id *in, int like,
                     const neap_set *set, bool *did, neap_error *error) {
  /* What the op takes over from the one it is like; NULL: nothing but what is set. */
  neap_graph *graph = f->graph;
  neap_error refused = {0};
  neap_value_id out = NEAP_NO_VALUE, old = graph->node[n].out[0];
  int n_node = graph->n_node, n_value = graph->n_value;
  neap_grad inherit = {0};
  if (like >= 0) {
    inherit.op = graph->node[like].op;
    inherit.attrs = graph->node[like].attrs;
  }
  *did = false;

  /* The new op as one more node, which is checked and inferred as any. An op that refuses its
   * operands, or gives another type, is no rewrite of this one. */
  neap_status status =
    neap_builder_emit(f->b, type, n_in, in, 1, &out, like >= 0 ? &inherit : NULL, set, &refused);
  if (status == NEAP_MEMORY) return graph_no_memory(error);
  bool fits =
    status == NEAP_OK && neap_type_equal(&graph->value[out].type, &graph->value[old].type);

  /* The last node goes again; its values were only there to be inferred. */
  for (int v = n_value; v < graph->n_value; v++) graph->value[v].node = -1;
  graph->n_node = n_node;
  NEAP_TRY(fuse_uses_grow(f, error));
  if (!fits) return NEAP_OK;

  /* It takes the place of node n, gives n's value, and keeps n's random numbers. */
  neap_node made = graph->node[n_node], *node = &graph->node[n];
  const neap_node *named = &graph->node[like >= 0 ? like : n];
  made.name = named->name;
  made.scope = named->scope;
  made.layer = named->layer;
  made.line = named->line;
  made.device = named->device;
  made.forward = n;
  made.stream = node->stream;
  made.out[0] = old;
  fuse_uses_remove(f, n);
  *node = made;
  graph->value[old].position = 0;
  *did = true;
  return fuse_uses_add(f, n, error);
}

neap_status fuse_absorb(fuser *f, int m, int into, neap_error *error) {
  /* The row that people read lists all ops that went; the one at hand it names by itself. */
  neap_graph *graph = f->graph;
  neap_node *node = &graph->node[m];
  size_t used = strlen(f->absorbed);
  if (m != f->at)
    snprintf(f->absorbed + used, sizeof f->absorbed - used, ", %s \"%s\"", node->op->name,
             node->name);

  /* Names of blobs that go stay explained. */
  for (int k = 0; k < node->n_out; k++) {
    neap_value *value = &graph->value[node->out[k]];
    NEAP_ASSERT(value->region == NEAP_REGION_ARENA && !value->keep,
                "\"%s\", which is absorbed, is nobody's to ask for: it lies in %s",
                value->name != NULL ? value->name : "?", neap_region_name(value->region));
    f->saved_bytes += value->bytes;
    if (value->is_blob && value->is_last &&
        !graph_add_gone(graph, value->name, graph->node[into].name))
      return graph_no_memory(error);
    value->is_blob = false;
    value->is_last = false;
  }

  /* A node that reads nothing holds nothing: what it read may go too. */
  fuse_uses_remove(f, m);
  for (int i = 0; i < node->n_in; i++) node->in[i] = NEAP_NO_VALUE;
  return NEAP_OK;
}

neap_status fuse_forward(fuser *f, neap_value_id from, neap_value_id to, neap_error *error) {
  neap_graph *graph = f->graph;
  NEAP_TRY(fuse_uses_move(f, from, to, error));
  int m = graph->value[from].node, into = graph->value[to].node;
  f->into = into >= 0 ? into : m;
  return fuse_absorb(f, m, f->into, error);
}
