/* to_net.c: a prepared graph as a net again, backward written out: what `net:expand` gives and memonger works on.
 *
 * Every value becomes a blob. INVARIANT: the last version of a name keeps it, since that is what fetch sees; values before it
 * that go by the same name are "name~2", "name~3", except versions of one storage, which are in place by name. What the
 * graph knows and names can't say (roles, whose gradient a blob is, pairs of forward and backward, random streams, devices)
 * goes into the net's own fields, so that the net runs as the graph would: same kernels, same bits.
 */
#include "graph/graph_int.h"

#include <stdio.h>
#include <string.h>

typedef struct writer {
  const neap_graph *graph;
  const neap_net *from; /* may be NULL */
  neap_net *net;
  const char **name;    /* by value */
  neap_map taken;       /* names of blobs */
  const char **op_name; /* by node: as added to the net */
  neap_map op_taken;    /* names of ops */
} writer;

/* `base`, or "base~2", "base~3" ..: the first that `taken` lacks. NULL when memory is refused. */
static const char *free_name(neap_map *taken, const char *base) {
  const char *name = neap_intern(base);
  char text[256];
  for (int n = 2; name != NULL && neap_map_get(taken, name, 0) != 0; n++) {
    snprintf(text, sizeof text, "%.240s~%d", base, n);
    name = neap_intern(text);
  }
  return name != NULL && neap_map_set(taken, name, 1) ? name : NULL;
}

/* The value that a declared blob has before the graph runs; -1: nothing reads it. */
static neap_value_id declared_value(const neap_graph *graph, const char *name) {
  for (int v = 0; v < graph->n_value; v++)
    if (graph->value[v].node < 0 && graph->value[v].name == name) return v;
  return NEAP_NO_VALUE;
}

static neap_status name_root(writer *w, neap_value_id v, neap_error *error) {
  neap_value_id root = w->graph->value[v].root;
  if (w->name[root] == NULL && (w->name[root] = free_name(&w->taken, w->graph->value[v].name)) == NULL)
    return graph_no_memory(error);
  w->name[v] = w->name[root];
  return NEAP_OK;
}

/* Blobs that the world can ask for take their names first, then all others in order of definition. */
static neap_status name_values(writer *w, neap_error *error) {
  for (int i = 0; w->from != NULL && i < neap_net_n_blobs(w->from); i++) {
    const neap_net_blob *blob = neap_net_blob_at(w->from, i);
    if (blob->type.dtype == NEAP_DTYPE_NONE) continue;
    neap_value_id v = declared_value(w->graph, blob->name);
    if (free_name(&w->taken, blob->name) == NULL) return graph_no_memory(error);
    if (v >= 0) w->name[v] = blob->name;
  }
  for (int last = 1; last >= 0; last--)
    for (int v = 0; v < w->graph->n_value; v++) {
      const neap_value *value = &w->graph->value[v];
      if (w->name[v] == NULL && (!last || value->node < 0 || (value->is_blob && value->is_last)))
        NEAP_TRY(name_root(w, v, error));
    }
  return NEAP_OK;
}

/* A blob that is there before the net runs, with the initial value that the net it came from gives it. */
static neap_status declare(writer *w, const char *name, neap_role role, const neap_type *type, const neap_net_blob *blob,
                           neap_error *error) {
  const neap_net_op *init = blob != NULL && blob->init >= 0 ? neap_net_init_at(w->from, blob->init) : NULL;
  neap_set set[NEAP_OP_MAX_ATTR + 1] = {{0}};
  int n = 0;
  for (int a = 0; init != NULL && a < neap_op_n_attrs(init->op); a++)
    if (init->attrs[a].given) set[n++] = (neap_set){init->op->attrs[a].name, init->attrs[a]};
  return neap_net_declare(w->net, name, role, type, blob != NULL ? blob->trainable : role == NEAP_ROLE_PARAMETER,
                          init != NULL ? init->op->name : NULL, set, blob != NULL ? blob->line : NULL, error);
}

/* First as the net it came from declares them, unread ones too: the order decides which random numbers fill a parameter. Types
 * are the graph's, whose inputs may have another batch. */
static neap_status declare_inputs(writer *w, neap_error *error) {
  for (int i = 0; w->from != NULL && i < neap_net_n_blobs(w->from); i++) {
    const neap_net_blob *blob = neap_net_blob_at(w->from, i);
    if (blob->type.dtype == NEAP_DTYPE_NONE) continue;
    neap_value_id v = declared_value(w->graph, blob->name);
    NEAP_TRY(declare(w, blob->name, blob->role, v >= 0 ? &w->graph->value[v].type : &blob->type, blob, error));
  }
  for (int v = 0; v < w->graph->n_value; v++) {
    const neap_value *value = &w->graph->value[v];
    if (value->node >= 0 || value->root != v || neap_net_find_blob(w->net, w->name[v]) != NULL) continue;
    NEAP_TRY(
      declare(w, w->name[v], value->role == NEAP_ROLE_ACTIVATION ? NEAP_ROLE_INPUT : value->role, &value->type, NULL, error));
  }
  return NEAP_OK;
}

