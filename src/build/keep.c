/* keep.c: which names of a net, and which gradients ("x.grad"), have bytes of their own because
 * somebody wants to see them.
 *
 * The caller lists names. Of losses it asks more: the scalars that one is made of, and the
 * gradients that flow to it and to them; and of some blobs the gradient alone. What these are only
 * the graph knows, so that it is found here, while the graph is built.
 *
 * INVARIANT: a name that is to be kept is in `kept` of the builder before a pass could drop its
 * value, and before the gradient that carries the name is made.
 */
#include "build/build_int.h"

#include <stdio.h>
#include <string.h>

bool build_is_kept(const neap_builder *b, const char *name) {
  return neap_map_get(b->kept, name, 0) != 0 || b->options->keep_all;
}

bool build_keeps_gradients(const neap_builder *b) { return b->kept->n > 0; }

static neap_status add(neap_builder *b, const char *name, neap_error *error) {
  const char *own = neap_intern(name);
  return own != NULL && neap_map_set(b->kept, own, 1) ? NEAP_OK : graph_no_memory(error);
}

/* "x.grad" of x; it need not come to be. */
static neap_status add_gradient(neap_builder *b, const char *name, neap_error *error) {
  const char *own = neap_intern_format("%s.grad", name);
  return own != NULL && neap_map_set(b->kept, own, 1) ? NEAP_OK : graph_no_memory(error);
}

neap_status build_keep_listed(neap_builder *b, neap_error *error) {
  const neap_graph_options *o = b->options;
  for (int i = 0; i < o->n_keep; i++) NEAP_TRY(add(b, o->keep[i], error));
  for (int i = 0; i < o->n_loss; i++) NEAP_TRY(add(b, o->loss[i], error));
  for (int i = 0; i < o->n_loss; i++) NEAP_TRY(add_gradient(b, o->loss[i], error));
  for (int i = 0; i < o->n_diff; i++) NEAP_TRY(add_gradient(b, o->diff[i], error));
  return NEAP_OK;
}

static bool is_scalar(const neap_graph *graph, neap_value_id v) {
  return neap_shape_elems(&graph->value[v].type.shape) == 1;
}

/* What a node makes stands behind what it reads, so one walk from the last value to the first finds
 * all: a term is marked before its own inputs are looked at. */
neap_status build_keep_terms(neap_builder *b, neap_error *error) {
  const neap_graph *graph = b->graph;
  if (!b->is_top || b->options->n_loss == 0) return NEAP_OK;
  bool *term = neap_arena_alloc(&b->graph->arena, (size_t)graph->n_value + 1);
  if (term == NULL) return graph_no_memory(error);

  /* The losses themselves, as far as they are built and of one element. */
  for (int i = 0; i < b->options->n_loss; i++) {
    neap_value_id v = neap_map_get(&b->env, neap_intern(b->options->loss[i]), NEAP_NO_VALUE);
    if (v >= 0 && is_scalar(graph, v)) term[v] = true;
  }
  for (int v = graph->n_value - 1; v >= 0; v--) {
    const neap_value *value = &graph->value[v];
    if (!term[v] || value->node < 0) continue;
    const neap_node *node = &graph->node[value->node];
    for (int i = 0; i < node->n_in; i++) {
      /* A scalar that some op made of something is a term; a scalar parameter is none. */
      neap_value_id in = node->in[i];
      if (in >= 0 && graph->value[in].node >= 0 && is_scalar(graph, in) &&
          neap_dtype_is_float(graph->value[in].type.dtype))
        term[in] = true;
    }
    if (!value->is_blob) continue;
    NEAP_TRY(add(b, value->name, error));
    NEAP_TRY(add_gradient(b, value->name, error));
  }
  return NEAP_OK;
}

/* The gradient of blob `of`, where none has come to be and there could be one: it is zero, and has
 * bytes like any other that is kept. */
static neap_status keep_zero(neap_builder *b, const char *of, neap_error *error) {
  const char *blob = neap_intern(of), *name = neap_intern_format("%s.grad", of);
  if (blob == NULL || name == NULL) return graph_no_memory(error);

  /* Where one came to be the builder has bound its name; and integers have none. */
  neap_value_id v = neap_map_get(&b->env, blob, NEAP_NO_VALUE);
  if (neap_map_get(&b->env, name, NEAP_NO_VALUE) >= 0 || v < 0 ||
      !neap_dtype_is_float(b->graph->value[v].type.dtype))
    return NEAP_OK;
  neap_value_id zero = build_constant(b, b->graph->value[v].type, 0);
  NEAP_TRY(b->emit_status);
  b->graph->value[zero].name = name;
  b->graph->value[zero].is_blob = true;
  return neap_map_set(&b->env, name, zero) ? NEAP_OK : graph_no_memory(error);
}

neap_status build_keep_zeros(neap_builder *b, neap_error *error) {
  build_begin_emit(b, error);
  for (int i = 0; i < b->options->n_keep; i++) {
    char of[256];
    const char *name = b->options->keep[i];
    size_t stem = neap_gradient_stem(name);
    /* A name like "x.grad" asks for the gradient of x; all others are blobs of the net. */
    if (stem == 0 || stem >= sizeof of) continue;
    snprintf(of, sizeof of, "%.*s", (int)stem, name);
    NEAP_TRY(keep_zero(b, of, error));
  }
  for (int i = 0; i < b->options->n_diff; i++) NEAP_TRY(keep_zero(b, b->options->diff[i], error));
  return NEAP_OK;
}

/* A name to keep that the net lacks is a slip of the pen, and would be missed when it is
 * fetched. */
neap_status build_check_keeps(const neap_builder *b, neap_error *error) {
  /* Labels too, not only blobs: "x.grad" names a value that graph made. */
  for (int i = 0; i < b->options->n_keep; i++) {
    const char *name = b->options->keep[i];
    int v = 0;
    while (v < b->graph->n_value && strcmp(b->graph->value[v].name, name) != 0) v++;
    if (v < b->graph->n_value) continue;
    /* It exists nowhere: the nearest name is what was meant, most likely. */
    const char *best = NULL;
    int least = neap_text_reach(name);
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
