/* value.c: what the files of building share: values for names, and the few ops that building itself
 * emits.
 *
 * INVARIANT: the environment maps a name to its newest version, and the declared blobs among them
 * are values from their first mention on. What emits leaves its status in the builder, as grad
 * functions do: set it up before, look at it after.
 */
#include "build/build_int.h"

#include <stdio.h>
#include <string.h>

void build_fini(neap_builder *b) {
  neap_map_fini(&b->env);
  neap_map_fini(&b->stored);
  neap_free(b->mixed);
}

neap_value_id *build_ids(neap_builder *b, int n) {
  return neap_arena_alloc(&b->graph->arena, (size_t)n * sizeof(neap_value_id));
}

const neap_type *build_given_type(const neap_builder *b, const char *name) {
  /* A batch of another size than the net declares, say. */
  if (b->options == NULL) return NULL;
  for (int i = 0; i < b->options->n_input; i++)
    if (strcmp(b->options->input[i].name, name) == 0) return &b->options->input[i].type;
  return NULL;
}

/* By role alone: what an op makes lies in the arena until the end of building says that somebody
 * will look for it. */
neap_region build_region_of(neap_role role) {
  switch (role) {
    case NEAP_ROLE_PARAMETER: return NEAP_REGION_PARAMETER;
    case NEAP_ROLE_GRADIENT: return NEAP_REGION_GRADIENT;
    case NEAP_ROLE_STATE: return NEAP_REGION_STATE;
    case NEAP_ROLE_INPUT:
    case NEAP_ROLE_OUTPUT: return NEAP_REGION_IO;
    default: return NEAP_REGION_ARENA;
  }
}

neap_status build_value_of(neap_builder *b, const char *name, neap_value_id *out,
                           neap_error *error) {
  *out = neap_map_get(&b->env, name, NEAP_NO_VALUE);
  if (*out != NEAP_NO_VALUE) return NEAP_OK;

  /* Not mentioned yet: only a declaration can say what it is. */
  const neap_net_blob *blob = neap_net_find_blob(b->net, name);
  if (blob == NULL || blob->type.dtype == NEAP_DTYPE_NONE)
    return neap_fail(error, NEAP_NAME, "blob \"%s\" is read before anything writes it", name);

  /* The options' type where they give one: nets are run at other batch sizes than they declare. */
  const neap_type *type = build_given_type(b, name);
  if (type == NULL) type = &blob->type;
  char what[160];
  snprintf(what, sizeof what, "blob \"%.140s\"", name);

  /* Options may give any type: it is checked, and its bytes are counted, before it is a value. */
  NEAP_TRY(neap_type_check(type, what, error));
  NEAP_TRY(build_count(b, 0, 0, neap_type_bytes(type), error));

  /* The net's own text of the name is interned, and outlives the net. */
  int v = graph_add_value(b->graph, blob->name, type);
  if (v < 0 || !neap_map_set(&b->env, name, v)) return graph_no_memory(error);

  /* It is there before the run, in bytes of its own. */
  neap_value *value = &b->graph->value[v];
  value->role = blob->role;
  value->region = build_region_of(blob->role);
  value->keep = blob->keep;
  value->is_blob = true;
  *out = v;
  return NEAP_OK;
}

bool build_is_writable(const neap_value *value) {
  return value->region != NEAP_REGION_ARENA &&
         (value->region != NEAP_REGION_ARGUMENT || value->role == NEAP_ROLE_STATE);
}

/* Nothing is taken back: what building has made and thrown away had its cost too. */
neap_status build_count(neap_builder *b, int n_node, int n_sub, size_t bytes, neap_error *error) {
  /* One count for the whole graph, so that many small subgraphs are refused like one large one. */
  neap_build_count *c = b->count;
  c->n_node += n_node;
  c->n_sub += n_sub;
  c->bytes = neap_size_add(c->bytes, neap_align(bytes));
  if (c->n_node > NEAP_MOST_NODES || c->n_sub > NEAP_MOST_SUBNETS)
    return neap_fail(
      error, NEAP_GRAPH,
      "the graph, backward pass and subnets included, has more than %d ops or %d subnets",
      NEAP_MOST_NODES, NEAP_MOST_SUBNETS);

  /* A sum that saturated is above the ceiling, too. */
  char most[24];
  if (c->bytes > NEAP_MOST_GRAPH_BYTES)
    return neap_fail(
      error, NEAP_GRAPH,
      "the values of the graph, backward pass and subnets included, have more than %s in all",
      neap_bytes_text((double)NEAP_MOST_GRAPH_BYTES, most));
  return NEAP_OK;
}

void build_begin_emit(neap_builder *b, neap_error *error) {
  b->emit_status = NEAP_OK;
  b->emit_error = error;
}

neap_value_id build_constant(neap_builder *b, neap_type type, double value) {
  neap_grad g = build_emitter(b);
  return neap_grad_emit1(&g, "Constant", 0, NULL, NULL,
                         (neap_set[]){NEAP_SET_INTS("shape", type.shape.n_dim, type.shape.dim),
                                      NEAP_SET_FLOAT("value", value),
                                      NEAP_SET_INT("dtype", type.dtype),
                                      {0}});
}

neap_value_id build_emit_copy(neap_builder *b, neap_value_id v) {
  neap_grad g = build_emitter(b);
  return neap_grad_emit1(&g, "Copy", 1, &v, NULL, NULL);
}