/* Where the op came from. A node with another one as `forward` is the backward half of a pair. */
static neap_net_origin origin_of(const writer *w, int n) {
  const neap_node *node = &w->graph->node[n];
  neap_net_origin origin = {.backward = node->phase == NEAP_PHASE_BACKWARD};
  if (origin.backward && node->forward != n) origin.forward = w->op_name[node->forward];
  if ((node->effects & NEAP_EFFECT_RANDOM) != 0) origin.stream = node->stream;
  return origin;
}

/* The part of an op's full name that lies in its scope. */
static const char *name_in_scope(const char *name, const char *scope) {
  size_t n = strlen(scope);
  return n > 0 && strncmp(name, scope, n) == 0 && name[n] == '/' ? name + n + 1 : NULL;
}

/* Given by the user, or set by a rewrite. Others stay defaults: to be given or not is part of what some attributes mean. */
static bool is_told(const neap_attr *attr, const neap_attr_value *value) {
  return value->given || value->n != attr->value.n || value->i != attr->value.i;
}

static neap_status write_node(writer *w, int n, neap_error *error) {
  const neap_node *node = &w->graph->node[n];
  const char *in[256], *out[256];
  neap_set set[NEAP_OP_MAX_ATTR + 1] = {{0}};
  bool release = (node->op->effects & NEAP_EFFECT_RELEASE) != 0;
  int n_out = release ? node->n_in : node->n_out, n_attr = 0;
  if (node->n_in > 256 || n_out > 256)
    return neap_fail(error, NEAP_GRAPH, "%s \"%s\" has more than 256 operands", node->op->name, node->name);
  if (node->n_sub > 0)
    return neap_fail(error, NEAP_GRAPH, "%s \"%s\": a net with subnets can't be expanded yet", node->op->name, node->name);
  for (int i = 0; i < node->n_in; i++) in[i] = node->in[i] < 0 ? NULL : w->name[node->in[i]];
  for (int k = 0; k < n_out; k++) out[k] = release ? in[k] : w->name[node->out[k]];
  for (int a = 0; a < neap_op_n_attrs(node->op); a++)
    if (is_told(&node->op->attrs[a], &node->attrs[a])) set[n_attr++] = (neap_set){node->op->attrs[a].name, node->attrs[a]};
  const char *name = w->op_name[n] = free_name(&w->op_taken, node->name), *inner = NULL;
  if (name == NULL) return graph_no_memory(error);
  inner = name_in_scope(name, node->scope);
  neap_net_call call = {.type = node->op->name,
                        .n_in = node->n_in,
                        .n_out = n_out,
                        .in = in,
                        .out = out,
                        .attrs = set,
                        .name = inner != NULL ? inner : name,
                        .scope = inner != NULL ? node->scope : NULL,
                        .line = node->line,
                        .device = node->device,
                        .origin = origin_of(w, n)};
  return neap_net_add(w->net, &call, NULL, error);
}

/* Outputs, keeps, and whose gradient each blob is. */
static neap_status write_roles(writer *w, neap_error *error) {
  const neap_graph *graph = w->graph;
  const char **output = neap_alloc(((size_t)graph->n_output + 1) * sizeof *output);
  if (output == NULL) return graph_no_memory(error);
  for (int k = 0; k < graph->n_output; k++) output[k] = w->name[graph->output[k]];
  neap_status status = neap_net_set_outputs(w->net, graph->n_output, output, error);
  neap_free(output);
  for (int v = 0; v < graph->n_value && status == NEAP_OK; v++) {
    const neap_value *value = &graph->value[v];
    if (value->gradient_of != NULL && value->node >= 0 && value->root == v)
      status = neap_net_set_gradient(w->net, w->name[v], value->gradient_of, value->region == NEAP_REGION_GRADIENT, error);
    if (status == NEAP_OK && value->keep) status = neap_net_keep(w->net, w->name[v], error);
  }
  return status;
}

static neap_status write_net(writer *w, neap_error *error) {
  NEAP_TRY(name_values(w, error));
  NEAP_TRY(declare_inputs(w, error));
  for (int n = 0; n < w->graph->n_node; n++) NEAP_TRY(write_node(w, n, error));
  return write_roles(w, error);
}

neap_status neap_graph_to_net(const neap_graph *graph, const neap_net *from, neap_net **out, neap_error *error) {
  writer w = {.graph = graph, .from = from};
  w.name = neap_alloc_zeroed((size_t)(graph->n_value + 1) * sizeof *w.name);
  w.op_name = neap_alloc_zeroed((size_t)(graph->n_node + 1) * sizeof *w.op_name);
  neap_status status = w.name == NULL || w.op_name == NULL ? graph_no_memory(error) : neap_net_new(graph->name, &w.net, error);
  if (status == NEAP_OK) status = write_net(&w, error);
  neap_free((void *)w.name);
  neap_free((void *)w.op_name);
  neap_map_fini(&w.taken);
  neap_map_fini(&w.op_taken);
  if (status != NEAP_OK) {
    neap_net_free(w.net);
    return status;
  }
  *out = w.net;
  return NEAP_OK;
}
