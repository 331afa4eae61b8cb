/* to_net.c: a prepared graph as a net again, backward written out: what `net:expand` gives and memonger works on.
 * Every value becomes a blob. A name that several values share keeps the first; later ones get "name~2", "name~3", except
 * versions of one storage, which are in place by name. */
#include "graph/graph_int.h"

#include <stdio.h>
#include <string.h>

typedef struct writer {
  const neap_graph *graph;
  neap_net *net;
  const char **name; /* by value */
  neap_map count;    /* interned name -> uses so far */
} writer;

static neap_status name_value(writer *w, neap_value_id v, neap_error *error) {
  const neap_value *value = &w->graph->value[v];
  if (w->name[v] != NULL) return NEAP_OK;
  if (value->root != v) {
    NEAP_TRY(name_value(w, value->root, error));
    w->name[v] = w->name[value->root];
    return NEAP_OK;
  }
  const char *base = neap_intern(value->name);
  if (base == NULL) return graph_no_memory(error);
  int n = neap_map_get(&w->count, base, 0) + 1;
  char text[256];
  snprintf(text, sizeof text, "%s~%d", base, n);
  w->name[v] = n == 1 ? base : neap_intern(text);
  if (w->name[v] == NULL || !neap_map_set(&w->count, base, n)) return graph_no_memory(error);
  return NEAP_OK;
}

static neap_status declare_inputs(writer *w, neap_error *error) {
  for (int v = 0; v < w->graph->n_value; v++) {
    const neap_value *value = &w->graph->value[v];
    NEAP_TRY(name_value(w, v, error));
    if (value->node < 0 && value->root == v)
      NEAP_TRY(neap_net_declare(w->net, w->name[v], value->role == NEAP_ROLE_ACTIVATION ? NEAP_ROLE_INPUT : value->role,
                                &value->type, value->role == NEAP_ROLE_PARAMETER, NULL, NULL, NULL, error));
  }
  return NEAP_OK;
}

static neap_status write_node(writer *w, const neap_node *node, neap_error *error) {
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
  for (int a = 0; a < neap_op_n_attrs(node->op); a++) set[n_attr++] = (neap_set){node->op->attrs[a].name, node->attrs[a]};
  neap_net_call call = {.type = node->op->name,
                        .n_in = node->n_in,
                        .n_out = n_out,
                        .in = in,
                        .out = out,
                        .attrs = set,
                        .scope = node->scope,
                        .line = node->line};
  return neap_net_add(w->net, &call, NULL, error);
}

static neap_status write_net(writer *w, neap_error *error) {
  NEAP_TRY(declare_inputs(w, error));
  for (int n = 0; n < w->graph->n_node; n++) NEAP_TRY(write_node(w, &w->graph->node[n], error));
  const char *output[256];
  int n_output = NEAP_MIN(w->graph->n_output, 256);
  for (int k = 0; k < n_output; k++) output[k] = w->name[w->graph->output[k]];
  NEAP_TRY(neap_net_set_outputs(w->net, n_output, output, error));
  for (int v = 0; v < w->graph->n_value; v++)
    if (w->graph->value[v].keep || (w->graph->value[v].region == NEAP_REGION_GRADIENT && w->graph->value[v].is_last))
      NEAP_TRY(neap_net_keep(w->net, w->name[v], error));
  return NEAP_OK;
}

neap_status neap_graph_to_net(const neap_graph *graph, neap_net **out, neap_error *error) {
  writer w = {.graph = graph};
  w.name = neap_alloc_zeroed((size_t)(graph->n_value + 1) * sizeof *w.name);
  neap_status status = w.name == NULL ? graph_no_memory(error) : neap_net_new(graph->name, &w.net, error);
  if (status == NEAP_OK) status = write_net(&w, error);
  neap_free((void *)w.name);
  neap_map_fini(&w.count);
  if (status != NEAP_OK) {
    neap_net_free(w.net);
    return status;
  }
  *out = w.net;
  return NEAP_OK;
}
