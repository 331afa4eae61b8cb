/* assign.c: what a declared name stands for when ops write it. A parameter, state or input has
 * bytes that outlive the run. An enforced pair writes them in place; any other op makes a transient
 * value, which readers behind it read as they would read any other, and which is assigned to the
 * blob in the end: by an Assign, or by the op itself, in place, where nobody could tell. In between
 * whatever writes in place works on transient bytes too: an enforced pair on a copy (op.c).
 *
 * `stored` of the builder maps a declared name whose newest value lies elsewhere to the newest one
 * in the blob's own bytes.
 * INVARIANT: at the end of building the last version of a declared name lies in the blob's own
 * bytes: a name has one value.
 * INVARIANT: an Assign is a commit: it waits for whatever can fail, so a run that fails leaves the
 * blob as it was.
 */
#include "build/build_int.h"

#include <stdio.h>

/* Whether the value lies in bytes that are there before the run, under a name that the user
 * declared. */
static bool is_stored(const neap_builder *b, neap_value_id v) {
  const neap_value *value = &b->graph->value[v];
  return value->region == NEAP_REGION_PARAMETER || value->region == NEAP_REGION_STATE ||
         (value->region == NEAP_REGION_IO && value->role == NEAP_ROLE_INPUT);
}

/* Another type can't become the blob: whoever feeds, saves or reads it counts on what was
 * declared. */
static neap_status fail_type(const neap_builder *b, const char *name, neap_value_id old,
                             neap_value_id v, neap_error *error) {
  const neap_value *declared = &b->graph->value[old], *value = &b->graph->value[v];
  const neap_node *node = &b->graph->node[value->node];
  char was[NEAP_SHAPE_TEXT], is[NEAP_SHAPE_TEXT];
  neap_error inner = {0};
  snprintf(inner.blob, sizeof inner.blob, "%s", name);
  neap_fail(&inner, NEAP_SHAPE,
            "writes %s \"%s\", which is declared as %s %s: expected that, got %s %s",
            neap_role_name(declared->role), name, neap_dtype_name(declared->type.dtype),
            neap_shape_text(&declared->type.shape, was), neap_dtype_name(value->type.dtype),
            neap_shape_text(&value->type.shape, is));
  neap_hint(&inner, "give the output another name");
  return graph_locate(error, &inner, node->op->name, node->name, node->scope, node->line);
}

/* The bytes that `name` has before the op, where it is declared: those that have to take its new
 * value. */
static neap_status find_stored(neap_builder *b, const char *name, neap_value_id *old,
                               neap_error *error) {
  *old = neap_map_get(&b->env, name, NEAP_NO_VALUE);
  const neap_net_blob *blob = neap_net_find_blob(b->net, name);
  bool declared = blob != NULL && blob->type.dtype != NEAP_DTYPE_NONE;
  return *old == NEAP_NO_VALUE && declared ? build_value_of(b, name, old, error) : NEAP_OK;
}

neap_status build_bind(neap_builder *b, const char *name, neap_value_id v, neap_error *error) {
  neap_value_id old = NEAP_NO_VALUE;
  NEAP_ASSERT(neap_map_get(&b->env, name, NEAP_NO_VALUE) <= v,
              "\"%s\" means its newest value, not %d behind %d", name, v,
              neap_map_get(&b->env, name, NEAP_NO_VALUE));

  /* The value in the blob's own bytes, if the name is declared: either the one it means now, or the
   * one noted when an op first wrote elsewhere. */
  if (b->assigns) NEAP_TRY(find_stored(b, name, &old, error));
  if (old != NEAP_NO_VALUE && !is_stored(b, old))
    old = neap_map_get(&b->stored, name, NEAP_NO_VALUE);

  /* An op that writes the blob's bytes itself leaves nothing to assign. */
  bool in_place = b->graph->value[v].region != NEAP_REGION_ARENA;
  if (in_place) neap_map_remove(&b->stored, name);
  if (!in_place && old != NEAP_NO_VALUE) {
    /* Refused at the op that writes, not at the assignment behind all ops, which no user wrote. */
    if (!neap_type_equal(&b->graph->value[old].type, &b->graph->value[v].type))
      return fail_type(b, name, old, v, error);
    if (!neap_map_set(&b->stored, name, old)) return graph_no_memory(error);
  }
  return neap_map_set(&b->env, name, v) ? NEAP_OK : graph_no_memory(error);
}

/* The pair by which the op that makes v may write the bytes of `old` itself: it is the last to read
 * them, as the record allows, and nobody reads v, so that no reader of v has to wait for the commit
 * that the op becomes. */
static bool find_pair(const neap_graph *graph, neap_value_id old, neap_value_id v,
                      neap_pair *pair) {
  const neap_node *node = &graph->node[graph->value[v].node];
  if (node->n_sub > 0 || node->n_enforced > 0 ||
      (node->effects & ~(unsigned)NEAP_EFFECT_RANDOM) != 0)
    return false;

  /* The op reads the old value once. */
  int n_read = 0;
  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] == old) {
      *pair = (neap_pair){i, graph->value[v].position};
      n_read++;
    }

  /* Twice, and one of the reads would see what is being written. */
  if (n_read != 1) return false;

  /* Its record lets it write there. */
  bool listed = node->op->inplace_any_input && pair->out == 0;
  for (int p = 0; p < node->op->n_inplace; p++)
    if (node->op->inplace[p].in == pair->in && node->op->inplace[p].out == pair->out) listed = true;
  if (!listed) return false;

  /* And nobody reads the new value, nor the old one behind the op. */
  for (int n = 0; n < graph->n_node; n++)
    for (int i = 0; i < graph->node[n].n_in; i++) {
      neap_value_id in = graph->node[n].in[i];
      if (in == v || (in == old && n > graph->value[v].node)) return false;
    }
  return true;
}

/* The newest value of a declared name into the blob's bytes, if it lies elsewhere. */
static neap_status assign(neap_builder *b, const char *name, neap_error *error) {
  neap_value_id old = neap_map_get(&b->stored, name, NEAP_NO_VALUE);
  neap_value_id v = neap_map_get(&b->env, name, NEAP_NO_VALUE);
  if (old == NEAP_NO_VALUE) return NEAP_OK;

  /* The op that makes it writes it there where it can; else it is copied. */
  neap_pair pair;
  if (find_pair(b->graph, old, v, &pair)) {
    neap_node *node = &b->graph->node[b->graph->value[v].node];
    node->enforced[node->n_enforced++] = pair;
    node->effects |= NEAP_EFFECT_COMMIT;
    node->phase = NEAP_PHASE_UPDATE;
    build_take_versions(b->graph, b->graph->value[v].node);
  } else {
    neap_grad g = build_emitter(b);
    neap_value_id in[2] = {old, v};
    build_begin_emit(b, error);
    v = neap_grad_emit1(&g, "Assign", 2, in, NULL, NULL);
    NEAP_TRY(b->emit_status);
    b->graph->value[v].name = name;
    b->graph->value[v].is_blob = true;
  }

  /* Either way the newest value lies in the blob's bytes now. */
  neap_map_remove(&b->stored, name);
  return neap_map_set(&b->env, name, v) ? NEAP_OK : graph_no_memory(error);
}

/* In the order in which the blobs were first mentioned. */
neap_status build_assign_all(neap_builder *b, neap_error *error) {
  int n_value = b->graph->n_value;
  for (int v = 0; v < n_value; v++)
    if (b->graph->value[v].node < 0) NEAP_TRY(assign(b, b->graph->value[v].name, error));
  return NEAP_OK;
}
